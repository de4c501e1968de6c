//! From a name to the addresses to try, in the order to try them (RFC 8305, sections 3 and 4).

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gridlane_core::limits::{ADDRESSES_MAX, FAMILY_MEMORY_MAX, RESOLVE_MAX, RESOLVING_MAX};
use gridlane_core::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Hosts that are remembered before the oldest are forgotten.
const HOSTS_KEPT: usize = 256;

/// Resolves names, and remembers which family of addresses worked.
pub(crate) struct Resolver {
    /// A question to a dead name service holds a thread for half a minute: only so many do at once.
    turns: Arc<Semaphore>,
    /// True if it was IPv6 that connected; and the moment since which that is known.
    winners: Mutex<HashMap<String, (bool, Instant)>>,
}

impl Resolver {
    pub(crate) fn new() -> Resolver {
        Resolver { turns: Arc::new(Semaphore::new(RESOLVING_MAX)), winners: Mutex::default() }
    }

    /// The addresses of `host` in the order to try them; never none. A literal is its own address, with
    /// the zone of a link-local one (`fe80::1%eth0`).
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
        let found = match timeout(RESOLVE_MAX, self.look_up(host.to_owned(), port)).await {
            Ok(found) => found?,
            Err(_) => {
                let message = format!("no address for {host:?} within {} s", RESOLVE_MAX.as_secs());
                return Err(Error::new(ErrorKind::Timeout, message).hint("check this machine's name service"));
            }
        };
        let addresses = interleave(found, self.winner(host));
        match addresses.is_empty() {
            true => Err(Error::new(ErrorKind::Network, format!("the name {host:?} has no address"))),
            false => Ok(addresses),
        }
    }

    async fn look_up(&self, host: String, port: u16) -> Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let name = host.clone();
        let asked = tokio::task::spawn_blocking(move || {
            // The turn ends with the question, not when its caller stops to wait for it.
            let _turn = turn;
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect)
        });
        match asked.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(cause)) => {
                let message = format!("the name {host:?} has no address: {cause}");
                let error = Error::new(ErrorKind::Network, message);
                Err(error.hint("check the spelling and this machine's name service"))
            }
            Err(cause) => Err(Error::new(ErrorKind::Other, format!("the name was not looked up: {cause}"))),
        }
    }

    /// Remembers for a while that `address` took a connection to `host`: its family goes first next time.
    pub(crate) fn won(&self, host: &str, address: SocketAddr) {
        let mut winners = self.winners.lock().unwrap_or_else(PoisonError::into_inner);
        if winners.len() >= HOSTS_KEPT {
            winners.retain(|_, (_, at)| at.elapsed() < FAMILY_MEMORY_MAX);
        }
        // What is known already is not known for longer by being used: the other family gets its chance.
        let is_known = winners
            .get(host)
            .is_some_and(|(is_ipv6, at)| *is_ipv6 == address.is_ipv6() && at.elapsed() < FAMILY_MEMORY_MAX);
        if !is_known && (winners.len() < HOSTS_KEPT || winners.contains_key(host)) {
            winners.insert(host.to_owned(), (address.is_ipv6(), Instant::now()));
        }
    }

    fn winner(&self, host: &str) -> Option<bool> {
        let winners = self.winners.lock().unwrap_or_else(PoisonError::into_inner);
        winners.get(host).filter(|(_, at)| at.elapsed() < FAMILY_MEMORY_MAX).map(|(is_ipv6, _)| *is_ipv6)
    }
}

/// The addresses with their families alternating, each family in the resolver's order. The first is of the
/// family that the resolver has first (RFC 6724), unless `first_is_ipv6` knows better.
fn interleave(found: Vec<SocketAddr>, first_is_ipv6: Option<bool>) -> Vec<SocketAddr> {
    let Some(first) = found.first() else { return Vec::new() };
    let first_is_ipv6 = first_is_ipv6.unwrap_or(first.is_ipv6());
    let (first, second): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == first_is_ipv6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut addresses: Vec<SocketAddr> = Vec::new();
    loop {
        let pair = (first.next(), second.next());
        if pair == (None, None) || addresses.len() >= ADDRESSES_MAX {
            return addresses;
        }
        for address in pair.0.into_iter().chain(pair.1) {
            // Some resolvers tell an address once for each kind of socket.
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_alternate_beginning_with_the_resolvers_choice() {
        let found = all(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::1]:1", "192.0.2.1:1"]);
        let order = all(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1"]);
        assert_eq!(interleave(found.clone(), None), order);
        let order = all(&["192.0.2.1:1", "[2001:db8::1]:1", "[2001:db8::2]:1"]);
        assert_eq!(interleave(found, Some(false)), order);
        let found = all(&["192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"]);
        assert_eq!(interleave(found, None), all(&["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"]));
        // What is remembered of a family that the name has no more does no harm.
        assert_eq!(interleave(all(&["192.0.2.1:1"]), Some(true)), all(&["192.0.2.1:1"]));
        assert_eq!(interleave(Vec::new(), None), []);
    }

    #[test]
    fn a_name_with_very_many_addresses_is_not_tried_for_ever() {
        let found = (0..1000).map(|at| SocketAddr::from(([10, 0, (at / 256) as u8, at as u8], 1))).collect();
        assert_eq!(interleave(found, None).len(), ADDRESSES_MAX);
    }

    #[tokio::test]
    async fn literals_are_their_own_address() {
        let resolver = Resolver::new();
        assert_eq!(resolver.resolve("::1", 7).await.unwrap(), all(&["[::1]:7"]));
        assert_eq!(resolver.resolve("192.0.2.7", 7).await.unwrap(), all(&["192.0.2.7:7"]));
        let zoned = resolver.resolve("fe80::1%lo", 7).await.unwrap();
        assert!(matches!(zoned[..], [SocketAddr::V6(v6)] if v6.scope_id() != 0), "{zoned:?}");
        let error = resolver.resolve("no.such.name.invalid", 7).await.unwrap_err();
        assert!(error.message().contains("no.such.name.invalid"), "{error}");
    }

    #[test]
    fn the_family_that_won_goes_first_next_time() {
        let resolver = Resolver::new();
        assert_eq!(resolver.winner("h"), None);
        resolver.won("h", "192.0.2.1:1".parse().unwrap());
        assert_eq!(resolver.winner("h"), Some(false));
        assert_eq!(resolver.winner("k"), None);
        for number in 0..1000 {
            resolver.won(&format!("h{number}"), "[::1]:1".parse().unwrap());
        }
        assert!(resolver.winners.lock().unwrap().len() <= HOSTS_KEPT);
    }
}
