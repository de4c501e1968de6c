//! The access log: one JSON object per line and request, written after the answer.
//!
//! A thread of its own writes, so that a slow log stalls no transfer. When it cannot keep up the
//! queue fills, and requests then wait for it rather than go unrecorded.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, Result};

use crate::blocking;

/// Lines that wait for the writer.
const QUEUE_MAX: usize = 4096;

/// Where requests are recorded.
pub struct AccessLog {
    writer: Option<Writer>,
}

struct Writer {
    lines: SyncSender<String>,
    thread: JoinHandle<()>,
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
        let (lines, queue) = sync_channel(QUEUE_MAX);
        let thread = std::thread::spawn(move || write_lines(&queue, BufWriter::new(target)));
        AccessLog { writer: Some(Writer { lines, thread }) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    pub(crate) fn write(&self, record: &Record<'_>) {
        let Some(writer) = &self.writer else { return };
        let Ok(mut line) = serde_json::to_string(record) else { return };
        line.push('\n');
        if let Err(TrySendError::Full(line)) = writer.lines.try_send(line) {
            // An error means that the writer is gone: then there is nowhere to write to.
            let _ = blocking::in_place(|| writer.lines.send(line));
        }
    }

    /// Waits until every line is written.
    pub(crate) fn finish(self) {
        if let Some(Writer { lines, thread }) = self.writer {
            drop(lines);
            // A panic of the writer was reported by the panic itself.
            let _ = thread.join();
        }
    }
}

fn write_lines(queue: &Receiver<String>, mut target: BufWriter<impl Write>) {
    while let Ok(line) = queue.recv() {
        // A log that fails (a full disk) must not end the service; what can be written later is.
        let _ = target.write_all(line.as_bytes());
        while let Ok(line) = queue.try_recv() {
            let _ = target.write_all(line.as_bytes());
        }
        let _ = target.flush();
    }
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
