//! Actions: the output of the reader.

use gridlane_core::{ByteRange, Error};
use gridlane_plan::{LaneId, RequestId, SourceId};

use crate::call::ReadId;

/// An order for the engine.
#[derive(Debug)]
pub enum Action<P> {
    /// Connect a lane to the source and open the file; answer with `Ready` or `Lost`, in bounded time.
    Connect {
        /// Name of the new lane.
        lane: LaneId,
        /// Where to.
        source: SourceId,
    },
    /// Ask for ranges on the lane, behind the requests it has; answer with `Part`s, then `Done` or `Failed`.
    Request {
        /// Which lane.
        lane: LaneId,
        /// Name of the new request.
        request: RequestId,
        /// The bytes: ascending, none empty, none touching the next unless an element would be too large. Several are for one
        /// vector, or as many single requests where the engine knows that they are cheaper.
        ranges: Vec<ByteRange>,
    },
    /// Nothing waits for the request any more: it need not be sent if it was not, and may be stopped where the protocol can.
    TakeBack {
        /// Which request.
        request: RequestId,
    },
    /// Read stored bytes; answer with `Recalled` and `Unstored`, which together have all of them.
    Recall {
        /// The bytes: none is in two such orders at a time.
        ranges: Vec<ByteRange>,
    },
    /// Drop the connection; answer with `Lost`.
    Close {
        /// Which lane.
        lane: LaneId,
    },
    /// Bytes for a range of a call, in any order; each byte of it exactly once.
    Bytes {
        /// Which call.
        read: ReadId,
        /// Place of the range in the call.
        index: usize,
        /// Offset of the first byte in the file.
        offset: u64,
        /// The bytes.
        payload: P,
    },
    /// A range of a call has all its bytes.
    RangeDone {
        /// Which call.
        read: ReadId,
        /// Place of the range in the call.
        index: usize,
        /// Number of bytes: fewer than asked for at the end of the file.
        bytes: u64,
    },
    /// The call ended; said exactly once, after everything else about it.
    End {
        /// Which call.
        read: ReadId,
        /// Success, or the reason.
        result: Result<(), Error>,
    },
}
