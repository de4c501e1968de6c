//! Limits of the disk cache of remotely read files.

use std::time::Duration;

use super::reading::READ_PAGE_BYTES;

/// Bytes of the cache on disk unless the application says otherwise.
pub const SPARSE_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Files of the cache, each with a file for its bytes and one for its index: a look at all of them takes about 0.2 s.
pub const SPARSE_FILES_MAX: usize = 32_768;
/// Of the cache's bytes, the part that is made free at once when there is no room: one of so many. A look at all files is made again
/// when a process has written as much, as other processes write, too.
pub const SPARSE_PURGE_PART: u64 = 8;
/// Bytes with a checksum of their own: what is read from the disk for a single byte, and lost with one that is damaged. At 4 KiB
/// the checksums are a thousandth of the bytes.
pub const SPARSE_BLOCK_BYTES: u64 = 4096;
/// Bytes of an extent: larger ones are divided. A damaged record of the index costs the rest of it, and no more memory than one of these.
pub const SPARSE_EXTENT_BYTES_MAX: u64 = 1024 * 1024;
/// Extents of one file, about 50 bytes of memory each. A file of 100 GB in segments of 64 KiB has 1.6 million.
pub const SPARSE_EXTENTS_MAX: usize = 2 << 20;
/// Bytes of each text of a key: no URL of a request that a server takes is longer.
pub const SPARSE_KEY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an index that are wasted before it is written anew.
pub const SPARSE_INDEX_WASTE_BYTES: u64 = 64 * 1024;
/// Bytes of a file for data that no index refers to before it is given up, if they are more than those that count.
pub const SPARSE_DATA_WASTE_BYTES: u64 = 1024 * 1024;
/// Reads and writes after which a file's use is noted again: a call of 1 us for each.
pub const SPARSE_USES_NOTED: u64 = 1024;
/// Attempts to open a file that other processes make and remove meanwhile.
pub const SPARSE_ATTEMPTS_MAX: usize = 8;
/// Bytes of one file that wait to be written: what comes while they do is not kept. A disk that is slower than the path for
/// longer than a third of a second at 100 MB/s loses some.
pub const SPARSE_WAITING_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Time in which a disk gives a piece of a file that is read: then the servers are asked instead.
pub const SPARSE_PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a change of a file over root:// counts as the last one: the server tells it in whole seconds, and a second
/// change within one would not show.
pub const SPARSE_SETTLED_AFTER: Duration = Duration::from_secs(60);

const _: () = {
    assert!(READ_PAGE_BYTES.is_multiple_of(SPARSE_BLOCK_BYTES));
    assert!(SPARSE_EXTENT_BYTES_MAX.is_multiple_of(READ_PAGE_BYTES));
    assert!(SPARSE_BYTES_MAX / SPARSE_PURGE_PART > SPARSE_EXTENT_BYTES_MAX);
    assert!(SPARSE_BLOCK_BYTES <= SPARSE_EXTENT_BYTES_MAX && SPARSE_EXTENT_BYTES_MAX <= u32::MAX as u64);
};
