//! gridlane's commands against other people's WebDAV servers: nginx, Apache, WsgiDAV.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::apache::Apache;
use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::nginx::Nginx;
use crate::support::tree::{assert_same_trees, tree};
use crate::support::wsgidav::WsgiDav;
use crate::support::{MIB, Scratch, assert_copied, assert_same, content};

fn ask(arguments: &[&str]) -> Outcome {
    let mut command: Command = gridlane();
    command.args(arguments);
    run(command)
}

/// Every command against a server whose files are in `dir`; `lists` when it knows PROPFIND.
fn every_command(scratch: &Scratch, dir: &Path, url: impl Fn(&str) -> String, lists: bool) {
    let bytes = content(2701, 2 * MIB + 3);
    let source = scratch.file("source", &bytes);
    ask(&["mkdir", &url("d/")]).ok();
    assert!(dir.join("d").is_dir());
    // It is there already.
    ask(&["mkdir", &url("d/")]).exits(5);
    ask(&["cp", text(&source), &url("d/f%20%C3%BC")]).ok();
    assert_same(&fs::read(dir.join("d/f ü")).unwrap(), &bytes);
    let target = scratch.join("target");
    ask(&["cp", &url("d/f%20%C3%BC"), text(&target)]).ok();
    assert_copied(&target, &bytes);
    let listed = ask(&["ls", &url("d/")]).ok().text();
    assert_eq!(listed.trim(), "f ü");
    if lists {
        let long = ask(&["ls", "-l", &url("d/")]).ok().text();
        assert!(long.contains(&bytes.len().to_string()) || long.contains("2.1"), "{long}");
    }
    ask(&["mv", &url("d/f%20%C3%BC"), &url("moved")]).ok();
    assert!(dir.join("moved").is_file() && !dir.join("d/f ü").exists());
    assert_eq!(ask(&["cat", &url("moved")]).ok().stdout, **bytes);
    let stat = ask(&["stat", &url("moved")]).ok().text();
    assert!(stat.contains(&bytes.len().to_string()), "{stat}");
    ask(&["stat", &url("missing")]).exits(3);
    ask(&["rm", &url("moved")]).ok();
    assert!(!dir.join("moved").exists());

    let here = tree(scratch);
    ask(&["cp", "-r", text(&here), &url("up")]).ok();
    assert_same_trees(&here, &dir.join("up"));
    let down = scratch.join("down");
    ask(&["cp", "-r", &url("up"), text(&down)]).ok();
    assert_same_trees(&here, &down);
    // Nothing is copied a second time.
    if lists {
        let again = ask(&["cp", "-r", "--update", "--json", &url("up/"), text(&down)]).ok();
        assert_eq!(again.summary()["files"], 0, "{}", again.describe());
    }
}

#[test]
fn nginx() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let nginx =
        Nginx::with(&dir, "dav_methods PUT DELETE MKCOL COPY MOVE; autoindex on; client_max_body_size 0;");
    every_command(&scratch, &dir, |path| nginx.url(path), false);
}

#[test]
fn apache() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let apache = Apache::start(&dir);
    every_command(&scratch, &dir, |path| apache.url(path), true);
}

#[test]
fn wsgidav() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let wsgidav = WsgiDav::start(&dir);
    every_command(&scratch, &dir, |path| wsgidav.url(path), true);
    // It tells the space of its disk.
    let said = ask(&["df", &wsgidav.url("")]).ok().text();
    assert!(said.to_lowercase().contains("avail"), "{said}");
}
