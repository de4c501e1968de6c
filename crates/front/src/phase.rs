//! Phases in the life of a server.

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
