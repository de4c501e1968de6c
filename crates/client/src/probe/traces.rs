//! Files that a probe writes to a server: one that was begun is remembered until it is known to be gone.

use std::time::Duration;

use gridlane_core::limits::PROBE_GRACE;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::{CopySpec, Options, TargetSpec, copy};
use gridlane_peer::Client;
use gridlane_peer::patience::timeout;

use super::clock::{Clock, too_slow};
use super::content::{Content, Sink, Tally};
use super::report::{Left, Rate};
use crate::contents::Unwatched;
use crate::location::Location;
use crate::tree_path::TreePath;

/// Tries to remove a file, where the first one breaks off.
const REMOVALS_MAX: usize = 2;

/// Files in one directory of a server.
pub(super) struct Traces {
    client: Client,
    directory: Location,
    /// The beginning of their names, which no other file has.
    prefix: String,
    written: Vec<Written>,
}

/// A file that was begun.
struct Written {
    url: Url,
    /// The server has said that it has it.
    is_certain: bool,
}

/// The end of a removal.
enum Removal {
    Gone,
    /// There is nothing to remove.
    Absent,
    Left(Left),
}

/// The end of all removals.
#[derive(Debug, Default)]
pub(super) struct Cleared {
    /// Number of files that were removed, and are gone.
    pub(super) removed: usize,
    /// The first failure.
    pub(super) failure: Option<Error>,
    /// The files that are left.
    pub(super) left: Vec<Left>,
}

impl Traces {
    /// Files in a directory, with names that begin so.
    pub(super) fn new(client: Client, directory: &Url, prefix: String) -> Traces {
        Traces { client, directory: Location::of(directory), prefix, written: Vec::new() }
    }

    /// True if there is nothing to remove.
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// The URL of a file below the directory.
    pub(super) fn url(&self, path: &TreePath) -> Result<Url> {
        self.directory.file(path)
    }

    /// Writes a file that is not there yet; returns its URL and the time until the server has confirmed it.
    pub(super) async fn write(
        &mut self,
        name: &str,
        content: &Content,
        clock: &Clock,
    ) -> Result<(Url, Duration)> {
        let url = self.url(&TreePath::root().child(format!("{}-{name}", self.prefix).as_bytes())?)?;
        let (source, stored) = content.source()?;
        let target = TargetSpec::Upload { url: url.clone(), overwrite: false, modified: None };
        let options = Options { stored: Some(stored), ..options(clock) };
        let spec = CopySpec { sources: vec![source], target, options };
        // From here on: it may be there, whatever happens.
        self.written.push(Written { url: url.clone(), is_certain: false });
        let begun = std::time::Instant::now();
        let outcome = bounded(spec, &self.client, clock).await;
        let took = begun.elapsed();
        match outcome {
            Ok(_) => {
                if let Some(written) = self.written.last_mut() {
                    written.is_certain = true;
                }
                Ok((url, took))
            }
            Err(error) => {
                if is_refusal(&error) && !self.is_there(&url, clock.left()).await {
                    self.written.pop();
                }
                Err(error)
            }
        }
    }

    /// Reads a file and compares it with what was written.
    pub(super) async fn compare(&self, url: &Url, content: &Content, clock: &Clock) -> Result<Rate> {
        let (sink, tally) = Sink::comparing(content.clone());
        self.read(url, sink, clock).await.map(|_| rate(&tally, true))
    }

    /// The same for as long as a step may take, where some of it has come by then.
    pub(super) async fn compare_some(&self, url: &Url, content: &Content, clock: &Clock) -> Result<Rate> {
        let (sink, tally) = Sink::comparing(content.clone());
        match self.read(url, sink, clock).await {
            Err(error) if error.kind() != ErrorKind::Timeout || tally.bytes() == 0 => Err(error),
            Ok(_) | Err(_) => Ok(rate(&tally, true)),
        }
    }

    /// Reads a file up to `bytes_max`, or for as long as a step may take where some of it has come by then.
    pub(super) async fn count(&self, url: &Url, bytes_max: u64, clock: &Clock) -> Result<Rate> {
        let (sink, tally) = Sink::counting(bytes_max);
        match self.read(url, sink, clock).await {
            Ok(is_verified) => Ok(rate(&tally, is_verified)),
            Err(_) if tally.is_enough() => Ok(rate(&tally, false)),
            Err(error) if error.kind() == ErrorKind::Timeout && tally.bytes() > 0 => Ok(rate(&tally, false)),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the bytes were compared with a checksum of the server.
    async fn read(&self, url: &Url, sink: Sink, clock: &Clock) -> Result<bool> {
        let target = TargetSpec::InOrder(Box::new(sink));
        let spec = CopySpec { sources: vec![url.clone()], target, options: options(clock) };
        bounded(spec, &self.client, clock).await.map_err(|error| match error.endpoint_text() {
            Some(_) => error,
            None => error.endpoint(url),
        })
    }

    /// Removes all files, each within `each_max`, and looks that they are gone. Nothing stops it.
    pub(super) async fn clear(&mut self, each_max: Duration) -> Cleared {
        let mut cleared = Cleared::default();
        for written in std::mem::take(&mut self.written) {
            match self.remove(&written, each_max).await {
                Removal::Gone => cleared.removed += 1,
                Removal::Absent if written.is_certain => {
                    let error =
                        Error::new(ErrorKind::NotFound, "a file that was written is not there any more");
                    cleared.failure.get_or_insert(error.endpoint(&written.url));
                }
                Removal::Absent => {}
                Removal::Left(left) => {
                    cleared.failure.get_or_insert(left.error.clone());
                    cleared.left.push(left);
                }
            }
        }
        cleared
    }

    async fn remove(&self, written: &Written, max: Duration) -> Removal {
        let Written { url, is_certain } = written;
        let mut failure = None;
        for _ in 0..REMOVALS_MAX {
            let removed = timeout(max, crate::files::remove(&self.client, url)).await;
            match removed.unwrap_or_else(|_| Err(too_slow(max).endpoint(url))) {
                Ok(()) if !self.is_there(url, max).await => return Removal::Gone,
                Ok(()) => {
                    let message = "the server says that it has removed the file, and still has it";
                    let error = Error::new(ErrorKind::Other, message).fault(Fault::Peer);
                    return left(url, true, error.endpoint(url));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // Perhaps the first try has removed it.
                    return if failure.is_some() { Removal::Gone } else { Removal::Absent };
                }
                Err(error) if error.is_retryable() => failure = Some(error),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let Some(error) = failure else { return Removal::Absent };
        let looked = timeout(max, crate::files::stat(&self.client, url)).await;
        match looked {
            Ok(Err(found)) if found.kind() == ErrorKind::NotFound => Removal::Absent,
            Ok(Ok(_)) => left(url, true, error),
            _ => left(url, *is_certain, error),
        }
    }

    /// True if a file is seen at a URL.
    async fn is_there(&self, url: &Url, max: Duration) -> bool {
        matches!(timeout(max, crate::files::stat(&self.client, url)).await, Ok(Ok(_)))
    }
}

fn left(url: &Url, is_certain: bool, error: Error) -> Removal {
    Removal::Left(Left { url: url.to_string(), is_certain, error })
}

/// True if the server has said that it does not take the file: then it has nothing of it.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::NotFound | ErrorKind::Precondition
    )
}

fn rate(tally: &Tally, is_verified: bool) -> Rate {
    Rate { bytes: tally.bytes(), seconds: tally.took().as_secs_f64(), is_verified }
}

/// The options of a copy with the patience of a step.
fn options(clock: &Clock) -> Options {
    let patience = clock.left().max(Duration::from_millis(100));
    Options { patience, upload_answer_max: patience, ..Options::default() }
}

/// Makes a copy within the time of a step; returns true if its bytes were compared with a checksum. One that is too slow, or
/// is stopped, ends in good order: what it has begun at a server is given up there.
async fn bounded(spec: CopySpec, client: &Client, clock: &Clock) -> Result<bool> {
    let left = clock.left();
    let stop = {
        let stopped = clock.stopped();
        async move {
            let _ = timeout(left, stopped).await;
        }
    };
    let mut unwatched = Unwatched;
    let copied = copy(spec, client.clone(), &mut unwatched, stop);
    let outcome = match timeout(left + PROBE_GRACE, copied).await {
        Ok(outcome) => outcome,
        Err(_) => return Err(too_slow(left)),
    };
    match outcome.result {
        Ok(()) => Ok(outcome.report.verified.is_some()),
        Err(error) if error.kind() == ErrorKind::Interrupted && !clock.is_stopped() => Err(too_slow(left)),
        Err(error) => Err(error),
    }
}
