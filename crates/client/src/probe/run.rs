//! All endpoints: several at once for short questions and small files, then one after the other for rates.

use std::future::Future;
use std::sync::Arc;

use gridlane_core::limits::PROBE_PAGE_BYTES_MAX;
use gridlane_core::name::PROBE_BEGIN;
use gridlane_core::{Error, ErrorKind, Result};
use gridlane_peer::Client;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::endpoint::{Manner, Probing};
use super::report::Report;
use super::site::Site;
use crate::listing::Lister;
use crate::random::random;

/// The endpoints to probe, and the manner.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// The sites, whose endpoints' URLs are [named](gridlane_peer::Credentials::name) to the client.
    pub sites: Vec<Site>,
    /// The manner.
    pub manner: Manner,
    /// Endpoints that are asked at the same time.
    pub parallel: usize,
    /// Rates that are measured at the same time: more than one measure each other.
    pub parallel_rates: usize,
}

/// The part of a probe that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Short questions and small files.
    Questions,
    /// Rates.
    Rates,
}

/// Takes the events of a probe. It must not block.
pub trait ProbeObserver: Send {
    /// So many endpoints have ended a part, of so many that it is about.
    fn progress(&mut self, part: Part, done: usize, of: usize);

    /// All is known of an endpoint that will be.
    fn done(&mut self, report: &Report);
}

/// Probes endpoints; the reports are in the order of the sites. When `stop` completes, what was begun is ended and tidied up,
/// and what is known is in the reports.
pub async fn probe(
    request: ProbeRequest,
    client: Client,
    observer: &mut dyn ProbeObserver,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Vec<Report>> {
    let ProbeRequest { sites, manner, parallel, parallel_rates } = request;
    let client = impatient(client, &manner);
    let lister = Lister::new(client).pages_up_to(PROBE_PAGE_BYTES_MAX);
    let (tell, stopped) = watch::channel(false);
    let stopping = tokio::spawn(async move {
        stop.await;
        let _ = tell.send(true);
        // Dropped, it could not be waited for.
        tell.closed().await;
    });
    let [prefix, seed] = [u64::from_le_bytes(random()?), u64::from_le_bytes(random()?)];
    let endpoints = sites.into_iter().enumerate().flat_map(|(at, site)| {
        let of_site = site.endpoints.into_iter().map(move |endpoint| (at, endpoint));
        of_site.collect::<Vec<_>>()
    });
    let all = endpoints.enumerate().map(|(number, endpoint)| {
        let names =
            (format!("{PROBE_BEGIN}{prefix:016x}-{number}"), seed.wrapping_add((number as u64) << 16));
        (number, Probing::new(lister.clone(), manner.clone(), names, stopped.clone(), endpoint))
    });
    let asked = in_turns(all.collect(), Part::Questions, parallel, observer).await?;
    let (to_measure, known): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(|(_, probing)| probing.has_rate());
    let mut ended = known;
    ended.extend(in_turns(to_measure, Part::Rates, parallel_rates, observer).await?);
    stopping.abort();
    ended.sort_by_key(|(number, _)| *number);
    Ok(ended.into_iter().map(|(_, probing)| probing.into_report()).collect())
}

/// The client that waits no longer for an answer than a step may take.
fn impatient(mut client: Client, manner: &Manner) -> Client {
    (client.http.answer_max, client.root.answer_max) = (manner.step_max, manner.step_max);
    client
}

/// A part of the probe of all of these, so many at the same time. All have ended when it returns.
async fn in_turns(
    probings: Vec<(usize, Probing)>,
    part: Part,
    parallel: usize,
    observer: &mut dyn ProbeObserver,
) -> Result<Vec<(usize, Probing)>> {
    let (of, turns) = (probings.len(), Arc::new(Semaphore::new(parallel.max(1))));
    let mut running = JoinSet::new();
    for (number, mut probing) in probings {
        let turns = Arc::clone(&turns);
        running.spawn(async move {
            // Never closed.
            let _turn = turns.acquire_owned().await;
            match part {
                Part::Questions => Box::pin(probing.first()).await,
                Part::Rates => Box::pin(probing.second()).await,
            }
            (number, probing)
        });
    }
    let mut ended = Vec::with_capacity(of);
    while let Some(joined) = running.join_next().await {
        let (number, probing) = joined.map_err(|cause| {
            Error::new(ErrorKind::Other, format!("a probe ended without a result: {cause}"))
        })?;
        if part == Part::Rates || !probing.has_rate() {
            observer.done(probing.report());
        }
        ended.push((number, probing));
        observer.progress(part, ended.len(), of);
    }
    Ok(ended)
}
