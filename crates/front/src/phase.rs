//! How far the server is from its end.

/// How far the server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Far.
    Serving,
    /// It goes on serving, tells everybody to go elsewhere, and closes connections after their answers.
    Draining,
    /// Running requests are finished, and nothing else is done.
    Stopping,
}
