//! `write` (3019): bytes for a file.
//!
//! ```text
//!  0 handle (4)   4 offset (8)   12 path id (1)   13 reserved (3)   payload: the bytes
//! ```

use crate::Malformed;
use crate::frame::{Handle, PathId};
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader, signed};

/// Where the bytes belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// To which file.
    pub handle: Handle,
    /// From where on.
    pub offset: u64,
    /// The connection that the bytes come on, and the answer goes to.
    pub path_id: PathId,
}

impl Call for Write {
    const ID: RequestId = RequestId::WRITE;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Write, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        Ok(Write { handle, offset: reader.offset()?, path_id: PathId(reader.u8()?) })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.handle.0).put(&signed(self.offset));
        body.put(&[self.path_id.0]).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::StreamId;
    use crate::request::testing::round_trip;

    #[test]
    fn where_bytes_belong() {
        let write = Write { handle: Handle([1; 4]), offset: 77, path_id: PathId(1) };
        let mut bytes = Vec::new();
        write.encode_for(StreamId([0, 1]), 8 << 20, &mut bytes);
        assert_eq!((bytes.len(), &bytes[20..]), (24, &[0, 0x80, 0, 0][..]));
        round_trip(write);
    }
}
