//! Random fleets with random faults: whatever happens, every byte is fetched once or twice, none three
//! times, in bounded time and with bounded state.
//!
//! What must hold of each request is checked by the simulated engine (`Sim::check_request`); what must
//! hold of the whole is checked here.

mod sim;

use gridlane_plan::{Outcome, Settings, SourcePath, fluid_bound_s};
use proptest::prelude::*;
use sim::{MB, Server, TellsSize, World, causal_bound_s, config};

/// Faults of a server.
#[derive(Clone, Debug)]
enum Flaw {
    Nothing,
    Silent(f64),
    Collapses(f64),
    Resets(u64),
    Busy(usize, f64),
    Restarts(f64, f64),
    OneRequest,
    Serial,
    IgnoresRanges(bool),
    Lies(f64),
    LaneLimit(f64),
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        3 => Just(Flaw::Nothing),
        2 => (0.0..4.0).prop_map(Flaw::Silent),
        1 => (0.1..4.0).prop_map(Flaw::Collapses),
        1 => (100_000_u64..20_000_000).prop_map(Flaw::Resets),
        1 => (0_usize..3, 0.1..5.0).prop_map(|(lanes, wait_s)| Flaw::Busy(lanes, wait_s)),
        1 => (0.0..3.0, 0.1..8.0).prop_map(|(from_s, for_s)| Flaw::Restarts(from_s, from_s + for_s)),
        1 => Just(Flaw::OneRequest),
        1 => Just(Flaw::Serial),
        1 => any::<bool>().prop_map(Flaw::IgnoresRanges),
        1 => (0.1..3.0).prop_map(Flaw::Lies),
        1 => (0.05..0.5).prop_map(Flaw::LaneLimit),
    ]
}

fn server(flaws: impl Strategy<Value = Flaw>) -> impl Strategy<Value = Server> {
    (1.0..200.0, 0.2..300.0, any::<bool>(), flaws).prop_map(|(rate_mb, round_trip_ms, slow_start, flaw)| {
        let rate = rate_mb * MB;
        Server::new(rate, round_trip_ms).with(|server| {
            server.slow_start = slow_start;
            match flaw {
                Flaw::Nothing => {}
                Flaw::Silent(from_s) => server.silent_from_s = Some(from_s),
                Flaw::Collapses(at_s) => server.rates.push((at_s, rate / 20.0)),
                Flaw::Resets(bytes) => server.resets_after_bytes = Some(bytes),
                Flaw::Busy(lanes_max, wait_s) => server.busy = Some((lanes_max, wait_s)),
                Flaw::Restarts(from_s, to_s) => server.down = Some((from_s, to_s)),
                Flaw::OneRequest => (server.one_request, server.pipelines) = (true, false),
                Flaw::Serial => server.pipelines = false,
                Flaw::IgnoresRanges(tells_size) => server.ignores_ranges = Some(TellsSize(tells_size)),
                Flaw::Lies(found_at_s) => server.liar_found_at_s = Some(found_at_s),
                Flaw::LaneLimit(part) => server.lane_rate_max = rate * part,
            }
        })
    })
}

/// Flaws that a source can have and still deliver all of the object in the end, by ranges.
fn forgivable() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        2 => Just(Flaw::Nothing),
        1 => (0.0..3.0, 0.1..8.0).prop_map(|(from_s, for_s)| Flaw::Restarts(from_s, from_s + for_s)),
        1 => (1_000_000_u64..20_000_000).prop_map(Flaw::Resets),
        1 => Just(Flaw::OneRequest),
        1 => Just(Flaw::Serial),
        1 => (1_usize..3, 0.1..5.0).prop_map(|(lanes, wait_s)| Flaw::Busy(lanes, wait_s)),
    ]
}

fn size() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..3e6, 3e6..1e8, 1e8..6e8]
}

fn world(size_bytes: f64) -> World {
    World { step_s: 0.01, ..World::new(size_bytes) }
}

proptest! {
    #![proptest_config(config(300))]

    /// One source that works in the end is enough, whatever the others do.
    #[test]
    fn one_working_source_is_enough(
        size_bytes in size(),
        good in server(forgivable()),
        others in prop::collection::vec(server(flaw()), 0..7),
        place in any::<prop::sample::Index>(),
        lanes_fixed in any::<bool>(),
    ) {
        let mut servers = others;
        servers.insert(place.index(servers.len() + 1), good.clone());
        let mut world = world(size_bytes);
        world.settings.lanes_fixed = lanes_fixed;
        // Small answers, each on a new connection, cost most.
        let alone_s = causal_bound_s(&world, std::slice::from_ref(&good));
        world.give_up_s = 3.0 * alone_s + 120.0;
        let finished = world.run(&servers);
        prop_assert_eq!(finished.outcome, Outcome::Complete, "{:?}", finished);
        prop_assert!(finished.is_whole);
        prop_assert!(finished.lanes_most <= world.settings.lanes_max);
        prop_assert!(finished.lanes_most_per_source.iter().all(|&lanes| lanes <= 16), "{:?}", finished);
        prop_assert!(finished.entries_most < 48 * 16 * 4, "{:?}", finished);
    }

    /// Without a working source the plan ends all the same.
    #[test]
    fn gives_up_in_bounded_time(
        size_bytes in 1e8..6e8,
        servers in prop::collection::vec(server((0.0..0.3).prop_map(Flaw::Silent)), 1..6),
    ) {
        let mut world = world(size_bytes);
        world.settings.patience = std::time::Duration::from_secs(20);
        let servers: Vec<Server> =
            servers.into_iter().map(|server| server.with(|server| server.down = Some((5.0, 1e9)))).collect();
        let finished = world.run(&servers);
        let is_over = matches!(finished.outcome, Outcome::Complete | Outcome::Stuck(_));
        prop_assert!(is_over && finished.finish_s <= 30.0, "{:?}", finished);
    }

    /// A target written in order is never sent anything behind its window, however that changes, and gets everything.
    #[test]
    fn respects_the_window(
        size_bytes in size(),
        window_bytes in 1_u64..64_000_000,
        windows in prop::collection::vec((0.0..20.0, 1_u64..64_000_000), 0..8),
        target_rate in 1e6..1e9,
        good in server(forgivable()),
        others in prop::collection::vec(server(flaw()), 0..4),
    ) {
        let mut world = world(size_bytes.min(1e8));
        let window_bytes = window_bytes.max(world.size_bytes / 100);
        world.settings = Settings { window_bytes: Some(window_bytes), ..Settings::default() };
        // Others of the process come and go.
        world.windows = windows.into_iter().map(|(at_s, bytes)| (at_s, bytes.max(world.size_bytes / 100))).collect();
        world.target_rate = target_rate;
        world.give_up_s = 1500.0;
        let mut servers = vec![good];
        // A whole body comes in order by itself and cannot be held back by requests.
        servers.extend(others.into_iter().filter(|server| server.ignores_ranges.is_none()));
        let finished = world.run(&servers);
        prop_assert_eq!(finished.outcome, Outcome::Complete, "{:?}", finished);
    }

    /// The same world gives the same run.
    #[test]
    fn is_deterministic(size_bytes in 0.0..3e7, servers in prop::collection::vec(server(flaw()), 1..4)) {
        let world = World { give_up_s: 30.0, ..world(size_bytes) };
        let (once, again) = (world.run(&servers), world.run(&servers));
        prop_assert_eq!(format!("{once:?}"), format!("{again:?}"));
    }
}

proptest! {
    #![proptest_config(config(16))]

    /// Without faults the copy ends near the bound.
    #[test]
    fn healthy_fleets_come_near_the_bound(
        seconds in 3.0..8.0,
        servers in prop::collection::vec(server(Just(Flaw::Nothing)), 1..6),
    ) {
        let total: f64 = servers.iter().map(|server| server.rate_at(0.0)).sum();
        let world = World { step_s: 0.005, ..World::new(seconds * total) };
        let paths: Vec<SourcePath> = servers
            .iter()
            .map(|server| SourcePath {
                rate_bytes_per_s: server.rate_at(0.0),
                round_trip_s: server.round_trip_s,
                handshake_round_trips: 3.0,
            })
            .collect();
        let bound_s = fluid_bound_s(world.size_bytes, &paths, Some(world.client_rate)).expect("a bound");
        let servers: Vec<Server> =
            servers.into_iter().map(|server| server.with(|server| server.slow_start = true)).collect();
        let finished = world.run(&servers);
        let fraction = bound_s / finished.finish_s;
        prop_assert!(fraction >= 0.8, "{fraction} of {bound_s} s: {finished:?}");
        prop_assert!(finished.extra_bytes as f64 <= 0.02 * world.size_bytes as f64, "{finished:?}");
    }
}
