//! The URLs of keys, and the times at which they are fetched.

use gridlane_core::limits;

use super::signer::key_set;
use super::*;
use gridlane_auth::token::cache::Reason;
use gridlane_auth::token::keys::Algorithm;

const REFRESH_S: i64 = limits::ISSUER_KEYS_REFRESH.as_secs() as i64;
const AGE_MAX_S: i64 = limits::ISSUER_KEYS_AGE_MAX.as_secs() as i64;
const UNKNOWN_S: i64 = limits::ISSUER_KEYS_UNKNOWN_WAIT.as_secs() as i64;
const FAILED_S: i64 = limits::ISSUER_KEYS_FAILED_WAIT.as_secs() as i64;

#[test]
fn where_issuers_describe_themselves() {
    for (issuer, oidc, oauth) in [
        (
            "https://a.example",
            "https://a.example/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server",
        ),
        (
            "https://a.example/",
            "https://a.example/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server",
        ),
        (
            "https://a.example:8443/x/y/",
            "https://a.example:8443/x/y/.well-known/openid-configuration",
            "https://a.example:8443/.well-known/oauth-authorization-server/x/y",
        ),
        (
            "https://[::1]:8443/x",
            "https://[::1]:8443/x/.well-known/openid-configuration",
            "https://[::1]:8443/.well-known/oauth-authorization-server/x",
        ),
    ] {
        assert_eq!(discovery::documents(issuer).unwrap(), [oidc, oauth], "{issuer}");
    }
    for issuer in [
        "",
        "a.example",
        "http://a.example",
        "file:///etc/passwd",
        "root://a.example/",
        "https://u:p@a.example/",
        "https://u@a.example/",
        "https://a.example/?x",
        "https://a.example/#x",
        "https://a.example/a b",
        "https://a.example\\@b.example/",
        "HTTPS://a.example",
    ] {
        assert!(discovery::documents(issuer).is_err(), "{issuer}");
    }
}

#[test]
fn where_keys_are() {
    let read = |text: &str| discovery::read(text.as_bytes(), "https://a.example/");
    let good = r#"{"issuer":"https://a.example/","jwks_uri":"https://b.example/jwk?x=1","other":[1]}"#;
    assert_eq!(read(good).unwrap(), "https://b.example/jwk?x=1");
    for text in [
        r#"{"issuer":"https://a.example","jwks_uri":"https://a.example/jwk"}"#,
        r#"{"issuer":"https://evil.example/","jwks_uri":"https://a.example/jwk"}"#,
        r#"{"jwks_uri":"https://a.example/jwk"}"#,
        r#"{"issuer":"https://a.example/"}"#,
        r#"{"issuer":"https://a.example/","jwks_uri":"http://a.example/jwk"}"#,
        r#"{"issuer":"https://a.example/","jwks_uri":"file:///etc/jwk"}"#,
        r#"{"issuer":"https://a.example/","jwks_uri":"/jwk"}"#,
        r#"{"issuer":"https://a.example/","jwks_uri":["https://a.example/jwk"]}"#,
        r#"{"issuer":"https://a.example/","issuer":"https://a.example/","jwks_uri":"https://a.example/jwk"}"#,
        "<html></html>",
        "",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    assert!(read(&format!("{good}{}", " ".repeat(limits::ISSUER_DOCUMENT_BYTES_MAX))).is_err());
}

fn cache() -> KeyCache {
    let mut cache = KeyCache::default();
    cache.set_issuers([ISSUER]);
    cache
}

#[test]
fn when_keys_are_fetched() {
    let keys = Signer::shared().key_set();
    let mut cache = cache();
    let now_s = NOW_S;
    assert!(
        !cache.wants("https://other.example/", Reason::UnknownKey, now_s),
        "who is not on the list is not asked"
    );
    assert!(cache.wants(ISSUER, Reason::Age, now_s) && cache.keys(ISSUER, now_s).is_none());
    // It fails: again soon, but not at once.
    cache.begin(ISSUER, now_s);
    assert!(
        !cache.wants(ISSUER, Reason::Age, now_s)
            && !cache.wants(ISSUER, Reason::UnknownKey, now_s + FAILED_S - 1)
    );
    assert!(cache.wants(ISSUER, Reason::Age, now_s + FAILED_S));
    // It succeeds.
    cache.begin(ISSUER, now_s);
    cache.succeed(ISSUER, keys.clone(), now_s);
    assert_eq!(*cache.keys(ISSUER, now_s).unwrap(), keys);
    // A key that is not there: at most one question in a while, whatever tokens say.
    assert!(!cache.wants(ISSUER, Reason::UnknownKey, now_s + UNKNOWN_S - 1));
    assert!(cache.wants(ISSUER, Reason::UnknownKey, now_s + UNKNOWN_S));
    // By age.
    assert!(!cache.wants(ISSUER, Reason::Age, now_s + REFRESH_S - 1));
    assert!(cache.wants(ISSUER, Reason::Age, now_s + REFRESH_S));
    // The issuer is gone: they are of use for days.
    let later_s = now_s + AGE_MAX_S - 1;
    cache.begin(ISSUER, later_s);
    assert!(cache.keys(ISSUER, later_s).is_some() && cache.keys(ISSUER, later_s + 1).is_none());
    assert!(cache.wants(ISSUER, Reason::Age, later_s + FAILED_S));
    let before = cache.generation();
    cache.drop_old(later_s);
    assert_eq!(cache.generation(), before);
    cache.drop_old(later_s + 1);
    assert!(cache.generation() > before && cache.keys(ISSUER, now_s).is_none());
}

#[test]
fn somebody_knows_that_keys_have_changed() {
    let mut cache = cache();
    cache.begin(ISSUER, NOW_S);
    cache.succeed(ISSUER, Signer::shared().key_set(), NOW_S);
    assert!(!cache.wants(ISSUER, Reason::Age, NOW_S + 1));
    cache.outdate();
    assert!(cache.wants(ISSUER, Reason::Age, NOW_S + 1) && cache.keys(ISSUER, NOW_S + 1).is_some());
    cache.begin(ISSUER, NOW_S + 1);
    assert!(!cache.wants(ISSUER, Reason::Age, NOW_S + 2));
}

#[test]
fn a_clock_that_is_put_back_stops_nothing() {
    let mut cache = cache();
    cache.begin(ISSUER, NOW_S);
    assert!(cache.wants(ISSUER, Reason::Age, NOW_S - 3600));
    cache.begin(ISSUER, i64::MAX);
    cache.succeed(ISSUER, Signer::shared().key_set(), i64::MAX);
    assert!(cache.wants(ISSUER, Reason::Age, i64::MIN) && cache.keys(ISSUER, i64::MIN).is_none());
}

#[test]
fn a_key_that_is_called_back_is_gone() {
    let (first, second) = (Signer::new(Algorithm::Es256, "1"), Signer::new(Algorithm::Es256, "2"));
    let mut cache = cache();
    let mut generations = vec![cache.generation()];
    for keys in [vec![first.jwk()], vec![first.jwk(), second.jwk()], vec![second.jwk()], vec![]] {
        cache.begin(ISSUER, NOW_S);
        cache.succeed(ISSUER, key_set(&keys), NOW_S);
        generations.push(cache.generation());
        for (signer, index) in [(&first, 0), (&second, 1)] {
            let is_there = keys.iter().any(|key| key["kid"] == signer.id);
            let found = verify(
                &signer.token(&wlcg()),
                &[issuer()],
                |issuer| cache.keys(&issuer.url, NOW_S),
                &[SERVER.to_owned()],
                NOW_S,
            );
            assert_eq!(found.is_ok(), is_there, "{index} of {keys:?}");
        }
    }
    assert!(generations.windows(2).all(|two| two[0] < two[1]), "{generations:?}");
    let before = cache.generation();
    cache.succeed(ISSUER, KeySet::default(), NOW_S + 1);
    assert_eq!(cache.generation(), before, "nothing has changed");
    // An issuer that leaves the list takes its keys along.
    cache.succeed(ISSUER, first.key_set(), NOW_S);
    cache.set_issuers([ISSUER, "https://new.example/"]);
    assert!(cache.keys(ISSUER, NOW_S).is_some() && cache.issuers().count() == 2);
    cache.set_issuers(["https://new.example/"]);
    cache.succeed(ISSUER, first.key_set(), NOW_S);
    cache.set_issuers([ISSUER]);
    assert!(cache.keys(ISSUER, NOW_S).is_none());
}

#[test]
fn keys_survive_a_restart() {
    let signers = [Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa, Algorithm::Rs256]
        .map(|algorithm| Signer::new(algorithm, algorithm.name()));
    let mut only = signers[3].jwk();
    only["alg"] = "RS384".into();
    only.as_object_mut().unwrap().remove("kid");
    let keys = key_set(&[signers[0].jwk(), signers[1].jwk(), signers[2].jwk(), signers[3].jwk(), only]);
    assert_eq!(KeySet::read(keys.to_json().to_string().as_bytes()).unwrap(), keys);
    let mut before = cache();
    assert_eq!(before.stored(ISSUER), None);
    before.begin(ISSUER, NOW_S);
    before.succeed(ISSUER, keys.clone(), NOW_S);
    let stored = before.stored(ISSUER).unwrap();
    let mut after = cache();
    after.restore(&stored, NOW_S + 10).unwrap();
    assert_eq!(*after.keys(ISSUER, NOW_S + 10).unwrap(), keys);
    assert!(after.keys(ISSUER, NOW_S + AGE_MAX_S).is_none(), "it does not become younger");
    assert!(
        !after.wants(ISSUER, Reason::Age, NOW_S + 10) && after.wants(ISSUER, Reason::Age, NOW_S + REFRESH_S)
    );
    // Newer ones are not replaced by it, nor does a wrong clock make it last.
    after.succeed(ISSUER, signers[0].key_set(), NOW_S + 20);
    after.restore(&stored, NOW_S + 30).unwrap();
    assert_eq!(*after.keys(ISSUER, NOW_S + 30).unwrap(), signers[0].key_set());
    let mut early = cache();
    early.restore(&stored, NOW_S - 10 * AGE_MAX_S).unwrap();
    assert!(early.keys(ISSUER, NOW_S - 9 * AGE_MAX_S).is_none());
    let mut others = KeyCache::default();
    others.set_issuers(["https://other.example/"]);
    others.restore(&stored, NOW_S).unwrap();
    assert!(others.keys(ISSUER, NOW_S).is_none());
    let text = String::from_utf8(stored).unwrap();
    for bad in [
        &text[1..],
        &text.replace("\"version\":1", "\"version\":2"),
        "{}",
        "",
        &text.replace("fetched_s", "x"),
    ] {
        assert!(cache().restore(bad.as_bytes(), NOW_S).is_err(), "{bad}");
    }
}
