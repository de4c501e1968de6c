//! aria2c: several connections, and the metalinks that `serve` tells of its files.

use std::fs;

use super::Site;
use crate::support::client::{Outcome, run, text};
use crate::support::tools::{run_curl, tool};
use crate::support::{MIB, assert_same, content, until};

fn aria2(site: &Site, into: &str, arguments: &[&str]) -> Outcome {
    let mut command = tool("aria2c", "aria2");
    command.args(["--no-conf", "--disable-ipv6", "--console-log-level=warn", "--summary-interval=0"]);
    command.args(["--auto-file-renaming=false", "--dir", text(&site.scratch.dir(into))]).args(arguments);
    run(command)
}

#[test]
fn several_connections() {
    let site = Site::new();
    let bytes = content(2501, 9 * MIB + 1);
    site.put("f", &bytes);
    aria2(&site, "a", &["-x4", "-s4", "-k1M", &site.url("f")]).ok();
    assert_same(&fs::read(site.scratch.join("a/f")).unwrap(), &bytes);
    let url = site.server.url_where("f", "https://127.0.0.1");
    let ca = site.server.ca();
    aria2(&site, "b", &["-x4", "-s4", "-k1M", "--ca-certificate", text(&ca), &url]).ok();
    assert_same(&fs::read(site.scratch.join("b/f")).unwrap(), &bytes);
}

/// The metalink that the server makes of a file, as a file: with a wrong byte in the export, its hash tells.
#[test]
fn metalinks() {
    let site = Site::new();
    let bytes = content(2502, 3 * MIB);
    site.put("f", &bytes);
    for (accept, name) in
        [("application/metalink4+xml", "f.meta4"), ("application/metalink+xml", "f.metalink")]
    {
        let link = site.scratch.join(name);
        // The hash is sent once it is known: a request for it has it made, and it is remembered as soon as the file has
        // been left alone for a moment.
        until("the hash is known", || {
            run_curl(&["--fail", "--head", "-H", "Want-Digest: sha-256", &site.url("f")]).ok();
            run_curl(&["--fail", "-H", &format!("Accept: {accept}"), "-o", text(&link), &site.url("f")]).ok();
            let told = fs::read_to_string(&link).unwrap();
            assert!(told.contains(&site.url("f")), "{told}");
            told.contains("sha-256") || told.contains("sha256")
        });
        aria2(&site, name.trim_start_matches("f."), &["--metalink-file", text(&link)]).ok();
        assert_same(&fs::read(site.scratch.join(name.trim_start_matches("f.")).join("f")).unwrap(), &bytes);
    }
    let link = site.scratch.join("f.meta4");
    let mut damaged = bytes.to_vec();
    damaged[MIB] ^= 1;
    site.put("f", &damaged);
    let outcome = aria2(&site, "damaged", &["--metalink-file", text(&link)]);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
}

/// A list of small files over connections that are kept.
#[test]
fn many_small_files() {
    let site = Site::new();
    let mut list = String::new();
    for number in 0..200_u64 {
        site.put(&format!("many/{number}"), &content(number, 1000));
        list += &format!("{}\n", site.url(&format!("many/{number}")));
    }
    let list = site.scratch.file("list", list.as_bytes());
    aria2(&site, "many", &["-j16", "-i", text(&list)]).ok();
    for number in 0..200_u64 {
        let copied = site.scratch.join(format!("many/{number}"));
        assert_same(&fs::read(copied).unwrap(), &content(number, 1000));
    }
}
