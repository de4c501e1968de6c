//! A limit on what an export may hold, around any storage.
//!
//! What is there is counted once by a walk ([`QuotaStorage::recount`]) and then kept up to date with every change
//! made through this storage. An upload reserves its length when it begins, or, if that is not known, as it grows;
//! what is reserved counts as used, so that uploads together never hold more than the limit. An upload that does not
//! fit is refused with [`OverQuota`](StoreError::OverQuota): at [`create`](Storage::create) when the length is known,
//! before a byte comes. A file that is replaced counts until it is. What is written in place counts as the file
//! grows, and is given back when it is cut (`quota/in_place.rs`). A target that a copy will go on with counts as used
//! while it is not open (`quota/target.rs`).
//!
//! What is counted is the length of every file under each of its names; directories and links count nothing. What
//! other programs change in the export is noticed by the next recount, and so is it when two changes of one name
//! at the same moment were counted wrongly.

mod in_place;
mod target;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::{Turns, budget};
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::posix_extras::PosixExtras;
use crate::storage::{
    BoxFuture, Committed, Completion, Entries, Expectation, Listing, Metadata, Names, NodeKind, Object,
    Opened, Overwrite, Space, Storage, Upload, WriteOrder,
};
use crate::target::Targets;
use crate::writable::{Disposition, Visibility, WritableFile, WriteOptions};
use in_place::{Files, QuotaInPlace, QuotaWhenClosed};

/// Times that a removal is tried again whose file was replaced since it was looked at.
const REMOVE_TRIES_MAX: usize = 64;

/// A storage that refuses what would make it hold more than its limit.
pub struct QuotaStorage {
    inner: Arc<dyn Storage>,
    account: Arc<Account>,
    /// Those that are open for being changed in place.
    files: Arc<Files>,
    /// Held shared while a target is opened, and alone while abandoned ones are removed: the bytes that go are known then.
    opening: RwLock<()>,
}

/// The state of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The most that the export may hold.
    pub limit_bytes: u64,
    /// The bytes that it holds, as far as they are known.
    pub used_bytes: u64,
    /// The bytes that running uploads may still add.
    pub reserved_bytes: u64,
    /// True if a walk has counted the export. Before, the files that were there from the start are not in `used_bytes`,
    /// and an upload is refused only for what came since.
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
    /// Bytes added since the running walk began. It may have seen them or not.
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

    /// Counts bytes that were found, and counted as used, as reserved from now on, with what is to come of so many in all.
    fn take_over(self: &Arc<Self>, before: Before, found: u64, bytes: u64) -> StoreResult<Reservation> {
        let bytes = bytes.max(found);
        let mut state = self.lock();
        // A walk that ended meanwhile did not find what was open, and without one it may not be counted.
        let is_counted = state.is_counted && state.counted == before.counted;
        let counted = if is_counted { found } else { 0 };
        let used_bytes = state.used_bytes.saturating_sub(counted);
        let free_bytes = self.limit_bytes.saturating_sub(used_bytes).saturating_sub(state.reserved_bytes);
        // What is there already is no growth, whatever the limit.
        if bytes > free_bytes && bytes > found {
            return Err(StoreError::OverQuota);
        }
        state.used_bytes = used_bytes;
        state.reserved_bytes = state.reserved_bytes.saturating_add(bytes);
        Ok(Reservation { account: Arc::clone(self), bytes })
    }

    /// Counts a change that was made since `before`.
    fn change(&self, before: Before, added: u64, removed: u64) {
        let mut state = self.lock();
        // A walk that ended meanwhile may not have found what went: to take it off once more would be too much.
        let removed = if state.counted == before.counted { removed } else { 0 };
        state.added_bytes = state.added_bytes.saturating_add(added);
        state.used_bytes = state.used_bytes.saturating_add(added).saturating_sub(removed);
    }

    /// True if a walk is or was under way since `before`: what was moved may have got past it.
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
        QuotaStorage { inner, account, files: Arc::default(), opening: RwLock::default() }
    }

    /// Counts what is there; takes as long as it takes to look at every file. Changes go on meanwhile: what is
    /// added or moved counts even if the walk has seen it, what is removed may still count, so that the result is
    /// at most too large, until the next time.
    pub async fn recount(&self) -> StoreResult<QuotaUsage> {
        let walk = {
            let mut state = self.account.lock();
            state.added_bytes = 0;
            state.walk += 1;
            state.walk
        };
        let found_bytes = self.tree_bytes(&ObjectPath::root()).await?;
        let mut state = self.account.lock();
        if state.walk == walk {
            state.used_bytes = found_bytes.saturating_add(state.added_bytes);
            state.is_counted = true;
            state.counted = walk;
        }
        drop(state);
        Ok(self.usage())
    }

    /// The state of the quota.
    pub fn usage(&self) -> QuotaUsage {
        let state = self.account.lock();
        QuotaUsage {
            limit_bytes: self.account.limit_bytes,
            used_bytes: state.used_bytes,
            reserved_bytes: state.reserved_bytes,
            is_counted: state.is_counted,
        }
    }

    /// The length of all files below `path` together, and of the targets that are kept there. What vanishes meanwhile, and
    /// what may not be looked at, counts nothing.
    async fn tree_bytes(&self, path: &ObjectPath) -> StoreResult<u64> {
        let device_of = async |path: &ObjectPath| match self.inner.targets() {
            Some(_) => self.inner.look(path).await.ok().map(|metadata| metadata.identity.device),
            None => None,
        };
        let root_device = device_of(&ObjectPath::root()).await;
        let keeps_targets = path.is_root() || device_of(path).await != root_device;
        let mut found_bytes = 0_u64;
        let mut pending = vec![(path.clone(), keeps_targets)];
        while let Some((directory, keeps_targets)) = pending.pop() {
            if keeps_targets {
                found_bytes = found_bytes.saturating_add(self.unfinished_bytes_in(&directory).await?);
            }
            let mut entries = match self.inner.entries(&directory).await {
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
            loop {
                let page = entries.next_page().await?;
                if page.is_empty() {
                    break;
                }
                for entry in page {
                    match entry.metadata.kind {
                        _ if entry.is_link => {}
                        NodeKind::File => found_bytes = found_bytes.saturating_add(entry.metadata.size_bytes),
                        NodeKind::Directory => {
                            let below = directory.join(&entry.name);
                            let is_elsewhere = Some(entry.metadata.identity.device) != root_device;
                            pending.extend(below.map(|below| (below, is_elsewhere)));
                        }
                    }
                }
            }
        }
        Ok(found_bytes)
    }

    /// The bytes that are gone when `path` is removed.
    async fn bytes_at(&self, path: &ObjectPath) -> StoreResult<u64> {
        match self.inner.look(path).await {
            Ok(_) if self.is_link_at(path).await? => Ok(0),
            Ok(metadata) if metadata.is_directory() => self.tree_bytes(path).await,
            Ok(metadata) => Ok(metadata.size_bytes),
            Err(StoreError::NotFound) => Ok(0),
            Err(other) => Err(other),
        }
    }

    async fn is_link_at(&self, path: &ObjectPath) -> StoreResult<bool> {
        match self.inner.posix() {
            Some(posix) => posix.is_link(path).await,
            None => Ok(false),
        }
    }

    /// The extras of what is inside. They are asked for only where there are some.
    fn extras(&self) -> StoreResult<&dyn PosixExtras> {
        self.inner.posix().ok_or(StoreError::Unsupported)
    }

    async fn remove_file(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        for _ in 0..REMOVE_TRIES_MAX {
            // The one that was looked at and no other, so that what goes is known.
            let found = match self.inner.stat(path).await {
                Ok(found) => found,
                Err(_) => return self.inner.remove(path, expectation).await,
            };
            let is_link = self.is_link_at(path).await?;
            let before = self.account.before();
            let exactly = match expectation {
                Expectation::Anything => Expectation::Tag(found.tag),
                Expectation::Absent | Expectation::Tag(_) => expectation.clone(),
            };
            match self.inner.remove(path, &exactly).await {
                Err(StoreError::Unexpected) if *expectation == Expectation::Anything => {}
                Err(other) => return Err(other),
                Ok(()) => {
                    self.account.change(before, 0, if is_link { 0 } else { found.size_bytes });
                    return Ok(());
                }
            }
        }
        // Another handle writes to it all the time. Its growth meanwhile is for the next walk.
        let removed_bytes = self.bytes_at(path).await?;
        let before = self.account.before();
        self.inner.remove(path, expectation).await?;
        self.account.change(before, 0, removed_bytes);
        Ok(())
    }

    async fn open_to_write(
        &self,
        path: &ObjectPath,
        options: &WriteOptions,
    ) -> StoreResult<Arc<dyn WritableFile>> {
        options.check()?;
        let expected_bytes = options.expected_bytes.unwrap_or(0);
        if options.visibility == Visibility::WhenClosed {
            let reservation = Reservation::new(&self.account, expected_bytes)?;
            let inner = self.extras()?.open_writable(path, options).await?;
            return Ok(Arc::new(QuotaWhenClosed::new(inner, reservation)));
        }
        if options.disposition != Disposition::Replace {
            return Ok(Arc::new(self.open_in_place(path, options, options.disposition).await?));
        }
        // In two steps, so that it is known how many bytes went.
        let opened = self.existing_or_new(path, options).await?;
        opened.truncate(0).await?;
        Ok(Arc::new(opened))
    }

    async fn open_in_place(
        &self,
        path: &ObjectPath,
        options: &WriteOptions,
        disposition: Disposition,
    ) -> StoreResult<QuotaInPlace> {
        let expected_bytes = options.expected_bytes.unwrap_or(0);
        // Before a file is made for which there is no room. Of one that is there, its length is not yet known.
        let at_first = if disposition == Disposition::New { expected_bytes } else { 0 };
        let reservation = Reservation::new(&self.account, at_first)?;
        let inner = self.extras()?.open_writable(path, &WriteOptions { disposition, ..*options }).await?;
        QuotaInPlace::open(&self.files, inner, reservation, expected_bytes)
    }

    /// Opens a file that is there, or makes it, whatever others do meanwhile.
    async fn existing_or_new(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<QuotaInPlace> {
        for _ in 0..limits::OPEN_RACES_MAX {
            match self.open_in_place(path, options, Disposition::Existing).await {
                Err(StoreError::NotFound) => {}
                known => return known,
            }
            match self.open_in_place(path, options, Disposition::New).await {
                Err(StoreError::Unexpected) => {}
                known => return known,
            }
        }
        // Something is there that is not served: a pipe, a link that leads nowhere.
        Err(StoreError::NotAFile)
    }
}

impl Storage for QuotaStorage {
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn posix(&self) -> Option<&dyn PosixExtras> {
        self.inner.posix().map(|_| self as &dyn PosixExtras)
    }

    fn look<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>> {
        self.inner.look(path)
    }

    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        self.inner.look_nowait(path)
    }

    fn is_in_place(&self) -> BoxFuture<'_, bool> {
        self.inner.is_in_place()
    }

    fn open<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Opened>> {
        self.inner.open(path)
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        self.inner.open_nowait(path)
    }

    fn entries<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Entries>> {
        self.inner.entries(path)
    }

    fn names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Names>> {
        self.inner.names(path)
    }

    fn list<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Listing>> {
        self.inner.list(path)
    }

    fn kept_checksums<'a>(
        &'a self,
        files: &'a [(ObjectPath, Metadata)],
        kinds: &'a [ChecksumKind],
    ) -> BoxFuture<'a, Vec<Vec<Checksum>>> {
        self.inner.kept_checksums(files, kinds)
    }

    fn make_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.inner.make_directory(path)
    }

    fn make_directories<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.inner.make_directories(path)
    }

    fn remove<'a>(
        &'a self,
        path: &'a ObjectPath,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(self.remove_file(path, expectation))
    }

    fn remove_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.inner.remove_directory(path)
    }

    fn remove_tree<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let before = self.account.before();
            let removed_bytes = self.bytes_at(path).await?;
            self.inner.remove_tree(path).await?;
            self.account.change(before, 0, removed_bytes);
            Ok(())
        })
    }

    fn space<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Space>> {
        Box::pin(async move {
            let inner = self.inner.space(path).await?;
            let state = self.account.lock();
            Ok(Space {
                // More than the limit is there if it was lowered.
                total_bytes: inner.total_bytes.min(self.account.limit_bytes).max(state.used_bytes),
                used_bytes: state.used_bytes,
                available_bytes: inner.available_bytes.min(self.account.free_bytes(&state)),
            })
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a ObjectPath,
        expected_bytes: Option<u64>,
    ) -> BoxFuture<'a, StoreResult<Box<dyn Upload>>> {
        Box::pin(async move {
            let reservation = Reservation::new(&self.account, expected_bytes.unwrap_or(0))?;
            let inner = self.inner.create(path, expected_bytes).await?;
            Ok(Box::new(QuotaUpload::new(inner, reservation)) as Box<dyn Upload>)
        })
    }

    fn targets(&self) -> Option<&dyn Targets> {
        self.inner.targets().map(|_| self as &dyn Targets)
    }

    fn remove_abandoned(&self, age: Duration) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.remove_and_count_abandoned(age))
    }
}

/// Passes calls that change no count to the extras of the storage inside, or fails where that has none.
macro_rules! of_extras {
    ($self:ident, |$extras:ident| $call:expr) => {
        match $self.extras() {
            Ok($extras) => $call,
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    };
}

impl PosixExtras for QuotaStorage {
    fn is_link<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<bool>> {
        of_extras!(self, |extras| extras.is_link(path))
    }

    fn rename<'a>(
        &'a self,
        from: &'a ObjectPath,
        to: &'a ObjectPath,
        overwrite: Overwrite,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            // Onto itself, or onto what holds it, is refused in any case: no need to count.
            let before = self.account.before();
            let counts = overwrite != Overwrite::Nothing && from != to && !from.is_below(to);
            let replaced_bytes = if counts { self.bytes_at(to).await? } else { 0 };
            let replaced = self.extras()?.rename(from, to, overwrite, expectation).await?;
            if replaced {
                self.account.change(before, 0, replaced_bytes);
            }
            if self.account.met_a_walk(before) {
                // It was moved: bytes that cannot be counted now are counted by the next walk.
                self.account.add_unseen(before, self.bytes_at(to).await.unwrap_or(0));
            }
            Ok(replaced)
        })
    }

    fn set_modified<'a>(
        &'a self,
        path: &'a ObjectPath,
        modified: SystemTime,
    ) -> BoxFuture<'a, StoreResult<()>> {
        of_extras!(self, |extras| extras.set_modified(path, modified))
    }

    fn open_writable<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a WriteOptions,
    ) -> BoxFuture<'a, StoreResult<Arc<dyn WritableFile>>> {
        Box::pin(self.open_to_write(path, options))
    }

    fn set_mode<'a>(&'a self, path: &'a ObjectPath, mode: u32) -> BoxFuture<'a, StoreResult<()>> {
        of_extras!(self, |extras| extras.set_mode(path, mode))
    }

    fn attribute_names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Vec<Vec<u8>>>> {
        of_extras!(self, |extras| extras.attribute_names(path))
    }

    fn attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<Option<Vec<u8>>>> {
        of_extras!(self, |extras| extras.attribute(path, name))
    }

    fn set_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
        value: &'a [u8],
        must_be_new: bool,
    ) -> BoxFuture<'a, StoreResult<()>> {
        of_extras!(self, |extras| extras.set_attribute(path, name, value, must_be_new))
    }

    fn remove_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<bool>> {
        of_extras!(self, |extras| extras.remove_attribute(path, name))
    }
}

/// The most that an upload may add. Given back when it is dropped.
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

/// Runs something that is to happen although nothing waits for it. Without a runtime nothing does.
fn later(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(budget::on_behalf(budget::current(), task));
    }
}

struct QuotaUpload {
    /// There until it is committed or given up.
    inner: Option<(Box<dyn Upload>, Mutex<Reservation>)>,
}

impl QuotaUpload {
    fn new(inner: Box<dyn Upload>, reservation: Reservation) -> QuotaUpload {
        QuotaUpload { inner: Some((inner, Mutex::new(reservation))) }
    }

    /// The upload, with room for bytes up to `end`.
    fn up_to(&self, end: u64) -> StoreResult<&dyn Upload> {
        let (inner, reservation) = self.inner.as_ref().ok_or(StoreError::Closed)?;
        reservation.lock().unwrap_or_else(PoisonError::into_inner).grow_to(end)?;
        Ok(inner.as_ref())
    }
}

impl Drop for QuotaUpload {
    fn drop(&mut self) {
        if let Some((inner, reservation)) = self.inner.take() {
            later(give_up(inner, reservation));
        }
    }
}

/// Its bytes are gone before the room is given to other files.
async fn give_up(inner: Box<dyn Upload>, reservation: Mutex<Reservation>) {
    inner.discard().await;
    drop(reservation);
}

impl Upload for QuotaUpload {
    fn write_order(&self) -> WriteOrder {
        self.inner.as_ref().map_or(WriteOrder::Anywhere, |(inner, _)| inner.write_order())
    }

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        match self.up_to(offset.saturating_add(bytes.len() as u64)) {
            Ok(inner) => inner.write_at(bytes, offset),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn copy_range<'a>(
        &'a self,
        source: &'a dyn Object,
        offset: u64,
        len: u64,
    ) -> BoxFuture<'a, StoreResult<u64>> {
        let len = len.min(source.metadata().size_bytes.saturating_sub(offset));
        match self.up_to(offset.saturating_add(len)) {
            Ok(inner) => inner.copy_range(source, offset, len),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn commit<'a>(mut self: Box<Self>, completion: &'a Completion) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move {
            let (inner, reservation) = self.inner.take().ok_or(StoreError::Closed)?;
            let account = Arc::clone(&reservation.lock().unwrap_or_else(PoisonError::into_inner).account);
            let before = account.before();
            let committed = inner.commit(completion).await?;
            // Before the reservation ends: at no moment is the room free for other files.
            account.change(before, committed.metadata.size_bytes, committed.replaced_bytes);
            drop(reservation);
            Ok(committed)
        })
    }

    fn discard(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some((inner, reservation)) = self.inner.take() {
                give_up(inner, reservation).await;
            }
        })
    }
}

#[cfg(test)]
mod tests;
