//! The disk cache of what is read: what is there is not fetched again, and is never wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use gridlane_core::ByteRange;
use gridlane_engine::reading::{Policy, ReadCache, ReadOptions, Settings, SparseCache, SparseLimits};

use super::{Opened, large, open_with, options, scattered};
use crate::support::client::{gridlane, run};
use crate::support::object::Object;
use crate::support::rogue::{Request, Rogue};
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, content, until};

fn cached_in(directory: &Path, bytes_max: u64, options: ReadOptions) -> ReadOptions {
    let limits = SparseLimits { bytes_max, ..SparseLimits::default() };
    let cache = SparseCache::open(directory, limits).unwrap();
    ReadOptions { cache: Some(ReadCache { cache, user: String::new() }), ..options }
}

/// Opens what the URLs name, with a cache in `directory`.
fn open(urls: &[String], directory: &Path, policy: Policy) -> Opened {
    open_with(urls, None, cached_in(directory, 1 << 30, options(policy))).unwrap()
}

/// Closes a file when the disk has what was read.
fn close(opened: Opened) {
    opened.runtime.block_on(opened.file.settle(crate::support::SOON));
}

/// A server over HTTP with one file.
fn server_of(bytes: &Arc<Vec<u8>>) -> Rogue {
    let object = Object::new(bytes);
    Rogue::start(move |request| object.answer(request))
}

/// Ranges of data that were asked for, but that of the first byte, with which the version is asked for.
fn data_asked(requests: &[Request]) -> usize {
    let is_data = |request: &&Request| request.method == "GET" && request.range != Some((0, Some(0)));
    requests.iter().filter(is_data).count()
}

fn long_ago(path: &Path) {
    let when = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(when).unwrap();
}

/// The files of a cache with an ending.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

#[test]
fn a_second_reader_asks_for_no_data_over_any_protocol() {
    let (scratch, bytes) = (Scratch::new(), large(5301));
    let export = scratch.dir("export");
    fs::write(export.join("f"), bytes.as_slice()).unwrap();
    long_ago(&export.join("f"));
    let (server, xrootd) = (Server::start(&export), Xrootd::start());
    long_ago(&xrootd.put("f", &bytes));
    let rogue = server_of(&bytes);
    let urls = [server.url("f"), server.url_over("root", "f"), xrootd.url("f"), rogue.url("f")];
    for (nth, url) in urls.iter().enumerate() {
        let directory = scratch.path().join(format!("cache{nth}"));
        let ranges = scattered(5302, bytes.len(), 500, 3000);
        let policies = [Policy::Vector, Policy::Adaptive, Policy::Vector];
        for (run, policy) in policies.into_iter().enumerate() {
            let before = rogue.requests().len();
            let opened = open(std::slice::from_ref(url), &directory, policy);
            opened.check(&ranges, &bytes);
            ranges.iter().take(20).for_each(|range| opened.check(&[*range], &bytes));
            let explain = opened.explain();
            assert!(explain.cache.is_empty() && explain.failures == 0, "{url}\n{explain}");
            if run == 0 {
                assert!(explain.moved_in_all() > 500_000, "{url}\n{explain}");
            } else {
                assert!(explain.stored_bytes > 500_000, "{url}\n{explain}");
            }
            if run == 2 {
                assert!(explain.moved_in_all() <= 1, "{url}\n{explain}");
                assert_eq!(data_asked(&rogue.requests()[before..]), 0, "{url}");
            }
            close(opened);
        }
    }
}

#[test]
fn a_version_without_a_strong_name_is_not_cached_and_says_so() {
    let (scratch, bytes) = (Scratch::new(), content(5303, 3_000_000));
    let object = Object::new(&bytes);
    let rogue = Rogue::start(move |request| object.answer(request).without("ETag").without("Last-Modified"));
    let xrootd = Xrootd::start();
    xrootd.put("f", &bytes);
    for (url, words) in [(rogue.url("f"), "nothing tells one version"), (xrootd.url("f"), "the last minute")]
    {
        let directory = scratch.path().join("cache");
        for _ in 0..2 {
            let opened = open(std::slice::from_ref(&url), &directory, Policy::Vector);
            opened.check(&scattered(5304, bytes.len(), 100, 1500), &bytes);
            let explain = opened.explain();
            assert!(explain.to_string().contains(words), "{explain}");
            assert_eq!((explain.stored_bytes, explain.kept_bytes), (0, 0), "{explain}");
            close(opened);
        }
        assert!(files(&directory, "data").is_empty());
    }
}

#[test]
fn a_changed_file_is_never_mixed_with_what_it_was() {
    let scratch = Scratch::new();
    let (old, new) = (large(5305), large(5306));
    let objects = [Object::new(&old), Object::new(&new)];
    let now = Arc::new(AtomicUsize::new(0));
    let which = Arc::clone(&now);
    let rogue = Rogue::start(move |request| objects[which.load(Relaxed)].answer(request));
    let ranges = scattered(5307, old.len(), 300, 1500);
    for (nth, (version, bytes)) in [(0, &old), (1, &new), (0, &old), (1, &new)].into_iter().enumerate() {
        let is_again = nth >= 2;
        now.store(version, Relaxed);
        let opened = open(&[rogue.url("f")], &scratch.path().join("cache"), Policy::Vector);
        opened.check(&ranges, bytes);
        let explain = opened.explain();
        assert_eq!(explain.stored_bytes > 0, is_again, "{explain}");
        close(opened);
    }
}

#[test]
fn a_replica_cannot_put_bytes_under_the_name_of_another() {
    let scratch = Scratch::new();
    let (right, wrong) = (large(5308), large(5309));
    let (good, bad) = (
        server_of(&right),
        Rogue::start({
            // The same size, and the same ETag.
            let liar = Object { bytes: Arc::clone(&wrong), ..Object::new(&right) };
            move |request| liar.answer(request)
        }),
    );
    let directory = scratch.path().join("cache");
    let ranges = scattered(5310, right.len(), 2000, 1500);
    let opened = open(&[good.url("f"), bad.url("f")], &directory, Policy::Vector);
    until("both have sent something", || {
        let _ = opened.read(&ranges);
        data_asked(&good.requests()) > 0 && data_asked(&bad.requests()) > 0
    });
    close(opened);
    let opened = open(&[good.url("f")], &directory, Policy::Vector);
    opened.check(&ranges, &right);
    assert!(opened.explain().stored_bytes > 0, "{}", opened.explain());
    close(opened);
    let opened = open(&[good.url("f")], &directory, Policy::Vector);
    opened.check(&ranges, &right);
    close(opened);
}

#[test]
fn damage_on_the_disk_costs_a_request_and_no_wrong_byte() {
    let (scratch, bytes) = (Scratch::new(), large(5311));
    let (rogue, directory) = (server_of(&bytes), scratch.path().join("cache"));
    let ranges = scattered(5312, bytes.len(), 300, 1500);
    let read = |damaged: bool| {
        let before = rogue.requests().len();
        let opened = open(&[rogue.url("f")], &directory, Policy::Vector);
        opened.check(&ranges, &bytes);
        let explain = opened.explain();
        assert_eq!(explain.damaged_bytes > 0, damaged, "{explain}");
        close(opened);
        data_asked(&rogue.requests()[before..])
    };
    assert!(read(false) > 0);
    // A busy disk leaves pieces out.
    until("every piece is kept", || read(false) == 0);
    let path = files(&directory, "data").pop().unwrap();
    let mut data = fs::read(&path).unwrap();
    // A byte that is read: those of filled gaps are there as well.
    let long = ranges.iter().find(|range| range.len() > 1000).unwrap();
    let sought = &bytes[long.start() as usize..][..16];
    let place = data.windows(16).position(|window| window == sought).unwrap();
    data[place] ^= 1;
    fs::write(&path, data).unwrap();
    assert!((1..=2).contains(&read(true)), "one block, in which two ranges may be");
    assert_eq!(read(false), 0, "it was written again");
}

#[test]
fn a_full_cache_and_a_small_memory_slow_nothing() {
    let (scratch, bytes) = (Scratch::new(), large(5313));
    let rogue = server_of(&bytes);
    let whole = ByteRange::new(0, bytes.len() as u64);
    // No room, and then room for a part of it.
    for (nth, bytes_max) in [0, 4_000_000].into_iter().enumerate() {
        let directory = scratch.path().join(format!("small{nth}"));
        let options = cached_in(&directory, bytes_max, options(Policy::Vector));
        let opened = open_with(&[rogue.url("f")], None, options).unwrap();
        opened.check(&[whole], &bytes);
        opened.check(&scattered(5314, bytes.len(), 300, 1500), &bytes);
        assert!(nth > 0 || opened.explain().kept_bytes == 0);
        close(opened);
        let used: u64 =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(used <= bytes_max, "{used} bytes are there");
    }
    // What memory has no room for is on the disk, also if another reader of this process has put it there.
    let settings = Settings { memory_bytes: 2_000_000, ..options(Policy::Vector).settings };
    let small = || ReadOptions { settings: settings.clone(), ..options(Policy::Vector) };
    let open_small = || {
        let cached = cached_in(&scratch.path().join("large"), 1 << 30, small());
        open_with(&[rogue.url("f")], None, cached).unwrap()
    };
    let readers = [open_small(), open_small()];
    for opened in &readers {
        opened.check(&[whole], &bytes);
        opened.runtime.block_on(opened.file.settle(crate::support::SOON));
        let moved = opened.explain().moved_in_all();
        opened.check(&scattered(5315, bytes.len(), 300, 1500), &bytes);
        let explain = opened.explain();
        assert!(explain.evicted_bytes > 0 && explain.stored_bytes > 0, "{explain}");
        assert!(explain.moved_in_all() == moved, "{moved}\n{explain}");
    }
    readers.into_iter().for_each(close);
}

/// A trace of reads at places by lot.
fn trace(scratch: &Scratch, size: u64, count: u64) -> PathBuf {
    let lines = (0..count).map(|nth| format!("{},read,{},1000\n", nth / 50, nth * 7_919_993 % (size - 1000)));
    scratch.file("trace.csv", format!("request,op,offset,length\n{}", lines.collect::<String>()).as_bytes())
}

#[test]
fn a_killed_reader_leaves_what_it_had_and_nothing_wrong() {
    let (scratch, bytes) = (Scratch::new(), large(5316));
    let (rogue, directory) = (server_of(&bytes), scratch.path().join("cache"));
    let path = trace(&scratch, bytes.len() as u64, 4000);
    let command = |policy: &str| {
        let mut command = gridlane();
        command.arg("read").arg(&path).arg(rogue.url("f")).args(["--policy", policy, "--json", "--checksum"]);
        command.arg("--cache").arg(&directory);
        command
    };
    let kept = || match directory.exists() {
        true => files(&directory, "data")
            .iter()
            .map(|path| fs::metadata(path).map_or(0, |found| found.len()))
            .sum(),
        false => 0_u64,
    };
    for _ in 0..3 {
        let before = kept();
        let mut child = command("direct");
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        until("it has kept something, or is done", || {
            kept() > before + 200_000 || child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        child.wait().unwrap();
    }
    let read = |policy| run(command(policy)).ok().event("run");
    let [first, second] = [read("vector"), read("vector")];
    assert!(first["stored_bytes"].as_u64().unwrap() > 200_000, "{first:#}");
    assert_eq!(first["adler32"], second["adler32"]);
    assert!(second["moved_bytes"].as_u64().unwrap() <= 1, "{second:#}");
    let wanted: Vec<u8> = (0..4000_usize)
        .flat_map(|nth| &bytes[nth * 7_919_993 % (bytes.len() - 1000)..][..1000])
        .copied()
        .collect();
    let right = crate::support::checksum(gridlane_core::ChecksumKind::Adler32, &wanted).hex();
    assert_eq!(first["adler32"], right);
    // Two at once: one of them writes.
    let other = large(5317);
    let rogue = server_of(&other);
    let both = [0, 1].map(|_| {
        let mut command = gridlane();
        command
            .arg("read")
            .arg(&path)
            .arg(rogue.url("g"))
            .arg("--cache")
            .arg(&directory)
            .args(["--json", "--checksum"]);
        std::thread::spawn(move || run(command).ok().event("run"))
    });
    let [one, two] = both.map(|thread| thread.join().unwrap());
    assert_eq!(one["adler32"], two["adler32"]);
}

#[test]
fn ranges_of_cat_come_from_the_disk() {
    let (scratch, bytes) = (Scratch::new(), large(5318));
    let (rogue, directory) = (server_of(&bytes), scratch.path().join("cache"));
    let cat = |more: &[&str]| {
        let mut command = gridlane();
        command.args(["cat", &rogue.url("f")]).args(more).arg("--cache").arg(&directory);
        run(command)
    };
    assert!(cat(&["--range", "5000000-5999999"]).ok().stdout == bytes[5_000_000..6_000_000]);
    let before = rogue.requests().len();
    assert!(cat(&["--range", "5000100-5000199"]).ok().stdout == bytes[5_000_100..5_000_200]);
    let asked = rogue.requests()[before..].to_vec();
    let touches =
        |request: &Request| request.range.is_some_and(|(first, _)| (5_000_000..6_000_000).contains(&first));
    assert!(!asked.iter().any(touches));
    cat(&[]).exits(2).says(&["only ranges", "--range"]);
    fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    cat(&["--range", "0-1"]).says(&["other users may write to it"]);
}
