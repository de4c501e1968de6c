//! The small commands against a real server, and the command line itself.

use std::fs;

use gridlane_core::ChecksumKind;

use crate::support::client::{Outcome, cp, gridlane, run};
use crate::support::serve::Server;
use crate::support::{Scratch, assert_same, checksum_text, content};

fn ask(arguments: &[&str]) -> Outcome {
    let mut command = gridlane();
    command.args(arguments);
    run(command)
}

fn export() -> (Scratch, Server) {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    fs::create_dir(dir.join("sub dir")).unwrap();
    fs::write(dir.join("small"), b"twelve bytes").unwrap();
    fs::write(dir.join("Größe"), *b"x").unwrap();
    fs::write(dir.join("sub dir/deep"), b"deep").unwrap();
    let server = Server::start(&dir);
    (scratch, server)
}

#[test]
fn ls_lists_names_as_they_are() {
    let (_scratch, server) = export();
    let text = ask(&["ls", &server.url("")]).exits(0).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"small") && lines.contains(&"Größe"), "{text}");
    assert!(lines.iter().any(|line| line.trim_end_matches('/') == "sub dir"), "{text}");
    let text = ask(&["ls", "-l", &server.url("")]).exits(0).text();
    let small = text.lines().find(|line| line.contains("small")).unwrap_or_else(|| panic!("{text}"));
    assert!(small.contains("12"), "no size in {small:?}");
    let text = ask(&["ls", &server.url("sub%20dir/")]).exits(0).text();
    assert_eq!(text.trim(), "deep");
}

#[test]
fn stat_tells_size_and_more() {
    let (_scratch, server) = export();
    let text = ask(&["stat", &server.url("small")]).exits(0).text();
    assert!(text.contains("12"), "{text}");
    ask(&["stat", &server.url("missing")]).exits(3).says(&["missing"]);
}

#[test]
fn cat_gives_the_bytes() {
    let (scratch, server) = export();
    let bytes = content(1101, 3_000_000);
    fs::write(scratch.join("export/big"), &*bytes).unwrap();
    assert_same(&ask(&["cat", &server.url("big")]).exits(0).stdout, &bytes);
}

#[test]
fn checksum_prints_what_other_programs_compute() {
    let (_scratch, server) = export();
    let url = server.url("small");
    let text = ask(&["checksum", &url]).exits(0).text();
    // RFC 1950's definition worked out by hand with Python's zlib.adler32.
    assert_eq!(text, format!("adler32:1ff104df  {url}\n"));
    for kind in ChecksumKind::ALL {
        let text = ask(&["checksum", "--type", kind.name(), &url]).exits(0).text();
        assert_eq!(text, format!("{}  {url}\n", checksum_text(kind, b"twelve bytes")));
    }
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for wrong in [
        &["cp"][..],
        &["cp", "http://127.0.0.1/f"],
        &["nonsense"],
        &["cp", "a", "b", "--no-such-option"],
        &["cp", "gopher://127.0.0.1/f", "b"],
        &["cp", "http://127.0.0.1:1/f", "/dev/null", "--streams", "0"],
        &["cp", "http://127.0.0.1:1/f", "/dev/null", "--limit-rate", "fast"],
    ] {
        let outcome = ask(wrong);
        assert!(matches!(outcome.code, Some(2 | 12)), "{}", outcome.describe());
        assert!(!outcome.stderr.is_empty(), "{}", outcome.describe());
    }
}

#[test]
fn help_and_version_are_there() {
    for command in ["cp", "ls", "stat", "cat", "rm", "checksum", "probe", "serve", "pki", "auth"] {
        let help = ask(&[command, "--help"]).exits(0).text();
        assert!(help.contains("Usage:"), "{help}");
    }
    let version = ask(&["--version"]).exits(0).text();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}

#[test]
fn nothing_is_drawn_where_nobody_looks() {
    let (scratch, server) = export();
    let mut quiet = gridlane();
    quiet.args(["cp", &server.url("small"), "-q"]).arg(scratch.join("a"));
    let outcome = run(quiet).ok();
    assert!(outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{}", outcome.describe());
    let mut plain = gridlane();
    plain.args(["cp", &server.url("small")]).arg(scratch.join("b"));
    let outcome = run(plain).ok();
    assert!(!outcome.stderr.contains('\r') && !outcome.stderr.contains('\u{1b}'), "{}", outcome.describe());
}

#[test]
fn a_person_reads_the_same_summary_as_a_program() {
    let (scratch, server) = export();
    let mut plain = gridlane();
    plain.args(["cp", &server.url("small")]).arg(scratch.join("a"));
    let outcome = run(plain).ok();
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(said.contains("verified") && !said.contains("unverified"), "{said}");
    let events = run(cp(server.url("small"), scratch.join("b"))).ok().verified(true);
    assert_eq!(events.number("bytes"), 12);
}

#[test]
fn a_person_reads_what_whose_fault_and_whether_to_retry() {
    let (scratch, server) = export();
    let target = scratch.join("a");
    let said = |url: &str| {
        let mut plain = gridlane();
        plain.args(["cp", url, "--timeout", "2"]).arg(&target);
        run(plain)
    };
    let missing = server.url("missing");
    let outcome = said(&missing).exits(3).says(&[&missing, "there is no such file"]);
    assert!(!outcome.stderr.contains("retrying"), "{}", outcome.describe());
    let nowhere = crate::support::rogue::closed_port_url("f");
    said(&nowhere).exits(6).says(&[
        nowhere.trim_end_matches("/f"),
        "refused",
        "network",
        "retrying may help",
    ]);
    assert!(!target.exists());
}
