//! What came from one source in its last round trips.
//!
//! A connection on which a packet was lost brings nothing until it has come again, a round trip later, and then all that
//! came behind it at once. So a rate is that of two round trips together.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::Time;

/// Parts of a round trip in which arrivals are counted.
const PARTS: u32 = 8;
/// Parts of which a rate is taken.
const RATE_PARTS: usize = 2 * PARTS as usize;
/// Like [`RATE_PARTS`], of the rate of late: one lane of several that waits for a packet is a small part of it.
const LATELY_PARTS: usize = 4 * PARTS as usize;
/// Parts that are kept: of the rates in ten round trips the best one counts, because slow start ends in a dip.
const PARTS_MAX: usize = 10 * PARTS as usize;

/// See [the module](self).
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The part of a round trip that runs: since when, and what came in it.
    part: Option<(Time, u64)>,
    /// Bytes that came in the parts before it, newest first.
    parts: VecDeque<u64>,
}

impl Arrivals {
    /// Bytes came. `round_trip` is that of the empty path.
    pub(crate) fn count(&mut self, now: Time, round_trip: Duration, bytes: u64) {
        let part = round_trip / PARTS;
        if part.is_zero() {
            return;
        }
        let (since, counted) = self.part.unwrap_or((now, 0));
        let passed = now.since(since);
        if passed < part {
            self.part = Some((since, counted + bytes));
            return;
        }
        let passed = (passed.as_nanos() / part.as_nanos()).min(PARTS_MAX as u128 + 1) as u32;
        self.parts.push_front(counted);
        (1..passed).for_each(|_| self.parts.push_front(0));
        self.parts.truncate(PARTS_MAX);
        // A silence that fills all parts is as good as any longer one.
        let begun = if passed as usize > PARTS_MAX { now } else { since + part * passed };
        self.part = Some((begun, bytes));
    }

    /// The best rate of two of the last round trips, per second.
    pub(crate) fn best_bytes_per_s(&self, round_trip: Duration) -> f64 {
        let firsts = 0..(self.parts.len() + 1).saturating_sub(RATE_PARTS);
        let best = firsts.map(|first| self.sum(first, RATE_PARTS)).max().unwrap_or(0);
        per_second(best, RATE_PARTS, round_trip)
    }

    /// The rate of the last round trips, per second.
    pub(crate) fn lately_bytes_per_s(&self, round_trip: Duration) -> f64 {
        let parts = self.parts.len().clamp(1, LATELY_PARTS);
        per_second(self.sum(0, parts), parts, round_trip)
    }

    fn sum(&self, first: usize, parts: usize) -> u64 {
        self.parts.iter().skip(first).take(parts).sum()
    }
}

fn per_second(bytes: u64, parts: usize, round_trip: Duration) -> f64 {
    bytes as f64 / (round_trip.as_secs_f64() * parts as f64 / f64::from(PARTS)).max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(80);

    /// The best rate after round trips in which so many bytes came, evenly.
    fn after(rounds: &[u64]) -> f64 {
        arrivals(rounds).best_bytes_per_s(ROUND_TRIP)
    }

    fn arrivals(rounds: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for (round, bytes) in rounds.iter().enumerate() {
            for part in 0..PARTS {
                let now = Time::from_origin(ROUND_TRIP * round as u32 + ROUND_TRIP * part / PARTS);
                arrivals.count(now, ROUND_TRIP, bytes / u64::from(PARTS));
            }
        }
        arrivals.count(Time::from_origin(ROUND_TRIP * rounds.len() as u32), ROUND_TRIP, 0);
        arrivals
    }

    #[test]
    fn a_rate_is_the_best_of_two_round_trips_of_late() {
        assert_eq!(after(&[]), 0.0);
        assert_eq!(after(&[800]), 0.0, "nothing is known of two round trips");
        assert_eq!(after(&[8000, 8000]), 1e5);
        assert_eq!(after(&[8000, 0, 16_000, 8000]), 1.5e5, "what waited for a lost packet comes at once");
        assert_eq!(after(&[8000, 8000, 800, 800]), 1e5, "a dip does not count");
        let rounds: Vec<u64> = [8000, 8000].into_iter().chain([800; 12]).collect();
        assert_eq!(after(&rounds), 1e4, "what was long ago does not count");
    }

    #[test]
    fn what_came_lately_is_of_four_round_trips_or_of_all_there_are() {
        let lately = |rounds: &[u64]| arrivals(rounds).lately_bytes_per_s(ROUND_TRIP).round();
        assert_eq!(lately(&[8000]), 1e5);
        assert_eq!(lately(&[80_000, 8000, 8000, 8000, 4000]), 87_500.0);
        assert_eq!(Arrivals::default().lately_bytes_per_s(ROUND_TRIP), 0.0);
    }

    #[test]
    fn a_silence_of_any_length_costs_no_memory_and_is_a_rate_of_nothing() {
        let mut arrivals = Arrivals::default();
        arrivals.count(Time::ZERO, ROUND_TRIP, 4000);
        arrivals.count(Time::from_origin(ROUND_TRIP * 1_000_000), ROUND_TRIP, 1);
        assert_eq!(arrivals.parts.len(), PARTS_MAX);
        assert_eq!(arrivals.best_bytes_per_s(ROUND_TRIP), 0.0);
        arrivals.count(Time::from_origin(ROUND_TRIP * 1_000_001), Duration::ZERO, 1);
    }
}
