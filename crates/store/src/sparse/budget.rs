//! The bytes that the cache may have on the disk, and the files that go when there is no room.
//!
//! A process counts what it writes from the last look at the directory on, and looks again when that would be too much, or when
//! it has written an eighth of the budget: as other processes write, too, each may be that much beyond. Then the files that were not
//! used longest go, until an eighth is free: those that another process writes to at last, and none that is open in this one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits::{SPARSE_BYTES_MAX, SPARSE_FILES_MAX, SPARSE_PURGE_PART};

use super::directory::{Directory, Kind, Name, Unit, try_lock};

/// The room that a cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseLimits {
    /// Bytes of all files together, rounded up to blocks of the disk.
    pub bytes_max: u64,
    /// Remote files of which something is kept.
    pub files_max: usize,
}

impl Default for SparseLimits {
    fn default() -> SparseLimits {
        SparseLimits { bytes_max: SPARSE_BYTES_MAX, files_max: SPARSE_FILES_MAX }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) directory: Directory,
    usage: Mutex<Usage>,
    /// Files that are open in this process, and how often.
    open: Mutex<HashMap<Name, usize>>,
}

#[derive(Debug)]
struct Usage {
    limits: SparseLimits,
    bytes: u64,
    files: usize,
    /// Bytes that were written since the last look, or for which there was no room.
    bytes_since: u64,
    /// There was no room after the last look: until a file is closed, or some time has passed, there is none.
    is_full: bool,
}

impl Budget {
    /// Looks at what is there.
    pub(super) fn new(directory: Directory, limits: SparseLimits) -> Budget {
        let usage = Usage { limits, bytes: 0, files: 0, bytes_since: 0, is_full: false };
        let budget = Budget { directory, usage: Mutex::new(usage), open: Mutex::default() };
        budget.purge(&mut lock(&budget.usage), 0, 0);
        budget
    }

    /// Other limits from now on.
    pub(super) fn set_limits(&self, limits: SparseLimits) {
        let mut usage = lock(&self.usage);
        if usage.limits != limits {
            usage.limits = limits;
            self.purge(&mut usage, 0, 0);
        }
    }

    /// Bytes on the disk as far as this process knows.
    pub(super) fn used_bytes(&self) -> u64 {
        lock(&self.usage).bytes
    }

    /// Takes room for so many bytes, and for a further file; false if there is none.
    pub(super) fn reserve(&self, bytes: u64, files: usize) -> bool {
        let mut usage = lock(&self.usage);
        let has_room = |usage: &Usage| {
            usage.bytes.saturating_add(bytes) <= usage.limits.bytes_max
                && usage.files + files <= usage.limits.files_max
        };
        let is_due = usage.bytes_since >= usage.limits.bytes_max / SPARSE_PURGE_PART;
        if is_due || (!has_room(&usage) && !usage.is_full) {
            self.purge(&mut usage, bytes, files);
            usage.is_full = !has_room(&usage);
        }
        usage.bytes_since = usage.bytes_since.saturating_add(bytes);
        if !has_room(&usage) {
            return false;
        }
        usage.bytes += bytes;
        usage.files += files;
        true
    }

    /// Gives room back.
    pub(super) fn release(&self, bytes: u64, files: usize) {
        let mut usage = lock(&self.usage);
        usage.bytes = usage.bytes.saturating_sub(bytes);
        usage.files = usage.files.saturating_sub(files);
    }

    /// Notes that a file is open, so that it stays.
    pub(super) fn opened(&self, name: &Name) {
        *lock(&self.open).entry(*name).or_default() += 1;
    }

    /// Notes that it is open once less.
    pub(super) fn closed(&self, name: &Name) {
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                open.remove(name);
            }
        }
        drop(open);
        lock(&self.usage).is_full = false;
    }

    /// Counts what is there, and removes what was not used longest until there is room for so much.
    fn purge(&self, usage: &mut Usage, bytes: u64, files: usize) {
        usage.bytes_since = 0;
        // A directory that cannot be listed keeps its count.
        let Ok(mut units) = self.directory.units() else { return };
        usage.bytes = units.iter().map(|unit| unit.bytes).sum();
        usage.files = units.len();
        let limits = usage.limits;
        let fits = usage.bytes.saturating_add(bytes) <= limits.bytes_max
            && usage.files.saturating_add(files) <= limits.files_max;
        if fits {
            return;
        }
        let bytes_kept = (limits.bytes_max - limits.bytes_max / SPARSE_PURGE_PART).saturating_sub(bytes);
        let files_kept =
            (limits.files_max - limits.files_max / SPARSE_PURGE_PART as usize).saturating_sub(files);
        let open = lock(&self.open);
        units.retain(|unit| !open.contains_key(&unit.name));
        units.sort_unstable_by_key(|unit| (unit.used_at, unit.name));
        let mut busy = Vec::new();
        for is_forced in [false, true] {
            for unit in std::mem::take(if is_forced { &mut busy } else { &mut units }) {
                if usage.bytes <= bytes_kept && usage.files <= files_kept {
                    return;
                }
                match self.remove(&unit, is_forced) {
                    Some(true) => {
                        usage.bytes = usage.bytes.saturating_sub(unit.bytes);
                        usage.files = usage.files.saturating_sub(1);
                    }
                    Some(false) => {}
                    None => busy.push(unit),
                }
            }
        }
    }

    /// Removes all files of a name; `None` if another process writes to it and it is not forced, else whether they are gone.
    fn remove(&self, unit: &Unit, is_forced: bool) -> Option<bool> {
        // While it is locked here no other process begins it anew under the same name.
        let data = self.directory.find(&unit.name, Kind::Data, true).ok().flatten().map(Arc::new);
        let held = data.as_ref().and_then(|data| try_lock(data).ok().flatten());
        match &held {
            Some(held) if !self.directory.is_named(&unit.name, Kind::Data, held.data()) => {
                return Some(false);
            }
            None if data.is_some() && !is_forced => return None,
            _ => {}
        }
        Some(self.directory.remove_all(&unit.name).is_ok())
    }
}

/// The guard of a lock, also after a panic of another thread: counts stay counts.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
