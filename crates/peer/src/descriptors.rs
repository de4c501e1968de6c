//! Bounds of open files and connections where a process may have few (`ulimit -n`).
//!
//! Other bounds hold beside these: of copies of a tree, listings, lanes, idle connections. Small files have shares of
//! their own.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use gridlane_core::limits::{CLIENT_DESCRIPTORS_KEPT, DESCRIPTORS_PER_COPY};
use rustix::process::{Resource, getrlimit};

/// Copies that are running in this process.
static COPIES: Copies = Copies::new();

/// Copies that may run in this process at the same time, as announced by callers that start several.
static EXPECTED: AtomicUsize = AtomicUsize::new(0);

/// Counts no copies any more: for the child of a fork, where those of the parent never end.
pub fn forget_copies() {
    COPIES.0.store(0, Relaxed);
    EXPECTED.store(0, Relaxed);
}

/// So many copies may run until this is dropped: the first of them has no more lanes than the last.
#[derive(Debug)]
pub struct ExpectedCopies(usize);

impl Drop for ExpectedCopies {
    fn drop(&mut self) {
        EXPECTED.fetch_sub(self.0, Relaxed);
    }
}

/// The number of copies that are running, and of those that have begun, which together say if one of them is alone.
#[derive(Debug)]
pub struct Copies(AtomicU64);

/// One more that has begun, above the number of those that are running.
const BEGUN: u64 = 1 << 32;

impl Copies {
    /// None.
    pub const fn new() -> Copies {
        Copies(AtomicU64::new(0))
    }

    /// One more copy runs from now on.
    pub fn begin(&'static self) -> RunningCopy {
        let before = self.0.fetch_add(BEGUN + 1, Relaxed);
        RunningCopy { copies: self, before }
    }

    fn running(&self) -> usize {
        (self.0.load(Relaxed) % BEGUN) as usize
    }
}

impl Default for Copies {
    fn default() -> Copies {
        Copies::new()
    }
}

/// Counts one running copy until it is dropped.
#[derive(Debug)]
pub struct RunningCopy {
    copies: &'static Copies,
    /// The numbers just before it began.
    before: u64,
}

impl RunningCopy {
    /// One more copy of this process runs from now on.
    pub fn begin() -> RunningCopy {
        COPIES.begin()
    }

    /// True if no other copy has run since this one began: what the process has used meanwhile is this copy's.
    pub fn is_alone(&self) -> bool {
        let was_alone = self.before.is_multiple_of(BEGUN);
        was_alone && self.copies.0.load(Relaxed) / BEGUN == (self.before / BEGUN + 1) % BEGUN
    }
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        self.copies.0.fetch_sub(1, Relaxed);
    }
}

/// A number of descriptors that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Beside what a process has open in any case.
    free: usize,
}

impl Descriptors {
    /// The limit of this process when it was asked for first.
    pub fn of_process() -> Descriptors {
        static OF_PROCESS: OnceLock<Descriptors> = OnceLock::new();
        *OF_PROCESS.get_or_init(|| Descriptors::of(getrlimit(Resource::Nofile).current))
    }

    /// Tells that so many copies are about to run, however many there are at one moment.
    pub fn expect_copies(copies: usize) -> ExpectedCopies {
        EXPECTED.fetch_add(copies, Relaxed);
        ExpectedCopies(copies)
    }

    /// For so many descriptors; `None`: there is no limit.
    fn of(count: Option<u64>) -> Descriptors {
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        Descriptors { free: count.saturating_sub(CLIENT_DESCRIPTORS_KEPT) }
    }

    /// Copies of one file each at the same time.
    pub fn copies_max(self) -> usize {
        (self.free / 2 / DESCRIPTORS_PER_COPY).max(1)
    }

    /// Directories that are listed at the same time.
    pub fn listings_max(self) -> usize {
        (self.free / 8).max(1)
    }

    /// Connections that rest.
    pub fn idle_max(self) -> usize {
        self.free / 4
    }

    /// Lanes of the copy that asks, beside the others that are running or may run before it ends.
    pub fn lanes_max(self) -> usize {
        self.lanes_beside(COPIES.running().max(EXPECTED.load(Relaxed)))
    }

    /// Lanes of each of so many copies: half of what the copies themselves leave, and no more than there is beside listings
    /// and connections that rest.
    fn lanes_beside(self, copies: usize) -> usize {
        let copies = copies.max(1);
        let free = self.free.saturating_sub(copies.saturating_mul(DESCRIPTORS_PER_COPY));
        let others = self.idle_max().saturating_add(self.listings_max());
        ((free / 2).min(free.saturating_sub(others)) / copies).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_alone_when_no_other_ran_since_it_began() {
        static COPIES: Copies = Copies::new();
        let first = COPIES.begin();
        assert!(first.is_alone());
        let second = COPIES.begin();
        assert!(!first.is_alone() && !second.is_alone());
        drop(second);
        assert!(!first.is_alone(), "another one ran meanwhile");
        drop(first);
        assert!(COPIES.begin().is_alone() && COPIES.running() == 0);
    }

    /// Each asks for its lanes when it begins, and the others come later.
    #[test]
    fn copies_that_begin_one_after_the_other_share_what_there_is() {
        let all = Descriptors::of(Some(64));
        let copies = all.copies_max();
        let _expected = Descriptors::expect_copies(copies);
        let mut running = Vec::new();
        let mut open = CLIENT_DESCRIPTORS_KEPT + all.listings_max() + all.idle_max();
        for _ in 0..copies {
            running.push(RunningCopy::begin());
            open += DESCRIPTORS_PER_COPY + all.lanes_max();
        }
        assert!(copies > 1 && open <= 64, "{open} of 64 for {copies} copies");
    }

    #[test]
    fn what_is_open_fits_where_there_is_little_and_is_not_less_where_there_is_enough() {
        for count in [32, 48, 64, 100, 256, 1024, 4096, 1 << 20] {
            let all = Descriptors::of(Some(count));
            let copies = all.copies_max();
            let open = CLIENT_DESCRIPTORS_KEPT
                + copies * (DESCRIPTORS_PER_COPY + all.lanes_beside(copies))
                + all.listings_max()
                + all.idle_max();
            assert!(open as u64 <= count, "{open} of {count}");
            assert!(all.lanes_beside(1) + DESCRIPTORS_PER_COPY + CLIENT_DESCRIPTORS_KEPT <= count as usize);
        }
        for count in [Some(1024), None] {
            let all = Descriptors::of(count);
            assert!(all.copies_max() >= 64 && all.listings_max() >= 8 && all.idle_max() >= 128, "{count:?}");
            assert!(all.lanes_beside(1) >= 48);
        }
    }
}
