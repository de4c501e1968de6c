//! `locate` (3027): which servers have a file.
//!
//! ```text
//!  0 options (2)   payload: path; `*` or `*path` for all servers
//! ```

use crate::Malformed;
use crate::flags::LocateOptions;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// A question for the servers that have a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locate {
    /// The file; with `*` in front, all servers that could have it.
    pub about: PathArg,
    /// Its options.
    pub options: LocateOptions,
}

impl Call for Locate {
    const ID: RequestId = RequestId::LOCATE;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Locate, Malformed> {
        let options = LocateOptions(Reader::new(body).u16()?);
        Ok(Locate { about: PathArg::parse(payload), options })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.options.0.to_be_bytes()).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.about.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        let about = PathArg::new("*/dir");
        crate::request::testing::round_trip(Locate { about, options: LocateOptions(0x0501) });
    }
}
