//! Where bytes go: a partial file in any order, or something that takes them in order.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, ChecksumKind, Result};
use gridlane_plan::LaneId;
use gridlane_plan::judge::{Ledger, Piece, PieceHashes, Sender};
use gridlane_store::{PathTarget, Target as _};
use tokio::sync::mpsc;

use crate::notice::Notice;
use crate::ordered::Feed;
use crate::pieces::{Found, PieceBytes, Pieces};

/// A write to the page cache takes less than this; one that waits for a device, more.
const PAGE_CACHE_MAX: Duration = Duration::from_millis(1);

/// A piece of this size may take longer to read back than a lane may be silent.
const LONG_PIECE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// The target and the ledger of what it has; shared by all lanes.
pub(crate) struct Target {
    pub(crate) sink: Sink,
    ledger: Mutex<Ledger>,
    /// Compares pieces as they come, when their checksums are known.
    pieces: Option<Pieces>,
    notices: mpsc::UnboundedSender<Notice>,
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
    Partial(PathTarget),
    /// In order.
    Ordered(Feed),
}

impl Target {
    pub(crate) fn new(
        sink: Sink,
        hashes: Option<PieceHashes>,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Target {
        let boundary_bytes = hashes.as_ref().map_or(0, PieceHashes::piece_bytes);
        Target {
            sink,
            ledger: Mutex::new(Ledger::with_boundaries(boundary_bytes)),
            pieces: hashes.map(Pieces::new),
            notices,
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
    pub(crate) fn partial(&self) -> Option<&PathTarget> {
        match &self.sink {
            Sink::Partial(partial) => Some(partial),
            Sink::Ordered(_) => None,
        }
    }

    /// Seconds that lanes spent on writing, summed over lanes.
    pub(crate) fn busy_s(&self) -> f64 {
        self.busy_ns.load(Relaxed) as f64 / 1e9
    }

    /// Has what is written in order hashed by these kinds as well, unless something was written already. A file is read
    /// back instead.
    pub(crate) async fn hash_too(&self, kinds: impl Iterator<Item = ChecksumKind>) {
        if let Sink::Ordered(feed) = &self.sink {
            feed.hash_too(kinds).await;
        }
    }

    /// The pieces, when their checksums are known.
    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        self.pieces.as_ref()
    }

    /// Whether every piece that can be compared with a checksum of its own was compared, and is right.
    #[cfg(test)]
    pub(crate) fn is_checked(&self) -> bool {
        match &self.pieces {
            Some(_) => self.ledger().unverified(self.size_bytes().unwrap_or(0)).is_empty(),
            None => true,
        }
    }

    /// Takes bytes that belong at `offset` and came from `sender`. Those that are there already are thrown
    /// away. Returns how many were new.
    pub(crate) async fn write(&self, lane: LaneId, sender: Sender, bytes: &[u8], offset: u64) -> Result<u64> {
        let parts = self.ledger().claim(ByteRange::at(offset, bytes.len() as u64), sender);
        let mut fresh = 0;
        for part in parts {
            let from = (part.start() - offset) as usize;
            let bytes = &bytes[from..from + part.len() as usize];
            match &self.pieces {
                Some(pieces) => self.write_and_check(pieces, lane, sender, bytes, part).await?,
                None => {
                    // Hashed while it is in the cache, before the write takes it from there.
                    let piece = Piece { range: part, adler32: adler32(bytes), sender };
                    self.put(lane, part.start(), bytes).await?;
                    self.ledger().commit(piece);
                }
            }
            fresh += part.len();
        }
        Ok(fresh)
    }

    async fn put(&self, lane: LaneId, offset: u64, bytes: &[u8]) -> Result<()> {
        let begun = Instant::now();
        match &self.sink {
            Sink::Partial(partial) => {
                let write = || partial.write_at(bytes, offset);
                // Mostly a copy to the page cache, dearer to hand over than to do. Once the kernel makes
                // us wait for the device, on a thread that may.
                match self.is_slow.load(Relaxed) {
                    false => write()?,
                    true => tokio::task::block_in_place(write)?,
                }
                self.is_slow.store(begun.elapsed() > PAGE_CACHE_MAX, Relaxed);
            }
            // On the heap: all that an upload may have to do is in it.
            Sink::Ordered(feed) => Box::pin(feed.push(lane, offset, bytes)).await?,
        }
        self.busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        Ok(())
    }

    async fn write_and_check(
        &self,
        pieces: &Pieces,
        lane: LaneId,
        sender: Sender,
        bytes: &[u8],
        range: ByteRange,
    ) -> Result<()> {
        if let Sink::Partial(_) = &self.sink {
            self.put(lane, range.start(), bytes).await?;
        }
        for part in pieces.hashes.cut(range) {
            let from = (part.start() - range.start()) as usize;
            let bytes = &bytes[from..from + part.len() as usize];
            match &self.sink {
                Sink::Partial(_) => {
                    let epoch = self.ledger().epoch(part.start());
                    pieces.hash(part, bytes, epoch);
                }
                Sink::Ordered(_) => pieces.keep(part, bytes),
            }
            let index = pieces.hashes.index_of(part.start());
            let is_there = {
                let mut ledger = self.ledger();
                ledger.commit(Piece { range: part, adler32: adler32(bytes), sender });
                ledger.is_committed(pieces.hashes.range(index))
            };
            if is_there {
                self.check(pieces, lane, index).await?;
            }
        }
        Ok(())
    }

    /// Compares a piece all of whose bytes are there with its checksum. What is wrong is missing afterwards.
    async fn check(&self, pieces: &Pieces, lane: LaneId, index: u64) -> Result<()> {
        match &self.sink {
            Sink::Partial(partial) => {
                // Reading much back takes its time, in which silence of this lane is nobody's fault.
                let is_long = pieces.hashes.piece_bytes() >= LONG_PIECE_BYTES_MIN;
                if is_long {
                    self.tell(Notice::Blocked { lane, blocked: true });
                }
                let outcome = tokio::task::block_in_place(|| self.check_in_file(pieces, partial, index));
                if is_long {
                    self.tell(Notice::Blocked { lane, blocked: false });
                }
                outcome
            }
            Sink::Ordered(_) => {
                let offset = pieces.hashes.range(index).start();
                let epoch = self.ledger().epoch(offset);
                let Some(bytes) = pieces.take_kept(index) else { return Ok(()) };
                let found = tokio::task::block_in_place(|| pieces.hash_of(&bytes));
                let is_right = pieces.hashes.is_right(index, &found);
                if is_right {
                    // First given away, then verified: with the last verified piece the copy is judged.
                    self.put(lane, offset, &bytes).await?;
                }
                let there = PieceBytes::InMemory { bytes: &bytes, offset };
                let settle = || self.settle(pieces, index, epoch, is_right, &there);
                // What is wrong is hashed once more.
                match is_right {
                    true => settle(),
                    false => tokio::task::block_in_place(settle),
                }
                Ok(())
            }
        }
    }

    fn check_in_file(&self, pieces: &Pieces, partial: &PathTarget, index: u64) -> Result<()> {
        let epoch = self.ledger().epoch(pieces.hashes.range(index).start());
        let found = pieces.hash_in_file(index, partial.file(), epoch)?;
        let is_right = pieces.hashes.is_right(index, &found);
        self.settle(pieces, index, epoch, is_right, &PieceBytes::InFile(partial.file()));
        Ok(())
    }

    /// Notes and tells what comparing a piece brought.
    fn settle(&self, pieces: &Pieces, index: u64, epoch: u64, is_right: bool, there: &PieceBytes<'_>) {
        let range = pieces.hashes.range(index);
        if is_right {
            let is_same = self.ledger().verify(range, epoch);
            if is_same && let Some(liars) = pieces.liars(index, there) {
                self.tell(Notice::Piece { index, found: Found::Mended { liars } });
            }
            return;
        }
        let rejected = self.ledger().reject(range, epoch);
        if let Some(parts) = rejected.filter(|parts| !parts.is_empty()) {
            pieces.note_wrong(index, &parts, there);
            self.tell(Notice::Piece { index, found: Found::Wrong { parts } });
        }
    }

    /// Compares what is there and was not compared, because it came while other bytes were being forgotten.
    pub(crate) fn check_rest(&self) -> Result<()> {
        let (Some(pieces), Some(partial)) = (&self.pieces, self.partial()) else { return Ok(()) };
        let rest = self.ledger().unverified(self.size_bytes().unwrap_or(0));
        for index in rest.into_iter().flat_map(|range| pieces.hashes.touched(range)) {
            if self.ledger().is_committed(pieces.hashes.range(index)) {
                self.check_in_file(pieces, partial, index)?;
            }
        }
        Ok(())
    }

    /// The copy may be over: then nobody listens, and that is fine.
    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use gridlane_core::Hasher;

    use super::*;
    use crate::ordered::Output;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_piece_is_verified_when_a_stream_has_taken_it() {
        // More than a pipe holds.
        let bytes = vec![7; 4 * 1024 * 1024];
        let mut hasher = Hasher::new(ChecksumKind::Sha1);
        hasher.update(&bytes);
        let hashes = PieceHashes::new(bytes.len() as u64, bytes.len() as u64, vec![hasher.finish()]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (notices, _heard) = mpsc::unbounded_channel();
        let output = Output::File(std::fs::File::from(std::os::fd::OwnedFd::from(writer)));
        let feed = Feed::new(output, Vec::new(), notices.clone());
        let target = Arc::new(Target::new(Sink::Ordered(feed), hashes, notices));
        target.agree(Some(bytes.len() as u64));
        let (writing, count) = (target.clone(), bytes.len());
        let written = tokio::spawn(async move { writing.write(LaneId(0), 0, &bytes, 0).await });
        let mut first = [0];
        tokio::task::block_in_place(|| reader.read_exact(&mut first)).unwrap();
        assert!(target.ledger().is_settled() && !target.is_checked(), "most of it has nowhere to go yet");
        let mut rest = vec![0; count - 1];
        tokio::task::block_in_place(|| reader.read_exact(&mut rest)).unwrap();
        assert_eq!(written.await.unwrap().unwrap(), count as u64);
        assert!(target.is_checked());
    }
}
