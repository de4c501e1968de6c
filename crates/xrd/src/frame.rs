//! What is in front of every message, and the handshake in front of the first.

use std::fmt;

use crate::Malformed;
use crate::registry::{ErrorCode, RequestId, Status};
use crate::wire::Reader;

/// Bytes of the handshake.
pub const HANDSHAKE_BYTES: usize = 20;
/// The first bytes that a client sends: 0, 0, 0, 4, 2012.
pub const HANDSHAKE: [u8; HANDSHAKE_BYTES] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 7, 220];
/// Bytes of a request's head.
pub const REQUEST_HEAD_BYTES: usize = 24;
/// Bytes of an answer's head.
pub const RESPONSE_HEAD_BYTES: usize = 8;
/// The port of servers.
pub const DEFAULT_PORT: u16 = 1094;
/// The protocol that we speak, "5.1.0": that of every release from 5.5 to 5.9.
pub const PROTOCOL_VERSION: u32 = 0x511;

/// Ties an answer to its request. The client chooses it; to a server it means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct StreamId(pub [u8; 2]);

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// An open file. The server chooses it; to a client it means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Handle(pub [u8; 4]);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// A session, for connections that are bound to it and for its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SessionId(pub [u8; 16]);

/// Not shown: its knowledge is enough to end the session.
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId")
    }
}

/// The connection of a session that an answer goes to: 0 is the one that the session began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct PathId(pub u8);

impl PathId {
    /// The connection that the session began with.
    pub const MAIN: PathId = PathId(0);
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The tie between the request and its answer.
    pub stream: StreamId,
    /// The kind of request.
    pub id: RequestId,
    /// The part that differs by kind.
    pub body: [u8; 16],
    /// Bytes behind the head.
    pub payload_len: u32,
}

impl RequestHead {
    /// Reads a head. A negative length ends the connection: it is unknown where the next request begins.
    pub fn parse(bytes: &[u8; REQUEST_HEAD_BYTES]) -> Result<RequestHead, Malformed> {
        let mut reader = Reader::new(bytes);
        let stream = StreamId(reader.array()?);
        let id = RequestId(reader.u16()?);
        let body = reader.array()?;
        let payload_len = reader
            .length()
            .map_err(|_| Malformed::new(ErrorCode::ARG_INVALID, "Invalid request data length").closing())?;
        Ok(RequestHead { stream, id, body, payload_len })
    }

    /// The bytes of the head.
    pub fn encode(&self) -> [u8; REQUEST_HEAD_BYTES] {
        let mut bytes = [0; REQUEST_HEAD_BYTES];
        bytes[..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.id.0.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.body);
        bytes[20..].copy_from_slice(&self.payload_len.to_be_bytes());
        bytes
    }
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Of the request that is answered.
    pub stream: StreamId,
    /// The kind of answer.
    pub status: Status,
    /// Bytes behind the head. [`Status::STATUS`] has more, which its own body counts.
    pub len: u32,
}

impl ResponseHead {
    /// Reads a head.
    pub fn parse(bytes: &[u8; RESPONSE_HEAD_BYTES]) -> Result<ResponseHead, Malformed> {
        let mut reader = Reader::new(bytes);
        let stream = StreamId(reader.array()?);
        let status = Status(reader.u16()?);
        let len = reader.length().map_err(|wrong| wrong.closing())?;
        Ok(ResponseHead { stream, status, len })
    }

    /// The bytes of the head.
    pub fn encode(&self) -> [u8; RESPONSE_HEAD_BYTES] {
        let mut bytes = [0; RESPONSE_HEAD_BYTES];
        bytes[..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.status.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_as_captured() {
        // xrdcp 5.5.3 asks for a protocol.
        let bytes: [u8; 24] =
            [0, 0, 0x0b, 0xbe, 0, 0, 5, 0x11, 0x0b, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let head = RequestHead::parse(&bytes).unwrap();
        assert_eq!((head.id, head.payload_len), (RequestId::PROTOCOL, 0));
        assert_eq!(head.encode(), bytes);
        let mut negative = bytes;
        negative[20] = 0x80;
        assert!(RequestHead::parse(&negative).unwrap_err().closes);
        let bytes = [0, 5, 0x0f, 0xa7, 0, 0, 0, 0x18];
        let head = ResponseHead::parse(&bytes).unwrap();
        assert_eq!((head.stream, head.status, head.len), (StreamId([0, 5]), Status::STATUS, 24));
        assert_eq!(head.encode(), bytes);
        assert_eq!(&HANDSHAKE[12..], [0, 0, 0, 4, 0, 0, 0x07, 0xdc]);
    }
}
