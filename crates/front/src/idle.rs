//! The wait of a connection between two requests: made once for each connection, and polled for each request.
//!
//! Timers, and tasks that watch for a value to change, stand in lists that all connections share, behind locks. To
//! enter and leave two of them for each request would cost more than to read the request.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

use crate::phase::{Phase, Stopping};

/// Events other than bytes that end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The wait is as long as it may be.
    Due,
    /// The server stops.
    Stopping,
}

/// The wait for the next request.
pub(crate) struct Idle {
    /// Rings for a wait that has ended long ago, most of the time: then it is set to ring for the one in hand.
    clock: Pin<Box<Sleep>>,
    phase: watch::Receiver<Phase>,
    stops: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// True if `stops` has the waker of this task.
    is_watching: bool,
}

impl Idle {
    /// Waits that are due after `usual`, as a rule.
    pub(crate) fn new(phase: watch::Receiver<Phase>, usual: Duration) -> Idle {
        let mut watched = phase.clone();
        let stops = async move {
            // Without a sender there is no server either.
            let _ = watched.wait_for(|phase| *phase == Phase::Stopping).await;
        };
        Idle { clock: Box::pin(sleep(usual)), phase, stops: Box::pin(stops), is_watching: false }
    }

    /// Ready when the server stops, or at `due`. Not to be asked again once the server stops, and by one task only.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, due: Instant) -> Poll<Interruption> {
        // A registered waker is woken by every change, so that there is nothing to poll before one.
        if !self.is_watching || self.phase.has_changed().unwrap_or(true) {
            self.is_watching = true;
            if self.stops.as_mut().poll(context).is_ready() {
                return Poll::Ready(Interruption::Stopping);
            }
        }
        if self.clock.deadline() > due {
            self.clock.as_mut().reset(due);
        }
        while self.clock.as_mut().poll(context).is_ready() {
            if Instant::now() >= due {
                return Poll::Ready(Interruption::Due);
            }
            self.clock.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// The phase of the server at this moment.
pub struct PhaseWatch {
    phase: watch::Receiver<Phase>,
    seen: Phase,
}

impl PhaseWatch {
    pub(crate) fn new(mut phase: watch::Receiver<Phase>) -> PhaseWatch {
        let seen = *phase.borrow_and_update();
        PhaseWatch { phase, seen }
    }

    /// Tells what goes on beyond a request when the server stops.
    pub fn stopping(&self) -> Stopping {
        Stopping::new(self.phase.clone())
    }

    /// Looks behind the lock only when there is something new.
    pub(crate) fn now(&mut self) -> Phase {
        if self.phase.has_changed().unwrap_or(false) {
            self.seen = *self.phase.borrow_and_update();
        }
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_due_whatever_was_due_before_it() {
        let phase = watch::Sender::new(Phase::Serving);
        let mut idle = Idle::new(phase.subscribe(), Duration::from_secs(1));
        // Earlier than usual, later, and earlier than the one before, which did not come to its end.
        for (after_s, ends) in
            [(0.5, true), (1.0, true), (60.0, true), (60.0, false), (1.0, true), (3.0, true)]
        {
            let began = Instant::now();
            let due = began + Duration::from_secs_f64(after_s);
            let wait = poll_fn(|context| idle.poll(context, due));
            if !ends {
                assert!(tokio::time::timeout(Duration::from_secs(2), wait).await.is_err());
                continue;
            }
            assert_eq!(wait.await, Interruption::Due);
            let took = began.elapsed();
            assert!(took >= due - began && took < due - began + Duration::from_millis(10), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_server_stops_and_not_before() {
        let phase = watch::Sender::new(Phase::Serving);
        let mut idle = Idle::new(phase.subscribe(), Duration::from_secs(1));
        let wait = tokio::spawn(async move {
            for _ in 0..3 {
                let due = Instant::now() + Duration::from_secs(5);
                assert_eq!(poll_fn(|context| idle.poll(context, due)).await, Interruption::Due);
            }
            let due = Instant::now() + Duration::from_secs(3600);
            poll_fn(|context| idle.poll(context, due)).await
        });
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(7)).await;
        phase.send_replace(Phase::Draining);
        tokio::time::sleep(Duration::from_secs(23)).await;
        assert!(!wait.is_finished());
        phase.send_replace(Phase::Stopping);
        assert_eq!(wait.await.unwrap(), Interruption::Stopping);
        assert!(began.elapsed() < Duration::from_secs(31));
    }

    #[test]
    fn a_phase_is_seen_when_it_has_come() {
        let phase = watch::Sender::new(Phase::Serving);
        let mut watched = PhaseWatch::new(phase.subscribe());
        assert_eq!(watched.now(), Phase::Serving);
        phase.send_replace(Phase::Draining);
        assert_eq!((watched.now(), watched.now()), (Phase::Draining, Phase::Draining));
        let mut late = PhaseWatch::new(phase.subscribe());
        assert_eq!(late.now(), Phase::Draining);
        drop(phase);
        assert_eq!(watched.now(), Phase::Draining);
    }
}
