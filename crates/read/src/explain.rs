//! What was decided for a file, and why: for `explain()`, logs and reports.

use std::fmt;
use std::time::Duration;

use gridlane_core::units::{format_bytes, format_rate, format_seconds};

use crate::budget::Purpose;
use crate::format::Format;
use crate::settings::Policy;

/// The record of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explain {
    /// The policy that was asked for.
    pub policy: Policy,
    /// Size of the file in bytes, if it is known.
    pub size_bytes: Option<u64>,
    /// The format that its first bytes were recognised as.
    pub format: Option<Format>,
    /// The round trip R in seconds: the smallest to any source, or the default.
    pub round_trip_s: f64,
    /// True if a handshake or an answer has shown it.
    pub round_trip_is_measured: bool,
    /// True if what was not measured is what an earlier file has shown, and not the default.
    pub path_is_known: bool,
    /// The rate B of the path in bytes per second: the largest that it has shown, or the default.
    pub rate_bytes_per_s: f64,
    /// True if it was shown.
    pub rate_is_measured: bool,
    /// The cost c of an element in seconds.
    pub element_s: f64,
    /// True if vectors have shown it.
    pub element_is_measured: bool,
    /// The largest gap between two ranges that is filled, in bytes: B x c.
    pub gap_bytes: u64,
    /// Calls that read.
    pub calls: u64,
    /// Ranges of these.
    pub ranges: u64,
    /// Ranges of which every byte was there when they were wanted.
    pub hits: u64,
    /// Ranges of which the rest was on its way already.
    pub shared: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Elements of these.
    pub elements: u64,
    /// Bytes that calls wanted, those of repeated wants left out.
    pub wanted_bytes: u64,
    /// Bytes that calls were given.
    pub delivered_bytes: u64,
    /// Bytes that came, by the purpose that they were asked for.
    pub moved_bytes: [(Purpose, u64); 7],
    /// Bytes that calls wanted and that came from the disk.
    pub stored_bytes: u64,
    /// Bytes that came over the network and were kept on the disk.
    pub kept_bytes: u64,
    /// Bytes on the disk that were damaged, or could not be read.
    pub damaged_bytes: u64,
    /// The disk cache in words, and why there is none for a source; empty where none was wanted.
    pub cache: Vec<String>,
    /// Bytes of gaps that were asked for with their neighbours.
    pub gap_filled_bytes: u64,
    /// Bytes that came a second time, because their first source was slow.
    pub again_bytes: u64,
    /// Bytes that came without being asked for.
    pub stray_bytes: u64,
    /// Time in which at least one call waited.
    pub stall: Duration,
    /// The part of it, in seconds, that fetching everything before could have saved: what the switch to copying is weighed with.
    pub rent_s: f64,
    /// Price in seconds of what the switch to copying would have fetched when it was last looked at, or when it happened.
    pub price_s: f64,
    /// Time from the opening to the first switch to copying.
    pub bulk_after: Option<Duration>,
    /// Handshakes: connections that were made.
    pub handshakes: u64,
    /// Failures of sources.
    pub failures: u64,
    /// The last of these, in words.
    pub last_failure: Option<String>,
    /// The most memory that the page map had, in bytes.
    pub memory_bytes_most: u64,
    /// Bytes that were forgotten again.
    pub evicted_bytes: u64,
}

impl Explain {
    /// Bytes that came for a purpose.
    pub fn moved(&self, purpose: Purpose) -> u64 {
        self.moved_bytes.iter().filter(|(other, _)| *other == purpose).map(|(_, bytes)| bytes).sum()
    }

    /// All bytes that came.
    pub fn moved_in_all(&self) -> u64 {
        self.moved_bytes.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes moved for each byte wanted, of what the budget counts; 1 where nothing was.
    pub fn speculation(&self) -> f64 {
        let counted: u64 = self
            .moved_bytes
            .iter()
            .filter(|(purpose, _)| purpose.is_budgeted())
            .map(|(_, bytes)| bytes)
            .sum();
        if self.wanted_bytes == 0 { 1.0 } else { counted as f64 / self.wanted_bytes as f64 }
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |is_measured: bool| match (is_measured, self.path_is_known) {
            (true, _) => "measured",
            (false, true) => "remembered",
            (false, false) => "assumed",
        };
        write!(f, "policy {}; {} calls, {} ranges", self.policy.name(), self.calls, self.ranges)?;
        match self.format {
            Some(format) => writeln!(f, "; format {}", format.name()),
            None => writeln!(f),
        }?;
        writeln!(
            f,
            "path: round trip {:.1} ms ({}), {} ({}), element {:.1} us ({}), gaps up to {} filled",
            self.round_trip_s * 1e3,
            shown(self.round_trip_is_measured),
            format_rate(self.rate_bytes_per_s),
            shown(self.rate_is_measured),
            self.element_s * 1e6,
            shown(self.element_is_measured),
            format_bytes(self.gap_bytes),
        )?;
        writeln!(
            f,
            "{} requests with {} elements on {} connections; {} hits, {} shared",
            self.requests, self.elements, self.handshakes, self.hits, self.shared
        )?;
        write!(f, "wanted {}, moved {}", format_bytes(self.wanted_bytes), format_bytes(self.moved_in_all()))?;
        for (purpose, bytes) in self.moved_bytes.iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, ", {} {}", purpose.name(), format_bytes(*bytes))?;
        }
        writeln!(f, "; speculation {:.2}, gaps {}", self.speculation(), format_bytes(self.gap_filled_bytes))?;
        write!(
            f,
            "stalled {}, rent {}",
            format_seconds(self.stall.as_secs_f64()),
            format_seconds(self.rent_s)
        )?;
        match self.bulk_after {
            None => write!(f, "; not copied (price {})", format_seconds(self.price_s)),
            Some(after) => write!(
                f,
                "; copied from {} on (price {})",
                format_seconds(after.as_secs_f64()),
                format_seconds(self.price_s)
            ),
        }?;
        if self.stored_bytes > 0 || self.kept_bytes > 0 || !self.cache.is_empty() {
            let [stored, kept, damaged] =
                [self.stored_bytes, self.kept_bytes, self.damaged_bytes].map(format_bytes);
            write!(f, "\ndisk: {stored} from there, {kept} kept, {damaged} damaged")?;
            self.cache.iter().try_for_each(|words| write!(f, "; {words}"))?;
        }
        match &self.last_failure {
            Some(failure) => write!(f, "\n{} failures, the last: {failure}", self.failures),
            None => Ok(()),
        }
    }
}
