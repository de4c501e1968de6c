//! The arithmetic of one direction of a link: when does a packet arrive that is sent now?
//!
//! It is a wire, not a token bucket: a packet is on it for as long as its bytes take at the wire's rate, the
//! next one waits until then, and time in which nothing was sent is gone. What waits is limited in bytes;
//! what does not fit is dropped at the tail. A packet that was sent arrives `delay` later, never before the
//! one that was sent before it.
//!
//! Pure: time is an argument, in nanoseconds since some beginning. Inside, picoseconds, so that the times of
//! small packets on fast wires do not add up to something else than their rate.

use std::time::Duration;

use crate::lot::Lot;
use crate::scenario::Direction;

const PS_PER_NS: u64 = 1000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// Segments that are sent in one piece: all are equally long but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// At least 1.
    pub(crate) segments: u32,
    /// Bytes that a segment occupies on the wire.
    pub(crate) segment_bytes: u64,
    /// Those of the last one.
    pub(crate) last_bytes: u64,
}

impl Burst {
    /// Bytes that the first `segments` of them occupy on the wire.
    pub(crate) fn bytes_of(&self, segments: u32) -> u64 {
        match segments {
            0 => 0,
            n if n < self.segments => u64::from(n) * self.segment_bytes,
            _ => u64::from(self.segments - 1) * self.segment_bytes + self.last_bytes,
        }
    }

    /// Number of them, from the first on, that fit in `bytes`.
    fn fitting(&self, bytes: u64) -> u32 {
        if self.bytes_of(self.segments) <= bytes {
            return self.segments;
        }
        let whole = bytes.checked_div(self.segment_bytes).unwrap_or(u64::MAX);
        u32::try_from(whole).unwrap_or(u32::MAX).min(self.segments - 1)
    }
}

/// The fate of a burst that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Number of its segments, from the first on, that found room in the queue.
    pub(crate) segments: u32,
    /// Time that its first bit waited.
    pub(crate) waited_ns: u64,
    start_ps: u64,
    delay_ns: u64,
}

/// When packets that wait arrive after the rate has changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retiming {
    from_ns: u64,
    rate_before: Option<u64>,
    rate: Option<u64>,
}

impl Retiming {
    /// Keeps the order of times.
    pub(crate) fn of(&self, due_ns: u64) -> u64 {
        let (Some(before), true) = (self.rate_before, due_ns > self.from_ns) else { return due_ns };
        let later_ns = u128::from(due_ns - self.from_ns);
        let later_ns = self.rate.map_or(0, |rate| later_ns * u128::from(before) / u128::from(rate.max(1)));
        self.from_ns.saturating_add(u64::try_from(later_ns).unwrap_or(u64::MAX))
    }
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    rate_bits_per_s: Option<u64>,
    delay_ns: u64,
    jitter_ns: u64,
    queue_bytes: Option<u64>,
    lot: Lot,
    free_at_ps: u64,
    arrival_ns: u64,
}

impl Wire {
    /// A wire that is free from the beginning; `lot` draws the jitter.
    pub(crate) fn new(settings: &Direction, queue_bytes: Option<u64>, lot: Lot) -> Wire {
        let mut wire = Wire {
            rate_bits_per_s: None,
            delay_ns: 0,
            jitter_ns: 0,
            queue_bytes: None,
            lot,
            free_at_ps: 0,
            arrival_ns: 0,
        };
        wire.set(settings, queue_bytes, 0);
        wire
    }

    /// Other figures from now on. What waits is sent at the new rate, what is on its way is not touched: the
    /// caller applies the answer to the times of delivery that it was given.
    pub(crate) fn set(&mut self, settings: &Direction, queue_bytes: Option<u64>, now_ns: u64) -> Retiming {
        let waiting = self.backlog_bytes(now_ns);
        let retiming = Retiming {
            // What was sent before now has arrived by then.
            from_ns: now_ns.saturating_add(self.delay_ns).saturating_add(self.jitter_ns),
            rate_before: self.rate_bits_per_s,
            rate: settings.rate_bits_per_s,
        };
        self.arrival_ns = retiming.of(self.arrival_ns);
        self.rate_bits_per_s = settings.rate_bits_per_s;
        self.delay_ns = nanoseconds(settings.delay);
        self.jitter_ns = nanoseconds(settings.jitter).min(self.delay_ns);
        self.queue_bytes = queue_bytes;
        self.free_at_ps = now_ns.saturating_mul(PS_PER_NS).saturating_add(self.sending_ps(waiting));
        retiming
    }

    /// Bytes (on the wire) that are not sent yet.
    pub(crate) fn backlog_bytes(&self, now_ns: u64) -> u64 {
        let left_ps = self.free_at_ps.saturating_sub(now_ns.saturating_mul(PS_PER_NS));
        match self.rate_bits_per_s {
            None => 0,
            // Rounded up: a queue that is not empty is not told to be.
            Some(rate) => (u128::from(left_ps) * u128::from(rate)).div_ceil(8 * PS_PER_S) as u64,
        }
    }

    /// Sends a burst as far as the queue has room for it. A wire that is idle always takes a segment.
    pub(crate) fn admit(&mut self, now_ns: u64, burst: Burst) -> Admission {
        let now_ps = now_ns.saturating_mul(PS_PER_NS);
        let start_ps = self.free_at_ps.max(now_ps);
        let waiting = self.backlog_bytes(now_ns);
        let room = self.queue_bytes.map_or(u64::MAX, |most| most.saturating_sub(waiting));
        let at_least = u32::from(start_ps == now_ps);
        let segments = burst.fitting(room).max(at_least);
        self.free_at_ps = start_ps.saturating_add(self.sending_ps(burst.bytes_of(segments)));
        let jitter_ns = match self.jitter_ns {
            0 => 0,
            jitter => self.lot.below(2 * jitter + 1) as i64 - jitter as i64,
        };
        Admission {
            segments,
            waited_ns: (start_ps - now_ps) / PS_PER_NS,
            start_ps,
            delay_ns: self.delay_ns.saturating_add_signed(jitter_ns),
        }
    }

    /// When the first `segments` of an admitted burst have arrived, all of them. Ask in their order.
    pub(crate) fn arrival_ns(&mut self, admission: &Admission, burst: Burst, segments: u32) -> u64 {
        let sent_ps = admission.start_ps.saturating_add(self.sending_ps(burst.bytes_of(segments)));
        let arrival_ns = sent_ps.div_ceil(PS_PER_NS).saturating_add(admission.delay_ns);
        self.arrival_ns = self.arrival_ns.max(arrival_ns);
        self.arrival_ns
    }

    fn sending_ps(&self, bytes: u64) -> u64 {
        match self.rate_bits_per_s {
            None => 0,
            Some(rate) => {
                let ps = u128::from(bytes) * 8 * PS_PER_S / u128::from(rate.max(1));
                u64::try_from(ps).unwrap_or(u64::MAX)
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn direction(rate_bits_per_s: Option<u64>, delay_ms: u64) -> Direction {
        Direction { rate_bits_per_s, delay: Duration::from_millis(delay_ms), ..Direction::default() }
    }

    fn wire(rate_bits_per_s: Option<u64>, delay_ms: u64, queue_bytes: Option<u64>) -> Wire {
        Wire::new(&direction(rate_bits_per_s, delay_ms), queue_bytes, Lot::new(1))
    }

    fn one(bytes: u64) -> Burst {
        Burst { segments: 1, segment_bytes: bytes, last_bytes: bytes }
    }

    fn send(wire: &mut Wire, now_ns: u64, burst: Burst) -> Option<u64> {
        let admission = wire.admit(now_ns, burst);
        (admission.segments > 0).then(|| wire.arrival_ns(&admission, burst, admission.segments))
    }

    #[test]
    fn a_packet_takes_its_bytes_over_the_rate_and_then_the_delay() {
        // 1250 bytes at 10 Mb/s: 1 ms.
        let mut wire = wire(Some(10_000_000), 5, None);
        assert_eq!(send(&mut wire, 0, one(1250)), Some(6 * MS));
        // The next one waits for the first; a later one finds the wire free again.
        assert_eq!(send(&mut wire, 0, one(1250)), Some(7 * MS));
        assert_eq!(send(&mut wire, 10 * MS, one(1250)), Some(16 * MS));
    }

    #[test]
    fn idle_time_is_no_credit() {
        let mut wire = wire(Some(10_000_000), 0, None);
        let late = 3600 * 1000 * MS;
        assert_eq!(send(&mut wire, late, one(1250)), Some(late + MS));
        assert_eq!(send(&mut wire, late, one(1250)), Some(late + 2 * MS));
    }

    #[test]
    fn without_a_rate_only_the_delay_counts() {
        let mut wire = wire(None, 5, None);
        for _ in 0..1000 {
            assert_eq!(send(&mut wire, 7, one(65_000)), Some(5 * MS + 7));
        }
        assert_eq!(wire.backlog_bytes(7), 0);
    }

    #[test]
    fn what_does_not_fit_in_the_queue_is_dropped_at_the_tail() {
        let mut wire = wire(Some(10_000_000), 0, Some(2500));
        assert!(send(&mut wire, 0, one(1250)).is_some());
        assert!(send(&mut wire, 0, one(1250)).is_some());
        assert_eq!(send(&mut wire, 0, one(1250)), None);
        // After a millisecond one of them is sent, and there is room for another.
        assert_eq!(send(&mut wire, MS, one(1250)), Some(3 * MS));
        // A burst is taken as far as there is room.
        let burst = Burst { segments: 10, segment_bytes: 1000, last_bytes: 10 };
        let admission = wire.admit(2 * MS, burst);
        assert_eq!((admission.segments, admission.waited_ns), (1, MS));
    }

    #[test]
    fn an_idle_wire_takes_a_segment_however_short_its_queue() {
        let mut wire = wire(Some(10_000_000), 0, Some(0));
        let admission = wire.admit(0, Burst { segments: 3, segment_bytes: 1500, last_bytes: 1500 });
        assert_eq!(admission.segments, 1);
        assert_eq!(wire.admit(0, one(1)).segments, 0);
    }

    #[test]
    fn a_new_rate_counts_for_what_waits_and_a_shorter_delay_does_not_overtake() {
        let mut wire = wire(Some(10_000_000), 50, None);
        let arrivals: Vec<_> = (0..10).map(|_| send(&mut wire, 0, one(1250))).collect();
        assert_eq!(arrivals[9], Some(60 * MS));
        assert_eq!(wire.backlog_bytes(0), 12_500);
        wire.set(&direction(Some(100_000_000), 1), None, 0);
        assert_eq!(wire.backlog_bytes(0), 12_500);
        // What was sent before keeps its 50 ms, and is not overtaken.
        assert_eq!(send(&mut wire, 0, one(1250)), Some(51 * MS));
        assert_eq!(send(&mut wire, 80 * MS, one(1250)), Some(81 * MS + MS / 10));
    }

    #[test]
    fn what_waits_is_sent_at_the_new_rate() {
        // Ten packets wait, each for a millisecond; half of them are sent when the rate changes.
        let mut wire = wire(Some(10_000_000), 3, None);
        let due: Vec<u64> = (0..10).filter_map(|_| send(&mut wire, 0, one(1250))).collect();
        assert_eq!(due, (4..14).map(|ms| ms * MS).collect::<Vec<_>>());
        let retimed = |rate: Option<u64>| -> Vec<u64> {
            let retiming = wire.clone().set(&direction(rate, 3), None, 5 * MS);
            due.iter().map(|due_ns| retiming.of(*due_ns)).collect()
        };
        let ten_times: Vec<u64> =
            (4..9).map(|ms| ms * MS).chain((1..6).map(|n| 8 * MS + n * MS / 10)).collect();
        assert_eq!(retimed(Some(100_000_000)), ten_times);
        let half: Vec<u64> = (4..9).map(|ms| ms * MS).chain((1..6).map(|n| (8 + 2 * n) * MS)).collect();
        assert_eq!(retimed(Some(5_000_000)), half);
        let at_once: Vec<u64> = (4..9).map(|ms| ms * MS).chain([8 * MS; 5]).collect();
        assert_eq!(retimed(None), at_once);
    }

    #[test]
    fn jitter_keeps_order_and_its_limits() {
        let mut settings = direction(None, 10);
        settings.jitter = Duration::from_millis(2);
        let mut wire = Wire::new(&settings, None, Lot::new(7));
        let mut before = 0;
        let mut seen = Vec::new();
        for number in 0..1000 {
            let now = number * 10 * MS;
            let at = send(&mut wire, now, one(100)).unwrap();
            assert!(at >= before);
            before = at;
            seen.push(at - now);
        }
        let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(*least >= 8 * MS && *least < 9 * MS, "{least}");
        assert!(*most <= 12 * MS && *most > 11 * MS, "{most}");
    }

    proptest! {
        /// Whatever is sent when: the wire is never faster than its rate, never slower than it while it has
        /// work, keeps order, and never holds more than its queue.
        #[test]
        fn a_wire_is_a_wire(
            rate in 8_000_u64..400_000_000_000,
            queue in 2_000_u64..10_000_000,
            sent in proptest::collection::vec((0_u64..2_000_000, 1_u32..45, 60_u64..9_000, 40_u64..9_000), 1..200),
        ) {
            let mut wire = wire(Some(rate), 3, Some(queue));
            let (mut now, mut before, mut bytes) = (0, 0, 0_u128);
            // When a wire of exactly this rate is done with everything so far.
            let mut done_ps = 0_u128;
            for (gap, segments, segment_bytes, last) in sent {
                now += gap;
                let burst = Burst { segments, segment_bytes, last_bytes: last.min(segment_bytes) };
                let admission = wire.admit(now, burst);
                prop_assert!(admission.segments <= segments);
                let taken = burst.bytes_of(admission.segments);
                bytes += u128::from(taken);
                done_ps = done_ps.max(u128::from(now) * 1000) + u128::from(taken) * 8 * PS_PER_S / u128::from(rate);
                prop_assert!(wire.backlog_bytes(now) <= queue.max(segment_bytes) + 1);
                if admission.segments > 0 {
                    let at = wire.arrival_ns(&admission, burst, admission.segments);
                    prop_assert!(at >= before);
                    before = at;
                    prop_assert_eq!(at, done_ps.div_ceil(1000) as u64 + 3 * MS);
                }
            }
            let fastest_ns = bytes * 8 * 1_000_000_000 / u128::from(rate);
            prop_assert!(u128::from(before) + 1 >= fastest_ns + 3_000_000 || bytes == 0);
        }
    }
}
