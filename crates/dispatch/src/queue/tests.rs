//! The queue against a naive one, its shares, its room.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn entry(file: i64) -> Entry {
    Entry {
        file: FileId(file),
        link: Link { source: "davs://a".into(), destination: "davs://b".into() },
        vo: "vo".into(),
        activity: "default".into(),
        priority: 3,
        size_bytes: 1_000_000,
        waited_s: 0,
        not_before: None,
        expires: None,
    }
}

#[test]
fn ten_million_files_are_less_than_a_gigabyte() {
    let (mut queue, rules) = (Queue::default(), Rules::default());
    let files = 300_000;
    for file in 0..files {
        let link = Link { source: format!("s{}", file % 10).as_str().into(), destination: "d".into() };
        let (not_before, expires) = (Some(at(100)).filter(|_| file % 10 == 0), Some(at(1000 + file as u64)));
        queue.insert(&Entry { link, not_before, expires, ..entry(file) }, &rules, at(1)).unwrap();
    }
    let each = queue.bytes() as f64 / files as f64;
    assert!(each < 90.0, "{each} bytes for a file");
    // What has been, and ended before its time was over, takes no more.
    for file in 0..files {
        assert!(queue.remove(FileId(file)).is_some());
        let next = Entry { expires: Some(at(1_000_000)), ..entry(files + file) };
        queue.insert(&next, &rules, at(1)).unwrap();
    }
    assert!(queue.bytes() as f64 / (files as f64) < 100.0, "{}", queue.bytes());
}

/// Sums of the bytes that VOs or activities get of so many starts.
fn served(
    queue: &mut Queue,
    rules: &Rules,
    link: LinkId,
    starts: usize,
    of: impl Fn(i64) -> usize,
) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for _ in 0..starts {
        let taken = queue.choose(link, rules).unwrap();
        sums[of(taken.file.0)] += taken.size_bytes as f64;
    }
    let all: f64 = sums.iter().sum();
    sums.map(|sum| sum / all)
}

#[test]
fn vos_have_their_shares_in_bytes_and_one_that_is_alone_has_all() {
    let mut rules = Rules::default();
    let weights = [("0", 5), ("1", 3), ("public", 2)].map(|(vo, weight)| (vo.to_owned(), weight));
    rules.shares.insert(("*".into(), "*".into()), weights.into());
    let mut queue = Queue::default();
    let sizes = [1_000_000_000, 4_000_000_000, 500_000_000];
    let mut link = LinkId(0);
    for file in 0..30_000 {
        let vo = (file % 3) as usize;
        let new = Entry { vo: vo.to_string(), size_bytes: sizes[vo], ..entry(file) };
        link = queue.insert(&new, &rules, at(1)).unwrap();
    }
    let shares = served(&mut queue, &rules, link, 10_000, |file| (file % 3) as usize);
    for (share, due) in shares.iter().zip([0.5, 0.3, 0.2]) {
        assert!((share - due).abs() < 0.02, "{shares:?}");
    }
    for file in (0..30_000).filter(|file| file % 3 != 1) {
        queue.remove(FileId(file));
    }
    assert_eq!(served(&mut queue, &rules, link, 1000, |file| (file % 3) as usize), [0.0, 1.0, 0.0]);
    // What was not there for a while does not catch up.
    for file in 40_000..50_000 {
        queue.insert(&Entry { vo: "0".into(), size_bytes: sizes[0], ..entry(file) }, &rules, at(1)).unwrap();
    }
    let shares =
        served(&mut queue, &rules, link, 2000, |file| if file < 40_000 { (file % 3) as usize } else { 0 });
    assert!((shares[0] - 0.625).abs() < 0.03, "{shares:?}");
}

#[test]
fn a_vo_that_lies_about_sizes_is_charged_for_what_was_moved() {
    let (mut queue, rules, mut link) = (Queue::default(), Rules::default(), LinkId(0));
    for file in 0..20_000 {
        let size_bytes = if file % 2 == 0 { 1_000_000_000 } else { 1 };
        let vo = (file % 2).to_string();
        link = queue.insert(&Entry { vo, size_bytes, ..entry(file) }, &rules, at(1)).unwrap();
    }
    let mut starts = [0; 2];
    for _ in 0..2000 {
        let taken = queue.choose(link, &rules).unwrap();
        starts[(taken.file.0 % 2) as usize] += 1;
        queue.charge(&taken, 1_000_000_000);
    }
    assert!(starts[0] > 980, "{starts:?}");
}

#[test]
fn activities_have_their_shares_and_those_that_are_not_named_that_of_default() {
    let mut rules = Rules::default();
    let weights = [("production", 0.7), ("default", 0.15)].map(|(name, weight)| (name.to_owned(), weight));
    rules.activities.insert("vo".into(), weights.into());
    let (mut queue, mut link) = (Queue::default(), LinkId(0));
    let names = ["Production", "user", "debug"];
    for file in 0..9000 {
        let activity = names[(file % 3) as usize].to_owned();
        link = queue.insert(&Entry { activity, ..entry(file) }, &rules, at(1)).unwrap();
    }
    let shares = served(&mut queue, &rules, link, 2000, |file| (file % 3) as usize);
    for (share, due) in shares.iter().zip([0.7, 0.15, 0.15]) {
        assert!((share - due).abs() < 0.02, "{shares:?}");
    }
}

#[test]
fn an_activity_that_comes_with_one_file_at_a_time_has_no_more_than_its_share() {
    let mut rules = Rules::default();
    let weights = [("production", 0.9), ("default", 0.1)].map(|(name, weight)| (name.to_owned(), weight));
    rules.activities.insert("vo".into(), weights.into());
    let (mut queue, mut link) = (Queue::default(), LinkId(0));
    for file in 0..4000 {
        let activity = "production".to_owned();
        link = queue.insert(&Entry { activity, ..entry(file) }, &rules, at(1)).unwrap();
    }
    let (mut next, mut trickled) = (10_000, 0);
    for _ in 0..2000 {
        // As soon as its file has started there is another one.
        if queue.find(FileId(next)).is_none() {
            next += 1;
            queue.insert(&Entry { activity: "user".into(), ..entry(next) }, &rules, at(1)).unwrap();
        }
        trickled += i32::from(queue.choose(link, &rules).unwrap().file.0 > 4000);
    }
    assert!((180..=220).contains(&trickled), "{trickled} of 2000");
}

#[test]
fn an_activity_that_is_new_does_not_keep_those_out_that_had_much() {
    let mut rules = Rules::default();
    let weights = [("a", 0.5), ("default", 0.5)].map(|(name, weight)| (name.to_owned(), weight));
    rules.activities.insert("vo".into(), weights.into());
    let (mut queue, mut link) = (Queue::default(), LinkId(0));
    // One was alone for long, and has nothing now; then another one comes, and it comes again.
    for file in 0..1000 {
        link = queue.insert(&Entry { activity: "a".into(), ..entry(file) }, &rules, at(1)).unwrap();
        assert!(queue.choose(link, &rules).is_some());
    }
    for file in 1000..2000 {
        let activity = ["b", "a"][(file % 2) as usize].to_owned();
        queue.insert(&Entry { activity, ..entry(file) }, &rules, at(2)).unwrap();
    }
    let shares = served(&mut queue, &rules, link, 100, |file| (file % 2) as usize);
    assert!((shares[0] - 0.5).abs() < 0.03, "{shares:?}");
}

#[test]
fn what_activities_had_is_remembered_of_so_many_and_goes_with_the_link() {
    let mut rules = Rules::default();
    rules.activities.insert("vo".into(), [("default".to_owned(), 0.5)].into());
    let (mut queue, mut link) = (Queue::default(), LinkId(0));
    // One that had nothing waits all the time, so that all others stand before it.
    queue.insert(&Entry { priority: 1, ..entry(0) }, &rules, at(1)).unwrap();
    for round in 0..8 {
        for number in 1..200 {
            let file = 1000 * round + number;
            let new = Entry { activity: format!("a{file}"), size_bytes: 1, ..entry(file) };
            link = queue.insert(&new, &rules, at(1)).unwrap();
        }
        for _ in 1..200 {
            let taken = queue.choose(link, &rules).unwrap();
            if taken.file == FileId(0) {
                queue.insert(&entry(0), &rules, at(1)).unwrap();
            }
        }
        let past = queue.links[0].as_ref().unwrap().vos[0].past.len();
        assert!(past > 0 && past <= DISPATCH_ACTIVITIES_MAX, "{past}");
    }
    let files: Vec<i64> = (0..8000).filter(|file| queue.find(FileId(*file)).is_some()).collect();
    for file in files {
        queue.remove(FileId(file));
    }
    assert!(queue.forget_link(link));
    let kept = (0..8000).filter(|file| queue.activities.find(&format!("a{file}")).is_some()).count();
    assert_eq!((kept, queue.activities.find("default")), (0, None), "names are free again");
}

#[test]
fn activities_beyond_the_limit_are_one() {
    let (mut queue, rules) = (Queue::default(), Rules::default());
    for file in 0..2000 {
        let activity = format!("a{file}");
        queue.insert(&Entry { activity, ..entry(file) }, &rules, at(1)).unwrap();
    }
    assert!(queue.bins.len() <= DISPATCH_ACTIVITIES_MAX + 1, "{}", queue.bins.len());
    for file in 0..2000 {
        assert!(queue.remove(FileId(file)).is_some());
    }
    assert_eq!((queue.bins_free.len(), queue.len()), (queue.bins.len(), 0), "empty ones are free again");
}

#[test]
fn what_has_waited_long_goes_before_what_is_more_important() {
    let (mut queue, rules) = (Queue::default(), Rules::default());
    let link = queue.insert(&Entry { priority: 1, ..entry(0) }, &rules, at(10)).unwrap();
    // One urgent file comes each second, and one file starts.
    let mut started_at = None;
    for second in 11..20_000 {
        queue.insert(&Entry { priority: 5, ..entry(second as i64) }, &rules, at(second)).unwrap();
        let taken = queue.choose(link, &rules).unwrap();
        if taken.file == FileId(0) {
            started_at = Some(second);
            break;
        }
    }
    let four_steps = 4 * DISPATCH_AGING.as_secs();
    assert!(started_at.is_some_and(|at| at > four_steps - 60 && at <= four_steps + 60), "{started_at:?}");
    let old = Entry { priority: 1, waited_s: 8000, ..entry(-1) };
    queue.insert(&old, &rules, at(20)).unwrap();
    assert_eq!(queue.choose(link, &rules).unwrap().file, FileId(-1), "also across a restart");
}

#[test]
fn times_are_kept() {
    let (mut queue, rules) = (Queue::default(), Rules::default());
    let later = Entry { not_before: Some(Time::ZERO.plus_s(10.5)), expires: Some(at(20)), ..entry(1) };
    let link = queue.insert(&later, &rules, at(1)).unwrap();
    assert_eq!((queue.waiting(link), queue.next_due()), ((0, 1), Some(at(11))));
    let mut woken = 0;
    queue.wake(at(10), |_| woken += 1);
    assert_eq!((woken, queue.choose(link, &rules)), (0, None));
    queue.wake(at(11), |_| woken += 1);
    assert_eq!((woken, queue.waiting(link), queue.next_due()), (1, (1, 1), Some(at(20))));
    assert_eq!(
        (queue.expire(at(19)), queue.expire(at(20)), queue.expire(at(20))),
        (None, Some(FileId(1)), None)
    );
    assert!(queue.forget_link(link));
    assert_eq!(queue.find_link(&entry(1).link), None);
    assert!(queue.storages.find("davs://a").is_none() && queue.vos.find("vo").is_none());
}

/// What a file does in the naive queue.
#[derive(Clone, Copy, Debug)]
struct Naive {
    link: u8,
    wakes_s: u64,
    expires_s: u64,
}

#[derive(Clone, Debug)]
enum Op {
    Insert { file: u8, link: u8, vo: u8, activity: u8, priority: u8, delay_s: u8, lasts_s: u8 },
    Remove(u8),
    Priority(u8, u8),
    Choose(u8),
    Pass(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<[u8; 7]>()).prop_map(|[file, link, vo, activity, priority, delay_s, lasts_s]| Op::Insert {
            file, link: link % 3, vo: vo % 3, activity: activity % 3, priority: priority % 7,
            delay_s: (delay_s % 64).saturating_sub(32), lasts_s: (lasts_s % 128).saturating_sub(64),
        }),
        1 => any::<u8>().prop_map(Op::Remove),
        1 => any::<(u8, u8)>().prop_map(|(file, priority)| Op::Priority(file, priority)),
        2 => (0..3u8).prop_map(Op::Choose),
        2 => (0..20u8).prop_map(Op::Pass),
    ]
}

fn name(link: u8) -> Link {
    Link { source: format!("s{}", link % 2).as_str().into(), destination: format!("d{link}").as_str().into() }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn it_holds_what_a_naive_queue_holds(ops in proptest::collection::vec(op(), 1..300)) {
        let (mut queue, mut rules) = (Queue::default(), Rules::default());
        // One VO has no shares of activities.
        for vo in ["0", "1"] {
            rules.activities.insert(vo.into(), [("0".to_owned(), 0.7), ("default".to_owned(), 0.2)].into());
        }
        let mut naive: HashMap<i64, Naive> = HashMap::new();
        let mut now_s = 1u64;
        for op in ops {
            match op {
                Op::Insert { file, link, vo, activity, priority, delay_s, lasts_s } => {
                    let (delay_s, lasts_s) = (u64::from(delay_s), u64::from(lasts_s));
                    let new = Entry {
                        link: name(link),
                        vo: vo.to_string(),
                        activity: activity.to_string(),
                        priority,
                        not_before: Some(at(now_s + delay_s)),
                        expires: (lasts_s > 0).then(|| at(now_s + lasts_s)),
                        ..entry(file.into())
                    };
                    let inserted = queue.insert(&new, &rules, at(now_s)).is_some();
                    prop_assert_eq!(inserted, !naive.contains_key(&file.into()));
                    let expires_s = if lasts_s > 0 { now_s + lasts_s } else { u64::MAX };
                    naive.entry(file.into()).or_insert(Naive { link, wakes_s: now_s + delay_s, expires_s });
                }
                Op::Remove(file) => {
                    prop_assert_eq!(queue.remove(FileId(file.into())).is_some(), naive.remove(&file.into()).is_some());
                }
                Op::Priority(file, priority) => {
                    prop_assert_eq!(queue.set_priority(FileId(file.into()), priority), naive.contains_key(&file.into()));
                }
                Op::Choose(link) => {
                    let chosen = queue.find_link(&name(link)).and_then(|id| queue.choose(id, &rules));
                    let may: Vec<i64> = naive.iter().filter(|(_, it)| it.link == link && it.wakes_s <= now_s).map(|(file, _)| *file).collect();
                    match chosen {
                        Some(taken) => {
                            prop_assert!(may.contains(&taken.file.0));
                            naive.remove(&taken.file.0);
                        }
                        None => prop_assert!(may.is_empty(), "{:?} may start", may),
                    }
                }
                Op::Pass(seconds) => {
                    now_s += u64::from(seconds);
                    while let Some(file) = queue.expire(at(now_s)) {
                        let gone = naive.remove(&file.0);
                        prop_assert!(gone.is_some_and(|it| it.expires_s <= now_s));
                    }
                    queue.wake(at(now_s), |_| {});
                    prop_assert!(naive.values().all(|it| it.expires_s > now_s));
                }
            }
            prop_assert_eq!(queue.len(), naive.len());
            let total: u32 = (0..3).filter_map(|link| queue.find_link(&name(link))).map(|id| queue.waiting(id).1).sum();
            prop_assert_eq!(total as usize, naive.len());
        }
    }
}
