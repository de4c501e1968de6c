//! rclone, over WebDAV in the flavours that it knows, and over plain http.

use std::fs;
use std::process::Command;

use super::Site;
use crate::support::client::{Outcome, run, text};
use crate::support::tools::tool;
use crate::support::tree::{assert_same_trees, tree};
use crate::support::{assert_same, content};

/// rclone with a remote `r:` of this kind at the site.
fn rclone(site: &Site, settings: &[(&str, &str)], arguments: &[&str]) -> Outcome {
    let mut command: Command = tool("rclone", "rclone");
    command.env("RCLONE_CONFIG", site.scratch.join("rclone.conf")).env("RCLONE_CONFIG_R_URL", site.url(""));
    for (name, value) in settings {
        command.env(format!("RCLONE_CONFIG_R_{name}"), value);
    }
    command.args(["--retries", "1", "--low-level-retries", "1"]).args(arguments);
    run(command)
}

#[test]
fn webdav() {
    for vendor in ["other", "owncloud", "nextcloud"] {
        let site = Site::new();
        let here = tree(&site.scratch);
        let dav = [("TYPE", "webdav"), ("VENDOR", vendor)];
        rclone(&site, &dav, &["copy", "--create-empty-src-dirs", text(&here), "r:up"]).ok();
        assert_same_trees(&here, &site.exported("up"));
        rclone(&site, &dav, &["check", "--download", text(&here), "r:up"]).ok();
        // Nothing is copied a second time: sizes are those that were sent.
        let again = rclone(&site, &dav, &["copy", "--size-only", "-v", text(&here), "r:up"]).ok();
        assert!(!again.stderr.contains("Copied"), "{vendor}: {}", again.describe());
        let down = site.scratch.join("down");
        rclone(&site, &dav, &["copy", "--create-empty-src-dirs", "r:up", text(&down)]).ok();
        assert_same_trees(&here, &down);
        let listed = rclone(&site, &dav, &["lsf", "-R", "r:up"]).ok().text();
        assert_eq!(listed.lines().filter(|line| !line.ends_with('/')).count(), 40, "{listed}");
        rclone(&site, &dav, &["moveto", "r:up/dir 0", "r:up/dir 9"]).ok();
        assert!(site.exported("up/dir 9").is_dir() && !site.exported("up/dir 0").exists());
        rclone(&site, &dav, &["copyto", "r:up/dir 9/sub/file ü 0", "r:up/copied"]).ok();
        assert_same(&fs::read(site.exported("up/copied")).unwrap(), &content(0, 1));
        rclone(&site, &dav, &["deletefile", "r:up/copied"]).ok();
        rclone(&site, &dav, &["purge", "r:up"]).ok();
        assert!(!site.exported("up").exists());
        let about = rclone(&site, &dav, &["about", "r:"]).ok().text();
        assert!(about.contains("Free:"), "{vendor}: {about}");
    }
}

/// Of unknown length, so chunked.
#[test]
fn streams() {
    let site = Site::new();
    let bytes = content(2301, 1_000_003);
    let source = site.scratch.file("source", &bytes);
    let mut command = tool("rclone", "rclone");
    command
        .env("RCLONE_CONFIG", site.scratch.join("rclone.conf"))
        .env("RCLONE_CONFIG_R_URL", site.url(""))
        .env("RCLONE_CONFIG_R_TYPE", "webdav")
        .env("RCLONE_CONFIG_R_VENDOR", "owncloud")
        .args(["rcat", "r:stream"])
        .stdin(fs::File::open(&source).unwrap());
    run(command).ok();
    assert_same(&fs::read(site.exported("stream")).unwrap(), &bytes);
}

/// Times, and checksums where the server tells them.
#[test]
fn owncloud_times_and_hashes() {
    let site = Site::new();
    let bytes = content(2302, 100_000);
    let source = site.scratch.file("here/f", &bytes);
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&source).unwrap().set_modified(then).unwrap();
    let dav = [("TYPE", "webdav"), ("VENDOR", "owncloud")];
    rclone(&site, &dav, &["copy", text(source.parent().unwrap()), "r:"]).ok();
    assert_eq!(fs::metadata(site.exported("f")).unwrap().modified().unwrap(), then);
    let again = rclone(&site, &dav, &["copy", "-v", text(source.parent().unwrap()), "r:"]).ok();
    assert!(!again.stderr.contains("Copied"), "{}", again.describe());
}

/// The `http` back end reads our pages of links.
#[test]
fn http() {
    let site = Site::new();
    let here = tree(&site.scratch);
    let copied =
        std::process::Command::new("cp").arg("-r").arg(&here).arg(site.exported("up")).status().unwrap();
    assert!(copied.success());
    let down = site.scratch.join("down");
    rclone(&site, &[("TYPE", "http")], &["copy", "--create-empty-src-dirs", "r:up", text(&down)]).ok();
    assert_same_trees(&here, &down);
}
