//! A cache on the disk of files that are read remotely: of each version of a file the parts that have come.
//!
//! The next run of a program, or another process at the same time, finds what this one has read. It may lose bytes, and never gives
//! wrong ones. All calls block; there is no network here, and no opinion about what is worth keeping.
//!
//! # The two files
//!
//! Of each version ([`FileKey`]: user, URL, size, validator) there is a *data file*, to which the bytes of extents are appended in the
//! order in which they come, and an *index*, a log of which extents these are, with checksums ([`mod@format`]). Their name is a
//! SHA-256 of the key, so that another version is another file, and the key in the index is compared.
//!
//! The data file is packed instead of sparse, and the index is of exact extents instead of pages. For 100,000 extents of 1 kB at random
//! places of 1 GB:
//!
//! | | disk | of it index | memory |
//! | --- | --- | --- | --- |
//! | a sparse file, a bit for each page of 64 KiB, which would be fetched whole | 1 GB | 2 kB | 2 kB |
//! | a sparse file, a bit for each 4 KiB, fetched whole | 400 MB | 31 kB | 31 kB |
//! | a sparse file, exact extents with checksums | 400 MB and the file system's map | 3 MB | 5 MB |
//! | packed, exact extents with checksums (this one) | 103 MB | 3 MB | 5 MB |
//!
//! A record is 24 bytes and 4 for each block of 4 KiB that it touches; in memory an extent is about 45 bytes and those 4. So a file
//! that came in segments of 64 KiB costs two thousandths of its bytes on the disk and in memory. Blocks have checksums of their own so
//! that 1 kB of a large extent costs the reading of 4 KiB. The price of packing is that bytes which came apart are read apart: a
//! system call for each extent. Records of neighbours in both files are joined when an index is written anew.
//!
//! # What a crash leaves
//!
//! Nothing that a record refers to is ever written again: a data file only grows, a damaged block is written anew behind all others, and
//! what begins anew has another inode. The bytes of an extent are written before its record, and nothing is synced.
//!
//! - Killed between the two: the bytes have no record and are of no use; the next extent is behind them.
//! - Killed within a record: it is the last one, its checksum is wrong, and the next writer cuts it off.
//! - Power lost: the disk has any part of either file. The index counts up to the first record that is wrong. A record of which the
//!   data file is too short goes, and the index is written anew without it before anything comes to that place. What is left
//!   is compared with its checksums at every read.
//! - A data file of which more than half is without records, or without an index, is begun anew.
//!
//! Checksums begin with the random number of the data file and the place of what they are for, so that nothing counts at another
//! place or beside another file. CRC32C finds accidents; the directory is the user's own, and there is no defence against its owner.
//!
//! # Several processes
//!
//! The first to lock the data file (`flock`, without waiting) writes; others read what the index said when they opened it, and may
//! [look again](SparseFile::refresh). The kernel gives a lock back when its process ends, however it does. A file may be removed under a
//! process that reads it, whose descriptors stay good.
//!
//! # Room
//!
//! A budget for the whole directory ([`SparseLimits`]): files that were not used longest go first, none that is open in this process.
//! The time of a use is the index's time of change; the order is all that counts, and a clock that jumps makes it a worse one
//! for a while. A failure to write, such as a full disk, ends the keeping of that file, and is told once.
//!
//! # What it costs
//!
//! One core of an AMD EPYC, files in the page cache of ext4, five runs: the median, and the least and the most in MB/s.
//!
//! | | write | read |
//! | --- | --- | --- |
//! | pages of 64 KiB | 2273 (1851 to 2377) | 4790 (4160 to 4970) |
//! | extents of 1 kB at random places | 293 (253 to 309), 3.4 us each | 690 (506 to 711), 1.4 us each |
//! | 1 kB at random places of pages of 64 KiB | | 308 (264 to 331), 3.2 us each |
//!
//! To open a file with 100,000 extents of 1 kB takes 34 ms (31 to 44), and to list them 12 ms (11 to 15).
//!
//! `cargo run --release -p gridlane-store --example sparse_cost -- DIRECTORY` prints them.
//!
//! Reading order: [`mod@format`], `extents`, `opening`, `file`; `directory` and `budget` beside them.

mod budget;
mod directory;
mod extents;
mod file;
pub mod format;
mod key;
mod opening;

use std::path::Path;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::thread;

use gridlane_core::{Error, ErrorKind, Result};

pub use budget::SparseLimits;
pub use extents::{Extents, Loaded};
pub use file::SparseFile;
pub use key::FileKey;

use budget::Budget;
use directory::Directory;
use file::Cache;

/// Attempts to have the table of this process's caches.
const TABLE_ATTEMPTS: usize = 1000;

/// Caches that are open, each with its process, device and number: two of one directory in one process would not know of each
/// other's files.
static OPEN: Mutex<Vec<(Place, Weak<Cache>)>> = Mutex::new(Vec::new());

type Place = (u32, (u64, u64));

/// A directory with what is kept of remote files. Its clones are the same cache.
#[derive(Clone, Debug)]
pub struct SparseCache(Arc<Cache>);

impl SparseCache {
    /// Opens the cache in `directory`, which is made, for this user alone, where there is none. If it is open in this process
    /// already, it is the same one, with these limits from now on.
    ///
    /// # Errors
    ///
    /// Fails when the directory cannot be made or opened, is a symbolic link, belongs to another user, or may be written to by
    /// others.
    pub fn open(directory: &Path, limits: SparseLimits) -> Result<SparseCache> {
        let directory = Directory::open(directory)?;
        let failed = |cause| {
            Error::local_io(format_args!("cannot use {} as a cache", directory.path().display()), &cause)
        };
        let place = (std::process::id(), directory.number().map_err(failed)?);
        let is_here =
            |(there, cache): &(Place, Weak<Cache>)| (*there == place).then(|| cache.upgrade()).flatten();
        if let Some(cache) = with_table(|open| open.iter().find_map(is_here)).flatten() {
            cache.budget.set_limits(limits);
            return Ok(SparseCache(cache));
        }
        let cache = Arc::new(Cache::new(Budget::new(directory, limits)));
        with_table(|open| {
            open.retain(|(_, cache)| cache.strong_count() > 0);
            open.push((place, Arc::downgrade(&cache)));
        });
        Ok(SparseCache(cache))
    }

    /// Opens what is kept of a version of a file. The same version that is open in this process already is the same
    /// [`SparseFile`].
    ///
    /// # Errors
    ///
    /// Fails when the files cannot be opened or made: reading goes on without them.
    pub fn file(&self, key: &FileKey) -> Result<SparseFile> {
        if !self.0.is_own() {
            // A lock of its parent's may be held here for ever.
            let message = "a cache that was opened before a fork is of no use behind it: open it again";
            return Err(Error::new(ErrorKind::Usage, message));
        }
        self.0.file(key)
    }

    /// Bytes on the disk, as far as this process knows.
    pub fn used_bytes(&self) -> u64 {
        if self.0.is_own() { self.0.budget.used_bytes() } else { 0 }
    }
}

/// Does something with the table of caches, if it can be had: after a fork, a thread that does not exist may hold it, and nothing
/// waits for that. Without it, a directory that is opened twice has two budgets.
fn with_table<T>(action: impl FnOnce(&mut Vec<(Place, Weak<Cache>)>) -> T) -> Option<T> {
    for _ in 0..TABLE_ATTEMPTS {
        match OPEN.try_lock() {
            Ok(mut open) => return Some(action(&mut open)),
            Err(TryLockError::Poisoned(open)) => return Some(action(&mut open.into_inner())),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}
