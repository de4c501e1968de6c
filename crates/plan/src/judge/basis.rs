//! Whose word the bytes were compared with, and what followed. Who is believed among replicas, and for how long a word is
//! waited for, is decided in [`gridlane_plan::Votes`].

use gridlane_core::Checksum;
use gridlane_plan::{self as plan, Split};

/// Where the expected checksum comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The person who started the copy.
    User,
    /// The file's metalink: the checksum of the whole, or those of all pieces.
    Metalink,
    /// The sources that the person named.
    Sources {
        /// How many state checksums that the bytes have.
        agreeing: usize,
        /// How many state any that could be compared.
        said: usize,
        /// How many were named.
        named: usize,
    },
}

/// What follows about bytes that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A word that is still to come may change it.
    Open,
    /// There is nothing to compare with.
    Nothing,
    /// They are right, as this says.
    Right(Basis),
    /// They should have this checksum.
    Wrong(Checksum),
    /// The sources contradict each other.
    Split(Split),
}

impl From<plan::Verdict> for Verdict {
    fn from(verdict: plan::Verdict) -> Verdict {
        match verdict {
            plan::Verdict::Open => Verdict::Open,
            plan::Verdict::Nothing => Verdict::Nothing,
            plan::Verdict::Right { agreeing, said, named } => {
                Verdict::Right(Basis::Sources { agreeing, said, named })
            }
            plan::Verdict::Wrong { expected } => Verdict::Wrong(expected),
            plan::Verdict::Split(split) => Verdict::Split(split),
        }
    }
}
