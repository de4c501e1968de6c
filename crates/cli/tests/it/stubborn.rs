//! Peers and targets that hold on: each copy ends, says why, and loses nothing that is right.

use std::io::Read as _;
use std::process::Stdio;

use crate::support::client::{Running, cp, cp_from, gridlane, run};
use crate::support::nginx::Nginx;
use crate::support::object::{Framing, Object};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, content, part_of, until};

#[test]
fn ctrl_c_ends_a_copy_into_a_pipe_that_nobody_reads() {
    let bytes = content(901, 4 * MIB);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let mut command = gridlane();
    command.args(["cp", &server.url("f"), "-"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut copy = command.spawn().unwrap();
    let mut pipe = copy.stdout.take().unwrap();
    // The first byte shows that the copy writes; the rest fills the pipe and then blocks it.
    pipe.read_exact(&mut [0]).unwrap();
    crate::support::client::signal(&copy.id().to_string(), "INT");
    let mut status = None;
    until("it has ended", || {
        status = copy.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
}

#[test]
fn a_mirror_of_another_size_does_not_cost_what_an_earlier_run_has() {
    let bytes = content(902, 24 * MIB);
    let other = content(903, 25 * MIB);
    let slow = Object::new(&bytes);
    let right = Rogue::with_rate(24_000_000, move |request| slow.answer(request));
    let wrong = Object::new(&other);
    let wrong = Rogue::start(move |request| wrong.answer(request));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut copy = Running::start(cp(right.url("f"), &target));
    until("half of it has arrived", || {
        assert!(copy.is_running(), "it ended too early");
        right.sent_bytes() >= 12 * MIB as u64
    });
    copy.signal("INT");
    assert_eq!(copy.wait().code, Some(130));
    assert!(part_of(&target).exists());

    let outcome = run(cp_from(&[right.url("f"), wrong.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("resumed_bytes") >= 4 * MIB as u64, "{}", outcome.describe());
    assert_eq!(outcome.source(&wrong.url("f"))["state"], "wrong");
}

#[test]
fn an_upload_of_unknown_size_is_refused_before_memory_is_full_of_it() {
    let bytes = content(904, 160 * MIB);
    let object = Object::new(&bytes);
    let source = Rogue::start(move |request| object.answer_whole(request).framed(Framing::Chunked));
    let scratch = Scratch::new();
    let server = Server::with(&scratch.dir("export"), &["--allow-write"]);
    let mut command = cp(source.url("f"), server.url("f"));
    command.args(["--tpc", "never"]);
    run(command).exits(12).says(&["size"]);
    assert!(!scratch.join("export/f").exists());
}

#[test]
fn a_file_on_nginx_is_not_replaced_unless_forced() {
    let scratch = Scratch::new();
    let root = scratch.dir("www");
    std::fs::write(root.join("f"), b"old").unwrap();
    let nginx = Nginx::with(&root, "dav_methods PUT; client_max_body_size 10m;");
    let new = scratch.file("new", b"new");
    run(cp(&new, nginx.url("f"))).exits(5);
    assert_eq!(std::fs::read(root.join("f")).unwrap(), b"old");
}

#[test]
fn removing_a_directory_is_refused_before_a_server_does_it() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    std::fs::create_dir(export.join("d")).unwrap();
    std::fs::write(export.join("d/f"), b"x").unwrap();
    let server = Server::with(&export, &["--allow-write"]);
    for path in ["d", "d/"] {
        let mut command = gridlane();
        command.args(["rm", &server.url(path), "--json"]);
        run(command).exits(2).says(&["directory"]);
    }
    assert!(export.join("d/f").exists());
    let requests = server.url("d/f");
    let mut command = gridlane();
    command.args(["rm", &requests]);
    run(command).exits(0);
    assert!(!export.join("d/f").exists());
}
