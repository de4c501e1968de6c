//! The page map: bytes of the file that are in memory, in pages of which each holds the extents that have arrived.
//!
//! A page is what is forgotten at once, the one that was used longest ago first. It is not what is fetched: an answer of a
//! kilobyte makes a page with one extent of a kilobyte, and only that counts. The memory is counted exactly, with the entries
//! of the map, and is within the budget after every call, but for pages that are pinned.

use std::collections::BTreeMap;

use gridlane_core::limits::{READ_EXTENT_OVERHEAD_BYTES, READ_PAGE_OVERHEAD_BYTES};
use gridlane_core::{ByteRange, RangeSet};

use crate::payload::Payload;

/// See the module.
#[derive(Debug)]
pub struct Pages<P> {
    page_bytes: u64,
    budget_bytes: u64,
    pages: BTreeMap<u64, Page<P>>,
    /// Pages that may be forgotten, by the time of their last use.
    order: BTreeMap<u64, u64>,
    /// The bytes that the pages hold, once more: to ask what is missing in many pages at once.
    present: RangeSet,
    /// Memory of the list of what is new of some bytes.
    fresh: Vec<ByteRange>,
    /// Pages that stay.
    kept: RangeSet,
    uses: u64,
    memory_bytes: u64,
    pinned_bytes: u64,
    memory_bytes_most: u64,
    evicted_bytes: u64,
}

#[derive(Debug)]
struct Page<P> {
    /// Offset and bytes of each, ascending, none touching the next.
    extents: Vec<(u64, P)>,
    memory_bytes: u64,
    used_at: u64,
    is_pinned: bool,
}

impl<P: Payload> Page<P> {
    fn count(&self) -> u64 {
        let extents =
            self.extents.iter().map(|(_, payload)| payload.memory_bytes() + READ_EXTENT_OVERHEAD_BYTES);
        READ_PAGE_OVERHEAD_BYTES + extents.sum::<u64>()
    }

    /// Puts in bytes of which none is there, and joins them with those that they touch.
    fn put(&mut self, offset: u64, payload: P) {
        let end = offset + payload.len_bytes();
        let at = self.extents.partition_point(|(start, _)| *start < offset);
        let touches_next = self.extents.get(at).is_some_and(|(start, _)| *start == end);
        let next = touches_next.then(|| self.extents.remove(at).1);
        let before = at.checked_sub(1).map(|before| &mut self.extents[before]);
        let joined = match before.filter(|(start, bytes)| start.saturating_add(bytes.len_bytes()) == offset) {
            Some((_, bytes)) => {
                bytes.append(payload);
                at - 1
            }
            None => {
                self.extents.insert(at, (offset, payload));
                at
            }
        };
        if let Some(next) = next {
            self.extents[joined].1.append(next);
        }
    }
}

impl<P: Payload> Pages<P> {
    /// An empty map. `page_bytes` is a power of two.
    pub fn new(page_bytes: u64, budget_bytes: u64) -> Pages<P> {
        Pages {
            page_bytes: page_bytes.max(1),
            budget_bytes,
            pages: BTreeMap::new(),
            order: BTreeMap::new(),
            present: RangeSet::new(),
            fresh: Vec::new(),
            kept: RangeSet::new(),
            uses: 0,
            memory_bytes: 0,
            pinned_bytes: 0,
            memory_bytes_most: 0,
            evicted_bytes: 0,
        }
    }

    /// Memory of the map, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Memory of the pages that stay, in bytes: it is part of [`memory_bytes`](Pages::memory_bytes).
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// The most memory that the map had between two calls, in bytes.
    pub fn memory_bytes_most(&self) -> u64 {
        self.memory_bytes_most
    }

    /// Bytes of the file that were forgotten.
    pub fn evicted_bytes(&self) -> u64 {
        self.evicted_bytes
    }

    /// Bytes of the file that are there.
    pub fn present(&self) -> &RangeSet {
        &self.present
    }

    /// Memory that is left, in bytes.
    pub fn room_bytes(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.memory_bytes)
    }

    /// Puts in the bytes from `offset` on; those that are there already are not changed.
    pub fn insert(&mut self, offset: u64, payload: &P) {
        let range = ByteRange::at(offset, payload.len_bytes());
        let mut fresh_parts = std::mem::take(&mut self.fresh);
        fresh_parts.clear();
        fresh_parts.extend(self.present.gaps(range));
        for &fresh in &fresh_parts {
            let mut rest = fresh;
            while !rest.is_empty() {
                let number = rest.start() / self.page_bytes;
                let (part, behind) = rest.split_at((number + 1).saturating_mul(self.page_bytes));
                rest = behind;
                self.put(number, part, payload.part(part.start() - offset, part.len()));
            }
            self.present.insert(fresh);
        }
        self.fresh = fresh_parts;
        self.evict();
    }

    fn put(&mut self, number: u64, part: ByteRange, payload: P) {
        let is_kept = self.kept.contains(ByteRange::at(number, 1));
        let newest = self.uses;
        self.uses += 1;
        let uses = self.uses;
        let page = self.pages.entry(number).or_insert_with(|| Page {
            extents: Vec::new(),
            memory_bytes: 0,
            used_at: uses,
            is_pinned: is_kept,
        });
        let before = page.memory_bytes;
        page.put(part.start(), payload);
        page.memory_bytes = page.count();
        self.memory_bytes = self.memory_bytes + page.memory_bytes - before;
        if page.is_pinned {
            self.pinned_bytes = self.pinned_bytes + page.memory_bytes - before;
        } else if page.used_at == newest {
            // It is the last one in the order already, as it is mostly while an answer comes.
            self.uses = newest;
        } else {
            self.order.remove(&page.used_at);
            page.used_at = uses;
            self.order.insert(uses, number);
        }
    }

    /// Hands out the bytes of `range` that are there, ascending, and marks their pages as used now.
    pub fn read(&mut self, range: ByteRange, mut take: impl FnMut(u64, P)) {
        if range.is_empty() {
            return;
        }
        let numbers = range.start() / self.page_bytes..=(range.end() - 1) / self.page_bytes;
        for (&number, page) in self.pages.range_mut(numbers) {
            if !page.is_pinned && page.used_at != self.uses {
                self.uses += 1;
                self.order.remove(&page.used_at);
                page.used_at = self.uses;
                self.order.insert(self.uses, number);
            }
            let first =
                page.extents.partition_point(|(start, bytes)| start + bytes.len_bytes() <= range.start());
            for (start, payload) in &page.extents[first..] {
                let part = ByteRange::at(*start, payload.len_bytes()).intersection(range);
                if part.is_empty() {
                    break;
                }
                take(part.start(), payload.part(part.start() - start, part.len()));
            }
        }
    }

    /// A copy of the bytes of `range`, if all of them are there and at hand. It is no use of them.
    pub fn bytes(&self, range: ByteRange) -> Option<Vec<u8>> {
        if range.is_empty() || !self.present.contains(range) {
            return None;
        }
        let mut found = Vec::new();
        let numbers = range.start() / self.page_bytes..=(range.end() - 1) / self.page_bytes;
        for (start, payload) in self.pages.range(numbers).flat_map(|(_, page)| &page.extents) {
            let part = ByteRange::at(*start, payload.len_bytes()).intersection(range);
            if !part.is_empty() {
                found.extend_from_slice(payload.part(part.start() - start, part.len()).bytes()?);
            }
        }
        Some(found)
    }

    /// Keeps the pages of `range` from now on, as far as half of the budget goes. Bytes that are not there are kept when they
    /// come.
    pub fn keep(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let numbers =
            ByteRange::new(range.start() / self.page_bytes, (range.end() - 1) / self.page_bytes + 1);
        let worst = |numbers: u64| {
            numbers.saturating_mul(self.page_bytes + READ_PAGE_OVERHEAD_BYTES + READ_EXTENT_OVERHEAD_BYTES)
        };
        let fresh: u64 = self.kept.missing(numbers).iter().map(|part| part.len()).sum();
        if worst(self.kept.len().saturating_add(fresh)) > self.budget_bytes / 2 {
            return;
        }
        self.kept.insert(numbers);
        for (_, page) in self.pages.range_mut(numbers.start()..numbers.end()) {
            if !page.is_pinned {
                page.is_pinned = true;
                self.order.remove(&page.used_at);
                self.pinned_bytes += page.memory_bytes;
            }
        }
    }

    fn evict(&mut self) {
        while self.memory_bytes > self.budget_bytes {
            let Some((_, number)) = self.order.pop_first() else { break };
            let Some(page) = self.pages.remove(&number) else { continue };
            self.memory_bytes -= page.memory_bytes;
            for (start, payload) in &page.extents {
                self.evicted_bytes += self.present.remove(ByteRange::at(*start, payload.len_bytes()));
            }
        }
        self.memory_bytes_most = self.memory_bytes_most.max(self.memory_bytes);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Pages::new(self.page_bytes, self.budget_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(range: ByteRange) -> Vec<u8> {
        (range.start()..range.end()).map(|at| (at % 251) as u8).collect()
    }

    fn read(pages: &mut Pages<Vec<u8>>, range: ByteRange) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        pages.read(range, |offset, payload| found.push((offset, payload)));
        found
    }

    #[test]
    fn a_page_holds_only_what_came() {
        let mut pages = Pages::new(1024, 10_000);
        for range in [ByteRange::at(100, 50), ByteRange::at(200, 50), ByteRange::at(150, 50)] {
            pages.insert(range.start(), &content(range));
        }
        assert_eq!(pages.present().iter().collect::<Vec<_>>(), [ByteRange::new(100, 250)]);
        let whole = ByteRange::new(0, 1024);
        assert_eq!(read(&mut pages, whole), [(100, content(ByteRange::new(100, 250)))]);
    }

    #[test]
    fn pages_that_are_kept_are_not_forgotten() {
        let mut pages = Pages::new(1024, 8 * 1024);
        pages.keep(ByteRange::at(0, 1));
        for number in 0..20 {
            let range = ByteRange::at(number * 1024, 1024);
            pages.insert(range.start(), &content(range));
        }
        assert!(pages.present().contains(ByteRange::at(0, 1024)));
        assert!(!pages.present().contains(ByteRange::at(1024, 1)));
        assert!(pages.pinned_bytes() > 1024 && pages.memory_bytes() <= 8 * 1024);
        pages.keep(ByteRange::at(0, 1 << 40));
        assert!(pages.pinned_bytes() < 2 * 1024, "no more than half of the budget can be kept");
    }

    proptest! {
        /// The map gives back what was put in, forgets whole pages only, counts its memory exactly and stays in its budget.
        #[test]
        fn counts_what_it_holds(steps in prop::collection::vec((0_u64..8000, 1_u64..3000), 1..60), budget in 2000_u64..20_000) {
            let mut pages = Pages::new(1024, budget);
            for (start, len) in steps {
                let range = ByteRange::at(start, len);
                pages.insert(start, &content(range));
                let counted: u64 = pages.pages.values().map(Page::count).sum();
                prop_assert_eq!(pages.memory_bytes(), counted);
                prop_assert!(pages.memory_bytes() <= budget);
                prop_assert_eq!(pages.order.len(), pages.pages.len());
                let all = pages.present().contains(range).then(|| content(range));
                prop_assert_eq!(pages.bytes(range), all);
                let found = read(&mut pages, ByteRange::new(0, 20_000));
                let there: RangeSet = found.iter().map(|(at, bytes)| ByteRange::at(*at, bytes.len() as u64)).collect();
                prop_assert_eq!(&there, pages.present());
                for (at, bytes) in found {
                    let range = ByteRange::at(at, bytes.len() as u64);
                    prop_assert_eq!(bytes, content(range));
                }
            }
        }
    }
}
