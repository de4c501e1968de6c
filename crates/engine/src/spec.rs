//! What is to be copied, where to and how, and how that ended.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::UPLOAD_ANSWER_MAX;
use gridlane_core::{Checksum, ChecksumKind, Result, Url};
use gridlane_plan::judge::Known;
use gridlane_store::journal_key::JournalKeys;

use crate::events::Report;
use crate::links::FoundMetalink;
use crate::pace::RateLimit;

/// What to copy, to where, and how.
#[derive(Debug)]
pub struct CopySpec {
    /// Replicas of one file.
    pub sources: Vec<Url>,
    /// Where the bytes go.
    pub target: TargetSpec,
    /// What may be chosen.
    pub options: Options,
}

/// Where the bytes go.
#[derive(Debug)]
pub enum TargetSpec {
    /// A regular file, visible when complete.
    File {
        /// Its path; the directory must exist.
        path: PathBuf,
        /// Whether an existing file is replaced.
        overwrite: bool,
    },
    /// Something that takes bytes in order: a pipe, a device, standard output.
    Stream(File),
    /// A file to a server, by HTTP PUT or XRootD's protocol.
    Upload {
        /// The file's URL.
        url: Url,
        /// Whether an existing file is replaced.
        overwrite: bool,
        /// When the file was last changed, for a server that keeps it ([`Report::modified_accepted`]).
        modified: Option<SystemTime>,
    },
}

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kind of checksum to compare, and its value when the caller knows it.
    pub checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// Whether bytes that could not be compared with anything are a failure: nothing becomes visible then.
    pub require_verified: bool,
    /// What else is known of the object: what its metalink says.
    pub known: Known,
    /// Whether replicas and metalinks are used that servers name in `Link` fields (RFC 6249).
    pub follow_links: bool,
    /// Whether a metalink that the first source turns out to be, or to have, ends the copy with
    /// [`Outcome::metalink`]. Never into a stream, which would have taken bytes of it by then.
    pub stop_at_metalink: bool,
    /// Exactly so many connections to each source, instead of what measuring finds best.
    pub streams: Option<usize>,
    /// The most to receive, over all sources, and over all copies that share the limit.
    pub limit: Option<RateLimit>,
    /// How long no source at all may deliver a byte before the copy is given up.
    /// So long an upload's server may take no byte, too.
    pub patience: Duration,
    /// How long an upload's server may be silent after the last byte, over HTTP: it may sync and read again all of the
    /// file.
    pub upload_answer_max: Duration,
    /// Where the key is that makes journals of partial files the user's own. Without one nothing is left to go on with.
    pub journal_keys: JournalKeys,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            checksum: None,
            require_verified: false,
            known: Known::default(),
            follow_links: false,
            stop_at_metalink: false,
            streams: None,
            limit: None,
            patience: Duration::from_secs(60),
            upload_answer_max: UPLOAD_ANSWER_MAX,
            journal_keys: JournalKeys::default(),
        }
    }
}

/// How a copy ended: always with a report.
#[derive(Debug)]
pub struct Outcome {
    /// What was done.
    pub report: Report,
    /// Whether it succeeded.
    pub result: Result<()>,
    /// Why it ended although nothing is wrong: there is a metalink to go on with. What is there already is
    /// kept, if it is the file's.
    pub metalink: Option<FoundMetalink>,
}
