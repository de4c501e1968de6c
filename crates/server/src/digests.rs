//! Checksums of whole files: known from a table, or kept with the file by its storage (since it was uploaded, or by
//! XRootD), or else computed on request, once for all requests at the same time, and then kept for as long as the file
//! stays as it is. The table is in front of the storage, and all there is for storages that keep nothing.
//!
//! Few run at a time, since each reads a whole file; and of one client not all of those. All requests for the same one
//! wait for a permit, each in the name of its own client, and the first to get one starts the computation: no client is
//! behind another one's files because that one asked first. The computation goes on while any request waits for it.
//! Before it is started nothing runs, and only the requests themselves have the file open.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, Hasher, limits};
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Metadata, Object, ObjectPath, Storage};
use gridlane_sys::AlignedBuf;
use tokio::sync::watch;
use tokio::task::yield_now;

use gridlane_front::buffers::Buffers;
use gridlane_front::transfer::is_unchanged;
use gridlane_share::{Lease, budget, turns};

/// The state of a file, and the algorithm.
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

/// The stage of a computation.
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

/// The progress of the computations that are running or wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Their number.
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

/// Times that one request may join a computation that was just given up by others.
const TRIES_MAX: usize = 8;

/// A file changed less than this before it was read may change again without its times telling.
const SETTLED: Duration = Duration::from_millis(100);

impl Digests {
    /// An empty table.
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
    /// storage.
    pub(crate) async fn kept(&self, object: &dyn Object, kinds: &[ChecksumKind]) -> Vec<Checksum> {
        let mut known = self.known(object.metadata());
        known.retain(|checksum| kinds.contains(&checksum.kind()));
        if known.len() == kinds.len() {
            return known;
        }
        let began = SystemTime::now();
        let is_missing = |kind: &ChecksumKind| known.iter().all(|checksum| checksum.kind() != *kind);
        let missing: Vec<ChecksumKind> = kinds.iter().copied().filter(is_missing).collect();
        let kept = object.kept_checksums(&missing).await;
        self.remember_kept(object.metadata(), &kept, began);
        known.extend(kept);
        known.sort_by_key(|checksum| kinds.iter().position(|kind| *kind == checksum.kind()));
        known
    }

    /// The same of entries of a directory, with one question to the storage about those of which none by these algorithms is in
    /// the table.
    pub(crate) async fn of_entries(
        &self,
        storage: &dyn Storage,
        files: Vec<(ObjectPath, Metadata)>,
        kinds: &[ChecksumKind],
    ) -> Vec<Vec<Checksum>> {
        let began = SystemTime::now();
        let known_of = |(_, metadata): &(ObjectPath, Metadata)| {
            let mut known = self.known(metadata);
            known.retain(|checksum| kinds.contains(&checksum.kind()));
            known
        };
        let mut found: Vec<Vec<Checksum>> = files.iter().map(known_of).collect();
        let (unknown, asked): (Vec<_>, Vec<_>) =
            files.into_iter().enumerate().filter(|(at, _)| found[*at].is_empty()).unzip();
        if !asked.is_empty() {
            let kept = storage.kept_checksums(&asked, kinds).await;
            for ((at, (_, metadata)), kept) in unknown.into_iter().zip(&asked).zip(kept) {
                self.remember_kept(metadata, &kept, began);
                found[at] = kept;
            }
        }
        found
    }

    /// Remembers what a storage has kept, if it cannot be about other bytes by now.
    fn remember_kept(&self, metadata: &Metadata, kept: &[Checksum], began: SystemTime) {
        if is_settled(metadata, began) {
            kept.iter().for_each(|checksum| self.remember(metadata, checksum.clone()));
        }
    }

    /// Remembers the checksum of an upload.
    pub(crate) fn remember(&self, metadata: &Metadata, checksum: Checksum) {
        let key = Key::new(metadata, checksum.kind());
        self.lock().remember(key, checksum, self.kept_max);
    }

    /// The progress of the computations.
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

    /// The checksum of a whole file, computed unless it is in the table; `None` when it cannot be had: the file cannot
    /// be read or changes meanwhile. It is kept with the file if the storage `may_keep` it. A request that does not
    /// wait any longer drops this; without waiting requests the reading ends.
    pub(crate) async fn of(
        &self,
        object: &Arc<dyn Object>,
        kind: ChecksumKind,
        may_keep: bool,
    ) -> Option<Checksum> {
        let key = Key::new(object.metadata(), kind);
        for _ in 0..TRIES_MAX {
            let mut waiter = match self.join(&key, object.metadata().size_bytes) {
                Ok(waiter) => waiter,
                Err(known) => return Some(known),
            };
            let permit = tokio::select! {
                biased;
                _ = waiter.stage.wait_for(|stage| !matches!(stage, Stage::Waiting)) => None,
                permit = object.turns().digests().take(budget::current(), 1) => Some(permit),
            };
            if let Some(permit) = permit
                && let Some((sender, done_bytes)) = self.start(&key)
            {
                let (object, hashed_bytes) = (Arc::clone(object), Arc::clone(&self.hashed_bytes));
                let reading = Reading { object, done_bytes, hashed_bytes };
                tokio::spawn(self.clone().compute(key.clone(), reading, may_keep, sender, permit));
            }
            // Hung up without an outcome: we joined just when it ended because no request waited.
            if let Ok(stage) = waiter.stage.wait_for(|stage| matches!(stage, Stage::Done(_))).await
                && let Stage::Done(checksum) = &*stage
            {
                return checksum.clone();
            }
        }
        None
    }

    /// Joins the requests for a checksum, or is the first of them; the checksum if it is in the table.
    fn join<'a>(&'a self, key: &'a Key, size_bytes: u64) -> Result<Waiter<'a>, Checksum> {
        let mut state = self.lock();
        if let Some(known) = state.known.get(key) {
            return Err(known.clone());
        }
        let computation = state.running.entry(key.clone()).or_insert_with(|| {
            let (start, stage) = watch::channel(Stage::Waiting);
            Computation { stage, start: Some(start), size_bytes, done_bytes: Arc::default() }
        });
        Ok(Waiter { digests: self, key, stage: computation.stage.clone() })
    }

    /// The channels for the stage of the computation; none if another request has started it.
    fn start(&self, key: &Key) -> Option<(watch::Sender<Stage>, Arc<AtomicU64>)> {
        let mut state = self.lock();
        let computation = state.running.get_mut(key)?;
        let sender = computation.start.take()?;
        sender.send_replace(Stage::Running);
        Some((sender, Arc::clone(&computation.done_bytes)))
    }

    /// The same of a file that fits in one buffer and is in the page cache, by an algorithm that is fast: it takes less
    /// time to read it here than to hand it to another task. `None` for any other.
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
        if !is_unchanged(object, false).await {
            return None;
        }
        if is_settled(metadata, began) {
            self.remember(metadata, checksum.clone());
            if may_keep {
                // If not, it is computed again for the next request: nothing is lost.
                let _ = object.keep_checksum(&checksum).await;
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
        let began = SystemTime::now();
        let object = reading.object.as_ref();
        let (mut checksum, mut is_abandoned) = (None, false);
        match reading.hash(kind, || has_waiters(&sender)).await {
            Ok(hashed) => checksum = Some(hashed),
            Err(Unread::Unwanted) => is_abandoned = true,
            Err(Unread::Unreadable) => {}
        }
        // Not by the look that never waits: a device that was waited for may have to be waited for again.
        if checksum.is_some() && !object.is_unchanged().await {
            checksum = None;
        }
        let is_settled = is_settled(object.metadata(), began);
        if let (Some(checksum), true) = (&checksum, is_settled && may_keep) {
            // If not, it is computed again for the next request: nothing is lost.
            let _ = object.keep_checksum(checksum).await;
        }
        if is_abandoned {
            // In this order: a task that sees the channel closed must not find it again.
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
struct Waiter<'a> {
    digests: &'a Digests,
    key: &'a Key,
    stage: watch::Receiver<Stage>,
}

impl Drop for Waiter<'_> {
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

/// True if a file that is looked at since `began` can be told from any later state of it.
fn is_settled(metadata: &Metadata, began: SystemTime) -> bool {
    began.duration_since(metadata.changed).is_ok_and(|age| age >= SETTLED)
}

/// A file that is read from its beginning to its end.
struct Reading {
    object: Arc<dyn Object>,
    done_bytes: Arc<AtomicU64>,
    hashed_bytes: Arc<AtomicU64>,
}

/// The reason for which a file was not read to its end.
enum Unread {
    /// It is not waited for any longer.
    Unwanted,
    /// It cannot be read, or has become shorter.
    Unreadable,
}

/// The point that a few steps of reading have come to.
enum Step {
    /// To the end.
    End,
    /// To where other tasks are to have their turn.
    More,
    /// To where the device has to be waited for.
    Cold,
}

impl Reading {
    /// Reads all of it. What is at hand is read and hashed where blocking is allowed, since hashing takes long; what is
    /// not is waited for without a thread, as far as its storage can.
    async fn hash(&self, kind: ChecksumKind, is_wanted: impl Fn() -> bool) -> Result<Checksum, Unread> {
        let size = self.object.metadata().size_bytes;
        let mut buffer = AlignedBuf::new(READ_BYTES);
        let mut hasher = Hasher::new(kind);
        let (mut at, mut filled) = (0, 0);
        loop {
            let hash = || {
                self.add(&mut hasher, &buffer[..filled], &mut at);
                self.hash_at_hand(&mut hasher, &mut buffer, &mut at, &is_wanted)
            };
            filled = match turns::in_place(hash)? {
                Step::End => return Ok(hasher.finish()),
                Step::More => {
                    yield_now().await;
                    0
                }
                Step::Cold => {
                    let left = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
                    match self.object.read_at(&mut buffer[..left], at).await {
                        Ok(count) if count > 0 => count,
                        _ => return Err(Unread::Unreadable),
                    }
                }
            };
        }
    }

    fn hash_at_hand(
        &self,
        hasher: &mut Hasher,
        buffer: &mut [u8],
        at: &mut u64,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Step, Unread> {
        let size = self.object.metadata().size_bytes;
        for _ in 0..STEPS_MAX {
            if *at >= size {
                return Ok(Step::End);
            }
            if !is_wanted() {
                return Err(Unread::Unwanted);
            }
            let left = usize::try_from(size - *at).unwrap_or(usize::MAX).min(limits::IO_BYTES);
            match self.object.read_at_nowait(&mut buffer[..left], *at) {
                Ok(Some(count)) if count > 0 => self.add(hasher, &buffer[..count], at),
                Ok(None) => return Ok(Step::Cold),
                _ => return Err(Unread::Unreadable),
            }
        }
        Ok(Step::More)
    }

    fn add(&self, hasher: &mut Hasher, bytes: &[u8], at: &mut u64) {
        hasher.update(bytes);
        *at += bytes.len() as u64;
        self.done_bytes.store(*at, Ordering::Relaxed);
        self.hashed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// Bytes that are waited for at a time.
const READ_BYTES: usize = 4 * limits::IO_BYTES;

/// Buffers that are hashed before others have their turn.
const STEPS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_store::Opened;

    fn digests() -> Digests {
        Digests::new()
    }

    #[test]
    fn progress_of_computations() {
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
    async fn a_small_file_is_hashed_at_once_by_fast_algorithms() {
        let storage = gridlane_store::MemoryStorage::new();
        let open = |len: usize| {
            let path = ObjectPath::new([len.to_string().as_bytes()]).unwrap();
            storage.add_file(&path, vec![7; len]);
            let Ok(Some(Opened::File(object))) = Storage::open_nowait(&storage, &path) else {
                panic!("a file")
            };
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
