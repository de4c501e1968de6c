//! The connection of rustls that shakes hands, as client or as server.

use rustls::ProtocolVersion;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

/// rustls' connection of one of the two sides.
pub(crate) enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl Side {
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Side::Client(conn) => conn.is_handshaking(),
            Side::Server(conn) => conn.is_handshaking(),
        }
    }

    pub(crate) fn protocol_version(&self) -> Option<ProtocolVersion> {
        match self {
            Side::Client(conn) => conn.protocol_version(),
            Side::Server(conn) => conn.protocol_version(),
        }
    }

    /// The handshake is over and was not of TLS 1.3: the records stay with rustls.
    pub(crate) fn keeps_records(&self) -> bool {
        !self.is_handshaking() && self.protocol_version() != Some(ProtocolVersion::TLSv1_3)
    }
}
