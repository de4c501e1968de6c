//! Payloads that are made piece by piece while they are sent.

use std::io;

use gridlane_store::BoxFuture;

/// The source of a streamed payload. It has one piece in memory at a time, however slow the client is.
pub trait Pieces: Send {
    /// Appends the next piece: about [`STREAM_PIECE_BYTES`](gridlane_core::limits::STREAM_PIECE_BYTES), and never
    /// nothing unless it is the last. Returns true if more follows. After a failure the connection is cut: an
    /// incomplete answer is not made to look complete.
    ///
    /// Nothing is held for it while it waits, neither a turn nor a thread.
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>>;

    /// The client has closed its connection, and the rest is not wanted any longer. It is called before the source is dropped;
    /// one that is dropped without that was cut off by the server's end.
    fn client_left(&mut self) {}
}
