//! One suite for every storage: what the traits promise holds for a directory of this machine, for
//! memory, and for the fakes while they behave.
//!
//! Each check gets a storage of its own that has an empty directory `sub` and nothing else.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod writable;

use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{
    Disposition, Durability, Expectation, MemoryStorage, NodeKind, ObjectPath, Opened, Overwrite,
    PosixOptions, PosixStorage, QuotaStorage, Storage, StoreError, Visibility, WriteOptions,
};

/// One thing that has to hold.
type Check = fn(&dyn Storage);

/// A storage, and what has to live as long as it.
type Prepared = (Box<dyn Storage>, Option<tempfile::TempDir>);

fn memory() -> Prepared {
    let storage = MemoryStorage::new();
    storage.add_directory(&path("sub"));
    (Box::new(storage), None)
}

fn slow() -> Prepared {
    let storage = MemoryStorage::new();
    storage.add_directory(&path("sub"));
    (Box::new(SlowStorage::new(storage, Gate::new())), None)
}

fn faulty() -> Prepared {
    let storage = MemoryStorage::new();
    storage.add_directory(&path("sub"));
    (Box::new(FaultyStorage::new(storage, u64::MAX)), None)
}

fn posix_with(durability: Durability) -> Prepared {
    posix_of(PosixOptions { durability, ..PosixOptions::default() })
}

fn posix_of(options: PosixOptions) -> Prepared {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    (Box::new(PosixStorage::open_with(directory.path(), options).unwrap()), Some(directory))
}

fn with_quota((storage, kept): Prepared) -> Prepared {
    let storage = QuotaStorage::new(storage.into(), 1 << 40);
    storage.recount().unwrap();
    (Box::new(storage), kept)
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

fn write(
    storage: &dyn Storage,
    at: &str,
    bytes: &[u8],
    expectation: &Expectation,
) -> Result<bool, StoreError> {
    let mut upload = storage.create(&path(at), Some(bytes.len() as u64))?;
    upload.write_at(bytes, 0)?;
    upload.commit(expectation).map(|committed| committed.replaced)
}

fn read(storage: &dyn Storage, at: &str) -> Result<Vec<u8>, StoreError> {
    let Opened::File(object) = storage.open(&path(at))? else { return Err(StoreError::NotAFile) };
    let mut bytes = vec![0; 100];
    let mut len = 0;
    loop {
        match object.read_at(&mut bytes[len..], len as u64).unwrap() {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    assert_eq!(object.metadata().size_bytes, len as u64);
    Ok(bytes)
}

fn names(storage: &dyn Storage, at: &ObjectPath) -> Vec<String> {
    let listing = storage.list(at).unwrap();
    assert!(!listing.is_cut);
    let sorted = |mut names: Vec<Vec<u8>>| {
        names.sort();
        names
    };
    let alone = storage.names(at).unwrap().collect::<Result<_, _>>().unwrap();
    let with_more = listing.entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(sorted(alone), sorted(with_more));
    let mut names: Vec<_> = listing
        .entries
        .into_iter()
        .map(|entry| {
            let slash = if entry.metadata.is_directory() { "/" } else { "" };
            format!("{}{slash}", String::from_utf8(entry.name).unwrap())
        })
        .collect();
    names.sort();
    names
}

fn complete_uploads_are_visible(storage: &dyn Storage) {
    assert!(!write(storage, "sub/f", b"first", &Expectation::Anything).unwrap());
    assert_eq!(read(storage, "sub/f").unwrap(), b"first");
    assert!(write(storage, "sub/f", b"second!", &Expectation::Anything).unwrap());
    assert_eq!(read(storage, "sub/f").unwrap(), b"second!");
    assert!(!write(storage, "empty", b"", &Expectation::Anything).unwrap());
    assert_eq!(read(storage, "empty").unwrap(), b"");
    assert_eq!(names(storage, &ObjectPath::root()), ["empty", "sub/"]);
    assert_eq!(names(storage, &path("sub")), ["f"]);
}

fn incomplete_uploads_are_not(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).unwrap();
    let mut upload = storage.create(&path("f"), None).unwrap();
    upload.write_at(b"new", 0).unwrap();
    assert_eq!(read(storage, "f").unwrap(), b"old");
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
    drop(upload);
    assert_eq!(read(storage, "f").unwrap(), b"old");
}

fn pieces_may_come_in_any_order(storage: &dyn Storage) {
    let mut upload = storage.create(&path("f"), Some(6)).unwrap();
    upload.write_at(b"def", 3).unwrap();
    upload.write_at(b"abc", 0).unwrap();
    upload.commit(&Expectation::Anything).unwrap();
    assert_eq!(read(storage, "f").unwrap(), b"abcdef");
}

fn an_open_file_outlives_its_name(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).unwrap();
    let Opened::File(object) = storage.open(&path("f")).unwrap() else { panic!("a file") };
    write(storage, "f", b"new", &Expectation::Anything).unwrap();
    storage.remove(&path("f"), &Expectation::Anything).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(object.read_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(&bytes, b"old");
    assert_eq!(object.read_at(&mut bytes, 3).unwrap(), 0);
    assert_eq!(object.read_at(&mut bytes, 1 << 60).unwrap(), 0);
}

fn opening_without_waiting_is_opening(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).unwrap();
    for at in ["sub/f", "sub", "none", "sub/f/g", "none/f"] {
        let kind = |opened: Result<Opened, StoreError>| match opened {
            Ok(Opened::File(object)) => Ok(Some(object.metadata().clone())),
            Ok(Opened::Directory) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        match storage.open_nowait(&path(at)) {
            Ok(None) => {}
            Ok(Some(opened)) => assert_eq!(kind(Ok(opened)), kind(storage.open(&path(at))), "{at}"),
            Err(error) => assert_eq!(kind(Err(error)), kind(storage.open(&path(at))), "{at}"),
        }
        let text = |looked: Result<_, StoreError>| looked.map_err(|error| error.to_string());
        match storage.look_nowait(&path(at)) {
            Ok(None) => {}
            Ok(Some(metadata)) => assert_eq!(Ok(metadata), text(storage.look(&path(at))), "{at}"),
            Err(error) => assert_eq!(text(Err(error)), text(storage.look(&path(at))), "{at}"),
        }
    }
}

fn tags_tell_states_apart(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    let first = storage.stat(&path("f")).unwrap();
    assert_eq!(storage.stat(&path("f")).unwrap(), first);
    let mut upload = storage.create(&path("f"), None).unwrap();
    upload.write_at(b"two", 0).unwrap();
    let committed = upload.commit(&Expectation::Anything).unwrap();
    let second = storage.stat(&path("f")).unwrap();
    assert_ne!(first.tag, second.tag);
    assert_eq!(committed.metadata, second);
}

fn expectations_are_kept(storage: &dyn Storage) {
    assert!(!write(storage, "f", b"one", &Expectation::Absent).unwrap());
    let again = write(storage, "f", b"two", &Expectation::Absent);
    assert!(matches!(again, Err(StoreError::Unexpected)));
    let tag = Expectation::Tag(storage.stat(&path("f")).unwrap().tag);
    assert!(write(storage, "f", b"two", &tag).unwrap());
    assert!(matches!(write(storage, "f", b"three", &tag), Err(StoreError::Unexpected)));
    assert!(matches!(write(storage, "g", b"three", &tag), Err(StoreError::Unexpected)));
    for wrong in [&tag, &Expectation::Absent] {
        assert!(matches!(storage.remove(&path("f"), wrong), Err(StoreError::Unexpected)));
    }
    assert_eq!(read(storage, "f").unwrap(), b"two");
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
}

fn removal(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).unwrap();
    storage.remove(&path("sub/f"), &Expectation::Anything).unwrap();
    assert!(matches!(read(storage, "sub/f"), Err(StoreError::NotFound)));
    assert!(matches!(storage.remove(&path("sub/f"), &Expectation::Anything), Err(StoreError::NotFound)));
    for directory in [path("sub"), ObjectPath::root()] {
        let refused = storage.remove(&directory, &Expectation::Anything);
        assert!(matches!(refused, Err(StoreError::NotAFile)));
    }
}

fn what_cannot_be(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    assert!(matches!(storage.create(&path("none/f"), None), Err(StoreError::ParentMissing)));
    assert!(matches!(storage.create(&path("f/g"), None), Err(StoreError::ParentMissing)));
    assert!(matches!(storage.create(&path("sub"), None), Err(StoreError::NotAFile)));
    assert!(matches!(storage.create(&ObjectPath::root(), None), Err(StoreError::NotAFile)));
    assert!(matches!(storage.open(&path("none")), Err(StoreError::NotFound)));
    assert!(matches!(storage.open(&path("f/g")), Err(StoreError::NotFound)));
    assert!(matches!(storage.stat(&path("sub")), Err(StoreError::NotAFile)));
    assert!(matches!(storage.list(&path("none")), Err(StoreError::NotFound)));
    assert!(matches!(storage.list(&path("f")), Err(StoreError::NotADirectory)));
    assert!(matches!(storage.open(&path("sub")), Ok(Opened::Directory)));
    assert!(matches!(storage.open(&ObjectPath::root()), Ok(Opened::Directory)));
}

#[test]
fn every_storage_passes_every_check() {
    type Named = (&'static str, fn() -> Prepared);
    let storages: [Named; 9] = [
        ("memory", memory),
        ("memory, quota", || with_quota(memory())),
        ("posix, quota", || with_quota(posix_with(Durability::None))),
        ("slow", slow),
        ("faulty", faulty),
        ("posix, durability none", || posix_with(Durability::None)),
        ("posix, durability file", || posix_with(Durability::File)),
        ("posix, durability dir", || posix_with(Durability::Dir)),
        ("posix, side file", || {
            posix_of(PosixOptions { without_attributes: true, ..PosixOptions::default() })
        }),
    ];
    let checks: [Check; 21] = [
        complete_uploads_are_visible,
        incomplete_uploads_are_not,
        pieces_may_come_in_any_order,
        an_open_file_outlives_its_name,
        tags_tell_states_apart,
        opening_without_waiting_is_opening,
        expectations_are_kept,
        removal,
        what_cannot_be,
        what_cannot_be_twice,
        looking_tells_all,
        entries_come_one_by_one,
        directories_are_made,
        directories_are_removed,
        trees_are_removed,
        files_are_moved,
        directories_are_moved,
        moves_that_cannot_be,
        copies_are_made_in_steps,
        times_and_space,
        checksums_stay_with_the_file,
    ];
    for (name, prepare) in storages {
        eprintln!("{name}");
        for check in checks.iter().chain(writable::CHECKS) {
            let (storage, _kept) = prepare();
            check(storage.as_ref());
        }
    }
}

/// A refused operation changes nothing: the same refusals come again.
fn what_cannot_be_twice(storage: &dyn Storage) {
    what_cannot_be(storage);
    what_cannot_be(storage);
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
}

fn looking_tells_all(storage: &dyn Storage) {
    write(storage, "sub/f", b"12345", &Expectation::Anything).unwrap();
    let file = storage.look(&path("sub/f")).unwrap();
    assert_eq!((file.kind, file.size_bytes, file.mode & 0o170_000), (NodeKind::File, 5, 0o100_000));
    assert_eq!(storage.stat(&path("sub/f")).unwrap(), file);
    for directory in [path("sub"), ObjectPath::root()] {
        let found = storage.look(&directory).unwrap();
        assert_eq!((found.kind, found.size_bytes), (NodeKind::Directory, 0));
        assert_eq!(found.mode & 0o170_000, 0o040_000);
    }
    let entry = &storage.list(&path("sub")).unwrap().entries[0];
    assert_eq!((entry.name.as_slice(), &entry.metadata), (&b"f"[..], &file));
    assert!(matches!(storage.look(&path("none")), Err(StoreError::NotFound)));
    assert!(matches!(storage.look(&path("sub/f/g")), Err(StoreError::NotFound)));
}

fn entries_come_one_by_one(storage: &dyn Storage) {
    for number in 0..20 {
        write(storage, &format!("sub/{number}"), b"", &Expectation::Anything).unwrap();
    }
    let mut entries = storage.entries(&path("sub")).unwrap();
    let first: Vec<_> = entries.by_ref().take(10).collect();
    assert_eq!(first.len(), 10);
    // What is removed while it is read is in it or is not, and spoils nothing.
    storage.remove_tree(&path("sub")).unwrap();
    assert!(entries.all(|entry| entry.is_ok()));
    assert!(entries.next().is_none());
    assert!(matches!(storage.entries(&path("sub")).err(), Some(StoreError::NotFound)));
    assert!(matches!(storage.entries(&path("f/g")).err(), Some(StoreError::NotFound)));
}

fn directories_are_made(storage: &dyn Storage) {
    storage.make_directory(&path("new")).unwrap();
    storage.make_directory(&path("new/below")).unwrap();
    assert_eq!(names(storage, &ObjectPath::root()), ["new/", "sub/"]);
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    for taken in ["new", "f", "sub"] {
        assert!(matches!(storage.make_directory(&path(taken)), Err(StoreError::Unexpected)));
    }
    assert!(matches!(storage.make_directory(&ObjectPath::root()), Err(StoreError::Unexpected)));
    for orphan in ["none/below", "f/below"] {
        assert!(matches!(storage.make_directory(&path(orphan)), Err(StoreError::ParentMissing)));
    }
    for _ in 0..2 {
        storage.make_directories(&path("new/a/b/c")).unwrap();
        storage.make_directories(&ObjectPath::root()).unwrap();
    }
    assert_eq!(names(storage, &path("new/a/b")), ["c/"]);
    for through in ["f", "f/a", "f/a/b"] {
        assert!(matches!(storage.make_directories(&path(through)), Err(StoreError::NotADirectory)));
    }
}

fn directories_are_removed(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).unwrap();
    assert!(matches!(storage.remove_directory(&path("sub")), Err(StoreError::NotEmpty)));
    assert!(matches!(storage.remove_directory(&path("sub/f")), Err(StoreError::NotADirectory)));
    assert!(matches!(storage.remove_directory(&path("none")), Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_directory(&path("none/f")), Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_directory(&ObjectPath::root()), Err(StoreError::InUse)));
    storage.remove(&path("sub/f"), &Expectation::Anything).unwrap();
    storage.remove_directory(&path("sub")).unwrap();
    assert!(matches!(storage.look(&path("sub")), Err(StoreError::NotFound)));
}

fn trees_are_removed(storage: &dyn Storage) {
    storage.make_directories(&path("sub/a/b/c")).unwrap();
    storage.make_directory(&path("sub-2")).unwrap();
    for at in ["sub/f", "sub/a/f", "sub/a/b/c/f", "f", "sub-2/f"] {
        write(storage, at, b"one", &Expectation::Anything).unwrap();
    }
    assert!(matches!(storage.remove_tree(&path("f")), Err(StoreError::NotADirectory)));
    assert!(matches!(storage.remove_tree(&path("none")), Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_tree(&ObjectPath::root()), Err(StoreError::InUse)));
    let mut upload = storage.create(&path("sub/late"), None).unwrap();
    upload.write_at(b"late", 0).unwrap();
    storage.remove_tree(&path("sub")).unwrap();
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub-2/"]);
    assert_eq!(names(storage, &path("sub-2")), ["f"]);
    // What was said to be there would be nowhere.
    assert!(matches!(upload.commit(&Expectation::Anything), Err(StoreError::ParentMissing)));
    // The name is free again.
    storage.make_directory(&path("sub")).unwrap();
    assert!(names(storage, &path("sub")).is_empty());
}

fn files_are_moved(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    let rename = |from: &str, to: &str, overwrite: bool, expectation: &Expectation| {
        storage.rename(&path(from), &path(to), Overwrite::from(overwrite), expectation)
    };
    assert!(!rename("f", "sub/g", false, &Expectation::Anything).unwrap());
    assert!(matches!(read(storage, "f"), Err(StoreError::NotFound)));
    assert_eq!(read(storage, "sub/g").unwrap(), b"one");
    write(storage, "f", b"two", &Expectation::Anything).unwrap();
    let refused = rename("f", "sub/g", false, &Expectation::Anything);
    assert!(matches!(refused, Err(StoreError::Unexpected)));
    for wrong in [Expectation::Tag("other".to_owned()), Expectation::Absent] {
        assert!(matches!(rename("f", "sub/g", true, &wrong), Err(StoreError::Unexpected)));
    }
    assert_eq!(read(storage, "sub/g").unwrap(), b"one");
    let tag = Expectation::Tag(storage.stat(&path("f")).unwrap().tag);
    assert!(rename("f", "sub/g", true, &tag).unwrap());
    assert_eq!(read(storage, "sub/g").unwrap(), b"two");
    assert_eq!(names(storage, &ObjectPath::root()), ["sub/"]);
}

fn directories_are_moved(storage: &dyn Storage) {
    let rename = |from: &str, to: &str, overwrite: bool| {
        storage.rename(&path(from), &path(to), Overwrite::from(overwrite), &Expectation::Anything)
    };
    storage.make_directories(&path("sub/a/b")).unwrap();
    write(storage, "sub/a/b/f", b"one", &Expectation::Anything).unwrap();
    assert!(!rename("sub/a", "moved", false).unwrap());
    assert_eq!(read(storage, "moved/b/f").unwrap(), b"one");
    assert!(names(storage, &path("sub")).is_empty());
    // Onto a directory, an empty one and a full one, onto a file, and a file onto a directory.
    storage.make_directories(&path("other/c")).unwrap();
    write(storage, "other/c/g", b"two", &Expectation::Anything).unwrap();
    assert!(matches!(rename("moved", "other", false), Err(StoreError::Unexpected)));
    assert!(rename("moved", "other", true).unwrap());
    assert_eq!(names(storage, &path("other")), ["b/"]);
    assert!(rename("other", "sub", true).unwrap());
    assert_eq!(read(storage, "sub/b/f").unwrap(), b"one");
    write(storage, "f", b"three", &Expectation::Anything).unwrap();
    assert!(rename("sub", "f", true).unwrap());
    assert_eq!(read(storage, "f/b/f").unwrap(), b"one");
    write(storage, "g", b"four", &Expectation::Anything).unwrap();
    assert!(rename("g", "f", true).unwrap());
    assert_eq!(read(storage, "f").unwrap(), b"four");
    assert_eq!(names(storage, &ObjectPath::root()), ["f"]);
    // Where only files are to be replaced, no directory is, and none takes a file's place.
    storage.make_directories(&path("full/sub")).unwrap();
    write(storage, "full/g", b"five", &Expectation::Anything).unwrap();
    let only_files = |from: &str, to: &str| {
        storage.rename(&path(from), &path(to), Overwrite::Files, &Expectation::Anything)
    };
    for (from, to) in [("f", "full"), ("full", "f"), ("f", "full/sub"), ("full/sub", "f")] {
        assert!(matches!(only_files(from, to), Err(StoreError::NotAFile)), "{from} {to}");
    }
    assert_eq!(read(storage, "full/g").unwrap(), b"five");
    assert!(only_files("full/g", "f").unwrap());
    assert!(!only_files("f", "full/g").unwrap());
    assert_eq!(read(storage, "full/g").unwrap(), b"five");
    storage.remove_tree(&path("full")).unwrap();
    write(storage, "f", b"four", &Expectation::Anything).unwrap();
}

fn moves_that_cannot_be(storage: &dyn Storage) {
    let rename = |from: &str, to: &str| {
        storage.rename(&path(from), &path(to), Overwrite::Anything, &Expectation::Anything).unwrap_err()
    };
    storage.make_directories(&path("sub/a/b")).unwrap();
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    for (from, to) in [("sub", "sub"), ("f", "f"), ("sub", "sub/a"), ("sub", "sub/a/b/c"), ("sub/a/b", "sub")]
    {
        assert!(matches!(rename(from, to), StoreError::IntoItself), "{from} to {to}");
    }
    assert!(matches!(rename("none", "g"), StoreError::NotFound));
    assert!(matches!(rename("none/f", "g"), StoreError::NotFound));
    assert!(matches!(rename("f", "none/g"), StoreError::ParentMissing));
    assert!(matches!(rename("sub", "f/g"), StoreError::ParentMissing));
    for (from, to) in [(ObjectPath::root(), path("g")), (path("f"), ObjectPath::root())] {
        let refused = storage.rename(&from, &to, Overwrite::Anything, &Expectation::Anything);
        assert!(matches!(refused, Err(StoreError::InUse)));
    }
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
    assert_eq!(names(storage, &path("sub/a")), ["b/"]);
}

fn copies_are_made_in_steps(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..700_000_u32).map(|number| (number % 251) as u8).collect();
    write(storage, "f", &bytes, &Expectation::Anything).unwrap();
    let Opened::File(source) = storage.open(&path("f")).unwrap() else { panic!("a file") };
    let mut upload = storage.create(&path("sub/g"), Some(bytes.len() as u64)).unwrap();
    let mut at = 0;
    loop {
        match upload.copy_range(source.as_ref(), at, 300_000).unwrap() {
            0 => break,
            count => at += count,
        }
    }
    assert_eq!(at, bytes.len() as u64);
    upload.commit(&Expectation::Absent).unwrap();
    let Opened::File(copy) = storage.open(&path("sub/g")).unwrap() else { panic!("a file") };
    let mut read = vec![0; bytes.len()];
    let mut len = 0;
    while len < read.len() {
        len += copy.read_at(&mut read[len..], len as u64).unwrap();
    }
    assert!(read == bytes && copy.metadata().size_bytes == at);
}

fn times_and_space(storage: &dyn Storage) {
    let moment = SystemTime::UNIX_EPOCH + Duration::new(784_111_777, 123_456_789);
    let earlier = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    for modified in [moment, earlier] {
        let mut upload = storage.create(&path("f"), None).unwrap();
        upload.set_modified(modified).unwrap();
        upload.write_at(b"one", 0).unwrap();
        assert_eq!(upload.commit(&Expectation::Anything).unwrap().metadata.modified, modified);
        assert_eq!(storage.look(&path("f")).unwrap().modified, modified);
        storage.set_modified(&path("sub"), modified).unwrap();
        assert_eq!(storage.look(&path("sub")).unwrap().modified, modified);
    }
    storage.set_modified(&path("f"), moment).unwrap();
    assert_eq!(storage.look(&path("f")).unwrap().modified, moment);
    assert_eq!(read(storage, "f").unwrap(), b"one");
    assert!(matches!(storage.set_modified(&path("none"), moment), Err(StoreError::NotFound)));
    for at in [ObjectPath::root(), path("sub"), path("f")] {
        let space = storage.space(&at).unwrap();
        assert!(space.available_bytes <= space.total_bytes && space.used_bytes <= space.total_bytes);
    }
    assert!(matches!(storage.space(&path("none")), Err(StoreError::NotFound)));
}

fn kept(storage: &dyn Storage, at: &str, kind: ChecksumKind) -> Option<Checksum> {
    let Opened::File(object) = storage.open(&path(at)).unwrap() else { panic!("a file") };
    object.kept_checksum(kind)
}

fn checksums_stay_with_the_file(storage: &dyn Storage) {
    let (adler32, md5) = (ChecksumKind::Adler32, ChecksumKind::Md5);
    let checksums = [Checksum::adler32(7), Checksum::from_bytes(md5, &[1; 16]).unwrap()];
    let upload = |at: &str| {
        let mut upload = storage.create(&path(at), None).unwrap();
        upload.write_at(b"one", 0).unwrap();
        upload.keep_checksums(&checksums);
        upload
    };
    upload("f").commit(&Expectation::Anything).unwrap();
    assert_eq!(kept(storage, "f", adler32).as_ref(), Some(&checksums[0]));
    assert_eq!(kept(storage, "f", md5).as_ref(), Some(&checksums[1]));
    assert_eq!(kept(storage, "f", ChecksumKind::Sha256), None);
    // With times of its own, and wherever it is moved to.
    let mut timed = upload("sub/g");
    timed.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
    timed.commit(&Expectation::Anything).unwrap();
    storage.rename(&path("sub/g"), &path("g"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    storage.rename(&path("sub"), &path("h"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    storage.rename(&path("g"), &path("h/g"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    storage.rename(&path("h"), &path("sub"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    assert_eq!(kept(storage, "sub/g", adler32).as_ref(), Some(&checksums[0]));
    // One of these bytes is not one of others.
    let mut longer = upload("f");
    longer.write_at(b"more", 3).unwrap();
    longer.commit(&Expectation::Anything).unwrap();
    assert_eq!(kept(storage, "f", adler32), None);
    write(storage, "sub/g", b"two", &Expectation::Anything).unwrap();
    assert_eq!(kept(storage, "sub/g", adler32), None);
    // Computed later: known to all who open it, and the tag stays.
    let Opened::File(object) = storage.open(&path("sub/g")).unwrap() else { panic!("a file") };
    for value in [8, 9] {
        object.keep_checksum(&Checksum::adler32(value)).unwrap();
        assert_eq!(object.kept_checksum(adler32), Some(Checksum::adler32(value)));
        assert_eq!(kept(storage, "sub/g", adler32), Some(Checksum::adler32(value)));
    }
    assert_eq!(storage.stat(&path("sub/g")).unwrap().tag, object.metadata().tag);
    storage.set_modified(&path("sub/g"), SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(kept(storage, "sub/g", adler32), None);
}

#[test]
fn of_two_that_create_one_wins() {
    for prepare in [memory as fn() -> Prepared, || posix_with(Durability::None)] {
        let (storage, _kept) = prepare();
        let winners: usize = std::thread::scope(|scope| {
            let storage = storage.as_ref();
            let racers: Vec<_> = (0..8)
                .map(|number| {
                    scope.spawn(move || write(storage, "f", &[number], &Expectation::Absent).is_ok() as usize)
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
    }
}

#[test]
fn the_fakes_misbehave() {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"0123456789");
    let faulty = FaultyStorage::new(storage.clone(), 4);
    let Opened::File(object) = faulty.open(&path("f")).unwrap() else { panic!("a file") };
    assert_eq!(object.read_at(&mut [0; 10], 0).unwrap(), 4);
    assert!(matches!(write(&faulty, "g", b"01234", &Expectation::Anything), Err(StoreError::NoSpace)));
    assert!(matches!(read(&faulty, "g"), Err(StoreError::NotFound)));

    let gate = Gate::new();
    let slow = SlowStorage::new(storage.clone(), gate.clone());
    let Opened::File(object) = slow.open(&path("f")).unwrap() else { panic!("a file") };
    assert_eq!(object.read_at_nowait(&mut [0; 10], 0).unwrap(), None);
    gate.close();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| object.read_at(&mut [0; 10], 0).unwrap());
        gate.wait_for_waiting(1);
        gate.open();
        assert_eq!(reader.join().unwrap(), 10);
    });

    let broken = FaultyStorage::new(storage.clone(), 4).broken();
    let file = broken.open_writable(&path("f"), &WriteOptions::new(Disposition::Existing)).unwrap();
    assert!(matches!(file.write_at(b"01", 3), Err(StoreError::NoSpace)));
    assert!(matches!(file.truncate(5), Err(StoreError::NoSpace)));
    assert_eq!(file.read_at(&mut [0; 10], 2).unwrap(), 2);
    assert!(file.read_at(&mut [0; 10], 4).is_err());
    let file = slow.open_writable(&path("f"), &WriteOptions::new(Disposition::Existing)).unwrap();
    assert_eq!(file.read_at_nowait(&mut [0; 10], 0).unwrap(), None);

    let small = MemoryStorage::new().with_capacity(4);
    for visibility in [Visibility::AtOnce, Visibility::WhenClosed] {
        let options = WriteOptions { visibility, ..WriteOptions::new(Disposition::New) };
        let file = small.open_writable(&path("g"), &options).unwrap();
        file.write_at(b"012", 0).unwrap();
        assert!(matches!(file.write_at(b"34", 3), Err(StoreError::NoSpace)));
        assert_eq!(file.close(&[]).unwrap().metadata.size_bytes, 3);
        small.remove(&path("g"), &Expectation::Anything).unwrap();
    }
    assert!(matches!(small.create(&path("f"), Some(5)), Err(StoreError::NoSpace)));
    assert!(matches!(
        small.create(&path("f"), None).unwrap().write_at(b"01234", 0),
        Err(StoreError::NoSpace)
    ));
}
