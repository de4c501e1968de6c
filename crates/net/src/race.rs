//! Connecting to the first of many addresses that answers (RFC 8305, section 5).
//!
//! Addresses are tried in their order, each with a head start before the next; a failure ends the head
//! start. The first connection wins, and all other attempts are dropped, which closes them.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gridlane_core::{Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Failures told in one message; more say nothing new.
const FAILURES_TOLD: usize = 6;

/// Addresses that were tried in vain, and why.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(SocketAddr, io::Error)>);

impl Failures {
    pub(crate) fn add(&mut self, address: SocketAddr, cause: io::Error) {
        self.0.push((address, cause));
    }

    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        self.0.iter().any(|(failed, _)| failed == address)
    }

    /// All of them in one error.
    pub(crate) fn into_error(self) -> Error {
        let is_timeout =
            !self.0.is_empty() && self.0.iter().all(|(_, cause)| cause.kind() == io::ErrorKind::TimedOut);
        let kind = if is_timeout { ErrorKind::Timeout } else { ErrorKind::Network };
        Error::new(kind, format!("cannot connect: {self}")).unreached()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (address, cause)) in self.0.iter().take(FAILURES_TOLD).enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{address}: {cause}")?;
        }
        match self.0.len().saturating_sub(FAILURES_TOLD) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Connects with `connect` to the first address that takes the connection before `deadline`; each has a
/// head start of `delay` before the next. Adds to `failures` those that failed, and at the deadline those
/// that have not answered.
pub(crate) async fn race<T, F>(
    addresses: &[SocketAddr],
    delay: Duration,
    deadline: Instant,
    failures: &mut Failures,
    connect: impl Fn(SocketAddr) -> F,
) -> Option<(SocketAddr, T)>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut waiting = addresses.iter().copied();
    let mut open: Vec<SocketAddr> = Vec::new();
    let mut running = JoinSet::new();
    loop {
        let next = waiting.next();
        if let Some(address) = next {
            let attempt = connect(address);
            running.spawn(async move { (address, attempt.await) });
            open.push(address);
        }
        if running.is_empty() {
            return None;
        }
        let head_start = Instant::now() + delay;
        tokio::select! {
            biased;
            Some(ended) = running.join_next() => match ended {
                Ok((address, Ok(connected))) => return Some((address, connected)),
                Ok((address, Err(cause))) => {
                    open.retain(|other| *other != address);
                    failures.add(address, cause);
                }
                // A task of ours that panicked: the others may still win.
                Err(_) => {}
            },
            () = sleep_until(deadline) => {
                open.into_iter().for_each(|address| {
                    failures.add(address, io::Error::new(io::ErrorKind::TimedOut, "no answer"));
                });
                return None;
            }
            () = sleep_until(head_start), if next.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const DELAY: Duration = Duration::from_millis(250);

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 443))
    }

    /// The behaviour of an address, and its delay in milliseconds.
    #[derive(Clone, Copy)]
    enum Does {
        Connects(u64),
        Refuses(u64),
        Nothing,
    }

    struct Closes(u8, Arc<Mutex<Vec<u8>>>);

    impl Drop for Closes {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    struct Outcome {
        winner: Option<u8>,
        took_ms: u128,
        /// The times at which attempts began.
        begun_ms: Vec<u128>,
        closed: Vec<u8>,
        failures: String,
    }

    async fn raced(all: &[Does], deadline_ms: u64) -> Outcome {
        let addresses: Vec<_> = (0..all.len() as u8).map(address).collect();
        let (begun, closed) = (Mutex::new(Vec::new()), Arc::default());
        let start = Instant::now();
        let mut failures = Failures::default();
        let won = race(&addresses, DELAY, start + Duration::from_millis(deadline_ms), &mut failures, |at| {
            begun.lock().unwrap().push(start.elapsed().as_millis());
            let number = addresses.iter().position(|other| *other == at).unwrap();
            let (does, open) = (all[number], Closes(number as u8, Arc::clone(&closed)));
            async move {
                match does {
                    Does::Connects(after) => {
                        tokio::time::sleep(Duration::from_millis(after)).await;
                        Ok(open)
                    }
                    Does::Refuses(after) => {
                        tokio::time::sleep(Duration::from_millis(after)).await;
                        Err(io::ErrorKind::ConnectionRefused.into())
                    }
                    Does::Nothing => std::future::pending().await,
                }
            }
        })
        .await;
        let took_ms = start.elapsed().as_millis();
        // Attempts that were dropped end when the runtime comes to them.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let seen = closed.lock().unwrap().clone();
        Outcome {
            winner: won.as_ref().map(|(_, open)| open.0),
            took_ms,
            begun_ms: begun.into_inner().unwrap(),
            closed: seen,
            failures: failures.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_has_a_head_start() {
        let quick = raced(&[Does::Connects(100), Does::Connects(0)], 15_000).await;
        assert_eq!((quick.winner, quick.took_ms, quick.begun_ms), (Some(0), 100, vec![0]));
        let slow = raced(&[Does::Connects(400), Does::Connects(50), Does::Nothing], 15_000).await;
        assert_eq!((slow.winner, slow.took_ms, slow.begun_ms), (Some(1), 300, vec![0, 250]));
        assert_eq!(slow.closed, [0], "the loser is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_the_head_start() {
        let refused = raced(&[Does::Refuses(10), Does::Refuses(5), Does::Connects(7)], 15_000).await;
        assert_eq!((refused.winner, refused.took_ms, refused.begun_ms), (Some(2), 22, vec![0, 10, 15]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_one_still_wins_when_all_others_fail() {
        let slow = raced(&[Does::Connects(2000), Does::Refuses(1), Does::Refuses(1)], 15_000).await;
        assert_eq!((slow.winner, slow.took_ms), (Some(0), 2000));
    }

    #[tokio::test(start_paused = true)]
    async fn all_failures_are_told_together() {
        let none = raced(&[Does::Nothing, Does::Refuses(1), Does::Nothing], 5000).await;
        assert_eq!((none.winner, none.took_ms), (None, 5000));
        for told in ["192.0.2.0:443: no answer", "192.0.2.1:443: connection refused", "192.0.2.2:443: no"] {
            assert!(none.failures.contains(told), "{}", none.failures);
        }
        let many = raced(&[Does::Refuses(0); 20], 5000).await;
        assert!(many.failures.ends_with("; and 14 more"), "{}", many.failures);
        assert!(raced(&[], 5000).await.winner.is_none());
    }
}
