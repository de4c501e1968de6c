//! Names of sources, lanes and requests.

/// Names a source of this plan; handed out by [`Plan::add_source`](crate::Plan::add_source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// Names a lane; chosen by the plan in [`Action::OpenLane`](crate::Action::OpenLane), never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u64);

/// Names one request on one lane; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);
