//! Payloads that are made piece by piece while they are sent.

use std::io;
use std::sync::Arc;

use gridlane_share::Turns;

/// What makes a streamed payload. It has one piece in memory at a time, however slow the client is.
pub trait Pieces: Send {
    /// The turns of the device that the next piece may wait for.
    fn turns(&self) -> &Arc<Turns>;

    /// Appends the next piece: about [`STREAM_PIECE_BYTES`](gridlane_core::limits::STREAM_PIECE_BYTES), and never nothing unless
    /// it is the last. Whether more follows. Called where blocking is allowed. After a failure the connection is
    /// cut: what was sent is not made to look complete.
    fn next(&mut self, out: &mut Vec<u8>) -> io::Result<bool>;
}
