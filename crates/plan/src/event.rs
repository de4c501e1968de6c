//! Events: the input of the plan.

use std::time::Duration;

use gridlane_core::ByteRange;

use crate::id::{LaneId, SourceId};

/// An event that the engine tells. Events about lanes and sources that the plan does not know (any more) are ignored.
#[derive(Clone, Debug)]
pub enum Event {
    /// The size of the object is agreed. Said once, before or after requests were sent. Requests
    /// that reach beyond the end are answered up to it; those behind it end with `RequestDone`.
    SizeKnown {
        /// The size in bytes.
        size_bytes: u64,
    },
    /// These bytes need not be fetched (a journal vouches for them).
    AlreadyDone {
        /// Which bytes.
        range: ByteRange,
    },
    /// A lane is connected and takes requests.
    LaneReady {
        /// Which lane.
        lane: LaneId,
        /// The time from a question to its answer, if the handshake showed it.
        round_trip: Option<Duration>,
    },
    /// A round trip of a lane was seen, perhaps before it is ready.
    RoundTrip {
        /// Which lane.
        lane: LaneId,
        /// Its time without waiting in queues: the smallest one counts.
        round_trip: Duration,
        /// Time that the data took that came last, with what waited on the way. Higher than the smallest one, it
        /// says that the path is full.
        loaded: Option<Duration>,
        /// Packets that came out of order on the lane's connection so far, behind one that was lost; `None` where that is not
        /// known.
        out_of_order: Option<u32>,
    },
    /// There are connections to the source already, which did so much at the end of their last use: the next lanes
    /// are ready at once, and their windows need not grow first.
    Warm {
        /// Which source.
        source: SourceId,
        /// Number of these connections.
        connections: usize,
        /// Size of the object that was fetched from there last, in bytes, if it is known: what is thought of this one's until it
        /// is told.
        expected_bytes: Option<u64>,
        /// The rate of one lane, in bytes per second.
        rate_bytes_per_s: f64,
        /// From a question to its answer.
        round_trip: Duration,
    },
    /// Requests may be sent on the lane before earlier ones are answered (the first answer was a
    /// clean 206).
    Pipelines {
        /// Which lane.
        lane: LaneId,
        /// How many at once, if the server has a limit.
        requests_max: Option<usize>,
    },
    /// The next bytes of the oldest unfinished request of the lane arrived.
    Received {
        /// Which lane.
        lane: LaneId,
        /// Number of bytes.
        bytes: u64,
        /// Those of them that were claimed by it; the others were there already (a hedge that lost).
        fresh_bytes: u64,
    },
    /// The answer to the oldest request ended in good order, after all its bytes. What it should have
    /// brought and did not is asked for again.
    RequestDone {
        /// Which lane.
        lane: LaneId,
    },
    /// The server ignores ranges: the answer to the lane's oldest request is the whole object from
    /// byte 0 on.
    WholeBody {
        /// Which lane.
        lane: LaneId,
        /// Length of the answer, if it said so.
        size_bytes: Option<u64>,
    },
    /// The connection is gone, and its unfinished requests with it.
    LaneLost {
        /// Which lane.
        lane: LaneId,
        /// Why.
        loss: Loss,
    },
    /// The source must never be used again (404, wrong size, changed, lied...).
    SourceDead {
        /// Which source.
        source: SourceId,
    },
    /// These bytes must be fetched (again).
    Invalidate {
        /// Which bytes.
        range: ByteRange,
        /// Sources that may not deliver them now; replaces what was said of these bytes before.
        not_from: Vec<SourceId>,
    },
    /// A target written in order has taken everything before `up_to_bytes`.
    Released {
        /// The offset of the first byte it has not taken.
        up_to_bytes: u64,
    },
    /// The window of a target written in order is another one: [`Settings::window_bytes`](crate::Settings::window_bytes). What
    /// was asked for beyond a smaller one may still come.
    Window {
        /// Its size from now on.
        bytes: u64,
    },
    /// The lane cannot read because the target is slow, or can again.
    Blocked {
        /// Which lane.
        lane: LaneId,
        /// True if it cannot read.
        blocked: bool,
    },
}

/// The reason for which a lane was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The plan asked for it.
    Closed,
    /// The server ended the connection in good order between two answers (keep-alive limit): no fault.
    Ended,
    /// Broken, reset, refused, truncated, timed out, 5xx: counts against the source.
    Failed,
    /// 429, 503, or a limit on connections: come back later, with fewer lanes.
    Busy {
        /// Time for which the server wants to be left alone, if it said.
        wait: Option<Duration>,
    },
}
