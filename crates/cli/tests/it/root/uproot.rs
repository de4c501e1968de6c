//! uproot reads real data by branch over root://, and fsspec-xrootd, which it brings, removes trees.

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
    let mut script = python::pypi("root/uproot_branches.py");
    // fsspec has no roots://.
    script.arg(data()).arg(site.url("d/HZZ.root"));
    let outcome = Running::start(site.prepare(script)).wait().ok();
    assert!(outcome.text().ends_with("all of it\n"), "{}", outcome.describe());
}

/// It removes directories by `rm`, as XRootD's server lets it.
#[test]
fn a_tree_is_removed_by_fsspec() {
    let site = Site::new();
    for name in ["t/a", "t/b/c", "t/b/d/e", "kept"] {
        site.put(name, b"x");
    }
    let mut script = python::pypi("root/fsspec_rm.py");
    script.arg(site.url("")).arg("/t");
    let outcome = Running::start(site.prepare(script)).wait().ok();
    assert!(outcome.text().ends_with("removed\n"), "{}", outcome.describe());
    assert!(!site.exported("t").exists() && site.exported("kept").is_file());
}
