//! One file from one server.

use std::fs;
use std::time::{Duration, Instant};

use super::{random, server_with};
use crate::support::client::{Running, cp, cp_r, gridlane, run};
use crate::support::relay::{Relay, Ways};
use crate::support::xrootd::Xrootd;
use crate::support::{
    MIB, Scratch, assert_copied, assert_same, content, is_long_run, journal_of, occupied_bytes, part_of,
    until,
};

#[test]
fn files_of_all_sizes_arrive_and_are_compared() {
    let server = Xrootd::start();
    let scratch = Scratch::new();
    for size in [0, 1, 4095, 4096, 4097, 1_000_000, 8 * MIB + 1] {
        let bytes = random(1, size);
        // A name for each: the server keeps a checksum for as long as the file's time is of the same second.
        let name = size.to_string();
        server.put(&name, &bytes);
        let target = scratch.join(&name);
        let outcome = run(cp(server.url(&name), &target)).ok().verified(true);
        assert_copied(&target, &bytes);
        assert_eq!(outcome.number("fetched_bytes"), size as u64);
    }
}

#[test]
fn names_are_taken_as_they_are() {
    let server = Xrootd::start();
    let scratch = Scratch::new();
    for (number, name) in ["a b", "per%20cent", "ümläut", "+plus&=", "deep/er/f"].iter().enumerate() {
        server.put(name, name.as_bytes());
        let target = scratch.join(number.to_string());
        run(cp(server.url(name), &target)).ok();
        assert_copied(&target, name.as_bytes());
    }
}

#[test]
fn a_large_file_arrives_and_is_read_once() {
    let bytes = random(2, 200 * MIB);
    let server = server_with(&bytes);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("extra_bytes") <= 16 * MIB as u64, "{}", outcome.describe());
}

#[test]
fn a_large_file_goes_nowhere() {
    let server = Xrootd::start();
    let path = server.put("f", b"");
    // More than 32 bits say takes half a minute of processor time, which `make test-long` has.
    let size = if is_long_run() { 4_u64 << 30 } else { 0 } + 250_000_005;
    fs::File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    // The server's checksum of it would take longer than the copy.
    let mut command = cp(server.url("f"), "/dev/null");
    command.args(["--timeout", "50"]);
    let outcome = Running::start(command).wait_within(std::time::Duration::from_secs(300)).ok();
    assert_eq!(outcome.number("bytes"), size);
}

#[test]
fn streams_are_connections() {
    let bytes = random(3, 64 * MIB);
    let server = server_with(&bytes);
    let relay = Relay::to(server.port(), Ways { rate: 16_000_000, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp(relay.url("root", "f"), &target);
    command.args(["--streams", "4"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    assert_eq!(outcome.source(&relay.url("root", "f"))["connections"], 4, "{}", outcome.describe());
    // One more may ask for the checksum.
    assert!((4..=5).contains(&relay.connections()), "{} connections", relay.connections());
    // 64 MiB at 16 MB/s on each of four: a second; on one it would be four.
    let seconds = outcome.summary()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.8, "faster than the limits: {seconds:.2} s");
}

#[test]
fn a_pipe_gets_it_in_order() {
    let bytes = random(4, 24 * MIB);
    let server = server_with(&bytes);
    let outcome = run(cp(server.url("f"), "-")).ok();
    assert_same(&outcome.stdout, &bytes);
}

#[test]
fn what_was_verified_is_not_fetched_again_after_a_kill() {
    let size = 224 * MIB;
    let bytes = content(905, size);
    let server = server_with(&bytes);
    let most_of_it = 192 * MIB as u64;
    let relay =
        Relay::to(server.port(), Ways { rate: 150_000_000, holds_after: most_of_it, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let copy = Running::start(cp(relay.url("root", "f"), &target));
    until("most of it is sent", || relay.bytes() >= most_of_it && journal_of(&target).exists());
    copy.kill();
    relay.go_on();
    assert!(!target.exists() && part_of(&target).exists());
    let before = relay.bytes();
    // With one stream: of several, one that asks for the end of another's part is closed with bytes in it that are in no count.
    let mut again = cp(relay.url("root", "f"), &target);
    again.args(["--streams", "1"]);
    let outcome = run(again).ok().verified(true);
    assert_copied(&target, &bytes);
    let resumed = outcome.number("resumed_bytes");
    // At most 64 MiB are not in the journal; 40 MiB may have been in flight.
    assert!(resumed + (64 + 40) * MIB as u64 >= before, "only {resumed} of {before} bytes were kept");
    // Checksums of pages are a thousandth.
    let again = relay.bytes() - before;
    let most = (size as u64 - resumed) * 1001 / 1000 + outcome.number("extra_bytes") + MIB as u64 / 16;
    assert!(again <= most, "{again} bytes were sent where {most} were missing");
}

#[test]
fn a_connection_has_no_more_requests_than_the_server_takes_at_once() {
    let bytes = content(906, 50 * MIB);
    let server = server_with(&bytes);
    // So far and so slow that there are several connections, and none has all of its first request, of a MiB, when the rest is held.
    let ways = Ways {
        rate: 1_000_000,
        delay: Duration::from_millis(150),
        holds_after: 4_000_000,
        ..Ways::default()
    };
    let relay = Relay::to(server.port(), ways);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let copy = Running::start(cp(relay.url("root", "f"), &target));
    until("no more is passed on", || relay.bytes() >= 4_000_000);
    let held = Instant::now();
    until("it could ask for more", || held.elapsed() > Duration::from_millis(300));
    // XRootD's maxPio. One connection is not a lane's: the checksum is asked for on it.
    let (reads, most) = (relay.reads(), 4 * relay.connections());
    copy.kill();
    assert!(
        reads > relay.connections() && reads <= most,
        "{reads} requests where {most} were to be expected"
    );
}

#[test]
fn a_server_that_is_killed_in_the_middle_leaves_what_can_be_continued() {
    let bytes = random(6, 64 * MIB);
    let mut server = server_with(&bytes);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp(server.url("f"), &target);
    command.args(["--limit-rate", "20MB/s", "--timeout", "2"]);
    let copy = Running::start(command);
    until("some has arrived", || occupied_bytes(&part_of(&target)) >= 16 * MIB as u64);
    server.kill();
    let outcome = copy.wait();
    assert!([Some(6), Some(7)].contains(&outcome.code), "{}", outcome.describe());
    assert_eq!(outcome.error()["retryable"], true, "{}", outcome.describe());
    assert!(!target.exists() && part_of(&target).exists());
}

#[test]
fn what_is_not_there_and_what_is_no_file_is_said() {
    let server = Xrootd::start();
    server.put("dir/f", b"f");
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(server.url("none"), &target)).fails(3, "caller", false, &["none"]);
    let outcome = run(cp(server.url("dir"), &target)).says(&["directory"]);
    assert!(outcome.code != Some(0) && !target.exists(), "{}", outcome.describe());
}

#[test]
fn trees_arrive_whole() {
    let server = Xrootd::start();
    let mut files = Vec::new();
    for number in 0..300 {
        let name = format!("tree/d{}/s{}/file {number}", number % 7, number % 3);
        let bytes = content(number, (number * 37) as usize);
        fs::create_dir_all(server.exported(&name).parent().unwrap()).unwrap();
        fs::write(server.exported(&name), &*bytes).unwrap();
        files.push((name, bytes));
    }
    fs::create_dir_all(server.exported("tree/empty")).unwrap();
    server.give();
    let scratch = Scratch::new();
    let relay = Relay::to(server.port(), Ways::default());
    let target = scratch.join("tree");
    run(cp_r(relay.url("root", "tree"), &target)).ok();
    for (name, bytes) in files {
        assert_same(&fs::read(scratch.join(&name)).unwrap(), &bytes);
    }
    assert!(target.join("empty").is_dir());
    // Connections are used again: far fewer than files.
    assert!(relay.connections() <= 60, "{} connections for 300 files", relay.connections());
}

#[test]
fn listing_and_stat_say_the_same_as_the_disk() {
    let server = Xrootd::start();
    server.put("dir/f", &random(7, 12_345));
    server.put("dir/g h", b"");
    let say = |arguments: &[&str]| {
        let mut command = gridlane();
        command.args(arguments);
        run(command).ok().text()
    };
    let listed = say(&["ls", &server.url("dir")]);
    assert_eq!(listed, "f\ng h\n");
    let told = say(&["stat", "--json", &server.url("dir/f")]);
    assert!(told.contains("\"size_bytes\":12345"), "{told}");
    let sum = say(&["checksum", "--type", "adler32", &server.url("dir/f")]);
    let known = crate::support::checksum(gridlane_core::ChecksumKind::Adler32, &random(7, 12_345)).hex();
    assert!(sum.contains(&known), "{sum} {known}");
}
