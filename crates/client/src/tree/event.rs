//! The events of a tree.

use gridlane_core::{Error, Url};
use gridlane_engine::{Report, State};

use super::report::{LeftOut, TreeSnapshot};
use crate::copies::rules::Action;
use crate::credentials::Warning;
use crate::third_party::{Carrier, Detour};
use crate::tree_path::TreePath;

/// Takes the events of a tree, in order. It must not block.
pub trait TreeObserver: Send + Sync {
    /// Something happened.
    fn event(&mut self, event: &TreeEvent<'_>);
}

/// Something that happened. Names are paths below the target.
#[derive(Debug)]
pub enum TreeEvent<'a> {
    /// A file begins to be copied.
    FileStarted {
        /// Its name.
        name: &'a TreePath,
        /// Its size, when the listing told.
        size_bytes: Option<u64>,
    },
    /// A file is there.
    FileDone {
        /// Its name.
        name: &'a TreePath,
        /// Its report.
        report: &'a Report,
        /// The server that made it; `None`: its bytes went through this process.
        carrier: Option<&'a Carrier>,
    },
    /// A file, or a directory with all that is in it, failed.
    Failed {
        /// Its name.
        name: &'a TreePath,
        /// True for a directory.
        is_directory: bool,
        /// The reason.
        error: &'a Error,
    },
    /// A file was left out.
    Skipped {
        /// Its name.
        name: &'a TreePath,
        /// The reason.
        why: LeftOut,
    },
    /// Something about a file that is being copied.
    Noted {
        /// Its name.
        name: &'a TreePath,
        /// Where, when it is about one replica.
        url: Option<&'a str>,
        /// The subject.
        about: About,
        /// The reason.
        error: Option<&'a Error>,
    },
    /// Without being done: what would be.
    Would {
        /// The file's name.
        name: &'a TreePath,
        /// The action.
        action: Action,
        /// Where it would come from.
        sources: &'a [Url],
        /// Where it would go.
        target: &'a Url,
        /// Its size, when known.
        size_bytes: Option<u64>,
    },
    /// Something to know that ends nothing.
    Warning(&'a Warning),
    /// Progress; several times a second.
    Progress(&'a TreeSnapshot),
}

/// The subject of a remark about a file that is being copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A source is in another state.
    Source(State),
    /// A connection was lost, and its bytes are asked for again.
    Retry,
    /// The bytes do not have the expected checksum.
    Mismatch,
    /// The copy goes another way than it was to go.
    Detour(Detour),
    /// The time of the source is not kept.
    Time,
    /// The name cannot stand in the list of what failed.
    Unlisted,
}
