//! The memory that a connection takes for its client: requests that are half there or wait for their turn, and answers
//! that were not taken.
//!
//! A little of it every connection has. What is beyond that is taken from one [budget] of all connections, of which one
//! client has a part. When nothing is left, no more is read of the client's requests, and answers are not made ahead of
//! its socket; what there is goes on. A request that is not there in time ends the connection as always.

use std::time::{Duration, Instant};

use gridlane_core::limits;

use crate::front::Front;
use gridlane_share::budget::{self, Lease};

/// Between two checks if a connection that is busy has more than it needs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A connection's part of the budget.
#[derive(Default)]
pub(super) struct Memory {
    lease: Option<Lease>,
    /// The most that was needed since the last check if that is too much.
    most_needed: usize,
    /// The time when it was needed last, or checked.
    looked: Option<Instant>,
    /// At most half of it is needed at the moment.
    has_excess: bool,
    /// There was not enough for more of its requests.
    pub(super) lacks_input: bool,
    /// There was not enough for more answers.
    pub(super) lacks_output: bool,
}

impl Memory {
    /// Has the budget cover so many bytes of requests and of answers, as far as it can. What was taken is kept as long as
    /// half of it is needed now and then, or until [`release`](Memory::release): a connection that is busy does not come
    /// to the budget for each request.
    pub(super) fn cover(&mut self, front: &Front, input_bytes: usize, output_bytes: usize) {
        let (input, output) = counted(input_bytes, output_bytes);
        let needed = input + output;
        (self.lacks_input, self.lacks_output) = (false, false);
        let leased = self.lease.as_ref().map_or(0, Lease::amount);
        self.has_excess = false;
        if needed <= leased {
            self.most_needed = self.most_needed.max(needed);
            if in_steps(needed) * 2 <= leased {
                self.shrink(needed);
            }
            return;
        }
        (self.most_needed, self.looked) = (needed, Some(Instant::now()));
        let wanted = in_steps(needed);
        let outcome = match &mut self.lease {
            Some(lease) => lease.try_resize(wanted),
            None => {
                let taken = front.budgets.root_memory.try_take(budget::current(), wanted);
                taken.map(|lease| self.lease = Some(lease))
            }
        };
        if outcome.is_err() {
            (self.lacks_input, self.lacks_output) = (input > leased, output > 0);
        }
    }

    /// Gives back what was not needed since the last look, if that is half of it or more.
    fn shrink(&mut self, needed: usize) {
        let leased = self.lease.as_ref().map_or(0, Lease::amount);
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now >= looked + LOOK_AGAIN) {
            if in_steps(self.most_needed) * 2 <= leased {
                self.keep(in_steps(self.most_needed));
            }
            (self.most_needed, self.looked) = (needed, Some(now));
        }
        let leased = self.lease.as_ref().map_or(0, Lease::amount);
        self.has_excess = leased > 0 && in_steps(needed) * 2 <= leased;
    }

    /// The time to [`cover`](Memory::cover) again though nothing happens, because there is more than is needed.
    pub(super) fn looks_again(&self) -> Option<Instant> {
        self.looked.filter(|_| self.has_excess).map(|looked| looked + LOOK_AGAIN)
    }

    /// Gives back what is not needed for so many bytes: a connection on which nothing happens may have half a request.
    pub(super) fn release(&mut self, input_bytes: usize, output_bytes: usize) {
        let (input, output) = counted(input_bytes, output_bytes);
        self.keep(in_steps(input + output));
        self.has_excess = false;
    }

    /// Gives back what is beyond so much.
    fn keep(&mut self, bytes: usize) {
        match bytes {
            0 => self.lease = None,
            needed => {
                if let Some(lease) = self.lease.as_mut().filter(|lease| lease.amount() > needed) {
                    // Less is always there.
                    let _ = lease.try_resize(needed);
                }
            }
        }
    }
}

/// The number of these bytes that count.
fn counted(input_bytes: usize, output_bytes: usize) -> (usize, usize) {
    let input = input_bytes.saturating_sub(limits::ROOT_INPUT_BYTES_FREE);
    (input, output_bytes.saturating_sub(limits::ROOT_OUTPUT_BYTES_FREE))
}

fn in_steps(bytes: usize) -> usize {
    bytes.next_multiple_of(limits::ROOT_MEMORY_STEP_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::context_of;
    use gridlane_share::Share;

    #[test]
    fn memory_is_counted_for_as_long_as_it_is_held() {
        const STEP: usize = limits::ROOT_MEMORY_STEP_BYTES;
        const INPUT: usize = limits::ROOT_INPUT_BYTES_FREE;
        const OUTPUT: usize = limits::ROOT_OUTPUT_BYTES_FREE;
        let context = context_of(|settings| {
            settings.shares.root_memory_bytes = Share { all: 10 * STEP, one: 10 * STEP };
        });
        let front = context.front();
        let used = || front.budgets.root_memory.used() / STEP;
        let mut memory = Memory::default();
        memory.cover(front, INPUT, OUTPUT);
        assert_eq!((used(), memory.lacks_input, memory.lacks_output), (0, false, false));
        memory.cover(front, INPUT + 4 * STEP, OUTPUT + 1);
        assert_eq!(used(), 5);
        // Half a request stays, however long nothing happens.
        memory.release(INPUT + 4 * STEP, 0);
        assert_eq!(used(), 4);
        memory.cover(front, INPUT + 11 * STEP, 0);
        assert_eq!((used(), memory.lacks_input, memory.lacks_output), (4, true, false));
        memory.cover(front, INPUT, OUTPUT + 11 * STEP);
        assert_eq!((memory.lacks_input, memory.lacks_output), (false, true));
        memory.cover(front, INPUT, OUTPUT);
        assert_eq!((used(), memory.lacks_input, memory.lacks_output), (4, false, false));
        memory.release(INPUT, OUTPUT);
        assert_eq!(used(), 0);
    }

    #[test]
    fn a_busy_connection_gives_back_memory_that_it_does_not_need() {
        const STEP: usize = limits::ROOT_MEMORY_STEP_BYTES;
        const INPUT: usize = limits::ROOT_INPUT_BYTES_FREE;
        let context = context_of(|_| {});
        let front = context.front();
        let used = || front.budgets.root_memory.used() / STEP;
        let mut memory = Memory::default();
        // As if so much time had passed.
        let later = |memory: &mut Memory| memory.looked = memory.looked.map(|looked| looked - LOOK_AGAIN);
        memory.cover(front, INPUT + 16 * STEP, 0);
        assert_eq!((used(), memory.looks_again()), (16, None));
        // It was needed a moment ago, and may be at once again.
        memory.cover(front, INPUT + 2 * STEP, 0);
        assert!(used() == 16 && memory.looks_again().is_some());
        later(&mut memory);
        memory.cover(front, INPUT + STEP, 0);
        assert_eq!(used(), 16);
        later(&mut memory);
        memory.cover(front, INPUT + 2 * STEP, 0);
        assert_eq!((used(), memory.looks_again()), (2, None));
        // The most that was needed counts, and not what happens to be needed at the moment of the look.
        memory.cover(front, INPUT + 16 * STEP, 0);
        later(&mut memory);
        memory.cover(front, INPUT, 0);
        assert_eq!(used(), 16);
        memory.cover(front, INPUT + 12 * STEP, 0);
        later(&mut memory);
        memory.cover(front, INPUT, 0);
        assert_eq!(used(), 16);
        later(&mut memory);
        memory.cover(front, INPUT, 0);
        assert_eq!((used(), memory.looks_again()), (0, None));
    }
}
