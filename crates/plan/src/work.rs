//! The bytes to be fetched: those that are done, those that no lane was asked for, and the sources that may not
//! deliver which.
//!
//! Every byte of the object is in exactly one of three places: in `done`, in `free`, or *owed* by a
//! request. Only the first two are kept here; the requests are with their lanes.

use gridlane_core::{ByteRange, RangeSet};

use crate::SourceId;

/// The state of every byte that no request owes.
#[derive(Debug)]
pub(crate) struct Work {
    size_bytes: Option<u64>,
    done: RangeSet,
    free: RangeSet,
    exclusions: Vec<Exclusion>,
    window_bytes: Option<u64>,
    released_bytes: u64,
}

/// Bytes that some sources must not deliver (any more).
#[derive(Debug)]
struct Exclusion {
    ranges: RangeSet,
    sources: Vec<SourceId>,
}

impl Work {
    /// Everything is to be fetched, however much that is.
    pub(crate) fn new(window_bytes: Option<u64>) -> Work {
        Work {
            size_bytes: None,
            done: RangeSet::new(),
            free: RangeSet::from_iter([ByteRange::new(0, u64::MAX)]),
            exclusions: Vec::new(),
            window_bytes,
            released_bytes: 0,
        }
    }

    /// Forgets all bytes at and behind the end of the object.
    pub(crate) fn set_size(&mut self, size_bytes: u64) {
        let beyond = ByteRange::new(size_bytes, u64::MAX);
        self.free.remove(beyond);
        self.done.remove(beyond);
        self.size_bytes = Some(size_bytes);
    }

    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// The bytes of `range` that exist, as far as is known.
    pub(crate) fn cut(&self, range: ByteRange) -> ByteRange {
        range.intersection(ByteRange::new(0, self.size_bytes.unwrap_or(u64::MAX)))
    }

    /// These bytes are there.
    pub(crate) fn mark_done(&mut self, range: ByteRange) {
        let range = self.cut(range);
        self.done.insert(range);
        self.free.remove(range);
    }

    /// These bytes are not there (any more); the caller frees those that no request owes.
    pub(crate) fn mark_missing(&mut self, range: ByteRange) {
        self.done.remove(range);
    }

    /// The parts of `range` that are not done.
    pub(crate) fn missing(&self, range: ByteRange) -> RangeSet {
        self.done.missing(self.cut(range)).into_iter().collect()
    }

    /// True if all of `range` is done.
    pub(crate) fn is_done(&self, range: ByteRange) -> bool {
        self.done.contains(self.cut(range))
    }

    /// Missing bytes that no request owes any more.
    pub(crate) fn put_back(&mut self, ranges: &RangeSet) {
        for range in ranges.iter() {
            self.free.insert(range);
        }
    }

    /// A request owes these bytes from now on.
    pub(crate) fn take(&mut self, range: ByteRange) {
        self.free.remove(range);
    }

    /// True if no lane owes any of the missing bytes of `range`.
    pub(crate) fn is_free(&self, range: ByteRange) -> bool {
        self.missing(range).iter().all(|part| self.free.contains(part))
    }

    /// The lowest free bytes that `source` may deliver and the window admits.
    pub(crate) fn next_for(&self, source: SourceId) -> Option<ByteRange> {
        let window = ByteRange::new(0, self.window_end());
        self.free
            .iter()
            .take_while(|range| range.start() < window.end())
            .find_map(|range| self.allowed(source, range.intersection(window)))
    }

    /// The first part of `range` that `source` may deliver.
    pub(crate) fn allowed(&self, source: SourceId, range: ByteRange) -> Option<ByteRange> {
        if self.exclusions.is_empty() {
            return (!range.is_empty()).then_some(range);
        }
        self.all_allowed(source, range).first()
    }

    /// True if some bytes may not come from some sources.
    pub(crate) fn has_exclusions(&self) -> bool {
        !self.exclusions.is_empty()
    }

    /// True if there are free bytes that some source `in_use` may not deliver.
    pub(crate) fn is_restricted(&self, in_use: impl Fn(SourceId) -> bool) -> bool {
        self.exclusions.iter().any(|exclusion| {
            exclusion.sources.iter().any(|&source| in_use(source))
                && exclusion.ranges.iter().any(|range| !self.free.intersection(range).is_empty())
        })
    }

    /// True if `source` may deliver all of `range`.
    pub(crate) fn may_deliver(&self, source: SourceId, range: ByteRange) -> bool {
        self.excluded_for(source).all(|excluded| excluded.intersection(range).is_empty())
    }

    /// From now on `sources` may not deliver `range`.
    pub(crate) fn exclude(&mut self, range: ByteRange, sources: &[SourceId]) {
        // The last word about a byte counts: what was said of it before is taken back.
        for exclusion in &mut self.exclusions {
            exclusion.ranges.remove(range);
        }
        self.exclusions.retain(|exclusion| !exclusion.ranges.is_empty());
        let range = self.cut(range);
        if sources.is_empty() || range.is_empty() {
            return;
        }
        match self.exclusions.iter_mut().find(|exclusion| exclusion.sources == sources) {
            Some(exclusion) => {
                exclusion.ranges.insert(range);
            }
            None => {
                let ranges = RangeSet::from_iter([range]);
                self.exclusions.push(Exclusion { ranges, sources: sources.to_vec() });
            }
        }
    }

    /// The parts of `range` that `source` may deliver.
    pub(crate) fn all_allowed(&self, source: SourceId, range: ByteRange) -> RangeSet {
        let mut allowed = RangeSet::from_iter([range]);
        for excluded in self.excluded_for(source) {
            for part in excluded.intersection(range) {
                allowed.remove(part);
            }
        }
        allowed
    }

    /// True if some missing byte is refused to every one of `sources`.
    pub(crate) fn is_refused_to_all(&self, sources: &[SourceId]) -> bool {
        let object = ByteRange::new(0, self.size_bytes.unwrap_or(u64::MAX));
        self.exclusions.iter().flat_map(|exclusion| exclusion.ranges.iter()).any(|range| {
            self.missing(range.intersection(object)).iter().any(|part| {
                // The bytes that no source may deliver are those left after taking out what each one may.
                let mut refused = RangeSet::from_iter([part]);
                for &source in sources {
                    for allowed in self.all_allowed(source, part).iter() {
                        refused.remove(allowed);
                    }
                }
                !refused.is_empty()
            })
        })
    }

    /// Bytes that are free and inside the window.
    pub(crate) fn free_bytes(&self) -> u64 {
        match self.window_bytes {
            None => self.free.len(),
            Some(_) => {
                let end = self.window_end();
                let inside = self.free.iter().take_while(|range| range.start() < end);
                inside.map(|range| range.end().min(end) - range.start()).sum()
            }
        }
    }

    /// True if any byte is free, inside the window or not.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The target has taken everything before this offset.
    pub(crate) fn release(&mut self, up_to_bytes: u64) {
        self.released_bytes = self.released_bytes.max(up_to_bytes);
    }

    /// The window is so large from now on.
    pub(crate) fn resize_window(&mut self, window_bytes: u64) {
        self.window_bytes = Some(window_bytes);
    }

    /// Bytes from the first one that the target has not taken up to the last one that has come, or up to `asked`.
    pub(crate) fn ahead_bytes(&self, asked: u64) -> u64 {
        let came = self.done.iter().next_back().map_or(0, ByteRange::end);
        came.max(asked).saturating_sub(self.released_bytes)
    }

    /// No request may end behind this offset.
    pub(crate) fn window_end(&self) -> u64 {
        self.window_bytes.map_or(u64::MAX, |window| self.released_bytes.saturating_add(window.max(1)))
    }

    /// The lowest byte that is not done.
    pub(crate) fn lowest_missing(&self) -> Option<u64> {
        let first = self.done.first().filter(|range| range.start() == 0).map_or(0, ByteRange::end);
        (first < self.size_bytes.unwrap_or(u64::MAX)).then_some(first)
    }

    /// True if nothing can be fetched until the target takes more.
    pub(crate) fn waits_for_target(&self) -> bool {
        self.lowest_missing().is_some_and(|lowest| lowest >= self.window_end())
    }

    /// Bytes still to come; unknown as long as the size is.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        self.size_bytes.map(|size| size - self.done.len())
    }

    /// Number of ranges that the state is made of: its memory.
    pub(crate) fn fragments(&self) -> usize {
        let excluded: usize = self.exclusions.iter().map(|exclusion| exclusion.ranges.range_count()).sum();
        self.done.range_count() + self.free.range_count() + excluded
    }

    fn excluded_for(&self, source: SourceId) -> impl Iterator<Item = &RangeSet> {
        let of_source = move |exclusion: &&Exclusion| exclusion.sources.contains(&source);
        self.exclusions.iter().filter(of_source).map(|exclusion| &exclusion.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SourceId = SourceId(0);
    const B: SourceId = SourceId(1);

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    #[test]
    fn a_size_ends_an_unbounded_object() {
        let mut work = Work::new(None);
        assert_eq!(work.missing_bytes(), None);
        work.mark_done(range(0, 10));
        work.set_size(40);
        assert_eq!(work.missing_bytes(), Some(30));
        assert_eq!(work.next_for(A), Some(range(10, 40)));
    }

    #[test]
    fn the_window_cuts_what_may_be_asked_for() {
        let mut work = Work::new(Some(16));
        work.set_size(100);
        assert_eq!(work.next_for(A), Some(range(0, 16)));
        assert_eq!(work.free_bytes(), 16);
        work.take(range(0, 16));
        work.mark_done(range(0, 16));
        assert_eq!(work.next_for(A), None);
        assert!(work.waits_for_target());
        work.release(10);
        assert_eq!(work.next_for(A), Some(range(16, 26)));
    }

    #[test]
    fn a_window_that_shrinks_lets_what_is_there_drain() {
        let mut work = Work::new(Some(32));
        work.set_size(100);
        work.take(range(0, 32));
        work.mark_done(range(8, 32));
        work.resize_window(8);
        assert_eq!((work.next_for(A), work.ahead_bytes(0), work.ahead_bytes(40)), (None, 32, 40));
        work.mark_done(range(0, 8));
        work.release(32);
        assert_eq!((work.next_for(A), work.ahead_bytes(0)), (Some(range(32, 40)), 0));
    }

    #[test]
    fn an_excluded_source_is_offered_other_bytes() {
        let mut work = Work::new(None);
        work.set_size(100);
        work.exclude(range(0, 20), &[A]);
        work.exclude(range(30, 40), &[A]);
        assert_eq!(work.next_for(A), Some(range(20, 30)));
        assert_eq!(work.next_for(B), Some(range(0, 100)));
        assert!(!work.is_refused_to_all(&[A, B]));
        assert!(work.is_refused_to_all(&[A]));
        work.mark_done(range(0, 50));
        assert!(!work.is_refused_to_all(&[A]), "bytes that are done need nobody");
    }
}
