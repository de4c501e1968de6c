//! The access log: one JSON object per line and request, written after the answer. The audit log has only the requests
//! that change something, in a file of its own.
//!
//! A thread of its own writes, so that a slow log stalls no transfer. When it cannot keep up (a pipe whose reader has
//! stopped) the queue fills; then records are dropped and counted, and a record says how many. The service does not
//! stand still for them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridlane_auth::Identity;
use gridlane_core::text::printable_json;
use gridlane_core::{Error, Result, limits};

use gridlane_share::budget::{self, Budget, Lease, Share};

/// A log of requests. Clones write to the same place.
#[derive(Clone)]
pub struct AccessLog {
    writer: Option<Arc<Writer>>,
}

struct Writer {
    messages: SyncSender<Message>,
    lost: Arc<Lost>,
    /// Records that wait.
    waiting: Arc<AtomicUsize>,
    /// When more of them wait than this, one client has a part of the room: else a client that asks often enough would
    /// keep the records of others out.
    freely_max: usize,
    crowd: Arc<Budget>,
}

/// Records that found the queue full.
#[derive(Default)]
struct Lost {
    /// Since the last record that says so.
    unreported: AtomicU64,
    /// Since the start.
    total: AtomicU64,
}

enum Message {
    Line(String, Option<Lease>),
    /// Open the file again, which may have been moved away.
    Reopen,
    /// Hang up when everything before it is written.
    Flush(SyncSender<()>),
}

/// The file or stream that records go to.
enum Target {
    File { path: PathBuf, file: File, is_synced: bool },
    Other(Box<dyn Write + Send>),
}

impl Target {
    fn open(path: &Path) -> Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)
            .map_err(|cause| Error::local_io(format!("cannot open the log {}", path.display()), &cause))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::File { file, .. } => file.write(bytes),
            Target::Other(other) => other.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::File { file, is_synced: true, .. } => file.sync_data(),
            Target::File { file, .. } => file.flush(),
            Target::Other(other) => other.flush(),
        }
    }
}

/// Between two tries to hand the writer a message while its queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);

impl AccessLog {
    /// A log that keeps nothing.
    pub fn off() -> AccessLog {
        AccessLog { writer: None }
    }

    /// A log at the end of a file, which is created readable to its owner and group where it does not exist.
    pub fn to_file(path: &Path) -> Result<AccessLog> {
        AccessLog::to_file_of(path, false)
    }

    /// The same, and each batch of records is brought to the device.
    pub fn to_synced_file(path: &Path) -> Result<AccessLog> {
        AccessLog::to_file_of(path, true)
    }

    fn to_file_of(path: &Path, is_synced: bool) -> Result<AccessLog> {
        let target = Target::File { path: path.to_owned(), file: Target::open(path)?, is_synced };
        AccessLog::with_queue(target, limits::ACCESS_RECORDS_MAX)
    }

    /// A log on the standard error output. Fails when no thread can be had.
    pub fn to_stderr() -> Result<AccessLog> {
        AccessLog::with_queue(Target::Other(Box::new(io::stderr())), limits::ACCESS_RECORDS_MAX)
    }

    /// A log that goes to `target`; one that keeps nothing when no thread can be had.
    pub fn to_writer(target: impl Write + Send + 'static) -> AccessLog {
        let log = AccessLog::with_queue(Target::Other(Box::new(target)), limits::ACCESS_RECORDS_MAX);
        log.unwrap_or_else(|_| AccessLog::off())
    }

    fn with_queue(target: Target, records_max: usize) -> Result<AccessLog> {
        let (messages, queue) = sync_channel(records_max);
        let lost = Arc::<Lost>::default();
        let lost_too = Arc::clone(&lost);
        // Half of the room is taken in the order of arrival, and of the rest one client has a part.
        let all = records_max / 2;
        let crowd = Budget::new("log_records", Share { all, one: (all / limits::CLIENT_PART).max(1) });
        let waiting = Arc::<AtomicUsize>::default();
        let waiting_too = Arc::clone(&waiting);
        std::thread::Builder::new()
            .spawn(move || write_lines(&queue, &lost_too, &waiting_too, BufWriter::new(target)))
            .map_err(|cause| Error::local_io("cannot start the thread that writes a log", &cause))?;
        Ok(AccessLog { writer: Some(Arc::new(Writer { messages, lost, waiting, freely_max: all, crowd })) })
    }

    /// Opens the file again, for log rotation, which has given the old one another name. When that fails the log goes
    /// on in the old file, with a note that says so. Does nothing where there is no file.
    pub fn reopen(&self) {
        self.tell(Message::Reopen, limits::ACCESS_LOG_STOP_MAX);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    /// Records that were dropped since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.lost.total.load(Ordering::Relaxed))
    }

    pub(crate) fn write(&self, record: &Record<'_>) {
        self.write_line(record);
    }

    pub(crate) fn write_copy(&self, record: &CopyRecord<'_>) {
        self.write_line(record);
    }

    /// Records an event of the server that belongs to no request.
    pub fn note(&self, what: &str) {
        self.write_line(&Note { time: timestamp(SystemTime::now()), error: what });
    }

    fn write_line(&self, record: &impl serde::Serialize) {
        let Some(writer) = &self.writer else { return };
        let Some(line) = line_of(record) else { return };
        let lease = match writer.waiting.load(Ordering::Relaxed) < writer.freely_max {
            true => Ok(None),
            false => writer.crowd.try_take(budget::current(), 1).map(Some),
        };
        // Before it can be written.
        writer.waiting.fetch_add(1, Ordering::Relaxed);
        let has_room = lease.is_ok_and(|lease| {
            !matches!(writer.messages.try_send(Message::Line(line, lease)), Err(TrySendError::Full(_)))
        });
        if !has_room {
            writer.waiting.fetch_sub(1, Ordering::Relaxed);
            writer.lost.unreported.fetch_add(1, Ordering::Relaxed);
            writer.lost.total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands the writer a message that must not be lost, unless its queue stays full for too long.
    fn tell(&self, mut message: Message, deadline: Duration) {
        let Some(writer) = &self.writer else { return };
        let began = Instant::now();
        while let Err(TrySendError::Full(refused)) = writer.messages.try_send(message) {
            if began.elapsed() >= deadline {
                return;
            }
            message = refused;
            std::thread::sleep(FULL_PAUSE);
        }
    }

    /// Waits until every line so far is written, though not for ever; returns whether they are.
    pub(crate) fn finish(&self, deadline: Duration) -> bool {
        if self.writer.is_none() {
            return true;
        }
        let began = Instant::now();
        let (done, written) = sync_channel(1);
        self.tell(Message::Flush(done), deadline);
        // A thread that hangs in a write ends with the process. Hung up without a record: none was handed over.
        let left = deadline.saturating_sub(began.elapsed());
        !matches!(written.recv_timeout(left), Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected))
    }
}

fn line_of(record: &impl serde::Serialize) -> Option<String> {
    // A reader's terminal is not to be fooled by a client's name for its file.
    let mut line = printable_json(serde_json::to_string(record).ok()?);
    line.push('\n');
    Some(line)
}

fn write_lines(queue: &Receiver<Message>, lost: &Lost, lines: &AtomicUsize, mut target: BufWriter<Target>) {
    let note = |target: &mut BufWriter<Target>, error: &str| {
        let line = line_of(&Note { time: timestamp(SystemTime::now()), error });
        let _ = target.write_all(line.unwrap_or_default().as_bytes());
    };
    while let Ok(first) = queue.recv() {
        let mut waiting = Vec::new();
        for message in std::iter::once(first).chain(std::iter::from_fn(|| queue.try_recv().ok())) {
            match message {
                // A log that fails (a full disk) must not end the service; what can be written later is.
                Message::Line(line, lease) => {
                    lines.fetch_sub(1, Ordering::Relaxed);
                    let _ = target.write_all(line.as_bytes());
                    drop(lease);
                }
                Message::Reopen => {
                    let _ = target.flush();
                    if let Target::File { path, file, .. } = target.get_mut() {
                        match Target::open(path) {
                            Ok(again) => *file = again,
                            Err(error) => note(
                                &mut target,
                                &format!(
                                    "the log goes on in the old file, which cannot be opened again: {error}"
                                ),
                            ),
                        }
                    }
                }
                Message::Flush(done) => waiting.push(done),
            }
        }
        let count = lost.unreported.swap(0, Ordering::Relaxed);
        if count > 0 {
            note(&mut target, &format!("{count} records lost: the log was not written fast enough"));
        }
        let _ = target.flush();
        for done in waiting {
            // Past their deadline the callers are gone.
            let _ = done.send(());
        }
    }
}

/// A record that is not about a request.
#[derive(serde::Serialize)]
struct Note<'a> {
    time: String,
    error: &'a str,
}

/// One request.
#[derive(serde::Serialize)]
pub(crate) struct Record<'a> {
    /// When the answer was complete.
    pub(crate) time: String,
    /// Unique among the requests of this process.
    pub(crate) id: &'a str,
    /// The other end of the connection, or the client that a trusted proxy names by the PROXY protocol.
    pub(crate) peer: SocketAddr,
    /// That proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<SocketAddr>,
    /// The client that a trusted proxy names in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<&'static str>,
    pub(crate) method: &'a str,
    /// The path that was sent, without the query, which may hold a token.
    pub(crate) path: &'a str,
    /// The same of the destination of a COPY or MOVE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<&'a str>,
    /// The status of HTTP; over root:// 0 or the number of an error.
    pub(crate) status: u16,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    /// Bytes of the answer's body.
    pub(crate) bytes_out: u64,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<String>,
    /// The requester, as far as it was proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<&'a Identity>,
    /// The operation of the last decision, or of the first that refuses, in one word; nothing where no rule was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<&'static str>,
    /// The rule that allowed it, or why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<&'a str>,
    /// The path of the decision, if it is not `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided_path: Option<String>,
    /// The user's name by the login of root://: it is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<String>,
    /// The client's id of the request (`X-Request-Id`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    /// The purpose of the request (`ClientInfo`, as FTS sends it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
}

/// The end of a copy between this server and others that a client has asked for.
#[derive(serde::Serialize)]
pub struct CopyRecord<'a> {
    /// When it ended; set where it is written.
    pub time: String,
    /// The id of the request that asked for it; the other servers were told it (`X-Request-Id`).
    pub id: &'a str,
    /// The address of the client that asked for it.
    pub client: IpAddr,
    /// That client, as far as it was proved.
    pub identity: &'a Identity,
    /// `pull`, `push` or `local`.
    pub copy: &'static str,
    /// The path here.
    pub path: &'a str,
    /// The URLs of the other side, without secrets.
    pub remotes: Vec<String>,
    /// The size of the file, where it was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Bytes that this copy moved.
    pub moved_bytes: u64,
    /// The time from the request to the end.
    pub seconds: f64,
    /// The rate while it ran, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// The checksum of the bytes, where they are all there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// True if that was compared with another one.
    pub verified: bool,
    /// The purpose of the request (`ClientInfo`, as FTS sends it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_info: Option<String>,
    /// Why it failed; nothing where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A client's text about a request in the form in which it is recorded: visible ASCII, and not much of it.
pub fn loggable(value: &str) -> String {
    let is_plain = |character: &char| character.is_ascii_graphic() || *character == ' ';
    let plain: String = value.chars().filter(is_plain).take(limits::LOGGED_FIELD_BYTES_MAX).collect();
    plain.trim().to_owned()
}

/// `2015-10-21T07:28:00.123Z` (RFC 3339).
pub fn timestamp(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last one.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_share::budget::Holder;
    use std::sync::{Condvar, Mutex};

    /// A reader that has stopped reading, until it goes on.
    #[derive(Clone, Default)]
    struct Stalled(Arc<(Mutex<Taken>, Condvar)>);

    #[derive(Default)]
    struct Taken {
        goes_on: bool,
        text: Vec<u8>,
    }

    impl Stalled {
        fn go_on(&self) {
            self.0.0.lock().unwrap().goes_on = true;
            self.0.1.notify_all();
        }

        fn lines(&self) -> Vec<serde_json::Value> {
            let text = self.0.0.lock().unwrap().text.clone();
            String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (state, changed) = &*self.0;
            let mut state = changed.wait_while(state.lock().unwrap(), |state| !state.goes_on).unwrap();
            state.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A client that asks all the time loses records of its own, and none of the others'.
    #[test]
    fn one_client_does_not_fill_the_queue_of_all() {
        let reader = Stalled::default();
        let log = AccessLog::with_queue(Target::Other(Box::new(reader.clone())), 80).unwrap();
        let note = |last: u8, what: &str| {
            let holder = Holder::of(IpAddr::from([192, 0, 2, last]));
            let mut noting = Box::pin(budget::on_behalf(holder, async { log.note(what) }));
            let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(noting.as_mut().poll(waker).is_ready());
        };
        // What the writer has taken before it was stalled is not in the queue.
        while log.lost() == 0 {
            note(1, "one");
        }
        (0..1000).for_each(|_| note(1, "one"));
        (2..5).for_each(|last| note(last, "other"));
        // The queue became empty once, when the writer began.
        assert!(log.lost() > 500);
        reader.go_on();
        assert!(log.finish(Duration::from_secs(60)));
        assert_eq!(reader.lines().iter().filter(|line| line["error"] == "other").count(), 3);
    }

    #[test]
    fn a_reader_that_stops_loses_records_and_stalls_nothing() {
        let reader = Stalled::default();
        let log = AccessLog::with_queue(Target::Other(Box::new(reader.clone())), 10).unwrap();
        for _ in 0..100 {
            log.note("x");
        }
        reader.go_on();
        assert!(log.finish(Duration::from_secs(60)));
        let lines = reader.lines();
        let kept = lines.iter().filter(|line| line["error"] == "x").count();
        let unrecorded: usize = lines
            .iter()
            .filter_map(|line| line["error"].as_str()?.split_once(" records lost")?.0.parse::<usize>().ok())
            .sum();
        assert!((10..100).contains(&kept), "{kept}");
        assert_eq!(kept + unrecorded, 100, "{lines:?}");
        assert_eq!(log.lost() as usize, unrecorded);
    }

    #[test]
    fn a_log_that_was_moved_away_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        let log = AccessLog::to_file(&path).unwrap();
        log.note("before");
        assert!(log.finish(Duration::from_secs(60)));
        std::fs::rename(&path, &moved).unwrap();
        log.note("between");
        log.clone().reopen();
        log.note("after");
        assert!(log.finish(Duration::from_secs(60)));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert!(read(&moved).contains("before") && read(&moved).contains("between"));
        assert!(read(&path).contains("after") && !read(&path).contains("between"));
    }

    #[test]
    fn text_of_clients_is_bounded_and_plain() {
        assert_eq!(loggable("a\u{e9}b c\"\u{7f}"), "ab c\"");
        assert_eq!(loggable(&"x".repeat(5000)).len(), limits::LOGGED_FIELD_BYTES_MAX);
    }

    #[test]
    fn a_stop_does_not_wait_for_a_reader_that_never_comes_back() {
        let reader = Stalled::default();
        let log = AccessLog::with_queue(Target::Other(Box::new(reader.clone())), 10).unwrap();
        log.note("x");
        assert!(!log.finish(Duration::from_millis(10)));
        reader.go_on();
    }

    #[test]
    fn timestamps() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_445_412_480_123, "2015-10-21T07:28:00.123Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }
}
