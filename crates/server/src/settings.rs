//! What an operator decides. Everything else is a constant in [`gridlane_core::limits`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits;
use gridlane_store::Storage;

use crate::access_log::AccessLog;
use crate::export::Export;

/// How to serve.
pub struct Settings {
    /// Where to listen; port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// What to serve: none lies in another.
    pub exports: Vec<Export>,
    /// Bytes of bodies sent per second, over all connections.
    pub limit_rate_bytes_per_s: Option<u64>,
    /// Certificate and key, as `gridlane_net::tls::server_config` makes it; without it there is no https.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where requests are recorded.
    pub access_log: AccessLog,
    /// Open connections: beyond it the answer is 503.
    pub connections_max: usize,
    /// Names of this machine, beside `localhost` and addresses, that a client on the same machine may call
    /// it by: others are a web page's that points its own name here (DNS rebinding), and get 421.
    pub host_names: Vec<String>,
    /// How long things may take.
    pub deadlines: Deadlines,
}

impl Settings {
    /// Serves `storage` as the only export, read-only, at `listen`, without TLS and without a log.
    pub fn new(listen: Vec<SocketAddr>, storage: Arc<dyn Storage>) -> Settings {
        Settings {
            listen,
            exports: vec![Export::new(storage)],
            limit_rate_bytes_per_s: None,
            tls: None,
            access_log: AccessLog::off(),
            connections_max: limits::CONNECTIONS_MAX,
            host_names: Vec::new(),
            deadlines: Deadlines::default(),
        }
    }
}

/// How long things may take; by default what the limits say. Tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From accepting a connection to the end of a TLS handshake.
    pub detect: Duration,
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// Without a byte of a request.
    pub idle: Duration,
    /// Without a byte of progress in a body, sent or received.
    pub body_stall: Duration,
    /// Waiting for a body, sent or received, before the average rate counts.
    pub body_grace: Duration,
    /// Between two looks for abandoned uploads.
    pub tidy: Duration,
    /// Reading what a client still sends after its request was refused.
    pub linger: Duration,
    /// For running requests, once the server is told to stop.
    pub drain: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            detect: limits::DETECT_MAX,
            head: limits::REQUEST_HEAD_MAX,
            idle: limits::IDLE_MAX,
            body_stall: limits::BODY_STALL_MAX,
            body_grace: limits::BODY_RATE_GRACE,
            tidy: limits::PARTIAL_INTERVAL,
            linger: limits::BODY_DRAIN_MAX,
            drain: limits::DRAIN_MAX,
        }
    }
}
