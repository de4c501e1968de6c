//! How near the plan comes to the causal bound, in the scenarios in which the design was chosen
//! (`reference/scheduling-and-limits.md`, 2.7), and in some more.
//!
//! `cargo test -p gridlane-plan --test scenarios -- --nocapture` prints the table.

mod sim;

use gridlane_plan::{Outcome, Settings};
use sim::{MB, Server, TellsSize, World, causal_bound_s};

struct Scenario {
    name: &'static str,
    world: World,
    servers: Vec<Server>,
    /// Bound divided by time, at least.
    fraction_min: f64,
}

fn three_unequal() -> Vec<Server> {
    vec![Server::new(100.0 * MB, 1.0), Server::new(50.0 * MB, 30.0), Server::new(10.0 * MB, 150.0)]
}

fn three_equal() -> Vec<Server> {
    vec![Server::new(100.0 * MB, 10.0); 3]
}

fn scenarios() -> Vec<Scenario> {
    let scenario = |name, size_bytes, servers, fraction_min| Scenario {
        name,
        world: World::new(size_bytes),
        servers,
        fraction_min,
    };
    let mut silent = three_unequal();
    silent[0].silent_from_s = Some(2.0);
    let mut collapsing = three_unequal();
    collapsing[0] = collapsing[0].clone().then(2.0, 5.0 * MB);
    let mut late_collapse = three_equal();
    late_collapse[0] = late_collapse[0].clone().then(8.03, 5.0 * MB);
    let all = |change: fn(&mut Server)| three_equal().into_iter().map(|server| server.with(change)).collect();
    let serial = all(|server| server.pipelines = false);
    let one_request = all(|server| (server.pipelines, server.one_request) = (false, true));
    let narrow = all(|server| server.lane_rate_max = 30.0 * MB);
    let mut one_whole = three_equal();
    one_whole[0].ignores_ranges = Some(TellsSize(true));
    let in_order = |size_bytes| {
        let settings = Settings { window_bytes: Some(64 << 20), ..Settings::default() };
        World { settings, ..World::new(size_bytes) }
    };
    let loopback = World { client_rate: 1e10, step_s: 0.0001, ..World::new(1e9) };
    let local = vec![Server::new(2000.0 * MB, 0.05)];
    let five = [(200.0, 0.5), (100.0, 10.0), (80.0, 50.0), (50.0, 150.0), (20.0, 300.0)];
    let five = five.map(|(rate, round_trip_ms)| Server::new(rate * MB, round_trip_ms)).to_vec();
    vec![
        scenario("A: 3 equal 100 MB/s, 10 ms, 10 GB", 10e9, three_equal(), 0.97),
        scenario("B: 100/50/10 MB/s at 1/30/150 ms, 1 GB", 1e9, three_unequal(), 0.95),
        scenario("C: as B, 100 MB", 1e8, three_unequal(), 0.85),
        scenario("D: five 200..20 MB/s at 0.5..300 ms, 2 GB", 2e9, five, 0.90),
        scenario("E: as B, the fast source goes silent at 2 s", 1e9, silent, 0.93),
        scenario("F: as B, the fast source drops to 5 % at 2 s", 1e9, collapsing.clone(), 0.93),
        scenario("G: 3 equal, one drops to 5 % after 80 % of 3 GB", 3e9, late_collapse, 0.93),
        scenario("one, 100 MB/s, 100 ms, 3 GB", 3e9, vec![Server::new(100.0 * MB, 100.0)], 0.93),
        scenario("A, 3 GB, one request at a time", 3e9, serial, 0.90),
        scenario("A, 3 GB, one request per connection", 3e9, one_request, 0.80),
        scenario("A, 3 GB, 30 MB/s per connection", 3e9, narrow, 0.80),
        scenario("A, 3 GB, one source ignores ranges", 3e9, one_whole, 0.60),
        Scenario {
            world: in_order(1e9),
            ..scenario("B in order, 64 MiB window", 1e9, three_unequal(), 0.90)
        },
        Scenario { world: in_order(1e9), ..scenario("F in order, 64 MiB window", 1e9, collapsing, 0.85) },
        Scenario { world: loopback, ..scenario("loopback, 1 GB at 2 GB/s", 1e9, local, 0.95) },
    ]
}

#[test]
fn comes_near_the_bound() {
    println!("| scenario | bound | time | fraction | extra bytes | requests | lanes |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut failed = Vec::new();
    for Scenario { name, world, servers, fraction_min } in scenarios() {
        let bound_s = causal_bound_s(&world, &servers);
        let finished = world.run(&servers);
        let fraction = bound_s / finished.finish_s;
        let extra = finished.extra_bytes as f64 / world.size_bytes as f64;
        println!(
            "| {name} | {bound_s:.2} s | {:.2} s | {fraction:.3} | {:.2} % | {} | {} |",
            finished.finish_s,
            extra * 100.0,
            finished.requests,
            finished.lanes_opened,
        );
        let is_good = finished.outcome == Outcome::Complete
            && finished.is_whole
            && fraction >= fraction_min
            && extra <= 0.02;
        if !is_good {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "not good enough: {failed:?}");
}
