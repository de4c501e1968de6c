//! Rates over the recent past, the best second, and the rate that was sustained.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::Time;
use gridlane_peer::descriptors::RunningCopy;

/// Width of a bin: the best second is found to within this.
const BIN: Duration = Duration::from_millis(100);
/// Bins in a second.
const SECOND_BINS: usize = 10;
/// Bins that the shown rate looks at: long enough to be steady, short enough to show a change.
const RECENT_BINS: usize = 50;
/// Bins in which a source shows that it has become slow: longer than BBR is quiet to measure the round trip.
const LATEST_BINS: usize = 5;
/// Seconds that are kept to find the sustained rate; when there are more, every other one is dropped.
const SECONDS_KEPT: usize = 512;
/// Of all seconds, how many were slower than the sustained rate. Those of the beginning are, and those with a pause in
/// them; and the fastest ones are those in which something was read that had been waiting.
const SUSTAINED_QUANTILE: f64 = 0.85;

/// Least duration and bytes of what shows how fast bytes come while they come.
const BURST: Duration = Duration::from_millis(5);
const BURST_BYTES_MIN: u64 = 64 * 1024;

/// The rate while bytes come: in slow start they come in bursts, at the rate of the path. Only measured for
/// short copies; for longer ones the mean says more.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    since: Option<Time>,
    bytes: u64,
    best_bytes_per_s: Option<f64>,
}

impl Bursts {
    /// Counts bytes that came at `now`.
    pub(crate) fn add(&mut self, now: Time, bytes: u64) {
        // Those of the first notice came before it.
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.bytes += bytes;
        let took = now.since(since);
        if took >= BURST {
            if self.bytes >= BURST_BYTES_MIN {
                let rate = self.bytes as f64 / took.as_secs_f64();
                self.best_bytes_per_s = Some(self.best_bytes_per_s.map_or(rate, |best| best.max(rate)));
            }
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// The fastest one.
    pub(crate) fn best_bytes_per_s(&self) -> Option<f64> {
        self.best_bytes_per_s
    }
}

/// The CPU time of one copy. The kernel counts that of the process, so it is known while the copy is the only one.
#[derive(Debug)]
pub(crate) struct OwnCpu {
    copy: RunningCopy,
    /// The process's usage when the copy began.
    begun: Duration,
}

impl OwnCpu {
    /// For a copy that begins when its process has used so much.
    pub(crate) fn begin(copy: RunningCopy, process: Duration) -> OwnCpu {
        OwnCpu { copy, begun: process }
    }

    /// The copy's part of what its process has used by now; `None`: other copies have used some of it.
    pub(crate) fn used(&self, process: Duration) -> Option<Duration> {
        self.copy.is_alone().then(|| process.saturating_sub(self.begun))
    }
}

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
    /// Bytes of seconds that end with a bin in which something came, one of every `stride` such.
    seconds: Vec<u64>,
    stride: u64,
    ended: u64,
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
        for closed in 0..closes {
            let is_active = self.filling > 0;
            self.bins.push_back(std::mem::take(&mut self.filling));
            if self.bins.len() > RECENT_BINS {
                self.bins.pop_front();
            }
            let second: u64 = self.bins.iter().rev().take(SECOND_BINS).sum();
            self.best_second = self.best_second.max(second);
            let is_whole =
                self.begun.is_some_and(|begun| self.number + closed + 1 - begun >= SECOND_BINS as u64);
            if is_active && is_whole {
                self.keep_second(second);
            }
        }
        self.number = number;
    }

    fn keep_second(&mut self, bytes: u64) {
        self.ended += 1;
        if !self.ended.is_multiple_of(self.stride.max(1)) {
            return;
        }
        self.seconds.push(bytes);
        if self.seconds.len() > SECONDS_KEPT {
            let mut is_kept = false;
            self.seconds.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.stride = self.stride.max(1) * 2;
        }
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

    /// Rate over the last half second; `None` before there was a whole one.
    pub(crate) fn latest_bytes_per_s(&self) -> Option<f64> {
        let bins = self.number.saturating_sub(self.begun?);
        let bytes: u64 = self.bins.iter().rev().take(LATEST_BINS).sum();
        (bins >= LATEST_BINS as u64).then(|| bytes as f64 / (LATEST_BINS as f64 * BIN.as_secs_f64()))
    }

    /// The rate that was kept up for a second and more, in bytes per second; `None` if it was not active that long.
    pub(crate) fn sustained_bytes_per_s(&self) -> Option<f64> {
        let mut seconds = self.seconds.clone();
        seconds.sort_unstable();
        let last = seconds.len().checked_sub(1)?;
        seconds.get((SUSTAINED_QUANTILE * last as f64).ceil() as usize).map(|bytes| *bytes as f64)
    }

    /// The most bytes within one second; `None` if it was not active that long.
    pub(crate) fn best_second_bytes_per_s(&self) -> Option<f64> {
        let begun = self.begun?;
        (self.number - begun >= SECOND_BINS as u64).then_some(self.best_second as f64)
    }
}

#[cfg(test)]
mod tests {
    use gridlane_peer::descriptors::Copies;

    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn the_time_of_the_process_is_that_of_a_copy_which_is_alone() {
        static COPIES: Copies = Copies::new();
        let ms = Duration::from_millis;
        let first = OwnCpu::begin(COPIES.begin(), ms(700));
        assert_eq!(first.used(ms(900)), Some(ms(200)), "not what was used before it");
        let second = OwnCpu::begin(COPIES.begin(), ms(1000));
        assert_eq!((first.used(ms(1500)), second.used(ms(1500))), (None, None));
        drop(second);
        assert_eq!(first.used(ms(1500)), None, "some of it was the other one's");
        drop(first);
        assert_eq!(OwnCpu::begin(COPIES.begin(), ms(1500)).used(ms(1600)), Some(ms(100)));
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
    fn what_had_been_waiting_does_not_count_as_sustained() {
        let mut meter = Meter::default();
        // The reader is away for 0.2 s now and then, and reads in a moment what came meanwhile.
        for ms in (0..5000).step_by(10) {
            let second = ms % 2500;
            let bytes = match second {
                1500..1700 => 0,
                1700 => 2100,
                _ => 100,
            };
            meter.add(at_ms(ms), bytes);
        }
        meter.advance(at_ms(5000));
        assert_eq!(meter.sustained_bytes_per_s(), Some(10_000.0));
        // Once it has ended, its rate stays what it was.
        meter.advance(at_ms(60_000));
        assert_eq!(meter.sustained_bytes_per_s(), Some(10_000.0));
        assert_eq!(meter.latest_bytes_per_s(), Some(0.0));
    }

    #[test]
    fn a_long_copy_is_kept_in_little_memory() {
        let mut meter = Meter::default();
        for tenth in 0..200_000 {
            meter.add(at_ms(tenth * 100 + 50), 100);
        }
        assert!(meter.seconds.len() <= SECONDS_KEPT, "{}", meter.seconds.len());
        assert_eq!(meter.sustained_bytes_per_s(), Some(1000.0));
    }

    #[test]
    fn bursts_show_the_rate_of_the_path() {
        let mut bursts = Bursts::default();
        // Slow start: each round trip of 10 ms twice as much, at 100 MB/s.
        for (round, bytes) in [(0, 100_000), (1, 200_000), (2, 400_000), (3, 800_000)] {
            for step in 0..bytes / 100_000 {
                bursts.add(at_ms(round * 10 + step), 100_000);
            }
        }
        let best = bursts.best_bytes_per_s().unwrap();
        assert!((80e6..=101e6).contains(&best), "{best}");
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
