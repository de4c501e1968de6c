//! What all connections of a server share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gridlane_core::{Pacer, Time};
use tokio::sync::Semaphore;

use crate::access_log::AccessLog;
use crate::blocking::Disk;
use crate::buffers::Buffers;
use crate::digests::Digests;
use crate::export::Exports;
use crate::settings::Deadlines;

pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) host_names: Vec<String>,
    pub(crate) deadlines: Deadlines,
    pub(crate) access_log: AccessLog,
    pub(crate) disk: Disk,
    pub(crate) buffers: Buffers,
    pub(crate) digests: Digests,
    /// One for each listing in memory.
    pub(crate) listings: Arc<Semaphore>,
    pub(crate) pace: Option<Pace>,
    pub(crate) counters: Counters,
    /// Seconds since 1970 at the start: tells this process's requests from an earlier one's in a log.
    pub(crate) started_s: u64,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) -> u64 {
        counter.fetch_add(count, Ordering::Relaxed)
    }
}

/// The rate limit of the whole server, against the real clock.
pub(crate) struct Pace {
    pacer: Mutex<Pacer>,
    origin: Instant,
}

impl Pace {
    pub(crate) fn new(rate_bytes_per_s: u64) -> Pace {
        Pace { pacer: Mutex::new(Pacer::new(rate_bytes_per_s)), origin: Instant::now() }
    }

    /// Waits until the next bytes may be sent; returns how many, at least 1 and at most `wanted`.
    pub(crate) async fn ready(&self, wanted: usize) -> usize {
        let (count, wait) = {
            let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
            let count = pacer.step_bytes(wanted);
            (count, pacer.reserve(Time::from_origin(self.origin.elapsed()), count as u64))
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        count
    }
}
