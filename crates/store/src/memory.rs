//! A storage in memory: for tests, and the reference for what [`Storage`] means.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::{Checksum, ChecksumKind};

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    Committed, DirectoryEntry, Entries, Expectation, FileIdentity, Metadata, NodeKind, Object, Opened, Space,
    Storage, Upload,
};

/// A tree of files and directories in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    tree: Arc<Mutex<Tree>>,
    /// For all files together; without a bound when `None`.
    capacity_bytes: Option<u64>,
}

#[derive(Default)]
struct Tree {
    /// Everything but the root.
    nodes: BTreeMap<ObjectPath, Node>,
    /// Of all files together.
    used_bytes: u64,
}

#[derive(Clone)]
enum Node {
    File(Arc<MemoryObject>),
    Directory(Metadata),
}

impl MemoryStorage {
    /// An empty tree.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// Lets all files together become no larger than this.
    pub fn with_capacity(mut self, bytes: u64) -> MemoryStorage {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// Makes a directory, in a directory that exists.
    pub fn add_directory(&self, path: &ObjectPath) {
        self.lock().nodes.insert(path.clone(), Node::new_directory());
    }

    /// Puts a file there, in a directory that exists, last changed in 1970.
    pub fn add_file(&self, path: &ObjectPath, bytes: impl Into<Vec<u8>>) {
        self.lock().put(path, MemoryObject::new(Arc::new(bytes.into()), SystemTime::UNIX_EPOCH));
    }

    /// How many files there are.
    pub fn file_count(&self) -> usize {
        self.lock().nodes.values().filter(|node| matches!(node, Node::File(_))).count()
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_bytes(&self, tree: &Tree) -> u64 {
        self.capacity_bytes.unwrap_or(u64::MAX).saturating_sub(tree.used_bytes)
    }
}

impl Node {
    fn new_directory() -> Node {
        Node::Directory(metadata(NodeKind::Directory, 0, SystemTime::now()))
    }

    fn metadata(&self) -> &Metadata {
        match self {
            Node::File(object) => &object.metadata,
            Node::Directory(metadata) => metadata,
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, Node::Directory(_))
    }
}

impl Tree {
    fn is_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || self.nodes.get(path).is_some_and(Node::is_directory)
    }

    fn get(&self, path: &ObjectPath) -> StoreResult<&Node> {
        self.nodes.get(path).ok_or(StoreError::NotFound)
    }

    /// Returns the length of what was there before.
    fn put(&mut self, path: &ObjectPath, object: Arc<MemoryObject>) -> Option<u64> {
        let replaced = self.take(path).map(|node| node.metadata().size_bytes);
        self.used_bytes += object.metadata.size_bytes;
        self.nodes.insert(path.clone(), Node::File(object));
        replaced
    }

    fn take(&mut self, path: &ObjectPath) -> Option<Node> {
        let node = self.nodes.remove(path)?;
        self.used_bytes -= node.metadata().size_bytes;
        Some(node)
    }

    /// Everything below a directory, parents before their children.
    fn below(&self, path: &ObjectPath) -> impl Iterator<Item = (&ObjectPath, &Node)> {
        self.nodes.range(path.subtree_start()..).take_while(|(below, _)| below.is_below(path))
    }

    /// Takes a node out, with everything below it.
    fn take_tree(&mut self, path: &ObjectPath) -> Vec<(ObjectPath, Node)> {
        let mut paths: Vec<_> = self.below(path).map(|(below, _)| below.clone()).collect();
        paths.push(path.clone());
        paths.into_iter().filter_map(|path| self.take(&path).map(|node| (path, node))).collect()
    }

    fn require_parent(&self, path: &ObjectPath) -> StoreResult<()> {
        match path.split_last() {
            Some((parent, _)) if !self.is_directory(&parent) => Err(StoreError::ParentMissing),
            _ => Ok(()),
        }
    }

    fn check(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let current = self.nodes.get(path);
        let is_as_expected = match expectation {
            Expectation::Anything => true,
            Expectation::Absent => current.is_none(),
            Expectation::Tag(tag) => current.is_some_and(|node| node.metadata().tag == *tag),
        };
        if is_as_expected { Ok(()) } else { Err(StoreError::Unexpected) }
    }

    /// For removing the directory at `path`.
    fn require_removable(&self, path: &ObjectPath) -> StoreResult<()> {
        if path.is_root() {
            return Err(StoreError::InUse);
        }
        if self.get(path)?.is_directory() { Ok(()) } else { Err(StoreError::NotADirectory) }
    }
}

impl Storage for MemoryStorage {
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        if path.is_root() {
            return Ok(Metadata {
                tag: "memory-root".to_owned(),
                // An address, for everything else a count: no two trees have the same root.
                identity: FileIdentity { device: 0, number: Arc::as_ptr(&self.tree).addr() as u64 },
                ..metadata(NodeKind::Directory, 0, SystemTime::UNIX_EPOCH)
            });
        }
        Ok(self.lock().get(path)?.metadata().clone())
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        if path.is_root() {
            return Ok(Opened::Directory);
        }
        Ok(match self.lock().get(path)? {
            Node::File(object) => Opened::File(Arc::<MemoryObject>::clone(object)),
            Node::Directory(_) => Opened::Directory,
        })
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        self.open(path).map(Some)
    }

    fn entries(&self, path: &ObjectPath) -> StoreResult<Entries> {
        let tree = self.lock();
        if !tree.is_directory(path) {
            tree.get(path)?;
            return Err(StoreError::NotADirectory);
        }
        let is_in = |below: &ObjectPath| below.split_last().is_some_and(|(parent, _)| parent == *path);
        let paths: Vec<_> =
            tree.below(path).map(|(below, _)| below).filter(|below| is_in(below)).cloned().collect();
        drop(tree);
        let storage = self.clone();
        Ok(Box::new(paths.into_iter().filter_map(move |path| {
            let metadata = storage.look(&path).ok()?;
            let (_, name) = path.split_last()?;
            Some(Ok(DirectoryEntry { name: name.to_vec(), metadata, is_link: false }))
        })))
    }

    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        let mut tree = self.lock();
        tree.require_parent(path)?;
        if path.is_root() || tree.nodes.contains_key(path) {
            return Err(StoreError::Unexpected);
        }
        tree.nodes.insert(path.clone(), Node::new_directory());
        Ok(())
    }

    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let mut tree = self.lock();
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        tree.get(path)?;
        tree.check(path, expectation)?;
        tree.take(path);
        Ok(())
    }

    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        let mut tree = self.lock();
        tree.require_removable(path)?;
        if tree.below(path).next().is_some() {
            return Err(StoreError::NotEmpty);
        }
        tree.take(path);
        Ok(())
    }

    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        let mut tree = self.lock();
        tree.require_removable(path)?;
        tree.take_tree(path);
        Ok(())
    }

    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: bool,
        expectation: &Expectation,
    ) -> StoreResult<bool> {
        if from.is_root() || to.is_root() {
            return Err(StoreError::InUse);
        }
        let mut tree = self.lock();
        tree.get(from)?;
        if from == to || to.is_below(from) || from.is_below(to) {
            return Err(StoreError::IntoItself);
        }
        tree.require_parent(to)?;
        tree.check(from, expectation)?;
        let replaced = tree.nodes.contains_key(to);
        if replaced && !overwrite {
            return Err(StoreError::Unexpected);
        }
        tree.take_tree(to);
        for (path, node) in tree.take_tree(from) {
            tree.used_bytes += node.metadata().size_bytes;
            tree.nodes.insert(path.moved(from, to), node);
        }
        Ok(replaced)
    }

    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        if path.is_root() {
            return Err(StoreError::InUse);
        }
        let mut tree = self.lock();
        match tree.get(path)?.clone() {
            Node::File(object) => {
                let metadata = Metadata { modified, ..object.metadata.clone() };
                let (bytes, kept) = (Arc::clone(&object.bytes), Mutex::default());
                tree.nodes.insert(path.clone(), Node::File(Arc::new(MemoryObject { metadata, bytes, kept })));
            }
            Node::Directory(metadata) => {
                tree.nodes.insert(path.clone(), Node::Directory(Metadata { modified, ..metadata }));
            }
        }
        Ok(())
    }

    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        self.look(path)?;
        let tree = self.lock();
        Ok(Space {
            total_bytes: self.capacity_bytes.unwrap_or(u64::MAX),
            used_bytes: tree.used_bytes,
            available_bytes: self.free_bytes(&tree),
        })
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>> {
        let tree = self.lock();
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        tree.require_parent(path)?;
        if expected_bytes.unwrap_or(0) > self.free_bytes(&tree) {
            return Err(StoreError::NoSpace);
        }
        let (storage, path) = (self.clone(), path.clone());
        Ok(Box::new(MemoryUpload { storage, path, bytes: Vec::new(), modified: None, checksums: Vec::new() }))
    }
}

/// Of something new.
fn metadata(kind: NodeKind, size_bytes: u64, modified: SystemTime) -> Metadata {
    static NODES: AtomicU64 = AtomicU64::new(1);
    let number = NODES.fetch_add(1, Ordering::Relaxed);
    Metadata {
        kind,
        size_bytes,
        modified,
        // Never in place: other bytes are another object.
        changed: modified,
        created: Some(modified),
        tag: format!("memory-{number:x}"),
        identity: FileIdentity { device: 0, number },
        mode: match kind {
            NodeKind::File => 0o100_644,
            NodeKind::Directory => 0o040_755,
        },
        owner: 0,
        group: 0,
    }
}

struct MemoryObject {
    metadata: Metadata,
    bytes: Arc<Vec<u8>>,
    kept: Mutex<Vec<Checksum>>,
}

impl MemoryObject {
    fn new(bytes: Arc<Vec<u8>>, modified: SystemTime) -> Arc<MemoryObject> {
        let metadata = metadata(NodeKind::File, bytes.len() as u64, modified);
        Arc::new(MemoryObject { metadata, bytes, kept: Mutex::default() })
    }

    fn lock_kept(&self) -> MutexGuard<'_, Vec<Checksum>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        self.lock_kept().iter().find(|kept| kept.kind() == kind).cloned()
    }

    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        let mut kept = self.lock_kept();
        kept.retain(|kept| kept.kind() != checksum.kind());
        kept.push(checksum.clone());
        Ok(())
    }
}

struct MemoryUpload {
    storage: MemoryStorage,
    path: ObjectPath,
    bytes: Vec<u8>,
    modified: Option<SystemTime>,
    checksums: Vec<Checksum>,
}

impl Upload for MemoryUpload {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.storage.free_bytes(&self.storage.lock()) {
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
        self.checksums.clear();
        Ok(())
    }

    fn set_modified(&mut self, modified: SystemTime) -> StoreResult<()> {
        self.modified = Some(modified);
        Ok(())
    }

    fn keep_checksums(&mut self, checksums: &[Checksum]) {
        self.checksums = checksums.to_vec();
    }

    fn commit(self: Box<Self>, expectation: &Expectation) -> StoreResult<Committed> {
        let mut tree = self.storage.lock();
        tree.check(&self.path, expectation)?;
        // Both may have been changed since the upload began.
        tree.require_parent(&self.path)?;
        if tree.is_directory(&self.path) {
            return Err(StoreError::NotAFile);
        }
        let object = MemoryObject::new(Arc::new(self.bytes), self.modified.unwrap_or_else(SystemTime::now));
        *object.lock_kept() = self.checksums;
        let metadata = object.metadata.clone();
        let replaced = tree.put(&self.path, object);
        Ok(Committed { metadata, replaced: replaced.is_some(), replaced_bytes: replaced.unwrap_or(0) })
    }
}
