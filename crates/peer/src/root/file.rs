//! A file that is open, and the session that it lives on.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use gridlane_core::limits::BODY_STALL_MAX;
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_sys::tcp::TcpInfo;
use gridlane_xrd::answer::{Corrections, OpenAnswer, Redirect, StatText};
use gridlane_xrd::client::{Expect, Part, Said, Session};
use gridlane_xrd::request::Close;
use gridlane_xrd::{Call, Handle, RequestId, StreamId};

use super::connection::{COLLECTED, Connection, Next};
use super::gsi::Delegation;
use super::quirks::KnownQuirks;
use super::server::Server;
use super::status::{malformed, status_error};
use crate::patience::timeout;

/// Longest wait, in the background, for the end of a file that was read.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// An open file. Its session is its own until it is dropped.
///
/// One that is dropped without [`close`](OpenFile::close) is closed in the background if it was opened to be read, and
/// its session can be used again. If it was opened to be written, the connection is closed: a file that vanishes
/// unless it is closed in good order vanishes.
pub struct OpenFile {
    /// The server's answer about it, if the open asked for that.
    pub stat: Option<StatText>,
    /// Its URL, after redirects.
    pub url: Url,
    handle: Handle,
    client: OfClient,
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    collector: Collector,
    is_reading: bool,
    is_closed: bool,
    /// True if the file was opened on another connection, to whose session this one is bound.
    is_bound: bool,
}

/// The part of a client that a file which it opened needs.
pub(super) struct OfClient {
    /// True if bytes travel with checksums of pages, where they can.
    pub(super) pages: bool,
    /// True if its sessions are for files that one server sends to another.
    pub(super) is_for_copies: bool,
    /// True if the servers of its sessions were to get a proxy.
    pub(super) is_delegating: bool,
    /// Is told of sessions whose connection broke.
    pub(super) quirks: KnownQuirks,
}

/// The answer to one of several requests that are under way.
#[derive(Debug)]
pub struct Answer {
    /// The number of the request.
    pub stream: StreamId,
    /// The outcome of the request.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// It is done; with what is answered, if that is anything.
    Done(Vec<u8>),
    /// It is done, but these pages were not what their checksum said: offset and length of each. They are to be sent
    /// again, each alone, as a retry.
    Wrong(Vec<(u64, usize)>),
    /// It was not done: the same is to be sent again after this time.
    Wait(Duration),
    /// It failed; the file stays open.
    Failed(Error),
}

impl OpenFile {
    /// What became of the server's wish for a proxy of the user's in the login of the file's session.
    pub fn delegation(&self) -> Delegation {
        self.connection.as_ref().map(Connection::delegation).unwrap_or_default()
    }

    pub(super) fn new(
        client: OfClient,
        connection: Connection,
        opened: OpenAnswer,
        url: Url,
        is_reading: bool,
    ) -> OpenFile {
        let OpenAnswer { handle, stat } = opened;
        let (connection, collector) = (Some(connection), Collector::default());
        OpenFile {
            stat,
            url,
            handle,
            client,
            connection,
            collector,
            is_reading,
            is_closed: false,
            is_bound: false,
        }
    }

    /// A file of the session that this connection is bound to.
    pub(super) fn bound(client: OfClient, connection: Connection, opened: OpenAnswer, url: Url) -> OpenFile {
        let mut file = OpenFile::new(client, connection, opened, url, true);
        file.is_bound = true;
        file
    }

    /// Its handle in its session.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The state of its session.
    pub fn session(&self) -> Session {
        self.connection.as_ref().map(Connection::session).unwrap_or_default()
    }

    /// True if its bytes are to travel with a checksum for each page: the server can, TLS does not protect them already,
    /// and the client's settings allow it.
    pub fn uses_pages(&self) -> bool {
        let is_tls = self.connection.as_ref().is_some_and(Connection::is_tls);
        self.client.pages && self.session().has_pages() && !is_tls
    }

    /// For people: the other end's address and the version of TLS if it is spoken.
    pub fn describe(&self) -> String {
        self.connection.as_ref().map(Connection::describe).unwrap_or_default()
    }

    /// The address of the server that has it open; `None` behind a proxy, and once the connection is gone.
    pub fn server_address(&self) -> Option<IpAddr> {
        self.connection.as_ref()?.server_address().map(|address| address.ip().to_canonical())
    }

    /// Round trips spent before its open was sent on a new connection, and that of the open; 0 when the session was
    /// there.
    pub fn handshake_round_trips(&self) -> u32 {
        self.connection.as_ref().map_or(0, |connection| match connection.handshake_round_trips {
            0 => 0,
            round_trips => round_trips + u32::from(!self.is_bound),
        })
    }

    /// Smallest round trip that the kernel has seen.
    pub fn round_trip(&self) -> Option<Duration> {
        self.connection.as_ref()?.round_trip()
    }

    /// Like [`round_trip`](OpenFile::round_trip), with everything else that the kernel has seen.
    pub fn path(&self) -> Option<TcpInfo> {
        self.connection.as_ref()?.path()
    }

    /// Requests that were sent and not answered.
    pub fn unanswered(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::unanswered)
    }

    /// The connection that it is open on; an error once it was given up.
    pub fn connection(&mut self) -> Result<&mut Connection> {
        self.connection.as_mut().ok_or_else(|| Error::new(ErrorKind::Other, "the file is closed"))
    }

    /// Notes that the connection broke, so that the next session ends this one.
    pub fn lost(&mut self) {
        if let Some(connection) = self.connection.as_mut().filter(|_| !self.is_bound) {
            connection.give_up();
            let server = Server::of(&self.url, connection.identity())
                .for_copies(self.client.is_for_copies)
                .delegated(self.client.is_delegating);
            self.client.quirks.learn(&server, |quirks| quirks.lost(connection.session().id));
        }
    }

    /// Makes one request about it and waits for the answer. Nothing else may be under way.
    pub async fn call<C: Call>(&mut self, make: impl FnOnce(Handle) -> C) -> Result<Vec<u8>> {
        let stream = self.send(make, &[]).await?;
        loop {
            let Answer { stream: of, outcome } = self.answer().await?;
            if of != stream {
                continue;
            }
            return match outcome {
                Outcome::Done(body) => Ok(body),
                Outcome::Failed(error) => Err(error),
                Outcome::Wait(wait) => Err(Error::new(
                    ErrorKind::Busy,
                    format!("the server asks for a pause of {} s", wait.as_secs()),
                )
                .retry_after(Some(wait))
                .endpoint(&self.url)),
                Outcome::Wrong(pages) => Err(Error::new(
                    ErrorKind::ChecksumMismatch,
                    format!("{} pages came with a wrong checksum", pages.len()),
                )
                .endpoint(&self.url)),
            };
        }
    }

    /// Sends a request, with `data` behind it which it counts (`write`, `pgwrite`), and waits only until all of that
    /// is on its way. The answer comes by [`answer`](OpenFile::answer). At most
    /// [`ROOT_REQUESTS_MAX`](gridlane_core::limits::ROOT_REQUESTS_MAX) may be under way.
    pub async fn send<C: Call>(&mut self, make: impl FnOnce(Handle) -> C, data: &[u8]) -> Result<StreamId> {
        let data_len = u32::try_from(data.len())
            .map_err(|_| Error::new(ErrorKind::Other, "a request would have more than 4 GiB of data"))?;
        let mut request = Vec::new();
        make(self.handle).encode_for(StreamId::default(), data_len, &mut request);
        let expect = if C::ID == RequestId::PGWRITE { Expect::Written } else { COLLECTED };
        let url = self.url.clone();
        let sent = in_time(BODY_STALL_MAX, self.connection()?.send(&request, data, expect)).await;
        sent.map_err(|error| error.endpoint(url))
    }

    /// Waits for the answer to any of the requests that are under way. An error is one of the connection: nothing
    /// else will come. May be dropped and called again.
    pub async fn answer(&mut self) -> Result<Answer> {
        let url = self.url.clone();
        let Some(connection) = &mut self.connection else {
            return Err(Error::new(ErrorKind::Other, "the file is closed"));
        };
        let outcome = self.collector.next(connection).await;
        outcome.map_err(|error| error.endpoint(&url)).map(|mut answer| {
            if let Outcome::Failed(error) = answer.outcome {
                answer.outcome = Outcome::Failed(error.endpoint(&url));
            }
            answer
        })
    }

    /// Notes that a request of its own has closed it, with all that was under way: its session can be used again.
    pub fn set_closed(&mut self) {
        self.is_closed = true;
    }

    /// Closes it, and waits for the server's word. An error says that what was written may not be there.
    pub async fn close(mut self) -> Result<()> {
        self.is_closed = true;
        match self.call(|handle| Close { handle }).await {
            Ok(_) => Ok(()),
            Err(error) => {
                if let Some(connection) = &mut self.connection {
                    connection.give_up();
                }
                Err(error)
            }
        }
    }
}

async fn in_time<T>(max: Duration, doing: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(max, doing).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let message = format!("nothing happened within {} s", max.as_secs());
            Err(Error::new(ErrorKind::Timeout, message))
        }
    }
}

/// Answers as they come: what has come of those that are not whole.
#[derive(Default)]
struct Collector {
    bodies: Vec<(StreamId, Vec<u8>)>,
    /// The part whose bytes are being read.
    part: Option<Part>,
    /// Longest wait for the next thing.
    later_max: Duration,
}

impl Collector {
    /// Waits for the next answer that is whole. May be dropped and called again.
    async fn next(&mut self, connection: &mut Connection) -> Result<Answer> {
        loop {
            if let Some(part) = self.part {
                let mut buf = [0; 4096];
                while connection.data_left() > 0 {
                    let count = in_time(BODY_STALL_MAX, connection.read_data(&mut buf)).await?;
                    self.body(part.stream).extend_from_slice(&buf[..count]);
                }
                self.part = None;
                if part.is_last {
                    return self.finish(part);
                }
            }
            match in_time(self.later_max.max(BODY_STALL_MAX), connection.next()).await? {
                Next::Part(part) => self.part = Some(part),
                Next::Said(_, Said::Later(later)) => {
                    let later = Duration::from_secs(u64::from(later.seconds)).min(LATER_MAX);
                    self.later_max = self.later_max.max(later);
                }
                Next::Said(stream, said) => {
                    self.bodies.retain(|(of, _)| *of != stream);
                    return Ok(Answer { stream, outcome: outcome(said) });
                }
            }
        }
    }

    fn body(&mut self, stream: StreamId) -> &mut Vec<u8> {
        let at = self.bodies.iter().position(|(of, _)| *of == stream).unwrap_or(self.bodies.len());
        if at == self.bodies.len() {
            self.bodies.push((stream, Vec::new()));
        }
        &mut self.bodies[at].1
    }

    fn finish(&mut self, part: Part) -> Result<Answer> {
        let stream = part.stream;
        let body = std::mem::take(self.body(stream));
        self.bodies.retain(|(of, _)| *of != stream);
        let outcome = match part.is_list && !body.is_empty() {
            true => {
                let corrections = Corrections::parse(&body).map_err(|wrong| malformed(&wrong))?;
                Outcome::Wrong(corrections.pages())
            }
            false => Outcome::Done(body),
        };
        Ok(Answer { stream, outcome })
    }
}

fn outcome(said: Said) -> Outcome {
    match said {
        Said::Wait(wait) | Said::Later(wait) => Outcome::Wait(Duration::from_secs(u64::from(wait.seconds))),
        Said::Error(answer) => Outcome::Failed(status_error(&answer)),
        Said::Redirect(redirect) => {
            // Without its CGI and token, which may be secret.
            let message = match redirect {
                Redirect::Host { host, port, .. } => format!("it redirects an open file to {host}:{port}"),
                Redirect::Url { .. } => "it redirects an open file to another URL".to_owned(),
            };
            Outcome::Failed(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Longest wait for an answer that a server says will come: a checksum, a sync to slow disks.
const LATER_MAX: Duration = Duration::from_secs(1800);

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.is_closed {
            return;
        }
        let runtime = tokio::runtime::Handle::try_current();
        match runtime {
            Ok(runtime) if self.is_reading && !self.is_bound && connection.unanswered() == 0 => {
                let request = Close { handle: self.handle }.to_bytes(StreamId::default());
                runtime.spawn(async move {
                    let close = async {
                        connection.send(&request, &[], COLLECTED).await?;
                        Collector::default().next(&mut connection).await
                    };
                    if !matches!(timeout(CLOSE_MAX, close).await, Ok(Ok(_))) {
                        connection.give_up();
                    }
                });
            }
            _ => connection.give_up(),
        }
    }
}
