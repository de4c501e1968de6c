//! Nothing leaks: what the suite used as secrets is searched for in everything that `gridlane` said.
//!
//! A test (or a helper that makes a key or a token) names a secret with [`remember`] before it is used. The helpers
//! that run `gridlane` hand whatever they gather to [`check`]: standard output and error, command lines of servers,
//! the logs that a server writes, its metrics, and what other programs got from it. A hit fails the test with the
//! place, and does not repeat the secret.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Shorter ones would be found by accident.
const SECRET_BYTES_MIN: usize = 8;

/// Of a long secret this much is enough to be found: a part of it is a leak as well.
const PIECE_BYTES: usize = 24;

/// The secrets that are searched for.
static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

/// The spellings of all secrets, such that a text is gone through once for all of them.
#[derive(Default)]
struct Known {
    /// By the bytes that they begin with.
    by_start: HashMap<[u8; SECRET_BYTES_MIN], BTreeSet<String>>,
    /// True where one begins with bytes of this [`Known::mark`]: most of a text is passed over by it.
    marks: Vec<bool>,
}

impl Known {
    const MARKS: usize = 1 << 16;

    /// A number made of the first three bytes.
    fn mark(bytes: &[u8]) -> usize {
        (usize::from(bytes[0]) << 10 ^ usize::from(bytes[1]) << 5 ^ usize::from(bytes[2])) % Self::MARKS
    }

    fn add(&mut self, spelling: String) {
        let start = *spelling.as_bytes().first_chunk().expect("long enough");
        self.marks.resize(Self::MARKS, false);
        self.marks[Self::mark(&start)] = true;
        self.by_start.entry(start).or_default().insert(spelling);
    }

    /// Where one begins.
    fn find(&self, said: &[u8]) -> Option<usize> {
        if self.marks.is_empty() {
            return None;
        }
        said.windows(SECRET_BYTES_MIN).enumerate().position(|(at, start)| {
            self.marks[Self::mark(start)]
                && self.by_start.get(start).is_some_and(|spellings| {
                    spellings.iter().any(|spelling| said[at..].starts_with(spelling.as_bytes()))
                })
        })
    }
}

/// Names a secret: a token, a macaroon, a password.
///
/// The public part of a token is no secret: of a JSON Web Token, whose first parts are public, it is the signature; of
/// a macaroon the end, which has it.
pub(crate) fn remember(secret: &str) {
    let secret = secret.trim();
    let parts: Vec<&str> = secret.split('.').collect();
    let is_token = parts.len() == 3 && secret.starts_with("eyJ");
    let secret = if is_token { parts[2] } else { secret };
    assert!(secret.len() >= SECRET_BYTES_MIN, "too short to be searched for");
    let start = secret.len() - secret.len().min(2 * PIECE_BYTES);
    learn(&secret[start..]);
}

/// Names a password, and what HTTP's Basic authentication makes of it and the user.
pub(crate) fn remember_password(user: &str, password: &str) {
    remember(password);
    learn(&STANDARD.encode(format!("{user}:{password}").as_bytes()));
}

/// Names a private key in PEM.
///
/// Only what is private in it is searched for: the first bytes are the same in all keys, and of an RSA key the
/// modulus is in the certificate as well.
pub(crate) fn remember_key(pem: &str) {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let range = match body.len() {
        // RSA of 2048 bits: the private exponent begins after 280 bytes.
        800.. => 480..body.len() - 40,
        // P-256 in PKCS #8: 32 bytes from the 36th on.
        _ => 52..84,
    };
    learn(&body[range]);
}

/// Spellings of a secret, in pieces that do not depend on where lines are broken.
fn learn(secret: &str) {
    let mut known = KNOWN.write().unwrap();
    // A line of PEM has 64 characters, so that at least one piece is in one line.
    for piece in pieces(secret) {
        let bytes = piece.as_bytes();
        known.add(piece.to_owned());
        known.add(STANDARD.encode(bytes).trim_end_matches('=').to_owned());
        known.add(bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }));
        // As Rust prints bytes that are not hidden.
        known.add(format!("{bytes:?}").trim_matches(['[', ']']).to_owned());
        known.add(utf8_percent_encode(piece, NON_ALPHANUMERIC).to_string());
    }
}

fn pieces(secret: &str) -> Vec<&str> {
    assert!(secret.is_ascii(), "the suite's secrets are ASCII");
    if secret.len() < 2 * PIECE_BYTES {
        return vec![secret];
    }
    // A few are enough, and every one costs a search.
    let starts = (0..=secret.len() - PIECE_BYTES).step_by(PIECE_BYTES).take(4);
    starts.map(|start| &secret[start..start + PIECE_BYTES]).collect()
}

/// Fails if there is a secret in what was gathered at this place.
#[track_caller]
pub(crate) fn check(place: &str, said: &[u8]) {
    if let Some(at) = find(said) {
        panic!("a secret leaks: at byte {at} of {place}");
    }
}

/// Where a secret begins.
fn find(said: &[u8]) -> Option<usize> {
    // The content of a file that went through standard output is no message.
    let said = std::str::from_utf8(said).ok()?;
    KNOWN.read().unwrap().find(said.as_bytes())
}

/// The parts of a run that are searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Searched {
    /// All that it says.
    All,
    /// Standard output: what a server has answered, not what the program says of its own request.
    Output,
    /// Nothing: it is another project's program, or made to show a secret.
    Nothing,
}

impl Searched {
    /// `gridlane` by itself, or run by a shell or another program; curl's output; and nothing else.
    pub(crate) fn of(command: &Command) -> Searched {
        let program = Path::new(env!("CARGO_BIN_EXE_gridlane"));
        let dir = program.parent().unwrap().as_os_str().as_bytes();
        let has = |text: &OsStr| text.as_bytes().windows(dir.len()).any(|window| window == dir);
        if has(command.get_program()) || command.get_args().any(has) {
            return Searched::All;
        }
        match Path::new(command.get_program()).file_name() == Some(OsStr::new("curl")) {
            true => Searched::Output,
            false => Searched::Nothing,
        }
    }

    /// Searches what a run has said.
    #[track_caller]
    pub(crate) fn check(self, line: &str, stdout: &[u8], stderr: &[u8]) {
        // The line may have a secret in its arguments.
        let name = line.split(' ').next().unwrap_or_default();
        if self != Searched::Nothing {
            check(&format!("what {name} prints on standard output"), stdout);
        }
        if self == Searched::All {
            check(&format!("what {name} prints on standard error"), stderr);
        }
    }
}

/// The command line of a process, which every user of the machine can read.
pub(crate) fn command_line(pid: u32) -> (String, Vec<u8>) {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    (format!("the command line of process {pid}"), line)
}

/// The files to which a process appends: its logs.
pub(crate) fn logs_of(pid: u32) -> Vec<PathBuf> {
    const APPEND: u32 = 0o2000;
    let appends = |fd: &OsStr| {
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.display())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        Some(u32::from_str_radix(flags.trim(), 8).ok()? & APPEND != 0)
    };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let open = open.filter(|fd| appends(&fd.file_name()).unwrap_or(false));
    let files = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    files.filter(|path| path.is_file()).collect()
}

/// Searches a file, of which a large one only up to 16 MiB.
#[track_caller]
pub(crate) fn check_file(path: &Path) {
    const BYTES_MAX: u64 = 16 << 20;
    let Ok(file) = std::fs::File::open(path) else { return };
    let len = file.metadata().map_or(0, |metadata| metadata.len().min(BYTES_MAX));
    let mut bytes = vec![0; len as usize];
    if file.read_exact_at(&mut bytes, 0).is_ok() {
        check(&path.display().to_string(), String::from_utf8_lossy(&bytes).as_bytes());
    }
}

/// The metrics of a server by the URL of its administration. One that does not answer at once is being stopped:
/// then there is nothing to see.
pub(crate) fn metrics(admin: &str) -> (String, Vec<u8>) {
    let ask = || -> std::io::Result<Vec<u8>> {
        let address = admin.trim_start_matches("http://").trim_end_matches('/');
        let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = Vec::new();
        stream.read_to_end(&mut page)?;
        Ok(page)
    };
    (format!("the metrics at {admin}"), ask().unwrap_or_default())
}

/// Searches the journals that copies have left in a directory.
#[track_caller]
pub(crate) fn check_journals(dir: &Path) {
    /// Larger trees are not searched.
    const ENTRIES_MAX: usize = 1000;
    let mut dirs = vec![dir.to_owned()];
    let mut entries = 0;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                _ if entry.file_name().as_bytes().ends_with(b".gridlane-journal") => {
                    check_file(&entry.path())
                }
                _ => {}
            }
        }
    }
}

#[test]
fn secrets_are_found_in_every_spelling() {
    let token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.an-invented_signature-0123456789abcdefghijklmnop";
    remember(token);
    remember_password("ada", "invented+password/1");
    // What is public in a token may be said.
    assert_eq!(find(b"subject of eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ: ada"), None);
    let (_, signature) = token.rsplit_once('.').unwrap();
    for said in [
        token.to_owned(),
        format!("a log with authz=Bearer%20{token}&x"),
        STANDARD.encode(&signature.as_bytes()[..PIECE_BYTES]),
        format!("{:?}", signature.as_bytes()),
        "Authorization: Basic ".to_owned() + &STANDARD.encode(b"ada:invented+password/1"),
        "password=invented%2Bpassword%2F1".to_owned(),
    ] {
        assert!(find(said.as_bytes()).is_some(), "not found: {said}");
    }
}

#[test]
fn a_leak_fails_the_test_without_repeating_it() {
    use super::client::{isolated, run, run_to_show_a_secret};
    let secret = "an-invented-secret-that-leaks";
    remember(secret);
    // As if the client had printed it.
    let leaks = || {
        let mut command = isolated(Command::new("/bin/sh"));
        command.args(["-c", &format!("echo {secret}"), env!("CARGO_BIN_EXE_gridlane")]);
        command
    };
    let command = leaks();
    let caught = std::thread::spawn(move || run(command)).join();
    let caught = caught.err().expect("the leak is found");
    let message = caught.downcast::<String>().unwrap();
    assert!(message.contains("a secret leaks") && message.contains("standard output"), "{message}");
    assert!(!message.contains(secret), "the secret is repeated");
    assert_eq!(run_to_show_a_secret(leaks()).ok().text().trim(), secret);
}

#[test]
fn what_a_server_writes_is_searched() {
    use super::Scratch;
    use super::serve::Server;
    use super::tools::run_curl;
    let scratch = Scratch::new();
    let log = scratch.join("access.log");
    for (name, log) in
        [("an-invented-name-in-a-log", log.to_str().unwrap()), ("an-invented-name-on-standard-error", "-")]
    {
        let server = Server::with(&scratch.dir("export"), &["--access-log", log]);
        remember(name);
        run_curl(&["--output", "/dev/null", &server.url(name)]).ok();
        // Asked to stop, it writes down first what it has served.
        let caught = std::thread::spawn(move || server.stop("TERM").success()).join();
        let message = caught.expect_err("the leak is found").downcast::<String>().unwrap();
        let place = if log == "-" { "standard error" } else { log };
        assert!(message.contains(place) && !message.contains(name), "{message}");
    }
}
