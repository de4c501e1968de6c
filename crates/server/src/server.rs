//! Listening, admission, and the graceful stop.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, Result, limits};
use gridlane_net::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::blocking::{self, Disk};
use crate::buffers::Buffers;
use crate::connection::Connection;
use crate::digests::Digests;
use crate::export::Exports;
use crate::settings::Settings;
use crate::shared::{Counters, Pace, Shared};

/// Connections that are being told that there are too many; more are dropped without a word.
const TURNED_AWAY_MAX: usize = 256;

/// For connections that are cut to end: longer only when a disk operation hangs.
const CUT_MAX: Duration = Duration::from_secs(5);

/// After `accept` failed for want of descriptors or memory: time for something to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Between two records that tell of it.
const ACCEPT_NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// A server that listens already and does not serve yet.
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    acceptor: Acceptor,
    admission: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// What a server did in its life.
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

impl Server {
    /// Listens at every address, and removes what earlier servers left behind in writable exports.
    pub async fn bind(settings: Settings) -> Result<Server> {
        let mut listeners = Vec::with_capacity(settings.listen.len());
        for address in &settings.listen {
            listeners.push(
                gridlane_net::listen(*address)
                    .map_err(|cause| Error::local_io(format!("cannot listen at {address}"), &cause))?,
            );
        }
        let addresses = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<io::Result<_>>()
            .map_err(|cause| Error::local_io("cannot tell where the server listens", &cause))?;
        let exports = Exports::new(settings.exports)?;
        for export in exports.iter().filter(|export| export.allow_write) {
            export.storage.remove_abandoned(limits::PARTIAL_AGE_MAX)?;
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Shared {
            exports,
            host_names: settings.host_names,
            deadlines: settings.deadlines,
            access_log: settings.access_log,
            disk: Disk::new(),
            buffers: Buffers::default(),
            digests: Digests::new(),
            listings: Arc::new(Semaphore::new(limits::LISTINGS_MAX)),
            pace: settings.limit_rate_bytes_per_s.map(Pace::new),
            counters: Counters::default(),
            started_s: started.as_secs(),
        };
        Ok(Server {
            listeners,
            addresses,
            acceptor: Acceptor::new(settings.tls).deadline(settings.deadlines.detect),
            admission: Arc::new(Semaphore::new(settings.connections_max)),
            shared: Arc::new(shared),
        })
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `shutdown` resolves. Then it stops accepting, closes idle connections at once, lets
    /// running requests finish for a while, and cuts the rest.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        let (stop, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut panicked = 0;
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        let tidying = self.shared.exports.allow_write().then(|| tokio::spawn(tidy(Arc::clone(&self.shared))));
        let mut noted: Option<Instant> = None;
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    panicked += u64::from(ended.is_err_and(|error| error.is_panic()));
                }
                accepted = accept_any(&self.listeners) => match accepted {
                    Ok(socket) => self.admit(socket, &mut connections, &turned_away, &stopping),
                    // A client that left while it waited is no trouble; a lack of descriptors passes.
                    Err(cause) => {
                        let is_news = noted.is_none_or(|noted| noted.elapsed() >= ACCEPT_NOTE_INTERVAL);
                        if Acceptor::lacks_descriptors(&cause) && is_news {
                            noted = Some(Instant::now());
                            let what = format!("connections wait, since none can be accepted: {cause}");
                            self.shared.access_log.note(&what);
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listeners);
        stop.send_replace(true);
        let finish = async {
            while let Some(ended) = connections.join_next().await {
                panicked += u64::from(ended.is_err_and(|error| error.is_panic()));
            }
        };
        // Time is up: the rest is cut below.
        let _ = timeout(self.shared.deadlines.drain, finish).await;
        let cut = connections.len() as u64;
        // Waits for the tasks to end, so that their partial uploads are gone; but not for a dead disk.
        let _ = timeout(CUT_MAX, connections.shutdown()).await;
        if let Some(tidying) = tidying {
            tidying.abort();
            let _ = timeout(CUT_MAX, tidying).await;
        }
        let counters = &self.shared.counters;
        let mut summary = Summary {
            connections: counters.connections.load(Ordering::Relaxed),
            requests: counters.requests.load(Ordering::Relaxed),
            bytes_in: counters.bytes_in.load(Ordering::Relaxed),
            bytes_out: counters.bytes_out.load(Ordering::Relaxed),
            cut,
            panicked,
            log_is_stalled: false,
        };
        if let Ok(shared) = Arc::try_unwrap(self.shared) {
            let finish = || shared.access_log.finish(limits::ACCESS_LOG_STOP_MAX);
            summary.log_is_stalled = !blocking::in_place(finish);
        }
        summary
    }

    /// Gives a connection a task of its own, if there is room; else another one that says so.
    fn admit(
        &self,
        socket: TcpStream,
        connections: &mut JoinSet<()>,
        turned_away: &Arc<Semaphore>,
        stopping: &watch::Receiver<bool>,
    ) {
        Counters::add(&self.shared.counters.connections, 1);
        let (permit, is_admitted) = match Arc::clone(&self.admission).try_acquire_owned() {
            Ok(permit) => (permit, true),
            Err(_) => match Arc::clone(turned_away).try_acquire_owned() {
                Ok(permit) => (permit, false),
                Err(_) => return,
            },
        };
        // What cannot be told is treated as the more dangerous.
        let is_local = socket.local_addr().map_or(true, |local| local.ip().to_canonical().is_loopback());
        let (acceptor, shared) = (self.acceptor.clone(), Arc::clone(&self.shared));
        let mut stopping = stopping.clone();
        connections.spawn(async move {
            let _permit = permit;
            let stream = tokio::select! {
                stream = acceptor.accept(socket) => stream,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            // A connection that never became a request leaves no record: port scanners would fill the log.
            let Ok(stream) = stream else { return };
            let connection = Connection::new(shared, stream, stopping, is_local);
            if is_admitted { connection.serve().await } else { connection.turn_away().await }
        });
    }
}

/// Removes abandoned uploads now and then: a server may run for months, and clients break off every day.
async fn tidy(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.deadlines.tidy).await;
        for export in shared.exports.iter().filter(|export| export.allow_write) {
            let removal = || export.storage.remove_abandoned(limits::PARTIAL_AGE_MAX);
            if let Err(error) = shared.disk.run(removal).await {
                shared
                    .access_log
                    .note(&format!("cannot remove abandoned uploads in {}: {error}", export.path));
            }
        }
    }
}

/// The next connection at any of the listeners.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<TcpStream> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(socket, _)| socket));
            }
        }
        Poll::Pending
    })
    .await
}
