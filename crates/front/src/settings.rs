//! An operator's settings. Everything else is a constant in [`gridlane_core::limits`].

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
use gridlane_auth::sss::Keytab;
use gridlane_auth::token::Issuer;
use gridlane_auth::voms::VomsDir;
use gridlane_auth::x509::Trust;
use gridlane_core::{Network, limits};
use gridlane_net::TrustedProxies;
use gridlane_share::Share;
/// The requests that clients of root:// have to sign.
pub use gridlane_xrd::answer::Signing;

use crate::access_log::AccessLog;
use crate::throttle::ClientLimits;

/// Settings of a server. Everything but the addresses can be changed while it runs:
/// [`Control::reload`](crate::Control::reload).
pub struct Settings<T> {
    /// Addresses to listen on; port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// Settings of the service.
    pub service: T,
    /// The rules: what none of them grants is refused.
    pub policy: Arc<Policy>,
    /// The address for health and metrics. Every client that can connect may ask.
    pub admin: Option<SocketAddr>,
    /// Bytes of bodies sent per second, over all connections.
    pub limit_rate_bytes_per_s: Option<u64>,
    /// Certificate and key, as `gridlane_net::tls::server_config` makes it; without it there is no https.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The end of the certificate's validity, for the metrics.
    pub certificate_expires: Option<SystemTime>,
    /// The log of requests.
    pub access_log: AccessLog,
    /// The requests that it records.
    pub access_log_level: LogLevel,
    /// The log of requests that change something, or tried to.
    pub audit_log: AccessLog,
    /// Open connections: beyond it the answer is 503. Of one client a [part](Shares::connections) at most, unless
    /// `client_limits` say otherwise.
    pub connections_max: usize,
    /// The sizes of everything else that clients share, and the part of it that one has at most.
    pub shares: Shares,
    /// The limits of one client.
    pub client_limits: ClientLimits,
    /// The proxies that name the clients of their connections by the PROXY protocol.
    pub proxies: TrustedProxies,
    /// The proxies whose `Forwarded` and `X-Forwarded-For` are believed.
    pub trusted_forwarders: Vec<Network>,
    /// Names of this machine, beside `localhost` and addresses, that a client on the same machine may call it by:
    /// others are a web page's that points its own name here (DNS rebinding), and get 421. They are also what makes a
    /// URL one of this server.
    pub host_names: Vec<String>,
    /// The issuers, authorities and users that are trusted for authentication.
    pub auth: AuthSettings,
    /// Settings of root:// alone.
    pub root: RootSettings,
    /// Deadlines.
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

/// Resources that clients share beside connections; by default those of the limits. Tests make them smaller.
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
    /// One client's part of so many connections, without other settings.
    pub fn connections(all: usize) -> Share {
        let few = limits::CLIENT_CONNECTIONS_MIN.min(all.saturating_mul(3) / 4);
        Share { all, one: (all / limits::CLIENT_PART).max(few).max(1) }
    }

    /// One protocol's part of so many connections: the rest is the other's.
    pub(crate) fn protocol(all: usize) -> Share {
        let most = all - all / limits::PROTOCOL_PART;
        Share { all: most, one: most }
    }
}

/// The issuers, authorities and users that are trusted for authentication. What is not here is not believed; when it is
/// empty, no client is asked to authenticate.
#[derive(Clone, Default)]
pub struct AuthSettings {
    /// The realm of challenges: `WWW-Authenticate: Bearer realm="…"`.
    pub realm: String,
    /// The authorities of certificates; without it no client is asked for one.
    pub trust: Option<Arc<Trust>>,
    /// The servers whose attributes of virtual organisations are believed.
    pub voms: Arc<VomsDir>,
    /// Users by the subjects of their certificates.
    pub gridmap: Arc<GridMap>,
    /// The issuers whose tokens count.
    pub issuers: Vec<Issuer>,
    /// The names by which tokens may call this server: `https://host.example:1094`.
    pub audiences: Vec<String>,
    /// The source of issuers' keys.
    pub key_source: Option<Arc<dyn KeySource>>,
    /// The directory where they are kept, so that a restart does not need the issuers; without it they are in memory
    /// only.
    pub keys_directory: Option<PathBuf>,
    /// Secrets of this site's macaroons; without them there are none.
    pub macaroons: Option<Arc<macaroon::Keys>>,
    /// Identifiers of revoked macaroons.
    pub revoked_macaroons: Arc<HashSet<String>>,
    /// Longest life of a new one, in seconds; else [`gridlane_core::limits::MACAROON_MAX`].
    pub macaroon_lifetime_s_max: Option<u64>,
    /// Keys that clients of root:// share with this server (`sss`).
    pub shared_keys: Option<Arc<Keytab>>,
    /// Clients say who they are where such a key leaves it to them.
    pub shared_keys_any_user: bool,
    /// This server's certificate and key for logins by certificate over root://; without it there are none.
    #[cfg(feature = "gsi")]
    pub gsi_host: Option<Arc<gridlane_gsi::HostCredential>>,
    /// The users with passwords.
    pub users: Arc<Users>,
    /// The limits of each user, whatever the address.
    pub user_limits: ClientLimits,
    /// The limits of each virtual organisation.
    pub vo_limits: ClientLimits,
}

/// Fetches documents of issuers. The server has no client of its own.
pub trait KeySource: Send + Sync {
    /// The document at an https URL: JSON of bounded size.
    fn fetch<'a>(
        &'a self,
        url: &'a str,
    ) -> Pin<Box<dyn Future<Output = gridlane_core::Result<Vec<u8>>> + Send + 'a>>;
}

/// Settings of root:// alone. It has the port and the service of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSettings {
    /// True if the protocol is served at all.
    pub is_enabled: bool,
    /// Methods of authentication, in order of preference; empty: clients need none. `None`: where tokens or macaroons
    /// count, a token, and where certificates count and the server has one for gsi, a certificate, or else the user's name; and
    /// elsewhere none.
    pub auth: Option<Vec<RootAuth>>,
    /// Machines whose word about the names of their users is taken (`unix`).
    pub trust_unix_from: Vec<Network>,
    /// The clients that have to begin TLS before the login. `None`: those that `auth` needs.
    pub tls: Option<RootTls>,
    /// The name of the site, for clients that ask.
    pub site_name: Option<String>,
    /// The name of this server for clients of other machines, which are told it when they look for files; else they are
    /// told the address that they reached.
    pub server_name: Option<String>,
    /// Certificate and key (PEM) that clients of gsi are shown, where they are not the server's own.
    pub gsi_files: Option<(PathBuf, PathBuf)>,
    /// True if clients that log in for a third-party copy are asked for a proxy, with which the source is opened.
    pub takes_proxies: bool,
    /// The requests that clients have to sign: those whose login gives them a key, or all of them if that is forced.
    pub signing: Signing,
}

impl Default for RootSettings {
    fn default() -> RootSettings {
        RootSettings {
            is_enabled: true,
            auth: None,
            trust_unix_from: Vec::new(),
            tls: None,
            site_name: None,
            server_name: None,
            gsi_files: None,
            takes_proxies: false,
            signing: Signing::default(),
        }
    }
}

/// A method of authentication over root://.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootAuth {
    /// The name of the client's machine: proof of nothing.
    Host,
    /// The name of the user there: proof of nothing, but from [machines that are trusted](RootSettings::trust_unix_from).
    Unix,
    /// A key that both sides have ([`AuthSettings::shared_keys`]).
    Sss,
    /// A token or a macaroon. It is asked for over TLS only.
    Ztn,
    /// A certificate or a proxy, whose key the client proves to have, in clear as well.
    Gsi,
}

impl RootAuth {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            RootAuth::Host => "host",
            RootAuth::Unix => "unix",
            RootAuth::Sss => "sss",
            RootAuth::Ztn => "ztn",
            RootAuth::Gsi => "gsi",
        }
    }
}

/// The clients of root:// that begin TLS before they log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootTls {
    /// Those that want to: `roots://`.
    Offered,
    /// Those that can.
    Capable,
    /// All: a client that cannot is refused.
    Login,
}

/// The requests that the access log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// All.
    All,
    /// Those that were refused or failed.
    Failures,
}

/// Deadlines; by default those of the limits. Tests shorten them.
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
    /// The same of one that has none open, and whose client has authenticated. Of others `idle` holds.
    pub root_idle_proved: Duration,
    /// Without a byte of progress in a body, sent or received.
    pub body_stall: Duration,
    /// The same in a listing.
    pub listing_stall: Duration,
    /// Waiting for a body, sent or received, before the average rate counts.
    pub body_grace: Duration,
    /// Between two times that the service [tidies](crate::Service::tidy).
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
