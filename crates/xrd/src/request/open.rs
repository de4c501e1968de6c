//! `open` (3010): a file, for reading or writing.
//!
//! ```text
//!  0 mode (2)   2 options (2)   4 more options (2)   6 reserved (6)   12 template (4)   payload: path
//! ```

use crate::Malformed;
use crate::flags::{OpenMore, OpenOptions};
use crate::frame::Handle;
use crate::path::PathArg;
use crate::registry::{ErrorCode, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader};

/// Which file, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Permissions of a file that is made.
    pub mode: u16,
    /// Its options.
    pub options: OpenOptions,
    /// More of that.
    pub more: OpenMore,
    /// An open file, for [`OpenMore::DUPLICATE`] and [`OpenMore::SAME_FILE_SYSTEM`].
    pub template: Handle,
    /// The file.
    pub about: PathArg,
}

impl Call for Open {
    const ID: RequestId = RequestId::OPEN;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Open, Malformed> {
        let mut reader = Reader::new(body);
        let (mode, options, more) = (reader.u16()?, reader.u16()?, reader.u16()?);
        reader.skip(6)?;
        let template = Handle(reader.array()?);
        let about = PathArg::parse(payload);
        if about.path.is_empty() {
            return Err(Malformed::new(ErrorCode::ARG_MISSING, "Required argument not present"));
        }
        Ok(Open { mode, options: OpenOptions(options), more: OpenMore(more), template, about })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.mode.to_be_bytes()).put(&self.options.0.to_be_bytes());
        body.put(&self.more.0.to_be_bytes()).skip(6).put(&self.template.0).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.about.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, refused, round_trip};

    #[test]
    fn as_captured() {
        let open = Open {
            mode: 0x1a4,
            options: OpenOptions::RETSTAT | OpenOptions::ASYNC | OpenOptions::READ,
            more: OpenMore::NONE,
            template: Handle::default(),
            about: PathArg::new("/dir/b"),
        };
        let bytes = round_trip(open);
        assert_eq!(bytes[2..], hex("0bc2 01a4 0450 0000 000000000000 00000000 00000006 2f6469722f62"));
        assert_eq!(refused::<Open>([0; 16], b""), ErrorCode::ARG_MISSING);
    }
}
