//! cadaver, a WebDAV client for people at a prompt.

use std::fs;
use std::process::Stdio;

use super::Site;
use crate::support::client::{Running, text};
use crate::support::tools::tool;
use crate::support::{assert_same, content};

/// Says these lines at its prompt.
fn cadaver(site: &Site, lines: &[String]) -> String {
    let script = site.scratch.file("script", (lines.join("\n") + "\nquit\n").as_bytes());
    let mut command = tool("cadaver", "cadaver");
    command
        .arg(site.url(""))
        .env("HOME", site.scratch.path())
        .current_dir(site.scratch.path())
        .stdin(Stdio::from(fs::File::open(&script).unwrap()));
    let outcome = Running::start(command).wait().ok();
    let said = outcome.text();
    assert!(!said.contains("failed:"), "{}", outcome.describe());
    said
}

#[test]
fn a_session() {
    let site = Site::new();
    let bytes = content(2401, 100_001);
    let source = site.scratch.file("source", &bytes);
    let lines = [
        format!("put {} one", text(&source)),
        "mkcol dir".to_owned(),
        "copy one dir/two".to_owned(),
        "move one dir/three".to_owned(),
        "ls dir".to_owned(),
        "cd dir".to_owned(),
        format!("get two {}", text(&site.scratch.join("back"))),
        "propget two getcontentlength".to_owned(),
        "delete three".to_owned(),
    ];
    let said = cadaver(&site, &lines);
    assert!(said.contains("two") && said.contains("100001"), "{said}");
    assert_same(&fs::read(site.scratch.join("back")).unwrap(), &bytes);
    assert_same(&fs::read(site.exported("dir/two")).unwrap(), &bytes);
    assert!(!site.exported("one").exists() && !site.exported("dir/three").exists());
    cadaver(&site, &["rmcol dir".to_owned()]);
    assert!(!site.exported("dir").exists());
}
