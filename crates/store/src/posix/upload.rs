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
//! The hidden directory is the one at the export's root, or, where the target's directory is on another
//! mounted file system, one beside the target: a rename cannot cross. It belongs to this process's user and nobody
//! else can enter it; one that is a link, or somebody else's, is refused.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::limits;
use gridlane_sys::file::start_writeback;
use rustix::fs::{
    Access, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, StatxFlags, accessat, fdatasync, fstat,
    fstatvfs, fsync, linkat, mkdirat, openat, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::Shared;
use super::metadata::{kind_of, metadata_of, modified_of};
use crate::error::{StoreError, StoreResult};
use crate::path::{HIDDEN_NAME, ObjectPath};
use crate::storage::{Committed, Expectation, Upload};

/// What is certain to be on the device when an upload is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: after a power failure the file may be empty, short or missing.
    None,
    /// The bytes: after a power failure the name has the old file or the new one, whole.
    #[default]
    File,
    /// The bytes and the name: after a power failure the new file is there.
    Dir,
}

impl std::str::FromStr for Durability {
    type Err = gridlane_core::Error;

    fn from_str(text: &str) -> gridlane_core::Result<Durability> {
        match text {
            "none" => Ok(Durability::None),
            "file" => Ok(Durability::File),
            "dir" => Ok(Durability::Dir),
            _ => Err(gridlane_core::Error::new(
                gridlane_core::ErrorKind::Usage,
                format!("unknown durability {text:?}"),
            )
            .hint("use none, file or dir")),
        }
    }
}

/// Names of partial uploads begin and end like this; nothing else in a hidden directory is ours to remove.
const PARTIAL_PREFIX: &[u8] = b"upload-";
const PARTIAL_SUFFIX: &[u8] = b".part";

/// Bytes written before the kernel is told to bring them to the device.
const WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

static UPLOADS: AtomicU64 = AtomicU64::new(0);

/// A partial file and where it shall go.
pub(super) struct PosixUpload {
    shared: Arc<Shared>,
    /// The target.
    path: ObjectPath,
    parent: OwnedFd,
    hidden: OwnedFd,
    /// In `hidden`; `None` once it was renamed.
    partial_name: Option<String>,
    file: File,
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
        let parent = shared.resolve_directory(&parent_path).map_err(|error| match error {
            StoreError::NotFound | StoreError::NotADirectory => StoreError::ParentMissing,
            other => other,
        })?;
        match statat(&parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if matches!(kind_of(&stat), FileType::RegularFile | FileType::Symlink) => {}
            Ok(_) => return Err(StoreError::NotAFile),
            Err(Errno::NOENT) => {}
            Err(cause) => return Err(cause.into()),
        }
        accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        let same_mount = mount_of(shared.root.as_fd())? == mount_of(parent.as_fd())?;
        let hidden = if same_mount {
            hidden_directory(shared.root.as_fd(), &shared.root_path)?
        } else {
            let parent_path = shared.root_path.join(parent_path.as_relative());
            remove_abandoned(parent.as_fd(), &parent_path, limits::PARTIAL_AGE_MAX)?;
            hidden_directory(parent.as_fd(), &parent_path)?
        };
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
            parent,
            hidden,
            partial_name: Some(partial_name),
            file,
            written_back: 0,
        })
    }

    /// Renames the partial to its target; returns whether it replaced something.
    fn rename(&mut self, expectation: &Expectation) -> StoreResult<bool> {
        let (_, name) = self.path.split_last().ok_or(StoreError::NotAFile)?;
        let name = OsStr::from_bytes(name);
        let Some(partial) = self.partial_name.as_deref() else { return Err(StoreError::Unexpected) };
        let _changing = self.shared.lock_changes();
        self.shared.check(&self.path, expectation)?;
        let replaced = match rename_new(&self.hidden, partial, &self.parent, name) {
            Ok(()) => false,
            Err(Errno::EXIST) if *expectation == Expectation::Absent => return Err(StoreError::Unexpected),
            Err(Errno::EXIST) => {
                renameat(&self.hidden, partial, &self.parent, name)?;
                true
            }
            Err(cause) => return Err(cause.into()),
        };
        self.partial_name = None;
        Ok(replaced)
    }
}

impl Upload for PosixUpload {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.file.write_all_at(bytes, offset)?;
        let end = offset.saturating_add(bytes.len() as u64);
        if self.shared.durability != Durability::None && end >= self.written_back + WRITEBACK_BYTES {
            start_writeback(&self.file, self.written_back, end - self.written_back);
            self.written_back = end;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed> {
        if self.shared.durability != Durability::None {
            fdatasync(&self.file)?;
        }
        let replaced = self.rename(expectation)?;
        if self.shared.durability == Durability::Dir {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            fsync(openat(&self.parent, ".", flags, Mode::empty())?)?;
        }
        // After the rename, which changes the inode's change time and so the tag.
        Ok(Committed { metadata: metadata_of(&fstat(&self.file)?), replaced })
    }
}

impl Drop for PosixUpload {
    fn drop(&mut self) {
        if let Some(partial) = self.partial_name.take() {
            // If this fails the file is removed when it is old; nobody sees it until then.
            let _ = unlinkat(&self.hidden, partial, AtFlags::empty());
        }
    }
}

/// Renames without replacing, also where the file system has no such rename (some network ones): a hard
/// link fails as atomically when the name is taken.
fn rename_new(hidden: &OwnedFd, partial: &str, parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match renameat_with(hidden, partial, parent, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            linkat(hidden, partial, parent, name, AtFlags::empty())?;
            // The file is there under its name: a second name that stays is removed when it is old.
            let _ = unlinkat(hidden, partial, AtFlags::empty());
            Ok(())
        }
        other => other,
    }
}

/// Within one of these a rename works. The device alone does not tell: a bind mount has its origin's.
fn mount_of(directory: BorrowedFd<'_>) -> StoreResult<(u32, u32, u64)> {
    match statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
        Ok(stat) if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 => {
            Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id))
        }
        Ok(stat) => Ok((stat.stx_dev_major, stat.stx_dev_minor, 0)),
        Err(cause) => Err(cause.into()),
    }
}

/// The hidden directory in `base`, made when it is not there. `base_path` is for messages.
fn hidden_directory(base: BorrowedFd<'_>, base_path: &Path) -> StoreResult<OwnedFd> {
    match mkdirat(base, HIDDEN_NAME, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(cause.into()),
    }
    open_hidden_directory(base, base_path)
}

fn open_hidden_directory(base: BorrowedFd<'_>, base_path: &Path) -> StoreResult<OwnedFd> {
    let not_ours = || StoreError::NotOurs(base_path.join(HIDDEN_NAME));
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let hidden = openat(base, HIDDEN_NAME, flags, Mode::empty()).map_err(|cause| match cause {
        Errno::LOOP | Errno::NOTDIR | Errno::ACCESS => not_ours(),
        other => other.into(),
    })?;
    if fstat(&hidden)?.st_uid == rustix::process::geteuid().as_raw() { Ok(hidden) } else { Err(not_ours()) }
}

fn create_partial(hidden: &OwnedFd) -> StoreResult<(String, File)> {
    // Readable by whom the umask says, since the rename keeps the mode; until then the directory protects it.
    let mode = Mode::from_raw_mode(0o666);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!("upload-{}-{number}-{moment:x}.part", std::process::id());
        match openat(hidden, name.as_str(), flags, mode) {
            Ok(descriptor) => return Ok((name, File::from(descriptor))),
            Err(Errno::EXIST) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// Removes partial uploads older than `age` from the hidden directory in `base`, if there is one.
pub(super) fn remove_abandoned(base: BorrowedFd<'_>, base_path: &Path, age: Duration) -> StoreResult<usize> {
    let hidden = match open_hidden_directory(base, base_path) {
        Ok(hidden) => hidden,
        Err(StoreError::NotFound) => return Ok(0),
        Err(other) => return Err(other),
    };
    let now = SystemTime::now();
    let mut removed = 0;
    for entry in Dir::read_from(&hidden)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours =
            name.to_bytes().starts_with(PARTIAL_PREFIX) && name.to_bytes().ends_with(PARTIAL_SUFFIX);
        let Some(stat) = is_ours.then(|| statat(&hidden, name, AtFlags::SYMLINK_NOFOLLOW).ok()).flatten()
        else {
            continue;
        };
        let is_old = now.duration_since(modified_of(&stat)).is_ok_and(|since| since >= age);
        if is_old && unlinkat(&hidden, name, AtFlags::empty()).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}
