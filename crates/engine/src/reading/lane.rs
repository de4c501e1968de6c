//! Lanes of a file that is read: one task per connection, which brings what the planner asks for. Like the lanes of copies they
//! neither retry nor decide.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use gridlane_core::limits::{READ_LANES_EAGER_MAX, READ_LANES_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Scheme};
use gridlane_plan::{LaneId, Loss, RequestId, SourceId};
use gridlane_read::Event;
use tokio::sync::mpsc;

use super::batch::Batch;
use super::piece::Piece;
use super::shared::Shared;
use super::{http, root, stored};
use crate::lane::{End, difference};
use crate::source::{Identity, Source};

/// A command of the planner to a lane.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask for these, behind what was asked for before.
    Request(Order),
    /// Nothing waits for a request any more.
    TakeBack(RequestId),
    /// Drop the connection.
    Close,
}

/// A request of the planner.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) request: RequestId,
    pub(super) ranges: Vec<ByteRange>,
}

/// A lane's orders.
pub(super) type Commands = mpsc::UnboundedReceiver<Command>;

/// Lanes of all files of this process.
static LANES: AtomicUsize = AtomicUsize::new(0);

/// See [`crate::forget_copies`].
pub(crate) fn forget() {
    LANES.store(0, Relaxed);
}

/// Counts one lane while it runs.
#[derive(Debug)]
pub(super) struct Lanes;

impl Lanes {
    /// One more lane runs until this is dropped.
    pub(super) fn begin() -> Lanes {
        LANES.fetch_add(1, Relaxed);
        Lanes
    }

    /// Lanes that a file may be opened with, before it is known what is wanted of it: one where there are many already.
    pub(super) fn at_first() -> usize {
        if LANES.load(Relaxed) < READ_LANES_EAGER_MAX { READ_LANES_MAX } else { 1 }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // Those of before a fork may end after it.
        let _ = LANES.fetch_update(Relaxed, Relaxed, |lanes| lanes.checked_sub(1));
    }
}

/// Everything that a lane works with.
pub(super) struct Lane {
    pub(super) id: LaneId,
    pub(super) source: Arc<Source>,
    pub(super) shared: Arc<Shared>,
    pub(super) _counted: Lanes,
}

impl Lane {
    /// Runs until the connection or the file is closed.
    pub(super) async fn run(self, mut commands: Commands) {
        let mut farewell = Farewell { shared: Arc::clone(&self.shared), lane: self.id, is_told: false };
        let mut batch = Batch::default();
        let end = match self.source.url.scheme() {
            Scheme::File => stored::run(&self, &mut commands, &mut batch).await,
            Scheme::Http | Scheme::Https => http::run(&self, &mut commands, &mut batch).await,
            Scheme::Root | Scheme::Roots => root::run(&self, &mut commands, &mut batch).await,
        };
        farewell.is_told = true;
        let lane = self.id;
        let closed = || Error::new(ErrorKind::Interrupted, "the connection was closed");
        match end {
            End::Lost(loss, error) => {
                batch.push(Event::Lost { lane, loss, error: error.unwrap_or_else(closed) });
            }
            End::Dead { error, .. } => {
                batch.push(Event::Dead { source: SourceId(self.source.number), error });
                batch.push(Event::Lost { lane, loss: Loss::Closed, error: closed() });
            }
            End::Local(error) => batch.push(Event::Lost { lane, loss: Loss::Failed, error }),
        }
        self.tell(&mut batch);
    }

    /// Tells what has come.
    pub(super) fn tell(&self, batch: &mut Batch) {
        let events = batch.take();
        self.shared.keep(&self.source, &events);
        self.shared.tell(events);
    }

    /// Looks for the version that the source has in the cache, once: before anything that has told its size is told here.
    pub(super) async fn look_on_disk(&self) {
        self.shared.look_on_disk(&self.source).await;
    }

    /// Compares what the source says of its version with what it said before, and tells the size.
    pub(super) fn identify(&self, now: &Identity, batch: &mut Batch) -> Result<(), End> {
        self.identified(now, self.source.identify(now), batch)
    }

    /// The same of an answer with bytes, which tells all that the server knows of the version.
    pub(super) fn identify_answer(&self, now: &Identity, batch: &mut Batch) -> Result<(), End> {
        self.identified(now, self.source.identify_answer(now), batch)
    }

    fn identified(
        &self,
        now: &Identity,
        outcome: Result<bool, Identity>,
        batch: &mut Batch,
    ) -> Result<(), End> {
        match outcome {
            Ok(_) => {
                // Also where another lane has heard it first, which may have to tell it still: bytes come after the size.
                if let Some(size_bytes) = now.size_bytes {
                    batch.push(Event::Size { source: SourceId(self.source.number), size_bytes });
                }
                Ok(())
            }
            Err(before) => {
                let message = format!("the file changed while it was read: {}", difference(&before, now));
                let error = Error::new(ErrorKind::Precondition, message).fault(Fault::Peer);
                let error = error.hint("open it again").endpoint(&self.source.url);
                Err(End::Dead { error, forget: true })
            }
        }
    }
}

/// The next of something that comes by itself, or a command: what has come so far is told before it waits.
pub(super) enum Heard<T> {
    Command(Option<Command>),
    Came(T),
}

/// Waits for a command, or for `coming`, unless it is `None`; tells what has come when there is nothing at once.
pub(super) async fn hear<T>(
    lane: &Lane,
    commands: &mut Commands,
    batch: &mut Batch,
    coming: Option<impl Future<Output = T>>,
) -> Heard<T> {
    if batch.is_full() {
        lane.tell(batch);
    }
    if let Ok(command) = commands.try_recv() {
        return Heard::Command(Some(command));
    }
    let Some(coming) = coming else {
        lane.tell(batch);
        return Heard::Command(commands.recv().await);
    };
    tokio::pin!(coming);
    if let Poll::Ready(came) = once(coming.as_mut()).await {
        return Heard::Came(came);
    }
    lane.tell(batch);
    tokio::select! {
        biased;
        command = commands.recv() => Heard::Command(command),
        came = coming => Heard::Came(came),
    }
}

/// Looks once whether something is there.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Does something while commands come in, which are kept; ends it when the lane is to be closed.
pub(super) async fn meanwhile<T>(
    commands: &mut Commands,
    kept: &mut Vec<Command>,
    doing: impl Future<Output = T>,
) -> Result<T, End> {
    tokio::pin!(doing);
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Close) | None => return Err(End::Lost(Loss::Closed, None)),
                Some(command) => kept.push(command),
            },
            done = &mut doing => return Ok(done),
        }
    }
}

/// Tells that a lane is gone when its task ends without a word of its own, as by a panic.
struct Farewell {
    shared: Arc<Shared>,
    lane: LaneId,
    is_told: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.is_told {
            let error = Error::new(ErrorKind::Other, "a connection ended without a reason");
            let lost: Event<Piece> = Event::Lost { lane: self.lane, loss: Loss::Failed, error };
            self.shared.tell(vec![lost]);
        }
    }
}
