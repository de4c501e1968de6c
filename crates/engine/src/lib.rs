//! The one engine: moves the bytes of one file from its replicas to its target.
//!
//! ```text
//!  sources ──lanes──▶ claim · hash · write · commit ──▶ target
//!                │            ▲ ledger (who sent what, with which checksum)
//!            notices          │
//!                ▼            │
//!               run ◀──▶ plan, judge (pure)   run ──▶ journal, observer
//! ```
//!
//! A *lane* is a task with a connection. The *run* is the one task that owns the plan: it hears from
//! lanes by notices, asks the plan what to do, and tells lanes. Data never passes through the run.
//! Which bytes are right, which source lied and what is fetched again is decided by
//! [`judge`](gridlane_plan::judge), which is as pure as the plan: the run tells it what happens and does what it says
//! (`judging`). Where the checksums of pieces are known, lanes compare each piece when its last byte has come (`pieces`).
//!
//! Three kinds of lanes bring the bytes: over HTTP, over XRootD's protocol (`root`), and from a file of this machine. One copy
//! may have all of them.
//!
//! Small files, of which there are many, do without most of this: [`small`].
//!
//! Whom a server may be told that asks, and whom not, is decided in `credentials`, for all protocols.
//!
//! What it is not: it copies no trees, parses no command lines and renders nothing. A second copy loop
//! anywhere else in gridlane is a defect.
//!
//! Read first: [`CopySpec`] and [`copy`], then `run`, `notices`, `judging`, `lane`; of the protocols, [`http`] and [`root`].

mod again;
mod asking;
mod awake;
mod client;
mod credentials;
mod descriptors;
mod digests;
pub mod events;
mod findings;
pub mod http;
mod judging;
mod keeping;
mod lane;
mod learning;
mod memory;
mod meter;
mod mute;
mod notice;
mod notices;
mod ordered;
mod pace;
mod paths;
mod pieces;
mod pool;
mod replica;
mod report;
mod resume;
pub mod root;
mod run;
mod served;
pub mod small;
mod source;
mod target;
mod trouble;
mod upload;

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::UPLOAD_ANSWER_MAX;
use gridlane_core::{Boxed, Checksum, ChecksumKind, ErrorKind, Result, Time, Url};

pub use client::Client;
pub use credentials::{Credentials, HostPattern, Token, TokenSource, sends_password};
pub use descriptors::{Descriptors, ExpectedCopies};
pub use digests::hash_file;
pub use events::{Event, Observer, Report, Snapshot};
pub use lane::threads_are_few;
pub use pace::RateLimit;
pub use served::FoundMetalink;

pub use gridlane_plan::judge::{Basis, Known, PieceHashes};
pub use gridlane_store::journal_key::JournalKeys;

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

/// Copies one file. Ends early, resumable where the target is a file, when `stop` completes.
///
/// An upload whose connection broke, or was refused, is begun anew for a while: its server may be being started again.
///
/// Needs tokio's multi-threaded runtime: file writes block the thread they are on.
pub fn copy<'a>(
    spec: CopySpec,
    client: Client,
    observer: &'a mut dyn Observer,
    stop: impl Future<Output = ()> + Send + 'a,
) -> Boxed<'a, Outcome> {
    copy_until(spec, client, observer, Box::pin(stop))
}

fn copy_until<'a>(
    spec: CopySpec,
    client: Client,
    observer: &'a mut dyn Observer,
    mut stop: Boxed<'a, ()>,
) -> Boxed<'a, Outcome> {
    Box::pin(async move {
        let CopySpec { sources, mut target, options } = spec;
        let began = std::time::Instant::now();
        let mut again = again::Again::new(options.patience);
        // Of an attempt that has sent all bytes and was not answered.
        let mut sent: Option<Report> = None;
        loop {
            let next = again::same(&target);
            let spec = CopySpec { sources: sources.clone(), target, options: options.clone() };
            let (outcome, is_stuck) = run::run(spec, client.clone(), observer, stop.as_mut()).await;
            if let (Err(error), Some(TargetSpec::Upload { url, .. }), Some(report)) =
                (&outcome.result, &next, &sent)
                && error.kind() == ErrorKind::Precondition
                && again::has_what_was_sent(&client, url, report, &options).await
                && let Some(report) = sent.take()
            {
                if let Some(checksum) = &report.checksum {
                    observer.event(&Event::Verified { checksum, basis: report.verified });
                }
                return Outcome { report, result: Ok(()), metalink: None };
            }
            let (Err(error), Some(next), false) = (&outcome.result, next, is_stuck) else { return outcome };
            let Some(pause) = again.after(error, Time::from_origin(began.elapsed())) else { return outcome };
            tokio::select! {
                () = tokio::time::sleep(pause) => target = next,
                () = stop.as_mut() => return outcome,
            }
            sent = Some(outcome.report).filter(again::is_whole).or(sent);
        }
    })
}
