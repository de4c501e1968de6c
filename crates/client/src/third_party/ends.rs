//! The two ends of a copy over HTTP, as this client sees them.

use std::time::{Duration, SystemTime};

use gridlane_core::limits::{THIRD_PARTY_CHECKSUM_BYTES_PER_S, THIRD_PARTY_LEAVE_MAX};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_dav::digest;
use gridlane_dav::metalink::is_metalink;
use gridlane_peer::Client;
use gridlane_peer::http::is_directory;
use gridlane_peer::patience::timeout;
use tokio::time::sleep;

/// Time between two looks at a target that is to vanish.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A source that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) size_bytes: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    /// It is no file to copy, but describes one.
    pub(super) is_metalink: bool,
}

/// Looks at the first of the sources that is there. An error is that of the last one.
pub(super) async fn look_at_sources(client: &Client, sources: &[Url]) -> Result<Seen> {
    let mut last = Error::new(ErrorKind::Usage, "there is no source");
    for url in sources.iter().filter(|url| url.scheme().is_http()) {
        match client.http.request("HEAD", url, &[]).await {
            Ok(exchange) if exchange.url.is_directory_form() => return Err(is_directory(url)),
            Ok(exchange) => {
                let head = &exchange.response.head;
                let media_type = head.headers.single("content-type");
                return Ok(Seen {
                    size_bytes: head.content_length()?,
                    modified: head.last_modified(),
                    is_metalink: is_metalink(media_type, exchange.url.encoded_path(), &[]),
                });
            }
            // An answer to HEAD has no words. Those of an answer to GET may say what is wrong: that the port wants TLS.
            Err(error) if error.status() == Some(400) => match crate::files::stat(client, url).await {
                Ok(stat) => {
                    let (size_bytes, modified) = (stat.entry.size_bytes, stat.entry.modified);
                    return Ok(Seen { size_bytes, modified, is_metalink: false });
                }
                Err(error) => last = error,
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// True if there is something at the target; `None` if its server does not tell.
pub(super) async fn is_there(client: &Client, target: &Url) -> Result<Option<bool>> {
    match client.http.request("HEAD", target, &[]).await {
        Ok(exchange) if exchange.url.is_directory_form() => {
            let message = "a directory is there, and cannot be replaced by a file";
            Err(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).endpoint(target))
        }
        Ok(_) => Ok(Some(true)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(false)),
        Err(error) if error.is_unreached() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The error of a target that may not be replaced.
pub(super) fn exists(target: &Url) -> Error {
    let error = Error::new(ErrorKind::Precondition, "the file exists").fault(Fault::Caller);
    error.endpoint(target).hint(Hint::Replace)
}

/// Removes what a copy has left at the target; not for long.
pub(super) async fn remove(client: &Client, target: &Url) -> Result<()> {
    match timeout(THIRD_PARTY_LEAVE_MAX, client.http.request("DELETE", target, &[])).await {
        Ok(Ok(exchange)) => {
            exchange.finish().await;
            Ok(())
        }
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            Err(Error::new(ErrorKind::Timeout, "the server does not answer that it is removed")
                .endpoint(target))
        }
    }
}

/// Waits briefly until the active server, which was left, has removed what it had made of a new file; else removes it.
pub(super) async fn clear(client: &Client, target: &Url) {
    let gone = async {
        while !matches!(is_there(client, target).await, Ok(Some(false) | None) | Err(_)) {
            sleep(LOOK_PAUSE).await;
        }
    };
    if timeout(THIRD_PARTY_LEAVE_MAX, gone).await.is_err() {
        // As well as it goes: the copy has failed in any case.
        let _ = remove(client, target).await;
    }
}

/// What a server says of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) size_bytes: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    pub(super) checksums: Vec<Checksum>,
}

impl Word {
    /// The checksum of this kind.
    pub(super) fn of(&self, kind: ChecksumKind) -> Option<&Checksum> {
        self.checksums.iter().find(|checksum| checksum.kind() == kind)
    }
}

/// Asks a server for the checksum of a file of about so many bytes, of the first of `kinds` that it has. Most have adler32,
/// and know a question for one kind better than for several.
pub(super) async fn ask(client: &Client, url: &Url, kinds: &[ChecksumKind], size_bytes: u64) -> Result<Word> {
    let mut http = client.http.clone();
    let computing = Duration::from_secs(size_bytes / THIRD_PARTY_CHECKSUM_BYTES_PER_S);
    http.answer_max = http.answer_max.saturating_add(computing);
    let mut word = Word::default();
    let first = kinds.first().map(|kind| digest::name(*kind).to_owned());
    let any = (kinds.len() > 1).then(|| digest::want(kinds));
    for wanted in first.into_iter().chain(any) {
        let exchange = http.request("HEAD", url, &[("Want-Digest", wanted)]).await?;
        let head = &exchange.response.head;
        word = Word {
            size_bytes: head.content_length()?,
            modified: head.last_modified(),
            checksums: head.digests(),
        };
        if kinds.iter().any(|kind| word.of(*kind).is_some()) {
            break;
        }
    }
    Ok(word)
}
