//! Connecting to a server: directly or by way of a proxy, to whichever of its addresses answers.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gridlane_core::limits::{CONNECT_MAX, CONNECT_STAGGER, TLS_ATTEMPT_MAX};
use gridlane_core::{Boxed, Endpoint, Error, ErrorKind, Fault, Result, Scheme, Speaks, Url};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::addresses::AddressRules;
use crate::identity::{Identity, IdentityId, InUse};
use crate::proxy::{Proxies, Proxy, ProxyKind};
use crate::race::{Failures, race};
use crate::resolve::Resolver;
use crate::socks;
use crate::speech::{FINDING_MAX, Speech};
use crate::stream::Stream;
use crate::tls::{self, Trust, Verifier};
use crate::turns::Asker;

/// Makes connections; cheap to clone. Clones share what they learn: TLS sessions to go on from, and which
/// family of addresses a host answers on.
#[derive(Clone)]
pub struct Dialer {
    trust: Arc<Trust>,
    /// Made at the first connection that needs it: reading the system's authorities takes milliseconds.
    tls: Arc<Configs>,
    proxies: Arc<Proxies>,
    resolver: Arc<Resolver>,
    speech: Speech,
    /// `None`: connections are made to every address.
    rules: Option<Arc<AddressRules>>,
    asker: Asker,
}

/// TLS settings, which keep sessions to go on from: each identity has its own.
#[derive(Default)]
struct Configs {
    verifier: OnceLock<Arc<Verifier>>,
    anonymous: OnceLock<Arc<ClientConfig>>,
    /// Those of identities that are not in use any more go when another one comes.
    others: Mutex<HashMap<IdentityId, (InUse, Arc<ClientConfig>)>>,
}

/// A new connection and what it took.
pub struct Dialled {
    /// The connection.
    pub stream: Stream,
    /// Round trips spent before a first request could be sent: TCP's one, and TLS' one or two.
    pub handshake_round_trips: u32,
}

/// A server that took a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Its address: of those of a name, the one that was first.
    pub address: SocketAddr,
    /// The round trip that the kernel has measured.
    pub round_trip: Duration,
}

/// A callback that is told the round trip of a connection that is being made.
pub type Reached<'a> = &'a (dyn Fn(Duration) + Send + Sync);

/// Where a connection leads, and by which way. Connections of equal routes are as good as each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The server at the end; `None` at a proxy that forwards requests to any.
    target: Option<Target>,
    proxy: Option<Proxy>,
    identity: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    is_tls: bool,
    host: String,
    port: u16,
}

impl Route {
    /// The same for connections of `identity`, on which its credentials may be shown to the server at the end: its
    /// certificate in the handshake, a token in requests. They are never the connections of another identity. A proxy that
    /// forwards requests is shown nothing: its connections stay anonymous.
    pub fn of_identity(mut self, identity: &Identity) -> Route {
        if self.target.is_some() {
            self.identity = identity.clone();
        }
        self
    }

    /// True if there is no proxy on the way: the other end of the connection is the server.
    pub fn is_direct(&self) -> bool {
        self.proxy.is_none()
    }

    /// The identity that its connections belong to.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The same for connections of any identity, to count them by.
    pub fn of_any(&self) -> Route {
        Route { identity: Identity::default(), ..self.clone() }
    }

    /// The proxy that every request is sent to, in absolute form (RFC 9112, 3.2.2) and with the proxy's
    /// credentials.
    pub fn forwarder(&self) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|_| self.target.is_none())
    }

    /// The proxy that must be asked with CONNECT for a way to the target, on the connection that
    /// [`Dialer::dial`] makes; [`Dialer::secure`] goes on behind it.
    pub fn tunneller(&self) -> Option<&Proxy> {
        let speaks_http = |proxy: &&Proxy| !matches!(proxy.kind, ProxyKind::Socks5 { .. });
        self.proxy.as_ref().filter(|_| self.target.is_some()).filter(speaks_http)
    }
}

impl Dialer {
    /// Connections over TLS trust `trust`; all go directly to their target.
    pub fn new(trust: Trust) -> Dialer {
        let (tls, proxies, speech) = Default::default();
        let (trust, resolver) = (Arc::new(trust), Arc::new(Resolver::new()));
        Dialer { trust, tls, proxies, resolver, speech, rules: None, asker: Asker::default() }
    }

    /// The protocols found at servers that did not answer as they should.
    pub fn speech(&self) -> &Speech {
        &self.speech
    }

    /// Connections go through `proxies`.
    pub fn proxies(mut self, proxies: Proxies) -> Dialer {
        self.proxies = Arc::new(proxies);
        self
    }

    /// Connections are made to addresses that `rules` allow and to no others: to those of a name that are allowed, if it
    /// has several. Each is checked when it is connected to, wherever its name is from.
    ///
    /// Of a server behind a proxy only an address that is written in the URL is checked, where the proxy looks names up
    /// itself; and none of a proxy's own.
    pub fn addresses(mut self, rules: AddressRules) -> Dialer {
        self.rules = Some(Arc::new(rules));
        self
    }

    /// The same for a user, whose names that nobody answers for keep no other user's waiting: those of redirects as well, where
    /// connections are not the user's.
    pub fn of_user(mut self, user: &Identity) -> Dialer {
        self.asker = Asker::User(user.id());
        self
    }

    /// The way to the host and port of `url`. A proxy that cannot be used is an error of the caller, and so is an address in
    /// the URL that the [rules](Dialer::addresses) refuse.
    pub fn route(&self, url: &Url) -> Result<Route> {
        let is_tls = match url.scheme() {
            // TLS of `roots` begins inside of the connection, after XRootD's handshake.
            Scheme::Http | Scheme::Root | Scheme::Roots => false,
            Scheme::Https => true,
            Scheme::File => return Err(Error::new(ErrorKind::Other, "a file is not dialled")),
        };
        if let (Some(rules), Ok(address)) = (&self.rules, url.host().parse()) {
            rules.check(SocketAddr::new(address, url.port()))?;
        }
        let proxy = self.proxies.of(url)?;
        let is_forwarded = !is_tls
            && proxy.as_ref().is_some_and(|proxy| matches!(proxy.kind, ProxyKind::Http | ProxyKind::Https));
        let Endpoint { host, port, .. } = url.endpoint();
        let target = Target { is_tls, host, port };
        Ok(Route { target: (!is_forwarded).then_some(target), proxy, identity: Identity::default() })
    }

    /// Connects to the target of `route`, with TLS when its scheme says so, or to the proxy in front of it.
    ///
    /// All addresses of the name are tried, families alternating, each with a head start before the next
    /// (RFC 8305); the first to connect wins. One that connects and then fails in the TLS handshake is a
    /// failure like others, unless it is the certificate that is wrong.
    pub async fn dial(&self, route: &Route) -> Result<Dialled> {
        self.dial_telling(route, &|_| {}).await
    }

    /// Like [`dial`](Dialer::dial). `reached` is told the round trip as soon as TCP is connected: before TLS, which
    /// takes one or two more.
    pub fn dial_telling<'a>(&'a self, route: &'a Route, reached: Reached<'a>) -> Boxed<'a, Result<Dialled>> {
        Box::pin(async move {
            match (&route.proxy, &route.target) {
                (None, Some(target)) => {
                    let name =
                        format!("{}://{}", if target.is_tls { "https" } else { "http" }, target.authority());
                    let tls = if target.is_tls { Some(self.tls(&route.identity)?) } else { None };
                    self.reach((&target.host, target.port), self.rules.as_deref(), tls, reached)
                        .await
                        .map_err(|error| error.endpoint(name))
                }
                (Some(proxy), target) => {
                    let failed = |error: Error| {
                        let message = format!("the proxy cannot be used: {}", error.message());
                        let again =
                            Error::new(error.kind(), message).fault(error.whose_fault()).endpoint(proxy);
                        match error.advice() {
                            Some(hint) => again.hint(hint.clone()),
                            None => again,
                        }
                    };
                    // A proxy learns nothing of the user.
                    let anonymous = Identity::default();
                    let tls = if proxy.kind == ProxyKind::Https { Some(self.tls(&anonymous)?) } else { None };
                    let dialled = self.reach((&proxy.host, proxy.port), None, tls, &|_| {}).await;
                    let dialled = dialled.map_err(failed)?;
                    match (proxy.kind, target) {
                        (ProxyKind::Socks5 { resolves }, Some(target)) => {
                            self.through_socks(dialled, proxy, resolves, target, &route.identity).await
                        }
                        _ => Ok(dialled),
                    }
                }
                (None, None) => Err(Error::new(ErrorKind::Other, "a connection that leads nowhere")),
            }
        })
    }

    /// The addresses of the host of `url` that connections may be made to, in the order to try them; never none. Where a
    /// proxy is on the way, connections are not made to them.
    pub async fn resolve(&self, url: &Url) -> Result<Vec<SocketAddr>> {
        let Endpoint { host, port, .. } = url.endpoint();
        let addresses = self.resolver.resolve(self.asker, &host, port).await;
        let addresses = addresses.map_err(|error| error.endpoint(url))?;
        match &self.rules {
            Some(rules) => rules.keep(addresses).map_err(|error| error.endpoint(url)),
            None => Ok(addresses),
        }
    }

    /// Connects to the host and port of `url` without a proxy, and closes the connection before anything is said on it.
    pub async fn touch(&self, url: &Url) -> Result<Touched> {
        let Endpoint { host, port, .. } = url.endpoint();
        let dialled = self.reach((&host, port), self.rules.as_deref(), None, &|_| {}).await;
        let stream = dialled.map_err(|error| error.endpoint(url))?.stream;
        let info = stream.tcp_info();
        let info = info.map_err(|cause| Error::network("the connection was lost", &cause).endpoint(url))?;
        Ok(Touched { address: stream.peer(), round_trip: info.round_trip })
    }

    /// Goes on with a connection on which the proxy of `route` has opened a way to the target.
    pub fn secure<'a>(&'a self, stream: Stream, route: &'a Route) -> Boxed<'a, Result<Dialled>> {
        Box::pin(async move {
            let Some(target) = &route.target else {
                return Err(Error::new(ErrorKind::Other, "there is no target to speak TLS with"));
            };
            self.secured(stream, target, &route.identity)
                .await
                .map_err(|error| error.endpoint(format!("https://{}", target.authority())))
        })
    }

    async fn secured(&self, stream: Stream, target: &Target, identity: &Identity) -> Result<Dialled> {
        let socket = stream.into_socket().await.map_err(|cause| Error::network("cannot connect", &cause))?;
        let handshake = Stream::connect_tls(socket, self.tls(identity)?, server_name(&target.host)?);
        let stream = in_time("the TLS handshake did not finish", handshake).await?.map_err(tls_error)?;
        Ok(Dialled { handshake_round_trips: tls_round_trips(&stream), stream })
    }

    async fn through_socks(
        &self,
        dialled: Dialled,
        proxy: &Proxy,
        resolves: bool,
        target: &Target,
        identity: &Identity,
    ) -> Result<Dialled> {
        let Dialled { mut stream, mut handshake_round_trips } = dialled;
        let place = match resolves {
            true => socks::Place::Name(target.host.clone(), target.port),
            false => {
                let addresses = self.resolver.resolve(self.asker, &target.host, target.port).await?;
                let addresses = match &self.rules {
                    Some(rules) => rules.keep(addresses)?,
                    None => addresses,
                };
                socks::Place::Address(addresses[0])
            }
        };
        let asked = socks::connect(&mut stream, &place, proxy.credentials.as_ref());
        let round_trips = in_time("the SOCKS proxy did not answer", asked).await.and_then(|asked| asked);
        handshake_round_trips += round_trips.map_err(|error| error.endpoint(proxy))?;
        if !target.is_tls {
            return Ok(Dialled { stream, handshake_round_trips });
        }
        let secured = self.secured(stream, target, identity).await;
        let mut secured =
            secured.map_err(|error| error.endpoint(format!("https://{}", target.authority())))?;
        secured.handshake_round_trips += handshake_round_trips;
        Ok(secured)
    }

    /// Connects to the first address of a host that answers, of those that `rules` allow, with TLS if it is given.
    async fn reach(
        &self,
        (host, port): (&str, u16),
        rules: Option<&AddressRules>,
        tls: Option<Arc<ClientConfig>>,
        reached: Reached<'_>,
    ) -> Result<Dialled> {
        let tls = match tls {
            Some(tls) => Some((tls, server_name(host)?)),
            None => None,
        };
        let addresses = self.resolver.resolve(self.asker, host, port).await?;
        let addresses = match rules {
            // They are the ones that are connected to: nothing is looked up again.
            Some(rules) => rules.keep(addresses)?,
            None => addresses,
        };
        let has_choice = addresses.len() > 1;
        let (address, dialled) = first_of(addresses, tls, reached, &self.speech).await?;
        if has_choice {
            self.resolver.won(host, address);
        }
        Ok(dialled)
    }

    /// Checks that a certificate (DER) is believed, and is that of the server of `host`, as in a handshake of TLS: for a server that
    /// proves its key in another way. It may read files, and take a millisecond of a processor.
    ///
    /// An error of kind `Denied` says what is wrong with it.
    pub fn check_certificate(&self, certificate: &[u8], host: &str) -> Result<()> {
        self.verifier()?.check(certificate, &server_name(host)?)
    }

    /// True if certificates are checked; false if anyone is trusted.
    pub fn checks_certificates(&self) -> bool {
        !self.trust.insecure
    }

    fn verifier(&self) -> Result<&Arc<Verifier>> {
        match self.tls.verifier.get() {
            Some(verifier) => Ok(verifier),
            None => {
                let verifier = Arc::new(Verifier::new(&self.trust)?);
                Ok(self.tls.verifier.get_or_init(|| verifier))
            }
        }
    }

    /// The TLS settings; an authority that cannot be read is an error of the caller.
    fn tls(&self, identity: &Identity) -> Result<Arc<ClientConfig>> {
        let anonymous = match self.tls.anonymous.get() {
            Some(tls) => tls,
            None => {
                let tls = tls::client_config_believing(self.verifier()?, self.trust.records)?;
                self.tls.anonymous.get_or_init(|| tls)
            }
        };
        if identity.is_anonymous() {
            return Ok(anonymous.clone());
        }
        // A panic elsewhere leaves nothing half-done here.
        let mut others = self.tls.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tls)) = others.get(&identity.id()) {
            return Ok(tls.clone());
        }
        others.retain(|_, (in_use, _)| in_use.is_so());
        let tls = tls::client_config_of(anonymous, identity.certificate());
        others.insert(identity.id(), (identity.in_use(), tls.clone()));
        Ok(tls)
    }
}

/// Connects to the first of `addresses` that answers, and speaks TLS with it by the given settings.
async fn first_of(
    mut addresses: Vec<SocketAddr>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    reached: Reached<'_>,
    speech: &Speech,
) -> Result<(SocketAddr, Dialled)> {
    let deadline = Instant::now() + CONNECT_MAX;
    let mut failures = Failures::default();
    // The last one that took a connection and did not speak TLS.
    let mut strange = None;
    loop {
        let won = race(&addresses, CONNECT_STAGGER, deadline, &mut failures, TcpStream::connect).await;
        let Some((address, socket)) = won else {
            // Not before: while there is another address, that one is tried.
            return Err(match strange {
                Some(address) => instead_of_tls(speech, address, failures.into_error()).await,
                None => failures.into_error(),
            });
        };
        if let Ok(info) = gridlane_sys::tcp::info(&socket) {
            reached(info.round_trip);
        }
        addresses.retain(|other| *other != address && !failures.has(other));
        let outcome = match &tls {
            None => Ok(Stream::plain(socket)),
            Some((config, name)) => {
                let attempt_max = if addresses.is_empty() { CONNECT_MAX } else { TLS_ATTEMPT_MAX };
                let until = deadline.min(Instant::now() + attempt_max);
                timeout_at(until, Stream::connect_tls(socket, config.clone(), name.clone())).await
            }
        };
        let cause = match outcome {
            Ok(Ok(stream)) => {
                let handshake_round_trips = 1 + tls_round_trips(&stream);
                return Ok((address, Dialled { stream, handshake_round_trips }));
            }
            // Another address of the same host has the same certificate, or should not be believed.
            Ok(Err(cause)) if is_of_tls(&cause) => {
                let error = tls_error(cause);
                return Err(match error.kind() {
                    ErrorKind::Protocol => instead_of_tls(speech, address, error).await,
                    _ => error,
                });
            }
            Ok(Err(cause)) => io::Error::new(cause.kind(), format!("the handshake failed: {cause}")),
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake did not finish"),
        };
        strange = Some(address);
        failures.add(address, cause);
    }
}

/// The error of a server that does not speak TLS: what it speaks instead, if that can be told soon.
async fn instead_of_tls(speech: &Speech, address: SocketAddr, otherwise: Error) -> Error {
    match timeout(FINDING_MAX, speech.instead_of(&Speaks::Tls, address)).await {
        Ok(Some(found)) => found.error("https"),
        _ => otherwise,
    }
}

impl Target {
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

async fn in_time<T>(otherwise: &str, doing: impl Future<Output = T>) -> Result<T> {
    let late = |_| {
        let seconds = CONNECT_MAX.as_secs();
        Error::new(ErrorKind::Timeout, format!("{otherwise} within {seconds} s"))
    };
    timeout(CONNECT_MAX, doing).await.map_err(late)
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    // A zone is this machine's own business and in no certificate.
    let name = host.split('%').next().unwrap_or_default().to_owned();
    ServerName::try_from(name).map_err(|_| {
        let message = format!("{host:?} is no name for a TLS certificate");
        Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
    })
}

/// Round trips of a handshake that is over.
fn tls_round_trips(stream: &Stream) -> u32 {
    match stream.tls_version() {
        None => 0,
        Some("TLSv1.3") => 1,
        Some(_) if stream.is_resumed() => 1,
        Some(_) => 2,
    }
}

/// True if it is what was said that is wrong, and not the connection.
fn is_of_tls(cause: &io::Error) -> bool {
    cause.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

fn tls_error(cause: io::Error) -> Error {
    tls::failure(&cause).unwrap_or_else(|| Error::network("the TLS handshake failed", &cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_sys::tcp::ClosedPort;
    use tokio::net::TcpListener;

    use crate::accept::Acceptor;
    use crate::tls::ClientIdentity;

    /// An address whose connections are never taken: its backlog is full.
    async fn black_hole() -> (SocketAddr, Vec<TcpStream>, std::net::TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let mut filling = Vec::new();
        // Until one waits for longer than loopback ever takes.
        while let Ok(taken) =
            timeout(std::time::Duration::from_millis(200), TcpStream::connect(address)).await
        {
            filling.push(taken.unwrap());
        }
        (address, filling, listener)
    }

    /// Takes connections and closes them at once.
    async fn closing() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        address
    }

    /// Speaks TLS as 127.0.0.1; with what a client needs to speak with it.
    async fn speaking() -> (SocketAddr, (Arc<ClientConfig>, ServerName<'static>)) {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(dir.path(), &["127.0.0.1".into()]).unwrap();
        let acceptor = Acceptor::new(Some(tls::server_config(&cert, &key, false).unwrap()));
        let config = tls::client_config(&Trust { ca_files: vec![cert], ..Trust::default() }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                held.push(acceptor.accept(socket).await);
            }
        });
        (address, (config, server_name("127.0.0.1").unwrap()))
    }

    #[test]
    fn each_identity_has_tls_sessions_of_its_own_as_long_as_it_is_in_use() {
        let made = rcgen::generate_simple_self_signed(vec!["ada".to_owned()]).unwrap();
        let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
        let certificate = ClientIdentity::from_pem(pem.as_bytes(), pem.as_bytes()).unwrap();
        let dialer = Dialer::new(Trust::default());
        let (anonymous, ada) = (Identity::default(), Identity::new(Some(certificate.clone())));
        let (of_anonymous, of_ada) = (dialer.tls(&anonymous).unwrap(), dialer.tls(&ada).unwrap());
        assert!(Arc::ptr_eq(&of_ada, &dialer.clone().tls(&ada.clone()).unwrap()));
        assert!(!of_anonymous.client_auth_cert_resolver.has_certs());
        assert!(of_ada.client_auth_cert_resolver.has_certs());
        // Another one begins anew, with the same certificate and with none.
        for other in [Identity::new(Some(certificate)), Identity::new(None)] {
            let of_other = dialer.tls(&other).unwrap();
            assert!(!Arc::ptr_eq(&of_other, &of_ada) && !Arc::ptr_eq(&of_other, &of_anonymous));
            assert_eq!(of_other.client_auth_cert_resolver.has_certs(), other.certificate().is_some());
        }
        let url = Url::parse_absolute("https://h/").unwrap();
        let route = dialer.route(&url).unwrap();
        let of_ada = route.clone().of_identity(&ada);
        assert!(route != of_ada && route == of_ada.of_any() && *of_ada.identity() == ada);
        drop((ada, of_ada));
        let _last = dialer.tls(&Identity::new(None)).unwrap();
        assert_eq!(dialer.tls.others.lock().unwrap().len(), 1, "nothing is kept of identities that are gone");
    }

    /// The other end speaks TLS only when the round trip was told.
    #[tokio::test]
    async fn the_round_trip_is_told_before_tls() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(dir.path(), &["127.0.0.1".into()]).unwrap();
        let acceptor = Acceptor::new(Some(tls::server_config(&cert, &key, false).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse_absolute(&format!("https://{}/", listener.local_addr().unwrap())).unwrap();
        let told = Arc::new(tokio::sync::Notify::new());
        let waits = told.clone();
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            waits.notified().await;
            acceptor.accept(socket).await
        });
        let dialer = Dialer::new(Trust { ca_files: vec![cert], ..Trust::default() });
        let route = dialer.route(&url).unwrap();
        let round_trips = std::sync::Mutex::new(Vec::new());
        let reached = |round_trip| {
            round_trips.lock().unwrap().push(round_trip);
            told.notify_one();
        };
        let dialled = dialer.dial_telling(&route, &reached).await.unwrap();
        assert_eq!(dialled.handshake_round_trips, 2);
        let round_trips = round_trips.lock().unwrap().clone();
        assert!(
            matches!(round_trips[..], [once] if once > Duration::ZERO && once < CONNECT_MAX),
            "{round_trips:?}"
        );
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_does_not_answer_or_shake_hands_is_passed_over() {
        let (hole, _filling, _listener) = black_hole().await;
        let (address, tls) = speaking().await;
        let refusing = ClosedPort::new().unwrap();
        let addresses = vec![refusing.address(), hole, closing().await, address];
        let (won, dialled) = first_of(addresses, Some(tls), &|_| (), &Speech::default()).await.unwrap();
        assert_eq!(won, address);
        assert_eq!(dialled.handshake_round_trips, 2);
        let addresses = vec![hole, refusing.address(), address];
        let (won, _) = first_of(addresses, None, &|_| (), &Speech::default()).await.unwrap();
        assert_eq!(won, address);
    }

    /// An address at which something else speaks is no reason to leave the others out.
    #[tokio::test]
    async fn what_speaks_something_else_is_passed_over_and_named_at_the_end() {
        let silent_http = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((mut socket, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                        let mut came = [0; 512];
                        if socket.read(&mut came).await.is_ok() && came.starts_with(b"HEAD ") {
                            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                        }
                    });
                }
            });
            address
        };
        let (address, tls) = speaking().await;
        let odd = silent_http().await;
        let (won, _) =
            first_of(vec![odd, address], Some(tls.clone()), &|_| (), &Speech::default()).await.unwrap();
        assert_eq!(won, address);
        let refusing = ClosedPort::new().unwrap();
        let addresses = vec![odd, refusing.address()];
        let error =
            first_of(addresses, Some(tls), &|_| (), &Speech::default()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), Speaks::Http.error("https").kind());
        assert_eq!(error.message(), Speaks::Http.error("https").message());
    }

    #[tokio::test]
    async fn all_that_failed_are_named() {
        let (_, tls) = speaking().await;
        let refusing = ClosedPort::new().unwrap();
        let addresses = vec![refusing.address(), closing().await];
        let error = first_of(addresses.clone(), Some(tls), &|_| (), &Speech::default())
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network);
        for address in addresses {
            assert!(error.message().contains(&address.to_string()), "{error}");
        }
    }

    #[tokio::test]
    async fn a_stranger_ends_it_whatever_other_addresses_there_are() {
        let (address, (_, name)) = speaking().await;
        let (other, (config, _)) = speaking().await;
        let error = first_of(vec![address, other], Some((config, name)), &|_| (), &Speech::default())
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }

    #[tokio::test]
    async fn what_an_operator_does_not_allow_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = |host: &str| Url::parse_absolute(&format!("http://{host}:{port}/")).unwrap();
        let dialer = |rules| Dialer::new(Trust::default()).addresses(rules);
        let public = dialer(AddressRules::public());
        // Written as an address there is no way to it, in whatever manner it is written.
        for host in ["127.0.0.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:7f00:1]", "0", "10.0.0.1"] {
            let error = public.route(&url(host)).unwrap_err();
            assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{host}");
        }
        // A name has to be looked up; what it means is not told.
        let route = public.route(&url("localhost")).unwrap();
        let error = public.dial(&route).await.map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller));
        assert!(!error.is_retryable() && !error.is_unreached(), "{error}");
        let text = error.to_string();
        assert!(!text.contains("127.") && !text.contains("::1") && text.contains("localhost"), "{text}");
        let came = timeout(Duration::from_millis(1), listener.accept()).await;
        assert!(came.is_err(), "nothing came");
        // The one address of the name that is allowed is tried.
        let some = dialer(AddressRules::public().allow("127.0.0.1".parse().unwrap()));
        let dialled = some.dial(&some.route(&url("localhost")).unwrap()).await.unwrap();
        assert_eq!(dialled.stream.peer().port(), port);
        let loopback = dialer(AddressRules::public().allow_loopback());
        loopback.dial(&loopback.route(&url("127.0.0.1")).unwrap()).await.unwrap();
    }

    /// A proxy is where its operator put it; what is behind it may be refused all the same.
    #[tokio::test]
    async fn a_proxy_is_allowed_and_what_is_behind_it_need_not_be() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxied = |scheme: &str| {
            let proxy = format!("{scheme}://{}", listener.local_addr().unwrap());
            let proxies = Proxies::from_environment(|name| (name == "all_proxy").then(|| proxy.clone()));
            Dialer::new(Trust::default()).proxies(proxies).addresses(AddressRules::public())
        };
        let url = |text| Url::parse_absolute(text).unwrap();
        let dialer = proxied("http");
        assert_eq!(dialer.route(&url("http://10.0.0.1/")).unwrap_err().kind(), ErrorKind::Denied);
        assert!(dialer.dial(&dialer.route(&url("http://h.example/")).unwrap()).await.is_ok());
        // The address is found here, and checked.
        let dialer = proxied("socks5");
        let error = dialer.dial(&dialer.route(&url("http://localhost/")).unwrap()).await.map(|_| ());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn routes() {
        let proxied = |value: &str| {
            let proxies = Proxies::from_environment(|name| (name == "all_proxy").then(|| value.to_owned()));
            Dialer::new(Trust::default()).proxies(proxies)
        };
        let url = |text| Url::parse_absolute(text).unwrap();
        let dialer = proxied("http://p:3128");
        let (one, other) =
            (dialer.route(&url("http://a/")).unwrap(), dialer.route(&url("http://b/")).unwrap());
        assert!(one == other && one.forwarder().is_some() && one.tunneller().is_none());
        let (one, other) =
            (dialer.route(&url("https://a/")).unwrap(), dialer.route(&url("https://b/")).unwrap());
        assert!(one != other && one.forwarder().is_none() && one.tunneller().is_some());
        let socks = proxied("socks5://p").route(&url("https://a/")).unwrap();
        assert!(socks.forwarder().is_none() && socks.tunneller().is_none());
        let direct = Dialer::new(Trust::default());
        assert_eq!(direct.route(&url("http://A/x")).unwrap(), direct.route(&url("http://a:80/y")).unwrap());
        assert_ne!(direct.route(&url("http://a:443/")).unwrap(), direct.route(&url("https://a/")).unwrap());
        assert!(proxied("socks4://p").route(&url("http://a/")).is_err());
    }
}
