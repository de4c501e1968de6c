//! The Python module `gridlane._gridlane`: what the package `gridlane` (`python/`) is made of.
//!
//! Thin on purpose: it turns arguments into calls of `gridlane-client` and of the engine's reader, and results and errors into
//! objects. What can be said in Python is said there.
//!
//! ```text
//!  a thread of Python ──call──▶ Job ──┬─ wait()      driven by that thread, which has let go of the interpreter
//!                                     └─ start(m, n) driven by the runtime's threads; its end is number n in mailbox m
//!  an event loop ◀──readable── eventfd of the Mailbox ◀──n── runtime
//! ```
//!
//! The runtime's threads never run Python and never wait for it: no destructor and no garbage collector of Python can be met
//! there, so that neither can wait for what that thread should do. What ends on them is a number in a `mailbox`, whose file
//! descriptor the event loop watches as it does any socket; the loop's own thread makes the objects.
//!
//! A process that forks leaves the runtime to its parent (`process`): the child makes its own, and what was open is opened
//! again.
//!
//! Read first: `process`, `job`, then `client` and `file`.

mod arguments;
mod client;
mod copying;
mod error;
mod file;
mod job;
mod mailbox;
mod process;
mod upload;

use pyo3::prelude::*;

/// The native part of the package `gridlane`, which is its only user.
#[pymodule]
mod _gridlane {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::file::{Buffer, File, Position, Ranges};
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::mailbox::Mailbox;

    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arguments::shown;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::process::watch_forks(module.py())
    }
}
