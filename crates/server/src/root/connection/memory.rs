//! The memory that a connection takes for its client: requests that are half there or wait for their turn, and answers
//! that were not taken.
//!
//! A little of it every connection has. What is beyond that is taken from one [budget](crate::budget) of all connections,
//! of which one client has a part. When nothing is left, no more is read of the client's requests, and answers are not made
//! ahead of its socket; what there is goes on. A request that is not there in time ends the connection as always.

use gridlane_core::limits;

use crate::budget::{self, Lease};
use crate::shared::Shared;

/// What a connection has of the budget.
#[derive(Default)]
pub(super) struct Memory {
    lease: Option<Lease>,
    /// There was not enough for more of its requests.
    pub(super) lacks_input: bool,
    /// There was not enough for more answers.
    pub(super) lacks_output: bool,
}

impl Memory {
    /// Has the budget cover so many bytes of requests and of answers, as far as it can. What was taken once is kept until
    /// [`release`](Memory::release): a connection that is busy does not come here for each request.
    pub(super) fn cover(&mut self, shared: &Shared, input_bytes: usize, output_bytes: usize) {
        let input = input_bytes.saturating_sub(limits::ROOT_INPUT_BYTES_FREE);
        let output = output_bytes.saturating_sub(limits::ROOT_OUTPUT_BYTES_FREE);
        let needed = input + output;
        (self.lacks_input, self.lacks_output) = (false, false);
        let leased = self.lease.as_ref().map_or(0, Lease::amount);
        if needed <= leased {
            return;
        }
        let wanted = needed.next_multiple_of(limits::ROOT_MEMORY_STEP_BYTES);
        let outcome = match &mut self.lease {
            Some(lease) => lease.try_resize(wanted),
            None => {
                let taken = shared.budgets.root_memory.try_take(budget::current(), wanted);
                taken.map(|lease| self.lease = Some(lease))
            }
        };
        if outcome.is_err() {
            (self.lacks_input, self.lacks_output) = (input > leased, output > 0);
        }
    }

    /// Gives back what is not needed at the moment, of which nothing is.
    pub(super) fn release(&mut self) {
        *self = Memory::default();
    }
}
