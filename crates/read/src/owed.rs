//! The table of what is in flight: each byte is owed by one request at most, so that two readers of it share that one.

use gridlane_core::ByteRange;
use gridlane_plan::RequestId;

use crate::parts::Parts;

/// Bytes that are owed, and by which request. Requests are few (16 on each of 16 lanes), their parts are many: each request has a
/// list of its own, and one that has nothing near a range is passed over by its first and last byte.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// By name; none is empty, and no two overlap.
    by: Vec<(RequestId, Parts)>,
    bytes: u64,
}

impl Owed {
    /// Bytes that are owed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lists that may have something of `range`.
    fn near(&self, range: ByteRange) -> impl Iterator<Item = &(RequestId, Parts)> {
        let is_near = move |(_, parts): &&(RequestId, Parts)| !parts.hull().intersection(range).is_empty();
        self.by.iter().filter(is_near)
    }

    /// The parts of `range` that are owed, ascending.
    pub(crate) fn within(&self, range: ByteRange) -> Vec<(ByteRange, RequestId)> {
        let mut found = Vec::new();
        let mut lists = 0;
        for (request, parts) in self.near(range) {
            found.extend(parts.within(range).map(|part| (part, *request)));
            lists += 1;
        }
        if lists > 1 {
            found.sort_unstable();
        }
        found
    }

    /// True if a byte of `range` is owed.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.near(range).any(|(_, parts)| parts.within(range).next().is_some())
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
        self.take_from_all(range);
        match self.by.binary_search_by_key(&request, |(other, _)| *other) {
            Ok(at) => self.by[at].1.insert(range),
            Err(at) => self.by.insert(at, (request, Parts::new(vec![range]))),
        }
        self.bytes += range.len();
    }

    /// All these, ascending and without overlap, are owed by `request`, which is new, and by no other.
    pub(crate) fn put_all(&mut self, parts: Parts, request: RequestId) {
        if self.near(parts.hull()).next().is_some() {
            parts.iter().for_each(|part| {
                self.take_from_all(part);
            });
        }
        if parts.is_empty() {
            return;
        }
        self.bytes += parts.len();
        match self.by.binary_search_by_key(&request, |(other, _)| *other) {
            Ok(at) => parts.iter().for_each(|part| self.by[at].1.insert(part)),
            Err(at) => self.by.insert(at, (request, parts)),
        }
    }

    /// `request` does not owe the bytes of `range` any more; what others owe of it stays. Returns how many it owed.
    pub(crate) fn take(&mut self, range: ByteRange, request: RequestId) -> u64 {
        let Ok(at) = self.by.binary_search_by_key(&request, |(other, _)| *other) else { return 0 };
        let parts = &mut self.by[at].1;
        let before = parts.len();
        parts.remove(range, |_| {});
        let taken = before - parts.len();
        if parts.is_empty() {
            self.by.remove(at);
        }
        self.bytes -= taken;
        taken
    }

    /// Nobody owes the bytes of `range` any more.
    pub(crate) fn take_from_all(&mut self, range: ByteRange) {
        let mut is_left = true;
        for (_, parts) in &mut self.by {
            if !parts.hull().intersection(range).is_empty() {
                let before = parts.len();
                parts.remove(range, |_| {});
                self.bytes -= before - parts.len();
                is_left &= !parts.is_empty();
            }
        }
        if !is_left {
            self.by.retain(|(_, parts)| !parts.is_empty());
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
                if puts {
                    owed.put(range, RequestId(request));
                } else {
                    owed.take(range, RequestId(request));
                }
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
