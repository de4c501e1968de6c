//! What only a real directory can show: links, special files, the hidden directory, leftovers, space.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use gridlane_store::{
    BlockingObject, BlockingStorage, BlockingUpload, Durability, Expectation, ObjectPath, Opened, Overwrite,
    PosixStorage, StoreError,
};

struct Export {
    storage: PosixStorage,
    /// Holds `export/` and, beside it, what must not be reached.
    outside: tempfile::TempDir,
}

impl Export {
    fn new() -> Export {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("export")).unwrap();
        fs::write(outside.path().join("secret"), b"secret").unwrap();
        let storage = PosixStorage::open(&outside.path().join("export"), Durability::File).unwrap();
        Export { storage, outside }
    }

    fn directory(&self) -> std::path::PathBuf {
        self.outside.path().join("export")
    }

    fn leftovers(&self) -> usize {
        fs::read_dir(self.directory().join(".gridlane")).map_or(0, Iterator::count)
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let mut names: Vec<_> =
            self.storage.list(&ObjectPath::root()).unwrap().entries.into_iter().map(|e| e.name).collect();
        names.sort();
        let mut alone: Vec<_> =
            self.storage.names(&ObjectPath::root()).unwrap().map(|name| name.unwrap()).collect();
        alone.sort();
        assert_eq!(alone, names);
        names
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

#[test]
fn links_work_inside_and_lead_nowhere_outside() {
    let export = Export::new();
    let directory = export.directory();
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/f"), b"inside").unwrap();
    symlink("sub/f", directory.join("in")).unwrap();
    symlink("sub", directory.join("in-directory")).unwrap();
    symlink("../secret", directory.join("out")).unwrap();
    symlink(export.outside.path(), directory.join("out-absolute")).unwrap();
    symlink("..", directory.join("out-directory")).unwrap();
    symlink("sub/../../secret", directory.join("out-winding")).unwrap();
    symlink("/proc/self/root", directory.join("out-magic")).unwrap();
    symlink("loop", directory.join("loop")).unwrap();
    for inside in ["in", "in-directory/f"] {
        assert_eq!(export.storage.stat(&path(inside)).unwrap().size_bytes, 6, "{inside}");
    }
    for outside in [
        "out",
        "out-absolute",
        "out-absolute/secret",
        "out-directory",
        "out-directory/secret",
        "out-winding",
        "out-magic",
        "out-magic/etc/passwd",
        "loop",
    ] {
        assert!(matches!(export.storage.open(&path(outside)), Err(StoreError::NotFound)), "{outside}");
        assert!(matches!(export.storage.stat(&path(outside)), Err(StoreError::NotFound)), "{outside}");
        let nowait = export.storage.open_nowait(&path(outside));
        assert!(matches!(nowait, Err(StoreError::NotFound) | Ok(None)), "{outside}");
        let nowait = export.storage.look_nowait(&path(outside));
        assert!(matches!(nowait, Err(StoreError::NotFound) | Ok(None)), "{outside}");
    }
    for outside in ["out-absolute/new", "out-directory/new", "out-magic/tmp/new"] {
        assert!(matches!(export.storage.create(&path(outside), None), Err(StoreError::ParentMissing)));
        assert!(export.storage.remove(&path(outside), &Expectation::Anything).is_err());
    }
    assert!(export.storage.list(&path("out-directory")).is_err());
    assert_eq!(export.names(), [&b"in"[..], b"in-directory", b"sub"]);
    // Neither removing nor replacing touches what a link points to.
    assert!(matches!(export.storage.remove(&path("out"), &Expectation::Anything), Err(StoreError::NotFound)));
    export.storage.create(&path("out"), None).unwrap().commit(&Expectation::Anything.into()).unwrap();
    assert_eq!(fs::read(export.outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn special_files_are_not_served_and_do_not_block() {
    let export = Export::new();
    let fifo = export.directory().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(export.directory().join("socket")).unwrap();
    for special in ["fifo", "socket"] {
        assert!(matches!(export.storage.open(&path(special)), Err(StoreError::NotFound)));
        assert!(matches!(export.storage.stat(&path(special)), Err(StoreError::NotFound)));
        assert!(matches!(export.storage.create(&path(special), None), Err(StoreError::NotAFile)));
        assert!(matches!(
            export.storage.remove(&path(special), &Expectation::Anything),
            Err(StoreError::NotFound)
        ));
    }
    assert!(export.names().is_empty());
}

#[test]
fn the_hidden_directory_is_private_and_empty_between_uploads() {
    let export = Export::new();
    assert!(!export.directory().join(".gridlane").exists(), "reading makes nothing");
    let upload = export.storage.create(&path("f"), None).unwrap();
    upload.write_at(b"x", 0).unwrap();
    assert_eq!(export.leftovers(), 1);
    assert!(export.names().is_empty());
    let mode = fs::metadata(export.directory().join(".gridlane")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(upload);
    assert_eq!(export.leftovers(), 0);
    export.storage.create(&path("f"), None).unwrap().commit(&Expectation::Anything.into()).unwrap();
    assert_eq!(export.leftovers(), 0);
    assert_eq!(export.names(), [b"f"]);
    // Refused at the last moment: the partial goes away as well.
    let refused = export.storage.create(&path("f"), None).unwrap().commit(&Expectation::Absent.into());
    assert!(matches!(refused, Err(StoreError::Unexpected)));
    assert_eq!(export.leftovers(), 0);
}

#[test]
fn a_hidden_directory_that_is_a_link_is_refused() {
    let export = Export::new();
    fs::create_dir(export.outside.path().join("trap")).unwrap();
    symlink("../trap", export.directory().join(".gridlane")).unwrap();
    let refused = export.storage.create(&path("f"), None).err().unwrap();
    // Which one it is, and what helps, since only the operator can do it.
    let told = refused.to_string();
    assert!(told.contains("export/.gridlane") && told.contains("remove it"), "{told}");
    assert_eq!(fs::read_dir(export.outside.path().join("trap")).unwrap().count(), 0);
}

#[test]
fn no_link_leads_into_the_hidden_directory() {
    let export = Export::new();
    let (storage, directory) = (&export.storage, export.directory());
    let upload = storage.create(&path("f"), None).unwrap();
    upload.write_at(b"of somebody else", 0).unwrap();
    let partial = fs::read_dir(directory.join(".gridlane")).unwrap().next().unwrap().unwrap().file_name();
    fs::create_dir_all(directory.join(".gridlane/removed-1-1-1.tree/below")).unwrap();
    fs::write(directory.join(".gridlane/removed-1-1-1.tree/below/g"), b"removed").unwrap();
    symlink(".gridlane", directory.join("link")).unwrap();
    symlink(".gridlane/removed-1-1-1.tree", directory.join("tree")).unwrap();
    symlink(std::path::Path::new(".gridlane").join(&partial), directory.join("partial")).unwrap();
    let by_name = ObjectPath::new([&b"link"[..], partial.as_encoded_bytes()]).unwrap();
    for hidden in
        [path("link"), path("tree"), path("tree/below"), path("tree/below/g"), path("partial"), by_name]
    {
        assert!(matches!(storage.open(&hidden), Err(StoreError::NotFound)), "{hidden}");
        assert!(matches!(storage.open_nowait(&hidden), Ok(None) | Err(StoreError::NotFound)), "{hidden}");
        assert!(matches!(storage.look(&hidden), Err(StoreError::NotFound)), "{hidden}");
        assert!(matches!(storage.list(&hidden), Err(StoreError::NotFound)), "{hidden}");
        assert!(matches!(storage.set_modified(&hidden, SystemTime::now()), Err(StoreError::NotFound)));
        assert!(storage.remove(&hidden, &Expectation::Anything).is_err(), "{hidden}");
        assert!(storage.remove_tree(&hidden).is_err(), "{hidden}");
        assert!(
            storage.rename(&hidden, &path("mine"), Overwrite::Anything, &Expectation::Anything).is_err(),
            "{hidden}"
        );
    }
    assert!(matches!(storage.create(&path("link/checksums"), None), Err(StoreError::ParentMissing)));
    assert!(matches!(storage.make_directory(&path("tree/new")), Err(StoreError::ParentMissing)));
    assert!(export.names().is_empty());
    upload.commit(&Expectation::Anything.into()).unwrap();
    assert_eq!(storage.stat(&path("f")).unwrap().size_bytes, 16);
}

#[test]
fn a_hidden_directory_that_others_may_enter_is_closed() {
    let export = Export::new();
    let hidden = export.directory().join(".gridlane");
    fs::create_dir(&hidden).unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o777)).unwrap();
    drop(export.storage.create(&path("f"), None).unwrap());
    assert_eq!(fs::metadata(&hidden).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn uploads_get_the_mode_that_the_umask_leaves() {
    let export = Export::new();
    export.storage.create(&path("f"), None).unwrap().commit(&Expectation::Anything.into()).unwrap();
    fs::write(export.directory().join("plain"), b"").unwrap();
    let mode = |name: &str| fs::metadata(export.directory().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("f"), mode("plain"));
}

#[test]
fn old_leftovers_are_removed_and_nothing_else() {
    let export = Export::new();
    export.storage.create(&path("f"), None).unwrap().commit(&Expectation::Anything.into()).unwrap();
    let hidden = export.directory().join(".gridlane");
    let old = SystemTime::now() - Duration::from_secs(3600);
    for (name, modified) in
        [("upload-1-1-1.part", old), ("upload-1-2-1.part", SystemTime::now()), ("journal", old)]
    {
        fs::File::create(hidden.join(name)).unwrap().set_modified(modified).unwrap();
    }
    assert_eq!(export.storage.remove_abandoned(Duration::from_secs(1800)).unwrap(), 1);
    assert!(!hidden.join("upload-1-1-1.part").exists());
    assert_eq!(export.leftovers(), 2);
    assert_eq!(Export::new().storage.remove_abandoned(Duration::ZERO).unwrap(), 0);
}

#[test]
fn more_than_is_free_is_refused_before_a_byte_comes() {
    let export = Export::new();
    let refused = export.storage.create(&path("f"), Some(u64::MAX / 2));
    assert!(matches!(refused, Err(StoreError::NoSpace)));
    assert_eq!(export.leftovers(), 0);
}

#[test]
fn any_change_changes_the_tag() {
    let export = Export::new();
    let file = export.directory().join("f");
    fs::write(&file, b"one").unwrap();
    let Opened::File(object) = export.storage.open(&path("f")).unwrap() else { panic!("a file") };
    assert!(object.is_unchanged());
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    // As restored from a backup: same size, same modification time, same inode, other bytes. The kernel's
    // clock has ticks: the second change is repeated until it falls into a later one.
    let before = fs::metadata(&file).unwrap();
    loop {
        fs::write(&file, b"two").unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        let after = fs::metadata(&file).unwrap();
        if (after.ctime(), after.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
            break;
        }
    }
    assert_ne!(export.storage.stat(&path("f")).unwrap().tag, object.metadata().tag);
    fs::write(&file, b"three").unwrap();
    assert!(!object.is_unchanged());
}

#[test]
fn names_may_be_any_bytes() {
    let export = Export::new();
    let odd = ObjectPath::new([&b"a\xff\n\"b"[..]]).unwrap();
    export.storage.create(&odd, None).unwrap().commit(&Expectation::Anything.into()).unwrap();
    assert_eq!(export.names(), [b"a\xff\n\"b"]);
    assert_eq!(export.storage.stat(&odd).unwrap().size_bytes, 0);
    let long = ObjectPath::new([&[b'x'; 300][..]]).unwrap();
    assert!(matches!(export.storage.create(&long, None), Err(StoreError::NameTooLong)));
}

#[test]
fn what_is_no_directory_cannot_be_exported() {
    let export = Export::new();
    for bad in [Path::new("/nonexistent"), &export.outside.path().join("secret")] {
        let error = PosixStorage::open(bad, Durability::File).err().unwrap();
        assert!(error.message().contains("cannot export"), "{error}");
    }
}

#[test]
fn a_file_is_still_at_its_path_until_something_changed() {
    // Where it is a directory in memory: there it can be told. Elsewhere nothing may be claimed.
    let outside = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let at = |name: &str| outside.path().join("export").join(name);
    fs::create_dir_all(at("d/e")).unwrap();
    let storage = PosixStorage::open(&outside.path().join("export"), Durability::File).unwrap();
    let object = |names: &[&str]| ObjectPath::new(names.iter().map(|name| name.as_bytes())).unwrap();
    let path = object(&["d", "e", "f"]);
    let open = || {
        fs::write(at("d/e/f"), b"0123").unwrap();
        let Opened::File(file) = storage.open(&path).unwrap() else { panic!("a file") };
        assert_eq!(file.is_still_at(&path), file.can_be_found_again());
        assert!(!file.is_still_at(&object(&["d", "e", "g"])) && !file.is_still_at(&object(&["d", "e"])));
        file
    };
    let file = open();
    fs::remove_file(at("d/e/f")).unwrap();
    assert!(!file.is_still_at(&path), "removed");
    let file = open();
    fs::write(at("new"), b"4567").unwrap();
    fs::rename(at("new"), at("d/e/f")).unwrap();
    assert!(!file.is_still_at(&path), "replaced");
    let file = open();
    fs::write(at("d/e/f"), b"01234").unwrap();
    assert!(!file.is_still_at(&path), "longer");
    let file = open();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(at("d/e/f")).unwrap().set_modified(long_ago).unwrap();
    assert!(!file.is_still_at(&path), "of another time");
    let file = open();
    fs::rename(at("d/e/f"), at("g")).unwrap();
    std::os::unix::fs::symlink("../../g", at("d/e/f")).unwrap();
    assert!(!file.is_still_at(&path), "a link");
}

/// Another directory where the exported one was, or none, is noticed; what was opened goes on being served.
#[test]
fn a_directory_that_is_not_in_its_place() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    std::fs::create_dir(&place).unwrap();
    let storage = PosixStorage::open(&place, Durability::None).unwrap();
    assert!(storage.is_in_place());
    std::fs::rename(&place, scratch.path().join("old")).unwrap();
    assert!(!storage.is_in_place());
    std::fs::create_dir(&place).unwrap();
    assert!(!storage.is_in_place());
    let again = PosixStorage::open(&place, Durability::None).unwrap();
    assert!(again.is_in_place());
    // The next one may get its number.
    std::fs::remove_dir(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    assert!(!again.is_in_place());
}
