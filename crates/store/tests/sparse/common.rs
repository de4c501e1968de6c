//! Files whose content follows from the offset.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gridlane_core::{ByteRange, Url};
use gridlane_store::{FileKey, SparseCache, SparseFile, SparseLimits};

/// A cache with room for everything.
pub(crate) fn open(directory: &Path) -> SparseCache {
    SparseCache::open(directory, SparseLimits::default()).unwrap()
}

/// The key of a version of a file of this name.
pub(crate) fn key(name: &str, size_bytes: u64) -> FileKey {
    let url = Url::parse_absolute(&format!("https://h.example/{name}")).unwrap();
    FileKey::new("alice", &url, size_bytes, "\"v1\"").unwrap()
}

/// Bytes of the longest file.
const CONTENT_BYTES: u64 = 10_000_000;

/// Bytes of every file.
pub(crate) fn content(offset: u64, len: u64) -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let all = CONTENT.get_or_init(|| (0..CONTENT_BYTES).map(byte).collect());
    &all[offset as usize..(offset + len) as usize]
}

/// Writes bytes of the file; the number of those that are new.
pub(crate) fn write(file: &SparseFile, offset: u64, len: u64) -> u64 {
    file.write(offset, content(offset, len)).unwrap()
}

/// Compares what a read has found with the content.
pub(crate) fn judge(found: &[ByteRange], offset: u64, buffer: &[u8]) {
    for range in found {
        let at = (range.start() - offset) as usize;
        assert!(
            buffer[at..at + range.len() as usize] == *content(range.start(), range.len()),
            "wrong bytes in {range}"
        );
    }
}

/// Reads all of a file, whose bytes must be right; the number of those that are there.
pub(crate) fn check(file: &SparseFile, size_bytes: u64) -> u64 {
    let mut buffer = vec![0; size_bytes as usize];
    let found = file.read(0, &mut buffer);
    judge(&found, 0, &buffer);
    found.iter().map(|range| range.len()).sum()
}

/// Paths of what is in a directory, in the order of their names.
pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
