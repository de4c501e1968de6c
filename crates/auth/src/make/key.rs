//! Private keys.

use std::fmt;

use gridlane_core::{Error, ErrorKind, Result, Secret};
use ring::rand::SecureRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use yasna::DERWriter;

use super::der::{oid, unusable};
use super::pem;

/// A curve of ECDSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// secp256r1, signed with SHA-256.
    P256,
    /// secp384r1, signed with SHA-384.
    P384,
}

impl Curve {
    fn oid(self) -> &'static [u64] {
        match self {
            Curve::P256 => &[1, 2, 840, 10045, 3, 1, 7],
            Curve::P384 => &[1, 3, 132, 0, 34],
        }
    }

    fn signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Curve::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Curve::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
        }
    }
}

/// A private key with its public one. It is never printed.
pub struct Key {
    pair: Pair,
    /// PKCS#8.
    der: Vec<u8>,
}

enum Pair {
    Ecdsa(Curve, EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    /// A new key for ECDSA. (RSA keys are made elsewhere, and read here: ring makes none.)
    pub fn generate(curve: Curve, random: &dyn SecureRandom) -> Result<Key> {
        let made = EcdsaKeyPair::generate_pkcs8(curve.signing(), random)
            .map_err(|_| Error::new(ErrorKind::Other, "no randomness for a key"))?;
        Key::from_pkcs8(made.as_ref(), random)
    }

    /// The first private key in a PEM file, in PKCS#8 or in the forms that grid tools write: `RSA PRIVATE KEY` (PKCS#1)
    /// and `EC PRIVATE KEY` (RFC 5915).
    pub fn from_pem(text: &[u8], random: &dyn SecureRandom) -> Result<Key> {
        let block = pem::decode(text)?.into_iter().find(|block| block.label.ends_with(pem::PRIVATE_KEY));
        let block = block.ok_or_else(|| unusable("there is no private key in it"))?;
        if block.is_encrypted {
            return Err(unusable("the private key is encrypted with a passphrase").hint(
                "decrypt it, where only you can read it: (umask 077; openssl pkey -in KEY -out DECRYPTED)",
            ));
        }
        match block.label.as_str() {
            "RSA PRIVATE KEY" => Key::from_pkcs8(&pkcs8_of_rsa(&block.der), random),
            // The curve may be in the key or not; only one of the two fits.
            "EC PRIVATE KEY" => Key::from_pkcs8(&pkcs8_of_ec(Curve::P256, &block.der), random)
                .or_else(|_| Key::from_pkcs8(&pkcs8_of_ec(Curve::P384, &block.der), random)),
            _ => Key::from_pkcs8(&block.der, random),
        }
    }

    /// A key in PKCS#8. The randomness goes into its signatures.
    pub fn from_pkcs8(der: &[u8], random: &dyn SecureRandom) -> Result<Key> {
        let ecdsa = |curve: Curve| {
            EcdsaKeyPair::from_pkcs8(curve.signing(), der, random).map(|pair| Pair::Ecdsa(curve, pair))
        };
        let pair = ecdsa(Curve::P256)
            .or_else(|_| ecdsa(Curve::P384))
            .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Pair::Ed25519))
            .or_else(|_| RsaKeyPair::from_pkcs8(der).map(|pair| Pair::Rsa(Box::new(pair))));
        // The last attempt was RSA, which says whether it was one: only RSA keys are refused for what they are.
        let pair = pair.map_err(|cause| {
            unusable(format!("the private key cannot be used ({cause})"))
                .hint("use ECDSA P-256 or P-384, Ed25519, or RSA with 2048 to 4096 bits")
        })?;
        Ok(Key { pair, der: der.to_vec() })
    }

    /// True if it is one of RSA.
    pub fn is_rsa(&self) -> bool {
        matches!(self.pair, Pair::Rsa(_))
    }

    /// PKCS#8 in PEM.
    pub fn to_pem(&self) -> Secret {
        Secret::new(pem::encode(pem::PRIVATE_KEY, &self.der))
    }

    /// The public key as it is in a certificate: `SubjectPublicKeyInfo` (RFC 5280, 4.1.2.7).
    pub fn public_key(&self) -> Vec<u8> {
        let public = match &self.pair {
            Pair::Ecdsa(_, pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        };
        yasna::construct_der(|to| {
            to.write_sequence(|to| {
                to.next().write_sequence(|to| match &self.pair {
                    Pair::Ecdsa(curve, _) => write_ec_algorithm(to, *curve),
                    Pair::Rsa(_) => write_rsa_algorithm(to),
                    Pair::Ed25519(_) => to.next().write_oid(&oid(ED25519)),
                });
                to.next().write_bitvec_bytes(public, public.len() * 8);
            });
        })
    }

    /// The signature of a message, by the algorithm that `write_signature_algorithm` names.
    pub fn sign(&self, message: &[u8], random: &dyn SecureRandom) -> Result<Vec<u8>> {
        let failed = |_| Error::new(ErrorKind::Other, "a signature could not be made");
        match &self.pair {
            Pair::Ecdsa(_, pair) => {
                pair.sign(random, message).map(|made| made.as_ref().to_vec()).map_err(failed)
            }
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }

    /// The `AlgorithmIdentifier` of its signatures.
    pub(super) fn write_signature_algorithm(&self, to: DERWriter<'_>) {
        to.write_sequence(|to| match &self.pair {
            Pair::Ecdsa(Curve::P256, _) => to.next().write_oid(&oid(&[1, 2, 840, 10045, 4, 3, 2])),
            Pair::Ecdsa(Curve::P384, _) => to.next().write_oid(&oid(&[1, 2, 840, 10045, 4, 3, 3])),
            Pair::Ed25519(_) => to.next().write_oid(&oid(ED25519)),
            Pair::Rsa(_) => {
                to.next().write_oid(&oid(&[1, 2, 840, 113549, 1, 1, 11]));
                to.next().write_null();
            }
        });
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.pair {
            Pair::Ecdsa(Curve::P256, _) => "Key(ECDSA P-256)",
            Pair::Ecdsa(Curve::P384, _) => "Key(ECDSA P-384)",
            Pair::Rsa(_) => "Key(RSA)",
            Pair::Ed25519(_) => "Key(Ed25519)",
        })
    }
}

const ED25519: &[u64] = &[1, 3, 101, 112];

fn write_ec_algorithm(to: &mut yasna::DERWriterSeq<'_>, curve: Curve) {
    to.next().write_oid(&oid(&[1, 2, 840, 10045, 2, 1]));
    to.next().write_oid(&oid(curve.oid()));
}

fn write_rsa_algorithm(to: &mut yasna::DERWriterSeq<'_>) {
    to.next().write_oid(&oid(&[1, 2, 840, 113549, 1, 1, 1]));
    to.next().write_null();
}

fn pkcs8_of_rsa(key: &[u8]) -> Vec<u8> {
    pkcs8(write_rsa_algorithm, key)
}

fn pkcs8_of_ec(curve: Curve, key: &[u8]) -> Vec<u8> {
    pkcs8(|to| write_ec_algorithm(to, curve), key)
}

/// RFC 5208: `SEQUENCE { 0, algorithm, OCTET STRING }`.
fn pkcs8(algorithm: impl FnOnce(&mut yasna::DERWriterSeq<'_>), key: &[u8]) -> Vec<u8> {
    yasna::construct_der(|to| {
        to.write_sequence(|to| {
            to.next().write_u8(0);
            to.next().write_sequence(algorithm);
            to.next().write_bytes(key);
        });
    })
}
