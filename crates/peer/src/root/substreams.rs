//! A session of several connections: the main stream, and the substreams that are bound to it (`kXR_bind`).
//!
//! ```text
//!  lane 1 ── requests, and its answers ──────────────┐
//!    ▲  requests of lane 2                            ├─ server
//!  lane 2 ── answers to its requests only ───────────┘
//! ```
//!
//! Requests of a session all go out on its main stream; a read names the connection that its answer comes on. The lane
//! with the main stream sends the requests of the others, and passes on what comes for them there (errors).

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gridlane_core::limits::SUBSTREAM_ANSWERS_WAITING_MAX;
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_xrd::answer::{OpenAnswer, StatText};
use gridlane_xrd::client::{Answers, Said, Session};
use gridlane_xrd::{Handle, PathId, StreamId};
use tokio::sync::mpsc;

use super::connection::{Connection, Next};
use super::file::OpenFile;

/// Bytes of unwanted data that are read at a time.
const SCRATCH_BYTES: usize = 16 * 1024;

/// A substream's number, and the channel to it.
type Bound = (PathId, mpsc::Sender<(StreamId, Said)>);

/// A session with a file open on it, which connections may be bound to. It lives as long as one of them.
pub struct SharedSession {
    pub(super) session: Session,
    pub(super) is_tls: bool,
    pub(super) handle: Handle,
    pub(super) stat: StatText,
    pub(super) url: Url,
    /// Requests for the main stream. Without a bound, and never long: each lane has 16 under way at most.
    requests: mpsc::UnboundedSender<Vec<u8>>,
    bound: Mutex<Vec<Bound>>,
    /// True if binding to it has brought nothing.
    is_useless: AtomicBool,
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSession({})", self.url)
    }
}

/// The side of a shared session that sends all requests: its first connection.
pub struct MainStream {
    shared: Option<Arc<SharedSession>>,
    requests: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// The side of a shared session on a further connection.
pub struct SubStream {
    /// The session that it is bound to.
    pub shared: Arc<SharedSession>,
    said: mpsc::Receiver<(StreamId, Said)>,
}

impl SharedSession {
    /// The file, as it was opened.
    pub(super) fn opened(&self) -> OpenAnswer {
        OpenAnswer { handle: self.handle, stat: Some(self.stat.clone()) }
    }

    /// True if further connections are of use.
    pub fn is_useful(&self) -> bool {
        !self.is_useless.load(Relaxed) && !self.requests.is_closed()
    }

    /// Notes that binding to it brings nothing.
    pub fn refuse(&self) {
        self.is_useless.store(true, Relaxed);
    }

    /// Sends requests on the main stream.
    pub fn send(&self, requests: Vec<u8>) -> Result<()> {
        self.requests.send(requests).map_err(|_| {
            Error::new(ErrorKind::Network, "the main stream of the session is gone").endpoint(&self.url)
        })
    }

    /// Registers a connection that was bound.
    pub(super) fn bind(self: &Arc<SharedSession>, path_id: PathId) -> SubStream {
        let (sender, said) = mpsc::channel(SUBSTREAM_ANSWERS_WAITING_MAX);
        let mut bound = self.bound();
        bound.retain(|(_, sender)| !sender.is_closed());
        bound.push((path_id, sender));
        SubStream { shared: self.clone(), said }
    }

    /// Passes on what came on the main stream for a substream. What a server sends beyond the answers that it owes is dropped.
    pub fn pass_on(&self, stream: StreamId, said: Said) {
        let path_id = Answers::path_of(stream);
        if let Some((_, sender)) = self.bound().iter().find(|(bound, _)| *bound == path_id) {
            let _ = sender.try_send((stream, said));
        }
    }

    fn bound(&self) -> MutexGuard<'_, Vec<Bound>> {
        // A panic elsewhere leaves nothing half-done here.
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubStream {
    /// The next thing that came on the main stream for this one; never ends.
    pub async fn said(&mut self) -> (StreamId, Said) {
        match self.said.recv().await {
            Some(said) => said,
            None => std::future::pending().await,
        }
    }
}

impl MainStream {
    /// Shares the session of an open file; `None` where it cannot be.
    pub fn new(file: &mut OpenFile) -> Result<Option<MainStream>> {
        let session = file.session();
        let is_server = session.flags.has(gridlane_xrd::flags::ServerFlags::IS_SERVER);
        let (Some(stat), true) = (file.stat.clone(), is_server && !session.is_manager()) else {
            return Ok(None);
        };
        let (handle, url) = (file.handle(), file.url.clone());
        let connection = file.connection()?;
        connection.hear_others();
        let is_tls = connection.is_tls();
        let (sender, requests) = mpsc::unbounded_channel();
        let (bound, is_useless) = Default::default();
        let shared =
            SharedSession { session, is_tls, handle, stat, url, requests: sender, bound, is_useless };
        Ok(Some(MainStream { shared: Some(Arc::new(shared)), requests }))
    }

    /// The session, for connections that may be bound to it.
    pub fn shared(&self) -> Weak<SharedSession> {
        self.shared.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// True if it has a substream.
    pub fn is_used(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }

    /// The next requests to be sent; never ends. May be dropped at any time.
    pub async fn request(&mut self) -> Vec<u8> {
        match self.requests.recv().await {
            Some(requests) => requests,
            None => std::future::pending().await,
        }
    }

    /// Goes on for the substreams until they have ended; the lane that had the connection is over.
    pub async fn carry(mut self, mut file: OpenFile) {
        let shared = self.shared();
        self.shared = None;
        let Ok(connection) = file.connection() else { return };
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            tokio::select! {
                requests = self.requests.recv() => match requests {
                    Some(requests) => {
                        if connection.send_numbered(&requests).await.is_err() {
                            return;
                        }
                    }
                    // No connection is left; the file is closed, and the session can be used again.
                    None => return,
                },
                came = discard(connection, &mut scratch) => match came {
                    Ok((stream, said)) => {
                        if let Some(shared) = shared.upgrade() {
                            shared.pass_on(stream, said);
                        }
                    }
                    Err(_) => return,
                },
            }
        }
    }
}

/// Reads data away until something else comes. May be dropped at any time.
async fn discard(connection: &mut Connection, scratch: &mut [u8]) -> Result<(StreamId, Said)> {
    loop {
        while connection.data_left() > 0 {
            connection.read_data(scratch).await?;
        }
        if let Next::Said(stream, said) = connection.next().await? {
            return Ok((stream, said));
        }
    }
}

#[cfg(test)]
#[path = "../../tests/it/support/root.rs"]
mod support;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gridlane_net::{Dialer, tls::Trust};
    use gridlane_xrd::answer::WaitAnswer;
    use gridlane_xrd::client::Expect;
    use gridlane_xrd::flags::OpenOptions;
    use gridlane_xrd::request::Read;
    use gridlane_xrd::{Call, ErrorCode};

    use super::support::{Faults, Site};
    use super::*;
    use crate::root::Client;

    /// A file that is open on a server with these faults, and its session, which connections may be bound to.
    async fn opened(faults: Faults) -> (Site, Client, OpenFile, MainStream, Arc<SharedSession>) {
        let site = Site::start(b"0123456789", faults).await;
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(20));
        let options = OpenOptions::READ | OpenOptions::RETSTAT;
        let mut file = client.open(&site.url, options, 0, "").await.unwrap();
        let main = MainStream::new(&mut file).unwrap().unwrap();
        let shared = main.shared().upgrade().unwrap();
        (site, client, file, main, shared)
    }

    /// Asks for bytes on the main stream; returns what came on the substream.
    async fn read(file: &mut OpenFile, shared: &SharedSession, offset: u64) -> Result<Next> {
        let (handle, path_id) = (file.handle(), file.session().path_id);
        let mut request = Read { handle, offset, len: 4, path_id }.to_bytes(StreamId::default());
        let connection = file.connection()?;
        connection.number(&mut request, Expect::Bytes { offset, len: 4 })?;
        shared.send(request)?;
        connection.next().await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn substreams_are_served_when_the_lane_that_had_the_main_stream_is_over() {
        let (site, client, file, main, shared) = opened(Faults::default()).await;
        let (mut second, substream) = client.bind(&shared).await.unwrap();
        assert!(main.is_used() && shared.is_useful());
        drop(shared);
        let carrying = tokio::spawn(main.carry(file));
        for offset in [0, 5] {
            let mut found = Vec::new();
            let mut next = read(&mut second, &substream.shared, offset).await.unwrap();
            loop {
                let Next::Part(part) = next else { panic!("{next:?}") };
                let connection = second.connection().unwrap();
                let mut buf = [0; 4];
                while connection.data_left() > 0 {
                    let count = connection.read_data(&mut buf).await.unwrap();
                    found.extend_from_slice(&buf[..count]);
                }
                if part.is_last {
                    break;
                }
                next = connection.next().await.unwrap();
            }
            assert_eq!(found, &b"0123456789"[offset as usize..offset as usize + 4]);
        }
        // The last substream ends it: the file is closed, and the session goes on.
        drop((second, substream));
        carrying.await.unwrap();
        while site.count("close") == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.connections(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_fails_on_the_main_stream_is_passed_on() {
        let faults = Faults { fails_elsewhere: true, ..Faults::default() };
        let (_site, client, file, main, shared) = opened(faults).await;
        let (mut second, mut substream) = client.bind(&shared).await.unwrap();
        tokio::spawn(main.carry(file));
        tokio::select! {
            next = read(&mut second, &shared, 0) => panic!("{next:?}"),
            (stream, said) = substream.said() => {
                assert_eq!(Answers::path_of(stream), PathId(1));
                assert!(matches!(said, Said::Error(answer) if answer.code == ErrorCode::ARG_INVALID));
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_sends_more_than_it_owes_fills_no_memory() {
        let (_site, _client, _file, _main, shared) = opened(Faults::default()).await;
        let mut substream = shared.bind(PathId(1));
        let mut stream = StreamId::default();
        while Answers::path_of(stream) != PathId(1) {
            let number = u16::from_be_bytes(stream.0) + 1;
            stream = StreamId(number.to_be_bytes());
        }
        for _ in 0..10 * SUBSTREAM_ANSWERS_WAITING_MAX {
            shared.pass_on(stream, Said::Wait(WaitAnswer { seconds: 1, text: String::new() }));
        }
        let mut kept = 0;
        while substream.said.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, SUBSTREAM_ANSWERS_WAITING_MAX);
    }
}
