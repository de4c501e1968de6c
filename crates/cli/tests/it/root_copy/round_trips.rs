//! Waits of `gridlane cp` for an answer, counted by a relay that holds up the server's bytes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{random, server_with};
use crate::support::client::{cp, gridlane, run};
use crate::support::relay::{Arrival, Relay, Ways};
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, assert_copied};

/// Long enough that nothing else takes as long, nearly always.
const DELAY: Duration = Duration::from_millis(150);
/// On a busy machine what was sent together is not always taken together: the fewest round trips of so many copies are what
/// one takes.
const COPIES_MAX: usize = 5;
const SIZE: usize = 600_000;

fn relay(server: &Xrootd) -> Relay {
    Relay::to(server.port(), Ways { delay: DELAY, ..Ways::default() })
}

/// Round trips after which so many bytes had come from the server.
fn round_trips(arrivals: &[Arrival], bytes: u64) -> usize {
    arrivals.iter().find(|arrival| arrival.bytes >= bytes).expect("so many bytes").round_trips
}

/// More than any session begins with, and less than the file.
const FIRST_BYTES: u64 = 64 * 1024;

fn copied(mut command: Command, ca: &Path) {
    command.arg("--ca").arg(ca);
    run(command).ok().verified(true);
}

/// Copies a file over `scheme` until its first bytes come after `expected` round trips.
fn first_bytes_come_after(expected: usize, scheme: &str, seed: u64) {
    let bytes = random(seed, SIZE);
    let server = server_with(&bytes);
    let scratch = Scratch::new();
    let mut seen = Vec::new();
    for round in 0..COPIES_MAX {
        let target = scratch.join(round.to_string());
        let relay = relay(&server);
        copied(cp(relay.url(scheme, "f"), &target), &server.ca());
        assert_copied(&target, &bytes);
        if round_trips(&relay.arrivals(), FIRST_BYTES) <= expected {
            return;
        }
        seen.push(relay.arrivals());
    }
    panic!("{seen:?}");
}

/// Connect; handshake, protocol, login and open in one flight; read.
#[test]
fn the_first_byte_comes_after_three_round_trips() {
    first_bytes_come_after(3, "root", 61);
}

/// Connect; handshake and protocol; TLS; login and open in one flight; read.
#[test]
fn over_tls_it_comes_after_five() {
    first_bytes_come_after(5, "roots", 62);
}

#[test]
fn the_second_file_needs_one_to_be_opened() {
    let server = Xrootd::start();
    let files: Vec<_> = (0..4).map(|number| (format!("f{number}"), random(63 + number, SIZE))).collect();
    for (name, bytes) in &files {
        server.put(name, bytes);
    }
    let scratch = Scratch::new();
    let relay = relay(&server);
    let one_after_another = |count: usize, round: usize| {
        let mut command = gridlane();
        command.arg("cp");
        command.args(files[..count].iter().map(|(name, _)| relay.url("root", name)));
        command.arg(scratch.dir(&format!("{count}-{round}"))).args(["--json", "--parallel", "1"]);
        let before = relay.arrivals().last().map_or(0, |arrival| arrival.round_trips);
        run(command).ok();
        for (name, bytes) in &files[..count] {
            assert_copied(&scratch.join(format!("{count}-{round}/{name}")), bytes);
        }
        relay.arrivals().last().unwrap().round_trips - before
    };
    // What each more of them costs: open; read. What else is asked is asked beside that, but on a busy machine its answer
    // may be alone on the way: the fewest of some rounds are what it takes.
    let (mut two, mut four) = (usize::MAX, usize::MAX);
    for round in 0..COPIES_MAX {
        two = two.min(one_after_another(2, round));
        four = four.min(one_after_another(4, round));
        if four <= two + 4 {
            return;
        }
    }
    panic!("{two} round trips for two files, {four} for four");
}
