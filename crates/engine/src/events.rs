//! The events of a copy, for its observer, and its report.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error};

use gridlane_plan::judge::Basis;

/// Takes the events of one copy, in order. Called from the copy's task: it must not block.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The copy begins; so many bytes are there already from an earlier run.
    Plan {
        /// Bytes that need not be fetched.
        resumed_bytes: u64,
        /// Why an earlier run's partial file was not used, if there was one.
        dropped: Option<&'a str>,
    },
    /// The size is known.
    Started {
        /// Size of the whole file.
        size_bytes: u64,
    },
    /// A source changed its state for a reason.
    Source {
        /// Its number, in the order in which they were given.
        source: usize,
        /// Its state now.
        state: State,
        /// The reason.
        error: Option<&'a Error>,
    },
    /// A server named another replica, which is used as well.
    Added {
        /// Its number: the next one.
        source: usize,
        /// URL without secrets.
        url: &'a str,
    },
    /// A connection was lost and the bytes are asked for again.
    Retry {
        /// Number of the source.
        source: usize,
        /// The event in a sentence.
        error: &'a Error,
    },
    /// The progress, several times a second.
    Progress(&'a Snapshot),
    /// All bytes are there and were compared.
    Verified {
        /// The checksum they have.
        checksum: &'a Checksum,
        /// The origin of the checksum that it was compared with; `None`: there was nothing to compare with.
        basis: Option<Basis>,
    },
    /// A piece does not have the checksum that the metalink says; it is fetched again.
    WrongPiece {
        /// Where it lies.
        range: ByteRange,
        /// Numbers of the sources that sent parts of it.
        sources: &'a [usize],
    },
    /// The bytes do not have the expected checksum; some are fetched again from other sources.
    Mismatch {
        /// The checksum they have.
        found: &'a Checksum,
        /// The checksum they should have.
        expected: &'a Checksum,
        /// Numbers of the sources that are believed in the next attempt.
        believed: &'a [usize],
    },
}

/// The progress of a copy.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Size of the whole file, when known.
    pub size_bytes: Option<u64>,
    /// Bytes that are at the target.
    pub done_bytes: u64,
    /// Rate over the last seconds.
    pub rate_bytes_per_s: f64,
    /// Time to the end at that rate; `None` while nothing comes.
    pub eta_s: Option<f64>,
    /// Time since the beginning.
    pub elapsed_s: f64,
    /// True while all bytes are there and are being compared.
    pub verifying: bool,
    /// The sources in the order in which they were given.
    pub sources: Vec<SourceSnapshot>,
}

/// The progress of one source.
#[derive(Clone, Debug)]
pub struct SourceSnapshot {
    /// Its state.
    pub state: State,
    /// Rate over the last seconds.
    pub rate_bytes_per_s: f64,
    /// Smallest round trip seen.
    pub round_trip: Option<Duration>,
    /// Bytes of the file that came from it.
    pub bytes: u64,
    /// Open connections.
    pub lanes: usize,
    /// The other end of the last connection that was made to it over HTTP.
    pub peer: Option<SocketAddr>,
}

/// The state of a source, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A connection to it is being made.
    Connecting,
    /// It sends.
    Active,
    /// It is silent.
    Suspect,
    /// It does much less than it did.
    Slow,
    /// It has failed, and will be tried again.
    Probation,
    /// It asked for a pause.
    Busy,
    /// It is not needed now.
    Spare,
    /// It is not used again.
    Dead,
    /// It sent wrong bytes, or has them.
    Wrong,
}

impl State {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Connecting => "connecting",
            State::Active => "active",
            State::Suspect => "suspect",
            State::Slow => "slow",
            State::Probation => "probation",
            State::Busy => "busy",
            State::Spare => "spare",
            State::Dead => "dead",
            State::Wrong => "wrong",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The limit of a copy's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The rate that was asked for.
    Rate,
    /// Writing to the target.
    Target,
    /// This machine's processors.
    Processor,
    /// The sources, and the paths to them.
    Sources,
    /// Time in which nothing came: connecting, waiting for a source, verifying.
    Pauses,
    /// Connecting and the first round trips: it was over before rates could be measured.
    StartUp,
    /// Servers made the copy between themselves.
    Servers,
    /// It did not begin.
    NotBegun,
}

impl Limit {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Rate => "rate",
            Limit::Target => "target",
            Limit::Processor => "processor",
            Limit::Sources => "sources",
            Limit::Pauses => "pauses",
            Limit::StartUp => "start_up",
            Limit::Servers => "servers",
            Limit::NotBegun => "not_begun",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Rate => "the limit of the rate",
            Limit::Target => "writing to the target",
            Limit::Processor => "this machine's CPU",
            Limit::Sources => "the sources and the paths to them",
            Limit::Pauses => "pauses: connecting, waiting for a source, or verifying",
            Limit::StartUp => "start-up: connecting and the first round trips",
            Limit::Servers => "the servers, and the path between them",
            Limit::NotBegun => "nothing: the copy did not begin",
        })
    }
}

/// The end of a copy, good or bad.
#[derive(Clone, Debug)]
pub struct Report {
    /// Size of the file; `None` if that was never known.
    pub size_bytes: Option<u64>,
    /// Bytes at the target, resumed ones included.
    pub done_bytes: u64,
    /// Bytes taken over from an earlier run.
    pub resumed_bytes: u64,
    /// Bytes received from all sources in this run.
    pub fetched_bytes: u64,
    /// Bytes received more than once.
    pub extra_bytes: u64,
    /// The time that it took.
    pub seconds: f64,
    /// The least time that the sources and paths seen in this run would have allowed for what was
    /// fetched; `None`: unknown, because it was over before rates could be measured.
    pub bound_s: Option<f64>,
    /// The source of the figures for the bound, or the reason why it is unknown.
    pub bound_from: String,
    /// The limit of its rate.
    pub limited_by: Limit,
    /// The origin of the checksum that the bytes were compared with, which never comes from the bytes themselves;
    /// `None`: unverified.
    pub verified: Option<Basis>,
    /// Checksum of the bytes: the one that was compared.
    pub checksum: Option<Checksum>,
    /// The strongest kind of checksum that the bytes were compared with, when they were.
    pub verified_with: Option<ChecksumKind>,
    /// The kind of checksum that the caller asked for without a value, when no source stated one: the bytes are
    /// unverified, or were compared by another kind.
    pub unstated: Option<ChecksumKind>,
    /// The server's answer about the time of the last change that an upload told it: true if it keeps that; `None` when
    /// no time was told.
    pub modified_accepted: Option<bool>,
    /// The sources in the order in which they were given.
    pub sources: Vec<SourceReport>,
}

impl Report {
    /// The report of a copy that never began.
    pub(crate) fn of_none(urls: Vec<String>, took: Duration) -> Report {
        let sources = urls.into_iter().map(|url| SourceReport {
            url,
            state: State::Spare,
            bytes: 0,
            received_bytes: 0,
            rate_best_bytes_per_s: None,
            round_trip: None,
            connections: 0,
            handshakes: 0,
            wrong_pieces: 0,
            error: None,
        });
        Report {
            size_bytes: None,
            done_bytes: 0,
            resumed_bytes: 0,
            fetched_bytes: 0,
            extra_bytes: 0,
            seconds: took.as_secs_f64(),
            bound_s: None,
            bound_from: "unknown: the copy did not begin".into(),
            limited_by: Limit::NotBegun,
            verified: None,
            checksum: None,
            verified_with: None,
            unstated: None,
            modified_accepted: None,
            sources: sources.collect(),
        }
    }

    /// Rate at which this run brought bytes of the file, the same bytes from two sources at a time counted once.
    pub fn rate_bytes_per_s(&self) -> f64 {
        self.fetched_bytes.saturating_sub(self.extra_bytes) as f64 / self.seconds.max(1e-9)
    }
}

/// The part of one source.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// URL without secrets.
    pub url: String,
    /// The state, with the meaning of [`SourceSnapshot::state`].
    pub state: State,
    /// Bytes of the file that came from it.
    pub bytes: u64,
    /// Bytes that it sent, those that others had sent before included.
    pub received_bytes: u64,
    /// The most it sent within one second, if it was active for a second.
    pub rate_best_bytes_per_s: Option<f64>,
    /// Smallest round trip the kernel saw.
    pub round_trip: Option<Duration>,
    /// Connections that carried its bytes, those that were there already included.
    pub connections: u32,
    /// Connections made to it.
    pub handshakes: u32,
    /// Pieces that it sent and that did not have the checksum that the metalink says.
    pub wrong_pieces: u32,
    /// The last thing that went wrong with it.
    pub error: Option<Error>,
}
