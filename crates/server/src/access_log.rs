//! The access log: one JSON object per line and request, written after the answer.
//!
//! A thread of its own writes, so that a slow log stalls no transfer. When it cannot keep up (a pipe whose
//! reader has stopped) the queue fills; then records are dropped and counted, and a record says how many,
//! rather than that the service stands still.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, Result, limits};

/// Where requests are recorded.
pub struct AccessLog {
    writer: Option<Writer>,
}

struct Writer {
    lines: SyncSender<String>,
    /// Records that found the queue full since the writer last told of them.
    lost: Arc<AtomicU64>,
    /// Hangs up when everything is written.
    written: Mutex<Receiver<()>>,
}

impl AccessLog {
    /// Nowhere.
    pub fn off() -> AccessLog {
        AccessLog { writer: None }
    }

    /// At the end of a file, which is created readable to its owner and group where it does not exist.
    pub fn to_file(path: &Path) -> Result<AccessLog> {
        use std::os::unix::fs::OpenOptionsExt;
        let file: File =
            OpenOptions::new().append(true).create(true).mode(0o640).open(path).map_err(|cause| {
                Error::local_io(format!("cannot open the access log {}", path.display()), &cause)
            })?;
        Ok(AccessLog::to_writer(file))
    }

    /// On the standard error output.
    pub fn to_stderr() -> AccessLog {
        AccessLog::to_writer(io::stderr())
    }

    /// Wherever `target` leads.
    pub fn to_writer(target: impl Write + Send + 'static) -> AccessLog {
        AccessLog::with_queue(target, limits::ACCESS_RECORDS_MAX)
    }

    fn with_queue(target: impl Write + Send + 'static, records_max: usize) -> AccessLog {
        let (lines, queue) = sync_channel(records_max);
        let lost = Arc::<AtomicU64>::default();
        let (done, written) = sync_channel(0);
        let lost_too = Arc::clone(&lost);
        std::thread::spawn(move || {
            // Dropped at the end, also by a panic, which has reported itself.
            let _done: SyncSender<()> = done;
            write_lines(&queue, &lost_too, BufWriter::new(target));
        });
        AccessLog { writer: Some(Writer { lines, lost, written: Mutex::new(written) }) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    pub(crate) fn write(&self, record: &Record<'_>) {
        self.write_line(record);
    }

    /// Records what happened to the server and not to a request.
    pub(crate) fn note(&self, what: &str) {
        self.write_line(&Note { time: timestamp(SystemTime::now()), error: what });
    }

    fn write_line(&self, record: &impl serde::Serialize) {
        let Some(writer) = &self.writer else { return };
        let Some(line) = line_of(record) else { return };
        if let Err(TrySendError::Full(_)) = writer.lines.try_send(line) {
            writer.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every line is written, though not for ever; returns whether they are.
    pub(crate) fn finish(self, deadline: Duration) -> bool {
        let Some(Writer { lines, written, .. }) = self.writer else { return true };
        drop(lines);
        let written = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent. A thread that hangs in a write ends with the process.
        written.recv_timeout(deadline) != Err(RecvTimeoutError::Timeout)
    }
}

fn line_of(record: &impl serde::Serialize) -> Option<String> {
    let mut line = serde_json::to_string(record).ok()?;
    line.push('\n');
    Some(line)
}

fn write_lines(queue: &Receiver<String>, lost: &AtomicU64, mut target: BufWriter<impl Write>) {
    while let Ok(line) = queue.recv() {
        // A log that fails (a full disk) must not end the service; what can be written later is.
        let _ = target.write_all(line.as_bytes());
        while let Ok(line) = queue.try_recv() {
            let _ = target.write_all(line.as_bytes());
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let error = format!("{count} records lost: the log was not written fast enough");
            let note = line_of(&Note { time: timestamp(SystemTime::now()), error: &error });
            let _ = target.write_all(note.unwrap_or_default().as_bytes());
        }
        let _ = target.flush();
    }
}

/// What is not about a request.
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
    pub(crate) id: String,
    pub(crate) peer: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<&'static str>,
    pub(crate) method: &'a str,
    /// As sent, without the query, which may hold a token.
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    /// Of the body.
    pub(crate) bytes_in: u64,
    /// Of the body.
    pub(crate) bytes_out: u64,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
}

/// `2015-10-21T07:28:00.123Z` (RFC 3339).
pub(crate) fn timestamp(moment: SystemTime) -> String {
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
    use std::sync::Condvar;

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

    #[test]
    fn who_does_not_read_the_log_loses_records_and_stops_nothing() {
        let reader = Stalled::default();
        let log = AccessLog::with_queue(reader.clone(), 10);
        for _ in 0..100 {
            log.note("x");
        }
        reader.go_on();
        assert!(log.finish(Duration::from_secs(60)));
        let lines = reader.lines();
        let kept = lines.iter().filter(|line| line["error"] == "x").count();
        let told: usize = lines
            .iter()
            .filter_map(|line| line["error"].as_str()?.split_once(" records lost")?.0.parse::<usize>().ok())
            .sum();
        assert!((10..100).contains(&kept), "{kept}");
        assert_eq!(kept + told, 100, "{lines:?}");
    }

    #[test]
    fn a_stop_does_not_wait_for_a_reader_that_never_comes_back() {
        let reader = Stalled::default();
        let log = AccessLog::with_queue(reader.clone(), 10);
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
