//! Ranges of calls that wait for bytes.

use std::cell::Cell;
use std::collections::BTreeMap;

use gridlane_core::ByteRange;

use crate::call::ReadId;

/// Bytes of the file that share an entry of the index.
const CELL_BYTES: u64 = 64 * 1024;
/// Cells of one range that are in the index; a longer range has an entry of its own.
const CELLS_MAX: u64 = 64;
/// Ranges of one call from which on it has an index of its own.
pub(crate) const GROUP_RANGES_MIN: usize = 64;
/// Calls that have one at the same time; ranges of more are in the cells.
const GROUPS_MAX: usize = 64;
/// The group of ranges that are in the cells.
const NO_GROUP: u32 = u32::MAX;

/// One range that waits.
#[derive(Debug)]
struct Wait {
    read: ReadId,
    index: usize,
    /// The first part that has not come.
    first: ByteRange,
    /// More of them, ascending: only where the range was there in part, or came so.
    more: Vec<ByteRange>,
    /// What it waited for when it was put in.
    range: ByteRange,
    group: u32,
}

impl Wait {
    fn missing(&self) -> impl Iterator<Item = ByteRange> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// Bytes that go to a range of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) read: ReadId,
    pub(crate) index: usize,
    pub(crate) part: ByteRange,
    /// The last bytes that the range waited for.
    pub(crate) is_last: bool,
}

/// The ranges of a large call, ascending: found by bisection, and mostly next to the one that was found last.
#[derive(Debug)]
struct Group {
    name: u32,
    entries: Vec<Entry>,
    /// Ranges of it that wait.
    live: usize,
    hint: Cell<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// The largest end of this range and of those before it.
    reach: u64,
    slot: usize,
}

impl Group {
    /// The first entry from which on ranges may end behind `offset`.
    fn place(&self, offset: u64) -> usize {
        let is_it = |at: usize| {
            self.entries.get(at).is_none_or(|entry| entry.reach > offset)
                && at.checked_sub(1).is_none_or(|before| self.entries[before].reach <= offset)
        };
        let hint = self.hint.get();
        let found = [hint, hint + 1].into_iter().find(|at| *at <= self.entries.len() && is_it(*at));
        let found = found.unwrap_or_else(|| self.entries.partition_point(|entry| entry.reach <= offset));
        self.hint.set(found);
        found
    }
}

/// All ranges that wait, findable by the bytes that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    slots: Vec<Option<Wait>>,
    free: Vec<usize>,
    groups: Vec<Group>,
    next_group: u32,
    /// The last group takes more ranges.
    is_gathering: bool,
    by_cell: BTreeMap<u64, Vec<usize>>,
    long: Vec<usize>,
    count: usize,
    /// Slots that were found, for the next search.
    found: Vec<usize>,
}

impl Waits {
    /// Number of ranges that wait.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ranges that are added from now on ascend, and are many: they have an index of their own, until
    /// [`gathered`](Waits::gathered).
    pub(crate) fn gather(&mut self, ranges: usize) {
        self.gathered();
        if ranges < GROUP_RANGES_MIN || self.groups.len() >= GROUPS_MAX || self.next_group == NO_GROUP {
            return;
        }
        self.is_gathering = true;
        let group =
            Group { name: self.next_group, entries: Vec::with_capacity(ranges), live: 0, hint: Cell::new(0) };
        self.groups.push(group);
        self.next_group += 1;
        self.slots.reserve(ranges.saturating_sub(self.free.len()));
    }

    /// There are no more of them.
    pub(crate) fn gathered(&mut self) {
        if std::mem::take(&mut self.is_gathering) {
            self.groups.retain(|group| group.live > 0);
        }
    }

    /// A range of a call waits for the bytes of `missing`, ascending and not empty.
    pub(crate) fn add(
        &mut self,
        read: ReadId,
        index: usize,
        missing: impl IntoIterator<Item = ByteRange>,
    ) -> usize {
        let mut missing = missing.into_iter();
        let first = missing.next().unwrap_or(ByteRange::new(0, 0));
        let more: Vec<ByteRange> = missing.collect();
        let hull = ByteRange::new(first.start(), more.last().unwrap_or(&first).end());
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let gathering = if self.is_gathering { self.groups.last_mut() } else { None };
        let ascends = |group: &&mut Group| group.entries.last().is_none_or(|last| last.start <= hull.start());
        let group = match gathering.filter(ascends) {
            Some(group) => {
                let reach = group.entries.last().map_or(0, |last| last.reach).max(hull.end());
                group.entries.push(Entry { start: hull.start(), reach, slot });
                group.live += 1;
                group.name
            }
            None => {
                match cells(hull) {
                    Some(cells) => cells.for_each(|cell| self.by_cell.entry(cell).or_default().push(slot)),
                    None => self.long.push(slot),
                }
                NO_GROUP
            }
        };
        let wait = Some(Wait { read, index, first, more, range: hull, group });
        match self.slots.get_mut(slot) {
            Some(free) => *free = wait,
            None => self.slots.push(wait),
        }
        self.count += 1;
        slot
    }

    /// Removes a range that is not waited for any more, and says whose it was.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<(ReadId, usize)> {
        let wait = self.slots.get_mut(slot)?.take()?;
        if wait.group != NO_GROUP {
            if let Some(at) = self.groups.iter().position(|group| group.name == wait.group) {
                self.groups[at].live -= 1;
                if self.groups[at].live == 0 && !(self.is_gathering && at + 1 == self.groups.len()) {
                    self.groups.remove(at);
                }
            }
        } else if let Some(cells) = cells(wait.range) {
            for cell in cells {
                if let Some(slots) = self.by_cell.get_mut(&cell) {
                    slots.retain(|other| *other != slot);
                    if slots.is_empty() {
                        self.by_cell.remove(&cell);
                    }
                }
            }
        } else {
            self.long.retain(|other| *other != slot);
        }
        self.count -= 1;
        if self.count == 0 {
            // Slots are given out again in their order, next to each other.
            self.slots.clear();
            self.free.clear();
        } else {
            self.free.push(slot);
        }
        Some((wait.read, wait.index))
    }

    /// Removes a range if it is still that of `read`.
    pub(crate) fn remove_of(&mut self, slot: usize, read: ReadId) {
        if self.slots.get(slot).is_some_and(|wait| wait.as_ref().is_some_and(|wait| wait.read == read)) {
            self.remove(slot);
        }
    }

    /// Looks at ranges that may wait for bytes of `range`, some perhaps twice, until `see` has seen enough.
    fn near(&self, range: ByteRange, mut see: impl FnMut(usize, &Wait) -> bool) {
        for group in &self.groups {
            for entry in &group.entries[group.place(range.start())..] {
                if entry.start >= range.end() {
                    break;
                }
                // Another range may be there by now.
                let wait = self.slots.get(entry.slot).and_then(|wait| wait.as_ref());
                if let Some(wait) = wait.filter(|wait| wait.group == group.name)
                    && see(entry.slot, wait)
                {
                    return;
                }
            }
        }
        if self.by_cell.is_empty() && self.long.is_empty() {
            return;
        }
        let cells =
            range.start() / CELL_BYTES..=range.end().saturating_sub(1).max(range.start()) / CELL_BYTES;
        let in_cells = self.by_cell.range(cells).flat_map(|(_, slots)| slots.iter());
        for &slot in in_cells.chain(&self.long) {
            if let Some(wait) = &self.slots[slot]
                && see(slot, wait)
            {
                return;
            }
        }
    }

    /// True if a byte of `range` is waited for.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        let mut is_touched = false;
        self.near(range, |_, wait| {
            is_touched = wait.missing().any(|part| !part.intersection(range).is_empty());
            is_touched
        });
        is_touched
    }

    /// The parts of `range` that are waited for, ascending and without overlap.
    pub(crate) fn wanted(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut parts: Vec<ByteRange> = Vec::new();
        self.near(range, |_, wait| {
            let inside = wait.missing().map(|part| part.intersection(range));
            parts.extend(inside.filter(|part| !part.is_empty()));
            false
        });
        parts.sort_unstable();
        parts.dedup();
        let mut joined: Vec<ByteRange> = Vec::with_capacity(parts.len());
        for part in parts {
            match joined.last_mut() {
                Some(last) if part.start() <= last.end() => {
                    *last = ByteRange::new(last.start(), last.end().max(part.end()));
                }
                _ => joined.push(part),
            }
        }
        joined
    }

    /// The bytes of `arrived` are there: which ranges get which of them is put into `deliveries`. Ranges that have everything
    /// wait no more.
    pub(crate) fn arrive(&mut self, arrived: ByteRange, deliveries: &mut Vec<Delivery>) {
        let mut slots = std::mem::take(&mut self.found);
        slots.clear();
        self.near(arrived, |slot, wait| {
            if !wait.range.intersection(arrived).is_empty() {
                slots.push(slot);
            }
            false
        });
        if slots.len() > 1 {
            slots.sort_unstable();
            slots.dedup();
        }
        for &slot in &slots {
            let Some(wait) = self.slots.get_mut(slot).and_then(|wait| wait.as_mut()) else { continue };
            if wait.more.is_empty() && arrived.contains(wait.first) {
                let (read, index, part) = (wait.read, wait.index, wait.first);
                deliveries.push(Delivery { read, index, part, is_last: true });
                self.remove(slot);
                continue;
            }
            let mut rest = Vec::new();
            let before = deliveries.len();
            for part in wait.missing() {
                let came = part.intersection(arrived);
                if came.is_empty() {
                    rest.push(part);
                    continue;
                }
                deliveries.push(Delivery { read: wait.read, index: wait.index, part: came, is_last: false });
                let (head, _) = part.split_at(came.start());
                let (_, tail) = part.split_at(came.end());
                rest.extend([head, tail].into_iter().filter(|part| !part.is_empty()));
            }
            if deliveries.len() == before {
                continue;
            }
            let mut rest = rest.into_iter();
            match rest.next() {
                Some(first) => (wait.first, wait.more) = (first, rest.collect()),
                None => {
                    if let Some(last) = deliveries.last_mut() {
                        last.is_last = true;
                    }
                    self.remove(slot);
                }
            }
        }
        self.found = slots;
    }

    /// Nothing from `size_bytes` on exists: the ranges that waited only for that are complete.
    pub(crate) fn cut(&mut self, size_bytes: u64) -> Vec<(ReadId, usize)> {
        let mut complete = Vec::new();
        let file = ByteRange::new(0, size_bytes);
        for slot in 0..self.slots.len() {
            let Some(wait) = self.slots.get_mut(slot).and_then(|wait| wait.as_mut()) else { continue };
            let mut left = wait.missing().map(|part| part.intersection(file)).filter(|part| !part.is_empty());
            let parts = left.next().map(|first| (first, left.collect::<Vec<ByteRange>>()));
            match parts {
                Some((first, more)) => (wait.first, wait.more) = (first, more),
                None => complete.extend(self.remove(slot)),
            }
        }
        complete
    }
}

/// The cells of a range that is not too long for them.
fn cells(range: ByteRange) -> Option<std::ops::RangeInclusive<u64>> {
    let cells = range.start() / CELL_BYTES..=range.end().saturating_sub(1).max(range.start()) / CELL_BYTES;
    (cells.end() - cells.start() < CELLS_MAX).then_some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrive(waits: &mut Waits, range: ByteRange) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        waits.arrive(range, &mut deliveries);
        deliveries
    }

    #[test]
    fn two_readers_of_the_same_bytes_both_get_them_once() {
        let mut waits = Waits::default();
        let range = ByteRange::new(100, 200);
        waits.add(ReadId(1), 0, [range]);
        waits.add(ReadId(2), 5, [ByteRange::new(150, 160), ByteRange::new(180, 300)]);
        assert_eq!(arrive(&mut waits, ByteRange::new(100, 170)).len(), 2);
        let last = arrive(&mut waits, ByteRange::new(140, 250));
        let of = |read| last.iter().filter(move |delivery| delivery.read == ReadId(read)).collect::<Vec<_>>();
        assert_eq!(
            of(1),
            [&Delivery { read: ReadId(1), index: 0, part: ByteRange::new(170, 200), is_last: true }]
        );
        assert_eq!(of(2)[0].part, ByteRange::new(180, 250));
        assert_eq!(waits.wanted(ByteRange::new(0, 1000)), [ByteRange::new(250, 300)]);
        assert_eq!(waits.cut(250), [(ReadId(2), 5)]);
        assert!(waits.is_empty() && waits.by_cell.is_empty());
    }

    #[test]
    fn a_long_range_is_found_as_well() {
        let mut waits = Waits::default();
        waits.add(ReadId(1), 0, [ByteRange::new(0, 1 << 40)]);
        assert!(waits.touches(ByteRange::at(1 << 35, 1)));
        let deliveries = arrive(&mut waits, ByteRange::new(0, 1 << 40));
        assert!(deliveries[0].is_last && waits.is_empty() && waits.long.is_empty());
    }

    proptest! {
        /// Ranges of large calls are found as those of small ones are: both tables say the same of whatever comes and goes.
        #[test]
        fn groups_and_cells_agree(
            calls in prop::collection::vec(prop::collection::vec((0_u64..2_000_000, 1_u64..300_000), 1..90), 1..5),
            steps in prop::collection::vec((any::<bool>(), 0_u64..2_200_000, 1_u64..400_000), 1..60),
        ) {
            let (mut grouped, mut plain) = (Waits::default(), Waits::default());
            let mut slots = Vec::new();
            for (call, mut ranges) in calls.into_iter().enumerate() {
                ranges.sort_unstable();
                grouped.gather(GROUP_RANGES_MIN);
                for (index, (start, len)) in ranges.into_iter().enumerate() {
                    let missing = [ByteRange::at(start, len), ByteRange::at(start + len + 10, len)];
                    let count = 1 + index % 2;
                    let read = ReadId(call as u64);
                    let here = grouped.add(read, index, missing.into_iter().take(count));
                    slots.push((read, here, plain.add(read, index, missing.into_iter().take(count))));
                }
                grouped.gathered();
            }
            for (arrives, start, len) in steps {
                let range = ByteRange::at(start, len);
                prop_assert_eq!(grouped.touches(range), plain.touches(range));
                prop_assert_eq!(grouped.wanted(range), plain.wanted(range));
                if arrives {
                    let order = |delivery: &Delivery| (delivery.read, delivery.index, delivery.part);
                    let (mut here, mut there) = (arrive(&mut grouped, range), arrive(&mut plain, range));
                    here.sort_by_key(order);
                    there.sort_by_key(order);
                    prop_assert_eq!(here, there);
                } else {
                    let (read, here, there) = slots[start as usize % slots.len()];
                    // A slot may be another range's by now, of both or of none.
                    if grouped.slots.len() == plain.slots.len() && here == there {
                        grouped.remove_of(here, read);
                        plain.remove_of(there, read);
                    }
                }
                prop_assert_eq!(grouped.len(), plain.len());
            }
            let all = ByteRange::new(0, u64::MAX);
            arrive(&mut grouped, all);
            arrive(&mut plain, all);
            prop_assert!(grouped.is_empty() && grouped.groups.is_empty() && plain.by_cell.is_empty());
        }
    }
}
