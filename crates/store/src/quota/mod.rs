//! A limit on what an export may hold, around any storage.
//!
//! What is there is counted once by a walk ([`QuotaStorage::recount`]) and then kept up to date with every
//! change made through this storage. An upload reserves its length when it begins, or, if that is not known, as it
//! grows; what is reserved counts as used, so that uploads together never hold more than the limit. Whoever
//! does not fit is told [`OverQuota`](StoreError::OverQuota): at [`create`](Storage::create) when the length is known,
//! before a byte comes. A file that is replaced counts until it is. What is written in place counts as the file grows,
//! and is given back when it is cut (`quota/in_place.rs`).
//!
//! What is counted is the length of every file under each of its names; directories and links count nothing. What
//! other programs change in the export is noticed by the next recount, and so is it when two changes of one name
//! at the same moment were counted wrongly.

mod in_place;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::Checksum;
use gridlane_share::Turns;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, Entries, Expectation, Metadata, Names, NodeKind, Object, Opened, Overwrite, Space, Storage,
    Upload,
};
use crate::writable::{Disposition, Visibility, WritableFile, WriteOptions, existing_or_new};
use in_place::{Files, QuotaInPlace, QuotaWhenClosed};

/// How often a removal is tried again whose file was replaced since it was looked at.
const REMOVE_TRIES_MAX: usize = 64;

/// A storage that refuses what would make it hold more than its limit.
pub struct QuotaStorage {
    inner: Arc<dyn Storage>,
    account: Arc<Account>,
    /// Those that are open for being changed in place.
    files: Arc<Files>,
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
    /// The last walk that came to its end and was not overtaken.
    counted: u64,
}

/// Taken before a change begins, so that it is known afterwards which walks it met.
#[derive(Clone, Copy)]
struct Before {
    walk: u64,
    counted: u64,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete in itself, so a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, bytes: u64) -> StoreResult<()> {
        let mut state = self.lock();
        if bytes > self.free_bytes(&state) {
            return Err(StoreError::OverQuota);
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

    /// Counts what was reserved, and then more, as used.
    fn grow(&self, reserved_bytes: u64, more_bytes: u64) -> StoreResult<()> {
        let mut state = self.lock();
        if more_bytes > self.free_bytes(&state) {
            return Err(StoreError::OverQuota);
        }
        let bytes = reserved_bytes.saturating_add(more_bytes);
        state.reserved_bytes = state.reserved_bytes.saturating_sub(reserved_bytes);
        state.added_bytes = state.added_bytes.saturating_add(bytes);
        state.used_bytes = state.used_bytes.saturating_add(bytes);
        Ok(())
    }

    fn before(&self) -> Before {
        let state = self.lock();
        Before { walk: state.walk, counted: state.counted }
    }

    /// Counts a change that was made since `before`.
    fn change(&self, before: Before, added: u64, removed: u64) {
        let mut state = self.lock();
        // A walk that ended meanwhile may not have found what went: to take it off once more would be too much.
        let removed = if state.counted == before.counted { removed } else { 0 };
        state.added_bytes = state.added_bytes.saturating_add(added);
        state.used_bytes = state.used_bytes.saturating_add(added).saturating_sub(removed);
    }

    /// Whether a walk is or was under way since `before`: what was moved may have got past it.
    fn met_a_walk(&self, before: Before) -> bool {
        before.walk != before.counted || self.lock().walk != before.walk
    }

    /// Counts what may have got past a walk by being moved. One that is under way adds it when it ends.
    fn add_unseen(&self, before: Before, bytes: u64) {
        let mut state = self.lock();
        state.added_bytes = state.added_bytes.saturating_add(bytes);
        if state.counted != before.counted {
            state.used_bytes = state.used_bytes.saturating_add(bytes);
        }
    }
}

impl QuotaStorage {
    /// `inner`, which is to hold at most `limit_bytes`. Nothing is counted yet: see
    /// [`recount`](QuotaStorage::recount).
    pub fn new(inner: Arc<dyn Storage>, limit_bytes: u64) -> QuotaStorage {
        let account = Arc::new(Account { limit_bytes, state: Mutex::default() });
        QuotaStorage { inner, account, files: Arc::default() }
    }

    /// Counts what is there; takes as long as it takes to look at every file. Changes go on meanwhile: what is
    /// added or moved counts even if the walk has seen it, what is removed may still count, so that the result is
    /// at most too large, until the next time.
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
            state.counted = walk;
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
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.inner.look(path)
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        self.inner.open(path)
    }

    fn names(&self, path: &ObjectPath) -> StoreResult<Names> {
        self.inner.names(path)
    }

    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        self.inner.look_nowait(path)
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
            let before = self.account.before();
            let exactly = match expectation {
                Expectation::Anything => Expectation::Tag(found.tag),
                Expectation::Absent | Expectation::Tag(_) => expectation.clone(),
            };
            match self.inner.remove(path, &exactly) {
                Err(StoreError::Unexpected) if *expectation == Expectation::Anything => {}
                Err(other) => return Err(other),
                Ok(()) => {
                    self.account.change(before, 0, if is_link { 0 } else { found.size_bytes });
                    return Ok(());
                }
            }
        }
        // Somebody writes to it all the time. What it has come to meanwhile is for the next walk.
        let removed_bytes = self.bytes_at(path)?;
        let before = self.account.before();
        self.inner.remove(path, expectation)?;
        self.account.change(before, 0, removed_bytes);
        Ok(())
    }

    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_directory(path)
    }

    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        let before = self.account.before();
        let removed_bytes = self.bytes_at(path)?;
        self.inner.remove_tree(path)?;
        self.account.change(before, 0, removed_bytes);
        Ok(())
    }

    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: Overwrite,
        expectation: &Expectation,
    ) -> StoreResult<bool> {
        // Onto itself, or onto what holds it, is refused in any case: no need to count.
        let before = self.account.before();
        let counts = overwrite != Overwrite::Nothing && from != to && !from.is_below(to);
        let replaced_bytes = if counts { self.bytes_at(to)? } else { 0 };
        let replaced = self.inner.rename(from, to, overwrite, expectation)?;
        if replaced {
            self.account.change(before, 0, replaced_bytes);
        }
        if self.account.met_a_walk(before) {
            // It was moved: what cannot be told of it now is told by the next walk.
            self.account.add_unseen(before, self.bytes_at(to).unwrap_or(0));
        }
        Ok(replaced)
    }

    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        self.inner.set_modified(path, modified)
    }

    fn is_in_place(&self) -> bool {
        self.inner.is_in_place()
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
        let reservation = Reservation::new(&self.account, expected_bytes.unwrap_or(0))?;
        let inner = self.inner.create(path, expected_bytes)?;
        Ok(Box::new(QuotaUpload { inner, reservation }))
    }

    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Arc<dyn WritableFile>> {
        options.check()?;
        let expected_bytes = options.expected_bytes.unwrap_or(0);
        if options.visibility == Visibility::WhenClosed {
            let reservation = Reservation::new(&self.account, expected_bytes)?;
            let inner = self.inner.open_writable(path, options)?;
            return Ok(Arc::new(QuotaWhenClosed::new(inner, reservation)));
        }
        let open = |disposition| {
            // Before a file is made for which there is no room. Of one that is there, its length is not yet known.
            let at_first = if disposition == Disposition::New { expected_bytes } else { 0 };
            let reservation = Reservation::new(&self.account, at_first)?;
            let inner = self.inner.open_writable(path, &WriteOptions { disposition, ..*options })?;
            QuotaInPlace::open(&self.files, inner, reservation, expected_bytes)
        };
        if options.disposition != Disposition::Replace {
            return Ok(Arc::new(open(options.disposition)?));
        }
        // In two steps, so that it is known how many bytes went.
        let opened = existing_or_new(open)?;
        opened.truncate(0)?;
        Ok(Arc::new(opened))
    }

    fn set_mode(&self, path: &ObjectPath, mode: u32) -> StoreResult<()> {
        self.inner.set_mode(path, mode)
    }

    fn attribute_names(&self, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
        self.inner.attribute_names(path)
    }

    fn attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        self.inner.attribute(path, name)
    }

    fn set_attribute(
        &self,
        path: &ObjectPath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StoreResult<()> {
        self.inner.set_attribute(path, name, value, must_be_new)
    }

    fn remove_attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
        self.inner.remove_attribute(path, name)
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
    fn new(account: &Arc<Account>, bytes: u64) -> StoreResult<Reservation> {
        account.reserve(bytes)?;
        Ok(Reservation { account: Arc::clone(account), bytes })
    }

    fn grow_to(&mut self, bytes: u64) -> StoreResult<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.account.reserve(more)?;
            self.bytes += more;
        }
        Ok(())
    }

    /// Takes out up to `bytes`, which the account still counts as reserved.
    fn take(&mut self, bytes: u64) -> u64 {
        let taken = self.bytes.min(bytes);
        self.bytes -= taken;
        taken
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
        let before = reservation.account.before();
        let committed = inner.commit(expectation)?;
        // Before the reservation goes: at no moment may others have the room.
        reservation.account.change(before, committed.metadata.size_bytes, committed.replaced_bytes);
        Ok(committed)
    }
}

#[cfg(test)]
mod tests;
