//! Chains of certificates, and the files of a trust directory.

use std::sync::LazyLock;

use gridlane_auth::x509::{
    Certificate, Name, OutdatedLists, Purpose, Trust, Verified, signature, verify, verify_for,
};
use gridlane_auth::{Cause, Refusal};
use gridlane_core::limits;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

const NOW_S: i64 = 1_800_000_000;

/// The mark for a key in seeds: all have the same one, which is another in every run. No verdict depends on it.
const NO_KEY: [u8; 64] = [b'K'; 64];

static SIGNER: LazyLock<EcdsaKeyPair> = LazyLock::new(|| {
    let (how, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    EcdsaKeyPair::generate_pkcs8(how, &random)
        .and_then(|document| Ok(EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random)?))
        .unwrap_or_else(|cause| panic!("no key: {cause}"))
});

/// The seeds of chains that are good as they stand: what lists and policies are tried with.
static GOOD: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let seeds = crate::target("certificates").all_seeds().inputs;
    seeds.iter().map(|seed| chain(seed)).filter(|chain| judged(chain).is_ok()).collect()
});

/// The elements of DER one behind the other: leaf first, the last one is the root. What of them is signed here is what
/// stands in certificates between the heads: whatever they say, their signatures are right.
pub(crate) fn certificates(data: &[u8]) {
    let _ = signature::Algorithm::from_der(data);
    let _ = signature::Key::from_spki(data);
    if let Ok(certificate) = Certificate::from_der(data) {
        check_certificate(&certificate);
    }
    check_name(data);
    let chain = chain(data);
    if let Some(first) = chain.first() {
        assert!(verify(&[first], &Trust::default(), NOW_S).is_err(), "nobody is trusted, and somebody is");
    }
    for der in &chain {
        if let Ok(certificate) = Certificate::from_der(der) {
            check_certificate(&certificate);
        }
    }
    let Ok(verified) = judged(&chain) else { return };
    check(&verified, &chain);
    // The wrong key.
    let mut changed = chain.clone();
    if let Some(byte) = changed[0].last_mut() {
        *byte ^= 1;
    }
    assert!(judged(&changed).is_err(), "a changed signature is believed");
}

/// A file of a trust directory: its name in the first line, then what is in it. Where the name begins with `signed`, it
/// is a list that the authority of the seeds has yet to sign.
pub(crate) fn trust_directory(data: &[u8]) {
    let line = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, contents) = (&data[..line], data.get(line + 1..).unwrap_or_default());
    let name = String::from_utf8_lossy(name).into_owned();
    let contents = if name.starts_with("signed") { signed(contents) } else { contents.to_vec() };
    assert!(!GOOD.is_empty(), "no seed is good");
    for chain in &*GOOD {
        let Some(root) = chain.last() else { continue };
        let files = [("a.0".to_owned(), root.clone()), (name.clone(), contents.clone())];
        let (trust, warnings) = Trust::read(files);
        for warning in warnings {
            assert!(warning.len() < name.len() + 1000, "{warning:?}");
        }
        assert!(trust.authorities_count() >= 1);
        let _ = (trust.earliest_expiry_s(), trust.earliest_next_update_s());
        let judged = verify(chain, &trust, NOW_S);
        let trust = trust.with_outdated_lists(OutdatedLists::Use);
        let tolerant = verify(chain, &trust, NOW_S);
        assert!(judged.is_err() || tolerant.is_ok());
        if let Err(refusal) = judged {
            // Nothing in a directory can be wrong with these chains but that they are called back, or are not allowed.
            assert!(matches!(
                refusal.cause,
                Cause::Revoked | Cause::Expired | Cause::NotYetValid | Cause::Untrusted
            ));
        }
    }
}

fn judged(chain: &[Vec<u8>]) -> Result<Verified, Refusal> {
    let Some(root) = chain.last() else { return Err(Refusal::new(Cause::Malformed, "nothing")) };
    let (trust, _) = Trust::read([("a.0".to_owned(), root.clone())]);
    let any = verify_for(Purpose::Any, chain, &trust, NOW_S);
    let judged = verify(chain, &trust, NOW_S);
    assert!(judged.is_err() || any.is_ok(), "what a client may, anybody may");
    if let Err(refusal) = &judged {
        assert!(!refusal.message.is_empty() && refusal.message.len() < 1500, "{refusal:?}");
        assert!(!refusal.message.contains(char::is_control), "{refusal:?}");
    }
    judged
}

/// Signs each element.
fn chain(data: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = data;
    let mut chain = Vec::new();
    while let Some(len) = element_len(rest).filter(|_| chain.len() <= limits::CHAIN_CERTIFICATES_MAX) {
        let (element, behind) = rest.split_at(len);
        chain.push(signed(element));
        rest = behind;
    }
    chain
}

/// `SEQUENCE { element, ecdsa-with-SHA256, BIT STRING }`.
fn signed(element: &[u8]) -> Vec<u8> {
    const ALGORITHM: [u8; 12] = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let mut element = element.to_vec();
    if let Some(at) = element.windows(NO_KEY.len()).position(|bytes| bytes == NO_KEY) {
        element[at..at + NO_KEY.len()].copy_from_slice(&SIGNER.public_key().as_ref()[1..]);
    }
    let signature = match SIGNER.sign(&SystemRandom::new(), &element) {
        Ok(signature) => [&[0], signature.as_ref()].concat(),
        Err(cause) => panic!("not signed: {cause}"),
    };
    let head = |tag: u8, len: usize| {
        let bytes = (len as u32).to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        if len < 0x80 { vec![tag, len as u8] } else { [&[tag, 0x80 | bytes.len() as u8], bytes].concat() }
    };
    let inner = [&element[..], &ALGORITHM, &head(3, signature.len()), &signature].concat();
    [head(0x30, inner.len()), inner].concat()
}

/// Bytes of the element that these begin with.
fn element_len(bytes: &[u8]) -> Option<usize> {
    let (head, len) = match *bytes {
        [_, len @ 0..=0x7f, ..] => (2, usize::from(len)),
        [_, 0x81, len, ..] => (3, usize::from(len)),
        [_, 0x82, high, low, ..] => (4, usize::from(high) << 8 | usize::from(low)),
        _ => return None,
    };
    Some(head + len).filter(|len| *len <= bytes.len())
}

fn check(verified: &Verified, chain: &[Vec<u8>]) {
    let layers = verified.layers();
    assert_eq!(verified.leaf().der(), chain[0]);
    assert_eq!((verified.proxy_depth(), verified.is_proxy()), (layers.len() - 1, layers.len() > 1));
    assert!(verified.is_proxy() || !verified.is_limited());
    assert!(!verified.end_entity().is_proxy());
    assert!(verified.dn().starts_with('/') && verified.dn().bytes().all(|byte| matches!(byte, b' '..=b'~')));
    assert_eq!(verified.dn(), verified.end_entity().subject().to_string());
    assert_eq!(verified.issuer_dn(), verified.end_entity().issuer().to_string());
    assert!(verified.expires_s() > NOW_S);
    for layer in layers {
        assert!(layer.not_before_s() <= NOW_S && verified.expires_s() <= layer.not_after_s());
        assert!(layer.serial().len() <= limits::CERTIFICATE_SERIAL_BYTES_MAX + 1);
    }
    for pair in layers.windows(2) {
        assert!(pair[0].is_proxy() && pair[0].subject().is_proxy_of(pair[1].subject()));
    }
}

fn check_certificate(certificate: &Certificate) {
    for name in [certificate.subject(), certificate.issuer()] {
        check_name(name.der());
    }
    for extension in certificate.extensions() {
        assert_eq!(certificate.extension(&extension.oid), Some(&extension.value[..]));
    }
}

/// It is printable in both forms, the first as rules compare it, and its canonical form is one: names that mean the same have the same.
fn check_name(der: &[u8]) {
    let Some(name) = Name::from_der(der) else { return };
    assert_eq!(name.der(), der);
    for text in [name.to_string(), name.rfc2253()] {
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
        assert_eq!(text.is_empty(), name.is_empty(), "{text:?}");
    }
    assert_eq!(gridlane_auth::dn::normal(&name.to_string()), name.to_string());
    assert!(!name.is_proxy_of(&name));
}
