//! `chkpoint` (3012): changes of an open file that can be taken back.
//!
//! ```text
//!  0 handle (4)   15 kind (1)   payload of "execute": the head of another request, whose own payload follows
//! ```

use crate::Malformed;
use crate::frame::Handle;
use crate::registry::{ChkpointKind, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader};

/// An operation on a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chkpoint {
    /// The file.
    pub handle: Handle,
    /// The operation.
    pub kind: ChkpointKind,
    /// The head of the request inside, of [`ChkpointKind::EXECUTE`].
    pub inner: Vec<u8>,
}

impl Call for Chkpoint {
    const ID: RequestId = RequestId::CHKPOINT;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Chkpoint, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        reader.skip(11)?;
        Ok(Chkpoint { handle, kind: ChkpointKind(reader.u8()?), inner: payload.to_vec() })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.handle.0).skip(11).put(&[self.kind.0]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        let inner = vec![1; 24];
        let handle = Handle([1, 2, 3, 4]);
        crate::request::testing::round_trip(Chkpoint { handle, kind: ChkpointKind::EXECUTE, inner });
    }
}
