//! Bytes that a target has already, read again and compared with what is known of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::limits::IO_BYTES;
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_plan::judge::{Reader, adler32_of};
use gridlane_share::budget;
use gridlane_store::Target;
use gridlane_store::journal::JournaledRange;
use gridlane_sys::AlignedBuf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::run::Run;

static NEVER: AtomicBool = AtomicBool::new(false);

/// The bytes of a target.
pub(crate) struct OfTarget<'a> {
    target: &'a dyn Target,
    /// Once it is true, nothing more is read.
    stop: &'a AtomicBool,
}

impl<'a> OfTarget<'a> {
    /// For reading that does not take long.
    pub(crate) fn of(target: &'a dyn Target) -> OfTarget<'a> {
        OfTarget { target, stop: &NEVER }
    }

    /// Reads at `offset`. 0 is the end.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.stop.load(Relaxed) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => self.target.read_at(into, offset),
        }
    }

    /// Reads all of a range.
    pub(crate) fn read_range(&self, range: ByteRange, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buf = AlignedBuf::new(range.len().clamp(1, IO_BYTES as u64) as usize);
        let mut at = range.start();
        while at < range.end() {
            let room = (range.end() - at).min(buf.len() as u64) as usize;
            match self.read_at(&mut buf[..room], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    take(&buf[..count]);
                    at += count as u64;
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

impl Reader for OfTarget<'_> {
    fn read(&self, range: ByteRange, take: &mut dyn FnMut(&[u8])) -> bool {
        self.read_range(range, take).is_ok()
    }
}

/// The ranges whose bytes have the checksum that is claimed for them.
pub(crate) fn matching(there: &OfTarget<'_>, done: &[JournaledRange]) -> Vec<JournaledRange> {
    let has_it = |done: &&JournaledRange| adler32_of(there, done.range, |_| {}) == Some(done.adler32);
    done.iter().filter(has_it).copied().collect()
}

/// A thread that reads the target.
pub(crate) struct Reading {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Run<'_> {
    /// Reads of the target as much as `read` likes, on a thread for that: what takes long waits for others like it at the
    /// device, and keeps no short operation from its turn.
    pub(crate) async fn read_long<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&OfTarget<'_>) -> T + Send + 'static,
    ) -> Result<T> {
        let Some(target) = self.target.anywhere().cloned() else {
            return Err(Error::new(ErrorKind::Other, "what was written in order cannot be read back"));
        };
        let turn = target.turns().digests().take(budget::current(), 1).await;
        let (stop, (tell, told)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let is_stopped = stop.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let outcome = read(&OfTarget { target: &*target, stop: &is_stopped });
            // Before anything is told: another copy may open the target then.
            drop((target, turn));
            let _ = tell.send(outcome);
        });
        self.reading = Some(Reading { stop, thread });
        let outcome = told.await;
        self.reading = None;
        outcome.map_err(|_| Error::new(ErrorKind::Other, "reading the partial file back failed"))
    }

    /// Ends what reads the target still, of a copy that is given up. It ends by itself where the device takes longer.
    pub(crate) async fn end_reading(&mut self, patience: Duration) {
        if let Some(Reading { stop, thread }) = self.reading.take() {
            stop.store(true, Relaxed);
            let _ = timeout(patience, thread).await;
        }
    }
}
