//! A file as an HTTP server shows it, and the answers it gives: right ones, from which tests make wrong ones.

use std::ops::Range;
use std::sync::Arc;

use gridlane_core::ChecksumKind;

use super::checksum;
use super::rogue::Request;

/// A file with what a server says about it.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) etag: Option<String>,
    /// The value of `Digest`, sent when it is wanted.
    pub(crate) digest: Option<String>,
}

impl Object {
    /// A file whose server says everything that helps, and says it truly.
    pub(crate) fn new(bytes: &Arc<Vec<u8>>) -> Object {
        let adler32 = checksum(ChecksumKind::Adler32, bytes).hex();
        Object {
            bytes: Arc::clone(bytes),
            etag: Some(format!("\"{adler32}\"")),
            digest: Some(format!("adler32={adler32}")),
        }
    }

    /// A file about which the server says nothing but its size.
    pub(crate) fn bare(bytes: &Arc<Vec<u8>>) -> Object {
        Object { bytes: Arc::clone(bytes), etag: None, digest: None }
    }

    /// The right answer to a GET or HEAD, with or without a range.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let size = self.bytes.len();
        let mut answer = match request.range {
            Some((first, _)) if first >= size as u64 => {
                Answer::status(416).header("Content-Range", format!("bytes */{size}"))
            }
            Some((first, last)) => {
                let (first, end) = (first as usize, last.map_or(size, |last| size.min(last as usize + 1)));
                let shown = format!("bytes {first}-{}/{size}", end - 1);
                Answer::status(206).header("Content-Range", shown).body(&self.bytes, first..end)
            }
            None => Answer::status(200).body(&self.bytes, 0..size),
        };
        answer = answer.header("Accept-Ranges", "bytes");
        if let Some(etag) = &self.etag {
            answer = answer.header("ETag", etag);
        }
        if let Some(digest) = self.digest.as_ref().filter(|_| request.header("want-digest").is_some()) {
            answer = answer.header("Digest", digest);
        }
        answer
    }

    /// The whole file, whatever range was asked for.
    pub(crate) fn answer_whole(&self, request: &Request) -> Answer {
        let mut whole = request.clone();
        whole.range = None;
        self.answer(&whole).without("Accept-Ranges")
    }
}

/// The fate of the connection after an answer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Then {
    Keep,
    Close,
    /// Stays open and silent until the peer or the test ends.
    Stall,
}

/// An answer; the default framing is a true `Content-Length`.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    bytes: Arc<Vec<u8>>,
    pub(crate) range: Range<usize>,
    /// Bytes of the body that are sent of those that the head promises.
    pub(crate) sent: usize,
    pub(crate) then: Then,
    pub(crate) framing: Framing,
}

/// The form in which the end of a body is shown.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    /// By closing the connection.
    Close,
    /// No head at all: the bytes are sent as they are.
    Raw,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            bytes: Arc::new(Vec::new()),
            range: 0..0,
            sent: 0,
            then: Then::Keep,
            framing: Framing::Length,
        }
    }

    /// Bytes instead of an HTTP answer.
    pub(crate) fn raw(bytes: Vec<u8>) -> Answer {
        let len = bytes.len();
        let mut answer = Answer::status(0).body(&Arc::new(bytes), 0..len).then(Then::Close);
        answer.framing = Framing::Raw;
        answer
    }

    /// A redirect.
    pub(crate) fn redirect(status: u16, to: &str) -> Answer {
        Answer::status(status).header("Location", to)
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<str>) -> Answer {
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Answer {
        self.headers.retain(|(found, _)| !found.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn body(mut self, bytes: &Arc<Vec<u8>>, range: Range<usize>) -> Answer {
        self.bytes = Arc::clone(bytes);
        self.sent = range.len();
        self.range = range;
        self
    }

    pub(crate) fn then(mut self, then: Then) -> Answer {
        self.then = then;
        self
    }

    pub(crate) fn framed(mut self, framing: Framing) -> Answer {
        self.framing = framing;
        if framing == Framing::Close {
            self.then = Then::Close;
        }
        self
    }

    /// Sends only so many bytes of the body that was promised.
    pub(crate) fn cut(mut self, sent: usize, then: Then) -> Answer {
        if sent < self.sent {
            self.sent = sent;
            self.then = then;
        }
        self
    }

    /// Sends nothing at or behind this place of the file.
    pub(crate) fn cut_at(self, place: usize, then: Then) -> Answer {
        let sent = place.saturating_sub(self.range.start);
        self.cut(sent, then)
    }

    /// The head as it goes over the wire.
    pub(crate) fn head(&self) -> Vec<u8> {
        if self.framing == Framing::Raw {
            return Vec::new();
        }
        let mut head = format!("HTTP/1.1 {} Told\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.framing {
            Framing::Length => head.push_str(&format!("Content-Length: {}\r\n", self.range.len())),
            Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::Close => head.push_str("Connection: close\r\n"),
            Framing::Raw => {}
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The part of the body that is sent.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.range.start..self.range.start + self.sent]
    }
}
