//! The threads of a process that copies: as many as its devices may hold.

use gridlane_core::limits::{
    CLIENT_BLOCKING_THREADS_SPARE, CLIENT_DEVICES_MAX, CLIENT_DIGESTS_MIN, CLIENT_DISK_OPERATIONS_MAX,
    CLIENT_DISK_OPERATIONS_MIN, CLIENT_DISK_OPERATIONS_PER_THREAD, DIGESTS_RUNNING_MAX, LANE_THREADS_MAX,
};
use gridlane_share::budget::Share;
use gridlane_share::turns::DeviceShares;
use gridlane_store::{names_of, share_devices};

/// Bounds how many operations of this process wait for one device at the same time: a thousand copies hold no more threads than
/// a few. To be called before its runtime is made, which has `workers` threads for connections. Returns the number of threads for
/// work that blocks which that needs, so that devices that hang leave some to the others; no more than `threads_max` where there
/// may be no others.
pub fn bound_devices(workers: usize, threads_max: Option<usize>) -> usize {
    let (shares, threads) = shares(workers, threads_max);
    share_devices(shares);
    threads
}

/// The shares of a device, and the threads for work that blocks.
fn shares(workers: usize, threads_max: Option<usize>) -> (DeviceShares, usize) {
    let operations = workers.saturating_mul(CLIENT_DISK_OPERATIONS_PER_THREAD);
    let operations = operations.clamp(CLIENT_DISK_OPERATIONS_MIN, CLIENT_DISK_OPERATIONS_MAX);
    let digests = workers.clamp(CLIENT_DIGESTS_MIN, DIGESTS_RUNNING_MAX);
    let devices = CLIENT_DEVICES_MAX * (operations + digests) + names_of(operations);
    let wanted = devices + LANE_THREADS_MAX + CLIENT_BLOCKING_THREADS_SPARE;
    let threads = threads_max.unwrap_or(wanted).min(wanted);
    // Where there are few, others take over from those that begin to wait.
    let room = threads.saturating_sub(CLIENT_BLOCKING_THREADS_SPARE).max(threads / 2).max(1);
    let part = |all: usize| Share { all: all.min(room), one: all.min(room) };
    let shares =
        DeviceShares { operations: part(operations), digests: part(digests), ..DeviceShares::default() };
    (shares, threads)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::Duration;

    use gridlane_share::Turns;

    use super::*;

    #[test]
    fn each_device_has_something_however_few_threads_there_are() {
        for (threads, operations, digests) in [(1, 1, 1), (4, 2, 2), (8, 4, 2), (1000, 4, 2)] {
            let shares = shares(2, Some(threads)).0;
            assert_eq!((shares.operations.all, shares.digests.all), (operations, digests), "{threads}");
        }
    }

    /// With two threads that serve connections, and the three of whatever starts it, a process has at most 32.
    #[test]
    fn threads_for_what_blocks_grow_with_those_for_connections() {
        let found = [1, 2, 4, 8, 100].map(|workers| {
            let (shares, threads) = shares(workers, None);
            (shares.operations.all, shares.digests.all, threads)
        });
        assert_eq!(found, [(4, 2, 26), (4, 2, 26), (8, 4, 46), (16, 4, 74), (16, 4, 74)]);
    }

    /// Three devices hang, with the names of files, and every lane has its thread: a fourth device, and what else blocks, go on.
    #[test]
    fn three_devices_that_hang_leave_threads_to_others() {
        let (shares, threads) = shares(2, None);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).max_blocking_threads(threads).build().unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        // More than there are turns for.
        let hang = |turns: &Arc<Turns>| {
            for _ in 0..2 * shares.operations.all {
                let (turns, wait) = (turns.clone(), wait.clone());
                runtime.spawn(async move { turns.run(|| drop(wait.lock().map(|wait| wait.recv()))).await });
            }
        };
        let on_thread = || {
            let wait = wait.clone();
            runtime.spawn_blocking(move || drop(wait.lock().map(|wait| wait.recv())))
        };
        let names = DeviceShares {
            operations: Share { all: names_of(shares.operations.all), one: names_of(shares.operations.one) },
            ..shares
        };
        let mut devices = vec![Arc::new(Turns::new(names))];
        devices.resize_with(1 + CLIENT_DEVICES_MAX, || Arc::new(Turns::new(shares)));
        devices.iter().for_each(hang);
        let digests = CLIENT_DEVICES_MAX * shares.digests.all;
        let _threads: Vec<_> = (0..digests + LANE_THREADS_MAX).map(|_| on_thread()).collect();
        let other = Turns::new(shares);
        let (tell, told) = mpsc::channel();
        let held: Vec<usize> = devices.iter().map(|turns| turns.budget().share().all).collect();
        let ask = async move {
            while devices.iter().map(|turns| turns.running()).ne(held.iter().copied()) {
                tokio::task::yield_now().await;
            }
            let looked_up = tokio::task::spawn_blocking(|| 3).await.unwrap();
            let _ = tell.send(other.run(|| 4).await + looked_up);
        };
        runtime.spawn(ask);
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(7));
        drop(release);
    }
}
