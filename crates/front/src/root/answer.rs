//! The outcome of a request: an answer, or a failure.

use gridlane_store::StoreError;
use gridlane_xrd::answer::Corrections;
use gridlane_xrd::{ErrorCode, Malformed};

use crate::pieces::Pieces;

/// The outcome of a request.
pub type Outcome = Result<Answer, Failure>;

/// The answer to a request that succeeded.
pub enum Answer {
    /// These bytes, behind a head of status `ok`.
    Ok(Vec<u8>),
    /// Something that is made piece by piece while it is sent: all but the last with status `oksofar`.
    Pieces {
        /// The bytes that are there already.
        first: Vec<u8>,
        /// The source of the rest. A failure in the middle ends the answer as an error.
        rest: Box<dyn Pieces>,
    },
    /// Pages were taken: a message of status `status`, with the request's offset.
    PageStatus {
        /// The request's offset.
        offset: u64,
        /// The pages that were not what their checksum said, if any.
        corrections: Option<Corrections>,
    },
    /// Ask again in so many seconds.
    Wait(u32, String),
}

impl Answer {
    /// "Done", without data.
    pub fn done() -> Answer {
        Answer::Ok(Vec::new())
    }

    /// A text with the NUL that clients expect behind it.
    pub fn text(text: impl Into<Vec<u8>>) -> Answer {
        let mut text = text.into();
        text.push(0);
        Answer::Ok(text)
    }
}

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what, and why.
    pub text: String,
    /// The cause for the log, where that is more than clients are told.
    pub(crate) cause: Option<String>,
    /// The connection ends after the answer.
    pub closes: bool,
}

impl Failure {
    /// A failure with this code and text.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), cause: None, closes: false }
    }

    /// No file is open by this handle; in XRootD's words.
    pub fn not_open(act: &str) -> Failure {
        Failure::new(ErrorCode::FILE_NOT_OPEN, format!("{act} does not refer to an open file"))
    }

    /// Ends the connection after the answer.
    pub fn closing(mut self) -> Failure {
        self.closes = true;
        self
    }

    /// The failure of a storage to `act` ("open", "stat", …) on `path`: in XRootD's way, "Unable to open /path; no such
    /// file or directory", since scripts and gfal2 look for the words of `strerror`.
    pub fn of_store(act: &str, path: &[u8], error: &StoreError) -> Failure {
        let (code, why) = match error {
            StoreError::NotFound | StoreError::ParentMissing => {
                (ErrorCode::NOT_FOUND, "no such file or directory")
            }
            StoreError::NotAFile => (ErrorCode::IS_DIRECTORY, "is a directory"),
            StoreError::NotADirectory => (ErrorCode::FS_ERROR, "not a directory"),
            StoreError::NotEmpty => (ErrorCode::ITEM_EXISTS, "directory not empty"),
            StoreError::Unexpected => (ErrorCode::ITEM_EXISTS, "file exists"),
            StoreError::IntoItself => (ErrorCode::ARG_INVALID, "invalid argument"),
            StoreError::AcrossDevices => (ErrorCode::FS_ERROR, "invalid cross-device link"),
            StoreError::InUse => (ErrorCode::NOT_AUTHORIZED, "device or resource busy"),
            StoreError::Denied => (ErrorCode::NOT_AUTHORIZED, "permission denied"),
            StoreError::ReadOnly => (ErrorCode::READ_ONLY, "read-only file system"),
            StoreError::NameTooLong => (ErrorCode::ARG_TOO_LONG, "file name too long"),
            StoreError::TooLarge => (ErrorCode::NO_SPACE, "file too large"),
            StoreError::NoSpace => (ErrorCode::NO_SPACE, "no space left on device"),
            StoreError::OverQuota => (ErrorCode::OVER_QUOTA, "disk quota exceeded"),
            StoreError::Busy => (ErrorCode::OVERLOADED, "too many open files in system"),
            StoreError::Locked => (ErrorCode::FILE_LOCKED, "another copy to it is running"),
            StoreError::Unsupported => (ErrorCode::UNSUPPORTED, "operation not supported"),
            StoreError::Closed => (ErrorCode::FILE_NOT_OPEN, "bad file descriptor"),
            StoreError::NotOurs(_) => (ErrorCode::SERVER_ERROR, "the server cannot keep uploads"),
            StoreError::Io(_) => (ErrorCode::IO_ERROR, "input/output error"),
        };
        let mut failure = Failure::new(code, format!("Unable to {act} {}; {why}", printable_path(path)));
        // The operating system's own message is for the log, not for clients.
        if matches!(error, StoreError::NotOurs(_) | StoreError::Io(_)) {
            failure.cause = Some(error.to_string());
        }
        failure
    }

    /// A file would be larger than `bytes_max`.
    pub fn of_size(act: &str, path: &[u8], bytes_max: u64) -> Failure {
        let mut failure = Failure::of_store(act, path, &StoreError::TooLarge);
        failure.text.push_str(&format!(": an upload may have at most {bytes_max} bytes"));
        failure
    }
}

impl From<Malformed> for Failure {
    fn from(wrong: Malformed) -> Failure {
        Failure { closes: wrong.closes, ..Failure::new(wrong.code, wrong.message) }
    }
}

/// A path as text for people: no control characters, and of bounded length.
pub fn printable_path(path: &[u8]) -> String {
    const BYTES_MAX: usize = 1024;
    let text = String::from_utf8_lossy(&path[..path.len().min(BYTES_MAX)]);
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
