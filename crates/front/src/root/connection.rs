//! One connection that speaks XRootD's protocol.
//!
//! ```text
//!            ┌── events: answers of tasks, reads for bound connections ◀──┐
//!            ▼                                                             │
//! socket ─▶ inbox ─▶ machine ─▶ dispatch ─▶ answered at once, or a job, or a task
//!    ▲                                          │            │
//!    └────────────── outbox ◀───────────────────┴────────────┘
//! ```
//!
//! One task does it all and waits for nothing but the next thing to do: what may wait for a disk is a task of its own,
//! which sends its result as an [`Event`]. When too much was asked for and not answered, or not taken by the client, no
//! further request is read.

mod deadlines;
mod ending;
mod entry;
pub(super) mod incoming;
pub(super) mod limited;
mod memory;
pub(super) mod order;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::limits;
use gridlane_net::Stream;
use gridlane_xrd::answer::{self, StatusAnswer};
use gridlane_xrd::frame::RESPONSE_HEAD_BYTES;
use gridlane_xrd::server::{Machine, Step};
use gridlane_xrd::{ErrorCode, Request, Status, StreamId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant as Deadline, sleep_until};

use self::ending::hand_back;
use self::incoming::{Incoming, Sunk};
use self::memory::Memory;
use self::order::{Changes, changed};
use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use super::delegation::Delegation;
use super::event::Event;
use super::outbox::{Outbox, Sent};
use super::reading::{Pending, Progress, ReadJob, VectorJob};
use super::rounds::Rounds;
use super::session::{Joined, Main};
use super::session_files::SessionFiles as _;
use super::{identity, log};
use crate::auth::certificates::PeerChain;
use crate::body::{Inbox, Wire};
use crate::client::Client;
use crate::front::Front;
use crate::generation::{Current, Generation};
use crate::linger::linger;
use crate::phase::Phase;
use crate::pieces::Pieces;
use crate::service::Service;
use crate::throttle::{Connected, Paces, Parties};
use crate::transfer::{Patience, failure_text};

/// Answers are made ahead of the socket up to here.
const AHEAD_BYTES: usize = 256 * 1024;

/// An answer that is made step by step.
pub(crate) enum Job {
    Read(ReadJob),
    Vector(VectorJob),
    /// The next piece is to be made.
    Pieces(Pending, Box<dyn Pieces>),
}

/// The part of a connection in its session.
enum Role<S: Service> {
    /// No login yet.
    NotLoggedIn,
    /// Its client has to authenticate.
    Unauthenticated(Main<S::Files>, Context<S>),
    /// The one that it began with.
    Main(Main<S::Files>, Context<S>),
    /// Another one, that carries answers.
    Bound(Joined<S::Files>, Context<S>),
}

/// A connection.
pub(crate) struct Connection<S: Service> {
    /// The generation of the last request.
    generation: Arc<Generation<S>>,
    /// Its front.
    pub(super) front: Arc<Front>,
    /// The generation of this moment.
    current: Current<S>,
    wire: Wire,
    phase: watch::Receiver<Phase>,
    machine: Machine,
    pub(super) outbox: Outbox,
    role: Role<S>,
    pub(super) client: Client,
    /// The certificate that it has shown.
    chain: PeerChain,
    /// The authentication that its client has begun with.
    rounds: Option<Rounds>,
    /// Tokens that it has logged in with in vain.
    refused_proofs: u32,
    pub(super) jobs: VecDeque<Job>,
    /// Requests whose turn has not come.
    waiting: VecDeque<Pending>,
    /// The request whose bytes are coming.
    incoming: Option<Incoming<S::Sink>>,
    /// Its bytes, while they wait for something.
    pub(super) sinking: JoinSet<Sunk<S::Sink>>,
    /// Tasks of requests that wait for something.
    pub(super) tasks: JoinSet<()>,
    /// The order of those that change names.
    changes: Changes,
    pub(super) events: mpsc::UnboundedSender<Event>,
    incoming_events: mpsc::UnboundedReceiver<Event>,
    /// Requests that were read and whose answer is not in the outbox.
    pub(super) unanswered: usize,
    /// Those of them that have a task.
    pub(super) with_task: usize,
    /// Bytes of requests that wait, or have a task, or are lists of reads that go on.
    pub(super) pending_bytes: usize,
    /// Bytes that the request that comes has to have before anything else happens.
    awaited_bytes: usize,
    memory: Memory,
    /// Parts of answers that have one.
    pub(super) cold: usize,
    /// Of a bound connection: the reads whose answer was made, and where in all that it sends each ends.
    unsent: VecDeque<(Delegation, u64)>,
    /// Nothing more is read, and what is to be sent ends with what there is.
    pub(super) is_ending: bool,
    /// The server stops: what is done to files that are open goes on, and no other is opened.
    is_draining: bool,
    clock: Clock,
    /// The client's rate limits.
    paces: Paces,
    /// The user and virtual organisation that it is counted for, beside its address, as far as they have limits.
    counted: (Parties, Connected),
}

/// The times of events.
struct Clock {
    /// The connection was accepted.
    began: Instant,
    /// Something was asked or answered last.
    active: Instant,
    /// A request begins to come, and is not there as a whole.
    request_began: Option<Instant>,
    /// The socket is full since then.
    full_since: Option<Instant>,
    /// Rate limits let nothing be sent before.
    held_until: Option<Instant>,
    /// Bytes that they let be sent now.
    allowed: usize,
    /// With the client's taking of answers.
    patience: Patience,
    has_released: bool,
    /// Since the server stops, a file was open.
    had_files: bool,
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(
        mut current: Current<S>,
        stream: Stream,
        phase: watch::Receiver<Phase>,
    ) -> Connection<S> {
        let generation = Arc::clone(&current.borrow_and_update());
        let front = Arc::clone(&generation.front);
        let client = Client::anonymous(stream.peer().ip().to_canonical());
        let (events, incoming_events) = mpsc::unbounded_channel();
        let now = Instant::now();
        let clock = Clock {
            began: now,
            active: now,
            request_began: None,
            full_since: None,
            held_until: None,
            allowed: 0,
            patience: Patience::new(&front.data.deadlines),
            has_released: false,
            had_files: false,
        };
        Connection {
            machine: Machine::new(front.acceptor.has_tls())
                .demanding_tls(identity::tls_demand(&front))
                .demanding_signatures(front.root.signing),
            chain: PeerChain::default(),
            rounds: None,
            refused_proofs: 0,
            outbox: Outbox::new(Arc::clone(&front.data.buffers)),
            paces: front.throttle.paces(&front.limits.of_address(client.address)),
            counted: Default::default(),
            generation,
            front,
            current,
            wire: Wire { stream, inbox: Inbox::default() },
            phase,
            role: Role::NotLoggedIn,
            client,
            jobs: VecDeque::new(),
            waiting: VecDeque::new(),
            incoming: None,
            sinking: JoinSet::new(),
            tasks: JoinSet::new(),
            changes: Changes::default(),
            events,
            incoming_events,
            unanswered: 0,
            with_task: 0,
            pending_bytes: 0,
            awaited_bytes: 0,
            memory: Memory::default(),
            cold: 0,
            unsent: VecDeque::new(),
            is_ending: false,
            is_draining: false,
            clock,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        let outcome = self.run().await;
        let Connection {
            mut wire,
            front,
            role,
            jobs,
            incoming_events,
            outbox,
            mut tasks,
            mut sinking,
            unsent,
            incoming,
            memory,
            ..
        } = self;
        // What waits for files to be let go of must not be waited for by what holds them.
        tasks.shutdown().await;
        sinking.shutdown().await;
        drop(incoming);
        match role {
            Role::Main(main, context) | Role::Unauthenticated(main, context) => {
                main.close();
                drop((jobs, incoming_events, outbox));
                S::end_session(&context).await;
                drop(main);
            }
            Role::Bound(joined, _) => hand_back(joined, jobs, incoming_events, unsent, outbox.sent_bytes()),
            Role::NotLoggedIn => {}
        }
        drop((memory, wire.inbox));
        if outcome.is_ok() {
            linger(&mut wire.stream, &front.data.deadlines).await;
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        let mut timer = std::pin::pin!(sleep_until(Deadline::now()));
        loop {
            consume_budget().await;
            let mut is_busy = false;
            while let Ok(event) = self.incoming_events.try_recv() {
                self.handle(event)?;
                is_busy = true;
            }
            while let Some(ended) = self.tasks.try_join_next() {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            while let Some(ended) = self.sinking.try_join_next() {
                self.sunk(ended);
                is_busy = true;
            }
            is_busy |= self.take_requests().await?;
            is_busy |= self.take_data().await?;
            // What runs is finished, and nothing else is begun.
            self.is_ending |= self.is_draining && !self.is_under_way();
            self.cover_memory();
            let was_overfull = self.is_overfull();
            self.make_answers();
            let is_full = self.send()?;
            // What was left in the inbox is not told of by the socket.
            is_busy |= was_overfull && !self.is_overfull();
            if self.is_over() {
                return Ok(());
            }
            let wants_input = match &self.incoming {
                Some(incoming) => incoming.wants_input(),
                None => self.wants_input() && !self.memory.lacks_input,
            };
            if wants_input && self.incoming.is_none() {
                match self.wire.stream.try_read(self.wire.inbox.room_of(self.awaited_bytes))? {
                    Some(0) => return Ok(()),
                    Some(count) => {
                        self.wire.inbox.received(count);
                        is_busy = true;
                    }
                    None => {}
                }
            }
            let goes_on = !self.jobs.is_empty() && self.has_room();
            let has_waiting = self.changes.has_ready() || !self.waiting.is_empty();
            if is_busy || goes_on || (has_waiting && self.may_begin()) {
                continue;
            }
            let deadline = self.next_deadline()?.map(Deadline::from_std);
            // Earlier than needed is good enough: most of what it is for never happens.
            if let Some(deadline) = deadline
                && (timer.deadline() > deadline || timer.is_elapsed())
            {
                timer.as_mut().reset(deadline);
            }
            let (mut event, mut sunk) = (None, None);
            tokio::select! {
                biased;
                received = self.incoming_events.recv() => event = received,
                Some(ended) = self.sinking.join_next(), if !self.sinking.is_empty() => sunk = Some(ended),
                ready = self.wire.stream.ready(wants_input, is_full) => ready?,
                // What is bound ends with its session.
                _ = self.phase.wait_for(|phase| *phase == Phase::Stopping),
                    if !self.is_draining && !self.is_ending && !matches!(self.role, Role::Bound(..)) =>
                {
                    self.is_draining = true;
                }
                () = &mut timer, if deadline.is_some() => {}
            }
            if let Some(event) = event {
                self.handle(event)?;
            }
            if let Some(ended) = sunk {
                self.sunk(ended);
            }
        }
    }

    /// True if everything was done that is to be done.
    fn is_over(&self) -> bool {
        self.is_ending
            && !self.is_answered_elsewhere()
            && self.unanswered == 0
            && self.jobs.is_empty()
            && self.outbox.is_empty()
            && !self.wire.stream.has_unsent()
    }

    /// True if a file is being read or written, or has just been closed, so that its checksum may be asked for.
    fn is_under_way(&mut self) -> bool {
        let Role::Main(_, context) = &self.role else { return false };
        self.clock.had_files |= context.session.files.count() > 0;
        if self.wire.stream.is_draining() {
            // A pause begins when the client has the answer, and not when the kernel has.
            self.clock.active = Instant::now();
        }
        self.clock.had_files
            && (!self.is_quiet() || self.clock.active.elapsed() < self.front.data.deadlines.drain_pause)
    }

    /// True if nothing was asked for that has not been answered, and nothing is being sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.unanswered == 0
            && self.incoming.is_none()
            && self.outbox.is_empty()
            && !self.wire.stream.has_unsent()
            && !self.is_answered_elsewhere()
    }

    /// True if bound connections have answers in hand that are to be finished.
    fn is_answered_elsewhere(&self) -> bool {
        matches!(&self.role, Role::Main(main, _) if main.all.delegated.count() > 0)
    }

    fn wants_input(&self) -> bool {
        !self.is_ending && !self.is_overfull()
    }

    /// True if so much is to be done for the client that it may ask for nothing else.
    fn is_overfull(&self) -> bool {
        self.unanswered >= limits::ROOT_REQUESTS_MAX
            || self.outbox.held_bytes() >= limits::ROOT_ANSWERS_BYTES_MAX
            || self.pending_bytes >= limits::ROOT_ASKED_BYTES_MAX
            || matches!(&self.role, Role::Main(main, _) if main.all.delegated.is_full())
    }

    /// Begins the client's next requests; returns true if there were any.
    async fn take_requests(&mut self) -> io::Result<bool> {
        let mut has_asked = false;
        while self.wants_input() && self.incoming.is_none() {
            let (used, step) = self.machine.step(self.wire.inbox.unread());
            if let Step::More(needed) = step {
                self.awaited_bytes = needed;
                let has_begun = !self.wire.inbox.unread().is_empty();
                if !has_begun {
                    self.clock.request_began = None;
                } else if self.clock.request_began.is_none() {
                    self.clock.request_began = Some(Instant::now());
                }
                break;
            }
            self.wire.inbox.consume(used);
            self.clock.request_began = None;
            has_asked = true;
            match step {
                Step::More(_) | Step::Ignored => {}
                Step::Say(said) => {
                    self.outbox.begin();
                    self.outbox.push(&said);
                }
                Step::Refused(stream, id, wrong) => self.refuse(stream, id, wrong.into())?,
                Step::End => self.is_ending = true,
                Step::StartTls(said) => {
                    self.outbox.push(&said);
                    self.start_tls().await?;
                }
                Step::Login(stream, login) => {
                    self.login(stream, &login)?;
                    self.begin_counting();
                }
                Step::Auth(stream, auth) => {
                    self.authenticate(stream, &auth).await?;
                    self.begin_counting();
                }
                Step::Bind(stream, bind) => {
                    self.bind(stream, &bind)?;
                    self.end_if_too_many();
                }
                Step::Request(stream, request) => self.ask(stream, request, used),
                Step::Data(head) => self.begin_intake(&head),
            }
        }
        if has_asked {
            self.clock.active = Instant::now();
            self.clock.has_released = false;
        }
        Ok(has_asked)
    }

    /// A request of a client that is logged in.
    fn ask(&mut self, stream: StreamId, request: Request, len: usize) {
        self.renew();
        if identity::may_bring_credentials(&request) {
            self.look_at_certificate();
        }
        let (Role::Main(main, context) | Role::Unauthenticated(main, context)) = &self.role else { return };
        let (all, context) = (Arc::clone(&main.all), context.clone());
        self.unanswered += 1;
        let len = len + room_of_paths(&request);
        let pending = Pending { stream, request, client: None, len, began: Instant::now(), parts_bytes: 0 };
        if self.is_draining && matches!(pending.request, Request::Open(_)) {
            let failure = Failure::new(ErrorCode::OVERLOADED, "the server is stopping; try again later");
            return self.answered(&pending, Err(failure));
        }
        if let Err(outcome) = self.allowance() {
            return self.answered(&pending, outcome);
        }
        if let Some(pending) = self.answer_at_once(pending, &all, &context) {
            self.pending_bytes += pending.len;
            self.waiting.push_back(pending);
        }
    }

    /// The settings of this moment, for what begins now.
    fn renew(&mut self) {
        if self.current.has_changed().unwrap_or(false) {
            self.generation = Arc::clone(&self.current.borrow_and_update());
            self.front = Arc::clone(&self.generation.front);
            self.renew_paces();
            if let Role::Main(_, context) | Role::Unauthenticated(_, context) | Role::Bound(_, context) =
                &mut self.role
            {
                context.generation = Arc::clone(&self.generation);
            }
        }
    }

    fn handle(&mut self, event: Event) -> io::Result<()> {
        self.clock.active = Instant::now();
        match &event {
            Event::Answered(pending, _) | Event::AnsweredLater(pending, _) => {
                self.with_task -= 1;
                self.pending_bytes -= pending.len;
            }
            Event::Read(..) | Event::Vector(..) | Event::Refilled(_) | Event::Piece(..) => self.cold -= 1,
            Event::ComesLater(_)
            | Event::Delegated(_)
            | Event::Returned(_)
            | Event::Lost(_)
            | Event::Changed(_)
            | Event::HasRoom
            | Event::End => {}
        }
        match event {
            Event::Answered(pending, outcome) => self.answered(&pending, outcome),
            Event::ComesLater(stream) => {
                // In XRootD's words.
                let (within_s, text) = (limits::ROOT_LATER.as_secs() as u32, "Job scheduled.");
                self.outbox.begin();
                self.outbox.push(&answer::wait(stream, Status::WAITRESP, within_s, text));
            }
            Event::AnsweredLater(pending, outcome) => self.answered_later(&pending, outcome),
            Event::Read(mut job, Ok((buffer, part, begin))) => {
                let progress = job.push_read(&mut self.outbox, buffer, part, begin);
                job.count_since(&self.front.data.metrics, begin);
                self.went_on_reading(job, progress);
            }
            Event::Read(job, Err(cause)) => self.failed_reading(job, &cause),
            Event::Vector(job, Ok((buffer, end, before))) => {
                let progress = job.push_read(&mut self.outbox, buffer, end);
                job.count_since(&self.front.data.metrics, before);
                self.went_on_with_vector(job, progress);
            }
            Event::Vector(job, Err(cause)) => self.failed_with_vector(&job, &cause),
            Event::Refilled(read) => {
                let (buffer, part, source) = read?;
                self.outbox.refill(buffer, part, source);
            }
            Event::Piece(mut pending, rest, Ok((piece, has_more))) => match has_more {
                true => {
                    let before = self.outbox.pushed_bytes();
                    self.outbox.answer(pending.stream, Status::OKSOFAR, piece);
                    pending.parts_bytes += self.outbox.pushed_bytes() - before;
                    self.jobs.push_back(Job::Pieces(pending, rest));
                }
                false => self.answered(&pending, Ok(Answer::Ok(piece))),
            },
            Event::Piece(pending, _, Err(cause)) => {
                let failure = Failure::new(ErrorCode::IO_ERROR, failure_text(&cause));
                self.answered(&pending, Err(failure));
            }
            Event::Delegated(job) | Event::Returned(job) => {
                self.renew();
                self.unanswered += 1;
                self.jobs.push_back(Job::Read(job));
            }
            Event::Lost(stream) => {
                let what = "the connection that the answer came on has ended";
                self.outbox.failure(stream, &Failure::new(ErrorCode::IO_ERROR, what));
            }
            Event::Changed(queue) => self.changes.ended(queue, &self.events),
            Event::HasRoom => {}
            Event::End => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        Ok(())
    }

    /// Sends the outcome of a request.
    pub(super) fn answered(&mut self, pending: &Pending, outcome: Outcome) {
        self.unanswered -= 1;
        let stream = pending.stream;
        let before = self.outbox.pushed_bytes();
        let failure = match outcome {
            Ok(Answer::Ok(body)) => {
                self.outbox.answer(stream, Status::OK, body);
                None
            }
            Ok(Answer::Pieces { first, rest }) => {
                if !first.is_empty() {
                    self.outbox.answer(stream, Status::OKSOFAR, first);
                }
                self.unanswered += 1;
                let parts_bytes = self.outbox.pushed_bytes() - before;
                let (request, client) = (pending.request.clone(), pending.client.clone());
                let pending = Pending { request, client, parts_bytes, ..*pending };
                self.jobs.push_back(Job::Pieces(pending, rest));
                return;
            }
            Ok(Answer::PageStatus { offset, corrections }) => {
                let list = corrections.map(|list| list.encode()).unwrap_or_default();
                let status = StatusAnswer {
                    stream,
                    request: pending.request.id(),
                    is_partial: false,
                    data_len: u32::try_from(list.len()).unwrap_or(u32::MAX),
                    offset,
                };
                self.outbox.begin();
                self.outbox.push(&status.encode());
                self.outbox.push_vec(list);
                None
            }
            Ok(Answer::Wait(seconds, text)) => {
                self.outbox.begin();
                self.outbox.push(&answer::wait(stream, Status::WAIT, seconds, &text));
                // It was not done.
                Some(Failure::new(ErrorCode::OVERLOADED, text))
            }
            Err(failure) => {
                self.outbox.failure(stream, &failure);
                self.is_ending |= failure.closes;
                Some(failure)
            }
        };
        let bytes_out = pending.parts_bytes + self.outbox.pushed_bytes() - before;
        self.record(pending, failure.as_ref(), bytes_out);
    }

    /// The same, after its client was told that the answer comes later.
    fn answered_later(&mut self, pending: &Pending, outcome: Result<Vec<u8>, Failure>) {
        self.unanswered -= 1;
        let before = self.outbox.pushed_bytes();
        let failure = match outcome {
            Ok(body) => {
                self.outbox.begin();
                self.outbox.push_vec(answer::deferred(pending.stream, Status::OK, &body));
                None
            }
            Err(failure) => {
                let message = answer::error(pending.stream, failure.code, &failure.text);
                let body = &message[RESPONSE_HEAD_BYTES..];
                self.outbox.begin();
                self.outbox.push_vec(answer::deferred(pending.stream, Status::ERROR, body));
                Some(failure)
            }
        };
        let bytes_out = self.outbox.pushed_bytes() - before;
        self.record(pending, failure.as_ref(), bytes_out);
    }

    fn record(&self, pending: &Pending, failure: Option<&Failure>, bytes_out: u64) {
        if let Some(context) = self.context() {
            let client = pending.client.as_ref().unwrap_or(&context.client);
            log::answered(context, client, &pending.request, pending.began, failure, bytes_out);
        }
    }

    fn context(&self) -> Option<&Context<S>> {
        match &self.role {
            Role::Main(_, context) | Role::Unauthenticated(_, context) | Role::Bound(_, context) => {
                Some(context)
            }
            Role::NotLoggedIn => None,
        }
    }

    /// Goes on with answers, as long as the socket may take them soon, and begins requests whose turn it is.
    fn make_answers(&mut self) {
        while self.has_room() {
            let Some(job) = self.jobs.pop_front() else { break };
            self.advance(job);
        }
        while self.may_begin() {
            let Role::Main(main, context) = &self.role else { break };
            let (all, context) = (Arc::clone(&main.all), context.clone());
            let next = match self.changes.next() {
                Some(next) => Some(next),
                None => {
                    let Some(pending) = self.waiting.pop_front() else { break };
                    self.changes.admit(change_queue_of(&context, &pending.request), pending, &self.events)
                }
            };
            if let Some((pending, turn)) = next {
                self.begin_task(pending, turn, &all, context);
            }
        }
    }

    /// True if a request can be begun that has to be a task. Each may have an answer that is long.
    fn may_begin(&self) -> bool {
        let ahead = match self.memory.lacks_output {
            true => limits::ROOT_OUTPUT_BYTES_FREE,
            false => limits::ROOT_ANSWERS_BYTES_MAX,
        };
        self.with_task < limits::ROOT_TASKS_MAX && self.outbox.held_bytes() < ahead
    }

    /// True if the next answer can be gone on with.
    fn has_room(&self) -> bool {
        let ahead = if self.memory.lacks_output { limits::ROOT_OUTPUT_BYTES_FREE } else { AHEAD_BYTES };
        self.outbox.held_bytes() < ahead && !self.outbox.has_sources() && self.may_be_cold()
    }

    /// There may be one more part of an answer that has a task and, as each of those, a buffer. One there may always be:
    /// without memory for more, answers go on one part after the other.
    pub(super) fn may_be_cold(&self) -> bool {
        self.cold < if self.memory.lacks_output { 1 } else { limits::ROOT_TASKS_MAX }
    }

    /// A part of an answer has a task, with a buffer that counts like those that wait to be sent.
    pub(super) fn begins_cold(&mut self) {
        self.cold += 1;
        self.cover_memory();
    }

    /// Has the budget of memory cover what there is of requests and answers.
    fn cover_memory(&mut self) {
        let input_bytes = self.wire.inbox.len_with_room(self.awaited_bytes) + self.pending_bytes;
        let output_bytes = self.outbox.held_bytes() + self.cold * limits::IO_BYTES;
        self.memory.cover(&self.front, input_bytes, output_bytes);
    }

    pub(super) fn advance(&mut self, job: Job) {
        let is_tls = self.wire.stream.is_tls();
        match job {
            Job::Read(mut job) => {
                let before = job.at();
                let outcome = job.step(&mut self.outbox, is_tls);
                job.count_since(&self.front.data.metrics, before);
                match outcome {
                    Ok(progress) => self.went_on_reading(job, progress),
                    Err(cause) => self.failed_reading(job, &cause),
                }
            }
            Job::Vector(mut job) => {
                let before = job.next();
                let outcome = job.step(&mut self.outbox);
                job.count_since(&self.front.data.metrics, before);
                match outcome {
                    Ok(progress) => self.went_on_with_vector(job, progress),
                    Err(cause) => self.failed_with_vector(&job, &cause),
                }
            }
            Job::Pieces(pending, rest) => self.make_piece(pending, rest),
        }
    }

    fn went_on_reading(&mut self, job: ReadJob, progress: Progress) {
        match progress {
            Progress::More => self.jobs.push_front(Job::Read(job)),
            Progress::Cold => self.read_cold(job),
            Progress::Done => {
                self.unanswered -= 1;
                self.record(&job.pending, None, 0);
                self.keep_until_sent(job);
            }
        }
    }

    fn failed_reading(&mut self, job: ReadJob, cause: &io::Error) {
        self.answered(&job.pending, Err(job.failure(cause)));
        self.keep_until_sent(job);
    }

    /// A request of another connection counts there until all of its answer was sent.
    fn keep_until_sent(&mut self, job: ReadJob) {
        self.unsent.extend(job.delegation.map(|delegation| (delegation, self.outbox.pushed_bytes())));
    }

    fn went_on_with_vector(&mut self, job: VectorJob, progress: Progress) {
        match progress {
            Progress::More => self.jobs.push_front(Job::Vector(job)),
            Progress::Cold => self.read_vector_cold(job),
            Progress::Done => {
                self.unanswered -= 1;
                self.pending_bytes -= job.pending.len;
                self.record(&job.pending, None, 0);
            }
        }
    }

    fn failed_with_vector(&mut self, job: &VectorJob, cause: &io::Error) {
        self.pending_bytes -= job.pending.len;
        self.answered(&job.pending, Err(job.failure(cause)));
    }

    /// Sends what there is, as far as the socket takes it; returns true if the socket is full.
    fn send(&mut self) -> io::Result<bool> {
        let now = match self.outbox.is_empty() && !self.wire.stream.has_unsent() {
            true => {
                self.clock.full_since = None;
                // Once it is over, it is no reason to look again.
                self.clock.held_until = self.clock.held_until.filter(|until| *until > Instant::now());
                return Ok(false);
            }
            false => Instant::now(),
        };
        let mut is_full = false;
        loop {
            if self.clock.held_until.is_some_and(|until| until > now) {
                break;
            }
            self.clock.held_until = None;
            if self.clock.allowed == 0 {
                self.clock.allowed = usize::MAX;
                if let Some(pace) = &self.front.data.pace {
                    let left = self.outbox.pushed_bytes() - self.outbox.sent_bytes();
                    let left = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, limits::IO_BYTES);
                    let (count, wait) = pace.take(left);
                    self.clock.allowed = count;
                    if !wait.is_zero() {
                        self.clock.held_until = Some(now + wait);
                        continue;
                    }
                }
            }
            // As much as may be sent between two looks at everything else.
            let allowed = self.clock.allowed.min(4 * limits::IO_BYTES);
            let mut moved = 0;
            let sent = self.outbox.send(&mut self.wire.stream, allowed, &mut moved)?;
            if let Some(pace) = &self.front.data.pace {
                let beyond = moved.saturating_sub(self.clock.allowed);
                self.clock.allowed -= moved.min(self.clock.allowed);
                // What cannot be cut was sent before it was due.
                let wait = if beyond > 0 { pace.owe(beyond as u64) } else { Duration::ZERO };
                if !wait.is_zero() {
                    self.clock.held_until = Some(now + wait);
                }
            }
            let sent_bytes = self.outbox.sent_bytes();
            while let Some((delegation, _)) = self.unsent.pop_front_if(|(_, end)| *end <= sent_bytes) {
                delegation.settle();
            }
            if moved > 0 {
                self.clock.active = now;
                let waited = self.clock.full_since.take().map_or(Duration::ZERO, |since| now - since);
                self.clock.patience.note(moved as u64, waited).map_err(|slow| slow.of_sending())?;
                if !self.paces.are_none() {
                    let wait = self.paces.owe(moved as u64);
                    if !wait.is_zero() {
                        self.clock.held_until = self.clock.held_until.max(Some(now + wait));
                    }
                }
            }
            match sent {
                Sent::All => {
                    self.clock.patience = Patience::new(&self.front.data.deadlines);
                    break;
                }
                Sent::Full => {
                    is_full = true;
                    self.clock.full_since.get_or_insert(now);
                    break;
                }
                Sent::Cold(source) => {
                    self.refill_cold(source);
                    break;
                }
                Sent::Waiting => break,
                Sent::Some => {}
            }
        }
        Ok(is_full)
    }
}

/// The queue of a request that changes names.
fn change_queue_of<S: Service>(context: &Context<S>, request: &Request) -> Option<usize> {
    S::change_queue(context, changed(request)?)
}

/// Memory of a list of paths beside its bytes: a path may be a single letter.
fn room_of_paths(request: &Request) -> usize {
    let paths = match request {
        Request::Statx(statx) => statx.paths.len(),
        Request::Prepare(prepare) => prepare.lines.len(),
        _ => 0,
    };
    // A vector, and the smallest allocation.
    paths * (size_of::<Vec<u8>>() + 32)
}
