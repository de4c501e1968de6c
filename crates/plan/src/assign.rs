//! The next range for each lane, and its size.

use gridlane_core::{ByteRange, Time};

use crate::LaneId;
use crate::bound::level;
use crate::lane::Lane;
use crate::plan::Plan;
use crate::settings::{
    ENDING_PATHS, OUTSTANDING_SLACK_S, OUTSTANDING_SLOW_S, PROBE_BYTES, SERIAL_REQUEST_FACTOR,
    SERIAL_ROUND_TRIPS, WINDOW_PARTS,
};
use crate::source::Standing;

/// The load of the lanes, now and when all free bytes are handed out.
struct Level {
    /// Seconds until all lanes together have the free bytes, if each takes its share.
    surface_s: f64,
    /// Seconds until the lane that is first to have one more small piece has it.
    first_piece_s: f64,
    piece_bytes: u64,
}

impl Plan {
    /// Hands out free bytes until every lane has enough to do.
    pub(crate) fn assign(&mut self, now: Time) {
        while let Some((lane, range)) = self.next_assignment(now) {
            self.request(now, lane, range);
        }
    }

    /// The lane that runs dry first is served first.
    fn next_assignment(&self, now: Time) -> Option<(LaneId, ByteRange)> {
        if !self.work.has_free() {
            return None;
        }
        let mut hungry: Vec<(f64, LaneId)> = self
            .lanes
            .iter()
            .filter(|(_, lane)| self.is_hungry(now, lane))
            .map(|(&id, lane)| (lane.finish_s(now, 0), id))
            .collect();
        if hungry.is_empty() {
            return None;
        }
        hungry.sort_by(|a, b| a.0.total_cmp(&b.0));
        let level = self.level(now);
        hungry.into_iter().find_map(|(_, id)| {
            let range = self.next_range(now, self.lanes.get(&id)?, level.as_ref())?;
            Some((id, range))
        })
    }

    /// True if the lane should have more to do than it has.
    fn is_hungry(&self, now: Time, lane: &Lane) -> bool {
        if !lane.has_room() {
            return false;
        }
        if lane.requests.is_empty() {
            return true;
        }
        let source = self.source(lane.source);
        let is_one_enough = source.is_on_trial || source.is_sequential || self.size_bytes().is_none();
        !is_one_enough && lane.outstanding_bytes() < self.outstanding_target(now, lane, self.is_ending(lane))
    }

    /// Twice what the path holds, so that the sender always has something to send, and never so little
    /// that the sender's window cannot grow. Near the end only what the path holds: which lane will be late cannot be
    /// known, and what a lane has not been asked for yet any other can have.
    fn outstanding_target(&self, now: Time, lane: &Lane, is_ending: bool) -> u64 {
        let floor = self.settings.outstanding_bytes_min;
        let Some(rate) = lane.rate_bytes_per_s(now) else { return floor };
        let path_s = lane.round_trip_or_zero().as_secs_f64() + OUTSTANDING_SLACK_S;
        let floor_min = 2 * self.settings.request_bytes_min;
        if is_ending {
            return floor_min.max((rate * path_s) as u64);
        }
        floor.min((rate * OUTSTANDING_SLOW_S) as u64).max(floor_min).max((2.0 * rate * path_s) as u64)
    }

    /// True if the free bytes will be handed out before a lane has what it is asked for now.
    fn is_ending(&self, lane: &Lane) -> bool {
        let path_s = lane.round_trip_or_zero().as_secs_f64() + OUTSTANDING_SLACK_S;
        self.size_bytes().is_some()
            && self.settings.window_bytes.is_none()
            && (self.work.free_bytes() as f64) < self.total_rate_bytes_per_s() * ENDING_PATHS * path_s
    }

    /// The next range for a hungry lane; `None` if others do better with what is free.
    fn next_range(&self, now: Time, lane: &Lane, level: Option<&Level>) -> Option<ByteRange> {
        let free = self.work.next_for(lane.source)?;
        if let (true, Some(size_bytes)) = (self.is_sequential(lane.source), self.size_bytes()) {
            return Some(ByteRange::new(0, size_bytes));
        }
        let bytes = self.request_bytes(now, lane, level)?;
        (!self.is_crumb_of_window(free, bytes)).then(|| self.align(free, bytes))
    }

    /// A window that moves on by little offers little each time. Waiting for some more keeps requests
    /// large; only the bytes that the target waits for are asked for however few they are.
    fn is_crumb_of_window(&self, free: ByteRange, wanted_bytes: u64) -> bool {
        let crumb_bytes = wanted_bytes.div_ceil(2).min(self.window_part());
        free.end() == self.work.window_end()
            && free.len() < crumb_bytes
            && self.work.lowest_missing().is_some_and(|lowest| lowest < free.start())
    }

    /// The largest request in a window: the lane that has the lowest range holds up all others.
    fn window_part(&self) -> u64 {
        let window = self.settings.window_bytes.unwrap_or(u64::MAX);
        (window / WINDOW_PARTS).max(self.settings.align_bytes)
    }

    /// Bytes to ask for; `None` if the lane should not be asked.
    fn request_bytes(&self, now: Time, lane: &Lane, level: Option<&Level>) -> Option<u64> {
        let settings = &self.settings;
        if self.size_bytes().is_none() {
            return (!self.awaits_better(now, lane)).then(|| self.first_bytes(now, lane));
        }
        if self.source(lane.source).is_on_trial {
            return Some(PROBE_BYTES);
        }
        let Some(rate) = lane.rate_bytes_per_s(now) else {
            let lanes = self.lanes.values().filter(|lane| lane.is_usable()).count().max(1) as u64;
            let share = match self.work.free_bytes() {
                // Another connection would still be in slow start when the first one has it all.
                few if few <= settings.first_request_bytes && !settings.lanes_fixed => few,
                free_bytes => free_bytes.div_ceil(2 * lanes),
            };
            let mut bytes = settings.first_request_bytes.min(share.max(settings.align_bytes));
            let Some(level) = level else { return Some(bytes) };
            while bytes >= settings.align_bytes {
                if lane.finish_s(now, bytes) <= level.surface_s {
                    return Some(bytes);
                }
                bytes /= 2;
            }
            return None;
        };
        let wanted = self.usual_bytes(lane, rate);
        let Some(level) = level else { return Some(wanted) };
        let share = ((level.surface_s - lane.finish_s(now, 0)) * rate).max(0.0) as u64;
        let is_first = || lane.finish_s(now, level.piece_bytes) <= level.first_piece_s;
        if share < settings.align_bytes && !is_first() {
            return None;
        }
        let half = (share / 2).max(settings.request_bytes_min);
        Some(wanted.min(half).min(share.max(settings.align_bytes)))
    }

    /// The first request of a lane while the size is not known. That of a connection that was there already lasts until the
    /// next one is answered, which cannot be sent before the first answer has told the size.
    fn first_bytes(&self, now: Time, lane: &Lane) -> u64 {
        let settings = &self.settings;
        let rate = lane.rate_bytes_per_s(now).filter(|_| lane.is_warm && self.is_alone(lane.source));
        let path_s = lane.round_trip_or_zero().as_secs_f64() + OUTSTANDING_SLACK_S;
        let bytes = rate.map_or(0, |rate| (rate * path_s) as u64).min(settings.request_bytes_max);
        bytes.min(self.window_part()).max(settings.first_request_bytes)
    }

    /// True if a lane that will be ready in a moment should have the first bytes: they may be all there are.
    fn awaits_better(&self, now: Time, lane: &Lane) -> bool {
        let mut expected = self.lanes.values().filter(|other| other.is_expected(now));
        expected.any(|other| !lane.is_warm || other.round_trip < lane.round_trip)
    }

    /// The size of a request in the middle of a large object.
    pub(crate) fn usual_bytes(&self, lane: &Lane, rate_bytes_per_s: f64) -> u64 {
        let settings = &self.settings;
        let seconds = settings.request_seconds;
        let bytes = if lane.pipelines() {
            ((rate_bytes_per_s * seconds) as u64).min(settings.request_bytes_max)
        } else {
            let gap_s = lane.round_trip_or_zero().as_secs_f64();
            let bytes = (rate_bytes_per_s * seconds.max(SERIAL_ROUND_TRIPS * gap_s)) as u64;
            bytes.min(settings.request_bytes_max.saturating_mul(SERIAL_REQUEST_FACTOR))
        };
        let bytes = bytes.max(settings.request_bytes_min);
        bytes.min(self.window_part())
    }

    /// Seconds to which the free bytes fill the lanes. `None` while nothing is known about any of
    /// them, or when some bytes may not come from every source: then being the fastest says little
    /// about being next.
    fn level(&self, now: Time) -> Option<Level> {
        let is_alive = |source| self.source(source).standing != Standing::Dead;
        if self.size_bytes().is_none() || self.work.is_restricted(is_alive) {
            return None;
        }
        let piece_bytes = self.settings.align_bytes.min(self.work.free_bytes());
        let mut first_piece_s = f64::INFINITY;
        let mut lanes: Vec<(f64, f64)> = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes.values().filter(|lane| lane.is_usable() || lane.is_expected(now)) {
            let source = self.source(lane.source);
            if source.is_on_trial || source.is_sequential {
                continue;
            }
            if let Some(rate) = lane.rate_bytes_per_s(now) {
                lanes.push((lane.finish_s(now, 0), rate));
                first_piece_s = first_piece_s.min(lane.finish_s(now, piece_bytes));
            }
        }
        if lanes.is_empty() {
            return None;
        }
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // A window is filled again as it moves on: half of it is always as good as free.
        let free_bytes = self.work.free_bytes().max(self.settings.window_bytes.unwrap_or(0) / 2);
        Some(Level { surface_s: level(&lanes, free_bytes as f64), first_piece_s, piece_bytes })
    }

    /// The first `bytes` of `free`, cut at a round offset, without leaving a crumb.
    fn align(&self, free: ByteRange, bytes: u64) -> ByteRange {
        let align_bytes = self.settings.align_bytes;
        let end = free.start().saturating_add(bytes.max(1));
        let round = end - end % align_bytes;
        let end = if round > free.start() { round } else { end };
        let (range, rest) = free.split_at(end);
        if rest.len() < align_bytes { free } else { range }
    }
}
