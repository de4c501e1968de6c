//! Listening, admission, and the graceful stop.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, Result, limits};
use gridlane_net::{Acceptor, Opening};
use gridlane_share::budget::{self, Holder, Lease, Short};
use gridlane_share::turns;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, sleep_until, timeout};

use crate::admin;
use crate::connection::{Connection, Excess};
use crate::front::Front;
use crate::generation::{Current, Generation};
use crate::metrics::{CountedIn, Metrics};
use crate::phase::Phase;
use crate::root;
use crate::service::Service;
use crate::settings::Settings;
use crate::throttle::By;

/// For connections that are cut to end: longer only when a disk operation hangs.
const CUT_MAX: Duration = Duration::from_secs(5);

/// After `accept` failed for want of descriptors or memory: time for something to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Between two records of such failures.
const ACCEPT_NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// A server that listens already and does not serve yet.
pub struct Server<S: Service> {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    admin: Option<(TcpListener, SocketAddr)>,
    control: Control<S>,
}

/// Changes a server while it runs.
pub struct Control<S: Service> {
    current: watch::Sender<Arc<Generation<S>>>,
    listen: Arc<[SocketAddr]>,
    admin: Option<SocketAddr>,
}

impl<S: Service> Clone for Control<S> {
    fn clone(&self) -> Control<S> {
        let (current, listen) = (self.current.clone(), Arc::clone(&self.listen));
        Control { current, listen, admin: self.admin }
    }
}

impl<S: Service> Control<S> {
    /// Records what happened to the server in its access log.
    pub fn note(&self, what: &str) {
        self.current.borrow().front.access_log.note(what);
    }

    /// Serves by other settings from the next request on; what runs ends with those it began with. Fails without having
    /// changed anything. Returns the settings that did not change because they cannot: the addresses.
    pub fn reload(&self, settings: Settings<S::Settings>) -> Result<Vec<&'static str>> {
        let mut kept = Vec::new();
        if *settings.listen != *self.listen {
            kept.push("listen");
        }
        if settings.admin != self.admin {
            kept.push("admin");
        }
        let before = Arc::clone(&self.current.borrow());
        let next = before.next(settings)?;
        next.front.begin();
        next.front.data.metrics.reloads.add(1);
        self.current.send_replace(Arc::new(next));
        Ok(kept)
    }

    /// Has the keys of tokens' issuers fetched again, however recent they are: an operator knows that one was revoked.
    /// Until they are there, those that are known count.
    pub fn refetch_keys(&self) {
        self.current.borrow().front.issuer_keys.outdate();
    }
}

/// Figures of a server's whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered, refused ones included.
    pub requests: u64,
    /// Bytes of bodies received.
    pub bytes_in: u64,
    /// Bytes of bodies sent.
    pub bytes_out: u64,
    /// Connections that were cut because they did not end in time when the server stopped.
    pub cut: u64,
    /// Connections that ended by a defect in the server: each has printed its panic.
    pub panicked: u64,
    /// The access log's reader took nothing for too long at the end: records may be missing, and what is
    /// written to the same place may wait for ever.
    pub log_is_stalled: bool,
}

impl<S: Service> Server<S> {
    /// Listens at every address, and lets the service begin.
    pub async fn bind(settings: Settings<S::Settings>) -> Result<Server<S>> {
        let (listen, admin) = (settings.listen.clone(), settings.admin);
        let bind = |address: SocketAddr| {
            let fail = |cause| Error::local_io(format!("cannot listen at {address}"), &cause);
            let listener = gridlane_net::listen(address).map_err(fail)?;
            let bound = listener.local_addr().map_err(fail)?;
            Ok((listener, bound))
        };
        let (listeners, addresses) =
            listen.iter().copied().map(bind).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let admin_listener = admin.map(bind).transpose()?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = Generation::<S>::first(settings, started.as_secs())?;
        first.front.begin();
        first.service.begin().await?;
        let control = Control { current: watch::Sender::new(Arc::new(first)), listen: listen.into(), admin };
        Ok(Server { listeners, addresses, admin: admin_listener, control })
    }

    /// The addresses that it listens on, with the ports that were chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The admin address, with the port that was chosen.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// The handle that changes it while it runs.
    pub fn control(&self) -> Control<S> {
        self.control.clone()
    }

    /// Serves until `shutdown` resolves. Then it says so on the admin address, goes on for as long as the drain delay
    /// says, stops accepting, closes idle connections at once, lets running requests finish for a while, and cuts
    /// the rest.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        let current = self.control.current.subscribe();
        let front = || Arc::clone(&current.borrow().front);
        let phase = watch::Sender::new(Phase::Serving);
        let mut tasks = ConnectionTasks { connections: JoinSet::new(), panicked: 0 };
        let tidying = tokio::spawn(tidy(current.clone()));
        let issuer_keys = Arc::clone(&front().issuer_keys);
        let refreshing = tokio::spawn(async move { issuer_keys.refresh().await });
        let shrinking = tokio::spawn(shrink(Arc::clone(&front().data.metrics)));
        let admin_task = self
            .admin
            .map(|(listener, _)| tokio::spawn(admin::serve(listener, current.clone(), phase.subscribe())));
        let mut noted: Option<Instant> = None;
        let mut shutdown = std::pin::pin!(shutdown);
        let mut ends: Option<Deadline> = None;
        loop {
            tokio::select! {
                () = &mut shutdown, if ends.is_none() => {
                    phase.send_replace(Phase::Draining);
                    ends = Some(Deadline::now() + front().data.deadlines.drain_delay);
                }
                () = sleep_until(ends.unwrap_or_else(Deadline::now)), if ends.is_some() => break,
                Some(ended) = tasks.connections.join_next(), if !tasks.connections.is_empty() => {
                    tasks.panicked += u64::from(ended.is_err_and(|error| error.is_panic()));
                }
                accepted = accept_any(&self.listeners) => match accepted {
                    Ok((socket, peer)) => {
                        admit(socket, peer, &current, &mut tasks.connections, &phase);
                    }
                    // A client that left while it waited is no trouble; a lack of descriptors passes.
                    Err(cause) => {
                        let is_news = noted.is_none_or(|noted| noted.elapsed() >= ACCEPT_NOTE_INTERVAL);
                        if Acceptor::lacks_descriptors(&cause) && is_news {
                            noted = Some(Instant::now());
                            let what = format!("connections wait, since none can be accepted: {cause}");
                            front().access_log.note(&what);
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listeners);
        phase.send_replace(Phase::Stopping);
        let cut = tasks.end(front().data.deadlines.drain).await;
        tidying.abort();
        shrinking.abort();
        refreshing.abort();
        // The last to end: until here the drain may be watched.
        if let Some(admin_task) = admin_task {
            admin_task.abort();
        }
        let _ = timeout(CUT_MAX, tidying).await;
        let front = front();
        let finish = || {
            let audit_is_written = front.audit_log.finish(limits::ACCESS_LOG_STOP_MAX);
            front.access_log.finish(limits::ACCESS_LOG_STOP_MAX) && audit_is_written
        };
        let metrics = &front.data.metrics;
        Summary {
            connections: metrics.accepted.get(),
            requests: metrics.requests.get(),
            bytes_in: metrics.bytes_in.get(),
            bytes_out: metrics.bytes_out.get(),
            cut,
            panicked: tasks.panicked,
            log_is_stalled: !turns::in_place(finish),
        }
    }
}

/// The tasks of all connections.
struct ConnectionTasks {
    connections: JoinSet<()>,
    panicked: u64,
}

impl ConnectionTasks {
    /// Waits for all to end, cuts those that do not in time; returns the number of those.
    async fn end(&mut self, deadline: Duration) -> u64 {
        let finish = async {
            while let Some(ended) = self.connections.join_next().await {
                self.panicked += u64::from(ended.is_err_and(|error| error.is_panic()));
            }
        };
        // Time is up: the rest is cut below.
        let _ = timeout(deadline, finish).await;
        let cut = self.connections.len() as u64;
        // Waits for the tasks to end, so that their partial uploads are gone; but not for a dead disk.
        let _ = timeout(CUT_MAX, self.connections.shutdown()).await;
        cut
    }
}

/// Gives a connection a task of its own, if there is room; else another one that answers so.
fn admit<S: Service>(
    socket: TcpStream,
    peer: SocketAddr,
    current: &Current<S>,
    connections: &mut JoinSet<()>,
    phase: &watch::Sender<Phase>,
) {
    let front = Arc::clone(&current.borrow().front);
    let metrics = &front.data.metrics;
    metrics.accepted.add(1);
    let open = metrics.one(|metrics| &metrics.open);
    // A proxy's connections are those of the clients that it names, once that is known.
    let holder = match front.acceptor.is_proxy(peer.ip()) {
        true => Holder::SERVER,
        false => front.holder(peer.ip()),
    };
    let admission = Admission::of(&front, holder);
    if matches!(admission, Admission::TurnedAway(_, None)) {
        return;
    }
    // Without an address it is treated as the more dangerous.
    let is_local = socket.local_addr().map_or(true, |local| local.ip().to_canonical().is_loopback());
    let (current, mut phase) = (current.clone(), phase.subscribe());
    connections.spawn(budget::on_behalf(Holder::of(peer.ip()), async move {
        // Dropped in this order from the last one on: once the metrics show its end, its place is free.
        let (_open, mut admission) = (open, admission);
        let stream = tokio::select! {
            stream = front.acceptor.accept(socket) => stream,
            _ = phase.wait_for(|phase| *phase == Phase::Stopping) => return,
        };
        // A connection that never became a request leaves no record: port scanners would fill the log.
        let Ok((stream, opening)) = stream else {
            front.data.metrics.refused_unready.add(1);
            return;
        };
        // No web page can have itself passed on by a proxy that says so.
        let is_local = is_local && stream.proxy().is_none();
        if stream.proxy().is_some() {
            budget::go_on_as(Holder::of(stream.peer().ip()));
            admission = admission.handed_to(&front, front.holder(stream.peer().ip()));
        }
        admission = admission.speaking(&front, opening);
        let speaks_root = front.root.is_enabled;
        drop(front);
        match (opening, &admission) {
            (Opening::Root, _) if !speaks_root => {}
            (Opening::Root, Admission::Admitted(..)) => {
                root::connection::Connection::new(current, stream, phase).serve().await;
            }
            // Its client tries again by itself after a while.
            (Opening::Root, Admission::TurnedAway(..)) => {}
            (Opening::Http, Admission::Admitted(..)) => {
                Connection::new(current, stream, phase, is_local).serve().await;
            }
            (Opening::Http, Admission::TurnedAway(excess, _)) => {
                Connection::new(current, stream, phase, is_local).turn_away(*excess).await;
            }
        }
    }));
}

/// Room for a connection, for as long as it is open; or none.
enum Admission {
    /// There is: among all connections, and among those that speak its protocol once that is known.
    Admitted(Lease, Option<Lease>),
    /// There is none; it is told so, if there is room for that.
    TurnedAway(Excess, Option<(Lease, CountedIn)>),
}

impl Admission {
    fn of(front: &Front, holder: Holder) -> Admission {
        match front.budgets.connections.try_take(holder, 1) {
            Ok(lease) => Admission::Admitted(lease, None),
            Err(short) => Admission::turned_away(front, holder, short),
        }
    }

    fn turned_away(front: &Front, holder: Holder, short: Short) -> Admission {
        match short {
            Short::All => {
                front.data.metrics.refused_server.add(1);
                Admission::excess(front, holder, Excess::Server)
            }
            Short::Holder => {
                front.data.metrics.refused(By::Client);
                Admission::excess(front, holder, Excess::Party(By::Client))
            }
        }
    }

    fn excess(front: &Front, holder: Holder, excess: Excess) -> Admission {
        let room = front.budgets.turned_away.try_take(holder, 1).ok();
        let room = room.map(|room| (room, front.data.metrics.one(|metrics| &metrics.turned_away)));
        Admission::TurnedAway(excess, room)
    }

    /// Moves it to another holder, now that its client is known.
    fn handed_to(self, front: &Front, holder: Holder) -> Admission {
        let Admission::Admitted(mut lease, speaks) = self else { return self };
        match lease.try_hand_to(holder) {
            Ok(()) => Admission::Admitted(lease, speaks),
            Err(short) => {
                drop(lease);
                Admission::turned_away(front, holder, short)
            }
        }
    }

    /// It speaks this protocol.
    fn speaking(self, front: &Front, opening: Opening) -> Admission {
        let Admission::Admitted(lease, _) = self else { return self };
        let budget = match opening {
            Opening::Http => &front.budgets.http,
            Opening::Root => &front.budgets.root,
        };
        // All clients together: each has its share of all connections already.
        match budget.try_take(Holder::SERVER, 1) {
            Ok(speaks) => Admission::Admitted(lease, Some(speaks)),
            Err(_) => {
                front.data.metrics.refused_server.add(1);
                drop(lease);
                Admission::excess(front, budget::current(), Excess::Protocol)
            }
        }
    }
}

/// Lets the service tidy now and then, and after a reload: a server may run for months, and clients break off every day.
async fn tidy<S: Service>(mut current: Current<S>) {
    loop {
        let pause = current.borrow_and_update().front.data.deadlines.tidy;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = current.changed() => if changed.is_err() { return },
        }
        // Not before: what a reload has replaced is not to be kept open, and not to be changed.
        let generation = Arc::clone(&current.borrow());
        generation.service.tidy().await;
    }
}

/// Gives back the memory of a crowd that has left: the allocator would keep it for the next one.
async fn shrink(metrics: Arc<Metrics>) {
    let mut most = 0;
    loop {
        tokio::time::sleep(limits::SHRINK_INTERVAL).await;
        let open = metrics.open.get();
        most = open.max(most);
        if most >= limits::SHRINK_CONNECTIONS_MIN && open <= most / 2 {
            most = open;
            // Its outcome shows in the metrics.
            let _ = tokio::task::spawn_blocking(gridlane_sys::process::give_back_memory).await;
        }
    }
}

/// The next connection at any of the listeners.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}
