//! Errors of SQLite.

use gridlane_core::{Error, ErrorKind, Fault};

/// An error of SQLite, with what could not be done.
pub(super) fn failed(what: &str, cause: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let message = format!("cannot {what}: {cause}");
    let local = |message| Error::new(ErrorKind::LocalIo, message).fault(Fault::Local);
    match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => local(message)
            .no_space()
            .retryable(true)
            .hint("make room on the disk of the store: the service goes on by itself"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::new(ErrorKind::Busy, message)
            .fault(Fault::Local)
            .hint("another program writes to the store: stop it, or give each service a store of its own"),
        Some(ErrorCode::TooBig) => Error::new(ErrorKind::Usage, message),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            local(message).hint("bring back a backup of the store")
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
            local(message).hint("look at the owner and the mode of the file and of its directory")
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => local(message).retryable(true),
        _ => Error::new(ErrorKind::Other, message),
    }
}
