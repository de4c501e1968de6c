//! Names that are made of others.

use sha1::{Digest as _, Sha1};

/// The first 16 hexadecimal digits of the SHA-1 of these texts, one behind the other.
pub(crate) fn first_digits(texts: &[&str]) -> String {
    let mut hasher = Sha1::new();
    for text in texts {
        hasher.update(text.as_bytes());
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// An issuer with the slash at its end by which FTS3 knows it.
pub(crate) fn with_slash(issuer: &str) -> String {
    format!("{}/", issuer.trim_end_matches('/'))
}
