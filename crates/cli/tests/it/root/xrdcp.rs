//! xrdcp, up and down.

use std::fs;

use super::Site;
use crate::support::client::text;
use crate::support::{assert_same, content};

#[test]
fn small_files() {
    let site = Site::new();
    for (name, size) in [("empty", 0), ("one", 1), ("page", 4096), ("million", 1_000_000)] {
        let bytes = content(3001, size);
        let source = site.scratch.file(&format!("here/{name}"), &bytes);
        site.xrdcp(&[text(&source), &site.url(name)]).ok();
        assert_same(&fs::read(site.exported(name)).unwrap(), &bytes);
        let target = site.scratch.join(format!("there-{name}"));
        site.xrdcp(&[&site.url(name), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), &bytes);
    }
}
