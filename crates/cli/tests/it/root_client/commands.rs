//! The small commands.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gridlane_core::ChecksumKind;
use serde_json::Value;

use super::{AWKWARD, ask, command};
use crate::support::client::run;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, assert_same, checksum_text, content, names};

fn export() -> Xrootd {
    let server = Xrootd::start();
    server.put("small", b"twelve bytes");
    server.put("sub dir/deep", b"deep");
    for name in AWKWARD {
        server.put(&format!("awkward/{name}"), name.as_bytes());
    }
    server
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn ls_lists_names_as_they_are() {
    let server = export();
    let text = ask(&["ls", &server.url("")]).exits(0).text();
    assert_eq!(lines(&text), ["awkward/", "small", "sub dir/"]);
    let text = ask(&["ls", &server.url("awkward")]).exits(0).text();
    let mut expected = AWKWARD;
    expected.sort();
    assert_eq!(lines(&text), expected);
    let text = ask(&["ls", "-l", &server.url("")]).exits(0).text();
    let small = text.lines().find(|line| line.ends_with("small")).unwrap_or_else(|| panic!("{text}"));
    assert!(small.contains(" 12 ") && small.contains("GMT"), "{text}");
    // A file lists itself, and what is not there is not found.
    for name in ["small", "awkward/100%"] {
        let text = ask(&["ls", &server.url(name)]).exits(0).text();
        assert_eq!(text.trim_end(), name.rsplit('/').next().unwrap());
    }
    ask(&["ls", &server.url("nothing")]).exits(3).says(&["nothing"]);
    ask(&["ls", &server.url("sub dir/deep/er")]).exits(3);
}

#[test]
fn ls_lists_a_directory_of_many_files_in_parts() {
    let server = Xrootd::start();
    for number in 0..3000 {
        fs::create_dir_all(server.exported("many")).unwrap();
        fs::write(server.exported(&format!("many/a file with number {number:04}")), b"").unwrap();
    }
    fs::create_dir(server.exported("none")).unwrap();
    server.give();
    let text = ask(&["ls", &server.url("many")]).exits(0).text();
    let expected: Vec<String> = (0..3000).map(|number| format!("a file with number {number:04}")).collect();
    assert_eq!(lines(&text), expected);
    let events = ask(&["ls", "--json", &server.url("many/")]).exits(0).events();
    assert_eq!(events.len(), 3000);
    assert!(
        events.iter().all(|event| event["kind"] == "file" && event["size_bytes"] == 0),
        "{:?}",
        events[0]
    );
    assert_eq!(ask(&["ls", &server.url("none")]).exits(0).text(), "");
}

#[test]
fn stat_tells_kind_size_and_time() {
    let server = export();
    let text = ask(&["stat", &server.url("small")]).exits(0).text();
    assert!(text.contains("file") && text.contains("12"), "{text}");
    let event = ask(&["stat", "--json", &server.url("sub dir")]).exits(0).event("entry");
    assert_eq!((&event["kind"], &event["size_bytes"]), (&Value::from("directory"), &Value::Null), "{event}");
    for name in AWKWARD {
        let event = ask(&["stat", "--json", &server.url(&format!("awkward/{name}"))]).exits(0).event("entry");
        assert_eq!(event["size_bytes"], name.len(), "{event}");
    }
    ask(&["stat", &server.url("missing")]).exits(3).says(&["missing"]);
}

#[test]
fn cat_gives_the_bytes() {
    let server = export();
    let bytes = content(1101, 3_000_000);
    server.put("big", &bytes);
    assert_same(&ask(&["cat", &server.url("big")]).exits(0).stdout, &bytes);
    assert_eq!(ask(&["cat", &server.url("awkward/a#b")]).exits(0).stdout, b"a#b");
    ask(&["cat", &server.url("missing")]).exits(3);
}

#[test]
fn over_tls_it_is_the_same() {
    let server = export();
    let url = |path: &str| server.url_over("roots", path);
    let ca = server.ca();
    let ca = ca.to_str().unwrap();
    assert_eq!(ask(&["cat", &url("small"), "--ca", ca]).exits(0).text(), "twelve bytes");
    assert_eq!(lines(&ask(&["ls", &url(""), "--ca", ca]).exits(0).text()), ["awkward/", "small", "sub dir/"]);
    ask(&["mkdir", &url("new"), "--ca", ca]).exits(0);
    assert!(server.exported("new").is_dir());
    // No authority vouches for it.
    let refused = ask(&["cat", &url("small")]);
    assert!(refused.code != Some(0) && refused.stdout.is_empty(), "{}", refused.describe());
    refused.says(&["certificate"]);
}

#[test]
fn checksum_prints_the_servers_word_or_computes() {
    let server = export();
    let url = server.url("small");
    for kind in ChecksumKind::ALL {
        // XRootD has three of them.
        let text = ask(&["checksum", "--type", kind.name(), &url]).exits(0).text();
        assert_eq!(text, format!("{}  {url}\n", checksum_text(kind, b"twelve bytes")));
    }
    ask(&["checksum", &server.url("missing")]).exits(3);
    ask(&["checksum", &server.url("sub dir")]).exits(2).says(&["it is a directory"]);
}

#[test]
fn mkdir_makes_directories_and_with_p_those_above() {
    let server = export();
    ask(&["mkdir", &server.url("new"), &server.url("a %20b/")]).exits(0);
    assert!(server.exported("new").is_dir() && server.exported("a %20b").is_dir());
    ask(&["mkdir", &server.url("new")]).exits(5).says(&["there already"]);
    ask(&["mkdir", &server.url("small")]).exits(5);
    ask(&["mkdir", &server.url("x/y")]).exits(5).says(&["make that directory first"]);
    ask(&["mkdir", "-p", &server.url("x/y/z"), &server.url("new"), &server.url("x/y")]).exits(0);
    assert!(server.exported("x/y/z").is_dir());
    ask(&["mkdir", "-p", &server.url("small")]).exits(5);
}

#[test]
fn mv_gives_names_and_replaces_nothing_unasked() {
    let server = export();
    server.put("other", b"precious");
    ask(&["mv", &server.url("small"), &server.url("other")]).exits(5).says(&["there already"]);
    assert_eq!(fs::read(server.exported("other")).unwrap(), b"precious");
    assert_eq!(fs::read(server.exported("small")).unwrap(), b"twelve bytes");
    ask(&["mv", "--force", &server.url("small"), &server.url("other")]).exits(0);
    assert_eq!(fs::read(server.exported("other")).unwrap(), b"twelve bytes");
    // Into a directory it keeps its name, with a slash behind it or without; what is there is looked at.
    ask(&["mv", &server.url("other"), &server.url("sub dir")]).exits(0);
    assert_eq!(fs::read(server.exported("sub dir/other")).unwrap(), b"twelve bytes");
    server.put("deep", b"another");
    ask(&["mv", &server.url("deep"), &server.url("sub dir/")]).exits(5);
    ask(&["mv", &server.url("awkward/sp ace"), &server.url("awkward/100%"), &server.url("sub dir/")])
        .exits(0);
    assert_eq!(names(&server.exported("sub dir")), ["100%", "deep", "other", "sp ace"]);
    ask(&["mv", &server.url("sub dir"), &server.url("renamed dir")]).exits(0);
    assert_eq!(fs::read(server.exported("renamed dir/sp ace")).unwrap(), b"sp ace");
    ask(&["mv", &server.url("missing"), &server.url("found")]).exits(3);
    ask(&["mv", &server.url("deep"), "/tmp/"]).exits(12);
}

#[test]
fn rm_removes_files_and_trees_and_nothing_else() {
    let server = export();
    let outside = Scratch::new();
    let precious = outside.file("precious", b"x");
    server.put("tree/a/b/f", b"1");
    server.put("tree/sp ace/%", b"2");
    fs::create_dir(server.exported("tree/empty")).unwrap();
    server.put("kept/f", b"3");
    symlink("../kept", server.exported("tree/link")).unwrap();
    server.give();
    ask(&["rm", &server.url("small")]).exits(0);
    assert!(!server.exported("small").exists());
    ask(&["rm", &server.url("small")]).exits(3);
    // A directory is no file, even if it is empty.
    ask(&["rm", &server.url("tree/empty")]).exits(2).says(&["it is a directory", "rm -r"]);
    assert!(server.exported("tree/empty").is_dir());
    ask(&["rm", "-r", &server.url("tree")]).exits(0);
    assert!(!server.exported("tree").exists());
    assert_eq!(fs::read(server.exported("kept/f")).unwrap(), b"3", "it was not in the tree");
    // A link that leads out: whatever the server does with it, what it leads to stays.
    symlink(outside.path(), server.exported("out")).unwrap();
    server.give();
    ask(&["rm", "-r", &server.url("out")]);
    assert_eq!(fs::read(precious).unwrap(), b"x");
    ask(&["rm", "-r", &server.url("awkward"), &server.url("kept")]).exits(0);
    assert!(!server.exported("awkward").exists() && !server.exported("kept").exists());
    assert!(server.exported("sub dir/deep").exists());
}

#[test]
fn df_tells_how_much_room_there_is() {
    let server = export();
    let event = ask(&["df", "--json", &server.url("sub dir")]).exits(0).event("space");
    let free = event["available_bytes"].as_u64().unwrap_or_else(|| panic!("{event}"));
    let here = free_at(&server.exported(""));
    assert!(free.abs_diff(here) < here / 4 + (1 << 30), "{free} there, {here} here");
    ask(&["df", &server.url("missing")]).exits(3);
}

fn free_at(path: &Path) -> u64 {
    let found = std::process::Command::new("df").args(["--output=avail", "-B1"]).arg(path).output().unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    text.lines().nth(1).unwrap().trim().parse().unwrap()
}

#[test]
fn doctor_says_what_a_server_is() {
    let server = export();
    let said = ask(&["doctor", &server.url("small")]).exits(0).text();
    for word in ["connection", "server", "v5", "checksums", "adler32", "pages"] {
        assert!(said.contains(word), "no {word}: {said}");
    }
    let mut tls = command(&["doctor", &server.url_over("roots", "")]);
    tls.arg("--ca").arg(server.ca());
    run(tls).exits(0).says(&["TLS"]);
    ask(&["doctor", &server.url("missing")]).exits(3);
    ask(&["doctor", "root://127.0.0.1:1//x"]).exits(6).says(&["refused"]);
}
