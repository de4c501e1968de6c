//! The secrets that macaroons are made with.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
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
        let wrong = |what: String| {
            Error::new(ErrorKind::Usage, what)
                .fault(Fault::Caller)
                .hint("make a secret with: openssl rand -base64 64")
        };
        let mut secrets = vec![String::new()];
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let Some(secret) = secrets.last_mut() else { continue };
            if line == "---" {
                secrets.push(String::new());
            } else if !(line.starts_with('#') && secret.is_empty()) {
                if let Some(letter) =
                    line.chars().find(|letter| !letter.is_ascii_alphanumeric() && !"+/=".contains(*letter))
                {
                    return Err(wrong(format!(
                        "line {number} of the secrets is not base64: it has {letter:?}"
                    )));
                }
                secret.push_str(line);
            }
        }
        let decode = |(number, secret): (usize, &String)| {
            let bytes = STANDARD
                .decode(secret)
                .map_err(|_| wrong(format!("secret {number} is not base64, or not all of it is there")))?;
            if bytes.len() < limits::MACAROON_SECRET_BYTES_MIN {
                let (length, min) = (bytes.len(), limits::MACAROON_SECRET_BYTES_MIN);
                return Err(wrong(format!(
                    "secret {number} has {length} bytes, and must have {min} or more"
                )));
            }
            Ok(chain::root(&bytes))
        };
        Ok(Keys { roots: (1..).zip(&secrets).map(decode).collect::<Result<_>>()? })
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
