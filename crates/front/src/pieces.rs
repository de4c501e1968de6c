//! Payloads that are made piece by piece while they are sent.

use std::io;
use std::pin::Pin;

/// The next piece on its way; whether more follows it.
pub type Next<'a> = Pin<Box<dyn Future<Output = io::Result<bool>> + Send + 'a>>;

/// What makes a streamed payload. It has one piece in memory at a time, however slow the client is.
pub trait Pieces: Send {
    /// Appends the next piece: about [`STREAM_PIECE_BYTES`](gridlane_core::limits::STREAM_PIECE_BYTES), and never nothing unless
    /// it is the last. After a failure the connection is cut: what was sent is not made to look complete.
    ///
    /// Nothing is held for it while it waits. One that needs a device takes a turn there for itself; one that waits for a
    /// clock, or for what somebody else does, takes none.
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> Next<'a>;
}
