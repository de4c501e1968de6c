//! What is known of the path: R, B and c, estimated from what arrives, with defaults and in bounds.
//!
//! - **R** is the smallest of the handshake's round trip and the last sixteen replies of at most 16 kB on lanes that owed
//!   nothing else.
//! - **B** is what the path has shown. In windows of a round trip or 20 ms the bytes of all lanes are counted. A window that
//!   shows more raises it at once. One that shows less lowers it only when the path was kept full all the time, and the
//!   window before it was no slower: slow start and idle time are not the path's rate.
//! - **c** is the smallest, of the last sixteen vectors that followed another one without a pause, of the time that their bytes
//!   do not explain, for each element.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::Time;
use gridlane_core::limits::{
    READ_ELEMENT_S, READ_ELEMENT_S_RANGE, READ_RATE_BYTES_PER_S, READ_RATE_BYTES_PER_S_RANGE,
    READ_ROUND_TRIP_S, READ_ROUND_TRIP_S_RANGE,
};

/// Samples of which the smallest counts.
const SAMPLES: usize = 16;
/// Bytes of a reply that shows the round trip.
const SMALL_BYTES: u64 = 16 * 1024;
/// A window of the rate lasts so long at least, in seconds.
const WINDOW_S: f64 = 0.02;
/// Elements of a vector that shows the cost of one.
const VECTOR_ELEMENTS: usize = 64;
/// A path is kept full while so much of what it is thought to hold is owed.
const FULL_SHARE: f64 = 0.9;
/// A path is busy while so many times what it has just brought in a round trip is owed.
const BUSY_SHARE: f64 = 4.0;
/// Weight of a window that lowers the rate.
const WEIGHT: f64 = 0.4;
/// A rate is level when a window shows no more than this factor of the one before.
const LEVEL: f64 = 1.25;

/// The smallest of the last few samples, in bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Smallest {
    samples: VecDeque<f64>,
}

impl Smallest {
    fn add(&mut self, sample: f64) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    fn get(&self) -> Option<f64> {
        self.samples.iter().copied().reduce(f64::min)
    }
}

/// The round trip to one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrip {
    samples: Smallest,
    handshake_s: Option<f64>,
    expected_s: Option<f64>,
}

impl RoundTrip {
    /// An earlier file has shown it.
    pub(crate) fn expect(&mut self, round_trip_s: Option<f64>) {
        self.expected_s = round_trip_s.map(|round_trip_s| clamp(round_trip_s, READ_ROUND_TRIP_S_RANGE));
    }

    /// A handshake took so long.
    pub(crate) fn handshake(&mut self, round_trip: Duration) {
        let round_trip_s = clamp(round_trip.as_secs_f64(), READ_ROUND_TRIP_S_RANGE);
        self.handshake_s = Some(self.handshake_s.map_or(round_trip_s, |known| known.min(round_trip_s)));
    }

    /// A lane that owed nothing else answered a request of `bytes` so long after it was sent.
    pub(crate) fn reply(&mut self, took: Duration, bytes: u64) {
        if bytes <= SMALL_BYTES {
            self.samples.add(clamp(took.as_secs_f64(), READ_ROUND_TRIP_S_RANGE));
        }
    }

    /// The estimate in seconds, if it was measured.
    pub(crate) fn known_s(&self) -> Option<f64> {
        match (self.samples.get(), self.handshake_s) {
            (Some(reply), Some(handshake)) => Some(reply.min(handshake)),
            (reply, handshake) => reply.or(handshake),
        }
    }

    /// The estimate in seconds, if it was measured now or for an earlier file.
    pub(crate) fn expected_s(&self) -> Option<f64> {
        self.known_s().or(self.expected_s)
    }

    /// The estimate or the default, in seconds.
    pub(crate) fn get_s(&self) -> f64 {
        self.expected_s().unwrap_or(READ_ROUND_TRIP_S)
    }
}

/// The rate of all lanes together.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    bytes_per_s: f64,
    is_measured: bool,
    is_expected: bool,
    /// What windows have shown in which much more was owed than came: the path was full, though not of what it was thought to
    /// hold. It is for later files: one that is smaller than that never shows that a path is slow.
    shown: Option<f64>,
    since: Option<Time>,
    bytes: u64,
    was_full: bool,
    was_busy: bool,
    previous: f64,
}

impl Rate {
    /// With what is thought of the path before anything came.
    pub(crate) fn new(prior: Option<f64>) -> Rate {
        let prior = prior.filter(|rate| rate.is_finite() && *rate > 0.0).unwrap_or(READ_RATE_BYTES_PER_S);
        Rate {
            bytes_per_s: clamp(prior, READ_RATE_BYTES_PER_S_RANGE),
            is_measured: false,
            is_expected: false,
            shown: None,
            since: None,
            bytes: 0,
            was_full: true,
            was_busy: true,
            previous: 0.0,
        }
    }

    /// An earlier file has shown it, to one more source.
    pub(crate) fn expect(&mut self, bytes_per_s: f64) {
        if !self.is_measured {
            let others = if std::mem::replace(&mut self.is_expected, true) { self.bytes_per_s } else { 0.0 };
            self.bytes_per_s = clamp(others + bytes_per_s, READ_RATE_BYTES_PER_S_RANGE);
        }
    }

    /// The estimate, in bytes per second.
    pub(crate) fn get(&self) -> f64 {
        self.bytes_per_s
    }

    /// True if the path has shown it.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The rate that later files are to begin with, if the path has shown one.
    pub(crate) fn lesson(&self) -> Option<f64> {
        if self.is_measured { Some(self.bytes_per_s) } else { self.shown }
    }

    /// `bytes` arrived, of `owed_bytes` that were under way.
    pub(crate) fn receive(&mut self, now: Time, bytes: u64, owed_bytes: u64, round_trip_s: f64) {
        let is_full = owed_bytes as f64 >= FULL_SHARE * self.bytes_per_s * round_trip_s;
        let is_busy = owed_bytes as f64 >= BUSY_SHARE * self.previous * round_trip_s;
        let Some(since) = self.since else {
            (self.since, self.bytes) = (Some(now), 0);
            (self.was_full, self.was_busy) = (is_full, is_busy);
            return;
        };
        self.bytes += bytes;
        self.was_full &= is_full;
        self.was_busy &= is_busy;
        let open_s = now.since(since).as_secs_f64();
        if open_s < round_trip_s.max(WINDOW_S) {
            return;
        }
        let sample = clamp(self.bytes as f64 / open_s, READ_RATE_BYTES_PER_S_RANGE);
        if sample > self.bytes_per_s {
            (self.bytes_per_s, self.is_measured) = (sample, true);
        } else if self.was_full && sample <= LEVEL * self.previous {
            self.bytes_per_s += WEIGHT * (sample - self.bytes_per_s);
            self.is_measured = true;
        }
        if self.was_busy && self.previous > 0.0 && sample <= LEVEL * self.previous {
            let before = self.shown.unwrap_or(sample);
            self.shown = Some(before + WEIGHT * (sample - before));
        }
        self.previous = sample;
        (self.since, self.bytes) = (Some(now), 0);
        (self.was_full, self.was_busy) = (true, true);
    }

    /// Nothing is due any more: the window that is open says nothing.
    pub(crate) fn idle(&mut self) {
        self.since = None;
    }
}

/// The cost of an element.
#[derive(Clone, Debug, Default)]
pub(crate) struct Element {
    samples: Smallest,
    expected_s: Option<f64>,
}

impl Element {
    /// An earlier file has shown it. Of several sources the cheapest is meant, as with samples.
    pub(crate) fn expect(&mut self, element_s: Option<f64>) {
        let element_s = element_s.map(|element_s| clamp(element_s, READ_ELEMENT_S_RANGE));
        self.expected_s = [self.expected_s, element_s].into_iter().flatten().reduce(f64::min);
    }

    /// A vector of `elements` followed another one on its lane, `took` later, and its bytes explain `bytes_s` seconds of that.
    pub(crate) fn vector(&mut self, elements: usize, took: Duration, bytes_s: f64) {
        if elements >= VECTOR_ELEMENTS {
            let sample = (took.as_secs_f64() - bytes_s) / elements as f64;
            self.samples.add(clamp(sample, READ_ELEMENT_S_RANGE));
        }
    }

    /// The estimate or the default, in seconds.
    pub(crate) fn get_s(&self) -> f64 {
        let measured_s = self.samples.get().filter(|_| self.is_measured());
        measured_s.or(self.expected_s).unwrap_or(READ_ELEMENT_S)
    }

    /// True if vectors have shown it.
    pub(crate) fn is_measured(&self) -> bool {
        self.samples.samples.len() >= SAMPLES / 4
    }
}

fn clamp(value: f64, (least, most): (f64, f64)) -> f64 {
    if value.is_nan() { least } else { value.clamp(least, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn the_round_trip_is_the_smallest_small_reply() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.get_s(), READ_ROUND_TRIP_S);
        round_trip.reply(Duration::from_millis(1), 1 << 20);
        assert_eq!(round_trip.known_s(), None, "a large reply says nothing");
        for ms in [40, 27, 35] {
            round_trip.reply(Duration::from_millis(ms), 1000);
        }
        assert_eq!(round_trip.get_s(), 0.027);
        for _ in 0..SAMPLES {
            round_trip.reply(Duration::from_millis(50), 1000);
        }
        assert_eq!(round_trip.get_s(), 0.05, "paths change");
        round_trip.handshake(Duration::from_secs(1000));
        assert!(round_trip.get_s() <= READ_ROUND_TRIP_S_RANGE.1);
    }

    #[test]
    fn only_a_full_path_lowers_the_rate() {
        let (idle, full) = (100_000, u64::MAX);
        let mut rate = Rate::new(None);
        for ms in 0..1000 {
            rate.receive(at_ms(ms), 10_000, idle, 0.02);
        }
        assert_eq!((rate.get(), rate.is_measured()), (READ_RATE_BYTES_PER_S, false));
        for ms in 1000..2000 {
            rate.receive(at_ms(ms), 10_000, full, 0.02);
        }
        assert!((rate.get() / 10e6 - 1.0).abs() < 0.05, "{}", rate.get());
        for ms in 2000..2100 {
            rate.receive(at_ms(ms), 500_000, idle, 0.02);
        }
        assert!((rate.get() / 500e6 - 1.0).abs() < 0.1, "{}", rate.get());
    }

    #[test]
    fn a_file_that_is_smaller_than_the_path_is_thought_to_hold_teaches_the_next_one() {
        let receive = |owed_bytes: u64| {
            let mut rate = Rate::new(None);
            (0..1000).for_each(|ms| rate.receive(at_ms(ms), 2000, owed_bytes, 0.02));
            assert_eq!((rate.get(), rate.is_measured()), (READ_RATE_BYTES_PER_S, false));
            rate.lesson()
        };
        assert!((receive(1_000_000).unwrap() / 2e6 - 1.0).abs() < 0.1);
        assert_eq!(receive(50_000), None, "no more came, but no more was asked for");
    }

    #[test]
    fn the_cost_of_an_element_is_what_bytes_do_not_explain() {
        let mut element = Element::default();
        for _ in 0..4 {
            element.vector(1000, Duration::from_millis(10), 0.008);
        }
        assert!((element.get_s() / 2e-6 - 1.0).abs() < 0.01);
    }
}
