//! A world of storages and links, in which a [`Dispatcher`](crate::Dispatcher) is tried: deterministic, by a seed.
//!
//! Bytes are a fluid. A resource (a storage in one direction, a bottleneck) has a capacity, which the connections through it share as
//! equals (max-min), each up to the ceiling of its path (window by round trip); beyond a knee, more connections make it slower. A
//! file costs time before its first byte and, for its checksum, after the last. On a path that is down, what begins fails after a
//! time-out, and what runs stalls until its executor gives it up.
//!
//! What it leaves out: slow start, packets, processors, and everything that a storage does of its own accord.

mod fluid;
mod recorded;
mod run;
mod scenarios;
mod world;

pub use run::{Report, run};
pub use scenarios::{all, ceiling, knee, late, outage, shared, shares, sites, small};
pub use world::{Batch, Fault, Path, Resource, Scenario};
