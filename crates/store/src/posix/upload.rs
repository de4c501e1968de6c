//! Uploads: a partial file in a hidden directory, renamed when it is complete.
//!
//! What a crash leaves, in the order of the steps:
//!
//! 1. The partial is created in `.gridlane/` with a name of its own, opened exclusively. A crash from
//!    here on leaves a file that nobody sees; it is removed when it is old enough.
//! 2. Bytes are written. The kernel is told early to bring them to the device.
//! 3. `commit` syncs the bytes (durability `file` and `dir`), *then* renames. A name never points to
//!    bytes that a power failure could take away.
//! 4. The rename is atomic: readers see the old file or the new one. With durability `dir` the directory
//!    is synced too, so that the new name survives a power failure that follows the answer.
//!
//! Which hidden directory that is, is told in `posix/hidden.rs`.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::Checksum;
use gridlane_sys::file::start_writeback;
use rustix::fs::{
    Access, AtFlags, FileType, Timespec, Timestamps, UTIME_OMIT, accessat, copy_file_range, fstatvfs, fsync,
    futimens, renameat, unlinkat,
};
use rustix::io::Errno;

use super::hidden::{create_partial, hidden_for};
use super::metadata::{kind_of, look_at, look_in, metadata_of};
use super::names::rename_new;
use super::{Durability, Shared, checksums, hidden};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{Committed, Expectation, Object, Upload, copy_by_reading};

/// Bytes written before the kernel is told to bring them to the device.
const WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes that the kernel copies in one call, which cannot be interrupted in every file system.
const COPY_STEP_BYTES: usize = 64 * 1024 * 1024;

/// For `open` before its umask.
const FILE_PERMISSIONS: u32 = 0o666;

/// A partial file and where it shall go.
pub(super) struct PosixUpload {
    shared: Arc<Shared>,
    /// The target.
    path: ObjectPath,
    hidden: OwnedFd,
    /// In `hidden`; `None` once it was renamed.
    partial_name: Option<String>,
    file: File,
    modified: Option<SystemTime>,
    /// Of all that was written.
    checksums: Vec<Checksum>,
    /// Bytes that the kernel was told of.
    written_back: u64,
}

impl PosixUpload {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        expected_bytes: Option<u64>,
    ) -> StoreResult<PosixUpload> {
        let (parent_path, name) = path.split_last().ok_or(StoreError::NotAFile)?;
        let parent = shared.resolve_parent(&parent_path)?;
        match look_in(&parent, OsStr::from_bytes(name)) {
            Ok(stat) if matches!(kind_of(&stat), FileType::RegularFile | FileType::Symlink) => {}
            Ok(_) => return Err(StoreError::NotAFile),
            Err(Errno::NOENT) => {}
            Err(cause) => return Err(cause.into()),
        }
        accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        let hidden = hidden_for(shared, &parent, &parent_path)?;
        if let Some(expected) = expected_bytes {
            let free = fstatvfs(&hidden)?;
            if expected > free.f_bavail.saturating_mul(free.f_frsize) {
                return Err(StoreError::NoSpace);
            }
        }
        let (partial_name, file) = create_partial(&hidden)?;
        Ok(PosixUpload {
            shared: Arc::clone(shared),
            path: path.clone(),
            hidden,
            partial_name: Some(partial_name),
            file,
            modified: None,
            checksums: Vec::new(),
            written_back: 0,
        })
    }

    /// Renames the partial to its target; returns the length of what it replaced.
    fn rename(&mut self, expectation: &Expectation) -> StoreResult<Option<u64>> {
        let (parent_path, name) = self.path.split_last().ok_or(StoreError::NotAFile)?;
        let name = OsStr::from_bytes(name);
        let Some(partial) = self.partial_name.as_deref() else { return Err(StoreError::Unexpected) };
        let changing = self.shared.lock_changes();
        // Looked up again: the directory may have been moved or removed since the upload began, and what is
        // now said to be there has to be there.
        let parent = self.shared.resolve_parent(&parent_path)?;
        self.shared.check(&self.path, expectation)?;
        let replaced = match rename_new(&self.hidden, OsStr::new(partial), &parent, name) {
            Ok(()) => None,
            Err(Errno::EXIST) if *expectation == Expectation::Absent => return Err(StoreError::Unexpected),
            Err(Errno::EXIST) => {
                let old_bytes = match look_in(&parent, name) {
                    Ok(old) if kind_of(&old) == FileType::RegularFile => old.stx_size,
                    _ => 0,
                };
                renameat(&self.hidden, partial, &parent, name)?;
                Some(old_bytes)
            }
            Err(Errno::NOENT) => return Err(StoreError::ParentMissing),
            Err(cause) => return Err(cause.into()),
        };
        drop(changing);
        self.partial_name = None;
        self.shared.options.sync_names(&parent)?;
        Ok(replaced)
    }

    /// Sets the modification time that is wanted. From here on the partial may look old enough to be removed.
    fn take_its_time(&self) -> StoreResult<()> {
        let Some(modified) = self.modified else { return Ok(()) };
        hidden::hold(&self.file);
        set_modified(&self.file, modified)
    }

    fn wrote_up_to(&mut self, end: u64) {
        self.checksums.clear();
        let is_due = end >= self.written_back.saturating_add(WRITEBACK_BYTES);
        if self.shared.options.durability != Durability::None && is_due {
            start_writeback(&self.file, self.written_back, end - self.written_back);
            self.written_back = end;
        }
    }
}

impl Upload for PosixUpload {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.file.write_all_at(bytes, offset)?;
        self.wrote_up_to(offset.saturating_add(bytes.len() as u64));
        Ok(())
    }

    fn copy_range(&mut self, source: &dyn Object, offset: u64, len: u64) -> StoreResult<u64> {
        let mut copied = 0;
        while let (Some(file), true) = (source.as_file(), copied < len) {
            let (mut from, mut to) = (offset.saturating_add(copied), offset.saturating_add(copied));
            let step = usize::try_from(len - copied).unwrap_or(usize::MAX).min(COPY_STEP_BYTES);
            match copy_file_range(file, Some(&mut from), &self.file, Some(&mut to), step) {
                // The end; or a file system that says so of what it cannot copy: reading will tell.
                Ok(0) => break,
                Ok(count) => {
                    copied += count as u64;
                    self.wrote_up_to(to);
                }
                Err(Errno::INTR) => {}
                // Across file systems, or one that cannot.
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => break,
                Err(cause) => return Err(cause.into()),
            }
        }
        let rest = copy_by_reading(source, offset.saturating_add(copied), len - copied, |bytes, at| {
            self.write_at(bytes, at)
        })?;
        Ok(copied + rest)
    }

    fn set_modified(&mut self, modified: SystemTime) -> StoreResult<()> {
        self.modified = Some(modified);
        Ok(())
    }

    fn keep_checksums(&mut self, checksums: &[Checksum]) {
        self.checksums = checksums.to_vec();
    }

    fn commit(mut self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed> {
        self.take_its_time()?;
        // While the file is ours, and when its times are what they will be.
        let checksums = std::mem::take(&mut self.checksums);
        let beside = checksums::keep_of_upload(&self.shared, &self.file, checksums);
        self.shared.options.apply(&self.file, FILE_PERMISSIONS)?;
        if self.shared.options.durability != Durability::None {
            fsync(&self.file)?;
        }
        let replaced = self.rename(expectation)?;
        // After the rename, which changes the inode's change time and so the tag.
        let stat = look_at(&self.file)?;
        if let Some(beside) = beside {
            checksums::keep_beside(&self.shared, &beside, &stat);
        }
        let metadata = metadata_of(&stat).ok_or(StoreError::NotAFile)?;
        Ok(Committed { metadata, replaced: replaced.is_some(), replaced_bytes: replaced.unwrap_or(0) })
    }
}

/// Sets when the bytes were last changed, and not when they were last read.
pub(super) fn set_modified(file: impl std::os::fd::AsFd, modified: SystemTime) -> StoreResult<()> {
    let timespec = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: seconds(since.as_secs()), tv_nsec: since.subsec_nanos().into() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timespec { tv_sec: -seconds(before.as_secs()), tv_nsec: 0 },
                part => Timespec {
                    tv_sec: -seconds(before.as_secs()) - 1,
                    tv_nsec: (1_000_000_000 - part).into(),
                },
            }
        }
    };
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(futimens(file, &Timestamps { last_access, last_modification: timespec })?)
}

fn seconds(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Drop for PosixUpload {
    fn drop(&mut self) {
        if let Some(partial) = self.partial_name.take() {
            // If this fails the file is removed when it is old; nobody sees it until then.
            let _ = unlinkat(&self.hidden, partial, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Storage;
    use std::time::Duration;

    #[test]
    fn an_old_time_makes_no_upload_abandoned() {
        let directory = tempfile::tempdir().unwrap();
        let storage = crate::PosixStorage::open(directory.path(), Durability::None).unwrap();
        let path = ObjectPath::new([&b"f"[..]]).unwrap();
        let mut upload = PosixUpload::begin(&storage.shared, &path, None).unwrap();
        upload.set_modified(UNIX_EPOCH).unwrap();
        // The first step of a commit; the next one waits for the device.
        upload.take_its_time().unwrap();
        assert_eq!(storage.remove_abandoned(Duration::from_secs(3600)).unwrap(), 0);
        let committed = Box::new(upload).commit(&Expectation::Anything).unwrap();
        assert_eq!(committed.metadata.modified, UNIX_EPOCH);
    }
}
