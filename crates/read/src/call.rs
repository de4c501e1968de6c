//! Calls: the input of the application.

use gridlane_core::{ByteRange, Time};

/// Names one call that reads; chosen by the reader, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// A call of the application that wants bytes: one range, or scattered ones in any order, which may overlap and repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The ranges. What is behind the end of the file is cut off; an empty range is complete at once.
    pub ranges: Vec<ByteRange>,
    /// At this moment the call fails with `Timeout` if it is not complete; `None`: it waits as long as bytes come.
    pub deadline: Option<Time>,
}

impl Call {
    /// A call that wants one range.
    pub fn one(range: ByteRange) -> Call {
        Call { ranges: vec![range], deadline: None }
    }

    /// A call that wants several.
    pub fn scattered(ranges: impl IntoIterator<Item = ByteRange>) -> Call {
        Call { ranges: ranges.into_iter().collect(), deadline: None }
    }

    /// With a deadline.
    pub fn until(mut self, deadline: Time) -> Call {
        self.deadline = Some(deadline);
        self
    }
}

/// Words of an application, or of a reader of its format, about the reads to come. None is required, and none is believed
/// beyond the budget for speculation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// These ranges will be wanted soon: fetched ahead, behind everything that a call waits for.
    Soon(Vec<ByteRange>),
    /// All of the file will be wanted: its rest is fetched from now on, without regard to what calls have cost.
    Everything,
    /// These bytes stay in memory while the file is open, once they are there; up to half of the budget.
    Keep(ByteRange),
    /// Reads will be at random places: no stream is looked for.
    Random,
}
