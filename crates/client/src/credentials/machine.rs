//! The machine, as far as credentials are found on it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::limits::CREDENTIAL_BYTES_MAX;
use rustix::fs::OFlags;

/// The parts of the machine that the search for credentials sees.
pub trait Machine: Send + Sync {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The effective user: whose credentials are looked for.
    fn user(&self) -> u32;

    /// A file, up to one byte more than a credential can have; `None` when it is not there. A file that the user has
    /// named (`is_named`) may be a pipe; otherwise it is a regular file or an error.
    fn read(&self, path: &Path, is_named: bool) -> io::Result<Option<Content>>;

    /// Which version of a file is there.
    fn version(&self, path: &Path) -> io::Result<Version>;

    /// Seconds since 1970.
    fn now_s(&self) -> i64;
}

/// The contents of a file, and which users can see it. It has no `Debug`: it may be a key.
#[derive(Clone)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its permissions; `None` of what is no regular file.
    pub mode: Option<u32>,
    /// The user id of its owner.
    pub owner: u32,
    /// Its version; `None` of what can be read once only.
    pub version: Option<Version>,
}

/// Tells a file from the one that replaced it: when it was changed, in nanoseconds, its size and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// When it was changed, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// Its size.
    pub size_bytes: u64,
    /// Its number in the file system.
    pub inode: u64,
}

/// This machine, and the environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn read(&self, path: &Path, is_named: bool) -> io::Result<Option<Content>> {
        let absent = |cause: &io::Error| {
            matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        let mut options = File::options();
        options.read(true);
        if !is_named {
            // It may be a pipe, whose other end never comes.
            options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        }
        let file = match options.open(path) {
            Err(cause) if absent(&cause) => return Ok(None),
            file => file?,
        };
        let meta = file.metadata()?;
        if !meta.is_file() && !is_named {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(CREDENTIAL_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        let mode = meta.is_file().then(|| meta.mode() & 0o777);
        let version = meta.is_file().then(|| version_of(&meta));
        Ok(Some(Content { bytes, mode, owner: meta.uid(), version }))
    }

    fn version(&self, path: &Path) -> io::Result<Version> {
        path.metadata().map(|meta| version_of(&meta))
    }

    fn now_s(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }
}

fn version_of(meta: &std::fs::Metadata) -> Version {
    let changed_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    Version { changed_ns, size_bytes: meta.len(), inode: meta.ino() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_pipes_only_when_they_were_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        assert!(ThisMachine.read(&file, true).unwrap().is_none());
        std::fs::write(&file, b"abc").unwrap();
        let before = ThisMachine.read(&file, false).unwrap().unwrap();
        assert_eq!((before.bytes.as_slice(), before.owner), (b"abc".as_slice(), ThisMachine.user()));
        assert_eq!(before.version, Some(ThisMachine.version(&file).unwrap()));
        std::fs::write(&file, b"abcd").unwrap();
        assert_ne!(before.version, Some(ThisMachine.version(&file).unwrap()));
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(ThisMachine.read(&pipe, false).is_err());
        let writer = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(writer, b"once"));
        let once = ThisMachine.read(&pipe, true).unwrap().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!((once.bytes.as_slice(), once.mode, once.version), (b"once".as_slice(), None, None));
    }
}
