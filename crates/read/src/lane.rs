//! A connection, the requests on it, and the source that it leads to.

use std::collections::VecDeque;
use std::time::Duration;

use gridlane_core::limits::READ_REQUESTS_PER_LANE_MAX;
use gridlane_core::{Backoff, ByteRange, Error, Time};
use gridlane_plan::{RateEstimate, RequestId, SourceId};

use crate::budget::Purpose;
use crate::cost::INITIAL_WINDOW_BYTES;
use crate::estimate::RoundTrip;
use crate::event::Abilities;
use crate::parts::Parts;

/// A lane is suspect when it is silent for this long, or for [`SUSPECT_ROUND_TRIPS`]: as in the plan of a copy.
const SUSPECT: Duration = Duration::from_secs(1);
/// See [`SUSPECT`].
const SUSPECT_ROUND_TRIPS: u32 = 4;
/// A lane is given up when it is silent for this long, or for [`SILENT_ROUND_TRIPS`].
const SILENT: Duration = Duration::from_secs(5);
/// See [`SILENT`].
const SILENT_ROUND_TRIPS: u32 = 8;
/// Bytes after which failures of a source are forgotten.
const PROGRESS_BYTES: u64 = 1024 * 1024;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Ready,
    /// Asked to be closed; nothing of it counts any more.
    Closing,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) source: SourceId,
    pub(crate) state: State,
    pub(crate) abilities: Option<Abilities>,
    pub(crate) requests: VecDeque<RequestId>,
    /// Bytes asked for and not received.
    pub(crate) outstanding_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) rate: RateEstimate,
    /// When it last brought a byte, or was asked for something while it owed nothing.
    pub(crate) heard_at: Time,
    /// Since when it owes something, and the bytes that it brought since then.
    pub(crate) busy: (Time, u64),
    /// It was silent for so long that what it owes is asked for elsewhere.
    pub(crate) is_suspect: bool,
    /// When the last answer on it ended, while another one was due.
    pub(crate) answered_at: Option<Time>,
}

impl Lane {
    pub(crate) fn new(source: SourceId, now: Time) -> Lane {
        Lane {
            source,
            state: State::Connecting,
            abilities: None,
            requests: VecDeque::new(),
            outstanding_bytes: 0,
            received_bytes: 0,
            rate: RateEstimate::default(),
            heard_at: now,
            busy: (now, 0),
            is_suspect: false,
            answered_at: None,
        }
    }

    /// True if it may be sent another request, as far as its protocol goes.
    pub(crate) fn takes_requests(&self) -> bool {
        let pipelines = self.abilities.is_some_and(|abilities| abilities.pipelines);
        let requests_max = if pipelines { READ_REQUESTS_PER_LANE_MAX } else { 1 };
        self.state == State::Ready && !self.is_suspect && self.requests.len() < requests_max
    }

    /// Bytes that its sender may have under way, as far as it was seen to grow.
    pub(crate) fn window_bytes(&self, holds_bytes: f64) -> f64 {
        let is_warm = self.abilities.is_some_and(|abilities| abilities.warm);
        let grown = if is_warm { f64::INFINITY } else { INITIAL_WINDOW_BYTES + self.received_bytes as f64 };
        grown.min(holds_bytes.max(INITIAL_WINDOW_BYTES))
    }

    /// The rate at which it has brought bytes since it owes some, in bytes per second, where that is too little for an
    /// estimate, and it has had two round trips.
    pub(crate) fn early_rate(&self, now: Time, round_trip_s: f64) -> Option<f64> {
        let (since, bytes) = self.busy;
        let owed_s = now.since(since).as_secs_f64();
        (owed_s > 2.0 * round_trip_s).then(|| bytes as f64 / (owed_s - round_trip_s))
    }

    /// When it becomes suspect, and when it is given up, unless it brings something.
    pub(crate) fn patience(&self, round_trip_s: f64) -> Option<(Time, Time)> {
        let round_trip = Duration::from_secs_f64(round_trip_s);
        (self.state == State::Ready && !self.requests.is_empty()).then(|| {
            let suspect = SUSPECT.max(SUSPECT_ROUND_TRIPS * round_trip);
            (self.heard_at + suspect, self.heard_at + SILENT.max(SILENT_ROUND_TRIPS * round_trip))
        })
    }
}

/// One request that is not answered in full.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) lane: gridlane_plan::LaneId,
    pub(crate) purpose: Purpose,
    /// Bytes that it has not brought.
    pub(crate) missing: Parts,
    pub(crate) bytes: u64,
    pub(crate) elements: usize,
    pub(crate) sent_at: Time,
    /// The lane owed nothing when it was sent: its first byte shows the round trip.
    pub(crate) was_alone: bool,
    pub(crate) first_byte_at: Option<Time>,
    /// Its answer is the whole file.
    pub(crate) is_body: bool,
    pub(crate) is_taken_back: bool,
}

impl Request {
    /// Bytes that it owes to calls, and to them alone.
    pub(crate) fn demanded_bytes(&self) -> u64 {
        if self.purpose == Purpose::Demand { self.missing.len() } else { 0 }
    }

    /// The parts of it, ascending.
    pub(crate) fn missing_parts(&self) -> Vec<ByteRange> {
        self.missing.iter().collect()
    }
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) round_trip: RoundTrip,
    pub(crate) is_dead: bool,
    /// It ignores ranges.
    pub(crate) is_rangeless: bool,
    /// An earlier file has shown that it ignores ranges: one lane is to find out whether it still does.
    pub(crate) is_doubted: bool,
    /// It has answered something, or connected.
    pub(crate) was_reached: bool,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) lanes_max: usize,
    pub(crate) rests_until: Option<Time>,
    pub(crate) failures: u32,
    pub(crate) received_bytes: u64,
    pub(crate) last_error: Option<Error>,
    progress_bytes: u64,
    backoff: Backoff,
}

impl Source {
    pub(crate) fn new(lanes_max: usize) -> Source {
        Source {
            round_trip: RoundTrip::default(),
            is_dead: false,
            is_rangeless: false,
            is_doubted: false,
            was_reached: false,
            size_bytes: None,
            lanes_max,
            rests_until: None,
            failures: 0,
            received_bytes: 0,
            last_error: None,
            progress_bytes: 0,
            backoff: Backoff::new(),
        }
    }

    /// It brought bytes that were asked for: when that is worth a failure, those so far are forgiven.
    pub(crate) fn receive(&mut self, bytes: u64) {
        self.received_bytes += bytes;
        self.progress_bytes += bytes;
        if self.progress_bytes >= PROGRESS_BYTES {
            (self.progress_bytes, self.failures, self.backoff) = (0, 0, Backoff::new());
        }
    }

    /// It failed, and rests for a while. Failures of several lanes at once are one.
    pub(crate) fn fail(&mut self, now: Time, error: Error) {
        self.last_error = Some(error);
        if self.rests_until.is_some_and(|until| until > now) {
            return;
        }
        self.failures += 1;
        self.progress_bytes = 0;
        self.rests_until = Some(now + self.backoff.pause());
    }

    /// True if lanes may be opened to it and requests sent.
    pub(crate) fn is_usable(&self, now: Time) -> bool {
        !self.is_dead && self.rests_until.is_none_or(|until| until <= now)
    }
}
