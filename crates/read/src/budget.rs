//! What was moved, and for what: the budget of speculation, and its exemptions.

use gridlane_core::limits::READ_UNUSED_RANGES_MAX;
use gridlane_core::{ByteRange, RangeSet};

/// The reason for which bytes are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// A call waits for them.
    #[default]
    Demand,
    /// Head and tail of the file, with its opening. Exempt.
    Opening,
    /// Metadata of which the file's format says that they are read first. Exempt, and bounded by itself.
    Format,
    /// All of a file that the path holds. Exempt.
    SmallFile,
    /// A stream or a hint expects them.
    Ahead,
    /// The switch to copying: waiting has cost as much of the time that this takes as it may. Exempt.
    Bulk,
    /// A segment, or the file, of a forced policy. Exempt.
    Forced,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 7] = [
        Purpose::Demand,
        Purpose::Opening,
        Purpose::Format,
        Purpose::SmallFile,
        Purpose::Ahead,
        Purpose::Bulk,
        Purpose::Forced,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Demand => "demand",
            Purpose::Opening => "opening",
            Purpose::Format => "format",
            Purpose::SmallFile => "small file",
            Purpose::Ahead => "ahead",
            Purpose::Bulk => "bulk",
            Purpose::Forced => "forced",
        }
    }

    /// True if the budget counts it.
    pub fn is_budgeted(self) -> bool {
        matches!(self, Purpose::Demand | Purpose::Ahead)
    }
}

/// Bytes wanted and bytes moved.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    factor: f64,
    /// Bytes that calls wanted, each counted once while it is known that it was.
    wanted_bytes: u64,
    /// Bytes asked for that no call had wanted: ahead and in gaps.
    speculated_bytes: u64,
    /// Bytes that were asked for before a call wanted them.
    unused: RangeSet,
}

impl Budget {
    pub(crate) fn new(factor: f64) -> Budget {
        Budget { factor, wanted_bytes: 0, speculated_bytes: 0, unused: RangeSet::new() }
    }

    /// Bytes that calls wanted.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes
    }

    /// Bytes that may still be asked for without a call.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let may = (self.factor - 1.0) * self.wanted_bytes as f64;
        (may as u64).saturating_sub(self.speculated_bytes)
    }

    /// Bytes are asked for before a call wants them.
    pub(crate) fn speculate(&mut self, range: ByteRange, purpose: Purpose) {
        if purpose == Purpose::Ahead {
            self.speculated_bytes += range.len();
        }
        if self.unused.range_count() < READ_UNUSED_RANGES_MAX {
            self.unused.insert(range);
        }
    }

    /// Gaps are asked for between the elements of a call.
    pub(crate) fn fill_gaps(&mut self, bytes: u64) {
        self.speculated_bytes += bytes;
    }

    /// A call wants bytes of which nothing is there or on its way.
    pub(crate) fn demand(&mut self, bytes: u64) {
        self.wanted_bytes += bytes;
    }

    /// A call wants bytes that are there, or on their way.
    pub(crate) fn hit(&mut self, range: ByteRange) {
        if self.unused.range_count() < READ_UNUSED_RANGES_MAX {
            self.wanted_bytes += self.unused.remove(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_earns_what_may_be_spent() {
        let mut budget = Budget::new(4.0);
        assert_eq!(budget.spare_bytes(), 0);
        budget.demand(100);
        assert_eq!(budget.spare_bytes(), 300);
        budget.speculate(ByteRange::at(1000, 250), Purpose::Ahead);
        assert_eq!(budget.spare_bytes(), 50);
        budget.hit(ByteRange::at(1000, 100));
        budget.hit(ByteRange::at(1000, 100));
        assert_eq!((budget.wanted_bytes(), budget.spare_bytes()), (200, 350));
        budget.speculate(ByteRange::at(5000, 10_000), Purpose::Bulk);
        assert_eq!(budget.spare_bytes(), 350, "the switch to copying is exempt");
        budget.fill_gaps(400);
        assert_eq!(budget.spare_bytes(), 0);
        assert_eq!(Budget::new(1.0).spare_bytes(), 0);
    }
}
