//! Settings for an application.

use std::time::Duration;

use gridlane_core::limits::{
    READ_BUDGET, READ_BULK_SHARE, READ_HEAD_BYTES, READ_IDLE, READ_LANES, READ_LANES_MAX, READ_MEMORY_BYTES,
    READ_PAGE_BYTES, READ_PATIENCE, READ_SEGMENT_BYTES, READ_TAIL_BYTES,
};

/// The way in which the bytes of calls are brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Chosen and changed by what is measured: all others are its parts.
    #[default]
    Adaptive,
    /// Each range by itself, the next when the last one is there, nothing else: what a plain client does.
    Direct,
    /// All ranges of a call at once, in vectors; nothing ahead of calls.
    Vector,
    /// Vectors, and reading ahead of streams.
    Prefetch,
    /// Segments of 128 MiB, whole, when they are first touched: CMSSW's lazy download.
    Lazy,
    /// The whole file in order from the opening on; reads wait for it.
    Copy,
}

impl Policy {
    /// All policies, the adaptive one first.
    pub const ALL: [Policy; 6] =
        [Policy::Adaptive, Policy::Direct, Policy::Vector, Policy::Prefetch, Policy::Lazy, Policy::Copy];

    /// The name used in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Adaptive => "adaptive",
            Policy::Direct => "direct",
            Policy::Vector => "vector",
            Policy::Prefetch => "prefetch",
            Policy::Lazy => "lazy",
            Policy::Copy => "copy",
        }
    }

    /// The policy of a name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Settings of a [`Reader`](crate::Reader).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The policy.
    pub policy: Policy,
    /// Bytes of the page map, by [`Payload::memory_bytes`](crate::Payload::memory_bytes) and the map's own entries. The adaptive
    /// policy fetches no more in bulk than fits.
    pub memory_bytes: u64,
    /// Bytes of a page: what is forgotten at once; a power of two.
    pub page_bytes: u64,
    /// Bytes moved for each byte that calls wanted, at most; 1: exactly what they want, nothing ahead, no gaps, no filling.
    /// The opening with the metadata of a format, small files and filling are exempt, and reported by themselves.
    pub budget: f64,
    /// Part of the time that fetching the rest takes for which calls may have waited before it begins.
    pub bulk_share: f64,
    /// Connections for the file, of all sources together.
    pub lanes: usize,
    /// Connections that are opened with the file, before it is known what is wanted: all of them, unless many files are open.
    pub lanes_at_first: usize,
    /// Time without anything to do after which all connections but one are given up.
    pub idle: Duration,
    /// Bytes of the head that come with the opening.
    pub head_bytes: u64,
    /// Bytes of the tail that come with the opening.
    pub tail_bytes: u64,
    /// The metadata that the file's [format](mod@crate::format) names are fetched just after the opening, where the policy may
    /// fetch ahead of calls.
    pub follows_formats: bool,
    /// Bytes of a segment of [`Policy::Lazy`].
    pub segment_bytes: u64,
    /// Time without a byte from any source after which reads that wait fail.
    pub patience: Duration,
    /// Bytes per second that the path is taken to carry until it is measured, where an earlier file from there has shown it.
    pub rate_bytes_per_s: Option<f64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::Adaptive,
            memory_bytes: READ_MEMORY_BYTES,
            page_bytes: READ_PAGE_BYTES,
            budget: READ_BUDGET,
            bulk_share: READ_BULK_SHARE,
            lanes: READ_LANES,
            lanes_at_first: READ_LANES_MAX,
            idle: READ_IDLE,
            head_bytes: READ_HEAD_BYTES,
            tail_bytes: READ_TAIL_BYTES,
            follows_formats: true,
            segment_bytes: READ_SEGMENT_BYTES,
            patience: READ_PATIENCE,
            rate_bytes_per_s: None,
        }
    }
}

impl Settings {
    /// The defaults with another policy.
    pub fn forced(policy: Policy) -> Settings {
        Settings { policy, ..Settings::default() }
    }

    /// These settings with every value in its possible range, so that no setting stops the reader.
    pub(crate) fn checked(mut self) -> Settings {
        self.page_bytes = self.page_bytes.clamp(512, 16 * 1024 * 1024).next_power_of_two();
        self.memory_bytes = self.memory_bytes.max(2 * self.page_bytes);
        self.segment_bytes = self.segment_bytes.max(self.page_bytes);
        self.lanes = self.lanes.clamp(1, READ_LANES_MAX);
        self.lanes_at_first = self.lanes_at_first.clamp(1, self.lanes);
        if !(self.budget.is_finite() && self.budget >= 1.0) {
            self.budget = READ_BUDGET;
        }
        if !(self.bulk_share.is_finite() && self.bulk_share >= 0.0) {
            self.bulk_share = READ_BULK_SHARE;
        }
        self
    }

    /// True if nothing may be moved but what calls want.
    pub(crate) fn is_exact(&self) -> bool {
        self.budget <= 1.0
    }
}
