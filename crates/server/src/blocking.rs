//! Where disk operations may block: on a thread that the runtime has taken out of its rotation, a
//! bounded number at a time.
//!
//! `block_in_place` costs far less than a hand-over to another thread and back (33 to 85 microseconds
//! measured), and it works on borrowed buffers. It is not free: it wakes a thread that
//! takes over this one's tasks. With it around every `open`, small GETs came at half the rate (75 instead of
//! 150 thousand a second), so they try [`open_nowait`](gridlane_store::Storage::open_nowait) first.
//!
//! The bound keeps a dead disk from eating a thread per client: the others wait as tasks. A quarter of it is for one client
//! at most, and clients that wait have their turns one after the other.

use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::budget::{self, Budget};
use crate::metrics::Gauge;

/// Permission to block.
pub(crate) struct Disk {
    running: Arc<Budget>,
    waiting: Gauge,
}

impl Disk {
    /// So many operations at the same time.
    pub(crate) fn of(running: Arc<Budget>) -> Disk {
        Disk { running, waiting: Gauge::default() }
    }

    /// Runs something that may wait for a disk.
    pub(crate) async fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        let holder = budget::current();
        let _turn = match self.running.try_take(holder, 1) {
            Ok(turn) => turn,
            Err(_) => {
                let _waiting = self.waiting.one();
                // Kept elsewhere: every operation's future would have room for this.
                Box::pin(self.running.take(holder, 1)).await
            }
        };
        in_place(operation)
    }

    /// How many operations run.
    pub(crate) fn running(&self) -> usize {
        self.running.used()
    }

    /// How many wait for their turn.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.get()
    }
}

/// Runs something that may block, without a bound of its own: for what is bounded otherwise.
pub(crate) fn in_place<T>(operation: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        // With a single thread there is nobody to take over its tasks.
        RuntimeFlavor::CurrentThread => operation(),
        _ => tokio::task::block_in_place(operation),
    }
}
