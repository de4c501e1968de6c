//! Targets of an export: partial files with a journal in the hidden directory, under names that follow from their final
//! paths, so that a server that was started again finds them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use gridlane_core::{Error, Result};
use gridlane_share::Turns;
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::hidden::{JOURNAL_MODE, TargetNames};
use super::partial::{FILE_PERMISSIONS, PosixEnding, each, hidden_of, require_room};
use super::{Durability, Shared};
use crate::error::{StoreError, StoreResult};
use crate::journal::Record;
use crate::partial::{Failure, Locked, Owner, Partial, Step, Unusable, open_or_make};
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion};
use crate::target::{Found, Target, TargetOptions, failed};

/// Such a partial file, and where it shall go.
pub(super) struct PosixTarget {
    shared: Arc<Shared>,
    path: ObjectPath,
    partial: Partial,
}

impl PosixTarget {
    pub(super) fn open(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(PosixTarget, Found)> {
        let hidden = Arc::new(hidden_of(shared, path)?);
        let TargetNames { part, journal } = TargetNames::of(path);
        let (part, journal) = (OsStr::new(&part), OsStr::new(&journal));
        let lock = anew(&hidden, journal, || {
            let _probing = shared.lock_probes();
            Locked::take(&hidden, journal, JOURNAL_MODE)
        })?;
        let file = anew(&hidden, part, || open_or_make(&hidden, part, FILE_PERMISSIONS, Owner::Any))?;
        let meta = file.metadata()?;
        let journal = lock.of(&options.keys, bytes_of(path), meta.ino());
        let found = journal.look(meta.len() == 0)?;
        let partial = Partial::new(hidden, part.to_owned(), file, Some(journal), each(shared));
        let missing = options.expected_bytes.map(|bytes| bytes.saturating_sub(partial.allocated_bytes()));
        require_room(partial.file(), missing).inspect_err(|_| {
            if matches!(found, Found::Nothing) {
                partial.discard();
            }
        })?;
        Ok((PosixTarget { shared: Arc::clone(shared), path: path.clone(), partial }, found))
    }

    fn commit_up_to(&self, last: Step, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let PosixTarget { shared, path, partial } = self;
        PosixEnding::new(shared, path, FILE_PERMISSIONS, Some(size_bytes), completion)
            .map_err(Failure::from)
            .and_then(|ending| ending.publish(last, partial))
            .map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Write(cause) => self.write_error(&cause),
            other => failed(&self.path, other.into()),
        }
    }

    fn write_error(&self, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot write {}", self.path), cause)
    }
}

impl Target for PosixTarget {
    fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    fn name(&self) -> String {
        self.path.to_string()
    }

    fn size_bytes(&self) -> Result<u64> {
        self.partial.size_bytes().map_err(|cause| failed(&self.path, cause.into()))
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
        self.partial.record(records).map_err(|cause| self.write_error(&cause))
    }

    fn restart(&self) -> Result<()> {
        self.partial.file().set_len(0).map_err(|cause| self.write_error(&cause))?;
        self.restart_journal()
    }

    fn restart_journal(&self) -> Result<()> {
        self.partial.restart_journal().map_err(|cause| self.write_error(&cause))
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        self.partial.is_doubtful(size_bytes).map_err(|failure| self.error(failure))
    }

    fn sync(&self) -> Result<()> {
        match self.shared.options.durability {
            Durability::None => Ok(()),
            Durability::File | Durability::Dir => {
                self.partial.file().sync_data().map_err(|cause| self.write_error(&cause))
            }
        }
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        self.commit_up_to(Step::All, size_bytes, completion)
    }

    fn discard(&self) {
        self.partial.discard();
    }
}

fn bytes_of(path: &ObjectPath) -> &[u8] {
    path.as_relative().as_os_str().as_bytes()
}

/// Opens something of the hidden directory, where nothing but this server's own files is. What cannot be used (a second name
/// of a file that is visible by now, one that was given away, a link) is removed, and made anew.
fn anew<T>(
    hidden: &OwnedFd,
    name: &OsStr,
    open: impl Fn() -> std::result::Result<T, Unusable>,
) -> StoreResult<T> {
    let is_useless = |why: &Unusable| match why {
        Unusable::Foreign => true,
        Unusable::Locked => false,
        Unusable::Io(cause) => cause.raw_os_error().is_some_and(|code| {
            [Errno::LOOP, Errno::ACCESS].iter().any(|errno| errno.raw_os_error() == code)
        }),
    };
    let opened = match open() {
        Err(why) if is_useless(&why) => {
            unlinkat(hidden, name, AtFlags::empty())?;
            open()
        }
        other => other,
    };
    opened.map_err(|why| match why {
        Unusable::Foreign => StoreError::Denied,
        Unusable::Locked => StoreError::Locked,
        Unusable::Io(cause) => cause.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::BlockingStorage;
    use crate::journal_key::JournalKeys;
    use crate::storage::Expectation;
    use crate::{Durability, PosixStorage};
    use gridlane_core::ErrorKind;
    use std::fs::{self, File};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    struct Bench {
        directory: tempfile::TempDir,
        storage: PosixStorage,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let storage = PosixStorage::open(directory.path(), Durability::Dir).unwrap();
            Bench { directory, storage }
        }

        fn path() -> ObjectPath {
            ObjectPath::new([&b"f"[..]]).unwrap()
        }

        fn open(&self) -> StoreResult<(PosixTarget, Found)> {
            let keys = JournalKeys::of(&[7; 32]);
            PosixTarget::open(
                &self.storage.shared,
                &Self::path(),
                &TargetOptions { keys, ..Default::default() },
            )
        }

        /// A copy to which nothing is missing but its end.
        fn whole(&self) -> PosixTarget {
            let (target, _) = self.open().unwrap();
            target.restart().unwrap();
            target.record(&[Record::object(6)]).unwrap();
            target.write_at(b"abcdef", 0).unwrap();
            target.record(&[Record::Done { offset: 0, len: 6, adler32: 5, source: 0 }]).unwrap();
            target
        }

        fn at(&self, name: &str) -> PathBuf {
            self.directory.path().join(".gridlane").join(name)
        }

        fn part(&self) -> PathBuf {
            self.at(&TargetNames::of(&Self::path()).part)
        }

        fn journal(&self) -> PathBuf {
            self.at(&TargetNames::of(&Self::path()).journal)
        }

        fn visible(&self) -> Option<Vec<u8>> {
            fs::read(self.directory.path().join("f")).ok()
        }

        fn leftovers(&self) -> usize {
            fs::read_dir(self.at("")).unwrap().count()
        }

        fn make_old(&self) {
            for at in [self.part(), self.journal()] {
                if let Ok(file) = File::options().write(true).open(at) {
                    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
                }
            }
        }

        fn remove_abandoned(&self) -> usize {
            self.storage.remove_abandoned(Duration::from_secs(1800)).unwrap()
        }
    }

    fn anything() -> Completion {
        Expectation::Anything.into()
    }

    /// A kill behind each step of the end, and the next start.
    #[test]
    fn wherever_a_kill_comes_nothing_is_lost_and_nothing_stays() {
        for last in [Step::Prepared, Step::Synced, Step::Renamed, Step::All] {
            let bench = Bench::new();
            let completion = Completion { modified: Some(SystemTime::UNIX_EPOCH), ..anything() };
            bench.whole().commit_up_to(last, 6, &completion).unwrap();
            if last < Step::Renamed {
                assert!(bench.visible().is_none());
                assert_eq!(bench.remove_abandoned(), 0, "it got an old time for its end alone");
                let (target, found) = bench.open().unwrap();
                let Found::Earlier(journaled) = found else { panic!("{last:?}: {found:?}") };
                assert_eq!(journaled.done.len(), 1);
                target.commit(6, &completion).unwrap();
            }
            assert_eq!(bench.visible().unwrap(), b"abcdef");
            if last == Step::Renamed {
                bench.make_old();
                assert_eq!(bench.remove_abandoned(), 1, "a journal alone");
            }
            assert_eq!(bench.leftovers(), 0, "{last:?}");
        }
    }

    /// Giving files away needs a privilege, which tests that run as root have.
    #[test]
    fn a_commit_that_is_refused_keeps_what_was_given_away_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let options = crate::PosixOptions { uid: Some(4242), umask: Some(0o077), ..Default::default() };
        let storage = PosixStorage::open_with(directory.path(), options).unwrap();
        let bench = Bench { directory, storage };
        fs::write(bench.directory.path().join("f"), b"old").unwrap();
        let refused = bench.whole().commit(6, &Expectation::Absent.into()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Precondition);
        let (target, found) = bench.open().unwrap();
        assert!(matches!(found, Found::Earlier(_)), "{found:?}");
        target.commit(6, &anything()).unwrap();
        assert_eq!(bench.visible().unwrap(), b"abcdef");
    }

    #[test]
    fn a_journal_of_a_file_that_is_visible_is_no_part_of_the_next_copy() {
        let bench = Bench::new();
        bench.whole().commit_up_to(Step::Renamed, 6, &anything()).unwrap();
        let (target, found) = bench.open().unwrap();
        assert!(matches!(found, Found::Nothing), "{found:?}");
        target.restart().unwrap();
        target.record(&[Record::object(0)]).unwrap();
        drop(target);
        assert!(matches!(bench.open().unwrap().1, Found::Earlier(_)));
    }

    #[test]
    fn what_becomes_visible_is_what_was_written() {
        let bench = Bench::new();
        let other = bench.directory.path().join("other");
        let replace = || {
            fs::write(&other, b"abcdef").unwrap();
            fs::rename(&other, bench.part()).unwrap();
        };
        let cut = || File::options().write(true).open(bench.part()).unwrap().set_len(5).unwrap();
        let remove = || fs::remove_file(bench.part()).unwrap();
        let meddlers: [&dyn Fn(); 3] = [&replace, &cut, &remove];
        for meddle in meddlers {
            let target = bench.whole();
            assert!(!target.is_doubtful(6).unwrap());
            meddle();
            assert!(target.is_doubtful(6).unwrap_or(true));
            assert_eq!(target.commit(6, &anything()).unwrap_err().kind(), ErrorKind::LocalIo);
            assert!(bench.visible().is_none());
            target.discard();
        }
        assert_eq!(bench.leftovers(), 0);
    }

    /// A link, and a second name of a file that is visible: as a kill leaves it where a file system links instead of renaming.
    #[test]
    fn no_other_file_is_written_to() {
        let bench = Bench::new();
        let victim = bench.directory.path().join("victim");
        fs::write(&victim, b"precious").unwrap();
        drop(bench.whole());
        for taken in [bench.part(), bench.journal()] {
            for second_name in [false, true] {
                fs::remove_file(&taken).unwrap();
                match second_name {
                    true => fs::hard_link(&victim, &taken).unwrap(),
                    false => std::os::unix::fs::symlink(&victim, &taken).unwrap(),
                }
                let target = bench.whole();
                assert_eq!(fs::read(&victim).unwrap(), b"precious");
                target.commit(6, &anything()).unwrap();
                assert_eq!(bench.visible().unwrap(), b"abcdef");
                drop(bench.whole());
            }
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn abandoned_ones_are_removed_and_never_one_that_is_open() {
        let bench = Bench::new();
        let target = bench.whole();
        assert_eq!(bench.storage.unfinished_bytes(&ObjectPath::root()).unwrap(), 0, "it is open");
        bench.make_old();
        assert_eq!(bench.remove_abandoned(), 0);
        // Another server on the same directory.
        let other = PosixStorage::open(bench.directory.path(), Durability::None).unwrap();
        assert_eq!(other.remove_abandoned(Duration::ZERO).unwrap(), 0);
        drop(target);
        assert_eq!(bench.storage.unfinished_bytes(&ObjectPath::root()).unwrap(), 6);
        let young = File::options().write(true).open(bench.part()).unwrap();
        young.set_modified(SystemTime::now()).unwrap();
        assert_eq!(bench.remove_abandoned(), 0, "one of the two is young");
        bench.make_old();
        assert_eq!((bench.remove_abandoned(), bench.leftovers()), (1, 0));
        drop(bench.whole());
        fs::remove_file(bench.journal()).unwrap();
        bench.make_old();
        assert_eq!((bench.remove_abandoned(), bench.leftovers()), (1, 0), "bytes without a journal");
    }

    /// A copy of another server that begins behind the last look.
    #[test]
    fn bytes_without_a_journal_are_not_taken_from_a_copy_that_begins() {
        let bench = Bench::new();
        drop(bench.whole());
        fs::remove_file(bench.journal()).unwrap();
        let other = PosixStorage::open(bench.directory.path(), Durability::None).unwrap();
        let hidden = Arc::new(hidden_of(&bench.storage.shared, &Bench::path()).unwrap());
        let (looks, begun) = (std::cell::Cell::new(0), std::cell::Cell::new(None));
        let is_old = |_: &str| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                begun.set(Some(PosixTarget::open(&other.shared, &Bench::path(), &TargetOptions::default())));
            }
            true
        };
        TargetNames::of(&Bench::path()).remove_abandoned(&bench.storage.shared, &hidden, is_old);
        match begun.take().expect("the last look is under the lock") {
            Err(refused) => assert!(matches!(refused, StoreError::Locked), "{refused:?}"),
            Ok((target, _)) => target.commit(6, &anything()).map(drop).unwrap(),
        }
    }

    #[test]
    fn names_in_the_hidden_directory_are_made_of_digests() {
        let bench = Bench::new();
        let path = ObjectPath::new([&b"upload-1.part"[..]]).unwrap();
        let names = [TargetNames::of(&path), TargetNames::of(&Bench::path())];
        for name in names.iter().flat_map(|names| [&names.part, &names.journal]) {
            let stem = name.strip_prefix("target-").unwrap().split('.').next().unwrap();
            assert!(stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
        assert_ne!(names[0].part, names[1].part);
        drop(bench.whole());
        assert!(bench.part().exists() && bench.journal().exists());
    }

    #[test]
    fn more_than_is_free_is_refused_and_leaves_nothing() {
        let bench = Bench::new();
        let options = TargetOptions { expected_bytes: Some(u64::MAX / 2), ..Default::default() };
        let refused = PosixTarget::open(&bench.storage.shared, &Bench::path(), &options);
        assert!(matches!(refused.err(), Some(StoreError::NoSpace)));
        assert_eq!(bench.leftovers(), 0);
        let long = ObjectPath::new([&[b'x'; 300][..]]).unwrap();
        let refused = PosixTarget::open(&bench.storage.shared, &long, &TargetOptions::default());
        assert!(matches!(refused.err(), Some(StoreError::NameTooLong)));
    }

    #[test]
    fn parents_are_made_when_that_is_asked_for() {
        let bench = Bench::new();
        let path = ObjectPath::new([&b"a"[..], b"b", b"f"]).unwrap();
        let mut options = TargetOptions::default();
        assert!(matches!(bench.storage.open_target(&path, &options).err(), Some(StoreError::ParentMissing)));
        options.parents = true;
        let (target, _) = bench.storage.open_target(&path, &options).unwrap();
        target.commit(0, &anything()).unwrap();
        assert!(bench.directory.path().join("a/b/f").exists());
    }
}
