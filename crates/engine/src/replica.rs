//! A source as a copy sees it.

use std::sync::Arc;
use std::time::Duration;

use gridlane_core::{Error, Time};
use gridlane_plan::LaneId;

use crate::meter::{Bursts, Meter};
use crate::source::Source;
use crate::spec::StoredSource;

/// A source as the run sees it.
pub(crate) struct Replica {
    pub(crate) source: Arc<Source>,
    pub(crate) meter: Meter,
    pub(crate) bursts: Bursts,
    pub(crate) received_bytes: u64,
    /// Lanes that had a connection, a new one or one that was there already.
    pub(crate) connections: u32,
    /// Connections made; those that were there already do not count.
    pub(crate) handshakes: u32,
    /// A connection to its server has been made at least once.
    pub(crate) is_reached: bool,
    /// A lane has answered several requests in a row.
    pub(crate) pipelines: bool,
    /// The state of which the observer was told last.
    pub(crate) trouble: Trouble,
    /// Ticks without a break in which it has had something to send.
    pub(crate) busy_ticks: u32,
    /// Connections that could not be made.
    pub(crate) failed_connects: u32,
    pub(crate) failed_connect_at: Time,
    pub(crate) handshake_round_trips: u32,
    pub(crate) round_trip: Option<Duration>,
    /// Its next lane asks for its checksum.
    pub(crate) asks_by_lane: bool,
    /// The lane that has been told to ask for it, and has not said what came of that.
    pub(crate) asking_lane: Option<LaneId>,
    /// Its server was silent in an earlier copy, and is not waited for.
    pub(crate) was_silent: bool,
    /// Why it is never used again.
    pub(crate) dead: Option<Error>,
    /// The last thing that went wrong.
    pub(crate) last_error: Option<Error>,
}

/// The hindrance that keeps a source from delivering as it did, as far as the observer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Slow,
    Suspect,
    Probation,
    Busy,
}

impl Replica {
    pub(crate) fn new(number: usize, url: gridlane_core::Url, stored: Option<StoredSource>) -> Replica {
        Replica {
            source: Arc::new(Source::new(number as u32, url).stored(stored)),
            meter: Meter::default(),
            bursts: Bursts::default(),
            received_bytes: 0,
            connections: 0,
            handshakes: 0,
            is_reached: false,
            pipelines: false,
            trouble: Trouble::None,
            busy_ticks: 0,
            failed_connects: 0,
            failed_connect_at: Time::ZERO,
            handshake_round_trips: 0,
            round_trip: None,
            asks_by_lane: false,
            asking_lane: None,
            was_silent: false,
            dead: None,
            last_error: None,
        }
    }

    /// The size that it says its object has.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.source.identity()?.size_bytes
    }

    /// Keeps the smallest one.
    pub(crate) fn saw_round_trip(&mut self, seen: Option<Duration>) {
        self.round_trip = match (self.round_trip, seen) {
            (Some(before), Some(seen)) => Some(before.min(seen)),
            (before, seen) => before.or(seen),
        };
    }
}
