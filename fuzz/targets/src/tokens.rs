//! Tokens, and what their issuers publish.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_auth::identity::TokenIdentity;
use gridlane_auth::oidc;
use gridlane_auth::token::{self, Issuer, KeyCache, KeySet, discovery};
use gridlane_auth::{Grants, Identity, Operation, Refusal};
use gridlane_core::{Secret, limits};
use gridlane_dav::ResourcePath;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

use crate::names::check_path;

const ISSUER: &str = "https://iam.example/vo/";
const SERVER: &str = "https://storage.example:1094";
const NOW_S: i64 = 1_800_000_000;

/// A key of the issuer, whose name is `key`. It is another one in every run; what tokens say does not depend on it.
static SIGNER: LazyLock<(EcdsaKeyPair, Arc<KeySet>)> = LazyLock::new(|| {
    let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let key = EcdsaKeyPair::generate_pkcs8(how, &random)
        .and_then(|document| Ok(EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random)?))
        .unwrap_or_else(|cause| panic!("no key: {cause}"));
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let (x, y) = (encoded(x), encoded(y));
    let set = format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"key","x":"{x}","y":"{y}"}}]}}"#);
    let set = KeySet::read(set.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"));
    (key, Arc::new(set))
});

static ISSUERS: LazyLock<[Issuer; 1]> = LazyLock::new(|| {
    let base = ResourcePath::parse("/data/vo").unwrap_or_default();
    let may = Grants::READ.with(Grants::LIST).with(Grants::WRITE);
    [Issuer { url: ISSUER.to_owned(), base, may, vo: None, audiences: Vec::new(), clock_skew_s: 60 }]
});

fn verified(token: &str) -> Result<TokenIdentity, Refusal> {
    let keys = |_: &Issuer| Some(Arc::clone(&SIGNER.1));
    token::verify(token, &*ISSUERS, keys, &[SERVER.to_owned()], NOW_S)
}

/// A token as a text without a signature; and, signed as it should be, a header in the first line and claims in the
/// others.
pub(crate) fn token(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        let refusal =
            verified(text).err().unwrap_or_else(|| panic!("a token that nobody has signed is believed"));
        assert!(!refusal.message.is_empty() && refusal.message.len() < 1000, "{refusal}");
        let _ = token::looks_like_one(text);
    }
    let line = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (header, claims) = (&data[..line], data.get(line + 1..).unwrap_or_default());
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = match SIGNER.0.sign(&SystemRandom::new(), signed.as_bytes()) {
        Ok(signature) => URL_SAFE_NO_PAD.encode(signature),
        Err(cause) => panic!("not signed: {cause}"),
    };
    let whole = format!("{signed}.{signature}");
    assert!(verified(&format!("{signed}.{}", "A".repeat(signature.len()))).is_err(), "nobody has signed it");
    let Ok(identity) = verified(&whole) else { return };
    check(&identity);
    assert!(whole.len() <= limits::TOKEN_BYTES_MAX && token::looks_like_one(&whole));
    assert_eq!(verified(&whole).as_ref(), Ok(&identity));
    for other in [&whole[..whole.len() - 1], &whole[1..], &format!("{whole}A"), &format!("{signed}.")] {
        assert!(verified(other).is_err(), "a changed token is believed");
    }
}

fn check(identity: &TokenIdentity) {
    assert_eq!(identity.issuer, ISSUER);
    assert!(identity.expires_s > NOW_S - 100);
    let is_printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    assert!(is_printable(&identity.subject) && identity.id.as_deref().is_none_or(is_printable));
    assert!(
        identity.scopes.len() <= limits::TOKEN_SCOPES_MAX
            && identity.scopes.iter().all(|it| is_printable(it))
    );
    assert!(identity.is_capability || identity.capabilities.is_empty());
    for able in &identity.capabilities {
        check_path(&able.under);
        let mut names = able.under.names();
        assert!(names.next() == Some(b"data") && names.next() == Some(b"vo"), "{} leads out", able.under);
        assert!(!able.may.is_empty());
        for operation in [Operation::Delete, Operation::Rename, Operation::Stage, Operation::Admin] {
            assert!(!able.may.includes(operation), "more than the issuer may");
        }
    }
    let identity = Identity::Token(identity.clone());
    let text = serde_json::to_string(&identity).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Identity>(&text).ok(), Some(identity), "{text}");
}

/// An issuer's documents: its keys, its description, and the file that keeps them; and its answers about logins.
pub(crate) fn issuer_documents(data: &[u8]) {
    login_answers(data);
    if let Ok(keys) = KeySet::read(data) {
        assert!(keys.keys().len() <= limits::ISSUER_KEYS_MAX);
        let again = KeySet::read(keys.to_json().to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&keys));
        for key in keys.keys() {
            for algorithm in token::keys::Algorithm::ALL {
                assert!(!key.verifies(algorithm, data, &data[..data.len().min(64)]));
            }
        }
        let mut cache = KeyCache::default();
        cache.set_issuers([ISSUER]);
        cache.succeed(ISSUER, keys.clone(), NOW_S);
        let stored = cache.stored(ISSUER).unwrap_or_default();
        let mut restored = KeyCache::default();
        restored.set_issuers([ISSUER]);
        assert_eq!(restored.restore(&stored, NOW_S), Ok(()));
        assert_eq!(restored.keys(ISSUER, NOW_S).as_deref(), Some(&keys));
    }
    let mut cache = KeyCache::default();
    cache.set_issuers([ISSUER]);
    if cache.restore(data, NOW_S).is_ok()
        && let Some(stored) = cache.stored(ISSUER)
    {
        let mut again = KeyCache::default();
        again.set_issuers([ISSUER]);
        assert_eq!(again.restore(&stored, NOW_S), Ok(()));
        assert_eq!(again.stored(ISSUER), Some(stored));
    }
    if let Ok(url) = discovery::read(data, ISSUER) {
        assert!(url.starts_with("https://") && url.bytes().all(|byte| byte.is_ascii_graphic()), "{url:?}");
    }
    if let Ok(text) = str::from_utf8(data)
        && let Ok(documents) = discovery::documents(text)
    {
        for url in documents {
            let read =
                gridlane_core::Url::parse_absolute(&url).unwrap_or_else(|error| panic!("{url}: {error:?}"));
            assert!(read.scheme() == gridlane_core::Scheme::Https && read.credentials().is_none(), "{url}");
        }
    }
}

/// Answers to a login: bounded, and without what the issuer was sent.
fn login_answers(data: &[u8]) {
    const SENT: &str = "the-refresh-token";
    let is_safe =
        |url: &gridlane_core::Url| url.scheme() == gridlane_core::Scheme::Https || url.scheme().is_http();
    let provider = match oidc::read_provider(data, ISSUER) {
        Ok(read) => {
            assert!(
                is_safe(&read.token) && read.device.iter().all(is_safe) && read.token.credentials().is_none()
            );
            read
        }
        Err(_) => {
            let plain = format!(r#"{{"issuer":"{ISSUER}","token_endpoint":"https://iam.example/token"}}"#);
            oidc::read_provider(plain.as_bytes(), ISSUER).unwrap_or_else(|refusal| panic!("{refusal}"))
        }
    };
    let client = oidc::Client { id: "gridlane".into(), secret: None };
    let call = oidc::token_call(&provider, &client, oidc::Grant::Refresh(&Secret::new(SENT)), None, None);
    for status in [200, 400, 500] {
        match oidc::read_tokens(status, data, &call, NOW_S) {
            Ok(Ok(tokens)) => {
                let text = tokens.access.expose();
                assert!(
                    text.len() <= limits::TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
                );
                assert!(tokens.lasts_s.is_none_or(|lasts_s| lasts_s <= limits::TOKEN_LIFETIME_MAX_S));
            }
            Ok(Err(words)) => {
                let words = words.to_string();
                assert!(
                    !words.contains(SENT) && words.chars().count() <= 2 * limits::ISSUER_WORDS_CHARS_MAX + 2
                );
            }
            Err(_) => {}
        }
        if let Ok(Ok(grant)) = oidc::read_device(status, data, &call) {
            assert!(is_safe(&grant.page) && grant.page_with_code.iter().all(is_safe));
            assert!(grant.lasts_s <= limits::DEVICE_WAIT_MAX_S && grant.interval_s >= 1);
        }
    }
}
