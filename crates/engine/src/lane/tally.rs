//! Counting of the bytes that a lane has written and not reported yet.
//!
//! Telling wakes the run's task, often on another core. A peer that sends a record at a time would make
//! that happen sixty thousand times per gigabyte; so bytes are told of together, at the latest after two
//! milliseconds, and always before anything else is told.

use std::time::Duration;

use super::Lane;
use crate::notice::Notice;

/// So many bytes are reported at once.
const BYTES_MAX: u64 = 1024 * 1024;
/// The latest that the run learns of bytes, from when they were written.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct Tally {
    bytes: u64,
    fresh_bytes: u64,
}

impl Tally {
    /// Counts bytes; tells when there are enough.
    pub(super) fn add(&mut self, lane: &Lane, bytes: u64, fresh_bytes: u64) {
        self.bytes += bytes;
        self.fresh_bytes += fresh_bytes;
        if self.bytes >= BYTES_MAX {
            self.tell(lane);
        }
    }

    /// True if all bytes have been told of.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Tells what there is.
    pub(super) fn tell(&mut self, lane: &Lane) {
        if !self.is_empty() {
            let Tally { bytes, fresh_bytes } = std::mem::take(self);
            lane.tell(Notice::Received { lane: lane.id, bytes, fresh_bytes });
        }
    }
}
