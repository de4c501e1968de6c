//! Header fields that somebody else has given for requests: those of a third-party copy, of which a client says what the
//! server that it asks shows to the other one.

use std::fmt;
use std::sync::Arc;

use gridlane_core::{Error, ErrorKind, Fault, Result, Secret, Url};

use crate::credentials::Token;

/// What a credential of these is called in messages.
pub(crate) const GIVEN: &str = "the credential that was given for this server";

/// Names, in lower case, of fields whose values are no secrets: they go along where a redirect leads, and in clear. Whatever
/// has another name may open something.
const NO_SECRETS: [&str; 8] = [
    "accept",
    "accept-language",
    "archivemetadata",
    "cache-control",
    "clientinfo",
    "scitag",
    "user-agent",
    "x-request-id",
];

/// Names, in lower case, of fields that belong to a message or to a connection, or that say which bytes are wanted: these are
/// for the program that makes the request (RFC 9110, 6.6, 7.6.1, 13.1 and 14.2; RFC 9530).
const OF_REQUESTS: [&str; 21] = [
    "accept-encoding",
    "connection",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-range",
    "digest",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "range",
    "repr-digest",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "want-content-digest",
    "want-digest",
    "want-repr-digest",
];

/// The same of all that begin so: conditions, and what is for a proxy.
const OF_REQUESTS_BEGIN: [&str; 2] = ["if-", "proxy-"];

/// Header fields of requests for one URL, or else for its endpoint.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The URL that the requests begin at.
    pub to: Url,
    /// Names and values.
    pub fields: Vec<(String, Secret)>,
}

/// A field that requests carry.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: Secret,
    /// For the endpoint that it was given for and no other, and never in clear.
    pub(crate) is_secret: bool,
}

/// Fields of several URLs.
#[derive(Clone, Debug)]
pub(crate) struct Given(Vec<(Url, Arc<[Field]>)>);

impl Given {
    /// An error of kind [`Usage`](ErrorKind::Usage), the caller's fault, for a field that cannot be sent.
    pub(crate) fn new(given: Vec<Forwarded>) -> Result<Given> {
        let of = |Forwarded { to, fields }: Forwarded| {
            let fields = fields.into_iter().map(|(name, value)| Field::new(name, value));
            let fields = fields.collect::<Result<Arc<[Field]>>>()?;
            check(&to, &fields)?;
            Ok((to, fields))
        };
        given.into_iter().map(of).collect::<Result<_>>().map(Given)
    }

    /// The fields of requests that begin at `origin`: those of this URL, or else the first ones for its endpoint.
    pub(crate) fn of(&self, origin: &Url) -> Option<&Arc<[Field]>> {
        let exact = self.0.iter().find(|(to, _)| to == origin);
        let near = || self.0.iter().find(|(to, _)| to.same_endpoint(origin));
        exact.or_else(near).map(|(_, fields)| fields)
    }

    /// The token among them, for a login.
    pub(crate) fn token(&self, origin: &Url) -> Option<Token> {
        let secret =
            self.of(origin)?.iter().find(|field| field.is("authorization")).and_then(Field::token)?;
        Some(Token { secret: Secret::new(secret), from: GIVEN.to_owned() })
    }
}

impl Field {
    fn new(name: String, value: Secret) -> Result<Field> {
        let lower = name.to_ascii_lowercase();
        // RFC 9110, 5.6.2 and 5.5.
        let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(usage(format!("{name:?} is no name of a header field")));
        }
        let is_of_requests = OF_REQUESTS.contains(&lower.as_str())
            || OF_REQUESTS_BEGIN.iter().any(|begins| lower.starts_with(begins));
        if is_of_requests {
            return Err(usage(format!("the header field {name} cannot be given: a request has its own")));
        }
        let text = value.expose();
        if text.chars().any(|c| c.is_control() && c != '\t') || text.trim() != text {
            return Err(usage(format!(
                "the value of the header field {name} has a character that cannot be sent"
            )));
        }
        let is_secret = !NO_SECRETS.contains(&lower.as_str());
        Ok(Field { name, value, is_secret })
    }

    /// True if it has this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The token of `Bearer TOKEN` (RFC 6750, 2.1).
    fn token(&self) -> Option<&str> {
        let (scheme, token) = self.value.expose().split_once(' ')?;
        let token = token.trim_start();
        let is_plain = !token.is_empty() && !token.contains([' ', '\t', ',']);
        (scheme.eq_ignore_ascii_case("bearer") && is_plain).then_some(token)
    }
}

/// Its `Debug` shows the name only.
impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Fields of which a request has one at most; and a server of root:// knows tokens only.
fn check(to: &Url, fields: &[Field]) -> Result<()> {
    for single in ["authorization", "user-agent"] {
        if fields.iter().filter(|field| field.is(single)).count() > 1 {
            return Err(usage(format!("the header field {single} was given twice for {to}")));
        }
    }
    let authorization = fields.iter().find(|field| field.is("authorization"));
    if to.scheme().is_root() && authorization.is_some_and(|field| field.token().is_none()) {
        return Err(usage(format!("{to} takes a token only: Authorization: Bearer TOKEN")));
    }
    Ok(())
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    fn forwarded(to: &str, fields: &[(&str, &str)]) -> Forwarded {
        let field = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new(*value));
        Forwarded { to: url(to), fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn what_belongs_to_requests_is_refused() {
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "TE",
            "Upgrade",
            "Proxy-Authorization",
            "proxy-connection",
            "Expect",
            "Range",
            "If-Match",
            "If-Range",
            "IF-NONE-MATCH",
            "Accept-Encoding",
            "Want-Digest",
            "Want-Repr-Digest",
            "",
            "a b",
            "a:",
            "a\r\nb",
            "é",
        ] {
            let error = Given::new(vec![forwarded("https://h/f", &[(name, "x")])]).unwrap_err();
            assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Usage, Fault::Caller), "{name:?}");
        }
        for value in ["a\r\nHost: x", "a\nb", "a\0", "\u{7f}", " a", "a\r"] {
            let error = Given::new(vec![forwarded("https://h/f", &[("X", value)])]).unwrap_err();
            assert!(!error.to_string().contains("Host"), "a value is not repeated: {error}");
        }
        let twice = [("Authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert!(Given::new(vec![forwarded("https://h/f", &twice)]).is_err());
        let twice = [("Cookie", "a=b"), ("X-Cookie", ""), ("Cookie", "c=d\té")];
        assert!(Given::new(vec![forwarded("https://h/f", &twice)]).is_ok());
    }

    #[test]
    fn a_url_has_its_own_fields_or_those_of_its_endpoint() {
        let given = Given::new(vec![
            forwarded("https://h/a", &[("X", "first")]),
            forwarded("https://h/b", &[("X", "second")]),
            forwarded("https://h:8443/a", &[]),
        ]);
        let given = given.unwrap();
        let of = |text| given.of(&url(text)).map(|fields| fields.first().map(|field| field.value.expose()));
        assert_eq!(of("https://h/a"), Some(Some("first")));
        assert_eq!(of("https://H:443/b"), Some(Some("second")));
        assert_eq!(of("https://h/c"), Some(Some("first")));
        assert_eq!(of("https://h/b?x"), Some(Some("first")));
        assert_eq!(of("https://h:8443/c"), Some(None));
        for other in ["http://h/a", "https://i/a", "https://h:444/a", "roots://h:443//a"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(!format!("{given:?}").contains("first"), "{given:?}");
    }

    #[test]
    fn a_server_of_root_is_shown_the_token() {
        let token = |value| {
            let given = Given::new(vec![forwarded("roots://h//f", &[("authorization", value)])]);
            given.map(|given| given.token(&url("roots://h//f")).unwrap().secret)
        };
        assert_eq!(token("Bearer aaa.bbb").unwrap(), Secret::new("aaa.bbb"));
        assert_eq!(token("bearer  aaa").unwrap(), Secret::new("aaa"));
        for other in ["Basic YTpi", "Bearer", "Bearer a b", "aaa"] {
            assert_eq!(token(other).unwrap_err().kind(), ErrorKind::Usage, "{other}");
        }
    }

    #[test]
    fn what_has_a_known_name_is_no_secret() {
        for (name, is_secret) in [
            ("SciTag", false),
            ("User-Agent", false),
            ("ArchiveMetadata", false),
            ("authorization", true),
            ("Cookie", true),
            ("X-Auth-Token", true),
            ("TransferHeaderAuthorization", true),
        ] {
            let field = Field::new(name.to_owned(), Secret::new("x")).unwrap();
            assert_eq!(field.is_secret, is_secret, "{name}");
        }
    }
}
