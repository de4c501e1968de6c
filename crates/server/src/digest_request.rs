//! The checksums of a file in an answer: those that were asked for, never others. A client that takes an unsolicited
//! one for an answer to its last question would compare the wrong things.
//!
//! There are two ways to ask, `Want-Digest` (RFC 3230) and `Want-Repr-Digest` (RFC 9530), and each is answered in its
//! own field, with exactly one algorithm: davix misses a second one.

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_dav::{Headers, digest};

use gridlane_front::reply::Reply;

/// The digest request of each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DigestRequest {
    digest: Option<ChecksumKind>,
    repr_digest: Option<ChecksumKind>,
}

impl DigestRequest {
    /// The best of `offered` for either field.
    pub(crate) fn of(headers: &Headers, offered: &[ChecksumKind]) -> DigestRequest {
        DigestRequest {
            digest: digest::negotiate(headers, offered),
            repr_digest: digest::negotiate_repr(headers, offered),
        }
    }

    /// True if any digest is requested.
    pub(crate) fn is_any(self) -> bool {
        self != DigestRequest::default()
    }

    /// The algorithms, each once.
    pub(crate) fn kinds(self) -> impl Iterator<Item = ChecksumKind> {
        let other = self.repr_digest.filter(|kind| self.digest != Some(*kind));
        self.digest.into_iter().chain(other)
    }

    /// Adds the fields whose checksum is among those.
    pub(crate) fn add_to(self, mut reply: Reply, checksums: &[Checksum]) -> Reply {
        let find = |kind| checksums.iter().find(|checksum| Some(checksum.kind()) == kind);
        if let Some(checksum) = find(self.digest) {
            reply = reply.field("Digest", digest::encode(checksum));
        }
        if let Some(checksum) = find(self.repr_digest) {
            reply = reply.field("Repr-Digest", digest::encode_repr(checksum));
        }
        reply
    }
}
