//! A directory of the local file system as an export.
//!
//! Nothing outside of the directory can be reached: every path is resolved by the kernel with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)` from the directory's own descriptor, so that `..`,
//! absolute links and links that leave it fail in the kernel, in every component, without a race. Links
//! that stay inside work, but for those that lead into a hidden directory. Without the system call (Linux before
//! 5.6, some sandboxes) the export is refused.
//!
//! Only regular files and directories are served. Opening never blocks (`O_NONBLOCK`: a FIFO would wait
//! for its other end) and never makes a terminal the controlling one (`O_NOCTTY`).
//!
//! How uploads become visible is told in `posix/upload.rs`, how copies go on in `posix/target.rs`, how files are changed in place in
//! `posix/writable.rs`, how directories are removed and moved in `posix/names.rs`, and where checksums are kept
//! in `posix/checksums.rs`.

mod attributes;
mod changes;
mod checksums;
mod devices;
mod entries;
mod hidden;
mod metadata;
mod names;
mod options;
mod partial;
mod side_file;
mod target;
mod times;
mod tree;
mod upload;
mod writable;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::Turns;
use gridlane_sys::file::CacheProbe;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, SeekFrom, fstatvfs, openat2};
use rustix::io::Errno;

use crate::blocking::{BlockingObject, BlockingStorage, Read};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{DirectoryEntry, Expectation, Metadata, NodeKind, Opened, Overwrite, Space};
use crate::target::{Found, Target, TargetOptions};
use crate::writable::WriteOptions;
use metadata::{Stamp, kind_of, look_at, look_in, metadata_of};

pub use devices::{forget_devices, names_of, share_devices, turns_of_names};
pub use options::{Durability, PosixOptions};
pub(crate) use times::set_modified;

/// The turns at the device that an open file is on.
pub fn turns_of(file: impl AsFd) -> Arc<Turns> {
    look_at(file)
        .map_or_else(|_| Arc::default(), |stat| devices::turns_at(metadata::identity_of(&stat).device))
}

/// The metadata of what is open; `None` where that is neither a file nor a directory.
pub(crate) fn described(file: &File) -> Option<Metadata> {
    look_at(file).ok().and_then(|stat| metadata_of(&stat))
}

/// The metadata of what is called `name` in a directory that is open; `None` for a link, and where there is nothing.
pub(crate) fn described_at(directory: impl AsFd, name: &OsStr) -> Option<Metadata> {
    look_in(directory, name).ok().and_then(|stat| metadata_of(&stat))
}

/// Times that a lookup is tried again that lost a race against a rename in one of its directories.
const RESOLVE_TRIES_MAX: usize = 16;

/// File systems in one export whose kind is remembered.
const PROBES_MAX: usize = 16;

/// Lookups never leave the directory, by whatever kind of link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The flags for opening a file or a directory to read: `NONBLOCK` since the other end of a pipe may never come.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory as an export.
pub struct PosixStorage {
    shared: Arc<Shared>,
}

/// The part of the storage that running uploads need as well.
struct Shared {
    root: OwnedFd,
    /// For messages.
    root_path: PathBuf,
    options: PosixOptions,
    /// Held from checking what is at a path to changing it, so that an [`Expectation`] means something.
    change: Mutex<()>,
    /// Held while the journal of a target is locked, and while it is looked at whether one is: so a look locks none out.
    probes_of_locks: Mutex<()>,
    /// The ways to ask for cached bytes, by device: there is one for each file system mounted in the export.
    probes: RwLock<Vec<(u64, CacheProbe)>>,
    /// Those at the device of the root. What is mounted below it has the same.
    turns: Arc<Turns>,
    /// The device of the root, if to look again at names there never waits.
    quick_device: Option<u64>,
}

impl PosixStorage {
    /// Exports `directory`; what is made in it belongs to this process's user and has what the umask leaves.
    pub fn open(directory: &Path, durability: Durability) -> gridlane_core::Result<PosixStorage> {
        PosixStorage::open_with(directory, PosixOptions { durability, ..PosixOptions::default() })
    }

    /// Exports `directory`.
    pub fn open_with(directory: &Path, options: PosixOptions) -> gridlane_core::Result<PosixStorage> {
        let fail = |cause: io::Error| {
            gridlane_core::Error::local_io(format!("cannot export {}", directory.display()), &cause)
        };
        let root =
            rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|cause| fail(cause.into()))?;
        let is_quick = gridlane_sys::file::has_local_names(&root);
        let device = look_at(&root).map(|stat| metadata::identity_of(&stat).device).ok();
        let shared = Shared {
            turns: device.map_or_else(Arc::default, devices::turns_at),
            quick_device: device.filter(|_| is_quick),
            root,
            root_path: directory.to_owned(),
            options,
            change: Mutex::new(()),
            probes_of_locks: Mutex::new(()),
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

    /// The same with other turns than those of its device, which it shares with every other export there.
    #[must_use]
    pub fn with_turns(mut self, turns: Arc<Turns>) -> PosixStorage {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.turns = turns;
        }
        self
    }

    /// The exported directory, as it was named.
    pub fn directory(&self) -> &Path {
        &self.shared.root_path
    }
}

impl Shared {
    /// Opens what is at `relative` below the root.
    fn resolve(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.resolve_with(relative, flags, BENEATH | ResolveFlags::NO_SYMLINKS) {
            // No path leads into a hidden directory, but a link that a user made may.
            Err(Errno::LOOP) => self.resolve_with(relative, flags, BENEATH).and_then(|found| {
                if hidden::holds(&self.root, &found)? { Err(Errno::NOENT) } else { Ok(found) }
            }),
            other => other,
        }
    }

    fn resolve_with(&self, relative: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let mut tries = RESOLVE_TRIES_MAX;
        loop {
            match openat2(&self.root, relative, flags | OFlags::CLOEXEC, Mode::empty(), how) {
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

    /// The entries of the directory at `path`.
    fn read_directory(self: &Arc<Shared>, path: &ObjectPath) -> StoreResult<entries::PosixEntries> {
        let directory = match self.resolve(path.as_relative(), OFlags::DIRECTORY | OFlags::RDONLY) {
            Ok(directory) => directory,
            // The path goes through a file, or ends at one.
            Err(Errno::NOTDIR) => {
                self.look(path)?;
                return Err(StoreError::NotADirectory);
            }
            Err(cause) => return Err(lookup_error(cause)),
        };
        entries::PosixEntries::new(self, path, directory)
    }

    /// The directory that something is to be made in.
    fn resolve_parent(&self, path: &ObjectPath) -> StoreResult<OwnedFd> {
        self.resolve_directory(path).map_err(|error| match error {
            StoreError::NotFound | StoreError::NotADirectory => StoreError::ParentMissing,
            other => other,
        })
    }

    /// Opens what is at `path`, if the kernel knows the way to it; `None` when it would have to look.
    fn resolve_nowait(&self, path: &Path, flags: OFlags) -> StoreResult<Option<OwnedFd>> {
        // Linux 5.12: a lookup within the kernel's cache of names, or EAGAIN. Before that, EINVAL.
        let cached = BENEATH | ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.root, path, flags, Mode::empty(), cached) {
            Ok(descriptor) => Ok(Some(descriptor)),
            // A link takes a closer look.
            Err(Errno::AGAIN | Errno::INVAL | Errno::LOOP) => Ok(None),
            Err(cause) => Err(lookup_error(cause)),
        }
    }

    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        let descriptor = self.resolve(path.as_relative(), OFlags::PATH).map_err(lookup_error)?;
        metadata_of(&look_at(&descriptor)?).ok_or(StoreError::NotFound)
    }

    /// Checks that the file at `path` has the tag that is expected, if one is. The caller holds `change`; that an
    /// expected absence is still true is the rename's business.
    fn check(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        let Expectation::Tag(expected) = expectation else { return Ok(()) };
        let is_as_expected = match self.look(path) {
            Ok(current) => current.tag == *expected,
            Err(StoreError::NotFound) => false,
            Err(other) => return Err(other),
        };
        if is_as_expected { Ok(()) } else { Err(StoreError::Unexpected) }
    }

    /// Opens what is at `path`, if it is a file or directory. Everything else is left alone: to open a device or a
    /// pipe may do something by itself.
    fn open_served(&self, path: &ObjectPath, flags: OFlags) -> StoreResult<(OwnedFd, Metadata)> {
        self.look(path)?;
        let descriptor = self.resolve(path.as_relative(), flags).map_err(lookup_error)?;
        let metadata = metadata_of(&look_at(&descriptor)?).ok_or(StoreError::NotFound)?;
        Ok((descriptor, metadata))
    }

    /// The file or directory behind a descriptor that was opened for reading.
    fn opened(self: &Arc<Self>, descriptor: OwnedFd) -> StoreResult<Opened<PosixObject>> {
        let stat = look_at(&descriptor)?;
        let epoch = changes::epoch(metadata::identity_of(&stat));
        let metadata = metadata_of(&stat).ok_or(StoreError::NotFound)?;
        Ok(match metadata.kind {
            NodeKind::Directory => Opened::Directory,
            NodeKind::File => Opened::File(Arc::new(PosixObject {
                probe: self.probe(metadata.identity.device, &descriptor),
                metadata,
                stamp: Stamp::of(&stat),
                is_settled: AtomicBool::new(false),
                epoch,
                file: File::from(descriptor),
                shared: Arc::clone(self),
            })),
        })
    }

    /// The way to ask for cached bytes on `device`, which `descriptor` is on.
    fn probe(&self, device: u64, descriptor: impl AsFd) -> CacheProbe {
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

    fn lock_probes(&self) -> std::sync::MutexGuard<'_, ()> {
        self.probes_of_locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_changes(&self) -> std::sync::MutexGuard<'_, ()> {
        // The lock guards the order of system calls and no memory: a panic elsewhere breaks nothing.
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The meaning of a failed lookup for a client: outside, through a link that leaves, or through something that is no
/// directory, there is nothing.
fn lookup_error(cause: Errno) -> StoreError {
    match cause {
        Errno::XDEV | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => StoreError::NotFound,
        other => other.into(),
    }
}

impl BlockingStorage for PosixStorage {
    type Object = PosixObject;
    type Upload = upload::PosixUpload;
    type File = writable::PosixWritable;

    fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<PosixObject>> {
        self.shared.opened(self.shared.resolve(path.as_relative(), READING).map_err(lookup_error)?)
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened<PosixObject>>> {
        match self.shared.resolve_nowait(path.as_relative(), READING)? {
            Some(descriptor) => self.shared.opened(descriptor).map(Some),
            None => Ok(None),
        }
    }

    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        match self.shared.resolve_nowait(path.as_relative(), OFlags::PATH)? {
            Some(descriptor) => metadata_of(&look_at(&descriptor)?).ok_or(StoreError::NotFound).map(Some),
            None => Ok(None),
        }
    }

    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.shared.look(path)
    }

    fn is_link(&self, path: &ObjectPath) -> StoreResult<bool> {
        let Some((parent, name)) = path.split_last() else { return Ok(false) };
        let stat = look_in(self.shared.resolve_directory(&parent)?, OsStr::from_bytes(name))?;
        Ok(kind_of(&stat) == FileType::Symlink)
    }

    fn is_in_place(&self) -> bool {
        // One that was removed is none, although another one may have its number by now.
        let Ok(served) = rustix::fs::fstat(&self.shared.root) else { return false };
        let there = rustix::fs::stat(self.shared.root_path.as_path());
        served.st_nlink > 0
            && there.is_ok_and(|there| (there.st_dev, there.st_ino) == (served.st_dev, served.st_ino))
    }

    fn entries(&self, path: &ObjectPath) -> StoreResult<Read<DirectoryEntry>> {
        Ok(Box::new(self.shared.read_directory(path)?))
    }

    fn names(&self, path: &ObjectPath) -> StoreResult<Read<Vec<u8>>> {
        Ok(Box::new(self.shared.read_directory(path)?.names()))
    }

    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        names::make_directory(&self.shared, path)
    }

    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        names::remove(&self.shared, path, expectation)
    }

    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        names::remove_directory(&self.shared, path)
    }

    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        names::remove_tree(&self.shared, path)
    }

    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: Overwrite,
        expectation: &Expectation,
    ) -> StoreResult<bool> {
        names::rename(&self.shared, from, to, overwrite, expectation)
    }

    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        let (opened, metadata) = self.shared.open_served(path, READING)?;
        if !metadata.is_directory() {
            // Before the time is what it may have been when they were kept.
            checksums::forget(&self.shared, &opened)?;
        }
        times::set_modified(opened, modified)
    }

    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        let space = fstatvfs(self.shared.resolve(path.as_relative(), OFlags::PATH).map_err(lookup_error)?)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Space {
            total_bytes: bytes(space.f_blocks),
            used_bytes: bytes(space.f_blocks.saturating_sub(space.f_bfree)),
            available_bytes: bytes(space.f_bavail),
        })
    }

    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<upload::PosixUpload> {
        upload::PosixUpload::begin(&self.shared, path, expected_bytes)
    }

    fn has_targets(&self) -> bool {
        true
    }

    fn open_target(
        &self,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(Arc<dyn Target>, Found)> {
        if let (true, Some((parent, _))) = (options.parents, path.split_last()) {
            self.make_directories(&parent)?;
        }
        let (target, found) = target::PosixTarget::open(&self.shared, path, options)?;
        Ok((Arc::new(target), found))
    }

    fn unfinished_bytes(&self, directory: &ObjectPath) -> StoreResult<u64> {
        let opened = self.shared.resolve(directory.as_relative(), OFlags::DIRECTORY | OFlags::PATH);
        let opened = opened.map_err(lookup_error)?;
        let at = self.shared.root_path.join(directory.as_relative());
        hidden::unfinished_bytes(&self.shared, opened.as_fd(), &at)
    }

    fn open_writable(
        &self,
        path: &ObjectPath,
        options: &WriteOptions,
    ) -> StoreResult<writable::PosixWritable> {
        options.check()?;
        if let (true, Some((parent, _))) = (options.makes_parents(), path.split_last()) {
            self.make_directories(&parent)?;
        }
        writable::PosixWritable::open(&self.shared, path, options)
    }

    fn set_mode(&self, path: &ObjectPath, mode: u32) -> StoreResult<()> {
        writable::set_mode(&self.shared, path, mode)
    }

    fn attribute_names(&self, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
        attributes::names(&self.shared, path)
    }

    fn attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        attributes::get(&self.shared, path, name)
    }

    fn set_attribute(
        &self,
        path: &ObjectPath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StoreResult<()> {
        attributes::set(&self.shared, path, name, value, must_be_new)
    }

    fn remove_attribute(&self, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
        attributes::remove(&self.shared, path, name)
    }

    fn remove_abandoned(&self, age: Duration) -> StoreResult<usize> {
        let ages = hidden::Ages { partials: age, trees: Duration::ZERO };
        hidden::remove_abandoned(&self.shared, self.shared.root.as_fd(), &self.shared.root_path, ages)
    }
}

/// A file of the directory, open for reading.
pub struct PosixObject {
    file: File,
    probe: CacheProbe,
    metadata: Metadata,
    /// Of `metadata`.
    stamp: Stamp,
    /// True if every change that began before it was opened is over.
    is_settled: AtomicBool,
    /// Of in-place [changes] when it was opened.
    epoch: u64,
    shared: Arc<Shared>,
}

impl BlockingObject for PosixObject {
    fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.probe.read_at(&self.file, target, offset)
    }

    fn read_vectored_at_nowait(
        &self,
        targets: &mut [io::IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        self.probe.read_vectored_at(&self.file, targets, offset)
    }

    fn never_waits(&self) -> bool {
        self.probe == CacheProbe::Memory
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn is_unchanged(&self) -> bool {
        self.stamp.has_bytes_of(&self.file)
    }

    fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        if self.is_settled.load(Ordering::Relaxed) {
            return None;
        }
        // A time in the future was set explicitly: a write would have set the present one.
        let age = now.duration_since(self.metadata.modified).ok()?;
        (age < limits::FILE_AT_REST_MIN).then(|| metadata::tick().saturating_sub(age))
    }

    /// A write sets the time first and changes the bytes then, for as long as it takes: a look and a read meanwhile
    /// give a mixture that no later look reveals. The kernel holds the inode's lock all that time, and asking where
    /// data are takes it as well (ext4, tmpfs, Btrfs, F2FS; on XFS reads wait for writes by themselves).
    fn settle(&self) -> bool {
        let _ = rustix::fs::seek(&self.file, SeekFrom::Data(0));
        let is_unchanged = self.is_unchanged();
        if is_unchanged {
            self.is_settled.store(true, Ordering::Relaxed);
        }
        is_unchanged
    }

    fn can_be_found_again(&self) -> bool {
        self.shared.quick_device == Some(self.metadata.identity.device)
    }

    fn is_still_at(&self, path: &ObjectPath) -> bool {
        // That the lookup stays beneath the root need not be asked: the file that is open was there.
        let device = self.metadata.identity.device;
        self.can_be_found_again() && self.stamp.is_at(&self.shared.root, path.as_relative(), device)
    }

    fn kept_checksum(&self, kind: ChecksumKind) -> Option<Checksum> {
        checksums::kept(&self.shared, &self.file, &self.metadata, kind)
    }

    fn keep_checksum(&self, checksum: &Checksum) -> StoreResult<()> {
        // What stays has to be right for longer than an answer: bytes that were changed and got their old time back are
        // seen by nothing else than this.
        if !self.stamp.is_of(&self.file) {
            return Ok(());
        }
        checksums::keep(&self.shared, &self.file, &self.metadata, self.epoch, checksum)
    }
}
