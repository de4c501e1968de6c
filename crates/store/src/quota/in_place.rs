//! Files that are changed in place, and those that are seen when they are closed, under a quota.
//!
//! A file that is changed in place counts with the length that it has, however many have it open: they share what
//! is known of it ([`Counted`]). Before it grows, the growth is counted; when a write fails, and after a cut, its
//! length is looked at. One that has no name any more was counted off by the removal: what it grows by then
//! is reserved until it is not open any more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::future::ready;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_share::Turns;
use tokio::sync::RwLock;

use super::{Account, Before, Reservation, later};
use crate::error::{StoreError, StoreResult};
use crate::storage::{BoxFuture, Committed, FileIdentity, Metadata};
use crate::writable::{Whole, WritableFile, check_length, end_of, len_of};

/// The files that are open for being changed in place.
#[derive(Default)]
pub(super) struct Files {
    open: Mutex<HashMap<FileIdentity, OpenFile>>,
}

struct OpenFile {
    counted: Arc<Counted>,
    /// Number of handles that have it open.
    handles: usize,
}

/// The knowledge about a file that all its handles share.
struct Counted {
    /// Held shared by every call that may make the file longer, and alone by one that looks at its length.
    growing: RwLock<()>,
    length: Mutex<Length>,
}

struct Length {
    /// With what it grows by at this moment.
    bytes: u64,
    /// When something was counted of which it is not known whether it was written.
    doubtful_since: Option<Before>,
    /// The growth since it has no name.
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
    /// The growth that is expected of it.
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
                // All that it has now was counted by the handles that had it open before.
                let bytes = inner.metadata()?.size_bytes;
                let length = Mutex::new(Length {
                    bytes,
                    doubtful_since: None,
                    nameless: Reservation::new(&account, 0)?,
                });
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

    fn inner(&self) -> &Arc<dyn WritableFile> {
        &self.inner
    }

    /// Runs `write`, which may make the file end at `end`.
    async fn grow(&self, end: u64, write: BoxFuture<'_, StoreResult<()>>) -> StoreResult<()> {
        let growing = self.counted.growing.read().await;
        let mut unfinished = Unfinished { file: self, since: Some(self.account.before()) };
        self.count_up_to(end).inspect_err(|_| unfinished.since = None)?;
        let written = write.await;
        unfinished.since = None;
        drop(growing);
        if written.is_err() {
            self.look_at_length(None).await?;
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

    /// Cuts the file, if it is to be cut, while no other call makes it longer, and counts with the length that it has
    /// then.
    async fn look_at_length(&self, cut_to: Option<u64>) -> StoreResult<()> {
        let _alone = self.counted.growing.write().await;
        let before = self.account.before();
        let mut unfinished = Unfinished { file: self, since: Some(before) };
        let cut = match cut_to {
            Some(size_bytes) => match self.count_up_to(size_bytes) {
                Ok(()) => self.inner.truncate(size_bytes).await,
                Err(error) => Err(error),
            },
            None => Ok(()),
        };
        let now_bytes = self.inner.look().await?.size_bytes;
        unfinished.since = None;
        self.has_length(now_bytes, before);
        cut
    }

    /// Counts with the length that was found, of a file that no call makes longer, since `before`.
    fn has_length(&self, now_bytes: u64, before: Before) {
        let mut length = self.lock_length();
        let before = length.doubtful_since.take().unwrap_or(before);
        let lost_bytes = length.bytes.saturating_sub(now_bytes);
        // What a file without a name has lost was counted off, or is reserved: that ends with it.
        if lost_bytes > 0 && self.inner.has_name() {
            self.account.change(before, 0, lost_bytes);
            length.bytes = now_bytes;
        }
    }

    fn lock_length(&self) -> MutexGuard<'_, Length> {
        self.counted.length.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_expected(&self) -> MutexGuard<'_, Reservation> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something counted that is not known to be written: the call that wrote it was cancelled while it waited for the
/// storage.
struct Unfinished<'a> {
    file: &'a QuotaInPlace,
    /// `None` when it is known.
    since: Option<Before>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.file.lock_length().doubtful_since.get_or_insert(since);
        }
    }
}

impl Drop for QuotaInPlace {
    fn drop(&mut self) {
        let mut open = self.files.lock();
        if let Entry::Occupied(mut file) = open.entry(self.identity) {
            file.get_mut().handles -= 1;
            if file.get().handles == 0 {
                file.remove();
                // No handle is left that could make it longer.
                let since = self.lock_length().doubtful_since;
                if let (Some(since), Ok(now)) = (since, self.inner.metadata()) {
                    self.has_length(now.size_bytes, since);
                }
            }
        }
    }
}

/// The methods that are passed on unchanged.
macro_rules! delegate {
    () => {
        fn turns(&self) -> &Arc<Turns> {
            self.inner().turns()
        }

        fn metadata(&self) -> StoreResult<Metadata> {
            self.inner().metadata()
        }

        fn look(&self) -> BoxFuture<'_, StoreResult<Metadata>> {
            self.inner().look()
        }

        fn as_file(&self) -> Option<&File> {
            self.inner().as_file()
        }

        fn has_name(&self) -> bool {
            self.inner().has_name()
        }

        fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
            self.inner().read_at_nowait(target, offset)
        }

        fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
            self.inner().read_at(target, offset)
        }

        fn sync(&self) -> BoxFuture<'_, StoreResult<()>> {
            self.inner().sync()
        }
    };
}

/// A failure at once.
fn failed<'a, T: Send + 'a>(error: StoreError) -> BoxFuture<'a, StoreResult<T>> {
    Box::pin(ready(Err(error)))
}

impl WritableFile for QuotaInPlace {
    delegate!();

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        match end_of(offset, bytes.len()) {
            Ok(end) => Box::pin(self.grow(end, self.inner.write_at(bytes, offset))),
            Err(error) => failed(error),
        }
    }

    fn write_vectored_at<'a>(
        &'a self,
        parts: &'a [IoSlice<'a>],
        offset: u64,
    ) -> BoxFuture<'a, StoreResult<()>> {
        match end_of(offset, len_of(parts)) {
            Ok(end) => Box::pin(self.grow(end, self.inner.write_vectored_at(parts, offset))),
            Err(error) => failed(error),
        }
    }

    fn truncate(&self, size_bytes: u64) -> BoxFuture<'_, StoreResult<()>> {
        match check_length(size_bytes) {
            Ok(()) => Box::pin(self.look_at_length(Some(size_bytes))),
            Err(error) => failed(error),
        }
    }

    fn close<'a>(&'a self, whole: Option<&'a Whole>) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move {
            let closed = self.inner.close(whole).await;
            // The reservation is given back: other files may take the room.
            let mut expected = self.lock_expected();
            let unused_bytes = expected.bytes;
            self.account.release(expected.take(unused_bytes));
            closed
        })
    }

    fn discard(self: Arc<Self>) -> BoxFuture<'static, ()> {
        // It is seen: nothing of it goes but what is known of it.
        let inner = Arc::clone(&self.inner);
        drop(self);
        inner.discard()
    }
}

/// A file that is seen when it is closed.
pub(super) struct QuotaWhenClosed {
    /// There until it is dropped.
    inner: Option<Arc<dyn WritableFile>>,
    account: Arc<Account>,
    /// The same.
    reservation: Mutex<Option<Reservation>>,
}

impl QuotaWhenClosed {
    pub(super) fn new(inner: Arc<dyn WritableFile>, reservation: Reservation) -> QuotaWhenClosed {
        let account = Arc::clone(&reservation.account);
        QuotaWhenClosed { inner: Some(inner), account, reservation: Mutex::new(Some(reservation)) }
    }

    fn inner(&self) -> &Arc<dyn WritableFile> {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("it is taken out only where it is dropped"),
        }
    }

    fn reserve_up_to(&self, end: u64) -> StoreResult<()> {
        self.lock_reservation().as_mut().ok_or(StoreError::Closed)?.grow_to(end)
    }

    fn lock_reservation(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its bytes are gone before the room is given to other files.
async fn give_up(inner: Arc<dyn WritableFile>, reservation: Reservation) {
    inner.discard().await;
    drop(reservation);
}

impl Drop for QuotaWhenClosed {
    fn drop(&mut self) {
        let reservation = self.lock_reservation().take().filter(|reservation| reservation.bytes > 0);
        if let (Some(inner), Some(reservation)) = (self.inner.take(), reservation) {
            later(give_up(inner, reservation));
        }
    }
}

impl WritableFile for QuotaWhenClosed {
    delegate!();

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        match end_of(offset, bytes.len()).and_then(|end| self.reserve_up_to(end)) {
            Ok(()) => self.inner().write_at(bytes, offset),
            Err(error) => failed(error),
        }
    }

    fn write_vectored_at<'a>(
        &'a self,
        parts: &'a [IoSlice<'a>],
        offset: u64,
    ) -> BoxFuture<'a, StoreResult<()>> {
        match end_of(offset, len_of(parts)).and_then(|end| self.reserve_up_to(end)) {
            Ok(()) => self.inner().write_vectored_at(parts, offset),
            Err(error) => failed(error),
        }
    }

    fn truncate(&self, size_bytes: u64) -> BoxFuture<'_, StoreResult<()>> {
        match check_length(size_bytes).and_then(|()| self.reserve_up_to(size_bytes)) {
            Ok(()) => self.inner().truncate(size_bytes),
            Err(error) => failed(error),
        }
    }

    fn close<'a>(&'a self, whole: Option<&'a Whole>) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move {
            let before = self.account.before();
            let committed = self.inner().close(whole).await?;
            // Before the reservation ends: at no moment is the room free for other files.
            self.account.change(before, committed.metadata.size_bytes, committed.replaced_bytes);
            if let Some(reservation) = self.lock_reservation().as_mut() {
                let reserved_bytes = reservation.bytes;
                let released_bytes = reservation.take(reserved_bytes);
                self.account.release(released_bytes);
            }
            Ok(committed)
        })
    }

    fn discard(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Of several references, the last one ends it.
            let Some(mut file) = Arc::into_inner(self) else { return };
            let reservation = file.lock_reservation().take();
            if let (Some(inner), Some(reservation)) = (file.inner.take(), reservation) {
                give_up(inner, reservation).await;
            }
        })
    }
}
