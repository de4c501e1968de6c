//! What an optimiser sees, and what it decides, in words.

use std::fmt;

use gridlane_core::Time;
use gridlane_core::units::format_rate;

use crate::queue::LinkId;
use crate::rules::Range;

/// A change of a link's concurrency.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The link.
    pub link: LinkId,
    /// When.
    pub at: Time,
    /// Copies at once before.
    pub from: u32,
    /// And from now on.
    pub to: u32,
    /// Why.
    pub why: Reason,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} copies at once instead of {}: {}", self.to, self.from, self.why)
    }
}

/// A number of copies and the rate that was seen with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Copies at once.
    pub copies: u32,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} copies moved {}", self.copies, format_rate(self.bytes_per_s))
    }
}

/// Why a concurrency changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// More copies moved more so far.
    Grows(Level),
    /// More copies than before moved no more.
    NoGain(Level, Level),
    /// Fewer copies may move as much.
    Fewer(Level),
    /// Fewer copies moved less.
    TooFew(Level, Level),
    /// After a while it is looked again at whether more copies move more.
    Trial(Level),
    /// The trial is over, and is compared with as many copies as before.
    Compares(Level),
    /// The rate is another one than it was: now, and before.
    Changed(f64, f64),
    /// What it gained was lost by others: so many links.
    Suspicion(usize),
    /// It is one of so many links that share a bottleneck, with so many copies together.
    Shared(usize, u32),
    /// A storage's limit of bytes per second, of which so much is used.
    RateLimit(f64),
    /// Many of the copies fail: this share.
    Failing(f64),
    /// The range that is configured.
    Range,
    /// A rule of FTS3 (fts3-rest 10.3), by number.
    Fts(u8),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Grows(now) => write!(f, "{now}, and more copies may move more"),
            Reason::NoGain(more, fewer) => write!(f, "{more}, but {fewer}"),
            Reason::Fewer(now) => write!(f, "{now}, and fewer may move as much"),
            Reason::TooFew(fewer, more) => write!(f, "{fewer}, but {more}"),
            Reason::Trial(now) => write!(f, "{now}; from time to time more are tried"),
            Reason::Compares(trial) => write!(f, "in a trial, {trial}; now it is compared with fewer"),
            Reason::Changed(now, before) => {
                write!(f, "{} are moved now, and {} were before", format_rate(*now), format_rate(*before))
            }
            Reason::Suspicion(links) => {
                write!(f, "it gained what {links} other links lost, which may share a bottleneck with it")
            }
            Reason::Shared(links, copies) => {
                write!(f, "{links} links share a bottleneck, and {copies} copies fill it")
            }
            Reason::RateLimit(share) => {
                write!(f, "a storage's limit of bytes per second is used to {:.0} %", share * 100.0)
            }
            Reason::Failing(share) => write!(f, "{:.0} % of the copies fail", share * 100.0),
            Reason::Range => f.write_str("the configured range says so"),
            Reason::Fts(rule) => write!(f, "rule {rule} of FTS3's optimiser"),
        }
    }
}

/// A link that has something to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) link: LinkId,
    /// Its storages, by number.
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) range: Range,
    /// Copies at once, as decided.
    pub(crate) limit: u32,
    /// Files that may start.
    pub(crate) waiting: u32,
    /// Bytes that it has moved since the time that the optimiser named as the beginning.
    pub(crate) bytes: f64,
    /// The usual time between two reports of a copy, in seconds.
    pub(crate) marker_s: f64,
    /// The time of its copies so far, in seconds.
    pub(crate) slot_s: f64,
    /// Files that have moved so far.
    pub(crate) finished: u64,
    /// Copies that have failed so far, and not because of their file.
    pub(crate) failed: u64,
    /// Its path or a storage is down.
    pub(crate) is_down: bool,
    /// The used part of a storage's limit of bytes per second; 0: it has none.
    pub(crate) rate_share: f64,
}
