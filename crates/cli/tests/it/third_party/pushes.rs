//! Pushes to servers that refuse, that take something else than was sent, and that take nothing more; and clients that leave one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridlane_core::ChecksumKind;

use super::asking::{Asking, Home};
use super::hardships::metric;
use super::killed::open_files;
use crate::support::{MIB, checksum, content, until};

/// More than sockets have room for beside what a server that stalls has taken.
const SIZE: usize = 32 * MIB;

/// The conduct of a server to which a file is pushed.
#[derive(Clone, Copy, Default)]
struct Conduct {
    /// The status for the whole body; 0: 201.
    status: u16,
    /// It takes so much of a body, and then nothing more until it is told to.
    stalls_at: Option<usize>,
    /// The length that it states of the file afterwards, and its Adler-32.
    stated: Option<(usize, u32)>,
}

/// A server for one file.
struct Sink {
    address: String,
    shared: Arc<Shared>,
}

struct Shared {
    conduct: Conduct,
    /// The method of each request, in the order in which they came.
    seen: Mutex<Vec<String>>,
    has_file: AtomicBool,
    /// A body has begun that has not broken off.
    has_body: AtomicBool,
    goes_on: AtomicBool,
    is_over: AtomicBool,
}

impl Sink {
    fn start(conduct: Conduct) -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, has_file, has_body, goes_on, is_over) = Default::default();
        let shared = Arc::new(Shared { conduct, seen, has_file, has_body, goes_on, is_over });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_over.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                // The other end may break a connection.
                std::thread::spawn(move || shared.converse(stream));
            }
        });
        Sink { address, shared }
    }

    fn destination(&self) -> String {
        format!("Destination: http://{}/f", self.address)
    }

    fn count(&self, method: &str) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|seen| *seen == method).count()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                match line.trim_end() {
                    "" => break,
                    line => lines.push(line.to_ascii_lowercase()),
                }
            }
            let field =
                |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let method = lines[0].split(' ').next().unwrap().to_ascii_uppercase();
            self.seen.lock().unwrap().push(method.clone());
            if field("expect").is_some() {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
            if length > 0 {
                self.has_body.store(true, Relaxed);
                self.take(&mut reader, length).inspect_err(|_| self.has_body.store(false, Relaxed))?;
            }
            let answer = match (method.as_str(), self.conduct.stated) {
                ("PUT", _) if self.conduct.status == 0 => {
                    self.has_file.store(true, Relaxed);
                    "201 Created\r\nContent-Length: 0".to_owned()
                }
                ("PUT", _) => format!("{} No\r\nContent-Length: 0", self.conduct.status),
                ("DELETE", _) => {
                    self.has_file.store(false, Relaxed);
                    "204 No Content".to_owned()
                }
                ("HEAD" | "GET", Some((length, adler32))) if self.has_file.load(Relaxed) => {
                    format!("200 OK\r\nContent-Length: {length}\r\nDigest: adler32={adler32:08x}")
                }
                _ => "404 Not Found\r\nContent-Length: 0".to_owned(),
            };
            stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes())?;
        }
    }

    /// Takes a body. An error is the end of its connection in the middle of it.
    fn take(&self, reader: &mut BufReader<TcpStream>, length: usize) -> std::io::Result<()> {
        let (mut left, mut taken, mut buffer) = (length, 0, vec![0; 64 * 1024]);
        while left > 0 {
            let stalls = self.conduct.stalls_at.is_some_and(|at| taken >= at);
            while stalls && !self.goes_on.load(Relaxed) && !self.is_over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let count = reader.read(&mut buffer[..left.min(64 * 1024)])?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            (left, taken) = (left - count, taken + count);
        }
        Ok(())
    }
}

/// A server with a file, and the Adler-32 of that.
fn active() -> (Home, u32) {
    let home = Home::new();
    let bytes = content(9821, SIZE);
    home.put("f", &bytes);
    let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
    (home, u32::from_str_radix(&adler32, 16).unwrap())
}

#[test]
fn what_arrived_otherwise_than_it_was_sent_is_told_and_removed() {
    let (home, adler32) = active();
    let _server = home.start(&[]);
    let push = |sink: &Sink| Asking::copy(&home.url("f"), &[&sink.destination()]).end();
    let right = Sink::start(Conduct { stated: Some((SIZE, adler32)), ..Conduct::default() });
    push(&right).succeeds();
    assert_eq!((right.count("PUT"), right.count("DELETE")), (1, 0));
    let wrong = Sink::start(Conduct { stated: Some((SIZE, 1)), ..Conduct::default() });
    push(&wrong).fails_late(&["checksum mismatch"]);
    assert_eq!((wrong.count("PUT"), wrong.count("DELETE")), (1, 1));
    // Another file has come there since.
    let other = Sink::start(Conduct { stated: Some((SIZE - 1, 1)), ..Conduct::default() });
    push(&other).fails_late(&[]);
    assert_eq!(other.count("DELETE"), 0, "it is not known to be this copy's");
}

#[test]
fn what_the_other_server_does_not_take_is_told() {
    let (home, _) = active();
    let _server = home.start(&[]);
    for status in [403, 413, 507] {
        let sink = Sink::start(Conduct { status, ..Conduct::default() });
        let said = Asking::copy(&home.url("f"), &[&sink.destination()]).end();
        said.fails(&[&status.to_string()]);
        assert_eq!(sink.count("DELETE"), 0, "what was there before is not touched");
    }
}

#[test]
fn a_push_that_nobody_waits_for_ends() {
    let (home, _) = active();
    let server = home.start(&["--admin", "127.0.0.1:0"]);
    let sink = Sink::start(Conduct { stalls_at: Some(MIB), ..Conduct::default() });
    let asked = Asking::copy(&home.url("f"), &[&sink.destination()]);
    until("it is under way", || {
        assert!(!asked.has_ended(), "{}", asked.so_far());
        sink.shared.has_body.load(Relaxed) && asked.so_far().contains("Perf Marker")
    });
    asked.leave();
    until("it is given up", || metric(&server, "gridlane_third_party_copies_running") == 0);
    sink.shared.goes_on.store(true, Relaxed);
    until("its body breaks off", || !sink.shared.has_body.load(Relaxed));
    assert_eq!(sink.count("DELETE"), 0, "the other server keeps nothing of it");
    until("the file is not open any longer", || open_files(&server, &home.exported("")).is_empty());
}
