//! `mkdir` (3008): a new directory.
//!
//! ```text
//!  0 options (1): 1 makes those that lead there   14 mode (2)   payload: path
//! ```

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// A new directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkdir {
    /// Where.
    pub about: PathArg,
    /// True if the directories that lead there are made.
    pub parents: bool,
    /// Its permissions; 0 for the server's own.
    pub mode: u16,
}

impl Call for Mkdir {
    const ID: RequestId = RequestId::MKDIR;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Mkdir, Malformed> {
        let mut reader = Reader::new(body);
        let parents = reader.u8()? & 1 != 0;
        reader.skip(13)?;
        Ok(Mkdir { about: PathArg::parse(payload), parents, mode: reader.u16()? })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&[u8::from(self.parents)]).skip(13).put(&self.mode.to_be_bytes()).done()
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
        let about = PathArg::new("/a/b");
        crate::request::testing::round_trip(Mkdir { about, parents: true, mode: 0o750 });
    }
}
