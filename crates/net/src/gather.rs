//! Letting bulk data gather in the kernel before its reader is woken.
//!
//! Servers send a record at a time. A reader that is faster is woken for each of them: sixty thousand times per
//! gigabyte, for which sender and reader pay. While bytes come fast, and more of the same answer are certain to come,
//! the kernel is told to wake the reader when many are there (`SO_RCVLOWAT`, socket(7)). A peer that says how much it
//! sends and then sends less is found by the end of the connection, or by the time that this may take.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gridlane_core::limits::TLS_RECORD_BYTES_MAX;
use gridlane_sys::tcp;
use tokio::net::TcpStream;

/// Bytes that are waited for: half of what one read takes, so that the sender need not wait meanwhile.
const GATHER_BYTES: usize = 128 * 1024;
/// Bytes that must be certain to come beyond them: those of a record that is there in part may be among the certain.
const SLACK_BYTES: usize = 2 * TLS_RECORD_BYTES_MAX;
/// The rate is judged each time that so many bytes have come.
const JUDGED_BYTES: usize = 1024 * 1024;
/// A rate at which they come within this time is fast: waiting for [`GATHER_BYTES`] then delays a byte by half a
/// millisecond at most. No wide-area path is, so that nothing there is ever delayed.
const JUDGED_MAX: Duration = Duration::from_millis(4);
/// When they have not come after this time, what is there is taken. Timers are no finer.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// The state of one socket.
#[derive(Debug)]
pub(crate) struct Gather {
    /// Bytes at which the kernel wakes the reader.
    mark: AtomicUsize,
    is_fast: bool,
    /// Since when `bytes` were counted.
    since: Option<Instant>,
    bytes: usize,
}

impl Gather {
    pub(crate) fn new() -> Gather {
        Gather { mark: AtomicUsize::new(1), is_fast: false, since: None, bytes: 0 }
    }

    /// Notes that `bytes` have come.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= JUDGED_BYTES {
            let now = Instant::now();
            self.is_fast = self.since.is_some_and(|since| now - since <= JUDGED_MAX);
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// Waits until there are bytes to read, or the connection has ended. At least `certain_bytes` of them are on the
    /// way or will be. May be dropped at any time.
    pub(crate) async fn readable(&mut self, socket: &TcpStream, certain_bytes: u64) -> io::Result<()> {
        if !self.is_fast || certain_bytes < (GATHER_BYTES + SLACK_BYTES) as u64 {
            self.set(socket, 1)?;
            return socket.readable().await;
        }
        self.set(socket, GATHER_BYTES)?;
        match tokio::time::timeout(GATHER_MAX, socket.readable()).await {
            Ok(outcome) => outcome,
            Err(_) => {
                // Lowering the mark wakes the task that waits for what is there.
                self.is_fast = false;
                self.set(socket, 1)?;
                socket.readable().await
            }
        }
    }

    /// From now on a single byte wakes the task that waits.
    pub(crate) fn end(&self, socket: &TcpStream) -> io::Result<()> {
        self.set(socket, 1)
    }

    fn set(&self, socket: &TcpStream, mark: usize) -> io::Result<()> {
        if self.mark.load(Relaxed) != mark {
            tcp::set_receive_mark(socket, mark)?;
            self.mark.store(mark, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, Shutdown};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().await.unwrap().0, far)
    }

    fn fast() -> Gather {
        Gather { is_fast: true, ..Gather::new() }
    }

    /// Reads all that is there, until the reactor says that nothing is left.
    fn drain(socket: &TcpStream) -> usize {
        let (mut all, mut target) = (0, vec![0; 1 << 20]);
        loop {
            match socket.try_read(&mut target) {
                Ok(0) => return all,
                Ok(count) => all += count,
                Err(cause) => {
                    assert_eq!(cause.kind(), io::ErrorKind::WouldBlock);
                    return all;
                }
            }
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_end_behind_a_few_bytes_is_seen() {
        for round in 0..20 {
            let (near, mut far) = pair().await;
            far.write_all(b"first").unwrap();
            near.readable().await.unwrap();
            drain(&near);
            // With the kernel told to wait for many, and no reader at that moment.
            let mut gather = fast();
            gather.set(&near, GATHER_BYTES).unwrap();
            far.write_all(&[1; 1000]).unwrap();
            match round % 3 {
                0 => far.shutdown(Shutdown::Write).unwrap(),
                1 => drop(far),
                // The peer says nothing more, and does not end.
                _ => {}
            }
            let readable = gather.readable(&near, 1 << 40);
            tokio::time::timeout(LONG, readable).await.expect("no hang").unwrap();
            assert_eq!(drain(&near), 1000, "{round}");
        }
    }

    #[tokio::test]
    async fn whoever_comes_after_a_wait_that_was_given_up_is_woken_by_a_byte() {
        let (near, mut far) = pair().await;
        for round in 0..20 {
            let mut gather = fast();
            gather.set(&near, 1).unwrap();
            {
                let waiting = gather.readable(&near, 1 << 40);
                tokio::pin!(waiting);
                // It begins to wait for many bytes, and is dropped.
                let is_ready = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(waiting.as_mut().poll(context).is_ready())
                });
                if is_ready.await {
                    // A stale word of the reactor: once more with what it knows now.
                    drain(&near);
                    continue;
                }
            }
            assert_eq!(gather.mark.load(Relaxed), GATHER_BYTES);
            far.write_all(b"x").unwrap();
            if round % 2 == 0 {
                gather.end(&near).unwrap();
                tokio::time::timeout(LONG, near.readable()).await.expect("no hang").unwrap();
            } else {
                let readable = gather.readable(&near, 1);
                tokio::time::timeout(LONG, readable).await.expect("no hang").unwrap();
            }
            assert_eq!(drain(&near), 1);
        }
    }
}
