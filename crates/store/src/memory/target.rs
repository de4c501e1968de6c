//! Targets in memory: of a storage in memory, and by themselves.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::Result;
use gridlane_share::turns::{Turns, undivided};

use super::file::{MemoryFile, get, publish, put};
use super::{MemoryStorage, metadata, unused_number};
use crate::error::{StoreError, StoreResult};
use crate::journal::Record;
use crate::partial::Records;
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion, Expectation, NodeKind};
use crate::target::{Found, Target, TargetOptions, failed};

/// A target that grows up to a bound, for tests and for small files. It has no journal: it is gone with its process.
pub struct MemoryTarget {
    name: String,
    bytes_max: u64,
    state: Mutex<Alone>,
}

#[derive(Default)]
struct Alone {
    bytes: Vec<u8>,
    /// Those of the file, once it is complete.
    complete: Option<Vec<u8>>,
}

impl MemoryTarget {
    /// An empty one of this name, for a file of at most so many bytes.
    pub fn new(name: impl Into<String>, bytes_max: u64) -> MemoryTarget {
        MemoryTarget { name: name.into(), bytes_max, state: Mutex::default() }
    }

    /// The file, once it is complete.
    pub fn complete(&self) -> Option<Vec<u8>> {
        self.lock().complete.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Alone> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for MemoryTarget {
    fn turns(&self) -> &Arc<Turns> {
        undivided()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn size_bytes(&self) -> Result<u64> {
        Ok(self.lock().bytes.len() as u64)
    }

    fn allocated_bytes(&self) -> u64 {
        self.lock().bytes.len() as u64
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.bytes_max.saturating_sub(self.allocated_bytes()))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let written = if end > self.bytes_max {
            Err(StoreError::NoSpace)
        } else {
            put(&mut self.lock().bytes, bytes, offset)
        };
        written.map_err(|error| failed(&self.name, error))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(get(&self.lock().bytes, into, offset))
    }

    fn is_recorded(&self) -> bool {
        false
    }

    fn record(&self, _records: &[Record]) -> Result<()> {
        Ok(())
    }

    fn restart(&self) -> Result<()> {
        self.lock().bytes.clear();
        Ok(())
    }

    fn restart_journal(&self) -> Result<()> {
        Ok(())
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        Ok(self.allocated_bytes() < size_bytes)
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let mut state = self.lock();
        let replaced_bytes = state.complete.as_ref().map(|complete| complete.len() as u64);
        let is_expected = match &completion.expectation {
            Expectation::Anything => true,
            Expectation::Absent => replaced_bytes.is_none(),
            // No state of it has a tag.
            Expectation::Tag(_) => false,
        };
        if !is_expected {
            return Err(failed(&self.name, StoreError::Unexpected));
        }
        cut(&mut state.bytes, size_bytes).map_err(|error| failed(&self.name, error))?;
        state.complete = Some(std::mem::take(&mut state.bytes));
        let modified = completion.modified.unwrap_or_else(SystemTime::now);
        Ok(Committed {
            metadata: metadata(NodeKind::File, size_bytes, modified),
            replaced: replaced_bytes.is_some(),
            replaced_bytes: replaced_bytes.unwrap_or(0),
        })
    }

    fn discard(&self) {
        self.lock().bytes = Vec::new();
    }
}

/// The bytes of a target of a storage in memory, and the lines of its journal.
pub(super) struct Unfinished {
    /// In place of an inode.
    number: u64,
    state: Mutex<Kept>,
}

struct Kept {
    is_open: bool,
    bytes: Vec<u8>,
    journal: Vec<u8>,
    /// When it was last written to.
    written: SystemTime,
}

impl Unfinished {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it is not open, and was last written to at `moment` or before.
    pub(super) fn is_left_since(&self, moment: SystemTime) -> bool {
        let state = self.lock();
        !state.is_open && state.written <= moment
    }
}

/// A target of a storage in memory.
pub(super) struct StoredTarget {
    storage: MemoryStorage,
    path: ObjectPath,
    unfinished: Arc<Unfinished>,
    records: Records,
}

impl StoredTarget {
    pub(super) fn open(
        storage: &MemoryStorage,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(StoredTarget, Found)> {
        let mut tree = storage.lock();
        storage.require_place(&tree, path, options.expected_bytes)?;
        let unfinished = tree.targets.entry(path.clone()).or_insert_with(|| {
            let kept =
                Kept { is_open: false, bytes: Vec::new(), journal: Vec::new(), written: SystemTime::now() };
            Arc::new(Unfinished { number: unused_number(), state: Mutex::new(kept) })
        });
        let unfinished = Arc::clone(unfinished);
        let mut state = unfinished.lock();
        if std::mem::replace(&mut state.is_open, true) {
            return Err(StoreError::Locked);
        }
        let name = path.to_string();
        let records = Records::new(&options.keys, name.as_bytes(), unfinished.number);
        let found = records.read(state.journal.as_slice(), state.bytes.is_empty())?;
        drop(state);
        Ok((StoredTarget { storage: storage.clone(), path: path.clone(), unfinished, records }, found))
    }

    fn failed(&self, error: StoreError) -> gridlane_core::Error {
        failed(&self.path, error)
    }

    /// Takes it out of the storage, if it is this one that is there.
    fn forget(&self) {
        let mut tree = self.storage.lock();
        if tree.targets.get(&self.path).is_some_and(|there| Arc::ptr_eq(there, &self.unfinished)) {
            tree.targets.remove(&self.path);
        }
    }
}

impl Drop for StoredTarget {
    fn drop(&mut self) {
        self.unfinished.lock().is_open = false;
    }
}

impl Target for StoredTarget {
    fn turns(&self) -> &Arc<Turns> {
        &self.storage.turns
    }

    fn name(&self) -> String {
        self.path.to_string()
    }

    fn size_bytes(&self) -> Result<u64> {
        Ok(self.allocated_bytes())
    }

    fn allocated_bytes(&self) -> u64 {
        self.unfinished.lock().bytes.len() as u64
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.storage.free_bytes(&self.storage.lock()))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        // As an upload, it counts when it is seen.
        let room = self.storage.require_room(&self.storage.lock(), end);
        let written = room.and_then(|()| {
            let mut state = self.unfinished.lock();
            state.written = SystemTime::now();
            put(&mut state.bytes, bytes, offset)
        });
        written.map_err(|error| self.failed(error))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(get(&self.unfinished.lock().bytes, into, offset))
    }

    fn is_recorded(&self) -> bool {
        self.records.is_recorded()
    }

    fn record(&self, records: &[Record]) -> Result<()> {
        let recorded = self.records.append(records, |text, at| {
            let mut state = self.unfinished.lock();
            state.journal.truncate(usize::try_from(at).unwrap_or(usize::MAX));
            state.journal.extend_from_slice(text);
            Ok(())
        });
        recorded.map_err(|cause| self.failed(cause.into()))
    }

    fn restart(&self) -> Result<()> {
        self.unfinished.lock().bytes.clear();
        self.restart_journal()
    }

    fn restart_journal(&self) -> Result<()> {
        let restarted = self.records.restart(|| {
            self.unfinished.lock().journal.clear();
            Ok(())
        });
        restarted.map_err(|cause| self.failed(cause.into()))
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        Ok(self.allocated_bytes() < size_bytes)
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let mut state = self.unfinished.lock();
        cut(&mut state.bytes, size_bytes).map_err(|error| self.failed(error))?;
        let bytes = state.bytes.clone();
        drop(state);
        let modified = completion.modified.unwrap_or_else(SystemTime::now);
        let file = MemoryFile::new(bytes, modified, None);
        file.lock().kept = completion.checksums.clone();
        let published = publish(&self.storage, &self.path, file, &completion.expectation);
        let committed = published.map_err(|error| self.failed(error))?;
        self.forget();
        Ok(committed)
    }

    fn discard(&self) {
        self.forget();
    }
}

impl super::Tree {
    /// The length of all targets together that are not open.
    pub(super) fn unfinished_bytes(&self) -> u64 {
        let kept =
            self.targets.values().filter_map(|target| Some(target.lock()).filter(|kept| !kept.is_open));
        kept.map(|kept| kept.bytes.len() as u64).sum()
    }
}

/// Cuts what is to have this length, and is not shorter.
fn cut(bytes: &mut Vec<u8>, size_bytes: u64) -> StoreResult<()> {
    match usize::try_from(size_bytes) {
        Ok(size) if size <= bytes.len() => {
            bytes.truncate(size);
            Ok(())
        }
        _ => Err(StoreError::Io(io::Error::other("it is shorter than what was written"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ErrorKind;

    #[test]
    fn a_target_by_itself_grows_up_to_its_bound() {
        let target = MemoryTarget::new("keys", 6);
        assert_eq!((target.name().as_str(), target.free_bytes()), ("keys", Some(6)));
        target.write_at(b"def", 3).unwrap();
        let refused = target.write_at(b"g", 6).unwrap_err();
        assert!(refused.is_no_space() && refused.kind() == ErrorKind::LocalIo, "{refused}");
        assert!(target.is_doubtful(7).unwrap() && !target.is_doubtful(6).unwrap() && !target.is_recorded());
        target.write_at(b"abc", 0).unwrap();
        assert!(target.complete().is_none());
        let absent = Expectation::Absent.into();
        assert_eq!(target.commit(7, &absent).unwrap_err().kind(), ErrorKind::LocalIo);
        assert_eq!(target.commit(6, &absent).unwrap().metadata.size_bytes, 6);
        assert_eq!(target.complete().unwrap(), b"abcdef");
        target.write_at(b"xyz", 0).unwrap();
        assert_eq!(target.commit(2, &absent).unwrap_err().kind(), ErrorKind::Precondition);
        assert_eq!(target.commit(2, &Expectation::Anything.into()).unwrap().replaced_bytes, 6);
        assert_eq!(target.complete().unwrap(), b"xy");
        target.write_at(b"z", 0).unwrap();
        target.discard();
        assert_eq!((target.size_bytes().unwrap(), target.complete().unwrap().as_slice()), (0, &b"xy"[..]));
    }
}
