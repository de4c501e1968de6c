//! Checksums of whole files: computed when somebody asks, once for all who ask at the same time, and
//! remembered for as long as the file stays as it is.
//!
//! Whoever asks first starts the computation, which then belongs to nobody: it goes on while anybody
//! waits for it. Few run at a time, since each reads a whole file.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, Hasher, limits};
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Metadata, Object};
use gridlane_sys::AlignedBuf;
use tokio::sync::{Semaphore, watch};

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

/// `None` while it is computed; then the checksum, or `None` again inside when that failed.
type Outcome = Option<Option<Checksum>>;

#[derive(Default)]
struct State {
    known: HashMap<Key, Checksum>,
    /// The keys of `known`, oldest first.
    order: VecDeque<Key>,
    running: HashMap<Key, watch::Receiver<Outcome>>,
}

/// The checksums of one server.
#[derive(Clone)]
pub(crate) struct Digests {
    state: Arc<Mutex<State>>,
    permits: Arc<Semaphore>,
    kept_max: usize,
}

/// How often one request may join a computation that was just given up by others.
const TRIES_MAX: usize = 8;

/// A file changed less than this before it was read may change again without its times telling.
const SETTLED: Duration = Duration::from_millis(100);

impl Digests {
    pub(crate) fn new() -> Digests {
        Digests {
            state: Arc::default(),
            permits: Arc::new(Semaphore::new(limits::DIGESTS_RUNNING_MAX)),
            kept_max: limits::DIGESTS_KEPT_MAX,
        }
    }

    /// The checksums of a file that are known without reading it.
    pub(crate) fn known(&self, metadata: &Metadata) -> Vec<Checksum> {
        let state = self.lock();
        let known = |kind| state.known.get(&Key::new(metadata, kind)).cloned();
        ChecksumKind::ALL.into_iter().filter_map(known).collect()
    }

    /// The checksums of a file that are known, or that its storage keeps: all without reading its bytes. May read
    /// from the disk.
    pub(crate) fn at_hand(&self, object: &dyn Object) -> Vec<Checksum> {
        let known = self.known(object.metadata());
        let find = |kind| {
            let is_it = |checksum: &&Checksum| checksum.kind() == kind;
            known.iter().find(is_it).cloned().or_else(|| object.kept_checksum(kind))
        };
        ChecksumKind::ALL.into_iter().filter_map(find).collect()
    }

    /// Remembers the checksum of an upload.
    pub(crate) fn remember(&self, metadata: &Metadata, checksum: Checksum) {
        let key = Key::new(metadata, checksum.kind());
        self.lock().remember(key, checksum, self.kept_max);
    }

    /// The checksum of a whole file; `None` when it cannot be had: the file cannot be read or changes
    /// meanwhile. Who does not want to wait any longer drops this; when nobody waits, the reading ends.
    pub(crate) async fn of(&self, object: &Arc<dyn Object>, kind: ChecksumKind) -> Option<Checksum> {
        let key = Key::new(object.metadata(), kind);
        for _ in 0..TRIES_MAX {
            let mut outcome = {
                let mut state = self.lock();
                if let Some(known) = state.known.get(&key) {
                    return Some(known.clone());
                }
                match state.running.get(&key) {
                    Some(running) => running.clone(),
                    None => {
                        let (sender, receiver) = watch::channel(None);
                        state.running.insert(key.clone(), receiver.clone());
                        tokio::spawn(self.clone().compute(key.clone(), Arc::clone(object), sender));
                        receiver
                    }
                }
            };
            // Hung up without an outcome: we joined just when it ended because nobody waited.
            if let Ok(outcome) = outcome.wait_for(Option::is_some).await {
                return outcome.clone().flatten();
            }
        }
        None
    }

    async fn compute(self, key: Key, object: Arc<dyn Object>, sender: watch::Sender<Outcome>) {
        // Removes the entry also when this task ends early; waiters then see a closed channel.
        let running = Running { digests: &self, key: &key };
        let Ok(_permit) = self.permits.acquire().await else { return };
        let kind = key.kind;
        let (reader, sender) = (Arc::clone(&object), Arc::new(sender));
        let interest = Arc::clone(&sender);
        let began = SystemTime::now();
        let hashed = tokio::task::spawn_blocking(move || {
            let is_abandoned = Cell::new(false);
            let is_wanted = || {
                is_abandoned.set(!has_waiters(&interest));
                !is_abandoned.get()
            };
            (hash(reader.as_ref(), kind, &is_wanted), is_abandoned.get())
        });
        // A panic in there has reported itself; the checksum cannot be had.
        let (checksum, is_abandoned) = hashed.await.unwrap_or_default();
        if is_abandoned {
            // In this order: who sees the channel closed must not find it again.
            drop(running);
            drop(sender);
            return;
        }
        let checksum = checksum.filter(|_| object.is_unchanged());
        let settled = began.duration_since(object.metadata().changed).is_ok_and(|age| age >= SETTLED);
        if let (Some(checksum), true) = (&checksum, settled) {
            self.lock().remember(key.clone(), checksum.clone(), self.kept_max);
        }
        sender.send_replace(Some(checksum));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete in itself, so a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table of running computations holds one receiver itself.
fn has_waiters(sender: &watch::Sender<Outcome>) -> bool {
    sender.receiver_count() > 1
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

/// Reads a whole file; `None` when it cannot be read to its end, or when nobody waits any longer.
fn hash(object: &dyn Object, kind: ChecksumKind, is_wanted: &dyn Fn() -> bool) -> Option<Checksum> {
    let size = object.metadata().size_bytes;
    let mut buffer = AlignedBuf::new(limits::IO_BYTES);
    let mut hasher = Hasher::new(kind);
    let mut at = 0;
    while at < size && is_wanted() {
        let left = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
        match object.read_at(&mut buffer[..left], at) {
            Ok(count) if count > 0 => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
            _ => return None,
        }
    }
    (at == size).then(|| hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

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
