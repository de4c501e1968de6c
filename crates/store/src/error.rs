//! What can go wrong in a storage, as precisely as an answer to a client needs it.

use std::path::PathBuf;
use std::{fmt, io};

use gridlane_core::{Error, ErrorKind, Fault};
use rustix::io::Errno;

/// A failure of a storage operation.
#[derive(Debug)]
pub enum StoreError {
    /// There is nothing at that path, or nothing that is served.
    NotFound,
    /// The directory that should hold the object does not exist.
    ParentMissing,
    /// A file was asked for, and there is a directory or something else that is no file.
    NotAFile,
    /// A directory was asked for, and there is a file.
    NotADirectory,
    /// The directory to be removed is not empty.
    NotEmpty,
    /// The object is there already, or is not in the state that was expected.
    Unexpected,
    /// A file or directory was to be moved onto itself, into itself, or onto a directory that holds it.
    IntoItself,
    /// From here to there nothing can be moved, only copied: they are on different file systems.
    AcrossDevices,
    /// It cannot be removed or moved: it is the export's root, or something is mounted there.
    InUse,
    /// The operating system does not let this process do it.
    Denied,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The name or the path is longer than the file system allows.
    NameTooLong,
    /// The file, or its attribute, is larger than the file system allows.
    TooLarge,
    /// The device is full.
    NoSpace,
    /// There is room on the device, but the quota of the export is used up.
    OverQuota,
    /// The process or the machine has no descriptor left to open a file with: later it may have one.
    Busy,
    /// Another copy to the same path has it: later it may be free.
    Locked,
    /// A directory that the server needs for itself belongs to another user.
    NotOurs(PathBuf),
    /// The file system, or this kind of storage, does not support it.
    Unsupported,
    /// The file was closed before: nothing more can be done to it.
    Closed,
    /// Anything else.
    Io(io::Error),
}

/// The result of a storage operation.
pub type StoreResult<T> = Result<T, StoreError>;

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::NotFound => "there is no such file",
            StoreError::ParentMissing => "the directory to put it in does not exist",
            StoreError::NotAFile => "it is not a regular file",
            StoreError::NotADirectory => "it is not a directory",
            StoreError::NotEmpty => "the directory is not empty",
            StoreError::Unexpected => "the file is not in the expected state",
            StoreError::IntoItself => "it cannot be moved onto or into itself",
            StoreError::AcrossDevices => "it is on another file system than its new place: copy it",
            StoreError::InUse => "it is the export's root, or something is mounted there",
            StoreError::Denied => "the operating system denies it to the server",
            StoreError::ReadOnly => "the file system is read-only",
            StoreError::NameTooLong => "the name is too long for the file system",
            StoreError::TooLarge => "it is too large for the file system",
            StoreError::NoSpace => "there is not enough space",
            StoreError::OverQuota => "the quota does not allow as much",
            StoreError::Busy => "the server has too many files open",
            StoreError::Locked => "another copy to it is running",
            StoreError::Unsupported => "the storage does not support it",
            StoreError::Closed => "the file was closed before",
            StoreError::NotOurs(path) => {
                let path = path.display();
                return write!(
                    f,
                    "{path} is not a directory of this user's alone: remove it, or serve as its owner"
                );
            }
            StoreError::Io(cause) => return write!(f, "the storage fails: {cause}"),
        })
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Io(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(cause: io::Error) -> StoreError {
        const NO_DESCRIPTOR: [i32; 2] = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
        if cause.raw_os_error().is_some_and(|code| NO_DESCRIPTOR.contains(&code)) {
            return StoreError::Busy;
        }
        match cause.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound,
            io::ErrorKind::PermissionDenied => StoreError::Denied,
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly,
            io::ErrorKind::DirectoryNotEmpty => StoreError::NotEmpty,
            io::ErrorKind::CrossesDevices => StoreError::AcrossDevices,
            io::ErrorKind::ResourceBusy => StoreError::InUse,
            io::ErrorKind::FileTooLarge => StoreError::TooLarge,
            io::ErrorKind::AlreadyExists => StoreError::Unexpected,
            io::ErrorKind::IsADirectory => StoreError::NotAFile,
            io::ErrorKind::NotADirectory => StoreError::NotADirectory,
            // The last one: a directory that can hold no further directory.
            io::ErrorKind::StorageFull | io::ErrorKind::TooManyLinks => StoreError::NoSpace,
            io::ErrorKind::QuotaExceeded => StoreError::OverQuota,
            io::ErrorKind::InvalidFilename => StoreError::NameTooLong,
            io::ErrorKind::Unsupported => StoreError::Unsupported,
            _ => StoreError::Io(cause),
        }
    }
}

impl From<Errno> for StoreError {
    fn from(cause: Errno) -> StoreError {
        io::Error::from(cause).into()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let kind = match error {
            StoreError::NotFound | StoreError::ParentMissing => ErrorKind::NotFound,
            StoreError::NotAFile
            | StoreError::NotADirectory
            | StoreError::NameTooLong
            | StoreError::IntoItself
            | StoreError::AcrossDevices
            | StoreError::Unsupported => ErrorKind::Usage,
            StoreError::Unexpected | StoreError::NotEmpty | StoreError::Locked => ErrorKind::Precondition,
            StoreError::Denied | StoreError::ReadOnly | StoreError::InUse | StoreError::NotOurs(_) => {
                ErrorKind::Denied
            }
            StoreError::NoSpace
            | StoreError::OverQuota
            | StoreError::TooLarge
            | StoreError::Busy
            | StoreError::Closed
            | StoreError::Io(_) => ErrorKind::LocalIo,
        };
        Error::new(kind, error.to_string()).fault(Fault::Local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_passes() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            assert!(matches!(StoreError::from(errno), StoreError::Busy), "{errno}");
        }
        assert!(matches!(StoreError::from(Errno::IO), StoreError::Io(_)));
    }

    #[test]
    fn what_the_kernel_refuses_keeps_its_meaning() {
        type Is = fn(&StoreError) -> bool;
        let meanings: [(Errno, Is); 10] = [
            (Errno::DQUOT, |error| matches!(error, StoreError::OverQuota)),
            (Errno::NOSPC, |error| matches!(error, StoreError::NoSpace)),
            (Errno::MLINK, |error| matches!(error, StoreError::NoSpace)),
            (Errno::NOTEMPTY, |error| matches!(error, StoreError::NotEmpty)),
            (Errno::XDEV, |error| matches!(error, StoreError::AcrossDevices)),
            (Errno::ROFS, |error| matches!(error, StoreError::ReadOnly)),
            (Errno::BUSY, |error| matches!(error, StoreError::InUse)),
            (Errno::NAMETOOLONG, |error| matches!(error, StoreError::NameTooLong)),
            (Errno::FBIG, |error| matches!(error, StoreError::TooLarge)),
            (Errno::OPNOTSUPP, |error| matches!(error, StoreError::Unsupported)),
        ];
        for (errno, is_meant) in meanings {
            let error = StoreError::from(errno);
            assert!(is_meant(&error), "{errno}: {error:?}");
        }
    }
}
