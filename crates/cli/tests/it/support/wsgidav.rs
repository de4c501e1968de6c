//! WsgiDAV, the WebDAV server in Python, on a free port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::client::isolated;
use super::nginx::{free_port, is_open};
use super::python::cached;
use super::{Scratch, until};

/// A running WsgiDAV; it is killed when the value is dropped.
pub(crate) struct WsgiDav {
    child: Child,
    port: u16,
    _prefix: Scratch,
}

impl WsgiDav {
    /// Serves a directory, which anyone may read and write.
    pub(crate) fn start(dir: &Path) -> WsgiDav {
        let prefix = Scratch::new();
        for _ in 0..20 {
            let port = free_port();
            let log = fs::File::create(prefix.join("log")).unwrap();
            let mut child = isolated(Command::new(program()))
                .args([
                    "--host",
                    "127.0.0.1",
                    "--port",
                    &port.to_string(),
                    "--auth",
                    "anonymous",
                    "--no-config",
                ])
                .arg("--root")
                .arg(dir)
                .stdout(Stdio::from(log.try_clone().unwrap()))
                .stderr(Stdio::from(log))
                .spawn()
                .unwrap();
            let mut ended = false;
            until("wsgidav listens", || {
                ended = child.try_wait().unwrap().is_some();
                ended || is_open(port)
            });
            if !ended {
                return WsgiDav { child, port, _prefix: prefix };
            }
        }
        panic!("wsgidav does not start: {}", fs::read_to_string(prefix.join("log")).unwrap_or_default());
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for WsgiDav {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where scripts/bootstrap.sh puts it.
fn program() -> PathBuf {
    let program = cached("wsgidav-4.3.3/bin/wsgidav");
    assert!(program.is_file(), "{} is needed and not there: scripts/bootstrap.sh --test", program.display());
    program
}
