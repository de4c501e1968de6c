//! gfal2's commands, which physicists and FTS3 use, over http and https.

use std::fs;

use gridlane_core::ChecksumKind;

use super::Site;
use crate::support::client::{Outcome, run, text};
use crate::support::tools::tool;
use crate::support::{MIB, assert_same, checksum, content};

fn gfal(name: &str, arguments: &[&str]) -> Outcome {
    let mut command = tool(name, "gfal2-util-scripts");
    // They are scripts for the distribution's own Python, whatever comes first in PATH.
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").args(arguments);
    run(command)
}

#[test]
fn copies_are_checked_both_ways() {
    let site = Site::new();
    let bytes = content(2201, 3 * MIB + 5);
    let source = site.scratch.file("source", &bytes);
    let target = site.scratch.join("target");
    gfal("gfal-copy", &["-f", "-K", "ADLER32", text(&source), &site.url("f")]).ok();
    assert_same(&fs::read(site.exported("f")).unwrap(), &bytes);
    gfal("gfal-copy", &["-K", "ADLER32", &site.url("f"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    // Made with their directory.
    gfal("gfal-copy", &["-p", text(&source), &site.url("x/y/f")]).ok();
    assert_same(&fs::read(site.exported("x/y/f")).unwrap(), &bytes);
    // Not replaced without being told to.
    let again = gfal("gfal-copy", &[text(&source), &site.url("f")]);
    assert_ne!(again.code, Some(0), "{}", again.describe());
}

#[test]
fn over_tls() {
    let site = Site::new();
    let bytes = content(2202, MIB);
    site.put("f", &bytes);
    let url = site.server.url_where("f", "https://127.0.0.1");
    let target = site.scratch.join("target");
    gfal("gfal-copy", &["-D", "HTTP PLUGIN:INSECURE=true", &url, text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
}

#[test]
fn checksums_in_every_spelling() {
    let site = Site::new();
    let bytes = content(2203, MIB);
    site.put("f", &bytes);
    for (kind, name) in
        [(ChecksumKind::Adler32, "ADLER32"), (ChecksumKind::Md5, "MD5"), (ChecksumKind::Crc32c, "crc32c")]
    {
        let outcome = gfal("gfal-sum", &[&site.url("f"), name]).ok();
        let said = outcome.text();
        let value = said.split_whitespace().last().unwrap_or_default();
        assert_eq!(value, checksum(kind, &bytes).hex(), "{name}: {}", outcome.describe());
    }
}

#[test]
fn names() {
    let site = Site::new();
    site.put("d/one", &content(2204, 1000));
    site.put("d/two words", b"x");
    fs::create_dir(site.exported("d/sub")).unwrap();
    let listed = gfal("gfal-ls", &["-l", &site.url("d/")]).ok().text();
    for (name, kind) in [("one", "-rw"), ("two words", "-rw"), ("sub", "drwx")] {
        let line = listed.lines().find(|line| line.trim_end().ends_with(name));
        assert!(line.is_some_and(|line| line.starts_with(kind)), "{name}: {listed}");
    }
    let stat = gfal("gfal-stat", &[&site.url("d/one")]).ok().text();
    assert!(stat.contains("Size: 1000") && stat.contains("regular file"), "{stat}");
    assert!(!stat.contains("Modify: 1970"), "{stat}");
    let stat = gfal("gfal-stat", &[&site.url("d")]).ok().text();
    assert!(stat.contains("directory"), "{stat}");
    gfal("gfal-cat", &[&site.url("d/two%20words")]).ok();

    gfal("gfal-mkdir", &[&site.url("made")]).ok();
    gfal("gfal-mkdir", &["-p", &site.url("made/of/parts")]).ok();
    assert!(site.exported("made/of/parts").is_dir());
    gfal("gfal-rename", &[&site.url("d/one"), &site.url("made/one")]).ok();
    assert!(site.exported("made/one").is_file() && !site.exported("d/one").exists());
    gfal("gfal-rm", &[&site.url("made/one")]).ok();
    assert!(!site.exported("made/one").exists());
    gfal("gfal-rm", &["-r", &site.url("made")]).ok();
    assert!(!site.exported("made").exists());
    let missing = gfal("gfal-stat", &[&site.url("missing")]);
    // ENOENT
    assert_eq!(missing.code, Some(2), "{}", missing.describe());
}

/// davix sends the same DELETE for rmdir as others do for a whole tree.
#[test]
fn rmdir_of_what_is_not_empty_can_be_refused() {
    let site = Site::new();
    site.put("d/f", b"x");
    let config = site.scratch.file(
        "serve.toml",
        format!(
            "[[export]]\npath = \"/\"\ndirectory = {:?}\nallow-write = true\ncompat = {{ refuse-recursive-delete = true }}\n",
            site.scratch.join("export")
        )
        .as_bytes(),
    );
    let mut command = crate::support::client::gridlane();
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--config", text(&config)]);
    let careful = crate::support::serve::Server::spawn(command);
    let refused = run({
        let mut command = tool("davix-rm", "davix");
        command.arg(careful.url("d/"));
        command
    });
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    assert!(site.exported("d/f").exists());
    gfal("gfal-rm", &["-r", &careful.url("d")]).ok();
    assert!(!site.exported("d").exists());
}
