//! Signatures of requests (`sigver`), what both sides have in common: which requests have them, and what is signed.

use gridlane_core::{Checksum, ChecksumKind, Hasher};

use crate::answer::{Need, Signing};
use crate::flags::OpenOptions;
use crate::frame::{REQUEST_HEAD_BYTES, RequestHead};
use crate::registry::{QueryKind, RequestId};

/// `sigver`'s number of SHA-256.
pub(crate) const SHA_256: u8 = 1;

/// What is signed: the signature's number, and the request from its head on, in the parts in which it is there.
pub(crate) fn digest(number: u64, head: &[u8; REQUEST_HEAD_BYTES], payload: &[&[u8]]) -> Checksum {
    let mut hasher = Hasher::new(ChecksumKind::Sha256);
    hasher.update(&number.to_be_bytes());
    hasher.update(head);
    payload.iter().for_each(|part| hasher.update(part));
    hasher.finish()
}

/// True if a request has to be signed.
pub(crate) fn is_signed(signing: &Signing, head: &RequestHead) -> bool {
    match signing.exceptions.of(head.id).unwrap_or_else(|| need(signing.level, head.id)) {
        Need::No => false,
        Need::Yes => true,
        Need::IfItChanges => changes(head),
    }
}

/// What the levels of XRootD's servers mean for a request: 1 is compatible, 2 standard, 3 intense, 4 and above pedantic.
fn need(level: u8, id: RequestId) -> Need {
    // The level from which on it is signed if it changes anything, and that from which on it always is.
    let (if_it_changes, always) = match id {
        RequestId::CHMOD
        | RequestId::CHKPOINT
        | RequestId::FATTR
        | RequestId::GPFILE
        | RequestId::MV
        | RequestId::RM
        | RequestId::RMDIR
        | RequestId::TRUNCATE => (1, 1),
        RequestId::OPEN => (1, 2),
        RequestId::SET => (1, 3),
        RequestId::MKDIR => (2, 2),
        RequestId::QUERY => (3, 4),
        RequestId::BIND
        | RequestId::CLOSE
        | RequestId::ENDSESS
        | RequestId::PGREAD
        | RequestId::PGWRITE
        | RequestId::WRITE => (3, 3),
        RequestId::DIRLIST
        | RequestId::LOCATE
        | RequestId::PREPARE
        | RequestId::READ
        | RequestId::READV
        | RequestId::STAT
        | RequestId::STATX
        | RequestId::SYNC => (4, 4),
        _ => return Need::No,
    };
    match level {
        level if level >= always => Need::Yes,
        level if level >= if_it_changes => Need::IfItChanges,
        _ => Need::No,
    }
}

/// True if a request that may only look changes something, as servers see it.
fn changes(head: &RequestHead) -> bool {
    let first = u16::from_be_bytes([head.body[0], head.body[1]]);
    match head.id {
        RequestId::OPEN => {
            let options = OpenOptions(u16::from_be_bytes([head.body[2], head.body[3]]));
            options
                .has_any(OpenOptions::DELETE | OpenOptions::NEW | OpenOptions::APPEND | OpenOptions::UPDATE)
        }
        RequestId::QUERY => {
            [QueryKind::OPAQUE, QueryKind::OPAQUE_FILE, QueryKind::OPAQUE_HANDLE].contains(&QueryKind(first))
        }
        // The last of its own bytes.
        RequestId::SET => head.body[15] != 0,
        _ => true,
    }
}
