//! Silence, loss, and how many lanes a source has.

use gridlane_core::Time;

use crate::lane::{Lane, LaneState};
use crate::plan::Plan;
use crate::settings::{
    EPOCH, EPOCH_ROUND_TRIPS, EPOCHS_LEFT_MIN, IDLE, LANE_WORTH_BYTES, NEAR_WORTH_BYTES, START_ROUND_TRIPS,
};
use crate::source::Standing;
use crate::streams::{Lossy, Seen, Verdict, is_near, start_lanes};
use crate::{LaneId, Loss, SourceId};

impl Plan {
    // --- Silence ---------------------------------------------------------------------------------

    /// Takes their requests from lanes that are silent, and closes those that stay so.
    pub(crate) fn check_silence(&mut self, now: Time) {
        let is_past = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let silent: Vec<(LaneId, bool)> = self
            .lanes
            .iter()
            .filter(|(_, lane)| is_past(lane.suspect_at()))
            .map(|(&id, lane)| (id, is_past(lane.give_up_at())))
            .collect();
        for (id, is_given_up) in silent {
            if is_given_up {
                self.give_up(now, id);
            } else if let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.is_suspect) {
                lane.is_suspect = true;
                self.tend_at = Some(now);
                self.disown(id);
            }
        }
    }

    fn give_up(&mut self, now: Time, lane_id: LaneId) {
        self.close_lane(lane_id);
        let Some(source) = self.lanes.get(&lane_id).map(|lane| lane.source) else { return };
        if self.usable_lanes(source) == 0 {
            let others_deliver = self.others_deliver(source);
            self.source_mut(source).fall_silent(now, others_deliver);
            self.close_lanes_of(source);
        }
        self.tend_at = Some(now);
    }

    // --- Loss ------------------------------------------------------------------------------------

    /// Consequences of the loss of a lane for its source. The lane is out of the plan already.
    pub(crate) fn judge_loss(&mut self, lane: &Lane, loss: &Loss) {
        let is_wanted = lane.state == LaneState::Closing || lane.state == LaneState::Retiring;
        match loss {
            Loss::Busy { wait } => {
                let (now, lanes_open) = (self.now, self.open_lanes(lane.source));
                self.source_mut(lane.source).be_busy(now, *wait, lanes_open);
            }
            Loss::Closed => {}
            _ if is_wanted => {}
            // A server may end a connection it has answered on, and one that was idle for a while.
            Loss::Ended if lane.received_bytes > 0 => {}
            Loss::Ended if lane.requests.is_empty() && self.now.since(lane.opened_at) >= IDLE => {}
            Loss::Ended | Loss::Failed => self.note_failure(lane.source, lane.opened_at, lane.received_bytes),
        }
    }

    /// The lane answers nonsense: it is closed, and counts as failed.
    pub(crate) fn fail_lane(&mut self, lane_id: LaneId) {
        self.close_lane(lane_id);
        if let Some(lane) = self.lanes.get(&lane_id) {
            self.note_failure(lane.source, lane.opened_at, 0);
        }
    }

    fn note_failure(&mut self, id: SourceId, opened_at: Time, received_bytes: u64) {
        let (now, siblings) = (self.now, self.usable_lanes(id));
        if siblings > 0 {
            // The source works. If the lane never did, it was one too many.
            if received_bytes == 0 {
                self.source_mut(id).lanes_cap = siblings;
            }
            return;
        }
        let others_deliver = self.others_deliver(id);
        self.source_mut(id).fail(now, opened_at, others_deliver);
        if self.source(id).standing != Standing::Live {
            self.close_lanes_of(id);
        }
    }

    pub(crate) fn close_lanes_of(&mut self, id: SourceId) {
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.source == id);
        let lanes: Vec<LaneId> = lanes.map(|(&lane, _)| lane).collect();
        lanes.into_iter().for_each(|lane| self.close_lane(lane));
    }

    // --- Lanes -----------------------------------------------------------------------------------

    /// Brings sources back, calls spares, and opens and retires lanes.
    pub(crate) fn tend_sources(&mut self, now: Time) {
        self.sources.iter_mut().for_each(|source| source.come_back(now));
        self.call_spares();
        let ids: Vec<SourceId> = self.ids().collect();
        for &id in &ids {
            self.judge_epoch(now, id);
        }
        // First lanes before second ones, so that the cap leaves no source out.
        let mut lanes_open = self.lanes.values().filter(|lane| lane.state != LaneState::Closing).count();
        let wanted: Vec<usize> = ids.iter().map(|&id| self.lanes_wanted(id)).collect();
        for nth in 0..wanted.iter().copied().max().unwrap_or(0) {
            for (&id, &wanted) in ids.iter().zip(&wanted) {
                if nth < wanted && self.open_lanes(id) <= nth && lanes_open < self.settings.lanes_max {
                    self.open_lane(now, id);
                    lanes_open += 1;
                }
            }
        }
        self.close_retired();
        let changes_at = ids.iter().flat_map(|&id| {
            let source = self.source(id);
            let streams = self.counts_epochs(id).then_some(&source.streams);
            let epoch_end = streams.and_then(|streams| streams.epoch_end(source.round_trip));
            // Later than now only: until then some lane may not be there yet, and its coming is looked at.
            let spread_at = streams.and_then(|streams| streams.spread_at(source.round_trip));
            [source.comes_back_at(), epoch_end, spread_at.filter(|at| *at > now)]
        });
        self.tend_at = changes_at.flatten().min();
    }

    /// Calls spares until as many sources are in use as should be, if there are enough.
    fn call_spares(&mut self) {
        let is_in_use = |id: &SourceId| {
            let source = self.source(*id);
            source.standing == Standing::Live && !source.is_sequential
        };
        let in_use = self.ids().filter(is_in_use).count();
        let missing = self.settings.sources_open_max.saturating_sub(in_use);
        let spares = self.sources.iter_mut().filter(|source| source.standing == Standing::Spare);
        spares.take(missing).for_each(|source| source.standing = Standing::Live);
    }

    fn lanes_wanted(&self, id: SourceId) -> usize {
        let source = self.source(id);
        let missing_bytes = self.missing_bytes();
        if source.standing != Standing::Live || missing_bytes == Some(0) {
            return 0;
        }
        if source.is_sequential {
            return usize::from(self.is_turn_of_sequential(id));
        }
        if source.is_on_trial {
            return 1;
        }
        let lanes_max = source.lanes_cap;
        let is_starting = !self.settings.lanes_fixed && !source.streams.has_judged();
        let start = if is_starting { self.start_lanes(id) } else { 1 };
        let (wanted, worth_bytes) = match self.settings.lanes_fixed {
            true => (lanes_max, LANE_WORTH_BYTES),
            // Where bytes take a quarter of a second to begin, the smallest request is worth a lane.
            false if start > 1 => (start.max(source.lanes_wanted), self.settings.request_bytes_min),
            false => (source.lanes_wanted.max(self.near_lanes(id)), LANE_WORTH_BYTES),
        };
        let times = |bytes: u64, unit: u64| usize::try_from((bytes / unit).max(1)).unwrap_or(usize::MAX);
        let worth = match missing_bytes {
            Some(bytes) => times(bytes, worth_bytes),
            // No other source will say how much there is before this one could have begun.
            None if is_starting && self.is_alone(id) => match self.warm_connections(id) {
                // Lanes that are opened when the first answer has told it are two round trips late.
                0 => usize::MAX,
                // Here they are one late, and a request of each is in vain where there is less than was thought.
                there => {
                    let expected_bytes = source.warm.and_then(|warm| warm.expected_bytes).unwrap_or(0);
                    times(expected_bytes, self.settings.first_request_bytes).min(there)
                }
            },
            None => 1,
        };
        wanted.min(worth).min(lanes_max)
    }

    /// Lanes with which a source begins. Those whose connections are there already cost nothing; others are opened if
    /// the copy goes on for so long, with all of those, that they bring something.
    fn start_lanes(&self, id: SourceId) -> usize {
        let source = self.source(id);
        let Some(round_trip) = source.round_trip else { return 1 };
        // What one source loses at the start is a part of what the copy loses.
        let in_use = self.sources.iter().filter(|source| source.standing == Standing::Live).count();
        let lanes = start_lanes(round_trip / in_use as u32, source.lanes_cap);
        let is_coming = |lane: &&Lane| lane.source == id && lane.is_expected(self.now);
        let coming = self.lanes.values().filter(is_coming).filter_map(|lane| lane.rate_bytes_per_s(self.now));
        let left = source.warm.map_or(0.0, |warm| {
            let more = warm.connections.min(lanes.saturating_sub(self.open_lanes(id)));
            more as f64 * warm.rate_bytes_per_s.unwrap_or(0.0)
        });
        let rate = self.total_rate_bytes_per_s() + coming.sum::<f64>() + left;
        let time_s = (round_trip * START_ROUND_TRIPS).as_secs_f64();
        match self.missing_bytes().is_none_or(|bytes| bytes as f64 > rate * time_s) {
            true => lanes,
            false => {
                let more = usize::try_from(self.work.free_bytes() / self.settings.request_bytes_min);
                let useful = self.open_lanes(id).saturating_add(more.unwrap_or(usize::MAX));
                lanes.min(self.warm_connections(id)).min(useful).max(1)
            }
        }
    }

    /// Lanes that a source may have because it is near.
    fn near_lanes(&self, id: SourceId) -> usize {
        let is_worth = self.missing_bytes().is_some_and(|bytes| bytes >= NEAR_WORTH_BYTES);
        if is_worth && self.is_near(id) { self.settings.lanes_near } else { 1 }
    }

    /// True if a source may have [lanes with threads of their own](crate::Settings::lanes_near): it is the only one,
    /// and a processor holds it back and not its path.
    pub fn is_near(&self, id: SourceId) -> bool {
        let rate = self.total_rate_bytes_per_s();
        let round_trip = self.sources.get(id.0 as usize).and_then(|source| source.round_trip);
        self.settings.lanes_near > 1
            && self.is_alone(id)
            && round_trip.is_some_and(|round_trip| is_near(round_trip, rate))
    }

    /// Connections that were there already: those that lanes have taken, and those that they may still take.
    fn warm_connections(&self, id: SourceId) -> usize {
        let taken = self.lanes.values().filter(|lane| lane.source == id && lane.is_warm);
        let taken = taken.filter(|lane| lane.state != LaneState::Closing).count();
        taken + self.source(id).warm.map_or(0, |warm| warm.connections)
    }

    /// True if no other source may be used.
    pub(crate) fn is_alone(&self, id: SourceId) -> bool {
        self.ids().all(|other| other == id || self.source(other).standing == Standing::Dead)
    }

    /// A source that ignores ranges is used when no other is in use, one at a time, in their order.
    fn is_turn_of_sequential(&self, id: SourceId) -> bool {
        self.ids().filter(|&other| other != id).all(|other| {
            let source = self.source(other);
            let is_live = source.standing == Standing::Live;
            match source.is_sequential {
                true => self.open_lanes(other) == 0 && !(is_live && other < id),
                false => self.usable_lanes(other) == 0 && !is_live,
            }
        })
    }

    /// True if trials of another lane go on at this source.
    pub(crate) fn counts_epochs(&self, id: SourceId) -> bool {
        !self.settings.lanes_fixed
            && self.settings.lanes_per_source_max > 1
            && !self.is_sequential(id)
            && self.usable_lanes(id) > 0
    }

    fn judge_epoch(&mut self, now: Time, id: SourceId) {
        if !self.counts_epochs(id) {
            return;
        }
        let (lanes, total_bytes) = (self.open_lanes(id), self.total_bytes());
        let is_comparable = self.usable_lanes(id) == lanes;
        let lanes_max = self.source(id).lanes_cap;
        let source = self.source_mut(id);
        source.streams.begin(now, total_bytes);
        let round_trip = source.round_trip;
        if is_comparable
            && source.streams.spread_at(round_trip).is_some_and(|at| at <= now)
            && self.spread(now, id)
        {
            return;
        }
        let source = self.source_mut(id);
        if source.streams.epoch_end(round_trip).is_none_or(|end| now < end) {
            return;
        }
        if !is_comparable {
            source.streams.restart(now, total_bytes); // Some lane had no chance to show what it does.
            return;
        }
        let round_trip = round_trip.unwrap_or_default();
        let epoch_s = EPOCH.max(round_trip * EPOCH_ROUND_TRIPS).as_secs_f64();
        let lanes_max = if self.lasts_worth(EPOCHS_LEFT_MIN * epoch_s) { lanes_max } else { lanes };
        let seen = Seen { now, round_trip, lanes, lanes_max, total_bytes };
        let source = self.source_mut(id);
        let verdict = source.streams.judge(&seen);
        source.lanes_wanted = match verdict {
            Verdict::Stay => source.lanes_wanted.max(lanes),
            Verdict::Add(more) => lanes + more,
            Verdict::Remove(fewer) => lanes.saturating_sub(fewer).max(1),
        };
        let wanted = source.lanes_wanted;
        for _ in wanted..lanes {
            self.retire_one_of(id);
        }
    }

    /// Has as many lanes opened as losses make necessary; returns whether that is any.
    fn spread(&mut self, now: Time, id: SourceId) -> bool {
        let (lanes, total_bytes) = (self.open_lanes(id), self.total_bytes());
        let source = self.source(id);
        let round_trip = source.round_trip.unwrap_or_default();
        let is_worth = self.lasts_worth((START_ROUND_TRIPS * round_trip).as_secs_f64());
        let lanes_max = if is_worth { source.lanes_cap } else { lanes };
        let seen = Seen { now, round_trip, lanes, lanes_max, total_bytes };
        let lossy = Lossy {
            lanes: self.lanes.values().filter(|lane| lane.source == id && lane.lost_lately(now)).count(),
            received_bytes: source.received_bytes,
            lately_bytes_per_s: source.arrivals.lately_bytes_per_s(round_trip),
            best_bytes_per_s: source.arrivals.best_bytes_per_s(round_trip),
        };
        let source = self.source_mut(id);
        let more = source.streams.spread(&seen, &lossy);
        if more > 0 {
            source.lanes_wanted = source.lanes_wanted.max(lanes + more);
        }
        more > 0
    }

    /// True if so much is missing that the copy goes on for so long, and is worth a connection.
    fn lasts_worth(&self, time_s: f64) -> bool {
        let worth_bytes = LANE_WORTH_BYTES.max((time_s * self.total_rate_bytes_per_s()) as u64);
        self.missing_bytes().is_some_and(|bytes| bytes > worth_bytes)
    }

    /// The youngest lane ends first.
    fn retire_one_of(&mut self, id: SourceId) {
        let mut lanes = self.lanes.values_mut().filter(|lane| lane.source == id && lane.is_usable());
        if let Some(lane) = lanes.next_back() {
            lane.state = LaneState::Retiring;
        }
    }

    fn close_retired(&mut self) {
        let is_over = |lane: &Lane| lane.state == LaneState::Retiring && lane.requests.is_empty();
        let over: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| is_over(lane)).map(|(&id, _)| id).collect();
        over.into_iter().for_each(|id| self.close_lane(id));
    }

    /// Lanes that are, or will be, of use.
    pub(crate) fn open_lanes(&self, id: SourceId) -> usize {
        let is_open = |lane: &&Lane| matches!(lane.state, LaneState::Opening | LaneState::Ready);
        self.lanes.values().filter(|lane| lane.source == id).filter(is_open).count()
    }

    fn usable_lanes(&self, id: SourceId) -> usize {
        self.lanes.values().filter(|lane| lane.source == id && lane.is_usable()).count()
    }

    fn others_deliver(&self, id: SourceId) -> bool {
        self.lanes.values().any(|lane| lane.source != id && lane.is_usable())
    }
}
