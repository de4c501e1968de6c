//! Directories of the target: each is made once, before anything is put into it.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::limits::DIRECTORIES_KNOWN_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_peer::Client;
use gridlane_peer::http::Request;
use gridlane_store::turns_of_names;
use tokio::sync::OnceCell;

use crate::location::Location;
use crate::root;
use crate::tree_path::TreePath;

/// The directories below a target.
pub(super) struct Directories {
    target: Location,
    client: Client,
    /// Directories that are there, or are being made at the moment. Bounded: then all are forgotten, and asking again
    /// costs a request.
    known: Mutex<HashMap<TreePath, Arc<OnceCell<()>>>>,
    made: AtomicU64,
}

impl Directories {
    /// With `exists`, the target itself is there.
    pub(super) fn new(target: Location, exists: bool, client: Client) -> Directories {
        let mut known = HashMap::new();
        if exists {
            known.insert(TreePath::root(), Arc::new(OnceCell::new_with(Some(()))));
        }
        Directories { target, client, known: Mutex::new(known), made: AtomicU64::new(0) }
    }

    /// Number of directories that were made.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// Sees to it that a directory and those above it are there, up to the target, whose own parent must
    /// exist.
    pub(super) async fn ensure(&self, path: &TreePath) -> Result<()> {
        if self.cell(path).initialized() {
            return Ok(());
        }
        for directory in path.with_ancestors() {
            let cell = self.cell(&directory);
            cell.get_or_try_init(|| self.make(&directory)).await?;
        }
        Ok(())
    }

    /// The same for a target on this machine, at once.
    pub(super) fn ensure_here(&self, path: &TreePath) -> Result<()> {
        for directory in path.with_ancestors() {
            let cell = self.cell(&directory);
            if cell.initialized() {
                continue;
            }
            let Some(local) = self.target.local(&directory) else {
                return Err(Error::new(ErrorKind::Other, "the target is not on this machine"));
            };
            let is_new = make_here(&local, directory.is_root())?;
            self.made.fetch_add(u64::from(is_new), Relaxed);
            // It may have been made elsewhere meanwhile.
            let _ = cell.set(());
        }
        Ok(())
    }

    fn cell(&self, path: &TreePath) -> Arc<OnceCell<()>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DIRECTORIES_KNOWN_MAX && !known.contains_key(path) {
            known.clear();
        }
        known.entry(path.clone()).or_default().clone()
    }

    async fn make(&self, path: &TreePath) -> Result<()> {
        let is_new = match self.target.local(path) {
            Some(local) => {
                let make = || make_here(&local, path.is_root());
                turns_of_names().run(make).await?
            }
            None => self.make_there(&self.target.directory(path)?).await?,
        };
        self.made.fetch_add(u64::from(is_new), Relaxed);
        Ok(())
    }

    async fn make_there(&self, url: &Url) -> Result<bool> {
        if url.scheme().is_root() {
            return root::mkdir(&self.client.root, url, false).await;
        }
        let exchange = self.client.http.exchange(&Request::new("MKCOL", url)).await?;
        let code = exchange.status().code();
        match code {
            200..=299 => {
                exchange.finish().await;
                return Ok(true);
            }
            // It is there (RFC 4918, 9.3.1); or the server makes no directories, and perhaps needs none: the
            // files will tell.
            405 | 501 => {
                exchange.finish().await;
                return Ok(false);
            }
            _ => {}
        }
        // Some refuse before they look, and what is there need not be made.
        let refused = exchange.into_error().await;
        match self.client.http.request("HEAD", url, &[]).await {
            Ok(exchange) => {
                exchange.finish().await;
                Ok(false)
            }
            Err(_) if code == 409 => {
                let message = "the server cannot make the directory: there is none that it could be in";
                Err(Error::new(ErrorKind::Precondition, message)
                    .fault(Fault::Caller)
                    .http_status(code)
                    .endpoint(url)
                    .hint("make that directory first"))
            }
            Err(_) => Err(refused),
        }
    }
}

/// Below the target itself a link is no directory: it may lead anywhere, and names come from the source.
fn make_here(path: &std::path::Path, is_target: bool) -> Result<bool> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == IoErrorKind::AlreadyExists => {
            let found = if is_target { fs::metadata(path) } else { fs::symlink_metadata(path) };
            match found.is_ok_and(|meta| meta.is_dir()) {
                true => Ok(false),
                false => {
                    let message = "it is there and is no directory";
                    Err(Error::new(ErrorKind::Precondition, message)
                        .fault(Fault::Caller)
                        .endpoint(path.display()))
                }
            }
        }
        Err(cause) => {
            let error = Error::local_io("cannot make the directory", &cause).endpoint(path.display());
            match cause.kind() {
                IoErrorKind::NotFound => Err(error.hint("make the directory that it is in first")),
                _ => Err(error),
            }
        }
    }
}
