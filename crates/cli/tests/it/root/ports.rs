//! One port speaks HTTP, HTTPS, root:// and roots://, and all of them see the same files.

use std::fs;

use gridlane_core::ChecksumKind;

use super::Site;
use crate::support::client::text;
use crate::support::tools::run_curl;
use crate::support::{MIB, assert_same, checksum, content};

#[test]
fn four_protocols_on_one_port() {
    let site = Site::ours(&["--allow-write"]);
    let server = site.gridlane();
    let (http, https) = (server.url(""), server.url_over("https", ""));
    let port = |url: &str| url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    assert_eq!(port(&http), port(&https));
    assert!(site.authority().ends_with(&port(&http)));
    let ca = server.ca();
    let target = site.scratch.join("target");
    // Uploaded by each, read by each.
    for (seed, by) in (3501..).zip(["http", "https", "root", "roots"]) {
        let bytes = content(seed, 2 * MIB + 7);
        let source = site.scratch.file("source", &bytes);
        let name = format!("by {by}");
        let escaped = format!("by%20{by}");
        let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
        match by {
            "http" | "https" => {
                let url = server.url_over(by, &escaped);
                run_curl(&["--fail", "--cacert", text(&ca), "-T", text(&source), &url]).ok();
            }
            _ => drop(site.xrdcp(&["--cksum", "adler32", text(&source), &site.url_over(by, &name)]).ok()),
        }
        assert_same(&site.read(&name), &bytes);
        for scheme in ["http", "https"] {
            let url = server.url_over(scheme, &escaped);
            let got = run_curl(&["--fail", "--cacert", text(&ca), &url]).ok();
            assert_same(&got.stdout, &bytes);
            let head = run_curl(&["--cacert", text(&ca), "-I", "-H", "Want-Digest: adler32", &url]).ok();
            assert!(head.text().contains(&format!("adler32={adler32}")), "{}", head.describe());
        }
        for scheme in ["root", "roots"] {
            let url = site.url_over(scheme, &name);
            site.xrdcp(&["-f", "--cksum", "adler32:source", &url, text(&target)])
                .ok()
                .says(&[&format!("adler32: {adler32} root")]);
            assert_same(&fs::read(&target).unwrap(), &bytes);
        }
    }
    // What one changes the others do not remember as it was.
    let bytes = content(3510, MIB);
    let source = site.scratch.file("source", &bytes);
    site.xrdcp(&["-f", text(&source), &site.url("by http")]).ok();
    let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
    let url = server.url("by%20http");
    let head = run_curl(&["-I", "-H", "Want-Digest: adler32", &url]).ok();
    assert!(head.text().contains(&format!("adler32={adler32}")), "{}", head.describe());
    site.xrdfs(&["truncate", "/by http", "1000"]).ok();
    let adler32 = checksum(ChecksumKind::Adler32, &bytes[..1000]).hex();
    let head = run_curl(&["-I", "-H", "Want-Digest: adler32", &url]).ok();
    assert!(head.text().contains(&format!("adler32={adler32}")), "{}", head.describe());
    run_curl(&["--fail", "-X", "DELETE", &url]).ok();
    super::assert_refused(site.xrdfs(&["stat", "/by http"]), &[3011], &["no such file"]);
}

/// An upload that is not complete shows in none of them.
#[test]
fn the_server_lists_what_it_speaks() {
    let site = Site::ours(&[]);
    for scheme in ["http", "https", "root", "roots"] {
        let url = site.gridlane().url_where("", &format!("{scheme}://"));
        assert!(url.starts_with(scheme), "{url}");
    }
}
