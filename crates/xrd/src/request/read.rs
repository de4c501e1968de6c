//! `read` (3013): bytes of a file.
//!
//! ```text
//!  0 handle (4)   4 offset (8)   12 length (4)   payload: nothing, or path id (1) and reserved (7), then what will be read later
//! ```
//!
//! What will be read later is a hint, and left out here.

use crate::Malformed;
use crate::frame::{Handle, PathId};
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader, signed};

/// Which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Of which file.
    pub handle: Handle,
    /// From where.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    /// The connection that the answer goes to.
    pub path_id: PathId,
}

impl Call for Read {
    const ID: RequestId = RequestId::READ;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Read, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        let (offset, len) = (reader.offset()?, reader.length()?);
        // Below 8 bytes it is not what the protocol knows.
        let path_id = PathId(if payload.len() >= 8 { payload[0] } else { 0 });
        Ok(Read { handle, offset, len, path_id })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.handle.0).put(&signed(self.offset));
        body.put(&self.len.to_be_bytes()).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.path_id.0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ErrorCode;
    use crate::request::testing::{refused, round_trip};

    #[test]
    fn which_bytes() {
        let read = Read { handle: Handle([1; 4]), offset: 1 << 40, len: 8 << 20, path_id: PathId(2) };
        round_trip(read.clone());
        assert_eq!(Read::parse(&read.body(), b"").unwrap(), Read { path_id: PathId::MAIN, ..read.clone() });
        let with_hints = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &[9; 16]].concat();
        assert_eq!(Read::parse(&read.body(), &with_hints).unwrap(), read);
        assert_eq!(refused::<Read>([0xff; 16], b""), ErrorCode::ARG_INVALID);
    }
}
