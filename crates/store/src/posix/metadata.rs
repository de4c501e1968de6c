//! What the kernel says of a file, in the words of [`Storage`](crate::Storage).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use crate::storage::{FileIdentity, Metadata};

/// What kind of thing it is.
pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A file's metadata.
///
/// The tag is made of inode, size, and the times of the last change of bytes and of inode, in
/// nanoseconds: a replaced file has another inode, one written in place has another time, and one whose
/// modification time was set back still has another change time. Two writes in place within one tick of
/// the kernel's clock (about 4 ms, less since Linux 6.13) cannot be told apart by anybody.
pub(super) fn metadata_of(stat: &Stat) -> Metadata {
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let nanoseconds =
        |seconds: i64, nanoseconds: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let modified = nanoseconds(stat.st_mtime, stat.st_mtime_nsec);
    let changed = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
    Metadata {
        size_bytes,
        modified: modified_of(stat),
        changed: moment_of(stat.st_ctime, stat.st_ctime_nsec),
        tag: format!(
            "{:x}-{size_bytes:x}-{modified:x}-{:x}",
            stat.st_ino,
            changed.wrapping_sub(modified) as u64
        ),
        identity: FileIdentity { device: stat.st_dev, number: stat.st_ino },
    }
}

/// When the bytes were last changed.
pub(super) fn modified_of(stat: &Stat) -> SystemTime {
    moment_of(stat.st_mtime, stat.st_mtime_nsec)
}

fn moment_of(seconds: i64, nanoseconds: u64) -> SystemTime {
    let moment = match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
    };
    moment.and_then(|moment| moment.checked_add(Duration::from_nanos(nanoseconds))).unwrap_or(UNIX_EPOCH)
}
