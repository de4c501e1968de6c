//! The front of a server: all that an operator decides about it, and what outlives such decisions.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use gridlane_auth::policy::Reason;
use gridlane_auth::sss::Seen;
use gridlane_auth::{Decision, Operation, Policy};
use gridlane_core::{Error, Network};
use gridlane_net::Acceptor;
use gridlane_share::RateLimit;
use gridlane_share::budget::{Holder, Share};

use crate::access_log::{AccessLog, CopyRecord, timestamp};
use crate::auth::chains::Chains;
use crate::auth::challenge::AuthMethods;
use crate::auth::keys::Keys;
use crate::auth::passwords::Passwords;
#[cfg(feature = "gsi")]
use crate::auth::turns::Turns;
use crate::budgets::Budgets;
use crate::buffers::Buffers;
use crate::client::Client;
use crate::data::DataPath;
use crate::forwarded;
use crate::metrics::Metrics;
use crate::settings::{AuthSettings, LogLevel, RootSettings, Settings, Shares};
use crate::throttle::{AllLimits, By, Connected, Parties, Throttle};

/// The front of a server by one generation of the settings, with what all of them share behind pointers.
pub struct Front {
    /// The data plane.
    pub data: DataPath,
    pub(crate) acceptor: Acceptor,
    pub(crate) certificate_expires: Option<SystemTime>,
    pub(crate) limits: AllLimits,
    /// Proxies whose `Forwarded` and `X-Forwarded-For` are believed.
    pub trusted_forwarders: Vec<Network>,
    /// Names of this machine.
    pub host_names: Vec<String>,
    /// The issuers, authorities and users that are trusted for authentication.
    pub auth: AuthSettings,
    /// The rules.
    pub policy: Arc<Policy>,
    /// The methods by which clients can authenticate.
    pub auth_methods: Arc<AuthMethods>,
    /// Certificate chains that were verified by these settings.
    pub(crate) chains: Chains,
    pub(crate) issuer_keys: Arc<Keys>,
    pub(crate) passwords: Arc<Passwords>,
    /// Credentials by shared keys that came within their lifetime.
    pub(crate) shared_keys_seen: Arc<Mutex<Seen>>,
    /// Turns of logins by certificate.
    #[cfg(feature = "gsi")]
    pub(crate) logins: Arc<Turns>,
    /// Turns of making the keys of proxies that clients are asked for.
    #[cfg(feature = "gsi")]
    pub(crate) lent_keys: Arc<Turns>,
    /// Settings of root:// alone.
    pub root: RootSettings,
    /// The log of requests.
    pub access_log: AccessLog,
    pub(crate) access_log_level: LogLevel,
    pub(crate) audit_log: AccessLog,
    /// The budgets that all clients share.
    pub budgets: Arc<Budgets>,
    pub(crate) throttle: Arc<Throttle>,
    /// Seconds since 1970 at the start: tells this process's requests from an earlier one's in a log.
    pub started_s: u64,
    /// The sizes of the budgets by these settings.
    room: (Share, Shares),
}

/// Everything that all generations share.
pub(crate) struct Lasting {
    issuer_keys: Arc<Keys>,
    passwords: Arc<Passwords>,
    shared_keys_seen: Arc<Mutex<Seen>>,
    #[cfg(feature = "gsi")]
    logins: Arc<Turns>,
    #[cfg(feature = "gsi")]
    lent_keys: Arc<Turns>,
    /// The number of generations before the next.
    generation: u64,
    buffers: Arc<Buffers>,
    budgets: Arc<Budgets>,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    started_s: u64,
}

impl Lasting {
    /// The state of a server at its start.
    pub(crate) fn new(started_s: u64) -> gridlane_core::Result<Lasting> {
        let passwords =
            Passwords::new().map_err(|cause| Error::local_io("the system has no random numbers", &cause))?;
        Ok(Lasting {
            issuer_keys: Arc::default(),
            passwords: Arc::new(passwords),
            shared_keys_seen: Arc::default(),
            #[cfg(feature = "gsi")]
            logins: Arc::new(Turns::new(gridlane_core::limits::LOGINS_BY_CERTIFICATE_MAX)),
            #[cfg(feature = "gsi")]
            lent_keys: Arc::new(Turns::new(gridlane_core::limits::LENT_KEYS_MADE_MAX)),
            generation: 0,
            buffers: Arc::default(),
            budgets: Arc::new(Budgets::new()),
            throttle: Arc::new(Throttle::new()),
            metrics: Arc::default(),
            started_s,
        })
    }
}

impl Front {
    /// Another generation, and the settings of the service behind it. Nothing changes for any client before
    /// [`begin`](Front::begin).
    pub(crate) fn new<T>(settings: Settings<T>, lasting: Lasting) -> (Front, T) {
        let deadlines = settings.deadlines;
        let limits = AllLimits {
            client: settings.client_limits,
            user: settings.auth.user_limits,
            vo: settings.auth.vo_limits,
        };
        let one = limits.client.connections_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let connections = Shares::connections(settings.connections_max);
        let connections = Share { one: one.unwrap_or(connections.one), ..connections };
        let front = Front {
            data: DataPath {
                buffers: lasting.buffers,
                pace: settings.limit_rate_bytes_per_s.map(RateLimit::new),
                deadlines,
                metrics: lasting.metrics,
            },
            acceptor: Acceptor::new(settings.tls).deadline(deadlines.detect).proxies(settings.proxies),
            certificate_expires: settings.certificate_expires,
            limits,
            trusted_forwarders: settings.trusted_forwarders,
            host_names: settings.host_names,
            auth_methods: Arc::new(AuthMethods::of(&settings.auth)),
            auth: settings.auth,
            policy: settings.policy,
            chains: Chains::new(lasting.generation),
            issuer_keys: lasting.issuer_keys,
            passwords: lasting.passwords,
            shared_keys_seen: lasting.shared_keys_seen,
            #[cfg(feature = "gsi")]
            logins: lasting.logins,
            #[cfg(feature = "gsi")]
            lent_keys: lasting.lent_keys,
            root: settings.root,
            access_log: settings.access_log,
            access_log_level: settings.access_log_level,
            audit_log: settings.audit_log,
            budgets: lasting.budgets,
            throttle: lasting.throttle,
            started_s: lasting.started_s,
            room: (connections, settings.shares),
        };
        (front, settings.service)
    }

    /// Puts the settings to use, once it is certain that they hold. Reads files.
    pub(crate) fn begin(&self) {
        let (connections, shares) = &self.room;
        self.budgets.resize(*connections, self.root.is_enabled, shares);
        self.issuer_keys.configure(&self.auth, &self.access_log);
        self.throttle.forget_unless(&self.limits);
    }

    /// The state that the next generation takes over.
    pub(crate) fn lasting(&self) -> Lasting {
        Lasting {
            issuer_keys: Arc::clone(&self.issuer_keys),
            passwords: Arc::clone(&self.passwords),
            shared_keys_seen: Arc::clone(&self.shared_keys_seen),
            #[cfg(feature = "gsi")]
            logins: Arc::clone(&self.logins),
            #[cfg(feature = "gsi")]
            lent_keys: Arc::clone(&self.lent_keys),
            generation: self.chains.generation() + 1,
            buffers: Arc::clone(&self.data.buffers),
            budgets: Arc::clone(&self.budgets),
            throttle: Arc::clone(&self.throttle),
            metrics: Arc::clone(&self.data.metrics),
            started_s: self.started_s,
        }
    }

    /// The holder of a connection from an address. Connections of a proxy that forwards requests of many clients are
    /// the server's.
    pub(crate) fn holder(&self, from: IpAddr) -> Holder {
        match forwarded::is_forwarder(from, &self.trusted_forwarders) {
            true => Holder::SERVER,
            false => Holder::of(from),
        }
    }

    /// Counts a connection from an address for these as well. Connections of a proxy that forwards requests of many
    /// clients are not counted.
    pub(crate) fn count(&self, from: IpAddr, parties: &Parties) -> Result<Connected, By> {
        match forwarded::is_forwarder(from, &self.trusted_forwarders) {
            true => Ok(Connected::uncounted()),
            false => self.throttle.connect(parties),
        }
    }

    /// An id for what a request begins that has none of its own.
    pub fn new_id(&self) -> String {
        crate::request_id::request_id(self.started_s, self.data.metrics.began.next())
    }

    /// Records the end of a copy between servers, in the log and in the audit log.
    pub fn record_copy(&self, mut record: CopyRecord<'_>) {
        record.time = timestamp(SystemTime::now());
        self.access_log.write_copy(&record);
        self.audit_log.write_copy(&record);
    }

    /// Takes a request over root:// from its client's allowance; the exhausted one and the time to wait, if so.
    pub fn take_request(&self, client: &Client) -> Result<(), (By, Duration)> {
        let taken = self.throttle.request(&self.limits.of_address(client.address));
        let taken = taken.and_then(|()| self.throttle.request(&self.limits.of_identity(&client.identity)));
        taken.inspect_err(|(by, _)| self.data.metrics.throttled(*by))
    }

    /// Decides by the rules if a client may do something to a file of these names; the reason, if it may not. The
    /// outcome is noted for the log.
    pub fn decide<'a>(
        &self,
        client: &Client,
        operation: Operation,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Reason> {
        let decision = self.policy.decide(client.requester(), operation, names.clone());
        client.decided(operation, names, decision, !decision.is_granted());
        match decision {
            Decision::Refused(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// True if a client may do something to the server itself.
    pub(crate) fn may_administer(&self, client: &Client) -> bool {
        self.decide(client, Operation::Admin, std::iter::empty()).is_ok()
    }
}
