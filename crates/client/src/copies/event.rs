//! The events of the copies of a request.

use gridlane_core::{Error, Url};
use gridlane_engine::{Event, Report};

use super::rules::Action;
use crate::credentials::Warning;
use crate::third_party::{Carrier, Detour};
use crate::tree::LeftOut;

/// Takes the events of copies, in order. It must not block.
pub trait CopyObserver: Send + Sync {
    /// Something happened.
    fn event(&mut self, event: &CopyEvent<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// A file has its turn. What follows is about it, up to the next one.
    Turn {
        /// URLs of its sources, without secrets.
        sources: &'a [String],
        /// Where it goes, for messages.
        target: &'a str,
    },
    /// A part of a metalink is not used, for this reason.
    Note(&'a str),
    /// Something to know that ends nothing.
    Warning(&'a Warning),
    /// Without being done: what would be.
    Would {
        /// The action.
        action: Action,
        /// Where it would come from.
        sources: &'a [Url],
        /// Where it would go; `None` for what takes bytes in order.
        target: Option<&'a Url>,
        /// Its size, when known.
        size_bytes: Option<u64>,
    },
    /// It was left out.
    Skipped(LeftOut),
    /// It goes another way than it was to go.
    Detour {
        /// The way.
        detour: Detour,
        /// The reason.
        why: &'a Error,
    },
    /// It could not begin.
    Refused(&'a Error),
    /// The engine tells of it.
    Engine(&'a Event<'a>),
    /// The time of its source is not kept.
    TimeLost(&'a Error),
    /// It has ended, well or badly.
    Ended {
        /// The report of the copy.
        report: &'a Report,
        /// The reason of a failure.
        error: Option<&'a Error>,
        /// The remains with which another run can continue.
        kept: &'a Kept,
        /// The server that made it; `None`: its bytes went through this process.
        carrier: Option<&'a Carrier>,
    },
}

/// The remains of a copy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing that would be of use.
    Nothing,
    /// So many bytes, with which the same request goes on.
    Bytes(u64),
    /// Bytes that cannot be used again, and why.
    Unusable(String),
}
