//! What a user or an engine may turn, and the constants that nobody needs to.

use std::time::Duration;

/// How a [`Plan`](crate::Plan) behaves. The defaults suit files from kilobytes to terabytes over
/// paths from 0.1 to 300 ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Lanes to one source at most (`--streams N`). Four: what a long path needs when one connection
    /// is held back by its window or by loss, and what servers do not mind.
    pub lanes_per_source_max: usize,
    /// Open exactly [`lanes_per_source_max`](Settings::lanes_per_source_max) lanes to every source at
    /// once, as soon as there is enough to fetch for each of them, instead of measuring whether
    /// another one helps (the user said `--streams`).
    pub lanes_fixed: bool,
    /// Lanes at the same time to all sources together: bounds sockets and memory.
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
    /// How long the plan hopes when no source delivers a byte; then it is stuck.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lanes_per_source_max: 4,
            lanes_fixed: false,
            lanes_max: 32,
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
/// Seconds of outstanding bytes to which `outstanding_bytes_min` is cut for slow lanes.
pub(crate) const OUTSTANDING_SLOW_S: f64 = 2.0;
/// First window of a TCP connection, in bytes: what a lane of unknown rate is thought to begin with.
pub(crate) const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

/// A lane is suspect when it is silent for this long, or for [`SUSPECT_ROUND_TRIPS`].
pub(crate) const SUSPECT: Duration = Duration::from_secs(1);
/// See [`SUSPECT`].
pub(crate) const SUSPECT_ROUND_TRIPS: u32 = 4;
/// A lane is given up when it is silent for this long, or for [`SILENT_ROUND_TRIPS`].
pub(crate) const SILENT: Duration = Duration::from_secs(5);
/// See [`SILENT`].
pub(crate) const SILENT_ROUND_TRIPS: u32 = 8;
/// First time in probation; each next one is twice as long.
pub(crate) const PROBATION: Duration = Duration::from_secs(5);
/// First time in probation when nobody else delivers; each next one is twice as long, up to [`PROBATION`].
pub(crate) const PROBATION_ALONE: Duration = Duration::from_secs(1);
/// Failed probations after which a source is dead.
pub(crate) const PROBATIONS_MAX: u32 = 3;
/// How long a busy server is left alone that did not say; doubles each time.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// How long a connection that is there already is waited for before others are asked for what it could bring.
pub(crate) const WARM_MAX: Duration = Duration::from_millis(20);

/// An idle lane takes over the end of a request if it ends in less than this part of the time.
pub(crate) const HEDGE_GAIN: f64 = 0.8;
/// Seconds a hedge must save at least.
pub(crate) const HEDGE_SAVING_S: f64 = 0.005;
/// How often idle lanes look whether somebody needs help.
pub(crate) const HEDGE_INTERVAL: Duration = Duration::from_millis(10);
/// Part of the object that may be received twice.
pub(crate) const EXTRA_SHARE: f64 = 0.02;
/// Bytes that may be received twice however small the object and the paths are.
pub(crate) const EXTRA_BYTES_MIN: u64 = MIB;

/// A round trip above this makes a source start with two lanes.
pub(crate) const LONG_ROUND_TRIP: Duration = Duration::from_millis(30);
/// Bytes that another lane must find to fetch before it is worth its handshake.
pub(crate) const LANE_WORTH_BYTES: u64 = 8 * MIB;
/// A trial of another lane lasts this long, or [`EPOCH_ROUND_TRIPS`].
pub(crate) const EPOCH: Duration = Duration::from_secs(1);
/// See [`EPOCH`].
pub(crate) const EPOCH_ROUND_TRIPS: u32 = 10;
/// Epochs between two series of trials: paths change.
pub(crate) const EPOCHS_SETTLED: u32 = 10;
/// A lane stays if the source's total rises by this factor.
pub(crate) const LANE_GAIN: f64 = 1.08;
/// No trials when lanes waited for the target for more than this part of the epoch.
pub(crate) const BLOCKED_SHARE_MAX: f64 = 0.1;

const _: () = {
    assert!(SUSPECT.as_millis() < SILENT.as_millis());
    assert!(SUSPECT_ROUND_TRIPS < SILENT_ROUND_TRIPS);
    assert!(PROBATION_ALONE.as_millis() <= PROBATION.as_millis());
};
