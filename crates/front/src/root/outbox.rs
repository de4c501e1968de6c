//! The bytes that a connection has to send, in order.
//!
//! Small answers are put together in one buffer, as long as they wait: a client that asks for much at once gets much
//! with one write. What was promised by a message's length stays together; in between, the length of which is known,
//! come bytes of files that are read when it is their turn ([`Source`]).
//!
//! Over TLS, records end with a message; and those of pages with their checksums end with a page ([`Pages`]).

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use gridlane_core::limits::TLS_RECORD_BYTES_MAX;
use gridlane_net::{RecordEnds, Stream};
use gridlane_xrd::Status;
use gridlane_xrd::answer::{self, StatusAnswer};
use gridlane_xrd::frame::{RESPONSE_HEAD_BYTES, ResponseHead, StreamId};
use gridlane_xrd::pages::{self, UNIT_BYTES};

use super::answer::Failure;
use super::reading::Source;
use crate::buffers::Buffers;
use gridlane_sys::ReusedBuf;

/// Bytes of one `sendfile` step, between two looks at the page cache.
const SENDFILE_BYTES: u64 = 512 * 1024;

/// Where the first answer begins in a buffer, so that what is read from a file behind its head lies at 64 there: where
/// it would lie 1 to 16 bytes behind a page's begin, the kernel copies at a quarter of its speed.
const FIRST_AT: usize = 64 - RESPONSE_HEAD_BYTES;

/// Where what is read for a message begins whose head is sent already.
const SOURCE_AT: usize = 32;

/// Bytes of a file that are read and encrypted at a time: they stay in the second-level cache.
const TLS_BYTES: usize = 68 * 1024;

/// Pages with their checksums that a record has: four would be 16 bytes more than it may have.
const RECORD_PAGES: usize = TLS_RECORD_BYTES_MAX / UNIT_BYTES;

/// The same of pages with their checksums: what is encrypted by one call and sent by another, in whole records.
const TLS_PAGES_BYTES: usize = SOURCE_AT + 4 * TLS_RECORD_BYTES_MAX / UNIT_BYTES * UNIT_BYTES;

// The head of a message goes along with its first pages.
const _: () = assert!(StatusAnswer::BYTES + RECORD_PAGES * UNIT_BYTES <= TLS_RECORD_BYTES_MAX);

/// Larger answers are sent from where they are.
const COPIED_MAX: usize = 32 * 1024;

/// Parts of buffers up to this length are copied to where other answers are: a client that asks for much and takes nothing
/// would have a whole buffer for each.
const SHARED_MAX: usize = 16 * 1024;

/// The bytes that a connection has to send.
pub(crate) struct Outbox {
    items: VecDeque<Item>,
    buffers: Arc<Buffers>,
    /// Bytes of all items but files'.
    held_bytes: usize,
    /// Bytes that were appended since the beginning, with those that are promised.
    pushed_bytes: u64,
    /// Bytes that were sent.
    sent_bytes: u64,
    /// The message that is being sent.
    current: Message,
    /// Those behind it.
    begins: VecDeque<Message>,
}

/// A message among what is sent.
#[derive(Clone, Copy, Default)]
struct Message {
    /// Where it begins, as `pushed_bytes` counts.
    at: u64,
    pages: Option<Pages>,
}

/// That a message is one of pages with their checksums.
///
/// XRootD's clients (5.5.3, 6.2.1) take what they read over TLS for a page although it is a part of one, the rest of which
/// the next record has: they ask for such pages again, or give wrong bytes to their caller. So a record ends where a page
/// does.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    /// Bytes of the first page, which may begin in the middle, with its checksum.
    first_bytes: usize,
}

impl Pages {
    /// Pages of a file from `offset` on.
    pub(crate) fn from(offset: u64) -> Pages {
        let len = pages::page_len(offset, pages::PAGE_BYTES as u64);
        Pages { first_bytes: pages::CRC_BYTES + len }
    }

    /// Where records end, from a place in the message on where one ends, or in its head.
    fn ends_from(self, at: u64) -> RecordEnds {
        let each = RECORD_PAGES * UNIT_BYTES;
        let first = StatusAnswer::BYTES + self.first_bytes + (RECORD_PAGES - 1) * UNIT_BYTES;
        let first = match usize::try_from(at).unwrap_or(usize::MAX).checked_sub(first) {
            // What is left up to there.
            None => first - at as usize,
            Some(behind) => each - behind % each,
        };
        RecordEnds { first, each }
    }
}

enum Item {
    /// A buffer, of which this is left.
    Buffer(ReusedBuf, Range<usize>),
    /// Bytes of their own, of which those from there on are left.
    Bytes(Vec<u8>, usize),
    /// Bytes of a file, whose length was promised.
    Source(Source),
    /// The same while they are being read elsewhere.
    Awaited,
}

/// The result of sending.
pub(crate) enum Sent {
    /// All was sent.
    All,
    /// The socket is full.
    Full,
    /// All that was allowed is sent.
    Some,
    /// These bytes have to be read where blocking is allowed; then they are [given back](Outbox::refill).
    Cold(Source),
    /// They are being read.
    Waiting,
}

impl Outbox {
    pub(crate) fn new(buffers: Arc<Buffers>) -> Outbox {
        Outbox {
            items: VecDeque::new(),
            buffers,
            held_bytes: 0,
            pushed_bytes: 0,
            sent_bytes: 0,
            current: Message::default(),
            begins: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes that it holds in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes that were appended since the beginning, with those that are promised.
    pub(crate) fn pushed_bytes(&self) -> u64 {
        self.pushed_bytes
    }

    /// Those of them that were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// True if bytes of a file are still to be read for it.
    pub(crate) fn has_sources(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Source(_) | Item::Awaited))
    }

    /// Buffers like its own.
    pub(crate) fn lend(&self) -> ReusedBuf {
        self.buffers.lend()
    }

    /// Begins a message: over TLS it gets records of its own. XRootD's clients (5.5.3, 6.2.1) take one message out of a
    /// record and go to sleep until more comes from the network, whatever else the record had.
    pub(crate) fn begin(&mut self) {
        self.begins.push_back(Message { at: self.pushed_bytes, pages: None });
    }

    /// The same of a message that has pages with checksums behind its head, which is a [`StatusAnswer`]. What is appended
    /// of it at a time, its head aside, ends with a page.
    pub(crate) fn begin_pages(&mut self, pages: Pages) {
        self.begins.push_back(Message { at: self.pushed_bytes, pages: Some(pages) });
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.room(bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.fill_room(bytes.len());
            }
            None => self.push_vec(bytes.to_vec()),
        }
    }

    /// Appends bytes that are there already.
    pub(crate) fn push_vec(&mut self, bytes: Vec<u8>) {
        if bytes.len() <= COPIED_MAX {
            return self.push(&bytes);
        }
        self.held_bytes += bytes.len();
        self.pushed_bytes += bytes.len() as u64;
        self.items.push_back(Item::Bytes(bytes, 0));
    }

    /// Appends an answer.
    pub(crate) fn answer(&mut self, stream: StreamId, status: Status, body: Vec<u8>) {
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        self.begin();
        self.push(&ResponseHead { stream, status, len }.encode());
        self.push_vec(body);
    }

    /// Appends a failure.
    pub(crate) fn failure(&mut self, stream: StreamId, failure: &Failure) {
        self.begin();
        self.push(&answer::error(stream, failure.code, &failure.text));
    }

    /// Appends a part of a buffer.
    pub(crate) fn push_buffer(&mut self, buffer: ReusedBuf, part: Range<usize>) {
        if part.len() <= SHARED_MAX {
            return self.push(&buffer[part]);
        }
        self.held_bytes += part.len();
        self.pushed_bytes += part.len() as u64;
        self.items.push_back(Item::Buffer(buffer, part));
    }

    /// Appends bytes of a file.
    pub(crate) fn push_source(&mut self, source: Source) {
        if source.left() > 0 {
            self.pushed_bytes += source.wire_len();
            self.items.push_back(Item::Source(source));
        }
    }

    /// Room of this size behind what is there, for bytes that [`fill_room`](Outbox::fill_room) appends; `None` when
    /// there cannot be so much.
    pub(crate) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let fits = match self.items.back() {
            Some(Item::Buffer(buffer, part)) => part.end + len <= buffer.len(),
            _ => false,
        };
        if !fits {
            let buffer = self.buffers.lend();
            if FIRST_AT + len > buffer.len() {
                return None;
            }
            self.items.push_back(Item::Buffer(buffer, FIRST_AT..FIRST_AT));
        }
        match self.items.back_mut() {
            Some(Item::Buffer(buffer, part)) => buffer.get_mut(part.end..part.end + len),
            _ => None,
        }
    }

    /// Appends the first bytes of the room that was asked for last.
    pub(crate) fn fill_room(&mut self, len: usize) {
        let Some(Item::Buffer(_, part)) = self.items.back_mut() else { return };
        part.end += len;
        self.held_bytes += len;
        self.pushed_bytes += len as u64;
        if part.start == part.end {
            self.items.pop_back();
        }
    }

    /// Bytes of [`Sent::Cold`] that were read, and what is left of them.
    pub(crate) fn refill(&mut self, buffer: ReusedBuf, part: Range<usize>, source: Source) {
        if matches!(self.items.front(), Some(Item::Awaited)) {
            self.items.pop_front();
        }
        if source.left() > 0 {
            self.items.push_front(Item::Source(source));
        }
        self.held_bytes += part.len();
        self.items.push_front(Item::Buffer(buffer, part));
    }

    /// Sends up to `allowed` bytes, as far as the socket takes them without a wait; counts them in `moved`. May send a
    /// record more of pages over TLS, which cannot be cut anywhere.
    pub(crate) fn send(
        &mut self,
        stream: &mut Stream,
        allowed: usize,
        moved: &mut usize,
    ) -> io::Result<Sent> {
        while *moved < allowed {
            let has_more = self.items.len() > 1;
            let Some(item) = self.items.front_mut() else {
                if stream.has_unsent() && stream.try_write(&[], false)?.is_none() {
                    return Ok(Sent::Full);
                }
                if stream.has_unsent() {
                    continue;
                }
                return Ok(Sent::All);
            };
            while let Some(begun) = self.begins.pop_front_if(|next| next.at <= self.sent_bytes) {
                self.current = begun;
            }
            let (mut allowance, mut ends) = (allowed - *moved, RecordEnds::FULL);
            if stream.is_tls() {
                if let Some(pages) = self.current.pages {
                    ends = pages.ends_from(self.sent_bytes - self.current.at);
                    allowance = ends.next_from(allowance);
                }
                if let Some(next) = self.begins.front() {
                    let message = next.at - self.sent_bytes;
                    allowance = allowance.min(usize::try_from(message).unwrap_or(usize::MAX));
                }
            }
            let (left, count) = match item {
                Item::Buffer(buffer, part) => {
                    let end = part.end.min(part.start.saturating_add(allowance));
                    let bytes = &buffer[part.start..end];
                    let Some(count) = stream.try_write_in(bytes, has_more, ends)? else {
                        return Ok(self.full());
                    };
                    part.start += count;
                    (part.len(), count)
                }
                Item::Bytes(bytes, at) => {
                    let end = bytes.len().min(at.saturating_add(allowance));
                    let Some(count) = stream.try_write(&bytes[*at..end], has_more)? else {
                        return Ok(self.full());
                    };
                    *at += count;
                    (bytes.len() - *at, count)
                }
                Item::Awaited => return Ok(Sent::Waiting),
                Item::Source(source) => {
                    let step = source.left().min(SENDFILE_BYTES).min(allowance as u64);
                    if source.goes_directly(stream.is_tls()) {
                        match source.send_directly(stream, step as usize)? {
                            Some(Some(count)) => {
                                *moved += count;
                                self.sent_bytes += count as u64;
                                if source.left() == 0 {
                                    self.items.pop_front();
                                }
                                continue;
                            }
                            Some(None) => return Ok(Sent::Full),
                            None => {}
                        }
                    } else {
                        let mut buffer = self.buffers.lend();
                        let room = match (stream.is_tls(), source.has_pages()) {
                            (false, _) => buffer.len(),
                            (true, false) => TLS_BYTES,
                            (true, true) => TLS_PAGES_BYTES,
                        };
                        // Not just behind a page's begin, as above.
                        if let Some(part) = source.fill_nowait(&mut buffer[..room], SOURCE_AT)? {
                            self.held_bytes += part.len();
                            if source.left() == 0 {
                                self.items.pop_front();
                            }
                            self.items.push_front(Item::Buffer(buffer, part));
                            continue;
                        }
                    }
                    let Some(Item::Source(cold)) = self.items.pop_front() else { return Ok(Sent::All) };
                    self.items.push_front(Item::Awaited);
                    return Ok(Sent::Cold(cold));
                }
            };
            *moved += count;
            self.sent_bytes += count as u64;
            self.held_bytes -= count;
            if left == 0 {
                self.items.pop_front();
            }
        }
        Ok(Sent::Some)
    }

    /// The socket is full, for an unknown time.
    fn full(&mut self) -> Sent {
        for item in &mut self.items {
            if let Item::Source(source) = item {
                source.forget_seen();
            }
        }
        Sent::Full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bytes_hold_no_buffer() {
        let mut outbox = Outbox::new(Arc::default());
        for _ in 0..1000 {
            let buffer = outbox.lend();
            outbox.push_buffer(buffer, 64..164);
        }
        assert_eq!((outbox.items.len(), outbox.held_bytes(), outbox.pushed_bytes()), (1, 100_000, 100_000));
        let buffer = outbox.lend();
        let len = buffer.len();
        outbox.push_buffer(buffer, 0..len);
        assert_eq!(outbox.items.len(), 2);
    }
}
