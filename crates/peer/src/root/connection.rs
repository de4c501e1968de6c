//! One connection of a session: requests go out, and what comes back is taken apart.
//!
//! A connection that comes from a [`Client`](super::Client) goes back to it when it is dropped, if nothing is under
//! way on it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gridlane_core::limits::{
    CONNECT_MAX, IO_BYTES, ROOT_ANSWER_BYTES_MAX, ROOT_WAIT_MAX, ROOT_WORDS_BYTES_MAX,
};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Secret, Speaks, Url};
use gridlane_net::{Dialer, Dialled, IdentityId, Route, Speech, Stream};
use gridlane_sys::AlignedBuf;
use gridlane_sys::tcp::TcpInfo;
use gridlane_xrd::answer::ErrorAnswer;
use gridlane_xrd::client::{Answers, Expect, Opening, Part, Refused, Said, Session, Signer, Step, Turn};
use gridlane_xrd::{PathId, StreamId, ztn};

use super::gsi::{self, Delegation};
use super::server::Server;
use super::status::{malformed, said, status_error};
use crate::credentials::{Credentials, Renewal};
use crate::http::{without, without_secrets};
use crate::patience::Patience;
use crate::pool::{self, Rests};

/// Bytes asked for when a head is expected: data behind it is copied once more, so few.
const HEAD_READ_BYTES: usize = 4 * 1024;
/// Bytes that are read ahead: the longest answer of an opening fits.
const AHEAD_BYTES: usize = 2 * ROOT_WORDS_BYTES_MAX;

/// Silence after XRootD's handshake from which on it is asked whether something else is spoken there: a server has nothing to
/// think about before it answers that.
const HANDSHAKE_SILENCE: Duration = Duration::from_secs(2);

const _: () = assert!(HEAD_READ_BYTES < AHEAD_BYTES && AHEAD_BYTES <= IO_BYTES);

/// The expectation of an answer that is collected.
pub(super) const COLLECTED: Expect = Expect::Text { bytes_max: ROOT_ANSWER_BYTES_MAX };

/// The place of a session between two uses.
pub(super) type Home = pool::Home<Server, Wire>;

/// The parts of a connection that are kept between two uses of a session.
pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) session: Session,
    /// There is no proxy on the way.
    is_direct: bool,
    /// The identity whose credentials may have been shown on it.
    identity: IdentityId,
    /// The token that was.
    pub(super) token: Option<Secret>,
    /// What signs its requests, where the server wants that.
    signer: Option<Signer>,
    /// What became of the server's wish for a proxy in the login.
    delegation: Delegation,
}

impl Rests for Wire {
    fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    fn release(&mut self) {
        self.stream.release_buffers();
    }
}

/// The next thing that comes on a connection.
#[derive(Debug)]
pub enum Next {
    /// A part of an answer, whose bytes are read with [`Connection::read_data`].
    Part(Part),
    /// Something else than data.
    Said(StreamId, Said),
}

/// The reason why there is no session.
pub(super) enum Unopened {
    /// The server wants it step by step, and has not done what came behind the login.
    StepByStep,
    /// It failed, and it is not known how far the server came.
    Closed(Error),
    /// It failed.
    Failed(Error),
}

/// A connection that is logged in.
pub struct Connection {
    /// `None` only while it is dropped.
    wire: Option<Wire>,
    /// Its place when it is not needed any more.
    home: Option<Home>,
    /// True if it was used before.
    is_reused: bool,
    /// Bytes read ahead are `ahead[start..end]`.
    ahead: AlignedBuf,
    start: usize,
    end: usize,
    answers: Answers,
    /// True if a request was begun and perhaps not sent to its end.
    is_writing: bool,
    /// True if what comes cannot be understood any more.
    is_lost: bool,
    /// True if anything has come since it was handed out.
    is_answered: bool,
    /// Round trips spent before the first request was sent; 0 when the connection was there.
    pub(crate) handshake_round_trips: u32,
}

impl Connection {
    /// Goes on with a session that was idle.
    pub(super) fn resumed(wire: Wire, home: Home) -> Connection {
        Connection {
            wire: Some(wire),
            home: Some(home),
            is_reused: true,
            ahead: AlignedBuf::new(AHEAD_BYTES),
            start: 0,
            end: 0,
            answers: Answers::default(),
            is_writing: false,
            is_lost: false,
            is_answered: false,
            handshake_round_trips: 0,
        }
    }

    /// Connects, and opens a session as `opening` says. `answers` knows of requests that the opening sends. `asks`:
    /// when the server hangs up, it is found out whether something else is spoken there. `ending` gets what else is known at the end of
    /// the login.
    pub(super) async fn open(
        dialer: &Dialer,
        route: &Route,
        url: &Url,
        mut opening: Opening,
        (answers, asks, ending): (Answers, bool, &gsi::Ending),
    ) -> std::result::Result<Connection, Unopened> {
        let failed = |error: Error| Unopened::Failed(error.endpoint(url));
        let Dialled { stream, mut handshake_round_trips } = dialer.dial(route).await.map_err(failed)?;
        if let Ok(local) = stream.local() {
            opening.connected(local);
        }
        let mut wire = Wire {
            stream,
            session: Session::default(),
            is_direct: route.is_direct(),
            identity: route.identity().id(),
            token: None,
            signer: None,
            delegation: Delegation::Unasked,
        };
        let (mut ahead, mut end) = (AlignedBuf::new(AHEAD_BYTES), 0);
        // As long as nothing has come, it may be that something else is spoken there.
        let mut unheard = route.is_direct().then(|| (wire.stream.peer(), dialer.speech().clone()));
        let closed = |cause: &io::Error| {
            let message = "the connection ended before there was a session";
            Unopened::Closed(Error::network(message, cause).endpoint(url))
        };
        let late = |_| {
            let message = format!("it did not open a session within {} s", CONNECT_MAX.as_secs());
            Unopened::Closed(Error::new(ErrorKind::Timeout, message).endpoint(url))
        };
        // However slowly the bytes drip.
        let mut patience = Patience::new(CONNECT_MAX);
        let mut waited = Duration::ZERO;
        loop {
            let output = opening.output();
            if !output.is_empty() {
                let sent = patience.bear(wire.stream.write_all(&output)).await.map_err(late)?;
                sent.map_err(|cause| closed(&cause))?;
                handshake_round_trips += 1;
            }
            let heard;
            (opening, heard) = hear(opening, &ahead[..end]).await.map_err(failed)?;
            let refused = |refused, opening: &Opening| unopened(refused, url, opening, ending);
            let (mut turn, used) = heard.map_err(|why| refused(why, &opening))?;
            ahead.copy_within(used..end, 0);
            end -= used;
            if turn == Turn::StartTls {
                if end > 0 {
                    let message = "it sent more in clear when it was to begin with TLS";
                    return Err(failed(Error::new(ErrorKind::Protocol, message)));
                }
                let secured = dialer.secure(wire.stream, route).await.map_err(failed)?;
                wire.stream = secured.stream;
                handshake_round_trips += secured.handshake_round_trips;
                patience.renew(CONNECT_MAX);
                turn = opening.secured().map_err(|why| refused(why, &opening))?;
            }
            match turn {
                Turn::Ready => break,
                Turn::Wait(seconds) => {
                    let wanted = Duration::from_secs(u64::from(seconds));
                    // What waits for nothing would ask for ever.
                    waited += wanted.max(Duration::from_secs(1));
                    if waited > ROOT_WAIT_MAX {
                        let message = format!("the server asks for a pause of {seconds} s before the login");
                        return Err(failed(Error::new(ErrorKind::Busy, message).retry_after(Some(wanted))));
                    }
                    tokio::time::sleep(wanted).await;
                    patience.renew(CONNECT_MAX);
                    opening.again();
                    continue;
                }
                Turn::StartTls | Turn::Receive => {}
            }
            let output = opening.output();
            if !output.is_empty() {
                let sent = patience.bear(wire.stream.write_all(&output)).await.map_err(late)?;
                sent.map_err(|cause| closed(&cause))?;
                handshake_round_trips += 1;
            }
            let otherwise = speaks_otherwise(unheard.as_ref(), url);
            let came = tokio::select! {
                biased;
                came = patience.bear(wire.stream.read(&mut ahead[end..])) => came.map_err(late)?,
                error = otherwise => return Err(failed(error)),
            };
            let cause = match came {
                Ok(count @ 1..) => {
                    end += count;
                    let first = unheard.take().and_then(|_| Speaks::of(&ahead[..end]));
                    match first.filter(|found| *found != Speaks::Xrootd) {
                        Some(found) => return Err(failed(found.error(url.scheme().name()))),
                        None => continue,
                    }
                }
                Ok(_) => io::ErrorKind::UnexpectedEof.into(),
                Err(cause) => cause,
            };
            let found = match &unheard {
                Some((peer, speech)) if asks => speech.instead_of(&Speaks::Xrootd, *peer).await,
                _ => None,
            };
            return Err(
                found.map_or_else(|| closed(&cause), |found| failed(found.error(url.scheme().name())))
            );
        }
        wire.session = opening.session();
        wire.signer = opening.signer();
        wire.delegation = ending.delegation();
        let output = opening.output();
        if !output.is_empty() {
            let sent = patience.bear(wire.stream.write_all(&output)).await.map_err(late)?;
            sent.map_err(|cause| closed(&cause))?;
        } else {
            // The request was in the flight.
            handshake_round_trips -= 1;
        }
        Ok(Connection {
            wire: Some(wire),
            home: None,
            is_reused: false,
            ahead,
            start: 0,
            end,
            answers,
            is_writing: false,
            is_lost: false,
            is_answered: true,
            handshake_round_trips,
        })
    }

    /// Notes that it is bound to a session, and returns its number there; an error when that is not one that is used here.
    pub(super) fn bound(&mut self) -> Result<PathId> {
        let path_id = self.session().path_id;
        self.answers = Answers::of_path(path_id)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "too many connections of one session"))?;
        Ok(path_id)
    }

    /// Sets the token that the login may have shown.
    pub(super) fn set_token(&mut self, token: Option<Secret>) {
        if let Some(wire) = &mut self.wire {
            wire.token = token;
        }
    }

    /// The identity that it belongs to.
    pub(super) fn identity(&self) -> IdentityId {
        self.wire.as_ref().map(|wire| wire.identity).unwrap_or_default()
    }

    /// What there is in place of the credential of its session, among these, if `error` refuses it.
    pub fn renewal(&self, credentials: &Credentials, error: &Error) -> Renewal {
        let is_of_user = !self.identity().is_anonymous() && error.kind() == ErrorKind::Denied;
        let Some(wire) = self.wire.as_ref().filter(|_| is_of_user) else { return Renewal::Same };
        match &wire.token {
            Some(token) => credentials.renew_token(token),
            None => credentials.renew_certificate(wire.identity),
        }
    }

    /// Sets its place when it is not needed any more.
    pub(super) fn set_home(&mut self, home: Home) {
        self.home = Some(home);
    }

    /// Counts among the connections of `home`, and never goes there: it is of no use without its session.
    pub(super) fn keep_turn(&mut self, home: Home) {
        self.home = Some(home);
        self.give_up();
    }

    /// The state of the session.
    pub(crate) fn session(&self) -> Session {
        self.wire.as_ref().map(|wire| wire.session).unwrap_or_default()
    }

    /// True if TLS protects what is sent.
    pub(crate) fn is_tls(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.stream.is_tls())
    }

    /// What became of the server's wish for a proxy of the user's in the login.
    pub(super) fn delegation(&self) -> Delegation {
        self.wire.as_ref().map(|wire| wire.delegation.clone()).unwrap_or_default()
    }

    /// True if the server wants signatures of requests, and gets them.
    fn is_signing(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.signer.is_some())
    }

    /// For people: the other end's address, the version of TLS if it is spoken, and the way of authentication.
    pub(crate) fn describe(&self) -> String {
        let Some(Wire { stream, .. }) = &self.wire else { return "closed".to_owned() };
        let tls = stream.tls_version().map_or("no TLS".to_owned(), |version| version.replace("TLSv", "TLS "));
        let login = match self.session().method {
            "" => String::new(),
            method => format!(", login by {method}"),
        };
        let signed = if self.is_signing() { ", requests are signed" } else { "" };
        format!("{}, {tls}{login}{signed}", stream.peer())
    }

    /// The server's address; `None` behind a proxy, and once it is closed.
    pub(super) fn server_address(&self) -> Option<SocketAddr> {
        self.wire.as_ref().filter(|wire| wire.is_direct).map(|wire| wire.stream.peer())
    }

    /// Smallest round trip that the kernel has seen.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.path().map(|info| info.round_trip)
    }

    /// Like [`round_trip`](Connection::round_trip), with everything else that the kernel has seen.
    pub(crate) fn path(&self) -> Option<TcpInfo> {
        self.wire.as_ref()?.stream.tcp_info().ok().filter(|info| !info.round_trip.is_zero())
    }

    /// True if it was idle before and had been closed when it was used again.
    pub(super) fn was_stale(&self, error: &Error) -> bool {
        self.is_reused && !self.is_answered && error.kind() == ErrorKind::Network
    }

    /// Requests without an answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.answers.unanswered()
    }

    /// Never to be used again after what is under way now.
    pub(crate) fn give_up(&mut self) {
        self.is_lost = true;
    }

    /// Requests of the session's substreams go out here from now on.
    pub(crate) fn hear_others(&mut self) {
        self.answers.hear_others();
    }

    /// Awaits no more answer to a request: it came on another connection of the session.
    pub fn forget(&mut self, stream: StreamId) {
        self.answers.forget(stream);
    }

    /// Numbers a request that is sent with [`send_numbered`](Connection::send_numbered), here or on the first
    /// connection of the session.
    pub fn number(&mut self, request: &mut [u8], expect: Expect) -> Result<StreamId> {
        let stream = self.answers.ask(expect).ok_or_else(|| {
            Error::new(ErrorKind::Other, "too many requests are under way on one connection")
        })?;
        if let Some(id) = request.first_chunk_mut() {
            *id = stream.0;
        }
        Ok(stream)
    }

    /// Sends requests that have their numbers, each as a whole.
    pub async fn send_numbered(&mut self, requests: &[u8]) -> Result<()> {
        let mut signed = Vec::new();
        match self.wire.as_mut().and_then(|wire| wire.signer.as_mut()) {
            Some(signer) => signer.sign_all(requests, &mut signed).map_err(unsigned)?,
            None => return self.write(requests).await,
        }
        self.write(&signed).await
    }

    async fn write(&mut self, requests: &[u8]) -> Result<()> {
        // A future that is dropped, or fails here, leaves a request that is cut short.
        self.is_writing = true;
        let Some(wire) = &mut self.wire else { return Err(ended()) };
        wire.stream.write_all(requests).await.map_err(|cause| Error::network("cannot send", &cause))?;
        self.is_writing = false;
        Ok(())
    }

    /// Sends a request, with `data` behind it that its head counts.
    pub(crate) async fn send(&mut self, request: &[u8], data: &[u8], expect: Expect) -> Result<StreamId> {
        let mut request = request.to_vec();
        let stream = self.number(&mut request, expect)?;
        if let Some(signer) = self.wire.as_mut().and_then(|wire| wire.signer.as_mut()) {
            let mut signed = Vec::new();
            signer.sign(&request, data, &mut signed).map_err(unsigned)?;
            signed.append(&mut request);
            request = signed;
        }
        // Small data travels with its request, large data is not copied for that.
        if data.len() <= HEAD_READ_BYTES {
            request.extend_from_slice(data);
            self.write(&request).await?;
        } else {
            self.write(&request).await?;
            self.is_writing = true;
            self.write(data).await?;
        }
        Ok(stream)
    }

    /// Waits for what comes next, behind the data of the part before. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Next> {
        loop {
            let outcome = self.answers.step(&self.ahead[self.start..self.end]);
            let (step, used) = outcome.map_err(|wrong| {
                self.is_lost = true;
                malformed(&wrong)
            })?;
            self.start += used;
            match step {
                Step::Part(part) => return Ok(Next::Part(part)),
                Step::Said(stream, said) => return Ok(Next::Said(stream, self.without_token(said))),
                Step::NeedsMore => self.fill().await?,
                Step::Data(_) => {
                    self.is_lost = true;
                    return Err(Error::new(ErrorKind::Other, "data was not read to its end"));
                }
            }
        }
    }

    /// The same, if it is for people, without the token that the session was opened with.
    fn without_token(&self, mut said: Said) -> Said {
        let text = match &mut said {
            Said::Error(answer) => &mut answer.text,
            Said::Wait(answer) => &mut answer.text,
            _ => return said,
        };
        if let Some(token) = self.wire.as_ref().and_then(|wire| wire.token.as_ref()) {
            *text = without(text, vec![token.expose().to_owned()]);
        }
        said
    }

    /// Bytes of the part that began last which have not been read.
    pub fn data_left(&self) -> u64 {
        self.answers.data_expected()
    }

    /// Waits for bytes of the part that began last; 0 when there are none left. May be dropped and called again: no
    /// byte is lost.
    pub async fn read_data(&mut self, target: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.answers.data_expected()).unwrap_or(usize::MAX);
        let room = target.len().min(left);
        if room == 0 {
            return Ok(0);
        }
        let there = self.end - self.start;
        let count = match there {
            0 => {
                let Some(wire) = &mut self.wire else { return Err(ended()) };
                let count = wire.stream.read(&mut target[..room]).await;
                match count.map_err(|cause| Error::network("the answer broke off", &cause))? {
                    0 => return Err(ended()),
                    count => count,
                }
            }
            _ => {
                let count = room.min(there);
                target[..count].copy_from_slice(&self.ahead[self.start..self.start + count]);
                self.start += count;
                count
            }
        };
        self.answers.data_taken(count as u64);
        Ok(count)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.ahead.len() {
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let to = self.ahead.len().min(self.end + HEAD_READ_BYTES);
        let Some(wire) = &mut self.wire else { return Err(ended()) };
        let count = wire.stream.read(&mut self.ahead[self.end..to]).await;
        match count.map_err(|cause| Error::network("no answer", &cause))? {
            0 => Err(ended()),
            count => {
                self.end += count;
                self.is_answered = true;
                Ok(())
            }
        }
    }

    fn is_reusable(&self) -> bool {
        self.answers.unanswered() == 0
            && self.answers.is_between()
            && self.start == self.end
            && !self.is_writing
            && !self.is_lost
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_reusable()
            && let (Some(wire), Some(home)) = (self.wire.take(), &self.home)
        {
            home.take_back(wire, None, false);
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Network, "the server closed the connection").fault(Fault::Peer)
}

fn unsigned(why: String) -> Error {
    Error::new(ErrorKind::Other, format!("a request cannot be signed: {why}"))
}

/// Gives the opening what has come: beside the connections of this thread, where that may take a while.
async fn hear(
    mut opening: Opening,
    came: &[u8],
) -> Result<(Opening, std::result::Result<(Turn, usize), Refused>)> {
    if came.is_empty() || !opening.is_laborious() {
        let heard = opening.receive(came);
        return Ok((opening, heard));
    }
    let came = came.to_vec();
    let hearing = tokio::task::spawn_blocking(move || {
        let heard = opening.receive(&came);
        (opening, heard)
    });
    hearing.await.map_err(|cause| Error::new(ErrorKind::Other, format!("the login broke off: {cause}")))
}

fn unopened(refused: Refused, url: &Url, opening: &Opening, ending: &gsi::Ending) -> Unopened {
    let error = match refused {
        Refused::StepByStep => return Unopened::StepByStep,
        Refused::NoTls => Error::new(ErrorKind::Denied, "it has no TLS").hint(
            "root:// instead of roots:// would send everything in clear; use it only if that does not matter",
        ),
        Refused::NoMethod(names) => {
            let message = format!("there are no credentials for what it wants: {}", said(&names));
            let error = Error::new(ErrorKind::Denied, message);
            let wants = |method: &str| names.split(", ").any(|name| name == method);
            match (names.split(", ").any(|name| name.as_bytes() == ztn::NAME), wants(gsi::NAME)) {
                // The holder of the credentials adds the hint: `Shown::login_error`.
                (true, _) => error,
                (false, true) if gsi::IS_BUILT_IN => error.hint(Hint::NameCertificate),
                (false, true) => error
                    .more("this build of gridlane has no gsi")
                    .hint("https:// may be another way in, or a gridlane that is built with the feature gsi"),
                (false, false) => {
                    error.hint("it knows people in other ways than by tokens: https:// may be another way in")
                }
            }
        }
        Refused::Method(name, why) => match ending.take_error().filter(|_| name == gsi::NAME) {
            Some(error) => told(&error, format!("the login by {name} failed: {}", said(error.message()))),
            None => Error::new(ErrorKind::Denied, format!("the login by {name} failed: {}", said(&why))),
        },
        Refused::TokenWantsTls => {
            Error::new(ErrorKind::Denied, "it wants a token, and the connection is in clear")
                .hint("roots:// instead of root:// protects it")
        }
        Refused::TokenTooLong(max) => {
            let message = format!("it takes no token of more than {max} bytes");
            Error::new(ErrorKind::Denied, message).hint("ask the issuer for one with fewer groups or scopes")
        }
        Refused::Error(answer) => {
            let text = without_secrets(&answer.text, url.cgi().unwrap_or_default(), url, opening.token());
            let error = status_error(&ErrorAnswer { text, ..answer });
            match (ending.take_error(), opening.session().method) {
                // It was tried before, and is what the certificate was meant for.
                (Some(other), _) => {
                    let both = format!(
                        "{}; before that the login by gsi failed: {}",
                        error.message(),
                        said(other.message())
                    );
                    told(&other, both)
                }
                // The holder of the credentials says more: `Shown::login_error`.
                (None, gsi::NAME) => error.more(gsi::ANSWERED),
                _ => error,
            }
        }
        Refused::Malformed(wrong) => malformed(&wrong),
    };
    Unopened::Failed(error.endpoint(url))
}

/// Another message for an error, with the same advice.
fn told(error: &Error, message: String) -> Error {
    let told = Error::new(error.kind(), message).fault(error.whose_fault());
    match error.advice() {
        Some(hint) => told.hint(hint.clone()),
        None => told,
    }
}

/// Ends with an error when the server stays silent and turns out to speak something else than XRootD's protocol.
async fn speaks_otherwise(unheard: Option<&(SocketAddr, Speech)>, url: &Url) -> Error {
    if let Some((peer, speech)) = unheard {
        tokio::time::sleep(HANDSHAKE_SILENCE).await;
        if let Some(found) = speech.instead_of(&Speaks::Xrootd, *peer).await {
            return found.error(url.scheme().name());
        }
    }
    std::future::pending().await
}
