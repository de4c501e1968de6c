//! pyxrootd, XRootD's client for Python, old and new: the script beside this file does everything that it can do.

use std::process::Command;

use super::Site;
use crate::support::client::{Running, text};
use crate::support::{MIB, content, python};

/// Over both schemes, with a local file that it copies.
fn everything(site: &Site, mut script: Command) {
    let source = site.scratch.file("source", &content(3601, 3 * MIB + 19));
    script.arg(&source).args([site.url_over("root", ""), site.url_over("roots", "")]);
    let outcome = Running::start(site.prepare(script)).wait().ok();
    assert!(outcome.text().ends_with("all of it\n"), "{}", outcome.describe());
    for scheme in ["root", "roots"] {
        let kept = site.exported(&format!("{scheme}/kept"));
        assert_eq!(std::fs::read(&kept).unwrap(), b"0123456789\0\0\0\0\0ab", "{}", text(&kept));
    }
}

#[test]
fn debian() {
    everything(&Site::new(), python::debian("root/pyxrootd.py"));
}

#[test]
fn newest() {
    everything(&Site::new(), python::pypi("root/pyxrootd.py"));
}
