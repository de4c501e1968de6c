//! Rules that do not hold, as they are found.

use std::fmt::Debug;

/// Rules that do not hold.
#[derive(Default)]
pub(super) struct Found {
    /// The part of the suite that is at work.
    pub(super) part: &'static str,
    /// A sentence each.
    pub(super) wrong: Vec<String>,
}

impl Found {
    /// A rule holds.
    pub(super) fn holds(&mut self, rule: &str, holds: bool) {
        if !holds {
            self.wrong.push(format!("{}: it does not hold that {rule}", self.part));
        }
    }

    /// Two things are the same.
    pub(super) fn same<T: PartialEq + Debug>(&mut self, rule: &str, is: T, should_be: T) {
        if is != should_be {
            let part = self.part;
            self.wrong.push(format!(
                "{part}: it does not hold that {rule}: it is\n    {is:?}, and should be\n    {should_be:?}"
            ));
        }
    }
}
