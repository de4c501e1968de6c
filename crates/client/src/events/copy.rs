//! The lines of the copy of one file.

use std::sync::Arc;
use std::time::Instant;

use gridlane_core::{Checksum, ChecksumKind, Error};
use gridlane_engine::{Basis, Event, Limit, Report, Snapshot, State};
use serde::{Serialize, Serializer};

use super::common::{
    Carried, Failure, NoteAbout, PROGRESS_INTERVAL, Said, Verification, Votes, WarningLine, Words,
    by_checksum, verified_by,
};
use crate::copies::CopyEvent;
use crate::copies::rules::Action;
use crate::tree::LeftOut;

/// An event of the copy of one file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum CopyLine {
    /// A copy begins.
    #[serde(rename = "plan")]
    Plan {
        /// URLs of the sources.
        sources: Vec<String>,
        /// Where it goes.
        target: String,
        /// Bytes that an earlier run has left.
        resumed_bytes: u64,
        /// The reason for which the remains of an earlier run are not used.
        dropped_partial: Option<String>,
    },
    /// Without being done: what would be.
    #[serde(rename = "plan")]
    Would {
        /// Always true.
        dry_run: bool,
        /// The action.
        #[serde(serialize_with = "by_action")]
        action: Action,
        /// Where it would come from.
        sources: Vec<String>,
        /// Where it would go.
        target: String,
        /// Its size, when known.
        size_bytes: Option<u64>,
    },
    /// The size is known.
    #[serde(rename = "file.start")]
    Start {
        /// The first source.
        source: String,
        /// Where it goes.
        target: String,
        /// The size.
        size_bytes: u64,
    },
    /// A source is in another state.
    #[serde(rename = "source")]
    Source {
        /// Its URL.
        url: String,
        /// Its state now.
        #[serde(serialize_with = "by_state")]
        state: State,
        /// The reason.
        error: Option<Failure>,
    },
    /// A connection was lost, and its bytes are asked for again.
    #[serde(rename = "retry")]
    Retry {
        /// URL of the source.
        url: String,
        /// The event in a sentence.
        error: Failure,
    },
    /// The progress.
    #[serde(rename = "progress")]
    Progress {
        /// Bytes that are at the target.
        bytes: u64,
        /// Size of the file, when known.
        size_bytes: Option<u64>,
        /// Rate over the last seconds.
        rate_bytes_per_s: f64,
        /// Time to the end at that rate.
        eta_s: Option<f64>,
        /// Time since the beginning.
        elapsed_s: f64,
        /// True while all bytes are there and are being compared.
        verifying: bool,
        /// The sources.
        sources: Vec<SourceProgress>,
    },
    /// All bytes are there and were compared.
    #[serde(rename = "verify")]
    Verified {
        /// The checksum of the bytes.
        checksum: String,
        /// True, or unknown without anything to compare with.
        matches: Option<bool>,
        /// The party whose word it was compared with.
        verified_by: Option<Said<Basis>>,
        /// The votes of the sources.
        votes: Option<Votes>,
    },
    /// A piece does not have the checksum that the metalink says.
    #[serde(rename = "verify")]
    WrongPiece {
        /// Always false.
        matches: bool,
        /// Where it begins.
        offset: u64,
        /// Its length.
        len: u64,
        /// URLs of the sources that sent parts of it.
        sources: Vec<String>,
    },
    /// The bytes do not have the expected checksum.
    #[serde(rename = "verify")]
    Mismatch {
        /// The checksum of the bytes.
        checksum: String,
        /// The checksum that they should have.
        expected: String,
        /// Always false.
        matches: bool,
        /// URLs of the sources that are believed in the next attempt.
        refetching_from: Vec<String>,
    },
    /// The file was left out.
    #[serde(rename = "file.skipped")]
    Skipped {
        /// Where it would go.
        target: String,
        /// The reason.
        why: Said<LeftOut>,
        /// The name of the reason, which stays when its words change.
        why_id: &'static str,
        /// True where that is because it is there.
        there_already: bool,
    },
    /// Something about the file that ends nothing.
    #[serde(rename = "note")]
    Note {
        /// Where it went.
        target: String,
        /// The subject: the time, or the way that the copy goes.
        about: NoteAbout,
        /// The reason.
        error: Failure,
    },
    /// Something to know that ends nothing.
    #[serde(rename = "warning")]
    Warning(WarningLine),
    /// The file is there.
    #[serde(rename = "file.done")]
    Done {
        /// Where.
        target: String,
        /// Its bytes.
        bytes: u64,
        /// The server that made the copy, if one did.
        #[serde(flatten)]
        carried: Carried,
    },
    /// The file failed.
    #[serde(rename = "file.failed")]
    Failed {
        /// Where it should have gone; missing when it failed before there was a copy.
        #[serde(skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        /// The reason.
        error: Failure,
    },
    /// The end, good or bad.
    #[serde(rename = "summary")]
    Summary(Box<Summary>),
}

/// The progress of one source.
#[derive(Clone, Debug, Serialize)]
pub struct SourceProgress {
    /// Its URL.
    pub url: String,
    /// Its state.
    #[serde(serialize_with = "by_state")]
    pub state: State,
    /// Bytes of the file that came from it.
    pub bytes: u64,
    /// Rate over the last seconds.
    pub rate_bytes_per_s: f64,
    /// Smallest round trip.
    pub round_trip_s: Option<f64>,
    /// Open connections.
    pub lanes: usize,
}

/// The end of a copy.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Bytes at the target.
    pub bytes: u64,
    /// Size of the file.
    pub size_bytes: Option<u64>,
    /// The time that it took.
    pub seconds: f64,
    /// Rate of this run.
    pub rate_bytes_per_s: f64,
    /// Bytes received in this run.
    pub fetched_bytes: u64,
    /// Bytes received more than once.
    pub extra_bytes: u64,
    /// Bytes kept from an earlier run.
    pub resumed_bytes: u64,
    /// The least time that sources and paths would have allowed.
    pub bound_seconds: Option<f64>,
    /// The origin of that figure.
    pub bound_from: String,
    /// The part of the bound that was reached.
    pub fraction: Option<f64>,
    /// The limit of its rate.
    pub limited_by: Said<Limit>,
    /// The name of that, which stays when the words change.
    pub limited_by_id: &'static str,
    /// The outcome of comparing the bytes.
    pub verification: Verification,
    /// The party whose word they were compared with.
    pub verified_by: Option<Said<Basis>>,
    /// The votes of the sources.
    pub votes: Option<Votes>,
    /// Checksum of the bytes.
    pub checksum: Option<String>,
    /// The strongest kind of checksum that was compared.
    #[serde(serialize_with = "by_checksum")]
    pub verified_with: Option<ChecksumKind>,
    /// The kind of checksum that was asked for and that no source states.
    #[serde(serialize_with = "by_checksum")]
    pub checksum_unstated: Option<ChecksumKind>,
    /// The parts of the sources.
    pub sources: Vec<SourceLine>,
}

/// The part of one source.
#[derive(Clone, Debug, Serialize)]
pub struct SourceLine {
    /// Its URL.
    pub url: String,
    /// Its last state.
    #[serde(serialize_with = "by_state")]
    pub state: State,
    /// Bytes of the file that came from it.
    pub bytes: u64,
    /// Bytes that it sent.
    pub received_bytes: u64,
    /// Its best second.
    pub rate_best_bytes_per_s: Option<f64>,
    /// Smallest round trip.
    pub round_trip_s: Option<f64>,
    /// Connections that carried its bytes.
    pub connections: u32,
    /// Connections made to it.
    pub handshakes: u32,
    /// Pieces that it sent and that were wrong.
    pub wrong_pieces: u32,
    /// The last thing that went wrong with it.
    pub error: Option<Failure>,
}

pub(super) fn by_state<S: Serializer>(state: &State, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(state.name())
}

pub(super) fn by_action<S: Serializer>(action: &Action, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(action.name())
}

impl Summary {
    /// The summary of a report, in the words of a front end.
    pub fn new(report: &Report, words: &dyn Words) -> Summary {
        let sources = report.sources.iter().map(|source| SourceLine {
            url: source.url.clone(),
            state: source.state,
            bytes: source.bytes,
            received_bytes: source.received_bytes,
            rate_best_bytes_per_s: source.rate_best_bytes_per_s,
            round_trip_s: source.round_trip.map(|rtt| rtt.as_secs_f64()),
            connections: source.connections,
            handshakes: source.handshakes,
            wrong_pieces: source.wrong_pieces,
            error: source.error.as_ref().map(|error| Failure::new(error, words)),
        });
        Summary {
            bytes: report.done_bytes,
            size_bytes: report.size_bytes,
            seconds: report.seconds,
            rate_bytes_per_s: report.rate_bytes_per_s(),
            fetched_bytes: report.fetched_bytes,
            extra_bytes: report.extra_bytes,
            resumed_bytes: report.resumed_bytes,
            bound_seconds: report.bound_s,
            bound_from: report.bound_from.clone(),
            fraction: report.bound_s.map(|bound_s| bound_s / report.seconds.max(1e-9)),
            limited_by: Said { value: report.limited_by, words: words.limit(report.limited_by) },
            limited_by_id: report.limited_by.name(),
            verification: Verification::of(report.verified),
            verified_by: verified_by(report.verified, words),
            votes: Votes::of(report.verified),
            checksum: report.checksum.as_ref().map(Checksum::to_string),
            verified_with: report.verified_with,
            checksum_unstated: report.unstated,
            sources: sources.collect(),
        }
    }
}

/// Makes the lines of copies of their events.
#[derive(Debug)]
pub struct CopyLines {
    urls: Vec<String>,
    target: String,
    words: Arc<dyn Words>,
    progress_at: Option<Instant>,
}

impl CopyLines {
    /// In the words of a front end.
    pub fn new(words: Arc<dyn Words>) -> CopyLines {
        CopyLines { urls: Vec::new(), target: String::new(), words, progress_at: None }
    }

    /// The lines of an event: none where it is too soon for another of its kind, and two at the end.
    pub fn of(&mut self, event: &CopyEvent<'_>) -> Vec<CopyLine> {
        let target = || self.target.clone();
        let failure = |error: &Error| Failure::new(error, &*self.words);
        let line = match event {
            CopyEvent::Turn { sources, target } => {
                (self.urls, self.target) = (sources.to_vec(), (*target).to_owned());
                self.progress_at = None;
                return Vec::new();
            }
            CopyEvent::Note(_) => return Vec::new(),
            CopyEvent::Engine(event) => return self.of_engine(event).into_iter().collect(),
            CopyEvent::Warning(warning) => CopyLine::Warning(WarningLine::new(warning, &*self.words)),
            CopyEvent::Would { action, size_bytes, .. } => CopyLine::Would {
                dry_run: true,
                action: *action,
                sources: self.urls.clone(),
                target: target(),
                size_bytes: *size_bytes,
            },
            CopyEvent::Skipped(why) => CopyLine::Skipped {
                target: target(),
                why: Said { value: *why, words: self.words.left_out(*why) },
                why_id: why.name(),
                there_already: *why == LeftOut::UpToDate,
            },
            CopyEvent::Refused(error) => CopyLine::Failed { target: Some(target()), error: failure(error) },
            CopyEvent::TimeLost(error) => {
                CopyLine::Note { target: target(), about: NoteAbout::Time, error: failure(error) }
            }
            CopyEvent::Detour { detour, why } => {
                CopyLine::Note { target: target(), about: (*detour).into(), error: failure(why) }
            }
            CopyEvent::Ended { report, error, carrier, .. } => {
                let (bytes, carried) = (report.done_bytes, Carried::by(*carrier));
                let ended = match error {
                    None => CopyLine::Done { target: target(), bytes, carried },
                    Some(error) => CopyLine::Failed { target: Some(target()), error: failure(error) },
                };
                return vec![ended, CopyLine::Summary(Box::new(Summary::new(report, &*self.words)))];
            }
        };
        vec![line]
    }

    /// The line of what the engine tells.
    fn of_engine(&mut self, event: &Event<'_>) -> Option<CopyLine> {
        let urls = |numbers: &[usize]| numbers.iter().map(|number| self.urls[*number].clone()).collect();
        Some(match event {
            Event::Plan { resumed_bytes, dropped } => CopyLine::Plan {
                sources: self.urls.clone(),
                target: self.target.clone(),
                resumed_bytes: *resumed_bytes,
                dropped_partial: dropped.map(str::to_owned),
            },
            Event::Started { size_bytes } => CopyLine::Start {
                source: self.urls[0].clone(),
                target: self.target.clone(),
                size_bytes: *size_bytes,
            },
            Event::Source { source, state, error } => CopyLine::Source {
                url: self.urls[*source].clone(),
                state: *state,
                error: error.map(|error| Failure::new(error, &*self.words)),
            },
            Event::Added { url, .. } => {
                self.urls.push((*url).to_owned());
                CopyLine::Source { url: (*url).to_owned(), state: State::Connecting, error: None }
            }
            Event::Retry { source, error } => {
                CopyLine::Retry { url: self.urls[*source].clone(), error: Failure::new(error, &*self.words) }
            }
            Event::Progress(snapshot) => return self.progress(snapshot),
            Event::Verified { checksum, basis } => CopyLine::Verified {
                checksum: checksum.to_string(),
                matches: basis.map(|_| true),
                verified_by: verified_by(*basis, &*self.words),
                votes: Votes::of(*basis),
            },
            Event::WrongPiece { range, sources } => CopyLine::WrongPiece {
                matches: false,
                offset: range.start(),
                len: range.len(),
                sources: urls(sources),
            },
            Event::Mismatch { found, expected, believed } => CopyLine::Mismatch {
                checksum: found.to_string(),
                expected: expected.to_string(),
                matches: false,
                refetching_from: urls(believed),
            },
        })
    }

    fn progress(&mut self, snapshot: &Snapshot) -> Option<CopyLine> {
        if self.progress_at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
            return None;
        }
        self.progress_at = Some(Instant::now());
        let sources = self.urls.iter().zip(&snapshot.sources).map(|(url, source)| SourceProgress {
            url: url.clone(),
            state: source.state,
            bytes: source.bytes,
            rate_bytes_per_s: source.rate_bytes_per_s,
            round_trip_s: source.round_trip.map(|rtt| rtt.as_secs_f64()),
            lanes: source.lanes,
        });
        Some(CopyLine::Progress {
            bytes: snapshot.done_bytes,
            size_bytes: snapshot.size_bytes,
            rate_bytes_per_s: snapshot.rate_bytes_per_s,
            eta_s: snapshot.eta_s,
            elapsed_s: snapshot.elapsed_s,
            verifying: snapshot.verifying,
            sources: sources.collect(),
        })
    }
}
