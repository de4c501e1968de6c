//! A file of the cache that is open.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use gridlane_core::limits::{SPARSE_EXTENT_BYTES_MAX, SPARSE_USES_NOTED};
use gridlane_core::{ByteRange, Error, ErrorKind, RangeSet, Result};

use super::budget::{Budget, lock};
use super::directory::{Kind, Name, is_removed};
use super::extents::{Extents, judged};
use super::format::{FileId, Record, record_bytes};
use super::key::FileKey;
use super::opening::{Opened, Writer, open};

/// Bytes of a read that need no memory of their own to be looked at: two blocks.
const SCRATCH_BYTES: usize = 8192;

/// What all files of a cache share.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) budget: Budget,
    /// The process that opened it.
    process: AtomicU32,
    /// Files that are open.
    files: Mutex<HashMap<Name, Weak<Inner>>>,
}

impl Cache {
    pub(super) fn new(budget: Budget) -> Cache {
        Cache { budget, process: AtomicU32::new(std::process::id()), files: Mutex::default() }
    }

    /// True in the process that opened it. In others, locks may be held by threads that do not exist there, and two writers
    /// would write over each other.
    pub(super) fn is_own(&self) -> bool {
        std::process::id() == self.process.load(Ordering::Relaxed)
    }

    /// Opens a file, or finds it among those that are open.
    pub(super) fn file(self: &Arc<Cache>, key: &FileKey) -> Result<SparseFile> {
        let name = key.name_digest();
        let mut files = lock(&self.files);
        if let Some(inner) = files.get(&name).and_then(Weak::upgrade) {
            return Ok(SparseFile(inner));
        }
        files.retain(|_, file| file.strong_count() > 0);
        self.budget.opened(&name);
        let Opened { data, extents, writer, trouble } = open(&self.budget, &name, key).map_err(|cause| {
            self.budget.closed(&name);
            failure(&self.budget, &cause)
        })?;
        let inner = Arc::new(Inner {
            cache: Arc::clone(self),
            name,
            key: key.clone(),
            writing: Mutex::new(Writing { writer, trouble }),
            state: Mutex::new(State { data, extents }),
            uses: AtomicU64::new(0),
            damaged_bytes: AtomicU64::new(0),
        });
        files.insert(name, Arc::downgrade(&inner));
        Ok(SparseFile(inner))
    }
}

/// What is kept of one version of a remote file. Its clones are the same file, and may be used by several threads at once: reads
/// wait for no write.
///
/// A process that was forked off has nothing of what its parent has open: there, nothing is found and nothing is kept.
#[derive(Clone, Debug)]
pub struct SparseFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cache: Arc<Cache>,
    name: Name,
    key: FileKey,
    /// Locked before `state` where both are.
    writing: Mutex<Writing>,
    state: Mutex<State>,
    uses: AtomicU64,
    damaged_bytes: AtomicU64,
}

#[derive(Default)]
struct Writing {
    writer: Option<Writer>,
    /// A failure that was not reported yet.
    trouble: Option<io::Error>,
}

impl std::fmt::Debug for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writing").field("is_open", &self.writer.is_some()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    data: Option<(Arc<File>, FileId)>,
    extents: Extents,
}

impl SparseFile {
    /// The version of the file.
    pub fn key(&self) -> &FileKey {
        &self.0.key
    }

    /// The bytes that are there, by the index: a read may find that some are not.
    pub fn present(&self) -> RangeSet {
        if !self.is_own() {
            return RangeSet::new();
        }
        lock(&self.0.state).extents.present()
    }

    /// The parts of `range` that are not there, ascending.
    pub fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        if !self.is_own() {
            return if range.is_empty() { Vec::new() } else { vec![range] };
        }
        lock(&self.0.state).extents.missing(range)
    }

    /// Reads what is there of the bytes from `offset` on, and says which they are, ascending, none touching the next. What is in
    /// the rest of `buffer` means nothing.
    ///
    /// Everything that is returned was compared with its checksum. Blocks that are damaged, or that the disk does not give, are not
    /// there from now on, and [counted](SparseFile::damaged_bytes).
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Vec<ByteRange> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        if range.is_empty() || !self.is_own() {
            return Vec::new();
        }
        self.note_use();
        let (records, data, id) = {
            let state = lock(&self.0.state);
            let Some((data, id)) = &state.data else { return Vec::new() };
            let records = state.extents.covering(range);
            if records.is_empty() {
                return Vec::new();
            }
            (records, Arc::clone(data), *id)
        };
        let mut found: Vec<ByteRange> = Vec::new();
        for record in records {
            let wanted = record.extent.intersection(range);
            let begin = (wanted.start() - offset) as usize;
            let Some(target) = buffer.get_mut(begin..begin + wanted.len() as usize) else { continue };
            for part in self.read_record(&record, wanted, target, &data, id) {
                match found.last_mut() {
                    Some(last) if last.end() == part.start() => {
                        *last = ByteRange::new(last.start(), part.end())
                    }
                    _ => found.push(part),
                }
            }
        }
        found
    }

    /// Keeps the bytes from `offset` on, as far as they are not there; returns the number of those that are new. It is 0 where
    /// there is no room, where another process writes to the file, or where keeping has failed before.
    ///
    /// # Errors
    ///
    /// A full disk and other failures are told once. Nothing is kept of this file from then on; what is there is read.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u64> {
        let range = ByteRange::at(offset, bytes.len() as u64);
        if range.len() != bytes.len() as u64 || range.end() > self.0.key.size_bytes {
            let size_bytes = self.0.key.size_bytes;
            let message = format!("{range} are not in a file of {size_bytes} bytes");
            return Err(Error::new(ErrorKind::Usage, message));
        }
        if range.is_empty() || !self.is_own() {
            return Ok(0);
        }
        let mut writing = lock(&self.0.writing);
        if let Some(cause) = writing.trouble.take() {
            return Err(failure(&self.0.cache.budget, &cause));
        }
        let Some(writer) = &mut writing.writer else { return Ok(0) };
        if self.note_use() && is_removed(writer.data()) {
            // Another process has made room: it would be written for nobody.
            writing.writer = None;
            return Ok(0);
        }
        let missing = lock(&self.0.state).extents.missing(range);
        let mut kept_bytes = 0;
        for part in missing.into_iter().flat_map(pieces) {
            let needed_bytes = part.len() + record_bytes(part);
            if !lock(&self.0.state).extents.has_room() || !self.0.cache.budget.reserve(needed_bytes, 0) {
                break;
            }
            let begin = (part.start() - offset) as usize;
            let Some(part_bytes) = bytes.get(begin..begin + part.len() as usize) else { break };
            match writer.append(part.start(), part_bytes) {
                Ok(Record { extent, data_at, checksums }) => {
                    lock(&self.0.state).extents.insert(extent, data_at, &checksums);
                    kept_bytes += extent.len();
                }
                Err(cause) => {
                    self.0.cache.budget.release(needed_bytes, 0);
                    writing.writer = None;
                    return Err(failure(&self.0.cache.budget, &cause));
                }
            }
        }
        Ok(kept_bytes)
    }

    /// True if writes may keep something: the file is not written to by another process, and nothing has failed.
    pub fn is_writable(&self) -> bool {
        self.is_own() && lock(&self.0.writing).writer.is_some()
    }

    /// Bytes that were found to be damaged, or that the disk did not give, since the file was opened.
    pub fn damaged_bytes(&self) -> u64 {
        self.0.damaged_bytes.load(Ordering::Relaxed)
    }

    /// Looks again at what another process has written meanwhile, and writes from now on if that one has ended. It reads the whole
    /// index: 34 ms for 100,000 extents. Where this process writes there is nothing to look at.
    ///
    /// # Errors
    ///
    /// Fails when the files cannot be opened; everything stays as it was then.
    pub fn refresh(&self) -> Result<()> {
        if !self.is_own() {
            return Ok(());
        }
        let mut writing = lock(&self.0.writing);
        if writing.writer.is_some() {
            return Ok(());
        }
        let opened = open(&self.0.cache.budget, &self.0.name, &self.0.key);
        let Opened { data, extents, writer, trouble } =
            opened.map_err(|cause| failure(&self.0.cache.budget, &cause))?;
        *writing = Writing { writer, trouble };
        *lock(&self.0.state) = State { data, extents };
        Ok(())
    }

    /// Forgets the whole file, on the disk as well: its bytes turned out to be wrong. Nothing is kept of it until it is opened again.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be removed; this process has forgotten it nevertheless.
    pub fn discard(&self) -> Result<()> {
        if !self.is_own() {
            return Ok(());
        }
        let mut writing = lock(&self.0.writing);
        *writing = Writing::default();
        let mut state = lock(&self.0.state);
        state.extents = Extents::default();
        let Some((data, _)) = state.data.take() else { return Ok(()) };
        drop(state);
        if !self.0.cache.budget.directory.is_named(&self.0.name, Kind::Data, &data) {
            return Ok(());
        }
        self.0
            .cache
            .budget
            .directory
            .remove_all(&self.0.name)
            .map_err(|cause| failure(&self.0.cache.budget, &cause))
    }

    /// Reads the blocks of a record, and puts what is wanted of the right ones into `target`.
    fn read_record(
        &self,
        record: &Record,
        wanted: ByteRange,
        target: &mut [u8],
        data: &File,
        id: FileId,
    ) -> Vec<ByteRange> {
        if wanted == record.extent {
            let is_read = data.read_exact_at(target, record.data_at).is_ok();
            return self.right_parts(record, wanted, target, is_read, id);
        }
        let mut small = [0; SCRATCH_BYTES];
        let mut large = Vec::new();
        let needed_bytes = record.extent.len() as usize;
        let scratch = match small.get_mut(..needed_bytes) {
            Some(small) => small,
            None => {
                large.resize(needed_bytes, 0);
                &mut large[..]
            }
        };
        let is_read = data.read_exact_at(scratch, record.data_at).is_ok();
        let right = self.right_parts(record, wanted, scratch, is_read, id);
        for part in &right {
            let from = (part.start() - record.extent.start()) as usize;
            let to = (part.start() - wanted.start()) as usize;
            let len = part.len() as usize;
            if let (Some(from), Some(to)) = (scratch.get(from..from + len), target.get_mut(to..to + len)) {
                to.copy_from_slice(from);
            }
        }
        right
    }

    /// What is wanted of those blocks whose bytes are right; the others are taken out.
    fn right_parts(
        &self,
        record: &Record,
        wanted: ByteRange,
        bytes: &[u8],
        is_read: bool,
        id: FileId,
    ) -> Vec<ByteRange> {
        let mut right: Vec<ByteRange> = Vec::with_capacity(1);
        for (block, is_right) in judged(record, id, bytes) {
            if !is_read || !is_right {
                let data_at = record.data_at + (block.start() - record.extent.start());
                self.drop_block(block, data_at);
                continue;
            }
            let part = block.intersection(wanted);
            match right.last_mut() {
                _ if part.is_empty() => {}
                Some(last) if last.end() == part.start() => *last = ByteRange::new(last.start(), part.end()),
                _ => right.push(part),
            }
        }
        right
    }

    /// Takes a damaged block out, unless it was written again meanwhile.
    fn drop_block(&self, block: ByteRange, data_at: u64) {
        let mut state = lock(&self.0.state);
        if state.extents.is_at(block, data_at) {
            state.extents.remove_blocks(block);
            self.0.damaged_bytes.fetch_add(block.len(), Ordering::Relaxed);
        }
    }

    fn is_own(&self) -> bool {
        self.0.cache.is_own()
    }

    /// Counts a use, and notes it from time to time; true if it did.
    fn note_use(&self) -> bool {
        let is_due = (self.0.uses.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SPARSE_USES_NOTED);
        if is_due {
            self.0.cache.budget.directory.note_use(&self.0.name);
        }
        is_due
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.cache.is_own() {
            if *self.uses.get_mut() > 0 {
                self.cache.budget.directory.note_use(&self.name);
            }
            self.cache.budget.closed(&self.name);
        }
    }
}

/// A range in parts that extents may have, with their ends at multiples of it.
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut rest = range;
    std::iter::from_fn(move || {
        let cut = (rest.start() / SPARSE_EXTENT_BYTES_MAX + 1).saturating_mul(SPARSE_EXTENT_BYTES_MAX);
        let (piece, behind) = rest.split_at(cut);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

fn failure(budget: &Budget, cause: &io::Error) -> Error {
    let what = format!("cannot keep what was read in {}", budget.directory.path().display());
    Error::local_io(what, cause)
        .hint("reading goes on without it; free some space there, or name another directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::{SparseCache, SparseLimits};
    use gridlane_core::Url;

    /// The number of a process is all that tells a fork from its parent.
    #[test]
    fn behind_a_fork_nothing_is_there_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let cache = SparseCache::open(directory.path(), SparseLimits::default()).unwrap();
        let key = FileKey::new("u", &Url::parse_absolute("https://h/f").unwrap(), 100, "\"v\"").unwrap();
        let file = cache.file(&key).unwrap();
        assert_eq!(file.write(0, b"abc").unwrap(), 3);
        cache.0.process.fetch_add(1, Ordering::Relaxed);
        let _files = lock(&cache.0.files);
        assert!(cache.file(&key).is_err());
        assert_eq!(cache.used_bytes(), 0);
        // As if threads of the parent had held them.
        let (held, also) = (file.clone(), file.clone());
        let (_writing, _state) = (lock(&held.0.writing), lock(&also.0.state));
        assert!(file.read(0, &mut [0; 3]).is_empty() && file.present().is_empty());
        assert_eq!(file.missing(ByteRange::new(0, 3)), [ByteRange::new(0, 3)]);
        assert_eq!((file.write(3, b"d").unwrap(), file.is_writable()), (0, false));
        file.refresh().unwrap();
        file.discard().unwrap();
    }
}
