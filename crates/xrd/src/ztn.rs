//! A bearer token as credentials: the method `ztn`.
//!
//! ```text
//! what the server offers   &P=ztn,<version>:<bytes of a token at most>:
//! the credentials          "ztn\0"   4 version 0   5 'T'   6 reserved (2)   8 length with the NUL (u16)   10 token NUL
//! ```
//!
//! It is offered over TLS only, and a client sends nothing of it without.

use gridlane_core::Secret;
use gridlane_core::limits::TOKEN_BYTES_MAX;

use crate::Malformed;
use crate::registry::ErrorCode;

/// The name of the method.
pub const NAME: &[u8] = b"ztn";

/// Bytes in front of the token.
const HEAD_BYTES: usize = 10;

/// The longest token whose length, with the NUL behind it, can be written.
pub const ENCODED_BYTES_MAX: usize = u16::MAX as usize - 1;

/// The operation: a token follows.
const IS_TOKEN: u8 = b'T';

/// The text of a server behind the method's name: version, and length of a token at most.
pub fn parameters() -> String {
    format!("0:{TOKEN_BYTES_MAX}:")
}

/// Length of a token at most, for a server that says this behind the method's name; `None` if it says nothing of it.
pub fn bytes_max(parameters: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(parameters).ok()?;
    text.split(':').nth(1)?.parse().ok()
}

/// The credentials that say a token of at most [`ENCODED_BYTES_MAX`].
pub fn encode(token: &Secret) -> Vec<u8> {
    let token = token.expose().as_bytes();
    let len = u16::try_from(token.len() + 1).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(HEAD_BYTES + token.len() + 1);
    out.extend_from_slice(NAME);
    out.extend_from_slice(&[0, 0, IS_TOKEN, 0, 0]);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(token);
    out.push(0);
    out
}

/// The token that credentials say. XRootD's clients have more NULs behind it than they count.
pub fn parse(credentials: &[u8]) -> Result<Secret, Malformed> {
    let wrong = |what| Malformed::new(ErrorCode::AUTH_FAILED, what);
    let Some((head, rest)) =
        credentials.split_at_checked(HEAD_BYTES).filter(|(head, _)| head.starts_with(b"ztn\0"))
    else {
        return Err(wrong("ztn credentials are malformed"));
    };
    if head[4] != 0 || head[5] != IS_TOKEN {
        return Err(wrong("ztn credentials are of a version or kind that is not supported"));
    }
    let len = usize::from(u16::from_be_bytes([head[8], head[9]]));
    let token = rest.get(..len).and_then(|token| token.split_last());
    let Some((0, token)) = token else {
        return Err(wrong("ztn credentials are malformed: the token does not end with a NUL"));
    };
    match std::str::from_utf8(token) {
        Ok(token) if !token.is_empty() && token.len() <= TOKEN_BYTES_MAX => Ok(Secret::new(token)),
        Ok(_) => Err(wrong("the token is empty, or longer than any that is accepted")),
        Err(_) => Err(wrong("the token is no text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_travels() {
        let token = Secret::new("eyJ.abc.def");
        let mut sent = encode(&token);
        assert_eq!(&sent[..10], b"ztn\0\0T\0\0\0\x0c");
        assert_eq!(parse(&sent).unwrap(), token);
        sent.extend_from_slice(b"\0\0");
        assert_eq!(parse(&sent).unwrap(), token, "as XRootD's clients send it");
        assert_eq!(bytes_max(parameters().as_bytes()), Some(TOKEN_BYTES_MAX));
        assert_eq!((bytes_max(b""), bytes_max(b"0:x:"), bytes_max(b"0:4096:")), (None, None, Some(4096)));
    }

    #[test]
    fn what_is_no_token() {
        for credentials in [
            &b""[..],
            b"ztn",
            b"ztn\0\0T\0\0\0\x05abc\0",
            b"ztn\0\0T\0\0\0\x00",
            b"ztn\0\0T\0\0\0\x01\0",
            b"ztn\0\0T\0\0\0\x03abc",
            b"ztn\0\x01T\0\0\0\x02a\0",
            b"ztn\0\0S\0\0\0\x02a\0",
            b"gsi\0\0T\0\0\0\x02a\0",
            b"ztn\0\0T\0\0\0\x02\xff\0",
        ] {
            assert!(parse(credentials).is_err(), "{credentials:?}");
        }
    }
}
