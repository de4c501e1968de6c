//! Macaroons, with what the field uses: XRootD's servers that share a secret with us, and its clients.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::macaroon::{Caveat, Check, Keys, Macaroon, Terms, attenuate, mint, verify};
use gridlane_auth::{Cause, Grants, Operation};
use gridlane_core::Secret;
use gridlane_dav::ResourcePath;
use serde_json::Value;

use super::support::Scratch;
use super::support::client::{Outcome, run, text};
use super::support::tools::{run_curl, tool};
use super::support::xrootd::{Xrootd, give, open_to_all};

const SITE: &str = "gridlane-test";

fn path(text: &str) -> ResourcePath {
    ResourcePath::parse(text).unwrap()
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A secret as XRootD's manual says to make it.
fn make_secret(file: &std::path::Path) {
    let mut command = tool("openssl", "openssl");
    command.args(["rand", "-base64", "-out", text(file), "64"]);
    run(command).ok();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// curl's answer: the status, and the body.
fn ask(url: &str, options: &[&str]) -> (u16, String) {
    let Outcome { stdout, .. } =
        run_curl(&[&["--insecure", "--write-out", "\n%{http_code}", url], options].concat());
    let said = String::from_utf8_lossy(&stdout).into_owned();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// xrootd where anybody may read below `/open` and nobody anything below `/closed`, and its secret.
fn xrootd() -> (Xrootd, Keys, Scratch) {
    let scratch = Scratch::new();
    let secret = scratch.join("secret");
    make_secret(&secret);
    let keys = Keys::parse(&fs::read_to_string(&secret).unwrap()).unwrap();
    scratch.file("authdb", b"u anybody /open lr\nu * /open lr\n");
    open_to_all(scratch.path());
    give(scratch.path());
    let at = scratch.path().display();
    let server = Xrootd::with(&format!(
        "xrd.protocol http libXrdHttp.so
http.header2cgi Authorization authz
http.exthandler xrdmacaroons libXrdMacaroons.so
all.sitename {SITE}
macaroons.secretkey {at}/secret
ofs.authorize
ofs.authlib libXrdMacaroons.so
acc.authdb {at}/authdb"
    ));
    for dir in ["open", "closed/sub", "closed/other"] {
        server.put(&format!("{dir}/f"), b"content");
    }
    (server, keys, scratch)
}

#[test]
fn xrootd_accepts_what_we_mint() {
    let (server, keys, _scratch) = xrootd();
    let under = path("/closed/sub");
    let terms = Terms {
        location: SITE,
        name: "/DC=org/DC=example/CN=Ada",
        rights: Grants::READ.with(Grants::LIST),
        path: &under,
        expires_s: now_s() + 600,
        asked: None,
        networks: &[],
    };
    let made = mint(&keys, [5; 16], &terms).unwrap().text;
    let get = |macaroon: &Secret, name: &str| {
        let field = format!("Authorization: Bearer {}", macaroon.expose());
        let url = server.url_over("http", name).replace("//closed", "/closed");
        ask(&url, &["--header", &field])
    };
    assert_eq!(get(&made, "closed/sub/f"), (200, "content".to_owned()), "{}", server.log());
    // 5.5.3 does not look where names end, and takes `/closed/subdir` for a part of `/closed/sub`.
    assert_eq!(get(&made, "closed/other/f").0, 403);
    let less = attenuate(made.expose(), &[Caveat::Path(path("/closed/sub/other"))]).unwrap();
    assert_eq!(get(&less, "closed/sub/f").0, 403);
    let less = attenuate(made.expose(), &[Caveat::Activity(Grants::LIST)]).unwrap();
    assert_eq!(get(&less, "closed/sub/f").0, 403);
    let over = attenuate(made.expose(), &[Caveat::Before(now_s() - 5)]).unwrap();
    assert_eq!(get(&over, "closed/sub/f").0, 403);
    // Of another secret.
    let other = Keys::parse(&"QUJD".repeat(16)).unwrap();
    let other = mint(&other, [5; 16], &terms).unwrap().text;
    assert_eq!(get(&other, "closed/sub/f").0, 403);
}

#[test]
fn we_accept_what_xrootd_mints() {
    let (server, keys, _scratch) = xrootd();
    let url = server.url_over("http", "open/sub").replace("//open", "/open");
    let (status, answer) = ask(
        &url,
        &[
            "--header",
            "Content-Type: application/macaroon-request",
            "--data",
            r#"{"caveats": ["activity:DOWNLOAD"], "validity": "PT30M"}"#,
        ],
    );
    assert_eq!(status, 200, "{answer}\n{}", server.log());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let macaroon = answer["macaroon"].as_str().unwrap();
    let revoked = HashSet::new();
    let address = "192.0.2.1".parse().unwrap();
    let check = Check { keys: &keys, location: SITE, revoked: &revoked, address, now_s: now_s() };
    let identity = verify(macaroon, &check).unwrap();
    assert_eq!(identity.capability.under, path("/open/sub"));
    assert_eq!(identity.capability.may, Grants::READ.with(Grants::of(Operation::Stat)));
    let left_s = identity.expires_s - now_s();
    assert!((1700..=1800).contains(&left_s), "{left_s}");
    assert_eq!(Macaroon::parse(macaroon).unwrap().to_text().expose(), macaroon);
    let late = Check { now_s: now_s() + 1801, ..check };
    assert_eq!(verify(macaroon, &late).unwrap_err().cause, Cause::Expired);
    let elsewhere = Check { location: "ELSEWHERE", ..check };
    assert_eq!(verify(macaroon, &elsewhere).unwrap_err().cause, Cause::WrongAudience);
}
