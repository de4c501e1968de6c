//! `gridlane` logs in to Debian's XRootD by certificate: gsi over root://.

use std::fs;
use std::sync::Arc;

use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::pki::{Credential, Pki, Rfc3820};
use crate::support::voms::VomsProxy;
use crate::support::xrootd::Xrootd;
use crate::support::xrootd_auth;
use crate::support::{assert_copied, content};

/// Not allowed, says `gridlane`.
const DENIED: i32 = 4;

/// A server, its people, and what a copy is made of.
struct Site {
    pki: Pki,
    server: Xrootd,
    bytes: Arc<Vec<u8>>,
}

impl Site {
    fn new(pki: Pki, server: Xrootd, seed: u64) -> Site {
        let bytes = content(seed, 3_000_000);
        server.put("vo/f", &bytes);
        server.put("vo/other", b"other");
        Site { pki, server, bytes }
    }

    fn url(&self, path: &str) -> String {
        self.server.url_over("root", path)
    }

    fn run(&self, credential: Option<&Credential>, arguments: &[&str]) -> Outcome {
        let mut command = gridlane();
        command.args(arguments).env("X509_CERT_DIR", self.pki.certificates());
        if let Some(credential) = credential {
            command.env("X509_USER_PROXY", &credential.file);
        }
        run(command)
    }

    /// Asserts that everything that a client does is done for this one.
    #[track_caller]
    fn does_everything(&self, who: &Credential) {
        let (url, up, dir) = (self.url("vo/f"), self.url("vo/up"), self.url("vo/dir"));
        let (got, local) = (self.pki.join("got"), self.pki.join("local"));
        fs::write(&local, &*self.bytes).unwrap();
        self.run(Some(who), &["cp", "-f", &url, text(&got)]).ok();
        assert_copied(&got, &self.bytes);
        self.run(Some(who), &["ls", &self.url("vo/")]).ok().says(&["f", "other"]);
        self.run(Some(who), &["stat", &url]).ok().says(&["3000000"]);
        self.run(Some(who), &["checksum", "--type", "adler32", &url]).ok();
        self.run(Some(who), &["cp", text(&local), &up]).ok();
        assert_eq!(fs::read(self.server.exported("vo/up")).unwrap(), *self.bytes);
        self.run(Some(who), &["mkdir", &dir]).ok();
        assert!(self.server.exported("vo/dir").is_dir());
        self.run(Some(who), &["mv", &up, &self.url("vo/dir/up")]).ok();
        self.run(Some(who), &["rm", "-r", &dir]).ok();
        assert!(!self.server.exported("vo/dir").exists());
    }
}

#[test]
fn a_proxy_with_attributes_opens_what_its_vo_may() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7301);
    let member = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).make("member");
    let admin = VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane/Role=admin"]).make("admin");
    site.does_everything(&admin);
    let url = site.url("vo/f");
    site.run(Some(&member), &["stat", &url]).ok().says(&["3000000"]);
    let outcome = site.run(Some(&member), &["rm", &url]).exits(DENIED);
    outcome.says(&["the request was made with the proxy of", "member.pem"]);
    let handed = site.pki.join("many");
    fs::create_dir(&handed).unwrap();
    site.run(Some(&member), &["cp", "-r", &site.url("vo/"), text(&handed)]).ok();
    let limited = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).limited().make("limited");
    site.run(Some(&limited), &["stat", &url]).ok();
    site.run(Some(&admin), &["probe", &site.url("vo/")]).ok().says(&["login by gsi", "admin.pem"]);
    site.run(Some(&member), &["doctor", &url]).says(&["login by gsi"]);
}

#[test]
fn a_login_that_is_refused_says_why() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7302);
    let url = site.url("vo/f");
    let stat = |who: Option<&Credential>| {
        let outcome = site.run(who, &["stat", &url]);
        println!("{}", outcome.describe());
        outcome
    };
    stat(None);
    let expired = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).expired().make("expired");
    stat(Some(&expired));
    let without = VomsProxy::of(&site.pki, "eve", "other", &["/other"]).make("without");
    stat(Some(&without));
    let old = VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane"]).with_expired_attributes().make("old");
    stat(Some(&old));
    let ec = site.pki.proxy("ec", &site.pki.credential("ada"), Rfc3820::FULL);
    stat(Some(&ec));
    site.pki.revoke("ada");
    for who in ["ada", "ada-ecdsa", "bob", "stranger-ada", "revoked", "future"] {
        println!("== {who}");
        stat(Some(&site.pki.credential(who)));
    }
    panic!("{}", site.server.log());
}
