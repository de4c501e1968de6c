//! Bytes that a request has not brought: a sorted list that mostly loses its first element.

use gridlane_core::ByteRange;

/// Disjoint ranges, ascending. What a request brings in its order is taken off at the front, without moving anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<ByteRange>,
    /// Those before it are gone.
    first: usize,
    bytes: u64,
}

impl Parts {
    /// From ranges that ascend and do not overlap.
    pub(crate) fn new(parts: Vec<ByteRange>) -> Parts {
        let bytes = parts.iter().map(|part| part.len()).sum();
        Parts { parts, first: 0, bytes }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.parts[self.first..].iter().copied()
    }

    /// The place of the first range that ends behind `offset`.
    fn place(&self, offset: u64) -> usize {
        let live = &self.parts[self.first..];
        match live.first() {
            Some(first) if first.end() > offset => self.first,
            _ => self.first + live.partition_point(|part| part.end() <= offset),
        }
    }

    /// What of `range` is there, ascending.
    pub(crate) fn within(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.parts[self.place(range.start())..]
            .iter()
            .take_while(move |part| part.start() < range.end())
            .map(move |part| part.intersection(range))
            .filter(|part| !part.is_empty())
    }

    /// From the first byte to the last one.
    pub(crate) fn hull(&self) -> ByteRange {
        match (self.parts.get(self.first), self.parts.last()) {
            (Some(first), Some(last)) => ByteRange::new(first.start(), last.end()),
            _ => ByteRange::new(0, 0),
        }
    }

    /// Takes the bytes of `range` out; `taken` is told of each part of it that was there.
    pub(crate) fn remove(&mut self, range: ByteRange, mut taken: impl FnMut(ByteRange)) {
        if range.is_empty() {
            return;
        }
        let from = self.place(range.start());
        let mut to = from;
        let (mut head, mut tail) = (None, None);
        while let Some(part) = self.parts.get(to).filter(|part| part.start() < range.end()) {
            let gone = part.intersection(range);
            self.bytes -= gone.len();
            taken(gone);
            let (before, _) = part.split_at(range.start());
            let (_, behind) = part.split_at(range.end());
            head = head.or(Some(before).filter(|before| !before.is_empty()));
            tail = Some(behind).filter(|behind| !behind.is_empty());
            to += 1;
        }
        match (head, tail) {
            _ if from == to => {}
            (None, None) if from == self.first => self.first = to,
            (Some(left), None) | (None, Some(left)) if to == from + 1 => self.parts[from] = left,
            (head, tail) => {
                self.parts.splice(from..to, head.into_iter().chain(tail));
            }
        }
    }

    /// Puts the bytes of `range` in.
    pub(crate) fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.remove(range, |_| {});
        let at = self.place(range.start());
        self.parts.insert(at, range);
        self.bytes += range.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::RangeSet;
    use proptest::prelude::*;

    proptest! {
        /// The list behaves like a set.
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..64, 0_u64..64), 0..40)) {
            let (mut parts, mut set) = (Parts::default(), RangeSet::new());
            for (puts, a, b) in steps {
                let range = ByteRange::new(a.min(b), a.max(b));
                if puts {
                    parts.insert(range);
                    set.insert(range);
                } else {
                    let mut taken = RangeSet::new();
                    let there: RangeSet = set.intersection(range).into_iter().collect();
                    parts.remove(range, |part| {
                        taken.insert(part);
                    });
                    prop_assert_eq!(&taken, &there);
                    set.remove(range);
                }
                let found: RangeSet = parts.iter().collect();
                prop_assert_eq!(&found, &set);
                prop_assert_eq!((parts.len(), parts.is_empty()), (set.len(), set.is_empty()));
                let listed: Vec<ByteRange> = parts.iter().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[0].end() <= pair[1].start()));
                let found: RangeSet = parts.within(range).collect();
                let there: RangeSet = set.within(range).collect();
                prop_assert_eq!(found, there);
            }
        }
    }
}
