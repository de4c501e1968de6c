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

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use gridlane_core::{Secret, limits};
use gridlane_dav::request::RequestHead;
use gridlane_dav::{Method, Status, Version};
use gridlane_net::Stream;
use tokio::sync::watch;
use tokio::time::{Instant as Deadline, timeout_at};

use crate::access_log::{Record, loggable, timestamp};
use crate::auth;
use crate::auth::certificates::PeerChain;
use crate::auth::keys::now_s;
use crate::body::{Body, Inbox, Wire};
use crate::client::{Client, Decided};
use crate::front::Front;
use crate::gather::{Ending, Piece, SmallPayload};
use crate::generation::{Current, Generation};
use crate::host_name::is_our_name;
use crate::idle::{Idle, Interruption, PhaseWatch};
use crate::linger::linger;
use crate::metrics::Metrics;
use crate::phase::Phase;
use crate::reply::{Payload, Reply};
use crate::request_id::request_id;
use crate::service::{Exchange, Service};
use crate::settings::LogLevel;
use crate::throttle::{By, Connected, Paces, Parties};
use crate::transfer::{CLIENT_PACES, Framing, Patience, Sender};
use crate::{admin, forwarded, gather, transfer};
use gridlane_share::budget::{self, Holder};

/// Without a request for this long, a connection gives back its TLS buffers (356 KiB). Not at once: a client
/// that asks for one file after the other would have them made anew for each.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// The buffer of an answer is kept for the next one, unless it has become larger: the largest small payload and its
/// head.
const ANSWER_KEPT_BYTES: usize = gather::SMALL_BYTES as usize + 4096;

/// The path of the metrics, for clients that may administer the server: no service has such names.
const METRICS_NAMES: [&[u8]; 2] = [b".gridlane", b"metrics"];

/// The next event on the connection.
enum Next {
    Request(RequestHead),
    /// Something that gets an answer, and nothing after it.
    Refused(Reply),
    /// Nothing: the connection ends without an answer.
    Ended,
}

/// One connection, protocol detected and TLS established.
pub(crate) struct Connection<S: Service> {
    /// The generation at the beginning of the request in hand.
    generation: Arc<Generation<S>>,
    /// Its front.
    front: Arc<Front>,
    /// The generation of this moment.
    current: Current<S>,
    wire: Wire,
    phase: PhaseWatch,
    idle: Idle,
    metrics: Arc<Metrics>,
    /// Where heads and small answers are put together; empty between two requests.
    answer: Vec<u8>,
    /// The client is on this machine, where a web page's scripts are as well: it has to call us by a name
    /// that is ours.
    is_local: bool,
    /// The certificate that the client has shown.
    chain: PeerChain,
    /// The user and virtual organisation that it is counted for, beside its address, as far as they have limits.
    counted: (Parties, Connected),
    /// The request in hand.
    request: InHand,
    /// State that the service keeps for the next request.
    kept: S::Kept,
    /// The time when the last answer was sent, if it was a part of a file: others of the same file may be asked for.
    part_sent: Option<Instant>,
}

/// A request in hand, without its head.
struct InHand {
    /// The time of its first byte.
    began: Instant,
    /// Unique among the requests of this process, and nearly so among all.
    id: String,
    client: Client,
    /// The macaroon by which the client has authenticated, if it did so by one.
    macaroon: Option<Secret>,
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(
        mut current: Current<S>,
        stream: Stream,
        phase: watch::Receiver<Phase>,
        is_local: bool,
    ) -> Connection<S> {
        let generation = Arc::clone(&current.borrow_and_update());
        let front = Arc::clone(&generation.front);
        let client = Client::anonymous(stream.peer().ip().to_canonical());
        let request = InHand { began: Instant::now(), id: String::new(), client, macaroon: None };
        let wire = Wire { stream, inbox: Inbox::default() };
        let (chain, counted) = (PeerChain::default(), Default::default());
        let (idle, phase) = (Idle::new(phase.clone(), RELEASE_AFTER), PhaseWatch::new(phase));
        let (metrics, answer) = (Arc::clone(&front.data.metrics), Vec::new());
        Connection {
            generation,
            front,
            current,
            wire,
            phase,
            idle,
            metrics,
            answer,
            is_local,
            chain,
            counted,
            request,
            kept: S::Kept::default(),
            part_sent: None,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        if let Err(by) = self.count_certificate() {
            return self.turn_away(Excess::Party(by)).await;
        }
        loop {
            let closes = match self.next_request().await {
                Next::Request(head) => {
                    let peer = self.request.client.address;
                    let address = forwarded::client(&head.headers, peer, &self.front.trusted_forwarders);
                    self.request.client.address = address;
                    budget::go_on_as(Holder::of(address));
                    let admitted = self.admit(&head).await;
                    let paces = self.paces(address);
                    // Made where it stays: it has room for every method's state, and would be copied.
                    let mut exchange = pin!(self.exchange(&head, admitted));
                    match paces.are_none() {
                        true => exchange.await,
                        false => CLIENT_PACES.scope(paces, exchange.as_mut()).await,
                    }
                }
                Next::Refused(reply) => self.refuse(reply).await,
                Next::Ended => return,
            };
            match closes {
                Ok(false) => {}
                Ok(true) => return self.close().await,
                // The client is gone, or takes nothing: there is no end in good order.
                Err(_) => return,
            }
        }
    }

    /// Gives the one answer that there is when there are too many connections.
    pub(crate) async fn turn_away(mut self, why: Excess) {
        let reply = match why {
            Excess::Server => {
                Reply::failure(Status::SERVICE_UNAVAILABLE, "the server has too many connections open")
            }
            Excess::Protocol => {
                let what = "the server has too many connections open for HTTP";
                Reply::failure(Status::SERVICE_UNAVAILABLE, what)
            }
            Excess::Party(by) => too_many(by),
        };
        self.begin();
        if self.refuse(reply.closing()).await.is_ok() {
            self.close().await;
        }
    }

    /// The rate limits that hold for the request in hand.
    fn paces(&self, address: IpAddr) -> Paces {
        let (limits, throttle) = (&self.front.limits, &self.front.throttle);
        if limits.are_none() {
            return Paces::default();
        }
        let of_user = throttle.paces(&limits.of_identity(&self.request.client.identity));
        throttle.paces(&limits.of_address(address)).and(of_user)
    }

    /// Counts the connection for the identity of its certificate: before there is a request.
    fn count_certificate(&mut self) -> Result<(), By> {
        let front = Arc::clone(&self.front);
        if front.limits.user_and_vo_are_none() {
            return Ok(());
        }
        match self.chain.judged(&front, &self.wire.stream, now_s()) {
            Some(judged) => self.count(&front.limits.of_identity(&judged.identity)),
            None => Ok(()),
        }
    }

    /// Counts the connection for these, and no longer for those that it was counted for before.
    fn count(&mut self, parties: &Parties) -> Result<(), By> {
        if self.counted.0 != *parties {
            self.counted = Default::default();
            let counted = self.front.count(self.wire.stream.peer().ip(), parties);
            let connected = counted.inspect_err(|by| self.front.data.metrics.refused(*by))?;
            self.counted = (parties.clone(), connected);
        }
        Ok(())
    }

    async fn next_request(&mut self) -> Next {
        if self.wire.inbox.unread().is_empty() && !self.first_bytes().await {
            return Next::Ended;
        }
        self.begin();
        let deadline = Deadline::from_std(self.request.began) + self.front.data.deadlines.head;
        loop {
            match RequestHead::parse(self.wire.inbox.unread()) {
                Ok(Some((head, used))) => {
                    self.wire.inbox.consume(used);
                    return Next::Request(head);
                }
                Ok(None) => {}
                Err(rejection) => return Next::Refused(Reply::rejection(rejection)),
            }
            match Box::pin(timeout_at(deadline, self.wire.fill())).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false) | Err(_)) => return Next::Ended,
                Err(_) => {
                    let what = "the request head did not come in time";
                    return Next::Refused(Reply::failure(Status::REQUEST_TIMEOUT, what).closing());
                }
            }
        }
    }

    /// Waits for a request to begin; false if none does.
    async fn first_bytes(&mut self) -> bool {
        if self.phase.now() == Phase::Stopping {
            return self.next_part().await;
        }
        let (now, deadline) = (Deadline::now(), self.front.data.deadlines.idle);
        let (release_at, end) = (now + RELEASE_AFTER.min(deadline), now + deadline);
        let idling = self.metrics.idle.one();
        let mut due = release_at;
        loop {
            // Not by a future that reads: it would have room for all that can come up meanwhile, and is made for each request.
            match self.wire.try_fill() {
                Ok(None) => {}
                has_come => return has_come.is_ok_and(|has_come| has_come == Some(true)),
            }
            let (stream, idle) = (&self.wire.stream, &mut self.idle);
            let next = poll_fn(|context| match stream.poll_readable(context) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => idle.poll(context, due).map(Some),
            });
            let Some(interruption) = next.await else { continue };
            if interruption == Interruption::Stopping {
                drop(idling);
                return self.next_part().await;
            }
            if Deadline::now() >= end {
                return false;
            }
            self.wire.stream.release_buffers();
            self.answer = Vec::new();
            self.kept = S::Kept::default();
            due = end;
        }
    }

    /// While the server stops: waits for a request of a client that has just fetched a part of a file; false if none
    /// comes. The client's pause begins when it has the part, and not when the kernel has.
    async fn next_part(&mut self) -> bool {
        let Some(sent) = self.part_sent else { return false };
        let pause = self.front.data.deadlines.drain_pause;
        let mut until = Deadline::from_std(sent) + pause;
        loop {
            let now = Deadline::now();
            if self.wire.stream.is_draining() {
                until = now + pause;
            }
            let look = until.min(now + limits::DRAIN_LOOK);
            match Box::pin(timeout_at(look, self.wire.fill())).await {
                Ok(filled) => return matches!(filled, Ok(true)),
                Err(_) if look < until || self.wire.stream.is_draining() => {}
                Err(_) => return false,
            }
        }
    }

    /// Begins a request: the configuration of this moment holds to its end.
    fn begin(&mut self) {
        if self.current.has_changed().unwrap_or(false) {
            self.generation = Arc::clone(&self.current.borrow_and_update());
            self.front = Arc::clone(&self.generation.front);
        }
        let number = self.front.data.metrics.began.next();
        let address = self.wire.stream.peer().ip().to_canonical();
        let is_logged = self.front.access_log.is_on() || self.front.audit_log.is_on();
        self.request = InHand {
            began: Instant::now(),
            id: request_id(self.front.started_s, number),
            client: if is_logged { Client::anonymous(address) } else { Client::unlogged(address) },
            macaroon: None,
        };
    }

    /// Has the service answer, but for what is the front's own.
    async fn decide(&mut self, head: &RequestHead, body: &mut Body) -> Reply {
        let client = &self.request.client;
        // Other clients are not told that there is something.
        if let (Method::Get | Method::Head, Some(path)) = (&head.method, head.path())
            && path.names().eq(METRICS_NAMES)
            && self.front.may_administer(client)
        {
            let phase = self.phase.now();
            return Box::pin(admin::metrics(&self.generation, phase)).await;
        }
        let exchange = Exchange {
            head,
            body,
            wire: &mut self.wire,
            client,
            macaroon: self.request.macaroon.as_ref(),
            began: self.request.began,
            id: &self.request.id,
            phase: &self.phase,
            kept: &mut self.kept,
        };
        self.generation.service.answer(exchange).await
    }

    /// Answers a request, if it was admitted; returns true if the connection is to be closed.
    async fn exchange(&mut self, head: &RequestHead, admitted: Result<(), Reply>) -> io::Result<bool> {
        let mut body = Body::new(head.body);
        let uploading =
            (head.method == Method::Put).then(|| self.front.data.metrics.one(|metrics| &metrics.uploads));
        let reply = match admitted {
            Ok(()) => self.decide(head, &mut body).await,
            Err(reply) => reply,
        };
        drop(uploading);
        let mut reply = self.generation.service.finish(head, &self.request.client, reply);
        if reply.status == Status::CLIENT_LEFT {
            self.record(&reply, Some(head), body.received(), 0, None);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        // A client that fetches a file part by part has no other connection to go on with.
        let is_part = head.method == Method::Get && reply.status == Status::PARTIAL_CONTENT;
        let is_last = self.phase.now() > Phase::Serving && !is_part;
        let closes = !head.keeps_alive || !body.is_ended() || is_last;
        let complete = |mut reply: Reply| {
            // Only its end tells a client without chunks where a stream ends.
            let has_no_end =
                head.version == Version::Http10 && matches!(reply.payload, Payload::Stream { .. });
            reply.closes |= closes || has_no_end;
            reply.field("X-Request-Id", &self.request.id)
        };
        reply = complete(reply);
        let mut answer = std::mem::take(&mut self.answer);
        reply.head_into(head.version, &mut answer);
        let mut head_len = answer.len();
        let is_read = head.method != Method::Head && self.front.data.pace.is_none() && !reply.tells_status;
        let mut is_whole = false;
        if let Some(small) = is_read.then(|| SmallPayload::of(&reply.payload)).flatten() {
            match small.read(&mut answer).await {
                Ok(is_there) => is_whole = is_there,
                Err(failure) => {
                    reply = complete(failure);
                    answer.clear();
                    reply.head_into(head.version, &mut answer);
                    head_len = answer.len();
                }
            }
        }
        let mut sent = 0;
        let outcome = self.send(&mut reply, head, &mut answer, (head_len, is_whole), &mut sent).await;
        if answer.capacity() <= ANSWER_KEPT_BYTES {
            answer.clear();
            self.answer = answer;
        }
        self.part_sent = is_part.then(Instant::now);
        let failure = outcome.as_ref().map_or_else(Some, Option::as_ref);
        self.record(&reply, Some(head), body.received(), sent, failure);
        outcome.map(|_| reply.closes)
    }

    /// Checks that a request is for this server and within the limits, and finds its client.
    async fn admit(&mut self, head: &RequestHead) -> Result<(), Reply> {
        let front = &*self.front;
        let address = self.request.client.address;
        if self.is_local && !head.host().is_none_or(|host| is_our_name(host, &front.host_names)) {
            let what = "the Host is neither an address nor a name of this machine";
            return Err(Reply::failure(Status::MISDIRECTED_REQUEST, what));
        }
        // Before the authentication, which costs most.
        take_request(front, &front.limits.of_address(address))?;
        let (stream, chain, client) = (&self.wire.stream, &mut self.chain, self.request.client.clone());
        let peer = stream.peer().ip().to_canonical();
        let is_secure = stream.is_tls()
            || address.is_loopback() && stream.proxy().is_none()
            || forwarded::is_https(&head.headers, peer, &front.trusted_forwarders);
        let (client, macaroon) =
            auth::authenticate(front, head, auth::Via { client, is_secure, stream, chain }).await?;
        (self.request.client, self.request.macaroon) = (client, macaroon);
        let parties = front.limits.of_identity(&self.request.client.identity);
        if !parties.are_none() {
            self.count(&parties).map_err(|by| too_many(by).closing())?;
            take_request(&self.front, &parties)?;
        }
        Ok(())
    }

    /// The data plane of an answer. Its head is in `answer`: `head_len` bytes; and if `is_whole`, all of its payload is
    /// behind it. Counts the payload's bytes in `sent`, also when it fails. A failure that the client was told of is
    /// inside of `Ok`.
    async fn send(
        &mut self,
        reply: &mut Reply,
        head: &RequestHead,
        answer: &mut Vec<u8>,
        (head_len, is_whole): (usize, bool),
        sent: &mut u64,
    ) -> io::Result<Option<io::Error>> {
        let mut patience = match reply.lease {
            None => Patience::new(&self.front.data.deadlines),
            Some(_) => Patience::of_memory(&self.front.data.deadlines),
        };
        let stream = &mut self.wire.stream;
        // The head and each step would end in a packet that is not full, and a large file is many steps.
        let fills_packets = matches!(reply.payload, Payload::File { .. })
            && !(reply.tells_status || is_whole || head.method == Method::Head || stream.is_tls())
            && self.front.data.pace.is_none()
            && !patience.is_paced();
        if fills_packets {
            stream.fill_packets(true)?;
        }
        let mut behind = None;
        if let (Payload::Bytes(bytes), true) = (&reply.payload, head.method != Method::Head) {
            match bytes.len() as u64 > gather::SMALL_BYTES {
                true => behind = Some(bytes.as_slice()),
                false => answer.extend_from_slice(bytes),
            }
        }
        let mut written = 0;
        let outcome = transfer::write(stream, answer, &mut patience, &mut written).await;
        *sent = written.saturating_sub(head_len as u64);
        if let Err(cause) = outcome {
            if let Payload::Stream { rest, .. } = &mut reply.payload {
                rest.client_left();
            }
            return Err(cause);
        }
        if let Some(behind) = behind {
            return transfer::write(stream, behind, &mut patience, sent).await.map(|()| None);
        }
        if is_whole || head.method == Method::Head {
            return Ok(None);
        }
        let front = &self.front;
        match &mut reply.payload {
            Payload::File { object, range } if reply.tells_status => {
                let whole = std::iter::once(Piece::File(*range));
                let mut sender = Sender::new(&front.data, stream, sent);
                Box::pin(gather::send(&mut sender, object.as_ref(), whole, Ending::Status)).await
            }
            Payload::File { object, range } => {
                let mut sender = Sender::new(&front.data, stream, sent);
                Box::pin(sender.send_object(object.as_ref(), *range)).await?;
                if fills_packets {
                    stream.fill_packets(false)?;
                }
                Ok(None)
            }
            Payload::Parts { object, parts } => {
                let ending = if reply.tells_status { Ending::Status } else { Ending::Length };
                let mut sender = Sender::new(&front.data, stream, sent);
                Box::pin(gather::send(&mut sender, object.as_ref(), gather::pieces(parts), ending)).await
            }
            Payload::Stream { first, rest } => {
                let framing = if head.version == Version::Http11 { Framing::Chunks } else { Framing::Close };
                let first = std::mem::take(first);
                Box::pin(transfer::send_pieces(&front.data, stream, first, rest.as_mut(), framing, sent))
                    .await
                    .map(|()| None)
            }
            Payload::None | Payload::Unmeasured | Payload::Bytes(_) => Ok(None),
        }
    }

    /// Answers what is not a request.
    async fn refuse(&mut self, reply: Reply) -> io::Result<bool> {
        let reply = reply.field("X-Request-Id", &self.request.id);
        let mut bytes = reply.head(Version::Http11);
        if let Payload::Bytes(text) = &reply.payload {
            bytes.extend_from_slice(text);
        }
        let mut sent = 0;
        let mut patience = Patience::new(&self.front.data.deadlines);
        let outcome = transfer::write(&mut self.wire.stream, &bytes, &mut patience, &mut sent).await;
        self.record(&reply, None, 0, reply.payload.len(), outcome.as_ref().err());
        outcome.map(|()| true)
    }

    /// Ends our direction, then reads and drops what the client still sends.
    async fn close(mut self) {
        // What was read ahead, and what the last request opened, is of no use any longer.
        self.wire.inbox = Inbox::default();
        self.kept = S::Kept::default();
        linger(&mut self.wire.stream, &self.front.data.deadlines).await;
    }

    fn record(
        &self,
        reply: &Reply,
        head: Option<&RequestHead>,
        bytes_in: u64,
        bytes_out: u64,
        failure: Option<&io::Error>,
    ) {
        let front = &*self.front;
        front.data.metrics.bytes_in.add(bytes_in);
        front.data.metrics.bytes_out.add(bytes_out);
        let duration = self.request.began.elapsed();
        front.data.metrics.answered(head.map(|head| &head.method), reply.status, duration);
        let is_logged = match front.access_log_level {
            LogLevel::All => true,
            LogLevel::Failures => reply.status.is_error() || failure.is_some(),
        } && front.access_log.is_on();
        let is_audited = head.is_some_and(|head| changes(&head.method)) && front.audit_log.is_on();
        if !is_logged && !is_audited {
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
        let path = path.split('?').next().unwrap_or_default();
        // A path that was understood is encoded, and logged whole; nothing else of a client's text is.
        let (method, refused_path) = (loggable(method), head.is_none().then(|| loggable(path)));
        let path = refused_path.as_deref().unwrap_or(path);
        let decided = self.request.client.decision();
        let failure = failure.map(ToString::to_string);
        let field = |name| head.and_then(|head| head.headers.get(name));
        let destination = field("destination").map(without_secrets);
        let stream = &self.wire.stream;
        let client = self.request.client.address;
        let record = Record {
            time: timestamp(SystemTime::now()),
            id: &self.request.id,
            peer: stream.peer(),
            proxy: stream.proxy(),
            client: (client != stream.peer().ip().to_canonical()).then_some(client),
            tls: stream.tls_version(),
            method: &method,
            path,
            destination: destination.as_deref(),
            status: reply.status.code(),
            bytes_in,
            bytes_out,
            seconds: duration.as_secs_f64(),
            range: field("range").map(loggable),
            identity: head.map(|_| &*self.request.client.identity),
            operation: decided.as_ref().and_then(Decided::operation),
            decision: decided.as_ref().map(|decided| decided.outcome.as_str()),
            decided_path: decided.as_ref().and_then(|decided| decided.path_beside(path)),
            user: None,
            user_agent: field("user-agent").map(loggable),
            client_id: field("x-request-id").map(loggable),
            client_info: field("clientinfo").map(loggable),
            error: failure.as_deref().or(reply.cause.as_deref()),
        };
        if is_logged {
            front.access_log.write(&record);
        }
        if is_audited {
            front.audit_log.write(&record);
        }
    }
}

/// The limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Connections altogether.
    Server,
    /// Connections by one protocol: the rest is the other's.
    Protocol,
    /// Connections of one client, user or virtual organisation.
    Party(By),
}

/// Takes a request from the allowance of each of these.
fn take_request(front: &Front, parties: &Parties) -> Result<(), Reply> {
    front.throttle.request(parties).map_err(|(by, wait)| {
        front.data.metrics.throttled(by);
        throttled(&format!("{} sends too many requests", by.named()), wait)
    })
}

/// The answer on a connection that is one too many.
fn too_many(by: By) -> Reply {
    throttled(&format!("{} has too many connections open", by.named()), limits::RETRY_AFTER)
}

/// The answer to a client that takes more than its share.
fn throttled(what: &str, wait: Duration) -> Reply {
    // In whole seconds, and never too early.
    let wait_s = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Reply::failure(Status::TOO_MANY_REQUESTS, what).field("Retry-After", wait_s.to_string())
}

/// True if a method changes something, or asks for a macaroon that allows changes.
fn changes(method: &Method) -> bool {
    use Method::{Copy, Delete, Mkcol, Move, Post, Proppatch, Put};
    matches!(method, Put | Delete | Mkcol | Move | Copy | Proppatch | Post)
}

/// A URL or path as it may stand in a log: without a query, which may be a token, and without a password.
fn without_secrets(target: &str) -> String {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    // Encoded like a path that was understood: nothing of it means anything to a terminal.
    let target = &*percent_encoding::utf8_percent_encode(target, percent_encoding::CONTROLS).to_string();
    match target.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
        }
        None => target.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_gets_into_a_log() {
        for (target, logged) in [
            ("https://user:pw@host:1094/a?authz=x", "https://host:1094/a"),
            ("/a@b/c#d", "/a@b/c"),
            ("http://h", "http://h"),
            ("http://u@h", "http://h"),
        ] {
            assert_eq!(without_secrets(target), logged);
        }
    }
}
