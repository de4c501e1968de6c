//! The identity of a version of a remote file, as one user sees it.

use gridlane_core::limits::SPARSE_KEY_BYTES_MAX;
use gridlane_core::{Error, ErrorKind, Result, Url};
use ring::digest::{Context, SHA256};

/// Bytes of a SHA-256.
pub(super) const DIGEST_BYTES: usize = 32;

/// One version of a remote file, for one user. Two keys that differ in anything have different files in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    pub(super) size_bytes: u64,
    /// SHA-256 of the URL without secrets, with its whole query.
    pub(super) url_digest: [u8; DIGEST_BYTES],
    pub(super) identity: String,
    /// The URL as messages show it.
    pub(super) url: String,
    pub(super) validator: String,
}

impl FileKey {
    /// The key of a version.
    ///
    /// `identity` names the user as the server knows it: what one may read is no business of another; it must be no secret. Of `url`,
    /// user, password and the token of the query (`authz=`) do not count; the rest of the query does, and is kept as a digest
    /// only. `validator` is a strong ETag, or over root:// the file's id and its modification time.
    ///
    /// # Errors
    ///
    /// Fails without a strong validator (RFC 9110, 8.8.1): bytes of two versions could not be told apart. Fails as well when one of
    /// the texts is longer than [`SPARSE_KEY_BYTES_MAX`].
    pub fn new(identity: &str, url: &Url, size_bytes: u64, validator: &str) -> Result<FileKey> {
        let refused =
            |why: &str| Err(Error::new(ErrorKind::Unsupported, format!("{url} is not cached: {why}")));
        if validator.is_empty() || validator.starts_with("W/") {
            return refused("nothing tells one version of it from another");
        }
        let plain = without_secrets(url);
        let key = FileKey {
            size_bytes,
            url_digest: digest(&[plain.as_bytes()]),
            identity: identity.to_owned(),
            url: Url::parse_absolute(&plain)?.to_string(),
            validator: validator.to_owned(),
        };
        let too_long = |text: &str| text.len() > SPARSE_KEY_BYTES_MAX;
        if key.texts().into_iter().any(too_long) {
            return refused("its name or its version is too long");
        }
        Ok(key)
    }

    /// Size of the file, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The parts of variable length, in the order in which they are written down.
    pub(super) fn texts(&self) -> [&str; 3] {
        [&self.identity, &self.url, &self.validator]
    }

    /// SHA-256 of all parts: the name on disk.
    pub(super) fn name_digest(&self) -> [u8; DIGEST_BYTES] {
        let [identity, url, validator] = self.texts().map(str::as_bytes);
        digest(&[&self.size_bytes.to_le_bytes(), &self.url_digest, identity, url, validator])
    }
}

/// SHA-256 of parts with their lengths, so that no two lists of parts are one message.
fn digest(parts: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut bytes = [0; DIGEST_BYTES];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

/// The URL without user, password and token.
fn without_secrets(url: &Url) -> String {
    let text = url.clone().without_credentials().typed();
    let Some((place, query)) = text.split_once('?') else { return text };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("authz=")).collect();
    if kept.is_empty() { place.to_owned() } else { format!("{place}?{}", kept.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identity: &str, url: &str, size_bytes: u64, validator: &str) -> FileKey {
        FileKey::new(identity, &Url::parse_absolute(url).unwrap(), size_bytes, validator).unwrap()
    }

    #[test]
    fn everything_but_secrets_makes_another_file() {
        let first = key("u", "https://h/f?id=1", 10, "\"a\"");
        for other in [
            key("v", "https://h/f?id=1", 10, "\"a\""),
            key("u", "https://h/g?id=1", 10, "\"a\""),
            key("u", "https://h/f?id=2", 10, "\"a\""),
            key("u", "https://h/f?id=1", 11, "\"a\""),
            key("u", "https://h/f?id=1", 10, "\"b\""),
            key("u", "http://h/f?id=1", 10, "\"a\""),
        ] {
            assert_ne!(first.name_digest(), other.name_digest(), "{other:?}");
        }
        for same in
            ["https://me:pw@h/f?id=1", "https://h/f?id=1&authz=Bearer%20x", "https://h/f?authz=y&id=1"]
        {
            let same = key("u", same, 10, "\"a\"");
            assert_eq!(first, same);
            assert_eq!(first.name_digest(), same.name_digest());
        }
        assert_eq!(key("u", "root://h//f?authz=x", 1, "1:2"), key("u", "root://h//f", 1, "1:2"));
    }

    #[test]
    fn no_secret_is_in_a_key() {
        let key = key("u", "https://me:hunter2@h/f?authz=tok3n&sig=s1gn", 10, "\"a\"");
        let text = format!("{key:?}");
        assert!(!["hunter2", "tok3n", "s1gn"].iter().any(|secret| text.contains(secret)), "{text}");
    }

    #[test]
    fn without_a_strong_validator_there_is_no_key() {
        let url = Url::parse_absolute("https://h/f").unwrap();
        for weak in ["", "W/\"a\""] {
            let refused = FileKey::new("u", &url, 1, weak).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
        }
        assert!(FileKey::new("u", &url, 1, &"x".repeat(SPARSE_KEY_BYTES_MAX + 1)).is_err());
    }
}
