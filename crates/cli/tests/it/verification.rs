//! The meaning of "verified": every type of checksum, right and wrong; sizes and names at the edges.

use std::fs;

use gridlane_core::ChecksumKind;

use crate::support::client::{cp, cp_from, run};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, checksum_text, content};

#[test]
fn every_type_of_checksum_is_checked() {
    let scratch = Scratch::new();
    let bytes = content(1001, 4 * MIB);
    fs::write(scratch.dir("export").join("f"), &*bytes).unwrap();
    let server = Server::start(&scratch.join("export"));
    for kind in ChecksumKind::ALL {
        let right = checksum_text(kind, &bytes);
        let wrong = checksum_text(kind, b"something else");
        let target = scratch.join(kind.name());
        let mut command = cp(server.url("f"), &target);
        command.args(["--checksum", &wrong]);
        let outcome = run(command).says(&[kind.name()]);
        assert_eq!(outcome.code, Some(8), "{}", outcome.describe());
        assert!(!target.exists(), "wrong bytes became a file");

        let mut command = cp(server.url("f"), &target);
        command.args(["--checksum", &right]);
        let outcome = run(command).ok().verified(true);
        assert_eq!(outcome.summary()["checksum"], right);
        assert_copied(&target, &bytes);
    }
}

#[test]
fn a_checksum_type_alone_asks_the_server_for_its_value() {
    let scratch = Scratch::new();
    let bytes = content(1002, 4 * MIB);
    fs::write(scratch.dir("export").join("f"), &*bytes).unwrap();
    let server = Server::start(&scratch.join("export"));
    let target = scratch.join("f");
    let mut command = cp(server.url("f"), &target);
    command.args(["--checksum", "adler32"]);
    let outcome = run(command).ok().verified(true);
    assert_eq!(outcome.summary()["checksum"], checksum_text(ChecksumKind::Adler32, &bytes));
}

#[test]
fn a_checksum_verifies_what_a_server_says_nothing_about() {
    let bytes = content(1003, 4 * MIB);
    let object = Object::bare(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp(server.url("f"), &target);
    command.args(["--checksum", &checksum_text(ChecksumKind::Sha256, &bytes)]);
    run(command).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn a_checksum_that_makes_no_sense_is_a_usage_error() {
    for wrong in ["adler32:xyz", "crc7:00", "md5:1234", ":", "sha256:"] {
        let mut command = cp("http://127.0.0.1:1/f", "/dev/null");
        command.args(["--checksum", wrong]);
        run(command).exits(2);
    }
}

#[test]
fn two_bare_replicas_are_unverified_but_their_bytes_are_right() {
    let bytes = content(1004, 8 * MIB);
    let servers: Vec<Rogue> = (0..2)
        .map(|_| {
            let object = Object::bare(&bytes);
            Rogue::start(move |request| object.answer(request))
        })
        .collect();
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[servers[0].url("f"), servers[1].url("f")], &target))
        .ok()
        .verified(false)
        .says(&["unverified"]);
    assert_copied(&target, &bytes);
}

#[test]
fn sizes_at_the_edges_are_copied() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let sizes = [0, 1, 2, 65_535, 65_536, 65_537, 262_144, MIB + 1];
    for size in sizes {
        fs::write(dir.join(size.to_string()), &*content(1005, size)).unwrap();
    }
    let (one, two) = (Server::start(&dir), Server::start(&dir));
    for size in sizes {
        let name = size.to_string();
        let target = scratch.join(&name);
        let outcome = run(cp_from(&[one.url(&name), two.url(&name)], &target)).ok().verified(true);
        assert_copied(&target, &content(1005, size));
        assert_eq!(outcome.number("bytes"), size as u64);
    }
}

#[test]
fn names_with_spaces_percent_signs_and_other_scripts_are_copied() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let server = Server::start(&dir);
    for (number, (name, encoded)) in [
        ("with space", "with%20space"),
        ("100% real", "100%25%20real"),
        ("Größe-データ", "Gr%C3%B6%C3%9Fe-%E3%83%87%E3%83%BC%E3%82%BF"),
        ("a+b&c=d;e", "a+b&c=d;e"),
        ("quote'\"quote", "quote'%22quote"),
        ("hash#question?", "hash%23question%3F"),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = content(1006 + number as u64, 10_000);
        fs::write(dir.join(name), &*bytes).unwrap();
        let into = scratch.dir(&format!("into-{number}"));
        run(cp(server.url(encoded), &into)).ok().verified(true);
        assert_copied(&into.join(name), &bytes);
    }
}
