//! Servers that are killed or stopped in the middle of copies: the next COPY goes on, and nothing half-written is seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::asking::{Answered, Asking, Home, authority};
use crate::support::object::{Answer, Then};
use crate::support::relay::{Relay, Ways};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{DEADLINE, MIB, assert_same, content, is_long_run, until};

/// What may come again of a file that a killed server was fetching.
const AGAIN_BYTES: usize = 64 * MIB;

/// Far enough that doing all of it again is more than may come again.
const KILLED_AT: u64 = 96 * MIB as u64;

const LARGE: usize = 160 * MIB;

/// A source of a large file, and a relay in front of it that counts what comes of it.
struct Counted {
    home: Home,
    relay: Relay,
    source: String,
    bytes: Arc<Vec<u8>>,
}

impl Counted {
    fn new(seed: u64) -> Counted {
        let (home, bytes) = (Home::new(), content(seed, LARGE));
        home.put("f", &bytes);
        let relay = Relay::to(home.port(), Ways::default());
        let source = format!("Source: http://{}/f", authority(&relay.url("http", "f")));
        Counted { home, relay, source, bytes }
    }

    #[track_caller]
    fn came_with_little_again(&self, destination: &Home) {
        assert_same(&fs::read(destination.exported("f")).unwrap(), &self.bytes);
        assert_eq!((destination.visible().len(), destination.hidden()), (1, Vec::new()));
        let came = self.relay.bytes() as usize;
        assert!(came < LARGE + AGAIN_BYTES, "{came} bytes came of {LARGE}");
    }
}

/// Waits until much of a file is there.
fn much_is_there(destination: &Home, asked: &Asking) {
    until("much of it is there", || {
        assert!(!asked.has_ended(), "it ended too early");
        destination.hidden_bytes() >= KILLED_AT
    });
    assert_eq!(destination.visible(), [""; 0], "it is not whole");
}

#[test]
fn a_pull_goes_on_where_a_killed_destination_was() {
    let source = Counted::new(9501);
    let (destination, _source) = (Home::new(), source.home.start(&["--limit-rate", "100MB/s"]));
    let mut server = destination.start(&[]);
    let asked = Asking::copy(&destination.url("f"), &[&source.source]);
    much_is_there(&destination, &asked);
    server.kill();
    assert_eq!(asked.end().last_line(), "", "it could not tell an end");
    assert_eq!(destination.visible(), [""; 0]);
    let _server = destination.start(&[]);
    Asking::copy(&destination.url("f"), &[&source.source]).end().succeeds();
    source.came_with_little_again(&destination);
}

#[test]
fn a_pull_goes_on_where_a_killed_source_was() {
    let source = Counted::new(9502);
    let destination = Home::new();
    let _server = destination.start(&[]);
    let mut first = source.home.start(&["--limit-rate", "100MB/s"]);
    let asked = Asking::copy(&destination.url("f"), &[&source.source]);
    much_is_there(&destination, &asked);
    first.kill();
    let away = destination.hidden_bytes();
    let _second = source.home.start(&[]);
    // It may have given the source up before that was there again.
    if !asked.end().is_success() {
        assert!(destination.hidden_bytes() >= away, "what came is kept for the next copy");
        Asking::copy(&destination.url("f"), &[&source.source]).end().succeeds();
    }
    source.came_with_little_again(&destination);
}

#[test]
fn a_pull_goes_on_where_a_stopped_destination_was() {
    let source = Counted::new(9503);
    let (destination, _source) = (Home::new(), source.home.start(&["--limit-rate", "100MB/s"]));
    let server = destination.start(&[]);
    let asked = Asking::copy(&destination.url("f"), &[&source.source]);
    much_is_there(&destination, &asked);
    assert_eq!(server.stop("TERM").code(), Some(0));
    asked.end().fails_late(&["stopping"]);
    assert!(destination.hidden_bytes() >= KILLED_AT, "what came is kept for the next copy");
    let _server = destination.start(&[]);
    Asking::copy(&destination.url("f"), &[&source.source]).end().succeeds();
    source.came_with_little_again(&destination);
}

#[test]
fn a_stop_before_the_first_marker_is_a_status() {
    let (destination, rogue) = (Home::new(), silent());
    let server = destination.start(&[]);
    let asked = Asking::copy(&destination.url("f"), &[&format!("Source: {}", rogue.url("f"))]);
    until("the source is asked", || !rogue.requests().is_empty());
    assert_eq!(server.stop("TERM").code(), Some(0));
    asked.end().refused(503, &["stopping"]);
    assert_eq!((destination.visible(), destination.hidden()), (Vec::new(), Vec::new()));
}

/// A source that never answers.
fn silent() -> Rogue {
    Rogue::start(|_| Answer::raw(Vec::new()).then(Then::Stall))
}

/// Files in a directory, and what was removed from it, that a server has open.
pub(super) fn open_files(server: &Server, directory: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    // Some are closed meanwhile.
    let paths = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    paths.filter(|path| path.starts_with(directory) && !path.is_dir()).collect()
}

/// Numbers for the moments of kills, always the same.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn copies_whose_servers_are_killed_at_random_arrive_without_a_wrong_byte() {
    const WORKERS: usize = 4;
    // In the long run each is so large that all of it is more than may come again.
    let (copies, size) = if is_long_run() { (100, 100 * MIB) } else { (25, 40_000_000) };
    let (source, destination) = (Home::new(), Home::new());
    let relay = Relay::to(source.port(), Ways::default());
    let bytes = content(9505, size + copies);
    // Each file has other bytes at each place.
    for number in 0..copies {
        source.put(&format!("f{number}"), &bytes[number..number + size]);
    }
    let (start_source, start_destination) =
        (|| source.start(&["--limit-rate", "120MB/s"]), || destination.start(&[]));
    let servers = Mutex::new((start_source(), start_destination()));
    let [next, done, failed, broken_off] = [const { AtomicUsize::new(0) }; 4];
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let attempt = |number: usize| -> Option<Answered> {
        let source = format!("Source: {}", relay.url("http", &format!("f{number}")));
        // A server that is away refuses the connection.
        let url = destination.url(&format!("f{number}"));
        let is_there = std::net::TcpStream::connect(authority(&url)).is_ok();
        let end = || std::panic::catch_unwind(|| Asking::copy(&url, &[&source]).end()).ok();
        let ended = is_there.then(end).flatten();
        if is_there && !ended.as_ref().is_some_and(Answered::is_success) {
            broken_off.fetch_add(1, Relaxed);
        }
        ended
    };
    let kills = std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= copies {
                        return;
                    }
                    while !attempt(number).is_some_and(|answered| answered.is_success()) {
                        failed.fetch_add(1, Relaxed);
                        assert!(began.elapsed() < 4 * DEADLINE, "f{number} does not arrive");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for name in destination.visible() {
                    let found = fs::metadata(destination.exported(&name)).unwrap().len();
                    assert_eq!(found, size as u64, "{name} is seen before it is whole");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let (mut kills, mut state) = (0, 0x9E37_79B9_7F4A_7C15);
        while done.load(Relaxed) < copies && began.elapsed() < 4 * DEADLINE {
            std::thread::sleep(Duration::from_millis(700 + random(&mut state) % 900));
            let mut servers = servers.lock().unwrap();
            if random(&mut state).is_multiple_of(2) {
                servers.0.kill();
                servers.0 = start_source();
            } else {
                servers.1.kill();
                servers.1 = start_destination();
            }
            kills += 1;
        }
        is_over.store(true, Relaxed);
        kills
    });
    assert!(kills > 3 && failed.load(Relaxed) > 3, "{kills} kills broke {failed:?} copies off");
    // A source that dies costs what was on the way to the copies that go on; a destination, what a journal did not tell of. On
    // average that is far less than it may be; four times as much comes where a destination forgets what it had.
    let again = (relay.bytes() as usize).saturating_sub(copies * size);
    let times = broken_off.load(Relaxed) + kills;
    assert!(
        again < times * AGAIN_BYTES.min(size) / 4,
        "{again} bytes came again at {kills} kills, {broken_off:?} breaks"
    );
    assert_eq!(destination.visible().len(), copies);
    assert_eq!(destination.hidden(), Vec::<std::path::PathBuf>::new());
    let servers = servers.into_inner().unwrap();
    for (server, home) in [(&servers.0, &source), (&servers.1, &destination)] {
        until("no file is open any longer", || open_files(server, &home.exported("")).is_empty());
    }
    for number in 0..copies {
        assert_same(
            &fs::read(destination.exported(&format!("f{number}"))).unwrap(),
            &bytes[number..number + size],
        );
    }
}
