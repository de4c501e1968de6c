//! Lanes: one task per connection that carries ranges from one source to the target.
//!
//! A lane does what the plan tells it and tells the copy what happened, nothing else: it neither
//! retries nor decides. It is never aborted while it writes, so what it claimed it also commits.

pub(crate) mod answered;
mod digest_request;
pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod root;
mod tally;
#[cfg(test)]
mod tests;
mod version;

pub(crate) use file::{identity_of as identity_of_object, open as open_file};
pub(crate) use version::difference;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use gridlane_core::limits::LANE_THREADS_MAX;
use gridlane_core::{ByteRange, ChecksumKind, Error, Scheme};
use gridlane_peer::Client;
use gridlane_plan::{LaneId, Loss};
use gridlane_sys::tcp::TcpInfo;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::notice::Notice;
use crate::pace::Pace;
use crate::source::Source;
use crate::target::Target;

/// A command of the run to a lane.
#[derive(Debug)]
pub(crate) enum Command {
    /// Ask for these bytes, behind what was asked for before.
    Request(ByteRange),
    /// Send the digest request now, if the lane has one and no requests for bytes.
    Ask,
    /// Drop the connection.
    Close,
}

/// A lane's orders; their end is the order to close.
pub(crate) type Commands = mpsc::UnboundedReceiver<Command>;

/// Everything a lane works with.
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) source: Arc<Source>,
    pub(crate) target: Arc<Target>,
    pub(crate) client: Client,
    pub(crate) pace: Arc<Pace>,
    /// It asks for the checksum too: with its first request, or when it is told to.
    pub(crate) asks: Option<DigestQuery>,
    /// The kind of checksum that sources are asked for, if what they state of others without having been asked is of
    /// interest.
    pub(crate) listens: Option<ChecksumKind>,
    pub(crate) notices: mpsc::UnboundedSender<Notice>,
}

/// The request for a checksum and for links that a lane makes along with those for bytes, where that spares a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DigestQuery {
    pub(crate) kind: ChecksumKind,
    /// Other replicas that the server names are of interest.
    pub(crate) follow_links: bool,
}

/// Lanes to a near source: as many as were seen to help. Two that write to one file of tmpfs wait for each other for 7 % of
/// their time.
const LANES_NEAR: usize = 2;

/// Lanes that have a thread of their own.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a lane that has a thread of its own, until it is dropped.
struct LaneThread;

impl LaneThread {
    /// `None`: there are as many as there may be.
    fn begin() -> Option<LaneThread> {
        let more = |threads| (threads < LANE_THREADS_MAX).then_some(threads + 1);
        THREADS.fetch_update(Relaxed, Relaxed, more).is_ok().then_some(LaneThread)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Relaxed);
    }
}

/// No lane may have a thread of its own.
static THREADS_ARE_FEW: AtomicBool = AtomicBool::new(false);

/// Lets no lane have a thread of its own from now on: for a process that may have few, of which one that a lane keeps would be
/// missed where files are read back.
pub fn threads_are_few() {
    THREADS_ARE_FEW.store(true, Relaxed);
}

/// See [`crate::forget_copies`].
pub(crate) fn forget() {
    THREADS.store(0, Relaxed);
}

/// The most lanes that a near source may have here: more than one where the runtime leaves a processor to others.
pub(crate) fn lanes_near() -> usize {
    if THREADS_ARE_FEW.load(Relaxed) {
        return 1;
    }
    let processors = gridlane_sys::process::processors();
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    LANES_NEAR.min(1 + processors.saturating_sub(workers))
}

/// A lane at work, which ends with this where it waits.
pub(crate) struct Running {
    task: JoinHandle<()>,
    /// Of a lane that has a thread of its own: when this is dropped, it is ended where it waits.
    thread: Option<oneshot::Sender<()>>,
}

impl Running {
    /// True if it has a thread of its own.
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Waits until it has ended, up to `deadline`; `false`: it has not.
    async fn end_by(&mut self, deadline: Instant) -> bool {
        timeout_at(deadline, &mut self.task).await.is_ok()
    }

    /// Ends it where it waits.
    fn cut(&mut self) {
        match self.thread.take() {
            Some(thread) => drop(thread),
            None => self.task.abort(),
        }
    }
}

/// Waits until all have ended; after `patience`, ends those that have not where they wait.
pub(crate) async fn end_all(mut lanes: Vec<Running>, patience: Duration) {
    let deadline = Instant::now() + patience;
    let mut late = Vec::new();
    for mut lane in lanes.drain(..) {
        if !lane.end_by(deadline).await {
            lane.cut();
            late.push(lane);
        }
    }
    for mut lane in late {
        let _ = (&mut lane.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A copy into something that takes no bytes does not wait for its lanes, and they hold what they have for it.
        self.cut();
    }
}

/// The end of a lane.
pub(crate) enum End {
    /// The loss of its connection, in the plan's terms.
    Lost(Loss, Option<Error>),
    /// The source is of no use any more; `forget` when the bytes that it sent do not count.
    Dead { error: Error, forget: bool },
    /// This machine failed.
    Local(Error),
}

impl Lane {
    /// Starts it on the threads of the runtime.
    pub(crate) fn spawn(self, commands: Commands) -> Running {
        Running { task: tokio::spawn(Box::pin(self.run(commands))), thread: None }
    }

    /// Starts it on a thread of its own, if the process may have another one for that. The runtime of a copy has one thread for
    /// each connection that it expects: on more of them a single connection moves from one to the other, and costs a fifth
    /// more.
    pub(crate) fn spawn_thread(self, commands: Commands) -> Running {
        let Some(counted) = LaneThread::begin() else { return self.spawn(commands) };
        let (thread, ended) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let task = tokio::task::spawn_blocking(move || {
            let _counted = counted;
            runtime.block_on(async {
                tokio::select! {
                    () = self.run(commands) => {}
                    _ = ended => {}
                }
            });
        });
        Running { task, thread: Some(thread) }
    }

    /// Runs until the connection or the copy ends.
    pub(crate) async fn run(self, mut commands: Commands) {
        // However this ends, the run learns that the lane is gone.
        let mut farewell = Farewell { notices: self.notices.clone(), lane: self.id, is_told: false };
        let end = match self.source.url.scheme() {
            Scheme::File => file::run(&self, &mut commands).await,
            Scheme::Http | Scheme::Https => http::run(&self, &mut commands).await,
            Scheme::Root | Scheme::Roots => root::run(&self, &mut commands).await,
        };
        farewell.is_told = true;
        match end {
            End::Lost(loss, error) => self.tell(Notice::Lost { lane: self.id, loss, error }),
            End::Dead { error, forget } => {
                self.tell(Notice::Dead { source: self.source.number, error, forget });
                self.tell(Notice::Lost { lane: self.id, loss: Loss::Closed, error: None });
            }
            End::Local(error) => {
                self.tell(Notice::LocalFailure { error });
                self.tell(Notice::Lost { lane: self.id, loss: Loss::Closed, error: None });
            }
        }
    }

    /// Tells what the kernel knows of the path.
    fn tell_path(&self, path: &TcpInfo) {
        let TcpInfo { round_trip, loaded_round_trip: loaded, out_of_order } = *path;
        self.tell(Notice::RoundTrip { lane: self.id, round_trip, loaded, out_of_order });
    }

    /// The copy may be over, with its receiver: the notice is then of no use.
    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }
}

/// Tells that a lane is gone when its task ends without a notice of its own, as by a panic.
struct Farewell {
    notices: mpsc::UnboundedSender<Notice>,
    lane: LaneId,
    is_told: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.is_told {
            let _ = self.notices.send(Notice::Lost { lane: self.lane, loss: Loss::Failed, error: None });
        }
    }
}

/// A wait that the source asked for, kept to what anyone would wait.
pub(crate) fn bounded(wait: Option<Duration>) -> Option<Duration> {
    wait.map(|wait| wait.min(Duration::from_secs(600)))
}
