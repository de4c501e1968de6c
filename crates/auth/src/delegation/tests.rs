//! Delegation with friendly and hostile parties, and time that does what clocks do.

use std::collections::HashMap;

use proptest::prelude::*;
use ring::rand::SystemRandom;

use super::*;
use crate::make::{
    Credential, Curve, Extension, Key, Name, ProxyPolicy, ProxyTerms, Validity, pem, profile, proxy, request,
};
use crate::refusal::{Cause, Refusal};
use crate::x509::Trust;
use gridlane_core::Secret;

const NOW_S: i64 = 1_800_000_000;
const HOUR_S: i64 = 3600;
const ADA: &str = "/DC=org/DC=example/CN=Ada";

struct Site {
    random: SystemRandom,
    ca: Credential,
    ada: Credential,
    bob: Credential,
    trust: Trust,
    kept: Key,
}

impl Site {
    fn new() -> Site {
        let random = SystemRandom::new();
        let validity = Validity::from_now(NOW_S, 240 * HOUR_S);
        let key = || Key::generate(Curve::P256, &random).unwrap();
        let name = |text: &str| text.parse::<Name>().unwrap();
        let ca = profile::authority(&name("/DC=org/DC=example/CN=CA"), key(), validity, &random).unwrap();
        let ada = profile::user(&ca, &name(ADA), key(), validity, &random).unwrap();
        let bob = profile::user(&ca, &name("/DC=org/DC=example/CN=Bob"), key(), validity, &random).unwrap();
        let (trust, warnings) = Trust::read([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
        assert!(warnings.is_empty(), "{warnings:?}");
        let kept = key();
        Site { random, ca, ada, bob, trust, kept }
    }

    fn key(&self) -> Key {
        Key::generate(Curve::P256, &self.random).unwrap()
    }

    fn request(&self) -> Request {
        let der = request(&request_subject().unwrap(), &self.kept, &self.random).unwrap();
        Request::read(&der).unwrap()
    }

    fn sign(&self, issuer: &Credential, lifetime_s: i64) -> Vec<Vec<u8>> {
        let terms = ProxyTerms::new(Validity::from_now(NOW_S, lifetime_s));
        self.request().sign(issuer, terms, NOW_S, &self.random).unwrap()
    }

    fn accept(&self, chain: &[Vec<u8>], now_s: i64) -> Result<Delegated, Refusal> {
        accept(upload(chain).as_bytes(), &self.kept.public_key(), ADA, &self.trust, now_s)
    }
}

fn upload(chain: &[Vec<u8>]) -> String {
    chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect()
}

#[test]
fn a_proxy_is_asked_for_signed_and_accepted() {
    let site = Site::new();
    assert_eq!(site.request().kind(), KeyKind::P256);
    let found = site.accept(&site.sign(&site.ada, 7 * HOUR_S), NOW_S).unwrap();
    assert_eq!((found.ends_s, found.chain.len()), (NOW_S + 7 * HOUR_S, 2));
    assert_eq!((found.verified.dn(), found.verified.proxy_depth()), (ADA, 1));
    // Of a proxy, which the user has instead of the certificate; it ends before what was asked for.
    let terms = ProxyTerms::new(Validity::from_now(NOW_S, HOUR_S));
    let first = proxy(&site.ada, site.key(), &terms, &site.random).unwrap();
    let found = site.accept(&site.sign(&first, 7 * HOUR_S), NOW_S).unwrap();
    assert_eq!((found.ends_s, found.verified.proxy_depth()), (NOW_S + HOUR_S, 2));
    // With the authority's certificate behind it, as some send it.
    let mut chain = site.sign(&site.ada, HOUR_S);
    chain.extend(site.ca.chain.iter().cloned());
    assert_eq!(site.accept(&chain, NOW_S).unwrap().verified.dn(), ADA);
    // A limited one makes limited ones.
    let limited = ProxyTerms { policy: ProxyPolicy::Limited, ..terms };
    let limited = proxy(&site.ada, site.key(), &limited, &site.random).unwrap();
    assert!(site.accept(&site.sign(&limited, HOUR_S), NOW_S).unwrap().verified.is_limited());
}

/// A certificate that says of its signature, by ECDSA and SHA-256, that it is made with RSA and another digest.
fn signed_otherwise(der: &[u8], algorithm: &[u8]) -> Vec<u8> {
    const ECDSA_SHA256: [u8; 12] = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let other = [&[0x30, algorithm.len() as u8 + 4, 6, algorithm.len() as u8], algorithm, &[5, 0]].concat();
    let grows = other.len() - ECDSA_SHA256.len();
    let longer = |head: &[u8], by: usize| {
        let length = u16::from_be_bytes([head[2], head[3]]) as usize + by;
        [&head[..2], &(length as u16).to_be_bytes()].concat()
    };
    // Certificate and its signed part are sequences with lengths of two bytes.
    assert_eq!((&der[..2], &der[4..6]), (&[0x30, 0x82][..], &[0x30, 0x82][..]));
    let mut parts = Vec::new();
    let mut rest = &der[8..];
    while let Some(at) = rest.windows(ECDSA_SHA256.len()).position(|part| part == ECDSA_SHA256) {
        parts.extend_from_slice(&rest[..at]);
        parts.extend_from_slice(&other);
        rest = &rest[at + ECDSA_SHA256.len()..];
    }
    parts.extend_from_slice(rest);
    [longer(&der[..4], 2 * grows), longer(&der[4..8], grows), parts].concat()
}

#[test]
fn a_session_lends_its_own_clients_proxy_alone() {
    let site = Site::new();
    let judge = |chain: &[Vec<u8>], holder: &Credential, now_s: i64| {
        accept_of_session(upload(chain).as_bytes(), &site.kept.public_key(), &holder.chain, now_s)
    };
    let good = site.sign(&site.ada, 7 * HOUR_S);
    let proxy_alone = &good[..1];
    assert_eq!(judge(proxy_alone, &site.ada, NOW_S).unwrap(), good);
    // Of a proxy that the client came with, its whole chain follows.
    let terms = ProxyTerms::new(Validity::from_now(NOW_S, HOUR_S));
    let first = proxy(&site.ada, site.key(), &terms, &site.random).unwrap();
    let second = site.sign(&first, HOUR_S);
    assert_eq!(judge(&second[..1], &first, NOW_S).unwrap(), second);
    let mut changed = proxy_alone.to_vec();
    *changed[0].last_mut().unwrap() ^= 1;
    let other_key = proxy(&site.ada, site.key(), &terms, &site.random).unwrap().chain;
    let other_key = &other_key[..1];
    let own = profile::end_entity(&site.ada, &ADA.parse().unwrap(), &site.kept, terms.validity, &site.random)
        .unwrap();
    let no_proxy = [own.sign(&site.ada.key, &site.random).unwrap()];
    // Of the same name, by another authority's user.
    let evil_ca =
        profile::authority(&site.ca.subject().unwrap(), site.key(), terms.validity, &site.random).unwrap();
    let evil =
        profile::user(&evil_ca, &ADA.parse().unwrap(), site.key(), terms.validity, &site.random).unwrap();
    let evil = site.sign(&evil, HOUR_S);
    for (chain, now_s, cause, words) in [
        (proxy_alone, NOW_S + 8 * HOUR_S, Cause::Expired, "it has expired"),
        (&good[..], NOW_S, Cause::Malformed, "2 certificates came"),
        (&[][..], NOW_S, Cause::Malformed, "0 certificates came"),
        (&changed[..], NOW_S, Cause::BadSignature, "CN=Ada"),
        (other_key, NOW_S, Cause::Untrusted, "for another key"),
        (&no_proxy[..], NOW_S, Cause::Unacceptable, "is no proxy"),
        (&evil[..1], NOW_S, Cause::BadSignature, "CN=Ada"),
    ] {
        let refusal = judge(chain, &site.ada, now_s).unwrap_err();
        assert_eq!(refusal.cause, cause, "{refusal}");
        assert!(refusal.message.contains(words), "{refusal}");
    }
    // XRootD's clients sign with SHA-1: whether that is enough is for the source to say. Nothing else is let pass.
    let sha1 = vec![signed_otherwise(&proxy_alone[0], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5])];
    assert_eq!(judge(&sha1, &site.ada, NOW_S).unwrap()[0], sha1[0]);
    let md5 = vec![signed_otherwise(&proxy_alone[0], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4])];
    let refusal = judge(&md5, &site.ada, NOW_S).unwrap_err();
    assert_eq!(refusal.cause, Cause::Unacceptable, "{refusal}");
    let refusal = judge(proxy_alone, &site.bob, NOW_S).unwrap_err();
    assert!(refusal.message.contains("a proxy of /DC=org/DC=example/CN=Ada, and came from"), "{refusal}");
    let key = format!("{}{}", upload(proxy_alone), site.kept.to_pem().expose());
    let with_key = accept_of_session(key.as_bytes(), &site.kept.public_key(), &site.ada.chain, NOW_S);
    assert!(with_key.unwrap_err().message.contains("a private key was sent along"));
}

/// XRootD's clients give a proxy the words about its issuer's key that stand in the certificate it is made of.
#[test]
fn the_words_of_a_proxy_about_its_issuers_key_decide_nothing() {
    let site = Site::new();
    let terms = ProxyTerms::new(Validity::from_now(NOW_S, HOUR_S));
    let mut contents = crate::make::Contents::read(&site.sign(&site.ada, HOUR_S)[0]).unwrap();
    let of_key = |key: &Key| Extension::authority_key_id(&crate::make::key_id(&key.public_key()).unwrap());
    contents.extensions.retain(|extension| *extension != of_key(&site.ada.key));
    contents.extensions.push(of_key(&site.ca.key));
    contents.validity = terms.validity;
    let chain = vec![contents.sign(&site.ada.key, &site.random).unwrap(), site.ada.chain[0].clone()];
    assert_eq!(site.accept(&chain, NOW_S).unwrap().verified.proxy_depth(), 1);
    // The signature does.
    let forged = vec![contents.sign(&site.bob.key, &site.random).unwrap(), site.ada.chain[0].clone()];
    assert_eq!(site.accept(&forged, NOW_S).unwrap_err().cause, Cause::BadSignature);
}

#[test]
fn what_is_hostile_is_refused_in_words() {
    let site = Site::new();
    let good = site.sign(&site.ada, 7 * HOUR_S);
    let terms = ProxyTerms::new(Validity::from_now(NOW_S, 7 * HOUR_S));
    let other_key = proxy(&site.ada, site.key(), &terms, &site.random).unwrap().chain;
    let swapped: Vec<_> = good.iter().rev().cloned().collect();
    let by_authority =
        crate::make::proxy_chain(&site.ca, site.kept.public_key(), &terms, &site.random).unwrap();
    // An authority of the attacker's own, with the same names.
    let evil_ca =
        profile::authority(&site.ca.subject().unwrap(), site.key(), terms.validity, &site.random).unwrap();
    let evil =
        profile::user(&evil_ca, &ADA.parse().unwrap(), site.key(), terms.validity, &site.random).unwrap();
    // A certificate that a user makes as if it were an authority: with the key, and no proxy.
    let mut no_proxy =
        profile::end_entity(&site.ada, &ADA.parse().unwrap(), &site.kept, terms.validity, &site.random)
            .unwrap();
    no_proxy.subject = no_proxy.subject.with("CN", "Eve", crate::make::Text::Utf8).unwrap();
    let no_proxy = vec![no_proxy.sign(&site.ada.key, &site.random).unwrap(), site.ada.chain[0].clone()];
    // A user's certificate for the very key, by the authority: not lent by anybody.
    let own = profile::end_entity(&site.ca, &ADA.parse().unwrap(), &site.kept, terms.validity, &site.random)
        .unwrap();
    let own = vec![own.sign(&site.ca.key, &site.random).unwrap(), site.ca.chain[0].clone()];
    let none_further = ProxyTerms { path_len: Some(0), ..terms.clone() };
    let none_further = proxy(&site.ada, site.key(), &none_further, &site.random).unwrap();
    let beyond =
        crate::make::proxy_chain(&none_further, site.kept.public_key(), &terms, &site.random).unwrap();
    let mut changed = good.clone();
    *changed[0].last_mut().unwrap() ^= 1;
    let hundred: Vec<_> = (0..100).map(|index| good[index % 2].clone()).collect();
    let named_otherwise = vec![good[0].clone(), site.bob.chain[0].clone()];

    for (chain, now_s, cause, words) in [
        (&other_key, NOW_S, Cause::Untrusted, "for another key than the one that was asked for"),
        (
            &site.sign(&site.bob, HOUR_S),
            NOW_S,
            Cause::Untrusted,
            "a proxy of /DC=org/DC=example/CN=Bob, and came from",
        ),
        (&by_authority, NOW_S, Cause::Unacceptable, "made by an authority"),
        (&good, NOW_S + 7 * HOUR_S, Cause::Expired, "expired"),
        (&good, NOW_S - HOUR_S, Cause::NotYetValid, "not valid before"),
        (&swapped, NOW_S, Cause::Malformed, "is not its issuer's"),
        (&named_otherwise, NOW_S, Cause::Malformed, "is not its issuer's, but that of"),
        (&hundred, NOW_S, Cause::Unacceptable, "100 certificates are more than are accepted"),
        (&good[..1].to_vec(), NOW_S, Cause::Malformed, "1 certificates came"),
        (&Vec::new(), NOW_S, Cause::Malformed, "0 certificates came"),
        (&changed, NOW_S, Cause::BadSignature, "the signature is wrong"),
        (&site.sign(&evil, HOUR_S), NOW_S, Cause::Untrusted, "is not trusted here"),
        (&no_proxy, NOW_S, Cause::Unacceptable, "is no proxy (RFC 3820)"),
        (&own, NOW_S, Cause::Unacceptable, "is no proxy (RFC 3820)"),
        (&beyond, NOW_S, Cause::Unacceptable, "it allows 0"),
    ] {
        let refusal = site.accept(chain, now_s).expect_err(words);
        assert_eq!(refusal.cause, cause, "{refusal}");
        assert!(refusal.message.contains(words), "{words}: {refusal}");
    }
    let with_key = format!("{}{}", upload(&good), site.ada.key.to_pem().expose());
    let refusal = accept(with_key.as_bytes(), &site.kept.public_key(), ADA, &site.trust, NOW_S).unwrap_err();
    assert!(refusal.message.contains("a private key was sent along"), "{refusal}");
    let long = "\n".repeat(gridlane_core::limits::PROXY_UPLOAD_BYTES_MAX) + &upload(&good);
    let refusal = accept(long.as_bytes(), &site.kept.public_key(), ADA, &site.trust, NOW_S).unwrap_err();
    assert!(refusal.message.contains("longer than is accepted"), "{refusal}");
}

#[test]
fn a_client_signs_requests_only_and_no_more_than_it_may() {
    let site = Site::new();
    let der = request(&request_subject().unwrap(), &site.kept, &site.random).unwrap();
    for index in 0..der.len() {
        let mut changed = der.clone();
        changed[index] ^= 1;
        assert!(Request::read(&changed).is_err(), "byte {index}");
        // One byte changes no key into a better one; what is in the place of the signature does not matter.
        let read = Request::read_from_proved(&changed);
        assert!(
            index < der.len() - 20
                || read.is_ok_and(|read| read.spki() == Request::read(&der).unwrap().spki())
        );
        assert!(Request::read(&der[..index]).is_err(), "the first {index} bytes");
    }
    let request_pem = pem::encode(pem::REQUEST, &der);
    assert!(Request::read(request_pem.as_bytes()).is_ok());
    let refusal = Request::read(format!("{request_pem}{request_pem}").as_bytes()).unwrap_err();
    assert!(refusal.message.contains("several"), "{refusal}");
    let refusal = Request::read(site.ada.chain_pem().as_bytes()).unwrap_err();
    assert!(refusal.message.contains("no certificate request in it"), "{refusal}");
    let refusal = Request::read(&site.ada.chain[0]).unwrap_err();
    assert_eq!(refusal.cause, Cause::Malformed, "{refusal}");
    assert!(Request::read(&vec![0x30; 1 << 20]).unwrap_err().message.contains("longer than is accepted"));

    let terms = ProxyTerms::new(Validity::from_now(NOW_S, HOUR_S));
    let none_further = ProxyTerms { path_len: Some(0), ..terms.clone() };
    let none_further = proxy(&site.ada, site.key(), &none_further, &site.random).unwrap();
    for (issuer, now_s, words) in [
        (&site.ca, NOW_S, "that of an authority"),
        (&none_further, NOW_S, "allows no further one"),
        (&site.ada, NOW_S + 240 * HOUR_S, "its time is over"),
    ] {
        let error = site.request().sign(issuer, terms.clone(), now_s, &site.random).unwrap_err();
        assert!(error.message().contains(words), "{words}: {}", error.message());
    }
}

#[test]
fn the_key_for_a_client_is_of_its_kind() {
    let site = Site::new();
    assert_eq!(KeyKind::for_client(None), KeyKind::Rsa { bits: 2048 });
    assert_eq!(KeyKind::for_client(Some(&site.ada.key.public_key())), KeyKind::P256);
    assert_eq!(KeyKind::for_client(Some(b"junk")), KeyKind::Rsa { bits: 2048 });
    assert!(KeyKind::of(b"junk").is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (trust, _) = Trust::read([]);
        prop_assert!(Request::read(&bytes).is_err());
        prop_assert!(accept(&bytes, b"", "/CN=Ada", &trust, NOW_S).is_err());
        let pem = pem::encode(pem::REQUEST, &bytes);
        prop_assert!(Request::read(pem.as_bytes()).is_err());
        let pem = pem::encode(pem::CERTIFICATE, &bytes).repeat(3);
        prop_assert!(accept(pem.as_bytes(), b"", "/CN=Ada", &trust, NOW_S).is_err());
        prop_assert!(JobToken::decode(&bytes).is_err());
    }

    /// Against a list that is searched: told exactly when the time passes where it is due, whatever the clock does.
    #[test]
    fn ends_are_told_in_time(
        steps in proptest::collection::vec((0u8..8, 0i64..400, 0u8..4), 1..120),
    ) {
        let mut watch = Watch::new(50);
        let mut ends: HashMap<u8, i64> = HashMap::new();
        // What the time has passed, as told.
        let mut told: HashMap<u8, i64> = HashMap::new();
        for (key, time_s, what) in steps {
            match what {
                0 => {
                    watch.set(key, time_s);
                    ends.insert(key, time_s);
                    told.remove(&key);
                }
                1 => {
                    watch.remove(&key);
                    ends.remove(&key);
                    told.remove(&key);
                }
                _ => {
                    told.retain(|_, ends_s| *ends_s - 50 <= time_s);
                    let mut due: Vec<(i64, u8)> = ends.iter()
                        .filter(|(key, ends_s)| **ends_s - 50 <= time_s && !told.contains_key(key))
                        .map(|(key, ends_s)| (*ends_s, *key)).collect();
                    due.sort();
                    told.extend(due.iter().map(|(ends_s, key)| (*key, *ends_s)));
                    let due: Vec<(u8, i64)> = due.into_iter().map(|(ends_s, key)| (key, ends_s)).collect();
                    prop_assert_eq!(watch.due(time_s), due);
                    let next_s = ends.iter().filter(|(key, _)| !told.contains_key(key)).map(|(_, ends_s)| ends_s - 50).min();
                    prop_assert_eq!(watch.next_s(), next_s);
                }
            }
            let mut before: Vec<(i64, u8)> =
                ends.iter().filter(|(_, ends_s)| **ends_s < time_s).map(|(key, ends_s)| (*ends_s, *key)).collect();
            before.sort();
            let found: Vec<(i64, u8)> = watch.ends_before(time_s).map(|(key, ends_s)| (ends_s, *key)).collect();
            prop_assert_eq!(found, before);
            prop_assert_eq!(watch.len(), ends.len());
            prop_assert_eq!(watch.ends_s(&key), ends.get(&key).copied());
        }
    }
}

#[test]
fn extensions_of_a_proxy_go_into_it() {
    let site = Site::new();
    let mut terms = ProxyTerms::new(Validity::from_now(NOW_S, HOUR_S));
    terms.extensions.push(Extension::raw(&[1, 3, 6, 1, 4, 1, 8005, 100, 100, 99], false, vec![5, 0]));
    let chain = site.request().sign(&site.ada, terms, NOW_S, &site.random).unwrap();
    let found = site.accept(&chain, NOW_S).unwrap();
    let oid = [0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 99];
    assert_eq!(found.verified.leaf().extension(&oid), Some(&[5, 0][..]));
}

const TERMS: TokenTerms = TokenTerms { skew_s: 60, ahead_max_s: 3600, pause_s: 10, pause_max_s: 600 };

fn job() -> JobToken {
    JobToken::new(
        "https://issuer.example/",
        Secret::new("access-0"),
        NOW_S + HOUR_S,
        true,
        NOW_S + 48 * HOUR_S,
        NOW_S,
    )
}

fn issued(number: u32, ends_s: i64) -> Issued {
    Issued {
        access: Secret::new(format!("access-{number}")),
        ends_s,
        refresh: Some(Secret::new(format!("refresh-{number}"))),
    }
}

/// A job whose token was exchanged.
fn managed() -> JobToken {
    let mut token = job();
    assert!(matches!(token.step(NOW_S, false, &TERMS), Step::Exchange { ticket: 1, .. }));
    let exchanged = Exchanged { refresh: Secret::new("refresh-0"), access: None };
    assert!(token.exchanged(1, Ok(exchanged), NOW_S, &TERMS));
    token
}

#[test]
fn a_token_is_exchanged_at_once_and_refreshed_when_it_is_wanted() {
    let mut token = managed();
    assert_eq!(token.step(NOW_S, false, &TERMS), Step::Wait { until_s: None });
    // Of 3540 s that can be used, 2360 are over.
    assert_eq!(token.step(NOW_S, true, &TERMS), Step::Wait { until_s: Some(NOW_S + 2360) });
    assert_eq!(token.step(NOW_S + 2359, true, &TERMS), Step::Wait { until_s: Some(NOW_S + 2360) });
    let refresh = Secret::new("refresh-0");
    assert_eq!(token.step(NOW_S + 2360, true, &TERMS), Step::Refresh { ticket: 2, refresh });
    // Not twice at the same time; and not the answer to another question.
    assert_eq!(token.step(NOW_S + 2361, true, &TERMS), Step::Wait { until_s: None });
    assert!(!token.refreshed(1, Ok(issued(9, NOW_S + 99 * HOUR_S)), NOW_S + 2361, &TERMS));
    assert!(token.refreshed(2, Ok(issued(1, NOW_S + 2 * HOUR_S)), NOW_S + 2362, &TERMS));
    assert!(!token.refreshed(2, Ok(issued(9, NOW_S + 99 * HOUR_S)), NOW_S + 2363, &TERMS));
    assert_eq!(token.usable(NOW_S + HOUR_S, &TERMS).unwrap().expose(), "access-1");
    assert_eq!(token.usable(NOW_S + 2 * HOUR_S - 61, &TERMS).unwrap().expose(), "access-1");
    let unusable = token.usable(NOW_S + 2 * HOUR_S - 60, &TERMS).unwrap_err();
    assert!(!unusable.is_final && unusable.message.contains("being refreshed"), "{unusable:?}");
    // What is kept is all of it.
    let text = token.encode().unwrap();
    assert_eq!(JobToken::decode(text.expose().as_bytes()).unwrap(), token);
    assert!(!format!("{token:?}").contains("refresh-"), "{token:?}");
}

#[test]
fn an_issuer_that_is_away_is_asked_until_the_end_and_one_that_refuses_is_not() {
    let mut token = managed();
    let mut now_s = NOW_S + 2360;
    let mut asked = Vec::new();
    loop {
        match token.step(now_s, true, &TERMS) {
            Step::Refresh { ticket, .. } => {
                asked.push(now_s);
                token.refreshed(
                    ticket,
                    Err(Trouble::Unreachable("no answer for 30 s".to_owned())),
                    now_s,
                    &TERMS,
                );
            }
            Step::Wait { until_s } => now_s = until_s.unwrap(),
            Step::OwnerMustAct(words) => {
                assert!(
                    words.contains("job's time was over") && words.contains("no answer for 30 s"),
                    "{words}"
                );
                break;
            }
            step @ Step::Exchange { .. } => panic!("{step:?}"),
        }
        let is_usable = token.usable(now_s, &TERMS);
        assert_eq!(is_usable.is_ok(), now_s < NOW_S + 3540);
        if now_s < NOW_S + 48 * HOUR_S
            && let Err(unusable) = is_usable
        {
            assert!(!unusable.is_final && unusable.message.contains("no answer for 30 s"), "{unusable:?}");
        }
    }
    let pauses: Vec<i64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..5], [10, 20, 40, 80, 160]);
    assert_eq!((pauses.iter().max(), pauses.last()), (Some(&600), Some(&600)));
    // Often enough to find an issuer that comes back late.
    assert!(asked.iter().any(|at_s| (NOW_S + 3500..NOW_S + 3540).contains(at_s)), "{asked:?}");
    let over_s = NOW_S + 48 * HOUR_S;
    assert!((over_s..over_s + 600).contains(&now_s), "{now_s}");

    let mut token = managed();
    let Step::Refresh { ticket, .. } = token.step(NOW_S + 2360, true, &TERMS) else { panic!() };
    token.refreshed(
        ticket,
        Err(Trouble::Refused("invalid_grant: revoked\u{7}".to_owned())),
        NOW_S + 2361,
        &TERMS,
    );
    let Step::OwnerMustAct(words) = token.step(NOW_S + 2362, true, &TERMS) else { panic!() };
    assert!(words.contains("invalid_grant: revoked") && !words.contains('\u{7}'), "{words}");
    // To its end the token is good; then the words are those of the issuer.
    assert!(token.usable(NOW_S + 3539, &TERMS).is_ok());
    let unusable = token.usable(NOW_S + 3540, &TERMS).unwrap_err();
    assert!(unusable.is_final && unusable.message.contains("invalid_grant"), "{unusable:?}");
    // The owner acts.
    token.replaced(Secret::new("again"), NOW_S + 3 * HOUR_S, NOW_S + HOUR_S);
    assert!(!token.refreshed(ticket, Ok(issued(9, NOW_S + 99 * HOUR_S)), NOW_S + HOUR_S, &TERMS));
    assert_eq!(token.usable(NOW_S + HOUR_S, &TERMS).unwrap().expose(), "again");
    assert!(matches!(token.step(NOW_S + HOUR_S, false, &TERMS), Step::Exchange { .. }));
}

#[test]
fn a_token_that_was_not_exchanged_in_time_is_over() {
    let mut token = job();
    let mut now_s = NOW_S;
    let words = loop {
        match token.step(now_s, false, &TERMS) {
            Step::Exchange { ticket, .. } => {
                let trouble = Trouble::Unreachable("503".to_owned());
                assert!(token.exchanged(ticket, Err(trouble), now_s, &TERMS));
            }
            Step::Wait { until_s } => now_s = until_s.unwrap(),
            Step::OwnerMustAct(words) => break words,
            step @ Step::Refresh { .. } => panic!("{step:?}"),
        }
    };
    assert!(
        words.contains("ended before its issuer gave a refresh token") && words.contains("503"),
        "{words}"
    );
    assert_eq!(now_s, NOW_S + 3540);
    // The clock was wrong, and is set right: nothing was final.
    assert!(matches!(token.step(NOW_S + 1800, false, &TERMS), Step::Exchange { .. }));

    let mut unmanaged = JobToken::new("i", Secret::new("a"), NOW_S + 100, false, NOW_S + HOUR_S, NOW_S);
    assert_eq!(unmanaged.step(NOW_S, true, &TERMS), Step::Wait { until_s: Some(NOW_S + 40) });
    assert!(matches!(unmanaged.step(NOW_S + 40, true, &TERMS), Step::OwnerMustAct(_)));
}

#[test]
fn clocks_that_differ_or_jump_make_no_storm() {
    // The issuer's clock is ten minutes behind ours, and its tokens last five.
    let mut token = managed();
    let (mut now_s, mut count) = (NOW_S + 2360, 0);
    while now_s < NOW_S + 2360 + HOUR_S {
        match token.step(now_s, true, &TERMS) {
            Step::Refresh { ticket, refresh } => {
                count += 1;
                assert_eq!(refresh.expose(), format!("refresh-{}", count - 1), "the newest one is used");
                token.refreshed(ticket, Ok(issued(count, now_s - 600 + 300)), now_s, &TERMS);
            }
            Step::Wait { until_s } => now_s = until_s.unwrap().max(now_s + 1),
            step => panic!("{step:?}"),
        }
    }
    assert!((5..40).contains(&count), "{count} questions in an hour");
    let unusable = token.usable(now_s, &TERMS).unwrap_err();
    assert!(unusable.message.contains("clocks differ"), "{unusable:?}");

    // Set back by a day: when the token came cannot be told, so it is refreshed; and once.
    let mut token = managed();
    let before_s = NOW_S - 24 * HOUR_S;
    let Step::Refresh { ticket, .. } = token.step(before_s, true, &TERMS) else { panic!() };
    token.refreshed(ticket, Ok(issued(1, before_s + HOUR_S)), before_s, &TERMS);
    assert!(matches!(token.step(before_s + 1, true, &TERMS), Step::Wait { until_s: Some(_) }));
    // Set back between a failure and its pause: it is not waited for until the old time comes again.
    let Step::Refresh { ticket, .. } = token.step(before_s + 3000, true, &TERMS) else { panic!() };
    token.refreshed(ticket, Err(Trouble::Unreachable("away".to_owned())), before_s + 3000, &TERMS);
    assert!(matches!(token.step(before_s - 5000, true, &TERMS), Step::Refresh { .. }));
}

#[test]
fn a_token_that_servers_refuse_is_refreshed_once() {
    let mut token = managed();
    let access = Secret::new("access-0");
    assert!(token.doubt(&access, NOW_S + 10, &TERMS));
    let Step::Refresh { ticket, .. } = token.step(NOW_S + 10, true, &TERMS) else { panic!() };
    token.refreshed(ticket, Ok(issued(1, NOW_S + HOUR_S)), NOW_S + 11, &TERMS);
    // Somebody else had the old one; there is a new one already.
    assert!(token.doubt(&access, NOW_S + 12, &TERMS));
    assert!(matches!(token.step(NOW_S + 12, true, &TERMS), Step::Wait { .. }));
    // The new one is refused as well: it is not the reason.
    let access = Secret::new("access-1");
    assert!(!token.doubt(&access, NOW_S + 12, &TERMS));
    assert!(matches!(token.step(NOW_S + 12, true, &TERMS), Step::Wait { .. }));
    assert!(token.doubt(&access, NOW_S + 10 + 600, &TERMS));
}

#[test]
fn what_was_cut_off_is_said() {
    let mut token = managed();
    let Step::Refresh { .. } = token.step(NOW_S + 2360, true, &TERMS) else { panic!() };
    let kept = token.encode().unwrap();
    let mut token = JobToken::decode(kept.expose().as_bytes()).unwrap();
    token.resumed();
    let Step::Refresh { ticket, .. } = token.step(NOW_S + 2365, true, &TERMS) else { panic!() };
    token.refreshed(ticket, Err(Trouble::Refused("invalid_grant".to_owned())), NOW_S + 2366, &TERMS);
    let Step::OwnerMustAct(words) = token.step(NOW_S + 2367, true, &TERMS) else { panic!() };
    assert!(
        words.contains("cut off before its answer was kept") && words.contains("invalid_grant"),
        "{words}"
    );
}
