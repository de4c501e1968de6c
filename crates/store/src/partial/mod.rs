//! A file that is written under a name of its own, and gets its final one only when it is complete.
//!
//! Everything that becomes visible all at once is built of it:
//!
//! | what | where it is until then | journal | dropped |
//! | --- | --- | --- | --- |
//! | uploads, and files that are seen when they are closed (`posix/partial.rs`) | the export's hidden directory | none | gone |
//! | targets of an export (`posix/target.rs`) | the same | beside it | kept, to go on with |
//! | targets of a path ([`path_target`](crate::path_target)) | beside its final name | beside it | kept |
//!
//! What differs between them is an [`Ending`]. The order of a successful end is the same for all:
//!
//! 1. The file is cut to its length, and gets times, checksums, owner and mode while only its maker sees it.
//! 2. Its bytes are synced, as far as durability promises that.
//! 3. The place where it goes is found again, and what is there has to be as expected. The name that the file has must still
//!    be that of the file that is open, which must be as long as it should be: other programs may have put something else there,
//!    or cut it.
//! 4. It is renamed, at once for every reader. From here on other programs may use it.
//! 5. The journal is removed, and the directory synced.
//!
//! A kill between two steps leaves either a partial file with a journal that describes it, from which the same copy goes
//! on, or the complete file and a journal without a partial file. The journal cannot go first: a kill would leave all bytes
//! and nothing that vouches for them. So the rename and the removal follow each other at once, and a journal that is left all
//! the same is removed by the next start. After a loss of power the file system has made both calls, the first one, or none.
//!
//! One process at a time goes on with what is kept: the journal is locked while it is open. All names are looked up in
//! directories that are open, and no link is followed.

mod journal_file;
mod records;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_sys::file::start_writeback;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fstatvfs, linkat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::journal::Record;

pub(crate) use journal_file::{JournalFile, Locked};
pub(crate) use records::Records;

/// Bytes written one behind the other before the kernel is told to bring them to the device.
const WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

/// A file that is not visible yet.
pub(crate) struct Partial {
    directory: Arc<OwnedFd>,
    /// In `directory`.
    name: OsString,
    file: File,
    /// A copy goes on with it by this. Without one it is gone when it is dropped.
    journal: Option<JournalFile>,
    writeback: Writeback,
    /// True when `name` is no longer its own: it is visible, or was removed.
    is_over: Mutex<bool>,
}

/// The last step of a commit that is taken: all are, unless a test is to see what a kill leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// It has times, checksums, owner and mode.
    Prepared,
    /// Its bytes are on the device.
    Synced,
    /// It is visible.
    Renamed,
    /// Nothing is left of what it was.
    All,
}

/// Where a file becomes visible.
pub(crate) struct Place<'a> {
    pub(crate) directory: Arc<OwnedFd>,
    pub(crate) name: &'a OsStr,
    /// True if a file that is there is replaced.
    pub(crate) replaces: bool,
    /// Held until it is renamed: what was looked at is still so.
    pub(crate) changing: Option<MutexGuard<'a, ()>>,
}

/// The end of a partial file, as far as one kind differs from another.
pub(crate) trait Ending {
    /// The length that it has to have. Where there is one, the file and its name are looked at before the rename.
    fn size_bytes(&self) -> Option<u64>;

    /// Gives the file what it shall have when it is visible.
    fn prepare(&self, file: &File) -> Result<(), Failure>;

    /// Brings its bytes to the device.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Finds where it goes. What is there is as expected, or that is the failure.
    fn place(&self) -> Result<Place<'_>, Failure>;

    /// Looks at the name that the file has just got.
    fn renamed(&self, partial: &Partial) -> Result<(), Failure> {
        let _ = partial;
        Ok(())
    }

    /// Brings the new name to the device.
    fn sync_names(&self, directory: &OwnedFd) -> Result<(), Failure>;
}

/// Why a partial file does not become visible.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Its name is that of something else than what was written.
    Replaced,
    /// It has so many bytes, and others were written.
    Cut(u64),
    /// The directory that it goes to is not the one that it was.
    Moved,
    /// The file that it would replace is not as expected, or may not be replaced.
    Unexpected,
    /// It was ended before.
    Over,
    /// It cannot be written, or synced.
    Write(io::Error),
    /// It cannot be renamed.
    Rename(io::Error),
    /// Any other failure of a storage.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            StoreError::Unexpected => Failure::Unexpected,
            other => Failure::Store(other),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        let meddled = |what: &str| StoreError::Io(io::Error::other(what));
        match failure {
            Failure::Replaced => meddled("the file that was written was removed or replaced meanwhile"),
            Failure::Cut(_) => meddled("the file that was written was cut meanwhile"),
            Failure::Moved => StoreError::ParentMissing,
            Failure::Unexpected => StoreError::Unexpected,
            Failure::Over => StoreError::Closed,
            Failure::Rename(cause) if cause.kind() == io::ErrorKind::NotFound => StoreError::ParentMissing,
            Failure::Write(cause) | Failure::Rename(cause) => cause.into(),
            Failure::Store(error) => error,
        }
    }
}

/// Why a file that another process may have put there cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It is a link of any kind, no file, or another user's.
    Foreign,
    /// Another process, or another copy of this one, has it.
    Locked,
    /// It cannot be opened, or made.
    Io(io::Error),
}

impl From<Errno> for Unusable {
    fn from(cause: Errno) -> Unusable {
        Unusable::Io(cause.into())
    }
}

impl Partial {
    /// One that was made just now, or found again beside its `journal`.
    pub(crate) fn new(
        directory: Arc<OwnedFd>,
        name: OsString,
        file: File,
        journal: Option<JournalFile>,
        writeback: Writeback,
    ) -> Partial {
        Partial { directory, name, file, journal, writeback, is_over: Mutex::new(false) }
    }

    /// The bytes as they are.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The journal, of one that is opened with it.
    pub(crate) fn journal(&self) -> Option<&JournalFile> {
        self.journal.as_ref()
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.wrote(offset, bytes.len() as u64);
        Ok(())
    }

    /// Tells that `len` bytes were written at `offset`.
    pub(crate) fn wrote(&self, offset: u64, len: u64) {
        self.writeback.wrote(&self.file, offset, len);
    }

    /// True if records count for a later copy.
    pub(crate) fn is_recorded(&self) -> bool {
        self.journal().is_some_and(JournalFile::is_recorded)
    }

    /// Appends to the journal.
    pub(crate) fn record(&self, records: &[Record]) -> io::Result<()> {
        self.journal().map_or(Ok(()), |journal| journal.record(records))
    }

    /// Forgets all records.
    pub(crate) fn restart_journal(&self) -> io::Result<()> {
        self.journal().map_or(Ok(()), JournalFile::restart)
    }

    /// Length of what is there.
    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Bytes that it has on the device.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.file.metadata().map_or(0, |meta| meta.blocks() * 512)
    }

    /// Bytes free for an unprivileged user on its file system.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let space = fstatvfs(&self.file).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// True if the bytes that were written may be others by now: the file has become shorter than `size_bytes`, or there is
    /// a hole in it although all of it was written, as when it was cut and then written behind the cut. A file system that
    /// makes holes of zeros by itself gives rise to this as well.
    pub(crate) fn is_doubtful(&self, size_bytes: u64) -> Result<bool, Failure> {
        self.check_name()?;
        if self.size_bytes().map_err(Failure::Write)? < size_bytes {
            return Ok(true);
        }
        // What cannot tell holes says that there is one behind the last byte.
        let hole = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(0));
        Ok(size_bytes > 0 && hole.is_ok_and(|at| at < size_bytes))
    }

    /// True if `name` in `directory` is a name of this file, and no link.
    pub(crate) fn is_at(&self, directory: impl AsFd, name: &OsStr) -> bool {
        is_named(&self.file, directory, name)
    }

    fn check_name(&self) -> Result<(), Failure> {
        if self.is_at(&self.directory, &self.name) { Ok(()) } else { Err(Failure::Replaced) }
    }

    pub(crate) fn check_size(&self, size_bytes: u64) -> Result<(), Failure> {
        match self.size_bytes().map_err(Failure::Write)? {
            found if found == size_bytes => Ok(()),
            found => Err(Failure::Cut(found)),
        }
    }

    /// Makes it visible, if `last` is the last step; returns the length of what it replaced.
    pub(crate) fn publish_up_to(&self, last: Step, ending: &impl Ending) -> Result<Option<u64>, Failure> {
        let size_bytes = ending.size_bytes();
        if let Some(size_bytes) = size_bytes
            && self.size_bytes().map_err(Failure::Write)? > size_bytes
        {
            self.file.set_len(size_bytes).map_err(Failure::Write)?;
        }
        ending.prepare(&self.file)?;
        if last == Step::Prepared {
            return Ok(None);
        }
        ending.sync(&self.file).map_err(Failure::Write)?;
        if last == Step::Synced {
            return Ok(None);
        }
        let mut is_over = self.lock_state();
        if *is_over {
            return Err(Failure::Over);
        }
        let place = ending.place()?;
        if let Some(size_bytes) = size_bytes {
            // Later than this it cannot be.
            self.check_name()?;
            self.check_size(size_bytes)?;
        }
        let replaced = self.rename(&place)?;
        let Place { directory, changing, .. } = place;
        drop(changing);
        *is_over = true;
        drop(is_over);
        // What came between the look and the rename is seen now, as is everything that was done to the file by way of
        // the old name. Nothing is done before: other programs may use the file from now on.
        let looked = ending.renamed(self);
        if last == Step::Renamed {
            return looked.map(|()| replaced);
        }
        // The file is complete whether or not this succeeds.
        if let Some(journal) = &self.journal {
            journal.remove();
        }
        ending.sync_names(&directory)?;
        looked.map(|()| replaced)
    }

    fn rename(&self, place: &Place<'_>) -> Result<Option<u64>, Failure> {
        match rename_new(&self.directory, &self.name, &place.directory, place.name) {
            Ok(()) => Ok(None),
            Err(Errno::EXIST) if !place.replaces => Err(Failure::Unexpected),
            Err(Errno::EXIST) => {
                let old_bytes = match statat(&place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(old) if kind_of(&old) == FileType::RegularFile => {
                        u64::try_from(old.st_size).unwrap_or(0)
                    }
                    _ => 0,
                };
                let renamed = renameat(&self.directory, &self.name, &place.directory, place.name);
                renamed.map_err(|cause| Failure::Rename(cause.into()))?;
                Ok(Some(old_bytes))
            }
            Err(cause) => Err(Failure::Rename(cause.into())),
        }
    }

    /// Removes it with its journal, unless it is visible.
    pub(crate) fn discard(&self) {
        if !std::mem::replace(&mut *self.lock_state(), true) {
            // If this fails, one of an export is removed when it is old; one beside its path stays, without a journal.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
            if let Some(journal) = &self.journal {
                journal.remove();
            }
        }
    }

    /// True when it is no longer under its own name.
    pub(crate) fn is_over(&self) -> bool {
        *self.lock_state()
    }

    fn lock_state(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.journal.is_none() {
            self.discard();
        }
    }
}

/// When the kernel is told to bring what was written to the device, so that a later sync finds little left to do.
pub(crate) enum Writeback {
    /// By itself.
    Never,
    /// At each write: they come in any order.
    Each,
    /// From time to time, up to here so far: they come one behind the other.
    Growing(AtomicU64),
}

impl Writeback {
    /// To be called after `len` bytes were written at `offset`.
    pub(crate) fn wrote(&self, file: &File, offset: u64, len: u64) {
        match self {
            Writeback::Never => {}
            Writeback::Each => start_writeback(file, offset, len),
            Writeback::Growing(told_bytes) => {
                let end = offset.saturating_add(len);
                let told = told_bytes.load(Ordering::Relaxed);
                let is_due = end >= told.saturating_add(WRITEBACK_BYTES);
                // Of several that write at once, one tells.
                let tells =
                    || told_bytes.compare_exchange(told, end, Ordering::Relaxed, Ordering::Relaxed).is_ok();
                if is_due && tells() {
                    start_writeback(file, told, end - told);
                }
            }
        }
    }
}

/// The owner that a file which is there already may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This process's user: other users can put files there.
    Ours,
    /// Any: they cannot. One that was about to become visible may have been given away already.
    Any,
}

/// Opens a file that may be there already, or makes it, to be read and written. A link is not followed, and the other end of
/// a pipe not waited for.
pub(crate) fn open_or_make(
    directory: &OwnedFd,
    name: &OsStr,
    mode: u32,
    owner: Owner,
) -> Result<File, Unusable> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_raw_mode(mode))?;
    // Another user with access to the directory must not redirect writes elsewhere, through a link of any kind, nor
    // keep a way to change a file that was checked.
    let stat = fstat(&file)?;
    let is_ours = kind_of(&stat) == FileType::RegularFile
        && stat.st_nlink <= 1
        && (owner == Owner::Any || stat.st_uid == rustix::process::geteuid().as_raw());
    if is_ours { Ok(File::from(file)) } else { Err(Unusable::Foreign) }
}

/// Renames without replacing, also where the file system has no such rename (some network ones): for a file,
/// a hard link fails as atomically when the name is taken.
pub(crate) fn rename_new(
    from_parent: impl AsFd,
    from: &OsStr,
    to_parent: impl AsFd,
    to: &OsStr,
) -> Result<(), Errno> {
    match renameat_with(&from_parent, from, &to_parent, to, RenameFlags::NOREPLACE) {
        Err(cause @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => {
            let is_directory =
                kind_of(&statat(&from_parent, from, AtFlags::SYMLINK_NOFOLLOW)?) == FileType::Directory;
            match statat(&to_parent, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                // The kernel replaces at most an empty directory that was made since the look. And it
                // says for certain whether the first refusal was one of the flag or one of the move.
                Err(Errno::NOENT) if is_directory => renameat(from_parent, from, to_parent, to),
                Err(Errno::NOENT) => link_new(from_parent, from, to_parent, to),
                Err(_) => Err(cause),
            }
        }
        other => other,
    }
}

/// The same for a file where nothing was a moment ago.
fn link_new(from_parent: impl AsFd, from: &OsStr, to_parent: impl AsFd, to: &OsStr) -> Result<(), Errno> {
    match linkat(&from_parent, from, &to_parent, to, AtFlags::empty()) {
        // It has no links either: what comes in these microseconds is replaced.
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
            renameat(from_parent, from, to_parent, to)
        }
        linked => {
            linked?;
            // The file is there under its name: a second name of an upload is removed when it is old.
            let _ = unlinkat(from_parent, from, AtFlags::empty());
            Ok(())
        }
    }
}

/// True if `name` in `directory` is a name of `file`, and no link.
fn is_named(file: &File, directory: impl AsFd, name: &OsStr) -> bool {
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    there.is_ok_and(|there| fstat(file).is_ok_and(|ours| is_same(&there, &ours)))
}

/// True if both are of one file.
pub(crate) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
