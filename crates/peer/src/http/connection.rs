//! One connection: requests go out, responses come back in the same order.
//!
//! A connection that comes from a [`Client`](super::Client) goes back to it when it is dropped, if it may
//! carry another request.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::RESPONSE_HEAD_BYTES_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Speaks, Url};
use gridlane_dav::chunked::{ChunkedDecoder, Step};
use gridlane_dav::response::BodyLength;
use gridlane_dav::{ResponseHead, Status};
use gridlane_net::{IdentityId, Proxy, Route, Speech, Stream};
use gridlane_sys::ReusedBuf;
use gridlane_sys::tcp::TcpInfo;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::refusal::{self, Shown, User, WANTS_TLS};
use super::request::Request;
use crate::credentials::Renewal;
use crate::forwarded::Field;
use crate::patience::Patience;
use crate::pool;

/// Bytes asked for when a head is expected: what comes behind the head is copied once more, so few.
const HEAD_READ_BYTES: usize = 16 * 1024;

/// Reads at once, while a body is sent, of nothing but interim answers: a server that has more of them does not take the
/// body.
const INTERIM_READS_MAX: usize = 16;

/// Longest wait for the text of an error.
const WORDS_MAX: Duration = Duration::from_secs(2);
/// Characters of the first line of a refusal that are shown: a reason may have two distinguished names in it.
const FIRST_LINE_CHARS_MAX: usize = 500;

/// The place of a connection between two uses.
pub(super) type Home = pool::Home<Route, Stream>;

/// The head of a response whose body is read next with [`Connection::read_body`].
#[derive(Debug)]
pub struct Response {
    /// Status and fields.
    pub head: ResponseHead,
    /// True if the connection is usable after the body.
    pub keeps_alive: bool,
}

/// A connection that remembers which requests are unanswered.
pub struct Connection {
    /// `None` only while it is dropped.
    stream: Option<Stream>,
    /// Its place when it is not needed any more.
    home: Option<Home>,
    /// True if it carried requests before.
    is_reused: bool,
    /// Bytes read ahead are `ahead[start..end]`.
    ahead: ReusedBuf,
    start: usize,
    end: usize,
    /// Bytes that one read may bring ahead.
    ahead_step_bytes: usize,
    /// The unanswered requests, oldest first.
    unanswered: VecDeque<Unanswered>,
    body: Body,
    closes: bool,
    /// True if a request was begun and perhaps not sent to its end.
    is_writing: bool,
    /// Bytes of a body that were announced and not sent.
    owed_bytes: u64,
    /// True if anything has come since the last request was sent.
    is_answered: bool,
    /// A head of an answer has come since the last request was sent.
    has_head: bool,
    /// The last answer was to a HEAD, refused it, and told of a body: some servers send that, too.
    is_doubtful: bool,
    /// Time for which the server keeps it open without a request, if it says so.
    idle_max: Option<Duration>,
    /// Credentials of the user that may be shown on it.
    user: User,
    /// Credentials that the request has shown whose answer has come last.
    shown: Shown,
    /// True if an answer has ever come on it.
    is_understood: bool,
    /// Finds out what the server speaks, where it is the server that is at the other end, without TLS.
    speech: Option<Speech>,
}

/// A request whose answer has not come.
struct Unanswered {
    /// Its answer has no body, whatever its head says.
    is_head: bool,
    /// The credentials that it has shown.
    shown: Shown,
}

/// The end of the sending of a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it is on its way.
    All,
    /// Not all: [`Connection::response`] has what the server says instead of taking it.
    Answered,
}

/// Bytes that have come from the server while a body is sent.
enum Heard {
    /// Nothing that ends anything.
    Nothing,
    /// A yes ahead of time: it may still count on the body.
    Success,
    /// A refusal, something that is no answer, or the end of the connection.
    Refusal,
}

enum Body {
    /// Between responses.
    None,
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
}

impl Connection {
    /// A connection over a fresh stream.
    pub fn new(stream: Stream) -> Connection {
        Connection {
            stream: Some(stream),
            home: None,
            is_reused: false,
            ahead: ReusedBuf::new(RESPONSE_HEAD_BYTES_MAX),
            start: 0,
            end: 0,
            ahead_step_bytes: HEAD_READ_BYTES,
            unanswered: VecDeque::new(),
            body: Body::None,
            closes: false,
            is_writing: false,
            owed_bytes: 0,
            is_answered: false,
            has_head: false,
            is_doubtful: false,
            idle_max: None,
            user: User::default(),
            shown: Shown::default(),
            is_understood: false,
            speech: None,
        }
    }

    /// A connection that goes to `home` when it is not needed any more.
    pub(super) fn of_home(stream: Stream, home: Home, is_reused: bool, user: User) -> Connection {
        let mut connection = Connection::new(stream);
        (connection.home, connection.is_reused, connection.user) = (Some(home), is_reused, user);
        connection
    }

    /// Lets it find out what the server speaks if it is not HTTP.
    pub(super) fn asking(mut self, speech: Option<Speech>) -> Connection {
        self.speech = speech;
        self
    }

    /// Switches off that it finds out what the server speaks: an error is told at once.
    pub fn skip_speech_probe(&mut self) {
        self.speech = None;
    }

    /// True if this is a connection that carried requests before and is of no use any more: it was closed, as a server
    /// may at any time, before a byte came in answer to the last request; or what came was no answer, but the rest of an
    /// earlier one (WsgiDAV sends a body after a HEAD that fails). `error` says how that showed.
    pub fn was_stale(&self, error: &Error) -> bool {
        let is_closed = !self.is_answered && self.is_between_answers() && error.kind() == ErrorKind::Network;
        let is_littered = !self.has_head && error.kind() == ErrorKind::Protocol;
        self.is_reused && (is_closed || is_littered)
    }

    /// True if it carried requests before it was handed out.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// The bare stream, for something else than HTTP; an error when something has come already.
    pub(super) fn into_stream(mut self) -> Result<Stream> {
        match self.stream.take().filter(|_| self.is_between_answers() && self.unanswered.is_empty()) {
            Some(stream) => Ok(stream),
            None => Err(Error::new(ErrorKind::Protocol, "the proxy spoke before it was its turn")),
        }
    }

    /// True if it may carry another request: everything was sent and everything was answered and read.
    fn is_reusable(&self) -> bool {
        self.is_between_answers()
            && self.unanswered.is_empty()
            && self.owed_bytes == 0
            && !self.closes
            && !self.is_writing
    }

    fn stream(&mut self) -> io::Result<&mut Stream> {
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // A future that is dropped, or fails here, leaves a request that is cut short.
        self.is_writing = true;
        let stream = self.stream().map_err(|cause| broken("cannot send", &cause))?;
        stream.write_all(bytes).await.map_err(|cause| broken("cannot send", &cause))?;
        self.is_writing = false;
        Ok(())
    }

    /// For people: the other end's address, which may be a proxy's, and the version of TLS if it is spoken.
    pub fn describe(&self) -> String {
        let Some(stream) = &self.stream else { return "closed".to_owned() };
        let tls = stream.tls_version().map_or("no TLS".to_owned(), |version| version.replace("TLSv", "TLS "));
        format!("{}, {tls}", stream.peer())
    }

    /// Smallest round trip that the kernel has seen.
    pub fn round_trip(&self) -> Option<Duration> {
        self.path().map(|info| info.round_trip)
    }

    /// Its other end: the server, or a proxy in front of it.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.as_ref().map(Stream::peer)
    }

    /// The certificate that the server has shown (DER), which was verified; `None` without TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        let shown = self.stream.as_ref()?.peer_certificates().first()?;
        Some(shown.as_ref())
    }

    /// Like [`round_trip`](Connection::round_trip), with everything else that the kernel has seen.
    pub fn path(&self) -> Option<TcpInfo> {
        self.stream.as_ref()?.tcp_info().ok().filter(|info| !info.round_trip.is_zero())
    }

    /// Sends a request; a body that is not part of it follows with `write_body`.
    pub async fn send(&mut self, request: &Request<'_>) -> Result<()> {
        let proxy = self.home.as_ref().and_then(|home| home.key().forwarder()).cloned();
        self.send_to(request, proxy.as_ref()).await
    }

    /// Sends a request to a proxy, or with `None` to the server itself.
    pub(super) async fn send_to(&mut self, request: &Request<'_>, proxy: Option<&Proxy>) -> Result<()> {
        let bytes = self.begin_request(request, proxy)?;
        self.write(&bytes).await?;
        self.owed_bytes = request.owed_bytes();
        Ok(())
    }

    /// The bytes of a request, which is counted as one to be answered.
    fn begin_request(&mut self, request: &Request<'_>, proxy: Option<&Proxy>) -> Result<Vec<u8>> {
        let token = match proxy {
            None if !request.has_credentials() => self.user.token()?,
            _ => None,
        };
        let shown = self.user.shown(request, proxy, token.as_ref());
        let fields: Vec<&Field> = self.user.fields().collect();
        let mut bytes = request.head_to(proxy, token.as_ref().map(|token| &token.secret), &fields)?;
        bytes.extend_from_slice(request.body.unwrap_or_default());
        (self.is_answered, self.has_head) = (false, false);
        // What follows a proxy's yes to CONNECT is no body either.
        let is_head = matches!(request.method, "HEAD" | "CONNECT");
        self.unanswered.push_back(Unanswered { is_head, shown });
        Ok(bytes)
    }

    /// Sends requests that have no bodies, all at once; returns how many bytes they are. What cannot be sent for a reason
    /// of its own (a token that is not there any more) leaves a connection that is of no use.
    pub async fn send_all(&mut self, requests: &[Request<'_>]) -> Result<usize> {
        let proxy = self.home.as_ref().and_then(|home| home.key().forwarder()).cloned();
        let mut bytes = Vec::new();
        for request in requests {
            match self.begin_request(request, proxy.as_ref()) {
                Ok(head) => bytes.extend_from_slice(&head),
                Err(error) => {
                    self.is_writing = true;
                    return Err(error);
                }
            }
        }
        self.write(&bytes).await?;
        Ok(bytes.len())
    }

    /// Reads further ahead from now on, for many answers of which each is small: up to `bytes` with one call, heads and
    /// bodies alike. What [`Connection::body_ahead`] returns is not copied once more.
    pub fn read_far_ahead(&mut self, bytes: usize) {
        let mut ahead = ReusedBuf::new(bytes.max(RESPONSE_HEAD_BYTES_MAX));
        let ready = self.end - self.start;
        ahead[..ready].copy_from_slice(&self.ahead[self.start..self.end]);
        (self.ahead, self.start, self.end) = (ahead, 0, ready);
        self.ahead_step_bytes = self.ahead.len();
    }

    /// Waits until bytes were read ahead, or none will come. May be dropped and called again.
    pub async fn wait_ahead(&mut self) {
        if self.start == self.end {
            // What went wrong shows again.
            let _ = self.fill().await;
        }
    }

    /// True if bytes were read ahead.
    pub fn has_ahead(&self) -> bool {
        self.start < self.end
    }

    /// Waits for the next bytes of the current body, whose length its head has told, where they lie; empty when it has
    /// ended. What is returned is taken. May be dropped and called again: no byte is lost.
    pub async fn body_ahead(&mut self) -> Result<&[u8]> {
        let left = match self.body {
            Body::None => return Ok(&[]),
            Body::Known(left) => left,
            _ => {
                return Err(Error::new(ErrorKind::Other, "a body of unknown length was asked for by length"));
            }
        };
        if self.start == self.end
            && self.fill().await.map_err(|cause| broken("the body broke off", &cause))? == 0
        {
            return Err(truncated(left));
        }
        let count = (self.end - self.start).min(usize::try_from(left).unwrap_or(usize::MAX));
        let at = self.start;
        self.start += count;
        self.body = if left == count as u64 { Body::None } else { Body::Known(left - count as u64) };
        Ok(&self.ahead[at..at + count])
    }

    /// Sends bytes of a body, as long as the server does not say that it wants none (RFC 9112, 9.5). An error of kind
    /// `Timeout` when it takes none for `stall_max`.
    pub async fn write_body(&mut self, bytes: &[u8], stall_max: Duration) -> Result<Sent> {
        self.is_writing = true;
        let mut rest = bytes;
        let mut patience = Patience::new(stall_max);
        loop {
            // A server that never stops talking must not keep others from their turn.
            consume_budget().await;
            // The reactor knows whether something has come: looking is no system call.
            let listens = match self.listen()? {
                Heard::Nothing => true,
                Heard::Success => false,
                Heard::Refusal => return Ok(Sent::Answered),
            };
            let stream = self.stream().map_err(|cause| broken("cannot send", &cause))?;
            match stream.try_write(rest, false).map_err(|cause| broken("cannot send", &cause))? {
                Some(taken) => {
                    rest = &rest[taken..];
                    if rest.is_empty() && !stream.has_unsent() {
                        break;
                    }
                    patience.renew(stall_max);
                }
                // Also when there is always something to hear.
                None if patience.is_over() => {
                    let message =
                        format!("the server takes no bytes any more, for {} s", stall_max.as_secs_f64());
                    return Err(Error::new(ErrorKind::Timeout, message));
                }
                None => {
                    let ready = patience.bear(stream.ready(listens, true)).await;
                    // When the time is over, one last look.
                    ready.unwrap_or(Ok(())).map_err(|cause| broken("cannot send", &cause))?;
                }
            }
        }
        self.is_writing = false;
        self.owed_bytes = self.owed_bytes.saturating_sub(bytes.len() as u64);
        Ok(Sent::All)
    }

    /// Takes what has come while a body is sent, without waiting. Interim answers are skipped.
    fn listen(&mut self) -> Result<Heard> {
        let mut reads = 0;
        loop {
            match ResponseHead::parse(&self.ahead[self.start..self.end]) {
                Ok(Some((head, used))) if head.status.is_informational() => {
                    self.start += used;
                    self.has_head = true;
                    continue;
                }
                Ok(Some((head, _))) if head.status.is_success() => return Ok(Heard::Success),
                // What is wrong with it shows when it is asked for.
                Ok(Some(_)) | Err(_) => return Ok(Heard::Refusal),
                Ok(None) if reads == INTERIM_READS_MAX => return Ok(Heard::Refusal),
                Ok(None) => reads += 1,
            }
            let room = self.make_room();
            let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected);
            let came =
                stream.map_err(io::Error::from).and_then(|stream| stream.try_read(&mut self.ahead[room]));
            match came.map_err(|cause| broken("cannot send", &cause))? {
                None => return Ok(Heard::Nothing),
                Some(0) => return Ok(Heard::Refusal),
                Some(count) => {
                    self.end += count;
                    self.is_answered = true;
                }
            }
        }
    }

    /// Waits for the head of the oldest unanswered request's response, behind the body of the one before
    /// it. Interim responses are skipped. May be dropped and called again.
    pub async fn response(&mut self) -> Result<Response> {
        loop {
            let head = self.any_head().await?;
            if !head.status.is_informational() {
                return self.begin(head);
            }
        }
    }

    /// Like [`Connection::response`], but an interim 100 ends the wait too: `None`.
    pub async fn response_or_continue(&mut self) -> Result<Option<Response>> {
        loop {
            let head = self.any_head().await?;
            match head.status {
                Status::CONTINUE => return Ok(None),
                // 102, 103: neither a yes nor a no.
                status if status.is_informational() => {}
                _ => return self.begin(head).map(Some),
            }
        }
    }

    async fn any_head(&mut self) -> Result<ResponseHead> {
        if !matches!(self.body, Body::None) {
            return Err(Error::new(ErrorKind::Other, "a response was asked for inside of a body"));
        }
        loop {
            match ResponseHead::parse(&self.ahead[self.start..self.end]) {
                Ok(Some((head, used))) => {
                    self.start += used;
                    (self.has_head, self.is_understood) = (true, true);
                    return Ok(head);
                }
                Ok(None) => {}
                Err(error) => return Err(self.not_http().unwrap_or(error)),
            }
            let error = match self.fill().await.map_err(|cause| broken("no answer", &cause)) {
                Ok(1..) => continue,
                Ok(0) if self.start < self.end => {
                    Error::new(ErrorKind::Network, "the connection ended inside of a response head")
                }
                Ok(0) => Error::new(ErrorKind::Network, "the server closed the connection without an answer"),
                Err(error) => error,
            };
            return Err(self.speaks_otherwise().await.unwrap_or(error));
        }
    }

    /// The error for first bytes that are a sign of another protocol.
    fn not_http(&self) -> Option<Error> {
        let stream = self.stream.as_ref().filter(|_| !self.is_understood)?;
        let found = Speaks::of(&self.ahead[self.start..self.end]).filter(|found| *found != Speaks::Http)?;
        Some(found.error(if stream.tls_version().is_some() { "https" } else { "http" }))
    }

    /// The error for a server that speaks another protocol, where the connection broke before anything came.
    async fn speaks_otherwise(&self) -> Option<Error> {
        let speech = self.speech.as_ref().filter(|_| !self.is_reused && !self.is_understood)?;
        let address = self.stream.as_ref().filter(|_| self.start == self.end)?.peer();
        Some(speech.instead_of(&Speaks::Http, address).await?.error("http"))
    }

    fn begin(&mut self, head: ResponseHead) -> Result<Response> {
        let Unanswered { is_head: was_head, shown } = self
            .unanswered
            .pop_front()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "the server sent an answer without a request"))?;
        self.shown = shown;
        self.is_doubtful = was_head
            && !head.status.is_success()
            && head.content_length().is_ok_and(|length| length != Some(0));
        // The end of an answer is unknown when its length cannot be read: what follows is no answer.
        let length = head.body_length(was_head).inspect_err(|_| self.closes = true)?;
        self.body = match length {
            BodyLength::Known(0) => Body::None,
            BodyLength::Known(length) => Body::Known(length),
            BodyLength::Chunked => Body::Chunked(Box::default()),
            BodyLength::UntilClose => Body::UntilClose,
        };
        let keeps_alive = head.keeps_alive() && !matches!(self.body, Body::UntilClose);
        // A server that answers before it has the body may or may not wait for the rest of it.
        self.closes |= !keeps_alive || self.owed_bytes > 0;
        self.idle_max = head.keep_alive_timeout();
        Ok(Response { head, keeps_alive })
    }

    /// True if the current response's body has been read to its end.
    pub fn body_ended(&self) -> bool {
        matches!(self.body, Body::None)
    }

    /// True if the next byte would be the first of an answer.
    pub fn is_between_answers(&self) -> bool {
        self.body_ended() && self.start == self.end
    }

    /// True if the server has said that it closes the connection.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Waits for bytes of the current body; 0 when it has ended. A body that breaks off is an error.
    /// May be dropped and called again: no byte is lost.
    pub async fn read_body(&mut self, target: &mut [u8]) -> Result<usize> {
        match &mut self.body {
            Body::None => Ok(0),
            Body::Known(left) => {
                let room = target.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let left_before = *left;
                let count = self.take(&mut target[..room], left_before).await?;
                if count == 0 {
                    return Err(truncated(left_before));
                }
                let left = left_before - count as u64;
                self.body = if left == 0 { Body::None } else { Body::Known(left) };
                Ok(count)
            }
            Body::UntilClose => {
                let count = self.take(target, 0).await?;
                if count == 0 {
                    self.body = Body::None;
                }
                Ok(count)
            }
            Body::Chunked(_) => self.read_chunked(target).await,
        }
    }

    async fn read_chunked(&mut self, target: &mut [u8]) -> Result<usize> {
        loop {
            let Body::Chunked(decoder) = &mut self.body else { return Ok(0) };
            let expected = decoder.data_expected();
            if self.start == self.end && expected > 0 {
                // Nothing read ahead and inside of a chunk: past the decoder, straight to the target.
                let room = target.len().min(usize::try_from(expected).unwrap_or(usize::MAX));
                let stream = self.stream.as_mut().ok_or_else(|| truncated(expected))?;
                let count = stream.read(&mut target[..room]).await;
                let count = count.map_err(|cause| broken("the body broke off", &cause))?;
                if count == 0 {
                    return Err(truncated(expected));
                }
                decoder.data_taken(count as u64);
                return Ok(count);
            }
            let room = target.len().min(self.end - self.start);
            let (step, used) = decoder.step(&self.ahead[self.start..self.start + room])?;
            let data = match step {
                Step::Data(data) => {
                    target[..data.len()].copy_from_slice(data);
                    Some(data.len())
                }
                Step::NeedsMore => None,
                Step::End => Some(0),
            };
            self.start += used;
            match data {
                Some(0) => {
                    self.body = Body::None;
                    return Ok(0);
                }
                Some(count) => return Ok(count),
                None if self.start < self.end => {}
                None => {
                    if self.fill().await.map_err(|cause| broken("the body broke off", &cause))? == 0 {
                        return Err(truncated(1));
                    }
                }
            }
        }
    }

    /// Reads the rest of the current body and throws it away, if it is at most `max` bytes and comes soon.
    pub async fn drain(&mut self, max: usize) -> Result<()> {
        let mut buf = vec![0; 8 * 1024];
        let mut left = max;
        let read = async {
            loop {
                match self.read_body(&mut buf).await? {
                    0 => return Ok(()),
                    count if count <= left => left -= count,
                    _ => return Err(Error::new(ErrorKind::Protocol, "the body is longer than it may be")),
                }
            }
        };
        timeout(WORDS_MAX, read)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "the body of an error does not come")))
    }

    /// The current body as text for a message: its first line, without control characters. What does not
    /// come soon is not waited for.
    pub async fn first_line(&mut self) -> String {
        let mut buf = [0; 1024];
        let mut filled = 0;
        let read = async {
            while filled < buf.len() {
                match self.read_body(&mut buf[filled..]).await {
                    Ok(count) if count > 0 => filled += count,
                    _ => break,
                }
            }
        };
        let _ = timeout(WORDS_MAX, read).await;
        let text = String::from_utf8_lossy(&buf[..filled]);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        match line.starts_with('<') {
            // Of a page, which is no sentence, the one that says what to do about it.
            true if WANTS_TLS.iter().any(|words| text.contains(words)) => WANTS_TLS[0].to_owned(),
            true => String::new(),
            false => line.chars().filter(|c| !c.is_control()).take(FIRST_LINE_CHARS_MAX).collect(),
        }
    }

    /// The error that the current answer is, with the first line of its text, and, if it refuses access, with the
    /// credentials of the request. `url` is the one that was asked for.
    pub async fn refused(&mut self, url: &Url, head: &ResponseHead) -> Error {
        let said = self.first_line().await;
        self.refused_saying(url, head, &said)
    }

    /// The same, when the first line has been read.
    pub fn refused_saying(&self, url: &Url, head: &ResponseHead, said: &str) -> Error {
        refusal::error(head, said, url, &self.shown, SystemTime::now())
    }

    /// What there is in place of the credential of the request whose answer has come last, if that answer refuses it: the same
    /// request may be made once more, on another connection of the client, if there is [another](Renewal::Another).
    pub fn renewal(&self, head: &ResponseHead) -> Renewal {
        match head.status.code() {
            401 | 403 => self.user.renewal(&self.shown, self.identity()),
            _ => Renewal::Same,
        }
    }

    /// The same for a connection that has ended with `error`: a server may take the certificate of a connection and end it
    /// when the first request comes (with TLS 1.3 it says so after the handshake).
    pub fn renewal_of_certificate(&self, error: &Error) -> Renewal {
        match (error.kind(), self.user.credentials().certificate()) {
            (ErrorKind::Denied, Some(_)) => self.user.credentials().renew_certificate(self.identity()),
            _ => Renewal::Same,
        }
    }

    /// The identity that it belongs to.
    fn identity(&self) -> IdentityId {
        self.home.as_ref().map(|home| home.key().identity().id()).unwrap_or_default()
    }

    /// The text of a server's answer to the last request for `url`, without the secrets that it was shown.
    pub fn scrubbed(&self, url: &Url, said: &str) -> String {
        refusal::scrubbed(said, url, &self.shown)
    }

    /// Bytes read ahead first, then the stream, from which at least `certain_bytes` are to come.
    async fn take(&mut self, target: &mut [u8], certain_bytes: u64) -> Result<usize> {
        let ready = (self.end - self.start).min(target.len());
        if ready > 0 {
            target[..ready].copy_from_slice(&self.ahead[self.start..self.start + ready]);
            self.start += ready;
            return Ok(ready);
        }
        let stream = self.stream().map_err(|cause| broken("the body broke off", &cause))?;
        stream.read_of(target, certain_bytes).await.map_err(|cause| broken("the body broke off", &cause))
    }

    /// Reads more ahead; 0 at the end of the stream.
    async fn fill(&mut self) -> io::Result<usize> {
        let room = self.make_room();
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let count = stream.read(&mut self.ahead[room]).await?;
        self.end += count;
        self.is_answered |= count > 0;
        Ok(count)
    }

    /// The room for the next bytes that are read ahead.
    fn make_room(&mut self) -> Range<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.ahead.len() - self.end < HEAD_READ_BYTES {
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.end..self.ahead.len().min(self.end + self.ahead_step_bytes)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_reusable()
            && let (Some(stream), Some(home)) = (self.stream.take(), &self.home)
        {
            home.take_back(stream, self.idle_max, self.is_doubtful);
        }
    }
}

fn broken(what: &str, cause: &io::Error) -> Error {
    gridlane_net::tls::rejection(cause).unwrap_or_else(|| Error::network(what, cause))
}

fn truncated(missing: u64) -> Error {
    let message = format!("the connection ended at least {missing} bytes before the end of the body");
    Error::new(ErrorKind::Network, message).fault(Fault::Peer)
}

#[cfg(test)]
mod tests;
