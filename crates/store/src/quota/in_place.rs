//! Files that are changed in place, and those that are seen when they are closed, under a quota.
//!
//! A file that is changed in place counts with the length that it has, however many have it open: they share what
//! is known of it ([`Counted`]). Before it grows, the growth is counted; when a write fails, and after a cut, its
//! length is looked at. One that has no name any more was counted off by whoever removed it: what it grows by then
//! is reserved until nobody has it open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use gridlane_core::Checksum;
use gridlane_share::Turns;

use super::{Account, Reservation};
use crate::error::StoreResult;
use crate::storage::{Committed, FileIdentity, Metadata};
use crate::writable::{WritableFile, check_length, end_of, len_of};

/// The files that are open for being changed in place.
#[derive(Default)]
pub(super) struct Files {
    open: Mutex<HashMap<FileIdentity, OpenFile>>,
}

struct OpenFile {
    counted: Arc<Counted>,
    /// Who have it open.
    handles: usize,
}

/// What all who have a file open know of it.
struct Counted {
    /// Held by everybody who may make it longer, and alone by who looks how long it is.
    growing: RwLock<()>,
    length: Mutex<Length>,
}

struct Length {
    /// With what it grows by at this moment.
    bytes: u64,
    /// What it grew by since it has no name.
    nameless: Reservation,
}

impl Files {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileIdentity, OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is changed in place.
pub(super) struct QuotaInPlace {
    inner: Arc<dyn WritableFile>,
    files: Arc<Files>,
    account: Arc<Account>,
    identity: FileIdentity,
    counted: Arc<Counted>,
    /// What it is expected to grow by.
    expected: Mutex<Reservation>,
}

impl QuotaInPlace {
    pub(super) fn open(
        files: &Arc<Files>,
        inner: Arc<dyn WritableFile>,
        expected: Reservation,
        expected_bytes: u64,
    ) -> StoreResult<QuotaInPlace> {
        let identity = inner.metadata()?.identity;
        let account = Arc::clone(&expected.account);
        let mut open = files.lock();
        let file = match open.entry(identity) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                // Whoever had it open before has counted all that it has now.
                let bytes = inner.metadata()?.size_bytes;
                let length = Mutex::new(Length { bytes, nameless: Reservation::new(&account, 0)? });
                let counted = Arc::new(Counted { growing: RwLock::default(), length });
                unknown.insert(OpenFile { counted, handles: 0 })
            }
        };
        file.handles += 1;
        let counted = Arc::clone(&file.counted);
        drop(open);
        let (files, expected) = (Arc::clone(files), Mutex::new(expected));
        let opened = QuotaInPlace { inner, files, account, identity, counted, expected };
        let growth = expected_bytes.saturating_sub(opened.lock_length().bytes);
        opened.lock_expected().grow_to(growth)?;
        Ok(opened)
    }

    /// Runs `write`, which may make the file end at `end`.
    fn grow(&self, end: u64, write: impl FnOnce() -> StoreResult<()>) -> StoreResult<()> {
        let growing = self.counted.growing.read().unwrap_or_else(PoisonError::into_inner);
        self.count_up_to(end)?;
        let written = write();
        drop(growing);
        if written.is_err() {
            self.look_at_length(|| Ok(()))?;
        }
        written
    }

    fn count_up_to(&self, end: u64) -> StoreResult<()> {
        let mut length = self.lock_length();
        let growth = end.saturating_sub(length.bytes);
        if growth == 0 {
            return Ok(());
        }
        if self.inner.has_name() {
            let mut expected = self.lock_expected();
            let reserved = expected.take(growth);
            self.account.grow(reserved, growth - reserved).inspect_err(|_| expected.bytes += reserved)?;
        } else {
            let nameless_bytes = length.nameless.bytes.saturating_add(growth);
            length.nameless.grow_to(nameless_bytes)?;
        }
        length.bytes = end;
        Ok(())
    }

    /// Runs `change` while nobody makes the file longer, and counts with the length that it has then.
    fn look_at_length(&self, change: impl FnOnce() -> StoreResult<()>) -> StoreResult<()> {
        let _alone = self.counted.growing.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.account.before();
        let changed = change();
        let now_bytes = self.inner.metadata()?.size_bytes;
        let mut length = self.lock_length();
        let lost_bytes = length.bytes.saturating_sub(now_bytes);
        // What a file without a name has lost was counted off, or is reserved: that ends with it.
        if lost_bytes > 0 && self.inner.has_name() {
            self.account.change(before, 0, lost_bytes);
            length.bytes = now_bytes;
        }
        changed
    }

    fn lock_length(&self) -> MutexGuard<'_, Length> {
        self.counted.length.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_expected(&self) -> MutexGuard<'_, Reservation> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QuotaInPlace {
    fn drop(&mut self) {
        let mut open = self.files.lock();
        if let Entry::Occupied(mut file) = open.entry(self.identity) {
            file.get_mut().handles -= 1;
            if file.get().handles == 0 {
                file.remove();
            }
        }
    }
}

impl WritableFile for QuotaInPlace {
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn metadata(&self) -> StoreResult<Metadata> {
        self.inner.metadata()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }

    fn has_name(&self) -> bool {
        self.inner.has_name()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.inner.read_at_nowait(target, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(target, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.grow(end_of(offset, bytes.len())?, || self.inner.write_at(bytes, offset))
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> StoreResult<()> {
        self.grow(end_of(offset, len_of(parts))?, || self.inner.write_vectored_at(parts, offset))
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        check_length(size_bytes)?;
        self.look_at_length(|| {
            self.count_up_to(size_bytes)?;
            self.inner.truncate(size_bytes)
        })
    }

    fn sync(&self) -> StoreResult<()> {
        self.inner.sync()
    }

    fn close(&self, checksums: &[Checksum]) -> StoreResult<Committed> {
        let closed = self.inner.close(checksums);
        // What it was expected to become others may have now.
        let mut expected = self.lock_expected();
        let unused_bytes = expected.bytes;
        self.account.release(expected.take(unused_bytes));
        closed
    }
}

/// A file that is seen when it is closed.
pub(super) struct QuotaWhenClosed {
    // Dropped first: its bytes are gone before others may have the room.
    inner: Arc<dyn WritableFile>,
    reservation: Mutex<Reservation>,
}

impl QuotaWhenClosed {
    pub(super) fn new(inner: Arc<dyn WritableFile>, reservation: Reservation) -> QuotaWhenClosed {
        QuotaWhenClosed { inner, reservation: Mutex::new(reservation) }
    }

    fn reserve_up_to(&self, end: u64) -> StoreResult<()> {
        self.lock_reservation().grow_to(end)
    }

    fn lock_reservation(&self) -> MutexGuard<'_, Reservation> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WritableFile for QuotaWhenClosed {
    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn metadata(&self) -> StoreResult<Metadata> {
        self.inner.metadata()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }

    fn has_name(&self) -> bool {
        self.inner.has_name()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.inner.read_at_nowait(target, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(target, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        self.reserve_up_to(end_of(offset, bytes.len())?)?;
        self.inner.write_at(bytes, offset)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> StoreResult<()> {
        self.reserve_up_to(end_of(offset, len_of(parts))?)?;
        self.inner.write_vectored_at(parts, offset)
    }

    fn truncate(&self, size_bytes: u64) -> StoreResult<()> {
        check_length(size_bytes)?;
        self.reserve_up_to(size_bytes)?;
        self.inner.truncate(size_bytes)
    }

    fn sync(&self) -> StoreResult<()> {
        self.inner.sync()
    }

    fn close(&self, checksums: &[Checksum]) -> StoreResult<Committed> {
        let mut reservation = self.lock_reservation();
        let before = reservation.account.before();
        let committed = self.inner.close(checksums)?;
        // Before the reservation goes: at no moment may others have the room.
        reservation.account.change(before, committed.metadata.size_bytes, committed.replaced_bytes);
        let reserved_bytes = reservation.bytes;
        let released_bytes = reservation.take(reserved_bytes);
        reservation.account.release(released_bytes);
        Ok(committed)
    }
}
