//! The secrets that macaroons are made with.

use std::fmt;

use gridlane_core::{Result, limits};
use ring::hmac;

use super::chain;

/// The secrets that macaroons are made with: the first makes new ones, all are believed. To change one, put the new one in
/// front, and take the old one away when the last macaroon that it made is over.
#[derive(Clone)]
pub struct Keys {
    roots: Vec<hmac::Key>,
}

impl Keys {
    /// Reads the text of a file: base64 over any number of lines, as `openssl rand -base64 64` writes it, and further
    /// secrets behind lines `---`.
    ///
    /// It is XRootD's form, and what it decodes to is what XRootD decodes it to: the library behind it skips lines in front
    /// of the first one that it can read (here: those with a `#`), ends at a `-`, so that of several secrets XRootD takes
    /// the first, and reads nothing of a file that has anything else in it, which is refused here.
    ///
    /// Fails for what is not base64, and for secrets that are too short.
    pub fn parse(text: &str) -> Result<Keys> {
        let secrets = crate::secrets::parse(text, limits::MACAROON_SECRET_BYTES_MIN)?;
        Ok(Keys { roots: secrets.iter().map(|secret| chain::root(secret)).collect() })
    }

    /// The one that new macaroons are made with.
    pub(super) fn newest(&self) -> &hmac::Key {
        // There is always one: see `parse`.
        &self.roots[0]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &hmac::Key> {
        self.roots.iter()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.roots.len())
    }
}
