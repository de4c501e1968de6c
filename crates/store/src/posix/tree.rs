//! Deletes trees of any depth and width in bounded memory and with few descriptors.
//!
//! No link is followed and no mount point crossed, by the kernel's own promise (`openat2`), so that
//! nothing outside of the tree is touched, whatever other programs do to it meanwhile.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, unlinkat};
use rustix::io::Errno;

use super::metadata::{identity_of, look_at};
use crate::error::{StoreError, StoreResult};
use crate::storage::FileIdentity;

/// Directories that are held open, the deepest ones. Those above are opened again from below.
const OPEN_MAX: usize = 32;

/// Times that a directory is read again that is not empty at its end: another program adds to it, or the file system
/// skips entries while others are removed.
const PASSES_MAX: usize = 64;

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// A directory that is being emptied.
struct Level {
    /// In the level above.
    name: CString,
    identity: FileIdentity,
    /// `None` while too many are open.
    directory: Option<Dir>,
    passes: usize,
}

/// The outcome of an attempt to remove a name without looking into it.
enum Attempt {
    Gone,
    /// It is a directory with something in it.
    Full,
}

impl Level {
    /// `None` when it is gone meanwhile.
    fn enter(parent: BorrowedFd<'_>, name: CString) -> StoreResult<Option<Level>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = match openat2(parent, name.as_c_str(), flags, Mode::empty(), INSIDE) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::XDEV) => return Err(StoreError::InUse),
            Err(cause) => return Err(cause.into()),
        };
        let identity = identity_of(&look_at(&descriptor)?);
        Ok(Some(Level { name, identity, directory: Some(Dir::new(descriptor)?), passes: 0 }))
    }

    /// Removes what can be removed at once; returns the first directory that has to be emptied before.
    fn sweep(&mut self) -> StoreResult<Option<CString>> {
        let Some(directory) = &mut self.directory else { return Ok(None) };
        while let Some(entry) = directory.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let is_directory = entry.file_type() == FileType::Directory;
            let attempt = remove_name(directory.fd()?, OsStr::from_bytes(name.to_bytes()), is_directory)?;
            if let Attempt::Full = attempt {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }
}

/// Deletes `name` in `base`, and all that is in it. What is gone already counts as deleted. After an error
/// a part of the tree may be left.
pub(super) fn delete(base: BorrowedFd<'_>, name: &OsStr) -> StoreResult<()> {
    if let Attempt::Gone = remove_name(base, name, false)? {
        return Ok(());
    }
    let name = CString::new(name.as_bytes()).map_err(|_| StoreError::NotFound)?;
    let mut levels: Vec<Level> = Level::enter(base, name)?.into_iter().collect();
    while let Some(level) = levels.last_mut() {
        if let Some(full) = level.sweep()? {
            let below = match &level.directory {
                Some(directory) => Level::enter(directory.fd()?, full)?,
                None => None,
            };
            levels.extend(below);
            if let Some(above) = levels.len().checked_sub(OPEN_MAX + 1) {
                levels[above].directory = None;
            }
            continue;
        }
        // It was empty a moment ago; now its name goes.
        let Some(mut level) = levels.pop() else { break };
        let gone = match (levels.last_mut(), &level.directory) {
            (Some(above), Some(directory)) => {
                if above.directory.is_none() {
                    above.directory = Some(Dir::new(reopen_above(directory, above.identity)?)?);
                }
                match &above.directory {
                    Some(above) => remove_name(above.fd()?, OsStr::from_bytes(level.name.to_bytes()), true)?,
                    None => Attempt::Gone,
                }
            }
            _ => remove_name(base, OsStr::from_bytes(level.name.to_bytes()), true)?,
        };
        if let Attempt::Full = gone {
            level.passes += 1;
            if level.passes == PASSES_MAX {
                return Err(StoreError::NotEmpty);
            }
            if let Some(directory) = &mut level.directory {
                directory.rewind();
            }
            levels.push(level);
        }
    }
    Ok(())
}

/// The directory that `directory` is in, if that still is the one that the walk came from.
fn reopen_above(directory: &Dir, expected: FileIdentity) -> StoreResult<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = openat(directory.fd()?, "..", flags, Mode::empty())?;
    if identity_of(&look_at(&above)?) == expected { Ok(above) } else { Err(StoreError::Unexpected) }
}

fn remove_name(directory: BorrowedFd<'_>, name: &OsStr, is_directory: bool) -> StoreResult<Attempt> {
    if !is_directory {
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Attempt::Gone),
            // The error of POSIX for a directory, and that of Linux.
            Err(Errno::PERM | Errno::ISDIR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Attempt::Gone),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Attempt::Full),
        // No directory, and yet it could not be removed as a file.
        Err(Errno::NOTDIR) => Err(StoreError::Denied),
        Err(cause) => Err(cause.into()),
    }
}

/// True if something is mounted at `name` in `directory`, or below it. A rename would take it along.
pub(super) fn holds_mounts(directory: &OwnedFd, name: &OsStr) -> bool {
    use std::os::fd::AsRawFd;
    // A thread may have mounts of its own.
    let link = format!("/proc/thread-self/fd/{}", directory.as_fd().as_raw_fd());
    // Without procfs the mount point itself is still refused, by the kernel.
    let (Ok(at), Ok(mounts)) = (std::fs::read_link(link), std::fs::read("/proc/thread-self/mountinfo"))
    else {
        return false;
    };
    let tree = at.join(name);
    mounts
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .any(|point| unescape(point).starts_with(&tree))
}

/// A path in `mountinfo`: space, tab, newline and backslash are `\` and three octal digits (proc(5)).
fn unescape(escaped: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                path.push(value);
                rest = &behind[3..];
            }
            _ => path.push(byte),
        }
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_paths_are_read() {
        assert_eq!(unescape(br"/a\040b\134c\"), PathBuf::from("/a b\\c\\"));
    }
}
