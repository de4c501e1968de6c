//! Texts and names of others that reach a terminal; and the parts of a URL that reach a network on which others can
//! read.

use std::sync::Arc;

use gridlane_core::text::is_unprintable;

use crate::support::client::{Outcome, cp, cp_r, gridlane, run};
use crate::support::object::{Answer, Object};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{Scratch, content, secrets};

/// Clears the screen, colours what follows, and turns the order of writing around.
const HOSTILE: &str = "a\x1b[2J\u{9b}31mb\u{202e}toor\u{2066}\u{7f}";

/// Asserts that nothing was said that a terminal obeys or does not show.
#[track_caller]
fn assert_harmless(outcome: &Outcome) {
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    let found: Vec<char> = said.chars().filter(|char| *char != '\n' && is_unprintable(*char)).collect();
    assert!(found.is_empty(), "{found:?} in what it says\n{}", outcome.describe());
    assert!(said.contains("toor"), "what was hostile is not shown at all\n{}", outcome.describe());
}

#[test]
fn names_and_words_of_others_command_no_terminal() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let file = scratch.file(&format!("export/{HOSTILE}"), b"data");
    let refusal = Arc::new(HOSTILE.as_bytes().to_vec());
    let rogue = Rogue::start(move |_| Answer::status(403).body(&refusal, 0..refusal.len()));
    let server = Server::start(&export);
    let missing = scratch.join(format!("missing/{HOSTILE}"));
    let root = server.url_over("root", &format!("missing-{HOSTILE}"));
    let shown: [(&str, &[&str]); 10] = [
        ("cp", &[file.to_str().unwrap(), missing.to_str().unwrap()]),
        ("cp", &[missing.to_str().unwrap(), "here"]),
        ("cp", &[file.to_str().unwrap(), file.to_str().unwrap()]),
        ("cp", &[&rogue.url("f"), "here"]),
        ("cp", &[&root, "here"]),
        ("cat", &[&root]),
        ("ls", &[&server.url("")]),
        ("stat", &[file.to_str().unwrap()]),
        ("checksum", &[file.to_str().unwrap(), HOSTILE]),
        ("probe", &["-v", &rogue.url("")]),
    ];
    for (command, arguments) in shown {
        for json in [false, true] {
            let mut run_it = gridlane();
            run_it.arg(command).args(arguments).args(json.then_some("--json")).current_dir(scratch.path());
            assert_harmless(&run(run_it));
        }
    }
    // A tree, with everything that is said of it, and what is left out.
    let into = scratch.join("into");
    for options in [&["-v"][..], &["--dry-run"], &["-v", "--progress=always"]] {
        let mut tree = gridlane();
        tree.args(["cp", "-r", "--force", &server.url("")]).arg(&into).args(options);
        let outcome = run(tree).ok();
        assert_harmless(&outcome);
    }
    // One copy, in words.
    let mut one = gridlane();
    one.arg("cp").arg(&file).arg(scratch.join(format!("copied {HOSTILE}")));
    assert_harmless(&run(one).ok());
}

#[test]
fn json_says_the_same_without_a_character_that_commands() {
    let scratch = Scratch::new();
    scratch.file(&format!("export/{HOSTILE}"), b"data");
    let server = Server::start(&scratch.join("export"));
    let outcome = run(cp_r(server.url(""), scratch.join("into"))).ok();
    assert_harmless(&outcome);
    assert_eq!(outcome.event("file.done")["name"], HOSTILE);
}

#[test]
fn a_password_does_not_travel_in_clear() {
    secrets::remember_password("ada", "quite-secret-3501");
    let bytes = content(3501, 1000);
    let object = Object::bare(&bytes);
    let open = Rogue::start(move |request| object.answer(request));
    let closed = Rogue::start(|_| Answer::status(401).header("WWW-Authenticate", "Basic realm=\"x\""));
    let scratch = Scratch::new();
    // By way of a proxy that is the server: its name does not matter.
    let url = "http://ada:quite-secret-3501@files.example/f";
    for (server, code) in [(&open, 0), (&closed, 4)] {
        let mut command = cp(url, scratch.join("f"));
        command.env("http_proxy", server.url("")).arg("--force");
        let outcome = run(command).exits(code).says(&["not sent", "files.example", "https://"]);
        assert!(
            !outcome.text().contains("quite-secret-3501") && !outcome.stderr.contains("quite-secret-3501")
        );
        assert!(!server.requests().is_empty());
        for request in server.requests() {
            assert!(request.header("authorization").is_none(), "{request:?}");
            assert!(!request.path.contains("quite-secret-3501"), "{request:?}");
        }
    }
    // This machine itself is no other.
    let here = open.url("f").replace("http://", "http://ada:quite-secret-3501@");
    let asked = open.requests().len();
    let outcome = run(cp(here, scratch.join("here"))).ok();
    assert!(!outcome.text().contains("not sent"), "{}", outcome.describe());
    assert!(open.requests()[asked..].iter().all(|request| request.header("authorization").is_some()));
}
