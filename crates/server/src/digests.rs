//! Checksums of whole files: known from a table, or kept with the file by its storage (since it was uploaded, or
//! by XRootD), or else computed when somebody asks, once for all who ask at the same time, and then kept for
//! as long as the file stays as it is. The table is in front of the storage, and all there is for storages
//! that keep nothing.
//!
//! Few run at a time, since each reads a whole file; and of one client not all of those. All requests for the same one wait
//! for a permit, each in the name of its own client, and the first to get one starts the computation: no client is behind
//! another one's files because that one asked first. The computation goes on while any request waits for it. Before it is
//! started nothing runs, and only the requests themselves have the file open.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, Hasher, limits};
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Metadata, Object, ObjectPath, Opened, Storage};
use gridlane_sys::AlignedBuf;
use tokio::sync::watch;

use gridlane_front::buffers::Buffers;
use gridlane_share::{Lease, budget};

/// Which bytes, by which algorithm.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    identity: FileIdentity,
    tag: String,
    kind: ChecksumKind,
}

impl Key {
    fn new(metadata: &Metadata, kind: ChecksumKind) -> Key {
        Key { identity: metadata.identity, tag: metadata.tag.clone(), kind }
    }
}

/// How far a computation is.
#[derive(Clone)]
enum Stage {
    /// None of the requests for it has a permit.
    Waiting,
    Running,
    /// The checksum, or `None` when it cannot be had.
    Done(Option<Checksum>),
}

#[derive(Default)]
struct State {
    known: HashMap<Key, Checksum>,
    /// The keys of `known`, oldest first.
    order: VecDeque<Key>,
    running: HashMap<Key, Computation>,
}

/// A computation that others may wait for as well.
struct Computation {
    stage: watch::Receiver<Stage>,
    /// Taken by the request that starts it.
    start: Option<watch::Sender<Stage>>,
    size_bytes: u64,
    done_bytes: Arc<AtomicU64>,
}

/// How far the computations are that are running or wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How many there are.
    pub(crate) running: usize,
    /// Bytes of their files.
    pub(crate) size_bytes: u64,
    /// Bytes of those that were read.
    pub(crate) done_bytes: u64,
    /// Bytes read since the start by all computations, those that have ended included.
    pub(crate) hashed_bytes: u64,
}

/// The checksums of one server.
#[derive(Clone)]
pub(crate) struct Digests {
    state: Arc<Mutex<State>>,
    hashed_bytes: Arc<AtomicU64>,
    kept_max: usize,
}

/// How often one request may join a computation that was just given up by others.
const TRIES_MAX: usize = 8;

/// A file changed less than this before it was read may change again without its times telling.
const SETTLED: Duration = Duration::from_millis(100);

impl Digests {
    /// Of which none is known.
    pub(crate) fn new() -> Digests {
        Digests { state: Arc::default(), hashed_bytes: Arc::default(), kept_max: limits::DIGESTS_KEPT_MAX }
    }

    /// The checksums of a file that are in the table.
    pub(crate) fn known(&self, metadata: &Metadata) -> Vec<Checksum> {
        let state = self.lock();
        let known = |kind| state.known.get(&Key::new(metadata, kind)).cloned();
        ChecksumKind::OFFERED.into_iter().filter_map(known).collect()
    }

    /// The checksums by these algorithms that are known without reading the file: in the table, or kept by its
    /// storage. May read from the disk.
    pub(crate) fn at_hand(&self, object: &dyn Object, kinds: &[ChecksumKind]) -> Vec<Checksum> {
        let began = SystemTime::now();
        let known = self.known(object.metadata());
        let find = |kind: &ChecksumKind| {
            if let Some(known) = known.iter().find(|checksum| checksum.kind() == *kind) {
                return Some(known.clone());
            }
            let kept = object.kept_checksum(*kind)?;
            if is_settled(object.metadata(), began) {
                self.remember(object.metadata(), kept.clone());
            }
            Some(kept)
        };
        kinds.iter().filter_map(find).collect()
    }

    /// The same, from where nobody may wait for a disk.
    pub(crate) async fn kept(&self, object: &dyn Object, kinds: &[ChecksumKind]) -> Vec<Checksum> {
        let mut known = self.known(object.metadata());
        known.retain(|checksum| kinds.contains(&checksum.kind()));
        if known.len() == kinds.len() {
            known
        } else {
            object.turns().run(|| self.at_hand(object, kinds)).await
        }
    }

    /// The checksums of an entry of a directory that need no reading of the file. It is opened if none by these
    /// algorithms is in the table. May read from the disk.
    pub(crate) fn of_entry(
        &self,
        storage: &dyn Storage,
        path: &ObjectPath,
        metadata: &Metadata,
        kinds: &[ChecksumKind],
    ) -> Vec<Checksum> {
        let mut known = self.known(metadata);
        known.retain(|checksum| kinds.contains(&checksum.kind()));
        match known.is_empty().then(|| storage.open(path)) {
            Some(Ok(Opened::File(opened))) if opened.metadata().tag == metadata.tag => {
                self.at_hand(opened.as_ref(), kinds)
            }
            _ => known,
        }
    }

    /// Remembers the checksum of an upload.
    pub(crate) fn remember(&self, metadata: &Metadata, checksum: Checksum) {
        let key = Key::new(metadata, checksum.kind());
        self.lock().remember(key, checksum, self.kept_max);
    }

    /// How far the computations are.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.lock();
        let mut progress = Progress {
            running: state.running.len(),
            hashed_bytes: self.hashed_bytes.load(Ordering::Relaxed),
            ..Progress::default()
        };
        for computation in state.running.values() {
            progress.size_bytes += computation.size_bytes;
            progress.done_bytes += computation.done_bytes.load(Ordering::Relaxed);
        }
        progress
    }

    /// The checksum of a whole file, computed unless it is in the table; `None` when it cannot be had: the
    /// file cannot be read or changes meanwhile. It is kept with the file if the storage `may_keep` it. Who does
    /// not want to wait any longer drops this; when nobody waits, the reading ends.
    pub(crate) async fn of(
        &self,
        object: &Arc<dyn Object>,
        kind: ChecksumKind,
        may_keep: bool,
    ) -> Option<Checksum> {
        let key = Key::new(object.metadata(), kind);
        for _ in 0..TRIES_MAX {
            let mut asking = match self.ask(&key, object.metadata().size_bytes) {
                Ok(asking) => asking,
                Err(known) => return Some(known),
            };
            let permit = tokio::select! {
                biased;
                _ = asking.stage.wait_for(|stage| !matches!(stage, Stage::Waiting)) => None,
                permit = object.turns().digests().take(budget::current(), 1) => Some(permit),
            };
            if let Some(permit) = permit
                && let Some((sender, done_bytes)) = self.start(&key)
            {
                let (object, hashed_bytes) = (Arc::clone(object), Arc::clone(&self.hashed_bytes));
                let reading = Reading { object, done_bytes, hashed_bytes };
                tokio::spawn(self.clone().compute(key.clone(), reading, may_keep, sender, permit));
            }
            // Hung up without an outcome: we joined just when it ended because nobody waited.
            if let Ok(stage) = asking.stage.wait_for(|stage| matches!(stage, Stage::Done(_))).await
                && let Stage::Done(checksum) = &*stage
            {
                return checksum.clone();
            }
        }
        None
    }

    /// Joins the requests for a checksum, or is the first of them; the checksum if it is in the table.
    fn ask<'a>(&'a self, key: &'a Key, size_bytes: u64) -> Result<Asking<'a>, Checksum> {
        let mut state = self.lock();
        if let Some(known) = state.known.get(key) {
            return Err(known.clone());
        }
        let computation = state.running.entry(key.clone()).or_insert_with(|| {
            let (start, stage) = watch::channel(Stage::Waiting);
            Computation { stage, start: Some(start), size_bytes, done_bytes: Arc::default() }
        });
        Ok(Asking { digests: self, key, stage: computation.stage.clone() })
    }

    /// The ways to tell how far the computation is; none if another request has started it.
    fn start(&self, key: &Key) -> Option<(watch::Sender<Stage>, Arc<AtomicU64>)> {
        let mut state = self.lock();
        let computation = state.running.get_mut(key)?;
        let sender = computation.start.take()?;
        sender.send_replace(Stage::Running);
        Some((sender, Arc::clone(&computation.done_bytes)))
    }

    /// The same of a file that fits in one buffer and is in the page cache, by an algorithm that is fast: it takes less time
    /// to read it here than to have somebody else do it. `None` of any other.
    pub(crate) async fn at_once(
        &self,
        buffers: &Arc<Buffers>,
        object: &dyn Object,
        kind: ChecksumKind,
        may_keep: bool,
    ) -> Option<Checksum> {
        let began = SystemTime::now();
        let metadata = object.metadata();
        let size = usize::try_from(metadata.size_bytes).ok().filter(|size| *size <= limits::IO_BYTES)?;
        if !kind.is_combinable() {
            return None;
        }
        let mut hasher = Hasher::new(kind);
        {
            let mut buffer = buffers.lend();
            if size > 0 && object.read_at_nowait(&mut buffer[..size], 0).ok()?? != size {
                return None;
            }
            hasher.update(&buffer[..size]);
        }
        self.hashed_bytes.fetch_add(size as u64, Ordering::Relaxed);
        let checksum = hasher.finish();
        if !object.is_unchanged() {
            return None;
        }
        if is_settled(metadata, began) {
            self.remember(metadata, checksum.clone());
            if may_keep {
                // If not, it is computed again when it is asked for again: nobody is worse off.
                let _ = object.turns().run(|| object.keep_checksum(&checksum)).await;
            }
        }
        Some(checksum)
    }

    async fn compute(
        self,
        key: Key,
        reading: Reading,
        may_keep: bool,
        sender: watch::Sender<Stage>,
        _permit: Lease,
    ) {
        // Removes the entry also when this task ends early; waiters then see a closed channel.
        let running = Running { digests: &self, key: &key };
        let kind = key.kind;
        let sender = Arc::new(sender);
        let interest = Arc::clone(&sender);
        let hashed = tokio::task::spawn_blocking(move || {
            let is_abandoned = Cell::new(false);
            let is_wanted = || {
                is_abandoned.set(!has_waiters(&interest));
                !is_abandoned.get()
            };
            let began = SystemTime::now();
            let object = reading.object.as_ref();
            let checksum = reading.hash(kind, &is_wanted).filter(|_| object.is_unchanged());
            let is_settled = is_settled(object.metadata(), began);
            if let (Some(checksum), true) = (&checksum, is_settled && may_keep) {
                // If not, it is computed again when it is asked for again: nobody is worse off.
                let _ = object.keep_checksum(checksum);
            }
            (checksum, is_settled, is_abandoned.get())
        });
        // A panic in there has reported itself; the checksum cannot be had.
        let (checksum, is_settled, is_abandoned) = hashed.await.unwrap_or_default();
        if is_abandoned {
            // In this order: who sees the channel closed must not find it again.
            drop(running);
            drop(sender);
            return;
        }
        if let (Some(checksum), true) = (&checksum, is_settled) {
            self.lock().remember(key.clone(), checksum.clone(), self.kept_max);
        }
        sender.send_replace(Stage::Done(checksum));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete in itself, so a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table of running computations holds one receiver itself.
fn has_waiters(sender: &watch::Sender<Stage>) -> bool {
    sender.receiver_count() > 1
}

/// One request for a checksum that is not there.
struct Asking<'a> {
    digests: &'a Digests,
    key: &'a Key,
    stage: watch::Receiver<Stage>,
}

impl Drop for Asking<'_> {
    /// The last one to leave removes a computation that was not started.
    fn drop(&mut self) {
        let mut state = self.digests.lock();
        // This one and the table's.
        let is_last = |start: &watch::Sender<Stage>| start.receiver_count() <= 2;
        if let Some(computation) = state.running.get(self.key)
            && computation.stage.same_channel(&self.stage)
            && computation.start.as_ref().is_some_and(is_last)
        {
            state.running.remove(self.key);
        }
    }
}

struct Running<'a> {
    digests: &'a Digests,
    key: &'a Key,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.digests.lock().running.remove(self.key);
    }
}

impl State {
    fn remember(&mut self, key: Key, checksum: Checksum, kept_max: usize) {
        if self.known.insert(key.clone(), checksum).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > kept_max {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

/// Whether a file that is looked at since `began` can be told from what it will be.
fn is_settled(metadata: &Metadata, began: SystemTime) -> bool {
    began.duration_since(metadata.changed).is_ok_and(|age| age >= SETTLED)
}

/// A file that is read from its beginning to its end.
struct Reading {
    object: Arc<dyn Object>,
    done_bytes: Arc<AtomicU64>,
    hashed_bytes: Arc<AtomicU64>,
}

impl Reading {
    /// `None` when it cannot be read to its end, or when nobody waits any longer.
    fn hash(&self, kind: ChecksumKind, is_wanted: &dyn Fn() -> bool) -> Option<Checksum> {
        let size = self.object.metadata().size_bytes;
        let mut buffer = AlignedBuf::new(limits::IO_BYTES);
        let mut hasher = Hasher::new(kind);
        let mut at = 0;
        while at < size && is_wanted() {
            let left = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
            match self.object.read_at(&mut buffer[..left], at) {
                Ok(count) if count > 0 => {
                    hasher.update(&buffer[..count]);
                    at += count as u64;
                    self.done_bytes.store(at, Ordering::Relaxed);
                    self.hashed_bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
                _ => return None,
            }
        }
        (at == size).then(|| hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests() -> Digests {
        Digests::new()
    }

    #[test]
    fn progress_is_told() {
        let digests = digests();
        let key = Key {
            identity: FileIdentity { device: 0, number: 1 },
            tag: String::new(),
            kind: ChecksumKind::Md5,
        };
        let computation = Computation {
            stage: watch::channel(Stage::Running).1,
            start: None,
            size_bytes: 1000,
            done_bytes: Arc::new(AtomicU64::new(400)),
        };
        digests.lock().running.insert(key, computation);
        let expected = Progress { running: 1, size_bytes: 1000, done_bytes: 400, hashed_bytes: 0 };
        assert_eq!(digests.progress(), expected);
    }

    #[tokio::test]
    async fn a_small_file_is_hashed_at_once_by_what_is_fast() {
        let storage = gridlane_store::MemoryStorage::new();
        let open = |len: usize| {
            let path = ObjectPath::new([len.to_string().as_bytes()]).unwrap();
            storage.add_file(&path, vec![7; len]);
            let Ok(Opened::File(object)) = storage.open(&path) else { panic!("a file") };
            object
        };
        let (digests, buffers) = (digests(), Arc::default());
        for (len, kind, is_quick) in [
            (0, ChecksumKind::Adler32, true),
            (limits::IO_BYTES, ChecksumKind::Crc32c, true),
            (limits::IO_BYTES + 1, ChecksumKind::Crc32c, false),
            (1000, ChecksumKind::Md5, false),
        ] {
            let object = open(len);
            let checksum = digests.at_once(&buffers, object.as_ref(), kind, false).await;
            assert_eq!(checksum.is_some(), is_quick, "{len} {kind}");
            if is_quick {
                assert_eq!(checksum, digests.of(&object, kind, false).await);
            }
        }
        assert_eq!(digests.progress().running, 0);
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut state = State::default();
        let key = |number| Key {
            identity: FileIdentity { device: 0, number },
            tag: String::new(),
            kind: ChecksumKind::Adler32,
        };
        for number in 0..5 {
            state.remember(key(number), Checksum::adler32(1), 3);
            state.remember(key(number), Checksum::adler32(2), 3);
        }
        assert_eq!((state.known.len(), state.order.len()), (3, 3));
        assert!(state.known.contains_key(&key(4)) && !state.known.contains_key(&key(1)));
    }
}
