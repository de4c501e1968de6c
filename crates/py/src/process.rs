//! What a process has once: the runtime, and its end by a fork.
//!
//! The child of a fork has one thread. The runtime's other threads are not there, and its sockets and its poll are the parent's
//! as well. So the child drops nothing of it: everything of an earlier `generation` is forgotten, which costs some memory, and
//! made anew when it is needed.
//!
//! The fork itself waits until the runtime's workers stand still, and until no thread of Python is in the middle of a step of its
//! work, so that none of them is inside of a lock that the child would find taken for ever.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gridlane_client::{forget_guest_runtime, found_guest_runtime, guest_runtime};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::Handle;

use crate::error::OrRaise;

/// The longest time for which a fork waits until the workers stand still. One that computes for longer holds no lock meanwhile.
const STILL_MAX: Duration = Duration::from_millis(500);

/// The time between two looks whether a fork is over, or may begin.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Threads of Python that are in the middle of a step of work, without the interpreter. No lock: the child could find it taken.
static STEPS: AtomicUsize = AtomicUsize::new(0);
/// A fork is about to happen: no step begins.
static FORKS: AtomicBool = AtomicBool::new(false);
/// Number of forks that lie between this process and the one that loaded the module.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Ends the standstill of the workers.
static STILL: Mutex<Option<Arc<Standstill>>> = Mutex::new(None);

/// The number of the process in the line of forks: what has another one is the parent's.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// The runtime of this process, which is made by the first call. Its lock is taken by threads that hold the interpreter only, and
/// never while they let go of it, as any code of Python may: so it is free in the child of a fork, which such a thread has made.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<Handle> {
    guest_runtime().or_raise(py)
}

/// Lets go of the interpreter for a step that blocks, and that no fork interrupts.
pub(crate) fn step<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let _step = Step::begin();
        work()
    })
}

/// Drives work while others may run Python. No fork interrupts a step of it.
pub(crate) fn drive<T: Send>(py: Python<'_>, handle: &Handle, work: impl Future<Output = T> + Send) -> T {
    py.detach(|| handle.block_on(Stepwise(std::pin::pin!(work))))
}

/// A step of a thread's work, until this is dropped.
struct Step;

impl Step {
    fn begin() -> Step {
        loop {
            STEPS.fetch_add(1, Ordering::SeqCst);
            if !FORKS.load(Ordering::SeqCst) {
                return Step;
            }
            STEPS.fetch_sub(1, Ordering::SeqCst);
            sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        STEPS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Work each poll of which is a step.
struct Stepwise<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for Stepwise<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _step = Step::begin();
        self.0.as_mut().poll(context)
    }
}

/// Has Python tell of forks.
pub(crate) fn watch_forks(py: Python<'_>) -> PyResult<()> {
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_in_child, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks)).map(drop)
}

/// Workers that stand still: each holds its thread until the end.
struct Standstill {
    ended: Mutex<bool>,
    end: Condvar,
}

#[pyfunction]
fn before_fork() {
    FORKS.store(true, Ordering::SeqCst);
    let until = Instant::now() + STILL_MAX;
    hold_workers(until);
    while STEPS.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        sleep(LOOK_EVERY);
    }
}

/// Has the runtime's workers stand still, those that do before a moment.
fn hold_workers(until: Instant) {
    let Some(runtime) = found_guest_runtime() else { return };
    let still = Arc::new(Standstill { ended: Mutex::new(false), end: Condvar::new() });
    let workers = runtime.metrics().num_workers();
    let standing = Arc::new((Mutex::new(0_usize), Condvar::new()));
    for _ in 0..workers {
        let (still, standing) = (Arc::clone(&still), Arc::clone(&standing));
        // Each takes a worker for itself: one that stands still takes no second.
        runtime.spawn(async move {
            *lock(&standing.0) += 1;
            standing.1.notify_one();
            let mut ended = lock(&still.ended);
            while !*ended {
                ended = still.end.wait(ended).unwrap_or_else(PoisonError::into_inner);
            }
        });
    }
    let (count, changed) = &*standing;
    let mut count = lock(count);
    while *count < workers {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        count = changed.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    drop(count);
    *lock(&STILL) = Some(still);
}

#[pyfunction]
fn after_in_parent() {
    if let Some(still) = lock(&STILL).take() {
        *lock(&still.ended) = true;
        still.end.notify_all();
    }
    FORKS.store(false, Ordering::SeqCst);
}

#[pyfunction]
fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    forget_guest_runtime();
    std::mem::forget(lock(&STILL).take());
    STEPS.store(0, Ordering::SeqCst);
    FORKS.store(false, Ordering::SeqCst);
    gridlane_engine::forget_copies();
}

/// The value behind a lock: none here is left half-changed by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that belongs to one process in a line of forks: the child of a fork neither uses nor drops it.
pub(crate) struct Own<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> Own<T> {
    /// Belongs to this process.
    pub(crate) fn new(value: T) -> Own<T> {
        Own { generation: generation(), value: Some(value) }
    }

    /// The value, in the process that it belongs to.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// Puts another value there, in the process that it belongs to; returns the one before.
    pub(crate) fn replace(&mut self, value: T) -> Option<T> {
        match self.is_here() {
            true => self.value.replace(value),
            false => None,
        }
    }

    /// Takes the value out, in the process that it belongs to.
    pub(crate) fn take(&mut self) -> Option<T> {
        match self.is_here() {
            true => self.value.take(),
            false => None,
        }
    }

    fn is_here(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
