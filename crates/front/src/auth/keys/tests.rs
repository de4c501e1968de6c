use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::Pin;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_auth::Grants;
use gridlane_core::{Error, ErrorKind};
use gridlane_dav::ResourcePath;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;

const ISSUER: &str = "https://iam.example/";
const DESCRIPTION: &str = "https://iam.example/.well-known/openid-configuration";
const OTHER_DESCRIPTION: &str = "https://iam.example/.well-known/oauth-authorization-server";
const JWKS: &str = "https://iam.example/jwk";
const SERVER: &str = "https://storage.example";
const UNKNOWN_S: i64 = limits::ISSUER_KEYS_UNKNOWN_WAIT.as_secs() as i64;

/// A key source of documents that counts what is fetched. Each answer takes a permit.
struct Web {
    documents: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
    answers: Semaphore,
}

impl Web {
    fn new() -> Arc<Web> {
        let answers = Semaphore::new(1000);
        Arc::new(Web { documents: Mutex::default(), asked: Mutex::default(), answers })
    }

    fn has(&self, url: &str, document: &Value) {
        self.documents.lock().unwrap().insert(url.to_owned(), document.to_string().into_bytes());
    }

    fn publishes(&self, signers: &[&Signer]) {
        self.has(DESCRIPTION, &json!({"issuer": ISSUER, "jwks_uri": JWKS}));
        self.has(JWKS, &json!({"keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>()}));
    }

    fn is_gone(&self) {
        self.documents.lock().unwrap().clear();
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl KeySource for Web {
    fn fetch<'a>(
        &'a self,
        url: &'a str,
    ) -> Pin<Box<dyn Future<Output = gridlane_core::Result<Vec<u8>>> + Send + 'a>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(url.to_owned());
            self.answers.acquire().await.unwrap().forget();
            let found = self.documents.lock().unwrap().get(url).cloned();
            found.ok_or_else(|| Error::new(ErrorKind::NotFound, "404 Not Found"))
        })
    }
}

struct Signer {
    id: &'static str,
    key: EcdsaKeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Signer {
        let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        Signer { id, key: EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random).unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = &self.key.public_key().as_ref()[1..];
        let encoded = |bytes| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": encoded(&point[..32]), "y": encoded(&point[32..])})
    }

    fn token(&self, name: &str) -> String {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let claims = json!({
            "iss": ISSUER, "sub": name, "aud": SERVER, "exp": now_s() + 3600, "iat": now_s(), "jti": name, "wlcg.ver": "1.0",
        });
        let signed = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encoded(signature.as_ref()))
    }
}

fn settings(web: &Arc<Web>) -> AuthSettings {
    let issuer = Issuer {
        url: ISSUER.to_owned(),
        base: ResourcePath::root(),
        may: Grants::ADMIN,
        vo: None,
        audiences: Vec::new(),
        clock_skew_s: 60,
    };
    let source: Arc<dyn KeySource> = Arc::<Web>::clone(web);
    AuthSettings {
        issuers: vec![issuer],
        audiences: vec![SERVER.to_owned()],
        key_source: Some(source),
        ..AuthSettings::default()
    }
}

fn keys(settings: &AuthSettings) -> Arc<Keys> {
    let keys = Arc::new(Keys::default());
    keys.configure(settings, &AccessLog::off());
    keys
}

async fn cause(keys: &Arc<Keys>, token: &str, now_s: i64) -> Option<Cause> {
    keys.verify(token, now_s).await.err().map(|refusal| refusal.cause)
}

#[tokio::test]
async fn keys_are_fetched_when_a_token_needs_them() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    let keys = keys(&settings(&web));
    let (token, now_s) = (signer.token("ada"), now_s());
    assert!(keys.seen(&token, now_s).is_none());
    assert_eq!(keys.verify(&token, now_s).await.unwrap().name(), "ada");
    assert_eq!(web.asked(), [DESCRIPTION, JWKS]);
    assert_eq!(keys.seen(&token, now_s).unwrap().name(), "ada");
    assert_eq!(cause(&keys, &signer.token("eve"), now_s).await, None);
    assert_eq!(cause(&keys, "a.b.c", now_s).await, Some(Cause::Malformed));
    assert!(web.asked().is_empty() && keys.fetches.get() == 1);
}

#[tokio::test]
async fn an_issuer_that_is_not_trusted_is_not_fetched_from() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    let settings = AuthSettings { issuers: Vec::new(), ..settings(&web) };
    assert_eq!(cause(&keys(&settings), &signer.token("ada"), now_s()).await, Some(Cause::Untrusted));
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn tokens_that_come_together_wait_for_one_fetch() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    web.answers.forget_permits(1000);
    let keys = keys(&settings(&web));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (keys, token) = (Arc::clone(&keys), signer.token(&number.to_string()));
            tokio::spawn(async move { keys.verify(&token, now_s()).await })
        })
        .collect();
    while web.asked.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // One of them gives up; the fetch goes on.
    tasks[0].abort();
    web.answers.add_permits(1000);
    let mut good = 0;
    for task in tasks {
        good += usize::from(task.await.is_ok_and(|outcome| outcome.is_ok()));
    }
    assert!(good >= 19);
    assert_eq!(web.asked(), [DESCRIPTION, JWKS]);
}

#[tokio::test]
async fn keys_are_exchanged() {
    let (web, first, second) = (Web::new(), Signer::new("1"), Signer::new("2"));
    web.publishes(&[&first]);
    let keys = keys(&settings(&web));
    let now_s = now_s();
    let (old, new) = (first.token("old"), second.token("new"));
    assert_eq!(cause(&keys, &old, now_s).await, None);
    web.publishes(&[&second]);
    // Just asked; then once more, whatever the number of tokens.
    assert_eq!(cause(&keys, &new, now_s + 1).await, Some(Cause::UnknownKey));
    assert_eq!(web.asked().len(), 2);
    assert_eq!(cause(&keys, &new, now_s + UNKNOWN_S).await, None);
    assert_eq!(web.asked().len(), 2);
    // The key that is gone verifies nothing, also not what it verified before.
    assert!(keys.seen(&old, now_s).is_none());
    for _ in 0..5 {
        assert_eq!(cause(&keys, &old, now_s + UNKNOWN_S).await, Some(Cause::UnknownKey));
    }
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn an_issuer_that_does_not_answer() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    let keys = keys(&settings(&web));
    let (token, now_s) = (signer.token("ada"), now_s());
    assert_eq!(cause(&keys, &token, now_s).await, Some(Cause::Unavailable));
    assert_eq!(web.asked(), [DESCRIPTION, OTHER_DESCRIPTION]);
    assert_eq!(cause(&keys, &token, now_s + 1).await, Some(Cause::Unavailable));
    assert!(web.asked().is_empty(), "not again at once");
    assert_eq!((keys.fetches.get(), keys.failures.get()), (1, 1));
    // It describes itself at the other place; then wrongly.
    web.has(OTHER_DESCRIPTION, &json!({"issuer": ISSUER, "jwks_uri": JWKS}));
    web.has(JWKS, &json!({"keys": [signer.jwk()]}));
    assert_eq!(cause(&keys, &token, now_s + UNKNOWN_S).await, None);
    web.has(OTHER_DESCRIPTION, &json!({"issuer": "https://evil.example/", "jwks_uri": JWKS}));
    let other = Signer::new("2").token("eve");
    assert_eq!(cause(&keys, &other, now_s + 2 * UNKNOWN_S).await, Some(Cause::UnknownKey));
    assert_eq!(keys.failures.get(), 2);
    assert_eq!(cause(&keys, &signer.token("bob"), now_s).await, None, "what is known stays");
}

#[tokio::test]
async fn a_restart_without_the_issuer() {
    let directory = tempfile::tempdir().unwrap();
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    let settings = AuthSettings { keys_directory: Some(directory.path().join("keys")), ..settings(&web) };
    let before = keys(&settings);
    let now_s = now_s();
    assert_eq!(cause(&before, &signer.token("ada"), now_s).await, None);
    let files: Vec<_> =
        fs::read_dir(directory.path().join("keys")).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    web.is_gone();
    web.asked();
    let after = keys(&settings);
    assert_eq!(cause(&after, &signer.token("eve"), now_s).await, None);
    assert!(web.asked().is_empty());
    // What is no longer what was written is as good as nothing.
    fs::write(&files[0], b"{").unwrap();
    assert_eq!(cause(&keys(&settings), &signer.token("eve"), now_s).await, Some(Cause::Unavailable));
    // A directory that cannot be made: keys are in memory, and that is said.
    web.publishes(&[&signer]);
    let nowhere = AuthSettings { keys_directory: Some(files[0].join("x")), ..settings.clone() };
    assert_eq!(cause(&keys(&nowhere), &signer.token("eve"), now_s).await, None);
}

#[tokio::test]
async fn another_generation_of_settings() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    let first = settings(&web);
    let keys = keys(&first);
    let (token, now_s) = (signer.token("ada"), now_s());
    assert_eq!(cause(&keys, &token, now_s).await, None);
    keys.configure(&first, &AccessLog::off());
    assert!(keys.seen(&token, now_s).is_some(), "nothing has changed");
    let elsewhere = AuthSettings { audiences: vec!["https://other.example".to_owned()], ..first.clone() };
    keys.configure(&elsewhere, &AccessLog::off());
    assert!(keys.seen(&token, now_s).is_none());
    assert_eq!(cause(&keys, &token, now_s).await, Some(Cause::WrongAudience));
    keys.configure(&AuthSettings::default(), &AccessLog::off());
    assert_eq!(cause(&keys, &token, now_s).await, Some(Cause::Untrusted));
    web.asked();
    keys.configure(&first, &AccessLog::off());
    assert_eq!(cause(&keys, &token, now_s).await, None);
    assert_eq!(web.asked().len(), 2, "whoever left the list has no keys");
}

#[tokio::test]
async fn keys_are_there_before_they_are_needed() {
    let (web, signer) = (Web::new(), Signer::new("1"));
    web.publishes(&[&signer]);
    let keys = keys(&settings(&web));
    let refreshing = {
        let keys = Arc::clone(&keys);
        tokio::spawn(async move { keys.refresh().await })
    };
    while keys.state().cache.keys(ISSUER, now_s()).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(web.asked(), [DESCRIPTION, JWKS]);
    assert_eq!(cause(&keys, &signer.token("ada"), now_s()).await, None);
    assert!(web.asked().is_empty());
    // Other settings alone fetch nothing: they change with every list of revoked credentials.
    let other = Signer::new("2");
    web.publishes(&[&other]);
    keys.configure(&settings(&web), &AccessLog::off());
    assert!(keys.begin(ISSUER, Reason::Age, now_s()).is_none());
    // An operator may know that a key was revoked.
    keys.outdate();
    while keys.seen(&signer.token("ada"), now_s()).is_some() || web.asked.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    while keys.state().running.contains_key(ISSUER) {
        tokio::task::yield_now().await;
    }
    refreshing.abort();
    assert_eq!(cause(&keys, &other.token("ada"), now_s()).await, None);
    assert_eq!(cause(&keys, &signer.token("ada"), now_s()).await, Some(Cause::UnknownKey));
}

/// That it fails is told once, and that it no longer does.
#[tokio::test]
async fn failures_of_fetches_are_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let log = AccessLog::to_file(&file).unwrap();
    let (web, signer) = (Web::new(), Signer::new("1"));
    let keys = Arc::new(Keys::default());
    keys.configure(&settings(&web), &log);
    let (token, now_s) = (signer.token("ada"), now_s());
    for round in 0..4 {
        assert_eq!(cause(&keys, &token, now_s + round * UNKNOWN_S).await, Some(Cause::Unavailable));
    }
    web.publishes(&[&signer]);
    assert_eq!(cause(&keys, &token, now_s + 4 * UNKNOWN_S).await, None);
    assert!(log.finish(std::time::Duration::from_secs(30)));
    let told = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].contains("not fetched") && lines[0].contains(DESCRIPTION) && lines[1].contains("again"));
    assert!(!told.contains(&token[..30]));
}
