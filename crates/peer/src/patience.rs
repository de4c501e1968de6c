//! Waits in which only the time counts that this process ran.
//!
//! A process that is stopped (SIGSTOP, a frozen container, a debugger) receives nothing, and that is no silence of its
//! peers. What a timer measures goes on meanwhile, so that every wait would be over when the process goes on, before an
//! answer could arrive. So a wait is made of short ones, each of which counts for no more than it was to take: a stop of
//! any length costs one of them. Of a machine that sleeps nothing else is to be said: Linux' monotonic clock stands still
//! with it.
//!
//! What the plan waits for goes by the copy's own clock, which does the same.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// The longest single wait. A shorter one would cost more wake-ups, a longer one more of the time after a stop.
const SLICE: Duration = Duration::from_millis(250);

/// The rest of the time that something is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    left: Duration,
    spent: Duration,
}

/// Patience is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Patience {
    /// Waits for so long.
    pub fn new(max: Duration) -> Patience {
        Patience { left: max, spent: Duration::ZERO }
    }

    /// Begins anew to wait, for so long.
    pub fn renew(&mut self, max: Duration) {
        self.left = max;
    }

    /// Waits at least for so long from now on, but altogether for no longer than `most`.
    pub fn extend(&mut self, more: Duration, most: Duration) {
        self.left = self.left.max(more.min(most.saturating_sub(self.spent)));
    }

    /// True if it is at its end.
    pub fn is_over(&self) -> bool {
        self.left.is_zero()
    }

    /// Awaits something. May be called again with something else: what was waited is gone.
    pub async fn bear<T>(&mut self, doing: impl Future<Output = T>) -> Result<T, Elapsed> {
        tokio::pin!(doing);
        loop {
            let (slice, begun) = (self.left.min(SLICE), Instant::now());
            let outcome = tokio::time::timeout(slice, doing.as_mut()).await;
            let counts = begun.elapsed().min(slice);
            self.left -= counts;
            self.spent += counts;
            match outcome {
                Ok(done) => return Ok(done),
                Err(_) if self.is_over() => return Err(Elapsed),
                Err(_) => {}
            }
        }
    }
}

/// Like tokio's.
pub async fn timeout<T>(max: Duration, doing: impl Future<Output = T>) -> Result<T, Elapsed> {
    Patience::new(max).bear(doing).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks the only thread: nothing of this program runs meanwhile, as when it is stopped.
    fn stop(duration: Duration) {
        std::thread::sleep(duration);
    }

    #[tokio::test]
    async fn a_stop_counts_for_one_short_wait() {
        let begun = Instant::now();
        let (tell, told) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(timeout(Duration::from_millis(1000), told));
        tokio::task::yield_now().await;
        stop(Duration::from_millis(1500));
        // A timer alone would be over by now.
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        tell.send(5).unwrap();
        assert_eq!(waiting.await.unwrap(), Ok(Ok(5)));
        assert!(begun.elapsed() >= Duration::from_millis(1500));
    }

    #[tokio::test]
    async fn silence_counts() {
        let mut patience = Patience::new(Duration::from_millis(300));
        let begun = Instant::now();
        assert_eq!(patience.bear(std::future::pending::<()>()).await, Err(Elapsed));
        assert!(patience.is_over() && begun.elapsed() >= Duration::from_millis(300));
        assert_eq!(patience.bear(async { 1 }).await, Ok(1), "what is there is taken");
        patience.extend(Duration::from_secs(9), Duration::from_millis(400));
        assert!(!patience.is_over() && patience.left <= Duration::from_millis(100));
    }
}
