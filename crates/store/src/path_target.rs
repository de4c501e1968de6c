//! A file of this machine as a target: it becomes visible, under its own name, only when it is complete.
//!
//! For a target `dir/name` there are, while it is written, `dir/.name.gridlane-part` (the bytes) and
//! `dir/.name.gridlane-journal` (see [`journal`](mod@crate::journal)). `partial/mod.rs` tells the order of a successful end, and
//! what a kill leaves. A journal that is left without bytes is removed by the next start that finds the target complete
//! ([`sweep`]) or replaces it.
//!
//! Both are in the directory that was opened at the beginning. It must still be at the path that was named when the file gets
//! its name: one that was moved or replaced meanwhile gets nothing.
//!
//! One process at a time: the journal is locked while it is open. Only the user can open the partial file; the target
//! gets its mode when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridlane_core::limits::NAME_BYTES_MAX;
use gridlane_core::name::{JOURNAL_END, PART_END};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use gridlane_share::Turns;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fsync, openat, stat, statat, unlinkat};

use crate::journal::Record;
use crate::journal_key::JournalKeys;
use crate::links;
use crate::partial::{
    Ending, Failure, Locked, Owner, Partial, Place, Step, Unusable, Writeback, is_same, kind_of, open_or_make,
};
use crate::posix::{described, described_at, set_modified, turns_of};
use crate::storage::{Committed, Completion, Expectation};
use crate::target::{Found, Target};

/// No other user looks at a partial file, nor changes what was compared already.
const PART_MODE: u32 = 0o600;
/// The usual one, less the umask.
const JOURNAL_MODE: u32 = 0o666;

/// The partial file and the journal of one path.
pub struct PathTarget {
    turns: Arc<Turns>,
    target: PathBuf,
    directory: Arc<OwnedFd>,
    partial: Partial,
}

impl PathTarget {
    /// Opens or makes the partial file of `target`, whose directory must exist. Without a key no record of an earlier copy
    /// counts, and nothing is recorded for a later one.
    ///
    /// # Errors
    ///
    /// `Denied` where another user has put a link, or something in the place of one of the two files; `Precondition` while
    /// another copy to the target runs; what opening files brings.
    pub fn open(target: &Path, keys: &JournalKeys) -> Result<(PathTarget, Found)> {
        // A link is followed once, here, so that the file it names is replaced and not the link.
        let target = links::follow(target)?;
        let (part_path, journal_path) = beside(&target)?;
        let directory = open_directory(&target)?;
        let name = name_of(&target);
        if let Err(cause @ rustix::io::Errno::NAMETOOLONG) =
            statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            return Err(cannot_make(&target, &cause.into()));
        }
        let journal = Locked::take(&directory, name_of(&journal_path), JOURNAL_MODE)
            .map_err(|why| unusable(why, &journal_path, &target))?;
        let part_name = name_of(&part_path);
        remove_second_name(&directory, part_name, name);
        let part = open_or_make(&directory, part_name, PART_MODE, Owner::Ours)
            .map_err(|why| unusable(why, &part_path, &target))?;
        let meta = part.metadata().map_err(|cause| cannot_look(&part_path, &cause))?;
        // One that an earlier version made, for others to read.
        if meta.mode() & 0o777 != PART_MODE {
            let _ = part.set_permissions(fs::Permissions::from_mode(PART_MODE));
        }
        let turns = turns_of(&part);
        let journal = journal.of(keys, name.as_bytes(), meta.ino());
        let found = journal
            .look(meta.len() == 0)
            .map_err(|cause| Error::local_io(format!("cannot read {}", journal_path.display()), &cause))?;
        let part_name = part_name.to_owned();
        let partial = Partial::new(Arc::clone(&directory), part_name, part, Some(journal), Writeback::Each);
        Ok((PathTarget { turns, target, directory, partial }, found))
    }

    fn commit_up_to(&self, last: Step, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let ending = PathEnding { target: self, size_bytes, completion };
        let replaced = self.partial.publish_up_to(last, &ending).map_err(|failure| match failure {
            Failure::Unexpected if completion.expectation != Expectation::Absent => {
                changed_error(&self.target)
            }
            other => self.error(other, size_bytes),
        })?;
        let metadata = described(self.partial.file()).ok_or_else(|| replaced_error(&self.target))?;
        Ok(Committed { metadata, replaced: replaced.is_some(), replaced_bytes: replaced.unwrap_or(0) })
    }

    fn part_path(&self) -> PathBuf {
        beside(&self.target).map_or_else(|_| self.target.clone(), |(part_path, _)| part_path)
    }

    fn write_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.part_path().display()), cause)
    }

    fn journal_error(&self, cause: &io::Error) -> Error {
        let path = beside(&self.target).map_or_else(|_| self.target.clone(), |(_, journal)| journal);
        Error::local_io(format!("cannot write {}", path.display()), cause)
    }

    /// In words, of a file that should have `size_bytes`.
    fn error(&self, failure: Failure, size_bytes: u64) -> Error {
        match failure {
            Failure::Replaced if self.partial.is_over() => replaced_error(&self.target),
            Failure::Replaced | Failure::Over => replaced_error(&self.part_path()),
            Failure::Cut(found) => {
                let path = self.part_path();
                let path = path.display();
                meddled(format!(
                    "{path} has {found} of the {size_bytes} bytes that were written: it was cut meanwhile"
                ))
            }
            Failure::Moved => {
                let directory = self.target.parent().unwrap_or(Path::new("/")).display();
                meddled(format!("{directory} was moved or replaced while the copy was running"))
            }
            Failure::Unexpected => exists(&self.target),
            Failure::Write(cause) => self.write_error(&cause),
            Failure::Rename(cause) if cause.kind() == io::ErrorKind::AlreadyExists => exists(&self.target),
            Failure::Rename(cause) => {
                Error::local_io(format!("cannot name it {}", self.target.display()), &cause)
            }
            Failure::Store(error) => error.into(),
        }
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
        self.partial.size_bytes().map_err(|cause| cannot_look(&self.part_path(), &cause))
    }

    fn allocated_bytes(&self) -> u64 {
        self.partial.allocated_bytes()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.partial.free_bytes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.partial.write_at(bytes, offset).map_err(|cause| self.write_error(&cause))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.partial.file().read_at(into, offset)
    }

    fn is_recorded(&self) -> bool {
        self.partial.is_recorded()
    }

    fn record(&self, records: &[Record]) -> Result<()> {
        self.partial.record(records).map_err(|cause| self.journal_error(&cause))
    }

    fn restart(&self) -> Result<()> {
        self.partial.file().set_len(0).map_err(|cause| self.write_error(&cause))?;
        self.restart_journal()
    }

    fn restart_journal(&self) -> Result<()> {
        self.partial.restart_journal().map_err(|cause| self.journal_error(&cause))
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        self.partial.is_doubtful(size_bytes).map_err(|failure| self.error(failure, size_bytes))
    }

    fn sync(&self) -> Result<()> {
        self.partial.file().sync_data().map_err(|cause| self.write_error(&cause))
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        self.commit_up_to(Step::All, size_bytes, completion)
    }

    fn discard(&self) {
        self.partial.discard();
    }
}

/// The end of a file that gets its name beside where it was written.
struct PathEnding<'a> {
    target: &'a PathTarget,
    size_bytes: u64,
    completion: &'a Completion,
}

impl PathEnding<'_> {
    fn overwrites(&self) -> bool {
        self.completion.expectation != Expectation::Absent
    }
}

impl Ending for PathEnding<'_> {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    /// Gives the file the mode that it is to have when it is complete. A failure is no loss: it stays the user's alone.
    fn prepare(&self, part: &File) -> std::result::Result<(), Failure> {
        let ours = part.metadata().map_err(Failure::Write)?;
        // The journal was made as any other file is here: by the umask, or as the directory says.
        let journal = self.target.partial.journal().map(|journal| journal.file().metadata());
        let usual =
            journal.transpose().map_err(Failure::Write)?.map_or(PART_MODE, |meta| meta.mode() & 0o666);
        // That of a link that another user has put there is of no interest, as it is replaced.
        let old = fs::symlink_metadata(&self.target.target).ok().filter(|_| self.overwrites());
        let old = old.filter(|old| old.is_file() && is_kept(old.uid(), ours.uid()));
        let mode = old.map_or(usual, |old| {
            let is_same_group = old.gid() == ours.gid() || fchown(part, None, Some(old.gid())).is_ok();
            mode_after(old.mode(), is_same_group)
        });
        // File systems without modes refuse.
        let _ = part.set_permissions(fs::Permissions::from_mode(mode));
        match self.completion.modified {
            Some(modified) => Ok(set_modified(part, modified)?),
            None => Ok(()),
        }
    }

    fn sync(&self, part: &File) -> io::Result<()> {
        part.sync_data()
    }

    fn place(&self) -> std::result::Result<Place<'_>, Failure> {
        let PathTarget { target, directory, .. } = self.target;
        let opened = fstat(directory).map_err(|cause| Failure::Rename(cause.into()))?;
        let is_there = match stat(parent_of(target)) {
            Ok(there) => is_same(&there, &opened),
            // One that was removed has no other in its place: the rename tells.
            Err(_) => opened.st_nlink == 0,
        };
        if !is_there {
            return Err(Failure::Moved);
        }
        let name = name_of(target);
        if let Expectation::Tag(tag) = &self.completion.expectation
            && described_at(directory, name).is_none_or(|old| old.tag != *tag)
        {
            return Err(Failure::Unexpected);
        }
        Ok(Place { directory: Arc::clone(directory), name, replaces: self.overwrites(), changing: None })
    }

    fn renamed(&self, partial: &Partial) -> std::result::Result<(), Failure> {
        self.target.check_target(partial, self.size_bytes)
    }

    /// Some file systems cannot sync a directory.
    fn sync_names(&self, directory: &OwnedFd) -> std::result::Result<(), Failure> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let _ = openat(directory, ".", flags, Mode::empty()).and_then(fsync);
        Ok(())
    }
}

impl PathTarget {
    /// Looks whether the target's name is that of what was written. One that is gone was taken by a program that waited for it.
    fn check_target(&self, partial: &Partial, size_bytes: u64) -> std::result::Result<(), Failure> {
        let name = name_of(&self.target);
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            _ if partial.is_at(&self.directory, name) => partial.check_size(size_bytes),
            _ => Err(Failure::Replaced),
        }
    }
}

/// True if a file of `owner` hands its mode on to the one that `caller` puts in its place.
fn is_kept(owner: u32, caller: u32) -> bool {
    owner == caller
}

/// The mode of a file that replaces one of `mode`: all users that could read the old content can read the new one, and no others.
/// Not a bit of what lets programs run as another user: these are other bytes.
fn mode_after(mode: u32, is_same_group: bool) -> u32 {
    match is_same_group {
        true => mode & 0o777,
        // Another group gets what everyone gets, at most.
        false => mode & (0o707 | (mode & 0o007) << 3),
    }
}

/// Removes the journal that a kill has left beside a target that is complete, and a second name of it. Whatever else is there
/// stays: what belongs to a copy that runs or can be continued, and what other users have put there.
pub fn sweep(target: &Path) {
    let Ok(target) = links::follow(target) else { return };
    let (Ok((part_path, journal_path)), Ok(directory)) = (beside(&target), open_directory(&target)) else {
        return;
    };
    let (name, part, journal) = (name_of(&target), name_of(&part_path), name_of(&journal_path));
    let look = |name: &OsStr| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_rest = || match (look(name), look(part)) {
        (Ok(_), Err(_)) => true,
        (Ok(complete), Ok(part)) => is_same(&complete, &part),
        (Err(_), _) => false,
    };
    if look(journal).is_err() || !is_rest() {
        return;
    }
    // A process that has the lock is about to make the partial file.
    let Ok(lock) = Locked::take(&directory, journal, JOURNAL_MODE) else { return };
    if is_rest() {
        remove_second_name(&directory, part, name);
        lock.remove();
    }
}

/// Removes the partial file where it is a second name of the complete one: on a file system that links instead of renaming, a
/// kill between the two calls leaves both.
fn remove_second_name(directory: &OwnedFd, part: &OsStr, name: &OsStr) {
    let look = |name: &OsStr| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(part_stat), Ok(complete)) = (look(part), look(name))
        && is_same(&part_stat, &complete)
        && kind_of(&complete) == rustix::fs::FileType::RegularFile
    {
        let _ = unlinkat(directory, part, AtFlags::empty());
    }
}

/// The error for a target that is there and may not be replaced.
pub fn exists(target: &Path) -> Error {
    Error::new(ErrorKind::Precondition, format!("{} exists", target.display()))
        .fault(Fault::Caller)
        .hint(Hint::ReplaceOrRename)
}

/// The places of the partial file and the journal of `target`.
pub(crate) fn beside(target: &Path) -> Result<(PathBuf, PathBuf)> {
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

fn parent_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// The directory that a target is in.
fn open_directory(target: &Path) -> Result<Arc<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat(CWD, parent_of(target), flags, Mode::empty());
    opened.map(Arc::new).map_err(|cause| cannot_make(target, &cause.into()))
}

fn cannot_make(path: &Path, cause: &io::Error) -> Error {
    let error = Error::local_io(format!("cannot make {}", path.display()), cause);
    match cause.kind() {
        io::ErrorKind::NotFound => error.hint(Hint::MakeDirectory),
        _ => error,
    }
}

/// The error for a file beside `target` that cannot be used.
fn unusable(why: Unusable, path: &Path, target: &Path) -> Error {
    match why {
        Unusable::Io(cause) => cannot_make(path, &cause),
        Unusable::Locked => {
            let message = format!("another copy to {} is running", target.display());
            Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).hint("wait for it, or stop it")
        }
        Unusable::Foreign => {
            let message = format!("{} is not a regular file of this user with one name", path.display());
            Error::new(ErrorKind::Denied, message).fault(Fault::Local).hint("remove it")
        }
    }
}

fn cannot_look(path: &Path, cause: &io::Error) -> Error {
    Error::local_io(format!("cannot look at {}", path.display()), cause)
}

fn changed_error(target: &Path) -> Error {
    Error::new(ErrorKind::Precondition, format!("{} has changed", target.display())).fault(Fault::Caller)
}

fn replaced_error(path: &Path) -> Error {
    meddled(format!(
        "{} is not the file that was written: it was removed or replaced meanwhile",
        path.display()
    ))
}

fn meddled(message: String) -> Error {
    Error::new(ErrorKind::LocalIo, message)
        .fault(Fault::Local)
        .hint("find the program that changed it, then run the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ByteRange;

    fn open(target: &Path) -> Result<(PathTarget, Found)> {
        PathTarget::open(target, &JournalKeys::of(&[7; 32]))
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Makes it visible, and replaces what is there if that is said.
    fn commit(partial: &PathTarget, size_bytes: u64, overwrite: bool) -> Result<Committed> {
        commit_up_to(partial, Step::All, size_bytes, overwrite)
    }

    fn commit_up_to(partial: &PathTarget, last: Step, size_bytes: u64, overwrite: bool) -> Result<Committed> {
        let expectation = if overwrite { Expectation::Anything } else { Expectation::Absent };
        partial.commit_up_to(last, size_bytes, &expectation.into())
    }

    fn begin(partial: &PathTarget, size_bytes: u64) {
        partial.restart().unwrap();
        partial.record(&[Record::object(size_bytes)]).unwrap();
    }

    fn check_target(target: &PathTarget) -> std::result::Result<(), Failure> {
        target.check_target(&target.partial, 6)
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
        commit(&partial, 6, false).unwrap();
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
            let outcome = commit(&partial, 0, overwrite);
            assert_eq!(outcome.is_ok(), overwrite);
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Precondition);
            }
            assert_eq!(fs::read(&target).unwrap(), expected);
        }
    }

    #[test]
    fn no_other_user_opens_a_partial_file_and_a_new_target_has_the_usual_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (target, usual) = (dir.path().join("f"), dir.path().join("usual"));
        fs::write(&usual, b"").unwrap();
        let part_path = beside(&target).unwrap().0;
        fs::write(&part_path, b"of an earlier version").unwrap();
        let (partial, _) = open(&target).unwrap();
        begin(&partial, 0);
        assert_eq!(mode_of(&part_path), 0o600);
        commit(&partial, 0, false).unwrap();
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
            commit(&partial, 0, true).unwrap();
            assert_eq!(mode_of(&target), new, "after {old:o}");
        }
    }

    /// Giving files away needs a privilege, which tests that run as root have.
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
            commit(&partial, 0, true).unwrap();
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
            assert_eq!(commit(&partial, 6, false).unwrap_err().kind(), ErrorKind::LocalIo);
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
        partial.partial.file().set_len(0).unwrap();
        partial.write_at(&[7; 1 << 20], 2 << 20).unwrap();
        assert_eq!(partial.size_bytes().unwrap(), 3 << 20);
        assert!(partial.is_doubtful(3 << 20).unwrap());
        partial.write_at(&[7; 2 << 20], 0).unwrap();
        assert!(!partial.is_doubtful(3 << 20).unwrap());
    }

    #[test]
    fn what_others_do_with_the_complete_file_is_no_failure_and_what_they_did_before_is() {
        let dir = tempfile::tempdir().unwrap();
        let (target, moved) = (dir.path().join("f"), dir.path().join("moved"));
        let partial = journaled(&target);
        commit_up_to(&partial, Step::Renamed, 6, false).unwrap();
        assert!(check_target(&partial).is_ok());
        fs::rename(&target, &moved).unwrap();
        assert!(check_target(&partial).is_ok(), "a program waited for it");
        fs::write(&target, b"fedcba").unwrap();
        assert!(check_target(&partial).is_err());
        fs::rename(&moved, &target).unwrap();
        partial.partial.file().set_len(5).unwrap();
        assert!(check_target(&partial).is_err());
    }

    #[test]
    fn the_journal_of_a_file_that_was_named_is_no_part_of_the_next_copy() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        commit_up_to(&journaled(&target), Step::Renamed, 6, false).unwrap();
        let (partial, found) = open(&target).unwrap();
        assert!(matches!(found, Found::Nothing), "{found:?}");
        begin(&partial, 0);
        commit(&partial, 0, true).unwrap();
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
        for last in [Step::Prepared, Step::Synced, Step::Renamed, Step::All] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("f");
            let partial = journaled(&target);
            commit_up_to(&partial, last, 6, false).unwrap();
            drop(partial);
            if last < Step::Renamed {
                assert!(!target.exists());
                sweep(&target);
                let (partial, found) = open(&target).unwrap();
                let Found::Earlier(journaled) = found else { panic!("{last:?}: {found:?}") };
                assert_eq!(journaled.done.len(), 1);
                commit(&partial, 6, false).unwrap();
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
        commit(&partial, 3, false).unwrap();
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
            commit(&partial, 0, false).unwrap();
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_before_a_byte_comes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open(&dir.path().join("n".repeat(NAME_BYTES_MAX + 1))).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// On a file system that links instead of renaming, a kill between the two calls leaves both names.
    #[test]
    fn a_second_name_of_the_complete_file_is_no_partial_file() {
        for sweeps in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("f");
            commit_up_to(&journaled(&target), Step::Renamed, 6, false).unwrap();
            let (part_path, journal_path) = beside(&target).unwrap();
            fs::hard_link(&target, &part_path).unwrap();
            match sweeps {
                true => sweep(&target),
                false => {
                    let (partial, found) = open(&target).unwrap();
                    assert!(matches!(found, Found::Nothing), "{found:?}");
                    partial.write_at(b"other", 0).unwrap();
                    partial.discard();
                }
            }
            assert!(!part_path.exists() && !journal_path.exists());
            assert_eq!(fs::read(&target).unwrap(), b"abcdef");
        }
    }

    #[test]
    fn a_directory_that_was_moved_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (sub, moved) = (dir.path().join("sub"), dir.path().join("moved"));
        fs::create_dir(&sub).unwrap();
        let partial = journaled(&sub.join("f"));
        fs::rename(&sub, &moved).unwrap();
        assert!(commit(&partial, 6, false).is_err());
        fs::create_dir(&sub).unwrap();
        assert_eq!(commit(&partial, 6, false).unwrap_err().kind(), ErrorKind::LocalIo);
        assert!(!sub.join("f").exists() && !moved.join("f").exists());
        fs::remove_dir(&sub).unwrap();
        fs::rename(&moved, &sub).unwrap();
        commit(&partial, 6, false).unwrap();
        assert_eq!(fs::read(sub.join("f")).unwrap(), b"abcdef");
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
