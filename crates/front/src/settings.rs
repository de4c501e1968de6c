//! What an operator decides. Everything else is a constant in [`gridlane_core::limits`].

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_auth::Policy;
use gridlane_auth::gridmap::GridMap;
use gridlane_auth::macaroon;
use gridlane_auth::password::Users;
use gridlane_auth::token::Issuer;
use gridlane_auth::voms::VomsDir;
use gridlane_auth::x509::Trust;
use gridlane_core::{Network, limits};
use gridlane_net::TrustedProxies;
use gridlane_share::Share;

use crate::access_log::AccessLog;
use crate::throttle::ClientLimits;

/// How to serve. Everything but the addresses can be changed while it runs: [`Control::reload`](crate::Control::reload).
pub struct Settings<T> {
    /// Where to listen; port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// What is served.
    pub service: T,
    /// Who may do what: what no rule grants is refused.
    pub policy: Arc<Policy>,
    /// Where to answer questions about the server itself: health and metrics. Whoever can connect may ask.
    pub admin: Option<SocketAddr>,
    /// Bytes of bodies sent per second, over all connections.
    pub limit_rate_bytes_per_s: Option<u64>,
    /// Certificate and key, as `gridlane_net::tls::server_config` makes it; without it there is no https.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// When the certificate is of no use any longer, for the metrics.
    pub certificate_expires: Option<SystemTime>,
    /// Where requests are recorded.
    pub access_log: AccessLog,
    /// Which of them.
    pub access_log_level: LogLevel,
    /// Where requests that change something, or wanted to, are recorded as well.
    pub audit_log: AccessLog,
    /// Open connections: beyond it the answer is 503. Of one client a [part](Shares::connections) at most, unless
    /// `client_limits` say otherwise.
    pub connections_max: usize,
    /// How much there is of everything else that clients share, and the part of it that one has at most.
    pub shares: Shares,
    /// The limits of one client.
    pub client_limits: ClientLimits,
    /// Who says by the PROXY protocol where connections come from.
    pub proxies: TrustedProxies,
    /// Whose `Forwarded` and `X-Forwarded-For` are believed.
    pub trusted_forwarders: Vec<Network>,
    /// Names of this machine, beside `localhost` and addresses, that a client on the same machine may call
    /// it by: others are a web page's that points its own name here (DNS rebinding), and get 421. They are also what
    /// makes a URL one of this server.
    pub host_names: Vec<String>,
    /// Who may do what, and whose word counts for who somebody is.
    pub auth: AuthSettings,
    /// What is different over root://.
    pub root: RootSettings,
    /// How long things may take.
    pub deadlines: Deadlines,
}

impl<T> Settings<T> {
    /// Serves this at these addresses, without any rule, without TLS and without a log.
    pub fn new(listen: Vec<SocketAddr>, service: T) -> Settings<T> {
        Settings {
            listen,
            service,
            policy: Arc::default(),
            admin: None,
            limit_rate_bytes_per_s: None,
            tls: None,
            certificate_expires: None,
            access_log: AccessLog::off(),
            access_log_level: LogLevel::All,
            audit_log: AccessLog::off(),
            connections_max: limits::CONNECTIONS_MAX,
            shares: Shares::default(),
            client_limits: ClientLimits::default(),
            proxies: TrustedProxies::default(),
            trusted_forwarders: Vec::new(),
            host_names: Vec::new(),
            auth: AuthSettings::default(),
            root: RootSettings::default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// What clients share beside connections; by default what the limits say. Tests make it less.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Files and listed directories that are open over root://.
    pub open_files: Share,
    /// Bytes of memory for requests and answers over root://.
    pub root_memory_bytes: Share,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            open_files: Share::of(limits::ROOT_OPEN_FILES_MAX),
            root_memory_bytes: Share::of(limits::ROOT_MEMORY_BYTES_MAX),
        }
    }
}

impl Shares {
    /// The part of so many connections that one client has, where nobody says otherwise.
    pub fn connections(all: usize) -> Share {
        let few = limits::CLIENT_CONNECTIONS_MIN.min(all.saturating_mul(3) / 4);
        Share { all, one: (all / limits::CLIENT_PART).max(few).max(1) }
    }

    /// What one protocol has of so many connections: the rest is the other's.
    pub(crate) fn protocol(all: usize) -> Share {
        let most = all - all / limits::PROTOCOL_PART;
        Share { all: most, one: most }
    }
}

/// Whose word counts for who somebody is. What is not here is not believed; when nothing is, nobody is asked.
#[derive(Clone, Default)]
pub struct AuthSettings {
    /// What is called to make a client prove who it is: `WWW-Authenticate: Bearer realm="…"`.
    pub realm: String,
    /// Whose certificates count; without it no client is asked for one.
    pub trust: Option<Arc<Trust>>,
    /// Whom to believe about virtual organisations.
    pub voms: Arc<VomsDir>,
    /// Users by the subjects of their certificates.
    pub gridmap: Arc<GridMap>,
    /// Whose tokens count.
    pub issuers: Vec<Issuer>,
    /// What tokens may call this server: `https://host.example:1094`.
    pub audiences: Vec<String>,
    /// Where the keys of issuers come from.
    pub key_source: Option<Arc<dyn KeySource>>,
    /// Where they are kept, so that a restart does not need the issuers; without it they are in memory only.
    pub keys_directory: Option<PathBuf>,
    /// Secrets of this site's macaroons; without them there are none.
    pub macaroons: Option<Arc<macaroon::Keys>>,
    /// Identifiers of macaroons that were called back.
    pub revoked_macaroons: Arc<HashSet<String>>,
    /// How long a new one is good at most, in seconds; else [`gridlane_core::limits::MACAROON_MAX`].
    pub macaroon_lifetime_s_max: Option<u64>,
    /// Who has a password.
    pub users: Arc<Users>,
    /// What each user may take, whatever the address.
    pub user_limits: ClientLimits,
    /// What each virtual organisation may take.
    pub vo_limits: ClientLimits,
}

/// Fetches documents of issuers. The server has no client of its own.
pub trait KeySource: Send + Sync {
    /// What is at an https URL: a JSON document of bounded size.
    fn fetch<'a>(
        &'a self,
        url: &'a str,
    ) -> Pin<Box<dyn Future<Output = gridlane_core::Result<Vec<u8>>> + Send + 'a>>;
}

/// What is different over root://. It has the port and the exports of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSettings {
    /// Whether it is spoken at all.
    pub is_enabled: bool,
    /// What clients say of who they are, in order of preference; empty: nobody is asked. `None`: where tokens or
    /// macaroons count, a token, or else what their user is called, and elsewhere nothing.
    pub auth: Option<Vec<RootAuth>>,
    /// Who has to begin TLS before the login. `None`: what `auth` needs.
    pub tls: Option<RootTls>,
    /// What the site is called, for clients that ask.
    pub site_name: Option<String>,
    /// What this server is called by clients of other machines, who are told it when they look for files; else they
    /// are told the address that they reached.
    pub server_name: Option<String>,
}

impl Default for RootSettings {
    fn default() -> RootSettings {
        RootSettings { is_enabled: true, auth: None, tls: None, site_name: None, server_name: None }
    }
}

/// What a client of root:// says of who it is: a method of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootAuth {
    /// What its machine is called: proof of nothing.
    Host,
    /// What its user is called there: proof of nothing.
    Unix,
    /// A token or a macaroon. It is asked for over TLS only.
    Ztn,
}

impl RootAuth {
    /// What it is called on the wire.
    pub fn name(self) -> &'static str {
        match self {
            RootAuth::Host => "host",
            RootAuth::Unix => "unix",
            RootAuth::Ztn => "ztn",
        }
    }
}

/// Which clients of root:// begin TLS before they log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootTls {
    /// Those that want to: `roots://`.
    Offered,
    /// Those that can.
    Capable,
    /// All: who cannot is refused.
    Login,
}

/// Which requests the access log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// All.
    All,
    /// Those that were refused or failed.
    Failures,
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
    /// Without a request from a session of XRootD's protocol that has a file open.
    pub root_idle: Duration,
    /// The same of one that has none open, and whose client has proved who it is. Of others `idle` holds.
    pub root_idle_proved: Duration,
    /// Without a byte of progress in a body, sent or received.
    pub body_stall: Duration,
    /// The same in a listing.
    pub listing_stall: Duration,
    /// Waiting for a body, sent or received, before the average rate counts.
    pub body_grace: Duration,
    /// Between two looks for abandoned uploads.
    pub tidy: Duration,
    /// Waiting for the next of what a client still sends after its request was refused.
    pub linger: Duration,
    /// Reading all of that.
    pub linger_whole: Duration,
    /// From being told to stop to not accepting connections any longer: time for a load balancer to notice.
    pub drain_delay: Duration,
    /// For running requests, once no connection is accepted any longer.
    pub drain: Duration,
    /// Between two ranges, reads or writes of one file, while the server stops: longer, and the transfer is over.
    pub drain_pause: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            detect: limits::DETECT_MAX,
            head: limits::REQUEST_HEAD_MAX,
            idle: limits::IDLE_MAX,
            root_idle: limits::ROOT_IDLE_MAX,
            root_idle_proved: limits::ROOT_IDLE_PROVED_MAX,
            body_stall: limits::BODY_STALL_MAX,
            listing_stall: limits::LISTING_STALL_MAX,
            body_grace: limits::BODY_RATE_GRACE,
            tidy: limits::PARTIAL_INTERVAL,
            linger: limits::BODY_DRAIN_MAX,
            linger_whole: limits::BODY_DRAIN_WHOLE_MAX,
            drain_delay: Duration::ZERO,
            drain: limits::DRAIN_MAX,
            drain_pause: limits::DRAIN_PAUSE_MAX,
        }
    }
}
