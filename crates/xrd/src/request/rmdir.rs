//! `rmdir` (3015): an empty directory is removed.
//!
//! ```text
//!  payload: path
//! ```

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;

/// An empty directory is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rmdir {
    /// Which.
    pub about: PathArg,
}

impl Call for Rmdir {
    const ID: RequestId = RequestId::RMDIR;

    fn parse(_: &[u8; 16], payload: &[u8]) -> Result<Rmdir, Malformed> {
        Ok(Rmdir { about: PathArg::parse(payload) })
    }

    fn body(&self) -> [u8; 16] {
        [0; 16]
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
        crate::request::testing::round_trip(Rmdir { about: PathArg::new("/a b") });
    }
}
