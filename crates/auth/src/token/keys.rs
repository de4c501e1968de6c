//! Keys of issuers: JSON Web Key Sets (RFC 7517, RFC 7518 section 6, RFC 8037), and what they verify.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_core::limits;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use serde_json::{Map, Value, json};

use super::json;
use crate::refusal::{Cause, Refusal};

/// Bytes of an RSA modulus: 2048 to 8192 bits. What is shorter proves too little.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Bytes of an RSA exponent: real ones have 3.
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// Algorithms of signatures (RFC 7518, 3.1; RFC 8037). Those that prove nothing to a holder of the public key
/// (`none`, `HS256`) have no name here, so that it cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
    ];

    /// Its name in `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    /// The one of this name. Names are compared as they are written.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A public key of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if the issuer says so.
    only: Option<Algorithm>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    /// Without zeros in front.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed points, as SEC 1 has them.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    /// `kid`.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// True if it is for this algorithm: of its kind, and none that the issuer excludes.
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let is_kind = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Material::P256(_) => algorithm == Es256,
            Material::P384(_) => algorithm == Es384,
            Material::Ed25519(_) => algorithm == EdDsa,
        };
        is_kind && self.only.is_none_or(|only| only == algorithm)
    }

    /// True if the signature over `message` was made with it. Never with an algorithm that it is not for.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let with = |how: &'static dyn VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(how, point).verify(message, signature).is_ok()
        };
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let key = signature::RsaPublicKeyComponents { n: modulus, e: exponent };
                let how = match algorithm {
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA256,
                };
                key.verify(how, message, signature).is_ok()
            }
            Material::P256(point) => with(&signature::ECDSA_P256_SHA256_FIXED, point),
            Material::P384(point) => with(&signature::ECDSA_P384_SHA384_FIXED, point),
            Material::Ed25519(point) => with(&signature::ED25519, point),
        }
    }

    /// `None` for what is no key for signatures that we can verify.
    fn read(jwk: &Value) -> Option<Key> {
        let Value::Object(jwk) = jwk else { return None };
        let text = |name: &str| match jwk.get(name) {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(text.as_str())),
            Some(_) => None,
        };
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)??).ok();
        if text("use")?.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        if let Some(operations) = jwk.get("key_ops")
            && !operations.as_array()?.iter().any(|operation| operation == "verify")
        {
            return None;
        }
        let id = text("kid")?.map(str::to_owned);
        if id.as_ref().is_some_and(|id| id.len() > limits::TOKEN_NAME_BYTES_MAX) {
            return None;
        }
        let only = match text("alg")? {
            None => None,
            Some(name) => Some(Algorithm::named(name)?),
        };
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == length && y.len() == length).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
        };
        let material = match (text("kty")??, text("crv")?) {
            ("RSA", _) => {
                let without_zeros = |mut bytes: Vec<u8>| {
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    bytes.drain(..zeros);
                    bytes
                };
                let (modulus, exponent) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
                let is_usable = RSA_BYTES.contains(&modulus.len())
                    && (1..=RSA_EXPONENT_BYTES_MAX).contains(&exponent.len());
                is_usable.then_some(Material::Rsa { modulus, exponent })?
            }
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let key = Key { id, only, material };
        Algorithm::ALL.into_iter().any(|algorithm| key.fits(algorithm)).then_some(key)
    }

    fn to_json(&self) -> Value {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let curve = |name: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at((point.len() - 1) / 2);
            json!({"kty": "EC", "crv": name, "x": encoded(x), "y": encoded(y)})
        };
        let mut jwk = match &self.material {
            Material::Rsa { modulus, exponent } => {
                json!({"kty": "RSA", "n": encoded(modulus), "e": encoded(exponent)})
            }
            Material::P256(point) => curve("P-256", point),
            Material::P384(point) => curve("P-384", point),
            Material::Ed25519(point) => json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(point)}),
        };
        if let Some(id) = &self.id {
            jwk["kid"] = id.as_str().into();
        }
        if let Some(only) = self.only {
            jwk["alg"] = only.name().into();
        }
        jwk
    }
}

/// The keys of one issuer that can verify something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<Key>,
}

impl KeySet {
    /// Reads a JSON Web Key Set (RFC 7517, 5). Keys that are not for signatures, of a kind that is not known, or wrong in
    /// themselves are left out, as there: the others are of use without them.
    pub fn read(bytes: &[u8]) -> Result<KeySet, Refusal> {
        if bytes.len() > limits::ISSUER_DOCUMENT_BYTES_MAX {
            return Err(Refusal::new(Cause::Unacceptable, "the issuer's key set is too long"));
        }
        KeySet::from_json(&json::object(bytes, "the issuer's key set")?)
    }

    pub(super) fn from_json(document: &Map<String, Value>) -> Result<KeySet, Refusal> {
        let Some(Value::Array(keys)) = document.get("keys") else {
            return Err(Refusal::new(Cause::Malformed, "the issuer's key set has no \"keys\""));
        };
        if keys.len() > limits::ISSUER_KEYS_MAX {
            let message = format!("the issuer has more than {} keys", limits::ISSUER_KEYS_MAX);
            return Err(Refusal::new(Cause::Unacceptable, message));
        }
        Ok(KeySet { keys: keys.iter().filter_map(Key::read).collect() })
    }

    /// The keys that [`KeySet::read`] has kept.
    pub fn to_json(&self) -> Value {
        json!({"keys": self.keys.iter().map(Key::to_json).collect::<Vec<_>>()})
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The key that a token names, or that is meant when it names none: the issuer's only one.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, Refusal> {
        let unfit = || {
            let message = "the token's algorithm is not the one of the key that it names";
            Refusal::new(Cause::Unacceptable, message)
        };
        let Some(id) = id else {
            return match self.keys.as_slice() {
                [only] => Some(only).filter(|key| key.fits(algorithm)).ok_or_else(unfit),
                [] => Err(Refusal::new(Cause::UnknownKey, "the token's issuer has no keys")),
                _ => {
                    let message = "the token does not say which key it was signed with (kid), and its issuer has several";
                    Err(Refusal::new(Cause::Unacceptable, message))
                }
            };
        };
        let mut named = self.keys.iter().filter(|key| key.id() == Some(id)).peekable();
        if named.peek().is_none() {
            return Err(Refusal::new(Cause::UnknownKey, "the token's issuer has no such key as it names"));
        }
        named.find(|key| key.fits(algorithm)).ok_or_else(unfit)
    }
}
