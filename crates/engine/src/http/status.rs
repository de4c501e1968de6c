//! What an HTTP status means to somebody who wanted a file.

use std::time::SystemTime;

use gridlane_core::{Error, ErrorKind, Fault};
use gridlane_dav::ResponseHead;

/// The error that a response with this head is; `said` is the body's first line, if it has one.
pub fn status_error(head: &ResponseHead, said: &str) -> Error {
    let code = head.status.code();
    let (kind, fault, meaning) = match code {
        401 => (ErrorKind::Denied, Fault::Caller, "it wants credentials"),
        403 => (ErrorKind::Denied, Fault::Caller, "it does not allow this"),
        404 | 410 => (ErrorKind::NotFound, Fault::Caller, "there is no such file"),
        405 | 501 => (ErrorKind::Unsupported, Fault::Peer, "it cannot do this"),
        408 | 504 => (ErrorKind::Timeout, Fault::Network, "it waited too long"),
        409 | 412 => (ErrorKind::Precondition, Fault::Caller, "the target is not as it has to be"),
        413 => (ErrorKind::LocalIo, Fault::Peer, "the file is larger than it takes"),
        423 => (ErrorKind::Busy, Fault::Peer, "the file is locked"),
        429 => (ErrorKind::Busy, Fault::Peer, "it has too much to do"),
        503 => (ErrorKind::Busy, Fault::Peer, "it is overloaded or being mended"),
        507 => (ErrorKind::LocalIo, Fault::Peer, "it has no space left"),
        500..=599 => (ErrorKind::Network, Fault::Peer, "it failed"),
        300..=399 => (ErrorKind::Protocol, Fault::Peer, "it redirects, and that is not followed here"),
        400..=499 => (ErrorKind::Other, Fault::Peer, "it refused the request"),
        _ => (ErrorKind::Protocol, Fault::Peer, "that answer makes no sense here"),
    };
    let reason = head.status.reason();
    let mut message = format!("the server answered {code} {reason}: {meaning}").replace(" : ", ": ");
    if !said.is_empty() {
        message.push_str(&format!(" (\"{said}\")"));
    }
    let mut error = Error::new(kind, message).fault(fault).http_status(code);
    match code {
        401 | 403 => error = error.hint("ask whoever runs the server for access"),
        404 | 410 => error = error.hint("check the path"),
        // Trying again without any change may help, though the request was refused now.
        507 => error = error.hint("ask whoever runs the server for space").retryable(false),
        429 | 503 => {
            let wait = head.retry_after(SystemTime::now());
            error = error.retry_after(wait);
            if let Some(wait) = wait {
                error = error.hint(format!("it asks for a pause of {} s", wait.as_secs()));
            }
        }
        _ => {}
    }
    error
}
