//! What clients ask for: a file for each request, with its layout, its limits, its codec and its tests.

mod auth;
mod bind;
mod call;
mod chkpoint;
mod chmod;
mod clone;
mod close;
mod dirlist;
mod endsess;
mod fattr;
mod locate;
mod login;
mod mkdir;
mod mv;
mod open;
mod pgread;
mod pgwrite;
mod ping;
mod prepare;
mod protocol;
mod query;
mod read;
mod readv;
mod rm;
mod rmdir;
mod set;
mod sigver;
mod stat;
mod statx;
mod sync;
mod truncate;
mod write;
mod writev;

pub use auth::Auth;
pub use bind::Bind;
pub use call::{Call, carries_data};
pub use chkpoint::Chkpoint;
pub use chmod::Chmod;
pub use clone::{Clone, CloneRange};
pub use close::Close;
pub use dirlist::Dirlist;
pub use endsess::Endsess;
pub use fattr::{Fattr, FattrAbout};
pub use locate::Locate;
pub use login::Login;
pub use mkdir::Mkdir;
pub use mv::Mv;
pub use open::Open;
pub use pgread::PgRead;
pub use pgwrite::PgWrite;
pub use ping::Ping;
pub use prepare::Prepare;
pub use protocol::{Expect, Protocol};
pub use query::Query;
pub use read::Read;
pub use readv::{ReadV, Segment};
pub use rm::Rm;
pub use rmdir::Rmdir;
pub use set::Set;
pub use sigver::Sigver;
pub use stat::{About, Stat};
pub use statx::Statx;
pub use sync::Sync;
pub use truncate::Truncate;
pub use write::Write;
pub use writev::WriteV;

use crate::Malformed;
use crate::frame::StreamId;
use crate::registry::{ErrorCode, RequestId};

macro_rules! requests {
    ($( $name:ident: $id:ident, )*) => {
        /// Any request.
        #[derive(Clone, Debug, PartialEq, Eq)]
        // Few of them exist at a time, and a box for each would cost more than the room.
        #[allow(clippy::large_enum_variant, missing_docs)]
        pub enum Request {
            $( $name($name), )*
        }

        impl Request {
            /// Reads a request whose head says `id`; see [`Call::parse`].
            pub fn parse(id: RequestId, body: &[u8; 16], payload: &[u8]) -> Result<Request, Malformed> {
                match id {
                    $( RequestId::$id => $name::parse(body, payload).map(Request::$name), )*
                    _ => Err(Malformed::new(ErrorCode::INVALID_REQUEST, "Invalid request code")),
                }
            }

            /// Its number.
            pub fn id(&self) -> RequestId {
                match self {
                    $( Request::$name(_) => RequestId::$id, )*
                }
            }

            /// Appends it; see [`Call::encode_for`].
            pub fn encode_for(&self, stream: StreamId, data_len: u32, out: &mut Vec<u8>) {
                match self {
                    $( Request::$name(call) => call.encode_for(stream, data_len, out), )*
                }
            }
        }

        $(
            impl From<$name> for Request {
                fn from(call: $name) -> Request {
                    Request::$name(call)
                }
            }
        )*
    };
}

requests! {
    Auth: AUTH,
    Query: QUERY,
    Chmod: CHMOD,
    Close: CLOSE,
    Dirlist: DIRLIST,
    Protocol: PROTOCOL,
    Login: LOGIN,
    Mkdir: MKDIR,
    Mv: MV,
    Open: OPEN,
    Ping: PING,
    Chkpoint: CHKPOINT,
    Read: READ,
    Rm: RM,
    Rmdir: RMDIR,
    Sync: SYNC,
    Stat: STAT,
    Set: SET,
    Write: WRITE,
    Fattr: FATTR,
    Prepare: PREPARE,
    Statx: STATX,
    Endsess: ENDSESS,
    Bind: BIND,
    ReadV: READV,
    PgWrite: PGWRITE,
    Locate: LOCATE,
    Truncate: TRUNCATE,
    Sigver: SIGVER,
    PgRead: PGREAD,
    WriteV: WRITEV,
    Clone: CLONE,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::frame::{REQUEST_HEAD_BYTES, RequestHead};

    /// Encodes, checks the head, and reads it back.
    pub(crate) fn round_trip(request: impl Into<Request>) -> Vec<u8> {
        let request = request.into();
        let mut bytes = Vec::new();
        request.encode_for(StreamId([7, 9]), 0, &mut bytes);
        let head = RequestHead::parse(bytes.first_chunk::<REQUEST_HEAD_BYTES>().unwrap()).unwrap();
        assert_eq!((head.stream, head.id), (StreamId([7, 9]), request.id()));
        assert_eq!(head.payload_len as usize, bytes.len() - REQUEST_HEAD_BYTES);
        assert_eq!(Request::parse(head.id, &head.body, &bytes[REQUEST_HEAD_BYTES..]).unwrap(), request);
        bytes
    }

    /// The answer to such a request.
    pub(crate) fn refused<T: Call + std::fmt::Debug>(body: [u8; 16], payload: &[u8]) -> ErrorCode {
        T::parse(&body, payload).unwrap_err().code
    }

    /// Hexadecimal digits, with spaces between them.
    pub(crate) fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }
}
