//! Files of 1 GB and of more than 4 GiB, up and down by xrdcp. They are mostly holes, and compared on the way.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Site, assert_same_files};
use crate::support::client::{Running, text};
use crate::support::tools::tool;
use crate::support::{content, is_long_run};

/// 4 GiB pass through two processes and a disk that others use too.
const LONG: Duration = Duration::from_secs(400);

const GIB: u64 = 1 << 30;

/// A file with holes and some blocks of data: at both ends, across page borders, and where 31, 32 and 33 bits end.
fn sparse(path: &Path, size: u64) {
    let file = fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    let places = [0, 123_456_789, GIB / 2, 2 * GIB - 5000, 4 * GIB - 3, 4 * GIB + 100_001, size - 10_007];
    for (seed, at) in (3100..).zip(places) {
        if at < size {
            let block = content(seed, 10_007);
            let len = block.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
            file.write_all_at(&block[..len], at).unwrap();
        }
    }
}

fn up(site: &Site, name: &str, size: u64, pages: &str) -> PathBuf {
    let source = site.scratch.join(name);
    sparse(&source, size);
    let mut up = site.xrdcp_command(&[text(&source), &site.url(name)]);
    up.env("XRD_CPUSEPGWRTRD", pages);
    Running::start(up).wait_within(LONG).ok();
    assert_eq!(fs::metadata(site.exported(name)).unwrap().len(), size);
    assert_same_files(&source, &site.exported(name));
    source
}

/// With page checksums.
#[test]
fn a_gigabyte() {
    let (site, name) = (Site::new(), "1GB");
    let source = up(&site, name, 1_000_000_000, "1");
    let mut down = site.xrdcp_command(&[&site.url(name), "-"]);
    down.env("XRD_CPUSEPGWRTRD", "1").stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut down = down.spawn().unwrap();
    let mut compare: Command = tool("cmp", "diffutils");
    compare.arg(&source).arg("-").stdin(down.stdout.take().unwrap());
    Running::start(compare).wait_within(LONG).ok();
    assert!(down.wait().unwrap().success());
}

/// Down from shortly before 4 GiB on, as far as 32 bits do not reach.
#[test]
fn across_four_gibibytes() {
    let (site, name) = (Site::new(), "4GiB");
    let size = 4 * GIB + 50_012_345;
    let source = site.exported(name);
    sparse(&source, size);
    site.give();
    let target = site.scratch.join("target");
    sparse(&target, size);
    fs::File::options().write(true).open(&target).unwrap().set_len(4 * GIB - 50_000_000).unwrap();
    site.xrdcp(&["--continue", &site.url(name), text(&target)]).ok();
    assert_same_files(&source, &target);
}

/// Up. All that is beyond 4 GiB takes half a minute of processor time, which `make test-long` has.
#[test]
fn without_checksums_of_pages() {
    let size = if is_long_run() { 4 * GIB } else { 0 } + 250_012_345;
    up(&Site::new(), "large", size, "0");
}
