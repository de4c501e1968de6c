//! The data plane of a GET: bytes of an object to a stream, in a plain loop.
//!
//! Without TLS, and where the object is a file, the kernel moves the bytes (`sendfile`): no copy into this process.
//! `sendfile` of bytes that are not in the page cache would wait for the disk on a thread that serves other clients, so
//! each step first asks without waiting for a byte of every 128 KiB of it; if one would wait, the step is waited for
//! and sent from the buffer it is then in.
//!
//! With TLS the bytes have to pass through this process anyway: 64 KiB at a time, read to where they are encrypted in place,
//! while they are in the second-level cache.
//!
//! Small parts of a file, and bytes that go in chunks, are put together by [`crate::gather`] first.
//!
//! A client that takes bytes faster than they are sent never makes a loop wait, so each step also asks the runtime if
//! it is another task's turn.
//!
//! A file that turns out shorter than it was ends the connection: the client was promised a length, and padding would
//! be a lie. So does one that was written to: when the last byte was read, and before it is sent, one `fstat` tells if
//! the bytes may be a mixture, and a client that misses the end will not take them for the file. That look would say
//! nothing of a page that `sendfile` has put into the socket and that changes before it is on its way: so what was
//! changed a moment ago is copied and not sent by the kernel, and of every other large answer the end is
//! ([`COPIED_TAIL_BYTES_MAX`](limits::COPIED_TAIL_BYTES_MAX)). docs/reference/http.md says what that leaves.
//!
//! The deadlines of a client are in [`Patience`].

use std::fs::File;
use std::future::Future;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use gridlane_core::{ByteRange, limits};
use gridlane_net::Stream;
use gridlane_store::Object;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::data::DataPath;
use crate::pieces::Pieces;
use crate::settings::Deadlines;
use crate::throttle::Paces;

/// Bytes of one `sendfile` step, between two looks at the page cache.
const SENDFILE_BYTES: usize = 512 * 1024;

/// Distance of the bytes that a look at the page cache asks for: the kernel's usual read-ahead.
const PROBE_BYTES: usize = 128 * 1024;

/// Bytes encrypted at a time.
const TLS_BYTES: usize = 64 * 1024;

/// Sends the payload of one answer.
pub(crate) struct Sender<'a> {
    pub(crate) data: &'a DataPath,
    stream: &'a mut Stream,
    patience: Patience,
    /// The file system has made us wait, and may do so again.
    pub(crate) has_waited: bool,
    /// Bytes sent, also when it fails half-way.
    sent: &'a mut u64,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(data: &'a DataPath, stream: &'a mut Stream, sent: &'a mut u64) -> Sender<'a> {
        Sender { data, stream, patience: Patience::new(&data.deadlines), has_waited: false, sent }
    }

    /// Sends `range` of `object`.
    pub(crate) async fn send_object(&mut self, object: &dyn Object, range: ByteRange) -> io::Result<()> {
        let file = object.as_file().filter(|_| !self.stream.is_tls());
        // From here on bytes are copied, and cannot change any more.
        let mut copied_from = match file {
            Some(_) if is_at_rest(object) => range.end() - tail_bytes(range.len()),
            _ => range.start(),
        };
        let mut at = range.start();
        while at < range.end() {
            let left = usize::try_from(range.end() - at).unwrap_or(usize::MAX);
            let direct = usize::try_from(copied_from.saturating_sub(at)).unwrap_or(usize::MAX);
            // What is reserved of a rate limit must also be sent, and a buffer may be all that a step can use.
            let step = match (direct, &self.data.pace) {
                (0, _) => left.min(limits::IO_BYTES),
                (_, None) => direct.min(SENDFILE_BYTES),
                (_, Some(_)) => direct.min(limits::IO_BYTES),
            };
            let step = match &self.data.pace {
                Some(pace) => pace.ready(step).await,
                None => step,
            };
            let is_paced = self.data.pace.is_some();
            let moved = match file.filter(|_| direct > 0 && (step < left || !is_paced)) {
                Some(file) if is_in_page_cache(object, at, step)? => match step < left {
                    true => self.send_file_step(file, at, step).await?,
                    // The last look, and at once all that there is. What the socket has no room for has to wait, and is copied.
                    false => {
                        self.check_unchanged(object).await?;
                        let moved = self.send_file_at_once(file, at, step).await?;
                        copied_from = at + moved as u64;
                        moved
                    }
                },
                _ => self.send_buffered_step(object, Step { at, len: step }, range.end()).await?,
            };
            at += moved as u64;
        }
        Ok(())
    }

    /// Fails when the bytes read so far may be a mixture of those that the file had and those it has now.
    pub(crate) async fn check_unchanged(&self, object: &dyn Object) -> io::Result<()> {
        if is_unchanged(object, self.has_waited).await { Ok(()) } else { Err(changed()) }
    }

    /// Writes all of `bytes`, as fast as the rate limit lets it.
    pub(crate) async fn write_paced(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let step = match &self.data.pace {
                Some(pace) => pace.ready(bytes.len()).await,
                None => bytes.len(),
            };
            let (now, later) = bytes.split_at(step);
            write(self.stream, now, &mut self.patience, self.sent).await?;
            bytes = later;
        }
        Ok(())
    }

    /// Sends as much as the socket has room for now.
    async fn send_file_at_once(&mut self, file: &File, at: u64, len: usize) -> io::Result<usize> {
        consume_budget().await;
        let Some(moved) = self.stream.try_send_file(file, at, len)? else { return Ok(0) };
        *self.sent += moved as u64;
        match self.patience.moved(moved).await.map_err(Impatience::of_sending)? {
            0 => Err(shrunk()),
            moved => Ok(moved),
        }
    }

    /// Sends all of a step, however often the socket is full.
    async fn send_file_step(&mut self, file: &File, at: u64, len: usize) -> io::Result<usize> {
        let mut done = 0;
        while done < len {
            consume_budget().await;
            let offset = at + done as u64;
            let moved = match self.stream.try_send_file(file, offset, len - done)? {
                Some(moved) => self.patience.moved(moved).await,
                None => self.patience.wait(self.stream.send_file(file, offset, len - done)).await,
            };
            match moved.map_err(Impatience::of_sending)? {
                0 => return Err(shrunk()),
                moved => {
                    done += moved;
                    *self.sent += moved as u64;
                }
            }
        }
        Ok(done)
    }

    /// Sends a part of a step, as much as one read gives, through a buffer. What reaches `end` is sent only if the file was
    /// not changed.
    async fn send_buffered_step(&mut self, object: &dyn Object, step: Step, end: u64) -> io::Result<usize> {
        let data = self.data;
        // Borrowed when it is needed: TLS may take bytes without it.
        let mut buffer = None;
        let Step { at, len } = Step { len: step.len.min(limits::IO_BYTES), ..step };
        let mut done = 0;
        while done < len {
            let offset = at + done as u64;
            let mut would_wait = false;
            if let Some(count) = self.load(object, offset, len - done, &mut would_wait)? {
                if offset + count as u64 == end {
                    self.check_unchanged(object).await?;
                }
                self.stream.send_loaded()?;
                done += self.count(count).await?;
                write(self.stream, &[], &mut self.patience, self.sent).await?;
                continue;
            }
            let buffer = buffer.get_or_insert_with(|| data.buffers.lend());
            let warm = if self.stream.is_tls() { (len - done).min(TLS_BYTES) } else { len - done };
            let at_once = match would_wait {
                true => None,
                false => object.read_at_nowait(&mut buffer[..warm], offset)?,
            };
            let count = match at_once {
                Some(count) => count,
                None => {
                    self.has_waited = true;
                    object.read_at(&mut buffer[..len - done], offset).await?
                }
            };
            if count == 0 {
                return Err(shrunk());
            }
            if offset + count as u64 == end {
                self.check_unchanged(object).await?;
            }
            write(self.stream, &buffer[..count], &mut self.patience, self.sent).await?;
            done += count;
        }
        Ok(done)
    }

    /// Reads what can be had at once to where TLS encrypts it; `None`: it has to pass through a buffer. Says if it `would_wait`.
    fn load(
        &mut self,
        object: &dyn Object,
        offset: u64,
        len: usize,
        would_wait: &mut bool,
    ) -> io::Result<Option<usize>> {
        let read = |places: &mut [io::IoSliceMut<'_>]| {
            let found = object.read_vectored_at_nowait(places, offset)?;
            *would_wait = found.is_none();
            Ok(found)
        };
        match self.stream.load(len, read)? {
            Some(0) => Err(shrunk()),
            loaded => Ok(loaded),
        }
    }

    /// Counts bytes that TLS has taken over.
    async fn count(&mut self, moved: usize) -> io::Result<usize> {
        *self.sent += moved as u64;
        self.patience.moved(moved).await.map_err(Impatience::of_sending)
    }
}

/// True if an object is what it was when it was opened: told at once if that is possible.
pub async fn is_unchanged(object: &dyn Object, has_waited: bool) -> bool {
    // A file system that waited before may wait for this as well.
    let known = if has_waited { None } else { object.is_unchanged_nowait() };
    match known {
        Some(is_unchanged) => is_unchanged,
        None => object.is_unchanged().await,
    }
}

/// True if the file has not been changed for so long that a change while it is sent is unlikely. A time in the future
/// was set by a program, and says nothing.
fn is_at_rest(object: &dyn Object) -> bool {
    match SystemTime::now().duration_since(object.metadata().modified) {
        Ok(age) => age >= limits::FILE_AT_REST_MIN,
        Err(_) => true,
    }
}

/// The number of bytes at the end of an answer of this length that are copied; none of one that the socket may take at
/// once.
fn tail_bytes(len: u64) -> u64 {
    match len <= SENDFILE_BYTES as u64 {
        true => 0,
        false => (len / limits::COPIED_TAIL_FRACTION).min(limits::COPIED_TAIL_BYTES_MAX),
    }
}

/// True if a step can be read without waiting, as far as some of its bytes tell: what lies between two of them was
/// brought in by the same read-ahead, nearly always.
pub(crate) fn is_in_page_cache(object: &dyn Object, at: u64, len: usize) -> io::Result<bool> {
    if object.never_waits() {
        return Ok(true);
    }
    let mut probe = [0];
    for offset in (0..len).step_by(PROBE_BYTES).chain([len - 1]) {
        if object.read_at_nowait(&mut probe, at + offset as u64)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A part of an object that is sent between two looks at everything else.
#[derive(Clone, Copy)]
struct Step {
    at: u64,
    len: usize,
}

/// The way in which a client learns the end of a payload of unknown length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// In chunks (RFC 9112, 7.1).
    Chunks,
    /// With the connection.
    Close,
}

/// Room for a chunk's size and line end in front of it: eight digits.
const CHUNK_HEAD_BYTES: usize = 10;

/// Sends `first`, then what `rest` makes, one piece at a time: the next is made when the one before it is in
/// the kernel's hands. Counts the payload's bytes, without what is around them.
pub(crate) async fn send_pieces(
    data: &DataPath,
    stream: &mut Stream,
    first: Vec<u8>,
    rest: &mut dyn Pieces,
    framing: Framing,
    sent: &mut u64,
) -> io::Result<()> {
    let mut patience = Patience::new(&data.deadlines);
    let mut buffer = vec![0; CHUNK_HEAD_BYTES];
    buffer.extend_from_slice(&first);
    drop(first);
    let mut has_more = true;
    loop {
        let len = buffer.len() - CHUNK_HEAD_BYTES;
        let mut paid = 0;
        while let (Some(pace), true) = (&data.pace, paid < len) {
            paid += pace.ready(len - paid).await;
        }
        let mut start = CHUNK_HEAD_BYTES;
        if framing == Framing::Chunks {
            // A chunk of no bytes would be the end.
            if len > 0 {
                let size = format!("{len:x}\r\n");
                start -= size.len();
                buffer[start..CHUNK_HEAD_BYTES].copy_from_slice(size.as_bytes());
                buffer.extend_from_slice(b"\r\n");
            }
            if !has_more {
                buffer.extend_from_slice(b"0\r\n\r\n");
            }
        }
        let mut written = 0;
        let outcome = write(stream, &buffer[start..], &mut patience, &mut written).await;
        *sent += written.saturating_sub((CHUNK_HEAD_BYTES - start) as u64).min(len as u64);
        if outcome.is_err() && has_more {
            rest.client_left();
        }
        outcome?;
        if !has_more {
            return Ok(());
        }
        buffer.truncate(CHUNK_HEAD_BYTES);
        let next = tokio::select! {
            biased;
            next = rest.next(&mut buffer) => Some(next?),
            // Made only where there is something to wait for.
            () = stream.closed() => None,
        };
        has_more = next.ok_or_else(|| {
            rest.client_left();
            io::Error::from(io::ErrorKind::ConnectionAborted)
        })?;
    }
}

/// Writes all of `bytes`.
pub(crate) async fn write(
    stream: &mut Stream,
    mut bytes: &[u8],
    patience: &mut Patience,
    sent: &mut u64,
) -> io::Result<()> {
    while !bytes.is_empty() || stream.has_unsent() {
        consume_budget().await;
        let taken = match stream.try_write(bytes, false)? {
            Some(taken) => patience.moved(taken).await,
            // Kept elsewhere, as far as waiting takes room: most answers are written without.
            None => Box::pin(patience.wait(stream.write_some(bytes))).await,
        }
        .map_err(Impatience::of_sending)?;
        bytes = &bytes[taken..];
        *sent += taken as u64;
    }
    Ok(())
}

tokio::task_local! {
    /// The rate limits of the client whose request this task has in hand. Every loop that moves a client's bytes does
    /// it by a [`Patience`], and none of them knows the client.
    pub(crate) static CLIENT_PACES: Paces;
}

/// The wait for a client while a body moves: not without a byte for the stall deadline, and not below a mean rate once
/// it was waited for long enough. Only waiting counts: neither the disk nor the rate limit is the client's fault.
pub struct Patience {
    stall: Duration,
    grace: Duration,
    rate_bytes_per_s_min: u64,
    waited: Duration,
    moved: u64,
    /// The client's rate limits.
    paces: Paces,
}

/// The reason why a client is waited for no longer.
#[derive(Debug)]
pub(crate) enum Impatience {
    /// No byte for too long.
    Stalled,
    /// Too few bytes in too much time.
    Slow,
    /// The connection broke.
    Broken(io::Error),
}

impl Patience {
    /// The wait for the client whose request this task has in hand.
    pub fn new(deadlines: &Deadlines) -> Patience {
        Patience {
            stall: deadlines.body_stall,
            grace: deadlines.body_grace,
            rate_bytes_per_s_min: limits::BODY_RATE_BYTES_PER_S_MIN,
            waited: Duration::ZERO,
            moved: 0,
            paces: CLIENT_PACES.try_with(Clone::clone).unwrap_or_default(),
        }
    }

    /// The wait for a client for which much memory is held until the last byte is taken.
    pub(crate) fn of_memory(deadlines: &Deadlines) -> Patience {
        let stall = deadlines.listing_stall.min(deadlines.body_stall);
        let rate_bytes_per_s_min = limits::LISTING_RATE_BYTES_PER_S_MIN;
        Patience { stall, grace: stall, rate_bytes_per_s_min, ..Patience::new(deadlines) }
    }

    /// True if a rate limit of the client makes pauses between bytes.
    pub(crate) fn is_paced(&self) -> bool {
        !self.paces.are_none()
    }

    /// Waits for an operation that moves some bytes; returns their number.
    pub(crate) async fn wait(
        &mut self,
        operation: impl Future<Output = io::Result<usize>>,
    ) -> Result<usize, Impatience> {
        let began = Instant::now();
        let outcome = timeout(self.stall, operation).await.map_err(|_| Impatience::Stalled)?;
        let moved = outcome.map_err(Impatience::Broken)?;
        self.waited += began.elapsed();
        self.moved(moved).await
    }

    /// Counts what was moved without a wait for the client. Most of it is: a timer for each operation would cost more than
    /// a small answer.
    pub(crate) async fn moved(&mut self, moved: usize) -> Result<usize, Impatience> {
        self.note(moved as u64, Duration::ZERO)?;
        if !self.paces.are_none() {
            Box::pin(tokio::time::sleep(self.paces.owe(moved as u64))).await;
        }
        Ok(moved)
    }

    /// Counts what was moved after a wait for the client.
    pub(crate) fn note(&mut self, moved: u64, waited: Duration) -> Result<(), Impatience> {
        self.moved += moved;
        self.waited += waited;
        let expected = self.waited.as_secs_f64() * self.rate_bytes_per_s_min as f64;
        if self.waited > self.grace && (self.moved as f64) < expected {
            return Err(Impatience::Slow);
        }
        Ok(())
    }
}

impl Impatience {
    pub(crate) fn of_sending(self) -> io::Error {
        let what = match self {
            Impatience::Stalled => "the client took no byte for too long",
            Impatience::Slow => "the client took too few bytes for too long",
            Impatience::Broken(cause) => return cause,
        };
        io::Error::new(io::ErrorKind::TimedOut, what)
    }
}

/// The message for a client that does not get all of a file: the operating system's own is for the log.
pub(crate) fn failure_text(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => cause.to_string(),
        _ => "the storage fails".to_owned(),
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file was changed while it was sent")
}

pub(crate) fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_tail_is_copied() {
        for (len, expected) in
            [(1, 0), (512 << 10, 0), (1 << 20, 32 << 10), (320 << 20, 10 << 20), (u64::MAX, 10 << 20)]
        {
            assert_eq!(tail_bytes(len), expected, "{len}");
        }
    }

    #[test]
    fn the_mean_rate_counts_after_a_while_and_only_waiting_does() {
        const SECOND: Duration = Duration::from_secs(1);
        let deadlines = Deadlines::default();
        // A byte a second is never a stall.
        let mut patience = Patience::new(&deadlines);
        let seconds = (1..1000).find(|_| patience.note(1, SECOND).is_err());
        assert_eq!(seconds, Some(61));
        // Slow, but as fast as it has to be.
        let mut patience = Patience::new(&deadlines);
        assert!((1..1000).all(|_| patience.note(1001, SECOND).is_ok()));
        // What came fast before makes up for a slow minute.
        let mut patience = Patience::new(&deadlines);
        assert!(patience.note(1 << 20, Duration::ZERO).is_ok());
        assert!((1..1000).all(|_| patience.note(1, SECOND).is_ok()));
    }
}
