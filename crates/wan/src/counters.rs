//! What was counted on one direction of a link.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer times count as a minute.
const TIME_NS_MAX: u64 = 60_000_000_000;

/// The fate of packets, from the beginning. Packets are what travels on a wire: a super-packet of 40 segments
/// counts as 40.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed_packets: u64,
    pub(crate) passed_bytes: u64,
    pub(crate) dropped_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) vanished_packets: u64,
    pub(crate) overflowed_packets: u64,
    pub(crate) refused_packets: u64,
    pub(crate) reads: u64,
    pub(crate) cuts: u64,
    pub(crate) has_failed: bool,
    pub(crate) lateness: Times,
    pub(crate) waited: Times,
}

/// A distribution of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Option<Histogram<u64>>);

impl Times {
    pub(crate) fn record(&mut self, time_ns: u64) {
        let histogram = match &mut self.0 {
            Some(histogram) => histogram,
            // Two significant figures take some 20 kB. These bounds are valid; were they not, nothing is kept.
            none => match Histogram::new_with_bounds(1, TIME_NS_MAX, 2) {
                Ok(histogram) => none.insert(histogram),
                Err(_) => return,
            },
        };
        histogram.saturating_record(time_ns);
    }

    /// In seconds; 0 when nothing was recorded.
    pub(crate) fn quantile_s(&self, quantile: f64) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.value_at_quantile(quantile) as f64 / 1e9)
    }
}

/// The fate of the packets of one direction of a link so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that were sent and were not lost.
    pub passed_packets: u64,
    /// Their IP bytes.
    pub passed_bytes: u64,
    /// Packets for which the queue had no room.
    pub dropped_packets: u64,
    /// Packets that were lost by lot.
    pub lost_packets: u64,
    /// Packets that were sent while the link was down.
    pub vanished_packets: u64,
    /// Packets for which the emulator's own memory had no room: then the run is void.
    pub overflowed_packets: u64,
    /// Packets that the receiving device did not take: then the run is void.
    pub refused_packets: u64,
    /// Packets that the sending device dropped before they were read: then the run is void.
    pub device_dropped_packets: u64,
    /// The sending device could not be read any more, or is gone: then the run is void.
    pub has_failed: bool,
    /// Packets and super-packets: those that were read in one piece.
    pub reads: u64,
    /// Super-packets that had to be cut, because some of their segments were dropped or lost.
    pub cuts: u64,
    /// Bytes on the wire that wait to be sent now.
    pub queued_bytes: u64,
    /// Time that packets waited to be sent: median.
    pub waited_p50_s: f64,
    /// Time that packets waited to be sent: 99 %.
    pub waited_p99_s: f64,
    /// Delay of delivery beyond the moment at which it should have been: median.
    pub lateness_p50_s: f64,
    /// Delay of delivery beyond the moment at which it should have been: 99 %.
    pub lateness_p99_s: f64,
}

impl Counters {
    pub(crate) fn of(counts: &Counts, queued_bytes: u64) -> Counters {
        Counters {
            passed_packets: counts.passed_packets,
            passed_bytes: counts.passed_bytes,
            dropped_packets: counts.dropped_packets,
            lost_packets: counts.lost_packets,
            vanished_packets: counts.vanished_packets,
            overflowed_packets: counts.overflowed_packets,
            refused_packets: counts.refused_packets,
            device_dropped_packets: 0,
            has_failed: counts.has_failed,
            reads: counts.reads,
            cuts: counts.cuts,
            queued_bytes,
            waited_p50_s: counts.waited.quantile_s(0.5),
            waited_p99_s: counts.waited.quantile_s(0.99),
            lateness_p50_s: counts.lateness.quantile_s(0.5),
            lateness_p99_s: counts.lateness.quantile_s(0.99),
        }
    }

    /// Why figures from this run mean nothing, if so.
    pub fn void(&self) -> Option<String> {
        if self.has_failed {
            return Some("the sending device failed, or was removed".into());
        }
        let reasons = [
            (self.device_dropped_packets, "the device dropped before the emulator read them"),
            (self.overflowed_packets, "found no room in the emulator's memory"),
            (self.refused_packets, "the receiving device did not take"),
        ];
        let (packets, what) = reasons.into_iter().find(|(packets, _)| *packets > 0)?;
        Some(format!("{packets} packets {what}"))
    }
}
