//! `gridlane serve` on a free port.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::client::{Captured, gridlane, signal};
use super::{DEADLINE, Scratch, secrets, until};

/// A running server. It is killed when the value is dropped.
pub(crate) struct Server {
    child: Child,
    listening: Value,
    stdout: BufReader<ChildStdout>,
    /// The text that was read of it.
    said: String,
    stderr: Captured,
    /// Texts of it that can be seen only while it runs, and their places.
    seen: Vec<(String, Vec<u8>)>,
    /// The files that it appends to, as far as they were seen.
    logs: Vec<PathBuf>,
    _data_home: Scratch,
}

impl Server {
    /// Serves a directory on IPv4 loopback, read-only.
    pub(crate) fn start(dir: &Path) -> Server {
        Server::with(dir, &[])
    }

    /// The same with more options.
    pub(crate) fn with(dir: &Path, options: &[&str]) -> Server {
        let mut command = Server::command(dir);
        command.args(["--listen", "127.0.0.1:0"]).args(options);
        Server::spawn(command)
    }

    /// `gridlane serve DIR --json`, without an address to listen at.
    pub(crate) fn command(dir: &Path) -> Command {
        let mut command = gridlane();
        command.arg("serve").arg(dir).arg("--json");
        command
    }

    /// Serves what a configuration file says.
    pub(crate) fn by_file(file: &Path) -> Server {
        let mut command = gridlane();
        command.args(["serve", "--json", "--config"]).arg(file);
        Server::spawn(command)
    }

    /// The next line that it prints on standard output.
    pub(crate) fn next_event(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        self.said.push_str(&line);
        serde_json::from_str(&line).unwrap()
    }

    /// Starts a server and waits until it says where it listens.
    pub(crate) fn spawn(mut command: Command) -> Server {
        let data_home = Scratch::new();
        command.env("XDG_DATA_HOME", data_home.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = say.send((line, stdout));
        });
        let (line, stdout) = said.recv_timeout(DEADLINE).expect("the server says where it listens");
        let Ok(listening) = serde_json::from_str::<Value>(&line) else {
            let _ = child.kill();
            panic!("the server says {line:?}, then {:?}", rest(child.stderr.take().unwrap()));
        };
        assert_eq!(listening["type"], "listening", "{line}");
        if let Ok(key) = std::fs::read_to_string(data_home.join("gridlane/key.pem")) {
            secrets::remember_key(&key);
        }
        // Kept, to be searched for secrets in the end, and rather than block the server.
        let stderr = Captured::from(child.stderr.take().unwrap());
        let seen = vec![secrets::command_line(child.id())];
        let logs = secrets::logs_of(child.id());
        Server { child, listening, stdout, said: line, stderr, seen, logs, _data_home: data_home }
    }

    /// The URL of a path (which must be encoded already) over `http` or `https`.
    pub(crate) fn url_over(&self, scheme: &str, path: &str) -> String {
        self.url_where(path, &format!("{scheme}://"))
    }

    /// The URL of a path at the address that starts so.
    pub(crate) fn url_where(&self, path: &str, start: &str) -> String {
        let urls = self.listening["urls"].as_array().expect("urls");
        let base = urls.iter().filter_map(Value::as_str).find(|url| url.starts_with(start));
        let base = base.unwrap_or_else(|| panic!("no {start} in {}", self.listening));
        format!("{}/{path}", base.trim_end_matches('/'))
    }

    /// The URL of a path over clear text.
    pub(crate) fn url(&self, path: &str) -> String {
        self.url_over("http", path)
    }

    /// The certificate that vouches for it.
    pub(crate) fn ca(&self) -> PathBuf {
        PathBuf::from(self.listening["ca"].as_str().expect("ca"))
    }

    /// Where it answers questions about itself.
    pub(crate) fn admin(&self) -> String {
        self.listening["admin"].as_str().expect("admin").to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gathers what can be seen of it only while it runs.
    fn look(&mut self) {
        if std::thread::panicking() || !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.seen.push(secrets::command_line(self.child.id()));
        if let Some(admin) = self.listening["admin"].as_str() {
            self.seen.push(secrets::metrics(admin));
        }
        self.logs = secrets::logs_of(self.child.id());
    }

    /// Asks it to stop and waits for its end.
    pub(crate) fn stop(mut self, name: &str) -> ExitStatus {
        self.look();
        signal(&self.child.id().to_string(), name);
        let mut status = None;
        until("the server stops", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The same; returns what it said to people.
    pub(crate) fn stop_and_hear(mut self, name: &str) -> String {
        self.look();
        signal(&self.child.id().to_string(), name);
        until("the server stops", || self.child.try_wait().unwrap().is_some());
        let said = self.stderr.take_soon();
        secrets::check("what a server prints on standard error", &said);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.look();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.look();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = self.stdout.read_to_string(&mut self.said);
            secrets::check("what a server prints on standard output", self.said.as_bytes());
            secrets::check("what a server prints on standard error", &self.stderr.take_soon());
            self.seen.iter().for_each(|(place, said)| secrets::check(place, said));
            self.logs.iter().for_each(|log| secrets::check_file(log));
        }
    }
}

fn rest(mut stderr: ChildStderr) -> String {
    let mut text = String::new();
    let _ = stderr.read_to_string(&mut text);
    text
}
