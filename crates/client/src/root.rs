//! Short questions and orders by XRootD's protocol: one request each, where one is enough.
//!
//! Servers differ in what they refuse. XRootD 5.5 makes a directory that is there, removes empty directories when
//! asked to remove a file, and replaces without a word what a file is given the name of. So what must not happen
//! is looked at first.

mod listing;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_peer::root::{Client, malformed};
use gridlane_xrd::answer::{SpaceText, StatText, VfsText};
use gridlane_xrd::flags::{OpenOptions, StatFlags};
use gridlane_xrd::request::{About, Mkdir, Mv, Query, Read, Rm, Rmdir, Stat};
use gridlane_xrd::{PathArg, PathId, QueryKind};

use crate::item::{Space, directory_form};

pub(crate) use listing::{Names, list};

/// Permissions of directories that are made. The server takes away from them what it does not allow.
const DIRECTORY_MODE: u16 = 0o755;
/// Bytes of a small file that are asked for at a time.
const READ_BYTES: u32 = 1024 * 1024;

/// The properties of a file or directory.
pub(crate) async fn stat(client: &Client, url: &Url) -> Result<StatText> {
    let ask = |about| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
    let answered = client.call(url, ask).await?;
    StatText::parse(&answered.body).map_err(|wrong| malformed(&wrong).endpoint(url))
}

/// The properties of a file or directory; `None`: there is none.
pub(crate) async fn look(client: &Client, url: &Url) -> Result<Option<StatText>> {
    match stat(client, url).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An entry of a directory.
pub(crate) fn entry(name: Vec<u8>, stat: &StatText) -> Entry {
    let kind = if stat.is_directory() { EntryKind::Directory } else { EntryKind::File };
    // One that the server will remove again unless it is closed in good order has no size yet.
    let has_size = kind == EntryKind::File && !stat.flags.has(StatFlags::POSC_PENDING);
    let size_bytes = has_size.then_some(stat.size_bytes);
    Entry { name, kind, size_bytes, modified: time(stat.modified_s) }
}

/// True if it is neither a file nor a directory.
pub(crate) fn is_special(stat: &StatText) -> bool {
    stat.flags.has(StatFlags::OTHER) && !stat.is_directory()
}

fn time(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Makes a directory. Returns whether it is new; without `parents`, the directory it is in must be there.
pub(crate) async fn mkdir(client: &Client, url: &Url, parents: bool) -> Result<bool> {
    if let Some(found) = look(client, url).await? {
        return match found.is_directory() {
            true => Ok(false),
            false => Err(precondition("it is there and is no directory", url)),
        };
    }
    let order = |parents| {
        let make = move |about| Mkdir { about: without_slash(about), parents, mode: DIRECTORY_MODE };
        client.call(url, make)
    };
    let mut made = order(parents).await;
    if matches!(&made, Err(error) if error.kind() == ErrorKind::NotFound) {
        let above = directory_form(url)?.join("..")?;
        if is_directory(client, &above).await {
            // Another server of a cluster has the directory that it goes to.
            made = order(true).await;
        }
    }
    match made {
        Ok(_) => Ok(true),
        // It was made meanwhile.
        Err(error) if error.kind() == ErrorKind::Precondition && is_directory(client, url).await => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = "the server cannot make the directory: there is none that it could be in";
            Err(precondition(message, url).hint("make that directory first"))
        }
        Err(error) => Err(error),
    }
}

async fn is_directory(client: &Client, url: &Url) -> bool {
    stat(client, url).await.is_ok_and(|found| found.is_directory())
}

fn precondition(message: &str, url: &Url) -> Error {
    Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).endpoint(url)
}

/// Removes a file.
pub(crate) async fn rm(client: &Client, url: &Url) -> Result<()> {
    client.call(url, |about| Rm { about: without_slash(about) }).await.map(|_| ())
}

/// The outcome of an order to remove a directory.
pub(crate) enum Removed {
    /// It is gone.
    Yes,
    /// There is something in it.
    NotEmpty,
}

/// Removes a directory that is empty.
///
/// A link to a directory is shown as what it leads to: only here the server says that it is none. Then the link
/// goes, and nothing that is behind it.
pub(crate) async fn rmdir(client: &Client, url: &Url) -> Result<Removed> {
    let error = match client.call(url, |about| Rmdir { about: without_slash(about) }).await {
        Ok(_) => return Ok(Removed::Yes),
        Err(error) => error,
    };
    // There is a code for it ("it is there already, or not empty"); older servers have one for everything, and the
    // words of the C library.
    let message = error.message().to_ascii_lowercase();
    // Behind the name, which may say anything.
    let said = message.rsplit_once("; ").map_or(message.as_str(), |(_, reason)| reason);
    if said.contains("not empty") || message.contains(": it is there already, or not empty") {
        return Ok(Removed::NotEmpty);
    }
    match said.contains("not a directory") {
        true => rm(client, url).await.map(|()| Removed::Yes),
        false => Err(error),
    }
}

/// Gives it another name, whatever has that name now.
pub(crate) async fn mv(client: &Client, from: &Url, to: &Url) -> Result<()> {
    if to.wire_path().contains(&b'?') {
        let message = "a name with a question mark cannot be written in XRootD's protocol";
        return Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).endpoint(to));
    }
    let name = without_slash(PathArg::with_cgi(to.wire_path(), to.cgi().unwrap_or_default()));
    let moved = client.call(from, |about| Mv { from: without_slash(about), to: name.clone() }).await;
    match moved {
        // The server does not say which of the two.
        Err(error) if error.kind() == ErrorKind::NotFound && stat(client, from).await.is_ok() => {
            let message = "the server cannot move it there: there is no such directory";
            Err(precondition(message, to).hint(Hint::MakeDirectory))
        }
        moved => moved.map(|_| ()),
    }
}

/// Room below a directory.
pub(crate) async fn space(client: &Client, url: &Url) -> Result<Space> {
    // Some answer for paths that are not there.
    stat(client, url).await?;
    let asked = client.call(url, |about| Query::about(QueryKind::SPACE, &about, "")).await;
    if let Some(space) = asked.ok().and_then(|answered| SpaceText::parse(&answered.body)) {
        let left = space.quota_bytes.map(|quota| quota.saturating_sub(space.used_bytes));
        let available = space.free_bytes.min(left.unwrap_or(u64::MAX));
        return Ok(Space { used_bytes: Some(space.used_bytes), available_bytes: Some(available) });
    }
    let ask = |about| Stat { about: About::Path(about), is_vfs: true, wants: 0 };
    let answered = client.call(url, ask).await?;
    let vfs = VfsText::parse(&answered.body).map_err(|wrong| malformed(&wrong).endpoint(url))?;
    Ok(Space { used_bytes: None, available_bytes: Some(vfs.free_mib.saturating_mul(1 << 20)) })
}

/// The server's word for a file's checksum; `None` when it has none of this kind.
pub(crate) async fn checksum(client: &Client, url: &Url, kind: ChecksumKind) -> Result<Option<Checksum>> {
    // XRootD 5.5 may never answer when it is asked for that of a directory, and then it answers no other client either.
    if stat(client, url).await?.is_directory() {
        let error = Error::new(ErrorKind::Usage, "it is a directory").fault(Fault::Caller);
        return Err(error.endpoint(url));
    }
    client.checksum(url, kind).await
}

/// The bytes of a file, as far as `wants_more` wants them.
pub(crate) async fn read(
    client: &Client,
    url: &Url,
    mut wants_more: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>> {
    let mut file = client.open(url, OpenOptions::READ, 0, "").await?;
    let mut bytes = Vec::new();
    loop {
        let (offset, len, path_id) = (bytes.len() as u64, READ_BYTES, PathId::MAIN);
        let part = file.call(|handle| Read { handle, offset, len, path_id }).await?;
        bytes.extend_from_slice(&part);
        if part.is_empty() || !wants_more(&bytes) {
            return Ok(bytes);
        }
    }
}

/// The path without slashes at its end, unless it is the root.
fn without_slash(mut about: PathArg) -> PathArg {
    while about.path.len() > 1 && about.path.ends_with(b"/") {
        about.path.pop();
    }
    about
}

#[cfg(test)]
pub(crate) mod tests;
