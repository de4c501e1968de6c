//! A third-party copy that runs: a task, what is known of it meanwhile, and its end.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use gridlane_core::limits::{
    THIRD_PARTY_CLEAN_UP_MAX, THIRD_PARTY_LEAST_BYTES, THIRD_PARTY_LEAST_INTERVAL, THIRD_PARTY_METALINKS_MAX,
    THIRD_PARTY_PATIENCE, THIRD_PARTY_SENT_BYTES_MIN,
};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Scheme, Url};
use gridlane_engine::{CopySpec, Event, Known, Observer, Options, Outcome, Report, StoredSource, TargetSpec};
use gridlane_front::Stopping;
use gridlane_peer::Client;
use gridlane_share::{Lease, budget};
use gridlane_store::StoreError;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, timeout};

use super::ends::Landing;
use super::metalinks::Metalinks;
use super::refusal::cause;
use super::{Context, Totals};
use gridlane_front::CopyRecord;
use gridlane_front::reply::Reply;

/// A copy that was settled, and has not begun.
pub(crate) struct Job {
    /// Replicas of the file; of a file that is here one name for it.
    pub(crate) sources: Vec<Url>,
    /// The file that is here, if it is.
    pub(crate) stored: Option<StoredSource>,
    pub(crate) goal: Goal,
    /// The client with the credentials for the other servers.
    pub(crate) client: Client,
    /// Checksums, streams and limits.
    pub(crate) options: Options,
    /// Of the checksums of pieces among them.
    pub(crate) room: Option<Lease>,
    /// Who asked for it, and for what.
    pub(crate) asked: Asked,
}

/// Where the bytes go.
pub(crate) enum Goal {
    /// Here.
    Here(Landing),
    /// To another server. An existing file is replaced if `overwrite`.
    Away { url: Url, overwrite: bool, modified: Option<SystemTime> },
}

/// The request of a copy, as it is recorded.
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) client: gridlane_front::client::Client,
    pub(crate) copy: &'static str,
    pub(crate) path: String,
    pub(crate) client_info: Option<String>,
    pub(crate) at: Instant,
}

/// How far a copy is.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// It waits for its turn.
    Waiting,
    /// It has begun, and does not know its file yet.
    Begun,
    /// Bytes come.
    Moving,
    /// It has ended.
    Ended(std::result::Result<(), Failure>),
}

impl Phase {
    /// Phases come one after the other.
    fn rank(&self) -> u8 {
        match self {
            Phase::Waiting => 0,
            Phase::Begun => 1,
            Phase::Moving => 2,
            Phase::Ended(_) => 3,
        }
    }
}

/// A copy that has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) error: Error,
    /// Nothing was moved, and the client may be answered by a status.
    pub(crate) is_early: bool,
    /// The file is larger than one that may be written here.
    pub(crate) is_too_large: bool,
}

/// Why a copy is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    ClientLeft,
    ServerStops,
    TooSlow,
}

/// Something of a copy that others look at while it runs.
#[derive(Default)]
struct Gauges {
    done_bytes: AtomicU64,
    /// The size of the file; 0 while it is not known.
    size_bytes: AtomicU64,
    /// The other ends of the connections over HTTP, one of each source.
    peers: Mutex<Vec<SocketAddr>>,
}

/// A copy that runs. When this is dropped the copy ends as at a stop of the server: what it has is kept for the next one.
pub(crate) struct Running {
    phase: watch::Receiver<Phase>,
    gauges: Arc<Gauges>,
    stop: watch::Sender<Stop>,
    landing: Option<Landing>,
    /// When it began, in seconds since 1970.
    pub(crate) started_s: u64,
}

impl Running {
    /// Begins a copy on a task of its own.
    pub(crate) fn begin(context: Context, job: Job, place: Lease, stopping: Stopping) -> Running {
        let (tell, phase) = watch::channel(Phase::Waiting);
        let (stop, stopped) = watch::channel(Stop::No);
        let gauges = Arc::new(Gauges::default());
        let landing = match &job.goal {
            Goal::Here(landing) => Some(landing.clone()),
            Goal::Away { .. } => None,
        };
        let watcher = Watcher {
            tell,
            gauges: Arc::clone(&gauges),
            is_sized_before: job.stored.is_some() && landing.is_none(),
            moved_bytes: 0,
        };
        let copy = run(context, job, watcher, stopped, stopping, place);
        // The turns that it takes are its client's.
        tokio::spawn(budget::on_behalf(budget::current(), copy));
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started_s = since.unwrap_or_default().as_secs();
        Running { phase, gauges, stop, landing, started_s }
    }

    /// Where it stands.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Waits until bytes come or it has ended.
    pub(crate) async fn settled(&mut self) {
        let is_settled = |phase: &Phase| matches!(phase, Phase::Moving | Phase::Ended(_));
        let _ = self.phase.wait_for(is_settled).await;
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) {
        let _ = self.phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
    }

    /// The same, also for several that wait; and how it has ended.
    pub(crate) fn end(&self) -> impl Future<Output = std::result::Result<(), Failure>> + Send + use<> {
        let mut phase = self.phase.clone();
        async move {
            match phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await.as_deref() {
                Ok(Phase::Ended(ended)) => ended.clone(),
                _ => {
                    let error =
                        Error::new(ErrorKind::Interrupted, "the copy was given up").fault(Fault::Local);
                    Err(Failure { error, is_early: true, is_too_large: false })
                }
            }
        }
    }

    /// Bytes of the file that are written.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.gauges.done_bytes.load(Relaxed)
    }

    /// The other ends of its connections.
    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        self.gauges.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer of the storage that does not take the file, if that is why it has failed.
    pub(crate) fn refused_here(&self) -> Option<Reply> {
        self.landing.as_ref()?.refusal()
    }

    /// Its client does not want it any longer: nothing of it stays.
    pub(crate) fn cancel(&self) {
        self.stop.send_replace(Stop::ClientLeft);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_if_modified(|stop| {
            let is_running = *stop == Stop::No;
            if is_running {
                *stop = Stop::ServerStops;
            }
            is_running
        });
    }
}

/// Tells others what the engine says.
struct Watcher {
    tell: watch::Sender<Phase>,
    gauges: Arc<Gauges>,
    /// The size is known before the other server has said anything.
    is_sized_before: bool,
    /// Bytes of metalinks and attempts before this one.
    moved_bytes: u64,
}

impl Watcher {
    fn reach(&self, next: Phase) {
        self.tell.send_if_modified(|phase| {
            let is_news = next.rank() > phase.rank();
            if is_news {
                *phase = next;
            }
            is_news
        });
    }
}

impl Observer for Watcher {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Plan { resumed_bytes, .. } => {
                self.gauges.done_bytes.store(*resumed_bytes, Relaxed);
                self.reach(Phase::Begun);
            }
            Event::Started { size_bytes } => {
                self.gauges.size_bytes.store(*size_bytes, Relaxed);
                if !self.is_sized_before {
                    self.reach(Phase::Moving);
                }
            }
            Event::Progress(snapshot) => {
                self.gauges.done_bytes.store(snapshot.done_bytes, Relaxed);
                let peers = snapshot.sources.iter().filter_map(|source| source.peer).collect();
                *self.gauges.peers.lock().unwrap_or_else(PoisonError::into_inner) = peers;
                if snapshot.done_bytes > 0 {
                    self.reach(Phase::Moving);
                }
            }
            _ => {}
        }
    }
}

async fn run(
    context: Context,
    job: Job,
    mut watcher: Watcher,
    stopped: watch::Receiver<Stop>,
    stopping: Stopping,
    place: Lease,
) {
    let Job { sources, stored, goal, client, options, mut room, asked } = job;
    let remotes: Vec<String> = match &goal {
        Goal::Away { url, .. } => vec![url.to_string()],
        Goal::Here(_) if stored.is_some() => Vec::new(),
        Goal::Here(_) => sources.iter().map(Url::to_string).collect(),
    };
    let copy = Copy { goal, client, options: Options { stored, ..options } };
    let metalinks = context.third_party.metalinks();
    let (outcome, why) = copy.run(sources, metalinks, &mut room, &mut watcher, stopped, stopping).await;
    let outcome = outcome.map_err(|(error, report)| (told(why, copy.appeared(error)), report));
    let size_bytes_max = copy.options.size_bytes_max.unwrap_or(u64::MAX);
    let (report, error) = match &outcome {
        Ok(report) => (Some(report), None),
        Err((error, report)) => (report.as_ref(), Some(error)),
    };
    copy.clean_up(why, error, report).await;
    let moved_bytes = watcher.moved_bytes + report.map_or(0, |report| report.fetched_bytes);
    count(&context, &asked, error, moved_bytes);
    let seconds = asked.at.elapsed().as_secs_f64();
    context.front.record_copy(CopyRecord {
        time: String::new(),
        id: &asked.id,
        client: asked.client.address,
        identity: &asked.client.identity,
        copy: asked.copy,
        path: &asked.path,
        remotes,
        size_bytes: report.and_then(|report| report.size_bytes),
        moved_bytes,
        seconds,
        rate_bytes_per_s: report.map_or(0.0, Report::rate_bytes_per_s).round(),
        checksum: report.and_then(|report| report.checksum.as_ref()).map(ToString::to_string),
        verified: report.is_some_and(|report| report.verified.is_some()),
        client_info: asked.client_info,
        error: error.map(cause),
    });
    if let Ok(report) = &outcome {
        watcher.gauges.done_bytes.store(report.done_bytes, Relaxed);
    }
    drop(place);
    let ended = outcome.map(|_| ()).map_err(|(error, report)| {
        let has_none = |report: &Report| report.fetched_bytes == 0 || report.done_bytes == 0;
        let is_early = error.kind() != ErrorKind::ChecksumMismatch && report.as_ref().is_none_or(has_none);
        let size_bytes = report.and_then(|report| report.size_bytes);
        Failure { error, is_early, is_too_large: size_bytes.is_some_and(|bytes| bytes > size_bytes_max) }
    });
    watcher.reach(Phase::Ended(ended));
}

/// The copy itself.
struct Copy {
    goal: Goal,
    client: Client,
    options: Options,
}

type Ended = std::result::Result<Report, (Error, Option<Report>)>;

impl Copy {
    async fn run(
        &self,
        mut sources: Vec<Url>,
        metalinks: &Metalinks,
        room: &mut Option<Lease>,
        watcher: &mut Watcher,
        stopped: watch::Receiver<Stop>,
        stopping: Stopping,
    ) -> (Ended, Stop) {
        let mut options = self.options.clone();
        let mut why = Stop::No;
        for count in 0..=THIRD_PARTY_METALINKS_MAX {
            let target = match self.target().await {
                Ok(target) => target,
                Err(error) => return (Err((error, None)), why),
            };
            options.stop_at_metalink =
                options.stored.is_none() && count < THIRD_PARTY_METALINKS_MAX && sources.len() == 1;
            let spec = CopySpec { sources: sources.clone(), target, options: options.clone() };
            let gauges = Arc::clone(&watcher.gauges);
            let stop = async { why = until_stopped(stopped.clone(), stopping.clone(), &gauges).await };
            let Outcome { report, result, metalink } =
                gridlane_engine::copy(spec, self.client.clone(), watcher, stop).await;
            let Some(found) = metalink else {
                return (result.map(|()| report.clone()).map_err(|error| (error, Some(report))), why);
            };
            watcher.moved_bytes += report.fetched_bytes;
            if let Goal::Here(landing) = &self.goal {
                // It is opened again, with what it has.
                landing.close(true).await;
            }
            let Some(source) = sources.first() else { break };
            *room = None;
            let described = metalinks.describe(&self.client, source, Some(&found));
            let described = timeout(THIRD_PARTY_PATIENCE, described).await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Timeout, "the metalink did not come in time").endpoint(&found.url))
            });
            match described {
                Ok(Some(replicas)) => {
                    *room = replicas.room;
                    let described = replicas.sources.into_iter().filter(|url| url.scheme() != Scheme::File);
                    if found.is_source {
                        sources = described.collect();
                    } else {
                        let others = described.filter(|url| !sources.contains(url)).collect::<Vec<_>>();
                        sources.extend(others);
                    }
                    sources.truncate(gridlane_core::limits::SOURCES_MAX);
                    options.known = replicas.known;
                }
                Ok(None) => options.known = Known::default(),
                // A metalink that a server names beside the file is not needed.
                Err(_) if !found.is_source => {}
                Err(error) => return (Err((error, Some(report))), why),
            }
        }
        (Err((Error::new(ErrorKind::Protocol, "the source is a metalink of metalinks"), None)), why)
    }

    async fn target(&self) -> gridlane_core::Result<TargetSpec> {
        match &self.goal {
            Goal::Here(landing) => landing.spec().await.map_err(Error::from),
            Goal::Away { url, overwrite, modified, .. } => {
                Ok(TargetSpec::Upload { url: url.clone(), overwrite: *overwrite, modified: *modified })
            }
        }
    }

    /// The error, in other words if it is that a file has the name meanwhile which must not be replaced.
    fn appeared(&self, error: Error) -> Error {
        match &self.goal {
            Goal::Here(landing) if landing.is_for_new_file() && is_unexpected(&error) => {
                let what =
                    "a file of this name exists since the copy began, and the request does not overwrite";
                Error::new(ErrorKind::Precondition, what).fault(Fault::Caller).retryable(false)
            }
            _ => error,
        }
    }

    /// Removes what a copy leaves that failed. Bytes that came stay for the next copy of the same file where that may go better:
    /// when the server stops, or a source failed in the middle.
    async fn clean_up(&self, why: Stop, error: Option<&Error>, report: Option<&Report>) {
        match &self.goal {
            Goal::Here(landing) => {
                let keeps = match (why, error) {
                    (_, None) | (Stop::ServerStops | Stop::TooSlow, _) => true,
                    (Stop::ClientLeft, _) => false,
                    // What a token was good for until it expired is good for the next one.
                    (Stop::No, Some(error)) => error.is_retryable() || error.kind() == ErrorKind::Denied,
                };
                landing.close(keeps).await;
            }
            Goal::Away { url, .. } => {
                if let (Some(error), Some(report)) = (error, report) {
                    // As well as it goes: the client is told of the failure in any case.
                    let removal = remove_remains(&self.client, url, error, report);
                    let _ = timeout(THIRD_PARTY_CLEAN_UP_MAX, removal).await;
                }
            }
        }
    }
}

/// Removes at another server what an upload has left there that failed. Only what is certainly of this upload: a whole file that
/// the server says has other bytes than were sent to it, and the part that a server keeps which writes in place. Other servers keep
/// nothing of an upload that breaks off, and have still what was there before, or what another client has stored meanwhile.
async fn remove_remains(
    client: &Client,
    url: &Url,
    error: &Error,
    report: &Report,
) -> gridlane_core::Result<()> {
    let Some(size_bytes) = report.size_bytes else { return Ok(()) };
    let is_of_the_server = error.endpoint_text() == Some(&url.to_string());
    let is_wrong = error.kind() == ErrorKind::ChecksumMismatch && is_of_the_server;
    let broke_off = error.status().is_none()
        && report.done_bytes >= THIRD_PARTY_SENT_BYTES_MIN
        && matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Interrupted);
    if !is_wrong && !broke_off {
        return Ok(());
    }
    let found = client.http.request("HEAD", url, &[]).await?;
    let head = &found.response.head;
    let writes_in_place = head.headers.get("server").is_some_and(|server| server.starts_with("XrootD"));
    let is_ours = match head.content_length()? {
        Some(found_bytes) if is_wrong => found_bytes == size_bytes,
        Some(found_bytes) => writes_in_place && found_bytes < size_bytes,
        None => false,
    };
    match is_ours {
        true => client.http.request("DELETE", url, &[]).await.map(|_| ()),
        false => Ok(()),
    }
}

/// Completes when the copy shall end, and says why.
async fn until_stopped(mut stopped: watch::Receiver<Stop>, mut stopping: Stopping, gauges: &Gauges) -> Stop {
    let asked = async {
        match stopped.wait_for(|stop| *stop != Stop::No).await {
            Ok(stop) => *stop,
            Err(_) => Stop::ServerStops,
        }
    };
    let server = async {
        stopping.begun().await;
        Stop::ServerStops
    };
    tokio::select! {
        biased;
        stop = asked => stop,
        stop = server => stop,
        stop = until_too_slow(gauges) => stop,
    }
}

/// Completes when hardly anything comes for long: a source that sends a byte now and then is not silent, and holds a place.
async fn until_too_slow(gauges: &Gauges) -> Stop {
    let mut ticks = tokio::time::interval(THIRD_PARTY_LEAST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut before: Option<u64> = None;
    loop {
        ticks.tick().await;
        let (now, size_bytes) = (gauges.done_bytes.load(Relaxed), gauges.size_bytes.load(Relaxed));
        let is_slow = before.is_some_and(|before| now > before && now - before < THIRD_PARTY_LEAST_BYTES);
        // What is whole is being compared.
        if is_slow && now != size_bytes {
            return Stop::TooSlow;
        }
        before = (now > 0).then_some(now);
    }
}

/// The error as the client is told it: why it was stopped, if it was.
fn told(why: Stop, error: Error) -> Error {
    match why {
        _ if error.kind() != ErrorKind::Interrupted => error,
        Stop::ServerStops => {
            let what = "this server is stopping; ask again later, and the copy goes on where it was";
            Error::new(ErrorKind::Interrupted, what).fault(Fault::Local).retryable(true)
        }
        Stop::TooSlow => {
            let s = THIRD_PARTY_LEAST_INTERVAL.as_secs();
            let what =
                format!("operation timeout: fewer than {THIRD_PARTY_LEAST_BYTES} bytes came within {s} s");
            Error::new(ErrorKind::Timeout, what).fault(Fault::Peer)
        }
        Stop::ClientLeft => Error::new(ErrorKind::Interrupted, "the client left, which cancels the copy"),
        Stop::No => error,
    }
}

/// True if the storage has not found what the copy was to replace, or something where there was to be nothing.
fn is_unexpected(error: &Error) -> bool {
    error.kind() == ErrorKind::Precondition && error.message().ends_with(&StoreError::Unexpected.to_string())
}

fn count(context: &Context, asked: &Asked, error: Option<&Error>, moved_bytes: u64) {
    let Totals {
        pulls_done,
        pulls_failed,
        pushes_done,
        pushes_failed,
        pulled_bytes,
        pushed_bytes,
        refused_addresses,
    } = &context.third_party.lasting.totals;
    let (done, failed, bytes) = match asked.copy {
        "push" => (pushes_done, pushes_failed, pushed_bytes),
        _ => (pulls_done, pulls_failed, pulled_bytes),
    };
    if error.is_none() { done } else { failed }.fetch_add(1, Relaxed);
    if error.is_some_and(|error| matches!(error.advice(), Some(Hint::AllowAddress))) {
        refused_addresses.fetch_add(1, Relaxed);
    }
    bytes.fetch_add(moved_bytes, Relaxed);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Looks at a copy of `size_bytes` of which so many bytes come each second from the tenth on, for ten minutes of a clock that
    /// does not wait. `None`: it is not too slow.
    async fn after_s(bytes_per_s: u64, size_bytes: u64) -> Option<u64> {
        let gauges = Gauges::default();
        gauges.size_bytes.store(size_bytes, Relaxed);
        let comes = async {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            for second in 0..600_u64 {
                seconds.tick().await;
                let done_bytes = (second.saturating_sub(10) * bytes_per_s).min(size_bytes);
                gauges.done_bytes.store(done_bytes, Relaxed);
            }
        };
        let began = tokio::time::Instant::now();
        tokio::select! {
            stop = until_too_slow(&gauges) => {
                assert_eq!(stop, Stop::TooSlow);
                Some(began.elapsed().as_secs())
            }
            () = comes => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_the_end_and_slowness_is_not() {
        let interval_s = THIRD_PARTY_LEAST_INTERVAL.as_secs();
        let trickle = after_s(10, 1 << 30).await.expect("it is too slow");
        assert!((interval_s..=3 * interval_s).contains(&trickle), "{trickle} s");
        assert_eq!(after_s(2 * THIRD_PARTY_LEAST_BYTES / interval_s, 1 << 30).await, None);
        // All of it is there, and is being compared.
        assert_eq!(after_s(1000, 1_000).await, None);
        // Nothing came yet: that is silence, or a turn that it waits for.
        assert_eq!(after_s(0, 1 << 30).await, None);
    }

    #[test]
    fn why_it_was_stopped_is_told() {
        let stopped = || Error::new(ErrorKind::Interrupted, "stopped");
        let slow = told(Stop::TooSlow, stopped());
        assert_eq!(slow.kind(), ErrorKind::Timeout);
        assert!(slow.message().contains("timeout"), "{slow}");
        let stops = told(Stop::ServerStops, stopped());
        assert!(stops.message().contains("stopping") && stops.is_retryable(), "{stops}");
        // What happened before is the cause.
        let denied = told(Stop::ServerStops, Error::new(ErrorKind::Denied, "denied"));
        assert_eq!(denied.kind(), ErrorKind::Denied);
    }
}
