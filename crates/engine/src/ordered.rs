//! Targets that take bytes in order, in front of an [`Output`]: a pipe, a device, standard output, an upload.
//!
//! Lanes bring pieces in any order. The lane that brings the next one writes it itself, with everything
//! behind it that waits; a piece that is early is kept. So with one source bytes go from the lane's
//! buffer to the target without a hand-over. What waits is bounded by the plan's window.

use std::collections::BTreeMap;
use std::time::Duration;

use gridlane_core::limits::REORDER_BYTES_MAX;
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Hasher, Result};
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio::time::timeout;

use crate::notice::Notice;
use crate::output::{Manner, Output, Waits};
use gridlane_plan::LaneId;

/// Waiting longer than this, for one's turn to write or for a server to take bytes, is told to the plan.
const PATIENCE: Duration = Duration::from_millis(20);
/// The plan is told that the target has taken bytes when there are so many.
const RELEASE_BYTES: u64 = REORDER_BYTES_MAX / 16;

/// The lanes' side.
pub(crate) struct Feed {
    drain: Mutex<Drain>,
    manner: Manner,
    notices: mpsc::UnboundedSender<Notice>,
}

struct Drain {
    output: Box<dyn Output>,
    manner: Manner,
    /// The output was told the size.
    is_begun: bool,
    hashers: Vec<Hasher>,
    /// Early pieces by offset.
    waiting: BTreeMap<u64, Box<[u8]>>,
    waiting_bytes: u64,
    /// Everything before this was written or, at the end of an upload, is held back.
    next: u64,
    /// What the plan was last told of `next`.
    told: u64,
    size_bytes: Option<u64>,
    /// The last piece of an upload, kept until the whole object is known to be right.
    held: Option<Box<[u8]>>,
}

impl Feed {
    /// What is written is hashed by each of `hashers`.
    pub(crate) fn new(
        output: Box<dyn Output>,
        hashers: Vec<Hasher>,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Feed {
        let manner = output.manner();
        let drain = Drain {
            output,
            manner,
            is_begun: false,
            hashers,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            next: 0,
            told: 0,
            size_bytes: None,
            held: None,
        };
        Feed { drain: Mutex::new(drain), manner, notices }
    }

    /// Takes a piece. Returns when it is written, or kept because bytes in front of it are missing.
    pub(crate) async fn push(&self, lane: LaneId, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut drain = match self.drain.try_lock() {
            Ok(drain) => drain,
            Err(_) => self.turn(lane).await,
        };
        if drain.next != offset {
            return drain.keep(offset, bytes);
        }
        // The target may be slower than the sources: silence of this lane is no fault of its source then.
        let outcome = match self.manner.waits {
            Waits::Never => drain.write(bytes).await,
            Waits::Blocks => self.blocked(lane, drain.write(bytes)).await,
            Waits::Sometimes => {
                let write = drain.write(bytes);
                tokio::pin!(write);
                // Telling costs a wake-up, and mostly there is room: as with one's turn, patience first.
                match timeout(PATIENCE, &mut write).await {
                    Ok(outcome) => outcome,
                    Err(_) => self.blocked(lane, write).await,
                }
            }
        };
        let released = drain.released();
        drop(drain);
        if let Some(up_to_bytes) = released {
            self.tell(Notice::Released { up_to_bytes });
        }
        outcome
    }

    async fn turn(&self, lane: LaneId) -> MutexGuard<'_, Drain> {
        if let Ok(drain) = timeout(PATIENCE, self.drain.lock()).await {
            return drain;
        }
        self.blocked(lane, self.drain.lock()).await
    }

    /// Does something during which the plan knows that the lane cannot go on.
    async fn blocked<T>(&self, lane: LaneId, doing: impl Future<Output = T>) -> T {
        self.tell(Notice::Blocked { lane, blocked: true });
        let outcome = doing.await;
        self.tell(Notice::Blocked { lane, blocked: false });
        outcome
    }

    /// Tells the size of the object: an upload needs it before its first byte.
    pub(crate) async fn size(&self, size_bytes: u64) -> Result<()> {
        let mut drain = self.drain.lock().await;
        drain.size_bytes = Some(size_bytes);
        drain.advance().await?;
        if let Some(up_to_bytes) = drain.released() {
            self.tell(Notice::Released { up_to_bytes });
        }
        Ok(())
    }

    /// Hashes what is pushed by these kinds as well, if nothing has been pushed yet.
    pub(crate) async fn hash_too(&self, kinds: impl Iterator<Item = ChecksumKind>) {
        // Where it is held for longer, something is being written.
        if let Ok(mut drain) = timeout(PATIENCE, self.drain.lock()).await
            && drain.next == 0
        {
            for kind in kinds.filter(|kind| *kind != ChecksumKind::Adler32) {
                if !drain.hashers.iter().any(|hasher| hasher.kind() == kind) {
                    drain.hashers.push(Hasher::new(kind));
                }
            }
        }
    }

    /// The checksums of everything that was pushed, one of each hasher.
    pub(crate) async fn hashes(&self) -> Vec<Checksum> {
        self.drain.lock().await.hashers.iter().cloned().map(Hasher::finish).collect()
    }

    /// Writes what was held back and ends, with these checksums of all bytes. An upload's server may say which checksum it has
    /// now.
    pub(crate) async fn finish(&self, checksums: &[Checksum]) -> Result<Option<Checksum>> {
        let mut drain = self.drain.lock().await;
        if Some(drain.next) != drain.size_bytes {
            return Err(Error::new(ErrorKind::Other, "the target was finished before its last byte"));
        }
        drain.finish(checksums).await
    }

    /// Whether the target has to be [abandoned](Feed::abandon) when it is not finished.
    pub(crate) fn leaves_traces(&self) -> bool {
        self.manner.leaves_traces
    }

    /// Sees to it that nothing of an upload stays. Lanes must have ended.
    pub(crate) async fn abandon(&self) {
        self.drain.lock().await.output.abandon().await;
    }

    /// The copy may be over: then nobody listens, and that is fine.
    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }
}

impl Drain {
    /// Writes the next bytes, and what waits behind them.
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.manner.is_sized && self.size_bytes.is_none() {
            return self.keep(self.next, bytes);
        }
        self.take(bytes).await?;
        self.advance().await
    }

    /// How far the target is, when that is news to the plan. Every piece is not: telling costs a wake-up,
    /// and the window is much larger.
    fn released(&mut self) -> Option<u64> {
        let is_news = self.next - self.told >= RELEASE_BYTES || Some(self.next) == self.size_bytes;
        is_news.then(|| {
            self.told = self.next;
            self.next
        })
    }

    /// Keeps a piece until it is next. The plan asks for nothing beyond its window; only a source that does
    /// not tell its size can bring more.
    fn keep(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.waiting_bytes += bytes.len() as u64;
        if self.waiting_bytes > 2 * REORDER_BYTES_MAX {
            let message = "the source does not tell its size, and the target must know it first";
            return Err(
                Error::new(ErrorKind::Unsupported, message).hint("copy it to a file, then from there")
            );
        }
        self.waiting.insert(offset, bytes.into());
        Ok(())
    }

    /// Writes what waits and is next.
    async fn advance(&mut self) -> Result<()> {
        self.begin().await?;
        while let Some(bytes) = self.waiting.remove(&self.next) {
            self.waiting_bytes -= bytes.len() as u64;
            self.take(&bytes).await?;
        }
        Ok(())
    }

    async fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.next += bytes.len() as u64;
        self.hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        if self.manner.is_sized && Some(self.next) == self.size_bytes {
            self.held = Some(bytes.into());
            return Ok(());
        }
        match self.output.write_nowait(bytes) {
            Some(written) => written,
            None => self.output.write(bytes).await,
        }
    }

    /// Tells the output the size, once that is known.
    async fn begin(&mut self) -> Result<()> {
        if let Some(size_bytes) = self.size_bytes.filter(|_| !self.is_begun) {
            self.output.begin(size_bytes).await?;
            self.is_begun = true;
        }
        Ok(())
    }

    async fn finish(&mut self, checksums: &[Checksum]) -> Result<Option<Checksum>> {
        self.begin().await?;
        if let Some(bytes) = self.held.take() {
            self.output.write(&bytes).await?;
        }
        self.output.finish(checksums).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::output::Pipe;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_full_target_in_order_is_not_said_to_go_on() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let feed = Feed::new(Box::new(Pipe::new(full)), Vec::new(), mpsc::unbounded_channel().0);
        let error = feed.push(LaneId(0), 0, b"bytes").await.unwrap_err();
        assert!(error.is_no_space() && !error.to_string().contains("it continues"), "{error}");
    }
}
