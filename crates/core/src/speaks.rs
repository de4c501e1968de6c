//! What a server turns out to speak where something else was expected, told from the first bytes that it sends.

use std::fmt;

use crate::{Error, ErrorKind};

/// Characters of a greeting that are shown.
const GREETING_CHARS_MAX: usize = 60;

/// The first bytes of pages.
const HTML: [&[u8]; 2] = [b"<!DOCTYPE HTML", b"<html"];

/// A protocol, as its first bytes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP in clear text.
    Http,
    /// A record of TLS: a handshake or an alert.
    Tls,
    /// The answer to XRootD's handshake.
    Xrootd,
    /// Something else that greets with a line of text.
    Other(String),
}

impl Speaks {
    /// The protocol that these first bytes of an answer are a sign of; `None`: none that is known, or too few of them.
    pub fn of(bytes: &[u8]) -> Option<Speaks> {
        match bytes {
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Speaks::Http),
            // RFC 8446, 5.1: an alert or a handshake of version 3.
            [21 | 22, 3, 0..=4, ..] => Some(Speaks::Tls),
            // Stream 0, no error, eight bytes follow.
            [0, 0, 0, 0, 0, 0, 0, 8, ..] => Some(Speaks::Xrootd),
            // A page without a head: what HTTP was before 1.0, and some servers say to what they do not understand.
            page if HTML
                .iter()
                .any(|begin| page.get(..begin.len()).is_some_and(|it| it.eq_ignore_ascii_case(begin))) =>
            {
                Some(Speaks::Http)
            }
            _ => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
                let line = bytes[..end].iter().copied();
                let is_text = end > 0 && line.clone().all(|byte| byte == b' ' || byte.is_ascii_graphic());
                is_text.then(|| Speaks::Other(line.take(GREETING_CHARS_MAX).map(char::from).collect()))
            }
        }
    }

    /// The error of a client that expected `scheme` there (`http`, `https`, `root`, `roots`).
    pub fn error(&self, scheme: &str) -> Error {
        let expected = match scheme {
            "http" => "plain HTTP",
            "https" => "TLS",
            _ => "XRootD's protocol",
        };
        let error = |message: String| Error::new(ErrorKind::Protocol, message);
        let instead = |to: &str| format!("write {to}:// instead of {scheme}://, or another port");
        match (self, scheme) {
            (Speaks::Other(greeting), _) => {
                error(format!("the port does not speak {expected}: it answers {greeting:?}"))
                    .hint("another port or another server is meant")
            }
            (Speaks::Tls, "http") => error(format!("the port speaks {self}, not {expected}")).hint(instead("https")),
            (Speaks::Http, "https") => error(format!("the port speaks {self}, not {expected}")).hint(
                "http:// instead of https:// would send everything in clear; use it only if that does not matter",
            ),
            (Speaks::Xrootd, "http") => error(format!("the port speaks {self}, not {expected}")).hint(instead("root")),
            (Speaks::Xrootd, _) => {
                error(format!("the port speaks {self}, not {expected}")).hint(instead("roots"))
            }
            (Speaks::Tls, _) => error(format!("the port speaks {self}, not {expected}")).hint(instead("https")),
            (Speaks::Http, _) => error(format!("the port speaks {self}, not {expected}")).hint(instead("http")),
        }
    }
}

impl fmt::Display for Speaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Speaks::Http => "plain HTTP",
            Speaks::Tls => "TLS",
            Speaks::Xrootd => "XRootD's protocol",
            Speaks::Other(_) => "something else",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_by_their_first_bytes() {
        let ssh = Speaks::Other("SSH-2.0-OpenSSH_9.2p1".to_owned());
        for (bytes, expected) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Some(Speaks::Http)),
            (b"<!doctype html>\n<html>", Some(Speaks::Http)),
            (&[21, 3, 1, 0, 2, 2, 70], Some(Speaks::Tls)),
            (&[22, 3, 3, 0, 90], Some(Speaks::Tls)),
            (&[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0], Some(Speaks::Xrootd)),
            (b"SSH-2.0-OpenSSH_9.2p1\r\n", Some(ssh)),
            (b"SSH-2.0-Open", None),
            (b"HTT", None),
            (b"", None),
            (b"\r\n", None),
            (b"\x1b[2J evil\r\n", None),
            (&[0; 7], None),
        ] {
            assert_eq!(Speaks::of(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn one_sentence_says_what_is_there_and_what_to_write() {
        for (speaks, scheme, words) in [
            (Speaks::Tls, "http", ["TLS", "https://"]),
            (Speaks::Http, "https", ["plain HTTP", "http://"]),
            (Speaks::Xrootd, "http", ["XRootD", "root://"]),
            (Speaks::Xrootd, "https", ["XRootD", "roots://"]),
            (Speaks::Http, "root", ["plain HTTP", "http://"]),
            (Speaks::Tls, "roots", ["TLS", "https://"]),
            (Speaks::Other("220 mail.example ESMTP".to_owned()), "https", ["220 mail", "another port"]),
        ] {
            let error = speaks.error(scheme);
            for word in words {
                assert!(error.to_string().contains(word), "{error}");
            }
            assert!(!error.is_retryable());
        }
    }
}
