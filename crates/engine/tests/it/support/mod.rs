//! A small HTTP server with faults, and what tests of the engine share.

pub(crate) mod memory;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gridlane_core::{Url, checksum::adler32};
use gridlane_engine::{CopySpec, Event, Observer, OpenTarget, Outcome, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_store::Expectation;
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::path_target::PathTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::script::head_of;

/// What is wrong with a site. All offsets and counts are in bytes of bodies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Refuses to exist: connections are closed at once.
    pub(crate) dead: bool,
    /// A connection breaks after so many bytes.
    pub(crate) breaks_after: Option<u64>,
    /// The site stops sending, on open connections, after so many bytes in all.
    pub(crate) silent_after: Option<u64>,
    /// One wrong byte in every so many; its digest is that of the right bytes.
    pub(crate) lies_every: Option<u64>,
    /// Bytes per second.
    pub(crate) rate: Option<u64>,
    /// Closes after every answer.
    pub(crate) one_request: bool,
    /// Answers every n-th request with 503 or 500.
    pub(crate) errors_every: Option<u64>,
    /// Sends chunks instead of a length.
    pub(crate) chunked: bool,
    /// Has another version under the same name after so many bytes.
    pub(crate) changes_after: Option<u64>,
    /// Has lost the file after so many bytes.
    pub(crate) gone_after: Option<u64>,
    /// Answers every GET with an error whose text never comes.
    pub(crate) mute_errors: bool,
    /// Says 200 and everything, whatever was asked for.
    pub(crate) ignores_ranges: bool,
}

/// Pseudo-random numbers from a seed (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Something that makes a site worse, but not useless.
    pub(crate) fn nuisance(&mut self) -> Faults {
        let mut faults = Faults::default();
        match self.below(6) {
            0 => faults.breaks_after = Some(400_000 + self.below(3_000_000)),
            1 => faults.rate = Some(20_000_000 + self.below(50_000_000)),
            2 => faults.one_request = true,
            3 => faults.errors_every = Some(3 + self.below(5)),
            4 => faults.chunked = true,
            _ => {}
        }
        faults
    }

    /// Something that may make a site useless, or worse.
    pub(crate) fn any_fault(&mut self) -> Faults {
        let mut faults = self.nuisance();
        match self.below(7) {
            0 => faults.dead = true,
            1 => faults.silent_after = Some(self.below(3_000_000)),
            2 => faults.lies_every = Some(100_000 + self.below(1_000_000)),
            3 => faults.changes_after = Some(self.below(3_000_000)),
            4 => faults.ignores_ranges = true,
            5 => faults.breaks_after = Some(1 + self.below(1000)),
            _ => {}
        }
        faults
    }
}

pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&numbers.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// On memory where there is some, so that no test waits for a disk.
pub(crate) fn target_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A server on loopback with one file.
pub(crate) struct Site {
    pub(crate) url: Url,
    pub(crate) faults: Faults,
}

struct Served {
    right: Vec<u8>,
    sent: Vec<u8>,
    faults: Faults,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Site {
    pub(crate) async fn start(bytes: &[u8], faults: Faults, seed: u64) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/f", listener.local_addr().unwrap());
        let mut sent = bytes.to_vec();
        if let Some(every) = faults.lies_every {
            for at in (0..sent.len()).skip((seed % 7) as usize * 1000).step_by(every as usize) {
                sent[at] ^= 0x55;
            }
        }
        let served = Served { right: bytes.to_vec(), sent, faults, requests: 0.into(), bytes: 0.into() };
        let served = Arc::new(served);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                if !served.faults.dead {
                    let served = served.clone();
                    tokio::spawn(async move { served.talk(socket).await });
                }
            }
        });
        Site { url: Url::parse_absolute(&url).unwrap(), faults }
    }
}

impl Served {
    async fn talk(&self, mut socket: TcpStream) -> Option<()> {
        let mut ahead = Vec::new();
        let mut budget = self.faults.breaks_after.unwrap_or(u64::MAX);
        loop {
            let head = head_of(&mut socket, &mut ahead).await?;
            let head = String::from_utf8(head).ok()?;
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            if self.faults.errors_every.is_some_and(|every| number.is_multiple_of(every)) {
                let status = if number.is_multiple_of(2) { "500 Oops" } else { "503 Busy\r\nRetry-After: 0" };
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nsorry");
                socket.write_all(answer.as_bytes()).await.ok()?;
                return None;
            }
            let sent = self.bytes.load(Ordering::Relaxed);
            if self.faults.gone_after.is_some_and(|after| sent >= after) {
                let answer = "HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n";
                socket.write_all(answer.as_bytes()).await.ok()?;
                continue;
            }
            if self.faults.mute_errors && head.starts_with("GET") {
                socket.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n").await.ok()?;
                let _ = socket.read(&mut [0; 1]).await;
                std::future::pending::<()>().await;
            }
            self.answer(&mut socket, &head, &mut budget).await?;
            if self.faults.one_request {
                return None;
            }
        }
    }

    async fn answer(&self, socket: &mut TcpStream, head: &str, budget: &mut u64) -> Option<()> {
        let size = self.sent.len() as u64;
        let changed = self.faults.changes_after.is_some_and(|at| self.bytes.load(Ordering::Relaxed) >= at);
        let etag = if changed { "\"two\"" } else { "\"one\"" };
        let close = if self.faults.one_request { "Connection: close\r\n" } else { "" };
        let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
        if head.starts_with("HEAD") {
            let digest = adler32(&self.right);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: {etag}\r\nDigest: adler32={digest:08x}\r\n{close}\r\n"
            );
            socket.write_all(answer.as_bytes()).await.ok()?;
            return Some(());
        }
        let (status, first, last) = match range.filter(|_| !self.faults.ignores_ranges) {
            None => ("200 OK".to_owned(), 0, size),
            Some(range) => {
                let (first, last) = range.split_once('-')?;
                let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
                if first >= size {
                    let answer = format!(
                        "HTTP/1.1 416 No\r\nContent-Range: bytes */{size}\r\nContent-Length: 0\r\n{close}\r\n"
                    );
                    socket.write_all(answer.as_bytes()).await.ok()?;
                    return Some(());
                }
                let end = (last + 1).min(size);
                let range = format!("206 Partial Content\r\nContent-Range: bytes {first}-{}/{size}", end - 1);
                (range, first, end)
            }
        };
        let framing = match self.faults.chunked {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {}", last - first),
        };
        let answer = format!("HTTP/1.1 {status}\r\n{framing}\r\nETag: {etag}\r\n{close}\r\n");
        socket.write_all(answer.as_bytes()).await.ok()?;
        let mut at = first;
        while at < last {
            let step = (last - at).min(50_000).min(*budget);
            if step == 0 {
                return None;
            }
            let sent = self.bytes.fetch_add(step, Ordering::Relaxed);
            if self.faults.silent_after.is_some_and(|after| sent >= after) {
                // Connected and silent, until the other side gives up.
                let _ = socket.read(&mut [0; 1]).await;
                std::future::pending::<()>().await;
            }
            let piece = &self.sent[at as usize..(at + step) as usize];
            if self.faults.chunked {
                socket.write_all(format!("{step:x}\r\n").as_bytes()).await.ok()?;
            }
            socket.write_all(piece).await.ok()?;
            if self.faults.chunked {
                socket.write_all(b"\r\n").await.ok()?;
            }
            if let Some(rate) = self.faults.rate {
                tokio::time::sleep(Duration::from_secs_f64(step as f64 / rate as f64)).await;
            }
            *budget -= step;
            at += step;
        }
        if self.faults.chunked {
            socket.write_all(b"0\r\n\r\n").await.ok()?;
        }
        Some(())
    }
}

/// A file that is not there yet, of which nothing is left for a later copy.
pub(crate) fn to_file(path: &Path) -> TargetSpec {
    to_file_by(path, JournalKeys::default())
}

/// The same with a key for its journal.
pub(crate) fn to_file_by(path: &Path, keys: JournalKeys) -> TargetSpec {
    let path = path.to_owned();
    TargetSpec::Anywhere(Box::pin(async move {
        let (target, found) = PathTarget::open(&path, &keys)?;
        Ok(OpenTarget { target: Arc::new(target), found, completion: Expectation::Absent.into() })
    }))
}

/// Takes no note of anything.
pub(crate) struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _: &Event<'_>) {}
}

/// Copies, and fails the test if the copy does not end.
pub(crate) async fn copy_quietly(spec: CopySpec) -> Outcome {
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(10));
    let mut quiet = Quiet;
    let ends = copy(spec, client, &mut quiet, std::future::pending());
    tokio::time::timeout(Duration::from_secs(60), ends).await.expect("a copy always ends")
}
