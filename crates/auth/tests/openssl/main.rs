//! Our judgement of certificate chains beside that of OpenSSL: hundreds of chains, good and bad, made at run time.
//!
//! Each has an outcome that is written down; OpenSSL has to come to the same one, unless the chain is in
//! [`EXCEPTIONS`], which says why we differ.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

mod authorities;
mod cases;
mod changed;
mod names;
mod proxies;
mod world;

use std::collections::BTreeSet;

use cases::{Case, cases};

/// Chains that we judge otherwise than OpenSSL, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    // We are stricter.
    ("proxy depth: 30 proxies", "a chain of this length is work for nothing; OpenSSL takes 100"),
    ("proxy language: independent", INDEPENDENT),
    ("proxy language: independent, then all", INDEPENDENT),
    ("proxy language: another", "OpenSSL leaves rights to the application; we know no other languages"),
    ("proxy language: anyLanguage", "as any other language: nobody can tell what rights are left"),
    ("proxy language: all, with a policy", "RFC 3820, 3.8.2: it must not have one"),
    ("proxy language: not critical", "RFC 3820, 3.8: it must be critical"),
    (
        "proxy language: negative depth",
        "RFC 3820, 3.8.1: INTEGER (0..MAX); OpenSSL 3.0 takes it for 'no limit'",
    ),
    ("end entity: key for agreement only", "such a key signs no handshake, and no proxy"),
    ("end entity: is an authority", "an authority's key is not for logging in"),
    ("end entity: serial number of 21 bytes", "RFC 5280, 4.1.2.2: at most 20"),
    (
        "authority: asks for policies",
        "OpenSSL looks at policies only when told to; we cannot, and they are critical",
    ),
    ("algorithms: RSA with SHA-224", RING),
    ("algorithms: PSS with a short salt", RING),
    ("algorithms: PSS with two digests", RING),
    ("algorithms: ECDSA with SHA-512", RING),
    ("algorithms: P-521 of the root", RING),
    ("algorithms: P-521 of the user", RING),
    ("algorithms: another curve", RING),
    // We are more tolerant.
    (
        "proxy depth: 1 3",
        "RFC 3820, 4.1.3 (b): the smaller of the two counts; OpenSSL forgets how many proxies there are in fact",
    ),
    (
        "constraint: a common name that looks like a host",
        "certificates of hosts have no rights of their own here, and names are DNs",
    ),
    ("lists, 0 proxies: by another key", OTHER_KEY),
    ("lists, 1 proxies: by another key", OTHER_KEY),
    ("lists, 2 proxies: by another key", OTHER_KEY),
    ("lists, 0 proxies: none of the user's authority", MISSING),
    ("lists, 1 proxies: none of the user's authority", MISSING),
    ("lists, 2 proxies: none of the user's authority", MISSING),
    ("lists: by a key that is not for lists", "the key has signed it; its revocations count"),
    ("lists: unknown critical extension", "as if it were missing, with a warning"),
    ("lists: of others", "as if it were missing, with a warning"),
    ("ways: cross-signed, the other trusted", ONE_WAY),
    ("ways: cross-signed the other way, the first trusted", ONE_WAY),
    ("ways: roots of one name, and nothing says which", ONE_WAY),
];

const INDEPENDENT: &str = "OpenSSL leaves rights to the application; such a proxy has none of its holder's";
const RING: &str = "ring has no such signatures, and nobody in the field uses them";
const OTHER_KEY: &str =
    "a list that the authority has not signed is no list; anybody could lock out its users";
const MISSING: &str =
    "trust directories often lack some lists; OpenSSL tolerates that only where it looks at none";
const ONE_WAY: &str = "OpenSSL 3.0 follows the first certificate with the right name and no other";

#[test]
fn we_judge_as_openssl_does() {
    let all = cases();
    let names: BTreeSet<&str> = all.iter().map(|case| &case.name[..]).collect();
    assert_eq!(names.len(), all.len(), "two cases have the same name");
    assert!(all.len() >= 200, "{} cases", all.len());
    let (good, bad) = all.iter().partition::<Vec<_>, _>(|case| case.expected.is_ok());
    assert!(good.len() >= 60 && bad.len() >= 100, "{} good, {} bad", good.len(), bad.len());
    for (name, _) in EXCEPTIONS {
        assert!(names.contains(name), "{name} is no case");
    }

    let threads = 2;
    let mut failures: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let all = &all;
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    all.iter().skip(first).step_by(threads).filter_map(judge).collect::<Vec<_>>()
                })
            })
            .collect();
        for worker in workers {
            failures.extend(worker.join().unwrap());
        }
    });
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), all.len(), failures.join("\n"));
}

/// The fault of a case, if it has one.
fn judge(case: &Case) -> Option<String> {
    let name = &case.name;
    let ours = case.world.by_us();
    let is_expected = match (&ours, &case.expected) {
        (Ok(verified), Ok(())) => verified.dn() == case.dn,
        (Err(refusal), Err(words)) => refusal.message.contains(words),
        _ => false,
    };
    if !is_expected {
        return Some(format!(
            "{name}: we say {:?}, not {:?}",
            ours.map(|verified| verified.dn().to_owned()),
            case.expected
        ));
    }
    let dir = tempfile::TempDir::new().unwrap();
    let (theirs, said) = case.world.by_openssl(dir.path());
    let exception = EXCEPTIONS.iter().find(|(other, _)| other == name);
    match (ours.is_ok() == theirs, exception) {
        (true, None) | (false, Some(_)) => None,
        (true, Some(_)) => Some(format!("{name}: OpenSSL says the same, so it is no exception")),
        (false, None) => {
            Some(format!("{name}: we say {:?}, OpenSSL says {said}", ours.map(|ours| ours.dn().to_owned())))
        }
    }
}

#[test]
fn handshakes_are_signed_with_rsa_as_well() {
    use gridlane_auth::make::{Key, pem};
    use gridlane_auth::x509::signature::{TLS_SCHEMES, verify_tls};
    use ring::signature::*;

    let text = world::openssl(&["genrsa", "2048"], None);
    let spki = Key::from_pem(&text, world::random()).unwrap().public_key();
    let block = pem::decode(&text).unwrap().remove(0);
    let pair = RsaKeyPair::from_pkcs8(&block.der).unwrap();
    let message = b"what is signed";
    for (how, schemes, is_in_tls13) in [
        (&RSA_PSS_SHA256 as &dyn RsaEncoding, 0x0804, true),
        (&RSA_PSS_SHA384, 0x0805, true),
        (&RSA_PSS_SHA512, 0x0806, true),
        (&RSA_PKCS1_SHA256, 0x0401, false),
        (&RSA_PKCS1_SHA384, 0x0501, false),
        (&RSA_PKCS1_SHA512, 0x0601, false),
    ] {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(how, world::random(), message, &mut signature).unwrap();
        for scheme in TLS_SCHEMES {
            let judged = |is_tls13| verify_tls(&spki, scheme, is_tls13, message, &signature).is_ok();
            let is_right = scheme == schemes;
            assert_eq!((judged(false), judged(true)), (is_right, is_right && is_in_tls13), "{scheme:#06x}");
        }
    }
}
