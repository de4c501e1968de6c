//! Copies from one server to another whose bytes do not come here: a server fetches them, and is told to.

pub mod root;

use gridlane_core::Checksum;

/// The state of a copy that a server makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the target has, by the word of the server that has it.
    pub done_bytes: u64,
    /// Bytes of the source, if that is known.
    pub size_bytes: Option<u64>,
}

/// A copy that a server has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its length.
    pub size_bytes: u64,
    /// The checksum of the target, if it was compared with the source's or with one that was given.
    pub checksum: Option<Checksum>,
}
