//! Reads on an open file over XRootD's protocol, many under way at once: sending them, waiting where the server asks for it,
//! pages with their checksums, and one retry for each wrong page. Knows nothing of what the bytes are for.
//!
//! Each read belongs to an order of the caller, by a number. The caller [sends](Reads::send), [waits](Reads::wait), has what
//! came [taken](Reads::take), looks at the [bytes](Reads::spans) that are right, and [settles](Reads::settle) when it has them.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gridlane_core::limits::{IO_BYTES, ROOT_WRONG_PAGES_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_peer::root::{Connection, MainStream, Next, OpenFile, SharedSession, SubStream, status_error};
use gridlane_peer::{Client, Renewal};
use gridlane_plan::Loss;
use gridlane_sys::ReusedBuf;
use gridlane_xrd::client::{Expect, Part, Said, Unpaging, VectorReader};
use gridlane_xrd::pages::PAGE_BYTES;
use gridlane_xrd::request::{PgRead, Query, Read, ReadV, Segment};
use gridlane_xrd::{Call, ErrorCode, PathId, QueryKind, StreamId};
use tokio::time::Instant;

use crate::lane::{End, bounded};
use crate::pace::Pace;

/// The limits that are asked for: bytes of an element, and elements.
const LIMITS: &str = "readv_ior_max readv_iov_max";
/// Bytes of the answer.
const LIMITS_BYTES_MAX: u64 = 1024;

pub(crate) type Step<T> = std::result::Result<T, End>;

/// What a read asks for.
pub(crate) enum Wanted {
    /// One range: with a checksum for each page, where the file has them.
    Range(ByteRange),
    /// Several ranges, ascending, without checksums.
    Vector(Vec<ByteRange>),
    /// The server's limits for vectors.
    Limits,
}

/// A read that was sent, or is to be sent again.
struct Chunk {
    stream: StreamId,
    /// The caller's order that it belongs to.
    of: u64,
    wanted: Wanted,
    /// Bytes of it that came, wrong ones included.
    came: u64,
    is_paged: bool,
    is_retry: bool,
    /// Takes the answer to a vector apart.
    vector: Option<VectorReader>,
    /// The answer about limits.
    text: Vec<u8>,
}

impl Chunk {
    fn new(of: u64, wanted: Wanted) -> Chunk {
        let (stream, came, is_paged, is_retry, vector, text) = Default::default();
        Chunk { stream, of, wanted, came, is_paged, is_retry, vector, text }
    }

    fn bytes(&self) -> u64 {
        match &self.wanted {
            Wanted::Range(range) => range.len(),
            Wanted::Vector(ranges) => ranges.iter().map(|range| range.len()).sum(),
            Wanted::Limits => 0,
        }
    }
}

/// The part of an answer whose bytes are being read.
struct Reading {
    part: Part,
    unpaging: Option<Unpaging>,
    /// Where the bytes in the buffer belong, without pages.
    at: u64,
}

/// Something that happened.
pub(crate) enum Came {
    /// Requests of substreams, to be sent.
    Others(Vec<u8>),
    /// An answer that came on the main stream for this substream.
    Elsewhere(StreamId, Said),
    /// The time of a read that was put off has come.
    Due,
    /// Another answer, or a part of one.
    Next(Result<Next>),
    /// Bytes of the part that began last.
    Bytes(Result<usize>),
}

/// Bytes in the buffer that are right, of one order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The order.
    pub(crate) of: u64,
    /// Where in the file they belong.
    pub(crate) offset: u64,
    from: usize,
    len: usize,
}

/// What became of an order.
pub(crate) enum Ended {
    /// A read of it has all its bytes.
    Done(u64),
    /// A read was answered with fewer bytes than it asked for.
    Short,
    /// The server has refused a read of it, and the connection goes on.
    Refused(u64, Error),
    /// The most elements that a vector may have, and the most bytes of one; `None` where it does not say.
    Limits(Option<usize>, Option<u64>),
}

/// See the module.
pub(crate) struct Reads {
    pub(crate) file: OpenFile,
    is_paged: bool,
    chunks: Vec<Chunk>,
    /// Reads that the server has put off.
    delayed: Vec<(Instant, Chunk)>,
    reading: Option<Reading>,
    buf: ReusedBuf,
    /// Bytes at the beginning of `buf` that are less than a page: with pages, raw ones.
    tail: usize,
    /// What was taken last, and the raw bytes behind it that are kept, until that is settled.
    spans: Vec<Span>,
    rest: Option<Range<usize>>,
    has_answered: bool,
    /// Wrong pages that came.
    wrong_pages: usize,
    /// The orders of pages that were asked for again: an end of a read is kept back for each.
    mended: Vec<u64>,
    /// Requests that have their numbers and are to be sent.
    output: Vec<u8>,
    main: Option<MainStream>,
    substream: Option<SubStream>,
    /// The session that other lanes' connections are bound to.
    shared: Weak<SharedSession>,
}

impl Reads {
    /// Reads on a file of which nothing else is under way; `main`: other connections may be bound to its session;
    /// `substream`: it is bound to one.
    pub(crate) fn new(file: OpenFile, main: Option<MainStream>, substream: Option<SubStream>) -> Reads {
        let is_paged = file.uses_pages();
        let shared = main.as_ref().map(MainStream::shared).unwrap_or_default();
        Reads {
            file,
            is_paged,
            chunks: Vec::new(),
            delayed: Vec::new(),
            reading: None,
            buf: ReusedBuf::new(IO_BYTES),
            tail: 0,
            spans: Vec::new(),
            rest: None,
            has_answered: false,
            wrong_pages: 0,
            mended: Vec::new(),
            output: Vec::new(),
            main,
            substream,
            shared,
        }
    }

    /// Reads under way, those that were put off included.
    pub(crate) fn under_way(&self) -> usize {
        self.chunks.len() + self.delayed.len()
    }

    /// True if a read is under way and nothing was ever answered.
    pub(crate) fn is_unheard(&self) -> bool {
        !self.has_answered && !self.chunks.is_empty()
    }

    /// The session that its connection is bound to.
    pub(crate) fn bound(&self) -> Option<&Arc<SharedSession>> {
        self.substream.as_ref().map(|substream| &substream.shared)
    }

    /// The connection broke.
    pub(crate) fn lost(&mut self) {
        self.file.lost();
    }

    /// Leaves the connection, which goes on for the substreams that it has.
    pub(crate) fn leave(self) {
        if let Some(main) = self.main.filter(MainStream::is_used) {
            tokio::spawn(main.carry(self.file));
        }
    }

    /// Has a read sent next.
    pub(crate) fn ask(&mut self, of: u64, wanted: Wanted) -> Step<()> {
        let is_paged = self.is_paged && matches!(wanted, Wanted::Range(_));
        self.read(Chunk { is_paged, ..Chunk::new(of, wanted) })
    }

    fn read(&mut self, mut chunk: Chunk) -> Step<()> {
        let (handle, path_id) = (self.file.handle(), self.file.session().path_id);
        let (mut request, expect) = match &chunk.wanted {
            Wanted::Range(range) => {
                // A read is never longer than the limit.
                let (offset, len, all) = (range.start(), range.len() as u32, range.len());
                match chunk.is_paged {
                    true => {
                        let is_retry = chunk.is_retry;
                        let read = PgRead { handle, offset, len, path_id, is_retry };
                        (read.to_bytes(StreamId::default()), Expect::Pages { offset, len: all })
                    }
                    false => {
                        let read = Read { handle, offset, len, path_id };
                        (read.to_bytes(StreamId::default()), Expect::Bytes { offset, len: all })
                    }
                }
            }
            Wanted::Vector(ranges) => {
                let segment =
                    |range: &ByteRange| Segment { handle, len: range.len() as u32, offset: range.start() };
                let segments: Vec<Segment> = ranges.iter().map(segment).collect();
                let bytes_max = chunk.bytes() + (segments.len() * Segment::BYTES) as u64;
                chunk.vector = Some(VectorReader::new(ranges.clone()));
                let read = ReadV { path_id: PathId::MAIN, segments };
                (read.to_bytes(StreamId::default()), Expect::Text { bytes_max })
            }
            Wanted::Limits => {
                let query = Query::new(QueryKind::CONFIG, LIMITS);
                (query.to_bytes(StreamId::default()), Expect::Text { bytes_max: LIMITS_BYTES_MAX })
            }
        };
        let numbered = self.connection()?.number(&mut request, expect);
        chunk.stream = numbered.map_err(|error| self.broken(error))?;
        self.output.append(&mut request);
        chunk.came = 0;
        self.chunks.push(chunk);
        Ok(())
    }

    /// Sends what was asked for.
    pub(crate) async fn send(&mut self) -> Step<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = match &self.substream {
            Some(substream) => substream.shared.send(output),
            None => self.connection()?.send_numbered(&output).await,
        };
        sent.map_err(|error| self.broken(error))
    }

    fn connection(&mut self) -> Step<&mut Connection> {
        self.file.connection().map_err(End::Local)
    }

    /// Waits for what happens next. May be dropped at any time.
    pub(crate) async fn wait(&mut self, pace: &Pace) -> Step<Came> {
        let due = self.delayed.iter().map(|(due, _)| *due).min();
        let later = tokio::time::sleep_until(due.unwrap_or_else(Instant::now));
        let is_used = self.main.as_ref().is_some_and(MainStream::is_used);
        let is_waiting = !self.chunks.is_empty() || is_used;
        let is_inside = self.reading.is_some();
        let room = pace.step_bytes(self.buf.len() - self.tail);
        let buf = &mut self.buf[self.tail..self.tail + room];
        let connection = self.file.connection().map_err(End::Local)?;
        let received = async {
            if is_inside {
                pace.ready().await;
                Came::Bytes(connection.read_data(buf).await)
            } else {
                Came::Next(connection.next().await)
            }
        };
        Ok(tokio::select! {
            biased;
            requests = others(&mut self.main) => Came::Others(requests),
            (stream, said) = elsewhere(&mut self.substream) => Came::Elsewhere(stream, said),
            () = later, if due.is_some() => Came::Due,
            came = received, if is_waiting => came,
            else => std::future::pending().await,
        })
    }

    /// Takes what has come; what it ends. Bytes that are right are in [`spans`](Reads::spans) until
    /// [`settle`](Reads::settle), which is to be called next.
    pub(crate) async fn take(&mut self, came: Came, pace: &Pace) -> Step<Option<Ended>> {
        match came {
            Came::Others(requests) => {
                let sent = self.connection()?.send_numbered(&requests).await;
                sent.map_err(|error| self.broken(error))?;
                Ok(None)
            }
            Came::Elsewhere(stream, said) => {
                self.connection()?.forget(stream);
                self.said(stream, said)
            }
            Came::Due => self.send_delayed().map(|()| None),
            Came::Next(next) => {
                let next = next.map_err(|error| self.broken(error))?;
                self.has_answered = true;
                match next {
                    Next::Part(part) => {
                        let unpaging = part.is_paged.then(|| Unpaging::new(part.offset, part.len));
                        self.reading = Some(Reading { part, unpaging, at: part.offset });
                        Ok(None)
                    }
                    Next::Said(stream, said) => self.said(stream, said),
                }
            }
            Came::Bytes(count) => {
                let count = count.map_err(|error| self.broken(error))?;
                pace.spend(count);
                self.bytes(count)?;
                Ok(None)
            }
        }
    }

    /// Bytes that are right, which came last.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The bytes of a span.
    pub(crate) fn of(&self, span: Span) -> &[u8] {
        &self.buf[span.from..span.from + span.len]
    }

    /// The caller has the bytes that came last: ends the part, and what ends with it.
    pub(crate) fn settle(&mut self) -> Step<Option<Ended>> {
        self.spans.clear();
        if let Some(rest) = self.rest.take() {
            self.tail = rest.len();
            self.buf.copy_within(rest, 0);
        }
        let left = self.connection()?.data_left();
        let Some(reading) = self.reading.take_if(|_| left == 0) else { return Ok(None) };
        if self.tail > 0 {
            return Err(self.dead("it sent a page that is not whole"));
        }
        if !reading.part.is_last {
            return Ok(None);
        }
        let Some(at) = self.chunks.iter().position(|chunk| chunk.stream == reading.part.stream) else {
            return Ok(None);
        };
        let chunk = self.chunks.swap_remove(at);
        if matches!(chunk.wanted, Wanted::Limits) {
            return Ok(Some(limits(&chunk.text)));
        }
        if chunk.came < chunk.bytes() {
            return Ok(Some(Ended::Short));
        }
        // As many ends are told as reads were asked for, the last one when all bytes are there.
        match self.mended.iter().position(|of| *of == chunk.of) {
            Some(kept) => {
                self.mended.swap_remove(kept);
                Ok(None)
            }
            None => Ok(Some(Ended::Done(chunk.of))),
        }
    }

    /// Sends the reads again whose time has come.
    fn send_delayed(&mut self) -> Step<()> {
        let now = Instant::now();
        while let Some(at) = self.delayed.iter().position(|(due, _)| *due <= now) {
            let (_, chunk) = self.delayed.swap_remove(at);
            self.read(chunk)?;
        }
        Ok(())
    }

    fn said(&mut self, stream: StreamId, said: Said) -> Step<Option<Ended>> {
        if matches!(said, Said::Later(_)) {
            return Ok(None);
        }
        // An answer to another request than a read: it was sent beside them, and its answer is not waited for.
        let Some(at) = self.chunks.iter().position(|chunk| chunk.stream == stream) else {
            if let Some(shared) = self.shared.upgrade() {
                shared.pass_on(stream, said);
            }
            return Ok(None);
        };
        let mut chunk = self.chunks.swap_remove(at);
        match said {
            Said::Later(_) => Ok(None),
            Said::Wait(wait) if chunk.came == 0 => {
                let wait = Duration::from_secs(u64::from(wait.seconds)).max(Duration::from_millis(100));
                self.delayed.push((Instant::now() + bounded(Some(wait)).unwrap_or_default(), chunk));
                Ok(None)
            }
            Said::Error(answer)
                if answer.code == ErrorCode::UNSUPPORTED && chunk.is_paged && chunk.came == 0 =>
            {
                (self.is_paged, chunk.is_paged) = (false, false);
                self.delayed.push((Instant::now(), chunk));
                Ok(None)
            }
            Said::Error(answer) => {
                let error = status_error(&answer).endpoint(&self.file.url);
                Ok(match chunk.wanted {
                    // Those of the reference hold.
                    Wanted::Limits => None,
                    _ => Some(Ended::Refused(chunk.of, error)),
                })
            }
            Said::Redirect(_) | Said::Wait(_) => {
                let message = "it redirects a read, or delays the rest of one, which is not supported";
                let error = Error::new(ErrorKind::Unsupported, message).endpoint(&self.file.url);
                Err(End::Lost(Loss::Failed, Some(error)))
            }
        }
    }

    /// Bytes of the part have come behind the tail.
    fn bytes(&mut self, count: usize) -> Step<()> {
        let raw = self.tail + count;
        let Some(reading) = &mut self.reading else { return Ok(()) };
        let stream = reading.part.stream;
        let at = self.chunks.iter().position(|chunk| chunk.stream == stream);
        if let Some(chunk) = at.and_then(|at| self.chunks.get_mut(at))
            && let Some(vector) = &mut chunk.vector
        {
            let (spans, of) = (&mut self.spans, chunk.of);
            let mut came = 0;
            let read = vector.read(&self.buf[..raw], |offset, part| {
                came += part.len() as u64;
                spans.push(Span { of, offset, from: part.start, len: part.len() });
            });
            chunk.came += came;
            self.rest = Some(raw..raw);
            return read.map_err(|wrong| self.dead(wrong.message));
        }
        if let Some(chunk) = at.and_then(|at| self.chunks.get_mut(at))
            && matches!(chunk.wanted, Wanted::Limits)
        {
            chunk.text.extend_from_slice(&self.buf[..raw]);
            self.rest = Some(raw..raw);
            return Ok(());
        }
        let offset = reading.at;
        let Some(unpaging) = &mut reading.unpaging else {
            // Taken up to where a page of the file ends, so that no page is written in two halves.
            let is_over = self.file.connection().map_err(End::Local)?.data_left() == 0;
            let behind = (offset + raw as u64) % PAGE_BYTES as u64;
            let rest = if is_over { 0 } else { raw.min(behind as usize) };
            reading.at += (raw - rest) as u64;
            self.span(at, offset, 0..raw - rest);
            self.rest = Some(raw - rest..raw);
            return Ok(());
        };
        let unpaged = unpaging.take(&mut self.buf[..raw]);
        let mut from = 0;
        for (page, len) in &unpaged.wrong {
            let before = (page - unpaged.offset) as usize;
            self.span(at, unpaged.offset + from as u64, from..before);
            self.mend(at, *page, *len)?;
            from = before + len;
        }
        self.span(at, unpaged.offset + from as u64, from..unpaged.len);
        self.rest = Some(unpaged.rest..raw);
        Ok(())
    }

    /// Notes bytes of the buffer that are right.
    fn span(&mut self, at: Option<usize>, offset: u64, part: Range<usize>) {
        if let Some(chunk) = at.and_then(|at| self.chunks.get_mut(at)).filter(|_| !part.is_empty()) {
            chunk.came += part.len() as u64;
            self.spans.push(Span { of: chunk.of, offset, from: part.start, len: part.len() });
        }
    }

    /// Asks for a page again that was not what its checksum says.
    fn mend(&mut self, at: Option<usize>, offset: u64, len: usize) -> Step<()> {
        let Some(chunk) = at.and_then(|at| self.chunks.get_mut(at)) else { return Ok(()) };
        self.wrong_pages += 1;
        if chunk.is_retry || self.wrong_pages > ROOT_WRONG_PAGES_MAX {
            let message = match chunk.is_retry {
                true => format!(
                    "a page of {len} bytes at {offset} came twice with bytes that are not what its checksum says"
                ),
                false => format!(
                    "more than {ROOT_WRONG_PAGES_MAX} pages came with bytes that are not what their checksum says"
                ),
            };
            let error = Error::new(ErrorKind::ChecksumMismatch, message).endpoint(&self.file.url);
            return Err(End::Dead { error, forget: false });
        }
        chunk.came += len as u64;
        let of = chunk.of;
        self.mended.push(of);
        let wanted = Wanted::Range(ByteRange::at(offset, len as u64));
        self.read(Chunk { is_paged: true, is_retry: true, ..Chunk::new(of, wanted) })
    }

    /// What a read that the server has refused means for the lane: where the credential of the session is refused, and there is
    /// another one now, a session that shows it may do.
    pub(crate) fn refused(&mut self, client: &Client, error: Error) -> End {
        let credentials = &client.credentials;
        let renewal = self.file.connection().map(|connection| connection.renewal(credentials, &error));
        match renewal.unwrap_or(Renewal::Same) {
            Renewal::Another => {
                // Nor does another lane join this one.
                self.shared.upgrade().iter().for_each(|shared| shared.refuse());
                self.file.lost();
                End::Lost(Loss::Ended, None)
            }
            renewal => refused(renewal.explain(error)),
        }
    }

    fn broken(&self, error: Error) -> End {
        let error = match error.endpoint_text() {
            Some(_) => error,
            None => error.endpoint(&self.file.url),
        };
        match error.kind() {
            ErrorKind::Protocol => End::Dead { error, forget: false },
            // Between two reads a server is free to close.
            _ if self.chunks.is_empty() && self.has_answered => End::Lost(Loss::Ended, None),
            _ => End::Lost(Loss::Failed, Some(error)),
        }
    }

    /// The bytes that the source sent do not count either.
    fn dead(&self, message: &str) -> End {
        let error = Error::new(ErrorKind::Protocol, message).endpoint(&self.file.url);
        End::Dead { error, forget: true }
    }
}

/// The limits that a server states: a line for each, in the order of [`LIMITS`]; for one that it does not know, its name.
fn limits(text: &[u8]) -> Ended {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.split('\n').map(|line| line.trim_matches([' ', '\0', '\r']).parse::<u64>().ok());
    let (element_bytes, elements) = (lines.next().flatten(), lines.next().flatten());
    Ended::Limits(elements.and_then(|count| usize::try_from(count).ok()), element_bytes)
}

/// The end of a lane whose read was refused.
fn refused(error: Error) -> End {
    match error.kind() {
        ErrorKind::Busy => End::Lost(Loss::Busy { wait: None }, Some(error)),
        ErrorKind::Denied | ErrorKind::Unsupported => End::Dead { error, forget: false },
        _ => End::Lost(Loss::Failed, Some(error)),
    }
}

/// Requests of substreams, if the session is shared. May be dropped at any time.
async fn others(main: &mut Option<MainStream>) -> Vec<u8> {
    match main {
        Some(main) => main.request().await,
        None => std::future::pending().await,
    }
}

/// An answer that came on the main stream for this substream. May be dropped at any time.
async fn elsewhere(substream: &mut Option<SubStream>) -> (StreamId, Said) {
    match substream {
        Some(substream) => substream.said().await,
        None => std::future::pending().await,
    }
}
