//! What each way of reading costs on a path, by the cost model of `gridlane_read`.

use std::collections::BTreeSet;

use gridlane_core::ByteRange;
use gridlane_engine::reading::{Path, Policy, Settings};

use super::trace::Trace;

/// The time in seconds that a policy takes for a trace of a file of `size_bytes` on a path whose connections are open and have
/// their windows; `None` for the adaptive one, which chooses among the others.
pub fn price_s(policy: Policy, trace: &Trace, size_bytes: u64, path: &Path) -> Option<f64> {
    let grown = Path { window_bytes: path.holds_bytes().max(path.window_bytes), ..*path };
    let calls = || trace.calls().iter().map(|call| call.iter().map(|range| range.len()).sum::<u64>() as f64);
    let elements = || trace.calls().iter().map(|call| call.len() as f64);
    let direct = |reads: f64, bytes: f64| {
        if reads > 0.0 { grown.one_at_a_time_s(reads, bytes / reads) } else { 0.0 }
    };
    match policy {
        Policy::Adaptive => None,
        Policy::Direct => Some(direct(elements().sum(), calls().sum())),
        Policy::Vector => {
            Some(elements().zip(calls()).map(|(count, bytes)| grown.vectors_s(count, bytes)).sum())
        }
        Policy::Prefetch => {
            // What goes on where the last call ended is there already.
            let mut end = None;
            let time = |call: &Vec<ByteRange>| {
                let bytes = call.iter().map(|range| range.len()).sum::<u64>() as f64;
                let follows = call.first().map(|range| range.start()) == end;
                end = call.last().map(|range| range.end());
                match follows {
                    true => bytes / grown.rate_bytes_per_s,
                    false => grown.vectors_s(call.len() as f64, bytes),
                }
            };
            Some(trace.calls().iter().map(time).sum())
        }
        Policy::Lazy => {
            let segment = Settings::default().segment_bytes.max(1);
            let ranges = trace.calls().iter().flatten().filter(|range| !range.is_empty());
            let touched: BTreeSet<u64> = ranges
                .flat_map(|range| range.start() / segment..=(range.end() - 1).min(size_bytes) / segment)
                .collect();
            let bytes = |number: &u64| segment.min(size_bytes.saturating_sub(number * segment)) as f64;
            Some(touched.iter().map(|number| grown.bulk_s(bytes(number))).sum())
        }
        Policy::Copy => Some(path.bulk_s(size_bytes as f64)),
    }
}

/// The same of all policies that have a price.
pub fn prices(trace: &Trace, size_bytes: u64, path: &Path) -> Vec<(Policy, f64)> {
    let price = |policy| Some((policy, price_s(policy, trace, size_bytes, path)?));
    Policy::ALL.into_iter().filter_map(price).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of 1 GB in events of 1 kB at 26 ms: one by one it takes three quarters of an hour, in one call a second.
    #[test]
    fn the_published_harness() {
        let events = || (0..100_000_u64).map(|nth| ByteRange::at(nth * 10_000, 1000));
        let (one_by_one, known) =
            (Trace::of(events().map(|event| vec![event]).collect()), Trace::of(vec![events().collect()]));
        let path = Path {
            round_trip_s: 0.026,
            rate_bytes_per_s: 125e6,
            element_s: 2e-6,
            lanes: 8,
            window_bytes: 8.0 * 14_600.0,
        };
        let price = |policy, trace: &Trace| price_s(policy, trace, 1_000_000_000, &path).unwrap();
        assert!((2590.0..2630.0).contains(&price(Policy::Direct, &one_by_one)));
        assert!((2590.0..2630.0).contains(&price(Policy::Vector, &one_by_one)));
        assert!((0.8..0.9).contains(&price(Policy::Vector, &known)));
        assert!((8.0..8.4).contains(&price(Policy::Copy, &known)));
        assert!((8.0..8.6).contains(&price(Policy::Lazy, &known)));
        assert_eq!(prices(&known, 1_000_000_000, &path).len(), 5);
        // One after the other without a gap, all but the first are there when they are wanted.
        let dense = Trace::of((0..1000_u64).map(|nth| vec![ByteRange::at(nth * 1000, 1000)]).collect());
        assert!(price(Policy::Prefetch, &dense) < 0.1);
    }
}
