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
//! which tells what came of it ([`Event`]). When too much was asked for and not answered, or not taken by the client, no
//! further request is read.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::limits;
use gridlane_net::Stream;
use gridlane_xrd::answer::{self, LoginAnswer};
use gridlane_xrd::request::{Auth, Bind, Login};
use gridlane_xrd::server::{Machine, Step};
use gridlane_xrd::{ErrorCode, Request, Status, StreamId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant as Deadline, sleep_until, timeout};

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use super::files;
use super::outbox::{Outbox, Sent};
use super::reading::{Progress, ReadJob, Source, VectorJob};
use super::session::{Joined, Main};
use crate::buffers::Lent;
use crate::reply::Pieces;
use crate::rules::Client;
use crate::settings::RootAuth;
use crate::shared::{Current, Pace, Phase, Shared};
use crate::transfer::Patience;

/// Bytes read at a time where requests are expected.
const READ_BYTES: usize = 8 * 1024;

/// Answers are made ahead of the socket up to here.
const AHEAD_BYTES: usize = 256 * 1024;

/// Without a request for this long, a connection gives back its buffers.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// What a connection is told.
pub(crate) enum Event {
    /// A request was answered.
    Answered(StreamId, Outcome),
    /// A part of a read that waited for a disk is there.
    Read(ReadJob, io::Result<(Lent, Range<usize>, u64)>),
    /// The same of many reads.
    Vector(VectorJob, io::Result<(Lent, usize)>),
    /// Bytes that were promised already are there.
    Refilled(io::Result<(Lent, Range<usize>, Source)>),
    /// The next piece of an answer that is made while it is sent, whether it is the last, and where others come from.
    Piece(StreamId, Box<dyn Pieces>, io::Result<(Vec<u8>, bool)>),
    /// A read that was asked for on another connection.
    Delegated(ReadJob),
    /// The connection that was to answer this read cannot any longer.
    Returned(StreamId, Result<ReadJob, Failure>),
    /// The session is over.
    End,
}

/// An answer that is made step by step.
pub(crate) enum Job {
    Read(ReadJob),
    Vector(VectorJob),
    /// The next piece is to be made.
    Pieces(StreamId, Box<dyn Pieces>),
}

/// What a connection is to its session.
enum Role {
    /// Nobody has logged in.
    Stranger,
    /// Its client has to prove who it is.
    Unproved(Main, Context),
    /// The one that it began with.
    Main(Main, Context),
    /// Another one, that carries answers.
    Bound(Joined),
}

/// A connection.
pub(crate) struct Connection {
    /// As of the last request.
    pub(super) shared: Arc<Shared>,
    /// As of now.
    current: Current,
    /// There except while TLS begins.
    stream: Stream,
    phase: watch::Receiver<Phase>,
    machine: Machine,
    inbox: Inbox,
    pub(super) outbox: Outbox,
    role: Role,
    pub(super) client: Client,
    pub(super) jobs: VecDeque<Job>,
    /// Requests whose turn has not come.
    waiting: VecDeque<(StreamId, Request)>,
    /// What waits for something.
    pub(super) tasks: JoinSet<()>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    told: mpsc::UnboundedReceiver<Event>,
    /// Requests that were read and whose answer is not in the outbox.
    pub(super) unanswered: usize,
    /// Nothing more is read, and what is to be sent ends with what there is.
    is_ending: bool,
    clock: Clock,
    /// The client's rate limit, if it has one.
    pace: Option<Arc<Pace>>,
}

/// What happened when.
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
}

/// Bytes that were read and not used.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// So many are needed before anything else happens.
    needed: usize,
}

impl Inbox {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.needed = 0;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > READ_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// Room for what comes next: never for more than twice of what has come.
    fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < READ_BYTES / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let len = self.needed.min(2 * self.end).max(self.end + READ_BYTES);
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[self.end..]
    }

    fn release(&mut self) {
        if self.start == self.end {
            *self = Inbox::default();
        }
    }
}

impl Connection {
    pub(crate) fn new(mut current: Current, stream: Stream, phase: watch::Receiver<Phase>) -> Connection {
        let shared = Arc::clone(&current.borrow_and_update());
        let client = Client { address: stream.peer().ip().to_canonical() };
        let (events, told) = mpsc::unbounded_channel();
        let now = Instant::now();
        let clock = Clock {
            began: now,
            active: now,
            request_began: None,
            full_since: None,
            held_until: None,
            allowed: 0,
            patience: Patience::new(&shared.deadlines),
            has_released: false,
        };
        Connection {
            machine: Machine::new(shared.acceptor.has_tls()),
            outbox: Outbox::new(Arc::clone(&shared.buffers)),
            pace: shared.throttle.pace(client.address, &shared.client_limits),
            shared,
            current,
            stream,
            phase,
            inbox: Inbox::default(),
            role: Role::Stranger,
            client,
            jobs: VecDeque::new(),
            waiting: VecDeque::new(),
            tasks: JoinSet::new(),
            events,
            told,
            unanswered: 0,
            is_ending: false,
            clock,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        let outcome = self.run().await;
        let Connection { mut stream, shared, role, mut jobs, mut told, mut outbox, mut tasks, .. } = self;
        tasks.abort_all();
        match role {
            Role::Main(main, _) | Role::Unproved(main, _) => {
                main.close();
                files::end_all(&shared, &main.link.session.files).await;
            }
            Role::Bound(joined) => {
                let main = joined.link.main().clone();
                drop(joined);
                // Nobody gets in any longer; what is here still is answered there.
                told.close();
                while let Ok(event) = told.try_recv() {
                    match event {
                        Event::Delegated(job) | Event::Read(job, _) => jobs.push_back(Job::Read(job)),
                        _ => {}
                    }
                }
                let _ = main;
                drop(jobs);
            }
            Role::Stranger => {}
        }
        let _ = outbox.is_empty();
        drop(outbox);
        if outcome.is_ok() {
            linger(&mut stream, shared.deadlines.linger).await;
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        let mut timer = std::pin::pin!(sleep_until(Deadline::now()));
        loop {
            consume_budget().await;
            let mut is_busy = false;
            while let Ok(event) = self.told.try_recv() {
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
            is_busy |= self.take_requests().await?;
            self.make_answers()?;
            let is_full = self.send()?;
            if self.is_over() {
                return Ok(());
            }
            let wants_input = self.wants_input();
            if wants_input {
                match self.stream.try_read(self.inbox.room())? {
                    Some(0) => return Ok(()),
                    Some(count) => {
                        self.inbox.end += count;
                        is_busy = true;
                    }
                    None => {}
                }
            }
            if is_busy {
                continue;
            }
            let deadline = self.next_deadline()?.map(Deadline::from_std);
            // Earlier than needed is good enough: most of what it is for never happens.
            if let Some(deadline) = deadline
                && (timer.deadline() > deadline || timer.is_elapsed())
            {
                timer.as_mut().reset(deadline);
            }
            let mut event = None;
            tokio::select! {
                biased;
                told = self.told.recv() => event = told,
                ready = self.stream.ready(wants_input, is_full) => ready?,
                _ = self.phase.wait_for(|phase| *phase == Phase::Stopping), if !self.is_ending => {
                    // What runs is finished, and nothing else is begun.
                    self.is_ending = true;
                }
                () = &mut timer, if deadline.is_some() => {}
            }
            if let Some(event) = event {
                self.handle(event)?;
            }
        }
    }

    /// Whether everything was done that is to be done.
    fn is_over(&self) -> bool {
        self.is_ending
            && self.unanswered == 0
            && self.jobs.is_empty()
            && self.outbox.is_empty()
            && !self.stream.has_unsent()
    }

    fn wants_input(&self) -> bool {
        !self.is_ending && !self.is_overfull()
    }

    /// Whether so much is to be done for the client that it may ask for nothing else.
    fn is_overfull(&self) -> bool {
        self.unanswered >= limits::ROOT_REQUESTS_MAX
            || self.outbox.held_bytes() >= limits::ROOT_ANSWERS_BYTES_MAX
    }

    /// Begins what the client has asked for; whether it has asked for something.
    async fn take_requests(&mut self) -> io::Result<bool> {
        let mut has_asked = false;
        while self.wants_input() {
            let (used, step) = self.machine.step(self.inbox.unread());
            if let Step::More(needed) = step {
                self.inbox.needed = needed;
                let has_begun = !self.inbox.unread().is_empty();
                if !has_begun {
                    self.clock.request_began = None;
                } else if self.clock.request_began.is_none() {
                    self.clock.request_began = Some(Instant::now());
                }
                break;
            }
            self.inbox.consume(used);
            self.clock.request_began = None;
            has_asked = true;
            match step {
                Step::More(_) | Step::Ignored => {}
                Step::Say(said) => self.outbox.push(&said),
                Step::End(said) => {
                    self.outbox.push(&said);
                    self.is_ending = true;
                }
                Step::StartTls(said) => {
                    self.outbox.push(&said);
                    self.start_tls().await?;
                }
                Step::Login(stream, login) => self.login(stream, &login)?,
                Step::Auth(stream, auth) => self.authenticate(stream, &auth),
                Step::Bind(stream, bind) => self.bind(stream, &bind),
                Step::Request(stream, request) => self.ask(stream, request),
                Step::Data(stream, request, _) => {
                    let _ = (stream, request);
                    self.is_ending = true;
                }
            }
        }
        if has_asked {
            self.clock.active = Instant::now();
            self.clock.has_released = false;
        }
        Ok(has_asked)
    }

    /// Sends what there is in clear text, and begins with TLS.
    async fn start_tls(&mut self) -> io::Result<()> {
        let deadline = self.shared.deadlines.head;
        let flushed = async {
            loop {
                let mut moved = 0;
                match self.outbox.send(&mut self.stream, usize::MAX, &mut moved)? {
                    Sent::Full => self.stream.ready(false, true).await?,
                    _ => return Ok::<(), io::Error>(()),
                }
            }
        };
        timeout(deadline, flushed).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let ahead = std::mem::take(&mut self.inbox);
        let shared = Arc::clone(&self.shared);
        shared.acceptor.upgrade(&mut self.stream, ahead.unread()).await.map_err(io::Error::other)?;
        self.machine.tls_begun();
        Ok(())
    }

    fn login(&mut self, stream: StreamId, login: &Login) -> io::Result<()> {
        self.renew();
        let user = String::from_utf8_lossy(&login.user);
        let user = user.chars().filter(|char| !char.is_control()).collect();
        let (address, is_tls) = (self.client.address, self.stream.is_tls());
        let main = self.shared.root_sessions.begin(user, address, is_tls, self.events.clone())?;
        let methods: &[u8] = match self.shared.root_auth {
            RootAuth::None => b"",
            RootAuth::Host => b"&P=host",
            RootAuth::Unix => b"&P=unix",
        };
        let session = Arc::clone(&main.link.session);
        let mut body = Vec::new();
        LoginAnswer { session: session.id, methods: methods.to_vec() }.encode(&mut body);
        self.outbox.answer(stream, Status::OK, body);
        self.machine.logged_in(!methods.is_empty());
        let context = Context { shared: Arc::clone(&self.shared), client: self.client, session };
        self.role = match methods.is_empty() {
            true => Role::Main(main, context),
            false => Role::Unproved(main, context),
        };
        Ok(())
    }

    fn authenticate(&mut self, stream: StreamId, auth: &Auth) {
        let offered: &[u8] = match self.shared.root_auth {
            RootAuth::Host => b"host",
            RootAuth::None | RootAuth::Unix => b"unix",
        };
        if auth.kind != offered {
            let kind = String::from_utf8_lossy(&auth.kind).replace(char::is_control, "");
            let text = format!("{kind} security protocol is not supported.");
            return self.outbox.failure(stream, &Failure::new(ErrorCode::AUTH_FAILED, text));
        }
        self.role = match std::mem::replace(&mut self.role, Role::Stranger) {
            Role::Unproved(main, context) => Role::Main(main, context),
            other => other,
        };
        self.machine.authenticated();
        self.outbox.answer(stream, Status::OK, Vec::new());
    }

    fn bind(&mut self, stream: StreamId, bind: &Bind) {
        let (address, is_tls) = (self.client.address, self.stream.is_tls());
        let joined =
            self.shared.root_sessions.join(bind.session, address, is_tls, self.events.clone());
        match joined {
            Ok(joined) => {
                self.outbox.answer(stream, Status::OK, vec![joined.path_id.0]);
                self.role = Role::Bound(joined);
                self.machine.bound();
            }
            Err(failure) => self.outbox.failure(stream, &failure),
        }
    }

    /// A request of somebody who is logged in.
    fn ask(&mut self, stream: StreamId, request: Request) {
        self.renew();
        let (Role::Main(main, context) | Role::Unproved(main, context)) = &self.role else { return };
        let (link, context) = (Arc::clone(&main.link), context.clone());
        self.unanswered += 1;
        if let Err(wait) = self.shared.throttle.request(self.client.address, &self.shared.client_limits) {
            self.shared.metrics.throttled.add(1);
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            let answer = Answer::Wait(seconds, "this client asks too often".to_owned());
            return self.answered(stream, Ok(answer));
        }
        if let Some(request) = self.answer_at_once(stream, request, &link, &context) {
            self.waiting.push_back((stream, request));
        }
    }

    /// The settings of this moment, for what begins now.
    fn renew(&mut self) {
        if self.current.has_changed().unwrap_or(false) {
            self.shared = Arc::clone(&self.current.borrow_and_update());
            self.pace = self.shared.throttle.pace(self.client.address, &self.shared.client_limits);
            if let Role::Main(_, context) | Role::Unproved(_, context) = &mut self.role {
                context.shared = Arc::clone(&self.shared);
            }
        }
    }

    fn handle(&mut self, event: Event) -> io::Result<()> {
        self.clock.active = Instant::now();
        match event {
            Event::Answered(stream, outcome) => self.answered(stream, outcome),
            Event::Read(mut job, Ok((buffer, part, begin))) => {
                match job.push_read(&mut self.outbox, buffer, part, begin) {
                    Progress::Done => self.unanswered -= 1,
                    Progress::More | Progress::Cold => self.jobs.push_front(Job::Read(job)),
                }
            }
            Event::Read(job, Err(cause)) => self.answered(job.stream, Err(job.failure(&cause))),
            Event::Vector(job, Ok((buffer, end))) => match job.push_read(&mut self.outbox, buffer, end) {
                Progress::Done => self.unanswered -= 1,
                Progress::More | Progress::Cold => self.jobs.push_front(Job::Vector(job)),
            },
            Event::Vector(job, Err(cause)) => self.answered(job.stream, Err(job.failure(&cause))),
            Event::Refilled(read) => {
                let (buffer, part, source) = read?;
                self.outbox.refill(buffer, part, source);
            }
            Event::Piece(stream, rest, Ok((piece, has_more))) => match has_more {
                true => {
                    self.outbox.answer(stream, Status::OKSOFAR, piece);
                    self.jobs.push_back(Job::Pieces(stream, rest));
                }
                false => self.answered(stream, Ok(Answer::Ok(piece))),
            },
            Event::Piece(stream, _, Err(cause)) => {
                let failure = Failure::new(ErrorCode::IO_ERROR, crate::transfer::told(&cause));
                self.answered(stream, Err(failure));
            }
            Event::Delegated(job) => {
                self.unanswered += 1;
                self.jobs.push_back(Job::Read(job));
            }
            Event::Returned(_, Ok(job)) => {
                self.unanswered += 1;
                self.jobs.push_back(Job::Read(job));
            }
            Event::Returned(stream, Err(failure)) => self.outbox.failure(stream, &failure),
            Event::End => self.is_ending = true,
        }
        Ok(())
    }

    /// A request has come to this.
    pub(super) fn answered(&mut self, stream: StreamId, outcome: Outcome) {
        self.unanswered -= 1;
        match outcome {
            Ok(Answer::Ok(body)) => self.outbox.answer(stream, Status::OK, body),
            Ok(Answer::Pieces { first, rest }) => {
                self.unanswered += 1;
                if !first.is_empty() {
                    self.outbox.answer(stream, Status::OKSOFAR, first);
                }
                self.jobs.push_back(Job::Pieces(stream, rest));
            }
            Ok(Answer::Redirect(redirect)) => {
                let mut body = Vec::new();
                redirect.encode(&mut body);
                self.outbox.answer(stream, Status::REDIRECT, body);
            }
            Ok(Answer::Wait(seconds, text)) => {
                self.outbox.push(&answer::wait(stream, Status::WAIT, seconds, &text));
            }
            Err(failure) => {
                self.outbox.failure(stream, &failure);
                self.is_ending |= failure.closes;
            }
        }
    }

    /// Goes on with answers, as long as the socket may take them soon, and begins requests whose turn it is.
    fn make_answers(&mut self) -> io::Result<()> {
        while self.outbox.held_bytes() < AHEAD_BYTES && !self.outbox.has_sources() {
            let Some(job) = self.jobs.pop_front() else { break };
            if self.tasks.len() >= limits::ROOT_TASKS_MAX && !matches!(job, Job::Read(_)) {
                self.jobs.push_front(job);
                break;
            }
            self.advance(job);
        }
        while self.tasks.len() < limits::ROOT_TASKS_MAX {
            let Some((stream, request)) = self.waiting.pop_front() else { break };
            let Role::Main(main, context) = &self.role else { break };
            let (link, context) = (Arc::clone(&main.link), context.clone());
            self.begin_task(stream, request, &link, context);
        }
        Ok(())
    }

    fn advance(&mut self, job: Job) {
        let is_tls = self.stream.is_tls();
        match job {
            Job::Read(mut job) => match job.step(&mut self.outbox, is_tls) {
                Ok(Progress::More) => self.jobs.push_front(Job::Read(job)),
                Ok(Progress::Done) => self.unanswered -= 1,
                Ok(Progress::Cold) => self.read_cold(job),
                Err(cause) => self.answered(job.stream, Err(job.failure(&cause))),
            },
            Job::Vector(mut job) => match job.step(&mut self.outbox) {
                Ok(Progress::More) => self.jobs.push_front(Job::Vector(job)),
                Ok(Progress::Done) => self.unanswered -= 1,
                Ok(Progress::Cold) => self.read_vector_cold(job),
                Err(cause) => self.answered(job.stream, Err(job.failure(&cause))),
            },
            Job::Pieces(stream, rest) => self.make_piece(stream, rest),
        }
    }

    /// Sends what there is, as far as the socket takes it; whether it is full.
    fn send(&mut self) -> io::Result<bool> {
        let now = match self.outbox.is_empty() && !self.stream.has_unsent() {
            true => {
                self.clock.full_since = None;
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
                if let Some(pace) = &self.shared.pace {
                    let (count, wait) = pace.take(limits::IO_BYTES);
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
            let sent = self.outbox.send(&mut self.stream, allowed, &mut moved)?;
            if self.shared.pace.is_some() {
                self.clock.allowed -= moved.min(self.clock.allowed);
            }
            self.shared.metrics.bytes_out.add(moved as u64);
            if moved > 0 {
                self.clock.active = now;
                let waited = self.clock.full_since.take().map_or(Duration::ZERO, |since| now - since);
                self.clock.patience.note(moved as u64, waited).map_err(|slow| slow.of_sending())?;
                if let Some(pace) = &self.pace {
                    let wait = pace.owe(moved as u64);
                    if !wait.is_zero() {
                        self.clock.held_until = Some(now + wait);
                    }
                }
            }
            match sent {
                Sent::All => {
                    self.clock.patience = Patience::new(&self.shared.deadlines);
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

    /// When to look again at the latest; an error when it is too late for something.
    fn next_deadline(&mut self) -> io::Result<Option<Instant>> {
        let now = Instant::now();
        let deadlines = &self.shared.deadlines;
        let mut next: Option<Instant> = None;
        let mut earliest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        if let Some(until) = self.clock.held_until {
            earliest(until);
        }
        if let Some(since) = self.clock.full_since {
            let end = since + deadlines.body_stall;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        }
        if let Some(began) = self.clock.request_began {
            let end = began + deadlines.head;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        }
        if !self.machine.is_in() {
            let end = self.clock.began + deadlines.head;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        } else if self.unanswered == 0 && self.outbox.is_empty() {
            if !self.clock.has_released {
                let end = self.clock.active + RELEASE_AFTER;
                if now >= end {
                    self.clock.has_released = true;
                    self.inbox.release();
                    self.stream.release_buffers();
                } else {
                    earliest(end);
                }
            }
            // One that was joined lives as long as its session.
            if matches!(self.role, Role::Main(..)) {
                let end = self.clock.active + deadlines.root_idle;
                if now >= end {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                earliest(end);
            }
        }
        Ok(next)
    }
}

/// Ends our direction, then reads and drops what the client still sends.
async fn linger(stream: &mut Stream, deadline: Duration) {
    let drained = async {
        stream.shutdown().await?;
        let mut buffer = [0; 4096];
        let mut dropped = 0;
        while dropped < limits::BODY_DRAIN_BYTES_MAX {
            match stream.read(&mut buffer).await? {
                0 => break,
                count => dropped += count as u64,
            }
        }
        Ok::<(), io::Error>(())
    };
    // Whatever comes of it, the connection ends now.
    let _ = timeout(deadline, drained).await;
}
