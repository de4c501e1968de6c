//! Known ranges: from what a call lacks to the elements that are asked for.

use std::collections::VecDeque;

use gridlane_core::{ByteRange, RangeSet};

/// Sorts and joins ranges that overlap or touch. Two identical elements in one vector make XrdCl fail, and some servers, so that
/// none are ever asked for.
pub fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut found: Vec<ByteRange> = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match found.last_mut() {
            Some(last) if range.start() <= last.end() => {
                *last = ByteRange::new(last.start(), last.end().max(range.end()));
            }
            _ => found.push(range),
        }
    }
    found
}

/// Joins neighbours with gaps of at most `gap_bytes` that `may_fill` allows, the cheapest first, until `spare_bytes` are spent.
/// Returns the elements and the bytes of gaps in them. `ranges` are as [`joined`] leaves them.
pub fn merged(
    ranges: Vec<ByteRange>,
    gap_bytes: u64,
    spare_bytes: u64,
    may_fill: impl Fn(ByteRange) -> bool,
) -> (Vec<ByteRange>, u64) {
    let gap = |pair: &[ByteRange]| ByteRange::new(pair[0].end(), pair[1].start());
    let mut gaps: Vec<(u64, usize)> = ranges
        .windows(2)
        .enumerate()
        .map(|(at, pair)| (gap(pair).len(), at))
        .filter(|(len, at)| *len <= gap_bytes && may_fill(gap(&ranges[*at..at + 2])))
        .collect();
    let all: u64 = gaps.iter().map(|(len, _)| *len).sum();
    let mut filled_bytes = all;
    if all > spare_bytes {
        gaps.sort_unstable();
        filled_bytes = 0;
        let fits = gaps.iter().take_while(|(len, _)| {
            filled_bytes += len;
            filled_bytes <= spare_bytes
        });
        let count = fits.count();
        gaps.truncate(count);
        filled_bytes = gaps.iter().map(|(len, _)| *len).sum();
        gaps.sort_unstable_by_key(|(_, at)| *at);
    }
    let mut gaps = gaps.into_iter().map(|(_, at)| at).peekable();
    let mut found: Vec<ByteRange> = Vec::with_capacity(ranges.len());
    for (at, range) in ranges.into_iter().enumerate() {
        let is_filled = at > 0 && gaps.next_if_eq(&(at - 1)).is_some();
        match found.last_mut().filter(|_| is_filled) {
            Some(last) => *last = ByteRange::new(last.start(), range.end()),
            None => found.push(range),
        }
    }
    (found, filled_bytes)
}

/// Bytes that are to be asked for on behalf of calls, in the order of the calls; within one by place. None is queued twice.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    parts: VecDeque<ByteRange>,
    bytes: u64,
    /// The same bytes, once more, where the parts do not ascend: mostly they do, and are found by bisection.
    queued: Option<RangeSet>,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Parts in it.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts the parts of `range` that are not in it into `missing`, ascending.
    pub(crate) fn missing(&self, range: ByteRange, missing: &mut Vec<ByteRange>) {
        if let Some(queued) = &self.queued {
            missing.extend(queued.gaps(range));
            return;
        }
        let mut at = range.start();
        let first = self.place(range.start());
        for part in self.parts.range(first..).take_while(|part| part.start() < range.end()) {
            if at < part.start() {
                missing.push(ByteRange::new(at, part.start()));
            }
            at = part.end();
        }
        if at < range.end() {
            missing.push(ByteRange::new(at, range.end()));
        }
    }

    /// The place of the first part that ends behind `offset`, where parts ascend.
    fn place(&self, offset: u64) -> usize {
        match (self.parts.front(), self.parts.back()) {
            (Some(first), _) if first.end() > offset => 0,
            (_, Some(last)) if last.end() <= offset => self.parts.len(),
            _ => self.parts.partition_point(|part| part.end() <= offset),
        }
    }

    /// True if a byte of `range` is in it.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        match &self.queued {
            Some(queued) => !queued.is_disjoint(range),
            None => {
                let next = self.parts.get(self.place(range.start()));
                !range.is_empty() && next.is_some_and(|part| part.start() < range.end())
            }
        }
    }

    /// Puts parts at its end.
    pub(crate) fn push(&mut self, parts: impl IntoIterator<Item = ByteRange>) {
        let mut fresh = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if self.queued.is_none() && self.parts.back().is_none_or(|last| last.end() <= part.start()) {
                self.bytes += part.len();
                self.parts.push_back(part);
                continue;
            }
            fresh.clear();
            self.missing(part, &mut fresh);
            for &part in &fresh {
                self.note(part);
                self.parts.push_back(part);
            }
        }
    }

    /// Puts parts at its front: they were asked for before, and are late.
    pub(crate) fn push_front(&mut self, parts: impl DoubleEndedIterator<Item = ByteRange>) {
        let mut fresh = Vec::new();
        for part in parts.rev().filter(|part| !part.is_empty()) {
            if self.queued.is_none() && self.parts.front().is_none_or(|first| part.end() <= first.start()) {
                self.bytes += part.len();
                self.parts.push_front(part);
                continue;
            }
            fresh.clear();
            self.missing(part, &mut fresh);
            for &part in fresh.iter().rev() {
                self.note(part);
                self.parts.push_front(part);
            }
        }
    }

    /// The parts do not ascend any more.
    fn note(&mut self, part: ByteRange) {
        self.bytes += part.len();
        self.queued.get_or_insert_with(|| self.parts.iter().copied().collect()).insert(part);
    }

    /// A part was taken out.
    fn leave(&mut self, part: ByteRange) {
        self.bytes -= part.len();
        if self.parts.is_empty() {
            self.queued = None;
        } else if let Some(queued) = &mut self.queued {
            queued.remove(part);
        }
    }

    /// Takes the next elements: at most so many, and so many bytes, each no longer than `element_bytes_max`. Parts that
    /// `is_wanted` does not know any more are dropped.
    pub(crate) fn take(
        &mut self,
        bytes_max: u64,
        elements_max: usize,
        element_bytes_max: u64,
        is_wanted: impl Fn(ByteRange) -> bool,
    ) -> Vec<ByteRange> {
        let mut taken: Vec<ByteRange> = Vec::new();
        let mut bytes = 0;
        while taken.len() < elements_max.max(1) && bytes < bytes_max.max(1) {
            let Some(part) = self.parts.pop_front() else { break };
            if !is_wanted(part) {
                self.leave(part);
                continue;
            }
            // The elements of a request ascend: of ranges that a later call wants in front of these, the next one is made.
            if taken.last().is_some_and(|last| part.start() < last.end()) {
                self.parts.push_front(part);
                break;
            }
            let len = part.len().min(element_bytes_max.max(1)).min((bytes_max - bytes).max(1));
            let (now, rest) = part.split_at(part.start() + len);
            if !rest.is_empty() {
                self.parts.push_front(rest);
            }
            self.leave(now);
            bytes += now.len();
            taken.push(now);
        }
        taken
    }

    /// Takes out the bytes of `range`: they are on their way after all.
    pub(crate) fn remove(&mut self, range: ByteRange) {
        if !self.touches(range) {
            return;
        }
        if let Some(queued) = &mut self.queued {
            queued.remove(range);
        }
        for part in std::mem::take(&mut self.parts) {
            let (head, _) = part.split_at(range.start());
            let (_, tail) = part.split_at(range.end());
            self.bytes -= part.intersection(range).len();
            self.parts.extend([head, tail].into_iter().filter(|part| !part.is_empty()));
        }
    }

    /// Takes out everything from `size_bytes` on.
    pub(crate) fn cut(&mut self, size_bytes: u64) {
        for part in &mut self.parts {
            *part =
                if part.start() < size_bytes { part.split_at(size_bytes).0 } else { ByteRange::new(0, 0) };
        }
        self.parts.retain(|part| !part.is_empty());
        if let Some(queued) = &mut self.queued {
            queued.remove(ByteRange::new(size_bytes, u64::MAX));
        }
        self.bytes = self.parts.iter().map(|part| part.len()).sum();
    }

    pub(crate) fn clear(&mut self) {
        *self = Queue::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<ByteRange> {
        pairs.iter().map(|&(start, end)| ByteRange::new(start, end)).collect()
    }

    #[test]
    fn identical_and_overlapping_elements_are_one() {
        let found = joined(ranges(&[(50, 60), (0, 10), (50, 60), (5, 20), (20, 25), (70, 70)]));
        assert_eq!(found, ranges(&[(0, 25), (50, 60)]));
    }

    #[test]
    fn the_cheapest_gaps_are_filled_first() {
        let parts = ranges(&[(0, 10), (15, 20), (22, 30), (90, 100), (101, 102)]);
        let (found, filled) = merged(parts.clone(), 50, 5, |_| true);
        assert_eq!((found, filled), (ranges(&[(0, 10), (15, 30), (90, 102)]), 3));
        let (found, filled) = merged(parts.clone(), 50, 100, |gap| gap.len() > 1);
        assert_eq!((found, filled), (ranges(&[(0, 30), (90, 100), (101, 102)]), 7));
        assert_eq!(merged(parts.clone(), 0, 100, |_| true), (parts, 0));
    }

    #[test]
    fn a_request_is_cut_by_elements_and_by_bytes() {
        let mut queue = Queue::default();
        queue.push(ranges(&[(0, 100), (200, 210), (220, 230), (90, 205)]));
        assert_eq!(queue.bytes(), 100 + 10 + 10 + 100);
        assert_eq!(queue.take(1000, 2, 60, |_| true), ranges(&[(0, 60), (60, 100)]));
        assert_eq!(queue.take(12, 9, 60, |_| true), ranges(&[(200, 210), (220, 222)]));
        assert_eq!(queue.take(1000, 9, 1000, |part| part.start() != 100), ranges(&[(222, 230)]));
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    proptest! {
        /// The queue knows what is in it, in whatever order that came.
        #[test]
        fn the_queue_behaves_like_a_set(steps in prop::collection::vec((0_u8..5, 0_u64..64, 0_u64..64), 0..40)) {
            let (mut queue, mut set) = (Queue::default(), RangeSet::new());
            for (step, a, b) in steps {
                let range = ByteRange::new(a.min(b), a.max(b));
                match step {
                    0 | 1 => {
                        let parts = [range, ByteRange::at(range.end() + 2, 3)];
                        if step == 0 { queue.push(parts) } else { queue.push_front(parts.into_iter()) }
                        set.insert(parts[0]);
                        set.insert(parts[1]);
                    }
                    2 => {
                        queue.remove(range);
                        set.remove(range);
                    }
                    3 => queue.take(a, 2, 5, |part| part.start() % 3 > 0).iter().for_each(|part| {
                        assert_eq!(set.remove(*part), part.len());
                    }),
                    _ => {
                        queue.cut(b);
                        set.remove(ByteRange::new(b, u64::MAX));
                    }
                }
                if step == 3 {
                    // Parts that were not wanted are gone, too.
                    set = queue.parts.iter().copied().collect();
                }
                prop_assert_eq!(queue.bytes(), set.len());
                let mut missing = Vec::new();
                queue.missing(ByteRange::new(0, 80), &mut missing);
                prop_assert_eq!(missing, set.missing(ByteRange::new(0, 80)));
                prop_assert_eq!(queue.touches(range), !set.is_disjoint(range));
            }
        }

        /// Merging loses no byte, adds no more than it says, and stays within what it may spend.
        #[test]
        fn merging_only_adds_gaps(pairs in prop::collection::vec((0_u64..500, 0_u64..20), 0..40), gap in 0_u64..30, spare in 0_u64..100) {
            let before = joined(pairs.iter().map(|&(start, len)| ByteRange::at(start, len)).collect());
            let bytes: u64 = before.iter().map(|range| range.len()).sum();
            let (after, filled) = merged(before.clone(), gap, spare, |_| true);
            prop_assert!(filled <= spare);
            prop_assert_eq!(after.iter().map(|range| range.len()).sum::<u64>(), bytes + filled);
            let covered: RangeSet = after.iter().copied().collect();
            prop_assert!(before.iter().all(|range| covered.contains(*range)));
            prop_assert!(after.windows(2).all(|pair| pair[0].end() < pair[1].start()));
        }
    }
}
