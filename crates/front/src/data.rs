//! The parts of a server that move bytes, and their counters: all that the data plane needs.

use std::sync::Arc;

use gridlane_share::RateLimit;

use crate::buffers::Buffers;
use crate::metrics::Metrics;
use crate::settings::Deadlines;

/// Everything that a data path needs.
pub struct DataPath {
    /// Where bytes are on their way.
    pub buffers: Arc<Buffers>,
    /// The rate limit of the whole server.
    pub pace: Option<RateLimit>,
    /// Deadlines.
    pub deadlines: Deadlines,
    /// Counters.
    pub metrics: Arc<Metrics>,
}
