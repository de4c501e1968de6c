//! Support for all tests: places to work in, data, the binary as a client and as a server, nginx, curl, and a server
//! that misbehaves on request.
//!
//! Nothing here sleeps and hopes: every wait is for a condition and has a deadline.

pub(crate) mod apache;
pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod debian_voms;
pub(crate) mod issuer;
pub(crate) mod logins;
pub(crate) mod nginx;
pub(crate) mod object;
pub(crate) mod pki;
pub(crate) mod python;
pub(crate) mod relay;
pub(crate) mod rogue;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod tools;
pub(crate) mod tree;
pub(crate) mod voms;
pub(crate) mod voms_server;
pub(crate) mod wan;
pub(crate) mod wsgidav;
pub(crate) mod xrootd;
pub(crate) mod xrootd_auth;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::checksum::Hasher;
use gridlane_core::{Checksum, ChecksumKind};
use tempfile::TempDir;

/// The longest any single run or wait may take: far beyond what a loaded two-core machine needs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);

/// For what would take for ever, or until the client's patience of a minute ends, if it went wrong.
pub(crate) const SOON: Duration = Duration::from_secs(45);

pub(crate) const MIB: usize = 1024 * 1024;

/// A directory that is gone with the value.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::Builder::new().prefix("gridlane-it-").tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// A new directory in it.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let dir = self.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A new file in it.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Names of everything in it, hidden files too, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            secrets::check_journals(self.path());
        }
    }
}

/// Names of everything in a directory, hidden files too, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes that look random, always the same for one seed: neither compressible nor periodic, so that a
/// misplaced range cannot go unnoticed.
pub(crate) fn content(seed: u64, len: usize) -> Arc<Vec<u8>> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes.truncate(len);
    Arc::new(bytes)
}

/// The checksum of some bytes.
pub(crate) fn checksum(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    let mut hasher = Hasher::new(kind);
    hasher.update(bytes);
    hasher.finish()
}

/// `TYPE:VALUE` as `--checksum` takes it.
pub(crate) fn checksum_text(kind: ChecksumKind, bytes: &[u8]) -> String {
    format!("{kind}:{}", checksum(kind, bytes).hex())
}

/// The partial file of a target.
pub(crate) fn part_of(target: &Path) -> PathBuf {
    beside(target, "part")
}

/// The journal of a target.
pub(crate) fn journal_of(target: &Path) -> PathBuf {
    beside(target, "journal")
}

fn beside(target: &Path, end: &str) -> PathBuf {
    target.with_file_name(format!(".{}.gridlane-{end}", target.file_name().unwrap().to_str().unwrap()))
}

/// Bytes that a file really occupies (a partial file may have its final length from the start).
pub(crate) fn occupied_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

/// Asserts that the file is there, with exactly these bytes, and without leftovers beside it.
pub(crate) fn assert_copied(target: &Path, expected: &[u8]) {
    let found = fs::read(target).unwrap_or_else(|cause| panic!("{}: {cause}", target.display()));
    assert_same(&found, expected);
    assert!(!part_of(target).exists(), "the partial file is left beside {}", target.display());
    assert!(!journal_of(target).exists(), "the journal is left beside {}", target.display());
}

/// Asserts equality without printing megabytes.
pub(crate) fn assert_same(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "the length is wrong");
    if found != expected {
        let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
        panic!("the bytes differ from byte {at:?} on");
    }
}

/// For tests that become another user, or give files away.
#[track_caller]
pub(crate) fn needs_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        is_root,
        "this test needs root: run the tests as root, in a container for instance (CONTRIBUTING.md)"
    );
}

/// A user without other processes, another one for each number (0 or 1) and test program: the kernel counts the threads
/// of all of a user's processes.
pub(crate) fn lone_user(number: u32) -> u32 {
    const RANGE: u32 = 20_000;
    RANGE * (number + 1) + std::process::id() % RANGE
}

/// True if this machine has IPv6 on loopback: some containers do not.
pub(crate) fn has_ipv6() -> bool {
    std::net::TcpListener::bind("[::1]:0").is_ok()
}

/// Asserts that a server which cannot have IPv6 says so, instead of listening elsewhere.
pub(crate) fn assert_ipv6_is_refused(dir: &Path) {
    let mut command = client::gridlane();
    command.arg("serve").arg(dir).args(["--listen", "[::1]:0"]).env("XDG_DATA_HOME", dir);
    let outcome = client::run(command).says(&["cannot listen at [::1]:0"]);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
}

/// Ends an answer and its connection. What is left of the request would make the end a reset, before the client
/// has read what was sent.
pub(crate) fn end_answer(mut stream: std::net::TcpStream) {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// True if long tests are to run: `make test-long` says so.
pub(crate) fn is_long_run() -> bool {
    std::env::var_os("GRIDLANE_LONG_TESTS").is_some()
}

/// Seconds of processor time of all threads that a process has.
pub(crate) fn processor_time_s(process: u32) -> f64 {
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("schedstat")).ok();
    // Threads end meanwhile. The first number is in nanoseconds (proc_pid_schedstat in the kernel's documentation).
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten().filter_map(of);
    threads.map(|text| text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9).sum()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
