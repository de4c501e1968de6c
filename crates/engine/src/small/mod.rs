//! Many small files over HTTP: pipelined requests, one buffer, commits in groups.
//!
//! [`copy`](crate::copy) makes of a file a plan, lanes, a ledger and a journal, which costs more than moving 100 kB does.
//! A small file needs none of that: it comes with one answer, and when anything about that answer is odd, the file is
//! *returned*, and the caller copies it with [`copy`](crate::copy), which knows what to do and what to say. So there is one
//! place for errors, retries, redirects and doubts, and here there is only the case that nearly every file is.
//!
//! ```text
//!  push ──▶ origin: queue ──▶ fetcher: GET GET GET ▶            ends ──▶ caller
//!                     └─────▶ fetcher:   ◀ 200, bytes ──▶ unnamed file ──▶ group: sync, link, sync directories
//! ```
//!
//! A *fetcher* is a task with one connection of the client's pool, with the same credentials, proxies and TLS as every other.
//! It sends several requests with one write and reads the answers in order through a buffer that is kept. How many are
//! under way follows from the rate and the round trip; until a server has given a first answer, each connection carries one
//! request, to see whether it says checksums and keeps the connection. Over a long path, connections are made while the
//! caller still lists what there is ([`SmallFiles::expect`]).
//!
//! What a file of 100 kB costs, at least, in system calls: one `recv` for two and a half files (with TLS the same for the
//! records), one or two `pwrite`, a `send` for some ten files, and what [`unnamed`](mod@gridlane_store::unnamed) says: six
//! calls that move no byte, on a device seven. Copies: from the socket to the buffer and from there to the page cache; with TLS
//! the records are decrypted into the buffer.
//!
//! What is bounded: files that wait or are under way ([`SMALL_FILES_WAITING_MAX`]), connections to an origin, requests and
//! bytes asked for ahead on each, files that wait for a sync (their number and their bytes), and by what the process may have
//! open, all that takes a descriptor.

mod bounds;
mod fetch;
mod landing;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::limits::{SMALL_DOWNLOAD_BYTES_MAX, SMALL_FILES_WAITING_MAX};
use gridlane_core::{ChecksumKind, Error, Scheme, Url};
use gridlane_peer::Client;
use gridlane_peer::http::Purpose;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use self::bounds::Bounds;
use crate::{Options, Report, digests};

pub use gridlane_store::unnamed::Directory;

/// A file to fetch.
#[derive(Debug)]
pub struct SmallFile {
    /// The caller's number for it.
    pub id: u64,
    /// Its only source.
    pub url: Url,
    /// Its size, if a listing told.
    pub size_bytes: Option<u64>,
    /// Where it goes.
    pub directory: Arc<Directory>,
    /// Its name there; nothing of that name is there.
    pub name: OsString,
    /// When it was last changed, if the copy is to have that time.
    pub modified: Option<SystemTime>,
}

/// The end of a file.
#[derive(Debug)]
pub enum SmallEnd {
    /// It is at its target, durable and under its name.
    Copied {
        /// The report of its copy.
        report: Box<Report>,
        /// Why it does not have the time it was to have.
        time_lost: Option<Error>,
    },
    /// It is to be copied by [`copy`](crate::copy): something about it is not as it is with most files. Nothing of it is left.
    Returned,
    /// It was stopped. Nothing of it is left.
    Stopped,
}

/// Ends of files, with their numbers.
pub type SmallEnds = Vec<(u64, SmallEnd)>;

/// Fetches small files. Dropping it stops what is under way.
pub struct SmallFiles {
    shared: Arc<Shared>,
    ends: mpsc::UnboundedReceiver<SmallEnds>,
    stop: watch::Sender<bool>,
    origins: HashMap<OriginKey, Arc<Origin>>,
    /// Files that were pushed and have not ended.
    under_way: usize,
}

/// Fewer large files of unknown size than this prove nothing about the others.
const LARGE_MIN: u32 = 3;
/// Each large file of unknown size costs a connection. One among so many files is accepted.
const LARGE_SHARE: u32 = 16;

/// The data that all fetchers share.
struct Shared {
    client: Client,
    kind: ChecksumKind,
    /// The caller asked for this kind of checksum.
    is_kind_asked: bool,
    /// A file that cannot be compared is returned: the ordinary copy reports the failure.
    require_verified: bool,
    ends: mpsc::UnboundedSender<SmallEnds>,
    bounds: Bounds,
    /// For files that are open.
    leaves: Arc<Semaphore>,
}

/// Scheme, host, port, and true if its URLs have credentials: connections that agree in these are interchangeable.
type OriginKey = (Scheme, String, u16, bool);

/// One server.
#[derive(Default)]
struct Origin {
    queue: Mutex<VecDeque<SmallFile>>,
    /// There is something in the queue.
    news: Notify,
    /// Fetchers that it has.
    fetchers: AtomicUsize,
    /// Fetchers that it should have; one until more is known of the path.
    fetchers_wanted: AtomicUsize,
    /// It has given a proper answer and kept the connection.
    is_proven: AtomicBool,
    /// It gets one request at a time: with more it broke connections.
    is_one_by_one: AtomicBool,
    /// No more requests go to this origin.
    is_unfit: AtomicBool,
    /// Connections that were lost with several requests under way and few answers, since the last that were not.
    broken: AtomicU32,
    /// Answers in a row that were of no use.
    odd: AtomicU32,
    /// Requests that a connection carries before the server closes it, if it does.
    requests_max: AtomicU32,
    /// Files of unknown size that turned out to be large, and all that came.
    large: AtomicU32,
    came: AtomicU32,
    /// The last sync took no longer than one that waits for no device.
    syncs_are_brief: AtomicBool,
}

impl SmallFiles {
    /// For files with these options. `None` when they ask for something that only [`copy`](crate::copy) does.
    pub fn new(client: Client, options: &Options) -> Option<SmallFiles> {
        SmallFiles::within(client, options, Bounds::of_process())
    }

    fn within(client: Client, options: &Options, bounds: Bounds) -> Option<SmallFiles> {
        let Options { checksum, known, streams, limit, .. } = options;
        let has_value = checksum.as_ref().is_some_and(|(_, value)| value.is_some());
        let is_known = known.size_bytes.is_some() || !known.checksums.is_empty() || known.pieces.is_some();
        if has_value || is_known || streams.is_some() || limit.is_some() {
            return None;
        }
        // Without a bound, and never long: one end for each file that is under way, and there are at most
        // `SMALL_FILES_WAITING_MAX` of these (`has_room`).
        let (tell, ends) = mpsc::unbounded_channel();
        let kind = digests::kinds(options)[0];
        let leaves = Arc::new(Semaphore::new(bounds.files_open_max));
        let (is_kind_asked, require_verified) = (checksum.is_some(), options.require_verified);
        let shared =
            Arc::new(Shared { client, kind, is_kind_asked, require_verified, ends: tell, bounds, leaves });
        let (stop, origins) = (watch::channel(false).0, HashMap::new());
        Some(SmallFiles { shared, ends, stop, origins, under_way: 0 })
    }

    /// True if a file of this size from there is one for [`SmallFiles::push`]. One of unknown size is, as long as
    /// those of this server mostly turn out to be small.
    pub fn takes(&self, url: &Url, size_bytes: Option<u64>) -> bool {
        url.scheme().is_http()
            && size_bytes.is_none_or(|size_bytes| size_bytes <= SMALL_DOWNLOAD_BYTES_MAX)
            && !self.shared.client.http.refuses_digest_with_bytes(url)
            && match self.origins.get(&key(url)) {
                Some(origin) => {
                    !origin.is_unfit.load(Relaxed) && (size_bytes.is_some() || !origin.has_large())
                }
                None => self.origins.len() < self.shared.bounds.origins_max,
            }
    }

    /// True if another file may be pushed before some have ended.
    pub fn has_room(&self) -> bool {
        self.under_way < SMALL_FILES_WAITING_MAX
    }

    /// The most directories that may be open for files that are pushed.
    pub fn directories_max(&self) -> usize {
        self.shared.bounds.directories_open_max
    }

    /// Files that were pushed and have not ended.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Files are likely to come from the server of `url`: over a long path, connections are made meanwhile, `others` of them for
    /// something else than files. Only where the server has kept a connection after an answer: one that serves a single
    /// connection at a time would wait for a request on one of these.
    pub fn expect(&mut self, url: &Url, others: usize) {
        let keeps_connections = || self.shared.client.http.has_idle(url, Purpose::Request);
        if !self.takes(url, None) || self.origins.contains_key(&key(url)) || !keeps_connections() {
            return;
        }
        let origin = self.origins.entry(key(url)).or_default();
        let (shared, stop) = (self.shared.clone(), self.stop.subscribe());
        tokio::spawn(warm::run(shared, origin.clone(), url.clone(), others, stop));
    }

    /// Fetches a file that [`SmallFiles::takes`] takes.
    pub fn push(&mut self, file: SmallFile) {
        self.under_way += 1;
        let origin = self.origins.entry(key(&file.url)).or_default();
        origin.queue().push_back(file);
        fetch::start(&self.shared, origin, || self.stop.subscribe());
        origin.news.notify_one();
    }

    /// The next ends of files. May be dropped at any time. `None` when nothing is under way.
    pub async fn next(&mut self) -> Option<SmallEnds> {
        if self.under_way == 0 {
            return None;
        }
        let ends = self.ends.recv().await?;
        self.under_way = self.under_way.saturating_sub(ends.len());
        Some(ends)
    }

    /// Begins with no further file. Those that wait end as stopped.
    pub fn begin_nothing(&mut self) {
        for origin in self.origins.values() {
            self.shared.end_all(origin.queue().drain(..), || SmallEnd::Stopped);
        }
    }

    /// Stops everything; what is not complete ends as stopped.
    pub fn stop(&mut self) {
        self.begin_nothing();
        self.stop.send_replace(true);
    }
}

impl Drop for SmallFiles {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn end(&self, ends: SmallEnds) {
        if !ends.is_empty() {
            // The receiver is gone when everything was stopped.
            let _ = self.ends.send(ends);
        }
    }

    fn end_all(&self, files: impl Iterator<Item = SmallFile>, end: impl Fn() -> SmallEnd) {
        self.end(files.map(|file| (file.id, end())).collect());
    }
}

impl Origin {
    /// True if so many of its files are large that asking for one of unknown size is likely to be in vain.
    fn has_large(&self) -> bool {
        let (large, came) = (self.large.load(Relaxed), self.came.load(Relaxed));
        large >= LARGE_MIN && large > came / LARGE_SHARE
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<SmallFile>> {
        // Single steps: a panic elsewhere leaves it whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(url: &Url) -> OriginKey {
    let at = url.endpoint();
    (at.scheme, at.host, at.port, url.has_secrets())
}
