//! Connecting to a server by name: every address is tried until one takes the connection.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use gridlane_core::limits::{CONNECT_MAX, CONNECT_STAGGER};
use gridlane_core::{Error, ErrorKind, Fault, Result, Scheme, Url};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::stream::Stream;
use crate::tls::{Trust, client_config};

/// Makes connections; cheap to clone.
#[derive(Clone)]
pub struct Dialer {
    trust: Arc<Trust>,
    /// Made at the first connection that needs it: reading the system's authorities takes milliseconds.
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// A new connection and what it took.
pub struct Dialled {
    /// The connection.
    pub stream: Stream,
    /// Round trips spent before a first request could be sent: TCP's one, and TLS' one or two.
    pub handshake_round_trips: u32,
}

impl Dialer {
    /// Connections over TLS trust `trust`.
    pub fn new(trust: Trust) -> Dialer {
        Dialer { trust: Arc::new(trust), tls: Arc::default() }
    }

    /// The TLS settings; an authority that cannot be read is an error of the caller.
    fn tls(&self) -> Result<Arc<ClientConfig>> {
        match self.tls.get() {
            Some(tls) => Ok(tls.clone()),
            None => {
                let tls = client_config(&self.trust)?;
                Ok(self.tls.get_or_init(|| tls).clone())
            }
        }
    }

    /// Connects to the host and port of `url`, with TLS when its scheme says so.
    ///
    /// Addresses of the name are tried in the resolver's order, families alternating, each with a head
    /// start before the next (RFC 8305, sections 4 and 5); the first to connect wins.
    pub async fn dial(&self, url: &Url) -> Result<Dialled> {
        let endpoint = format!("{}://{}", url.scheme().name(), url.host_header());
        let outcome = timeout(CONNECT_MAX, self.connect(url)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no connection within {} s", CONNECT_MAX.as_secs())))
        });
        let stream = outcome.map_err(|error| error.endpoint(endpoint))?;
        let handshake_round_trips = match stream.tls_version() {
            None => 1,
            Some("TLSv1.3") => 2,
            Some(_) => 3,
        };
        Ok(Dialled { stream, handshake_round_trips })
    }

    async fn connect(&self, url: &Url) -> Result<Stream> {
        let addresses = resolve(url).await?;
        let socket = race(addresses).await.map_err(|cause| Error::network("cannot connect", &cause))?;
        match url.scheme() {
            Scheme::Http => Stream::plain(socket).map_err(|cause| Error::network("cannot connect", &cause)),
            Scheme::Https => {
                let tls = self.tls()?;
                let name = ServerName::try_from(url.host().to_owned()).map_err(|_| {
                    let message = format!("{:?} is no name for a TLS certificate", url.host());
                    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
                })?;
                Stream::connect_tls(socket, tls, name).await.map_err(tls_error)
            }
            Scheme::File => Err(Error::new(ErrorKind::Other, "a file is not dialled")),
        }
    }
}

async fn resolve(url: &Url) -> Result<Vec<SocketAddr>> {
    let found = lookup_host((url.host(), url.port())).await.map_err(|cause| {
        let message = format!("the name {:?} has no address: {cause}", url.host());
        Error::new(ErrorKind::Network, message).hint("check the spelling and this machine's name service")
    })?;
    let (six, four): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv6);
    let mut addresses = Vec::with_capacity(six.len() + four.len());
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    loop {
        match (six.next(), four.next()) {
            (None, None) => break,
            (a, b) => addresses.extend(a.into_iter().chain(b)),
        }
    }
    match addresses.is_empty() {
        true => Err(Error::new(ErrorKind::Network, format!("the name {:?} has no address", url.host()))),
        false => Ok(addresses),
    }
}

async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut running = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let more = match waiting.next() {
            Some(address) => {
                running.spawn(TcpStream::connect(address));
                true
            }
            None => false,
        };
        if running.is_empty() {
            return Err(last);
        }
        tokio::select! {
            Some(outcome) = running.join_next() => match outcome {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(cause)) => last = cause,
                Err(cause) => last = io::Error::other(cause),
            },
            () = sleep(CONNECT_STAGGER), if more => {}
        }
    }
}

fn tls_error(cause: io::Error) -> Error {
    let wrong = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match wrong {
        Some(rustls::Error::InvalidCertificate(why)) => {
            let message = format!("its certificate is not trusted: {why:?}");
            Error::new(ErrorKind::Denied, message)
                .hint("name its authority with --ca FILE, or fix the server's certificate")
        }
        Some(other) => Error::new(ErrorKind::Protocol, format!("the TLS handshake failed: {other}")),
        None => Error::network("the TLS handshake failed", &cause),
    }
}
