//! Macaroons, with what the field uses: XRootD's servers that share a secret with us, and its clients.

mod served;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_auth::macaroon::{Caveat, Check, Keys, Macaroon, Terms, attenuate, mint, verify};
use gridlane_auth::{Cause, Grants, Operation};
use gridlane_core::Secret;
use gridlane_dav::ResourcePath;
use serde_json::Value;

use super::support::client::{Outcome, gridlane, run, text as text_of};
use super::support::tools::{run_curl, tool};
use super::support::xrootd::{Xrootd, give, open_to_all};
use super::support::{Scratch, secrets};

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
    command.args(["rand", "-base64", "-out", text_of(file), "64"]);
    run(command).ok();
    fs::read_to_string(file).unwrap().lines().for_each(secrets::remember);
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

/// xrootd where every client may read below `/open` and none anything below `/closed`, and its secret.
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

/// `gridlane auth` with these arguments, and this on standard input.
fn auth(arguments: &[&str], input: &str) -> Outcome {
    let mut command = gridlane();
    command.arg("auth").args(arguments);
    let scratch = Scratch::new();
    let file = scratch.file("input", input.as_bytes());
    command.stdin(fs::File::open(file).unwrap());
    run(command)
}

fn caveats(text: &str) -> Vec<String> {
    let macaroon = Macaroon::parse(text.trim()).unwrap();
    macaroon.caveats().map(|caveat| String::from_utf8_lossy(caveat).into_owned()).collect()
}

/// A macaroon of a site that does not exist.
fn made() -> Secret {
    let (keys, under) = (Keys::parse(&"QUJD".repeat(16)).unwrap(), path("/a"));
    let terms = Terms {
        location: SITE,
        name: "ada",
        rights: Grants::READ.with(Grants::LIST),
        path: &under,
        expires_s: now_s() + 600,
        asked: None,
        networks: &[],
    };
    mint(&keys, [6; 16], &terms).unwrap().text
}

#[test]
fn a_holder_gives_less_away() {
    let made = made();
    let options = "--may read --path /a/b --lifetime 5m --from 10.0.0.0/8";
    let options: Vec<&str> = ["token", "--attenuate"].into_iter().chain(options.split(' ')).collect();
    let less = auth(&options, made.expose());
    let text = less.ok().text();
    let all = caveats(&text);
    assert_eq!(all[..4], caveats(made.expose())[..], "{all:?}");
    assert_eq!(all[4..6], ["activity:READ_METADATA,DOWNLOAD", "path:/a/b"]);
    assert!(all[6].starts_with("before:") && all[7] == "ip:10.0.0.0/8", "{all:?}");
    let json = auth(&["token", "--attenuate", "--may", "LIST", "--json"], made.expose());
    let event: Value = serde_json::from_str(&json.ok().text()).unwrap();
    assert_eq!((&event["type"], &event["what"]), (&"made".into(), &"token".into()));
    assert_eq!(event["caveats"][4], "activity:READ_METADATA,LIST");
    assert_eq!(caveats(event["token"].as_str().unwrap()).len(), 5);
    for (options, input) in [
        (&["token", "--attenuate"][..], made.expose()),
        (&["token", "--attenuate", "--may", "sing"], made.expose()),
        (&["token", "--attenuate", "--path", "a/../b"], made.expose()),
        (&["token", "--attenuate", "--lifetime", "5"], made.expose()),
        (&["token", "--attenuate", "--lifetime", "0s"], made.expose()),
        (&["token", "--attenuate", "--may", "read"], "no macaroon"),
        (&["token", "--attenuate", "--may", "read"], ""),
        (&["token", "http://localhost/"], ""),
        (&["token"], ""),
    ] {
        assert_eq!(auth(options, input).code, Some(2), "{options:?}");
    }
}

#[test]
fn what_a_token_says_is_shown_without_it() {
    let made = made();
    let shown = auth(&["token", "--show", "-"], &format!("{}\n", made.expose()));
    let text = shown.ok().text();
    for line in
        ["kind:      macaroon", "from:      standard input", "site:      gridlane-test", "caveat:    path:/a"]
    {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    assert!(text.contains("\nexpires:   ") && text.contains(", in "), "{text}");
    let signature = &made.expose()[made.expose().len() - 30..];
    assert!(!text.contains(signature));
    let scratch = Scratch::new();
    let file = scratch.file("token", made.expose().as_bytes());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let json = auth(&["token", "--show", text_of(&file), "--json"], "").ok().text();
    let event: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&event["kind"], &event["caveats"][0]), (&"macaroon".into(), &"name:ada".into()));
    assert!(!json.contains(signature));
    let mut command = gridlane();
    let parts = [r#"{"alg":"none"}"#, r#"{"iss":"https://i/","sub":"ada","exp":1500000000}"#, "signature"];
    let token = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    command.args(["auth", "token", "--show"]).env("BEARER_TOKEN", &token);
    let text = run(command).ok().text();
    assert!(text.contains("kind:      JSON Web Token") && text.contains("issuer:    https://i/"), "{text}");
    assert!(
        text.contains("2017-07-14T02:40:00Z, ")
            && text.contains(" ago")
            && !text.contains(&token[token.len() - 10..]),
        "{text}"
    );
}

#[test]
fn passwords_of_users() {
    let made = auth(&["password", "ada", "--cost", "5"], "swordfish\nnot this\n");
    let line = made.ok().text();
    let users = gridlane_auth::password::Users::parse(&line).unwrap();
    assert!(users.verify("ada", "swordfish").is_ok() && users.verify("ada", "swordfish\n").is_err());
    assert!(!line.contains("swordfish"));
    for (name, input) in [("a:b", "x"), ("ada", ""), ("ada", "\n"), ("ada", &"x".repeat(73))] {
        assert_eq!(auth(&["password", name], input).code, Some(2), "{name} {input}");
    }
}

#[test]
fn xrootd_gives_a_macaroon() {
    let (server, keys, _scratch) = xrootd();
    let url = server.url_over("https", "open/sub").replace("//open", "/open");
    let ca = server.ca();
    let (may, lifetime) = ("read,list", "20m");
    let asked = auth(&["token", &url, "--may", may, "--lifetime", lifetime, "--ca", text_of(&ca)], "");
    let text = asked.ok().text();
    let revoked = HashSet::new();
    let address = "192.0.2.1".parse().unwrap();
    let check = Check { keys: &keys, location: SITE, revoked: &revoked, address, now_s: now_s() };
    let identity = verify(text.trim(), &check).unwrap();
    assert_eq!(identity.capability.under, path("/open/sub"));
    let left_s = identity.expires_s - now_s();
    assert!((1100..=1200).contains(&left_s), "{left_s}");
    assert!(caveats(&text).contains(&"activity:DOWNLOAD,LIST".to_owned()));
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
