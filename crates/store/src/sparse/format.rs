//! The two files on disk, as functions over bytes.
//!
//! ```text
//! data    magic 8 · version u32 · id 16 · checksum u32 · bytes of extents, in the order in which they came
//! index   magic 8 · version u32 · length u32 · id 16 · size u64 · URL digest 32 ·
//!             3 × (length u32 · text): identity, URL, validator · checksum u32 · records
//! record  checksum u32 · length u32 · offset u64 · place in the data file u64 · block checksums, u32 each
//! ```
//!
//! Numbers are little-endian, and checksums CRC32C. The *id* is random, made with the data file, and begins every checksum. That of a
//! record goes on with its place in the index, and that of a block with its offset in the remote file: so neither a record nor
//! a block counts anywhere but where it was written, nor beside another file. Blocks are those parts of an extent that
//! lie between two multiples of [`SPARSE_BLOCK_BYTES`] in the remote file.

use gridlane_core::ByteRange;
use gridlane_core::limits::{SPARSE_BLOCK_BYTES, SPARSE_EXTENT_BYTES_MAX, SPARSE_KEY_BYTES_MAX};

use super::key::FileKey;

/// Bytes in front of the data file's extents.
pub(super) const DATA_HEAD_BYTES: usize = 32;
/// Bytes of a record without the checksums of its blocks.
const RECORD_HEAD_BYTES: usize = 24;
/// Bytes of a record at most: an extent touches one block more than it fills.
pub(super) const RECORD_BYTES_MAX: usize =
    RECORD_HEAD_BYTES + 4 * (SPARSE_EXTENT_BYTES_MAX / SPARSE_BLOCK_BYTES + 1) as usize;
/// Bytes of an index's head at most.
pub(super) const INDEX_HEAD_BYTES_MAX: usize = 128 + 3 * SPARSE_KEY_BYTES_MAX;

const DATA_MAGIC: &[u8; 8] = b"gl-cdata";
const INDEX_MAGIC: &[u8; 8] = b"gl-index";
const VERSION: u32 = 1;

/// The random number of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// The checksum that is gone on with at this place.
    pub(super) fn checksum_at(self, place: u64) -> u32 {
        let mut seed = [0; 24];
        seed[..16].copy_from_slice(&self.0);
        seed[16..].copy_from_slice(&place.to_le_bytes());
        crc32c::crc32c(&seed)
    }

    /// The checksum of the block that begins at `offset` of the remote file.
    pub(super) fn block_checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.checksum_at(offset), bytes)
    }

    /// The checksums of an extent's blocks.
    pub(super) fn block_checksums(self, offset: u64, bytes: &[u8]) -> Vec<u32> {
        blocks_of(ByteRange::at(offset, bytes.len() as u64))
            .map(|block| {
                let (start, end) = ((block.start() - offset) as usize, (block.end() - offset) as usize);
                self.block_checksum(block.start(), bytes.get(start..end).unwrap_or_default())
            })
            .collect()
    }
}

/// The blocks of an extent.
pub(super) fn blocks_of(extent: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut rest = extent;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (block, behind) = rest.split_at((rest.start() / SPARSE_BLOCK_BYTES + 1) * SPARSE_BLOCK_BYTES);
        rest = behind;
        Some(block)
    })
}

/// The number of blocks of an extent.
pub(super) fn count_blocks(extent: ByteRange) -> usize {
    if extent.is_empty() {
        return 0;
    }
    ((extent.end() - 1) / SPARSE_BLOCK_BYTES - extent.start() / SPARSE_BLOCK_BYTES + 1) as usize
}

/// Bytes of an extent: where they are in the remote file and in the data file, and the checksums of their blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where in the remote file; never empty.
    pub extent: ByteRange,
    /// Offset in the data file.
    pub data_at: u64,
    /// One for each block.
    pub checksums: Vec<u32>,
}

impl Record {
    /// Appends the record to an index in which it begins at `index_at`.
    pub fn encode(&self, id: FileId, index_at: u64, index: &mut Vec<u8>) {
        let begin = index.len();
        index.extend_from_slice(&[0; 4]);
        index.extend_from_slice(&(self.extent.len() as u32).to_le_bytes());
        index.extend_from_slice(&self.extent.start().to_le_bytes());
        index.extend_from_slice(&self.data_at.to_le_bytes());
        for checksum in &self.checksums {
            index.extend_from_slice(&checksum.to_le_bytes());
        }
        let checksum = crc32c::crc32c_append(id.checksum_at(index_at), &index[begin + 4..]);
        index[begin..begin + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The record at the beginning of `bytes`, which are those of an index from `index_at` on; and its length. `None` if there is none
    /// that is complete and about a file of `size_bytes`.
    pub fn decode(bytes: &[u8], id: FileId, index_at: u64, size_bytes: u64) -> Option<(Record, usize)> {
        let mut fields = Fields(bytes);
        let (checksum, len) = (fields.u32()?, u64::from(fields.u32()?));
        let (offset, data_at) = (fields.u64()?, fields.u64()?);
        let extent = ByteRange::at(offset, len);
        let fits = extent.len() == len && extent.end() <= size_bytes && data_at.checked_add(len).is_some();
        if len == 0 || len > SPARSE_EXTENT_BYTES_MAX || !fits || data_at < DATA_HEAD_BYTES as u64 {
            return None;
        }
        let checksums = fields.take(4 * count_blocks(extent))?;
        let total = bytes.len() - fields.0.len();
        if crc32c::crc32c_append(id.checksum_at(index_at), bytes.get(4..total)?) != checksum {
            return None;
        }
        let (checksums, _) = checksums.as_chunks::<4>();
        let checksums = checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Some((Record { extent, data_at, checksums }, total))
    }
}

/// Bytes of the record of an extent.
pub(super) fn record_bytes(extent: ByteRange) -> u64 {
    (RECORD_HEAD_BYTES + 4 * count_blocks(extent)) as u64
}

/// The head of a data file.
pub(super) fn data_head(id: FileId) -> Vec<u8> {
    let mut head = DATA_MAGIC.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&id.0);
    seal(head)
}

/// The id of a data file that begins with these bytes.
pub(super) fn read_data_head(bytes: &[u8; DATA_HEAD_BYTES]) -> Option<FileId> {
    let mut fields = Fields(unseal(bytes)?);
    fields.expect(DATA_MAGIC)?;
    fields.expect(&VERSION.to_le_bytes())?;
    fields.id()
}

/// The head of an index.
pub fn index_head(key: &FileKey, id: FileId) -> Vec<u8> {
    let mut head = INDEX_MAGIC.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&id.0);
    head.extend_from_slice(&key.size_bytes.to_le_bytes());
    head.extend_from_slice(&key.url_digest);
    for text in key.texts() {
        head.extend_from_slice(&(text.len() as u32).to_le_bytes());
        head.extend_from_slice(text.as_bytes());
    }
    let total = head.len() as u32 + 4;
    head[12..16].copy_from_slice(&total.to_le_bytes());
    seal(head)
}

/// The key and the id in the head that an index begins with, and its length.
pub fn read_index_head(bytes: &[u8]) -> Option<(FileKey, FileId, usize)> {
    let total = usize::try_from(u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?)).ok()?;
    if total > INDEX_HEAD_BYTES_MAX {
        return None;
    }
    let mut fields = Fields(unseal(bytes.get(..total)?)?);
    fields.expect(INDEX_MAGIC)?;
    fields.expect(&VERSION.to_le_bytes())?;
    fields.u32()?;
    let id = fields.id()?;
    let size_bytes = fields.u64()?;
    let url_digest = fields.take(32)?.try_into().ok()?;
    let (identity, url, validator) = (fields.text()?, fields.text()?, fields.text()?);
    let key = FileKey { size_bytes, url_digest, identity, url, validator };
    fields.0.is_empty().then_some((key, id, total))
}

/// Puts a checksum behind.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes in front of the checksum, if it is theirs.
fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (sealed, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(sealed) == u32::from_le_bytes(*checksum)).then_some(sealed)
}

/// Fields that are still to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        (self.take(bytes.len())? == bytes).then_some(())
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn id(&mut self) -> Option<FileId> {
        Some(FileId(self.take(16)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        if len > SPARSE_KEY_BYTES_MAX {
            return None;
        }
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::Url;

    fn key() -> FileKey {
        FileKey::new("alice", &Url::parse_absolute("https://h/f?a=1").unwrap(), 1 << 20, "\"v1\"").unwrap()
    }

    const ID: FileId = FileId([7; 16]);

    #[test]
    fn heads_are_read_as_they_were_written_and_no_bit_may_change() {
        let head = index_head(&key(), ID);
        assert_eq!(read_index_head(&head), Some((key(), ID, head.len())));
        assert_eq!(read_index_head(&[&head[..], b"more"].concat()), Some((key(), ID, head.len())));
        for bit in 0..8 * head.len() {
            let mut damaged = head.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_index_head(&damaged), None, "bit {bit}");
        }
        for len in 0..head.len() {
            assert_eq!(read_index_head(&head[..len]), None);
        }
        let head: [u8; DATA_HEAD_BYTES] = data_head(ID).try_into().unwrap();
        assert_eq!(read_data_head(&head), Some(ID));
        for bit in 0..8 * head.len() {
            let mut damaged = head;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_data_head(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_counts_where_it_was_written_and_nowhere_else() {
        let bytes = vec![3; 9000];
        let record = Record {
            extent: ByteRange::at(4000, 9000),
            data_at: 32,
            checksums: ID.block_checksums(4000, &bytes),
        };
        assert_eq!(record.checksums.len(), 4);
        let mut index = Vec::new();
        record.encode(ID, 100, &mut index);
        assert_eq!(index.len() as u64, record_bytes(record.extent));
        assert_eq!(Record::decode(&index, ID, 100, 13_000), Some((record, index.len())));
        assert_eq!(Record::decode(&index, ID, 101, 13_000), None, "at another place");
        assert_eq!(Record::decode(&index, FileId([8; 16]), 100, 13_000), None, "beside another file");
        assert_eq!(Record::decode(&index, ID, 100, 12_999), None, "of a shorter file");
        for bit in 0..8 * index.len() {
            let mut damaged = index.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&damaged, ID, 100, 13_000), None, "bit {bit}");
        }
        assert_eq!(Record::decode(&[0; RECORD_BYTES_MAX], ID, 0, u64::MAX), None, "zeros after a crash");
    }

    #[test]
    fn blocks_lie_between_multiples_of_their_size() {
        for (start, end) in [(0, 1), (4095, 4097), (0, 4096), (4096, 4096), (1, 12_289)] {
            let extent = ByteRange::new(start, end);
            let blocks: Vec<ByteRange> = blocks_of(extent).collect();
            assert_eq!(blocks.len(), count_blocks(extent));
            assert_eq!(blocks.iter().map(|block| block.len()).sum::<u64>(), extent.len());
            for block in blocks {
                assert_eq!(block.start() / SPARSE_BLOCK_BYTES, (block.end() - 1) / SPARSE_BLOCK_BYTES);
            }
        }
        assert_ne!(ID.block_checksum(0, b"same"), ID.block_checksum(4096, b"same"));
    }
}
