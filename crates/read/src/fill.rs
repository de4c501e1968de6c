//! Long ranges that are brought from a place on: a whole file, a segment, the rest.

use gridlane_core::{ByteRange, RangeSet};

use crate::budget::Purpose;
use crate::owed::Owed;
use crate::vector::Queue;

/// Requests that are looked ahead for the next gap at a time.
const LOOK_REQUESTS: u64 = 16;

/// A range that is being brought.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) range: ByteRange,
    /// Everything from its start, or from where it last wrapped around, up to here is there or on its way.
    pub(crate) cursor: u64,
    pub(crate) purpose: Purpose,
    /// Calls wait for it, as forced policies have it; else they ask for themselves what it has not reached.
    pub(crate) is_strict: bool,
}

impl Fill {
    pub(crate) fn new(range: ByteRange, purpose: Purpose, is_strict: bool) -> Fill {
        Fill { range, cursor: range.start(), purpose, is_strict }
    }

    /// True if a call need not ask for the part: it comes anyway.
    pub(crate) fn will_bring(&self, part: ByteRange) -> bool {
        self.is_strict && self.range.contains(part) && part.start() >= self.cursor
    }

    /// It goes on where a call has just missed something, if that is in it.
    pub(crate) fn turn_to(&mut self, place: u64) {
        if self.range.contains(ByteRange::at(place, 1)) {
            self.cursor = place;
        }
    }

    /// The next part of at most `bytes` that is neither in one of `near` nor on its way nor queued; behind the end it goes on at the
    /// start, if `wraps`. `None`: there is none.
    pub(crate) fn next(
        &mut self,
        bytes: u64,
        wraps: bool,
        near: [&RangeSet; 2],
        owed: &Owed,
        queue: &Queue,
    ) -> Option<ByteRange> {
        let bytes = bytes.max(1);
        let began = self.cursor;
        if let Some(found) = self.search(began, self.range.end(), bytes, near, owed, queue) {
            return Some(found);
        }
        if wraps { self.search(self.range.start(), began, bytes, near, owed, queue) } else { None }
    }

    fn search(
        &mut self,
        from: u64,
        to: u64,
        bytes: u64,
        near: [&RangeSet; 2],
        owed: &Owed,
        queue: &Queue,
    ) -> Option<ByteRange> {
        let (mut at, step) = (from, bytes.saturating_mul(LOOK_REQUESTS));
        let (mut free, mut unqueued) = (Vec::new(), Vec::new());
        while at < to {
            let look = ByteRange::new(at, at.saturating_add(step).min(to));
            for gap in near[0].gaps(look) {
                free.clear();
                near[1].gaps(gap).for_each(|far| owed.missing(far, &mut free));
                for part in &free {
                    unqueued.clear();
                    queue.missing(*part, &mut unqueued);
                    if let Some(part) = unqueued.first() {
                        let (now, _) = part.split_at(part.start() + bytes);
                        self.cursor = now.end();
                        return Some(now);
                    }
                }
            }
            at = look.end();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_plan::RequestId;

    #[test]
    fn a_fill_skips_what_is_there_and_wraps_around() {
        let (mut owed, mut queue) = (Owed::default(), Queue::default());
        let mut present: RangeSet = [ByteRange::new(20, 30)].into_iter().collect();
        owed.put(ByteRange::new(30, 35), RequestId(1));
        queue.push([ByteRange::new(40, 45)]);
        let stored = [ByteRange::new(55, 58)].into_iter().collect();
        let mut fill = Fill::new(ByteRange::new(0, 60), Purpose::Bulk, false);
        fill.turn_to(20);
        let mut found = Vec::new();
        while let Some(part) = fill.next(10, true, [&present, &stored], &owed, &queue) {
            present.insert(part);
            found.push((part.start(), part.end()));
        }
        assert_eq!(found, [(35, 40), (45, 55), (58, 60), (0, 10), (10, 20)]);
    }
}
