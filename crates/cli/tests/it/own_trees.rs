//! Trees up to and down from our own server, and what ends a tree early.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::client::{Running, cp_r, gridlane, run};
use crate::support::nginx::free_port;
use crate::support::serve::Server;
use crate::support::tree::{assert_same_trees, read_tree};
use crate::support::{Scratch, content, end_answer, is_long_run};

/// Names that some program somewhere gets wrong, as files and as directories.
fn make_awkward(dir: &Path) {
    let names: [&[u8]; 32] = [
        b"sp ace",
        b" lead",
        b"trail ",
        b"100%",
        b"%41",
        b"%2f",
        b"a?b",
        b"a#b",
        b"-x",
        b"a+b",
        b"a&b",
        b"a;b=c",
        b"a:b",
        b"notes:",
        b"a|",
        b"a\\b",
        b"~",
        b"...",
        b"\"q'",
        b"<&>",
        b"nl\nx",
        b"cr\r",
        b"tab\t",
        b"\x01",
        b"\x7f",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b".hidden",
        b"Case",
        b"case",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
    ];
    for (number, name) in names.iter().enumerate() {
        let name = OsStr::from_bytes(name);
        fs::create_dir_all(dir.join("directories").join(name)).unwrap();
        fs::write(dir.join("directories").join(name).join("f"), format!("in {number}")).unwrap();
        fs::create_dir_all(dir.join("files")).unwrap();
        fs::write(dir.join("files").join(name), format!("{number}")).unwrap();
    }
    fs::write(dir.join("files").join("n".repeat(255)), b"long").unwrap();
    fs::create_dir_all(dir.join("empty/empty too")).unwrap();
    fs::write(dir.join("zero"), b"").unwrap();
    fs::write(dir.join("big"), &*content(3, 3_000_000)).unwrap();
}

#[test]
fn a_tree_comes_back_from_our_own_server_as_it_was() {
    let scratch = Scratch::new();
    let (source, export) = (scratch.dir("source"), scratch.dir("export"));
    make_awkward(&source);
    let files = read_tree(&source).values().flatten().count() as u64;
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(source.join("zero")).unwrap().set_modified(time).unwrap();
    let server = Server::with(&export, &["--allow-write"]);
    let times = |mut command: Command| {
        command.args(["--preserve", "times"]);
        let outcome = run(command).ok();
        assert_eq!((outcome.number("files"), outcome.number("times_lost")), (files, 0));
        assert_eq!(outcome.number("verified_files"), files, "{}", outcome.describe());
    };
    times(cp_r(&source, server.url("up")));
    assert_same_trees(&source, &export.join("up"));
    assert_eq!(fs::metadata(export.join("up/zero")).unwrap().modified().unwrap(), time);
    times(cp_r(server.url("up"), scratch.join("down")));
    assert_same_trees(&source, &scratch.join("down"));
    assert_eq!(fs::metadata(scratch.join("down/zero")).unwrap().modified().unwrap(), time);

    // A second time there is nothing to do, in both directions.
    let from = format!("{}/", source.display());
    for (from, to) in
        [(from, server.url("up")), (server.url("up/"), scratch.join("down").display().to_string())]
    {
        let mut again = cp_r(from, to);
        again.arg("--update");
        let outcome = run(again).ok();
        assert_eq!((outcome.number("there_already"), outcome.number("files")), (files, 0));
    }
    // From two servers at once, and from one to the other.
    let other = scratch.dir("other");
    let second = Server::with(&other, &["--allow-write"]);
    run(cp_r(server.url("up"), second.url("across"))).ok();
    assert_same_trees(&source, &other.join("across"));
    let mut mirrored = cp_r(server.url("up/"), scratch.join("mirrored"));
    mirrored.arg("--mirror").arg(second.url("across"));
    assert_eq!(run(mirrored).ok().number("verified_files"), files);
    assert_same_trees(&source, &scratch.join("mirrored"));
    let mut remove = gridlane();
    remove.args(["rm", "-r"]).arg(server.url("up"));
    run(remove).ok();
    assert!(!export.join("up").exists());
}

#[test]
fn thousands_of_files_go_up_and_down() {
    // `make test-long` has more patience.
    let files = if is_long_run() { 10_000 } else { 2_000 };
    const BYTES: usize = 100_000;
    // Names of the same bytes are links: a third of the writing is saved.
    const CONTENTS: usize = 101;
    let scratch = Scratch::new();
    let (source, export) = (scratch.dir("source"), scratch.dir("export"));
    let all = content(11, BYTES + CONTENTS);
    let bytes = |number: usize| &all[number % CONTENTS..][..BYTES];
    for number in 0..CONTENTS {
        scratch.file(&format!("contents/{number}"), bytes(number));
    }
    for number in 0..files {
        let dir = source.join(format!("d{}", number % 50));
        if number < 50 {
            fs::create_dir(&dir).unwrap();
        }
        let content = scratch.join(format!("contents/{}", number % CONTENTS));
        fs::hard_link(content, dir.join(format!("f{number}"))).unwrap();
    }
    // What a disk takes to sync thousands of files says nothing about this program.
    let server = Server::with(&export, &["--allow-write", "--durability", "none", "--access-log", "off"]);
    let down = scratch.join("down");
    for (from, to) in
        [(source.as_os_str(), server.url("up")), (server.url("up").as_ref(), down.display().to_string())]
    {
        let mut command = cp_r(from, to);
        command.args(["--progress", "never"]);
        let outcome = Running::start(command).wait_within(Duration::from_secs(300)).ok();
        assert_eq!(outcome.number("files"), files as u64);
        assert_eq!(outcome.number("verified_files"), files as u64);
        assert_eq!(outcome.number("bytes"), (files * BYTES) as u64);
    }
    for number in 0..files {
        let found = fs::read(down.join(format!("d{}/f{number}", number % 50))).unwrap();
        assert!(found == bytes(number), "f{number} differs");
    }
}

#[test]
fn a_server_that_is_gone_is_given_up() {
    const FILES: usize = 400;
    // None that the kernel hands out: another test's server would get it.
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    // It lists its files, and the receiver is gone.
    let lists = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"propfind>") && matches!(stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let mut body = String::from("<D:multistatus xmlns:D=\"DAV:\">");
        for number in 0..FILES {
            body += &format!(
                "<D:response><D:href>/t/f{number}</D:href><D:propstat><D:prop><D:resourcetype/></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            );
        }
        body += "</D:multistatus>";
        let head = "HTTP/1.1 207 Multi-Status\r\nConnection: close\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        end_answer(stream);
    });
    let scratch = Scratch::new();
    let mut command = cp_r(format!("http://127.0.0.1:{port}/t/"), scratch.join("out"));
    // All that count are tried at once, and each with more patience than a busy machine needs to refuse a connection.
    const PARALLEL: u64 = 50;
    command.args(["--timeout", "6", "--parallel", &PARALLEL.to_string()]);
    let outcome = run(command).exits(6).says(&["given up after 50 failures", "not tried"]);
    lists.join().unwrap();
    let summary = outcome.summary();
    assert_eq!(summary["error"]["retryable"], true, "{summary}");
    // Those that were running when it was given up end as well.
    assert!((50..50 + PARALLEL).contains(&outcome.number("failed")), "{summary}");
    assert_eq!(outcome.number("found_files"), FILES as u64);
}

#[test]
fn the_command_that_continues_has_no_passwords() {
    let scratch = Scratch::new();
    let (source, target) = (scratch.dir("source"), scratch.dir("target"));
    for dir in [&source, &target] {
        fs::write(dir.join("f"), b"x").unwrap();
    }
    let mut command = gridlane();
    command.args(["cp", "-r", "--mirror=http://ada:secret@127.0.0.1:9/t"]);
    command.arg(format!("{}/", source.display())).arg(&target);
    let outcome = run(command).exits(5).says(&["this continues", "--mirror=http://"]);
    assert!(!outcome.stderr.contains("secret"), "{}", outcome.stderr);
}

#[test]
fn a_server_that_leads_in_circles_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Two directories in each directory: without an end, there would be 2^128 of them.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"propfind>") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head);
            let path = head.split(' ').nth(1).unwrap_or("/");
            let entry = |name: &str| {
                format!(
                    "<D:response><D:href>{path}{name}/</D:href><D:propstat><D:prop><D:resourcetype>\
                     <D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
                     </D:propstat></D:response>"
                )
            };
            let (a, b) = (entry("a"), entry("b"));
            let body = format!("<D:multistatus xmlns:D=\"DAV:\">{a}{b}</D:multistatus>");
            let head = "HTTP/1.1 207 Multi-Status\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
            end_answer(stream);
        }
    });
    let scratch = Scratch::new();
    let mut command = cp_r(format!("http://127.0.0.1:{port}/t/"), scratch.join("out"));
    command.arg("--dry-run");
    run(command).exits(1).says(&["in themselves"]);
}

#[test]
fn a_link_in_the_target_leads_nowhere_else() {
    let scratch = Scratch::new();
    let (export, elsewhere, real) = (scratch.dir("export"), scratch.dir("elsewhere"), scratch.dir("real"));
    scratch.file("export/l/f", b"x");
    scratch.file("export/g", b"y");
    std::os::unix::fs::symlink(&elsewhere, real.join("l")).unwrap();
    std::os::unix::fs::symlink(&real, scratch.join("target")).unwrap();
    let server = Server::start(&export);
    for force in ["--force", "--update"] {
        let mut command = cp_r(server.url(""), scratch.join("target/"));
        command.arg(force);
        run(command).exits(10).says(&["is no directory"]);
    }
    assert!(read_tree(&elsewhere).is_empty());
    assert_eq!(fs::read(real.join("g")).unwrap(), b"y");
}
