//! The reader of one file: calls and events in, actions out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gridlane_core::limits::{
    READ_AHEAD_RANGES_MAX, READ_CALLS_MAX, READ_RANGES_MAX, READ_SOURCES_MAX, READ_WAITING_MAX,
};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Time};
use gridlane_plan::{LaneId, RequestId, SourceId};

use crate::action::Action;
use crate::budget::{Budget, Purpose};
use crate::call::{Call, Hint, ReadId};
use crate::cost::Path;
use crate::estimate::{Element, Rate};
use crate::explain::Explain;
use crate::fill::Fill;
use crate::idle::Idle;
use crate::lane::{Lane, Request, Source, State};
use crate::outline::Following;
use crate::owed::Owed;
use crate::pages::Pages;
use crate::payload::Payload;
use crate::rental::Rental;
use crate::settings::{Policy, Settings};
use crate::stored::Stored;
use crate::stream::{Reach, Streams};
use crate::vector::{Queue, joined, merged};
use crate::waits::{Delivery, GROUP_RANGES_MIN, Waits};

/// One open file. The order of calls: [`add_source`](Reader::add_source) once or more; then, whenever something happens,
/// [`read`](Reader::read), [`cancel`](Reader::cancel), [`hint`](Reader::hint) or [`handle`](Reader::handle), and after it
/// [`poll`](Reader::poll) until it answers `None`; and `poll` again at [`deadline`](Reader::deadline). The same calls at the same
/// times give the same actions.
#[derive(Debug)]
pub struct Reader<P> {
    pub(crate) settings: Settings,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) sources: Vec<Source>,
    pub(crate) lanes: BTreeMap<LaneId, Lane>,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) reads: BTreeMap<ReadId, Read>,
    deadlines: BTreeSet<(Time, ReadId)>,
    pub(crate) waits: Waits,
    pub(crate) pages: Pages<P>,
    pub(crate) owed: Owed,
    pub(crate) stored: Stored,
    /// The bytes that calls lack and nothing owes.
    pub(crate) queue: Queue,
    /// Ranges that are expected to be wanted, with the reason.
    pub(crate) ahead: VecDeque<(ByteRange, Purpose)>,
    /// Long ranges that are brought from their beginning on.
    pub(crate) fills: VecDeque<Fill>,
    pub(crate) bulk: Option<Fill>,
    pub(crate) following: Following,
    pub(crate) idle: Idle,
    pub(crate) streams: Streams,
    pub(crate) rental: Rental,
    pub(crate) budget: Budget,
    pub(crate) rate: Rate,
    pub(crate) element: Element,
    pub(crate) out: VecDeque<Action<P>>,
    /// Calls of which the next range may be asked for.
    direct: VecDeque<ReadId>,
    pub(crate) explain: Explain,
    pub(crate) began_at: Option<Time>,
    /// When a source last brought a byte, or a call began to wait while none did.
    pub(crate) heard_at: Time,
    pub(crate) is_opened: bool,
    pub(crate) wants_everything: bool,
    is_random: bool,
    is_closed: bool,
    pub(crate) failed: Option<Error>,
    /// Something happened since the last look.
    pub(crate) is_dirty: bool,
    /// Memory of lists that are made for each part that comes, and for each range of a call.
    pub(crate) accepted: Vec<ByteRange>,
    pub(crate) deliveries: Vec<Delivery>,
    missing: Vec<ByteRange>,
    unowed: Vec<ByteRange>,
    next_read: u64,
    pub(crate) next_lane: u64,
    pub(crate) next_request: u64,
}

/// A call that is not complete.
#[derive(Debug)]
pub(crate) struct Read {
    ranges: Vec<ByteRange>,
    /// Ranges that have not got all their bytes.
    remaining: usize,
    /// The next range to be asked for, where they go one by one.
    next: usize,
    slots: Vec<usize>,
    deadline: Option<Time>,
}

impl<P: Payload> Reader<P> {
    /// A reader of a file of which nothing is known.
    pub fn new(settings: Settings) -> Reader<P> {
        let settings = settings.checked();
        Reader {
            size_bytes: None,
            sources: Vec::new(),
            lanes: BTreeMap::new(),
            requests: BTreeMap::new(),
            reads: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waits: Waits::default(),
            pages: Pages::new(settings.page_bytes, settings.memory_bytes),
            owed: Owed::default(),
            stored: Stored::default(),
            queue: Queue::default(),
            ahead: VecDeque::new(),
            fills: VecDeque::new(),
            bulk: None,
            following: Following::default(),
            idle: Idle::default(),
            streams: Streams::default(),
            rental: Rental::default(),
            budget: Budget::new(settings.budget),
            rate: Rate::new(settings.rate_bytes_per_s),
            element: Element::default(),
            out: VecDeque::new(),
            direct: VecDeque::new(),
            explain: Explain {
                policy: settings.policy,
                moved_bytes: Purpose::ALL.map(|purpose| (purpose, 0)),
                ..Explain::default()
            },
            began_at: None,
            heard_at: Time::ZERO,
            is_opened: false,
            wants_everything: false,
            is_random: false,
            is_closed: false,
            failed: None,
            is_dirty: true,
            accepted: Vec::new(),
            deliveries: Vec::new(),
            missing: Vec::new(),
            unowed: Vec::new(),
            next_read: 0,
            next_lane: 0,
            next_request: 0,
            settings,
        }
    }

    // --- Getters ---------------------------------------------------------------------------------

    /// Size of the file in bytes, once a source has stated it.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// True once every byte of the file is in the page map.
    pub fn is_whole(&self) -> bool {
        let whole = self.size_bytes.map(|size_bytes| ByteRange::new(0, size_bytes));
        whole.is_some_and(|whole| self.pages.present().contains(whole))
    }

    /// True once it is closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Hands out the bytes of `range` that are in the page map, ascending, as if no call wanted them.
    pub fn held(&mut self, range: ByteRange, take: impl FnMut(u64, P)) {
        self.pages.read(range, take);
    }

    /// Memory of the page map, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.pages.memory_bytes()
    }

    /// Memory of pages that are kept because a hint says so, in bytes: part of [`memory_bytes`](Reader::memory_bytes).
    pub fn pinned_bytes(&self) -> u64 {
        self.pages.pinned_bytes()
    }

    /// Ranges of calls that wait.
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// Bytes that requests owe.
    pub fn owed_bytes(&self) -> u64 {
        self.owed.bytes()
    }

    /// The path as it is thought to be.
    pub fn path(&self) -> Path {
        let round_trip_s = self.round_trip_s();
        let holds_bytes = self.rate.get() * round_trip_s;
        let ready = self.lanes.values().filter(|lane| lane.state == State::Ready);
        let lanes = ready.clone().count();
        let part_bytes = holds_bytes / lanes.max(1) as f64;
        let window_bytes: f64 = ready.map(|lane| lane.window_bytes(part_bytes)).sum();
        Path {
            round_trip_s,
            rate_bytes_per_s: self.rate.get(),
            element_s: self.element.get_s(),
            lanes,
            window_bytes,
        }
    }

    /// The smallest round trip to a source that lives.
    pub(crate) fn round_trip_s(&self) -> f64 {
        let known = self
            .sources
            .iter()
            .filter(|source| !source.is_dead)
            .filter_map(|source| source.round_trip.expected_s());
        known.reduce(f64::min).unwrap_or(gridlane_core::limits::READ_ROUND_TRIP_S)
    }

    /// The record of what was decided until now.
    pub fn explain(&self, now: Time) -> Explain {
        let path = self.path();
        Explain {
            size_bytes: self.size_bytes,
            round_trip_s: path.round_trip_s,
            round_trip_is_measured: self.sources.iter().any(|source| source.round_trip.known_s().is_some()),
            rate_bytes_per_s: path.rate_bytes_per_s,
            rate_is_measured: self.rate.is_measured(),
            element_s: path.element_s,
            element_is_measured: self.element.is_measured(),
            gap_bytes: path.gap_bytes(self.pipelines()) as u64,
            wanted_bytes: self.budget.wanted_bytes(),
            stall: self.rental.stall(now),
            rent_s: self.rental.rent_s(now, path.round_trip_s, path.rate_bytes_per_s),
            memory_bytes_most: self.pages.memory_bytes_most(),
            evicted_bytes: self.pages.evicted_bytes(),
            ..self.explain.clone()
        }
    }

    pub(crate) fn pipelines(&self) -> bool {
        let mut abilities = self.lanes.values().filter_map(|lane| lane.abilities);
        let first = abilities.next().is_none_or(|abilities| abilities.pipelines);
        first || abilities.next().is_some()
    }

    /// The moment at which [`poll`](Reader::poll) has something to do though nothing happens until then.
    pub fn deadline(&self) -> Option<Time> {
        let read = self.deadlines.first().map(|(deadline, _)| *deadline);
        [read, self.next_look()].into_iter().flatten().min()
    }

    // --- Verbs of the application ----------------------------------------------------------------

    /// Another replica of the file; at most 64, of which more are not used.
    pub fn add_source(&mut self) -> SourceId {
        let id = SourceId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        let mut source = Source::new(self.settings.lanes);
        source.is_dead = self.sources.len() >= READ_SOURCES_MAX;
        self.sources.push(source);
        self.is_dirty = true;
        id
    }

    /// A call. Its ranges are delivered as their bytes come, and it ends exactly once, with an error when there are too many
    /// calls or ranges (`Usage`), its deadline has passed (`Timeout`), no source is left (that of the last source), or the file
    /// is closed (`Interrupted`).
    pub fn read(&mut self, now: Time, call: Call) -> ReadId {
        let id = ReadId(self.next_read);
        self.next_read += 1;
        self.is_dirty = true;
        self.began_at.get_or_insert(now);
        if let Some(error) = self.refusal(&call) {
            self.out.push_back(Action::End { read: id, result: Err(error) });
            return id;
        }
        self.explain.calls += 1;
        self.explain.ranges += call.ranges.len() as u64;
        if call.ranges.is_empty() {
            self.out.push_back(Action::End { read: id, result: Ok(()) });
            return id;
        }
        let is_one = call.ranges.len() == 1;
        let first = call.ranges[0];
        let count = call.ranges.len();
        let next = if self.settings.policy == Policy::Direct { 1 } else { count };
        let read =
            Read { ranges: call.ranges, remaining: count, next, slots: Vec::new(), deadline: call.deadline };
        if let Some(deadline) = call.deadline {
            self.deadlines.insert((deadline, id));
        }
        if self.reads.is_empty() {
            self.heard_at = self.heard_at.max(now);
        }
        self.reads.insert(id, read);
        self.rental.begin(now);
        let mut lacking = Vec::new();
        if next >= GROUP_RANGES_MIN {
            self.admit_all(now, id, &mut lacking);
        } else {
            (0..next).for_each(|index| self.admit(now, id, index, &mut lacking));
        }
        self.demand(lacking);
        self.proceed(now);
        if is_one && !first.is_empty() {
            self.follow(first);
        }
        id
    }

    fn refusal(&self, call: &Call) -> Option<Error> {
        if self.is_closed {
            return Some(Error::new(ErrorKind::Usage, "the file is closed"));
        }
        if let Some(error) = &self.failed {
            return Some(error.clone());
        }
        let is_many = call.ranges.len() > READ_RANGES_MAX
            || call.ranges.len() + self.waits.len() > READ_WAITING_MAX
            || self.reads.len() >= READ_CALLS_MAX;
        is_many.then(|| {
            let message = format!(
                "a call with {} ranges, while {} ranges of {} calls wait, is more than is kept in memory",
                call.ranges.len(),
                self.waits.len(),
                self.reads.len()
            );
            Error::new(ErrorKind::Usage, message).hint("read fewer ranges at a time")
        })
    }

    /// Nothing of a call is wanted any more: it ends with `Interrupted`. One that has ended is not changed.
    pub fn cancel(&mut self, now: Time, read: ReadId) {
        self.end(now, read, Err(Error::new(ErrorKind::Interrupted, "the read was cancelled")));
        self.take_back();
        self.proceed(now);
        self.is_dirty = true;
    }

    /// Words about reads to come.
    pub fn hint(&mut self, hint: Hint) {
        self.is_dirty = true;
        self.idle.wake();
        match hint {
            Hint::Soon(ranges) => {
                let soon = ranges.into_iter().map(|range| (range, Purpose::Ahead));
                self.ahead.extend(soon);
                self.ahead.truncate(READ_AHEAD_RANGES_MAX);
            }
            Hint::Everything => self.wants_everything = true,
            Hint::Keep(range) => self.pages.keep(range),
            Hint::Random => self.is_random = true,
        }
    }

    /// The bytes are not to be believed: calls that wait, and all that come, fail with this.
    pub fn give_up(&mut self, now: Time, error: Error) {
        self.fail(now, error);
    }

    /// The application is done with the file: calls that wait end with `Interrupted`, connections are closed, memory is freed.
    pub fn close(&mut self, now: Time) {
        self.is_closed = true;
        self.end_all(now, &Error::new(ErrorKind::Interrupted, "the file was closed"));
        for (&lane, state) in &mut self.lanes {
            if state.state != State::Closing {
                state.state = State::Closing;
                self.out.push_back(Action::Close { lane });
            }
        }
        self.pages.clear();
        self.stored.clear();
        self.stop();
    }

    /// Forgets what was to be fetched.
    pub(crate) fn stop(&mut self) {
        self.queue.clear();
        self.ahead.clear();
        self.fills.clear();
        self.bulk = None;
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self, now: Time) -> Option<Action<P>> {
        if self.out.is_empty() && !self.is_closed {
            self.expire(now);
            if self.is_dirty || self.next_look().is_some_and(|look| look <= now) {
                self.is_dirty = false;
                self.look(now);
            }
        }
        self.stored.next_action().or_else(|| self.out.pop_front())
    }

    // --- Calls -----------------------------------------------------------------------------------

    /// Gives a range what is there, and notes what it lacks.
    fn admit(&mut self, now: Time, id: ReadId, index: usize, lacking: &mut Vec<ByteRange>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        let mut range = read.ranges[index];
        if let Some(size_bytes) = self.size_bytes {
            range =
                if range.start() < size_bytes { range.split_at(size_bytes).0 } else { ByteRange::new(0, 0) };
            read.ranges[index] = range;
        }
        let mut missing = std::mem::take(&mut self.missing);
        missing.clear();
        missing.extend(self.pages.present().gaps(range));
        if missing.first() != Some(&range) {
            let (out, delivered) = (&mut self.out, &mut self.explain.delivered_bytes);
            self.pages.read(range, |offset, payload| {
                *delivered += payload.len_bytes();
                out.push_back(Action::Bytes { read: id, index, offset, payload });
            });
        }
        self.budget.hit(range);
        if missing.is_empty() {
            self.missing = missing;
            self.explain.hits += u64::from(!range.is_empty());
            self.finish(now, id, index);
            return;
        }
        let before = lacking.len();
        self.unowed.clear();
        missing.iter().for_each(|part| self.owed.missing(*part, &mut self.unowed));
        let mut is_shared = true;
        if !self.stored.ranges.is_empty() {
            let far: Vec<ByteRange> = self.unowed.iter().flat_map(|part| self.stored.recall(*part)).collect();
            is_shared = far == self.unowed;
            self.unowed = far;
        }
        self.unowed.iter().for_each(|part| self.queue.missing(*part, lacking));
        if is_shared && lacking.len() == before {
            self.explain.shared += 1;
            self.rental.share();
        }
        let slot = self.waits.add(id, index, missing.iter().copied());
        read.slots.push(slot);
        self.missing = missing;
    }

    /// The same for all ranges of a large call, by their places in the file: what is near is looked at together.
    fn admit_all(&mut self, now: Time, id: ReadId, lacking: &mut Vec<ByteRange>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        let count = read.ranges.len();
        let mut order: Vec<(u64, usize)> =
            read.ranges.iter().enumerate().map(|(index, range)| (range.start(), index)).collect();
        order.sort_unstable();
        read.slots.reserve(count);
        lacking.reserve(count);
        self.waits.gather(count);
        order.into_iter().for_each(|(_, index)| self.admit(now, id, index, lacking));
        self.waits.gathered();
    }

    /// A range has everything.
    pub(crate) fn finish(&mut self, now: Time, id: ReadId, index: usize) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        read.remaining = read.remaining.saturating_sub(1);
        let bytes = read.ranges[index].len();
        self.out.push_back(Action::RangeDone { read: id, index, bytes });
        if read.remaining == 0 {
            self.end(now, id, Ok(()));
        } else if read.next < read.ranges.len() {
            self.direct.push_back(id);
        }
    }

    /// The next ranges of calls whose ranges go one by one.
    pub(crate) fn proceed(&mut self, now: Time) {
        while let Some(id) = self.direct.pop_front() {
            let Some(read) = self.reads.get_mut(&id) else { continue };
            let index = read.next;
            if index < read.ranges.len() {
                read.next += 1;
                let mut lacking = Vec::new();
                self.admit(now, id, index, &mut lacking);
                self.demand(lacking);
            }
        }
    }

    /// Ends a call, once.
    pub(crate) fn end(&mut self, now: Time, id: ReadId, result: Result<(), Error>) {
        let Some(read) = self.reads.remove(&id) else { return };
        if let Some(deadline) = read.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if read.remaining > 0 {
            read.slots.iter().for_each(|slot| self.waits.remove_of(*slot, id));
        }
        self.out.push_back(Action::End { read: id, result });
        if self.reads.is_empty() {
            self.rental.end(now, self.round_trip_s(), self.rate.get());
        }
    }

    pub(crate) fn end_all(&mut self, now: Time, error: &Error) {
        let all: Vec<ReadId> = self.reads.keys().copied().collect();
        all.into_iter().for_each(|read| self.end(now, read, Err(error.clone())));
    }

    /// Calls whose time is over.
    fn expire(&mut self, now: Time) {
        let mut has_expired = false;
        while let Some((_, read)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            let message = "the deadline of the read has passed before its bytes came";
            let error = Error::new(ErrorKind::Timeout, message).fault(Fault::Network);
            self.end(now, read, Err(error));
            has_expired = true;
        }
        if has_expired {
            self.take_back();
            self.is_dirty = true;
        }
    }

    /// Requests for which nothing waits any more.
    fn take_back(&mut self) {
        for (&id, request) in &mut self.requests {
            let is_idle = request.purpose == Purpose::Demand && !request.is_taken_back && !request.is_body;
            if is_idle && !request.missing.iter().any(|part| self.waits.touches(part)) {
                request.is_taken_back = true;
                self.out.push_back(Action::TakeBack { request: id });
            }
        }
    }

    // --- Demand ----------------------------------------------------------------------------------

    /// Plans the ranges that calls lack: without repetition, without what a forced policy brings anyway, with gaps that are
    /// cheaper than elements.
    pub(crate) fn demand(&mut self, lacking: Vec<ByteRange>) {
        if lacking.is_empty() {
            return;
        }
        let mut parts = joined(lacking);
        if let Some(first) = parts.first() {
            self.rental.miss(*first);
        }
        self.budget.demand(parts.iter().map(|part| part.len()).sum());
        if self.settings.policy == Policy::Lazy {
            parts.iter().for_each(|part| self.touch_segments(*part));
        }
        if self.fills.iter().any(|fill| fill.is_strict) {
            let covered = |part: &ByteRange| self.fills.iter().any(|fill| fill.will_bring(*part));
            parts.retain(|part| !covered(part));
        }
        let gap_bytes = self.path().gap_bytes(self.pipelines()) as u64;
        let may_spend = !self.settings.is_exact() && self.settings.policy != Policy::Direct;
        let spare_bytes = if may_spend { self.budget.spare_bytes() } else { 0 };
        let may_fill = |gap: ByteRange| !self.owed.touches(gap) && !self.queue.touches(gap);
        let (elements, filled_bytes) = merged(parts, gap_bytes, spare_bytes, may_fill);
        self.budget.fill_gaps(filled_bytes);
        self.explain.gap_filled_bytes += filled_bytes;
        self.queue.push(elements);
    }

    /// The stream that a call may belong to.
    fn follow(&mut self, range: ByteRange) {
        let follows = matches!(self.settings.policy, Policy::Adaptive | Policy::Prefetch);
        let (Some(size_bytes), true) =
            (self.size_bytes, follows && !self.is_random && !self.settings.is_exact())
        else {
            return;
        };
        let reach = Reach { holds_bytes: self.path().holds_bytes() as u64, size_bytes };
        for part in self.streams.read(range, reach) {
            if self.ahead.len() >= READ_AHEAD_RANGES_MAX {
                self.ahead.pop_front();
            }
            self.ahead.push_back((part, Purpose::Ahead));
        }
    }

    /// The path showed what a source's size is: nothing behind it is wanted.
    pub(crate) fn cut(&mut self, now: Time, size_bytes: u64) {
        self.queue.cut(size_bytes);
        for fill in &mut self.fills {
            fill.range = fill.range.intersection(ByteRange::new(0, size_bytes));
        }
        for read in self.reads.values_mut() {
            for range in &mut read.ranges {
                *range = if range.start() < size_bytes {
                    range.split_at(size_bytes).0
                } else {
                    ByteRange::new(0, 0)
                };
            }
        }
        for (read, index) in self.waits.cut(size_bytes) {
            self.finish(now, read, index);
        }
        let behind = ByteRange::new(size_bytes, u64::MAX);
        for (&id, request) in &mut self.requests {
            request.missing.remove(behind, |_| {});
            self.owed.take(behind, id);
        }
        self.recount();
    }

    /// Counts what lanes owe, after requests were changed.
    pub(crate) fn recount(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.outstanding_bytes = 0;
        }
        for request in self.requests.values() {
            if let Some(lane) = self.lanes.get_mut(&request.lane) {
                lane.outstanding_bytes += request.missing.len();
            }
        }
    }

    /// Time since the file was first read.
    pub(crate) fn age(&self, now: Time) -> Duration {
        self.began_at.map_or(Duration::ZERO, |began_at| now.since(began_at))
    }
}
