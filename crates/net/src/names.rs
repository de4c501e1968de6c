//! Names of hosts and their addresses, for servers that have to tell whether a client is where another one says.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::limits::RESOLVE_MAX;
use tokio::time::timeout;

use crate::resolve::Resolver;
use crate::turns::{Asker, Turns};

/// Hosts that are remembered before all are forgotten.
const HOSTS_KEPT: usize = 1024;
/// Time for which an answer counts: a burst of copies asks once, and a host that has moved is found.
const KEPT: Duration = Duration::from_secs(60);

/// Looks up names and addresses, and remembers the answers for a minute.
pub struct Names {
    resolver: Resolver,
    addresses: Memory<String, Vec<IpAddr>>,
    names: Memory<IpAddr, Option<String>>,
    turns: Turns,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            resolver: Resolver::new(),
            addresses: Memory::default(),
            names: Memory::default(),
            turns: Turns::default(),
        }
    }
}

impl Names {
    /// The addresses of a host that a client has named, in canonical form; none if it has none, or the name service does not
    /// answer. What one client names keeps no other one's names waiting.
    pub async fn addresses(&self, client: IpAddr, name: &str) -> Vec<IpAddr> {
        let name = name.to_owned();
        if let Some(known) = self.addresses.get(&name) {
            return known;
        }
        let found = self.resolver.resolve(Asker::client(client), &name, 0).await.unwrap_or_default();
        let found: Vec<IpAddr> = found.into_iter().map(|address| address.ip().to_canonical()).collect();
        self.addresses.keep(name, found.clone());
        found
    }

    /// The name of the host that has an address, if that name leads back to the address.
    pub async fn name(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        if let Some(known) = self.names.get(&address) {
            return known;
        }
        let said = timeout(RESOLVE_MAX, self.look_up(address)).await.ok().flatten();
        let name = match said {
            Some(said) => self.addresses(address, &said).await.contains(&address).then_some(said),
            None => None,
        };
        self.names.keep(address, name.clone());
        name
    }

    async fn look_up(&self, address: IpAddr) -> Option<String> {
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        // Networks have name services of their own: by these the turns are told apart, as by domains.
        let network = match mapped.to_ipv4_mapped() {
            Some(address) => u128::from(address.to_bits() >> 8),
            None => mapped.to_bits() >> 80,
        };
        let turn = self.turns.take(&network.to_string(), Asker::client(address)).await;
        let asked = tokio::task::spawn_blocking(move || {
            // The turn ends with the question, not when its caller stops to wait for it.
            let _turn = turn;
            gridlane_sys::names::name_of(mapped)
        });
        asked.await.ok().flatten()
    }
}

/// Answers, each for a while.
struct Memory<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Memory<K, V> {
        Memory(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, at)| at.elapsed() < KEPT).map(|(value, _)| value.clone())
    }

    fn keep(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOSTS_KEPT {
            known.retain(|_, (_, at)| at.elapsed() < KEPT);
        }
        if known.len() >= HOSTS_KEPT {
            known.clear();
        }
        known.insert(key, (value, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn literals_and_what_is_no_name() {
        let names = Names::default();
        let address: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(names.addresses(address, "::ffff:192.0.2.1").await, [address]);
        assert_eq!(names.addresses(address, "no.such.name.invalid").await, Vec::<IpAddr>::new());
        assert_eq!(names.name(address).await, None);
    }

    #[test]
    fn answers_are_bounded() {
        let memory = Memory::default();
        for number in 0..3 * HOSTS_KEPT {
            memory.keep(number, ());
        }
        assert!(memory.0.lock().unwrap().len() <= HOSTS_KEPT);
        assert_eq!(memory.get(&(3 * HOSTS_KEPT - 1)), Some(()));
    }
}
