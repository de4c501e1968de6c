//! Request heads, as the server reads them: strictly, into a type that cannot be wrong.
//!
//! Everything that two programs in a row could read differently is refused rather than guessed: bare
//! line feeds, folded lines, a length beside a transfer coding, two lengths (equal ones too), two hosts.
//! RFC 9112, sections 2.2, 5.2, 6.1 and 6.3; the answer to each is in a [`Rejection`].

use std::borrow::Cow;
use std::mem::MaybeUninit;

use gridlane_core::limits;

use crate::header::{Headers, number};
use crate::method::{Method, Version};
use crate::path::ResourcePath;
use crate::status::Status;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file or directory, and the query behind `?`.
    Resource {
        /// Which one.
        path: ResourcePath,
        /// Behind the question mark, as it stands.
        query: Option<String>,
    },
    /// `*`: the server itself (only with OPTIONS).
    Server,
}

/// How long a request's body is (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// Neither length nor coding: there is none.
    Absent,
    /// This many bytes, possibly 0.
    Known(u64),
    /// Chunks follow: see [`crate::chunked`].
    Chunked,
}

/// The request line and header fields, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// What to do.
    pub method: Method,
    /// With what.
    pub target: Target,
    /// The client's version of HTTP.
    pub version: Version,
    /// The fields.
    pub headers: Headers,
    /// How long the body is.
    pub body: RequestBody,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The client allows another request on the connection.
    pub keeps_alive: bool,
}

/// Why a request is refused before anything is done: the answer, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The answer.
    pub status: Status,
    /// What is wrong, in a sentence without a final stop.
    pub message: Cow<'static, str>,
}

impl Rejection {
    /// A rejection with any status.
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { status, message: message.into() }
    }

    /// 400.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection::new(Status::BAD_REQUEST, message)
    }
}

impl RequestHead {
    /// Reads a head from the beginning of `bytes`. Returns it with the number of bytes it takes; `None`
    /// when more bytes are needed. After a rejection nothing behind it can be read.
    pub fn parse(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, Rejection> {
        // RFC 9112, 2.2: empty lines in front of a request are skipped; two are more than enough.
        let skipped = bytes.chunks_exact(2).take(2).take_while(|pair| *pair == b"\r\n").count() * 2;
        let head = &bytes[skipped..];
        if head.starts_with(b"\r\n") {
            return Err(Rejection::bad_request("the request has too many empty lines in front"));
        }
        let Some(len) = head_len(head)? else { return Ok(None) };
        let parsed = parse_head(&head[..len])?;
        Ok(Some((parsed, skipped + len)))
    }

    /// What the request line asks for, as far as it can be told before the whole head is there or although
    /// it is refused: for the log.
    pub fn glimpse(bytes: &[u8]) -> Option<(&str, &str)> {
        let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())?;
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        Some((words.next()?, words.next().unwrap_or_default()))
    }

    /// The path, of a request that is about a resource.
    pub fn path(&self) -> Option<&ResourcePath> {
        match &self.target {
            Target::Resource { path, .. } => Some(path),
            Target::Server => None,
        }
    }
}

/// Where the head ends, with the limits of its size and the rule about line ends applied.
fn head_len(head: &[u8]) -> Result<Option<usize>, Rejection> {
    if head.first().is_some_and(|byte| !byte.is_ascii_alphabetic() && *byte != b'\r') {
        // Said at once: another protocol (TLS begins with 22) would not send what we wait for.
        return Err(Rejection::bad_request("this is no HTTP request"));
    }
    let lines = Lines::of(head);
    if lines.first_bytes.unwrap_or(head.len()) > limits::REQUEST_LINE_BYTES_MAX {
        let max = limits::REQUEST_LINE_BYTES_MAX;
        return Err(Rejection::new(
            Status::URI_TOO_LONG,
            format!("the request line is longer than {max} bytes"),
        ));
    }
    if lines.end.unwrap_or(head.len()) > limits::REQUEST_HEAD_BYTES_MAX {
        let max = limits::REQUEST_HEAD_BYTES_MAX;
        return Err(Rejection::new(
            Status::HEAD_TOO_LARGE,
            format!("the request head is longer than {max} bytes"),
        ));
    }
    if lines.is_bare {
        return Err(Rejection::bad_request("a line of the request head does not end in CRLF"));
    }
    Ok(lines.end)
}

/// What the ends of lines tell of a head, up to its end as far as it is there.
struct Lines {
    /// Bytes of the first line.
    first_bytes: Option<usize>,
    /// Whether one of them ends in a line feed alone.
    is_bare: bool,
    /// Bytes of the head.
    end: Option<usize>,
}

impl Lines {
    fn of(head: &[u8]) -> Lines {
        let mut lines = Lines { first_bytes: None, is_bare: false, end: None };
        let mut start = 0;
        while let Some(len) = head[start..].iter().position(|byte| *byte == b'\n') {
            lines.first_bytes.get_or_insert(len);
            let line = &head[start..start + len];
            lines.is_bare |= line.last() != Some(&b'\r');
            start += len + 1;
            // Behind another line, or four bytes would not be there.
            if line == b"\r" && start >= 4 {
                lines.end = Some(start);
                break;
            }
        }
        lines
    }
}

fn parse_head(head: &[u8]) -> Result<RequestHead, Rejection> {
    // Three kilobytes, of which a request uses a few hundred bytes: they are not written before.
    let mut fields = [const { MaybeUninit::uninit() }; limits::REQUEST_HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut fields) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(Rejection::bad_request("the request head is malformed")),
        Err(httparse::Error::TooManyHeaders) => {
            let max = limits::REQUEST_HEADERS_MAX;
            return Err(Rejection::new(
                Status::HEAD_TOO_LARGE,
                format!("the request has more than {max} header fields"),
            ));
        }
        Err(httparse::Error::Version) => {
            return Err(Rejection::new(
                Status::VERSION_NOT_SUPPORTED,
                "the request's version is neither HTTP/1.0 nor HTTP/1.1",
            ));
        }
        Err(cause) => {
            return Err(Rejection::bad_request(format!("the request head is malformed: {cause}")));
        }
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Rejection::bad_request("the request line is incomplete"));
    };
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let headers = Headers::from_parsed(parsed.headers);
    check_host(&headers, version)?;
    let method = Method::from_name(method);
    let target = parse_target(target, &method)?;
    let body = parse_body(&headers, version)?;
    let expects_continue = match headers.get("expect") {
        None => false,
        Some(expectation) if expectation.eq_ignore_ascii_case("100-continue") => {
            // RFC 9110, 10.1.1: an HTTP/1.0 client does not wait.
            version == Version::Http11 && !matches!(body, RequestBody::Absent | RequestBody::Known(0))
        }
        Some(_) => {
            return Err(Rejection::new(
                Status::EXPECTATION_FAILED,
                "the only expectation known is 100-continue",
            ));
        }
    };
    // RFC 9112, 9.3: `close` counts, whatever stands beside it.
    let keeps_alive = !headers.has_token("connection", "close")
        && (version == Version::Http11 || headers.has_token("connection", "keep-alive"));
    Ok(RequestHead { method, target, version, headers, body, expects_continue, keeps_alive })
}

/// RFC 9112, 3.2: exactly one `Host`, which may be missing in HTTP/1.0.
fn check_host(headers: &Headers, version: Version) -> Result<(), Rejection> {
    match headers.all("host").count() {
        1 => Ok(()),
        0 if version == Version::Http10 => Ok(()),
        0 => Err(Rejection::bad_request("the request has no Host")),
        _ => Err(Rejection::bad_request("the request has more than one Host")),
    }
}

/// RFC 9112, 3.2: origin form, absolute form, and the asterisk.
fn parse_target(target: &str, method: &Method) -> Result<Target, Rejection> {
    if target == "*" {
        return match method {
            Method::Options => Ok(Target::Server),
            _ => Err(Rejection::bad_request("only OPTIONS may ask about '*'")),
        };
    }
    if *method == Method::Other("CONNECT") {
        return Ok(Target::Server);
    }
    if target.contains('#') {
        return Err(Rejection::bad_request("the request target has a fragment"));
    }
    let origin = if target.starts_with('/') {
        target
    } else {
        let (scheme, rest) = target.split_once("://").unwrap_or_default();
        if !["http", "https", "dav", "davs"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(Rejection::bad_request("the request target is neither a path nor an http URL"));
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if !is_authority(authority) {
            return Err(Rejection::bad_request("the request target has no host, or a user's name in it"));
        }
        rest
    };
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (origin, None),
    };
    // Behind a host, no path is the root (RFC 9112, 3.2.1).
    let path = if path.is_empty() { "/" } else { path };
    Ok(Target::Resource { path: ResourcePath::parse(path)?, query })
}

/// Whether it is a host, perhaps with a port, as a URL has them (RFC 3986, 3.2). Whether they are ours is not
/// decided here, but another reader may take something else for the host: no user's name stands there
/// (RFC 9110, 4.2.4), and there is one (4.2.1).
pub(crate) fn is_authority(text: &str) -> bool {
    let (is_host, port) = match text.strip_prefix('[').map(|bracketed| bracketed.split_once(']')) {
        Some(Some((address, port))) => {
            let plain = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
            (!address.is_empty() && address.bytes().all(plain), port)
        }
        Some(None) => return false,
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte);
            (!host.is_empty() && host.bytes().all(plain), port)
        }
    };
    let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_digits))
}

/// Of what says where the body ends, one is taken, once, as everybody writes it. Two equal lengths, or empty
/// elements in the list of codings, may be taken (RFC 9110, 8.6 and 5.6.1); but there are programs that do
/// not, and they would see another request behind this one.
fn parse_body(headers: &Headers, version: Version) -> Result<RequestBody, Rejection> {
    let (mut lengths, mut codings) = (headers.all("content-length"), headers.all("transfer-encoding"));
    let (length, coding) = (lengths.next(), codings.next());
    let Some(coding) = coding else {
        return match (length, lengths.next()) {
            (None, _) => Ok(RequestBody::Absent),
            (Some(value), None) => number(value)
                .map(RequestBody::Known)
                .ok_or(Rejection::bad_request("the Content-Length is not a number")),
            (Some(_), Some(_)) => Err(Rejection::bad_request("the request has more than one Content-Length")),
        };
    };
    if length.is_some() {
        return Err(Rejection::bad_request("the request has both Content-Length and Transfer-Encoding"));
    }
    if version == Version::Http10 {
        // RFC 9112, 6.1: a message of HTTP/1.0 with a transfer coding has faulty framing.
        return Err(Rejection::bad_request("HTTP/1.0 has no Transfer-Encoding"));
    }
    if codings.next().is_some() || !coding.eq_ignore_ascii_case("chunked") {
        return Err(Rejection::new(
            Status::NOT_IMPLEMENTED,
            "the only transfer coding known is chunked, once",
        ));
    }
    Ok(RequestBody::Chunked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<RequestHead, u16> {
        match RequestHead::parse(text.as_bytes()) {
            Ok(Some((head, used))) => {
                assert_eq!(used, text.len(), "{text:?}");
                Ok(head)
            }
            Ok(None) => panic!("{text:?} is not complete"),
            Err(rejection) => Err(rejection.status.code()),
        }
    }

    fn with(line: &str, fields: &str) -> Result<RequestHead, u16> {
        parse(&format!("{line}\r\nHost: h\r\n{fields}\r\n"))
    }

    #[test]
    fn a_request() {
        let text =
            "\r\nPUT /a%20b?x=1 HTTP/1.1\r\nhost: h\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n";
        let head = parse(text).unwrap();
        assert_eq!((head.method.clone(), head.version), (Method::Put, Version::Http11));
        assert_eq!(head.path().unwrap().to_string(), "/a%20b");
        assert_eq!(head.body, RequestBody::Known(5));
        assert!(head.expects_continue && head.keeps_alive);
        for cut in 0..text.len() {
            assert_eq!(RequestHead::parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(RequestHead::glimpse(&text.as_bytes()[..20]), Some(("PUT", "/a%20b?x=1")));
    }

    #[test]
    fn targets() {
        for (line, shown) in [
            ("GET http://h:1/a//b?q HTTP/1.1", Some("/a/b")),
            ("GET http://h HTTP/1.1", Some("/")),
            ("GET http://[::1]:1094/a HTTP/1.1", Some("/a")),
            ("OPTIONS * HTTP/1.1", None),
            ("CONNECT h:1 HTTP/1.1", None),
        ] {
            let head = with(line, "").unwrap();
            assert_eq!(head.path().map(ToString::to_string).as_deref(), shown, "{line}");
        }
        // The query behind a host without a path is one.
        match with("GET HTTPS://h?x/y HTTP/1.1", "").unwrap().target {
            Target::Resource { path, query } => assert!(path.is_root() && query.as_deref() == Some("x/y")),
            other => panic!("{other:?}"),
        }
        for (line, status) in [
            ("GET * HTTP/1.1", 400),
            ("GET a HTTP/1.1", 400),
            ("GET ftp://h/a HTTP/1.1", 400),
            ("GET http:///a HTTP/1.1", 400),
            ("GET http://:1/a HTTP/1.1", 400),
            ("GET http://h@k/a HTTP/1.1", 400),
            ("GET http://h\\k/a HTTP/1.1", 400),
            ("GET http://% HTTP/1.1", 400),
            ("GET http://[::1/a HTTP/1.1", 400),
            ("GET http://[::1]1/a HTTP/1.1", 400),
            ("GET http://h:1:2/a HTTP/1.1", 400),
            ("GET /a#b HTTP/1.1", 400),
            ("GET /../a HTTP/1.1", 400),
            ("GET  /a HTTP/1.1", 400),
            ("GET /a HTTP/2.0", 505),
            ("GET /a", 400),
            ("G@T /a HTTP/1.1", 400),
        ] {
            assert_eq!(with(line, "").err(), Some(status), "{line}");
        }
        assert_eq!(with("BREW /a HTTP/1.1", "").unwrap().method, Method::Unknown("BREW".into()));
        assert_eq!(with("get /a HTTP/1.1", "").unwrap().method, Method::Unknown("get".into()));
        assert_eq!(with("PROPFIND /a HTTP/1.1", "").unwrap().method, Method::Propfind);
    }

    #[test]
    fn framing() {
        for (fields, expected) in [
            ("", Ok(RequestBody::Absent)),
            ("Content-Length: 0\r\n", Ok(RequestBody::Known(0))),
            ("Transfer-Encoding: Chunked\r\n", Ok(RequestBody::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", Err(400)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(400)),
            ("Content-Length: 5, 5\r\n", Err(400)),
            ("Content-Length:\r\n", Err(400)),
            ("Content-Length: +5\r\n", Err(400)),
            ("Content-Length : 5\r\n", Err(400)),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(400)),
            ("Transfer-Encoding: gzip\r\n", Err(501)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(501)),
            ("Transfer-Encoding: chunked, chunked\r\n", Err(501)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(501)),
            ("Transfer-Encoding: \x0bchunked\r\n", Err(400)),
            ("Transfer-Encoding:\r\n", Err(501)),
            ("Transfer-Encoding: chunked,\r\n", Err(501)),
            ("Transfer-Encoding: , chunked\r\n", Err(501)),
            ("Content-Length: 5\u{a0}\r\n", Err(400)),
            ("Content-Length: 5,\u{a0}5\r\n", Err(400)),
            ("Transfer-Encoding: \u{a0}chunked\r\n", Err(501)),
            ("Transfer-Encoding: chunked\u{85}\r\n", Err(501)),
            ("X: a\r\n b\r\n", Err(400)),
            ("X: a\nY: b\r\n", Err(400)),
            ("X: a\rY: b\r\n", Err(400)),
            ("Host: other\r\n", Err(400)),
            ("Expect: 200-ok\r\n", Err(417)),
        ] {
            assert_eq!(with("PUT /a HTTP/1.1", fields).map(|head| head.body), expected, "{fields:?}");
        }
        assert_eq!(parse("GET / HTTP/1.1\r\n\r\n").err(), Some(400));
        assert!(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").is_ok());
        assert_eq!(parse("\r\n\r\n\r\n").err(), Some(400));
        assert_eq!(with("PUT /a HTTP/1.0", "Transfer-Encoding: chunked\r\n").err(), Some(400));
    }

    #[test]
    fn versions_and_connections() {
        assert!(!parse("GET / HTTP/1.0\r\n\r\n").unwrap().keeps_alive);
        assert!(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap().keeps_alive);
        assert!(!with("GET / HTTP/1.1", "Connection: TE, Close\r\n").unwrap().keeps_alive);
        assert!(!with("GET / HTTP/1.0", "Connection: keep-alive, close\r\n").unwrap().keeps_alive);
        assert!(
            !with("GET / HTTP/1.1", "Connection: close\r\nConnection: keep-alive\r\n").unwrap().keeps_alive
        );
        let old = with("PUT / HTTP/1.0", "Content-Length: 3\r\nExpect: 100-continue\r\n").unwrap();
        assert!(!old.expects_continue);
    }

    #[test]
    fn limits_have_their_own_answers() {
        let line = format!("GET /{} HTTP/1.1", "x/".repeat(limits::REQUEST_LINE_BYTES_MAX / 2));
        assert_eq!(with(&line, "").err(), Some(414));
        assert_eq!(RequestHead::parse(line.as_bytes()).unwrap_err().status.code(), 414);
        let long = format!("X: {}\r\n", "y".repeat(limits::REQUEST_HEAD_BYTES_MAX));
        assert_eq!(with("GET / HTTP/1.1", &long).err(), Some(431));
        assert_eq!(with("GET / HTTP/1.1", &"x: y\r\n".repeat(limits::REQUEST_HEADERS_MAX)).err(), Some(431));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), begin in 0usize..4) {
            let mut input = [&b""[..], b"GET / HTTP/1.1\r\n", b"PUT /", b"GET / HTTP/1.0\r\nContent-Length:"][begin].to_vec();
            input.extend(bytes);
            input.extend(b"\r\n\r\n");
            let _ = RequestHead::glimpse(&input);
            if let Ok(Some((_, used))) = RequestHead::parse(&input) {
                prop_assert!(used <= input.len());
            }
        }
    }
}
