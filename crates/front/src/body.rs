//! Bytes received: what was read ahead, and the body of the request in hand.

use std::io;

use gridlane_core::limits;
use gridlane_dav::chunked::{ChunkedDecoder, Step};
use gridlane_dav::request::{RequestBody, RequestHead};
use gridlane_dav::{Headers, Status};
use gridlane_net::Stream;
use tokio::task::coop::consume_budget;

use crate::data::DataPath;
use crate::reply::Reply;
use crate::transfer::{self, Impatience, Patience};

/// Bytes read at a time where heads and chunk sizes are expected.
const READ_BYTES: usize = 4096;

/// A connection's two ends: the stream, and bytes that were read from it and not used yet.
pub struct Wire {
    /// The connection.
    pub stream: Stream,
    pub(crate) inbox: Inbox,
}

impl Wire {
    /// Reads more into the inbox; `false` at the end of what the client sends.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        Ok(self.inbox.fill(&mut self.stream).await? > 0)
    }

    /// The same without waiting: `None` when nothing has come.
    pub(crate) fn try_fill(&mut self) -> io::Result<Option<bool>> {
        let count = self.stream.try_read(self.inbox.room())?;
        self.inbox.received(count.unwrap_or(0));
        Ok(count.map(|count| count > 0))
    }
}

/// Bytes that were read from a connection and not used yet: heads, and whatever came with them.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// The unread bytes are `bytes[start..end]`; what lies behind is room.
    start: usize,
    end: usize,
}

impl Inbox {
    /// The unread bytes.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The memory it takes, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Marks the first `count` bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            // An idle connection holds no more than one read's worth.
            self.bytes.truncate(READ_BYTES);
            self.bytes.shrink_to(READ_BYTES);
        }
    }

    /// Reads more; 0 at the end of what the client sends. May be dropped: no byte is lost.
    async fn fill(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let count = stream.read(self.room()).await?;
        self.received(count);
        Ok(count)
    }

    /// The place of the next bytes; followed by [`received`](Inbox::received). It grows with what has come.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.room_of(usize::MAX)
    }

    /// The same where so many bytes are needed altogether: it does not become larger than that for nothing.
    pub(crate) fn room_of(&mut self, needed: usize) -> &mut [u8] {
        let len = self.len_with_room(needed);
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.bytes.reserve_exact(len.saturating_sub(self.bytes.len()));
        self.bytes.resize(len, 0);
        &mut self.bytes[self.end..]
    }

    /// The memory it takes once it has [such room](Inbox::room_of), in bytes.
    pub(crate) fn len_with_room(&self, needed: usize) -> usize {
        let unread = self.end - self.start;
        let ahead = READ_BYTES.max((unread / 2).min(needed.saturating_sub(unread)));
        self.bytes.len().max(unread + ahead)
    }

    /// Adds `count` bytes that came into the room.
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
    }

    /// Gives back its memory, if it holds nothing.
    pub(crate) fn release(&mut self) {
        if self.start == self.end {
            *self = Inbox::default();
        }
    }
}

/// The reason why a body could not be read to its end.
#[derive(Debug)]
pub enum BodyError {
    /// No byte came for too long.
    Stalled,
    /// Too few bytes came in too much time.
    Slow,
    /// The connection ended or broke in front of the body's end.
    Cut(Option<io::Error>),
    /// The chunks are malformed.
    Malformed(String),
}

impl From<Impatience> for BodyError {
    fn from(impatience: Impatience) -> BodyError {
        match impatience {
            Impatience::Stalled => BodyError::Stalled,
            Impatience::Slow => BodyError::Slow,
            Impatience::Broken(cause) => BodyError::Cut(Some(cause)),
        }
    }
}

impl BodyError {
    /// The answer, for a client that still listens.
    pub fn reply(&self) -> Reply {
        match self {
            BodyError::Stalled => {
                Reply::failure(Status::REQUEST_TIMEOUT, "no byte of the body came for too long")
            }
            BodyError::Slow => Reply::failure(
                Status::REQUEST_TIMEOUT,
                format!("the body came more slowly than {} bytes/s", limits::BODY_RATE_BYTES_PER_S_MIN),
            ),
            BodyError::Cut(None) => {
                Reply::failure(Status::BAD_REQUEST, "the connection ended before the body did")
            }
            BodyError::Cut(Some(cause)) => {
                Reply::failure(Status::BAD_REQUEST, format!("the connection broke: {cause}"))
            }
            BodyError::Malformed(message) => Reply::failure(Status::BAD_REQUEST, message.clone()),
        }
        .closing()
    }
}

/// The body of a request, read piece by piece.
pub struct Body {
    rest: Rest,
    /// Bytes of data so far.
    received: u64,
}

enum Rest {
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
    Ended(Option<Box<ChunkedDecoder>>),
}

impl Body {
    pub(crate) fn new(framing: RequestBody) -> Body {
        let rest = match framing {
            RequestBody::Absent | RequestBody::Known(0) => Rest::Ended(None),
            RequestBody::Known(len) => Rest::Known(len),
            RequestBody::Chunked => Rest::Chunked(Box::default()),
        };
        Body { rest, received: 0 }
    }

    /// True if every byte was read: only then can the connection carry another request.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.rest, Rest::Ended(_))
    }

    /// Bytes of data read so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// The fields behind the data of a chunked body.
    pub fn trailers(&self) -> Option<&Headers> {
        match &self.rest {
            Rest::Ended(Some(decoder)) => Some(decoder.trailers()),
            _ => None,
        }
    }

    /// Reads all of it, at most `bytes_max`: more is refused, before it is sent where the head tells.
    pub async fn read_whole(
        &mut self,
        data: &DataPath,
        wire: &mut Wire,
        head: &RequestHead,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Reply> {
        let too_large = || {
            let what = format!("the body of this request may have at most {bytes_max} bytes");
            Reply::failure(Status::CONTENT_TOO_LARGE, what)
        };
        if matches!(head.body, RequestBody::Known(len) if len > bytes_max as u64) {
            return Err(too_large());
        }
        let mut patience = Patience::new(&data.deadlines);
        invite(wire, head, &mut patience).await.map_err(|error| error.reply())?;
        let mut bytes = Vec::new();
        loop {
            let end = bytes.len();
            // One byte more than allowed shows that there is more.
            bytes.resize((end + READ_BYTES).min(bytes_max + 1), 0);
            let count = self.read(wire, &mut bytes[end..], &mut patience).await;
            bytes.truncate(end + count.map_err(|error| error.reply())?);
            if bytes.len() > bytes_max {
                return Err(too_large());
            }
            if self.is_ended() {
                return Ok(bytes);
            }
        }
    }

    /// Reads until `target` is half full or the body has ended; returns how many bytes. 0 is the end. Not until it is full:
    /// bulk data comes straight to where it is read to, as long as there is much room.
    pub async fn read(
        &mut self,
        wire: &mut Wire,
        target: &mut [u8],
        patience: &mut Patience,
    ) -> Result<usize, BodyError> {
        let mut count = 0;
        while count <= target.len() / 2 && count < target.len() && !self.is_ended() {
            // A client may send faster than we read: let others have their turn.
            consume_budget().await;
            let some = self.read_some(wire, &mut target[count..], patience).await?;
            count += some;
            self.received += some as u64;
        }
        Ok(count)
    }

    async fn read_some(
        &mut self,
        wire: &mut Wire,
        target: &mut [u8],
        patience: &mut Patience,
    ) -> Result<usize, BodyError> {
        match &mut self.rest {
            Rest::Ended(_) => Ok(0),
            Rest::Known(left) => {
                let max = target.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let count = take(wire, &mut target[..max], *left, patience).await?;
                *left -= count as u64;
                if *left == 0 {
                    self.rest = Rest::Ended(None);
                }
                Ok(count)
            }
            Rest::Chunked(decoder) if wire.inbox.unread().is_empty() && decoder.data_expected() > 0 => {
                let expected = usize::try_from(decoder.data_expected()).unwrap_or(usize::MAX);
                let max = target.len().min(expected);
                let count = take(wire, &mut target[..max], decoder.data_expected(), patience).await?;
                decoder.data_taken(count as u64);
                Ok(count)
            }
            Rest::Chunked(decoder) => {
                if wire.inbox.unread().is_empty() {
                    let Wire { stream, inbox } = wire;
                    if patience.wait(inbox.fill(stream)).await? == 0 {
                        return Err(BodyError::Cut(None));
                    }
                }
                // No more than fits: what is not used stays where it is.
                let unread = wire.inbox.unread();
                let window = &unread[..unread.len().min(target.len())];
                let (step, used) =
                    decoder.step(window).map_err(|error| BodyError::Malformed(error.message().to_owned()))?;
                let (count, ended) = match step {
                    Step::Data(data) => {
                        target[..data.len()].copy_from_slice(data);
                        (data.len(), false)
                    }
                    Step::NeedsMore => (0, false),
                    Step::End => (0, true),
                };
                wire.inbox.consume(used);
                if ended {
                    self.rest = Rest::Ended(Some(std::mem::take(decoder)));
                }
                Ok(count)
            }
        }
    }
}

/// Tells a client that waits for it (RFC 9110, 10.1.1) to send its body.
pub async fn invite(wire: &mut Wire, head: &RequestHead, patience: &mut Patience) -> Result<(), BodyError> {
    // One that has begun does not wait.
    if head.expects_continue && wire.inbox.unread().is_empty() {
        let mut uncounted = 0;
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        transfer::write(&mut wire.stream, interim, patience, &mut uncounted)
            .await
            .map_err(|cause| BodyError::Cut(Some(cause)))?;
    }
    Ok(())
}

/// Takes bytes read ahead, or else waits for some, of which at least `certain_bytes` are to come.
async fn take(
    wire: &mut Wire,
    target: &mut [u8],
    certain_bytes: u64,
    patience: &mut Patience,
) -> Result<usize, BodyError> {
    let ahead = wire.inbox.unread();
    if !ahead.is_empty() {
        let count = ahead.len().min(target.len());
        target[..count].copy_from_slice(&ahead[..count]);
        wire.inbox.consume(count);
        return Ok(count);
    }
    match patience.wait(wire.stream.read_of(target, certain_bytes)).await? {
        0 => Err(BodyError::Cut(None)),
        count => Ok(count),
    }
}

const _: () = assert!(READ_BYTES < limits::REQUEST_HEAD_BYTES_MAX);
