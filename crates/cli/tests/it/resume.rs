//! Copies that are killed or interrupted, and the same command again: what was verified is not fetched
//! twice, and the result is right, also with other replicas and when the source has changed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::client::{Outcome, Running, cp, cp_from, gridlane, isolated, run};
use crate::support::object::{Object, Then};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, content, journal_of, occupied_bytes, part_of, until};

const MIB_U64: u64 = MIB as u64;

/// A replica that counts what it sends.
fn counting(object: &Object, rate: u64) -> Rogue {
    let object = object.clone();
    Rogue::with_rate(rate, move |request| object.answer(request))
}

/// Starts a copy and kills it as a crash would, once so many bytes are in the partial file and the journal
/// has been written.
fn killed_at(sources: &[String], target: &Path, bytes: u64) {
    let mut copy = Running::start(cp_from(sources, target));
    until("enough has arrived", || {
        assert!(copy.is_running(), "it ended before it could be killed");
        // Less than the journal may be behind can be there before it knows of anything.
        let journal = fs::read_to_string(journal_of(target)).unwrap_or_default();
        occupied_bytes(&part_of(target)) >= bytes && journal.contains(r#""record":"done""#)
    });
    copy.kill();
    assert!(!target.exists(), "something that looks complete is there");
    assert!(part_of(target).exists() && journal_of(target).exists());
}

#[test]
fn after_a_kill_at_most_64_mib_and_what_was_in_flight_are_fetched_again() {
    let size = 224 * MIB;
    let bytes = content(601, size);
    // The end of the file does not come before the copy is killed.
    let (object, holds) = (Object::new(&bytes), Arc::new(AtomicBool::new(true)));
    let held = Arc::clone(&holds);
    let server = Rogue::start(move |request| {
        let mut answer = object.answer(request);
        let most = (208 * MIB).saturating_sub(answer.range.start);
        if answer.range.len() > most && held.load(Relaxed) {
            answer.sent = most;
            answer.then = Then::Stall;
        }
        answer
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");

    let copy = Running::start(cp(server.url("f"), &target));
    until("most of it is sent", || server.sent_bytes() >= 192 * MIB_U64);
    copy.kill();
    holds.store(false, Relaxed);
    let sent_before = server.sent_bytes();

    let outcome = run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    // In flight is what the kernel holds on both sides: the tcp_wmem and tcp_rmem maxima of this machine at
    // most; 40 MiB covers 4 + 32.
    let lost = server.sent_bytes() - size as u64;
    assert!(lost <= (64 + 40) * MIB_U64, "{} MiB were sent twice\n{}", lost / MIB_U64, outcome.describe());
    let resumed = outcome.number("resumed_bytes");
    assert!(resumed + (64 + 40) * MIB_U64 >= sent_before, "only {resumed} of {sent_before} bytes were kept");
    assert!(outcome.number("fetched_bytes") <= size as u64 - resumed + outcome.number("extra_bytes"));
}

/// Copies until `kept` bytes are there, is killed, and is run again with other sources.
fn resumed(first: &[String], then: &[String], target: &Path, kept: u64) -> Outcome {
    killed_at(first, target, kept);
    run(cp_from(then, target)).ok()
}

#[test]
fn another_replica_continues_what_one_began() {
    let bytes = content(602, 48 * MIB);
    let object = Object::new(&bytes);
    let (slow, other) = (counting(&object, 16_000_000), counting(&object, 0));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = resumed(&[slow.url("f")], &[other.url("f")], &target, 32 * MIB_U64).verified(true);
    assert_copied(&target, &bytes);
    let kept = outcome.number("resumed_bytes");
    assert!(kept >= 8 * MIB_U64, "only {kept} bytes were kept");
    assert!(other.sent_bytes() <= bytes.len() as u64 - kept + MIB_U64, "{} bytes", other.sent_bytes());
}

#[test]
fn a_copy_from_real_servers_is_continued() {
    let bytes = content(603, 48 * MIB);
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    fs::write(dir.join("f"), &*bytes).unwrap();
    let servers: Vec<Server> = (0..2).map(|_| Server::with(&dir, &["--limit-rate", "8MB/s"])).collect();
    let sources: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let target = scratch.join("f");
    killed_at(&sources, &target, 32 * MIB_U64);
    let outcome = run(cp_from(&sources, &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("resumed_bytes") > 0, "{}", outcome.describe());
}

#[test]
fn a_source_that_changed_in_between_is_fetched_anew() {
    let (old, new) = (content(604, 48 * MIB), content(605, 48 * MIB));
    let (before, after) = (counting(&Object::new(&old), 16_000_000), counting(&Object::new(&new), 0));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = resumed(&[before.url("f")], &[after.url("f")], &target, 24 * MIB_U64).verified(true);
    assert_copied(&target, &new);
    assert_eq!(outcome.number("resumed_bytes"), 0, "bytes of another object were trusted");
}

#[test]
fn a_source_of_another_size_is_fetched_anew() {
    let old = content(606, 48 * MIB);
    let new: Arc<Vec<u8>> = Arc::new(old[..40 * MIB].to_vec());
    let (before, after) = (counting(&Object::new(&old), 16_000_000), counting(&Object::new(&new), 0));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = resumed(&[before.url("f")], &[after.url("f")], &target, 24 * MIB_U64).verified(true);
    assert_copied(&target, &new);
    assert_eq!(outcome.number("resumed_bytes"), 0);
}

#[test]
fn without_any_identity_nothing_is_trusted() {
    // No ETag, no digest: nothing proves that it is the same object.
    let (old, new) = (content(607, 32 * MIB), content(608, 32 * MIB));
    let (before, after) = (counting(&Object::bare(&old), 16_000_000), counting(&Object::bare(&new), 0));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = resumed(&[before.url("f")], &[after.url("f")], &target, 20 * MIB_U64).verified(false);
    assert_copied(&target, &new);
    assert_eq!(outcome.number("resumed_bytes"), 0);
}

#[test]
fn ctrl_c_stops_cleanly_and_says_how_to_go_on() {
    let bytes = content(609, 48 * MIB);
    let server = counting(&Object::new(&bytes), 16_000_000);
    let scratch = Scratch::new();
    let target = scratch.join("my file");
    let mut command = gridlane();
    command.args(["cp", &server.url("f")]).arg(&target);
    let mut copy = Running::start(command);
    until("some has arrived", || {
        assert!(copy.is_running());
        occupied_bytes(&part_of(&target)) >= 16 * MIB_U64
    });
    copy.signal("INT");
    let outcome = copy.wait();
    assert_eq!(outcome.code, Some(130), "{}", outcome.describe());
    assert!(!target.exists() && part_of(&target).exists() && journal_of(&target).exists());

    // The command it prints is one that a shell understands, and it works.
    let binary = env!("CARGO_BIN_EXE_gridlane");
    let line = outcome.stderr.lines().find_map(|line| line.find(binary).map(|at| &line[at..]));
    let line = line.unwrap_or_else(|| panic!("no command to resume with\n{}", outcome.describe()));
    let mut shell = isolated(Command::new("/bin/sh"));
    shell.args(["-c", line]);
    run(shell).ok();
    assert_copied(&target, &bytes);
    assert!(server.sent_bytes() < 2 * bytes.len() as u64 - 8 * MIB_U64, "it began anew");
}

#[test]
fn sigterm_stops_as_cleanly() {
    let bytes = content(610, 32 * MIB);
    let server = counting(&Object::new(&bytes), 16_000_000);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut copy = Running::start(cp(server.url("f"), &target));
    until("some has arrived", || {
        assert!(copy.is_running());
        occupied_bytes(&part_of(&target)) >= 8 * MIB_U64
    });
    copy.signal("TERM");
    let outcome = copy.wait();
    assert_eq!(outcome.code, Some(130), "{}", outcome.describe());
    let outcome = run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("resumed_bytes") >= 4 * MIB_U64);
}

#[test]
fn two_copies_to_one_target_do_not_mix() {
    let bytes = content(611, 24 * MIB);
    let server = counting(&Object::new(&bytes), 8_000_000);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut first = Running::start(cp(server.url("f"), &target));
    until("the first has begun", || {
        assert!(first.is_running());
        part_of(&target).exists()
    });
    let second = run(cp(server.url("f"), &target));
    assert_ne!(second.code, Some(0), "{}", second.describe());
    first.wait().ok().verified(true);
    assert_copied(&target, &bytes);
}
