//! Our reader of requests against hyper's: two programs in a row that disagree about where a request ends are
//! how requests are smuggled (RFC 9112, 11.2).
//!
//! The input is what a client sends on one connection. Both read it as a server does, request after request.
//! As long as both accept, they must see the same requests: method, target, version, body, and the same bytes
//! left over. Where one of them refuses, or ends the connection, while the other goes on, there must be a
//! reason in one of the tables below: whatever is in none of them is a finding. Refusing is always safe for
//! us; what we accept and hyper does not has to be shown to be harmless.
//!
//! Both take heads apart with httparse, so what that does wrong is not found here; what is made of its
//! fields, all the framing and the chunks are separate.

mod theirs;

use std::fmt;

use gridlane_dav::request::{RequestBody, RequestHead, Target};
use gridlane_dav::{Method, ResourcePath, Version};

use crate::heads::unchunk;

/// The requests that a server saw on a connection.
#[derive(Debug)]
struct Seen {
    requests: Vec<Request>,
    end: End,
}

#[derive(Clone, PartialEq, Eq)]
struct Request {
    method: String,
    target: Asked,
    is_http_10: bool,
    /// `None` when it did not come to its end.
    body: Option<Vec<u8>>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(|body| body.escape_ascii().to_string());
        let version = if self.is_http_10 { "1.0" } else { "1.1" };
        write!(f, "{} {:?} {version} {body:?}", self.method, self.target)
    }
}

/// The resource of a request, as far as both sides can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Resource(ResourcePath, Option<String>),
    /// `*`, or the authority of a CONNECT.
    Server,
}

/// Why there is no further request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The bytes end, behind a request or within one.
    Bytes,
    /// The connection is closed behind a request, with so many bytes unread.
    Closed(usize),
    /// The next bytes are refused.
    Refused(String),
}

/// The condition on a request for a line of a table to be about it.
type Likeness = fn(&RequestHead) -> bool;

/// Requests that we refuse and hyper takes: a beginning of our message, and why that is right.
const REFUSED_BY_US: &[(&str, &str)] = &[
    (
        "a line of the request head does not end in CRLF",
        "RFC 9112, 2.2, allows a bare LF, others do not see one",
    ),
    ("this is no HTTP request", "RFC 9112, 2.2: one empty line in front is skipped, and no other characters"),
    ("the request has too many empty lines in front", "RFC 9112, 2.2: at least one is skipped; two are here"),
    ("the request has no Host", "RFC 9112, 3.2, demands the 400"),
    ("the request has more than one Host", "RFC 9112, 3.2, demands the 400"),
    ("the Host is none", "RFC 9112, 3.2, demands the 400"),
    (
        "the request has more than one Content-Length",
        "RFC 9110, 8.6: equal ones may be taken, and need not be",
    ),
    ("the request has both Content-Length and Transfer-Encoding", "RFC 9112, 6.1: the way to smuggle"),
    ("the only transfer coding known is chunked", "hyper leaves other codings to the application"),
    ("the last transfer coding of the request is not chunked", "RFC 9112, 6.3, demands the 400"),
    ("the request's Transfer-Encoding is malformed", "RFC 9112, 6.1: chunked twice; and empty elements"),
    ("the only expectation known is 100-continue", "RFC 9110, 10.1.1, allows the 417"),
    ("only OPTIONS may ask about '*'", "RFC 9112, 3.2.4"),
    ("the request target", "RFC 9112, 3.2: hyper leaves targets to the application, and drops fragments"),
    ("the path", "paths that lead out or that no file has; hyper leaves them to the application"),
    ("the request line is longer", "a limit of ours"),
    ("the request head is longer", "a limit of ours"),
    ("a chunk size line of more than", "a limit of ours"),
    ("a trailer of more than", "a limit of ours"),
    ("a chunk size has no digits or too many", "more than sixteen digits, zeros in front included"),
    ("a chunk size is not a hexadecimal number", "characters that are no blanks behind a size"),
    (
        "a chunk extension is malformed",
        "hyper passes over extensions; RFC 9112, 7.1.1, has a grammar for them",
    ),
    ("a line of a chunked body does not end in CRLF", "a bare LF in a chunk extension or a trailer"),
];

/// Requests that hyper refuses and we take: a part of its message, the condition on the request, and why it is
/// harmless: in none of these does the framing depend on it.
const REFUSED_BY_THEM: &[(&str, Likeness, &str)] = &[
    ("invalid URI", has_odd_target, "clients send what should be encoded as it is; we know what is meant"),
    ("invalid URI", is_connect, "answered with 405 whatever it is about"),
    (
        "message head is too large",
        is_endless,
        "hyper keeps the two largest lengths for itself; nobody sends so much",
    ),
];

/// True where its path or query has a character that no URI has.
fn has_odd_target(head: &RequestHead) -> bool {
    let is_odd = |byte: &u8| b"<>`\"\\^{|}".contains(byte) || !byte.is_ascii_graphic();
    let Target::Resource { path, query } = &head.target else { return false };
    path.names().flatten().any(is_odd) || query.iter().flat_map(|query| query.as_bytes()).any(is_odd)
}

fn is_endless(head: &RequestHead) -> bool {
    matches!(head.body, RequestBody::Known(len) if len > u64::MAX - 2)
}

fn is_connect(head: &RequestHead) -> bool {
    head.method == Method::Other("CONNECT")
}

/// Where one side closes the connection behind a request and the other goes on: what the client sent behind
/// the request is read by one of them, and by none as part of another request. What the request is like, and why.
const CLOSED_BY_ONE: &[(Likeness, &str)] =
    &[(has_odd_connection, "hyper passes over a Connection field that is not all ASCII")];

fn has_odd_connection(head: &RequestHead) -> bool {
    head.headers.all("connection").any(|value| !value.is_ascii())
}

/// Compares what both see.
pub(crate) fn smuggling(data: &[u8]) {
    compare(data);
}

/// Compares what both see; returns how many requests they both took, body included.
///
/// # Panics
/// When they disagree in a way that is in none of the tables.
pub fn compare(data: &[u8]) -> usize {
    let (ours, heads) = ours(data);
    let theirs = theirs::read(data);
    check(&ours, &heads, &theirs);
    let complete = |seen: &Seen| seen.requests.iter().filter(|request| request.body.is_some()).count();
    complete(&ours).min(complete(&theirs))
}

fn check(ours: &Seen, heads: &[RequestHead], theirs: &Seen) {
    let shown = || format!("we: {ours:#?}\nhyper: {theirs:#?}");
    for index in 0.. {
        let pair = (ours.requests.get(index), theirs.requests.get(index));
        if let (Some(our), Some(their)) = pair {
            let (our_body, their_body) = (&our.body, &their.body);
            let same = (&our.method, &our.target, our.is_http_10)
                == (&their.method, &their.target, their.is_http_10);
            assert!(same, "two requests where one was sent\n{}", shown());
            match (our_body, their_body) {
                (Some(our_body), Some(their_body)) => {
                    assert!(our_body == their_body, "two bodies where one was sent\n{}", shown());
                    continue;
                }
                (None, None) => return,
                (None, Some(_)) => return check_our_refusal(&ours.end, &shown),
                (Some(_), None) => return check_their_end(theirs, heads, &shown),
            }
        }
        match pair {
            (Some(_), _) => return check_their_end(theirs, heads, &shown),
            (None, Some(_)) => match &ours.end {
                End::Closed(_) => return check_close(heads.last(), &shown),
                end => return check_our_refusal(end, &shown),
            },
            (None, None) => break,
        }
    }
    match (&ours.end, &theirs.end) {
        (End::Refused(_), End::Refused(_)) => {}
        (End::Refused(_), End::Bytes) => check_our_refusal(&ours.end, &shown),
        // We wait for the end of a head before we look at it: no request came of it on either side.
        (End::Bytes, End::Refused(_)) => {}
        (End::Closed(_), End::Refused(_) | End::Bytes) | (End::Refused(_) | End::Bytes, End::Closed(_)) => {
            check_close(heads.last(), &shown);
        }
        (ours, theirs) => assert!(ours == theirs, "the connection does not end alike\n{}", shown()),
    }
}

fn check_our_refusal(end: &End, shown: &impl Fn() -> String) {
    let is_known = match end {
        End::Refused(message) => REFUSED_BY_US.iter().any(|(known, _)| message.starts_with(known)),
        _ => false,
    };
    assert!(is_known, "hyper sees a request that we do not\n{}", shown());
}

/// hyper ends in front of a request, or within one, that we see.
fn check_their_end(seen: &Seen, heads: &[RequestHead], shown: &impl Fn() -> String) {
    let head = heads.get(seen.requests.iter().filter(|request| request.body.is_some()).count());
    let is_known = match (&seen.end, head) {
        (End::Closed(_), _) => return check_close(heads.get(seen.requests.len().wrapping_sub(1)), shown),
        (End::Refused(message), Some(head)) => {
            REFUSED_BY_THEM.iter().any(|(known, is, _)| message.contains(known) && is(head))
        }
        _ => false,
    };
    assert!(is_known, "we see a request that hyper does not\n{}", shown());
}

fn check_close(head: Option<&RequestHead>, shown: &impl Fn() -> String) {
    let is_known = head.is_some_and(|head| CLOSED_BY_ONE.iter().any(|(is, _)| is(head)));
    assert!(is_known, "one side closes the connection, the other does not\n{}", shown());
}

/// Reads a connection as `gridlane-front` does; returns the heads as well, one for each request.
fn ours(data: &[u8]) -> (Seen, Vec<RequestHead>) {
    let (mut requests, mut heads, mut rest) = (Vec::new(), Vec::<RequestHead>::new(), data);
    let end = loop {
        // Empty lines behind the last request are none.
        if rest.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            break End::Bytes;
        }
        if heads.last().is_some_and(|head| !head.keeps_alive) {
            break End::Closed(rest.len());
        }
        let (head, used) = match RequestHead::parse(rest) {
            Ok(Some(found)) => found,
            Ok(None) => break End::Bytes,
            Err(rejection) => break End::Refused(rejection.message.into_owned()),
        };
        rest = &rest[used..];
        let target = match &head.target {
            Target::Resource { path, query } => Asked::Resource(path.clone(), query.clone()),
            Target::Server => Asked::Server,
        };
        let method = head.method.name().to_owned();
        let is_http_10 = head.version == Version::Http10;
        let framing = head.body;
        heads.push(head);
        let mut request = Request { method, target, is_http_10, body: None };
        let (body, len) = match framing {
            RequestBody::Absent => (Vec::new(), 0),
            RequestBody::Known(len) => match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
                Some(body) => (body.to_vec(), body.len()),
                None => {
                    requests.push(request);
                    break End::Bytes;
                }
            },
            RequestBody::Chunked => {
                let read = unchunk(&[rest], false);
                match read.end {
                    Some(Ok((len, _))) => (read.body, len),
                    Some(Err(message)) => {
                        requests.push(request);
                        break End::Refused(message);
                    }
                    None => {
                        requests.push(request);
                        break End::Bytes;
                    }
                }
            }
        };
        request.body = Some(body);
        requests.push(request);
        rest = &rest[len..];
    };
    (Seen { requests, end }, heads)
}

/// The meaning of a request's target to us, from hyper's reading of it.
fn asked(method: &str, path: &str, query: Option<&str>) -> Option<Asked> {
    if path == "*" || Method::from_name(method) == Method::Other("CONNECT") {
        return Some(Asked::Server);
    }
    // `http://h` has an empty path to some.
    let path = if path.is_empty() { "/" } else { path };
    Some(Asked::Resource(ResourcePath::parse(path).ok()?, query.map(str::to_owned)))
}
