//! The set-ups are right: the clients that should get in do, by the field's own programs, and no others.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{ask, ask_with, request_macaroon, with};
use crate::support::client::{run, text};
use crate::support::issuer::{Signer, now_s};
use crate::support::pki::{ADA_DN, Credential, EVE_DN, Pki, Rfc3820, openssl};
use crate::support::tools::tool;
use crate::support::voms::{VomsProxy, proxy_info};
use crate::support::xrootd_auth::{self, token, token_with};
use crate::support::{assert_same, python, secrets};

pub(super) fn xrdcp(source: &str, target: &Path) -> Command {
    let mut command = tool("xrdcp", "xrootd-client");
    command.args(["--silent", "--force", source, text(target)]);
    command
}

pub(super) fn gfal(name: &str, arguments: &[&str]) -> Command {
    let mut command = tool(name, "gfal2-util-scripts");
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").args(arguments);
    command
}

fn davix(name: &str, pki: &Pki, arguments: &[&str]) -> Command {
    let mut command = tool(name, "davix");
    command.arg("--capath").arg(pki.certificates()).args(arguments);
    command
}

/// OpenSSL's verdict on a user's certificate or proxy.
fn openssl_verifies(pki: &Pki, credential: &Credential) -> bool {
    // What leads from a proxy to its user is behind it in the file.
    let mut command = openssl(&["verify", "-allow_proxy_certs", "-purpose", "sslclient"]);
    command
        .arg("-CApath")
        .arg(pki.certificates())
        .arg("-untrusted")
        .arg(&credential.cert)
        .arg(&credential.cert);
    run(command).code == Some(0)
}

/// The same, with the list of certificates that the first authority has revoked.
fn openssl_finds_unrevoked(pki: &Pki, name: &str) -> bool {
    let mut command = openssl(&["verify", "-crl_check"]);
    command.arg("-CApath").arg(pki.certificates()).arg(pki.credential(name).cert);
    run(command).code == Some(0)
}

#[test]
fn openssl_agrees_about_certificates() {
    let pki = Pki::new();
    // OpenSSL does not know of signing policies: to it, any authority may vouch for any name.
    for good in ["ada", "ada-ecdsa", "eve", "bob", "false-ada", "revoked"] {
        assert!(openssl_verifies(&pki, &pki.credential(good)), "{good}");
    }
    for bad in ["expired", "future", "stranger-ada"] {
        assert!(!openssl_verifies(&pki, &pki.credential(bad)), "{bad}");
    }
    for good in ["host", "host-rsa", "ada", "ada-ecdsa", "eve", "voms"] {
        assert!(openssl_finds_unrevoked(&pki, good), "{good}");
    }
    assert!(!openssl_finds_unrevoked(&pki, "revoked"));
    pki.revoke("eve");
    assert!(!openssl_finds_unrevoked(&pki, "eve"));
    assert!(!openssl_finds_unrevoked(&pki, "revoked"), "the old ones are forgotten");
    assert!(openssl_finds_unrevoked(&Pki::new(), "eve"), "what one test does, another sees");
}

#[test]
fn openssl_agrees_about_proxies() {
    let pki = Pki::new();
    for name in ["ada", "ada-ecdsa"] {
        let first = pki.proxy(&format!("{name}-1"), &pki.credential(name), Rfc3820::FULL.path_length_max(1));
        let second = pki.proxy(&format!("{name}-2"), &first, Rfc3820::LIMITED);
        let third = pki.proxy(&format!("{name}-3"), &second, Rfc3820::FULL);
        assert!(openssl_verifies(&pki, &first) && openssl_verifies(&pki, &second), "{name}");
        assert!(!openssl_verifies(&pki, &third), "longer than the first one says");
    }
    let of_revoked = pki.proxy("of-expired", &pki.credential("expired"), Rfc3820::INDEPENDENT);
    assert!(!openssl_verifies(&pki, &of_revoked));
}

#[test]
fn voms_agrees_about_attributes() {
    let pki = Pki::new();
    let fqans = ["/gridlane", "/gridlane/analysis", "/gridlane/Role=admin"];
    // The programs of VOMS make proxies of RSA users and of others.
    for user in ["ada", "ada-ecdsa"] {
        let proxy = VomsProxy::of(&pki, user, "gridlane", &fqans).make(&format!("{user}-voms"));
        assert!(openssl_verifies(&pki, &proxy), "{user}");
        let said = proxy_info(&pki, &proxy, &["-all"]).ok();
        assert!(said.text().contains("RFC compliant proxy"), "{}", said.describe());
        let said = said.says(&[ADA_DN, "VO        : gridlane", "/gridlane/analysis", "/gridlane/Role=admin"]);
        assert!(!said.stderr.to_lowercase().contains("error"), "{}", said.describe());
    }
    let limited = VomsProxy::of(&pki, "eve", "other", &["/other"]).limited().make("limited");
    proxy_info(&pki, &limited, &["-all"]).ok().says(&["limited", EVE_DN, "/other"]);
    let expired = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane"]).expired().make("expired");
    assert!(!openssl_verifies(&pki, &expired));
    let legacy = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane"]).legacy().make("legacy");
    let said = proxy_info(&pki, &legacy, &["-all"]).ok().says(&["CN=proxy"]);
    assert!(!said.text().contains("RFC"), "{}", said.describe());
}

#[test]
fn xrootd_lets_members_of_a_vo_in() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    let bytes = b"for members";
    server.put("vo/f", bytes);
    server.put("elsewhere/f", b"for nobody");
    let member = VomsProxy::of(&pki, "eve", "gridlane", &["/gridlane"]).make("member");
    let admin = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane/Role=admin", "/gridlane"]).make("admin");
    let url = server.url_over("https", "vo/f");
    assert_eq!(ask_with(&pki, &member, &url, &[]), (200, "for members".to_owned()));
    assert_eq!(ask_with(&pki, &admin, &url, &[]).0, 200);
    // Without credentials; with attributes that are not enough; and where no client may.
    assert_eq!(ask(&pki, &url, &[]).0, 403);
    let without = pki.proxy("without", &pki.credential("ada"), Rfc3820::FULL);
    assert_eq!(ask_with(&pki, &without, &url, &[]).0, 403);
    let other = VomsProxy::of(&pki, "ada", "other", &["/other"]).make("other");
    assert_eq!(ask_with(&pki, &other, &url, &[]).0, 403);
    let old = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane"]).with_expired_attributes().make("old");
    assert_eq!(ask_with(&pki, &old, &url, &[]).0, 403);
    assert_eq!(ask_with(&pki, &admin, &server.url_over("https", "elsewhere/f"), &[]).0, 403);
    let up = server.url_over("https", "vo/up");
    assert_eq!(ask_with(&pki, &member, &up, &["--request", "PUT", "--data", "no"]).0, 403);
    assert_eq!(ask_with(&pki, &admin, &up, &["--request", "PUT", "--data", "yes"]).0, 200);
    assert_eq!(fs::read(server.exported("vo/up")).unwrap(), b"yes");

    // By gsi.
    let root = server.url_over("root", "vo/f");
    let target = pki.join("got");
    with(&pki, xrdcp(&root, &target), Some(&member), None).ok();
    assert_same(&fs::read(&target).unwrap(), bytes);
    for refused in [Some(&other), Some(&without), None] {
        let outcome = with(&pki, xrdcp(&root, &target), refused, None);
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    }

    // Others' clients over https.
    let got = with(&pki, davix("davix-get", &pki, &["--cert", text(&member.file), &url]), None, None).ok();
    assert_same(&got.stdout, bytes);
    fs::remove_file(&target).unwrap();
    let copied = gfal("gfal-copy", &[&url, &format!("file://{}", target.display())]);
    with(&pki, copied, Some(&member), None).ok();
    assert_same(&fs::read(&target).unwrap(), bytes);
}

#[test]
fn xrootd_makes_macaroons() {
    let pki = Pki::new();
    let server = xrootd_auth::voms(&pki);
    server.put("vo/f", b"f");
    server.put("vo/g", b"g");
    let (f, g) = (server.url_over("https", "vo/f"), server.url_over("https", "vo/g"));
    let admin = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane/Role=admin"]).make("admin");
    let macaroon = request_macaroon(&pki, &f, &["--cert", text(&admin.file)]);
    let header = format!("Authorization: Bearer {macaroon}");
    let with_macaroon =
        |url: &str, arguments: &[&str]| ask(&pki, url, &[&["--header", &header], arguments].concat()).0;
    assert_eq!(with_macaroon(&f, &[]), 200);
    assert_eq!(with_macaroon(&g, &[]), 403, "it is for another path");
    assert_eq!(with_macaroon(&f, &["--request", "DELETE"]), 403, "it is for reading");
    assert_eq!(ask(&pki, &format!("{f}?authz=Bearer%20{macaroon}"), &[]).0, 200);
    assert_eq!(ask(&pki, &f, &[]).0, 403);
    // Any bearer can add what limits it; none can change what is there.
    let mut command = python::debian("macaroon_caveats.py");
    command.args([&macaroon, "before:2000-01-01T00:00:00Z"]);
    let said = run(command).ok().text();
    let (limited, caveats) = said.split_once('\n').unwrap();
    secrets::remember(limited);
    assert!(caveats.contains("activity:DOWNLOAD,LIST") && caveats.contains("path:/vo/f"), "{caveats}");
    assert_eq!(ask(&pki, &f, &["--header", &format!("Authorization: Bearer {limited}")]).0, 403);
}

#[test]
fn xrootd_lets_tokens_in() {
    let pki = Pki::new();
    let signer = Signer::es256("key");
    let server = xrootd_auth::tokens(&pki, &signer);
    let bytes = b"for who has a token";
    server.put("vo/f", bytes);
    server.put("elsewhere/f", b"for nobody");
    let good = token(&signer, "storage.read:/ storage.modify:/up");
    let url = server.url_over("https", "vo/f");
    let with_token = |token: &str, url: &str, arguments: &[&str]| {
        ask(&pki, url, &[&["--header", &format!("Authorization: Bearer {token}")], arguments].concat()).0
    };
    assert_eq!(with_token(&good, &url, &[]), 200);
    assert_eq!(ask(&pki, &format!("{url}?authz=Bearer%20{good}"), &[]).0, 200);
    assert_eq!(with_token(&good, &server.url_over("https", "elsewhere/f"), &[]), 403);
    assert_eq!(
        with_token(&good, &server.url_over("https", "vo/f2"), &["--request", "PUT", "--data", "no"]),
        403
    );
    assert_eq!(
        with_token(&good, &server.url_over("https", "vo/up"), &["--request", "PUT", "--data", "yes"]),
        200
    );
    assert_eq!(ask(&pki, &url, &[]).0, 403);
    // For another server; over; of another issuer under the same name.
    let elsewhere = token_with(&signer, json!({ "aud": "https://elsewhere.gridlane.test" }));
    let expired =
        token_with(&signer, json!({ "exp": now_s() - 600, "iat": now_s() - 900, "nbf": now_s() - 900 }));
    let forged = token(&Signer::es256("key"), "storage.read:/");
    for refused in [&elsewhere, &expired, &forged] {
        assert_eq!(with_token(refused, &url, &[]), 403);
    }

    // By ztn, which wants TLS: for root:// the client begins it by itself.
    let target = pki.join("got");
    for scheme in ["roots", "root"] {
        with(&pki, xrdcp(&server.url_over(scheme, "vo/f"), &target), None, Some(&good)).ok();
        assert_same(&fs::read(&target).unwrap(), bytes);
        fs::remove_file(&target).unwrap();
    }
    for refused in [Some(elsewhere.as_str()), Some(&expired), Some(&forged), None] {
        let outcome = with(&pki, xrdcp(&server.url_over("roots", "vo/f"), &target), None, refused);
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    }
    let copied = gfal("gfal-copy", &[&url, &format!("file://{}", target.display())]);
    with(&pki, copied, None, Some(&good)).ok();
    assert_same(&fs::read(&target).unwrap(), bytes);
}
