//! A limit on what an export may hold, around any storage.
//!
//! What is there is counted once by a walk ([`QuotaStorage::recount`]) and then kept up to date with every
//! change made through this storage. An upload reserves its length when it begins, or, if that is not known, as it
//! grows; what is reserved counts as used, so that uploads together never hold more than the limit. Whoever
//! does not fit is told [`NoSpace`](StoreError::NoSpace): at [`create`](Storage::create) when the length is known,
//! before a byte comes. A file that is replaced counts until it is.
//!
//! What is counted is the length of every file under each of its names; directories and links count nothing. What
//! other programs change in the export is noticed by the next recount, and so is it when two changes of one name
//! at the same moment were counted wrongly.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::Checksum;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, Entries, Expectation, Metadata, NodeKind, Object, Opened, Space, Storage, Upload,
};

/// How often a removal is tried again whose file was replaced since it was looked at.
const REMOVE_TRIES_MAX: usize = 64;

/// A storage that refuses what would make it hold more than its limit.
pub struct QuotaStorage {
    inner: Arc<dyn Storage>,
    account: Arc<Account>,
}

/// How a quota stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// What the export may hold.
    pub limit_bytes: u64,
    /// What it holds, as far as it is known.
    pub used_bytes: u64,
    /// What running uploads may still make of it.
    pub reserved_bytes: u64,
    /// Whether it was counted at all. Before, what was there from the start is not in `used_bytes`, and an
    /// upload is refused only for what came since.
    pub is_counted: bool,
}

struct Account {
    limit_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used_bytes: u64,
    reserved_bytes: u64,
    is_counted: bool,
    /// What was added since the walk began that is running. It may have seen it or not.
    added_bytes: u64,
    /// A walk that a later one has overtaken counts nothing.
    walk: u64,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete in itself, so a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, bytes: u64) -> StoreResult<()> {
        let mut state = self.lock();
        if bytes > self.free_bytes(&state) {
            return Err(StoreError::NoSpace);
        }
        state.reserved_bytes += bytes;
        Ok(())
    }

    fn free_bytes(&self, state: &State) -> u64 {
        self.limit_bytes.saturating_sub(state.used_bytes).saturating_sub(state.reserved_bytes)
    }

    fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.reserved_bytes = state.reserved_bytes.saturating_sub(bytes);
    }

    fn change(&self, added: u64, removed: u64) {
        let mut state = self.lock();
        state.added_bytes = state.added_bytes.saturating_add(added);
        state.used_bytes = state.used_bytes.saturating_add(added).saturating_sub(removed);
    }
}

impl QuotaStorage {
    /// `inner`, which is to hold at most `limit_bytes`. Nothing is counted yet: see
    /// [`recount`](QuotaStorage::recount).
    pub fn new(inner: Arc<dyn Storage>, limit_bytes: u64) -> QuotaStorage {
        QuotaStorage { inner, account: Arc::new(Account { limit_bytes, state: Mutex::default() }) }
    }

    /// Counts what is there; takes as long as it takes to look at every file. Changes go on meanwhile: what is
    /// added counts even if the walk has seen it, what is removed may still count, so that the result is at
    /// most too large, until the next time.
    pub fn recount(&self) -> StoreResult<QuotaUsage> {
        let walk = {
            let mut state = self.account.lock();
            state.added_bytes = 0;
            state.walk += 1;
            state.walk
        };
        let found_bytes = self.tree_bytes(&ObjectPath::root())?;
        let mut state = self.account.lock();
        if state.walk == walk {
            state.used_bytes = found_bytes.saturating_add(state.added_bytes);
            state.is_counted = true;
        }
        drop(state);
        Ok(self.usage())
    }

    /// How it stands.
    pub fn usage(&self) -> QuotaUsage {
        let state = self.account.lock();
        QuotaUsage {
            limit_bytes: self.account.limit_bytes,
            used_bytes: state.used_bytes,
            reserved_bytes: state.reserved_bytes,
            is_counted: state.is_counted,
        }
    }

    /// What all files below `path` have together. What vanishes meanwhile, and what nobody may look at, counts
    /// nothing.
    fn tree_bytes(&self, path: &ObjectPath) -> StoreResult<u64> {
        let mut found_bytes = 0_u64;
        let mut pending = vec![path.clone()];
        while let Some(directory) = pending.pop() {
            let entries = match self.inner.entries(&directory) {
                Ok(entries) => entries,
                // The last one: deeper than any path leads.
                Err(
                    StoreError::NotFound
                    | StoreError::NotADirectory
                    | StoreError::Denied
                    | StoreError::NameTooLong,
                ) => continue,
                Err(other) => return Err(other),
            };
            for entry in entries {
                let entry = entry?;
                match entry.metadata.kind {
                    _ if entry.is_link => {}
                    NodeKind::File => found_bytes = found_bytes.saturating_add(entry.metadata.size_bytes),
                    NodeKind::Directory => pending.extend(directory.join(&entry.name)),
                }
            }
        }
        Ok(found_bytes)
    }

    /// What goes when whatever is at `path` goes.
    fn bytes_at(&self, path: &ObjectPath) -> StoreResult<u64> {
        match self.inner.look(path) {
            Ok(_) if self.inner.is_link(path)? => Ok(0),
            Ok(metadata) if metadata.is_directory() => self.tree_bytes(path),
            Ok(metadata) => Ok(metadata.size_bytes),
            Err(StoreError::NotFound) => Ok(0),
            Err(other) => Err(other),
        }
    }
}

impl Storage for QuotaStorage {
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.inner.look(path)
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        self.inner.open(path)
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        self.inner.open_nowait(path)
    }

    fn is_link(&self, path: &ObjectPath) -> StoreResult<bool> {
        self.inner.is_link(path)
    }

    fn entries(&self, path: &ObjectPath) -> StoreResult<Entries> {
        self.inner.entries(path)
    }

    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.make_directory(path)
    }

    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        for _ in 0..REMOVE_TRIES_MAX {
            // The one that was looked at and no other, so that what goes is known.
            let found = match self.inner.stat(path) {
                Ok(found) => found,
                Err(_) => return self.inner.remove(path, expectation),
            };
            let is_link = self.inner.is_link(path)?;
            let exactly = match expectation {
                Expectation::Anything => Expectation::Tag(found.tag),
                Expectation::Absent | Expectation::Tag(_) => expectation.clone(),
            };
            match self.inner.remove(path, &exactly) {
                Err(StoreError::Unexpected) if *expectation == Expectation::Anything => {}
                Err(other) => return Err(other),
                Ok(()) => {
                    self.account.change(0, if is_link { 0 } else { found.size_bytes });
                    return Ok(());
                }
            }
        }
        Err(StoreError::Unexpected)
    }

    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_directory(path)
    }

    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        let removed_bytes = self.bytes_at(path)?;
        self.inner.remove_tree(path)?;
        self.account.change(0, removed_bytes);
        Ok(())
    }

    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: bool,
        expectation: &Expectation,
    ) -> StoreResult<bool> {
        // Onto itself, or onto what holds it, is refused in any case: no need to count.
        let counts = overwrite && from != to && !from.is_below(to);
        let replaced_bytes = if counts { self.bytes_at(to)? } else { 0 };
        let replaced = self.inner.rename(from, to, overwrite, expectation)?;
        if replaced {
            self.account.change(0, replaced_bytes);
        }
        Ok(replaced)
    }

    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        self.inner.set_modified(path, modified)
    }

    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        let inner = self.inner.space(path)?;
        let state = self.account.lock();
        Ok(Space {
            // More than the limit is there if it was lowered.
            total_bytes: inner.total_bytes.min(self.account.limit_bytes).max(state.used_bytes),
            used_bytes: state.used_bytes,
            available_bytes: inner.available_bytes.min(self.account.free_bytes(&state)),
        })
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>> {
        let reserved_bytes = expected_bytes.unwrap_or(0);
        self.account.reserve(reserved_bytes)?;
        let reservation = Reservation { account: Arc::clone(&self.account), bytes: reserved_bytes };
        let inner = self.inner.create(path, expected_bytes)?;
        Ok(Box::new(QuotaUpload { inner, reservation }))
    }

    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        self.inner.remove_abandoned(age)
    }
}

/// What an upload may become. Given back when it is dropped.
struct Reservation {
    account: Arc<Account>,
    bytes: u64,
}

impl Reservation {
    fn grow_to(&mut self, bytes: u64) -> StoreResult<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.account.reserve(more)?;
            self.bytes += more;
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

struct QuotaUpload {
    // Dropped first: its bytes are gone before others may have the room.
    inner: Box<dyn Upload>,
    reservation: Reservation,
}

impl Upload for QuotaUpload {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.reservation.grow_to(offset.saturating_add(bytes.len() as u64))?;
        self.inner.write_at(bytes, offset)
    }

    fn copy_range(&mut self, source: &dyn Object, offset: u64, len: u64) -> StoreResult<u64> {
        let len = len.min(source.metadata().size_bytes.saturating_sub(offset));
        self.reservation.grow_to(offset.saturating_add(len))?;
        self.inner.copy_range(source, offset, len)
    }

    fn set_modified(&mut self, modified: SystemTime) -> StoreResult<()> {
        self.inner.set_modified(modified)
    }

    fn keep_checksums(&mut self, checksums: &[Checksum]) {
        self.inner.keep_checksums(checksums);
    }

    fn commit(self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed> {
        let QuotaUpload { inner, reservation } = *self;
        let committed = inner.commit(expectation)?;
        // Before the reservation goes: at no moment may others have the room.
        reservation.account.change(committed.metadata.size_bytes, committed.replaced_bytes);
        Ok(committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    fn path(text: &str) -> ObjectPath {
        ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
    }

    /// Holds a file of 10 bytes, and a directory with one of 20.
    fn quota(limit_bytes: u64) -> QuotaStorage {
        let memory = MemoryStorage::new();
        memory.add_file(&path("f"), [0; 10]);
        memory.add_directory(&path("sub"));
        memory.add_file(&path("sub/g"), [0; 20]);
        let quota = QuotaStorage::new(Arc::new(memory), limit_bytes);
        assert!(!quota.usage().is_counted);
        quota.recount().unwrap();
        assert_eq!((quota.usage().used_bytes, quota.usage().is_counted), (30, true));
        quota
    }

    fn put(quota: &QuotaStorage, at: &str, len: usize) -> StoreResult<Committed> {
        let mut upload = quota.create(&path(at), Some(len as u64))?;
        upload.write_at(&vec![0; len], 0)?;
        upload.commit(&Expectation::Anything)
    }

    fn used(quota: &QuotaStorage) -> (u64, u64) {
        let counted = (quota.usage().used_bytes, quota.usage().reserved_bytes);
        assert_eq!(quota.recount().unwrap().used_bytes, counted.0, "as a walk finds it");
        counted
    }

    #[test]
    fn every_change_is_counted() {
        let quota = quota(100);
        put(&quota, "h", 5).unwrap();
        assert_eq!(used(&quota), (35, 0));
        put(&quota, "h", 7).unwrap();
        assert_eq!(used(&quota), (37, 0));
        quota.remove(&path("h"), &Expectation::Anything).unwrap();
        assert_eq!(used(&quota), (30, 0));
        quota.rename(&path("f"), &path("sub/f"), true, &Expectation::Anything).unwrap();
        assert_eq!(used(&quota), (30, 0));
        put(&quota, "f", 3).unwrap();
        // A file onto a file, then a file onto a directory with 30 bytes.
        quota.rename(&path("f"), &path("sub/f"), true, &Expectation::Anything).unwrap();
        assert_eq!(used(&quota), (23, 0));
        put(&quota, "f", 1).unwrap();
        quota.rename(&path("f"), &path("sub"), true, &Expectation::Anything).unwrap();
        assert_eq!(used(&quota), (1, 0));
        quota.make_directories(&path("a/b/c")).unwrap();
        put(&quota, "a/b/c/f", 50).unwrap();
        assert_eq!(used(&quota), (51, 0));
        quota.remove_tree(&path("a")).unwrap();
        assert_eq!(used(&quota), (1, 0));
        assert!(quota.remove(&path("none"), &Expectation::Anything).is_err());
        assert!(quota.remove(&path("sub"), &Expectation::Absent).is_err());
        assert_eq!(used(&quota), (1, 0));
    }

    #[test]
    fn what_does_not_fit_is_refused_at_once_or_as_it_grows() {
        let quota = quota(100);
        assert!(matches!(quota.create(&path("h"), Some(71)).err(), Some(StoreError::NoSpace)));
        let known = quota.create(&path("h"), Some(50)).unwrap();
        assert!(matches!(quota.create(&path("i"), Some(21)).err(), Some(StoreError::NoSpace)));
        assert_eq!(quota.space(&ObjectPath::root()).unwrap().available_bytes, 20);
        let mut growing = quota.create(&path("i"), None).unwrap();
        growing.write_at(&[0; 15], 0).unwrap();
        growing.write_at(&[0; 15], 0).unwrap();
        assert!(matches!(growing.write_at(&[0; 6], 15), Err(StoreError::NoSpace)));
        let Opened::File(source) = quota.open(&path("f")).unwrap() else { panic!("a file") };
        let mut copy = quota.create(&path("j"), None).unwrap();
        assert!(matches!(copy.copy_range(source.as_ref(), 0, u64::MAX), Err(StoreError::NoSpace)));
        drop(known);
        assert_eq!(copy.copy_range(source.as_ref(), 0, u64::MAX).unwrap(), 10);
        copy.commit(&Expectation::Anything).unwrap();
        growing.write_at(&[0; 45], 15).unwrap();
        assert_eq!(quota.usage().reserved_bytes, 60);
        assert!(growing.commit(&Expectation::Tag("other".to_owned())).is_err());
        assert_eq!(used(&quota), (40, 0));
    }

    #[test]
    fn uploads_at_the_same_time_never_hold_more() {
        let quota = quota(30 + 10 * 7);
        let fitted: usize = std::thread::scope(|scope| {
            let uploads: Vec<_> = (0..100)
                .map(|number| {
                    let quota = &quota;
                    scope.spawn(move || usize::from(put(quota, &format!("upload-{number}"), 7).is_ok()))
                })
                .collect();
            uploads.into_iter().map(|upload| upload.join().unwrap()).sum()
        });
        assert_eq!(fitted, 10);
        assert_eq!(used(&quota), (100, 0));
    }

    #[test]
    fn space_is_the_smaller_of_the_two() {
        let quota = quota(100);
        let root = ObjectPath::root();
        let space = Space { total_bytes: 100, used_bytes: 30, available_bytes: 70 };
        assert_eq!(quota.space(&root).unwrap(), space);
        let small = MemoryStorage::new().with_capacity(40);
        let quota = QuotaStorage::new(Arc::new(small), 100);
        assert_eq!(quota.space(&root).unwrap().available_bytes, 40);
        // A limit that was lowered.
        let quota = self::quota(20);
        let space = Space { total_bytes: 30, used_bytes: 30, available_bytes: 0 };
        assert_eq!(quota.space(&root).unwrap(), space);
        assert!(matches!(put(&quota, "h", 1), Err(StoreError::NoSpace)));
        put(&quota, "h", 0).unwrap();
    }
}
