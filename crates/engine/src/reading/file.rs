//! A remote file that is open.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result, Url};
use gridlane_peer::Client;
use gridlane_read::cost::Path;
use gridlane_read::{Explain, Hint};

use super::call::Reading;
use super::clock;
use super::options::ReadOptions;
use super::proof::Proof;
use super::shared::Shared;
use crate::source::Source;

/// A remote file that is open to be read at any place, from one replica or several. Clones are the same file; it is closed when
/// the last of them, and the last call, are dropped.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    open: Arc<Open>,
    size_bytes: u64,
}

/// Closes the file when it is dropped.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl RemoteFile {
    /// Opens a file that all of these URLs name; returns when its size is known. In a runtime of tokio, which the file's
    /// connections live on.
    ///
    /// An error is that of the last source: no such file, no right to it, none that answers in
    /// [`patience`](gridlane_read::Settings::patience).
    pub async fn open(sources: Vec<Url>, client: Client, options: ReadOptions) -> Result<RemoteFile> {
        if sources.is_empty() {
            return Err(
                Error::new(ErrorKind::Usage, "a file without a URL cannot be read").fault(Fault::Caller)
            );
        }
        let sources = (0..).zip(sources).map(|(number, url)| Arc::new(Source::new(number, url))).collect();
        let shared = Arc::new(Shared::new(sources, client, options));
        tokio::spawn(clock::run(Arc::downgrade(&shared)));
        let file = RemoteFile { open: Arc::new(Open { shared }), size_bytes: 0 };
        // The first byte comes with the head of the file, which is fetched in any case.
        file.read(&[ByteRange::new(0, 1)], None).one().await?;
        let size_bytes = file.open.shared.state().reader.size_bytes();
        let size_bytes = size_bytes
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no source states the size of the file"))?;
        Ok(RemoteFile { size_bytes, ..file })
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The URLs that it was opened with.
    pub fn urls(&self) -> impl Iterator<Item = &Url> {
        self.open.shared.sources.iter().map(|source| &source.url)
    }

    /// The version of the file that the first source with a statement has stated: a strong ETag, or what stands for it.
    pub fn version(&self) -> Option<String> {
        let mut sources = self.open.shared.sources.iter();
        sources.find_map(|source| source.identity().and_then(|identity| identity.validator))
    }

    /// Begins to read scattered ranges, in any order, which may overlap; waits for nothing, on any thread. What is behind the
    /// end of the file is left out. With `timeout` the call fails when it is not complete by then.
    pub fn read(&self, ranges: &[ByteRange], timeout: Option<Duration>) -> Reading {
        let shared = &self.open.shared;
        let deadline = timeout.map(|timeout| shared.now() + timeout);
        let id = shared.read(ranges, deadline);
        Reading { id, ranges: ranges.len(), open: Arc::clone(&self.open), is_over: false }
    }

    /// Reads one range.
    pub async fn read_at(&self, offset: u64, len: u64, timeout: Option<Duration>) -> Result<Bytes> {
        self.read(&[ByteRange::at(offset, len)], timeout).one().await
    }

    /// Words about reads to come.
    pub fn hint(&self, hint: Hint) {
        self.open.shared.drive(|state, _| state.reader.hint(hint));
    }

    /// The record of what was decided and what it cost, up to now.
    pub fn explain(&self) -> Explain {
        let now = self.open.shared.now();
        let explain = self.open.shared.state().reader.explain(now);
        self.open.shared.explain_disk(explain)
    }

    /// The path as it is thought to be.
    pub fn path(&self) -> Path {
        self.open.shared.state().reader.path()
    }

    /// Whether the bytes were compared with a checksum of the whole file.
    pub fn proof(&self) -> Proof {
        self.open.shared.state().proof.clone()
    }

    /// Waits until the disk has what was read, where there is a cache, but no longer than `wait_max`: a program that ends at once
    /// would lose the last of it.
    pub async fn settle(&self, wait_max: Duration) {
        let _ = tokio::time::timeout(wait_max, self.open.shared.kept()).await;
    }

    /// Closes it: calls that wait fail, and so do those that come.
    pub fn close(&self) {
        self.open.shared.close();
    }
}
