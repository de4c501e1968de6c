//! The field's own clients of root:// and roots:// against `gridlane serve`: xrdcp, xrdfs, pyxrootd, uproot, gfal2.
//!
//! With `GRIDLANE_TEST_ROOT_PEER=xrootd` in the environment the same tests run against Debian's xrootd, which shows
//! whether it is the test that is wrong. Where the two are to differ it says so ([`Site::is_ours`]).

mod xrdcp;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Scratch;
use crate::support::client::{Outcome, run, text};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::{Xrootd, hashed_authorities};

enum Peer {
    Gridlane(Server),
    Xrootd(Xrootd),
}

/// A server of root:// with a directory that anyone may write to.
pub(super) struct Site {
    pub(super) scratch: Scratch,
    peer: Peer,
    /// Of the certificate that vouches for it.
    authorities: PathBuf,
}

impl Site {
    pub(super) fn new() -> Site {
        Site::with(&["--allow-write"])
    }

    /// The same with other options for `gridlane serve`. A real xrootd does not have them.
    pub(super) fn with(options: &[&str]) -> Site {
        let scratch = Scratch::new();
        let export = scratch.dir("export");
        let peer = if std::env::var("GRIDLANE_TEST_ROOT_PEER").is_ok_and(|name| name == "xrootd") {
            Peer::Xrootd(Xrootd::start())
        } else {
            let log = scratch.join("access.log");
            let mut all = vec!["--access-log", text(&log)];
            all.extend(options);
            Peer::Gridlane(Server::with(&export, &all))
        };
        let ca = match &peer {
            Peer::Gridlane(server) => server.ca(),
            Peer::Xrootd(server) => server.ca(),
        };
        let authorities = hashed_authorities(&scratch, &ca);
        Site { scratch, peer, authorities }
    }

    /// Whether it is `gridlane serve`, not a real xrootd.
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

    /// `127.0.0.1:PORT`
    pub(super) fn authority(&self) -> String {
        match &self.peer {
            Peer::Gridlane(server) => {
                let url = server.url("");
                url.trim_start_matches("http://").trim_end_matches('/').to_owned()
            }
            Peer::Xrootd(server) => format!("127.0.0.1:{}", server.port()),
        }
    }

    /// The URL of a path below the root, which stands in it as it is: nobody encodes them.
    pub(super) fn url(&self, path: &str) -> String {
        self.url_over("root", path)
    }

    /// The same over `root` or `roots`.
    pub(super) fn url_over(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}//{path}", self.authority())
    }

    /// `gridlane serve`, for tests of what only it does.
    pub(super) fn gridlane(&self) -> &Server {
        match &self.peer {
            Peer::Gridlane(server) => server,
            Peer::Xrootd(_) => panic!("this test is of gridlane serve alone"),
        }
    }

    /// A program on XRootD's client library that trusts this server.
    pub(super) fn tool(&self, name: &str, package: &str) -> Command {
        with_patience(tool(name, package), &self.authorities)
    }

    pub(super) fn xrdcp(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.tool("xrdcp", "xrootd-client");
        command.arg("--nopbar").args(arguments);
        run(command)
    }

    pub(super) fn xrdfs(&self, arguments: &[&str]) -> Outcome {
        self.xrdfs_over("root", arguments)
    }

    pub(super) fn xrdfs_over(&self, scheme: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.tool("xrdfs", "xrootd-client");
        command.arg(format!("{scheme}://{}", self.authority())).args(arguments);
        run(command)
    }
}

/// XRootD's client library has a patience of many minutes. Here an answer that does not come is a failure soon.
pub(super) fn with_patience(mut command: Command, authorities: &Path) -> Command {
    command
        .env("XRD_CONNECTIONRETRY", "1")
        .env("XRD_CONNECTIONWINDOW", "10")
        .env("XRD_REQUESTTIMEOUT", "50")
        .env("XRD_STREAMTIMEOUT", "30")
        .env("XRD_STREAMERRORWINDOW", "0")
        .env("XRD_TIMEOUTRESOLUTION", "1")
        .env("X509_CERT_DIR", authorities);
    command
}
