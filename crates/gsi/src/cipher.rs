//! The key that both ends agreed on: it encrypts what follows in the exchange, and signs requests.

use gridlane_auth::{Cause, Refusal};
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt, encrypt};

use crate::exchange::{failed, malformed};

/// The cipher, the one that all peers since 4.9 have in common.
pub(crate) const NAME: &str = "aes-128-cbc";

const BLOCK_BYTES: usize = 16;

/// A key for AES-128-CBC. It has no `Debug`.
#[derive(Clone)]
pub struct SessionKey([u8; BLOCK_BYTES]);

impl SessionKey {
    /// The beginning of the secret.
    pub(crate) fn of_secret(secret: &[u8]) -> Result<SessionKey, Refusal> {
        // One without leading zeros is shorter than that once in 2^256 times.
        secret
            .first_chunk()
            .map(|key| SessionKey(*key))
            .ok_or_else(|| malformed("the agreed secret is too short"))
    }

    /// Encrypts bytes, behind a new initialisation vector.
    pub fn seal(&self, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut out = vec![0; BLOCK_BYTES];
        rand_bytes(&mut out).map_err(failed("encrypting"))?;
        let sealed =
            encrypt(Cipher::aes_128_cbc(), &self.0, Some(&out), bytes).map_err(failed("encrypting"))?;
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Decrypts what [`seal`](SessionKey::seal) made.
    pub fn open(&self, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let wrong = || {
            Refusal::new(
                Cause::BadSignature,
                "gsi: what came is not encrypted with the key that was agreed on",
            )
        };
        let (iv, sealed) = bytes.split_at_checked(BLOCK_BYTES).ok_or_else(wrong)?;
        decrypt(Cipher::aes_128_cbc(), &self.0, Some(iv), sealed).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sealed_and_opened() {
        let (key, other) = (SessionKey([7; 16]), SessionKey([8; 16]));
        for len in [0, 1, 15, 16, 17, 5000] {
            let bytes = vec![3; len];
            let sealed = key.seal(&bytes).unwrap();
            assert_ne!(sealed, key.seal(&bytes).unwrap());
            assert_eq!(key.open(&sealed).unwrap(), bytes);
            assert!(other.open(&sealed).is_err() || len == 0 || other.open(&sealed).unwrap() != bytes);
            assert!(key.open(&sealed[..sealed.len() - 1]).is_err());
        }
        for len in 0..32 {
            assert!(key.open(&vec![0; len]).is_err());
        }
        assert!(SessionKey::of_secret(&[1; 15]).is_err());
    }
}
