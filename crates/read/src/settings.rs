//! Settings for an application.

use std::time::Duration;

use gridlane_core::limits::{
    READ_BUDGET, READ_BULK_SHARE, READ_HEAD_BYTES, READ_IDLE, READ_LANES, READ_LANES_MAX, READ_MEMORY_BYTES,
    READ_PAGE_BYTES, READ_PATIENCE, READ_SEGMENT_BYTES, READ_TAIL_BYTES,
};
use gridlane_core::{Error, ErrorKind, Fault, Result};

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
    ///
    /// # Errors
    ///
    /// `Usage` where there is none, with the names that there are.
    pub fn named(name: &str) -> Result<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let known = Policy::ALL.map(Policy::name).join(", ");
            mistake(format!("there is no policy {name:?}; there are {known}"))
        })
    }
}

/// The choices of an application that opens a file; those that are not made are the reader's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices<'a> {
    /// The name of the policy.
    pub policy: Option<&'a str>,
    /// Bytes of the page map.
    pub memory_bytes: Option<u64>,
    /// Bytes moved for each byte that calls wanted, at most; from 1 on.
    pub budget: Option<f64>,
    /// Connections for the file.
    pub lanes: Option<usize>,
    /// Time without a byte from any source after which reads that wait fail.
    pub patience: Option<Duration>,
}

impl Choices<'_> {
    /// The settings with these choices.
    ///
    /// # Errors
    ///
    /// `Usage` for what no file can be read with.
    pub fn settings(self) -> Result<Settings> {
        let usual = Settings::default();
        if let Some(budget) = self.budget.filter(|budget| !is_budget(*budget)) {
            return Err(mistake(format!("a budget of {budget} is not a number from 1 on")));
        }
        if let Some(lanes) = self.lanes.filter(|lanes| !(1..=READ_LANES_MAX).contains(lanes)) {
            let message = format!("a file has 1 to {READ_LANES_MAX} connections, and not {lanes}");
            return Err(mistake(message));
        }
        Ok(Settings {
            policy: self.policy.map_or(Ok(usual.policy), Policy::named)?,
            memory_bytes: self.memory_bytes.unwrap_or(usual.memory_bytes),
            budget: self.budget.unwrap_or(usual.budget),
            lanes: self.lanes.unwrap_or(usual.lanes),
            patience: self.patience.unwrap_or(usual.patience),
            ..usual
        })
    }
}

fn mistake(message: String) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

fn is_budget(budget: f64) -> bool {
    budget.is_finite() && budget >= 1.0
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
        if !is_budget(self.budget) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_that_are_not_made_are_the_usual_ones() {
        assert_eq!(Choices::default().settings().unwrap(), Settings::default());
        let choices =
            Choices { policy: Some("lazy"), lanes: Some(3), budget: Some(1.0), ..Choices::default() };
        let wanted = Settings { lanes: 3, budget: 1.0, ..Settings::forced(Policy::Lazy) };
        assert_eq!(choices.settings().unwrap(), wanted);
    }

    #[test]
    fn choices_that_cannot_be_are_mistakes() {
        let usual = Choices::default();
        let wrong = [
            (Choices { policy: Some("quick"), ..usual }, "adaptive, direct"),
            (Choices { budget: Some(0.5), ..usual }, "0.5"),
            (Choices { budget: Some(f64::NAN), ..usual }, "NaN"),
            (Choices { budget: Some(f64::INFINITY), ..usual }, "inf"),
            (Choices { lanes: Some(0), ..usual }, "1 to 16"),
            (Choices { lanes: Some(17), ..usual }, "17"),
        ];
        for (choices, said) in wrong {
            let error = choices.settings().unwrap_err();
            assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Usage, Fault::Caller));
            assert!(error.message().contains(said), "{error}");
        }
    }
}
