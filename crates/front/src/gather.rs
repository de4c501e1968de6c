//! The data plane of what is put together before it is sent: the parts of a multipart answer, and a body in
//! chunks with a status behind it.
//!
//! 256 parts of 1 kB would be 512 writes, each a system call and perhaps a packet. So what stands between
//! parts, and the parts as long as they are small, are laid out in one buffer and written together. The bytes
//! of the file are holes in that layout. They are filled before it is written: first every one that needs no
//! device, then the others, all of them in one call. Large parts do not come
//! here: `Sender::send_object` lets the kernel move them.
//!
//! A body in chunks is for clients that asked to be told, in a trailer, how it ended
//! (`Ending::Status`): a chunk's size is said before its bytes, so they have to be there by then.

use std::io;
use std::ops::Range;

use gridlane_core::{ByteRange, limits};
use gridlane_dav::{Multipart, Status};
use gridlane_store::{Object, Part, StoreError};

use crate::reply::{Payload, Reply, STATUS_TRAILER};
use crate::transfer::{self, Sender};

/// Payloads up to this size are sent in one piece with their head.
pub const SMALL_BYTES: u64 = 16 * 1024;

/// Ranges that are longer are not copied through a buffer: a look at the page cache and a `sendfile` cost
/// about as much as a copy of this many bytes.
const DIRECT_BYTES_MIN: u64 = 64 * 1024;

/// Room in front of what is gathered for the size of a chunk: five digits, CRLF.
const CHUNK_SIZE_BYTES: usize = 7;

/// Room behind it for the CRLF of a chunk.
const CHUNK_END_BYTES: usize = 2;

/// A part of a body.
pub(crate) enum Piece {
    /// These bytes.
    Text(Vec<u8>),
    /// These bytes of the file.
    File(ByteRange),
}

/// The pieces of a body in parts.
pub(crate) fn pieces(parts: &Multipart) -> impl Iterator<Item = Piece> + Send + '_ {
    let end = std::iter::once_with(|| Piece::Text(parts.end()));
    parts.parts().flat_map(|part| [Piece::Text(part.head), Piece::File(part.range)]).chain(end)
}

/// The way in which a client learns the end of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By its length, which the head has.
    Length,
    /// By a last chunk, and a trailer with the status of the transfer.
    Status,
}

/// Sends pieces of `object`. A failure of the source that the client was told of in the trailer is inside of
/// `Ok`: the connection is as good as before.
pub(crate) async fn send(
    sender: &mut Sender<'_>,
    object: &dyn Object,
    pieces: impl Iterator<Item = Piece>,
    ending: Ending,
) -> io::Result<Option<io::Error>> {
    let outcome = send_pieces(sender, object, pieces, ending).await;
    let (failure, line) = match (ending, outcome) {
        (_, Err(Failure::Client(cause))) | (Ending::Length, Err(Failure::Source(cause))) => {
            return Err(cause);
        }
        (Ending::Length, Ok(())) => return Ok(None),
        (Ending::Status, Ok(())) => (None, "200: OK".to_owned()),
        (Ending::Status, Err(Failure::Source(cause))) => {
            let line = format!("500: {}", transfer::failure_text(&cause));
            (Some(cause), line)
        }
    };
    let end = format!("0\r\n{STATUS_TRAILER}: {line}\r\n\r\n");
    sender.write_paced(end.as_bytes()).await?;
    Ok(failure)
}

/// The reason why a body ends early.
enum Failure {
    /// The file cannot be read, or is another one by now.
    Source(io::Error),
    /// The client cannot be reached, or takes nothing.
    Client(io::Error),
}

async fn send_pieces(
    sender: &mut Sender<'_>,
    object: &dyn Object,
    pieces: impl Iterator<Item = Piece>,
    ending: Ending,
) -> Result<(), Failure> {
    let data = sender.data;
    let mut buffer = data.buffers.lend();
    let end = buffer.len() - CHUNK_END_BYTES;
    let mut layout = Layout::new(CHUNK_SIZE_BYTES);
    for piece in pieces {
        match piece {
            Piece::Text(mut bytes) => {
                while !bytes.is_empty() {
                    if layout.end == end {
                        flush(sender, object, &mut buffer, &mut layout, ending, Last::No).await?;
                    }
                    let count = bytes.len().min(end - layout.end);
                    layout.text(&mut buffer, &bytes[..count]);
                    bytes.drain(..count);
                }
            }
            Piece::File(range) if ending == Ending::Length && range.len() > DIRECT_BYTES_MIN => {
                flush(sender, object, &mut buffer, &mut layout, ending, Last::No).await?;
                sender.send_object(object, range).await.map_err(Failure::Client)?;
            }
            Piece::File(range) => {
                let mut at = range.start();
                while at < range.end() {
                    if layout.end == end {
                        flush(sender, object, &mut buffer, &mut layout, ending, Last::No).await?;
                    }
                    let left = usize::try_from(range.end() - at).unwrap_or(usize::MAX);
                    let count = left.min(end - layout.end);
                    layout.hole(at, count);
                    at += count as u64;
                }
            }
        }
    }
    flush(sender, object, &mut buffer, &mut layout, ending, Last::Yes).await
}

/// Tells if a body ends with what is flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Yes,
    No,
}

/// Reads what is missing in the layout, sends it, and begins another one.
async fn flush(
    sender: &mut Sender<'_>,
    object: &dyn Object,
    buffer: &mut [u8],
    layout: &mut Layout,
    ending: Ending,
    last: Last,
) -> Result<(), Failure> {
    sender.has_waited |= fill(&layout.holes, object, buffer).await.map_err(Failure::Source)?;
    if last == Last::Yes {
        sender.check_unchanged(object).await.map_err(Failure::Source)?;
    }
    let (start, end) = (CHUNK_SIZE_BYTES, layout.end);
    *layout = Layout::new(CHUNK_SIZE_BYTES);
    if start == end {
        return Ok(());
    }
    let wire = match ending {
        Ending::Length => &buffer[start..end],
        Ending::Status => {
            let size = format!("{:x}\r\n", end - start);
            let from = start - size.len();
            buffer[from..start].copy_from_slice(size.as_bytes());
            buffer[end..end + CHUNK_END_BYTES].copy_from_slice(b"\r\n");
            &buffer[from..end + CHUNK_END_BYTES]
        }
    };
    sender.write_paced(wire).await.map_err(Failure::Client)
}

/// A part or parts of a file, few bytes that are sent in one piece with the head.
pub(crate) struct SmallPayload<'a> {
    object: &'a dyn Object,
    len: usize,
    parts: Parts<'a>,
}

#[derive(Clone, Copy)]
enum Parts<'a> {
    One(ByteRange),
    Many(&'a Multipart),
}

impl<'a> SmallPayload<'a> {
    /// That of an answer, if it has one.
    pub(crate) fn of(payload: &'a Payload) -> Option<SmallPayload<'a>> {
        if payload.len() == 0 || payload.len() > SMALL_BYTES {
            return None;
        }
        let (object, parts) = match payload {
            Payload::File { object, range } => (object, Parts::One(*range)),
            Payload::Parts { object, parts } => (object, Parts::Many(parts)),
            Payload::None | Payload::Unmeasured | Payload::Bytes(_) | Payload::Stream { .. } => return None,
        };
        // It fits: all of it is no more than that.
        Some(SmallPayload { object: object.as_ref(), len: payload.len() as usize, parts })
    }

    /// Puts all of its bytes behind those that are in `answer`; none, and `false`, when there are fewer by now. What goes
    /// wrong here is still an answer.
    pub(crate) async fn read(self, answer: &mut Vec<u8>) -> Result<bool, Reply> {
        let start = answer.len();
        answer.resize(start + self.len, 0);
        let filled = match self.parts {
            // By far the most frequent, and it needs no list of its one hole.
            Parts::One(range) => {
                let hole = Hole { place: start..answer.len(), offset: range.start() };
                fill(std::slice::from_ref(&hole), self.object, answer).await
            }
            Parts::Many(parts) => {
                let mut layout = Layout::new(start);
                for piece in pieces(parts) {
                    match piece {
                        Piece::Text(text) => layout.text(answer, &text),
                        Piece::File(range) => layout.hole(range.start(), range.len() as usize),
                    }
                }
                fill(&layout.holes, self.object, answer).await
            }
        };
        let is_unchanged = match filled {
            Ok(has_waited) => transfer::is_unchanged(self.object, has_waited).await,
            // The data plane sends those that there are.
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                answer.truncate(start);
                return Ok(false);
            }
            Err(cause) => return Err(Reply::store_failure(&StoreError::Io(cause))),
        };
        if !is_unchanged {
            return Err(being_changed());
        }
        Ok(true)
    }
}

/// The answer for a file whose contents are changing at the moment.
pub fn being_changed() -> Reply {
    Reply::failure(Status::SERVICE_UNAVAILABLE, "the file is being changed")
}

/// Bytes that are sent together: some are in the buffer already, the others are holes.
struct Layout {
    holes: Vec<Hole>,
    /// The end of what is laid out in the buffer.
    end: usize,
}

/// A place for bytes of the file that are missing.
struct Hole {
    place: Range<usize>,
    offset: u64,
}

impl Layout {
    /// Nothing yet, from this place of the buffer on.
    fn new(start: usize) -> Layout {
        Layout { holes: Vec::new(), end: start }
    }

    /// Puts bytes behind what is there; they have to fit.
    fn text(&mut self, buffer: &mut [u8], bytes: &[u8]) {
        buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Leaves room for bytes of the file.
    fn hole(&mut self, offset: u64, len: usize) {
        self.holes.push(Hole { place: self.end..self.end + len, offset });
        self.end += len;
    }
}

/// Fills all holes; returns true if a device may have been waited for.
async fn fill(holes: &[Hole], object: &dyn Object, buffer: &mut [u8]) -> io::Result<bool> {
    let mut left = holes;
    while let [hole, rest @ ..] = left {
        if object.read_at_nowait(&mut buffer[hole.place.clone()], hole.offset)? != Some(hole.place.len()) {
            break;
        }
        left = rest;
    }
    if left.is_empty() {
        return Ok(false);
    }
    Box::pin(fill_waiting(left, object, buffer)).await.map(|()| true)
}

/// Fills holes, which lie one behind the other, in one call.
async fn fill_waiting(holes: &[Hole], object: &dyn Object, mut buffer: &mut [u8]) -> io::Result<()> {
    let (mut at, mut wanted) = (0, 0);
    let mut parts = Vec::with_capacity(holes.len());
    for hole in holes {
        let (target, rest) = buffer[hole.place.start - at..].split_at_mut(hole.place.len());
        parts.push(Part { offset: hole.offset, target });
        (buffer, at, wanted) = (rest, hole.place.end, wanted + hole.place.len());
    }
    if object.read_parts(&mut parts).await? < wanted { Err(transfer::shrunk()) } else { Ok(()) }
}

const _: () = {
    // The size of a chunk fits its room.
    assert!(limits::IO_BYTES < 1 << 20);
};
