//! A call that reads: the ranges that have come, and those that are waited for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_read::ReadId;

use super::file::Open;
use super::piece::Piece;

/// A range that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its place in the call.
    pub index: usize,
    /// Its bytes: fewer than were asked for where the file ends.
    pub bytes: Bytes,
}

/// A call that was begun. Dropping it cancels what has not come.
#[derive(Debug)]
pub struct Reading {
    pub(super) id: ReadId,
    pub(super) ranges: usize,
    /// The file stays open until the call is over.
    pub(super) open: Arc<Open>,
    pub(super) is_over: bool,
}

/// The state of a call, which the planner's actions change.
#[derive(Debug)]
pub(super) struct Call {
    ranges: Vec<Filling>,
    ready: Vec<Ready>,
    end: Option<Result<()>>,
    waker: Option<Waker>,
}

/// A range that is being filled.
#[derive(Debug)]
struct Filling {
    start: u64,
    bytes: Filled,
}

#[derive(Debug)]
enum Filled {
    Nothing,
    /// One piece, from the beginning of the range on.
    One(Bytes),
    /// Several, each with its place in the range. They are joined when all are there: a size that a server only claims
    /// takes no memory.
    Several(Vec<(u64, Bytes)>),
}

impl Call {
    /// A call for these ranges.
    pub(super) fn new(ranges: &[ByteRange]) -> Call {
        let filling = |range: &ByteRange| Filling { start: range.start(), bytes: Filled::Nothing };
        Call { ranges: ranges.iter().map(filling).collect(), ready: Vec::new(), end: None, waker: None }
    }

    /// Bytes of a range have come.
    pub(super) fn fill(&mut self, index: usize, offset: u64, piece: Piece) {
        let Some(Filling { start, bytes }) = self.ranges.get_mut(index) else { return };
        let at = offset.saturating_sub(*start);
        match bytes {
            Filled::Nothing if at == 0 => *bytes = Filled::One(piece.0),
            Filled::Nothing => *bytes = Filled::Several(vec![(at, piece.0)]),
            Filled::One(first) => *bytes = Filled::Several(vec![(0, std::mem::take(first)), (at, piece.0)]),
            Filled::Several(all) => all.push((at, piece.0)),
        }
    }

    /// A range has all its bytes, and so many.
    pub(super) fn complete(&mut self, index: usize, count: u64) {
        let Some(filling) = self.ranges.get_mut(index) else { return };
        let mut bytes = match std::mem::replace(&mut filling.bytes, Filled::Nothing) {
            Filled::Nothing => Bytes::new(),
            Filled::One(bytes) => bytes,
            Filled::Several(all) => joined(all),
        };
        bytes.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        self.ready.push(Ready { index, bytes });
    }

    /// The call is over.
    pub(super) fn end(&mut self, result: Result<()>) {
        self.end = Some(result);
    }

    /// The task that waits for it, if there is news for it.
    pub(super) fn news(&mut self) -> Option<Waker> {
        if self.ready.is_empty() && self.end.is_none() { None } else { self.waker.take() }
    }

    /// What has come since the last look; `None`: nothing has. The end is told alone, with nothing or with the error.
    fn take(&mut self) -> Option<Result<Vec<Ready>>> {
        if !self.ready.is_empty() {
            return Some(Ok(std::mem::take(&mut self.ready)));
        }
        self.end.clone().map(|result| result.map(|()| Vec::new()))
    }
}

impl Reading {
    /// The ranges that became complete since the last call, in any order; waits for the next one. An empty list says that all
    /// were told, an error that the call has failed: what had come before was told before it.
    pub async fn next(&mut self) -> Result<Vec<Ready>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The same without waiting; `None`: nothing is complete now.
    pub fn ready(&mut self) -> Option<Result<Vec<Ready>>> {
        self.look(None)
    }

    /// All bytes, in the order of the ranges.
    pub async fn all(mut self) -> Result<Vec<Bytes>> {
        let mut all = vec![None; self.ranges];
        loop {
            let came = self.next().await?;
            if came.is_empty() {
                let ended = || Error::new(ErrorKind::Other, "a read ended before all of its ranges had come");
                return all.into_iter().collect::<Option<_>>().ok_or_else(ended);
            }
            for Ready { index, bytes } in came {
                if let Some(place) = all.get_mut(index) {
                    *place = Some(bytes);
                }
            }
        }
    }

    /// The bytes of the only range.
    pub async fn one(self) -> Result<Bytes> {
        Ok(self.all().await?.pop().unwrap_or_default())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Ready>>> {
        match self.look(Some(context.waker())) {
            Some(came) => Poll::Ready(came),
            None => Poll::Pending,
        }
    }

    fn look(&mut self, waker: Option<&Waker>) -> Option<Result<Vec<Ready>>> {
        let mut state = self.open.shared.state();
        let Some(call) = state.calls.get_mut(&self.id) else {
            return Some(Err(Error::new(ErrorKind::Usage, "the read is over")));
        };
        let taken = call.take();
        if taken.is_none() {
            call.waker = waker.cloned();
        }
        let is_end = matches!(&taken, Some(Err(_))) || matches!(&taken, Some(Ok(came)) if came.is_empty());
        self.is_over |= is_end;
        taken
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.open.shared.forget(self.id, self.is_over);
    }
}

/// The bytes of pieces that lie next to each other, in any order.
fn joined(mut pieces: Vec<(u64, Bytes)>) -> Bytes {
    pieces.sort_unstable_by_key(|(at, _)| *at);
    let mut all = BytesMut::with_capacity(pieces.iter().map(|(_, bytes)| bytes.len()).sum());
    pieces.iter().for_each(|(_, bytes)| all.extend_from_slice(bytes));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(text: &'static str) -> Piece {
        Piece(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn pieces_are_joined_in_their_order() {
        let mut call = Call::new(&[ByteRange::at(10, 1 << 60), ByteRange::at(5, 3), ByteRange::at(7, 2)]);
        call.fill(0, 14, piece("fgh"));
        call.fill(0, 10, piece("ab"));
        call.fill(1, 5, piece("xyz"));
        call.fill(0, 12, piece("cd"));
        for (index, count) in [(0, 7), (1, 3), (2, 0)] {
            call.complete(index, count);
        }
        let texts: Vec<&[u8]> = call.ready.iter().map(|ready| &ready.bytes[..]).collect();
        assert_eq!(texts, [&b"abcdfgh"[..], b"xyz", b""]);
        assert!(matches!(call.take(), Some(Ok(ready)) if ready.len() == 3));
        assert!(call.take().is_none());
        call.end(Ok(()));
        assert!(matches!(call.take(), Some(Ok(ready)) if ready.is_empty()));
    }
}
