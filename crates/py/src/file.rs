//! An open remote file: reads by the engine's reader, which begin at once and are complete range by range.
//!
//! Bytes are handed over in one of two ways. As `bytes`, which copies them once; or as a `Buffer`, which is the reader's own
//! memory: the package makes a read-only `memoryview` of it. (The buffer protocol is in the stable binary interface from Python
//! 3.11 on only, so that it cannot be had here for 3.9.)

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use gridlane_client::events::ReadRecord;
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Url};
use gridlane_engine::reading::{ReadOptions, Reading, Ready, RemoteFile};
use gridlane_peer::Client;
use gridlane_read::{Hint, Settings};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::arguments::seconds;
use crate::error::{OrRaise, raise};
use crate::job::{Job, SIGNALS_EVERY, value};
use crate::process::{Own, drive, lock, runtime, step};

/// Opens a file, as a job whose result is a `File`.
pub(crate) fn open(py: Python<'_>, sources: Vec<Url>, client: Client, settings: Settings) -> PyResult<Job> {
    let options = ReadOptions { settings, ..ReadOptions::default() };
    let handle = runtime(py)?;
    Job::new(py, async move {
        let remote = RemoteFile::open(sources, client, options).await?;
        Ok(value(move |py| {
            let size_bytes = remote.size_bytes();
            let file = File { remote: Mutex::new(Own::new(Some(remote))), size_bytes, handle };
            Ok(Py::new(py, file)?.into_any())
        }))
    })
}

/// A remote file that is open for reading, in the process that opened it.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct File {
    /// `None` when it was closed.
    remote: Mutex<Own<Option<RemoteFile>>>,
    size_bytes: u64,
    handle: Handle,
}

#[pymethods]
impl File {
    /// Bytes of the file.
    #[getter]
    fn size(&self) -> u64 {
        self.size_bytes
    }

    /// False in the child of a fork, where it has to be opened again.
    fn is_here(&self) -> bool {
        lock(&self.remote).get().is_some()
    }

    /// Reads up to `length` bytes from `offset` on; fewer at the end of the file only.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
        timeout_s: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.waited(py, &[(offset, length)], timeout_s)?;
        let bytes = found.first().ok_or_else(|| PyRuntimeError::new_err("a read without an answer"))?;
        Ok(PyBytes::new(py, bytes))
    }

    /// Reads many ranges, each `(offset, length)`, in one call; as `bytes`, or as buffers.
    fn readv<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
        timeout_s: Option<f64>,
        as_buffers: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let found = self.waited(py, &ranges, timeout_s)?;
        listed(py, found, as_buffers)
    }

    /// The same as a job, for an event loop. The read has begun.
    fn readv_job(
        &self,
        py: Python<'_>,
        ranges: Vec<(u64, u64)>,
        timeout_s: Option<f64>,
        as_buffers: bool,
    ) -> PyResult<Job> {
        let reading = self.begin(py, &ranges, timeout_s)?;
        Job::new(py, async move {
            let found = reading.all().await?;
            Ok(value(move |py| Ok(listed(py, found, as_buffers)?.into_any().unbind())))
        })
    }

    /// The same for slices of the file, each from a start to before an end, as Python means them: from the end where they are
    /// negative, to the edge where they are `None`.
    fn slices_job(
        &self,
        py: Python<'_>,
        starts: Vec<Option<i64>>,
        ends: Vec<Option<i64>>,
        timeout_s: Option<f64>,
        as_buffers: bool,
    ) -> PyResult<Job> {
        let both = starts.into_iter().zip(ends);
        let ranges = both.map(|(start, end)| slice(start, end, self.size_bytes)).collect();
        self.readv_job(py, ranges, timeout_s, as_buffers)
    }

    /// The same, to be taken as they come.
    fn ranges(&self, py: Python<'_>, ranges: Vec<(u64, u64)>, timeout_s: Option<f64>) -> PyResult<Ranges> {
        let reading = self.begin(py, &ranges, timeout_s)?;
        Ok(Ranges { reading: Mutex::new(Own::new(Some(reading))), handle: self.handle.clone() })
    }

    /// Tells of reads to come: `soon` and `keep` with ranges, `everything`, `random`.
    fn hint(&self, py: Python<'_>, about: &str, ranges: Vec<(u64, u64)>) -> PyResult<()> {
        let ranges = ranges.into_iter().map(|(offset, length)| ByteRange::at(offset, length));
        let hints = match about {
            "soon" => vec![Hint::Soon(ranges.collect())],
            "keep" => ranges.map(Hint::Keep).collect(),
            "everything" => vec![Hint::Everything],
            "random" => vec![Hint::Random],
            _ => return Err(PyValueError::new_err(format!("there is no hint {about:?}"))),
        };
        let remote = self.remote(py)?;
        hints.into_iter().for_each(|hint| remote.hint(hint));
        Ok(())
    }

    /// The record of what was decided, and why: figures, and a text of them.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let text = ReadRecord::of(&self.remote(py)?).to_json();
        Ok(py.import("json")?.call_method1("loads", (text,))?.cast_into()?)
    }

    /// Ends reads that are under way; later ones fail.
    fn close(&self) {
        let mut own = lock(&self.remote);
        if let Some(remote) = own.replace(None).flatten() {
            remote.close();
        }
    }
}

impl File {
    fn remote(&self, py: Python<'_>) -> PyResult<RemoteFile> {
        // The lock is free again when an exception is made: that runs Python, which may let go of the interpreter.
        let found = lock(&self.remote).get().cloned();
        match found {
            Some(Some(remote)) => Ok(remote),
            Some(None) => Err(PyValueError::new_err("I/O operation on closed file.")),
            None => {
                let message = "a file that was opened before a fork has to be opened again";
                Err(raise(py, &Error::new(ErrorKind::Usage, message).fault(Fault::Caller)))
            }
        }
    }

    fn begin(&self, py: Python<'_>, ranges: &[(u64, u64)], timeout_s: Option<f64>) -> PyResult<Reading> {
        let ranges: Vec<ByteRange> =
            ranges.iter().map(|(offset, length)| ByteRange::at(*offset, *length)).collect();
        let timeout = timeout_s.map(seconds).transpose().or_raise(py)?;
        let remote = self.remote(py)?;
        // It does not block, but it may have many ranges to sort.
        Ok(step(py, || remote.read(&ranges, timeout)))
    }

    /// Reads, and waits with an eye on signals.
    fn waited(&self, py: Python<'_>, ranges: &[(u64, u64)], timeout_s: Option<f64>) -> PyResult<Vec<Bytes>> {
        let mut all = std::pin::pin!(self.begin(py, ranges, timeout_s)?.all());
        // What is in memory is there at the first look.
        let found = match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => wait(py, &self.handle, all)?,
        };
        found.or_raise(py)
    }
}

/// Where the next read of a file begins. Each change is one call, during which no other thread runs Python: so that there is no lock,
/// which the child of a fork could find taken.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Position(AtomicU64);

#[pymethods]
impl Position {
    #[new]
    fn new() -> Position {
        Position(AtomicU64::new(0))
    }

    /// The position itself.
    fn tell(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Moves it as `io.IOBase.seek` does, in a file of `size` bytes; returns where it is then.
    fn seek(&self, offset: i64, whence: i32, size: u64) -> PyResult<u64> {
        let base = match whence {
            0 => 0,
            1 => self.tell(),
            2 => size,
            _ => {
                return Err(PyValueError::new_err(format!("invalid whence ({whence}, should be 0, 1 or 2)")));
            }
        };
        let to = base
            .checked_add_signed(offset)
            .ok_or_else(|| PyValueError::new_err("a position before the beginning of the file"))?;
        self.0.store(to, Relaxed);
        Ok(to)
    }

    /// The next `length` bytes, or all, of a file of `size` bytes: where they begin, and how many there are. Moves it behind them.
    fn advance(&self, length: Option<u64>, size: u64) -> (u64, u64) {
        let offset = self.tell();
        let left = size.saturating_sub(offset);
        let length = length.map_or(left, |length| length.min(left));
        self.0.store(offset + length, Relaxed);
        (offset, length)
    }

    /// Moves it back in front of bytes that could not be read, unless another thread has moved it.
    fn back(&self, offset: u64, length: u64) {
        let _ = self.0.compare_exchange(offset + length, offset, Relaxed, Relaxed);
    }
}

/// Offset and length of a slice, cut at both ends of the file.
fn slice(start: Option<i64>, end: Option<i64>, size_bytes: u64) -> (u64, u64) {
    let place = |at: i64| match u64::try_from(at) {
        Ok(at) => at.min(size_bytes),
        Err(_) => size_bytes.saturating_sub(at.unsigned_abs()),
    };
    let start = start.map_or(0, place);
    (start, end.map_or(size_bytes, place).saturating_sub(start))
}

/// Waits for something while others may run Python, with an eye on signals.
fn wait<T: Send>(py: Python<'_>, handle: &Handle, work: impl Future<Output = T> + Send) -> PyResult<T> {
    let mut work = std::pin::pin!(work);
    loop {
        let slice = async { timeout(SIGNALS_EVERY, &mut work).await };
        if let Ok(done) = drive(py, handle, slice) {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

fn listed(py: Python<'_>, found: Vec<Bytes>, as_buffers: bool) -> PyResult<Bound<'_, PyList>> {
    match as_buffers {
        false => PyList::new(py, found.iter().map(|bytes| PyBytes::new(py, bytes))),
        true => {
            let buffers = found.into_iter().map(|bytes| Py::new(py, Buffer { bytes }));
            PyList::new(py, buffers.collect::<PyResult<Vec<_>>>()?)
        }
    }
}

/// The ranges of a call, taken as they come.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Ranges {
    reading: Mutex<Own<Option<Reading>>>,
    handle: Handle,
}

#[pymethods]
impl Ranges {
    /// The next ranges that are complete, `(index, buffer)` each; waits for the first of them. Empty: all have come.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let taken = lock(&self.reading).replace(None).flatten();
        let mut reading = taken.ok_or_else(|| PyRuntimeError::new_err("another thread waits for them"))?;
        let ready = match reading.ready() {
            Some(ready) => ready,
            None => wait(py, &self.handle, reading.next())?,
        };
        lock(&self.reading).replace(Some(reading));
        let pairs = ready
            .or_raise(py)?
            .into_iter()
            .map(|Ready { index, bytes }| Ok((index, Py::new(py, Buffer { bytes })?)));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }
}

/// Bytes of a file in the reader's own memory, which stay as they are.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Buffer {
    bytes: Bytes,
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// Where they are, for as long as this object is.
    #[getter]
    fn address(&self) -> usize {
        self.bytes.as_ptr().addr()
    }

    /// A copy of them.
    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }
}
