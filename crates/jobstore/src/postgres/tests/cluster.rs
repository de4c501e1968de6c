//! A server of PostgreSQL for a test: a cluster of its own, without a network, that is gone afterwards.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A running server.
pub(super) struct Cluster {
    dir: TempDir,
    server: std::process::Child,
    user: Option<(u32, u32)>,
}

impl Cluster {
    /// Makes a cluster and starts its server.
    pub(super) fn start() -> Cluster {
        // Not below a directory that only we may enter: the server is of another user, and names of sockets are short.
        let dir = tempfile::Builder::new().prefix("glpg").tempdir_in("/tmp").unwrap();
        let user = rustix::process::getuid().is_root().then(|| user_of("postgres"));
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if let Some((uid, gid)) = user {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut init = as_user(&program("initdb"), user, dir.path());
        init.args([
            "-D",
            "data",
            "-A",
            "trust",
            "-U",
            "gridlane",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        ]);
        succeeds(init.output().unwrap());
        let server = server(dir.path(), user);
        let cluster = Cluster { dir, server, user };
        cluster.wait();
        cluster
    }

    /// Where the server is.
    pub(super) fn url(&self) -> String {
        format!("host={} user=gridlane dbname=postgres", self.dir.path().display())
    }

    /// Kills the server, and starts it again.
    pub(super) fn kill_and_start(&mut self) {
        // The server and not one of its children: they end without it.
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        // One that is still ending holds the memory of the old server.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            self.server = server(self.dir.path(), self.user);
            if self.is_up(deadline) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "the server does not start again");
        }
    }

    /// Waits until the server is up; false if it has ended.
    fn is_up(&mut self, deadline: std::time::Instant) -> bool {
        loop {
            if self.server.try_wait().unwrap().is_some() {
                return false;
            }
            if self.is_ready() {
                return true;
            }
            assert!(std::time::Instant::now() < deadline, "the server does not answer");
        }
    }

    fn wait(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !self.is_ready() {
            assert!(std::time::Instant::now() < deadline, "the server does not answer");
        }
    }

    /// Asks the server itself, and waits a little for the answer.
    fn is_ready(&self) -> bool {
        let mut ready = Command::new(program("pg_isready"));
        ready.arg("-q").arg("-t").arg("1").arg("-h").arg(self.dir.path());
        ready.status().unwrap().success()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn server(dir: &Path, user: Option<(u32, u32)>) -> std::process::Child {
    let mut server = as_user(&program("postgres"), user, dir);
    server.args(["-D", "data", "-k"]).arg(dir).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
    let log = std::fs::File::create(dir.join("log")).unwrap();
    server.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

fn as_user(program: &Path, user: Option<(u32, u32)>, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// A user's and a group's number.
fn user_of(name: &str) -> (u32, u32) {
    let number = |which: &str| -> u32 {
        let output = succeeds(Command::new("id").args([which, name]).output().unwrap());
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    (number("-u"), number("-g"))
}

/// A program of PostgreSQL, where Debian puts it, or in the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| PathBuf::from(name))
}

fn succeeds(output: Output) -> Output {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}
