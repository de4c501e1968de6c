//! Turns of questions to the name service. One that does not answer holds a thread for half a minute: so there are only so many
//! at a time, and a domain, which may have a dead name service, has a part of them, as has one for whom is asked.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits::{RESOLVING_MAX, RESOLVING_OF_ASKER_MAX, RESOLVING_OF_DOMAIN_MAX};
use tokio::sync::oneshot;

use crate::identity::IdentityId;

/// The one for whom a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A user of this process, by the identity of connections.
    User(IdentityId),
    /// A client that is known by its address alone: an IPv4 one, or the first 64 bits of an IPv6 one, behind which a host has
    /// them all.
    Client(IpAddr),
}

impl Asker {
    /// The client at an address.
    pub(crate) fn client(address: IpAddr) -> Asker {
        match address.to_canonical() {
            IpAddr::V4(address) => Asker::Client(address.into()),
            IpAddr::V6(address) => {
                Asker::Client(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into())
            }
        }
    }
}

impl Default for Asker {
    fn default() -> Asker {
        Asker::User(IdentityId::default())
    }
}

/// The turns.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    taken: usize,
    of_domains: HashMap<String, usize>,
    of_askers: HashMap<Asker, usize>,
    /// In the order in which they came.
    waiting: VecDeque<(Part, oneshot::Sender<Turn>)>,
}

/// What a turn is a part of.
#[derive(Clone)]
struct Part {
    domain: String,
    asker: Asker,
}

/// A turn, until this is dropped.
pub(crate) struct Turn {
    turns: Turns,
    part: Part,
}

impl Turns {
    /// Waits for a turn. What waits holds nothing that others could have.
    pub(crate) async fn take(&self, domain: &str, asker: Asker) -> Turn {
        loop {
            let (tell, turn) = oneshot::channel();
            let part = Part { domain: domain.to_owned(), asker };
            self.lock().waiting.push_back((part, tell));
            self.go_on();
            // It is kept until it is told.
            if let Ok(turn) = turn.await {
                return turn;
            }
        }
    }

    /// Gives turns to those that wait and may have one.
    fn go_on(&self) {
        let next = self.lock().next();
        for (part, tell) in next {
            // One that nobody wants any longer comes back.
            let _ = tell.send(Turn { turns: self.clone(), part });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn are_free(&self) -> bool {
        let state = self.lock();
        state.taken == 0 && state.of_domains.is_empty() && state.of_askers.is_empty()
    }
}

impl State {
    /// Takes turns for those that have waited longest and may have one.
    fn next(&mut self) -> Vec<(Part, oneshot::Sender<Turn>)> {
        let mut next = Vec::new();
        for (part, tell) in std::mem::take(&mut self.waiting) {
            let of_domain = self.of_domains.get(&part.domain).copied().unwrap_or_default();
            let of_asker = self.of_askers.get(&part.asker).copied().unwrap_or_default();
            let may_have_one = self.taken < RESOLVING_MAX
                && of_domain < RESOLVING_OF_DOMAIN_MAX
                && of_asker < RESOLVING_OF_ASKER_MAX;
            if tell.is_closed() {
                // It was given up.
            } else if may_have_one {
                self.taken += 1;
                self.of_domains.insert(part.domain.clone(), of_domain + 1);
                self.of_askers.insert(part.asker, of_asker + 1);
                next.push((part, tell));
            } else {
                self.waiting.push_back((part, tell));
            }
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.taken -= 1;
        give_back(&mut state.of_domains, &self.part.domain);
        give_back(&mut state.of_askers, &self.part.asker);
        drop(state);
        self.turns.go_on();
    }
}

/// One less of those that are counted by a key.
fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
