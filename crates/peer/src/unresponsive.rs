//! Servers that were waited for in vain, remembered so that the next files of a command need not wait for them again; for
//! a minute, since a server that had one bad moment may answer later.

use std::time::Instant;

use gridlane_core::limits::UNRESPONSIVE_MAX;

use crate::memory::{Asked, Memory};

/// The servers of all clones of a client.
pub type UnresponsiveServers = Memory<Asked, Unresponsive>;

/// Waits for one server that were in vain, and until when they count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unresponsive {
    silent_until: Option<Instant>,
    owing_until: Option<Instant>,
}

impl Unresponsive {
    /// True if it had not answered anything.
    pub fn is_silent(self, now: Instant) -> bool {
        self.silent_until.is_some_and(|until| now < until)
    }

    /// True if it had answered, and owed its checksum.
    pub fn is_owing(self, now: Instant) -> bool {
        self.owing_until.is_some_and(|until| now < until)
    }

    /// It was waited for in vain and has not answered anything, or it has.
    pub fn note_silent(&mut self, is_silent: bool, now: Instant) {
        self.silent_until = is_silent.then_some(now + UNRESPONSIVE_MAX);
    }

    /// Its checksum was waited for in vain, or it has said what it states.
    pub fn note_owing(&mut self, is_owing: bool, now: Instant) {
        self.owing_until = is_owing.then_some(now + UNRESPONSIVE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_moment_counts_for_a_minute_and_an_answer_ends_it() {
        let begun = Instant::now();
        let mut unresponsive = Unresponsive::default();
        assert!(!unresponsive.is_silent(begun) && !unresponsive.is_owing(begun));
        unresponsive.note_owing(true, begun);
        assert!(unresponsive.is_owing(begun + UNRESPONSIVE_MAX / 2) && !unresponsive.is_silent(begun));
        assert!(!unresponsive.is_owing(begun + UNRESPONSIVE_MAX));
        unresponsive.note_silent(true, begun);
        unresponsive.note_owing(false, begun);
        assert!(unresponsive.is_silent(begun) && !unresponsive.is_owing(begun));
        assert!(!unresponsive.is_silent(begun + UNRESPONSIVE_MAX));
        unresponsive.note_silent(false, begun);
        assert_eq!(unresponsive, Unresponsive::default());
    }
}
