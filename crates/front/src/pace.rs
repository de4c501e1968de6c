//! Rate limits against the real clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Pacer, Time};

/// A rate limit against the real clock: of the whole server, or of one client.
pub(crate) struct Pace {
    pacer: Mutex<Pacer>,
    origin: Instant,
}

impl Pace {
    pub(crate) fn new(rate_bytes_per_s: u64) -> Pace {
        Pace { pacer: Mutex::new(Pacer::new(rate_bytes_per_s)), origin: Instant::now() }
    }

    /// The number of the next bytes that may be sent, at least 1 and at most `wanted`, and the wait before them.
    pub(crate) fn take(&self, wanted: usize) -> (usize, Duration) {
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        let count = pacer.step_bytes(wanted);
        (count, pacer.reserve(Time::from_origin(self.origin.elapsed()), count as u64))
    }

    /// Accounts for bytes that were moved already; returns the wait until they are due.
    pub(crate) fn owe(&self, bytes: u64) -> Duration {
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        pacer.reserve(Time::from_origin(self.origin.elapsed()), bytes)
    }

    /// Waits until the next bytes may be sent; returns how many, at least 1 and at most `wanted`.
    pub(crate) async fn ready(&self, wanted: usize) -> usize {
        let (count, wait) = self.take(wanted);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        count
    }
}
