//! `ping` (3011): whether the server is there. It has no arguments.

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;

/// A sign of life of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping;

impl Call for Ping {
    const ID: RequestId = RequestId::PING;

    fn parse(_: &[u8; 16], _: &[u8]) -> Result<Ping, Malformed> {
        Ok(Ping)
    }

    fn body(&self) -> [u8; 16] {
        [0; 16]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Ping);
    }
}
