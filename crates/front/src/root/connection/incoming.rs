//! The data of writes: taken as it comes, and written where it may wait, while answers go on.

use std::io;
use std::time::{Duration, Instant};

use gridlane_xrd::request::{PgWrite, Write, WriteV};
use gridlane_xrd::{Call as _, ErrorCode, Request, RequestHead, RequestId};
use tokio::task::JoinError;

use super::limited::client_of;
use super::{Connection, Role};
use crate::root::answer::{Failure, Outcome};
use crate::root::event::{Event, Inbox};
use crate::root::reading::Pending;
use crate::root::sink::Sink as _;
use crate::service::Service;
use crate::transfer::Patience;

/// A write that takes longer has waited for a device.
const FAST_WRITE_MAX: Duration = Duration::from_millis(2);

/// A request whose bytes are coming.
pub(super) struct Incoming<K> {
    pub(super) head: RequestHead,
    /// Not here while it writes.
    pub(super) sink: Option<Box<K>>,
    pub(super) began: Instant,
    /// The client is waited for since then.
    pub(super) waits_since: Instant,
    pub(super) patience: Patience,
    /// The client may ask for it. Before that nothing is taken: it has begun to send, and cannot be told to wait.
    pub(super) is_allowed: bool,
    /// The client's limits let nothing be taken before.
    pub(super) held_until: Option<Instant>,
    /// The last write did not wait.
    pub(super) is_fast: bool,
}

/// The result of a task that had bytes of a request.
pub(in crate::root) enum Sunk<K> {
    /// They were written, in so long a time.
    Written(Box<K>, Duration),
    /// All of them were, and this is the outcome of the request.
    Taken(Outcome),
}

impl<K> Incoming<K> {
    pub(super) fn wants_input(&self) -> bool {
        self.sink.is_some() && self.held_until.is_none_or(|until| until <= Instant::now())
    }
}

impl<S: Service> Connection<S> {
    /// A request whose bytes follow.
    pub(super) fn begin_intake(&mut self, head: &RequestHead) {
        self.renew();
        if let Some(path) = self.path_of_data(head) {
            // They come there, unframed and with no request to belong to: that connection ends, and the session goes
            // on.
            path.into_iter().for_each(|path| drop(path.send(Event::End)));
            let what = "data are taken on the connection that says what to do with them: name path 0";
            self.unanswered += 1;
            return self.refuse_data(head, Failure::new(ErrorCode::UNSUPPORTED, what));
        }
        let Some(context) = self.context() else { return };
        let sink = Box::new(S::take(context, head));
        self.unanswered += 1;
        let now = Instant::now();
        let patience = Patience::new(&self.front.data.deadlines);
        self.incoming = Some(Incoming {
            head: *head,
            sink: Some(sink),
            began: now,
            waits_since: now,
            patience,
            is_allowed: false,
            held_until: None,
            is_fast: false,
        });
    }

    /// The connection of a request's data, if it names another one of the session: its inbox, if it is still there.
    /// `None`: they come behind the request, or their connection is not known.
    fn path_of_data(&self, head: &RequestHead) -> Option<Option<Inbox>> {
        let Role::Main(main, _) = &self.role else { return None };
        let path_id = match head.id {
            RequestId::WRITE => Write::parse(&head.body, &[]).ok()?.path_id,
            RequestId::PGWRITE => PgWrite::parse(&head.body, &[]).ok()?.path_id,
            _ => return None,
        };
        main.all.was_bound(path_id).then(|| main.all.path(path_id))
    }

    /// Answers a request whose data do not come here.
    fn refuse_data(&mut self, head: &RequestHead, failure: Failure) {
        let pending = pending_with_data(head, Instant::now());
        self.answered(&pending, Err(failure));
    }

    /// Takes what has come for the request in hand; returns true if anything happened.
    pub(super) async fn take_data(&mut self) -> io::Result<bool> {
        let Some(incoming) = &mut self.incoming else { return Ok(false) };
        let Some(sink) = &mut incoming.sink else { return Ok(false) };
        let now = Instant::now();
        if let Some(until) = incoming.held_until {
            if until > now {
                return Ok(false);
            }
            // Until then the client waited, not we.
            incoming.held_until = None;
            incoming.waits_since = incoming.waits_since.max(until);
        }
        if !incoming.is_allowed {
            if let Err((_, wait)) = self.front.take_request(client_of(&self.role, &self.client)) {
                incoming.held_until = Some(now + wait);
                return Ok(false);
            }
            incoming.is_allowed = true;
        }
        let room = sink.room();
        if !room.is_empty() {
            let ahead = self.wire.inbox.unread();
            let count = match ahead.is_empty() {
                true => match self.wire.stream.try_read(room)? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(count) => count,
                    None => return Ok(false),
                },
                false => {
                    let count = ahead.len().min(room.len());
                    room[..count].copy_from_slice(&ahead[..count]);
                    self.wire.inbox.consume(count);
                    count
                }
            };
            sink.took(count);
            let waited = now.saturating_duration_since(incoming.waits_since);
            incoming.patience.note(count as u64, waited).map_err(|slow| slow.of_sending())?;
            incoming.waits_since = now;
            incoming.held_until = (!self.paces.are_none()).then(|| now + self.paces.owe(count as u64));
            self.clock.active = now;
            return Ok(true);
        }
        let (is_done, is_fast) = (sink.is_done(), incoming.is_fast);
        let Some(mut sink) = incoming.sink.take() else { return Ok(false) };
        match is_done {
            // `writev` may bring things to the device at its end.
            true if incoming.head.id == RequestId::WRITEV => self.finish_elsewhere(*sink),
            true => {
                let outcome = sink.finish().await;
                self.taken(outcome);
            }
            false if is_fast => {
                sink.write().await;
                self.written(sink, now.elapsed());
            }
            false => self.write_elsewhere(sink),
        }
        Ok(true)
    }

    /// A task has done something with bytes of the request in hand.
    pub(super) fn sunk(&mut self, ended: Result<Sunk<S::Sink>, JoinError>) {
        self.clock.active = Instant::now();
        match ended {
            Ok(Sunk::Written(sink, took)) => self.written(sink, took),
            Ok(Sunk::Taken(outcome)) => self.taken(outcome),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // It was given up, with the connection.
            Err(_) => {}
        }
    }

    /// They were written, in so long a time.
    fn written(&mut self, sink: Box<S::Sink>, took: Duration) {
        if let Some(incoming) = &mut self.incoming {
            incoming.sink = Some(sink);
            incoming.waits_since = Instant::now();
            // The next ones may be written here, if these were only copied to memory.
            incoming.is_fast = took < FAST_WRITE_MAX;
        }
    }

    /// The request in hand has this outcome.
    fn taken(&mut self, outcome: Outcome) {
        let Some(incoming) = self.incoming.take() else { return };
        let Incoming { head, began, .. } = incoming;
        self.answered(&pending_with_data(&head, began), outcome);
    }
}

/// A request that brings data, for the log.
fn pending_with_data(head: &RequestHead, began: Instant) -> Pending {
    let request = Request::parse(head.id, &head.body, &[]);
    // A list of ranges is not kept for it.
    let request = request.unwrap_or(Request::WriteV(WriteV { syncs: false, segments: Vec::new() }));
    Pending { stream: head.stream, request, client: None, len: 0, began, parts_bytes: 0 }
}
