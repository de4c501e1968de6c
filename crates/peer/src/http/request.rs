//! A request, and the bytes of its head.

use std::fmt;

use base64::Engine as _;
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret, Url};
use gridlane_net::Proxy;
use percent_encoding::percent_decode_str;

use crate::credentials::sends_password;
use crate::forwarded::Field;

/// A request: of any method, with a body that is in memory, or without.
///
/// Its `Debug` shows names of header fields only: tokens are among the values.
#[derive(Clone)]
pub struct Request<'a> {
    /// `GET`, `PROPFIND` or any other.
    pub method: &'static str,
    /// The URL that it is about.
    pub url: &'a Url,
    /// Further header lines: name and value.
    pub headers: Vec<(&'static str, String)>,
    /// Further header lines whose values open something: for the endpoint of `url`, and hosts that the operator named for
    /// the user's secrets. They are never sent in clear to another machine.
    pub secrets: Vec<(String, Secret)>,
    /// The body, sent with its length directly behind the head. `None`: there is none, or it is sent
    /// later (then a header says how long it is).
    pub body: Option<&'a [u8]>,
    /// True if no redirect to another endpoint is followed ([`Request::stays`]).
    pub stays: bool,
}

impl<'a> Request<'a> {
    /// A request with the headers that every request has.
    pub fn new(method: &'static str, url: &'a Url) -> Request<'a> {
        Request { method, url, headers: Vec::new(), secrets: Vec::new(), body: None, stays: false }
    }

    /// Adds a header line.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Request<'a> {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds a header line whose value [opens something](Request::secrets).
    pub fn secret(mut self, name: impl Into<String>, value: Secret) -> Request<'a> {
        self.secrets.push((name.into(), value));
        self
    }

    /// Gives it a body; an empty one is announced as such.
    pub fn body(mut self, body: &'a [u8]) -> Request<'a> {
        self.body = Some(body);
        self
    }

    /// Follows no redirect to another endpoint: for what is believed of one server only.
    pub fn stays(mut self) -> Request<'a> {
        self.stays = true;
        self
    }

    /// The error of a redirect from `at` that is not followed.
    pub(super) fn refuse_to_leave(&self, at: &Url, to: &Url) -> Result<()> {
        if !self.stays || to.same_endpoint(self.url) {
            return Ok(());
        }
        let message = format!("it redirects to {to}, which is another server");
        Err(Error::new(ErrorKind::Denied, message).fault(Fault::Peer).endpoint(at))
    }

    /// True if doing it twice leaves what doing it once leaves, so that it may be sent again when it is not known if the
    /// server had it (RFC 9110, 9.2.2; RFC 4918 for its own methods).
    pub fn is_idempotent(&self) -> bool {
        const METHODS: [&str; 10] =
            ["GET", "HEAD", "OPTIONS", "PROPFIND", "PUT", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH"];
        METHODS.contains(&self.method)
    }

    fn has_authorization(&self) -> bool {
        self.has("authorization")
    }

    fn has(&self, field: &str) -> bool {
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(field))
    }

    /// True if the caller or the URL has credentials, so that no others are sent.
    pub(super) fn has_credentials(&self) -> bool {
        self.has_authorization() || self.url.has_secrets()
    }

    /// True if a user and password in the URL are not sent, on the way to the server or to a proxy in front of it.
    pub(super) fn keeps_password(&self, proxy: Option<&Proxy>) -> bool {
        let is_in_clear = !self.url.scheme().is_encrypted() && proxy.is_some() || !sends_password(self.url);
        self.url.credentials().is_some() && !self.has_authorization() && is_in_clear
    }

    /// Bytes of the body that are sent after the request: those that a header announces.
    pub(super) fn owed_bytes(&self) -> u64 {
        let announced = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        announced.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)
    }

    /// The bytes of the head, for the server itself. A value with a line break in it is an error of the
    /// caller.
    pub fn head(&self) -> Result<Vec<u8>> {
        self.head_to(None, None, &[])
    }

    /// The bytes of the head for a proxy, or with `None` for the server itself; with a token, unless the request or its
    /// URL has credentials; with the fields of `given`, unless the request has them. Their `Authorization` stands in place
    /// of the user and password in the URL.
    pub(super) fn head_to(
        &self,
        proxy: Option<&Proxy>,
        token: Option<&Secret>,
        given: &[&Field],
    ) -> Result<Vec<u8>> {
        let host = self.url.host_header();
        let target = match (self.method, proxy) {
            ("CONNECT", _) if self.url.host().contains(':') => {
                format!("[{}]:{}", self.url.host(), self.url.port())
            }
            ("CONNECT", _) => format!("{}:{}", self.url.host(), self.url.port()),
            (_, Some(_)) => format!("{}://{host}{}", self.url.scheme().name(), self.url.request_target()),
            (_, None) => self.url.request_target().to_owned(),
        };
        let host = if self.method == "CONNECT" { &target } else { &host };
        let agent = given.iter().find(|field| field.is("user-agent") && self.method != "CONNECT");
        let agent =
            agent.map_or(concat!("gridlane/", env!("CARGO_PKG_VERSION")), |agent| agent.value.expose());
        let mut head =
            format!("{} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\n", self.method);
        if let Some((user, password)) = proxy.and_then(|proxy| proxy.credentials.as_ref()) {
            head.push_str(&format!("Proxy-Authorization: {}\r\n", basic(user, password)));
        }
        if self.method == "CONNECT" {
            // The rest is for the server, behind TLS.
            head.push_str("\r\n");
            return Ok(head.into_bytes());
        }
        head.push_str("Accept-Encoding: identity\r\n");
        if let Some(token) = token.filter(|_| !self.has_credentials()) {
            // StoRM knows the word in this spelling only.
            head.push_str(&format!("Authorization: Bearer {}\r\n", token.expose()));
        }
        let has_given = given.iter().any(|field| field.is("authorization"));
        let is_sent =
            |_: &(&str, &str)| !self.has_authorization() && !has_given && !self.keeps_password(proxy);
        if let Some((user, password)) = self.url.credentials().filter(is_sent) {
            let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
            let credentials = basic(&decoded(user), &decoded(password));
            head.push_str(&format!("Authorization: {credentials}\r\n"));
        }
        for Field { name, value, .. } in given.iter().filter(|field| !field.is("user-agent")) {
            if !self.has(name) {
                head.push_str(&format!("{name}: {}\r\n", value.expose()));
            }
        }
        let secrets = self.secrets.iter().map(|(name, value)| (name.as_str(), value.expose()));
        let headers = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in headers.chain(secrets) {
            if value.contains(['\r', '\n', '\0']) {
                let message = format!("the header {name} would have a line break in it");
                return Err(Error::new(ErrorKind::Usage, message));
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        Ok(head.into_bytes())
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", self.url)
            .field("headers", &names)
            .field("body_bytes", &self.body.map(<[u8]>::len))
            .finish()
    }
}

/// RFC 7617.
fn basic(user: &[u8], password: &[u8]) -> String {
    let pair = [user, b":", password].concat();
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_servers_expect() {
        let url = Url::parse_absolute("http://ada:l%40ve@[::1]:8080/a%20b?x=1").unwrap();
        let request = Request::new("GET", &url).header("Range", "bytes=0-9");
        let head = String::from_utf8(request.head().unwrap()).unwrap();
        assert!(head.starts_with("GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\n"), "{head}");
        assert!(head.contains("Authorization: Basic YWRhOmxAdmU=\r\n"), "{head}");
        assert!(head.ends_with("Range: bytes=0-9\r\n\r\n"), "{head}");
    }

    #[test]
    fn a_password_is_not_sent_in_clear() {
        let head = |text: &str| {
            let url = Url::parse_absolute(text).unwrap();
            String::from_utf8(Request::new("GET", &url).head().unwrap()).unwrap()
        };
        for text in ["http://ada:love@h/f", "http://love@h/f", "http://ada:love@192.0.2.7:8080/f"] {
            let head = head(text);
            assert!(!head.contains("Authorization") && !head.contains("love"), "{head}");
        }
        assert!(head("https://ada:love@h/f").contains("Authorization: Basic "));
    }

    #[test]
    fn a_token_is_not_shown_where_other_credentials_are() {
        let token = Secret::new("aaa.bbb");
        let head = |request: Request<'_>| {
            String::from_utf8(request.head_to(None, Some(&token), &[]).unwrap()).unwrap()
        };
        let of = |text: &str| Url::parse_absolute(text).unwrap();
        let plain = of("https://h/f");
        assert!(head(Request::new("GET", &plain)).contains("\r\nAuthorization: Bearer aaa.bbb\r\n"));
        let own = Request::new("GET", &plain).header("authorization", "Bearer own");
        assert!(!format!("{own:?}").contains("own"), "{own:?}");
        let texts = [
            head(own),
            head(Request::new("GET", &of("https://a:b@h/f"))),
            head(Request::new("GET", &of("https://h/f?authz=x"))),
        ];
        for text in texts {
            assert!(!text.contains("aaa.bbb"), "{text}");
        }
        let connect = head(Request::new("CONNECT", &plain));
        assert!(!connect.contains("aaa"), "a proxy sees nothing: {connect}");
    }

    #[test]
    fn a_body_is_announced_and_nothing_is_smuggled() {
        let url = Url::parse_absolute("http://h/d/").unwrap();
        let head = |request: Request<'_>| request.head().map(|head| String::from_utf8(head).unwrap());
        let some = head(Request::new("PROPFIND", &url).header("Depth", "1").body(b"<x/>")).unwrap();
        assert!(some.starts_with("PROPFIND /d/ HTTP/1.1\r\n"), "{some}");
        assert!(some.ends_with("Depth: 1\r\nContent-Length: 4\r\n\r\n"), "{some}");
        assert!(head(Request::new("PUT", &url).body(b"")).unwrap().contains("Content-Length: 0\r\n"));
        assert!(!head(Request::new("MKCOL", &url)).unwrap().contains("Content-Length"));
        for bad in ["a\r\nHost: x", "a\nb", "a\0"] {
            assert!(head(Request::new("MOVE", &url).header("Destination", bad)).is_err());
        }
    }
}
