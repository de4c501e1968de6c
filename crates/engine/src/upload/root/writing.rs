//! Bytes on their way into an open file: collected, sent in large writes, and kept until they are answered.

use std::collections::HashMap;
use std::time::Duration;

use gridlane_core::limits::{ROOT_WAIT_MAX, ROOT_WRITE_BYTES, ROOT_WRITTEN_BYTES_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_peer::root::{Answer, OpenFile, Outcome};
use gridlane_xrd::pages::{self, CRC_BYTES, PAGE_BYTES, UNIT_BYTES};
use gridlane_xrd::request::{Close, PgWrite, Write};
use gridlane_xrd::{PathId, StreamId};
use tokio::time::{sleep, timeout};

/// The time that the answer to the close may take: the server may sync a large file first.
const CLOSE_MAX: Duration = Duration::from_secs(300);
/// The time that a server that has closed the connection may take to say why.
const LAST_WORD_MAX: Duration = Duration::from_secs(2);
/// Times that a page is sent that arrives damaged: a path that damages it so often damages all of them.
const PAGE_ATTEMPTS_MAX: u32 = 4;

const _: () = assert!(ROOT_WRITE_BYTES.is_multiple_of(PAGE_BYTES));

/// An open file that is written from beginning to end.
pub(super) struct Writing {
    file: OpenFile,
    has_pages: bool,
    /// Bytes that are collected and not sent yet: with checksums, if pages have them.
    buffer: Vec<u8>,
    /// Where it belongs.
    buffer_at: u64,
    /// Its bytes without checksums.
    buffer_bytes: usize,
    /// The beginning of a page.
    begun: Vec<u8>,
    /// A request that is sent and not answered.
    sent: HashMap<StreamId, Sent>,
    sent_bytes: usize,
    /// Buffers that are used again.
    spare: Vec<Vec<u8>>,
}

/// A request that is not answered.
enum Sent {
    Write(Chunk),
    Close,
}

/// Bytes of a file that were sent, as they were sent.
struct Chunk {
    offset: u64,
    bytes: Vec<u8>,
    /// Times that it arrived damaged, when it is a page that is sent again.
    failures: u32,
}

impl Writing {
    pub(super) fn new(file: OpenFile, size_bytes: u64) -> Writing {
        let has_pages = file.uses_pages();
        let first_bytes = pages::framed_len(0, size_bytes.min(ROOT_WRITE_BYTES as u64));
        Writing {
            file,
            has_pages,
            buffer: Vec::with_capacity(first_bytes as usize),
            buffer_at: 0,
            buffer_bytes: 0,
            begun: Vec::new(),
            sent: HashMap::new(),
            sent_bytes: 0,
            spare: Vec::new(),
        }
    }

    /// The file.
    pub(super) fn file(&self) -> &OpenFile {
        &self.file
    }

    /// Bytes that were sent.
    pub(super) fn written_bytes(&self) -> u64 {
        self.buffer_at
    }

    /// Takes the next bytes. Returns when they are collected or sent, as far as what is not answered leaves room.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = ROOT_WRITE_BYTES - self.buffer_bytes - self.begun.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            bytes = later;
            self.collect(now);
            if self.buffer_bytes == ROOT_WRITE_BYTES {
                self.send_buffer().await?;
            }
        }
        Ok(())
    }

    /// Copies bytes to the buffer, with the checksum of each page that is whole.
    fn collect(&mut self, mut bytes: &[u8]) {
        if !self.has_pages {
            self.buffer.extend_from_slice(bytes);
            self.buffer_bytes += bytes.len();
            return;
        }
        if !self.begun.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PAGE_BYTES - self.begun.len()));
            self.begun.extend_from_slice(now);
            bytes = later;
            if self.begun.len() < PAGE_BYTES {
                return;
            }
            self.end_page();
        }
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % PAGE_BYTES);
        pages::frame(self.buffer_at + self.buffer_bytes as u64, whole, &mut self.buffer);
        self.buffer_bytes += whole.len();
        self.begun.extend_from_slice(rest);
    }

    /// Puts the page that has begun behind the others.
    fn end_page(&mut self) {
        pages::frame(self.buffer_at + self.buffer_bytes as u64, &self.begun, &mut self.buffer);
        self.buffer_bytes += self.begun.len();
        self.begun.clear();
    }

    /// Sends what is collected.
    async fn send_buffer(&mut self) -> Result<()> {
        let mut next = self.spare.pop().unwrap_or_default();
        next.clear();
        next.reserve(pages::framed_len(0, ROOT_WRITE_BYTES as u64) as usize);
        let bytes = std::mem::replace(&mut self.buffer, next);
        let chunk = Chunk { offset: self.buffer_at, bytes, failures: 0 };
        self.buffer_at += self.buffer_bytes as u64;
        self.buffer_bytes = 0;
        while self.sent_bytes + chunk.bytes.len() > ROOT_WRITTEN_BYTES_MAX && !self.sent.is_empty() {
            self.take_answer().await?;
        }
        self.send(chunk).await?;
        // What has been answered by now is looked at now: a server that refuses is not sent all the rest.
        while let Some(answer) = self.answer_there().await {
            self.answered(answer?).await?;
        }
        Ok(())
    }

    /// The next answer, if it has come. A timer would not do: the shortest there is takes a millisecond.
    async fn answer_there(&mut self) -> Option<Result<Answer>> {
        tokio::select! {
            biased;
            answer = self.file.answer() => Some(answer),
            () = std::future::ready(()) => None,
        }
    }

    async fn send(&mut self, chunk: Chunk) -> Result<()> {
        let (offset, path_id, is_retry) = (chunk.offset, PathId::MAIN, chunk.failures > 0);
        let sent = match self.has_pages {
            true => {
                let call = |handle| PgWrite { handle, offset, path_id, is_retry };
                self.file.send(call, &chunk.bytes).await
            }
            false => self.file.send(|handle| Write { handle, offset, path_id }, &chunk.bytes).await,
        };
        match sent {
            Ok(stream) => {
                self.sent_bytes += chunk.bytes.len();
                self.sent.insert(stream, Sent::Write(chunk));
                Ok(())
            }
            // It may have said why before it closed the connection.
            Err(error) => Err(self.last_word().await.unwrap_or(error)),
        }
    }

    /// The failure that a server told of before it closed the connection.
    async fn last_word(&mut self) -> Option<Error> {
        loop {
            let answer = timeout(LAST_WORD_MAX, self.file.answer()).await.ok()?.ok()?;
            if let Outcome::Failed(error) = answer.outcome {
                return Some(error);
            }
        }
    }

    /// Sends what is left, waits until all of it is answered and right, and closes the file.
    pub(super) async fn close(&mut self) -> Result<()> {
        self.send_rest().await?;
        while !self.sent.is_empty() {
            self.take_answer().await?;
        }
        self.send_close().await?;
        self.closed().await
    }

    /// The same without waiting between the last bytes and the close: it saves a round trip. What came wrong cannot
    /// be sent again then, and is an error of kind [`ErrorKind::ChecksumMismatch`].
    pub(super) async fn close_at_once(&mut self) -> Result<()> {
        self.send_rest().await?;
        self.send_close().await?;
        self.closed().await
    }

    async fn send_rest(&mut self) -> Result<()> {
        if !self.begun.is_empty() {
            self.end_page();
        }
        match self.buffer_bytes {
            0 => Ok(()),
            _ => self.send_buffer().await,
        }
    }

    async fn send_close(&mut self) -> Result<()> {
        let stream = self.file.send(|handle| Close { handle }, &[]).await?;
        self.sent.insert(stream, Sent::Close);
        Ok(())
    }

    /// Waits until everything is answered, the close as well.
    async fn closed(&mut self) -> Result<()> {
        let all = async {
            while !self.sent.is_empty() {
                match self.take_answer().await {
                    // The server may sync a large file first.
                    Err(error) if error.kind() == ErrorKind::Timeout => {}
                    taken => taken?,
                }
            }
            Ok::<(), Error>(())
        };
        match timeout(CLOSE_MAX, all).await {
            Ok(outcome) => outcome?,
            Err(_) => {
                let message = format!("no answer within {} s after the last byte", CLOSE_MAX.as_secs());
                return Err(Error::new(ErrorKind::Timeout, message));
            }
        }
        self.file.set_closed();
        Ok(())
    }

    /// Waits for the next answer and does what it says.
    async fn take_answer(&mut self) -> Result<()> {
        let answer = self.file.answer().await?;
        self.answered(answer).await
    }

    async fn answered(&mut self, answer: Answer) -> Result<()> {
        let Some(sent) = self.sent.remove(&answer.stream) else { return Ok(()) };
        if let Sent::Write(chunk) = &sent {
            self.sent_bytes -= chunk.bytes.len();
        }
        match (answer.outcome, sent) {
            (Outcome::Failed(error), _) => Err(error),
            (Outcome::Done(_), Sent::Write(chunk)) => {
                self.keep(chunk.bytes);
                Ok(())
            }
            (Outcome::Wrong(wrong), Sent::Write(chunk)) => {
                self.send_again(&chunk, &wrong).await?;
                self.keep(chunk.bytes);
                Ok(())
            }
            (Outcome::Done(_) | Outcome::Wrong(_), Sent::Close) => Ok(()),
            (Outcome::Wait(pause), _) if pause > ROOT_WAIT_MAX => {
                let message = format!("the server asks for a pause of {} s", pause.as_secs());
                Err(Error::new(ErrorKind::Busy, message).retry_after(Some(pause)))
            }
            (Outcome::Wait(pause), sent) => {
                sleep(pause).await;
                match sent {
                    Sent::Write(chunk) => self.send(chunk).await,
                    Sent::Close => self.send_close().await,
                }
            }
        }
    }

    /// Keeps a buffer for what comes next.
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < ROOT_WRITTEN_BYTES_MAX / ROOT_WRITE_BYTES && bytes.len() > UNIT_BYTES {
            self.spare.push(bytes);
        }
    }

    /// Sends pages of a chunk again that came wrong.
    async fn send_again(&mut self, chunk: &Chunk, wrong: &[(u64, usize)]) -> Result<()> {
        let failures = chunk.failures + 1;
        let is_closing = self.sent.values().any(|sent| matches!(sent, Sent::Close));
        if is_closing || failures >= PAGE_ATTEMPTS_MAX {
            return Err(damaged());
        }
        for &(offset, len) in wrong {
            let bytes = framed_page(chunk, offset, len).ok_or_else(|| {
                let message = "the server wants a page again that was not sent";
                Error::new(ErrorKind::Protocol, message)
            })?;
            let page = Chunk { offset, bytes: bytes.to_vec(), failures };
            self.send(page).await?;
        }
        Ok(())
    }
}

/// A page of what was sent, with its checksum. Chunks begin where a page does.
fn framed_page(chunk: &Chunk, offset: u64, len: usize) -> Option<&[u8]> {
    let page = PAGE_BYTES as u64;
    let behind = offset.checked_sub(chunk.offset).filter(|behind| behind.is_multiple_of(page))?;
    let at = usize::try_from(behind / page).ok()?.checked_mul(UNIT_BYTES)?;
    let rest = chunk.bytes.get(at..)?;
    let whole = rest.len().min(UNIT_BYTES);
    (whole == CRC_BYTES + len).then(|| &rest[..whole])
}

fn damaged() -> Error {
    let message = "pages are damaged on their way to the server";
    Error::new(ErrorKind::ChecksumMismatch, message)
        .fault(Fault::Network)
        .hint("find out what lies between the two machines; roots:// may go through unharmed")
}
