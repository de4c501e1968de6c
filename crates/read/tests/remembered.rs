//! A second file from the same server: it decides at once what the first had to learn.

mod sim;

use std::time::Duration;

use gridlane_core::ByteRange;
use gridlane_read::{Known, Purpose, Settings};
use sim::{App, MB, Outcome, Server, Sim, events};

fn open(server: &Server, size_bytes: u64, known: Known, app: &App) -> Outcome {
    let servers = std::slice::from_ref(server);
    let mut sim = Sim::<Vec<u8>>::knowing(size_bytes, Settings::default(), servers, &[known]);
    sim.is_strict = !server.ignores_ranges;
    let outcome = sim.run(app);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    outcome
}

fn aged(known: Known, age: Duration) -> Known {
    let older = |seen: Option<gridlane_read::Seen>| seen.map(|seen| gridlane_read::Seen { age, ..seen });
    Known {
        rate: older(known.rate),
        round_trip: older(known.round_trip),
        element: older(known.element),
        ignored_ranges: known.ignored_ranges.map(|_| age),
    }
}

/// On a slow path a file is not fetched whole for one read, once it is known how slow the path is.
#[test]
fn a_slow_path() {
    let (server, size_bytes) = (Server::new(2.0 * MB, 0.03), 2_500_000);
    let app = App::known(&[ByteRange::at(1_200_000, 1000)]);
    let learning = open(&server, size_bytes, Known::default(), &App::known(&[ByteRange::new(0, size_bytes)]));
    let known = learning.learned[0];
    let rate = known.rate.expect("a megabyte shows the rate").value;
    assert!((rate / 2e6 - 1.0).abs() < 0.5, "{rate}");
    let [before, after] = [Known::default(), known].map(|known| open(&server, size_bytes, known, &app));
    let moved = |outcome: &Outcome| outcome.explain.moved_in_all();
    println!(
        "moved {} before, {} after; {} s, {} s",
        moved(&before),
        moved(&after),
        before.finish_s,
        after.finish_s
    );
    assert!(before.explain.moved(Purpose::SmallFile) > 300_000, "{}", before.explain);
    assert_eq!(after.explain.moved(Purpose::SmallFile), 0, "{}", after.explain);
    assert!(moved(&after) < 150_000, "{}", after.explain);
    assert!(after.explain.to_string().contains("remembered"), "{}", after.explain);
    // An hour later it is as if nothing had been known.
    let late = open(&server, size_bytes, aged(known, Duration::from_secs(3600)), &app);
    assert_eq!(moved(&late), moved(&before));
}

/// On a fast one a file that the path holds is fetched at once, and not when reads have waited for long enough; here that is soon.
#[test]
fn a_fast_path() {
    let (server, size_bytes) = (Server::new(1250.0 * MB, 0.05), 12_000_000);
    let whole = App::known(&[ByteRange::new(0, 600_000_000)]);
    let known = open(&server, 600_000_000, Known::default(), &whole).learned[0];
    assert!(known.rate.expect("it shows").value > 300e6, "{known:?}");
    let app = App::serial(&events(size_bytes, 1000, 0.005, false, 3));
    let [before, after] = [Known::default(), known].map(|known| open(&server, size_bytes, known, &app));
    println!(
        "{} s before, {} s after; copied from {:?} on",
        before.finish_s, after.finish_s, before.explain.bulk_after
    );
    assert_eq!(before.explain.moved(Purpose::SmallFile), 0);
    assert!(before.explain.bulk_after.is_some_and(|after| after.as_secs_f64() > server.round_trip_s));
    assert!(after.explain.moved(Purpose::SmallFile) > 0, "{}", after.explain);
    assert_eq!(after.explain.moved(Purpose::Bulk), 0, "{}", after.explain);
    assert!(after.finish_s <= before.finish_s, "{} s and {} s", before.finish_s, after.finish_s);
}

/// A server that sends whole files is asked by one connection, and not by eight; and by all again when it has learned better.
#[test]
fn a_server_that_ignores_ranges() {
    let (server, size_bytes) =
        (Server::new(20.0 * MB, 0.03).with(|server| server.ignores_ranges = true), 3_000_000);
    let app = App::known(&[ByteRange::at(1_200_000, 1000)]);
    let first = open(&server, size_bytes, Known::default(), &app);
    let known = first.learned[0];
    assert_eq!(known.ignored_ranges, Some(Duration::ZERO));
    let second = open(&server, size_bytes, known, &app);
    assert_eq!((first.explain.handshakes, second.explain.handshakes), (8, 1), "{}", second.explain);
    let better = Server { ignores_ranges: false, ..server.clone() };
    let app = App::serial(&events(size_bytes, 1000, 0.02, false, 3));
    let third = open(&better, size_bytes, known, &app);
    assert_eq!((third.explain.handshakes, third.learned[0].ignored_ranges), (8, None), "{}", third.explain);
    let late = open(&server, size_bytes, aged(known, Duration::from_secs(900)), &app);
    assert_eq!(late.explain.handshakes, 8);
}
