//! The journal of a partial file, as a file that is locked while it is open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use rustix::io::Errno;

use super::{Owner, Records, Unusable, is_named, open_or_make};
use crate::journal::Record;
use crate::journal_key::JournalKeys;
use crate::target::Found;

/// A journal that no other process has.
pub(crate) struct JournalFile {
    directory: Arc<OwnedFd>,
    name: OsString,
    file: File,
    records: Records,
}

/// The lock alone, before it is known what the journal is about.
pub(crate) struct Locked {
    directory: Arc<OwnedFd>,
    name: OsString,
    file: File,
}

impl Locked {
    /// Opens or makes the journal `name`.
    pub(crate) fn take(directory: &Arc<OwnedFd>, name: &OsStr, mode: u32) -> Result<Locked, Unusable> {
        loop {
            let file = open_or_make(directory, name, mode, Owner::Ours)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(Unusable::Locked),
                // The process that held the lock may have finished and removed the file between the two calls.
                Ok(()) if !is_named(&file, directory, name) => {}
                // Where the file system has no locks it is as safe as without this program.
                Ok(()) | Err(_) => {
                    return Ok(Locked { directory: Arc::clone(directory), name: name.to_owned(), file });
                }
            }
        }
    }

    /// The journal of the file that is called `about`, with this inode, once it is complete.
    pub(crate) fn of(self, keys: &JournalKeys, about: &[u8], inode: u64) -> JournalFile {
        let Locked { directory, name, file } = self;
        JournalFile { directory, name, file, records: Records::new(keys, about, inode) }
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

impl JournalFile {
    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// True if records count for a later copy.
    pub(crate) fn is_recorded(&self) -> bool {
        self.records.is_recorded()
    }

    /// Reads what an earlier copy has left. `is_empty`: there is not one byte of it.
    pub(crate) fn look(&self, is_empty: bool) -> io::Result<Found> {
        self.records.read(&self.file, is_empty)
    }

    /// Appends to it.
    pub(crate) fn record(&self, records: &[Record]) -> io::Result<()> {
        self.records.append(records, |text, at| self.file.write_all_at(text, at))
    }

    /// Forgets all records.
    pub(crate) fn restart(&self) -> io::Result<()> {
        self.records.restart(|| self.file.set_len(0))
    }

    /// Removes its name. It stays locked until it is dropped.
    pub(super) fn remove(&self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
