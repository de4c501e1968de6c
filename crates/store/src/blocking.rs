//! Storages that block: on the system calls of a file system, or not at all.
//!
//! Such a storage implements the synchronous traits of this page, and is a [`Storage`](crate::Storage) by that: each call takes a
//! turn of its device ([`Turns`]) and runs on the thread that it is on, by `block_in_place`, with borrowed buffers
//! (`in_turns.rs`). What needs no device is tried first and has no turn. What belongs to one call of the
//! asynchronous trait belongs to one turn, however many system calls that are.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::Turns;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, Completion, DirectoryEntry, Expectation, Listing, Metadata, NodeKind, Opened, Overwrite,
    Space, read_each,
};
use crate::target::{Found, Target, TargetOptions};
use crate::writable::{Whole, WriteOptions};

/// The entries of a directory, read as they are asked for.
pub type Read<T> = Box<dyn Iterator<Item = StoreResult<T>> + Send>;

/// A file, open for reading: [`Object`](crate::Object) says what is meant.
pub trait BlockingObject: Send + Sync + 'static {
    /// Those of its storage.
    fn turns(&self) -> &Arc<Turns>;

    /// The metadata at the moment of opening.
    fn metadata(&self) -> &Metadata;

    /// The operating system's file, where there is one.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// Reads at `offset` what can be had at once; `None` when it would have to wait for a device.
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// The same into several buffers, one behind the other: at most 1024.
    fn read_vectored_at_nowait(
        &self,
        targets: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        read_each(targets, offset, |target, at| self.read_at_nowait(target, at))
    }

    /// True if its bytes are memory that is never read from a device.
    fn never_waits(&self) -> bool {
        false
    }

    /// Reads at `offset`, waiting as long as it takes. 0 is the end of the file.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// True if the bytes are, as far as can be told without reading them, those of
    /// [`metadata`](BlockingObject::metadata). Waits only where a read of some of them would.
    fn is_unchanged(&self) -> bool;

    /// The time to wait before [`settle`](BlockingObject::settle) is called, where that is needed.
    fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        let _ = now;
        None
    }

    /// Waits for a system call that is changing the bytes at this moment; returns true if they are unchanged.
    fn settle(&self) -> bool {
        self.is_unchanged()
    }

    /// True if [`is_still_at`](BlockingObject::is_still_at) can tell.
    fn can_be_found_again(&self) -> bool {
        false
    }

    /// True if opening `path` now would give this file. Never waits.
    fn is_still_at(&self, path: &ObjectPath) -> bool {
        let _ = path;
        false
    }

    /// A checksum that was kept. May read from the disk.
    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        let _ = kind;
        None
    }

    /// Keeps a checksum that was computed from all of this file's bytes.
    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        let _ = checksum;
        Ok(())
    }
}

/// A file that is being written and is not visible yet. Dropped without a commit, it is gone.
pub trait BlockingUpload: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`, waiting as long as it takes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()>;

    /// The same as [`Upload::copy_range`](crate::Upload::copy_range), where the source is a file of the operating
    /// system.
    fn copy_range(&self, source: &File, offset: u64, len: u64) -> StoreResult<u64> {
        let _ = (source, offset, len);
        Ok(0)
    }

    /// Makes the file visible under its name, all at once, after what durability asks for; once.
    fn commit(&self, completion: &Completion) -> StoreResult<Committed>;
}

/// A file that is open for being read and changed: [`WritableFile`](crate::WritableFile) says what is meant. Dropped without a
/// close, what was not visible is gone.
pub trait BlockingFile: Send + Sync + 'static {
    /// Those of its storage.
    fn turns(&self) -> &Arc<Turns>;

    /// The present metadata.
    fn metadata(&self) -> StoreResult<Metadata>;

    /// The operating system's file, where there is one.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// True if it can be found under a name.
    fn has_name(&self) -> bool;

    /// The same as [`BlockingObject::read_at_nowait`].
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// The same as [`BlockingObject::read_at`].
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, waiting as long as it takes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()>;

    /// Writes all `parts`, one behind the other, from `offset` on.
    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> StoreResult<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(part, at)?;
            at = at.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Makes the file this long.
    fn truncate(&self, size_bytes: u64) -> StoreResult<()>;

    /// Brings what was written to the device, if durability promises anything.
    fn sync(&self) -> StoreResult<()>;

    /// Ends it, once.
    fn close(&self, whole: Option<&Whole>) -> StoreResult<Committed>;
}

/// A tree of files and directories: [`Storage`](crate::Storage) and [`PosixExtras`](crate::PosixExtras) say what is meant.
pub trait BlockingStorage: Send + Sync + 'static {
    /// Its files, open for reading.
    type Object: BlockingObject;
    /// Its files that are being written.
    type Upload: BlockingUpload;
    /// Its files that are changed in place.
    type File: BlockingFile;

    /// The turns of the device that it is on, of which every call takes one.
    fn turns(&self) -> &Arc<Turns>;

    /// The metadata of the file or directory at `path`. Nothing is opened for reading.
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata>;

    /// The same as [`look`](BlockingStorage::look), if it needs no device: `None` when it might have to wait.
    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        let _ = path;
        Ok(None)
    }

    /// True if a symbolic link is at `path`, which [`look`](BlockingStorage::look) follows and a removal does not.
    fn is_link(&self, path: &ObjectPath) -> StoreResult<bool> {
        let _ = path;
        Ok(false)
    }

    /// True if the served directory is still found where the storage was told that it is: another one may have been
    /// put, or mounted, there. May wait for a disk.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Opens what is at `path` for reading. Never waits for a peer of a pipe or for a device to be ready.
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<Self::Object>>;

    /// The same as [`open`](BlockingStorage::open), if it needs no device: `None` when it might have to wait.
    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened<Self::Object>>> {
        let _ = path;
        Ok(None)
    }

    /// The metadata of the file at `path`.
    fn stat(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.look(path)?.of_file()
    }

    /// The entries of the directory at `path`, in no particular order and in bounded memory, whatever their
    /// number: each `next` may read from the disk, and the caller takes as many at a time as it likes. What
    /// is neither file nor directory, and what was removed meanwhile, is left out. After an error there is
    /// nothing more.
    fn entries(&self, path: &ObjectPath) -> StoreResult<Read<DirectoryEntry>>;

    /// The names of what [`entries`](BlockingStorage::entries) gives, without a look at each where that can be spared. What
    /// was removed meanwhile may be among them.
    fn names(&self, path: &ObjectPath) -> StoreResult<Read<Vec<u8>>> {
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
    /// all at once, and what cannot be deleted then is left to [`remove_abandoned`](BlockingStorage::remove_abandoned).
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

    /// Sets [`Metadata::modified`] of a file or directory. Kept checksums are forgotten: nothing would tell whether the
    /// bytes were changed meanwhile.
    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()>;

    /// The space where `path` is, which exists.
    fn space(&self, path: &ObjectPath) -> StoreResult<Space>;

    /// Begins an upload of a file that shall be at `path`. Everything that can be refused before the bytes
    /// come is refused here: a missing parent, a directory in the way, and fewer free bytes than
    /// `expected_bytes`.
    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Self::Upload>;

    /// True if it has targets.
    fn has_targets(&self) -> bool {
        false
    }

    /// Opens a target: [`Targets`](crate::Targets) says what is meant, here and below.
    fn open_target(
        &self,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(Arc<dyn Target>, Found)> {
        let _ = (path, options);
        Err(StoreError::Unsupported)
    }

    /// The length of all targets together that are not open.
    fn unfinished_bytes(&self, directory: &ObjectPath) -> StoreResult<u64> {
        let _ = directory;
        Ok(0)
    }

    /// Opens a file to read and change it, or makes it. A link at the end of the path is followed, unless the
    /// file is to be visible only [when closed](crate::Visibility::WhenClosed): then it is replaced. Everything is
    /// refused here that [`create`](BlockingStorage::create) refuses; a directory is [`NotAFile`](StoreError::NotAFile).
    /// Kept checksums are forgotten before the first byte changes.
    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Self::File>;

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

    /// Removes what uploads, targets and removals left behind that ended with their process: of uploads and targets what is
    /// older than `age`, and not open; returns how many.
    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        let _ = age;
        Ok(0)
    }
}
