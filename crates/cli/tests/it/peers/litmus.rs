//! litmus, the conformance suite of WebDAV servers.

use std::fs;

use super::Site;
use crate::support::client::{Outcome, run};
use crate::support::tools::tool;

fn litmus(suites: &str) -> Outcome {
    let site = Site::new();
    let mut command = tool("litmus", "litmus");
    // It writes its logs where it stands.
    command.args(["-k", &site.url("")]).env("TESTS", suites).current_dir(site.scratch.dir("litmus"));
    let outcome = run(command);
    assert!(fs::read_dir(site.exported("")).unwrap().next().is_some(), "it has worked in the export");
    outcome
}

/// The results of one suite: its own summary line.
fn summary<'a>(said: &'a str, suite: &str) -> &'a str {
    let start = format!("<- summary for `{suite}'");
    said.lines()
        .find(|line| line.starts_with(&start))
        .unwrap_or_else(|| panic!("no summary of {suite} in {said}"))
}

#[test]
fn basic_copymove_and_http() {
    let outcome = litmus("basic copymove http").ok();
    let said = outcome.text();
    for suite in ["basic", "copymove", "http"] {
        assert!(summary(&said, suite).contains(" 0 failed. 100.0%"), "{}", outcome.describe());
    }
    // Locks are class 2; there are none.
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARNING")).collect();
    assert!(warnings.iter().all(|line| line.contains("does not claim Class 2")), "{}", outcome.describe());
}

/// Properties, as far as they are defined: there are none that clients could define themselves, so what fails is just
/// setting those, and reading them back.
#[test]
fn properties() {
    let outcome = litmus("props");
    let said = outcome.text();
    assert!(summary(&said, "props").contains("tests run"), "{}", outcome.describe());
    // Each result follows its name, after a carriage return or on the next line.
    let failed: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(" FAIL"))
        .filter_map(|line| {
            line.split(['.', ' ']).find(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        })
        .collect();
    for name in &failed {
        assert!(
            ["propset", "propget", "propmanyns", "prophighunicode", "propvalnspace"].contains(name),
            "{}",
            outcome.describe()
        );
    }
    for name in ["propfind_invalid", "propfind_invalid2", "propfind_d0", "propinit"] {
        assert!(said.contains(name) && !failed.contains(&name), "{name}: {}", outcome.describe());
    }
}
