//! Limits of rates against the real clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Pacer, Time};

/// A limit of the rate at which bytes move. What has a clone of one shares it: the connections of a server or of one client,
/// the copies of a tree.
#[derive(Clone, Debug)]
pub struct RateLimit {
    bytes_per_s: u64,
    origin: Instant,
    pacer: Arc<Mutex<Pacer>>,
}

impl RateLimit {
    /// So many bytes per second at most.
    pub fn new(bytes_per_s: u64) -> RateLimit {
        let pacer = Arc::new(Mutex::new(Pacer::new(bytes_per_s)));
        RateLimit { bytes_per_s, origin: Instant::now(), pacer }
    }

    /// The limit.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// The number of the next bytes that may be moved, at least 1 and at most `wanted`, and the wait before them.
    pub fn take(&self, wanted: usize) -> (usize, Duration) {
        self.with(|pacer, now| {
            let count = pacer.step_bytes(wanted);
            (count, pacer.reserve(now, count as u64))
        })
    }

    /// Waits until the next bytes may be moved; returns how many, at least 1 and at most `wanted`.
    pub async fn ready(&self, wanted: usize) -> usize {
        let (count, wait) = self.take(wanted);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        count
    }

    /// Accounts for bytes that were moved already; returns the wait until they are due.
    pub fn owe(&self, bytes: u64) -> Duration {
        self.with(|pacer, now| pacer.reserve(now, bytes))
    }

    /// Waits until what was accounted for is due.
    pub async fn due(&self) {
        loop {
            let wait: Duration = self.with(|pacer, now| pacer.wait(now));
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Bytes to move at a time.
    pub fn step_bytes(&self, max: usize) -> usize {
        self.with(|pacer, _| pacer.step_bytes(max))
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Pacer, Time) -> T) -> T {
        let now = Time::from_origin(self.origin.elapsed());
        ask(&mut self.pacer.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}
