//! `close` (3003): the end of an open file.
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
pub struct Close {
    /// The handle of the answer to `open`.
    pub handle: Handle,
}

impl Call for Close {
    const ID: RequestId = RequestId::CLOSE;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Close, Malformed> {
        Ok(Close { handle: Handle(Reader::new(body).array()?) })
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
        crate::request::testing::round_trip(Close { handle: Handle([1, 2, 3, 4]) });
    }
}
