//! The lines of replayed reads.

use std::collections::BTreeMap;
use std::time::Duration;

use gridlane_engine::reading::{Explain, Format, Path, Policy, Proof, RemoteFile};
use serde::Serialize;

use crate::reading::Trace;

/// A line of `gridlane read`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum ReadLine {
    /// A policy was run.
    #[serde(rename = "run")]
    Run(Box<ReadRun>),
    /// What each policy would take.
    #[serde(rename = "prices")]
    Prices(ReadPrices),
}

/// What was decided for a file and what it cost, as the command, the C library and Python tell it.
#[derive(Clone, Debug, Serialize)]
pub struct ReadRecord {
    /// The policy.
    pub policy: &'static str,
    /// Size of the file.
    pub size_bytes: u64,
    /// The version that the first server states.
    pub version: Option<String>,
    /// The format that the file was recognised as.
    pub format: Option<&'static str>,
    /// The round trip, in seconds.
    pub round_trip_s: f64,
    /// The rate of the path.
    pub rate_bytes_per_s: f64,
    /// The cost of a range, in seconds.
    pub element_s: f64,
    /// Ranges with smaller gaps are fetched as one.
    pub gap_bytes: u64,
    /// Calls.
    pub calls: u64,
    /// Ranges of these.
    pub ranges: u64,
    /// Ranges that were in memory.
    pub hits: u64,
    /// Parts of ranges that an earlier call had asked for already.
    pub shared: u64,
    /// Requests on the wire, as the planner counts them.
    pub requests: u64,
    /// Ranges of these.
    pub elements: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Bytes that calls wanted, repeated ones once.
    pub wanted_bytes: u64,
    /// Bytes that calls got.
    pub delivered_bytes: u64,
    /// Bytes that came.
    pub moved_bytes: u64,
    /// The same by what they came for.
    pub moved_for_bytes: BTreeMap<&'static str, u64>,
    /// Bytes that calls got from the disk cache.
    pub stored_bytes: u64,
    /// Bytes that were kept in it.
    pub kept_bytes: u64,
    /// Bytes of it that were damaged.
    pub damaged_bytes: u64,
    /// Bytes that count against the budget, for each that was wanted.
    pub speculation: f64,
    /// The time in which a call waited.
    pub stall_s: f64,
    /// When the rest of the file began to be copied, from the first call on; `null`: it was not.
    pub copied_after_s: Option<f64>,
    /// Most memory at once.
    pub memory_bytes_most: u64,
    /// Failures of sources that were made good.
    pub failures: u64,
    /// The last of them.
    pub last_failure: Option<String>,
    /// `verified`, `unverified` or `wrong`.
    pub verification: &'static str,
    /// All of it in words.
    pub explain: String,
}

/// One policy that was run.
#[derive(Clone, Debug, Serialize)]
pub struct ReadRun {
    /// From the beginning to the last byte that was wanted.
    pub seconds: f64,
    /// The part of it until the file was open.
    pub open_s: f64,
    /// What was decided, and what it cost.
    #[serde(flatten)]
    pub record: ReadRecord,
    /// The Adler-32 of all that was read, in the order of the trace; `null`: it was not wanted.
    pub adler32: Option<String>,
    /// Bytes of it, repeated ones each time.
    pub bytes: u64,
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

impl ReadRecord {
    /// The record of a file up to now.
    pub fn of(file: &RemoteFile) -> ReadRecord {
        ReadRecord::new(&file.explain(), &file.proof(), file.size_bytes(), file.version())
    }

    /// The same of its parts.
    pub fn new(found: &Explain, proof: &Proof, size_bytes: u64, version: Option<String>) -> ReadRecord {
        ReadRecord {
            policy: found.policy.name(),
            size_bytes,
            version,
            format: found.format.map(Format::name),
            round_trip_s: found.round_trip_s,
            rate_bytes_per_s: found.rate_bytes_per_s,
            element_s: found.element_s,
            gap_bytes: found.gap_bytes,
            calls: found.calls,
            ranges: found.ranges,
            hits: found.hits,
            shared: found.shared,
            requests: found.requests,
            elements: found.elements,
            connections: found.handshakes,
            wanted_bytes: found.wanted_bytes,
            delivered_bytes: found.delivered_bytes,
            moved_bytes: found.moved_in_all(),
            moved_for_bytes: found
                .moved_bytes
                .iter()
                .map(|(purpose, bytes)| (purpose.name(), *bytes))
                .collect(),
            stored_bytes: found.stored_bytes,
            kept_bytes: found.kept_bytes,
            damaged_bytes: found.damaged_bytes,
            speculation: found.speculation(),
            stall_s: found.stall.as_secs_f64(),
            copied_after_s: found.bulk_after.map(|after| after.as_secs_f64()),
            memory_bytes_most: found.memory_bytes_most,
            failures: found.failures,
            last_failure: found.last_failure.clone(),
            verification: proof.name(),
            explain: found.to_string(),
        }
    }

    /// An object of JSON, on one line.
    pub fn to_json(&self) -> String {
        // It has neither maps with other keys than texts nor anything else that JSON has no form for.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl ReadRun {
    /// The line of a run of a trace that took `all` from the beginning, and `opened` until the file was open.
    pub fn new(trace: &Trace, record: ReadRecord, opened: Duration, all: Duration) -> ReadRun {
        ReadRun {
            seconds: all.as_secs_f64(),
            open_s: opened.as_secs_f64(),
            record,
            adler32: None,
            bytes: trace.bytes(),
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
