//! The admin address: `/healthz`, `/readyz` and `/metrics`, for whoever can connect.
//!
//! It is no part of the service: few connections at a time, one request each, everything within a few seconds.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use gridlane_auth::x509::Trust;
use gridlane_core::limits;
use gridlane_dav::request::RequestHead;
use gridlane_dav::{Method, Status, Version};
use gridlane_net::Stream;
use gridlane_store::{ObjectPath, Space, Storage};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::host_name::is_our_name;
use crate::metrics::{CONTENT_TYPE, Kind, Page, Process};
use crate::phase::Phase;
use crate::reply::{Payload, Reply};
use crate::shared::{Current, Shared};
use gridlane_share::budget::{self, Budget, Holder};

/// Bytes read at a time.
const READ_BYTES: usize = 4096;

/// Answers until it is aborted.
pub(crate) async fn serve(listener: TcpListener, current: Current, phase: watch::Receiver<Phase>) {
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // For want of descriptors, or a client that left: trying again at once would only spin.
            Err(_) => {
                sleep(limits::ADMIN_ACCEPT_PAUSE).await;
                continue;
            }
        };
        let shared = Arc::clone(&current.borrow());
        let phase = phase.clone();
        let holder = Holder::of(peer.ip());
        let Ok(waiting) = shared.budgets.admin_waiting.try_take(holder, 1) else { continue };
        tokio::spawn(budget::on_behalf(holder, async move {
            // Whoever does not finish in time is cut; and one client alone does not hold up another.
            let turn = shared.budgets.admin.take(holder, 1);
            let Ok(turn) = timeout(limits::ADMIN_REQUEST_MAX, turn).await else { return };
            drop(waiting);
            let phase = *phase.borrow();
            let _ = timeout(limits::ADMIN_REQUEST_MAX, exchange(socket, &shared, phase)).await;
            drop(turn);
        }));
    }
}

async fn exchange(socket: TcpStream, shared: &Shared, phase: Phase) -> std::io::Result<()> {
    let is_local = socket.local_addr().map_or(true, |local| local.ip().to_canonical().is_loopback());
    let mut stream = Stream::plain(socket)?;
    let mut bytes = Vec::new();
    let (reply, version, is_head) = loop {
        match RequestHead::parse(&bytes) {
            Ok(Some((head, _))) => {
                let reply = decide(&head, shared, phase, is_local).await;
                break (reply, head.version, head.method == Method::Head);
            }
            Ok(None) => {}
            Err(rejection) => break (Reply::rejection(rejection), Version::Http11, false),
        }
        let end = bytes.len();
        bytes.resize(end + READ_BYTES, 0);
        match stream.read(&mut bytes[end..]).await? {
            0 => return Ok(()),
            count => bytes.truncate(end + count),
        }
    };
    let reply = reply.closing();
    let mut answer = reply.head(version);
    if let (Payload::Bytes(body), false) = (&reply.payload, is_head) {
        answer.extend_from_slice(body);
    }
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // Until the client has seen the answer: a body that nobody read would make the kernel reset the connection.
    let mut rest = [0; READ_BYTES];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn decide(head: &RequestHead, shared: &Shared, phase: Phase, is_local: bool) -> Reply {
    if is_local && !head.host().is_none_or(|host| is_our_name(host, &shared.host_names)) {
        let what = "the Host is neither an address nor a name of this machine";
        return Reply::failure(Status::MISDIRECTED_REQUEST, what);
    }
    let path = head.path().map(ToString::to_string).unwrap_or_default();
    if !matches!(path.as_str(), "/healthz" | "/readyz" | "/metrics") {
        return Reply::failure(Status::NOT_FOUND, "there are /healthz, /readyz and /metrics");
    }
    if !matches!(head.method, Method::Get | Method::Head) {
        return Reply::failure(Status::METHOD_NOT_ALLOWED, "the server does not offer this method")
            .field("Allow", "GET, HEAD");
    }
    let text = |status, what: &str| {
        Reply::new(status)
            .field("Content-Type", "text/plain; charset=utf-8")
            .field("Cache-Control", "no-store")
            .payload(Payload::Bytes(format!("{what}\n").into_bytes()))
    };
    match path.as_str() {
        "/healthz" => text(Status::OK, "alive"),
        "/readyz" => match phase {
            Phase::Serving => match displaced(shared).await {
                None => text(Status::OK, "ready"),
                Some(export) => {
                    let what = format!(
                        "the directory that is served at {export} is not the one that is there now: what is there is served \
                         when the server has looked again, or at SIGHUP"
                    );
                    text(Status::SERVICE_UNAVAILABLE, &what)
                }
            },
            Phase::Draining | Phase::Stopping => text(Status::SERVICE_UNAVAILABLE, "stopping"),
        },
        _ => metrics(shared, phase).await,
    }
}

/// The page of metrics: here for whoever can connect, and at the server's own address for who may administer it.
pub(crate) async fn metrics(shared: &Shared, phase: Phase) -> Reply {
    Reply::new(Status::OK)
        .field("Content-Type", CONTENT_TYPE)
        .field("Cache-Control", "no-store")
        .payload(Payload::Bytes(page(shared, phase).await.into_bytes()))
}

/// How much room there is in each export, as far as its storage tells in time: a dead one must not keep the others
/// from being told of.
async fn spaces(shared: &Shared) -> Vec<(String, Space)> {
    let looking = &shared.looking;
    let mut spaces = Vec::new();
    for export in shared.exports.iter() {
        let path = export.path.to_string();
        if !lock(looking).spaces.insert(path.clone()) {
            continue;
        }
        let (storage, looked, name) = (Arc::clone(&export.storage), Arc::clone(looking), path.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let space = storage.space(&ObjectPath::root()).ok();
            lock(&looked).spaces.remove(&name);
            space
        });
        if let Ok(Ok(Some(space))) = timeout(limits::ADMIN_SPACE_MAX, asked).await {
            spaces.push((path, space));
        }
    }
    spaces
}

/// The first export whose storage is not what is found in its place, as far as that is told in time: of a storage that
/// does not answer it is what was told last, if anything.
async fn displaced(shared: &Shared) -> Option<String> {
    for export in shared.exports.iter() {
        let path = export.path.to_string();
        let mut look = Look::of(&shared.looking, &path, &export.storage);
        let told = match timeout_at(look.until, look.told.wait_for(Option::is_some)).await {
            Ok(Ok(told)) => *told,
            _ => look.before,
        };
        if told == Some(false) {
            return Some(path);
        }
    }
    None
}

/// A look at the place of a storage, for all requests that come meanwhile: the storage is there, or something else is.
#[derive(Clone)]
struct Look {
    told: watch::Receiver<Option<bool>>,
    /// The end of all waits for it.
    until: Instant,
    /// The answer of the one before.
    before: Option<bool>,
}

impl Look {
    /// The one that is under way, or a new one.
    fn of(looking: &Looking, path: &str, storage: &Arc<dyn Storage>) -> Look {
        let mut looks = lock(looking);
        let last = looks.places.get(path);
        if let Some(running) = last.filter(|last| last.told.has_changed().is_ok()) {
            return running.clone();
        }
        let before = last.and_then(|last| last.told.borrow().or(last.before));
        let (tell, told) = watch::channel(None);
        let look = Look { told, until: Instant::now() + limits::ADMIN_SPACE_MAX, before };
        looks.places.insert(path.to_owned(), look.clone());
        drop(looks);
        let storage = Arc::clone(storage);
        // Over when `tell` is dropped.
        tokio::task::spawn_blocking(move || tell.send_replace(Some(storage.is_in_place())));
        look
    }
}

/// The exports whose storage was asked and has not answered yet: each blocks a thread, and one is enough.
pub(crate) type Looking = Arc<Mutex<Looks>>;

/// The looks at storages.
#[derive(Default)]
pub(crate) struct Looks {
    /// The exports that are asked for their space.
    spaces: HashSet<String>,
    /// By export, the last look at its place.
    places: HashMap<String, Look>,
}

fn lock(looking: &Looking) -> MutexGuard<'_, Looks> {
    looking.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn page(shared: &Shared, phase: Phase) -> String {
    let mut page = Page::default();
    page.family("build", Kind::Info, "", "Which program this is.");
    page.sample("_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family(
        "start_time_seconds",
        Kind::Gauge,
        "seconds",
        "When the server started, in seconds since 1970.",
    );
    page.sample("", &[], shared.started_s);
    page.family("ready", Kind::Gauge, "", "1 while the server takes new work, 0 once it was told to stop.");
    page.sample("", &[], u8::from(phase == Phase::Serving));
    shared.data.metrics.render(&mut page);
    budgets(&mut page, shared);
    page.family("root_sessions_open", Kind::Gauge, "", "Sessions over root:// now.");
    page.sample("", &[], shared.root_sessions.count());
    page.family("root_files_open", Kind::Gauge, "", "Files that are open over root:// now.");
    page.sample("", &[], shared.open_files.count());
    page.family(
        "throttle_clients",
        Kind::Gauge,
        "",
        "Clients, users and virtual organisations that are kept in mind because of limits of each.",
    );
    page.sample("", &[], shared.throttle.parties());
    page.family(
        "disk_operations_running",
        Kind::Gauge,
        "",
        "Operations that may wait for a disk, running now.",
    );
    let turns = shared.exports.turns();
    page.sample("", &[], turns.iter().map(|turns| turns.running()).sum::<usize>());
    page.family("disk_operations_waiting", Kind::Gauge, "", "Operations that wait for the end of others.");
    page.sample("", &[], turns.iter().map(|turns| turns.waiting()).sum::<u64>());
    let digests = shared.digests.progress();
    page.family("digests_running", Kind::Gauge, "", "Checksums that are being computed on demand.");
    page.sample("", &[], digests.running);
    page.family("digests_size_bytes", Kind::Gauge, "bytes", "Bytes of the files that these are of.");
    page.sample("", &[], digests.size_bytes);
    page.family("digests_done_bytes", Kind::Gauge, "bytes", "Bytes of those files that were read so far.");
    page.sample("", &[], digests.done_bytes);
    page.family("digests_read_bytes", Kind::Counter, "bytes", "Bytes read for checksums on demand.");
    page.sample("_total", &[], digests.hashed_bytes);
    page.family(
        "issuer_key_fetches",
        Kind::Counter,
        "",
        "Fetches of the keys of tokens' issuers, and those of them that failed.",
    );
    for (outcome, counter) in
        [("begun", &shared.issuer_keys.fetches), ("failed", &shared.issuer_keys.failures)]
    {
        page.sample("_total", &[("outcome", outcome)], counter.get());
    }
    page.family(
        "issuer_keys_fetched_seconds",
        Kind::Gauge,
        "seconds",
        "When the keys of each issuer were fetched that are used now, in seconds since 1970.",
    );
    for (issuer, fetched_s) in shared.issuer_keys.fetched_s() {
        page.sample("", &[("issuer", &issuer)], fetched_s);
    }
    page.family(
        "token_lookups",
        Kind::Counter,
        "",
        "JSON Web Tokens that were found good before, and those whose signature was looked at.",
    );
    for (outcome, counter) in
        [("known", &shared.issuer_keys.known), ("looked_at", &shared.issuer_keys.looked_at)]
    {
        page.sample("_total", &[("outcome", outcome)], counter.get());
    }
    page.family(
        "log_records_lost",
        Kind::Counter,
        "",
        "Records that were not written because a log was too slow.",
    );
    for (log, lost) in [("access", shared.access_log.lost()), ("audit", shared.audit_log.lost())] {
        page.sample("_total", &[("log", log)], lost);
    }
    page.family(
        "certificate_expiry_seconds",
        Kind::Gauge,
        "seconds",
        "When the certificate expires, in seconds since 1970.",
    );
    if let Some(expires) = shared.certificate_expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
        page.sample("", &[], expires.as_secs());
    }
    let trust = shared.auth.trust.as_deref();
    for (name, help, moment_s) in [
        (
            "trust_anchor_expiry_seconds",
            "When the first of the authorities expires whose certificates count, in seconds since 1970.",
            trust.and_then(Trust::earliest_expiry_s),
        ),
        (
            "revocation_list_update_seconds",
            "When the first of their revocation lists is out of date, in seconds since 1970.",
            trust.and_then(Trust::earliest_next_update_s),
        ),
    ] {
        page.family(name, Kind::Gauge, "seconds", help);
        if let Some(moment_s) = moment_s {
            page.sample("", &[], moment_s);
        }
    }
    page.family(
        "export_quota_bytes",
        Kind::Gauge,
        "bytes",
        "Of each export's quota, or its file system: used and available.",
    );
    for (export, space) in spaces(shared).await {
        page.sample("", &[("export", &export), ("kind", "used")], space.used_bytes);
        page.sample("", &[("export", &export), ("kind", "available")], space.available_bytes);
    }
    page.family(
        "tasks_alive",
        Kind::Gauge,
        "",
        "Tasks of the runtime: one for each connection, and a few more.",
    );
    page.sample("", &[], Handle::current().metrics().num_alive_tasks());
    let process = Process::now();
    page.family("resident_memory_bytes", Kind::Gauge, "bytes", "Memory of the process that is in RAM.");
    sample_if_known(&mut page, process.resident_bytes);
    page.family("descriptors_open", Kind::Gauge, "", "Files and sockets that the process has open.");
    sample_if_known(&mut page, process.descriptors);
    page.family("threads", Kind::Gauge, "", "Threads of the process.");
    sample_if_known(&mut page, process.threads);
    page.finish()
}

/// What clients share: how much there is, how much of it one client has at most, how much is taken, and how often it was
/// not enough.
fn budgets(page: &mut Page, shared: &Shared) {
    // Of those that each device has: all together.
    let mut all: Vec<(&'static str, Vec<Arc<Budget>>)> = Vec::new();
    let of_devices = shared.exports.turns().into_iter().flat_map(|turns| turns.budgets());
    for budget in shared.budgets.all().map(Arc::clone).into_iter().chain(of_devices) {
        match all.iter_mut().find(|(name, _)| *name == budget.name()) {
            Some((_, same)) => same.push(budget),
            None => all.push((budget.name(), vec![budget])),
        }
    }
    let sum =
        |same: &[Arc<Budget>], of: fn(&Budget) -> usize| same.iter().map(|budget| of(budget)).sum::<usize>();
    page.family("budget_limit", Kind::Gauge, "", "How much there is of what clients share.");
    for (name, same) in &all {
        page.sample("", &[("budget", name)], sum(same, |budget| budget.share().all));
    }
    page.family(
        "budget_share",
        Kind::Gauge,
        "",
        "How much of it one client has at most, of devices at each.",
    );
    for (name, same) in &all {
        page.sample("", &[("budget", name)], same[0].share().one);
    }
    page.family("budget_used", Kind::Gauge, "", "How much of it is taken now.");
    for (name, same) in &all {
        page.sample("", &[("budget", name)], sum(same, |budget| budget.used()));
    }
    page.family(
        "budget_short",
        Kind::Counter,
        "",
        "How often nothing was left at once: of one client's share, or of all.",
    );
    for (name, same) in &all {
        let refused = same.iter().map(|budget| budget.refused());
        let (one, all) = refused.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        page.sample("_total", &[("budget", name), ("of", "client")], one);
        page.sample("_total", &[("budget", name), ("of", "all")], all);
    }
}

fn sample_if_known(page: &mut Page, value: Option<u64>) {
    if let Some(value) = value {
        page.sample("", &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_store::MemoryStorage;

    /// A request that comes while a look is under way is told the same, and the answer of the one before if there is none.
    #[tokio::test]
    async fn a_look_is_for_all_who_ask_meanwhile_and_the_last_answer_is_remembered() {
        let looking = Looking::default();
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (tell, told) = watch::channel(None);
        let running = Look { told, until: Instant::now(), before: Some(false) };
        lock(&looking).places.insert("/".to_owned(), running);
        let mut joined = Look::of(&looking, "/", &storage);
        assert_eq!((*joined.told.borrow(), joined.before), (None, Some(false)));
        tell.send_replace(Some(true));
        assert_eq!(*joined.told.wait_for(Option::is_some).await.unwrap(), Some(true));
        drop(tell);
        // Another one begins, and knows the answer of this one.
        let mut next = Look::of(&looking, "/", &storage);
        assert_eq!(next.before, Some(true));
        assert_eq!(*next.told.wait_for(Option::is_some).await.unwrap(), Some(storage.is_in_place()));
        // One that has ended without an answer forgets nothing.
        let (tell, told) = watch::channel(None);
        lock(&looking).places.insert("/".to_owned(), Look { told, ..next });
        drop(tell);
        assert_eq!(Look::of(&looking, "/", &storage).before, Some(true));
    }
}
