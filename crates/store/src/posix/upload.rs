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
//! `posix/partial.rs` makes, renames and removes the partial; `posix/hidden.rs` tells which hidden directory it
//! is in.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, copy_file_range, futimens};
use rustix::io::Errno;

use super::partial::{FILE_PERMISSIONS, Partial};
use super::{Shared, hidden};
use crate::blocking::BlockingUpload;
use crate::error::StoreResult;
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion};

/// Bytes that the kernel copies in one call, which cannot be interrupted in every file system.
const COPY_STEP_BYTES: usize = 64 * 1024 * 1024;

/// A partial file.
pub struct PosixUpload {
    shared: Arc<Shared>,
    partial: Partial,
}

impl PosixUpload {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        expected_bytes: Option<u64>,
    ) -> StoreResult<PosixUpload> {
        let partial = Partial::begin(shared, path, FILE_PERMISSIONS, expected_bytes)?;
        Ok(PosixUpload { shared: Arc::clone(shared), partial })
    }

    /// Sets the modification time that is wanted. From here on the partial may look old enough to be removed.
    fn take_its_time(&self, modified: Option<SystemTime>) -> StoreResult<()> {
        let Some(modified) = modified else { return Ok(()) };
        hidden::hold(&self.partial.file);
        set_modified(&self.partial.file, modified)
    }

    fn wrote_up_to(&self, end: u64) {
        self.partial.writeback.wrote_up_to(&self.shared, &self.partial.file, end);
    }
}

impl BlockingUpload for PosixUpload {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.partial.file.write_all_at(bytes, offset)?;
        self.wrote_up_to(offset.saturating_add(bytes.len() as u64));
        Ok(())
    }

    fn copy_range(&self, source: &File, offset: u64, len: u64) -> StoreResult<u64> {
        let mut copied = 0;
        while copied < len {
            let (mut from, mut to) = (offset.saturating_add(copied), offset.saturating_add(copied));
            let step = usize::try_from(len - copied).unwrap_or(usize::MAX).min(COPY_STEP_BYTES);
            match copy_file_range(source, Some(&mut from), &self.partial.file, Some(&mut to), step) {
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
        Ok(copied)
    }

    fn commit(&self, completion: &Completion) -> StoreResult<Committed> {
        self.take_its_time(completion.modified)?;
        self.partial.publish(completion.checksums.clone(), &completion.expectation)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::blocking::BlockingStorage;
    use crate::storage::Expectation;
    use std::time::Duration;

    #[test]
    fn an_old_time_makes_no_upload_abandoned() {
        let directory = tempfile::tempdir().unwrap();
        let storage = crate::PosixStorage::open(directory.path(), Durability::None).unwrap();
        let path = ObjectPath::new([&b"f"[..]]).unwrap();
        let upload = PosixUpload::begin(&storage.shared, &path, None).unwrap();
        let modified = Some(UNIX_EPOCH);
        // The first step of a commit; the next one waits for the device.
        upload.take_its_time(modified).unwrap();
        assert_eq!(storage.remove_abandoned(Duration::from_secs(3600)).unwrap(), 0);
        let committed = upload.commit(&Completion { modified, ..Expectation::Anything.into() }).unwrap();
        assert_eq!(committed.metadata.modified, UNIX_EPOCH);
    }
}
