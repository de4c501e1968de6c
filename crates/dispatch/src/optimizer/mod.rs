//! How many copies a link has at once.
//!
//! [`Kind::Ours`] is what the service uses; FTS3's rules are here to be compared with (fts3-rest 10).

mod decision;
mod fts;
mod ours;

use gridlane_core::Time;
use gridlane_jobs::FileId;

pub(crate) use decision::Sample;
pub use decision::{Decision, Level, Reason};
use fts::Fts;
use ours::Ours;

use crate::queue::LinkId;
use crate::rules::Range;

/// The rule by which concurrencies are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By rates, every few seconds, bottlenecks that links share seen as one.
    Ours,
    /// FTS3's until 3.13: every minute, what it has seen kept (fts3-rest 10.1–10.5).
    Fts313,
    /// FTS3's 3.14, which forgets what it has seen (fts3-rest 10.6).
    Fts314,
    /// Always so many, within a link's range.
    Fixed(u32),
}

/// One of the optimisers.
#[derive(Debug)]
pub(crate) enum Optimizer {
    Ours(Box<Ours>),
    Fts(Box<Fts>),
    Fixed(u32),
}

impl Optimizer {
    pub(crate) fn new(kind: Kind) -> Optimizer {
        match kind {
            Kind::Ours => Optimizer::Ours(Box::default()),
            Kind::Fts313 => Optimizer::Fts(Box::new(Fts::new(true))),
            Kind::Fts314 => Optimizer::Fts(Box::new(Fts::new(false))),
            Kind::Fixed(copies) => Optimizer::Fixed(copies),
        }
    }

    /// Copies at once of a link that is new.
    pub(crate) fn first(&self, link: LinkId, range: Range) -> u32 {
        match self {
            Optimizer::Ours(ours) => ours.first(link, range),
            // Nothing is decided yet (fts3-rest 11, step 3).
            Optimizer::Fts(_) => 10.min(range.max),
            Optimizer::Fixed(copies) => (*copies).clamp(range.min, range.max),
        }
    }

    /// When it looks again; `None`: never.
    pub(crate) fn next_at(&self) -> Option<Time> {
        match self {
            Optimizer::Ours(ours) => Some(ours.next_at()),
            Optimizer::Fts(fts) => Some(fts.next_at()),
            Optimizer::Fixed(_) => None,
        }
    }

    /// When the measurement began that ends at the next look; `None`: none has.
    pub(crate) fn measures_since(&self) -> Option<Time> {
        match self {
            Optimizer::Ours(ours) => ours.measures_since(),
            Optimizer::Fts(_) | Optimizer::Fixed(_) => None,
        }
    }

    /// Looks at all links that have something to do.
    pub(crate) fn look(&mut self, now: Time, samples: &[Sample]) -> Vec<Decision> {
        match self {
            Optimizer::Ours(ours) => ours.look(now, samples),
            Optimizer::Fts(fts) => fts.look(now, samples),
            Optimizer::Fixed(_) => Vec::new(),
        }
    }

    /// A copy has begun.
    pub(crate) fn started(&mut self, file: FileId, link: LinkId, now: Time) {
        if let Optimizer::Fts(fts) = self {
            fts.started(file, link, now);
        }
    }

    /// A copy has moved so many bytes by now.
    pub(crate) fn progress(&mut self, file: FileId, bytes: u64) {
        if let Optimizer::Fts(fts) = self {
            fts.progress(file, bytes);
        }
    }

    /// A copy has ended: well, or (false) not because of its file; `None` counts as nothing.
    pub(crate) fn ended(&mut self, file: FileId, is_good: Option<bool>, bytes: u64, now: Time) {
        if let Optimizer::Fts(fts) = self {
            fts.ended(file, is_good, bytes, now);
        }
    }

    /// A file waits that has failed so many times.
    pub(crate) fn requeued(&mut self, link: LinkId, attempts: u32, now: Time) {
        if let Optimizer::Fts(fts) = self {
            fts.requeued(link, attempts, now);
        }
    }

    /// A link is forgotten.
    pub(crate) fn forget(&mut self, link: LinkId) {
        match self {
            Optimizer::Ours(ours) => ours.forget(link),
            Optimizer::Fts(fts) => fts.forget(link),
            Optimizer::Fixed(_) => {}
        }
    }

    /// Links that are treated as one with this one, itself included.
    pub(crate) fn group(&self, link: LinkId) -> Vec<LinkId> {
        match self {
            Optimizer::Ours(ours) => ours.group(link),
            Optimizer::Fts(_) | Optimizer::Fixed(_) => vec![link],
        }
    }
}
