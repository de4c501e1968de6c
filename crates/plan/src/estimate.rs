//! How fast a lane is, told from what arrived on it.
//!
//! An exponentially weighted mean over windows of *active* time: time in which bytes were due and
//! could have been taken. Waiting for the first byte of an idle lane and being blocked by the target
//! are not the source's doing and do not count. The first windows are short and grow, so that a
//! loopback copy of one second has an estimate after milliseconds and slow start is followed as it
//! doubles.

use std::time::Duration;

use gridlane_core::Time;

/// Active time of a full-grown window.
const WINDOW_S: f64 = 0.25;
/// Active time of the first window; each next one is twice as long, up to [`WINDOW_S`].
const WINDOW_FIRST_S: f64 = 0.02;
/// A first window with fewer bytes says nothing: they came from a socket buffer.
const WINDOW_FIRST_BYTES: u64 = 64 * 1024;
/// With this many bytes a first window may be as short as [`WINDOW_SHORTEST_S`].
const WINDOW_SHORT_BYTES: u64 = 1024 * 1024;
/// Below this, scheduling noise dominates.
const WINDOW_SHORTEST_S: f64 = 0.002;
/// Weight of the newest window.
const WEIGHT: f64 = 0.4;
/// Weight of the newest window while windows still grow: the older ones saw slow start.
const WEIGHT_EARLY: f64 = 0.75;

/// The rate of one lane.
#[derive(Clone, Debug, Default)]
pub struct RateEstimate {
    rate_bytes_per_s: Option<f64>,
    /// The rate of the window that was closed last.
    newest_bytes_per_s: Option<f64>,
    /// Windows that were closed.
    windows: u32,
    /// Since when the open window's time runs; `None` while it is held.
    running_since: Option<Time>,
    /// Active time of the open window before `running_since`.
    active: Duration,
    bytes: u64,
}

impl RateEstimate {
    /// Begins with what an earlier connection to the same source did.
    pub fn with_prior(rate_bytes_per_s: Option<f64>) -> RateEstimate {
        RateEstimate { rate_bytes_per_s, ..RateEstimate::default() }
    }

    /// `bytes` arrived. `since` is when the first of them could have been expected, if the clock was
    /// held until now.
    pub fn receive(&mut self, now: Time, bytes: u64, since: Time) {
        self.running_since.get_or_insert(since.min(now));
        self.bytes += bytes;
        let active_s = self.active_s(now);
        let full_s = (WINDOW_FIRST_S * f64::from(1_u32 << self.windows.min(8))).min(WINDOW_S);
        let is_full = active_s >= full_s && (self.windows > 0 || self.bytes >= WINDOW_FIRST_BYTES);
        let is_early = self.windows == 0 && active_s >= WINDOW_SHORTEST_S && self.bytes >= WINDOW_SHORT_BYTES;
        if is_full || is_early {
            self.close_window(active_s, Some(now));
        }
    }

    fn close_window(&mut self, active_s: f64, next_since: Option<Time>) {
        self.rate_bytes_per_s = Some(self.blend(active_s));
        self.newest_bytes_per_s = Some(self.bytes as f64 / active_s);
        self.windows += 1;
        self.bytes = 0;
        self.active = Duration::ZERO;
        self.running_since = next_since;
    }

    /// Nothing is due from now on (idle or blocked): time stops counting. Of a lane that brings no
    /// more than this, it is all there will be to judge from.
    pub fn hold(&mut self, now: Time) {
        if let Some(since) = self.running_since.take() {
            self.active += now.since(since);
        }
        if self.rate_bytes_per_s.is_none() && self.bytes >= WINDOW_FIRST_BYTES {
            let active_s = self.active.as_secs_f64().max(WINDOW_SHORTEST_S);
            self.close_window(active_s, None);
        }
    }

    /// The estimate as of `now`: a window that stays open for long, because nothing comes, counts as
    /// it is. `None` before the first window is closed.
    pub fn bytes_per_s(&self, now: Time) -> Option<f64> {
        let rate = self.rate_bytes_per_s?;
        let active_s = self.active_s(now);
        Some(if active_s > WINDOW_S { self.blend(active_s) } else { rate }.max(1.0))
    }

    /// The estimate for a use that would rather believe too little: not more than the newest window showed. A lane
    /// that has become slow keeps a part of its old rate in the mean for a second.
    pub fn cautious_bytes_per_s(&self, now: Time) -> Option<f64> {
        let rate = self.bytes_per_s(now)?;
        Some(self.newest_bytes_per_s.map_or(rate, |newest| newest.min(rate)).max(1.0))
    }

    fn blend(&self, active_s: f64) -> f64 {
        let sample = self.bytes as f64 / active_s;
        let Some(rate) = self.rate_bytes_per_s else { return sample };
        let keep =
            if active_s < WINDOW_S { 1.0 - WEIGHT_EARLY } else { (1.0 - WEIGHT).powf(active_s / WINDOW_S) };
        rate * keep + sample * (1.0 - keep)
    }

    fn active_s(&self, now: Time) -> f64 {
        let running = self.running_since.map_or(Duration::ZERO, |since| now.since(since));
        (self.active + running).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    /// Feeds `rate` for the milliseconds `from..to`, one arrival each.
    fn feed(estimate: &mut RateEstimate, from: u64, to: u64, rate_bytes_per_s: u64) {
        for ms in from + 1..=to {
            estimate.receive(at_ms(ms), rate_bytes_per_s / 1000, at_ms(ms - 1));
        }
    }

    fn rate(estimate: &RateEstimate, ms: u64) -> f64 {
        estimate.bytes_per_s(at_ms(ms)).expect("a window was closed")
    }

    #[test]
    fn a_fast_lane_is_known_within_milliseconds() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 3, 1_000_000_000);
        assert!((rate(&estimate, 3) / 1e9 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_collapse_shows_within_a_second() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 2000, 100_000_000);
        feed(&mut estimate, 2000, 3000, 5_000_000);
        assert!(rate(&estimate, 3000) < 25e6);
    }

    #[test]
    fn who_is_cautious_sees_a_collapse_at_once() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 2000, 100_000_000);
        feed(&mut estimate, 2000, 2600, 5_000_000);
        let cautious = estimate.cautious_bytes_per_s(at_ms(2600)).expect("a window was closed");
        assert!(cautious < 6e6 && rate(&estimate, 2600) > 25e6, "{cautious}");
    }

    #[test]
    fn silence_lowers_the_rate_without_any_arrival() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 2000, 100_000_000);
        assert!(rate(&estimate, 3000) < 30e6);
    }

    #[test]
    fn a_lane_that_brings_little_is_judged_when_it_ends() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 10, 10_000_000);
        assert_eq!(estimate.bytes_per_s(at_ms(10)), None);
        estimate.hold(at_ms(10));
        assert!((rate(&estimate, 10) / 10e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn idle_and_blocked_time_do_not_count() {
        let mut estimate = RateEstimate::default();
        feed(&mut estimate, 0, 2000, 100_000_000);
        estimate.hold(at_ms(2000));
        assert!((rate(&estimate, 9000) / 100e6 - 1.0).abs() < 0.01);
        feed(&mut estimate, 9000, 9600, 100_000_000);
        assert!((rate(&estimate, 9600) / 100e6 - 1.0).abs() < 0.01);
    }
}
