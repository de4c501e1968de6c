//! What a process has once: the runtime, and its end by a fork.

use std::panic::{self, AssertUnwindSafe, Location};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::{cell::Cell, process};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::process::{is_forked, processors, watch_forks, with_signals_blocked};
use tokio::runtime::{Handle, Runtime};

/// Threads for connections, at most: the program has others to run.
const WORKERS_MAX: usize = 4;

/// The process that uses the library; 0: none does yet.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Forks are told from now on.
static READY: AtomicBool = AtomicBool::new(false);
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

thread_local! {
    /// Where this thread has panicked, until it is told.
    static PANICKED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Does some work in the process that uses the library; what fails in it, panics too, is an error. In the child of a fork it is not
/// begun. It is called before anything is locked: what another thread of the parent had locked stays so in the child.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        enter()?;
        work()
    }));
    caught.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        // What was thrown is anything, and to drop it may throw again.
        std::mem::forget(payload);
        let place = PANICKED.take().unwrap_or_default();
        Err(Error::new(ErrorKind::Other, format!("a defect in the library at {place}: {text}")))
    })
}

/// Refuses the child of a fork.
fn enter() -> Result<()> {
    if !READY.load(Ordering::Acquire) {
        // Nothing here waits for another thread: in a child that thread may not be there. Two of them may do it twice.
        let here = process::id();
        match OWNER.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire) {
            Err(owner) if owner != here => return Err(forked()),
            _ => {}
        }
        watch_forks().map_err(|cause| Error::local_io("the library cannot be told of forks", &cause))?;
        READY.store(true, Ordering::Release);
    }
    if is_forked() { Err(forked()) } else { Ok(()) }
}

fn forked() -> Error {
    let message = "this process was forked from one that uses the library, which stays with its parent";
    let hint = "open files in the child only if the parent has used the library for nothing before the fork";
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(hint)
}

/// The runtime, which is made by the first call.
pub(crate) fn runtime() -> Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    be_quiet();
    let workers = processors().min(WORKERS_MAX);
    // Signals are for the program's own threads. And it may die of SIGPIPE, which is sent to the thread that writes.
    let made = with_signals_blocked(|| gridlane_client::runtime(workers))
        .map_err(|cause| Error::local_io("signals cannot be kept from the library's threads", &cause))??;
    let handle = made.handle().clone();
    *runtime = Some(made);
    Ok(handle)
}

/// Has panics written down and not printed. In a shared library this is for its own only.
fn be_quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        panic::set_hook(Box::new(|panic| {
            PANICKED.set(panic.location().map(Location::to_string));
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_its_place() {
        be_quiet();
        let error = guarded(|| -> Result<()> { panic!("number {}", 7) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert!(error.message().contains("number 7") && error.message().contains("process.rs:"), "{error}");
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
    }
}
