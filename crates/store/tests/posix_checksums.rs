//! Checksums that stay with files of a real directory: what is in the attributes, and what a change does.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/mounts.rs"]
mod mounts;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, Hasher};
use gridlane_store::{
    BlockingObject, BlockingStorage, BlockingUpload, Completion, Expectation, ObjectPath, Opened,
    PosixOptions, PosixStorage,
};
use mounts::with_own_mounts;
use rustix::fs::{XattrFlags, getxattr, setxattr};

const ADLER32: ChecksumKind = ChecksumKind::Adler32;

struct Export {
    storage: PosixStorage,
    directory: tempfile::TempDir,
}

impl Export {
    fn new(without_attributes: bool) -> Export {
        let directory = tempfile::tempdir().unwrap();
        let options = PosixOptions { without_attributes, ..PosixOptions::default() };
        Export { storage: PosixStorage::open_with(directory.path(), options).unwrap(), directory }
    }

    /// One with attributes and one with the side file.
    fn both() -> [Export; 2] {
        [Export::new(false), Export::new(true)]
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("f")
    }

    fn path() -> ObjectPath {
        ObjectPath::new([&b"f"[..]]).unwrap()
    }

    fn put(&self, bytes: &[u8]) -> Checksum {
        let upload = self.storage.create(&Export::path(), None).unwrap();
        upload.write_at(bytes, 0).unwrap();
        let mut hasher = Hasher::new(ADLER32);
        hasher.update(bytes);
        let checksum = hasher.finish();
        let completion = Completion { checksums: vec![checksum.clone()], ..Expectation::Anything.into() };
        upload.commit(&completion).unwrap();
        checksum
    }

    fn open(&self) -> Arc<impl BlockingObject> {
        match self.storage.open(&Export::path()).unwrap() {
            Opened::File(object) => object,
            Opened::Directory => panic!("a file"),
        }
    }

    fn kept(&self) -> Option<Checksum> {
        self.open().kept_checksum(ADLER32)
    }

    /// Whether this file system has attributes at all.
    fn has_attributes(&self) -> bool {
        let probe = self.directory.path().join("probe");
        fs::write(&probe, b"").unwrap();
        setxattr(&probe, "user.probe", b"1", XattrFlags::empty()).is_ok()
    }
}

#[test]
fn the_attribute_is_as_documented() {
    let export = Export::new(false);
    if !export.has_attributes() {
        return;
    }
    export.put(b"123456789");
    let mut value = [0; 256];
    let len = getxattr(export.file(), "user.gridlane.checksum.adler32", &mut value[..]).unwrap();
    let meta = fs::metadata(export.file()).unwrap();
    let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    assert_eq!(String::from_utf8_lossy(&value[..len]), format!("1 091e01de 9 {modified_ns}"));
    assert!(!export.directory.path().join(".gridlane/checksums").exists());
}

#[test]
fn a_changed_file_yields_none() {
    type Change = fn(&fs::File);
    let changes: [(&str, Change); 4] = [
        ("other bytes", |file| file.write_all_at(b"X", 0).unwrap()),
        ("longer", |file| file.write_all_at(b"X", 9).unwrap()),
        ("shorter", |file| file.set_len(3).unwrap()),
        ("cut and its time set back", |file| {
            let modified = file.metadata().unwrap().modified().unwrap();
            file.set_len(3).unwrap();
            file.set_modified(modified).unwrap();
        }),
    ];
    for export in Export::both() {
        for (what, change) in changes {
            let checksum = export.put(b"123456789");
            let before = export.open();
            assert_eq!(export.kept(), Some(checksum));
            let modified = fs::metadata(export.file()).unwrap().modified().unwrap();
            let file = fs::File::options().write(true).open(export.file()).unwrap();
            // Until the kernel's clock has ticked.
            loop {
                change(&file);
                let meta = file.metadata().unwrap();
                if meta.modified().unwrap() != modified || meta.len() != 9 {
                    break;
                }
            }
            assert_eq!(export.kept(), None, "{what}");
            assert_eq!(before.kept_checksum(ADLER32), None, "{what}: nor by who had it open");
            // Computed from what was there before.
            before.keep_checksum(&Checksum::adler32(1)).unwrap();
            assert_eq!(export.kept(), None, "{what}");
        }
    }
}

#[test]
fn another_file_that_gets_the_inode_has_none() {
    let export = Export::new(true);
    let checksum = export.put(b"123456789");
    let meta = fs::metadata(export.file()).unwrap();
    assert_eq!(export.kept(), Some(checksum));
    // As restored from a backup, perhaps onto the same inode.
    fs::remove_file(export.file()).unwrap();
    fs::write(export.file(), b"987654321").unwrap();
    let file = fs::File::options().write(true).open(export.file()).unwrap();
    file.set_modified(meta.modified().unwrap()).unwrap();
    assert_eq!(export.kept(), None);
}

#[test]
fn a_time_in_whole_seconds_may_hide_a_change() {
    // As on a file system that counts seconds, where the second has not passed.
    for export in Export::both() {
        let now = SystemTime::now();
        let second = now
            - Duration::from_nanos(now.duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into());
        for (modified, is_kept) in [(second, false), (second - Duration::from_secs(60), true)] {
            let upload = export.storage.create(&Export::path(), None).unwrap();
            // An hour ahead: no pause of the machine makes it the past.
            let modified = if is_kept { modified } else { modified + Duration::from_secs(3600) };
            let (modified, checksums) = (Some(modified), vec![Checksum::adler32(7)]);
            let expectation = Expectation::Anything;
            upload.commit(&Completion { expectation, modified, checksums }).unwrap();
            assert_eq!(export.kept().is_some(), is_kept);
            export.open().keep_checksum(&Checksum::adler32(7)).unwrap();
            assert_eq!(export.kept().is_some(), is_kept);
        }
    }
}

#[test]
fn what_xrootd_kept_is_used_until_the_file_changes() {
    let export = Export::new(false);
    if !export.has_attributes() {
        eprintln!("skipped: no extended attributes here");
        return;
    }
    fs::write(export.file(), b"123456789").unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_millis(1_704_067_200_500);
    let set_back = || {
        fs::File::options().write(true).open(export.file()).unwrap().set_modified(old).unwrap();
    };
    set_back();
    assert_eq!(export.kept(), None);
    let output = Command::new("xrdadler32").arg(export.file()).output();
    let output = output.expect("xrdadler32 is needed: scripts/bootstrap.sh --test (package xrootd-client)");
    assert!(output.status.success(), "{output:?}");
    let name = "user.XrdCks.adler32";
    let mut value = [0; 96];
    assert_eq!(getxattr(export.file(), name, &mut value[..]), Ok(96), "xrdadler32 keeps what it found");
    assert_eq!(export.kept().unwrap().hex(), "091e01de");
    // It is read, not computed again.
    value[32] ^= 0xff;
    setxattr(export.file(), name, &value, XattrFlags::empty()).unwrap();
    assert_eq!(export.kept().unwrap().hex(), "f61e01de");
    fs::write(export.file(), b"987654321").unwrap();
    assert_eq!(export.kept(), None);
    // Ours comes first.
    set_back();
    assert_eq!(export.kept().unwrap().hex(), "f61e01de");
    let checksum = export.put(b"123456789");
    assert_eq!(export.kept(), Some(checksum));
}

/// ramfs has no extended attributes that users may set.
#[test]
fn without_attributes_the_side_file_is_used() {
    use rustix::mount::{MountFlags, mount};
    with_own_mounts(|| {
        let directory = tempfile::tempdir().unwrap();
        mount("ramfs", directory.path(), "ramfs", MountFlags::empty(), None).unwrap();
        let storage = PosixStorage::open_with(directory.path(), PosixOptions::default()).unwrap();
        let export = Export { storage, directory };
        if export.has_attributes() {
            eprintln!("skipped: this ramfs has extended attributes");
            return;
        }
        let checksum = export.put(b"123456789");
        assert_eq!(export.kept(), Some(checksum));
        assert!(export.directory.path().join(".gridlane/checksums").exists());
        fs::write(export.file(), b"12345").unwrap();
        assert_eq!(export.kept(), None);
    });
}

#[test]
fn a_time_that_is_set_back_brings_no_checksum_back() {
    for export in Export::both() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1_704_067_200_500);
        for by_upload in [true, false] {
            let upload = export.storage.create(&Export::path(), None).unwrap();
            upload.write_at(b"123456789", 0).unwrap();
            let checksums = if by_upload { vec![Checksum::adler32(7)] } else { Vec::new() };
            let (modified, expectation) = (Some(moment), Expectation::Anything);
            upload.commit(&Completion { expectation, modified, checksums }).unwrap();
            if !by_upload {
                export.open().keep_checksum(&Checksum::adler32(7)).unwrap();
            }
            assert!(export.kept().is_some());
            // Another program changes the bytes, and a client sets the time that it knows.
            fs::File::options().write(true).open(export.file()).unwrap().write_all_at(b"X", 0).unwrap();
            export.storage.set_modified(&Export::path(), moment).unwrap();
            assert_eq!(export.kept(), None, "by an upload: {by_upload}");
        }
    }
}
