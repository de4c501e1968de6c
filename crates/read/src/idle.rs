//! The number of connections: as many as the settings say while a file is opened, as many as what is wanted needs later, and
//! one at most when nothing was wanted for a while, since a program may have a thousand files open.

use gridlane_core::Time;
use gridlane_core::limits::{READ_FIRST_BYTES, READ_REQUEST_BYTES};
use gridlane_plan::LaneId;

use crate::lane::{Lane, State};
use crate::payload::Payload;
use crate::reader::Reader;

/// Bytes that another connection is worth its handshake for.
const LANE_BYTES: u64 = 2 * READ_FIRST_BYTES;
/// Part of the memory that a bulk fill must find free to be taken for work that goes on.
const BULK_MEMORY_SHARE: f64 = 0.1;

/// The rest of one file's connections.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// Since when nothing is wanted.
    since: Option<Time>,
    /// It was idle once: from then on connections are opened for what is wanted, and for nothing else.
    was: bool,
    /// Something was said of reads to come since then: one connection is there for them.
    is_woken: bool,
}

impl Idle {
    /// Reads are to come.
    pub(crate) fn wake(&mut self) {
        (self.since, self.is_woken) = (None, true);
    }
}

impl<P: Payload> Reader<P> {
    /// The moment at which connections are given up, if nothing happens until then.
    pub(crate) fn rests_at(&self) -> Option<Time> {
        let live = self.lanes.values().filter(|lane| lane.state != State::Closing).count();
        let since = self.idle.since.filter(|_| live > 1)?;
        Some(since + self.settings.idle)
    }

    /// Gives connections up that nothing needed for a while, all but one.
    pub(crate) fn rest(&mut self, now: Time) {
        if self.has_work() {
            self.idle.since = None;
            return;
        }
        let since = *self.idle.since.get_or_insert(now);
        if now < since + self.settings.idle {
            return;
        }
        (self.idle.was, self.idle.is_woken) = (true, false);
        let rank = |lane: &Lane| (lane.state == State::Ready && !lane.is_suspect, lane.received_bytes);
        let live = self.lanes.iter().filter(|(_, lane)| lane.state != State::Closing);
        let kept =
            live.clone().max_by_key(|(id, lane)| (rank(lane), std::cmp::Reverse(**id))).map(|(&id, _)| id);
        let others: Vec<LaneId> = live.map(|(&id, _)| id).filter(|id| Some(*id) != kept).collect();
        others.into_iter().for_each(|lane| self.close_lane(lane));
    }

    /// True if something is wanted, or being brought.
    fn has_work(&self) -> bool {
        let is_asked = !self.reads.is_empty() || !self.requests.is_empty() || !self.queue.is_empty();
        is_asked || !self.fills.is_empty() || self.bulk_goes_on()
    }

    /// True if the bulk fill has room: without it, it waits for something to be forgotten, perhaps for ever.
    fn bulk_goes_on(&self) -> bool {
        let spare_bytes = (BULK_MEMORY_SHARE * self.settings.memory_bytes as f64) as u64;
        let room_bytes = self.pages.room_bytes();
        self.bulk.as_ref().is_some_and(|bulk| {
            bulk.range.len() <= self.settings.memory_bytes / 2
                || room_bytes > 4 * READ_REQUEST_BYTES + spare_bytes
        })
    }

    /// The number of connections that there should be, apart from those that are of no use.
    pub(crate) fn lanes_wanted(&self, now: Time) -> usize {
        let all = self.settings.lanes;
        let needed = if !self.has_work() {
            usize::from(self.idle.is_woken)
        } else if self.bulk_goes_on() || !self.fills.is_empty() {
            all
        } else {
            let bytes = self.queue.bytes() + self.owed.bytes();
            let by_bytes = usize::try_from(bytes / LANE_BYTES).unwrap_or(all).saturating_add(1);
            // Where each part waits for the one before, a connection is worth a round trip.
            let waits = self.lanes.values().any(|lane| lane.abilities.is_some_and(|of| !of.pipelines));
            let by_parts = if waits { self.queue.count() + self.requests.len() } else { 0 };
            by_bytes.max(by_parts).min(all)
        };
        if self.idle.was {
            // While none is ready each replica is tried: the first may be gone meanwhile, and a dial takes long to fail.
            let is_ready = |lane: &Lane| lane.state == State::Ready && self.is_of_use(lane, now);
            let is_served = !self.has_work() || self.lanes.values().any(is_ready);
            let tried =
                if is_served { 0 } else { self.sources.iter().filter(|source| !source.is_dead).count() };
            return needed.max(tried.min(all));
        }
        // Each replica is to say what it has.
        let unheard =
            self.sources.iter().filter(|source| !source.is_dead && source.size_bytes.is_none()).count();
        needed.max(self.settings.lanes_at_first.max(unheard).min(all))
    }
}
