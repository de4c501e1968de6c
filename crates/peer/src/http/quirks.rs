//! Quirks of servers, remembered so that they need not be found out each time.

use crate::memory::{Asked, Memory};

/// Files whose checksum a server did not state before it is believed that it never states one.
const SILENT_FILES: u8 = 3;

/// The quirks of all servers, shared by the clones of a client; not by the way there: many servers are behind one proxy.
pub(super) type KnownQuirks = Memory<Asked, Quirks>;

/// One server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// It does as `If-None-Match: *` on PUT says.
    pub(super) keeps_existing: bool,
    /// It thinks for long when a GET asks for a checksum, or answers it with an error.
    pub(super) refuses_digest_with_bytes: bool,
    /// Files whose checksum it did not say, since it last said one.
    silent_files: u8,
    says_digests: bool,
    /// It answers requests that come ahead of its answers.
    pub(super) pipelines: bool,
    /// It does not do as a request for several ranges says.
    pub(super) takes_one_range: bool,
    /// It has answered one in parts.
    pub(super) sends_parts: bool,
}

impl Quirks {
    /// True if it is no use to ask for a checksum.
    pub(super) fn is_silent(self) -> bool {
        !self.says_digests && self.silent_files >= SILENT_FILES
    }

    /// It was asked for a checksum, and said it or not.
    pub(super) fn asked_for_digest(&mut self, said: bool) {
        self.says_digests |= said;
        self.silent_files = self.silent_files.saturating_add(u8::from(!said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_says_a_checksum_is_not_asked_for_ever() {
        let mut quirks = Quirks::default();
        for _ in 0..SILENT_FILES {
            assert!(!quirks.is_silent());
            quirks.asked_for_digest(false);
        }
        assert!(quirks.is_silent());
        quirks.asked_for_digest(true);
        assert!(!quirks.is_silent());
        for _ in 0..1000 {
            quirks.asked_for_digest(false);
        }
        assert!(!quirks.is_silent(), "it knows some of them");
    }
}
