//! The common parts of the lines of all commands.

use std::fmt;
use std::time::Duration;

use gridlane_core::{ChecksumKind, Error, ErrorKind, Fault, Hint};
use gridlane_engine::{Basis, Limit};
use serde::{Serialize, Serializer};

use crate::credentials::Warning;
use crate::doctor;
use crate::third_party::{Carrier, Detour, Mode};
use crate::tree::LeftOut;

/// Version of the events: another meaning of a field makes another one.
pub const EVENTS_VERSION: u32 = 1;

/// Progress is told at most this often.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A line: the version, the type, and the fields of an event.
#[derive(Clone, Debug, Serialize)]
pub struct Line<T> {
    v: u32,
    #[serde(flatten)]
    event: T,
}

impl<T: Serialize> Line<T> {
    /// The line of an event, which has a type.
    pub fn new(event: T) -> Line<T> {
        Line { v: EVENTS_VERSION, event }
    }
}

/// The words of a front end for what this crate says as values. Those that are here name nothing of any front end.
pub trait Words: fmt::Debug + Send + Sync {
    /// Advice about a failure.
    fn hint(&self, hint: &Hint) -> String {
        hint.to_string()
    }

    /// The limit of a copy's rate.
    fn limit(&self, limit: Limit) -> String {
        limit.to_string()
    }

    /// The party whose word the bytes were compared with.
    fn basis(&self, basis: Basis) -> String {
        match basis {
            Basis::User => "as the caller says".to_owned(),
            Basis::Metalink => "as its metalink says".to_owned(),
            Basis::Sources { named: 1, .. } => "as its source says".to_owned(),
            Basis::Sources { agreeing, named, .. } => format!("{agreeing} of {named} sources"),
        }
    }

    /// The reason for which a file was left out.
    fn left_out(&self, why: LeftOut) -> String {
        why.to_string()
    }

    /// An answer of the diagnosis.
    fn answer(&self, answer: &doctor::Answer) -> String {
        answer.to_string()
    }
}

/// Words of no front end.
#[derive(Clone, Copy, Debug)]
pub struct PlainWords;

impl Words for PlainWords {}

/// A value with the words that a front end has for it, by which it is serialised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said<T> {
    /// The value.
    pub value: T,
    /// Its words.
    pub words: String,
}

impl<T> Serialize for Said<T> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&self.words)
    }
}

impl<T> fmt::Display for Said<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// An error in a line.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The exit code of a command that ends by it.
    pub code: u8,
    /// The kind of failure.
    #[serde(serialize_with = "by_class")]
    pub class: ErrorKind,
    /// The party at fault.
    #[serde(serialize_with = "by_fault")]
    pub fault: Fault,
    /// The event in a sentence.
    pub message: String,
    /// The advice.
    pub hint: Option<Said<Hint>>,
    /// The name of the hint, which stays when its words change.
    pub hint_id: Option<&'static str>,
    /// Where it happened.
    pub endpoint: Option<String>,
    /// The same may succeed later.
    pub retryable: bool,
    /// The pause that the server asked for.
    pub retry_after_s: Option<f64>,
    /// The HTTP status that caused it.
    pub http_status: Option<u16>,
}

impl Failure {
    /// The error in the words of a front end.
    pub fn new(error: &Error, words: &dyn Words) -> Failure {
        let said = |hint: &Hint| Said { value: hint.clone(), words: words.hint(hint) };
        Failure {
            code: error.kind().exit_code(),
            class: error.kind(),
            fault: error.whose_fault(),
            message: error.message().to_owned(),
            hint: error.advice().map(said),
            hint_id: error.advice().map(Hint::name),
            endpoint: error.endpoint_text().map(str::to_owned),
            retryable: error.is_retryable(),
            retry_after_s: error.wait().map(|wait| wait.as_secs_f64()),
            http_status: error.status(),
        }
    }
}

fn by_class<S: Serializer>(kind: &ErrorKind, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

fn by_fault<S: Serializer>(fault: &Fault, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(fault.name())
}

/// The name of a kind of checksum, or null.
pub(super) fn by_checksum<S: Serializer>(
    kind: &Option<ChecksumKind>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    kind.map(ChecksumKind::name).serialize(to)
}

/// The subject of a note about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteAbout {
    /// The time of the source is not kept.
    Time,
    /// The name cannot stand in the list of what failed.
    Unlisted,
    /// The bytes go through this process.
    Streamed,
    /// The target's server is asked to fetch the file, after the source's did not send it.
    Pull,
    /// The source's server is asked to send the file, after the target's did not fetch it.
    Push,
    /// The server that copies takes one source.
    OneSource,
}

impl From<Detour> for NoteAbout {
    fn from(detour: Detour) -> NoteAbout {
        match detour {
            Detour::Streamed => NoteAbout::Streamed,
            Detour::OtherMode(Mode::Pull) => NoteAbout::Pull,
            Detour::OtherMode(Mode::Push) => NoteAbout::Push,
            Detour::OneSource => NoteAbout::OneSource,
        }
    }
}

/// The server that made a copy, in the fields of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// `pull` or `push`; `None`: the bytes went through this process.
    pub tpc: Option<&'static str>,
    /// The beginning of the active server's URLs.
    pub active_server: Option<String>,
}

impl Carried {
    pub(super) fn by(carrier: Option<&Carrier>) -> Carried {
        Carried {
            tpc: carrier.map(|carrier| carrier.mode.name()),
            active_server: carrier.map(|carrier| carrier.server.clone()),
        }
    }
}

/// Something to know that ends nothing.
#[derive(Clone, Debug, Serialize)]
pub struct WarningLine {
    /// The subject: `credentials`.
    pub about: &'static str,
    /// The matter.
    pub message: String,
    /// The advice.
    pub hint: Said<Hint>,
    /// The name of the hint, which stays when its words change.
    pub hint_id: &'static str,
}

impl WarningLine {
    /// The warning in the words of a front end.
    pub fn new(warning: &Warning, words: &dyn Words) -> WarningLine {
        let hint = Said { value: warning.advice.clone(), words: words.hint(&warning.advice) };
        let hint_id = warning.advice.name();
        WarningLine { about: "credentials", message: warning.message.clone(), hint, hint_id }
    }
}

/// The outcome of comparing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// With a checksum that does not come from the bytes themselves.
    Verified,
    /// There was nothing to compare them with.
    Unverified,
}

impl Verification {
    pub(super) fn of(basis: Option<Basis>) -> Verification {
        if basis.is_some() { Verification::Verified } else { Verification::Unverified }
    }
}

/// The votes of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Votes {
    /// The number that states checksums which the bytes have.
    pub agreeing: usize,
    /// The number that states any which could be compared.
    pub said: usize,
    /// The number of sources that were named.
    pub named: usize,
}

impl Votes {
    /// The votes, where sources were compared.
    pub(super) fn of(basis: Option<Basis>) -> Option<Votes> {
        match basis? {
            Basis::User | Basis::Metalink => None,
            Basis::Sources { agreeing, said, named } => Some(Votes { agreeing, said, named }),
        }
    }
}

/// The party whose word bytes were compared with, in the words of a front end.
pub(super) fn verified_by(basis: Option<Basis>, words: &dyn Words) -> Option<Said<Basis>> {
    basis.map(|basis| Said { value: basis, words: words.basis(basis) })
}
