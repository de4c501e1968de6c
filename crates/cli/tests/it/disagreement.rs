//! Replicas that do not have the same bytes: changed in mid-copy, of another size, lying, or at odds with each other.
//! Wrong bytes never become a file, and the replica that sent them is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gridlane_core::ChecksumKind::{self, Adler32};

use crate::support::client::{cp, cp_from, run};
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::Rogue;
use crate::support::{MIB, Scratch, assert_copied, checksum_text, content};

const SIZE: usize = 8 * MIB;

/// Slow enough that every replica is asked for bytes before the others are done.
fn replica(object: &Object) -> Rogue {
    replica_of(object, 10_000_000)
}

/// One that sends so many bytes per second on each connection.
fn replica_of(object: &Object, rate: u64) -> Rogue {
    let object = object.clone();
    Rogue::with_rate(rate, move |request| object.answer(request))
}

/// A server that says of its file what is true of another one.
fn liar(truth: &Object) -> Rogue {
    let mut wrong = truth.bytes.to_vec();
    for byte in wrong.iter_mut().step_by(50_000) {
        *byte ^= 0x20;
    }
    replica(&Object { bytes: Arc::new(wrong), ..truth.clone() })
}

/// A file that becomes another one of the same size after some answers with bytes.
fn changing(old: &Object, new: &Object, after: usize) -> Rogue {
    let (old, new, answers) = (old.clone(), new.clone(), AtomicUsize::new(0));
    // Each answer is short, so that more than one is needed.
    Rogue::start(move |request| {
        let is_new = answers.load(Relaxed) >= after;
        if request.is_get() {
            answers.fetch_add(1, Relaxed);
        }
        let answer = if is_new { new.answer(request) } else { old.answer(request) };
        answer.cut(MIB, Then::Close)
    })
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_not_put_together_from_both() {
    let (old, new) = (Object::new(&content(301, SIZE)), Object::new(&content(302, SIZE)));
    let server = changing(&old, &new, 3);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(server.url("f"), &target)).fails(5, "peer", true, &["changed", &server.url("f")]);
    assert!(!target.exists());
    // The same command begins anew with the new version.
    run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &new.bytes);
}

#[test]
fn a_replica_that_changes_while_it_is_copied_is_left_and_the_other_finishes() {
    let (old, new) = (Object::new(&content(303, SIZE)), Object::new(&content(304, SIZE)));
    let (server, good) = (changing(&old, &new, 2), replica(&old));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&[server.url("f"), good.url("f")], &target);
    command.args(["--checksum", &checksum_text(Adler32, &old.bytes)]);
    run(command).ok().verified(true);
    assert_copied(&target, &old.bytes);
}

#[test]
fn a_server_that_refuses_the_old_version_is_understood() {
    let (old, new) = (Object::new(&content(305, SIZE)), Object::new(&content(306, SIZE)));
    let answers = AtomicUsize::new(0);
    let server = Rogue::start(move |request| {
        let is_new = answers.fetch_add(usize::from(request.is_get()), Relaxed) >= 3;
        let object = if is_new { &new } else { &old };
        match request.header("if-match") {
            Some(wanted) if Some(wanted) != object.etag.as_deref() => Answer::status(412),
            _ => object.answer(request).cut(MIB, Then::Close),
        }
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(server.url("f"), &target)).fails(5, "peer", true, &["changed"]);
    assert!(!target.exists());
}

#[test]
fn one_replica_of_another_size_is_left_out_and_named() {
    let object = Object::new(&content(307, SIZE));
    let short = Object::new(&Arc::new(object.bytes[..SIZE - MIB].to_vec()));
    let (one, other, two) = (replica(&object), replica(&short), replica(&object));
    let scratch = Scratch::new();
    for (name, sources) in [
        ("last", [one.url("f"), two.url("f"), other.url("f")]),
        ("first", [other.url("f"), one.url("f"), two.url("f")]),
    ] {
        let target = scratch.join(name);
        run(cp_from(&sources, &target)).ok().verified(true).blames(&other.url("f"), "checksum_mismatch");
        assert_copied(&target, &object.bytes);
    }
}

#[test]
fn one_of_three_that_sends_wrong_bytes_is_found_and_named() {
    let object = Object::new(&content(308, SIZE));
    let (one, two, lying) = (replica(&object), replica(&object), liar(&object));
    let scratch = Scratch::new();
    for (name, sources) in [
        ("last", [one.url("f"), two.url("f"), lying.url("f")]),
        ("first", [lying.url("f"), one.url("f"), two.url("f")]),
    ] {
        let target = scratch.join(name);
        let outcome = run(cp_from(&sources, &target)).ok().verified(true);
        assert_copied(&target, &object.bytes);
        outcome.blames(&lying.url("f"), "wrong");
    }
}

#[test]
fn one_of_two_that_sends_wrong_bytes_is_found_with_a_checksum() {
    let object = Object::new(&content(309, SIZE));
    let (good, lying) = (replica(&object), liar(&object));
    let scratch = Scratch::new();
    for kind in ChecksumKind::ALL {
        let target = scratch.join(kind.name());
        let mut command = cp_from(&[lying.url("f"), good.url("f")], &target);
        command.args(["--checksum", &checksum_text(kind, &object.bytes)]);
        run(command).ok().verified(true);
        assert_copied(&target, &object.bytes);
    }
}

#[test]
fn a_liar_that_brought_most_costs_no_more_than_what_it_and_one_other_brought() {
    let object = Object::new(&content(315, 32 * MIB));
    let mut wrong = object.bytes.to_vec();
    // Most of what it sends is right: only comparing the bytes of two for the same place tells which one is at odds
    // with the others.
    for byte in wrong.iter_mut().step_by(1_200_000) {
        *byte ^= 0x20;
    }
    let lie = Object { bytes: Arc::new(wrong), ..object.clone() };
    let (one, two) = (replica_of(&object, 8_000_000), replica_of(&object, 8_000_000));
    let lying = replica_of(&lie, 16_000_000);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&[one.url("f"), lying.url("f"), two.url("f")], &target);
    command.args(["--checksum", &checksum_text(ChecksumKind::Sha256, &object.bytes)]);
    let outcome = run(command).ok().verified(true).blames(&lying.url("f"), "wrong");
    assert_copied(&target, &object.bytes);
    let tries: Vec<_> = outcome
        .events()
        .into_iter()
        .filter(|event| event["type"] == "verify" && event["matches"] == false)
        .collect();
    assert!(tries.len() <= 2, "one was doubted, and contradicts the liar: {tries:?}");
    // What the third one brought stays, and is once the file at most; trying one after the other is 1.8 times the file.
    let extra_bytes = outcome.number("extra_bytes");
    assert!(
        extra_bytes <= object.bytes.len() as u64 / 4 * 5,
        "{extra_bytes} bytes extra\n{}",
        outcome.describe()
    );
}

#[test]
fn wrong_bytes_from_the_only_replica_are_not_a_file() {
    let object = Object::new(&content(310, SIZE));
    let lying = liar(&object);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(lying.url("f"), &target)).fails(8, "peer", false, &["adler32", &lying.url("f")]);
    assert!(!target.exists());
}

#[test]
fn two_replicas_that_contradict_each_other_are_not_guessed_between() {
    let (one, two) = (Object::new(&content(311, SIZE)), Object::new(&content(312, SIZE)));
    let (first, second) = (replica(&one), replica(&two));
    let sources = [first.url("f"), second.url("f")];
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&sources, &target)).fails(8, "peer", false, &["--checksum"]);
    assert!(!target.exists());
    // The user can say which one is right.
    let mut command = cp_from(&sources, &target);
    command.args(["--checksum", &checksum_text(Adler32, &two.bytes)]);
    run(command).ok().verified(true);
    assert_copied(&target, &two.bytes);
}

#[test]
fn the_majority_decides_between_honest_replicas() {
    let (old, new) = (Object::new(&content(313, SIZE)), Object::new(&content(314, SIZE)));
    let (stale, one, two) = (replica(&old), replica(&new), replica(&new));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[stale.url("f"), one.url("f"), two.url("f")], &target))
        .ok()
        .verified(true)
        .blames(&stale.url("f"), "adler32");
    assert_copied(&target, &new.bytes);
}
