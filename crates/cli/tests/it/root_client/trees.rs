//! Trees up, down and across.

use std::fs;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::{AWKWARD, with};
use crate::support::client::{cp, cp_r, run};
use crate::support::serve::Server;
use crate::support::tree::{assert_same_trees, read_tree, tree};
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, content, names};

/// A tree with names that need care.
fn awkward_tree(scratch: &Scratch) -> std::path::PathBuf {
    let root = tree(scratch);
    for (number, name) in AWKWARD.iter().enumerate() {
        scratch.file(&format!("here/{name}/{name}"), &content(number as u64, 5000 * number));
    }
    root
}

fn files(tree: &std::path::Path) -> u64 {
    read_tree(tree).values().flatten().count() as u64
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let (scratch, server, other) = (Scratch::new(), Xrootd::start(), Xrootd::start());
    let source = awkward_tree(&scratch);
    let up = run(cp_r(&source, server.url("up"))).ok();
    assert_eq!(up.number("files"), files(&source), "{}", up.describe());
    assert_same_trees(&source, &server.exported("up"));
    run(cp_r(server.url("up"), scratch.join("down"))).ok();
    assert_same_trees(&source, &scratch.join("down"));
    // Between two servers and on one; into a directory that is there; what is in it; with a mirror.
    run(cp_r(server.url("up/"), other.url("across"))).ok();
    assert_same_trees(&source, &other.exported("across"));
    run(cp_r(server.url("up"), server.url("beside"))).ok();
    assert_same_trees(&source, &server.exported("beside"));
    run(cp_r(server.url("up"), scratch.join("down"))).ok();
    assert_same_trees(&source, &scratch.join("down/up"));
    let mut mirrored = cp_r(server.url("up/"), scratch.join("mirrored"));
    mirrored.arg("--mirror").arg(other.url("across"));
    run(mirrored).ok();
    assert_same_trees(&source, &scratch.join("mirrored"));
    run(cp_r(server.url("up/"), server.url("up/sub"))).exits(2).says(&["into itself"]);
}

#[test]
fn a_tree_crosses_protocols() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let source = tree(&scratch);
    let export = scratch.dir("export");
    let http = Server::with(&export, &["--allow-write"]);
    run(cp_r(&source, http.url("a"))).ok();
    run(cp_r(http.url("a"), server.url("a"))).ok();
    assert_same_trees(&source, &server.exported("a"));
    let mut back = cp_r(server.url_over("roots", "a"), http.url("b"));
    back.arg("--ca").arg(server.ca());
    run(back).ok();
    assert_same_trees(&source, &export.join("b"));
    // One file from both kinds of servers.
    let mut both = cp_r(http.url("a/"), scratch.join("both"));
    both.arg("--mirror").arg(server.url("a"));
    run(both).ok();
    assert_same_trees(&source, &scratch.join("both"));
}

#[test]
fn only_what_has_changed_is_copied_again() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let source = tree(&scratch);
    // Copies are younger than their source.
    run(cp_r(&source, server.url("up"))).ok();
    let again = run(with(cp_r(format!("{}/", source.display()), server.url("up")), "--update")).ok();
    assert_eq!(
        (again.number("files"), again.number("there_already")),
        (0, files(&source)),
        "{}",
        again.describe()
    );
    // Perhaps in the same second, in which XRootD takes the checksum of what was there for that of what is there.
    scratch.file("here/dir 0/sub/file ü 0", b"another size");
    let again = run(with(cp_r(format!("{}/", source.display()), server.url("up")), "--update")).ok();
    assert_eq!(again.number("files"), 1, "{}", again.describe());
    assert_same_trees(&source, &server.exported("up"));
    // Down: by the times that the listing tells.
    run(cp_r(server.url("up"), scratch.join("down"))).ok();
    let again = run(with(cp_r(server.url("up/"), scratch.join("down")), "--update")).ok();
    assert_eq!(again.number("files"), 0, "{}", again.describe());
    // Without --update what is there is a failure.
    run(cp_r(server.url("up/"), server.url("up2"))).ok();
    run(cp_r(server.url("up/"), server.url("up2"))).exits(5);
}

#[test]
fn times_come_down_and_do_not_go_up() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let file = server.put("d/f", b"x");
    let then = UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    fs::File::open(&file).unwrap().set_modified(then).unwrap();
    let mut down = cp_r(server.url("d"), scratch.join("d"));
    down.args(["--preserve", "times"]);
    run(down).ok();
    assert_eq!(fs::metadata(scratch.join("d/f")).unwrap().modified().unwrap(), then);
    let mut up = cp(scratch.join("d/f"), server.url("g"));
    up.args(["--preserve", "times"]);
    run(up).ok().says(&["does not say that it keeps when the file was changed"]);
    assert_eq!(fs::read(server.exported("g")).unwrap(), b"x");
}

#[test]
fn patterns_lists_and_several_sources() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for name in ["t/a.root", "t/b.txt", "t/cache/c.root", "one", "two"] {
        server.put(name, name.as_bytes());
    }
    let mut some = cp_r(server.url("t/"), server.url("some"));
    some.args(["--exclude", "cache/", "--include", "*.root"]);
    run(some).ok();
    assert_eq!(names(&server.exported("some")), ["a.root"]);
    let list = scratch.file("list", b"b.txt\ncache/c.root\n");
    let mut listed = cp_r(server.url("t/"), server.url("listed"));
    listed.arg("--files-from").arg(list);
    run(listed).ok();
    assert_eq!(names(&server.exported("listed")), ["b.txt", "cache"]);
    // Several files go into a directory, which is made.
    let mut several: Command = crate::support::client::gridlane();
    several.args(["cp", &server.url("one"), &server.url("two"), &server.url("into/")]);
    run(several).ok();
    assert_eq!(names(&server.exported("into")), ["one", "two"]);
    let mut dry = cp_r(server.url("t/"), server.url("never"));
    dry.arg("--dry-run");
    run(dry).ok();
    assert!(!server.exported("never").exists());
}

#[test]
fn a_metalink_leads_to_root_replicas_and_may_be_at_one() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    let bytes = content(5, 300_000);
    server.put("data/f.bin", &bytes);
    let adler = crate::support::checksum(gridlane_core::ChecksumKind::Sha256, &bytes).hex();
    let text = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f.bin\">\
         <size>{}</size><hash type=\"sha-256\">{adler}</hash><url>{}</url></file></metalink>",
        bytes.len(),
        server.url("data/f.bin")
    );
    let here = scratch.file("f.meta4", text.as_bytes());
    run(cp(&here, scratch.join("a"))).ok().verified(true);
    assert_eq!(fs::read(scratch.join("a")).unwrap(), *bytes);
    server.put("f.meta4", text.as_bytes());
    let dir = scratch.dir("dir");
    run(cp(server.url("f.meta4"), &dir)).ok().verified(true);
    assert_eq!(names(&dir), ["f.bin"]);
    let mut plain = cp(server.url("f.meta4"), scratch.join("b"));
    plain.arg("--no-metalink");
    run(plain).ok();
    assert_eq!(fs::read(scratch.join("b")).unwrap(), text.as_bytes());
}

/// A listing over root:// has a name on each line. XRootD's servers write such names as they are, and they can be made out;
/// ours tells that there is one.
#[test]
fn a_name_with_a_line_break_is_not_left_out_in_silence() {
    let (scratch, server) = (Scratch::new(), Xrootd::start());
    for name in ["t/a", "t/two\nlines", "t/z"] {
        server.put(name, name.as_bytes());
    }
    run(cp_r(server.url("t"), scratch.join("t"))).ok();
    assert_eq!(fs::read(scratch.join("t/two\nlines")).unwrap(), b"t/two\nlines");
    let ours = Server::start(scratch.path());
    let failed = run(cp_r(ours.url_over("root", "t"), scratch.join("u"))).exits(10);
    failed.says(&["has a line break in it"]);
    assert_eq!(names(&scratch.join("u")), ["a", "z"]);
    // By HTTP it has one.
    run(cp_r(ours.url("t"), scratch.join("v"))).ok();
    assert_eq!(names(&scratch.join("v")).len(), 3);
}
