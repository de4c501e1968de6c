//! Where the bytes of a copy land, in any order, until they are the file.
//!
//! A copy that can go on after a kill writes to something that has no name yet, and beside it a [`journal`](mod@crate::journal)
//! that tells which of its bytes are whose. [`Target`] is both together: a file beside its final path on this machine
//! ([`path_target`](crate::path_target)), a hidden file of an export ([`Targets`]), or memory
//! ([`MemoryTarget`](crate::memory::MemoryTarget)).
//!
//! ```text
//! opened, with what was [`Found`] ─▶ write_at, read_at, record … by many at once ─┬▶ commit    visible, all at once
//!                                                                                 ├▶ drop      kept, to go on with
//!                                                                                 └▶ discard   gone
//! ```
//!
//! Its calls block. Whatever may wait for the device is called in one of its [`turns`](Target::turns).

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_share::Turns;

use crate::error::{StoreError, StoreResult};
use crate::journal::{Journaled, Record};
use crate::journal_key::JournalKeys;
use crate::path::ObjectPath;
use crate::storage::{BoxFuture, Committed, Completion};

/// The state in which a target was found when it was opened.
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

    /// True if records count for a later copy. Where they do not, recording does nothing.
    fn is_recorded(&self) -> bool;

    /// Appends to the journal.
    fn record(&self, records: &[Record]) -> Result<()>;

    /// Forgets everything: no bytes, no records.
    fn restart(&self) -> Result<()>;

    /// Forgets the records, and keeps the bytes: the caller can tell which of them are right.
    fn restart_journal(&self) -> Result<()>;

    /// True if bytes that were written may be others by now, because another program has cut or replaced what is there, which should
    /// have `size_bytes`.
    ///
    /// # Errors
    ///
    /// `LocalIo` when what was written is no longer what would be committed.
    fn is_doubtful(&self, size_bytes: u64) -> Result<bool>;

    /// Brings what was written to the device, as far as the target promises durability. A copy calls it while it may still be
    /// stopped: little is left then for a commit to wait for, which is never interrupted.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

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

/// The targets of a storage: one at most for each path, which is kept until it is committed or discarded, or
/// [abandoned](crate::Storage::remove_abandoned).
pub trait Targets: Send + Sync {
    /// Opens or makes the target for a file that shall be at `path`. Everything that can be refused before the bytes come is
    /// refused here: a missing parent, a directory in the way, and fewer free bytes than are still missing of those that are
    /// expected. [`Locked`](StoreError::Locked), at once: another copy has it open.
    fn open_target<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a TargetOptions,
    ) -> BoxFuture<'a, StoreResult<(Arc<dyn Target>, Found)>>;

    /// The length of all targets together that are kept and not open, as far as they are kept with what is on the device of
    /// the directory at `directory`. The root's device is that of most; a directory where another one is mounted keeps its own.
    fn unfinished_bytes<'a>(&'a self, directory: &'a ObjectPath) -> BoxFuture<'a, StoreResult<u64>>;
}

/// The way in which a target is opened.
#[derive(Clone, Debug, Default)]
pub struct TargetOptions {
    /// The length that the file will have, where that is known.
    pub expected_bytes: Option<u64>,
    /// Where the key of its journal is. Without one no record of an earlier copy counts, and nothing is recorded.
    pub keys: JournalKeys,
    /// Makes directories that are missing.
    pub parents: bool,
}

/// The failure of a storage, at a target of this name.
pub(crate) fn failed(name: impl Display, error: StoreError) -> Error {
    let has_no_space = matches!(error, StoreError::NoSpace | StoreError::OverQuota);
    let error = Error::from(error);
    let fault = if error.kind() == ErrorKind::Precondition { Fault::Caller } else { Fault::Local };
    let named = Error::new(error.kind(), format!("{name}: {}", error.message())).fault(fault);
    if has_no_space { named.no_space() } else { named }
}

/// Methods of a target that are passed on to the one inside as they are.
macro_rules! delegate_target {
    ($($method:ident),* $(,)?) => {
        $($crate::target::delegate_target!(@ $method);)*
    };
    (@ turns) => {
        fn turns(&self) -> &Arc<Turns> {
            self.inner.turns()
        }
    };
    (@ name) => {
        fn name(&self) -> String {
            self.inner.name()
        }
    };
    (@ size_bytes) => {
        fn size_bytes(&self) -> gridlane_core::Result<u64> {
            self.inner.size_bytes()
        }
    };
    (@ allocated_bytes) => {
        fn allocated_bytes(&self) -> u64 {
            self.inner.allocated_bytes()
        }
    };
    (@ free_bytes) => {
        fn free_bytes(&self) -> Option<u64> {
            self.inner.free_bytes()
        }
    };
    (@ write_at) => {
        fn write_at(&self, bytes: &[u8], offset: u64) -> gridlane_core::Result<()> {
            self.inner.write_at(bytes, offset)
        }
    };
    (@ read_at) => {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
            self.inner.read_at(into, offset)
        }
    };
    (@ journal) => {
        fn is_recorded(&self) -> bool {
            self.inner.is_recorded()
        }

        fn record(&self, records: &[$crate::journal::Record]) -> gridlane_core::Result<()> {
            self.inner.record(records)
        }

        fn restart_journal(&self) -> gridlane_core::Result<()> {
            self.inner.restart_journal()
        }
    };
    (@ restart) => {
        fn restart(&self) -> gridlane_core::Result<()> {
            self.inner.restart()
        }
    };
    (@ is_doubtful) => {
        fn is_doubtful(&self, size_bytes: u64) -> gridlane_core::Result<bool> {
            self.inner.is_doubtful(size_bytes)
        }
    };
    (@ sync) => {
        fn sync(&self) -> gridlane_core::Result<()> {
            self.inner.sync()
        }
    };
    (@ commit) => {
        fn commit(&self, size_bytes: u64, completion: &Completion) -> gridlane_core::Result<Committed> {
            self.inner.commit(size_bytes, completion)
        }
    };
    (@ discard) => {
        fn discard(&self) {
            self.inner.discard();
        }
    };
}
pub(crate) use delegate_target;
