//! Removing and moving trees of a real directory: links, depth, width, mounts, and what others see meanwhile.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/mounts.rs"]
mod mounts;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridlane_store::{
    BlockingStorage, BlockingUpload, Durability, Expectation, ObjectPath, Overwrite, PosixOptions,
    PosixStorage, QuotaStorage, StoreError,
};
use mounts::with_own_mounts;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

struct Export {
    storage: PosixStorage,
    /// Holds `export/` and, beside it, what must not be touched.
    outside: tempfile::TempDir,
}

impl Export {
    fn new() -> Export {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("export")).unwrap();
        fs::create_dir(outside.path().join("precious")).unwrap();
        fs::write(outside.path().join("precious/f"), b"precious").unwrap();
        let storage = PosixStorage::open(&outside.path().join("export"), Durability::None).unwrap();
        Export { storage, outside }
    }

    fn at(&self, relative: &str) -> PathBuf {
        self.outside.path().join("export").join(relative)
    }

    fn hidden(&self) -> usize {
        fs::read_dir(self.at(".gridlane")).map_or(0, Iterator::count)
    }

    fn is_precious_there(&self) -> bool {
        fs::read(self.outside.path().join("precious/f")).is_ok_and(|bytes| bytes == b"precious")
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

/// What comes of something that may wait.
fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
}

fn put(storage: &PosixStorage, at: &str, bytes: &[u8]) {
    let upload = storage.create(&path(at), None).unwrap();
    upload.write_at(bytes, 0).unwrap();
    upload.commit(&Expectation::Anything.into()).unwrap();
}

#[test]
fn links_are_removed_and_never_followed() {
    let export = Export::new();
    let (storage, precious) = (&export.storage, export.outside.path().join("precious"));
    fs::create_dir_all(export.at("tree/below")).unwrap();
    fs::create_dir(export.at("kept")).unwrap();
    fs::write(export.at("kept/f"), b"kept").unwrap();
    symlink(&precious, export.at("tree/out")).unwrap();
    symlink("../../../precious", export.at("tree/below/out")).unwrap();
    symlink("../kept", export.at("tree/in")).unwrap();
    symlink("loop", export.at("tree/loop")).unwrap();
    rustix::fs::mknodat(CWD, export.at("tree/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // A link to a directory goes alone, and one that leads out is not there.
    symlink("kept", export.at("link")).unwrap();
    symlink(&precious, export.at("out")).unwrap();
    for at in ["link", "out"] {
        let is_inside = at == "link";
        assert_eq!(storage.remove_tree(&path(at)).is_ok(), is_inside);
        assert_eq!(export.at(at).symlink_metadata().is_ok(), !is_inside);
    }
    symlink("kept", export.at("link")).unwrap();
    storage.remove_directory(&path("link")).unwrap();
    let moved = storage.rename(&path("out"), &path("new"), Overwrite::Anything, &Expectation::Anything);
    assert!(matches!(moved, Err(StoreError::NotFound)));
    assert!(storage.make_directory(&path("out/new")).is_err());
    // Following the link would never end.
    symlink("..", export.at("tree/up")).unwrap();
    let quota = QuotaStorage::new(
        std::sync::Arc::new(PosixStorage::open(&export.at(""), Durability::None).unwrap()),
        100,
    );
    assert_eq!(wait(quota.recount()).unwrap().used_bytes, 4);
    // What goes with a link is the link.
    symlink("kept", export.at("link")).unwrap();
    symlink("kept/f", export.at("link-f")).unwrap();
    wait(gridlane_store::Storage::remove_tree(&quota, &path("link"))).unwrap();
    wait(gridlane_store::Storage::remove(&quota, &path("link-f"), &Expectation::Anything)).unwrap();
    assert_eq!(quota.usage().used_bytes, 4);
    storage.remove_tree(&path("tree")).unwrap();
    assert!(!export.at("tree").exists());
    assert_eq!(fs::read(export.at("kept/f")).unwrap(), b"kept");
    assert!(export.is_precious_there());
    assert_eq!(export.hidden(), 0);
}

/// Makes `depth` directories inside each other, and a file in each; the path would be far too long.
fn deepen(base: &Path, depth: usize) {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut directory = openat(CWD, base, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        openat(&directory, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        mkdirat(&directory, "a-directory", Mode::RWXU).unwrap();
        directory = openat(&directory, "a-directory", flags, Mode::empty()).unwrap();
    }
}

#[test]
fn no_depth_is_too_deep() {
    let export = Export::new();
    fs::create_dir(export.at("deep")).unwrap();
    deepen(&export.at("deep"), 5000);
    // What clients can name is not all that is there.
    let quota = QuotaStorage::new(
        std::sync::Arc::new(PosixStorage::open(&export.at(""), Durability::None).unwrap()),
        100,
    );
    wait(quota.recount()).unwrap();
    let stack_bytes = 128 * 1024;
    std::thread::scope(|scope| {
        let remove = || export.storage.remove_tree(&path("deep")).unwrap();
        std::thread::Builder::new().stack_size(stack_bytes).spawn_scoped(scope, remove).unwrap();
    });
    assert!(!export.at("deep").exists());
    assert_eq!(export.hidden(), 0);
}

#[test]
fn trees_that_are_wide_and_deep_go_whole() {
    let export = Export::new();
    let mut at = export.at("tree");
    fs::create_dir(&at).unwrap();
    for _ in 0..80 {
        for sibling in ["a", "z"] {
            fs::create_dir_all(at.join(sibling).join("below")).unwrap();
            fs::write(at.join(sibling).join("f"), b"").unwrap();
        }
        at = at.join("m");
        fs::create_dir(&at).unwrap();
    }
    for number in 0..3000 {
        fs::write(at.join(format!("a file with a long name {number}")), b"").unwrap();
    }
    assert_eq!(export.storage.entries(&path(&format!("tree{}", "/m".repeat(80)))).unwrap().count(), 3000);
    export.storage.remove_tree(&path("tree")).unwrap();
    assert!(!export.at("tree").exists());
    assert_eq!(export.hidden(), 0);
}

#[test]
fn what_a_crash_left_of_a_removal_is_removed() {
    let export = Export::new();
    fs::create_dir_all(export.at(".gridlane/removed-1-1-1.tree/a/b")).unwrap();
    fs::set_permissions(export.at(".gridlane"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(export.at(".gridlane/removed-1-1-1.tree/a/f"), b"").unwrap();
    symlink(export.outside.path().join("precious"), export.at(".gridlane/removed-1-1-1.tree/out")).unwrap();
    assert_eq!(export.storage.remove_abandoned(Duration::from_secs(1800)).unwrap(), 1);
    assert_eq!(export.hidden(), 0);
    assert!(export.is_precious_there());
}

#[test]
fn two_may_delete_the_same_tree_at_once() {
    let export = Export::new();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tidy = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                // It may find a directory gone below its feet: the next time comes.
                let _ = export.storage.remove_abandoned(Duration::from_secs(1800));
            }
        });
        for _ in 0..30 {
            for branch in ["a/b/c", "a/d/e", "f/g"] {
                fs::create_dir_all(export.at("tree").join(branch)).unwrap();
                for number in 0..20 {
                    fs::write(export.at("tree").join(branch).join(number.to_string()), b"").unwrap();
                }
            }
            export.storage.remove_tree(&path("tree")).unwrap();
            assert!(!export.at("tree").exists());
        }
        is_done.store(true, Ordering::Relaxed);
        tidy.join().unwrap();
    });
    export.storage.remove_abandoned(Duration::from_secs(1800)).unwrap();
    assert_eq!(export.hidden(), 0);
}

#[test]
fn a_replaced_directory_is_never_missing() {
    let export = Export::new();
    let storage = &export.storage;
    storage.make_directories(&path("live/sub")).unwrap();
    put(storage, "live/f", b"first");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !is_done.load(Ordering::Relaxed) || looks == 0 {
                storage.look(&path("live/f")).unwrap();
                looks += 1;
            }
        });
        for _ in 0..200 {
            storage.make_directories(&path("next/sub")).unwrap();
            put(storage, "next/f", b"next");
            assert!(
                storage
                    .rename(&path("next"), &path("live"), Overwrite::Anything, &Expectation::Anything)
                    .unwrap()
            );
        }
        is_done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(export.hidden(), 0);
    assert!(!export.at("next").exists());
}

#[test]
fn of_those_who_expect_the_same_state_one_wins() {
    let export = Export::new();
    let storage = &export.storage;
    put(storage, "counter", b"0");
    let wins: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut wins = 0;
                    for _ in 0..50 {
                        let tag = storage.stat(&path("counter")).unwrap().tag;
                        let count: u64 = fs::read_to_string(export.at("counter")).unwrap().parse().unwrap();
                        let upload = storage.create(&path("counter"), None).unwrap();
                        upload.write_at((count + 1).to_string().as_bytes(), 0).unwrap();
                        wins += u64::from(upload.commit(&Expectation::Tag(tag).into()).is_ok());
                    }
                    wins
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert!(wins > 0);
    assert_eq!(fs::read_to_string(export.at("counter")).unwrap(), wins.to_string());
    // Of the threads that move one file, one finds it.
    let tag = storage.stat(&path("counter")).unwrap().tag;
    let moved: usize = std::thread::scope(|scope| {
        let movers: Vec<_> = (0..8)
            .map(|mover| {
                let expectation = Expectation::Tag(tag.clone());
                let to = path(&format!("moved-{mover}"));
                scope.spawn(move || {
                    storage.rename(&path("counter"), &to, Overwrite::Anything, &expectation).is_ok()
                })
            })
            .collect();
        movers.into_iter().map(|mover| usize::from(mover.join().unwrap())).sum()
    });
    assert_eq!(moved, 1);
}

#[test]
fn a_link_is_no_way_into_itself() {
    let export = Export::new();
    let storage = &export.storage;
    storage.make_directories(&path("a/b/c")).unwrap();
    put(storage, "a/f", b"kept");
    symlink("a", export.at("link")).unwrap();
    for (from, to) in
        [("a", "link/new"), ("a", "link/b"), ("link/b", "a"), ("link/b/c", "a"), ("a/f", "link")]
    {
        let onto_link = to == "link";
        let moved = storage.rename(&path(from), &path(to), Overwrite::Anything, &Expectation::Anything);
        if onto_link {
            // The link itself is replaced.
            assert!(matches!(moved, Ok(true)), "{moved:?}");
        } else {
            assert!(matches!(moved, Err(StoreError::IntoItself)), "{from} to {to}: {moved:?}");
            assert!(export.at("a/b/c").exists() && export.at("a/f").exists());
        }
    }
    assert_eq!(fs::read(export.at("link")).unwrap(), b"kept");
    assert!(export.at("a/b/c").exists());
}

#[test]
fn two_names_of_one_file_become_one() {
    let export = Export::new();
    put(&export.storage, "f", b"one");
    fs::hard_link(export.at("f"), export.at("g")).unwrap();
    assert!(
        export.storage.rename(&path("f"), &path("g"), Overwrite::Anything, &Expectation::Anything).unwrap()
    );
    assert!(!export.at("f").exists());
    assert_eq!(fs::read(export.at("g")).unwrap(), b"one");
}

#[test]
fn permissions_and_owners_are_what_the_operator_wants() {
    let directory = tempfile::tempdir().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let (uid, gid) = if is_root { (Some(12_345), Some(23_456)) } else { (None, None) };
    for (umask, file, below) in [(0o027, 0o640, 0o750), (0o002, 0o664, 0o775), (0o777, 0, 0)] {
        let options = PosixOptions { umask: Some(umask), uid, gid, ..PosixOptions::default() };
        let storage = PosixStorage::open_with(directory.path(), options).unwrap();
        let (f, d) = (format!("f-{umask:o}"), format!("d-{umask:o}"));
        put(&storage, &f, b"one");
        storage.make_directory(&path(&d)).unwrap();
        for (name, mode) in [(f, file), (d, below)] {
            let meta = fs::symlink_metadata(directory.path().join(&name)).unwrap();
            assert_eq!(meta.permissions().mode() & 0o7777, mode, "{name}");
            if is_root {
                assert_eq!((meta.uid(), meta.gid()), (12_345, 23_456));
                let looked = storage.look(&path(&name)).unwrap();
                assert_eq!((looked.owner, looked.group, looked.mode), (12_345, 23_456, meta.mode()));
            }
        }
    }
}

#[test]
fn directories_stay_in_the_group_that_those_above_are_of() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o2775)).unwrap();
    for umask in [None, Some(0o027)] {
        let storage =
            PosixStorage::open_with(directory.path(), PosixOptions { umask, ..PosixOptions::default() })
                .unwrap();
        let name = format!("{umask:?}");
        storage.make_directory(&path(&name)).unwrap();
        let mode = fs::metadata(directory.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o2000, 0o2000, "{name}");
    }
}

#[test]
fn what_only_others_may_delete_stays_where_they_find_it() {
    use rustix::fs::{Gid, Uid};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make files of others");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |relative: &str| directory.path().join(relative);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir_all(at("tree/theirs")).unwrap();
    fs::write(at("tree/theirs/f"), b"precious").unwrap();
    fs::write(at("tree/ours"), b"ours").unwrap();
    for (relative, owner) in
        [("tree", 12_345), ("tree/ours", 12_345), ("tree/theirs", 23_456), ("tree/theirs/f", 23_456)]
    {
        std::os::unix::fs::chown(at(relative), Some(owner), Some(owner)).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Of this thread alone.
            let (uid, gid) = (Uid::from_raw(12_345), Gid::from_raw(12_345));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            let storage = PosixStorage::open(directory.path(), Durability::None).unwrap();
            assert!(matches!(storage.remove_tree(&path("tree")), Err(StoreError::Denied)));
        });
    });
    assert_eq!(fs::read(at("tree/theirs/f")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(at(".gridlane")).unwrap().count(), 0);
}

#[test]
fn what_is_mounted_inside_is_neither_removed_nor_left() {
    with_own_mounts(|| {
        use rustix::mount::{MountFlags, mount, mount_bind};
        let export = Export::new();
        let storage = &export.storage;
        fs::create_dir_all(export.at("holds/mnt")).unwrap();
        fs::create_dir_all(export.at("holds/bound")).unwrap();
        fs::write(export.at("holds/f"), b"kept").unwrap();
        mount("tmpfs", export.at("holds/mnt"), "tmpfs", MountFlags::empty(), None).unwrap();
        mount_bind(export.outside.path().join("precious"), export.at("holds/bound")).unwrap();
        for refused in ["holds", "holds/mnt", "holds/bound"] {
            assert!(matches!(storage.remove_tree(&path(refused)), Err(StoreError::InUse)), "{refused}");
        }
        assert!(matches!(storage.remove_directory(&path("holds/mnt")), Err(StoreError::InUse)));
        assert!(export.is_precious_there() && export.at("holds/f").exists());
        // Inside of it everything works.
        storage.make_directories(&path("holds/mnt/a/b")).unwrap();
        put(storage, "holds/mnt/a/f", b"one");
        put(storage, "g", b"two");
        let across =
            storage.rename(&path("g"), &path("holds/mnt/g"), Overwrite::Anything, &Expectation::Anything);
        assert!(matches!(across, Err(StoreError::AcrossDevices)), "{across:?}");
        let across =
            storage.rename(&path("holds/mnt/a"), &path("a"), Overwrite::Anything, &Expectation::Anything);
        assert!(matches!(across, Err(StoreError::AcrossDevices)), "{across:?}");
        storage.make_directories(&path("holds/mnt/c/d")).unwrap();
        assert!(
            storage
                .rename(
                    &path("holds/mnt/a"),
                    &path("holds/mnt/c"),
                    Overwrite::Anything,
                    &Expectation::Anything
                )
                .unwrap()
        );
        storage.remove_tree(&path("holds/mnt/c/b")).unwrap();
        storage.remove(&path("holds/mnt/c/f"), &Expectation::Anything).unwrap();
        // It holds nothing but what uploads needed.
        assert!(export.at("holds/mnt/c/.gridlane").exists());
        storage.remove_directory(&path("holds/mnt/c")).unwrap();
        // A directory that holds a mount is not replaced, and may be moved.
        storage.make_directory(&path("new")).unwrap();
        let onto = storage.rename(&path("new"), &path("holds"), Overwrite::Anything, &Expectation::Anything);
        assert!(matches!(onto, Err(StoreError::InUse)), "{onto:?}");
        assert!(export.is_precious_there());
        rustix::mount::unmount(export.at("holds/mnt"), rustix::mount::UnmountFlags::empty()).unwrap();
        rustix::mount::unmount(export.at("holds/bound"), rustix::mount::UnmountFlags::empty()).unwrap();
        storage.remove_tree(&path("holds")).unwrap();
        assert!(export.is_precious_there());
    });
}

/// An overlay file system moves no directory of its lower layer.
#[test]
fn what_no_rename_can_move_is_removed_where_it_is() {
    with_own_mounts(|| {
        use rustix::mount::{MountFlags, mount};
        let layers = tempfile::tempdir().unwrap();
        mount("tmpfs", layers.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        for layer in ["lower/tree", "upper", "work", "export"] {
            fs::create_dir_all(layers.path().join(layer)).unwrap();
        }
        fs::create_dir(layers.path().join("lower/other")).unwrap();
        fs::write(layers.path().join("lower/other/f"), b"other").unwrap();
        deepen(&layers.path().join("lower/tree"), 100);
        let at = |layer: &str| layers.path().join(layer).display().to_string();
        let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
        let options = std::ffi::CString::new(options).unwrap();
        let export = layers.path().join("export");
        if mount("overlay", &export, "overlay", MountFlags::empty(), options.as_c_str()).is_err() {
            eprintln!("skipped: no overlay file systems here");
            return;
        }
        let storage = PosixStorage::open(&export, Durability::File).unwrap();
        let moved = storage.rename(&path("tree"), &path("new"), Overwrite::Nothing, &Expectation::Anything);
        match moved {
            // Where it may (redirect_dir), there is nothing to see here.
            Ok(_) => return,
            Err(error) => assert!(matches!(error, StoreError::AcrossDevices), "{error}"),
        }
        storage.make_directory(&path("made")).unwrap();
        let onto = storage.rename(&path("made"), &path("other"), Overwrite::Anything, &Expectation::Anything);
        assert!(matches!(onto, Err(StoreError::AcrossDevices)), "{onto:?}");
        assert!(export.join("made").exists() && export.join("other/f").exists());
        storage.remove_tree(&path("tree")).unwrap();
        assert!(!export.join("tree").exists());
        assert_eq!(fs::read_dir(export.join(".gridlane")).unwrap().count(), 0);
    });
}
