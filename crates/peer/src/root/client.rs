//! One request with one answer: sessions, redirects, waits, and errors that name the endpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::limits::{IO_BYTES, ROOT_WAIT_MAX, ROOT_WORDS_BYTES_MAX};
use gridlane_core::{
    Backoff, Boxed, Checksum, ChecksumKind, Error, ErrorKind, Fault, Result, Scheme, Secret, Url,
};
use gridlane_net::{Dialer, Identity, IdentityId};
use gridlane_sys::AlignedBuf;
use gridlane_xrd::answer::{Location, OpenAnswer, merge_cgi, parse_checksum};
use gridlane_xrd::client::{Aim, Answers, Expect, Flight, Opening, Said, is_repeatable};
use gridlane_xrd::flags::{LocateOptions, OpenMore, OpenOptions};
use gridlane_xrd::request::{Endsess, Locate, Open, Query};
use gridlane_xrd::{Call, ErrorCode, Handle, PathArg, QueryKind, StreamId};

use super::connection::{COLLECTED, Connection, Home, Next, Unopened, Wire};
use super::file::{OfClient, OpenFile};
use super::login_user::login_user;
use super::names::Names;
use super::quirks::{KnownQuirks, Quirks};
use super::redirect::{Way, cgi_for_servers, without_token};
use super::refusal::{Login, Shown};
use super::server::Server;
use super::status::{malformed, said};
use super::substreams::{SharedSession, SubStream};
use crate::credentials::{Credentials, Token};
use crate::patience::Patience;
use crate::pool::{self, Purpose};

/// Bytes of an answer that are passed on together.
const PART_BYTES: usize = 64 * 1024;

const _: () = assert!(PART_BYTES <= IO_BYTES && ROOT_WORDS_BYTES_MAX <= PART_BYTES);

/// Sessions between two uses.
type Pool = pool::Pool<Server, Wire>;

/// Makes requests and sessions. Its clones share their idle sessions, and what they learn of servers, with it.
#[derive(Clone)]
pub struct Client {
    /// Longest wait for an answer, for each of the servers that redirects lead to.
    pub answer_max: Duration,
    /// Time for which requests try again to reach a server that does not take a connection.
    pub connect_max: Duration,
    /// True if bytes travel with a checksum for each page, where the server can and TLS does not protect them.
    pub pages: bool,
    dialer: Dialer,
    pool: Pool,
    quirks: KnownQuirks,
    credentials: Credentials,
    /// True if its sessions are for files that one server sends to another.
    is_for_copies: bool,
    /// Names of the servers' addresses.
    pub(super) names: Names,
}

/// An answer that was collected.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The bytes of the answer.
    pub body: Vec<u8>,
    /// The URL that answered, after redirects.
    pub url: Url,
}

/// The end of a request.
enum Came {
    Done(Box<Connection>),
    Elsewhere(gridlane_xrd::answer::Redirect),
    Failed(Error, Option<ErrorCode>),
}

/// Takes the bytes of an answer as they come, and whether they are the last ones.
type Take<'a> = dyn FnMut(&[u8], bool) -> Result<()> + Send + 'a;

/// Makes the request for a path, whose CGI redirects change; and for one that a redirect has led to, if so.
type Make<'a> = dyn Fn(PathArg, bool) -> Vec<u8> + Send + Sync + 'a;

impl Client {
    /// A client that connects with `dialer` and waits for an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        let (pool, quirks, credentials) = Default::default();
        Client {
            answer_max,
            connect_max: Duration::ZERO,
            pages: true,
            dialer,
            pool,
            quirks,
            credentials,
            is_for_copies: false,
            names: Names::default(),
        }
    }

    /// The same for files that one server sends to another: its sessions are its own, and say so when they are opened, since
    /// a server may want TLS for that alone.
    pub fn for_copies(mut self) -> Client {
        self.is_for_copies = true;
        self
    }

    /// Makes one request about the path of `url` and collects the answer, which may have up to
    /// [`ROOT_ANSWER_BYTES_MAX`](gridlane_core::limits::ROOT_ANSWER_BYTES_MAX).
    ///
    /// Redirects are followed; a wait that the server asks for is waited, up to [`ROOT_WAIT_MAX`] in all. What may be
    /// asked twice is asked again on a new session when an idle one turns out to be closed. An error names the
    /// endpoint.
    pub async fn call<C: Call>(
        &self,
        url: &Url,
        make: impl Fn(PathArg) -> C + Send + Sync,
    ) -> Result<Answered> {
        let make = move |path, _: bool| make(path).to_bytes(StreamId::default());
        let mut body = Vec::new();
        let mut take = |bytes: &[u8], _| {
            body.extend_from_slice(bytes);
            Ok(())
        };
        let (_, url) = self.exchange(url, "", Purpose::Request, &make, COLLECTED, &mut take).await?;
        Ok(Answered { body, url })
    }

    /// Like [`call`](Client::call), but the answer is not collected: `part` gets its bytes as they come, however long it
    /// is, and whether they are the last ones. Returns the URL that answered.
    pub async fn call_in_parts<C: Call>(
        &self,
        url: &Url,
        make: impl Fn(PathArg) -> C + Send + Sync,
        part: &mut (dyn FnMut(&[u8], bool) -> Result<()> + Send),
    ) -> Result<Url> {
        let make = move |path, _: bool| make(path).to_bytes(StreamId::default());
        let expect = Expect::Text { bytes_max: u64::MAX };
        let (_, url) = self.exchange(url, "", Purpose::Request, &make, expect, part).await?;
        Ok(url)
    }

    /// Opens the file of `url`, with `more_cgi` in its CGI (`oss.asize=5&…`). `mode` is for one that is made.
    pub async fn open(&self, url: &Url, options: OpenOptions, mode: u16, more_cgi: &str) -> Result<OpenFile> {
        let make = |about, was_led: bool| {
            let (more, template) = (OpenMore::NONE, Handle::default());
            // The servers behind a manager have one tree together, and each a part of its directories: the one that gets a new
            // file makes those that it lacks, as for xrdcp.
            let options = options.with_if(was_led && options.creates(), OpenOptions::MKPATH);
            Open { mode, options, more, template, about }.to_bytes(StreamId::default())
        };
        let purpose = if options.is_write() { Purpose::Upload } else { Purpose::Lane };
        let mut body = Vec::new();
        let mut take = |bytes: &[u8], _| {
            body.extend_from_slice(bytes);
            Ok(())
        };
        let (connection, url) = self.exchange(url, more_cgi, purpose, &make, COLLECTED, &mut take).await?;
        let opened = OpenAnswer::parse(&body).map_err(|wrong| malformed(&wrong).endpoint(&url))?;
        Ok(OpenFile::new(self.of_file(), connection, opened, url, !options.is_write()))
    }

    /// The checksum of `kind` that the server has of the file of `url`, or computes; that may take as long as
    /// [`answer_max`](Client::answer_max). `None`: it has none of this kind, or said something else.
    pub async fn checksum(&self, url: &Url, kind: ChecksumKind) -> Result<Option<Checksum>> {
        let wanted = format!("cks.type={}", kind.name());
        match self.call(url, |about| Query::about(QueryKind::CHECKSUM, &about, &wanted)).await {
            Ok(answered) => Ok(parse_checksum(&answered.body).filter(|checksum| checksum.kind() == kind)),
            // XRootD says of a kind that it does not have that the server failed.
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The servers that have the file of `url`, as URLs of it: those behind a manager, or the server itself.
    pub async fn locate(&self, url: &Url) -> Result<Vec<Url>> {
        let options = LocateOptions::UNIQUE | LocateOptions::PREFER_NAMES;
        let Answered { body, url: at } = self.call(url, |about| Locate { about, options }).await?;
        let bare = without_token(url)?;
        let servers = Location::parse_all(&body);
        let mut urls: Vec<Url> = Vec::new();
        // A manager that is named knows servers that we would have to ask it for; the one that was asked has.
        for Location { host, port, .. } in servers.into_iter().filter(|server| !server.is_manager) {
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let user = at.credentials().map(|(user, _)| format!("{user}@")).unwrap_or_default();
            let authority = format!("{user}{host}:{port}");
            let of = |cgi| Url::of_root(at.scheme(), &authority, &url.wire_path(), cgi);
            // A token in the URL was given to the server that was asked.
            let found = of(bare.cgi()).and_then(|found| {
                match found.same_endpoint(url) || self.credentials.may_see(url, &found) {
                    true => of(url.cgi()),
                    false => Ok(found),
                }
            });
            urls.extend(found.ok().filter(|found| !urls.contains(found)));
        }
        Ok(urls)
    }

    /// Binds another connection to the session of an open file, on which answers to reads can come.
    pub async fn bind(&self, shared: &Arc<SharedSession>) -> Result<(OpenFile, SubStream)> {
        let way = Way::new(shared.url.clone());
        // The id of the session cannot be guessed, and is all that is shown.
        let home = self.pool.home(Server::of(&shared.url, IdentityId::default()), Purpose::Lane).await;
        let flight = if self.quirks.of(home.key()).wants_steps { Flight::Steps } else { Flight::Whole };
        let aim = Aim::Bind(shared.session.id);
        let opening = Opening::new(login_user(), aim, flight, shared.is_tls, Vec::new());
        let route = self.dialer.route(&way.at)?;
        let opened =
            Connection::open(&self.dialer, &route, &way.at, opening, Answers::default(), false).await;
        let mut connection = opened.map_err(|unopened| match unopened {
            Unopened::Closed(error) | Unopened::Failed(error) => error,
            Unopened::StepByStep => Error::new(ErrorKind::Denied, "the session cannot be bound to like that"),
        })?;
        let substream = shared.bind(connection.bound()?);
        connection.keep_turn(home);
        Ok((OpenFile::bound(self.of_file(), connection, shared.opened(), shared.url.clone()), substream))
    }

    /// The part of the client that an open file needs.
    fn of_file(&self) -> OfClient {
        OfClient { pages: self.pages, is_for_copies: self.is_for_copies, quirks: self.quirks.clone() }
    }

    /// Asks, wherever that leads. The answer's bytes go to `take`; the connection is the one that it came on.
    pub(super) fn exchange<'a>(
        &'a self,
        url: &'a Url,
        more_cgi: &'a str,
        purpose: Purpose,
        make: &'a Make<'_>,
        expect: Expect,
        take: &'a mut Take<'_>,
    ) -> Boxed<'a, Result<(Connection, Url)>> {
        Box::pin(async move {
            if !url.scheme().is_root() {
                let message = format!("{}:// is not XRootD's protocol", url.scheme().name());
                return Err(Error::new(ErrorKind::Unsupported, message).endpoint(url));
            }
            if url.wire_path().contains(&b'?') {
                let message = "a name with a question mark cannot be written in XRootD's protocol";
                return Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).endpoint(url));
            }
            let mut way = Way::new(url.clone());
            let (mut was_sent, mut has_taken) = (false, false);
            let (began, mut backoff) = (Instant::now(), Backoff::new());
            loop {
                let cgi = cgi_for_servers(way.at.cgi().unwrap_or_default());
                let cgi = merge_cgi(&cgi, more_cgi.as_bytes());
                let request = make(PathArg::with_cgi(way.at.wire_path(), cgi), way.was_led());
                let came =
                    self.ask(&way, purpose, (&request, expect), take, &mut was_sent, &mut has_taken).await;
                let (error, code) = match came {
                    Ok(Came::Done(connection)) => return Ok((*connection, way.at)),
                    Ok(Came::Elsewhere(redirect)) => {
                        way.follow(&redirect, |to| self.credentials.may_see(url, to))?;
                        continue;
                    }
                    Ok(Came::Failed(error, code)) => (error, code),
                    Err(error) => (error, None),
                };
                let error = match error.endpoint_text() {
                    Some(_) => error,
                    None => error.endpoint(&way.at),
                };
                let may_come = purpose == Purpose::Request && began.elapsed() < self.connect_max;
                if error.is_unreached() && may_come && way.is_at_origin() {
                    tokio::time::sleep(backoff.pause()).await;
                    continue;
                }
                if has_taken {
                    // A caller that took a part of the answer cannot give it back.
                    return Err(error);
                }
                if was_sent && code.is_none() && !is_repeatable(&request) {
                    // It may have been done: another server would do it once more.
                    return Err(error);
                }
                way.avoid(error, code)?;
            }
        })
    }

    /// Asks one server, for as long as it says that we should wait. `was_sent` becomes true when it may have heard the
    /// request.
    async fn ask(
        &self,
        way: &Way,
        purpose: Purpose,
        (request, expect): (&[u8], Expect),
        take: &mut Take<'_>,
        was_sent: &mut bool,
        has_taken: &mut bool,
    ) -> Result<Came> {
        let server = Server::of(&way.at, self.identity_for(way).id()).for_copies(self.is_for_copies);
        let home = self.pool.home(server, purpose).await;
        let token = self.token_for(way).map_err(|error| error.endpoint(&way.at))?;
        let mut waited = Duration::ZERO;
        *was_sent = false;
        let idle = match way.token {
            // The login says the token.
            Some(_) => None,
            // A session keeps the identity of its login: a renewed token begins another.
            None => self.pool.take(&home).filter(|wire| wire.token == token.as_ref().map(secret)),
        };
        let (mut connection, mut stream) = match idle {
            Some(wire) => {
                let mut connection = Connection::resumed(wire, home.clone());
                *was_sent = true;
                match connection.send(request, &[], expect).await {
                    Ok(stream) => (connection, stream),
                    Err(error) if connection.was_stale(&error) && is_repeatable(request) => {
                        self.connect(way, &home, (request, expect), was_sent).await?
                    }
                    Err(error) => return Err(error),
                }
            }
            None => self.connect(way, &home, (request, expect), was_sent).await?,
        };
        for session in self.quirks.learn(home.key(), Quirks::take_lost) {
            // Its answer does not matter: it does not know the session any more, or ends it by itself. A connection that
            // is of no use shows so by the answer that does not come.
            let request = Endsess { session }.to_bytes(StreamId::default());
            if connection.send(&request, &[], COLLECTED).await.is_err() {
                break;
            }
        }
        let mut patience = Patience::new(self.answer_max);
        loop {
            match self.hear(&mut connection, (stream, expect), &mut patience, take, has_taken).await {
                Ok(None) => return Ok(Came::Done(Box::new(connection))),
                Ok(Some(Said::Error(answer))) => {
                    let login = Login {
                        is_tls: connection.is_tls(),
                        is_by_token: connection.session().is_by_token(),
                    };
                    let error = self.shown(way, token).error(&answer, login);
                    return Ok(Came::Failed(error, Some(answer.code)));
                }
                Ok(Some(Said::Redirect(redirect))) if !*has_taken => return Ok(Came::Elsewhere(redirect)),
                Ok(Some(Said::Wait(wait))) if !*has_taken => {
                    let wanted = Duration::from_secs(u64::from(wait.seconds));
                    // What waits for nothing would ask for ever.
                    waited += wanted.max(Duration::from_secs(1));
                    if waited > ROOT_WAIT_MAX {
                        let message = format!(
                            "the server asks for a pause of {} s ({})",
                            wait.seconds,
                            said(&wait.text)
                        );
                        return Err(Error::new(ErrorKind::Busy, message).retry_after(Some(wanted)));
                    }
                    tokio::time::sleep(wanted).await;
                    stream = connection.send(request, &[], expect).await?;
                    patience = Patience::new(self.answer_max);
                }
                Ok(Some(Said::Later(later))) => {
                    let later = Duration::from_secs(u64::from(later.seconds));
                    // However often it says that.
                    patience.extend(later, self.answer_max.max(ROOT_WAIT_MAX));
                }
                Ok(Some(_)) => {
                    connection.give_up();
                    let message = "it sent a part of an answer and then something else";
                    return Err(Error::new(ErrorKind::Protocol, message));
                }
                Err(error) if connection.was_stale(&error) && !*has_taken && is_repeatable(request) => {
                    (connection, stream) = self.connect(way, &home, (request, expect), was_sent).await?;
                    patience = Patience::new(self.answer_max);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the answer to a request: `None` when all of it was taken. An answer that is not collected may take as
    /// long as its bytes keep coming, any other one has come before `patience` ends.
    async fn hear(
        &self,
        connection: &mut Connection,
        (stream, expect): (StreamId, Expect),
        patience: &mut Patience,
        take: &mut Take<'_>,
        has_taken: &mut bool,
    ) -> Result<Option<Said>> {
        let mut buf: Option<AlignedBuf> = None;
        let late = |_| {
            let message = format!("no whole answer within {} s", self.answer_max.as_secs());
            Error::new(ErrorKind::Timeout, message)
        };
        loop {
            let part = match patience.bear(connection.next()).await.map_err(late)?? {
                Next::Part(part) => part,
                Next::Said(of, said) if of == stream => return Ok(Some(said)),
                // An answer to a request that was sent beside it, and that is not needed.
                Next::Said(..) => continue,
            };
            let is_ours = part.stream == stream;
            *has_taken |= is_ours;
            if part.len == 0 && is_ours {
                take(&[], part.is_last)?;
            }
            while connection.data_left() > 0 {
                let buf = buf.get_or_insert_with(|| AlignedBuf::new(PART_BYTES));
                let count = patience.bear(connection.read_data(buf)).await.map_err(late)??;
                if is_ours {
                    take(&buf[..count], part.is_last && connection.data_left() == 0)?;
                    if expect != COLLECTED {
                        patience.renew(self.answer_max);
                    }
                }
            }
            if is_ours && part.is_last {
                return Ok(None);
            }
        }
    }

    /// A new session, on which `request` has been sent. `was_sent`, see [`ask`](Client::ask).
    async fn connect(
        &self,
        way: &Way,
        home: &Home,
        (request, expect): (&[u8], Expect),
        was_sent: &mut bool,
    ) -> Result<(Connection, StreamId)> {
        let server = home.key();
        let quirks = self.quirks.of(server);
        // A flight is in clear also where the server would have begun TLS first.
        let is_secret = way.at.has_secrets() && !way.at.scheme().is_encrypted();
        let flight = match quirks.wants_steps || is_secret {
            true => Flight::Steps,
            false if is_repeatable(request) || quirks.takes_flights => Flight::Whole,
            false => Flight::Login,
        };
        let opened = match self.open_session(way, flight, request, expect).await {
            Ok(opened) => {
                self.quirks.learn(server, |quirks| quirks.takes_flights |= flight != Flight::Steps);
                Ok(opened)
            }
            Err(unopened) => {
                let (is_safe, error) = match unopened {
                    Unopened::StepByStep => (true, None),
                    Unopened::Closed(error) => {
                        *was_sent |= flight == Flight::Whole;
                        (flight != Flight::Whole || is_repeatable(request), Some(error))
                    }
                    Unopened::Failed(error) => (false, Some(error)),
                };
                match error {
                    Some(error) if flight == Flight::Steps || !is_safe => Err(error),
                    _ => {
                        let opened = self.open_session(way, Flight::Steps, request, expect).await;
                        let opened = opened.map_err(|unopened| match unopened {
                            Unopened::Closed(error) | Unopened::Failed(error) => error,
                            Unopened::StepByStep => {
                                Error::new(ErrorKind::Protocol, "it cannot be logged in to")
                            }
                        })?;
                        self.quirks.learn(server, |quirks| {
                            (quirks.wants_steps, quirks.takes_flights) = (true, false);
                        });
                        Ok(opened)
                    }
                }
            }
        };
        let (mut connection, stream) = opened?;
        *was_sent = true;
        if way.token.is_none() {
            connection.set_home(home.clone());
        }
        Ok((connection, stream))
    }

    async fn open_session(
        &self,
        way: &Way,
        flight: Flight,
        request: &[u8],
        expect: Expect,
    ) -> std::result::Result<(Connection, StreamId), Unopened> {
        let failed = |error: Error| Unopened::Failed(error.endpoint(&way.at));
        let mut answers = Answers::default();
        let nothing = || Unopened::Failed(Error::new(ErrorKind::Other, "a session without a request"));
        let stream = answers.ask(expect).ok_or_else(nothing)?;
        let mut first = request.to_vec();
        if let Some(id) = first.first_chunk_mut() {
            *id = stream.0;
        }
        let mut login = login_user();
        let token = self.token_for(way).map_err(failed)?;
        login.token = token.as_ref().map(secret);
        if let Some((user, _)) = way.at.credentials() {
            login.login = user.as_bytes().to_vec();
        }
        if let Some(token) = &way.token {
            login.cgi = [login.cgi.as_slice(), b"&", token].concat();
        }
        let must_tls = way.at.scheme() == Scheme::Roots;
        // A server that hangs up on a flight may take the steps.
        let asks = flight == Flight::Steps;
        let aim = if self.is_for_copies { Aim::TpcLogin } else { Aim::Login };
        let opening = Opening::new(login, aim, flight, must_tls, first);
        let route = self.dialer.route(&way.at).map_err(failed)?;
        let route = route.of_identity(&self.identity_for(way));
        let opened = Connection::open(&self.dialer, &route, &way.at, opening, answers, asks).await;
        let told = |error: Error| self.shown(way, token.clone()).login_error(error);
        let mut connection = opened.map_err(|unopened| match unopened {
            Unopened::Failed(error) => Unopened::Failed(told(error)),
            unopened => unopened,
        })?;
        connection.set_token(token.as_ref().map(secret));
        Ok((connection, stream))
    }
}

impl Client {
    /// The same, with credentials of the user.
    pub fn credentials(mut self, credentials: Credentials) -> Client {
        self.dialer = self.dialer.of_user(credentials.identity());
        self.credentials = credentials;
        self
    }

    /// True if the user's credentials may be shown to the server that a request has come to.
    fn may_show(&self, way: &Way) -> bool {
        !self.credentials.is_empty() && self.credentials.may_see(&way.origin, &way.at)
    }

    /// The identity of connections to where a request has come to.
    fn identity_for(&self, way: &Way) -> Identity {
        if self.may_show(way) { self.credentials.identity().clone() } else { Identity::default() }
    }

    /// The token to show where a request has come to.
    fn token_for(&self, way: &Way) -> Result<Option<Token>> {
        if self.may_show(way) { self.credentials.login_token(&way.origin) } else { Ok(None) }
    }

    fn shown<'a>(&'a self, way: &'a Way, token: Option<Token>) -> Shown<'a> {
        Shown { credentials: &self.credentials, may_show: self.may_show(way), token, at: &way.at }
    }
}

fn secret(token: &Token) -> Secret {
    token.secret.clone()
}

/// True if a server refuses because it does not know the request.
fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.message().to_ascii_lowercase().contains("not supported")
}
