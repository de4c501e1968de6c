//! A real server on a free port, and a client that says exactly the bytes it is told to say.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

pub(crate) mod crowd;
mod iam;
pub(crate) mod root;
pub(crate) mod site;
mod text;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gridlane_dav::chunked::{ChunkedDecoder, Step};
use gridlane_dav::{Headers, ResponseHead, Status, response::BodyLength};
use gridlane_front::{AccessLog, Summary};
use gridlane_server::{Control, Export, Server, Settings};
use gridlane_share::turns;
use gridlane_store::{Durability, PosixStorage, Storage};
use tokio::sync::oneshot;

pub(crate) use text::Text;

/// Longer than any wait of a passing test; a failing one ends with an error instead of hanging.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server with a runtime of its own.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// Where it answers questions about itself, if it does.
    pub(crate) admin: Option<SocketAddr>,
    control: Control,
    directory: Option<tempfile::TempDir>,
    log: Text,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Summary>>,
}

/// The result of a future that may wait, polled by a thread that may.
pub(crate) fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(task)
}

impl TestServer {
    /// Serves an empty directory, writable.
    pub(crate) fn start() -> TestServer {
        TestServer::with(|settings| settings.service.exports[0].allow_write = true)
    }

    /// Serves an empty directory with other settings.
    pub(crate) fn with(adjust: impl FnOnce(&mut Settings)) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let export = PosixStorage::open(&directory.path().join("export"), Durability::None).unwrap();
        // Servers of other tests are in the same process, and their exports on the same device.
        let export = export.with_turns(Arc::default());
        let mut server = TestServer::of(Arc::new(export), adjust);
        server.directory = Some(directory);
        server
    }

    /// Serves any storage.
    pub(crate) fn of(export: Arc<dyn Storage>, adjust: impl FnOnce(&mut Settings)) -> TestServer {
        let log = Text::default();
        let mut settings = gridlane_server::settings_of(vec!["127.0.0.1:0".parse().unwrap()], export);
        settings.access_log = AccessLog::to_writer(log.clone());
        // What all these tests call it.
        settings.host_names = vec!["h".to_owned()];
        adjust(&mut settings);
        let threads = turns::blocking_threads(settings.service.devices());
        let (stop, stopped) = oneshot::channel();
        let (started, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // As `gridlane serve` makes it.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .max_blocking_threads(threads)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::bind(settings).await.unwrap();
                let places = (server.addresses()[0], server.admin_address(), server.control());
                assert!(started.send(places).is_ok());
                server.run(async { drop(stopped.await) }).await
            })
        });
        let (address, admin, control) = address.recv().unwrap();
        TestServer { address, admin, control, directory: None, log, stop: Some(stop), thread: Some(thread) }
    }

    /// The same directory as another export.
    pub(crate) fn export(&self) -> Export {
        Export::new(Arc::new(PosixStorage::open(&self.path(""), Durability::None).unwrap()))
    }

    /// A path inside of the export.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.as_ref().unwrap().path().join("export").join(relative)
    }

    /// Puts a file into the export.
    pub(crate) fn write(&self, relative: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(relative), bytes).unwrap();
    }

    /// The contents of a file of the export.
    pub(crate) fn read(&self, relative: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(relative)).ok()
    }

    /// The number of partial uploads that lie around.
    pub(crate) fn leftovers(&self) -> usize {
        std::fs::read_dir(self.path(".gridlane")).map_or(0, Iterator::count)
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, request: &str) -> Response {
        let mut client = self.connect();
        client.send(request);
        client.response(request.starts_with("HEAD "))
    }

    /// `METHOD PATH` with fields, each ending in CRLF.
    pub(crate) fn request(&self, line: &str, fields: &str) -> Response {
        self.ask(&format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
    }

    /// The number of requests that were answered to their end.
    pub(crate) fn answered(&self) -> usize {
        self.log.records().len()
    }

    /// The handle that changes the server while it runs.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Leaves the server to itself: it would take too long to stop.
    pub(crate) fn abandon(mut self) {
        drop(self.thread.take());
    }

    /// Tells the server to stop, and does not wait.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server; returns what it did and what it logged.
    pub(crate) fn stop(mut self) -> (Summary, Vec<serde_json::Value>) {
        self.begin_stop();
        let summary = self.thread.take().unwrap().join().unwrap();
        assert_eq!(summary.panicked, 0);
        (summary, self.log.records())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A test that fails does not wait for what may take long to stop: it would hang instead of telling why.
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            let is_sound = thread.join().is_ok_and(|summary| summary.panicked == 0);
            assert!(is_sound, "the server panicked");
        }
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    ahead: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    pub(crate) body: Vec<u8>,
    /// The fields behind a body in chunks.
    pub(crate) trailers: Headers,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect(address).unwrap())
    }

    /// Connects from one of this machine's addresses.
    pub(crate) fn from(source: std::net::IpAddr, address: SocketAddr) -> Client {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                .unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(source, 0)).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        Client::of(TcpStream::from(socket))
    }

    fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, ahead: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// `METHOD PATH` with fields, each ending in CRLF.
    pub(crate) fn request(&mut self, line: &str, fields: &str) -> Response {
        self.send(format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        self.response(line.starts_with("HEAD "))
    }

    /// Says that nothing more will come.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads a head.
    pub(crate) fn head(&mut self) -> ResponseHead {
        loop {
            if let Some((head, used)) = ResponseHead::parse(&self.ahead).unwrap() {
                self.ahead.drain(..used);
                return head;
            }
            assert!(
                self.fill().unwrap() > 0,
                "ended within a head: {:?}",
                String::from_utf8_lossy(&self.ahead)
            );
        }
    }

    /// Reads an answer with its body.
    pub(crate) fn response(&mut self, to_head: bool) -> Response {
        let head = self.head();
        let body = match head.body_length(to_head).unwrap() {
            BodyLength::Known(len) => self.take(len as usize),
            BodyLength::UntilClose => self.rest(),
            BodyLength::Chunked => {
                let (body, trailers) = self.chunks_and_trailers();
                return Response { head, body, trailers };
            }
        };
        Response { head, body, trailers: Headers::new() }
    }

    /// Reads chunks up to the last one, and what is behind it.
    fn chunks_and_trailers(&mut self) -> (Vec<u8>, Headers) {
        let (mut decoder, mut body) = (ChunkedDecoder::new(), Vec::new());
        loop {
            let (step, used) = decoder.step(&self.ahead).unwrap();
            let is_end = step == Step::End;
            if let Step::Data(data) = step {
                body.extend_from_slice(data);
            }
            self.ahead.drain(..used);
            if is_end {
                return (body, decoder.trailers().clone());
            }
            if used == 0 || self.ahead.is_empty() {
                assert!(self.fill().unwrap() > 0, "ended within chunks");
            }
        }
    }

    /// Reads chunks up to the last one; without that, what came is the error.
    pub(crate) fn chunks(&mut self) -> Result<Vec<u8>, Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.try_chunk() {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body),
                Err(_) => return Err(body),
            }
        }
    }

    /// Reads one chunk; `None` for the last one.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        self.try_chunk().unwrap()
    }

    fn try_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line_len = loop {
            match self.ahead.windows(2).position(|two| two == b"\r\n") {
                Some(at) => break at,
                None if self.fill()? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => {}
            }
        };
        let size = std::str::from_utf8(&self.ahead[..line_len]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.ahead.len() < line_len + size + 4 {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let chunk = self.ahead[line_len + 2..line_len + 2 + size].to_vec();
        assert_eq!(&self.ahead[line_len + 2 + size..line_len + size + 4], b"\r\n");
        self.ahead.drain(..line_len + size + 4);
        Ok((size > 0).then_some(chunk))
    }

    /// Reads exactly `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len {
            assert!(self.fill().unwrap() > 0, "ended {} bytes before the body", len - self.ahead.len());
        }
        self.ahead.drain(..len).collect()
    }

    /// Reads whatever comes until the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => panic!("the server does not end"),
                Err(_) => break,
            }
        }
        std::mem::take(&mut self.ahead)
    }

    /// True if the server has ended the connection, without another byte.
    pub(crate) fn is_ended(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.ahead.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head.status.code()
    }

    pub(crate) fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.head.headers.single(name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// An error answer says what, and whether to retry.
    pub(crate) fn assert_refused(&self, status: Status, part: &str) {
        assert_eq!(self.head.status, status, "{}", self.text());
        let media_type = match status {
            // With the condition for programs (RFC 4331, 6).
            Status::INSUFFICIENT_STORAGE => "application/xml; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(self.field("content-type"), Some(media_type));
        assert!(self.text().contains(part), "{}", self.text());
        assert!(self.text().contains("again"), "{}", self.text());
    }
}

/// Bytes that differ everywhere, the same ones for the same seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Marsaglia's xorshift: the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..=self.below(max)).map(|_| self.below(256) as u8).collect()
    }
}
