//! The storage behind the server, and the targets of copies on both sides.
//!
//! [`storage`] has the traits that a server needs of an export, [`posix_extras`] the further operations of a file system, and
//! [`writable`] those of files that are changed in place. All of them may wait. [`blocking`] has the same traits for storages
//! whose calls block: each call takes a turn at its device. [`posix`] is a directory of this machine, [`quota`] a limit
//! around any storage; [`memory`] and [`fake`] are for tests: one that shows what the traits mean, and ones that are slow,
//! broken, far away or like an object store. All of them pass one suite (`conformance`), which is for storages of other
//! crates as well.
//!
//! [`target`] is the destination of a copy: a file of this machine ([`path_target`]), of an export, or of memory.
//! Beside its bytes is a [`journal`], so that a killed copy goes on. Everything that becomes visible all at once is
//! one partial file (`partial/mod.rs`). A source that is no file, but bytes of a program, is a [`content`].
//!
//! One rule holds for both: nothing half-written is ever visible under its name, unless a client asked for
//! just that, as those of XRootD may.
//!
//! [`sparse`] is apart from both: a cache on the local disk of the parts of remote files that have been read.
//!
//! The storages are no file-system abstraction: there is no seek and no append.
//!
//! Read first: [`storage`], then [`blocking`] and [`posix`].

pub mod blocking;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod content;
pub mod error;
pub mod fake;
mod in_turns;
pub mod journal;
pub mod journal_key;
pub mod links;
pub mod memory;
mod partial;
pub mod path;
pub mod path_target;
pub mod posix;
pub mod posix_extras;
pub mod quota;
pub mod sparse;
pub mod storage;
pub mod target;
pub mod unnamed;
pub mod writable;

pub use blocking::{BlockingFile, BlockingObject, BlockingStorage, BlockingUpload};
pub use content::{Content, ContentObject};
pub use error::{StoreError, StoreResult};
pub use memory::{MemoryStorage, MemoryTarget};
pub use path::ObjectPath;
pub use path_target::PathTarget;
pub use posix::{
    Durability, PosixOptions, PosixStorage, forget_devices, names_of, share_devices, turns_of, turns_of_names,
};
pub use posix_extras::PosixExtras;
pub use quota::{QuotaStorage, QuotaUsage};
pub use sparse::{FileKey, SparseCache, SparseFile, SparseLimits};
pub use storage::{
    BoxFuture, Committed, Completion, DirectoryEntry, Entries, Expectation, Listing, Metadata, Names,
    NodeKind, Object, Opened, Overwrite, Pages, Part, Space, Storage, Upload, WriteOrder,
};
pub use target::{Found, Target, TargetOptions, Targets};
pub use writable::{Disposition, Visibility, Whole, WritableFile, WriteOptions};
