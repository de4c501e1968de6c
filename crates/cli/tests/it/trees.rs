//! Trees: up, down and across, with everything that a file system can have in one, beside Apache's WebDAV
//! and our own listings.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::apache::Apache;
use crate::support::client::{Running, cp, cp_r, gridlane, run};
use crate::support::serve::Server;
use crate::support::tree::{assert_same_trees, read_tree};
use crate::support::{Scratch, content, end_answer, until};

/// Names that some program somewhere gets wrong.
fn awkward_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "sp ace", "100%", "%41", "a?b", "a#b", "-x", "a+b", "a&b", "a;b=c", "a:b", "a\\b", "~", "...", "\"q'",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    // The same letter composed and decomposed, and in both cases: four files.
    for name in ["\u{e9}", "e\u{301}", "Case", "case"] {
        names.push(name.as_bytes().to_vec());
    }
    names.push(vec![b'n'; 255]);
    names
}

fn make_tree(dir: &Path) {
    for (number, name) in awkward_names().iter().enumerate() {
        fs::create_dir_all(dir.join("d")).unwrap();
        fs::write(dir.join("d").join(OsStr::from_bytes(name)), format!("{number}")).unwrap();
    }
    fs::create_dir_all(dir.join("deep/er/and deeper")).unwrap();
    fs::write(dir.join("deep/er/and deeper/f"), &*content(1, 300_000)).unwrap();
    fs::write(dir.join("zero"), b"").unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
}

#[test]
fn a_tree_comes_back_from_a_webdav_server_as_it_was() {
    let scratch = Scratch::new();
    let (source, export) = (scratch.dir("source"), scratch.dir("export"));
    make_tree(&source);
    let apache = Apache::start(&export);
    let up = run(cp_r(&source, apache.url("up"))).ok();
    assert_eq!(up.number("files"), read_tree(&source).values().flatten().count() as u64, "{}", up.describe());
    assert_same_trees(&source, &export.join("up"));
    run(cp_r(apache.url("up"), scratch.join("down"))).ok();
    assert_same_trees(&source, &scratch.join("down"));
    // From server to server; into a directory that is there; what is in it; with a mirror.
    run(cp_r(apache.url("up/"), apache.url("across"))).ok();
    assert_same_trees(&source, &export.join("across"));
    run(cp_r(apache.url("up"), scratch.join("down"))).ok();
    assert_same_trees(&source, &scratch.join("down/up"));
    let mut mirrored = cp_r(apache.url("up/"), scratch.join("mirrored"));
    mirrored.arg("--mirror").arg(apache.url("across"));
    run(mirrored).ok();
    assert_same_trees(&source, &scratch.join("mirrored"));
    run(cp_r(apache.url("up/"), apache.url("up/sub"))).exits(2).says(&["into itself"]);
}

#[test]
fn listings_show_a_directory_of_any_server() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    make_tree(&export);
    let apache = Apache::start(&export);
    let server = Server::start(&export);
    for url in [apache.url(""), server.url("")] {
        let mut ls = gridlane();
        ls.args(["ls", "-l", &url]);
        let text = run(ls).ok().text();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(names, ["d/", "deep/", "empty/", "zero"], "{text}");
    }
    run(cp_r(server.url(""), scratch.join("down"))).ok();
    assert_same_trees(&export, &scratch.join("down"));
}

#[test]
fn what_is_no_file_is_left_out_and_told_of() {
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    fs::create_dir(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), b"x").unwrap();
    fs::write(source.join(OsStr::from_bytes(b"\xff\xfe")), b"no text").unwrap();
    fs::write(source.join("two\nlines"), b"y").unwrap();
    fs::hard_link(source.join("sub/file"), source.join("hard")).unwrap();
    symlink("sub", source.join("to-sub")).unwrap();
    symlink("..", source.join("sub/up")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    let made = Command::new("mkfifo").arg(source.join("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    fs::write(source.join(".f.gridlane-part"), b"half").unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();

    let outcome = run(cp_r(&source, scratch.join("a"))).ok();
    assert_eq!(outcome.number("left_out"), 6, "{}", outcome.describe());
    let copied = read_tree(&scratch.join("a"));
    assert_eq!(copied.len(), 6, "{copied:?}");
    assert_eq!(copied[Path::new("two\nlines")].as_deref(), Some(&b"y"[..]));
    assert_eq!(copied[Path::new(OsStr::from_bytes(b"\xff\xfe"))].as_deref(), Some(&b"no text"[..]));
    assert_eq!(copied[Path::new("sparse")].as_ref().unwrap(), &vec![0; 1 << 20]);
    assert_eq!(fs::metadata(scratch.join("a/hard")).unwrap().nlink(), 1);

    // What links lead to, except in circles and to nowhere.
    let mut follow = cp_r(&source, scratch.join("b"));
    follow.args(["--links", "follow"]);
    let outcome = run(follow).exits(10).says(&["leads back", "dangling"]);
    assert_eq!(outcome.number("failed"), 3, "{}", outcome.describe());
    assert_eq!(fs::read(scratch.join("b/to-sub/file")).unwrap(), b"x");
}

#[test]
fn a_server_that_lists_more_than_it_should_leads_nowhere_else() {
    let scratch = Scratch::new();
    let response = |href: &str, kind: &str| {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>\
             </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    };
    let collection = "<D:collection/>";
    let mut body = String::from("<D:multistatus xmlns:D=\"DAV:\">");
    for href in ["/t/", "/t/..", "/t/%2e%2e/x", "/t/a%2fb", "http://elsewhere/etc/passwd", "/etc/passwd", "/"]
    {
        body += &response(href, collection);
    }
    body += "</D:multistatus>";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"</D:propfind>") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let _ = write!(
                stream,
                "HTTP/1.1 207 Multi-Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            end_answer(stream);
        }
    });
    let outcome = run(cp_r(format!("http://127.0.0.1:{port}/t/"), scratch.join("out"))).ok();
    assert_eq!(outcome.number("found_files"), 0, "{}", outcome.describe());
    assert_eq!(scratch.names(), ["out"]);
    assert!(read_tree(&scratch.join("out")).is_empty());
}

#[test]
fn a_listing_that_breaks_off_is_asked_for_again_and_nothing_is_told_twice() {
    let scratch = Scratch::new();
    let response = |href: &str, kind: &str, size: usize| {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>\
             <D:getcontentlength>{size}</D:getcontentlength></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
             </D:propstat></D:response>"
        )
    };
    let names: Vec<String> = (0..40).map(|number| format!("/t/f{number}")).collect();
    let mut body = String::from("<D:multistatus xmlns:D=\"DAV:\">") + &response("/t/", "<D:collection/>", 0);
    names.iter().for_each(|name| body += &response(name, "", 4));
    body += "</D:multistatus>";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (body, listings) = (Arc::new(body), Arc::new(AtomicUsize::new(0)));
    let answer = move |mut stream: std::net::TcpStream| {
        use std::io::{Read as _, Write as _};
        let (mut head, mut byte) = (Vec::new(), [0; 1]);
        let is_asked = |head: &[u8]| match head.starts_with(b"PROPFIND") {
            true => head.ends_with(b"</D:propfind>"),
            false => head.ends_with(b"\r\n\r\n"),
        };
        while !is_asked(&head) && matches!(stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let is_listing = head.starts_with(b"PROPFIND");
        let (status, text) = if is_listing { ("207 Multi-Status", &**body) } else { ("200 OK", "four") };
        let mut answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
        if !head.starts_with(b"HEAD") {
            answer += text;
        }
        if is_listing {
            // In the head, in the middle, and not at all.
            let listing = listings.fetch_add(1, Relaxed);
            answer.truncate([20, answer.len() / 2].get(listing).copied().unwrap_or(answer.len()));
        }
        let _ = stream.write_all(answer.as_bytes());
        end_answer(stream);
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), answer) = (stream, answer.clone()) else { return };
            // A connection may wait for what to ask.
            std::thread::spawn(move || answer(stream));
        }
    });
    let outcome = run(cp_r(format!("http://127.0.0.1:{port}/t/"), scratch.join("out"))).ok();
    assert_eq!(outcome.number("found_files"), 40, "{}", outcome.describe());
    assert_eq!(read_tree(&scratch.join("out")).len(), 40);
}

#[test]
fn one_that_fails_stops_no_other_and_can_be_tried_again() {
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    for name in ["a", "b", "c d"] {
        fs::create_dir(source.join(name)).unwrap();
        fs::write(source.join(name).join("f"), name).unwrap();
    }
    let target = scratch.dir("target");
    fs::create_dir(target.join("b")).unwrap();
    fs::write(target.join("b/f"), b"in the way").unwrap();
    fs::write(target.join("c d"), b"no directory").unwrap();
    let from = format!("{}/", source.display());
    let failed = scratch.join("failed");
    let mut command = cp_r(&from, &target);
    command.arg("--failed-to").arg(&failed);
    let outcome = run(command).exits(10);
    assert_eq!((outcome.number("files"), outcome.number("failed")), (1, 2), "{}", outcome.describe());
    let list = fs::read_to_string(&failed).unwrap();
    let mut names: Vec<&str> = list.lines().collect();
    names.sort();
    assert_eq!(names, ["b/f", "c d/"]);
    assert_eq!(fs::read(target.join("b/f")).unwrap(), b"in the way");

    // All of them failing has the code that they have in common.
    let mut only = cp_r(&from, &target);
    only.args(["--include", "b/"]);
    assert_eq!(run(only).exits(5).number("failed"), 1);
    // The first failure ends it when that is wanted.
    let (flat, there) = (scratch.dir("flat"), scratch.dir("there"));
    for name in ["1", "2", "3", "4"] {
        fs::write(flat.join(name), b"new").unwrap();
        fs::write(there.join(name), b"old").unwrap();
    }
    for (how, failed) in [("true", 4), ("false", 1)] {
        let mut command = cp_r(format!("{}/", flat.display()), &there);
        command.args(["--parallel", "1"]).arg(format!("--continue-on-error={how}"));
        assert_eq!(run(command).exits(5).number("failed"), failed);
    }

    fs::remove_file(target.join("c d")).unwrap();
    let mut again = cp(&from, &target);
    again.arg("--force").arg("--files-from").arg(&failed);
    assert_eq!(run(again).ok().number("files"), 2);
    assert_same_trees(&source, &target);
    // Nothing failed: an empty list.
    let mut update = cp_r(&from, &target);
    update.arg("--update").arg("--failed-to").arg(&failed);
    assert_eq!(run(update).ok().number("there_already"), 3);
    assert_eq!(fs::read(&failed).unwrap(), b"");
}

#[test]
fn a_directory_that_cannot_be_read_is_told_of() {
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    fs::create_dir(source.join("closed")).unwrap();
    fs::write(source.join("f"), b"x").unwrap();
    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let outcome = run(cp_r(&source, scratch.join("out")));
    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    // Root reads everything.
    if outcome.code != Some(0) {
        let outcome = outcome.exits(10).says(&["closed"]);
        assert_eq!(outcome.event("file.failed")["is_directory"], true);
    }
    assert_eq!(fs::read(scratch.join("out/f")).unwrap(), b"x");
}

#[test]
fn update_replaces_what_differs_and_times_are_kept() {
    let scratch = Scratch::new();
    let (source, export) = (scratch.dir("source"), scratch.dir("export"));
    fs::write(source.join("a"), b"one").unwrap();
    fs::write(source.join("b"), b"two").unwrap();
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["a", "b"] {
        fs::File::open(source.join(name)).unwrap().set_modified(old).unwrap();
    }
    let apache = Apache::start(&export);
    let from = format!("{}/", source.display());
    // Apache keeps no times: the bytes are there, and it is said.
    let mut up = cp_r(&from, apache.url("d/"));
    up.args(["--preserve", "times"]);
    assert_eq!(run(up).ok().number("times_lost"), 2);
    for place in ["a", "b"] {
        fs::File::open(export.join("d").join(place)).unwrap().set_modified(old).unwrap();
    }
    let mut down = cp_r(apache.url("d/"), scratch.join("down"));
    down.args(["--preserve", "times"]);
    assert_eq!(run(down).ok().number("times_lost"), 0);
    assert_eq!(fs::metadata(scratch.join("down/a")).unwrap().modified().unwrap(), old);
    // The other size, and the same size but newer.
    fs::write(export.join("d/a"), b"longer").unwrap();
    fs::write(export.join("d/b"), b"TWO").unwrap();
    let update = || {
        let mut command = cp_r(apache.url("d/"), scratch.join("down"));
        command.arg("--update");
        command
    };
    let mut dry = update();
    dry.arg("--dry-run");
    let outcome = run(dry).ok();
    assert_eq!(outcome.event("plan")["action"], "replace", "{}", outcome.describe());
    assert_eq!(fs::read(scratch.join("down/a")).unwrap(), b"one");
    assert_eq!(run(update()).ok().number("files"), 2);
    assert_same_trees(&export.join("d"), &scratch.join("down"));
    let outcome = run(update()).ok();
    assert_eq!((outcome.number("files"), outcome.number("there_already")), (0, 2), "{}", outcome.describe());
    // A single file as well.
    let mut one = cp(apache.url("d/a"), scratch.join("down/a"));
    one.arg("--update");
    assert_eq!(run(one).ok().event("file.skipped")["there_already"], true);
    let mut one = cp(apache.url("d/a"), scratch.join("one"));
    one.args(["--preserve", "times"]);
    run(one).ok();
    let there = fs::metadata(export.join("d/a")).unwrap().mtime();
    assert_eq!(fs::metadata(scratch.join("one")).unwrap().mtime(), there);
}

#[test]
fn a_server_that_accepts_times_is_told_them() {
    use std::io::{Read as _, Write as _};
    let scratch = Scratch::new();
    let file = scratch.file("f", b"x");
    fs::File::open(&file).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0; 1]);
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let answer = match head.starts_with("put ") {
                false => "404 Not Found\r\n",
                true if head.contains("\r\nx-oc-mtime: 1000000000\r\n") => {
                    let _ = stream.read(&mut byte);
                    "201 Created\r\nX-OC-Mtime: accepted\r\n"
                }
                true => "400 Bad Request\r\n",
            };
            let _ = write!(stream, "HTTP/1.1 {answer}Connection: close\r\nContent-Length: 0\r\n\r\n");
            end_answer(stream);
        }
    });
    let mut command = cp(&file, &url);
    command.args(["--preserve", "times"]);
    let outcome = run(command).ok();
    assert!(outcome.events().iter().all(|event| event["type"] != "note"), "{}", outcome.describe());
}

#[test]
fn several_files_lists_and_patterns() {
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    for name in ["a.root", "b.txt", "run1/c.root", "run1/d.txt", "run2/e.root", "run2/cache/f.root"] {
        scratch.file(&format!("source/{name}"), name.as_bytes());
    }
    let out = |name: &str| -> Vec<String> {
        let found = read_tree(&scratch.join(name));
        let files = found.iter().filter(|(_, bytes)| bytes.is_some());
        files.map(|(path, _)| path.to_str().unwrap().to_owned()).collect()
    };
    let mut several = gridlane();
    several.arg("cp").args([source.join("a.root"), source.join("b.txt")]).arg(scratch.join("several/"));
    run(several).ok();
    assert_eq!(out("several"), ["a.root", "b.txt"]);
    let mut filtered = cp_r(format!("{}/", source.display()), scratch.join("filtered"));
    filtered.args(["--exclude", "cache/", "--include", "*.root", "--exclude", "*"]);
    run(filtered).ok();
    assert_eq!(out("filtered"), ["a.root", "run1/c.root", "run2/e.root"]);
    let list = scratch.file("list", b"b.txt\nrun2/\nmissing\n");
    let mut listed = cp(format!("{}/", source.display()), scratch.join("listed"));
    listed.arg("--files-from").arg(list);
    run(listed).exits(10).says(&["missing"]);
    assert_eq!(out("listed"), ["b.txt", "run2/cache/f.root", "run2/e.root"]);
    let wrong = scratch.file("wrong", b"../list\n");
    let mut listed = cp(format!("{}/", source.display()), scratch.join("wrong-out"));
    listed.arg("--files-from").arg(wrong);
    run(listed).exits(2);
    // What contradicts itself, or is about trees.
    for wrong in [&["-r", "--force", "--update"][..], &["--include", "x"], &["--failed-to", "x"], &["-0"]] {
        let mut command = cp(source.join("a.root"), scratch.join("x"));
        command.args(wrong);
        run(command).exits(2);
    }
    run(cp(&source, scratch.join("x"))).exits(2).says(&["-r"]);
}

#[test]
fn an_interrupted_tree_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    for number in 0..4 {
        fs::write(source.join(format!("f{number}")), &*content(number, 3_000_000)).unwrap();
    }
    let server = Server::start(&source);
    let mut command = cp_r(server.url(""), scratch.join("out"));
    command.args(["--limit-rate", "2M", "--parallel", "2"]);
    let running = Running::start(command);
    let has_some = || {
        let names = fs::read_dir(scratch.join("out")).map(|dir| dir.flatten().map(|entry| entry.path()));
        names.is_ok_and(|mut names| {
            names.any(|path| fs::metadata(path).is_ok_and(|meta| meta.blocks() * 512 >= 500_000))
        })
    };
    until("a file has some bytes", has_some);
    running.signal("INT");
    let outcome = running.wait();
    assert_eq!(outcome.code, Some(130), "{}", outcome.describe());
    let mut again = cp_r(server.url(""), scratch.join("out"));
    again.arg("--update");
    let outcome = run(again).ok();
    assert!(outcome.number("resumed_bytes") > 0, "{}", outcome.describe());
    assert_same_trees(&source, &scratch.join("out"));
}

/// Peak memory of a run in bytes, as the kernel counts it.
fn peak_bytes(mut command: Command) -> u64 {
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    until("the run ends", || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1024);
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn many_small_files_go_up_and_down_and_memory_does_not_grow_with_the_directory() {
    const FILES: usize = 2000;
    let scratch = Scratch::new();
    let (source, export) = (scratch.dir("source"), scratch.dir("export"));
    for number in 0..FILES {
        let dir = source.join(format!("d{}", number % 10));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{number}")), format!("content of {number}").repeat(20)).unwrap();
    }
    let apache = Apache::start(&export);
    let outcome = run(cp_r(&source, apache.url("up"))).ok();
    assert_eq!(outcome.number("files"), FILES as u64);
    assert_same_trees(&source, &export.join("up"));
    let outcome = run(cp_r(apache.url("up"), scratch.join("down"))).ok();
    assert_eq!(outcome.number("files"), FILES as u64);
    assert_same_trees(&source, &scratch.join("down"));

    // Nothing but names: what is not wanted is read and forgotten, what is waits outside of memory.
    let dry = |count: usize| {
        let dir = scratch.dir(&format!("names{count}"));
        for number in 0..count {
            fs::File::create(dir.join(format!("a-name-of-some-length-{number:08}"))).unwrap();
        }
        let mut command = cp_r(&dir, scratch.join("nowhere"));
        command.arg("--dry-run");
        // One heap for all threads: with one for each, the peak depends on how many of them were at work at once.
        command.env("MALLOC_ARENA_MAX", "1");
        peak_bytes(command)
    };
    // 110 000 names more would take 20 MiB at least; what batches take varies by 9 MiB on a busy machine.
    let (few, many) = (dry(10_000), dry(120_000));
    assert!(many < few + 16 * 1024 * 1024, "{few} bytes for 10 000 names, {many} for 120 000");
}
