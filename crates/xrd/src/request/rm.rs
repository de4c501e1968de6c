//! `rm` (3014): a file is removed.
//!
//! ```text
//!  payload: path
//! ```

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;

/// A file is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rm {
    /// Which.
    pub about: PathArg,
}

impl Call for Rm {
    const ID: RequestId = RequestId::RM;

    fn parse(_: &[u8; 16], payload: &[u8]) -> Result<Rm, Malformed> {
        Ok(Rm { about: PathArg::parse(payload) })
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
        crate::request::testing::round_trip(Rm { about: PathArg::new("/a b") });
    }
}
