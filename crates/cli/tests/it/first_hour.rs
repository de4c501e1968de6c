//! The first hour with gridlane: another port than was meant, listings, addresses, mistakes in settings, the
//! installation, and the examples of the guides.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support::client::{Outcome, gridlane, isolated, run, text};
use crate::support::nginx::Nginx;
use crate::support::object::{Answer, Then};
use crate::support::rogue::{Request, Rogue};
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, has_ipv6, needs_root};

fn ask(arguments: &[&str]) -> Outcome {
    let mut command = gridlane();
    command.args(arguments);
    run(command)
}

// --- Another port than was meant ----------------------------------------------------------------------

/// A server that does with each connection what it is told; returns its port.
fn raw(talk: fn(TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The end that hangs up first ends the conversation.
            std::thread::spawn(move || talk(stream));
        }
    });
    port
}

/// Answers a ClientHello, and hangs up on everything else.
fn tls_alone(mut stream: TcpStream) -> std::io::Result<()> {
    let mut came = [0; 1024];
    match (stream.read(&mut came)?, came[0]) {
        (1.., 22) => stream.write_all(&[21, 3, 3, 0, 2, 2, 40]),
        _ => Ok(()),
    }
}

/// Greets first, as SSH does.
fn greeter(mut stream: TcpStream) -> std::io::Result<()> {
    stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n")?;
    stream.read(&mut [0; 1024]).map(|_| ())
}

/// Reads a line before it answers, as simple servers of HTTP do: what has no line ends is waited for.
fn line_by_line(mut stream: TcpStream) -> std::io::Result<()> {
    let mut came = [0; 1];
    while stream.read(&mut came)? > 0 {
        if came == *b"\n" {
            return stream.write_all(b"HTTP/1.0 400 Bad request syntax\r\nContent-Length: 0\r\n\r\n");
        }
    }
    Ok(())
}

#[test]
fn another_protocol_than_was_meant_is_named_at_once() {
    let scratch = Scratch::new();
    let nginx = Nginx::start(&scratch.dir("export"));
    let xrootd = Xrootd::start();
    let port_of = |url: String| url.rsplit(':').next().unwrap().trim_end_matches('/').parse::<u16>().unwrap();
    let (plain, with_tls) = (port_of(nginx.url("")), port_of(nginx.tls_url("")));
    let (tls, ssh, lines) = (raw(tls_alone), raw(greeter), raw(line_by_line));
    let cases: Vec<(u16, &str, [&str; 2])> = vec![
        (plain, "https", ["speaks plain HTTP, not TLS", "http:// instead"]),
        (plain, "root", ["speaks plain HTTP, not XRootD", "http:// instead"]),
        (plain, "roots", ["speaks plain HTTP, not XRootD", "http:// instead"]),
        (with_tls, "http", ["speaks TLS, not plain HTTP", "https:// instead"]),
        (with_tls, "root", ["not XRootD", "instead"]),
        (with_tls, "roots", ["not XRootD", "instead"]),
        (tls, "http", ["speaks TLS, not plain HTTP", "https:// instead"]),
        (tls, "root", ["speaks TLS, not XRootD", "https:// instead"]),
        (tls, "roots", ["speaks TLS, not XRootD", "https:// instead"]),
        (ssh, "http", ["does not speak plain HTTP", "SSH-2.0-OpenSSH_9.2p1"]),
        (ssh, "https", ["does not speak TLS", "SSH-2.0-OpenSSH_9.2p1"]),
        (ssh, "root", ["does not speak XRootD", "SSH-2.0-OpenSSH_9.2p1"]),
        (ssh, "roots", ["does not speak XRootD", "SSH-2.0-OpenSSH_9.2p1"]),
        (lines, "root", ["speaks plain HTTP, not XRootD", "http:// instead"]),
        (lines, "roots", ["speaks plain HTTP, not XRootD", "http:// instead"]),
        (xrootd.port(), "http", ["speaks XRootD's protocol, not plain HTTP", "root:// instead"]),
        (xrootd.port(), "https", ["speaks XRootD's protocol, not TLS", "roots:// instead"]),
    ];
    // A few at a time: what a port speaks is found out within a time that so many clients would not leave each other.
    let left = Mutex::new(cases.iter().enumerate());
    let take = || left.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((number, (port, scheme, words))) = take() {
                    let target = scratch.join(format!("f{number}"));
                    let url = format!("{scheme}://127.0.0.1:{port}//f");
                    ask(&["ls", &url]).exits(1).says(words);
                    // Tried again and again, it would not end within the time of a test.
                    let said = ask(&["cp", "--timeout", "3600", &url, text(&target)]).exits(1).says(words);
                    assert_eq!(said.stderr.lines().count(), 1, "{}", said.describe());
                    assert!(!target.exists());
                }
            });
        }
    });
}

#[test]
fn a_certificate_for_another_name_says_for_which() {
    let scratch = Scratch::new();
    let mut command = Server::command(&scratch.dir("export"));
    command.args(["--listen", "127.0.0.2:0"]);
    let listening = Server::spawn(command);
    let url_there = listening.url_over("https", "f");
    assert!(url_there.contains("127.0.0.2"), "{url_there}");
    let said = ask(&["ls", "--ca", text(&listening.ca()), &url_there]).exits(4);
    said.says(&["its certificate is not trusted", "it is for ", "localhost", "not for 127.0.0.2"]);
}

// --- Listings and addresses ---------------------------------------------------------------------------

#[test]
fn listings_go_down_and_have_sizes_for_people() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::create_dir_all(export.join("d/e f")).unwrap();
    fs::create_dir(export.join("empty")).unwrap();
    fs::write(export.join("a"), vec![0; 1_234_567]).unwrap();
    fs::write(export.join("d/b"), b"b").unwrap();
    fs::write(export.join("d/e f/c%1"), b"cc").unwrap();
    std::os::unix::fs::symlink("..", export.join("d/up")).unwrap();
    let server = Server::start(&export);
    let expected = ["a", "d/", "empty/", "d/b", "d/e f/", "d/e f/c%1"];
    for scheme in ["http", "https", "root", "roots"] {
        let url = server.url_over(scheme, "");
        let said = ask(&["ls", "-R", "--ca", text(&server.ca()), &url]).ok().text();
        let found: Vec<&str> = said.lines().filter(|line| !line.starts_with("d/up")).collect();
        assert_eq!(found, expected, "{scheme}");
        let said = ask(&["ls", "-lh", "--ca", text(&server.ca()), &url]).ok().text();
        let line = said.lines().find(|line| line.ends_with("  a")).unwrap();
        assert!(line.trim_start().starts_with("1.23 MB  "), "{scheme}: {line}");
    }
    let here = ask(&["ls", "-lhR", text(&export)]).ok().text();
    let names: Vec<&str> = here.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(names, ["a", "d/", "empty/", "d/b", "d/e f/", "d/up/", "d/e f/c%1"], "{here}");
    assert!(here.contains("1.23 MB"), "{here}");
    let events = ask(&["ls", "-R", "--json", &server.url("d")]).ok().events();
    let names: Vec<&str> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"e f/c%1") && names.contains(&"b"), "{names:?}");
    let said = ask(&["ls", "--help"]).ok().text();
    assert!(said.contains("--human-readable") && said.contains("--recursive"), "{said}");
}

/// A server over HTTP with the directories `/open`, `/shut` and `/zoo`, each with a file `f`. It does not list `/shut`.
fn with_one_shut(request: &Request) -> Answer {
    let list = |names: &[&str]| {
        let entries = names.iter().map(|name| {
            let kind = if name.is_empty() || name.ends_with('/') { "<D:collection/>" } else { "" };
            format!(
                "<D:response><D:href>{}{name}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>\
                 </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
                request.path
            )
        });
        let body = format!("<D:multistatus xmlns:D=\"DAV:\">{}</D:multistatus>", entries.collect::<String>());
        let len = body.len();
        Answer::status(207)
            .header("Content-Type", "application/xml")
            .body(&Arc::new(body.into_bytes()), 0..len)
    };
    let answer = match request.path.as_str() {
        "/" => list(&["", "open/", "shut/", "zoo/"]),
        "/open/" | "/zoo/" => list(&["", "f"]),
        _ => Answer::status(403),
    };
    // What the request says behind its head is not read.
    answer.header("Connection", "close").then(Then::Close)
}

#[test]
fn a_directory_that_cannot_be_listed_does_not_keep_the_others_from_it() {
    let server = Rogue::start(with_one_shut);
    let said = ask(&["ls", "-R", &server.url("")]).exits(10).says(&["/shut/", "403"]);
    let mut names: Vec<String> = said.text().lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["open/", "open/f", "shut/", "zoo/", "zoo/f"], "{}", said.describe());
}

#[test]
fn a_name_is_an_address_to_listen_at() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::write(export.join("f"), b"x").unwrap();
    let mut command = Server::command(&export);
    command.args(["--listen", "localhost:0", "--access-log", "off"]);
    let server = Server::spawn(command);
    let of = |begin: &str| server.url_where("f", begin);
    assert_eq!(ask(&["cat", &of("http://127.0.0.1:")]).ok().text(), "x");
    if has_ipv6() {
        assert_eq!(ask(&["cat", &of("http://[::1]:")]).ok().text(), "x");
    }
    ask(&["serve", text(&export), "--listen", "localhost"]).exits(2).says(&["localhost:1094"]);
    ask(&["serve", text(&export), "--listen", "gridlane.invalid:0"]).exits(6).says(&["gridlane.invalid"]);
}

// --- Settings -----------------------------------------------------------------------------------------

#[test]
fn a_mistake_in_the_environment_or_in_a_file_is_found_by_what_is_said() {
    let scratch = Scratch::new();
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = gridlane();
        command.args(arguments).envs(variables.iter().copied());
        run(command)
    };
    let cp = ["cp", "/nowhere/a", "/nowhere/b"];
    with(&[("GRIDLANE_STREAMS", "many")], &cp).exits(2).says(&["--streams", "GRIDLANE_STREAMS=many"]);
    with(&[("GRIDLANE_LISTEN", "here")], &["serve", "/"]).exits(2).says(&["GRIDLANE_LISTEN=here"]);
    let both = [("GRIDLANE_QUIET", "1"), ("GRIDLANE_VERBOSE", "1"), ("GRIDLANE_STREAMS", "2")];
    let said = with(&both, &cp).exits(2).says(&["GRIDLANE_QUIET=1", "GRIDLANE_VERBOSE=1"]);
    assert!(!said.stderr.contains("GRIDLANE_STREAMS"), "{}", said.describe());
    // What the command line says wrong is not the environment's fault.
    let said = with(&[("GRIDLANE_TIMEOUT", "5")], &["cp", "--streams", "many", "a", "b"]).exits(2);
    assert!(!said.stderr.contains("GRIDLANE_"), "{}", said.describe());

    let in_file = |text_of_file: &str, arguments: &[&str]| {
        let file = scratch.file("g.toml", text_of_file.as_bytes());
        let mut command = gridlane();
        command.args(arguments).arg("--config").arg(&file);
        (run(command), format!("{}, line ", file.display()))
    };
    for (content, arguments, line, word) in [
        ("[cp]\n\nstreams = \"many\"\n", &cp[..], 3, "many"),
        ("verbose = true\n[cp\n", &cp[..], 2, "table"),
        ("[serve]\nlimit-rate = 'fast'\n", &["serve", "/"][..], 2, "fast"),
        (
            "[[export]]\npath = '/a'\ndirectory = '/'\n[[export]]\npath = '/b'\ndirectory = '/'\nquota = 'much'\n",
            &["serve"],
            4,
            "much",
        ),
        ("[[export]]\npath = '/a'\ndirectory = '/'\ncolour = 1\n", &["serve"], 4, "colour"),
        ("[[export]]\ndirectory = '/'\n[root]\nauth = 'magic'\n", &["serve"], 3, "magic"),
    ] {
        let (said, place) = in_file(content, arguments);
        said.exits(2).says(&[&format!("{place}{line}"), word]);
    }
}

// --- Installing ---------------------------------------------------------------------------------------

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn what_is_installed_runs_and_is_gone_after_uninstall() {
    let scratch = Scratch::new();
    let script = |arguments: &[&str]| {
        let mut command = isolated(Command::new("sh"));
        command.arg(repository().join("scripts/install.sh")).args(arguments);
        command.env("DESTDIR", scratch.path()).env("PREFIX", "/opt/g");
        run(command)
    };
    script(&["install", env!("CARGO_BIN_EXE_gridlane")]).ok();
    let at = |name: &str| scratch.join("opt/g").join(name);
    let mut installed = isolated(Command::new(at("bin/gridlane")));
    installed.arg("--version");
    assert!(run(installed).ok().text().starts_with("gridlane "));
    let size = |file: &Path| fs::metadata(file).unwrap().len();
    assert!(size(&at("bin/gridlane")) < size(Path::new(env!("CARGO_BIN_EXE_gridlane"))), "not stripped");
    for file in [
        "share/man/man1/gridlane.1",
        "share/man/man1/gridlane-cp.1",
        "share/bash-completion/completions/gridlane",
        "share/zsh/site-functions/_gridlane",
        "share/fish/vendor_completions.d/gridlane.fish",
    ] {
        assert!(size(&at(file)) > 100, "{file}");
    }
    // Over one that is there, as an update does, and where nothing may be run from a directory for temporary files.
    needs_root();
    let mounted = "mount -t tmpfs -o noexec none \"$TMPDIR\" && exec sh \"$@\"";
    let mut update = isolated(Command::new("unshare"));
    update.args(["--mount", "--propagation", "private", "sh", "-c", mounted, "sh"]);
    update.arg(repository().join("scripts/install.sh")).args(["install", env!("CARGO_BIN_EXE_gridlane")]);
    update.env("TMPDIR", scratch.dir("noexec"));
    update.env("DESTDIR", scratch.path()).env("PREFIX", "/opt/g");
    run(update).ok();
    script(&["uninstall"]).ok();
    let mut left = isolated(Command::new("find"));
    left.arg(scratch.path()).args(["!", "-type", "d"]);
    assert_eq!(run(left).ok().text(), "");
    script(&["install", "/nowhere/gridlane"]).exits(1).says(&["make build"]);
}

// --- Examples -----------------------------------------------------------------------------------------

/// The commands of a page's indented blocks that begin with `gridlane` or with a variable for it.
fn examples(page: &str) -> Vec<String> {
    let page = fs::read_to_string(repository().join(page)).unwrap().replace("\\\n        ", "");
    let is_ours = |line: &&str| line.starts_with("gridlane ") || line.starts_with("BEARER_TOKEN_FILE=");
    page.lines().filter_map(|line| line.strip_prefix("    ")).filter(is_ours).map(str::to_owned).collect()
}

/// The exit code of a program of Rust that has panicked.
const PANICKED: i32 = 101;

/// Runs a line in `dir`, as if it were pasted into a shell.
fn paste(line: &str, dir: &Path, variables: &[(&str, &Path)]) -> Outcome {
    let mut command = isolated(Command::new("bash"));
    let bin = Path::new(env!("CARGO_BIN_EXE_gridlane")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command.arg("-c").arg(line).current_dir(dir).env("PATH", path).env("XDG_DATA_HOME", dir.join("data"));
    command.envs(variables.iter().copied());
    run(command)
}

#[test]
fn the_small_commands_of_the_guide_do_what_it_says() {
    let scratch = Scratch::new();
    let (data, store) = (scratch.dir("data-of-one"), scratch.dir("store"));
    fs::create_dir(data.join("data")).unwrap();
    fs::create_dir(store.join("incoming")).unwrap();
    for name in ["run7.root", "list.txt", "data/x"] {
        fs::write(data.join(name), b"bytes").unwrap();
    }
    fs::write(scratch.join("run7.root"), b"bytes").unwrap();
    let (one, incoming) = (Server::start(&data), Server::with(&store, &["--allow-write"]));
    // Both are known by their authorities; a file has them all.
    let ca = [one.ca(), incoming.ca()].map(|file| fs::read_to_string(file).unwrap()).concat();
    let ca = scratch.file("both.pem", ca.as_bytes());
    let prepared = |line: &str| {
        line.replace("https://one.example/", &one.url_over("https", ""))
            .replace("root://two.example/", one.url_over("root", "").trim_end_matches('/'))
            .replace("https://store.example/", &incoming.url_over("https", ""))
            .replace("root://store.example/", incoming.url_over("root", "").trim_end_matches('/'))
            .replace("adler32:0b5d3a7c", "adler32:066c0228")
            .replace("/scratch/", "./")
    };
    // What shows the form of a command, and what needs another program, another machine's metalink or servers that trust each
    // other: for these `third_party`.
    let left_out =
        ["cp SRC DST", "mirrors.example", "dataset.metalink", "--mirror", "--tpc only", "cp -r root://"];
    let mut count = 0;
    for line in examples("docs/guides/copy.md") {
        if left_out.iter().any(|word| line.contains(word)) {
            continue;
        }
        // Each with nothing there that an example before it has made.
        if line.contains(" cp ") && line.contains("run7.root .") {
            fs::remove_file(scratch.join("run7.root")).unwrap_or_default();
        }
        if line.contains("run7.root https://store") || line.contains("run7.root root://store") {
            fs::remove_file(store.join("incoming/run7.root")).unwrap_or_default();
            fs::remove_file(store.join("run7.root")).unwrap_or_default();
        }
        if line.contains("mv ") {
            fs::write(store.join("incoming/run7.root"), b"bytes").unwrap();
        }
        let outcome = paste(&prepared(&line), scratch.path(), &[("GRIDLANE_CA", &ca)]);
        // The doctor may find that something is not as it should be, and says so.
        let may_end_so = |code| code == 0 || line.contains("doctor") && code != PANICKED;
        assert!(outcome.code.is_some_and(may_end_so), "{line}\n{}", outcome.describe());
        count += 1;
    }
    assert!(count >= 14, "only {count} examples were run");
    assert!(!store.join("incoming/2026/11/run7.root").exists(), "the last of them removes it");
}

#[test]
fn the_commands_of_the_guide_to_authorities_run_one_after_the_other() {
    let scratch = Scratch::new();
    let key = "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.pem";
    paste(key, scratch.path(), &[]).ok();
    let mut count = 0;
    for line in examples("docs/guides/pki.md") {
        // Servers and copies are other guides' matter, and those of a VO are asked in `voms`; the user that is revoked is made for that.
        if line.contains("gridlane serve") || line.contains("gridlane cp") || line.contains("--voms atlas") {
            continue;
        }
        if line.contains("pki revoke") {
            paste("gridlane pki user fleet Eve", scratch.path(), &[]).ok();
        }
        let proxy = scratch.join("proxy");
        paste(&line, scratch.path(), &[("X509_USER_PROXY", &proxy)]).ok();
        count += 1;
    }
    assert!(count >= 8, "only {count} examples were run");
}

#[test]
fn a_token_that_is_not_given_leaves_no_file() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.dir("export"));
    let out = scratch.join("token");
    let line = format!(
        "gridlane auth token {} --ca {} --may read,list --lifetime 2h --out token",
        server.url_over("https", "data/run7"),
        server.ca().display()
    );
    assert_ne!(paste(&line, scratch.path(), &[]).code, Some(0));
    assert!(!out.exists());
    // One that was there stays as it was.
    fs::write(&out, b"old").unwrap();
    assert_ne!(paste(&line, scratch.path(), &[]).code, Some(0));
    assert_eq!(fs::read(&out).unwrap(), b"old");
}
