//! `gridlane read` and `gridlane cat`: their options.

use std::path::PathBuf;

use clap::Args;
use gridlane_client::reading::parse_ranges;
use gridlane_core::Result;
use gridlane_core::limits::READ_LANES_MAX;
use gridlane_core::units::parse_bytes;
use gridlane_dav::RangeList;
use gridlane_engine::reading::{Choices, Policy, ReadCache, SparseCache, SparseLimits};

use crate::args::{CredentialArgs, parse_seconds, remote};

/// `READ_MEMORY_BYTES`, and `SPARSE_BYTES_MAX`.
const MEMORY: &str = "256Mi";
const CACHE_SIZE: &str = "10Gi";

const CAT_EXAMPLES: &str = "Examples:

    gridlane cat https://se.example/vo/notes.txt
    gridlane cat --range 0-403 --range -1000 root://se.example//vo/tree.root | xxd";

/// Write a file's bytes to standard output.
///
/// All of them like `gridlane cp URL -`, without its options and without a summary; or some of them, in the order in which
/// they are asked for.
#[derive(Debug, Args)]
#[command(after_long_help = CAT_EXAMPLES)]
pub(crate) struct CatArgs {
    /// URL (http, https, root, roots, file) or path
    #[arg(add = remote())]
    pub(crate) url: String,
    /// Only these bytes: FIRST-LAST, both included and counted from 0; FIRST- to the end; -COUNT, the last ones. Several,
    /// with commas between them or by several options, are written one behind the other
    #[arg(long, value_name = "RANGE", value_parser = parse_ranges, allow_hyphen_values = true)]
    pub(crate) range: Vec<RangeList>,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// The disk cache of what is read.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Keep what is read in this directory, and look there first: the same version of the file is not fetched again. It is made,
    /// for this user alone, where there is none
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Bytes that the directory may have; files that were not used longest go first
    #[arg(long, value_name = "SIZE", default_value = CACHE_SIZE, value_parser = parse_bytes)]
    pub(crate) cache_size: u64,
}

impl CacheArgs {
    /// Opens the cache for a user, if one is wanted.
    pub(crate) fn open(&self, user: &str) -> Result<Option<ReadCache>> {
        let limits = SparseLimits { bytes_max: self.cache_size, ..SparseLimits::default() };
        let open = |directory| SparseCache::open(directory, limits);
        let cache = self.cache.as_deref().map(open).transpose()?;
        Ok(cache.map(|cache| ReadCache { cache, user: user.to_owned() }))
    }
}

const READ_EXAMPLES: &str = "Examples:

    gridlane read events.csv root://se.example//vo/tree.root
    gridlane read events.csv https://se.example/vo/tree.root --policy direct,copy,adaptive --json
    gridlane read events.csv https://se.example/vo/tree.root --cache ~/.cache/gridlane/reads
    zcat events.csv.gz | gridlane read - https://a.example/f root://b.example//f";

/// Replay the reads of a program on a remote file, and show what each way of reading costs.
///
/// TRACE has a line `request,op,offset,length` and then one for each range that was read, in order; ranges with the same
/// number of `request` were asked for at once. Calls are made one after the other, each when the one before is complete, as a
/// program with one thread does. The URLs are replicas of one file.
///
/// For each policy the table has the time that the cost model expects of it on this path, as it was measured, and, for those
/// that were run (--policy), the time that it took, with what it moved. Each run opens the file anew, with connections that are
/// new as well.
#[derive(Debug, Args)]
#[command(after_long_help = READ_EXAMPLES)]
pub(crate) struct ReadArgs {
    /// The trace; `-` is standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// URLs (http, https, root, roots, file) or paths of the file
    #[arg(required = true, value_name = "URL", add = remote())]
    pub(crate) urls: Vec<String>,
    /// Policies to run, in this order: adaptive, direct, vector, prefetch, lazy, copy; or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_policies, default_value = "adaptive")]
    pub(crate) policy: Vec<Policies>,
    /// Also the Adler-32 of all that was read, in the order of the trace, in the JSON
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Bytes moved for each byte that is wanted, at most; 1: nothing but what is wanted. To copy all of a file is exempt
    #[arg(long, value_name = "FACTOR", default_value_t = 4.0, value_parser = parse_budget)]
    pub(crate) budget: f64,
    /// Bytes of the file that are kept in memory
    #[arg(long, value_name = "SIZE", default_value = MEMORY, value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Connections, of all replicas together
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=READ_LANES_MAX as i64))]
    pub(crate) lanes: u16,
    /// Seconds without a byte after which reading is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = parse_seconds)]
    pub(crate) timeout: f64,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// One policy, or all.
#[derive(Clone, Debug)]
pub(crate) struct Policies(pub(crate) Vec<Policy>);

fn parse_policies(text: &str) -> std::result::Result<Policies, String> {
    if text == "all" {
        return Ok(Policies(Policy::ALL.to_vec()));
    }
    Policy::named(text)
        .map(|policy| Policies(vec![policy]))
        .map_err(|error| format!("{}, or all", error.message()))
}

fn parse_budget(text: &str) -> std::result::Result<f64, String> {
    let budget = text.parse().map_err(|_| format!("{text:?} is not a number from 1 on"))?;
    let choices = Choices { budget: Some(budget), ..Choices::default() };
    choices.settings().map(|_| budget).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::limits::{READ_MEMORY_BYTES, SPARSE_BYTES_MAX};

    #[test]
    fn usual_sizes_are_those_of_the_library() {
        assert_eq!(parse_bytes(MEMORY).unwrap(), READ_MEMORY_BYTES);
        assert_eq!(parse_bytes(CACHE_SIZE).unwrap(), SPARSE_BYTES_MAX);
        assert!(parse_budget("1").is_ok() && parse_budget("0.9").is_err() && parse_budget("many").is_err());
    }
}
