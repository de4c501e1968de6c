//! Errors as Python's own: the classes are those of `gridlane.errors`, which choose by kind and words.

use gridlane_core::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match made(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// An exception object for an error, as it also stands in the place of a result.
pub(crate) fn made<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let facts = PyDict::new(py);
    facts.set_item("kind", error.kind().name())?;
    facts.set_item("message", error.message())?;
    facts.set_item("text", error.to_string())?;
    facts.set_item("fault", error.whose_fault().name())?;
    facts.set_item("endpoint", error.endpoint_text())?;
    facts.set_item("hint", error.advice().map(ToString::to_string))?;
    facts.set_item("hint_name", error.advice().map(|hint| hint.name()))?;
    facts.set_item("retryable", error.is_retryable())?;
    facts.set_item("http_status", error.status())?;
    facts.set_item("no_space", error.is_no_space())?;
    py.import("gridlane.errors")?.call_method("_made", (), Some(&facts))
}

/// The same for results.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for gridlane_core::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
