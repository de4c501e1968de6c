//! Arguments of Python as values.

use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use pyo3::prelude::*;

/// A URL, or a path of this machine.
pub(crate) fn parse(text: &str) -> Result<Url> {
    let here = std::env::current_dir()
        .map_err(|cause| Error::local_io("cannot tell the current directory", &cause))?;
    Url::parse(text, &here)
}

/// A time in seconds.
pub(crate) fn seconds(count: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(count).map_err(|_| {
        Error::new(ErrorKind::Usage, format!("{count} is no time in seconds")).fault(Fault::Caller)
    })
}

/// A URL for messages and representations: without the password, and without the query, which may have a token.
#[pyfunction]
pub(crate) fn shown(text: &str) -> String {
    // What is no URL may be one with a mistake, and a password.
    parse(text).map_or_else(|_| "…".to_owned(), |url| url.to_string())
}
