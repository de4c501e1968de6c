//! Uploads: `cp` to a server, server to server through the client, and what a server refuses.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::client::{Running, cp, gridlane, run};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, content, names, until};

struct Site {
    scratch: Scratch,
    dir: PathBuf,
}

impl Site {
    fn new() -> Site {
        let scratch = Scratch::new();
        let dir = scratch.dir("export");
        Site { scratch, dir }
    }

    fn server(&self, options: &[&str]) -> Server {
        Server::with(&self.dir, options)
    }

    fn source(&self, seed: u64, size: usize) -> (Arc<Vec<u8>>, PathBuf) {
        let bytes = content(seed, size);
        let path = self.scratch.file("source", &bytes);
        (bytes, path)
    }

    /// Names that a listing of the export would show.
    fn visible(&self) -> Vec<String> {
        names(&self.dir).into_iter().filter(|name| !name.starts_with('.')).collect()
    }
}

#[test]
fn a_file_is_uploaded_and_verified() {
    let site = Site::new();
    let (bytes, source) = site.source(901, 16 * MIB);
    let server = site.server(&["--allow-write"]);
    run(cp(&source, server.url("up.dat"))).ok();
    assert_copied(&site.dir.join("up.dat"), &bytes);
    assert_eq!(site.visible(), ["up.dat"]);
}

#[test]
fn a_file_is_uploaded_over_https() {
    let site = Site::new();
    let (bytes, source) = site.source(902, 8 * MIB);
    let server = site.server(&["--allow-write"]);
    let mut command = cp(&source, server.url_over("https", "up.dat"));
    command.arg("--ca").arg(server.ca());
    run(command).ok();
    assert_copied(&site.dir.join("up.dat"), &bytes);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let site = Site::new();
    let (bytes, source) = site.source(903, MIB);
    fs::write(site.dir.join("up.dat"), b"precious").unwrap();
    let server = site.server(&["--allow-write"]);
    run(cp(&source, server.url("up.dat"))).fails(5, "caller", false, &["--force", &server.url("up.dat")]);
    assert_eq!(fs::read(site.dir.join("up.dat")).unwrap(), b"precious");
    let mut command = cp(&source, server.url("up.dat"));
    command.arg("--force");
    run(command).ok();
    assert_copied(&site.dir.join("up.dat"), &bytes);
}

#[test]
fn a_read_only_server_refuses() {
    let site = Site::new();
    let (_, source) = site.source(904, 8 * MIB);
    let server = site.server(&[]);
    let outcome = run(cp(&source, server.url("up.dat")));
    assert_eq!(outcome.code, Some(4), "{}", outcome.describe());
    outcome.says(&[&server.url("up.dat")]);
    assert!(site.visible().is_empty(), "{:?}", site.visible());
}

#[test]
fn a_file_over_the_servers_limit_is_refused() {
    let site = Site::new();
    let (_, source) = site.source(905, 8 * MIB);
    let server = site.server(&["--allow-write", "--max-upload", "4MiB"]);
    let outcome = run(cp(&source, server.url("up.dat"))).says(&["413"]);
    assert_ne!(outcome.code, Some(0));
    assert!(site.visible().is_empty(), "{:?}", site.visible());
}

#[test]
fn an_upload_that_is_killed_leaves_nothing_to_be_seen() {
    let site = Site::new();
    let (_, source) = site.source(906, 32 * MIB);
    let server = site.server(&["--allow-write"]);
    let mut command = cp(&source, server.url("up.dat"));
    command.args(["--limit-rate", "4MB/s"]);
    let mut copy = Running::start(command);
    until("the upload has begun", || {
        assert!(copy.is_running());
        fs::read_dir(&site.dir).unwrap().next().is_some()
    });
    copy.kill();
    assert!(site.visible().is_empty(), "{:?}", site.visible());
    // The name is free for the next one.
    run(cp(&source, server.url("up.dat"))).ok();
    assert_eq!(site.visible(), ["up.dat"]);
}

#[test]
fn one_server_is_copied_to_another_through_the_client() {
    let (from, to) = (Site::new(), Site::new());
    let bytes = content(907, 16 * MIB);
    fs::write(from.dir.join("f"), &*bytes).unwrap();
    let (source, target) = (from.server(&[]), to.server(&["--allow-write"]));
    let mirror = from.server(&[]);
    let mut command = cp(source.url("f"), target.url("copied"));
    command.args(["--mirror", &mirror.url("f")]);
    run(command).ok();
    assert_copied(&to.dir.join("copied"), &bytes);
}

#[test]
fn a_lying_source_does_not_become_a_file_on_the_server() {
    let to = Site::new();
    let bytes = content(908, 4 * MIB);
    let truth = Object::new(&bytes);
    let lie = Object { bytes: content(909, 4 * MIB), ..truth };
    let source = Rogue::start(move |request| lie.answer(request));
    let target = to.server(&["--allow-write"]);
    let outcome = run(cp(source.url("f"), target.url("copied")));
    assert_eq!(outcome.code, Some(8), "{}", outcome.describe());
    assert!(to.visible().is_empty(), "{:?}", to.visible());
}

#[test]
fn a_directory_on_the_server_takes_the_name_of_the_source() {
    let site = Site::new();
    fs::create_dir(site.dir.join("sub")).unwrap();
    let (bytes, source) = site.source(910, MIB);
    let server = site.server(&["--allow-write"]);
    run(cp(&source, server.url("sub/"))).ok();
    assert_copied(&site.dir.join("sub/source"), &bytes);
}

#[test]
fn what_was_uploaded_can_be_removed_where_writing_is_allowed() {
    let site = Site::new();
    fs::write(site.dir.join("f"), b"x").unwrap();
    let remove = |server: &Server| {
        let mut command = gridlane();
        command.args(["rm", &server.url("f")]);
        run(command)
    };
    remove(&site.server(&[])).exits(4);
    assert!(site.dir.join("f").exists());
    remove(&site.server(&["--allow-write"])).exits(0);
    assert!(!site.dir.join("f").exists());
    remove(&site.server(&["--allow-write"])).exits(3);
}

#[test]
fn an_empty_file_is_uploaded() {
    let site = Site::new();
    let (_, source) = site.source(911, 0);
    let server = site.server(&["--allow-write"]);
    run(cp(&source, server.url("empty"))).ok();
    assert_copied(&site.dir.join("empty"), b"");
}
