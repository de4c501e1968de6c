//! The files that this process is changing in place, so that no checksum of other bytes is kept.
//!
//! Checksums hold for a size and a modification time, and within one tick of the kernel's clock a file may be
//! changed again without a trace in either. Changes by other programs cannot be noticed. For those of this process:
//!
//! - Before the first byte changes, the kept checksums are forgotten, and the file is *changing* until the handle that
//!   changes it is closed. Meanwhile no checksum of it is kept.
//! - A reader that computes a checksum notes the file's [epoch] when it opens it. With another epoch afterwards, it was
//!   changed since, and the checksum is not kept.
//! - A handle that is closed keeps the checksums of what it wrote only if no other one changed the file since it was
//!   opened.
//!
//! It goes by the identity of files and holds for all exports of the process: they may overlap.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::error::StoreResult;
use crate::storage::FileIdentity;

/// Counts for all files, of which many share one: a change of one file makes some checksums of others be computed
/// again.
const EPOCHS: usize = 4096;

static CHANGES: [AtomicU64; EPOCHS] = [const { AtomicU64::new(0) }; EPOCHS];
static KNOWN: LazyLock<Mutex<HashMap<FileIdentity, Known>>> = LazyLock::new(Mutex::default);

/// A file that is open for being changed, or of which a checksum is being kept.
#[derive(Default)]
struct Known {
    /// By how many.
    handles: usize,
    state: Arc<Mutex<State>>,
}

/// Its lock is held while the disk is waited for, so each file has its own: none waits for another's disk.
#[derive(Default)]
struct State {
    /// Number of handles that have begun to change it.
    changing: usize,
    /// Number of times that one of them began, or ended.
    events: u64,
}

/// A number that is another one whenever the file was changed in place since.
pub(super) fn epoch(identity: FileIdentity) -> u64 {
    slot(identity).load(Ordering::Acquire)
}

/// Runs `keep`, which keeps a checksum, if the file was not changed since `epoch`; no change begins meanwhile.
pub(super) fn unless_changed(
    identity: FileIdentity,
    epoch: u64,
    keep: impl FnOnce() -> StoreResult<()>,
) -> StoreResult<()> {
    let handle = Handle::of(identity);
    let state = handle.lock();
    if state.changing > 0 || self::epoch(identity) != epoch { Ok(()) } else { keep() }
}

fn slot(identity: FileIdentity) -> &'static AtomicU64 {
    // Fibonacci's hashing: the highest bits depend on all.
    let mixed = (identity.number ^ identity.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &CHANGES[(mixed >> (64 - EPOCHS.ilog2())) as usize]
}

fn lock_known() -> MutexGuard<'static, HashMap<FileIdentity, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reference that keeps a file known.
struct Handle {
    identity: FileIdentity,
    state: Arc<Mutex<State>>,
}

impl Handle {
    fn of(identity: FileIdentity) -> Handle {
        let mut known = lock_known();
        let file = known.entry(identity).or_default();
        file.handles += 1;
        Handle { identity, state: Arc::clone(&file.state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Entry::Occupied(mut file) = lock_known().entry(self.identity) {
            file.get_mut().handles -= 1;
            if file.get().handles == 0 {
                file.remove();
            }
        }
    }
}

/// A handle that has a file open for changing it.
pub(super) struct Changer {
    handle: Handle,
    /// The file's events when it was opened.
    opened_at: u64,
    is_changing: bool,
}

impl Changer {
    pub(super) fn new(identity: FileIdentity) -> Changer {
        let handle = Handle::of(identity);
        let opened_at = handle.lock().events;
        Changer { handle, opened_at, is_changing: false }
    }

    /// To be called before the first byte changes. `forget` forgets what was kept; if it fails, nothing may change.
    pub(super) fn begin<T>(&mut self, forget: impl FnOnce() -> StoreResult<T>) -> StoreResult<T> {
        let mut state = self.handle.lock();
        // First, so that readers of what is written from now on have another epoch.
        slot(self.handle.identity).fetch_add(1, Ordering::AcqRel);
        let forgotten = forget()?;
        state.changing += 1;
        state.events += 1;
        self.is_changing = true;
        Ok(forgotten)
    }

    pub(super) fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// To be called after the last byte was changed. Runs `keep` if no other handle changed anything.
    pub(super) fn end(&mut self, keep: impl FnOnce()) {
        if !std::mem::take(&mut self.is_changing) {
            return;
        }
        let mut state = self.handle.lock();
        slot(self.handle.identity).fetch_add(1, Ordering::AcqRel);
        // One event was our own beginning.
        if state.changing == 1 && state.events == self.opened_at + 1 {
            keep();
        }
        state.changing -= 1;
        state.events += 1;
    }
}

impl Drop for Changer {
    fn drop(&mut self) {
        self.end(|| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// No real file has such a device.
    fn file(number: u64) -> FileIdentity {
        FileIdentity { device: u64::MAX, number }
    }

    fn keeps(identity: FileIdentity, epoch: u64) -> bool {
        let kept = Cell::new(false);
        unless_changed(identity, epoch, || {
            kept.set(true);
            Ok(())
        })
        .unwrap();
        kept.get()
    }

    fn ends_keeping(changer: &mut Changer) -> bool {
        let kept = Cell::new(false);
        changer.end(|| kept.set(true));
        kept.get()
    }

    #[test]
    fn a_reader_keeps_nothing_of_a_file_that_changed() {
        let identity = file(1);
        let before = epoch(identity);
        let mut changer = Changer::new(identity);
        assert!(keeps(identity, before), "open, and not changed");
        changer.begin(|| Ok(())).unwrap();
        let during = epoch(identity);
        assert!(!keeps(identity, before) && !keeps(identity, during));
        drop(changer);
        assert!(!keeps(identity, before) && !keeps(identity, during));
        assert!(keeps(identity, epoch(identity)));
        assert!(!lock_known().contains_key(&identity));
    }

    #[test]
    fn who_closes_keeps_only_what_is_its_own_alone() {
        let identity = file(2);
        let begun = || {
            let mut changer = Changer::new(identity);
            changer.begin(|| Ok(())).unwrap();
            changer
        };
        let mut alone = Changer::new(identity);
        assert!(!ends_keeping(&mut alone), "it changed nothing");
        alone.begin(|| Ok(())).unwrap();
        assert!(ends_keeping(&mut alone));
        let (mut first, mut second) = (begun(), begun());
        assert!(!ends_keeping(&mut first), "the second may go on");
        assert!(!ends_keeping(&mut second), "the first changed it meanwhile");
        let mut outer = Changer::new(identity);
        drop(begun());
        outer.begin(|| Ok(())).unwrap();
        assert!(!ends_keeping(&mut outer), "somebody changed it in between");
        drop((alone, first, second, outer));
        assert!(ends_keeping(&mut begun()));
    }

    #[test]
    fn nothing_changes_when_forgetting_fails() {
        let identity = file(3);
        let mut changer = Changer::new(identity);
        let before = epoch(identity);
        let refused: StoreResult<()> = changer.begin(|| Err(crate::StoreError::Denied));
        assert!(refused.is_err() && !keeps(identity, before));
        assert!(keeps(identity, epoch(identity)), "it is as it was");
    }

    #[test]
    fn a_file_whose_disk_takes_long_holds_up_no_other() {
        let (slow, other) = (file(4), file(5));
        let mut changer = Changer::new(slow);
        let forgets = changer.begin(|| {
            std::thread::scope(|scope| {
                let all = scope.spawn(|| {
                    let mut quick = Changer::new(other);
                    quick.begin(|| Ok(())).unwrap();
                    drop(quick);
                    keeps(other, epoch(other))
                });
                Ok(all.join().unwrap())
            })
        });
        assert!(forgets.unwrap());
    }
}
