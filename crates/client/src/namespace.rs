//! Directories and names: making, moving, removing trees, and how much room there is.

use std::fs;
use std::path::Path;

use gridlane_core::limits::{QUOTA_ANSWER_BYTES_MAX, TREE_DEPTH_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_dav::listing::EntryKind;
use gridlane_dav::path::encode_name;
use gridlane_dav::property::LiveProperty;
use gridlane_dav::{MultistatusReader, PropfindRequest};
use gridlane_peer::Client;
use gridlane_peer::http::Request;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::item::{Item, OddKind, Space, directory_form};
use crate::listing::Lister;
use crate::root::{self, Removed};

/// Makes a directory; with `parents` also those that lead to it, and it may be there already.
pub async fn make_directory(client: &Client, url: &Url, parents: bool) -> Result<()> {
    if let Some(path) = url.to_path() {
        let made = if parents { fs::create_dir_all(&path) } else { fs::create_dir(&path) };
        return made.map_err(|cause| match cause.kind() {
            std::io::ErrorKind::AlreadyExists => exists(url),
            _ => Error::local_io("cannot make it", &cause).endpoint(url),
        });
    }
    if url.scheme().is_root() {
        let is_new = root::mkdir(&client.root, url, parents).await?;
        return (is_new || parents).then_some(()).ok_or_else(|| exists(url));
    }
    let directory = directory_form(url)?;
    if !parents {
        return mkcol(client, &directory).await?.then_some(()).ok_or_else(|| exists(url));
    }
    // From below: most of them are there, and asking for those that are costs a round trip each.
    let mut missing = vec![directory];
    while let Some(next) = missing.last().cloned() {
        match mkcol(client, &next).await {
            Ok(_) => {
                missing.pop();
            }
            // RFC 4918, 9.3: 409 when what it should be in is not there; some servers say 404.
            Err(error) if matches!(error.status(), Some(404 | 409)) && missing.len() <= TREE_DEPTH_MAX => {
                let above = next.join("..")?;
                if above == next {
                    return Err(error);
                }
                missing.push(above);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes a directory, and returns true if it was not there.
async fn mkcol(client: &Client, directory: &Url) -> Result<bool> {
    let exchange = client.http.exchange(&Request::new("MKCOL", directory)).await?;
    match exchange.status().code() {
        405 => {
            exchange.finish().await;
            // Either something of that name is there (RFC 4918, 9.3.1), or the server knows no MKCOL.
            let there = client.http.request("HEAD", directory, &[]).await;
            match there {
                Ok(_) => Ok(false),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let message = "the server does not make directories";
                    Err(Error::new(ErrorKind::Unsupported, message).endpoint(directory))
                }
                Err(error) => Err(error),
            }
        }
        _ => exchange.success().await.map(|_| true),
    }
}

/// Gives a file or directory another name on the same server or machine. Into a directory that is there, it
/// keeps its name. Returns where it is now.
pub async fn rename(client: &Client, from: &Url, to: &Url, overwrite: bool) -> Result<Url> {
    match (from.to_path(), to.to_path()) {
        (Some(from_path), Some(to_path)) => {
            let to_path = match (to_path.is_dir(), from_path.file_name()) {
                (true, Some(name)) => to_path.join(name),
                _ => to_path,
            };
            rename_here(&from_path, &to_path, overwrite).map_err(|error| error.endpoint(from))?;
            Url::from_path(&to_path)
        }
        (None, None) if from.same_endpoint(to) => rename_there(client, from, to, overwrite).await,
        _ => Err(Error::new(ErrorKind::Unsupported, "a move from one place to another is not one step")
            .fault(Fault::Caller)
            .hint(Hint::CopyAndRemove)),
    }
}

fn rename_here(from: &Path, to: &Path, overwrite: bool) -> Result<()> {
    let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    renameat_with(CWD, from, CWD, to, flags).map_err(|cause| match cause {
        rustix::io::Errno::EXIST => {
            let message = format!("{} is there already", to.display());
            Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).hint(Hint::MoveOver)
        }
        rustix::io::Errno::XDEV => {
            Error::new(ErrorKind::Unsupported, format!("{} is on another file system", to.display()))
                .fault(Fault::Caller)
                .hint("copy it, then remove it")
        }
        cause => Error::local_io("cannot move it", &cause.into()),
    })
}

async fn rename_there(client: &Client, from: &Url, to: &Url, overwrite: bool) -> Result<Url> {
    let lister = Lister::new(client.clone());
    let is_directory = |found: Result<gridlane_dav::Entry>| match found {
        Ok(entry) => Ok(entry.kind == EntryKind::Directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    let to = match is_directory(lister.look_at(to).await)? {
        // With a slash behind it or without.
        true => {
            let name =
                from.file_name().or_else(|| from.encoded_path().trim_end_matches('/').rsplit('/').next());
            let name = name.filter(|name| !name.is_empty()).ok_or_else(|| {
                Error::new(ErrorKind::Usage, "the root of a server has no name to keep").endpoint(from)
            })?;
            directory_form(to)?.join(&format!("./{name}"))?
        }
        false => to.clone(),
    };
    if from.scheme().is_root() {
        // There is no order that replaces nothing.
        if !overwrite && root::look(&client.root, &to).await?.is_some() {
            return Err(exists(&to));
        }
        return root::mv(&client.root, from, &to).await.map(|()| to);
    }
    // nginx demands that both are written as directories, or neither.
    let (from, to) = match from.is_directory_form() || is_directory(lister.look_at(from).await)? {
        true => (directory_form(from)?, directory_form(&to)?),
        false => (from.clone(), to),
    };
    let request = Request::new("MOVE", &from)
        .header("Destination", bare(&to))
        .header("Overwrite", if overwrite { "T" } else { "F" });
    let exchange = client.http.exchange(&request).await?;
    match exchange.status().code() {
        412 => {
            exchange.finish().await;
            Err(exists(&to))
        }
        // RFC 4918, 9.9.4: a 207 tells what could not be moved.
        207 => {
            let message = "the server moved a part of it only";
            Err(Error::new(ErrorKind::Other, message).endpoint(&from))
        }
        _ => exchange.success().await.map(|_| to),
    }
}

/// Removes a directory with everything in it; a file as well.
pub async fn remove_tree(client: &Client, url: &Url) -> Result<()> {
    if let Some(path) = url.to_path() {
        let failed = |cause: std::io::Error| Error::local_io("cannot remove it", &cause).endpoint(url);
        refuse_above(&path, url)?;
        let meta = fs::symlink_metadata(&path).map_err(failed)?;
        let removed = if meta.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        return removed.map_err(failed);
    }
    let lister = Lister::new(client.clone());
    if lister.look_at(url).await?.kind == EntryKind::File {
        return delete_file(client, url).await;
    }
    let top = directory_form(url)?;
    if delete_directory(client, &top).await? {
        return Ok(());
    }
    // The server removes nothing that is not empty: leaf by leaf, then. Each with the directories in it that
    // are still there.
    let inner = empty_of_files(&lister, &top).await?;
    let mut open = vec![(top, inner)];
    while let Some((directory, inner)) = open.last_mut() {
        if let Some(next) = inner.pop() {
            if open.len() == TREE_DEPTH_MAX {
                let message = format!("the tree is more than {TREE_DEPTH_MAX} directories deep");
                return Err(Error::new(ErrorKind::Unsupported, message).endpoint(&next));
            }
            // What is shown as a directory may be a link to one: the server removes it, or says that it is none.
            if next.scheme().is_root() && delete_directory(client, &next).await? {
                continue;
            }
            let below = empty_of_files(&lister, &next).await?;
            open.push((next, below));
            continue;
        }
        if !delete_directory(client, directory).await? {
            let message = "the directory is still not empty: something else writes to it";
            return Err(Error::new(ErrorKind::Precondition, message).endpoint(&*directory));
        }
        open.pop();
    }
    Ok(())
}

/// Removes a directory that is empty. One of a server of HTTP is looked at before, since servers remove everything that is in it.
pub async fn remove_directory(client: &Client, url: &Url) -> Result<()> {
    let not_empty =
        || Error::new(ErrorKind::Precondition, "it is not empty").fault(Fault::Caller).endpoint(url);
    if let Some(path) = url.to_path() {
        return fs::remove_dir(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::DirectoryNotEmpty => not_empty(),
            _ => Error::local_io("cannot remove it", &cause).endpoint(url),
        });
    }
    let directory = directory_form(url)?;
    if url.scheme().is_http() {
        let mut listing = Lister::new(client.clone()).list(&directory).await?;
        let mut items = Vec::new();
        while items.is_empty() && listing.next(&mut items).await? {}
        match items.first() {
            None => {}
            Some(Item::Itself(_)) => {
                let message = "it is a file and not a directory";
                return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url));
            }
            Some(_) => return Err(not_empty()),
        }
    }
    match delete_directory(client, &directory).await? {
        true => Ok(()),
        false => Err(not_empty()),
    }
}

/// Refuses to remove the current directory and those above it: `.` and `/` are typing errors, as in every other `rm`.
fn refuse_above(path: &Path, url: &Url) -> Result<()> {
    // A link goes by itself, wherever it leads.
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Ok(());
    }
    let here = std::env::current_dir().and_then(fs::canonicalize);
    match (here, fs::canonicalize(path)) {
        (Ok(here), Ok(path)) if here.starts_with(&path) => {
            let message = "it is the current directory, or one that this is in";
            Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url))
        }
        _ => Ok(()),
    }
}

/// Removes the files of a directory; returns the directories in it.
async fn empty_of_files(lister: &Lister, directory: &Url) -> Result<Vec<Url>> {
    let mut inner = Vec::new();
    let mut listing = lister.list(directory).await?;
    let mut items = Vec::new();
    loop {
        let is_more = listing.next(&mut items).await?;
        for item in items.drain(..) {
            let (name, kind) = match item {
                Item::Entry(entry) => (entry.name, entry.kind),
                // It goes as a file does.
                Item::Odd { name, kind: OddKind::Special(_) } => (name, EntryKind::File),
                Item::Odd { .. } | Item::Itself(_) => continue,
            };
            let name = encode_name(&name);
            match kind {
                EntryKind::Directory => inner.push(directory.join(&format!("./{name}/"))?),
                EntryKind::File => {
                    let file = directory.join(&format!("./{name}"))?;
                    delete_file(lister.client(), &file).await?;
                }
            }
        }
        if !is_more {
            return Ok(inner);
        }
    }
}

async fn delete_file(client: &Client, file: &Url) -> Result<()> {
    if file.scheme().is_root() {
        return root::rm(&client.root, file).await;
    }
    client.http.request("DELETE", file, &[]).await?.finish().await;
    Ok(())
}

/// Removes a directory, and returns true if it is gone; else the server refuses since it is not empty.
async fn delete_directory(client: &Client, directory: &Url) -> Result<bool> {
    if directory.scheme().is_root() {
        return Ok(matches!(root::rmdir(&client.root, directory).await?, Removed::Yes));
    }
    let exchange = client.http.exchange(&Request::new("DELETE", directory)).await?;
    match exchange.status().code() {
        409 => {
            exchange.finish().await;
            Ok(false)
        }
        207 => Err(Error::new(ErrorKind::Other, "the server removed a part of it only").endpoint(directory)),
        _ => exchange.success().await.map(|_| true),
    }
}

/// Room below a directory.
pub async fn space(client: &Client, url: &Url) -> Result<Space> {
    if let Some(path) = url.to_path() {
        let found = rustix::fs::statvfs(&path)
            .map_err(|cause| Error::local_io("cannot look at it", &cause.into()).endpoint(url))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        return Ok(Space {
            used_bytes: Some(bytes(found.f_blocks.saturating_sub(found.f_bfree))),
            available_bytes: Some(bytes(found.f_bavail)),
        });
    }
    if url.scheme().is_root() {
        return root::space(&client.root, url).await;
    }
    let wanted =
        [LiveProperty::ResourceType, LiveProperty::QuotaUsedBytes, LiveProperty::QuotaAvailableBytes];
    let body = PropfindRequest::Prop(wanted.map(Into::into).to_vec()).to_xml();
    let request = Request::new("PROPFIND", url)
        .header("Depth", "0")
        .header("Content-Type", "application/xml; charset=utf-8")
        .body(body.as_bytes());
    let mut exchange = client.http.exchange(&request).await?.success().await?;
    let mut reader = MultistatusReader::new(&exchange.url);
    let mut entries = Vec::new();
    reader
        .feed(&exchange.read_whole(QUOTA_ANSWER_BYTES_MAX).await?, &mut entries)
        .map_err(|error| error.endpoint(url))?;
    let quota = entries.into_iter().find(|entry| entry.is_self).map(|entry| entry.quota);
    let quota = quota.filter(|quota| quota.used_bytes.is_some() || quota.available_bytes.is_some());
    let quota = quota.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the server does not tell how much room there is").endpoint(url)
    })?;
    Ok(Space { used_bytes: quota.used_bytes, available_bytes: quota.available_bytes })
}

fn exists(url: &Url) -> Error {
    Error::new(ErrorKind::Precondition, "it is there already").fault(Fault::Caller).endpoint(url)
}

/// The URL without user information and query: where something shall be, and no secret.
fn bare(url: &Url) -> String {
    format!("{}://{}{}", url.scheme().name(), url.host_header(), url.encoded_path())
}
