//! Which files are being changed in place, by this process, so that nobody keeps a checksum of other bytes.
//!
//! Checksums hold for a size and a modification time, and within one tick of the kernel's clock a file may be
//! changed again without a trace in either. Of changes by other programs nobody can tell. For our own:
//!
//! - Before the first byte changes, what was kept is forgotten, and the file is *changing* until whoever changes it
//!   closes it. Meanwhile nobody keeps anything of it.
//! - Who reads a file to compute a checksum notes its [epoch] when it opens it. With another epoch, it was
//!   changed since, and the checksum is not kept.
//! - Who closes a file keeps the checksums of what it wrote only if nobody else changed it since it was opened.
//!
//! It goes by the identity of files and holds for all exports of the process: they may overlap.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::error::StoreResult;
use crate::storage::FileIdentity;

/// Counts for all files, of which many share one: a change of one file makes some checksums of others be computed
/// again.
const EPOCHS: usize = 4096;

static CHANGES: [AtomicU64; EPOCHS] = [const { AtomicU64::new(0) }; EPOCHS];
static OPEN: LazyLock<Mutex<HashMap<FileIdentity, OpenFile>>> = LazyLock::new(Mutex::default);

/// What is known of a file that somebody has open for changing it.
#[derive(Default)]
struct OpenFile {
    /// By how many.
    handles: usize,
    /// How many of them have begun to change it.
    changing: usize,
    /// How often one of them began, or ended.
    events: u64,
}

/// A number that is another one whenever the file was changed in place since.
pub(super) fn epoch(identity: FileIdentity) -> u64 {
    slot(identity).load(Ordering::Acquire)
}

/// Runs `keep`, which keeps a checksum, if nobody changed the file since `epoch` and nobody can meanwhile.
pub(super) fn unless_changed(
    identity: FileIdentity,
    epoch: u64,
    keep: impl FnOnce() -> StoreResult<()>,
) -> StoreResult<()> {
    let open = lock();
    let is_changing = open.get(&identity).is_some_and(|file| file.changing > 0);
    if is_changing || self::epoch(identity) != epoch { Ok(()) } else { keep() }
}

fn slot(identity: FileIdentity) -> &'static AtomicU64 {
    // Fibonacci's hashing: the highest bits depend on all.
    let mixed = (identity.number ^ identity.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &CHANGES[(mixed >> (64 - EPOCHS.ilog2())) as usize]
}

fn lock() -> MutexGuard<'static, HashMap<FileIdentity, OpenFile>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of those who have a file open for changing it.
pub(super) struct Changer {
    identity: FileIdentity,
    /// The file's events when it was opened.
    opened_at: u64,
    is_changing: bool,
}

impl Changer {
    pub(super) fn new(identity: FileIdentity) -> Changer {
        let mut open = lock();
        let file = open.entry(identity).or_default();
        file.handles += 1;
        Changer { identity, opened_at: file.events, is_changing: false }
    }

    /// To be called before the first byte changes. `forget` forgets what was kept; if it fails, nothing may change.
    pub(super) fn begin<T>(&mut self, forget: impl FnOnce() -> StoreResult<T>) -> StoreResult<T> {
        let mut open = lock();
        // First, so that who reads what is written from now on has another epoch.
        slot(self.identity).fetch_add(1, Ordering::AcqRel);
        let forgotten = forget()?;
        let file = open.entry(self.identity).or_default();
        file.changing += 1;
        file.events += 1;
        self.is_changing = true;
        Ok(forgotten)
    }

    pub(super) fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// To be called after the last byte was changed. Runs `keep` if nobody else changed anything.
    pub(super) fn end(&mut self, keep: impl FnOnce()) {
        if !std::mem::take(&mut self.is_changing) {
            return;
        }
        let mut open = lock();
        slot(self.identity).fetch_add(1, Ordering::AcqRel);
        if let Some(file) = open.get_mut(&self.identity) {
            // One event was our own beginning.
            if file.changing == 1 && file.events == self.opened_at + 1 {
                keep();
            }
            file.changing -= 1;
            file.events += 1;
        }
    }
}

impl Drop for Changer {
    fn drop(&mut self) {
        self.end(|| ());
        let mut open = lock();
        if let Some(file) = open.get_mut(&self.identity) {
            file.handles -= 1;
            if file.handles == 0 {
                open.remove(&self.identity);
            }
        }
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
        assert!(!lock().contains_key(&identity));
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
}
