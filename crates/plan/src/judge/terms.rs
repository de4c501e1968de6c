//! The demands on a copy, and the standing of each source.

use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind};

use super::known::Known;

/// The demands on a copy, as far as it is about right bytes.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The kind of checksum to compare, and its value when the caller knows it.
    pub checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// True if bytes that could not be compared with anything are a failure.
    pub require_verified: bool,
    /// Other knowledge of the file.
    pub known: Known,
    /// The time for which silence is borne.
    pub patience: Duration,
    /// The target takes bytes in order, and cannot give them back.
    pub in_order: bool,
    /// If there is one source only, it is a file of this machine that is uploaded: its checksum is that of the bytes that were
    /// read of it.
    pub is_own_word: bool,
}

impl Terms {
    /// The checksums of the whole that the bytes are compared with in any case: the one that is asked of sources first.
    pub fn kinds(&self) -> Vec<ChecksumKind> {
        kinds(self.checksum.as_ref(), &self.known)
    }
}

/// The checksums of the whole that bytes are compared with when this one is asked for, and that is known.
pub fn kinds(checksum: Option<&(ChecksumKind, Option<Checksum>)>, known: &Known) -> Vec<ChecksumKind> {
    let mut kinds: Vec<ChecksumKind> = checksum.map(|(kind, _)| *kind).into_iter().collect();
    for known in known.checksums.iter().map(Checksum::kind) {
        if checksum.is_none_or(|(first, _)| *first != known) {
            kinds.push(known);
        }
    }
    if kinds.is_empty() {
        kinds.push(ChecksumKind::Adler32);
    }
    kinds
}

/// The standing of one source.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Only a server named it: it has no vote.
    pub is_served: bool,
    /// It is never used again.
    pub is_dead: bool,
    /// Its bytes are not to be believed.
    pub is_distrusted: bool,
    /// Dead only because another size counts.
    pub is_outvoted: bool,
    /// The hypothesis that is being tried says that it sent wrong bytes.
    pub is_doubted: bool,
    /// The number of wrong pieces that it sent.
    pub wrong_pieces: u32,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// The size that it states.
    pub size_bytes: Option<u64>,
    /// The sizes that it has told with its bytes and when it was asked, when they are two.
    pub two_sizes: Option<(u64, u64)>,
    /// It has said what it states of the file, if anything.
    pub has_spoken: bool,
    /// Its checksum was waited for in vain.
    pub owed_in_vain: bool,
}

impl Member {
    /// True if its bytes are taken.
    pub(super) fn is_believed(&self) -> bool {
        !self.is_distrusted && !self.is_doubted
    }
}
