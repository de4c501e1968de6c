//! The server's own promises: where it listens, how it stops, what it refuses, what it writes down.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::client::{Running, cp, gridlane, run, text};
use crate::support::serve::Server;
use crate::support::tools::run_curl;
use crate::support::{MIB, Scratch, assert_copied, content, occupied_bytes, part_of, until};

fn export(size: usize) -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.dir("export").join("f"), &*content(1201, size)).unwrap();
    scratch
}

#[test]
fn beyond_loopback_it_needs_to_be_told() {
    let scratch = export(10);
    let mut command = gridlane();
    command.arg("serve").arg(scratch.join("export")).args(["--listen", "0.0.0.0:0"]);
    run(command).exits(2).says(&["--insecure-allow-anonymous"]);
    let server =
        Server::with(&scratch.join("export"), &["--insecure-allow-anonymous", "--listen", "0.0.0.0:0"]);
    assert_eq!(server.stop("TERM").code(), Some(0));
}

#[test]
fn it_stops_on_either_signal() {
    let scratch = export(10);
    for name in ["TERM", "INT"] {
        let server = Server::start(&scratch.join("export"));
        assert_eq!(server.stop(name).code(), Some(0), "SIG{name}");
    }
}

#[test]
fn a_running_request_is_finished_before_it_stops() {
    let scratch = export(16 * MIB);
    let server = Server::with(&scratch.join("export"), &["--limit-rate", "8MB/s"]);
    let target = scratch.join("f");
    let mut copy = Running::start({
        let mut curl = crate::support::tools::curl();
        curl.args([&server.url("f"), "-o", text(&target)]);
        curl
    });
    until("some has arrived", || {
        assert!(copy.is_running());
        occupied_bytes(&target) > MIB as u64
    });
    assert_eq!(server.stop("TERM").code(), Some(0));
    copy.wait().ok();
    assert_copied(&target, &content(1201, 16 * MIB));
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let scratch = Scratch::new();
    let mut command = gridlane();
    command.arg("serve").arg(scratch.join("missing")).env("XDG_DATA_HOME", scratch.path());
    let outcome = run(command).says(&["missing"]);
    assert!(matches!(outcome.code, Some(2 | 3)), "{}", outcome.describe());
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let scratch = export(10);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = gridlane();
    command.arg("serve").arg(scratch.join("export")).args(["--listen", &address]);
    command.env("XDG_DATA_HOME", scratch.path());
    let outcome = run(command).says(&[&address]);
    assert_ne!(outcome.code, Some(0));
}

#[test]
fn the_first_thing_it_prints_is_how_to_copy() {
    let scratch = export(10);
    let mut command = gridlane();
    command.arg("serve").arg(scratch.join("export")).args(["--listen", "127.0.0.1:0"]);
    command.env("XDG_DATA_HOME", scratch.path());
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut said = String::new();
    until("it prints a line to copy with", || {
        let mut piece = [0; 4096];
        let len = stdout.read(&mut piece).unwrap();
        said.push_str(&String::from_utf8_lossy(&piece[..len]));
        said.contains("gridlane cp") || len == 0
    });
    crate::support::client::signal(&child.id().to_string(), "TERM");
    child.wait().unwrap();
    assert!(said.contains("http://127.0.0.1:") && said.contains("https://127.0.0.1:"), "{said}");
    assert!(said.contains("gridlane cp"), "{said}");
}

#[test]
fn its_certificate_is_kept_and_its_key_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = export(10);
    let once = || {
        let mut command = gridlane();
        command.arg("serve").arg(scratch.join("export")).args(["--listen", "127.0.0.1:0", "--json"]);
        command.env("XDG_DATA_HOME", scratch.join("data"));
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = [0; 4096];
        assert!(child.stdout.take().unwrap().read(&mut line).unwrap() > 0);
        crate::support::client::signal(&child.id().to_string(), "TERM");
        child.wait().unwrap();
        fs::read(scratch.join("data/gridlane/cert.pem")).unwrap()
    };
    assert_eq!(once(), once(), "every start has another certificate");
    let mode = fs::metadata(scratch.join("data/gridlane/key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read the key: {mode:o}");
}

#[test]
fn nothing_outside_the_directory_is_served() {
    let scratch = export(10);
    scratch.file("secret", b"do not serve");
    std::os::unix::fs::symlink(scratch.join("secret"), scratch.join("export/link")).unwrap();
    let server = Server::start(&scratch.join("export"));
    for path in [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "%2e%2e%2fsecret",
        "f/../../secret",
        "link",
        "f%00",
        "//../secret",
        "%5c..%5csecret",
        ".gridlane/",
    ] {
        let outcome = run_curl(&["--path-as-is", "-o", "-", "-w", "\n%{http_code}", &server.url(path)]);
        let said = outcome.text();
        assert!(!said.contains("do not serve"), "{path} is served");
        let status = said.lines().last().unwrap_or_default();
        assert!(matches!(status, "400" | "403" | "404"), "{path}: {status}");
    }
}

/// The status that the server answers these bytes with, or nothing.
fn status_of(server: &Server, request: &[u8]) -> String {
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(len) => answer.extend_from_slice(&piece[..len]),
        }
    }
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn requests_that_are_too_big_or_no_requests_get_the_right_answer() {
    let scratch = export(10);
    let server = Server::with(&scratch.join("export"), &["--allow-write", "--max-upload", "1kB"]);
    let long = "x".repeat(9000);
    let many = (0..200).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    let big = (0..9).map(|number| format!("X-{number}: {}\r\n", "z".repeat(7000))).collect::<String>();
    for (request, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "414"),
        (format!("GET /f HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), "431"),
        (format!("GET /f HTTP/1.1\r\nHost: localhost\r\n{big}\r\n"), "431"),
        ("PUT /g HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n".to_owned(), "413"),
        ("GET /f HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        (
            "GET /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "PUT /g HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            "400",
        ),
        ("BREW /f HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "501"),
        ("GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "200"),
    ] {
        let line = request.lines().next().unwrap_or_default();
        assert_eq!(status_of(&server, request.as_bytes()), expected, "{}", &line[..line.len().min(60)]);
    }
    assert_eq!(crate::support::names(&scratch.join("export")).iter().filter(|name| *name == "g").count(), 0);
}

#[test]
fn beyond_its_connections_it_says_when_to_come_back() {
    let scratch = export(10);
    let server =
        Server::with(&scratch.join("export"), &["--max-connections", "4", "--client-connections", "4"]);
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let held: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
    until("the fifth is told to come back", || {
        status_of(&server, b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n") == "503"
    });
    drop(held);
    until("there is room again", || {
        status_of(&server, b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n") == "200"
    });
}

#[test]
fn silent_clients_cost_no_thread() {
    let scratch = export(10);
    let server = Server::start(&scratch.join("export"));
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let threads = || fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
    assert_eq!(status_of(&server, b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
    let before = threads();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /f HT").unwrap();
        held.push(stream);
    }
    assert_eq!(status_of(&server, b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
    let after = threads();
    assert!(after < before + 50, "{after} threads with 200 silent clients, {before} before");
}

#[test]
fn every_request_is_written_down() {
    let scratch = export(1000);
    let log = scratch.join("access.log");
    let server = Server::with(&scratch.join("export"), &["--access-log", text(&log)]);
    run_curl(&[&server.url("f"), "-o", "/dev/null"]).ok();
    run_curl(&[&server.url("missing"), "-o", "/dev/null"]).ok();
    until("both requests are logged", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 2)
    });
    assert_eq!(server.stop("TERM").code(), Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let (first, second) = (text.lines().next().unwrap(), text.lines().nth(1).unwrap());
    for word in ["GET", "/f", "200", "1000"] {
        assert!(first.contains(word), "no {word} in {first}");
    }
    assert!(second.contains("/missing") && second.contains("404"), "{second}");
}

#[test]
fn the_limit_holds_for_all_connections_together() {
    let scratch = export(16 * MIB);
    let server = Server::with(&scratch.join("export"), &["--limit-rate", "8MB/s"]);
    let target = scratch.join("f");
    let mut command = cp(server.url("f"), &target);
    command.args(["--streams", "4"]);
    let outcome = run(command).ok().verified(true);
    let seconds = outcome.summary()["seconds"].as_f64().unwrap();
    assert!(seconds > 1.6, "16 MiB at 8 MB/s took only {seconds:.2} s");
    assert!(!part_of(&target).exists());
}
