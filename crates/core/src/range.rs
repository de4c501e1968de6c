//! Half-open byte ranges and sets of them, as values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

/// The bytes from `start` up to, not including, `end`. `start <= end` always holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The bytes `start..end`; empty at `start` when `end` is not after it.
    pub fn new(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end: end.max(start) }
    }

    /// `len` bytes from `start`, cut at the largest offset there is.
    pub fn at(start: u64, len: u64) -> ByteRange {
        ByteRange { start, end: start.saturating_add(len) }
    }

    /// First byte's offset.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Offset just behind the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True if there is no byte in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// True if every byte of `other` is in this range.
    pub fn contains(self, other: ByteRange) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The bytes that are in both; empty when none is.
    pub fn intersection(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        ByteRange::new(start, self.end.min(other.end))
    }

    /// Cuts at `offset` (clamped into the range): what is before it, and what is not.
    pub fn split_at(self, offset: u64) -> (ByteRange, ByteRange) {
        let cut = offset.clamp(self.start, self.end);
        (ByteRange { start: self.start, end: cut }, ByteRange { start: cut, end: self.end })
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {} to {}", self.start, self.end)
    }
}

/// A set of bytes, kept as the fewest possible disjoint ranges in ascending order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end; no two touch.
    ranges: BTreeMap<u64, u64>,
    len: u64,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Number of bytes in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the set has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of ranges that it takes to write the set down.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges, ascending, none touching the next.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.ranges.iter().map(|(&start, &end)| ByteRange { start, end })
    }

    /// The first range of the set.
    pub fn first(&self) -> Option<ByteRange> {
        self.iter().next()
    }

    /// Puts the bytes of `range` in; returns how many were not there before.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.len;
        let (mut start, mut end) = (range.start, range.end);
        // Every stored range that overlaps or touches is swallowed.
        while let Some((&s, stored)) = self.ranges.range_mut(..=end).next_back() {
            let e = *stored;
            if e < start {
                break;
            }
            if s <= start {
                // It grows where it is; nothing before it touches it.
                let end = end.max(e);
                *stored = end;
                self.len += end - e;
                return self.len - before;
            }
            self.ranges.remove(&s);
            self.len -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.ranges.insert(start, end);
        self.len += end - start;
        self.len - before
    }

    /// Takes the bytes of `range` out; returns how many were there.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.len;
        while let Some((&s, stored)) = self.ranges.range_mut(..range.end).next_back() {
            let e = *stored;
            if e <= range.start {
                break;
            }
            if s < range.start {
                // Its first part stays where it is; nothing before it is in the range.
                *stored = range.start;
            } else {
                self.ranges.remove(&s);
            }
            self.len -= e - s.max(range.start);
            if range.end < e {
                self.ranges.insert(range.end, e);
                self.len += e - range.end;
            }
            if s <= range.start {
                break;
            }
        }
        before - self.len
    }

    /// The parts of `range` that are in the set, ascending, without memory for them.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let first =
            self.ranges.range(..=range.start).next_back().map(|(&start, &end)| ByteRange { start, end });
        // Most sets have nothing else there, and one search is enough then.
        let is_all = range.is_empty() || first.is_some_and(|first| first.end >= range.end);
        let rest = (!is_all && !self.ranges.is_empty())
            .then(|| self.ranges.range((Bound::Excluded(range.start), Bound::Excluded(range.end))));
        let rest = rest.into_iter().flatten().map(|(&start, &end)| ByteRange { start, end });
        first
            .into_iter()
            .chain(rest)
            .map(move |part| part.intersection(range))
            .filter(|part| !part.is_empty())
    }

    /// The parts of `range` that are not in the set, ascending, without memory for them.
    pub fn gaps(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let behind = ByteRange { start: range.end, end: range.end };
        let mut at = range.start;
        self.within(range)
            .chain(std::iter::once(behind))
            .map(move |present| {
                let gap = ByteRange::new(at, present.start);
                at = present.end;
                gap
            })
            .filter(|gap| !gap.is_empty())
    }

    /// True if no byte of `range` is in the set.
    pub fn is_disjoint(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self.ranges.range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start)
    }

    /// The parts of `range` that are in the set, ascending.
    pub fn intersection(&self, range: ByteRange) -> Vec<ByteRange> {
        self.within(range).collect()
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        self.gaps(range).collect()
    }

    /// True if every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self.ranges.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 64;

    fn bits(set: &RangeSet) -> Vec<bool> {
        (0..SPACE).map(|at| set.contains(ByteRange::at(at, 1))).collect()
    }

    proptest! {
        /// A set behaves like an array of booleans under any sequence of insertions and removals.
        #[test]
        fn agrees_with_a_bitmap(steps in prop::collection::vec((any::<bool>(), 0..SPACE, 0..SPACE), 0..40), probe in (0..SPACE, 0..SPACE)) {
            let mut set = RangeSet::new();
            let mut model = vec![false; SPACE as usize];
            for (insert, a, b) in steps {
                let range = ByteRange::new(a.min(b), a.max(b));
                let cells = &mut model[range.start() as usize..range.end() as usize];
                let changed = cells.iter().filter(|&&cell| cell != insert).count() as u64;
                cells.fill(insert);
                let reported = if insert { set.insert(range) } else { set.remove(range) };
                prop_assert_eq!(reported, changed);
            }
            prop_assert_eq!(bits(&set), model.clone());
            prop_assert_eq!(set.len(), model.iter().filter(|&&cell| cell).count() as u64);
            let ranges: Vec<_> = set.iter().collect();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].end() < pair[1].start(), "ranges touch: {:?}", ranges);
            }
            let range = ByteRange::new(probe.0.min(probe.1), probe.0.max(probe.1));
            let present: u64 = set.intersection(range).iter().map(|part| part.len()).sum();
            let missing: u64 = set.missing(range).iter().map(|part| part.len()).sum();
            prop_assert_eq!(present + missing, range.len());
            prop_assert!(set.missing(range).iter().all(|part| set.intersection(*part).is_empty()));
            prop_assert_eq!(set.contains(range), missing == 0);
            prop_assert_eq!(set.is_disjoint(range), present == 0);
        }
    }
}
