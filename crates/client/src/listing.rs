//! The entries of a directory, as they come: on this machine, by WebDAV, from a server's page, or by XRootD's
//! protocol (see `root`).
//!
//! A server of HTTP is asked with PROPFIND (RFC 4918, 9.1) first, whose answer is read entry by entry in bounded
//! memory. One that does not speak WebDAV is asked for the page that it has for people or programs, which is
//! read whole, up to a bound. Which of the two an endpoint understands is remembered.
//!
//! Names come from a peer: what reaches the caller is a single name of a file, never a path.

use std::fs::{self, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use gridlane_core::limits::{DIRECTORY_ENTRIES_MAX, LISTING_BATCH, LISTING_BYTES_MAX};
use gridlane_core::{Endpoint, Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_dav::property::LiveProperty;
use gridlane_dav::{MultistatusEntry, MultistatusReader, PropfindRequest, Status};
use gridlane_peer::http::{Exchange, Request, status_error};
use gridlane_peer::{Client, Memory};
use gridlane_store::turns_of_names;

use crate::item::{Item, OddKind};
use crate::root;

/// Bytes of a listing that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Lists directories, and remembers how each endpoint is asked.
#[derive(Clone)]
pub struct Lister {
    client: Client,
    page_bytes_max: u64,
    /// Endpoints that do not know PROPFIND.
    without_dav: Memory<Endpoint, bool>,
}

/// A directory that is being listed.
pub struct Listing {
    url: Url,
    from: From,
    count: u64,
}

enum From {
    Local(ReadDir),
    Dav { exchange: Box<Exchange>, reader: Box<MultistatusReader>, buf: Vec<u8>, seen_self: bool },
    Root(Box<root::Names>),
    Read(std::vec::IntoIter<Entry>),
    File(Option<Entry>),
    End,
}

impl Lister {
    /// A lister that asks with `client`.
    pub fn new(client: Client) -> Lister {
        Lister { client, page_bytes_max: LISTING_BYTES_MAX, without_dav: Memory::default() }
    }

    /// The same, taking no more than so many bytes of a server's page.
    pub(crate) fn pages_up_to(self, page_bytes_max: u64) -> Lister {
        Lister { page_bytes_max, ..self }
    }

    /// The client that it asks with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Begins to list a directory; a file is listed as [`Item::Itself`].
    pub async fn list(&self, url: &Url) -> Result<Listing> {
        let from = match url.to_path() {
            Some(path) => turns_of_names().run(|| open_here(url, &path)).await?,
            None if url.scheme().is_root() => self.names(url).await?,
            None => match self.propfind(url, "1").await? {
                Some(exchange) => From::Dav {
                    reader: Box::new(MultistatusReader::new(&exchange.url)),
                    exchange: Box::new(exchange),
                    buf: vec![0; READ_BYTES],
                    seen_self: false,
                },
                None => self.page(url).await?,
            },
        };
        Ok(Listing { url: url.clone(), from, count: 0 })
    }

    /// The entry that a URL names: a file or a directory. Unlike an answer to HEAD, WebDAV says so for certain.
    pub async fn look_at(&self, url: &Url) -> Result<Entry> {
        if url.scheme().is_http()
            && let Some(mut exchange) = self.propfind(url, "0").await?
        {
            let mut reader = MultistatusReader::new(&exchange.url);
            let mut entries = Vec::new();
            let mut buf = vec![0; READ_BYTES];
            while entries.is_empty() {
                match exchange.read(&mut buf).await? {
                    0 => break,
                    count => reader.feed(&buf[..count], &mut entries).map_err(|error| error.endpoint(url))?,
                }
            }
            exchange.finish().await;
            let itself = entries.into_iter().find(|entry| entry.is_self);
            let itself = itself.ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "the server's answer is not about what was asked for")
                    .endpoint(url)
            })?;
            return match itself.status.is_success() {
                true => Ok(entry(itself, crate::files::name_of(url))),
                false => Err(refused(itself.status).endpoint(url)),
            };
        }
        crate::files::stat(&self.client, url).await.map(|stat| stat.entry)
    }

    /// True if a URL names a directory. One of a server that ends with a slash is taken at its word.
    pub async fn is_directory(&self, url: &Url) -> Result<bool> {
        let says_so = url.to_path().is_none() && url.is_directory_form();
        Ok(says_so || self.look_at(url).await?.kind == EntryKind::Directory)
    }

    /// Asks by WebDAV; `None` when the endpoint does not speak it.
    async fn propfind(&self, url: &Url, depth: &'static str) -> Result<Option<Exchange>> {
        let endpoint = url.endpoint();
        if self.without_dav.of(&endpoint) {
            return Ok(None);
        }
        let wanted = [LiveProperty::ResourceType, LiveProperty::ContentLength, LiveProperty::LastModified];
        let body = PropfindRequest::Prop(wanted.map(Into::into).to_vec()).to_xml();
        let request = Request::new("PROPFIND", url)
            .header("Depth", depth)
            .header("Content-Type", "application/xml; charset=utf-8")
            .body(body.as_bytes());
        let exchange = self.client.http.exchange(&request).await?;
        match exchange.status().code() {
            207 => return Ok(Some(exchange)),
            // It does not know the method: by the book, or takes it for a bad request, or for a GET.
            400 | 405 | 501 | 200..=299 => {
                self.without_dav.learn(&endpoint, |is_without| *is_without = true);
            }
            // Perhaps of this path only; GET has the last word.
            403 | 404 | 406 | 409 | 410 | 415 => {}
            _ => return Err(exchange.into_error().await),
        }
        exchange.finish().await;
        Ok(None)
    }

    /// The page that a server without WebDAV has of a directory.
    async fn page(&self, url: &Url) -> Result<From> {
        if !url.is_directory_form() {
            // A file answers as what it is; a directory redirects to its form with a slash.
            let stat = crate::files::stat(&self.client, url).await?;
            if stat.entry.kind == EntryKind::File {
                return Ok(From::File(Some(stat.entry)));
            }
        }
        let accept = [("Accept", "application/json, text/html;q=0.5".to_owned())];
        let mut exchange = self.client.http.request("GET", url, &accept).await?;
        if !exchange.url.is_directory_form() {
            let message = "it is a file and not a directory";
            return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url));
        }
        let body = exchange.read_whole(self.page_bytes_max as usize).await?;
        let media_type = exchange.response.head.media_type();
        let path = exchange.url.encoded_path().to_owned();
        let entries = gridlane_dav::links::parse_listing(media_type.as_deref(), &body, &path);
        Ok(From::Read(entries.map_err(|error| error.endpoint(url))?.into_iter()))
    }

    /// Asks by XRootD's protocol.
    async fn names(&self, url: &Url) -> Result<From> {
        match root::list(&self.client.root, url).await {
            Ok(names) => Ok(From::Root(Box::new(names))),
            Err(error) if error.kind() == ErrorKind::Denied || error.is_retryable() => Err(error),
            // What a server says of a file that is to be listed could mean anything.
            Err(error) => match root::stat(&self.client.root, url).await {
                Ok(found) if !found.is_directory() => {
                    Ok(From::File(Some(root::entry(crate::files::name_of(url), &found))))
                }
                _ => Err(error),
            },
        }
    }
}

impl Listing {
    /// Appends the next entries, some hundreds at a time; `false`: there are no more. After an error there
    /// are none either, and what came before is not the whole directory.
    pub async fn next(&mut self, items: &mut Vec<Item>) -> Result<bool> {
        let before = items.len();
        let outcome = self.read(items).await.map_err(|error| match error.endpoint_text() {
            Some(_) => error,
            None => error.endpoint(&self.url),
        });
        self.count += (items.len() - before) as u64;
        if outcome.is_err() {
            self.from = From::End;
        } else if self.count > DIRECTORY_ENTRIES_MAX {
            self.from = From::End;
            let message = format!("the directory has more than {DIRECTORY_ENTRIES_MAX} entries");
            return Err(Error::new(ErrorKind::Unsupported, message).endpoint(&self.url));
        }
        outcome
    }

    async fn read(&mut self, items: &mut Vec<Item>) -> Result<bool> {
        let more = match &mut self.from {
            From::End => false,
            From::File(entry) => {
                items.extend(entry.take().map(Item::Itself));
                false
            }
            From::Read(entries) => {
                items.extend(entries.take(LISTING_BATCH).map(Item::Entry));
                entries.len() > 0
            }
            From::Root(names) => names.next(items).await?,
            // In a turn each time, which leaves this worker to others: what takes the entries must keep up with them.
            From::Local(entries) => turns_of_names().run(|| read_here(entries, items)).await?,
            From::Dav { exchange, reader, buf, seen_self } => {
                let mut entries = Vec::new();
                let count = exchange.read(buf).await?;
                reader.feed(&buf[..count], &mut entries)?;
                for entry in entries {
                    take(entry, seen_self, &self.url, items)?;
                }
                count > 0
            }
        };
        if !more && let From::Dav { reader, .. } = std::mem::replace(&mut self.from, From::End) {
            // A listing that stops in the middle is none.
            reader.finish()?;
        }
        Ok(more)
    }
}

/// Takes an entry of a multi-status.
fn take(found: MultistatusEntry, seen_self: &mut bool, url: &Url, items: &mut Vec<Item>) -> Result<()> {
    match found.names.as_slice() {
        [] => {
            if !found.status.is_success() {
                return Err(refused(found.status));
            }
            // Servers list the directory itself, and must not lead into it again.
            if found.kind == EntryKind::File && !std::mem::replace(seen_self, true) {
                items.push(Item::Itself(entry(found, crate::files::name_of(url))));
            }
        }
        [name] => {
            let name = name.clone();
            items.push(match found.status.is_success() {
                true => Item::Entry(entry(found, name)),
                false => Item::Odd { name, kind: OddKind::Unknown(refused(found.status)) },
            });
        }
        // More than was asked for: what is deeper is listed in its turn.
        _ => {}
    }
    Ok(())
}

fn entry(found: MultistatusEntry, name: Vec<u8>) -> Entry {
    Entry { name, kind: found.kind, size_bytes: found.size_bytes, modified: found.modified }
}

/// The error for a status of one entry in a listing.
fn refused(status: Status) -> Error {
    let head = gridlane_dav::ResponseHead {
        status,
        version: gridlane_dav::Version::Http11,
        headers: gridlane_dav::Headers::new(),
    };
    status_error(&head, "")
}

fn open_here(url: &Url, path: &Path) -> Result<From> {
    let failed = |cause: &std::io::Error| Error::local_io("cannot list it", cause).endpoint(url);
    let meta = fs::metadata(path).map_err(|cause| failed(&cause))?;
    if meta.is_dir() {
        return fs::read_dir(path).map(From::Local).map_err(|cause| failed(&cause));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).as_bytes().to_vec();
    Ok(From::File(Some(crate::files::of_metadata(name, &meta))))
}

fn read_here(entries: &mut ReadDir, items: &mut Vec<Item>) -> Result<bool> {
    for _ in 0..LISTING_BATCH {
        let Some(entry) = entries.next() else { return Ok(false) };
        let entry = entry.map_err(|cause| Error::local_io("cannot list it", &cause))?;
        let name = entry.file_name().as_bytes().to_vec();
        // Of the entry itself: a link is not followed, nothing is opened.
        items.push(match entry.metadata() {
            // It has vanished meanwhile: then it is not there.
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => {
                let error = Error::local_io("cannot look at it", &cause).endpoint(entry.path().display());
                Item::Odd { name, kind: OddKind::Unknown(error) }
            }
            Ok(meta) if meta.is_file() || meta.is_dir() => {
                Item::Entry(crate::files::of_metadata(name, &meta))
            }
            Ok(meta) if meta.is_symlink() => Item::Odd { name, kind: OddKind::Link },
            Ok(meta) => Item::Odd { name, kind: OddKind::Special(special(&meta.file_type())) },
        });
    }
    Ok(true)
}

fn special(kind: &fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "no file",
    }
}
