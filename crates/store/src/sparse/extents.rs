//! The index of a file in memory: which bytes are there, where in the data file, with which checksums.

use std::collections::BTreeMap;
use std::io::{self, Read};

use gridlane_core::limits::{SPARSE_BLOCK_BYTES, SPARSE_EXTENT_BYTES_MAX, SPARSE_EXTENTS_MAX};
use gridlane_core::{ByteRange, RangeSet};

use super::format::{FileId, INDEX_HEAD_BYTES_MAX, RECORD_BYTES_MAX, Record, count_blocks, record_bytes};
use super::format::{blocks_of, read_index_head};
use super::key::FileKey;

/// Bytes of an index that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// Extents by their offset; none overlaps another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    extents: BTreeMap<u64, Extent>,
    /// Checksums of all blocks: those of an extent follow each other.
    checksums: Vec<u32>,
    /// Bytes of all extents.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    data_at: u64,
    len: u32,
    /// Of the first block.
    checksum_at: u32,
}

/// An index as it was found.
#[derive(Debug)]
pub struct Loaded {
    /// The random number of the data file that it is about.
    pub id: FileId,
    /// The bytes that are there, by its word.
    pub extents: Extents,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the head and of all records that count.
    pub good_bytes: u64,
}

impl Extents {
    /// Reads an index about the version `key`. What is behind the first record that does not count is ignored. `None` if not
    /// even the head is right.
    ///
    /// # Errors
    ///
    /// Fails when `index` does.
    pub fn load(mut index: impl Read, key: &FileKey) -> io::Result<Option<Loaded>> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut is_ended = !fill(&mut index, &mut buffer, INDEX_HEAD_BYTES_MAX)?;
        let Some((found, id, head_bytes)) = read_index_head(&buffer) else { return Ok(None) };
        if found != *key {
            return Ok(None);
        }
        let (mut extents, mut at, mut good_bytes) = (Extents::default(), head_bytes, head_bytes as u64);
        loop {
            if buffer.len() - at < RECORD_BYTES_MAX && !is_ended {
                buffer.drain(..at);
                at = 0;
                is_ended = !fill(&mut index, &mut buffer, READ_BYTES)?;
            }
            let decoded = Record::decode(&buffer[at..], id, good_bytes, key.size_bytes);
            let Some((record, len)) = decoded.filter(|_| extents.has_room()) else { break };
            extents.insert(record.extent, record.data_at, &record.checksums);
            at += len;
            good_bytes += len as u64;
        }
        Ok(Some(Loaded { id, extents, head_bytes: head_bytes as u64, good_bytes }))
    }

    /// True if one more extent may be put in.
    pub(super) fn has_room(&self) -> bool {
        let checksums_max = u32::MAX as usize - RECORD_BYTES_MAX;
        self.extents.len() < SPARSE_EXTENTS_MAX && self.checksums.len() < checksums_max
    }

    /// Bytes of all extents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts an extent in. Blocks of others that have a byte of it go: only those that turned out to be damaged are written again.
    pub(super) fn insert(&mut self, extent: ByteRange, data_at: u64, checksums: &[u32]) {
        self.remove_blocks(extent);
        let (Ok(len), Ok(checksum_at)) = (u32::try_from(extent.len()), u32::try_from(self.checksums.len()))
        else {
            return;
        };
        if len == 0 || checksums.len() != count_blocks(extent) {
            return;
        }
        self.checksums.extend_from_slice(checksums);
        self.extents.insert(extent.start(), Extent { data_at, len, checksum_at });
        self.bytes += extent.len();
    }

    /// Takes out every block that has a byte of `range`.
    pub(super) fn remove_blocks(&mut self, range: ByteRange) {
        for old in self.overlapping(range) {
            let Some(entry) = self.extents.remove(&old.start()) else { continue };
            self.bytes -= old.len();
            let gone = whole_blocks(old, range);
            for rest in [ByteRange::new(old.start(), gone.start()), ByteRange::new(gone.end(), old.end())] {
                if !rest.is_empty() {
                    self.bytes += rest.len();
                    self.extents.insert(rest.start(), part_of(old, entry, rest));
                }
            }
        }
    }

    /// Takes out what is not within the first `data_bytes` of the data file; the number of bytes that go.
    pub(super) fn cut(&mut self, data_bytes: u64) -> u64 {
        let before = self.bytes;
        self.extents.retain(|_, entry| entry.data_at.saturating_add(entry.len.into()) <= data_bytes);
        self.bytes = self.extents.values().map(|entry| u64::from(entry.len)).sum();
        before - self.bytes
    }

    /// The bytes that are there.
    pub fn present(&self) -> RangeSet {
        self.iter().map(|(range, _)| range).collect()
    }

    /// The parts of `range` that are not there, ascending.
    pub(super) fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        let (mut missing, mut at) = (Vec::new(), range.start());
        for there in self.overlapping(range) {
            if at < there.start() {
                missing.push(ByteRange::new(at, there.start()));
            }
            at = there.end();
        }
        if at < range.end() {
            missing.push(ByteRange::new(at, range.end()));
        }
        missing
    }

    /// The blocks that have a byte of `range`, joined as far as they follow each other in one extent, ascending.
    pub fn covering(&self, range: ByteRange) -> Vec<Record> {
        let extents = self.overlapping(range).into_iter();
        extents.filter_map(|extent| self.record(extent, whole_blocks(extent, range))).collect()
    }

    /// True if these bytes of the remote file are still those at this place of the data file.
    pub(super) fn is_at(&self, range: ByteRange, data_at: u64) -> bool {
        self.overlapping(range).first().is_some_and(|extent| {
            let entry = self.extents.get(&extent.start());
            let offset = range.start().checked_sub(extent.start());
            entry.zip(offset).is_some_and(|(entry, offset)| entry.data_at + offset == data_at)
        })
    }

    /// Extents in the order of the remote file, as runs that follow each other in the data file, too. A run is no longer than an
    /// extent may be.
    pub(super) fn runs(&self) -> Vec<(ByteRange, u64, usize)> {
        let mut runs: Vec<(ByteRange, u64, usize)> = Vec::new();
        for (extent, entry) in self.iter() {
            match runs.last_mut() {
                Some((run, data_at, count))
                    if run.end() == extent.start()
                        && *data_at + run.len() == entry.data_at
                        && run.len() + extent.len() <= SPARSE_EXTENT_BYTES_MAX =>
                {
                    *run = ByteRange::new(run.start(), extent.end());
                    *count += 1;
                }
                _ => runs.push((extent, entry.data_at, 1)),
            }
        }
        runs
    }

    /// Bytes of the records of all runs.
    pub(super) fn records_bytes(&self) -> u64 {
        self.runs().into_iter().map(|(run, ..)| record_bytes(run)).sum()
    }

    fn iter(&self) -> impl Iterator<Item = (ByteRange, Extent)> + '_ {
        self.extents.iter().map(|(start, entry)| (ByteRange::at(*start, entry.len.into()), *entry))
    }

    /// Extents with a byte of `range`, ascending.
    fn overlapping(&self, range: ByteRange) -> Vec<ByteRange> {
        if range.is_empty() {
            return Vec::new();
        }
        let first =
            self.extents.range(..=range.start()).next_back().map_or(range.start(), |(start, _)| *start);
        let near = self.extents.range(first..range.end());
        let extents = near.map(|(start, entry)| ByteRange::at(*start, entry.len.into()));
        extents.filter(|extent| extent.end() > range.start()).collect()
    }

    /// Blocks of an extent as a record.
    fn record(&self, extent: ByteRange, blocks: ByteRange) -> Option<Record> {
        let entry = part_of(extent, *self.extents.get(&extent.start())?, blocks);
        let first = entry.checksum_at as usize;
        let checksums = self.checksums.get(first..first + count_blocks(blocks))?.to_vec();
        Some(Record { extent: blocks, data_at: entry.data_at, checksums })
    }
}

/// The blocks of `extent` that have a byte of `range`.
fn whole_blocks(extent: ByteRange, range: ByteRange) -> ByteRange {
    let start = range.start() / SPARSE_BLOCK_BYTES * SPARSE_BLOCK_BYTES;
    let end = range.end().div_ceil(SPARSE_BLOCK_BYTES).saturating_mul(SPARSE_BLOCK_BYTES);
    ByteRange::new(start, end).intersection(extent)
}

/// The entry of a part of an extent that begins where a block does.
fn part_of(extent: ByteRange, entry: Extent, part: ByteRange) -> Extent {
    let blocks_before = part.start() / SPARSE_BLOCK_BYTES - extent.start() / SPARSE_BLOCK_BYTES;
    Extent {
        data_at: entry.data_at + (part.start() - extent.start()),
        // Both are no more than the extent's own, which fit.
        len: part.len() as u32,
        checksum_at: entry.checksum_at + blocks_before as u32,
    }
}

/// Reads until `buffer` has so many bytes more, or there are no more; true if there may be more.
fn fill(source: &mut impl Read, buffer: &mut Vec<u8>, more_bytes: usize) -> io::Result<bool> {
    let read = source.take(more_bytes as u64).read_to_end(buffer)?;
    Ok(read == more_bytes)
}

/// The blocks of a record whose bytes are these, each with whether its checksum is right.
pub(super) fn judged<'a>(
    record: &'a Record,
    id: FileId,
    bytes: &'a [u8],
) -> impl Iterator<Item = (ByteRange, bool)> + 'a {
    blocks_of(record.extent).zip(&record.checksums).map(move |(block, checksum)| {
        let start = (block.start() - record.extent.start()) as usize;
        let bytes = bytes.get(start..start + block.len() as usize);
        (block, bytes.is_some_and(|bytes| id.block_checksum(block.start(), bytes) == *checksum))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 40_000;

    proptest! {
        /// Under insertions and removals, each block is where the last one to bring it has put it, or was removed.
        #[test]
        fn agrees_with_a_list_of_blocks(
            steps in prop::collection::vec((any::<bool>(), 0..SPACE, 1..9000_u64), 1..40),
            probe in (0..SPACE, 0..9000_u64),
        ) {
            let mut extents = Extents::default();
            // Of each block: its bytes, its place in the data file, and the number of the extent that brought it.
            let mut model: Vec<(ByteRange, u64, u32)> = Vec::new();
            let mut data_at = 32;
            for (number, (insert, start, len)) in steps.into_iter().enumerate() {
                let range = ByteRange::new(start, (start + len).min(SPACE));
                model.retain(|(block, ..)| block.intersection(range).is_empty());
                if insert {
                    extents.insert(range, data_at, &vec![number as u32; count_blocks(range)]);
                    let place = |block: ByteRange| data_at + block.start() - range.start();
                    model.extend(blocks_of(range).map(|block| (block, place(block), number as u32)));
                    data_at += range.len();
                } else {
                    extents.remove_blocks(range);
                }
            }
            model.sort_unstable();
            let mut found = Vec::new();
            for record in extents.covering(ByteRange::new(0, SPACE)) {
                prop_assert_eq!(record.checksums.len(), count_blocks(record.extent));
                for (block, number) in blocks_of(record.extent).zip(&record.checksums) {
                    found.push((block, record.data_at + block.start() - record.extent.start(), *number));
                }
            }
            prop_assert_eq!(&found, &model);
            let present: RangeSet = model.iter().map(|(block, ..)| *block).collect();
            prop_assert_eq!((extents.bytes(), extents.present()), (present.len(), present.clone()));
            let range = ByteRange::new(probe.0, (probe.0 + probe.1).min(SPACE));
            prop_assert_eq!(extents.missing(range), present.missing(range));
            prop_assert_eq!(extents.runs().iter().map(|(run, ..)| run.len()).sum::<u64>(), extents.bytes());
            for (block, data_at, _) in model {
                prop_assert!(extents.is_at(block, data_at) && !extents.is_at(block, data_at + 1));
            }
        }
    }
}
