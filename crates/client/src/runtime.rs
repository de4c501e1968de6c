//! Threads for a command, or for a module in another program: as many as it wants, or as there may be.
//!
//! Where a limit (`ulimit -u`, a container's `pids.max`) lets no thread begin, tokio panics, and what it was to do where
//! blocking is allowed may wait for ever. So it is tried first, which costs some ten microseconds for each thread.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use tokio::runtime::{Builder, Runtime};

/// Bytes of a thread's stack, as the main thread has. Only what is used of it takes memory; without optimization the state of a
/// copy that begins takes more than the 2 MiB which threads have otherwise.
const STACK_BYTES: usize = 8 << 20;
/// Threads beside those that serve connections: for what may block, and for lanes that have one of their own.
const OTHERS: usize = 4;
/// Time for which a thread that may block is kept where no other could begin: longer than any command runs.
const KEPT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A runtime with up to `wanted` threads for connections, fewer where there may be no more.
///
/// # Errors
///
/// `LocalIo` where not even two threads can begin.
pub fn runtime(wanted: usize) -> Result<Runtime> {
    let wanted = wanted.max(1);
    let may_be = begin(wanted + OTHERS);
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_stack_size(STACK_BYTES);
    if may_be == wanted + OTHERS {
        let blocking = crate::bound_devices(wanted, None);
        builder.worker_threads(wanted).max_blocking_threads(blocking);
        return builder.build().map_err(|cause| none(&cause.to_string()));
    }
    // One for connections, and one for what blocks.
    if may_be < 2 {
        return Err(none("a limit is reached"));
    }
    let workers = wanted.min(may_be - 1);
    let blocking = crate::bound_devices(workers, Some(may_be - workers));
    builder.worker_threads(workers).max_blocking_threads(blocking).thread_keep_alive(KEPT);
    let runtime = builder.build().map_err(|cause| none(&cause.to_string()))?;
    gridlane_engine::threads_are_few();
    // It begins now, and stays: later there may be no room for it.
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}

/// Number of threads, of `count`, that can be there at once. They have ended afterwards.
fn begin(count: usize) -> usize {
    let mut begun = Vec::new();
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    for _ in 0..count {
        let ended = ended.clone();
        // Nothing is ever sent: each ends when `end` is dropped.
        let wait = move || drop(ended.lock().map(|ended| ended.recv()));
        match thread::Builder::new().spawn(wait) {
            Ok(thread) => begun.push(thread),
            Err(_) => break,
        }
    }
    drop(end);
    let count = begun.len();
    begun.into_iter().for_each(|thread| drop(thread.join()));
    count
}

fn none(why: &str) -> Error {
    Error::new(ErrorKind::LocalIo, format!("no threads can be started: {why}"))
        .fault(Fault::Local)
        .hint("raise the limit of processes and threads (ulimit -u, pids.max), or end some")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_wanted_runs_where_there_is_no_limit() {
        assert_eq!(begin(3), 3);
        let runtime = runtime(2).unwrap();
        assert_eq!(runtime.metrics().num_workers(), 2);
        assert_eq!(runtime.block_on(async { tokio::task::spawn_blocking(|| 5).await.unwrap() }), 5);
    }
}
