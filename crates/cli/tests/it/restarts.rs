//! Servers that are stopped, or killed and started again, under copies of every kind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::client::{Running, cp};
use crate::support::serve::Server;
use crate::support::{Scratch, assert_copied, content, occupied_bytes, part_of, until};

const MIB: usize = 1024 * 1024;
const BYTES: usize = 12 * MIB;
/// Of a copy: four seconds, so that it is not complete before it is seen that some of it is there.
const RATE: &str = "3MB/s";
const SCHEMES: [&str; 4] = ["http", "https", "root", "roots"];

fn url(server: &Server, scheme: &str, name: &str) -> String {
    server.url_over(scheme, &if scheme.starts_with("root") { format!("/{name}") } else { name.to_owned() })
}

fn limited(source: impl AsRef<Path>, target: impl AsRef<Path>, server: &Server) -> Command {
    let mut command = cp(source.as_ref(), target.as_ref());
    command.args(["--limit-rate", RATE, "--ca"]).arg(server.ca());
    command
}

/// Waits until some of a download is there.
fn has_begun(copy: &mut Running, target: &Path) {
    until("some of it is there", || {
        assert!(copy.is_running(), "it ended before the server was stopped");
        part_of(target).exists() && occupied_bytes(&part_of(target)) >= MIB as u64
    });
}

/// Waits until the server has some of an upload.
fn is_taken(copy: &mut Running, export: &Path) {
    let parts = || fs::read_dir(export.join(".gridlane")).into_iter().flatten().flatten();
    until("the server has some of it", || {
        assert!(copy.is_running(), "it ended before the server was stopped");
        parts().any(|part| part.path().is_file() && occupied_bytes(&part.path()) >= MIB as u64)
    });
}

/// One copy of each kind, and what is done to its server when some of it is there.
fn for_each_kind(doing: impl Fn(Server, &Path, &dyn Fn(&[&str]) -> Server) -> Option<Server> + Sync) {
    let bytes = content(8100, BYTES);
    std::thread::scope(|scope| {
        for scheme in SCHEMES {
            for is_upload in [false, true] {
                let (bytes, doing) = (&bytes, &doing);
                scope.spawn(move || {
                    let scratch = Scratch::new();
                    let export = scratch.dir("export");
                    // Taken, so that no other process has it while the server is away.
                    let port = tokio::net::TcpSocket::new_v4().unwrap();
                    port.set_reuseaddr(true).unwrap();
                    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                    let address = port.local_addr().unwrap().to_string();
                    let start = |options: &[&str]| {
                        let mut command = Server::command(&export);
                        command.args(["--allow-write", "--listen", &address]).args(options);
                        Server::spawn(command)
                    };
                    let server = start(&[]);
                    let kept = match is_upload {
                        false => {
                            fs::write(export.join("f"), &**bytes).unwrap();
                            let target = scratch.join("f");
                            let from = PathBuf::from(url(&server, scheme, "f"));
                            let mut copy = Running::start(limited(from, &target, &server));
                            has_begun(&mut copy, &target);
                            let kept = doing(server, &export, &start);
                            copy.wait().ok();
                            assert_copied(&target, bytes);
                            kept
                        }
                        true => {
                            let source = scratch.file("f", bytes);
                            let to = PathBuf::from(url(&server, scheme, "g"));
                            let mut copy = Running::start(limited(source, to, &server));
                            is_taken(&mut copy, &export);
                            let kept = doing(server, &export, &start);
                            copy.wait().ok();
                            assert!(fs::read(export.join("g")).unwrap() == **bytes, "{scheme}");
                            kept
                        }
                    };
                    drop(kept);
                });
            }
        }
    });
}

#[test]
fn a_server_that_is_stopped_lets_copies_end() {
    for_each_kind(|server, _, _| {
        assert_eq!(server.stop("TERM").code(), Some(0));
        None
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_fails_no_copy() {
    for_each_kind(|mut server, _, start| {
        server.kill();
        let certificate = server.ca();
        let key = certificate.with_file_name("key.pem");
        Some(start(&["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()]))
    });
}
