//! Servers whose answers are wrong: short, misplaced, without ranges, without a length, or no HTTP at all.
//!
//! Each server is a script; each test says what the copy makes of it alone and beside a good replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::client::{cp, cp_from, cp_impatient, run};
use crate::support::object::{Answer, Framing, Object, Then};
use crate::support::rogue::{Request, Rogue};
use crate::support::{MIB, Scratch, assert_copied, content, journal_of, part_of};

const SIZE: usize = 8 * MIB;

/// A good server and what it serves.
fn good(seed: u64) -> (Arc<Vec<u8>>, Object, Rogue) {
    let bytes = content(seed, SIZE);
    let object = Object::new(&bytes);
    let served = object.clone();
    (bytes, object, Rogue::start(move |request| served.answer(request)))
}

/// A server that answers as `object` does, changed by `change` when the file is fetched.
fn server(object: &Object, change: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static) -> Rogue {
    let object = object.clone();
    Rogue::start(move |request| {
        let answer = object.answer(request);
        if request.is_get() { change(request, answer) } else { answer }
    })
}

#[test]
fn a_connection_that_breaks_again_and_again_is_continued_where_it_broke() {
    let (bytes, object, _) = good(101);
    let breaking = server(&object, |_, answer| answer.cut(MIB, Then::Close));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp(breaking.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    let fetched = outcome.number("fetched_bytes");
    assert!(fetched <= (SIZE + SIZE / 4) as u64, "{fetched} bytes were fetched for {SIZE}");
}

#[test]
fn a_file_that_always_ends_early_is_the_network_and_what_came_is_kept() {
    let (bytes, object, _) = good(102);
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let short =
        server(
            &object,
            move |_, answer| {
                if is_healed.load(Relaxed) { answer } else { answer.cut_at(5 * MIB, Then::Close) }
            },
        );
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_impatient(short.url("f"), &target)).fails(6, "peer", true, &[&short.url("f")]);
    assert!(!target.exists(), "something that looks complete is there");
    assert!(part_of(&target).exists() && journal_of(&target).exists(), "{:?}", scratch.names());

    healed.store(true, Relaxed);
    let outcome = run(cp(short.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    let resumed = outcome.number("resumed_bytes");
    assert!(resumed >= 4 * MIB as u64, "only {resumed} bytes were kept");
}

#[test]
fn a_file_that_always_ends_early_at_one_replica_comes_from_the_other() {
    let (bytes, object, replica) = good(103);
    let short = server(&object, |_, answer| answer.cut(1000, Then::Close));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[short.url("f"), replica.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

/// The right bytes of a wrong place, with the head that belongs to them.
fn shifted(object: &Object) -> Rogue {
    let object = object.clone();
    Rogue::start(move |request| {
        let mut moved = request.clone();
        if let (true, Some((first, last))) = (request.is_get(), request.range) {
            let step = if first + 4096 < SIZE as u64 { 4096 } else { 0 };
            moved.range = Some((first + step, last.map(|last| last + step)));
        }
        object.answer(&moved)
    })
}

#[test]
fn a_wrong_content_range_is_the_servers_fault() {
    let (_, object, _) = good(104);
    let wrong = shifted(&object);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(wrong.url("f"), &target)).fails(1, "peer", false, &["asked for bytes"]);
    assert!(!target.exists());
}

#[test]
fn a_wrong_content_range_beside_a_good_replica_costs_only_that_replica() {
    let (bytes, object, replica) = good(105);
    let wrong = shifted(&object);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[wrong.url("f"), replica.url("f")], &target))
        .ok()
        .verified(true)
        .blames(&wrong.url("f"), "asked for bytes");
    assert_copied(&target, &bytes);
}

#[test]
fn a_partial_answer_without_content_range_is_not_believed() {
    let (_, object, _) = good(106);
    let wrong = server(&object, |_, answer| answer.without("Content-Range"));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(wrong.url("f"), &target)).fails(1, "peer", false, &["part"]);
    assert!(!target.exists());
}

#[test]
fn a_server_that_ignores_ranges_is_read_once_from_the_start() {
    let (bytes, object, _) = good(107);
    let whole = Rogue::start(move |request| object.answer_whole(request));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(whole.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(whole.sent_bytes() <= 2 * SIZE as u64, "it was read more than once: {}", whole.sent_bytes());
}

#[test]
fn a_server_that_ignores_ranges_beside_good_ones_does_no_harm() {
    let (bytes, object, replica) = good(108);
    let whole = Rogue::start(move |request| object.answer_whole(request));
    let scratch = Scratch::new();
    for (name, sources) in
        [("first", [whole.url("f"), replica.url("f")]), ("second", [replica.url("f"), whole.url("f")])]
    {
        let target = scratch.join(name);
        run(cp_from(&sources, &target)).ok().verified(true);
        assert_copied(&target, &bytes);
    }
}

#[test]
fn a_server_that_ignores_ranges_and_breaks_cannot_be_continued_but_starts_again() {
    let (bytes, object, _) = good(109);
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let whole = Rogue::start(move |request| {
        let answer = object.answer_whole(request);
        let breaks = request.is_get() && !is_healed.load(Relaxed);
        if breaks { answer.cut(3 * MIB, Then::Close) } else { answer }
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_impatient(whole.url("f"), &target)).fails(6, "peer", true, &[&whole.url("f")]);
    assert!(!target.exists());
    healed.store(true, Relaxed);
    run(cp(whole.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn chunks_without_a_length_are_taken() {
    let bytes = content(110, SIZE);
    let object = Object::bare(&bytes);
    let chunked = Rogue::start(move |request| object.answer_whole(request).framed(Framing::Chunked));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(chunked.url("f"), &target)).ok().verified(false);
    assert_copied(&target, &bytes);
}

#[test]
fn chunks_that_stop_before_the_last_one_are_not_a_file() {
    let bytes = content(111, SIZE);
    let object = Object::bare(&bytes);
    let chunked = Rogue::start(move |request| {
        object.answer_whole(request).framed(Framing::Chunked).cut(MIB, Then::Close)
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_impatient(chunked.url("f"), &target)).fails(6, "peer", true, &[&chunked.url("f")]);
    assert!(!target.exists());
}

#[test]
fn a_body_that_ends_with_its_connection_is_taken_but_never_called_verified() {
    let bytes = content(112, SIZE);
    let object = Object::bare(&bytes);
    let closing = Rogue::start(move |request| object.answer_whole(request).framed(Framing::Close));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(closing.url("f"), &target)).ok().verified(false);
    assert_copied(&target, &bytes);
}

#[test]
fn a_server_that_says_nothing_about_its_file_gives_it_unverified() {
    let bytes = content(113, SIZE);
    let object = Object::bare(&bytes);
    let bare = Rogue::start(move |request| object.answer(request));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(bare.url("f"), &target)).ok().verified(false);
    assert_copied(&target, &bytes);
}

#[test]
fn what_is_not_http_is_the_servers_fault() {
    let garbage = Rogue::start(|_| Answer::raw(b"SSH-2.0-OpenSSH_9.2p1\r\nProtocol mismatch.\r\n".to_vec()));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(garbage.url("f"), &target)).fails(1, "peer", false, &["http"]);
    assert!(!target.exists() && scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn what_is_not_http_beside_a_good_replica_costs_only_that_replica() {
    let (bytes, _, replica) = good(114);
    let garbage = Rogue::start(|_| Answer::raw(vec![0x16, 3, 1, 0, 0, 0xff, 0, b'\n', b'\n']));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[garbage.url("f"), replica.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn a_head_without_end_is_refused_and_not_kept_in_memory() {
    let endless = Rogue::start(|_| {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        for number in 0..200_000 {
            head.extend_from_slice(format!("X-Filler-{number}: 0123456789\r\n").as_bytes());
        }
        Answer::raw(head)
    });
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(endless.url("f"), &target)).fails(1, "peer", false, &["head"]);
    assert!(!target.exists());
}

#[test]
fn a_connection_kept_open_for_few_requests_only_is_no_fault() {
    let (bytes, object, _) = good(115);
    let closing = server(&object, |_, answer| answer.header("Connection", "close").then(Then::Close));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(closing.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}
