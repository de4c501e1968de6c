//! Every command and option, with its help: the public contract.

mod credentials;
mod filter;
mod listen;
mod paths;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use gridlane_core::units::{parse_bytes, parse_rate_bytes_per_s};
use gridlane_core::{Checksum, ChecksumKind, Result};
use gridlane_net::tls::{RecordLayer, Trust};
use gridlane_store::posix::Durability;

use crate::output::tell;

pub(crate) use credentials::CredentialArgs;
pub(crate) use filter::FilterArgs;
pub(crate) use listen::ListenAt;
pub(crate) use paths::Paths;

/// Moves big scientific data between storage sites: serves directories over HTTP, WebDAV and root://, and copies
/// files and trees, each file from all of its replicas at once.
#[derive(Debug, Parser)]
#[command(name = "gridlane", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 ok, 1 other, 2 usage, 3 not found, 4 denied, 5 exists or precondition, \
6 network (retry), 7 timeout (retry), 8 checksum mismatch, 9 no space or local I/O, 10 some of many failed, \
11 server busy (retry), 12 unsupported, 130 interrupted (the same command continues).\n\n\
Options with [env: …] can be given in the environment, all options in a TOML file (--config): \
the command line counts before the environment, the environment before the file."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Print one JSON object per line on standard output instead of text
    #[arg(long, global = true, env = "GRIDLANE_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long, global = true, env = "GRIDLANE_QUIET", value_parser = FalseyValueParser::new(), conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also report lost connections and retries
    #[arg(short, long, global = true, env = "GRIDLANE_VERBOSE", value_parser = FalseyValueParser::new())]
    pub(crate) verbose: bool,
    /// Read options from a TOML file: a table per command, options with their long names
    #[arg(long, global = true, value_name = "FILE", env = "GRIDLANE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Trust the certificate authorities in this PEM file too (repeatable). The system's own come from
    /// SSL_CERT_FILE or its store, the grid's from X509_CERT_DIR or /etc/grid-security/certificates
    #[arg(long, global = true, value_name = "FILE", env = "GRIDLANE_CA")]
    pub(crate) ca: Vec<PathBuf>,
    /// Check no certificate: anyone on the path can read and change the bytes
    #[arg(long, global = true, env = "GRIDLANE_INSECURE", value_parser = FalseyValueParser::new())]
    pub(crate) insecure: bool,
    /// Code that makes and opens the records of TLS 1.3: `own`, which copies less, or `rustls` alone. Nothing else
    /// depends on it [default: own, unless the program was built without it]
    #[arg(
        long,
        global = true,
        value_name = "own|rustls",
        env = "GRIDLANE_TLS_RECORDS",
        hide_short_help = true
    )]
    pub(crate) tls_records: Option<RecordLayer>,
}

impl Global {
    /// The trust in servers by these options and the environment.
    pub(crate) fn trust(&self) -> Trust {
        if self.insecure {
            tell!("gridlane: --insecure: no certificate is checked; anyone on the path can change the bytes");
        }
        Trust { insecure: self.insecure, ..self.authorities() }
    }

    /// The code of TLS' records.
    pub(crate) fn records(&self) -> RecordLayer {
        self.tls_records.unwrap_or_default()
    }

    /// The same, but that every certificate is checked in any case.
    pub(crate) fn authorities(&self) -> Trust {
        Trust { records: self.records(), ..gridlane_client::authorities(self.ca.clone()) }
    }
}

// A command is described where its options are: a comment on the variant would hide the one there.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Cp(CpArgs),
    Serve(ServeArgs),
    Ls(LsArgs),
    /// Show the attributes of a file or directory
    ///
    /// Name, kind, size, time of the last change, and the server's entity tag.
    Stat(UrlArgs),
    Cat(crate::read::args::CatArgs),
    Read(crate::read::args::ReadArgs),
    Mkdir(MkdirArgs),
    Mv(MvArgs),
    Rm(RmArgs),
    Checksum(ChecksumArgs),
    Df(DfArgs),
    Doctor(DoctorArgs),
    Probe(crate::probe::args::ProbeArgs),
    Completion(CompletionArgs),
    #[command(hide = true)]
    Complete(CompleteArgs),
    Man(ManArgs),
    Wan(crate::wan::args::WanArgs),
    Pki(crate::pki::args::PkiArgs),
    Auth(crate::auth::AuthArgs),
}

/// Copy files and trees, from several replicas at once if there are.
///
/// SRC and DST are URLs (http, https, root, roots, file) or paths. DST may be `-` for standard output, or a
/// directory, which gets the source's name. Several SRC go into a directory DST. Into a regular file, bytes
/// are collected beside it (`.NAME.gridlane-part`) and the name appears when all of them are there and
/// compared with their checksum; after an interruption the same command continues, for the same user: a key in
/// `$XDG_STATE_HOME/gridlane` (`~/.local/state/gridlane`) ties a partial file to its user. Pipes and devices are
/// written directly.
///
/// Every replica is asked for its checksum: the majority decides, or --checksum. The copy waits for those that
/// could still change that. Wrong bytes are fetched again from another replica, and the liar is named. With
/// nothing to compare with, the result says "unverified", or with --require-verified is a failure.
///
/// SRC may be a metalink (version 3 or 4): a file or URL that ends in `.meta4` or `.metalink`, or any URL
/// answered as one. The files that it describes are copied from all the replicas that it names, and compared
/// with its checksums, piece by piece where it has them. With one file DST may be its name; several go
/// into a directory. A metalink chooses names only where SRC ends like one, and none that begins with a dot;
/// any other URL keeps its own last name, whatever it is answered with.
///
/// From server to server the bytes do not come here: the target's server is asked to fetch the file, or else the source's to
/// send it (--tpc, --tpc-mode), and both ends are compared. Only where they cannot do it the bytes go through this machine,
/// and it says so.
///
/// With -r, SRC may be a directory; without, one is refused. It goes into DST if that is a directory or ends
/// with a slash, and becomes DST otherwise; `SRC/` means what is in it. A file that fails does not stop the
/// others: then the exit code is 10. In a tree, metalinks are files like others.
#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// Another replica of the same file, or with -r another place of the same tree (repeatable)
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Vec<String>,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Copy a metalink as the file that it is, instead of the files that it describes
    #[arg(long, env = "GRIDLANE_NO_METALINK", value_parser = FalseyValueParser::new())]
    pub(crate) no_metalink: bool,
    /// Use no replicas and no metalinks that servers name in Link fields
    #[arg(long, env = "GRIDLANE_NO_LINKS", value_parser = FalseyValueParser::new())]
    pub(crate) no_links: bool,
    /// Compare this checksum: adler32, crc32c, md5, sha1, sha256 or sha512, with the value if you know it
    #[arg(long, value_name = "TYPE[:VALUE]", value_parser = parse_wanted, env = "GRIDLANE_CHECKSUM")]
    pub(crate) checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// Fail with exit code 8, and let nothing become visible, when there is no checksum to compare the bytes with. A
    /// pipe has them by then, and an upload needs the word of its server as well
    #[arg(long, env = "GRIDLANE_REQUIRE_VERIFIED", value_parser = FalseyValueParser::new())]
    pub(crate) require_verified: bool,
    /// Exactly so many connections to each source [default: what measuring finds best]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), env = "GRIDLANE_STREAMS")]
    pub(crate) streams: Option<u16>,
    /// Receive at most this much per second: 80M (bytes), 800Mbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate_bytes_per_s, env = "GRIDLANE_LIMIT_RATE")]
    pub(crate) limit_rate: Option<u64>,
    /// Between two servers: have them copy it between themselves where they can (auto), or fail where they cannot (only), or
    /// carry the bytes through this machine (never)
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Tpc::Auto, env = "GRIDLANE_TPC")]
    pub(crate) tpc: Tpc,
    /// Then the target's server fetches it (pull), or the source's sends it (push); auto tries one after the other
    #[arg(long, value_enum, value_name = "MODE", default_value_t = TpcMode::Auto, env = "GRIDLANE_TPC_MODE")]
    pub(crate) tpc_mode: TpcMode,
    /// Over root://: give the target's server, if it asks for one, a proxy of your certificate for 12 hours, with which it fetches the file as you do, so that
    /// the source's server need know nothing of such copies
    #[arg(long, env = "GRIDLANE_DELEGATE", value_parser = FalseyValueParser::new())]
    pub(crate) delegate: bool,
    /// Replace an existing target
    #[arg(long, env = "GRIDLANE_FORCE", value_parser = FalseyValueParser::new())]
    pub(crate) force: bool,
    /// Leave a target that has the source's size and is not older; replace one that differs
    #[arg(short, long, conflicts_with = "force", env = "GRIDLANE_UPDATE", value_parser = FalseyValueParser::new())]
    pub(crate) update: bool,
    /// Give the target the time of the source's last change
    #[arg(long, value_enum, value_name = "WHAT", env = "GRIDLANE_PRESERVE")]
    pub(crate) preserve: Option<Preserve>,
    /// Print what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Give up when no source sends, or the target's server takes, a byte for so many seconds [default: 60, and 300 for
    /// the word of an HTTP server that it has all of a file]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, env = "GRIDLANE_TIMEOUT")]
    pub(crate) timeout: Option<f64>,
    /// Show progress: on a terminal, always (plain lines if it is none), or never
    #[arg(long, value_enum, default_value_t = Progress::Auto, env = "GRIDLANE_PROGRESS")]
    pub(crate) progress: Progress,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Copy only what this file names, below SRC: one name a line, with a slash at the end for a directory
    /// with all that is in it; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Write the names of what failed, below SRC, to this file, which --files-from understands
    #[arg(long, value_name = "FILE")]
    pub(crate) failed_to: Option<PathBuf>,
    /// In these two files a byte of value 0 ends a name, and not the end of the line
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Go on with the other files when one has failed
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set, env = "GRIDLANE_CONTINUE_ON_ERROR")]
    pub(crate) continue_on_error: bool,
    /// Copy so many files at the same time, beside small ones that come over HTTP: those share a few connections
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=gridlane_core::limits::TREE_PARALLEL_MAX as i64), env = "GRIDLANE_PARALLEL")]
    pub(crate) parallel: u16,
    /// Symbolic links in a tree of this machine: leave them out, or copy what they lead to
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Links::Skip, env = "GRIDLANE_LINKS")]
    pub(crate) links: Links,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

impl CpArgs {
    /// True if it may be about many files.
    pub(crate) fn is_tree(&self) -> bool {
        self.recursive || self.paths.source.len() > 1 || self.files_from.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preserve {
    /// When files were last changed
    Times,
}

/// A third-party copy: one that servers make between themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tpc {
    Auto,
    Only,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TpcMode {
    Auto,
    Pull,
    Push,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    Skip,
    Follow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    Auto,
    Always,
    Never,
}

/// Serve directories over HTTP, HTTPS, WebDAV and XRootD's protocol on one port.
///
/// The addresses that it prints are all of the same port: http, https, root, and roots, which is root with TLS.
///
/// With a directory alone, every client that can connect may read; with --allow-write, also store, move and remove files.
/// Beyond loopback it refuses to listen then unless told --insecure-allow-anonymous, because clients need no credentials.
/// Uploads appear under their name only when complete.
///
/// Several directories (`[[export]]`), credentials of clients (`[auth]`: certificates, tokens, macaroons, passwords) and
/// their rights (`[[rule]]`) come from the file that --config names. The files of the server are read again
/// when they change; SIGHUP does it at once and reopens the logs. SIGTERM or Ctrl-C ends the server after the running
/// requests.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory, unless the configuration file has `[[export]]` tables
    pub(crate) directory: Option<PathBuf>,
    /// Check configuration, certificate, directories and addresses, say what would be served, and end: exit code 0
    /// if it would work, 2 if not
    #[arg(long)]
    pub(crate) check: bool,
    /// Address and port to listen on (repeatable); a name stands for all of its addresses, port 0 for a free one.
    /// Without it: localhost:1094, which is 127.0.0.1:1094 and `[::1]:1094`
    #[arg(long, value_name = "ADDRESS:PORT", env = "GRIDLANE_LISTEN", value_delimiter = ',')]
    pub(crate) listen: Vec<ListenAt>,
    /// Let clients store, move and remove files, and make directories
    #[arg(long, env = "GRIDLANE_ALLOW_WRITE", value_parser = FalseyValueParser::new())]
    pub(crate) allow_write: bool,
    /// Send at most this much per second, over all connections: 80M (bytes), 800Mbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate_bytes_per_s, env = "GRIDLANE_LIMIT_RATE")]
    pub(crate) limit_rate: Option<u64>,
    /// Certificate chain (PEM) [default: a self-signed one, made and kept in the user's data directory]
    #[arg(long, value_name = "FILE", requires = "key", env = "GRIDLANE_CERT")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "GRIDLANE_KEY")]
    pub(crate) key: Option<PathBuf>,
    /// Log of requests, one JSON object a line: a file, `-` for standard error, or `off`
    #[arg(long, value_name = "FILE|-|off", default_value = "-", env = "GRIDLANE_ACCESS_LOG")]
    pub(crate) access_log: String,
    /// The requests in that log: all, or failures
    #[arg(long, value_enum, default_value_t = AccessLogLevel::All, env = "GRIDLANE_ACCESS_LOG_LEVEL")]
    pub(crate) access_log_level: AccessLogLevel,
    /// Another log, of requests that change something: a file, or `off`
    #[arg(long, value_name = "FILE|off", default_value = "off", env = "GRIDLANE_AUDIT_LOG")]
    pub(crate) audit_log: String,
    /// Answer requests about the server here: /healthz, /readyz, /metrics. They need no credentials, so only loopback
    /// addresses are accepted
    #[arg(long, value_name = "ADDRESS:PORT", env = "GRIDLANE_ADMIN")]
    pub(crate) admin: Option<ListenAt>,
    /// Accept an address beyond loopback for --admin
    #[arg(long, env = "GRIDLANE_INSECURE_ADMIN", value_parser = FalseyValueParser::new())]
    pub(crate) insecure_admin: bool,
    /// The name of this server in addresses that it makes [default: the machine's name]
    #[arg(long, value_name = "NAME", env = "GRIDLANE_SERVER_NAME", value_parser = parse_host)]
    pub(crate) server_name: Option<String>,
    /// Other names of the server (repeatable): for checks of Host, and for the Destination of MOVE and
    /// COPY
    #[arg(long, value_name = "NAME", env = "GRIDLANE_ALIASES", value_delimiter = ',', value_parser = parse_host)]
    pub(crate) aliases: Vec<String>,
    /// Proxies that have to state each connection's address by the PROXY protocol (1 or 2): addresses,
    /// networks, `loopback` or `any` (repeatable)
    #[arg(long, value_name = "NETWORK", env = "GRIDLANE_PROXY_PROTOCOL", value_delimiter = ',')]
    pub(crate) proxy_protocol: Vec<String>,
    /// Also serve connections from there without it, as the proxy's own
    #[arg(long, env = "GRIDLANE_PROXY_PROTOCOL_OPTIONAL", value_parser = FalseyValueParser::new(), requires = "proxy_protocol")]
    pub(crate) proxy_protocol_optional: bool,
    /// Proxies whose Forwarded and X-Forwarded-For are believed: addresses, networks, `loopback` or `any`
    /// (repeatable)
    #[arg(long, value_name = "NETWORK", env = "GRIDLANE_TRUST_FORWARDED", value_delimiter = ',')]
    pub(crate) trust_forwarded: Vec<String>,
    /// Open connections of one client (an IPv4 address, 64 bits of an IPv6 one); beyond it the answer is 429 [default: a
    /// quarter of --max-connections]
    #[arg(long, value_name = "N", env = "GRIDLANE_CLIENT_CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) client_connections: Option<u32>,
    /// Files of one client that are open over root:// [default: a quarter of what all may have open, which is 16384 or half
    /// of what the process may]
    #[arg(long, value_name = "N", env = "GRIDLANE_CLIENT_FILES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) client_files: Option<u32>,
    /// Requests of one client per second, and as many at once; beyond it the answer is 429
    #[arg(long, value_name = "N", env = "GRIDLANE_CLIENT_REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) client_requests: Option<u32>,
    /// Send to and receive from one client at most this much per second
    #[arg(long, value_name = "RATE", value_parser = parse_rate_bytes_per_s, env = "GRIDLANE_CLIENT_RATE")]
    pub(crate) client_rate: Option<u64>,
    /// Go on accepting connections for so long after SIGTERM, while /readyz says 503
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_delay, env = "GRIDLANE_DRAIN_DELAY")]
    pub(crate) drain_delay: f64,
    /// Open connections at the same time; beyond it the answer is 503. One client has a quarter of them unless
    /// --client-connections says otherwise, HTTP and root:// seven eighths each
    #[arg(long, value_name = "N", default_value_t = gridlane_core::limits::CONNECTIONS_MAX as u32, value_parser = clap::value_parser!(u32).range(1..=1_000_000), env = "GRIDLANE_MAX_CONNECTIONS")]
    pub(crate) max_connections: u32,
    /// Largest upload; beyond it the answer is 413
    #[arg(long, value_name = "SIZE", default_value = "16Ti", value_parser = parse_bytes, env = "GRIDLANE_MAX_UPLOAD")]
    pub(crate) max_upload: u64,
    /// Other servers that files are fetched from and sent to by COPY, beside those with public addresses: addresses, networks,
    /// `loopback` or `any` (repeatable). A server that listens on loopback alone may also reach loopback
    #[arg(long, value_name = "NETWORK", env = "GRIDLANE_TPC_ALLOW", value_delimiter = ',')]
    pub(crate) tpc_allow: Vec<String>,
    /// Copies between this server and others that run or wait, of one client half of them; beyond it the answer is 503. 0: no
    /// third-party copies
    #[arg(long, value_name = "N", default_value_t = gridlane_core::limits::THIRD_PARTY_COPIES_MAX as u32, value_parser = clap::value_parser!(u32).range(..=1_000_000), env = "GRIDLANE_TPC_COPIES")]
    pub(crate) tpc_copies: u32,
    /// Send files to other servers for clients that need no credentials too, from wherever they are
    #[arg(long, env = "GRIDLANE_TPC_PUSH_FOR_ANYONE", value_parser = FalseyValueParser::new())]
    pub(crate) tpc_push_for_anyone: bool,
    /// The data on the disk before an upload is answered: nothing, the file, or the file and its name
    #[arg(long, value_name = "none|file|dir", default_value = "file", value_parser = parse_durability, env = "GRIDLANE_DURABILITY")]
    pub(crate) durability: Durability,
    /// Look every so many seconds for changes of the server's files: configuration, certificate,
    /// authorities, lists, secrets
    #[arg(long, value_name = "SECONDS", default_value_t = gridlane_core::limits::WATCH_INTERVAL.as_secs_f64(), value_parser = parse_watch_interval, env = "GRIDLANE_WATCH_INTERVAL")]
    pub(crate) watch_interval: f64,
    /// Listen beyond loopback although clients need no credentials
    #[arg(long, env = "GRIDLANE_INSECURE_ALLOW_ANONYMOUS", value_parser = FalseyValueParser::new())]
    pub(crate) insecure_allow_anonymous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogLevel {
    All,
    Failures,
}

#[derive(Debug, Args)]
pub(crate) struct UrlArgs {
    /// URL (http, https, root, roots, file) or path
    #[arg(add = remote())]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Make directories.
///
/// On servers of WebDAV and of XRootD's protocol, and on this machine.
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// URLs (http, https, root, roots, file) or paths
    #[arg(required = true, value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    /// Also make the directories that lead to them; what is there already is no mistake
    #[arg(short, long, env = "GRIDLANE_PARENTS", value_parser = FalseyValueParser::new())]
    pub(crate) parents: bool,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Give files or directories another name on the same server.
///
/// Into a directory that is there, they keep their names. Nothing is copied: from one server to another,
/// use `cp`, then `rm`.
#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// The sources, then the target: URLs (http, https, root, roots, file) or paths
    #[arg(required = true, num_args = 2.., value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    /// Replace a file that has that name
    #[arg(long, env = "GRIDLANE_FORCE", value_parser = FalseyValueParser::new())]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Remove files, or trees with --recursive.
///
/// A directory is refused without --recursive. Nothing is asked before.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// URLs (http, https, root, roots, file) or paths
    #[arg(required = true, value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    /// Remove directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Show used and available space.
///
/// On a server, what it tells by WebDAV (RFC 4331) or XRootD's protocol: the quota of the directory, or the room on
/// its disk. On this machine, what the file system tells.
#[derive(Debug, Args)]
pub(crate) struct DfArgs {
    /// URLs (http, https, root, roots, file) or paths of directories
    #[arg(required = true, value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Find out what works here, and with the servers of URLs.
///
/// Of this machine: limits and buffers of the kernel, routes, authorities, proxies, credentials. Of a
/// server: its addresses, connection and TLS, clock, byte ranges, checksums, WebDAV; over XRootD's protocol, its kind and
/// abilities. Exits with 0 unless something does not work.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// URLs of files or directories on servers
    #[arg(value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print the script that makes a shell complete commands, options and names on servers.
///
/// In ~/.bashrc: source <(gridlane completion bash). In ~/.zshrc: source <(gridlane completion zsh). In
/// config.fish: gridlane completion fish | source. A server is given 0.3 s to tell its names.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Which shell
    pub(crate) shell: Shell,
}

/// Answer a shell that completes.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// Which shell
    pub(crate) shell: Shell,
    /// The words on the line up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// Write the manual pages.
///
/// The same texts as --help. To read them: man -l DIRECTORY/gridlane-cp.1. To install them, name a directory such as
/// /usr/local/share/man/man1.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where the pages go: gridlane.1 and one for each command
    #[arg(value_name = "DIRECTORY")]
    pub(crate) directory: PathBuf,
}

/// Completes names on servers.
pub(crate) fn remote() -> ArgValueCompleter {
    ArgValueCompleter::new(crate::completion::names_at)
}

/// List a directory.
///
/// A server of HTTP is asked by WebDAV, and for its page if it does not know that. Names come in order unless they are very
/// many; with --json, one event an entry in the server's order.
///
/// With -R, what is in its directories follows, each name with the way to it. Links are not followed. A directory
/// that cannot be listed does not keep the others from being listed; then the exit code is 10.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// URL (http, https, root, roots, file) or path
    #[arg(add = remote())]
    pub(crate) url: String,
    /// Also sizes and times
    #[arg(short, long)]
    pub(crate) long: bool,
    /// With --long, sizes for people: 1.23 GB instead of 1234567890
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Also what is in the directories below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print help
    // The short form is the one above's, as in every other `ls`.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// Show a file's checksum: the server's if it tells, else computed from the bytes.
#[derive(Debug, Args)]
pub(crate) struct ChecksumArgs {
    /// URL (http, https, root, roots, file) or path
    #[arg(add = remote())]
    pub(crate) url: String,
    /// adler32, crc32c, md5, sha1, sha256 or sha512
    #[arg(long = "type", value_name = "TYPE", default_value = "adler32", env = "GRIDLANE_CHECKSUM_TYPE")]
    pub(crate) kind: ChecksumKind,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

fn parse_wanted(text: &str) -> Result<(ChecksumKind, Option<Checksum>)> {
    match text.contains(':') {
        true => text.parse::<Checksum>().map(|checksum| (checksum.kind(), Some(checksum))),
        false => text.parse().map(|kind| (kind, None)),
    }
}

pub(crate) fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds between 0.1 and 1000000".into()),
    }
}

fn parse_delay(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds between 0 and 3600".into()),
    }
}

fn parse_watch_interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds between 0.01 and 3600".into()),
    }
}

fn parse_host(text: &str) -> std::result::Result<String, String> {
    let is_name = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if is_name { Ok(text.to_owned()) } else { Err("write a host name, without a port".into()) }
}

fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    match text {
        "none" => Ok(Durability::None),
        "file" => Ok(Durability::File),
        "dir" => Ok(Durability::Dir),
        _ => Err("it is none, file or dir".into()),
    }
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
