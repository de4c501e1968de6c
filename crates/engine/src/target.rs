//! Where bytes go: a partial file in any order, or something that takes them in order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, Result};
use gridlane_plan::LaneId;
use gridlane_store::partial::PartialFile;
use gridlane_sys::AlignedBuf;
use gridlane_sys::file::start_writeback;
use tokio::sync::mpsc;

use crate::ledger::{Ledger, Piece, Sender};
use crate::notice::Notice;
use crate::ordered::{Feed, Pool};

/// The target and the ledger of what it has; shared by all lanes.
pub(crate) struct Target {
    pub(crate) sink: Sink,
    ledger: Mutex<Ledger>,
    /// Time that lanes spent writing, in nanoseconds.
    busy_ns: std::sync::atomic::AtomicU64,
    notices: mpsc::UnboundedSender<Notice>,
}

/// The two kinds of targets.
pub(crate) enum Sink {
    /// Positioned writes.
    Partial(PartialFile),
    /// In order, through a queue.
    Ordered(Feed),
}

impl Target {
    pub(crate) fn new(sink: Sink, notices: mpsc::UnboundedSender<Notice>) -> Target {
        Target { sink, ledger: Mutex::default(), busy_ns: Default::default(), notices }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // The ledger is changed in single steps: a panic elsewhere leaves it whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.busy_ns.load(std::sync::atomic::Ordering::Relaxed) as f64 / 1e9
    }

    /// A buffer for a lane to read into.
    pub(crate) fn buffer(&self) -> AlignedBuf {
        match &self.sink {
            Sink::Partial(_) => Pool::fresh(),
            Sink::Ordered(feed) => feed.pool.take(),
        }
    }

    /// Takes the first `len` bytes of `buf`, which belong at `offset` and came from `sender`. Bytes that
    /// are there already are thrown away. Returns how many were new.
    ///
    /// `buf` may be exchanged for another one.
    pub(crate) async fn write(
        &self,
        lane: LaneId,
        sender: Sender,
        buf: &mut AlignedBuf,
        len: usize,
        offset: u64,
    ) -> Result<u64> {
        let range = ByteRange::at(offset, len as u64);
        let parts = self.ledger().claim(range);
        let mut fresh = 0;
        for part in &parts {
            let from = (part.start() - offset) as usize;
            let bytes = &buf[from..from + part.len() as usize];
            // Hashed while it is in the cache, before the write takes it from there.
            let piece = Piece { range: *part, adler32: adler32(bytes), sender };
            let begun = Instant::now();
            match &self.sink {
                Sink::Partial(partial) => {
                    tokio::task::block_in_place(|| partial.write_at(bytes, part.start()))?;
                    start_writeback(partial.file(), part.start(), part.len());
                }
                Sink::Ordered(feed) => {
                    let whole = parts.len() == 1 && *part == range;
                    let data = if whole { feed.pool.detach(buf, len) } else { bytes.into() };
                    self.feed(feed, lane, part.start(), data).await?;
                }
            }
            let busy_ns = begun.elapsed().as_nanos() as u64;
            self.busy_ns.fetch_add(busy_ns, std::sync::atomic::Ordering::Relaxed);
            self.ledger().commit(piece);
            fresh += part.len();
        }
        Ok(fresh)
    }

    async fn feed(&self, feed: &Feed, lane: LaneId, offset: u64, data: crate::ordered::Data) -> Result<()> {
        let data = match feed.try_push(offset, data) {
            Ok(()) => return Ok(()),
            Err(data) => data,
        };
        // The target is slower than the sources: silence of this lane is nobody's fault now.
        let _ = self.notices.send(Notice::Blocked { lane, blocked: true });
        let outcome = feed.push(offset, data).await;
        let _ = self.notices.send(Notice::Blocked { lane, blocked: false });
        outcome
    }
}
