//! Sessions of TLS that clients may go on with: what spares a handshake its certificates and signatures.
//!
//! They are kept here and not in tickets that clients bring, so that forgetting them is enough: there is no key that
//! would open them later, and a session whose client had a certificate restores the chain that was sent.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::limits::{TLS_SESSION_AGE_MAX, TLS_SESSIONS_BYTES_MAX};
use rustls::server::StoresServerSessions;

/// Memory of a session beside its own bytes, roughly: two copies of its key, and places in a map and a queue.
const ENTRY_BYTES: usize = 256;

/// Sessions up to so many bytes; the oldest go first, and none lives longer than a client may use it.
pub(crate) struct Resumption {
    kept: Mutex<Kept>,
    bytes_max: usize,
    age_max: Duration,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<Arc<[u8]>, Session>,
    /// Keys in the order in which they came; those that were taken since have another number, or none.
    order: VecDeque<(u64, Arc<[u8]>)>,
    bytes: usize,
    next: u64,
}

struct Session {
    number: u64,
    since: Instant,
    value: Vec<u8>,
}

impl Resumption {
    pub(crate) fn new() -> Arc<Resumption> {
        Arc::new(Resumption::with_room(TLS_SESSIONS_BYTES_MAX, TLS_SESSION_AGE_MAX))
    }

    fn with_room(bytes_max: usize, age_max: Duration) -> Resumption {
        Resumption { kept: Mutex::default(), bytes_max, age_max }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Every change is complete in itself.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, session: &Session) -> bool {
        session.since.elapsed() < self.age_max
    }
}

impl Kept {
    fn remove(&mut self, key: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(key)?;
        self.bytes -= session.value.len() + ENTRY_BYTES;
        // The queue has the key until its turn comes; so many of those are not worth keeping.
        if self.order.len() > 2 * self.sessions.len() + 64 {
            let sessions = &self.sessions;
            self.order.retain(|(number, key)| sessions.get(key).is_some_and(|kept| kept.number == *number));
        }
        Some(session)
    }
}

impl StoresServerSessions for Resumption {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut kept = self.lock();
        kept.remove(&key);
        let size = value.len() + ENTRY_BYTES;
        if size > self.bytes_max {
            return false;
        }
        while kept.bytes + size > self.bytes_max {
            let Some((number, oldest)) = kept.order.pop_front() else { break };
            if kept.sessions.get(&oldest).is_some_and(|session| session.number == number) {
                kept.remove(&oldest);
            }
        }
        let (key, number) = (Arc::<[u8]>::from(key), kept.next);
        kept.next += 1;
        kept.bytes += size;
        kept.order.push_back((number, Arc::clone(&key)));
        kept.sessions.insert(key, Session { number, since: Instant::now(), value });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let kept = self.lock();
        kept.sessions.get(key).filter(|session| self.is_fresh(session)).map(|session| session.value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.lock().remove(key)?;
        self.is_fresh(&session).then_some(session.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Nothing of what is kept.
impl fmt::Debug for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumption").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(3600);

    #[test]
    fn the_oldest_go_first() {
        let cache = Resumption::with_room(10 * (ENTRY_BYTES + 100), AGE_MAX);
        for number in 0..1000_u32 {
            assert!(cache.put(number.to_be_bytes().to_vec(), vec![1; 100]));
            let kept = cache.lock();
            assert!(kept.sessions.len() <= 10 && kept.order.len() <= 100, "{}", kept.order.len());
            assert_eq!(kept.bytes, kept.sessions.len() * (ENTRY_BYTES + 100));
        }
        assert_eq!(cache.get(&989_u32.to_be_bytes()), None);
        assert_eq!(cache.get(&990_u32.to_be_bytes()), Some(vec![1; 100]));
        assert_eq!(cache.take(&999_u32.to_be_bytes()), Some(vec![1; 100]));
        assert_eq!(cache.take(&999_u32.to_be_bytes()), None, "once");
        assert!(!cache.put(vec![1], vec![0; 10 * (ENTRY_BYTES + 100)]), "larger than all");
        // What is stored anew is young again.
        assert!(cache.put(990_u32.to_be_bytes().to_vec(), vec![2]));
        (0..8_u32).for_each(|number| assert!(cache.put(number.to_be_bytes().to_vec(), vec![3; 100])));
        assert_eq!(cache.get(&990_u32.to_be_bytes()), Some(vec![2]));
    }

    #[test]
    fn what_is_taken_leaves_nothing() {
        let cache = Resumption::with_room(1 << 20, AGE_MAX);
        for number in 0..100_000_u32 {
            assert!(cache.put(number.to_be_bytes().to_vec(), vec![1; 100]));
            assert!(cache.take(&number.to_be_bytes()).is_some());
        }
        let kept = cache.lock();
        assert_eq!((kept.bytes, kept.sessions.len()), (0, 0));
        assert!(kept.order.len() <= 65);
    }

    #[test]
    fn none_lives_for_ever() {
        let cache = Resumption::with_room(1 << 20, Duration::ZERO);
        assert!(cache.put(vec![1], vec![2]));
        assert_eq!((cache.get(&[1]), cache.take(&[1])), (None, None));
    }
}
