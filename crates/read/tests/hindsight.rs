//! The adaptive policy against the best of the forced ones, chosen in hindsight for each job: recorded traces, the events of the
//! published harness with unknown offsets, and jobs by lot. `cargo test -p gridlane-read --test hindsight -- --nocapture` prints
//! the tables. With `GRIDLANE_READ_FULL=1` the file of the harness has 1 GB, and not 50 MB, and jobs by lot are of files
//! of up to 1 GB with up to a million reads: minutes. The example `hindsight` has the same jobs for `make bench-read`.

mod sim;

use gridlane_core::limits::READ_BUDGET;
use sim::{Cell, Job, by_lot, harness, recorded};

fn print(job: &Job, cell: &Cell) {
    println!("| {} | {cell}", job.name);
    if std::env::var("EXPLAIN").is_ok() {
        println!("{:?}\n{}", cell.forced, cell.explain);
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
    for job in recorded() {
        let cell = job.cell();
        print(&job, &cell);
        ratios.push(cell.ratio());
        assert!(cell.explain.speculation() <= READ_BUDGET, "{}", cell.explain);
    }
    let (_, most, all) = sum_up(&mut ratios);
    assert!(most <= 1.3 && all <= 1.6);
}

#[test]
fn unknown_offsets_of_the_harness() {
    let mut ratios = Vec::new();
    head();
    for job in harness(if is_full() { 1_000_000_000 } else { 50_000_000 }) {
        let cell = job.cell();
        print(&job, &cell);
        ratios.push(cell.ratio());
    }
    let (_, _, all) = sum_up(&mut ratios);
    assert!(all <= 1.3);
}

#[test]
fn jobs_by_lot() {
    let mut ratios = Vec::new();
    let (size_bytes_max, reads_max) = if is_full() { (1e9, 1e6) } else { (1e8, 2000.0) };
    head();
    for job in by_lot(200, size_bytes_max, reads_max) {
        let cell = job.cell();
        ratios.push(cell.ratio());
        if cell.ratio() > 1.3 {
            print(&job, &cell);
        }
    }
    let (median, _, all) = sum_up(&mut ratios);
    assert!(median <= 1.3 && all <= 2.0);
}
