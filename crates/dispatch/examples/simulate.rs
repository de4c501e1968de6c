//! Prints what the optimisers reach in simulated worlds: `cargo run --release -p gridlane-dispatch --example simulate [SCENARIO
//! [OPTIMISER]]`. With a scenario's name, or a part of it, its decisions as well.

use std::time::Instant;

use gridlane_dispatch::Kind;
use gridlane_dispatch::simulate::{all, run};

fn main() {
    let (wanted, optimiser) = (std::env::args().nth(1), std::env::args().nth(2));
    println!(
        "| scenario | optimiser | time (s) | of the bound | ≥ 0.95 after (s) | changes/h | failed | failures | twice (GB) | ran (s) |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for scenario in all().iter().filter(|it| wanted.as_ref().is_none_or(|wanted| it.name.contains(wanted))) {
        let kinds = [
            ("ours", Kind::Ours),
            ("fts313", Kind::Fts313),
            ("fts314", Kind::Fts314),
            ("8 copies", Kind::Fixed(8)),
        ];
        for (name, kind) in
            kinds.into_iter().filter(|(name, _)| optimiser.as_deref().is_none_or(|it| it == *name))
        {
            let began = Instant::now();
            let report = run(scenario, kind);
            let reaches = report.reaches_s(0.95).map_or("never".to_owned(), |at| at.to_string());
            // Of what was not finished in time, the part of the best rate.
            let moved = report.rates.iter().sum::<f64>() / report.best_bytes_per_s;
            let share =
                if report.time_s >= scenario.until_s { moved } else { report.bound_s } / report.time_s;
            println!(
                "| {} | {name} | {:.0} | {share:.3} | {reaches} | {:.1} | {} | {} | {:.1} | {:.2} |",
                scenario.name,
                report.time_s,
                report.changes_per_hour(120.0, report.time_s),
                report.failed,
                report.failures,
                report.twice_bytes / 1e9,
                began.elapsed().as_secs_f64(),
            );
            if wanted.is_some() {
                let piece = report.rates.len() / 20;
                let rates: Vec<String> = (0..20)
                    .map(|at| {
                        format!("{:.2}", report.rate(at * piece, (at + 1) * piece) / report.best_bytes_per_s)
                    })
                    .collect();
                println!("rates over time, as parts of the best: {}", rates.join(" "));
                println!("copies at once {:?}, groups {:?}", report.limits, report.groups);
                for decision in report.decisions.iter().take(60) {
                    println!(
                        "  {:.0} s, link {}: {decision}",
                        decision.at.since_origin().as_secs_f64(),
                        decision.link.0
                    );
                }
            }
        }
    }
}
