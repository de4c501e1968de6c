//! Rates over the recent past, and the best second.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::Time;

/// Width of a bin: the best second is found to within this.
const BIN: Duration = Duration::from_millis(100);
/// Bins in a second.
const SECOND_BINS: usize = 10;
/// Bins that the shown rate looks at: long enough to be steady, short enough to show a change.
const RECENT_BINS: usize = 50;

/// Counts bytes by tenths of a second.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    total: u64,
    /// Bytes of the last [`RECENT_BINS`] complete bins, oldest first.
    bins: VecDeque<u64>,
    /// Bytes in the bin that is being filled, and its number.
    filling: u64,
    number: u64,
    /// Number of the bin with the first byte.
    begun: Option<u64>,
    best_second: u64,
}

impl Meter {
    /// Counts bytes that came at `now`.
    pub(crate) fn add(&mut self, now: Time, bytes: u64) {
        self.advance(now);
        self.begun.get_or_insert(self.number);
        self.filling += bytes;
        self.total += bytes;
    }

    /// Closes the bins that are over.
    pub(crate) fn advance(&mut self, now: Time) {
        let number = (now.since_origin().as_nanos() / BIN.as_nanos()) as u64;
        // After a long silence, only the bins that are still looked at matter.
        let closes = number.saturating_sub(self.number).min(RECENT_BINS as u64 + 1);
        for _ in 0..closes {
            self.bins.push_back(std::mem::take(&mut self.filling));
            if self.bins.len() > RECENT_BINS {
                self.bins.pop_front();
            }
            let second: u64 = self.bins.iter().rev().take(SECOND_BINS).sum();
            self.best_second = self.best_second.max(second);
        }
        self.number = number;
    }

    /// All bytes counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Rate over the last seconds, from the first byte on, in bytes per second.
    pub(crate) fn recent_bytes_per_s(&self) -> f64 {
        let Some(begun) = self.begun else { return 0.0 };
        let bins = (self.number.saturating_sub(begun) as usize).min(self.bins.len());
        if bins == 0 {
            return self.filling as f64 / BIN.as_secs_f64();
        }
        let bytes: u64 = self.bins.iter().rev().take(bins).sum();
        bytes as f64 / (bins as f64 * BIN.as_secs_f64())
    }

    /// The most bytes within one second; `None` if it was not active that long.
    pub(crate) fn best_second_bytes_per_s(&self) -> Option<f64> {
        let begun = self.begun?;
        (self.number - begun >= SECOND_BINS as u64).then_some(self.best_second as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn the_best_second_and_the_recent_rate() {
        let mut meter = Meter::default();
        for ms in (0..3000).step_by(10) {
            meter.add(at_ms(ms), if ms < 1500 { 100 } else { 300 });
        }
        meter.advance(at_ms(3000));
        assert_eq!(meter.best_second_bytes_per_s(), Some(30_000.0));
        assert_eq!(meter.recent_bytes_per_s(), 20_000.0);
        assert_eq!(meter.total(), 60_000);
    }

    #[test]
    fn a_short_burst_has_no_best_second() {
        let mut meter = Meter::default();
        meter.add(at_ms(5), 1000);
        meter.advance(at_ms(400));
        assert_eq!(meter.best_second_bytes_per_s(), None);
        assert!(meter.recent_bytes_per_s() > 0.0);
    }

    #[test]
    fn silence_lowers_the_rate_to_nothing() {
        let mut meter = Meter::default();
        meter.add(at_ms(0), 1000);
        meter.advance(at_ms(3_600_000));
        assert_eq!(meter.recent_bytes_per_s(), 0.0);
    }
}
