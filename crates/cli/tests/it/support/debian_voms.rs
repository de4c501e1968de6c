//! Debian's VOMS server with its database, which holds one VO of one member.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::client::text;
use super::nginx::{free_port, is_open};
use super::pki::{ADA_DN, CA_DN, HOST_DN, Pki};
use super::tools::tool;
use super::{Scratch, until};

/// The tables of the database, as the package has them, and where the server finds what speaks to it.
const TABLES: &str = "/usr/share/voms/voms-mysql.data";
const PLUGIN: &str = "/usr/lib/voms/libvomsmysql.so";

/// A running server on `localhost`: Ada is in the VO `gridlane`, with its role `admin`. It stops when the value is dropped.
pub(crate) struct DebianVoms {
    children: Vec<Child>,
    port: u16,
    scratch: Scratch,
}

impl DebianVoms {
    pub(crate) fn start(pki: &Pki) -> DebianVoms {
        let scratch = Scratch::new();
        let (data, socket) = (scratch.dir("db"), scratch.join("sql"));
        fill(&scratch, &data);
        let mut database = mariadb(&data);
        database.args(["--skip-grant-tables", "--skip-networking", "--socket", text(&socket)]);
        database.args(["--pid-file", text(&scratch.join("pid"))]);
        let children = vec![start(database, &scratch.join("db.log"))];
        let mut this = DebianVoms { children, port: 0, scratch };
        until("the database listens", || this.is_running("db.log") && socket.exists());
        // Between choosing a port and listening at it another process may take it: then choose another.
        for _ in 0..20 {
            this.port = free_port();
            let mut server = tool("voms", "voms-server");
            server.arg("--conf").arg(this.configuration(pki, &socket));
            this.children.push(start(server, &this.scratch.join("voms.out")));
            let mut has_ended = false;
            until("the VOMS server listens", || {
                has_ended = this.children[1].try_wait().unwrap().is_some();
                has_ended || is_open(this.port)
            });
            if !has_ended {
                return this;
            }
            this.children.pop();
        }
        panic!("no VOMS server starts: {}", this.log());
    }

    /// Its line of a `vomses`.
    pub(crate) fn line(&self) -> String {
        format!("\"gridlane\" \"localhost\" \"{}\" \"{HOST_DN}\" \"gridlane\"\n", self.port)
    }

    /// What it writes about its work.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("voms.log")).unwrap_or_default()
    }

    fn is_running(&mut self, log: &str) -> bool {
        let ended = self.children[0].try_wait().unwrap();
        assert!(ended.is_none(), "{}", fs::read_to_string(self.scratch.join(log)).unwrap_or_default());
        true
    }

    fn configuration(&self, pki: &Pki, socket: &Path) -> PathBuf {
        let host = pki.credential("host-rsa");
        let password = self.scratch.file("password", b"unused\n");
        // It insists on this mode.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(&password, mode).unwrap();
        let lines = [
            "--vo=gridlane".to_owned(),
            "--dbname=voms".to_owned(),
            "--username=voms".to_owned(),
            format!("--passfile={}", password.display()),
            "--contactstring=localhost".to_owned(),
            format!("--mysql-socket={}", socket.display()),
            format!("--sqlloc={PLUGIN}"),
            format!("--port={}", self.port),
            format!("--uri=localhost:{}", self.port),
            format!("--logfile={}", self.scratch.join("voms.log").display()),
            "--logtype=7".to_owned(),
            format!("--x509_cert_dir={}", pki.certificates().display()),
            format!("--x509_user_cert={}", host.cert.display()),
            format!("--x509_user_key={}", host.key.display()),
            // It stays the process that was started, and logs all.
            "--debug".to_owned(),
        ];
        self.scratch.file("voms.conf", (lines.join("\n") + "\n").as_bytes())
    }
}

impl Drop for DebianVoms {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn mariadb(data: &Path) -> Command {
    let mut command = tool("mariadbd", "mariadb-server-core");
    command.args(["--no-defaults", "--user=root", "--datadir", text(data)]);
    command
}

/// Makes the tables, with what is in them.
fn fill(scratch: &Scratch, data: &Path) {
    let tables = fs::read_to_string(TABLES).expect("scripts/bootstrap.sh --test (package voms-server)");
    assert!(Path::new(PLUGIN).exists(), "scripts/bootstrap.sh --test (package voms-mysql-plugin)");
    let sql = format!(
        "CREATE DATABASE voms;\nUSE voms;\n{tables}
INSERT INTO ca (cid, ca) VALUES (1, '{CA_DN}');
INSERT INTO usr (userid, dn, ca, cn) VALUES (1, '{ADA_DN}', 1, 'Ada');
INSERT INTO `groups` (gid, dn, parent, must) VALUES (1, '/gridlane', 1, 1);
INSERT INTO roles (rid, role) VALUES (1, 'admin');
INSERT INTO seqnumber VALUES ('00');
INSERT INTO version (version) VALUES (2);
INSERT INTO m (userid, gid, rid) VALUES (1, 1, NULL), (1, 1, 1);
"
    );
    let mut command = mariadb(data);
    command.args(["--bootstrap", "--skip-log-bin"]);
    command.stdin(fs::File::open(scratch.file("tables.sql", sql.as_bytes())).unwrap());
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn start(mut command: Command, log: &Path) -> Child {
    let log = fs::File::create(log).unwrap();
    command.stdout(Stdio::from(log.try_clone().unwrap())).stderr(Stdio::from(log));
    command.spawn().unwrap()
}
