//! Checksums that stay with a file.
//!
//! Those of an upload are extended attributes of the file, set before it becomes visible:
//! `user.gridlane.checksum.<kind>` (`adler32`, `crc32c`, `sha256`, `md5`), whose value is the text
//! `1 HEX SIZE MTIME`: the version of this format, the checksum in lower-case hexadecimal digits, the file's
//! size in bytes, and its modification time in nanoseconds since 1970. It holds for as long as the file has that
//! size and that modification time.
//!
//! Those that are computed on demand, and those of file systems without such attributes, go to the
//! [side file](super::side_file). Setting an attribute changes the inode's change time and with it the
//! [tag](crate::Metadata::tag): a checksum that one client asks for must not look like another file to all
//! other readers.
//!
//! XRootD's `user.XrdCks.<kind>` are read and never set: a struct of 96 bytes with the algorithm's name,
//! the file's modification time in seconds, how many seconds later the checksum was there, and the value
//! (`XrdCks/XrdCksData.hh`). XRootD takes it as valid while the modification time is in that second. Here it also
//! has to have been finished in a later one: else a change in place within the same second would go unnoticed.
//!
//! Setting a modification time through the storage, or changing a file in place, makes all of them be forgotten,
//! XRootD's included. `posix/changes.rs` says how none comes to be of bytes that are changed meanwhile.
//!
//! Changes that cannot be noticed: bytes changed in place by another program that sets the modification time back to
//! what it was, to the nanosecond (to the second for XRootD's), or changed through a mapping that was written to
//! before, as long as the kernel does not move the modification time on; and, where the kernel's clock has ticks (about
//! 4 ms before Linux 6.13), within the tick of the upload's last write. Where a file system counts whole
//! seconds, what was changed less than two seconds ago is not kept.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::SystemTime;

use gridlane_core::{Checksum, ChecksumKind};
use rustix::fs::{Statx, XattrFlags, fdatasync, fgetxattr, fremovexattr, fsetxattr, fsync};
use rustix::io::Errno;

use super::metadata::{look_at, modified_of, nanoseconds_of};
use super::{Durability, Shared, changes, side_file};
use crate::error::StoreResult;
use crate::storage::Metadata;

const ATTRIBUTE: &str = "user.gridlane.checksum.";
const FORMAT: &str = "1";
const XROOTD_ATTRIBUTE: &str = "user.XrdCks.";

/// More than any kept checksum takes: a longer attribute is of another program.
const ATTRIBUTE_BYTES_MAX: usize = 256;

/// The age of a modification time without nanoseconds from which on a change gets another one.
const COARSE_SETTLED_S: u64 = 2;

/// Checksums of a file that could not become attributes of it.
pub(super) struct Beside {
    /// The state at a moment when only this process could change it.
    stat: Statx,
    checksums: Vec<Checksum>,
}

/// Keeps the checksums of a file in its attributes, while no change of it is under way; returns those that have to be
/// kept [beside](keep_beside) it.
pub(super) fn keep_in_attributes(
    shared: &Shared,
    file: &File,
    mut checksums: Vec<Checksum>,
) -> Option<Beside> {
    let stat = look_at(file).ok().filter(is_settled)?;
    checksums.retain(|checksum| {
        let name = attribute(ATTRIBUTE, checksum.kind());
        shared.options.without_attributes
            || fsetxattr(file, name, encode(checksum, &stat).as_bytes(), XattrFlags::empty()).is_err()
    });
    Some(Beside { stat, checksums })
}

/// Keeps what is left, once the file is visible: the rename may have changed what a record goes by. As far
/// as that is possible: without them they are computed again.
pub(super) fn keep_beside(shared: &Shared, beside: &Beside, stat: &Statx) {
    let was = &beside.stat;
    let is_same = stat.stx_size == was.stx_size && modified_of(stat) == modified_of(was);
    for checksum in beside.checksums.iter().filter(|_| is_same) {
        let _ = side_file::keep(shared, stat, checksum);
    }
}

/// Keeps a checksum of a file that is visible, still as `metadata` says, and not [changed](changes) in place since
/// `epoch`.
pub(super) fn keep(
    shared: &Shared,
    file: &File,
    metadata: &Metadata,
    epoch: u64,
    checksum: &Checksum,
) -> StoreResult<()> {
    changes::unless_changed(metadata.identity, epoch, || {
        let stat = look_at(file)?;
        if !is_same(&stat, metadata) || !is_settled(&stat) {
            return Ok(());
        }
        side_file::keep(shared, &stat, checksum)
    })
}

/// Forgets what was kept of a file whose bytes are about to be changed, or its modification time. In that case the
/// bytes may have been changed since, and the new time may be the one that it had before that: then it would
/// hold again.
pub(super) fn forget(shared: &Shared, file: impl AsFd) -> StoreResult<Forgotten> {
    let mut forgotten = Forgotten::default();
    if !shared.options.without_attributes {
        for (prefix, kind) in [ATTRIBUTE, XROOTD_ATTRIBUTE]
            .into_iter()
            .flat_map(|prefix| ChecksumKind::KEPT.into_iter().map(move |kind| (prefix, kind)))
        {
            let name = attribute(prefix, kind);
            // The owner of a read-only file may set its times, but not its attributes. That matters only where
            // there is something.
            if !matches!(fgetxattr(&file, &name, &mut [0; 0][..]), Err(Errno::NODATA | Errno::OPNOTSUPP)) {
                forgotten.has_attributes = true;
                match fremovexattr(&file, &name) {
                    Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                    Err(cause) => return Err(cause.into()),
                }
            }
        }
    }
    forgotten.table = side_file::forget(shared, &look_at(&file)?)?;
    Ok(forgotten)
}

/// Where something was forgotten.
#[derive(Default)]
pub(super) struct Forgotten {
    has_attributes: bool,
    table: Option<File>,
}

impl Forgotten {
    /// Lets it be forgotten after a power failure as well: other bytes with the old checksum may be on the device
    /// before the kernel brings there what is known of the file.
    pub(super) fn sync(&self, shared: &Shared, file: &File) -> StoreResult<()> {
        if shared.options.durability != Durability::None {
            if self.has_attributes {
                fsync(file)?;
            }
            if let Some(table) = &self.table {
                fdatasync(table)?;
            }
        }
        Ok(())
    }
}

/// The checksum that was kept of a file, if both still are as `metadata` says.
pub(super) fn kept(
    shared: &Shared,
    file: &File,
    metadata: &Metadata,
    kind: ChecksumKind,
) -> Option<Checksum> {
    let attributes = [(ATTRIBUTE, decode as Decode), (XROOTD_ATTRIBUTE, decode_xrootd)];
    let read = |prefix: &str| {
        let mut value = [0; ATTRIBUTE_BYTES_MAX];
        let len = fgetxattr(file, attribute(prefix, kind), &mut value[..]).ok()?;
        Some(value[..len].to_vec())
    };
    let values = attributes.map(|(prefix, decode)| {
        (if shared.options.without_attributes { None } else { read(prefix) }, decode)
    });
    // In this order: a change after the attribute was read shows in the times.
    let stat = look_at(file).ok().filter(|stat| is_same(stat, metadata))?;
    values
        .into_iter()
        .find_map(|(value, decode)| decode(&value?, kind, &stat))
        .or_else(|| side_file::kept(shared, &stat, kind))
}

type Decode = fn(&[u8], ChecksumKind, &Statx) -> Option<Checksum>;

fn attribute(prefix: &str, kind: ChecksumKind) -> String {
    format!("{prefix}{}", kind.name())
}

fn is_same(stat: &Statx, metadata: &Metadata) -> bool {
    stat.stx_size == metadata.size_bytes && modified_of(stat) == metadata.modified
}

/// True if a change from now on shows in the modification time.
fn is_settled(stat: &Statx) -> bool {
    let age = SystemTime::now().duration_since(modified_of(stat));
    stat.stx_mtime.tv_nsec != 0 || age.is_ok_and(|age| age.as_secs() >= COARSE_SETTLED_S)
}

fn encode(checksum: &Checksum, stat: &Statx) -> String {
    format!("{FORMAT} {} {} {}", checksum.hex(), stat.stx_size, nanoseconds_of(stat.stx_mtime))
}

fn decode(value: &[u8], kind: ChecksumKind, stat: &Statx) -> Option<Checksum> {
    let text = std::str::from_utf8(value).ok()?;
    let mut words = text.split(' ');
    let (format, hex, size, modified) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let is_valid = format == FORMAT
        && size.parse() == Ok(stat.stx_size)
        && modified.parse() == Ok(nanoseconds_of(stat.stx_mtime))
        && words.next().is_none()
        && hex.len() == 2 * kind.value_len();
    if is_valid { Checksum::from_hex(kind, hex) } else { None }
}

/// `XrdCksData`: numbers in network byte order.
fn decode_xrootd(value: &[u8], kind: ChecksumKind, stat: &Statx) -> Option<Checksum> {
    let value: &[u8; 96] = value.try_into().ok()?;
    let (name, rest) = value.split_first_chunk::<16>()?;
    let (modified_s, rest) = rest.split_first_chunk::<8>()?;
    let (later_s, rest) = rest.split_first_chunk::<4>()?;
    // Three reserved bytes.
    let (len, digest) = (usize::from(rest[3]), &rest[4..]);
    let name = name.split(|byte| *byte == 0).next()?;
    let is_valid = name == kind.name().as_bytes()
        && i64::from_be_bytes(*modified_s) == stat.stx_mtime.tv_sec
        && i32::from_be_bytes(*later_s) >= 1;
    if is_valid { Checksum::from_bytes(kind, digest.get(..len)?) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of `123456789`, changed at 1704067200.5, as xrootd 5.5.3 left it.
    const XROOTD: &str = "61646c65723332000000000000000000000000006592008005705b8b00000004091e01de";

    fn xrootd() -> Vec<u8> {
        let mut value: Vec<u8> = (0..XROOTD.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&XROOTD[at..at + 2], 16).unwrap())
            .collect();
        value.resize(96, 0);
        value
    }

    fn stat() -> Statx {
        let mut stat = look_at(File::open("/dev/null").unwrap()).unwrap();
        stat.stx_size = 9;
        (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) = (1_704_067_200, 500_000_000);
        stat
    }

    #[test]
    fn what_xrootd_writes_is_read() {
        let kind = ChecksumKind::Adler32;
        let decoded = decode_xrootd(&xrootd(), kind, &stat()).unwrap();
        assert_eq!(decoded.hex(), "091e01de");
        assert_eq!(decode_xrootd(&xrootd(), ChecksumKind::Crc32c, &stat()), None);
        let mut later = stat();
        later.stx_mtime.tv_sec += 1;
        assert_eq!(decode_xrootd(&xrootd(), kind, &later), None);
        // Finished within the second of the last change; or before it, by a clock that was set back.
        for later_s in [0_i32, -1] {
            let mut value = xrootd();
            value[24..28].copy_from_slice(&later_s.to_be_bytes());
            assert_eq!(decode_xrootd(&value, kind, &stat()), None);
        }
        let mut long = xrootd();
        long[31] = 200;
        assert_eq!(decode_xrootd(&long, kind, &stat()), None);
        assert_eq!(decode_xrootd(&xrootd()[..95], kind, &stat()), None);
    }

    #[test]
    fn ours_holds_for_one_size_and_one_moment() {
        let checksum = Checksum::from_hex(ChecksumKind::Md5, &"0a".repeat(16)).unwrap();
        let text = encode(&checksum, &stat());
        assert_eq!(text, format!("1 {} 9 1704067200500000000", "0a".repeat(16)));
        assert_eq!(decode(text.as_bytes(), ChecksumKind::Md5, &stat()), Some(checksum));
        assert_eq!(decode(text.as_bytes(), ChecksumKind::Sha256, &stat()), None);
        let (mut longer, mut later) = (stat(), stat());
        longer.stx_size += 1;
        later.stx_mtime.tv_nsec += 1;
        assert_eq!(decode(text.as_bytes(), ChecksumKind::Md5, &longer), None);
        assert_eq!(decode(text.as_bytes(), ChecksumKind::Md5, &later), None);
        for other in [text.replace("1 0a", "2 0a"), format!("{text} "), format!("{text} 1"), String::new()] {
            assert_eq!(decode(other.as_bytes(), ChecksumKind::Md5, &stat()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn whatever_somebody_wrote_there_is_no_danger(value in prop::collection::vec(any::<u8>(), 0..120)) {
            for kind in ChecksumKind::ALL {
                decode(&value, kind, &stat());
                decode_xrootd(&value, kind, &stat());
            }
        }
    }
}
