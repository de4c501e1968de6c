//! One suite for every kind of [`Target`]: of a storage that has [`Targets`](crate::Targets), and of a path.
//!
//! Each check wants a place of its own that has an empty directory `sub` and nothing else. A check panics where a promise does
//! not hold. Places that block want a runtime of several threads.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Result};

use super::{Running, checks, kept, names, path};
use crate::journal::Record;
use crate::journal_key::JournalKeys;
use crate::path::ObjectPath;
use crate::path_target::PathTarget;
use crate::storage::{BoxFuture, Committed, Completion, Expectation, Storage};
use crate::target::{Found, Target, TargetOptions};

/// A place that targets are opened in.
pub trait Place: Sync {
    /// Opens the target for a file, with the key of `keys`.
    fn open<'a>(
        &'a self,
        at: &'a str,
        keys: &'a JournalKeys,
    ) -> BoxFuture<'a, Result<(Arc<dyn Target>, Found)>>;

    /// Puts a file there as others do.
    fn put<'a>(&'a self, at: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, ()>;

    /// The bytes of a file and its tag; `None` where there is none.
    fn read<'a>(&'a self, at: &'a str) -> BoxFuture<'a, Option<(Vec<u8>, String)>>;

    /// The names in `sub` and of files that are seen there, in order.
    fn names(&self) -> BoxFuture<'_, Vec<String>>;

    /// Removes the directory `sub` with all that is in it.
    fn remove_sub(&self) -> BoxFuture<'_, ()>;

    /// A checksum that was kept with a file; `None` where the place keeps none at all.
    fn kept<'a>(&'a self, at: &'a str, kind: ChecksumKind) -> BoxFuture<'a, Option<Option<Checksum>>>;
}

/// The targets of a storage.
pub struct OfStorage<'a>(pub &'a dyn Storage);

impl Place for OfStorage<'_> {
    fn open<'a>(
        &'a self,
        at: &'a str,
        keys: &'a JournalKeys,
    ) -> BoxFuture<'a, Result<(Arc<dyn Target>, Found)>> {
        Box::pin(async move {
            let options = TargetOptions { expected_bytes: Some(6), keys: keys.clone(), parents: false };
            Ok(self.0.targets().unwrap().open_target(&path(at), &options).await?)
        })
    }

    fn put<'a>(&'a self, at: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            super::write(self.0, at, bytes, &Expectation::Anything).await.unwrap();
        })
    }

    fn read<'a>(&'a self, at: &'a str) -> BoxFuture<'a, Option<(Vec<u8>, String)>> {
        Box::pin(async move {
            let bytes = super::read(self.0, at).await.ok()?;
            Some((bytes, self.0.stat(&path(at)).await.unwrap().tag))
        })
    }

    fn names(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(names(self.0, &SUB))
    }

    fn remove_sub(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.0.remove_tree(&SUB).await.unwrap() })
    }

    fn kept<'a>(&'a self, at: &'a str, kind: ChecksumKind) -> BoxFuture<'a, Option<Option<Checksum>>> {
        Box::pin(async move { Some(kept(self.0, at, kind).await) })
    }
}

static SUB: std::sync::LazyLock<ObjectPath> = std::sync::LazyLock::new(|| path("sub"));

/// The targets of paths below a directory.
pub struct OfDirectory<'a>(pub &'a std::path::Path);

impl Place for OfDirectory<'_> {
    fn open<'a>(
        &'a self,
        at: &'a str,
        keys: &'a JournalKeys,
    ) -> BoxFuture<'a, Result<(Arc<dyn Target>, Found)>> {
        let opened = PathTarget::open(&self.0.join(at), keys);
        let any = opened.map(|(target, found)| (Arc::new(target) as Arc<dyn Target>, found));
        Box::pin(std::future::ready(any))
    }

    fn put<'a>(&'a self, at: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        // Another file in any case.
        std::fs::write(self.0.join("put"), bytes).unwrap();
        std::fs::rename(self.0.join("put"), self.0.join(at)).unwrap();
        Box::pin(std::future::ready(()))
    }

    fn read<'a>(&'a self, at: &'a str) -> BoxFuture<'a, Option<(Vec<u8>, String)>> {
        let file = std::fs::File::open(self.0.join(at)).ok();
        let tag = file.as_ref().and_then(crate::posix::described).map(|metadata| metadata.tag);
        let read = tag.map(|tag| (std::fs::read(self.0.join(at)).unwrap(), tag));
        Box::pin(std::future::ready(read))
    }

    fn names(&self) -> BoxFuture<'_, Vec<String>> {
        let entries = std::fs::read_dir(self.0.join("sub")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        Box::pin(std::future::ready(names))
    }

    fn remove_sub(&self) -> BoxFuture<'_, ()> {
        std::fs::remove_dir_all(self.0.join("sub")).unwrap();
        Box::pin(std::future::ready(()))
    }

    fn kept<'a>(&'a self, _: &'a str, _: ChecksumKind) -> BoxFuture<'a, Option<Option<Checksum>>> {
        Box::pin(std::future::ready(None))
    }
}

/// One thing that has to hold.
#[derive(Clone, Copy)]
pub struct Check {
    /// In words.
    pub name: &'static str,
    run: for<'a> fn(&'a dyn Place) -> Running<'a>,
}

impl Check {
    /// Tries it at a place that is used for nothing else.
    pub async fn run(&self, place: &dyn Place) {
        (self.run)(place).await;
    }
}

/// All of them.
pub const CHECKS: &[Check] = checks![
    bytes_come_in_any_order_and_by_many_at_once,
    nothing_is_visible_before_the_commit,
    what_is_kept_is_gone_on_with,
    a_journal_is_believed_with_its_key_and_at_its_path_alone,
    bytes_without_a_journal_are_dropped,
    a_second_one_is_refused_at_once,
    expectations_are_checked_at_the_commit,
    checksums_and_times_are_kept,
    a_short_file_is_refused_and_a_long_one_cut,
    nothing_is_left_of_what_was_discarded,
    a_commit_ends_the_journal,
    a_target_can_begin_again,
    the_longest_names_have_room,
    a_directory_that_was_removed_gets_nothing,
];

/// The key of all checks.
fn keys() -> JournalKeys {
    JournalKeys::of(&[7; 32])
}

fn done(offset: u64, len: u64) -> Record {
    Record::Done { offset, len, adler32: 5, source: 0 }
}

async fn open(place: &dyn Place, at: &str) -> (Arc<dyn Target>, Found) {
    place.open(at, &keys()).await.unwrap()
}

/// Does something in a turn of the target.
async fn turn<T>(target: &Arc<dyn Target>, what: impl FnOnce(&dyn Target) -> T) -> T {
    let turns = Arc::clone(target.turns());
    turns.run(|| what(target.as_ref())).await
}

/// The first half of a copy of 6 bytes.
async fn half(place: &dyn Place, at: &str) -> Arc<dyn Target> {
    let (target, _) = open(place, at).await;
    turn(&target, |target| {
        target.restart().unwrap();
        target.record(&[Record::object(6)]).unwrap();
        target.write_at(b"abc", 0).unwrap();
        target.record(&[done(0, 3)]).unwrap();
    })
    .await;
    target
}

/// A copy to which nothing is missing but its end.
async fn whole(place: &dyn Place, at: &str) -> Arc<dyn Target> {
    let target = half(place, at).await;
    turn(&target, |target| {
        target.write_at(b"def", 3).unwrap();
        target.record(&[done(3, 3)]).unwrap();
    })
    .await;
    target
}

async fn commit(target: &Arc<dyn Target>, size_bytes: u64, completion: Completion) -> Result<Committed> {
    turn(target, |target| target.commit(size_bytes, &completion)).await
}

fn kind(outcome: Result<Committed>) -> std::result::Result<(), ErrorKind> {
    outcome.map(drop).map_err(|error: Error| error.kind())
}

async fn bytes_come_in_any_order_and_by_many_at_once(place: &dyn Place) {
    const PART: usize = 1 << 16;
    const PARTS: u8 = 16;
    let (target, found) = open(place, "sub/f").await;
    assert!(matches!(found, Found::Nothing), "{found:?}");
    assert_eq!(target.size_bytes().unwrap(), 0);
    turn(&target, |target| {
        target.restart().unwrap();
        std::thread::scope(|scope| {
            for lane in 0..4 {
                scope.spawn(move || {
                    for part in (0..PARTS).rev().filter(|part| part % 4 == lane) {
                        target.write_at(&[part; PART], u64::from(part) * PART as u64).unwrap();
                    }
                });
            }
        });
        let size_bytes = u64::from(PARTS) * PART as u64;
        assert_eq!(target.size_bytes().unwrap(), size_bytes);
        assert!(!target.is_doubtful(size_bytes).unwrap() && target.is_doubtful(size_bytes + 1).unwrap());
        let mut byte = [0];
        for part in 0..PARTS {
            assert_eq!(target.read_at(&mut byte, u64::from(part) * PART as u64 + 9).unwrap(), 1);
            assert_eq!(byte, [part]);
        }
        assert_eq!(target.read_at(&mut byte, size_bytes).unwrap(), 0);
    })
    .await;
    let committed =
        commit(&target, u64::from(PARTS) * PART as u64, Expectation::Absent.into()).await.unwrap();
    assert_eq!(committed.metadata.size_bytes, u64::from(PARTS) * PART as u64);
    assert!(!committed.replaced);
}

async fn nothing_is_visible_before_the_commit(place: &dyn Place) {
    place.put("sub/old", b"old").await;
    for at in ["sub/f", "sub/old"] {
        let target = whole(place, at).await;
        assert!(target.name().ends_with(at));
        assert_eq!(place.names().await, if at == "sub/f" { vec!["old"] } else { vec!["f", "old"] });
        let old = place.read(at).await.map(|(bytes, _)| bytes);
        assert_eq!(old.as_deref(), (at == "sub/old").then_some(&b"old"[..]));
        let committed = commit(&target, 6, Expectation::Anything.into()).await.unwrap();
        let (bytes, tag) = place.read(at).await.unwrap();
        assert_eq!((bytes.as_slice(), &tag), (&b"abcdef"[..], &committed.metadata.tag));
        let replaced_bytes = if at == "sub/old" { 3 } else { 0 };
        assert_eq!((committed.replaced, committed.replaced_bytes), (at == "sub/old", replaced_bytes));
    }
    assert_eq!(place.names().await, ["f", "old"]);
}

async fn what_is_kept_is_gone_on_with(place: &dyn Place) {
    drop(half(place, "sub/f").await);
    assert!(place.names().await.is_empty());
    let (target, found) = open(place, "sub/f").await;
    let Found::Earlier(journaled) = found else { panic!("{found:?}") };
    assert_eq!((journaled.size_bytes, journaled.done.len()), (6, 1));
    assert_eq!(journaled.done[0].range, ByteRange::new(0, 3));
    turn(&target, |target| {
        let mut bytes = [0; 3];
        assert_eq!((target.size_bytes().unwrap(), target.read_at(&mut bytes, 0).unwrap()), (3, 3));
        assert_eq!(&bytes, b"abc");
        target.write_at(b"def", 3).unwrap();
        target.record(&[done(3, 3)]).unwrap();
    })
    .await;
    drop(target);
    let (target, found) = open(place, "sub/f").await;
    let Found::Earlier(journaled) = found else { panic!("{found:?}") };
    assert_eq!(journaled.done.len(), 2);
    commit(&target, 6, Expectation::Absent.into()).await.unwrap();
    assert_eq!(place.read("sub/f").await.unwrap().0, b"abcdef");
}

async fn a_journal_is_believed_with_its_key_and_at_its_path_alone(place: &dyn Place) {
    drop(half(place, "sub/f").await);
    let (other, found) = open(place, "sub/g").await;
    assert!(matches!(found, Found::Nothing), "of another path: {found:?}");
    drop(other);
    let none = JournalKeys::default();
    let (target, found) = place.open("sub/f", &none).await.unwrap();
    assert!(matches!(found, Found::Locked(_)) && !target.is_recorded(), "{found:?}");
    drop(target);
    let (target, found) = place.open("sub/f", &JournalKeys::of(&[8; 32])).await.unwrap();
    assert!(matches!(found, Found::Dropped(_)) && target.is_recorded(), "{found:?}");
    turn(&target, |target| {
        target.restart_journal().unwrap();
        target.record(&[Record::object(6)]).unwrap();
    })
    .await;
    drop(target);
    assert!(matches!(open(place, "sub/f").await.1, Found::Dropped(_)));
}

async fn bytes_without_a_journal_are_dropped(place: &dyn Place) {
    let target = half(place, "sub/f").await;
    turn(&target, |target| target.restart_journal().unwrap()).await;
    assert_eq!(target.size_bytes().unwrap(), 3, "only the records are forgotten");
    drop(target);
    let (_, found) = open(place, "sub/f").await;
    assert!(matches!(found, Found::Dropped(_)), "{found:?}");
}

async fn a_second_one_is_refused_at_once(place: &dyn Place) {
    let target = half(place, "sub/f").await;
    let refused = place.open("sub/f", &keys()).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Precondition, "{refused}");
    let (_other, found) = open(place, "sub/g").await;
    assert!(matches!(found, Found::Nothing), "{found:?}");
    drop(target);
    assert!(matches!(open(place, "sub/f").await.1, Found::Earlier(_)));
}

async fn expectations_are_checked_at_the_commit(place: &dyn Place) {
    let target = whole(place, "sub/f").await;
    // Others were faster.
    place.put("sub/f", b"old").await;
    assert_eq!(kind(commit(&target, 6, Expectation::Absent.into()).await), Err(ErrorKind::Precondition));
    let (bytes, tag) = place.read("sub/f").await.unwrap();
    assert_eq!(bytes, b"old");
    place.put("sub/f", b"older").await;
    let stale = Expectation::Tag(tag);
    assert_eq!(kind(commit(&target, 6, stale.clone().into()).await), Err(ErrorKind::Precondition));
    // All is kept for another try, also by another copy.
    drop(target);
    let (target, found) = open(place, "sub/f").await;
    assert!(matches!(found, Found::Earlier(_)), "{found:?}");
    let (bytes, tag) = place.read("sub/f").await.unwrap();
    assert_eq!(bytes, b"older");
    assert!(commit(&target, 6, Expectation::Tag(tag).into()).await.unwrap().replaced);
    assert_eq!(place.read("sub/f").await.unwrap().0, b"abcdef");
    let target = whole(place, "sub/g").await;
    assert_eq!(kind(commit(&target, 6, stale.into()).await), Err(ErrorKind::Precondition));
}

async fn checksums_and_times_are_kept(place: &dyn Place) {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
    let checksums = super::checksums().to_vec();
    for (at, modified) in [("sub/f", Some(modified)), ("sub/g", None)] {
        let target = whole(place, at).await;
        let completion =
            Completion { expectation: Expectation::Anything, modified, checksums: checksums.clone() };
        let committed = commit(&target, 6, completion).await.unwrap();
        if let Some(modified) = modified {
            assert_eq!(committed.metadata.modified, modified);
        }
        for checksum in &checksums {
            if let Some(kept) = place.kept(at, checksum.kind()).await {
                assert_eq!(kept.as_ref(), Some(checksum), "{at}");
            }
        }
    }
}

async fn a_short_file_is_refused_and_a_long_one_cut(place: &dyn Place) {
    let target = half(place, "sub/f").await;
    assert_eq!(kind(commit(&target, 6, Expectation::Anything.into()).await), Err(ErrorKind::LocalIo));
    assert!(place.read("sub/f").await.is_none());
    let committed = commit(&target, 2, Expectation::Anything.into()).await.unwrap();
    assert_eq!(committed.metadata.size_bytes, 2);
    assert_eq!(place.read("sub/f").await.unwrap().0, b"ab");
}

async fn nothing_is_left_of_what_was_discarded(place: &dyn Place) {
    let target = half(place, "sub/f").await;
    turn(&target, |target| target.discard()).await;
    drop(target);
    let (target, found) = open(place, "sub/f").await;
    assert!(matches!(found, Found::Nothing), "{found:?}");
    assert_eq!(target.size_bytes().unwrap(), 0);
    assert!(place.names().await.is_empty());
}

async fn a_commit_ends_the_journal(place: &dyn Place) {
    let target = whole(place, "sub/f").await;
    commit(&target, 6, Expectation::Absent.into()).await.unwrap();
    // What is visible is no target's any more, whatever is done with that.
    let again = half(place, "sub/f").await;
    turn(&target, |target| target.discard()).await;
    drop(target);
    assert_eq!(place.read("sub/f").await.unwrap().0, b"abcdef");
    drop(again);
    assert!(matches!(open(place, "sub/f").await.1, Found::Earlier(_)), "that of the next copy");
}

async fn a_target_can_begin_again(place: &dyn Place) {
    let target = whole(place, "sub/f").await;
    turn(&target, |target| {
        target.restart().unwrap();
        assert_eq!(target.size_bytes().unwrap(), 0);
        target.record(&[Record::object(2)]).unwrap();
        target.write_at(b"xy", 0).unwrap();
        target.record(&[done(0, 2)]).unwrap();
    })
    .await;
    drop(target);
    let (target, found) = open(place, "sub/f").await;
    let Found::Earlier(journaled) = found else { panic!("{found:?}") };
    assert_eq!((journaled.size_bytes, journaled.done.len()), (2, 1));
    commit(&target, 2, Expectation::Absent.into()).await.unwrap();
    assert_eq!(place.read("sub/f").await.unwrap().0, b"xy");
}

async fn the_longest_names_have_room(place: &dyn Place) {
    // Apart in the last byte only.
    for last in ["a", "b"] {
        let at = format!("sub/{}{last}", "n".repeat(254));
        let (target, found) = open(place, &at).await;
        assert!(matches!(found, Found::Nothing), "{found:?}");
        drop(target);
        drop(half(place, &at).await);
    }
    let at = format!("sub/{}a", "n".repeat(254));
    let target = whole(place, &at).await;
    commit(&target, 6, Expectation::Absent.into()).await.unwrap();
    assert_eq!(place.names().await.len(), 1);
}

async fn a_directory_that_was_removed_gets_nothing(place: &dyn Place) {
    let target = whole(place, "sub/f").await;
    place.remove_sub().await;
    assert!(commit(&target, 6, Expectation::Anything.into()).await.is_err());
    assert!(place.read("sub/f").await.is_none());
    turn(&target, |target| target.discard()).await;
    drop(target);
    let refused = place.open("sub/f", &keys()).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
}
