//! A client that asks for copies over a plain socket, and servers that are started again where they were.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::support::serve::Server;
use crate::support::{DEADLINE, Scratch, names};

/// The host and the port of a URL over clear text.
pub(super) fn authority(url: &str) -> &str {
    url.trim_start_matches("http://").split('/').next().unwrap()
}

/// A request that is under way: its answer is read as it comes.
pub(super) struct Asking {
    stream: TcpStream,
    reader: JoinHandle<()>,
    said: Arc<Mutex<Vec<u8>>>,
}

/// All that came of an answer.
#[derive(Debug)]
pub(super) struct Answered {
    /// 0: nothing came.
    pub(super) status: u16,
    pub(super) text: String,
}

impl Asking {
    /// Sends a COPY with these fields.
    pub(super) fn copy(url: &str, fields: &[&str]) -> Asking {
        Asking::with("COPY", url, fields)
    }

    /// Sends a request without a body.
    pub(super) fn with(method: &str, url: &str, fields: &[&str]) -> Asking {
        let authority = authority(url);
        let path = url.split_once(authority).unwrap().1;
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let mut stream = TcpStream::connect(authority).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut reading = stream.try_clone().unwrap();
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A server that is killed resets the connection.
            while let Ok(count @ 1..) = reading.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Asking { stream, reader, said }
    }

    /// True if the answer is complete, or broken off.
    pub(super) fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// What has come of the answer.
    pub(super) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Waits for the end of the answer.
    pub(super) fn end(self) -> Answered {
        self.reader.join().unwrap();
        let text = String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
        Answered { status, text }
    }

    /// Goes away, as a client that is killed.
    pub(super) fn leave(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
        self.reader.join().unwrap();
    }
}

impl Answered {
    /// The last line of markers, which says how it ended. Empty: it was broken off, or had no markers.
    pub(super) fn last_line(&self) -> &str {
        let mut lines = self.text.lines().rev();
        lines.find(|line| line.starts_with("success:") || line.starts_with("failure:")).unwrap_or_default()
    }

    pub(super) fn is_success(&self) -> bool {
        self.last_line().starts_with("success:")
    }

    #[track_caller]
    pub(super) fn succeeds(&self) {
        assert!(self.status == 202 && self.is_success(), "{self:?}");
    }

    /// Ends with one line about a failure, with these words; never by a status.
    #[track_caller]
    pub(super) fn fails_late(&self, words: &[&str]) {
        let ends = self.text.matches("\nfailure:").count() + self.text.matches("\nsuccess:").count();
        let line = self.last_line();
        assert!(self.status == 202 && ends == 1 && line.starts_with("failure: "), "{self:?}");
        self.says(line, words);
    }

    /// Fails with these words, in a status of its own or in the last line.
    #[track_caller]
    pub(super) fn fails(&self, words: &[&str]) {
        match self.status {
            202 => self.fails_late(words),
            status => {
                assert!(status >= 400, "{self:?}");
                self.says(self.text.split_once("\r\n\r\n").unwrap().1, words);
            }
        }
    }

    #[track_caller]
    pub(super) fn refused(&self, status: u16, words: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        self.fails(words);
    }

    #[track_caller]
    fn says(&self, said: &str, words: &[&str]) {
        for word in words {
            assert!(said.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in {self:?}");
        }
    }
}

/// A directory, and the address where servers offer it, one after the other.
pub(super) struct Home {
    pub(super) scratch: Scratch,
    address: String,
    /// Taken, so that no other process has the address while the server is away.
    _port: tokio::net::TcpSocket,
}

impl Home {
    pub(super) fn new() -> Home {
        let port = tokio::net::TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let scratch = Scratch::new();
        scratch.dir("export");
        Home { scratch, address: port.local_addr().unwrap().to_string(), _port: port }
    }

    pub(super) fn start(&self, options: &[&str]) -> Server {
        let mut command = Server::command(&self.scratch.join("export"));
        command.args(["--allow-write", "--listen", &self.address]).args(options);
        Server::spawn(command)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(super) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(super) fn exported(&self, name: &str) -> PathBuf {
        self.scratch.join("export").join(name)
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.exported(name), bytes).unwrap();
    }

    /// Names of files that clients can see.
    pub(super) fn visible(&self) -> Vec<String> {
        let mut visible = names(&self.exported(""));
        visible.retain(|name| name != ".gridlane");
        visible
    }

    /// Hidden files of copies that are not complete.
    pub(super) fn hidden(&self) -> Vec<PathBuf> {
        let hidden = self.exported(".gridlane");
        let Ok(found) = fs::read_dir(&hidden) else { return Vec::new() };
        let names = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_left = |name: &String| name.contains("part") || name.contains("journal");
        names.filter(is_left).map(|name| hidden.join(name)).collect()
    }

    /// Bytes that the hidden files occupy.
    pub(super) fn hidden_bytes(&self) -> u64 {
        self.hidden().iter().map(|path| crate::support::occupied_bytes(path)).sum()
    }
}
