//! Request heads, as the server reads them: strictly, into a type that cannot be wrong.
//!
//! Everything that two programs in a row could read differently is refused rather than guessed: bare
//! line feeds, folded lines, a length beside a transfer coding, two lengths (equal ones too), two hosts, and a
//! host that is none: it comes back in URLs.
//! RFC 9112, sections 2.2, 5.2, 6.1 and 6.3; the answer to each is in a [`Rejection`].

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::net::Ipv6Addr;

use gridlane_core::limits;

use crate::header::{Headers, number, trim};
use crate::method::{Method, Version};
use crate::path::ResourcePath;
use crate::status::Status;

/// The target of a request.
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

/// The length of a request's body (RFC 9112, 6.3).
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
    /// The method.
    pub method: Method,
    /// With what.
    pub target: Target,
    /// The host, perhaps with a port, of a target that is a complete URL.
    pub authority: Option<String>,
    /// The client's version of HTTP.
    pub version: Version,
    /// The fields.
    pub headers: Headers,
    /// The length of the body.
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
    /// The fault, in a sentence without a final stop.
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

    /// The target of the request line, as far as it can be told before the whole head is there or although
    /// it is refused: for the log.
    pub fn glimpse(bytes: &[u8]) -> Option<(&str, &str)> {
        let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())?;
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        Some((words.next()?, words.next().unwrap_or_default()))
    }

    /// The client's name for this server, perhaps with a port: the host of a complete URL counts, and not the `Host`
    /// beside it (RFC 9112, 3.2.2). `None`: a client of HTTP/1.0 need not say.
    pub fn host(&self) -> Option<&str> {
        self.authority.as_deref().or_else(|| self.headers.single("host"))
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

/// Facts that the ends of lines tell of a head, up to its end as far as it is there.
struct Lines {
    /// Bytes of the first line.
    first_bytes: Option<usize>,
    /// True if one of them ends in a line feed alone.
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
        Err(httparse::Error::Version) if ends_with_version(head) => {
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
    let (target, authority) = parse_target(target, &method)?;
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
    Ok(RequestHead { method, target, authority, version, headers, body, expects_continue, keeps_alive })
}

/// True if the request line ends with a version as there may be one (RFC 9112, 2.3): `HTTP/`, a digit, a full stop, a
/// digit. Whatever else stands there is no version but a malformed line.
fn ends_with_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let word = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    matches!(word.strip_prefix(b"HTTP/"), Some([major, b'.', minor])
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// RFC 9112, 3.2: exactly one `Host`, which may be missing in HTTP/1.0, and which is a host as URLs have them.
fn check_host(headers: &Headers, version: Version) -> Result<(), Rejection> {
    let mut hosts = headers.all("host");
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::Http10 => Ok(()),
        (None, _) => Err(Rejection::bad_request("the request has no Host")),
        (Some(_), Some(_)) => Err(Rejection::bad_request("the request has more than one Host")),
        // An empty one is that of a URL without a host, and no URL of HTTP is (RFC 9110, 4.2.1).
        (Some(host), None) if is_authority(host) => Ok(()),
        (Some(_), None) => {
            Err(Rejection::bad_request("the Host is none: a name or address, perhaps with a port"))
        }
    }
}

/// RFC 9112, 3.2: origin form, absolute form with its host, and the asterisk.
fn parse_target(target: &str, method: &Method) -> Result<(Target, Option<String>), Rejection> {
    if target == "*" {
        return match method {
            Method::Options => Ok((Target::Server, None)),
            _ => Err(Rejection::bad_request("only OPTIONS may ask about '*'")),
        };
    }
    if *method == Method::Other("CONNECT") {
        return Ok((Target::Server, None));
    }
    if target.contains('#') {
        return Err(Rejection::bad_request("the request target has a fragment"));
    }
    let (authority, origin) = if target.starts_with('/') {
        (None, target)
    } else {
        let (scheme, rest) = target.split_once("://").unwrap_or_default();
        if !["http", "https", "dav", "davs"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(Rejection::bad_request("the request target is neither a path nor an http URL"));
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if !is_authority(authority) {
            return Err(Rejection::bad_request("the request target has no host, or a user's name in it"));
        }
        (Some(authority.to_owned()), rest)
    };
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (origin, None),
    };
    // Behind a host, no path is the root (RFC 9112, 3.2.1).
    let path = if path.is_empty() { "/" } else { path };
    Ok((Target::Resource { path: ResourcePath::parse(path)?, query }, authority))
}

/// True if it is a host, perhaps with a port, as a URL has them (RFC 3986, 3.2). Whether they are ours is not
/// decided here, but another reader may take something else for the host: no user's name stands there
/// (RFC 9110, 4.2.4), and there is one (4.2.1).
pub(crate) fn is_authority(text: &str) -> bool {
    let (is_host, port) = match text.strip_prefix('[').map(|bracketed| bracketed.split_once(']')) {
        Some(Some((address, port))) => (address.parse::<Ipv6Addr>().is_ok(), port),
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

/// Of what says where the body ends, one is taken, once, as every client writes it. Two equal lengths, or empty
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
    if codings.next().is_none() && coding.eq_ignore_ascii_case("chunked") {
        return Ok(RequestBody::Chunked);
    }
    let values = headers.all("transfer-encoding");
    let mut codings: Vec<&str> = values.flat_map(|value| value.split(',')).map(trim).collect();
    let is_chunked = |coding: &str| coding.eq_ignore_ascii_case("chunked");
    // RFC 9112, 6.3: where a body ends that is not in chunks at last cannot be told.
    if !codings.pop().is_some_and(is_chunked) {
        return Err(Rejection::bad_request("the last transfer coding of the request is not chunked"));
    }
    if codings.iter().any(|coding| coding.is_empty() || is_chunked(coding)) {
        return Err(Rejection::bad_request("the request's Transfer-Encoding is malformed, or chunked twice"));
    }
    Err(Rejection::new(Status::NOT_IMPLEMENTED, "the only transfer coding known is chunked"))
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
            ("GET http://[::g]/a HTTP/1.1", 400),
            ("GET /a HTTP/2.0", 505),
            ("GET /a HTTP/1.2", 505),
            ("GET /a HTTP/0.9", 505),
            ("GET /a HTTP/3", 400),
            ("GET /a HTTP/1.1.1", 400),
            ("GET /a HTTP/11.1", 400),
            ("GET /a HTTP/1.", 400),
            ("GET /a HTTP/a.b", 400),
            ("GET /a http/1.1", 400),
            ("GET /a FTP/1.1", 400),
            ("GET /a HTTP/1.1 x", 400),
            ("GET /a HTTP/2.0 ", 400),
            ("GET", 400),
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
            ("Transfer-Encoding: gzip\r\n", Err(400)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(501)),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(501)),
            ("Transfer-Encoding: chunked, gzip\r\n", Err(400)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", Err(400)),
            ("Transfer-Encoding: chunked;q=1\r\n", Err(400)),
            ("Transfer-Encoding: chunked, chunked\r\n", Err(400)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(400)),
            ("Transfer-Encoding: \x0bchunked\r\n", Err(400)),
            ("Transfer-Encoding:\r\n", Err(400)),
            ("Transfer-Encoding: chunked,\r\n", Err(400)),
            ("Transfer-Encoding: , chunked\r\n", Err(400)),
            ("Content-Length: 5\u{a0}\r\n", Err(400)),
            ("Content-Length: 5,\u{a0}5\r\n", Err(400)),
            ("Transfer-Encoding: \u{a0}chunked\r\n", Err(400)),
            ("Transfer-Encoding: chunked\u{85}\r\n", Err(400)),
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
    fn hosts() {
        let host = |value: &str| parse(&format!("GET /a HTTP/1.1\r\nHost: {value}\r\n\r\n"));
        for good in ["h", "h:1094", "h:", "a.b-c_d.example", "192.0.2.1:80", "[::1]", "[2001:db8::7]:1094"] {
            assert_eq!(host(good).unwrap().host(), Some(good));
        }
        for bad in [
            "", ":1094", "h/a", "u@h", "u:p@h", "h a", "h,k", "h:1:2", "h:port", "[::1", "[::1]a", "[::g]",
            "[]", "h?a", "h#a", "h\\a", "<h>", "\"h\"", "h%2fa", "http://h", "h\u{e9}",
        ] {
            let expected = if bad == "h,k" { None } else { Some(400) };
            assert_eq!(host(bad).err(), expected, "{bad:?}");
        }
        let old = |fields: &str| parse(&format!("GET /a HTTP/1.0\r\n{fields}\r\n"));
        assert_eq!(old("").unwrap().host(), None);
        assert_eq!(old("Host: u@h\r\n").err(), Some(400));
        // The one in a complete URL counts; the other has to be a host nevertheless.
        assert_eq!(with("GET http://k:1/a HTTP/1.1", "").unwrap().host(), Some("k:1"));
        assert_eq!(parse("GET http://k/a HTTP/1.1\r\nHost: u@h\r\n\r\n").err(), Some(400));
        assert_eq!(parse("GET http://k/a HTTP/1.1\r\n\r\n").err(), Some(400));
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
