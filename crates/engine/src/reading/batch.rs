//! What a lane has to tell, collected until its connection has no more to give at once.

use bytes::{Bytes, BytesMut};
use gridlane_core::limits::READ_PAGE_BYTES;
use gridlane_plan::RequestId;
use gridlane_read::Event;

use super::piece::Piece;

/// Events that are told together at most.
const EVENTS_MAX: usize = 256;
/// Bytes of these at most.
const BYTES_MAX: usize = 512 * 1024;

/// Pieces with fewer bytes share memory with others of their request and page.
const SMALL_BYTES: usize = 8 * 1024;

/// Small pieces of one request in one page. They are forgotten together, so that they may be one piece of memory.
#[derive(Default)]
struct Small {
    request: Option<RequestId>,
    page: u64,
    bytes: Vec<u8>,
    /// Offset in the file of each, and where it begins here.
    pieces: Vec<(u64, usize)>,
}

/// Bytes of one request that are next to each other, and end in the same page.
struct Growing {
    request: RequestId,
    offset: u64,
    bytes: BytesMut,
}

/// Events in their order. Bytes that come in small parts are joined to pieces that end where pages do.
#[derive(Default)]
pub(super) struct Batch {
    events: Vec<Event<Piece>>,
    growing: Option<Growing>,
    small: Small,
    bytes: usize,
}

impl Batch {
    /// Bytes of the file have come for a request, of which `left_bytes` more, these included, are expected here.
    pub(super) fn put(&mut self, request: RequestId, offset: u64, bytes: &[u8], left_bytes: u64) {
        let (mut offset, mut rest, mut left_bytes) = (offset, bytes, left_bytes);
        self.bytes += bytes.len();
        while !rest.is_empty() {
            let in_page = READ_PAGE_BYTES - offset % READ_PAGE_BYTES;
            let here = usize::try_from(in_page).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(here);
            let expected = in_page.min(left_bytes.max(here as u64));
            self.put_in_page(request, offset, now, expected);
            (offset, rest, left_bytes) =
                (offset + here as u64, later, left_bytes.saturating_sub(here as u64));
        }
    }

    /// Bytes that are in one page, of a piece that will have `expected` bytes there from `offset` on.
    fn put_in_page(&mut self, request: RequestId, offset: u64, bytes: &[u8], expected: u64) {
        let is_next = |growing: &Growing| {
            growing.request == request
                && growing.offset + growing.bytes.len() as u64 == offset
                && !offset.is_multiple_of(READ_PAGE_BYTES)
        };
        if let Some(growing) = self.growing.as_mut().filter(|growing| is_next(growing)) {
            growing.bytes.extend_from_slice(bytes);
            if bytes.len() as u64 == expected {
                self.close();
            }
            return;
        }
        let page = offset / READ_PAGE_BYTES;
        if bytes.len() as u64 == expected && bytes.len() < SMALL_BYTES {
            if self.growing.is_some() || self.small.request != Some(request) || self.small.page != page {
                self.close();
                (self.small.request, self.small.page) = (Some(request), page);
            }
            self.small.pieces.push((offset, self.small.bytes.len()));
            self.small.bytes.extend_from_slice(bytes);
            return;
        }
        self.close();
        if bytes.len() as u64 == expected {
            let payload = Piece(Bytes::copy_from_slice(bytes));
            self.events.push(Event::Part { request, offset, payload });
            return;
        }
        let mut piece = BytesMut::with_capacity(expected as usize);
        piece.extend_from_slice(bytes);
        self.growing = Some(Growing { request, offset, bytes: piece });
    }

    /// Something else than bytes.
    pub(super) fn push(&mut self, event: Event<Piece>) {
        self.close();
        self.events.push(event);
    }

    fn close(&mut self) {
        if let Some(Growing { request, offset, bytes }) = self.growing.take() {
            self.events.push(Event::Part { request, offset, payload: Piece(bytes.freeze()) });
        }
        let Small { request, bytes, pieces, .. } = &mut self.small;
        let Some(request) = request.filter(|_| !pieces.is_empty()) else { return };
        let all = Bytes::copy_from_slice(bytes);
        for (nth, &(offset, from)) in pieces.iter().enumerate() {
            let to = pieces.get(nth + 1).map_or(bytes.len(), |(_, next)| *next);
            let payload = Piece(all.slice(from..to));
            self.events.push(Event::Part { request, offset, payload });
        }
        bytes.clear();
        pieces.clear();
    }

    /// True if there is enough to be told at once.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() + self.small.pieces.len() >= EVENTS_MAX || self.bytes >= BYTES_MAX
    }

    /// All that there is.
    pub(super) fn take(&mut self) -> Vec<Event<Piece>> {
        self.close();
        self.bytes = 0;
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However bytes come, they are told once, in order, in pieces of which none crosses the end of a page.
        #[test]
        fn pieces_end_where_pages_do(start in 0_u64..200_000, lens in prop::collection::vec(1_usize..100_000, 1..12), told in 1_usize..4) {
            let (mut batch, mut offset, mut found) = (Batch::default(), start, Vec::new());
            let all: u64 = lens.iter().map(|len| *len as u64).sum();
            let mut note = |events: Vec<Event<Piece>>| {
                for event in events {
                    let Event::Part { request, offset, payload } = event else { panic!("{event:?}") };
                    assert_eq!(request, RequestId(7));
                    let end = offset + payload.0.len() as u64;
                    assert!(offset / READ_PAGE_BYTES == (end - 1) / READ_PAGE_BYTES);
                    for (at, byte) in (offset..).zip(payload.0.iter()) {
                        assert_eq!(*byte, at as u8);
                    }
                    found.push((offset, end));
                }
            };
            for (nth, len) in lens.iter().enumerate() {
                let bytes: Vec<u8> = (offset..offset + *len as u64).map(|at| at as u8).collect();
                batch.put(RequestId(7), offset, &bytes, start + all - offset);
                offset += *len as u64;
                if nth % told == 0 {
                    note(batch.take());
                }
            }
            note(batch.take());
            let mut at = start;
            for (from, to) in found {
                prop_assert_eq!(from, at);
                at = to;
            }
            prop_assert_eq!(at, start + all);
        }
    }
}
