//! What a server needs of a storage, and nothing more.
//!
//! The traits are synchronous: a page-cache hit costs a microsecond, and a hand-over to a thread 33
//! to 85. A caller that must not block asks [`Object::read_at_nowait`]
//! first and takes everything else to a place where it may block.
//!
//! ```text
//! open ─▶ Opened::File(object)  ─▶ read_at_nowait / read_at, or sendfile from as_file
//!      └▶ Opened::Directory     ─▶ list
//! create ─▶ upload ─▶ write_at … ─▶ commit(expectation)      visible by rename
//!                 └▶ drop                                     gone without a trace
//! ```

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::StoreResult;
use crate::path::ObjectPath;

/// What is known of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its length.
    pub size_bytes: u64,
    /// When its bytes were last changed.
    pub modified: SystemTime,
    /// When anything about it was last changed. Unlike [`modified`](Metadata::modified) nobody can set it.
    pub changed: SystemTime,
    /// What its strong entity tag holds between the quotes: other bytes, another tag.
    pub tag: String,
    /// Which file it is within the storage, whatever its name and its bytes.
    pub identity: FileIdentity,
}

/// Tells files of one storage apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device, or 0.
    pub device: u64,
    /// The number on the device.
    pub number: u64,
}

/// What is at a path.
pub enum Opened {
    /// A file, open for reading.
    File(Arc<dyn Object>),
    /// A directory.
    Directory,
}

/// A file, open for reading. It stays readable when it is replaced or removed meanwhile.
pub trait Object: Send + Sync {
    /// As of the moment of opening.
    fn metadata(&self) -> &Metadata;

    /// The operating system's file, where there is one: for `sendfile`.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// Reads at `offset` what can be had at once; `None` when it would have to wait for a device.
    /// `Some(0)` is the end of the file.
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// Reads at `offset`, waiting as long as it takes. 0 is the end of the file.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether the bytes are, as far as can be told without reading them, still those of
    /// [`metadata`](Object::metadata).
    fn is_unchanged(&self) -> bool;
}

/// An entry of a directory: a file or a directory, never anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its length; 0 for a directory.
    pub size_bytes: u64,
    /// When it was last changed.
    pub modified: SystemTime,
}

/// The entries of a directory, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// At most [`LISTING_ENTRIES_MAX`](gridlane_core::limits::LISTING_ENTRIES_MAX) of them.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// In which state a file must be for a change to happen. Checked at the very moment of the change: of
/// two clients that expect the same state, one wins and one is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Any, or none.
    Anything,
    /// There is no such file.
    Absent,
    /// The file has this [tag](Metadata::tag).
    Tag(String),
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Of the file that is now visible.
    pub metadata: Metadata,
    /// Whether there was one of that name before.
    pub replaced: bool,
}

/// A file that is being written and that nobody sees yet. Dropped without a commit, it is gone.
pub trait Upload: Send {
    /// Writes all of `bytes` at `offset`, waiting as long as it takes.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()>;

    /// Makes the file visible under its name, all at once, after what durability asks for.
    fn commit(self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed>;
}

/// An export: a tree of files and directories.
pub trait Storage: Send + Sync {
    /// Opens what is at `path` for reading. Never waits for a peer of a pipe or for a device to be ready.
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened>;

    /// The same as [`open`](Storage::open), if it needs no device: `None` when it might have to wait.
    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        let _ = path;
        Ok(None)
    }

    /// The metadata of the file at `path`.
    fn stat(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        match self.open(path)? {
            Opened::File(object) => Ok(object.metadata().clone()),
            Opened::Directory => Err(crate::StoreError::NotAFile),
        }
    }

    /// The entries of the directory at `path`.
    fn list(&self, path: &ObjectPath) -> StoreResult<Listing>;

    /// Removes the file at `path`.
    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()>;

    /// Begins an upload of a file that shall be at `path`. Everything that can be refused before the bytes
    /// come is refused here: a missing parent, a directory in the way, and fewer free bytes than
    /// `expected_bytes`.
    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>>;

    /// Removes what uploads that ended with their process left behind, if it is older than `age`; returns
    /// how many.
    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        let _ = age;
        Ok(0)
    }
}
