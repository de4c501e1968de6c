//! A storage like an object store over a network: keys and no directories but by agreement, uploads in parts and in order,
//! listings in pages, reads of ranges; nothing is renamed, and nothing is changed in place.
//!
//! A directory is a key that ends with a slash, or the part of other keys in front of one. Every call is a request,
//! at whose end other tasks have their turn.

use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_share::Turns;
use tokio::task::yield_now;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{
    BoxFuture, Committed, Completion, DirectoryEntry, Entries, Expectation, FileIdentity, Metadata, NodeKind,
    Object, Opened, Pages, Space, Storage, Upload, WriteOrder,
};

/// Entries of a page of a listing.
const PAGE_ENTRIES: usize = 100;

/// Bytes of a part of an upload.
const PART_BYTES: usize = 64 * 1024;

/// Such a store. Clones share it.
#[derive(Clone, Default)]
pub struct ObjectStore {
    keys: Arc<Mutex<Keys>>,
    turns: Arc<Turns>,
}

type Key = Vec<u8>;

#[derive(Default)]
struct Keys {
    versions: BTreeMap<Key, Arc<Version>>,
    made: u64,
}

/// The object under a key. It is never changed: another one takes its place.
struct Version {
    metadata: Metadata,
    bytes: Vec<u8>,
    kept: Mutex<Vec<Checksum>>,
}

impl Keys {
    fn put(&mut self, key: Key, bytes: Vec<u8>, completion: &Completion) -> Arc<Version> {
        self.made += 1;
        let kind = if key.ends_with(b"/") { NodeKind::Directory } else { NodeKind::File };
        let mut metadata = metadata(kind, self.made, bytes.len() as u64);
        metadata.modified = completion.modified.unwrap_or(metadata.modified);
        let version = Version { metadata, bytes, kept: Mutex::new(completion.checksums.clone()) };
        let version = Arc::new(version);
        self.versions.insert(key, Arc::clone(&version));
        version
    }

    /// True if there is anything at or below a directory.
    fn has_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || self.below(&prefix_of(path)).next().is_some()
    }

    fn below<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a Key> {
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(prefix), Bound::Unbounded);
        self.versions
            .range::<[u8], _>(from)
            .map(|(key, _)| key)
            .take_while(move |key| key.starts_with(prefix))
    }

    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        if let Some(version) = self.versions.get(&key_of(path)) {
            return Ok(version.metadata.clone());
        }
        match (self.versions.get(&prefix_of(path)), self.has_directory(path)) {
            (Some(marker), _) => Ok(marker.metadata.clone()),
            (None, true) => Ok(metadata(NodeKind::Directory, 0, 0)),
            (None, false) => Err(StoreError::NotFound),
        }
    }

    /// For a file that is to be there.
    fn require_place(&self, path: &ObjectPath) -> StoreResult<()> {
        if self.has_directory(path) {
            return Err(StoreError::NotAFile);
        }
        match path.split_last() {
            Some((parent, _)) if !self.has_directory(&parent) => Err(StoreError::ParentMissing),
            _ => Ok(()),
        }
    }

    fn check(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let current = self.versions.get(&key_of(path));
        let is_as_expected = match expectation {
            Expectation::Anything => true,
            Expectation::Absent => current.is_none(),
            Expectation::Tag(tag) => current.is_some_and(|version| version.metadata.tag == *tag),
        };
        if is_as_expected { Ok(()) } else { Err(StoreError::Unexpected) }
    }
}

fn key_of(path: &ObjectPath) -> Key {
    path.names().collect::<Vec<_>>().join(&b'/')
}

/// The common beginning of a directory's keys.
fn prefix_of(path: &ObjectPath) -> Key {
    let mut prefix = key_of(path);
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    prefix
}

fn metadata(kind: NodeKind, number: u64, size_bytes: u64) -> Metadata {
    let now = SystemTime::now();
    let modified = if number == 0 { SystemTime::UNIX_EPOCH } else { now };
    Metadata {
        kind,
        size_bytes,
        modified,
        changed: modified,
        created: None,
        tag: format!("version-{number}"),
        identity: FileIdentity { device: 0, number },
        mode: if kind == NodeKind::File { 0o100_644 } else { 0o040_755 },
        owner: 0,
        group: 0,
    }
}

impl ObjectStore {
    /// An empty one.
    pub fn new() -> ObjectStore {
        ObjectStore::default()
    }

    /// Puts an object there.
    pub fn add(&self, path: &ObjectPath, bytes: impl Into<Vec<u8>>) {
        self.lock().put(key_of(path), bytes.into(), &Expectation::Anything.into());
    }

    /// Says that there is a directory.
    pub fn add_directory(&self, path: &ObjectPath) {
        self.lock().put(prefix_of(path), Vec::new(), &Expectation::Anything.into());
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request: others have their turns meanwhile.
    fn ask<'a, T: Send + 'a>(&'a self, request: impl FnOnce(&mut Keys) -> T + Send + 'a) -> BoxFuture<'a, T> {
        Box::pin(async move {
            yield_now().await;
            request(&mut self.lock())
        })
    }
}

impl Storage for ObjectStore {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn look<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>> {
        self.ask(|keys| keys.look(path))
    }

    fn open<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Opened>> {
        self.ask(|keys| match keys.versions.get(&key_of(path)) {
            Some(version) => {
                let turns = Arc::clone(&self.turns);
                let object = StoredObject { version: Arc::clone(version), turns };
                Ok(Opened::File(Arc::new(object) as Arc<dyn Object>))
            }
            None => keys.look(path).map(|_| Opened::Directory),
        })
    }

    fn entries<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Entries>> {
        self.ask(|keys| match keys.look(path)?.kind {
            NodeKind::File => Err(StoreError::NotADirectory),
            NodeKind::Directory => {
                let after = Some(prefix_of(path));
                Ok(Box::new(KeyPages { store: self.clone(), directory: path.clone(), after }) as Entries)
            }
        })
    }

    fn make_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.ask(|keys| {
            if keys.versions.contains_key(&key_of(path)) {
                return Err(StoreError::Unexpected);
            }
            keys.require_place(path).map_err(|error| match error {
                StoreError::NotAFile => StoreError::Unexpected,
                other => other,
            })?;
            keys.put(prefix_of(path), Vec::new(), &Expectation::Anything.into());
            Ok(())
        })
    }

    fn remove<'a>(
        &'a self,
        path: &'a ObjectPath,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<()>> {
        self.ask(|keys| {
            if keys.look(path)?.is_directory() {
                return Err(StoreError::NotAFile);
            }
            keys.check(path, expectation)?;
            keys.versions.remove(&key_of(path));
            Ok(())
        })
    }

    fn remove_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.ask(|keys| {
            let prefix = removable(keys, path)?;
            if keys.below(&prefix).any(|key| *key != prefix) {
                return Err(StoreError::NotEmpty);
            }
            keys.versions.remove(&prefix);
            Ok(())
        })
    }

    fn remove_tree<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        self.ask(|keys| {
            let prefix = removable(keys, path)?;
            keys.versions.retain(|key, _| !key.starts_with(&prefix));
            Ok(())
        })
    }

    fn space<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Space>> {
        self.ask(|keys| {
            keys.look(path)?;
            let used_bytes = keys.versions.values().map(|version| version.bytes.len() as u64).sum();
            Ok(Space { total_bytes: u64::MAX, used_bytes, available_bytes: u64::MAX - used_bytes })
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a ObjectPath,
        _expected_bytes: Option<u64>,
    ) -> BoxFuture<'a, StoreResult<Box<dyn Upload>>> {
        self.ask(|keys| {
            keys.require_place(path)?;
            let (store, path, sent) = (self.clone(), path.clone(), Mutex::default());
            Ok(Box::new(PartsUpload { store, path, sent }) as Box<dyn Upload>)
        })
    }
}

/// The prefix of a directory that can be removed.
fn removable(keys: &Keys, path: &ObjectPath) -> StoreResult<Key> {
    if path.is_root() {
        return Err(StoreError::InUse);
    }
    match keys.look(path)?.kind {
        NodeKind::Directory => Ok(prefix_of(path)),
        NodeKind::File => Err(StoreError::NotADirectory),
    }
}

/// A listing: what comes behind a key is asked for a page at a time.
struct KeyPages {
    store: ObjectStore,
    directory: ObjectPath,
    /// The last key that was told; `None` at the end.
    after: Option<Key>,
}

impl Pages<DirectoryEntry> for KeyPages {
    fn next_page(&mut self) -> BoxFuture<'_, StoreResult<Vec<DirectoryEntry>>> {
        Box::pin(async move {
            yield_now().await;
            let (prefix, mut page) = (prefix_of(&self.directory), Vec::new());
            let keys = self.store.lock();
            while page.len() < PAGE_ENTRIES
                && let Some(after) = self.after.take()
            {
                let behind: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(&after), Bound::Unbounded);
                let Some((key, version)) = keys.versions.range::<[u8], _>(behind).next() else { break };
                let Some(rest) = key.strip_prefix(prefix.as_slice()) else { break };
                let (name, metadata) = match rest.iter().position(|byte| *byte == b'/') {
                    None => (rest, version.metadata.clone()),
                    Some(end) => {
                        let metadata = self.directory.join(&rest[..end]).map(|below| keys.look(&below));
                        (&rest[..end], metadata.unwrap_or(Err(StoreError::NotFound))?)
                    }
                };
                page.push(DirectoryEntry { name: name.to_vec(), metadata, is_link: false });
                // All that has the same name in front of its next slash is one entry.
                let mut last = key.clone();
                if rest.len() > name.len() {
                    last.truncate(prefix.len() + name.len());
                    last.extend_from_slice(b"/\xff");
                }
                self.after = Some(last);
            }
            Ok(page)
        })
    }
}

struct StoredObject {
    version: Arc<Version>,
    turns: Arc<Turns>,
}

impl StoredObject {
    fn kept(&self) -> MutexGuard<'_, Vec<Checksum>> {
        self.version.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for StoredObject {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn metadata(&self) -> &Metadata {
        &self.version.metadata
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(async move {
            yield_now().await;
            let bytes = &self.version.bytes;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let count = target.len().min(bytes.len() - from);
            target[..count].copy_from_slice(&bytes[from..from + count]);
            Ok(count)
        })
    }

    /// Every read is of the version that was opened.
    fn is_unchanged_nowait(&self) -> Option<bool> {
        Some(true)
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }

    fn kept_checksums<'a>(&'a self, kinds: &'a [ChecksumKind]) -> BoxFuture<'a, Vec<Checksum>> {
        let kept = self.kept();
        let find = |kind: &ChecksumKind| kept.iter().find(|kept| kept.kind() == *kind).cloned();
        Box::pin(ready(kinds.iter().filter_map(find).collect()))
    }

    fn keep_checksum<'a>(&'a self, checksum: &'a Checksum) -> BoxFuture<'a, StoreResult<()>> {
        let mut kept = self.kept();
        kept.retain(|kept| kept.kind() != checksum.kind());
        kept.push(checksum.clone());
        Box::pin(ready(Ok(())))
    }
}

/// An upload in parts.
struct PartsUpload {
    store: ObjectStore,
    path: ObjectPath,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// All of the same length.
    parts: Vec<Vec<u8>>,
    /// Bytes at the end that are no whole part yet.
    rest: Vec<u8>,
}

impl Upload for PartsUpload {
    fn write_order(&self) -> WriteOrder {
        WriteOrder::InOrder { part_bytes: PART_BYTES }
    }

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            if offset != (sent.parts.len() * PART_BYTES + sent.rest.len()) as u64 {
                return Err(StoreError::Unsupported);
            }
            sent.rest.extend_from_slice(bytes);
            while sent.rest.len() >= PART_BYTES {
                let behind = sent.rest.split_off(PART_BYTES);
                let part = std::mem::replace(&mut sent.rest, behind);
                sent.parts.push(part);
            }
            Ok(())
        })
    }

    fn commit<'a>(self: Box<Self>, completion: &'a Completion) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move {
            yield_now().await;
            let sent = self.sent.into_inner().unwrap_or_else(PoisonError::into_inner);
            let bytes = [sent.parts.concat(), sent.rest].concat();
            let mut keys = self.store.lock();
            keys.check(&self.path, &completion.expectation)?;
            keys.require_place(&self.path)?;
            let before = keys.versions.get(&key_of(&self.path)).map(|version| version.bytes.len() as u64);
            let metadata = keys.put(key_of(&self.path), bytes, completion).metadata.clone();
            Ok(Committed { metadata, replaced: before.is_some(), replaced_bytes: before.unwrap_or(0) })
        })
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }
}
