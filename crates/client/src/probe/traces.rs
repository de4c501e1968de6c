//! Files that a probe writes to a server: one that was begun is remembered until it is known to be gone.

use std::time::{Duration, Instant};

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
    /// The reason for which its upload broke off: what was sent may yet become a file.
    broke_off: Option<Error>,
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
        self.written.push(Written { url: url.clone(), is_certain: false, broke_off: None });
        let begun = Instant::now();
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
                // Not within what is left of the step: that may be nothing.
                if has_none(&error)
                    || may_have_none(&error) && self.look(&url, clock.step_max()).await == Some(false)
                {
                    self.written.pop();
                } else if is_break(&error)
                    && let Some(written) = self.written.last_mut()
                {
                    written.broke_off = Some(error.clone());
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
        let begun = Instant::now();
        match self.read(url, sink, clock).await {
            Ok(_) => Ok(rate(&tally, true)),
            Err(error) => rate_of_part(&tally, begun, true).filter(|_| is_late(&error)).ok_or(error),
        }
    }

    /// Reads a file up to `bytes_max`.
    pub(super) async fn count(&self, url: &Url, bytes_max: u64, clock: &Clock) -> Result<Rate> {
        let (sink, tally) = Sink::counting(bytes_max);
        counted(&tally, self.read(url, sink, clock).await)
    }

    /// The same for as long as a step may take, where some of it has come by then.
    pub(super) async fn count_some(&self, url: &Url, bytes_max: u64, clock: &Clock) -> Result<Rate> {
        let (sink, tally) = Sink::counting(bytes_max);
        let begun = Instant::now();
        counted(&tally, self.read(url, sink, clock).await)
            .or_else(|error| rate_of_part(&tally, begun, false).filter(|_| is_late(&error)).ok_or(error))
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

    /// Removes all files, altogether within `max`, and looks that they are gone. Nothing stops it.
    pub(super) async fn clear(&mut self, max: Duration) -> Cleared {
        let clock = Removing { max, until: tokio::time::Instant::now() + max };
        let mut cleared = Cleared::default();
        for written in std::mem::take(&mut self.written) {
            match self.remove(&written, &clock).await {
                Removal::Gone => cleared.removed += 1,
                Removal::Absent if written.is_certain => {
                    let error =
                        Error::new(ErrorKind::NotFound, "a file that was written is not there any more");
                    cleared.failure.get_or_insert(error.endpoint(&written.url));
                }
                Removal::Absent => {
                    if let Some(error) = written.broke_off {
                        let error =
                            error.more("it was not there when it was to be removed, and may come yet");
                        cleared.left.push(Left { url: written.url.to_string(), is_certain: false, error });
                    }
                }
                Removal::Left(left) => {
                    cleared.failure.get_or_insert(left.error.clone());
                    cleared.left.push(left);
                }
            }
        }
        cleared
    }

    async fn remove(&self, written: &Written, clock: &Removing) -> Removal {
        let Written { url, is_certain, .. } = written;
        if clock.left().is_zero() {
            return left(url, *is_certain, clock.too_slow().more("its removal was not tried").endpoint(url));
        }
        let mut failure = None;
        for _ in 0..REMOVALS_MAX {
            let removed = timeout(clock.left(), crate::files::remove(&self.client, url)).await;
            match removed.unwrap_or_else(|_| Err(clock.too_slow().endpoint(url))) {
                Ok(()) => {
                    let (is_there, message) = match self.look(url, clock.left()).await {
                        Some(false) => return Removal::Gone,
                        Some(true) => {
                            (true, "the server says that it has removed the file, and still has it")
                        }
                        None => (false, "the server says that it has removed the file, and does not show it"),
                    };
                    let error = Error::new(ErrorKind::Other, message).fault(Fault::Peer);
                    return left(url, is_there, error.endpoint(url));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // Perhaps the first try has removed it.
                    return if failure.is_some() { Removal::Gone } else { Removal::Absent };
                }
                Err(error) => {
                    let is_last = !error.is_retryable() || clock.left().is_zero();
                    failure = Some(error);
                    if is_last {
                        break;
                    }
                }
            }
        }
        let Some(error) = failure else { return Removal::Absent };
        match self.look(url, clock.left()).await {
            Some(false) => Removal::Absent,
            Some(true) => left(url, true, error),
            None => left(url, *is_certain, error),
        }
    }

    /// True if a file is seen at a URL, false if the server says that there is none; `None`: it does not say.
    async fn look(&self, url: &Url, max: Duration) -> Option<bool> {
        match timeout(max, crate::files::stat(&self.client, url)).await {
            Ok(Ok(_)) => Some(true),
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Some(false),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// The time that all removals have together.
struct Removing {
    max: Duration,
    until: tokio::time::Instant,
}

impl Removing {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(tokio::time::Instant::now())
    }

    fn too_slow(&self) -> Error {
        too_slow(self.max)
    }
}

fn left(url: &Url, is_certain: bool, error: Error) -> Removal {
    Removal::Left(Left { url: url.to_string(), is_certain, error })
}

/// True if the server has said that it does not take the file: then it has nothing of it.
fn has_none(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported)
}

/// True if the server has said something that may mean this.
fn may_have_none(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Precondition)
}

/// True if the server may have been sent a file, or a part of one, and has said nothing about it.
fn is_break(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Interrupted | ErrorKind::Network)
        && !error.is_unreached()
}

fn is_late(error: &Error) -> bool {
    error.kind() == ErrorKind::Timeout
}

/// The rate of what has come by now; `None`: nothing has. All the time counts: a server that falls silent is slow.
fn rate_of_part(tally: &Tally, begun: Instant, is_verified: bool) -> Option<Rate> {
    let (bytes, seconds) = (tally.bytes(), begun.elapsed().as_secs_f64());
    (bytes > 0).then_some(Rate { bytes, seconds, is_verified })
}

/// The rate of a file that was read, or of as much of it as was wanted.
fn counted(tally: &Tally, read: Result<bool>) -> Result<Rate> {
    match read {
        Ok(is_verified) => Ok(rate(tally, is_verified)),
        Err(_) if tally.is_enough() => Ok(rate(tally, false)),
        Err(error) => Err(error),
    }
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
        Err(_) => return Err(clock.too_slow(left)),
    };
    match outcome.result {
        Ok(()) => Ok(outcome.report.verified.is_some()),
        Err(error) if error.kind() == ErrorKind::Interrupted && !clock.is_stopped() => {
            Err(clock.too_slow(left))
        }
        // What is left of a step is the patience of its parts.
        Err(error) if error.kind() == ErrorKind::Timeout => Err(clock.too_slow(left)),
        Err(error) => Err(error),
    }
}
