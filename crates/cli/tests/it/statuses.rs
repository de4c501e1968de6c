//! Servers that answer with a status instead of the file: redirects, refusals, failures, "come back later".

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::support::client::{cp, cp_from, cp_impatient, gridlane, run};
use crate::support::object::{Answer, Object};
use crate::support::rogue::Rogue;
use crate::support::{MIB, SOON, Scratch, assert_copied, content};

const SIZE: usize = 4 * MIB;

fn object(seed: u64) -> (Arc<Vec<u8>>, Object) {
    let bytes = content(seed, SIZE);
    let object = Object::new(&bytes);
    (bytes, object)
}

fn replica(object: &Object) -> Rogue {
    let object = object.clone();
    Rogue::start(move |request| object.answer(request))
}

/// A server that always answers with this status.
fn always(status: u16) -> Rogue {
    Rogue::start(move |_| Answer::status(status))
}

#[test]
fn redirects_lead_to_the_file() {
    let (bytes, object) = object(201);
    let elsewhere = replica(&object);
    let far = elsewhere.url("data/f");
    let door = Rogue::start(move |request| match request.path.as_str() {
        "/relative" => Answer::redirect(302, "down/there"),
        "/rooted" => Answer::redirect(307, "/down/there?token=1"),
        "/elsewhere" => Answer::redirect(301, &far),
        "/twice" => Answer::redirect(308, "/elsewhere"),
        path if path.starts_with("/down/there") => object.answer(request),
        _ => Answer::status(404),
    });
    let scratch = Scratch::new();
    for name in ["relative", "rooted", "elsewhere", "twice"] {
        let target = scratch.join(name);
        run(cp(door.url(name), &target)).ok().verified(true);
        assert_copied(&target, &bytes);
    }
}

#[test]
fn a_redirect_loop_ends() {
    let circle =
        Rogue::start(|request| Answer::redirect(302, if request.path == "/a" { "/b" } else { "/a" }));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(circle.url("a"), &target)).fails(1, "peer", false, &["redirect"]);
    assert!(!target.exists());
    assert!(circle.requests().len() < 50, "{} requests", circle.requests().len());
}

#[test]
fn a_redirect_loop_beside_a_good_replica_costs_only_that_replica() {
    let (bytes, object) = object(202);
    let good = replica(&object);
    let circle = Rogue::start(|_| Answer::redirect(302, "/again"));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp_from(&[circle.url("again"), good.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn a_redirect_to_something_that_is_not_http_is_refused() {
    let scratch = Scratch::new();
    let secret = scratch.file("secret", b"not for servers to choose");
    let to_file = format!("file://{}", secret.display());
    let door = Rogue::start(move |_| Answer::redirect(302, &to_file));
    let target = scratch.join("f");
    let outcome = run(cp(door.url("f"), &target));
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    assert!(!target.exists());
}

#[test]
fn one_mirror_without_the_file_is_named_and_the_copy_succeeds() {
    let (bytes, object) = object(203);
    let (good, empty) = (replica(&object), always(404));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp_from(&[good.url("f"), empty.url("f")], &target);
    // Long enough for the other one to be heard.
    command.args(["--limit-rate", "8M"]);
    run(command).ok().verified(true).blames(&empty.url("f"), "404");
    assert_copied(&target, &bytes);
}

#[test]
fn no_mirror_with_the_file_is_not_found() {
    let (one, two) = (always(404), always(404));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome =
        run(cp_from(&[one.url("f"), two.url("f")], &target)).fails(3, "caller", false, &[&one.url("f")]);
    assert_eq!(outcome.error()["http_status"], 404);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn a_file_that_is_gone_for_good_is_not_found_too() {
    let gone = always(410);
    let scratch = Scratch::new();
    let outcome = run(cp(gone.url("f"), scratch.join("f")));
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
}

#[test]
fn a_refusal_is_denied_and_nobody_tries_again() {
    for status in [401, 403] {
        let closed = always(status);
        let scratch = Scratch::new();
        let target = scratch.join("f");
        let outcome = run(cp(closed.url("f"), &target));
        assert_eq!(outcome.code, Some(4), "{}", outcome.describe());
        let outcome = outcome.says(&[&closed.url("f")]);
        assert_eq!(outcome.error()["class"], "denied");
        assert!(closed.requests().len() <= 3, "it asked {} times", closed.requests().len());
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }
}

/// A server whose first answer to a GET has this status, and `Retry-After`.
fn at_first(object: &Object, status: u16, retry_after_s: Option<u64>) -> Rogue {
    let (object, gets) = (object.clone(), AtomicUsize::new(0));
    Rogue::start(move |request| {
        if !request.is_get() || gets.fetch_add(1, Relaxed) > 0 {
            return object.answer(request);
        }
        match retry_after_s {
            Some(seconds) => Answer::status(status).header("Retry-After", seconds.to_string()),
            None => Answer::status(status),
        }
    })
}

#[test]
fn a_server_that_fails_once_is_asked_again() {
    for status in [500, 502, 504] {
        let (bytes, object) = object(204);
        let flaky = at_first(&object, status, None);
        let scratch = Scratch::new();
        let target = scratch.join("f");
        run(cp(flaky.url("f"), &target)).ok().verified(true);
        assert_copied(&target, &bytes);
    }
}

#[test]
fn a_server_that_always_fails_is_given_up_and_named() {
    let broken = always(500);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_impatient(broken.url("f"), &target)).says(&[&broken.url("f"), "500"]);
    assert_ne!(outcome.code, Some(0));
    let error = outcome.error();
    assert_eq!(error["fault"], "peer", "{error}");
    assert_eq!(error["http_status"], 500, "{error}");
    assert!(!target.exists());
}

#[test]
fn a_busy_server_is_asked_again_when_it_said() {
    let (bytes, object) = object(205);
    let busy = at_first(&object, 503, Some(1));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp(busy.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.elapsed >= Duration::from_secs(1), "it came back after {:?}", outcome.elapsed);
}

#[test]
fn a_server_that_stays_busy_is_reported_as_busy() {
    let busy = Rogue::start(|_| Answer::status(503).header("Retry-After", "1"));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let mut command = cp(busy.url("f"), &target);
    command.args(["--timeout", "3"]);
    run(command).fails(11, "peer", true, &[&busy.url("f"), "503"]);
    assert!(!target.exists());
}

#[test]
fn a_busy_server_does_not_hold_up_a_free_one() {
    let (bytes, object) = object(206);
    let good = replica(&object);
    let busy = Rogue::start(|_| Answer::status(503).header("Retry-After", "120"));
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp_from(&[busy.url("f"), good.url("f")], &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
}

#[test]
fn secrets_in_a_url_do_not_reach_the_output() {
    let closed = always(403);
    let url = closed.url("f").replace("http://", "http://alice:opensesame@");
    let scratch = Scratch::new();
    let outcome = run(cp(&url, scratch.join("f")));
    assert_eq!(outcome.code, Some(4), "{}", outcome.describe());
    assert!(!outcome.stderr.contains("opensesame") && !outcome.text().contains("opensesame"));
}

#[test]
fn other_commands_use_the_same_exit_codes() {
    let (missing, closed) = (always(404), always(403));
    for command in ["stat", "cat", "rm", "checksum", "ls"] {
        for (server, code) in [(&missing, 3), (&closed, 4)] {
            let mut ask = gridlane();
            ask.args([command, &server.url("f")]);
            let outcome = run(ask).exits(code);
            assert!(outcome.stderr.contains(&server.url("f")), "{}", outcome.describe());
        }
    }
}

/// XRootD (5.5.3) answers so to a GET that asks for a kind of checksum which it does not compute; a HEAD it answers with another
/// kind.
#[test]
fn a_server_that_fails_a_get_for_its_checksum_is_asked_for_the_bytes_alone() {
    for size in [1000, SIZE] {
        let bytes = content(231, size);
        let object = Object::new(&bytes);
        let server = Rogue::start(move |request| match request.header("want-digest") {
            Some(wanted) if request.is_get() && wanted.contains("sha-256") => Answer::status(500),
            _ => object.answer(request),
        });
        let scratch = Scratch::new();
        let target = scratch.join("f");
        let mut command = cp(server.url("f"), &target);
        command.args(["--checksum", "sha256"]);
        let outcome = run(command).ok();
        assert_copied(&target, &bytes);
        let sha256 = crate::support::checksum(gridlane_core::ChecksumKind::Sha256, &bytes);
        assert_eq!(outcome.summary()["checksum"], sha256.to_string(), "{}", outcome.describe());
        let mut ask = gridlane();
        ask.args(["checksum", "--type", "sha256", &server.url("f")]);
        let said = run(ask).exits(0).text();
        assert!(said.contains(&sha256.hex()), "{said}");
    }
}
