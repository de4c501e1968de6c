//! Ranges of calls that wait for bytes.

use std::collections::BTreeMap;

use gridlane_core::ByteRange;

use crate::call::ReadId;

/// Bytes of the file that share an entry of the index.
const CELL_BYTES: u64 = 64 * 1024;
/// Cells of one range that are in the index; a longer range has an entry of its own.
const CELLS_MAX: u64 = 64;

/// One range that waits.
#[derive(Debug)]
struct Wait {
    read: ReadId,
    index: usize,
    /// The parts that have not come, ascending.
    missing: Vec<ByteRange>,
    range: ByteRange,
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

/// All ranges that wait, findable by the bytes that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    slots: Vec<Option<Wait>>,
    free: Vec<usize>,
    by_cell: BTreeMap<u64, Vec<usize>>,
    long: Vec<usize>,
    count: usize,
}

impl Waits {
    /// Number of ranges that wait.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A range of a call waits for the bytes of `missing`, ascending and not empty.
    pub(crate) fn add(&mut self, read: ReadId, index: usize, missing: Vec<ByteRange>) -> usize {
        let hull = ByteRange::new(
            missing.first().map_or(0, |first| first.start()),
            missing.last().map_or(0, |last| last.end()),
        );
        let wait = Wait { read, index, missing, range: hull };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(wait);
                slot
            }
            None => {
                self.slots.push(Some(wait));
                self.slots.len() - 1
            }
        };
        match cells(hull) {
            Some(cells) => cells.for_each(|cell| self.by_cell.entry(cell).or_default().push(slot)),
            None => self.long.push(slot),
        }
        self.count += 1;
        slot
    }

    /// Removes a range that is not waited for any more, and says whose it was.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<(ReadId, usize)> {
        let wait = self.slots.get_mut(slot)?.take()?;
        match cells(wait.range) {
            Some(cells) => {
                for cell in cells {
                    if let Some(slots) = self.by_cell.get_mut(&cell) {
                        slots.retain(|other| *other != slot);
                        if slots.is_empty() {
                            self.by_cell.remove(&cell);
                        }
                    }
                }
            }
            None => self.long.retain(|other| *other != slot),
        }
        self.free.push(slot);
        self.count -= 1;
        Some((wait.read, wait.index))
    }

    /// Removes a range if it is still that of `read`.
    pub(crate) fn remove_of(&mut self, slot: usize, read: ReadId) {
        if self.slots.get(slot).is_some_and(|wait| wait.as_ref().is_some_and(|wait| wait.read == read)) {
            self.remove(slot);
        }
    }

    fn near(&self, range: ByteRange) -> impl Iterator<Item = usize> + '_ {
        let cells =
            range.start() / CELL_BYTES..=range.end().saturating_sub(1).max(range.start()) / CELL_BYTES;
        self.by_cell
            .range(cells)
            .flat_map(|(_, slots)| slots.iter().copied())
            .chain(self.long.iter().copied())
    }

    /// True if a byte of `range` is waited for.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.near(range).any(|slot| {
            self.slots[slot]
                .as_ref()
                .is_some_and(|wait| wait.missing.iter().any(|part| !part.intersection(range).is_empty()))
        })
    }

    /// The parts of `range` that are waited for, ascending and without overlap.
    pub(crate) fn wanted(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut parts: Vec<ByteRange> = self
            .near(range)
            .filter_map(|slot| self.slots[slot].as_ref())
            .flat_map(|wait| wait.missing.iter().map(|part| part.intersection(range)))
            .filter(|part| !part.is_empty())
            .collect();
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

    /// The bytes of `arrived` are there: which ranges get which of them. Ranges that have everything wait no more.
    pub(crate) fn arrive(&mut self, arrived: ByteRange) -> Vec<Delivery> {
        let mut slots: Vec<usize> = self.near(arrived).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut deliveries = Vec::new();
        for slot in slots {
            let Some(wait) = self.slots[slot].as_mut() else { continue };
            let mut rest = Vec::new();
            let before = deliveries.len();
            for part in &wait.missing {
                let came = part.intersection(arrived);
                if came.is_empty() {
                    rest.push(*part);
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
            let is_complete = rest.is_empty();
            wait.missing = rest;
            if is_complete {
                if let Some(last) = deliveries.last_mut() {
                    last.is_last = true;
                }
                self.remove(slot);
            }
        }
        deliveries
    }

    /// Nothing from `size_bytes` on exists: the ranges that waited only for that are complete.
    pub(crate) fn cut(&mut self, size_bytes: u64) -> Vec<(ReadId, usize)> {
        let mut complete = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(wait) = self.slots[slot].as_mut() else { continue };
            for part in &mut wait.missing {
                *part = part.split_at(size_bytes).0;
                if part.start() >= size_bytes {
                    *part = ByteRange::new(0, 0);
                }
            }
            wait.missing.retain(|part| !part.is_empty());
            if wait.missing.is_empty() {
                complete.extend(self.remove(slot));
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

    #[test]
    fn two_readers_of_the_same_bytes_both_get_them_once() {
        let mut waits = Waits::default();
        let range = ByteRange::new(100, 200);
        waits.add(ReadId(1), 0, vec![range]);
        waits.add(ReadId(2), 5, vec![ByteRange::new(150, 160), ByteRange::new(180, 300)]);
        assert_eq!(waits.arrive(ByteRange::new(100, 170)).len(), 2);
        let last = waits.arrive(ByteRange::new(140, 250));
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
        waits.add(ReadId(1), 0, vec![ByteRange::new(0, 1 << 40)]);
        assert!(waits.touches(ByteRange::at(1 << 35, 1)));
        let deliveries = waits.arrive(ByteRange::new(0, 1 << 40));
        assert!(deliveries[0].is_last && waits.is_empty() && waits.long.is_empty());
    }
}
