//! A file that is being written and becomes visible, under its own name, only when it is complete.
//!
//! For a target `dir/name` there are, while it is written, `dir/.name.gridlane-part` (the bytes) and
//! `dir/.name.gridlane-journal` (see [`journal`](mod@crate::journal)). The order of a successful end:
//! bytes synced, partial file renamed to the target, journal removed, directory synced. A kill between two steps leaves
//! either a partial file with a journal that describes it, from which the same command goes on, or the complete target and
//! a journal without a partial file. The journal cannot go first: a kill would leave all bytes and nothing that vouches for
//! them. So the two calls follow each other at once, and a journal that is left all the same is removed by the next start
//! that finds the target complete ([`sweep`]) or replaces it. After a loss of power the file system has made both calls, the
//! first one, or none.
//!
//! What is renamed is what was written: the name must still be that of the file that is open, which must be as long as it
//! should be. Others in the directory may have put something else there, or cut it.
//!
//! One process at a time: the journal is locked while it is open. Nobody but the user can open the partial file; the target
//! gets its mode when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::limits::NAME_BYTES_MAX;
use gridlane_core::name::{JOURNAL_END, PART_END};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use gridlane_share::Turns;
use gridlane_sys::file::start_writeback;
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::journal::{self, Chain, JOURNAL_VERSION, Record, Unusable};
use crate::journal_key::JournalKeys;
use crate::links;
use crate::posix::{described, turns_of};
use crate::storage::{Committed, Completion, Expectation};
use crate::target::{Found, Target};

/// Nobody else looks at a partial file, nor changes what was compared already.
const PART_MODE: u32 = 0o600;
/// As usual: less the umask.
const JOURNAL_MODE: u32 = 0o666;

/// The partial file and the journal of one target.
pub struct PathTarget {
    turns: Arc<Turns>,
    target: PathBuf,
    part_path: PathBuf,
    part: File,
    journal_path: PathBuf,
    journal: File,
    /// Where the next record goes, and what it is tagged with; `None` where there is no key: nothing is recorded.
    journal_end: Mutex<Option<End>>,
    /// Before its first line.
    journal_begin: Option<Chain>,
}

/// The end of a journal.
#[derive(Clone, Debug)]
struct End {
    at_bytes: u64,
    chain: Chain,
}

/// How far a commit goes: all the way, unless a test wants to see what a kill leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Moded,
    Synced,
    Renamed,
    All,
}

impl PathTarget {
    /// Opens or makes the partial file of `target`, whose directory must exist. Without a key nothing of an earlier copy is
    /// believed, and nothing recorded for a later one.
    ///
    /// # Errors
    ///
    /// `Denied` where somebody else has put a link, or something in the place of one of the two files; `Precondition` while
    /// another copy to the target runs; what opening files brings.
    pub fn open(target: &Path, keys: &JournalKeys) -> Result<(PathTarget, Found)> {
        // A link is followed once, here, so that the file it names is replaced and not the link.
        let target = links::follow(target)?;
        let (part_path, journal_path) = beside(&target)?;
        let journal = lock(&journal_path, &target)?;
        let part = open(&part_path, PART_MODE)?;
        // One that an earlier version made, for others to read.
        if part.metadata().is_ok_and(|meta| meta.mode() & 0o777 != PART_MODE) {
            let _ = part.set_permissions(fs::Permissions::from_mode(PART_MODE));
        }
        let turns = turns_of(&part);
        let key = keys.key();
        let name = target.file_name().unwrap_or_default();
        let journal_begin = match &key {
            Ok(key) => Some(Chain::new((*key).clone(), name.as_bytes(), meta_of(&part, &part_path)?.ino())),
            Err(_) => None,
        };
        let begin = journal_begin.clone().map(|chain| End { at_bytes: 0, chain });
        let journal_end = Mutex::new(begin);
        let partial =
            PathTarget { turns, target, part_path, part, journal_path, journal, journal_end, journal_begin };
        let found = partial.look(key.err())?;
        Ok((partial, found))
    }

    /// Reads what an earlier copy has left, with the reason why there is `no_key`.
    fn look(&self, no_key: Option<&str>) -> Result<Found> {
        let is_empty = self.size()? == 0;
        let Some(mut chain) = self.journal_begin.clone() else {
            let why = no_key.unwrap_or_default();
            let has_journal = meta_of(&self.journal, &self.journal_path)?.len() > 0;
            return Ok(match (is_empty, has_journal) {
                (true, _) => Found::Nothing,
                (false, true) => Found::Locked(why.to_owned()),
                (false, false) => Found::Dropped(why.to_owned()),
            });
        };
        let read = journal::read(&self.journal, &mut chain).map_err(|cause| {
            Error::local_io(format!("cannot read {}", self.journal_path.display()), &cause)
        })?;
        Ok(match read {
            Ok((journaled, at_bytes)) => {
                *self.journal_end() = Some(End { at_bytes, chain });
                Found::Earlier(journaled)
            }
            // What a kill between the last two steps has left: the journal is that of a file which has its name.
            Err(_) if is_empty => Found::Nothing,
            Err(Unusable::Empty | Unusable::Damaged) => Found::Dropped("its journal is damaged".into()),
            Err(Unusable::Version(version)) => {
                Found::Dropped(format!("its journal has version {version}, not {JOURNAL_VERSION}"))
            }
            Err(Unusable::Foreign) => {
                Found::Dropped("its journal was not written here by this user, or about another file".into())
            }
        })
    }

    /// Forgets everything: no bytes, no records.
    pub fn restart(&self) -> Result<()> {
        self.truncate(0)?;
        self.restart_journal()
    }

    /// Forgets the records, and keeps the bytes: whoever calls this can tell which of them are right.
    pub fn restart_journal(&self) -> Result<()> {
        self.journal.set_len(0).map_err(|cause| self.journal_error(&cause))?;
        *self.journal_end() = self.journal_begin.clone().map(|chain| End { at_bytes: 0, chain });
        Ok(())
    }

    /// Cuts or extends the partial file.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.part.set_len(size_bytes).map_err(|cause| self.write_error(&cause))
    }

    /// Whether a later copy will believe what is recorded here.
    pub fn is_recorded(&self) -> bool {
        self.journal_begin.is_some()
    }

    /// Appends to the journal.
    pub fn record(&self, records: &[Record]) -> Result<()> {
        let mut end = self.journal_end();
        let Some(End { at_bytes, chain }) = &mut *end else { return Ok(()) };
        *at_bytes = journal::append(&self.journal, *at_bytes, chain, records)
            .map_err(|cause| self.journal_error(&cause))?;
        Ok(())
    }

    fn journal_end(&self) -> std::sync::MutexGuard<'_, Option<End>> {
        self.journal_end.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether the bytes that were written may be others by now: the file has become shorter than `size_bytes`, or there is
    /// a hole in it although all of it was written, as when it was cut and then written behind the cut. A file system that
    /// makes holes of zeros by itself gives rise to this as well.
    ///
    /// # Errors
    ///
    /// `LocalIo` when the name is no longer that of the file that was written.
    pub fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        self.check_name()?;
        if self.size()? < size_bytes {
            return Ok(true);
        }
        // What cannot tell holes says that there is one behind the last byte.
        let hole = rustix::fs::seek(&self.part, rustix::fs::SeekFrom::Hole(0));
        Ok(size_bytes > 0 && hole.is_ok_and(|at| at < size_bytes))
    }

    /// Makes the file visible, cut to `size_bytes`: its bytes are synced first, and it replaces an existing target only when
    /// `overwrite` says so.
    ///
    /// # Errors
    ///
    /// `Precondition` when the target exists and may not be replaced; `LocalIo` when the partial file is no longer the one
    /// that was written, or shorter, and when a step fails.
    pub fn commit(&self, size_bytes: u64, overwrite: bool) -> Result<()> {
        self.commit_up_to(Step::All, size_bytes, overwrite)
    }

    fn commit_up_to(&self, last: Step, size_bytes: u64, overwrite: bool) -> Result<()> {
        if self.size()? > size_bytes {
            self.truncate(size_bytes)?;
        }
        self.set_final_mode(overwrite)?;
        if last == Step::Moded {
            return Ok(());
        }
        self.part.sync_data().map_err(|cause| self.write_error(&cause))?;
        // As late as can be.
        self.check_name()?;
        self.check_size(size_bytes)?;
        if last == Step::Synced {
            return Ok(());
        }
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
        // What came between the look and the rename is seen now, by whoever did it as well. Nothing is done before: others
        // may use the file from now on.
        let looked = self.check_target(size_bytes);
        if last == Step::Renamed {
            return looked;
        }
        // The copy is complete whether or not this succeeds.
        let _ = fs::remove_file(&self.journal_path);
        // Some file systems cannot sync a directory.
        if let Some(dir) = self.target.parent().and_then(|dir| File::open(dir).ok()) {
            let _ = dir.sync_all();
        }
        looked
    }

    /// Whether what has the target's name is what was written. One that is gone was taken by a program that waited for it.
    fn check_target(&self, size_bytes: u64) -> Result<()> {
        match fs::symlink_metadata(&self.target) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            _ if self.is_at(&self.target) => self.check_size(size_bytes),
            _ => Err(replaced(&self.target)),
        }
    }

    /// Gives the file the mode that it is to have when it is complete. A failure is no loss: it stays the user's alone.
    fn set_final_mode(&self, overwrite: bool) -> Result<()> {
        let ours = meta_of(&self.part, &self.part_path)?;
        // The journal was made as any other file is here: by the umask, or as the directory says.
        let usual = meta_of(&self.journal, &self.journal_path)?.mode() & 0o666;
        // That of a link that somebody has put there is of no interest, as it is replaced.
        let old = fs::symlink_metadata(&self.target).ok().filter(|_| overwrite);
        let old = old.filter(|old| old.is_file() && is_kept(old.uid(), ours.uid()));
        let mode = old.map_or(usual, |old| {
            let is_same_group = old.gid() == ours.gid() || fchown(&self.part, None, Some(old.gid())).is_ok();
            mode_after(old.mode(), is_same_group)
        });
        // File systems without modes refuse.
        let _ = self.part.set_permissions(fs::Permissions::from_mode(mode));
        Ok(())
    }

    /// Whether `path` is a name of the file that was written, and no link.
    fn is_at(&self, path: &Path) -> bool {
        let same = |there: fs::Metadata| {
            self.part.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        fs::symlink_metadata(path).is_ok_and(same)
    }

    fn check_name(&self) -> Result<()> {
        match self.is_at(&self.part_path) {
            true => Ok(()),
            false => Err(replaced(&self.part_path)),
        }
    }

    fn check_size(&self, size_bytes: u64) -> Result<()> {
        match self.size()? {
            found if found == size_bytes => Ok(()),
            found => {
                let path = self.part_path.display();
                let message = format!("{path} has {found} bytes, and {size_bytes} were written: it was cut");
                Err(meddled(message))
            }
        }
    }

    /// Removes the partial file and its journal.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.part_path);
        let _ = fs::remove_file(&self.journal_path);
    }

    fn size(&self) -> Result<u64> {
        Ok(meta_of(&self.part, &self.part_path)?.len())
    }

    fn write_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.part_path.display()), cause)
    }

    fn journal_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.journal_path.display()), cause)
    }
}

impl Target for PathTarget {
    fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn name(&self) -> String {
        self.target.display().to_string()
    }

    fn size_bytes(&self) -> Result<u64> {
        self.size()
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.free_bytes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_at(bytes, offset)?;
        start_writeback(&self.part, offset, bytes.len() as u64);
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.part.read_at(into, offset)
    }

    fn is_recorded(&self) -> bool {
        self.is_recorded()
    }

    fn record(&self, records: &[Record]) -> Result<()> {
        self.record(records)
    }

    fn restart(&self) -> Result<()> {
        self.restart()
    }

    fn restart_journal(&self) -> Result<()> {
        self.restart_journal()
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        self.is_doubtful(size_bytes)
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let old = File::open(&self.target).ok().and_then(|old| described(&old));
        if let Expectation::Tag(tag) = &completion.expectation
            && old.as_ref().is_none_or(|old| old.tag != *tag)
        {
            return Err(Error::new(
                ErrorKind::Precondition,
                format!("{} has changed", self.target.display()),
            )
            .fault(Fault::Caller));
        }
        self.commit(size_bytes, completion.expectation != Expectation::Absent)?;
        let metadata = described(&self.part).ok_or_else(|| replaced(&self.target))?;
        Ok(Committed {
            metadata,
            replaced: old.is_some(),
            replaced_bytes: old.map_or(0, |old| old.size_bytes),
        })
    }

    fn discard(&self) {
        self.discard();
    }
}

/// Whether a file of `owner` hands its mode on to the one that `caller` puts in its place.
fn is_kept(owner: u32, caller: u32) -> bool {
    owner == caller
}

/// The mode of a file that replaces one of `mode`. Who could read the old content, and nobody else, can read the new one.
/// Not a bit of what lets programs run as somebody else: these are other bytes.
fn mode_after(mode: u32, is_same_group: bool) -> u32 {
    match is_same_group {
        true => mode & 0o777,
        // Another group gets what everybody gets, at most.
        false => mode & (0o707 | (mode & 0o007) << 3),
    }
}

/// Opens the journal for one process at a time.
fn lock(journal_path: &Path, target: &Path) -> Result<File> {
    loop {
        let journal = open(journal_path, JOURNAL_MODE)?;
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

/// Removes the journal that a kill has left beside a target that is complete. Whatever else is there stays: what belongs to
/// a copy that runs or can be continued, and what somebody else has put there.
pub fn sweep(target: &Path) {
    let Ok((part_path, journal_path)) = links::follow(target).and_then(|target| beside(&target)) else {
        return;
    };
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if !is_there(target) || !is_there(&journal_path) || is_there(&part_path) {
        return;
    }
    // Whoever has the lock is about to make the partial file.
    let Ok(_journal) = lock(&journal_path, target) else { return };
    if !is_there(&part_path) {
        let _ = fs::remove_file(&journal_path);
    }
}

/// The error for a target that is there and may not be replaced.
pub fn exists(target: &Path) -> Error {
    Error::new(ErrorKind::Precondition, format!("{} exists", target.display()))
        .fault(Fault::Caller)
        .hint(Hint::ReplaceOrRename)
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

fn open(path: &Path, mode: u32) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
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
    let meta = meta_of(&file, path)?;
    let is_ours = meta.is_file() && meta.nlink() <= 1 && meta.uid() == rustix::process::geteuid().as_raw();
    match is_ours {
        true => Ok(file),
        false => {
            let message = format!("{} was put there by somebody else", path.display());
            Err(Error::new(ErrorKind::Denied, message).fault(Fault::Local).hint("remove it"))
        }
    }
}

fn meta_of(file: &File, path: &Path) -> Result<fs::Metadata> {
    file.metadata().map_err(|cause| Error::local_io(format!("cannot look at {}", path.display()), &cause))
}

fn replaced(path: &Path) -> Error {
    meddled(format!(
        "{} is not the file that was written: it was removed or replaced meanwhile",
        path.display()
    ))
}

fn meddled(message: String) -> Error {
    Error::new(ErrorKind::LocalIo, message)
        .fault(Fault::Local)
        .hint("find the program that did it, and run the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ByteRange;

    /// Keys at a place that the tests share.
    fn keys() -> JournalKeys {
        static PLACE: std::sync::LazyLock<tempfile::TempDir> =
            std::sync::LazyLock::new(|| tempfile::tempdir().unwrap());
        JournalKeys::at(PLACE.path().join("journal.key"))
    }

    fn open(target: &Path) -> Result<(PathTarget, Found)> {
        PathTarget::open(target, &keys())
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn begin(partial: &PathTarget, size_bytes: u64) {
        partial.restart().unwrap();
        partial.record(&[Record::object(size_bytes)]).unwrap();
    }

    /// A copy to which nothing is missing but its end.
    fn journaled(target: &Path) -> PathTarget {
        let (partial, _) = open(target).unwrap();
        begin(&partial, 6);
        partial.write_at(b"abcdef", 0).unwrap();
        partial.record(&[Record::Done { offset: 0, len: 6, adler32: 5, source: 0 }]).unwrap();
        partial
    }

    /// The first half of one.
    fn half(target: &Path) -> PathTarget {
        let (partial, _) = open(target).unwrap();
        begin(&partial, 6);
        partial.write_at(b"abc", 0).unwrap();
        partial.record(&[Record::Done { offset: 0, len: 3, adler32: 5, source: 0 }]).unwrap();
        partial
    }

    #[test]
    fn nothing_is_visible_before_the_commit_and_all_of_it_after() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let (partial, found) = open(&target).unwrap();
        assert!(matches!(found, Found::Nothing));
        begin(&partial, 6);
        partial.write_at(b"def", 3).unwrap();
        partial.write_at(b"abc", 0).unwrap();
        assert!(!target.exists());
        partial.commit(6, false).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abcdef");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_target_is_replaced_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, b"old").unwrap();
        for (overwrite, expected) in [(false, &b"old"[..]), (true, b"")] {
            let (partial, _) = open(&target).unwrap();
            begin(&partial, 0);
            let outcome = partial.commit(0, overwrite);
            assert_eq!(outcome.is_ok(), overwrite);
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Precondition);
            }
            assert_eq!(fs::read(&target).unwrap(), expected);
        }
    }

    #[test]
    fn nobody_else_opens_a_partial_file_and_a_new_target_has_the_usual_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (target, usual) = (dir.path().join("f"), dir.path().join("usual"));
        fs::write(&usual, b"").unwrap();
        let part_path = beside(&target).unwrap().0;
        fs::write(&part_path, b"of an earlier version").unwrap();
        let (partial, _) = open(&target).unwrap();
        begin(&partial, 0);
        assert_eq!(mode_of(&part_path), 0o600);
        partial.commit(0, false).unwrap();
        assert_eq!(mode_of(&target), mode_of(&usual));
    }

    #[test]
    fn a_replaced_target_keeps_its_mode_and_nothing_that_lets_it_run_as_somebody_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        for (old, new) in [(0o600, 0o600), (0o4755, 0o755), (0o2755, 0o755), (0o1777, 0o777), (0o640, 0o640)]
        {
            fs::write(&target, b"old").unwrap();
            set_mode(&target, old);
            let (partial, _) = open(&target).unwrap();
            begin(&partial, 0);
            partial.commit(0, true).unwrap();
            assert_eq!(mode_of(&target), new, "after {old:o}");
        }
    }

    /// Giving files away needs a privilege, which those who run the tests as root have.
    #[test]
    fn the_mode_of_somebody_elses_file_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (target, usual) = (dir.path().join("f"), dir.path().join("usual"));
        fs::write(&usual, b"").unwrap();
        for mode in [0o4755, 0o666, 0o6777] {
            fs::write(&target, b"old").unwrap();
            if std::os::unix::fs::chown(&target, Some(4242), Some(4242)).is_err() {
                return;
            }
            set_mode(&target, mode);
            let (partial, _) = open(&target).unwrap();
            begin(&partial, 0);
            partial.commit(0, true).unwrap();
            let meta = fs::metadata(&target).unwrap();
            assert_eq!(
                (mode_of(&target), meta.uid()),
                (mode_of(&usual), rustix::process::geteuid().as_raw())
            );
        }
    }

    #[test]
    fn what_is_renamed_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let (target, other) = (dir.path().join("f"), dir.path().join("other"));
        let part_path = beside(&target).unwrap().0;
        let link = || {
            fs::write(&other, b"abcdef").unwrap();
            fs::remove_file(&part_path).unwrap();
            std::os::unix::fs::symlink(&other, &part_path).unwrap();
        };
        let replace = || {
            fs::rename(
                {
                    fs::write(&other, b"abcdef").unwrap();
                    &other
                },
                &part_path,
            )
            .unwrap()
        };
        let cut = || File::options().write(true).open(&part_path).unwrap().set_len(5).unwrap();
        let remove = || fs::remove_file(&part_path).unwrap();
        let meddlers: [&dyn Fn(); 4] = [&link, &replace, &cut, &remove];
        for meddle in meddlers {
            let (partial, _) = open(&target).unwrap();
            begin(&partial, 6);
            partial.write_at(b"abcdef", 0).unwrap();
            assert!(!partial.is_doubtful(6).unwrap());
            meddle();
            assert!(partial.is_doubtful(6).unwrap_or(true));
            assert_eq!(partial.commit(6, false).unwrap_err().kind(), ErrorKind::LocalIo);
            assert!(!target.exists());
            partial.discard();
        }
    }

    #[test]
    fn a_file_that_was_cut_and_written_behind_the_cut_is_doubtful() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let (partial, _) = open(&target).unwrap();
        begin(&partial, 3 << 20);
        partial.write_at(&[7; 2 << 20], 0).unwrap();
        partial.file().set_len(0).unwrap();
        partial.write_at(&[7; 1 << 20], 2 << 20).unwrap();
        assert_eq!(partial.size().unwrap(), 3 << 20);
        assert!(partial.is_doubtful(3 << 20).unwrap());
        partial.write_at(&[7; 2 << 20], 0).unwrap();
        assert!(!partial.is_doubtful(3 << 20).unwrap());
    }

    #[test]
    fn what_others_do_with_the_complete_file_is_no_failure_and_what_they_did_before_is() {
        let dir = tempfile::tempdir().unwrap();
        let (target, moved) = (dir.path().join("f"), dir.path().join("moved"));
        let partial = journaled(&target);
        partial.commit_up_to(Step::Renamed, 6, false).unwrap();
        assert!(partial.check_target(6).is_ok());
        fs::rename(&target, &moved).unwrap();
        assert!(partial.check_target(6).is_ok(), "a program waited for it");
        fs::write(&target, b"fedcba").unwrap();
        assert_eq!(partial.check_target(6).unwrap_err().kind(), ErrorKind::LocalIo);
        fs::rename(&moved, &target).unwrap();
        partial.truncate(5).unwrap();
        assert_eq!(partial.check_target(6).unwrap_err().kind(), ErrorKind::LocalIo);
    }

    #[test]
    fn the_journal_of_a_file_that_was_named_is_no_part_of_the_next_copy() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        journaled(&target).commit_up_to(Step::Renamed, 6, false).unwrap();
        let (partial, found) = open(&target).unwrap();
        assert!(matches!(found, Found::Nothing), "{found:?}");
        begin(&partial, 0);
        partial.commit(0, true).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn only_its_owner_hands_a_mode_on_and_nothing_that_runs_as_somebody_else() {
        assert!(is_kept(1000, 1000) && !is_kept(4242, 1000) && !is_kept(0, 1000) && !is_kept(1000, 0));
        for (old, same_group, other_group) in [
            (0o100_600, 0o600, 0o600),
            (0o104_755, 0o755, 0o755),
            (0o106_777, 0o777, 0o777),
            (0o101_777, 0o777, 0o777),
            (0o100_640, 0o640, 0o600),
            (0o100_664, 0o664, 0o644),
        ] {
            assert_eq!((mode_after(old, true), mode_after(old, false)), (same_group, other_group), "{old:o}");
        }
    }

    /// A kill behind each step of the end, and the next start.
    #[test]
    fn wherever_a_kill_comes_nothing_is_lost_and_nothing_stays() {
        for last in [Step::Moded, Step::Synced, Step::Renamed, Step::All] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("f");
            let partial = journaled(&target);
            partial.commit_up_to(last, 6, false).unwrap();
            drop(partial);
            if last < Step::Renamed {
                assert!(!target.exists());
                sweep(&target);
                let (partial, found) = open(&target).unwrap();
                let Found::Earlier(journaled) = found else { panic!("{last:?}: {found:?}") };
                assert_eq!(journaled.done.len(), 1);
                partial.commit(6, false).unwrap();
            }
            sweep(&target);
            assert_eq!(fs::read(&target).unwrap(), b"abcdef");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{last:?}");
        }
    }

    #[test]
    fn only_a_journal_that_is_left_is_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, b"old").unwrap();
        let (partial, _) = open(&target).unwrap();
        begin(&partial, 6);
        sweep(&target);
        let (part_path, journal_path) = beside(&target).unwrap();
        assert!(part_path.exists() && journal_path.exists(), "a copy is running");
        fs::remove_file(&part_path).unwrap();
        sweep(&target);
        assert!(journal_path.exists(), "it is locked");
        drop(partial);
        sweep(&target);
        assert!(!journal_path.exists());
        let precious = dir.path().join("precious");
        fs::write(&precious, b"x").unwrap();
        std::os::unix::fs::symlink(&precious, &journal_path).unwrap();
        sweep(&target);
        assert!(journal_path.is_symlink() && precious.exists());
    }

    #[test]
    fn a_journal_of_another_key_or_beside_another_file_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        drop(half(&target));
        let other = JournalKeys::at(dir.path().join("other.key"));
        let (partial, found) = PathTarget::open(&target, &other).unwrap();
        assert!(matches!(found, Found::Dropped(_)) && partial.is_recorded(), "{found:?}");
        drop(partial);
        let (partial, found) = PathTarget::open(&target, &JournalKeys::default()).unwrap();
        assert!(matches!(found, Found::Locked(_)) && !partial.is_recorded(), "{found:?}");
        drop(partial);
        // Both files came from elsewhere, as they are.
        let (part_path, journal_path) = beside(&target).unwrap();
        let part_elsewhere = dir.path().join("part");
        fs::copy(&part_path, &part_elsewhere).unwrap();
        fs::rename(&part_elsewhere, &part_path).unwrap();
        let (partial, found) = open(&target).unwrap();
        assert!(matches!(found, Found::Dropped(_)), "{found:?}");
        begin(&partial, 6);
        drop(partial);
        assert!(matches!(open(&target).unwrap().1, Found::Earlier(_)));
        assert!(journal_path.exists());
    }

    #[test]
    fn without_a_key_nothing_is_recorded_and_all_else_works() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let keys = JournalKeys::default();
        let (partial, found) = PathTarget::open(&target, &keys).unwrap();
        assert!(matches!(found, Found::Nothing));
        begin(&partial, 3);
        partial.write_at(b"abc", 0).unwrap();
        assert_eq!(fs::metadata(beside(&target).unwrap().1).unwrap().len(), 0);
        partial.commit(3, false).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abc");
    }

    #[test]
    fn an_earlier_copy_is_found_again_and_two_never_run_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let partial = half(&target);
        let error = open(&target).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Precondition);
        drop(partial);
        let (partial, found) = open(&target).unwrap();
        let Found::Earlier(journaled) = found else { panic!("{found:?}") };
        assert_eq!((journaled.size_bytes, journaled.done[0].range), (6, ByteRange::new(0, 3)));
        partial.record(&[Record::Done { offset: 3, len: 3, adler32: 6, source: 0 }]).unwrap();
        drop(partial);
        let (partial, found) = open(&target).unwrap();
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
        let (_partial, found) = open(&target).unwrap();
        assert!(matches!(found, Found::Dropped(_)), "{found:?}");
    }

    #[test]
    fn the_longest_name_has_room_for_both() {
        let dir = tempfile::tempdir().unwrap();
        for last in ["a", "b"] {
            let target = dir.path().join("n".repeat(NAME_BYTES_MAX - 1) + last);
            let (partial, found) = open(&target).unwrap();
            assert!(matches!(found, Found::Nothing), "names must not collide: {found:?}");
            begin(&partial, 0);
            partial.commit(0, false).unwrap();
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
            assert!(open(&target).is_err());
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            fs::remove_file(&planted).unwrap();
        }
    }
}
