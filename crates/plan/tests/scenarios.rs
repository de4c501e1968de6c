//! The plan against the causal bound, in the scenarios in which the design was chosen, and in some more.
//!
//! `cargo test -p gridlane-plan --test scenarios -- --nocapture` prints the table.

mod sim;

use gridlane_plan::{Outcome, Settings, SourcePath, fluid_bound_s};
use sim::{Left, MB, Server, TellsSize, World, causal_bound_s};

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
    let mut short_collapse: Vec<Server> = [10.0, 20.0, 30.0].map(|ms| Server::new(94.1 * MB, ms)).to_vec();
    short_collapse[1] = short_collapse[1].clone().then(2.88, 4.7 * MB);
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
        scenario("G: the same at 10/20/30 ms and 1 GB", 1e9, short_collapse, 0.945),
        scenario("one, 100 MB/s, 100 ms, 3 GB", 3e9, vec![Server::new(100.0 * MB, 100.0)], 0.93),
        scenario("A, 3 GB, one request at a time", 3e9, serial, 0.90),
        // While a connection is made nothing comes; while one is there, the path is full: no trials.
        scenario("A, 3 GB, one request per connection", 3e9, one_request, 0.75),
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

/// A copy over paths like those of the emulated wide area. Those with buffers and losses are named as
/// `bench/wan.py --list` names what is measured, so that its page can show both.
struct Row {
    name: &'static str,
    world: World,
    servers: Vec<Server>,
    /// Connections to each source that the bound is for; `None`: as many as were opened.
    lanes: Option<usize>,
    /// The rate of a source, where it is more than its connections carry.
    rate_max: f64,
    fraction_min: f64,
    lanes_most: usize,
}

/// A path that begins with fewer lanes than its losses call for.
const FEW_LANES_MANY_LOSSES: &str = "1 Gb/s, 26 ms, CUBIC, loss 0.0001";

/// Payload of a link, in bytes per second: 1448 of each 1538 bytes on the wire.
fn payload(megabits: f64) -> f64 {
    megabits * 1e6 / 8.0 * 1448.0 / 1538.0
}

fn sites<const N: usize>(paths: [(f64, f64); N]) -> Vec<Server> {
    paths.map(|(megabits, round_trip_ms)| Server::new(payload(megabits), round_trip_ms)).to_vec()
}

fn rows() -> Vec<Row> {
    let row = |name, size_bytes, servers: Vec<Server>, fraction_min, lanes_most| Row {
        name,
        world: World::new(size_bytes),
        servers,
        lanes: None,
        rate_max: f64::INFINITY,
        fraction_min,
        lanes_most,
    };
    let three = [(800.0, 10.0), (800.0, 20.0), (800.0, 30.0)];
    let (rising, falling) =
        ([(80.0, 5.0), (400.0, 50.0), (800.0, 150.0)], [(80.0, 150.0), (400.0, 50.0), (800.0, 5.0)]);
    let five = [(200.0, 0.5), (100.0, 20.0), (60.0, 50.0), (40.0, 100.0), (20.0, 300.0)];
    let five = five.map(|(rate, round_trip_ms)| Server::new(rate * MB, round_trip_ms)).to_vec();
    let one = |round_trip_ms| sites([(1000.0, round_trip_ms)]);
    let narrow = |round_trip_ms: f64| {
        let lane = 4.0 * 1048576.0 * 0.65; // What a send buffer of 4 MiB holds of payload.
        let row = row("", 500e6, one(round_trip_ms), 0.9, 16);
        let servers = row.servers.into_iter().map(|server| server.with(|s| s.lane_window_bytes_max = lane));
        Row { servers: servers.collect(), rate_max: 16.0 * lane / (round_trip_ms / 1e3), ..row }
    };
    let lossy = |round_trip_ms: f64, loss: f64| {
        let row = row("", 200e6, one(round_trip_ms), 0.9, 16);
        let servers =
            row.servers.into_iter().map(|server| server.with(|s| s.loss_packets = Some(1.0 / loss)));
        // RFC 9438, 5.1, and Reno's where that is more.
        let round_trip_s: f64 = round_trip_ms / 1e3;
        let cubic = 1.054 * (round_trip_s / loss).powf(0.75);
        let packets = cubic.max(1.22 / loss.sqrt());
        Row { servers: servers.collect(), rate_max: 16.0 * 1448.0 * packets / round_trip_s, ..row }
    };
    let shared =
        |round_trip_ms: f64| Server::new(payload(400.0), round_trip_ms).with(|s| s.bottleneck = Some(0));
    let long_lived = |servers: Vec<Server>| {
        servers.into_iter().map(|s| s.with(|s| s.looks_at_empty_path = true)).collect()
    };
    let limited = Server::new(50.0 * MB, 40.0).with(|server| server.limits_itself = true);
    let dropping = Server::new(50.0 * MB, 40.0)
        .with(|server| (server.drops_what_is_too_fast, server.loss_packets) = (true, Some(f64::INFINITY)));
    vec![
        row("500 MB from 1", 500e6, sites([three[0]]), 0.97, 1),
        row("500 MB from 2", 500e6, sites([three[0], three[1]]), 0.97, 1),
        row("500 MB from 3", 500e6, sites(three), 0.97, 1),
        row("2 GB from 1", 2e9, long_lived(sites([three[0]])), 0.97, 1),
        row("2 GB from 2", 2e9, long_lived(sites([three[0], three[1]])), 0.97, 1),
        row("2 GB from 3", 2e9, sites(three), 0.97, 1),
        row("1 GB, 3 unequal sites, slow-near", 1e9, sites(rising), 0.95, 16),
        row("100 MB, 3 unequal sites, slow-near", 1e8, sites(rising), 0.85, 16),
        row("1 GB, 3 unequal sites, slow-far", 1e9, sites(falling), 0.95, 16),
        row("100 MB, 3 unequal sites, slow-far", 1e8, sites(falling), 0.85, 16),
        row("2 GB, 5 unequal sites, five", 2e9, five, 0.92, 16),
        Row {
            // Both together have what one path carries.
            lanes: Some(1),
            rate_max: payload(200.0),
            ..row("shared bottleneck, 500 MB alone", 500e6, vec![shared(20.0), shared(20.0)], 0.95, 1)
        },
        row("500 MB, 26 ms, big buffers", 500e6, one(26.0), 0.95, 4),
        row("500 MB, 100 ms, big buffers", 500e6, one(100.0), 0.95, 16),
        row("500 MB, 300 ms, big buffers", 500e6, one(300.0), 0.93, 16),
        Row { name: "1 Gb/s, 26 ms, default buffers", ..narrow(26.0) },
        Row { name: "1 Gb/s, 100 ms, default buffers", ..narrow(100.0) },
        Row { name: "1 Gb/s, 300 ms, default buffers", ..narrow(300.0) },
        Row { name: "1 Gb/s, 26 ms, CUBIC, loss 1e-05", ..lossy(26.0, 1e-5) },
        Row { name: FEW_LANES_MANY_LOSSES, ..lossy(26.0, 1e-4) },
        Row { name: "1 Gb/s, 100 ms, CUBIC, loss 1e-05", ..lossy(100.0, 1e-5) },
        Row { name: "1 Gb/s, 100 ms, CUBIC, loss 0.0001", ..lossy(100.0, 1e-4) },
        // The round trip that says how far it is is 7 % of the bound.
        Row { name: "1 Gb/s, 300 ms, CUBIC, loss 1e-05", fraction_min: 0.85, ..lossy(300.0, 1e-5) },
        row("a server that limits itself to 50 MB/s, 40 ms, 1 GB", 1e9, vec![limited], 0.95, 8),
        row("a path that drops what is beyond 50 MB/s, 40 ms, 1 GB", 1e9, vec![dropping], 0.80, 8),
    ]
}

#[test]
fn opens_as_many_lanes_as_help() {
    println!("| row | bound(k) | time | fraction | extra bytes | lanes at most |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut failed = Vec::new();
    for row in rows() {
        let finished = row.world.run(&row.servers);
        let paths: Vec<SourcePath> = row
            .servers
            .iter()
            .zip(&finished.lanes_most_per_source)
            .flat_map(|(server, &opened)| {
                let lanes = row.lanes.unwrap_or(opened).max(1);
                let path = SourcePath {
                    rate_bytes_per_s: server.rate_at(0.0).min(row.rate_max) / lanes as f64,
                    round_trip_s: server.round_trip_s,
                    handshake_round_trips: 3.0,
                };
                vec![path; lanes]
            })
            .collect();
        let bound_s = fluid_bound_s(row.world.size_bytes, &paths, None).expect("a bound");
        let fraction = bound_s / finished.finish_s;
        let extra = finished.extra_bytes as f64 / row.world.size_bytes as f64;
        println!(
            "| {} | {bound_s:.2} s | {:.2} s | {fraction:.3} | {:.2} % | {:?} |",
            row.name,
            finished.finish_s,
            extra * 100.0,
            finished.lanes_most_per_source,
        );
        let is_good = finished.is_whole
            && fraction >= row.fraction_min
            && finished.lanes_most_per_source.iter().all(|&lanes| lanes <= row.lanes_most);
        if !is_good {
            failed.push(row.name);
        }
    }
    assert!(failed.is_empty(), "not good enough: {failed:?}");
}

#[test]
fn losses_open_the_lanes_that_they_call_for_before_the_rate_is_level() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains("CUBIC")).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let blind = World { tells_losses: false, ..row.world.clone() }.run(&row.servers);
        let seeing = row.world.run(&row.servers);
        println!("{}: {:.2} s, without {:.2} s", row.name, seeing.finish_s, blind.finish_s);
        assert!(seeing.finish_s <= 1.02 * blind.finish_s, "{} got slower", row.name);
        if row.name == FEW_LANES_MANY_LOSSES {
            assert!(seeing.finish_s <= 0.97 * blind.finish_s, "{} got no faster", row.name);
            assert!(seeing.lanes_most > 8 && blind.lanes_most <= 8, "{}: {}", row.name, seeing.lanes_most);
        }
    }
}

/// A second file over the connections that the first one has left, some of which had been closed.
#[test]
fn connections_that_are_there_need_no_others() {
    println!("| connections left, last size | bound | time | fraction | extra bytes | lanes |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let (rate, round_trip_s) = (payload(1000.0), 0.1);
    let second = |connections, size_bytes: f64, expected_bytes: Option<u64>| {
        let left = Left { connections, rate_bytes_per_s: rate / 16.0, expected_bytes };
        let server = Server::new(rate, round_trip_s * 1e3).with(|server| server.left = Some(left));
        let finished = World::new(size_bytes).run(&[server]);
        let bound_s = size_bytes / rate + round_trip_s;
        let fraction = bound_s / finished.finish_s;
        let extra = finished.extra_bytes as f64 / size_bytes * 100.0;
        println!(
            "| {connections} for {size_bytes:.0}, {expected_bytes:?} | {bound_s:.2} s | {:.2} s | {fraction:.3} | {extra:.2} % | {} |",
            finished.finish_s, finished.lanes_opened
        );
        assert!(finished.is_whole);
        (fraction, finished.lanes_opened)
    };
    let size = Some(100_000_000);
    for (connections, size_bytes, expected_bytes, fraction_min, lanes_max) in [
        (16, 1e8, size, 0.95, 16),
        (12, 1e8, size, 0.94, 16),
        (16, 1e8, None, 0.88, 16),
        (16, 1e9, size, 0.95, 16),
        // One connection has a sixteenth of the path.
        (16, 1e6, Some(1_000_000), 0.45, 1),
        (16, 1e6, size, 0.45, 16),
        (7, 1e8, size, 0.80, 16),
        (1, 1e8, size, 0.40, 16),
        (1, 1e9, size, 0.80, 16),
    ] {
        let (fraction, lanes) = second(connections, size_bytes, expected_bytes);
        assert!(fraction >= fraction_min && lanes <= lanes_max, "{connections} of {size_bytes}: {fraction}");
    }
}

#[test]
fn losses_of_a_limit_open_no_lanes() {
    for row in rows().into_iter().filter(|row| row.name.contains("drops what is beyond")) {
        let blind = World { tells_losses: false, ..row.world.clone() }.run(&row.servers);
        let seeing = row.world.run(&row.servers);
        assert_eq!(seeing.lanes_opened, blind.lanes_opened, "{}", row.name);
    }
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
