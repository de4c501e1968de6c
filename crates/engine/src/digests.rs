//! Asking a replica for its checksum beside the data, and never in front of it.
//!
//! Of a small file it is asked for on the connection of the lane (see `lane::digest_request`). A request of its own
//! follows where that brings no answer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::limits::{DIGEST_PAUSES, DIGEST_WAIT_MAX, IO_BYTES, SMALL_DOWNLOAD_BYTES_MAX};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Hasher, Result, Scheme, Url};
use gridlane_dav::ResponseHead;
use gridlane_peer::{Client, http};
use gridlane_share::budget;
use gridlane_store::turns_of;
use gridlane_sys::AlignedBuf;
use gridlane_xrd::answer::StatText;
use gridlane_xrd::flags::StatFlags;
use gridlane_xrd::request::{About, Stat};
use tokio::sync::mpsc;

use crate::Options;
use crate::links::ServerLinks;
use crate::notice::Notice;
use crate::source::{Identity, Source};

/// A source's statement about its object.
pub(crate) struct Word {
    /// Which version.
    pub(crate) identity: Identity,
    /// Its checksum, if it says.
    pub(crate) checksum: Option<Checksum>,
    /// Checksums that it states beside that.
    pub(crate) stated: Vec<Checksum>,
    /// The other replicas, and the metalink, that its server names.
    pub(crate) served: ServerLinks,
}

/// The checksums of the whole that the bytes are compared with: the one that is asked of sources first.
pub(crate) fn kinds(options: &Options) -> Vec<ChecksumKind> {
    gridlane_plan::judge::kinds(options.checksum.as_ref(), &options.known)
}

/// Asks in the background; the answer comes as a notice. A server that is busy is asked again until `until`: others must
/// not be believed because they were free.
pub(crate) fn ask(
    client: Client,
    source: Arc<Source>,
    kind: ChecksumKind,
    follow_links: bool,
    until: Option<Instant>,
    notices: mpsc::UnboundedSender<Notice>,
) {
    tokio::spawn(async move {
        // The answer is of no use when the copy is over.
        let mut said = tokio::select! {
            said = patiently(&client, &source, kind, until) => said,
            () = notices.closed() => return,
        };
        let served = match &mut said {
            Ok(word) if follow_links => std::mem::take(&mut word.served),
            _ => ServerLinks::default(),
        };
        let notice = said.map_or_else(
            |_| Notice::Digest { source: source.number, checksums: Vec::new(), identity: None },
            |word| notice(&source, word),
        );
        let _ = notices.send(notice);
        if served != ServerLinks::default() {
            let _ = notices.send(Notice::ServerLinks { source: source.number, served });
        }
    });
}

/// Asks for the strongest checksum that a source has, in the background; the answer comes as a notice.
pub(crate) fn ask_strong(client: Client, source: Arc<Source>, notices: mpsc::UnboundedSender<Notice>) {
    tokio::spawn(async move {
        let mut kinds = ChecksumKind::ALL.to_vec();
        kinds.retain(|kind| kind.is_strong());
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.strength()));
        let said = tokio::select! {
            said = strongest(&client, &source, &kinds) => said,
            () = notices.closed() => return,
        };
        let checksums = said.ok().map(|word| of_this_version(&source, word));
        let _ = notices.send(Notice::Strong { source: source.number, checksums });
    });
}

/// The notice of a source's statement about the object that the copy is of.
pub(crate) fn notice(source: &Source, word: Word) -> Notice {
    let mut identity = word.identity.clone();
    // Some servers say of anything that is not sent along that it has no bytes.
    identity.size_bytes = identity.size_bytes.filter(|bytes| *bytes > 0 || !source.url.scheme().is_http());
    let is_of_this = is_of_this_version(source, &word);
    let checksums = of_this_version(source, word);
    Notice::Digest { source: source.number, checksums, identity: Some(identity).filter(|_| is_of_this) }
}

/// The checksums in a source's word, if it is about the object that the copy is of: one of another version says nothing
/// about this one.
fn of_this_version(source: &Source, word: Word) -> Vec<Checksum> {
    let is_of_this = is_of_this_version(source, &word);
    word.checksum.into_iter().chain(word.stated).filter(|_| is_of_this).collect()
}

fn is_of_this_version(source: &Source, word: &Word) -> bool {
    source.identity().is_none_or(|known| known.agrees_with(&word.identity))
}

/// The checksums of the whole file that a head states without having been asked for them, of kinds strong enough that
/// other bytes cannot have them by accident or design. XRootD 5.5.3 repeats the `asked` kind, of another file, in
/// later answers. `is_whole`: the message's content is all of the file.
pub(crate) fn stated(head: &ResponseHead, asked: Option<ChecksumKind>, is_whole: bool) -> Vec<Checksum> {
    if head.content_coding().is_some() {
        return Vec::new();
    }
    let mut checksums = head.digests();
    if is_whole {
        checksums.extend(head.content_digests());
    }
    checksums.retain(|own| own.kind().is_strong() && Some(own.kind()) != asked);
    checksums.dedup();
    checksums
}

/// Asks again when the answer may be another one soon.
async fn patiently(
    client: &Client,
    source: &Source,
    kind: ChecksumKind,
    until: Option<Instant>,
) -> Result<Word> {
    let mut pauses = DIGEST_PAUSES.into_iter();
    loop {
        let said = word(client, source, Some(kind)).await;
        let is_doubtful = match &said {
            Err(error) => error.is_retryable(),
            Ok(word) => {
                source.set_asked_bytes(word.identity.size_bytes);
                source.two_sizes().is_some()
            }
        };
        let is_busy = matches!(&said, Err(error) if error.kind() == ErrorKind::Busy);
        let last = DIGEST_PAUSES[DIGEST_PAUSES.len() - 1];
        let later = until.filter(|until| is_busy && Instant::now() + last < *until).map(|_| last);
        match pauses.next().or(later).filter(|_| is_doubtful) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return said,
        }
    }
}

/// Asks a source which version it has and, with `kind`, for its checksum.
pub(crate) async fn word(client: &Client, source: &Source, kind: Option<ChecksumKind>) -> Result<Word> {
    match source.url.scheme() {
        Scheme::File => file_word(source, kind).await,
        Scheme::Root | Scheme::Roots => root_word(client, source, kind).await,
        Scheme::Http | Scheme::Https => {
            let mut headers = Vec::new();
            if let Some(kind) = kind {
                headers.push(("Want-Digest", gridlane_dav::digest::name(kind).to_owned()));
            }
            let mut client = client.http.clone();
            // A server that is gone gets no more time than it would get for bytes.
            (client.answer_max, client.connect_max) = (DIGEST_WAIT_MAX, Duration::ZERO);
            let exchange = client.request("HEAD", &source.url, &headers).await?;
            let head = &exchange.response.head;
            let mut word = word_of(&client, source, &exchange.url, kind, head)?;
            for (from, headers) in &exchange.redirects {
                word.served.take(from, headers);
            }
            word.served.take(&exchange.url, &head.headers);
            Ok(word)
        }
    }
}

/// The statement in the head of a successful answer to HEAD from `at` about the file of a source, with the checksum of
/// `kind` that was asked for; without the replicas that it names.
pub(crate) fn word_of(
    client: &http::Client,
    source: &Source,
    at: &Url,
    kind: Option<ChecksumKind>,
    head: &ResponseHead,
) -> Result<Word> {
    let identity = identity_of(source, at, head)?;
    let checksum = head.digests().into_iter().find(|checksum| Some(checksum.kind()) == kind);
    if kind.is_some() {
        client.asked_for_digest(&source.url, checksum.is_some());
    }
    // Of a message without content, that says nothing about the file.
    let stated = stated(head, kind, false);
    Ok(Word { identity, checksum, stated, served: ServerLinks::default() })
}

/// Which version a source has, as the head of an answer from `at` without content tells it.
fn identity_of(source: &Source, at: &Url, head: &ResponseHead) -> Result<Identity> {
    match source.identity().is_none() && (at.encoded_path().ends_with('/') || http::may_be_listing(at, head))
    {
        // A page about a directory has a size too. A lane that is sent it finds out what it is.
        true => Ok(Identity::unknown()),
        false => Ok(Identity::of_response(head, head.content_length()?)),
    }
}

async fn root_word(client: &Client, source: &Source, kind: Option<ChecksumKind>) -> Result<Word> {
    let Stated { stat, at } = root_stat(client, source).await?;
    let identity = Identity::of_stat(&stat, source.url.same_endpoint(&at));
    let mut checksum = None;
    if let Some(kind) = kind {
        checksum = root_checksum(client, &at, kind).await?;
    }
    let mut served = ServerLinks::default();
    let is_behind_manager = !source.url.same_endpoint(&at);
    if kind.is_some() && is_behind_manager && stat.size_bytes > SMALL_DOWNLOAD_BYTES_MAX {
        // Not to know them is no failure.
        let found = client.root.locate(&source.url).await.unwrap_or_default();
        served.take_located(&at, found);
    }
    Ok(Word { identity, checksum, stated: Vec::new(), served })
}

/// A file over root://, and where redirects led.
struct Stated {
    stat: StatText,
    at: Url,
}

async fn root_stat(client: &Client, source: &Source) -> Result<Stated> {
    let mut client = client.root.clone();
    client.connect_max = Duration::ZERO;
    let make = |path| Stat { about: About::Path(path), is_vfs: false, wants: 0 };
    let answered = client.call(&source.url, make).await?;
    let stat = StatText::parse(&answered.body).map_err(|_| {
        Error::new(ErrorKind::Protocol, "its answer to the stat of the file is malformed")
            .endpoint(&answered.url)
    })?;
    if stat.flags.has(StatFlags::DIRECTORY) {
        // Its size is not that of any file: with nothing to fetch the copy would be complete before a lane is refused.
        return Err(http::is_directory(&answered.url));
    }
    Ok(Stated { stat, at: answered.url })
}

/// The checksum of a kind that a server says of a file over root://, if it says it.
async fn root_checksum(client: &Client, at: &Url, kind: ChecksumKind) -> Result<Option<Checksum>> {
    let mut client = client.root.clone();
    (client.answer_max, client.connect_max) = (DIGEST_WAIT_MAX, Duration::ZERO);
    match client.checksum(at, kind).await {
        Ok(said) => Ok(said),
        // It may say it later. Anything else means that it does not.
        Err(error) if error.is_retryable() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Asks a source which version it has, and for the strongest of `kinds` that it says: the first of them is the best. A file of
/// this machine is hashed by the first that is not slower than its reading.
pub(crate) async fn strongest(client: &Client, source: &Source, kinds: &[ChecksumKind]) -> Result<Word> {
    match source.url.scheme() {
        Scheme::File => file_word(source, Some(ChecksumKind::Sha256)).await,
        Scheme::Root | Scheme::Roots => {
            let Stated { stat, at } = root_stat(client, source).await?;
            let identity = Identity::of_stat(&stat, source.url.same_endpoint(&at));
            let mut checksum = None;
            for kind in kinds {
                checksum = root_checksum(client, &at, *kind).await?;
                if checksum.is_some() {
                    break;
                }
            }
            Ok(Word { identity, checksum, stated: Vec::new(), served: ServerLinks::default() })
        }
        Scheme::Http | Scheme::Https => {
            let headers = [("Want-Digest", gridlane_dav::digest::want(kinds))];
            let mut client = client.http.clone();
            (client.answer_max, client.connect_max) = (DIGEST_WAIT_MAX, Duration::ZERO);
            let exchange = client.request("HEAD", &source.url, &headers).await?;
            let head = &exchange.response.head;
            let identity = identity_of(source, &exchange.url, head)?;
            let strong = head.digests().into_iter().filter(|checksum| kinds.contains(&checksum.kind()));
            let checksum = strong.max_by_key(|checksum| checksum.kind().strength());
            Ok(Word { identity, checksum, stated: Vec::new(), served: ServerLinks::default() })
        }
    }
}

async fn file_word(source: &Source, kind: Option<ChecksumKind>) -> Result<Word> {
    if let Some(stored) = &source.stored {
        let identity = crate::lane::identity_of_object(stored.object.as_ref());
        // Those that are not kept are not computed: the bytes that are sent are compared by the other side.
        let checksum = stored.checksums.iter().find(|checksum| Some(checksum.kind()) == kind).cloned();
        return Ok(Word { identity, checksum, stated: Vec::new(), served: ServerLinks::default() });
    }
    let (file, identity) = crate::lane::open_file(&source.url).await?;
    let checksum = match kind {
        None => None,
        Some(kind) => Some(hash_file(file, identity.size_bytes.unwrap_or(0), kind).await?),
    };
    Ok(Word { identity, checksum, stated: Vec::new(), served: ServerLinks::default() })
}

/// The checksum of the first `size_bytes` of a file, computed on a thread that may block, when there is a turn for that at its
/// device.
async fn hash_file(file: File, size_bytes: u64, kind: ChecksumKind) -> Result<Checksum> {
    let turn = turns_of(&file).digests().take(budget::current(), 1).await;
    let hash = move || {
        let _turn = turn;
        hash_all(|into, offset| file.read_at(into, offset), size_bytes, vec![kind])
    };
    let found = match tokio::task::spawn_blocking(hash).await {
        Ok(outcome) => outcome?,
        Err(cause) => return Err(Error::new(ErrorKind::Other, format!("hashing failed: {cause}"))),
    };
    found.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Other, "hashing brought nothing"))
}

/// Checksums of the first `size_bytes` of what `read` reads, one of each kind, from reading it once.
pub(crate) fn hash_all(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    size_bytes: u64,
    kinds: Vec<ChecksumKind>,
) -> Result<Vec<Checksum>> {
    let mut hashers: Vec<Hasher> = kinds.into_iter().map(Hasher::new).collect();
    let mut buf = AlignedBuf::new(IO_BYTES);
    let mut at = 0;
    while at < size_bytes {
        let room = (size_bytes - at).min(IO_BYTES as u64) as usize;
        match read(&mut buf[..room], at) {
            Ok(0) => break,
            Ok(count) => {
                hashers.iter_mut().for_each(|hasher| hasher.update(&buf[..count]));
                at += count as u64;
            }
            Err(cause) => return Err(Error::local_io("cannot read the file back", &cause)),
        }
    }
    Ok(hashers.into_iter().map(Hasher::finish).collect())
}
