//! Formats of research data: what their first and last bytes say about the reads that will follow.
//!
//! Functions over bytes, none of which is required or believed: their ranges are for [`Hint::Soon`](crate::Hint::Soon), within
//! the budget, and where a file is none of these, or broken, there are none. Zarr has no part here: its consolidated metadata is
//! an object of its own, which its readers fetch whole.

use gridlane_core::ByteRange;

/// Bytes that a range of a hint has at most: what is larger is no description of a file.
const RANGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes at an address in HDF5 that are worth bringing: an object header with its first messages.
const HDF5_BLOCK_BYTES: u64 = 4096;

/// A format that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// ROOT's `TFile`, with trees or RNTuples.
    Root,
    /// Apache Parquet.
    Parquet,
    /// HDF5, and with it NetCDF-4.
    Hdf5,
    /// MiniSEED, version 2.
    MiniSeed,
}

/// The format of a file that begins with these bytes.
pub fn recognised(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"root") {
        return Some(Format::Root);
    }
    if head.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if head.starts_with(b"\x89HDF\r\n\x1a\n") {
        return Some(Format::Hdf5);
    }
    miniseed_record_bytes(head).map(|_| Format::MiniSeed)
}

/// The ranges that a reader of the format will want before anything else. `head` are the first bytes of the file, as many as
/// there are; `tail` the last.
pub fn wanted(head: &[u8], tail: &[u8], size_bytes: u64) -> Vec<ByteRange> {
    let found = match recognised(head) {
        Some(Format::Root) => root(head),
        Some(Format::Parquet) => parquet(tail, size_bytes),
        Some(Format::Hdf5) => hdf5(head),
        Some(Format::MiniSeed) | None => None,
    };
    let inside =
        |range: &ByteRange| !range.is_empty() && range.end() <= size_bytes && range.len() <= RANGE_BYTES_MAX;
    found.unwrap_or_default().into_iter().filter(inside).collect()
}

/// Streamer information, list of free segments and list of keys (ROOT, io/doc/TFile/header.md and tdirectory.md).
fn root(head: &[u8]) -> Option<Vec<ByteRange>> {
    let mut fields = Fields { bytes: head, at: 4 };
    let version = fields.u32()?;
    let begin = fields.u32()?;
    let is_large = version >= 1_000_000;
    let _end = fields.place(is_large)?;
    let free_at = fields.place(is_large)?;
    let free_bytes = fields.u32()?;
    let _free_count = fields.u32()?;
    let name_bytes = fields.u32()?;
    let _units = fields.take(1)?;
    let _compression = fields.u32()?;
    let info_at = fields.place(is_large)?;
    let info_bytes = fields.u32()?;
    let mut ranges =
        vec![ByteRange::at(info_at, u64::from(info_bytes)), ByteRange::at(free_at, u64::from(free_bytes))];
    let mut directory = Fields { bytes: head, at: usize::try_from(begin.checked_add(name_bytes)?).ok()? };
    if let Some(keys) = root_keys(&mut directory) {
        ranges.push(keys);
    }
    Some(ranges)
}

/// The list of keys of a directory.
fn root_keys(directory: &mut Fields<'_>) -> Option<ByteRange> {
    let is_large = directory.u16()? > 1000;
    let _created = directory.u32()?;
    let _modified = directory.u32()?;
    let keys_bytes = directory.u32()?;
    let _name_bytes = directory.u32()?;
    let _here = directory.place(is_large)?;
    let _parent = directory.place(is_large)?;
    let keys_at = directory.place(is_large)?;
    Some(ByteRange::at(keys_at, u64::from(keys_bytes)))
}

/// The footer (Parquet, README, "File format": its length, then `PAR1`).
fn parquet(tail: &[u8], size_bytes: u64) -> Option<Vec<ByteRange>> {
    let end = tail.strip_suffix(b"PAR1")?;
    let length: [u8; 4] = end.get(end.len().checked_sub(4)?..)?.try_into().ok()?;
    let footer_end = size_bytes.checked_sub(8)?;
    let start = footer_end.checked_sub(u64::from(u32::from_le_bytes(length)))?;
    Some(vec![ByteRange::new(start, size_bytes)])
}

/// The object header of the root group (HDF5 file format specification, II.A: superblock).
fn hdf5(head: &[u8]) -> Option<Vec<ByteRange>> {
    let offsets_are_8 = |at: usize| (head.get(at) == Some(&8)).then_some(());
    let place = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let root_at = match head.get(8)? {
        0 | 1 => {
            offsets_are_8(13)?;
            // Behind base, free space, end and driver addresses: the root's entry, link name first.
            let entry = if head.get(8)? == &0 { 24 } else { 28 } + 4 * 8;
            place(entry + 8)?
        }
        2 | 3 => {
            offsets_are_8(9)?;
            place(12 + 3 * 8)?
        }
        _ => return None,
    };
    Some(vec![ByteRange::at(root_at, HDF5_BLOCK_BYTES)])
}

/// The length of a record, in bytes, of a MiniSEED file that begins with these (SEED 2.4, chapter 8, and blockette 1000). All
/// records of a file have it, so that a window of time is found by bisection.
pub fn miniseed_record_bytes(head: &[u8]) -> Option<u64> {
    let number = head.get(..6)?;
    let is_number = number.iter().all(|byte| byte.is_ascii_digit() || *byte == b' ');
    if !is_number || !matches!(head.get(6)?, b'D' | b'R' | b'Q' | b'M') || !matches!(head.get(7)?, b' ' | 0) {
        return None;
    }
    let mut fields = Fields { bytes: head, at: 46 };
    let mut at = usize::from(fields.u16()?);
    // Blockettes are few, and follow each other.
    for _ in 0..8 {
        let mut blockette = Fields { bytes: head, at };
        let (kind, next) = (blockette.u16()?, usize::from(blockette.u16()?));
        if kind == 1000 {
            let exponent = *head.get(at + 6)?;
            return (7..=20).contains(&exponent).then(|| 1 << exponent);
        }
        if next <= at {
            return None;
        }
        at = next;
    }
    None
}

/// Big-endian numbers, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let found = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(found)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn place(&mut self, is_large: bool) -> Option<u64> {
        if is_large {
            return Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?));
        }
        self.u32().map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn root_head() -> Vec<u8> {
        let mut head = b"root".to_vec();
        for field in [63_206_u32, 100, 212_335_314, 212_335_254, 60, 1, 58] {
            head.extend(field.to_be_bytes());
        }
        head.push(4);
        for field in [101_u32, 2_909_515, 7207] {
            head.extend(field.to_be_bytes());
        }
        head.resize(158, 0);
        head.extend(5_u16.to_be_bytes());
        for field in [0_u32, 0, 4849, 58, 100, 0, 2_916_722] {
            head.extend(field.to_be_bytes());
        }
        head
    }

    /// The places that the recorded traces of ROOT read next.
    #[test]
    fn a_root_file_tells_where_its_keys_are() {
        let found = wanted(&root_head(), &[], 212_335_314);
        let expected = [(2_909_515, 7207), (212_335_254, 60), (2_916_722, 4849)];
        assert_eq!(found, expected.map(|(start, len)| ByteRange::at(start, len)));
        assert_eq!(wanted(&root_head(), &[], 1_000_000), [], "none of it is in a file that was cut");
    }

    #[test]
    fn a_parquet_file_tells_where_its_footer_is() {
        let tail = [&[0; 100][..], &5200_u32.to_le_bytes(), b"PAR1"].concat();
        assert_eq!(wanted(b"PAR1....", &tail, 13_493_022), [ByteRange::new(13_493_022 - 5208, 13_493_022)]);
        assert_eq!(wanted(b"PAR1....", &tail, 1000), []);
    }

    #[test]
    fn an_hdf5_file_tells_where_its_root_is() {
        let mut head = b"\x89HDF\r\n\x1a\n".to_vec();
        head.extend([0, 0, 0, 0, 0, 8, 8, 0]);
        head.resize(64, 0);
        head.extend(96_u64.to_le_bytes());
        assert_eq!(wanted(&head, &[], 1_713_012), [ByteRange::at(96, HDF5_BLOCK_BYTES)]);
        let mut head = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
        head.resize(36, 0);
        head.extend(48_u64.to_le_bytes());
        assert_eq!(wanted(&head, &[], 1_713_012), [ByteRange::at(48, HDF5_BLOCK_BYTES)]);
    }

    #[test]
    fn a_miniseed_file_tells_the_length_of_its_records() {
        let mut head = b"000001D BALST".to_vec();
        head.resize(46, 0);
        head.extend(48_u16.to_be_bytes());
        head.extend([0x03, 0xE8, 0, 0, 11, 1, 9, 0]);
        assert_eq!((miniseed_record_bytes(&head), recognised(&head)), (Some(512), Some(Format::MiniSeed)));
        assert_eq!(wanted(&head, &[], 8192), []);
    }

    proptest! {
        /// No bytes make these fail, and no range is outside of the file.
        #[test]
        fn any_bytes_are_borne(
            magic in prop::sample::select(vec![&b"root"[..], b"PAR1", b"\x89HDF\r\n\x1a\n", b"000001D ", b""]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
            tail in prop::collection::vec(any::<u8>(), 0..20),
            size_bytes in any::<u64>(),
        ) {
            let head = [magic, &rest].concat();
            for tail in [tail.clone(), [&tail[..], b"PAR1"].concat()] {
                prop_assert!(wanted(&head, &tail, size_bytes).iter().all(|range| range.end() <= size_bytes));
            }
            miniseed_record_bytes(&head);
        }
    }
}
