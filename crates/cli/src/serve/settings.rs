//! From options and tables to what the server is told.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use gridlane_config::value::wrong;
use gridlane_core::{Error, Network, Result, limits};
use gridlane_front::{AccessLog, ClientLimits, LogLevel};
use gridlane_net::{AddressRules, Dialer, TrustedProxies, tls};
use gridlane_peer::Client;
use gridlane_server::{Export, Settings, StorageSettings, ThirdPartySettings};
use gridlane_share::Share;
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::{BlockingStorage, Durability, PosixOptions, PosixStorage, QuotaStorage, Storage};

use super::auth::{self, GoodFiles};
use super::gsi;
use super::keys::KeyFetcher;
use super::room;
use super::tables::{self, Defaults, Plan, Tables};
use crate::args::{AccessLogLevel, Global, ListenAt, ServeArgs};

/// The port of XRootD, which HTTP shares on the grid.
const DEFAULT_PORT: u16 = 1094;

/// Longest wait for a directory with a quota to be counted before the server serves.
const COUNTING_MAX: Duration = Duration::from_secs(10);

/// The parts that a reload goes on using if they stay the same: an export's locks and counts are worth something only
/// when there is one of them.
#[derive(Clone, Default)]
pub(super) struct Kept {
    storages: Vec<(StorageKey, OpenStorage)>,
    logs: Vec<(String, AccessLog)>,
    authorities: GoodFiles,
    /// Faults of single files, which do not keep the server from serving.
    warnings: Vec<String>,
}

/// A directory that is exported, and what is served of it: itself, or with a quota.
#[derive(Clone)]
struct OpenStorage {
    posix: Arc<PosixStorage>,
    served: Arc<dyn Storage>,
}

#[derive(Clone, PartialEq, Eq)]
struct StorageKey {
    directory: PathBuf,
    /// Device and number: another directory may have been mounted there.
    identity: (u64, u64),
    options: PosixOptions,
    quota_bytes: Option<u64>,
}

/// A certificate and its key.
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    /// We made it, or will.
    pub(super) is_self_signed: bool,
}

/// The exports.
pub(super) fn tables(args: &ServeArgs, global: &Global) -> Result<Tables> {
    let defaults = Defaults {
        allow_write: args.allow_write,
        upload_bytes_max: args.max_upload,
        durability: args.durability,
    };
    let mut tables = of_file(global, defaults)?;
    tables.root.server_name = args.server_name.clone();
    match (&args.directory, tables.plans.is_empty()) {
        (Some(directory), true) => {
            tables.plans = vec![Plan::of_directory(directory, defaults)];
            Ok(tables)
        }
        (None, false) => Ok(tables),
        (Some(directory), false) => {
            let what = format!(
                "{} is named on the command line, and the configuration file has [[export]] tables",
                directory.display()
            );
            Err(wrong(what).hint("name all directories in one of the two"))
        }
        (None, true) => Err(wrong("there is nothing to serve")
            .hint("name a directory, or a file with [[export]] tables by --config")),
    }
}

fn of_file(global: &Global, defaults: Defaults) -> Result<Tables> {
    let Some(file) = &global.config else { return Ok(Tables::default()) };
    gridlane_config::file::read(file, |text| tables::read(text, defaults))
}

/// The tables of a configuration file, or of `directory` where there is none: for questions about it. `allow_write` holds
/// where the file does not say itself whether anything may be changed.
pub(super) fn tables_of_file(global: &Global, directory: Option<&Path>, allow_write: bool) -> Result<Tables> {
    let defaults = Defaults {
        allow_write,
        upload_bytes_max: limits::UPLOAD_BYTES_MAX,
        durability: Durability::default(),
    };
    let mut tables = of_file(global, defaults)?;
    match (directory, tables.plans.is_empty()) {
        (Some(directory), true) => tables.plans = vec![Plan::of_directory(directory, defaults)],
        (None, true) => {
            return Err(wrong("there is no configuration to ask")
                .hint("name the file by --config, or a directory by --directory"));
        }
        (_, false) => {}
    }
    Ok(tables)
}

/// Fails when a directory is not there, or lies in another one that is served: what a request does to one path would
/// happen to a path of the other export as well, against its rules and quota.
pub(super) fn check_directories(plans: &[Plan]) -> Result<()> {
    let mut known: Vec<(PathBuf, &Plan)> = Vec::new();
    for plan in plans {
        let real = plan.directory.canonicalize().map_err(|cause| {
            Error::local_io(format!("cannot export {}", plan.directory.display()), &cause)
        })?;
        let overlaps = |(other, _): &&(PathBuf, &Plan)| real.starts_with(other) || other.starts_with(&real);
        if let Some((_, other)) = known.iter().find(overlaps) {
            let (one, other) = (plan.directory.display(), other.directory.display());
            return Err(wrong(format!("the directories {one} and {other} overlap"))
                .hint("export directories of which none lies in another"));
        }
        known.push((real, plan));
    }
    Ok(())
}

/// Everything that the server is told, and what is wrong with single files and was not before. Opens directories and logs,
/// or takes those that are open already.
pub(super) fn settings(
    args: &ServeArgs,
    global: &Global,
    tables: &Tables,
    certificate: &Certificate,
    kept: &mut Kept,
) -> Result<(Settings, Vec<String>)> {
    let mut next = Kept::default();
    let exports =
        tables.plans.iter().map(|plan| export(plan, kept, &mut next)).collect::<Result<Vec<_>>>()?;
    let access_log = match args.access_log.as_str() {
        "-" if global.quiet => AccessLog::off(),
        "-" => log("-", kept, &mut next, |_| AccessLog::to_stderr())?,
        path => log(path, kept, &mut next, AccessLog::to_file)?,
    };
    let audit_log = match args.audit_log.as_str() {
        "-" => log("-", kept, &mut next, |_| AccessLog::to_stderr())?,
        path => log(path, kept, &mut next, AccessLog::to_synced_file)?,
    };
    let listen = addresses(args, tables.auth.authenticates())?;
    next.authorities = kept.authorities.clone();
    let (mut auth, warnings) = auth::load(&tables.auth, audiences(args, &listen), &mut next.authorities)?;
    if !auth.issuers.is_empty() {
        // `--insecure` is not for this: a host that could pretend to be an issuer could have any identity here.
        auth.key_source = Some(Arc::new(KeyFetcher::new(global.authorities())));
    }
    next.warnings = warnings;
    let news = next.news_since(kept);
    news.iter().for_each(|warning| access_log.note(warning));
    let asks = auth.trust.is_some();
    let host = gsi::host(&tables.root, asks, certificate)?;
    #[cfg(feature = "gsi")]
    {
        auth.gsi_host = host.credential;
    }
    #[cfg(not(feature = "gsi"))]
    drop(host);
    let tls = tls::server_config_with(&certificate.cert, &certificate.key, asks, global.records())?;
    let (_, expires) = tls::validity(&certificate.cert)?;
    let third_party = third_party(args, global, &listen)?;
    let mut settings = Settings::new(listen, StorageSettings::default());
    settings.service.third_party = third_party;
    settings.auth = auth;
    settings.service.exports = exports;
    settings.policy = Arc::new(tables.policy());
    settings.admin = admin(args)?;
    settings.limit_rate_bytes_per_s = args.limit_rate;
    settings.tls = Some(tls);
    settings.certificate_expires = Some(expires);
    settings.access_log = access_log;
    settings.access_log_level = match args.access_log_level {
        AccessLogLevel::All => LogLevel::All,
        AccessLogLevel::Failures => LogLevel::Failures,
    };
    settings.audit_log = audit_log;
    settings.connections_max = args.max_connections as usize;
    settings.client_limits = ClientLimits {
        connections_max: args.client_connections,
        requests_per_s: args.client_requests,
        bytes_per_s: args.client_rate,
    };
    settings.proxies = TrustedProxies {
        trusted: networks(&args.proxy_protocol)?,
        may_be_silent: args.proxy_protocol_optional,
    };
    settings.trusted_forwarders = networks(&args.trust_forwarded)?;
    settings.host_names = names(args);
    settings.root = tables.root.clone();
    // A server that makes no copies has no use for one.
    settings.root.takes_proxies &= settings.service.third_party.is_some();
    settings.deadlines.drain_delay = Duration::from_secs_f64(args.drain_delay);
    *kept = next;
    Ok((settings, news))
}

fn export(plan: &Plan, kept: &Kept, next: &mut Kept) -> Result<Export> {
    let fail = |cause| Error::local_io(format!("cannot export {}", plan.directory.display()), &cause);
    let metadata = std::fs::metadata(&plan.directory).map_err(fail)?;
    let key = StorageKey {
        directory: plan.directory.clone(),
        identity: (metadata.dev(), metadata.ino()),
        options: plan.options.clone(),
        quota_bytes: plan.quota_bytes,
    };
    // One that was removed is none, although the one that was made in its place may have got its number.
    let open = next.storages.iter().chain(&kept.storages);
    let open = open
        .filter(|(open, _)| *open == key)
        .find(|(_, storage)| BlockingStorage::is_in_place(storage.posix.as_ref()));
    let storage = match open.map(|(_, storage)| storage.clone()) {
        Some(storage) => storage,
        None => open_storage(plan)?,
    };
    let served = Arc::clone(&storage.served);
    next.storages.push((key, storage));
    Ok(Export {
        path: plan.path.clone(),
        allow_write: plan.allow_write,
        upload_bytes_max: plan.upload_bytes_max,
        compat: plan.compat,
        cors_origins: plan.cors_origins.clone(),
        mirrors: plan.mirrors.clone(),
        ..Export::new(served)
    })
}

fn open_storage(plan: &Plan) -> Result<OpenStorage> {
    let posix = Arc::new(PosixStorage::open_with(&plan.directory, plan.options.clone())?);
    let served: Arc<dyn Storage> = Arc::clone(&posix) as Arc<dyn Storage>;
    let Some(quota_bytes) = plan.quota_bytes else { return Ok(OpenStorage { posix, served }) };
    let storage = Arc::new(QuotaStorage::new(served, quota_bytes));
    let (counted, first) = std::sync::mpsc::channel();
    let counter = Arc::downgrade(&storage);
    // Without it nothing would ever be refused.
    let failed = |cause: std::io::Error| {
        let what = format!(
            "cannot export {} with a quota: there is no thread to count its files",
            plan.directory.display()
        );
        Error::local_io(what, &cause).hint(room::MORE_THREADS)
    };
    // A walk that a dead disk holds up holds up nothing else.
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    std::thread::Builder::new()
        .spawn(move || count_now_and_then(&runtime, &counter, counted))
        .map_err(failed)?;
    // A huge directory goes on being counted while it is served: until then too much may be stored.
    let _ = first.recv_timeout(COUNTING_MAX);
    Ok(OpenStorage { posix, served: storage })
}

/// Counts what a directory holds: also what others than the server put there. Ends with the storage.
fn count_now_and_then(
    runtime: &tokio::runtime::Runtime,
    storage: &Weak<QuotaStorage>,
    counted: std::sync::mpsc::Sender<()>,
) {
    let mut counted = Some(counted);
    while let Some(storage) = storage.upgrade() {
        // What failed may succeed the next time; until then the last count holds.
        let _ = runtime.block_on(storage.recount());
        drop(storage);
        drop(counted.take());
        std::thread::sleep(limits::PARTIAL_INTERVAL);
    }
}

/// The log at a place: the one that is open there already, or else a new one.
fn log(
    place: &str,
    kept: &Kept,
    next: &mut Kept,
    open: impl FnOnce(&Path) -> Result<AccessLog>,
) -> Result<AccessLog> {
    let is_open = next.logs.iter().chain(&kept.logs).find(|(open, _)| open == place);
    let log = match (is_open.map(|(_, log)| log.clone()), place) {
        (Some(log), _) => log,
        (None, "off") => return Ok(AccessLog::off()),
        (None, path) => open(Path::new(path))?,
    };
    next.logs.push((place.to_owned(), log.clone()));
    Ok(log)
}

impl Kept {
    /// Faults of single files that were not there before.
    pub(super) fn news_since(&self, before: &Kept) -> Vec<String> {
        self.warnings.iter().filter(|warning| !before.warnings.contains(warning)).cloned().collect()
    }

    /// Opens the files of all logs again.
    pub(super) fn reopen_logs(&self) {
        for (_, log) in &self.logs {
            log.reopen();
        }
    }
}

/// Names of this server, the one that it calls itself first.
fn names(args: &ServeArgs) -> Vec<String> {
    let mut names: Vec<String> = args.server_name.iter().cloned().collect();
    names.extend(args.aliases.iter().cloned());
    // Every machine's own `localhost` is no name of this one.
    let listens = args.listen.iter().filter_map(ListenAt::name).filter(|name| *name != "localhost");
    names.extend(listens.map(str::to_owned));
    names.extend(host_name());
    names
}

/// The name of this machine.
pub(super) fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

/// The audiences of tokens for this server, if nothing else is said: its names with its ports.
pub(super) fn audiences(args: &ServeArgs, listen: &[SocketAddr]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut ports: Vec<u16> = listen.iter().map(SocketAddr::port).filter(|port| *port != 0).collect();
    ports.dedup();
    for name in names(args) {
        for port in &ports {
            all.push(format!("https://{name}:{port}"));
            if *port == 443 {
                all.push(format!("https://{name}"));
            }
        }
    }
    all
}

/// The copies between this server and others. What it connects to for its clients are public addresses, and those that the
/// operator allows.
fn third_party(
    args: &ServeArgs,
    global: &Global,
    listen: &[SocketAddr],
) -> Result<Option<ThirdPartySettings>> {
    let Some(all) = usize::try_from(args.tpc_copies).ok().filter(|all| *all > 0) else { return Ok(None) };
    let mut rules = AddressRules::public();
    for network in networks(&args.tpc_allow)? {
        rules = rules.allow(network);
    }
    if listen.iter().all(|address| is_loopback(address.ip())) {
        rules = rules.allow_loopback();
    }
    let dialer = Dialer::new(global.authorities()).addresses(rules);
    let client = Client::new(dialer, limits::THIRD_PARTY_ANSWER_MAX);
    let mut settings = ThirdPartySettings::new(client, state_keys());
    settings.pushes_for_anyone = args.tpc_push_for_anyone;
    settings.copies = Share { all, one: (all / limits::THIRD_PARTY_CLIENT_PART).max(1) };
    Ok(Some(settings))
}

/// Where the key of journals is: in the directory that the service manager keeps for the server's state, or in the user's.
fn state_keys() -> JournalKeys {
    // systemd names several with colons between them (systemd.exec(5)); the first one is the server's own.
    let named = std::env::var("STATE_DIRECTORY").unwrap_or_default();
    match named.split(':').map(Path::new).next().filter(|directory| directory.is_absolute()) {
        Some(directory) => JournalKeys::at(directory.join("journal.key")),
        None => gridlane_client::journal_keys(),
    }
}

fn networks(texts: &[String]) -> Result<Vec<Network>> {
    Network::parse_list(texts.iter().map(String::as_str))
}

/// The addresses to listen at. `asks`: clients have a way to prove an identity, so that it need not be this machine
/// alone.
pub(super) fn addresses(args: &ServeArgs, asks: bool) -> Result<Vec<SocketAddr>> {
    let mut listen = Vec::new();
    let default = [ListenAt::Name { host: "localhost".to_owned(), port: DEFAULT_PORT }];
    for at in if args.listen.is_empty() { &default[..] } else { &args.listen } {
        listen.extend(at.addresses()?);
    }
    admin(args)?;
    match listen.iter().find(|address| !is_loopback(address.ip())) {
        Some(address) if !asks && !args.insecure_allow_anonymous => {
            let message =
                format!("{address} is reachable from other machines, and clients need no credentials");
            Err(wrong(message)
                .hint("configure authentication in [auth], listen on 127.0.0.1 or [::1], or add --insecure-allow-anonymous if every client may read"))
        }
        _ => Ok(listen),
    }
}

/// Where questions about the server are answered, of a name's addresses at the first.
pub(super) fn admin(args: &ServeArgs) -> Result<Option<SocketAddr>> {
    let Some(at) = &args.admin else { return Ok(None) };
    let address = at.addresses()?.first().copied();
    match address.filter(|address| !is_loopback(address.ip()) && !args.insecure_admin) {
        Some(open) => {
            let message =
                format!("--admin {open} is reachable from other machines, and clients need no credentials");
            Err(wrong(message).hint("use 127.0.0.1 or [::1], or add --insecure-admin"))
        }
        None => Ok(address),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The certificate and key to use. Ours are not made here.
pub(super) fn certificate(args: &ServeArgs) -> Result<Certificate> {
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        return Ok(Certificate { cert: cert.clone(), key: key.clone(), is_self_signed: false });
    }
    let (cert, key) = tls::self_signed_files(&data_directory()?);
    Ok(Certificate { cert, key, is_self_signed: true })
}

impl Certificate {
    /// Makes ours if it is not there yet.
    pub(super) fn make(&self, args: &ServeArgs) -> Result<()> {
        if self.is_self_signed {
            let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
            for name in names(args) {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            tls::self_signed(&data_directory()?, &all)?;
        }
        Ok(())
    }

    /// Fails when it is of no use now.
    pub(super) fn check_validity(&self) -> Result<SystemTime> {
        let (begins, ends) = tls::validity(&self.cert)?;
        let now = SystemTime::now();
        let unusable = |why: &str| wrong(format!("the certificate {} {why}", self.cert.display()));
        if now >= ends {
            return Err(unusable("has expired"));
        }
        if now < begins {
            return Err(unusable("is not valid yet"));
        }
        Ok(ends)
    }
}

fn data_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| {
        wrong("there is no place to keep a certificate: neither HOME nor XDG_DATA_HOME is set")
            .hint("give one with --cert FILE --key FILE")
    })?;
    Ok(data.join("gridlane"))
}
