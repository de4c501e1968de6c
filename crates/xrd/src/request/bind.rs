//! `bind` (3024): this connection joins a session.
//!
//! ```text
//!  0 session (16)
//! ```

use crate::Malformed;
use crate::frame::SessionId;
use crate::registry::RequestId;
use crate::request::Call;

/// Which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The session, by its name in the login of its first connection.
    pub session: SessionId,
}

impl Call for Bind {
    const ID: RequestId = RequestId::BIND;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Bind, Malformed> {
        Ok(Bind { session: SessionId(*body) })
    }

    fn body(&self) -> [u8; 16] {
        self.session.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Bind { session: SessionId([3; 16]) });
    }
}
