//! Times at which something becomes due, without a scan and without removing: what is no longer so is dropped when it is met.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times in seconds, each of a place in a table. The table knows which time of a place is still meant.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u32, u32)>>,
    /// Those that are still meant.
    live: usize,
}

impl Timers {
    /// A place becomes due.
    pub(crate) fn push(&mut self, at_s: u32, place: u32, is_meant: impl Fn(u32, u32) -> bool) {
        self.live += 1;
        self.heap.push(Reverse((at_s, place)));
        if self.heap.len() > 2 * self.live + 1024 {
            // A place that was used again may be there twice with the same time: once is enough.
            let mut times = std::mem::take(&mut self.heap).into_sorted_vec();
            times.dedup();
            times.retain(|Reverse((at_s, place))| is_meant(*at_s, *place));
            self.live = times.len();
            self.heap = times.into();
        }
    }

    /// A time that was pushed is not meant any more.
    pub(crate) fn forget(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// The next time that is meant.
    pub(crate) fn next_s(&mut self, is_meant: impl Fn(u32, u32) -> bool) -> Option<u32> {
        while let Some(&Reverse((at_s, place))) = self.heap.peek() {
            if is_meant(at_s, place) {
                return Some(at_s);
            }
            self.heap.pop();
        }
        None
    }

    /// A place that is due; the caller sees to it that its time is not meant any more.
    pub(crate) fn due(&mut self, now_s: u32, is_meant: impl Fn(u32, u32) -> bool) -> Option<u32> {
        if self.next_s(is_meant)? > now_s {
            return None;
        }
        let Reverse((_, place)) = self.heap.pop()?;
        self.forget();
        Some(place)
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(u32, u32)>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_meant_is_dropped_and_takes_no_room() {
        let mut timers = Timers::default();
        for place in 0..10_000 {
            timers.push(100 + place, place, |_, place| place % 100 == 0);
            if place % 100 != 0 {
                timers.forget();
            }
        }
        assert!(timers.heap.len() < 2 * 100 + 1024 + 1, "{}", timers.heap.len());
        let is_meant = |_: u32, place: u32| place.is_multiple_of(100) && place > 0;
        assert_eq!(timers.next_s(is_meant), Some(200));
        assert_eq!(timers.due(199, is_meant), None);
        assert_eq!(timers.due(200, is_meant), Some(100));
    }
}
