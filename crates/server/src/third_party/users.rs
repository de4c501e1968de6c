//! The identities of connections to other servers: one for each user of this server.
//!
//! A user's next copy finds the connections of the last one, and TLS sessions to go on with; another user's never does. Users
//! that are not known by a proof are one, whose requests carry what they were given and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gridlane_auth::Identity as User;
use gridlane_core::limits::THIRD_PARTY_USERS_MAX;
use gridlane_net::Identity;

/// The users whose connections are kept.
pub(crate) struct Users {
    anonymous: Identity,
    known: Mutex<HashMap<String, (Identity, Instant)>>,
}

impl Default for Users {
    fn default() -> Users {
        Users { anonymous: Identity::new(None), known: Mutex::default() }
    }
}

/// The name by which a user is told from all others.
pub(crate) fn key(user: &User) -> String {
    match user {
        User::Anonymous => "anonymous".to_owned(),
        User::Certificate(certificate) => format!("certificate {}", certificate.dn),
        User::Token(token) => format!("token {} {}", token.issuer, token.subject),
        User::Macaroon(macaroon) => format!("macaroon {}", macaroon.name),
        User::User(user) => format!("user {}", user.name),
    }
}

impl Users {
    /// The identity of the connections for a user. The user that was here longest ago is forgotten for another one.
    pub(crate) fn identity(&self, user: &User) -> Identity {
        if user.is_anonymous() {
            return self.anonymous.clone();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, now) = (key(user), Instant::now());
        if let Some((identity, at)) = known.get_mut(&key) {
            *at = now;
            return identity.clone();
        }
        if known.len() >= THIRD_PARTY_USERS_MAX
            && let Some(oldest) = known.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone())
        {
            known.remove(&oldest);
        }
        let identity = Identity::new(None);
        known.insert(key, (identity.clone(), now));
        identity
    }
}

#[cfg(test)]
mod tests {
    use gridlane_auth::identity::UserIdentity;

    use super::*;

    #[test]
    fn each_user_has_one_and_the_oldest_is_forgotten() {
        let users = Users::default();
        let user = |number: usize| User::User(UserIdentity::by_password(number.to_string()));
        let first = users.identity(&user(0));
        assert_eq!(users.identity(&user(0)), first);
        let anonymous = users.identity(&User::Anonymous);
        assert_ne!(anonymous, first);
        for number in 1..=THIRD_PARTY_USERS_MAX {
            assert_ne!(users.identity(&user(number)), first);
        }
        assert_ne!(users.identity(&user(0)), first, "it was forgotten");
        assert_eq!(users.identity(&User::Anonymous), anonymous);
    }
}
