//! What one client may take of the server: connections at a time, requests per second, bytes per second.
//!
//! A client is an IPv4 address or the first 64 bits of an IPv6 one: a host has all the addresses behind those.
//! Of each that was here lately one entry is kept, of about 200 bytes and of a bounded number; who is forgotten
//! early begins with a full allowance, as if they had not been here for a while.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Time, limits};

use crate::shared::Pace;

/// What one client may take; `None` is any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections at the same time.
    pub connections_max: Option<u32>,
    /// Requests per second, on all its connections together. As many may come at once.
    pub requests_per_s: Option<u32>,
    /// Bytes of bodies per second, sent and received together, on all its connections together.
    pub bytes_per_s: Option<u64>,
}

impl ClientLimits {
    fn are_none(&self) -> bool {
        *self == ClientLimits::default()
    }
}

/// What is known of each client.
pub(crate) struct Throttle {
    clients: Mutex<HashMap<IpAddr, Client>>,
    clients_max: usize,
    origin: Instant,
}

struct Client {
    connections: u32,
    /// When the allowance of requests will be full again.
    full_at: Time,
    pace: Option<(u64, Arc<Pace>)>,
    seen: Time,
}

impl Throttle {
    pub(crate) fn new() -> Throttle {
        Throttle::with_room(limits::THROTTLED_CLIENTS_MAX)
    }

    fn with_room(clients_max: usize) -> Throttle {
        Throttle { clients: Mutex::default(), clients_max, origin: Instant::now() }
    }

    /// Counts a connection of the client for as long as what is returned lives; `None` when it has as many as it
    /// may have.
    pub(crate) fn connect(self: &Arc<Throttle>, address: IpAddr, limits: &ClientLimits) -> Option<Connected> {
        let Some(max) = limits.connections_max else { return Some(Connected::uncounted()) };
        let key = key_of(address);
        let mut clients = self.lock();
        let client = self.entry(&mut clients, key, self.now());
        if client.connections >= max {
            return None;
        }
        client.connections += 1;
        Some(Connected { counted: Some((Arc::clone(self), key)) })
    }

    /// Takes a request from the client's allowance; how long to wait for the next one if there is none.
    pub(crate) fn request(&self, address: IpAddr, limits: &ClientLimits) -> Result<(), Duration> {
        self.request_at(address, limits, self.now())
    }

    /// The generic cell rate algorithm (ITU-T I.371), with a second's worth of tolerance.
    fn request_at(&self, address: IpAddr, limits: &ClientLimits, now: Time) -> Result<(), Duration> {
        const TOLERANCE: Duration = Duration::from_secs(1);
        let Some(rate) = limits.requests_per_s else { return Ok(()) };
        let each = Duration::from_secs(1) / rate.max(1);
        let mut clients = self.lock();
        let client = self.entry(&mut clients, key_of(address), now);
        let full_at = client.full_at.max(now) + each;
        match full_at.since(now).checked_sub(TOLERANCE) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                client.full_at = full_at;
                Ok(())
            }
        }
    }

    /// The rate limit of a client's bytes, if it has one.
    pub(crate) fn pace(&self, address: IpAddr, limits: &ClientLimits) -> Option<Arc<Pace>> {
        let rate = limits.bytes_per_s?;
        let mut clients = self.lock();
        let client = self.entry(&mut clients, key_of(address), self.now());
        match &client.pace {
            Some((same, pace)) if *same == rate => Some(Arc::clone(pace)),
            _ => {
                let pace = Arc::new(Pace::new(rate));
                client.pace = Some((rate, Arc::clone(&pace)));
                Some(pace)
            }
        }
    }

    /// How many clients are kept in mind.
    pub(crate) fn clients(&self) -> usize {
        self.lock().len()
    }

    /// Forgets everybody, when nothing is limited any longer. Connections that are counted go on being so.
    pub(crate) fn forget_unless(&self, limits: &ClientLimits) {
        if limits.are_none() {
            self.lock().retain(|_, client| client.connections > 0);
        }
    }

    fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Client>> {
        // Every change is complete in itself.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's entry; a new one may need an old one's place.
    fn entry<'a>(&self, clients: &'a mut HashMap<IpAddr, Client>, key: IpAddr, now: Time) -> &'a mut Client {
        if clients.len() >= self.clients_max && !clients.contains_key(&key) {
            // Half of them at once, so that the next search is far away. Who has connections is not forgotten:
            // of those there are never more than the server has.
            let mut seen: Vec<Time> = clients.values().map(|client| client.seen).collect();
            let middle = seen.len() / 2;
            let (_, median, _) = seen.select_nth_unstable(middle);
            let median = *median;
            clients.retain(|_, client| client.connections > 0 || client.seen > median);
        }
        let client = match clients.entry(key) {
            Slot::Occupied(entry) => entry.into_mut(),
            Slot::Vacant(entry) => {
                entry.insert(Client { connections: 0, full_at: Time::ZERO, pace: None, seen: now })
            }
        };
        client.seen = now;
        client
    }
}

/// A connection that is counted until this is dropped.
pub(crate) struct Connected {
    counted: Option<(Arc<Throttle>, IpAddr)>,
}

impl Connected {
    /// Of nobody.
    pub(crate) fn uncounted() -> Connected {
        Connected { counted: None }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some((throttle, key)) = &self.counted
            && let Some(client) = throttle.lock().get_mut(key)
        {
            client.connections = client.connections.saturating_sub(1);
        }
    }
}

fn key_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_counted_by_host() {
        let throttle = Arc::new(Throttle::with_room(100));
        let limits = ClientLimits { connections_max: Some(2), ..ClientLimits::default() };
        let first = throttle.connect(address("2001:db8::1"), &limits);
        let second = throttle.connect(address("2001:db8::2"), &limits);
        assert!(first.is_some() && second.is_some());
        assert!(throttle.connect(address("2001:db8::3"), &limits).is_none());
        assert!(throttle.connect(address("2001:db8:0:1::1"), &limits).is_some());
        assert!(throttle.connect(address("192.0.2.1"), &limits).is_some());
        drop(first);
        assert!(throttle.connect(address("2001:db8::3"), &limits).is_some());
    }

    #[test]
    fn requests_have_a_rate_and_a_burst() {
        let throttle = Throttle::with_room(100);
        let limits = ClientLimits { requests_per_s: Some(10), ..ClientLimits::default() };
        let at = |ms: u64| Time::from_origin(Duration::from_millis(100_000 + ms));
        let ask = |ms| throttle.request_at(address("192.0.2.1"), &limits, at(ms));
        assert_eq!((0..20).filter(|_| ask(0).is_ok()).count(), 10);
        assert_eq!(ask(0), Err(Duration::from_millis(100)));
        assert_eq!(ask(99), Err(Duration::from_millis(1)));
        assert_eq!(ask(100), Ok(()));
        assert_eq!((0..1000).filter(|step| ask(100 + step * 10).is_ok()).count(), 99);
        assert_eq!(throttle.request_at(address("192.0.2.2"), &limits, at(0)), Ok(()));
    }

    #[test]
    fn memory_is_bounded_and_the_connected_are_kept() {
        let throttle = Arc::new(Throttle::with_room(100));
        let limits = ClientLimits { connections_max: Some(1), requests_per_s: Some(1), bytes_per_s: Some(1) };
        let kept = throttle.connect(address("192.0.2.1"), &limits);
        for number in 0..10_000u32 {
            let client = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
            assert!(
                throttle
                    .request_at(client, &limits, Time::from_origin(Duration::from_secs(number.into())))
                    .is_ok()
            );
            assert!(throttle.clients() <= 101);
        }
        assert!(throttle.connect(address("192.0.2.1"), &limits).is_none());
        drop(kept);
        assert!(throttle.connect(address("192.0.2.1"), &limits).is_some());
        throttle.forget_unless(&ClientLimits::default());
        assert_eq!(throttle.clients(), 0);
    }
}
