//! A file in the hidden directory that becomes visible by a rename, or is gone without a trace.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::Checksum;
use gridlane_sys::file::start_writeback;
use rustix::fs::{Access, AtFlags, FileType, accessat, fstatvfs, fsync, renameat, unlinkat};
use rustix::io::Errno;

use super::hidden::{create_partial, hidden_for};
use super::metadata::{kind_of, look_at, look_in, metadata_of};
use super::names::rename_new;
use super::{Durability, Shared, checksums};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{Committed, Expectation};

/// Bytes written before the kernel is told to bring them to the device.
const WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

/// For `open` before its umask.
pub(super) const FILE_PERMISSIONS: u32 = 0o666;

/// Such a file, and where it shall go.
pub(super) struct Partial {
    shared: Arc<Shared>,
    /// The target.
    path: ObjectPath,
    hidden: OwnedFd,
    /// In `hidden`; `None` once it was renamed.
    name: Mutex<Option<String>>,
    /// Its own bytes.
    pub(super) file: File,
    /// Before the umask.
    permissions: u32,
    pub(super) writeback: Writeback,
}

impl Partial {
    /// Makes one. Everything that can be refused before the bytes come is refused here.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        permissions: u32,
        expected_bytes: Option<u64>,
    ) -> StoreResult<Partial> {
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
        require_room(&hidden, expected_bytes)?;
        let (partial_name, file) = create_partial(&hidden, permissions)?;
        Ok(Partial {
            shared: Arc::clone(shared),
            path: path.clone(),
            hidden,
            name: Mutex::new(Some(partial_name)),
            file,
            permissions,
            writeback: Writeback::default(),
        })
    }

    /// Makes it visible, with what durability asks for, and with these checksums of all its bytes.
    pub(super) fn publish(
        &self,
        checksums: Vec<Checksum>,
        expectation: &Expectation,
    ) -> StoreResult<Committed> {
        // While the file is ours, and when its times are what they will be.
        let beside = checksums::keep_in_attributes(&self.shared, &self.file, checksums);
        self.shared.options.apply(&self.file, self.permissions)?;
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

    /// Renames it to its target; returns the length of what it replaced.
    fn rename(&self, expectation: &Expectation) -> StoreResult<Option<u64>> {
        let (parent_path, name) = self.path.split_last().ok_or(StoreError::NotAFile)?;
        let name = OsStr::from_bytes(name);
        let mut partial_name = self.lock_name();
        let Some(partial) = partial_name.as_deref() else { return Err(StoreError::Closed) };
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
        *partial_name = None;
        self.shared.options.sync_names(&parent)?;
        Ok(replaced)
    }

    /// Removes it, unless it is visible.
    pub(super) fn discard(&self) {
        if let Some(partial) = self.lock_name().take() {
            // If this fails the file is removed when it is old; nobody sees it until then.
            let _ = unlinkat(&self.hidden, partial, AtFlags::empty());
        }
    }

    pub(super) fn is_visible(&self) -> bool {
        self.lock_name().is_none()
    }

    fn lock_name(&self) -> MutexGuard<'_, Option<String>> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Refuses what is longer than there is room for on the file system that something open is on.
pub(super) fn require_room(on: impl AsFd, bytes: Option<u64>) -> StoreResult<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let free = fstatvfs(on)?;
    if bytes > free.f_bavail.saturating_mul(free.f_frsize) { Err(StoreError::NoSpace) } else { Ok(()) }
}

/// How far the kernel was told to bring a file to its device, so that a later sync finds little left to do.
#[derive(Default)]
pub(super) struct Writeback {
    told_bytes: AtomicU64,
}

impl Writeback {
    /// To be called after bytes were written that end at `end`.
    pub(super) fn wrote_up_to(&self, shared: &Shared, file: &File, end: u64) {
        if shared.options.durability == Durability::None {
            return;
        }
        let told = self.told_bytes.load(Ordering::Relaxed);
        let is_due = end >= told.saturating_add(WRITEBACK_BYTES);
        // Of several who write at once, one tells.
        if is_due && self.told_bytes.compare_exchange(told, end, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            start_writeback(file, told, end - told);
        }
    }
}
