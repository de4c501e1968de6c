//! Phases in the life of a server.

use tokio::sync::watch;

/// A phase in the life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It goes on serving, tells load balancers to send clients elsewhere, and closes connections after their answers.
    Draining,
    /// Running requests are finished, and nothing else is done.
    Stopping,
}

/// Tells when a server stops, to what it does for longer than a request takes.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Receiver<Phase>);

impl Stopping {
    pub(crate) fn new(phase: watch::Receiver<Phase>) -> Stopping {
        Stopping(phase)
    }

    /// Waits until the server finishes running requests and begins nothing else.
    pub async fn begun(&mut self) {
        // Without a sender there is no server either.
        let _ = self.0.wait_for(|phase| *phase == Phase::Stopping).await;
    }
}
