//! An issuer of tokens: keys that are made when they are needed and rotate, documents at an https server of its own, and
//! tokens that say anything.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_auth::make::{Key, pem};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use serde_json::{Value, json};

use super::client::{run, text};
use super::pki::{Pki, openssl};
use super::serve::Server;
use super::{Scratch, secrets};

/// Signs tokens, with ES256 or RS256.
pub(crate) struct Signer {
    pub(crate) id: String,
    key: Private,
    /// PKCS #8.
    der: Vec<u8>,
}

enum Private {
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<ring::rsa::KeyPair>),
}

impl Signer {
    /// A new key for ES256.
    pub(crate) fn es256(id: &str) -> Signer {
        let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let der = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap().as_ref().to_vec();
        let key = Private::Ec(Box::new(EcdsaKeyPair::from_pkcs8(how, &der, &random).unwrap()));
        Signer::remembered(id, key, der)
    }

    /// A new key for RS256. ring makes none.
    pub(crate) fn rs256(id: &str) -> Signer {
        let make = ["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
        let der = pem::decode(&run(openssl(&make)).ok().stdout).unwrap().remove(0).der;
        let key = Private::Rsa(Box::new(ring::rsa::KeyPair::from_pkcs8(&der).unwrap()));
        Signer::remembered(id, key, der)
    }

    fn remembered(id: &str, key: Private, der: Vec<u8>) -> Signer {
        let signer = Signer { id: id.to_owned(), key, der };
        secrets::remember_key(&signer.private_pem());
        signer
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self.key {
            Private::Ec(_) => "ES256",
            Private::Rsa(_) => "RS256",
        }
    }

    /// A token with a header as it should be.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "typ": "JWT", "kid": self.id}), claims)
    }

    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.key {
            Private::Ec(key) => key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Private::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        let token = format!("{signed}.{}", encoded(signature));
        secrets::remember(&token);
        token
    }

    /// The public key, as issuers publish it.
    pub(crate) fn jwk(&self) -> Value {
        match &self.key {
            Private::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y), "kid": self.id, "use": "sig", "alg": "ES256"})
            }
            Private::Rsa(key) => {
                let parts = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encoded(parts.n), "e": encoded(parts.e), "kid": self.id, "use": "sig", "alg": "RS256"})
            }
        }
    }

    /// The private key, for other people's programs.
    pub(crate) fn private_pem(&self) -> String {
        pem::encode(pem::PRIVATE_KEY, &self.der)
    }

    pub(crate) fn public_pem(&self) -> String {
        let key = Key::from_pkcs8(&self.der, &SystemRandom::new()).unwrap();
        pem::encode("PUBLIC KEY", &key.public_key())
    }
}

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The claims of a token of the WLCG profile, with other claims in place of these, or without those that are null.
pub(crate) fn wlcg(issuer: &str, audience: &str, changes: &Value) -> Value {
    let now_s = now_s();
    let claims = json!({
        "iss": issuer, "sub": "b7a4", "aud": audience, "exp": now_s + 3600, "iat": now_s, "nbf": now_s - 60,
        "jti": "1", "wlcg.ver": "1.0", "scope": "storage.read:/",
    });
    changed(claims, changes)
}

/// The same for SciTokens.
pub(crate) fn scitoken(issuer: &str, audience: &str, changes: &Value) -> Value {
    let now_s = now_s();
    let claims = json!({
        "iss": issuer, "sub": "b7a4", "aud": audience, "exp": now_s + 3600, "iat": now_s - 60, "nbf": now_s - 60,
        "jti": "1", "ver": "scitoken:2.0", "scope": "read:/",
    });
    changed(claims, changes)
}

fn changed(mut claims: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(key),
            value => claims.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    claims
}

/// Publishes keys at an https server on loopback, which a certificate authority of its own vouches for.
pub(crate) struct Issuer {
    scratch: Scratch,
    /// Serves for as long as it is here.
    _server: Server,
    _pki: Pki,
    /// `https://localhost:PORT/vo/`
    pub(crate) url: String,
    /// The authority, in PEM.
    pub(crate) ca: PathBuf,
}

impl Issuer {
    pub(crate) fn start(keys: &[&Signer]) -> Issuer {
        let (scratch, pki) = (Scratch::new(), Pki::new());
        let web = scratch.dir("web");
        let host = pki.credential("host");
        let server = Server::with(&web, &["--cert", text(&host.cert), "--key", text(&host.key)]);
        let ca = pki.credential("ca").cert;
        let port = server.url_over("https", "").rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
        let url = format!("https://localhost:{port}/vo/");
        let issuer = Issuer { scratch, _server: server, _pki: pki, url, ca };
        issuer.publish(keys);
        issuer
    }

    /// Has these keys from now on, and no others.
    pub(crate) fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<Value> = keys.iter().map(|signer| signer.jwk()).collect();
        let description = json!({"issuer": self.url, "jwks_uri": format!("{}jwk", self.url)});
        self.place("vo/jwk", &json!({ "keys": keys }));
        self.place("vo/.well-known/openid-configuration", &description);
    }

    /// Has this document at this path.
    pub(crate) fn place(&self, path: &str, document: &Value) {
        let file = self.scratch.join("web").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let new = file.with_extension("new");
        fs::write(&new, document.to_string()).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Has nothing any longer.
    pub(crate) fn is_gone(&self) {
        fs::remove_dir_all(self.scratch.join("web/vo")).unwrap();
    }
}
