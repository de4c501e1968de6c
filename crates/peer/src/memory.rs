//! Knowledge of servers, remembered so that it need not be found out each time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits::SERVERS_REMEMBERED_MAX;
use gridlane_core::{Endpoint, Url};
use gridlane_net::{Identity, IdentityId};

/// A server, and the identity that asks it: what it says may be meant for that one alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    endpoint: Endpoint,
    by: IdentityId,
}

impl Asked {
    /// The server of `url`, asked by `by`.
    pub fn new(url: &Url, by: &Identity) -> Asked {
        Asked { endpoint: url.endpoint(), by: by.id() }
    }
}

/// `Known` of each `Server`. Its clones share it.
pub struct Memory<Server, Known>(Arc<Mutex<HashMap<Server, Known>>>);

impl<Server: Clone + Eq + Hash, Known: Clone + Default> Memory<Server, Known> {
    /// The knowledge of a server; the default for one that was never learned of.
    pub fn of(&self, server: &Server) -> Known {
        self.all().get(server).cloned().unwrap_or_default()
    }

    /// Lets `news` change what is known of a server.
    pub fn learn<T>(&self, server: &Server, news: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.all();
        if let Some(known) = all.get_mut(server) {
            return news(known);
        }
        if all.len() >= SERVERS_REMEMBERED_MAX {
            all.clear();
        }
        news(all.entry(server.clone()).or_default())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Server, Known>> {
        // A panic elsewhere leaves nothing half-done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Derived, they would ask the same of `Server` and `Known`.
impl<Server, Known> Clone for Memory<Server, Known> {
    fn clone(&self) -> Self {
        Memory(self.0.clone())
    }
}

impl<Server, Known> Default for Memory<Server, Known> {
    fn default() -> Self {
        Memory(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_to_one_user_is_not_remembered_for_another() {
        let (ada, bob) = (Identity::new(None), Identity::new(None));
        let url = Url::parse_absolute("https://se.example/f").unwrap();
        let memory = Memory::<Asked, u8>::default();
        memory.learn(&Asked::new(&url, &ada), |known| *known = 1);
        let of = |identity: &Identity| memory.of(&Asked::new(&url, identity));
        assert_eq!((of(&ada.clone()), of(&bob), of(&Identity::default())), (1, 0, 0));
    }

    #[test]
    fn more_servers_than_are_remembered_are_forgotten_all_at_once() {
        let memory = Memory::<usize, u8>::default();
        for server in 0..SERVERS_REMEMBERED_MAX {
            memory.learn(&server, |known| *known = 1);
        }
        memory.learn(&0, |known| *known += 1);
        assert_eq!((memory.of(&0), memory.of(&(SERVERS_REMEMBERED_MAX - 1))), (2, 1));
        memory.clone().learn(&SERVERS_REMEMBERED_MAX, |known| *known = 1);
        assert_eq!((memory.of(&0), memory.of(&SERVERS_REMEMBERED_MAX)), (0, 1));
        assert_eq!(memory.all().len(), 1);
    }
}
