//! Signatures, by the keys of certificates.

use ring::signature::{self as ring_signature, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::x509::AlgorithmIdentifier;

use super::der::{Der, dotted, tag, whole_bits};
use crate::refusal::{Cause, Refusal};

/// The digest of a message before it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Algorithms of signatures. MD5 and SHA-1 prove nothing, and are not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with the padding of PKCS #1 v1.5 (RFC 8017, 8.2).
    RsaPkcs1(Digest),
    /// RSASSA-PSS, with a salt as long as the digest (RFC 8017, 8.1).
    RsaPss(Digest),
    /// ECDSA, with the signature as DER.
    Ecdsa(Digest),
    /// Ed25519 (RFC 8032).
    Ed25519,
}

/// A public key of a kind that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// RSA.
    Rsa {
        /// `RSAPublicKey` as DER.
        key: &'a [u8],
        /// The length of the modulus.
        bits: usize,
    },
    /// On the curve P-256: an uncompressed point.
    P256(&'a [u8]),
    /// On the curve P-384: an uncompressed point.
    P384(&'a [u8]),
    /// Ed25519.
    Ed25519(&'a [u8]),
}

/// Bits of RSA that ring takes, and that Debian's OpenSSL asks for (security level 2).
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
const RSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12];
const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13];
const MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const CURVE_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const CURVE_P384: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x22];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const SHA384: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2];
const SHA512: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];

/// The `SignatureScheme`s of TLS (RFC 8446, 4.2.3) that [`verify_tls`] knows, the preferred ones first.
pub const TLS_SCHEMES: [u16; 9] = [0x0403, 0x0503, 0x0807, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601];

impl Algorithm {
    /// The algorithm that an `AlgorithmIdentifier` names, as DER; `None` if it proves nothing here.
    pub fn from_der(der: &[u8]) -> Option<Algorithm> {
        let mut outer = Der::new(der);
        let mut fields = outer.enter(tag::SEQUENCE)?;
        outer.end()?;
        let kind = fields.take(tag::OID)?;
        let parameters = if fields.is_empty() { None } else { Some(fields.any()?) };
        fields.end()?;
        Algorithm::known(kind, parameters)
    }

    /// The same, for one that is read already.
    pub fn of(identifier: &AlgorithmIdentifier<'_>) -> Option<Algorithm> {
        let parameters = match &identifier.parameters {
            None => None,
            Some(any) => {
                let constructed = if any.header.is_constructed() { 0x20 } else { 0 };
                let is_universal = any.class() == x509_parser::asn1_rs::Class::Universal;
                let number =
                    u8::try_from(any.tag().0).ok().filter(|number| is_universal && *number < 0x1f)?;
                Some((constructed | number, any.data))
            }
        };
        Algorithm::known(identifier.algorithm.as_bytes(), parameters)
    }

    fn known(kind: &[u8], parameters: Parameters<'_>) -> Option<Algorithm> {
        let is_null_or_absent = matches!(parameters, None | Some((tag::NULL, [])));
        match kind {
            RSA_SHA256 if is_null_or_absent => Some(Algorithm::RsaPkcs1(Digest::Sha256)),
            RSA_SHA384 if is_null_or_absent => Some(Algorithm::RsaPkcs1(Digest::Sha384)),
            RSA_SHA512 if is_null_or_absent => Some(Algorithm::RsaPkcs1(Digest::Sha512)),
            RSA_PSS => pss_digest(parameters).map(Algorithm::RsaPss),
            ECDSA_SHA256 if parameters.is_none() => Some(Algorithm::Ecdsa(Digest::Sha256)),
            ECDSA_SHA384 if parameters.is_none() => Some(Algorithm::Ecdsa(Digest::Sha384)),
            ED25519 if parameters.is_none() => Some(Algorithm::Ed25519),
            _ => None,
        }
    }
}

/// `RSASSA-PSS-params` (RFC 4055, 3.1): the same digest twice, and a salt as long as it.
fn pss_digest(parameters: Parameters<'_>) -> Option<Digest> {
    let (_, fields) = parameters.filter(|(found, _)| *found == tag::SEQUENCE)?;
    let mut fields = Der::new(fields);
    let digest = hash(fields.enter(tag::composed(0))?)?;
    let mut mask = fields.enter(tag::composed(1))?;
    let mut generator = mask.enter(tag::SEQUENCE)?;
    mask.end()?;
    let is_alike = generator.take(tag::OID)? == MGF1 && hash(generator)? == digest;
    let mut salt = fields.enter(tag::composed(2))?;
    let salt_bytes = salt.optional_number()??;
    salt.end()?;
    if let Some(trailer) = fields.optional(tag::composed(3))? {
        Some(()).filter(|()| trailer == [tag::INTEGER, 1, 1])?;
    }
    fields.end()?;
    let len = match digest {
        Digest::Sha256 => 32,
        Digest::Sha384 => 48,
        Digest::Sha512 => 64,
    };
    (is_alike && salt_bytes == len).then_some(digest)
}

fn hash(mut outer: Der<'_>) -> Option<Digest> {
    let mut fields = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let digest = match fields.take(tag::OID)? {
        SHA256 => Digest::Sha256,
        SHA384 => Digest::Sha384,
        SHA512 => Digest::Sha512,
        _ => return None,
    };
    fields.optional(tag::NULL)?;
    fields.end()?;
    Some(digest)
}

impl<'a> Key<'a> {
    /// Reads a `SubjectPublicKeyInfo` (RFC 5280, 4.1.2.7; RFC 3279, 5480, 8410).
    ///
    /// # Errors
    /// In words what it is, when it cannot be used: "an RSA key of 1024 bits; 2048 to 8192 are accepted".
    pub fn from_spki(spki: &'a [u8]) -> Result<Key<'a>, String> {
        let (kind, parameters, key) = read_spki(spki).ok_or("a public key that cannot be read")?;
        match kind {
            RSA_ENCRYPTION => {
                let bits = rsa_bits(key).ok_or("an RSA key that cannot be read")?;
                match RSA_BITS.contains(&bits) {
                    true => Ok(Key::Rsa { key, bits }),
                    false => Err(format!("an RSA key of {bits} bits; 2048 to 8192 are accepted")),
                }
            }
            EC_PUBLIC_KEY => match (parameters, key) {
                (Some((tag::OID, CURVE_P256)), [4, ..]) if key.len() == 65 => Ok(Key::P256(key)),
                (Some((tag::OID, CURVE_P384)), [4, ..]) if key.len() == 97 => Ok(Key::P384(key)),
                (Some((tag::OID, CURVE_P256 | CURVE_P384)), _) => {
                    Err("a point that is not written in full".to_owned())
                }
                _ => Err("a key on an elliptic curve other than P-256 and P-384".to_owned()),
            },
            ED25519 if parameters.is_none() && key.len() == 32 => Ok(Key::Ed25519(key)),
            _ => {
                let kind = dotted(kind).unwrap_or_default();
                Err(format!("a key of the kind {kind}; RSA, ECDSA and Ed25519 are accepted"))
            }
        }
    }

    fn check(self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Option<()> {
        let (how, key): (&dyn VerificationAlgorithm, _) = match (self, algorithm) {
            (Key::Rsa { key, .. }, Algorithm::RsaPkcs1(digest)) => {
                let how = match digest {
                    Digest::Sha256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
                    Digest::Sha384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
                    Digest::Sha512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
                };
                (how, key)
            }
            (Key::Rsa { key, .. }, Algorithm::RsaPss(digest)) => {
                let how = match digest {
                    Digest::Sha256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
                    Digest::Sha384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
                    Digest::Sha512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
                };
                (how, key)
            }
            (Key::P256(key), Algorithm::Ecdsa(Digest::Sha256)) => {
                (&ring_signature::ECDSA_P256_SHA256_ASN1, key)
            }
            (Key::P256(key), Algorithm::Ecdsa(Digest::Sha384)) => {
                (&ring_signature::ECDSA_P256_SHA384_ASN1, key)
            }
            (Key::P384(key), Algorithm::Ecdsa(Digest::Sha256)) => {
                (&ring_signature::ECDSA_P384_SHA256_ASN1, key)
            }
            (Key::P384(key), Algorithm::Ecdsa(Digest::Sha384)) => {
                (&ring_signature::ECDSA_P384_SHA384_ASN1, key)
            }
            (Key::Ed25519(key), Algorithm::Ed25519) => (&ring_signature::ED25519, key),
            _ => return None,
        };
        UnparsedPublicKey::new(how, key).verify(message, signature).ok()
    }
}

/// An element's tag and contents, if it is there.
type Parameters<'a> = Option<(u8, &'a [u8])>;

/// Kind of the key, what it says of its algorithm, and the key.
fn read_spki(spki: &[u8]) -> Option<(&[u8], Parameters<'_>, &[u8])> {
    let mut outer = Der::new(spki);
    let mut fields = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let mut algorithm = fields.enter(tag::SEQUENCE)?;
    let key = whole_bits(fields.take(tag::BIT_STRING)?)?;
    fields.end()?;
    let kind = algorithm.take(tag::OID)?;
    let parameters = if algorithm.is_empty() { None } else { Some(algorithm.any()?) };
    algorithm.end()?;
    Some((kind, parameters, key))
}

fn rsa_bits(key: &[u8]) -> Option<usize> {
    let mut outer = Der::new(key);
    let mut numbers = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let modulus = numbers.take(tag::INTEGER)?;
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    let first = modulus.first()?;
    Some(modulus.len() * 8 - first.leading_zeros() as usize)
}

/// True if the holder of a key (`SubjectPublicKeyInfo` as DER) has signed a message.
///
/// # Errors
/// [`Cause::Unacceptable`] for keys that cannot be used, else [`Cause::BadSignature`].
pub fn verify(spki: &[u8], algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Result<(), Refusal> {
    let key =
        Key::from_spki(spki).map_err(|what| Refusal::new(Cause::Unacceptable, format!("it is by {what}")))?;
    key.check(algorithm, message, signature).ok_or_else(wrong)
}

/// True if the holder of a key has signed what TLS has them sign, with a `SignatureScheme` (RFC 8446, 4.2.3). In TLS
/// 1.3 the curve belongs to the scheme, and RSA is PSS only; TLS 1.2 knows neither rule (RFC 5246, 7.4.1.4.1).
///
/// # Errors
/// [`Cause::Unacceptable`] for schemes and keys that cannot be used, else [`Cause::BadSignature`].
pub fn verify_tls(
    spki: &[u8],
    scheme: u16,
    is_tls13: bool,
    message: &[u8],
    signature: &[u8],
) -> Result<(), Refusal> {
    let unknown = || {
        Refusal::new(Cause::Unacceptable, format!("signatures of the kind {scheme:#06x} are not accepted"))
    };
    let algorithm = match scheme {
        0x0401 if !is_tls13 => Algorithm::RsaPkcs1(Digest::Sha256),
        0x0501 if !is_tls13 => Algorithm::RsaPkcs1(Digest::Sha384),
        0x0601 if !is_tls13 => Algorithm::RsaPkcs1(Digest::Sha512),
        0x0804 => Algorithm::RsaPss(Digest::Sha256),
        0x0805 => Algorithm::RsaPss(Digest::Sha384),
        0x0806 => Algorithm::RsaPss(Digest::Sha512),
        0x0403 => Algorithm::Ecdsa(Digest::Sha256),
        0x0503 => Algorithm::Ecdsa(Digest::Sha384),
        0x0807 => Algorithm::Ed25519,
        _ => return Err(unknown()),
    };
    let key =
        Key::from_spki(spki).map_err(|what| Refusal::new(Cause::Unacceptable, format!("it is by {what}")))?;
    let is_other_curve = matches!(
        (key, algorithm),
        (Key::P256(_), Algorithm::Ecdsa(Digest::Sha384)) | (Key::P384(_), Algorithm::Ecdsa(Digest::Sha256))
    );
    if is_tls13 && is_other_curve {
        return Err(unknown());
    }
    key.check(algorithm, message, signature).ok_or_else(wrong)
}

/// True if a key has signed a revocation list, which may be signed with SHA-1 as well: a forged one would revoke
/// certificates, and would have to get into the directory of the operator first.
pub(super) fn verify_list(
    spki: &[u8],
    kind: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Ok(key) = Key::from_spki(spki) else { return false };
    match (Algorithm::of(kind), key) {
        (Some(algorithm), _) => key.check(algorithm, message, signature).is_some(),
        (None, Key::Rsa { key, .. }) if kind.algorithm.as_bytes() == RSA_SHA1 => {
            let how = &ring_signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
            UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()
        }
        _ => false,
    }
}

fn wrong() -> Refusal {
    Refusal::new(Cause::BadSignature, "the signature is wrong")
}
