//! Remote files, and calls that wait.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use gridlane_client::{guest_runtime, typed_url};
use gridlane_core::limits::READ_SOURCES_MAX;
use gridlane_core::{ByteRange, Error, ErrorKind, Result, Url};
use gridlane_engine::reading::{Reading, Ready, RemoteFile};

use crate::handles::Handles;
use crate::memory::{Buffer, usage};
use crate::opening::Opening;
use crate::sessions;

/// The files that are open.
pub(crate) static FILES: Handles<RemoteFile> = Handles::new(1, "file");

/// Opens what these URLs or paths name; returns its handle.
pub(crate) fn open(texts: &[String], opening: Opening) -> Result<usize> {
    if texts.is_empty() || texts.len() > READ_SOURCES_MAX {
        let message = format!("a file has 1 to {READ_SOURCES_MAX} URLs, and not {}", texts.len());
        return Err(usage(message));
    }
    let urls = texts.iter().map(|text| typed_url(text)).collect::<Result<Vec<Url>>>()?;
    let first = urls.first().map(Url::to_string).unwrap_or_default();
    let client = sessions::client(&urls, &opening)?;
    let (tell, told) = mpsc::sync_channel(1);
    let Opening { reading, timeout, .. } = opening;
    guest_runtime()?.spawn(async move {
        let open = RemoteFile::open(urls, client, reading);
        let opened = match timeout {
            None => open.await,
            Some(timeout) => tokio::time::timeout(timeout, open).await.unwrap_or_else(|_| {
                let message = format!("it was not open after {} ms", timeout.as_millis());
                Err(Error::new(ErrorKind::Timeout, message).endpoint(first))
            }),
        };
        // The caller waits for it.
        let _ = tell.send(opened);
    });
    let opened =
        told.recv().map_err(|_| Error::new(ErrorKind::Other, "the opening has ended without a result"))?;
    Ok(FILES.add(Arc::new(opened?)))
}

/// Reads ranges, each into its buffer, and waits until all are there. Each that is complete is told by its place and number of bytes.
pub(crate) fn read(
    file: &RemoteFile,
    ranges: &[ByteRange],
    mut buffers: Vec<Buffer>,
    timeout: Option<Duration>,
    mut complete: impl FnMut(usize, usize),
) -> Result<()> {
    let mut reading = file.read(ranges, timeout);
    let mut left = ranges.len();
    while left > 0 {
        let ready = match reading.ready() {
            Some(ready) => ready?,
            None => wait(&mut reading)?,
        };
        if ready.is_empty() {
            return Err(Error::new(ErrorKind::Other, "a read has ended before all of its ranges had come"));
        }
        for Ready { index, bytes } in ready {
            if let Some(buffer) = buffers.get_mut(index) {
                complete(index, buffer.fill(&bytes));
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the next ranges of a call. The runtime's threads do the work.
fn wait(reading: &mut Reading) -> Result<Vec<Ready>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut next = pin!(reading.next());
    loop {
        match next.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ready) => return ready,
            Poll::Pending => thread::park(),
        }
    }
}
