//! A lane over XRootD's protocol: a session with the file open, and reads on it, many under way at once. Where another
//! lane to the same server has one already, this one joins it (see `peer::root::SharedSession`), or if that fails
//! opens its own.
//!
//! What the plan asks for is cut into reads of a few megabytes. Their answers may overtake each other; the plan
//! counts bytes as those of its oldest request, so what is early is told of when its turn comes.
//!
//! Pages are compared with their checksums while they are in the cache, and moved together in the buffer that they came
//! into: one call reads many of them. A wrong page is asked for again, alone and once.

mod open;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gridlane_core::limits::{IO_BYTES, ROOT_READ_BYTES_MAX, ROOT_WRONG_PAGES_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_peer::root::{Connection, MainStream, Next, OpenFile, SharedSession, SubStream, status_error};
use gridlane_plan::Loss;
use gridlane_sys::ReusedBuf;
use gridlane_xrd::client::{Expect, Part, Said, Unpaging};
use gridlane_xrd::pages::PAGE_BYTES;
use gridlane_xrd::request::{PgRead, Read};
use gridlane_xrd::{Call, ErrorCode, StreamId};
use tokio::time::Instant;

use super::tally::{DELAY_MAX, Tally};
use super::{Command, Commands, End, Lane, bounded};
use crate::notice::Notice;

/// Reads under way on a connection: enough for a long path, and so few that a server need not set some aside.
const READS_AHEAD_MAX: usize = 16;

type Step<T> = std::result::Result<T, End>;

/// A range that the plan has asked for.
struct Requested {
    range: ByteRange,
    /// Where its next read begins.
    next: u64,
    /// Bytes that are not there yet.
    missing: u64,
    /// Bytes that came while an older request was under way, and how many of them were new.
    early: (u64, u64),
}

/// A read that was sent, or is to be sent again.
struct Chunk {
    stream: StreamId,
    /// Which of all that was asked for it belongs to.
    of: u64,
    range: ByteRange,
    /// Bytes of it that came, wrong ones included.
    came: u64,
    is_paged: bool,
    is_retry: bool,
}

/// The part of an answer whose bytes are being read.
struct Reading {
    part: Part,
    unpaging: Option<Unpaging>,
    /// Where the bytes in the buffer belong, without pages.
    at: u64,
}

/// An answer.
enum Came {
    Next(Result<Next>),
    Bytes(Result<usize>),
}

struct Reader<'a> {
    lane: &'a Lane,
    file: OpenFile,
    size_bytes: u64,
    is_paged: bool,
    asked: VecDeque<Requested>,
    /// Requests of the plan that are over.
    over: u64,
    chunks: Vec<Chunk>,
    /// Reads that the server has put off.
    delayed: Vec<(Instant, Chunk)>,
    reading: Option<Reading>,
    buf: ReusedBuf,
    /// Bytes at the beginning of `buf` that are less than a page: with pages, raw ones.
    tail: usize,
    tally: Tally,
    has_answered: bool,
    /// Wrong pages that came.
    wrong_pages: usize,
    /// Requests that have their numbers and are to be sent.
    output: Vec<u8>,
    /// The session that other lanes' connections are bound to.
    shared: Weak<SharedSession>,
    /// The session that its connection is bound to.
    bound: Option<Arc<SharedSession>>,
}

pub(super) async fn run(lane: &Lane, commands: &mut Commands) -> End {
    let mut early = VecDeque::new();
    let (file, mut main, mut substream) = match open::open(lane, commands, &mut early).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let size_bytes = file.stat.as_ref().map_or(0, |stat| stat.size_bytes);
    let is_paged = file.uses_pages();
    let mut reader = Reader {
        lane,
        file,
        size_bytes,
        is_paged,
        asked: VecDeque::new(),
        over: 0,
        chunks: Vec::new(),
        delayed: Vec::new(),
        reading: None,
        buf: ReusedBuf::new(IO_BYTES),
        tail: 0,
        tally: Tally::default(),
        has_answered: false,
        wrong_pages: 0,
        output: Vec::new(),
        shared: main.as_ref().map(MainStream::shared).unwrap_or_default(),
        bound: substream.as_ref().map(|substream| substream.shared.clone()),
    };
    early.into_iter().for_each(|range| reader.ask(range));
    let end = match reader.run(commands, &mut main, &mut substream).await {
        Ok(()) => End::Lost(Loss::Closed, None),
        Err(end) => end,
    };
    reader.tally.tell(lane);
    if matches!(end, End::Lost(Loss::Failed, _)) {
        // Another lane may be led elsewhere.
        lane.source.set_resolved(None);
        reader.file.lost();
    }
    if let Some(shared) = &reader.bound
        && (!matches!(end, End::Lost(Loss::Closed, _)) || !reader.has_answered && !reader.chunks.is_empty())
    {
        // The cause is unknown; the next lane has a session of its own.
        lane.source.refuse(shared);
    }
    if let Some(main) = main.filter(MainStream::is_used)
        && matches!(end, End::Lost(Loss::Closed, _))
    {
        tokio::spawn(main.carry(reader.file));
    }
    end
}

impl Reader<'_> {
    async fn run(
        &mut self,
        commands: &mut Commands,
        main: &mut Option<MainStream>,
        substream: &mut Option<SubStream>,
    ) -> Step<()> {
        let timer = tokio::time::sleep(DELAY_MAX);
        tokio::pin!(timer);
        loop {
            self.send().await?;
            let due = self.delayed.iter().map(|(due, _)| *due).min();
            let later = tokio::time::sleep_until(due.unwrap_or_else(Instant::now));
            let is_used = main.as_ref().is_some_and(MainStream::is_used);
            let is_waiting = !self.chunks.is_empty() || is_used;
            let came = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Request(range)) => {
                        self.ask(range);
                        continue;
                    }
                    Some(Command::Ask) => continue,
                    Some(Command::Close) | None => return Ok(()),
                },
                () = &mut timer, if !self.tally.is_empty() => {
                    self.tally.tell(self.lane);
                    continue;
                }
                requests = others(main) => {
                    let sent = self.connection()?.send_numbered(&requests).await;
                    sent.map_err(|error| self.broken(error))?;
                    continue;
                }
                (stream, said) = elsewhere(substream) => {
                    self.connection()?.forget(stream);
                    self.said(stream, said)?;
                    continue;
                }
                () = later, if due.is_some() => {
                    self.send_delayed()?;
                    continue;
                }
                came = self.receive(), if is_waiting => came?,
            };
            match came {
                Came::Next(next) => self.begin(next.map_err(|error| self.broken(error))?)?,
                Came::Bytes(count) => {
                    let count = count.map_err(|error| self.broken(error))?;
                    if self.tally.is_empty() {
                        timer.as_mut().reset(Instant::now() + DELAY_MAX);
                    }
                    self.take(count).await?;
                    if self.tally.is_empty() {
                        // As long as bytes are there already, nothing here ever waits: let the run have its turn.
                        tokio::task::yield_now().await;
                    }
                }
            }
            self.finish()?;
        }
    }

    /// Takes an order.
    fn ask(&mut self, range: ByteRange) {
        let range = range.intersection(ByteRange::new(0, self.size_bytes));
        self.asked.push_back(Requested { range, next: range.start(), missing: range.len(), early: (0, 0) });
        // Nothing to wait for.
        self.settle();
    }

    /// Sends as many reads as may be under way.
    async fn send(&mut self) -> Step<()> {
        let mut at = 0;
        while self.chunks.len() + self.delayed.len() < READS_AHEAD_MAX {
            let Some(asked) = self.asked.get_mut(at) else { break };
            if asked.next >= asked.range.end() {
                at += 1;
                continue;
            }
            // Cut where files are cut: a page is never asked for in two halves.
            let border = (asked.next / ROOT_READ_BYTES_MAX + 1) * ROOT_READ_BYTES_MAX;
            let range = ByteRange::new(asked.next, border.min(asked.range.end()));
            asked.next = range.end();
            let (of, is_paged) = (self.over + at as u64, self.is_paged);
            let stream = StreamId::default();
            self.read(Chunk { stream, of, range, came: 0, is_paged, is_retry: false })?;
        }
        self.flush().await
    }

    /// Sends what is to be sent.
    async fn flush(&mut self) -> Step<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = match &self.bound {
            Some(shared) => shared.send(output),
            None => self.connection()?.send_numbered(&output).await,
        };
        sent.map_err(|error| self.broken(error))
    }

    fn connection(&mut self) -> Step<&mut Connection> {
        self.file.connection().map_err(End::Local)
    }

    /// Has a read sent next.
    fn read(&mut self, mut chunk: Chunk) -> Step<()> {
        let (handle, range, path_id) = (self.file.handle(), chunk.range, self.file.session().path_id);
        // A read is never longer than the limit.
        let (offset, len) = (range.start(), range.len() as u32);
        let (mut request, expect) = match chunk.is_paged {
            true => {
                let is_retry = chunk.is_retry;
                let read = PgRead { handle, offset, len, path_id, is_retry };
                (read.to_bytes(StreamId::default()), Expect::Pages { offset, len: range.len() })
            }
            false => {
                let read = Read { handle, offset, len, path_id };
                (read.to_bytes(StreamId::default()), Expect::Bytes { offset, len: range.len() })
            }
        };
        let numbered = self.connection()?.number(&mut request, expect);
        chunk.stream = numbered.map_err(|error| self.broken(error))?;
        self.output.append(&mut request);
        chunk.came = 0;
        self.chunks.push(chunk);
        Ok(())
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

    /// Waits for the next part, or for bytes of this one. May be dropped at any time.
    async fn receive(&mut self) -> Step<Came> {
        let is_inside = self.reading.is_some();
        if is_inside {
            self.lane.pace.ready().await;
        }
        let room = self.lane.pace.step_bytes(self.buf.len() - self.tail);
        let buf = &mut self.buf[self.tail..self.tail + room];
        let connection = self.file.connection().map_err(End::Local)?;
        Ok(match is_inside {
            true => Came::Bytes(connection.read_data(buf).await),
            false => Came::Next(connection.next().await),
        })
    }

    /// An answer begins.
    fn begin(&mut self, next: Next) -> Step<()> {
        self.has_answered = true;
        match next {
            Next::Part(part) => {
                let unpaging = part.is_paged.then(|| Unpaging::new(part.offset, part.len));
                self.reading = Some(Reading { part, unpaging, at: part.offset });
                Ok(())
            }
            Next::Said(stream, said) => self.said(stream, said),
        }
    }

    fn said(&mut self, stream: StreamId, said: Said) -> Step<()> {
        if matches!(said, Said::Later(_)) {
            return Ok(());
        }
        // An answer to another request than a read: it was sent beside them, and its answer is not waited for.
        let Some(at) = self.chunks.iter().position(|chunk| chunk.stream == stream) else {
            if let Some(shared) = self.shared.upgrade() {
                shared.pass_on(stream, said);
            }
            return Ok(());
        };
        let mut chunk = self.chunks.swap_remove(at);
        match said {
            Said::Later(_) => Ok(()),
            Said::Wait(wait) if chunk.came == 0 => {
                let wait = Duration::from_secs(u64::from(wait.seconds)).max(Duration::from_millis(100));
                self.delayed.push((Instant::now() + bounded(Some(wait)).unwrap_or_default(), chunk));
                Ok(())
            }
            Said::Error(answer)
                if answer.code == ErrorCode::UNSUPPORTED && chunk.is_paged && chunk.came == 0 =>
            {
                (self.is_paged, chunk.is_paged) = (false, false);
                self.delayed.push((Instant::now(), chunk));
                Ok(())
            }
            Said::Error(answer) => {
                let error = status_error(&answer).endpoint(&self.file.url);
                Err(match error.kind() {
                    ErrorKind::Busy => End::Lost(Loss::Busy { wait: None }, Some(error)),
                    ErrorKind::Denied | ErrorKind::Unsupported => End::Dead { error, forget: false },
                    _ => End::Lost(Loss::Failed, Some(error)),
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
    async fn take(&mut self, count: usize) -> Step<()> {
        self.lane.pace.spend(count);
        let Some(reading) = &mut self.reading else { return Ok(()) };
        let (stream, offset) = (reading.part.stream, reading.at);
        let raw = self.tail + count;
        let Some(unpaging) = &mut reading.unpaging else {
            // Written up to where a page of the file ends, so that no page is written in two halves.
            let is_over = self.file.connection().map_err(End::Local)?.data_left() == 0;
            let behind = (offset + raw as u64) % PAGE_BYTES as u64;
            let rest = if is_over { 0 } else { raw.min(behind as usize) };
            reading.at += (raw - rest) as u64;
            self.write(stream, offset, 0, raw - rest).await?;
            self.buf.copy_within(raw - rest..raw, 0);
            self.tail = rest;
            return Ok(());
        };
        let unpaged = unpaging.take(&mut self.buf[..raw]);
        let mut from = 0;
        for (page, len) in &unpaged.wrong {
            let before = (page - unpaged.offset) as usize;
            self.write(stream, unpaged.offset + from as u64, from, before - from).await?;
            self.mend(stream, *page, *len)?;
            from = before + len;
        }
        self.write(stream, unpaged.offset + from as u64, from, unpaged.len - from).await?;
        self.buf.copy_within(unpaged.rest..raw, 0);
        self.tail = raw - unpaged.rest;
        Ok(())
    }

    /// Writes bytes of the buffer where they belong.
    async fn write(&mut self, stream: StreamId, offset: u64, from: usize, count: usize) -> Step<()> {
        if count == 0 {
            return Ok(());
        }
        let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.stream == stream) else { return Ok(()) };
        chunk.came += count as u64;
        let of = chunk.of;
        let lane = self.lane;
        let bytes = &self.buf[from..from + count];
        if lane.target.size_bytes().is_some_and(|size_bytes| offset + count as u64 > size_bytes) {
            return Err(dead(lane, Error::new(ErrorKind::Protocol, "it sent more bytes than the file has")));
        }
        let written = lane.target.write(lane.id, lane.source.number, bytes, offset).await;
        let (bytes, fresh_bytes) = (count as u64, written.map_err(End::Local)?);
        let Some(asked) = of.checked_sub(self.over).and_then(|at| self.asked.get_mut(at as usize)) else {
            return Ok(());
        };
        asked.missing = asked.missing.saturating_sub(bytes);
        match of == self.over {
            true => self.tally.add(lane, bytes, fresh_bytes),
            false => asked.early = (asked.early.0 + bytes, asked.early.1 + fresh_bytes),
        }
        Ok(())
    }

    /// Asks for a page again that was not what its checksum says.
    fn mend(&mut self, stream: StreamId, offset: u64, len: usize) -> Step<()> {
        let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.stream == stream) else { return Ok(()) };
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
        let range = ByteRange::at(offset, len as u64);
        self.read(Chunk { stream, of, range, came: 0, is_paged: true, is_retry: true })
    }

    /// Ends the part, and what ends with it.
    fn finish(&mut self) -> Step<()> {
        let left = self.connection()?.data_left();
        let Some(reading) = self.reading.take_if(|_| left == 0) else { return Ok(()) };
        if self.tail > 0 {
            let error = Error::new(ErrorKind::Protocol, "it sent a page that is not whole");
            return Err(dead(self.lane, error));
        }
        if !reading.part.is_last {
            return Ok(());
        }
        let Some(at) = self.chunks.iter().position(|chunk| chunk.stream == reading.part.stream) else {
            return Ok(());
        };
        let chunk = self.chunks.swap_remove(at);
        if chunk.came < chunk.range.len() {
            // Reads end early where the file does.
            return Err(self.lane.changed("it was longer when it was opened"));
        }
        self.settle();
        if let Some(path) = self.file.path() {
            self.lane.tell_path(&path);
        }
        Ok(())
    }

    /// Tells of requests that are over, oldest first.
    fn settle(&mut self) {
        while let Some(asked) = self.asked.front_mut() {
            let (bytes, fresh_bytes) = std::mem::take(&mut asked.early);
            if bytes > 0 {
                self.tally.add(self.lane, bytes, fresh_bytes);
            }
            if asked.missing > 0 {
                return;
            }
            self.tally.tell(self.lane);
            self.asked.pop_front();
            self.over += 1;
            self.lane.tell(Notice::RequestDone { lane: self.lane.id });
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

/// The bytes that the source sent do not count either.
fn dead(lane: &Lane, error: Error) -> End {
    End::Dead { error: error.endpoint(&lane.source.url), forget: true }
}
