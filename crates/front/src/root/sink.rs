//! The destination of a request's data.
//!
//! The connection fills what a sink gives it, and can do other things while it waits for bytes:
//!
//! ```text
//! room, took … until there is no room ─▶ write ─┬▶ room …
//!                                               └▶ is_done ─▶ finish: the answer
//! ```

use gridlane_xrd::{ErrorCode, RequestHead, RequestId};

use super::answer::{Failure, Outcome};

/// Takes the data of one request.
pub trait Sink: Send + 'static {
    /// The place of the next bytes. None: what has come is to be [written](Sink::write), or it is
    /// [done](Sink::is_done).
    fn room(&mut self) -> &mut [u8];

    /// So many bytes came into the [`room`](Sink::room).
    fn took(&mut self, count: usize);

    /// True if nothing is left to be taken and written.
    fn is_done(&self) -> bool;

    /// Writes what has come.
    fn write(&mut self) -> impl Future<Output = ()> + Send;

    /// The answer, when it is [done](Sink::is_done).
    fn finish(self) -> impl Future<Output = Outcome> + Send;
}

/// Takes the data of a request for nothing, so that the connection goes on, and refuses it.
pub struct NoData {
    left: u64,
    buffer: [u8; ROOM_BYTES],
    failure: Failure,
}

/// Bytes that are dropped at a time.
const ROOM_BYTES: usize = 4096;

impl NoData {
    /// Of a service that takes no data.
    pub fn new(head: &RequestHead) -> NoData {
        let mut failure = Failure::new(ErrorCode::UNSUPPORTED, "this server takes no data");
        // The end of its data is not known before their list was read.
        failure.closes = matches!(head.id, RequestId::WRITEV | RequestId::CHKPOINT);
        NoData { left: head.payload_len.into(), buffer: [0; ROOM_BYTES], failure }
    }
}

impl Sink for NoData {
    fn room(&mut self) -> &mut [u8] {
        let len = usize::try_from(self.left).map_or(ROOM_BYTES, |left| left.min(ROOM_BYTES));
        &mut self.buffer[..len]
    }

    fn took(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    async fn write(&mut self) {}

    async fn finish(self) -> Outcome {
        Err(self.failure)
    }
}
