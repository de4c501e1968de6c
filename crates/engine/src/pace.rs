//! The limit of a copy's rate, shared by its lanes, and the copy's clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Time, WakingClock};
use gridlane_share::RateLimit;

/// The most of the copy's time that counts between two looks at its clock. The clock is looked at ten times a second,
/// so only a process that was stopped, or that waits for a disk, lets more pass.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Reads real time for the pure parts, and keeps lanes to a common rate.
pub(crate) struct Pace {
    origin: Instant,
    clock: Mutex<WakingClock>,
    limit: Option<RateLimit>,
}

impl Pace {
    pub(crate) fn new(limit: Option<RateLimit>) -> Pace {
        Pace { origin: Instant::now(), clock: Mutex::new(WakingClock::new(STEP_MAX)), limit }
    }

    /// Time since the copy began in which this process ran: all time limits of the copy are measured with it.
    pub(crate) fn now(&self) -> Time {
        let wall = Time::from_origin(self.origin.elapsed());
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).now(wall)
    }

    /// Time since the copy began by the wall clock, for display.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The instant at which [`Pace::now`] will be `time`.
    pub(crate) fn instant(&self, time: Time) -> tokio::time::Instant {
        let wall = self.clock.lock().unwrap_or_else(PoisonError::into_inner).wall(time);
        (self.origin + wall.since_origin()).into()
    }

    /// Waits until more bytes may be read.
    pub(crate) async fn ready(&self) {
        if let Some(limit) = &self.limit {
            limit.due().await;
        }
    }

    /// Counts bytes that were read.
    pub(crate) fn spend(&self, bytes: usize) {
        if let Some(limit) = &self.limit {
            limit.owe(bytes as u64);
        }
    }

    /// Bytes to read at a time.
    pub(crate) fn step_bytes(&self, max: usize) -> usize {
        match &self.limit {
            None => max,
            Some(limit) => limit.step_bytes(max),
        }
    }
}
