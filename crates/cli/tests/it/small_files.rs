//! Trees of small files over HTTP: they come as they are, whatever happens meanwhile, and one that is odd fails alone.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::support::client::{Running, cp_r, isolated, run};
use crate::support::nginx::Nginx;
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::tree::{assert_same_trees, read_tree};
use crate::support::{Scratch, content, until};

/// Three directories of files that are small, and some that are not.
fn make(dir: &Path, files: usize) {
    let all = content(5, 40_000);
    for number in 0..files {
        let below = dir.join(format!("d{}/deeper", number % 3));
        fs::create_dir_all(&below).unwrap();
        let len = if number % 50 == 7 { 0 } else { 500 + number * 97 % 30_000 };
        fs::write(below.join(format!("f {number}")), &all[number % 1000..][..len]).unwrap();
    }
    fs::write(dir.join("d1/large"), &*content(6, 12_000_000)).unwrap();
    fs::write(dir.join("larger"), &*content(7, 1_500_000)).unwrap();
}

/// Whatever of the tree is there is whole, and there is nothing else.
fn assert_only_whole_files(source: &Path, target: &Path) -> usize {
    let whole = read_tree(source);
    let found = read_tree(target);
    for (name, bytes) in &found {
        let is_large = name.to_string_lossy().contains("large");
        // Large ones may be partial files with a journal.
        assert!(is_large || whole.get(name) == Some(bytes), "{}", name.display());
    }
    found.values().flatten().count()
}

#[test]
fn they_are_the_same_from_every_server_and_scheme() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    make(&export, 600);
    let files = read_tree(&export).values().flatten().count() as u64;
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let old = fs::File::options().write(true).open(export.join("d0/deeper/f 3")).unwrap();
    old.set_modified(time).unwrap();
    let (serve, nginx) = (Server::start(&export), Nginx::with(&export, "autoindex on;"));
    let from = [
        (serve.url(""), serve.ca(), files),
        (serve.url_over("https", ""), serve.ca(), files),
        (nginx.url(""), nginx.ca(), 0),
        (nginx.tls_url(""), nginx.ca(), 0),
    ];
    for (number, (url, authority, verified)) in from.into_iter().enumerate() {
        let target = scratch.join(format!("target {number}"));
        let mut command = cp_r(&url, &target);
        command.arg("--ca").arg(authority);
        if verified > 0 {
            command.args(["--preserve", "times"]);
        }
        let outcome = run(command).ok();
        assert_eq!((outcome.number("files"), outcome.number("verified_files")), (files, verified), "{url}");
        assert_same_trees(&export, &target);
        // Every file is told of once.
        let events = outcome.events();
        for kind in ["file.start", "file.done"] {
            let count = events.iter().filter(|event| event["type"] == kind).count() as u64;
            assert_eq!(count, files, "{kind} from {url}");
        }
        if verified > 0 {
            let copied = fs::metadata(target.join("d0/deeper/f 3")).unwrap();
            assert_eq!(copied.modified().unwrap(), time);
        }
    }
}

#[test]
fn what_is_there_stays_or_is_replaced_as_for_any_file() {
    let scratch = Scratch::new();
    let (export, target) = (scratch.dir("export"), scratch.dir("target"));
    for number in 0..100 {
        fs::write(export.join(format!("f{number}")), format!("new {number}")).unwrap();
    }
    fs::write(target.join("f50"), b"old").unwrap();
    let server = Server::start(&export);
    let outcome = run(cp_r(server.url(""), &target)).exits(10).says(&["f50", "exists"]);
    assert_eq!((outcome.number("files"), outcome.number("failed")), (99, 1));
    assert_eq!(fs::read(target.join("f50")).unwrap(), b"old");
    let mut update = cp_r(server.url(""), &target);
    update.arg("--update");
    let outcome = run(update).ok();
    assert_eq!((outcome.number("files"), outcome.number("there_already")), (1, 99));
    assert_same_trees(&export, &target);
}

#[test]
fn one_bad_file_among_a_thousand_fails_alone() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    for number in 0..1000 {
        fs::write(export.join(format!("f{number}")), format!("{number}")).unwrap();
    }
    let nginx = Nginx::with(
        &export,
        "autoindex on; location = /f500 { return 404; } location = /f600 { return 302 /f601; }",
    );
    let outcome = run(cp_r(nginx.url(""), scratch.join("target"))).exits(10).says(&["f500", "404"]);
    assert_eq!((outcome.number("files"), outcome.number("failed")), (999, 1));
    let target = scratch.join("target");
    assert_eq!(fs::read(target.join("f600")).unwrap(), b"601", "redirects are followed");
    assert!(!target.join("f500").exists());
    assert_eq!(fs::read_dir(&target).unwrap().count(), 999);
}

#[test]
fn a_tree_of_many_directories_needs_few_descriptors() {
    const DIRECTORIES: usize = 400;
    // Less than what a client takes for silence.
    const HELD_MAX: Duration = Duration::from_secs(4);
    let scratch = Scratch::new();
    let bytes = content(8, 2000);
    let object = Object::new(&bytes);
    let (listed, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let page = |names: &mut dyn Iterator<Item = String>| {
        let links: String = names.map(|name| format!("<a href=\"{name}\">{name}</a>\n")).collect();
        let text = Arc::new(format!("<html><title>Index of</title>\n{links}</html>").into_bytes());
        Answer::status(200).header("Content-Type", "text/html").body(&text, 0..text.len())
    };
    // Files are held back until everything is listed, but for a few that show what kind of server this is.
    let server = Rogue::start(move |request| match &*request.path {
        _ if request.method == "PROPFIND" => Answer::status(405).then(Then::Close),
        "/" => page(&mut (0..DIRECTORIES).map(|number| format!("d{number}/"))),
        path if path.ends_with('/') => {
            listed.fetch_add(1, Relaxed);
            page(&mut std::iter::once("f".to_owned()))
        }
        _ => {
            let begun = Instant::now();
            let is_held = asked.fetch_add(1, Relaxed) >= 8;
            while is_held && listed.load(Relaxed) < DIRECTORIES && begun.elapsed() < HELD_MAX {
                sleep(Duration::from_millis(1));
            }
            object.answer(request)
        }
    });
    let target = scratch.join("target");
    let copy = cp_r(server.url(""), &target);
    let mut limited = isolated(Command::new("sh"));
    limited.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]).arg(copy.get_program()).args(copy.get_args());
    assert_eq!(run(limited).ok().number("files"), DIRECTORIES as u64);
    for number in 0..DIRECTORIES {
        assert!(fs::read(target.join(format!("d{number}/f"))).unwrap() == **bytes, "d{number}/f");
    }
}

#[test]
fn nothing_half_is_visible_when_it_is_killed_or_stopped() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    make(&export, 600);
    let nginx = Nginx::with(&export, "autoindex on; limit_rate 400k;");
    for signal in ["KILL", "INT"] {
        let target = scratch.join(signal);
        let running = Running::start(cp_r(nginx.url(""), &target));
        let count = || if target.exists() { read_tree(&target).values().flatten().count() } else { 0 };
        until("some files are there", || count() >= 20);
        running.signal(signal);
        let outcome = running.wait();
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
        let there = assert_only_whole_files(&export, &target);
        assert!(there >= 20);
        // Without the limit, and with what is there.
        let other = Nginx::with(&export, "autoindex on;");
        let mut again = cp_r(other.url(""), &target);
        again.arg("--update");
        run(again).ok();
        assert_same_trees(&export, &target);
    }
}
