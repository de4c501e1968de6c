//! A fetcher: one connection after the other to one origin, with several requests under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gridlane_core::limits::{
    DIGEST_HEAD_MAX, ERROR_BODY_BYTES_MAX, IO_BYTES, SMALL_AHEAD_BYTES_MIN, SMALL_AHEAD_MAX,
    SMALL_DOWNLOAD_BYTES_MAX, SMALL_ODD_MAX, SMALL_REQUESTS_BYTES_MAX, SMALL_SILENCE_MAX,
    SMALL_UNKNOWN_BYTES_MAX,
};
use gridlane_core::{Checksum, Error, ErrorKind, Result};
use gridlane_dav::ResponseHead;
use gridlane_peer::http::{Connected, Connection, Purpose, Request, Response};
use tokio::sync::watch;
use tokio::time::timeout;

use super::bounds::Bounds;
use super::landing::{GROUP_AGE_MAX, Groups, Landed, Landing};
use super::{Origin, Shared, SmallEnd, SmallFile};
use crate::digests::{self, Word};
use crate::source::{Identity, Source};

/// A fetcher without work waits so long for some before it gives its connection back.
const IDLE_MAX: Duration = Duration::from_millis(100);
/// The rate is measured over at least this.
const RATE_OVER_MIN: Duration = Duration::from_millis(20);
/// Connections that are lost with several requests under way, before a server is given one at a time.
const BROKEN_MAX: u32 = 3;
/// A connection that carried fewer answers before it was lost was lost too soon.
const ANSWERS_MIN: u32 = 8;
/// Bytes of a file of unknown size, before any has come.
const MEAN_BYTES: f64 = 256.0 * 1024.0;
/// Round trips for which files are asked for ahead, at the rate at which they come.
const AHEAD_ROUND_TRIPS: f64 = 1.5;
/// Bytes per second of a connection over a long path, before it has shown how fast it is.
const RATE_AT_FIRST_BYTES_PER_S: f64 = 10e6;
/// Share of what is asked for ahead that is left when more is asked for. To a server that is near, many at once and seldom:
/// each write wakes it. Over a long path, as they come: what is not asked for is missing a round trip later.
const LEFT: f64 = 0.5;
const LEFT_LONG: f64 = 0.85;
/// Connections to a server that is near: while it waits for room in one, others have something to send.
const FETCHERS_MIN: u128 = 4;
/// One more connection for so much of the round trip.
const ROUND_TRIP_A_FETCHER: Duration = Duration::from_millis(8);

/// Begins another fetcher if the origin should have more; says whether it did.
pub(super) fn start(
    shared: &Arc<Shared>,
    origin: &Arc<Origin>,
    stop: impl FnOnce() -> watch::Receiver<bool>,
) -> bool {
    // Several may find at the same time that there is one too few.
    let wanted = origin.fetchers_wanted.load(Relaxed).max(1);
    let one_more = |fetchers| (fetchers < wanted).then_some(fetchers + 1);
    if origin.fetchers.fetch_update(Relaxed, Relaxed, one_more).is_err() {
        return false;
    }
    tokio::spawn(run(shared.clone(), origin.clone(), stop()));
    true
}

/// The number of fetchers that a path with this round trip needs.
pub(super) fn fetchers_for(round_trip: Duration, bounds: &Bounds) -> usize {
    let more = round_trip.as_nanos() / ROUND_TRIP_A_FETCHER.as_nanos();
    usize::try_from(FETCHERS_MIN + more).unwrap_or(usize::MAX).min(bounds.fetchers_max)
}

/// The end of a fetcher, for whatever reason: it is counted off, and the files that it had asked for are not lost.
struct Farewell {
    shared: Arc<Shared>,
    origin: Arc<Origin>,
    asked: VecDeque<Requested>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let files = self.asked.drain(..).map(|asked| asked.file);
        self.shared.end_all(files, || SmallEnd::Returned);
        let is_last = self.origin.fetchers.fetch_sub(1, Relaxed) == 1;
        if is_last {
            // No other fetcher would take them; and a file may have come since this one looked.
            self.shared.end_all(self.origin.queue().drain(..), || SmallEnd::Returned);
        }
    }
}

/// A file that was asked for.
struct Requested {
    file: SmallFile,
    at: Instant,
}

/// The end of a connection.
enum End {
    /// There is nothing to do.
    Idle,
    /// The server said that it closes it, or had closed it before it was used. Nothing is wrong.
    Closed,
    /// A body follows that is too long to be read here.
    Large,
    /// It broke in or before the answer to the oldest request.
    Lost,
    /// No connection could be made.
    Unreachable,
    /// Its server is of no use for this.
    Unfit,
    /// The caller stopped everything.
    Stopped,
}

/// The meaning of an answer.
enum Answer {
    /// The file, and the checksum that was compared with what the server says.
    Good { landed: Landed, verified: Option<Checksum> },
    /// Something else. The connection may go on.
    Odd,
}

/// The checksums that the head of an answer states when the answer is just the file.
struct Said {
    /// Of the kind that was asked for.
    asked: Option<Checksum>,
    /// Of others, which are compared as well.
    stated: Vec<Checksum>,
}

async fn run(shared: Arc<Shared>, origin: Arc<Origin>, mut stop: watch::Receiver<bool>) {
    let mut farewell = Farewell { shared: shared.clone(), origin: origin.clone(), asked: VecDeque::new() };
    let mut fresh = false;
    loop {
        let mut groups = Groups::new(shared.clone(), origin.clone());
        let mut fetcher = Fetcher {
            shared: &shared,
            origin: &origin,
            asked: &mut farewell.asked,
            groups: &mut groups,
            fresh,
            answers: 0,
            sent: 0,
            requests_bytes: 0,
            round_trip: None,
            rate: Rate::default(),
            stopped: stop.clone(),
        };
        let end = tokio::select! {
            biased;
            end = fetcher.connected() => end,
            // An error: the sender of the stop is gone.
            _ = stop.wait_for(|stop| *stop) => End::Stopped,
        };
        let (answers, was_fresh) = (fetcher.answers, fetcher.fresh);
        groups.finish().await;
        match end {
            End::Idle => return,
            End::Stopped => {
                let files = farewell.asked.drain(..).map(|asked| asked.file);
                return shared.end_all(files, || SmallEnd::Stopped);
            }
            End::Unfit => {
                origin.is_unfit.store(true, Relaxed);
                return shared.end_all(origin.queue().drain(..), || SmallEnd::Returned);
            }
            // What is wrong there is for others to find out.
            End::Unreachable => return,
            End::Closed | End::Large | End::Lost => {
                fresh = true;
                let is_lost = matches!(end, End::Lost);
                if is_lost {
                    let first = farewell.asked.pop_front().map(|asked| asked.file);
                    shared.end_all(first.into_iter(), || SmallEnd::Returned);
                    origin.odd.fetch_add(1, Relaxed);
                }
                if !matches!(end, End::Large) {
                    origin.learn(is_lost, answers, was_fresh);
                }
                let mut queue = origin.queue();
                for asked in farewell.asked.drain(..).rev() {
                    queue.push_front(asked.file);
                }
                if origin.is_unfit.load(Relaxed) {
                    return shared.end_all(queue.drain(..), || SmallEnd::Returned);
                }
                drop(queue);
                shared.end_all(origin.take_doubtful().into_iter(), || SmallEnd::Returned);
            }
        }
    }
}

impl Origin {
    /// Files of unknown size that it had better not be asked for.
    fn take_doubtful(&self) -> VecDeque<SmallFile> {
        if !self.has_large() {
            return VecDeque::new();
        }
        let mut queue = self.queue();
        let (known, unknown) = queue.drain(..).partition(|file| file.size_bytes.is_some());
        *queue = known;
        unknown
    }

    /// A connection has ended on which so many answers came.
    fn learn(&self, is_lost: bool, answers: u32, was_fresh: bool) {
        if answers >= ANSWERS_MIN {
            self.broken.store(0, Relaxed);
            // It will close others after as many: no more is asked on them.
            let max = if is_lost || !was_fresh { 0 } else { answers };
            self.requests_max.store(max, Relaxed);
            return;
        }
        if !was_fresh {
            return;
        }
        let broken = self.broken.fetch_add(1, Relaxed) + 1;
        if broken >= BROKEN_MAX {
            self.is_one_by_one.store(true, Relaxed);
        }
        // It closes after nearly every answer: connections are most of the cost, wherever they are made.
        if broken >= 2 * BROKEN_MAX {
            self.is_unfit.store(true, Relaxed);
        }
    }
}

struct Fetcher<'a> {
    shared: &'a Arc<Shared>,
    origin: &'a Arc<Origin>,
    asked: &'a mut VecDeque<Requested>,
    groups: &'a mut Groups,
    /// The connection was made for this file.
    fresh: bool,
    answers: u32,
    sent: u32,
    /// Bytes of one request, about.
    requests_bytes: usize,
    round_trip: Option<Duration>,
    rate: Rate,
    stopped: watch::Receiver<bool>,
}

impl Fetcher<'_> {
    /// One connection's life.
    async fn connected(&mut self) -> End {
        // A connection is made for a file and not in advance.
        let Some(first) = self.next_file().await else { return End::Idle };
        let url = first.url.clone();
        self.asked.push_back(Requested { file: first, at: Instant::now() });
        let connected = self.shared.client.http.connect(&url, &url, Purpose::Lane, self.fresh).await;
        let Ok(Connected { mut connection, .. }) = connected else { return End::Unreachable };
        self.fresh = !connection.is_reused();
        self.round_trip = connection.round_trip();
        connection.read_far_ahead(IO_BYTES);
        // What does not work here is tried once more as a copy like others, which says why.
        connection.skip_speech_probe();
        let first = self.asked.pop_front().map(|asked| asked.file);
        if self.ask(&mut connection, first).await.is_err() {
            return self.lost(&connection);
        }
        loop {
            while !self.asked.is_empty() {
                if let Err(end) = self.answer(&mut connection).await {
                    return end;
                }
                if self.origin.is_unfit.load(Relaxed) || self.origin.odd.load(Relaxed) >= SMALL_ODD_MAX {
                    return End::Unfit;
                }
                if connection.closes() {
                    return End::Closed;
                }
                if self.ask(&mut connection, None).await.is_err() {
                    return self.lost(&connection);
                }
            }
            self.groups.flush().await;
            let Some(file) = self.next_file().await else { return End::Idle };
            if self.ask(&mut connection, Some(file)).await.is_err() {
                return self.lost(&connection);
            }
        }
    }

    /// The end that a broken connection means. One that was idle, or that has nothing to answer, may be closed at any
    /// time.
    fn lost(&self, connection: &Connection) -> End {
        let was_idle = self.answers == 0 && connection.is_reused();
        if was_idle || connection.is_between_answers() && self.sent == self.answers + 1 && self.answers > 0 {
            return End::Closed;
        }
        End::Lost
    }

    /// A file that waits, or one that comes soon.
    async fn next_file(&self) -> Option<SmallFile> {
        let wait = async {
            loop {
                let news = self.origin.news.notified();
                let file = self.origin.queue().pop_front();
                if file.is_some() {
                    return file;
                }
                news.await;
            }
        };
        timeout(IDLE_MAX, wait).await.ok().flatten()
    }

    /// Asks for as many files as should be under way, `first` in front of those that wait.
    async fn ask(&mut self, connection: &mut Connection, first: Option<SmallFile>) -> Result<()> {
        let files = self.take(first);
        if files.is_empty() {
            return Ok(());
        }
        let (at, count, asked) = (Instant::now(), files.len(), self.asked.len());
        self.sent = self.sent.saturating_add(count as u32);
        // They are found here when this future is dropped.
        self.asked.extend(files.into_iter().map(|file| Requested { file, at }));
        let files = || self.asked.iter().skip(asked).map(|asked| &asked.file);
        let client = &self.shared.client.http;
        let wants = files().next().is_some_and(|file| !client.is_silent(&file.url));
        let requests: Vec<Request<'_>> = files()
            .map(|file| match wants {
                true => Request::new("GET", &file.url)
                    .header("Want-Digest", gridlane_dav::digest::name(self.shared.kind)),
                false => Request::new("GET", &file.url),
            })
            .collect();
        let sent = timeout(SMALL_SILENCE_MAX, connection.send_all(&requests)).await;
        self.requests_bytes = sent.unwrap_or_else(|_| Err(silence()))? / count;
        Ok(())
    }

    /// The files to ask for next.
    fn take(&self, first: Option<SmallFile>) -> Vec<SmallFile> {
        let mut files: Vec<SmallFile> = first.into_iter().collect();
        let origin = self.origin;
        let ahead_max = match origin.is_proven.load(Relaxed) && !origin.is_one_by_one.load(Relaxed) {
            true => (SMALL_REQUESTS_BYTES_MAX / self.requests_bytes.max(128)).clamp(1, SMALL_AHEAD_MAX),
            false => 1,
        };
        let is_long = self.round_trip.is_some_and(|round_trip| self.shared.bounds.is_long(round_trip));
        let bytes_max = self.rate.ahead_bytes(self.round_trip, is_long);
        let mut bytes: u64 = self.asked.iter().map(|asked| self.rate.expects(&asked.file)).sum();
        let left = if is_long { LEFT_LONG } else { LEFT };
        let is_enough = bytes as f64 > left * bytes_max as f64 && !self.asked.is_empty();
        if self.asked.len() as f64 > left * ahead_max as f64 || is_enough {
            return files;
        }
        // A server that closes after so many would leave the others unanswered. The next one after that finds out
        // whether it still does.
        let requests_max = match origin.requests_max.load(Relaxed) {
            0 => usize::MAX,
            max if self.sent >= max => 1,
            max => (max - self.sent) as usize,
        };
        let mut queue = origin.queue();
        while self.asked.len() + files.len() < ahead_max && files.len() < requests_max {
            let Some(next) = queue.front() else { break };
            let next_bytes = self.rate.expects(next);
            if bytes + next_bytes > bytes_max && !(self.asked.is_empty() && files.is_empty()) {
                break;
            }
            bytes += next_bytes;
            files.extend(queue.pop_front());
        }
        files
    }

    /// Reads the oldest answer. `Err`: the connection is over; what is left of `asked` was not answered.
    async fn answer(&mut self, connection: &mut Connection) -> std::result::Result<(), End> {
        let response = self.head(connection).await?;
        let Some(Requested { file, at }) = self.asked.front() else { return Err(End::Lost) };
        let (url, at) = (file.url.clone(), *at);
        let told = self.judge(&response, file);
        if response.head.loses_requests() {
            self.origin.is_one_by_one.store(true, Relaxed);
        }
        let answer = match told {
            None if self.is_large(&response) => {
                self.origin.large.fetch_add(1, Relaxed);
                // The body is not read, and the answers behind it are asked for on another connection.
                self.return_first();
                return Err(End::Large);
            }
            None => {
                if connection.drain(ERROR_BODY_BYTES_MAX).await.is_err() {
                    return Err(End::Lost);
                }
                Answer::Odd
            }
            Some(said) => {
                // Its head tells all that others wait for; over a long path its body takes several round trips.
                if said.asked.is_some() || self.shared.client.http.is_silent(&url) {
                    self.proven(connection);
                }
                if !connection.closes() && self.ask(connection, None).await.is_err() {
                    return Err(self.lost(connection));
                }
                self.body(connection, said).await?
            }
        };
        self.answers += 1;
        match answer {
            Answer::Odd => {
                self.origin.odd.fetch_add(1, Relaxed);
                self.return_first();
            }
            Answer::Good { landed, verified } => {
                self.origin.odd.store(0, Relaxed);
                self.origin.came.fetch_add(1, Relaxed);
                if self.shared.client.http.is_silent(&url) {
                    self.proven(connection);
                }
                self.rate.add(landed.size_bytes, self.round_trip);
                if let Some(Requested { file, .. }) = self.asked.pop_front() {
                    self.groups.add(file, landed, verified, at.elapsed(), self.round_trip).await;
                }
            }
        }
        Ok(())
    }

    /// Waits for the head of the oldest answer. What is complete does not wait with it for long.
    async fn head(&mut self, connection: &mut Connection) -> std::result::Result<Response, End> {
        let round_trips = 4 * self.round_trip.unwrap_or_default();
        let is_asking = self.answers == 0 && !self.origin.is_proven.load(Relaxed);
        let silence_max = if is_asking { DIGEST_HEAD_MAX } else { SMALL_SILENCE_MAX } + round_trips;
        if !self.groups.is_empty() {
            match timeout(GROUP_AGE_MAX, connection.response()).await {
                Ok(response) => return response.map_err(|_| self.lost(connection)),
                Err(_) => self.groups.flush().await,
            }
        }
        match timeout(silence_max, connection.response()).await {
            Ok(response) => response.map_err(|_| self.lost(connection)),
            Err(_) => {
                if let Some(asked) = self.asked.front().filter(|_| is_asking) {
                    // It may be reading a large file to compute its checksum.
                    self.shared.client.http.refused_digest_with_bytes(&asked.file.url);
                }
                Err(self.silent())
            }
        }
    }

    /// The end of a connection whose server owes answers and sends nothing: the copies with more patience fetch the
    /// files.
    fn silent(&mut self) -> End {
        while !self.asked.is_empty() {
            self.return_first();
        }
        End::Unfit
    }

    fn return_first(&mut self) {
        let first = self.asked.pop_front().map(|asked| asked.file);
        self.shared.end_all(first.into_iter(), || SmallEnd::Returned);
    }

    /// The checksums that a head states if it announces just the file; else `None`.
    fn judge(&self, response: &Response, file: &SmallFile) -> Option<Said> {
        let head = &response.head;
        let length = head.content_length().ok().flatten();
        let size_max = file.size_bytes.map_or(SMALL_UNKNOWN_BYTES_MAX, |_| SMALL_DOWNLOAD_BYTES_MAX);
        let is_plain = head.status.code() == 200
            && head.content_coding().is_none()
            && !head.is_chunked()
            && length.is_some_and(|length| {
                length <= size_max && file.size_bytes.is_none_or(|size| size == length)
            })
            && !Identity::of_response(head, length).is_metalink;
        is_plain.then(|| self.said(head))
    }

    /// True if the file is larger than was expected.
    fn is_large(&self, response: &Response) -> bool {
        let length = response.head.content_length().ok().flatten().unwrap_or(0);
        response.head.status.code() == 200 && length > ERROR_BODY_BYTES_MAX as u64
    }

    fn said(&self, head: &ResponseHead) -> Said {
        let kind = self.shared.kind;
        let asked = head.digests().into_iter().find(|checksum| checksum.kind() == kind);
        Said { asked, stated: digests::stated(head, Some(kind), true) }
    }

    /// Takes the body of an answer that is just the file.
    async fn body(&mut self, connection: &mut Connection, said: Said) -> std::result::Result<Answer, End> {
        let leave = self.groups.leave_to_open().await;
        let Some(file) = self.asked.front().map(|asked| &asked.file) else { return Err(End::Lost) };
        let mut landing = match leave {
            Some(leave) => Landing::begin(file, self.shared.kind, &said.stated, leave).await,
            None => None,
        };
        let stall_max = SMALL_SILENCE_MAX + 4 * self.round_trip.unwrap_or_default();
        loop {
            // Behind the last byte nothing may be on its way.
            if !self.groups.is_empty() && !connection.has_ahead() && !connection.body_ended() {
                // What is complete does not wait for long with what is not.
                if timeout(GROUP_AGE_MAX, connection.wait_ahead()).await.is_err() {
                    self.groups.flush().await;
                }
            }
            let bytes = match timeout(stall_max, connection.body_ahead()).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(_)) => return Err(End::Lost),
                Err(_) => return Err(self.silent()),
            };
            if bytes.is_empty() {
                break;
            }
            if let Some(open) = &mut landing
                && open.take(bytes).await.is_none()
            {
                // The rest is read all the same: other answers are behind it.
                landing = None;
            }
        }
        let Some(landing) = landing else { return Ok(Answer::Odd) };
        let landed = landing.finish().await;
        let (url, size_bytes) = (file.url.clone(), landed.size_bytes);
        let client = &self.shared.client;
        if said.asked.is_some() {
            client.http.asked_for_digest(&url, true);
        }
        let asked = match said.asked {
            None if !client.http.is_silent(&url) => {
                // Some servers state it in the answer to a HEAD only.
                let source = Source::new(0, url);
                match digests::word(client, &source, Some(self.shared.kind)).await {
                    Ok(Word { identity, checksum, stated, .. })
                        if identity.size_bytes == Some(size_bytes)
                            && stated.iter().all(|one| said.stated.contains(one)) =>
                    {
                        checksum
                    }
                    _ => return Ok(Answer::Odd),
                }
            }
            asked => asked,
        };
        let is_right = asked.iter().chain(&said.stated).all(|one| landed.checksums.contains(one));
        let strongest = said.stated.into_iter().max_by_key(|one| one.kind().strength());
        let verified = asked.or(strongest);
        if !is_right || verified.is_none() && self.shared.require_verified {
            return Ok(Answer::Odd);
        }
        Ok(Answer::Good { landed, verified })
    }

    /// The server gave a proper answer, and its connection may carry the next: others may be made.
    fn proven(&self, connection: &Connection) {
        if connection.closes() || self.origin.is_proven.swap(true, Relaxed) {
            return;
        }
        let wanted = fetchers_for(self.round_trip.unwrap_or_default(), &self.shared.bounds);
        self.origin.fetchers_wanted.store(wanted, Relaxed);
        while start(self.shared, self.origin, || self.stopped.clone()) {}
    }
}

/// The rate of answers.
struct Rate {
    begun: Instant,
    bytes: u64,
    bytes_per_s: f64,
    /// The mean size of the last files, later ones with more weight.
    mean_bytes: f64,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { begun: Instant::now(), bytes: 0, bytes_per_s: 0.0, mean_bytes: MEAN_BYTES }
    }
}

impl Rate {
    fn add(&mut self, bytes: u64, round_trip: Option<Duration>) {
        self.bytes += bytes;
        self.mean_bytes += (bytes as f64 - self.mean_bytes) / 16.0;
        let over = self.begun.elapsed();
        if over >= round_trip.unwrap_or_default().max(RATE_OVER_MIN) {
            let bytes_per_s = self.bytes as f64 / over.as_secs_f64();
            // What comes late comes at once, and makes no faster path.
            self.bytes_per_s = match self.bytes_per_s > 0.0 {
                true => (self.bytes_per_s + bytes_per_s) / 2.0,
                false => bytes_per_s,
            };
            (self.begun, self.bytes) = (Instant::now(), 0);
        }
    }

    /// The size that a file is likely to have.
    fn expects(&self, file: &SmallFile) -> u64 {
        file.size_bytes.unwrap_or(self.mean_bytes as u64)
    }

    /// Bytes of files to have asked for: more than what comes within a round trip, so that the rate may grow. What is asked
    /// for beyond that waits in queues on the way, and what finds no room there is sent twice.
    fn ahead_bytes(&self, round_trip: Option<Duration>, is_long: bool) -> u64 {
        let round_trip = round_trip.unwrap_or_default();
        let within = |bytes_per_s: f64| bytes_per_s * round_trip.as_secs_f64();
        let min = match is_long {
            true => (within(RATE_AT_FIRST_BYTES_PER_S) as u64)
                .clamp(SMALL_AHEAD_BYTES_MIN / 4, SMALL_AHEAD_BYTES_MIN),
            false => SMALL_AHEAD_BYTES_MIN,
        };
        ((AHEAD_ROUND_TRIPS * within(self.bytes_per_s)) as u64).max(min)
    }
}

fn silence() -> Error {
    Error::new(ErrorKind::Timeout, "the server takes no requests")
}

#[cfg(test)]
mod tests;
