use std::sync::OnceLock;

use proptest::prelude::*;
use ring::rand::SystemRandom;

use super::der::{element, tag};
use super::*;
use crate::make::{
    self, Contents, Credential, Curve, Extension as Made, Key, KeyUsage, ProxyPolicy, ProxyTerms,
    RevocationList, Revoked, Text, Validity, pem, profile,
};
use crate::refusal::{Cause, Refusal};

const NOW_S: i64 = 1_800_000_000;
const DAY_S: i64 = 86_400;

fn random() -> &'static SystemRandom {
    static RANDOM: OnceLock<SystemRandom> = OnceLock::new();
    RANDOM.get_or_init(SystemRandom::new)
}

fn key() -> Key {
    Key::generate(Curve::P256, random()).unwrap()
}

fn name(text: &str) -> make::Name {
    make::Name::parse(text, Text::Utf8).unwrap()
}

fn validity() -> Validity {
    Validity { not_before_s: NOW_S - DAY_S, not_after_s: NOW_S + 10 * DAY_S }
}

fn authority(text: &str) -> Credential {
    profile::authority(&name(text), key(), validity(), random()).unwrap()
}

fn user(authority: &Credential, text: &str) -> Credential {
    profile::user(authority, &name(text), key(), validity(), random()).unwrap()
}

fn proxy(issuer: &Credential, policy: ProxyPolicy, hours: i64) -> Credential {
    let validity = Validity { not_before_s: NOW_S - 1, not_after_s: NOW_S + hours * 3600 };
    let terms = ProxyTerms { policy, ..ProxyTerms::new(validity) };
    make::proxy(issuer, key(), &terms, random()).unwrap()
}

fn file(name: &str, certificate: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), pem::encode(pem::CERTIFICATE, certificate).into_bytes())
}

fn text(name: &str, contents: &str) -> (String, Vec<u8>) {
    (name.to_owned(), contents.as_bytes().to_vec())
}

fn trust(authorities: &[&Credential]) -> Trust {
    let files =
        authorities.iter().enumerate().map(|(number, one)| file(&format!("a{number}.0"), &one.chain[0]));
    let (trust, warnings) = Trust::read(files);
    assert_eq!(warnings, [""; 0]);
    trust
}

const ROOT: &str = "/DC=org/DC=example/CN=Root";
const ADA: &str = "/DC=org/DC=example/OU=people/CN=Ada";

#[test]
fn what_is_known_of_a_proxy() {
    let root = authority(ROOT);
    let ada = user(&root, ADA);
    let first = proxy(&ada, ProxyPolicy::Limited, 12);
    let second = proxy(&first, ProxyPolicy::InheritAll, 2);
    let verified = verify(&second.chain, &trust(&[&root]), NOW_S).unwrap();
    assert_eq!((verified.dn(), verified.issuer_dn()), (ADA, ROOT));
    assert_eq!(verified.rfc2253(), "CN=Ada,OU=people,DC=example,DC=org");
    assert_eq!((verified.proxy_depth(), verified.is_proxy(), verified.is_limited()), (2, true, true));
    assert_eq!(verified.expires_s(), NOW_S + 2 * 3600);
    let layers: Vec<&[u8]> = verified.layers().iter().map(Certificate::der).collect();
    assert_eq!(layers, [&second.chain[0][..], &first.chain[0], &ada.chain[0]]);
    assert_eq!(verified.leaf().spki(), second.key.public_key());
    assert_eq!(verified.end_entity().subject().to_string(), ADA);
    assert_eq!(verified.end_entity().issuer().to_string(), ROOT);
    assert!(!verified.end_entity().serial().is_empty());
    assert!(verified.leaf().extension(&[0x2b, 6, 1, 5, 5, 7, 1, 14]).is_some());
    assert_eq!(verified.leaf().extension(&[0x2a, 3]), None);

    let verified = verify(&ada.chain, &trust(&[&root]), NOW_S).unwrap();
    assert_eq!((verified.proxy_depth(), verified.is_proxy(), verified.is_limited()), (0, false, false));
    assert_eq!(verified.expires_s(), NOW_S + 10 * DAY_S);
    let all = proxy(&ada, ProxyPolicy::InheritAll, 1);
    assert!(!verify(&all.chain, &trust(&[&root]), NOW_S).unwrap().is_limited());
}

#[test]
fn refusals_say_what_to_do() {
    let root = authority(ROOT);
    let ada = user(&root, ADA);
    let one = proxy(&ada, ProxyPolicy::InheritAll, 1);
    let two = proxy(&one, ProxyPolicy::InheritAll, 1);
    let known = trust(&[&root]);
    let number = |credential: &Credential| credential.subject().unwrap().to_string();
    for (chain, now_s, cause, words) in [
        (
            &one.chain,
            NOW_S + 3600,
            Cause::Expired,
            "the proxy certificate expired 2027-01-15T09:00:00Z".to_owned(),
        ),
        (
            &two.chain,
            NOW_S + 3600,
            Cause::Expired,
            format!("the proxy certificate {} expired 2027-01-15T09:00:00Z", number(&two)),
        ),
        (
            &ada.chain,
            NOW_S + 10 * DAY_S,
            Cause::Expired,
            format!("the certificate of {ADA} expired 2027-01-25T08:00:00Z"),
        ),
        (
            &ada.chain,
            NOW_S - 2 * DAY_S,
            Cause::NotYetValid,
            format!("the certificate of {ADA} is not valid before 2027-01-14T08:00:00Z"),
        ),
        (
            &one.chain[..1].to_vec(),
            NOW_S,
            Cause::Untrusted,
            format!("the certificate of {ADA}, which made the proxy {}, was not sent along", number(&one)),
        ),
        (&Vec::new(), NOW_S, Cause::Malformed, "there is no certificate".to_owned()),
        (&vec![b"rubbish".to_vec()], NOW_S, Cause::Malformed, "a certificate cannot be read".to_owned()),
    ] {
        assert_eq!(verify(chain, &known, now_s).unwrap_err(), Refusal::new(cause, words));
    }
    let refusal = verify(&ada.chain, &trust(&[&authority("/CN=Other")]), NOW_S).unwrap_err();
    let words = format!("the authority {ROOT}, which made the certificate of {ADA}, is not trusted here");
    assert_eq!(refusal, Refusal::new(Cause::Untrusted, words));
    let behind = [&ada.chain[0][..], &[7]].concat();
    assert_eq!(verify(&[behind], &known, NOW_S).unwrap_err().cause, Cause::Malformed);
    let odd = vec![ada.chain[0].clone(), b"rubbish".to_vec()];
    assert_eq!(verify(&odd, &known, NOW_S).unwrap().dn(), ADA, "what is odd and not needed is passed over");
}

#[test]
fn a_name_in_a_message_is_not_endless() {
    let root = authority(ROOT);
    let ada = user(&root, &format!("/CN={}", "x".repeat(5000)));
    let refusal = verify(&ada.chain, &trust(&[&root]), NOW_S + 20 * DAY_S).unwrap_err();
    assert!(refusal.message.len() < 400, "{refusal}");
}

#[test]
fn what_is_too_much() {
    let root = authority(ROOT);
    let ada = user(&root, ADA);
    let many = vec![ada.chain[0].clone(); gridlane_core::limits::CHAIN_CERTIFICATES_MAX + 1];
    assert_eq!(verify(&many, &trust(&[&root]), NOW_S).unwrap_err().cause, Cause::Unacceptable);
    let long = vec![ada.chain[0].clone(), vec![0; gridlane_core::limits::CHAIN_BYTES_MAX]];
    assert_eq!(verify(&long, &trust(&[&root]), NOW_S).unwrap_err().cause, Cause::Unacceptable);

    // Authorities of one name, each signed by each: more ways than can be tried.
    let keys: Vec<Key> = (0..5).map(|_| key()).collect();
    let maze = name("/CN=Maze");
    let authority = |public_key: &Key, signer: &Key| {
        let contents = Contents {
            subject: maze.clone(),
            issuer: maze.clone(),
            serial: vec![1],
            validity: validity(),
            public_key: public_key.public_key(),
            extensions: vec![Made::basic_constraints(true, None)],
        };
        contents.sign(signer, random()).unwrap()
    };
    let mut chain = vec![];
    for signer in &keys {
        chain.extend(keys.iter().take(4).map(|key| authority(key, signer)));
    }
    let leaf = Contents {
        subject: name(ADA),
        issuer: maze.clone(),
        serial: vec![1],
        validity: validity(),
        public_key: key().public_key(),
        extensions: vec![],
    };
    chain.insert(0, leaf.sign(&keys[0], random()).unwrap());
    let refusal = verify(&chain, &trust(&[&root]), NOW_S).unwrap_err();
    assert!(
        matches!(refusal.cause, Cause::Unacceptable | Cause::Untrusted | Cause::BadSignature),
        "{refusal:?}"
    );
}

#[test]
fn whom_voms_believes_needs_no_client() {
    let root = authority(ROOT);
    let host = Contents {
        extensions: vec![Made::extended_key_usage(&[&[1, 3, 6, 1, 5, 5, 7, 3, 1]])],
        ..profile::end_entity(&root, &name("/CN=voms.example.org"), &key(), validity(), random()).unwrap()
    };
    let chain = [host.sign(&root.key, random()).unwrap()];
    let known = trust(&[&root]);
    assert!(verify(&chain, &known, NOW_S).unwrap_err().message.contains("extendedKeyUsage"));
    assert_eq!(verify_for(Purpose::Any, &chain, &known, NOW_S).unwrap().dn(), "/CN=voms.example.org");
    // A test server that signed for itself.
    assert!(verify(&root.chain, &known, NOW_S).unwrap_err().message.contains("of an authority"));
    assert_eq!(verify_for(Purpose::Any, &root.chain, &known, NOW_S).unwrap().dn(), ROOT);
}

fn list(authority: &Credential, revoked: &[&Credential], validity: Validity) -> Vec<u8> {
    let revoked = revoked.iter().map(|credential| {
        let serial = Certificate::from_der(&credential.chain[0]).unwrap().serial().to_vec();
        Revoked { serial, revoked_s: NOW_S - 7200 }
    });
    let list = RevocationList::of(authority, revoked.collect(), validity, 1).unwrap();
    list.sign(&authority.key, random()).unwrap()
}

#[test]
fn lists_over_their_time() {
    let root = authority(ROOT);
    let (ada, bob) = (user(&root, ADA), user(&root, "/CN=Bob"));
    let over = Validity { not_before_s: NOW_S - DAY_S, not_after_s: NOW_S - 3600 };
    let files = || [file("a.0", &root.chain[0]), ("a.r0".to_owned(), list(&root, &[&bob], over))];
    let (trust, warnings) = Trust::read(files());
    assert_eq!(warnings, [""; 0]);
    assert_eq!(trust.earliest_next_update_s(), Some(NOW_S - 3600));
    let states = [NOW_S - 2 * DAY_S, NOW_S - DAY_S, NOW_S - 3601, NOW_S - 3600, NOW_S]
        .map(|now_s| trust.lists_state(now_s));
    assert!(states[0] != states[1] && states[1] == states[2] && states[2] != states[3], "{states:?}");
    assert!(states[0] != states[3] && states[3] == states[4], "{states:?}");
    let words = format!("the revocation list of {ROOT} expired 2027-01-15T07:00:00Z");
    assert_eq!(verify(&ada.chain, &trust, NOW_S).unwrap_err(), Refusal::new(Cause::Expired, words));
    assert_eq!(verify(&bob.chain, &trust, NOW_S).unwrap_err().cause, Cause::Revoked);
    let trust = trust.with_outdated_lists(OutdatedLists::Use);
    assert_eq!(verify(&ada.chain, &trust, NOW_S).unwrap().dn(), ADA);
    let revoked = "the certificate of /CN=Bob was revoked 2027-01-15T06:00:00Z";
    assert_eq!(verify(&bob.chain, &trust, NOW_S).unwrap_err(), Refusal::new(Cause::Revoked, revoked));
}

/// A remembered result has to be computed again when the list has ended.
#[test]
fn what_was_found_holds_as_long_as_its_lists() {
    let root = authority(ROOT);
    let ada = user(&root, ADA);
    let ends_s = NOW_S + 10 * DAY_S;
    let lists = |ends: &[i64]| {
        let until = |hours: &i64| Validity { not_before_s: NOW_S - DAY_S, not_after_s: NOW_S + hours * 3600 };
        let lists = (0..).zip(ends).map(|(n, hours)| (format!("a.r{n}"), list(&root, &[], until(hours))));
        Trust::read([file("a.0", &root.chain[0])].into_iter().chain(lists.collect::<Vec<_>>())).0
    };
    let until_s = |trust: &Trust| verify(&ada.chain, trust, NOW_S).unwrap().expires_s();
    assert_eq!(until_s(&lists(&[])), ends_s);
    assert_eq!(until_s(&lists(&[-1, 2, 5])), NOW_S + 5 * 3600);
    assert_eq!(until_s(&lists(&[5000])), ends_s);
    assert_eq!(until_s(&lists(&[5]).with_outdated_lists(OutdatedLists::Use)), ends_s);
}

#[test]
fn a_list_counts_for_an_authority_that_was_sent_along() {
    let root = authority(ROOT);
    let lower = profile::intermediate(&root, &name("/CN=Lower"), key(), validity(), random()).unwrap();
    let (ada, bob) = (user(&lower, ADA), user(&lower, "/CN=Bob"));
    let files = [file("a.0", &root.chain[0]), ("b.r0".to_owned(), list(&lower, &[&bob], validity()))];
    let (trust, warnings) = Trust::read(files);
    assert_eq!(
        warnings,
        ["b.r0: the revocation list of /CN=Lower: no authority here has signed it; it is ignored"]
    );
    let with = |credential: &Credential| [&credential.chain[..], &lower.chain[..]].concat();
    assert_eq!(verify(&with(&ada), &trust, NOW_S).unwrap().dn(), ADA);
    assert_eq!(verify(&with(&bob), &trust, NOW_S).unwrap_err().cause, Cause::Revoked);
}

#[test]
fn a_directory_is_read_as_far_as_it_can_be() {
    let (root, other) = (authority(ROOT), authority("/CN=Other"));
    let ada = user(&root, ADA);
    let both = [&root, &other].map(|one| pem::encode(pem::CERTIFICATE, &one.chain[0])).concat();
    let (trust, mut warnings) = Trust::read([
        file("1234abcd.0", &root.chain[0]),
        text("bundle.pem", &format!("# Some words\n{both}")),
        ("other.crt".to_owned(), other.chain[0].clone()),
        text("broken.0", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"),
        text("empty.1", ""),
        ("rubbish.0".to_owned(), vec![0x30, 3, 1, 2, 3]),
        file("ada.pem", &ada.chain[0]),
        text("list.r0", "nothing"),
        ("rubbish.r0".to_owned(), vec![0x30, 0]),
        text("1234abcd.signing_policy", "cond_subjects"),
        text("1234abcd.namespaces", "whatever"),
        text("README", "whatever"),
        text("1234abcd.info", "whatever"),
    ]);
    warnings.sort();
    let begins = [
        "1234abcd.signing_policy: it does not speak of /DC=org/DC=example/CN=Root, which therefore may sign nothing",
        "1234abcd.signing_policy: line 1: something is missing; so its authority may sign nothing",
        "ada.pem: /DC=org/DC=example/OU=people/CN=Ada is no authority (basicConstraints), so no certificate is trusted by it",
        "broken.0: base64 decode error",
        "broken.0: there is no certificate in it",
        "empty.1: there is no certificate in it",
        "list.r0: there is no revocation list in it",
        "rubbish.0: a certificate cannot be read",
        "rubbish.r0: the revocation list is not looked at: it cannot be read",
    ];
    assert_eq!(warnings, begins);
    assert_eq!(trust.authorities_count(), 2);
    assert_eq!(trust.earliest_expiry_s(), Some(NOW_S + 10 * DAY_S));
    assert_eq!(trust.earliest_next_update_s(), None);
    assert!(verify(&user(&other, ADA).chain, &trust, NOW_S).is_ok());
    assert!(verify(&ada.chain, &trust, NOW_S).unwrap_err().message.contains("signing_policy"));

    let (trust, warnings) = Trust::from_certificates([text("ca.anything", &both), file("x", &root.chain[0])]);
    assert_eq!((trust.authorities_count(), warnings.len()), (2, 0));
    assert!(verify(&ada.chain, &trust, NOW_S).is_ok());
}

#[test]
fn authorities_sign_what_their_policy_says() {
    let root = authority(ROOT);
    let lower = profile::intermediate(&root, &name("/DC=org/CN=Lower"), key(), validity(), random()).unwrap();
    let policy = |authority: &str, subjects: &str| {
        format!(
            "access_id_CA X509 '{authority}'\npos_rights globus CA:sign\ncond_subjects globus '{subjects}'\n"
        )
    };
    let everything = policy(ROOT, "*");
    for (of_root, of_lower, subject, is_good) in [
        (None, None, ADA, true),
        (Some(everything.clone()), None, ADA, true),
        (Some(policy(ROOT, "/DC=org/*")), None, ADA, true),
        (Some(policy(ROOT, "\"/DC=com/*\" \"/DC=org/CN=*\"")), None, ADA, true),
        // The intermediate authority needs leave as well.
        (Some(policy(ROOT, "/DC=org/DC=example/*")), None, ADA, false),
        (Some(policy("/CN=Other", "*")), None, ADA, false),
        (Some(String::new()), None, ADA, false),
        (None, Some(policy("/DC=org/CN=Lower", "\"/DC=org/DC=example/*\"")), ADA, true),
        (None, Some(policy("/dc=ORG/cn=lower", "\"/dc=ORG/dc=example/*\"")), ADA, true),
        (None, Some(policy("/DC=org/CN=Lower", "\"/DC=org/DC=example/OU=hosts/*\"")), ADA, false),
        (None, Some(policy("/DC=org/CN=Lower", "/CN=host/*")), "/CN=host/node.example.org", true),
        (None, Some(policy("/DC=org/CN=Lower", "/CN=*/Email=*")), "/CN=Ada/emailAddress=a@b.org", true),
        (Some(everything), Some(policy("/DC=org/CN=Lower", "/CN=Bob")), ADA, false),
        // One attribute with slashes in it is no place below another.
        (None, Some(policy("/DC=org/CN=Lower", "/DC=org/DC=x/*")), "/DC=org\\/DC=x\\/CN=Eve", false),
    ] {
        let mut files = vec![file("r.0", &root.chain[0]), file("l.0", &lower.chain[0])];
        files.extend(of_root.as_ref().map(|contents| text("r.signing_policy", contents)));
        files.extend(of_lower.as_ref().map(|contents| text("l.signing_policy", contents)));
        let trust = Trust::read(files).0;
        let one = proxy(&user(&lower, subject), ProxyPolicy::InheritAll, 1);
        let judged = verify(&one.chain, &trust, NOW_S);
        let case = format!("{of_root:?} {of_lower:?} {subject}: {judged:?}");
        assert_eq!(judged.is_ok(), is_good, "{case}");
        assert!(
            judged.is_ok_and(|_| is_good)
                || case.contains("may not sign for this name here (signing_policy)")
        );
    }
    // One that is confined cannot get out by an authority of its own, which the peer sends along.
    for (subject, is_good) in [("/DC=org/CN=Ada", true), ("/DC=com/CN=Eve", false)] {
        let files = [file("r.0", &root.chain[0]), text("r.signing_policy", &policy(ROOT, "/DC=org/*"))];
        let chain = [&user(&lower, subject).chain[..], &lower.chain[..]].concat();
        assert_eq!(verify(&chain, &Trust::read(files).0, NOW_S).is_ok(), is_good, "{subject}");
    }
    // A policy in the directory counts for another certificate of the same authority.
    let files = [
        file("r.0", &root.chain[0]),
        file("l.0", &lower.chain[0]),
        text("l.signing_policy", &policy("/DC=org/CN=Lower", "/CN=Bob")),
    ];
    let again = profile::intermediate(&root, &name("/DC=org/CN=Lower"), key(), validity(), random()).unwrap();
    let ada = user(&again, ADA);
    let chain = [&ada.chain[..], &again.chain[..]].concat();
    assert!(verify(&chain, &Trust::read(files).0, NOW_S).unwrap_err().message.contains("signing_policy"));
}

/// A host's name looks like another one with a slash in it, and OpenSSL 3 tells them apart.
#[test]
fn slashes_in_names() {
    let root = authority(ROOT);
    let host = user(&root, "/CN=host/node.example.org");
    assert_eq!(verify(&host.chain, &trust(&[&root]), NOW_S).unwrap().dn(), "/CN=host\\/node.example.org");
}

/// Rules and grid-mapfiles compare what is printed.
#[test]
fn names_that_are_printed_alike_are_the_same() {
    let pair = |kind: &[u8], tag: u8, value: &[u8]| {
        let pair = [element(tag::OID, kind), element(tag, value)].concat();
        element(tag::SEQUENCE, &pair)
    };
    let cn = |tag: u8, value: &[u8]| element(tag::SET, &pair(&[0x55, 4, 3], tag, value));
    let uid =
        |value: &[u8]| pair(&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], tag::UTF8_STRING, value);
    let utf8 = |value: &str| cn(tag::UTF8_STRING, value.as_bytes());
    let both = element(tag::SET, &[pair(&[0x55, 4, 3], tag::UTF8_STRING, b"a"), uid(b"b")].concat());
    let names = [
        [utf8("a"), utf8("b")].concat(),
        utf8("a/CN=b"),
        utf8("a\\/CN=b"),
        [utf8("a\\"), utf8("b")].concat(),
        both,
        utf8("a+UID=b"),
        utf8("a\\+UID=b"),
        utf8("\u{e9}"),
        utf8("\\xC3\\xA9"),
        cn(tag::T61_STRING, b"\xe9"),
        utf8("AA"),
        utf8("AA\0"),
        cn(tag::BMP_STRING, b"AA"),
        utf8("\0A"),
        element(tag::SET, &pair(&[0x2b, 6, 1], tag::UTF8_STRING, b"a")),
    ];
    let names = names.map(|parts| Name::from_der(&element(tag::SEQUENCE, &parts)).unwrap());
    for (index, one) in names.iter().enumerate() {
        assert_eq!(crate::dn::normal(&one.to_string()), one.to_string());
        for other in &names[..index] {
            assert!(one.to_string() != other.to_string(), "{one} {other}");
        }
    }
    let wide = Name::from_der(&element(tag::SEQUENCE, &cn(tag::BMP_STRING, b"\0A\0A"))).unwrap();
    assert_eq!((wide.to_string(), wide == names[10]), (names[10].to_string(), true));
}

proptest! {
    /// Names of words that are made to be mistaken for each other.
    #[test]
    fn no_two_names_are_printed_alike(words in prop::collection::vec(prop::collection::vec("[a/+=.\\\\xC3A9N\u{e9}]{0,6}|/CN=|\\\\/", 1..3), 2..6)) {
        let made = |words: &[Vec<String>]| {
            let parts = words.iter().map(|set| {
                let pairs = set.iter().map(|word| {
                    let pair = [element(tag::OID, &[0x55, 4, 3]), element(tag::UTF8_STRING, word.as_bytes())];
                    element(tag::SEQUENCE, &pair.concat())
                });
                element(tag::SET, &pairs.collect::<Vec<_>>().concat())
            });
            Name::from_der(&element(tag::SEQUENCE, &parts.collect::<Vec<_>>().concat())).unwrap()
        };
        let joined = words.concat();
        let all = [
            made(&words),
            made(&words[1..]),
            made(std::slice::from_ref(&joined)),
            made(&[vec![joined.concat()]]),
            made(&[vec![joined.join("/CN=")]]),
            made(&joined.iter().map(|word| vec![word.clone()]).collect::<Vec<_>>()),
        ];
        for (index, one) in all.iter().enumerate() {
            prop_assert_eq!(crate::dn::normal(&one.to_string()), one.to_string());
            for other in &all[..index] {
                prop_assert_eq!(one.to_string() == other.to_string(), one.der() == other.der());
            }
        }
    }
}

#[test]
fn extensions_without_end_are_not_looked_at() {
    let root = authority(ROOT);
    let ada = user(&root, ADA);
    let mut contents = ada.contents().unwrap();
    contents.extensions.extend((0..60).map(|number| Made::raw(&[1, 2, 3, number], false, vec![5, 0])));
    let der = contents.sign(&root.key, random()).unwrap();
    let refusal = verify(&[der], &trust(&[&root]), NOW_S).unwrap_err();
    assert!(refusal.message.contains("more extensions"), "{refusal}");
}

#[test]
fn signatures_of_tls() {
    let message = b"what is signed";
    let (p256, p384) = (key(), Key::generate(Curve::P384, random()).unwrap());
    let by = |key: &Key| key.sign(message, random()).unwrap();
    for (key, scheme, is_tls13, is_good) in [
        (&p256, 0x0403, true, true),
        (&p256, 0x0403, false, true),
        (&p384, 0x0503, true, true),
        (&p384, 0x0503, false, true),
        (&p384, 0x0403, true, false),
        (&p256, 0x0503, true, false),
        (&p256, 0x0804, true, false),
        (&p256, 0x0807, true, false),
        (&p256, 0x0203, false, false),
        (&p256, 0xffff, false, false),
    ] {
        let judged = signature::verify_tls(&key.public_key(), scheme, is_tls13, message, &by(key));
        assert_eq!(judged.is_ok(), is_good, "{scheme:#06x} {is_tls13} {judged:?}");
    }
    assert!(signature::verify_tls(&p256.public_key(), 0x0403, true, b"something else", &by(&p256)).is_err());
    assert!(signature::verify_tls(&key().public_key(), 0x0403, true, message, &by(&p256)).is_err());
    assert!(signature::verify_tls(b"rubbish", 0x0403, true, message, &by(&p256)).is_err());
}

#[test]
fn keys_that_cannot_be_used() {
    let spki = key().public_key();
    assert!(matches!(signature::Key::from_spki(&spki), Ok(signature::Key::P256(_))));
    // The same point, written shortly.
    let head = [0x30, 0x39, 0x30, 0x13];
    let short = [&head, &spki[4..23], &[3, 0x22, 0, 2], &spki[27..59]].concat();
    let refused = |spki: &[u8]| signature::Key::from_spki(spki).unwrap_err();
    assert_eq!(refused(&short), "a point that is not written in full");
    let dsa = [0x30, 14, 0x30, 9, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1, 3, 1, 0];
    assert_eq!(refused(&dsa), "a key of the kind 1.2.840.10040.4.1; RSA, ECDSA and Ed25519 are accepted");
    assert_eq!(refused(&spki[1..]), "a public key that cannot be read");
}

/// A chain with a proxy and an authority in between, and what it is judged with.
fn good() -> &'static (Vec<Vec<u8>>, Trust) {
    static GOOD: OnceLock<(Vec<Vec<u8>>, Trust)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let root = authority(ROOT);
        let lower = profile::intermediate(&root, &name("/CN=Lower"), key(), validity(), random()).unwrap();
        let one = proxy(&user(&lower, ADA), ProxyPolicy::InheritAll, 1);
        let mut chain = one.chain;
        chain.extend(lower.chain.iter().cloned());
        chain.dedup();
        assert_eq!(verify(&chain, &trust(&[&root]), NOW_S).unwrap().dn(), ADA);
        (chain, trust(&[&root]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_that_was_changed_is_believed(
        part in 0..3usize,
        at in any::<prop::sample::Index>(),
        how in 0..4u8,
        byte in any::<u8>(),
    ) {
        let (chain, trust) = good();
        let mut chain = chain[..3].to_vec();
        let der = &mut chain[part];
        let at = at.index(der.len());
        match how {
            0 => der[at] = byte,
            1 => der[at] ^= 1 << (byte & 7),
            2 => der.insert(at, byte),
            _ => { der.remove(at); }
        }
        let judged = verify(&chain, trust, NOW_S);
        prop_assert!(judged.is_err() || chain[..] == good().0[..3], "{judged:?}");
    }

    #[test]
    fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Certificate::from_der(&bytes);
        let _ = Name::from_der(&bytes);
        let _ = signature::Algorithm::from_der(&bytes);
        let _ = signature::Key::from_spki(&bytes);
        for name in ["a.0", "a.r0", "a.signing_policy"] {
            Trust::read([(name.to_owned(), bytes.clone())]);
        }
    }
}

#[test]
fn keys_that_may_not_sign_make_no_proxies() {
    let root = authority(ROOT);
    let mut contents = profile::end_entity(&root, &name(ADA), &key(), validity(), random()).unwrap();
    let own = key();
    contents.public_key = own.public_key();
    contents.extensions = vec![Made::key_usage(KeyUsage::KEY_ENCIPHERMENT)];
    let ada = Credential { chain: vec![contents.sign(&root.key, random()).unwrap()], key: own };
    let one = proxy(&ada, ProxyPolicy::InheritAll, 1);
    let words =
        "the proxy certificate: its issuer's key is not for signatures (keyUsage), so it makes no proxies";
    assert_eq!(verify(&one.chain, &trust(&[&root]), NOW_S).unwrap_err().message, words);
}
