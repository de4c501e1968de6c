//! The notices that lanes, digest requests and the target send to the copy.

use std::time::Duration;

use gridlane_core::{Checksum, Error};
use gridlane_plan::{LaneId, Loss};
use tokio::sync::mpsc;

use crate::links::ServerLinks;
use crate::pieces::Found;
use crate::source::Identity;

/// One message; all go to the copy's single queue, so their order is that in which things happened.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A lane is connected.
    Dialled { lane: LaneId, round_trip: Option<Duration>, handshake_round_trips: u32 },
    /// The kernel has seen a round trip; `loaded` is that of the data that came last. So many packets have come out of
    /// order on its connection.
    RoundTrip { lane: LaneId, round_trip: Duration, loaded: Option<Duration>, out_of_order: Option<u32> },
    /// A source said for the first time how large its object is (it may not say).
    Identified { source: u32, size_bytes: Option<u64> },
    /// The lane's answers come in good order while more requests are under way.
    Pipelines { lane: LaneId },
    /// Bytes of the lane's oldest request arrived; `fresh_bytes` of them were new and are written.
    Received { lane: LaneId, bytes: u64, fresh_bytes: u64 },
    /// The answer to the oldest request is over.
    RequestDone { lane: LaneId },
    /// The answer to the oldest request is the whole object.
    WholeBody { lane: LaneId, size_bytes: Option<u64> },
    /// The lane is gone.
    Lost { lane: LaneId, loss: Loss, error: Option<Error> },
    /// The source is of no use any more. `forget`: the bytes that it sent do not count either.
    Dead { source: u32, error: Error, forget: bool },
    /// The lane waits for the target, or not any more.
    Blocked { lane: LaneId, blocked: bool },
    /// A target written in order has taken everything before this offset.
    Released { up_to_bytes: u64 },
    /// A source was asked for the object's checksum, and this is all that it says: none, if there are none. `identity` is
    /// which version it said to have then.
    Digest { source: u32, checksums: Vec<Checksum>, identity: Option<Identity> },
    /// A source states checksums of the object that it was not asked for.
    Stated { source: u32, checksums: Vec<Checksum> },
    /// A source was asked for a strong checksum of the object, and this is all that it says; `None`: it did not answer.
    Strong { source: u32, checksums: Option<Vec<Checksum>> },
    /// A lane's digest request was answered without a checksum.
    DigestUnsaid { source: u32 },
    /// A server named other replicas of the file, or its metalink.
    ServerLinks { source: u32, served: ServerLinks },
    /// A piece was compared with its checksum, and that is news.
    Piece { index: u64, found: Found },
    /// This machine failed: the copy cannot go on.
    LocalFailure { error: Error },
}

/// Waiting longer than this, for a turn at the target or for it to take bytes, is told to the plan.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Does something during which the plan knows that the lane cannot go on.
pub(crate) async fn blocked<T>(
    notices: &mpsc::UnboundedSender<Notice>,
    lane: LaneId,
    doing: impl Future<Output = T>,
) -> T {
    // The copy may be over, with its receiver: the notices are then of no use.
    let _ = notices.send(Notice::Blocked { lane, blocked: true });
    let outcome = doing.await;
    let _ = notices.send(Notice::Blocked { lane, blocked: false });
    outcome
}
