//! Limits of clients: connections at a time, requests per second, bytes per second. (Connections of an address are
//! counted where all of them are: `budget`.)
//!
//! A request counts for its client's address, for the user that the client has proved to be, and for that user's
//! virtual organisation: each is a `Party` with limits of its own, and the narrowest holds. An address is an IPv4 one
//! or the first 64 bits of an IPv6 one: a host has all the addresses behind those. Of each that was here lately one
//! entry is kept, of about 200 bytes and of a bounded number; one that is forgotten early begins with a full allowance,
//! as after a pause.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_auth::Identity;
use gridlane_auth::token::verified::Fingerprint;
use gridlane_core::{Time, limits};
use gridlane_share::RateLimit;
use gridlane_share::budget::host_of;

/// The limits of one client, one user or one virtual organisation; `None` is any amount.
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

/// The kind of the party that limits belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An address.
    Client,
    /// A user that has authenticated, at any address.
    User,
    /// All members of a virtual organisation.
    Vo,
}

impl By {
    /// In their order.
    pub(crate) const ALL: [By; 3] = [By::Client, By::User, By::Vo];

    /// In one word, for metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            By::Client => "client",
            By::User => "user",
            By::Vo => "vo",
        }
    }

    /// Its name in messages.
    pub(crate) fn named(self) -> &'static str {
        match self {
            By::Client => "this client",
            By::User => "this user",
            By::Vo => "this virtual organisation",
        }
    }
}

/// One of those that have limits. Names are kept as digests: they may be long, and an entry is not to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// A client, by its address.
    Client(IpAddr),
    /// A user, by its name among those of its issuer.
    User(Fingerprint),
    /// A virtual organisation, by its name.
    Vo(Fingerprint),
}

impl Party {
    pub(crate) fn client(address: IpAddr) -> Party {
        Party::Client(host_of(address))
    }

    /// The user of an identity; `None` if it is anonymous. A macaroon is its own user's: its bearer acts for them.
    fn user(identity: &Identity) -> Option<Party> {
        let of = |kind: &str, realm: &str, name: &str| {
            Some(Party::User(Fingerprint::of(format!("{kind}\0{realm}\0{name}"))))
        };
        match identity {
            Identity::Anonymous => None,
            Identity::Certificate(certificate) => of("dn", "", &certificate.dn),
            Identity::Token(token) => of("token", &token.issuer, &token.subject),
            Identity::Macaroon(macaroon) => of("macaroon", "", &macaroon.name),
            Identity::User(user) => of("user", "", &user.name),
        }
    }

    fn vo(identity: &Identity) -> Option<Party> {
        identity.vo().map(|vo| Party::Vo(Fingerprint::of(vo)))
    }

    pub(crate) fn by(self) -> By {
        match self {
            Party::Client(_) => By::Client,
            Party::User(_) => By::User,
            Party::Vo(_) => By::Vo,
        }
    }
}

/// Limits of each address, of each user, and of each virtual organisation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllLimits {
    pub(crate) client: ClientLimits,
    pub(crate) user: ClientLimits,
    pub(crate) vo: ClientLimits,
}

impl AllLimits {
    fn of(&self, by: By) -> &ClientLimits {
        match by {
            By::Client => &self.client,
            By::User => &self.user,
            By::Vo => &self.vo,
        }
    }

    /// True if nothing depends on the identity of clients.
    pub(crate) fn user_and_vo_are_none(&self) -> bool {
        self.user.are_none() && self.vo.are_none()
    }

    /// True if there are none at all.
    pub(crate) fn are_none(&self) -> bool {
        self.client.are_none() && self.user_and_vo_are_none()
    }

    /// The parties that requests from an address count for.
    pub(crate) fn of_address(&self, address: IpAddr) -> Parties {
        Parties(self.party(|| Some(Party::client(address)), self.client).into_iter().collect())
    }

    /// The parties that requests of an identity count for, beside the address.
    pub(crate) fn of_identity(&self, identity: &Identity) -> Parties {
        let user = self.party(|| Party::user(identity), self.user);
        let vo = self.party(|| Party::vo(identity), self.vo);
        Parties(user.into_iter().chain(vo).collect())
    }

    fn party(&self, party: impl FnOnce() -> Option<Party>, limits: ClientLimits) -> Option<Limited> {
        if limits.are_none() {
            return None;
        }
        Some(Limited { party: party()?, limits })
    }
}

/// A party that has limits, and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limited {
    party: Party,
    limits: ClientLimits,
}

/// The parties that something counts for: two at most, and mostly none, which takes no memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parties(Vec<Limited>);

impl Parties {
    fn iter(&self) -> impl Iterator<Item = &Limited> + Clone {
        self.0.iter()
    }

    /// True if no party has limits.
    pub(crate) fn are_none(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// The state of each party.
pub(crate) struct Throttle {
    parties: Mutex<HashMap<Party, Taken>>,
    parties_max: usize,
    origin: Instant,
}

/// The allowances that a party has used.
struct Taken {
    connections: u32,
    /// When the allowance of requests will be full again.
    full_at: Time,
    pace: Option<(u64, RateLimit)>,
    seen: Time,
}

impl Throttle {
    pub(crate) fn new() -> Throttle {
        Throttle::with_room(limits::THROTTLED_CLIENTS_MAX)
    }

    fn with_room(parties_max: usize) -> Throttle {
        Throttle { parties: Mutex::default(), parties_max, origin: Instant::now() }
    }

    /// Counts a connection of all of them for as long as what is returned lives; fails with the kind of the party that
    /// has too many.
    pub(crate) fn connect(self: &Arc<Throttle>, parties: &Parties) -> Result<Connected, By> {
        let mut counted = [None; 2];
        let limited = parties.iter().filter_map(|one| Some((one.party, one.limits.connections_max?)));
        if limited.clone().next().is_none() {
            return Ok(Connected::uncounted());
        }
        let (now, mut known) = (self.now(), self.lock());
        for (party, max) in limited.clone() {
            if self.entry(&mut known, party, now).connections >= max {
                return Err(party.by());
            }
        }
        for (place, (party, _)) in counted.iter_mut().zip(limited) {
            self.entry(&mut known, party, now).connections += 1;
            *place = Some(party);
        }
        Ok(Connected { counted, throttle: Some(Arc::clone(self)) })
    }

    /// Takes a request from the allowance of each; fails with the kind of a party that has none left, and the wait for
    /// the next one.
    pub(crate) fn request(&self, parties: &Parties) -> Result<(), (By, Duration)> {
        // Without a look at the clock.
        if parties.are_none() {
            return Ok(());
        }
        self.request_at(parties, self.now())
    }

    /// The generic cell rate algorithm (ITU-T I.371), with a second's worth of tolerance.
    fn request_at(&self, parties: &Parties, now: Time) -> Result<(), (By, Duration)> {
        const TOLERANCE: Duration = Duration::from_secs(1);
        let limited = parties.iter().filter_map(|one| Some((one.party, one.limits.requests_per_s?)));
        if limited.clone().next().is_none() {
            return Ok(());
        }
        let mut known = self.lock();
        let mut next = [None; 2];
        for (place, (party, rate)) in next.iter_mut().zip(limited) {
            let each = Duration::from_secs(1) / rate.max(1);
            let full_at = self.entry(&mut known, party, now).full_at.max(now) + each;
            match full_at.since(now).checked_sub(TOLERANCE) {
                // A request that one of them refuses takes nothing from the others.
                Some(wait) if !wait.is_zero() => return Err((party.by(), wait)),
                _ => *place = Some((party, full_at)),
            }
        }
        for (party, full_at) in next.into_iter().flatten() {
            self.entry(&mut known, party, now).full_at = full_at;
        }
        Ok(())
    }

    /// Takes so many requests from the allowance of each, left or not: later ones wait, though not for longer than
    /// [`limits::REQUESTS_OWED_MAX`], however often this is called meanwhile.
    pub(crate) fn owe(&self, parties: &Parties, count: u32) {
        if count > 0 && !parties.are_none() {
            self.owe_at(parties, count, self.now());
        }
    }

    fn owe_at(&self, parties: &Parties, count: u32, now: Time) {
        let mut known = self.lock();
        for one in parties.iter() {
            let Some(rate) = one.limits.requests_per_s else { continue };
            let taken = self.entry(&mut known, one.party, now);
            let owed = (Duration::from_secs(1) / rate.max(1)).saturating_mul(count);
            let most = limits::REQUESTS_OWED_MAX;
            let full_at = (taken.full_at.max(now) + owed.min(most)).min(now + most);
            taken.full_at = taken.full_at.max(full_at);
        }
    }

    /// The rate limits of the bytes that count for these.
    pub(crate) fn paces(&self, parties: &Parties) -> Paces {
        let mut paces = Paces::default();
        let limited = parties.iter().filter_map(|one| Some((one.party, one.limits.bytes_per_s?)));
        for (party, rate) in limited {
            let mut known = self.lock();
            let taken = self.entry(&mut known, party, self.now());
            paces.0.push(match &taken.pace {
                Some((same, pace)) if *same == rate => pace.clone(),
                _ => {
                    let pace = RateLimit::new(rate);
                    taken.pace = Some((rate, pace.clone()));
                    pace
                }
            });
        }
        paces
    }

    /// The number of parties in memory.
    pub(crate) fn parties(&self) -> usize {
        self.lock().len()
    }

    /// Forgets the parties that have no limits any longer. Connections that are counted go on being so.
    pub(crate) fn forget_unless(&self, limits: &AllLimits) {
        self.lock().retain(|party, taken| taken.connections > 0 || !limits.of(party.by()).are_none());
    }

    fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Party, Taken>> {
        // Every change is complete in itself.
        self.parties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The party's entry; a new one may need an old one's place.
    fn entry<'a>(&self, known: &'a mut HashMap<Party, Taken>, party: Party, now: Time) -> &'a mut Taken {
        if known.len() >= self.parties_max && !known.contains_key(&party) {
            // Half of them at once, so that the next search is far away. A party with connections is not forgotten: of
            // those there are never more than three for each that the server has.
            let mut seen: Vec<Time> = known.values().map(|taken| taken.seen).collect();
            let middle = seen.len() / 2;
            let (_, median, _) = seen.select_nth_unstable(middle);
            let median = *median;
            known.retain(|_, taken| taken.connections > 0 || taken.seen > median);
        }
        let taken = match known.entry(party) {
            Slot::Occupied(entry) => entry.into_mut(),
            Slot::Vacant(entry) => {
                entry.insert(Taken { connections: 0, full_at: Time::ZERO, pace: None, seen: now })
            }
        };
        taken.seen = now;
        taken
    }
}

/// A connection that is counted until this is dropped.
#[derive(Default)]
pub(crate) struct Connected {
    counted: [Option<Party>; 2],
    throttle: Option<Arc<Throttle>>,
}

impl Connected {
    /// A connection that counts for no party.
    pub(crate) fn uncounted() -> Connected {
        Connected::default()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let Some(throttle) = &self.throttle else { return };
        let mut known = throttle.lock();
        for party in self.counted.iter().flatten() {
            if let Some(taken) = known.get_mut(party) {
                taken.connections = taken.connections.saturating_sub(1);
            }
        }
    }
}

/// The rate limits that hold for some bytes: of an address, of a user, of a virtual organisation. Mostly none.
#[derive(Clone, Default)]
pub(crate) struct Paces(Vec<RateLimit>);

impl Paces {
    /// These, and others beside.
    pub(crate) fn and(mut self, others: Paces) -> Paces {
        self.0.extend(others.0);
        self
    }

    /// True if nothing limits.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Accounts for bytes that were moved already; returns the wait until they are due by all of them.
    pub(crate) fn owe(&self, bytes: u64) -> Duration {
        self.0.iter().map(|pace| pace.owe(bytes)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::token_of;
    use gridlane_auth::identity::TokenIdentity;

    fn at(address: &str, client: ClientLimits) -> Parties {
        AllLimits { client, ..AllLimits::default() }.of_address(address.parse().unwrap())
    }

    fn token(issuer: &str, subject: &str, vo: &str) -> Identity {
        Identity::Token(TokenIdentity { vo: Some(vo.to_owned()), ..token_of(issuer, subject) })
    }

    #[test]
    fn connections_are_counted_by_host() {
        let throttle = Arc::new(Throttle::with_room(100));
        let limits = ClientLimits { connections_max: Some(2), ..ClientLimits::default() };
        let connect = |address| throttle.connect(&at(address, limits));
        let first = connect("2001:db8::1");
        let second = connect("2001:db8::2");
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(connect("2001:db8::3").err(), Some(By::Client));
        let others = (connect("2001:db8:0:1::1"), connect("192.0.2.1"));
        assert!(others.0.is_ok() && others.1.is_ok());
        drop(first);
        assert!(connect("2001:db8::3").is_ok());
    }

    #[test]
    fn requests_have_a_rate_and_a_burst() {
        let throttle = Throttle::with_room(100);
        let limits = ClientLimits { requests_per_s: Some(10), ..ClientLimits::default() };
        let moment = |ms: u64| Time::from_origin(Duration::from_millis(100_000 + ms));
        let ask = |ms| throttle.request_at(&at("192.0.2.1", limits), moment(ms));
        let wait = |ms| Err((By::Client, Duration::from_millis(ms)));
        assert_eq!((0..20).filter(|_| ask(0).is_ok()).count(), 10);
        assert_eq!(ask(0), wait(100));
        assert_eq!(ask(99), wait(1));
        assert_eq!(ask(100), Ok(()));
        assert_eq!((0..1000).filter(|step| ask(100 + step * 10).is_ok()).count(), 99);
        assert_eq!(throttle.request_at(&at("192.0.2.2", limits), moment(0)), Ok(()));
    }

    #[test]
    fn a_debt_of_requests_has_a_bound_however_often_it_is_made() {
        let throttle = Throttle::with_room(100);
        let limits = ClientLimits { requests_per_s: Some(10), ..ClientLimits::default() };
        let parties = at("192.0.2.1", limits);
        let moment = |s: u64| Time::from_origin(Duration::from_secs(100 + s));
        for _ in 0..100 {
            throttle.owe_at(&parties, 16_384, moment(0));
        }
        // A second's worth is tolerated, and the request itself counts.
        let wait = limits::REQUESTS_OWED_MAX - Duration::from_millis(900);
        assert_eq!(throttle.request_at(&parties, moment(0)), Err((By::Client, wait)));
        throttle.owe_at(&parties, 1, moment(60));
        assert_eq!(throttle.request_at(&parties, moment(60)), Ok(()));
    }

    #[test]
    fn users_and_organisations_have_limits_wherever_they_are() {
        let throttle = Arc::new(Throttle::with_room(100));
        let few = |count| ClientLimits {
            connections_max: Some(count),
            requests_per_s: Some(count),
            bytes_per_s: None,
        };
        let limits = AllLimits { client: ClientLimits::default(), user: few(2), vo: few(3) };
        let (ada, bob) = (token("https://a", "ada", "atlas"), token("https://a", "bob", "atlas"));
        let other = token("https://b", "ada", "cms");
        let now = Time::from_origin(Duration::from_secs(100));
        let ask = |who| throttle.request_at(&limits.of_identity(who), now).map_err(|(by, _)| by);
        assert_eq!([ask(&ada), ask(&ada), ask(&ada)], [Ok(()), Ok(()), Err(By::User)]);
        // What was refused took nothing of the organisation's allowance.
        assert_eq!([ask(&bob), ask(&bob)], [Ok(()), Err(By::Vo)]);
        assert_eq!([ask(&other), ask(&other), ask(&other)], [Ok(()), Ok(()), Err(By::User)]);
        assert!(limits.of_identity(&Identity::Anonymous).are_none());
        let connect = |who| throttle.connect(&limits.of_identity(who));
        let held = [connect(&ada), connect(&ada), connect(&bob)];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!((connect(&ada).err(), connect(&bob).err()), (Some(By::User), Some(By::Vo)));
        assert!(connect(&other).is_ok());
        drop(held);
        assert!(connect(&ada).is_ok());
    }

    #[test]
    fn the_slowest_of_all_rates_holds() {
        let throttle = Throttle::with_room(100);
        let rate = |bytes| ClientLimits { bytes_per_s: Some(bytes), ..ClientLimits::default() };
        let limits = AllLimits { client: rate(1_000_000_000), user: rate(1_000_000), vo: rate(1000) };
        let paces = |who: &Identity| {
            throttle
                .paces(&limits.of_address("192.0.2.1".parse().unwrap()))
                .and(throttle.paces(&limits.of_identity(who)))
        };
        let (ada, bob) = (token("https://a", "ada", "atlas"), token("https://a", "bob", "atlas"));
        assert!(paces(&Identity::Anonymous).owe(1_000_000) < Duration::from_secs(1));
        paces(&ada).owe(100_000);
        // The organisation's, which others have used up.
        assert!(paces(&bob).owe(1000) > Duration::from_secs(50));
    }

    #[test]
    fn memory_is_bounded_and_the_connected_are_kept() {
        let throttle = Arc::new(Throttle::with_room(100));
        let limits = ClientLimits { connections_max: Some(1), requests_per_s: Some(1), bytes_per_s: Some(1) };
        let kept = throttle.connect(&at("192.0.2.1", limits));
        for number in 0..10_000u32 {
            let client = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
            let parties = AllLimits { client: limits, ..AllLimits::default() }.of_address(client);
            let now = Time::from_origin(Duration::from_secs(number.into()));
            assert!(throttle.request_at(&parties, now).is_ok());
            assert!(throttle.parties() <= 101);
        }
        assert!(throttle.connect(&at("192.0.2.1", limits)).is_err());
        drop(kept);
        assert!(throttle.connect(&at("192.0.2.1", limits)).is_ok());
        throttle.forget_unless(&AllLimits::default());
        assert_eq!(throttle.parties(), 0);
    }
}
