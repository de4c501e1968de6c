//! Users' passwords, checked where blocking is allowed, a few at a time: a check takes a tenth of a second of a processor.

use std::io;
use std::sync::Arc;

use gridlane_auth::identity::UserIdentity;
use gridlane_auth::password::{SeenPasswords, Users};
use gridlane_auth::{Cause, Refusal};
use gridlane_core::{Secret, limits};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Checks passwords, and knows those that were right again.
pub(crate) struct Passwords {
    seen: Arc<SeenPasswords>,
    turns: Arc<Semaphore>,
}

impl Passwords {
    pub(crate) fn new() -> io::Result<Passwords> {
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        let turns = Arc::new(Semaphore::new(limits::PASSWORDS_CHECKED_MAX));
        Ok(Passwords { seen: Arc::new(SeenPasswords::new(&key)), turns })
    }

    /// The user, if it is the user's password.
    pub(crate) async fn verify(
        &self,
        users: &Arc<Users>,
        name: &str,
        password: &Secret,
    ) -> Result<UserIdentity, Refusal> {
        if let Some(user) = self.seen.recall(users, name, password.expose()) {
            return Ok(user);
        }
        let busy = || Refusal::new(Cause::Unavailable, "too many passwords are being checked");
        let turn = timeout(limits::PASSWORD_WAIT_MAX, Arc::clone(&self.turns).acquire_owned());
        let Ok(Ok(turn)) = turn.await else { return Err(busy()) };
        let (seen, users) = (Arc::clone(&self.seen), Arc::clone(users));
        let (name, password) = (name.to_owned(), password.clone());
        let checked = tokio::task::spawn_blocking(move || {
            // Held by the check and not by who waits for it, and may leave.
            let _turn = turn;
            seen.verify(&users, &name, password.expose())
        });
        checked.await.unwrap_or_else(|_| Err(busy()))
    }
}
