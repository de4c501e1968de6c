//! `pgread` (3030): bytes with a checksum for each page.
//!
//! ```text
//!  0 handle (4)   4 offset (8)   12 length (4)   payload: nothing, path id (1), or path id and flags (2): 1 asks again
//! ```

use crate::Malformed;
use crate::frame::{Handle, PathId};
use crate::registry::{ErrorCode, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader, signed};

/// Which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgRead {
    /// Of which file.
    pub handle: Handle,
    /// From where.
    pub offset: u64,
    /// Number of bytes, without checksums; at least 1.
    pub len: u32,
    /// The connection that the answer goes to.
    pub path_id: PathId,
    /// True if they were asked for before, and were wrong.
    pub is_retry: bool,
}

impl Call for PgRead {
    const ID: RequestId = RequestId::PGREAD;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<PgRead, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        let (offset, len) = (reader.offset()?, reader.length()?);
        if len == 0 {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, "pgread length is invalid"));
        }
        let path_id = PathId(payload.first().copied().unwrap_or_default());
        let is_retry = payload.get(1).is_some_and(|flags| flags & 1 != 0);
        Ok(PgRead { handle, offset, len, path_id, is_retry })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.handle.0).put(&signed(self.offset));
        body.put(&self.len.to_be_bytes()).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.path_id.0, u8::from(self.is_retry)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, refused, round_trip};

    #[test]
    fn as_captured() {
        let handle = Handle([1, 0, 0, 0]);
        let read = PgRead { handle, offset: 4090, len: 12, path_id: PathId::MAIN, is_retry: false };
        let bytes = round_trip(read.clone());
        assert_eq!(bytes[2..], hex("0bd6 01000000 0000000000000ffa 0000000c 00000002 00 00"));
        assert_eq!(PgRead::parse(&read.body(), b"").unwrap(), read);
        round_trip(PgRead { path_id: PathId(3), is_retry: true, ..read.clone() });
        assert_eq!(refused::<PgRead>(PgRead { len: 0, ..read }.body(), b""), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<PgRead>([0xff; 16], b""), ErrorCode::ARG_INVALID);
    }
}
