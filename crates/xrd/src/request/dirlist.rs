//! `dirlist` (3004): what is in a directory.
//!
//! ```text
//!  15 options (1)   payload: path
//! ```

use crate::Malformed;
use crate::flags::DirlistOptions;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// Which directory, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirlist {
    /// The directory; `cks.type` in its CGI chooses the checksum.
    pub about: PathArg,
    /// Facts to tell of each entry.
    pub options: DirlistOptions,
}

impl Call for Dirlist {
    const ID: RequestId = RequestId::DIRLIST;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Dirlist, Malformed> {
        let mut reader = Reader::new(body);
        reader.skip(15)?;
        Ok(Dirlist { about: PathArg::parse(payload), options: DirlistOptions(reader.u8()?) })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().skip(15).put(&[self.options.0]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.about.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let dirlist = Dirlist { about: PathArg::new("/dir"), options: DirlistOptions::STAT };
        let bytes = round_trip(dirlist);
        assert_eq!(bytes[2..], hex("0bbc 000000000000000000000000000000 02 00000004 2f646972"));
    }
}
