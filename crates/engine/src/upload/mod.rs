//! The upload at the end of a copy: of known length, in order, and seen by others when it is whole.
//!
//! The last bytes are sent only when the whole object is known to be right (see `ordered`).

mod http;
mod root;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, Result, Scheme, Url};
use gridlane_peer::Client;
use gridlane_xrd::request::Rm;

/// Removes a file that was uploaded.
pub(crate) async fn remove(client: &Client, url: &Url) -> Result<()> {
    match url.scheme() {
        Scheme::Root | Scheme::Roots => client.root.clone().call(url, |about| Rm { about }).await.map(|_| ()),
        Scheme::Http | Scheme::Https | Scheme::File => {
            client.http.request("DELETE", url, &[]).await.map(|_| ())
        }
    }
}

/// A file that a server is sent: begun, written and finished, in the server's protocol.
pub(crate) enum Upload {
    /// A PUT.
    Http(http::Upload),
    /// Open, write, close.
    Root(root::Upload),
}

impl Upload {
    /// An upload to `url`, which replaces an existing file only when `overwrite` says so, and tells the
    /// server when the file was `modified`. The server is asked for a checksum of `kind`;
    /// `patience` is how long its silence is borne, and `answer_max` how long that after the last byte of a PUT.
    pub(crate) fn new(
        client: &Client,
        url: Url,
        overwrite: bool,
        modified: Option<SystemTime>,
        kind: ChecksumKind,
        patience: Duration,
        answer_max: Duration,
    ) -> Upload {
        match url.scheme() {
            Scheme::Root | Scheme::Roots => {
                let client = client.root.clone();
                Upload::Root(root::Upload::new(client, url, overwrite, kind, patience))
            }
            Scheme::Http | Scheme::Https | Scheme::File => {
                let mut client = client.http.clone();
                client.answer_max = client.answer_max.min(patience);
                let upload = http::Upload::new(client, url, overwrite, modified, kind);
                Upload::Http(upload.patience(patience, answer_max))
            }
        }
    }

    /// Becomes true when the server says that it keeps the time; `None` when it is not told one.
    pub(crate) fn modified_accepted(&self) -> Option<Arc<AtomicBool>> {
        match self {
            Upload::Http(upload) => upload.modified_accepted(),
            // No request sets a time.
            Upload::Root(_) => None,
        }
    }

    /// Learns whether the server wants so many bytes; does nothing the second time.
    pub(crate) async fn begin(&mut self, size_bytes: u64) -> Result<()> {
        match self {
            Upload::Http(upload) => upload.begin(size_bytes).await,
            Upload::Root(upload) => upload.begin(size_bytes).await,
        }
    }

    /// Sends the next bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Upload::Http(upload) => upload.write(bytes).await,
            Upload::Root(upload) => upload.write(bytes).await,
        }
    }

    /// Waits for the server's word that the file is there, and for its checksum if it says so.
    pub(crate) async fn finish(&mut self) -> Result<Option<Checksum>> {
        match self {
            Upload::Http(upload) => upload.finish().await,
            Upload::Root(upload) => upload.finish().await,
        }
    }

    /// Whether what was begun has to be [abandoned](Upload::abandon) when it is not finished.
    pub(crate) fn leaves_traces(&self) -> bool {
        matches!(self, Upload::Root(_))
    }

    /// Gives it up. A server that was sent a part of a PUT forgets it by itself.
    pub(crate) async fn abandon(&mut self) {
        match self {
            Upload::Http(_) => {}
            Upload::Root(upload) => upload.abandon().await,
        }
    }
}
