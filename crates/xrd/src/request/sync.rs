//! `sync` (3016): what was written goes to the disk.
//!
//! ```text
//!  0 handle (4)
//! ```

use crate::Malformed;
use crate::frame::Handle;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// Which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The handle of the answer to `open`.
    pub handle: Handle,
}

impl Call for Sync {
    const ID: RequestId = RequestId::SYNC;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Sync, Malformed> {
        Ok(Sync { handle: Handle(Reader::new(body).array()?) })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.handle.0).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Sync { handle: Handle([1, 2, 3, 4]) });
    }
}
