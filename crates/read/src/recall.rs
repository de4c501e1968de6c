//! What the engine says of bytes that are [stored](crate::stored) near by.

use gridlane_core::{ByteRange, Time};
use gridlane_plan::SourceId;

use crate::payload::Payload;
use crate::reader::Reader;

impl<P: Payload> Reader<P> {
    /// True if every byte of the file is in memory or stored.
    pub(crate) fn is_near(&self) -> bool {
        let Some(size_bytes) = self.size_bytes else { return false };
        let whole = ByteRange::new(0, size_bytes);
        // Every look asks this: the sums first, which are known.
        self.is_whole()
            || (self.stored.ranges.len() + self.pages.present().len() >= size_bytes
                && self.far_bytes(whole) == 0)
    }

    /// Bytes of `scope` that are neither in memory nor stored.
    pub(crate) fn far_bytes(&self, scope: ByteRange) -> u64 {
        let present = self.pages.present();
        if self.stored.ranges.is_empty() && Some(scope.len()) == self.size_bytes {
            return scope.len().saturating_sub(present.len());
        }
        let far = |gap: ByteRange| gap.len() - present.within(gap).map(|part| part.len()).sum::<u64>();
        self.stored.ranges.gaps(scope).map(far).sum()
    }

    /// Bytes are stored from now on, as a source has them. One that states another size than the file has does not count.
    pub(crate) fn store(&mut self, source: SourceId, ranges: Vec<ByteRange>) {
        let stated = self.sources.get(source.0 as usize).and_then(|source| source.size_bytes);
        let Some(size_bytes) = self.size_bytes.filter(|size_bytes| stated == Some(*size_bytes)) else {
            return;
        };
        for range in ranges {
            let range = range.intersection(ByteRange::new(0, size_bytes));
            self.stored.ranges.insert(range);
            // What calls wait for and no lane owes: it was to be sent, or a fill was to bring it, which leaves out what is stored.
            self.queue.remove(range);
            let mut free = Vec::new();
            self.waits.wanted(range).into_iter().for_each(|wanted| self.owed.missing(wanted, &mut free));
            for wanted in free {
                self.stored.recall(wanted);
            }
        }
    }

    /// All is in memory or stored, and no lane owes anything any more: what calls wait for is recalled, whether a server was to be asked for
    /// it, or had been asked by a connection that is gone, or a fill was to bring it.
    pub(crate) fn recall_everything(&mut self) {
        if (self.queue.is_empty() && self.fills.is_empty()) || self.stored.ranges.is_empty() {
            return;
        }
        self.queue.clear();
        self.fills.clear();
        for wanted in self.waits.wanted(ByteRange::new(0, self.size_bytes.unwrap_or(0))) {
            self.stored.recall(wanted);
        }
    }

    /// Stored bytes that were asked for are here.
    pub(crate) fn recalled(&mut self, now: Time, offset: u64, payload: &P) {
        let range = ByteRange::at(offset, payload.len_bytes());
        self.heard_at = self.heard_at.max(now);
        for part in self.stored.recalled.intersection(range) {
            self.stored.recalled.remove(part);
            self.explain.stored_bytes += part.len();
            self.deliver(now, part, offset, payload);
        }
    }

    /// Bytes are not stored any more, or were lost: those that calls wait for are asked of a server.
    pub(crate) fn unstore(&mut self, range: ByteRange) {
        self.stored.ranges.remove(range);
        self.stored.recalled.remove(range);
        let mut free = Vec::new();
        for wanted in self.waits.wanted(range) {
            self.pages.present().gaps(wanted).for_each(|gap| self.owed.missing(gap, &mut free));
        }
        let mut lacking = Vec::new();
        free.into_iter().for_each(|part| self.queue.missing(part, &mut lacking));
        self.demand(lacking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::event::{Abilities, Event};
    use crate::{Call, Policy, Settings};
    use gridlane_core::RangeSet;
    use gridlane_plan::LaneId;
    use std::time::Duration;

    const SIZE: u64 = 100_000_000;

    fn all(reader: &mut Reader<Vec<u8>>) -> Vec<Action<Vec<u8>>> {
        std::iter::from_fn(|| reader.poll(Time::ZERO)).collect()
    }

    fn asked(actions: &[Action<Vec<u8>>]) -> (RangeSet, Vec<ByteRange>) {
        let (mut sent, mut recalled) = (RangeSet::new(), Vec::new());
        for action in actions {
            match action {
                Action::Request { ranges, .. } => ranges.iter().for_each(|range| {
                    sent.insert(*range);
                }),
                Action::Recall { ranges } => recalled.extend(ranges),
                _ => {}
            }
        }
        (sent, recalled)
    }

    /// A reader with the first half of the file stored, and a connection.
    fn half_stored() -> Reader<Vec<u8>> {
        let mut reader = Reader::new(Settings::default());
        let source = reader.add_source();
        all(&mut reader);
        reader.handle(Time::ZERO, Event::Size { source, size_bytes: SIZE });
        let ranges = vec![ByteRange::new(0, SIZE / 2)];
        reader.handle(Time::ZERO, Event::Stored { source, ranges });
        let abilities =
            Abilities { elements_max: 100, element_bytes_max: 1 << 20, pipelines: true, warm: true };
        let round_trip = Some(Duration::from_millis(10));
        reader.handle(Time::ZERO, Event::Ready { lane: LaneId(0), round_trip, abilities });
        reader
    }

    #[test]
    fn what_is_stored_is_recalled_and_asked_of_no_server() {
        let mut reader = half_stored();
        // The head of the file is stored, its tail is not.
        let (sent, recalled) = asked(&all(&mut reader));
        assert!(recalled.is_empty() && sent.first().unwrap().start() > SIZE / 2);
        let call = [ByteRange::at(1000, 500), ByteRange::at(SIZE / 2 - 100, 300)];
        let read = reader.read(Time::ZERO, Call::scattered(call));
        reader.read(Time::ZERO, Call::one(ByteRange::at(1100, 10)));
        let (sent, recalled) = asked(&all(&mut reader));
        assert_eq!(recalled, [ByteRange::at(1000, 500), ByteRange::at(SIZE / 2 - 100, 100)]);
        assert!(
            sent.missing(ByteRange::at(SIZE / 2, 200)).is_empty()
                && sent.first().unwrap().start() >= SIZE / 2
        );
        // Bytes that nothing wants are not taken.
        reader.handle(Time::ZERO, Event::Recalled { offset: 900, payload: vec![7; 600] });
        let actions = all(&mut reader);
        let done = |action: &&Action<_>| matches!(action, Action::RangeDone { .. });
        assert_eq!(actions.iter().filter(done).count(), 2, "the range, and the one that shares it");
        assert!(!actions.iter().any(|action| matches!(action, Action::End { read: of, .. } if *of == read)));
        assert_eq!(reader.explain(Time::ZERO).stored_bytes, 500);
    }

    /// Another process has brought all of the file while a call of this one waits: lanes are let go, and it is answered all the same.
    #[test]
    fn what_a_call_waits_for_is_recalled_when_all_is_stored() {
        let mut reader = half_stored();
        all(&mut reader);
        let wanted = ByteRange::at(SIZE / 2 + 7000, 500);
        let read = reader.read(Time::ZERO, Call::one(wanted));
        assert!(asked(&all(&mut reader)).0.contains(wanted));
        let ranges = vec![ByteRange::new(SIZE / 2, SIZE)];
        reader.handle(Time::ZERO, Event::Stored { source: SourceId(0), ranges });
        let actions = all(&mut reader);
        assert!(actions.iter().any(|action| matches!(action, Action::Close { .. })), "{actions:?}");
        assert_eq!(asked(&actions).1, [wanted]);
        reader.handle(Time::ZERO, Event::Recalled { offset: wanted.start(), payload: vec![7; 500] });
        let ended =
            |action: &Action<_>| matches!(action, Action::End { read: of, result: Ok(()) } if *of == read);
        assert!(all(&mut reader).iter().any(ended));
    }

    /// A segment, or the whole file, is brought by a fill, which leaves out what is stored; a call that waits for it was told to wait.
    #[test]
    fn what_a_fill_was_to_bring_is_recalled_when_it_is_stored() {
        for policy in [Policy::Lazy, Policy::Copy] {
            for stored_bytes in [SIZE, SIZE / 2] {
                let mut reader = Reader::new(Settings::forced(policy));
                let source = reader.add_source();
                let first = ByteRange::new(0, 1);
                let read = reader.read(Time::ZERO, Call::one(first));
                all(&mut reader);
                reader.handle(Time::ZERO, Event::Size { source, size_bytes: SIZE });
                let ranges = vec![ByteRange::new(0, stored_bytes)];
                reader.handle(Time::ZERO, Event::Stored { source, ranges });
                assert_eq!(asked(&all(&mut reader)).1, [first], "{policy:?}, {stored_bytes} bytes");
                reader.handle(Time::ZERO, Event::Recalled { offset: 0, payload: vec![7] });
                let ended = |action: &Action<_>| matches!(action, Action::End { read: of, result: Ok(()) } if *of == read);
                assert!(all(&mut reader).iter().any(ended), "{policy:?}, {stored_bytes} bytes");
            }
        }
    }

    #[test]
    fn what_was_damaged_is_asked_of_a_server() {
        let mut reader = half_stored();
        reader.read(Time::ZERO, Call::one(ByteRange::at(1000, 500)));
        all(&mut reader);
        reader.handle(Time::ZERO, Event::Unstored { range: ByteRange::new(1200, 4096) });
        let (sent, recalled) = asked(&all(&mut reader));
        assert!(recalled.is_empty() && sent.contains(ByteRange::new(1200, 1500)), "{sent:?}");
        assert!(!sent.contains(ByteRange::at(1000, 1)));
    }

    #[test]
    fn a_file_that_is_all_stored_needs_no_connection_and_a_wrong_size_is_not_stored() {
        let mut reader = half_stored();
        reader
            .handle(Time::ZERO, Event::Stored { source: SourceId(9), ranges: vec![ByteRange::new(0, SIZE)] });
        assert!(!reader.is_near());
        let ranges = vec![ByteRange::new(SIZE / 2, SIZE + 5)];
        reader.handle(Time::ZERO, Event::Stored { source: SourceId(0), ranges });
        assert!(reader.is_near() && !reader.is_whole());
        assert_eq!(reader.far_bytes(ByteRange::new(0, SIZE)), 0);
        let actions = all(&mut reader);
        assert!(actions.iter().any(|action| matches!(action, Action::Close { .. })), "{actions:?}");
    }
}
