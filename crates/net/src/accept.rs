//! Listening, and telling TLS from clear text on one port.
//!
//! One byte decides: a TLS connection starts with a handshake record, whose first byte is 22
//! (RFC 8446, section 5.1); XRootD's protocol starts with a 0; no HTTP method starts with a control character. The
//! byte is peeked at, not consumed, and the wait for it has a deadline. When in doubt we err towards clear text, where
//! the request parser refuses what it does not understand.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits::DETECT_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Network, Result};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::proxy_protocol::{self, HEADER_BYTES_MAX, Header, Origin};
use crate::stream::Stream;

/// First byte of a TLS connection: the content type "handshake".
const TLS_HANDSHAKE: u8 = 22;

/// First byte of an XRootD connection: its handshake begins with twelve of them.
const ROOT_HANDSHAKE: u8 = 0;

/// The protocol that a connection began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// XRootD's handshake.
    Root,
    /// A TLS handshake, or anything else, which is HTTP if it is something at all.
    Http,
}

/// Connections that wait for `accept`: enough for a burst of a thousand jobs starting at once.
const BACKLOG: u32 = 1024;

/// Listens at `address`. An IPv6 listener takes IPv6 only, so that both families can have the same port.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// True if this machine can listen on IPv6 loopback at all.
pub fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// The proxies that may say, by the [PROXY protocol](crate::proxy_protocol), where a connection comes from.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    /// Where the proxies are. What others say is not read as a header.
    pub trusted: Vec<Network>,
    /// Connections from there that do not say it are served as well, as the proxy's own.
    pub may_be_silent: bool,
}

/// Time for which more of the bytes that tell a header from something else are waited for.
const UNCLEAR_PAUSE: Duration = Duration::from_millis(10);

/// Turns accepted sockets into streams.
#[derive(Clone)]
pub struct Acceptor {
    tls: Option<Arc<ServerConfig>>,
    deadline: Duration,
    proxies: Arc<TrustedProxies>,
}

impl Acceptor {
    /// With `tls`, connections that start a TLS handshake get one; without, they are refused.
    pub fn new(tls: Option<Arc<ServerConfig>>) -> Acceptor {
        Acceptor { tls, deadline: DETECT_MAX, proxies: Arc::default() }
    }

    /// Changes how long a connection may take to show its protocol and finish a handshake.
    pub fn deadline(mut self, deadline: Duration) -> Acceptor {
        self.deadline = deadline;
        self
    }

    /// Believes proxies.
    pub fn proxies(mut self, proxies: TrustedProxies) -> Acceptor {
        self.proxies = Arc::new(proxies);
        self
    }

    /// True if connections from `address` are those of a trusted proxy, which may speak for others.
    pub fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.trusted.iter().any(|network| network.contains(address))
    }

    /// True if a failure of `accept` is for want of descriptors: trying again at once would only spin.
    pub fn lacks_descriptors(cause: &io::Error) -> bool {
        let errno = rustix::io::Errno::from_io_error(cause);
        matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
    }

    /// Tells what the connection speaks, and finishes the TLS handshake where there is one.
    pub async fn accept(&self, socket: TcpStream) -> Result<(Stream, Opening)> {
        self.in_time(self.detect(socket)).await
    }

    /// True if connections can become TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Finishes a TLS handshake on a connection that was plain so far. `ahead` was read from it already.
    pub async fn upgrade(&self, stream: &mut Stream, ahead: &[u8]) -> Result<()> {
        let Some(config) = &self.tls else {
            return Err(Error::new(ErrorKind::Protocol, "there is no certificate for TLS"));
        };
        self.in_time(async {
            stream.upgrade_tls(config.clone(), ahead).await.map_err(|cause| handshake_failed(&cause))
        })
        .await
    }

    async fn in_time<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(self.deadline, done).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, "the client said nothing, or never finished its handshake")
                .fault(Fault::Peer))
        })
    }

    async fn detect(&self, socket: TcpStream) -> Result<(Stream, Opening)> {
        let client = self.client(&socket).await?;
        let (mut stream, opening) = self.detect_tls(socket).await?;
        if let Some(client) = client {
            stream.set_client(client);
        }
        Ok((stream, opening))
    }

    /// Where the connection comes from, if it comes from a trusted proxy that says so.
    async fn client(&self, socket: &TcpStream) -> Result<Option<SocketAddr>> {
        let unreadable = |cause| Error::network("cannot read", &cause);
        let peer = socket.peer_addr().map_err(unreadable)?;
        if !self.is_proxy(peer.ip()) {
            return Ok(None);
        }
        let refused = |why: &str| {
            Err(Error::new(ErrorKind::Protocol, format!("the proxy's header: {why}")).fault(Fault::Peer))
        };
        let mut header = Vec::new();
        // Not within this future, of which there is one for each connection.
        let mut ahead = vec![0; HEADER_BYTES_MAX];
        loop {
            let peeked = socket.peek(&mut ahead).await.map_err(unreadable)?;
            if peeked == 0 {
                return refused("the connection ended in front of it");
            }
            let before = header.len();
            header.extend_from_slice(&ahead[..peeked]);
            // Only what belongs to the header is taken: what comes behind it belongs to another reader.
            match proxy_protocol::parse(&header) {
                Err(why) => return refused(why),
                Ok(Header::Complete(origin, len)) => {
                    take(socket, len - before).await.map_err(unreadable)?;
                    return Ok(Some(match origin {
                        Origin::Client(client) => client,
                        Origin::Unknown => (Ipv4Addr::UNSPECIFIED, 0).into(),
                        Origin::Proxy => peer,
                    }));
                }
                Ok(Header::Begun) => take(socket, peeked).await.map_err(unreadable)?,
                Ok(Header::Absent) if self.proxies.may_be_silent => return Ok(None),
                Ok(Header::Absent) => return refused("it is missing"),
                // Rarely: the first few bytes came alone. They may turn out to be a request's.
                Ok(Header::Unclear) => {
                    header.truncate(before);
                    tokio::time::sleep(UNCLEAR_PAUSE).await;
                }
            }
        }
    }

    async fn detect_tls(&self, socket: TcpStream) -> Result<(Stream, Opening)> {
        let mut first = [0];
        let peeked = socket.peek(&mut first).await.map_err(|cause| Error::network("cannot read", &cause))?;
        if peeked == 0 {
            return Err(Error::new(ErrorKind::Network, "the client left without a word").fault(Fault::Peer));
        }
        let stream = match &self.tls {
            Some(config) if first[0] == TLS_HANDSHAKE => {
                Stream::accept_tls(socket, config.clone()).await.map_err(|cause| handshake_failed(&cause))?
            }
            _ => {
                Stream::plain(socket).map_err(|cause| Error::network("cannot use the connection", &cause))?
            }
        };
        Ok((stream, if first[0] == ROOT_HANDSHAKE { Opening::Root } else { Opening::Http }))
    }
}

fn handshake_failed(cause: &io::Error) -> Error {
    Error::network("the TLS handshake failed", cause).fault(Fault::Peer)
}

/// Reads bytes that are there already, and forgets them.
async fn take(socket: &TcpStream, count: usize) -> io::Result<()> {
    let mut taken = [0; 256];
    let mut left = count;
    while left > 0 {
        match socket.try_read(&mut taken[..left.min(256)]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(some) => left -= some,
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => socket.readable().await?,
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
