//! A scriptable HTTP server: a closure turns each request into an answer, right or wrong.
//!
//! It is written without any of gridlane's code, so that a misunderstanding of the protocol there is not
//! repeated here.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridlane_sys::tcp::ClosedPort;

use super::object::{Answer, Framing, Then};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    /// First and last byte asked for.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// The number of requests that this server had before.
    pub(crate) number: usize,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The values of all headers of a name in lower case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(found, _)| found == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn is_get(&self) -> bool {
        self.method == "GET"
    }
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    /// Bytes per second of each connection; 0: as fast as it goes.
    rate: u64,
    stopped: AtomicBool,
    sent_bytes: AtomicU64,
    requests: Mutex<Vec<Request>>,
    open: AtomicUsize,
}

/// A running server; it stops when the value is dropped.
pub(crate) struct Rogue {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Rogue {
    pub(crate) fn start(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Rogue {
        Rogue::with_rate(0, handler)
    }

    /// Each connection sends no faster than `rate` bytes per second.
    pub(crate) fn with_rate(
        rate: u64,
        handler: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Rogue {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            rate,
            stopped: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
            requests: Mutex::new(Vec::new()),
            open: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.stopped.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                shared.open.fetch_add(1, Relaxed);
                std::thread::spawn(move || {
                    // A connection that breaks is the client's right.
                    let _ = converse(stream, &shared);
                    shared.open.fetch_sub(1, Relaxed);
                });
            }
        });
        Rogue { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Bytes of bodies handed to the kernel so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Relaxed)
    }

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> usize {
        self.shared.open.load(Relaxed)
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// At a port without a listener, which stays taken until this process ends.
pub(crate) fn closed_port_url(path: &str) -> String {
    static TAKEN: Mutex<Vec<ClosedPort>> = Mutex::new(Vec::new());
    let port = ClosedPort::new().unwrap();
    let url = format!("http://{}/{path}", port.address());
    TAKEN.lock().unwrap().push(port);
    url
}

fn converse(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(mut request) = read_head(&mut reader, shared)? {
        {
            let mut requests = shared.requests.lock().unwrap();
            request.number = requests.len();
            requests.push(request.clone());
        }
        let answer = (shared.handler)(&request);
        send(&stream, &request, &answer, shared)?;
        match answer.then {
            Then::Keep => {}
            Then::Close => {
                // Nothing unread may be left, or closing becomes a reset that overtakes the answer.
                stream.shutdown(std::net::Shutdown::Write)?;
                return wait_for_end(&stream, shared);
            }
            Then::Stall => return wait_for_end(&stream, shared),
        }
    }
    Ok(())
}

/// `None`: the peer closed, or the test is over.
fn read_head(reader: &mut BufReader<TcpStream>, shared: &Shared) -> std::io::Result<Option<Request>> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(cause) if is_timeout(&cause) && !shared.stopped.load(Relaxed) => {}
                Err(cause) => return Err(cause),
            }
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut first = lines.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let range = headers.iter().find(|(name, _)| name == "range").and_then(|(_, value)| {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    });
    Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), headers, range, number: 0 }))
}

fn send(mut stream: &TcpStream, request: &Request, answer: &Answer, shared: &Shared) -> std::io::Result<()> {
    stream.write_all(&answer.head())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let started = Instant::now();
    let mut sent = 0;
    for piece in answer.payload().chunks(64 * 1024) {
        if answer.framing == Framing::Chunked {
            write!(stream, "{:x}\r\n", piece.len())?;
        }
        stream.write_all(piece)?;
        if answer.framing == Framing::Chunked {
            stream.write_all(b"\r\n")?;
        }
        sent += piece.len() as u64;
        shared.sent_bytes.fetch_add(piece.len() as u64, Relaxed);
        if let Some(due) = (sent * 1_000_000).checked_div(shared.rate) {
            std::thread::sleep(Duration::from_micros(due).saturating_sub(started.elapsed()));
        }
        if shared.stopped.load(Relaxed) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
    }
    if answer.framing == Framing::Chunked && answer.sent == answer.range.len() {
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(())
}

fn wait_for_end(mut stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut ignored = [0; 4096];
    while !shared.stopped.load(Relaxed) {
        match stream.read(&mut ignored) {
            Ok(0) => break,
            Err(cause) if !is_timeout(&cause) => break,
            _ => {}
        }
    }
    Ok(())
}

fn is_timeout(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
