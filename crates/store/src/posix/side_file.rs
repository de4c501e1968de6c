//! Checksums beside the files that they are of: one table of fixed size, `.gridlane/checksums` in the export.
//!
//! For what cannot or must not be an extended attribute (`posix/checksums.rs`). A record is found by the file's
//! device and inode and the kind of checksum, wherever the file was moved, and holds while the file was made, and
//! last changed, when the record says, and has its size. The time of making tells a file from an earlier one whose
//! inode it got; where a file system does not know it (NFS, many FUSE ones), the time of the last change of anything
//! stands for it, and a move makes the record be forgotten.
//!
//! The table is a cache. It has [`SIDE_CHECKSUMS_MAX`](limits::SIDE_CHECKSUMS_MAX) slots of 128 bytes, four to a
//! bucket; a bucket that is full loses its oldest record. The file is sparse: what was never written takes no
//! space. A slot is written by one call and ends with its own CRC, so that one half-written, by a crash or by two
//! at once, is none. Records of files that are gone are never found again and give way to others; a table that
//! was not written to for [`SIDE_CHECKSUMS_AGE_MAX`](limits::SIDE_CHECKSUMS_AGE_MAX) is removed. Everything in
//! it may be lost at any time: then checksums are computed again.
//!
//! ```text
//! 0 "GLC1"   4 kind (1 adler32, 2 crc32c, 3 md5, 4 sha256)   5 length of the value   6 zero (2)
//! 8 device   16 inode   24 size in bytes   32 modified: s   40 made: s   48 modified: ns (4)   52 made: ns (4)
//! 56 kept: s since 1970   64 value (32)   96 zero (28)   124 CRC-32C of all before (4)      little-endian
//! ```

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Checksum, ChecksumKind, limits};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, unlinkat};
use rustix::io::Errno;

use super::metadata::{identity_of, look_in, modified_of};
use super::{Shared, hidden};
use crate::error::StoreResult;

const NAME: &str = "checksums";
const MAGIC: [u8; 4] = *b"GLC1";
const SLOT_BYTES: usize = 128;
const BUCKET_SLOTS: usize = 4;
const BUCKET_BYTES: usize = SLOT_BYTES * BUCKET_SLOTS;
const BUCKETS: u64 = (limits::SIDE_CHECKSUMS_MAX / BUCKET_SLOTS) as u64;

/// The part in front of the record's own time: the file, its state, and the kind of checksum.
const KEY: std::ops::Range<usize> = 0..56;
/// The part of it that finds the bucket, and the slot that a newer record of the same replaces.
const KIND: usize = 4;
const IDENTITY: std::ops::Range<usize> = 8..24;
const KEPT: std::ops::Range<usize> = 56..64;
const VALUE: usize = 64;
const CRC: usize = 124;

type Slot = [u8; SLOT_BYTES];

/// Keeps a checksum of the file that `stat` is of.
pub(super) fn keep(shared: &Shared, stat: &Statx, checksum: &Checksum) -> StoreResult<()> {
    let Some(mut slot) = key_of(stat, checksum.kind()) else { return Ok(()) };
    let table = open(hidden::at_root(shared)?, OFlags::RDWR | OFlags::CREATE)?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    slot[KEPT].copy_from_slice(&now_s.to_le_bytes());
    slot[VALUE..VALUE + checksum.bytes().len()].copy_from_slice(checksum.bytes());
    let crc = crc32c::crc32c(&slot[..CRC]);
    slot[CRC..].copy_from_slice(&crc.to_le_bytes());
    let bucket_at = bucket_of(&slot);
    let bucket = read_bucket(&table, bucket_at);
    let replaces = |found: &Slot| found[KIND] == slot[KIND] && found[IDENTITY] == slot[IDENTITY];
    let age_rank = |found: &Option<Slot>| match found {
        Some(found) if replaces(found) => (0, 0),
        None => (1, 0),
        Some(found) => (2, kept_s(found)),
    };
    let chosen = (0..BUCKET_SLOTS).min_by_key(|index| age_rank(&bucket[*index])).unwrap_or(0);
    Ok(table.write_all_at(&slot, bucket_at + (chosen * SLOT_BYTES) as u64)?)
}

/// Forgets what is known of the file, in whatever state; returns the table if there was something.
pub(super) fn forget(shared: &Shared, stat: &Statx) -> StoreResult<Option<File>> {
    let Some(hidden) = hidden::at_root_if_there(shared) else { return Ok(None) };
    let table = match open(hidden, OFlags::RDWR) {
        Ok(table) => table,
        Err(Errno::NOENT) => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    let mut found_any = false;
    for kind in ChecksumKind::KEPT {
        let Some(key) = key_of(stat, kind) else { continue };
        let bucket_at = bucket_of(&key);
        for (index, found) in read_bucket(&table, bucket_at).iter().enumerate() {
            if found.is_some_and(|found| found[KIND] == key[KIND] && found[IDENTITY] == key[IDENTITY]) {
                table.write_all_at(&[0; SLOT_BYTES], bucket_at + (index * SLOT_BYTES) as u64)?;
                found_any = true;
            }
        }
    }
    Ok(found_any.then_some(table))
}

/// The checksum that was kept of the file, in the state that `stat` tells of.
pub(super) fn kept(shared: &Shared, stat: &Statx, kind: ChecksumKind) -> Option<Checksum> {
    let table = open(hidden::at_root_if_there(shared)?, OFlags::RDONLY).ok()?;
    let key = key_of(stat, kind)?;
    let bucket = read_bucket(&table, bucket_of(&key));
    let found = bucket.iter().flatten().find(|found| found[KEY] == key[KEY])?;
    Checksum::from_bytes(kind, &found[VALUE..VALUE + kind.value_len()])
}

/// Removes a table that was not written to for long; returns how many that are.
pub(super) fn remove_unused(hidden: BorrowedFd<'_>) -> usize {
    let is_unused = look_in(hidden, NAME.as_ref()).is_ok_and(|stat| {
        let age = SystemTime::now().duration_since(modified_of(&stat));
        age.is_ok_and(|age| age >= limits::SIDE_CHECKSUMS_AGE_MAX)
    });
    usize::from(is_unused && unlinkat(hidden, NAME, AtFlags::empty()).is_ok())
}

fn open(hidden: std::os::fd::OwnedFd, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(hidden, NAME, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// A slot with its key and nothing else; `None` for a kind that is not kept here.
fn key_of(stat: &Statx, kind: ChecksumKind) -> Option<Slot> {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(&MAGIC);
    slot[KIND] = match kind {
        ChecksumKind::Adler32 => 1,
        ChecksumKind::Crc32c => 2,
        ChecksumKind::Md5 => 3,
        ChecksumKind::Sha256 => 4,
        ChecksumKind::Sha1 => 5,
        ChecksumKind::PosixCrc => 6,
        // Longer than a slot has room for; no client is offered it.
        ChecksumKind::Sha512 => return None,
    };
    // 32 at most.
    slot[5] = kind.value_len() as u8;
    let identity = identity_of(stat);
    // Where the time when the file was made is unknown, that of its last change of any kind stands in: without it a
    // file of the same size and time, as of an archive that was unpacked, would do if it got the inode.
    let has_made = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let made = if has_made { stat.stx_btime } else { stat.stx_ctime };
    slot[8..16].copy_from_slice(&identity.device.to_le_bytes());
    slot[16..24].copy_from_slice(&identity.number.to_le_bytes());
    slot[24..32].copy_from_slice(&stat.stx_size.to_le_bytes());
    slot[32..40].copy_from_slice(&stat.stx_mtime.tv_sec.to_le_bytes());
    slot[40..48].copy_from_slice(&made.tv_sec.to_le_bytes());
    slot[48..52].copy_from_slice(&stat.stx_mtime.tv_nsec.to_le_bytes());
    slot[52..56].copy_from_slice(&made.tv_nsec.to_le_bytes());
    Some(slot)
}

/// Where in the table the bucket of a slot's file and kind begins.
fn bucket_of(slot: &Slot) -> u64 {
    let hash = crc32c::crc32c_append(crc32c::crc32c(&slot[IDENTITY]), &slot[KIND..=KIND]);
    u64::from(hash) % BUCKETS * BUCKET_BYTES as u64
}

/// The slots that hold a record; behind the end of the file there is none.
fn read_bucket(table: &File, at: u64) -> [Option<Slot>; BUCKET_SLOTS] {
    let mut bytes = [0; BUCKET_BYTES];
    let mut len = 0;
    while let Ok(count @ 1..) = table.read_at(&mut bytes[len..], at + len as u64) {
        len += count;
    }
    let mut slots = [None; BUCKET_SLOTS];
    for (slot, found) in slots.iter_mut().zip(bytes[..len].as_chunks::<SLOT_BYTES>().0) {
        let crc = crc32c::crc32c(&found[..CRC]).to_le_bytes();
        *slot = (found[..4] == MAGIC && found[CRC..] == crc).then_some(*found);
    }
    slots
}

fn kept_s(slot: &Slot) -> u64 {
    slot[KEPT].try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::{PosixStorage, metadata::look_at};

    struct Bench {
        directory: tempfile::TempDir,
        storage: PosixStorage,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let storage = PosixStorage::open(directory.path(), crate::Durability::None).unwrap();
            Bench { directory, storage }
        }

        fn stat(&self, inode: u64) -> Statx {
            let mut stat = look_at(&self.storage.shared.root).unwrap();
            (stat.stx_ino, stat.stx_size) = (inode, 9);
            stat
        }

        fn keep(&self, stat: &Statx, value: u32) {
            keep(&self.storage.shared, stat, &Checksum::adler32(value)).unwrap();
        }

        fn kept(&self, stat: &Statx) -> Option<Checksum> {
            kept(&self.storage.shared, stat, ChecksumKind::Adler32)
        }
    }

    #[test]
    fn a_record_is_of_one_file_in_one_state() {
        let bench = Bench::new();
        let stat = bench.stat(7);
        assert_eq!(bench.kept(&stat), None);
        assert!(!bench.directory.path().join(".gridlane").exists(), "asking makes nothing");
        bench.keep(&stat, 1);
        bench.keep(&stat, 2);
        assert_eq!(bench.kept(&stat), Some(Checksum::adler32(2)));
        assert_eq!(kept(&bench.storage.shared, &stat, ChecksumKind::Crc32c), None);
        let changes: [fn(&mut Statx); 6] = [
            |stat| stat.stx_ino += 1,
            |stat| stat.stx_dev_minor += 1,
            |stat| stat.stx_size += 1,
            |stat| stat.stx_mtime.tv_nsec ^= 1,
            |stat| stat.stx_mtime.tv_sec += 1,
            // The next file that gets the inode.
            |stat| stat.stx_btime.tv_nsec ^= 1,
        ];
        for change in changes {
            let mut other = stat;
            change(&mut other);
            assert_eq!(bench.kept(&other), None);
        }
        // The same where the time when it was made is unknown.
        let mut unknown = stat;
        unknown.stx_mask &= !StatxFlags::BTIME.bits();
        bench.keep(&unknown, 3);
        assert_eq!(bench.kept(&unknown), Some(Checksum::adler32(3)));
        unknown.stx_ctime.tv_nsec ^= 1;
        assert_eq!(bench.kept(&unknown), None);
        let digest = Checksum::from_bytes(ChecksumKind::Sha256, &[7; 32]).unwrap();
        keep(&bench.storage.shared, &stat, &digest).unwrap();
        assert_eq!(kept(&bench.storage.shared, &stat, ChecksumKind::Sha256), Some(digest));
    }

    #[test]
    fn a_damaged_record_is_none_and_is_overwritten() {
        let bench = Bench::new();
        let stat = bench.stat(7);
        bench.keep(&stat, 1);
        let table = bench.directory.path().join(".gridlane/checksums");
        let slot_at = bucket_of(&key_of(&stat, ChecksumKind::Adler32).unwrap());
        let file = File::options().write(true).open(&table).unwrap();
        file.write_all_at(&[0xff], slot_at + VALUE as u64).unwrap();
        assert_eq!(bench.kept(&stat), None);
        bench.keep(&stat, 3);
        assert_eq!(bench.kept(&stat), Some(Checksum::adler32(3)));
        file.set_len(slot_at + 60).unwrap();
        assert_eq!(bench.kept(&stat), None);
    }

    #[test]
    fn it_never_becomes_larger() {
        let bench = Bench::new();
        let bucket = |inode| bucket_of(&key_of(&bench.stat(inode), ChecksumKind::Adler32).unwrap());
        let shared = bucket(0);
        let together: Vec<u64> =
            (0..).filter(|inode| bucket(*inode) == shared).take(BUCKET_SLOTS + 2).collect();
        for inode in &together {
            bench.keep(&bench.stat(*inode), 5);
        }
        let found = together.iter().filter(|inode| bench.kept(&bench.stat(**inode)).is_some()).count();
        assert_eq!(found, BUCKET_SLOTS);
        let last = together.last().copied().unwrap();
        assert!(bench.kept(&bench.stat(last)).is_some(), "the newest is there");
        let table = bench.directory.path().join(".gridlane/checksums");
        let size = || std::fs::metadata(&table).unwrap().len();
        assert!(size() <= (limits::SIDE_CHECKSUMS_MAX * SLOT_BYTES) as u64);
        let hidden = File::open(bench.directory.path().join(".gridlane")).unwrap();
        use std::os::fd::AsFd;
        assert_eq!(remove_unused(hidden.as_fd()), 0);
        let old = SystemTime::now() - limits::SIDE_CHECKSUMS_AGE_MAX;
        File::options().write(true).open(&table).unwrap().set_modified(old).unwrap();
        assert_eq!(remove_unused(hidden.as_fd()), 1);
        assert!(!table.exists());
    }
}
