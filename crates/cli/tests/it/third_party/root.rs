//! Third-party copies over root://, which `xrdcp` asks for, between `gridlane serve` and Debian's xrootd, in both parts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use crate::support::client::{Outcome, Running, run};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::Xrootd;
use crate::support::{
    DEADLINE, MIB, Scratch, assert_same, content, is_long_run, names, occupied_bytes, until,
};

/// The exit code of xrdcp for an error of a server.
const ERROR_OF_SERVER: i32 = 54;

/// One side of a copy.
enum Peer {
    Ours(Server, Scratch),
    Xrootd(Xrootd),
}

impl Peer {
    fn ours(options: &[&str]) -> Peer {
        let scratch = Scratch::new();
        let dir = scratch.dir("export");
        // What is on the disk after a crash is not what is tested here.
        let server = Server::with(&dir, &[&["--allow-write", "--durability", "none"], options].concat());
        Peer::Ours(server, scratch)
    }

    fn xrootd() -> Peer {
        Peer::Xrootd(Xrootd::with("ofs.tpc autorm pgm /usr/bin/xrdcp --server"))
    }

    fn url(&self, name: &str) -> String {
        match self {
            Peer::Ours(server, _) => format!("{}/{name}", server.url("").replacen("http:", "root:", 1)),
            Peer::Xrootd(server) => server.url(name),
        }
    }

    fn exported(&self, name: &str) -> PathBuf {
        match self {
            Peer::Ours(_, scratch) => scratch.join("export").join(name),
            Peer::Xrootd(server) => server.exported(name),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        match self {
            Peer::Ours(..) => fs::write(self.exported(name), bytes).unwrap(),
            Peer::Xrootd(server) => drop(server.put(name, bytes)),
        }
    }

    #[track_caller]
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.exported(name)).unwrap_or_else(|cause| panic!("{name}: {cause}"))
    }

    /// Bytes of what is not visible yet.
    fn hidden_bytes(&self) -> u64 {
        let hidden = self.exported(".gridlane");
        let all = if hidden.exists() { names(&hidden) } else { Vec::new() };
        all.iter().map(|name| occupied_bytes(&hidden.join(name))).sum()
    }

    fn kill(&mut self) {
        match self {
            Peer::Ours(server, _) => server.kill(),
            Peer::Xrootd(server) => server.kill(),
        }
    }
}

fn xrdcp(arguments: &[&str]) -> Command {
    let mut command = tool("xrdcp", "xrootd-client");
    command
        .env("XRD_CONNECTIONRETRY", "1")
        .env("XRD_CONNECTIONWINDOW", "10")
        .env("XRD_STREAMERRORWINDOW", "0")
        .env("XRD_TIMEOUTRESOLUTION", "1")
        .args(["--nopbar", "--tpc", "only"])
        .args(arguments);
    command
}

/// Files of many sizes, each of a name of its own.
fn files() -> Vec<(String, Arc<Vec<u8>>)> {
    let large = if is_long_run() { 1_000_000_000 } else { 30 * MIB + 7 };
    let sizes = [("zero", 0), ("one", 1), ("some", large)];
    sizes.into_iter().map(|(name, size)| (name.to_owned(), content(4000 + size as u64, size))).collect()
}

/// The copies run at the same time: xrdcp looks whether one has ended every 2.5 s.
fn copy_all(from: &Peer, to: &Peer, more: &[&str]) -> Vec<Outcome> {
    let begin = |(name, _): &(String, Arc<Vec<u8>>)| {
        let (source, target) = (from.url(name), to.url(name));
        Running::start(xrdcp(&[more, &[&source, &target]].concat()))
    };
    let running: Vec<Running> = files().iter().map(begin).collect();
    running.into_iter().map(Running::wait).collect()
}

fn between(from: &Peer, to: &Peer) {
    for (name, bytes) in files() {
        from.put(&name, &bytes);
    }
    copy_all(from, to, &[]).into_iter().for_each(|outcome| drop(outcome.ok()));
    for (name, bytes) in files() {
        assert_same(&to.read(&name), &bytes);
    }
    assert_eq!(to.hidden_bytes(), 0);
}

#[test]
fn from_ours_to_ours_new_and_existing() {
    let (from, to) = (Peer::ours(&[]), Peer::ours(&[]));
    between(&from, &to);
    // An existing file is replaced by those that say so, and no others.
    from.put("one", b"new");
    for outcome in copy_all(&from, &to, &[]) {
        // xrdcp looks before it asks.
        outcome.exits(50).says(&["file exists"]);
    }
    assert_eq!(to.read("one"), *files()[1].1);
    copy_all(&from, &to, &["-f"]).into_iter().for_each(|outcome| drop(outcome.ok()));
    assert_eq!(to.read("one"), b"new");
    // Directories are made for those that ask, and checksums compared.
    let checked = ["-p", "--cksum", "adler32:source", &from.url("some"), &to.url("d/e/some")];
    run(xrdcp(&checked)).ok();
    assert_same(&to.read("d/e/some"), &files()[2].1);
}

#[test]
fn from_ours_to_xrootd() {
    between(&Peer::ours(&[]), &Peer::xrootd());
}

#[test]
fn from_xrootd_to_ours() {
    between(&Peer::xrootd(), &Peer::ours(&[]));
}

#[track_caller]
fn assert_refused(outcome: Outcome, code: &str, words: &str) {
    let outcome = outcome.exits(ERROR_OF_SERVER);
    let said = outcome.stderr.clone() + &outcome.text();
    assert!(said.contains(code) && said.contains(words), "{}", outcome.describe());
}

/// xrdcp as the program that a destination would run, with words of which the source knows nothing.
#[test]
fn a_source_lets_nobody_in_by_a_key_that_it_does_not_know() {
    let from = Peer::ours(&[]);
    from.put("f", b"hello");
    let scratch = Scratch::new();
    let source = format!("{}?tpc.key=0123&tpc.org=root.1@[::ffff:127.0.0.1]", from.url("f"));
    let target = scratch.join("f");
    let mut command = tool("xrdcp", "xrootd-client");
    command.args(["--server", "--nopbar", &source]).arg(&target);
    assert_refused(run(command), "[3010]", "tpc authorization expired");
    assert!(!target.exists());
}

/// What the source sends is slow enough to look at a copy while it runs.
fn slow() -> Peer {
    let from = Peer::ours(&["--limit-rate", "4MB/s"]);
    from.put("f", &content(4100, 60 * MIB));
    from
}

fn begin_slow(from: &Peer, to: &Peer) -> Running {
    let mut copying = Running::start(xrdcp(&["-f", &from.url("f"), &to.url("f")]));
    until("some of it has arrived", || {
        assert!(copying.is_running(), "it ended early");
        to.hidden_bytes() > MIB as u64
    });
    copying
}

#[test]
fn the_end_of_a_source_is_told_and_what_was_there_stays() {
    let (mut from, to) = (slow(), Peer::ours(&[]));
    to.put("f", b"old");
    let copying = begin_slow(&from, &to);
    from.kill();
    let outcome = copying.wait_within(DEADLINE);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    assert_eq!(to.read("f"), b"old");
}

#[test]
fn nothing_is_left_when_xrdcp_is_killed() {
    let (from, to) = (slow(), Peer::ours(&[]));
    begin_slow(&from, &to).kill();
    until("nothing is left", || to.hidden_bytes() == 0);
    assert!(!to.exported("f").exists());
    // It is nobody's, and the next one may have it.
    let copying = begin_slow(&from, &to);
    assert!(!to.exported("f").exists());
    copying.kill();
}

#[test]
fn a_destination_that_was_killed_goes_on_with_what_it_has() {
    let from = slow();
    let scratch = Scratch::new();
    let (dir, data) = (scratch.dir("export"), scratch.dir("data"));
    let start = || {
        let mut command = Server::command(&dir);
        command.args(["--allow-write", "--listen", "127.0.0.1:0", "--access-log"]);
        command.arg(scratch.join("access.log")).env("STATE_DIRECTORY", &data);
        Server::spawn(command)
    };
    let mut to = Peer::Ours(start(), Scratch::new());
    let hidden = dir.join(".gridlane");
    let url = |to: &Peer| to.url("f");
    let mut copying = Running::start(xrdcp(&[&from.url("f"), &url(&to)]));
    until("much of it has arrived", || {
        assert!(copying.is_running(), "it ended early");
        hidden.exists()
            && names(&hidden).iter().map(|name| occupied_bytes(&hidden.join(name))).sum::<u64>()
                > 12 * MIB as u64
    });
    to.kill();
    copying.kill();
    to = Peer::Ours(start(), Scratch::new());
    run(xrdcp(&[&from.url("f"), &url(&to)])).ok();
    assert_same(&fs::read(dir.join("f")).unwrap(), &content(4100, 60 * MIB));
    let log = fs::read_to_string(scratch.join("access.log")).unwrap();
    let record = log.lines().rfind(|line| line.contains("\"copy\":\"pull\"")).unwrap();
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    let moved = record["moved_bytes"].as_u64().unwrap();
    assert!(moved < 55 * MIB as u64, "{record}");
}

/// Without a connection to itself, which the rules about addresses refuse where it is not on loopback; and not onto itself.
#[test]
fn within_one_server() {
    let scratch = Scratch::new();
    let log = scratch.join("access.log");
    let server = Peer::ours(&["--access-log", log.to_str().unwrap()]);
    let bytes = content(4100, MIB + 3);
    server.put("f", &bytes);
    run(xrdcp(&[&server.url("f"), &server.url("g")])).ok();
    assert_same(&server.read("g"), &bytes);
    let copy = || {
        fs::read_to_string(&log).unwrap().lines().find(|line| line.contains("\"copy\":")).map(str::to_owned)
    };
    until("the copy is in the log", || copy().is_some());
    let copy = copy().unwrap();
    assert!(copy.contains("\"copy\":\"local\"") && copy.contains("\"remotes\":[]"), "{copy}");
    run(xrdcp(&["-f", &server.url("f"), &server.url("f")])).exits(ERROR_OF_SERVER);
    assert_same(&server.read("f"), &bytes);
    assert_eq!(server.hidden_bytes(), 0);
}
