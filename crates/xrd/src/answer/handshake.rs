//! The answer to the handshake: a head of stream 0, then version (4) and role (4).

use crate::Malformed;
use crate::frame::{ResponseHead, StreamId};
use crate::registry::Status;
use crate::wire::Reader;

/// Bytes of the answer behind its head.
pub const HANDSHAKE_ANSWER_BYTES: usize = 8;

/// The first answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeAnswer {
    /// Its version of the protocol.
    pub version: u32,
    /// True if it is a manager; clients of today believe the flags of `protocol` instead.
    pub is_manager: bool,
}

impl HandshakeAnswer {
    /// The answer with its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = ResponseHead {
            stream: StreamId::default(),
            status: Status::OK,
            len: HANDSHAKE_ANSWER_BYTES as u32,
        };
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&u32::from(!self.is_manager).to_be_bytes());
    }

    /// Reads what is behind the head.
    pub fn parse(bytes: &[u8]) -> Result<HandshakeAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(HandshakeAnswer { version: reader.u32()?, is_manager: reader.u32()? == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::hex;

    #[test]
    fn as_captured() {
        let mut out = Vec::new();
        let answer = HandshakeAnswer { version: 0x511, is_manager: false };
        answer.encode(&mut out);
        assert_eq!(out, hex("0000 0000 00000008 00000511 00000001"));
        assert_eq!(HandshakeAnswer::parse(&out[8..]), Ok(answer));
        assert!(HandshakeAnswer::parse(&out[9..]).is_err());
    }
}
