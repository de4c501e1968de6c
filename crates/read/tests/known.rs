//! The events of the published harness with offsets that are known: one call for all of them, over cold connections.
//! `cargo test -p gridlane-read --test known -- --nocapture` prints the table, and with `GRIDLANE_READ_FULL=1` the rows with
//! most of the events as well, and those of elements that cost as much as XRootD's client.

mod sim;

use gridlane_read::Policy;
use sim::{App, Server, events, settings, time};

/// Bytes per second, round trips: TCP, login, open and one more, and slow start on eight connections.
fn floor_s(bytes: f64, round_trip_s: f64) -> f64 {
    let path = gridlane_read::cost::Path {
        round_trip_s,
        rate_bytes_per_s: 125e6,
        element_s: 0.0,
        lanes: 8,
        window_bytes: 8.0 * 14_600.0,
    };
    4.0 * round_trip_s + path.bulk_s(bytes)
}

#[test]
fn known_offsets_of_the_harness() {
    println!("| events, round trip, element | cold floor | reader | ratio | requests | moved/wanted |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let is_full = std::env::var("GRIDLANE_READ_FULL").is_ok();
    for element_us in if is_full { vec![2.0, 9.0] } else { vec![2.0] } {
        for round_trip_s in [0.0005, 0.026, 0.3] {
            for event_bytes in [1000_u64, 1_000_000] {
                for fraction in [0.01, 0.1, 0.5, 1.0] {
                    if !is_full && (fraction > 0.1 || round_trip_s < 0.001) {
                        continue;
                    }
                    let ranges = events(1_000_000_000, event_bytes, fraction, false, 1);
                    let server =
                        Server::gigabit(round_trip_s).with(|server| server.element_s = element_us * 1e-6);
                    let app = App::known(&ranges);
                    let (took_s, explain) =
                        time(&server, 1_000_000_000, &app, settings(Policy::Adaptive), f64::INFINITY)
                            .expect("it ends");
                    let floor_s = floor_s(1e9 * fraction, round_trip_s);
                    println!(
                        "| {:.0} % in {} kB, {} ms, {element_us} us | {floor_s:.3} s | {took_s:.3} s | {:.2} | {} | {:.2} |",
                        fraction * 100.0,
                        event_bytes / 1000,
                        round_trip_s * 1e3,
                        took_s / floor_s,
                        explain.requests,
                        explain.moved_in_all() as f64 / explain.wanted_bytes as f64,
                    );
                    let must_s = match (event_bytes, fraction, round_trip_s) {
                        (1000, 0.1, 0.026) => 1.3,
                        (1000, 0.1, 0.3) => 5.2,
                        _ => f64::INFINITY,
                    };
                    assert!(element_us > 2.0 || took_s <= must_s, "{took_s} s, at most {must_s} s");
                }
            }
        }
    }
}
