//! Claims of a token. They are not verified here: they are for the owner of the token, to whom the issuer and the server
//! will say the same.

use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Characters of a moment: with nanoseconds it has 30.
const MOMENT_CHARS_MAX: usize = 32;

/// Characters of a claim that are shown.
const CLAIM_CHARS_MAX: usize = 400;

/// Claims of a token; all of them are `None` for a token that only its issuer can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Its kind: a JSON Web Token, a macaroon, or a word that only its issuer understands.
    pub kind: TokenKind,
    /// Its issuer: `iss`.
    pub issuer: Option<String>,
    /// Its subject: `sub`.
    pub subject: Option<String>,
    /// Its scopes: `scope`.
    pub scopes: Option<String>,
    /// Which servers it is for: `aud`.
    pub audience: Option<String>,
    /// When it expires, in seconds since 1970: `exp`, or the earliest `before:` of a macaroon.
    pub ends_s: Option<i64>,
}

/// The format of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenKind {
    /// Known to its issuer only.
    #[default]
    Opaque,
    /// RFC 7519.
    Jwt,
    /// A macaroon in libmacaroons' binary form.
    Macaroon,
}

impl Claims {
    /// Reads a token; what cannot be read says nothing.
    pub fn read(token: &str) -> Claims {
        jwt(token).or_else(|| macaroon(token)).unwrap_or_default()
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

fn jwt(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims: Value = serde_json::from_slice(&decoded(payload)?).ok()?;
    let text = |name: &str| claims[name].as_str().map(shown);
    let audience = match &claims["aud"] {
        Value::Array(all) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            Some(shown(&all.join(", ")))
        }
        one => one.as_str().map(shown),
    };
    let exp = &claims["exp"];
    Some(Claims {
        kind: TokenKind::Jwt,
        issuer: text("iss"),
        subject: text("sub"),
        scopes: text("scope"),
        audience,
        // RFC 7519, 2: a NumericDate may have a fraction.
        ends_s: exp.as_i64().or_else(|| exp.as_f64().map(|seconds| seconds as i64)),
    })
}

/// Version 1 (packets of text: `0016cid before:…\n`), or version 2, whose caveats are texts as well.
fn macaroon(token: &str) -> Option<Claims> {
    const BEFORE: &[u8] = b"before:";
    let bytes = decoded(token)?;
    let is_first = bytes.first() == Some(&2) || (bytes.len() > 4 && bytes[4..].starts_with(b"location "));
    if !is_first {
        return None;
    }
    let found = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(BEFORE));
    let ends_s = found.filter_map(|at| moment_s(&bytes[at + BEFORE.len()..])).min();
    Some(Claims { kind: TokenKind::Macaroon, ends_s, ..Claims::default() })
}

/// The moment that bytes begin with, `2026-01-02T03:04:05Z` or with a fraction, in seconds since 1970.
fn moment_s(bytes: &[u8]) -> Option<i64> {
    let is_of_it = |byte: &&u8| byte.is_ascii_digit() || b"-:.TZ".contains(byte);
    let text: String =
        bytes.iter().take_while(is_of_it).take(MOMENT_CHARS_MAX).map(|byte| char::from(*byte)).collect();
    // Of version 2 anything may follow, also a digit.
    let text = &text[..text.find('Z')? + 1];
    let since = gridlane_dav::timestamp::parse(text)?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// A claim as it may be shown.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(CLAIM_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode("{}"), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_jwt_is_read() {
        let claims = Claims::read(&token(
            r#"{"iss":"https://i/","sub":"a\nda","aud":["x","y"],"scope":"storage.read:/","exp":1700000000}"#,
        ));
        assert_eq!(claims.kind, TokenKind::Jwt);
        assert_eq!(claims.subject.as_deref(), Some("ada"));
        assert_eq!(claims.audience.as_deref(), Some("x, y"));
        assert_eq!((claims.scopes.as_deref(), claims.ends_s), (Some("storage.read:/"), Some(1_700_000_000)));
        assert_eq!(Claims::read(&token(r#"{"exp":1.5e9}"#)).ends_s, Some(1_500_000_000));
        for bad in ["", "a", "a.b", "a.b.c", "a.b.c.d", "....", &token("no json"), &token("[]")] {
            assert_eq!(Claims::read(bad).ends_s, None, "{bad}");
        }
    }

    #[test]
    fn a_macaroon_says_when_it_ends() {
        let packet = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
        let text = [
            "location h",
            "identifier x",
            "cid before:2026-01-02T03:04:05Z",
            "cid before:1970-01-02T00:00:01Z",
        ];
        let bytes: String = text.iter().map(|text| packet(text)).collect();
        let claims = Claims::read(&URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!((claims.kind, claims.ends_s), (TokenKind::Macaroon, Some(86_401)));
        assert_eq!(moment_s(b"2026-01-02T03:04:05Z"), Some(1_767_323_045));
        assert_eq!(moment_s(b"2000-02-29T00:00:00Z"), Some(951_782_400));
        // As dCache writes it; what follows is the next packet.
        assert_eq!(moment_s(b"2026-01-02T03:04:05.678Z\n0014cid"), Some(1_767_323_045));
        assert_eq!(moment_s(b"2026-01-02T03:04:05Z2"), Some(1_767_323_045));
        for bad in [
            "",
            "2026-13-02T03:04:05Z",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05+",
            "é026-01-02T03:04:05",
        ] {
            assert_eq!(moment_s(bad.as_bytes()), None, "{bad}");
        }
    }
}
