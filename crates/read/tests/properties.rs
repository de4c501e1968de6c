//! Random files, servers with random faults, random calls: every byte is right, every call ends once and every range gets each
//! byte once, the memory is bounded, and where nothing is wrong nothing fails and nothing is asked for twice.
//!
//! What must hold at every step is checked by the simulated engine (`Sim::comply`, `Sim::ask`); the rest is checked here.

mod sim;

use std::time::Duration;

use gridlane_core::{ByteRange, ErrorKind};
use gridlane_read::{Policy, Settings};
use proptest::prelude::*;
use sim::{App, MB, Server, Sim, Timed, config};

/// Faults of a server.
#[derive(Clone, Debug)]
enum Flaw {
    Nothing,
    Silent(f64),
    Down(f64),
    Resets(u64),
    Cuts(u64),
    IgnoresRanges,
    Strays,
    Busy(usize),
    NoFile,
    Plain,
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        3 => Just(Flaw::Nothing),
        1 => (0.0..3.0).prop_map(Flaw::Silent),
        1 => (0.0..3.0).prop_map(Flaw::Down),
        1 => (10_000_u64..2_000_000).prop_map(Flaw::Resets),
        1 => (0_u64..400_000).prop_map(Flaw::Cuts),
        1 => Just(Flaw::IgnoresRanges),
        1 => Just(Flaw::Strays),
        1 => (1_usize..4).prop_map(Flaw::Busy),
        1 => Just(Flaw::NoFile),
        1 => Just(Flaw::Plain),
    ]
}

fn server(flaws: impl Strategy<Value = Flaw>) -> impl Strategy<Value = (Server, bool)> {
    (0.5..100.0, 0.0005..0.3, flaws).prop_map(|(rate_mb, round_trip_s, flaw)| {
        let is_right = matches!(flaw, Flaw::Nothing | Flaw::Strays | Flaw::Busy(_) | Flaw::Plain);
        let server = Server::new(rate_mb * MB, round_trip_s).with(|server| match flaw {
            Flaw::Nothing => {}
            Flaw::Silent(from_s) => server.silent_from_s = Some(from_s),
            Flaw::Down(from_s) => server.down_from_s = Some(from_s),
            Flaw::Resets(bytes) => server.resets_after_bytes = Some(bytes),
            Flaw::Cuts(bytes) => server.cuts_after_bytes = Some(bytes),
            Flaw::IgnoresRanges => server.ignores_ranges = true,
            Flaw::Strays => server.adds_strays = true,
            Flaw::Busy(lanes) => server.lanes_max = lanes,
            Flaw::NoFile => server.has_no_file = true,
            Flaw::Plain => (server.elements_max, server.pipelines) = (1, false),
        });
        (server, is_right)
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![3 => Just(Policy::Adaptive), 3 => prop::sample::select(Policy::ALL.to_vec())]
}

fn settings() -> impl Strategy<Value = Settings> {
    let idle = prop_oneof![0_u64..300, Just(5000)];
    (policy(), 12_u32..18, 100_000_u64..4_000_000, 1.0..6.0, 1_usize..12, 1_usize..12, idle).prop_map(
        |(policy, page_bits, memory_bytes, budget, lanes, lanes_at_first, idle_ms)| Settings {
            page_bytes: 1 << page_bits,
            memory_bytes: memory_bytes.max(2 << page_bits),
            budget: if budget < 1.5 { 1.0 } else { budget },
            lanes,
            lanes_at_first,
            idle: Duration::from_millis(idle_ms),
            segment_bytes: 300_000,
            ..Settings::forced(policy)
        },
    )
}

/// Calls at places that follow each other, or not; some with deadlines, some cancelled.
fn calls(size_bytes: u64) -> impl Strategy<Value = Vec<Timed>> {
    let range = (0.0..1.1, prop_oneof![0_u64..3000, 0_u64..300_000])
        .prop_map(move |(place, len)| ByteRange::at((place * size_bytes as f64) as u64, len));
    let ranges = prop::collection::vec(range, 1..12);
    let one =
        (0.0..2.0, ranges, prop::option::weighted(0.1, 0.01..1.0), prop::option::weighted(0.1, 0.0..0.5));
    prop::collection::vec(one, 1..12).prop_map(|calls| {
        let timed =
            |(at_s, ranges, deadline_s, cancel_s): (f64, Vec<ByteRange>, Option<f64>, Option<f64>)| Timed {
                at_s,
                ranges,
                deadline_s: deadline_s.map(|after_s| at_s + after_s),
                cancel_s: cancel_s.map(|after_s| at_s + after_s),
            };
        calls.into_iter().map(timed).collect()
    })
}

fn job() -> impl Strategy<Value = (u64, Vec<Timed>)> {
    (1_u64..3_000_000).prop_flat_map(|size_bytes| (Just(size_bytes), calls(size_bytes)))
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn whatever_the_servers_do(
        servers in prop::collection::vec(server(flaw()), 1..4),
        settings in settings(),
        (size_bytes, calls) in job(),
    ) {
        let has_right_one = servers.iter().any(|(_, is_right)| *is_right);
        let servers: Vec<Server> = servers.into_iter().map(|(server, _)| server).collect();
        let mut sim = Sim::<Vec<u8>>::new(size_bytes, settings, &servers);
        sim.is_strict = false;
        let outcome = sim.run(&App::Timed(calls.clone()));
        prop_assert!(outcome.finish_s < 400.0, "{} s", outcome.finish_s);
        prop_assert_eq!(outcome.waiting, 0);
        for (index, error) in &outcome.failures {
            let was_told_to = match error.kind() {
                ErrorKind::Interrupted => calls[*index].cancel_s.is_some(),
                ErrorKind::Timeout => calls[*index].deadline_s.is_some() || !has_right_one,
                _ => !has_right_one,
            };
            prop_assert!(was_told_to, "call {}: {}", index, error.message());
        }
    }

    #[test]
    fn where_nothing_is_wrong_nothing_is_asked_for_twice(
        (server, _) in server(Just(Flaw::Nothing)),
        settings in settings(),
        (size_bytes, calls) in job(),
    ) {
        let budget = settings.budget;
        let sim = Sim::<Vec<u8>>::new(size_bytes, settings.clone(), &[server]);
        let outcome = sim.run(&App::Timed(calls.clone()));
        prop_assert_eq!((outcome.twice_bytes, outcome.explain.again_bytes, outcome.explain.stray_bytes), (0, 0, 0));
        let told = |index: usize| calls[index].cancel_s.is_some() || calls[index].deadline_s.is_some();
        prop_assert!(outcome.failures.iter().all(|(index, _)| told(*index)), "{:?}", outcome.failures);
        prop_assert!(outcome.explain.speculation() <= budget + 1e-9, "{}", outcome.explain);
    }
}
