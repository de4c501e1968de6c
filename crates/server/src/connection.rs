//! One connection: heads in, answers out, until either side ends it.
//!
//! ```text
//! idle ──first byte──▶ head ──complete──▶ answer ──▶ idle
//!  │ idle deadline,     │ head deadline: 408          │ told to close, or a body left unread
//!  │ server stops       │ malformed: 4xx              │
//!  ▼                    ▼                             ▼
//! closed            ◀── closing: our direction ends; what the client still sends is read and dropped,
//!                       for a while and up to a size, so that it gets to see the answer
//! ```
//!
//! Without the last step the kernel would answer unread bytes with a reset, and the client would often see
//! that reset instead of the answer that explains it.

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use gridlane_core::limits;
use gridlane_dav::request::{RequestHead, Target};
use gridlane_dav::{Method, Status, Version};
use gridlane_net::Stream;
use tokio::sync::watch;
use tokio::time::{Instant as Deadline, timeout, timeout_at};

use crate::access_log::{Record, timestamp};
use crate::body::{Body, Inbox, Wire};
use crate::reply::{Payload, Reply};
use crate::shared::{Counters, Shared};
use crate::{delete, get, put, transfer};

/// Payloads up to this size are sent in one piece with their head.
const SMALL_BYTES: u64 = 16 * 1024;

/// What came next.
enum Next {
    Request(RequestHead),
    /// Something that gets an answer, and nothing after it.
    Refused(Reply),
    /// Nothing: the connection ends without a word.
    Ended,
}

/// One connection, protocol detected and TLS established.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    wire: Wire,
    /// Becomes true when the server stops.
    stopping: watch::Receiver<bool>,
    /// When the request in hand began.
    began: Instant,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, stream: Stream, stopping: watch::Receiver<bool>) -> Connection {
        let wire = Wire { stream, inbox: Inbox::default() };
        Connection { shared, wire, stopping, began: Instant::now() }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        loop {
            let closes = match self.next_request().await {
                Next::Request(head) => self.exchange(&head).await,
                Next::Refused(reply) => self.refuse(reply).await,
                Next::Ended => return,
            };
            match closes {
                Ok(false) => {}
                Ok(true) => return self.close().await,
                // The client is gone, or takes nothing: there is nobody to close in good order with.
                Err(_) => return,
            }
        }
    }

    /// Gives the one answer that an overloaded server has.
    pub(crate) async fn turn_away(mut self) {
        let reply = Reply::failure(Status::SERVICE_UNAVAILABLE, "the server has too many connections open");
        if self.refuse(reply.closing()).await.is_ok() {
            self.close().await;
        }
    }

    async fn next_request(&mut self) -> Next {
        if self.wire.inbox.unread().is_empty() {
            let first = tokio::select! {
                biased;
                first = timeout(self.shared.deadlines.idle, self.wire.fill()) => first,
                _ = self.stopping.wait_for(|stopping| *stopping) => return Next::Ended,
            };
            if !matches!(first, Ok(Ok(true))) {
                return Next::Ended;
            }
        }
        self.began = Instant::now();
        let deadline = Deadline::now() + self.shared.deadlines.head;
        loop {
            match RequestHead::parse(self.wire.inbox.unread()) {
                Ok(Some((head, used))) => {
                    self.wire.inbox.consume(used);
                    return Next::Request(head);
                }
                Ok(None) => {}
                Err(rejection) => return Next::Refused(Reply::rejection(rejection)),
            }
            match timeout_at(deadline, self.wire.fill()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false) | Err(_)) => return Next::Ended,
                Err(_) => {
                    let what = "the request head did not come in time";
                    return Next::Refused(Reply::failure(Status::REQUEST_TIMEOUT, what).closing());
                }
            }
        }
    }

    /// Answers a request; returns whether the connection is to be closed.
    async fn exchange(&mut self, head: &RequestHead) -> io::Result<bool> {
        let mut body = Body::new(head.body);
        let mut reply = self.decide(head, &mut body).await;
        reply.closes |= !head.keeps_alive || !body.is_ended() || *self.stopping.borrow();
        let mut sent = 0;
        let outcome = self.send(&reply, head, &mut sent).await;
        self.record(&reply, Some(head), body.received(), sent, outcome.as_ref().err());
        outcome.map(|()| reply.closes)
    }

    /// Looks at method and target; a PUT reads its body here.
    async fn decide(&mut self, head: &RequestHead, body: &mut Body) -> Reply {
        let shared = &*self.shared;
        let path = match (&head.method, &head.target) {
            (Method::Unknown(_), _) => {
                return Reply::failure(Status::NOT_IMPLEMENTED, "the server does not know this method");
            }
            (Method::Options, _) => {
                return Reply::new(Status::OK)
                    .field("Allow", shared.allowed_methods())
                    .payload(Payload::Bytes(Vec::new()));
            }
            (_, Target::Resource { path, .. }) => path,
            (_, Target::Server) => return not_allowed(shared),
        };
        match head.method {
            Method::Get | Method::Head => get::answer(shared, head, path).await,
            Method::Put | Method::Delete if !shared.allow_write => Reply::failure(
                Status::FORBIDDEN,
                "this server does not let anyone write; its operator can with --allow-write",
            ),
            Method::Put => put::answer(shared, &mut self.wire, head, path, body).await,
            Method::Delete => delete::answer(shared, head, path).await,
            _ => not_allowed(shared),
        }
    }

    /// The data plane of an answer. Counts the payload's bytes in `sent`, also when it fails.
    async fn send(&mut self, reply: &Reply, head: &RequestHead, sent: &mut u64) -> io::Result<()> {
        let stall = self.shared.deadlines.body_stall;
        let stream = &mut self.wire.stream;
        let mut first = reply.head(head.version).into_bytes();
        let head_len = first.len() as u64;
        let mut written = 0;
        let rest = match &reply.payload {
            _ if head.method == Method::Head => None,
            Payload::None | Payload::Unmeasured => None,
            Payload::Bytes(bytes) => {
                first.extend_from_slice(bytes);
                None
            }
            Payload::File { object, range } => {
                if range.len() <= SMALL_BYTES && self.shared.pace.is_none() {
                    first.resize(first.len() + range.len() as usize, 0);
                    let read = object.read_at_nowait(&mut first[head_len as usize..], range.start())?;
                    if read == Some(range.len() as usize) { None } else { Some((object, range)) }
                } else {
                    Some((object, range))
                }
            }
        };
        if rest.is_some() {
            first.truncate(head_len as usize);
        }
        let outcome = transfer::write(stream, &first, stall, &mut written).await;
        *sent = written.saturating_sub(head_len);
        outcome?;
        match rest {
            Some((object, range)) => {
                transfer::send_object(&self.shared, stream, object.as_ref(), *range, sent).await
            }
            None => Ok(()),
        }
    }

    /// Answers what is not a request.
    async fn refuse(&mut self, reply: Reply) -> io::Result<bool> {
        let mut bytes = reply.head(Version::Http11).into_bytes();
        if let Payload::Bytes(text) = &reply.payload {
            bytes.extend_from_slice(text);
        }
        let mut sent = 0;
        let stall = self.shared.deadlines.body_stall;
        let outcome = transfer::write(&mut self.wire.stream, &bytes, stall, &mut sent).await;
        self.record(&reply, None, 0, reply.payload_len(), outcome.as_ref().err());
        outcome.map(|()| true)
    }

    /// Ends our direction, then reads and drops what the client still sends.
    async fn close(mut self) {
        let linger = async {
            self.wire.stream.shutdown().await?;
            let mut buffer = [0; 4096];
            let mut dropped = 0;
            while dropped < limits::BODY_DRAIN_BYTES_MAX {
                match self.wire.stream.read(&mut buffer).await? {
                    0 => break,
                    count => dropped += count as u64,
                }
            }
            Ok::<(), io::Error>(())
        };
        // Whatever comes of it, the connection ends now.
        let _ = timeout(self.shared.deadlines.linger, linger).await;
    }

    fn record(
        &self,
        reply: &Reply,
        head: Option<&RequestHead>,
        bytes_in: u64,
        bytes_out: u64,
        failure: Option<&io::Error>,
    ) {
        let counters = &self.shared.counters;
        let number = Counters::add(&counters.requests, 1);
        Counters::add(&counters.bytes_in, bytes_in);
        Counters::add(&counters.bytes_out, bytes_out);
        if !self.shared.access_log.is_on() {
            return;
        }
        let path;
        let (method, path) = match head {
            Some(head) => {
                path = head.path().map_or_else(|| "*".to_owned(), ToString::to_string);
                (head.method.name(), path.as_str())
            }
            None => RequestHead::glimpse(self.wire.inbox.unread()).unwrap_or_default(),
        };
        let failure = failure.map(ToString::to_string);
        self.shared.access_log.write(&Record {
            time: timestamp(SystemTime::now()),
            id: format!("{:x}-{number:x}", self.shared.started_s),
            peer: self.wire.stream.peer(),
            tls: self.wire.stream.tls_version(),
            method,
            path: path.split('?').next().unwrap_or_default(),
            status: reply.status.code(),
            bytes_in,
            bytes_out,
            seconds: self.began.elapsed().as_secs_f64(),
            range: head.and_then(|head| head.headers.get("range")),
            user_agent: head.and_then(|head| head.headers.get("user-agent")),
            error: failure.as_deref().or(reply.cause.as_deref()),
        });
    }
}

fn not_allowed(shared: &Shared) -> Reply {
    Reply::failure(Status::METHOD_NOT_ALLOWED, "the server does not offer this method")
        .field("Allow", shared.allowed_methods())
}
