//! `pgwrite` (3026): bytes with a checksum for each page.
//!
//! ```text
//!  0 handle (4)   4 offset (8)   12 path id (1)   13 flags (1): 1 sends a page again   14 reserved (2)
//!  payload: pages, see `pages`
//! ```

use crate::Malformed;
use crate::frame::{Handle, PathId};
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader, signed};

/// Where the pages belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgWrite {
    /// To which file.
    pub handle: Handle,
    /// From where on.
    pub offset: u64,
    /// The connection that the pages come on.
    pub path_id: PathId,
    /// True if it is a page that was wrong before.
    pub is_retry: bool,
}

impl Call for PgWrite {
    const ID: RequestId = RequestId::PGWRITE;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<PgWrite, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        let offset = reader.offset()?;
        Ok(PgWrite { handle, offset, path_id: PathId(reader.u8()?), is_retry: reader.u8()? & 1 != 0 })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.handle.0).put(&signed(self.offset));
        body.put(&[self.path_id.0, u8::from(self.is_retry)]).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::StreamId;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let write =
            PgWrite { handle: Handle([2, 0, 0, 0]), offset: 4090, path_id: PathId::MAIN, is_retry: false };
        let mut bytes = Vec::new();
        write.encode_for(StreamId([0, 8]), 18, &mut bytes);
        assert_eq!(bytes, hex("0008 0bd2 02000000 0000000000000ffa 00 00 0000 00000012"));
        round_trip(PgWrite { is_retry: true, path_id: PathId(2), ..write });
    }
}
