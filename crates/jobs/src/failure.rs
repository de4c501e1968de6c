//! Failures of copies: whether another attempt could help, what is told of them, how long a copy may take, how often it is tried
//! (fts3-rest 7).

use std::fmt;

use gridlane_core::limits::{JOB_REASON_BYTES_MAX, JOB_RETRIES_MAX, JOB_TIME_S_MAX};
use gridlane_core::text;
use serde::{Deserialize, Serialize};

use crate::refusal::shortened;
use crate::{FileState, JobKind, Params};

/// The party at which a copy has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// The source.
    #[serde(rename = "SOURCE")]
    Source,
    /// The destination.
    #[serde(rename = "DESTINATION")]
    Destination,
    /// The copy between them.
    #[serde(rename = "TRANSFER")]
    Transfer,
    /// Neither: this service, or something before the copy.
    #[serde(rename = "GENERAL_FAILURE")]
    General,
}

impl Scope {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Source => "SOURCE",
            Scope::Destination => "DESTINATION",
            Scope::Transfer => "TRANSFER",
            Scope::General => "GENERAL_FAILURE",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Numbers of errors that have a meaning here, as Linux has them: FTS3's clients know them by these.
pub mod errno {
    /// Not permitted.
    pub const EPERM: i32 = 1;
    /// There is no such file.
    pub const ENOENT: i32 = 2;
    /// Something went wrong with bytes.
    pub const EIO: i32 = 5;
    /// Too long.
    pub const E2BIG: i32 = 7;
    /// Later.
    pub const EAGAIN: i32 = 11;
    /// Denied.
    pub const EACCES: i32 = 13;
    /// An address that is none.
    pub const EFAULT: i32 = 14;
    /// In use.
    pub const EBUSY: i32 = 16;
    /// It exists.
    pub const EEXIST: i32 = 17;
    /// No directory.
    pub const ENOTDIR: i32 = 20;
    /// A directory.
    pub const EISDIR: i32 = 21;
    /// Makes no sense.
    pub const EINVAL: i32 = 22;
    /// Too large.
    pub const EFBIG: i32 = 27;
    /// No space.
    pub const ENOSPC: i32 = 28;
    /// Nothing can be written there.
    pub const EROFS: i32 = 30;
    /// A name that is too long.
    pub const ENAMETOOLONG: i32 = 36;
    /// No such protocol.
    pub const EPROTONOSUPPORT: i32 = 93;
    /// Took too long.
    pub const ETIMEDOUT: i32 = 110;
    /// Cancelled.
    pub const ECANCELED: i32 = 125;
}

use errno::*;

/// Words that mean that another attempt could help, whatever else is known.
const RECOVERABLE: [&str; 8] = [
    "performance marker",
    "Name or service not known",
    "Connection timed out",
    "end-of-file was reached",
    "end of file occurred",
    "SRM_INTERNAL_ERROR",
    "was forcefully killed",
    "operation timeout",
];

/// Words that mean that none does.
const NOT_RECOVERABLE: [&str; 19] = [
    "proxy expired",
    "with an error 550 File not found",
    "File exists and overwrite",
    "No such file or directory",
    "SRM_INVALID_PATH",
    "The certificate has expired",
    "The available CRL has expired",
    "SRM Authentication failed",
    "SRM_DUPLICATION_ERROR",
    "SRM_AUTHENTICATION_FAILURE",
    "SRM_NO_FREE_SPACE",
    "digest too big for rsa key",
    "Can not determine address of local host",
    "Permission denied",
    "System error in write into HDFS",
    "File exists",
    "checksum do not match",
    "CHECKSUM MISMATCH",
    "The source file is not ONLINE",
];

/// The reason of a file of which nothing was heard.
pub const NO_PING: &str =
    "No FTS server has updated the transfer status the last 900 seconds. Probably stalled";
/// The reason of a file that has been ACTIVE for longer than its time and an hour.
pub const STALLED: &str = "Transfer has been forced-killed because it was stalled";
/// Time without a word from a copy after which it is given up, in seconds.
pub const PING_MAX_S: u32 = 900;

/// A copy that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The party at which it has.
    pub scope: Scope,
    /// The number of the error.
    pub errno: i32,
    /// What has happened, in words that FTS3's clients look for.
    pub text: String,
}

impl Failure {
    /// One of these.
    pub fn new(scope: Scope, errno: i32, text: impl Into<String>) -> Failure {
        Failure { scope, errno, text: text.into() }
    }

    /// True if another attempt could help: what is not known to be hopeless is tried again.
    pub fn is_recoverable(&self) -> bool {
        is_recoverable(&self.text, self.errno, self.scope)
    }

    /// The text that is kept with the file: `SOURCE [2] No such file or directory`, on one line, of a bounded length, and without what
    /// opens URLs in it.
    pub fn reason(&self) -> String {
        let words = text::printable(&without_secrets(shortened(&self.text, JOB_REASON_BYTES_MAX)));
        let reason = format!("{} [{}] {words}", self.scope, self.errno);
        shortened(&reason, JOB_REASON_BYTES_MAX).to_owned()
    }
}

/// A text without users, passwords and queries of the URLs in it, where tokens and signatures are.
fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, url) = rest.split_at(start + 3);
        shown.push_str(before);
        let is_end = |char: char| char.is_whitespace() || "\"'<>()".contains(char);
        let (url, behind) = url.split_at(url.find(is_end).unwrap_or(url.len()));
        let (plain, query) = url.split_once('?').map_or((url, ""), |(plain, _)| (plain, "?…"));
        let authority_bytes = plain.find('/').unwrap_or(plain.len());
        let plain = plain[..authority_bytes].rfind('@').map_or(plain, |at| &plain[at + 1..]);
        shown.push_str(plain);
        shown.push_str(query);
        rest = behind;
    }
    shown + rest
}

/// True if another attempt could help (fts3-rest 7.2); the first rule that fits decides.
pub fn is_recoverable(text: &str, errno: i32, scope: Scope) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&RECOVERABLE) || errno == ETIMEDOUT {
        return true;
    }
    if errno == ECANCELED || has(&NOT_RECOVERABLE) {
        return false;
    }
    let hopeless: &[i32] = match scope {
        Scope::Source => &[ENOENT, EPERM, EACCES, EISDIR, ENAMETOOLONG, E2BIG, ENOTDIR, EPROTONOSUPPORT],
        Scope::Destination => {
            &[EPERM, EACCES, EISDIR, E2BIG, EROFS, EFAULT, ENAMETOOLONG, EPROTONOSUPPORT, EEXIST]
        }
        Scope::Transfer | Scope::General => {
            &[ENOSPC, EPERM, EACCES, EEXIST, EFBIG, EROFS, ENAMETOOLONG, EPROTONOSUPPORT]
        }
    };
    !hopeless.contains(&errno)
}

/// Attempts after the first that a file may have: as its job says, or its VO's settings (`vo_retry`) where it says nothing; none for
/// replicas and hops, which have others (fts3-rest 7.2).
pub fn retries_max(kind: JobKind, job_retry: i32, vo_retry: u32) -> u32 {
    let most = JOB_RETRIES_MAX.unsigned_abs();
    match (kind, job_retry) {
        (JobKind::Replicas | JobKind::Multihop, _) | (_, ..0) => 0,
        (_, 0) => vo_retry.min(most),
        (_, retry) => retry.unsigned_abs().min(most),
    }
}

/// Pause before another attempt, in seconds, that a job has not set otherwise.
const RETRY_DELAY_S: u32 = 120;

/// What becomes of a file that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is tried again, not before this many seconds have passed; STAGING if it has to be brought from tape again.
    Again {
        /// SUBMITTED or STAGING.
        state: FileState,
        /// The pause, in seconds.
        delay_s: u32,
    },
    /// It has failed for good.
    Failed,
}

/// Decides what becomes of a file that has failed after so many failed attempts before (fts3-rest 6.1, 7.2). `retries_max` is that of
/// [`retries_max`].
pub fn next(failure: &Failure, params: &Params, attempts: u32, retries_max: u32) -> Next {
    if !failure.is_recoverable() || attempts >= retries_max {
        return Next::Failed;
    }
    let delay_s = if params.retry_delay_s > 0 { params.retry_delay_s } else { RETRY_DELAY_S };
    let is_from_tape = params.bring_online_s.is_some() || params.pin_lifetime_s.is_some();
    // A copy that took too long may have waited for a file that is not on disk any more.
    let state =
        if is_from_tape && failure.errno == ETIMEDOUT { FileState::Staging } else { FileState::Submitted };
    Next::Again { state, delay_s }
}

/// Time for a copy of any size, in seconds.
const TIMEOUT_S: u64 = 600;

/// Time for each MiB beside that, in seconds.
const TIMEOUT_S_PER_MIB: u64 = 2;

/// Time for a copy of so many bytes, in seconds: as its job says (`asked_s`); else as its VO's settings do (`vo_s`); else 600 s and
/// 2 s for each MiB, or `s_per_mib` if that is more than 0 (fts3-rest 7.3).
pub fn timeout_s(asked_s: Option<u32>, vo_s: u32, s_per_mib: u32, size_bytes: u64) -> u32 {
    if let Some(asked_s) = asked_s.or((vo_s > 0).then_some(vo_s)) {
        return asked_s.min(JOB_TIME_S_MAX);
    }
    let each_s = if s_per_mib > 0 { u64::from(s_per_mib) } else { TIMEOUT_S_PER_MIB };
    // The part of a MiB at the end counts as a part.
    let size_s = u128::from(size_bytes) * u128::from(each_s);
    let size_s = size_s.div_ceil(1 << 20).min(u128::from(JOB_TIME_S_MAX)) as u64;
    u32::try_from(TIMEOUT_S + size_s).unwrap_or(JOB_TIME_S_MAX).min(JOB_TIME_S_MAX)
}

/// Time after which a copy that has not stopped by itself at its time-out is ended, in seconds.
pub fn hard_stop_s(timeout_s: u32) -> u32 {
    timeout_s.saturating_add(60)
}

/// Time for which a file may be ACTIVE, in seconds: an hour more than its job's time-out, or two hours where it has none.
pub fn active_max_s(asked_s: Option<u32>) -> u32 {
    asked_s.map_or(7200, |asked_s| asked_s.saturating_add(3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCOPES: [Scope; 4] = [Scope::Source, Scope::Destination, Scope::Transfer, Scope::General];

    #[test]
    fn words_decide_before_numbers() {
        for scope in SCOPES {
            for word in RECOVERABLE {
                assert!(is_recoverable(&format!("HTTP: {word}. File exists"), EPERM, scope), "{word}");
                assert!(is_recoverable(word, ECANCELED, scope), "{word}");
            }
            for word in NOT_RECOVERABLE {
                assert!(!is_recoverable(&format!("x {word} y"), EIO, scope), "{word}");
                assert!(is_recoverable(word, ETIMEDOUT, scope), "{word}");
            }
            assert!(!is_recoverable("stopped", ECANCELED, scope));
            assert!(is_recoverable("anything", EIO, scope));
            assert!(is_recoverable("", 0, scope));
        }
    }

    #[test]
    fn numbers_mean_what_their_scope_makes_of_them() {
        let hopeless = |errno| SCOPES.map(|scope| !is_recoverable("x", errno, scope));
        for (errno, [source, destination, transfer]) in [
            (EPERM, [true, true, true]),
            (ENOENT, [true, false, false]),
            (E2BIG, [true, true, false]),
            (EACCES, [true, true, true]),
            (EFAULT, [false, true, false]),
            (EEXIST, [false, true, true]),
            (ENOTDIR, [true, false, false]),
            (EISDIR, [true, true, false]),
            (EFBIG, [false, false, true]),
            (ENOSPC, [false, false, true]),
            (EROFS, [false, true, true]),
            (ENAMETOOLONG, [true, true, true]),
            (EPROTONOSUPPORT, [true, true, true]),
            (EINVAL, [false, false, false]),
            (EAGAIN, [false, false, false]),
        ] {
            assert_eq!(hopeless(errno), [source, destination, transfer, transfer], "{errno}");
        }
    }

    #[test]
    fn attempts_are_as_many_as_the_job_or_its_vo_says() {
        for (kind, job, vo, allowed) in [
            (JobKind::Plain, 3, 9, 3),
            (JobKind::Plain, 0, 9, 9),
            (JobKind::Plain, -1, 9, 0),
            (JobKind::Reuse, 2, 0, 2),
            (JobKind::Replicas, 3, 9, 0),
            (JobKind::Multihop, 0, 9, 0),
            (JobKind::Plain, i32::MAX, 0, 720),
            (JobKind::Plain, i32::MIN, u32::MAX, 0),
            (JobKind::Plain, 0, u32::MAX, 720),
        ] {
            assert_eq!(retries_max(kind, job, vo), allowed, "{kind:?} {job} {vo}");
        }
    }

    #[test]
    fn a_file_is_tried_again_while_that_could_help() {
        let failure = Failure::new(Scope::Transfer, EIO, "x");
        let late = Failure::new(Scope::Transfer, ETIMEDOUT, "x");
        let plain = Params::default();
        let again = |state, delay_s| Next::Again { state, delay_s };
        assert_eq!(next(&failure, &plain, 0, 1), again(FileState::Submitted, 120));
        assert_eq!(next(&failure, &plain, 1, 1), Next::Failed);
        assert_eq!(next(&Failure::new(Scope::Source, ENOENT, "x"), &plain, 0, 9), Next::Failed);
        let tape = Params { bring_online_s: Some(60), retry_delay_s: 7, ..Params::default() };
        assert_eq!(next(&late, &tape, 0, 1), again(FileState::Staging, 7));
        assert_eq!(next(&failure, &tape, 0, 1), again(FileState::Submitted, 7));
        assert_eq!(next(&late, &plain, 0, 1), again(FileState::Submitted, 120));
    }

    #[test]
    fn time_for_a_copy_grows_with_its_size() {
        assert_eq!(timeout_s(None, 0, 0, 0), 600);
        assert_eq!(timeout_s(None, 0, 0, 1), 601);
        assert_eq!(timeout_s(None, 0, 0, 1 << 30), 600 + 2048);
        assert_eq!(timeout_s(None, 0, 5, 3 << 20), 615);
        assert_eq!(timeout_s(None, 40, 5, 3 << 20), 40);
        assert_eq!(timeout_s(Some(9), 40, 5, 3 << 20), 9);
        assert_eq!(timeout_s(None, 0, u32::MAX, u64::MAX), JOB_TIME_S_MAX);
        assert_eq!((hard_stop_s(600), hard_stop_s(u32::MAX)), (660, u32::MAX));
        assert_eq!((active_max_s(None), active_max_s(Some(60))), (7200, 3660));
    }

    #[test]
    fn a_reason_has_scope_and_number() {
        let failure =
            Failure::new(Scope::Destination, EEXIST, "Destination file exists and overwrite is not enabled");
        assert_eq!(failure.reason(), "DESTINATION [17] Destination file exists and overwrite is not enabled");
        assert!(!failure.is_recoverable());
        assert!(
            Failure::new(Scope::General, 5, "a\nb\u{1b}")
                .reason()
                .starts_with("GENERAL_FAILURE [5] a\u{fffd}b")
        );
    }

    #[test]
    fn nothing_that_opens_a_url_is_in_a_reason() {
        for (text, shown) in [
            (
                "GET https://ada:pw@a:443/x?authz=Bearer%20s failed: 403?",
                "GET https://a:443/x?… failed: 403?",
            ),
            ("(davs://a/x@y?t=s) and 'root://u@b//z?authz=s'", "(davs://a/x@y?…) and 'root://b//z?…'"),
            ("https://a", "https://a"),
            ("://?", "://?…"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    proptest! {
        #[test]
        fn a_reason_is_bounded_and_on_one_line(text in "(?s).{0,3000}", errno: i32) {
            let reason = Failure::new(Scope::Source, errno, text).reason();
            prop_assert!(reason.len() <= JOB_REASON_BYTES_MAX);
            prop_assert!(!reason.chars().any(text::is_unprintable));
        }
    }
}
