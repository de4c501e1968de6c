//! The status for a copy that failed before anything was moved, where the client is still waiting for one.

use gridlane_core::{Error, ErrorKind, Fault};
use gridlane_dav::Status;
use gridlane_front::reply::Reply;

/// The answer. 404 and 403 are those that clients of the field tell apart: davix takes them for "no such file" and "permission
/// denied" of the copy as a whole.
pub(crate) fn reply(error: &Error) -> Reply {
    let status = match error.kind() {
        ErrorKind::NotFound => Status::NOT_FOUND,
        // The other server's certificate: the client lacks no right, and gfal2 would not try another way after 403.
        ErrorKind::Denied if error.status().is_none() && error.whose_fault() == Fault::Peer => {
            Status::BAD_GATEWAY
        }
        ErrorKind::Denied => Status::FORBIDDEN,
        ErrorKind::Usage => Status::BAD_REQUEST,
        ErrorKind::Precondition => Status::PRECONDITION_FAILED,
        ErrorKind::Unsupported => Status::NOT_IMPLEMENTED,
        ErrorKind::Timeout => Status::GATEWAY_TIMEOUT,
        ErrorKind::Busy | ErrorKind::Interrupted => Status::SERVICE_UNAVAILABLE,
        ErrorKind::LocalIo if error.is_no_space() => Status::INSUFFICIENT_STORAGE,
        ErrorKind::LocalIo | ErrorKind::Other | ErrorKind::Partial => Status::INTERNAL_SERVER_ERROR,
        ErrorKind::Network | ErrorKind::Protocol | ErrorKind::ChecksumMismatch => Status::BAD_GATEWAY,
    };
    Reply::failure(status, cause(error))
}

/// The cause in one line: where, what, and what the other server said.
pub(crate) fn cause(error: &Error) -> String {
    let what = error.message();
    let mut text = match error.endpoint_text() {
        Some(endpoint) if !what.contains(endpoint) => format!("{endpoint}: {what}"),
        _ => what.to_owned(),
    };
    if let Some(status) = error.status()
        && !text.contains(&status.to_string())
    {
        text.push_str(&format!(" (status {status})"));
    }
    // By these words FTS knows that another try will not help.
    if error.kind() == ErrorKind::ChecksumMismatch {
        text.insert_str(0, "checksum mismatch: ");
    }
    text
}
