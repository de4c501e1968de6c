//! Reads of every kind: bytes of an open file, as messages.
//!
//! What is in the page cache is sent at once: small reads from a buffer, together with other answers; larger ones, of
//! which the length is promised in front of them, by `sendfile` or a buffer at a time, as one message of several
//! megabytes. What is not there is waited for by a task, a buffer at a time, each of them a message; meanwhile the
//! connection answers other requests.
//!
//! As in XRootD each read is of what is in the file now: one that grows can be followed, and one that is written to is
//! the reader's own business: it may ask for the checksum. A read fails when more of its answer was promised than is
//! there.
//!
//! Pages ([`Kind::Pages`]) are read to where they are sent from, with a gap for the checksum in front of each, which is
//! computed while they are in cache:
//!
//! ```text
//! 0        32   36
//! [message][crc][page][crc][page]…
//! ```

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use gridlane_core::limits;
use gridlane_net::Stream;
use gridlane_store::{Object, Part};
use gridlane_xrd::answer::StatusAnswer;
use gridlane_xrd::frame::{RESPONSE_HEAD_BYTES, ResponseHead};
use gridlane_xrd::pages::{self, CRC_BYTES, PAGE_BYTES};
use gridlane_xrd::request::Segment;
use gridlane_xrd::{ErrorCode, Handle, Request, RequestId, Status, StreamId};

use super::answer::{Failure, printable_path};
use super::delegation::Delegation;
use super::outbox::{Outbox, Pages};
use super::session_files::{Readable, SessionFiles};
use crate::client::Client;
use crate::metrics::Metrics;
use crate::transfer::{self, is_in_page_cache};
use gridlane_sys::ReusedBuf;

/// Plain reads up to this length are copied to where other answers are: a look at the page cache and a `sendfile` cost
/// about as much as a copy of this many bytes.
const COPIED_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of file that are read and encrypted at a time: they stay in the second-level cache.
const TLS_BYTES: usize = 64 * 1024;

/// Where bytes of a file begin in a buffer: behind room for the head of a message, and not just behind a page's begin.
const DATA_AT: usize = 64;

/// Bytes of the file between two borders that messages of pages do not cross.
const PAGES_BORDER: u64 = limits::ROOT_PAGES_MAX * PAGE_BYTES as u64;

/// The form in which bytes of a file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Without checksums.
    Plain,
    /// Each page behind its checksum.
    Pages,
}

/// Bytes of an open file that are still to be sent.
pub(crate) struct Source {
    // Dropped first: closing the file waits for the end of its users.
    object: Arc<dyn Object>,
    file: Arc<dyn Readable>,
    kind: Kind,
    at: u64,
    end: u64,
    /// Up to there they were seen in memory, a moment ago.
    seen_to: u64,
}

impl Source {
    /// Bytes of the file that are left.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Their number on the wire.
    pub(crate) fn wire_len(&self) -> u64 {
        match self.kind {
            Kind::Plain => self.left(),
            Kind::Pages => pages::framed_len(self.at, self.left()),
        }
    }

    /// True if they travel as pages with checksums.
    pub(crate) fn has_pages(&self) -> bool {
        self.kind == Kind::Pages
    }

    /// True if the kernel can move them.
    pub(crate) fn goes_directly(&self, is_tls: bool) -> bool {
        self.kind == Kind::Plain && !is_tls && self.object.as_file().is_some()
    }

    /// Lets the kernel move up to `step` bytes: `None` when they are not in memory, `Some(None)` when the socket is full.
    pub(crate) fn send_directly(
        &mut self,
        stream: &Stream,
        step: usize,
    ) -> io::Result<Option<Option<usize>>> {
        let Some(file) = self.object.as_file() else { return Ok(None) };
        if self.at + step as u64 > self.seen_to {
            if !is_in_page_cache(self.object.as_ref(), self.at, step)? {
                return Ok(None);
            }
            self.seen_to = self.at + step as u64;
        }
        match stream.try_send_file(file, self.at, step)? {
            Some(0) => Err(transfer::shrunk()),
            Some(count) => {
                self.at += count as u64;
                Ok(Some(Some(count)))
            }
            None => {
                self.forget_seen();
                Ok(Some(None))
            }
        }
    }

    /// The client may take long for what is in front of them: what was seen may be gone by then.
    pub(crate) fn forget_seen(&mut self) {
        self.seen_to = self.at;
    }

    /// Puts as much as fits into `buffer`, from `from` on; returns its place. `None` when it is not in memory.
    pub(crate) fn fill_nowait(&mut self, buffer: &mut [u8], from: usize) -> io::Result<Option<Range<usize>>> {
        match self.kind {
            Kind::Plain => self.fill_plain_nowait(buffer, from),
            Kind::Pages => self.fill_pages_nowait(buffer, from),
        }
    }

    /// The same, waiting as long as it takes.
    pub(crate) async fn fill_waiting(&mut self, buffer: &mut [u8], from: usize) -> io::Result<Range<usize>> {
        match self.kind {
            Kind::Plain => {
                let place = self.plain_place(buffer.len(), from);
                let mut part = [Part { offset: self.at, target: &mut buffer[place.clone()] }];
                if self.object.read_parts(&mut part).await? < place.len() {
                    return Err(transfer::shrunk());
                }
                self.at += place.len() as u64;
                Ok(place)
            }
            Kind::Pages => {
                let wanted = self.pages_wanted(buffer.len(), from);
                let mut parts = Vec::with_capacity(pages::count(self.at, wanted) as usize);
                let mut rest = &mut buffer[from..];
                for (offset, len) in pages::pages(self.at, wanted) {
                    let (unit, behind) = rest.split_at_mut(CRC_BYTES + len);
                    parts.push(Part { offset, target: &mut unit[CRC_BYTES..] });
                    rest = behind;
                }
                let done = self.object.read_parts(&mut parts).await? as u64;
                // Less than a page came where there has to be one.
                self.frame_pages(buffer, from, done, wanted)?.ok_or_else(transfer::shrunk)
            }
        }
    }

    /// Where bytes go that travel as they are.
    fn plain_place(&self, buffer_len: usize, from: usize) -> Range<usize> {
        let data_at = from.max(DATA_AT);
        let wanted = usize::try_from(self.left()).unwrap_or(usize::MAX).min(buffer_len - data_at);
        data_at..data_at + wanted
    }

    fn fill_plain_nowait(&mut self, buffer: &mut [u8], from: usize) -> io::Result<Option<Range<usize>>> {
        let Range { start, end } = self.plain_place(buffer.len(), from);
        let mut done = 0;
        while start + done < end {
            match self.object.read_at_nowait(&mut buffer[start + done..end], self.at + done as u64)? {
                None => break,
                Some(0) => return Err(transfer::shrunk()),
                Some(count) => done += count,
            }
        }
        if done == 0 {
            return Ok(None);
        }
        self.at += done as u64;
        Ok(Some(start..start + done))
    }

    /// Bytes of pages for which there is room.
    fn pages_wanted(&self, buffer_len: usize, from: usize) -> u64 {
        let page_at = (self.at % PAGE_BYTES as u64) as usize;
        // All but the first are whole, so that the next ones begin at a page.
        let room = (buffer_len - from) / pages::UNIT_BYTES * PAGE_BYTES - page_at;
        self.left().min(room as u64)
    }

    fn fill_pages_nowait(&mut self, buffer: &mut [u8], from: usize) -> io::Result<Option<Range<usize>>> {
        let wanted = self.pages_wanted(buffer.len(), from);
        let mut targets = Vec::with_capacity(pages::count(self.at, wanted) as usize);
        let mut rest = &mut buffer[from..];
        for (_, len) in pages::pages(self.at, wanted) {
            let (unit, behind) = rest.split_at_mut(CRC_BYTES + len);
            targets.push(IoSliceMut::new(&mut unit[CRC_BYTES..]));
            rest = behind;
        }
        match self.object.read_vectored_at_nowait(&mut targets, self.at)? {
            None => Ok(None),
            Some(done) => self.frame_pages(buffer, from, done as u64, wanted),
        }
    }

    /// Puts the checksums in front of the pages that were read; returns their place. `None` when there is none as a
    /// whole.
    fn frame_pages(
        &mut self,
        buffer: &mut [u8],
        from: usize,
        mut done: u64,
        wanted: u64,
    ) -> io::Result<Option<Range<usize>>> {
        if done == 0 {
            return Err(transfer::shrunk());
        }
        if done < wanted {
            // Only whole pages, and none that is cut.
            let page_at = self.at % PAGE_BYTES as u64;
            done = (page_at + done) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            done = done.saturating_sub(page_at);
            if done == 0 {
                return Ok(None);
            }
        }
        let mut to = from;
        for (_, len) in pages::pages(self.at, done) {
            let (crc, page) = buffer[to..to + CRC_BYTES + len].split_at_mut(CRC_BYTES);
            crc.copy_from_slice(&pages::crc(page).to_be_bytes());
            to += CRC_BYTES + len;
        }
        self.at += done;
        Ok(Some(from..to))
    }
}

/// A request, until it is answered.
pub(crate) struct Pending {
    pub(crate) stream: StreamId,
    pub(crate) request: Request,
    /// The client, once it was looked at.
    pub(crate) client: Option<Client>,
    /// Bytes that it had on the wire.
    pub(crate) len: usize,
    /// The time when it came.
    pub(crate) began: Instant,
    /// Bytes of the parts of its answer that were made already.
    pub(crate) parts_bytes: u64,
}

/// A request, and the reason why there is nothing to begin.
pub(crate) struct Refused {
    pub(crate) pending: Pending,
    pub(crate) failure: Failure,
}

/// A read that is being answered.
pub(crate) struct ReadJob {
    pub(crate) pending: Pending,
    source: Source,
    /// A part of the answer was sent.
    has_begun: bool,
    /// When it was asked for on another connection.
    pub(crate) delegation: Option<Delegation>,
}

/// The result of a step of a job.
pub(crate) enum Progress {
    /// A message was appended, and more will be.
    More,
    /// The last message was appended.
    Done,
    /// The next bytes have to be waited for.
    Cold,
}

impl ReadJob {
    /// `len` bytes from `offset`, or what there is of them.
    pub(crate) fn new(
        pending: Pending,
        file: Arc<dyn Readable>,
        kind: Kind,
        offset: u64,
        len: u32,
    ) -> Result<ReadJob, Box<Refused>> {
        let wanted_end = offset.saturating_add(len.into());
        let known = file.object().and_then(|object| {
            // A few bytes of what was there need no look at the length: if they are not there any longer, the answer is
            // short.
            let is_plain = kind == Kind::Plain && u64::from(len) <= COPIED_BYTES_MAX && !file.is_changing();
            let is_inside = is_plain && wanted_end <= object.metadata().size_bytes;
            let size_bytes = if is_inside { wanted_end } else { size_of(file.as_ref())? };
            Ok((Arc::clone(object), size_bytes))
        });
        let (object, size_bytes) = match known {
            Ok(known) => known,
            Err(failure) => return Err(Box::new(Refused { pending, failure })),
        };
        let end = wanted_end.min(size_bytes).max(offset);
        let source = Source { file, object, kind, at: offset, end, seen_to: offset };
        Ok(ReadJob { pending, source, has_begun: false, delegation: None })
    }

    /// True if the answer is a few bytes that can stand with others.
    pub(crate) fn is_small(&self) -> bool {
        self.source.left() <= COPIED_BYTES_MAX
    }

    /// True if a part of the answer was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The failure for the client.
    pub(crate) fn failure(&self, cause: &io::Error) -> Failure {
        failed(self.source.file.as_ref(), cause)
    }

    /// Counts what was appended since the file was there.
    pub(crate) fn count_since(&self, metrics: &Metrics, before: u64) {
        let bytes = self.source.at.saturating_sub(before);
        metrics.sent_of_files(bytes);
        self.source.file.count_read(bytes);
    }

    /// Where in the file it is.
    pub(crate) fn at(&self) -> u64 {
        self.source.at
    }

    /// Goes back to a place in the file: bytes from there on were read but not sent, and have to be read again.
    pub(crate) fn back_to(&mut self, at: u64) {
        self.source.at = at;
    }

    /// Appends the next message, if that needs no wait.
    pub(crate) fn step(&mut self, outbox: &mut Outbox, is_tls: bool) -> io::Result<Progress> {
        let left = self.source.left();
        if left == 0 {
            let head = self.head(0, self.source.at, true);
            self.begin_message(outbox, self.source.at);
            outbox.push(head.bytes());
            return Ok(Progress::Done);
        }
        let is_plain = self.source.kind == Kind::Plain;
        if is_plain && left <= COPIED_BYTES_MAX {
            return self.small(outbox, left as usize);
        }
        let begin = self.source.at;
        let stretch = match is_plain {
            true => left.min(limits::ROOT_READ_BYTES_MAX),
            false => left.min(PAGES_BORDER - begin % PAGES_BORDER),
        };
        if self.source.goes_directly(is_tls) {
            if !is_in_page_cache(self.source.object.as_ref(), begin, stretch as usize)? {
                return Ok(Progress::Cold);
            }
            self.source.seen_to = begin + stretch;
            let head = self.head(stretch, begin, stretch == left);
            outbox.begin();
            outbox.push(head.bytes());
            return Ok(self.rest(outbox, begin + stretch));
        }
        let mut buffer = outbox.lend();
        let whole_end = std::mem::replace(&mut self.source.end, begin + stretch);
        let limit = if is_tls && is_plain { DATA_AT + TLS_BYTES } else { buffer.len() };
        let filled = self.source.fill_nowait(&mut buffer[..limit], StatusAnswer::BYTES);
        self.source.end = whole_end;
        let Some(part) = filled? else { return Ok(Progress::Cold) };
        let rest = begin + stretch - self.source.at;
        let is_whole =
            rest == 0 || is_in_page_cache(self.source.object.as_ref(), self.source.at, rest as usize)?;
        let promised = if is_whole { begin + stretch } else { self.source.at };
        self.push_message(outbox, buffer, part, begin, promised);
        Ok(self.rest(outbox, promised))
    }

    /// Reads the next buffer, waiting as long as it takes.
    pub(crate) async fn read_waiting(&mut self, buffer: &mut [u8]) -> io::Result<(Range<usize>, u64)> {
        let begin = self.source.at;
        let whole_end = self.source.end;
        if self.source.kind == Kind::Pages {
            let border = begin + PAGES_BORDER - begin % PAGES_BORDER;
            self.source.end = whole_end.min(border);
        }
        let filled = self.source.fill_waiting(buffer, StatusAnswer::BYTES).await;
        self.source.end = whole_end;
        filled.map(|part| (part, begin))
    }

    /// Appends what was read, which began at `begin` in the file.
    pub(crate) fn push_read(
        &mut self,
        outbox: &mut Outbox,
        buffer: ReusedBuf,
        part: Range<usize>,
        begin: u64,
    ) -> Progress {
        self.push_message(outbox, buffer, part, begin, self.source.at);
        self.rest(outbox, self.source.at)
    }

    /// A plain read of a few bytes.
    fn small(&mut self, outbox: &mut Outbox, len: usize) -> io::Result<Progress> {
        let (stream, object, at) = (self.pending.stream, Arc::clone(&self.source.object), self.source.at);
        let Some(room) = outbox.room(RESPONSE_HEAD_BYTES + len) else { return Ok(Progress::Cold) };
        let (head, target) = room.split_at_mut(RESPONSE_HEAD_BYTES);
        let mut done = 0;
        while done < len {
            match object.read_at_nowait(&mut target[done..], at + done as u64) {
                Ok(Some(0)) => break,
                Ok(Some(count)) => done += count,
                Ok(None) => {
                    outbox.fill_room(0);
                    return Ok(Progress::Cold);
                }
                Err(cause) => {
                    outbox.fill_room(0);
                    return Err(cause);
                }
            }
        }
        // Less than that when the file has become shorter.
        head.copy_from_slice(&ResponseHead { stream, status: Status::OK, len: done as u32 }.encode());
        outbox.begin();
        outbox.fill_room(RESPONSE_HEAD_BYTES + done);
        self.source.at += done as u64;
        Ok(Progress::Done)
    }

    /// Puts the head of a message, whose bytes go from `begin` up to `promised` in the file, in front of its first
    /// bytes, and appends both.
    fn push_message(
        &self,
        outbox: &mut Outbox,
        mut buffer: ReusedBuf,
        part: Range<usize>,
        begin: u64,
        promised: u64,
    ) {
        let head = self.head(promised - begin, begin, promised == self.source.end);
        let from = part.start - head.bytes().len();
        buffer[from..part.start].copy_from_slice(head.bytes());
        self.begin_message(outbox, begin);
        outbox.push_buffer(buffer, from..part.end);
    }

    /// Begins a message whose bytes begin at `offset` in the file.
    fn begin_message(&self, outbox: &mut Outbox, offset: u64) {
        match self.source.kind {
            Kind::Plain => outbox.begin(),
            Kind::Pages => outbox.begin_pages(Pages::from(offset)),
        }
    }

    /// Appends what was promised up to there and is not read yet, and goes on behind it.
    fn rest(&mut self, outbox: &mut Outbox, promised: u64) -> Progress {
        self.has_begun = true;
        let is_last = promised == self.source.end;
        outbox.push_source(Source {
            file: Arc::clone(&self.source.file),
            object: Arc::clone(&self.source.object),
            kind: self.source.kind,
            at: self.source.at,
            end: promised,
            seen_to: self.source.seen_to,
        });
        self.source.at = promised;
        if is_last { Progress::Done } else { Progress::More }
    }

    /// The head of a message with `len` bytes of the file.
    fn head(&self, len: u64, offset: u64, is_last: bool) -> Head {
        match self.source.kind {
            Kind::Plain => {
                let status = if is_last { Status::OK } else { Status::OKSOFAR };
                Head::Plain(ResponseHead { stream: self.pending.stream, status, len: len as u32 }.encode())
            }
            Kind::Pages => Head::Pages(
                StatusAnswer {
                    stream: self.pending.stream,
                    request: RequestId::PGREAD,
                    is_partial: !is_last,
                    data_len: pages::framed_len(offset, len) as u32,
                    offset,
                }
                .encode(),
            ),
        }
    }
}

enum Head {
    Plain([u8; RESPONSE_HEAD_BYTES]),
    Pages([u8; StatusAnswer::BYTES]),
}

impl Head {
    fn bytes(&self) -> &[u8] {
        match self {
            Head::Plain(bytes) => bytes,
            Head::Pages(bytes) => bytes,
        }
    }
}

/// An open file, with its handle.
type Named = (Handle, Arc<dyn Readable>, Arc<dyn Object>);

/// Many reads that are being answered as one.
pub(crate) struct VectorJob {
    pub(crate) pending: Pending,
    segments: Vec<Segment>,
    /// The files that they name, each once.
    files: Vec<Named>,
    /// The next one.
    next: usize,
}

impl VectorJob {
    /// All or nothing: whatever is wrong with one of them is wrong with the request.
    pub(crate) fn new(
        pending: Pending,
        open: &impl SessionFiles,
        segments: Vec<Segment>,
    ) -> Result<VectorJob, Box<Refused>> {
        match VectorJob::files(open, &segments) {
            Ok(files) => Ok(VectorJob { pending, segments, files, next: 0 }),
            Err(failure) => Err(Box::new(Refused { pending, failure })),
        }
    }

    fn files(open: &impl SessionFiles, segments: &[Segment]) -> Result<Vec<Named>, Failure> {
        let mut files: Vec<Named> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        for segment in segments {
            if segment.len > limits::ROOT_VECTOR_ELEMENT_BYTES_MAX {
                let what = "Single readv transfer is too large";
                return Err(Failure::new(ErrorCode::NO_MEMORY, what));
            }
            let at = match files.iter().position(|(handle, ..)| *handle == segment.handle) {
                Some(at) => at,
                None => {
                    let file = open.readable(segment.handle, "readv")?;
                    sizes.push(size_of(file.as_ref())?);
                    let object = Arc::clone(file.object()?);
                    files.push((segment.handle, file, object));
                    files.len() - 1
                }
            };
            if segment.offset.saturating_add(segment.len.into()) > sizes[at] {
                let text = format!("Unable to readv {}; illegal seek", printable_path(files[at].1.path()));
                return Err(Failure::new(ErrorCode::FS_ERROR, text));
            }
        }
        Ok(files)
    }

    /// The failure for the client.
    pub(crate) fn failure(&self, cause: &io::Error) -> Failure {
        match self.segments.get(self.next).and_then(|segment| self.file(segment)) {
            Some((_, file, _)) => failed(file.as_ref(), cause),
            None => Failure::new(ErrorCode::IO_ERROR, transfer::failure_text(cause)),
        }
    }

    fn file(&self, segment: &Segment) -> Option<&Named> {
        self.files.iter().find(|(handle, ..)| *handle == segment.handle)
    }

    /// Appends the next message, if that needs no wait.
    pub(crate) fn step(&mut self, outbox: &mut Outbox) -> io::Result<Progress> {
        let mut buffer = outbox.lend();
        let end = self.fill_nowait(&mut buffer)?;
        if end > DATA_AT {
            return Ok(self.push_read(outbox, buffer, end));
        }
        // Nothing of the next one fits, or nothing of it is in memory.
        let Some(segment) = self.segments.get(self.next).copied() else { return Ok(Progress::Done) };
        let Some((_, file, object)) = self.file(&segment) else { return Ok(Progress::Done) };
        if Segment::BYTES + segment.len as usize <= buffer.len() - DATA_AT {
            return Ok(Progress::Cold);
        }
        let (file, object) = (Arc::clone(file), Arc::clone(object));
        let is_last = self.next + 1 == self.segments.len();
        let status = if is_last { Status::OK } else { Status::OKSOFAR };
        let len = Segment::BYTES as u32 + segment.len;
        outbox.begin();
        outbox.push(&ResponseHead { stream: self.pending.stream, status, len }.encode());
        outbox.push(&segment.encode());
        let (at, end) = (segment.offset, segment.offset + u64::from(segment.len));
        outbox.push_source(Source { file, object, kind: Kind::Plain, at, end, seen_to: at });
        self.next += 1;
        Ok(if is_last { Progress::Done } else { Progress::More })
    }

    /// Counts what was appended since this was the next one.
    pub(crate) fn count_since(&self, metrics: &Metrics, before: usize) {
        for (handle, file, _) in &self.files {
            let of_file = |segment: &&Segment| segment.handle == *handle;
            let done = self.segments[before..self.next].iter().filter(of_file);
            let bytes = done.map(|segment| u64::from(segment.len)).sum();
            metrics.sent_of_files(bytes);
            file.count_read(bytes);
        }
    }

    /// Which one is next.
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Reads as many as fit, waiting as long as it takes; where they end in the buffer. One call for those of one file that
    /// follow each other.
    pub(crate) async fn read_waiting(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut end = DATA_AT;
        while let Some(first) = self.segments.get(self.next).copied() {
            let Some((_, _, object)) = self.file(&first) else { break };
            let object = Arc::clone(object);
            let (mut parts, mut wanted, mut count) = (Vec::new(), 0, 0);
            let mut rest = &mut buffer[end..];
            let of_file = |segment: &&Segment| segment.handle == first.handle;
            for segment in self.segments[self.next..].iter().take_while(of_file) {
                let len = Segment::BYTES + segment.len as usize;
                let Some((unit, behind)) = rest.split_at_mut_checked(len) else { break };
                rest = behind;
                let (head, target) = unit.split_at_mut(Segment::BYTES);
                head.copy_from_slice(&segment.encode());
                (wanted, count, end) = (wanted + target.len(), count + 1, end + len);
                parts.push(Part { offset: segment.offset, target });
            }
            if count == 0 {
                break;
            }
            if object.read_parts(&mut parts).await? < wanted {
                return Err(transfer::shrunk());
            }
            self.next += count;
        }
        Ok(end)
    }

    fn fill_nowait(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut end = DATA_AT;
        'segments: while let Some(segment) = self.segments.get(self.next).copied() {
            let len = segment.len as usize;
            let Some((_, _, object)) = self.file(&segment) else { break };
            let data_at = end + Segment::BYTES;
            if data_at + len > buffer.len() {
                break;
            }
            buffer[end..data_at].copy_from_slice(&segment.encode());
            let mut done = 0;
            while done < len {
                let target = &mut buffer[data_at + done..data_at + len];
                match object.read_at_nowait(target, segment.offset + done as u64)? {
                    None => break 'segments,
                    Some(0) => return Err(transfer::shrunk()),
                    Some(count) => done += count,
                }
            }
            end = data_at + len;
            self.next += 1;
        }
        Ok(end)
    }

    /// Appends what was read, up to `end` in the buffer.
    pub(crate) fn push_read(&self, outbox: &mut Outbox, mut buffer: ReusedBuf, end: usize) -> Progress {
        let is_last = self.next == self.segments.len();
        let status = if is_last { Status::OK } else { Status::OKSOFAR };
        let len = (end - DATA_AT) as u32;
        let from = DATA_AT - RESPONSE_HEAD_BYTES;
        buffer[from..DATA_AT]
            .copy_from_slice(&ResponseHead { stream: self.pending.stream, status, len }.encode());
        outbox.begin();
        outbox.push_buffer(buffer, from..end);
        if is_last { Progress::Done } else { Progress::More }
    }
}

/// The length of a file at this moment.
fn size_of(file: &dyn Readable) -> Result<u64, Failure> {
    file.size_bytes().map_err(|error| Failure::of_store("read", file.path(), &error))
}

/// The failure for the client of a read.
fn failed(file: &dyn Readable, cause: &io::Error) -> Failure {
    let text = format!("Unable to read {}; {}", printable_path(file.path()), transfer::failure_text(cause));
    let mut failure = Failure::new(ErrorCode::IO_ERROR, text);
    failure.cause = Some(cause.to_string());
    failure
}
