//! The target of one copy, with the ledger: at any place of a file or a like object, or in order.
//!
//! Between claiming bytes of a file and committing them nothing is waited for, so that a lane can be ended wherever it waits.
//! A write mostly is a copy to the page cache, dearer to hand over than to do. Once the device has made one wait, the next
//! ones wait for a turn at it first, and run where blocking is allowed: a device that hangs holds as many threads as it has
//! turns, and no lane of another.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, ChecksumKind, Result};
use gridlane_plan::LaneId;
use gridlane_plan::judge::{Ledger, Piece, PieceHashes, Sender};
use gridlane_share::turns::{Brief, BriefKind, in_place};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::notice::{Notice, PATIENCE, blocked};
use crate::ordered::Feed;
use crate::pieces::{Found, PieceBytes, Pieces};
use crate::read_back::OfTarget;

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
    /// Nothing is written beyond it.
    bytes_max: u64,
}

/// The two kinds of targets.
pub(crate) enum Sink {
    /// At any place.
    Anywhere(Arc<dyn gridlane_store::Target>),
    /// In order.
    Ordered(Box<Feed>),
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
            bytes_max: u64::MAX,
            busy_ns: AtomicU64::new(0),
        }
    }

    /// The same, taking so many bytes at most, however many a source sends that does not say how many there are.
    pub(crate) fn at_most(self, bytes_max: Option<u64>) -> Target {
        Target { bytes_max: bytes_max.unwrap_or(u64::MAX), ..self }
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

    /// The file, or like object, of a target that takes bytes at any place.
    pub(crate) fn anywhere(&self) -> Option<&Arc<dyn gridlane_store::Target>> {
        match &self.sink {
            Sink::Anywhere(target) => Some(target),
            Sink::Ordered(_) => None,
        }
    }

    /// Does something with that which mostly needs no device.
    pub(crate) async fn briefly<T>(&self, doing: impl FnOnce(&dyn gridlane_store::Target) -> T) -> Option<T> {
        let target = &**self.anywhere()?;
        let brief = target.turns().brief(BriefKind::Other).await;
        Some(brief.run(|| doing(target)))
    }

    /// Does something with that which waits for the device.
    pub(crate) async fn in_turn<T>(&self, doing: impl FnOnce(&dyn gridlane_store::Target) -> T) -> Option<T> {
        let target = &**self.anywhere()?;
        Some(target.turns().run(|| doing(target)).await)
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

    /// True if every piece that can be compared with a checksum of its own was compared, and is right.
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
        if offset.saturating_add(bytes.len() as u64) > self.bytes_max {
            return Err(crate::spec::too_large(self.bytes_max));
        }
        match &self.sink {
            Sink::Anywhere(target) => self.write_anywhere(&**target, lane, sender, bytes, offset).await,
            Sink::Ordered(feed) => self.write_in_order(feed, lane, sender, bytes, offset).await,
        }
    }

    async fn write_anywhere(
        &self,
        target: &dyn gridlane_store::Target,
        lane: LaneId,
        sender: Sender,
        bytes: &[u8],
        offset: u64,
    ) -> Result<u64> {
        let (mut fresh, mut complete) = (0, Vec::new());
        {
            let brief = match target.turns().brief_now(BriefKind::Write) {
                Some(brief) => brief,
                // On the heap, as it is seldom.
                None => Box::pin(self.turn(target, lane)).await,
            };
            let parts = self.ledger().claim(ByteRange::at(offset, bytes.len() as u64), sender);
            for part in parts {
                let bytes = of_part(bytes, offset, part);
                // Hashed while it is in the cache, before the write takes it from there.
                let piece =
                    self.pieces.is_none().then(|| Piece { range: part, adler32: adler32(bytes), sender });
                let begun = Instant::now();
                brief.run(|| target.write_at(bytes, part.start()))?;
                self.was_busy(begun);
                match (piece, &self.pieces) {
                    (Some(piece), _) => self.ledger().commit(piece),
                    (None, Some(pieces)) => self.commit_parts(pieces, sender, bytes, part, &mut complete),
                    (None, None) => {}
                }
                fresh += part.len();
            }
        }
        if let Some(pieces) = &self.pieces {
            for index in complete {
                self.check_there(pieces, target, lane, index).await?;
            }
        }
        Ok(fresh)
    }

    /// Waits for leave to write.
    async fn turn<'a>(&self, target: &'a dyn gridlane_store::Target, lane: LaneId) -> Brief<'a> {
        let begun = Instant::now();
        let waiting = target.turns().brief(BriefKind::Write);
        tokio::pin!(waiting);
        let brief = match timeout(PATIENCE, &mut waiting).await {
            Ok(brief) => brief,
            // Others wait for this device: silence of the lane is no fault of its source.
            Err(_) => blocked(&self.notices, lane, waiting).await,
        };
        self.was_busy(begun);
        brief
    }

    /// Commits the parts that pieces have of `range`, which was written to a file, and notes which pieces are complete now.
    fn commit_parts(
        &self,
        pieces: &Pieces,
        sender: Sender,
        bytes: &[u8],
        range: ByteRange,
        complete: &mut Vec<u64>,
    ) {
        for part in pieces.hashes.cut(range) {
            let bytes = of_part(bytes, range.start(), part);
            let epoch = self.ledger().epoch(part.start());
            pieces.hash(part, bytes, epoch);
            complete.extend(self.commit_part(pieces, sender, bytes, part));
        }
    }

    /// Commits a part of a piece, and returns that piece if it is complete now.
    fn commit_part(&self, pieces: &Pieces, sender: Sender, bytes: &[u8], part: ByteRange) -> Option<u64> {
        let index = pieces.hashes.index_of(part.start());
        let adler32 = adler32(bytes);
        let mut ledger = self.ledger();
        ledger.commit(Piece { range: part, adler32, sender });
        ledger.is_committed(pieces.hashes.range(index)).then_some(index)
    }

    async fn write_in_order(
        &self,
        feed: &Feed,
        lane: LaneId,
        sender: Sender,
        bytes: &[u8],
        offset: u64,
    ) -> Result<u64> {
        let parts = self.ledger().claim(ByteRange::at(offset, bytes.len() as u64), sender);
        let mut fresh = 0;
        for range in parts {
            let bytes = of_part(bytes, offset, range);
            match &self.pieces {
                Some(pieces) => {
                    for part in pieces.hashes.cut(range) {
                        let bytes = of_part(bytes, range.start(), part);
                        pieces.keep(part, bytes);
                        if let Some(index) = self.commit_part(pieces, sender, bytes, part) {
                            self.check_kept(pieces, feed, lane, index).await?;
                        }
                    }
                }
                None => {
                    // Hashed while it is in the cache, before the write takes it from there.
                    let piece = Piece { range, adler32: adler32(bytes), sender };
                    self.push(feed, lane, range.start(), bytes).await?;
                    self.ledger().commit(piece);
                }
            }
            fresh += range.len();
        }
        Ok(fresh)
    }

    async fn push(&self, feed: &Feed, lane: LaneId, offset: u64, bytes: &[u8]) -> Result<()> {
        let begun = Instant::now();
        feed.push(lane, offset, bytes).await?;
        self.was_busy(begun);
        Ok(())
    }

    fn was_busy(&self, since: Instant) {
        self.busy_ns.fetch_add(since.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Compares a piece all of whose bytes are at the target with its checksum. What is wrong is missing afterwards.
    async fn check_there(
        &self,
        pieces: &Pieces,
        target: &dyn gridlane_store::Target,
        lane: LaneId,
        index: u64,
    ) -> Result<()> {
        let check = target.turns().run(|| self.check_in_file(pieces, &OfTarget::of(target), index));
        // Reading much back takes its time, in which silence of this lane is no fault of its source.
        match pieces.hashes.piece_bytes() >= LONG_PIECE_BYTES_MIN {
            true => blocked(&self.notices, lane, check).await,
            false => check.await,
        }
    }

    /// The same of a piece that is kept for a target in order, which is given it if it is right.
    async fn check_kept(&self, pieces: &Pieces, feed: &Feed, lane: LaneId, index: u64) -> Result<()> {
        let offset = pieces.hashes.range(index).start();
        let epoch = self.ledger().epoch(offset);
        let Some(bytes) = pieces.take_kept(index) else { return Ok(()) };
        let found = in_place(|| pieces.hash_of(&bytes));
        let is_right = pieces.hashes.is_right(index, &found);
        if is_right {
            // First given away, then verified: with the last verified piece the copy is judged.
            self.push(feed, lane, offset, &bytes).await?;
        }
        let there = PieceBytes::InMemory { bytes: &bytes, offset };
        let settle = || self.settle(pieces, index, epoch, is_right, &there);
        // What is wrong is hashed once more.
        match is_right {
            true => settle(),
            false => in_place(settle),
        }
        Ok(())
    }

    fn check_in_file(&self, pieces: &Pieces, there: &OfTarget<'_>, index: u64) -> Result<()> {
        let epoch = self.ledger().epoch(pieces.hashes.range(index).start());
        let found = pieces.hash_in_file(index, there, epoch)?;
        let is_right = pieces.hashes.is_right(index, &found);
        self.settle(pieces, index, epoch, is_right, &PieceBytes::InFile(there));
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
    pub(crate) fn check_rest(&self, there: &OfTarget<'_>) -> Result<()> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        let rest = self.ledger().unverified(self.size_bytes().unwrap_or(0));
        for index in rest.into_iter().flat_map(|range| pieces.hashes.touched(range)) {
            if self.ledger().is_committed(pieces.hashes.range(index)) {
                self.check_in_file(pieces, there, index)?;
            }
        }
        Ok(())
    }

    /// The receiver may be gone, where the copy is over: the notice is then of no use.
    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }
}

/// The bytes of a part of what begins at `offset`.
fn of_part(bytes: &[u8], offset: u64, part: ByteRange) -> &[u8] {
    let from = (part.start() - offset) as usize;
    &bytes[from..from + part.len() as usize]
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use gridlane_core::Hasher;

    use super::*;
    use crate::output::Pipe;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_piece_is_verified_when_a_stream_has_taken_it() {
        // More than a pipe holds.
        let bytes = vec![7; 4 * 1024 * 1024];
        let mut hasher = Hasher::new(ChecksumKind::Sha1);
        hasher.update(&bytes);
        let hashes = PieceHashes::new(bytes.len() as u64, bytes.len() as u64, vec![hasher.finish()]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (notices, _heard) = mpsc::unbounded_channel();
        let output = Box::new(Pipe::new(std::fs::File::from(std::os::fd::OwnedFd::from(writer))));
        let feed = Feed::new(output, Vec::new(), notices.clone());
        let target = Arc::new(Target::new(Sink::Ordered(Box::new(feed)), hashes, notices));
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

    #[test]
    fn comparing_the_rest_ends_with_its_copy() {
        let bytes = b"bytes";
        let mut hasher = Hasher::new(ChecksumKind::Sha1);
        hasher.update(bytes);
        let hashes = PieceHashes::new(bytes.len() as u64, bytes.len() as u64, vec![hasher.finish()]);
        let there: Arc<dyn gridlane_store::Target> = Arc::new(gridlane_store::MemoryTarget::new("f", 5));
        there.write_at(bytes, 0).unwrap();
        let target = Target::new(Sink::Anywhere(Arc::clone(&there)), hashes, mpsc::unbounded_channel().0);
        target.agree(Some(bytes.len() as u64));
        let range = ByteRange::new(0, bytes.len() as u64);
        assert_eq!(target.ledger().claim(range, 0), [range]);
        target.ledger().commit(Piece { range, adler32: adler32(bytes), sender: 0 });
        assert!(target.check_rest(&OfTarget::stopped(&*there)).is_err());
        assert!(!target.is_checked() && target.ledger().is_settled(), "nothing was found wrong");
        target.check_rest(&OfTarget::of(&*there)).unwrap();
        assert!(target.is_checked());
    }
}
