//! A directory of the local file system as an export.
//!
//! Nothing outside of the directory can be reached: every path is resolved by the kernel with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)` from the directory's own descriptor, so that `..`,
//! absolute links and links that leave it fail in the kernel, in every component, without a race. Links
//! that stay inside work. Without the system call (Linux before 5.6, some sandboxes) the export is
//! refused.
//!
//! Only regular files and directories are served. Opening never blocks (`O_NONBLOCK`: a FIFO would wait
//! for its other end) and never makes a terminal ours (`O_NOCTTY`).
//!
//! How uploads become visible is told in `posix/upload.rs`.

mod metadata;
mod upload;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gridlane_core::limits;
use gridlane_sys::file::CacheProbe;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat, unlinkat};
use rustix::io::Errno;

use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{DirectoryEntry, Expectation, Listing, Metadata, Object, Opened, Storage, Upload};
use metadata::{kind_of, metadata_of, modified_of};

pub use upload::Durability;

/// How often a lookup is tried again that lost a race against a rename in one of its directories.
const RESOLVE_TRIES_MAX: usize = 16;

/// File systems in one export whose kind is remembered.
const PROBES_MAX: usize = 16;

/// Lookups never leave the directory, by whatever kind of link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// What serves for opening a file or a directory: `NONBLOCK` since the other end of a pipe may never come.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory as an export.
pub struct PosixStorage {
    shared: Arc<Shared>,
}

/// What running uploads need as well.
struct Shared {
    root: OwnedFd,
    /// For messages.
    root_path: PathBuf,
    durability: Durability,
    /// Held from checking what is at a path to changing it, so that an [`Expectation`] means something.
    change: Mutex<()>,
    /// How to ask for cached bytes, by device: there is one for each file system mounted in the export.
    probes: RwLock<Vec<(u64, CacheProbe)>>,
}

impl PosixStorage {
    /// Exports `directory`.
    pub fn open(directory: &Path, durability: Durability) -> gridlane_core::Result<PosixStorage> {
        let fail = |cause: io::Error| {
            gridlane_core::Error::local_io(format!("cannot export {}", directory.display()), &cause)
        };
        let root =
            rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|cause| fail(cause.into()))?;
        let shared = Shared {
            root,
            root_path: directory.to_owned(),
            durability,
            change: Mutex::new(()),
            probes: RwLock::default(),
        };
        match shared.resolve(Path::new("."), OFlags::DIRECTORY | OFlags::RDONLY) {
            Ok(_) => Ok(PosixStorage { shared: Arc::new(shared) }),
            Err(cause @ (Errno::NOSYS | Errno::PERM)) => Err(fail(cause.into()).hint(
                "gridlane needs the system call openat2 (Linux 5.6 or later, allowed by the sandbox) to keep clients inside of the directory",
            )),
            Err(cause) => Err(fail(cause.into())),
        }
    }

    /// The exported directory, as it was named.
    pub fn directory(&self) -> &Path {
        &self.shared.root_path
    }
}

impl Shared {
    /// Opens what is at `relative` below the root.
    fn resolve(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut tries = RESOLVE_TRIES_MAX;
        loop {
            match openat2(&self.root, relative, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH) {
                // The kernel cannot tell whether a directory that was moved meanwhile is still beneath.
                Err(Errno::AGAIN) if tries > 0 => tries -= 1,
                other => return other,
            }
        }
    }

    /// The directory at `path`, for operations on its entries.
    fn resolve_directory(&self, path: &ObjectPath) -> StoreResult<OwnedFd> {
        self.resolve(path.as_relative(), OFlags::DIRECTORY | OFlags::PATH).map_err(lookup_error)
    }

    /// Whether the file at `path` has the tag that is expected, if one is. The caller holds `change`; that
    /// an expected absence is still true is the rename's business.
    fn check(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let Expectation::Tag(expected) = expectation else { return Ok(()) };
        let current = self.resolve(path.as_relative(), OFlags::PATH).map_err(lookup_error);
        let is_as_expected = match current {
            Ok(file) => metadata_of(&fstat(&file)?).tag == *expected,
            Err(StoreError::NotFound) => false,
            Err(other) => return Err(other),
        };
        if is_as_expected { Ok(()) } else { Err(StoreError::Unexpected) }
    }

    /// What a descriptor that was opened for reading is.
    fn opened(&self, descriptor: OwnedFd) -> StoreResult<Opened> {
        let stat = fstat(&descriptor)?;
        match kind_of(&stat) {
            FileType::Directory => Ok(Opened::Directory),
            FileType::RegularFile => Ok(Opened::File(Arc::new(PosixObject {
                metadata: metadata_of(&stat),
                probe: self.probe(stat.st_dev, &descriptor),
                file: File::from(descriptor),
            }))),
            _ => Err(StoreError::NotFound),
        }
    }

    /// How to ask for cached bytes on `device`, which `descriptor` is on.
    fn probe(&self, device: u64, descriptor: &OwnedFd) -> CacheProbe {
        let known = self.probes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, probe)) = known.iter().find(|(known, _)| *known == device) {
            return *probe;
        }
        drop(known);
        let probe = CacheProbe::of(descriptor);
        let mut known = self.probes.write().unwrap_or_else(PoisonError::into_inner);
        // File systems that come and go (automounters) must not make the list long.
        known.truncate(PROBES_MAX - 1);
        known.insert(0, (device, probe));
        probe
    }

    fn lock_changes(&self) -> std::sync::MutexGuard<'_, ()> {
        // The lock guards the order of system calls and no memory: a panic elsewhere breaks nothing.
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a failed lookup means to a client: outside, through a link that leaves, or through something
/// that is no directory, there is nothing.
fn lookup_error(cause: Errno) -> StoreError {
    match cause {
        Errno::XDEV | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => StoreError::NotFound,
        other => other.into(),
    }
}

impl Storage for PosixStorage {
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        self.shared.opened(self.shared.resolve(path.as_relative(), READING).map_err(lookup_error)?)
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        // Linux 5.12: a lookup within the kernel's cache of names, or EAGAIN. Before that, EINVAL.
        let cached = BENEATH | ResolveFlags::CACHED;
        match openat2(&self.shared.root, path.as_relative(), READING, Mode::empty(), cached) {
            Ok(descriptor) => self.shared.opened(descriptor).map(Some),
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            Err(cause) => Err(lookup_error(cause)),
        }
    }

    fn stat(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        let descriptor = self.shared.resolve(path.as_relative(), OFlags::PATH).map_err(lookup_error)?;
        let stat = fstat(&descriptor)?;
        match kind_of(&stat) {
            FileType::RegularFile => Ok(metadata_of(&stat)),
            FileType::Directory => Err(StoreError::NotAFile),
            _ => Err(StoreError::NotFound),
        }
    }

    fn list(&self, path: &ObjectPath) -> StoreResult<Listing> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let directory = self.shared.resolve(path.as_relative(), flags).map_err(|cause| match cause {
            Errno::NOTDIR => StoreError::NotADirectory,
            other => lookup_error(other),
        })?;
        let mut listing = Listing::default();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let Some(below) = path.join(name) else { continue };
            let Some(described) = self.describe(&directory, name, &below) else { continue };
            if listing.entries.len() == limits::LISTING_ENTRIES_MAX {
                listing.is_cut = true;
                break;
            }
            listing.entries.push(described);
        }
        Ok(listing)
    }

    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let (parent, name) = path.split_last().ok_or(StoreError::NotAFile)?;
        let parent = self.shared.resolve_directory(&parent)?;
        let name = OsStr::from_bytes(name);
        let _changing = self.shared.lock_changes();
        // Not followed: the link is removed, never what it points to.
        let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kind_of(&stat) {
            FileType::Directory => return Err(StoreError::NotAFile),
            FileType::RegularFile => {}
            // Whatever is not served is not there.
            _ => {
                self.stat(path)?;
            }
        }
        if *expectation == Expectation::Absent {
            return Err(StoreError::Unexpected);
        }
        self.shared.check(path, expectation)?;
        Ok(unlinkat(&parent, name, AtFlags::empty())?)
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>> {
        Ok(Box::new(upload::PosixUpload::begin(&self.shared, path, expected_bytes)?))
    }

    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        upload::remove_abandoned(self.shared.root.as_fd(), &self.shared.root_path, age)
    }
}

impl PosixStorage {
    /// What a listing says of `name`; `None` for what is not served.
    fn describe(&self, directory: &OwnedFd, name: &[u8], path: &ObjectPath) -> Option<DirectoryEntry> {
        let mut stat = statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if kind_of(&stat) == FileType::Symlink {
            stat = fstat(self.shared.resolve(path.as_relative(), OFlags::PATH).ok()?).ok()?;
        }
        let is_directory = match kind_of(&stat) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return None,
        };
        Some(DirectoryEntry {
            name: name.to_vec(),
            is_directory,
            size_bytes: if is_directory { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) },
            modified: modified_of(&stat),
        })
    }
}

struct PosixObject {
    file: File,
    probe: CacheProbe,
    metadata: Metadata,
}

impl Object for PosixObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.probe.read_at(&self.file, target, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn is_unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| metadata_of(&stat) == self.metadata)
    }
}
