//! Users' passwords, checked where blocking is allowed, a few at a time: a check takes a tenth of a second of a
//! processor.
//!
//! Of one client one at a time, so that guesses hold up only the clients of the same [lane](super::turns). After some wrong
//! ones the next is not looked at for a while ([`guesses`](super::guesses)).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::guesses::Guesses;
use super::turns::Turns;
use gridlane_auth::identity::UserIdentity;
use gridlane_auth::password::{SeenPasswords, Users};
use gridlane_auth::{Cause, Refusal};
use gridlane_core::{Secret, limits};

/// Checks passwords, and remembers those that were right.
pub(crate) struct Passwords {
    seen: Arc<SeenPasswords>,
    turns: Turns,
    guesses: Arc<Guesses>,
}

impl Passwords {
    pub(crate) fn new() -> io::Result<Passwords> {
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        Ok(Passwords {
            seen: Arc::new(SeenPasswords::new(&key)),
            turns: Turns::new(limits::PASSWORDS_CHECKED_MAX),
            guesses: Arc::new(Guesses::new()),
        })
    }

    /// The user, if it is the user's password. `address` is where the client is.
    pub(crate) async fn verify(
        &self,
        users: &Arc<Users>,
        name: &str,
        password: &Secret,
        address: IpAddr,
    ) -> Result<UserIdentity, Refusal> {
        if let Some(user) = self.seen.recall(users, name, password.expose()) {
            return Ok(user);
        }
        self.check(address, name)?;
        let busy = || Refusal::new(Cause::Unavailable, "too many passwords are being checked");
        let held = self.turns.take(address, limits::PASSWORD_WAIT_MAX).await.ok_or_else(busy)?;
        // Another connection of the same client may have had it checked meanwhile.
        if let Some(user) = self.seen.recall(users, name, password.expose()) {
            return Ok(user);
        }
        // Others of its guesses may have been looked at while this one waited.
        self.check(address, name)?;
        let (seen, users, guesses) = (Arc::clone(&self.seen), Arc::clone(users), Arc::clone(&self.guesses));
        let (name, password) = (name.to_owned(), password.clone());
        let checked = tokio::task::spawn_blocking(move || {
            // Held by the check and not by its caller, which may leave.
            let _held = held;
            let verified = seen.verify(&users, &name, password.expose());
            match &verified {
                Ok(_) => guesses.right(address, &name),
                Err(_) => guesses.wrong(address, &name),
            }
            verified
        });
        checked.await.unwrap_or_else(|_| Err(busy()))
    }

    /// Refuses the next password of a user from an address that has guessed too often.
    fn check(&self, address: IpAddr, name: &str) -> Result<(), Refusal> {
        let Some(wait) = self.guesses.wait(address, name) else { return Ok(()) };
        // In whole seconds, and never too early.
        let wait_s = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let what =
            format!("too many wrong passwords came from this address; the next is looked at in {wait_s} s");
        Err(Refusal::new(Cause::Guessing, what).retry_after_s(wait_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn guesses_of_one_client_hold_up_no_other() {
        const GUESSES: usize = 40;
        let line = gridlane_auth::password::make_line("ada", "right", [7; 16], 6).unwrap();
        let users = Arc::new(Users::parse(&line).unwrap());
        let passwords = Arc::new(Passwords::new().unwrap());
        let guesser = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let other = (2..250).map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let other = other
            .into_iter()
            .find(|other| passwords.turns.lane_of(*other) != passwords.turns.lane_of(guesser))
            .unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let guesses: Vec<_> = (0..GUESSES)
            .map(|number| {
                let (passwords, users, done) =
                    (Arc::clone(&passwords), Arc::clone(&users), Arc::clone(&done));
                tokio::spawn(async move {
                    let guess = Secret::new(format!("wrong {number}"));
                    // Of many, so that it need not wait.
                    let name = format!("user{number}");
                    assert!(passwords.verify(&users, &name, &guess, guesser).await.is_err());
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        while done.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let user = passwords.verify(&users, "ada", &Secret::new("right"), other).await.unwrap();
        assert_eq!(user.name, "ada");
        assert!(done.load(Ordering::SeqCst) < GUESSES, "it waited for all of them");
        for guess in guesses {
            guess.await.unwrap();
        }
        // After too many wrong ones of one user the next is not looked at.
        let (mut wrong, mut told) = (0, None);
        while told.is_none() && wrong < 10 * limits::GUESSES_FREE_MAX {
            let refused = passwords.verify(&users, "ada", &Secret::new("no"), guesser).await.unwrap_err();
            wrong += 1;
            told = refused.retry_after_s.filter(|_| refused.cause == Cause::Guessing);
        }
        assert!(wrong > limits::GUESSES_FREE_MAX && told.is_some_and(|wait_s| wait_s > 0), "{wrong}");
        assert_eq!(
            passwords.turns.lane_of("2001:db8::1".parse().unwrap()),
            passwords.turns.lane_of("2001:db8::2".parse().unwrap())
        );
    }
}
