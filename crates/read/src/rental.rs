//! Renting or buying: whether calls go on waiting for one read after the other, or the rest is fetched.
//!
//! A read whose place was not known before costs a round trip. That is the rent, and the time in which the rest of the file
//! could be here is the price. With no knowledge of the reads to come, buying when the rent has reached the price never costs
//! more than twice the best choice; buying at an eighth of it costs an eighth more than buying at once, and as the fill runs
//! beside the reads and behind them, a job that ends before it does has lost no time by it. It has cost bytes, which are
//! reported.
//!
//! Two prices are looked at: that of the part of the file in which the last misses lie (a job that is busy with a cluster of a
//! large file), and that of all of it. Time in which bytes come at the rate of the path is no rent: a fill could not save it.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::limits::READ_RECENT_MISSES;
use gridlane_core::{ByteRange, Time};

/// Round trips of one call that count at most: what slow start costs a large one is no rent.
const ROUND_TRIPS_MAX: f64 = 4.0;
/// Misses that make a hot part.
const MISSES_MIN: usize = 4;

/// The rent of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rental {
    /// Since when a call waits; `None` while none does.
    waiting_since: Option<Time>,
    /// Calls that began to wait since then.
    calls: u32,
    /// Bytes that came since then for them.
    bytes: u64,
    rent_s: f64,
    stall: Duration,
    /// Where the last misses were.
    misses: VecDeque<ByteRange>,
    /// One of them is new since the last look.
    has_missed: bool,
    /// A call has begun to wait since the last look.
    has_waited: bool,
}

impl Rental {
    /// A call begins to wait.
    pub(crate) fn begin(&mut self, now: Time) {
        self.waiting_since.get_or_insert(now);
        self.calls += 1;
    }

    /// Connections are made: nothing that was waited for before counts as rent.
    pub(crate) fn forgive(&mut self, now: Time) {
        if let Some(since) = self.waiting_since {
            self.stall += now.since(since);
            self.waiting_since = Some(now);
        }
    }

    /// Bytes came that a call waited for.
    pub(crate) fn receive(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// No call waits any more.
    pub(crate) fn end(&mut self, now: Time, round_trip_s: f64, rate_bytes_per_s: f64) {
        self.rent_s = self.rent_s(now, round_trip_s, rate_bytes_per_s);
        self.stall = self.stall(now);
        (self.waiting_since, self.calls, self.bytes) = (None, 0, 0);
    }

    /// The rent until now, in seconds.
    pub(crate) fn rent_s(&self, now: Time, round_trip_s: f64, rate_bytes_per_s: f64) -> f64 {
        let Some(since) = self.waiting_since else { return self.rent_s };
        let waited_s = now.since(since).as_secs_f64() - self.bytes as f64 / rate_bytes_per_s;
        self.rent_s + waited_s.clamp(0.0, f64::from(self.calls) * ROUND_TRIPS_MAX * round_trip_s)
    }

    /// Time in which at least one call waited.
    pub(crate) fn stall(&self, now: Time) -> Duration {
        self.stall + self.waiting_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// A call wants bytes that are neither there nor on their way.
    pub(crate) fn miss(&mut self, range: ByteRange) {
        if self.misses.len() == READ_RECENT_MISSES {
            self.misses.pop_front();
        }
        self.misses.push_back(range);
        self.has_missed = true;
    }

    /// A call waits for bytes that are on their way already.
    pub(crate) fn share(&mut self) {
        self.has_waited = true;
    }

    /// True, once, if a call has missed something since the last look; and if one has begun to wait at all.
    pub(crate) fn news(&mut self) -> (bool, bool) {
        let has_missed = std::mem::take(&mut self.has_missed);
        (has_missed, std::mem::take(&mut self.has_waited) || has_missed)
    }

    /// Where the last miss was.
    pub(crate) fn last_miss(&self) -> Option<ByteRange> {
        self.misses.back().copied()
    }

    /// The part of the file in which the last misses were, but for one in sixteen at either end, and as much again around
    /// it.
    pub(crate) fn hot(&self, size_bytes: u64) -> Option<ByteRange> {
        if self.misses.len() < MISSES_MIN {
            return None;
        }
        let mut misses: Vec<ByteRange> = self.misses.iter().copied().collect();
        misses.sort_unstable();
        let spare = misses.len() / 16;
        let (first, last) = (misses[spare], misses[misses.len() - 1 - spare]);
        let hull = ByteRange::new(first.start(), last.end().max(first.end()));
        let margin = hull.len() / 2;
        Some(ByteRange::new(
            hull.start().saturating_sub(margin),
            hull.end().saturating_add(margin).min(size_bytes),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn round_trips_are_rent_and_bytes_are_not() {
        let mut rental = Rental::default();
        rental.begin(at_ms(0));
        rental.receive(1_000_000);
        rental.end(at_ms(36), 0.026, 100e6);
        assert!((rental.rent_s(at_ms(100), 0.026, 100e6) - 0.026).abs() < 1e-9);
        assert_eq!(rental.stall(at_ms(100)), Duration::from_millis(36));
        // A large call on a cold connection.
        rental.begin(at_ms(1000));
        assert!((rental.rent_s(at_ms(9000), 0.026, 100e6) - 5.0 * 0.026).abs() < 1e-9);
        assert_eq!(rental.stall(at_ms(9000)), Duration::from_millis(8036));
    }

    #[test]
    fn the_hot_part_leaves_strays_out() {
        let mut rental = Rental::default();
        assert_eq!(rental.hot(1 << 40), None);
        rental.miss(ByteRange::at(1 << 39, 100));
        for number in 0..40 {
            rental.miss(ByteRange::at((1 << 30) + number * 1_000_000 % 30_000_000, 1000));
        }
        let hot = rental.hot(1 << 40).expect("there were misses");
        assert!(hot.start() < (1 << 30) + 2_000_000 && hot.len() < 70_000_000, "{hot:?}");
    }
}
