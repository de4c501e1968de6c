//! Arguments of Python as values.

use std::time::Duration;

use gridlane_client::typed_url;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use pyo3::prelude::*;

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
    typed_url(text).map_or_else(|_| "…".to_owned(), |url| url.to_string())
}
