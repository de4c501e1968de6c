//! Replicas of one file over different protocols in one copy: xrootd's root://, our https://, nginx's https://.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::{random, server_with, wrong};
use crate::support::client::{Running, cp_from, run};
use crate::support::nginx::Nginx;
use crate::support::relay::{Relay, Ways};
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, Scratch, assert_copied, occupied_bytes, part_of, until};

struct Site {
    scratch: Scratch,
    bytes: Arc<Vec<u8>>,
    xrootd: Xrootd,
    gridlane: Server,
    nginx: Nginx,
    target: PathBuf,
}

impl Site {
    fn new(seed: u64, size: usize, at_xrootd: impl Fn(&[u8]) -> Vec<u8>) -> Site {
        let scratch = Scratch::new();
        let bytes = random(seed, size);
        let dir = scratch.dir("export");
        fs::write(dir.join("f"), &*bytes).unwrap();
        let (xrootd, gridlane) = (server_with(&at_xrootd(&bytes)), Server::start(&dir));
        let nginx = Nginx::start(&dir);
        let target = scratch.join("f");
        Site { scratch, bytes, xrootd, gridlane, nginx, target }
    }

    fn sources(&self) -> Vec<String> {
        vec![self.xrootd.url("f"), self.gridlane.url_over("https", "f"), self.nginx.tls_url("f")]
    }

    fn copy(&self, sources: &[String]) -> std::process::Command {
        let authorities = [self.gridlane.ca(), self.nginx.ca(), self.xrootd.ca()];
        let all: Vec<u8> = authorities.iter().flat_map(|file| fs::read(file).unwrap()).collect();
        let ca = self.scratch.file("ca.pem", &all);
        let mut command = cp_from(sources, &self.target);
        command.arg("--ca").arg(ca).args(["--limit-rate", "24MB/s"]);
        command
    }
}

#[test]
fn all_three_give_their_part() {
    let site = Site::new(21, 48 * MIB, <[u8]>::to_vec);
    let outcome = run(site.copy(&site.sources())).ok().verified(true);
    assert_copied(&site.target, &site.bytes);
    for url in site.sources() {
        let bytes = outcome.source(&url)["bytes"].as_u64().unwrap();
        assert!(bytes > MIB as u64, "{url}\n{}", outcome.describe());
    }
}

#[test]
fn roots_is_one_of_them() {
    let site = Site::new(22, 32 * MIB, <[u8]>::to_vec);
    let sources = [site.xrootd.url_over("roots", "f"), site.gridlane.url_over("https", "f")];
    let outcome = run(site.copy(&sources)).ok().verified(true);
    assert_copied(&site.target, &site.bytes);
    for url in &sources {
        let bytes = outcome.source(url)["bytes"].as_u64().unwrap();
        assert!(bytes > MIB as u64, "{url}\n{}", outcome.describe());
    }
}

#[test]
fn the_https_one_can_be_killed() {
    let mut site = Site::new(23, 96 * MIB, <[u8]>::to_vec);
    let mut copy = Running::start(site.copy(&site.sources()));
    until("some has arrived", || {
        assert!(copy.is_running(), "it ended before a server could be killed");
        occupied_bytes(&part_of(&site.target)) >= 8 * MIB as u64
    });
    let killed = site.gridlane.url_over("https", "f");
    site.gridlane.kill();
    let outcome = copy.wait().ok();
    assert_copied(&site.target, &site.bytes);
    assert!(!outcome.source(&killed)["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn the_root_one_can_be_killed() {
    let mut site = Site::new(24, 96 * MIB, <[u8]>::to_vec);
    let mut copy = Running::start(site.copy(&site.sources()));
    until("some has arrived", || {
        assert!(copy.is_running(), "it ended before a server could be killed");
        occupied_bytes(&part_of(&site.target)) >= 8 * MIB as u64
    });
    site.xrootd.kill();
    let outcome = copy.wait().ok();
    assert_copied(&site.target, &site.bytes);
    assert!(!outcome.source(&site.xrootd.url("f"))["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn the_root_one_can_have_another_file() {
    let site = Site::new(25, 32 * MIB, wrong);
    let dir = site.scratch.join("export");
    let second = Server::start(&dir);
    let sources = [site.xrootd.url("f"), site.gridlane.url("f"), second.url("f")];
    let outcome = run(site.copy(&sources)).ok().verified(true);
    assert_copied(&site.target, &site.bytes);
    assert!(!outcome.source(&sources[0])["error"].is_null(), "{}", outcome.describe());
}

#[test]
fn our_server_gives_over_root_what_xrootd_gives() {
    let site = Site::new(26, 48 * MIB, <[u8]>::to_vec);
    let ours = |scheme: &str| site.gridlane.url_over(scheme, "/f");
    let sources = [site.xrootd.url("f"), ours("root"), ours("roots"), site.gridlane.url_over("https", "f")];
    let outcome = run(site.copy(&sources)).ok().verified(true);
    assert_copied(&site.target, &site.bytes);
    for url in &sources {
        let bytes = outcome.source(url)["bytes"].as_u64().unwrap();
        assert!(bytes > MIB as u64, "{url}\n{}", outcome.describe());
    }
}

#[test]
fn a_damaged_page_from_our_server_is_mended_as_well() {
    let site = Site::new(27, 24 * MIB, <[u8]>::to_vec);
    let url = site.gridlane.url_over("root", "");
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let relay = Relay::to(port, Ways { damages: 2, ..Ways::default() });
    let outcome = run(site.copy(&[relay.url("root", "f")])).ok().verified(true);
    assert_copied(&site.target, &site.bytes);
    assert_eq!(relay.damaged(), 2, "{}", outcome.describe());
}
