//! The meaning of an error of XRootD's protocol for a client that wants a file.

use gridlane_core::{Error, ErrorKind, Fault, Hint};
use gridlane_xrd::answer::ErrorAnswer;
use gridlane_xrd::{ErrorCode, Malformed};

/// Characters of a server's text that are shown.
const SAID_MAX: usize = 300;

/// The error that this answer is, without an endpoint.
pub fn status_error(answer: &ErrorAnswer) -> Error {
    use ErrorKind::*;
    let (kind, fault, meaning) = match answer.code {
        ErrorCode::NOT_FOUND => (NotFound, Fault::Caller, "there is no such file"),
        ErrorCode::ATTRIBUTE_NOT_FOUND => (NotFound, Fault::Caller, "there is no such attribute"),
        ErrorCode::NO_REPLICAS => (NotFound, Fault::Peer, "no server has a replica"),
        ErrorCode::NOT_AUTHORIZED => (Denied, Fault::Caller, "it does not allow this"),
        ErrorCode::READ_ONLY => (Denied, Fault::Peer, "it can only be read"),
        ErrorCode::AUTH_FAILED => (Denied, Fault::Caller, "it does not accept the credentials"),
        ErrorCode::TLS_REQUIRED => (Denied, Fault::Caller, "it wants TLS"),
        ErrorCode::SIGNATURE_ERROR | ErrorCode::DECRYPT_ERROR => {
            (Denied, Fault::Peer, "it wants requests that are signed")
        }
        ErrorCode::ITEM_EXISTS => (Precondition, Fault::Caller, "it is there already, or not empty"),
        ErrorCode::IS_DIRECTORY => (Precondition, Fault::Caller, "it is a directory"),
        ErrorCode::NOT_FILE => (Precondition, Fault::Caller, "it is no file"),
        ErrorCode::CONFLICT => (Precondition, Fault::Caller, "what is there does not allow it"),
        ErrorCode::FILE_LOCKED => (Busy, Fault::Peer, "another client has it open"),
        ErrorCode::OVERLOADED => (Busy, Fault::Peer, "it has too much to do"),
        ErrorCode::IN_PROGRESS => (Busy, Fault::Peer, "it is being done"),
        ErrorCode::NO_MEMORY => (Busy, Fault::Peer, "it lacks memory"),
        ErrorCode::NO_SPACE => (LocalIo, Fault::Peer, "it has no space left"),
        ErrorCode::OVER_QUOTA => (LocalIo, Fault::Peer, "the quota is used up"),
        ErrorCode::UNSUPPORTED => (Unsupported, Fault::Peer, "it cannot do this"),
        ErrorCode::CHECKSUM_ERROR => {
            (ChecksumMismatch, Fault::Peer, "bytes are not what their checksum says")
        }
        ErrorCode::TOO_MANY_ERRORS => {
            (ChecksumMismatch, Fault::Peer, "too many bytes are not what their checksum says")
        }
        ErrorCode::NO_SERVER => (Network, Fault::Peer, "no server can be reached"),
        ErrorCode::REQUEST_TIMED_OUT | ErrorCode::TIMER_EXPIRED => (Timeout, Fault::Peer, "it took too long"),
        ErrorCode::FS_ERROR => of_words(&answer.text),
        ErrorCode::IO_ERROR | ErrorCode::SERVER_ERROR => (Network, Fault::Peer, "it failed"),
        ErrorCode::ARG_TOO_LONG => (Unsupported, Fault::Peer, "the request is longer than it takes"),
        ErrorCode::CANCELLED => (Other, Fault::Peer, "it was cancelled"),
        ErrorCode::IMPOSSIBLE => (Unsupported, Fault::Peer, "it can never be"),
        _ => (Other, Fault::Peer, "it refused the request"),
    };
    let name = answer.code.name().map(|name| format!(" {name}")).unwrap_or_default();
    let mut message = format!("the server answered {}{name}: {meaning}", answer.code.0);
    let said = said(&answer.text);
    if !said.is_empty() {
        message.push_str(&format!(" (\"{said}\")"));
    }
    let error = Error::new(kind, message).fault(fault);
    match answer.code {
        ErrorCode::NOT_FOUND => error.hint("check the path"),
        ErrorCode::IS_DIRECTORY => error.hint(Hint::ListOrCopyTree),
        ErrorCode::NOT_AUTHORIZED => error.hint("ask the operator of the server for access"),
        ErrorCode::TLS_REQUIRED => error.hint("write roots:// instead of root://"),
        ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA => {
            error.no_space().hint("ask the operator of the server for space").retryable(false)
        }
        // A file system fails in the same way again: a directory that is not one, a name that cannot be.
        ErrorCode::FS_ERROR => error.retryable(false),
        _ => error,
    }
}

/// The meaning of the code for "another failure of the file system". XRootD 5.5 has no better one for much of what
/// happens, but its texts end with those of the C library.
fn of_words(text: &str) -> (ErrorKind, Fault, &'static str) {
    use ErrorKind::*;
    let text = reason(text).to_ascii_lowercase();
    let meanings = [
        ("not a directory", NotFound, Fault::Caller, "what should be a directory is none"),
        ("not empty", Precondition, Fault::Caller, "it is not empty"),
        ("read-only", Denied, Fault::Peer, "it can only be read"),
        ("read/only", Denied, Fault::Peer, "it can only be read"),
    ];
    let found = meanings.into_iter().find(|(words, ..)| text.contains(words));
    found.map_or((Network, Fault::Peer, "it failed"), |(_, kind, fault, meaning)| (kind, fault, meaning))
}

/// The reason in a text like "Unable to open /a name; not a directory": the name may say anything.
fn reason(text: &str) -> &str {
    text.rsplit_once("; ").map_or(text, |(_, reason)| reason)
}

/// The error of a peer that does not keep to the protocol.
pub fn malformed(malformed: &Malformed) -> Error {
    let message = format!("it does not keep to XRootD's protocol: {}", malformed.message);
    Error::new(ErrorKind::Protocol, message)
}

/// A server's text, on one line, without control characters, and not all of it if it is long.
pub(crate) fn said(text: &str) -> String {
    let line = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut said: String = line.take(SAID_MAX + 1).collect();
    if said.chars().count() > SAID_MAX {
        said = said.chars().take(SAID_MAX).chain(['…']).collect();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_becomes_what_to_do() {
        let of = |code, text: &str| status_error(&ErrorAnswer { code, text: text.into() });
        let error = of(ErrorCode::NOT_FOUND, "Unable to open /f;\x1b[31m no such file");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::NotFound, false));
        assert!(error.message().contains("3011 NotFound") && error.message().contains(" [31m no such file"));
        assert!(of(ErrorCode::NO_SPACE, "").is_no_space());
        assert!(of(ErrorCode::FILE_LOCKED, "").is_retryable());
        assert_eq!(of(ErrorCode(4711), "").kind(), ErrorKind::Other);
        for (text, kind) in [
            ("Unable to open directory /f/x; not a directory", ErrorKind::NotFound),
            ("Unable to remove /d; directory not empty", ErrorKind::Precondition),
            ("Unable to create /f; file path marked read/only", ErrorKind::Denied),
            ("Unable to open /f; no idea", ErrorKind::Network),
            ("Unable to open /not empty/f; no idea", ErrorKind::Network),
        ] {
            let error = of(ErrorCode::FS_ERROR, text);
            assert_eq!((error.kind(), error.is_retryable()), (kind, false), "{text}");
        }
        assert!(of(ErrorCode::IO_ERROR, &"x".repeat(100_000)).message().len() < 2 * SAID_MAX);
    }
}
