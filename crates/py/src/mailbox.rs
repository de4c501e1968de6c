//! Where the runtime leaves the numbers of what has ended, for one event loop.
//!
//! The loop watches the descriptor as it watches a socket, and takes the numbers when it becomes readable. Nothing of Python is
//! touched by the thread that leaves a number.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use gridlane_core::{Error, Result};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::OrRaise;
use crate::process::lock;

/// The part that both sides hold.
pub(crate) struct Numbers {
    numbers: Mutex<Vec<u64>>,
    readable: OwnedFd,
}

impl Numbers {
    fn new() -> Result<Numbers> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|cause| Error::local_io("cannot make a descriptor for an event loop", &cause.into()))?;
        Ok(Numbers { numbers: Mutex::default(), readable })
    }

    /// Leaves a number.
    pub(crate) fn leave(&self, number: u64) {
        let is_first = {
            let mut numbers = lock(&self.numbers);
            numbers.push(number);
            numbers.len() == 1
        };
        // The others are taken with the first. It fails only where so many are left that it is readable in any case.
        if is_first {
            let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<u64> {
        // Emptied first: what is left from now on makes it readable again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.readable, &mut count);
        std::mem::take(&mut lock(&self.numbers))
    }
}

/// Where the ends of jobs are told, for one event loop.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Mailbox {
    shared: Arc<Numbers>,
}

impl Mailbox {
    pub(crate) fn shared(&self) -> Arc<Numbers> {
        Arc::clone(&self.shared)
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Mailbox> {
        Ok(Mailbox { shared: Arc::new(Numbers::new().or_raise(py)?) })
    }

    /// The descriptor that is readable while there are numbers.
    fn fileno(&self) -> i32 {
        self.shared.readable.as_raw_fd()
    }

    /// Takes the numbers.
    fn take(&self) -> Vec<u64> {
        self.shared.take()
    }
}
