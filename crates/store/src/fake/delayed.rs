//! A storage of which every call takes its time, and holds no thread meanwhile; but for the calls of its targets, which block.

use std::future::Future;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_share::Turns;

use super::{HeldTarget, PATIENCE};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    BoxFuture, Committed, Completion, DirectoryEntry, Entries, Expectation, Metadata, Object, Opened, Pages,
    Space, Storage, Upload, WriteOrder,
};
use crate::target::{Found, Target, TargetOptions, Targets};

/// The time that each call takes, and the number of those under way.
#[derive(Clone)]
pub struct Delay {
    each: Duration,
    under_way: Arc<(Mutex<usize>, Condvar)>,
}

/// Counts one call until it is dropped.
struct UnderWay<'a>(&'a Delay);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.change(|count| *count -= 1);
    }
}

impl Delay {
    /// So long for each.
    pub fn of(each: Duration) -> Delay {
        Delay { each, under_way: Arc::default() }
    }

    /// Returns when at least `count` calls are under way. Panics when they do not come.
    pub fn wait_for(&self, count: usize) {
        let (lock, changed) = &*self.under_way;
        let under_way = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(under_way, PATIENCE, |under_way| *under_way < count);
        let (under_way, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let under_way = *under_way;
        assert!(under_way >= count, "{under_way} of {count} calls are under way after {PATIENCE:?}");
    }

    fn change(&self, change: impl FnOnce(&mut usize)) {
        let (lock, changed) = &*self.under_way;
        change(&mut lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    async fn pass(&self) {
        self.change(|count| *count += 1);
        let _under_way = UnderWay(self);
        tokio::time::sleep(self.each).await;
    }

    /// The same before something else.
    fn before<'a, T: Send + 'a>(&'a self, then: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
        Box::pin(async move {
            self.pass().await;
            then.await
        })
    }
}

/// A storage of which every call waits for the same time, as for a server far away. It has none of the extras, and tells nothing
/// at once.
pub struct DelayedStorage {
    inner: Arc<dyn Storage>,
    delay: Delay,
    turns: Arc<Turns>,
}

impl DelayedStorage {
    /// `inner` behind a delay.
    pub fn new(inner: Arc<dyn Storage>, delay: Delay) -> DelayedStorage {
        DelayedStorage { inner, delay, turns: Arc::default() }
    }
}

impl Storage for DelayedStorage {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn targets(&self) -> Option<&dyn Targets> {
        self.inner.targets().map(|_| self as &dyn Targets)
    }

    fn remove_abandoned(&self, age: Duration) -> BoxFuture<'_, StoreResult<usize>> {
        self.delay.before(self.inner.remove_abandoned(age))
    }

    fn look<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>> {
        self.delay.before(self.inner.look(path))
    }

    fn open<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Opened>> {
        self.delay.before(async move {
            Ok(match self.inner.open(path).await? {
                Opened::File(inner) => {
                    let (delay, turns) = (self.delay.clone(), Arc::clone(&self.turns));
                    Opened::File(Arc::new(DelayedObject { inner, delay, turns }) as Arc<dyn Object>)
                }
                Opened::Directory => Opened::Directory,
            })
        })
    }

    fn entries<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Entries>> {
        self.delay.before(async move {
            let inner = self.inner.entries(path).await?;
            Ok(Box::new(DelayedEntries { inner, delay: self.delay.clone() }) as Entries)
        })
    }

    fn make_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.make_directory(path))
    }

    fn remove<'a>(
        &'a self,
        path: &'a ObjectPath,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.remove(path, expectation))
    }

    fn remove_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.remove_directory(path))
    }

    fn remove_tree<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.remove_tree(path))
    }

    fn space<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Space>> {
        self.delay.before(self.inner.space(path))
    }

    fn create<'a>(
        &'a self,
        path: &'a ObjectPath,
        expected_bytes: Option<u64>,
    ) -> BoxFuture<'a, StoreResult<Box<dyn Upload>>> {
        self.delay.before(async move {
            let inner = self.inner.create(path, expected_bytes).await?;
            Ok(Box::new(DelayedUpload { inner, delay: self.delay.clone() }) as Box<dyn Upload>)
        })
    }
}

impl Targets for DelayedStorage {
    fn open_target<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a TargetOptions,
    ) -> BoxFuture<'a, StoreResult<(Arc<dyn Target>, Found)>> {
        self.delay.before(async move {
            let inside = self.inner.targets().ok_or(StoreError::Unsupported)?;
            let (inner, found) = inside.open_target(path, options).await?;
            let (each, turns) = (self.delay.each, Arc::clone(&self.turns));
            // Its calls block, by what they are.
            let target = HeldTarget { inner, turns, pass: move || std::thread::sleep(each) };
            Ok((Arc::new(target) as Arc<dyn Target>, found))
        })
    }

    fn unfinished_bytes<'a>(&'a self, directory: &'a ObjectPath) -> BoxFuture<'a, StoreResult<u64>> {
        self.delay.before(async move {
            self.inner.targets().ok_or(StoreError::Unsupported)?.unfinished_bytes(directory).await
        })
    }
}

struct DelayedObject {
    inner: Arc<dyn Object>,
    delay: Delay,
    turns: Arc<Turns>,
}

impl Object for DelayedObject {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        self.delay.before(self.inner.read_at(target, offset))
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        self.delay.before(self.inner.is_unchanged())
    }

    fn kept_checksums<'a>(&'a self, kinds: &'a [ChecksumKind]) -> BoxFuture<'a, Vec<Checksum>> {
        self.delay.before(self.inner.kept_checksums(kinds))
    }

    fn keep_checksum<'a>(&'a self, checksum: &'a Checksum) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.keep_checksum(checksum))
    }
}

struct DelayedEntries {
    inner: Entries,
    delay: Delay,
}

impl Pages<DirectoryEntry> for DelayedEntries {
    fn next_page(&mut self) -> BoxFuture<'_, StoreResult<Vec<DirectoryEntry>>> {
        self.delay.before(self.inner.next_page())
    }
}

struct DelayedUpload {
    inner: Box<dyn Upload>,
    delay: Delay,
}

impl Upload for DelayedUpload {
    fn write_order(&self) -> WriteOrder {
        self.inner.write_order()
    }

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        self.delay.before(self.inner.write_at(bytes, offset))
    }

    fn commit<'a>(self: Box<Self>, completion: &'a Completion) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move {
            self.delay.pass().await;
            self.inner.commit(completion).await
        })
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.delay.pass().await;
            self.inner.discard().await;
        })
    }
}
