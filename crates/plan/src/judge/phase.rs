//! The phases of a copy, and the reasons for which an answer is waited for.

use gridlane_core::ChecksumKind;

use super::finding::Basis;
use super::thrown::Thrown;
use super::votes::Found;

/// The place of a copy between its last byte and its end.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Bytes are missing.
    Moving,
    /// The plan is complete, and lanes write what came last.
    Settling,
    /// Pieces are compared with checksums of their own.
    Checking { is_asked: bool },
    /// Every byte is there: words are waited for, and checksums computed.
    Hearing(Hearing),
    /// An answer is waited for.
    Asking { ticket: u64, changes: u64, about: About },
    /// The engine looks at the file.
    Looking { changes: u64 },
    /// The engine closes the lanes.
    Closing(Then),
    /// The last action was given.
    Ended,
}

/// Facts about bytes that are all there.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    pub(super) found: Found,
    /// The kinds of checksums that were asked for.
    pub(super) asked: Vec<ChecksumKind>,
    /// The question that is not answered yet, and how often bytes had been taken away by then.
    pub(super) waits: Option<(u64, u64)>,
}

/// The reason of a question to the file.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// The bytes are wrong: which sources contradict each other?
    Contradictions,
    /// The next hypothesis is being tried: what need not be fetched again?
    Spared { believed: Vec<usize>, thrown_bytes: u64 },
    /// The bytes are right, as this says: which sources had sent others?
    Liars { thrown: Vec<Thrown>, basis: Basis, found: Found },
    /// Has the file what came?
    Damage,
}

/// The next step when the lanes are closed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The copy begins anew, with this size perhaps.
    StartOver(u64),
    /// The bytes are wrong, and others are believed.
    BelieveOthers,
    /// The target becomes visible.
    Finish,
}
