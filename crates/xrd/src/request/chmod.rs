//! `chmod` (3002): permissions.
//!
//! ```text
//!  14 mode (2)   payload: path
//! ```

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// New permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chmod {
    /// Of what.
    pub about: PathArg,
    /// The nine bits.
    pub mode: u16,
}

impl Call for Chmod {
    const ID: RequestId = RequestId::CHMOD;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Chmod, Malformed> {
        let mut reader = Reader::new(body);
        reader.skip(14)?;
        Ok(Chmod { about: PathArg::parse(payload), mode: reader.u16()? })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().skip(14).put(&self.mode.to_be_bytes()).done()
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
        crate::request::testing::round_trip(Chmod { about: PathArg::with_cgi("/a b", "x=1"), mode: 0o644 });
    }
}
