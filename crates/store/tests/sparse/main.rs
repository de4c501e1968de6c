//! The cache of remote files: it may lose bytes, and never gives wrong ones.
//!
//! The content of every file follows from its seed and the offset, so that any byte that is read can be judged.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;
#[path = "../support/mounts.rs"]
mod mounts;
mod processes;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::time::{Duration, SystemTime};

use common::{check, content, files_in, key, open, write};
use gridlane_core::limits::{READ_PAGE_BYTES, SPARSE_BLOCK_BYTES};
use gridlane_core::{ByteRange, ErrorKind, RangeSet};
use gridlane_store::{SparseCache, SparseLimits};
use mounts::with_own_mounts;
use proptest::prelude::*;

const SIZE_BYTES: u64 = 300_000;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64),
    Read(u64, u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![1..20_u64, 900..1100_u64, 4000..4200_u64, 60_000..70_000_u64];
    let step = prop_oneof![
        4 => (0..SIZE_BYTES, len()).prop_map(|(offset, len)| Step::Write(offset, len.min(SIZE_BYTES - offset))),
        4 => (0..SIZE_BYTES, len()).prop_map(|(offset, len)| Step::Read(offset, len)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is written, read and opened again: what is there is what was written, no more and no less.
    #[test]
    fn is_a_set_of_bytes(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let key = key("f", SIZE_BYTES);
        let mut file = open(directory.path()).file(&key).unwrap();
        let mut model = RangeSet::new();
        for step in steps {
            match step {
                Step::Write(offset, len) => {
                    let kept_bytes = write(&file, offset, len);
                    prop_assert_eq!(kept_bytes, model.insert(ByteRange::at(offset, len)));
                }
                Step::Read(offset, len) => {
                    let mut buffer = vec![0; len as usize];
                    let found = file.read(offset, &mut buffer);
                    prop_assert_eq!(&found, &model.intersection(ByteRange::at(offset, len)));
                    prop_assert_eq!(file.missing(ByteRange::at(offset, len)), model.missing(ByteRange::at(offset, len)));
                    common::judge(&found, offset, &buffer);
                }
                Step::Reopen => {
                    drop(file);
                    file = open(directory.path()).file(&key).unwrap();
                }
            }
            prop_assert_eq!(file.present(), model.clone());
        }
        prop_assert_eq!(file.damaged_bytes(), 0);
    }
}

/// A file with extents of many lengths, closed: its index and its data.
fn prepared(directory: &std::path::Path) -> (Vec<u8>, Vec<u8>) {
    let file = open(directory).file(&key("f", SIZE_BYTES)).unwrap();
    for (offset, len) in
        [(100, 1000), (1100, 1000), (9000, 5000), (70_000, 10), (299_000, 1000), (8000, 1000)]
    {
        assert_eq!(write(&file, offset, len), len);
    }
    let names = files_in(directory);
    assert_eq!(names.len(), 2, "{names:?}");
    (fs::read(&names[1]).unwrap(), fs::read(&names[0]).unwrap())
}

/// Puts these files in the place of those that were there, and uses them.
fn survives(index: &[u8], data: &[u8], what: &str) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    prepared(directory.path());
    let names = files_in(directory.path());
    fs::write(&names[1], index).unwrap();
    fs::write(&names[0], data).unwrap();
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    let found_bytes = check(&file, SIZE_BYTES);
    // Everything is written and read again, other places first: what is lost must not come back as something else.
    for (offset, len) in [(200_000, 70_000), (0, 200_000), (270_000, 30_000)] {
        write(&file, offset, len);
    }
    assert_eq!(check(&file, SIZE_BYTES), SIZE_BYTES, "{what}: not everything is kept");
    drop(file);
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(check(&file, SIZE_BYTES), SIZE_BYTES, "{what}: not everything is found again");
    assert_eq!(file.damaged_bytes(), 0, "{what}");
    found_bytes
}

#[test]
fn no_damaged_byte_is_ever_given() {
    let directory = tempfile::tempdir().unwrap();
    let (index, data) = prepared(directory.path());
    let whole_bytes = survives(&index, &data, "nothing damaged");
    assert_eq!(whole_bytes, 9010);
    for at in 0..index.len() {
        let mut damaged = index.clone();
        damaged[at] ^= [0x01, 0x80, 0xff][at % 3];
        let found_bytes = survives(&damaged, &data, &format!("byte {at} of the index"));
        assert!(found_bytes < whole_bytes, "byte {at} of the index does not count");
    }
    for at in (0..data.len()).step_by(7).chain(0..64) {
        let mut damaged = data.clone();
        damaged[at] ^= [0x01, 0x80, 0xff][at % 3];
        let found_bytes = survives(&index, &damaged, &format!("byte {at} of the data"));
        let lost_bytes_most = if at < 32 { whole_bytes } else { SPARSE_BLOCK_BYTES };
        let lost_bytes = whole_bytes - found_bytes;
        assert!((1..=lost_bytes_most).contains(&lost_bytes), "byte {at} of the data costs {lost_bytes}");
    }
}

#[test]
fn an_index_or_data_of_any_length_is_good_for_a_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let (index, data) = prepared(directory.path());
    let mut found_before = 0;
    for len in 0..index.len() {
        let found_bytes = survives(&index[..len], &data, &format!("{len} bytes of the index"));
        assert!(found_bytes >= found_before, "a longer index says less");
        found_before = found_bytes;
        // As a crash leaves it: a length without bytes.
        if len % 16 == 0 {
            let zeros = [&index[..len], &vec![0; index.len() - len]].concat();
            assert!(survives(&zeros, &data, &format!("{len} bytes and zeros")) >= found_bytes);
        }
    }
    for len in (0..data.len()).step_by(11).chain(0..40) {
        survives(&index, &data[..len], &format!("{len} bytes of the data"));
        let zeros = [&data[..len], &vec![0; data.len() - len]].concat();
        survives(&index, &zeros, &format!("{len} bytes of the data and zeros"));
    }
}

#[test]
fn records_of_lost_bytes_are_gone_before_others_come_to_their_place() {
    let directory = tempfile::tempdir().unwrap();
    prepared(directory.path());
    let names = files_in(directory.path());
    // A crash has kept the index and the first two extents.
    File::options().write(true).open(&names[0]).unwrap().set_len(32 + 2000 + 100).unwrap();
    let before = fs::metadata(&names[1]).unwrap();
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(
        file.present(),
        RangeSet::from_iter([ByteRange::new(100, 2100)]),
        "without a look at the bytes"
    );
    let after = fs::metadata(&names[1]).unwrap();
    assert!(after.ino() != before.ino() && after.len() < before.len(), "the index is another one");
    assert_eq!(write(&file, 100_000, 10_000), 10_000);
    drop(file);
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(check(&file, SIZE_BYTES), 12_000);
    assert_eq!((file.present().len(), file.damaged_bytes()), (12_000, 0));
}

#[test]
fn files_of_another_version_or_name_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let ours = cache.file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(write(&ours, 0, 1000), 1000);
    drop(ours);
    let before = files_in(directory.path());
    // The same size, and a name that is that of the first version.
    let others = cache.file(&key("g", SIZE_BYTES)).unwrap();
    assert!(others.present().is_empty());
    assert_eq!(write(&others, 5000, 10), 10);
    drop((others, cache));
    let after = files_in(directory.path());
    let fresh: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(fresh.len(), 2);
    for (from, to) in before.iter().zip(&fresh) {
        fs::rename(from, to).unwrap();
    }
    let others = open(directory.path()).file(&key("g", SIZE_BYTES)).unwrap();
    assert!(others.present().is_empty());
    // The index of one beside the data of the other.
    drop(others);
    let ours = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(write(&ours, 0, 1000), 1000);
    drop(ours);
    fs::copy(fresh[0], files_in(directory.path()).into_iter().find(|path| before[0] == *path).unwrap())
        .unwrap();
    let ours = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(check(&ours, SIZE_BYTES), 0);
}

#[test]
fn small_neighbours_become_one_extent_and_damage_among_them_stays_small() {
    let directory = tempfile::tempdir().unwrap();
    let key = key("f", 1_000_000);
    let file = open(directory.path()).file(&key).unwrap();
    for number in 0..8000 {
        assert_eq!(write(&file, 100 * number, 100), 100);
    }
    drop(file);
    let names = files_in(directory.path());
    let before = fs::metadata(&names[1]).unwrap().len();
    let data = File::options().write(true).open(&names[0]).unwrap();
    data.write_all_at(b"!", 500_000).unwrap();
    let file = open(directory.path()).file(&key).unwrap();
    let after = fs::metadata(&names[1]).unwrap().len();
    assert!(after < before / 100, "{before} bytes of index became {after}");
    let lost_bytes = 800_000 - check(&file, 1_000_000);
    assert!((1..=100).contains(&lost_bytes), "{lost_bytes} bytes were lost");
    assert_eq!(file.damaged_bytes(), 0, "they went when the index was written anew");
    assert_eq!(write(&file, 0, 800_000), lost_bytes);
    drop(file);
    let file = open(directory.path()).file(&key).unwrap();
    assert_eq!(check(&file, 1_000_000), 800_000);
    assert_eq!(files_in(directory.path()).len(), 2, "nothing else is left behind");
}

#[test]
fn what_is_used_least_goes_first_and_what_is_open_stays() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SparseLimits { bytes_max: 1 << 20, ..SparseLimits::default() };
    let cache = SparseCache::open(directory.path(), limits).unwrap();
    let open_file = cache.file(&key("open", SIZE_BYTES)).unwrap();
    write(&open_file, 0, 100_000);
    let on_disk =
        || -> u64 { files_in(directory.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum() };
    let (mut kept, hour) = (Vec::new(), Duration::from_secs(3600));
    for number in 0..30 {
        let before = files_in(directory.path());
        let file = cache.file(&key(&format!("f{number}"), SIZE_BYTES)).unwrap();
        assert_eq!(write(&file, 0, 100_000), 100_000, "file {number}");
        assert!(on_disk() <= limits.bytes_max, "{} bytes", on_disk());
        drop(file);
        let fresh: Vec<_> =
            files_in(directory.path()).into_iter().filter(|path| !before.contains(path)).collect();
        // Even numbers are used later than odd ones.
        let used = SystemTime::now() - hour * 100 + hour * (number + 50 * (1 - number % 2));
        for path in fresh.iter().filter(|path| path.extension().unwrap() == "index") {
            File::options().write(true).open(path).unwrap().set_modified(used).unwrap();
        }
        kept.push(key(&format!("f{number}"), SIZE_BYTES));
    }
    assert_eq!(check(&open_file, SIZE_BYTES), 100_000, "it is open");
    assert!(cache.used_bytes() <= limits.bytes_max);
    drop(cache);
    let cache = open(directory.path());
    let found: Vec<usize> =
        (0..30).filter(|number| !cache.file(&kept[*number]).unwrap().present().is_empty()).collect();
    // The last one was just written when room was needed for it; of the others the even ones are used last.
    let even = found.iter().filter(|number| *number % 2 == 0).count();
    assert!(found.len() >= 6 && even + 1 >= found.len(), "{found:?}");
}

#[test]
fn a_full_budget_is_no_failure_and_ends_when_files_are_closed() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SparseLimits { bytes_max: 300_000, files_max: 3 };
    let cache = SparseCache::open(directory.path(), limits).unwrap();
    let first = cache.file(&key("a", SIZE_BYTES)).unwrap();
    let second = cache.file(&key("b", SIZE_BYTES)).unwrap();
    assert_eq!(write(&first, 0, 150_000), 150_000);
    assert_eq!(write(&second, 0, 200_000), 0, "there is no room");
    assert_eq!(write(&second, 0, 100_000), 100_000, "a smaller one fits");
    assert_eq!(write(&second, 100_000, 100_000), 0);
    drop(first);
    assert_eq!(write(&second, 100_000, 100_000), 100_000);
    assert_eq!(check(&second, SIZE_BYTES), 200_000);
    // Of files that are open no more than the limit are begun.
    let more: Vec<_> = ["c", "d", "e"].map(|name| cache.file(&key(name, SIZE_BYTES)).unwrap()).into();
    assert_eq!(more.iter().filter(|file| file.is_writable()).count(), 2);
    assert_eq!(write(&more[2], 0, 10), 0);
    assert_eq!(files_in(directory.path()).len(), 6);
}

#[test]
fn a_clock_that_jumps_removes_nothing_that_is_needed_and_keeps_nothing_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SparseLimits { bytes_max: 400_000, ..SparseLimits::default() };
    let cache = SparseCache::open(directory.path(), limits).unwrap();
    for name in ["future", "past"] {
        write(&cache.file(&key(name, SIZE_BYTES)).unwrap(), 0, 100_000);
    }
    drop(cache);
    let far = [
        SystemTime::now() + Duration::from_secs(3_000_000_000),
        SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 31),
    ];
    let names = files_in(directory.path());
    let indices: Vec<_> = names.iter().filter(|path| path.extension().unwrap() == "index").collect();
    for (path, time) in indices.iter().zip(far) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let cache = SparseCache::open(directory.path(), limits).unwrap();
    let noted = fs::metadata(indices[0]).unwrap().modified().unwrap();
    assert!(noted <= SystemTime::now() + Duration::from_secs(1), "a use in the future is one of now");
    for number in 0..10 {
        let file = cache.file(&key(&format!("f{number}"), SIZE_BYTES)).unwrap();
        assert_eq!(write(&file, 0, 100_000), 100_000);
    }
    assert!(indices.iter().all(|path| !path.exists()), "neither stays for ever");
}

#[test]
fn a_full_disk_is_told_once_and_what_is_there_is_read() {
    use rustix::mount::{MountFlags, mount};
    with_own_mounts(|| {
        let directory = tempfile::tempdir().unwrap();
        mount("none", directory.path(), "tmpfs", MountFlags::empty(), Some(c"size=512k,mode=700")).unwrap();
        let size_bytes = 10_000_000;
        let file = open(directory.path()).file(&key("f", size_bytes)).unwrap();
        let (mut kept_bytes, mut failures) = (0, 0);
        for number in 0..2000 {
            match file.write(number * 3000, content(number * 3000, 1000)) {
                Ok(bytes) => kept_bytes += bytes,
                Err(error) => {
                    failures += 1;
                    assert!(error.is_no_space(), "{error}");
                    assert!(error.to_string().contains("reading goes on without it"), "{error}");
                }
            }
        }
        assert_eq!((failures, file.is_writable()), (1, false));
        assert!((300_000..520_000).contains(&kept_bytes), "{kept_bytes} bytes");
        assert_eq!(check(&file, size_bytes), kept_bytes);
        // Another file cannot even be begun, or fails at its first bytes.
        let other = open(directory.path()).file(&key("g", size_bytes));
        assert!(other.is_err() || other.unwrap().write(0, content(0, 100_000)).is_err());
        drop(file);
        let file = open(directory.path()).file(&key("f", size_bytes)).unwrap();
        assert_eq!(check(&file, size_bytes), kept_bytes, "a full disk has cost nothing that was there");
        file.discard().unwrap();
        drop(file);
        let file = open(directory.path()).file(&key("f", size_bytes)).unwrap();
        assert_eq!(write(&file, 0, 100_000), 100_000, "there is room again");
    });
}

#[test]
fn a_directory_of_others_is_refused() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/b/cache/");
    open(&path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    let file = open(&path).file(&key("f", 10)).unwrap();
    assert_eq!(write(&file, 0, 10), 10);
    assert!(files_in(&path).iter().all(|path| fs::metadata(path).unwrap().mode() & 0o777 == 0o600));
    let refused = |why: &str| {
        let error = SparseCache::open(&path, SparseLimits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains(why), "{error}");
    };
    for mode in [0o702, 0o720, 0o777, 0o1777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        refused("other users may write to it");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    open(&path);
    chown(&path, Some(4242), None).unwrap();
    refused("it belongs to another user");
    chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    for link in ["link", "link/"] {
        let _ = symlink(&path, above.path().join("link"));
        assert!(SparseCache::open(&above.path().join(link), SparseLimits::default()).is_err());
    }
    fs::write(above.path().join("file"), "").unwrap();
    assert!(SparseCache::open(&above.path().join("file"), SparseLimits::default()).is_err());
}

#[test]
fn links_pipes_and_foreign_files_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    prepared(directory.path());
    let victim = directory.path().join("victim");
    for position in [0, 1] {
        for trick in 0..5 {
            let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
            write(&file, 0, 100);
            drop(file);
            let names = files_in(directory.path());
            let name = names.iter().filter(|path| path.extension().is_some()).nth(position).unwrap();
            fs::write(&victim, "do not touch").unwrap();
            fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
            match trick {
                0 => {
                    fs::remove_file(name).unwrap();
                    symlink(&victim, name).unwrap();
                }
                1 => {
                    fs::remove_file(name).unwrap();
                    fs::hard_link(&victim, name).unwrap();
                }
                2 => {
                    fs::remove_file(name).unwrap();
                    let (mode, kind) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
                    rustix::fs::mknodat(rustix::fs::CWD, name, kind, mode, 0).unwrap();
                }
                3 => fs::set_permissions(name, Permissions::from_mode(0o666)).unwrap(),
                _ => chown(name, Some(4242), None).unwrap(),
            }
            let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
            assert!(file.present().is_empty(), "trick {trick} with {name:?}");
            assert_eq!(write(&file, 0, 1000), 1000);
            assert_eq!(check(&file, SIZE_BYTES), 1000);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "do not touch");
        }
    }
    // A directory in the place of a file is a failure that is told.
    for position in [0, 1] {
        let names = files_in(directory.path());
        let name = names.iter().filter(|path| path.extension().is_some()).nth(position).unwrap();
        fs::remove_file(name).unwrap();
        fs::create_dir(name).unwrap();
        assert!(open(directory.path()).file(&key("f", SIZE_BYTES)).is_err());
        fs::remove_dir(name).unwrap();
        drop(open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap());
    }
}

#[test]
fn other_names_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SparseLimits { bytes_max: 200_000, ..SparseLimits::default() };
    let others =
        ["notes.txt", "abcd.data", &format!("{}.dat", "0".repeat(64)), &format!("{}.data", "A".repeat(64))];
    for name in others {
        fs::write(directory.path().join(name), vec![7; 300_000]).unwrap();
    }
    let orphan = directory.path().join(format!("{}.new", "0".repeat(64)));
    fs::write(&orphan, vec![7; 300_000]).unwrap();
    let cache = SparseCache::open(directory.path(), limits).unwrap();
    assert!(!orphan.exists(), "a file of the cache that nothing belongs to is the oldest");
    assert_eq!(write(&cache.file(&key("f", SIZE_BYTES)).unwrap(), 0, 100_000), 100_000);
    assert!(others.iter().all(|name| fs::metadata(directory.path().join(name)).unwrap().len() == 300_000));
}

#[test]
fn a_version_is_one_file_in_a_process_and_its_directory_one_cache() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (open(directory.path()), open(directory.path()));
    let (one, other) =
        (first.file(&key("f", SIZE_BYTES)).unwrap(), second.file(&key("f", SIZE_BYTES)).unwrap());
    assert_eq!(write(&one, 0, 1000), 1000);
    assert_eq!(write(&other, 500, 1000), 500, "it knows what the other has written");
    assert_eq!(check(&one, SIZE_BYTES), 1500);
    // Threads read while one writes.
    let page_bytes = READ_PAGE_BYTES;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    check(&other, SIZE_BYTES);
                }
            });
        }
        for page in 0..SIZE_BYTES / page_bytes {
            write(&one, page * page_bytes, page_bytes);
        }
    });
    assert_eq!(check(&other, SIZE_BYTES), SIZE_BYTES / page_bytes * page_bytes);
}

#[test]
fn what_is_discarded_is_gone_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let file = cache.file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(write(&file, 0, 1000), 1000);
    file.discard().unwrap();
    assert!(file.present().is_empty() && files_in(directory.path()).is_empty());
    assert_eq!((write(&file, 0, 1000), file.is_writable()), (0, false));
    assert_eq!(check(&file, SIZE_BYTES), 0);
    drop(file);
    let file = cache.file(&key("f", SIZE_BYTES)).unwrap();
    assert_eq!(write(&file, 0, 1000), 1000);
}

#[test]
fn bytes_outside_of_the_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(directory.path()).file(&key("f", 1000)).unwrap();
    for (offset, len) in [(1000, 1), (999, 2), (u64::MAX, 1), (u64::MAX - 1, 5)] {
        assert_eq!(file.write(offset, &vec![0; len]).unwrap_err().kind(), ErrorKind::Usage);
        assert!(file.read(offset, &mut vec![0; len]).is_empty());
    }
    assert_eq!(file.write(1000, &[]).unwrap(), 0);
    assert_eq!(write(&file, 0, 1000), 1000);
    let mut buffer = [0; 100];
    assert_eq!(file.read(950, &mut buffer), [ByteRange::new(950, 1000)]);
    assert_eq!(buffer[..50], *content(950, 50));
}
