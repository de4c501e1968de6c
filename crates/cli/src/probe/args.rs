//! `gridlane probe`: its options.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gridlane_client::probe::{Ability, Apart, Rank, Wished};
use gridlane_core::limits::{PROBE_ENDPOINTS_MAX, PROBE_PARALLEL_MAX};
use gridlane_core::units::{parse_bytes, parse_rate_bytes_per_s};

use crate::args::{CredentialArgs, parse_seconds, remote};

const EXAMPLES: &str = "Examples:

    gridlane probe https://se.example/vo/ root://se.example//vo/
    gridlane probe --write --from sites.txt --errors errors.txt
    gridlane probe --write --from sites.txt --protocols https,root --choose 3 --apart network";

/// Find out which endpoints can be listed, read and written, over which protocols, and how fast.
///
/// ENDPOINT is the URL of a directory on a server. With --from, a file names more of them, one site a line: URLs, and if you
/// like `site=NAME` and `zone=NAME`; what follows `#` is a comment. The URLs of a line are of one site, and so are those of all
/// lines with the same name. A protocol that gridlane does not speak (gsiftp) is said to be that.
///
/// Of each endpoint, one after the other and each on its own: the addresses of its name; a connection, with its round
/// trip; TLS and login, with the credential that was used; the listing; and a file that is read. Without --write nothing is
/// changed there: the file is --file, or the smallest that is listed. With --write, three files of 1 kB are written under
/// new names, read back, compared and removed, then one of --size in each direction for the rate, one endpoint at a time. All
/// that was written is removed, also after an error or Ctrl-C; what is, or may be, still there is named.
///
/// With --choose N, sites that meet all criteria are ranked, and the first N that are apart from each other are named, with
/// the reason for each of the others. If there are fewer, it says what each criterion leaves, and the exit code is 5.
///
/// Otherwise the exit code is 0 if no step fails, 10 if one does at some endpoints, and that of the reason if the first
/// failure of all is of one kind.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// URL of a directory on a server; in quotes, a line as --from has them
    #[arg(value_name = "ENDPOINT", required_unless_present = "from", add = remote())]
    pub(crate) endpoints: Vec<String>,
    /// Also the endpoints in this file, one site a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Try every site over these protocols and no others: https, or root:1095 with its port. A site without a URL of one
    /// is tried at the host and path of its first. A site that is chosen must speak all of them
    #[arg(long, value_name = "PROTOCOL[:PORT]", value_delimiter = ',', value_parser = Wished::parse)]
    pub(crate) protocols: Vec<Wished>,
    /// Write files, read them back, and remove them. Without it nothing at the servers is changed
    #[arg(long)]
    pub(crate) write: bool,
    /// Read this file, by its path below each endpoint, where none is written: its beginning, and up to --size of it for the
    /// rate
    #[arg(long, value_name = "NAME")]
    pub(crate) file: Option<String>,
    /// Bytes by which the rate is measured; 0: it is not
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Seconds that each step of an endpoint may take; a rate of reading is then that of what has come, and to remove files
    /// takes no longer either
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = parse_seconds)]
    pub(crate) timeout: f64,
    /// Seconds that all steps of an endpoint may take together; to remove what was written has a time of its own
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = parse_seconds)]
    pub(crate) endpoint_timeout: f64,
    /// Endpoints that are asked at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=PROBE_PARALLEL_MAX as i64))]
    pub(crate) parallel: u16,
    /// Rates that are measured at the same time: more than one measure each other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=PROBE_PARALLEL_MAX as i64))]
    pub(crate) parallel_rates: u16,
    /// Write the failures, grouped by their cause, to this file; with --json, one object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) errors: Option<PathBuf>,
    /// Choose so many sites
    #[arg(long, value_name = "N", help_heading = "Choice", value_parser = clap::value_parser!(u32).range(1..=PROBE_ENDPOINTS_MAX as i64))]
    pub(crate) choose: Option<u32>,
    /// What each must be able to do, over every protocol that counts [default: list,read, and with --write all four]
    #[arg(
        long,
        value_name = "ABILITY",
        value_enum,
        value_delimiter = ',',
        requires = "choose",
        help_heading = "Choice"
    )]
    pub(crate) require: Vec<AbilityArg>,
    /// The longest round trip that each may have, in milliseconds
    #[arg(long, value_name = "MS", requires = "choose", help_heading = "Choice", value_parser = parse_ms)]
    pub(crate) max_rtt: Option<f64>,
    /// The least rate at which each must be read: 80M (bytes per second), 800Mbit/s
    #[arg(long, value_name = "RATE", requires = "choose", help_heading = "Choice", value_parser = parse_rate_bytes_per_s)]
    pub(crate) min_rate: Option<u64>,
    /// No two of them in one network (the first 16 bits of an IPv4 address, 32 of an IPv6 one), in one zone, or at one host
    #[arg(long, value_name = "WHAT", value_enum, requires = "choose", help_heading = "Choice")]
    pub(crate) apart: Option<ApartArg>,
    /// The figure by which they are ranked: the rate of reading, the round trip, or the time to read a small file [default:
    /// rate]
    #[arg(long, value_name = "FIGURE", value_enum, requires = "choose", help_heading = "Choice")]
    pub(crate) by: Option<RankArg>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AbilityArg {
    List,
    Read,
    Write,
    Delete,
}

impl From<AbilityArg> for Ability {
    fn from(ability: AbilityArg) -> Ability {
        match ability {
            AbilityArg::List => Ability::List,
            AbilityArg::Read => Ability::Read,
            AbilityArg::Write => Ability::Write,
            AbilityArg::Delete => Ability::Delete,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApartArg {
    Network,
    Zone,
    Host,
}

impl From<ApartArg> for Apart {
    fn from(apart: ApartArg) -> Apart {
        match apart {
            ApartArg::Network => Apart::Network,
            ApartArg::Zone => Apart::Zone,
            ApartArg::Host => Apart::Host,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RankArg {
    Rate,
    Rtt,
    Latency,
}

impl From<RankArg> for Rank {
    fn from(rank: RankArg) -> Rank {
        match rank {
            RankArg::Rate => Rank::Rate,
            RankArg::Rtt => Rank::RoundTrip,
            RankArg::Latency => Rank::Latency,
        }
    }
}

fn parse_ms(text: &str) -> Result<f64, String> {
    match text.trim_end_matches("ms").trim_end().parse::<f64>() {
        Ok(ms) if (0.001..=1e6).contains(&ms) => Ok(ms),
        _ => Err("write a number of milliseconds".into()),
    }
}
