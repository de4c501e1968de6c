//! Short questions about files and directories, of servers and on this machine.

use std::fs;

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_peer::Client;
use gridlane_peer::http::Exchange;
use gridlane_share::turns::BriefKind;
use gridlane_store::turns_of_names;

use crate::root;

/// A file or directory that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The entry that a listing of its directory would have.
    pub entry: Entry,
    /// The server's name for this version.
    pub etag: Option<String>,
}

/// Looks at one file or directory.
pub async fn stat(client: &Client, url: &Url) -> Result<Stat> {
    if let Some(path) = url.to_path() {
        let looked = turns_of_names().brief(BriefKind::Other).await.run(|| fs::metadata(&path));
        let meta = looked.map_err(|cause| Error::local_io("cannot look at it", &cause).endpoint(url))?;
        return Ok(Stat { entry: of_metadata(name_of(url), &meta), etag: None });
    }
    if url.scheme().is_root() {
        let found = root::stat(&client.root, url).await?;
        return Ok(Stat { entry: root::entry(name_of(url), &found), etag: None });
    }
    let exchange = match client.http.request("HEAD", url, &[]).await {
        // An answer to HEAD has no words. Those of an answer to GET may say what is wrong: that the port wants TLS.
        Err(error) if error.status() == Some(400) => client.http.request("GET", url, &[]).await?,
        outcome => outcome?,
    };
    of_response(url, &exchange)
}

fn of_response(url: &Url, exchange: &Exchange) -> Result<Stat> {
    let head = &exchange.response.head;
    let kind = match exchange.url.is_directory_form() {
        true => EntryKind::Directory,
        false => EntryKind::File,
    };
    let size_bytes = head.content_length().map_err(|error| error.endpoint(url))?;
    let entry = Entry {
        name: name_of(url),
        kind,
        size_bytes: size_bytes.filter(|_| kind == EntryKind::File),
        modified: head.last_modified(),
    };
    Ok(Stat { entry, etag: head.etag().map(|etag| etag.to_string()) })
}

/// The last part of a URL's path, decoded; empty for a directory.
pub(crate) fn name_of(url: &Url) -> Vec<u8> {
    percent_encoding::percent_decode_str(url.file_name().unwrap_or_default()).collect()
}

/// Removes a file.
pub async fn remove(client: &Client, url: &Url) -> Result<()> {
    if let Some(path) = url.to_path() {
        let removed = turns_of_names().brief(BriefKind::Other).await.run(|| fs::remove_file(&path));
        return removed.map_err(|cause| Error::local_io("cannot remove it", &cause).endpoint(url));
    }
    // Many servers remove a directory with everything in it, or one that is empty.
    let is_directory = match url.scheme().is_root() {
        true => root::stat(&client.root, url).await?.is_directory(),
        false => client.http.request("HEAD", url, &[]).await?.url.is_directory_form(),
    };
    if url.is_directory_form() || is_directory {
        let message = "it is a directory";
        let error = Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url);
        return Err(error.hint(Hint::RemoveTree));
    }
    match url.scheme().is_root() {
        true => root::rm(&client.root, url).await,
        false => client.http.request("DELETE", url, &[]).await.map(|_| ()),
    }
}

pub(crate) fn of_metadata(name: Vec<u8>, meta: &fs::Metadata) -> Entry {
    let kind = if meta.is_dir() { EntryKind::Directory } else { EntryKind::File };
    let size_bytes = (kind == EntryKind::File).then_some(meta.len());
    Entry { name, kind, size_bytes, modified: meta.modified().ok() }
}
