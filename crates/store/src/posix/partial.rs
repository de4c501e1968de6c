//! Files in the hidden directory that become visible by a rename: uploads, what is seen when it is closed, and targets.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{Access, AtFlags, FileType, accessat, fstatvfs, fsync};
use rustix::io::Errno;

use super::hidden::{self, create_partial, hidden_for};
use super::metadata::{kind_of, look_at, look_in, metadata_of};
use super::times::set_modified;
use super::{Durability, Shared, checksums};
use crate::error::{StoreError, StoreResult};
use crate::partial::{Ending, Failure, Partial, Place, Step, Writeback};
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion, Expectation};

/// For `open` before its umask.
pub(super) const FILE_PERMISSIONS: u32 = 0o666;

/// Such a file without a journal, and where it shall go.
pub(super) struct PosixPartial {
    shared: Arc<Shared>,
    /// The final one.
    path: ObjectPath,
    partial: Partial,
    /// Before the umask.
    permissions: u32,
}

impl PosixPartial {
    /// Makes one. Everything that can be refused before the bytes come is refused here.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        permissions: u32,
        expected_bytes: Option<u64>,
    ) -> StoreResult<PosixPartial> {
        let hidden = hidden_of(shared, path)?;
        require_room(&hidden, expected_bytes)?;
        let (name, file) = create_partial(&hidden, permissions)?;
        let writeback = growing(shared);
        let partial = Partial::new(Arc::new(hidden), name.into(), file, None, writeback);
        Ok(PosixPartial { shared: Arc::clone(shared), path: path.clone(), partial, permissions })
    }

    /// Its own bytes.
    pub(super) fn file(&self) -> &File {
        self.partial.file()
    }

    /// Writes all of `bytes` at `offset`.
    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.partial.write_at(bytes, offset)
    }

    /// Tells that `len` bytes were written at `offset`.
    pub(super) fn wrote(&self, offset: u64, len: u64) {
        self.partial.wrote(offset, len);
    }

    /// Makes it visible, with what durability asks for.
    pub(super) fn publish(&self, completion: &Completion) -> StoreResult<Committed> {
        Ok(self.publish_up_to(Step::All, completion)?)
    }

    /// The same, and no further than a step.
    pub(super) fn publish_up_to(&self, last: Step, completion: &Completion) -> Result<Committed, Failure> {
        let PosixPartial { shared, path, partial, permissions } = self;
        PosixEnding::new(shared, path, *permissions, None, completion)?.publish(last, partial)
    }

    /// Removes it, unless it is visible.
    pub(super) fn discard(&self) {
        self.partial.discard();
    }

    pub(super) fn is_visible(&self) -> bool {
        self.partial.is_over()
    }
}

/// The end of a file of the hidden directory that becomes visible at its path.
pub(super) struct PosixEnding<'a> {
    shared: &'a Shared,
    path: &'a ObjectPath,
    parent_path: ObjectPath,
    permissions: u32,
    size_bytes: Option<u64>,
    completion: &'a Completion,
    /// Checksums that could not become attributes of it.
    beside: RefCell<Option<checksums::Beside>>,
}

impl<'a> PosixEnding<'a> {
    /// `permissions` before the umask; `size_bytes`, if it is to be looked at.
    pub(super) fn new(
        shared: &'a Shared,
        path: &'a ObjectPath,
        permissions: u32,
        size_bytes: Option<u64>,
        completion: &'a Completion,
    ) -> StoreResult<PosixEnding<'a>> {
        let (parent_path, _) = path.split_last().ok_or(StoreError::NotAFile)?;
        let beside = RefCell::default();
        Ok(PosixEnding { shared, path, parent_path, permissions, size_bytes, completion, beside })
    }

    /// Ends it, as far as a step.
    pub(super) fn publish(&self, last: Step, partial: &Partial) -> Result<Committed, Failure> {
        let replaced = partial.publish_up_to(last, self)?;
        // After the rename, which changes the inode's change time and so the tag.
        let stat = look_at(partial.file()).map_err(StoreError::from)?;
        if let Some(beside) = self.beside.take() {
            checksums::keep_beside(self.shared, &beside, &stat);
        }
        let metadata = metadata_of(&stat).ok_or(StoreError::NotAFile)?;
        Ok(Committed { metadata, replaced: replaced.is_some(), replaced_bytes: replaced.unwrap_or(0) })
    }
}

impl Ending for PosixEnding<'_> {
    fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    fn prepare(&self, file: &File) -> Result<(), Failure> {
        let Completion { modified, checksums, .. } = self.completion;
        if let Some(modified) = modified {
            // From here on it may look old enough to be removed.
            hidden::hold(file);
            set_modified(file, *modified)?;
        }
        // Before the file gets its owner, and after its times are set.
        *self.beside.borrow_mut() = checksums::keep_in_attributes(self.shared, file, checksums.clone());
        Ok(self.shared.options.apply(file, self.permissions)?)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        match self.shared.options.durability {
            Durability::None => Ok(()),
            Durability::File | Durability::Dir => Ok(fsync(file)?),
        }
    }

    fn place(&self) -> Result<Place<'_>, Failure> {
        let changing = self.shared.lock_changes();
        // Looked up again: the directory may have been moved or removed since it began, and what is
        // now said to be there has to be there.
        let parent = self.shared.resolve_parent(&self.parent_path)?;
        self.shared.check(self.path, &self.completion.expectation)?;
        Ok(Place {
            directory: Arc::new(parent),
            name: name_of(self.path),
            replaces: self.completion.expectation != Expectation::Absent,
            changing: Some(changing),
        })
    }

    fn sync_names(&self, directory: &OwnedFd) -> Result<(), Failure> {
        Ok(self.shared.options.sync_names(directory)?)
    }
}

/// The hidden directory for what shall be at `path`, if a file can be there.
pub(super) fn hidden_of(shared: &Shared, path: &ObjectPath) -> StoreResult<OwnedFd> {
    let (parent_path, name) = path.split_last().ok_or(StoreError::NotAFile)?;
    let parent = shared.resolve_parent(&parent_path)?;
    match look_in(&parent, OsStr::from_bytes(name)) {
        Ok(stat) if matches!(kind_of(&stat), FileType::RegularFile | FileType::Symlink) => {}
        Ok(_) => return Err(StoreError::NotAFile),
        Err(Errno::NOENT) => {}
        Err(cause) => return Err(cause.into()),
    }
    accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    hidden_for(shared, &parent, &parent_path)
}

fn name_of(path: &ObjectPath) -> &OsStr {
    path.as_relative().file_name().unwrap_or_default()
}

/// Refuses what is longer than there is room for on the file system that something open is on.
pub(super) fn require_room(on: impl AsFd, bytes: Option<u64>) -> StoreResult<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let free = fstatvfs(on)?;
    if bytes > free.f_bavail.saturating_mul(free.f_frsize) { Err(StoreError::NoSpace) } else { Ok(()) }
}

/// Of a file that is written from its beginning to its end.
pub(super) fn growing(shared: &Shared) -> Writeback {
    match shared.options.durability {
        Durability::None => Writeback::Never,
        Durability::File | Durability::Dir => Writeback::Growing(AtomicU64::new(0)),
    }
}

/// Of one that is written in any order.
pub(super) fn each(shared: &Shared) -> Writeback {
    match shared.options.durability {
        Durability::None => Writeback::Never,
        Durability::File | Durability::Dir => Writeback::Each,
    }
}
