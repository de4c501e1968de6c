//! `statx` (3022): the kinds of several paths.
//!
//! ```text
//!  payload: paths, a line each
//! ```

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::without_nul;

/// Of which paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The paths, each perhaps with CGI.
    pub paths: Vec<Vec<u8>>,
}

impl Call for Statx {
    const ID: RequestId = RequestId::STATX;

    fn parse(_: &[u8; 16], payload: &[u8]) -> Result<Statx, Malformed> {
        let lines = without_nul(payload).split(|byte| *byte == b'\n');
        Ok(Statx { paths: lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect() })
    }

    fn body(&self) -> [u8; 16] {
        [0; 16]
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.paths.join(&b'\n'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Statx { paths: vec![b"/a".to_vec(), b"/b c".to_vec()] });
    }
}
