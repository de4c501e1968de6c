//! Jobs that are done by the adaptive policy and by each forced one: which was the best is known afterwards.

use std::fmt;

use gridlane_core::ByteRange;
use gridlane_read::{Explain, Policy};

use super::{App, Lot, Server, events, settings, time, traces};

/// Forced policies, those first that are seldom slow: one that takes longer than the best so far is not looked at to its end.
pub(crate) const FORCED: [Policy; 5] =
    [Policy::Copy, Policy::Prefetch, Policy::Vector, Policy::Direct, Policy::Lazy];

/// What a program reads of which file, and how far away that is.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) round_trip_s: f64,
    work: Work,
}

/// Events are drawn when the job is done: those of all jobs together would need memory.
enum Work {
    Recorded(Vec<Vec<ByteRange>>),
    Events { event_bytes: u64, fraction: f64, is_sorted: bool, seed: u64 },
}

impl Job {
    fn app(&self) -> App {
        match &self.work {
            Work::Recorded(calls) => App::Closed(calls.clone()),
            Work::Events { event_bytes, fraction, is_sorted, seed } => {
                App::serial(&events(self.size_bytes, *event_bytes, *fraction, *is_sorted, *seed))
            }
        }
    }

    /// Does it under all policies, over a path of 1 Gb/s.
    pub(crate) fn cell(&self) -> Cell {
        let (server, app) = (Server::gigabit(self.round_trip_s), self.app());
        let (adaptive_s, explain) =
            time(&server, self.size_bytes, &app, settings(Policy::Adaptive), f64::INFINITY).expect("it ends");
        let (mut best, mut best_s) = (Policy::Copy, f64::INFINITY);
        let mut forced = Vec::new();
        for policy in FORCED {
            let took =
                time(&server, self.size_bytes, &app, settings(policy), best_s).map(|(took_s, _)| took_s);
            forced.push((policy, took));
            if let Some(took_s) = took.filter(|took_s| *took_s < best_s) {
                (best, best_s) = (policy, took_s);
            }
        }
        Cell { best, best_s, adaptive_s, explain, forced }
    }
}

/// One job that was done.
pub(crate) struct Cell {
    pub(crate) best: Policy,
    pub(crate) best_s: f64,
    pub(crate) adaptive_s: f64,
    pub(crate) explain: Explain,
    /// Times in seconds; `None`: longer than the best before it.
    pub(crate) forced: Vec<(Policy, Option<f64>)>,
}

impl Cell {
    /// The adaptive policy's time over that of the best.
    pub(crate) fn ratio(&self) -> f64 {
        self.adaptive_s / self.best_s
    }
}

/// A line of a table of Markdown.
impl fmt::Display for Cell {
    fn fmt(&self, line: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            line,
            "{} | {:.3} s | {:.3} s | {:.2} | {:.2} | {:.1} MB | {:.1} MB |",
            self.best.name(),
            self.best_s,
            self.adaptive_s,
            self.ratio(),
            self.explain.speculation(),
            self.explain.wanted_bytes as f64 / 1e6,
            self.explain.moved_in_all() as f64 / 1e6,
        )
    }
}

/// Each recorded trace at each distance of the targets.
pub(crate) fn recorded() -> Vec<Job> {
    let mut jobs = Vec::new();
    for round_trip_s in [0.026, 0.150] {
        jobs.extend(traces().into_iter().map(|trace| Job {
            name: format!("{}, {:.0} ms", trace.name, round_trip_s * 1e3),
            size_bytes: trace.size_bytes,
            round_trip_s,
            work: Work::Recorded(trace.calls),
        }));
    }
    jobs
}

/// The events of the published harness in a file of this size, of which each is known when the one before is there.
pub(crate) fn harness(size_bytes: u64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for round_trip_s in [0.0005, 0.026, 0.3] {
        for event_bytes in [1000, 1_000_000] {
            for fraction in [0.01, 0.1, 0.5, 1.0] {
                for is_sorted in [false, true] {
                    jobs.push(Job {
                        name: format!(
                            "{:.0} % of {} MB in {} kB, {}, {} ms",
                            fraction * 100.0,
                            size_bytes / 1_000_000,
                            event_bytes / 1000,
                            order(is_sorted),
                            round_trip_s * 1e3
                        ),
                        size_bytes,
                        round_trip_s,
                        work: Work::Events { event_bytes, fraction, is_sorted, seed: 1 },
                    });
                }
            }
        }
    }
    jobs
}

/// Jobs by lot: fraction, size of events, distance, and a file of 10 MB to this size, all spread evenly by order of magnitude;
/// with so many reads at most.
pub(crate) fn by_lot(count: usize, size_bytes_max: f64, reads_max: f64) -> Vec<Job> {
    let mut lot = Lot(19);
    let spread = |least: f64, most: f64, lot: &mut Lot| least * (most / least).powf(lot.next());
    let draw = |number: usize| {
        let fraction = spread(0.005, 1.0, &mut lot);
        let event_bytes = spread(1000.0, 4e6, &mut lot);
        let round_trip_s = spread(0.0005, 0.3, &mut lot);
        let size_bytes = spread(1e7, size_bytes_max, &mut lot);
        let event_bytes = event_bytes.max(fraction * size_bytes / reads_max) as u64;
        let is_sorted = lot.next() < 0.5;
        Job {
            name: format!(
                "{:.1} % of {:.0} MB in {:.1} kB, {}, {:.1} ms",
                fraction * 100.0,
                size_bytes / 1e6,
                event_bytes as f64 / 1e3,
                order(is_sorted),
                round_trip_s * 1e3
            ),
            size_bytes: size_bytes as u64,
            round_trip_s,
            work: Work::Events { event_bytes, fraction, is_sorted, seed: number as u64 },
        }
    };
    (0..count).map(draw).collect()
}

fn order(is_sorted: bool) -> &'static str {
    if is_sorted { "ascending" } else { "random" }
}
