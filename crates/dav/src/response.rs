//! Response heads, as a client reads them.
//!
//! Tolerant where servers of the grid are sloppy (header lines that end in a bare LF, as XRootD 5.5.3
//! sends), strict where a mistake would cost bytes: lengths, ranges and what ends the body.

use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, Error, ErrorKind, Result, limits};

use crate::etag::ETag;
use crate::header::Headers;
use crate::method::Version;
use crate::range::{ContentRange, OverlongRange, UnsatisfiedRange};
use crate::status::Status;
use crate::{date, digest, media_type};

/// The status line and header fields of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The outcome of the request.
    pub status: Status,
    /// The server's version of HTTP.
    pub version: Version,
    /// The fields.
    pub headers: Headers,
}

/// The end of a response's body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes follow; 0 when there is no body.
    Known(u64),
    /// Chunks follow: see [`crate::chunked`].
    Chunked,
    /// The body ends where the connection ends: nothing tells whether it is complete.
    UntilClose,
}

impl ResponseHead {
    /// Reads a head from the beginning of `bytes`. Returns it with the number of bytes it takes; `None`
    /// when more bytes are needed.
    ///
    /// Interim answers (1xx) are heads like others: the caller skips them.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>> {
        let mut fields = [httparse::EMPTY_HEADER; limits::RESPONSE_HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let used = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if bytes.len() < limits::RESPONSE_HEAD_BYTES_MAX => {
                return Ok(None);
            }
            Ok(httparse::Status::Partial) => {
                let max = limits::RESPONSE_HEAD_BYTES_MAX;
                return Err(protocol(format!("the response head is longer than {max} bytes")));
            }
            Err(httparse::Error::TooManyHeaders) => {
                let max = limits::RESPONSE_HEADERS_MAX;
                return Err(protocol(format!("the response head has more than {max} fields")));
            }
            Err(cause) => return Err(protocol(format!("the response head is malformed: {cause}"))),
        };
        let status = parsed
            .code
            .and_then(Status::new)
            .ok_or_else(|| protocol("the response has a status that is not of three digits"))?;
        let version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
        let headers = Headers::from_parsed(parsed.headers);
        Ok(Some((ResponseHead { status, version, headers }, used)))
    }

    /// The end of the body, given whether the request was HEAD.
    ///
    /// A message with both a length and a transfer coding, or with a coding that we did not ask for, is
    /// an error: where it ends is not certain.
    pub fn body_length(&self, request_was_head: bool) -> Result<BodyLength> {
        if request_was_head
            || self.status.is_informational()
            || matches!(self.status, Status::NO_CONTENT | Status::NOT_MODIFIED)
        {
            return Ok(BodyLength::Known(0));
        }
        let length = self.headers.content_length()?;
        let mut codings = self.headers.list("transfer-encoding");
        match (codings.next(), codings.next(), length) {
            (None, ..) if self.headers.contains("transfer-encoding") => {
                Err(protocol("the response has a transfer coding without a name"))
            }
            (None, _, Some(length)) => Ok(BodyLength::Known(length)),
            (None, _, None) => Ok(BodyLength::UntilClose),
            (Some(_), _, Some(_)) => Err(protocol("the response has a length and a transfer coding")),
            (Some(coding), None, None) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyLength::Chunked),
            (Some(coding), _, None) => Err(protocol(format!(
                "the response has the transfer coding {coding:?}, which was not asked for"
            ))),
        }
    }

    /// `Content-Length`; an error when it is no number or two numbers.
    pub fn content_length(&self) -> Result<Option<u64>> {
        self.headers.content_length()
    }

    /// True if the body comes in chunks.
    pub fn is_chunked(&self) -> bool {
        self.headers.has_token("transfer-encoding", "chunked")
    }

    /// `Content-Encoding` other than `identity`: the body is not the file's bytes.
    pub fn content_coding(&self) -> Option<&str> {
        self.headers.list("content-encoding").find(|coding| !coding.eq_ignore_ascii_case("identity"))
    }

    /// True if its server loses requests that come before it has begun to answer those in front of them: XRootD (5.5.3) looks
    /// for the next one at the socket and not among the bytes that it has read, and there it waits for ever.
    pub fn loses_requests(&self) -> bool {
        let is_xrootd = |name: &str| name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("xrootd"));
        self.headers.get("server").is_some_and(is_xrootd)
    }

    /// `Content-Range` of a 206; an error when it is there and cannot be read.
    pub fn content_range(&self) -> Result<Option<ContentRange>> {
        match self.headers.get("content-range") {
            None => Ok(None),
            Some(text) => match self.headers.single("content-range").and_then(ContentRange::parse) {
                Some(range) => Ok(Some(range)),
                None => Err(protocol(format!("Content-Range {text:?} cannot be read"))),
            },
        }
    }

    /// The file's size as a 206 tells it that announces more than there is.
    pub fn overlong_range(&self) -> Option<OverlongRange> {
        self.headers.single("content-range").and_then(OverlongRange::parse)
    }

    /// The file's size as a 416 tells it.
    pub fn unsatisfied_range(&self) -> Option<UnsatisfiedRange> {
        self.headers.single("content-range").and_then(UnsatisfiedRange::parse)
    }

    /// `ETag`, strong or weak; `None` when absent or malformed.
    pub fn etag(&self) -> Option<ETag> {
        self.headers.single("etag").and_then(ETag::parse)
    }

    /// `Last-Modified`.
    pub fn last_modified(&self) -> Option<SystemTime> {
        self.headers.single("last-modified").and_then(date::parse)
    }

    /// `Date`.
    pub fn date(&self) -> Option<SystemTime> {
        self.headers.single("date").and_then(date::parse)
    }

    /// `Accept-Ranges`: whether it promises or denies byte ranges; `None` when it says nothing.
    pub fn accepts_ranges(&self) -> Option<bool> {
        self.headers.contains("accept-ranges").then(|| self.headers.has_token("accept-ranges", "bytes"))
    }

    /// `Content-Type` without parameters, in lower case.
    pub fn media_type(&self) -> Option<String> {
        self.headers.get("content-type").map(media_type::of_field)
    }

    /// True if the connection may carry another request after this response (RFC 9112, 9.3).
    pub fn keeps_alive(&self) -> bool {
        match self.version {
            Version::Http11 => !self.headers.has_token("connection", "close"),
            Version::Http10 => self.headers.has_token("connection", "keep-alive"),
        }
    }

    /// Time for which the server keeps the connection open without a request: `timeout` of `Keep-Alive`, as Apache
    /// sends it (RFC 2068, 19.7.1.1).
    pub fn keep_alive_timeout(&self) -> Option<Duration> {
        self.headers.list("keep-alive").find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let seconds =
                value.trim().parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("timeout"))?;
            Some(Duration::from_secs(seconds))
        })
    }

    /// `Retry-After`, in seconds or as a date; a date counts from the response's own `Date`, or else
    /// from `now`.
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let text = self.headers.get("retry-after")?;
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Duration::from_secs);
        }
        let until = date::parse(text)?;
        Some(until.duration_since(self.date().unwrap_or(now)).unwrap_or(Duration::ZERO))
    }

    /// `Location`, as it stands: resolve it against the request's URL.
    pub fn location(&self) -> Option<&str> {
        self.headers.single("location").filter(|target| !target.is_empty())
    }

    /// The checksums in `Digest` and `Repr-Digest`: of the whole file, also on a 206. Trust them only
    /// when this very request asked for one: XRootD 5.5.3 leaks a stale one into later responses.
    pub fn digests(&self) -> Vec<Checksum> {
        let mut digests: Vec<Checksum> = self.headers.all("digest").flat_map(digest::decode).collect();
        digests.extend(self.headers.all("repr-digest").flat_map(digest::decode_repr));
        digests
    }

    /// The checksums in `Content-Digest` and `Content-MD5`: of the bytes of this message, whatever part of the file they
    /// are.
    pub fn content_digests(&self) -> Vec<Checksum> {
        digest::of_content(&self.headers)
    }
}

fn protocol(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ByteRange;
    use proptest::prelude::*;

    fn head(text: &str) -> ResponseHead {
        let (head, used) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(used, text.len());
        head
    }

    #[test]
    fn a_partial_answer() {
        let text = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-5/10\r\ncontent-length: 4\r\n\
                    ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nAccept-Ranges: bytes\r\n\
                    Digest: adler32=091E01DE\r\nContent-Type: Text/Plain; charset=utf-8\r\n\r\n";
        let head = head(text);
        assert_eq!(head.status, Status::PARTIAL_CONTENT);
        assert_eq!(
            head.content_range().unwrap(),
            Some(ContentRange { range: ByteRange::new(2, 6), size: Some(10) })
        );
        assert_eq!(head.body_length(false).unwrap(), BodyLength::Known(4));
        assert_eq!(head.body_length(true).unwrap(), BodyLength::Known(0));
        assert_eq!(head.etag(), ETag::strong("x"));
        assert_eq!(head.last_modified(), date::parse("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(head.accepts_ranges(), Some(true));
        assert_eq!(head.media_type().as_deref(), Some("text/plain"));
        assert_eq!(head.digests(), ["adler32:091e01de".parse().unwrap()]);
        assert!(head.keeps_alive());
        for cut in 0..text.len() {
            assert!(ResponseHead::parse(&text.as_bytes()[..cut]).unwrap().is_none(), "{cut}");
        }
    }

    #[test]
    fn xrootd_ends_some_lines_with_a_bare_lf() {
        let head = head("HTTP/1.1 200 OK\r\nConnection: Close\nContent-Length: 3\r\n\r\n");
        assert!(!head.keeps_alive());
        assert_eq!(head.content_length().unwrap(), Some(3));
    }

    #[test]
    fn what_ends_the_body() {
        let length = |fields: &str| head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).body_length(false).ok();
        assert_eq!(length(""), Some(BodyLength::UntilClose));
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Some(BodyLength::Chunked));
        assert_eq!(length("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), None);
        assert_eq!(length("Transfer-Encoding: gzip, chunked\r\n"), None);
        assert_eq!(length("Transfer-Encoding:\r\n"), None);
        assert_eq!(length("Transfer-Encoding: ,\r\nContent-Length: 3\r\n"), None);
        assert_eq!(length("Content-Length: 3\r\nContent-Length: 4\r\n"), None);
        assert_eq!(length("Content-Length: 3x\r\n"), None);
        let empty = head("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(empty.body_length(false).unwrap(), BodyLength::Known(0));
    }

    #[test]
    fn keeping_alive() {
        assert!(!head("HTTP/1.0 200 OK\r\n\r\n").keeps_alive());
        assert!(head("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n").keeps_alive());
        assert!(!head("HTTP/1.1 200 OK\r\nConnection: x, close\r\n\r\n").keeps_alive());
        let apache = head("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=99\r\n\r\n");
        assert_eq!(apache.keep_alive_timeout(), Some(Duration::from_secs(5)));
        assert_eq!(head("HTTP/1.1 200 OK\r\nKeep-Alive: max=9, x\r\n\r\n").keep_alive_timeout(), None);
    }

    #[test]
    fn waiting_as_asked() {
        let now = date::parse("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        let wait = |text: &str| head(&format!("HTTP/1.1 503 x\r\n{text}\r\n")).retry_after(now);
        assert_eq!(wait("Retry-After: 7\r\n"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), Some(Duration::from_secs(37)));
        assert_eq!(wait("Retry-After: Sun, 06 Nov 1994 08:40:00 GMT\r\n"), Some(Duration::ZERO));
        assert_eq!(
            wait("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:30 GMT\r\n"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(wait("Retry-After: soon\r\n"), None);
        assert_eq!(wait(""), None);
    }

    #[test]
    fn what_is_refused() {
        let many = "x: y\r\n".repeat(limits::RESPONSE_HEADERS_MAX + 1);
        let many = format!("HTTP/1.1 200 OK\r\n{many}\r\n");
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(limits::RESPONSE_HEAD_BYTES_MAX));
        for bad in [
            "HTTP/2 200\r\n\r\n",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 000 OK\r\n\r\n",
            &many,
            &long,
        ] {
            assert!(ResponseHead::parse(bad.as_bytes()).is_err(), "{bad:.60}");
        }
        assert!(head("HTTP/1.1 206 x\r\nContent-Range: bytes x\r\n\r\n").content_range().is_err());
    }

    #[test]
    fn servers_that_lose_requests() {
        for (server, loses) in [
            ("XrootD/v5.5.3", true),
            ("xrootd", true),
            ("nginx/1.22.1", false),
            ("gridlane/0.1.0", false),
            ("", false),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nServer: {server}\r\n\r\n");
            let (head, _) = ResponseHead::parse(head.as_bytes()).unwrap().unwrap();
            assert_eq!(head.loses_requests(), loses, "{server}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), begin: bool) {
            let mut input = if begin { b"HTTP/1.1 200 OK\r\n".to_vec() } else { Vec::new() };
            input.extend(bytes);
            if let Ok(Some((head, used))) = ResponseHead::parse(&input) {
                prop_assert!(used <= input.len());
                let _ = (head.body_length(false), head.content_range(), head.etag(), head.digests());
                let _ = (head.retry_after(SystemTime::UNIX_EPOCH), head.location(), head.media_type());
            }
        }
    }
}
