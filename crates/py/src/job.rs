//! Work under way: one call of Python, waited for by a thread or by an event loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Result};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::raise;
use crate::mailbox::{Mailbox, Numbers};
use crate::process::{Own, drive, lock, runtime};

/// The time between two looks for signals of a thread that waits: too short to be noticed at Ctrl-C.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// The longest wait for a copy that was told to stop: it writes down what it has.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A result, before it is an object: made into one by a thread that holds the interpreter.
pub(crate) type Value = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
/// The work itself.
type Work = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

/// A result that becomes an object by `make`.
pub(crate) fn value(make: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static) -> Value {
    Box::new(make)
}

/// The result of what has none.
pub(crate) fn nothing() -> Value {
    value(|py| Ok(py.None()))
}

/// Tells of progress, from the work to the thread or the loop that waits for it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    /// Bytes that are there, and bytes in all if that is known.
    last: Option<(u64, Option<u64>)>,
    /// It was told since it was taken.
    is_news: bool,
    /// The mailbox for news.
    listener: Option<(Arc<Numbers>, u64)>,
}

impl Progress {
    /// So many bytes are there.
    pub(crate) fn tell(&self, done_bytes: u64, size_bytes: Option<u64>) {
        let mut told = lock(&self.0);
        let now = Some((done_bytes, size_bytes));
        if told.last == now {
            return;
        }
        told.last = now;
        let was_news = std::mem::replace(&mut told.is_news, true);
        if let Some((numbers, number)) = told.listener.as_ref().filter(|_| !was_news) {
            numbers.leave(*number);
        }
    }

    fn take(&self) -> Option<(u64, Option<u64>)> {
        let mut told = lock(&self.0);
        std::mem::take(&mut told.is_news).then_some(told.last).flatten()
    }
}

/// Tells work to stop, which then ends by itself. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<Notify>);

impl Stop {
    /// Completes when it was told.
    pub(crate) async fn told(self) {
        self.0.notified().await;
    }
}

/// The state of work.
enum State {
    /// It has not begun.
    Waiting(Work),
    /// A thread drives it, or the runtime.
    Driven,
    /// It has ended.
    Ended(Result<Value>),
    /// Its result was taken, or it was given up.
    Taken,
}

/// Work under way.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Job {
    state: Arc<Mutex<Own<State>>>,
    handle: Handle,
    progress: Progress,
    /// Work that is told to stop; other work is just dropped.
    stop: Option<Stop>,
    /// Ends what the runtime drives.
    given_up: Arc<Notify>,
}

impl Job {
    /// Work that begins when it is waited for or started.
    pub(crate) fn new(
        py: Python<'_>,
        work: impl Future<Output = Result<Value>> + Send + 'static,
    ) -> PyResult<Job> {
        Ok(Job {
            state: Arc::new(Mutex::new(Own::new(State::Waiting(Box::pin(work))))),
            handle: runtime(py)?,
            progress: Progress::default(),
            stop: None,
            given_up: Arc::default(),
        })
    }

    /// The same for work that tells of its progress, and ends by itself when it is told to.
    pub(crate) fn with(mut self, progress: Progress, stop: Stop) -> Job {
        (self.progress, self.stop) = (progress, Some(stop));
        self
    }

    /// Takes the state out if `wanted` likes it.
    fn take_if(&self, wanted: impl FnOnce(&State) -> bool, left: State) -> PyResult<State> {
        let mut own = lock(&self.state);
        match own.get() {
            None => Err(PyRuntimeError::new_err("a call that began before a fork ends in the parent only")),
            Some(state) if wanted(state) => match own.replace(left) {
                Some(state) => Ok(state),
                None => Err(PyRuntimeError::new_err("the call has ended")),
            },
            Some(_) => Err(PyRuntimeError::new_err("the call is waited for already, or has ended")),
        }
    }
}

#[pymethods]
impl Job {
    /// Waits for the result. Ctrl-C and other signals whose handlers raise end the work. `progress` is called by this thread.
    #[pyo3(signature = (progress=None))]
    fn wait(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let state = self.take_if(|state| matches!(state, State::Waiting(_)), State::Taken)?;
        let State::Waiting(mut work) = state else {
            return Err(PyRuntimeError::new_err("the call has ended"));
        };
        loop {
            let slice = async { timeout(SIGNALS_EVERY, &mut work).await };
            let ended = drive(py, &self.handle, slice);
            let told = || match (&progress, self.progress.take()) {
                (Some(progress), Some(told)) => progress.call1(py, told).map(drop),
                _ => Ok(()),
            };
            if let Ok(outcome) = ended {
                let made = outcome.map_err(|error| raise(py, &error)).and_then(|value| value(py))?;
                return told().map(|()| made);
            }
            if let Err(raised) = py.check_signals().and_then(|()| told()) {
                if let Some(stop) = &self.stop {
                    stop.0.notify_one();
                    let end = async { timeout(STOP_MAX, &mut work).await };
                    drop(drive(py, &self.handle, end));
                }
                return Err(raised);
            }
        }
    }

    /// Has the runtime do the work. Its end, and each progress, is `number` in `mailbox`.
    fn start(&self, mailbox: &Mailbox, number: u64) -> PyResult<()> {
        let state = self.take_if(|state| matches!(state, State::Waiting(_)), State::Driven)?;
        let State::Waiting(work) = state else { return Err(PyRuntimeError::new_err("the call has ended")) };
        lock(&self.progress.0).listener = Some((mailbox.shared(), number));
        // Also if the work panics: no wait may be for ever.
        let end = End { state: Arc::clone(&self.state), numbers: mailbox.shared(), number };
        let given_up = Arc::clone(&self.given_up);
        self.handle.spawn(async move {
            let end = end;
            tokio::select! {
                outcome = work => end.with(outcome),
                () = given_up.notified() => {}
            }
        });
        Ok(())
    }

    /// What was told of the progress since the last time: bytes that are there, and bytes in all.
    fn progress(&self) -> Option<(u64, Option<u64>)> {
        self.progress.take()
    }

    /// True when the result can be taken.
    fn is_done(&self) -> bool {
        matches!(lock(&self.state).get(), Some(State::Ended(_)))
    }

    /// Takes the result of what was started.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.take_if(|state| matches!(state, State::Ended(_)), State::Taken)? {
            State::Ended(outcome) => outcome.map_err(|error| raise(py, &error)).and_then(|value| value(py)),
            _ => Err(PyRuntimeError::new_err("the call has not ended")),
        }
    }

    /// Gives the work up, or tells it to stop if it does so by itself.
    fn cancel(&self) {
        // What the parent of a fork has begun is its own.
        if lock(&self.state).get().is_none() {
            return;
        }
        match &self.stop {
            Some(stop) => stop.0.notify_one(),
            None => self.given_up.notify_one(),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Sees to it that work which was started has an end.
struct End {
    state: Arc<Mutex<Own<State>>>,
    numbers: Arc<Numbers>,
    number: u64,
}

impl End {
    fn with(&self, outcome: Result<Value>) {
        lock(&self.state).replace(State::Ended(outcome));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let is_driven = matches!(lock(&self.state).get(), Some(State::Driven));
        if is_driven {
            self.with(Err(Error::new(ErrorKind::Interrupted, "the call was given up")));
        }
        self.numbers.leave(self.number);
    }
}
