//! Settings for a user or an engine, and the constants that need no turning.

use std::time::Duration;

/// Settings of a [`Plan`](crate::Plan). The defaults suit files from kilobytes to terabytes over
/// paths from 0.1 to 300 ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Lanes to one source at most. Sixteen: what a path of 300 ms needs when one
    /// connection is held back by a window of 4 MiB, or by loss. Fewer are used where fewer do.
    pub lanes_per_source_max: usize,
    /// Open exactly [`lanes_per_source_max`](Settings::lanes_per_source_max) lanes to every source at
    /// once, as soon as there is enough to fetch for each of them, instead of measuring whether
    /// another one helps (the user said how many).
    pub lanes_fixed: bool,
    /// Lanes to a source that no path holds back, but one processor ([`Plan::is_near`](crate::Plan::is_near)): as many as
    /// the engine has threads for. One: it has none to spare, or the target takes bytes from one at a time.
    pub lanes_near: usize,
    /// Lanes at the same time to all sources together: bounds sockets and memory. Three far sources have all
    /// that they may have.
    pub lanes_max: usize,
    /// Sources used from the start. More are spares: each takes the place of one that is lost.
    pub sources_open_max: usize,
    /// Smallest request in bytes, the end of the copy aside: below it, headers and calls show.
    pub request_bytes_min: u64,
    /// Largest request in bytes: what is lost at most with one connection.
    pub request_bytes_max: u64,
    /// Seconds that one request should keep a lane busy.
    pub request_seconds: f64,
    /// Bytes of a lane's first request, before anything is known about it.
    pub first_request_bytes: u64,
    /// Requests end at multiples of this where they can: pages, records and disk blocks stay whole.
    pub align_bytes: u64,
    /// Bytes asked for and not received that a lane has at least, so that the sender's window can
    /// grow: a connection that waits for requests never shows its rate.
    pub outstanding_bytes_min: u64,
    /// For a target written in order: no request ends more than this many bytes behind what the target
    /// has taken ([`Event::Released`](crate::Event::Released)). `None`: any order. A whole body from a
    /// source that ignores ranges is one request to the end: it comes in order, and the engine stops
    /// reading it when the target is full.
    pub window_bytes: Option<u64>,
    /// Time for which the plan hopes when no source delivers a byte; then it is stuck.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lanes_per_source_max: 16,
            lanes_fixed: false,
            lanes_near: 1,
            lanes_max: 48,
            sources_open_max: 8,
            request_bytes_min: 256 * KIB,
            request_bytes_max: 16 * MIB,
            request_seconds: 0.4,
            first_request_bytes: MIB,
            align_bytes: 64 * KIB,
            outstanding_bytes_min: 4 * MIB,
            window_bytes: None,
            patience: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// These settings with every value in its possible range, so that no setting stops the plan.
    pub(crate) fn checked(mut self) -> Settings {
        self.lanes_per_source_max = self.lanes_per_source_max.max(1);
        self.lanes_max = self.lanes_max.max(1);
        self.sources_open_max = self.sources_open_max.clamp(1, self.lanes_max);
        self.request_bytes_min = self.request_bytes_min.max(1);
        self.request_bytes_max = self.request_bytes_max.max(self.request_bytes_min);
        self.first_request_bytes = self.first_request_bytes.max(1);
        self.align_bytes = self.align_bytes.clamp(1, self.request_bytes_min);
        if !(self.request_seconds.is_finite() && self.request_seconds > 0.0) {
            self.request_seconds = Settings::default().request_seconds;
        }
        self
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Requests of one lane that are not answered in full: bounds memory, and what a lost connection undoes.
pub(crate) const REQUESTS_PER_LANE_MAX: usize = 16;
/// A lane that answers one request at a time gets larger ones, by this factor at most.
pub(crate) const SERIAL_REQUEST_FACTOR: u64 = 4;
/// With requests of this many round trips' worth of bytes the gap between two costs 5 %.
pub(crate) const SERIAL_ROUND_TRIPS: f64 = 19.0;
/// Requests that a window for a target written in order is divided into, at least.
pub(crate) const WINDOW_PARTS: u64 = 16;
/// Asked of a source that comes back from probation.
pub(crate) const PROBE_BYTES: u64 = 256 * KIB;
/// Seconds of outstanding bytes beyond the round trip: how late the engine may be.
pub(crate) const OUTSTANDING_SLACK_S: f64 = 0.1;
/// A copy is ending when its free bytes last for no longer than this many times a lane's round trip and slack: twice
/// what a lane has outstanding until then.
pub(crate) const ENDING_PATHS: f64 = 4.0;
/// Seconds of outstanding bytes to which `outstanding_bytes_min` is cut for slow lanes.
pub(crate) const OUTSTANDING_SLOW_S: f64 = 2.0;
/// Bytes that a sender may have in flight before the first acknowledgement: ten segments (RFC 6928). What a lane of unknown
/// rate is thought to begin with.
pub(crate) const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

/// A lane is suspect when it is silent for this long, or for [`SUSPECT_ROUND_TRIPS`].
pub(crate) const SUSPECT: Duration = Duration::from_secs(1);
/// See [`SUSPECT`].
pub(crate) const SUSPECT_ROUND_TRIPS: u32 = 4;
/// A lane is given up when it is silent for this long, or for [`SILENT_ROUND_TRIPS`].
pub(crate) const SILENT: Duration = Duration::from_secs(5);
/// See [`SILENT`].
pub(crate) const SILENT_ROUND_TRIPS: u32 = 8;
/// Seconds and [`LATE_ROUND_TRIPS`] after which a silent lane is thought to stay so for as long again. More than the
/// 200 ms in which BBR sends next to nothing, every ten seconds.
pub(crate) const LATE_S: f64 = 0.3;
/// See [`LATE_S`]. What is lost on the way is sent again within fewer.
pub(crate) const LATE_ROUND_TRIPS: f64 = 3.0;
/// First time in probation; each next one is twice as long.
pub(crate) const PROBATION: Duration = Duration::from_secs(5);
/// First time in probation when no other source delivers; each next one is twice as long, up to [`PROBATION`].
pub(crate) const PROBATION_ALONE: Duration = Duration::from_secs(1);
/// Failed probations after which a source is dead.
pub(crate) const PROBATIONS_MAX: u32 = 3;
/// Time for which a busy server is left alone that did not say; doubles each time.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// A server that ends a connection which was idle for this long does what servers do.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Time for which a connection that is there already is waited for before others are asked for what it could bring.
pub(crate) const WARM_MAX: Duration = Duration::from_millis(20);

/// An idle lane takes over the end of a request if it ends in less than this part of the time.
pub(crate) const HEDGE_GAIN: f64 = 0.8;
/// A lane that runs dry within a round trip helps as one that is idle, but not earlier than this: which lane
/// will be late is known better later.
pub(crate) const DRY_MAX: Duration = Duration::from_millis(30);
/// Seconds and [`RECONNECT_ROUND_TRIPS`] that a new connection takes until it delivers: what both ends compute for it.
pub(crate) const RECONNECT_S: f64 = 0.05;
/// See [`RECONNECT_S`]: TCP, TLS and the first answer.
pub(crate) const RECONNECT_ROUND_TRIPS: f64 = 3.0;
/// Seconds a hedge must save at least.
pub(crate) const HEDGE_SAVING_S: f64 = 0.005;
/// Interval at which idle lanes look whether another one needs help.
pub(crate) const HEDGE_INTERVAL: Duration = Duration::from_millis(10);
/// Part of the object that may be received twice.
pub(crate) const EXTRA_SHARE: f64 = 0.02;
/// Bytes that may be received twice however small the object and the paths are.
pub(crate) const EXTRA_BYTES_MIN: u64 = MIB;

/// From this round trip on a source begins with several lanes: slow start takes a quarter of a second.
pub(crate) const LONG_ROUND_TRIP: Duration = Duration::from_millis(25);
/// Round trip that another lane at the start must find for itself: three times what its handshake costs both ends.
pub(crate) const LANE_COST: Duration = Duration::from_millis(6);
/// Round trips that a connection needs until it fills a long path: three to begin, and about seven doublings. Of a copy
/// that is over before, more lanes at the start would only get what others do sooner.
pub(crate) const START_ROUND_TRIPS: u32 = 10;
/// Up to this round trip a source is near: on this machine, or in the same hall.
pub(crate) const NEAR_ROUND_TRIP: Duration = Duration::from_millis(1);
/// A near source that does so much is held back by a processor, and not by its path: 8 Gb/s.
pub(crate) const NEAR_RATE_BYTES_PER_S: f64 = 1e9;
/// Bytes that another lane must find to fetch from a near source. Files of 200 MB gain nothing by it.
pub(crate) const NEAR_WORTH_BYTES: u64 = 256 * MIB;
/// Bytes that another lane must find to fetch, in the middle of a copy, before it is worth its handshake.
pub(crate) const LANE_WORTH_BYTES: u64 = 8 * MIB;
/// Bytes of data in a packet on most paths: 1500 without the heads of IPv4 and TCP.
pub(crate) const SEGMENT_BYTES: f64 = 1448.0;
/// Packets that come out of order behind one that was lost, at least. Behind fewer no sender takes it for lost (RFC 5681, 3.2),
/// and the way has only changed their order.
pub(crate) const OUT_OF_ORDER_PACKETS_MIN: u32 = 3;
/// Round trips in which losses on one lane are the same one: all that was sent before it came again comes out of order.
pub(crate) const LOSS_ROUND_TRIPS: u32 = 2;
/// An epoch lasts at least this long, so that single reads do not show, or [`EPOCH_ROUND_TRIPS`].
pub(crate) const EPOCH: Duration = Duration::from_millis(200);
/// See [`EPOCH`]. BBR tries for more once in eight.
pub(crate) const EPOCH_ROUND_TRIPS: u32 = 8;
/// Epochs that must be left for a trial to be worth it: to see that the rate is level, the trial, and its fruits.
pub(crate) const EPOCHS_LEFT_MIN: f64 = 4.0;
/// A rate is level when it rises by no more than this factor from one epoch to the next. Slow start does more.
pub(crate) const LEVEL_GAIN: f64 = 1.25;
/// A path is full when data takes longer than on the empty path by this part of the round trip, or [`QUEUE`]:
/// BBR, which tries for a quarter more in one of eight round trips, adds less to the mean.
pub(crate) const QUEUE_SHARE: f64 = 0.15;
/// See [`QUEUE_SHARE`]. The kernel measures in steps of a millisecond.
pub(crate) const QUEUE: Duration = Duration::from_millis(3);
/// A source is as fast as when its path was full if it does this part of it.
pub(crate) const FULL_RATE_SHARE: f64 = 0.9;
/// Epochs in which it may do less, and its path is still full: BBR sends next to nothing for 200 ms every ten seconds, which
/// may lie in two epochs.
pub(crate) const DIP_EPOCHS: u32 = 2;
/// Lanes on trial stay if the source's rate rises by this factor.
pub(crate) const LANE_GAIN: f64 = 1.08;
/// Epochs that a trial has: in the first one new lanes are in slow start.
pub(crate) const TRIAL_EPOCHS: u32 = 2;
/// Until the next trial after one that was in vain; each next one is twice as long, up to [`REST_MAX`].
pub(crate) const REST: Duration = Duration::from_secs(10);
/// See [`REST`]: paths change.
pub(crate) const REST_MAX: Duration = Duration::from_secs(320);
/// No trials when lanes waited for the target for more than this part of the epoch.
pub(crate) const BLOCKED_SHARE_MAX: f64 = 0.1;

const _: () = {
    assert!(SUSPECT.as_millis() < SILENT.as_millis());
    assert!(SUSPECT_ROUND_TRIPS < SILENT_ROUND_TRIPS);
    assert!(PROBATION_ALONE.as_millis() <= PROBATION.as_millis());
};
