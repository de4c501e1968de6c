//! Identities over root:// and roots://: `gridlane` shows its token to Debian's xrootd and to `gridlane serve`, and
//! XRootD's clients, old and new, show theirs to `gridlane serve`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::identity::{AUDIENCE, BYTES, Site, program};
use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::issuer::{Signer, now_s, wlcg};
use crate::support::pki::{ADA_DN, Credential, Pki};
use crate::support::tools::tool;
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, Scratch, assert_same, content, python, secrets, until, xrootd_auth};

/// Not allowed, says `gridlane`.
const DENIED: i32 = 4;

/// A server whose issuer's tokens are about what is below `/vo`.
enum Server {
    Ours(Box<Site>),
    Xrootd { pki: Pki, signer: Signer, server: Xrootd },
}

impl Server {
    fn ours() -> Server {
        let site = Site::new();
        fs::create_dir(site.exported("vo/d")).unwrap();
        fs::write(site.exported("vo/other"), b"other").unwrap();
        Server::Ours(Box::new(site))
    }

    fn xrootd() -> Server {
        let (pki, signer) = (Pki::new(), Signer::es256("key"));
        let server = xrootd_auth::tokens(&pki, &signer);
        server.put("vo/f", BYTES);
        server.put("vo/other", b"other");
        fs::create_dir(server.exported("vo/d")).unwrap();
        server.give();
        Server::Xrootd { pki, signer, server }
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        match self {
            Server::Ours(site) => root_url(site, scheme, path),
            Server::Xrootd { server, .. } => server.url_over(scheme, path),
        }
    }

    fn exported(&self, path: &str) -> PathBuf {
        match self {
            Server::Ours(site) => site.exported(path),
            Server::Xrootd { server, .. } => server.exported(path),
        }
    }

    fn token(&self, claims: Value) -> String {
        match self {
            Server::Ours(site) => site.token(&claims),
            Server::Xrootd { signer, .. } => xrootd_auth::token_with(signer, claims),
        }
    }

    /// One with another issuer's signature.
    fn forged(&self) -> String {
        let claims = json!({ "scope": "storage.read:/" });
        match self {
            Server::Ours(site) => {
                let claims = wlcg(&site.issuer.url, AUDIENCE, &claims);
                Signer::es256("key").token(&claims)
            }
            Server::Xrootd { .. } => xrootd_auth::token_with(&Signer::es256("key"), claims),
        }
    }

    /// `gridlane` with a token, or without.
    fn gridlane(&self, token: Option<&str>, arguments: &[&str]) -> Outcome {
        let pki = match self {
            Server::Ours(site) => &site.pki,
            Server::Xrootd { pki, .. } => pki,
        };
        let mut command = gridlane();
        command.args(arguments).env("X509_CERT_DIR", pki.certificates());
        if let Some(token) = token {
            command.env("BEARER_TOKEN", token);
        }
        run(command)
    }
}

/// The URL of a path of ours over `root` or `roots`.
fn root_url(site: &Site, scheme: &str, path: &str) -> String {
    let url = site.server.url_over("https", "");
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    format!("{scheme}://localhost:{port}//{path}")
}

/// Everything that a token is for, and everything that it is not.
fn gridlane_shows_its_token(server: &Server) {
    let scratch = Scratch::new();
    let local = scratch.file("local", b"from here");
    let target = scratch.join("target");
    let token = server.token(json!({ "scope": "storage.read:/f storage.read:/d storage.modify:/d" }));
    for scheme in ["root", "roots"] {
        let url = |path: &str| server.url(scheme, path);
        let run = |arguments: &[&str]| server.gridlane(Some(&token), arguments);
        let _ = fs::remove_file(&target);
        run(&["cp", &url("vo/f"), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), BYTES);
        run(&["stat", &url("vo/f")]).ok().says(&[&BYTES.len().to_string()]);
        run(&["cp", text(&local), &url("vo/d/up")]).ok();
        assert_same(&fs::read(server.exported("vo/d/up")).unwrap(), b"from here");
        run(&["ls", &url("vo/d/")]).ok().says(&["up"]);
        run(&["rm", &url("vo/d/up")]).ok();
        assert!(!server.exported("vo/d/up").exists());
        run(&["mkdir", &url(&format!("vo/d/{scheme}"))]).ok();
        assert!(server.exported(&format!("vo/d/{scheme}")).is_dir());

        // Beyond its scopes.
        run(&["cp", &url("vo/other"), text(&scratch.join("no"))]).exits(DENIED).says(&["token"]);
        run(&["stat", &url("vo/other")]).exits(DENIED);
        run(&["rm", &url("vo/f")]).exits(DENIED);
        run(&["cp", text(&local), &url("vo/no")]).exits(DENIED);
        run(&["mkdir", &url("vo/no")]).exits(DENIED);
        assert!(!server.exported("vo/no").exists() && server.exported("vo/f").exists());
    }
    let scope = "storage.read:/";
    let times = json!({ "scope": scope, "exp": now_s() - 600, "iat": now_s() - 900, "nbf": now_s() - 900 });
    for (token, word) in [
        (Some(server.token(times)), "expired"),
        (
            Some(server.token(json!({ "scope": scope, "aud": "https://elsewhere.gridlane.test" }))),
            "BEARER_TOKEN",
        ),
        (Some(server.forged()), "BEARER_TOKEN"),
        (None, "send a token"),
    ] {
        for arguments in [&["stat"][..], &["rm"]] {
            let url = server.url("root", "vo/f");
            let arguments = [arguments, &[&url]].concat();
            server.gridlane(token.as_deref(), &arguments).exits(DENIED).says(&[word]);
        }
    }
}

#[test]
fn gridlane_to_xrootd() {
    gridlane_shows_its_token(&Server::xrootd());
}

#[test]
fn gridlane_to_gridlane() {
    gridlane_shows_its_token(&Server::ours());
}

/// XRootD's client library with the variables by which it finds credentials, and a patience that ends.
fn prepared(site: &Site, mut command: Command, token: Option<&Path>, proxy: Option<&Credential>) -> Command {
    command
        .env("XRD_CONNECTIONRETRY", "1")
        .env("XRD_CONNECTIONWINDOW", "10")
        .env("XRD_REQUESTTIMEOUT", "50")
        .env("XRD_STREAMERRORWINDOW", "0")
        .env("XRD_TIMEOUTRESOLUTION", "1")
        .env("RES_OPTIONS", "timeout:1 attempts:1")
        .env("X509_CERT_DIR", site.pki.certificates());
    if let Some(token) = token {
        command.env("BEARER_TOKEN_FILE", token);
    }
    if let Some(proxy) = proxy {
        command.env("X509_USER_PROXY", &proxy.file);
    }
    command
}

/// A file with a token that no other user may read: else XRootD's clients do not take it.
fn in_file(site: &Site, name: &str, token: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let file = site.scratch.file(&format!("tokens/{name}"), format!("{token}\n").as_bytes());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// XRootD's clients from Debian.
fn xrdcp(site: &Site, token: Option<&Path>, arguments: &[&str]) -> Outcome {
    let mut command = tool("xrdcp", "xrootd-client");
    command.args(["--nopbar", "--force"]).args(arguments);
    run(prepared(site, command, token, None))
}

fn xrdfs(site: &Site, token: Option<&Path>, arguments: &[&str]) -> Outcome {
    let mut command = tool("xrdfs", "xrootd-client");
    command.arg(root_url(site, "root", "").trim_end_matches('/')).args(arguments);
    run(prepared(site, command, token, None))
}

#[test]
fn xrdcp_and_xrdfs_to_gridlane() {
    let site = Site::new();
    fs::create_dir(site.exported("vo/d")).unwrap();
    let large = content(7301, 64 * MIB);
    fs::write(site.exported("vo/d/large"), &*large).unwrap();
    let scope = "storage.read:/f storage.read:/d storage.modify:/d";
    let good = in_file(&site, "good", &site.token(&json!({ "scope": scope })));
    let (target, local) = (site.scratch.join("got"), site.scratch.file("local", b"from here"));
    for scheme in ["root", "roots"] {
        let url = |path: &str| root_url(&site, scheme, path);
        xrdcp(&site, Some(&good), &[&url("vo/f"), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), BYTES);
        xrdcp(&site, Some(&good), &[text(&local), &url("vo/d/up")]).ok();
        assert_same(&fs::read(site.exported("vo/d/up")).unwrap(), b"from here");
        // Other connections of the same session. Of a small file xrdcp 5.5.3 now and then crashes, from XRootD's own server
        // as well: it ends while they still shake hands.
        xrdcp(&site, Some(&good), &["-S", "3", &url("vo/d/large"), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), &large);
        for (from, to) in [(&url("vo/sub/f"), text(&target)), (&url("bob/f"), text(&target))] {
            refused(xrdcp(&site, Some(&good), &[from, to]), &["3010", "permission denied"]);
        }
        refused(xrdcp(&site, Some(&good), &[text(&local), &url("vo/no")]), &["3010"]);
    }
    let fs = |arguments: &[&str]| xrdfs(&site, Some(&good), arguments);
    fs(&["stat", "/vo/f"]).ok().says(&["Size:"]);
    fs(&["ls", "/vo/d"]).ok().says(&["/vo/d/up"]);
    fs(&["mkdir", "/vo/d/new"]).ok();
    fs(&["query", "checksum", "/vo/f"]).ok().says(&["adler32"]);
    fs(&["mv", "/vo/d/up", "/vo/d/new/up"]).ok();
    fs(&["rm", "/vo/d/new/up"]).ok();
    refused(fs(&["rm", "/vo/f"]), &["3010"]);
    refused(fs(&["ls", "/vo"]), &["3010"]);

    // Refused, with the reason. A client that goes on anonymously is told it when that is not enough.
    let times = json!({ "scope": scope, "exp": now_s() - 600, "iat": now_s() - 900, "nbf": now_s() - 900 });
    let elsewhere = json!({ "scope": scope, "aud": "https://elsewhere.gridlane.test" });
    let forged = {
        let claims = wlcg(&site.issuer.url, AUDIENCE, &json!({}));
        Signer::es256("key").token(&claims)
    };
    for (name, token, word) in [
        ("expired", site.token(&times), "expired"),
        ("elsewhere", site.token(&elsewhere), "another server"),
        ("forged", forged, "signature"),
    ] {
        let bad = in_file(&site, name, &token);
        refused(
            xrdcp(&site, Some(&bad), &[&root_url(&site, "root", "vo/f"), text(&target)]),
            &["3010", word],
        );
        xrdcp(&site, Some(&bad), &[&root_url(&site, "root", "public/f"), text(&target)]).ok();
    }
    // A name proves nothing: such clients are anonymous, with a name or without.
    refused(xrdcp(&site, None, &[&root_url(&site, "root", "vo/f"), text(&target)]), &["3010"]);
    xrdcp(&site, None, &[&root_url(&site, "root", "public/f"), text(&target)]).ok();
    let mut command = tool("xrdfs", "xrootd-client");
    command.arg(root_url(&site, "root", "").trim_end_matches('/')).args(["stat", "/vo/f"]);
    command.env("XrdSecPROTOCOL", "unix");
    refused(run(prepared(&site, command, Some(&good), None)), &["3010"]);

    let log = site.log("access.log");
    let by = |kind: &str, method: &str| {
        let is_meant = |line: &&str| {
            let record: Value = serde_json::from_str(line).unwrap();
            record["method"] == method && record["identity"]["kind"] == kind && record["tls"].is_string()
        };
        log.lines().filter(is_meant).count()
    };
    assert!(by("token", "root:open") > 0 && by("anonymous", "root:open") > 0, "{log}");
    until("it is in the audit log", || site.log("audit.log").contains("/vo/d/new/up"));
}

/// A macaroon of ours instead of a token.
#[test]
fn a_macaroon_goes_by_the_same_way() {
    let site = Site::new();
    let asked = program("gfal-token", "gfal2-util-scripts", &[&site.url("vo/f"), "DOWNLOAD"]);
    let said = site.run(asked, Some(&site.admin()), None);
    let macaroon = said.ok().text().trim().to_owned();
    secrets::remember(&macaroon);
    let file = in_file(&site, "macaroon", &macaroon);
    let target = site.target();
    xrdcp(&site, Some(&file), &[&root_url(&site, "root", "vo/f"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    refused(xrdcp(&site, Some(&file), &[&root_url(&site, "root", "vo/sub/f"), text(&target)]), &["3010"]);
    let mut ours = gridlane();
    ours.args(["cp", &root_url(&site, "root", "vo/f"), text(&site.target())]);
    site.run(ours, None, Some(&macaroon)).ok();
}

/// XRootD itself asks for no certificate in TLS, and its clients show one all the same: 5.5.3 of a proxy's chain only
/// the first, so that its user cannot be told. A client that is refused is told so.
#[test]
fn certificates_in_tls() {
    let site = Site::new();
    let bob = site.pki.credential("bob");
    let (member, admin) = (site.member(), site.admin());
    let (target, local) = (site.target(), site.scratch.file("local", b"from here"));
    for scheme in ["root", "roots"] {
        let copy = |who: &Credential, arguments: &[&str]| {
            let mut command = tool("xrdcp", "xrootd-client");
            command.args(["--nopbar", "--force"]).args(arguments);
            run(prepared(&site, command, None, Some(who)))
        };
        copy(&bob, &[&root_url(&site, scheme, "bob/f"), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), BYTES);
        refused(copy(&bob, &[&root_url(&site, scheme, "vo/f"), text(&target)]), &["3010"]);
        let words = ["3010", "does not count", "was not sent along"];
        refused(copy(&member, &[&root_url(&site, scheme, "vo/f"), text(&target)]), &words);
        // Ours shows all of it.
        let ours = |who: &Credential, arguments: &[&str]| {
            let mut command = gridlane();
            command.args(arguments);
            site.run(command, Some(who), None)
        };
        ours(&member, &["cp", &root_url(&site, scheme, "vo/f"), text(&site.target())]).ok();
        assert_same(&fs::read(&target).unwrap(), BYTES);
        ours(&member, &["cp", text(&local), &root_url(&site, scheme, "vo/up")])
            .exits(DENIED)
            .says(&["was made with"]);
        ours(&admin, &["cp", text(&local), &root_url(&site, scheme, "vo/up")]).ok();
        ours(&admin, &["rm", &root_url(&site, scheme, "vo/up")]).ok();
    }
    assert!(site.log("audit.log").contains(ADA_DN));
}

#[test]
fn the_newest_client_of_xrootd() {
    let site = Site::new();
    fs::create_dir(site.exported("vo/d")).unwrap();
    let scope = "storage.read:/f storage.modify:/d";
    let good = in_file(&site, "good", &site.token(&json!({ "scope": scope })));
    let forged = {
        let claims = wlcg(&site.issuer.url, AUDIENCE, &json!({}));
        in_file(&site, "forged", &Signer::es256("key").token(&claims))
    };
    let script = |token: Option<&Path>, arguments: &[&str]| {
        let mut command = python::pypi("root_identity.py");
        command.arg(root_url(&site, "root", "")).args(arguments);
        run(prepared(&site, command, token, None)).ok().text()
    };
    let said =
        script(Some(&good), &["read", "vo/f", "read", "vo/sub/f", "write", "vo/d/up", "write", "vo/no"]);
    assert_eq!(said, format!("{}\n3010\nok\n3010\n", BYTES.len()));
    assert_same(&fs::read(site.exported("vo/d/up")).unwrap(), b"words");
    // It shows all of a proxy's chain.
    let by_certificate = |who: &Credential, path: &str| {
        let mut command = python::pypi("root_identity.py");
        command.arg(root_url(&site, "root", "")).args(["read", path]);
        run(prepared(&site, command, None, Some(who))).ok().text()
    };
    assert_eq!(by_certificate(&site.pki.credential("bob"), "bob/f"), format!("{}\n", BYTES.len()));
    assert_eq!(by_certificate(&site.member(), "vo/f"), format!("{}\n", BYTES.len()));
    assert_eq!(by_certificate(&site.member(), "bob/f"), "3010\n");
    for token in [None, Some(forged.as_path())] {
        assert_eq!(script(token, &["read", "vo/f", "read", "public/f"]), format!("3010\n{}\n", BYTES.len()));
    }
}

/// A failure with an error of the server, and words of it.
#[track_caller]
fn refused(outcome: Outcome, words: &[&str]) {
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    outcome.says(words);
}
