//! Calls that are under way, and the queue of those that have something to tell.
//!
//! A call that has news is in its queue's list, by the `Waker` that the engine's reader was given; the descriptor is readable while the
//! list is not empty. The thread that takes asks the call itself for what has come, and copies.

use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result};
use gridlane_engine::reading::{Reading, Ready, RemoteFile};
use rustix::event::{EventfdFlags, eventfd};

use crate::handles::Handles;
use crate::memory::Buffer;

/// The queues that are open.
pub(crate) static QUEUES: Handles<Queue> = Handles::new(2, "queue");
/// The calls whose end was not taken yet.
pub(crate) static CALLS: Handles<Call> = Handles::new(3, "call");

/// Something that a call tells.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The caller's word for the call.
    pub(crate) tag: usize,
    /// The call's handle.
    pub(crate) call: usize,
    pub(crate) what: Told,
}

/// See [`Completion`].
#[derive(Debug)]
pub(crate) enum Told {
    /// A range is in its buffer, with so many bytes.
    Range { index: usize, got: usize },
    /// The call is over.
    End(Result<()>),
}

/// A queue of calls that have something to tell.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Something is in the list, or the queue is closed.
    changed: Condvar,
    readable: OwnedFd,
}

#[derive(Default)]
struct State {
    calls: HashMap<usize, Arc<Call>>,
    /// Handles of calls with news, each once.
    news: VecDeque<usize>,
    is_closed: bool,
}

/// A call under way.
pub(crate) struct Call {
    handle: usize,
    tag: usize,
    signal: Arc<Signal>,
    part: Mutex<Part>,
}

/// The part of a call that changes.
struct Part {
    /// `None` when it is over.
    reading: Option<Reading>,
    buffers: Vec<Buffer>,
    ready: VecDeque<Ready>,
    /// Its end, until it is told.
    end: Option<Result<()>>,
}

/// Puts a call into its queue's list.
struct Signal {
    handle: usize,
    queue: Weak<Queue>,
    is_in_list: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
}

impl Signal {
    fn raise(&self) {
        if let Some(queue) = self.queue.upgrade()
            && !self.is_in_list.swap(true, Ordering::AcqRel)
        {
            queue.push(self.handle);
        }
    }
}

impl Queue {
    /// An empty queue.
    pub(crate) fn new() -> Result<Queue> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|cause| Error::local_io("cannot make a descriptor for a queue", &cause.into()))?;
        Ok(Queue { state: Mutex::default(), changed: Condvar::new(), readable })
    }

    /// The descriptor that is readable while something can be taken.
    pub(crate) fn descriptor(&self) -> i32 {
        self.readable.as_raw_fd()
    }

    /// Begins a call; returns its handle.
    pub(crate) fn submit(
        self: &Arc<Queue>,
        file: &RemoteFile,
        ranges: &[ByteRange],
        buffers: Vec<Buffer>,
        timeout: Option<Duration>,
        tag: usize,
    ) -> Result<usize> {
        let handle = CALLS.reserve();
        let signal = Signal { handle, queue: Arc::downgrade(self), is_in_list: AtomicBool::new(false) };
        let part =
            Part { reading: Some(file.read(ranges, timeout)), buffers, ready: VecDeque::new(), end: None };
        let call = Arc::new(Call { handle, tag, signal: Arc::new(signal), part: Mutex::new(part) });
        CALLS.keep(handle, Arc::clone(&call));
        {
            let mut state = self.state();
            if state.is_closed {
                CALLS.remove(handle);
                return Err(closed());
            }
            state.calls.insert(handle, Arc::clone(&call));
        }
        // From here on it is woken; or it has something already.
        let mut part = call.part();
        if part.look(&call.signal) {
            drop(part);
            call.signal.raise();
        }
        Ok(handle)
    }

    /// Takes what calls have to tell, up to `count`; waits for the first for as long as `timeout`. Copies.
    pub(crate) fn take(&self, count: usize, timeout: Option<Duration>) -> Result<Vec<Completion>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut told = Vec::new();
        loop {
            let is_first = told.is_empty();
            let Some(call) = self.next(is_first, is_first.then_some(until).flatten())? else {
                return Ok(told);
            };
            // What is told to it from here on brings it into the list again.
            call.signal.is_in_list.store(false, Ordering::Release);
            let mut part = call.part();
            let mut is_over = false;
            while told.len() < count {
                match part.tell(&call.signal) {
                    None => break,
                    Some(what) => {
                        is_over = matches!(what, Told::End(_));
                        told.push(Completion { tag: call.tag, call: call.handle, what });
                    }
                }
            }
            let has_more = part.look(&call.signal);
            drop(part);
            if is_over {
                CALLS.remove(call.handle);
                self.state().calls.remove(&call.handle);
            }
            if has_more {
                call.signal.raise();
            }
            if told.len() >= count {
                return Ok(told);
            }
        }
    }

    /// The next call with news; `None` if there is none, at once or until a time.
    fn next(&self, may_wait: bool, until: Option<Instant>) -> Result<Option<Arc<Call>>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                // What this thread has taken before is told; the next time it hears of it.
                return if may_wait { Err(closed()) } else { Ok(None) };
            }
            while let Some(handle) = state.news.pop_front() {
                if state.news.is_empty() {
                    // Back to what is not readable, while nothing is added.
                    let _ = rustix::io::read(&self.readable, &mut [0; 8]);
                }
                if let Some(call) = state.calls.get(&handle) {
                    return Ok(Some(Arc::clone(call)));
                }
            }
            if !may_wait {
                return Ok(None);
            }
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn push(&self, handle: usize) {
        let mut state = self.state();
        state.news.push_back(handle);
        if state.news.len() == 1 {
            // It fails only where it is readable in any case.
            let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends all calls, and those that wait for news. When it returns nothing is written to buffers any more, whoever closes it as well or
    /// cancels one of its calls meanwhile: a call is known until it is cancelled.
    pub(crate) fn close(&self) {
        let calls: Vec<Arc<Call>> = {
            let mut state = self.state();
            state.is_closed = true;
            // It stays readable, for those that watch the descriptor.
            let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
            state.calls.values().cloned().collect()
        };
        self.changed.notify_all();
        for call in &calls {
            call.cancel();
        }
        for call in &calls {
            CALLS.remove(call.handle);
            self.state().calls.remove(&call.handle);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half-done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// Ends it, if it is not over: nothing is written to its buffers from now on.
    pub(crate) fn cancel(&self) {
        let mut part = self.part();
        let reading = part.reading.take();
        if reading.is_some() || !part.ready.is_empty() {
            part.ready.clear();
            part.end = Some(Err(Error::new(ErrorKind::Interrupted, "the call was cancelled")));
        }
        part.buffers.clear();
        drop(part);
        drop(reading);
        self.signal.raise();
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// True if there is something to tell; otherwise the signal is raised when there is.
    fn look(&mut self, signal: &Arc<Signal>) -> bool {
        if !self.ready.is_empty() || self.end.is_some() {
            return true;
        }
        let Some(reading) = &mut self.reading else { return false };
        let waker = Waker::from(Arc::clone(signal));
        let came = pin!(reading.next()).poll(&mut Context::from_waker(&waker));
        match came {
            Poll::Pending => return false,
            Poll::Ready(Ok(ready)) if !ready.is_empty() => self.ready = ready.into(),
            Poll::Ready(end) => {
                self.reading = None;
                self.end = Some(end.map(drop));
            }
        }
        true
    }

    /// The next thing that the call has to tell; its bytes are copied.
    fn tell(&mut self, signal: &Arc<Signal>) -> Option<Told> {
        if !self.look(signal) {
            return None;
        }
        if let Some(Ready { index, bytes }) = self.ready.pop_front() {
            let got = self.buffers.get_mut(index).map_or(0, |buffer| buffer.fill(&bytes));
            return Some(Told::Range { index, got });
        }
        self.end.take().map(Told::End)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Interrupted, "the queue was closed").fault(Fault::Caller)
}
