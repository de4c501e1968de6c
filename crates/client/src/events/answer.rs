//! The lines of commands that ask one question, or do one thing to each of several URLs.

use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Hint, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use serde::{Serialize, Serializer};

use super::common::{Failure, Said, Words};
use crate::doctor::{Answer, Finding, Verdict};
use crate::item::Space;

/// A finding or a deed of a command.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum AnswerLine {
    /// A file or directory.
    #[serde(rename = "entry")]
    Entry(EntryLine),
    /// A checksum.
    #[serde(rename = "checksum")]
    Checksum {
        /// Of which file.
        url: String,
        /// The checksum, with its kind.
        checksum: String,
    },
    /// A directory was made.
    #[serde(rename = "made")]
    Made {
        /// Which.
        url: String,
    },
    /// Something was moved.
    #[serde(rename = "moved")]
    Moved {
        /// From where.
        url: String,
        /// Where it is now.
        to: String,
    },
    /// Something was removed.
    #[serde(rename = "removed")]
    Removed {
        /// Which.
        url: String,
    },
    /// The room at a place.
    #[serde(rename = "space")]
    Space {
        /// Where.
        url: String,
        /// Bytes that are used.
        used_bytes: Option<u64>,
        /// Bytes that are left.
        available_bytes: Option<u64>,
    },
    /// One question of the diagnosis, with its answer.
    #[serde(rename = "check")]
    Check {
        /// Of what: `this machine` or a URL.
        of: String,
        /// The question.
        subject: &'static str,
        /// The quality of the answer.
        verdict: Verdict,
        /// The answer.
        text: Said<Answer>,
        /// The advice.
        advice: Option<Said<Hint>>,
        /// The failure behind it.
        error: Option<Failure>,
    },
    /// The command failed.
    #[serde(rename = "error")]
    Error {
        /// The reason.
        error: Failure,
    },
}

/// A file or directory.
#[derive(Clone, Debug, Serialize)]
pub struct EntryLine {
    /// Its name, or its path below the directory that was asked for.
    pub name: String,
    /// A file or a directory.
    #[serde(serialize_with = "by_kind")]
    pub kind: EntryKind,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// When it was last changed, in seconds since 1970.
    pub modified_s: Option<u64>,
    /// The server's name for this version.
    pub etag: Option<String>,
}

fn by_kind<S: Serializer>(kind: &EntryKind, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

impl EntryLine {
    /// The line of an entry.
    pub fn new(entry: &Entry, etag: Option<&str>) -> EntryLine {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).ok();
        EntryLine {
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            kind: entry.kind,
            size_bytes: entry.size_bytes,
            modified_s: entry.modified.and_then(seconds),
            etag: etag.map(str::to_owned),
        }
    }
}

impl AnswerLine {
    /// The line of the room at a URL.
    pub fn space(url: &Url, space: &Space) -> AnswerLine {
        let Space { used_bytes, available_bytes } = *space;
        AnswerLine::Space { url: url.to_string(), used_bytes, available_bytes }
    }

    /// The line of one question of the diagnosis.
    pub fn check(of: &str, finding: &Finding, words: &dyn Words) -> AnswerLine {
        AnswerLine::Check {
            of: of.to_owned(),
            subject: finding.subject,
            verdict: finding.verdict,
            text: Said { value: finding.answer.clone(), words: words.answer(&finding.answer) },
            advice: finding.advice.as_ref().map(|hint| Said { value: hint.clone(), words: words.hint(hint) }),
            error: finding.error.as_ref().map(|error| Failure::new(error, words)),
        }
    }
}
