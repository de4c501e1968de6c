//! The kernel's metadata of a file, as that of [`Storage`](crate::Storage).

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, StatxTimestamp, fstat, statat, statx};
use rustix::io::Errno;

use crate::storage::{FileIdentity, Metadata, NodeKind};

/// The fields that the kernel is asked for: those of `stat`, and the time when the file was made.
const FIELDS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Looks at what is open.
pub(super) fn look_at(descriptor: impl AsFd) -> Result<Statx, Errno> {
    statx(descriptor, "", AtFlags::EMPTY_PATH, FIELDS)
}

/// Looks at `name` in `directory`; at the link itself if it is one.
pub(super) fn look_in(directory: impl AsFd, name: &OsStr) -> Result<Statx, Errno> {
    statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, FIELDS)
}

/// The kind of file.
pub(super) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Tells it apart from everything else on this machine.
pub(super) fn identity_of(stat: &Statx) -> FileIdentity {
    FileIdentity { device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), number: stat.stx_ino }
}

/// The fields that tell whether a file is still the same: those that its tag is made of, but not as text, since every
/// answer to a read ends with a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    number: u64,
    size_bytes: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    pub(super) fn of(stat: &Statx) -> Stamp {
        Stamp {
            number: stat.stx_ino,
            size_bytes: stat.stx_size,
            modified_ns: nanoseconds_of(stat.stx_mtime),
            changed_ns: nanoseconds_of(stat.stx_ctime),
        }
    }

    /// True if it still is the stamp of an open file. `fstat` costs less than `statx`, which is given a path, if an
    /// empty one.
    pub(super) fn is_of(&self, file: impl AsFd) -> bool {
        fstat(file).is_ok_and(|stat| Stamp::of_plain(&stat) == *self)
    }

    /// True if an open file still has the bytes that it had. The time of the last change of the inode says nothing of
    /// that: a name more or less, another mode and another owner change it too.
    pub(super) fn has_bytes_of(&self, file: impl AsFd) -> bool {
        fstat(file).is_ok_and(|stat| {
            let now = Stamp::of_plain(&stat);
            (now.size_bytes, now.modified_ns) == (self.size_bytes, self.modified_ns)
        })
    }

    /// True if it is the stamp of what is at `path` below `directory`, on `device`; never of a link.
    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between architectures")]
    pub(super) fn is_at(&self, directory: impl AsFd, path: &Path, device: u64) -> bool {
        statat(directory, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_dev as u64 == device && Stamp::of_plain(&stat) == *self)
    }

    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between architectures")]
    fn of_plain(stat: &Stat) -> Stamp {
        let ns = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Stamp {
            number: stat.st_ino as u64,
            size_bytes: stat.st_size as u64,
            modified_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }
}

/// The distance of two times that the kernel's clock of files can tell apart: 1 to 10 ms, by how it was built. Linux
/// 6.13 and later distinguish shorter ones if the file was looked at in between.
pub(super) fn tick() -> Duration {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::RealtimeCoarse);
    Duration::from_nanos(tick.tv_nsec.unsigned_abs())
}

/// The metadata of a file or directory; `None` for everything else.
///
/// The tag is made of inode, size, and the times of the last change of bytes and of inode, in
/// nanoseconds: a replaced file has another inode, one written in place has another time, and one whose
/// modification time was set back still has another change time. Two writes in place within one tick of
/// the kernel's clock (about 4 ms, less since Linux 6.13) cannot be told apart at all.
pub(super) fn metadata_of(stat: &Statx) -> Option<Metadata> {
    let (kind, size_bytes) = match kind_of(stat) {
        FileType::RegularFile => (NodeKind::File, stat.stx_size),
        // The size of a directory's own table has no meaning for clients.
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
        tag: tag(stat.stx_ino, size_bytes, modified, changed.wrapping_sub(modified) as u64),
        identity: identity_of(stat),
        mode: stat.stx_mode.into(),
        owner: stat.stx_uid,
        group: stat.stx_gid,
    })
}

/// Four numbers in hexadecimal digits. By hand: a listing makes one for each entry, and `format!` takes longer than the
/// kernel takes to look at the file.
fn tag(inode: u64, size_bytes: u64, modified_ns: i128, later_ns: u64) -> String {
    // Before 1970 and after 2554.
    let Ok(modified_ns) = u64::try_from(modified_ns) else {
        return format!("{inode:x}-{size_bytes:x}-{modified_ns:x}-{later_ns:x}");
    };
    let mut digits = [b'-'; 4 * 17];
    let mut begin = digits.len();
    for mut number in [later_ns, modified_ns, size_bytes, inode] {
        loop {
            begin -= 1;
            digits[begin] = b"0123456789abcdef"[(number & 0xf) as usize];
            number >>= 4;
            if number == 0 {
                break;
            }
        }
        // The dash that stands there already: one is in front of the first number too.
        begin -= 1;
    }
    String::from_utf8_lossy(&digits[begin + 1..]).into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_what_format_makes() {
        let times =
            [0, 1, 0x1f, -1, 1_700_000_000_123_456_789, i128::from(u64::MAX), i128::from(u64::MAX) + 1];
        for modified in times {
            for (inode, size, later) in [(0, 0, 0), (10, 255, u64::MAX), (u64::MAX, u64::MAX, u64::MAX)] {
                let expected = format!("{inode:x}-{size:x}-{modified:x}-{later:x}");
                assert_eq!(tag(inode, size, modified, later), expected);
            }
        }
    }

    #[test]
    fn names_and_modes_are_no_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("a"), b"0123").unwrap();
        let file = std::fs::File::open(at("a")).unwrap();
        let stamp = Stamp::of(&look_at(&file).unwrap());
        std::fs::hard_link(at("a"), at("b")).unwrap();
        std::fs::set_permissions(at("a"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(at("a"), at("c")).unwrap();
        std::fs::write(at("new"), b"4567").unwrap();
        std::fs::rename(at("new"), at("c")).unwrap();
        std::fs::remove_file(at("b")).unwrap();
        assert!(stamp.has_bytes_of(&file));
        std::fs::write(at("d"), b"0123").unwrap();
        let file = std::fs::File::options().read(true).write(true).open(at("d")).unwrap();
        let stamp = Stamp::of(&look_at(&file).unwrap());
        file.set_len(3).unwrap();
        assert!(!stamp.has_bytes_of(&file));
    }

    #[test]
    fn stamps_are_the_same_by_both_calls() {
        let file = tempfile::tempfile().unwrap();
        let stamp = Stamp::of(&look_at(&file).unwrap());
        assert!(stamp.is_of(&file));
        file.set_len(1).unwrap();
        assert!(!stamp.is_of(&file));
    }
}
