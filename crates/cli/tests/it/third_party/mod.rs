//! Third-party copies: a client asks one server to copy from or to another one, over HTTP or root://.
//!
//! What the active server says is read here without any of gridlane's code, and as strictly as its strictest reader does.

mod asking;
mod curl;
mod hardships;
mod initiator;
mod killed;
mod large;
mod many;
mod passive;
mod peers;
mod pushes;
mod refusals;
mod root;
mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::support::client::{Outcome, text};
use crate::support::serve::Server;
use crate::support::tools::run_curl;
use crate::support::{DEADLINE, Scratch, names};

/// `gridlane serve` with a directory that anyone may write to, which trusts these authorities of other servers.
struct Site {
    scratch: Scratch,
    server: Server,
}

impl Site {
    fn new() -> Site {
        Site::with(&[])
    }

    fn trusting(ca: &Path) -> Site {
        Site::with(&["--ca", text(ca)])
    }

    fn with(options: &[&str]) -> Site {
        let scratch = Scratch::new();
        let log = scratch.join("access.log");
        let all = [&["--allow-write", "--access-log", text(&log)], options].concat();
        let server = Server::with(&scratch.dir("export"), &all);
        Site { scratch, server }
    }

    /// Where an exported file is on the disk.
    fn exported(&self, name: &str) -> PathBuf {
        self.scratch.join("export").join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.exported(name), bytes).unwrap();
    }

    fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Names of everything that clients can see, and of what they cannot: hidden files of uploads and copies.
    fn all_names(&self) -> (Vec<String>, Vec<String>) {
        let mut visible = names(&self.exported(""));
        let is_hidden = visible.iter().any(|name| name == ".gridlane");
        visible.retain(|name| name != ".gridlane");
        (visible, if is_hidden { names(&self.exported(".gridlane")) } else { Vec::new() })
    }
}

/// The answer to a COPY.
#[derive(Debug)]
struct Copied {
    status: u16,
    /// In lower case.
    head: String,
    body: String,
}

/// A COPY by curl, which sends these fields.
fn copy(url: &str, fields: &[&str]) -> Copied {
    // A source that is gone is tried again for a minute.
    let mut arguments = vec!["--max-time", "150", "--insecure", "--include", "--request", "COPY", url];
    for field in fields {
        arguments.extend(["--header", field]);
    }
    Copied::of(&run_curl(&arguments).ok())
}

impl Copied {
    fn of(outcome: &Outcome) -> Copied {
        let said = outcome.text();
        let (head, body) =
            said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {}", outcome.describe()));
        let status = head[9..12].parse().unwrap();
        Copied { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// The value of a field of the head, in lower case.
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The markers, and the last line, of an answer that has them.
    #[track_caller]
    fn told(&self) -> (Vec<Marker>, &str) {
        assert_eq!(self.status, 202, "{self:?}");
        assert_eq!(self.field("content-type"), Some("text/perf-marker-stream"), "{self:?}");
        assert_eq!(self.field("transfer-encoding"), Some("chunked"), "{self:?}");
        let body =
            self.body.strip_suffix('\n').unwrap_or_else(|| panic!("the last line has no end: {self:?}"));
        let (markers, last) = body.rsplit_once('\n').unwrap_or_else(|| panic!("no marker: {self:?}"));
        assert!(self.body.lines().all(|line| line.len() < 1000), "davix reads 1024 bytes: {self:?}");
        let mut lines = markers.lines();
        let mut told = Vec::new();
        while let Some(line) = lines.next() {
            assert_eq!(line, "Perf Marker", "{self:?}");
            told.push(Marker::read(&mut lines));
        }
        assert!(!told.is_empty(), "{self:?}");
        (told, last)
    }

    #[track_caller]
    fn succeeds(self) -> Copied {
        assert_eq!(self.told().1, "success: Created", "{self:?}");
        self
    }

    /// The same for a server of which only the end counts: 5.5.3 answers 201, and ends without a line feed.
    #[track_caller]
    fn arrives(self) -> Copied {
        let last = self.body.lines().last().unwrap_or_default();
        assert!((200..300).contains(&self.status) && last.starts_with("success"), "{self:?}");
        self
    }

    /// Fails with these words in its last line; or, if it was known before the copy began, in a status of its own.
    #[track_caller]
    fn fails(self, words: &[&str]) -> Copied {
        let said = match self.status {
            202 => {
                let last = self.told().1;
                last.strip_prefix("failure: ").unwrap_or_else(|| panic!("{last:?} in {self:?}")).to_owned()
            }
            _ => {
                assert!(self.status >= 400, "{self:?}");
                self.body.clone()
            }
        };
        for word in words {
            assert!(said.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in {self:?}");
        }
        self
    }

    #[track_caller]
    fn refused(self, status: u16, words: &[&str]) -> Copied {
        assert_eq!(self.status, status, "{self:?}");
        self.fails(words)
    }
}

/// A marker: its lines by their names.
#[derive(Debug)]
struct Marker(BTreeMap<String, String>);

impl Marker {
    /// Reads the lines behind its first one.
    #[track_caller]
    fn read<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Marker {
        let mut found = BTreeMap::new();
        loop {
            let line = lines.next().expect("a marker ends with End").trim();
            if line == "End" {
                return Marker(found);
            }
            let (key, value) = line.split_once(": ").unwrap_or_else(|| panic!("no space in {line:?}"));
            assert!(!value.starts_with(' '), "more than one space in {line:?}");
            assert_eq!(found.insert(key.to_owned(), value.to_owned()), None, "{line:?} came twice");
        }
    }

    /// Bytes that are written, if it says anything about them.
    fn bytes(&self) -> Option<u64> {
        self.0.get("Stripe Bytes Transferred").map(|bytes| bytes.parse().unwrap())
    }

    fn has_remote(&self, start: &str) -> bool {
        self.0.get("RemoteConnections").is_some_and(|remotes| remotes.starts_with(start))
    }
}

/// A COPY whose answer is read while it comes, over a connection that is closed with the value.
struct Watched {
    stream: BufReader<TcpStream>,
}

impl Watched {
    /// Sends it, and reads the head of a 202.
    fn start(server: &Server, path: &str, fields: &[&str]) -> Watched {
        let base = server.url("");
        let authority = base.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(authority).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        write!(stream, "COPY /{path} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n").unwrap();
        let mut watched = Watched { stream: BufReader::new(stream) };
        let status = watched.line();
        assert!(status.starts_with("HTTP/1.1 202 "), "{status}");
        while !watched.line().is_empty() {}
        watched
    }

    /// The next line, of a body with the lines of its chunks.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next marker. A chunk may end within it, but not within a line.
    fn marker(&mut self) -> Marker {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            let is_chunk = line.is_empty() || line.bytes().all(|byte| byte.is_ascii_hexdigit());
            match line.as_str() {
                _ if is_chunk => {}
                "Perf Marker" => lines.clear(),
                _ => {
                    lines.push(line);
                    if lines.last().is_some_and(|line| line == "End") {
                        return Marker::read(&mut lines.iter().map(String::as_str));
                    }
                }
            }
        }
    }
}
