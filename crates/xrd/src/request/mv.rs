//! `mv` (3009): another name.
//!
//! ```text
//!  14 length of the first path, with its CGI (2)   payload: path, a space, path
//! ```
//!
//! A length of 0 means that the first space separates them.

use crate::Malformed;
use crate::path::PathArg;
use crate::registry::{ErrorCode, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader, without_nul};

/// From where to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mv {
    /// The old name.
    pub from: PathArg,
    /// The new one.
    pub to: PathArg,
}

impl Call for Mv {
    const ID: RequestId = RequestId::MV;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Mv, Malformed> {
        let mut reader = Reader::new(body);
        reader.skip(14)?;
        let payload = without_nul(payload);
        let at = match usize::from(reader.u16()?) {
            0 => payload.iter().position(|byte| *byte == b' '),
            len => Some(len).filter(|len| payload.get(*len) == Some(&b' ')),
        };
        let at = at.ok_or(Malformed::new(ErrorCode::ARG_INVALID, "invalid path specification"))?;
        Ok(Mv { from: PathArg::parse(&payload[..at]), to: PathArg::parse(&payload[at + 1..]) })
    }

    fn body(&self) -> [u8; 16] {
        let mut from = Vec::new();
        self.from.write(&mut from);
        // 0 would let the first space decide, and something else would be renamed: what is too long is refused.
        let len = u16::try_from(from.len()).unwrap_or(u16::MAX);
        Body::new().skip(14).put(&len.to_be_bytes()).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.from.write(out);
        out.push(b' ');
        self.to.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{refused, round_trip};

    #[test]
    fn two_paths() {
        round_trip(Mv { from: PathArg::with_cgi("/a b", "x=1"), to: PathArg::new("/c d") });
        let mv = Mv::parse(&[0; 16], b"/a /b c\0").unwrap();
        assert_eq!((mv.from.path, mv.to.path), (b"/a".to_vec(), b"/b c".to_vec()));
        assert_eq!(refused::<Mv>([0; 16], b"/a"), ErrorCode::ARG_INVALID);
        let long = [b"/a ".to_vec(), vec![b'x'; 70_000]].concat();
        let long = Mv { from: PathArg::new(long), to: PathArg::new("/b") };
        let mut payload = Vec::new();
        long.payload(&mut payload);
        assert_eq!(refused::<Mv>(long.body(), &payload), ErrorCode::ARG_INVALID);
        let mut body = [0; 16];
        body[15] = 200;
        assert_eq!(refused::<Mv>(body, b"/a /b"), ErrorCode::ARG_INVALID);
    }
}
