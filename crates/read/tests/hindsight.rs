//! The adaptive policy against the best of the forced ones, chosen in hindsight for each job: recorded traces, the events of the
//! published harness with unknown offsets, and jobs by lot. `cargo test -p gridlane-read --test hindsight -- --nocapture` prints
//! the tables. With `GRIDLANE_READ_FULL=1` the file of the harness has 1 GB, and not 50 MB, and jobs by lot are of files
//! of up to 1 GB with up to a million reads: minutes.

mod sim;

use gridlane_core::limits::READ_BUDGET;
use gridlane_read::{Explain, Policy};
use sim::{App, Lot, Server, events, settings, time, traces};

/// Forced policies, those first that are seldom slow: one that takes longer than the best so far is not looked at to its end.
const FORCED: [Policy; 5] = [Policy::Copy, Policy::Prefetch, Policy::Vector, Policy::Direct, Policy::Lazy];

/// One job.
struct Cell {
    best: Policy,
    best_s: f64,
    adaptive_s: f64,
    explain: Explain,
    forced: Vec<(Policy, Option<f64>)>,
}

impl Cell {
    fn new(server: &Server, size_bytes: u64, app: &App) -> Cell {
        let (adaptive_s, explain) =
            time(server, size_bytes, app, settings(Policy::Adaptive), f64::INFINITY).expect("it ends");
        let (mut best, mut best_s) = (Policy::Copy, f64::INFINITY);
        let mut forced = Vec::new();
        for policy in FORCED {
            let took = time(server, size_bytes, app, settings(policy), best_s).map(|(took_s, _)| took_s);
            forced.push((policy, took));
            if let Some(took_s) = took.filter(|took_s| *took_s < best_s) {
                (best, best_s) = (policy, took_s);
            }
        }
        Cell { best, best_s, adaptive_s, explain, forced }
    }

    fn ratio(&self) -> f64 {
        self.adaptive_s / self.best_s
    }

    fn print(&self, job: &str) {
        println!(
            "| {job} | {} | {:.3} s | {:.3} s | {:.2} | {:.2} | {:.1} MB | {:.1} MB |",
            self.best.name(),
            self.best_s,
            self.adaptive_s,
            self.ratio(),
            self.explain.speculation(),
            self.explain.wanted_bytes as f64 / 1e6,
            self.explain.moved_in_all() as f64 / 1e6,
        );
        if std::env::var("EXPLAIN").is_ok() {
            println!("{:?}\n{}", self.forced, self.explain);
        }
    }
}

fn head() {
    println!("| job | best | in | adaptive in | ratio | moved/wanted | wanted | moved in all |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
}

/// True for the tables in full.
fn is_full() -> bool {
    std::env::var("GRIDLANE_READ_FULL").is_ok()
}

fn sum_up(ratios: &mut [f64]) -> (f64, f64, f64) {
    let found = (quantile(ratios, 0.5), quantile(ratios, 0.9), quantile(ratios, 1.0));
    println!(
        "{} jobs: median {:.2}, 90 % within {:.2}, all within {:.2}",
        ratios.len(),
        found.0,
        found.1,
        found.2
    );
    found
}

fn quantile(ratios: &mut [f64], part: f64) -> f64 {
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[((ratios.len() - 1) as f64 * part).ceil() as usize]
}

#[test]
fn recorded_traces() {
    let mut ratios = Vec::new();
    head();
    for round_trip_s in [0.026, 0.150] {
        for trace in traces() {
            let cell = Cell::new(
                &Server::gigabit(round_trip_s),
                trace.size_bytes,
                &App::Closed(trace.calls.clone()),
            );
            cell.print(&format!("{}, {:.0} ms", trace.name, round_trip_s * 1e3));
            ratios.push(cell.ratio());
            assert!(cell.explain.speculation() <= READ_BUDGET, "{}", cell.explain);
        }
    }
    let (_, most, all) = sum_up(&mut ratios);
    assert!(most <= 1.3 && all <= 1.6);
}

#[test]
fn unknown_offsets_of_the_harness() {
    let mut ratios = Vec::new();
    head();
    for round_trip_s in [0.0005, 0.026, 0.3] {
        for event_bytes in [1000, 1_000_000] {
            for fraction in [0.01, 0.1, 0.5, 1.0] {
                for is_sorted in [false, true] {
                    let size_bytes = if is_full() { 1_000_000_000 } else { 50_000_000 };
                    let ranges = events(size_bytes, event_bytes, fraction, is_sorted, 1);
                    let cell = Cell::new(&Server::gigabit(round_trip_s), size_bytes, &App::serial(&ranges));
                    let order = if is_sorted { "ascending" } else { "random" };
                    cell.print(&format!(
                        "{:.0} % of {} MB in {} kB, {order}, {} ms",
                        fraction * 100.0,
                        size_bytes / 1_000_000,
                        event_bytes / 1000,
                        round_trip_s * 1e3
                    ));
                    ratios.push(cell.ratio());
                }
            }
        }
    }
    let (_, _, all) = sum_up(&mut ratios);
    assert!(all <= 1.3);
}

#[test]
fn jobs_by_lot() {
    let mut ratios = Vec::new();
    let mut lot = Lot(19);
    let spread = |least: f64, most: f64, lot: &mut Lot| least * (most / least).powf(lot.next());
    head();
    for number in 0..200 {
        let fraction = spread(0.005, 1.0, &mut lot);
        let event_bytes = spread(1000.0, 4e6, &mut lot);
        let round_trip_s = spread(0.0005, 0.3, &mut lot);
        let size_bytes = spread(1e7, if is_full() { 1e9 } else { 1e8 }, &mut lot);
        let reads_max = if is_full() { 1e6 } else { 2000.0 };
        let event_bytes = event_bytes.max(fraction * size_bytes / reads_max) as u64;
        let size_bytes = size_bytes as u64;
        let is_sorted = lot.next() < 0.5;
        let ranges = events(size_bytes, event_bytes, fraction, is_sorted, number as u64);
        let cell = Cell::new(&Server::gigabit(round_trip_s), size_bytes, &App::serial(&ranges));
        ratios.push(cell.ratio());
        if cell.ratio() > 1.3 {
            cell.print(&format!(
                "{:.1} % of {:.0} MB in {:.1} kB, {}, {:.1} ms",
                fraction * 100.0,
                size_bytes as f64 / 1e6,
                event_bytes as f64 / 1e3,
                if is_sorted { "ascending" } else { "random" },
                round_trip_s * 1e3
            ));
        }
    }
    let (median, _, all) = sum_up(&mut ratios);
    assert!(median <= 1.3 && all <= 2.0);
}
