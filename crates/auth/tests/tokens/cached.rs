//! Tokens that were found good before.

use super::*;
use gridlane_auth::identity::{Identity, UserIdentity};
use gridlane_auth::token::verified::Fingerprint;

fn token(number: usize) -> Fingerprint {
    Fingerprint::of(format!("token {number}"))
}

fn bearer(expires_s: i64) -> Arc<Identity> {
    let mut identity = of_claims(&wlcg()).unwrap();
    identity.expires_s = expires_s;
    Arc::new(Identity::Token(identity))
}

#[test]
fn it_is_known_until_it_expires_or_something_changes() {
    let mut tokens = VerifiedTokens::default();
    assert!(tokens.get(token(1), 0, NOW_S).is_none());
    tokens.insert(token(1), 0, bearer(NOW_S + 10));
    assert_eq!(tokens.get(token(1), 0, NOW_S + 9), Some(bearer(NOW_S + 10)));
    assert!(tokens.get(token(2), 0, NOW_S).is_none());
    assert!(tokens.get(token(1), 0, NOW_S + 10).is_none());
    assert!(tokens.is_empty(), "what has expired is not kept");
    tokens.insert(token(1), 0, bearer(NOW_S + 10));
    assert!(tokens.get(token(1), 1, NOW_S).is_none() && tokens.is_empty());
    tokens.insert(token(1), 1, Arc::new(Identity::User(UserIdentity::by_password("ada"))));
    assert!(tokens.get(token(1), 1, i64::MAX).is_some());
    assert!(tokens.get(token(1), 0, NOW_S).is_none(), "an older generation is another one");
}

#[test]
fn it_is_bounded_and_keeps_what_is_used() {
    let mut tokens = VerifiedTokens::new(100);
    let identity = bearer(NOW_S + 10);
    tokens.insert(token(0), 0, Arc::clone(&identity));
    for number in 1..1000 {
        tokens.insert(token(number), 0, Arc::clone(&identity));
        assert!(tokens.len() <= 100);
        assert!(tokens.get(token(0), 0, NOW_S).is_some(), "{number}");
    }
    assert!(tokens.get(token(500), 0, NOW_S).is_none() && tokens.get(token(999), 0, NOW_S).is_some());
    let before = tokens.len();
    for _ in 0..200 {
        tokens.insert(token(999), 0, Arc::clone(&identity));
    }
    assert_eq!(tokens.len(), before, "one token takes one place");
    assert!(!format!("{tokens:?}").contains("token 9"));
}
