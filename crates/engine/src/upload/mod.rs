//! The upload at the end of a copy: of known length, in order, and seen by others when it is whole.
//!
//! The last bytes are sent only when the whole object is known to be right (see `ordered`).

mod http;
mod root;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use gridlane_core::{Boxed, Checksum, ChecksumKind, Result, Scheme, Url};
use gridlane_peer::Client;
use gridlane_xrd::request::Rm;

use crate::output::{Manner, Output, Waits};

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
    /// `patience` is the longest silence of the server, and `answer_max` the longest after the last byte of a PUT.
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
}

impl Output for Upload {
    fn manner(&self) -> Manner {
        // A server that was sent a part of a PUT forgets it by itself.
        Manner { waits: Waits::Sometimes, is_sized: true, leaves_traces: matches!(self, Upload::Root(_)) }
    }

    /// Learns whether the server wants so many bytes; does nothing the second time.
    fn begin(&mut self, size_bytes: u64) -> Boxed<'_, Result<()>> {
        match self {
            Upload::Http(upload) => Box::pin(upload.begin(size_bytes)),
            Upload::Root(upload) => Box::pin(upload.begin(size_bytes)),
        }
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Boxed<'a, Result<()>> {
        match self {
            Upload::Http(upload) => Box::pin(upload.write(bytes)),
            Upload::Root(upload) => Box::pin(upload.write(bytes)),
        }
    }

    /// Waits for the server's confirmation that the file is there, and for its checksum if it states one.
    fn finish<'a>(&'a mut self, _: &'a [Checksum]) -> Boxed<'a, Result<Option<Checksum>>> {
        match self {
            Upload::Http(upload) => Box::pin(upload.finish()),
            Upload::Root(upload) => Box::pin(upload.finish()),
        }
    }

    fn abandon(&mut self) -> Boxed<'_, ()> {
        match self {
            Upload::Http(_) => Box::pin(ready(())),
            Upload::Root(upload) => Box::pin(upload.abandon()),
        }
    }
}
