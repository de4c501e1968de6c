//! davix, the HTTP library under gfal2, FTS3 and ROOT: its commands and its own functional tests.

use std::fs;
use std::process::Command;

use super::Site;
use crate::support::client::{Outcome, run, text};
use crate::support::tools::tool;
use crate::support::{MIB, Scratch, assert_same, content};

fn davix(name: &str, arguments: &[&str]) -> Outcome {
    let mut command = tool(name, "davix");
    command.args(arguments);
    run(command)
}

/// The credential that davix-tester wants to be given, whether it is used or not.
fn credential(scratch: &Scratch) -> String {
    let (cert, key) =
        gridlane_net::tls::self_signed(&scratch.dir("credential"), &["tester".to_owned()]).unwrap();
    let both = fs::read_to_string(cert).unwrap() + &fs::read_to_string(key).unwrap();
    text(&scratch.file("credential.pem", both.as_bytes())).to_owned()
}

fn tester(site: &Site, arguments: &[&str]) -> Command {
    let mut command = tool("davix-tester", "davix-tests");
    command.args(["--auth", "proxy", "--cert", &credential(&site.scratch)]).args(arguments);
    command
}

/// Its functional tests: collections, uploads, stat, moves, listings, and vector reads with all of its options.
#[test]
fn full_test() {
    let site = Site::new();
    let outcome = run(tester(&site, &["--uri", &site.url("davix-tests"), "--command", "fulltest"])).ok();
    let said = outcome.text() + &outcome.stderr;
    assert!(!said.contains("[FAIL]"), "{}", outcome.describe());
    assert!(said.matches("[OK]").count() > 100, "{}", outcome.describe());
    assert!(said.contains("Options: 0-10,15-20 | mergewindow=1\n"), "{}", outcome.describe());
    assert!(!site.exported("davix-tests").exists());
}

#[test]
fn full_test_over_tls() {
    let site = Site::new();
    let uri = site.server.url_where("davix-tests", "https://127.0.0.1");
    let mut command = tester(&site, &["--uri", &uri, "--command", "fulltest"]);
    command.env("SSL_CERT_FILE", site.server.ca());
    let outcome = run(command).ok();
    let said = outcome.text() + &outcome.stderr;
    assert!(!said.contains("[FAIL]") && said.matches("[OK]").count() > 100, "{}", outcome.describe());
}

#[test]
fn files_and_directories() {
    let site = Site::new();
    let bytes = content(2101, 3 * MIB + 17);
    let source = site.scratch.file("source", &bytes);
    davix("davix-mkdir", &[&site.url("d")]).ok();
    assert!(site.exported("d").is_dir());
    davix("davix-put", &[text(&source), &site.url("d/f%20%C3%BC")]).ok();
    assert_same(&fs::read(site.exported("d/f ü")).unwrap(), &bytes);
    let target = site.scratch.join("target");
    davix("davix-get", &[&site.url("d/f%20%C3%BC"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);

    site.put("d/empty", b"");
    fs::create_dir(site.exported("d/sub")).unwrap();
    let listed = davix("davix-ls", &[&site.url("d/")]).ok().text();
    let mut names: Vec<&str> = listed.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["empty", "f ü", "sub"]);
    let long = davix("davix-ls", &["-l", &site.url("d/")]).ok().text();
    let line = |name: &str| {
        let found = long.lines().find(|line| line.ends_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {long}")).to_owned()
    };
    assert!(line("sub").starts_with("drwx"), "{long}");
    assert!(line("empty").starts_with("-rw") && line("f ü").contains(&bytes.len().to_string()), "{long}");

    // It exits with 255 in any case (also when it is Apache that answered 201): what counts is what it did.
    davix("davix-mv", &[&site.url("d/f%20%C3%BC"), &site.url("moved")]);
    assert_same(&fs::read(site.exported("moved")).unwrap(), &bytes);
    assert!(!site.exported("d/f ü").exists());
    davix("davix-rm", &[&site.url("moved")]).ok();
    assert!(!site.exported("moved").exists());
    let missing = davix("davix-get", &[&site.url("missing"), text(&target)]);
    assert_ne!(missing.code, Some(0));
    missing.says(&["404"]);
}

/// Trees both ways.
#[test]
fn trees() {
    let site = Site::new();
    let here = site.scratch.dir("here");
    for (name, seed) in [("a", 1), ("sub/b", 2), ("sub/deep/c", 3)] {
        site.scratch.file(&format!("here/{name}"), &content(seed, 1000));
    }
    davix("davix-mkdir", &[&site.url("up")]).ok();
    // With -r it exits with 255 in any case: what counts is what it did.
    davix("davix-put", &["-r", "2", text(&here), &site.url("up")]);
    assert_same(&fs::read(site.exported("up/sub/deep/c")).unwrap(), &content(3, 1000));
    let there = site.scratch.join("there");
    // Of an http: URL it would get the page.
    let url = site.url("up/").replacen("http:", "dav:", 1);
    davix("davix-get", &["-r", "2", &url, text(&there)]).ok();
    let copied = there.join("sub/deep/c");
    assert_same(&fs::read(&copied).unwrap(), &content(3, 1000));
}
