//! Proxies that users lend to a service, and take back.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use gridlane_auth::Cause;
use gridlane_auth::delegation::{KeyKind, Request};
use gridlane_auth::make::{Credential, Curve, Key, ProxyTerms, Validity, pem, profile};
use gridlane_auth::x509::Trust;
use gridlane_delegation::{Delegations, Failure, Kind, MemoryStore, RecordId, Secrets, Store, Vault};
use ring::rand::SystemRandom;

const NOW_S: i64 = 1_800_000_000;
const HOUR_S: i64 = 3600;
const ADA: &str = "/CN=Ada";
const SECRET: &str = "oLXt3DuSgwL8Bz1AZLAbAJT5n6tTjmCkFz2T0mDcBv0=";

struct Site {
    random: SystemRandom,
    ada: Credential,
    trust: Trust,
    delegations: Delegations<MemoryStore>,
}

impl Site {
    fn new() -> Site {
        let random = SystemRandom::new();
        let validity = Validity::from_now(NOW_S, 240 * HOUR_S);
        let key = || Key::generate(Curve::P256, &random).unwrap();
        let ca = profile::authority(&"/CN=CA".parse().unwrap(), key(), validity, &random).unwrap();
        let ada = profile::user(&ca, &ADA.parse().unwrap(), key(), validity, &random).unwrap();
        let (trust, _) = Trust::read([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
        let vault = Vault::new(MemoryStore::default(), Secrets::parse(SECRET).unwrap());
        Site { random, ada, trust, delegations: Delegations::new(vault) }
    }

    fn request(&self, user: &str, curve: Curve) -> String {
        let kind = if curve == Curve::P256 { KeyKind::P256 } else { KeyKind::P384 };
        self.delegations.request(user, kind, || Key::generate(curve, &self.random)).unwrap()
    }

    fn sign(&self, request: &str, lifetime_s: i64) -> String {
        let terms = ProxyTerms::new(Validity::from_now(NOW_S, lifetime_s));
        let chain = Request::read(request.as_bytes()).unwrap();
        let chain = chain.sign(&self.ada, terms, NOW_S, &self.random).unwrap();
        chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect()
    }

    fn accept(&self, user: &str, upload: &str) -> Result<i64, Failure> {
        let accepted = self.delegations.accept(user, ADA, upload.as_bytes(), &self.trust, NOW_S);
        accepted.map(|delegated| delegated.ends_s)
    }
}

#[test]
fn a_proxy_is_lent_renewed_and_taken_back() {
    let site = Site::new();
    let delegations = &site.delegations;
    assert!(delegations.credential("a1").unwrap().is_none());
    let request = site.request("a1", Curve::P256);
    assert_eq!(site.accept("a1", &site.sign(&request, 7 * HOUR_S)).unwrap(), NOW_S + 7 * HOUR_S);
    let lent = delegations.credential("a1").unwrap().unwrap();
    assert_eq!((lent.owner_dn.as_str(), lent.ends_s, lent.is_limited), (ADA, NOW_S + 7 * HOUR_S, false));
    assert_eq!(lent.credential.chain.len(), 2);
    let file = delegations.credential_pem("a1").unwrap().unwrap();
    assert!(file.expose().contains("PRIVATE KEY") && file.expose().matches("BEGIN CERTIFICATE").count() == 2);

    // The key stays while its kind does: an answer to an earlier request is one to a later one.
    let again = site.request("a1", Curve::P256);
    let spki = |request: &str| Request::read(request.as_bytes()).unwrap().spki().to_vec();
    assert_eq!(spki(&again), spki(&request));
    assert_eq!(site.accept("a1", &site.sign(&request, 9 * HOUR_S)).unwrap(), NOW_S + 9 * HOUR_S);
    // Another kind is another key; what was lent stays good with its own.
    let other = site.request("a1", Curve::P384);
    assert_ne!(spki(&other), spki(&request));
    let refused = site.accept("a1", &site.sign(&request, HOUR_S)).unwrap_err();
    assert!(matches!(&refused, Failure::Refused(refusal) if refusal.cause == Cause::Untrusted), "{refused}");
    assert_eq!(delegations.credential("a1").unwrap().unwrap().ends_s, NOW_S + 9 * HOUR_S);

    let (mut watch, failed) = delegations.watch(HOUR_S).unwrap();
    assert!(failed.is_empty());
    assert_eq!(watch.next_s(), Some(NOW_S + 8 * HOUR_S));
    assert_eq!(watch.due(NOW_S + 8 * HOUR_S), [("a1".to_owned(), NOW_S + 9 * HOUR_S)]);
    assert!(delegations.forget("a1").unwrap() && !delegations.forget("a1").unwrap());
    assert!(delegations.credential("a1").unwrap().is_none());
    let refused = site.accept("a1", &site.sign(&other, HOUR_S)).unwrap_err();
    assert!(refused.to_string().contains("no request is open"), "{refused}");
}

#[test]
fn nobody_lends_for_another_and_what_was_changed_is_told() {
    let site = Site::new();
    // Eve signs nothing of Ada's; she uploads what Ada signed, under her own name.
    let request = site.request("eve", Curve::P256);
    let upload = site.sign(&request, HOUR_S);
    let accepted = site.delegations.accept("eve", "/CN=Eve", upload.as_bytes(), &site.trust, NOW_S);
    assert!(accepted.unwrap_err().to_string().contains("a proxy of /CN=Ada, and came from /CN=Eve"));
    assert!(site.delegations.credential("eve").unwrap().is_none());
    // What Ada has lent, in Eve's place in the store.
    let request = site.request("ada", Curve::P256);
    site.accept("ada", &site.sign(&request, HOUR_S)).unwrap();
    let store = site.delegations.vault().store();
    let sealed = store.get(&RecordId::new(Kind::Proxy, "ada").unwrap()).unwrap().unwrap();
    store.put(&RecordId::new(Kind::Proxy, "eve").unwrap(), &sealed).unwrap();
    let error = site.delegations.credential("eve").unwrap_err();
    assert!(error.message().contains("belongs elsewhere"), "{error:?}");
    let (watch, failed) = site.delegations.watch(0).unwrap();
    assert_eq!((watch.len(), failed.len()), (1, 1));
}

#[test]
fn two_requests_at_once_have_one_key() {
    let site = Site::new();
    // While the first one makes its key, another one is through.
    let mut inner = String::new();
    let make = || {
        inner = site.request("a1", Curve::P256);
        Key::generate(Curve::P256, &site.random)
    };
    let outer = site.delegations.request("a1", KeyKind::P256, make).unwrap();
    let spki = |request: &str| Request::read(request.as_bytes()).unwrap().spki().to_vec();
    assert_eq!(spki(&outer), spki(&inner));
    site.accept("a1", &site.sign(&inner, HOUR_S)).unwrap();
    // A key that is not what was asked for is not kept.
    let wrong = site
        .delegations
        .request("b2", KeyKind::Rsa { bits: 2048 }, || Key::generate(Curve::P256, &site.random));
    assert!(wrong.unwrap_err().message().contains("was asked for"));
    assert!(site.delegations.vault().names(Kind::Key).unwrap() == ["a1"]);
}
