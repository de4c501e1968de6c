//! Uploads: a partial file in a hidden directory, renamed when it is complete.
//!
//! What a crash leaves, in the order of the steps:
//!
//! 1. The partial is created in `.gridlane/` with a name of its own, opened exclusively. A crash from
//!    here on leaves a file that is not visible; it is removed when it is old enough.
//! 2. Bytes are written. The kernel is told early to bring them to the device.
//! 3. `commit` syncs the bytes (durability `file` and `dir`), *then* renames. A name never points to
//!    bytes that a power failure could take away.
//! 4. The rename is atomic: readers see the old file or the new one. With durability `dir` the directory
//!    is synced too, so that the new name survives a power failure that follows the answer.
//!
//! `partial/mod.rs` tells the order for everything that becomes visible so, `posix/partial.rs` what is particular to an export;
//! `posix/hidden.rs` tells which hidden directory it is in.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::copy_file_range;
use rustix::io::Errno;

use super::Shared;
use super::partial::{FILE_PERMISSIONS, PosixPartial};
use crate::blocking::BlockingUpload;
use crate::error::StoreResult;
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion};

/// Bytes that the kernel copies in one call, which cannot be interrupted in every file system.
const COPY_STEP_BYTES: usize = 64 * 1024 * 1024;

/// A partial file.
pub struct PosixUpload {
    partial: PosixPartial,
}

impl PosixUpload {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        expected_bytes: Option<u64>,
    ) -> StoreResult<PosixUpload> {
        let partial = PosixPartial::begin(shared, path, FILE_PERMISSIONS, expected_bytes)?;
        Ok(PosixUpload { partial })
    }
}

impl BlockingUpload for PosixUpload {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        Ok(self.partial.write_at(bytes, offset)?)
    }

    fn copy_range(&self, source: &File, offset: u64, len: u64) -> StoreResult<u64> {
        let mut copied = 0;
        while copied < len {
            let (mut from, mut to) = (offset.saturating_add(copied), offset.saturating_add(copied));
            let step = usize::try_from(len - copied).unwrap_or(usize::MAX).min(COPY_STEP_BYTES);
            match copy_file_range(source, Some(&mut from), self.partial.file(), Some(&mut to), step) {
                // The end; or a file system that says so of what it cannot copy: reading will tell.
                Ok(0) => break,
                Ok(count) => {
                    self.partial.wrote(offset.saturating_add(copied), count as u64);
                    copied += count as u64;
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
        self.partial.publish(completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::blocking::BlockingStorage;
    use crate::partial::Step;
    use crate::storage::Expectation;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn an_old_time_makes_no_upload_abandoned() {
        let directory = tempfile::tempdir().unwrap();
        let storage = crate::PosixStorage::open(directory.path(), Durability::None).unwrap();
        let path = ObjectPath::new([&b"f"[..]]).unwrap();
        let upload = PosixUpload::begin(&storage.shared, &path, None).unwrap();
        let modified = Some(UNIX_EPOCH);
        let completion = Completion { modified, ..Expectation::Anything.into() };
        // The first step of a commit; the next one waits for the device.
        upload.partial.publish_up_to(Step::Prepared, &completion).unwrap();
        assert_eq!(storage.remove_abandoned(Duration::from_secs(3600)).unwrap(), 0);
        let committed = upload.commit(&completion).unwrap();
        assert_eq!(committed.metadata.modified, UNIX_EPOCH);
    }
}
