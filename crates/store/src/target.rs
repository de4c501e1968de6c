//! Where the bytes of a copy land, in any order, until they are the file.
//!
//! A copy that can go on after a kill writes to something that has no name yet, and beside it a [`journal`](mod@crate::journal)
//! that tells which of its bytes are whose. [`Target`] is both together: a file beside its final path on this machine, a hidden
//! file of an export, or memory.
//!
//! ```text
//! opened, with what was [`Found`] ─▶ write_at, read_at, record … by many at once ─┬▶ commit    visible, all at once
//!                                                                                 ├▶ drop      kept, to go on with
//!                                                                                 └▶ discard   gone
//! ```
//!
//! Its calls block. Whatever may wait for the device is called in one of its [`turns`](Target::turns).

use std::io;
use std::sync::Arc;

use gridlane_core::Result;
use gridlane_share::Turns;

use crate::journal::{Journaled, Record};
use crate::storage::{Committed, Completion};

/// What was found when a target was opened.
#[derive(Debug)]
pub enum Found {
    /// Nothing of an earlier copy.
    Nothing,
    /// An earlier copy's journal, to be checked against the bytes and against the sources.
    Earlier(Journaled),
    /// Something that cannot be used, and why; it is dropped.
    Dropped(String),
    /// An earlier copy's bytes and journal, which cannot be read without a key; why there is none.
    Locked(String),
}

/// A file that a copy writes, and that is not visible yet.
///
/// Of all methods that take `&self`, any number may run at the same time. What two write to the same place is one's or the
/// other's, or a mixture.
pub trait Target: Send + Sync + 'static {
    /// The turns of the device that it is on.
    fn turns(&self) -> &Arc<Turns>;

    /// Its final name, for messages.
    fn name(&self) -> String;

    /// Length of what is there.
    fn size_bytes(&self) -> Result<u64>;

    /// Bytes that it has on the device already: fewer than its length where there are holes.
    fn allocated_bytes(&self) -> u64;

    /// Bytes that may still be written to its device, or under its quota; `None` where that cannot be told.
    fn free_bytes(&self) -> Option<u64>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Reads at `offset` what was written. 0 is the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether a later copy will believe what is recorded here. Where it does not, recording does nothing.
    fn is_recorded(&self) -> bool;

    /// Appends to the journal.
    fn record(&self, records: &[Record]) -> Result<()>;

    /// Forgets everything: no bytes, no records.
    fn restart(&self) -> Result<()>;

    /// Forgets the records, and keeps the bytes: the caller can tell which of them are right.
    fn restart_journal(&self) -> Result<()>;

    /// Whether bytes that were written may be others by now, because another program has cut or replaced what is there, which should
    /// have `size_bytes`.
    ///
    /// # Errors
    ///
    /// `LocalIo` when what was written is no longer what would be committed.
    fn is_doubtful(&self, size_bytes: u64) -> Result<bool>;

    /// Makes the file visible under its name, all at once, cut to `size_bytes`; removes the journal.
    ///
    /// # Errors
    ///
    /// `Precondition` when what it would replace is in another state than is expected: what is here is kept.
    /// `LocalIo` when what is here is no longer what was written, or shorter, and when a step fails.
    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed>;

    /// Removes the bytes and the journal.
    fn discard(&self);
}
