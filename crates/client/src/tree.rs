//! Whole trees, and several files at once.
//!
//! ```text
//!  listers ──found──▶ backlog of files ──▶ copies ──▶ targets
//!     ▲                    │ run: one task that owns everything
//!     └── backlog of directories, newest first
//! ```
//!
//! Listing runs ahead of copying, so that the sum is known early and no server waits with half a listing for
//! copies to end. Memory does not grow with the tree: records on the way are bounded in number (channels),
//! what waits is in memory up to a few thousand records and then in a temporary file (`backlog`), and a
//! directory is never held as a whole. Directories are taken newest first, so few wait. There is no
//! recursion: depth is the length of a path, which is bounded.
//!
//! Bytes move through `gridlane_engine::copy`, one call per file; small files, whose bytes are the least of what they
//! cost, through `gridlane_engine::small`, which returns to `copy` whatever is not as usual. What is here decides names.
//!
//! Read first: [`TreeSpec`], then `run`, `find`, `file`, `small`.

mod decide;
mod directories;
mod file;
mod find;
mod names;
mod report;
mod roots;
mod run;
mod small;

use gridlane_core::{Error, Url};
use gridlane_engine::{Options, Report};

use crate::filter::Filter;
use crate::place::{Place, TreePath};

pub use decide::{Action, Existing, FileFacts, decide, keep_time, look_at_source};
pub use names::{FailedList, NameList, Separator};
pub use report::{ActiveFile, LeftOut, TreeReport, TreeSnapshot};
pub use roots::{Roots, resolve_roots};
pub use run::copy_tree;

/// What to copy, to where, and how.
pub struct TreeSpec {
    /// Files and trees, with the directory that they go to.
    pub roots: Roots,
    /// Names below the only root, instead of everything that is there.
    pub names: Option<NameList>,
    /// What of it is wanted.
    pub filter: Filter,
    /// For every file.
    pub options: Options,
    /// What becomes of targets that exist.
    pub existing: Existing,
    /// Whether targets get the time of the last change of their source.
    pub preserve_times: bool,
    /// Whether symbolic links of this machine are read as what they lead to; else they are skipped.
    pub follow_links: bool,
    /// Whether the others are still copied when one has failed.
    pub continue_on_error: bool,
    /// Whether it is only said what would be done.
    pub dry_run: bool,
    /// Files that are copied at the same time.
    pub parallel: usize,
    /// Where the names of what failed go.
    pub failed: Option<FailedList>,
}

/// A file or tree that is copied.
#[derive(Clone, Debug)]
pub struct Root {
    /// Where it is; with several, each has all of it. The first says what there is.
    pub sources: Vec<Place>,
    /// What it is called below the target; the root's own path for the target itself.
    pub prefix: TreePath,
    /// Whether it is a tree.
    pub is_directory: bool,
}

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
        /// How it went.
        report: &'a Report,
    },
    /// A file, or a directory with all that is in it, failed.
    Failed {
        /// Its name.
        name: &'a TreePath,
        /// Whether it is a directory.
        is_directory: bool,
        /// Why.
        error: &'a Error,
    },
    /// A file was left out.
    Skipped {
        /// Its name.
        name: &'a TreePath,
        /// Why.
        why: LeftOut,
    },
    /// Something about a file that is being copied.
    Noted {
        /// Its name.
        name: &'a TreePath,
        /// Where, when it is about one replica.
        url: Option<&'a str>,
        /// What, as the word for it in a program.
        state: &'static str,
        /// Why.
        error: Option<&'a Error>,
    },
    /// Without being done: what would be.
    Would {
        /// The file's name.
        name: &'a TreePath,
        /// What.
        action: Action,
        /// Where it would come from.
        sources: &'a [Url],
        /// Where it would go.
        target: &'a Url,
        /// Its size, when known.
        size_bytes: Option<u64>,
    },
    /// How far it is; several times a second.
    Progress(&'a TreeSnapshot),
}
