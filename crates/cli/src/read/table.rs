//! The table of `gridlane read`.

use std::fmt::Write as _;

use gridlane_client::events::ReadRun;
use gridlane_client::reading::Trace;
use gridlane_core::units::{format_bytes, format_rate, format_seconds};
use gridlane_engine::reading::{Path, Policy};

/// What each policy would take and took.
pub(super) fn table(
    trace: &Trace,
    size_bytes: u64,
    path: &Path,
    prices: &[(Policy, f64)],
    runs: &[ReadRun],
) -> String {
    let mut text = format!(
        "{} calls, {} ranges, {} of {}\nround trip {:.1} ms, {}, {:.1} us for a range, {} connections\n\n",
        trace.calls().len(),
        trace.ranges(),
        format_bytes(trace.bytes()),
        format_bytes(size_bytes),
        path.round_trip_s * 1e3,
        format_rate(path.rate_bytes_per_s),
        path.element_s * 1e6,
        path.lanes,
    );
    let line = |text: &mut String, fields: [&str; 7]| {
        let [policy, expected, took, opened, requests, moved, stalled] = fields;
        let row =
            format!("{policy:<9}{expected:>10}{took:>10}{opened:>10}{requests:>10}{moved:>10}{stalled:>10}");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", row.trim_end());
    };
    line(&mut text, ["policy", "expected", "took", "opened", "requests", "moved", "stalled"]);
    for policy in Policy::ALL {
        let price = prices.iter().find(|(other, _)| *other == policy).map(|(_, price_s)| *price_s);
        let price = price.map_or("-".to_owned(), format_seconds);
        let run = runs.iter().rev().find(|run| run.record.policy == policy.name());
        let Some(run) = run else {
            line(&mut text, [policy.name(), &price, "-", "", "", "", ""]);
            continue;
        };
        line(
            &mut text,
            [
                policy.name(),
                &price,
                &format_seconds(run.seconds),
                &format_seconds(run.open_s),
                &run.record.requests.to_string(),
                &format_bytes(run.record.moved_bytes),
                &format_seconds(run.record.stall_s),
            ],
        );
    }
    text
}
