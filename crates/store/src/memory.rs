//! A storage in memory: for tests, and the reference for what [`Storage`] means.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::limits;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, DirectoryEntry, Expectation, FileIdentity, Listing, Metadata, Object, Opened, Storage, Upload,
};

/// A tree of files and directories in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    tree: Arc<Mutex<Tree>>,
    /// Free bytes; without a bound when `None`.
    capacity_bytes: Option<u64>,
}

#[derive(Default)]
struct Tree {
    files: BTreeMap<ObjectPath, Arc<MemoryObject>>,
    directories: BTreeSet<ObjectPath>,
}

impl MemoryStorage {
    /// An empty tree.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// Lets no file become larger than this.
    pub fn with_capacity(mut self, bytes: u64) -> MemoryStorage {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// Makes a directory, in a directory that exists.
    pub fn add_directory(&self, path: &ObjectPath) {
        self.lock().directories.insert(path.clone());
    }

    /// Puts a file there, in a directory that exists, last changed in 1970.
    pub fn add_file(&self, path: &ObjectPath, bytes: impl Into<Vec<u8>>) {
        let object = MemoryObject::new(bytes.into(), SystemTime::UNIX_EPOCH);
        self.lock().files.insert(path.clone(), object);
    }

    /// How many files there are.
    pub fn file_count(&self) -> usize {
        self.lock().files.len()
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn is_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || self.directories.contains(path)
    }

    fn check(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let current = self.files.get(path);
        let is_as_expected = match expectation {
            Expectation::Anything => true,
            Expectation::Absent => current.is_none(),
            Expectation::Tag(tag) => current.is_some_and(|object| object.metadata.tag == *tag),
        };
        if is_as_expected { Ok(()) } else { Err(StoreError::Unexpected) }
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        let tree = self.lock();
        if tree.is_directory(path) {
            return Ok(Opened::Directory);
        }
        let object = tree.files.get(path).ok_or(StoreError::NotFound)?;
        Ok(Opened::File(Arc::<MemoryObject>::clone(object)))
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        self.open(path).map(Some)
    }

    fn list(&self, path: &ObjectPath) -> StoreResult<Listing> {
        let tree = self.lock();
        if !tree.is_directory(path) {
            let is_file = tree.files.contains_key(path);
            return Err(if is_file { StoreError::NotADirectory } else { StoreError::NotFound });
        }
        let directories = tree.directories.iter().map(|path| (path, None));
        let files = tree.files.iter().map(|(path, object)| (path, Some(&object.metadata)));
        let mut listing = Listing::default();
        for (below, metadata) in directories.chain(files) {
            let Some((_, name)) = below.split_last().filter(|(parent, _)| parent == path) else { continue };
            if listing.entries.len() == limits::LISTING_ENTRIES_MAX {
                listing.is_cut = true;
                break;
            }
            listing.entries.push(DirectoryEntry {
                name: name.to_vec(),
                is_directory: metadata.is_none(),
                size_bytes: metadata.map_or(0, |metadata| metadata.size_bytes),
                modified: metadata.map_or(SystemTime::UNIX_EPOCH, |metadata| metadata.modified),
            });
        }
        Ok(listing)
    }

    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let mut tree = self.lock();
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        if !tree.files.contains_key(path) {
            return Err(StoreError::NotFound);
        }
        tree.check(path, expectation)?;
        tree.files.remove(path);
        Ok(())
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>> {
        let (parent, _) = path.split_last().ok_or(StoreError::NotAFile)?;
        let tree = self.lock();
        if !tree.is_directory(&parent) {
            return Err(StoreError::ParentMissing);
        }
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        if let (Some(expected), Some(capacity)) = (expected_bytes, self.capacity_bytes)
            && expected > capacity
        {
            return Err(StoreError::NoSpace);
        }
        Ok(Box::new(MemoryUpload { storage: self.clone(), path: path.clone(), bytes: Vec::new() }))
    }
}

struct MemoryObject {
    metadata: Metadata,
    bytes: Vec<u8>,
}

impl MemoryObject {
    fn new(bytes: Vec<u8>, modified: SystemTime) -> Arc<MemoryObject> {
        static OBJECTS: AtomicU64 = AtomicU64::new(1);
        let number = OBJECTS.fetch_add(1, Ordering::Relaxed);
        let metadata = Metadata {
            size_bytes: bytes.len() as u64,
            modified,
            // Never in place: a change is another object.
            changed: modified,
            tag: format!("memory-{number:x}"),
            identity: FileIdentity { device: 0, number },
        };
        Arc::new(MemoryObject { metadata, bytes })
    }
}

impl Object for MemoryObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[start..];
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn is_unchanged(&self) -> bool {
        true
    }
}

struct MemoryUpload {
    storage: MemoryStorage,
    path: ObjectPath,
    bytes: Vec<u8>,
}

impl Upload for MemoryUpload {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if self.storage.capacity_bytes.is_some_and(|capacity| end > capacity) {
            return Err(StoreError::NoSpace);
        }
        let (start, end) = match (usize::try_from(offset), usize::try_from(end)) {
            (Ok(start), Ok(end)) => (start, end),
            _ => return Err(StoreError::NoSpace),
        };
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed> {
        let mut tree = self.storage.lock();
        tree.check(&self.path, expectation)?;
        let object = MemoryObject::new(self.bytes, SystemTime::now());
        let metadata = object.metadata.clone();
        let replaced = tree.files.insert(self.path, object).is_some();
        Ok(Committed { metadata, replaced })
    }
}
