//! What a library has once in the process of another program: a runtime.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_core::{Error, Result};
use gridlane_sys::process::{processors, with_signals_blocked};
use tokio::runtime::{Handle, Runtime};

/// Threads for connections, at most: the program has others to run.
const WORKERS_MAX: usize = 4;

/// The only lock here. It is held while threads begin, and by nothing that waits for another thread of the program.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// The runtime of this process, which the first call makes. Its threads have all signals blocked: these are for the program's
/// own, and it may die of SIGPIPE, which is sent to the thread that writes.
///
/// # Errors
///
/// `LocalIo` where no threads can begin.
pub fn guest_runtime() -> Result<Handle> {
    let mut runtime = lock();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let made = with_signals_blocked(|| crate::runtime(processors().min(WORKERS_MAX)))
        .map_err(|cause| Error::local_io("signals cannot be kept from the library's threads", &cause))??;
    Ok(runtime.insert(made).handle().clone())
}

/// The runtime of this process, if it has one already.
pub fn found_guest_runtime() -> Option<Handle> {
    lock().as_ref().map(|runtime| runtime.handle().clone())
}

/// In the child of a fork: has the next call make another runtime. The threads of the one before are not there, and its sockets
/// are the parent's as well, so that nothing of it is dropped. No thread may have been in a call of this module when it forked.
pub fn forget_guest_runtime() {
    std::mem::forget(lock().take());
}

fn lock() -> MutexGuard<'static, Option<Runtime>> {
    // A panic leaves nothing half-changed.
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_until_it_is_forgotten() {
        let (first, second) = (guest_runtime().unwrap(), guest_runtime().unwrap());
        assert_eq!(first.id(), second.id());
        assert_eq!(found_guest_runtime().unwrap().id(), first.id());
        assert!(first.metrics().num_workers() <= WORKERS_MAX);
        forget_guest_runtime();
        assert!(found_guest_runtime().is_none());
        assert_ne!(guest_runtime().unwrap().id(), first.id());
    }
}
