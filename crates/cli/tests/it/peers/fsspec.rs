//! fsspec, on which dask and pandas sit, over plain HTTP: it takes the links of a page as they are.

use super::Site;
use crate::support::client::Running;
use crate::support::python;

#[test]
fn lists_and_globs_by_the_links_of_a_page() {
    let site = Site::new();
    for (name, bytes) in [("a 1.root", b"a"), ("b:2.root", b"b"), ("c.txt", b"c"), ("sub/d.root", b"d")] {
        site.put(&format!("data/{name}"), bytes);
    }
    let mut script = python::fsspec("peers/fsspec_http.py");
    script.arg(site.url("data/"));
    let outcome = Running::start(script).wait().ok();
    assert!(outcome.text().ends_with("all of it\n"), "{}", outcome.describe());
}
