//! What a storage with the extras of a file system has to do beside: other names and times.

use std::time::{Duration, SystemTime};

use gridlane_core::ChecksumKind;

use super::{Check, checks, checksums, kept, names, path, posix, read, upload_with_checksums, write};
use crate::error::StoreError;
use crate::path::ObjectPath;
use crate::storage::{Expectation, Overwrite, Storage};

pub(super) const CHECKS: &[Check] = checks![
    files_are_moved,
    directories_are_moved,
    moves_that_cannot_be,
    times_are_set,
    checksums_go_wherever_the_file_is_moved,
];

async fn files_are_moved(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    let rename = async |from: &str, to: &str, overwrite: bool, expectation: &Expectation| {
        posix(storage).rename(&path(from), &path(to), Overwrite::from(overwrite), expectation).await
    };
    assert!(!rename("f", "sub/g", false, &Expectation::Anything).await.unwrap());
    assert!(matches!(read(storage, "f").await, Err(StoreError::NotFound)));
    assert_eq!(read(storage, "sub/g").await.unwrap(), b"one");
    write(storage, "f", b"two", &Expectation::Anything).await.unwrap();
    let refused = rename("f", "sub/g", false, &Expectation::Anything).await;
    assert!(matches!(refused, Err(StoreError::Unexpected)));
    for wrong in [Expectation::Tag("other".to_owned()), Expectation::Absent] {
        assert!(matches!(rename("f", "sub/g", true, &wrong).await, Err(StoreError::Unexpected)));
    }
    assert_eq!(read(storage, "sub/g").await.unwrap(), b"one");
    let tag = Expectation::Tag(storage.stat(&path("f")).await.unwrap().tag);
    assert!(rename("f", "sub/g", true, &tag).await.unwrap());
    assert_eq!(read(storage, "sub/g").await.unwrap(), b"two");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["sub/"]);
}

async fn directories_are_moved(storage: &dyn Storage) {
    let rename = async |from: &str, to: &str, overwrite: bool| {
        posix(storage)
            .rename(&path(from), &path(to), Overwrite::from(overwrite), &Expectation::Anything)
            .await
    };
    storage.make_directories(&path("sub/a/b")).await.unwrap();
    write(storage, "sub/a/b/f", b"one", &Expectation::Anything).await.unwrap();
    assert!(!rename("sub/a", "moved", false).await.unwrap());
    assert_eq!(read(storage, "moved/b/f").await.unwrap(), b"one");
    assert!(names(storage, &path("sub")).await.is_empty());
    // Onto a directory, an empty one and a full one, onto a file, and a file onto a directory.
    storage.make_directories(&path("other/c")).await.unwrap();
    write(storage, "other/c/g", b"two", &Expectation::Anything).await.unwrap();
    assert!(matches!(rename("moved", "other", false).await, Err(StoreError::Unexpected)));
    assert!(rename("moved", "other", true).await.unwrap());
    assert_eq!(names(storage, &path("other")).await, ["b/"]);
    assert!(rename("other", "sub", true).await.unwrap());
    assert_eq!(read(storage, "sub/b/f").await.unwrap(), b"one");
    write(storage, "f", b"three", &Expectation::Anything).await.unwrap();
    assert!(rename("sub", "f", true).await.unwrap());
    assert_eq!(read(storage, "f/b/f").await.unwrap(), b"one");
    write(storage, "g", b"four", &Expectation::Anything).await.unwrap();
    assert!(rename("g", "f", true).await.unwrap());
    assert_eq!(read(storage, "f").await.unwrap(), b"four");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f"]);
    // Where only files are to be replaced, no directory is, and none takes a file's place.
    storage.make_directories(&path("full/sub")).await.unwrap();
    write(storage, "full/g", b"five", &Expectation::Anything).await.unwrap();
    let only_files = async |from: &str, to: &str| {
        posix(storage).rename(&path(from), &path(to), Overwrite::Files, &Expectation::Anything).await
    };
    for (from, to) in [("f", "full"), ("full", "f"), ("f", "full/sub"), ("full/sub", "f")] {
        assert!(matches!(only_files(from, to).await, Err(StoreError::NotAFile)), "{from} {to}");
    }
    assert_eq!(read(storage, "full/g").await.unwrap(), b"five");
    assert!(only_files("full/g", "f").await.unwrap());
    assert!(!only_files("f", "full/g").await.unwrap());
    assert_eq!(read(storage, "full/g").await.unwrap(), b"five");
    storage.remove_tree(&path("full")).await.unwrap();
    write(storage, "f", b"four", &Expectation::Anything).await.unwrap();
}

async fn moves_that_cannot_be(storage: &dyn Storage) {
    let rename = async |from: &str, to: &str| {
        posix(storage)
            .rename(&path(from), &path(to), Overwrite::Anything, &Expectation::Anything)
            .await
            .unwrap_err()
    };
    storage.make_directories(&path("sub/a/b")).await.unwrap();
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    for (from, to) in [("sub", "sub"), ("f", "f"), ("sub", "sub/a"), ("sub", "sub/a/b/c"), ("sub/a/b", "sub")]
    {
        assert!(matches!(rename(from, to).await, StoreError::IntoItself), "{from} to {to}");
    }
    assert!(matches!(rename("none", "g").await, StoreError::NotFound));
    assert!(matches!(rename("none/f", "g").await, StoreError::NotFound));
    assert!(matches!(rename("f", "none/g").await, StoreError::ParentMissing));
    assert!(matches!(rename("sub", "f/g").await, StoreError::ParentMissing));
    for (from, to) in [(ObjectPath::root(), path("g")), (path("f"), ObjectPath::root())] {
        let refused = posix(storage).rename(&from, &to, Overwrite::Anything, &Expectation::Anything).await;
        assert!(matches!(refused, Err(StoreError::InUse)));
    }
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
    assert_eq!(names(storage, &path("sub/a")).await, ["b/"]);
}

async fn times_are_set(storage: &dyn Storage) {
    let moment = SystemTime::UNIX_EPOCH + Duration::new(784_111_777, 123_456_789);
    let earlier = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    for modified in [earlier, moment] {
        for at in ["sub", "f"] {
            posix(storage).set_modified(&path(at), modified).await.unwrap();
            assert_eq!(storage.look(&path(at)).await.unwrap().modified, modified);
        }
    }
    assert_eq!(read(storage, "f").await.unwrap(), b"one");
    let refused = posix(storage).set_modified(&path("none"), moment).await;
    assert!(matches!(refused, Err(StoreError::NotFound)));
}

async fn checksums_go_wherever_the_file_is_moved(storage: &dyn Storage) {
    let adler32 = ChecksumKind::Adler32;
    upload_with_checksums(storage, "sub/g", Some(SystemTime::UNIX_EPOCH)).await;
    for (from, to) in [("sub/g", "g"), ("sub", "h"), ("g", "h/g"), ("h", "sub")] {
        let (from, to) = (path(from), path(to));
        let expectation = &Expectation::Anything;
        posix(storage).rename(&from, &to, Overwrite::Nothing, expectation).await.unwrap();
    }
    assert_eq!(kept(storage, "sub/g", adler32).await.as_ref(), Some(&checksums()[0]));
    posix(storage).set_modified(&path("sub/g"), SystemTime::UNIX_EPOCH).await.unwrap();
    assert_eq!(kept(storage, "sub/g", adler32).await, None);
}
