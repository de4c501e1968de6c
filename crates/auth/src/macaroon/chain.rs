//! The chain of HMAC-SHA256 that holds a macaroon together: each link is keyed with the one before it.

use ring::hmac;

/// The key with which libmacaroons makes the first key of a secret.
const GENERATOR: &[u8] = b"macaroons-key-generator";

/// The key of a secret, with which identifiers are signed.
pub(super) fn root(secret: &[u8]) -> hmac::Key {
    key(hmac::sign(&key(GENERATOR), secret).as_ref())
}

/// The signature of an identifier alone.
pub(super) fn first(root: &hmac::Key, identifier: &[u8]) -> [u8; 32] {
    bytes(&hmac::sign(root, identifier))
}

/// The signature with one more caveat.
pub(super) fn next(signature: &[u8; 32], caveat: &[u8]) -> [u8; 32] {
    bytes(&hmac::sign(&key(signature), caveat))
}

/// True if a signature is that of an identifier and its caveats. The comparison takes the same time for all.
pub(super) fn holds(root: &hmac::Key, identifier: &[u8], caveats: &[Vec<u8>], signature: &[u8]) -> bool {
    let Some((last, others)) = caveats.split_last() else {
        return hmac::verify(root, identifier, signature).is_ok();
    };
    let before = others.iter().fold(first(root, identifier), |signature, caveat| next(&signature, caveat));
    hmac::verify(&key(&before), last, signature).is_ok()
}

fn key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

fn bytes(tag: &hmac::Tag) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}
