//! Names for what the library keeps for a caller.
//!
//! A handle is a number in the shape of a pointer. It is looked up in a table, is never used again, and has its kind in its last
//! bits. So one that was closed, or is none, is told from one that is open, whatever other threads do meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use gridlane_core::{Error, ErrorKind, Fault, Result};

/// Kinds have room below the count.
const KINDS: usize = 16;

/// The things of one kind.
pub(crate) struct Handles<T> {
    kind: usize,
    what: &'static str,
    next: AtomicUsize,
    open: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    /// A table of one kind, which is a number from 1 on that no other table has; `what` is its name in errors.
    pub(crate) const fn new(kind: usize, what: &'static str) -> Handles<T> {
        assert!(kind > 0 && kind < KINDS);
        Handles { kind, what, next: AtomicUsize::new(1), open: RwLock::new(BTreeMap::new()) }
    }

    /// A handle that no other thing has had.
    pub(crate) fn reserve(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(KINDS) | self.kind
    }

    /// Keeps a thing under a handle that was reserved for it.
    pub(crate) fn keep(&self, handle: usize, thing: Arc<T>) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(handle, thing);
    }

    /// Keeps a thing; returns its handle.
    pub(crate) fn add(&self, thing: Arc<T>) -> usize {
        let handle = self.reserve();
        self.keep(handle, thing);
        handle
    }

    /// The thing of a handle.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or_else(|| {
            let message = match handle {
                0 => format!("the {} is NULL", self.what),
                _ => format!("the {} is closed, or is none", self.what),
            };
            Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
        })
    }

    /// Gives a handle up.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_one_kind_and_is_not_used_again() {
        static FILES: Handles<&str> = Handles::new(1, "file");
        static QUEUES: Handles<&str> = Handles::new(2, "queue");
        let (file, queue) = (FILES.add(Arc::new("f")), QUEUES.add(Arc::new("q")));
        assert_eq!(*FILES.get(file).unwrap(), "f");
        assert_eq!(*QUEUES.get(queue).unwrap(), "q");
        assert!(QUEUES.get(file).unwrap_err().message().contains("the queue is closed"));
        assert!(FILES.get(0).unwrap_err().message().contains("the file is NULL"));
        assert!(FILES.remove(file).is_some());
        assert!(FILES.remove(file).is_none());
        assert!(FILES.get(file).is_err());
        assert!(FILES.add(Arc::new("g")) > file);
    }
}
