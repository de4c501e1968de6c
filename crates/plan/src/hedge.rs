//! The end of the copy: lanes that have nothing to do, or soon will have, help those that end late.

use gridlane_core::{ByteRange, Time};

use crate::LaneId;
use crate::lane::{Lane, LaneState};
use crate::plan::Plan;
use crate::settings::{
    EXTRA_BYTES_MIN, EXTRA_SHARE, HEDGE_GAIN, HEDGE_INTERVAL, HEDGE_SAVING_S, RECONNECT_ROUND_TRIPS,
    RECONNECT_S,
};

/// The end of a request that only one lane owes.
struct Tail {
    range: ByteRange,
    /// Seconds until its last byte is here.
    finish_s: f64,
    rate_bytes_per_s: f64,
}

impl Plan {
    /// True if some lane has nothing to do, or soon will have, and some lane has.
    pub(crate) fn may_hedge(&self) -> bool {
        self.size_bytes().is_some()
            && !self.work.waits_for_target()
            && self.lanes.values().any(|lane| self.is_idle(self.now, lane))
            && self.lanes.values().any(|lane| !lane.requests.is_empty())
    }

    /// True if the lane has nothing to do, or runs dry so soon that it helps as one that has nothing.
    fn is_idle(&self, now: Time, lane: &Lane) -> bool {
        let source = self.source(lane.source);
        // In a window more bytes are free soon.
        let may_run_dry = self.settings.window_bytes.is_none() && !self.work.has_free();
        let has_little = lane.requests.is_empty() || may_run_dry && lane.runs_dry(now);
        has_little && lane.has_room() && !source.is_on_trial && !source.is_sequential
    }

    /// Lets idle lanes fetch a second time what others owe and will deliver late.
    pub(crate) fn hedge(&mut self, now: Time) {
        if now < self.hedge_at || !self.may_hedge() {
            return;
        }
        self.hedge_at = now + HEDGE_INTERVAL;
        self.drop_losers(now);
        if self.extra_bytes > self.extra_bytes_max(now) {
            return;
        }
        let piece = self.settings.request_bytes_min;
        let idle = self.lanes.iter().filter(|(_, lane)| self.is_idle(now, lane));
        let mut helpers: Vec<(f64, LaneId)> =
            idle.map(|(&id, lane)| (lane.finish_s(now, piece), id)).collect();
        helpers.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, helper) in helpers {
            if let Some(range) = self.hedge_for(now, helper) {
                self.request(now, helper, range);
            }
        }
    }

    /// The bytes that `helper` should fetch for another lane: of the request that ends last, as much of the
    /// end as lets both finish together.
    fn hedge_for(&self, now: Time, helper_id: LaneId) -> Option<ByteRange> {
        let helper = self.lanes.get(&helper_id)?;
        let tail = self.last_tail(now, helper_id, helper)?;
        let start_s = helper.finish_s(now, 0);
        let usual_bytes = match helper.rate_bytes_per_s(now) {
            Some(rate) => self.usual_bytes(helper, rate),
            None => self.settings.first_request_bytes,
        };
        let bytes_max = usual_bytes.min(tail.range.len());
        let own_rate = bytes_max as f64 / (helper.finish_s(now, bytes_max) - start_s).max(1e-9);
        let together = (tail.finish_s - start_s) / (1.0 / own_rate + 1.0 / tail.rate_bytes_per_s);
        let bytes_min = self.settings.align_bytes.min(tail.range.len());
        let bytes = (together.max(0.0) as u64).clamp(bytes_min, bytes_max.max(bytes_min));
        let finish_s = helper.finish_s(now, bytes);
        let helps = finish_s < HEDGE_GAIN * tail.finish_s && tail.finish_s - finish_s > HEDGE_SAVING_S;
        helps.then(|| ByteRange::new(tail.range.end() - bytes, tail.range.end()))
    }

    /// The tail that ends last; behind a window that is full, the one that all wait for.
    fn last_tail(&self, now: Time, helper_id: LaneId, helper: &Lane) -> Option<Tail> {
        let lowest = self.work.lowest_missing()?;
        let is_held_up = self.settings.window_bytes.is_some() && self.work.has_free();
        let mut last: Option<Tail> = None;
        for (&id, lane) in self.lanes.iter().filter(|&(&id, _)| id != helper_id) {
            let mut ahead = 0;
            for request in &lane.requests {
                let before = ahead;
                ahead += request.rest().len();
                let holds_up = request.range.start() <= lowest && lowest < request.range.end();
                if !request.is_owed || request.rest().is_empty() || (is_held_up && !holds_up) {
                    continue;
                }
                // First what is cheap: most requests end sooner than the last one so far.
                if last.as_ref().is_some_and(|last| lane.arrival_s(now, ahead) <= last.finish_s) {
                    continue;
                }
                let Some(range) = self.single_tail(id, request.rest(), helper) else { continue };
                let bytes = before + range.end() - request.cursor;
                let finish_s = lane.arrival_s(now, bytes);
                if last.as_ref().is_none_or(|last| last.finish_s < finish_s) {
                    // Behind a window there will be another chance soon, and what is there twice is dear.
                    let rate = match self.settings.window_bytes {
                        None => lane.cautious_bytes_per_s(now),
                        Some(_) => lane.rate_bytes_per_s(now),
                    };
                    let rate = rate.unwrap_or(bytes as f64 / finish_s.max(1e-6));
                    last = Some(Tail { range, finish_s, rate_bytes_per_s: rate.max(1.0) });
                }
            }
        }
        last
    }

    /// The last part of `rest` that is missing, that no lane but `owner` owes, and that `helper` may
    /// deliver.
    fn single_tail(&self, owner: LaneId, rest: ByteRange, helper: &Lane) -> Option<ByteRange> {
        let mut single = self.work.missing(rest);
        for (_, other) in self.lanes.iter().filter(|&(&id, _)| id != owner) {
            for request in other.requests.iter().filter(|request| request.is_owed) {
                single.remove(request.rest());
            }
        }
        let last = single.iter().next_back()?;
        self.work.all_allowed(helper.source, last).iter().next_back()
    }

    /// Closes lanes that will be busy for longer than a new connection takes with bytes that are
    /// there already, while there is something better to do.
    fn drop_losers(&mut self, now: Time) {
        if self.work.free_bytes() == 0 {
            return;
        }
        let is_lost = |lane: &Lane| {
            let round_trip_s = lane.round_trip_or_zero().as_secs_f64();
            let reconnect_s = RECONNECT_ROUND_TRIPS * round_trip_s + RECONNECT_S;
            lane.state == LaneState::Ready
                && !lane.requests.is_empty()
                && lane.finish_s(now, 0) > reconnect_s
                && lane.requests.iter().all(|request| self.work.is_done(request.rest()))
        };
        let lost: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| is_lost(lane)).map(|(&id, _)| id).collect();
        lost.into_iter().for_each(|id| self.close_lane(id));
    }

    /// Bytes that may be received twice: what is in flight anyway, or a small part of the object.
    fn extra_bytes_max(&self, now: Time) -> u64 {
        let size_bytes = self.size_bytes().unwrap_or(0) as f64;
        let in_flight: f64 = self
            .lanes
            .values()
            .filter_map(|lane| Some(lane.rate_bytes_per_s(now)? * lane.round_trip_or_zero().as_secs_f64()))
            .sum();
        ((2.0 * in_flight).max(EXTRA_SHARE * size_bytes) as u64).max(EXTRA_BYTES_MIN)
    }
}
