//! The time that a step of a probe may take, and the wish to stop.

use std::future::Future;
use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_peer::patience::timeout;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::stop::{stopped, told};

/// The limits of the steps of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    step_max: Duration,
    until: Instant,
    /// Time that all parts of a step have together.
    of_parts: Option<Duration>,
    stop: watch::Receiver<bool>,
}

impl Clock {
    /// Steps take `step_max` each, and `all_max` together from now on.
    pub(super) fn new(step_max: Duration, all_max: Duration, stop: watch::Receiver<bool>) -> Clock {
        Clock { step_max, until: Instant::now() + all_max, of_parts: None, stop }
    }

    /// Time that the next step may take; none is left when that is zero.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).min(self.step_max)
    }

    /// The limits of the parts of the next step.
    pub(super) fn of_step(&self) -> Clock {
        let left = self.left();
        Clock { until: Instant::now() + left, of_parts: Some(left), ..self.clone() }
    }

    /// Time that is left for all of them.
    pub(super) fn all_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// True when the probe is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Time that a step has for itself, whatever is left.
    pub(super) fn step_max(&self) -> Duration {
        self.step_max
    }

    /// Completes when the probe is to stop.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        told(self.stop.clone())
    }

    /// The error of what was not done in the time that was `left` for it. Of a part it names the time of the whole step.
    pub(super) fn too_slow(&self, left: Duration) -> Error {
        too_slow(self.of_parts.unwrap_or(left))
    }

    /// Does something within the time of a step, unless the probe is stopped.
    pub(super) async fn bound<T>(&self, doing: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left();
        tokio::select! {
            outcome = timeout(left, doing) => outcome.unwrap_or_else(|_| Err(self.too_slow(left))),
            () = self.stopped() => Err(stopped()),
        }
    }
}

/// The error of a step that takes too long.
pub(super) fn too_slow(max: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("not done within {:.3} s", max.as_secs_f64()).replace(".000", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_ends_by_its_limit_or_that_of_all_or_when_it_is_stopped() {
        let (tell, stop) = watch::channel(false);
        let forever = || std::future::pending::<Result<()>>();
        let clock = Clock::new(Duration::from_secs(2), Duration::from_secs(3), stop);
        let error = clock.bound(forever()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Timeout, "not done within 2 s"));
        assert_eq!(clock.bound(async { Ok(5) }).await.unwrap(), 5);
        assert_eq!(clock.left(), Duration::from_secs(1));
        let parts = clock.of_step();
        assert!(parts.bound(forever()).await.is_err());
        // Nothing is left for another part, and the step has had a second.
        assert_eq!(parts.too_slow(parts.left()).message(), "not done within 1 s");
        assert_eq!(parts.bound(forever()).await.unwrap_err().message(), "not done within 1 s");
        assert_eq!((parts.left(), clock.left()), (Duration::ZERO, Duration::ZERO));
        assert!(clock.bound(forever()).await.is_err());
        assert_eq!(clock.left(), Duration::ZERO);
        let (_, longer) =
            (tell.send(true), Clock::new(Duration::from_secs(9), Duration::from_secs(9), clock.stop.clone()));
        assert!(longer.is_stopped());
        assert_eq!(longer.bound(forever()).await.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
