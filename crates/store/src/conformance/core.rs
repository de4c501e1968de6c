//! What every storage has to do.

use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind};

use super::{Check, checks, checksums, kept, names, path, read, upload_with_checksums, write};
use crate::error::StoreError;
use crate::path::ObjectPath;
use crate::storage::{Completion, Expectation, Metadata, NodeKind, Opened, Storage, WriteOrder};

pub(super) const CHECKS: &[Check] = checks![
    complete_uploads_are_visible,
    incomplete_uploads_are_not,
    pieces_come_in_the_order_that_is_declared,
    an_open_file_outlives_its_name,
    tags_tell_states_apart,
    opening_without_waiting_is_opening,
    expectations_are_kept,
    removal,
    what_cannot_be,
    what_cannot_be_twice,
    looking_tells_all,
    entries_come_a_page_at_a_time,
    directories_are_made,
    directories_are_removed,
    trees_are_removed,
    copies_are_made_in_steps,
    times_and_space,
    checksums_stay_with_the_file,
];

async fn complete_uploads_are_visible(storage: &dyn Storage) {
    assert!(!write(storage, "sub/f", b"first", &Expectation::Anything).await.unwrap());
    assert_eq!(read(storage, "sub/f").await.unwrap(), b"first");
    assert!(write(storage, "sub/f", b"second!", &Expectation::Anything).await.unwrap());
    assert_eq!(read(storage, "sub/f").await.unwrap(), b"second!");
    assert!(!write(storage, "empty", b"", &Expectation::Anything).await.unwrap());
    assert_eq!(read(storage, "empty").await.unwrap(), b"");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["empty", "sub/"]);
    assert_eq!(names(storage, &path("sub")).await, ["f"]);
}

async fn incomplete_uploads_are_not(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).await.unwrap();
    let upload = storage.create(&path("f"), None).await.unwrap();
    upload.write_at(b"new", 0).await.unwrap();
    assert_eq!(read(storage, "f").await.unwrap(), b"old");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
    upload.discard().await;
    assert_eq!(read(storage, "f").await.unwrap(), b"old");
}

async fn pieces_come_in_the_order_that_is_declared(storage: &dyn Storage) {
    let upload = storage.create(&path("f"), Some(6)).await.unwrap();
    match upload.write_order() {
        WriteOrder::Anywhere => {
            upload.write_at(b"def", 3).await.unwrap();
            upload.write_at(b"abc", 0).await.unwrap();
        }
        WriteOrder::InOrder { part_bytes } => {
            assert!(part_bytes > 0);
            upload.write_at(b"abc", 0).await.unwrap();
            for elsewhere in [0, 2, 4] {
                let refused = upload.write_at(b"x", elsewhere).await;
                assert!(matches!(refused, Err(StoreError::Unsupported)), "{elsewhere}: {refused:?}");
            }
            upload.write_at(b"", 3).await.unwrap();
            upload.write_at(b"def", 3).await.unwrap();
        }
    }
    upload.commit(&Expectation::Anything.into()).await.unwrap();
    assert_eq!(read(storage, "f").await.unwrap(), b"abcdef");
}

async fn an_open_file_outlives_its_name(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).await.unwrap();
    let Opened::File(object) = storage.open(&path("f")).await.unwrap() else { panic!("a file") };
    write(storage, "f", b"new", &Expectation::Anything).await.unwrap();
    storage.remove(&path("f"), &Expectation::Anything).await.unwrap();
    let mut bytes = [0; 3];
    assert_eq!(object.read_at(&mut bytes, 0).await.unwrap(), 3);
    assert_eq!(&bytes, b"old");
    assert_eq!(object.read_at(&mut bytes, 3).await.unwrap(), 0);
    assert_eq!(object.read_at(&mut bytes, 1 << 60).await.unwrap(), 0);
}

async fn opening_without_waiting_is_opening(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).await.unwrap();
    for at in ["sub/f", "sub", "none", "sub/f/g", "none/f"] {
        let kind = |opened: Result<Opened, StoreError>| match opened {
            Ok(Opened::File(object)) => Ok(Some(object.metadata().clone())),
            Ok(Opened::Directory) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        match storage.open_nowait(&path(at)) {
            Ok(None) => {}
            Ok(Some(opened)) => assert_eq!(kind(Ok(opened)), kind(storage.open(&path(at)).await), "{at}"),
            Err(error) => assert_eq!(kind(Err(error)), kind(storage.open(&path(at)).await), "{at}"),
        }
        let text = |looked: Result<_, StoreError>| looked.map_err(|error| error.to_string());
        match storage.look_nowait(&path(at)) {
            Ok(None) => {}
            Ok(Some(metadata)) => assert_eq!(Ok(metadata), text(storage.look(&path(at)).await), "{at}"),
            Err(error) => assert_eq!(text(Err(error)), text(storage.look(&path(at)).await), "{at}"),
        }
    }
}

async fn tags_tell_states_apart(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    let first = storage.stat(&path("f")).await.unwrap();
    assert_eq!(storage.stat(&path("f")).await.unwrap(), first);
    let upload = storage.create(&path("f"), None).await.unwrap();
    upload.write_at(b"two", 0).await.unwrap();
    let committed = upload.commit(&Expectation::Anything.into()).await.unwrap();
    let second = storage.stat(&path("f")).await.unwrap();
    assert_ne!(first.tag, second.tag);
    assert_eq!(committed.metadata, second);
}

async fn expectations_are_kept(storage: &dyn Storage) {
    assert!(!write(storage, "f", b"one", &Expectation::Absent).await.unwrap());
    let again = write(storage, "f", b"two", &Expectation::Absent).await;
    assert!(matches!(again, Err(StoreError::Unexpected)));
    let tag = Expectation::Tag(storage.stat(&path("f")).await.unwrap().tag);
    assert!(write(storage, "f", b"two", &tag).await.unwrap());
    assert!(matches!(write(storage, "f", b"three", &tag).await, Err(StoreError::Unexpected)));
    assert!(matches!(write(storage, "g", b"three", &tag).await, Err(StoreError::Unexpected)));
    for wrong in [&tag, &Expectation::Absent] {
        assert!(matches!(storage.remove(&path("f"), wrong).await, Err(StoreError::Unexpected)));
    }
    assert_eq!(read(storage, "f").await.unwrap(), b"two");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
}

async fn removal(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).await.unwrap();
    storage.remove(&path("sub/f"), &Expectation::Anything).await.unwrap();
    assert!(matches!(read(storage, "sub/f").await, Err(StoreError::NotFound)));
    assert!(matches!(
        storage.remove(&path("sub/f"), &Expectation::Anything).await,
        Err(StoreError::NotFound)
    ));
    for directory in [path("sub"), ObjectPath::root()] {
        let refused = storage.remove(&directory, &Expectation::Anything).await;
        assert!(matches!(refused, Err(StoreError::NotAFile)));
    }
}

async fn what_cannot_be(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    assert!(matches!(storage.create(&path("none/f"), None).await, Err(StoreError::ParentMissing)));
    assert!(matches!(storage.create(&path("f/g"), None).await, Err(StoreError::ParentMissing)));
    assert!(matches!(storage.create(&path("sub"), None).await, Err(StoreError::NotAFile)));
    assert!(matches!(storage.create(&ObjectPath::root(), None).await, Err(StoreError::NotAFile)));
    assert!(matches!(storage.open(&path("none")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.open(&path("f/g")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.stat(&path("sub")).await, Err(StoreError::NotAFile)));
    assert!(matches!(storage.list(&path("none")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.list(&path("f")).await, Err(StoreError::NotADirectory)));
    assert!(matches!(storage.open(&path("sub")).await, Ok(Opened::Directory)));
    assert!(matches!(storage.open(&ObjectPath::root()).await, Ok(Opened::Directory)));
}

/// A refused operation changes nothing: the same refusals come again.
async fn what_cannot_be_twice(storage: &dyn Storage) {
    what_cannot_be(storage).await;
    what_cannot_be(storage).await;
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
}

async fn looking_tells_all(storage: &dyn Storage) {
    write(storage, "sub/f", b"12345", &Expectation::Anything).await.unwrap();
    let file = storage.look(&path("sub/f")).await.unwrap();
    assert_eq!((file.kind, file.size_bytes, file.mode & 0o170_000), (NodeKind::File, 5, 0o100_000));
    assert_eq!(storage.stat(&path("sub/f")).await.unwrap(), file);
    for directory in [path("sub"), ObjectPath::root()] {
        let found = storage.look(&directory).await.unwrap();
        assert_eq!((found.kind, found.size_bytes), (NodeKind::Directory, 0));
        assert_eq!(found.mode & 0o170_000, 0o040_000);
    }
    let entry = &storage.list(&path("sub")).await.unwrap().entries[0];
    assert_eq!((entry.name.as_slice(), &entry.metadata), (&b"f"[..], &file));
    assert!(matches!(storage.look(&path("none")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.look(&path("sub/f/g")).await, Err(StoreError::NotFound)));
}

async fn entries_come_a_page_at_a_time(storage: &dyn Storage) {
    const COUNT: usize = 120;
    for number in 0..COUNT {
        write(storage, &format!("sub/{number}"), b"", &Expectation::Anything).await.unwrap();
    }
    let mut entries = storage.entries(&path("sub")).await.unwrap();
    let mut found = entries.next_page().await.unwrap();
    assert!(!found.is_empty() && found.len() <= COUNT);
    loop {
        let page = entries.next_page().await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert!(entries.next_page().await.unwrap().is_empty(), "after the end there is nothing more");
    let mut names: Vec<_> = found.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), COUNT);
    // What is removed while it is read is in it or is not, and spoils nothing.
    let mut entries = storage.entries(&path("sub")).await.unwrap();
    assert!(!entries.next_page().await.unwrap().is_empty());
    storage.remove_tree(&path("sub")).await.unwrap();
    while !entries.next_page().await.unwrap().is_empty() {}
    assert!(matches!(storage.entries(&path("sub")).await.err(), Some(StoreError::NotFound)));
    assert!(matches!(storage.entries(&path("f/g")).await.err(), Some(StoreError::NotFound)));
}

async fn directories_are_made(storage: &dyn Storage) {
    storage.make_directory(&path("new")).await.unwrap();
    storage.make_directory(&path("new/below")).await.unwrap();
    assert_eq!(names(storage, &ObjectPath::root()).await, ["new/", "sub/"]);
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    for taken in ["new", "f", "sub"] {
        assert!(matches!(storage.make_directory(&path(taken)).await, Err(StoreError::Unexpected)));
    }
    assert!(matches!(storage.make_directory(&ObjectPath::root()).await, Err(StoreError::Unexpected)));
    for orphan in ["none/below", "f/below"] {
        assert!(matches!(storage.make_directory(&path(orphan)).await, Err(StoreError::ParentMissing)));
    }
    for _ in 0..2 {
        storage.make_directories(&path("new/a/b/c")).await.unwrap();
        storage.make_directories(&ObjectPath::root()).await.unwrap();
    }
    assert_eq!(names(storage, &path("new/a/b")).await, ["c/"]);
    for through in ["f", "f/a", "f/a/b"] {
        assert!(matches!(storage.make_directories(&path(through)).await, Err(StoreError::NotADirectory)));
    }
}

async fn directories_are_removed(storage: &dyn Storage) {
    write(storage, "sub/f", b"one", &Expectation::Anything).await.unwrap();
    assert!(matches!(storage.remove_directory(&path("sub")).await, Err(StoreError::NotEmpty)));
    assert!(matches!(storage.remove_directory(&path("sub/f")).await, Err(StoreError::NotADirectory)));
    assert!(matches!(storage.remove_directory(&path("none")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_directory(&path("none/f")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_directory(&ObjectPath::root()).await, Err(StoreError::InUse)));
    storage.remove(&path("sub/f"), &Expectation::Anything).await.unwrap();
    storage.remove_directory(&path("sub")).await.unwrap();
    assert!(matches!(storage.look(&path("sub")).await, Err(StoreError::NotFound)));
}

async fn trees_are_removed(storage: &dyn Storage) {
    storage.make_directories(&path("sub/a/b/c")).await.unwrap();
    storage.make_directory(&path("sub-2")).await.unwrap();
    for at in ["sub/f", "sub/a/f", "sub/a/b/c/f", "f", "sub-2/f"] {
        write(storage, at, b"one", &Expectation::Anything).await.unwrap();
    }
    assert!(matches!(storage.remove_tree(&path("f")).await, Err(StoreError::NotADirectory)));
    assert!(matches!(storage.remove_tree(&path("none")).await, Err(StoreError::NotFound)));
    assert!(matches!(storage.remove_tree(&ObjectPath::root()).await, Err(StoreError::InUse)));
    let upload = storage.create(&path("sub/late"), None).await.unwrap();
    upload.write_at(b"late", 0).await.unwrap();
    storage.remove_tree(&path("sub")).await.unwrap();
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub-2/"]);
    assert_eq!(names(storage, &path("sub-2")).await, ["f"]);
    // What was said to be there would be nowhere.
    assert!(matches!(upload.commit(&Expectation::Anything.into()).await, Err(StoreError::ParentMissing)));
    // The name is free again.
    storage.make_directory(&path("sub")).await.unwrap();
    assert!(names(storage, &path("sub")).await.is_empty());
}

async fn copies_are_made_in_steps(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..700_000_u32).map(|number| (number % 251) as u8).collect();
    write(storage, "f", &bytes, &Expectation::Anything).await.unwrap();
    let Opened::File(source) = storage.open(&path("f")).await.unwrap() else { panic!("a file") };
    let upload = storage.create(&path("sub/g"), Some(bytes.len() as u64)).await.unwrap();
    let mut at = 0;
    // By the storage's own means, if it has some; else by reading and writing.
    while at < bytes.len() as u64 {
        let mut count = upload.copy_range(source.as_ref(), at, 300_000).await.unwrap();
        if count == 0 {
            let mut buffer = vec![0; 300_000];
            let read = source.read_at(&mut buffer, at).await.unwrap();
            assert!(read > 0);
            upload.write_at(&buffer[..read], at).await.unwrap();
            count = read as u64;
        }
        at += count;
    }
    assert_eq!(at, bytes.len() as u64);
    assert_eq!(upload.copy_range(source.as_ref(), at, 300_000).await.unwrap(), 0);
    upload.commit(&Expectation::Absent.into()).await.unwrap();
    let Opened::File(copy) = storage.open(&path("sub/g")).await.unwrap() else { panic!("a file") };
    let mut read = vec![0; bytes.len()];
    let mut len = 0;
    while len < read.len() {
        len += copy.read_at(&mut read[len..], len as u64).await.unwrap();
    }
    assert!(read == bytes && copy.metadata().size_bytes == at);
}

async fn times_and_space(storage: &dyn Storage) {
    let moment = SystemTime::UNIX_EPOCH + Duration::new(784_111_777, 123_456_789);
    let earlier = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    for modified in [moment, earlier] {
        let upload = storage.create(&path("f"), None).await.unwrap();
        upload.write_at(b"one", 0).await.unwrap();
        let completion = Completion { modified: Some(modified), ..Expectation::Anything.into() };
        assert_eq!(upload.commit(&completion).await.unwrap().metadata.modified, modified);
        assert_eq!(storage.look(&path("f")).await.unwrap().modified, modified);
    }
    for at in [ObjectPath::root(), path("sub"), path("f")] {
        let space = storage.space(&at).await.unwrap();
        assert!(space.available_bytes <= space.total_bytes && space.used_bytes <= space.total_bytes);
    }
    assert!(matches!(storage.space(&path("none")).await, Err(StoreError::NotFound)));
}

async fn checksums_stay_with_the_file(storage: &dyn Storage) {
    let (adler32, md5) = (ChecksumKind::Adler32, ChecksumKind::Md5);
    let checksums = checksums();
    upload_with_checksums(storage, "f", None).await;
    assert_eq!(kept(storage, "f", adler32).await.as_ref(), Some(&checksums[0]));
    assert_eq!(kept(storage, "f", md5).await.as_ref(), Some(&checksums[1]));
    assert_eq!(kept(storage, "f", ChecksumKind::Sha256).await, None);
    // Of several files at once, if they are those that were found.
    let found = storage.look(&path("f")).await.unwrap();
    let other = Metadata { tag: "other".to_owned(), ..found.clone() };
    let files = [(path("f"), found), (path("f"), other.clone()), (path("none"), other)];
    let of_all = storage.kept_checksums(&files, &[md5, adler32]).await;
    assert_eq!(of_all, [vec![checksums[1].clone(), checksums[0].clone()], vec![], vec![]]);
    // With times of its own.
    let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    upload_with_checksums(storage, "sub/g", Some(moment)).await;
    assert_eq!(kept(storage, "sub/g", adler32).await.as_ref(), Some(&checksums[0]));
    // One of these bytes is not one of others.
    write(storage, "sub/g", b"two", &Expectation::Anything).await.unwrap();
    assert_eq!(kept(storage, "sub/g", adler32).await, None);
    // Computed later: known through every handle of it, and the tag stays.
    let Opened::File(object) = storage.open(&path("sub/g")).await.unwrap() else { panic!("a file") };
    for value in [8, 9] {
        object.keep_checksum(&Checksum::adler32(value)).await.unwrap();
        assert_eq!(object.kept_checksums(&[adler32]).await, [Checksum::adler32(value)]);
        assert_eq!(kept(storage, "sub/g", adler32).await, Some(Checksum::adler32(value)));
    }
    assert_eq!(storage.stat(&path("sub/g")).await.unwrap().tag, object.metadata().tag);
}
