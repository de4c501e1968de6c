//! Targets that take bytes in order, in front of an [`Output`]: a pipe, a device, standard output, an upload.
//!
//! Lanes bring pieces in any order. The lane that brings the next one writes it itself, with everything
//! behind it that waits; a piece that is early is kept. So with one source bytes go from the lane's
//! buffer to the target without a hand-over. What waits is bounded by the plan's window.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gridlane_core::limits::{REORDER_BYTES_MAX, REORDER_BYTES_MIN};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Hasher, Result};
use tokio::sync::{Mutex, MutexGuard, Notify, Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::notice::{Notice, PATIENCE, blocked};
use crate::output::{Manner, Output, Waits};
use gridlane_plan::LaneId;

/// The plan is told that the target has taken bytes when there are so many parts of the window, or so many bytes if that is more:
/// telling costs a wake-up.
const RELEASE_PARTS: u64 = 16;
/// See [`RELEASE_PARTS`]. A quarter of the smallest window.
const RELEASE_BYTES_MIN: u64 = REORDER_BYTES_MIN / 4;
/// Uploads of this process whose size no source tells, and of which more than a window is kept until one does: one at a time.
static SIZELESS: Semaphore = Semaphore::const_new(1);

/// See [`crate::forget_copies`].
pub(crate) fn forget() {
    if SIZELESS.available_permits() == 0 {
        SIZELESS.add_permits(1);
    }
}

/// The lanes' side.
pub(crate) struct Feed {
    drain: Mutex<Drain>,
    manner: Manner,
    /// The plan asks for nothing that is further ahead.
    window_bytes: AtomicU64,
    /// Lanes that wait until they may keep more than a window need not wait any more.
    goes_on: Notify,
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
    /// More than a window waits for the size.
    sizeless: Option<SemaphorePermit<'static>>,
    /// Everything before this was written or, at the end of an upload, is held back.
    next: u64,
    /// The value of `next` that the plan was last told.
    told: u64,
    size_bytes: Option<u64>,
    /// The last piece of an upload, kept until the whole object is known to be right.
    held: Option<Box<[u8]>>,
}

impl Feed {
    /// Written bytes are hashed by each of `hashers`.
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
            sizeless: None,
            next: 0,
            told: 0,
            size_bytes: None,
            held: None,
        };
        let window_bytes = AtomicU64::new(REORDER_BYTES_MAX);
        let (drain, goes_on) = (Mutex::new(drain), Notify::new());
        Feed { drain, manner, window_bytes, goes_on, notices }
    }

    /// Notes the window of the plan. Returns how far the target is, when that is news under it.
    pub(crate) fn set_window(&self, window_bytes: u64) -> Option<u64> {
        self.window_bytes.store(window_bytes, Relaxed);
        // Where it is held, the lane that holds it tells, or it is asked for again at the next tick.
        self.drain.try_lock().ok()?.released(self.release_bytes())
    }

    fn release_bytes(&self) -> u64 {
        (self.window_bytes.load(Relaxed) / RELEASE_PARTS).max(RELEASE_BYTES_MIN)
    }

    /// Takes a piece. Returns when it is written, or kept because bytes in front of it are missing.
    pub(crate) async fn push(&self, lane: LaneId, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut drain = match self.drain.try_lock() {
            Ok(drain) => drain,
            Err(_) => self.turn(lane).await,
        };
        let kept_bytes = drain.waits_for_size(bytes.len() as u64);
        if kept_bytes > self.window_bytes.load(Relaxed) && drain.sizeless.is_none() {
            let goes_on = self.goes_on.notified();
            tokio::pin!(goes_on);
            goes_on.as_mut().enable();
            // Without a turn at the target: another lane may bring the size meanwhile.
            drop(drain);
            let may_keep = async {
                tokio::select! {
                    permit = SIZELESS.acquire() => permit.ok(),
                    () = goes_on => None,
                }
            };
            let permit = blocked(&self.notices, lane, may_keep).await;
            drain = self.turn(lane).await;
            if permit.is_some() && drain.waits_for_size(0) > 0 {
                drain.sizeless = permit;
                self.goes_on.notify_waiters();
            }
        }
        if drain.next != offset {
            return drain.keep(offset, bytes);
        }
        // The target may be slower than the sources: silence of this lane is no fault of its source then.
        let outcome = match self.manner.waits {
            Waits::Never => drain.write(bytes).await,
            Waits::Blocks => blocked(&self.notices, lane, drain.write(bytes)).await,
            Waits::Sometimes => {
                let write = drain.write(bytes);
                tokio::pin!(write);
                // Telling costs a wake-up, and mostly there is room: as with one's turn, patience first.
                match timeout(PATIENCE, &mut write).await {
                    Ok(outcome) => outcome,
                    Err(_) => blocked(&self.notices, lane, write).await,
                }
            }
        };
        let released = drain.released(self.release_bytes());
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
        blocked(&self.notices, lane, self.drain.lock()).await
    }

    /// Tells the size of the object: an upload needs it before its first byte.
    pub(crate) async fn size(&self, size_bytes: u64) -> Result<()> {
        let mut drain = self.drain.lock().await;
        drain.size_bytes = Some(size_bytes);
        self.goes_on.notify_waiters();
        drain.advance().await?;
        if let Some(up_to_bytes) = drain.released(self.release_bytes()) {
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

    /// True if the target has to be [abandoned](Feed::abandon) when it is not finished.
    pub(crate) fn leaves_traces(&self) -> bool {
        self.manner.leaves_traces
    }

    /// Removes what an unfinished upload has left. Lanes must have ended.
    pub(crate) async fn abandon(&self) {
        self.drain.lock().await.output.abandon().await;
    }

    /// The copy may be over, with its receiver: the notice is then of no use.
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

    /// The target's progress, when it is news to the plan. Not every piece is: telling costs a wake-up,
    /// and the window is much larger.
    fn released(&mut self, release_bytes: u64) -> Option<u64> {
        let is_end = Some(self.next) == self.size_bytes && self.next > self.told;
        let is_news = self.next - self.told >= release_bytes || is_end;
        is_news.then(|| {
            self.told = self.next;
            self.next
        })
    }

    /// Bytes that wait for the size of an upload, with so many more; 0 when it is known.
    fn waits_for_size(&self, more_bytes: u64) -> u64 {
        match self.manner.is_sized && self.size_bytes.is_none() {
            true => self.waiting_bytes + more_bytes,
            false => 0,
        }
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
        self.sizeless = None;
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
    use gridlane_core::Url;
    use gridlane_net::Dialer;
    use gridlane_net::tls::Trust;
    use gridlane_peer::Client;
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::output::Pipe;
    use crate::upload::Upload;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_full_target_in_order_is_not_said_to_go_on() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let feed = Feed::new(Box::new(Pipe::new(full)), Vec::new(), mpsc::unbounded_channel().0);
        let error = feed.push(LaneId(0), 0, b"bytes").await.unwrap_err();
        assert!(error.is_no_space() && !error.to_string().contains("it continues"), "{error}");
    }

    fn upload_of_unknown_size() -> Feed {
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(1));
        let url = Url::parse_absolute("http://127.0.0.1:9/f").unwrap();
        let (kind, patience) = (ChecksumKind::Adler32, Duration::from_secs(1));
        let upload = Upload::new(&client, url, true, None, kind, patience, patience);
        let feed = Feed::new(Box::new(upload), Vec::new(), mpsc::unbounded_channel().0);
        assert_eq!(feed.set_window(REORDER_BYTES_MIN), None);
        feed
    }

    #[tokio::test]
    async fn uploads_whose_size_is_not_known_are_kept_one_at_a_time() {
        let [first, second] = [(); 2].map(|()| upload_of_unknown_size());
        let bytes = vec![0; REORDER_BYTES_MIN as usize];
        let at = |number: u64| number * REORDER_BYTES_MIN;
        for feed in [&first, &second] {
            feed.push(LaneId(0), 0, &bytes).await.unwrap();
        }
        for number in 1..4 {
            first.push(LaneId(number), at(number), &bytes).await.unwrap();
        }
        let both = async {
            tokio::join!(second.push(LaneId(0), at(1), &bytes), second.push(LaneId(1), at(2), &bytes))
        };
        tokio::pin!(both);
        tokio::select! {
            biased;
            _ = &mut both => panic!("the first one has the memory"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        // Both lanes go on, though one of them alone was let.
        let (one, other) = both.await;
        assert!(one.is_ok() && other.is_ok());
    }
}
