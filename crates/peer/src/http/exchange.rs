//! One request with one answer: connecting, redirects, and errors that name the endpoint.

use std::time::{Duration, Instant};

use gridlane_core::limits::{BODY_STALL_MAX, ERROR_BODY_BYTES_MAX, REDIRECTS_MAX};
use gridlane_core::{Backoff, Boxed, Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::header::Headers;
use gridlane_dav::{ResponseHead, Status};
use gridlane_net::{Dialer, Dialled, IdentityId, Reached, Route, Stream};

use super::connection::{Connection, Home, Response};
use super::quirks::KnownQuirks;
use super::redirect::{follow, redirect_loop, travels};
use super::refusal::User;
use super::request::Request;
use super::tunnel;
use crate::credentials::{Credentials, Renewal};
use crate::memory::Asked;
use crate::patience::timeout;
use crate::pool::{self, Purpose};

/// The beginning of the names of servers that keep to `If-None-Match: *` on PUT (nginx, XRootD and dCache do not).
const KEEPS_EXISTING: &str = "gridlane/";
/// Longest wait for the reason why a server takes no body: the rest of an answer that has begun, or that came before the
/// connection was closed.
pub const REASON_MAX: Duration = Duration::from_secs(2);

/// Connections between two uses.
type Pool = pool::Pool<Route, Stream>;

/// Makes requests and connections. Its clones share their idle connections with it.
#[derive(Clone)]
pub struct Client {
    /// Longest wait for an answer's head, for each of the servers that redirects lead to.
    pub answer_max: Duration,
    /// Time for which requests try again to reach a server that does not take a connection.
    pub connect_max: Duration,
    /// False where URLs are signed for one method: then no HEAD is sent, which would be refused.
    pub sends_heads: bool,
    dialer: Dialer,
    pool: Pool,
    quirks: KnownQuirks,
    credentials: Credentials,
}

/// What is known of how a server answers requests for ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// It answers requests that come ahead of its answers.
    pub pipelines: bool,
    /// It does not do as a request for several ranges says.
    pub takes_one: bool,
    /// It has answered one in parts.
    pub sends_parts: bool,
    /// It takes heads as long as gridlane's own server.
    pub takes_long_lists: bool,
}

/// A connection that is ready for a request.
pub struct Connected {
    /// The connection.
    pub connection: Connection,
    /// Round trips that were spent on making it; 0 when it was there.
    pub handshake_round_trips: u32,
}

/// An answer whose body has not been read.
pub struct Exchange {
    /// The connection, in front of the body.
    pub connection: Connection,
    /// The answer's head.
    pub response: Response,
    /// The URL that the answer came from, after redirects.
    pub url: Url,
    /// The redirects that led there: the URLs that answered, and the fields of their answers.
    pub redirects: Vec<(Url, Headers)>,
    /// What there is in place of the credential that this answer refuses.
    renewal: Renewal,
}

impl Client {
    /// A client that connects with `dialer` and waits for the head of an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        let (pool, quirks, credentials) = Default::default();
        let (connect_max, sends_heads) = (Duration::ZERO, true);
        Client { answer_max, connect_max, sends_heads, dialer, pool, quirks, credentials }
    }

    /// The same, with credentials of the user.
    pub fn credentials(mut self, credentials: Credentials) -> Client {
        self.dialer = self.dialer.of_user(credentials.identity());
        self.credentials = credentials;
        self
    }

    /// A connection to the host of `url`: an idle one if there is one, or a new one. `origin` is the URL that the caller
    /// was given: a redirect may have led from there to `url`, and then not all credentials are presented there.
    ///
    /// The server may have closed an idle one while it was on its way to us. A caller that finds that out by
    /// [`Connection::was_stale`] asks again with `fresh`, which takes a new one in any case.
    pub async fn connect(&self, origin: &Url, url: &Url, purpose: Purpose, fresh: bool) -> Result<Connected> {
        self.connect_telling(origin, url, purpose, fresh, &|_| {}).await
    }

    /// Like [`connect`](Client::connect). `reached` is told the round trip of a new connection as soon as there is one,
    /// before TLS.
    pub fn connect_telling<'a>(
        &'a self,
        origin: &'a Url,
        url: &'a Url,
        purpose: Purpose,
        fresh: bool,
        reached: Reached<'a>,
    ) -> Boxed<'a, Result<Connected>> {
        Box::pin(async move {
            let mut has_renewed = false;
            loop {
                let user = User::of(&self.credentials, origin, url);
                let home = self.pool.home(self.route(url, &user)?, purpose).await;
                let identity = home.key().identity().id();
                match self.connect_home(url, home, user, fresh, reached).await {
                    // With TLS 1.2 servers refuse a certificate in the handshake.
                    Err(error) if !has_renewed && self.has_renewed_certificate(&error, identity) => {
                        has_renewed = true;
                    }
                    outcome => return outcome,
                }
            }
        })
    }

    /// Where the answer to a request with `method` leads that began at `origin` and has come to `at`, like [`follow`].
    /// The secrets of `origin` go along to hosts that were named for that.
    pub fn lead(&self, method: &str, origin: &Url, at: &Url, head: &ResponseHead) -> Result<Option<Url>> {
        let next = follow(method, at, head)?;
        let Some(mut to) = next else { return Ok(None) };
        let is_back = to.same_endpoint(origin);
        if to.scheme().is_encrypted() && (is_back || self.credentials.may_forward(to.host())) {
            to.take_secrets_of(origin)?;
        }
        Ok(Some(to))
    }

    /// True if the server of `url` is known to replace nothing when a PUT says `If-None-Match: *`.
    pub fn keeps_existing(&self, url: &Url) -> bool {
        self.quirks.of(&self.asked(url)).keeps_existing
    }

    /// True if a connection to the server of `url` that was used for `purpose` waits to be used again.
    pub fn has_idle(&self, url: &Url, purpose: Purpose) -> bool {
        self.idle(url, purpose) > 0
    }

    /// Number of such connections.
    pub fn idle(&self, url: &Url, purpose: Purpose) -> usize {
        let user = User::of(&self.credentials, url, url);
        self.route(url, &user).map_or(0, |route| self.pool.idle(&route, purpose))
    }

    /// True if the server of `url` has never stated a checksum, so that it is no use to ask for one.
    pub fn is_silent(&self, url: &Url) -> bool {
        self.quirks.of(&self.asked(url)).is_silent()
    }

    /// True if the server of `url` begins to send late, or not at all, when a GET asks for a checksum too.
    pub fn refuses_digest_with_bytes(&self, url: &Url) -> bool {
        self.quirks.of(&self.asked(url)).refuses_digest_with_bytes
    }

    /// The server of `url` was asked for a checksum.
    pub fn asked_for_digest(&self, url: &Url, said: bool) {
        self.quirks.learn(&self.asked(url), |quirks| quirks.asked_for_digest(said));
    }

    /// The server of `url` did not begin to send when a GET asked for a checksum too, or answered it with an error.
    pub fn refused_digest_with_bytes(&self, url: &Url) {
        self.quirks.learn(&self.asked(url), |quirks| quirks.refuses_digest_with_bytes = true);
    }

    /// What is known of how the server of `url` answers requests for ranges.
    pub fn ranges(&self, url: &Url) -> Ranges {
        let quirks = self.quirks.of(&self.asked(url));
        Ranges {
            pipelines: quirks.pipelines,
            takes_one: quirks.takes_one_range,
            sends_parts: quirks.sends_parts,
            takes_long_lists: quirks.keeps_existing,
        }
    }

    /// The server of `url` answers requests that come ahead of its answers.
    pub fn pipelines(&self, url: &Url) {
        self.quirks.learn(&self.asked(url), |quirks| quirks.pipelines = true);
    }

    /// The server of `url` has answered a request for several ranges: in parts, or not as it said.
    pub fn asked_for_ranges(&self, url: &Url, in_parts: bool) {
        self.quirks.learn(&self.asked(url), |quirks| match in_parts {
            true => quirks.sends_parts = true,
            false => quirks.takes_one_range = true,
        });
    }

    fn asked(&self, url: &Url) -> Asked {
        Asked::new(url, self.credentials.identity())
    }

    /// The way to the server of `url`. What is not HTTP is never asked by it: that could show in clear what
    /// `roots` would encrypt.
    fn route(&self, url: &Url, user: &User) -> Result<Route> {
        if url.scheme().is_root() {
            let message = format!("{}:// is not HTTP", url.scheme().name());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let route = self.dialer.route(url)?.of_identity(&user.identity()?);
        user.check_way(url, &route)?;
        Ok(route)
    }

    async fn connect_home(
        &self,
        url: &Url,
        home: Home,
        user: User,
        fresh: bool,
        reached: Reached<'_>,
    ) -> Result<Connected> {
        if !fresh && let Some(stream) = self.pool.take(&home) {
            let connection = Connection::of_home(stream, home, true, user);
            return Ok(Connected { connection, handshake_round_trips: 0 });
        }
        let Dialled { mut stream, mut handshake_round_trips } =
            self.dialer.dial_telling(home.key(), reached).await?;
        if let Some(proxy) = home.key().tunneller() {
            let tunnel = tunnel::open(stream, proxy, url).await?;
            let secured = self.dialer.secure(tunnel, home.key()).await?;
            stream = secured.stream;
            handshake_round_trips += 1 + secured.handshake_round_trips;
        }
        let asks = home.key().is_direct() && stream.tls_version().is_none();
        let speech = asks.then(|| self.dialer.speech().clone());
        let connection = Connection::of_home(stream, home, false, user).asking(speech);
        Ok(Connected { connection, handshake_round_trips })
    }

    /// Sends a request without a body and waits for the head of a successful answer (2xx).
    ///
    /// Redirects are followed as [`follow`] says; any other status is an error that names the endpoint.
    pub async fn request(
        &self,
        method: &'static str,
        url: &Url,
        headers: &[(&'static str, String)],
    ) -> Result<Exchange> {
        if method == "HEAD" && !self.sends_heads {
            let message = "the URL is signed for another method than HEAD";
            return Err(Error::new(ErrorKind::Unsupported, message).endpoint(url));
        }
        let request = Request { headers: headers.to_vec(), ..Request::new(method, url) };
        self.exchange(&request).await?.success().await
    }

    /// Sends a request and waits for the head of its answer, whatever its status is.
    ///
    /// Redirects are followed as [`follow`] says; one that is not followed is the answer. Its method, fields
    /// and body are the same at every place, but credentials stay at the endpoint they were given for. An
    /// error means that there was no answer; it names the endpoint.
    pub async fn exchange(&self, request: &Request<'_>) -> Result<Exchange> {
        let (began, mut backoff) = (Instant::now(), Backoff::new());
        loop {
            match self.exchange_for(request, Purpose::Request, self.answer_max).await {
                Err(error) if error.is_unreached() && began.elapsed() < self.connect_max => {
                    tokio::time::sleep(backoff.pause()).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Like [`Client::exchange`], for a request that is not a short one.
    pub fn exchange_for<'a>(
        &'a self,
        request: &'a Request<'_>,
        purpose: Purpose,
        answer_max: Duration,
    ) -> Boxed<'a, Result<Exchange>> {
        Box::pin(async move {
            let mut at = request.url.clone();
            let (mut headers, mut secrets) = (request.headers.clone(), request.secrets.clone());
            let mut redirects = Vec::new();
            // A refused credential is replaced once.
            let mut has_renewed = false;
            while redirects.len() <= REDIRECTS_MAX {
                let once = Request { url: &at, headers, secrets, ..request.clone() };
                // The time that other servers need is not this one's.
                let user = User::of(&self.credentials, request.url, &at);
                let route = self.route(&at, &user).map_err(|error| error.endpoint(&at))?;
                User::check_request(&once, &at, &route)?;
                let home = self.pool.home(route, purpose).await;
                let identity = home.key().identity().id();
                let mut exchange = match timeout(answer_max, self.once(&once, home, user)).await {
                    Ok(Err(error)) if !has_renewed && self.has_renewed_certificate(&error, identity) => {
                        has_renewed = true;
                        (headers, secrets) = (once.headers, once.secrets);
                        continue;
                    }
                    Ok(outcome) => outcome.map_err(|error| at_endpoint(error, &at))?,
                    Err(_) => {
                        let message = format!("no answer within {} s", answer_max.as_secs_f64());
                        return Err(Error::new(ErrorKind::Timeout, message).endpoint(&at));
                    }
                };
                let is_refused = matches!(exchange.response.head.status.code(), 401 | 403);
                if is_refused && !has_renewed {
                    exchange.renewal = exchange.connection.renewal(&exchange.response.head);
                    if matches!(exchange.renewal, Renewal::Another) {
                        has_renewed = true;
                        (headers, secrets) = (once.headers, once.secrets);
                        exchange.finish().await;
                        continue;
                    }
                }
                let Some(next) = self.lead(request.method, request.url, &at, &exchange.response.head)? else {
                    exchange.redirects = redirects;
                    return Ok(exchange);
                };
                once.refuse_to_leave(&at, &next)?;
                redirects.push((at.clone(), exchange.response.head.headers.clone()));
                self.refuse_to_pass(&once, request.url, &at, &next)?;
                (headers, secrets) = (once.headers, once.secrets);
                if !next.same_endpoint(&at) {
                    headers.retain(|(name, _)| travels(name));
                }
                exchange.finish().await;
                at = next;
            }
            Err(redirect_loop().endpoint(request.url))
        })
    }

    /// True if a connection of `identity` was refused for its certificate, and another one has taken its place.
    fn has_renewed_certificate(&self, error: &Error, identity: IdentityId) -> bool {
        error.kind() == ErrorKind::Denied
            && matches!(self.credentials.renew_certificate(identity), Renewal::Another)
    }

    /// The error of a redirect from `at` to a server that may not see the secrets of a request.
    fn refuse_to_pass(&self, once: &Request<'_>, origin: &Url, at: &Url, to: &Url) -> Result<()> {
        let may_see = to.same_endpoint(origin) || self.credentials.may_forward(to.host());
        if once.secrets.is_empty() || may_see {
            return Ok(());
        }
        let message = format!("it redirects to {to}, which may not see the credential for the other server");
        let error = Error::new(ErrorKind::Denied, message).fault(Fault::Caller).endpoint(at);
        Err(error.hint(self.credentials.hint_withheld(to.host())))
    }

    /// One request without redirects. When an idle connection turns out to be closed, it is sent again on a
    /// new one (RFC 9112, 9.3.1); what must not happen twice gets a new one at once.
    async fn once(&self, request: &Request<'_>, home: Home, user: User) -> Result<Exchange> {
        let spare = (home.clone(), user.clone());
        let fresh = !request.is_idempotent();
        let mut connection = self.connect_home(request.url, home, user, fresh, &|_| {}).await?.connection;
        let response = match asked(&mut connection, request).await {
            Err(error) if connection.was_stale(&error) => {
                drop(connection);
                connection =
                    self.connect_home(request.url, spare.0, spare.1, true, &|_| {}).await?.connection;
                asked(&mut connection, request).await?
            }
            outcome => outcome?,
        };
        if response.head.headers.single("server").is_some_and(|name| name.starts_with(KEEPS_EXISTING)) {
            self.quirks.learn(&self.asked(request.url), |quirks| quirks.keeps_existing = true);
        }
        let (url, redirects, renewal) = (request.url.clone(), Vec::new(), Renewal::Same);
        Ok(Exchange { connection, response, url, redirects, renewal })
    }
}

/// The endpoint of an error that names none: one that names a proxy knows better.
fn at_endpoint(error: Error, url: &Url) -> Error {
    match error.endpoint_text() {
        Some(_) => error,
        None => error.endpoint(url),
    }
}

async fn asked(connection: &mut Connection, request: &Request<'_>) -> Result<Response> {
    match connection.send(request).await {
        Ok(()) => connection.response().await,
        // A server may answer and close before it has the body; the answer says why.
        Err(error) if request.body.is_some() && error.kind() == ErrorKind::Network => {
            match timeout(REASON_MAX, connection.response()).await {
                Ok(Ok(response)) => Ok(response),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

impl Exchange {
    /// The status of the answer.
    pub fn status(&self) -> Status {
        self.response.head.status
    }

    /// This answer if it is 2xx, or else the error that it is.
    pub async fn success(self) -> Result<Exchange> {
        match self.status().is_success() {
            true => Ok(self),
            false => Err(self.into_error().await),
        }
    }

    /// This answer if its status is one of `codes`, or else the error that it is. A 2xx that is not
    /// among them is one of kind `Protocol`.
    pub async fn accept(self, codes: &[u16]) -> Result<Exchange> {
        match codes.contains(&self.status().code()) {
            true => Ok(self),
            false => Err(self.into_error().await),
        }
    }

    /// The error that this answer is, with the first line of its text. The rest of a short body is read, so
    /// that the connection can be used again.
    pub async fn into_error(mut self) -> Error {
        let error = self.connection.refused(&self.url, &self.response.head).await.endpoint(&self.url);
        let error = self.renewal.clone().explain(error);
        self.finish().await;
        error
    }

    /// Waits for bytes of the body; 0 when it has ended. Nothing for too long is an error of kind
    /// `Timeout`. Errors name the endpoint. May be dropped and called again: no byte is lost.
    pub async fn read(&mut self, target: &mut [u8]) -> Result<usize> {
        match timeout(BODY_STALL_MAX, self.connection.read_body(target)).await {
            Ok(count) => count.map_err(|error| error.endpoint(&self.url)),
            Err(_) => {
                let message = format!("the answer stopped coming for {} s", BODY_STALL_MAX.as_secs());
                Err(Error::new(ErrorKind::Timeout, message).endpoint(&self.url))
            }
        }
    }

    /// The whole body; an error of kind `Unsupported` when it is longer than `bytes_max`.
    pub async fn read_whole(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut buf = vec![0; 32 * 1024];
        loop {
            match self.read(&mut buf).await? {
                0 => return Ok(body),
                count if count <= bytes_max - body.len() => body.extend_from_slice(&buf[..count]),
                _ => {
                    let message = format!("the answer is longer than {bytes_max} bytes");
                    return Err(Error::new(ErrorKind::Unsupported, message).endpoint(&self.url));
                }
            }
        }
    }

    /// Gives up the rest of the body. What is short is read, so that the connection can be used again; what is not read
    /// closes it.
    pub async fn finish(mut self) {
        let _ = self.connection.drain(ERROR_BODY_BYTES_MAX).await;
    }
}
