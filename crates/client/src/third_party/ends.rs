//! The two ends of a copy over HTTP, as this client sees them.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::{THIRD_PARTY_CHECKSUM_BYTES_PER_S, THIRD_PARTY_LEAVE_MAX};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_dav::digest;
use gridlane_dav::etag::ETag;
use gridlane_dav::metalink::is_metalink;
use gridlane_peer::Client;
use gridlane_peer::http::{Exchange, is_directory};
use gridlane_peer::patience::timeout;
use tokio::net::lookup_host;
use tokio::time::sleep;

use crate::copies::rules::is_itself;

/// Time between two looks at a target that is to vanish.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A file that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) size_bytes: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    pub(super) etag: Option<ETag>,
    /// It is no file to copy, but describes one.
    pub(super) is_metalink: bool,
}

impl Seen {
    fn of(exchange: &Exchange) -> Result<Seen> {
        let head = &exchange.response.head;
        let media_type = head.headers.single("content-type");
        Ok(Seen {
            size_bytes: head.content_length()?,
            modified: head.last_modified(),
            etag: head.etag(),
            is_metalink: is_metalink(media_type, exchange.url.encoded_path(), &[]),
        })
    }

    /// True if nothing tells one from the other.
    pub(super) fn may_be(&self, other: &Seen) -> bool {
        fn agrees<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        agrees(&self.size_bytes, &other.size_bytes)
            && agrees(&self.modified, &other.modified)
            && agrees(&self.etag, &other.etag)
    }
}

/// What has the target's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum There {
    Nothing,
    File(Seen),
    /// Its server does not tell, or was not asked.
    Unknown,
}

/// Looks at the first of the sources that is there. An error is that of the last one.
pub(super) async fn look_at_sources(client: &Client, sources: &[Url]) -> Result<Seen> {
    let mut last = Error::new(ErrorKind::Usage, "there is no source");
    for url in sources.iter().filter(|url| url.scheme().is_http()) {
        match client.http.request("HEAD", url, &[]).await {
            Ok(exchange) if exchange.url.is_directory_form() => return Err(is_directory(url)),
            Ok(exchange) => return Seen::of(&exchange),
            // An answer to HEAD has no words. Those of an answer to GET may say what is wrong: that the port wants TLS.
            Err(error) if error.status() == Some(400) => match crate::files::stat(client, url).await {
                Ok(stat) => {
                    let (size_bytes, modified) = (stat.entry.size_bytes, stat.entry.modified);
                    return Ok(Seen { size_bytes, modified, ..Seen::default() });
                }
                Err(error) => last = error,
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Looks at the target.
pub(super) async fn look_at_target(client: &Client, target: &Url) -> Result<There> {
    match client.http.request("HEAD", target, &[]).await {
        Ok(exchange) if exchange.url.is_directory_form() => {
            let message = "a directory is there, and cannot be replaced by a file";
            Err(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).endpoint(target))
        }
        Ok(exchange) => Ok(There::File(Seen::of(&exchange)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(There::Nothing),
        // No server has answered.
        Err(error) if error.is_unreached() => Err(error),
        Err(error) if error.kind() == ErrorKind::Network && error.status().is_none() => Err(error),
        Err(_) => Ok(There::Unknown),
    }
}

/// Fails if the target that would be replaced is a source by another name of its server: most servers would empty it before they
/// read it.
pub(super) async fn refuse_itself(source: (&Url, &Seen), target: (&Url, &Seen)) -> Result<()> {
    let ((source, of_source), (target, of_target)) = (source, target);
    let is_alike = source.port() == target.port()
        && source.host() != target.host()
        && source.wire_path() == target.wire_path()
        && of_source.may_be(of_target);
    match is_alike && have_address_in_common(source, target).await {
        true => Err(is_itself(target).hint("if they are two files, remove the one at the target first")),
        false => Ok(()),
    }
}

async fn have_address_in_common(one: &Url, other: &Url) -> bool {
    let addresses = async |url: &Url| -> Vec<IpAddr> {
        let found = lookup_host((url.host(), url.port())).await;
        found.map(|found| found.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
    };
    let (one, other) = tokio::join!(addresses(one), addresses(other));
    one.iter().any(|address| other.contains(address))
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

/// Removes what the active server has made of a new file. One that `was_left` may be about to remove it by itself, and is waited
/// for briefly.
pub(super) async fn clear(client: &Client, target: &Url, was_left: bool) {
    let is_there = async || matches!(look_at_target(client, target).await, Ok(There::File(_)));
    let gone = async {
        while is_there().await {
            sleep(LOOK_PAUSE).await;
        }
    };
    let stays = match was_left {
        true => timeout(THIRD_PARTY_LEAVE_MAX, gone).await.is_err(),
        false => is_there().await,
    };
    if stays {
        // As well as it goes: the copy has failed in any case.
        let _ = remove(client, target).await;
    }
}

/// What a server says of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) size_bytes: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    pub(super) etag: Option<ETag>,
    pub(super) checksums: Vec<Checksum>,
}

impl Word {
    /// The checksum of this kind.
    pub(super) fn of(&self, kind: ChecksumKind) -> Option<&Checksum> {
        self.checksums.iter().find(|checksum| checksum.kind() == kind)
    }

    /// True if it is certainly the file that was seen before.
    pub(super) fn is_still(&self, before: &Seen) -> bool {
        match (&self.etag, &before.etag) {
            (Some(now), Some(then)) => now.matches_strongly(then),
            _ => false,
        }
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
            etag: head.etag(),
            checksums: head.digests(),
        };
        if kinds.iter().any(|kind| word.of(*kind).is_some()) {
            break;
        }
    }
    Ok(word)
}
