//! Reading a remote file at any place: the planner of `gridlane_read`, and the lanes that bring what it asks for.
//!
//! ```text
//!  application ──read──▶ RemoteFile ──call──▶ Reader (pure) ──request──▶ lane ──▶ server
//!       ▲                                       │     ▲                   │
//!       └── Ready, range by range ◀── bytes ────┘     └──── parts ────────┘
//! ```
//!
//! There is no task that owns the planner: it is behind a lock (`shared`) which a call takes for microseconds. A call whose
//! bytes are there is answered on the thread that makes it, and a lane hands over what has come in batches, when its
//! connection has no more to give at once. One task per file (`clock`) wakes the planner when it wants to be.
//!
//! A lane is a connection with the file open, as for copies, and shares with them the version that a source has, the judgement
//! of heads, redirects, and the reads of XRootD's protocol with checksums of pages.
//!
//! With a cache (`disk`, `kept`), bytes that earlier readers have brought come from the disk, and those that lanes bring are kept there.
//!
//! What a file has shown of the path to its server is kept for the next one (`learning`).
//!
//! When all bytes of a file are in memory they are compared with the checksum that a server states (`proof`).
//!
//! Read first: [`RemoteFile`], then `shared`, `lane`, and `http` or `root`.

mod batch;
mod call;
mod clock;
mod disk;
mod file;
mod http;
mod kept;
mod lane;
mod learning;
mod options;
mod piece;
mod proof;
mod root;
mod shared;
mod stored;

pub use call::{Reading, Ready};
pub use file::RemoteFile;
pub use gridlane_read::cost::Path;
pub use gridlane_read::format::Format;
pub use gridlane_read::{Choices, Explain, Hint, Policy, Purpose, Settings};
pub use gridlane_store::sparse::{SparseCache, SparseLimits};
pub(crate) use lane::forget;
pub use options::{ReadCache, ReadOptions};
pub use proof::Proof;
