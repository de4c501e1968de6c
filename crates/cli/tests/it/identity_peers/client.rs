//! `gridlane` shows what it has to Debian's XRootD.

use std::fs;

use serde_json::json;

use super::{request_macaroon, with};
use crate::support::client::{Outcome, gridlane, text};
use crate::support::issuer::{Signer, now_s};
use crate::support::pki::{Credential, Pki, Rfc3820};
use crate::support::voms::VomsProxy;
use crate::support::xrootd::Xrootd;
use crate::support::xrootd_auth::{self, token, token_with};
use crate::support::{assert_copied, content};

/// Not allowed, says `gridlane`.
const DENIED: i32 = 4;

/// A server, its people, and what a copy is made of.
struct Site {
    pki: Pki,
    server: Xrootd,
    bytes: std::sync::Arc<Vec<u8>>,
}

impl Site {
    fn new(pki: Pki, server: Xrootd, seed: u64) -> Site {
        let bytes = content(seed, 300_000);
        server.put("vo/f", &bytes);
        server.put("vo/other", b"other");
        Site { pki, server, bytes }
    }

    fn url(&self, path: &str) -> String {
        self.server.url_over("https", path)
    }

    /// `gridlane` with a proxy, or a token, or neither.
    fn run(&self, proxy: Option<&Credential>, token: Option<&str>, arguments: &[&str]) -> Outcome {
        let mut command = gridlane();
        command.args(arguments);
        with(&self.pki, command, proxy, token)
    }

    /// Asserts that a copy of `/vo/f` arrives, from a URL of it.
    #[track_caller]
    fn gets(&self, proxy: Option<&Credential>, token: Option<&str>, url: &str) {
        let target = self.pki.join("got");
        let _ = fs::remove_file(&target);
        self.run(proxy, token, &["cp", url, text(&target)]).ok();
        assert_copied(&target, &self.bytes);
    }
}

#[test]
fn a_proxy_opens_what_its_vo_may() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7101);
    let member = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).make("member");
    let admin = VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane/Role=admin"]).make("admin");
    let url = site.url("vo/f");
    site.gets(Some(&member), None, &url);
    site.run(Some(&member), None, &["ls", &site.url("vo/")]).ok().says(&["f", "other"]);
    site.run(Some(&member), None, &["stat", &url]).ok().says(&["300000"]);
    let (up, dir, local) = (site.url("vo/up"), site.url("vo/dir"), site.pki.join("local"));
    fs::write(&local, &*site.bytes).unwrap();
    site.run(Some(&member), None, &["cp", text(&local), &up]).exits(DENIED);
    site.run(Some(&member), None, &["rm", &url]).exits(DENIED);
    site.run(Some(&admin), None, &["cp", text(&local), &up]).ok();
    assert_eq!(fs::read(site.server.exported("vo/up")).unwrap(), *site.bytes);
    site.run(Some(&admin), None, &["mkdir", &dir]).ok();
    assert!(site.server.exported("vo/dir").is_dir());
    site.run(Some(&admin), None, &["rm", &up]).ok();
    assert!(!site.server.exported("vo/up").exists());

    site.server.put("vo/empty", b"");
    let empty = site.pki.join("empty");
    site.run(Some(&member), None, &["cp", &site.url("vo/empty"), text(&empty)]).ok();
    assert_copied(&empty, b"");

    // One that another program was handed, with all that leads to her certificate; limited ones read as well.
    let handed = site.pki.proxy("handed", &member, Rfc3820::FULL);
    site.gets(Some(&handed), None, &url);
    let limited = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).limited().make("limited");
    site.gets(Some(&limited), None, &url);

    // An anonymous client, one of another VO, and one of none.
    site.run(None, None, &["stat", &url]).exits(DENIED);
    let other = VomsProxy::of(&site.pki, "ada", "other", &["/other"]).make("other");
    site.run(Some(&other), None, &["stat", &url]).exits(DENIED);
    let without = site.pki.proxy("without", &site.pki.credential("ada"), Rfc3820::FULL);
    site.run(Some(&without), None, &["stat", &url]).exits(DENIED);
}

#[test]
fn a_proxy_that_has_ended_is_named_as_the_cause() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7102);
    let expired = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).expired().make("expired");
    let outcome = site.run(Some(&expired), None, &["cp", &site.url("vo/f"), text(&site.pki.join("got"))]);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    outcome.says(&["expired.pem", "expired 24 h"]);
}

#[test]
fn a_token_opens_its_scopes() {
    let pki = Pki::new();
    let signer = Signer::es256("key");
    let server = xrootd_auth::tokens(&pki, &signer);
    let site = Site::new(pki, server, 7103);
    // XRootD (5.5.3) looks whether something is there before it removes it, and wants to be allowed to.
    let good = token(&signer, "storage.read:/f storage.read:/up storage.modify:/up");
    let url = site.url("vo/f");
    site.gets(None, Some(&good), &url);
    site.run(None, Some(&good), &["stat", &url]).ok().says(&["300000"]);
    let (up, local) = (site.url("vo/up"), site.pki.join("local"));
    fs::write(&local, &*site.bytes).unwrap();
    site.run(None, Some(&good), &["cp", text(&local), &up]).ok();
    assert_eq!(fs::read(site.server.exported("vo/up")).unwrap(), *site.bytes);
    site.run(None, Some(&good), &["rm", &up]).ok();
    assert!(!site.server.exported("vo/up").exists());
    site.run(None, Some(&good), &["stat", &site.url("vo/other")]).exits(DENIED);
    site.run(None, Some(&good), &["rm", &url]).exits(DENIED);

    // In a file, as pilots have it.
    let file = site.pki.join("token");
    fs::write(&file, format!("{good}\n")).unwrap();
    let mut command = gridlane();
    command.args(["stat", &url]).env("BEARER_TOKEN_FILE", &file);
    with(&site.pki, command, None, None).ok();

    site.run(None, None, &["stat", &url]).exits(DENIED);
    let elsewhere = token_with(&signer, json!({ "aud": "https://elsewhere.gridlane.test" }));
    let forged = token(&Signer::es256("key"), "storage.read:/");
    for refused in [&elsewhere, &forged] {
        site.run(None, Some(refused), &["stat", &url]).exits(DENIED);
    }
    let expired =
        token_with(&signer, json!({ "exp": now_s() - 600, "iat": now_s() - 900, "nbf": now_s() - 900 }));
    let outcome = site.run(None, Some(&expired), &["stat", &url]);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    outcome.says(&["token"]);
}

#[test]
fn a_macaroon_opens_what_it_was_made_for() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let site = Site::new(pki, server, 7104);
    let admin = VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane/Role=admin"]).make("admin");
    let url = site.url("vo/f");
    let macaroon = request_macaroon(&site.pki, &url, &["--cert", text(&admin.file)]);
    site.gets(None, Some(&macaroon), &url);
    site.run(None, Some(&macaroon), &["rm", &url]).exits(DENIED);
    site.run(None, Some(&macaroon), &["stat", &site.url("vo/other")]).exits(DENIED);
    // Tokens of clients that know no other way are in the URL, which others may see.
    let with_it = format!("{url}?authz=Bearer%20{macaroon}");
    site.gets(None, None, &with_it);
    site.run(None, None, &["rm", &with_it]).exits(DENIED);
}

#[test]
fn a_token_opens_root_and_roots() {
    let pki = Pki::new();
    let signer = Signer::es256("key");
    let server = xrootd_auth::tokens(&pki, &signer);
    let site = Site::new(pki, server, 7105);
    let good = token(&signer, "storage.read:/f storage.read:/up storage.modify:/up");
    let local = site.pki.join("local");
    fs::write(&local, &*site.bytes).unwrap();
    // XRootD offers ztn over TLS alone: of a client that begins in clear it wants TLS first.
    for scheme in ["roots", "root"] {
        let url = |path: &str| site.server.url_over(scheme, path);
        site.gets(None, Some(&good), &url("vo/f"));
        site.run(None, Some(&good), &["stat", &url("vo/f")]).ok().says(&["300000"]);
        site.run(None, Some(&good), &["cp", text(&local), &url("vo/up")]).ok();
        assert_eq!(fs::read(site.server.exported("vo/up")).unwrap(), *site.bytes);
        site.run(None, Some(&good), &["rm", &url("vo/up")]).ok();
        assert!(!site.server.exported("vo/up").exists());
        site.run(None, Some(&good), &["rm", &url("vo/f")]).exits(DENIED);
        site.run(None, Some(&good), &["stat", &url("vo/other")]).exits(DENIED);
        // XRootD lets a token for another server log in, and do nothing.
        let elsewhere = token_with(&signer, json!({ "aud": "https://elsewhere.gridlane.test" }));
        let forged = token(&Signer::es256("key"), "storage.read:/");
        for refused in [None, Some(elsewhere.as_str()), Some(&forged)] {
            site.run(None, refused, &["stat", &url("vo/f")]).exits(DENIED);
        }
    }
}
