//! What is read of files: the first and last bytes of formats, and the index of the disk cache.

use gridlane_core::limits::{READ_FORMAT_BYTES, SPARSE_BLOCK_BYTES, SPARSE_EXTENT_BYTES_MAX};
use gridlane_core::{ByteRange, RangeSet, Url};
use gridlane_read::format::{Format, miniseed_record_bytes, outline, recognised};
use gridlane_store::FileKey;
use gridlane_store::sparse::format::{FileId, Record, index_head, read_index_head};
use gridlane_store::sparse::{Extents, Loaded};

use crate::random::Random;

/// Stands between the head and the tail of a file.
const BETWEEN: &[u8] = b"|tail|";
/// Pieces of a file's metadata that it may name.
const PIECES_MAX: usize = 128;

/// Head and tail of a file of another server.
pub(crate) fn format_hints(data: &[u8]) {
    let at = data.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (head, tail) = match at {
        Some(at) => (&data[..at], &data[at + BETWEEN.len()..]),
        None => (data, &data[..0]),
    };
    let mut random = Random::of(data);
    let format = recognised(head);
    if let Some(bytes) = miniseed_record_bytes(head) {
        assert!(bytes.is_power_of_two() && (128..=1 << 20).contains(&bytes), "{bytes}");
        assert!(format.is_some());
    }
    let sizes = [data.len() as u64, 212_335_314, 13_493_022, 1 << 40, u64::MAX, random.bits(), 0, 7];
    for size_bytes in sizes {
        let part = |range: ByteRange| {
            let mut found = vec![0; usize::try_from(range.len()).ok()?];
            for (at, bytes) in [(0, head), (size_bytes.saturating_sub(tail.len() as u64), tail)] {
                let common = ByteRange::at(at, bytes.len() as u64).intersection(range);
                if common.is_empty() {
                    continue;
                }
                let (from, to) =
                    (common.start().checked_sub(at)?, common.start().checked_sub(range.start())?);
                let len = common.len() as usize;
                found[to as usize..to as usize + len]
                    .copy_from_slice(&bytes[from as usize..from as usize + len]);
            }
            Some(found)
        };
        let found = outline(size_bytes, part);
        assert!(found.wanted.len() <= PIECES_MAX && found.lacks.is_none(), "{found:?}");
        assert!(found.format != Some(Format::MiniSeed) || found.wanted.is_empty());
        for range in &found.wanted {
            assert!(!range.is_empty() && range.end() <= size_bytes, "{range:?}");
            assert!(range.len() <= READ_FORMAT_BYTES, "{range:?}");
        }
        // With fewer bytes at hand it knows less, nothing else, and says what it lacks.
        let known_bytes = random.below(data.len() + 1) as u64;
        let less = outline(size_bytes, |range| part(range).filter(|_| range.end() <= known_bytes));
        assert!(less.lacks.is_some() || less == found, "{less:?} {found:?}");
        if found.wanted.len() < PIECES_MAX {
            assert!(less.wanted.iter().all(|range| found.wanted.contains(range)), "{less:?} {found:?}");
        }
    }
}

/// Bytes of the remote file that the indices are about.
const FILE_BYTES: u64 = 3 << 20;

fn key() -> Option<FileKey> {
    let url = Url::parse_absolute("https://h.example/f?a=1").ok()?;
    FileKey::new("alice", &url, FILE_BYTES, "\"v1\"").ok()
}

fn load(index: &[u8], key: &FileKey) -> Option<Loaded> {
    // A slice does not fail.
    Extents::load(index, key).ok().flatten()
}

/// A reader that gives as much at a time as it likes.
struct InPieces<'a>(Vec<&'a [u8]>);

impl std::io::Read for InPieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(first) = self.0.first_mut() else { return Ok(0) };
        let len = first.len().min(buffer.len());
        let (given, rest) = first.split_at(len);
        buffer[..len].copy_from_slice(given);
        *first = rest;
        if rest.is_empty() {
            self.0.remove(0);
        }
        Ok(len)
    }
}

/// An index: the bytes as they are; and an index whose records the bytes describe, with good checksums as far as the bytes leave
/// them alone.
pub(crate) fn sparse_index(data: &[u8]) {
    let key = key().expect("the key is a good one");
    if let Some((found, _, head_bytes)) = read_index_head(data) {
        let loaded = load(data, &found).expect("its head was read");
        assert_eq!(loaded.head_bytes, head_bytes as u64);
        judge(data, &found, &loaded);
    }
    let id = FileId(std::array::from_fn(|at| data.get(at).copied().unwrap_or(7)));
    let head = index_head(&key, id);
    let (index, records, good_bytes) = script(data, id, head.clone());
    let loaded = load(&index, &key).expect("its head is good");
    judge(&index, &key, &loaded);
    assert_eq!((loaded.id, loaded.head_bytes), (id, head.len() as u64));
    assert_eq!(
        loaded.good_bytes, good_bytes as u64,
        "all records up to the first bad one count, and no others"
    );
    let pieces = InPieces(Random::of(data).pieces(&index));
    let again = Extents::load(pieces, &key).ok().flatten().expect("its head is good");
    assert!(
        again.extents == loaded.extents && again.good_bytes == loaded.good_bytes,
        "it depends on the pieces"
    );
    compare(&records, &loaded.extents);
    // A head that is damaged, or another version's, is none.
    let mut damaged = index.clone();
    let bit = Random::of(data).below(8 * head.len());
    damaged[bit / 8] ^= 1 << (bit % 8);
    assert!(load(&damaged, &key).is_none());
}

/// What holds of every index.
fn judge(index: &[u8], key: &FileKey, loaded: &Loaded) {
    assert!(loaded.head_bytes <= loaded.good_bytes && loaded.good_bytes <= index.len() as u64);
    let again = load(&index[..loaded.good_bytes as usize], key).expect("its head is good");
    assert!(again.extents == loaded.extents && again.good_bytes == loaded.good_bytes);
    let present = loaded.extents.present();
    assert_eq!(present.len(), loaded.extents.bytes(), "extents overlap");
    let all = ByteRange::new(0, key.size_bytes());
    assert!(present.iter().all(|range| all.contains(range)));
    let covered: RangeSet = loaded.extents.covering(all).iter().map(|record| record.extent).collect();
    assert_eq!(covered, present);
}

/// Records by the bytes' word; those in front of the first that is damaged; and the length of the index up to there.
fn script(data: &[u8], id: FileId, head: Vec<u8>) -> (Vec<u8>, Vec<Record>, usize) {
    let (mut index, mut records, mut good_bytes) = (head, Vec::new(), None);
    for (number, step) in data.chunks(8).take(200).enumerate() {
        let byte = |at: usize| u64::from(step.get(at).copied().unwrap_or(0));
        let offset = (byte(1) << 16 | byte(2) << 8 | byte(3)) % FILE_BYTES;
        let len = match byte(4) % 4 {
            0 => byte(5) + 1,
            1 => 1000,
            2 => (byte(5) << 8 | byte(6)) + 1,
            _ => (byte(5) << 16 | byte(6) << 8 | byte(7)) % SPARSE_EXTENT_BYTES_MAX + 1,
        };
        let extent = ByteRange::at(offset, len.min(FILE_BYTES - offset));
        let blocks = (extent.end() - 1) / SPARSE_BLOCK_BYTES - extent.start() / SPARSE_BLOCK_BYTES + 1;
        let data_at = 32 + (byte(7) << 24);
        let record = Record { extent, data_at, checksums: vec![number as u32; blocks as usize] };
        let begin = index.len();
        record.encode(id, begin as u64, &mut index);
        assert_eq!(
            Record::decode(&index[begin..], id, begin as u64, FILE_BYTES),
            Some((record.clone(), index.len() - begin))
        );
        // One step in sixteen leaves no good record.
        let is_good = match byte(0) {
            0xf0..0xf8 => {
                let at = begin + (byte(6) << 8 | byte(7)) as usize % (index.len() - begin);
                index[at] ^= 1 << (byte(5) % 8);
                false
            }
            0xf8..0xfc => {
                // At least a byte of it is left: nothing at all would be no damage. And the next record must not begin with the
                // very byte that is cut off.
                let left = 1 + (byte(6) << 8 | byte(7)) as usize % (index.len() - begin - 1);
                let cut = index[begin + left];
                index.truncate(begin + left);
                index.push(!cut);
                false
            }
            0xfc.. => {
                index.truncate(begin);
                index.extend_from_slice(step);
                false
            }
            _ => true,
        };
        if !is_good {
            good_bytes = good_bytes.or(Some(begin));
        } else if good_bytes.is_none() {
            records.push(record);
        }
    }
    let good_bytes = good_bytes.unwrap_or(index.len());
    (index, records, good_bytes)
}

/// Of every block of the file: the last record with a byte of it takes those of all others out, as far as they have the same bytes.
fn compare(records: &[Record], extents: &Extents) {
    let mut model: Vec<(ByteRange, u64, u32)> = Vec::new();
    for record in records {
        let number = record.checksums.first().copied().unwrap_or_default();
        model.retain(|(part, ..)| part.intersection(record.extent).is_empty());
        let mut rest = record.extent;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at((rest.start() / SPARSE_BLOCK_BYTES + 1) * SPARSE_BLOCK_BYTES);
            model.push((part, record.data_at + (part.start() - record.extent.start()), number));
            rest = behind;
        }
    }
    model.sort();
    let mut found = Vec::new();
    for record in extents.covering(ByteRange::new(0, FILE_BYTES)) {
        let mut rest = record.extent;
        for checksum in &record.checksums {
            let (part, behind) = rest.split_at((rest.start() / SPARSE_BLOCK_BYTES + 1) * SPARSE_BLOCK_BYTES);
            found.push((part, record.data_at + (part.start() - record.extent.start()), *checksum));
            rest = behind;
        }
        assert!(rest.is_empty());
    }
    assert!(model == found, "{} blocks, not {}", found.len(), model.len());
}
