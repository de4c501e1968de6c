//! The adaptive policy beside each forced one in simulated time, for `make bench-read`: jobs that would take days.
//!
//! `cargo run --release -p gridlane-read --example hindsight -- traces|harness|lot [BYTES]`: the recorded traces; the events of the
//! published harness with unknown offsets; 200 jobs by lot. BYTES (1 GB) is the size of the harness's file, and the most that
//! files of jobs by lot have. Prints lines with a tab between fields: job, round trip in seconds, size of the file in bytes, the
//! adaptive policy's seconds, bytes that were wanted, bytes that came, bytes that count against the budget for each that was
//! wanted, and then for each forced policy `NAME=SECONDS`, or `NAME=` where it was stopped, at the time of the best before it.

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::process::ExitCode;

use sim::{Job, by_lot, harness, recorded};

/// Reads of a job by lot, of which there are fewer in small files.
const READS_MAX: f64 = 1e6;
const JOBS_BY_LOT: usize = 200;

fn jobs(args: &[String]) -> Option<Vec<Job>> {
    let size_bytes = args.get(1).map_or(Some(1_000_000_000), |given| given.parse::<u64>().ok())?;
    match args.first()?.as_str() {
        "traces" => Some(recorded()),
        "harness" => Some(harness(size_bytes)),
        "lot" => Some(by_lot(JOBS_BY_LOT, size_bytes as f64, READS_MAX * size_bytes as f64 / 1e9)),
        _ => None,
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(jobs) = jobs(&args) else {
        eprintln!("usage: hindsight traces|harness|lot [BYTES]");
        return ExitCode::from(2);
    };
    for job in jobs {
        let cell = job.cell();
        let forced = cell.forced.iter().map(|(policy, took_s)| {
            format!("{}={}", policy.name(), took_s.map_or(String::new(), |took_s| format!("{took_s:.6}")))
        });
        println!(
            "{}\t{}\t{}\t{:.6}\t{}\t{}\t{:.4}\t{}",
            job.name,
            job.round_trip_s,
            job.size_bytes,
            cell.adaptive_s,
            cell.explain.wanted_bytes,
            cell.explain.moved_in_all(),
            cell.explain.speculation(),
            forced.collect::<Vec<_>>().join("\t")
        );
    }
    ExitCode::SUCCESS
}
