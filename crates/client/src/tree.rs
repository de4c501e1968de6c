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
mod event;
mod file;
mod find;
mod names;
mod report;
mod roots;
mod run;
mod small;

use gridlane_engine::Options;

use crate::filter::Filter;
use crate::place::{Place, TreePath};

pub use decide::{Action, Existing, FileFacts, decide, keep_time, look_at_source};
pub use event::{About, TreeEvent, TreeObserver};
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
