//! Targets under a quota.
//!
//! While a target is open it is an upload: its length is reserved, or what is expected of it. When it is dropped to be continued,
//! its bytes stay on the device and count as used, and when it is opened again they are reserved once more. So does a recount
//! find them, in a process that was started again as well.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridlane_core::Result;
use gridlane_share::Turns;

use super::{Account, QuotaStorage, Reservation};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{BoxFuture, Committed, Completion};
use crate::target::{Found, Target, TargetOptions, Targets, delegate_target, failed};

impl QuotaStorage {
    async fn open_counted(
        &self,
        path: &ObjectPath,
        options: &TargetOptions,
    ) -> StoreResult<(Arc<dyn Target>, Found)> {
        let inside = self.inner.targets().ok_or(StoreError::Unsupported)?;
        let _opening = self.opening.read().await;
        let before = self.account.before();
        let (inner, found) = inside.open_target(path, options).await?;
        let turns = Arc::clone(inner.turns());
        let length = turns.run(|| inner.size_bytes()).await;
        let length = length.map_err(|error| StoreError::Io(io::Error::other(error.to_string())))?;
        let expected_bytes = options.expected_bytes.unwrap_or(0);
        match self.account.take_over(before, length, expected_bytes) {
            Ok(reservation) => {
                let state = State { end_bytes: length, reservation: Some(reservation) };
                let account = Arc::clone(&self.account);
                Ok((Arc::new(QuotaTarget { inner, account, state: Mutex::new(state) }), found))
            }
            Err(error) => {
                // What an earlier copy has left is counted still.
                if length == 0 {
                    turns.run(|| inner.discard()).await;
                }
                Err(error)
            }
        }
    }

    pub(super) async fn unfinished_bytes_in(&self, directory: &ObjectPath) -> StoreResult<u64> {
        let Some(inside) = self.inner.targets() else { return Ok(0) };
        match inside.unfinished_bytes(directory).await {
            Err(
                StoreError::NotFound
                | StoreError::NotADirectory
                | StoreError::Denied
                | StoreError::NameTooLong
                | StoreError::NotOurs(_),
            ) => Ok(0),
            known => known,
        }
    }

    pub(super) async fn remove_and_count_abandoned(&self, age: Duration) -> StoreResult<usize> {
        if self.inner.targets().is_none() {
            return self.inner.remove_abandoned(age).await;
        }
        let _alone = self.opening.write().await;
        let root = ObjectPath::root();
        let before = self.account.before();
        let kept_bytes = self.unfinished_bytes_in(&root).await?;
        let removed = self.inner.remove_abandoned(age).await?;
        // One that is dropped meanwhile hides as much of what went: that is for the next walk.
        let left_bytes = self.unfinished_bytes_in(&root).await?;
        self.account.change(before, 0, kept_bytes.saturating_sub(left_bytes));
        Ok(removed)
    }
}

impl Targets for QuotaStorage {
    fn open_target<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a TargetOptions,
    ) -> BoxFuture<'a, StoreResult<(Arc<dyn Target>, Found)>> {
        Box::pin(self.open_counted(path, options))
    }

    fn unfinished_bytes<'a>(&'a self, directory: &'a ObjectPath) -> BoxFuture<'a, StoreResult<u64>> {
        match self.inner.targets() {
            Some(inside) => inside.unfinished_bytes(directory),
            None => Box::pin(std::future::ready(Err(StoreError::Unsupported))),
        }
    }
}

/// A target whose bytes are counted.
struct QuotaTarget {
    inner: Arc<dyn Target>,
    account: Arc<Account>,
    state: Mutex<State>,
}

struct State {
    /// The length that it may have.
    end_bytes: u64,
    /// `None` when it is over.
    reservation: Option<Reservation>,
}

impl QuotaTarget {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve_up_to(&self, end: u64) -> StoreResult<()> {
        let mut state = self.lock();
        state.reservation.as_mut().ok_or(StoreError::Closed)?.grow_to(end)?;
        state.end_bytes = state.end_bytes.max(end);
        Ok(())
    }
}

impl Drop for QuotaTarget {
    fn drop(&mut self) {
        let mut state = self.lock();
        if let Some(reservation) = state.reservation.take() {
            // Before the reservation ends: at no moment is the room free for other files.
            self.account.change(self.account.before(), state.end_bytes, 0);
            drop(reservation);
        }
    }
}

impl Target for QuotaTarget {
    delegate_target!(turns, name, size_bytes, allocated_bytes, read_at, journal, is_doubtful, sync);

    fn free_bytes(&self) -> Option<u64> {
        let unused_bytes = {
            let state = self.lock();
            let reserved_bytes = state.reservation.as_ref().map_or(0, |reservation| reservation.bytes);
            reserved_bytes.saturating_sub(state.end_bytes)
        };
        let free_bytes = self.account.free_bytes(&self.account.lock()).saturating_add(unused_bytes);
        self.inner.free_bytes().map(|inside| inside.min(free_bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.reserve_up_to(end).map_err(|error| failed(self.name(), error))?;
        self.inner.write_at(bytes, offset)
    }

    fn restart(&self) -> Result<()> {
        self.inner.restart()?;
        self.lock().end_bytes = 0;
        Ok(())
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let before = self.account.before();
        let committed = self.inner.commit(size_bytes, completion)?;
        // Before the reservation ends: at no moment is the room free for other files.
        self.account.change(before, committed.metadata.size_bytes, committed.replaced_bytes);
        drop(self.lock().reservation.take());
        Ok(committed)
    }

    fn discard(&self) {
        self.inner.discard();
        // Its bytes are gone before the room is given to other files.
        drop(self.lock().reservation.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;
    use crate::journal::Record;
    use crate::journal_key::JournalKeys;
    use crate::storage::{Expectation, Storage};

    fn path(text: &str) -> ObjectPath {
        ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
    }

    async fn counting(inner: Arc<dyn Storage>) -> QuotaStorage {
        let quota = QuotaStorage::new(inner, 100);
        quota.recount().await.unwrap();
        quota
    }

    async fn open(quota: &QuotaStorage, expected_bytes: u64) -> StoreResult<(Arc<dyn Target>, Found)> {
        let keys = JournalKeys::of(&[7; 32]);
        let options = TargetOptions { expected_bytes: Some(expected_bytes), keys, parents: false };
        quota.targets().unwrap().open_target(&path("f"), &options).await
    }

    fn usage(quota: &QuotaStorage) -> (u64, u64) {
        (quota.usage().used_bytes, quota.usage().reserved_bytes)
    }

    async fn counts_what_is_kept(inner: Arc<dyn Storage>) {
        let quota = counting(Arc::clone(&inner)).await;
        assert!(matches!(open(&quota, 101).await.err(), Some(StoreError::OverQuota)));
        let (target, found) = open(&quota, 60).await.unwrap();
        assert!(matches!(found, Found::Nothing), "nothing is left of what was refused: {found:?}");
        assert_eq!(usage(&quota), (0, 60));
        assert!(matches!(quota.create(&path("g"), Some(41)).await.err(), Some(StoreError::OverQuota)));
        target.record(&[Record::object(60)]).unwrap();
        target.write_at(&[7; 10], 20).unwrap();
        drop(target);
        assert_eq!(usage(&quota), (30, 0), "what is kept is counted, and no more");
        assert_eq!(quota.recount().await.unwrap().used_bytes, 30);

        // A server that was started again.
        let quota = counting(Arc::clone(&inner)).await;
        assert_eq!(usage(&quota), (30, 0));
        assert!(matches!(open(&quota, 101).await.err(), Some(StoreError::OverQuota)));
        assert_eq!(usage(&quota), (30, 0));
        let (target, found) = open(&quota, 90).await.unwrap();
        assert!(matches!(found, Found::Earlier(_)), "{found:?}");
        assert_eq!(usage(&quota), (0, 90), "what was found is part of what is expected");
        assert_eq!(quota.recount().await.unwrap().used_bytes, 0, "what is open is not counted twice");
        let grows = target.write_at(&[7; 10], 95).unwrap_err();
        assert!(grows.is_no_space() && grows.message().contains("quota"), "{grows}");
        target.write_at(&[7; 5], 90).unwrap();
        assert_eq!(usage(&quota), (0, 95));
        // A commit that is refused keeps it.
        let absent = Expectation::Absent.into();
        let upload = quota.create(&path("f"), Some(5)).await.unwrap();
        upload.write_at(&[0; 5], 0).await.unwrap();
        upload.commit(&absent).await.unwrap();
        assert!(target.commit(95, &absent).is_err());
        assert_eq!(usage(&quota), (5, 95));
        assert!(target.commit(95, &Expectation::Anything.into()).unwrap().replaced);
        assert_eq!(usage(&quota), (95, 0), "what was replaced is gone");
        drop(target);
        assert_eq!(quota.recount().await.unwrap().used_bytes, 95);

        let (target, _) = open(&quota, 0).await.unwrap();
        target.write_at(&[7; 5], 0).unwrap();
        target.discard();
        assert_eq!(usage(&quota), (95, 0), "given back at once");
        drop(target);
        assert_eq!(usage(&quota), (95, 0));

        let (target, _) = open(&quota, 0).await.unwrap();
        target.write_at(&[7; 5], 0).unwrap();
        assert_eq!(quota.remove_abandoned(Duration::ZERO).await.unwrap(), 0, "it is open");
        drop(target);
        assert_eq!(usage(&quota), (100, 0));
        assert_eq!(quota.remove_abandoned(Duration::from_secs(3600)).await.unwrap(), 0, "it is young");
        assert_eq!(quota.remove_abandoned(Duration::ZERO).await.unwrap(), 1);
        assert_eq!(usage(&quota), (95, 0));
        assert_eq!(quota.recount().await.unwrap().used_bytes, 95);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_of_targets_count_wherever_they_are_kept() {
        counts_what_is_kept(Arc::new(MemoryStorage::new())).await;
        let directory = tempfile::tempdir().unwrap();
        let posix = crate::PosixStorage::open(directory.path(), crate::Durability::None).unwrap();
        counts_what_is_kept(Arc::new(posix)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_an_earlier_copy_left_can_be_opened_whatever_the_limit_is_by_now() {
        let memory = MemoryStorage::new();
        let quota = counting(Arc::new(memory.clone())).await;
        let (target, _) = open(&quota, 0).await.unwrap();
        target.write_at(&[7; 90], 0).unwrap();
        drop(target);
        let small = QuotaStorage::new(Arc::new(memory), 10);
        small.recount().await.unwrap();
        let (target, _) = open(&small, 0).await.unwrap();
        assert!(target.write_at(&[7; 90], 0).is_ok() && target.write_at(&[7], 90).is_err());
        target.discard();
        assert_eq!(usage(&small), (0, 0));
    }
}
