//! The dispatcher by its events: limits, places that become free, holds, what is down, words.

use std::time::Duration;

use gridlane_core::Time;
use gridlane_core::limits::{
    BREAKER_FAILURES, BREAKER_PAUSE, BREAKER_PAUSE_MAX, DISPATCH_STAGGER, DISPATCH_STARTS_MAX, DISPATCH_SWEEP,
};
use gridlane_dispatch::{
    Cancelled, Class, Dispatcher, Entry, Failure, Hold, HoldReason, Kind, LinkRule, Outcome, Rules, Side,
    Start, StorageRule, Verdict,
};
use gridlane_jobs::{FileId, Link};

const NONE: [i64; 0] = [];
const FREE: Verdict = Verdict::Retry { after: BREAKER_PAUSE, is_counted: false };
const DONE: Outcome = Outcome::Finished { bytes: 1_000_000 };

fn at(seconds: f64) -> Time {
    Time::ZERO.plus_s(100.0 + seconds)
}

fn link(source: &str, destination: &str) -> Link {
    Link { source: source.into(), destination: destination.into() }
}

fn entry(file: i64, link: Link) -> Entry {
    Entry {
        file: FileId(file),
        link,
        vo: "vo".into(),
        activity: "default".into(),
        priority: 3,
        size_bytes: 1_000_000,
        waited_s: 0,
        not_before: None,
        expires: None,
    }
}

fn rules(max_active: u32) -> Rules {
    let mut rules = Rules::default();
    rules.links.insert(("*".into(), "*".into()), LinkRule { min_active: 1, max_active, mode: 2 });
    rules
}

/// With so many copies a link, and so many files from a to b.
fn dispatcher(copies: u32, files: i64) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(rules(100), Kind::Fixed(copies), 1);
    for file in 0..files {
        assert!(dispatcher.submitted(&entry(file, link("a", "b")), at(0.0)));
    }
    dispatcher
}

fn started(dispatcher: &mut Dispatcher, seconds: f64) -> Vec<i64> {
    dispatcher.next(at(seconds)).starts.iter().map(|start| start.file.0).collect()
}

fn failure(class: Class) -> Outcome {
    Outcome::Failed(Failure {
        class,
        is_recoverable: true,
        attempts: 0,
        retries: 0,
        retry_pause: None,
        has_replica: false,
    })
}

#[test]
fn the_next_file_starts_while_the_last_is_verified_but_not_without_end() {
    let mut dispatcher = dispatcher(1, 10);
    assert_eq!(started(&mut dispatcher, 0.0), [0]);
    assert_eq!(started(&mut dispatcher, 5.0), NONE, "one at once");
    dispatcher.moved(FileId(0), 1_000_000, at(6.0));
    assert_eq!(started(&mut dispatcher, 6.0), [1], "in the same moment");
    dispatcher.moved(FileId(1), 1_000_000, at(7.0));
    assert_eq!(started(&mut dispatcher, 7.0), NONE, "two are verified");
    assert_eq!(dispatcher.ended(FileId(0), &DONE, at(8.0)), None);
    assert_eq!(started(&mut dispatcher, 8.0), [2]);
    assert_eq!(dispatcher.running(), 2);
}

#[test]
fn places_that_are_new_are_filled_one_by_one_and_others_at_once() {
    let mut dispatcher = dispatcher(10, 1000);
    let (mut now_s, mut starts) = (0.0, Vec::new());
    while starts.len() < 10 {
        let new = started(&mut dispatcher, now_s);
        assert!(new.len() <= 1, "{new:?} at once");
        starts.extend(new);
        if starts.len() < 10 {
            now_s = dispatcher.deadline(at(now_s)).unwrap().since(at(0.0)).as_secs_f64() + 1e-9;
        }
    }
    let stagger_s = DISPATCH_STAGGER.as_secs_f64();
    assert!(now_s > 0.8 * stagger_s && now_s < 1.01 * stagger_s, "{now_s}");
    for file in 0..5 {
        dispatcher.ended(FileId(file), &DONE, at(10.0));
    }
    assert_eq!(started(&mut dispatcher, 10.0).len(), 5);
    // What ended while nothing waited makes no place for a crowd.
    let mut idle = self::dispatcher(10, 10);
    for step in 0..20 {
        started(&mut idle, 0.1 * f64::from(step));
    }
    for file in 0..10 {
        idle.ended(FileId(file), &DONE, at(20.0));
    }
    assert_eq!(started(&mut idle, 20.0), NONE);
    for file in 10..20 {
        idle.submitted(&entry(file, link("a", "b")), at(30.0));
    }
    assert_eq!(started(&mut idle, 30.0).len(), 1);
}

#[test]
fn links_take_turns_at_a_storage_that_is_full() {
    let mut rules = rules(100);
    let limits = StorageRule {
        inbound_max_active: 2,
        outbound_max_active: 50,
        inbound_max_bytes_per_s: None,
        outbound_max_bytes_per_s: None,
    };
    rules.storages.insert("b".into(), limits);
    let mut dispatcher = Dispatcher::new(rules, Kind::Fixed(5), 1);
    for file in 0..40 {
        let source = ["s0", "s1", "s2", "s3"][file as usize % 4];
        dispatcher.submitted(&entry(file, link(source, "b")), at(0.0));
    }
    let (mut running, mut sources) = (Vec::new(), Vec::new());
    for second in 0..40 {
        let new = started(&mut dispatcher, f64::from(second));
        running.extend(new.iter().copied());
        sources.extend(new.iter().map(|file| file % 4));
        assert!(running.len() <= 2, "{running:?}");
        if second > 2 {
            assert_eq!(running.len(), 2.min(40 - sources.len() + running.len()), "no place stays empty");
        }
        let first = running.remove(0);
        let waits = dispatcher.why_waits(FileId(39), at(f64::from(second))).to_string();
        if second == 5 {
            assert_eq!(waits, "2 copies are being written to b, as many as may be");
        }
        dispatcher.ended(FileId(first), &DONE, at(f64::from(second)));
    }
    for window in sources.windows(8).skip(4).take(24) {
        let each = |source| window.iter().filter(|it| **it == source).count();
        assert!((0..4).all(|source| each(source) == 2), "{sources:?}");
    }
}

#[test]
fn holds_pauses_and_missing_shares_stop_files_and_force_does_not_care() {
    let mut dispatcher = dispatcher(5, 3);
    let mut held = rules(100);
    held.holds.insert("b".into(), vec![Hold { vo: Some("vo".into()), why: HoldReason::Banned }]);
    dispatcher.configured(held.clone());
    assert_eq!(started(&mut dispatcher, 0.0), NONE);
    assert_eq!(dispatcher.why_waits(FileId(1), at(0.0)).to_string(), "b is banned");
    let id = dispatcher.link_id(&link("a", "b")).unwrap();
    assert_eq!(
        dispatcher.why_slow(id, at(0.0)).unwrap().to_string(),
        "nothing of what waits may start: see its files"
    );
    dispatcher.submitted(&Entry { vo: "other".into(), ..entry(9, link("a", "b")) }, at(0.0));
    assert_eq!(started(&mut dispatcher, 0.0), [9], "another VO may");
    assert!(dispatcher.forced(FileId(2)));
    assert_eq!(started(&mut dispatcher, 0.0), [2]);
    dispatcher.configured(Rules { is_paused: true, ..rules(100) });
    assert_eq!(started(&mut dispatcher, 1.0), NONE);
    assert_eq!(dispatcher.why_waits(FileId(1), at(1.0)).to_string(), "the service is paused");
    let mut shares = rules(100);
    shares.shares.insert(("a".into(), "b".into()), [("other".to_owned(), 1)].into());
    dispatcher.configured(shares);
    assert!(dispatcher.why_waits(FileId(1), at(2.0)).to_string().starts_with("no share of its link"));
    let turn = dispatcher.next(at(2.0));
    assert_eq!((turn.refused, turn.starts), (vec![FileId(0), FileId(1)], vec![]));
    dispatcher.configured(rules(100));
    assert_eq!(dispatcher.waiting(), 0);
}

#[test]
fn files_without_a_share_are_all_refused_however_many_and_the_others_start() {
    let mut shares = rules(100);
    shares.shares.insert(("*".into(), "*".into()), [("vo".to_owned(), 1)].into());
    let mut dispatcher = Dispatcher::new(shares, Kind::Fixed(1), 1);
    let refused = 5 * DISPATCH_STARTS_MAX as i64 / 2;
    for file in 0..refused {
        let link = link(["a", "c"][file as usize % 2], "b");
        dispatcher.submitted(&Entry { vo: "other".into(), ..entry(file, link) }, at(0.0));
    }
    dispatcher.submitted(&entry(refused, link("a", "b")), at(0.0));
    let (mut all, mut starts) = (std::collections::BTreeSet::new(), Vec::new());
    // Nothing else happens: it is asked as long as it says that there is something to do now.
    while dispatcher.deadline(at(0.0)) == Some(at(0.0)) {
        let turn = dispatcher.next(at(0.0));
        assert!(turn.refused.len() <= DISPATCH_STARTS_MAX, "{} in a turn", turn.refused.len());
        assert!(!turn.refused.is_empty() || !turn.starts.is_empty(), "a turn with nothing in it");
        all.extend(turn.refused);
        starts.extend(turn.starts.iter().map(|start| start.file.0));
    }
    assert_eq!((all.len() as i64, starts, dispatcher.waiting()), (refused, vec![refused], 0));
}

#[test]
fn a_file_is_there_once_and_can_be_cancelled_and_expires() {
    let mut dispatcher = dispatcher(1, 2);
    assert!(!dispatcher.submitted(&entry(0, link("a", "b")), at(0.0)));
    assert_eq!(started(&mut dispatcher, 0.0), [0]);
    assert!(!dispatcher.submitted(&entry(0, link("a", "b")), at(0.0)), "it is being copied");
    let cancelled = [0, 1, 2].map(|file| dispatcher.cancelled(FileId(file)));
    assert_eq!(cancelled, [Cancelled::Running, Cancelled::Waiting, Cancelled::Unknown]);
    dispatcher.ended(FileId(0), &Outcome::Cancelled, at(1.0));
    assert_eq!(dispatcher.ended(FileId(0), &DONE, at(1.0)), None, "late reports change nothing");
    dispatcher.moved(FileId(0), 1, at(1.0));
    dispatcher.progress(FileId(0), 1, at(1.0));
    let limited = Entry { expires: Some(at(10.0)), not_before: Some(at(20.0)), ..entry(3, link("a", "b")) };
    dispatcher.submitted(&limited, at(2.0));
    assert!(dispatcher.why_waits(FileId(3), at(2.0)).to_string().starts_with("it is tried again in 18 s"));
    assert_eq!(dispatcher.next(at(10.0)).expired, [FileId(3)]);
    assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 0));
    assert_eq!(
        dispatcher.why_waits(FileId(3), at(10.0)).to_string(),
        "it does not wait, and is not being copied"
    );
}

#[test]
fn a_path_that_dies_is_probed_and_costs_no_attempts() {
    let mut dispatcher = dispatcher(50, 1000);
    let mut now_s = 0.0;
    while dispatcher.running() < 50 {
        started(&mut dispatcher, now_s);
        now_s += 0.05;
    }
    for file in 0..50 {
        let verdict = dispatcher.ended(FileId(file), &failure(Class::Path), at(now_s));
        assert_eq!(verdict, Some(FREE), "of file {file}");
    }
    let (down_at, mut probes, mut fails_at) = (now_s, 0, None::<(FileId, f64)>);
    while now_s < down_at + 60.0 {
        for start in dispatcher.next(at(now_s)).starts {
            assert!(start.is_probe && fails_at.is_none(), "one probe at a time");
            probes += 1;
            fails_at = Some((start.file, now_s + 2.0));
        }
        if let Some((file, _)) = fails_at.filter(|(_, fails_at)| *fails_at <= now_s) {
            fails_at = None;
            assert_eq!(dispatcher.ended(file, &failure(Class::Path), at(now_s)), Some(FREE));
        }
        now_s += 0.1;
    }
    assert!((4..=12).contains(&probes), "{probes}");
    assert!(
        dispatcher
            .why_waits(FileId(999), at(now_s))
            .to_string()
            .starts_with("its path has been down for 60 s")
    );
    // It is back.
    if let Some((file, _)) = fails_at {
        dispatcher.ended(file, &failure(Class::Path), at(now_s));
    }
    let back_s = now_s;
    loop {
        let starts = dispatcher.next(at(now_s)).starts;
        if let Some(Start { file, .. }) = starts.first() {
            dispatcher.progress(*file, 1000, at(now_s + 0.5));
            break;
        }
        now_s += 0.1;
    }
    assert!(now_s - back_s <= BREAKER_PAUSE_MAX.as_secs_f64() + 0.2, "{}", now_s - back_s);
    let back_s = now_s + 0.5;
    now_s = back_s;
    while dispatcher.running() < 50 {
        started(&mut dispatcher, now_s);
        now_s += 0.01;
    }
    assert!(now_s - back_s < 1.5, "as many as before, over a second: {}", now_s - back_s);
}

#[test]
fn a_path_that_takes_no_new_copy_is_down_though_an_old_one_still_moves() {
    let mut dispatcher = dispatcher(5, 1000);
    assert_eq!(started(&mut dispatcher, 0.0), [0]);
    let (mut now_s, mut starts, mut fails_at) = (5.0, 0, Vec::new());
    while now_s < 65.0 {
        // The first one is told of all the time; each other fails half a second after its start.
        dispatcher.progress(FileId(0), (now_s * 1000.0) as u64, at(now_s));
        for file in started(&mut dispatcher, now_s) {
            starts += 1;
            fails_at.push((file, now_s + 0.5));
        }
        let (due, later): (Vec<_>, Vec<_>) =
            fails_at.into_iter().partition(|(_, fails_at)| *fails_at <= now_s);
        fails_at = later;
        for (file, _) in due {
            dispatcher.ended(FileId(file), &failure(Class::Path), at(now_s));
        }
        now_s += 0.1;
    }
    assert!((8..=24).contains(&starts), "{starts} starts in a minute");
    let id = dispatcher.link_id(&link("a", "b")).unwrap();
    let pace = dispatcher.why_slow(id, at(now_s)).unwrap().to_string();
    assert!(pace.starts_with("the path or a storage has been down"), "{pace}");
}

/// A file fails so often, between others that are copied well, until it is not tried again for nothing: how often.
fn fails_until_it_counts(dispatcher: &mut Dispatcher, failures: u32, from_s: f64) -> u32 {
    for count in 0..failures {
        let now_s = from_s + 10.0 * f64::from(count);
        dispatcher.submitted(&entry(1, link("a", "b")), at(now_s));
        assert_eq!(started(dispatcher, now_s), [1]);
        let verdict = dispatcher.ended(FileId(1), &failure(Class::Path), at(now_s + 1.0));
        if verdict != Some(FREE) {
            assert_eq!(verdict, Some(Verdict::GiveUp));
            return count;
        }
        let good = 1000 + now_s as i64;
        dispatcher.submitted(&entry(good, link("a", "b")), at(now_s + 1.0));
        assert_eq!(started(dispatcher, now_s + 2.0), [good]);
        dispatcher.ended(FileId(good), &DONE, at(now_s + 3.0));
    }
    failures
}

#[test]
fn a_file_whose_own_fault_looks_like_that_of_the_path_is_not_tried_for_ever() {
    let mut dispatcher = dispatcher(1, 0);
    assert_eq!(fails_until_it_counts(&mut dispatcher, 100, 0.0), BREAKER_FAILURES);
    // When it has failed for good, or is not here any more for a while, nothing is kept of it.
    assert_eq!(fails_until_it_counts(&mut dispatcher, BREAKER_FAILURES - 1, 1000.0), BREAKER_FAILURES - 1);
    dispatcher.tick(at(2000.0) + DISPATCH_SWEEP);
    assert_eq!(fails_until_it_counts(&mut dispatcher, 100, 3000.0), BREAKER_FAILURES);
    // While it waits it is not forgotten.
    assert_eq!(fails_until_it_counts(&mut dispatcher, BREAKER_FAILURES - 1, 4000.0), BREAKER_FAILURES - 1);
    dispatcher.submitted(&Entry { not_before: Some(at(9000.0)), ..entry(1, link("a", "b")) }, at(4100.0));
    dispatcher.tick(at(8000.0));
    assert_eq!(fails_until_it_counts(&mut dispatcher, 100, 9001.0), 1);
}

#[test]
fn a_storage_that_dies_is_probed_by_one_of_its_links() {
    let mut dispatcher = Dispatcher::new(rules(100), Kind::Fixed(4), 1);
    for file in 0..100 {
        let destination = ["d0", "d1", "d2", "d3", "d4"][file as usize % 5];
        dispatcher.submitted(&entry(file, link("a", destination)), at(0.0));
    }
    let mut running = Vec::new();
    for step in 0..20 {
        running.extend(started(&mut dispatcher, 0.1 * f64::from(step)));
    }
    assert_eq!(running.len(), 20);
    for file in running {
        dispatcher.ended(FileId(file), &failure(Class::Storage(Side::Source)), at(10.0));
    }
    let (mut probe, mut probes, mut now_s) = (None::<i64>, 0, 10.0);
    while now_s < 100.0 {
        for file in started(&mut dispatcher, now_s) {
            assert_eq!(probe, None, "one for all links");
            probe = Some(file);
            probes += 1;
        }
        if let Some(file) = probe.take() {
            dispatcher.ended(FileId(file), &failure(Class::Storage(Side::Source)), at(now_s));
        }
        now_s += 0.5;
    }
    assert!((8..=20).contains(&probes), "{probes}");
    // A probe that is cancelled, and then links with other files: the storage is not forgotten.
    while probe.is_none() {
        probe = started(&mut dispatcher, now_s).first().copied();
        now_s += 0.5;
    }
    dispatcher.ended(FileId(probe.unwrap()), &Outcome::Cancelled, at(now_s));
    let next = loop {
        now_s += 0.5;
        if let Some(file) = started(&mut dispatcher, now_s).first().copied() {
            break file;
        }
        assert!(now_s < 130.0, "it is probed again");
    };
    dispatcher.progress(FileId(next), 1, at(now_s));
    let mut links = std::collections::BTreeSet::new();
    for step in 0..40 {
        links.extend(started(&mut dispatcher, now_s + 0.1 * f64::from(step)).iter().map(|file| file % 5));
    }
    assert_eq!(links.len(), 5, "all of them are back");
}

#[test]
fn two_dead_paths_without_a_live_one_are_a_dead_storage() {
    let mut dispatcher = Dispatcher::new(rules(100), Kind::Fixed(4), 1);
    for file in 0..60 {
        let destination = ["d0", "d1", "d2"][file as usize % 3];
        dispatcher.submitted(&entry(file, link("a", destination)), at(0.0));
    }
    let mut running = Vec::new();
    for step in 0..20 {
        running.extend(started(&mut dispatcher, 0.1 * f64::from(step)));
    }
    for file in running.iter().filter(|file| **file % 3 != 2) {
        dispatcher.ended(FileId(*file), &failure(Class::Path), at(10.0));
    }
    let third = dispatcher.link_id(&link("a", "d2")).unwrap();
    assert!(
        dispatcher
            .why_slow(third, at(10.0))
            .unwrap()
            .to_string()
            .starts_with("the path or a storage has been down")
    );
}

#[test]
fn an_idle_link_is_forgotten() {
    let mut dispatcher = dispatcher(1, 1);
    assert_eq!(started(&mut dispatcher, 0.0), [0]);
    dispatcher.ended(FileId(0), &DONE, at(1.0));
    dispatcher.tick(at(1000.0));
    assert_eq!(dispatcher.links().count(), 1);
    dispatcher.tick(at(2.0) + Duration::from_secs(7200));
    assert_eq!(dispatcher.links().count(), 0);
    dispatcher.submitted(&entry(1, link("c", "d")), at(10_000.0));
    assert_eq!(started(&mut dispatcher, 10_000.0), [1]);
}

#[test]
fn what_was_being_copied_before_a_restart_has_its_place() {
    let mut dispatcher = dispatcher(1, 1);
    assert!(dispatcher.adopted(&entry(7, link("a", "b")), at(0.0)));
    assert_eq!(started(&mut dispatcher, 0.0), NONE, "its place is taken");
    dispatcher.ended(FileId(7), &DONE, at(1.0));
    assert_eq!(started(&mut dispatcher, 1.0), [0]);
}
