//! One file to a server: what the server has then is compared with the bytes on its disk, and with what other
//! people's programs say of them.

use std::fs;
use std::time::Duration;

use super::{AWKWARD, ask, with};
use crate::support::client::{Running, cp, run};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, Scratch, assert_copied, content, until};

#[test]
fn files_of_all_sizes_arrive() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    // Around the borders of pages, of small uploads and of what is sent at a time.
    let sizes = [0, 1, 4095, 4096, 4097, MIB, MIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 37 * MIB + 11];
    for size in sizes {
        let bytes = content(size as u64 + 1, size);
        let source = scratch.file("source", &bytes);
        run(cp(&source, server.url(&format!("f{size}")))).ok().verified(true);
        assert_copied(&server.exported(&format!("f{size}")), &bytes);
    }
    // As the field computes it.
    let mut adler = tool("xrdadler32", "xrootd-client");
    adler.arg(scratch.join("source"));
    let expected = run(adler).exits(0).text();
    let expected = expected.split_whitespace().next().unwrap();
    let said = ask(&["checksum", &server.url(&format!("f{}", sizes[sizes.len() - 1]))]).exits(0).text();
    assert!(said.contains(expected), "{said} {expected}");
}

#[test]
fn names_are_sent_as_they_are() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let dir = scratch.dir("here");
    for name in AWKWARD {
        fs::write(dir.join(name), name).unwrap();
        run(cp(dir.join(name), server.url(""))).ok();
        assert_eq!(fs::read(server.exported(name)).unwrap(), name.as_bytes());
        run(cp(server.url(name), scratch.join("back"))).ok();
        assert_eq!(fs::read(scratch.join("back")).unwrap(), name.as_bytes());
        fs::remove_file(scratch.join("back")).unwrap();
    }
    // It would end the path, and the file would have another name.
    fs::write(dir.join("a?b"), b"x").unwrap();
    let outcome = run(cp(dir.join("a?b"), server.url("")));
    assert!(outcome.code != Some(0), "{}", outcome.describe());
    assert!(!server.exported("a").exists());
}

/// XRootD takes the checksum of a file for that of another one which came in its place within the second.
#[test]
fn what_was_replaced_within_a_second_is_read_as_it_is() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for (name, len) in [("small", 10), ("large", 3 * MIB)] {
        let url = server.url(name);
        for round in 0..8 {
            let bytes = content(round, len);
            let source = scratch.file("source", &bytes);
            run(with(cp(source, &url), "--force")).ok().verified(true);
            run(with(cp(&url, scratch.join("back")), "--force")).ok().verified(true);
            assert_copied(&scratch.join("back"), &bytes);
        }
    }
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for size in [10, 3 * MIB] {
        let bytes = content(7, size);
        let source = scratch.file("source", &bytes);
        let name = format!("up {size}");
        let url = server.url(&name);
        server.put(&name, b"precious");
        run(cp(&source, &url)).fails(5, "caller", false, &["--force", &url]);
        assert_eq!(fs::read(server.exported(&name)).unwrap(), b"precious");
        run(with(cp(&source, &url), "--force")).ok().verified(true);
        assert_copied(&server.exported(&name), &bytes);
    }
    fs::create_dir(server.exported("dir")).unwrap();
    server.give();
    for upload in [
        cp(scratch.join("source"), server.url("dir")),
        with(cp(scratch.join("source"), server.url("dir")), "--force"),
    ] {
        run(upload).fails(5, "caller", false, &["it is a directory", "a slash at its end"]);
        assert!(server.exported("dir").is_dir());
    }
}

/// gridlane's server keeps it until the new one is closed; XRootD's empties it when the upload begins.
#[test]
fn a_replacing_upload_that_is_wrong_leaves_the_old_file() {
    let (scratch, xrootd) = (Scratch::new(), Xrootd::start());
    let export = scratch.dir("export");
    let server = Server::with(&export, &["--allow-write"]);
    fs::write(export.join("f"), b"precious").unwrap();
    xrootd.put("f", b"gone in any case");
    for size in [10, 3 * MIB] {
        let source = scratch.file("source", &content(12, size));
        for url in [server.url_over("root", "f"), xrootd.url("f")] {
            let mut upload = with(cp(&source, &url), "--force");
            upload.args(["--checksum", "adler32:00000001"]);
            let outcome = run(upload);
            assert_eq!(outcome.code, Some(8), "{}", outcome.describe());
        }
        assert_eq!(fs::read(export.join("f")).unwrap(), b"precious");
        // Nothing half-written has the name, at least.
        let left = fs::read(xrootd.exported("f")).unwrap_or_default();
        assert!(left.is_empty() || left == b"gone in any case", "{} bytes", left.len());
    }
}

#[test]
fn directories_are_not_made_by_the_way() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for size in [10, 3 * MIB] {
        let source = scratch.file("source", &content(8, size));
        let hint = ["make the directory first"];
        run(cp(&source, server.url("no/such/up.dat"))).fails(5, "caller", false, &hint);
        assert!(!server.exported("no").exists());
    }
}

#[test]
fn over_tls_and_between_servers() {
    let (scratch, server, other) = (Scratch::new(), Xrootd::start(), Xrootd::start());
    let bytes = content(9, 9 * MIB + 5);
    let source = scratch.file("source", &bytes);
    let mut up = cp(&source, server.url_over("roots", "up.dat"));
    up.arg("--ca").arg(server.ca());
    run(up).ok().verified(true);
    assert_copied(&server.exported("up.dat"), &bytes);
    run(cp(server.url("up.dat"), other.url("across.dat"))).ok().verified(true);
    assert_copied(&other.exported("across.dat"), &bytes);
    let export = scratch.dir("export");
    let http = Server::with(&export, &["--allow-write"]);
    run(cp(server.url("up.dat"), http.url("from-root.dat"))).ok().verified(true);
    assert_copied(&export.join("from-root.dat"), &bytes);
    run(cp(http.url("from-root.dat"), server.url("from-http.dat"))).ok().verified(true);
    assert_copied(&server.exported("from-http.dat"), &bytes);
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let source = scratch.file("source", &content(10, 32 * MIB));
    let mut slow = cp(&source, server.url("up.dat"));
    slow.args(["--limit-rate", "4MB/s"]);
    let running = Running::start(slow);
    let size = || fs::metadata(server.exported("up.dat")).map_or(0, |meta| meta.len());
    until("the upload has begun", || size() > 0);
    assert!(size() < 32 * MIB as u64);
    running.signal("INT");
    running.wait_within(Duration::from_secs(30)).exits(130);
    // No minutes later, when the server itself would have removed it.
    assert!(!server.exported("up.dat").exists());
}

#[test]
fn a_server_that_dies_ends_the_copy() {
    let (scratch, mut server) = (Scratch::new(), Xrootd::start());
    let source = scratch.file("source", &content(13, 32 * MIB));
    let mut slow = cp(&source, server.url("up.dat"));
    slow.args(["--limit-rate", "8MB/s", "--timeout", "2"]);
    let running = Running::start(slow);
    let size = || fs::metadata(server.exported("up.dat")).map_or(0, |meta| meta.len());
    until("the upload has begun", || size() > 0);
    server.kill();
    let outcome = running.wait_within(Duration::from_secs(30)).exits(6).says(&[&server.url("up.dat")]);
    assert_eq!(outcome.error()["retryable"], true);
}

#[test]
fn wrong_bytes_are_not_shown_and_not_left() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for size in [1000, 20 * MIB] {
        let source = scratch.file("source", &content(11, size));
        let mut wrong = cp(&source, server.url("up.dat"));
        wrong.args(["--checksum", "adler32:00000001"]);
        run(wrong).fails(8, "peer", false, &[]);
        assert!(!server.exported("up.dat").exists(), "{size}");
    }
}

#[test]
fn a_server_that_is_read_only_refuses() {
    let (scratch, server) = (Scratch::new(), Xrootd::with("all.export /closed r/o\n"));
    fs::create_dir(server.exported("closed")).unwrap();
    server.give();
    let source = scratch.file("source", &content(12, 2 * MIB));
    run(cp(&source, server.url("closed/up.dat"))).fails(4, "peer", false, &["it can only be read"]);
    assert!(!server.exported("closed/up.dat").exists());
}
