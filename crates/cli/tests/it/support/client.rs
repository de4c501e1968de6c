//! The binary as a client: one run, its output and its events.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::DEADLINE;
use super::secrets::Searched;

/// The binary, cut off from the settings of the user that runs the tests.
pub(crate) fn gridlane() -> Command {
    isolated(Command::new(env!("CARGO_BIN_EXE_gridlane")))
}

/// Copies the binary. Another process does it: what this one has open for writing is open in programs, too, that other tests
/// are about to start, and what is open for writing cannot be run.
pub(crate) fn copy_of_gridlane(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gridlane")).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Variables of the environment about proxies, authorities, credentials and configuration files. In either case, as
/// `curl` and Go's programs read proxies in both.
const TAKEN_AWAY: [&str; 16] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ssl_cert_file",
    "ssl_cert_dir",
    "curl_ca_bundle",
    "curl_home",
    "bearer_token",
    "bearer_token_file",
    "xdg_config_home",
    "xdg_cache_home",
    "notify_socket",
    "sslkeylogfile",
    "bash_env",
    // Threads have the stacks that they have elsewhere.
    "rust_min_stack",
];
const TAKEN_AWAY_BEGINNINGS: [&str; 5] = ["gridlane_", "x509_", "voms_", "rclone_", "xrd"];

/// The switch with which tests are run again: see scripts/test.sh.
const KEPT: &str = "gridlane_tls_records";

/// Takes away what would make a run depend on the user's environment.
pub(crate) fn isolated(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let small = name.to_string_lossy().to_ascii_lowercase();
        if TAKEN_AWAY.contains(&small.as_str())
            || small != KEPT && TAKEN_AWAY_BEGINNINGS.iter().any(|beginning| small.starts_with(beginning))
        {
            command.env_remove(name);
        }
    }
    // No user's certificate or configuration (.curlrc, .netrc, …) is found by accident: a test names what it wants.
    // Below what is no directory nothing can be made, not even by root.
    command.env("HOME", "/dev/null/home").env("XDG_DATA_HOME", "/dev/null/data");
    // Journals of copies are keyed: all tests together are one user, with a state of its own.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    // /tmp, where a proxy or a token of theirs may lie, cannot be hidden: see `names_credentials`.
    command.env(NO_CREDENTIALS, "1");
    command
}

const NO_CREDENTIALS: &str = "GRIDLANE_NO_CREDENTIALS";

/// True if a test names credentials by variables; it may also have taken the ban away itself, or name them with
/// options, which are stronger.
fn names_credentials(command: &Command) -> bool {
    command.get_envs().any(|(name, value)| {
        let name = name.to_string_lossy();
        let is_place = name.starts_with("BEARER_TOKEN") || name.starts_with("X509_USER_");
        value.is_some() && (is_place || name == "XDG_RUNTIME_DIR")
    })
}

/// `gridlane cp SOURCE TARGET --json`, to which a test adds.
pub(crate) fn cp(source: impl AsRef<OsStr>, target: impl AsRef<OsStr>) -> Command {
    let mut command = gridlane();
    command.arg("cp").arg(source).arg(target).arg("--json");
    command
}

/// The same for trees.
pub(crate) fn cp_r(source: impl AsRef<OsStr>, target: impl AsRef<OsStr>) -> Command {
    let mut command = cp(source, target);
    command.arg("-r");
    command
}

/// The same as [`cp`], giving up after two seconds without a byte: for copies that cannot succeed.
pub(crate) fn cp_impatient(source: impl AsRef<OsStr>, target: impl AsRef<OsStr>) -> Command {
    let mut command = cp(source, target);
    command.args(["--timeout", "2"]);
    command
}

/// The same with more replicas: the first URL is the source, the others are mirrors.
pub(crate) fn cp_from(sources: &[String], target: impl AsRef<OsStr>) -> Command {
    let mut command = cp(&sources[0], target);
    for mirror in &sources[1..] {
        command.arg("--mirror").arg(mirror);
    }
    command
}

/// Runs to the end.
pub(crate) fn run(command: Command) -> Outcome {
    Running::start(command).wait()
}

/// The same for a command whose purpose is to print a secret: what it says is not searched for leaks.
pub(crate) fn run_to_show_a_secret(command: Command) -> Outcome {
    let mut running = Running::start(command);
    running.searched = Searched::Nothing;
    running.wait()
}

/// A run that has not ended. It is killed when the value is dropped.
pub(crate) struct Running {
    child: Child,
    line: String,
    started: Instant,
    stdout: Captured,
    stderr: Captured,
    searched: Searched,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        if names_credentials(&command) {
            command.env_remove(NO_CREDENTIALS);
        }
        let line = format!("{command:?}");
        let searched = Searched::of(&command);
        // A group of its own, so that a shell is not killed without what it started.
        let mut child = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|cause| panic!("cannot start {line}: {cause}"));
        let stdout = Captured::from(child.stdout.take().unwrap());
        let stderr = Captured::from(child.stderr.take().unwrap());
        Running { child, line, started: Instant::now(), stdout, stderr, searched }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name (`INT`, `TERM`).
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child.id().to_string(), name);
    }

    /// Kills it as a crash would: nothing is cleaned up.
    pub(crate) fn kill(mut self) {
        assert!(self.is_running(), "it ended before it could be killed: {:?}", self.line);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn kill_group(&mut self) {
        if self.is_running() {
            signal(&format!("-{}", self.child.id()), "KILL");
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(self) -> Outcome {
        self.wait_within(DEADLINE)
    }

    /// The same for a run that has much to do.
    pub(crate) fn wait_within(mut self, deadline: Duration) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > deadline {
                self.kill_group();
                let stderr = self.stderr.take();
                panic!("not done after {deadline:?}: {}\n{}", self.line, String::from_utf8_lossy(&stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let elapsed = self.started.elapsed();
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let searched = std::mem::replace(&mut self.searched, Searched::Nothing);
        searched.check(&self.line, &stdout, &stderr);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Outcome { line: self.line.clone(), code: status.code(), elapsed, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
        let _ = self.child.wait();
        if self.searched != Searched::Nothing && !std::thread::panicking() {
            self.searched.check(&self.line, &self.stdout.take_soon(), &self.stderr.take_soon());
        }
    }
}

/// Sends a signal by name to a process, or to a group (`-PID`).
pub(crate) fn signal(whom: &str, name: &str) {
    let sent = Command::new("sh").arg("-c").arg(format!("kill -s {name} -- {whom}")).status().unwrap();
    assert!(sent.success(), "cannot send SIG{name} to {whom}");
}

/// The bytes that a process writes into a pipe, read as they come.
pub(crate) struct Captured {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    pub(crate) fn from(mut pipe: impl Read + Send + 'static) -> Captured {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(len @ 1..) = pipe.read(&mut piece) {
                all.lock().unwrap().extend_from_slice(&piece[..len]);
            }
        });
        Captured { bytes, reader: Some(reader) }
    }

    /// All of it, once the pipe is closed; what was taken is not there any more.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        std::mem::take(&mut self.bytes.lock().unwrap())
    }

    /// The same after the process was killed: a process that has inherited the pipe may keep it open.
    pub(crate) fn take_soon(&mut self) -> Vec<u8> {
        let start = Instant::now();
        let reads = || self.reader.as_ref().is_some_and(|reader| !reader.is_finished());
        while reads() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// The exit code and output of a run.
pub(crate) struct Outcome {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) elapsed: Duration,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Outcome {
        assert_eq!(self.code, Some(0), "{}", self.describe());
        self
    }

    /// Asserts failure of `cp --json`: the exit code; whose fault it is; whether retrying helps; and words of
    /// what it says.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, fault: &str, retryable: bool, words: &[&str]) -> Outcome {
        assert_eq!(self.code, Some(code), "{}", self.describe());
        let error = self.error();
        assert_eq!(error["code"], code, "{}", self.describe());
        assert_eq!(error["fault"], fault, "{}", self.describe());
        assert_eq!(error["retryable"], retryable, "{}", self.describe());
        assert!(error["class"].is_string() && error["message"].is_string(), "{}", self.describe());
        self.says(words)
    }

    /// The error of a `cp --json` that failed.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        self.event("file.failed")["error"].clone()
    }

    /// Asserts that what it says has all these words, in any case.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Outcome {
        let said = format!("{}{}", self.stderr, self.text().replace("\\\"", "\"")).to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "no {word:?} in what it says\n{}", self.describe());
        }
        self
    }

    /// Asserts the exit code of a command that has no events.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Outcome {
        assert_eq!(self.code, Some(code), "{}", self.describe());
        self
    }

    /// stdout as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Every event, from stdout or (when stdout carries the bytes) from stderr.
    pub(crate) fn events(&self) -> Vec<Value> {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let is_event = |line: &&str| line.starts_with('{');
        let lines: Vec<&str> = stdout.lines().filter(is_event).collect();
        let lines = if lines.is_empty() { self.stderr.lines().filter(is_event).collect() } else { lines };
        let events: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}")))
            .collect();
        for event in &events {
            assert_eq!(event["v"], 1, "an event without its version: {event}");
            assert!(event["type"].is_string(), "an event without a type: {event}");
        }
        events
    }

    /// The last event of a type.
    #[track_caller]
    pub(crate) fn event(&self, kind: &str) -> Value {
        let found = self.events().into_iter().rfind(|event| event["type"] == kind);
        found.unwrap_or_else(|| panic!("no event {kind:?}\n{}", self.describe()))
    }

    #[track_caller]
    pub(crate) fn summary(&self) -> Value {
        self.event("summary")
    }

    /// A number of the summary.
    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        let summary = self.summary();
        summary[field].as_u64().unwrap_or_else(|| panic!("no number {field:?} in {summary}"))
    }

    /// The part of the summary about the source whose URL starts so.
    #[track_caller]
    pub(crate) fn source(&self, url: &str) -> Value {
        let summary = self.summary();
        let sources = summary["sources"].as_array().expect("the summary lists its sources");
        let of = |source: &&Value| source["url"].as_str().is_some_and(|found| found.starts_with(url));
        sources.iter().find(of).unwrap_or_else(|| panic!("no source {url} in {summary}")).clone()
    }

    /// Asserts that the bytes were compared with a checksum, or that the run says they were not.
    #[track_caller]
    pub(crate) fn verified(self, verified: bool) -> Outcome {
        let expected = if verified { "verified" } else { "unverified" };
        assert_eq!(self.summary()["verification"], expected, "{}", self.describe());
        self
    }

    /// Asserts that the summary names this source as bad, with a word of the reason.
    #[track_caller]
    pub(crate) fn blames(self, url: &str, word: &str) -> Outcome {
        let error = self.source(url)["error"].to_string().to_lowercase();
        assert!(error.contains(word), "{url} is not blamed with {word:?}, but {error}\n{}", self.describe());
        self
    }

    /// The whole run, for a failed assertion.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{}\nexit {:?} after {:?}\n", self.line, self.code, self.elapsed);
        let stdout = match std::str::from_utf8(&self.stdout) {
            Ok(stdout) => stdout.to_owned(),
            Err(_) => format!("({} bytes)", self.stdout.len()),
        };
        let _ = write!(text, "--- stdout\n{stdout}\n--- stderr\n{}", self.stderr);
        text
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
