//! Bytes that a target has already, read again and compared with what is known of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::limits::IO_BYTES;
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_plan::judge::{Reader, adler32_of};
use gridlane_share::{Lease, budget};
use gridlane_store::Target;
use gridlane_store::journal::JournaledRange;
use gridlane_sys::AlignedBuf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

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

    /// Of a copy that is given up.
    #[cfg(test)]
    pub(crate) fn stopped(target: &'a dyn Target) -> OfTarget<'a> {
        static STOPPED: AtomicBool = AtomicBool::new(true);
        OfTarget { target, stop: &STOPPED }
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

/// The thread that is busy with a target for long, if there is one: it reads, or waits for a sync.
#[derive(Default)]
pub(crate) struct Reading(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Reading {
    /// Reads of a target as much as `read` likes, on a thread for that: what takes long waits for others like it at the
    /// device, and keeps no short operation from its turn.
    pub(crate) async fn read<T: Send + 'static>(
        &mut self,
        target: Option<&Arc<dyn Target>>,
        read: impl FnOnce(&OfTarget<'_>) -> T + Send + 'static,
    ) -> Result<T> {
        let Some(target) = target.cloned() else {
            return Err(Error::new(ErrorKind::Other, "what was written in order cannot be read back"));
        };
        let turn = target.turns().digests().take(budget::current(), 1).await;
        self.on_thread(target, turn, read).await
    }

    /// Has the device take all that was written to a target, on a thread for that: it may take long, and the copy may be stopped
    /// meanwhile.
    pub(crate) async fn sync(&mut self, target: &Arc<dyn Target>) -> Result<()> {
        let turn = target.turns().budget().take(budget::current(), 1).await;
        self.on_thread(target.clone(), turn, |there| there.target.sync()).await?
    }

    async fn on_thread<T: Send + 'static>(
        &mut self,
        target: Arc<dyn Target>,
        turn: Lease,
        work: impl FnOnce(&OfTarget<'_>) -> T + Send + 'static,
    ) -> Result<T> {
        let (stop, (tell, told)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let is_stopped = stop.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let outcome = work(&OfTarget { target: &*target, stop: &is_stopped });
            // Before anything is told: another copy may open the target then.
            drop((target, turn));
            let _ = tell.send(outcome);
        });
        self.0 = Some((stop, thread));
        let outcome = told.await;
        self.0 = None;
        outcome.map_err(|_| {
            Error::new(ErrorKind::Other, "what reads the partial file back, or syncs it, has failed")
        })
    }

    /// Ends what reads still, of a copy that is given up. It ends by itself where the device takes longer.
    pub(crate) async fn end(&mut self, patience: Duration) {
        if let Some((stop, thread)) = self.0.take() {
            stop.store(true, Relaxed);
            let _ = timeout(patience, thread).await;
        }
    }
}

impl Drop for Reading {
    /// A copy that is dropped needs nothing of what is read, and the target and the turn are for others.
    fn drop(&mut self) {
        if let Some((stop, _)) = &self.0 {
            stop.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use gridlane_store::path_target::PathTarget;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_stopped_while_it_reads_lets_go_of_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PathTarget::open(&dir.path().join("f"), &Default::default()).map(|(target, _)| target);
        let target: Arc<dyn Target> = Arc::new(open().unwrap());
        target.write_at(b"bytes", 0).unwrap();
        let (mut reading, (begun, has_begun)) = (Reading::default(), channel());
        let read = move |there: &OfTarget<'_>| {
            // For as long as it can.
            while there.read_range(ByteRange::new(0, 5), |_| {}).is_ok() {
                let _ = begun.send(());
            }
        };
        tokio::select! {
            biased;
            _ = reading.read(Some(&target), read) => panic!("it never ends by itself"),
            () = async { tokio::task::block_in_place(|| has_begun.recv().unwrap()) } => {}
        }
        drop(target);
        assert!(open().is_err(), "it is being read");
        reading.end(Duration::from_secs(60)).await;
        assert!(open().is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_copy_that_is_dropped_reads_no_more() {
        let target: Arc<dyn Target> = Arc::new(gridlane_store::MemoryTarget::new("f", 5));
        target.write_at(b"bytes", 0).unwrap();
        let (mut reading, (begun, has_begun)) = (Reading::default(), channel());
        let read = move |there: &OfTarget<'_>| {
            let patience = std::time::Instant::now() + Duration::from_secs(60);
            while there.read_range(ByteRange::new(0, 5), |_| {}).is_ok() {
                let _ = begun.send(true);
                if std::time::Instant::now() > patience {
                    let _ = begun.send(false);
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            _ = reading.read(Some(&target), read) => panic!("it never ends by itself"),
            () = async { tokio::task::block_in_place(|| assert!(has_begun.recv().unwrap())) } => {}
        }
        drop(reading);
        // Until the thread has ended.
        tokio::task::block_in_place(|| assert!(has_begun.iter().all(|reads| reads)));
    }
}
