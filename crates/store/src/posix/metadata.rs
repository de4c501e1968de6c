//! What the kernel says of a file, in the words of [`Storage`](crate::Storage).

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::io::Errno;

use crate::storage::{FileIdentity, Metadata, NodeKind};

/// What is asked of the kernel: what `stat` tells, and when the file was made.
const FIELDS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Looks at what is open.
pub(super) fn look_at(descriptor: impl AsFd) -> Result<Statx, Errno> {
    statx(descriptor, "", AtFlags::EMPTY_PATH, FIELDS)
}

/// Looks at `name` in `directory`; at the link itself if it is one.
pub(super) fn look_in(directory: impl AsFd, name: &OsStr) -> Result<Statx, Errno> {
    statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, FIELDS)
}

/// What kind of thing it is.
pub(super) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Tells it apart from everything else on this machine.
pub(super) fn identity_of(stat: &Statx) -> FileIdentity {
    FileIdentity { device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), number: stat.stx_ino }
}

/// The metadata of a file or directory; `None` for everything else.
///
/// The tag is made of inode, size, and the times of the last change of bytes and of inode, in
/// nanoseconds: a replaced file has another inode, one written in place has another time, and one whose
/// modification time was set back still has another change time. Two writes in place within one tick of
/// the kernel's clock (about 4 ms, less since Linux 6.13) cannot be told apart by anybody.
pub(super) fn metadata_of(stat: &Statx) -> Option<Metadata> {
    let (kind, size_bytes) = match kind_of(stat) {
        FileType::RegularFile => (NodeKind::File, stat.stx_size),
        // What a directory's own table takes says nothing to anybody.
        FileType::Directory => (NodeKind::Directory, 0),
        _ => return None,
    };
    let modified = nanoseconds_of(stat.stx_mtime);
    let changed = nanoseconds_of(stat.stx_ctime);
    Some(Metadata {
        kind,
        size_bytes,
        modified: modified_of(stat),
        changed: changed_of(stat),
        created: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| moment_of(stat.stx_btime)),
        tag: format!(
            "{:x}-{size_bytes:x}-{modified:x}-{:x}",
            stat.stx_ino,
            changed.wrapping_sub(modified) as u64
        ),
        identity: identity_of(stat),
        mode: stat.stx_mode.into(),
        owner: stat.stx_uid,
        group: stat.stx_gid,
    })
}

/// When the bytes were last changed.
pub(super) fn modified_of(stat: &Statx) -> SystemTime {
    moment_of(stat.stx_mtime)
}

/// When anything about it was last changed.
pub(super) fn changed_of(stat: &Statx) -> SystemTime {
    moment_of(stat.stx_ctime)
}

/// Nanoseconds since 1970.
pub(super) fn nanoseconds_of(time: StatxTimestamp) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn moment_of(time: StatxTimestamp) -> SystemTime {
    let moment = match u64::try_from(time.tv_sec) {
        Ok(seconds) => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(time.tv_sec.unsigned_abs())),
    };
    moment
        .and_then(|moment| moment.checked_add(Duration::from_nanos(time.tv_nsec.into())))
        .unwrap_or(UNIX_EPOCH)
}
