//! Listening, and telling TLS from clear text on one port.
//!
//! One byte decides: a TLS connection starts with a handshake record, whose first byte is 22
//! (RFC 8446, section 5.1); no HTTP method starts with a control character. The byte is peeked at, not
//! consumed, and the wait for it has a deadline. When in doubt we err towards clear text, where the
//! request parser refuses what it does not understand.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits::DETECT_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::stream::Stream;

/// First byte of a TLS connection: the content type "handshake".
const TLS_HANDSHAKE: u8 = 22;

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

/// Whether this machine can listen on IPv6 loopback at all.
pub fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Turns accepted sockets into streams.
#[derive(Clone)]
pub struct Acceptor {
    tls: Option<Arc<ServerConfig>>,
    deadline: Duration,
}

impl Acceptor {
    /// With `tls`, connections that start a TLS handshake get one; without, they are refused.
    pub fn new(tls: Option<Arc<ServerConfig>>) -> Acceptor {
        Acceptor { tls, deadline: DETECT_MAX }
    }

    /// Changes how long a connection may take to show its protocol and finish a handshake.
    pub fn deadline(mut self, deadline: Duration) -> Acceptor {
        self.deadline = deadline;
        self
    }

    /// Whether a failure of `accept` is for want of descriptors: trying again at once would only spin.
    pub fn lacks_descriptors(cause: &io::Error) -> bool {
        let errno = rustix::io::Errno::from_io_error(cause);
        matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
    }

    /// Tells what the connection speaks, and finishes the TLS handshake where there is one.
    pub async fn accept(&self, socket: TcpStream) -> Result<Stream> {
        timeout(self.deadline, self.detect(socket)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, "the client said nothing, or never finished its handshake")
                .fault(Fault::Peer))
        })
    }

    async fn detect(&self, socket: TcpStream) -> Result<Stream> {
        let mut first = [0];
        let peeked = socket.peek(&mut first).await.map_err(|cause| Error::network("cannot read", &cause))?;
        if peeked == 0 {
            return Err(Error::new(ErrorKind::Network, "the client left without a word").fault(Fault::Peer));
        }
        match &self.tls {
            Some(config) if first[0] == TLS_HANDSHAKE => Stream::accept_tls(socket, config.clone())
                .await
                .map_err(|cause| Error::network("the TLS handshake failed", &cause).fault(Fault::Peer)),
            _ => Stream::plain(socket).map_err(|cause| Error::network("cannot use the connection", &cause)),
        }
    }
}
