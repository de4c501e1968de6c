//! What the dispatcher reaches in simulated worlds, with its own optimiser and FTS3's. Figures are those of a fluid: see
//! `cargo run --release -p gridlane-dispatch --example simulate` for all of them.

use gridlane_dispatch::Kind;
use gridlane_dispatch::simulate::{self, Report, Scenario, run};

/// The mean rate between two times, as part of the best.
fn part(report: &Report, from_s: usize, to_s: usize) -> f64 {
    report.rate(from_s, to_s) / report.best_bytes_per_s
}

#[test]
fn a_far_link_and_a_storage_with_a_knee_have_their_best_rate_within_a_minute_and_stay_there() {
    for scenario in [simulate::ceiling(), simulate::knee(), simulate::small()] {
        let report = run(&scenario, Kind::Ours);
        let name = scenario.name;
        assert!(report.reaches_s(0.95).is_some_and(|at| at <= 60), "{name}: {:?}", report.reaches_s(0.95));
        let end_s = report.rates.len() - 10;
        assert!(part(&report, 60, end_s) >= 0.95, "{name}: {}", part(&report, 60, end_s));
        let changes = report.changes_per_hour(120.0, end_s as f64);
        // A trial is two changes, and has rests of minutes between it and the next.
        assert!(changes <= 120.0, "{name}: {changes} changes an hour");
        assert_eq!((report.failed, report.failures), (0, 0));
    }
}

#[test]
fn fts3_never_gets_there_where_more_is_less() {
    let scenario = simulate::knee();
    for kind in [Kind::Fts313, Kind::Fts314] {
        let report = run(&scenario, kind);
        assert!(part(&report, 60, 590) < 0.7, "{kind:?}: {}", part(&report, 60, 590));
    }
}

#[test]
fn ten_sites_fill_the_bottleneck_that_they_share() {
    let scenario = simulate::shared();
    let report = run(&scenario, Kind::Ours);
    assert_eq!(report.finished, 1000);
    assert!(part(&report, 0, 60) >= 0.9, "{}", part(&report, 0, 60));
    assert!(report.bound_s / report.time_s >= 0.9, "{} of {}", report.bound_s, report.time_s);
    let theirs = run(&scenario, Kind::Fts313);
    assert!(theirs.time_s > 1.5 * report.time_s, "{} and {}", theirs.time_s, report.time_s);
}

#[test]
fn links_that_share_a_bottleneck_become_one() {
    let report = run(&simulate::late(), Kind::Ours);
    assert!(part(&report, 60, 600) >= 0.95, "before: {}", part(&report, 60, 600));
    assert!(part(&report, 700, 1490) >= 0.93, "after: {}", part(&report, 700, 1490));
    assert!(report.groups.iter().filter(|links| **links >= 8).count() >= 8, "{:?}", report.groups);
    // 42 copies fill it; from 100 on it gets slower.
    assert!(report.limits.iter().sum::<u32>() <= 110, "{:?}", report.limits);
}

#[test]
fn a_minute_without_a_path_costs_a_minute() {
    let scenario = simulate::outage();
    let report = run(&scenario, Kind::Ours);
    assert_eq!((report.failed, report.finished), (0, 40));
    assert!(report.twice_bytes <= 0.02 * report.bytes, "{}", report.twice_bytes);
    assert!(part(&report, 210, 300) >= 0.95, "30 s after: {}", part(&report, 210, 300));
    assert!(report.failures <= 40, "{} failures", report.failures);
    // Jobs allow no retries unless they ask for some.
    let bare = run(&Scenario { retries: 0, ..scenario.clone() }, Kind::Ours);
    assert_eq!((bare.failed, bare.finished), (0, 40));
    let lossy = Scenario { retries: 0, is_resuming: false, ..scenario };
    assert_eq!(run(&lossy, Kind::Ours).failed, 0);
}

#[test]
fn vos_have_their_shares() {
    let report = run(&simulate::shares(), Kind::Ours);
    let sums: Vec<f64> = report.vos.iter().map(|(_, bytes)| bytes[30..900].iter().sum()).collect();
    let all: f64 = sums.iter().sum();
    for (sum, share) in sums.iter().zip([0.6, 0.3, 0.1]) {
        assert!((sum / all - share).abs() < 0.05 * share + 0.01, "{sums:?}");
    }
}

#[test]
fn starts_are_not_in_lockstep() {
    let report = run(&simulate::ceiling(), Kind::Ours);
    let mut most = 0;
    let mut at_once = std::collections::HashMap::new();
    for (_, at_s) in &report.started {
        let count = at_once.entry((at_s * 10.0).round() as u64).or_insert(0u32);
        *count += 1;
        most = most.max(*count);
    }
    assert!(most <= 20, "{most} starts in a tenth of a second, of 64 copies");
}

#[test]
fn a_million_files_between_a_hundred_sites() {
    let report = run(&simulate::sites(), Kind::Ours);
    assert_eq!((report.failed, report.finished), (0, 1_000_000));
    // The last links of a site cannot fill it alone.
    assert!(report.bound_s / report.time_s >= 0.75, "{} of {}", report.bound_s, report.time_s);
    let loaded_s = (0.75 * report.bound_s) as usize;
    assert!(part(&report, 60, loaded_s) >= 0.95, "{}", part(&report, 60, loaded_s));
    assert!(report.queue_bytes <= 100_000_000, "{} bytes", report.queue_bytes);
    assert!(f64::from(report.failures) < 0.015 * f64::from(report.finished), "{} failures", report.failures);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = Scenario { failing: 0.05, ..simulate::shared() };
    let (one, two) = (run(&scenario, Kind::Ours), run(&scenario, Kind::Ours));
    assert_eq!((one.started, one.decisions), (two.started, two.decisions));
    let other = run(&Scenario { seed: 2, ..scenario }, Kind::Ours);
    assert_eq!((other.finished, other.failed), (1000, 0));
}
