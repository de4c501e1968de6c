//! The `--limit-rate` of a copy, shared by its lanes, and the copy's clock.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gridlane_core::{Pacer, Time};

/// Reads real time for the pure parts, and keeps lanes to a common rate.
pub(crate) struct Pace {
    origin: Instant,
    pacer: Option<Mutex<Pacer>>,
}

impl Pace {
    pub(crate) fn new(limit_bytes_per_s: Option<u64>) -> Pace {
        Pace { origin: Instant::now(), pacer: limit_bytes_per_s.map(|rate| Mutex::new(Pacer::new(rate))) }
    }

    /// Time since the copy began.
    pub(crate) fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    /// The instant at which [`Pace::now`] will be `time`.
    pub(crate) fn instant(&self, time: Time) -> tokio::time::Instant {
        (self.origin + time.since_origin()).into()
    }

    /// Waits until more bytes may be read.
    pub(crate) async fn ready(&self) {
        let Some(pacer) = &self.pacer else { return };
        loop {
            let wait = pacer.lock().unwrap_or_else(PoisonError::into_inner).wait(self.now());
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts bytes that were read.
    pub(crate) fn spend(&self, bytes: usize) {
        if let Some(pacer) = &self.pacer {
            let now = self.now();
            pacer.lock().unwrap_or_else(PoisonError::into_inner).reserve(now, bytes as u64);
        }
    }

    /// How many bytes to read at a time.
    pub(crate) fn step_bytes(&self, max: usize) -> usize {
        match &self.pacer {
            None => max,
            Some(pacer) => pacer.lock().unwrap_or_else(PoisonError::into_inner).step_bytes(max),
        }
    }
}
