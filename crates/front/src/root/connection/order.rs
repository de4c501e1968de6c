//! Changes of names happen in the order in which they were asked for.
//!
//! Requests of one connection are answered by tasks at the same time. XRootD does one after the other, and clients that
//! remove a tree (fsspec-xrootd) rely on it: all requests are sent at once, those for directories behind those for what
//! is in them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use gridlane_xrd::request::About;
use gridlane_xrd::{PathArg, Request};

use crate::root::event::{Event, Inbox};
use crate::root::reading::Pending;

/// The changes of one connection, in the order in which they were asked for: in the queues that the service names
/// ([`Service::change_queue`](crate::Service::change_queue)), since a storage that hangs is nothing to the others.
#[derive(Default)]
pub(super) struct Changes {
    /// Of each queue that has a change under way: those that wait for the end of that.
    queues: HashMap<usize, VecDeque<Pending>>,
    /// Those whose turn has come.
    ready: VecDeque<(Pending, Turn)>,
}

/// The turn of one change: the next one of its queue begins when this is dropped.
pub(in crate::root) struct Turn {
    queue: usize,
    events: Inbox,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // When the connection has ended, nothing is next.
        let _ = self.events.send(Event::Changed(self.queue));
    }
}

impl Changes {
    /// Returns a request that may begin, with its turn if it changes names; none if another change comes first. Then it
    /// is kept until its turn has come.
    pub(super) fn admit(
        &mut self,
        queue: Option<usize>,
        pending: Pending,
        events: &Inbox,
    ) -> Option<(Pending, Option<Turn>)> {
        let Some(queue) = queue else { return Some((pending, None)) };
        match self.queues.entry(queue) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push_back(pending);
                None
            }
            Entry::Vacant(waiting) => {
                waiting.insert(VecDeque::new());
                Some((pending, Some(Turn { queue, events: events.clone() })))
            }
        }
    }

    /// A change of this queue has ended.
    pub(super) fn ended(&mut self, queue: usize, events: &Inbox) {
        let Some(waiting) = self.queues.get_mut(&queue) else { return };
        match waiting.pop_front() {
            Some(pending) => self.ready.push_back((pending, Turn { queue, events: events.clone() })),
            None => {
                self.queues.remove(&queue);
            }
        }
    }

    /// The next one whose turn has come.
    pub(super) fn next(&mut self) -> Option<(Pending, Option<Turn>)> {
        self.ready.pop_front().map(|(pending, turn)| (pending, Some(turn)))
    }

    /// There is one.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

/// The path at which a request changes what is found, or its mode or size.
pub(crate) fn changed(request: &Request) -> Option<&PathArg> {
    match request {
        Request::Mkdir(mkdir) => Some(&mkdir.about),
        Request::Rm(rm) => Some(&rm.about),
        Request::Rmdir(rmdir) => Some(&rmdir.about),
        Request::Mv(mv) => Some(&mv.from),
        Request::Chmod(chmod) => Some(&chmod.about),
        Request::Truncate(truncate) => match &truncate.about {
            About::Path(about) => Some(about),
            About::Handle(_) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::arg;
    use gridlane_xrd::StreamId;
    use gridlane_xrd::request::{Ping, Rm};
    use std::time::Instant;
    use tokio::sync::mpsc;

    const A: Option<usize> = Some(1);

    #[test]
    fn changes_of_one_queue_begin_one_after_the_other() {
        let (events, mut events_in) = mpsc::unbounded_channel();
        let mut changes = Changes::default();
        let pending = |number, request: Request| {
            let stream = StreamId([0, number]);
            Pending { stream, request, client: None, len: 0, began: Instant::now(), parts_bytes: 0 }
        };
        let rm = |number, path: &str| pending(number, Rm { about: arg(path) }.into());
        let (_, first) = changes.admit(A, rm(1, "/a/f"), &events).unwrap();
        assert!(first.is_some());
        for number in 2..20 {
            assert!(changes.admit(A, rm(number, "/a/f"), &events).is_none());
        }
        // Others do not wait for it.
        let (_, other) = changes.admit(Some(2), rm(30, "/b/f"), &events).unwrap();
        assert!(other.is_some());
        assert!(changes.admit(None, pending(31, Ping {}.into()), &events).unwrap().1.is_none());
        assert!(changes.admit(None, rm(32, "/nowhere"), &events).unwrap().1.is_none());
        assert!(!changes.has_ready());
        // Whatever a turn ends by: an answer, a refusal before anything was done, or a task that was given up.
        let mut turn = first;
        for number in 2..20 {
            drop(turn);
            let Ok(Event::Changed(queue)) = events_in.try_recv() else { panic!("its end is told") };
            changes.ended(queue, &events);
            let (next, its) = changes.next().unwrap();
            assert_eq!((next.stream.0[1], changes.has_ready()), (number, false));
            turn = its;
        }
        drop((turn, other));
        while let Ok(Event::Changed(queue)) = events_in.try_recv() {
            changes.ended(queue, &events);
        }
        assert!(changes.queues.is_empty() && changes.next().is_none());
    }
}
