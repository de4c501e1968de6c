//! XCache, XRootD's read cache, with a `roots://` origin: it reads pages with checksums over TLS, which xrdcp does not.

use std::fs;

use super::Site;
use crate::support::client::{run, text};
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, Scratch, assert_same, content, secrets, until};

/// The value of a metric of the server, summed over its labels.
fn metric(site: &Site, name: &str) -> u64 {
    let mut found = Vec::new();
    until(&format!("{name} is told"), || {
        let (_, page) = secrets::metrics(&site.gridlane().admin());
        let page = String::from_utf8_lossy(&page).into_owned();
        let lines = page.lines().filter(|line| line.starts_with(name));
        found = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).collect();
        !found.is_empty()
    });
    found.iter().sum()
}

/// With pages that cross records of TLS its client draws each byte twice, most of them page by page, and gives some of them
/// wrong to its own clients.
#[test]
fn each_byte_is_drawn_once() {
    let site = Site::ours(&["--admin", "127.0.0.1:0"]);
    let bytes = content(3801, 24 * MIB + 77);
    site.put("d/f", &bytes);
    let cache = Xrootd::cache_of(&format!("roots://{}", site.authority()), &site.gridlane().ca());
    let scratch = Scratch::new();
    let target = scratch.join("target");
    let mut copy = site.prepare(crate::support::tools::tool("xrdcp", "xrootd-client"));
    copy.args(["--nopbar", &cache.url("d/f"), text(&target)]);
    run(copy).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    let (sent, pgreads) = (
        metric(&site, "gridlane_root_sent_bytes_total "),
        metric(&site, "gridlane_root_requests_total{request=\"pgread\""),
    );
    assert!(pgreads > 0, "it has read in another way");
    let len = bytes.len() as u64;
    assert!(sent >= len && sent < len / 20 * 21, "{sent} bytes sent of {len}");
    assert!(pgreads < len / (64 * 1024), "{pgreads} requests");
}
