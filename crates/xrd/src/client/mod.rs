//! The client's side of a connection: bytes in, what they mean out. No sockets, no clock.
//!
//! An [`Opening`] leads from the first byte to a session; then [`Answers`] takes what comes apart. Data of files
//! is not collected: [`Answers`] says what the next bytes are, and the owner of the connection puts them where they
//! belong. [`Signer`] puts signatures in front of requests, where a server wants that. [`Unpaging`] takes the checksums out of pages, in place, and [`VectorReader`] the elements out of a vector.
//!
//! It decides nothing that needs a clock or another connection: which server to ask again, and when, is for
//! `gridlane-peer`.

mod answers;
mod opening;
mod signing;
mod unpaging;
mod vector;

pub use answers::{Answers, Expect, Part, Said, Step};
pub use opening::{Aim, Flight, LoginUser, Method, Opening, Refused, Session, Turn};
pub use signing::{Seal, Signer};
pub use unpaging::{Unpaged, Unpaging};
pub use vector::VectorReader;

use crate::flags::OpenOptions;
use crate::frame::{REQUEST_HEAD_BYTES, RequestHead};
use crate::registry::RequestId;

/// True if doing it twice leaves what doing it once leaves, so that it may be sent again when it is unknown whether
/// the server had it. `request` is the request as it is sent.
pub fn is_repeatable(request: &[u8]) -> bool {
    let Some(head) =
        request.first_chunk::<REQUEST_HEAD_BYTES>().and_then(|head| RequestHead::parse(head).ok())
    else {
        return false;
    };
    match head.id {
        RequestId::OPEN => {
            let options = OpenOptions(u16::from_be_bytes([head.body[2], head.body[3]]));
            !options.is_write()
        }
        RequestId::QUERY
        | RequestId::DIRLIST
        | RequestId::PROTOCOL
        | RequestId::PING
        | RequestId::READ
        | RequestId::READV
        | RequestId::PGREAD
        | RequestId::STAT
        | RequestId::STATX
        | RequestId::LOCATE
        | RequestId::CHMOD
        | RequestId::ENDSESS
        | RequestId::TRUNCATE => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
