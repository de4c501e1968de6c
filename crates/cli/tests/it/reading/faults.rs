//! Servers that are slow, dead, lie, ignore ranges, or break off: every byte that is delivered is right, and every call ends.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridlane_core::{ByteRange, ErrorKind};
use gridlane_engine::reading::{Policy, Proof};

use super::{large, open, open_with, options, scattered};
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Request, Rogue, closed_port_url};
use crate::support::{SOON, content, until};

/// A server over HTTP that answers requests for several ranges so.
fn with_several(bytes: &Arc<Vec<u8>>, several: fn(&Object, &Request) -> Answer) -> Rogue {
    let object = Object::new(bytes);
    Rogue::start(move |request| match request.header("range").is_some_and(|range| range.contains(',')) {
        true => several(&object, request),
        false => object.answer(request),
    })
}

#[test]
fn servers_that_do_not_understand_several_ranges_are_read_all_the_same() {
    let bytes = large(5101);
    let answers: [fn(&Object, &Request) -> Answer; 6] = [
        // Everything; the first range alone; a refusal; an error; none of them; nothing at all.
        |object, request| object.answer_whole(request),
        |object, request| {
            let mut first = request.clone();
            let text = request.header("range").unwrap().trim_start_matches("bytes=");
            let (from, to) = text.split(',').next().unwrap().split_once('-').unwrap();
            first.range = Some((from.parse().unwrap(), Some(to.parse().unwrap())));
            object.answer(&first)
        },
        |_, _| Answer::status(400),
        |_, _| Answer::status(500).then(Then::Close),
        |object, _| Answer::status(416).header("Content-Range", format!("bytes */{}", object.bytes.len())),
        |_, _| Answer::raw(Vec::new()).then(Then::Stall),
    ];
    for (nth, several) in answers.into_iter().enumerate() {
        let server = with_several(&bytes, several);
        let opened = open_with(&[server.url("f")], None, options(Policy::Vector)).unwrap();
        for seed in [5102, 5103] {
            opened.check(&scattered(seed, bytes.len(), 300, 1500), &bytes);
        }
        let is_of_several =
            |request: &&Request| request.header("range").is_some_and(|range| range.contains(','));
        let asked = server.requests().iter().filter(is_of_several).count();
        assert!((1..40).contains(&asked), "answer {nth}: asked for several ranges {asked} times");
    }
}

#[test]
fn a_server_without_ranges_is_read_from_its_beginning() {
    let bytes = content(5104, 9_000_001);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer_whole(request));
    let opened = open(&server.url("f"));
    opened.check(&scattered(5105, bytes.len(), 300, 1500), &bytes);
    opened.check(&[ByteRange::at(0, 9_000_001)], &bytes);
    assert!(opened.explain().moved_in_all() < 30_000_000, "{}", opened.explain());
}

#[test]
fn eos_says_200_and_sends_a_part() {
    let bytes = large(5106);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| {
        let mut answer = object.answer(request);
        answer.status = 200;
        answer
    });
    let opened = open(&server.url("f"));
    opened.check(&scattered(5107, bytes.len(), 100, 1500), &bytes);
}

#[test]
fn answers_that_break_off_are_asked_for_again() {
    let bytes = large(5108);
    let (object, count) = (Object::new(&bytes), AtomicUsize::new(0));
    let server = Rogue::start(move |request| {
        let answer = object.answer(request);
        let len = answer.range.len();
        match count.fetch_add(1, Relaxed) % 5 {
            3 => answer.cut(len / 2, Then::Close),
            _ => answer,
        }
    });
    let opened = open(&server.url("f"));
    opened.check(&scattered(5109, bytes.len(), 60, 1500), &bytes);
    opened.check(&[ByteRange::at(2_000_000, 4_000_000)], &bytes);
    assert!(opened.explain().failures > 0);
}

#[test]
fn a_server_that_falls_silent_does_not_hold_a_read_for_ever() {
    let bytes = large(5110);
    let object = Object::new(&bytes);
    let silent = Rogue::start(move |request| match request.range {
        Some((first, _)) if first > 1_000_000 => Answer::raw(Vec::new()).then(Then::Stall),
        _ => object.answer(request),
    });
    let opened = open(&silent.url("f"));
    let begun = Instant::now();
    let range = ByteRange::at(10_000_000, 1000);
    let error = opened.read_for(&[range], Some(Duration::from_secs(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Without a deadline of its own: as long as the file's patience.
    let error = opened.read(&[range]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    // With a replica that answers, it is not missed.
    let object = Object::new(&bytes);
    let other = Rogue::start(move |request| object.answer(request));
    let urls = [silent.url("f"), other.url("f")];
    let opened = open_with(&urls, None, options(Policy::Adaptive)).unwrap();
    opened.check(&scattered(5111, bytes.len(), 100, 1500), &bytes);
}

#[test]
fn when_no_source_is_left_it_says_why() {
    let begun = Instant::now();
    let urls = [closed_port_url("f"), closed_port_url("g")];
    let error = open_with(&urls, None, options(Policy::Adaptive)).err().unwrap();
    assert!(error.is_unreached() || error.kind() == ErrorKind::Network, "{error:?}");
    assert!(begun.elapsed() < SOON);
    // The file goes away while it is read.
    let bytes = large(5112);
    let (object, count) = (Object::new(&bytes), AtomicUsize::new(0));
    let server = Rogue::start(move |request| match count.fetch_add(1, Relaxed) {
        0..4 => object.answer(request),
        _ => Answer::status(404),
    });
    let opened = open(&server.url("f"));
    let error = (0..20).find_map(|nth| opened.read(&[ByteRange::at(3_000_000 + nth * 100_000, 10)]).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn a_file_that_changes_is_not_mixed() {
    let (old, new) = (large(5113), large(5114));
    let objects = [Object::new(&old), Object::new(&new)];
    let changed = Arc::new(Mutex::new(false));
    let now = Arc::clone(&changed);
    let server = Rogue::start(move |request| objects[usize::from(*now.lock().unwrap())].answer(request));
    let opened = open(&server.url("f"));
    opened.check(&scattered(5115, old.len(), 20, 1500), &old);
    *changed.lock().unwrap() = true;
    let ranges = scattered(5116, old.len(), 200, 1500);
    match opened.read(&ranges) {
        // What was there already.
        Ok(found) => {
            let wanted = ranges.iter().map(|range| range.intersection(ByteRange::new(0, old.len() as u64)));
            let wanted = wanted.map(|range| old[range.start() as usize..range.end() as usize].to_vec());
            assert!(found == wanted.collect::<Vec<_>>());
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Precondition, "{error:?}"),
    }
}

#[test]
fn a_replica_of_another_size_is_left_out() {
    let (right, other) = (large(5117), content(5118, 1_000_000));
    let (object, asked) = (Object::new(&right), Arc::new(AtomicUsize::new(0)));
    let counting = Arc::clone(&asked);
    let first = Rogue::start(move |request| {
        counting.fetch_add(1, Relaxed);
        object.answer(request)
    });
    let object = Object::new(&other);
    let second = Rogue::start(move |request| {
        // The other one has told its size by then: the file is open.
        until("the first replica has answered", || asked.load(Relaxed) > 1);
        object.answer(request)
    });
    let opened = open_with(&[second.url("f"), first.url("f")], None, options(Policy::Vector)).unwrap();
    assert_eq!(opened.file.size_bytes(), right.len() as u64);
    let mut seed = 5119;
    until("the second one is left out", || {
        seed += 1;
        opened.check(&scattered(seed, right.len(), 500, 1500), &right);
        opened.explain().failures > 0
    });
    let explain = opened.explain();
    assert!(explain.last_failure.as_ref().unwrap().contains("1000000 bytes"), "{explain}");
    // It is not asked again.
    let before = second.requests().len();
    opened.check(&scattered(5118, right.len(), 500, 1500), &right);
    assert_eq!(second.requests().len(), before);
}

#[test]
fn wrong_bytes_are_found_when_all_are_there() {
    let bytes = content(5120, 500_000);
    let mut wrong = bytes.to_vec();
    wrong[100_000] ^= 1;
    let (right, wrong) = (Object::new(&bytes), Arc::new(wrong));
    let liar = Object { bytes: wrong, ..right };
    let server = Rogue::start(move |request| liar.answer(request));
    let opened = open_with(&[server.url("f")], None, options(Policy::Copy)).unwrap();
    let _ = opened.read(&[ByteRange::at(0, 500_000)]);
    until("it is found", || matches!(opened.proof(), Proof::Wrong(_)));
    let error = opened.read(&[ByteRange::at(0, 10)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{error:?}");
}

#[test]
fn a_cancelled_call_frees_the_way_for_others() {
    let bytes = large(5121);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let opened = open(&server.url("f"));
    for seed in 0..50 {
        drop(opened.file.read(&scattered(5122 + seed, bytes.len(), 300, 1500), None));
    }
    opened.check(&scattered(5180, bytes.len(), 300, 1500), &bytes);
}
