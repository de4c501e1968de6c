//! Bytes that are kept near by, on the disk: they are neither in memory nor asked of a server.
//!
//! The engine says of which bytes it has them ([`Event::Stored`](crate::Event::Stored)), is asked for those that calls want
//! ([`Action::Recall`]), and gives them ([`Event::Recalled`](crate::Event::Recalled)) or says that they are not there after all
//! ([`Event::Unstored`](crate::Event::Unstored)). Nothing that is expected or filled is fetched while it is stored, and nothing is
//! recalled that no call wants.

use gridlane_core::{ByteRange, RangeSet};

use crate::action::Action;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Bytes that are stored.
    pub(crate) ranges: RangeSet,
    /// Bytes that were asked for and have not come.
    pub(crate) recalled: RangeSet,
    /// Bytes that are to be asked for.
    wanted: Vec<ByteRange>,
}

impl Stored {
    /// The parts of `range` that are not stored; the others are asked for.
    pub(crate) fn recall(&mut self, range: ByteRange) -> Vec<ByteRange> {
        for part in self.ranges.intersection(range) {
            for part in self.recalled.missing(part) {
                self.recalled.insert(part);
                self.wanted.push(part);
            }
        }
        self.ranges.missing(range)
    }

    /// What the engine is to be asked for.
    pub(crate) fn next_action<P>(&mut self) -> Option<Action<P>> {
        let ranges = std::mem::take(&mut self.wanted);
        (!ranges.is_empty()).then_some(Action::Recall { ranges })
    }

    pub(crate) fn clear(&mut self) {
        *self = Stored::default();
    }
}
