//! One suite for every storage: what the traits promise holds for a directory of this machine, for
//! memory, and for the fakes while they behave.
//!
//! Each check gets a storage of its own that has an empty directory `sub` and nothing else.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{
    Durability, Expectation, MemoryStorage, ObjectPath, Opened, PosixStorage, Storage, StoreError,
};

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
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    (Box::new(PosixStorage::open(directory.path(), durability).unwrap()), Some(directory))
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
    let mut names: Vec<_> = listing
        .entries
        .into_iter()
        .map(|entry| {
            let slash = if entry.is_directory { "/" } else { "" };
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
    let storages: [Named; 6] = [
        ("memory", memory),
        ("slow", slow),
        ("faulty", faulty),
        ("posix, durability none", || posix_with(Durability::None)),
        ("posix, durability file", || posix_with(Durability::File)),
        ("posix, durability dir", || posix_with(Durability::Dir)),
    ];
    let checks: [fn(&dyn Storage); 10] = [
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
    ];
    for (name, prepare) in storages {
        eprintln!("{name}");
        for check in checks {
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

    let small = MemoryStorage::new().with_capacity(4);
    assert!(matches!(small.create(&path("f"), Some(5)), Err(StoreError::NoSpace)));
    assert!(matches!(
        small.create(&path("f"), None).unwrap().write_at(b"01234", 0),
        Err(StoreError::NoSpace)
    ));
}
