//! The adaptive policy against the best of the forced ones, chosen in hindsight for each job.
mod sim;

use gridlane_read::{Explain, Policy};
use sim::{App, Server, settings, time, traces};

struct Cell {
    best: Policy,
    best_s: f64,
    adaptive_s: f64,
    explain: Explain,
    forced: Vec<(Policy, Option<f64>)>,
}

fn cell(server: &Server, size_bytes: u64, app: &App) -> Cell {
    let (adaptive_s, explain) =
        time(server, size_bytes, app, settings(Policy::Adaptive), f64::INFINITY).expect("it ends");
    let (mut best, mut best_s) = (Policy::Copy, f64::INFINITY);
    let mut forced = Vec::new();
    for policy in [Policy::Copy, Policy::Vector, Policy::Prefetch, Policy::Lazy, Policy::Direct] {
        // A policy that takes longer than the best so far is not looked at to its end.
        let took = time(server, size_bytes, app, settings(policy), best_s).map(|(took_s, _)| took_s);
        forced.push((policy, took));
        if took.is_some_and(|took_s| took_s < best_s) {
            (best, best_s) = (policy, took.unwrap_or(best_s));
        }
    }
    Cell { best, best_s, adaptive_s, explain, forced }
}

#[test]
fn recorded_traces() {
    for round_trip_s in [0.026, 0.150] {
        for trace in traces() {
            let cell = cell(&Server::gigabit(round_trip_s), trace.size_bytes, &App::Closed(trace.calls.clone()));
            println!("{:>4.0} ms {:<55} best {:<8} {:>7.3} s adaptive {:>7.3} s ratio {:.2} spec {:.2} moved {:.1} MB", round_trip_s*1e3, trace.name, cell.best.name(), cell.best_s, cell.adaptive_s, cell.adaptive_s/cell.best_s, cell.explain.speculation(), cell.explain.moved_in_all() as f64/1e6);
            println!("    {:?}", cell.forced);
            if std::env::var("EXPLAIN").is_ok() { println!("{}", cell.explain); }
        }
    }
}
