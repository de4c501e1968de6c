//! Short questions about files and directories, over HTTP and on this machine.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use gridlane_core::limits::{LISTING_BYTES_MAX, LISTING_ENTRIES_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::listing::EntryKind;
use gridlane_engine::http::Client;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name as its file system has it; for a URL that was asked for, the URL.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// Size in bytes, if told.
    pub size_bytes: Option<u64>,
    /// When its content last changed, if told.
    pub modified: Option<SystemTime>,
    /// The server's name for this version.
    pub etag: Option<String>,
}

/// Looks at one file or directory.
pub async fn stat(client: &Client, url: &Url) -> Result<Listed> {
    let name = url.to_string().into_bytes();
    if let Some(path) = url.to_path() {
        let meta = fs::metadata(&path)
            .map_err(|cause| Error::local_io("cannot look at it", &cause).endpoint(url))?;
        return Ok(of_metadata(name, &meta));
    }
    let exchange = client.request("HEAD", url, &[]).await?;
    let head = &exchange.response.head;
    let kind = match exchange.url.is_directory_form() {
        true => ListedKind::Directory,
        false => ListedKind::File,
    };
    let size_bytes = head.content_length().map_err(|error| error.endpoint(url))?;
    Ok(Listed {
        name,
        kind,
        size_bytes: size_bytes.filter(|_| kind == ListedKind::File),
        modified: head.last_modified(),
        etag: head.etag().map(|etag| etag.to_string()),
    })
}

/// Lists a directory, names ascending; a file is a listing of itself.
pub async fn list(client: &Client, url: &Url) -> Result<Vec<Listed>> {
    let mut listed = match url.to_path() {
        Some(path) => list_here(url, &path)?,
        None => list_there(client, url).await?,
    };
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

fn list_here(url: &Url, path: &std::path::Path) -> Result<Vec<Listed>> {
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

async fn list_there(client: &Client, url: &Url) -> Result<Vec<Listed>> {
    if !url.is_directory_form() {
        // A file answers as what it is; a directory redirects to its form with a slash.
        let exchange = client.request("HEAD", url, &[]).await?;
        if !exchange.url.is_directory_form() {
            let mut file = stat(client, url).await?;
            let name = url.file_name().unwrap_or_default();
            file.name = percent_encoding::percent_decode_str(name).collect();
            return Ok(vec![file]);
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
        let count = exchange.connection.read_body(&mut buf).await.map_err(|error| error.endpoint(url))?;
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
    let entries = gridlane_dav::links::parse_listing(media_type.as_deref(), &body, &path)
        .map_err(|error| error.endpoint(url))?;
    Ok(entries
        .into_iter()
        .map(|entry| Listed {
            name: entry.name.clone(),
            kind: match entry.kind {
                EntryKind::Directory => ListedKind::Directory,
                _ => ListedKind::File,
            },
            size_bytes: entry.size_bytes,
            modified: entry.modified,
            etag: None,
        })
        .collect())
}

/// Removes a file.
pub async fn remove(client: &Client, url: &Url) -> Result<()> {
    if let Some(path) = url.to_path() {
        return fs::remove_file(&path)
            .map_err(|cause| Error::local_io("cannot remove it", &cause).endpoint(url));
    }
    client.request("DELETE", url, &[]).await.map(|_| ())
}

fn of_metadata(name: Vec<u8>, meta: &fs::Metadata) -> Listed {
    let kind = if meta.is_dir() { ListedKind::Directory } else { ListedKind::File };
    Listed {
        name,
        kind,
        size_bytes: (kind == ListedKind::File).then_some(meta.len()),
        modified: meta.modified().ok(),
        etag: None,
    }
}

fn too_long(url: &Url) -> Error {
    let message =
        format!("the directory has more than {LISTING_ENTRIES_MAX} entries, or a listing too large");
    Error::new(ErrorKind::Unsupported, message).endpoint(url)
}
