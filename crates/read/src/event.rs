//! Events: the input of the transport.

use std::time::Duration;

use gridlane_core::{ByteRange, Error};
use gridlane_plan::{LaneId, Loss, RequestId, SourceId};

/// The abilities of a connection, told when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Elements that one request may have: 1 where the server takes single ranges only.
    pub elements_max: usize,
    /// Bytes that one element may have.
    pub element_bytes_max: u64,
    /// Requests may be sent before earlier ones are answered.
    pub pipelines: bool,
    /// The connection was used before: its window need not grow first.
    pub warm: bool,
}

/// An event that the engine tells. Events about sources, lanes and requests that the reader does not know (any more) are ignored.
#[derive(Clone, Debug)]
pub enum Event<P> {
    /// A source states the size of the file. The first statement counts; a source that states another size is not used. When
    /// most of the sources contradict the first, every read fails.
    Size {
        /// Which source.
        source: SourceId,
        /// The size in bytes.
        size_bytes: u64,
    },
    /// A lane is connected, has the file open, and takes requests.
    Ready {
        /// Which lane.
        lane: LaneId,
        /// The time from a question to its answer, if the handshake showed it.
        round_trip: Option<Duration>,
        /// The abilities of the server.
        abilities: Abilities,
    },
    /// The abilities of a connection turned out to be others than were told when it was ready.
    Able {
        /// Which lane.
        lane: LaneId,
        /// What they are.
        abilities: Abilities,
    },
    /// Bytes of an answer arrived, in any order and in parts of any size.
    Part {
        /// Which request.
        request: RequestId,
        /// Offset of the first byte in the file.
        offset: u64,
        /// The bytes.
        payload: P,
    },
    /// The answer ended in good order. What it should have brought and did not is asked for again: it was cut short.
    Done {
        /// Which request.
        request: RequestId,
    },
    /// The request was refused, or its answer is not to be believed (a checksum of a page); the connection lives on. A request
    /// that was taken back ends with this or with `Done`.
    Failed {
        /// Which request.
        request: RequestId,
        /// Why.
        error: Error,
    },
    /// The server ignores ranges: the answer is the whole file from its first byte on.
    WholeBody {
        /// Which request.
        request: RequestId,
    },
    /// The connection is gone, and its unfinished requests with it.
    Lost {
        /// Which lane.
        lane: LaneId,
        /// Why, as the plan of a copy is told.
        loss: Loss,
        /// The failure, for the text of a read that fails in the end.
        error: Error,
    },
    /// Bytes of the file are kept near by, on the disk, as this source has them. Told after the source's [`Size`](Event::Size).
    Stored {
        /// Which source.
        source: SourceId,
        /// The bytes, ascending.
        ranges: Vec<ByteRange>,
    },
    /// Stored bytes are here, as [`Recall`](crate::Action::Recall) wanted them; in parts of any size.
    Recalled {
        /// Offset of the first byte in the file.
        offset: u64,
        /// The bytes.
        payload: P,
    },
    /// Bytes are stored no more, or turned out to be damaged.
    Unstored {
        /// The bytes.
        range: ByteRange,
    },
    /// The source must never be used again (not found, denied, changed, lied).
    Dead {
        /// Which source.
        source: SourceId,
        /// Why.
        error: Error,
    },
}
