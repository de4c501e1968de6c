//! The `--limit-rate` of a copy, shared by its lanes, and the copy's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Pacer, Time};

/// A limit of the rate at which bytes are received. Copies that have clones of one share it.
#[derive(Clone, Debug)]
pub struct RateLimit {
    bytes_per_s: u64,
    origin: Instant,
    pacer: Arc<Mutex<Pacer>>,
}

impl RateLimit {
    /// So many bytes per second at most.
    pub fn new(bytes_per_s: u64) -> RateLimit {
        RateLimit {
            bytes_per_s,
            origin: Instant::now(),
            pacer: Arc::new(Mutex::new(Pacer::new(bytes_per_s))),
        }
    }

    /// The limit.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Pacer, Time) -> T) -> T {
        let now = Time::from_origin(self.origin.elapsed());
        ask(&mut self.pacer.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Reads real time for the pure parts, and keeps lanes to a common rate.
pub(crate) struct Pace {
    origin: Instant,
    limit: Option<RateLimit>,
}

impl Pace {
    pub(crate) fn new(limit: Option<RateLimit>) -> Pace {
        Pace { origin: Instant::now(), limit }
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
        let Some(limit) = &self.limit else { return };
        loop {
            let wait: Duration = limit.with(|pacer, now| pacer.wait(now));
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts bytes that were read.
    pub(crate) fn spend(&self, bytes: usize) {
        if let Some(limit) = &self.limit {
            limit.with(|pacer, now| pacer.reserve(now, bytes as u64));
        }
    }

    /// How many bytes to read at a time.
    pub(crate) fn step_bytes(&self, max: usize) -> usize {
        match &self.limit {
            None => max,
            Some(limit) => limit.with(|pacer, _| pacer.step_bytes(max)),
        }
    }
}
