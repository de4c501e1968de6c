//! nginx in the foreground, as the user that runs the tests, with http and https on free ports.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use super::tools::tool;
use super::{Scratch, until};

/// A running nginx; it is killed when the value is dropped.
pub(crate) struct Nginx {
    child: Child,
    port: u16,
    tls_port: u16,
    prefix: Scratch,
}

impl Nginx {
    /// Serves a directory.
    pub(crate) fn start(dir: &Path) -> Nginx {
        Nginx::with(dir, "")
    }

    /// The same with more directives in the `server` block.
    pub(crate) fn with(dir: &Path, directives: &str) -> Nginx {
        let prefix = Scratch::new();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        gridlane_net::tls::self_signed(prefix.path(), &names).unwrap();
        // Between choosing a port and listening at it another process may take it: then choose another.
        for _ in 0..20 {
            let (port, tls_port) = (free_port(), free_port());
            fs::write(prefix.join("nginx.conf"), configuration(dir, directives, port, tls_port)).unwrap();
            let mut child = tool("nginx", "nginx")
                .arg("-p")
                .arg(prefix.path())
                .arg("-c")
                .arg(prefix.join("nginx.conf"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut ended = false;
            until("nginx listens", || {
                ended = child.try_wait().unwrap().is_some();
                ended || is_open(port) && is_open(tls_port)
            });
            if !ended {
                return Nginx { child, port, tls_port, prefix };
            }
            let log = fs::read_to_string(prefix.join("error.log")).unwrap_or_default();
            assert!(log.contains("Address already in use"), "nginx does not start: {log}");
        }
        panic!("no free port for nginx");
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}/{path}", self.tls_port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The certificate that vouches for it.
    pub(crate) fn ca(&self) -> PathBuf {
        self.prefix.join("cert.pem")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(dir: &Path, directives: &str, port: u16, tls_port: u16) -> String {
    let dir = dir.display();
    format!(
        "daemon off;
master_process off;
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls_port} ssl;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        root {dir};
        {directives}
    }}
}}
"
    )
}

/// A port below those that the kernel hands out by itself, so that no connection of another test gets it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Relaxed).wrapping_mul(7).wrapping_add(std::process::id() as u16);
        let port = 12_000 + offset % 18_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
