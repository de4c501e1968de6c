//! Several servers with the same file: killed, absent, lying.

use super::{random, server_that_lies, server_with, wrong};
use crate::support::client::{Running, cp_from, run};
use crate::support::nginx::free_port;
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, Scratch, assert_copied, occupied_bytes, part_of, until};

fn urls(servers: &[Xrootd]) -> Vec<String> {
    servers.iter().map(|server| server.url("f")).collect()
}

#[test]
fn three_work_at_the_same_time() {
    let bytes = random(11, 64 * MIB);
    let servers: Vec<Xrootd> = (0..3).map(|_| server_with(&bytes)).collect();
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&urls(&servers), &target);
    command.args(["--limit-rate", "40MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    for url in urls(&servers) {
        assert!(outcome.source(&url)["bytes"].as_u64().unwrap() > 0, "{}", outcome.describe());
    }
}

#[test]
fn one_that_is_killed_is_not_missed() {
    let bytes = random(12, 64 * MIB);
    let mut servers: Vec<Xrootd> = (0..3).map(|_| server_with(&bytes)).collect();
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&urls(&servers), &target);
    command.args(["--limit-rate", "24MB/s"]);
    let mut copy = Running::start(command);
    until("some has arrived", || {
        assert!(copy.is_running(), "it ended before a server could be killed");
        occupied_bytes(&part_of(&target)) >= 16 * MIB as u64
    });
    servers[1].kill();
    let outcome = copy.wait().ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(!outcome.source(&servers[1].url("f"))["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn one_that_was_never_there_is_not_missed() {
    let bytes = random(13, 8 * MIB);
    let servers: Vec<Xrootd> = (0..2).map(|_| server_with(&bytes)).collect();
    let absent = format!("root://127.0.0.1:{}//f", free_port());
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let sources = [vec![absent.clone()], urls(&servers)].concat();
    let outcome = run(cp_from(&sources, &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(!outcome.source(&absent)["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn one_with_another_file_is_outvoted_and_named() {
    let bytes = random(14, 32 * MIB);
    let servers = [server_with(&bytes), server_with(&wrong(&bytes)), server_with(&bytes)];
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&urls(&servers), &target);
    command.args(["--limit-rate", "24MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    outcome.blames(&servers[1].url("f"), "checksum");
}

#[test]
fn one_that_lies_about_its_file_is_found_and_named() {
    let bytes = random(15, 32 * MIB);
    let servers = [server_with(&bytes), server_that_lies(&bytes, &wrong(&bytes)), server_with(&bytes)];
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&urls(&servers), &target);
    command.args(["--limit-rate", "24MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    outcome.blames(&servers[1].url("f"), "wrong bytes");
}

#[test]
fn one_of_another_size_is_left_out() {
    let bytes = random(16, 8 * MIB);
    let servers = [server_with(&bytes), server_with(&bytes[..7 * MIB]), server_with(&bytes)];
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&urls(&servers), &target);
    // Long enough for all of them to be reached.
    command.args(["--limit-rate", "12MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(!outcome.source(&servers[1].url("f"))["error"].is_null(), "{}", outcome.describe());
}
