//! Files that are changed in place, and those that are seen when they are closed; permissions.
//!
//! What a crash leaves of a file that is changed in place, in the order of the steps:
//!
//! 1. What was kept of it is forgotten, and that is on the device (durability `file` and `dir`) before the first
//!    byte changes: no checksum is ever one of other bytes. `posix/changes.rs` says how that holds for all readers
//!    meanwhile.
//! 2. Bytes are written. A crash leaves some of them; that is what was asked for.
//! 3. `close` moves the modification time on to a moment that no reader has seen, so that the tag is
//!    another one even if all happened within one tick of the kernel's clock; syncs the bytes; *then* keeps
//!    the checksums.
//!
//! Those that are seen when they are closed are partials, as uploads (`posix/partial.rs`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use gridlane_core::Checksum;
use gridlane_sys::file::CacheProbe;
use rustix::fs::{AtFlags, Mode, OFlags, chmod, fchmod, fsync, ftruncate, openat, unlinkat};
use rustix::io::{Errno, pwritev};

use super::changes::Changer;
use super::metadata::{identity_of, look_at, metadata_of, modified_of};
use super::options::PERMISSIONS;
use super::partial::{FILE_PERMISSIONS, PosixPartial, growing, require_room};
use super::{Durability, READING, Shared, checksums, hidden, times};
use gridlane_share::Turns;

use crate::blocking::BlockingFile;
use crate::error::{StoreError, StoreResult};
use crate::partial::Writeback;
use crate::path::ObjectPath;
use crate::storage::{Committed, Completion, Expectation, Metadata, NodeKind};
use crate::writable::{
    Disposition, Visibility, Whole, WriteOptions, check_length, end_of, existing_or_new, len_of,
};

/// The flags for opening a file to change it; the others are those for reading.
const WRITING: OFlags = OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Permissions that the owner of a file has whatever a client wants: the storage itself needs them.
const OWN_PERMISSIONS: u32 = 0o600;

/// Bits beyond the permissions: to run as the owner or group, and to keep others' files.
const SPECIAL: u32 = 0o7000;

/// Within this time a change may get the same modification time as another: Linux' slowest clock has ticks of 10 ms.
const TICK: Duration = Duration::from_millis(20);

/// A file that is open for being changed.
pub struct PosixWritable {
    shared: Arc<Shared>,
    probe: CacheProbe,
    target: Target,
    /// Held while the file is being changed, so that no change comes after it is closed.
    is_closed: RwLock<bool>,
}

enum Target {
    InPlace(InPlace),
    /// With what has to be there when it is closed.
    Partial(PosixPartial, Expectation),
}

struct InPlace {
    file: File,
    changer: Mutex<Changer>,
    /// True when the changer has begun.
    has_begun: AtomicBool,
    /// Where it was made, if it was.
    made_in: Option<OwnedFd>,
    writeback: Writeback,
}

impl PosixWritable {
    pub(super) fn open(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        options: &WriteOptions,
    ) -> StoreResult<PosixWritable> {
        let permissions =
            options.mode.map_or(FILE_PERMISSIONS, |mode| (mode & PERMISSIONS) | OWN_PERMISSIONS);
        let target = match (options.visibility, options.disposition) {
            (Visibility::WhenClosed, disposition) => {
                let expectation = match disposition {
                    Disposition::New => require_nothing(shared, path).map(|()| Expectation::Absent)?,
                    _ => Expectation::Anything,
                };
                let partial = PosixPartial::begin(shared, path, permissions, options.expected_bytes)?;
                // It may be open for long without a write.
                hidden::hold(partial.file());
                Target::Partial(partial, expectation)
            }
            (Visibility::AtOnce, Disposition::Replace) => existing_or_new(|disposition| {
                Target::in_place(shared, path, disposition, permissions, options.expected_bytes)
            })?,
            (Visibility::AtOnce, disposition) => {
                Target::in_place(shared, path, disposition, permissions, options.expected_bytes)?
            }
        };
        let stat = look_at(target.file())?;
        let device = identity_of(&stat).device;
        let opened = PosixWritable {
            shared: Arc::clone(shared),
            probe: shared.probe(device, target.file()),
            target,
            is_closed: RwLock::new(false),
        };
        let replaces = matches!(&opened.target, Target::InPlace(InPlace { made_in: None, .. }))
            && options.disposition == Disposition::Replace;
        if replaces {
            opened.truncate(0)?;
        }
        Ok(opened)
    }

    /// To be held while the file is changed.
    fn changing(&self) -> StoreResult<RwLockReadGuard<'_, bool>> {
        let is_closed = self.is_closed.read().unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return Err(StoreError::Closed);
        }
        if let Target::InPlace(in_place) = &self.target {
            in_place.begin(&self.shared)?;
        }
        Ok(is_closed)
    }

    fn wrote(&self, offset: u64, len: u64) {
        match &self.target {
            Target::InPlace(InPlace { file, writeback, .. }) => writeback.wrote(file, offset, len),
            Target::Partial(partial, _) => partial.wrote(offset, len),
        }
    }
}

/// For a file that is to be made: fails if there is something.
fn require_nothing(shared: &Shared, path: &ObjectPath) -> StoreResult<()> {
    let (parent_path, name) = path.split_last().ok_or(StoreError::NotAFile)?;
    let parent = shared.resolve_parent(&parent_path)?;
    match super::look_in(&parent, OsStr::from_bytes(name)) {
        Ok(_) => Err(taken(shared, path)),
        Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

/// The error of a file that is to be made where something is already.
fn taken(shared: &Shared, path: &ObjectPath) -> StoreError {
    match shared.look(path) {
        Ok(found) if found.is_directory() => StoreError::NotAFile,
        _ => StoreError::Unexpected,
    }
}

impl Target {
    fn file(&self) -> &File {
        match self {
            Target::InPlace(InPlace { file, .. }) => file,
            Target::Partial(partial, _) => partial.file(),
        }
    }

    /// Opens or makes a file that is visible.
    fn in_place(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        disposition: Disposition,
        permissions: u32,
        expected_bytes: Option<u64>,
    ) -> StoreResult<Target> {
        let in_place = if disposition == Disposition::Existing {
            InPlace::open(shared, path, expected_bytes)?
        } else {
            InPlace::make(shared, path, permissions, expected_bytes)?
        };
        Ok(Target::InPlace(in_place))
    }
}

impl InPlace {
    fn open(shared: &Arc<Shared>, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<InPlace> {
        let (descriptor, metadata) = shared.open_served(path, WRITING)?;
        if metadata.kind != NodeKind::File {
            return Err(StoreError::NotAFile);
        }
        let growth = expected_bytes.map(|expected| expected.saturating_sub(metadata.size_bytes));
        require_room(&descriptor, growth.filter(|growth| *growth > 0))?;
        Ok(InPlace {
            file: File::from(descriptor),
            changer: Mutex::new(Changer::new(metadata.identity)),
            has_begun: AtomicBool::new(false),
            made_in: None,
            writeback: growing(shared),
        })
    }

    fn make(
        shared: &Arc<Shared>,
        path: &ObjectPath,
        permissions: u32,
        expected_bytes: Option<u64>,
    ) -> StoreResult<InPlace> {
        let (parent_path, name) = path.split_last().ok_or(StoreError::NotAFile)?;
        let parent = shared.resolve_parent(&parent_path)?;
        let name = OsStr::from_bytes(name);
        require_room(&parent, expected_bytes)?;
        // At no moment open to others than it will be. A name that is taken is not opened, whatever has it.
        let mode = Mode::from_raw_mode(shared.options.permissions(permissions));
        let flags = WRITING | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let descriptor = openat(&parent, name, flags, mode).map_err(|cause| match cause {
            Errno::EXIST => taken(shared, path),
            // The parent was removed since.
            Errno::NOENT => StoreError::ParentMissing,
            other => other.into(),
        })?;
        let prepared = shared.options.apply(&descriptor, permissions).and_then(|()| {
            let mut changer = Changer::new(identity_of(&look_at(&descriptor)?));
            // It is new, and no checksum of it was kept. From now on none is.
            changer.begin(|| Ok(()))?;
            Ok(changer)
        });
        let changer = prepared.inspect_err(|_| {
            // A file of the wrong owner is worse than none.
            let _ = unlinkat(&parent, name, AtFlags::empty());
        })?;
        Ok(InPlace {
            file: File::from(descriptor),
            changer: Mutex::new(changer),
            has_begun: AtomicBool::new(true),
            made_in: Some(parent),
            writeback: growing(shared),
        })
    }

    /// Forgets what was kept of it, once, before the first change.
    fn begin(&self, shared: &Shared) -> StoreResult<()> {
        if self.has_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut changer = self.lock_changer();
        if !self.has_begun.load(Ordering::Acquire) {
            let forgotten = changer.begin(|| checksums::forget(shared, &self.file))?;
            if let Err(error) = forgotten.sync(shared, &self.file) {
                changer.end(|| ());
                return Err(error);
            }
            self.has_begun.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Moves the modification time on if another change may have had the same. As far as this process may do it:
    /// the file can belong to another user.
    fn move_time_on(&self) {
        let now = SystemTime::now();
        let is_recent = look_at(&self.file).is_ok_and(|stat| {
            // A clock that was set back counts as well.
            now.duration_since(modified_of(&stat)).map_or(true, |age| age < TICK)
        });
        if is_recent {
            let _ = times::set_modified(&self.file, now);
        }
    }

    /// After the last change.
    fn finish(&self, shared: &Shared, checksums: &[Checksum]) -> StoreResult<()> {
        if self.has_begun.load(Ordering::Acquire) {
            self.move_time_on();
            if shared.options.durability != Durability::None {
                fsync(&self.file)?;
            }
        }
        if let Some(made_in) = &self.made_in {
            shared.options.sync_names(made_in)?;
        }
        self.lock_changer().end(|| {
            // After the bytes are on the device: with them before, a power failure might leave them to others.
            if let Some(beside) = checksums::keep_in_attributes(shared, &self.file, checksums.to_vec())
                && let Ok(stat) = look_at(&self.file)
            {
                checksums::keep_beside(shared, &beside, &stat);
            }
        });
        Ok(())
    }

    fn lock_changer(&self) -> MutexGuard<'_, Changer> {
        self.changer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        let changer = self.changer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if changer.is_changing() {
            self.move_time_on();
        }
    }
}

impl BlockingFile for PosixWritable {
    fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    fn metadata(&self) -> StoreResult<Metadata> {
        metadata_of(&look_at(self.target.file())?).ok_or(StoreError::NotAFile)
    }

    fn as_file(&self) -> Option<&File> {
        Some(self.target.file())
    }

    fn has_name(&self) -> bool {
        match &self.target {
            Target::InPlace(in_place) => look_at(&in_place.file).is_ok_and(|stat| stat.stx_nlink > 0),
            Target::Partial(partial, _) => partial.is_visible(),
        }
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.probe.read_at(self.target.file(), target, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.target.file().read_at(target, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        end_of(offset, bytes.len())?;
        let _changing = self.changing()?;
        self.target.file().write_all_at(bytes, offset)?;
        self.wrote(offset, bytes.len() as u64);
        Ok(())
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> StoreResult<()> {
        let len = len_of(parts);
        end_of(offset, len)?;
        let _changing = self.changing()?;
        write_all_vectored_at(self.target.file(), parts, offset)?;
        self.wrote(offset, len as u64);
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        check_length(size_bytes)?;
        let _changing = self.changing()?;
        Ok(ftruncate(self.target.file(), size_bytes)?)
    }

    fn sync(&self) -> StoreResult<()> {
        if self.shared.options.durability == Durability::None {
            return Ok(());
        }
        fsync(self.target.file())?;
        match &self.target {
            Target::InPlace(InPlace { made_in: Some(made_in), .. }) => {
                self.shared.options.sync_names(made_in)
            }
            _ => Ok(()),
        }
    }

    fn close(&self, whole: Option<&Whole>) -> StoreResult<Committed> {
        let mut is_closed = self.is_closed.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_closed, true) {
            return Err(StoreError::Closed);
        }
        let checksums = match whole {
            Some(_) => Whole::checksums_of(whole, self.metadata()?.size_bytes),
            None => &[],
        };
        match &self.target {
            Target::InPlace(in_place) => {
                in_place.finish(&self.shared, checksums)?;
                Ok(Committed { metadata: self.metadata()?, replaced: false, replaced_bytes: 0 })
            }
            Target::Partial(partial, expectation) => {
                let completion = Completion { checksums: checksums.to_vec(), ..expectation.clone().into() };
                partial.publish(&completion).inspect_err(|_| partial.discard())
            }
        }
    }
}

/// Writes all parts, as many in one call as the kernel takes.
fn write_all_vectored_at(file: &File, mut parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    loop {
        // Where there is nothing, the kernel would say so, and that would look as if it could not go on.
        while let [first, rest @ ..] = parts
            && first.is_empty()
        {
            parts = rest;
        }
        let [first, ..] = parts else { return Ok(()) };
        // No more than it takes: the rest comes in the next round.
        let mut written = match pwritev(file, parts, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            // A file system that writes no vectors.
            Err(Errno::OPNOTSUPP) => file.write_all_at(first, offset).map(|()| first.len())?,
            Err(cause) => return Err(cause.into()),
        };
        while let [first, rest @ ..] = parts
            && written > 0
        {
            if written < first.len() {
                file.write_all_at(&first[written..], offset + written as u64)?;
                written = first.len();
            }
            offset += first.len() as u64;
            written -= first.len();
            parts = rest;
        }
    }
}

pub(super) fn set_mode(shared: &Shared, path: &ObjectPath, mode: u32) -> StoreResult<()> {
    if path.is_root() {
        return Err(StoreError::InUse);
    }
    let permissions = |metadata: &Metadata| {
        let kept = if metadata.is_directory() { metadata.mode & SPECIAL } else { 0 };
        Mode::from_raw_mode((mode & PERMISSIONS) | kept)
    };
    match shared.open_served(path, READING) {
        Ok((found, metadata)) => Ok(fchmod(&found, permissions(&metadata))?),
        // Its owner may change a file that no user may read. The system call for it came with Linux 6.6; procfs is
        // older.
        Err(StoreError::Denied) => {
            let (found, metadata) = shared.open_served(path, OFlags::PATH | OFlags::CLOEXEC)?;
            let link = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
            Ok(chmod(link, permissions(&metadata))?)
        }
        Err(other) => Err(other),
    }
}
