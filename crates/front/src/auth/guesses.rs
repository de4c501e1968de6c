//! Wrong passwords: counts by address and user, and the waits before the next one is looked at.
//!
//! An address that was wrong a few times about a user waits for its next guess about that user, twice as long each
//! time; and one that was wrong often, about any users, waits altogether. A wait is for an address and never for a user
//! alone: guesses keep no user out at other addresses. Where a user is guessed at from many addresses, each of them has
//! a single guess before it waits. A password that was right once since the start is known and waits for nothing
//! ([`SeenPasswords`](gridlane_auth::password::SeenPasswords)).
//!
//! Names without a user count like others, so that waits do not tell which users there are.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Time, limits};

use crate::throttle::Party;

/// Wrong passwords of late.
pub(super) struct Guesses {
    /// By hashes with a secret seed, which no client can aim at.
    known: Mutex<HashMap<u64, Wrong>>,
    kept_max: usize,
    keys: RandomState,
    origin: Instant,
}

#[derive(Clone, Copy)]
struct Wrong {
    count: u32,
    last: Time,
}

/// The key that wrong passwords are counted by.
#[derive(Hash)]
enum About<'a> {
    Address(Party),
    User(&'a str),
    Both(Party, &'a str),
}

impl Guesses {
    pub(super) fn new() -> Guesses {
        Guesses::with_room(limits::GUESSES_KEPT_MAX)
    }

    fn with_room(kept_max: usize) -> Guesses {
        Guesses { known: Mutex::default(), kept_max, keys: RandomState::new(), origin: Instant::now() }
    }

    /// The time before the next password of this user from this address is looked at; `None` if it is at once.
    pub(super) fn wait(&self, address: IpAddr, name: &str) -> Option<Duration> {
        self.wait_at(address, name, self.now())
    }

    /// Counts a wrong password.
    pub(super) fn wrong(&self, address: IpAddr, name: &str) {
        self.wrong_at(address, name, self.now());
    }

    /// Forgets the wrong passwords of this user from this address. The address's count over all users stays: it may
    /// have a user of its own.
    pub(super) fn right(&self, address: IpAddr, name: &str) {
        let key = self.key(&About::Both(Party::client(address), name));
        self.lock().remove(&key);
    }

    fn wait_at(&self, address: IpAddr, name: &str, now: Time) -> Option<Duration> {
        let party = Party::client(address);
        let known = self.lock();
        let wrong = |about: &About<'_>| {
            let wrong = known.get(&self.key(about))?;
            (now.since(wrong.last) < limits::GUESSES_AGE_MAX).then_some(*wrong)
        };
        let is_guessed_at =
            wrong(&About::User(name)).is_some_and(|wrong| wrong.count >= limits::GUESSES_OF_USER_FREE_MAX);
        let free_max = if is_guessed_at { 1 } else { limits::GUESSES_FREE_MAX };
        let of_both = wrong(&About::Both(party, name)).and_then(|wrong| wrong.wait(free_max, now));
        let of_address = wrong(&About::Address(party))
            .and_then(|wrong| wrong.wait(limits::GUESSES_OF_ADDRESS_FREE_MAX, now));
        of_both.max(of_address)
    }

    fn wrong_at(&self, address: IpAddr, name: &str, now: Time) {
        let party = Party::client(address);
        let mut known = self.lock();
        for about in [About::Address(party), About::User(name), About::Both(party, name)] {
            let key = self.key(&about);
            if known.len() >= self.kept_max && !known.contains_key(&key) {
                // Half of them at once, so that the next search is far away.
                let mut lasts: Vec<Time> = known.values().map(|wrong| wrong.last).collect();
                let middle = lasts.len() / 2;
                let (_, median, _) = lasts.select_nth_unstable(middle);
                let median = *median;
                known.retain(|_, wrong| wrong.last > median);
            }
            let wrong = known.entry(key).or_insert(Wrong { count: 0, last: now });
            if now.since(wrong.last) >= limits::GUESSES_AGE_MAX {
                wrong.count = 0;
            }
            *wrong = Wrong { count: wrong.count.saturating_add(1), last: now };
        }
    }

    fn key(&self, about: &About<'_>) -> u64 {
        self.keys.hash_one(about)
    }

    fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Wrong>> {
        // Every change is complete in itself.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wrong {
    /// The rest of the wait for the next one, where so many were free.
    fn wait(self, free_max: u32, now: Time) -> Option<Duration> {
        let beyond = self.count.checked_sub(free_max)?;
        let factor = 1_u32.checked_shl(beyond).unwrap_or(u32::MAX);
        let wait = limits::GUESS_WAIT_MIN.saturating_mul(factor).min(limits::GUESS_WAIT_MAX);
        wait.checked_sub(now.since(self.last)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn seconds(wait: Option<Duration>) -> u64 {
        wait.unwrap_or_default().as_secs()
    }

    #[test]
    fn an_address_waits_for_its_next_guess_and_others_do_not() {
        let guesses = Guesses::with_room(100);
        for _ in 0..limits::GUESSES_FREE_MAX {
            assert_eq!(guesses.wait_at(address(1), "ada", at(100)), None);
            guesses.wrong_at(address(1), "ada", at(100));
        }
        assert_eq!(seconds(guesses.wait_at(address(1), "ada", at(100))), 2);
        assert_eq!(seconds(guesses.wait_at(address(1), "ada", at(101))), 1);
        assert_eq!(guesses.wait_at(address(1), "ada", at(102)), None);
        // Another user from there, and the same user from elsewhere.
        assert_eq!(guesses.wait_at(address(1), "bob", at(100)), None);
        assert_eq!(guesses.wait_at(address(2), "ada", at(100)), None);
        let waits: Vec<u64> = (0..12)
            .map(|_| {
                guesses.wrong_at(address(1), "ada", at(200));
                seconds(guesses.wait_at(address(1), "ada", at(200)))
            })
            .collect();
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900]);
        assert_eq!(guesses.wait_at(address(1), "ada", at(1100)), None);
        guesses.wrong_at(address(1), "ada", at(1100));
        assert_eq!(seconds(guesses.wait_at(address(1), "ada", at(1100))), 900);
        // It is not for ever.
        let later = at(1100 + limits::GUESSES_AGE_MAX.as_secs());
        guesses.wrong_at(address(1), "ada", later);
        assert_eq!(guesses.wait_at(address(1), "ada", later), None);
    }

    #[test]
    fn an_address_that_tries_many_names_waits_for_all_of_them() {
        let guesses = Guesses::with_room(1000);
        for number in 0..limits::GUESSES_OF_ADDRESS_FREE_MAX {
            assert_eq!(guesses.wait_at(address(1), &format!("user{number}"), at(100)), None);
            guesses.wrong_at(address(1), &format!("user{number}"), at(100));
        }
        assert_eq!(seconds(guesses.wait_at(address(1), "ada", at(100))), 2);
        assert_eq!(guesses.wait_at(address(2), "ada", at(100)), None);
    }

    #[test]
    fn guesses_from_everywhere_keep_no_user_out() {
        let guesses = Guesses::with_room(10_000);
        for last in 0..limits::GUESSES_OF_USER_FREE_MAX as u8 {
            guesses.wrong_at(address(last), "ada", at(100));
        }
        // One that is new has its try, and no second one at once.
        assert_eq!(guesses.wait_at(address(200), "ada", at(100)), None);
        guesses.wrong_at(address(200), "ada", at(100));
        assert_eq!(seconds(guesses.wait_at(address(200), "ada", at(100))), 2);
        assert_eq!(guesses.wait_at(address(200), "bob", at(100)), None);
    }

    #[test]
    fn a_right_one_is_a_new_beginning_for_its_user_alone() {
        let guesses = Guesses::with_room(1000);
        for _ in 0..limits::GUESSES_OF_ADDRESS_FREE_MAX {
            guesses.wrong_at(address(1), "ada", at(100));
        }
        guesses.right(address(1), "ada");
        // Of the address all are remembered.
        assert_eq!(seconds(guesses.wait_at(address(1), "ada", at(100))), 2);
        assert_eq!(guesses.wait_at(address(1), "ada", at(103)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let guesses = Guesses::with_room(99);
        for number in 0..10_000 {
            guesses.wrong_at(address(1), &format!("user{number}"), at(number));
            assert!(guesses.lock().len() <= 99);
        }
        assert!(guesses.wait_at(address(1), "ada", at(10_000)).is_some(), "the last ones are remembered");
    }
}
