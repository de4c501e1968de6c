//! From a name to the addresses to try, in the order to try them (RFC 8305, sections 3 and 4).

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gridlane_core::limits::{ADDRESSES_MAX, FAMILY_MEMORY_MAX, RESOLVE_MAX};
use gridlane_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::turns::{Asker, Turns};

/// Hosts that are remembered before the oldest are forgotten.
const HOSTS_KEPT: usize = 256;

/// The answer of the name service: addresses, with port 0, or why there are none. `None`: it has not come.
type Answer = Option<std::result::Result<Vec<SocketAddr>, String>>;
/// Asks the name service.
type Ask = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves names, and remembers which family of addresses worked.
pub(crate) struct Resolver {
    questions: Arc<Questions>,
    /// True if it was IPv6 that connected; and the moment since which that is known.
    winners: Mutex<HashMap<String, (bool, Instant)>>,
}

impl Resolver {
    pub(crate) fn new() -> Resolver {
        Resolver::asking(|name| (name, 0).to_socket_addrs().map(Iterator::collect))
    }

    fn asking(ask: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Resolver {
        let (turns, open) = Default::default();
        let questions = Questions { turns, open, ask: Box::new(ask) };
        Resolver { questions: Arc::new(questions), winners: Mutex::default() }
    }

    /// The addresses of `host` in the order to try them; never none. A literal is its own address, with
    /// the zone of a link-local one (`fe80::1%eth0`).
    pub(crate) async fn resolve(&self, asker: Asker, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
        let found = match timeout(RESOLVE_MAX, self.look_up(asker, host.to_owned(), port)).await {
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

    async fn look_up(&self, asker: Asker, host: String, port: u16) -> Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        loop {
            let (mut answer, question) = self.questions.join(asker, &host);
            let asks = question.is_some();
            if let Some(question) = question {
                question.ask().await;
            }
            let answer = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
            return match answer {
                Some(Ok(mut found)) => {
                    found.iter_mut().for_each(|address| address.set_port(port));
                    Ok(found)
                }
                Some(Err(cause)) => {
                    let message = format!("the name {host:?} has no address: {cause}");
                    let error = Error::new(ErrorKind::Network, message);
                    Err(error.hint("check the spelling and this machine's name service"))
                }
                // The one that would have asked was given up before its turn came.
                None if !asks => continue,
                None => Err(Error::new(ErrorKind::Other, "the name was not looked up")),
            };
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

/// Questions to the name service. A dead one holds a thread for half a minute: so a name is asked for once on behalf of one user,
/// however many wait for it, and questions have [turns](Turns).
///
/// One user's question is never waited for on behalf of another: it may stand behind many that are not answered.
struct Questions {
    turns: Turns,
    /// Those without an answer.
    open: Mutex<HashMap<(Asker, String), watch::Receiver<Answer>>>,
    ask: Box<Ask>,
}

/// A question that is open until this is dropped.
struct Open {
    questions: Arc<Questions>,
    asker: Asker,
    name: String,
    tell: watch::Sender<Answer>,
}

impl Questions {
    /// The answer for `name`, when it comes; with the question, if there is none open that it is the answer to.
    fn join(self: &Arc<Questions>, asker: Asker, name: &str) -> (watch::Receiver<Answer>, Option<Open>) {
        let key = (asker, name.to_owned());
        // A panic elsewhere leaves nothing half-done here.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = open.get(&key) {
            return (answer.clone(), None);
        }
        let (tell, answer) = watch::channel(None);
        open.insert(key, answer.clone());
        (answer, Some(Open { questions: Arc::clone(self), asker, name: name.to_owned(), tell }))
    }
}

impl Open {
    /// Asks when it is its turn. The answer comes later.
    async fn ask(self) {
        let turn = self.questions.turns.take(domain(&self.name), self.asker).await;
        tokio::task::spawn_blocking(move || {
            // The turn ends with the question, not when its callers stop to wait for it.
            let _turn = turn;
            let found = (self.questions.ask)(&self.name).map_err(|cause| cause.to_string());
            self.tell.send_replace(Some(found));
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.questions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&(self.asker, std::mem::take(&mut self.name)));
    }
}

/// The end of a name, whose name service answers for it: its last two parts.
fn domain(name: &str) -> &str {
    let name = name.strip_suffix('.').unwrap_or(name);
    let before = name.rmatch_indices('.').nth(1);
    before.map_or(name, |(at, _)| &name[at + 1..])
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
    use gridlane_core::limits::{RESOLVING_OF_ASKER_MAX, RESOLVING_OF_DOMAIN_MAX};

    use super::*;
    use crate::Identity;

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
        assert_eq!(resolver.resolve(Asker::default(), "::1", 7).await.unwrap(), all(&["[::1]:7"]));
        assert_eq!(resolver.resolve(Asker::default(), "192.0.2.7", 7).await.unwrap(), all(&["192.0.2.7:7"]));
        let zoned = resolver.resolve(Asker::default(), "fe80::1%lo", 7).await.unwrap();
        assert!(matches!(zoned[..], [SocketAddr::V6(v6)] if v6.scope_id() != 0), "{zoned:?}");
        let error = resolver.resolve(Asker::default(), "no.such.name.invalid", 7).await.unwrap_err();
        assert!(error.message().contains("no.such.name.invalid"), "{error}");
    }

    /// A name service that answers for names in `.dead` when it is told to, and counts what it is asked.
    fn asking() -> (Resolver, std::sync::mpsc::Sender<()>, Arc<Mutex<Vec<String>>>) {
        let (dies, is_told) = std::sync::mpsc::channel::<()>();
        let (is_told, asked) = (Mutex::new(is_told), Arc::new(Mutex::new(Vec::new())));
        let counts = Arc::clone(&asked);
        let resolver = Resolver::asking(move |name| {
            counts.lock().unwrap().push(name.to_owned());
            if name.ends_with(".dead") {
                // Until the test is over.
                let _ = is_told.lock().unwrap().recv();
            }
            Ok(all(&["192.0.2.1:0"]))
        });
        (resolver, dies, asked)
    }

    /// A question ends a moment after its answer was told.
    async fn nothing_is_kept(resolver: &Resolver) {
        while !(resolver.questions.turns.are_free() && resolver.questions.open.lock().unwrap().is_empty()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn dead_name_services_leave_turns_to_others() {
        let (resolver, dies, asked) = asking();
        let resolver = Arc::new(resolver);
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..100 {
            for name in ["one.dead", "two.dead", "three.dead"] {
                let resolver = Arc::clone(&resolver);
                let name = if number < 50 { name.to_owned() } else { format!("h{number}.{name}") };
                waiting.spawn(async move { resolver.resolve(Asker::default(), &name, 1).await });
            }
        }
        // Three domains have three quarters of what one user may have.
        let open_max = 3 * RESOLVING_OF_DOMAIN_MAX;
        while asked.lock().unwrap().len() < open_max {
            tokio::task::yield_now().await;
        }
        for name in ["alive.example", "also.alive.example"] {
            assert_eq!(resolver.resolve(Asker::default(), name, 7).await.unwrap(), all(&["192.0.2.1:7"]));
        }
        let names = asked.lock().unwrap().clone();
        assert_eq!(names.len(), open_max + 2, "{names:?}");
        let again = names.iter().filter(|name| *name == "one.dead").count();
        assert_eq!(again, 1, "a name is asked for once: {names:?}");
        // The service comes back: all have their answer, and nothing is kept.
        drop(dies);
        while let Some(found) = waiting.join_next().await {
            assert_eq!(found.unwrap().unwrap(), all(&["192.0.2.1:1"]));
        }
        nothing_is_kept(&resolver).await;
    }

    #[tokio::test]
    async fn a_user_whose_names_are_all_dead_keeps_nobody_else_waiting() {
        let (resolver, dies, asked) = asking();
        let resolver = Arc::new(resolver);
        let (bad, good) = (Identity::new(None), Identity::new(None));
        let look_up = |user: &Identity, name: String| {
            let (resolver, user) = (Arc::clone(&resolver), Asker::User(user.id()));
            tokio::spawn(async move { resolver.resolve(user, &name, 1).await })
        };
        let dead = (0..100).map(|number| look_up(&bad, format!("h{number}.of{number}.dead")));
        let mut dead: Vec<_> = dead.collect();
        while asked.lock().unwrap().len() < RESOLVING_OF_ASKER_MAX {
            tokio::task::yield_now().await;
        }
        // Also what the first one waits to ask for itself.
        dead.push(look_up(&bad, "alive.example".to_owned()));
        tokio::task::yield_now().await;
        for name in ["alive.example", "other.example"] {
            assert_eq!(look_up(&good, name.to_owned()).await.unwrap().unwrap(), all(&["192.0.2.1:1"]));
        }
        assert_eq!(asked.lock().unwrap().len(), RESOLVING_OF_ASKER_MAX + 2);
        drop(dies);
        for found in dead {
            assert_eq!(found.await.unwrap().unwrap(), all(&["192.0.2.1:1"]));
        }
        nothing_is_kept(&resolver).await;
    }

    #[tokio::test]
    async fn one_that_gives_up_leaves_the_question_to_those_who_wait() {
        let (resolver, dies, asked) = asking();
        let resolver = Arc::new(resolver);
        let mut turns = Vec::new();
        for _ in 0..RESOLVING_OF_DOMAIN_MAX {
            turns.push(resolver.questions.turns.take("a.example", Asker::default()).await);
        }
        let look_up = || {
            let resolver = Arc::clone(&resolver);
            tokio::spawn(async move { resolver.resolve(Asker::default(), "a.example", 1).await })
        };
        let (first, second) = (look_up(), look_up());
        while resolver.questions.open.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert!(first.await.is_err());
        drop(turns);
        assert_eq!(second.await.unwrap().unwrap(), all(&["192.0.2.1:1"]));
        assert_eq!(*asked.lock().unwrap(), ["a.example"]);
        drop(dies);
    }

    #[test]
    fn a_domain_is_the_end_of_a_name() {
        for (name, end) in [
            ("a.b.example.org", "example.org"),
            ("example.org.", "example.org"),
            ("h", "h"),
            ("", ""),
            (".", ""),
            ("..", "."),
        ] {
            assert_eq!(domain(name), end, "{name}");
        }
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
