//! How many lanes a source deserves.
//!
//! More lanes to one source help in two ways, and cost the other users of the path.
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
//! **Where packets are lost** on a path that is not full, and a sender takes that for a full one (CUBIC, Reno), what a lane
//! can have follows from how many bytes come between two losses ([`lanes_for`]). So many lanes are opened at once, because
//! the rate is not level while each loss makes one lane slower, and a copy may be over before it is. Losses of a full path,
//! of a queue that overflows or of a limit that drops, are not meant: they come while data waits, or to most lanes within
//! the same round trip; so one is looked at when a round trip has passed.
//!
//! Time is counted in epochs of eight round trips: as long as BBR takes to try for more, so that each epoch has seen it.

use std::time::Duration;

use gridlane_core::Time;

use crate::settings::{
    BLOCKED_SHARE_MAX, DIP_EPOCHS, EPOCH, EPOCH_ROUND_TRIPS, FULL_RATE_SHARE, LANE_COST, LANE_GAIN,
    LEVEL_GAIN, LONG_ROUND_TRIP, NEAR_RATE_BYTES_PER_S, NEAR_ROUND_TRIP, QUEUE, QUEUE_SHARE, REST, REST_MAX,
    SEGMENT_BYTES, TRIAL_EPOCHS,
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

/// Lanes that carry `rate_bytes_per_s` where a packet is lost in every `bytes_per_loss`: the window of a lane is on average
/// that of CUBIC (RFC 9438, 5.1: `1.054 (RTT / p)^0.75` packets), or of Reno (`1.22 / sqrt(p)`) where that is more.
fn lanes_for(rate_bytes_per_s: f64, bytes_per_loss: f64, round_trip: Duration) -> usize {
    let (round_trip_s, packets) = (round_trip.as_secs_f64(), (bytes_per_loss / SEGMENT_BYTES).max(1.0));
    let window = (1.054 * (round_trip_s * packets).powf(0.75)).max(1.22 * packets.sqrt());
    (rate_bytes_per_s * round_trip_s / (window * SEGMENT_BYTES)).ceil() as usize
}

/// True if a processor holds a source back and not its path.
pub(crate) fn is_near(round_trip: Duration, rate_bytes_per_s: f64) -> bool {
    round_trip <= NEAR_ROUND_TRIP && rate_bytes_per_s >= NEAR_RATE_BYTES_PER_S
}

/// Observations of a source's rate, and what follows for its lanes.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    epoch: Option<Epoch>,
    /// The rate of the epoch before, in bytes per second.
    rate_before: Option<f64>,
    /// The rate of the source when its path was full.
    full_rate: Option<f64>,
    /// Epochs since it last did about that.
    dips: u32,
    trial: Option<Trial>,
    /// Losses that were seen since the beginning.
    losses: u32,
    /// When the first one was seen after lanes were counted last, while nothing waited on the way.
    lost_at: Option<Time>,
    /// No trial before this.
    rest_until: Time,
    rests: u32,
    has_judged: bool,
}

#[derive(Debug)]
struct Epoch {
    since: Time,
    bytes: u64,
    /// Bytes that all sources had sent when it began.
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
    /// The most that there may be.
    pub(crate) lanes_max: usize,
    /// Bytes received from all sources since the beginning.
    pub(crate) total_bytes: u64,
}

/// A source of which packets are lost.
pub(crate) struct Lossy {
    /// Lanes on which one was lost in the last round trips.
    pub(crate) lanes: usize,
    /// Bytes that came from it in all.
    pub(crate) received_bytes: u64,
    /// Its rate in the last four round trips, and at best in two of the last ten.
    pub(crate) lately_bytes_per_s: f64,
    pub(crate) best_bytes_per_s: f64,
}

/// The findings of [`Streams::judge`].
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

    /// A packet was lost on a lane, on which data takes `loaded`.
    pub(crate) fn lose(&mut self, now: Time, round_trip: Duration, loaded: Duration) {
        self.losses = self.losses.saturating_add(1);
        if !waits(round_trip, loaded) {
            self.lost_at.get_or_insert(now);
        }
    }

    /// When lanes are to be counted because of a loss: see [`spread`](Streams::spread).
    pub(crate) fn spread_at(&self, round_trip: Option<Duration>) -> Option<Time> {
        self.lost_at.map(|lost_at| lost_at + round_trip.unwrap_or_default())
    }

    /// Number of lanes that there should be in addition because of losses.
    pub(crate) fn spread(&mut self, seen: &Seen, lossy: &Lossy) -> usize {
        let is_full = self.full_rate.is_some_and(|full| lossy.lately_bytes_per_s >= full * FULL_RATE_SHARE);
        // Of one lane it cannot be told.
        let is_of_most = 2 * lossy.lanes > seen.lanes;
        if self.lost_at.take().is_none() || is_full || is_of_most || seen.now < self.rest_until {
            return 0;
        }
        // Half of the sources that lose so often have had as many losses by now: the first comes early more often than late.
        let bytes_per_loss = lossy.received_bytes as f64 / (f64::from(self.losses.max(1)) - 1.0 / 3.0);
        let wanted = lanes_for(lossy.best_bytes_per_s, bytes_per_loss, seen.round_trip);
        let more = wanted.min(seen.lanes_max).saturating_sub(seen.lanes);
        if more > 0 {
            // They have no epoch to compare with: what is seen from now on tells whether they help.
            (self.trial, self.rate_before) = (None, None);
            self.restart(seen.now, seen.total_bytes);
        }
        more
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

    /// True if an epoch has ended: from then on what was seen decides.
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

    /// The finding of the epoch that ends now.
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

    /// True if the path carries what it can.
    fn is_full(&mut self, rate: f64, epoch: &Epoch, round_trip: Duration) -> bool {
        let loaded = epoch.loaded.checked_div(epoch.loads).unwrap_or_default();
        if waits(round_trip, loaded) {
            self.full_rate = Some(rate);
        }
        let Some(full_rate) = &mut self.full_rate else { return false };
        *full_rate = full_rate.max(rate);
        self.dips = if rate >= *full_rate * FULL_RATE_SHARE { 0 } else { self.dips + 1 };
        self.dips <= DIP_EPOCHS
    }
}

/// True if data that takes `loaded` waits in queues on its way.
fn waits(round_trip: Duration, loaded: Duration) -> bool {
    loaded.saturating_sub(round_trip) >= QUEUE.max(round_trip.mul_f64(QUEUE_SHARE))
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

    /// A loss on one of four lanes, which have done 100 MB/s, at so many bytes; the lanes that are added a round trip later.
    fn spread(streams: &mut Streams, loaded_ms: u64, lanes_lost: usize, received_bytes: u64) -> usize {
        let lost_at = at_ms(100);
        streams.lose(lost_at, ROUND_TRIP, Duration::from_millis(loaded_ms));
        assert!(streams.spread_at(Some(ROUND_TRIP)).is_none_or(|at| at == lost_at + ROUND_TRIP));
        let seen = Seen {
            now: lost_at + ROUND_TRIP,
            round_trip: ROUND_TRIP,
            lanes: 4,
            lanes_max: 16,
            total_bytes: received_bytes,
        };
        let (lately_bytes_per_s, best_bytes_per_s) = (0.95e8, 1e8);
        streams
            .spread(&seen, &Lossy { lanes: lanes_lost, received_bytes, lately_bytes_per_s, best_bytes_per_s })
    }

    #[test]
    fn lanes_follow_from_the_bytes_between_losses() {
        let segment = SEGMENT_BYTES as u64;
        // 122 packets in 25 ms by Reno's response function, which is more than CUBIC's 66: 7.1 MB/s.
        assert_eq!(lanes_for(1e8, 10_000.0 * SEGMENT_BYTES, ROUND_TRIP), 15);
        // CUBIC's 2100 packets in 100 ms: 30 MB/s.
        assert_eq!(lanes_for(1e8, 250_000.0 * SEGMENT_BYTES, Duration::from_millis(100)), 4);
        assert!(lanes_for(1e8, 0.0, ROUND_TRIP) > 16, "no more than one packet is lost at once");
        // Of 6667 packets one was lost: one of 10,000 is as likely as not.
        assert_eq!(spread(&mut Streams::default(), EMPTY_MS, 1, 6667 * segment), 11);
        assert_eq!(
            spread(&mut Streams::default(), EMPTY_MS, 1, 1000 * segment),
            12,
            "as many as there may be"
        );
        assert_eq!(spread(&mut Streams::default(), EMPTY_MS, 1, 1_000_000 * segment), 0, "four are enough");
    }

    #[test]
    fn losses_of_a_full_path_open_no_lanes() {
        let bytes = 6667 * SEGMENT_BYTES as u64;
        assert_eq!(spread(&mut Streams::default(), 45, 1, bytes), 0, "data waits");
        assert_eq!(spread(&mut Streams::default(), EMPTY_MS, 3, bytes), 0, "most lanes have them together");
        let mut resting = Streams { rest_until: at_ms(1000), ..Streams::default() };
        assert_eq!(spread(&mut resting, EMPTY_MS, 1, bytes), 0, "a trial was in vain lately");
        let mut full = Streams { full_rate: Some(1.02e8), ..Streams::default() };
        assert_eq!(spread(&mut full, EMPTY_MS, 1, bytes), 0, "it does what it did when its path was full");
        assert_eq!(full.spread_at(Some(ROUND_TRIP)), None, "the loss was looked at");
        full.full_rate = Some(1.1e8);
        assert_eq!(
            spread(&mut full, EMPTY_MS, 1, bytes),
            12,
            "it was full, and is not; another packet was lost"
        );
    }

    #[test]
    fn long_paths_begin_with_many_lanes() {
        let lanes = |ms| start_lanes(Duration::from_millis(ms), 16);
        assert_eq!([1, 10, 20, 26, 50, 100, 300].map(lanes), [1, 1, 1, 4, 8, 16, 16]);
        assert_eq!(start_lanes(Duration::from_millis(300), 4), 4);
    }
}
