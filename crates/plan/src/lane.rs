//! One connection: the requests it has, in order, and how well it does.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::{ByteRange, Time};

use crate::SourceId;
use crate::estimate::RateEstimate;
use crate::settings::{
    DRY_MAX, INITIAL_WINDOW_BYTES, LATE_ROUND_TRIPS, LATE_S, LOSS_ROUND_TRIPS, OUT_OF_ORDER_PACKETS_MIN,
    REQUESTS_PER_LANE_MAX, SILENT, SILENT_ROUND_TRIPS, SUSPECT, SUSPECT_ROUND_TRIPS, WARM_MAX,
};

/// The progress of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// The engine was asked to connect it.
    Opening,
    /// It takes requests.
    Ready,
    /// It gets no more requests and is closed when it has answered those it has.
    Retiring,
    /// The engine was asked to close it; what still arrives counts.
    Closing,
}

/// One connection to one source.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) source: SourceId,
    pub(crate) state: LaneState,
    pub(crate) opened_at: Time,
    /// Oldest first: the order in which they are answered.
    pub(crate) requests: VecDeque<Request>,
    /// So many requests may be outstanding.
    requests_max: usize,
    /// Its connection is there already, so that it is ready in a moment.
    pub(crate) is_warm: bool,
    /// It was silent for too long and its requests were taken from it.
    pub(crate) is_suspect: bool,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) received_bytes: u64,
    /// Packets that had come out of order on its connection when that was told last.
    out_of_order: Option<u32>,
    /// When the last loss was seen.
    lost_at: Option<Time>,
    pub(crate) blocked_since: Option<Time>,
    /// The last arrival, or the moment since when bytes are due.
    pub(crate) heard_at: Time,
    /// A byte came since the lane was last idle.
    is_flowing: bool,
    rate: RateEstimate,
}

/// A range that was asked for on a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The range that was asked for, cut where the object turned out to end.
    pub(crate) range: ByteRange,
    /// The offset of the next byte to arrive.
    pub(crate) cursor: u64,
    /// Its missing bytes count on it. Not so when the lane is suspect, closing, or refused.
    pub(crate) is_owed: bool,
}

impl Request {
    /// The part that has not arrived yet.
    pub(crate) fn rest(&self) -> ByteRange {
        ByteRange::new(self.cursor, self.range.end())
    }
}

impl Lane {
    /// `rate_prior`: what an earlier lane to the source did, in bytes per second.
    pub(crate) fn new(source: SourceId, now: Time, rate_prior: Option<f64>) -> Lane {
        Lane {
            source,
            state: LaneState::Opening,
            opened_at: now,
            requests: VecDeque::new(),
            requests_max: 1,
            is_warm: false,
            is_suspect: false,
            round_trip: None,
            received_bytes: 0,
            out_of_order: None,
            lost_at: None,
            blocked_since: None,
            heard_at: now,
            is_flowing: false,
            rate: RateEstimate::with_prior(rate_prior),
        }
    }

    /// It is connected.
    pub(crate) fn be_ready(&mut self, now: Time) {
        self.state = LaneState::Ready;
        self.heard_at = now;
        // The connection that was there had been closed, or another copy has taken it: this one is new.
        let took = now.since(self.opened_at);
        if self.is_warm && took > WARM_MAX.max(self.round_trip_or_zero()) {
            self.is_warm = false;
            self.rate = RateEstimate::default();
        }
    }

    /// Requests may be sent before earlier ones are answered: so many, if there is a limit.
    pub(crate) fn pipeline(&mut self, requests_max: Option<usize>) {
        self.requests_max =
            requests_max.map_or(REQUESTS_PER_LANE_MAX, |max| max.clamp(1, REQUESTS_PER_LANE_MAX));
    }

    /// More than one request may be outstanding.
    pub(crate) fn pipelines(&self) -> bool {
        self.requests_max > 1
    }

    /// Puts a request behind those it has.
    pub(crate) fn push(&mut self, now: Time, range: ByteRange) {
        if self.requests.is_empty() {
            self.heard_at = now;
            self.is_flowing = false;
        }
        self.requests.push_back(Request { range, cursor: range.start(), is_owed: true });
    }

    /// Bytes of the oldest unfinished request arrived; returns which.
    pub(crate) fn receive(&mut self, now: Time, bytes: u64) -> ByteRange {
        let since = if self.is_flowing { self.heard_at } else { self.heard_at + self.round_trip_or_zero() };
        self.rate.receive(now, bytes, since);
        self.is_flowing = true;
        self.heard_at = now;
        self.received_bytes += bytes;
        let Some(request) = self.requests.front_mut() else { return ByteRange::new(0, 0) };
        let (arrived, _) = request.rest().split_at(request.cursor.saturating_add(bytes));
        request.cursor = arrived.end();
        arrived
    }

    /// The oldest request was answered; returns it.
    pub(crate) fn finish_oldest(&mut self, now: Time) -> Option<Request> {
        let request = self.requests.pop_front();
        self.heard_at = now;
        if self.requests.is_empty() {
            self.is_flowing = false;
            self.rate.hold(now);
        }
        request
    }

    /// The target cannot take bytes, or can again; returns how long it could not.
    pub(crate) fn set_blocked(&mut self, now: Time, blocked: bool) -> Duration {
        match (self.blocked_since, blocked) {
            (None, true) => {
                self.blocked_since = Some(now);
                self.rate.hold(now);
                Duration::ZERO
            }
            (Some(since), false) => {
                self.blocked_since = None;
                self.heard_at = now;
                now.since(since)
            }
            _ => Duration::ZERO,
        }
    }

    /// So many packets have come out of order; returns whether that tells of another loss.
    pub(crate) fn notes_loss(&mut self, now: Time, out_of_order: u32) -> bool {
        // A connection that was there already has a past of its own.
        let unknown = if self.is_warm { out_of_order } else { 0 };
        let before = self.out_of_order.replace(out_of_order).unwrap_or(unknown);
        // Another connection in its place counts from nothing.
        let packets = out_of_order.checked_sub(before).unwrap_or(out_of_order);
        let is_loss = packets >= OUT_OF_ORDER_PACKETS_MIN;
        if !is_loss || self.lost_lately(now) {
            return false;
        }
        self.lost_at = Some(now);
        true
    }

    /// True if a packet was lost in the last round trips.
    pub(crate) fn lost_lately(&self, now: Time) -> bool {
        self.lost_at.is_some_and(|at| now.since(at) < LOSS_ROUND_TRIPS * self.round_trip_or_zero())
    }

    /// Connected and not to be closed.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == LaneState::Ready && !self.is_suspect
    }

    /// Will be ready in a moment: what it can do counts already.
    pub(crate) fn is_expected(&self, now: Time) -> bool {
        self.is_warm && self.state == LaneState::Opening && now.since(self.opened_at) < WARM_MAX
    }

    /// May take another request.
    pub(crate) fn has_room(&self) -> bool {
        self.is_usable() && self.requests.len() < self.requests_max
    }

    /// Bytes that were asked for and have not come; where the size is not known, all that there could be.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        self.requests.iter().map(|request| request.rest().len()).fold(0, u64::saturating_add)
    }

    pub(crate) fn rate_bytes_per_s(&self, now: Time) -> Option<f64> {
        self.rate.bytes_per_s(now)
    }

    /// Like [`rate_bytes_per_s`](Lane::rate_bytes_per_s), and not more than it did lately.
    pub(crate) fn cautious_bytes_per_s(&self, now: Time) -> Option<f64> {
        self.rate.cautious_bytes_per_s(now)
    }

    /// Runs dry within a round trip: what it is asked for now comes without a gap.
    pub(crate) fn runs_dry(&self, now: Time) -> bool {
        self.rate_bytes_per_s(now).is_some()
            && self.finish_s(now, 0) <= self.round_trip_or_zero().min(DRY_MAX).as_secs_f64()
    }

    pub(crate) fn round_trip_or_zero(&self) -> Duration {
        self.round_trip.unwrap_or(Duration::ZERO)
    }

    /// Seconds until `bytes` more would be here, asked for now, behind all that is outstanding.
    pub(crate) fn finish_s(&self, now: Time, bytes: u64) -> f64 {
        self.arrival_s(now, self.outstanding_bytes().saturating_add(bytes))
    }

    /// Seconds until the next `bytes` of this lane are here.
    pub(crate) fn arrival_s(&self, now: Time, bytes: u64) -> f64 {
        let is_due = !self.requests.is_empty() && self.blocked_since.is_none();
        let waited_s = if is_due { now.since(self.heard_at).as_secs_f64() } else { 0.0 };
        let round_trip_s = self.round_trip_or_zero().as_secs_f64();
        match self.rate_bytes_per_s(now) {
            None => {
                // Slow start doubles the window each round trip. A lane that is late already stays late.
                let rounds = 1.0 + (1.0 + bytes as f64 / INITIAL_WINDOW_BYTES).log2();
                (rounds * round_trip_s - waited_s).max(waited_s)
            }
            Some(rate) => {
                let latency_s = if self.is_flowing { 0.0 } else { (round_trip_s - waited_s).max(0.0) };
                let is_silent = waited_s > LATE_ROUND_TRIPS * round_trip_s + LATE_S;
                bytes as f64 / rate + latency_s + if is_silent { waited_s } else { 0.0 }
            }
        }
    }

    /// When the lane becomes suspect, if it stays as silent as it is.
    pub(crate) fn suspect_at(&self) -> Option<Time> {
        let is_due = self.state != LaneState::Closing && self.blocked_since.is_none();
        let limit = SUSPECT.max(self.round_trip_or_zero() * SUSPECT_ROUND_TRIPS);
        (is_due && !self.requests.is_empty()).then(|| self.heard_at + limit)
    }

    /// When the lane is given up, if it stays as silent as it is.
    pub(crate) fn give_up_at(&self) -> Option<Time> {
        let limit = SILENT.max(self.round_trip_or_zero() * SILENT_ROUND_TRIPS);
        self.suspect_at().map(|_| self.heard_at + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    fn lane() -> Lane {
        let mut lane = Lane::new(SourceId(0), Time::ZERO, None);
        lane.state = LaneState::Ready;
        lane.round_trip = Some(Duration::from_millis(100));
        lane
    }

    #[test]
    fn a_cursor_never_leaves_its_request() {
        let mut lane = lane();
        lane.push(Time::ZERO, ByteRange::new(10, 20));
        assert_eq!(lane.receive(at_ms(1), 4), ByteRange::new(10, 14));
        assert_eq!(lane.receive(at_ms(2), 400), ByteRange::new(14, 20));
        assert_eq!(lane.receive(at_ms(3), 1), ByteRange::new(20, 20));
        assert_eq!(lane.outstanding_bytes(), 0);
    }

    #[test]
    fn all_bytes_that_there_could_be_can_be_outstanding_more_than_once() {
        let mut lane = lane();
        lane.push(Time::ZERO, ByteRange::new(0, u64::MAX));
        lane.push(Time::ZERO, ByteRange::new(0, u64::MAX));
        assert_eq!(lane.outstanding_bytes(), u64::MAX);
        assert!(lane.finish_s(at_ms(1), 1000) > 0.0);
    }

    #[test]
    fn silence_counts_from_the_request_and_not_while_blocked() {
        let mut lane = lane();
        assert_eq!(lane.suspect_at(), None, "nothing is due on an idle lane");
        lane.push(at_ms(500), ByteRange::new(0, 100));
        assert_eq!(lane.suspect_at(), Some(at_ms(1500)));
        assert_eq!(lane.give_up_at(), Some(at_ms(5500)));
        lane.set_blocked(at_ms(600), true);
        assert_eq!(lane.suspect_at(), None);
        assert_eq!(lane.set_blocked(at_ms(9000), false), Duration::from_millis(8400));
        assert_eq!(lane.suspect_at(), Some(at_ms(10_000)));
    }

    #[test]
    fn packets_out_of_order_tell_of_one_loss_for_two_round_trips() {
        let mut lane = lane();
        assert!(!lane.notes_loss(at_ms(100), 0));
        assert!(!lane.notes_loss(at_ms(110), 2), "the way has changed their order");
        assert!(lane.notes_loss(at_ms(120), 5) && lane.lost_lately(at_ms(319)));
        assert!(!lane.notes_loss(at_ms(200), 50), "it is the same loss");
        assert!(!lane.notes_loss(at_ms(330), 50) && !lane.lost_lately(at_ms(330)), "it is over");
        assert!(lane.notes_loss(at_ms(340), 60));
        assert!(!lane.notes_loss(at_ms(600), 1), "another connection counts from nothing");
        assert!(lane.notes_loss(at_ms(610), 4));
    }

    #[test]
    fn a_connection_that_was_there_already_has_lost_what_it_lost_before() {
        let mut warm = Lane { is_warm: true, ..lane() };
        assert!(!warm.notes_loss(at_ms(100), 500));
        assert!(warm.notes_loss(at_ms(110), 510));
        assert!(lane().notes_loss(at_ms(100), 500));
    }

    #[test]
    fn a_connection_that_had_to_be_made_has_a_window_that_must_grow() {
        let took = |ms| {
            let mut warm = Lane { is_warm: true, state: LaneState::Opening, ..lane() };
            warm.rate = RateEstimate::with_prior(Some(1e6));
            warm.be_ready(at_ms(ms));
            (warm.is_warm, warm.rate_bytes_per_s(at_ms(ms)))
        };
        assert_eq!(took(50), (true, Some(1e6)));
        assert_eq!(took(200), (false, None));
    }

    #[test]
    fn a_long_round_trip_is_given_more_time() {
        let mut lane = lane();
        lane.round_trip = Some(Duration::from_millis(800));
        lane.push(Time::ZERO, ByteRange::new(0, 100));
        assert_eq!(lane.suspect_at(), Some(at_ms(3200)));
        assert_eq!(lane.give_up_at(), Some(at_ms(6400)));
    }
}
