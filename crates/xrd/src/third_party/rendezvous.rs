//! The source's side: the words of clients, and the destinations that come for them.
//!
//! A client's word names a destination, a file and a key; it counts while the client has the file open, and the destination has
//! to come within a time for the first time. A destination that comes first waits for it, as long as that. One that nothing
//! fits is told so only when its time is over: nobody learns whether a key exists.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use gridlane_core::{Secret, Time, limits};

/// A client's word: this destination may read this file.
#[derive(Clone, Debug)]
pub struct Word {
    /// The key of the copy.
    pub key: Secret,
    /// The client's login, as [`Origin::login`](super::Origin::login).
    pub login: String,
    /// The address that the client has.
    pub client: IpAddr,
    /// The file, in the form in which all paths of it are the same.
    pub path: Vec<u8>,
    /// The addresses that the destination may have.
    pub destinations: Vec<IpAddr>,
    /// The time within which it has to come first.
    pub ttl: Duration,
}

/// A destination that comes for a file.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The key of the copy.
    pub key: Secret,
    /// The login of the client for which it comes.
    pub login: String,
    /// The addresses that this client may have, by the destination's word.
    pub clients: Vec<IpAddr>,
    /// The file, in the form in which all paths of it are the same.
    pub path: Vec<u8>,
    /// The destination's address.
    pub peer: IpAddr,
}

/// A client's word that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u64);

/// A destination that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(u64);

/// The answer to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived<G> {
    /// It may read the file: what was given with the client's word.
    Granted(G),
    /// It waits, no longer than until then.
    Waits(WaitId, Time),
}

/// There are too many already, of this client or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The machine. `G` is what a destination is given that may read: the place of the file.
#[derive(Debug)]
pub struct Rendezvous<G> {
    entries: BTreeMap<EntryId, Entry<G>>,
    waiting: BTreeMap<WaitId, (Fetch, Time)>,
    next: u64,
}

#[derive(Debug)]
struct Entry<G> {
    word: Word,
    grant: G,
    /// The destination has to come before; `None` once it came.
    until: Option<Time>,
}

impl<G> Default for Rendezvous<G> {
    fn default() -> Rendezvous<G> {
        Rendezvous { entries: BTreeMap::new(), waiting: BTreeMap::new(), next: 0 }
    }
}

impl<G: Clone> Rendezvous<G> {
    /// Keeps a client's word until [`forget`](Rendezvous::forget). Returns the destinations that have waited for it.
    pub fn register(&mut self, now: Time, word: Word, grant: G) -> Result<(EntryId, Vec<WaitId>), Full> {
        self.expire(now);
        let of_client = self.entries.values().filter(|entry| entry.word.client == word.client).count();
        if self.entries.len() >= limits::ROOT_RENDEZVOUS_MAX
            || of_client >= limits::ROOT_RENDEZVOUS_PER_CLIENT_MAX
        {
            return Err(Full);
        }
        let fits = self.waiting.iter().filter(|(_, (fetch, _))| word.allows(fetch));
        let waited: Vec<WaitId> = fits.map(|(id, _)| *id).collect();
        for id in &waited {
            self.waiting.remove(id);
        }
        let until = waited.is_empty().then(|| now + word.ttl.min(limits::ROOT_RENDEZVOUS_TTL_MAX));
        let id = EntryId(self.number());
        self.entries.insert(id, Entry { word, grant, until });
        Ok((id, waited))
    }

    /// The client has closed the file: its word counts for no destination that comes from now on.
    pub fn forget(&mut self, id: EntryId) {
        self.entries.remove(&id);
    }

    /// A destination has come.
    pub fn arrive(&mut self, now: Time, fetch: Fetch) -> Result<Arrived<G>, Full> {
        self.expire(now);
        // All are looked at, whichever fits: how long that takes tells nothing.
        let mut found = None;
        for entry in self.entries.values_mut() {
            let counts = entry.until.is_none_or(|until| now < until);
            if entry.word.allows(&fetch) && counts {
                found = Some(entry);
            }
        }
        if let Some(entry) = found {
            entry.until = None;
            return Ok(Arrived::Granted(entry.grant.clone()));
        }
        let of_peer = self.waiting.values().filter(|(other, _)| other.peer == fetch.peer).count();
        if self.waiting.len() >= limits::ROOT_RENDEZVOUS_MAX
            || of_peer >= limits::ROOT_RENDEZVOUS_PER_CLIENT_MAX
        {
            return Err(Full);
        }
        let (id, until) = (WaitId(self.number()), now + limits::ROOT_RENDEZVOUS_TTL);
        self.waiting.insert(id, (fetch, until));
        Ok(Arrived::Waits(id, until))
    }

    /// A destination waits no longer.
    pub fn leave(&mut self, id: WaitId) {
        self.waiting.remove(&id);
    }

    /// The words that are kept, and the destinations that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.entries.len(), self.waiting.len())
    }

    /// Forgets what is over.
    fn expire(&mut self, now: Time) {
        self.entries.retain(|_, entry| entry.until.is_none_or(|until| now < until));
        self.waiting.retain(|_, (_, until)| now < *until);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Word {
    fn allows(&self, fetch: &Fetch) -> bool {
        // The key first: how long it takes tells those nothing that do not have it.
        is_same_key(&self.key, &fetch.key)
            && self.login == fetch.login
            && self.path == fetch.path
            && fetch.clients.contains(&self.client)
            && self.destinations.contains(&fetch.peer)
    }
}

/// Compares two keys in a time that depends on the lengths alone.
fn is_same_key(one: &Secret, other: &Secret) -> bool {
    let (one, other) = (one.expose().as_bytes(), other.expose().as_bytes());
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const DESTINATION: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn word(key: &str) -> Word {
        Word {
            key: Secret::new(key),
            login: "ann.7".to_owned(),
            client: CLIENT,
            path: b"/f".to_vec(),
            destinations: vec![DESTINATION],
            ttl: limits::ROOT_RENDEZVOUS_TTL,
        }
    }

    fn fetch(key: &str) -> Fetch {
        Fetch {
            key: Secret::new(key),
            login: "ann.7".to_owned(),
            clients: vec![OTHER, CLIENT],
            path: b"/f".to_vec(),
            peer: DESTINATION,
        }
    }

    fn is_granted(rendezvous: &mut Rendezvous<u32>, now: Time, fetch: Fetch) -> bool {
        matches!(rendezvous.arrive(now, fetch).unwrap(), Arrived::Granted(_))
    }

    #[test]
    fn a_word_counts_for_all_opens_of_its_destination_until_the_client_closes() {
        let mut rendezvous = Rendezvous::default();
        let (id, waited) = rendezvous.register(at(0), word("K"), 5).unwrap();
        assert_eq!(waited, []);
        assert_eq!(rendezvous.arrive(at(6), fetch("K")), Ok(Arrived::Granted(5)));
        // Long after the time within which it had to come first.
        assert_eq!(rendezvous.arrive(at(4000), fetch("K")), Ok(Arrived::Granted(5)));
        rendezvous.forget(id);
        assert!(!is_granted(&mut rendezvous, at(4000), fetch("K")));
    }

    #[test]
    fn a_destination_that_is_early_waits() {
        let mut rendezvous = Rendezvous::default();
        let Ok(Arrived::Waits(first, until)) = rendezvous.arrive(at(1), fetch("K")) else { panic!() };
        assert_eq!(until, at(8));
        let Ok(Arrived::Waits(second, _)) = rendezvous.arrive(at(2), fetch("K")) else { panic!() };
        let Ok(Arrived::Waits(other, _)) = rendezvous.arrive(at(2), fetch("L")) else { panic!() };
        let (_, waited) = rendezvous.register(at(3), word("K"), 5).unwrap();
        assert_eq!(waited, [first, second]);
        assert_eq!(rendezvous.counts(), (1, 1));
        // Who has waited has come.
        assert!(is_granted(&mut rendezvous, at(100), fetch("K")));
        rendezvous.leave(other);
        assert_eq!(rendezvous.counts(), (1, 0));
    }

    #[test]
    fn what_is_late_finds_nothing() {
        let mut rendezvous = Rendezvous::default();
        let Ok(Arrived::Waits(..)) = rendezvous.arrive(at(0), fetch("K")) else { panic!() };
        let (_, waited) = rendezvous.register(at(7), word("K"), 5).unwrap();
        assert_eq!(waited, []);
        assert!(!is_granted(&mut rendezvous, at(14), fetch("K")));
        // A client cannot ask for longer than the limit, and may for less.
        let mut long = word("L");
        long.ttl = Duration::from_secs(1000);
        rendezvous.register(at(20), long.clone(), 5).unwrap();
        assert!(!is_granted(&mut rendezvous, at(35), fetch("L")));
        rendezvous.register(at(40), long, 5).unwrap();
        assert!(is_granted(&mut rendezvous, at(54), fetch("L")));
    }

    #[test]
    fn a_word_that_fits_in_all_but_one_thing_fits_not() {
        let wrong: [fn(&mut Fetch); 8] = [
            |fetch| fetch.key = Secret::new("k"),
            |fetch| fetch.key = Secret::new("KK"),
            |fetch| fetch.key = Secret::new(""),
            |fetch| fetch.login = "ann.8".to_owned(),
            |fetch| fetch.clients = vec![OTHER],
            |fetch| fetch.clients = Vec::new(),
            |fetch| fetch.path = b"/g".to_vec(),
            |fetch| fetch.peer = OTHER,
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let mut changed = fetch("K");
            change(&mut changed);
            let mut rendezvous = Rendezvous::default();
            rendezvous.register(at(0), word("K"), 5).unwrap();
            assert!(!is_granted(&mut rendezvous, at(0), changed.clone()), "{number}");
            let mut rendezvous = Rendezvous::<u32>::default();
            assert!(!is_granted(&mut rendezvous, at(0), changed));
            assert_eq!(rendezvous.register(at(1), word("K"), 5).unwrap().1, [], "{number}");
        }
    }

    #[test]
    fn they_are_bounded() {
        let mut rendezvous = Rendezvous::default();
        for _ in 0..limits::ROOT_RENDEZVOUS_PER_CLIENT_MAX {
            rendezvous.register(at(0), word("K"), 5).unwrap();
            rendezvous.arrive(at(0), fetch("L")).unwrap();
        }
        assert_eq!(rendezvous.register(at(0), word("K"), 5), Err(Full));
        assert_eq!(rendezvous.arrive(at(0), fetch("L")), Err(Full));
        // Another client has its own part.
        let mut other = word("K");
        other.client = OTHER;
        assert!(rendezvous.register(at(0), other, 5).is_ok());
        // What is over makes room by itself.
        assert!(rendezvous.register(at(10), word("M"), 5).is_ok());
        assert_eq!(rendezvous.counts(), (1, 0));
        for number in 0..limits::ROOT_RENDEZVOUS_MAX as u32 + 3 {
            let address = IpAddr::from(number.to_be_bytes());
            let (mut word, mut fetch) = (word("N"), fetch("O"));
            (word.client, fetch.peer) = (address, address);
            let _ = (rendezvous.register(at(20), word, 5), rendezvous.arrive(at(20), fetch));
        }
        let most = limits::ROOT_RENDEZVOUS_MAX;
        assert_eq!(rendezvous.counts(), (most, most));
    }
}
