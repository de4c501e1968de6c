//! The steps of one endpoint, in two parts: short questions and small files first, and the rate in a turn of its own.
//!
//! Each step that can still be tried is tried, whatever has failed before it. What was written is removed at the end of each
//! part, whatever has happened in it.

use std::future::Future;
use std::time::{Duration, Instant};

use gridlane_core::limits::{PROBE_FOUND_BYTES_MAX, PROBE_LISTED_MAX, PROBE_SMALL_BYTES, PROBE_SMALL_FILES};
use gridlane_core::name::PROBE_BEGIN;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_peer::http::Purpose;
use gridlane_peer::{Client, sends_password};
use gridlane_store::Content as _;
use tokio::sync::watch;

use super::clock::Clock;
use super::content::Content;
use super::report::{Outcome, Rate, Report, Shown, Step, Untried};
use super::site::Endpoint;
use super::traces::{Cleared, Traces};
use crate::item::{Item, directory_form};
use crate::listing::Lister;
use crate::tree_path::TreePath;

/// The manner of a probe, of all endpoints alike.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Files are written, read back and removed. Else nothing at the server is changed.
    pub writes: bool,
    /// A file in each directory that may be read; without one, the smallest that is listed.
    pub file: Option<TreePath>,
    /// Bytes of the file by which the rate is measured; 0: none is.
    pub rate_bytes: u64,
    /// Time for each step.
    pub step_max: Duration,
    /// Time for all steps of an endpoint together, waiting for the turn of its rate not counted.
    pub endpoint_max: Duration,
}

/// The state of a probe of one endpoint.
pub(super) struct Probing {
    lister: Lister,
    manner: Manner,
    /// The beginning of the names of its files, and of their bytes.
    names: (String, u64),
    stop: watch::Receiver<bool>,
    /// Time that is left of the endpoint's.
    left: Duration,
    report: Report,
    /// A file that is there and may be read.
    readable: Option<Url>,
}

impl Probing {
    pub(super) fn new(
        lister: Lister,
        manner: Manner,
        names: (String, u64),
        stop: watch::Receiver<bool>,
        (site, endpoint): (usize, Endpoint),
    ) -> Probing {
        let left = manner.endpoint_max;
        Probing { lister, manner, names, stop, left, report: Report::new(site, endpoint), readable: None }
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    pub(super) fn into_report(self) -> Report {
        self.report
    }

    /// Everything but the rate.
    pub(super) async fn first(&mut self) {
        let clock = self.clock();
        let protocol = self.report.endpoint.protocol.clone();
        match self.report.endpoint.url.clone() {
            Some(url) => {
                self.report.note(Step::Protocol, Outcome::Works, Duration::ZERO);
                if clock.is_stopped() {
                    self.all_untried(Untried::Stopped);
                } else if self.reaches(&url, &clock).await {
                    self.use_directory(&url, &clock).await;
                }
            }
            None => {
                let message = format!("{protocol} is not spoken here");
                let error = Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller);
                let error = error.endpoint(&self.report.endpoint.shown);
                self.report.note(Step::Protocol, Outcome::Fails(error), Duration::ZERO);
            }
        }
        self.left = clock.all_left();
    }

    /// True if a rate can be measured.
    pub(super) fn has_rate(&self) -> bool {
        let reads_well = || self.manner.file.is_some() && self.report.works(Step::Read);
        self.manner.rate_bytes > 0 && (self.writes_well() || reads_well())
    }

    fn writes_well(&self) -> bool {
        self.manner.writes && self.report.works(Step::Write)
    }

    /// The rate, where it can be measured.
    pub(super) async fn second(&mut self) {
        let Some(url) = self.report.endpoint.url.clone() else { return };
        if !self.has_rate() {
            return;
        }
        let clock = self.clock();
        let mut traces = self.traces(&url);
        if self.writes_well() {
            let content = Content::new(self.names.1 ^ u64::MAX, self.manner.rate_bytes);
            let written = self.step(Step::WriteRate, &clock, traces.write("rate", &content, &clock)).await;
            if let Some((written, took)) = written {
                let seconds = took.as_secs_f64();
                let bytes = content.size_bytes();
                let reading = traces.compare_some(&written, &content, &clock);
                self.report.read_rate = self.step(Step::ReadRate, &clock, reading).await;
                // All that comes back as it was sent has arrived so.
                let is_verified = self.report.read_rate.is_some_and(|read| read.bytes == bytes);
                self.report.write_rate = Some(Rate { bytes, seconds, is_verified });
            } else if let Outcome::Untried(why) = *self.report.outcome(Step::WriteRate) {
                self.report.note(Step::ReadRate, Outcome::Untried(why), Duration::ZERO);
            }
            self.clear(&mut traces).await;
        } else if let Some(file) = self.readable.clone() {
            let read = traces.count_some(&file, self.manner.rate_bytes, &clock);
            self.report.read_rate = self.step(Step::ReadRate, &clock, read).await;
        }
        self.left = clock.all_left();
    }

    fn clock(&self) -> Clock {
        Clock::new(self.manner.step_max, self.left, self.stop.clone())
    }

    fn traces(&self, url: &Url) -> Traces {
        let directory = directory_form(url).unwrap_or_else(|_| url.clone());
        Traces::new(self.client().clone(), &directory, self.names.0.clone())
    }

    fn client(&self) -> &Client {
        self.lister.client()
    }

    fn all_untried(&mut self, why: Untried) {
        for step in Step::ALL {
            if matches!(self.report.outcome(step), Outcome::Untried(Untried::Needless)) {
                self.report.note(step, Outcome::Untried(why), Duration::ZERO);
            }
        }
    }

    /// Makes a step that is bound by itself, and notes its end; `None`: it failed, or there was no time for it.
    async fn step<T>(
        &mut self,
        step: Step,
        clock: &Clock,
        doing: impl Future<Output = Result<T>>,
    ) -> Option<T> {
        let untried = match () {
            () if clock.is_stopped() => Some(Untried::Stopped),
            () if clock.left().is_zero() => Some(Untried::NoTime),
            () => None,
        };
        if let Some(why) = untried {
            self.report.note(step, Outcome::Untried(why), Duration::ZERO);
            return None;
        }
        let begun = Instant::now();
        let (outcome, done) = match doing.await {
            Ok(done) => (Outcome::Works, Some(done)),
            Err(error) => {
                let error = match error.endpoint_text() {
                    Some(_) => error,
                    None => error.endpoint(&self.report.endpoint.shown),
                };
                (Outcome::Fails(error), None)
            }
        };
        self.report.note(step, outcome, begun.elapsed());
        done
    }

    /// Looks for the server and greets it; true if it is there and takes us.
    async fn reaches(&mut self, url: &Url, clock: &Clock) -> bool {
        let client = self.client().clone();
        let is_direct = client.dialer().route(url).map_or(true, |route| route.is_direct());
        if is_direct {
            let resolved = self.step(Step::Resolve, clock, clock.bound(client.dialer().resolve(url))).await;
            let Some(addresses) = resolved else { return false };
            self.report.addresses = addresses.iter().map(|address| address.ip()).collect();
            let touched = self.step(Step::Connect, clock, clock.bound(client.dialer().touch(url))).await;
            let Some(touched) = touched else { return false };
            self.report.address = Some(touched.address);
            self.report.round_trip = Some(touched.round_trip);
        } else {
            for step in [Step::Resolve, Step::Connect] {
                self.report.note(step, Outcome::Untried(Untried::ByProxy), Duration::ZERO);
            }
        }
        let greeted = self.step(Step::Login, clock, clock.bound(greet(&client, url))).await;
        let Some((connection, is_by_token)) = greeted else { return false };
        self.report.connection = Some(connection);
        self.report.shown = shown(&client, url, is_by_token);
        true
    }

    /// Lists the directory, writes to it, reads from it, and removes what was written.
    async fn use_directory(&mut self, url: &Url, clock: &Clock) {
        let lister = self.lister.clone();
        let listed = self.step(Step::List, clock, clock.bound(list(&lister, url))).await;
        let mut found = None;
        if let Some(Listed { entries, is_all, smallest }) = listed {
            self.report.listed = Some((entries, is_all));
            found = smallest;
        }
        let mut traces = self.traces(url);
        let found = found.and_then(|name| TreePath::root().child(&name).ok());
        let file = self.manner.file.clone().or(found);
        self.readable = file.and_then(|file| traces.url(&file).ok());
        let mut written = Vec::new();
        if self.manner.writes {
            let parts = clock.of_step();
            let writing = write_small(&mut traces, self.names.1, &parts);
            written = self.step(Step::Write, clock, writing).await.unwrap_or_default();
            self.report.small_write = median(written.iter().map(|(_, _, took)| *took).collect());
        } else {
            self.report.note(Step::Write, Outcome::Untried(Untried::NotAsked), Duration::ZERO);
        }
        let parts = clock.of_step();
        let times = match (written.as_slice(), self.readable.clone()) {
            ([], None) => {
                self.report.note(Step::Read, Outcome::Untried(Untried::NoFile), Duration::ZERO);
                None
            }
            ([], Some(file)) => self.step(Step::Read, clock, read_found(&traces, &file, &parts)).await,
            (written, _) => self.step(Step::Read, clock, read_small(&traces, written, &parts)).await,
        };
        self.report.small_read = median(times.unwrap_or_default());
        if self.manner.rate_bytes == 0 {
            for step in [Step::WriteRate, Step::ReadRate] {
                self.report.note(step, Outcome::Untried(Untried::NotAsked), Duration::ZERO);
            }
        } else if !self.manner.writes {
            self.report.note(Step::WriteRate, Outcome::Untried(Untried::NotAsked), Duration::ZERO);
            if self.manner.file.is_none() {
                self.report.note(Step::ReadRate, Outcome::Untried(Untried::NoFile), Duration::ZERO);
            }
        }
        match self.manner.writes {
            true => self.clear(&mut traces).await,
            false => self.report.note(Step::Delete, Outcome::Untried(Untried::NotAsked), Duration::ZERO),
        }
    }

    /// Removes what was written, and notes whether that works.
    async fn clear(&mut self, traces: &mut Traces) {
        if traces.is_empty() {
            return;
        }
        let begun = Instant::now();
        let Cleared { removed, failure, left } = traces.clear(self.manner.step_max).await;
        self.report.left.extend(left);
        match failure {
            Some(error) => self.report.note(Step::Delete, Outcome::Fails(error), begun.elapsed()),
            None if removed > 0 && !matches!(self.report.outcome(Step::Delete), Outcome::Fails(_)) => {
                self.report.note(Step::Delete, Outcome::Works, begun.elapsed());
            }
            None => {}
        }
    }
}

/// Makes a connection that can carry a request; returns it in words, and whether its login is by a token.
async fn greet(client: &Client, url: &Url) -> Result<(String, bool)> {
    if url.scheme().is_root() {
        let greeting = client.root.greet(url).await?;
        return Ok((greeting.text, greeting.session.is_by_token()));
    }
    let connected = client.http.connect(url, url, Purpose::Request, true).await?;
    Ok((connected.connection.describe(), false))
}

/// The credentials that requests about a URL show.
fn shown(client: &Client, url: &Url, is_by_token: bool) -> Vec<Shown> {
    let credentials = &client.credentials;
    let token = || credentials.token().ok().flatten().map(|token| Shown::Token(token.from));
    let certificate = || credentials.certificate().map(|name| Shown::Certificate(name.to_owned()));
    if url.has_secrets() {
        return if url.scheme().is_root() || sends_password(url) { vec![Shown::Url] } else { Vec::new() };
    }
    if url.scheme().is_root() {
        let by_token = is_by_token.then(token).flatten();
        let by_certificate = certificate().filter(|_| url.scheme().is_encrypted());
        return by_token.into_iter().chain(by_certificate).collect();
    }
    match url.scheme().is_encrypted() && credentials.may_see(url, url) {
        true => token().into_iter().chain(certificate()).collect(),
        false => Vec::new(),
    }
}

/// The beginning of a listing.
struct Listed {
    entries: usize,
    /// There are no more.
    is_all: bool,
    /// The name of the smallest file that has a byte, if it is small enough to be read.
    smallest: Option<Vec<u8>>,
}

async fn list(lister: &Lister, url: &Url) -> Result<Listed> {
    let mut listing = lister.list(&directory_form(url)?).await?;
    let mut listed = Listed { entries: 0, is_all: false, smallest: None };
    let mut smallest_bytes = PROBE_FOUND_BYTES_MAX + 1;
    let mut items = Vec::new();
    while listed.entries < PROBE_LISTED_MAX {
        let is_more = listing.next(&mut items).await?;
        for item in items.drain(..) {
            match item {
                Item::Entry(Entry { name, kind: EntryKind::File, size_bytes: Some(bytes), .. })
                    // What another probe has written is gone soon.
                    if (1..smallest_bytes).contains(&bytes) && !name.starts_with(PROBE_BEGIN.as_bytes()) =>
                {
                    (smallest_bytes, listed.smallest) = (bytes, Some(name));
                }
                Item::Entry(_) | Item::Odd { .. } => {}
                Item::Itself(_) => {
                    let error = Error::new(ErrorKind::Usage, "it is a file, and an endpoint is a directory");
                    return Err(error.fault(Fault::Caller).endpoint(url));
                }
            }
            listed.entries += 1;
        }
        if !is_more {
            listed.is_all = true;
            break;
        }
    }
    Ok(listed)
}

type Small = (Url, Content, Duration);

async fn write_small(traces: &mut Traces, seed: u64, clock: &Clock) -> Result<Vec<Small>> {
    let mut written = Vec::new();
    for number in 0..PROBE_SMALL_FILES {
        refuse_without_time(clock)?;
        let content = Content::new(seed.wrapping_add(number as u64), PROBE_SMALL_BYTES);
        let (url, took) = traces.write(&format!("small-{number}"), &content, clock).await?;
        written.push((url, content, took));
    }
    Ok(written)
}

async fn read_small(traces: &Traces, written: &[Small], clock: &Clock) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for (url, content, _) in written {
        refuse_without_time(clock)?;
        times.push(Duration::from_secs_f64(traces.compare(url, content, clock).await?.seconds));
    }
    Ok(times)
}

async fn read_found(traces: &Traces, file: &Url, clock: &Clock) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..PROBE_SMALL_FILES {
        refuse_without_time(clock)?;
        times.push(Duration::from_secs_f64(traces.count(file, PROBE_FOUND_BYTES_MAX, clock).await?.seconds));
    }
    Ok(times)
}

fn refuse_without_time(clock: &Clock) -> Result<()> {
    match clock.left() {
        left if left.is_zero() => Err(clock.too_slow(left)),
        _ => Ok(()),
    }
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied().filter(|_| !times.is_empty())
}
