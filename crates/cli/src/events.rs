//! A copy as JSON events, one object a line (docs/reference/json-events.md).

pub(crate) mod tree;

use std::io::Write;
use std::time::{Duration, Instant};

use gridlane_client::credentials::Warning;
use gridlane_core::{ChecksumKind, Error};
use gridlane_engine::{Basis, Event, Observer, Report};
use serde_json::{Value, json};

use crate::output::{error_value, print_event, warning_value};
use crate::who::Warns;
use crate::words;

/// Progress events at most this often.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Prints events as they come.
pub(crate) struct JsonEvents {
    urls: Vec<String>,
    target: String,
    to: Box<dyn Write + Send + Sync>,
    progress_at: Option<Instant>,
}

impl JsonEvents {
    /// With `data_on_stdout`, the file itself goes to standard output, so events go to standard error.
    pub(crate) fn new(urls: &[String], target: &str, data_on_stdout: bool) -> JsonEvents {
        let to: Box<dyn Write + Send + Sync> = match data_on_stdout {
            true => Box::new(std::io::stderr()),
            false => Box::new(std::io::stdout()),
        };
        JsonEvents { urls: urls.to_vec(), target: target.to_owned(), to, progress_at: None }
    }

    fn print(&mut self, kind: &str, fields: Value) {
        print_event(&mut *self.to, kind, fields);
    }

    /// The last events: how it ended.
    pub(crate) fn end(&mut self, report: &Report, error: Option<&Error>) {
        match error {
            None => {
                let fields = json!({ "target": self.target, "bytes": report.done_bytes });
                self.print("file.done", fields);
            }
            Some(error) => {
                let fields = json!({ "target": self.target, "error": error_value(error) });
                self.print("file.failed", fields);
            }
        }
        self.print("summary", summary(report));
    }
}

fn summary(report: &Report) -> Value {
    let sources: Vec<Value> = report
        .sources
        .iter()
        .map(|source| {
            json!({
                "url": source.url,
                "state": source.state,
                "bytes": source.bytes,
                "received_bytes": source.received_bytes,
                "rate_best_bytes_per_s": source.rate_best_bytes_per_s,
                "round_trip_s": source.round_trip.map(|rtt| rtt.as_secs_f64()),
                "connections": source.connections,
                "handshakes": source.handshakes,
                "wrong_pieces": source.wrong_pieces,
                "error": source.error.as_ref().map(error_value),
            })
        })
        .collect();
    json!({
        "bytes": report.done_bytes,
        "size_bytes": report.size_bytes,
        "seconds": report.seconds,
        "rate_bytes_per_s": report.rate_bytes_per_s(),
        "fetched_bytes": report.fetched_bytes,
        "extra_bytes": report.extra_bytes,
        "resumed_bytes": report.resumed_bytes,
        "bound_seconds": report.bound_s,
        "bound_from": report.bound_from,
        "fraction": report.bound_s.map(|bound_s| bound_s / report.seconds.max(1e-9)),
        "limited_by": words::limit(report.limited_by),
        "verification": if report.verified.is_some() { "verified" } else { "unverified" },
        "verified_by": report.verified.map(words::basis),
        "votes": report.verified.and_then(votes_value),
        "checksum": report.checksum.as_ref().map(|checksum| checksum.to_string()),
        "verified_with": report.verified_with.map(|kind| kind.name()),
        "checksum_unstated": report.unstated.map(ChecksumKind::name),
        "sources": sources,
    })
}

/// How sources voted, where they did.
pub(crate) fn votes_value(basis: Basis) -> Option<Value> {
    match basis {
        Basis::User | Basis::Metalink => None,
        Basis::Sources { agreeing, said, named } => {
            Some(json!({ "agreeing": agreeing, "said": said, "named": named }))
        }
    }
}

impl Warns for JsonEvents {
    fn warn(&mut self, warning: &Warning) {
        self.print("warning", warning_value(warning));
    }
}

impl Observer for JsonEvents {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Plan { resumed_bytes, dropped } => {
                let fields = json!({
                    "sources": self.urls, "target": self.target,
                    "resumed_bytes": resumed_bytes, "dropped_partial": dropped,
                });
                self.print("plan", fields);
            }
            Event::Started { size_bytes } => {
                let fields =
                    json!({ "source": self.urls[0], "target": self.target, "size_bytes": size_bytes });
                self.print("file.start", fields);
            }
            Event::Source { source, state, error } => {
                let fields =
                    json!({ "url": self.urls[*source], "state": state, "error": error.map(error_value) });
                self.print("source", fields);
            }
            Event::Added { url, .. } => {
                self.urls.push((*url).to_owned());
                self.print("source", json!({ "url": url, "state": "connecting", "error": null }));
            }
            Event::Retry { source, error } => {
                let fields = json!({ "url": self.urls[*source], "error": error_value(error) });
                self.print("retry", fields);
            }
            Event::Progress(snapshot) => {
                if self.progress_at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL) {
                    return;
                }
                self.progress_at = Some(Instant::now());
                let sources: Vec<Value> = self
                    .urls
                    .iter()
                    .zip(&snapshot.sources)
                    .map(|(url, source)| {
                        json!({
                            "url": url, "state": source.state, "bytes": source.bytes,
                            "rate_bytes_per_s": source.rate_bytes_per_s,
                            "round_trip_s": source.round_trip.map(|rtt| rtt.as_secs_f64()),
                            "lanes": source.lanes,
                        })
                    })
                    .collect();
                let fields = json!({
                    "bytes": snapshot.done_bytes, "size_bytes": snapshot.size_bytes,
                    "rate_bytes_per_s": snapshot.rate_bytes_per_s, "eta_s": snapshot.eta_s,
                    "elapsed_s": snapshot.elapsed_s, "verifying": snapshot.verifying, "sources": sources,
                });
                self.print("progress", fields);
            }
            Event::Verified { checksum, basis } => {
                let fields = json!({
                    "checksum": checksum.to_string(), "matches": basis.map(|_| true),
                    "verified_by": basis.map(words::basis), "votes": basis.and_then(votes_value),
                });
                self.print("verify", fields);
            }
            Event::WrongPiece { range, sources } => {
                let sources: Vec<&String> = sources.iter().map(|number| &self.urls[*number]).collect();
                let fields = json!({
                    "matches": false, "offset": range.start(), "len": range.len(), "sources": sources,
                });
                self.print("verify", fields);
            }
            Event::Mismatch { found, expected, believed } => {
                let believed: Vec<&String> = believed.iter().map(|number| &self.urls[*number]).collect();
                let fields = json!({
                    "checksum": found.to_string(), "expected": expected.to_string(),
                    "matches": false, "refetching_from": believed,
                });
                self.print("verify", fields);
            }
        }
    }
}
