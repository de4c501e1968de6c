//! A server that may have little: few descriptors, no threads, files of a certain size. It serves with what it has, or says
//! why it cannot.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;
use std::time::Duration;

use crate::support::client::{Running, copy_of_gridlane, isolated, text};
use crate::support::serve::Server;
use crate::support::tools::{curl, run_curl, tool};
use crate::support::{DEADLINE, Scratch, content, lone_user, needs_root};

/// `gridlane serve` of a directory with a file `f`, under what a shell says first.
fn limited(scratch: &Scratch, limit: &str) -> Command {
    fs::write(scratch.dir("export").join("f"), "hello").unwrap();
    let mut command = isolated(Command::new("/bin/sh"));
    command.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]).arg(env!("CARGO_BIN_EXE_gridlane"));
    command.arg("serve").arg(scratch.join("export")).args(["--json", "--listen", "127.0.0.1:0"]);
    command
}

fn status(arguments: &[&str]) -> String {
    run_curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat()).text()
}

#[test]
fn few_descriptors_are_shared_out() {
    let scratch = Scratch::new();
    let server = Server::spawn(limited(&scratch, "ulimit -n 64"));
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    // Most of what one client has, and another one beside.
    let mut held: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in &mut held {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    assert_eq!(status(&["--interface", "127.0.0.2", &server.url("f")]), "200");
    drop(held);
    let said = server.stop_and_hear("TERM");
    assert!(said.contains("at most 10 connections instead of 4096, and 20 open files"), "{said}");
}

#[test]
fn with_too_few_descriptors_it_does_not_start() {
    let scratch = Scratch::new();
    let mut command = limited(&scratch, "ulimit -n 30");
    command.env("XDG_DATA_HOME", scratch.path());
    let outcome = Running::start(command).wait();
    outcome.exits(9).says(&["may have 30 files open", "needs 40", "ulimit -n"]);
}

#[test]
fn without_threads_it_does_not_start() {
    // It has no privilege, which would lift the limit.
    needs_root();
    let user = lone_user(0);
    let scratch = Scratch::new();
    let (data, binary) = (scratch.dir("data"), scratch.join("gridlane"));
    copy_of_gridlane(&binary);
    fs::write(scratch.dir("export").join("f"), "hello").unwrap();
    for place in [scratch.path(), &data, &scratch.join("export"), &binary] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(&data, Some(user), Some(user)).unwrap();
    let serve = |threads: u32| {
        let mut command = tool("setpriv", "util-linux");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        command
            .arg(tool("prlimit", "util-linux").get_program())
            .arg(format!("--nproc={threads}"))
            // Stronger than what is set for every server of the tests, which that user may not write to.
            .args(["env", &format!("XDG_DATA_HOME={}", text(&data))])
            .arg(&binary);
        command.arg("serve").arg(scratch.join("export")).args(["--json", "--listen", "127.0.0.1:0"]);
        command
    };
    let outcome = Running::start(serve(6)).wait_within(Duration::from_secs(60));
    outcome.exits(9).says(&["threads", "can be had", "ulimit -u", "pids.max"]);
    // With few it serves by those, and says so; checksums and uploads need some of them.
    let cores = std::thread::available_parallelism().unwrap().get() as u32;
    let mut command = serve(cores + 40);
    command.arg("--allow-write");
    fs::set_permissions(scratch.join("export"), fs::Permissions::from_mode(0o777)).unwrap();
    let server = Server::spawn(command);
    assert_eq!(status(&[&server.url("f")]), "200");
    assert_eq!(status(&["-H", "Want-Digest: md5", "-I", &server.url("f")]), "200");
    let large = scratch.file("large", &content(513, 20 << 20));
    let uploads: Vec<Running> = (0..30)
        .map(|number| {
            let mut upload = curl();
            upload.args(["-o", "/dev/null", "-w", "%{http_code}", "-T", text(&large)]);
            upload.arg(server.url(&format!("large{number}")));
            Running::start(upload)
        })
        .collect();
    for upload in uploads {
        assert_eq!(upload.wait().text(), "201");
    }
    let said = server.stop_and_hear("TERM");
    assert!(said.contains("operations of each disk at the same time: the process may have"), "{said}");
}

#[test]
fn a_limit_of_the_size_of_files_refuses_what_is_larger() {
    let scratch = Scratch::new();
    let mut command = limited(&scratch, "ulimit -f 2000");
    command.arg("--allow-write");
    let server = Server::spawn(command);
    // More than two megabytes, in whatever blocks a shell counts.
    let large = scratch.file("large", &content(511, 5 << 20));
    let small = scratch.file("small", &content(512, 100_000));
    for arguments in [&["-T", text(&large)][..], &["-T", text(&large), "-H", "Transfer-Encoding: chunked"]] {
        assert_eq!(status(&[arguments, &[&server.url("large")]].concat()), "413");
    }
    assert_eq!(status(&["-T", text(&small), &server.url("small")]), "201");
    assert_eq!(status(&[&server.url("large")]), "404");
    assert_eq!(server.stop("TERM").code(), Some(0));
}
