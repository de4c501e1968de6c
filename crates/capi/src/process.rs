//! The boundary of the library: no panic gets out, and no child of a fork gets in.
//!
//! A child could be served as Python's are (`crates/py/src/process.rs`), if a fork waited until our threads stand still. But forks of C
//! programs are made anywhere, by libraries too, in the middle of anything; and most of them call exec. So it is refused.

use std::panic::{self, AssertUnwindSafe, Location};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{cell::Cell, process};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::process::{is_forked, watch_forks};

/// The process that uses the library; 0: none does yet.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Forks are told from now on.
static READY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Where this thread has panicked, until it is told.
    static PANICKED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Does some work in the process that uses the library; what fails in it, panics too, is an error. In the child of a fork it is not
/// begun. It is called before anything is locked: what another thread of the parent had locked stays so in the child.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        enter()?;
        be_quiet();
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

/// Has panics written down and not printed. In a shared library this is for its own only, whose tests print them.
fn be_quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = cfg!(test).then(panic::take_hook);
        panic::set_hook(Box::new(move |panic| {
            PANICKED.set(panic.location().map(Location::to_string));
            if let Some(usual) = &usual {
                usual(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_its_place() {
        let error = guarded(|| -> Result<()> { panic!("number {}", 7) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert!(error.message().contains("number 7") && error.message().contains("process.rs:"), "{error}");
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
    }
}
