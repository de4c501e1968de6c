//! Metalinks as sources: finding one, and making of it what the engine can copy.
//!
//! A metalink is not to be trusted. What it may not do is settled where it is read (`gridlane_dav::metalink`) and where
//! names are judged (`gridlane_core::name`); here is decided where its files may go: below the directory that the user
//! named, never through a link in it that leads elsewhere, and by names that the metalink chooses only where the user
//! called the source a metalink: by its end, `.meta4` or `.metalink`. Any other URL keeps its own last name, also when a
//! server answers it with a metalink or redirects it to one.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gridlane_core::limits::{IO_BYTES, METALINK_ANSWER_MAX, METALINK_BYTES_MAX, SOURCES_MAX};
use gridlane_core::name::{self, NameFault, RelativeName};
use gridlane_core::{Checksum, Error, ErrorKind, Fault, Hint, Result, Scheme, Url};
use gridlane_dav::metalink::{self, FileHash, Metalink};
use gridlane_engine::{FoundMetalink, Known, PieceHashes};
use gridlane_peer::Client;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout, timeout_at};

use crate::root;
use crate::target::{Destination, resolve};

/// The media types that a server which may have a metalink is asked for; it may send anything else.
const ACCEPT: &str = "application/metalink4+xml, application/metalink+xml, */*;q=0.5";

/// One file to copy, with what a metalink says of it.
#[derive(Debug)]
pub(crate) struct Described {
    /// The file's name, or why it may not be used.
    pub name: std::result::Result<RelativeName, NameFault>,
    /// Where it is, the best first.
    pub sources: Vec<Url>,
    /// Size and checksums.
    pub known: Known,
    /// Parts of the metalink that are not used, and why.
    pub notes: Vec<String>,
}

/// By which name a file of a metalink goes into a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming<'a> {
    /// A person named this URL and did not call it a metalink: its own last name, whatever the answer says.
    Own(&'a Url),
    /// A person called the source a metalink, and there is nothing else in it: the last part of the name that it gives.
    Only,
    /// The same, for one of several files: the names that it gives, in directories that are made.
    OneOfSeveral,
}

impl Described {
    /// The target for this file: as [`resolve`], below a directory by the name that `naming` says.
    ///
    /// Directories of a name are made for [`Naming::OneOfSeveral`], below local targets. No part of a name that a
    /// metalink chooses may begin with a dot ([`judge_chosen`](gridlane_core::name::judge_chosen)).
    pub(crate) fn resolve(&self, text: &str, naming: Naming<'_>, current_dir: &Path) -> Result<Destination> {
        let Some(first) = self.sources.first() else {
            return Err(Error::new(ErrorKind::Usage, "a file without a source has no target"));
        };
        if !is_directory(text, current_dir) {
            return resolve(text, first, current_dir);
        }
        if let Naming::Own(url) = naming {
            return resolve(text, url, current_dir);
        }
        let chosen = self.chosen_name(first).and_then(|name| name.chosen().cloned());
        let name = chosen.map_err(|fault| {
            let message = format!("a file of the metalink {fault}");
            Error::new(ErrorKind::Protocol, message)
                .fault(Fault::Peer)
                .hint("name the target file, not its directory")
        })?;
        let named = |name: &str| Url::from_path(&Path::new("/").join(name));
        let parents: Vec<&str> = match naming {
            Naming::OneOfSeveral => name.components().rev().skip(1).collect(),
            // One file makes no directory.
            Naming::Own(_) | Naming::Only => Vec::new(),
        };
        match Url::parse(text, current_dir)?.to_path() {
            // Says that it is missing.
            Some(root) if !root.is_dir() => resolve(text, &named(name.last())?, current_dir),
            Some(root) => {
                let dir = make_below(&root, parents.into_iter().rev())?;
                let text = dir.to_str().map(str::to_owned).ok_or_else(|| not_text(&dir))?;
                resolve(&text, &named(name.last())?, current_dir)
            }
            None if parents.is_empty() => resolve(text, &named(name.last())?, current_dir),
            None => {
                let message = format!("{name} is in a directory, which is not made on a server");
                Err(Error::new(ErrorKind::Unsupported, message).hint("name the target file"))
            }
        }
    }

    /// The name that the metalink gives, or in place of one that begins with a slash, as those of some experiments do, the
    /// last name of the file's first URL.
    fn chosen_name(&self, first: &Url) -> std::result::Result<RelativeName, NameFault> {
        match &self.name {
            Err(NameFault::Absolute) => {
                let name = first.file_name().ok_or(NameFault::Missing)?;
                let name = percent_decode_str(name).decode_utf8().map_err(|_| NameFault::NoName)?;
                // A slash that was encoded makes no directory.
                name::judge_entry(name.as_bytes())?;
                RelativeName::new(&name)
            }
            name => name.clone(),
        }
    }
}

fn not_text(dir: &Path) -> Error {
    let message = format!("{} is not in UTF-8", dir.display());
    Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).hint("name the target file")
}

/// True if a target takes files under their own names.
pub(crate) fn is_directory(text: &str, current_dir: &Path) -> bool {
    let Ok(url) = Url::parse(text, current_dir) else { return false };
    match url.to_path() {
        Some(path) => text.ends_with('/') || path.is_dir(),
        None => url.is_directory_form(),
    }
}

/// Makes directories below `root`. One that is there already must be no link: it could lead anywhere.
fn make_below<'a>(root: &Path, names: impl Iterator<Item = &'a str>) -> Result<PathBuf> {
    let mut dir = root.to_path_buf();
    for name in names {
        dir.push(name);
        let failed =
            |cause: &std::io::Error| Error::local_io(format!("cannot make {}", dir.display()), cause);
        match fs::create_dir(&dir) {
            Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => other.map_err(|cause| failed(&cause))?,
        }
        if !fs::symlink_metadata(&dir).map_err(|cause| failed(&cause))?.is_dir() {
            let message = format!("{} is no directory, and the metalink wants one there", dir.display());
            return Err(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller));
        }
    }
    Ok(dir)
}

/// The files of the metalink that `source` is, if its name and content say that it is one.
///
/// Nothing is asked of a server unless the URL ends like a metalink's: what else turns out to be one says so
/// in the answer that brings its bytes; then `is_certain`.
pub(crate) async fn describe(
    client: &Client,
    source: &Url,
    is_certain: bool,
) -> Result<Option<Vec<Described>>> {
    let path = source.encoded_path().to_ascii_lowercase();
    if !is_certain && !path.ends_with(".meta4") && !path.ends_with(".metalink") {
        return Ok(None);
    }
    let read = match source.to_path() {
        Some(path) => from_file(&path, is_certain).map(|bytes| bytes.map(|bytes| (source.clone(), bytes))),
        None if source.scheme().is_root() => from_root(client, source).await,
        None => from_server(client, source).await,
    };
    let Some((base, bytes)) = read? else { return Ok(None) };
    let of = |error: Error| error.endpoint(source).hint(Hint::CopyMetalink);
    let metalink = Metalink::parse(&bytes).map_err(of)?;
    described(&metalink, &base).map(Some).map_err(of)
}

/// The description of the file at `source` by the metalink that a server named; or why it is not used: then the copy goes
/// on without.
pub(crate) async fn describe_found(
    client: &Client,
    source: &Url,
    found: &FoundMetalink,
) -> std::result::Result<Described, String> {
    let files = describe(client, &found.url, true).await;
    let files = files.map_err(|error| error.message().to_owned())?.unwrap_or_default();
    let last_name = |file: &Described| {
        let name = file.name.as_ref().ok().map(|name| name.last().to_owned());
        let own = source.file_name().map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
        name.is_some() && name == own
    };
    let count = files.len();
    let mut files = files.into_iter().filter(|file| count == 1 || last_name(file));
    let Some(mut file) = files.next() else { return Err("it does not describe this file".into()) };
    let has_other_size = matches!((file.known.size_bytes, found.size_bytes), (Some(a), Some(b)) if a != b);
    // RFC 6249, 6: what the server itself says of the file must be so in its metalink as well.
    let contradicts = found.checksum.as_ref().is_some_and(|own| {
        file.known.checksums.iter().any(|known| known.kind() == own.kind() && known != own)
    });
    if has_other_size || contradicts {
        return Err("it describes another file".into());
    }
    if file.known.checksums.is_empty() && file.known.pieces.is_none() {
        // Then its replicas could not be told from those of any other file.
        return Err("it has no checksum that is computed here".into());
    }
    // What was asked for encrypted is not fetched in clear because a server says so.
    file.sources.retain(|url| !source.scheme().is_encrypted() || url.scheme().is_encrypted());
    Ok(file)
}

/// The replicas of one file, by a metalink.
#[derive(Debug)]
pub struct Replicas {
    /// Where they are, the best first; none of them on this machine.
    pub sources: Vec<Url>,
    /// What the metalink says of the file: size and checksums.
    pub known: Known,
}

/// The replicas of the file that `source` is, by the metalink that it is itself, as its name says, or by the one that its
/// server was `found` to have; `None`: it is no metalink. One of several files describes none.
///
/// # Errors
///
/// `Protocol` when the metalink is of several files, or of another one; and what reading it fails with.
pub async fn replicas(
    client: &Client,
    source: &Url,
    found: Option<&FoundMetalink>,
) -> Result<Option<Replicas>> {
    let refused = |why: String| Error::new(ErrorKind::Protocol, why).fault(Fault::Peer).endpoint(source);
    let file = match found {
        Some(found) if !found.is_source => {
            let described = describe_found(client, source, found).await;
            Some(described.map_err(|why| refused(format!("the metalink {} is not used: {why}", found.url)))?)
        }
        found => {
            let at = found.map_or(source, |found| &found.url);
            let Some(mut files) = describe(client, at, found.is_some()).await? else { return Ok(None) };
            if files.len() > 1 {
                return Err(refused(format!("the metalink is of {} files, and one is copied", files.len())));
            }
            files.pop()
        }
    };
    Ok(file.map(|Described { sources, known, .. }| Replicas { sources, known }))
}

fn from_file(path: &Path, is_certain: bool) -> Result<Option<Vec<u8>>> {
    // A pipe, a device or nothing at all is left to be copied as it is.
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else { return Ok(None) };
    let mut bytes = Vec::new();
    let failed = |cause| Error::local_io(format!("cannot read {}", path.display()), &cause);
    let mut reader = file.take(METALINK_BYTES_MAX as u64 + 1);
    // The beginning tells; a large file that only has such a name is not read to its end.
    reader.by_ref().take(IO_BYTES as u64).read_to_end(&mut bytes).map_err(failed)?;
    if !is_certain && !metalink::is_metalink(None, ".meta4", &bytes) {
        return Ok(None);
    }
    reader.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

async fn from_server(client: &Client, source: &Url) -> Result<Option<(Url, Vec<u8>)>> {
    let mut exchange = client.http.request("GET", source, &[("Accept", ACCEPT.to_owned())]).await?;
    let content_type = exchange.response.head.headers.all("content-type").next().map(str::to_owned);
    let until = Instant::now() + METALINK_ANSWER_MAX;
    let mut bytes = Vec::new();
    let mut buf = vec![0; IO_BYTES];
    let mut is_known = false;
    while bytes.len() <= METALINK_BYTES_MAX {
        let read = timeout_at(until, exchange.connection.read_body(&mut buf)).await;
        let count = read
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "the metalink does not come to its end")));
        let count = count.map_err(|error| error.endpoint(source))?;
        bytes.extend_from_slice(&buf[..count]);
        is_known = is_known || metalink::is_metalink(content_type.as_deref(), source.encoded_path(), &bytes);
        if !is_known {
            return Ok(None);
        }
        if count == 0 {
            break;
        }
    }
    Ok(Some((exchange.url, bytes)))
}

async fn from_root(client: &Client, source: &Url) -> Result<Option<(Url, Vec<u8>)>> {
    let mut is_known = false;
    let wants_more = |bytes: &[u8]| {
        is_known = is_known || metalink::is_metalink(None, source.encoded_path(), bytes);
        is_known && bytes.len() <= METALINK_BYTES_MAX
    };
    let bytes = match timeout(METALINK_ANSWER_MAX, root::read(&client.root, source, wants_more)).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            let message = "the metalink does not come to its end";
            return Err(Error::new(ErrorKind::Timeout, message).endpoint(source));
        }
    };
    Ok(is_known.then(|| (source.clone(), bytes)))
}

/// The files that can be copied of a metalink that was found at `base`.
fn described(metalink: &Metalink, base: &Url) -> Result<Vec<Described>> {
    if metalink.files.is_empty() {
        return Err(Error::new(ErrorKind::Protocol, "the metalink has no file").fault(Fault::Peer));
    }
    metalink.files.iter().map(|file| described_file(file, base)).collect()
}

fn described_file(file: &metalink::File, base: &Url) -> Result<Described> {
    let mut notes = Vec::new();
    let known = known(file, &mut notes);
    let is_checked = !known.checksums.is_empty() || known.pieces.is_some();
    let mut sources: Vec<Url> = Vec::new();
    for replica in &file.replicas {
        match usable(&replica.url, base, is_checked) {
            Ok(url) if sources.contains(&url) => {}
            Ok(url) if sources.len() < SOURCES_MAX => sources.push(url),
            Ok(url) => notes.push(format!("{url} is not used: {SOURCES_MAX} others are better")),
            Err(why) => notes.push(why),
        }
    }
    if sources.is_empty() {
        let name =
            file.name.as_ref().map_or_else(|fault| format!("a file that {fault}"), |name| name.to_string());
        let message = match notes.first() {
            Some(why) => format!("no URL of {name} can be used: {why}"),
            None => format!("the metalink has no URL of {name}"),
        };
        return Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Peer));
    }
    Ok(Described { name: file.name.clone(), sources, known, notes })
}

/// The URL of a replica as it can be fetched, or why it cannot.
fn usable(text: &str, base: &Url, is_checked: bool) -> std::result::Result<Url, String> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let url = match scheme {
        Some(_) => Url::parse_absolute(text),
        None => base.join(text),
    };
    // Not its text: it may have a password.
    let shown = scheme.map_or_else(|| "a relative URL".to_owned(), |scheme| format!("a {scheme} URL"));
    let url = url.map_err(|error| format!("{shown} is not used: {}", error.message()))?;
    let (was_encrypted, is_encrypted) = (base.scheme().is_encrypted(), url.scheme().is_encrypted());
    match url.scheme() {
        Scheme::File => Err(format!("{shown} is not used: it names a file of this machine")),
        _ if was_encrypted && !is_encrypted && !is_checked => {
            Err(format!("{url} is not used: it is not encrypted, and no checksum protects it"))
        }
        _ => Ok(url),
    }
}

fn known(file: &metalink::File, notes: &mut Vec<String>) -> Known {
    let mut checksums: Vec<Checksum> = file.checksums().cloned().collect();
    checksums.sort_by_key(|checksum| std::cmp::Reverse(checksum.kind().strength()));
    checksums.dedup();
    for hash in &file.hashes {
        if let FileHash::Other { kind, .. } = hash {
            notes.push(format!("its {kind} is not used: that is not computed here"));
        }
    }
    let mut pieces: Vec<PieceHashes> = Vec::new();
    for set in &file.pieces {
        let hashes: Option<Vec<Checksum>> = set
            .hashes
            .iter()
            .map(|hash| match hash {
                FileHash::Known(checksum) => Some(checksum.clone()),
                FileHash::Other { .. } => None,
            })
            .collect();
        match (hashes, file.size) {
            (Some(hashes), Some(size)) => pieces.extend(PieceHashes::new(size, set.piece_bytes, hashes)),
            (None, _) => notes.push("checksums of pieces are not used: they are not computed here".into()),
            (_, None) => notes.push("checksums of pieces are not used: there is no size with them".into()),
        }
    }
    pieces.sort_by_key(|pieces| std::cmp::Reverse(pieces.kind().strength()));
    Known { size_bytes: file.size, checksums, pieces: pieces.into_iter().next() }
}

#[cfg(test)]
mod tests;
