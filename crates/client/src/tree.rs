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

mod directories;
mod event;
mod file;
mod find;
mod job;
mod names;
mod news;
mod report;
mod roots;
mod run;
mod shared;
mod small;
mod spec;

pub use event::{About, TreeEvent, TreeObserver};
pub use names::{FailedList, NameList, Separator};
pub use report::{ActiveFile, LeftOut, TreeReport, TreeSnapshot};
pub use roots::{Root, Roots, resolve_roots};
pub use run::copy_tree;
pub use spec::TreeSpec;
