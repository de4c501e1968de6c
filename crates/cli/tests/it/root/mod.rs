//! The field's own clients of root:// and roots:// against `gridlane serve`: xrdcp, xrdfs, pyxrootd, uproot, gfal2.
//!
//! With `GRIDLANE_TEST_ROOT_PEER=xrootd` in the environment the tests that use [`Site::new`] run against Debian's
//! xrootd instead. That shows whether it is a test that is wrong. Where the two are to differ, [`Site::is_ours`] says so.

mod gfal;
mod large;
mod ports;
mod pyxrootd;
mod refusals;
mod roots;
mod uproot;
mod xcache;
mod xrdcp;
mod xrdfs;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::client::{Outcome, run, text};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::{Xrootd, hashed_authorities};
use crate::support::{Scratch, occupied_bytes};

enum Peer {
    Gridlane(Server),
    Xrootd(Xrootd),
}

/// A server of root:// with a directory.
pub(super) struct Site {
    pub(super) scratch: Scratch,
    peer: Peer,
    host: String,
    /// Directory of authorities that vouch for it.
    authorities: PathBuf,
}

impl Site {
    /// Anyone may write to it.
    pub(super) fn new() -> Site {
        Site::at("127.0.0.1")
    }

    /// The same at an address of this machine.
    pub(super) fn at(host: &str) -> Site {
        if std::env::var("GRIDLANE_TEST_ROOT_PEER").is_ok_and(|name| name == "xrootd") {
            let server = Xrootd::start();
            let ca = server.ca();
            Site::of(Scratch::new(), Peer::Xrootd(server), &ca, host)
        } else {
            let scratch = Scratch::new();
            let mut command = Server::command(&scratch.dir("export"));
            command.args(["--allow-write", "--listen", &format!("{host}:0")]);
            Site::spawn(scratch, command, host)
        }
    }

    /// `gridlane serve` with these options, whatever the environment says: for tests of what only it does.
    pub(super) fn ours(options: &[&str]) -> Site {
        Site::ours_at(0, options)
    }

    /// The same at a port.
    pub(super) fn ours_at(port: u16, options: &[&str]) -> Site {
        let scratch = Scratch::new();
        let mut command = Server::command(&scratch.dir("export"));
        command.args(["--listen", &format!("127.0.0.1:{port}")]).args(options);
        Site::spawn(scratch, command, "127.0.0.1")
    }

    /// Kills the server as a crash would.
    pub(super) fn kill(&mut self) {
        match &mut self.peer {
            Peer::Gridlane(server) => server.kill(),
            Peer::Xrootd(server) => server.kill(),
        }
    }

    /// `gridlane serve` with a configuration of exports, whose directories are in `scratch`.
    pub(super) fn by_file(scratch: Scratch, configuration: &str) -> Site {
        let file = scratch.file("serve.toml", configuration.as_bytes());
        let mut command = crate::support::client::gridlane();
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--config"]).arg(file);
        Site::spawn(scratch, command, "127.0.0.1")
    }

    fn spawn(scratch: Scratch, mut command: Command, host: &str) -> Site {
        command.arg("--access-log").arg(scratch.join("access.log"));
        // What is on the disk after a crash is not what is tested here.
        command.args(["--durability", "none"]);
        let server = Server::spawn(command);
        let ca = server.ca();
        Site::of(scratch, Peer::Gridlane(server), &ca, host)
    }

    fn of(scratch: Scratch, peer: Peer, ca: &std::path::Path, host: &str) -> Site {
        let authorities = hashed_authorities(&scratch, ca);
        Site { scratch, peer, host: host.to_owned(), authorities }
    }

    /// True for `gridlane serve`, false for a real xrootd.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.peer, Peer::Gridlane(_))
    }

    /// Where an exported file is on the disk.
    pub(super) fn exported(&self, name: &str) -> PathBuf {
        match &self.peer {
            Peer::Gridlane(_) => self.scratch.join("export").join(name),
            Peer::Xrootd(server) => server.exported(name),
        }
    }

    /// The bytes of an exported file.
    #[track_caller]
    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.exported(name)).unwrap_or_else(|cause| panic!("{name}: {cause}"))
    }

    /// Puts a file into the export.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.exported(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.give();
        path
    }

    /// Lets the server own what a test has put into the export by itself.
    pub(super) fn give(&self) {
        if let Peer::Xrootd(server) = &self.peer {
            server.give();
        }
    }

    /// Bytes that everything in the export occupies, what is hidden as well.
    pub(super) fn occupied_bytes(&self) -> u64 {
        let mut waiting = vec![self.exported("")];
        let mut total = 0;
        while let Some(dir) = waiting.pop() {
            // What is listed may be gone when it is looked at.
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                    _ => total += occupied_bytes(&entry.path()),
                }
            }
        }
        total
    }

    /// `HOST:PORT`
    pub(super) fn authority(&self) -> String {
        let port = match &self.peer {
            Peer::Gridlane(server) => {
                server.url("").trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
            }
            Peer::Xrootd(server) => server.port().to_string(),
        };
        format!("{}:{port}", self.host)
    }

    /// The URL of a path below the root, which stands in it as it is: it is not decoded.
    pub(super) fn url(&self, path: &str) -> String {
        self.url_over("root", path)
    }

    /// The same over `root` or `roots`.
    pub(super) fn url_over(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}//{path}", self.authority())
    }

    /// `gridlane serve` itself.
    pub(super) fn gridlane(&self) -> &Server {
        match &self.peer {
            Peer::Gridlane(server) => server,
            Peer::Xrootd(_) => panic!("this is a real xrootd"),
        }
    }

    /// The server's log.
    pub(super) fn log(&self) -> String {
        match &self.peer {
            Peer::Gridlane(_) => fs::read_to_string(self.scratch.join("access.log")).unwrap(),
            Peer::Xrootd(server) => server.log(),
        }
    }

    /// A program that trusts this server. XRootD's client library has a patience of many minutes; here an answer
    /// that does not come is a failure soon.
    pub(super) fn prepare(&self, mut command: Command) -> Command {
        command
            .env("XRD_CONNECTIONRETRY", "1")
            .env("XRD_CONNECTIONWINDOW", "10")
            .env("XRD_REQUESTTIMEOUT", "50")
            .env("XRD_STREAMTIMEOUT", "30")
            .env("XRD_STREAMERRORWINDOW", "0")
            .env("XRD_TIMEOUTRESOLUTION", "1")
            // For scripts, which are no tools.
            .env("RES_OPTIONS", "timeout:1 attempts:1")
            .env("X509_CERT_DIR", &self.authorities);
        command
    }

    pub(super) fn xrdcp_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepare(tool("xrdcp", "xrootd-client"));
        command.arg("--nopbar").args(arguments);
        command
    }

    pub(super) fn xrdcp(&self, arguments: &[&str]) -> Outcome {
        run(self.xrdcp_command(arguments))
    }

    pub(super) fn xrdfs(&self, arguments: &[&str]) -> Outcome {
        self.xrdfs_over("root", arguments)
    }

    pub(super) fn xrdfs_over(&self, scheme: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.prepare(tool("xrdfs", "xrootd-client"));
        command.arg(format!("{scheme}://{}", self.authority())).args(arguments);
        run(command)
    }
}

/// The exit code of xrdcp and xrdfs for an error of the server.
const ERROR_OF_SERVER: i32 = 54;

/// Asserts that xrdcp or xrdfs passes on an error of the server with one of these codes, and with words.
#[track_caller]
pub(super) fn assert_refused(outcome: Outcome, codes: &[u32], words: &[&str]) {
    let outcome = outcome.exits(ERROR_OF_SERVER);
    let said = outcome.stderr.clone() + &outcome.text();
    let has_code = codes.iter().any(|code| said.contains(&format!("[{code}]")));
    assert!(has_code, "none of {codes:?}\n{}", outcome.describe());
    outcome.says(words);
}

/// Asserts that two files are the same without reading them into memory.
#[track_caller]
pub(super) fn assert_same_files(a: &std::path::Path, b: &std::path::Path) {
    let mut command = tool("cmp", "diffutils");
    command.args([text(a), text(b)]);
    run(command).ok();
}
