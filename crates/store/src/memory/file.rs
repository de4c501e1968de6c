//! Files in memory: the state that all handles of one share, and the three ways to have it open.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_share::Turns;

use super::{Attributes, MemoryStorage, Node, PERMISSIONS, metadata, tag_of, unused_number};
use crate::blocking::{BlockingFile, BlockingObject, BlockingUpload};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion, Expectation, Metadata, NodeKind};
use crate::writable::{Whole, check_length, end_of};

/// Permissions that the owner of a file has in any case.
const OWN_PERMISSIONS: u32 = 0o600;

/// A file, under a name or not.
pub(super) struct MemoryFile {
    state: Mutex<FileState>,
}

/// Locked after the tree, where both are needed.
pub(super) struct FileState {
    pub(super) metadata: Metadata,
    bytes: Vec<u8>,
    pub(super) kept: Vec<Checksum>,
    pub(super) attributes: Attributes,
    /// Number of changes in place.
    changes: u64,
}

impl MemoryFile {
    pub(super) fn new(bytes: Vec<u8>, modified: SystemTime, mode: Option<u32>) -> Arc<MemoryFile> {
        let mut metadata = metadata(NodeKind::File, bytes.len() as u64, modified);
        if let Some(mode) = mode {
            metadata.mode = (metadata.mode & !PERMISSIONS) | (mode & PERMISSIONS) | OWN_PERMISSIONS;
        }
        let (kept, attributes) = (Vec::new(), Attributes::new());
        Arc::new(MemoryFile {
            state: Mutex::new(FileState { metadata, bytes, kept, attributes, changes: 0 }),
        })
    }

    pub(super) fn metadata(&self) -> Metadata {
        self.lock().metadata.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> usize {
        get(&self.lock().bytes, target, offset)
    }
}

impl FileState {
    /// To be called when the bytes are others.
    fn changed(&mut self) {
        let now = SystemTime::now();
        let size_bytes = self.bytes.len() as u64;
        let tag = tag_of(unused_number());
        self.metadata = Metadata { size_bytes, modified: now, changed: now, tag, ..self.metadata.clone() };
        self.kept.clear();
        self.changes += 1;
    }
}

/// Puts `bytes` at `offset`, with zeros in front of it where nothing was.
pub(super) fn put(target: &mut Vec<u8>, bytes: &[u8], offset: u64) -> StoreResult<()> {
    let start = usize::try_from(offset).map_err(|_| StoreError::NoSpace)?;
    let end = start.checked_add(bytes.len()).ok_or(StoreError::NoSpace)?;
    if target.len() < end {
        target.resize(end, 0);
    }
    target[start..end].copy_from_slice(bytes);
    Ok(())
}

/// Copies what is at `offset`; returns how much there was.
pub(super) fn get(bytes: &[u8], target: &mut [u8], offset: u64) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let rest = &bytes[start..];
    let count = rest.len().min(target.len());
    target[..count].copy_from_slice(&rest[..count]);
    count
}

/// A file, open for reading.
pub struct MemoryObject {
    turns: Arc<Turns>,
    file: Arc<MemoryFile>,
    metadata: Metadata,
}

impl MemoryObject {
    pub(super) fn new(storage: &MemoryStorage, file: &Arc<MemoryFile>) -> MemoryObject {
        let turns = Arc::clone(&storage.turns);
        MemoryObject { turns, file: Arc::clone(file), metadata: file.metadata() }
    }

    /// The file's state, if the bytes are what they were.
    fn unchanged(&self) -> Option<MutexGuard<'_, FileState>> {
        Some(self.file.lock()).filter(|state| state.metadata.tag == self.metadata.tag)
    }
}

impl BlockingObject for MemoryObject {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.read_at(target, offset))
    }

    fn is_unchanged(&self) -> bool {
        self.unchanged().is_some()
    }

    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        self.unchanged()?.kept.iter().find(|kept| kept.kind() == kind).cloned()
    }

    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        if let Some(mut state) = self.unchanged() {
            state.kept.retain(|kept| kept.kind() != checksum.kind());
            state.kept.push(checksum.clone());
        }
        Ok(())
    }
}

/// A file that is uploaded.
pub struct MemoryUpload {
    storage: MemoryStorage,
    path: ObjectPath,
    /// `None` once it is visible, or never will be.
    bytes: Mutex<Option<Vec<u8>>>,
}

impl MemoryUpload {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new(storage: MemoryStorage, path: ObjectPath) -> MemoryUpload {
        MemoryUpload { storage, path, bytes: Mutex::new(Some(Vec::new())) }
    }
}

impl BlockingUpload for MemoryUpload {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.storage.require_room(&self.storage.lock(), end)?;
        put(self.lock().as_mut().ok_or(StoreError::Closed)?, bytes, offset)
    }

    fn commit(&self, completion: &Completion) -> StoreResult<Committed> {
        let bytes = self.lock().take().ok_or(StoreError::Closed)?;
        let modified = completion.modified.unwrap_or_else(SystemTime::now);
        let file = MemoryFile::new(bytes, modified, None);
        file.lock().kept = completion.checksums.clone();
        publish(&self.storage, &self.path, file, &completion.expectation)
    }
}

/// Makes a file visible.
pub(super) fn publish(
    storage: &MemoryStorage,
    path: &ObjectPath,
    file: Arc<MemoryFile>,
    expectation: &Expectation,
) -> StoreResult<Committed> {
    let mut tree = storage.lock();
    tree.check(path, expectation)?;
    // Both may have been changed since it began.
    tree.require_parent(path)?;
    if tree.is_directory(path) {
        return Err(StoreError::NotAFile);
    }
    let metadata = file.metadata();
    let replaced = tree.put(path, file);
    Ok(Committed { metadata, replaced: replaced.is_some(), replaced_bytes: replaced.unwrap_or(0) })
}

/// When and how a file that is being changed is seen.
pub(super) enum Target {
    InPlace,
    /// Where, and what has to be there then.
    WhenClosed(ObjectPath, Expectation),
}

/// A file, open for being changed.
pub struct MemoryWritable {
    storage: MemoryStorage,
    file: Arc<MemoryFile>,
    target: Target,
    progress: Mutex<Progress>,
}

/// Locked before everything else.
struct Progress {
    is_closed: bool,
    /// Number of the file's changes that were seen and made here: a greater one means changes through another handle.
    known_changes: u64,
}

impl MemoryWritable {
    pub(super) fn new(storage: MemoryStorage, file: Arc<MemoryFile>, target: Target) -> MemoryWritable {
        let known_changes = file.lock().changes;
        let progress = Mutex::new(Progress { is_closed: false, known_changes });
        MemoryWritable { storage, file, target, progress }
    }

    fn lock_progress(&self) -> StoreResult<MutexGuard<'_, Progress>> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.is_closed { Err(StoreError::Closed) } else { Ok(progress) }
    }

    /// Changes the bytes, which grow up to `end`.
    fn change(&self, end: u64, change: impl FnOnce(&mut Vec<u8>) -> StoreResult<()>) -> StoreResult<()> {
        let mut progress = self.lock_progress()?;
        let tree = self.storage.lock();
        let counted_bytes = match self.target {
            Target::InPlace => self.file.metadata().size_bytes,
            // As an upload, it counts when it is seen.
            Target::WhenClosed(..) => 0,
        };
        let growth = end.saturating_sub(counted_bytes);
        self.storage.require_room(&tree, growth)?;
        let mut state = self.file.lock();
        change(&mut state.bytes)?;
        state.changed();
        progress.known_changes += 1;
        Ok(())
    }
}

impl BlockingFile for MemoryWritable {
    fn turns(&self) -> &Arc<Turns> {
        &self.storage.turns
    }

    fn metadata(&self) -> StoreResult<Metadata> {
        Ok(self.file.metadata())
    }

    fn has_name(&self) -> bool {
        let is_this = |node: &Node| matches!(node, Node::File(file) if Arc::ptr_eq(file, &self.file));
        self.storage.lock().nodes.values().any(is_this)
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.read_at(target, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        let end = end_of(offset, bytes.len())?;
        self.change(end, |target| if bytes.is_empty() { Ok(()) } else { put(target, bytes, offset) })
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        check_length(size_bytes)?;
        self.change(size_bytes, |target| {
            target.resize(usize::try_from(size_bytes).map_err(|_| StoreError::NoSpace)?, 0);
            Ok(())
        })
    }

    fn sync(&self) -> StoreResult<()> {
        Ok(())
    }

    fn close(&self, whole: Option<&Whole>) -> StoreResult<Committed> {
        let mut progress = self.lock_progress()?;
        progress.is_closed = true;
        let mut state = self.file.lock();
        if state.changes == progress.known_changes {
            for checksum in Whole::checksums_of(whole, state.metadata.size_bytes) {
                state.kept.retain(|kept| kept.kind() != checksum.kind());
                state.kept.push(checksum.clone());
            }
        }
        drop(state);
        match &self.target {
            Target::InPlace => {
                Ok(Committed { metadata: self.metadata()?, replaced: false, replaced_bytes: 0 })
            }
            Target::WhenClosed(path, expectation) => {
                publish(&self.storage, path, Arc::clone(&self.file), expectation)
            }
        }
    }
}
