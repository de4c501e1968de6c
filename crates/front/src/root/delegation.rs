//! Reads that are asked for on one connection of a session and answered on another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridlane_core::limits;
use gridlane_xrd::StreamId;

use super::event::{Event, Inbox};

/// The reads that the main connection of a session has given to others.
pub(crate) struct Delegated {
    main: Inbox,
    /// Reads that bound connections have to answer.
    count: AtomicUsize,
}

impl Delegated {
    /// Nothing yet.
    pub(crate) fn by(main: Inbox) -> Delegated {
        Delegated { main, count: AtomicUsize::new(0) }
    }

    /// The number of reads that bound connections have to answer: until all of an answer was sent.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// True if they are so many that nothing else is to be asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= limits::ROOT_REQUESTS_MAX
    }

    /// The main connection.
    pub(crate) fn main(&self) -> &Inbox {
        &self.main
    }
}

/// A read that a bound connection has to answer. However it ends there, its client is answered: when this is dropped
/// before it was settled, the main connection tells that the answer was lost.
pub(crate) struct Delegation {
    all: Arc<Delegated>,
    stream: StreamId,
    is_settled: bool,
}

impl Delegation {
    /// Of the answer to this.
    pub(crate) fn new(all: &Arc<Delegated>, stream: StreamId) -> Delegation {
        all.count.fetch_add(1, Ordering::Relaxed);
        Delegation { all: Arc::clone(all), stream, is_settled: false }
    }

    /// All of the answer was sent, or is sent elsewhere.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        // When the main one is gone, nothing waits.
        if !self.is_settled {
            let _ = self.all.main.send(Event::Lost(self.stream));
        }
        if self.all.count.fetch_sub(1, Ordering::Relaxed) == limits::ROOT_REQUESTS_MAX {
            let _ = self.all.main.send(Event::HasRoom);
        }
    }
}
