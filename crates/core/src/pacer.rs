//! A rate limit as arithmetic: a sender asks when it may send bytes.
//!
//! The limit is kept in virtual time (the generic cell rate algorithm, ITU-T I.371): every byte has a
//! moment when it is due, the next one just behind the last that was given away. A sender that comes
//! late may catch up, but by no more than a small burst: a timer that fires a few milliseconds late then costs
//! no rate, and an idle minute buys nothing.
//!
//! One pacer serves all senders that share the limit, each for a step at a time: first come, first served.

use std::time::Duration;

use crate::time::Time;

/// Time that a sender may catch up when it is behind the schedule. Timers have a resolution of 1 ms, and on a busy
/// machine they fire several later.
const BURST: Duration = Duration::from_millis(20);

/// Time that one step should last: short enough to be smooth, long enough for timers.
const STEP: Duration = Duration::from_millis(5);

/// Bytes of a step: at very low rates not less than a small packet, else a file would go out in crumbs.
const STEP_BYTES_MIN: usize = 1024;

/// The schedule of one rate limit.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate_bytes_per_s: u64,
    /// When the next byte is due.
    due: Time,
}

impl Pacer {
    /// A limit of so many bytes per second; 0 counts as 1.
    pub fn new(rate_bytes_per_s: u64) -> Pacer {
        Pacer { rate_bytes_per_s: rate_bytes_per_s.max(1), due: Time::ZERO }
    }

    /// Bytes to ask for at a time, at most `max`, so that the flow is smooth and sharers take
    /// turns.
    pub fn step_bytes(&self, max: usize) -> usize {
        let step = u128::from(self.rate_bytes_per_s) * STEP.as_nanos() / 1_000_000_000;
        usize::try_from(step).unwrap_or(usize::MAX).max(STEP_BYTES_MIN).min(max)
    }

    /// Time until a byte is due: for a receiver, which learns how many there are only by reading and
    /// [reserves](Pacer::reserve) them afterwards.
    pub fn wait(&self, now: Time) -> Duration {
        self.due.since(now)
    }

    /// Gives away the next `bytes` of the schedule; returns how long to wait before sending them.
    pub fn reserve(&mut self, now: Time, bytes: u64) -> Duration {
        let earliest = Time::from_origin(now.since_origin().saturating_sub(BURST));
        let start = self.due.max(earliest);
        let duration_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate_bytes_per_s);
        self.due = start + Duration::from_nanos(u64::try_from(duration_ns).unwrap_or(u64::MAX));
        start.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends `total` bytes in steps, each timer `late` too late; returns the seconds it takes.
    fn seconds_for(rate: u64, total: u64, late: Duration) -> f64 {
        let mut pacer = Pacer::new(rate);
        let (mut now, mut left) = (Time::from_origin(Duration::from_secs(100)), total);
        let start = now;
        while left > 0 {
            let step = (pacer.step_bytes(1 << 20) as u64).min(left);
            let wait = pacer.reserve(now, step);
            if !wait.is_zero() {
                now = now + wait + late;
            }
            left -= step;
        }
        now.since(start).as_secs_f64()
    }

    #[test]
    fn the_rate_is_right_within_one_percent_though_timers_are_late() {
        for rate in [100_000, 10_000_000, 80_000_000, 1_000_000_000] {
            for late_ms in [0, 1, 9] {
                let seconds = seconds_for(rate, rate * 5, Duration::from_millis(late_ms));
                assert!((4.95..5.05).contains(&seconds), "{rate} B/s, {late_ms} ms late: {seconds} s");
            }
        }
    }

    #[test]
    fn idleness_buys_no_more_than_the_burst() {
        let mut pacer = Pacer::new(1_000_000);
        let later = Time::from_origin(Duration::from_secs(3600));
        let mut free = 0;
        while pacer.reserve(later, 1000).is_zero() {
            free += 1000;
        }
        assert_eq!(free, 21_000);
    }

    #[test]
    fn sharers_get_equal_shares() {
        let mut pacer = Pacer::new(10_000_000);
        let mut next = [Time::from_origin(Duration::from_secs(1)); 3];
        let mut sent = [0u64; 3];
        for _ in 0..3000 {
            let who = (0..3).min_by_key(|who| next[*who]).unwrap();
            let step = pacer.step_bytes(1 << 20) as u64;
            next[who] = next[who] + pacer.reserve(next[who], step);
            sent[who] += step;
        }
        assert!(sent.iter().all(|bytes| bytes.abs_diff(sent[0]) <= sent[0] / 50), "{sent:?}");
    }

    proptest! {
        /// Over any pattern of requests, no more goes out than the rate times the time, plus the burst and a step.
        #[test]
        fn never_faster(rate in 1u64..10_000_000_000, pauses_ms in prop::collection::vec(0u64..100, 1..100)) {
            let mut pacer = Pacer::new(rate);
            let start = Time::from_origin(Duration::from_secs(5));
            let (mut now, mut sent) = (start, 0u64);
            for pause in pauses_ms {
                let step = pacer.step_bytes(1 << 20) as u64;
                now = now + pacer.reserve(now, step);
                let elapsed = (now.since(start) + BURST).as_secs_f64();
                prop_assert!(sent as f64 <= elapsed * rate as f64 * 1.000_001 + 1.0);
                sent += step;
                now = now + Duration::from_millis(pause);
            }
        }
    }
}
