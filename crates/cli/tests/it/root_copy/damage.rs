//! Pages that are damaged on the way.

use super::{random, server_with};
use crate::support::client::{cp, cp_from, cp_impatient, run};
use crate::support::relay::{Relay, Ways};
use crate::support::{MIB, Scratch, assert_copied};

#[test]
fn a_page_that_is_wrong_once_is_fetched_again_alone() {
    let bytes = random(31, 24 * MIB);
    let server = server_with(&bytes);
    let relay = Relay::to(server.port(), Ways { damages: 1, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp(relay.url("root", "f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert_eq!(relay.damaged(), 1);
    assert_eq!(outcome.number("fetched_bytes"), bytes.len() as u64 + outcome.number("extra_bytes"));
    let most = bytes.len() as u64 + outcome.number("extra_bytes") + MIB as u64;
    assert!(relay.bytes() < most, "more than a page was sent again");
    assert!(outcome.source(&relay.url("root", "f"))["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn several_wrong_pages_are_mended() {
    let bytes = random(32, 48 * MIB);
    let server = server_with(&bytes);
    let relay = Relay::to(server.port(), Ways { damages: 3, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp(relay.url("root", "f"), &target);
    command.args(["--streams", "1"]);
    run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    assert_eq!(relay.damaged(), 3);
}

#[test]
fn a_source_whose_pages_are_always_wrong_is_named_and_another_used() {
    let bytes = random(33, 24 * MIB);
    let servers = [server_with(&bytes), server_with(&bytes)];
    let relay = Relay::to(servers[0].port(), Ways { damages: usize::MAX, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let sources = [relay.url("root", "f"), servers[1].url("f")];
    let mut command = cp_from(&sources, &target);
    command.args(["--limit-rate", "24MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    outcome.blames(&sources[0], "page");
}

#[test]
fn alone_it_fails_with_words() {
    let bytes = random(34, MIB);
    let server = server_with(&bytes);
    let relay = Relay::to(server.port(), Ways { damages: usize::MAX, ..Ways::default() });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_impatient(relay.url("root", "f"), &target)).says(&["page", "checksum"]);
    assert_eq!(outcome.code, Some(8), "{}", outcome.describe());
    assert!(!target.exists());
}
