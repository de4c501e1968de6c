//! Many copies to targets in order whose first bytes are late: what waits for them stays within the memory of the process. In a
//! process of its own, so that nothing else is counted.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::Url;
use gridlane_core::checksum::adler32;
use gridlane_core::limits::{REORDER_ALL_BYTES_MAX, REORDER_BYTES_MIN};
use gridlane_engine::{CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Each has as many copies as may move at the same time.
const ENDPOINTS: usize = 8;
const COPIES: u64 = 96;
/// All of them together are three times the memory.
const FILE_BYTES: u64 = 8 << 20;
/// Buffers of lanes, of the sites, which are in this process too, and the program.
const OTHER_BYTES: u64 = 160 << 20;
/// The bytes that are late.
const FIRST_BYTES: u64 = 1 << 20;
/// Pause between two of them, so that their source is not taken for silent, and is not replaced before all else is there.
const PAUSE: Duration = Duration::from_millis(100);
/// Ticks without progress after which no more comes, and bytes that are none.
const STILL_TICKS: u32 = 20;
const STILL_BYTES: u64 = 1024;

/// A file whose first bytes are sent when that is `allowed`; until then its first replica sends one now and then, and the others
/// none.
struct Site {
    bytes: Vec<u8>,
    allowed: watch::Receiver<bool>,
}

impl Site {
    async fn talk(&self, mut socket: TcpStream) -> Option<()> {
        let mut ahead = Vec::new();
        loop {
            let head = loop {
                if let Some(at) = ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                    break String::from_utf8(ahead.drain(..at + 4).collect()).ok()?;
                }
                if socket.read_buf(&mut ahead).await.ok()? == 0 {
                    return None;
                }
            };
            let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
            let Some(range) = range.filter(|_| head.starts_with("GET")) else {
                let digest = adler32(&self.bytes);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {FILE_BYTES}\r\nETag: \"one\"\r\n\
                     Digest: adler32={digest:08x}\r\n\r\n"
                );
                socket.write_all(answer.as_bytes()).await.ok()?;
                continue;
            };
            let (first, last) = range.split_once('-')?;
            let (first, end) = (first.parse::<u64>().ok()?, (last.parse::<u64>().ok()? + 1).min(FILE_BYTES));
            let mut allowed = self.allowed.clone();
            let is_late = first < FIRST_BYTES && !*allowed.borrow_and_update();
            if is_late && !head.starts_with("GET /a/") {
                allowed.wait_for(|is_allowed| *is_allowed).await.ok()?;
            }
            let answer = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/{FILE_BYTES}\r\n\
                 Content-Length: {}\r\nETag: \"one\"\r\n\r\n",
                end - 1,
                end - first
            );
            socket.write_all(answer.as_bytes()).await.ok()?;
            let mut rest = &self.bytes[first as usize..end as usize];
            while let (true, [next, others @ ..]) = (is_late && !*allowed.borrow(), rest) {
                socket.write_all(&[*next]).await.ok()?;
                rest = others;
                let _ = tokio::time::timeout(PAUSE, allowed.changed()).await;
            }
            socket.write_all(rest).await.ok()?;
        }
    }

    async fn start(self: Arc<Site>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let site = self.clone();
                tokio::spawn(async move { site.talk(socket).await });
            }
        });
        format!("http://{address}")
    }
}

/// Tells once when some bytes have come, and no more come.
struct Stillness {
    done_bytes: u64,
    ticks: u32,
    tell: Option<mpsc::UnboundedSender<()>>,
}

impl Observer for Stillness {
    fn event(&mut self, event: &Event<'_>) {
        let Event::Progress(now) = event else { return };
        match self.done_bytes > 0 && now.done_bytes - self.done_bytes < STILL_BYTES {
            true => self.ticks += 1,
            false => (self.done_bytes, self.ticks) = (now.done_bytes, 0),
        }
        if self.ticks >= STILL_TICKS {
            self.tell = None;
        }
    }
}

/// The most memory that this process has had.
fn resident_most_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_late_bytes_is_bounded_over_all_copies() {
    let (allow, allowed) = watch::channel(false);
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    let site = Arc::new(Site { bytes, allowed });
    let mut sites = Vec::new();
    for _ in 0..ENDPOINTS {
        sites.push(site.clone().start().await);
    }
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(60));
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut copies = JoinSet::new();
    for number in 0..COPIES {
        let site = &sites[number as usize % ENDPOINTS];
        let sources = ["a", "b"].map(|name| Url::parse_absolute(&format!("{site}/{name}/{number}")).unwrap());
        let target = TargetSpec::pipe(File::options().write(true).open("/dev/null").unwrap());
        let spec = CopySpec { sources: sources.to_vec(), target, options: Options::default() };
        let (client, tell) = (client.clone(), tell.clone());
        copies.spawn(async move {
            let mut still = Stillness { done_bytes: 0, ticks: 0, tell: Some(tell) };
            let outcome = copy(spec, client, &mut still, std::future::pending()).await;
            outcome.result.map(|()| outcome.report.done_bytes)
        });
    }
    drop(tell);
    // The channel ends when the last one has told.
    assert!(told.recv().await.is_none());
    allow.send(true).unwrap();
    while let Some(done) = copies.join_next().await {
        assert_eq!(done.unwrap().unwrap(), FILE_BYTES);
    }
    let most_bytes = resident_most_bytes();
    let allowed_bytes = REORDER_ALL_BYTES_MAX + COPIES * REORDER_BYTES_MIN + OTHER_BYTES;
    assert!(allowed_bytes < COPIES * FILE_BYTES * 3 / 4, "nothing would be shown");
    assert!(most_bytes <= allowed_bytes, "{} MiB", most_bytes >> 20);
}
