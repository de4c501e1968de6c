//! `endsess` (3023): the end of an earlier session of the same client.
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
pub struct Endsess {
    /// The session, by its name in its login.
    pub session: SessionId,
}

impl Call for Endsess {
    const ID: RequestId = RequestId::ENDSESS;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Endsess, Malformed> {
        Ok(Endsess { session: SessionId(*body) })
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
        crate::request::testing::round_trip(Endsess { session: SessionId([3; 16]) });
    }
}
