//! Files written from memory: the engine's upload, from bytes that Python has.

use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, ErrorKind, Hint, Result, Url};
use gridlane_engine::{CopySpec, Event, Observer, Options, StoredSource, TargetSpec, copy};
use gridlane_peer::Client;
use gridlane_store::storage::{BoxFuture, FileIdentity, Metadata, NodeKind, Object};
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
    let source = Arc::new(Memory::new(bytes));
    Job::new(py, async move {
        let missing = match send(&client, &url, &source, overwrite).await {
            Err(error) if parents && is_without_directory(&error) => error,
            outcome => return outcome.map(|()| nothing()),
        };
        let above = match url.is_directory_form() {
            true => return Err(missing),
            false => url.join("./")?,
        };
        gridlane_client::make_directory(&client, &above, true).await.map_err(|_| missing)?;
        send(&client, &url, &source, overwrite).await.map(|()| nothing())
    })
}

/// True if it says that what the file should be in is not there, or may.
fn is_without_directory(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.advice() == Some(&Hint::MakeDirectory)
}

async fn send(client: &Client, url: &Url, source: &Arc<Memory>, overwrite: bool) -> Result<()> {
    let object = Arc::clone(source);
    let options =
        Options { stored: Some(StoredSource { object, checksums: Vec::new() }), ..Options::default() };
    // Only its name in messages.
    let sources = vec![Url::from_path(Path::new("/memory"))?];
    let target = match url.to_path() {
        Some(path) => gridlane_client::file_target(path, overwrite, gridlane_client::journal_keys()),
        None => TargetSpec::Upload { url: url.clone(), overwrite, modified: None },
    };
    let spec = CopySpec { sources, target, options };
    copy(spec, client.clone(), &mut Unwatched, std::future::pending()).await.result
}

/// An observer that ignores everything.
struct Unwatched;

impl Observer for Unwatched {
    fn event(&mut self, _: &Event<'_>) {}
}

/// Bytes that Python has. When the last of it is dropped, the object is given back by a thread of Python.
struct Memory {
    bytes: PyBackedBytes,
    metadata: Metadata,
}

impl Memory {
    fn new(bytes: PyBackedBytes) -> Memory {
        let metadata = Metadata {
            kind: NodeKind::File,
            size_bytes: bytes.len() as u64,
            modified: SystemTime::now(),
            changed: UNIX_EPOCH,
            created: None,
            tag: "memory".into(),
            identity: FileIdentity { device: 0, number: 0 },
            mode: 0o100_644,
            owner: 0,
            group: 0,
        };
        Memory { bytes, metadata }
    }

    fn fill(&self, target: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[start..];
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        count
    }
}

impl Object for Memory {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        Ok(Some(self.fill(target, offset)))
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(ready(Ok(self.fill(target, offset))))
    }

    fn is_unchanged_nowait(&self) -> Option<bool> {
        Some(true)
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }
}
