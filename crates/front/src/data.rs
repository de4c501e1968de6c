//! What moves bytes, and what that is counted by: all that the data plane needs of a server.

use std::sync::Arc;

use crate::buffers::Buffers;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::settings::Deadlines;

/// What a data path needs.
pub struct DataPath {
    /// Where bytes are on their way.
    pub buffers: Arc<Buffers>,
    /// The rate limit of the whole server.
    pub(crate) pace: Option<Pace>,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}
