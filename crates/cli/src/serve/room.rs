//! How much a server can have at once, by what the process may: connections and open files by the number of its
//! descriptors, and threads.

use std::io;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread::JoinHandle;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use gridlane_server::Settings;
use gridlane_share::turns::blocking_threads;
use gridlane_share::{DeviceShares, Share};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::timeout;

/// The work of a thread that is tried.
type Work = Box<dyn FnOnce() + Send>;

/// Lets the process have as many files open as it may; returns how many, `None` when there is no limit.
pub(super) fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Some systems allow less than they say; then what was there stays.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// The counts for which so many descriptors are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) connections: usize,
    /// Open over root://, of all clients together.
    pub(super) files: usize,
}

impl Room {
    /// `None`: there is no limit.
    pub(super) fn of(descriptors: Option<u64>) -> Room {
        let most = Room { connections: usize::MAX, files: limits::ROOT_OPEN_FILES_MAX };
        let Some(descriptors) = descriptors else { return most };
        let kept = (descriptors / 8).clamp(limits::DESCRIPTORS_KEPT_MIN, limits::DESCRIPTORS_KEPT);
        let left = usize::try_from(descriptors.saturating_sub(kept)).unwrap_or(usize::MAX);
        let parts = usize::try_from(limits::DESCRIPTORS_PER_CONNECTION).unwrap_or(1);
        Room { connections: left / parts, files: most.files.min(left / 2) }
    }

    /// Has the server keep to it. Fails when it is not enough for anything.
    pub(super) fn apply(
        self,
        settings: &mut Settings,
        files_of_client: Option<u32>,
        descriptors: Option<u64>,
    ) -> Result<()> {
        if self.connections < limits::CONNECTIONS_MIN {
            let least = limits::DESCRIPTORS_KEPT_MIN
                + limits::CONNECTIONS_MIN as u64 * limits::DESCRIPTORS_PER_CONNECTION;
            let (may, few) = (descriptors.unwrap_or_default(), limits::CONNECTIONS_MIN);
            let what = format!(
                "the process may have {may} files open, and a server of {few} connections needs {least}"
            );
            return Err(Error::new(ErrorKind::LocalIo, what)
                .fault(Fault::Caller)
                .hint("allow it more: `ulimit -n`, or LimitNOFILE= of its unit"));
        }
        settings.connections_max = settings.connections_max.min(self.connections);
        if let Some(threads) = THREADS.get() {
            // As many may hang as there are threads beside those that others need.
            settings.service.device = device_shares(*threads, settings.service.devices());
        }
        let files = &mut settings.shares.open_files;
        *files = Share::of(self.files);
        if let Some(one) = files_of_client {
            files.one = usize::try_from(one).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    /// A line about each that is less than was asked for.
    pub(super) fn warnings(self, settings: &Settings, asked: usize, descriptors: Option<u64>) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(descriptors) = descriptors.filter(|_| self.connections < asked) {
            lines.push(format!(
                "gridlane: at most {} connections instead of {asked}, and {} open files over root://: the process may \
                 have {descriptors} files open (ulimit -n, LimitNOFILE=)",
                self.connections, self.files,
            ));
        }
        let operations = settings.service.device.operations.all;
        if let Some(threads) = THREADS.get().filter(|_| operations < limits::DISK_OPERATIONS_MAX) {
            lines.push(format!(
                "gridlane: at most {operations} operations of each disk at the same time: the process may have {threads} \
                 threads for them and for checksums instead of {} (ulimit -u, TasksMax=)",
                blocking_threads(settings.service.devices()),
            ));
        }
        lines
    }
}

/// The bounds of each of so many devices where there are so many threads for all work that blocks.
fn device_shares(threads: usize, devices: usize) -> DeviceShares {
    let full = DeviceShares::default();
    if threads >= blocking_threads(devices) {
        return full;
    }
    let (devices, left) = (devices.max(1), threads.saturating_sub(limits::BLOCKING_THREADS_KEPT));
    let operations = (left / devices).clamp(2, limits::DISK_OPERATIONS_MAX);
    // Checksums have threads among those that are kept.
    let digests = (limits::DIGESTS_RUNNING_MAX / devices).max(1);
    DeviceShares { operations: Share::of(operations), digests: Share::of(digests), ..full }
}

/// Threads of a server beside those of its runtime: two logs, one that speaks to people, and one to spare.
const OTHER_THREADS: usize = 4;

/// Threads for work that blocks that this process can have.
static THREADS: OnceLock<usize> = OnceLock::new();

/// The threads of a server's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    /// For work that blocks, at most.
    pub(crate) blocking: usize,
    /// Those of them that are begun at the start, and kept.
    pub(crate) kept: usize,
}

impl Threads {
    /// The threads that the process can have beside `workers` that serve connections, for so many devices. Fails when
    /// that is too little: a runtime that lacks a thread neither works nor says so.
    pub(crate) fn to_be_had(workers: usize, devices: usize) -> Result<Threads> {
        let threads = Threads::by(workers, devices, |work| std::thread::Builder::new().spawn(work))?;
        // There is one server in a process.
        let _ = THREADS.set(threads.blocking);
        Ok(threads)
    }

    fn by(
        workers: usize,
        devices: usize,
        mut spawn: impl FnMut(Work) -> io::Result<JoinHandle<()>>,
    ) -> Result<Threads> {
        let others = workers + OTHER_THREADS;
        let wanted = blocking_threads(devices.min(limits::DEVICES_MAX));
        let gate = Arc::new(Mutex::new(()));
        let (mut begun, mut cause) = (Vec::new(), None);
        let held = gate.lock();
        while begun.len() < others + wanted {
            let gate = Arc::clone(&gate);
            match spawn(Box::new(move || drop(gate.lock()))) {
                Ok(thread) => begun.push(thread),
                Err(why) => {
                    cause = Some(why);
                    break;
                }
            }
        }
        drop(held);
        let had = begun.len();
        for thread in begun {
            // It does nothing that could fail.
            let _ = thread.join();
        }
        match cause {
            None => Ok(Threads { blocking: wanted, kept: limits::BLOCKING_THREADS_KEPT }),
            Some(why) if had < others + limits::BLOCKING_THREADS_MIN => {
                Err(too_few(had, others + limits::BLOCKING_THREADS_MIN, &why))
            }
            // Later there may be fewer.
            Some(_) => Ok(Threads { blocking: had - others, kept: had - others }),
        }
    }
}

/// The advice where no thread can be had.
pub(super) const MORE_THREADS: &str =
    "allow it more: `ulimit -u`, TasksMax= of its unit, or the limit of its container (pids.max)";

fn too_few(number: usize, count: usize, cause: &io::Error) -> Error {
    let what = format!("a server needs {count} threads, and only {number} can be had: {cause}");
    Error::new(ErrorKind::LocalIo, what).fault(Fault::Caller).hint(MORE_THREADS)
}

/// Has the runtime begin threads that it keeps for work that blocks: later there may be none to be had.
pub(crate) async fn keep_threads(count: usize) -> Result<()> {
    let all = Arc::new(Barrier::new(count));
    let begun: Vec<_> = (0..count)
        .map(|_| {
            let all = Arc::clone(&all);
            tokio::task::spawn_blocking(move || {
                all.wait();
            })
        })
        .collect();
    let together = async {
        for one in begun {
            // It does nothing that could fail.
            let _ = one.await;
        }
    };
    timeout(limits::THREADS_BEGIN_MAX, together)
        .await
        .map_err(|_| too_few(0, count, &io::Error::from(io::ErrorKind::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn descriptors_are_shared_out() {
        for (descriptors, connections, files) in [
            (None, usize::MAX, 16_384),
            (Some(1 << 20), 262_128, 16_384),
            (Some(65_536), 16_368, 16_384),
            (Some(20_000), 4984, 9968),
            (Some(1024), 240, 480),
            (Some(64), 10, 20),
            (Some(40), 4, 8),
            (Some(10), 0, 0),
        ] {
            assert_eq!(Room::of(descriptors), Room { connections, files }, "{descriptors:?}");
        }
    }

    #[test]
    fn with_too_few_descriptors_nothing_is_served() {
        let mut settings = Settings::new(Vec::new(), Default::default());
        Room::of(Some(1024)).apply(&mut settings, Some(7), Some(1024)).unwrap();
        assert_eq!(settings.connections_max, 240);
        assert_eq!(settings.shares.open_files, Share { all: 480, one: 7 });
        let error = Room::of(Some(32)).apply(&mut settings, None, Some(32)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LocalIo);
        assert!(error.to_string().contains("may have 32 files open"), "{error}");
        assert!(Room::of(Some(1024)).warnings(&settings, 100, Some(1024)).is_empty());
        let told = Room::of(Some(64)).warnings(&settings, 4096, Some(64)).join("\n");
        assert!(told.contains("at most 10 connections instead of 4096, and 20 open files"), "{told}");
    }

    #[test]
    fn threads_that_cannot_be_had_are_reported() {
        let up_to = |most: usize| {
            let begun = AtomicUsize::new(0);
            Threads::by(2, 1, |work| match begun.fetch_add(1, Ordering::SeqCst) < most {
                true => std::thread::Builder::new().spawn(work),
                false => Err(io::ErrorKind::WouldBlock.into()),
            })
        };
        let (most, kept) = (limits::BLOCKING_THREADS_MAX, limits::BLOCKING_THREADS_KEPT);
        assert_eq!(up_to(1000).unwrap(), Threads { blocking: most, kept });
        // What is there is taken while it is there.
        assert_eq!(up_to(46).unwrap(), Threads { blocking: 40, kept: 40 });
        assert_eq!(device_shares(40, 1).operations, Share { all: 32, one: 8 });
        assert_eq!(device_shares(most, 1), DeviceShares::default());
        // More devices than there were at the start have what there is for them.
        assert_eq!(device_shares(most, 3).operations, Share { all: 40, one: 10 });
        assert_eq!(device_shares(blocking_threads(3), 3), DeviceShares::default());
        let error = up_to(21).unwrap_err();
        assert!(error.to_string().contains("needs 22 threads, and only 21 can be had"), "{error}");
    }

    #[test]
    fn kept_threads_are_there_at_the_same_time() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(keep_threads(limits::BLOCKING_THREADS_KEPT)).unwrap();
    }
}
