//! What a server needs of a storage, and nothing more.
//!
//! The traits are synchronous: a page-cache hit costs a microsecond, and a hand-over to a thread 33
//! to 85. A caller that must not block asks [`Object::read_at_nowait`]
//! first and takes everything else to a place where it may block.
//!
//! ```text
//! look ─▶ metadata
//! open ─▶ Opened::File(object)  ─▶ read_at_nowait / read_at, or sendfile from as_file
//!      └▶ Opened::Directory     ─▶ entries, a few at a time; or list
//! create ─▶ upload ─▶ write_at, copy_range … ─▶ commit(expectation)   visible by rename
//!                 └▶ drop                                              gone without a trace
//! open_writable ─▶ file: `writable.rs` tells
//! set_mode · attribute_names · attribute · set_attribute · remove_attribute
//! make_directory · remove · remove_directory · remove_tree · rename · set_modified · space
//! ```

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::{Turns, turns};

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::writable::{WritableFile, WriteOptions};

/// What there can be at a path. Anything else (devices, pipes, sockets) is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// What is known of a file or directory without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Which of the two it is.
    pub kind: NodeKind,
    /// Its length; 0 for a directory.
    pub size_bytes: u64,
    /// When its bytes, or a directory's entries, were last changed.
    pub modified: SystemTime,
    /// When anything about it was last changed. Unlike [`modified`](Metadata::modified) nobody can set it.
    pub changed: SystemTime,
    /// When it was made, where the storage knows.
    pub created: Option<SystemTime>,
    /// What its strong entity tag holds between the quotes: other bytes, another tag.
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
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
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

/// What is at a path.
pub enum Opened {
    /// A file, open for reading.
    File(Arc<dyn Object>),
    /// A directory.
    Directory,
}

/// A file, open for reading. It stays readable when it is replaced or removed meanwhile.
pub trait Object: Send + Sync {
    /// The turns of the device that it is on, which whatever may wait for that device takes one of. Of what never waits: those
    /// of all that never do.
    fn turns(&self) -> &Arc<Turns> {
        turns::undivided()
    }

    /// As of the moment of opening.
    fn metadata(&self) -> &Metadata;

    /// The operating system's file, where there is one: for `sendfile`.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// Reads at `offset` what can be had at once; `None` when it would have to wait for a device.
    /// `Some(0)` is the end of the file.
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// The same into several buffers, one behind the other: at most 1024.
    fn read_vectored_at_nowait(
        &self,
        targets: &mut [io::IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        read_each(targets, offset, |target, at| self.read_at_nowait(target, at))
    }

    /// Whether its bytes are memory that is never read from a device: then nobody need ask for some of them first.
    fn never_waits(&self) -> bool {
        false
    }

    /// Reads at `offset`, waiting as long as it takes. 0 is the end of the file.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether the bytes are, as far as can be told without reading them, still those of
    /// [`metadata`](Object::metadata). What becomes of the file's names, of its mode and of its owner changes none.
    fn is_unchanged(&self) -> bool;

    /// How long to wait before [`settle`](Object::settle) is called, where that is needed for
    /// [`is_unchanged`](Object::is_unchanged) to tell of every change that begins later; `None` where it does so already.
    fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        let _ = now;
        None
    }

    /// Waits for whoever is changing the bytes by a system call at this moment; returns whether they are unchanged.
    fn settle(&self) -> bool {
        self.is_unchanged()
    }

    /// Whether [`is_still_at`](Object::is_still_at) can tell.
    fn can_be_found_again(&self) -> bool {
        false
    }

    /// Whether whoever opened `path` of its storage now would get this file, in the state of
    /// [`metadata`](Object::metadata). Never waits; `false` also where that cannot be told. A directory on the way that
    /// became a link meanwhile may go unnoticed: not for a file that was opened long ago.
    fn is_still_at(&self, path: &ObjectPath) -> bool {
        let _ = path;
        false
    }

    /// A checksum of the whole file that was kept when it was written, or by
    /// [`keep_checksum`](Object::keep_checksum); never one of other bytes than these. May read from the disk.
    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        let _ = kind;
        None
    }

    /// Keeps a checksum that was computed from all of this file's bytes, for as long as they stay as they are.
    /// It may be forgotten at any time. A file that [changed](Object::is_unchanged) meanwhile keeps none. The
    /// tag stays. May make the storage's own directory: not for an export that nobody may write to.
    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        let _ = checksum;
        Ok(())
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
    /// What is known of it; of what it points to if it is a link.
    pub metadata: Metadata,
    /// Whether it is a symbolic link. Who walks a tree and follows those to directories may never come to an
    /// end, and meets files twice.
    pub is_link: bool,
}

/// The entries of a directory, read as they are asked for.
pub type Entries = Box<dyn Iterator<Item = StoreResult<DirectoryEntry>> + Send>;

/// The names of what is in a directory, read as they are asked for.
pub type Names = Box<dyn Iterator<Item = StoreResult<Vec<u8>>> + Send>;

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
    /// The length of that one; 0 if it was a link.
    pub replaced_bytes: u64,
}

/// How much fits into an export, or into the part of it that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Used and free together.
    pub total_bytes: u64,
    /// What is there.
    pub used_bytes: u64,
    /// What can still be written. Less than the difference where some is reserved for others.
    pub available_bytes: u64,
}

/// A file that is being written and that nobody sees yet. Dropped without a commit, it is gone.
pub trait Upload: Send {
    /// Writes all of `bytes` at `offset`, waiting as long as it takes.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()>;

    /// Copies `len` bytes of `source` from `offset` to the same place of this file, by the storage's own
    /// means where it has some (it may share blocks); returns how many there were: fewer at the end of the
    /// source. A caller that wants to stop in between, or to tell of progress, asks for a few at a time.
    fn copy_range(&mut self, source: &dyn Object, offset: u64, len: u64) -> StoreResult<u64> {
        copy_by_reading(source, offset, len, |bytes, at| self.write_at(bytes, at))
    }

    /// What [`Metadata::modified`] shall be when the file is visible; else it is when it was written.
    fn set_modified(&mut self, modified: SystemTime) -> StoreResult<()>;

    /// Keeps these checksums with the file, from the moment when it is visible. They have to be of all its
    /// bytes: whatever is written later makes them be forgotten.
    fn keep_checksums(&mut self, checksums: &[Checksum]);

    /// Makes the file visible under its name, all at once, after what durability asks for.
    fn commit(self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed>;
}

/// Reads from `source` and hands what it read, and where it was, to `write`.
pub(crate) fn copy_by_reading(
    source: &dyn Object,
    offset: u64,
    len: u64,
    mut write: impl FnMut(&[u8], u64) -> StoreResult<()>,
) -> StoreResult<u64> {
    let room = usize::try_from(len).unwrap_or(usize::MAX).min(limits::IO_BYTES);
    let mut buffer = vec![0; room];
    let mut copied = 0;
    while copied < len {
        let wanted = usize::try_from(len - copied).unwrap_or(usize::MAX).min(room);
        let at = offset.saturating_add(copied);
        match source.read_at(&mut buffer[..wanted], at) {
            Ok(0) => break,
            Ok(count) => {
                write(&buffer[..count], at)?;
                copied += count as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(copied)
}

/// What a [`rename`](Storage::rename) may replace.
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
    /// The turns of the device that it is on, which whatever may wait for that device takes one of. Of what never waits: those
    /// of all that never do.
    fn turns(&self) -> &Arc<Turns> {
        turns::undivided()
    }

    /// What is known of the file or directory at `path`. Nothing is opened for reading.
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata>;

    /// The same as [`look`](Storage::look), if it needs no device: `None` when it might have to wait.
    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        let _ = path;
        Ok(None)
    }

    /// Whether what is at `path` is a symbolic link, which [`look`](Storage::look) follows and a removal does
    /// not.
    fn is_link(&self, path: &ObjectPath) -> StoreResult<bool> {
        let _ = path;
        Ok(false)
    }

    /// Whether what is served is still found where the storage was told that it is: another directory may have been put, or
    /// mounted, there. May wait for a disk.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Opens what is at `path` for reading. Never waits for a peer of a pipe or for a device to be ready.
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened>;

    /// The same as [`open`](Storage::open), if it needs no device: `None` when it might have to wait.
    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        let _ = path;
        Ok(None)
    }

    /// The metadata of the file at `path`.
    fn stat(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.look(path).and_then(|metadata| match metadata.kind {
            NodeKind::File => Ok(metadata),
            NodeKind::Directory => Err(StoreError::NotAFile),
        })
    }

    /// The entries of the directory at `path`, in no particular order and in bounded memory, whatever their
    /// number: each `next` may read from the disk, and the caller takes as many at a time as it likes. What
    /// is neither file nor directory, and what was removed meanwhile, is left out. After an error there is
    /// nothing more.
    fn entries(&self, path: &ObjectPath) -> StoreResult<Entries>;

    /// The names of what [`entries`](Storage::entries) gives, without a look at each where that can be spared. What
    /// was removed meanwhile may be among them.
    fn names(&self, path: &ObjectPath) -> StoreResult<Names> {
        Ok(Box::new(self.entries(path)?.map(|entry| entry.map(|entry| entry.name))))
    }

    /// The entries of the directory at `path`, at once and at most
    /// [`LISTING_ENTRIES_MAX`](gridlane_core::limits::LISTING_ENTRIES_MAX) of them.
    fn list(&self, path: &ObjectPath) -> StoreResult<Listing> {
        let mut entries = self.entries(path)?;
        let found = entries.by_ref().take(limits::LISTING_ENTRIES_MAX).collect::<StoreResult<Vec<_>>>()?;
        Ok(Listing { entries: found, is_cut: entries.next().transpose()?.is_some() })
    }

    /// Makes a directory. [`Unexpected`](StoreError::Unexpected): something is there;
    /// [`ParentMissing`](StoreError::ParentMissing): nothing to make it in.
    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()>;

    /// Makes a directory and those above it, as far as they are not there.
    /// [`NotADirectory`](StoreError::NotADirectory): there is a file in the way.
    fn make_directories(&self, path: &ObjectPath) -> StoreResult<()> {
        let require = |path: &ObjectPath| match self.look(path)?.kind {
            NodeKind::Directory => Ok(()),
            NodeKind::File => Err(StoreError::NotADirectory),
        };
        match require(path) {
            Err(StoreError::NotFound) => {}
            known => return known,
        }
        let mut at = ObjectPath::root();
        for name in path.names() {
            let Some(below) = at.join(name) else { return Err(StoreError::NotFound) };
            match self.make_directory(&below) {
                Ok(()) => {}
                Err(StoreError::Unexpected) => require(&below)?,
                Err(other) => return Err(other),
            }
            at = below;
        }
        Ok(())
    }

    /// Removes the file at `path`.
    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()>;

    /// Removes the directory at `path` if it is [empty](StoreError::NotEmpty).
    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()>;

    /// Removes the directory at `path` with all that is in it. Where the storage can, it is gone from sight
    /// all at once, and what cannot be deleted then is left to [`remove_abandoned`](Storage::remove_abandoned).
    /// Links are removed, never followed, and what is mounted inside is left alone:
    /// [`InUse`](StoreError::InUse). [`Denied`](StoreError::Denied): what others own in it is there still, under
    /// the same names; the rest may be gone.
    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()>;

    /// Moves the file or directory at `from`, which has to be as expected, to `to`, all at once; returns
    /// whether something was replaced. What is at `to` is replaced if `overwrite` lets it, and there is no moment
    /// without either.
    /// [`AcrossDevices`](StoreError::AcrossDevices): copy it and remove the source.
    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: Overwrite,
        expectation: &Expectation,
    ) -> StoreResult<bool>;

    /// Sets [`Metadata::modified`] of a file or directory. Kept checksums are forgotten: nobody could tell
    /// whether the bytes were changed meanwhile.
    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()>;

    /// How much fits where `path` is, which exists.
    fn space(&self, path: &ObjectPath) -> StoreResult<Space>;

    /// Begins an upload of a file that shall be at `path`. Everything that can be refused before the bytes
    /// come is refused here: a missing parent, a directory in the way, and fewer free bytes than
    /// `expected_bytes`.
    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>>;

    /// Opens a file to read and change it, or makes it. A link at the end of the path is followed, unless the
    /// file is to be visible only [when closed](crate::Visibility::WhenClosed): then it is replaced. Everything is
    /// refused here that [`create`](Storage::create) refuses; a directory is [`NotAFile`](StoreError::NotAFile).
    /// Kept checksums are forgotten before the first byte changes.
    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Arc<dyn WritableFile>> {
        let _ = (path, options);
        Err(StoreError::Unsupported)
    }

    /// Sets the permission bits (`0o777`; others are ignored) of a file or directory. A directory keeps what it
    /// has beyond them, a file does not. [`InUse`](StoreError::InUse): the export's root is its operator's.
    fn set_mode(&self, path: &ObjectPath, mode: u32) -> StoreResult<()> {
        let _ = (path, mode);
        Err(StoreError::Unsupported)
    }

    /// The names of the attributes that users gave a file or directory, in no particular order.
    /// [`Unsupported`](StoreError::Unsupported), here and below: its file system has none.
    fn attribute_names(&self, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
        let _ = path;
        Err(StoreError::Unsupported)
    }

    /// The value of such an attribute; `None` when there is none of that name.
    fn attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        let _ = (path, name);
        Err(StoreError::Unsupported)
    }

    /// Sets such an attribute; with `must_be_new`, [`Unexpected`](StoreError::Unexpected) if there is one. A name is
    /// of 1 to [`ATTRIBUTE_NAME_BYTES_MAX`](limits::ATTRIBUTE_NAME_BYTES_MAX) bytes but NUL
    /// ([`NameTooLong`](StoreError::NameTooLong)), a value has at most
    /// [`ATTRIBUTE_VALUE_BYTES_MAX`](limits::ATTRIBUTE_VALUE_BYTES_MAX) ([`TooLarge`](StoreError::TooLarge)); a file
    /// system may have room for less: [`NoSpace`](StoreError::NoSpace). The [tag](Metadata::tag) may change, kept
    /// checksums stay.
    fn set_attribute(
        &self,
        path: &ObjectPath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StoreResult<()> {
        let _ = (path, name, value, must_be_new);
        Err(StoreError::Unsupported)
    }

    /// Removes such an attribute; returns whether there was one.
    fn remove_attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
        let _ = (path, name);
        Err(StoreError::Unsupported)
    }

    /// Removes what uploads and removals that ended with their process left behind: of uploads what is older
    /// than `age`; returns how many.
    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        let _ = age;
        Ok(0)
    }
}
