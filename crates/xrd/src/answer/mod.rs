//! What servers answer: heads, texts and the parts that have a layout of their own.
//!
//! Any request may be answered with an error, a redirect or the advice to wait; those are made and read here.

mod dirlist;
mod fattr;
mod handshake;
mod locate;
mod login;
mod open;
mod protocol;
mod query;
mod redirect;
mod stat;
mod status;

pub use dirlist::{
    DirlistReader, Entry, STAT_SENTINEL, finish as finish_dirlist, listable, unlistable, write_entry,
    write_name,
};
pub use fattr::{
    Attribute, FattrAnswer, Outcome, parse_list as parse_fattr_list, write_list as write_fattr_list,
};
pub use handshake::{HANDSHAKE_ANSWER_BYTES, HandshakeAnswer};
pub use locate::Location;
pub use login::LoginAnswer;
pub use open::OpenAnswer;
pub use protocol::{Exceptions, Need, ProtocolAnswer, Signing};
pub use query::{SpaceText, checksum_text, parse_checksum};
pub use redirect::{Redirect, merge_cgi};
pub use stat::{StatMore, StatText, VfsText};
pub use status::{Corrections, STATUS_BYTES, StatusAnswer};

use crate::Malformed;
use crate::frame::{RESPONSE_HEAD_BYTES, ResponseHead, StreamId};
use crate::registry::{AttnAction, ErrorCode, Status};
use crate::wire::{Reader, without_nul};

/// A whole answer: a head of this status, and `body`.
pub fn message(stream: StreamId, status: Status, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(RESPONSE_HEAD_BYTES + body.len());
    out.extend_from_slice(&ResponseHead { stream, status, len }.encode());
    out.extend_from_slice(body);
    out
}

/// The end of a good answer.
pub fn ok(stream: StreamId, body: &[u8]) -> Vec<u8> {
    message(stream, Status::OK, body)
}

/// A failure, in words.
pub fn error(stream: StreamId, code: ErrorCode, text: &str) -> Vec<u8> {
    let mut body = code.0.to_be_bytes().to_vec();
    // What is behind a NUL would not be seen.
    body.extend(text.bytes().filter(|byte| *byte != 0));
    body.push(0);
    message(stream, Status::ERROR, &body)
}

/// "Ask again in `seconds`", or, as [`Status::WAITRESP`], "the answer comes within `seconds`".
pub fn wait(stream: StreamId, status: Status, seconds: u32, text: &str) -> Vec<u8> {
    let mut body = seconds.to_be_bytes().to_vec();
    body.extend_from_slice(text.as_bytes());
    message(stream, status, &body)
}

/// The answer, of `status`, to a request that was told that it comes later.
pub fn deferred(stream: StreamId, status: Status, body: &[u8]) -> Vec<u8> {
    let mut inner = AttnAction::RESPONSE.0.to_be_bytes().to_vec();
    inner.extend_from_slice(&[0; 4]);
    inner.extend_from_slice(&message(stream, status, body));
    message(StreamId::default(), Status::ATTN, &inner)
}

/// A failure, as a server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// Why.
    pub code: ErrorCode,
    /// In words.
    pub text: String,
}

impl ErrorAnswer {
    /// Reads what is behind the head.
    pub fn parse(bytes: &[u8]) -> Result<ErrorAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        let code = ErrorCode(reader.u32()?);
        let text = reader.rest().split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(ErrorAnswer { code, text: String::from_utf8_lossy(text).into_owned() })
    }
}

/// The event that a server asks a client to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitAnswer {
    /// For how long.
    pub seconds: u32,
    /// Why, in words.
    pub text: String,
}

impl WaitAnswer {
    /// Reads what is behind the head of `wait` and `waitresp`.
    pub fn parse(bytes: &[u8]) -> Result<WaitAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        // With a sign, on the wire.
        let seconds = u32::try_from(reader.i32()?).unwrap_or(0);
        Ok(WaitAnswer { seconds, text: String::from_utf8_lossy(without_nul(reader.rest())).into_owned() })
    }
}

/// A message that comes unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttnAnswer {
    /// The answer to an earlier request: its head, and what is behind that.
    Response(ResponseHead, Vec<u8>),
    /// Words for people.
    Message(String),
    /// Something else, which no server of today sends.
    Other(AttnAction),
}

impl AttnAnswer {
    /// Reads what is behind the head.
    pub fn parse(bytes: &[u8]) -> Result<AttnAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        let action = AttnAction(reader.u32()?);
        match action {
            AttnAction::RESPONSE => {
                reader.skip(4)?;
                let head = ResponseHead::parse(&reader.array()?)?;
                let body = reader.take(head.len as usize)?.to_vec();
                Ok(AttnAnswer::Response(head, body))
            }
            AttnAction::MESSAGE => {
                let text = String::from_utf8_lossy(without_nul(reader.rest())).into_owned();
                Ok(AttnAnswer::Message(text))
            }
            other => Ok(AttnAnswer::Other(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::hex;

    #[test]
    fn as_captured() {
        let text = "Unable to locate /nope; no such file or directory";
        let bytes = error(StreamId([0, 11]), ErrorCode::NOT_FOUND, text);
        assert_eq!(bytes[..12], hex("000b 0fa3 00000036 00000bc3"));
        let parsed = ErrorAnswer::parse(&bytes[8..]).unwrap();
        assert_eq!((parsed.code, parsed.text.as_str()), (ErrorCode::NOT_FOUND, text));
        let bytes = wait(StreamId([0, 1]), Status::WAIT, 2, "please wait");
        assert_eq!(bytes[..12], hex("0001 0fa5 0000000f 00000002"));
        assert_eq!(WaitAnswer::parse(&bytes[8..]).unwrap().seconds, 2);
        let bytes = deferred(StreamId([1, 0]), Status::OK, b"adler32 353ad728\0");
        assert_eq!(bytes[..24], hex("0000 0fa1 00000021 00001390 00000000 0100 0000 00000011"));
        let AttnAnswer::Response(head, body) = AttnAnswer::parse(&bytes[8..]).unwrap() else { panic!() };
        assert_eq!(
            (head.stream, head.status, body.as_slice()),
            (StreamId([1, 0]), Status::OK, &b"adler32 353ad728\0"[..])
        );
        assert!(AttnAnswer::parse(&bytes[8..20]).is_err());
        assert!(AttnAnswer::parse(&hex("00001390 00000000 0100 0000 7fffffff")).is_err());
    }
}
