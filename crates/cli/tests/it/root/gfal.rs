//! gfal2's commands over root://, through its plug-in.

use std::fs;

use gridlane_core::ChecksumKind;

use super::Site;
use crate::support::client::{Outcome, run, text};
use crate::support::tools::tool;
use crate::support::{MIB, assert_same, checksum, content};

fn gfal(site: &Site, name: &str, arguments: &[&str]) -> Outcome {
    let mut command = site.prepare(tool(name, "gfal2-util-scripts"));
    // They are scripts for the distribution's own Python, whatever comes first in PATH.
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").args(arguments);
    run(command)
}

#[test]
fn copies() {
    let site = Site::new();
    let bytes = content(3701, 3 * MIB + 5);
    let source = site.scratch.file("source", &bytes);
    let target = site.scratch.join("target");
    gfal(&site, "gfal-copy", &["-f", "-K", "ADLER32", text(&source), &site.url("f")]).ok();
    assert_same(&site.read("f"), &bytes);
    gfal(&site, "gfal-copy", &["-K", "ADLER32", &site.url("f"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    gfal(&site, "gfal-copy", &["-p", text(&source), &site.url("x/y/f")]).ok();
    assert_same(&site.read("x/y/f"), &bytes);
    // EEXIST
    gfal(&site, "gfal-copy", &[text(&source), &site.url("f")]).exits(17);
    gfal(&site, "gfal-copy", &["-f", &site.url_over("roots", "f"), text(&target)]).ok();

    let here = site.scratch.dir("here");
    site.scratch.file("here/a", b"a");
    site.scratch.file("here/sub/b", b"bb");
    gfal(&site, "gfal-copy", &["-r", text(&here), &site.url("tree")]).ok();
    assert_eq!(site.read("tree/sub/b"), b"bb");
    let back = site.scratch.join("back");
    gfal(&site, "gfal-copy", &["-r", &site.url("tree"), &format!("file://{}", text(&back))]).ok();
    assert_eq!(fs::read(back.join("sub/b")).unwrap(), b"bb");
}

#[test]
fn checksums() {
    let site = Site::new();
    let bytes = content(3702, MIB);
    site.put("f", &bytes);
    for (kind, name) in
        [(ChecksumKind::Adler32, "ADLER32"), (ChecksumKind::Md5, "MD5"), (ChecksumKind::Crc32c, "crc32c")]
    {
        let outcome = gfal(&site, "gfal-sum", &[&site.url("f"), name]).ok();
        let said = outcome.text();
        let value = said.split_whitespace().last().unwrap_or_default();
        assert_eq!(value, checksum(kind, &bytes).hex(), "{name}: {}", outcome.describe());
    }
}

#[test]
fn commands() {
    let site = Site::new();
    site.put("d/one", &content(3703, 1000));
    site.put("d/two words", b"words\n");
    fs::create_dir(site.exported("d/sub")).unwrap();
    site.give();
    let url = |path: &str| site.url(path);
    let listed = gfal(&site, "gfal-ls", &["-l", &url("d")]).ok().text();
    for (name, kind) in [("one", "-rw"), ("two words", "-rw"), ("sub", "drwx")] {
        let line = listed.lines().find(|line| line.trim_end().ends_with(name));
        assert!(line.is_some_and(|line| line.starts_with(kind)), "{name}: {listed}");
    }
    let stat = gfal(&site, "gfal-stat", &[&url("d/one")]).ok().text();
    assert!(stat.contains("Size: 1000") && stat.contains("regular file"), "{stat}");
    assert!(stat.contains("Modify: 20"), "{stat}");
    gfal(&site, "gfal-stat", &[&url("d")]).ok().says(&["directory"]);
    assert_eq!(gfal(&site, "gfal-cat", &[&url("d/two words")]).ok().text().trim_end(), "words");
    let mut save = site.prepare(tool("gfal-save", "gfal2-util-scripts"));
    let saved = site.scratch.file("saved", b"saved");
    save.env("GFAL_PYTHONBIN", "/usr/bin/python3").arg(url("d/saved"));
    save.stdin(fs::File::open(&saved).unwrap());
    run(save).ok();
    assert_eq!(site.read("d/saved"), b"saved");

    gfal(&site, "gfal-mkdir", &[&url("made")]).ok();
    gfal(&site, "gfal-mkdir", &["-p", &url("made/of/parts")]).ok();
    assert!(site.exported("made/of/parts").is_dir());
    gfal(&site, "gfal-rename", &[&url("d/one"), &url("made/one")]).ok();
    assert!(site.exported("made/one").is_file() && !site.exported("d/one").exists());
    gfal(&site, "gfal-chmod", &["600", &url("made/one")]).ok();
    let said = gfal(&site, "gfal-xattr", &[&url("made/one")]).ok().text();
    assert!(said.contains("xroot.cksum = adler32 ") && said.contains("spacetoken = "), "{said}");
    gfal(&site, "gfal-rm", &[&url("made/one")]).ok();
    assert!(!site.exported("made/one").exists());
    // EISDIR, ENOENT, EEXIST
    gfal(&site, "gfal-rm", &[&url("made")]).exits(21);
    gfal(&site, "gfal-stat", &[&url("missing")]).exits(2);
    gfal(&site, "gfal-cat", &[&url("missing")]).exits(2);
    gfal(&site, "gfal-mkdir", &[&url("made")]).exits(17);
    gfal(&site, "gfal-rm", &["-r", &url("made")]).ok();
    assert!(!site.exported("made").exists());
}

/// Nothing is on tape, so everything is online.
#[test]
fn files_are_brought_online() {
    let site = Site::new();
    site.put("d/f", b"x");
    let said = gfal(&site, "gfal-bringonline", &[&site.url("d/f")]).ok().text();
    assert!(said.contains("QUEUED") || said.contains("ONLINE"), "{said}");
    if site.is_ours() {
        // XRootD's answer is none that gfal2 understands.
        let asked = ["--polling-timeout", "30", &site.url("d/f")];
        let said = gfal(&site, "gfal-bringonline", &asked).ok().text();
        assert!(!said.contains("FAILED"), "{said}");
    }
    gfal(&site, "gfal-evict", &[&site.url("d/f")]).ok();
}
