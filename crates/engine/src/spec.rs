//! The request for a copy, and its outcome.

use std::fmt;
use std::fs::File;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::UPLOAD_ANSWER_MAX;
use gridlane_core::{Boxed, Checksum, ChecksumKind, Error, ErrorKind, Fault, Result, Url};
use gridlane_plan::judge::Known;
use gridlane_share::RateLimit;
use gridlane_store::{Completion, Found, Object, Target};

use crate::events::Report;
use crate::links::FoundMetalink;
use crate::output::{Output, Pipe, Stored};

/// Sources, a target, and what may be chosen.
#[derive(Debug)]
pub struct CopySpec {
    /// Replicas of one file.
    pub sources: Vec<Url>,
    /// Where the bytes go.
    pub target: TargetSpec,
    /// The options of the copy.
    pub options: Options,
}

/// The place where the bytes go. The engine knows no paths of targets: an opened [`Target`] of any kind is one to it.
pub enum TargetSpec {
    /// At any place: a file that is visible when it is complete. It is opened when the copy's turn has come, since a copy that
    /// waits for it shall hold no descriptor.
    Anywhere(Boxed<'static, Result<OpenTarget>>),
    /// In order: a pipe, a device, standard output.
    InOrder(Box<dyn Output>),
    /// A file to a server, by HTTP PUT or XRootD's protocol: in order too, and begun anew where the connection breaks.
    Upload {
        /// The file's URL.
        url: Url,
        /// An existing file is replaced.
        overwrite: bool,
        /// When the file was last changed, for a server that keeps it ([`Report::modified_accepted`]).
        modified: Option<SystemTime>,
    },
}

/// A target that was opened for a copy.
pub struct OpenTarget {
    /// It takes bytes at any place.
    pub target: Arc<dyn Target>,
    /// The state that an earlier copy has left there.
    pub found: Found,
    /// The properties of the file when it becomes visible. The engine adds checksums that it has computed.
    pub completion: Completion,
}

impl TargetSpec {
    /// An open file that takes bytes in order, from where it stands.
    pub fn pipe(file: File) -> TargetSpec {
        TargetSpec::InOrder(Box::new(Pipe::new(file)))
    }

    /// A file of a storage that takes bytes in order, and what it shall be in the end.
    pub fn stored(upload: Box<dyn gridlane_store::Upload>, completion: Completion) -> TargetSpec {
        TargetSpec::InOrder(Box::new(Stored::new(upload, completion)))
    }
}

impl From<OpenTarget> for TargetSpec {
    fn from(opened: OpenTarget) -> TargetSpec {
        TargetSpec::Anywhere(Box::pin(ready(Ok(opened))))
    }
}

impl fmt::Debug for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetSpec::Anywhere(_) => f.write_str("Anywhere"),
            TargetSpec::InOrder(_) => f.write_str("InOrder"),
            TargetSpec::Upload { url, .. } => write!(f, "Upload to {url}"),
        }
    }
}

/// A source that is an open file of a storage.
#[derive(Clone)]
pub struct StoredSource {
    /// The file.
    pub object: Arc<dyn Object>,
    /// Checksums of all its bytes that are known without reading them.
    pub checksums: Vec<Checksum>,
}

impl fmt::Debug for StoredSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSource").field("tag", &self.object.metadata().tag).finish_non_exhaustive()
    }
}

/// The options of a copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// The only source is this open file; its URL, of the scheme `file`, is its name in messages.
    pub stored: Option<StoredSource>,
    /// A file with more bytes is refused.
    pub size_bytes_max: Option<u64>,
    /// The kind of checksum to compare, and its value when the caller knows it.
    pub checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// Bytes that could not be compared with any checksum are a failure: nothing becomes visible then.
    pub require_verified: bool,
    /// Other knowledge of the object: the statements of its metalink.
    pub known: Known,
    /// Replicas and metalinks are used that servers name in `Link` fields (RFC 6249).
    pub follow_links: bool,
    /// A metalink that the first source turns out to be, or to have, ends the copy with
    /// [`Outcome::metalink`]. Never into a stream, which would have taken bytes of it by then.
    pub stop_at_metalink: bool,
    /// Exactly so many connections to each source, instead of what measuring finds best.
    pub streams: Option<usize>,
    /// The most to receive, over all sources, and over all copies that share the limit.
    pub limit: Option<RateLimit>,
    /// The time without a byte from any source after which the copy is given up; for an upload, also the time in
    /// which its server takes no byte.
    pub patience: Duration,
    /// The time that an upload's server may be silent after the last byte, over HTTP: it may sync and read again all
    /// of the file.
    pub upload_answer_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stored: None,
            size_bytes_max: None,
            checksum: None,
            require_verified: false,
            known: Known::default(),
            follow_links: false,
            stop_at_metalink: false,
            streams: None,
            limit: None,
            patience: Duration::from_secs(60),
            upload_answer_max: UPLOAD_ANSWER_MAX,
        }
    }
}

/// The error of a copy whose file is larger than its target takes.
pub(crate) fn too_large(max: u64) -> Error {
    let message = format!("the file has more than the {max} bytes that its target takes");
    Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).retryable(false)
}

/// The end of a copy, always with a report.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// Success, or the error.
    pub result: Result<()>,
    /// Why it ended although nothing is wrong: there is a metalink to go on with. What is there already is
    /// kept, if it is the file's.
    pub metalink: Option<FoundMetalink>,
}
