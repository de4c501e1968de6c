//! The lines of a tree, and of several files.

use std::sync::Arc;
use std::time::Instant;

use gridlane_core::{Checksum, ChecksumKind, Error};
use gridlane_engine::{Basis, State};
use serde::Serialize;

use super::common::{
    Carried, Failure, NoteAbout, PROGRESS_INTERVAL, Said, Verification, Votes, WarningLine, Words,
    by_checksum, verified_by,
};
use super::copy::{by_action, by_state};
use crate::copies::rules::Action;
use crate::location::Location;
use crate::tree::{About, LeftOut, TreeEvent, TreeReport, TreeSnapshot};
use crate::tree_path::TreePath;

/// An event of a tree. `name` is the path below the target, `target` the whole of it.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the fields that all have are in the type's documentation")]
pub enum TreeLine {
    /// The tree begins.
    #[serde(rename = "plan")]
    Plan { sources: Vec<String>, target: String, parallel: usize },
    /// Without being done: what would be.
    #[serde(rename = "plan")]
    Would {
        name: String,
        target: Option<String>,
        /// Always true.
        dry_run: bool,
        #[serde(serialize_with = "by_action")]
        action: Action,
        sources: Vec<String>,
        size_bytes: Option<u64>,
    },
    /// The progress of the whole.
    #[serde(rename = "progress")]
    Progress {
        found_files: u64,
        found_bytes: u64,
        /// True when nothing more will be found.
        listed: bool,
        files: u64,
        bytes: u64,
        failed: u64,
        skipped: u64,
        rate_bytes_per_s: f64,
        rate_files_per_s: f64,
        eta_s: Option<f64>,
        elapsed_s: f64,
        active: Vec<ActiveLine>,
    },
    /// A file begins to be copied.
    #[serde(rename = "file.start")]
    Start { name: String, target: Option<String>, size_bytes: Option<u64> },
    /// A file is there.
    #[serde(rename = "file.done")]
    Done {
        name: String,
        target: Option<String>,
        bytes: u64,
        resumed_bytes: u64,
        seconds: f64,
        verification: Verification,
        verified_by: Option<Said<Basis>>,
        #[serde(serialize_with = "by_checksum")]
        verified_with: Option<ChecksumKind>,
        votes: Option<Votes>,
        #[serde(serialize_with = "by_checksum")]
        checksum_unstated: Option<ChecksumKind>,
        checksum: Option<String>,
        #[serde(flatten)]
        carried: Carried,
    },
    /// A file, or a directory with what is in it, failed.
    #[serde(rename = "file.failed")]
    Failed { name: String, target: Option<String>, is_directory: bool, error: Failure },
    /// A file was left out.
    #[serde(rename = "file.skipped")]
    Skipped {
        name: String,
        target: Option<String>,
        why: Said<LeftOut>,
        /// The name of the reason, which stays when its words change.
        why_id: &'static str,
        there_already: bool,
    },
    /// A source of a file is in another state.
    #[serde(rename = "source")]
    Source {
        name: String,
        target: Option<String>,
        url: Option<String>,
        #[serde(serialize_with = "by_state")]
        state: State,
        error: Option<Failure>,
    },
    /// A connection was lost.
    #[serde(rename = "retry")]
    Retry { name: String, target: Option<String>, url: Option<String>, error: Option<Failure> },
    /// The bytes of a file do not have the expected checksum.
    #[serde(rename = "verify")]
    Mismatch {
        name: String,
        target: Option<String>,
        /// Always false.
        matches: bool,
    },
    /// Something about a file that ends nothing.
    #[serde(rename = "note")]
    Note { name: String, target: Option<String>, about: NoteAbout, error: Option<Failure> },
    /// Something to know that ends nothing.
    #[serde(rename = "warning")]
    Warning(WarningLine),
    /// The end, good or bad.
    #[serde(rename = "summary")]
    Summary(Box<TreeSummary>),
}

/// A file that is being copied.
#[derive(Clone, Debug, Serialize)]
pub struct ActiveLine {
    /// Its path below the target.
    pub name: String,
    /// Bytes that are at the target.
    pub bytes: u64,
    /// Its size, when known.
    pub size_bytes: Option<u64>,
}

/// The end of a tree.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of TreeReport")]
pub struct TreeSummary {
    pub found_files: u64,
    pub files: u64,
    pub bytes: u64,
    pub resumed_bytes: u64,
    pub directories: u64,
    pub failed: u64,
    pub there_already: u64,
    pub left_out: u64,
    pub verified_files: u64,
    pub unverified_files: u64,
    pub unstated_files: u64,
    pub third_party_files: u64,
    pub times_lost: u64,
    pub seconds: f64,
    pub rate_bytes_per_s: f64,
    pub dry_run: bool,
    pub error: Option<Failure>,
}

/// Makes the lines of a tree of its events.
#[derive(Debug)]
pub struct TreeLines {
    target: Location,
    words: Arc<dyn Words>,
    progress_at: Option<Instant>,
}

impl TreeLines {
    /// For a tree that goes to `target`, in the words of a front end.
    pub fn new(target: &Location, words: Arc<dyn Words>) -> TreeLines {
        TreeLines { target: target.clone(), words, progress_at: None }
    }

    /// The line of an event; `None` where it is too soon for another of its kind.
    pub fn of(&mut self, event: &TreeEvent<'_>) -> Option<TreeLine> {
        let url = |name: &TreePath| self.target.file(name).map(|url| url.to_string()).ok();
        let named = |name: &TreePath| (name.to_string(), url(name));
        let failure = |error: &Error| Failure::new(error, &*self.words);
        Some(match event {
            TreeEvent::Progress(snapshot) => return self.progress(snapshot),
            TreeEvent::Warning(warning) => TreeLine::Warning(WarningLine::new(warning, &*self.words)),
            TreeEvent::FileStarted { name, size_bytes } => {
                let ((name, target), size_bytes) = (named(name), *size_bytes);
                TreeLine::Start { name, target, size_bytes }
            }
            TreeEvent::FileDone { name, report, carrier } => {
                let (name, target) = named(name);
                TreeLine::Done {
                    name,
                    target,
                    bytes: report.done_bytes,
                    resumed_bytes: report.resumed_bytes,
                    seconds: report.seconds,
                    verification: Verification::of(report.verified),
                    verified_by: verified_by(report.verified, &*self.words),
                    verified_with: report.verified_with,
                    votes: Votes::of(report.verified),
                    checksum_unstated: report.unstated,
                    checksum: report.checksum.as_ref().map(Checksum::to_string),
                    carried: Carried::by(*carrier),
                }
            }
            TreeEvent::Failed { name, is_directory, error } => {
                let (name, target) = named(name);
                TreeLine::Failed { name, target, is_directory: *is_directory, error: failure(error) }
            }
            TreeEvent::Skipped { name, why } => {
                let (name, target) = named(name);
                TreeLine::Skipped {
                    name,
                    target,
                    why: Said { value: *why, words: self.words.left_out(*why) },
                    why_id: why.name(),
                    there_already: *why == LeftOut::UpToDate,
                }
            }
            TreeEvent::Noted { name, url, about, error } => {
                let ((name, target), url, error) = (named(name), url.map(str::to_owned), error.map(failure));
                match *about {
                    About::Source(state) => TreeLine::Source { name, target, url, state, error },
                    About::Retry => TreeLine::Retry { name, target, url, error },
                    About::Mismatch => TreeLine::Mismatch { name, target, matches: false },
                    About::Detour(detour) => TreeLine::Note { name, target, about: detour.into(), error },
                    About::Time => TreeLine::Note { name, target, about: NoteAbout::Time, error },
                    About::Unlisted => TreeLine::Note { name, target, about: NoteAbout::Unlisted, error },
                }
            }
            TreeEvent::Would { name, action, sources, size_bytes, .. } => {
                let (name, target) = named(name);
                TreeLine::Would {
                    name,
                    target,
                    dry_run: true,
                    action: *action,
                    sources: sources.iter().map(ToString::to_string).collect(),
                    size_bytes: *size_bytes,
                }
            }
        })
    }

    fn progress(&mut self, snapshot: &TreeSnapshot) -> Option<TreeLine> {
        if self.progress_at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
            return None;
        }
        self.progress_at = Some(Instant::now());
        let active = snapshot.active.iter().map(|file| ActiveLine {
            name: file.name.to_string(),
            bytes: file.done_bytes,
            size_bytes: file.size_bytes,
        });
        Some(TreeLine::Progress {
            found_files: snapshot.found_files,
            found_bytes: snapshot.found_bytes,
            listed: snapshot.is_listed,
            files: snapshot.done_files,
            bytes: snapshot.done_bytes,
            failed: snapshot.failed,
            skipped: snapshot.skipped,
            rate_bytes_per_s: snapshot.rate_bytes_per_s,
            rate_files_per_s: snapshot.rate_files_per_s,
            eta_s: snapshot.eta_s,
            elapsed_s: snapshot.elapsed_s,
            active: active.collect(),
        })
    }

    /// The first line.
    pub fn plan(&self, sources: Vec<String>, target: &str, parallel: usize) -> TreeLine {
        TreeLine::Plan { sources, target: target.to_owned(), parallel }
    }

    /// The last line: how it ended.
    pub fn end(&self, report: &TreeReport, dry_run: bool, error: Option<&Error>) -> TreeLine {
        TreeLine::Summary(Box::new(TreeSummary {
            found_files: report.found_files,
            files: report.done_files,
            bytes: report.done_bytes,
            resumed_bytes: report.resumed_bytes,
            directories: report.directories,
            failed: report.failed,
            there_already: report.there_already,
            left_out: report.left_out,
            verified_files: report.verified_files,
            unverified_files: report.done_files.saturating_sub(report.verified_files),
            unstated_files: report.unstated_files,
            third_party_files: report.third_party_files,
            times_lost: report.times_lost,
            seconds: report.seconds,
            rate_bytes_per_s: report.rate_bytes_per_s(),
            dry_run,
            error: error.map(|error| Failure::new(error, &*self.words)),
        }))
    }
}
