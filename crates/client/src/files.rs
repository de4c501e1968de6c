//! Short questions about files and directories, over HTTP and on this machine.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use gridlane_core::limits::{BODY_STALL_MAX, LISTING_BYTES_MAX, LISTING_ENTRIES_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_engine::http::{Client, Exchange};
use tokio::time::timeout;

/// A file or directory that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What a listing of its directory would say of it.
    pub entry: Entry,
    /// The server's name for this version.
    pub etag: Option<String>,
}

/// Looks at one file or directory.
pub async fn stat(client: &Client, url: &Url) -> Result<Stat> {
    if let Some(path) = url.to_path() {
        let meta = fs::metadata(&path)
            .map_err(|cause| Error::local_io("cannot look at it", &cause).endpoint(url))?;
        return Ok(Stat { entry: of_metadata(name_of(url), &meta), etag: None });
    }
    let exchange = client.request("HEAD", url, &[]).await?;
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
fn name_of(url: &Url) -> Vec<u8> {
    percent_encoding::percent_decode_str(url.file_name().unwrap_or_default()).collect()
}

/// Lists a directory, names ascending; a file is a listing of itself.
pub async fn list(client: &Client, url: &Url) -> Result<Vec<Entry>> {
    let mut listed = match url.to_path() {
        Some(path) => list_here(url, &path)?,
        None => list_there(client, url).await?,
    };
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

fn list_here(url: &Url, path: &std::path::Path) -> Result<Vec<Entry>> {
    let failed = |cause: &std::io::Error| Error::local_io("cannot list it", cause).endpoint(url);
    let meta = fs::metadata(path).map_err(|cause| failed(&cause))?;
    if !meta.is_dir() {
        let name = path.file_name().unwrap_or(path.as_os_str());
        return Ok(vec![of_metadata(name.as_bytes().to_vec(), &meta)]);
    }
    let mut listed = Vec::new();
    for entry in fs::read_dir(path).map_err(|cause| failed(&cause))? {
        let entry = entry.map_err(|cause| failed(&cause))?;
        // What vanished meanwhile, or leads nowhere, is not worth failing for.
        if let Ok(meta) = fs::metadata(entry.path()) {
            listed.push(of_metadata(entry.file_name().as_bytes().to_vec(), &meta));
        }
        if listed.len() > LISTING_ENTRIES_MAX {
            return Err(too_long(url));
        }
    }
    Ok(listed)
}

async fn list_there(client: &Client, url: &Url) -> Result<Vec<Entry>> {
    if !url.is_directory_form() {
        // A file answers as what it is; a directory redirects to its form with a slash.
        let exchange = client.request("HEAD", url, &[]).await?;
        if !exchange.url.is_directory_form() {
            return Ok(vec![of_response(url, &exchange)?.entry]);
        }
    }
    let accept = [("Accept", "application/json, text/html;q=0.5".to_owned())];
    let mut exchange = client.request("GET", url, &accept).await?;
    if !exchange.url.is_directory_form() {
        let message = "it is a file and not a directory";
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url));
    }
    let mut body = Vec::new();
    let mut buf = vec![0; 64 * 1024];
    loop {
        let count = match timeout(BODY_STALL_MAX, exchange.connection.read_body(&mut buf)).await {
            Ok(count) => count.map_err(|error| error.endpoint(url))?,
            Err(_) => return Err(Error::new(ErrorKind::Timeout, "the listing stopped coming").endpoint(url)),
        };
        if count == 0 {
            break;
        }
        body.extend_from_slice(&buf[..count]);
        if body.len() as u64 > LISTING_BYTES_MAX {
            return Err(too_long(url));
        }
    }
    let media_type = exchange.response.head.media_type();
    let path = exchange.url.encoded_path().to_owned();
    gridlane_dav::links::parse_listing(media_type.as_deref(), &body, &path)
        .map_err(|error| error.endpoint(url))
}

/// Removes a file.
pub async fn remove(client: &Client, url: &Url) -> Result<()> {
    if let Some(path) = url.to_path() {
        return fs::remove_file(&path)
            .map_err(|cause| Error::local_io("cannot remove it", &cause).endpoint(url));
    }
    // Many servers remove a directory with everything in it.
    let exchange = client.request("HEAD", url, &[]).await?;
    if url.is_directory_form() || exchange.url.is_directory_form() {
        let message = "it is a directory";
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url));
    }
    client.request("DELETE", url, &[]).await.map(|_| ())
}

fn of_metadata(name: Vec<u8>, meta: &fs::Metadata) -> Entry {
    let kind = if meta.is_dir() { EntryKind::Directory } else { EntryKind::File };
    let size_bytes = (kind == EntryKind::File).then_some(meta.len());
    Entry { name, kind, size_bytes, modified: meta.modified().ok() }
}

fn too_long(url: &Url) -> Error {
    let message =
        format!("the directory has more than {LISTING_ENTRIES_MAX} entries, or a listing too large");
    Error::new(ErrorKind::Unsupported, message).endpoint(url)
}
