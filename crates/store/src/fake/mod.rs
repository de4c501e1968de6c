//! Storages that misbehave, for tests: one whose disk waits until it is told to go on, and one whose
//! disk fails. Both wrap a storage that works and pass its conformance suite while they behave. And two that hold no thread while
//! they take their time: one that is far away, and one like an object store.

mod delayed;
mod objects;

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_share::Turns;
use rustix::io::Errno;

use crate::blocking::{BlockingFile, BlockingObject, BlockingStorage, BlockingUpload, Read};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, Completion, DirectoryEntry, Expectation, Metadata, Opened, Overwrite, Space,
};
use crate::target::{Found, Target, TargetOptions, delegate_target, failed};
use crate::writable::{Whole, WriteOptions};

pub use delayed::{Delay, DelayedStorage};
pub use objects::ObjectStore;

/// Far longer than anything takes in a test that passes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate in front of a disk: closed, whatever has to pass it waits; open, nothing does.
#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
    passed: usize,
}

impl Gate {
    /// An open gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets what comes wait from now on.
    pub fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Lets everything through.
    pub fn open(&self) {
        self.change(|state| state.is_closed = false);
    }

    /// Returns when at least `count` operations wait: no test needs to sleep. Panics when they do not come.
    pub fn wait_for_waiting(&self, count: usize) {
        let (lock, changed) = &*self.state;
        let state = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(state, PATIENCE, |state| state.waiting < count);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let waiting = state.waiting;
        drop(state);
        assert!(waiting >= count, "{waiting} of {count} operations wait after {PATIENCE:?}");
    }

    /// Operations that went through so far.
    pub fn passed(&self) -> usize {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).passed
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let (lock, changed) = &*self.state;
        change(&mut lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn pass(&self) {
        let (lock, changed) = &*self.state;
        let mut state = lock.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        changed.notify_all();
        while state.is_closed {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.passed += 1;
    }
}

/// The methods that a wrapper of files passes on unchanged.
macro_rules! delegate_names {
    () => {
        fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
            self.wait_for_names();
            self.inner.look(path)
        }

        fn is_link(&self, path: &ObjectPath) -> StoreResult<bool> {
            self.wait_for_names();
            self.inner.is_link(path)
        }

        fn entries(&self, path: &ObjectPath) -> StoreResult<Read<DirectoryEntry>> {
            self.wait_for_names();
            self.inner.entries(path)
        }

        fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.make_directory(path)
        }

        fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.remove(path, expectation)
        }

        fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.remove_directory(path)
        }

        fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.remove_tree(path)
        }

        fn rename(
            &self,
            from: &ObjectPath,
            to: &ObjectPath,
            overwrite: Overwrite,
            expectation: &Expectation,
        ) -> StoreResult<bool> {
            self.wait_for_names();
            self.inner.rename(from, to, overwrite, expectation)
        }

        fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.set_modified(path, modified)
        }

        fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
            self.wait_for_names();
            self.inner.space(path)
        }

        fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
            self.wait_for_names();
            self.inner.remove_abandoned(age)
        }

        fn has_targets(&self) -> bool {
            self.inner.has_targets()
        }

        fn open_target(
            &self,
            path: &ObjectPath,
            options: &TargetOptions,
        ) -> StoreResult<(Arc<dyn Target>, Found)> {
            self.wait_for_names();
            let (inner, found) = self.inner.open_target(path, options)?;
            Ok((self.target(inner), found))
        }

        fn unfinished_bytes(&self, directory: &ObjectPath) -> StoreResult<u64> {
            self.wait_for_names();
            self.inner.unfinished_bytes(directory)
        }

        fn set_mode(&self, path: &ObjectPath, mode: u32) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.set_mode(path, mode)
        }

        fn attribute_names(&self, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
            self.wait_for_names();
            self.inner.attribute_names(path)
        }

        fn attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
            self.wait_for_names();
            self.inner.attribute(path, name)
        }

        fn set_attribute(
            &self,
            path: &ObjectPath,
            name: &[u8],
            value: &[u8],
            must_be_new: bool,
        ) -> StoreResult<()> {
            self.wait_for_names();
            self.inner.set_attribute(path, name, value, must_be_new)
        }

        fn remove_attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
            self.wait_for_names();
            self.inner.remove_attribute(path, name)
        }
    };
}

/// The methods that a wrapper of a file that is open for being changed passes on unchanged.
macro_rules! delegate_writable {
    () => {
        fn metadata(&self) -> StoreResult<Metadata> {
            self.inner.metadata()
        }

        fn has_name(&self) -> bool {
            self.inner.has_name()
        }

        fn close(&self, whole: Option<&Whole>) -> StoreResult<Committed> {
            self.inner.close(whole)
        }
    };
}

/// A storage whose files are never in memory: every read, write, sync and commit of an upload has to pass a [`Gate`]. With
/// [`with_names`](SlowStorage::with_names), whatever is about names and directories as well.
pub struct SlowStorage<S> {
    inner: S,
    gate: Gate,
    turns: Arc<Turns>,
    names: Option<Gate>,
}

impl<S: BlockingStorage> SlowStorage<S> {
    /// `inner` behind `gate`.
    pub fn new(inner: S, gate: Gate) -> SlowStorage<S> {
        SlowStorage { inner, gate, turns: Arc::default(), names: None }
    }

    /// With a gate (the same one, or another) in front of names and directories.
    #[must_use]
    pub fn with_names(mut self, gate: Gate) -> SlowStorage<S> {
        self.names = Some(gate);
        self
    }

    fn wait_for_names(&self) {
        self.names.iter().for_each(Gate::pass);
    }

    fn target(&self, inner: Arc<dyn Target>) -> Arc<dyn Target> {
        let (gate, turns) = (self.gate.clone(), Arc::clone(&self.turns));
        Arc::new(HeldTarget { inner, turns, pass: move || gate.pass() })
    }

    fn object(&self, inner: Arc<S::Object>) -> SlowObject<S::Object> {
        SlowObject { inner, gate: self.gate.clone(), turns: Arc::clone(&self.turns) }
    }
}

impl<S: BlockingStorage> BlockingStorage for SlowStorage<S> {
    type Object = SlowObject<S::Object>;
    type Upload = SlowUpload<S::Upload>;
    type File = SlowWritable<S::File>;

    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<Self::Object>> {
        self.wait_for_names();
        Ok(match self.inner.open(path)? {
            Opened::File(inner) => Opened::File(Arc::new(self.object(inner))),
            Opened::Directory => Opened::Directory,
        })
    }

    delegate_names!();

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Self::Upload> {
        self.wait_for_names();
        let inner = self.inner.create(path, expected_bytes)?;
        Ok(SlowUpload { inner, gate: self.gate.clone() })
    }

    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Self::File> {
        self.wait_for_names();
        let inner = self.inner.open_writable(path, options)?;
        Ok(SlowWritable { inner, gate: self.gate.clone(), turns: Arc::clone(&self.turns) })
    }
}

/// A file of a [`SlowStorage`] that is being changed.
pub struct SlowWritable<F> {
    inner: F,
    gate: Gate,
    turns: Arc<Turns>,
}

impl<F: BlockingFile> BlockingFile for SlowWritable<F> {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    delegate_writable!();

    fn sync(&self) -> StoreResult<()> {
        self.gate.pass();
        self.inner.sync()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }

    fn read_at_nowait(&self, _target: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.gate.pass();
        self.inner.read_at(target, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.gate.pass();
        self.inner.write_at(bytes, offset)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> StoreResult<()> {
        self.gate.pass();
        self.inner.write_vectored_at(parts, offset)
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        self.inner.truncate(size_bytes)
    }
}

/// A file of a [`SlowStorage`] that is being uploaded.
pub struct SlowUpload<U> {
    inner: U,
    gate: Gate,
}

impl<U: BlockingUpload> BlockingUpload for SlowUpload<U> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.gate.pass();
        self.inner.write_at(bytes, offset)
    }

    fn commit(&self, completion: &Completion) -> StoreResult<Committed> {
        self.gate.pass();
        self.inner.commit(completion)
    }
}

/// A file of a [`SlowStorage`].
pub struct SlowObject<O> {
    inner: Arc<O>,
    gate: Gate,
    turns: Arc<Turns>,
}

impl<O: BlockingObject> BlockingObject for SlowObject<O> {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }

    fn read_at_nowait(&self, _target: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.gate.pass();
        self.inner.read_at(target, offset)
    }

    fn is_unchanged(&self) -> bool {
        self.inner.is_unchanged()
    }

    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        self.inner.kept_checksum(kind)
    }

    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        self.inner.keep_checksum(checksum)
    }
}

/// A storage whose disk breaks behind a given offset: reads end there as if the file had been cut, and
/// writes find no space.
pub struct FaultyStorage<S> {
    inner: S,
    works_up_to: Arc<AtomicU64>,
    is_broken: bool,
    is_changing: bool,
}

impl<S: BlockingStorage> FaultyStorage<S> {
    /// `inner`, with a disk that works up to that offset of every file.
    pub fn new(inner: S, works_up_to: u64) -> FaultyStorage<S> {
        let works_up_to = Arc::new(AtomicU64::new(works_up_to));
        FaultyStorage { inner, works_up_to, is_broken: false, is_changing: false }
    }

    /// Lets reads behind the offset fail, rather than end.
    pub fn broken(mut self) -> FaultyStorage<S> {
        self.is_broken = true;
        self
    }

    /// It fails, and does not wait.
    fn wait_for_names(&self) {}

    fn target(&self, inner: Arc<dyn Target>) -> Arc<dyn Target> {
        Arc::new(FaultyTarget { inner, disk: self.disk() })
    }

    fn disk(&self) -> FaultyDisk {
        FaultyDisk { works_up_to: Arc::clone(&self.works_up_to), is_broken: self.is_broken }
    }

    /// Lets files change while they are open.
    pub fn changing(mut self) -> FaultyStorage<S> {
        self.is_changing = true;
        self
    }
}

impl<S: BlockingStorage> BlockingStorage for FaultyStorage<S> {
    type Object = FaultyObject<S::Object>;
    type Upload = FaultyUpload<S::Upload>;
    type File = FaultyWritable<S::File>;

    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<Self::Object>> {
        Ok(match self.inner.open(path)? {
            Opened::File(inner) => {
                let is_changing = self.is_changing;
                Opened::File(Arc::new(FaultyObject { inner, disk: self.disk(), is_changing }))
            }
            Opened::Directory => Opened::Directory,
        })
    }

    delegate_names!();

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Self::Upload> {
        let inner = self.inner.create(path, expected_bytes)?;
        Ok(FaultyUpload { inner, disk: self.disk() })
    }

    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Self::File> {
        let inner = self.inner.open_writable(path, options)?;
        Ok(FaultyWritable { inner, disk: self.disk() })
    }
}

/// A target that has to pass something before each read, write and sync of its bytes, and before its commit.
struct HeldTarget<P> {
    inner: Arc<dyn Target>,
    turns: Arc<Turns>,
    pass: P,
}

impl<P: Fn() + Send + Sync + 'static> Target for HeldTarget<P> {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    delegate_target!(name, size_bytes, allocated_bytes, free_bytes, journal, restart, is_doubtful, discard);

    fn write_at(&self, bytes: &[u8], offset: u64) -> gridlane_core::Result<()> {
        (self.pass)();
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.pass)();
        self.inner.read_at(into, offset)
    }

    fn sync(&self) -> gridlane_core::Result<()> {
        (self.pass)();
        self.inner.sync()
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> gridlane_core::Result<Committed> {
        (self.pass)();
        self.inner.commit(size_bytes, completion)
    }
}

/// A target of a [`FaultyStorage`].
struct FaultyTarget {
    inner: Arc<dyn Target>,
    disk: FaultyDisk,
}

impl Target for FaultyTarget {
    delegate_target!(turns, name, size_bytes, allocated_bytes, free_bytes, journal, restart, is_doubtful);
    delegate_target!(sync, commit, discard);

    fn write_at(&self, bytes: &[u8], offset: u64) -> gridlane_core::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.disk.require(end).map_err(|error| failed(self.name(), error))?;
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.disk.readable(into.len(), offset)?;
        self.inner.read_at(&mut into[..count], offset)
    }
}

/// A disk that works up to some offset of every file.
struct FaultyDisk {
    works_up_to: Arc<AtomicU64>,
    is_broken: bool,
}

impl FaultyDisk {
    /// Bytes of `wanted` that can be read at `offset`.
    fn readable(&self, wanted: usize, offset: u64) -> io::Result<usize> {
        let left = self.works_up_to.load(Ordering::Relaxed).saturating_sub(offset);
        if left == 0 && self.is_broken {
            return Err(io::Error::from_raw_os_error(Errno::IO.raw_os_error()));
        }
        Ok(wanted.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    fn require(&self, end: u64) -> StoreResult<()> {
        if end > self.works_up_to.load(Ordering::Relaxed) { Err(StoreError::NoSpace) } else { Ok(()) }
    }
}

/// A file of a [`FaultyStorage`] that is being changed.
pub struct FaultyWritable<F> {
    inner: F,
    disk: FaultyDisk,
}

impl<F: BlockingFile> BlockingFile for FaultyWritable<F> {
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    delegate_writable!();

    fn sync(&self) -> StoreResult<()> {
        self.inner.sync()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.disk.readable(target.len(), offset)?;
        self.inner.read_at(&mut target[..count], offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.disk.require(offset.saturating_add(bytes.len() as u64))?;
        self.inner.write_at(bytes, offset)
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        self.disk.require(size_bytes)?;
        self.inner.truncate(size_bytes)
    }
}

/// A file of a [`FaultyStorage`].
pub struct FaultyObject<O> {
    inner: Arc<O>,
    disk: FaultyDisk,
    is_changing: bool,
}

impl<O: BlockingObject> BlockingObject for FaultyObject<O> {
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.disk.readable(target.len(), offset)?;
        self.inner.read_at(&mut target[..count], offset)
    }

    fn is_unchanged(&self) -> bool {
        !self.is_changing && self.inner.is_unchanged()
    }

    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        if self.is_changing { None } else { self.inner.kept_checksum(kind) }
    }

    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        if self.is_changing { Ok(()) } else { self.inner.keep_checksum(checksum) }
    }
}

/// A file of a [`FaultyStorage`] that is being uploaded.
pub struct FaultyUpload<U> {
    inner: U,
    disk: FaultyDisk,
}

impl<U: BlockingUpload> BlockingUpload for FaultyUpload<U> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.disk.require(offset.saturating_add(bytes.len() as u64))?;
        self.inner.write_at(bytes, offset)
    }

    fn commit(&self, completion: &Completion) -> StoreResult<Committed> {
        self.inner.commit(completion)
    }
}
