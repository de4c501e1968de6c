//! The keys of proxies.

use gridlane_auth::make::{Curve, Key};
use gridlane_core::Result;
use ring::rand::SystemRandom;

use super::KeyType;

/// Bits of an RSA key: what everything accepts, and good for much longer than a proxy lasts.
#[cfg(feature = "gsi")]
const RSA_BITS: u32 = 2048;

/// A new key of that kind, for a proxy of a certificate with the key `of`.
pub(super) fn new_key(kind: KeyType, of: &Key, random: &SystemRandom) -> Result<Key> {
    match kind {
        KeyType::Rsa => rsa(random),
        KeyType::Auto if of.is_rsa() && cfg!(feature = "gsi") => rsa(random),
        KeyType::Auto | KeyType::Ec => Key::generate(Curve::P256, random),
    }
}

#[cfg(feature = "gsi")]
fn rsa(random: &SystemRandom) -> Result<Key> {
    let failed = |refusal: gridlane_auth::Refusal| {
        gridlane_core::Error::new(gridlane_core::ErrorKind::Other, refusal.message)
    };
    Key::from_pkcs8(&gridlane_gsi::generate_rsa_pkcs8(RSA_BITS).map_err(failed)?, random)
}

#[cfg(not(feature = "gsi"))]
fn rsa(_: &SystemRandom) -> Result<Key> {
    use gridlane_core::{Error, ErrorKind, Fault};
    Err(Error::new(ErrorKind::Unsupported, "this gridlane was built without gsi, and makes no RSA keys")
        .fault(Fault::Caller)
        .hint("use --key-type ec, or a gridlane that was built with the feature gsi"))
}
