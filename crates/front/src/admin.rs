//! The admin address: `/healthz`, `/readyz` and `/metrics`, for every client that can connect.
//!
//! It is no part of the service: few connections at a time, one request each, everything within a few seconds.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use gridlane_auth::x509::Trust;
use gridlane_core::limits;
use gridlane_dav::request::RequestHead;
use gridlane_dav::{Method, Status, Version};
use gridlane_net::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::front::Front;
use crate::generation::{Current, Generation};
use crate::host_name::is_our_name;
use crate::metrics::{CONTENT_TYPE, Kind, Page, Process};
use crate::phase::Phase;
use crate::reply::{Payload, Reply};
use crate::service::Service;
use gridlane_share::budget::{self, Budget, Holder};

/// Bytes read at a time.
const READ_BYTES: usize = 4096;

/// Answers until it is aborted.
pub(crate) async fn serve<S: Service>(
    listener: TcpListener,
    current: Current<S>,
    phase: watch::Receiver<Phase>,
) {
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // For want of descriptors, or a client that left: trying again at once would only spin.
            Err(_) => {
                sleep(limits::ADMIN_ACCEPT_PAUSE).await;
                continue;
            }
        };
        let generation = Arc::clone(&current.borrow());
        let phase = phase.clone();
        let holder = Holder::of(peer.ip());
        let Ok(waiting) = generation.front.budgets.admin_waiting.try_take(holder, 1) else { continue };
        tokio::spawn(budget::on_behalf(holder, async move {
            // A client that does not finish in time is cut; and one client alone does not hold up another.
            let turn = generation.front.budgets.admin.take(holder, 1);
            let Ok(turn) = timeout(limits::ADMIN_REQUEST_MAX, turn).await else { return };
            drop(waiting);
            let phase = *phase.borrow();
            let _ = timeout(limits::ADMIN_REQUEST_MAX, exchange(socket, &generation, phase)).await;
            drop(turn);
        }));
    }
}

async fn exchange<S: Service>(
    socket: TcpStream,
    generation: &Generation<S>,
    phase: Phase,
) -> std::io::Result<()> {
    let is_local = socket.local_addr().map_or(true, |local| local.ip().to_canonical().is_loopback());
    let mut stream = Stream::plain(socket)?;
    let mut bytes = Vec::new();
    let (reply, version, is_head) = loop {
        match RequestHead::parse(&bytes) {
            Ok(Some((head, _))) => {
                let reply = decide(&head, generation, phase, is_local).await;
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
    // Until the client has seen the answer: an unread body would make the kernel reset the connection.
    let mut rest = [0; READ_BYTES];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn decide<S: Service>(
    head: &RequestHead,
    generation: &Generation<S>,
    phase: Phase,
    is_local: bool,
) -> Reply {
    if is_local && !head.host().is_none_or(|host| is_our_name(host, &generation.front.host_names)) {
        let what = "the Host is neither an address nor a name of this machine";
        return Reply::failure(Status::MISDIRECTED_REQUEST, what);
    }
    let path = head.path().map(ToString::to_string).unwrap_or_default();
    if !matches!(path.as_str(), "/healthz" | "/readyz" | "/metrics") {
        return Reply::failure(
            Status::NOT_FOUND,
            "nothing is at this path: the admin address has /healthz, /readyz and /metrics",
        );
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
            Phase::Serving => match generation.service.fault().await {
                None => text(Status::OK, "ready"),
                Some(what) => text(Status::SERVICE_UNAVAILABLE, &what),
            },
            Phase::Draining | Phase::Stopping => text(Status::SERVICE_UNAVAILABLE, "stopping"),
        },
        _ => metrics(generation, phase).await,
    }
}

/// The page of metrics: here for every client that can connect, and at the server's own address for those that may
/// administer it.
pub(crate) async fn metrics<S: Service>(generation: &Generation<S>, phase: Phase) -> Reply {
    Reply::new(Status::OK)
        .field("Content-Type", CONTENT_TYPE)
        .field("Cache-Control", "no-store")
        .payload(Payload::Bytes(page(generation, phase).await.into_bytes()))
}

async fn page<S: Service>(generation: &Generation<S>, phase: Phase) -> String {
    let front = &*generation.front;
    let mut page = Page::default();
    page.family("build", Kind::Info, "The name and version of the program.");
    page.sample("_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge("start_time_seconds", "When the server started, in seconds since 1970.", front.started_s);
    page.gauge(
        "ready",
        "1 while the server takes new work, 0 once it was told to stop.",
        u8::from(phase == Phase::Serving),
    );
    front.data.metrics.render(&mut page);
    budgets(&mut page, front, generation.service.budgets());
    page.gauge("root_sessions_open", "Sessions over root:// now.", generation.sessions.count());
    page.gauge("root_files_open", "Files that are open over root:// now.", front.budgets.open_files.used());
    page.gauge(
        "throttle_clients",
        "Clients, users and virtual organisations whose limits are tracked.",
        front.throttle.parties(),
    );
    page.family(
        "issuer_key_fetches",
        Kind::Counter,
        "Fetches of the keys of tokens' issuers, and those of them that failed.",
    );
    for (outcome, counter) in [("begun", &front.issuer_keys.fetches), ("failed", &front.issuer_keys.failures)]
    {
        page.sample("_total", &[("outcome", outcome)], counter.get());
    }
    page.family(
        "issuer_keys_fetched_seconds",
        Kind::Gauge,
        "When the keys of each issuer were fetched that are used now, in seconds since 1970.",
    );
    for (issuer, fetched_s) in front.issuer_keys.fetched_s() {
        page.sample("", &[("issuer", &issuer)], fetched_s);
    }
    page.family(
        "token_lookups",
        Kind::Counter,
        "JSON Web Tokens that were found good before, and those whose signature was looked at.",
    );
    for (outcome, counter) in
        [("known", &front.issuer_keys.known), ("looked_at", &front.issuer_keys.looked_at)]
    {
        page.sample("_total", &[("outcome", outcome)], counter.get());
    }
    page.family(
        "log_records_lost",
        Kind::Counter,
        "Records that were not written because a log was too slow.",
    );
    for (log, lost) in [("access", front.access_log.lost()), ("audit", front.audit_log.lost())] {
        page.sample("_total", &[("log", log)], lost);
    }
    page.family(
        "certificate_expiry_seconds",
        Kind::Gauge,
        "When the certificate expires, in seconds since 1970.",
    );
    if let Some(expires) = front.certificate_expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
        page.sample("", &[], expires.as_secs());
    }
    let trust = front.auth.trust.as_deref();
    for (name, help, moment_s) in [
        (
            "trust_anchor_expiry_seconds",
            "When the first of the trusted certificate authorities expires, in seconds since 1970.",
            trust.and_then(Trust::earliest_expiry_s),
        ),
        (
            "revocation_list_update_seconds",
            "When the first of their revocation lists is out of date, in seconds since 1970.",
            trust.and_then(Trust::earliest_next_update_s),
        ),
    ] {
        page.family(name, Kind::Gauge, help);
        if let Some(moment_s) = moment_s {
            page.sample("", &[], moment_s);
        }
    }
    generation.service.metrics(&mut page).await;
    page.gauge(
        "tasks_alive",
        "Tasks of the runtime: one for each connection, and a few more.",
        Handle::current().metrics().num_alive_tasks(),
    );
    let process = Process::now();
    page.family("resident_memory_bytes", Kind::Gauge, "Memory of the process that is in RAM.");
    sample_if_known(&mut page, process.resident_bytes);
    page.family("descriptors_open", Kind::Gauge, "Files and sockets that the process has open.");
    sample_if_known(&mut page, process.descriptors);
    page.family("threads", Kind::Gauge, "Threads of the process.");
    sample_if_known(&mut page, process.threads);
    page.finish()
}

/// The budgets of all clients: their size, one client's part, what is taken, and how often it was not enough.
fn budgets(page: &mut Page, front: &Front, of_service: Vec<Arc<Budget>>) {
    // The budgets of each device, summed over devices.
    let mut all: Vec<(&'static str, Vec<Arc<Budget>>)> = Vec::new();
    for budget in front.budgets.all().map(Arc::clone).into_iter().chain(of_service) {
        match all.iter_mut().find(|(name, _)| *name == budget.name()) {
            Some((_, same)) => same.push(budget),
            None => all.push((budget.name(), vec![budget])),
        }
    }
    let sum =
        |same: &[Arc<Budget>], of: fn(&Budget) -> usize| same.iter().map(|budget| of(budget)).sum::<usize>();
    page.family("budget_limit", Kind::Gauge, "The size of each budget that clients share.");
    for (name, same) in &all {
        page.sample("", &[("budget", name)], sum(same, |budget| budget.share().all));
    }
    page.family("budget_share", Kind::Gauge, "One client's part of it at most, of devices at each.");
    for (name, same) in &all {
        page.sample("", &[("budget", name)], same[0].share().one);
    }
    page.family("budget_used", Kind::Gauge, "The part of it that is taken now.");
    for (name, same) in &all {
        page.sample("", &[("budget", name)], sum(same, |budget| budget.used()));
    }
    page.family(
        "budget_short",
        Kind::Counter,
        "Requests for it that found nothing left at once: of one client's share, or of all.",
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
