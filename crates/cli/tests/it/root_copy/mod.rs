//! `gridlane cp` from Debian's xrootd: files of all sizes, several connections, resume, replicas that fail or lie,
//! replicas over different protocols, damage on the way, managers, TLS and credentials, and how often it waits.

mod damage;
mod downloads;
mod managers;
mod mixed;
mod replicas;
mod round_trips;
mod security;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::client::run;
use crate::support::content;
use crate::support::tools::tool;
use crate::support::xrootd::Xrootd;

/// A server with the file `f`.
fn server_with(bytes: &[u8]) -> Xrootd {
    let server = Xrootd::start();
    server.put("f", bytes);
    server
}

/// The same bytes with one in fifty thousand changed.
fn wrong(bytes: &[u8]) -> Vec<u8> {
    let mut wrong = bytes.to_vec();
    wrong.iter_mut().skip(7).step_by(50_000).for_each(|byte| *byte ^= 0x20);
    wrong
}

/// Other bytes than the checksum that the server tells: xrootd keeps what it has computed for as long as the file's
/// time is the same.
fn server_that_lies(truth: &[u8], bytes: &[u8]) -> Xrootd {
    let server = server_with(truth);
    let path = server.exported("f");
    let then = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let mut command = tool("xrdfs", "xrootd-client");
    command.args([&format!("127.0.0.1:{}", server.port()), "query", "checksum", "/f?cks.type=adler32"]);
    let outcome = run(command).ok();
    assert!(outcome.text().starts_with("adler32"), "{}", outcome.describe());
    // Into the same file, which keeps what the server knows of it.
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
    file.set_modified(then).unwrap();
    server
}

fn random(seed: u64, size: usize) -> Arc<Vec<u8>> {
    content(900 + seed, size)
}
