//! The planner of one file, behind a lock, and everything that its actions change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use gridlane_core::{ByteRange, Error, Time};
use gridlane_peer::Client;
use gridlane_plan::{LaneId, RequestId};
use gridlane_read::{Action, Call as Wish, Event, ReadId, Reader};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use super::call::Call;
use super::disk::Disk;
use super::lane::{Command, Lane, Lanes, Order};
use super::learning::{Learning, known, learn};
use super::options::ReadOptions;
use super::piece::Piece;
use super::proof::{Proof, prove};
use crate::source::Source;

/// What the application's calls, the lanes and the clock share.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) options: ReadOptions,
    pub(super) sources: Vec<Arc<Source>>,
    pub(super) disk: Disk,
    /// Says to the clock that the planner wants to be woken earlier than it thought.
    pub(super) earlier: Notify,
    pub(super) runtime: Handle,
    origin: Instant,
    state: Mutex<State>,
}

/// See [`Shared`].
pub(super) struct State {
    pub(super) reader: Reader<Piece>,
    pub(super) calls: HashMap<ReadId, Call>,
    pub(super) proof: Proof,
    lanes: HashMap<LaneId, mpsc::UnboundedSender<Command>>,
    /// The lane of each request that may be taken back.
    requests: HashMap<RequestId, LaneId>,
    /// When the clock wakes the planner.
    due: Option<Time>,
    learning: Learning,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.sources.iter().map(|source| source.url.to_string()).collect();
        f.debug_struct("Shared").field("sources", &names).finish_non_exhaustive()
    }
}

impl Shared {
    /// A file of which nothing is known. In a runtime.
    pub(super) fn new(sources: Vec<Arc<Source>>, client: Client, options: ReadOptions) -> Shared {
        let mut settings = options.settings.clone();
        settings.lanes_at_first = settings.lanes_at_first.min(Lanes::at_first());
        let mut reader = Reader::new(settings);
        for source in &sources {
            reader.add_source_known(known(&client, &source.url));
        }
        let state = State {
            reader,
            calls: HashMap::new(),
            proof: Proof::NotYet,
            lanes: HashMap::new(),
            requests: HashMap::new(),
            due: None,
            learning: Learning::default(),
        };
        let disk = Disk::new(sources.len());
        Shared {
            client,
            options,
            sources,
            disk,
            earlier: Notify::new(),
            runtime: Handle::current(),
            origin: Instant::now(),
            state: Mutex::new(state),
        }
    }

    /// Time since the file was opened.
    pub(super) fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    /// The instant of a time.
    pub(super) fn instant(&self, time: Time) -> tokio::time::Instant {
        (self.origin + time.since_origin()).into()
    }

    /// The state, for a moment.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the planner, and then what it says.
    pub(super) fn drive<T>(self: &Arc<Shared>, doing: impl FnOnce(&mut State, Time) -> T) -> T {
        let mut woken = Vec::new();
        let mut state = self.state();
        let now = self.now();
        let done = doing(&mut state, now);
        while let Some(action) = state.reader.poll(now) {
            self.carry_out(&mut state, action, &mut woken);
        }
        let due = state.reader.deadline();
        let is_earlier = due.is_some_and(|due| state.due.is_none_or(|before| due < before));
        state.due = due;
        let is_whole =
            !self.options.skips_proof && matches!(state.proof, Proof::NotYet) && state.reader.is_whole();
        if is_whole {
            state.proof = Proof::Begun;
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if is_earlier {
            self.earlier.notify_one();
        }
        if is_whole {
            self.runtime.spawn(prove(Arc::downgrade(self)));
        }
        done
    }

    /// Begins a call.
    pub(super) fn read(self: &Arc<Shared>, ranges: &[ByteRange], deadline: Option<Time>) -> ReadId {
        self.drive(|state, now| {
            let wish = Wish { ranges: ranges.to_vec(), deadline };
            let id = state.reader.read(now, wish);
            state.calls.insert(id, Call::new(ranges));
            id
        })
    }

    /// The application does not want to know more of a call.
    pub(super) fn forget(self: &Arc<Shared>, id: ReadId, is_over: bool) {
        if is_over {
            self.state().calls.remove(&id);
            return;
        }
        self.drive(|state, now| {
            state.calls.remove(&id);
            state.reader.cancel(now, id);
        });
    }

    /// Things that a lane tells, in their order.
    pub(super) fn tell(self: &Arc<Shared>, events: Vec<Event<Piece>>) {
        if events.is_empty() {
            return;
        }
        self.drive(|state, now| {
            for event in events {
                match &event {
                    Event::Done { request } | Event::Failed { request, .. } => {
                        state.learning.note();
                        state.requests.remove(request);
                    }
                    Event::Lost { lane, .. } => {
                        state.lanes.remove(lane);
                        state.requests.retain(|_, of| of != lane);
                    }
                    _ => {}
                }
                state.reader.handle(now, event);
            }
            if state.learning.is_due(now) {
                self.learn(state);
            }
        });
    }

    fn carry_out(self: &Arc<Shared>, state: &mut State, action: Action<Piece>, woken: &mut Vec<Waker>) {
        match action {
            Action::Connect { lane, source } => {
                let (sender, commands) = mpsc::unbounded_channel();
                state.lanes.insert(lane, sender);
                let Some(source) = self.sources.get(source.0 as usize).cloned() else { return };
                let lane = Lane { id: lane, source, shared: Arc::clone(self), _counted: Lanes::begin() };
                self.runtime.spawn(lane.run(commands));
            }
            Action::Request { lane, request, ranges } => {
                state.requests.insert(request, lane);
                self.command(state, lane, Command::Request(Order { request, ranges }));
            }
            Action::TakeBack { request } => {
                if let Some(lane) = state.requests.get(&request).copied() {
                    self.command(state, lane, Command::TakeBack(request));
                }
            }
            Action::Recall { ranges } => self.recall(ranges),
            Action::Close { lane } => self.command(state, lane, Command::Close),
            Action::Bytes { read, index, offset, payload } => {
                if let Some(call) = state.calls.get_mut(&read) {
                    call.fill(index, offset, payload);
                }
            }
            Action::RangeDone { read, index, bytes } => {
                if let Some(call) = state.calls.get_mut(&read) {
                    call.complete(index, bytes);
                    woken.extend(call.news());
                }
            }
            Action::End { read, result } => {
                if let Some(call) = state.calls.get_mut(&read) {
                    call.end(result);
                    woken.extend(call.news());
                }
            }
        }
    }

    /// A lane that is gone says so by itself.
    fn command(&self, state: &State, lane: LaneId, command: Command) {
        if let Some(sender) = state.lanes.get(&lane) {
            let _ = sender.send(command);
        }
    }

    fn learn(&self, state: &State) {
        learn(&self.client, self.sources.iter().map(|source| &**source), &state.reader);
    }

    /// Nothing is read any more.
    pub(super) fn close(self: &Arc<Shared>) {
        self.drive(|state, now| {
            if !state.reader.is_closed() && state.learning.ends(now) {
                self.learn(state);
            }
            state.reader.close(now);
        });
        // The clock ends.
        self.earlier.notify_one();
    }

    /// The bytes in memory are not what the server says that the file has: whatever is read from now on fails.
    pub(super) fn distrust(self: &Arc<Shared>, error: Error) {
        self.drive(|state, now| state.reader.give_up(now, error));
    }
}
