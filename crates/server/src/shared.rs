//! What all connections of a server share: what the operator decides at the moment, and what outlives that.

use std::net::IpAddr;
use std::sync::Arc;

use gridlane_core::{Error, Network, limits};
use gridlane_net::Acceptor;
use tokio::sync::watch;

use crate::access_log::AccessLog;
use crate::admin::Looking;
use crate::auth::chains::Chains;
use crate::auth::challenge::Asking;
use crate::auth::keys::Keys;
use crate::auth::passwords::Passwords;
use crate::budgets::Budgets;
use crate::buffers::Buffers;
use crate::data::DataPath;
use crate::digests::Digests;
use crate::export::Exports;
use crate::forwarded;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::root::files::OpenFiles;
use crate::root::session::Sessions;
use crate::settings::{AuthSettings, LogLevel, RootSettings, Settings, Shares};
use crate::throttle::{AllLimits, By, Connected, Parties, Throttle};
use gridlane_share::budget::{Holder, Share};

/// One generation of the configuration, with what all of them share behind pointers. A reload makes another one;
/// a request that runs keeps the one that it began with.
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) acceptor: Acceptor,
    pub(crate) certificate_expires: Option<std::time::SystemTime>,
    pub(crate) limits: AllLimits,
    pub(crate) trusted_forwarders: Vec<Network>,
    pub(crate) host_names: Vec<String>,
    pub(crate) auth: AuthSettings,
    /// How clients can prove who they are.
    pub(crate) asking: Arc<Asking>,
    /// What was found of certificates by these settings.
    pub(crate) chains: Chains,
    pub(crate) issuer_keys: Arc<Keys>,
    pub(crate) passwords: Arc<Passwords>,
    pub(crate) looking: Looking,
    pub(crate) root: RootSettings,
    pub(crate) access_log: AccessLog,
    pub(crate) access_log_level: LogLevel,
    pub(crate) audit_log: AccessLog,
    pub(crate) digests: Digests,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) data: DataPath,
    /// The sessions of clients that speak XRootD's protocol.
    pub(crate) root_sessions: Arc<Sessions>,
    /// Seconds since 1970 at the start: tells this process's requests from an earlier one's in a log.
    pub(crate) started_s: u64,
}

/// What all generations share.
pub(crate) struct Lasting {
    issuer_keys: Arc<Keys>,
    passwords: Arc<Passwords>,
    looking: Looking,
    /// How many generations there were before the next.
    generation: u64,
    buffers: Arc<Buffers>,
    digests: Digests,
    budgets: Arc<Budgets>,
    open_files: Arc<OpenFiles>,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    root_sessions: Arc<Sessions>,
    started_s: u64,
}

impl Lasting {
    pub(crate) fn new(started_s: u64) -> gridlane_core::Result<Lasting> {
        let passwords =
            Passwords::new().map_err(|cause| Error::local_io("the system has no random numbers", &cause))?;
        let budgets = Arc::new(Budgets::new());
        Ok(Lasting {
            issuer_keys: Arc::default(),
            passwords: Arc::new(passwords),
            looking: Looking::default(),
            generation: 0,
            buffers: Arc::default(),
            digests: Digests::new(),
            open_files: Arc::new(OpenFiles::of(Arc::clone(&budgets.open_files))),
            budgets,
            throttle: Arc::new(Throttle::new()),
            metrics: Arc::default(),
            root_sessions: Arc::default(),
            started_s,
        })
    }
}

impl Shared {
    /// Another generation.
    pub(crate) fn new(settings: Settings, lasting: Lasting) -> gridlane_core::Result<Shared> {
        let deadlines = settings.deadlines;
        let limits = AllLimits {
            client: settings.client_limits,
            user: settings.auth.user_limits,
            vo: settings.auth.vo_limits,
        };
        let one = limits.client.connections_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let connections = Shares::connections(settings.connections_max);
        let connections = Share { one: one.unwrap_or(connections.one), ..connections };
        let asking = Arc::new(Asking::of(&settings.auth));
        let exports = Exports::new(settings.exports, settings.policy, Arc::clone(&asking))?;
        // Nothing fails from here on.
        lasting.budgets.resize(connections, settings.root.is_enabled, &settings.shares);
        let devices = exports.turns();
        for turns in &devices {
            turns.resize(settings.shares.device.of_each(devices.len()));
        }
        Ok(Shared {
            exports,
            asking,
            chains: Chains::new(lasting.generation),
            issuer_keys: lasting.issuer_keys,
            passwords: lasting.passwords,
            looking: lasting.looking,
            acceptor: Acceptor::new(settings.tls).deadline(deadlines.detect).proxies(settings.proxies),
            certificate_expires: settings.certificate_expires,
            limits,
            trusted_forwarders: settings.trusted_forwarders,
            host_names: settings.host_names,
            auth: settings.auth,
            root: settings.root,
            access_log: settings.access_log,
            access_log_level: settings.access_log_level,
            audit_log: settings.audit_log,
            digests: lasting.digests,
            budgets: lasting.budgets,
            open_files: lasting.open_files,
            throttle: lasting.throttle,
            data: DataPath {
                buffers: lasting.buffers,
                pace: settings.limit_rate_bytes_per_s.map(Pace::new),
                deadlines,
                metrics: lasting.metrics,
            },
            root_sessions: lasting.root_sessions,
            started_s: lasting.started_s,
        })
    }

    /// Has the keys of issuers go by these settings, once it is certain that they are used. Reads files.
    pub(crate) fn configure_keys(&self) {
        self.issuer_keys.configure(&self.auth, &self.access_log);
    }

    /// What the next generation takes over.
    pub(crate) fn lasting(&self) -> Lasting {
        Lasting {
            issuer_keys: Arc::clone(&self.issuer_keys),
            passwords: Arc::clone(&self.passwords),
            looking: Arc::clone(&self.looking),
            generation: self.chains.generation() + 1,
            buffers: Arc::clone(&self.data.buffers),
            digests: self.digests.clone(),
            budgets: Arc::clone(&self.budgets),
            open_files: Arc::clone(&self.open_files),
            throttle: Arc::clone(&self.throttle),
            metrics: Arc::clone(&self.data.metrics),
            root_sessions: Arc::clone(&self.root_sessions),
            started_s: self.started_s,
        }
    }

    /// In whose name a connection from an address is. Those of a proxy that speaks for many by its requests are in the
    /// server's.
    pub(crate) fn holder(&self, from: IpAddr) -> Holder {
        match forwarded::is_forwarder(from, &self.trusted_forwarders) {
            true => Holder::SERVER,
            false => Holder::of(from),
        }
    }

    /// Counts a connection from an address for these as well. Those of a proxy that speaks for many by its requests are
    /// not counted: they are nobody's.
    pub(crate) fn count(&self, from: IpAddr, parties: &Parties) -> Result<Connected, By> {
        match forwarded::is_forwarder(from, &self.trusted_forwarders) {
            true => Ok(Connected::uncounted()),
            false => self.throttle.connect(parties),
        }
    }

    /// Removes what earlier servers left behind in writable exports, when it is old.
    pub(crate) fn remove_abandoned(&self) -> gridlane_core::Result<()> {
        for export in self.exports.iter().filter(|export| export.allow_write) {
            export.storage.remove_abandoned(limits::PARTIAL_AGE_MAX)?;
        }
        Ok(())
    }
}

/// The generation of the moment.
pub(crate) type Current = watch::Receiver<Arc<Shared>>;
