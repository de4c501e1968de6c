//! A file that is being written and becomes visible, under its own name, only when it is complete.
//!
//! For a target `dir/name` there are, while it is written, `dir/.name.gridlane-part` (the bytes) and
//! `dir/.name.gridlane-journal` (see [`journal`](mod@crate::journal)). The order of a successful end:
//! bytes synced, partial file renamed to the target, journal removed. A crash between two steps leaves
//! either a partial file with a journal that describes it, or the complete target and a journal
//! without a partial file, which the next copy to that name drops.
//!
//! One process at a time: the journal is locked while it is open.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gridlane_core::limits::NAME_BYTES_MAX;
use gridlane_core::name::{JOURNAL_END, PART_END};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::journal::{self, JOURNAL_VERSION, Journaled, Record, Unusable};

/// The partial file and the journal of one target.
#[derive(Debug)]
pub struct PartialFile {
    target: PathBuf,
    part_path: PathBuf,
    part: File,
    journal_path: PathBuf,
    journal: File,
    /// Where the next record goes.
    journal_bytes: Mutex<u64>,
}

/// What was found when a partial file was opened.
#[derive(Debug)]
pub enum Found {
    /// Nothing of an earlier copy.
    Nothing,
    /// An earlier copy's journal, to be checked against the bytes and against the sources.
    Earlier(Journaled),
    /// Something that cannot be used, and why; it is dropped.
    Dropped(String),
}

impl PartialFile {
    /// Opens or makes the partial file of `target`, whose directory must exist.
    pub fn open(target: &Path) -> Result<(PartialFile, Found)> {
        // A link is followed once, here, so that the file it names is replaced and not the link.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let (part_path, journal_path) = beside(&target)?;
        let journal = lock(&journal_path, &target)?;
        let part = open(&part_path)?;
        let read = journal::read(&journal)
            .map_err(|cause| Error::local_io(format!("cannot read {}", journal_path.display()), &cause))?;
        let partial =
            PartialFile { target, part_path, part, journal_path, journal, journal_bytes: Mutex::new(0) };
        let found = match read {
            Ok((journaled, good_bytes)) => {
                *partial.journal_end() = good_bytes;
                Found::Earlier(journaled)
            }
            Err(Unusable::Empty) if partial.size()? == 0 => Found::Nothing,
            Err(Unusable::Empty | Unusable::Damaged) => Found::Dropped("its journal is damaged".into()),
            Err(Unusable::Version(version)) => {
                Found::Dropped(format!("its journal has version {version}, not {JOURNAL_VERSION}"))
            }
        };
        Ok((partial, found))
    }

    /// Forgets everything: no bytes, no records.
    pub fn restart(&self) -> Result<()> {
        self.truncate(0)?;
        self.restart_journal()
    }

    /// Forgets the records, and keeps the bytes: whoever calls this can tell which of them are right.
    pub fn restart_journal(&self) -> Result<()> {
        self.journal.set_len(0).map_err(|cause| self.journal_error(&cause))?;
        *self.journal_end() = 0;
        Ok(())
    }

    /// Cuts or extends the partial file.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.part.set_len(size_bytes).map_err(|cause| self.write_error(&cause))
    }

    /// Appends to the journal.
    pub fn record(&self, records: &[Record]) -> Result<()> {
        let mut end = self.journal_end();
        *end = journal::append(&self.journal, *end, records).map_err(|cause| self.journal_error(&cause))?;
        Ok(())
    }

    fn journal_end(&self) -> std::sync::MutexGuard<'_, u64> {
        self.journal_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.part.write_all_at(bytes, offset).map_err(|cause| self.write_error(&cause))
    }

    /// The bytes as they are now, for reading back.
    pub fn file(&self) -> &File {
        &self.part
    }

    /// Where the complete file will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Bytes free for an unprivileged user on the target's file system.
    pub fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::fstatvfs(&self.part).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// Bytes that the partial file has on the disk already.
    pub fn allocated_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.part.metadata().map_or(0, |meta| meta.blocks() * 512)
    }

    /// Makes the file visible: its bytes are synced first, and it replaces an existing target only when
    /// `overwrite` says so.
    pub fn commit(&self, overwrite: bool) -> Result<()> {
        if let (true, Ok(old)) = (overwrite, fs::metadata(&self.target)) {
            // Who could read the old content, and nobody else, can read the new one.
            self.part.set_permissions(old.permissions()).map_err(|cause| self.write_error(&cause))?;
        }
        self.part.sync_data().map_err(|cause| self.write_error(&cause))?;
        let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match renameat_with(CWD, &self.part_path, CWD, &self.target, flags) {
            // A file system without the flag: look, then rename; the window is a few microseconds.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !self.target.exists() => {
                fs::rename(&self.part_path, &self.target)
            }
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.target),
            _ => Error::local_io(format!("cannot name it {}", self.target.display()), &cause),
        })?;
        // The name is on the disk before the journal goes. Some file systems cannot sync a directory.
        if let Some(dir) = self.target.parent().and_then(|dir| File::open(dir).ok()) {
            let _ = dir.sync_all();
        }
        // The copy is complete whether or not this succeeds; a journal alone is dropped by the next copy.
        let _ = fs::remove_file(&self.journal_path);
        Ok(())
    }

    /// Removes the partial file and its journal.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.part_path);
        let _ = fs::remove_file(&self.journal_path);
    }

    fn size(&self) -> Result<u64> {
        let meta = self.part.metadata();
        meta.map(|meta| meta.len())
            .map_err(|cause| Error::local_io(format!("cannot look at {}", self.part_path.display()), &cause))
    }

    fn write_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.part_path.display()), cause)
    }

    fn journal_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.journal_path.display()), cause)
    }
}

/// Opens the journal for one process at a time.
fn lock(journal_path: &Path, target: &Path) -> Result<File> {
    loop {
        let journal = open(journal_path)?;
        match flock(&journal, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let message = format!("another copy to {} is running", target.display());
                return Err(Error::new(ErrorKind::Precondition, message)
                    .fault(Fault::Caller)
                    .hint("wait for it, or stop it"));
            }
            // A file system without locks: as safe as without this program.
            Err(_) => return Ok(journal),
            Ok(()) => {}
        }
        // Whoever held the lock may have finished and removed the file between our two calls.
        let same = |meta: fs::Metadata| journal.metadata().is_ok_and(|ours| ours.ino() == meta.ino());
        if fs::symlink_metadata(journal_path).is_ok_and(same) {
            return Ok(journal);
        }
    }
}

/// The error for a target that is there and may not be replaced.
pub fn exists(target: &Path) -> Error {
    Error::new(ErrorKind::Precondition, format!("{} exists", target.display()))
        .fault(Fault::Caller)
        .hint("replace it with --force, or choose another name")
}

/// Where the partial file and the journal of `target` are.
pub fn beside(target: &Path) -> Result<(PathBuf, PathBuf)> {
    let name = target.file_name().ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("{} does not name a file", target.display()))
            .fault(Fault::Caller)
    })?;
    Ok((target.with_file_name(hidden(name, PART_END)), target.with_file_name(hidden(name, JOURNAL_END))))
}

/// `.name.end`; a name too long for that is shortened and told apart by its checksum.
fn hidden(name: &OsStr, end: &str) -> OsString {
    let room = NAME_BYTES_MAX - 1 - JOURNAL_END.len();
    let mut hidden = OsString::from(".");
    if name.len() <= room {
        hidden.push(name);
    } else {
        let crc = format!("~{:08x}", crc32c::crc32c(name.as_bytes()));
        hidden.push(OsStr::from_bytes(&name.as_bytes()[..room - crc.len()]));
        hidden.push(crc);
    }
    hidden.push(end);
    hidden
}

fn open(path: &Path) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = opened.map_err(|cause| {
        let error = Error::local_io(format!("cannot make {}", path.display()), &cause);
        match cause.kind() {
            io::ErrorKind::NotFound => error.hint("make the directory first"),
            _ => error,
        }
    })?;
    // Whoever can write to the directory must not make us write elsewhere, through a link of any kind, nor
    // keep a way to change what we have checked.
    let meta = file
        .metadata()
        .map_err(|cause| Error::local_io(format!("cannot look at {}", path.display()), &cause))?;
    let is_ours = meta.is_file() && meta.nlink() <= 1 && meta.uid() == rustix::process::geteuid().as_raw();
    match is_ours {
        true => Ok(file),
        false => {
            let message = format!("{} was put there by somebody else", path.display());
            Err(Error::new(ErrorKind::Denied, message).fault(Fault::Local).hint("remove it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ByteRange;

    fn begin(partial: &PartialFile, size_bytes: u64) {
        partial.restart().unwrap();
        partial.record(&[Record::object(size_bytes)]).unwrap();
    }

    #[test]
    fn nothing_is_visible_before_the_commit_and_all_of_it_after() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let (partial, found) = PartialFile::open(&target).unwrap();
        assert!(matches!(found, Found::Nothing));
        begin(&partial, 6);
        partial.write_at(b"def", 3).unwrap();
        partial.write_at(b"abc", 0).unwrap();
        assert!(!target.exists());
        partial.commit(false).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abcdef");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_target_is_replaced_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, b"old").unwrap();
        for (overwrite, expected) in [(false, &b"old"[..]), (true, b"")] {
            let (partial, _) = PartialFile::open(&target).unwrap();
            begin(&partial, 0);
            let outcome = partial.commit(overwrite);
            assert_eq!(outcome.is_ok(), overwrite);
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Precondition);
            }
            assert_eq!(fs::read(&target).unwrap(), expected);
        }
    }

    #[test]
    fn a_replaced_target_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, b"old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        let (partial, _) = PartialFile::open(&target).unwrap();
        begin(&partial, 0);
        partial.commit(true).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_earlier_copy_is_found_again_and_two_never_run_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let (partial, _) = PartialFile::open(&target).unwrap();
        begin(&partial, 6);
        partial.write_at(b"abc", 0).unwrap();
        partial.record(&[Record::Done { offset: 0, len: 3, adler32: 5, source: 0 }]).unwrap();
        let error = PartialFile::open(&target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Precondition);
        drop(partial);
        let (partial, found) = PartialFile::open(&target).unwrap();
        let Found::Earlier(journaled) = found else { panic!("{found:?}") };
        assert_eq!((journaled.size_bytes, journaled.done[0].range), (6, ByteRange::new(0, 3)));
        partial.record(&[Record::Done { offset: 3, len: 3, adler32: 6, source: 0 }]).unwrap();
        drop(partial);
        let (partial, found) = PartialFile::open(&target).unwrap();
        let Found::Earlier(journaled) = found else { panic!("{found:?}") };
        assert_eq!(journaled.done.len(), 2);
        partial.discard();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn bytes_without_a_journal_are_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(beside(&target).unwrap().0, b"whose are these?").unwrap();
        let (_partial, found) = PartialFile::open(&target).unwrap();
        assert!(matches!(found, Found::Dropped(_)), "{found:?}");
    }

    #[test]
    fn the_longest_name_has_room_for_both() {
        let dir = tempfile::tempdir().unwrap();
        for last in ["a", "b"] {
            let target = dir.path().join("n".repeat(NAME_BYTES_MAX - 1) + last);
            let (partial, found) = PartialFile::open(&target).unwrap();
            assert!(matches!(found, Found::Nothing), "names must not collide: {found:?}");
            begin(&partial, 0);
            partial.commit(false).unwrap();
        }
    }

    #[test]
    fn a_link_planted_in_our_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, victim) = (dir.path().join("f"), dir.path().join("victim"));
        fs::write(&victim, b"precious").unwrap();
        let planted = beside(&target).unwrap().0;
        for plant in [std::os::unix::fs::symlink::<&Path, &Path>, fs::hard_link::<&Path, &Path>] {
            plant(&victim, &planted).unwrap();
            assert!(PartialFile::open(&target).is_err());
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            fs::remove_file(&planted).unwrap();
        }
    }
}
