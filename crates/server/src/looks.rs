//! Checks of the exports' storages for health requests and metrics: of each storage that does not answer, one turn is
//! held at most.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits;
use gridlane_store::{ObjectPath, Space, Storage};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::export::Exports;

/// The room in each export, as far as its storage answers in time: a dead one must not keep the others from the page.
pub(crate) async fn spaces(exports: &Exports, looking: &Looking) -> Vec<(String, Space)> {
    let mut spaces = Vec::new();
    for export in exports.iter() {
        let path = export.path.to_string();
        if !lock(looking).spaces.insert(path.clone()) {
            continue;
        }
        let (storage, looked, name) = (Arc::clone(&export.storage), Arc::clone(looking), path.clone());
        let asked = tokio::spawn(async move {
            let space = storage.space(&ObjectPath::root()).await.ok();
            lock(&looked).spaces.remove(&name);
            space
        });
        if let Ok(Ok(Some(space))) = timeout(limits::ADMIN_SPACE_MAX, asked).await {
            spaces.push((path, space));
        }
    }
    spaces
}

/// The first export whose storage is not the directory at its path any more, as far as that is known in time: for a
/// storage that does not answer, by its last answer, if it gave any.
pub(crate) async fn displaced(exports: &Exports, looking: &Looking) -> Option<String> {
    for export in exports.iter() {
        let path = export.path.to_string();
        let mut look = Look::of(looking, &path, &export.storage);
        let told = match timeout_at(look.until, look.told.wait_for(Option::is_some)).await {
            Ok(Ok(told)) => *told,
            _ => look.before,
        };
        if told == Some(false) {
            return Some(path);
        }
    }
    None
}

/// A check of the place of a storage, shared by all requests that come meanwhile: the storage is there, or something
/// else is.
#[derive(Clone)]
struct Look {
    told: watch::Receiver<Option<bool>>,
    /// The end of all waits for it.
    until: Instant,
    /// The answer of the one before.
    before: Option<bool>,
}

impl Look {
    /// The one that is under way, or a new one.
    fn of(looking: &Looking, path: &str, storage: &Arc<dyn Storage>) -> Look {
        let mut looks = lock(looking);
        let last = looks.places.get(path);
        if let Some(running) = last.filter(|last| last.told.has_changed().is_ok()) {
            return running.clone();
        }
        let before = last.and_then(|last| last.told.borrow().or(last.before));
        let (tell, told) = watch::channel(None);
        let look = Look { told, until: Instant::now() + limits::ADMIN_SPACE_MAX, before };
        looks.places.insert(path.to_owned(), look.clone());
        drop(looks);
        let storage = Arc::clone(storage);
        // It ends when `tell` is dropped.
        tokio::spawn(async move { tell.send_replace(Some(storage.is_in_place().await)) });
        look
    }
}

/// The exports whose storage was asked and has not answered yet: each holds a turn there, and one is enough.
pub(crate) type Looking = Arc<Mutex<Looks>>;

/// The checks of storages that are under way.
#[derive(Default)]
pub(crate) struct Looks {
    /// The exports that are asked for their space.
    spaces: HashSet<String>,
    /// By export, the last look at its place.
    places: HashMap<String, Look>,
}

fn lock(looking: &Looking) -> MutexGuard<'_, Looks> {
    looking.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_store::MemoryStorage;

    /// A request that comes while a check is under way shares its result, and has the last one's if there is none.
    #[tokio::test]
    async fn a_look_is_for_all_who_ask_meanwhile_and_the_last_answer_is_remembered() {
        let looking = Looking::default();
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (tell, told) = watch::channel(None);
        let running = Look { told, until: Instant::now(), before: Some(false) };
        lock(&looking).places.insert("/".to_owned(), running);
        let mut joined = Look::of(&looking, "/", &storage);
        assert_eq!((*joined.told.borrow(), joined.before), (None, Some(false)));
        tell.send_replace(Some(true));
        assert_eq!(*joined.told.wait_for(Option::is_some).await.unwrap(), Some(true));
        drop(tell);
        // Another one begins, and knows the answer of this one.
        let mut next = Look::of(&looking, "/", &storage);
        assert_eq!(next.before, Some(true));
        assert_eq!(*next.told.wait_for(Option::is_some).await.unwrap(), Some(storage.is_in_place().await));
        // One that has ended without an answer forgets nothing.
        let (tell, told) = watch::channel(None);
        lock(&looking).places.insert("/".to_owned(), Look { told, ..next });
        drop(tell);
        assert_eq!(Look::of(&looking, "/", &storage).before, Some(true));
    }
}
