//! Files written from memory, which Python has.

use std::sync::Arc;
use std::time::SystemTime;

use gridlane_core::Url;
use gridlane_engine::StoredSource;
use gridlane_peer::Client;
use gridlane_store::{Content, ContentObject};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::job::{Job, nothing};

/// The upload of a file, as a job.
pub(crate) fn job(
    py: Python<'_>,
    client: Client,
    url: Url,
    bytes: PyBackedBytes,
    overwrite: bool,
    parents: bool,
) -> PyResult<Job> {
    let object = Arc::new(ContentObject::new(Memory(bytes), "memory".into(), SystemTime::now()));
    let stored = StoredSource { object, checksums: Vec::new() };
    Job::new(py, async move {
        gridlane_client::put(&client, &url, &stored, overwrite, parents).await.map(|()| nothing())
    })
}

/// Bytes that Python has. When the last of it is dropped, the object is given back by a thread of Python.
struct Memory(PyBackedBytes);

impl Content for Memory {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn fill(&self, into: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let rest = &self.0[start..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    }
}
