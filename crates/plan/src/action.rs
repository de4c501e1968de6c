//! Actions: the output of the plan.

use gridlane_core::ByteRange;

use crate::id::{LaneId, RequestId, SourceId};

/// An order for the engine.
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
