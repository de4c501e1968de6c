//! One error type: what happened, whose fault it is, whether to retry, what to do.

use std::fmt;
use std::time::Duration;

use crate::Hint;

/// The kind of a failure, as coarse as a caller needs to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing more precise fits.
    Other,
    /// The command or the call makes no sense as given.
    Usage,
    /// There is no such file.
    NotFound,
    /// Not allowed.
    Denied,
    /// The target exists, or an object is not the one it was.
    Precondition,
    /// A connection could not be made, or broke.
    Network,
    /// Nothing came for too long.
    Timeout,
    /// Bytes are not what their checksum says.
    ChecksumMismatch,
    /// The local disk is full or fails.
    LocalIo,
    /// Some of many files failed.
    Partial,
    /// The server asked us to come back later.
    Busy,
    /// The peer cannot do this.
    Unsupported,
    /// A person or a signal stopped it; it can be resumed.
    Interrupted,
    /// The peer broke its protocol.
    Protocol,
}

impl ErrorKind {
    /// The exit code of the command line (docs/reference/exit-codes.md).
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Other | ErrorKind::Protocol => 1,
            ErrorKind::Usage => 2,
            ErrorKind::NotFound => 3,
            ErrorKind::Denied => 4,
            ErrorKind::Precondition => 5,
            ErrorKind::Network => 6,
            ErrorKind::Timeout => 7,
            ErrorKind::ChecksumMismatch => 8,
            ErrorKind::LocalIo => 9,
            ErrorKind::Partial => 10,
            ErrorKind::Busy => 11,
            ErrorKind::Unsupported => 12,
            ErrorKind::Interrupted => 130,
        }
    }

    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Other => "other",
            ErrorKind::Usage => "usage",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Denied => "denied",
            ErrorKind::Precondition => "precondition",
            ErrorKind::Network => "network",
            ErrorKind::Timeout => "timeout",
            ErrorKind::ChecksumMismatch => "checksum_mismatch",
            ErrorKind::LocalIo => "local_io",
            ErrorKind::Partial => "partial",
            ErrorKind::Busy => "busy",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Protocol => "protocol",
        }
    }

    /// The kind of a name; [`ErrorKind::Other`] for an unknown one.
    pub fn named(name: &str) -> ErrorKind {
        use ErrorKind::*;
        let kinds = [
            Usage,
            NotFound,
            Denied,
            Precondition,
            Network,
            Timeout,
            ChecksumMismatch,
            LocalIo,
            Partial,
            Busy,
            Unsupported,
            Interrupted,
            Protocol,
        ];
        kinds.into_iter().find(|kind| kind.name() == name).unwrap_or(Other)
    }

    /// True if the same call may succeed later without anything being changed.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Busy | ErrorKind::Interrupted)
    }
}

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The person or program that called us.
    Caller,
    /// This machine: its disk, memory, permissions.
    Local,
    /// The network between the two machines.
    Network,
    /// The other side.
    Peer,
    /// A defect in gridlane.
    Internal,
}

impl Fault {
    /// The fault of a name.
    pub fn named(name: &str) -> Option<Fault> {
        let faults = [Fault::Caller, Fault::Local, Fault::Network, Fault::Peer, Fault::Internal];
        faults.into_iter().find(|fault| fault.name() == name)
    }

    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Caller => "caller",
            Fault::Local => "local",
            Fault::Network => "network",
            Fault::Peer => "peer",
            Fault::Internal => "internal",
        }
    }
}

/// A failure with everything a person or a program needs to act on it.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    fault: Fault,
    message: String,
    hint: Option<Hint>,
    endpoint: Option<String>,
    http_status: Option<u16>,
    retry_after: Option<Duration>,
    retryable: Option<bool>,
    no_space: bool,
    unreached: bool,
}

/// The result of anything that fails with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind`; `message` says what happened, in a sentence without a final stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let fault = match kind {
            ErrorKind::Usage | ErrorKind::Interrupted => Fault::Caller,
            ErrorKind::Network | ErrorKind::Timeout => Fault::Network,
            ErrorKind::LocalIo => Fault::Local,
            ErrorKind::Other => Fault::Internal,
            _ => Fault::Peer,
        };
        Error(Box::new(Inner {
            kind,
            fault,
            message: message.into(),
            hint: None,
            endpoint: None,
            http_status: None,
            retry_after: None,
            retryable: None,
            no_space: false,
            unreached: false,
        }))
    }

    /// Says whose fault it is, where the kind's usual answer is wrong.
    pub fn fault(mut self, fault: Fault) -> Error {
        self.0.fault = fault;
        self
    }

    /// Adds to the sentence that says what happened.
    pub fn more(mut self, more: impl fmt::Display) -> Error {
        self.0.message.push_str(&format!("; {more}"));
        self
    }

    /// Says what to do about it.
    pub fn hint(mut self, hint: impl Into<Hint>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Names the endpoint or file it happened at; secrets must be redacted already.
    pub fn endpoint(mut self, endpoint: impl fmt::Display) -> Error {
        self.0.endpoint = Some(endpoint.to_string());
        self
    }

    /// Records the HTTP status that caused it.
    pub fn http_status(mut self, status: u16) -> Error {
        self.0.http_status = Some(status);
        self
    }

    /// Records how long the peer asked us to wait.
    pub fn retry_after(mut self, wait: Option<Duration>) -> Error {
        self.0.retry_after = wait;
        self
    }

    /// Overrides whether retrying helps.
    pub fn retryable(mut self, retryable: bool) -> Error {
        self.0.retryable = Some(retryable);
        self
    }

    /// Says that there was no connection: no server has heard of what was to be done.
    pub fn unreached(mut self) -> Error {
        self.0.unreached = true;
        self
    }

    /// True if there was [no connection](Error::unreached): what was to be done may be tried again whatever it is.
    pub fn is_unreached(&self) -> bool {
        self.0.unreached
    }

    /// Says that there is no room for more bytes, which any other file would meet with as well.
    pub fn no_space(mut self) -> Error {
        self.0.no_space = true;
        self
    }

    /// True if there was no room for more bytes: on this machine, or by a server's word (507, RFC 4918, 11.5).
    pub fn is_no_space(&self) -> bool {
        self.0.no_space || self.0.http_status == Some(507)
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The party at fault.
    pub fn whose_fault(&self) -> Fault {
        self.0.fault
    }

    /// True if the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable.unwrap_or_else(|| self.0.kind.is_retryable())
    }

    /// The sentence that says what happened.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The advice.
    pub fn advice(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
    }

    /// Where it happened.
    pub fn endpoint_text(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    /// The HTTP status that caused it.
    pub fn status(&self) -> Option<u16> {
        self.0.http_status
    }

    /// Time for which the peer asked us to wait.
    pub fn wait(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// `ENDPOINT: message [whose fault; retrying may help]; hint`, on one line, the hint in the words of a front end. That
    /// retrying will not help goes without saying; programs find it in JSON.
    pub fn worded<W: fmt::Display>(&self, words: impl Fn(&Hint) -> W) -> impl fmt::Display {
        Worded(self, words)
    }

    /// A failure of the local file system while doing `what` (for example `"cannot create a"`).
    pub fn local_io(what: impl fmt::Display, cause: &std::io::Error) -> Error {
        let kind = match cause.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            std::io::ErrorKind::AlreadyExists => ErrorKind::Precondition,
            _ => ErrorKind::LocalIo,
        };
        let error = Error::new(kind, format!("{what}: {cause}")).fault(Fault::Local);
        match cause.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                error.no_space().hint("free some space, then run the same command: it continues")
            }
            std::io::ErrorKind::FileTooLarge => error.hint(
                "raise the limit on the size of files (ulimit -f), or use a file system for larger ones",
            ),
            _ => error,
        }
    }

    /// A connection that failed while doing `what`.
    pub fn network(what: impl fmt::Display, cause: &std::io::Error) -> Error {
        let kind = match cause.kind() {
            std::io::ErrorKind::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Network,
        };
        Error::new(kind, format!("{what}: {cause}"))
    }
}

/// [`Error::worded`].
struct Worded<'a, F>(&'a Error, F);

impl<W: fmt::Display, F: Fn(&Hint) -> W> fmt::Display for Worded<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worded(Error(error), words) = self;
        if let Some(endpoint) = &error.endpoint {
            write!(f, "{endpoint}: ")?;
        }
        f.write_str(&error.message)?;
        let whose = match error.fault {
            Fault::Caller => None,
            Fault::Local => Some("this machine"),
            Fault::Network => Some("the network or the server's reachability"),
            Fault::Peer => Some("the server's side"),
            Fault::Internal => Some("a defect in gridlane, please report it"),
        };
        let retry = self.0.is_retryable().then_some("retrying may help");
        match (whose, retry) {
            (Some(whose), Some(retry)) => write!(f, " [{whose}; {retry}]")?,
            (Some(only), None) | (None, Some(only)) => write!(f, " [{only}]")?,
            (None, None) => {}
        }
        if let Some(hint) = &error.hint {
            write!(f, "; {}", words(hint))?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    /// The line of [`Error::worded`], with the hint's own words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.worded(Hint::to_string))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_whose_fault_whether_to_retry_and_what_to_do() {
        let error = Error::new(ErrorKind::Busy, "the server is full")
            .endpoint("https://a.example/f")
            .hint("wait 3 s");
        assert_eq!(
            error.to_string(),
            "https://a.example/f: the server is full [the server's side; retrying may help]; wait 3 s"
        );
        assert_eq!(error.kind().exit_code(), 11);
    }

    #[test]
    fn people_are_told_of_retrying_only_where_it_may_help() {
        let gone = Error::new(ErrorKind::NotFound, "there is no such file");
        assert_eq!(gone.to_string(), "there is no such file [the server's side]");
        assert_eq!(gone.fault(Fault::Caller).to_string(), "there is no such file");
        let stopped = Error::new(ErrorKind::Interrupted, "stopped");
        assert_eq!(stopped.to_string(), "stopped [retrying may help]");
    }

    #[test]
    fn a_full_disk_is_local_and_says_how_to_go_on() {
        let cause = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::local_io("cannot write x", &cause);
        assert_eq!(error.kind().exit_code(), 9);
        assert!(error.advice().is_some_and(|hint| hint.to_string().contains("same command")));
    }
}
