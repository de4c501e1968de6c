//! What a server needs of a storage, and nothing more.
//!
//! A call may wait, and holds no thread while it does: it is a future, and the storage itself sees to where blocking is allowed
//! ([`blocking`](crate::blocking): one turn of its device for each call). What needs no device has a twin
//! that never waits (`*_nowait`), which callers try first: a page-cache hit costs a microsecond, and has neither a turn nor an
//! allocation.
//!
//! ```text
//! look ─▶ metadata
//! open ─▶ Opened::File(object)  ─▶ read_at_nowait / read_at, or sendfile from as_file
//!      └▶ Opened::Directory     ─▶ entries, a page at a time; or list
//! create ─▶ upload ─▶ write_at, copy_range … ─▶ commit(completion)    visible all at once
//!                 └▶ discard, or drop                                  gone without a trace
//! targets ─▶ open_target: an upload that a copy goes on with after a kill, `target.rs` tells
//! make_directory · remove · remove_directory · remove_tree · space
//! posix ─▶ rename · set_modified · set_mode · attributes · open_writable: `posix_extras.rs` and `writable.rs` tell
//! ```
//!
//! The core fits a file system, an object store and a gateway to another server. What an object store has not (other names,
//! modes, changes in place) is behind [`Storage::posix`]. A cache is a storage around another one: its `open_nowait` knows
//! the objects that it has, its `open` fetches what it has not, and its objects read from its own file what is there
//! (`read_at_nowait`) and wait for the origin for the rest (`read_at`).

use std::fs::File;
use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::{Turns, turns};

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::posix_extras::PosixExtras;
use crate::target::Targets;

/// A future that may wait, held behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The kinds of things at a path. Anything else (devices, pipes, sockets) is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// The properties of a file or directory that are known without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Which of the two it is.
    pub kind: NodeKind,
    /// Its length; 0 for a directory.
    pub size_bytes: u64,
    /// When its bytes, or a directory's entries, were last changed.
    pub modified: SystemTime,
    /// When anything about it was last changed. Unlike [`modified`](Metadata::modified) it cannot be set.
    pub changed: SystemTime,
    /// When it was made, where the storage knows.
    pub created: Option<SystemTime>,
    /// The text of its strong entity tag between the quotes: other bytes, another tag.
    pub tag: String,
    /// Which file it is within the storage, whatever its name and its bytes.
    pub identity: FileIdentity,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// The number of the user it belongs to.
    pub owner: u32,
    /// The number of the group it belongs to.
    pub group: u32,
}

impl Metadata {
    /// True if it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }

    /// The same, if it is of a file.
    pub(crate) fn of_file(self) -> StoreResult<Metadata> {
        match self.kind {
            NodeKind::File => Ok(self),
            NodeKind::Directory => Err(StoreError::NotAFile),
        }
    }
}

/// Tells files of one storage apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device, or 0.
    pub device: u64,
    /// The number on the device.
    pub number: u64,
}

/// An opened file or directory.
pub enum Opened<O: ?Sized = dyn Object> {
    /// A file, open for reading.
    File(Arc<O>),
    /// A directory.
    Directory,
}

impl<O: Object + 'static> Opened<O> {
    /// The same, of any kind of storage.
    pub(crate) fn any(self) -> Opened {
        match self {
            Opened::File(object) => Opened::File(object),
            Opened::Directory => Opened::Directory,
        }
    }
}

/// Where bytes of an object go.
pub struct Part<'a> {
    /// Where they are in the object.
    pub offset: u64,
    /// Where they go: as many as there is room for.
    pub target: &'a mut [u8],
}

/// A file, open for reading. It stays readable when it is replaced or removed meanwhile.
pub trait Object: Send + Sync {
    /// Those of the [storage](Storage::turns) that it is of.
    fn turns(&self) -> &Arc<Turns> {
        turns::undivided()
    }

    /// The metadata at the moment of opening.
    fn metadata(&self) -> &Metadata;

    /// The operating system's file, where there is one: for `sendfile`.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// Reads at `offset` what can be had at once; `None` when it would have to wait.
    /// `Some(0)` is the end of the file.
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let _ = (target, offset);
        Ok(None)
    }

    /// The same into several buffers, one behind the other: at most 1024.
    fn read_vectored_at_nowait(
        &self,
        targets: &mut [io::IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        read_each(targets, offset, |target, at| self.read_at_nowait(target, at))
    }

    /// True if its bytes are memory that is never waited for: there is no need to ask for some of them first.
    fn never_waits(&self) -> bool {
        false
    }

    /// Reads at `offset`, waiting as long as it takes. 0 is the end of the file.
    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>>;

    /// Fills one part after the other, up to the first for which the file is too short; returns how many bytes that were. One
    /// call, and where reading takes a turn one turn, however many there are.
    fn read_parts<'a, 'b: 'a>(&'a self, parts: &'a mut [Part<'b>]) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(async move {
            let mut done = 0;
            for part in parts {
                let mut of_this = 0;
                while of_this < part.target.len() {
                    match self.read_at(&mut part.target[of_this..], part.offset + of_this as u64).await? {
                        0 => return Ok(done + of_this),
                        count => of_this += count,
                    }
                }
                done += of_this;
            }
            Ok(done)
        })
    }

    /// The same as [`is_unchanged`](Object::is_unchanged), if it needs no device: `None` when it might have to wait.
    fn is_unchanged_nowait(&self) -> Option<bool> {
        None
    }

    /// True if the bytes are, as far as can be told without reading them, still those of
    /// [`metadata`](Object::metadata). Changes of the file's names, of its mode and of its owner count for nothing.
    /// Where every read is of the state that was opened, or fails, the bytes always are.
    fn is_unchanged(&self) -> BoxFuture<'_, bool>;

    /// The time to wait before [`settle`](Object::settle) is called, where that is needed for
    /// [`is_unchanged`](Object::is_unchanged) to tell of every change that begins later; `None` where it does so
    /// already.
    fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        let _ = now;
        None
    }

    /// Waits for a system call that is changing the bytes at this moment; returns true if they are unchanged.
    fn settle(&self) -> BoxFuture<'_, bool> {
        self.is_unchanged()
    }

    /// True if [`is_still_at`](Object::is_still_at) can tell.
    fn can_be_found_again(&self) -> bool {
        false
    }

    /// True if opening `path` of its storage now would give this file, in the state of [`metadata`](Object::metadata).
    /// Never waits; `false` also where that cannot be told. A directory on the way that became a link meanwhile may go
    /// unnoticed: not for a file that was opened long ago.
    fn is_still_at(&self, path: &ObjectPath) -> bool {
        let _ = path;
        false
    }

    /// Checksums of the whole file by these algorithms that were kept when it was written, or by
    /// [`keep_checksum`](Object::keep_checksum); never one of other bytes than these.
    fn kept_checksums<'a>(&'a self, kinds: &'a [ChecksumKind]) -> BoxFuture<'a, Vec<Checksum>> {
        let _ = kinds;
        Box::pin(ready(Vec::new()))
    }

    /// Keeps a checksum that was computed from all of this file's bytes, for as long as they stay as they are.
    /// It may be forgotten at any time. A file that [changed](Object::is_unchanged) meanwhile keeps none. The
    /// tag stays. May make the storage's own directory: not for an export that is read-only to all clients.
    fn keep_checksum<'a>(&'a self, checksum: &'a Checksum) -> BoxFuture<'a, StoreResult<()>> {
        let _ = checksum;
        Box::pin(ready(Ok(())))
    }
}

/// Reads into one buffer after the other, up to the first that is not filled.
pub(crate) fn read_each(
    targets: &mut [io::IoSliceMut<'_>],
    offset: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<Option<usize>>,
) -> io::Result<Option<usize>> {
    let mut done = 0;
    for target in targets {
        match read(target, offset + done as u64)? {
            Some(count) => {
                done += count;
                if count < target.len() {
                    break;
                }
            }
            None if done == 0 => return Ok(None),
            None => break,
        }
    }
    Ok(Some(done))
}

/// An entry of a directory: a file or a directory, never anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its metadata; that of what it points to if it is a link.
    pub metadata: Metadata,
    /// It is a symbolic link. A walk of a tree that follows those to directories may never come to an end, and meets
    /// files twice.
    pub is_link: bool,
}

/// The entries of a directory, a page at a time: neither memory nor a turn is held for all of it.
pub trait Pages<T>: Send {
    /// The next page, of any length; one without anything is the end. After the end, and after a failure, there is nothing more.
    fn next_page(&mut self) -> BoxFuture<'_, StoreResult<Vec<T>>>;
}

/// The entries of a directory.
pub type Entries = Box<dyn Pages<DirectoryEntry>>;

/// The names of what is in a directory.
pub type Names = Box<dyn Pages<Vec<u8>>>;

/// The entries of a directory, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// At most [`LISTING_ENTRIES_MAX`](gridlane_core::limits::LISTING_ENTRIES_MAX) of them.
    pub entries: Vec<DirectoryEntry>,
    /// There are more.
    pub is_cut: bool,
}

/// In which state a file must be for a change to happen. Checked at the very moment of the change: of
/// two clients that expect the same state, one wins and one gets an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Any, or none.
    Anything,
    /// There is no such file.
    Absent,
    /// The file has this [tag](Metadata::tag).
    Tag(String),
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Of the file that is now visible.
    pub metadata: Metadata,
    /// There was a file of that name before.
    pub replaced: bool,
    /// The length of that one; 0 if it was a link.
    pub replaced_bytes: u64,
}

/// The space of an export, or of the part of it that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Used and free together.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that can still be written. Less than the difference where some is reserved for others.
    pub available_bytes: u64,
}

/// In which order an upload takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// In any, and at several places at the same time.
    Anywhere,
    /// From the first to the last: a write elsewhere than where the one before it ended is
    /// [`Unsupported`](StoreError::Unsupported). Of any length; what is no whole part waits in memory until it is one.
    InOrder {
        /// Bytes that go to the storage at a time.
        part_bytes: usize,
    },
}

/// The properties of a file when it becomes visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// In which state what it replaces must be.
    pub expectation: Expectation,
    /// The value for [`Metadata::modified`]; else it is when the bytes were written.
    pub modified: Option<SystemTime>,
    /// Of all its bytes: they are kept with the file.
    pub checksums: Vec<Checksum>,
}

impl From<Expectation> for Completion {
    fn from(expectation: Expectation) -> Completion {
        Completion { expectation, modified: None, checksums: Vec::new() }
    }
}

/// A file that is being written and is not visible yet. Dropped without a commit, it is gone soon, without a wait for
/// that in the drop.
pub trait Upload: Send + Sync {
    /// Where bytes may be written.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::Anywhere
    }

    /// Writes all of `bytes` at `offset`.
    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>>;

    /// Copies up to `len` bytes of `source`, which is on the same device, from `offset` to the same place of this file by
    /// means of the storage's own (it may share blocks); returns how many there were. 0: it has no such means, or `source`
    /// no such bytes: reading them tells. A caller that wants to stop in between, or to tell of progress, asks for a few at a time.
    fn copy_range<'a>(
        &'a self,
        source: &'a dyn Object,
        offset: u64,
        len: u64,
    ) -> BoxFuture<'a, StoreResult<u64>> {
        let _ = (source, offset, len);
        Box::pin(ready(Ok(0)))
    }

    /// Makes the file visible under its name, all at once, after what durability asks for. If it fails it is gone.
    fn commit<'a>(self: Box<Self>, completion: &'a Completion) -> BoxFuture<'a, StoreResult<Committed>>;

    /// Gives it up: when this is done, it is gone without a trace.
    fn discard(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// The things that a [`rename`](PosixExtras::rename) may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overwrite {
    /// Nothing: whatever is there is [`Unexpected`](StoreError::Unexpected).
    Nothing,
    /// A file, by another: a directory on either side is [`NotAFile`](StoreError::NotAFile). A link is replaced itself.
    Files,
    /// Anything: a directory goes with all that is in it.
    Anything,
}

impl From<bool> for Overwrite {
    fn from(overwrites: bool) -> Overwrite {
        if overwrites { Overwrite::Anything } else { Overwrite::Nothing }
    }
}

/// An export: a tree of files and directories.
///
/// Where a path goes through a link, the link is followed if it stays inside. What is at the end of a path
/// is followed for looking and reading; removing, moving and replacing mean the link.
pub trait Storage: Send + Sync {
    /// The turns of the device that it is on, and what else clients share of it: checksums on demand, listings, copies of trees.
    /// A storage takes turns by itself, where it blocks. Of one that never waits: those of all that never do.
    fn turns(&self) -> &Arc<Turns> {
        turns::undivided()
    }

    /// The further operations of a storage that is like a file system.
    fn posix(&self) -> Option<&dyn PosixExtras> {
        None
    }

    /// Files that are written in any order by copies which can be continued, where it has such. Where there are none, an
    /// [upload](Storage::create) is what a copy writes to.
    fn targets(&self) -> Option<&dyn Targets> {
        None
    }

    /// The metadata of the file or directory at `path`. Nothing is opened for reading.
    fn look<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>>;

    /// The same as [`look`](Storage::look), if it needs no device: `None` when it might have to wait.
    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        let _ = path;
        Ok(None)
    }

    /// True if the served directory is still found where the storage was told that it is: another one may have been
    /// put, or mounted, there.
    fn is_in_place(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }

    /// Opens what is at `path` for reading. Never waits for a peer of a pipe or for a device to be ready.
    fn open<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Opened>>;

    /// The same as [`open`](Storage::open), if it needs no device: `None` when it might have to wait.
    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        let _ = path;
        Ok(None)
    }

    /// The metadata of the file at `path`.
    fn stat<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>> {
        Box::pin(async move { self.look(path).await?.of_file() })
    }

    /// The entries of the directory at `path`, in no particular order and in bounded memory, whatever their
    /// number. What is neither file nor directory, and what was removed meanwhile, is left out.
    fn entries<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Entries>>;

    /// The names of what [`entries`](Storage::entries) gives, without a look at each where that can be spared. What
    /// was removed meanwhile may be among them.
    fn names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Names>> {
        Box::pin(async move { Ok(Box::new(NamesOf(self.entries(path).await?)) as Names) })
    }

    /// The entries of the directory at `path`, all of them and at most
    /// [`LISTING_ENTRIES_MAX`](gridlane_core::limits::LISTING_ENTRIES_MAX).
    fn list<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Listing>> {
        Box::pin(async move {
            let mut entries = self.entries(path).await?;
            let mut found = Vec::new();
            while found.len() <= limits::LISTING_ENTRIES_MAX {
                let page = entries.next_page().await?;
                if page.is_empty() {
                    break;
                }
                found.extend(page);
            }
            let is_cut = found.len() > limits::LISTING_ENTRIES_MAX;
            found.truncate(limits::LISTING_ENTRIES_MAX);
            Ok(Listing { entries: found, is_cut })
        })
    }

    /// For each of these files, which were found in that state, what [`Object::kept_checksums`] would give if it was opened:
    /// for a page of a listing in one call.
    fn kept_checksums<'a>(
        &'a self,
        files: &'a [(ObjectPath, Metadata)],
        kinds: &'a [ChecksumKind],
    ) -> BoxFuture<'a, Vec<Vec<Checksum>>> {
        Box::pin(async move {
            let mut kept = Vec::with_capacity(files.len());
            for (path, metadata) in files {
                kept.push(match self.open(path).await {
                    Ok(Opened::File(object)) if object.metadata().tag == metadata.tag => {
                        object.kept_checksums(kinds).await
                    }
                    _ => Vec::new(),
                });
            }
            kept
        })
    }

    /// Makes a directory. [`Unexpected`](StoreError::Unexpected): something is there;
    /// [`ParentMissing`](StoreError::ParentMissing): nothing to make it in.
    /// [`Unsupported`](StoreError::Unsupported), here and below: the storage has no directories of their own.
    fn make_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        let _ = path;
        Box::pin(ready(Err(StoreError::Unsupported)))
    }

    /// Makes a directory and those above it, as far as they are not there.
    /// [`NotADirectory`](StoreError::NotADirectory): there is a file in the way.
    fn make_directories<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let require = async |path: &ObjectPath| match self.look(path).await?.kind {
                NodeKind::Directory => Ok(()),
                NodeKind::File => Err(StoreError::NotADirectory),
            };
            match require(path).await {
                Err(StoreError::NotFound) => {}
                known => return known,
            }
            let mut at = ObjectPath::root();
            for name in path.names() {
                let Some(below) = at.join(name) else { return Err(StoreError::NotFound) };
                match self.make_directory(&below).await {
                    Ok(()) => {}
                    Err(StoreError::Unexpected) => require(&below).await?,
                    Err(other) => return Err(other),
                }
                at = below;
            }
            Ok(())
        })
    }

    /// Removes the file at `path`.
    fn remove<'a>(
        &'a self,
        path: &'a ObjectPath,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Removes the directory at `path` if it is [empty](StoreError::NotEmpty).
    fn remove_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        let _ = path;
        Box::pin(ready(Err(StoreError::Unsupported)))
    }

    /// Removes the directory at `path` with all that is in it. Where the storage can, it is gone from sight
    /// all at once, and what cannot be deleted then is left to [`remove_abandoned`](Storage::remove_abandoned).
    /// Links are removed, never followed, and what is mounted inside is left alone:
    /// [`InUse`](StoreError::InUse). [`Denied`](StoreError::Denied): what others own in it is there still, under
    /// the same names; the rest may be gone.
    fn remove_tree<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>>;

    /// The space where `path` is, which exists.
    fn space<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Space>>;

    /// Begins an upload of a file that shall be at `path`. Everything that can be refused before the bytes
    /// come is refused here: a missing parent, a directory in the way, and fewer free bytes than
    /// `expected_bytes`.
    fn create<'a>(
        &'a self,
        path: &'a ObjectPath,
        expected_bytes: Option<u64>,
    ) -> BoxFuture<'a, StoreResult<Box<dyn Upload>>>;

    /// Removes what uploads, targets and removals left behind that ended with their process: of uploads and targets what is
    /// older than `age`, and not open; returns how many.
    fn remove_abandoned(&self, age: Duration) -> BoxFuture<'_, StoreResult<usize>> {
        let _ = age;
        Box::pin(ready(Ok(0)))
    }
}

/// The names of entries.
struct NamesOf(Entries);

impl Pages<Vec<u8>> for NamesOf {
    fn next_page(&mut self) -> BoxFuture<'_, StoreResult<Vec<Vec<u8>>>> {
        Box::pin(async move { Ok(self.0.next_page().await?.into_iter().map(|entry| entry.name).collect()) })
    }
}
