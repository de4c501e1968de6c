//! The trait of all requests.

use crate::Malformed;
use crate::frame::{RequestHead, StreamId};
use crate::registry::RequestId;

/// One kind of request.
pub trait Call: Sized {
    /// Its number.
    const ID: RequestId;

    /// Reads it: the head's own 16 bytes, and what is behind the head. Of requests that carry data
    /// ([`carries_data`]), `payload` is what is in front of the data.
    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Self, Malformed>;

    /// The head's own 16 bytes.
    fn body(&self) -> [u8; 16];

    /// Appends what is behind the head; nothing, for most.
    fn payload(&self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends the request.
    fn encode(&self, stream: StreamId, out: &mut Vec<u8>) {
        self.encode_for(stream, 0, out);
    }

    /// Appends the request but for `data_len` bytes of data, which the caller sends behind it.
    fn encode_for(&self, stream: StreamId, data_len: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        let head = RequestHead { stream, id: Self::ID, body: self.body(), payload_len: 0 };
        out.extend_from_slice(&head.encode());
        self.payload(out);
        // A client that makes more than 4 GiB of arguments is refused by every server for less.
        let payload_len = u32::try_from(out.len() - begin - 24).unwrap_or(u32::MAX);
        let payload_len = payload_len.saturating_add(data_len);
        out[begin + 20..begin + 24].copy_from_slice(&payload_len.to_be_bytes());
    }

    /// The request as bytes.
    fn to_bytes(&self, stream: StreamId) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(stream, &mut out);
        out
    }
}

/// True when a request's payload is data for a file, which may be long and is not to be collected first. It goes
/// on behind the payload for [`RequestId::WRITEV`], and in the request inside of [`RequestId::CHKPOINT`].
pub fn carries_data(id: RequestId) -> bool {
    matches!(id, RequestId::WRITE | RequestId::PGWRITE)
}
