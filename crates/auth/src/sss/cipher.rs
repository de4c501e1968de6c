//! The encryption of credentials by a shared key: Blowfish in CFB mode of 64 bits from an IV of zeros, over the text and
//! its CRC-32.
//!
//! That is what XRootD's `sss` has, and it is weak: the CRC is no signature, so that whoever changes the last bytes on the
//! way can change the CRC with them, and what a client says of itself is in the middle. Nothing here can mend that.

use blowfish::Blowfish;
use cfb_mode::cipher::{AsyncStreamCipher, InnerIvInit};

/// Bytes of a key that count: OpenSSL's, and those that the key schedule has room for.
const KEY_BYTES_COUNTED: usize = 72;
/// Bytes of the CRC behind the text.
pub(super) const CRC_BYTES: usize = 4;

/// Encrypts a text and its CRC.
pub(super) fn encrypt(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.extend_from_slice(&crc32(text).to_be_bytes());
    cfb_mode::Encryptor::inner_iv_init(schedule(key), &Default::default()).encrypt(&mut bytes);
    bytes
}

/// The text of what was encrypted; `None` if its CRC is not there.
pub(super) fn decrypt(key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = bytes.to_vec();
    cfb_mode::Decryptor::inner_iv_init(schedule(key), &Default::default()).decrypt(&mut text);
    let (body, crc) = text.split_last_chunk::<CRC_BYTES>()?;
    let (is_right, len) = (crc32(body).to_be_bytes() == *crc, body.len());
    text.truncate(len);
    is_right.then_some(text)
}

fn schedule(key: &[u8]) -> Blowfish {
    let mut state = Blowfish::bc_init_state();
    state.bc_expand_key(&key[..key.len().min(KEY_BYTES_COUNTED)]);
    state
}

/// CRC-32 (IEEE 802.3), bit by bit: credentials have some hundreds of bytes.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_sum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// Of `openssl enc -bf-cfb -K 00112233445566778899aabbccddeeff -iv 0 -provider legacy`.
    #[test]
    fn as_openssl_encrypts() {
        let key: Vec<u8> = (0..16).map(|n| n * 0x11).collect();
        let bytes = encrypt(&key, b"a text of some length");
        assert_eq!(hex(&bytes[..21]), "57f496355374165f4aae8c8598bdf38f23c1d72dbe");
        assert_eq!(decrypt(&key, &bytes).as_deref(), Some(&b"a text of some length"[..]));
        assert_eq!(decrypt(b"another key", &bytes), None);
        assert_eq!(decrypt(&key, b"abc"), None);
    }

    #[test]
    fn long_keys_count_as_far_as_openssl_reads_them() {
        let (long, longer) = ([7u8; 72], [[7u8; 72].as_slice(), b"more"].concat());
        assert_eq!(encrypt(&long, b"text"), encrypt(&longer, b"text"));
        assert_ne!(encrypt(&[7u8; 31], b"text"), encrypt(&[8u8; 31], b"text"));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
