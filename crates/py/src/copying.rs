//! Copies of files, as `gridlane cp` makes them.

use std::time::Duration;

use gridlane_client::credentials::Lasting;
use gridlane_client::events::{PlainWords, Words};
use gridlane_client::third_party::{ThirdParty, Wish};
use gridlane_client::{
    Copies, CopyEvent, CopyObserver, CopyRequest, Existing, current_dir, journal_keys, patient,
};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::{Event, Options, Report};
use gridlane_peer::Client;
use gridlane_share::RateLimit;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::job::{Job, Progress, Stop, value};

/// A copy that was asked for.
pub(crate) struct Asked {
    pub(crate) sources: Vec<Url>,
    pub(crate) target: String,
    pub(crate) existing: Existing,
    pub(crate) checksum: Option<(ChecksumKind, Option<Checksum>)>,
    pub(crate) require_verified: bool,
    pub(crate) streams: Option<usize>,
    pub(crate) limit_rate: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) third_party: ThirdParty,
    pub(crate) metalinks: bool,
    pub(crate) lasting: Option<Lasting>,
}

/// `TYPE` or `TYPE:HEX`.
pub(crate) fn wanted_checksum(text: &str) -> Result<(ChecksumKind, Option<Checksum>)> {
    match text.contains(':') {
        false => Ok((text.parse()?, None)),
        true => {
            let checksum: Checksum = text.parse()?;
            Ok((checksum.kind(), Some(checksum)))
        }
    }
}

/// The choice about copies that servers make between themselves.
pub(crate) fn third_party(name: &str) -> Result<ThirdParty> {
    match name {
        "auto" => Ok(ThirdParty::Auto),
        "only" => Ok(ThirdParty::Only),
        "never" => Ok(ThirdParty::Never),
        other => {
            let message = format!("third_party is \"auto\", \"only\" or \"never\", and not {other:?}");
            Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller))
        }
    }
}

/// The copy, as a job that tells of its progress.
pub(crate) fn job(py: Python<'_>, asked: Asked, client: Client) -> PyResult<Job> {
    let (progress, stop) = (Progress::default(), Stop::default());
    let work = run(asked, client, progress.clone(), stop.clone());
    Ok(Job::new(py, async move {
        let reports = work.await?;
        Ok(value(move |py| shown(py, &reports)))
    })?
    .with(progress, stop))
}

async fn run(asked: Asked, client: Client, progress: Progress, stop: Stop) -> Result<Vec<Report>> {
    let usual = Options::default();
    let options = Options {
        checksum: asked.checksum,
        require_verified: asked.require_verified,
        follow_links: true,
        streams: asked.streams,
        limit: asked.limit_rate.map(RateLimit::new),
        patience: asked.timeout.unwrap_or(usual.patience),
        upload_answer_max: asked.timeout.unwrap_or(usual.upload_answer_max),
        ..usual
    };
    let client = patient(client, &options);
    let request = CopyRequest {
        sources: asked.sources,
        target: asked.target,
        current_dir: current_dir()?,
        options,
        journal_keys: journal_keys(),
        existing: asked.existing,
        preserve_times: false,
        dry_run: false,
        wish: Wish { third_party: asked.third_party, ..Wish::default() },
        takes_metalinks: asked.metalinks,
        lasting: asked.lasting,
    };
    let mut watcher = Watcher { progress, reports: Vec::new() };
    let copies = Copies::plan(request, client).await?;
    let mut outcome = copies.run(&mut watcher, stop.told()).await?;
    // Of a metalink with several files, too: what failed has to be known.
    match outcome.failures.pop() {
        Some(error) => Err(error),
        None => Ok(watcher.reports),
    }
}

/// Keeps what a caller wants to know of a copy.
struct Watcher {
    progress: Progress,
    reports: Vec<Report>,
}

impl CopyObserver for Watcher {
    fn event(&mut self, event: &CopyEvent<'_>) {
        match event {
            CopyEvent::Engine(Event::Progress(now)) => self.progress.tell(now.done_bytes, now.size_bytes),
            CopyEvent::Ended { report, error: None, .. } => {
                self.progress.tell(report.done_bytes, report.size_bytes);
                self.reports.push((*report).clone());
            }
            _ => {}
        }
    }
}

/// The reports of a call as one dictionary.
fn shown(py: Python<'_>, reports: &[Report]) -> PyResult<Py<PyAny>> {
    let found = PyDict::new(py);
    let last = reports.last();
    found.set_item("size", reports.iter().filter_map(|report| report.size_bytes).sum::<u64>())?;
    found.set_item("seconds", reports.iter().map(|report| report.seconds).sum::<f64>())?;
    found.set_item("files", reports.len())?;
    found.set_item("resumed", reports.iter().map(|report| report.resumed_bytes).sum::<u64>())?;
    found
        .set_item("verified", last.and_then(|report| report.verified).map(|basis| PlainWords.basis(basis)))?;
    found.set_item("checksum", last.and_then(|report| report.checksum.as_ref()).map(ToString::to_string))?;
    found.set_item("limited_by", last.map(|report| report.limited_by.name()))?;
    let sources = reports.iter().flat_map(|report| &report.sources);
    found
        .set_item("sources", sources.map(|source| (source.url.clone(), source.bytes)).collect::<Vec<_>>())?;
    Ok(found.into_any().unbind())
}
