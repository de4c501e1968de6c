//! A reader, an engine that obeys it, an application, and simulated servers, on a fake clock.
//!
//! Discrete events. A connection takes handshakes, then requests, which it answers in order. Its sender has a window of 14.6 kB
//! that grows by what is acknowledged (slow start) while all connections together have less under way than the path holds, and
//! for an eighth of the round trip more (4 to 16 ms, as in HyStart), and sends no more than it. The path of a server takes the chunks of all its connections in the order
//! in which they are sent, each for its bytes, 16 bytes more for each element, and not before the servers' time for its
//! elements; half a round trip later they are here.
//!
//! The engine keeps its own account and checks the reader: every byte that is delivered is right and wanted, each once; each
//! call ends once, after its ranges; no byte is asked for while it is in flight, but for those that a test allows; the memory is
//! within the budget. The content of the file is a function of the offset; a payload is either bytes, or only their place.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

#[path = "../../../plan/tests/sim/cases.rs"]
mod cases;
mod engine;
mod hindsight;
pub(crate) mod root_file;
mod server;
mod traces;

pub(crate) use cases::config;
pub(crate) use engine::{App, Made, Outcome, Sim, SimPayload, Timed, content};
pub(crate) use hindsight::{Cell, FORCED, Job, by_lot, harness, recorded};
pub(crate) use server::{MB, Place, Server};
pub(crate) use traces::{Trace, traces};

use gridlane_core::ByteRange;
use gridlane_read::{Explain, Policy, Settings};

/// A seeded generator of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Lot(pub(crate) u64);

impl Lot {
    /// Between 0 and 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The events of the published harness: so many of `size_bytes / event_bytes`, at random places or ascending.
pub(crate) fn events(
    size_bytes: u64,
    event_bytes: u64,
    fraction: f64,
    is_sorted: bool,
    seed: u64,
) -> Vec<ByteRange> {
    let all = size_bytes / event_bytes;
    let count = ((all as f64 * fraction).round() as usize).max(1);
    let mut numbers: Vec<u64> = (0..all).collect();
    let mut lot = Lot(seed);
    for at in 0..count.min(numbers.len()) {
        let other = at + (lot.next() * (numbers.len() - at) as f64) as usize;
        numbers.swap(at, other);
    }
    numbers.truncate(count);
    if is_sorted {
        numbers.sort_unstable();
    }
    numbers.into_iter().map(|number| ByteRange::at(number * event_bytes, event_bytes)).collect()
}

/// Settings with a policy and room for a whole file of a gigabyte.
pub(crate) fn settings(policy: Policy) -> Settings {
    Settings { memory_bytes: 4_000_000_000, ..Settings::forced(policy) }
}

/// The time of a job under a policy, unless it takes longer than `limit_s`; and the record.
pub(crate) fn time(
    server: &Server,
    size_bytes: u64,
    calls: &App,
    settings: Settings,
    limit_s: f64,
) -> Option<(f64, Explain)> {
    let mut sim = Sim::<Place>::new(size_bytes, settings, std::slice::from_ref(server));
    sim.give_up_s = limit_s;
    let outcome = sim.run(calls);
    assert!(outcome.failures.is_empty() || outcome.gave_up, "{:?}", outcome.failures);
    (!outcome.gave_up).then_some((outcome.finish_s, outcome.explain))
}
