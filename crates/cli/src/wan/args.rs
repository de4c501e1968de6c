//! `gridlane wan`: its commands and options.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand, ValueEnum};

/// Emulate wide-area paths between network namespaces on this machine.
///
/// `up` makes sites from a scenario file, each a network namespace of its own, joined by links with a rate, a
/// delay, a queue and losses. `exec` runs commands at a site: real programs over the real kernel's TCP. Names of
/// sites resolve inside. Nothing outside the namespaces changes, and nothing is left after `down`.
///
/// Needs root, or the right to make user namespaces and to use /dev/net/tun.
#[derive(Debug, Args)]
pub(crate) struct WanArgs {
    /// Name of the network, when there are several
    #[arg(long, global = true, value_name = "NAME", default_value = "default", env = "GRIDLANE_WAN_NAME")]
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) command: WanCommand,
}

// Described where the options are, as `gridlane`'s commands are.
#[derive(Debug, Subcommand)]
pub(crate) enum WanCommand {
    Up(UpArgs),
    Set(SetArgs),
    Exec(ExecArgs),
    /// Show sites, paths, links and counters of packets
    Show,
    Check(CheckArgs),
    /// Take a network down, or clean up after one that died
    Down,
}

/// Bring a network up.
///
/// Returns when it is up; a process in the background keeps it until `gridlane wan down`. The format of
/// SCENARIO.toml is in docs/reference/wan-scenario.md.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Sites, routers, links and a timetable of changes
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// The emulator of delays: our own forwarder between TUN devices, or the kernel's netem where it has it
    #[arg(long, value_enum, default_value_t = BackEndArg::Tun, env = "GRIDLANE_WAN_BACKEND")]
    pub(crate) backend: BackEndArg,
    /// Stay in the foreground; Ctrl-C takes the network down
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Only check the scenario, and print what would be configured
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) dry_run: bool,
    /// Detached from the terminal: what `up` starts
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) detached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackEndArg {
    Tun,
    Netem,
}

/// Change a link while traffic runs.
///
/// Settings that are not given stay. Packets on their way arrive as before.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Name of the link
    pub(crate) link: String,
    /// Only what this end of it sends
    #[arg(long, value_name = "SITE")]
    pub(crate) from: Option<String>,
    /// Rate on the wire: 800Mb/s, or `unlimited`
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Delay one way, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) delay_ms: Option<f64>,
    /// Most bytes that wait: 1MB, or `bdp` for one bandwidth-delay product
    #[arg(long, value_name = "SIZE")]
    pub(crate) queue: Option<String>,
    /// Probability that a packet is lost, from 0 to 1
    #[arg(long, value_name = "P")]
    pub(crate) loss: Option<f64>,
    /// Variation of the delay to both sides, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) jitter_ms: Option<f64>,
    /// Everything that is sent vanishes from now on
    #[arg(long, conflicts_with = "up")]
    pub(crate) down: bool,
    /// The end of --down
    #[arg(long)]
    pub(crate) up: bool,
    /// First bring back the scenario's settings
    #[arg(long)]
    pub(crate) restore: bool,
}

/// Run a command at a site.
///
/// The command replaces this process: its exit code is the one you get. 127: there is no such command.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Site to run it at
    pub(crate) site: String,
    /// Start the scenario's timetable again at the same moment
    #[arg(long)]
    pub(crate) timetable: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Measure whether the emulation keeps its figures, on this machine.
///
/// Makes networks of its own and sends through them: round-trip times, what one TCP stream reaches under BBR and
/// CUBIC, losses, queues, the forwarder's CPU. Takes some minutes; run it before you believe a figure. Exit
/// code 1: something is out of its limits.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A few rows only, in less than a minute
    #[arg(long, env = "GRIDLANE_WAN_CHECK_QUICK", value_parser = FalseyValueParser::new())]
    pub(crate) quick: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}
