//! The kind of the key that a service makes for a user.

use gridlane_core::limits;

use crate::x509::signature::Key;

/// Kind and size of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA with a modulus of so many bits.
    Rsa {
        /// The length of the modulus.
        bits: usize,
    },
    /// ECDSA on the curve P-256.
    P256,
    /// ECDSA on the curve P-384.
    P384,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// The kind of a public key, `SubjectPublicKeyInfo` as DER.
    ///
    /// # Errors
    /// What it is, when it is of no kind that is accepted.
    pub fn of(spki: &[u8]) -> Result<KeyKind, String> {
        Ok(match Key::from_spki(spki)? {
            Key::Rsa { bits, .. } => KeyKind::Rsa { bits },
            Key::P256(_) => KeyKind::P256,
            Key::P384(_) => KeyKind::P384,
            Key::Ed25519(_) => KeyKind::Ed25519,
        })
    }

    /// The kind to make for a client whose own key is this one: RSA of the same size, within what can be signed with, for
    /// RSA, as FTS3 does; else P-256. `None` is a client whose key is not known.
    ///
    /// A client that has a key of one kind can verify signatures of it. A service without RSA keys takes P-256 for every client.
    pub fn for_client(spki: Option<&[u8]>) -> KeyKind {
        let (min, max) = (*limits::DELEGATED_RSA_BITS.start(), *limits::DELEGATED_RSA_BITS.end());
        match spki.map(KeyKind::of) {
            Some(Ok(KeyKind::Rsa { bits })) => KeyKind::Rsa { bits: bits.clamp(min, max) },
            Some(Ok(_)) => KeyKind::P256,
            _ => KeyKind::Rsa { bits: min },
        }
    }
}
