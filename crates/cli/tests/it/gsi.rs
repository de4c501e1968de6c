//! `gridlane` logs in to Debian's XRootD by certificate: gsi over root://.

use std::fs;
use std::sync::Arc;

use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::pki::{CA_DN, Credential, Pki, Rfc3820};
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
        self.run(Some(who), &["cp", "--force", &url, text(&got)]).ok();
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
    site.run(Some(&admin), &["probe", &site.url("vo/")]).ok().says(&["with the proxy of", "admin.pem"]);
    site.run(Some(&member), &["doctor", &url]).says(&["login by gsi"]);
}

/// XRootD says nothing of why it refuses a certificate; what can be seen from here is said.
#[test]
fn a_login_that_is_refused_says_why() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7302);
    let url = site.url("vo/f");
    let says = |who: Option<&Credential>, words: &[&str]| {
        drop(site.run(who, &["stat", &url]).exits(DENIED).says(words))
    };
    says(None, &["no credentials for what it wants: gsi", "voms-proxy-init"]);
    let expired = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).expired().make("expired");
    says(Some(&expired), &["expired.pem expired 24 h", "clock", "no credentials for what it wants: gsi"]);
    says(Some(&site.pki.credential("future")), &["is valid only in"]);
    let other = VomsProxy::of(&site.pki, "eve", "other", &["/other"]).make("other");
    says(Some(&other), &["the request was made with the proxy of", "other.pem", "attributes"]);
    let old =
        VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane"]).with_expired_attributes().make("old");
    says(Some(&old), &["AuthFailed", "login by gsi", "old.pem in the VO gridlane expired 24 h"]);
    says(Some(&site.pki.credential("ada")), &["login by gsi", "has no VOMS attributes"]);
    let ec = site.pki.proxy("ec", &site.pki.credential("ada"), Rfc3820::FULL);
    says(Some(&ec), &["the login by gsi failed", "has no RSA key", "make a proxy with an RSA key"]);
}

/// A server that is not believed gets no certificate.
#[test]
fn a_server_that_is_another_or_a_stranger_is_named() {
    let pki = Pki::new();
    let server = xrootd_auth::gsi(&pki, "", "");
    let another = xrootd_auth::gsi_as(&pki, "voms", "", "");
    let site = Site::new(pki, server, 7310);
    let ada = site.pki.credential("ada");
    let outcome = site.run(Some(&ada), &["stat", &another.url_over("root", "vo/f")]).exits(DENIED);
    outcome.says(&["the login by gsi failed", "it is for voms.gridlane.test, and not for localhost"]);
    assert!(!another.log().contains("Ada"), "{}", another.log());
    let unknowing = |more: &[&str]| {
        let mut command = gridlane();
        command.args(["stat", &site.url("vo/f")]).args(more).env("X509_USER_PROXY", &ada.file);
        run(command)
    };
    let outcome = unknowing(&[]).exits(DENIED);
    outcome.says(&["its authority is not trusted here", CA_DN, ".0", "X509_CERT_DIR"]);
    unknowing(&["--ca", text(&site.pki.join("ca/cert.pem"))]).ok();
    unknowing(&["--insecure"]).ok();
}

/// Servers that want requests signed get them signed, with the key of gsi.
#[test]
fn requests_are_signed_as_the_server_wants() {
    for (seed, level) in [(7303, "standard"), (7304, "intense"), (7305, "pedantic force")] {
        let pki = Pki::new();
        let server = xrootd_auth::gsi(&pki, "", &format!("sec.level all {level}"));
        let site = Site::new(pki, server, seed);
        let ada = site.pki.credential("ada");
        site.run(Some(&ada), &["doctor", &site.url("vo/f")]).says(&["login by gsi, requests are signed"]);
        site.does_everything(&ada);
    }
}

/// A server that insists gets the digests of requests from a client that has no key.
#[test]
fn requests_are_signed_without_a_key_where_the_server_insists() {
    for (seed, level) in [(7306, "intense force"), (7307, "pedantic force")] {
        let lines = format!("xrootd.seclib libXrdSec.so\nsec.protocol unix\nsec.level all {level}");
        let server = Xrootd::with(&lines);
        fs::create_dir(server.exported("vo")).unwrap();
        server.give();
        let site = Site::new(Pki::new(), server, seed);
        let nobody = site.pki.credential("ada");
        let doctor = site.run(Some(&nobody), &["doctor", &site.url("vo/f")]);
        doctor.says(&["login by unix, requests are signed"]);
        site.does_everything(&nobody);
    }
}

/// The destination gets a proxy, and fetches the file from a source that takes no part.
#[test]
fn a_destination_fetches_with_a_proxy_that_it_gets() {
    let pki = Pki::new();
    let source = xrootd_auth::gsi(&pki, "", "");
    let target = xrootd_auth::gsi_that_takes_proxies(&pki);
    let site = Site::new(pki, source, 7308);
    let ada = VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane"]).make("ada-proxy");
    let copy = |who: &Credential, more: &[&str], from: &str, to: &str| {
        site.run(Some(who), &[&["cp", "--tpc", "only"], more, &[from, to]].concat())
    };
    // In clear the key exchange of this version is too weak for it.
    let (from, to) = (site.url("vo/f"), target.url_over("roots", "vo/g"));
    let in_clear = copy(&ada, &["--delegate"], &from, &target.url_over("root", "vo/g"));
    in_clear.exits(DENIED).says(&["no delegated credentials for tpc", "over roots:// alone"]);
    copy(&ada, &["--delegate"], &from, &to).ok();
    assert_eq!(fs::read(target.exported("vo/g")).unwrap(), *site.bytes);
    // The source knows the client and the destination by one name.
    let names = site.server.log().matches("CN=Ada Lovelace").count();
    assert!(names >= 2, "{}", site.server.log());
    // Without it these two cannot; a destination that asks for none gets none, and nothing stays there.
    copy(&ada, &[], &from, &target.url_over("roots", "vo/h")).exits(12).says(&["takes no part"]);
    copy(&ada, &["--delegate"], &to, &site.url("vo/back")).exits(12);
    assert!(!site.server.exported("vo/back").exists());
    // Nor does a server whose certificate is not checked, and of a certificate alone XRootD asks for no proxy.
    let insecure = copy(&ada, &["--delegate", "--insecure"], &from, &target.url_over("roots", "vo/i"));
    insecure.exits(DENIED).says(&["no delegated credentials for tpc", "are certificates checked"]);
    let bare = site.pki.credential("eve");
    let outcome = copy(&bare, &["--delegate"], &from, &target.url_over("roots", "vo/j"));
    outcome.exits(DENIED).says(&["no delegated credentials for tpc", "itself a proxy"]);
    assert!(!target.exported("vo/i").exists() && !target.exported("vo/j").exists());
}
