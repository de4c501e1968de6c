//! `statx` (3022): the kinds of several paths.
//!
//! ```text
//!  payload: paths, a line each
//! ```

use std::fmt;

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::lines;

/// Of which paths.
#[derive(Clone, PartialEq, Eq)]
pub struct Statx {
    /// The paths, each perhaps with CGI.
    pub paths: Vec<Vec<u8>>,
}

/// The CGI of a path may hold a token.
impl fmt::Debug for Statx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| PathArg::parse(path)).collect();
        write!(f, "Statx({paths:?})")
    }
}

impl Call for Statx {
    const ID: RequestId = RequestId::STATX;

    fn parse(_: &[u8; 16], payload: &[u8]) -> Result<Statx, Malformed> {
        Ok(Statx { paths: lines(payload)? })
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
    use crate::registry::ErrorCode;

    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Statx { paths: vec![b"/a".to_vec(), b"/b c".to_vec()] });
        let many = b"a\n".repeat(gridlane_core::limits::ROOT_PATHS_MAX + 1);
        assert_eq!(crate::request::testing::refused::<Statx>([0; 16], &many), ErrorCode::ARG_TOO_LONG);
        assert_eq!(Statx::parse(&[0; 16], &many[2..]).unwrap().paths.len(), many.len() / 2 - 1);
        let secret = Statx { paths: vec![b"/a?authz=secret".to_vec()] };
        assert_eq!(format!("{secret:?}"), "Statx([\"/a?…\"])");
    }
}
