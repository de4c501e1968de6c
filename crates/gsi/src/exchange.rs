//! What all parts of an exchange have in common: its numbers, its tags, its failures.

use gridlane_auth::{Cause, Refusal};
use openssl::error::ErrorStack;

/// Our version of the exchange: signed, with a fresh initialisation vector for each message.
pub const VERSION: u32 = 10_600;

/// The first version whose key exchange is signed.
pub(crate) const SIGNED_SINCE: u32 = 10_400;

/// The first version that knows of proxies for the server.
pub(crate) const DELEGATES_SINCE: u32 = 10_100;

/// The number of a message.
pub(crate) mod step {
    pub(crate) const CLIENT_BEGINS: u32 = 1000;
    pub(crate) const CLIENT_PROVES: u32 = 1001;
    pub(crate) const CLIENT_DELEGATES: u32 = 1002;
    pub(crate) const SERVER_PROVES: u32 = 2001;
    pub(crate) const SERVER_ASKS: u32 = 2002;
}

/// What a client offers, as bits.
pub(crate) mod offers {
    /// It signs a request for a proxy.
    pub(crate) const SIGNS: u32 = 4;
    /// It would like the server to ask for one.
    pub(crate) const WANTS_TO: u32 = 1;
}

/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 8;

/// A new tag: characters that every peer takes for text.
pub(crate) fn tag() -> Result<[u8; TAG_BYTES], Refusal> {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./";
    let mut tag = [0; TAG_BYTES];
    openssl::rand::rand_bytes(&mut tag).map_err(failed("making a tag"))?;
    Ok(tag.map(|byte| LETTERS[usize::from(byte) % LETTERS.len()]))
}

pub(crate) fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::new(Cause::Malformed, format!("gsi: {}", what.into()))
}

/// OpenSSL failed at something that works unless there is no memory or no randomness.
pub(crate) fn failed(what: &str) -> impl FnOnce(ErrorStack) -> Refusal {
    let what = what.to_owned();
    move |cause| Refusal::new(Cause::Unavailable, format!("gsi: {what} failed: {cause}"))
}
