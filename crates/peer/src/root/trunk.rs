//! The first connection of a session, for lanes on connections that joined it.
//!
//! ```text
//!  lane 1 ── requests, and its answers ──────────────┐
//!    ▲  requests of lane 2                            ├─ server
//!  lane 2 ── answers to its requests only ───────────┘
//! ```
//!
//! Requests of a session all go out on its first connection; a read names the connection that its answer comes on. The
//! lane with the first connection sends the requests of the others, and passes on what comes for them there (errors).

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_xrd::answer::{OpenAnswer, StatText};
use gridlane_xrd::client::{Answers, Said, Session};
use gridlane_xrd::{Handle, PathId, StreamId};
use tokio::sync::mpsc;

use super::connection::{Connection, Next};
use super::file::OpenFile;

/// Bytes of unwanted data that are read at a time.
const SCRATCH_BYTES: usize = 16 * 1024;

/// A connection that joined, and the channel to it.
type Join = (PathId, mpsc::UnboundedSender<(StreamId, Said)>);

/// A session with a file open on it. It lives as long as one of the connections that joined it.
pub struct Trunk {
    pub(super) session: Session,
    pub(super) is_tls: bool,
    pub(super) handle: Handle,
    pub(super) stat: StatText,
    pub(super) url: Url,
    /// Requests for the first connection. Each lane has a few under way, so it stays short.
    requests: mpsc::UnboundedSender<Vec<u8>>,
    joined: Mutex<Vec<Join>>,
    /// True if joining it has brought nothing.
    is_useless: AtomicBool,
}

impl fmt::Debug for Trunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trunk({})", self.url)
    }
}

/// The end of a trunk that has the connection.
pub struct Carrier {
    trunk: Option<Arc<Trunk>>,
    requests: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// The end of a trunk on a connection that joined.
pub struct Joined {
    /// The session that was joined.
    pub trunk: Arc<Trunk>,
    said: mpsc::UnboundedReceiver<(StreamId, Said)>,
}

impl Trunk {
    /// The file, as it was opened.
    pub(super) fn opened(&self) -> OpenAnswer {
        OpenAnswer { handle: self.handle, stat: Some(self.stat.clone()) }
    }

    /// True if connections that join it are of use.
    pub fn is_useful(&self) -> bool {
        !self.is_useless.load(Relaxed) && !self.requests.is_closed()
    }

    /// Notes that joining it brings nothing.
    pub fn refuse(&self) {
        self.is_useless.store(true, Relaxed);
    }

    /// Sends requests on the first connection.
    pub fn send(&self, requests: Vec<u8>) -> Result<()> {
        self.requests.send(requests).map_err(|_| {
            Error::new(ErrorKind::Network, "the first connection of the session is gone").endpoint(&self.url)
        })
    }

    /// A connection has joined.
    pub(super) fn join(self: &Arc<Trunk>, path_id: PathId) -> Joined {
        let (sender, said) = mpsc::unbounded_channel();
        let mut joined = self.joined();
        joined.retain(|(_, sender)| !sender.is_closed());
        joined.push((path_id, sender));
        Joined { trunk: self.clone(), said }
    }

    /// Passes on what came on the first connection for another one.
    pub fn pass_on(&self, stream: StreamId, said: Said) {
        let path_id = Answers::path_of(stream);
        if let Some((_, sender)) = self.joined().iter().find(|(joined, _)| *joined == path_id) {
            let _ = sender.send((stream, said));
        }
    }

    fn joined(&self) -> MutexGuard<'_, Vec<Join>> {
        // A panic elsewhere leaves nothing half-done here.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Joined {
    /// The next thing that came on the first connection for this one; never ends.
    pub async fn said(&mut self) -> (StreamId, Said) {
        match self.said.recv().await {
            Some(said) => said,
            None => std::future::pending().await,
        }
    }
}

impl Carrier {
    /// Makes a trunk of the session of an open file.
    pub fn new(file: &mut OpenFile) -> Result<Option<Carrier>> {
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
        let (joined, is_useless) = Default::default();
        let trunk = Trunk { session, is_tls, handle, stat, url, requests: sender, joined, is_useless };
        Ok(Some(Carrier { trunk: Some(Arc::new(trunk)), requests }))
    }

    /// The trunk, for connections that may join.
    pub fn trunk(&self) -> Weak<Trunk> {
        self.trunk.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// True if any connection has joined that is there still.
    pub fn is_used(&self) -> bool {
        self.trunk.as_ref().is_some_and(|trunk| Arc::strong_count(trunk) > 1)
    }

    /// The next requests to be sent; never ends. May be dropped at any time.
    pub async fn request(&mut self) -> Vec<u8> {
        match self.requests.recv().await {
            Some(requests) => requests,
            None => std::future::pending().await,
        }
    }

    /// Goes on for the connections that joined, until they have gone; the lane that had the connection is over.
    pub async fn carry(mut self, mut file: OpenFile) {
        let trunk = self.trunk();
        self.trunk = None;
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
                        if let Some(trunk) = trunk.upgrade() {
                            trunk.pass_on(stream, said);
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
    use gridlane_xrd::client::Expect;
    use gridlane_xrd::flags::OpenOptions;
    use gridlane_xrd::request::Read;
    use gridlane_xrd::{Call, ErrorCode};

    use super::support::{Faults, Site};
    use super::*;
    use crate::root::Client;

    /// Asks for bytes on the first connection; says what came on the one that joined.
    async fn read(file: &mut OpenFile, trunk: &Trunk, offset: u64) -> Result<Next> {
        let (handle, path_id) = (file.handle(), file.session().path_id);
        let mut request = Read { handle, offset, len: 4, path_id }.to_bytes(StreamId::default());
        let connection = file.connection()?;
        connection.number(&mut request, Expect::Bytes { offset, len: 4 })?;
        trunk.send(request)?;
        connection.next().await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_joined_is_served_when_the_lane_that_had_the_connection_is_over() {
        let site = Site::start(b"0123456789", Faults::default()).await;
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(20));
        let options = OpenOptions::READ | OpenOptions::RETSTAT;
        let mut file = client.open(&site.url, options, 0, "").await.unwrap();
        let carrier = Carrier::new(&mut file).unwrap().unwrap();
        let trunk = carrier.trunk().upgrade().unwrap();
        let (mut second, joined) = client.join(&trunk).await.unwrap();
        assert!(carrier.is_used() && trunk.is_useful());
        drop(trunk);
        let carrying = tokio::spawn(carrier.carry(file));
        for offset in [0, 5] {
            let mut found = Vec::new();
            let mut next = read(&mut second, &joined.trunk, offset).await.unwrap();
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
        // The last one who joined ends it: the file is closed, and the session goes on.
        drop((second, joined));
        carrying.await.unwrap();
        while site.count("close") == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.connections(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_fails_on_the_first_connection_is_passed_on() {
        let site = Site::start(b"0123456789", Faults { fails_elsewhere: true, ..Faults::default() }).await;
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(20));
        let options = OpenOptions::READ | OpenOptions::RETSTAT;
        let mut file = client.open(&site.url, options, 0, "").await.unwrap();
        let carrier = Carrier::new(&mut file).unwrap().unwrap();
        let trunk = carrier.trunk().upgrade().unwrap();
        let (mut second, mut joined) = client.join(&trunk).await.unwrap();
        tokio::spawn(carrier.carry(file));
        tokio::select! {
            next = read(&mut second, &trunk, 0) => panic!("{next:?}"),
            (stream, said) = joined.said() => {
                assert_eq!(Answers::path_of(stream), PathId(1));
                assert!(matches!(said, Said::Error(answer) if answer.code == ErrorCode::ARG_INVALID));
            }
        }
    }
}
