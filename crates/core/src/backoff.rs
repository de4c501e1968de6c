//! Pauses between attempts to reach a server that could not be reached.
//!
//! The only rule of this kind: copies, questions, uploads and the continuing of an earlier copy all wait by it, each for as
//! long as it hopes. Where attempts are few by nature, `limits` lists their pauses.

use std::time::Duration;

use crate::limits::{RECONNECT_PAUSE, RECONNECT_PAUSE_MAX};

/// Pauses that double, up to a longest one.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Begins with [`RECONNECT_PAUSE`].
    pub fn new() -> Backoff {
        Backoff { next: RECONNECT_PAUSE }
    }

    /// The pause in front of the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(RECONNECT_PAUSE_MAX);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new();
        assert_eq!((backoff.pause(), backoff.pause()), (RECONNECT_PAUSE, 2 * RECONNECT_PAUSE));
        let last = (0..50).map(|_| backoff.pause()).last();
        assert_eq!(last, Some(RECONNECT_PAUSE_MAX));
    }
}
