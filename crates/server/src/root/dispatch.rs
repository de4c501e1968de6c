//! Which request is answered by what: at once, by a job that goes on whenever the socket takes something, or by a task
//! that may wait.

use std::sync::Arc;

use gridlane_xrd::request::{PgRead, Read};
use gridlane_xrd::{ErrorCode, PathId, Request, StreamId};

use super::answer::{Answer, Failure, Outcome};
use super::connection::{Connection, Event, Job};
use super::context::Context;
use super::files;
use super::reading::{Kind, ReadJob, Source, VectorJob};
use super::session::Link;
use crate::reply::Pieces;

impl Connection {
    /// Answers what needs no wait, or begins a job for it; what has to be a task comes back.
    pub(super) fn answer_at_once(
        &mut self,
        stream: StreamId,
        request: Request,
        link: &Arc<Link>,
        context: &Context,
    ) -> Option<Request> {
        match request {
            Request::Ping(_) => self.answered(stream, Ok(Answer::done())),
            Request::Read(Read { handle, offset, len, path_id }) => {
                let open = context.session.files.get(handle);
                let job = open.and_then(|file| ReadJob::new(stream, file, Kind::Plain, offset, len));
                self.begin_read(stream, job, path_id, link);
            }
            Request::PgRead(PgRead { handle, offset, len, path_id, .. }) => {
                let open = context.session.files.get(handle);
                let job = open.and_then(|file| ReadJob::new(stream, file, Kind::Pages, offset, len));
                self.begin_read(stream, job, path_id, link);
            }
            Request::ReadV(vector) => {
                match VectorJob::new(stream, &context.session.files, vector.segments) {
                    Ok(job) => self.jobs.push_back(Job::Vector(job)),
                    Err(failure) => self.answered(stream, Err(failure)),
                }
            }
            request => return Some(request),
        }
        None
    }

    fn begin_read(
        &mut self,
        stream: StreamId,
        job: Result<ReadJob, Failure>,
        path_id: PathId,
        link: &Arc<Link>,
    ) {
        let job = match job {
            Ok(job) => job,
            Err(failure) => return self.answered(stream, Err(failure)),
        };
        if path_id == PathId::MAIN {
            self.jobs.push_back(Job::Read(job));
            return;
        }
        match link.path(path_id) {
            Some(path) => {
                self.unanswered -= 1;
                if let Err(lost) = path.send(Event::Delegated(job))
                    && let Event::Delegated(job) = lost.0
                {
                    self.unanswered += 1;
                    self.jobs.push_back(Job::Read(job));
                }
            }
            None => {
                let failure = Failure::new(ErrorCode::ARG_INVALID, "invalid path ID");
                self.answered(stream, Err(failure));
            }
        }
    }

    /// Begins a task for a request.
    pub(super) fn begin_task(&mut self, stream: StreamId, request: Request, link: &Arc<Link>, context: Context) {
        if let Request::Endsess(other) = &request {
            if other.session == link.session.id {
                let _ = self.events.send(Event::End);
                self.unanswered -= 1;
                return;
            }
            let found = self.shared.root_sessions.of_client(other.session, self.client.address);
            let events = self.events.clone();
            self.tasks.spawn(async move {
                let outcome = match found {
                    Ok(Some(other)) => {
                        other.end().await;
                        Ok(Answer::done())
                    }
                    // It has ended already.
                    Ok(None) => Ok(Answer::done()),
                    Err(failure) => Err(failure),
                };
                let _ = events.send(Event::Answered(stream, outcome));
            });
            return;
        }
        let events = self.events.clone();
        self.tasks.spawn(async move {
            let outcome = answer(&context, &request).await;
            // Nobody listens any longer when the connection has ended.
            let _ = events.send(Event::Answered(stream, outcome));
        });
    }

    /// Reads what comes next where blocking is allowed.
    pub(super) fn read_cold(&mut self, mut job: ReadJob) {
        let (shared, events, mut buffer) = (Arc::clone(&self.shared), self.events.clone(), self.outbox.lend());
        self.tasks.spawn(async move {
            let read = shared.disk.run(|| job.read_waiting(&mut buffer)).await;
            let _ = events.send(Event::Read(job, read.map(|(part, begin)| (buffer, part, begin))));
        });
    }

    /// The same of many reads.
    pub(super) fn read_vector_cold(&mut self, mut job: VectorJob) {
        let (shared, events, mut buffer) = (Arc::clone(&self.shared), self.events.clone(), self.outbox.lend());
        self.tasks.spawn(async move {
            let read = shared.disk.run(|| job.read_waiting(&mut buffer)).await;
            let _ = events.send(Event::Vector(job, read.map(|end| (buffer, end))));
        });
    }

    /// The same of bytes that are promised already.
    pub(super) fn refill_cold(&mut self, mut source: Source) {
        let (shared, events, mut buffer) = (Arc::clone(&self.shared), self.events.clone(), self.outbox.lend());
        self.tasks.spawn(async move {
            let read = shared.disk.run(|| source.fill_waiting(&mut buffer, 0)).await;
            let _ = events.send(Event::Refilled(read.map(|part| (buffer, part, source))));
        });
    }

    /// Makes the next piece of an answer.
    pub(super) fn make_piece(&mut self, stream: StreamId, mut rest: Box<dyn Pieces>) {
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.tasks.spawn(async move {
            let mut piece = Vec::new();
            let made = shared.disk.run(|| rest.next(&mut piece)).await;
            let _ = events.send(Event::Piece(stream, rest, made.map(|has_more| (piece, has_more))));
        });
    }
}

/// Answers a request that may have to wait.
async fn answer(context: &Context, request: &Request) -> Outcome {
    let disk = &context.shared.disk;
    match request {
        Request::Open(open) => disk.run(|| files::open(context, open)).await,
        Request::Close(close) => disk.run(|| files::close(context, close)).await,
        _ => Err(Failure::new(ErrorCode::UNSUPPORTED, "the server does not do that")),
    }
}
