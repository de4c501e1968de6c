//! uproot reads real data by branch over root://.

use std::fs;
use std::path::PathBuf;

use super::Site;
use crate::support::client::Running;
use crate::support::python;

/// A CMS tutorial file in the format of ROOT, which the demo has too.
fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo/data/uproot-HZZ.root")
}

#[test]
fn every_branch() {
    let site = Site::new();
    site.put("d/HZZ.root", &fs::read(data()).unwrap());
    let mut script = python::pypi("root/uproot.py");
    script.arg(data());
    for scheme in ["root", "roots"] {
        script.arg(site.url_over(scheme, "d/HZZ.root"));
    }
    let outcome = Running::start(site.prepare(script)).wait().ok();
    assert!(outcome.text().ends_with("all of it\n"), "{}", outcome.describe());
}
