//! Where bytes go: a partial file in any order, or something that takes them in order.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, Result};
use gridlane_plan::LaneId;
use gridlane_store::partial::PartialFile;
use gridlane_sys::file::start_writeback;

use crate::ledger::{Ledger, Piece, Sender};
use crate::ordered::Feed;

/// A write to the page cache takes less than this; one that waits for a device, more.
const PAGE_CACHE_MAX: Duration = Duration::from_millis(1);

/// The target and the ledger of what it has; shared by all lanes.
pub(crate) struct Target {
    pub(crate) sink: Sink,
    ledger: Mutex<Ledger>,
    /// The agreed size; the largest number while there is none.
    size_bytes: AtomicU64,
    /// Time that lanes spent writing, in nanoseconds.
    busy_ns: AtomicU64,
    /// Whether the last write took so long that the device must have been waited for.
    is_slow: AtomicBool,
}

/// The two kinds of targets.
pub(crate) enum Sink {
    /// Positioned writes.
    Partial(PartialFile),
    /// In order.
    Ordered(Feed),
}

impl Target {
    pub(crate) fn new(sink: Sink) -> Target {
        Target {
            sink,
            ledger: Mutex::default(),
            size_bytes: AtomicU64::new(u64::MAX),
            busy_ns: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // The ledger is changed in single steps: a panic elsewhere leaves it whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agreed size of the object, if there is one: nothing is written beyond it.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes.load(Relaxed)).filter(|size_bytes| *size_bytes != u64::MAX)
    }

    /// Sets the agreed size.
    pub(crate) fn agree(&self, size_bytes: Option<u64>) {
        self.size_bytes.store(size_bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// The file, of a target that is one.
    pub(crate) fn partial(&self) -> Option<&PartialFile> {
        match &self.sink {
            Sink::Partial(partial) => Some(partial),
            Sink::Ordered(_) => None,
        }
    }

    /// Seconds that lanes spent on writing, summed over lanes.
    pub(crate) fn busy_s(&self) -> f64 {
        self.busy_ns.load(Relaxed) as f64 / 1e9
    }

    /// Takes bytes that belong at `offset` and came from `sender`. Those that are there already are thrown
    /// away. Returns how many were new.
    pub(crate) async fn write(&self, lane: LaneId, sender: Sender, bytes: &[u8], offset: u64) -> Result<u64> {
        let parts = self.ledger().claim(ByteRange::at(offset, bytes.len() as u64), sender);
        let mut fresh = 0;
        for part in parts {
            let from = (part.start() - offset) as usize;
            let bytes = &bytes[from..from + part.len() as usize];
            // Hashed while it is in the cache, before the write takes it from there.
            let piece = Piece { range: part, adler32: adler32(bytes), sender };
            let begun = Instant::now();
            match &self.sink {
                Sink::Partial(partial) => {
                    let write = || partial.write_at(bytes, part.start());
                    // Mostly a copy to the page cache, dearer to hand over than to do. Once the kernel makes
                    // us wait for the device, on a thread that may.
                    match self.is_slow.load(Relaxed) {
                        false => write()?,
                        true => tokio::task::block_in_place(write)?,
                    }
                    start_writeback(partial.file(), part.start(), part.len());
                    self.is_slow.store(begun.elapsed() > PAGE_CACHE_MAX, Relaxed);
                }
                Sink::Ordered(feed) => feed.push(lane, part.start(), bytes).await?,
            }
            self.busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
            self.ledger().commit(piece);
            fresh += part.len();
        }
        Ok(fresh)
    }
}
