//! The lines of replayed reads.

use std::time::Duration;

use gridlane_engine::reading::{Explain, Path, Policy, Proof};
use serde::Serialize;

use crate::reading::Trace;

/// A line of `gridlane read`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum ReadLine {
    /// A policy was run.
    #[serde(rename = "run")]
    Run(ReadRun),
    /// What each policy would take.
    #[serde(rename = "prices")]
    Prices(ReadPrices),
}

/// One policy that was run.
#[derive(Clone, Debug, Serialize)]
pub struct ReadRun {
    /// Its name.
    pub policy: &'static str,
    /// Size of the file.
    pub size_bytes: u64,
    /// From the beginning to the last byte that was wanted.
    pub seconds: f64,
    /// The part of it until the file was open.
    pub open_s: f64,
    /// The time in which a call waited.
    pub stall_s: f64,
    /// Requests on the wire, as the planner counts them.
    pub requests: u64,
    /// Ranges of these.
    pub elements: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Bytes that calls wanted, repeated ones once.
    pub wanted_bytes: u64,
    /// Bytes that came.
    pub moved_bytes: u64,
    /// Bytes that calls got from the disk cache.
    pub stored_bytes: u64,
    /// Bytes that were kept in it.
    pub kept_bytes: u64,
    /// Bytes of it that were damaged.
    pub damaged_bytes: u64,
    /// Bytes that count against the budget, for each that was wanted.
    pub speculation: f64,
    /// When the rest of the file began to be copied, from the first call on; `null`: it was not.
    pub copied_after_s: Option<f64>,
    /// The round trip, in seconds.
    pub round_trip_s: f64,
    /// The rate of the path.
    pub rate_bytes_per_s: f64,
    /// The cost of a range, in seconds.
    pub element_s: f64,
    /// `verified`, `unverified` or `wrong`.
    pub verification: &'static str,
    /// Failures of sources that were made good.
    pub failures: u64,
    /// The Adler-32 of all that was read, in the order of the trace; `null`: it was not wanted.
    pub adler32: Option<String>,
    /// Bytes of it, repeated ones each time.
    pub bytes: u64,
    /// All of it in words.
    pub explain: String,
}

/// What each policy would take.
#[derive(Clone, Debug, Serialize)]
pub struct ReadPrices {
    /// Calls of the trace.
    pub calls: usize,
    /// Ranges of these.
    pub ranges: usize,
    /// Size of the file.
    pub size_bytes: u64,
    /// The round trip that was measured, in seconds.
    pub round_trip_s: f64,
    /// The rate that was measured.
    pub rate_bytes_per_s: f64,
    /// The cost of a range, in seconds.
    pub element_s: f64,
    /// The policies but the adaptive one.
    pub policies: Vec<ReadPrice>,
}

/// What a policy would take.
#[derive(Clone, Debug, Serialize)]
pub struct ReadPrice {
    /// Its name.
    pub policy: &'static str,
    /// Time by the cost model, connections open.
    pub expected_s: f64,
}

impl ReadRun {
    /// The line of a run of a trace that took `all` from the beginning, and `opened` until the file was open.
    pub fn new(
        trace: &Trace,
        (explain, proof): (&Explain, &Proof),
        size_bytes: u64,
        opened: Duration,
        all: Duration,
    ) -> ReadRun {
        ReadRun {
            policy: explain.policy.name(),
            size_bytes,
            seconds: all.as_secs_f64(),
            open_s: opened.as_secs_f64(),
            stall_s: explain.stall.as_secs_f64(),
            requests: explain.requests,
            elements: explain.elements,
            connections: explain.handshakes,
            wanted_bytes: explain.wanted_bytes,
            moved_bytes: explain.moved_in_all(),
            stored_bytes: explain.stored_bytes,
            kept_bytes: explain.kept_bytes,
            damaged_bytes: explain.damaged_bytes,
            speculation: explain.speculation(),
            copied_after_s: explain.bulk_after.map(|after| after.as_secs_f64()),
            round_trip_s: explain.round_trip_s,
            rate_bytes_per_s: explain.rate_bytes_per_s,
            element_s: explain.element_s,
            verification: proof.name(),
            failures: explain.failures,
            adler32: None,
            bytes: trace.bytes(),
            explain: explain.to_string(),
        }
    }
}

impl ReadLine {
    /// The line of what each policy would take.
    pub fn prices(trace: &Trace, size_bytes: u64, path: &Path, prices: &[(Policy, f64)]) -> ReadLine {
        let price = |(policy, expected_s): &(Policy, f64)| ReadPrice {
            policy: policy.name(),
            expected_s: *expected_s,
        };
        ReadLine::Prices(ReadPrices {
            calls: trace.calls().len(),
            ranges: trace.ranges(),
            size_bytes,
            round_trip_s: path.round_trip_s,
            rate_bytes_per_s: path.rate_bytes_per_s,
            element_s: path.element_s,
            policies: prices.iter().map(price).collect(),
        })
    }
}
