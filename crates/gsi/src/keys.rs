//! RSA as gsi uses it: bytes are encrypted with a private key (PKCS#1 1.5, type 1, without a digest), a block at a time.

use gridlane_auth::{Cause, Refusal};
use openssl::pkey::{HasPublic, PKey, Private, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::x509::X509;

use crate::exchange::failed;

/// Bits of keys: those that certificates are believed with.
const RSA_BITS_MIN: u32 = 2048;
const RSA_BITS_MAX: u32 = 8192;
/// Bytes of a block that padding takes.
const PADDING_BYTES: usize = 11;
/// Blocks of a message: the public part of an agreement of 4096 bits fits, under a key of 2048.
const BLOCKS_MAX: usize = 12;
/// Bits of the public exponent: 65537 has 17, and with a long one a peer would keep a processor busy.
const EXPONENT_BITS_MAX: i32 = 33;

/// A new RSA key, in PKCS#8 (DER): gsi and older tools of the grid take no other keys.
///
/// Takes 0.1 s of a processor for 2048 bits.
pub fn generate_rsa_pkcs8(bits: u32) -> Result<Vec<u8>, Refusal> {
    let key = Rsa::generate(bits).map_err(failed("making an RSA key"))?;
    PKey::from_rsa(key).and_then(|key| key.private_key_to_pkcs8()).map_err(failed("making an RSA key"))
}

/// The eight digits by which OpenSSL finds the authority of a certificate (DER) in a directory.
pub fn issuer_hash(certificate: &[u8]) -> Result<String, Refusal> {
    let unreadable = |_| Refusal::new(Cause::Malformed, "gsi: a certificate cannot be read");
    let read = X509::from_der(certificate).map_err(unreadable)?;
    Ok(format!("{:08x}", read.issuer_name_hash()))
}

/// The RSA key of a certificate's owner, in PKCS#8 or PKCS#1 (DER).
pub(crate) fn private_key(der: &[u8], whose: &str) -> Result<Rsa<Private>, Refusal> {
    let key = PKey::private_key_from_der(der).map_err(failed("reading the private key"))?;
    rsa_of(&key, whose)
}

/// The RSA key of a certificate's owner, in PEM of any form without a passphrase.
pub(crate) fn private_key_in_pem(pem: &[u8], whose: &str) -> Result<Rsa<Private>, Refusal> {
    // With a passphrase, lest it asks for one at the terminal.
    let key = PKey::private_key_from_pem_passphrase(pem, b"").map_err(|_| {
        Refusal::new(Cause::Malformed, format!("gsi: the private key of {whose} cannot be read"))
    })?;
    rsa_of(&key, whose)
}

fn rsa_of(key: &PKey<Private>, whose: &str) -> Result<Rsa<Private>, Refusal> {
    let key = key.rsa().map_err(|_| {
        let what = format!("gsi: {whose} has no RSA key, and gsi knows no other");
        Refusal::new(Cause::Unacceptable, what)
    })?;
    check_size(&key, whose)?;
    Ok(key)
}

/// The RSA key in a certificate (DER).
pub(crate) fn key_of_certificate(der: &[u8], whose: &str) -> Result<Rsa<Public>, Refusal> {
    let unreadable = |_| Refusal::new(Cause::Malformed, format!("gsi: {whose} certificate cannot be read"));
    let key = X509::from_der(der).and_then(|read| read.public_key()).map_err(unreadable)?;
    let key = key.rsa().map_err(|_| {
        Refusal::new(
            Cause::Unacceptable,
            format!("gsi: {whose} certificate has no RSA key, and gsi knows no other"),
        )
    })?;
    check_size(&key, whose)?;
    Ok(key)
}

pub(crate) fn check_size<T: HasPublic>(key: &Rsa<T>, whose: &str) -> Result<(), Refusal> {
    let bits = key.size() * 8;
    if (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) && key.e().num_bits() <= EXPONENT_BITS_MAX {
        return Ok(());
    }
    let what = format!(
        "gsi: the RSA key of {whose} has {bits} bits, or a long exponent: {RSA_BITS_MIN} to {RSA_BITS_MAX} bits are taken"
    );
    Err(Refusal::new(Cause::Unacceptable, what))
}

/// Encrypts with a private key. Only its owner can, so that it is a signature; of bytes that are no secret.
pub(crate) fn sign(key: &Rsa<Private>, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let size = key.size() as usize;
    let mut out = Vec::new();
    for block in bytes.chunks(size - PADDING_BYTES) {
        let begin = out.len();
        out.resize(begin + size, 0);
        key.private_encrypt(block, &mut out[begin..], Padding::PKCS1).map_err(failed("signing"))?;
    }
    Ok(out)
}

/// Decrypts with a public key what the owner of the private one has encrypted; `what` is named where that is somebody else.
pub(crate) fn recover(key: &Rsa<Public>, bytes: &[u8], what: &str) -> Result<Vec<u8>, Refusal> {
    let size = key.size() as usize;
    let forged = || {
        let what = format!("gsi: {what} was not signed with the key of the certificate");
        Refusal::new(Cause::BadSignature, what)
    };
    if bytes.is_empty() || !bytes.len().is_multiple_of(size) || bytes.len() / size > BLOCKS_MAX {
        return Err(forged());
    }
    let mut out = Vec::new();
    for block in bytes.chunks(size) {
        let begin = out.len();
        out.resize(begin + size, 0);
        let len = key.public_decrypt(block, &mut out[begin..], Padding::PKCS1).map_err(|_| forged())?;
        out.truncate(begin + len);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_signed_in_blocks_is_recovered_and_nothing_else() {
        let key = private_key(&generate_rsa_pkcs8(2048).unwrap(), "the test").unwrap();
        let public =
            Rsa::from_public_components(key.n().to_owned().unwrap(), key.e().to_owned().unwrap()).unwrap();
        for len in [1, 8, 245, 246, 1400] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut signed = sign(&key, &bytes).unwrap();
            assert_eq!(signed.len() % 256, 0);
            assert_eq!(recover(&public, &signed, "it").unwrap(), bytes);
            signed[10] ^= 1;
            assert_eq!(recover(&public, &signed, "it").unwrap_err().cause, Cause::BadSignature);
        }
        for bad in [&[][..], &[0; 255], &[0; 256], &[1; 256 * 13]] {
            assert!(recover(&public, bad, "it").is_err());
        }
    }

    #[test]
    fn other_keys_are_refused_in_words() {
        let random = ring::rand::SystemRandom::new();
        let ec = ring::signature::EcdsaKeyPair::generate_pkcs8(
            &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING,
            &random,
        );
        let refusal = private_key(ec.unwrap().as_ref(), "the proxy of /tmp/x").err().unwrap();
        assert!(refusal.message.contains("the proxy of /tmp/x has no RSA key"), "{refusal}");
        let small = generate_rsa_pkcs8(1024).unwrap();
        assert!(private_key(&small, "it").err().unwrap().message.contains("1024 bits"));
        assert!(private_key(b"no key", "it").is_err());
    }
}
