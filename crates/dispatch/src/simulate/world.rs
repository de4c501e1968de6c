//! Storages, paths, work, faults.

use crate::rules::Rules;

/// A place through which bytes go.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Connections beyond which it gets slower: at twice as many, by a third.
    pub knee: u32,
}

/// A link's path.
#[derive(Clone, Debug)]
pub struct Path {
    /// The storages' names.
    pub source: String,
    /// Where it leads.
    pub destination: String,
    /// Resources through which it goes, by place.
    pub through: Vec<usize>,
    /// Bytes per second of one connection: its window by the round trip.
    pub connection_bytes_per_s: f64,
    /// Time of a file before its first byte, in seconds.
    pub overhead_s: f64,
    /// Time of a file for its checksum, after its last byte, in seconds.
    pub verify_s: f64,
}

/// Files that are submitted at once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Their path, by place.
    pub path: usize,
    /// How many.
    pub files: u32,
    /// Bytes of each; they differ by a fifth at most.
    pub size_bytes: u64,
    /// Their VO.
    pub vo: String,
    /// Their activity.
    pub activity: String,
    /// When they come, in seconds.
    pub at_s: f64,
}

/// A time in which a path is down, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The path, by place.
    pub path: usize,
    /// From then on.
    pub from_s: f64,
    /// Until then.
    pub to_s: f64,
}

/// A world and its work.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Places through which bytes go.
    pub resources: Vec<Resource>,
    /// Paths.
    pub paths: Vec<Path>,
    /// The work.
    pub batches: Vec<Batch>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The share of files that fail by chance when half of them has moved.
    pub failing: f64,
    /// The configuration.
    pub rules: Rules,
    /// Steps of time, in seconds.
    pub step_s: f64,
    /// Storages tell so often how far they are, in seconds.
    pub marker_s: f64,
    /// The end, in seconds, if it has not ended by itself.
    pub until_s: f64,
    /// The best rate that all paths together could have, in bytes per second.
    pub best_bytes_per_s: f64,
    /// Attempts after the first that jobs allow.
    pub retries: u32,
    /// A copy that broke off goes on where it was.
    pub is_resuming: bool,
    /// The seed of chance.
    pub seed: u64,
}
