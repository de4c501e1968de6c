//! What only a real directory can show of files that are changed in place: links, special files, what is on the
//! disk, other users, file systems that cannot.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/mounts.rs"]
mod mounts;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_store::{
    BlockingFile, BlockingObject, BlockingStorage, Disposition, Durability, ObjectPath, Opened, PosixOptions,
    PosixStorage, StoreError, Visibility, Whole, WriteOptions,
};
use mounts::with_own_mounts;
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};

struct Export {
    storage: PosixStorage,
    /// Holds `export/` and, beside it, what must not be reached.
    outside: tempfile::TempDir,
}

impl Export {
    fn new() -> Export {
        Export::with(PosixOptions::default())
    }

    fn with(options: PosixOptions) -> Export {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("export")).unwrap();
        fs::write(outside.path().join("secret"), b"secret").unwrap();
        let storage = PosixStorage::open_with(&outside.path().join("export"), options).unwrap();
        Export { storage, outside }
    }

    fn at(&self, relative: &str) -> PathBuf {
        self.outside.path().join("export").join(relative)
    }

    fn is_secret_kept(&self) -> bool {
        fs::read(self.outside.path().join("secret")).unwrap() == b"secret"
            && fs::read_dir(self.outside.path()).unwrap().count() == 2
    }

    fn has_attributes(&self) -> bool {
        let has = setxattr(self.outside.path(), "user.probe", b"1", XattrFlags::empty()).is_ok();
        if !has {
            eprintln!("skipped: no extended attributes here");
        }
        has
    }
}

fn whole(size_bytes: u64, adler32: u32) -> Whole {
    Whole { size_bytes, checksums: vec![Checksum::adler32(adler32)] }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

fn options(disposition: Disposition, visibility: Visibility) -> WriteOptions {
    WriteOptions { visibility, ..WriteOptions::new(disposition) }
}

/// All that make sense.
fn all_options() -> [WriteOptions; 5] {
    use Disposition::{Existing, New, Replace};
    use Visibility::{AtOnce, WhenClosed};
    [
        options(Existing, AtOnce),
        options(New, AtOnce),
        options(Replace, AtOnce),
        options(New, WhenClosed),
        options(Replace, WhenClosed),
    ]
}

#[test]
fn links_inside_are_followed_and_those_that_leave_lead_nowhere() {
    let export = Export::new();
    fs::create_dir(export.at("sub")).unwrap();
    fs::write(export.at("sub/f"), b"inside").unwrap();
    symlink("sub/f", export.at("in")).unwrap();
    symlink("sub", export.at("in-directory")).unwrap();
    for at in ["in", "in-directory/f"] {
        let file = export.storage.open_writable(&path(at), &all_options()[0]).unwrap();
        file.write_at(b"I", 0).unwrap();
        file.close(None).unwrap();
        assert_eq!(fs::read(export.at("sub/f")).unwrap(), b"Inside");
        fs::write(export.at("sub/f"), b"inside").unwrap();
    }
    export.storage.open_writable(&path("in"), &all_options()[2]).unwrap().write_at(b"new", 0).unwrap();
    assert_eq!(fs::read(export.at("sub/f")).unwrap(), b"new");
    // What is seen when it is closed replaces the link, as an upload does.
    let file = export.storage.open_writable(&path("in"), &all_options()[4]).unwrap();
    file.close(None).unwrap();
    assert!(fs::symlink_metadata(export.at("in")).unwrap().is_file());
    assert_eq!(fs::read(export.at("sub/f")).unwrap(), b"new");

    symlink("../secret", export.at("out")).unwrap();
    symlink(export.outside.path().join("secret"), export.at("out-absolute")).unwrap();
    symlink("../made", export.at("out-missing")).unwrap();
    symlink("loop", export.at("loop")).unwrap();
    symlink("..", export.at("out-directory")).unwrap();
    for at in ["out", "out-absolute", "out-missing", "loop"] {
        let refusals = all_options().map(|options| {
            options.visibility == Visibility::WhenClosed && options.disposition == Disposition::Replace
                || export.storage.open_writable(&path(at), &options).is_err()
        });
        assert_eq!(refusals, [true; 5], "{at}");
        assert!(matches!(export.storage.set_mode(&path(at), 0o777), Err(StoreError::NotFound)));
        let set = export.storage.set_attribute(&path(at), b"a", b"1", false);
        assert!(matches!(set, Err(StoreError::NotFound)), "{at}");
        assert!(matches!(export.storage.attribute_names(&path(at)), Err(StoreError::NotFound)));
    }
    for at in ["out-directory/secret", "out-directory/made", "out-directory/d/made"] {
        for options in all_options() {
            for parents in [false, true] {
                let opened = export.storage.open_writable(&path(at), &WriteOptions { parents, ..options });
                assert!(opened.is_err(), "{at} {options:?}");
            }
        }
        assert!(export.storage.set_mode(&path(at), 0o777).is_err());
        assert!(export.storage.set_attribute(&path(at), b"a", b"1", false).is_err());
    }
    assert!(export.is_secret_kept());
}

#[test]
fn the_hidden_directory_cannot_be_reached() {
    let export = Export::new();
    let running = export.storage.open_writable(&path("f"), &all_options()[4]).unwrap();
    running.write_at(b"hidden", 0).unwrap();
    let partial = fs::read_dir(export.at(".gridlane")).unwrap().next().unwrap().unwrap().path();
    symlink(".gridlane", export.at("link")).unwrap();
    symlink(&partial, export.at("absolute")).unwrap();
    symlink(partial.strip_prefix(export.at("")).unwrap(), export.at("partial")).unwrap();
    let name = partial.file_name().unwrap().as_encoded_bytes();
    for at in [path("partial"), path("absolute"), ObjectPath::new([&b"link"[..], name]).unwrap()] {
        let opened = export.storage.open_writable(&at, &all_options()[0]);
        assert!(matches!(opened, Err(StoreError::NotFound)), "{at}");
        assert!(matches!(export.storage.set_mode(&at, 0o777), Err(StoreError::NotFound)), "{at}");
        let set = export.storage.set_attribute(&at, b"a", b"1", false);
        assert!(matches!(set, Err(StoreError::NotFound)), "{at}");
    }
    for options in &all_options()[1..] {
        assert!(export.storage.open_writable(&path("link/checksums"), options).is_err());
    }
    // However old it looks, it is held.
    assert_eq!(export.storage.remove_abandoned(Duration::ZERO).unwrap(), 0);
    drop(running);
    assert_eq!(fs::read_dir(export.at(".gridlane")).unwrap().count(), 0);
}

#[test]
fn special_files_are_left_alone() {
    let export = Export::new();
    let fifo = export.at("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(export.at("socket")).unwrap();
    for special in ["fifo", "socket"] {
        for options in all_options() {
            let opened = export.storage.open_writable(&path(special), &options).err();
            let is_meant = match options.disposition {
                Disposition::Existing => matches!(opened, Some(StoreError::NotFound)),
                Disposition::New => matches!(opened, Some(StoreError::Unexpected)),
                Disposition::Replace => matches!(opened, Some(StoreError::NotAFile)),
            };
            assert!(is_meant, "{special} {options:?}: {opened:?}");
        }
        assert!(matches!(export.storage.set_mode(&path(special), 0o777), Err(StoreError::NotFound)));
        assert!(matches!(export.storage.attribute_names(&path(special)), Err(StoreError::NotFound)));
    }
    assert_eq!(fs::symlink_metadata(fifo).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn holes_take_no_space() {
    let export = Export::new();
    for options in &all_options()[1..3] {
        let file = export.storage.open_writable(&path("f"), options).unwrap();
        file.write_at(b"end", 1 << 30).unwrap();
        file.close(None).unwrap();
        let found = fs::metadata(export.at("f")).unwrap();
        assert_eq!(found.len(), (1 << 30) + 3);
        assert!(found.blocks() * 512 < 1 << 20, "{}", found.blocks());
    }
}

#[test]
fn modes_are_what_client_and_operator_leave() {
    let export = Export::with(PosixOptions { umask: Some(0o027), ..PosixOptions::default() });
    let mode = |at: &str| fs::metadata(export.at(at)).unwrap().mode() & 0o7777;
    for options in [all_options()[1], all_options()[3]] {
        for (wanted, given) in [(None, 0o640), (Some(0o666), 0o640), (Some(0o6777), 0o750), (Some(0), 0o600)]
        {
            let options = WriteOptions { mode: wanted, ..options };
            export.storage.open_writable(&path("f"), &options).unwrap().close(None).unwrap();
            assert_eq!(mode("f"), given, "{options:?}");
            fs::remove_file(export.at("f")).unwrap();
        }
    }
    // Bits that a user set here: a directory keeps those that are of use to others, a file none.
    fs::create_dir(export.at("sub")).unwrap();
    fs::write(export.at("f"), b"").unwrap();
    for at in ["sub", "f"] {
        fs::set_permissions(export.at(at), fs::Permissions::from_mode(0o3770)).unwrap();
        export.storage.set_mode(&path(at), 0o4755).unwrap();
    }
    assert_eq!((mode("sub"), mode("f")), (0o3755, 0o755));
}

#[test]
fn who_may_not_read_a_file_may_still_say_who_may() {
    use rustix::fs::{Gid, Uid};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become others");
        return;
    }
    let export = Export::new();
    for (at, owner) in [("", 12_345), ("ours", 12_345), ("theirs", 23_456)] {
        if !at.is_empty() {
            fs::write(export.at(at), b"one").unwrap();
            fs::set_permissions(export.at(at), fs::Permissions::from_mode(0o000)).unwrap();
        }
        std::os::unix::fs::chown(export.at(at), Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(export.outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Of this thread alone.
            let (uid, gid) = (Uid::from_raw(12_345), Gid::from_raw(12_345));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            // As after a start under that user: procfs is its own.
            let dumpable = rustix::process::DumpableBehavior::Dumpable;
            rustix::process::set_dumpable_behavior(dumpable).unwrap();
            let existing = &all_options()[0];
            for at in ["ours", "theirs"] {
                let opened = export.storage.open_writable(&path(at), existing);
                assert!(matches!(opened, Err(StoreError::Denied)), "{at}");
            }
            assert!(matches!(export.storage.set_mode(&path("theirs"), 0o666), Err(StoreError::Denied)));
            export.storage.set_mode(&path("ours"), 0o640).unwrap();
            export.storage.open_writable(&path("ours"), existing).unwrap().write_at(b"O", 0).unwrap();
        });
    });
    assert_eq!(fs::metadata(export.at("ours")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(export.at("theirs")).unwrap().mode() & 0o7777, 0);
}

#[test]
fn attributes_are_on_the_disk_as_those_of_xrootd() {
    let export = Export::new();
    if !export.has_attributes() {
        return;
    }
    fs::write(export.at("f"), b"one").unwrap();
    export.storage.set_attribute(&path("f"), b"abc", b"def", true).unwrap();
    let mut value = [0; 10];
    assert_eq!(getxattr(export.at("f"), "user.U.abc", &mut value[..]), Ok(3));
    assert_eq!(&value[..3], b"def");
    // What others keep there is neither seen nor touched.
    for name in ["user.XrdCks.adler32", "user.gridlane.checksum.md5", "user.other", "user.U."] {
        setxattr(export.at("f"), name, b"1", XattrFlags::empty()).unwrap();
    }
    assert_eq!(export.storage.attribute_names(&path("f")).unwrap(), [b"abc"]);
    for name in [&b"XrdCks.adler32"[..], b"other", b"user.other", b"../other"] {
        assert_eq!(export.storage.attribute(&path("f"), name).unwrap(), None);
        assert!(!export.storage.remove_attribute(&path("f"), name).unwrap());
        export.storage.set_attribute(&path("f"), name, b"2", true).unwrap();
    }
    assert_eq!(getxattr(export.at("f"), "user.XrdCks.adler32", &mut value[..]), Ok(1));
    assert_eq!(value[0], b'1');
    // Before the bytes change, checksums go, those of others included; the rest stays.
    let file = export.storage.open_writable(&path("f"), &all_options()[0]).unwrap();
    file.write_at(b"two", 0).unwrap();
    let mut names = vec![0; 1000];
    let len = listxattr(export.at("f"), &mut names[..]).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    assert!(!names.contains("user.XrdCks.adler32\0") && !names.contains("gridlane.checksum"), "{names}");
    assert!(names.contains("user.other\0") && names.contains("user.U.abc\0"), "{names}");
}

#[test]
fn a_kept_checksum_is_of_the_closed_file_and_of_no_later_state() {
    for without_attributes in [false, true] {
        for durability in [Durability::None, Durability::File, Durability::Dir] {
            let export =
                Export::with(PosixOptions { durability, without_attributes, ..PosixOptions::default() });
            let kept = || match export.storage.open(&path("f")).unwrap() {
                Opened::File(file) => file.kept_checksum(ChecksumKind::Adler32),
                Opened::Directory => panic!("a file"),
            };
            let file = export.storage.open_writable(&path("f"), &all_options()[1]).unwrap();
            file.write_at(b"123456789", 0).unwrap();
            file.sync().unwrap();
            file.close(Some(&whole(9, 7))).unwrap();
            assert_eq!(kept(), Some(Checksum::adler32(7)));
            // Another program, within the same tick of the clock or not: the time was moved on.
            fs::File::options().write(true).open(export.at("f")).unwrap().write_all_at(b"X", 0).unwrap();
            assert_eq!(kept(), None);
        }
    }
}

#[test]
fn other_bytes_have_another_tag_where_the_clock_is_slow() {
    use rustix::mount::{MountFlags, mount};
    with_own_mounts(|| {
        let directory = tempfile::tempdir().unwrap();
        // Others have finer times since Linux 6.13.
        mount("ramfs", directory.path(), "ramfs", MountFlags::empty(), None).unwrap();
        let storage = PosixStorage::open(directory.path(), Durability::None).unwrap();
        let mut tags = std::collections::HashSet::new();
        for number in 0..100 {
            // Closed or not, changed or made anew: the length is the same.
            let disposition = [Disposition::Replace, Disposition::Existing][usize::from(number % 3 > 0)];
            let file = storage.open_writable(&path("f"), &WriteOptions::new(disposition)).unwrap();
            file.write_at(&[number], 0).unwrap();
            if number % 2 == 0 {
                file.close(Some(&whole(1, number.into()))).unwrap();
            }
            drop(file);
            assert!(tags.insert(storage.stat(&path("f")).unwrap().tag), "{number}");
            let Opened::File(file) = storage.open(&path("f")).unwrap() else { panic!("a file") };
            let kept = (number % 2 == 0).then(|| Checksum::adler32(number.into()));
            assert_eq!(file.kept_checksum(ChecksumKind::Adler32), kept, "{number}");
        }
    });
}

#[test]
fn file_systems_that_cannot_say_so() {
    use rustix::mount::{MountFlags, mount, mount_remount};
    with_own_mounts(|| {
        let directory = tempfile::tempdir().unwrap();
        mount("ramfs", directory.path(), "ramfs", MountFlags::empty(), None).unwrap();
        fs::write(directory.path().join("f"), b"one").unwrap();
        let storage = PosixStorage::open(directory.path(), Durability::File).unwrap();
        if setxattr(directory.path(), "user.probe", b"1", XattrFlags::empty()).is_err() {
            let unsupported = |error: Option<StoreError>| matches!(error, Some(StoreError::Unsupported));
            assert!(unsupported(storage.attribute(&path("f"), b"a").err()));
            assert!(unsupported(storage.set_attribute(&path("f"), b"a", b"1", false).err()));
            assert!(unsupported(storage.remove_attribute(&path("f"), b"a").err()));
        }
        // Without them, the rest works.
        let file = storage.open_writable(&path("f"), &all_options()[0]).unwrap();
        file.write_at(b"two", 0).unwrap();
        file.close(Some(&whole(3, 7))).unwrap();
    });
    with_own_mounts(|| {
        let directory = tempfile::tempdir().unwrap();
        mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(directory.path().join("f"), b"one").unwrap();
        mount_remount(directory.path(), MountFlags::RDONLY, "").unwrap();
        let storage = PosixStorage::open(directory.path(), Durability::File).unwrap();
        for options in all_options() {
            let at = if options.disposition == Disposition::New { "g" } else { "f" };
            let opened = storage.open_writable(&path(at), &options).err();
            assert!(matches!(opened, Some(StoreError::ReadOnly)), "{options:?}: {opened:?}");
        }
        assert!(matches!(storage.set_mode(&path("f"), 0o600), Err(StoreError::ReadOnly)));
        let set = storage.set_attribute(&path("f"), b"a", b"1", false);
        assert!(matches!(set, Err(StoreError::ReadOnly | StoreError::Unsupported)), "{set:?}");
    });
}
