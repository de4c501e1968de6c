//! The cache's directory: its owner, the files in it, and when each was used last.
//!
//! ```text
//! HASH.data   bytes          (HASH: 64 hexadecimal digits)
//! HASH.index  which they are; the time of its last change is that of the last use
//! HASH.new    an index that is being written anew
//! ```
//!
//! Names of any other form are never touched.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, flock, fstat, openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::key::DIGEST_BYTES;

/// The name of a file of the cache, without its ending.
pub(super) type Name = [u8; DIGEST_BYTES];

/// Rights that other users must not have: to write.
const OTHERS_WRITE: u32 = 0o022;
/// Bytes that a file takes on the disk are a multiple of it.
const DISK_BLOCK_BYTES: u64 = 4096;

/// The files that belong to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Index,
    New,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::New, Kind::Index, Kind::Data];

    fn ending(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Index => "index",
            Kind::New => "new",
        }
    }
}

/// All files of a name together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) name: Name,
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// The last use, in seconds and nanoseconds since 1970; not later than now.
    pub(super) used_at: (i64, i64),
}

/// The lock of a data file, until it is dropped.
///
/// It is given back by name, and not left to the closing of the file: a process that is forked off at that moment has the file
/// open as well, until it has become another program, and the lock would seem to be taken for as long.
#[derive(Debug)]
pub(super) struct Held {
    data: Arc<File>,
    /// What is forked off has a copy of this, and must not give back what its parent holds.
    process: u32,
}

impl Held {
    /// The file of the bytes.
    pub(super) fn data(&self) -> &Arc<File> {
        &self.data
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = flock(&*self.data, FlockOperation::Unlock);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory, and makes it and those above it where there are none.
    pub(super) fn open(path: &Path) -> Result<Directory> {
        // Without a slash at the end, behind which a link would be followed.
        let path: PathBuf = path.components().collect();
        let failed = |cause: io::Error| {
            Error::local_io(format_args!("cannot use {} as a cache", path.display()), &cause)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(CWD, &path, flags, Mode::empty()).map_err(|cause| failed(cause.into()))?;
        let stat = fstat(&descriptor).map_err(|cause| failed(cause.into()))?;
        let why = if stat.st_uid != rustix::process::geteuid().as_raw() {
            "it belongs to another user"
        } else if stat.st_mode & OTHERS_WRITE != 0 {
            "other users may write to it"
        } else {
            return Ok(Directory { descriptor, path });
        };
        let refused =
            Error::new(ErrorKind::Denied, format!("cannot use {} as a cache: {why}", path.display()));
        Err(refused.fault(Fault::Local).hint("name a directory that only you can write to"))
    }

    /// Where it is, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Device and number of the directory.
    pub(super) fn number(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.descriptor)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Opens a file that is there, to write to it as well if it is to be locked. `None` if there is none, or something else than a
    /// file that only this user can write to: such a thing is removed.
    pub(super) fn find(&self, name: &Name, kind: Kind, is_written: bool) -> io::Result<Option<File>> {
        let access = if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        // A pipe is not waited for.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let text = text_of(name, kind);
        match openat(&self.descriptor, &text, flags, Mode::empty()) {
            Ok(file) if is_own_file(&fstat(&file)?) => Ok(Some(File::from(file))),
            // LOOP: a symbolic link. NXIO: a socket, or a pipe that nothing reads.
            Ok(_) | Err(Errno::LOOP | Errno::NXIO) => {
                self.remove(name, kind)?;
                Ok(None)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Makes a file; `None` if the name is taken.
    pub(super) fn make(&self, name: &Name, kind: Kind) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.descriptor, text_of(name, kind), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::EXIST) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Removes a file; that there is none is as good.
    pub(super) fn remove(&self, name: &Name, kind: Kind) -> io::Result<()> {
        match unlinkat(&self.descriptor, text_of(name, kind), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Removes all files of a name: the data last, which is what is locked.
    pub(super) fn remove_all(&self, name: &Name) -> io::Result<()> {
        Kind::ALL.into_iter().try_for_each(|kind| self.remove(name, kind))
    }

    /// Puts the new index in the place of the old one.
    pub(super) fn replace_index(&self, name: &Name) -> io::Result<()> {
        let (from, to) = (text_of(name, Kind::New), text_of(name, Kind::Index));
        Ok(renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    /// True if an open file still has its name.
    pub(super) fn is_named(&self, name: &Name, kind: Kind, file: &File) -> bool {
        let there = statat(&self.descriptor, text_of(name, kind), AtFlags::SYMLINK_NOFOLLOW);
        let same = |there: Stat| {
            fstat(file).is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino))
        };
        there.is_ok_and(same)
    }

    /// Notes that a file is used now.
    pub(super) fn note_use(&self, name: &Name) {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        };
        let text = text_of(name, Kind::Index);
        // Without it a file goes a little earlier than it might.
        let _ = utimensat(&self.descriptor, text, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Everything that is there. A use in the future is one of now, and noted as such: after the clock has jumped back, no file may
    /// be younger than all others for ever.
    pub(super) fn units(&self) -> io::Result<Vec<Unit>> {
        let now = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => {
                (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
            }
            Err(_) => (0, 0),
        };
        let mut units = std::collections::HashMap::<Name, Unit>::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let Some((name, kind)) = parse(entry.file_name().to_bytes()) else { continue };
            let stat = match statat(&self.descriptor, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Another process has removed it.
                Err(_) => continue,
            };
            let unit = units.entry(name).or_insert(Unit { name, bytes: 0, used_at: (0, 0) });
            unit.bytes = unit.bytes.saturating_add(on_disk(u64::try_from(stat.st_size).unwrap_or(0)));
            if kind == Kind::Index {
                unit.used_at = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0));
            }
        }
        for unit in units.values_mut().filter(|unit| unit.used_at > now) {
            unit.used_at = now;
            self.note_use(&unit.name);
        }
        Ok(units.into_values().collect())
    }
}

/// Bytes that a file of this length takes on the disk.
pub(super) fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(DISK_BLOCK_BYTES).saturating_mul(DISK_BLOCK_BYTES)
}

/// Tries to lock a file without waiting; `None` if another process has the lock, or another part of this one.
pub(super) fn try_lock(data: &Arc<File>) -> io::Result<Option<Held>> {
    match flock(&**data, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Held { data: Arc::clone(data), process: std::process::id() })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

/// True if a file has no name any more.
pub(super) fn is_removed(file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

fn is_own_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_nlink <= 1
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & OTHERS_WRITE == 0
}

fn text_of(name: &Name, kind: Kind) -> String {
    let mut text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('.');
    text.push_str(kind.ending());
    text
}

fn parse(text: &[u8]) -> Option<(Name, Kind)> {
    let (hex, ending) = text.split_at_checked(2 * DIGEST_BYTES)?;
    let kind =
        Kind::ALL.into_iter().find(|kind| ending.strip_prefix(b".") == Some(kind.ending().as_bytes()))?;
    let mut name = [0; DIGEST_BYTES];
    for (byte, digits) in name.iter_mut().zip(hex.chunks(2)) {
        *byte = 16 * digit(*digits.first()?)? + digit(*digits.last()?)?;
    }
    Some((name, kind))
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_a_copy_of_the_descriptor_lives_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Arc::new(file.reopen().unwrap());
        let data = open();
        let held = try_lock(&data).unwrap();
        assert!(held.is_some() && try_lock(&open()).unwrap().is_none());
        // As a process has it that was forked off and is not yet another program.
        let copy = data.try_clone().unwrap();
        drop((held, data));
        assert!(try_lock(&open()).unwrap().is_some());
        drop(copy);
        // One that a forked process drops is none that it has.
        let (data, parent) = (open(), std::process::id().wrapping_add(1));
        let held = try_lock(&data).unwrap();
        drop(Held { data: Arc::clone(&data), process: parent });
        assert!(try_lock(&open()).unwrap().is_none());
        drop(held);
    }

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        let name: Name = std::array::from_fn(|at| at as u8 * 7);
        for kind in Kind::ALL {
            let text = text_of(&name, kind);
            assert_eq!(parse(text.as_bytes()), Some((name, kind)));
            let wrong = [text.to_uppercase(), format!("{text}x"), text[1..].into(), text.replace('.', "")];
            assert!(wrong.iter().all(|text| parse(text.as_bytes()).is_none()));
        }
        assert_eq!(parse(b"notes.txt"), None);
    }
}
