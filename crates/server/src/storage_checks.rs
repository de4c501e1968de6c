//! Requests to the exports' storages that no client has made: checks for health requests and metrics, and the removal of what was
//! abandoned. Of each storage that does not answer, one turn is held at most for each kind, and none keeps another waiting.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits;
use gridlane_store::{ObjectPath, Space, Storage, StoreError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::export::Exports;

/// The room in each export, as far as its storage answers in time: a dead one must not keep the others from the page.
pub(crate) async fn spaces(exports: &Exports, storage_checks: &StorageChecks) -> Vec<(String, Space)> {
    let mut spaces = Vec::new();
    for export in exports.iter() {
        let path = export.path.to_string();
        if !lock(storage_checks).spaces.insert(path.clone()) {
            continue;
        }
        let (storage, checks, name) = (Arc::clone(&export.storage), Arc::clone(storage_checks), path.clone());
        let space_task = tokio::spawn(async move {
            let space = storage.space(&ObjectPath::root()).await.ok();
            lock(&checks).spaces.remove(&name);
            space
        });
        if let Ok(Ok(Some(space))) = timeout(limits::ADMIN_SPACE_MAX, space_task).await {
            spaces.push((path, space));
        }
    }
    spaces
}

/// The first export whose storage is not the directory at its path any more, as far as that is known in time: for a
/// storage that does not answer, by its last answer, if it gave any.
pub(crate) async fn displaced(exports: &Exports, storage_checks: &StorageChecks) -> Option<String> {
    for export in exports.iter() {
        let path = export.path.to_string();
        let mut check = PlaceCheck::of(storage_checks, &path, &export.storage);
        let result = match timeout_at(check.until, check.result.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => *result,
            _ => check.before,
        };
        if result == Some(false) {
            return Some(path);
        }
    }
    None
}

/// Removes what clients have left behind in writable exports, when it is old, and waits for that a while: an export that hangs
/// goes on with it by itself, and until it has ended is not asked again. Returns the failures that are known by then.
pub(crate) async fn remove_abandoned(
    exports: &Exports,
    storage_checks: &StorageChecks,
) -> Vec<(String, StoreError)> {
    let mut removals = JoinSet::new();
    for export in exports.iter().filter(|export| export.allow_write) {
        let path = export.path.to_string();
        if !lock(storage_checks).removals.insert(path.clone()) {
            continue;
        }
        let removal = Removal { path, storage_checks: Arc::clone(storage_checks) };
        let storage = Arc::clone(&export.storage);
        removals.spawn(async move {
            let removed = storage.remove_abandoned(limits::PARTIAL_AGE_MAX).await;
            removed.err().map(|error| (removal.path.clone(), error))
        });
    }
    let mut failures = Vec::new();
    let until = Instant::now() + limits::REMOVAL_WAIT_MAX;
    while let Ok(Some(ended)) = timeout_at(until, removals.join_next()).await {
        failures.extend(ended.ok().flatten());
    }
    removals.detach_all();
    failures
}

/// A removal of what was abandoned in an export, until it is dropped.
struct Removal {
    path: String,
    storage_checks: StorageChecks,
}

impl Drop for Removal {
    fn drop(&mut self) {
        lock(&self.storage_checks).removals.remove(&self.path);
    }
}

/// A check of the place of a storage, shared by all requests that come meanwhile: the storage is there, or something
/// else is.
#[derive(Clone)]
struct PlaceCheck {
    result: watch::Receiver<Option<bool>>,
    /// The end of all waits for it.
    until: Instant,
    /// The answer of the one before.
    before: Option<bool>,
}

impl PlaceCheck {
    /// The one that is under way, or a new one.
    fn of(storage_checks: &StorageChecks, path: &str, storage: &Arc<dyn Storage>) -> PlaceCheck {
        let mut running = lock(storage_checks);
        let last = running.places.get(path);
        if let Some(running) = last.filter(|last| last.result.has_changed().is_ok()) {
            return running.clone();
        }
        let before = last.and_then(|last| last.result.borrow().or(last.before));
        let (sender, result) = watch::channel(None);
        let check = PlaceCheck { result, until: Instant::now() + limits::ADMIN_SPACE_MAX, before };
        running.places.insert(path.to_owned(), check.clone());
        drop(running);
        let storage = Arc::clone(storage);
        // It ends when `sender` is dropped.
        tokio::spawn(async move { sender.send_replace(Some(storage.is_in_place().await)) });
        check
    }
}

/// The exports whose storage was asked and has not answered yet: each holds a turn there, and one is enough.
pub(crate) type StorageChecks = Arc<Mutex<RunningChecks>>;

/// The checks of storages that are under way.
#[derive(Default)]
pub(crate) struct RunningChecks {
    /// The exports that are asked for their space.
    spaces: HashSet<String>,
    /// The exports in which what was abandoned is being removed.
    removals: HashSet<String>,
    /// By export, the last look at its place.
    places: HashMap<String, PlaceCheck>,
}

fn lock(storage_checks: &StorageChecks) -> MutexGuard<'_, RunningChecks> {
    storage_checks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_store::MemoryStorage;

    /// A request that comes while a check is under way shares its result, and has the last one's if there is none.
    #[tokio::test]
    async fn a_check_is_shared_and_its_last_answer_is_remembered() {
        let storage_checks = StorageChecks::default();
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (sender, result) = watch::channel(None);
        let running = PlaceCheck { result, until: Instant::now(), before: Some(false) };
        lock(&storage_checks).places.insert("/".to_owned(), running);
        let mut joined = PlaceCheck::of(&storage_checks, "/", &storage);
        assert_eq!((*joined.result.borrow(), joined.before), (None, Some(false)));
        sender.send_replace(Some(true));
        assert_eq!(*joined.result.wait_for(Option::is_some).await.unwrap(), Some(true));
        drop(sender);
        // Another one begins, and knows the answer of this one.
        let mut next = PlaceCheck::of(&storage_checks, "/", &storage);
        assert_eq!(next.before, Some(true));
        assert_eq!(*next.result.wait_for(Option::is_some).await.unwrap(), Some(storage.is_in_place().await));
        // One that has ended without an answer forgets nothing.
        let (sender, result) = watch::channel(None);
        lock(&storage_checks).places.insert("/".to_owned(), PlaceCheck { result, ..next });
        drop(sender);
        assert_eq!(PlaceCheck::of(&storage_checks, "/", &storage).before, Some(true));
    }
}
