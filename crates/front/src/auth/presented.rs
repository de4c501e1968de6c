//! The credentials that a request has: in `Authorization`, or in the query of its URL, as redirectors of the grid hand
//! them on (`?authz=`).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridlane_auth::{Cause, Refusal, token};
use gridlane_core::Secret;
use gridlane_dav::request::{RequestHead, Target};
use percent_encoding::percent_decode_str;

/// The parameter of a URL that credentials may be in.
const PARAMETER: &str = "authz";

/// Credentials in a request.
#[derive(PartialEq)]
pub(crate) enum Credential {
    /// A JSON Web Token, or a macaroon.
    Bearer(Secret),
    /// A name and a password.
    Password { name: String, password: Secret },
}

/// Credentials and their kind.
pub(crate) struct Presented {
    pub(crate) kind: Kind,
    pub(crate) credential: Credential,
}

impl Presented {
    /// The refusal of credentials that could be read on the way; `instead` would have protected them.
    pub(crate) fn in_clear(&self, instead: &str) -> Bad {
        let what = format!(
            "{} came in clear text and could be read on the way: it is not taken; use {instead}, and get a new \
             one",
            self.kind.named()
        );
        Bad { kind: self.kind, refusal: Refusal::new(Cause::Unacceptable, what) }
    }
}

/// A kind of credentials, as far as their shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificate,
    Token,
    Macaroon,
    Password,
    SharedKey,
    /// None of the known ones.
    Other,
}

impl Kind {
    /// In the order of their numbers.
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Certificate, Kind::Token, Kind::Macaroon, Kind::Password, Kind::SharedKey, Kind::Other];

    /// In one word, for metrics: as [`gridlane_auth::Identity::method`] calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Certificate => "x509",
            Kind::Token => "token",
            Kind::Macaroon => "macaroon",
            Kind::Password => "password",
            Kind::SharedKey => "sss",
            Kind::Other => "other",
        }
    }

    /// At the beginning of a sentence.
    pub(crate) fn named(self) -> &'static str {
        match self {
            Kind::Certificate => "the certificate",
            Kind::Token => "the token",
            Kind::Macaroon => "the macaroon",
            Kind::Password => "the password",
            Kind::SharedKey => "the shared key",
            Kind::Other => "the credential",
        }
    }
}

/// Something in the place of credentials that is none.
pub(crate) struct Bad {
    pub(crate) kind: Kind,
    pub(crate) refusal: Refusal,
}

/// The credentials of a request. Those in the head count, and those in the URL only without them.
pub(crate) fn of(head: &RequestHead) -> Result<Option<Presented>, Bad> {
    let bad = |kind, message: &str| Bad { kind, refusal: Refusal::new(Cause::Malformed, message) };
    let mut fields = head.headers.all("authorization");
    if let Some(field) = fields.next() {
        // Programs that set credentials twice say the same twice. Two different ones are no answer.
        if fields.any(|other| other != field) {
            return Err(bad(
                Kind::Other,
                "the request has several credentials: more than one Authorization, and they differ",
            ));
        }
        return in_field(field).map(Some);
    }
    match &head.target {
        Target::Resource { query: Some(query), .. } => in_query(query),
        _ => Ok(None),
    }
}

/// The credentials that are in a query, or in the CGI of a path.
pub(crate) fn in_query(query: &str) -> Result<Option<Presented>, Bad> {
    let bad = |kind, message: &str| Bad { kind, refusal: Refusal::new(Cause::Malformed, message) };
    let mut values = query.split('&').filter_map(|part| value_of(part)).filter(|value| !value.is_empty());
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad(Kind::Other, "the request has several credentials: more than one authz"));
    }
    let Ok(text) = percent_decode_str(value).decode_utf8() else {
        return Err(bad(Kind::Other, "the credentials in the URL are no valid UTF-8"));
    };
    Ok(Some(bearer(
        scheme_and_rest(&text).filter(|(scheme, _)| is(scheme, "bearer")).map_or(&*text, |it| it.1),
    )))
}

/// A query without the credentials in it, to be handed on; `None` when nothing is left.
pub fn without_credential(query: &str) -> Option<Cow<'_, str>> {
    if query.split('&').all(|part| value_of(part).is_none()) {
        return Some(Cow::Borrowed(query));
    }
    let kept: Vec<&str> = query.split('&').filter(|part| value_of(part).is_none()).collect();
    (!kept.is_empty()).then(|| Cow::Owned(kept.join("&")))
}

/// The value of a part of a query that holds credentials.
fn value_of(part: &str) -> Option<&str> {
    let (name, value) = part.split_once('=')?;
    percent_decode_str(name).eq(PARAMETER.bytes()).then_some(value)
}

fn in_field(field: &str) -> Result<Presented, Bad> {
    let (scheme, rest) = scheme_and_rest(field).unwrap_or((field, ""));
    if is(scheme, "bearer") && !rest.is_empty() {
        return Ok(bearer(rest));
    }
    let refused = |kind, cause, message: &str| Bad { kind, refusal: Refusal::new(cause, message) };
    if !is(scheme, "basic") {
        let what = "the Authorization is neither Bearer nor Basic";
        return Err(refused(Kind::Other, Cause::Unacceptable, what));
    }
    // RFC 7617, 2: the first colon ends the name.
    let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|text| text.split_once(':')) {
        Some((name, password)) => Ok(Presented {
            kind: Kind::Password,
            credential: Credential::Password { name: name.to_owned(), password: Secret::new(password) },
        }),
        None => Err(refused(
            Kind::Password,
            Cause::Malformed,
            "the Authorization is no name and password in base64",
        )),
    }
}

fn bearer(text: &str) -> Presented {
    let kind = if token::looks_like_one(text) { Kind::Token } else { Kind::Macaroon };
    Presented { kind, credential: Credential::Bearer(Secret::new(text)) }
}

fn scheme_and_rest(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ').map(|(scheme, rest)| (scheme, rest.trim()))
}

fn is(scheme: &str, name: &str) -> bool {
    scheme.eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(target: &str, fields: &str) -> String {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        match of(&RequestHead::parse(head.as_bytes()).unwrap().unwrap().0) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(Presented { kind, credential: Credential::Bearer(text) })) => {
                format!("{} {}", kind.word(), text.expose())
            }
            Ok(Some(Presented { credential: Credential::Password { name, password }, .. })) => {
                format!("{name} {}", password.expose())
            }
            Err(bad) => bad.refusal.message,
        }
    }

    #[test]
    fn credentials_of_a_request() {
        for (target, fields, expected) in [
            ("/f", "", "nothing"),
            ("/f?a=b&authz=", "", "nothing"),
            ("/f", "Authorization: Bearer eyJ.a.b\r\n", "token eyJ.a.b"),
            ("/f", "Authorization: bearer  eyJ.a\r\n", "macaroon eyJ.a"),
            ("/f?authz=eyJ.c.d", "Authorization: BEARER eyJ.a.b\r\n", "token eyJ.a.b"),
            ("/f?authz=eyJ.a.b&x=y", "", "token eyJ.a.b"),
            ("/f?x=y&authz=Bearer%20eyJ.a.b", "", "token eyJ.a.b"),
            ("/f?authz=bearer%20MDAx", "", "macaroon MDAx"),
            ("/f?%61uthz=MDAx", "", "macaroon MDAx"),
            ("/f?authz2=MDAx", "", "nothing"),
            ("/f", "Authorization: Basic YWRhOnMzOmNyZXQ=\r\n", "ada s3:cret"),
            ("/f", "Authorization: Basic YWRh\r\n", "no name and password"),
            ("/f", "Authorization: Basic !!\r\n", "no name and password"),
            ("/f", "Authorization: Basic\r\n", "no name and password"),
            ("/f", "Authorization: Bearer\r\n", "neither Bearer nor Basic"),
            ("/f", "Authorization: Negotiate abc\r\n", "neither Bearer nor Basic"),
            ("/f", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", "several credentials"),
            ("/f", "Authorization: Bearer MDAx\r\nauthorization: Bearer MDAx \r\n", "macaroon MDAx"),
            ("/f", "Authorization: Bearer a\r\nAuthorization: bearer a\r\n", "several credentials"),
            ("/f?authz=a&authz=b", "", "several credentials"),
            ("/f?authz=%ff", "", "no valid UTF-8"),
        ] {
            let got = described(target, fields);
            assert!(got.contains(expected), "{target} {fields}: {got}");
        }
    }

    #[test]
    fn a_query_without_its_secret() {
        for (query, left) in [
            ("a=b", Some("a=b")),
            ("", Some("")),
            ("authz=x", None),
            ("a=b&authz=x&c", Some("a=b&c")),
            ("%61uthz=x&a", Some("a")),
            ("authz=x&authz=y&z", Some("z")),
        ] {
            assert_eq!(without_credential(query).as_deref(), left, "{query}");
        }
    }
}
