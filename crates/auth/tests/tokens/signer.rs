//! Signs tokens. Keys are made when they are needed.

use std::process::Command;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use gridlane_auth::token::keys::{Algorithm, KeySet};

/// A signer of tokens.
pub(super) struct Signer {
    pub(super) algorithm: Algorithm,
    pub(super) id: String,
    key: Private,
}

enum Private {
    Rsa(Box<ring::rsa::KeyPair>),
    Ec(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// With a new key.
    pub(super) fn new(algorithm: Algorithm, id: &str) -> Signer {
        let random = SystemRandom::new();
        let elliptic = |how| {
            let document = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
            Private::Ec(EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random).unwrap())
        };
        let key = match algorithm {
            Algorithm::Es256 => elliptic(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => elliptic(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::EdDsa => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Private::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
            }
            _ => Private::Rsa(Box::new(rsa(2048))),
        };
        Signer { algorithm, id: id.to_owned(), key }
    }

    /// One with ES256 for all tests that are not about signatures.
    pub(super) fn shared() -> &'static Signer {
        static SHARED: LazyLock<Signer> = LazyLock::new(|| Signer::new(Algorithm::Es256, "shared"));
        &SHARED
    }

    /// A token with a header as it should be.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm.name(), "typ": "JWT", "kid": self.id}), claims)
    }

    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    /// A token of any texts.
    pub(super) fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.sign(self.algorithm, signed.as_bytes());
        format!("{signed}.{}", encoded(signature))
    }

    pub(super) fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Private::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Private::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Private::Rsa(key) => {
                let padding: &'static dyn signature::RsaEncoding = match algorithm {
                    Algorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// Its public key, as an issuer would publish it.
    pub(super) fn jwk(&self) -> Value {
        let mut jwk = match &self.key {
            Private::Ec(key) => {
                let (x, y) =
                    key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)})
            }
            Private::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key().as_ref())})
            }
            Private::Rsa(key) => {
                let parts = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encoded(parts.n), "e": encoded(parts.e)})
            }
        };
        jwk["kid"] = self.id.as_str().into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub(super) fn key_set(&self) -> KeySet {
        key_set(&[self.jwk()])
    }
}

pub(super) fn key_set(keys: &[Value]) -> KeySet {
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// ring makes no keys for RSA.
fn rsa(bits: u32) -> ring::rsa::KeyPair {
    // Some versions of OpenSSL write PKCS #8, others PKCS #1.
    let der = rsa_der(bits);
    ring::rsa::KeyPair::from_pkcs8(&der).or_else(|_| ring::rsa::KeyPair::from_der(&der)).unwrap()
}

fn rsa_der(bits: u32) -> Vec<u8> {
    let bits = format!("rsa_keygen_bits:{bits}");
    let made = Command::new("openssl")
        .args(["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", &bits, "-outform", "DER"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

pub(super) fn decoded(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}
