//! An issuer of tokens. The tests of `front` have it as well.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_core::{Error, ErrorKind};
use gridlane_front::KeySource;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

pub(crate) const ISSUER: &str = "https://iam.example/";
pub(crate) const SERVER: &str = "https://storage.example";

pub(crate) fn now_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// An issuer's key and its documents, which may be out of reach.
pub(crate) struct Iam {
    pair: EcdsaKeyPair,
    pub(crate) is_gone: AtomicBool,
}

impl Iam {
    pub(crate) fn new() -> Arc<Iam> {
        let random = SystemRandom::new();
        let how = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(how, der.as_ref(), &random).unwrap();
        Arc::new(Iam { pair, is_gone: AtomicBool::new(false) })
    }

    pub(crate) fn token(&self, scope: &str, ends_s: i64) -> String {
        self.token_for(SERVER, scope, ends_s)
    }

    pub(crate) fn token_for(&self, audience: &str, scope: &str, ends_s: i64) -> String {
        let claims = json!({
            "iss": ISSUER, "sub": "b7a4", "aud": audience, "exp": now_s() + ends_s, "iat": now_s() - 4000,
            "nbf": now_s() - 4000, "jti": "t1", "wlcg.ver": "1.0", "scope": scope,
        });
        let encoded = |text: String| URL_SAFE_NO_PAD.encode(text);
        let header = encoded(json!({"alg": "ES256", "kid": "1"}).to_string());
        let signed = format!("{header}.{}", encoded(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

impl KeySource for Iam {
    fn fetch<'a>(
        &'a self,
        url: &'a str,
    ) -> Pin<Box<dyn Future<Output = gridlane_core::Result<Vec<u8>>> + Send + 'a>> {
        Box::pin(async move {
            if self.is_gone.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Network, "the issuer is out of reach"));
            }
            let point = &self.pair.public_key().as_ref()[1..];
            let encoded = |bytes| URL_SAFE_NO_PAD.encode(bytes);
            let key = json!({
                "kty": "EC", "crv": "P-256", "kid": "1", "x": encoded(&point[..32]), "y": encoded(&point[32..]),
            });
            let document = match url.ends_with("/jwk") {
                true => json!({ "keys": [key] }),
                false => json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}jwk")}),
            };
            Ok(document.to_string().into_bytes())
        })
    }
}
