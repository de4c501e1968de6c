//! How many lanes a source deserves.
//!
//! More lanes to one source help in two ways, and cost whoever shares the path with them.
//!
//! **At the start** of a long path. A connection's window begins with ten packets and doubles each round trip; k
//! connections begin with ten each, so that log2(k) round trips are saved. This is decided as soon as the round trip is
//! known, which is before TLS is spoken: [`start_lanes`]. Where n sources deliver, each of them is a part of the copy,
//! and so is what it could save; and nothing is saved where the others are done before a far one has begun.
//!
//! **Near**, where a source is so fast that a processor is the limit, ours or the server's: a lane is worked for by one
//! thread at each end. Another one is opened as soon as that is seen, if the engine has a thread for it
//! ([`Settings::lanes_near`](crate::Settings::lanes_near)) and enough is left.
//!
//! **For good**, where each connection has a ceiling of its own: the sender's or the receiver's window (4 MiB at 100 ms
//! are 42 MB/s), or losses that are not the path's being full. Then the rate is level although nothing waits in queues
//! on the way: the round trip under load is that of the empty path. Lanes are doubled until one of these is seen:
//!
//! - *The path is full.* The round trip under load has risen: bytes wait in front of the narrowest place, and another
//!   connection could only take from others, or overflow the queue. The rate at which that was seen is remembered,
//!   because BBR drains the queue that it made in its first second: a source that still does nine tenths of it is as
//!   fast as its path. So is one that does less for up to two epochs: every ten seconds BBR sends next to nothing for
//!   200 ms, to see the round trip of the empty path.
//! - *It did not help.* The source's rate did not rise, or it rose at the cost of the other sources, behind the same
//!   bottleneck or at the same processor. The lanes of the trial end. A server that limits its rate looks like this:
//!   so the next trial is far off, and each further one twice as far.
//!
//! Time is counted in epochs of eight round trips: as long as BBR takes to try for more, so that each epoch has seen it.

use std::time::Duration;

use gridlane_core::Time;

use crate::settings::{
    BLOCKED_SHARE_MAX, DIP_EPOCHS, EPOCH, EPOCH_ROUND_TRIPS, FULL_RATE_SHARE, LANE_COST, LANE_GAIN,
    LEVEL_GAIN, LONG_ROUND_TRIP, NEAR_RATE_BYTES_PER_S, NEAR_ROUND_TRIP, QUEUE, QUEUE_SHARE, REST, REST_MAX,
    TRIAL_EPOCHS,
};

/// Lanes to begin with: another doubling saves `round_trip` of the copy, and costs as many handshakes as there are
/// lanes.
/// They are not taken back when the path turns out to be full: those that are left would have to grow, for seconds.
pub(crate) fn start_lanes(round_trip: Duration, lanes_max: usize) -> usize {
    let mut lanes = 1;
    while round_trip >= LONG_ROUND_TRIP
        && 2 * lanes <= lanes_max
        && LANE_COST * 2 * lanes as u32 <= round_trip
    {
        lanes *= 2;
    }
    lanes
}

/// Whether a processor holds a source back and not its path.
pub(crate) fn is_near(round_trip: Duration, rate_bytes_per_s: f64) -> bool {
    round_trip <= NEAR_ROUND_TRIP && rate_bytes_per_s >= NEAR_RATE_BYTES_PER_S
}

/// What was seen of a source's rate, and what follows for its lanes.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    epoch: Option<Epoch>,
    /// What the epoch before did, in bytes per second.
    rate_before: Option<f64>,
    /// What the source did when its path was full.
    full_rate: Option<f64>,
    /// Epochs since it last did about that.
    dips: u32,
    trial: Option<Trial>,
    /// No trial before this.
    rest_until: Time,
    rests: u32,
    has_judged: bool,
}

#[derive(Debug)]
struct Epoch {
    since: Time,
    bytes: u64,
    /// What all sources had sent when it began.
    total_bytes: u64,
    blocked: Duration,
    /// Round trips under load, and how many.
    loaded: Duration,
    loads: u32,
}

/// Lanes that have to show that they help.
#[derive(Debug)]
struct Trial {
    lanes: usize,
    epochs: u32,
    /// Bytes per second of the source and of all sources, before.
    rate: f64,
    total_rate: f64,
}

/// The source and the plan at the end of an epoch.
pub(crate) struct Seen {
    pub(crate) now: Time,
    /// Of the empty path.
    pub(crate) round_trip: Duration,
    pub(crate) lanes: usize,
    /// As many as there may be.
    pub(crate) lanes_max: usize,
    /// Bytes received from all sources since the beginning.
    pub(crate) total_bytes: u64,
}

/// What [`Streams::judge`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stay,
    /// So many more.
    Add(usize),
    /// So many fewer.
    Remove(usize),
}

impl Streams {
    /// Bytes came.
    pub(crate) fn count(&mut self, bytes: u64) {
        if let Some(epoch) = &mut self.epoch {
            epoch.bytes += bytes;
        }
    }

    /// Data came that took this long, with what waited on the way.
    pub(crate) fn load(&mut self, round_trip: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.loaded += round_trip;
            epoch.loads += 1;
        }
    }

    /// A lane could not go on for so long, because of the target.
    pub(crate) fn block(&mut self, lasted: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.blocked += lasted;
        }
    }

    /// When the running epoch ends.
    pub(crate) fn epoch_end(&self, round_trip: Option<Duration>) -> Option<Time> {
        let length = EPOCH.max(round_trip.unwrap_or(Duration::ZERO) * EPOCH_ROUND_TRIPS);
        self.epoch.as_ref().map(|epoch| epoch.since + length)
    }

    /// Whether an epoch has ended: from then on what was seen decides.
    pub(crate) fn has_judged(&self) -> bool {
        self.has_judged
    }

    /// Begins to count when the first lane is there.
    pub(crate) fn begin(&mut self, now: Time, total_bytes: u64) {
        if self.epoch.is_none() {
            self.restart(now, total_bytes);
        }
    }

    /// Forgets what the running epoch saw.
    pub(crate) fn restart(&mut self, now: Time, total_bytes: u64) {
        let (blocked, loaded) = (Duration::ZERO, Duration::ZERO);
        self.epoch = Some(Epoch { since: now, bytes: 0, total_bytes, blocked, loaded, loads: 0 });
    }

    /// What the epoch that ends now says.
    pub(crate) fn judge(&mut self, seen: &Seen) -> Verdict {
        let Some(epoch) = self.epoch.take() else { return Verdict::Stay };
        self.restart(seen.now, seen.total_bytes);
        self.has_judged = true;
        let epoch_s = seen.now.since(epoch.since).as_secs_f64().max(1e-3);
        let rate = epoch.bytes as f64 / epoch_s;
        let total_rate = seen.total_bytes.saturating_sub(epoch.total_bytes) as f64 / epoch_s;
        let is_level = self.rate_before.is_some_and(|before| rate <= before * LEVEL_GAIN);
        self.rate_before = Some(rate);
        let is_full = self.is_full(rate, &epoch, seen.round_trip);
        if let Some(mut trial) = self.trial.take() {
            let gained = rate - trial.rate;
            let helped = rate >= trial.rate * LANE_GAIN && total_rate - trial.total_rate >= gained / 2.0;
            trial.epochs += 1;
            if !helped && trial.epochs < TRIAL_EPOCHS {
                self.trial = Some(trial);
                return Verdict::Stay;
            }
            if !helped {
                self.rest_until = seen.now + (REST * (1 << self.rests.min(8))).min(REST_MAX);
                self.rests += 1;
                return Verdict::Remove(trial.lanes);
            }
            self.rests = 0;
            // What it brought is still growing, perhaps.
            return self.grow(seen, !is_full, rate, total_rate);
        }
        let was_blocked = epoch.blocked.as_secs_f64() > BLOCKED_SHARE_MAX * epoch_s;
        self.grow(seen, is_level && !is_full && !was_blocked && rate > 0.0, rate, total_rate)
    }

    fn grow(&mut self, seen: &Seen, may: bool, rate: f64, total_rate: f64) -> Verdict {
        let lanes = seen.lanes.min(seen.lanes_max.saturating_sub(seen.lanes));
        if !may || lanes == 0 || seen.now < self.rest_until {
            return Verdict::Stay;
        }
        self.trial = Some(Trial { lanes, epochs: 0, rate, total_rate });
        Verdict::Add(lanes)
    }

    /// Whether the path carries what it can.
    fn is_full(&mut self, rate: f64, epoch: &Epoch, round_trip: Duration) -> bool {
        let loaded = epoch.loaded.checked_div(epoch.loads).unwrap_or_default();
        let queued = loaded.saturating_sub(round_trip);
        if queued >= QUEUE.max(round_trip.mul_f64(QUEUE_SHARE)) {
            self.full_rate = Some(rate);
        }
        let Some(full_rate) = &mut self.full_rate else { return false };
        *full_rate = full_rate.max(rate);
        self.dips = if rate >= *full_rate * FULL_RATE_SHARE { 0 } else { self.dips + 1 };
        self.dips <= DIP_EPOCHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(25);
    const EMPTY_MS: u64 = 26;

    fn at_ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    /// A source whose epochs are 200 ms long.
    struct Fixture {
        streams: Streams,
        ms: u64,
        lanes: usize,
        total_bytes: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let mut streams = Streams::default();
            streams.begin(at_ms(0), 0);
            Fixture { streams, ms: 0, lanes: 1, total_bytes: 0 }
        }

        /// An epoch in which the source and the others sent so much, at such a round trip.
        fn epoch(&mut self, bytes: u64, others_bytes: u64, loaded_ms: u64) -> Verdict {
            self.ms += 200;
            self.total_bytes += bytes + others_bytes;
            self.streams.count(bytes);
            self.streams.load(Duration::from_millis(loaded_ms));
            let verdict = self.streams.judge(&Seen {
                now: at_ms(self.ms),
                round_trip: ROUND_TRIP,
                lanes: self.lanes,
                lanes_max: 16,
                total_bytes: self.total_bytes,
            });
            match verdict {
                Verdict::Add(lanes) => self.lanes += lanes,
                Verdict::Remove(lanes) => self.lanes -= lanes,
                Verdict::Stay => {}
            }
            verdict
        }
    }

    #[test]
    fn doubles_while_each_lane_is_held_back_and_stops_where_the_path_is_full() {
        let mut source = Fixture::new();
        assert_eq!(source.epoch(30, 0, EMPTY_MS), Verdict::Stay, "it may still be growing");
        assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Stay, "it is still growing");
        assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Add(1));
        assert_eq!(source.epoch(190, 0, EMPTY_MS), Verdict::Add(2));
        assert_eq!(source.epoch(380, 0, EMPTY_MS), Verdict::Add(4));
        assert_eq!(source.epoch(500, 0, 45), Verdict::Stay, "the path is full");
        assert_eq!(source.epoch(500, 0, 45), Verdict::Stay);
    }

    #[test]
    fn a_path_that_was_full_at_this_rate_is_full() {
        let mut source = Fixture::new();
        source.epoch(100, 0, 50);
        for _ in 0..100 {
            assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Stay, "as BBR leaves it");
        }
        for _ in 0..3 {
            for dip in [60, 85] {
                assert_eq!(source.epoch(dip, 0, EMPTY_MS), Verdict::Stay, "BBR looks at the empty path");
            }
            assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Stay);
        }
        source.epoch(60, 0, EMPTY_MS);
        source.epoch(60, 0, EMPTY_MS);
        assert_eq!(source.epoch(60, 0, EMPTY_MS), Verdict::Add(1), "losses hold it back");
    }

    #[test]
    fn what_does_not_help_ends_soon_and_is_not_repeated_soon() {
        let mut source = Fixture::new();
        source.epoch(100, 0, EMPTY_MS);
        assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Add(1));
        assert_eq!(source.epoch(104, 0, EMPTY_MS), Verdict::Stay, "it may be in slow start");
        assert_eq!(source.epoch(104, 0, EMPTY_MS), Verdict::Remove(1));
        let quiet = (0..).take_while(|_| source.epoch(100, 0, EMPTY_MS) == Verdict::Stay).count();
        assert!((49..=51).contains(&quiet), "{quiet}");
        source.epoch(100, 0, EMPTY_MS);
        assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Remove(1));
        let quiet = (0..).take_while(|_| source.epoch(100, 0, EMPTY_MS) == Verdict::Stay).count();
        assert!((99..=101).contains(&quiet), "{quiet}");
    }

    #[test]
    fn what_is_taken_from_other_sources_is_no_gain() {
        let mut source = Fixture::new();
        source.epoch(100, 100, EMPTY_MS);
        assert_eq!(source.epoch(100, 100, EMPTY_MS), Verdict::Add(1));
        source.epoch(133, 67, EMPTY_MS);
        assert_eq!(source.epoch(133, 67, EMPTY_MS), Verdict::Remove(1));
    }

    #[test]
    fn no_trial_while_the_target_is_the_limit() {
        let mut source = Fixture::new();
        source.epoch(100, 0, EMPTY_MS);
        source.streams.block(Duration::from_millis(40));
        assert_eq!(source.epoch(100, 0, EMPTY_MS), Verdict::Stay);
    }

    #[test]
    fn long_paths_begin_with_many_lanes() {
        let lanes = |ms| start_lanes(Duration::from_millis(ms), 16);
        assert_eq!([1, 10, 20, 26, 50, 100, 300].map(lanes), [1, 1, 1, 4, 8, 16, 16]);
        assert_eq!(start_lanes(Duration::from_millis(300), 4), 4);
    }
}
