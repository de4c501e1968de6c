//! The threads of a process that copies: as many as its devices may hold.

use gridlane_core::limits::{
    CLIENT_BLOCKING_THREADS_MAX, CLIENT_BLOCKING_THREADS_SPARE, CLIENT_DISK_OPERATIONS_MAX,
};
use gridlane_share::budget::Share;
use gridlane_share::turns::DeviceShares;
use gridlane_store::share_devices;

/// Bounds how many operations of this process wait for one device at the same time: a thousand copies hold no more threads than
/// a few. To be called before its runtime is made. Returns the number of threads for work that blocks which that needs; no more
/// than `threads_max` where there may be no others.
pub fn bound_devices(threads_max: Option<usize>) -> usize {
    let threads = threads_max.unwrap_or(CLIENT_BLOCKING_THREADS_MAX).min(CLIENT_BLOCKING_THREADS_MAX);
    share_devices(shares(threads));
    threads
}

/// The shares of a device where there are so many threads for work that blocks.
fn shares(threads: usize) -> DeviceShares {
    let usual = DeviceShares::default();
    // Where there are few, others take over from those that begin to wait.
    let room = threads.saturating_sub(CLIENT_BLOCKING_THREADS_SPARE).max(threads / 2).max(1);
    let part = |all: usize| Share { all: all.min(room), one: all.min(room) };
    let (operations, digests) = (part(CLIENT_DISK_OPERATIONS_MAX), part(usual.digests.all));
    DeviceShares { operations, digests, ..usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_something_however_few_threads_there_are() {
        for (threads, operations, digests) in [(1, 1, 1), (4, 2, 2), (CLIENT_BLOCKING_THREADS_MAX, 16, 4)] {
            let shares = shares(threads);
            assert_eq!((shares.operations.all, shares.digests.all), (operations, digests), "{threads}");
        }
    }
}
