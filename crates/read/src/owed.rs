//! The table of what is in flight: each byte is owed by one request at most, so that two readers of it share that one.

use std::collections::BTreeMap;

use gridlane_core::ByteRange;
use gridlane_plan::RequestId;

/// Bytes that are owed, and by which request.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// start → end and request; no two overlap.
    parts: BTreeMap<u64, (u64, RequestId)>,
    bytes: u64,
}

impl Owed {
    /// Bytes that are owed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The parts of `range` that are owed, ascending.
    pub(crate) fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, RequestId)> + '_ {
        let first = self.parts.range(..=range.start()).next_back().map_or(range.start(), |(&start, _)| start);
        self.parts
            .range(first..range.end().max(first))
            .map(move |(&start, &(end, request))| (ByteRange::new(start, end).intersection(range), request))
            .filter(|(part, _)| !part.is_empty())
    }

    /// True if a byte of `range` is owed.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.within(range).next().is_some()
    }

    /// Puts the parts of `range` that nothing owes into `missing`, ascending.
    pub(crate) fn missing(&self, range: ByteRange, missing: &mut Vec<ByteRange>) {
        let mut at = range.start();
        for (part, _) in self.within(range) {
            if at < part.start() {
                missing.push(ByteRange::new(at, part.start()));
            }
            at = part.end();
        }
        if at < range.end() {
            missing.push(ByteRange::new(at, range.end()));
        }
    }

    /// `range` is owed by `request` from now on, and by no other.
    pub(crate) fn put(&mut self, range: ByteRange, request: RequestId) {
        if range.is_empty() {
            return;
        }
        let others: Vec<_> = self.within(range).collect();
        for (part, other) in others {
            self.take(part, other);
        }
        self.parts.insert(range.start(), (range.end(), request));
        self.bytes += range.len();
    }

    /// `request` does not owe the bytes of `range` any more; what others owe of it stays.
    pub(crate) fn take(&mut self, range: ByteRange, request: RequestId) {
        let mine: Vec<u64> = {
            let first =
                self.parts.range(..=range.start()).next_back().map_or(range.start(), |(&start, _)| start);
            let found = self.parts.range(first..range.end().max(first));
            found
                .filter(|(_, (end, by))| *by == request && *end > range.start())
                .map(|(&start, _)| start)
                .collect()
        };
        for start in mine {
            let Some((end, _)) = self.parts.remove(&start) else { continue };
            self.bytes -= end - start;
            for (start, end) in [(start, range.start().min(end)), (range.end().max(start), end)] {
                if start < end {
                    self.parts.insert(start, (end, request));
                    self.bytes += end - start;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The table behaves like an array of names.
        #[test]
        fn agrees_with_an_array(steps in prop::collection::vec((any::<bool>(), 0_u64..64, 0_u64..64, 0_u64..4), 0..40)) {
            let mut owed = Owed::default();
            let mut model = [None; 64];
            for (puts, a, b, request) in steps {
                let range = ByteRange::new(a.min(b), a.max(b));
                for cell in &mut model[range.start() as usize..range.end() as usize] {
                    if puts {
                        *cell = Some(request);
                    } else if *cell == Some(request) {
                        *cell = None;
                    }
                }
                if puts { owed.put(range, RequestId(request)) } else { owed.take(range, RequestId(request)) }
                prop_assert_eq!(owed.bytes(), model.iter().flatten().count() as u64);
                let mut found = [None; 64];
                for (part, request) in owed.within(ByteRange::new(0, 64)) {
                    found[part.start() as usize..part.end() as usize].fill(Some(request.0));
                }
                prop_assert_eq!(found, model);
                let mut missing = Vec::new();
                owed.missing(ByteRange::new(0, 64), &mut missing);
                prop_assert_eq!(missing.iter().map(|part| part.len()).sum::<u64>(), 64 - owed.bytes());
            }
        }
    }
}
