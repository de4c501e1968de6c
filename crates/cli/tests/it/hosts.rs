//! Hosts that are not there, or there and silent. A healthy replica makes the copy succeed; without one
//! the error says so in time.

use std::sync::Arc;

use crate::support::client::{Running, cp, cp_from, cp_impatient, run};
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Rogue, closed_port_url};
use crate::support::serve::Server;
use crate::support::{MIB, SOON, Scratch, assert_copied, content, occupied_bytes, part_of, until};

const SIZE: usize = 16 * MIB;

fn replica(object: &Object, rate: u64) -> Rogue {
    let object = object.clone();
    Rogue::with_rate(rate, move |request| object.answer(request))
}

/// A server that sends a little of every answer, then nothing, with the connection open.
fn silent_after(object: &Object, bytes: usize) -> Rogue {
    let object = object.clone();
    Rogue::start(move |request| object.answer(request).cut(bytes, Then::Stall))
}

#[test]
fn a_replica_that_falls_silent_is_overtaken() {
    let bytes = content(401, SIZE);
    let object = Object::new(&bytes);
    let (silent, good) = (silent_after(&object, 100_000), replica(&object, 0));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_from(&[silent.url("f"), good.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
}

#[test]
fn a_replica_that_never_answers_is_overtaken() {
    let bytes = content(402, SIZE);
    let object = Object::new(&bytes);
    // The head is all that is missing.
    let mute = Rogue::start(|_| {
        let mut answer = Answer::raw(Vec::new());
        answer.then = Then::Stall;
        answer
    });
    let good = replica(&object, 0);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_from(&[mute.url("f"), good.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
}

#[test]
fn the_only_replica_falling_silent_is_a_timeout_and_what_came_is_kept() {
    let bytes = content(403, SIZE);
    let object = Object::new(&bytes);
    let silent = Rogue::start({
        let object = object.clone();
        move |request| object.answer(request).cut_at(6 * MIB, Then::Stall)
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_impatient(silent.url("f"), &target)).fails(7, "network", true, &[&silent.url("f")]);
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
    assert!(!target.exists() && part_of(&target).exists(), "{:?}", scratch.names());
    // Another replica can finish it.
    let good = replica(&object, 0);
    let outcome = run(cp(good.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("resumed_bytes") >= 4 * MIB as u64, "{}", outcome.describe());
}

#[test]
fn an_unreachable_host_beside_a_good_one_is_named_and_the_copy_succeeds() {
    let bytes = content(404, SIZE);
    let good = replica(&Object::new(&bytes), 0);
    let nowhere = closed_port_url("f");
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_from(&[nowhere.clone(), good.url("f")], &target)).ok().verified(true);
    let outcome = outcome.blames(&nowhere, "refused");
    assert_eq!(outcome.event("retry")["url"], nowhere);
    assert_copied(&target, &bytes);
}

#[test]
fn only_unreachable_hosts_are_a_network_error() {
    let (one, two) = (closed_port_url("f"), closed_port_url("f"));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&[one.clone(), two], &target);
    command.args(["--timeout", "2"]);
    run(command).fails(6, "network", true, &[&one, "refused"]);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn a_name_that_does_not_exist_is_a_network_error() {
    let scratch = Scratch::new();
    // RFC 6761 keeps this top-level domain from ever existing.
    let outcome = run(cp_impatient("http://storage.invalid/f", scratch.join("f")));
    assert_eq!(outcome.code, Some(6), "{}", outcome.describe());
    outcome.says(&["storage.invalid"]);
}

#[test]
fn a_server_killed_in_mid_copy_costs_only_its_share() {
    let bytes = content(405, 48 * MIB);
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    std::fs::write(dir.join("f"), &*bytes).unwrap();
    let target = scratch.join("f");
    let mut doomed = Server::with(&dir, &["--limit-rate", "12MB/s"]);
    let others: Vec<Server> = (0..2).map(|_| Server::with(&dir, &["--limit-rate", "12MB/s"])).collect();
    let sources = [doomed.url("f"), others[0].url("f"), others[1].url("f")];
    let mut copy = Running::start(cp_from(&sources, &target));
    until("a quarter is there", || {
        assert!(copy.is_running(), "it ended too early");
        occupied_bytes(&part_of(&target)) > 12 * MIB as u64
    });
    doomed.kill();
    let outcome = copy.wait().ok().verified(true);
    assert_copied(&target, &bytes);
    let share = outcome.source(&sources[0])["bytes"].as_u64().unwrap();
    assert!(share > 0 && share < bytes.len() as u64, "the killed server gave {share} bytes");
}

#[test]
fn a_slow_replica_neither_holds_up_the_copy_nor_is_thrown_away() {
    let bytes: Arc<Vec<u8>> = content(406, SIZE);
    let object = Object::new(&bytes);
    let (slow, fast) = (replica(&object, 100_000), replica(&object, 12_000_000));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_from(&[slow.url("f"), fast.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    // The fast one alone needs 1.4 s, half of the file from the slow one 84 s.
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
    assert!(outcome.source(&slow.url("f"))["error"].is_null(), "{}", outcome.describe());
}
