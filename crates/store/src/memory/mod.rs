//! A storage in memory: for tests, and the reference for what [`Storage`](crate::Storage) means.

mod file;
mod target;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_share::turns::Turns;

use crate::blocking::{BlockingFile, BlockingStorage, Read};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    DirectoryEntry, Expectation, FileIdentity, Metadata, NodeKind, Opened, Overwrite, Space,
};
use crate::target::{Found, TargetOptions};
use crate::writable::{
    Disposition, Visibility, WriteOptions, check_attribute, check_attribute_name, existing_or_new,
};
use file::{MemoryFile, MemoryObject, MemoryUpload, MemoryWritable, Target};
use target::{StoredTarget, Unfinished};

pub use target::MemoryTarget;

/// The attributes of a file or directory that users have set.
type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

const PERMISSIONS: u32 = 0o777;

/// A tree of files and directories in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    tree: Arc<Mutex<Tree>>,
    turns: Arc<Turns>,
    /// For all files together; without a bound when `None`.
    capacity_bytes: Option<u64>,
}

#[derive(Default)]
struct Tree {
    /// Everything but the root.
    nodes: BTreeMap<ObjectPath, Node>,
    /// Partial files of copies, by the path where the file shall be.
    targets: BTreeMap<ObjectPath, Arc<Unfinished>>,
    root_attributes: Attributes,
}

enum Node {
    File(Arc<MemoryFile>),
    Directory(Metadata, Attributes),
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
        self.lock().put(path, MemoryFile::new(bytes.into(), SystemTime::UNIX_EPOCH, None));
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.lock().nodes.values().filter(|node| matches!(node, Node::File(_))).count()
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_bytes(&self, tree: &Tree) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(tree.used_bytes()))
    }

    fn require_room(&self, tree: &Tree, bytes: u64) -> StoreResult<()> {
        if bytes > self.free_bytes(tree) { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    /// For a file that is to be there.
    fn require_place(&self, tree: &Tree, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<()> {
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        tree.require_parent(path)?;
        self.require_room(tree, expected_bytes.unwrap_or(0))
    }

    /// Opens a file that is visible, or makes it.
    fn in_place(
        &self,
        path: &ObjectPath,
        disposition: Disposition,
        options: &WriteOptions,
    ) -> StoreResult<Arc<MemoryFile>> {
        let mut tree = self.lock();
        if tree.is_directory(path) {
            return Err(StoreError::NotAFile);
        }
        if disposition == Disposition::Existing {
            let Node::File(file) = tree.get(path)? else { return Err(StoreError::NotAFile) };
            let growth = options.expected_bytes.unwrap_or(0).saturating_sub(file.metadata().size_bytes);
            self.require_room(&tree, growth)?;
            return Ok(Arc::clone(file));
        }
        self.require_place(&tree, path, options.expected_bytes)?;
        tree.check(path, &Expectation::Absent)?;
        let file = MemoryFile::new(Vec::new(), SystemTime::now(), options.mode);
        tree.put(path, Arc::clone(&file));
        Ok(file)
    }

    /// Works on the attributes of what is at `path`.
    fn with_attributes<T>(
        &self,
        path: &ObjectPath,
        work: impl FnOnce(&mut Attributes) -> T,
    ) -> StoreResult<T> {
        let mut tree = self.lock();
        if path.is_root() {
            return Ok(work(&mut tree.root_attributes));
        }
        match tree.nodes.get_mut(path).ok_or(StoreError::NotFound)? {
            Node::File(file) => Ok(work(&mut file.lock().attributes)),
            Node::Directory(_, attributes) => Ok(work(attributes)),
        }
    }
}

impl Node {
    fn new_directory() -> Node {
        Node::Directory(metadata(NodeKind::Directory, 0, SystemTime::now()), Attributes::new())
    }

    fn metadata(&self) -> Metadata {
        match self {
            Node::File(file) => file.metadata(),
            Node::Directory(metadata, _) => metadata.clone(),
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, Node::Directory(..))
    }
}

impl Tree {
    fn is_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || self.nodes.get(path).is_some_and(Node::is_directory)
    }

    fn get(&self, path: &ObjectPath) -> StoreResult<&Node> {
        self.nodes.get(path).ok_or(StoreError::NotFound)
    }

    /// Of all files together.
    fn used_bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.metadata().size_bytes).sum()
    }

    /// Returns the length of what was there before.
    fn put(&mut self, path: &ObjectPath, file: Arc<MemoryFile>) -> Option<u64> {
        self.nodes.insert(path.clone(), Node::File(file)).map(|node| node.metadata().size_bytes)
    }

    /// Everything below a directory, parents before their children.
    fn below(&self, path: &ObjectPath) -> impl Iterator<Item = (&ObjectPath, &Node)> {
        self.nodes.range(path.subtree_start()..).take_while(|(below, _)| below.is_below(path))
    }

    /// Takes a node out, with everything below it.
    fn take_tree(&mut self, path: &ObjectPath) -> Vec<(ObjectPath, Node)> {
        let mut paths: Vec<_> = self.below(path).map(|(below, _)| below.clone()).collect();
        paths.push(path.clone());
        paths.into_iter().filter_map(|path| self.nodes.remove(&path).map(|node| (path, node))).collect()
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

impl BlockingStorage for MemoryStorage {
    type Object = MemoryObject;
    type Upload = MemoryUpload;
    type File = MemoryWritable;

    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        if path.is_root() {
            return Ok(Metadata {
                tag: "memory-root".to_owned(),
                // An address, for everything else a count: no two trees have the same root.
                identity: FileIdentity { device: 0, number: Arc::as_ptr(&self.tree).addr() as u64 },
                ..metadata(NodeKind::Directory, 0, SystemTime::UNIX_EPOCH)
            });
        }
        Ok(self.lock().get(path)?.metadata())
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<MemoryObject>> {
        if path.is_root() {
            return Ok(Opened::Directory);
        }
        Ok(match self.lock().get(path)? {
            Node::File(file) => Opened::File(Arc::new(MemoryObject::new(self, file))),
            Node::Directory(..) => Opened::Directory,
        })
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened<MemoryObject>>> {
        self.open(path).map(Some)
    }

    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        self.look(path).map(Some)
    }

    fn entries(&self, path: &ObjectPath) -> StoreResult<Read<DirectoryEntry>> {
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
        tree.nodes.remove(path);
        Ok(())
    }

    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        let mut tree = self.lock();
        tree.require_removable(path)?;
        if tree.below(path).next().is_some() {
            return Err(StoreError::NotEmpty);
        }
        tree.nodes.remove(path);
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
        overwrite: Overwrite,
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
        if replaced && overwrite == Overwrite::Nothing {
            return Err(StoreError::Unexpected);
        }
        if replaced && overwrite == Overwrite::Files {
            for end in [from, to] {
                if tree.get(end)?.is_directory() {
                    return Err(StoreError::NotAFile);
                }
            }
        }
        tree.take_tree(to);
        for (path, node) in tree.take_tree(from) {
            tree.nodes.insert(path.moved(from, to), node);
        }
        Ok(replaced)
    }

    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        if path.is_root() {
            return Err(StoreError::InUse);
        }
        let mut tree = self.lock();
        match tree.nodes.get_mut(path).ok_or(StoreError::NotFound)? {
            Node::File(file) => {
                let mut state = file.lock();
                state.metadata.modified = modified;
                state.kept.clear();
            }
            Node::Directory(metadata, _) => metadata.modified = modified,
        }
        Ok(())
    }

    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        self.look(path)?;
        let tree = self.lock();
        Ok(Space {
            total_bytes: self.capacity_bytes.unwrap_or(u64::MAX),
            used_bytes: tree.used_bytes(),
            available_bytes: self.free_bytes(&tree),
        })
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<MemoryUpload> {
        self.require_place(&self.lock(), path, expected_bytes)?;
        Ok(MemoryUpload::new(self.clone(), path.clone()))
    }

    fn has_targets(&self) -> bool {
        true
    }

    fn open_target(
        &self,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(Arc<dyn crate::Target>, Found)> {
        if let (true, Some((parent, _))) = (options.parents, path.split_last()) {
            self.make_directories(&parent)?;
        }
        let (target, found) = StoredTarget::open(self, path, options)?;
        Ok((Arc::new(target), found))
    }

    fn unfinished_bytes(&self, directory: &ObjectPath) -> StoreResult<u64> {
        Ok(if directory.is_root() { self.lock().unfinished_bytes() } else { 0 })
    }

    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        let Some(moment) = SystemTime::now().checked_sub(age) else { return Ok(0) };
        let mut tree = self.lock();
        let before = tree.targets.len();
        tree.targets.retain(|_, target| !target.is_left_since(moment));
        Ok(before - tree.targets.len())
    }

    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<MemoryWritable> {
        options.check()?;
        if let (true, Some((parent, _))) = (options.makes_parents(), path.split_last()) {
            self.make_directories(&parent)?;
        }
        if options.visibility == Visibility::WhenClosed {
            let tree = self.lock();
            let expectation = match options.disposition {
                Disposition::New => Expectation::Absent,
                _ => Expectation::Anything,
            };
            self.require_place(&tree, path, options.expected_bytes)?;
            tree.check(path, &expectation)?;
            let file = MemoryFile::new(Vec::new(), SystemTime::now(), options.mode);
            let target = Target::WhenClosed(path.clone(), expectation);
            return Ok(MemoryWritable::new(self.clone(), file, target));
        }
        let file = match options.disposition {
            Disposition::Replace => existing_or_new(|disposition| self.in_place(path, disposition, options))?,
            disposition => self.in_place(path, disposition, options)?,
        };
        let writable = MemoryWritable::new(self.clone(), file, Target::InPlace);
        if options.disposition == Disposition::Replace {
            writable.truncate(0)?;
        }
        Ok(writable)
    }

    fn set_mode(&self, path: &ObjectPath, mode: u32) -> StoreResult<()> {
        if path.is_root() {
            return Err(StoreError::InUse);
        }
        let set = |metadata: &mut Metadata| {
            metadata.mode = (metadata.mode & !PERMISSIONS) | (mode & PERMISSIONS);
            metadata.changed = SystemTime::now();
        };
        match self.lock().nodes.get_mut(path).ok_or(StoreError::NotFound)? {
            Node::File(file) => set(&mut file.lock().metadata),
            Node::Directory(metadata, _) => set(metadata),
        }
        Ok(())
    }

    fn attribute_names(&self, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
        self.with_attributes(path, |attributes| attributes.keys().cloned().collect())
    }

    fn attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        check_attribute_name(name)?;
        self.with_attributes(path, |attributes| attributes.get(name).cloned())
    }

    fn set_attribute(
        &self,
        path: &ObjectPath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StoreResult<()> {
        check_attribute(name, value)?;
        self.with_attributes(path, |attributes| {
            if must_be_new && attributes.contains_key(name) {
                return Err(StoreError::Unexpected);
            }
            attributes.insert(name.to_vec(), value.to_vec());
            Ok(())
        })?
    }

    fn remove_attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
        check_attribute_name(name)?;
        self.with_attributes(path, |attributes| attributes.remove(name).is_some())
    }
}

/// A number that nothing else has, and no other state of the same.
fn unused_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

fn tag_of(number: u64) -> String {
    format!("memory-{number:x}")
}

/// Of something new.
fn metadata(kind: NodeKind, size_bytes: u64, modified: SystemTime) -> Metadata {
    let number = unused_number();
    Metadata {
        kind,
        size_bytes,
        modified,
        changed: modified,
        created: Some(modified),
        tag: tag_of(number),
        identity: FileIdentity { device: 0, number },
        mode: match kind {
            NodeKind::File => 0o100_644,
            NodeKind::Directory => 0o040_755,
        },
        owner: 0,
        group: 0,
    }
}
