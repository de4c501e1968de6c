//! The multi-source scheduler: which range is fetched on which lane next.
//!
//! Pure: it owns no socket and reads no clock. The engine tells it what happened
//! ([`Plan::handle`]) and when, asks what to do ([`Plan::poll`], until it answers `None`), and
//! wakes it at [`Plan::deadline`]. The same events at the same times give the same actions.
//!
//! # How it thinks
//!
//! Every byte is *done*, *free*, or *owed* by a request that is outstanding on a lane. Free bytes are
//! handed out from the lowest offset on, in requests of about 0.4 s of the lane's own rate, so that a
//! slow source is asked for little and a fast one for much. Four rules do the rest:
//!
//! - **Level.** All lanes should end at the same time. Free bytes are poured over the lanes like water
//!   into a vessel whose floor is the time at which each lane runs dry; a lane gets no more than fits
//!   under the surface. So a far or slow source works until its last useful moment and never owns
//!   the end of the copy (the formula is that of [`fluid_bound_s`]). When the free bytes come to an end, a lane has no
//!   more outstanding than its path holds: what nobody was asked for yet, whoever is early can have.
//! - **Hedge.** When a lane has nothing to do, or soon runs dry, and a request ends late, the end of that
//!   request is asked for a second time, as much as lets both finish together. No byte is owed twice
//!   otherwise, and none three times.
//! - **Silence.** A lane on which bytes are due and none come is suspect after a second or four round
//!   trips: what it owes is free again. If it comes back, what nobody took is its own again. If not, it
//!   is closed, and the source rests: 5 s, 10 s, 20 s, then it is dead. The last source that is left
//!   never dies of failures; there [`Settings::patience`] ends the hope. A source that brings only a few bytes for each
//!   connection has not recovered (`SOURCE_PROGRESS_BYTES_MIN`), and is not dialled without a pause. Nobody waits when all
//!   that are left ask to come back after patience has ended.
//! - **Lanes.** A long path begins with several lanes, which share the time of slow start. Where a source's rate is
//!   level although nothing waits in queues on the way, each lane is held back by itself: lanes are doubled, up to
//!   sixteen, until the path is full or it does not help. A full path gets no trials (`streams` says why). A near
//!   source that only a processor holds back gets as many as [there are threads for](Settings::lanes_near).
//!
//! What it is not: it does not connect, time out a connect, verify, or write. It believes the engine
//! about which bytes came, and takes bytes back when it is told that they were wrong
//! ([`Event::Invalidate`]).
//!
//! # What it reaches
//!
//! Time of the causal bound (what the sources in fact offered, three round trips after the start)
//! divided by the time of a simulated copy over TCP-like connections:
//!
//! | sources | fraction |
//! | --- | --- |
//! | A: 3 equal of 100 MB/s, 10 ms, 10 GB | 0.999 |
//! | B: 100/50/10 MB/s at 1/30/150 ms, 1 GB | 0.987 |
//! | C: as B, 100 MB | 0.899 |
//! | D: five of 200 to 20 MB/s at 0.5 to 300 ms, 2 GB | 0.938 |
//! | E: as B, the fast source goes silent at 2 s | 0.984 |
//! | F: as B, the fast source drops to 5 % at 2 s | 0.977 |
//! | G: 3 equal, one drops to 5 % after 80 % of 3 GB | 0.989 |
//!
//! `cargo test -p gridlane-plan --test scenarios -- --nocapture` prints these and more, among them
//! paths with windows, losses and a shared bottleneck. No CPU: the lab decides.
//!
//! # Reading order
//!
//! `plan` (events in, actions out), `assign` (sizes and the level), `hedge`, `health` (silence, loss,
//! opening lanes), `report` (what the plan tells); below them `work` (bytes), `lane`, `source`, `streams` (how many
//! lanes), `estimate` (rates); apart: `bound`.
//!
//! # Who is believed
//!
//! [`Votes`] is a machine of its own, and as pure: it hears what replicas state of the file, and says which bytes are
//! right and for how long a word that is missing is waited for.
//!
//! # Memory
//!
//! At most 16 requests per lane and [`Settings::lanes_max`] lanes, plus one entry per fragment of the
//! done and free bytes, of which there are not many more than requests.

mod arrivals;
mod assign;
mod bound;
mod estimate;
mod health;
mod hedge;
pub mod judge;
mod lane;
mod plan;
mod report;
mod settings;
mod source;
mod streams;
mod work;

use std::time::Duration;

use gridlane_core::ByteRange;

pub use bound::{SourcePath, fluid_bound_s};
pub use judge::{first_answer_max, reading_max};
pub use plan::Plan;
pub use report::{Outcome, SourceReport, SourceState, Stuck};
pub use settings::Settings;

/// Names a source of this plan; handed out by [`Plan::add_source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// Names a lane; chosen by the plan in [`Action::OpenLane`], never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u64);

/// Names one request on one lane; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What happened. Events about lanes and sources that the plan does not know (any more) are ignored.
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
        /// How long it took without waiting in queues: the smallest one counts.
        round_trip: Duration,
        /// How long the data took that came last, with what waited on the way. Higher than the smallest one, it
        /// says that the path is full.
        loaded: Option<Duration>,
        /// Packets that came out of order on the lane's connection so far, behind one that was lost; `None` where that is not
        /// known.
        out_of_order: Option<u32>,
    },
    /// There is a connection to the source already, which did so much at the end of its last use: the next lane
    /// is ready at once, and its window need not grow first.
    Warm {
        /// Which source.
        source: SourceId,
        /// What one lane did, in bytes per second.
        rate_bytes_per_s: f64,
        /// From a question to its answer.
        round_trip: Duration,
    },
    /// Requests may be sent on the lane before earlier ones are answered (the first answer was a
    /// clean 206).
    Pipelines {
        /// Which lane.
        lane: LaneId,
    },
    /// The next bytes of the oldest unfinished request of the lane arrived.
    Received {
        /// Which lane.
        lane: LaneId,
        /// How many bytes.
        bytes: u64,
        /// How many of them were claimed by it; the others were there already (a hedge that lost).
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
        /// How long the answer is, if it said so.
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
    /// The lane cannot read because the target is slow, or can again.
    Blocked {
        /// Which lane.
        lane: LaneId,
        /// Whether it cannot read.
        blocked: bool,
    },
}

/// Why a lane was lost.
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
        /// How long the server wants to be left alone, if it said.
        wait: Option<Duration>,
    },
}

/// What the engine shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect a lane to the source; answer with `LaneReady` or `LaneLost`, in bounded time.
    OpenLane {
        /// Name of the new lane.
        lane: LaneId,
        /// Where to.
        source: SourceId,
    },
    /// Ask for a range on the lane, behind the requests it has.
    Request {
        /// Which lane.
        lane: LaneId,
        /// Name of the new request.
        request: RequestId,
        /// Which bytes; never empty.
        range: ByteRange,
    },
    /// Drop the connection (HTTP/1.1 cannot take a request back); answer with `LaneLost`/`Closed`.
    CloseLane {
        /// Which lane.
        lane: LaneId,
    },
}

impl Action {
    /// The lane it is about.
    pub fn lane(&self) -> LaneId {
        match *self {
            Action::OpenLane { lane, .. } | Action::Request { lane, .. } | Action::CloseLane { lane } => lane,
        }
    }
}
