//! Small files on their way: each has no name at all until its bytes are complete and durable.
//!
//! A partial file ([`path_target`](crate::path_target)) is for what is worth continuing: it has a name, a journal and a lock.
//! A small file is fetched again faster than that is made. It is opened without a name (`O_TMPFILE`), written with few
//! calls, and linked to its name when its bytes are on the disk. A crash or a kill at any point leaves the whole
//! file or nothing, and nothing to clean up.
//!
//! Files become visible in groups ([`commit`]): the syncs of a group find one commit of the file system's own journal
//! between them, and each directory is synced once.
//!
//! System calls for a file beside those that write its bytes: `fstatat` twice (is there one of that name, or one that was
//! begun?), `openat`, `fdatasync`, `linkat`, `close`, and on a device `sync_file_range`; a directory costs `openat2` once and
//! `fsync` once for each group.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gridlane_share::Turns;
use gridlane_sys::file::{CacheProbe, start_writeback};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fsync, linkat, openat, openat2, statat};
use rustix::io::Errno;

use crate::links;
use crate::path_target::beside;
use crate::posix::turns_of;

/// A directory that is open, so that the way there is not looked at again.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    /// Its files are in memory only: there is no device that could begin to write early.
    is_memory: bool,
    turns: Arc<Turns>,
}

impl Directory {
    /// Opens what is at `below` in the directory `root`. No link below `root` is followed, and on the way to it none that
    /// [`links`] refuses. An error of kind `Unsupported`: its file system has no files without names.
    pub fn open(root: &Path, below: &Path) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let way = links::follow(root).map_err(io::Error::other)?;
        let mut fd = openat(CWD, &way, flags, Mode::empty())?;
        if !below.as_os_str().is_empty() {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            fd = openat2(&fd, below, flags, Mode::empty(), resolve)?;
        }
        let is_memory = CacheProbe::of(&fd) == CacheProbe::Memory;
        let turns = turns_of(&fd);
        let directory = Directory { fd, path: root.join(below), is_memory, turns };
        match directory.open_unnamed() {
            Ok(_) => Ok(directory),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(cause) => Err(cause.into()),
        }
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The turns of the device that it is on.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// True if bytes of its files go to a device, for which a write or a sync may have to wait.
    pub fn has_device(&self) -> bool {
        !self.is_memory
    }

    /// True if something of this name is there, a link that leads nowhere included.
    pub fn has(&self, name: &OsStr) -> io::Result<bool> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(cause.into()),
        }
    }

    /// True if a copy to this name was begun that can be continued, or is running.
    pub fn has_unfinished(&self, name: &OsStr) -> io::Result<bool> {
        match beside(Path::new(name)) {
            Ok((_, journal)) => self.has(journal.as_os_str()),
            Err(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Begins a file that will be called `name`.
    pub fn create(self: &Arc<Directory>, name: &OsStr) -> io::Result<UnnamedFile> {
        let file = File::from(self.open_unnamed()?);
        Ok(UnnamedFile { directory: self.clone(), name: name.to_owned(), file })
    }

    fn open_unnamed(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(&self.fd, ".", flags, Mode::from_raw_mode(0o666))
    }
}

/// A file without a name. It is gone when it is dropped before [`commit`].
#[derive(Debug)]
pub struct UnnamedFile {
    directory: Arc<Directory>,
    name: OsString,
    file: File,
}

impl UnnamedFile {
    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// The directory that it will be in.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// True if its bytes go to a device, for which a write or a sync may have to wait.
    pub fn has_device(&self) -> bool {
        self.directory.has_device()
    }

    /// All `size_bytes` were written: the device may begin with them.
    pub fn written(&self, size_bytes: u64) {
        if self.has_device() {
            start_writeback(&self.file, 0, size_bytes);
        }
    }

    /// Sets when it was last changed.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        self.file.set_modified(modified)
    }

    /// Gives it its name; an error of kind `AlreadyExists` when that is taken.
    fn link(&self) -> io::Result<()> {
        // Without a detour through /proc, where the kernel allows it.
        match linkat(&self.file, "", &self.directory.fd, &self.name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
                let here = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
                linkat(CWD, here, &self.directory.fd, &self.name, AtFlags::SYMLINK_FOLLOW)?;
                Ok(())
            }
            outcome => Ok(outcome?),
        }
    }
}

/// Makes files visible whose bytes are complete: all bytes are synced first, then each gets its name, then the directories
/// are synced. One outcome for each file, in their order. Nothing that exists is replaced.
pub fn commit(files: Vec<UnnamedFile>) -> Vec<io::Result<()>> {
    let synced: Vec<io::Result<()>> = files.iter().map(|file| file.file.sync_data()).collect();
    let outcomes: Vec<io::Result<()>> =
        files.iter().zip(synced).map(|(file, synced)| synced.and_then(|()| file.link())).collect();
    let mut directories: Vec<&Arc<Directory>> = Vec::new();
    for file in &files {
        if !directories.iter().any(|known| Arc::ptr_eq(known, &file.directory)) {
            directories.push(&file.directory);
        }
    }
    for directory in directories {
        // As for a partial file: some file systems cannot sync a directory.
        let _ = fsync(&directory.fd);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    fn names(dir: &Path) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_has_a_name_before_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        let below = Arc::new(Directory::open(dir.path(), Path::new("a")).unwrap());
        let files: Vec<UnnamedFile> = (0..3)
            .map(|number| {
                let file = below.create(OsStr::new(&format!("f{number}"))).unwrap();
                file.write_at(b"def", 3).unwrap();
                file.write_at(b"abc", 0).unwrap();
                file.written(6);
                file
            })
            .collect();
        assert!(names(below.path()).is_empty() && !below.has(OsStr::new("f0")).unwrap());
        assert!(commit(files).into_iter().all(|outcome| outcome.is_ok()));
        assert_eq!(names(below.path()), [b"f0", b"f1", b"f2"]);
        assert_eq!(fs::read(below.path().join("f1")).unwrap(), b"abcdef");
        drop(below.create(OsStr::new("dropped")).unwrap());
        assert_eq!(names(below.path()).len(), 3);
    }

    #[test]
    fn what_exists_is_not_replaced_and_the_others_come() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), b"old").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        let root = Arc::new(Directory::open(dir.path(), Path::new("")).unwrap());
        assert!(root.has(OsStr::new("old")).unwrap() && root.has(OsStr::new("link")).unwrap());
        let files = ["old", "link", "new"].map(|name| root.create(OsStr::new(name)).unwrap());
        let outcomes = commit(files.into_iter().collect());
        let kinds: Vec<Option<io::ErrorKind>> =
            outcomes.iter().map(|outcome| outcome.as_ref().err().map(io::Error::kind)).collect();
        let exists = Some(io::ErrorKind::AlreadyExists);
        assert_eq!(kinds, [exists, exists, None]);
        assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
        assert_eq!(names(dir.path()), [&b"link"[..], b"new", b"old"]);
    }

    #[test]
    fn no_link_below_the_root_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        assert!(Directory::open(&dir.path().join("link"), Path::new("sub")).is_ok());
        assert!(Directory::open(dir.path(), Path::new("link/sub")).is_err());
        assert!(Directory::open(dir.path(), Path::new("link")).is_err());
        assert!(Directory::open(dir.path(), Path::new("real/../real")).is_ok());
        assert!(Directory::open(dir.path(), Path::new("../x")).is_err());
    }
}
