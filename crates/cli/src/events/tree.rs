//! A tree as JSON events.

use std::time::Instant;

use gridlane_client::credentials::Warning;
use gridlane_client::{LeftOut, Place, TreeEvent, TreeObserver, TreePath, TreeReport, TreeSnapshot};
use gridlane_core::{ChecksumKind, Error};
use serde_json::{Value, json};

use super::{PROGRESS_INTERVAL, votes_value};
use crate::output::{error_value, print_event, warning_value};
use crate::who::Warns;
use crate::words;

/// Prints the events of a tree as they come.
pub(crate) struct TreeJson {
    target: Place,
    progress_at: Option<Instant>,
}

impl TreeJson {
    pub(crate) fn new(target: &Place) -> TreeJson {
        TreeJson { target: target.clone(), progress_at: None }
    }

    /// The first event.
    pub(crate) fn plan(&self, sources: &[String], target: &str, parallel: usize) {
        print("plan", json!({ "sources": sources, "target": target, "parallel": parallel }));
    }

    /// The last event: how it ended.
    pub(crate) fn end(&self, report: &TreeReport, dry_run: bool, error: Option<&Error>) {
        let fields = json!({
            "found_files": report.found_files,
            "files": report.done_files,
            "bytes": report.done_bytes,
            "resumed_bytes": report.resumed_bytes,
            "directories": report.directories,
            "failed": report.failed,
            "there_already": report.there_already,
            "left_out": report.left_out,
            "verified_files": report.verified_files,
            "unverified_files": report.done_files.saturating_sub(report.verified_files),
            "unstated_files": report.unstated_files,
            "times_lost": report.times_lost,
            "seconds": report.seconds,
            "rate_bytes_per_s": report.rate_bytes_per_s(),
            "dry_run": dry_run,
            "error": error.map(error_value),
        });
        print("summary", fields);
    }

    /// An event about one file.
    fn print(&self, kind: &str, name: &TreePath, mut fields: Value) {
        if let Value::Object(fields) = &mut fields {
            fields.insert("name".into(), json!(name.to_string()));
            let target = self.target.file(name).map(|url| url.to_string()).ok();
            fields.insert("target".into(), json!(target));
        }
        print(kind, fields);
    }

    fn progress(&mut self, snapshot: &TreeSnapshot) {
        if self.progress_at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.progress_at = Some(Instant::now());
        let active: Vec<Value> = snapshot
            .active
            .iter()
            .map(|file| {
                let (bytes, size_bytes) = (file.done_bytes, file.size_bytes);
                json!({ "name": file.name.to_string(), "bytes": bytes, "size_bytes": size_bytes })
            })
            .collect();
        let fields = json!({
            "found_files": snapshot.found_files, "found_bytes": snapshot.found_bytes,
            "listed": snapshot.is_listed, "files": snapshot.done_files, "bytes": snapshot.done_bytes,
            "failed": snapshot.failed, "skipped": snapshot.skipped,
            "rate_bytes_per_s": snapshot.rate_bytes_per_s, "rate_files_per_s": snapshot.rate_files_per_s,
            "eta_s": snapshot.eta_s, "elapsed_s": snapshot.elapsed_s, "active": active,
        });
        print("progress", fields);
    }
}

impl Warns for TreeJson {
    fn warn(&mut self, warning: &Warning) {
        print("warning", warning_value(warning));
    }
}

impl TreeObserver for TreeJson {
    fn event(&mut self, event: &TreeEvent<'_>) {
        match event {
            TreeEvent::Progress(snapshot) => self.progress(snapshot),
            TreeEvent::FileStarted { name, size_bytes } => {
                self.print("file.start", name, json!({ "size_bytes": size_bytes }));
            }
            TreeEvent::FileDone { name, report } => {
                let fields = json!({
                    "bytes": report.done_bytes,
                    "resumed_bytes": report.resumed_bytes,
                    "seconds": report.seconds,
                    "verification": if report.verified.is_some() { "verified" } else { "unverified" },
                    "verified_by": report.verified.map(words::basis),
                    "verified_with": report.verified_with.map(|kind| kind.name()),
                    "votes": report.verified.and_then(votes_value),
                    "checksum_unstated": report.unstated.map(ChecksumKind::name),
                    "checksum": report.checksum.as_ref().map(ToString::to_string),
                });
                self.print("file.done", name, fields);
            }
            TreeEvent::Failed { name, is_directory, error } => {
                let fields = json!({ "is_directory": is_directory, "error": error_value(error) });
                self.print("file.failed", name, fields);
            }
            TreeEvent::Skipped { name, why } => {
                let is_there = *why == LeftOut::UpToDate;
                let why = words::left_out(*why);
                self.print("file.skipped", name, json!({ "why": why, "there_already": is_there }));
            }
            TreeEvent::Noted { name, url, state, error } => {
                let error = error.map(error_value);
                let (kind, fields) = match *state {
                    "retry" => ("retry", json!({ "url": url, "error": error })),
                    "mismatch" => ("verify", json!({ "matches": false })),
                    "time" | "unlisted" => ("note", json!({ "about": state, "error": error })),
                    state => ("source", json!({ "url": url, "state": state, "error": error })),
                };
                self.print(kind, name, fields);
            }
            TreeEvent::Would { name, action, sources, size_bytes, .. } => {
                let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
                let fields = json!({
                    "dry_run": true, "action": action.name(), "sources": sources, "size_bytes": size_bytes,
                });
                self.print("plan", name, fields);
            }
        }
    }
}

fn print(kind: &str, fields: Value) {
    print_event(&mut std::io::stdout().lock(), kind, fields);
}
