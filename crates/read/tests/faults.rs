//! Single situations: shared reads, cancelled ones, deadlines, and servers that are slow, dead, lying, cutting or ignorant of
//! ranges. The bytes are real, and every one of them is compared by the simulated engine.

mod sim;

use gridlane_core::{ByteRange, ErrorKind};
use gridlane_read::{Hint, Policy, Purpose, Settings};
use sim::{App, MB, Outcome, Server, Sim, Timed, events};

const SIZE: u64 = 8_000_000;

fn fast() -> Server {
    Server::new(50.0 * MB, 0.02)
}

fn run(servers: &[Server], settings: Settings, app: &App) -> Outcome {
    let mut sim = Sim::<Vec<u8>>::new(SIZE, settings, servers);
    sim.is_strict = servers.len() == 1;
    sim.run(app)
}

fn at(at_s: f64, range: ByteRange) -> Timed {
    Timed { at_s, ranges: vec![range], ..Timed::default() }
}

/// Reads of 1 kB all over the file, in one call.
fn scattered() -> Vec<ByteRange> {
    events(SIZE, 1000, 0.2, false, 7)
}

#[test]
fn two_readers_of_the_same_bytes_share_a_request() {
    let range = ByteRange::new(1_000_000, 1_400_000);
    let app =
        App::Timed(vec![at(1.0, range), at(1.0, range), at(1.005, ByteRange::new(1_100_000, 1_200_000))]);
    let outcome = run(&[fast()], Settings::forced(Policy::Vector), &app);
    assert!(outcome.failures.is_empty());
    assert_eq!(outcome.explain.shared, 2);
    assert_eq!((outcome.explain.moved_in_all(), outcome.explain.wanted_bytes), (range.len(), range.len()));
    assert_eq!(outcome.explain.delivered_bytes, 2 * range.len() + 100_000);
}

#[test]
fn a_call_with_identical_and_overlapping_ranges_gets_each_of_them() {
    let range = ByteRange::new(5000, 9000);
    let ranges = vec![
        range,
        ByteRange::new(8000, 10_000),
        range,
        ByteRange::at(SIZE - 10, 100),
        ByteRange::at(SIZE + 5, 5),
        range,
    ];
    for policy in Policy::ALL {
        let outcome = run(&[fast()], Settings::forced(policy), &App::known(&ranges));
        assert!(outcome.failures.is_empty(), "{policy:?}: {:?}", outcome.failures);
    }
}

#[test]
fn a_file_that_is_all_there_holds_no_connection() {
    let read = |range| run(&[fast()], Settings::forced(Policy::Vector), &App::Timed(vec![at(1.0, range)]));
    let half = read(ByteRange::new(0, SIZE / 2));
    let whole = read(ByteRange::new(0, SIZE));
    assert!(half.failures.is_empty() && whole.failures.is_empty());
    assert_eq!((half.connections, whole.connections), (Settings::default().lanes, 0));
}

/// The number of connections at a time.
fn connections_at(outcome: &Outcome, at_s: f64) -> usize {
    outcome.connections_by.iter().rev().find(|(since_s, _)| *since_s <= at_s).map_or(0, |(_, count)| *count)
}

#[test]
fn an_idle_file_has_one_connection_and_others_when_it_needs_them() {
    let large = ByteRange::new(2_000_000, 7_000_000);
    let app = App::Timed(vec![
        at(1.0, ByteRange::new(0, 1000)),
        at(60.0, ByteRange::new(1_500_000, 1_501_000)),
        at(120.0, large),
        at(180.0, ByteRange::new(7_500_000, 7_500_100)),
    ]);
    let outcome = run(&[fast()], Settings::forced(Policy::Vector), &app);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let counts =
        [4.0, 7.0, 60.5, 119.0, 121.0, 125.0, 127.0, 180.0].map(|at_s| connections_at(&outcome, at_s));
    assert_eq!(counts, [8, 1, 1, 1, 8, 8, 1, 1], "{:?}", outcome.connections_by);
    // Nothing is waited for but a round trip.
    assert!((outcome.finish_s - 180.02).abs() < 0.005, "{}", outcome.finish_s);
}

#[test]
fn a_file_is_opened_with_few_connections_where_there_are_many_others() {
    let settings = Settings { lanes_at_first: 1, ..Settings::forced(Policy::Vector) };
    let small = at(1.0, ByteRange::new(0, 1000));
    let outcome = run(&[fast()], settings.clone(), &App::Timed(vec![small.clone()]));
    assert_eq!(outcome.explain.handshakes, 1, "{}", outcome.explain);
    let large = at(2.0, ByteRange::new(0, 4_000_000));
    let outcome = run(&[fast(), fast()], settings, &App::Timed(vec![small, large]));
    assert_eq!(outcome.explain.handshakes, 8, "{}", outcome.explain);
}

#[test]
fn a_connection_that_died_while_the_file_was_idle_is_replaced() {
    let app = |gap_s: f64| {
        App::Timed(vec![
            at(1.0, ByteRange::new(0, 1000)),
            at(1.0 + gap_s, ByteRange::new(3_000_000, 3_001_000)),
        ])
    };
    let silent = fast().with(|server| server.forgets_idle_after_s = Some(20.0));
    let mut sim = Sim::<Vec<u8>>::new(SIZE, Settings::forced(Policy::Vector), &[silent]);
    // What it owes is asked for once more.
    sim.is_strict = false;
    let outcome = sim.run(&app(60.0));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(outcome.finish_s < 61.0 + 1.2, "{} s", outcome.finish_s);
    // A server that closes what is idle is not dialled before something is wanted.
    let closing = fast().with(|server| server.closes_idle_after_s = Some(3.0));
    let outcome = run(&[closing], Settings::forced(Policy::Vector), &app(60.0));
    assert!(outcome.failures.is_empty() && outcome.explain.failures == 0, "{:?}", outcome.failures);
    assert_eq!(connections_at(&outcome, 50.0), 0, "{:?}", outcome.connections_by);
    assert!(outcome.finish_s < 61.2, "{} s", outcome.finish_s);
}

#[test]
fn another_replica_is_tried_where_the_first_is_gone_when_an_idle_file_is_read() {
    let closing = || fast().with(|server| server.closes_idle_after_s = Some(3.0));
    let gone = closing().with(|server| server.silent_from_s = Some(30.0));
    let app =
        App::Timed(vec![at(1.0, ByteRange::new(0, 1000)), at(60.0, ByteRange::new(3_000_000, 3_001_000))]);
    let outcome = run(&[gone, closing()], Settings::forced(Policy::Vector), &app);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(outcome.finish_s < 60.5, "{} s", outcome.finish_s);
}

#[test]
fn a_hint_wakes_an_idle_file() {
    let closing = fast().with(|server| server.closes_idle_after_s = Some(3.0));
    let mut sim = Sim::<Vec<u8>>::new(SIZE, Settings::default(), &[closing]);
    sim.late_hints = vec![(30.0, Hint::Everything)];
    let read = at(60.0, ByteRange::new(3_000_000, 3_001_000));
    let outcome = sim.run(&App::Timed(vec![at(1.0, ByteRange::new(0, 1000)), read]));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(connections_at(&outcome, 29.0), 0, "{:?}", outcome.connections_by);
    assert!(outcome.explain.moved_in_all() >= SIZE && outcome.explain.hits == 2, "{}", outcome.explain);
}

#[test]
fn a_cancelled_read_frees_what_it_held() {
    let large = Timed { cancel_s: Some(0.11), ..at(0.1, ByteRange::new(0, SIZE)) };
    let app = App::Timed(vec![large, at(0.5, ByteRange::new(0, 1000))]);
    let outcome = run(&[fast()], Settings::forced(Policy::Vector), &app);
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(outcome.failures[0].1.kind(), ErrorKind::Interrupted);
    assert_eq!((outcome.waiting, outcome.owed_bytes), (0, 0));
    assert!(outcome.taken_back > 0 && outcome.explain.moved_in_all() < SIZE, "{}", outcome.explain);
}

#[test]
fn a_read_fails_at_its_deadline() {
    let silent = fast().with(|server| server.silent_from_s = Some(0.15));
    let late = Timed { deadline_s: Some(0.7), ..at(0.2, ByteRange::new(0, 1000)) };
    let outcome = run(&[silent], Settings::forced(Policy::Vector), &App::Timed(vec![late]));
    assert_eq!(outcome.failures[0].1.kind(), ErrorKind::Timeout);
    assert!((outcome.finish_s - 0.7).abs() < 0.001, "{}", outcome.finish_s);
}

#[test]
fn dead_sources_are_a_clear_error_and_no_hang() {
    let down = fast().with(|server| server.down_from_s = Some(0.2));
    let app = App::Timed(vec![
        at(0.1, ByteRange::new(0, 1000)),
        at(0.5, ByteRange::new(SIZE - 900_000, SIZE - 500_000)),
        at(200.0, ByteRange::new(SIZE - 900_000, SIZE)),
    ]);
    let outcome = run(&[down.clone(), down], Settings::forced(Policy::Vector), &app);
    assert_eq!(outcome.failures.len(), 2, "the first read was answered");
    for (_, error) in &outcome.failures {
        assert_eq!(error.kind(), ErrorKind::Network);
        assert!(error.message().contains("none of the 2 replicas is left"), "{}", error.message());
    }
    assert!((outcome.finish_s - 200.0).abs() < 0.01, "the last one fails at once");
    let nothing = fast().with(|server| server.has_no_file = true);
    let outcome = run(&[nothing], Settings::default(), &App::Timed(vec![at(0.0, ByteRange::new(0, 10))]));
    assert_eq!(outcome.failures[0].1.kind(), ErrorKind::NotFound);
}

#[test]
fn silence_everywhere_ends_with_patience() {
    let silent = fast().with(|server| server.silent_from_s = Some(0.0));
    let outcome = run(&[silent], Settings::default(), &App::Timed(vec![at(0.0, ByteRange::new(0, 10))]));
    assert_eq!(outcome.failures[0].1.kind(), ErrorKind::Timeout);
    assert!(outcome.finish_s <= 61.0, "{}", outcome.finish_s);
}

#[test]
fn a_single_lane_comes_to_the_source_that_answers() {
    let silent = fast().with(|server| server.silent_from_s = Some(0.0));
    let app = App::Timed(vec![at(0.0, ByteRange::new(0, 10))]);
    let outcome = run(&[silent.clone(), silent, fast()], Settings { lanes: 1, ..Settings::default() }, &app);
    assert!(outcome.failures.is_empty() && outcome.finish_s < 31.0, "{} s", outcome.finish_s);
}

#[test]
fn what_a_silent_source_owes_comes_from_another() {
    let silent = fast().with(|server| server.silent_from_s = Some(0.15));
    let outcome = run(&[silent, fast()], Settings::forced(Policy::Vector), &App::known(&scattered()));
    assert!(outcome.failures.is_empty() && outcome.finish_s < 3.0, "{} s", outcome.finish_s);
    let down = fast().with(|server| server.down_from_s = Some(0.15));
    let outcome = run(&[down, fast()], Settings::default(), &App::known(&scattered()));
    assert!(outcome.failures.is_empty() && outcome.finish_s < 1.0, "{} s", outcome.finish_s);
}

#[test]
fn a_slow_source_does_not_own_the_end() {
    let alone = run(&[fast()], Settings::forced(Policy::Vector), &App::known(&scattered()));
    let slow = Server::new(0.2 * MB, 0.05);
    let both = run(&[fast(), slow], Settings::forced(Policy::Vector), &App::known(&scattered()));
    assert!(both.finish_s < 3.0 * alone.finish_s, "{} and {} s", both.finish_s, alone.finish_s);
    assert!(both.explain.again_bytes < 1_500_000);
}

#[test]
fn replicas_share_the_work_in_proportion_to_their_rates() {
    let ranges = [ByteRange::new(0, SIZE)];
    let outcome = run(
        &[Server::new(30.0 * MB, 0.01), Server::new(10.0 * MB, 0.01)],
        Settings::forced(Policy::Vector),
        &App::known(&ranges),
    );
    let share = outcome.sent_bytes[0] as f64 / (outcome.sent_bytes[0] + outcome.sent_bytes[1]) as f64;
    assert!((0.6..0.9).contains(&share), "{share}");
}

#[test]
fn answers_that_are_cut_short_are_asked_for_again() {
    let cutting = fast().with(|server| server.cuts_after_bytes = Some(300_000));
    let outcome =
        run(std::slice::from_ref(&cutting), Settings::forced(Policy::Copy), &App::known(&scattered()));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let empty = fast().with(|server| server.cuts_after_bytes = Some(0));
    let outcome = run(&[empty.clone(), fast()], Settings::default(), &App::known(&scattered()));
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let outcome = run(&[empty], Settings::default(), &App::known(&scattered()));
    assert_eq!(outcome.failures[0].1.kind(), ErrorKind::Protocol);
}

#[test]
fn a_source_that_ignores_ranges_is_used_when_it_is_all_there_is() {
    let ignorant = fast().with(|server| server.ignores_ranges = true);
    for policy in Policy::ALL {
        let mut sim = Sim::<Vec<u8>>::new(SIZE, Settings::forced(policy), std::slice::from_ref(&ignorant));
        sim.is_strict = false;
        let app = App::Closed(vec![
            scattered(),
            vec![ByteRange::new(0, 100)],
            vec![ByteRange::new(SIZE - 100, SIZE)],
        ]);
        let outcome = sim.run(&app);
        assert!(outcome.failures.is_empty(), "{policy:?}: {:?}", outcome.failures);
        assert!(outcome.sent_bytes[0] < 2 * SIZE, "{policy:?}: {:?}", outcome.sent_bytes);
    }
    let outcome = run(&[ignorant, fast()], Settings::forced(Policy::Vector), &App::known(&scattered()));
    assert!(outcome.failures.is_empty());
    assert!(outcome.sent_bytes[0] < SIZE / 4, "the other one does the work: {:?}", outcome.sent_bytes);
}

#[test]
fn bytes_that_nothing_asked_for_are_not_believed() {
    let chatty = fast().with(|server| server.adds_strays = true);
    let outcome = run(&[chatty], Settings::forced(Policy::Vector), &App::known(&scattered()));
    assert!(outcome.failures.is_empty() && outcome.explain.stray_bytes > 0);
}

#[test]
fn servers_without_vectors_and_without_pipelining_are_read_in_parallel() {
    let plain = fast().with(|server| (server.elements_max, server.pipelines) = (1, false));
    let ranges = events(SIZE, 1000, 0.02, false, 7);
    let outcome = run(&[plain], Settings::forced(Policy::Vector), &App::known(&ranges));
    assert!(outcome.failures.is_empty());
    // 160 reads on eight connections.
    assert!(outcome.finish_s < 0.6, "{} s", outcome.finish_s);
    assert_eq!(outcome.explain.requests, outcome.explain.elements);
}

#[test]
fn a_busy_server_is_read_over_the_connections_that_it_takes() {
    let busy = fast().with(|server| server.lanes_max = 2);
    let outcome = run(&[busy], Settings::default(), &App::known(&scattered()));
    assert!(outcome.failures.is_empty() && outcome.explain.handshakes == 2, "{}", outcome.explain);
}

#[test]
fn a_size_that_others_contradict_is_not_believed() {
    let liar = Server::new(50.0 * MB, 0.05).with(|server| server.says_bytes = Some(SIZE + 1000));
    let outcome = run(&[fast(), liar], Settings::forced(Policy::Vector), &App::known(&scattered()));
    assert!(outcome.failures.is_empty());
    assert_eq!(outcome.sent_bytes[1], 0);
    let first = Server::new(50.0 * MB, 0.001).with(|server| server.says_bytes = Some(SIZE + 1000));
    let app = App::Timed(vec![at(1.0, ByteRange::new(0, 10))]);
    let outcome = run(&[first, fast(), fast()], Settings::forced(Policy::Vector), &app);
    assert!(
        outcome.failures.iter().any(|(_, error)| error.kind() == ErrorKind::Precondition),
        "{:?}",
        outcome.failures
    );
}

#[test]
fn an_exact_budget_moves_what_is_wanted_and_nothing_else() {
    let settings = Settings { budget: 1.0, ..Settings::default() };
    let ranges = events(SIZE, 1000, 0.1, true, 3);
    for app in [App::known(&ranges), App::serial(&ranges)] {
        let outcome = run(&[fast()], settings.clone(), &app);
        assert!(outcome.failures.is_empty());
        assert_eq!(outcome.explain.moved_in_all(), outcome.explain.wanted_bytes);
        assert_eq!(outcome.explain.wanted_bytes, 1000 * ranges.len() as u64);
    }
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_comes_again() {
    let settings = Settings { memory_bytes: 400_000, page_bytes: 16_384, ..Settings::default() };
    let mut ranges = events(SIZE, 40_000, 1.0, false, 3);
    ranges.extend(ranges.clone());
    for policy in [Policy::Adaptive, Policy::Prefetch, Policy::Lazy, Policy::Copy] {
        let outcome = run(&[fast()], Settings { policy, ..settings.clone() }, &App::serial(&ranges[..60]));
        assert!(outcome.failures.is_empty());
        assert!(outcome.explain.memory_bytes_most <= 400_000);
    }
}

#[test]
fn hints_are_followed_within_the_budget() {
    let mut sim = Sim::<Vec<u8>>::new(SIZE, Settings::default(), &[fast()]);
    sim.hints = vec![
        Hint::Keep(ByteRange::new(0, 100_000)),
        Hint::Soon(vec![ByteRange::new(2_000_000, 2_001_000)]),
        Hint::Random,
    ];
    let first = at(0.5, ByteRange::new(5_000_000, 5_001_000));
    let outcome = sim.run(&App::Timed(vec![first, at(1.0, ByteRange::new(2_000_000, 2_001_000))]));
    assert!(outcome.failures.is_empty());
    assert_eq!((outcome.explain.hits, outcome.explain.moved(Purpose::Ahead)), (1, 1000));
    let mut sim = Sim::<Vec<u8>>::new(SIZE, Settings::default(), &[fast()]);
    sim.hints = vec![Hint::Everything];
    let outcome = sim.run(&App::Timed(vec![
        at(0.1, ByteRange::new(0, 10)),
        at(2.0, ByteRange::new(4_000_000, 5_000_000)),
    ]));
    assert_eq!(outcome.explain.hits, 1, "{}", outcome.explain);
    assert!(outcome.explain.bulk_after.is_some());
}

#[test]
fn the_first_ranges_of_a_large_call_come_early() {
    let ranges = events(SIZE, 1000, 1.0, true, 1);
    let slow = Server::new(4.0 * MB, 0.02);
    let outcome = run(&[slow], Settings::forced(Policy::Vector), &App::known(&ranges));
    let first_s = outcome.first_range_s.expect("there were some");
    assert!(first_s < 0.15 && outcome.finish_s > 2.0, "{first_s} and {} s", outcome.finish_s);
}
