//! How far a tree is, and how it ended.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Fault, Result};

use crate::tree_path::TreePath;

/// The rate is that of so long a time.
const RATE_OVER: Duration = Duration::from_secs(5);
/// Time between two samples of moved bytes for it.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// A reason for which a file was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// It is at the target, of the same size and not older.
    UpToDate,
    /// Its name is one of this program's own, wherever the tree is: such a file is none yet, and at the target it would be
    /// taken for a copy that was begun there.
    Unfinished,
    /// It is a symbolic link, and links are not followed.
    Link,
    /// It is a link to what is no file.
    LinkToNoFile,
    /// It is no regular file.
    NoFile,
    /// It is no file; what it is.
    Special(&'static str),
}

impl LeftOut {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LeftOut::UpToDate => "up_to_date",
            LeftOut::Unfinished => "unfinished",
            LeftOut::Link => "link",
            LeftOut::LinkToNoFile => "link_to_no_file",
            LeftOut::NoFile | LeftOut::Special(_) => "no_file",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftOut::UpToDate => "it is there, of the same size and not older",
            LeftOut::Unfinished => "gridlane keeps its name for copies that are not complete",
            LeftOut::Link => "it is a symbolic link",
            LeftOut::LinkToNoFile => "it is a link to what is no file",
            LeftOut::NoFile => "it is no regular file",
            LeftOut::Special(what) => what,
        })
    }
}

/// Progress of a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeSnapshot {
    /// Files found so far.
    pub found_files: u64,
    /// Their bytes, as far as listings told.
    pub found_bytes: u64,
    /// True if nothing more can be found.
    pub is_listed: bool,
    /// Files that are at the target.
    pub done_files: u64,
    /// Bytes that are at the target, those of unfinished files included.
    pub done_bytes: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// Files that were left out, or were there already.
    pub skipped: u64,
    /// Bytes per second over the last seconds.
    pub rate_bytes_per_s: f64,
    /// Files per second over the last seconds.
    pub rate_files_per_s: f64,
    /// Time to the end at these rates; `None` while not everything is found, or nothing comes.
    pub eta_s: Option<f64>,
    /// Time since the beginning.
    pub elapsed_s: f64,
    /// Files that are being copied, those with most bytes first; a few.
    pub active: Vec<ActiveFile>,
}

/// A file that is being copied.
#[derive(Clone, Debug)]
pub struct ActiveFile {
    /// Its name.
    pub name: TreePath,
    /// Bytes that are at the target.
    pub done_bytes: u64,
    /// Its size, when known.
    pub size_bytes: Option<u64>,
}

/// The end of a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeReport {
    /// Files found.
    pub found_files: u64,
    /// Files that were copied.
    pub done_files: u64,
    /// Their bytes.
    pub done_bytes: u64,
    /// Of those, bytes that an earlier run had left.
    pub resumed_bytes: u64,
    /// Directories that were made.
    pub directories: u64,
    /// Files, and directories with all that is in them, that failed.
    pub failed: u64,
    /// Files that were there already.
    pub there_already: u64,
    /// Entries that were left out because they are links, or no files.
    pub left_out: u64,
    /// Files whose bytes were compared with a checksum that does not come from the bytes themselves.
    pub verified_files: u64,
    /// Files that servers copied between themselves.
    pub third_party_files: u64,
    /// Files of which no source stated a checksum of the type that was asked for.
    pub unstated_files: u64,
    /// Files whose time could not be kept.
    pub times_lost: u64,
    /// The time that it took.
    pub seconds: f64,
    /// True if it was stopped.
    pub is_interrupted: bool,
    /// Why the whole ended early.
    pub fatal: Option<Error>,
    /// The first failure.
    pub first_error: Option<Error>,
    /// The kind of all failures, while they are of one kind.
    pub common_kind: Option<ErrorKind>,
}

impl TreeReport {
    /// Bytes per second that this run moved.
    pub fn rate_bytes_per_s(&self) -> f64 {
        self.done_bytes.saturating_sub(self.resumed_bytes) as f64 / self.seconds.max(1e-9)
    }

    /// Counts a failure.
    pub(super) fn fail(&mut self, error: &Error) {
        self.failed += 1;
        match &self.first_error {
            None => {
                self.first_error = Some(error.clone());
                self.common_kind = Some(error.kind());
            }
            Some(_) => self.common_kind = self.common_kind.filter(|kind| *kind == error.kind()),
        }
    }

    /// Success, or the error that the whole is: of kind `Partial` when some of many failed, else of the kind
    /// that all failures have in common.
    pub fn outcome(&self) -> Result<()> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        if self.is_interrupted {
            return Err(Error::new(ErrorKind::Interrupted, "stopped").fault(Fault::Caller));
        }
        let Some(first) = &self.first_error else { return Ok(()) };
        let nothing_else = self.done_files == 0 && self.there_already == 0;
        let kind = self.common_kind.filter(|_| nothing_else).unwrap_or(ErrorKind::Partial);
        let message = match (self.failed, nothing_else) {
            (1, _) => "1 failed".to_owned(),
            (failed, true) => format!("all {failed} failed"),
            (failed, false) => format!("{failed} failed"),
        };
        Err(Error::new(kind, message).fault(first.whose_fault()).retryable(first.is_retryable()))
    }
}

/// Rates over the last seconds.
#[derive(Debug)]
pub(super) struct Rates {
    samples: VecDeque<(Instant, u64, u64)>,
}

impl Rates {
    pub(super) fn new(now: Instant) -> Rates {
        Rates { samples: VecDeque::from([(now, 0, 0)]) }
    }

    /// Bytes and files per second, when so many were moved in all.
    pub(super) fn at(&mut self, now: Instant, bytes: u64, files: u64) -> (f64, f64) {
        while self.samples.len() > 1 && now.duration_since(self.samples[0].0) > RATE_OVER {
            self.samples.pop_front();
        }
        if self.samples.back().is_none_or(|last| now.duration_since(last.0) >= SAMPLE_INTERVAL) {
            self.samples.push_back((now, bytes, files));
        }
        let Some((then, bytes_then, files_then)) = self.samples.front() else { return (0.0, 0.0) };
        let seconds = now.duration_since(*then).as_secs_f64().max(1e-3);
        (
            bytes.saturating_sub(*bytes_then) as f64 / seconds,
            files.saturating_sub(*files_then) as f64 / seconds,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_whole() {
        let code = |report: &TreeReport| report.outcome().err().map_or(0, |error| error.kind().exit_code());
        let mut report = TreeReport::default();
        assert_eq!(code(&report), 0);
        report.fail(&Error::new(ErrorKind::Denied, "no"));
        report.fail(&Error::new(ErrorKind::Denied, "no"));
        assert_eq!(code(&report), 4);
        report.fail(&Error::new(ErrorKind::NotFound, "gone"));
        assert_eq!(code(&report), 10);
        let mut report = TreeReport { done_files: 1, ..TreeReport::default() };
        report.fail(&Error::new(ErrorKind::Denied, "no"));
        assert_eq!(code(&report), 10);
        report.is_interrupted = true;
        assert_eq!(code(&report), 130);
    }

    #[test]
    fn rates_forget_what_is_long_ago() {
        let begun = Instant::now();
        let mut rates = Rates::new(begun);
        for tenth in 1..=100u64 {
            rates.at(begun + Duration::from_millis(100 * tenth), 100 * tenth.min(50), tenth.min(50));
        }
        let (bytes, files) = rates.at(begun + Duration::from_secs(10), 5000, 50);
        assert!(bytes < 100.0 && files < 1.0, "{bytes} {files}");
        let (bytes, _) = Rates::new(begun).at(begun + Duration::from_secs(2), 4000, 0);
        assert!((bytes - 2000.0).abs() < 1.0, "{bytes}");
        assert!(rates.samples.len() < 30);
    }
}
