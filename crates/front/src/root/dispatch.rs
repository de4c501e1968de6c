//! Dispatch of requests: answered at once, by a job that goes on whenever the socket takes something, or by a task that
//! may wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gridlane_core::limits;
use gridlane_xrd::request::{About, Endsess, Stat};
use gridlane_xrd::{ErrorCode, PathId, Request};
use tokio::time::sleep;

use super::answer::{Answer, Failure, Outcome};
use super::connection::incoming::Sunk;
use super::connection::limited::own_allowance;
use super::connection::order::Turn;
use super::connection::{Connection, Job};
use super::context::Context;
use super::event::{Event, Inbox};
use super::reading::{Kind, Pending, ReadJob, Refused, Source, VectorJob};
use super::session::Connections;
use super::session_files::SessionFiles as _;
use super::sink::Sink as _;
use super::{identity, set};
use crate::pieces::Pieces;
use crate::service::Service;
use gridlane_share::budget;

impl<S: Service> Connection<S> {
    /// Answers what needs no wait, or begins a job for it; what has to be a task comes back.
    pub(super) fn answer_at_once(
        &mut self,
        mut pending: Pending,
        all: &Arc<Connections<S::Files>>,
        context: &Context<S>,
    ) -> Option<Pending> {
        match &mut pending.request {
            Request::Ping(_) => self.answered(&pending, Ok(Answer::done())),
            Request::Read(read) => {
                let (handle, offset, len, path_id) = (read.handle, read.offset, read.len, read.path_id);
                match context.session.files.readable(handle, "read") {
                    Ok(file) => {
                        self.begin_read(ReadJob::new(pending, file, Kind::Plain, offset, len), path_id, all)
                    }
                    Err(failure) => self.answered(&pending, Err(failure)),
                }
            }
            Request::PgRead(read) => {
                let (handle, offset, len, path_id) = (read.handle, read.offset, read.len, read.path_id);
                match context.session.files.readable(handle, "pgread") {
                    Ok(file) => {
                        self.begin_read(ReadJob::new(pending, file, Kind::Pages, offset, len), path_id, all)
                    }
                    Err(failure) => self.answered(&pending, Err(failure)),
                }
            }
            Request::ReadV(vector) => {
                let segments = std::mem::take(&mut vector.segments);
                match VectorJob::new(pending, &context.session.files, segments) {
                    Ok(job) => {
                        // A list waits for as long as its client takes.
                        self.pending_bytes += job.pending.len;
                        self.jobs.push_back(Job::Vector(job));
                    }
                    Err(refused) => self.answered(&refused.pending, Err(refused.failure)),
                }
            }
            // A stat of an open file counts for its opener, like every request about one.
            Request::Stat(Stat { about: About::Path(_), .. }) => {
                match identity::identify_nowait(context, &pending.request) {
                    Some(Ok(client)) => {
                        pending.client = Some(client.clone());
                        if let Err(outcome) = own_allowance(context, &client) {
                            self.answered(&pending, outcome);
                            return None;
                        }
                        let context = Context { client, ..context.clone() };
                        match S::answer_root_nowait(&context, &pending.request) {
                            Some(outcome) => self.answered(&pending, outcome),
                            None => return Some(pending),
                        }
                    }
                    Some(Err(failure)) => self.answered(&pending, Err(failure)),
                    None => return Some(pending),
                }
            }
            _ => return Some(pending),
        }
        None
    }

    /// Begins a task of the connection, on its client's behalf.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(budget::on_behalf(budget::current(), task));
    }

    fn begin_read(
        &mut self,
        job: Result<ReadJob, Box<Refused>>,
        path_id: PathId,
        all: &Arc<Connections<S::Files>>,
    ) {
        let job = match job {
            Ok(job) => job,
            Err(refused) => return self.answered(&refused.pending, Err(refused.failure)),
        };
        if path_id == PathId::MAIN {
            // Not behind what takes long: it stands with other answers.
            return if job.is_small() && self.may_be_cold() {
                self.advance(Job::Read(job))
            } else {
                self.jobs.push_back(Job::Read(job))
            };
        }
        match all.path(path_id) {
            Some(path) => match all.delegate(&path, job) {
                Ok(()) => self.unanswered -= 1,
                Err(job) => self.jobs.push_back(Job::Read(*job)),
            },
            // It was there, and what is asked for can be had here as well.
            None if all.was_bound(path_id) => self.jobs.push_back(Job::Read(job)),
            None => {
                let failure = Failure::new(ErrorCode::ARG_INVALID, "invalid path ID");
                self.answered(&job.pending, Err(failure));
            }
        }
    }

    /// Begins a task for a request; if it changes names, in its turn, which ends with the task.
    pub(super) fn begin_task(
        &mut self,
        mut pending: Pending,
        turn: Option<Turn>,
        all: &Arc<Connections<S::Files>>,
        mut context: Context<S>,
    ) {
        if let Request::Endsess(Endsess { session }) = &pending.request
            && *session == all.session.id
        {
            // As XRootD does it: the end is the answer.
            self.unanswered -= 1;
            self.is_ending = true;
            return;
        }
        self.with_task += 1;
        let events = self.events.clone();
        self.spawn(async move {
            let _turn = turn;
            let known = match pending.client.take() {
                Some(client) => Ok(client),
                None if identity::may_bring_credentials(&pending.request) => {
                    let known = identity::identify(&context, &pending.request).await.map_err(Err);
                    known.and_then(|client| own_allowance(&context, &client).map(|()| client))
                }
                None => Ok(context.client.for_request()),
            };
            match known {
                Ok(client) => {
                    pending.client = Some(client.clone());
                    context.client = client;
                }
                Err(outcome) => {
                    let _ = events.send(Event::Answered(pending, outcome));
                    return;
                }
            }
            // The receiver is gone when the connection has ended.
            let _ = events.send(match answer_in_time(&context, &pending, &events).await {
                Ok(outcome) => Event::Answered(pending, outcome),
                Err(outcome) => Event::AnsweredLater(pending, outcome),
            });
        });
    }

    /// Reads what comes next, and waits for it.
    pub(super) fn read_cold(&mut self, mut job: ReadJob) {
        let (events, mut buffer) = (self.events.clone(), self.outbox.lend());
        self.begins_cold();
        self.spawn(async move {
            let read = job.read_waiting(&mut buffer).await;
            let _ = events.send(Event::Read(job, read.map(|(part, begin)| (buffer, part, begin))));
        });
    }

    /// The same of many reads.
    pub(super) fn read_vector_cold(&mut self, mut job: VectorJob) {
        let (events, mut buffer) = (self.events.clone(), self.outbox.lend());
        self.begins_cold();
        self.spawn(async move {
            let before = job.next();
            let read = job.read_waiting(&mut buffer).await;
            let _ = events.send(Event::Vector(job, read.map(|end| (buffer, end, before))));
        });
    }

    /// The same of bytes that are promised already.
    pub(super) fn refill_cold(&mut self, mut source: Source) {
        let (events, mut buffer) = (self.events.clone(), self.outbox.lend());
        self.begins_cold();
        self.spawn(async move {
            let read = source.fill_waiting(&mut buffer, 32).await;
            let _ = events.send(Event::Refilled(read.map(|part| (buffer, part, source))));
        });
    }

    /// Writes what has come, and waits for that.
    pub(super) fn write_elsewhere(&mut self, mut sink: Box<S::Sink>) {
        self.sinking.spawn(budget::on_behalf(budget::current(), async move {
            let began = Instant::now();
            sink.write().await;
            Sunk::Written(sink, began.elapsed())
        }));
    }

    /// Finishes with what has come, and waits for that.
    pub(super) fn finish_elsewhere(&mut self, sink: S::Sink) {
        let finished = async move { Sunk::Taken(sink.finish().await) };
        self.sinking.spawn(budget::on_behalf(budget::current(), finished));
    }

    /// Makes the next piece of an answer.
    pub(super) fn make_piece(&mut self, pending: Pending, mut rest: Box<dyn Pieces>) {
        let events = self.events.clone();
        self.begins_cold();
        self.spawn(async move {
            let mut piece = Vec::new();
            let made = rest.next(&mut piece).await;
            let _ = events.send(Event::Piece(pending, rest, made.map(|has_more| (piece, has_more))));
        });
    }
}

/// Answers a request that may have to wait: here what is about sessions.
async fn answer<S: Service>(context: &Context<S>, request: &Request) -> Outcome {
    match request {
        Request::Set(request) => set::set(&context.session, request),
        Request::Endsess(request) => end_session(context, request).await,
        request => S::answer_root(context, request).await,
    }
}

/// Answers a request, or tells its client meanwhile that the answer comes later: then it is inside of `Err`.
async fn answer_in_time<S: Service>(
    context: &Context<S>,
    pending: &Pending,
    events: &Inbox,
) -> Result<Outcome, Result<Vec<u8>, Failure>> {
    if !context.takes_later || !S::may_take_long(&pending.request) {
        return Ok(answer(context, &pending.request).await);
    }
    let promise = Arc::new(Mutex::new(Promise::None));
    let (made, events, stream) = (Arc::clone(&promise), events.clone(), pending.stream);
    // A task of its own: what waits for a device keeps the thread, and nothing else of this task is looked at meanwhile.
    let promising = tokio::spawn(async move {
        sleep(limits::ROOT_SOON).await;
        let mut promise = made.lock().unwrap_or_else(PoisonError::into_inner);
        if *promise == Promise::None {
            *promise = Promise::Made;
            let _ = events.send(Event::ComesLater(stream));
        }
    });
    let outcome = answer(context, &pending.request).await;
    promising.abort();
    let mut promise = promise.lock().unwrap_or_else(PoisonError::into_inner);
    match std::mem::replace(&mut *promise, Promise::Needless) {
        Promise::None | Promise::Needless => Ok(outcome),
        Promise::Made => Err(match outcome {
            Ok(Answer::Ok(body)) => Ok(body),
            Ok(_) => Err(Failure::new(ErrorCode::SERVER_ERROR, "such an answer cannot come later")),
            Err(failure) => Err(failure),
        }),
    }
}

/// The state of the promise that an answer comes later.
#[derive(PartialEq, Eq)]
enum Promise {
    /// Not yet.
    None,
    /// It was.
    Made,
    /// The answer is there.
    Needless,
}

/// Ends an earlier session of the same client, whose connection it may have lost unnoticed by the server. It is
/// answered when nothing is left of it, so that its files can be opened again.
async fn end_session<S: Service>(context: &Context<S>, request: &Endsess) -> Outcome {
    if let Some(other) = context.generation.sessions.of_client(request.session, &context.client)? {
        other.end().await;
    }
    Ok(Answer::done())
}
