//! `gridlane serve` makes macaroons and believes them.

use std::fs;
use std::path::Path;

use gridlane_auth::macaroon::{Caveat, Macaroon, attenuate};
use gridlane_auth::password::make_line;
use gridlane_core::Secret;
use serde_json::Value;

use super::{ask, caveats, make_secret, now_s, path, xrootd};
use crate::support::client::{Outcome, gridlane, run, signal, text as text_of};
use crate::support::pki::{ADA_DN, Pki, Rfc3820};
use crate::support::serve::Server;
use crate::support::tools::{curl, tool};
use crate::support::{MIB, Scratch, assert_same, content, secrets, until};

const PASSWORD: &str = "correct horse battery";

/// A server where Ada, by her password or her certificate, may read, list and create below `/data/ada`; anyone may read
/// below `/open`.
struct Site {
    scratch: Scratch,
    pki: Pki,
    server: Server,
}

impl Site {
    fn new() -> Site {
        let (scratch, pki) = (Scratch::new(), Pki::new());
        secrets::remember_password("ada", PASSWORD);
        make_secret(&scratch.join("secret"));
        private(&scratch.file("users", make_line("ada", PASSWORD, [7; 16], 4).unwrap().as_bytes()));
        scratch.file("revoked", b"# nothing yet\n");
        scratch.file("gridmap", format!("\"{ADA_DN}\" ada\n").as_bytes());
        for dir in ["data/ada/sub", "data/ada/subdir", "data/eve", "open"] {
            scratch.file(&format!("root/{dir}/f"), dir.as_bytes());
        }
        let host = pki.credential("host");
        let config = format!(
            r#"
ca = ["{authority}"]
[serve]
listen = ["127.0.0.1:0"]
cert = "{cert}"
key = "{key}"
access-log = "@/access.log"
audit-log = "@/audit.log"
[auth]
users = "@/users"
macaroon-secrets = "@/secret"
revoked-macaroons = "@/revoked"
client-ca-dir = "{authorities}"
gridmap = "@/gridmap"
[[export]]
path = "/"
directory = "@/root"
allow-write = true
[[rule]]
user = "ada"
may = ["read", "list", "create"]
under = "/data/{{user}}"
[[rule]]
who = "anyone"
may = ["read"]
under = "/open"
"#,
            cert = host.cert.display(),
            key = host.key.display(),
            authorities = pki.certificates().display(),
            authority = pki.join("ca/cert.pem").display(),
        );
        let config = config.replace('@', text_of(scratch.path()));
        let file = scratch.file("serve.toml", config.as_bytes());
        let server = Server::by_file(&file);
        Site { scratch, pki, server }
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        // By the name that the certificate has.
        self.server.url_over(scheme, path).replace("127.0.0.1", "localhost")
    }

    /// curl's answer to a request over TLS.
    fn ask(&self, path: &str, options: &[&str]) -> Answer {
        self.ask_over("https", path, options)
    }

    fn ask_over(&self, scheme: &str, path: &str, options: &[&str]) -> Answer {
        let url = self.url(scheme, path);
        let mut command = curl();
        command.arg("--capath").arg(self.pki.certificates()).args(["--include", &url]).args(options);
        Answer::of(&run(command))
    }

    /// The same by the bearer of a token.
    fn bear(&self, token: &Secret, path: &str, options: &[&str]) -> Answer {
        let field = format!("Authorization: Bearer {}", token.expose());
        self.ask(path, &[&["--header", &field], options].concat())
    }

    /// A macaroon for Ada.
    fn make(&self, path: &str, body: &str) -> Secret {
        let answer = self.ask(path, &[ADA, &["--data", body], REQUEST].concat());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.macaroon()
    }
}

const ADA: &[&str] = &["--user", "ada:correct horse battery"];
const REQUEST: &[&str] = &["--header", "Content-Type: application/macaroon-request"];

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(outcome: &Outcome) -> Answer {
        let said = outcome.text();
        // Behind interim answers.
        let at = said.rfind("HTTP/1.1 ").unwrap_or_else(|| panic!("{}", outcome.describe()));
        let (head, body) = said[at..].split_once("\r\n\r\n").unwrap();
        let status = head[9..12].parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|cause| panic!("{cause}: {self:?}"))
    }

    fn macaroon(&self) -> Secret {
        let text = self.json()["macaroon"].as_str().unwrap().to_owned();
        secrets::remember(&text);
        Secret::new(text)
    }
}

fn private(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn who_proves_who_they_are_gets_one_that_does_what_it_says() {
    let site = Site::new();
    let body = r#"{"caveats": ["activity:DOWNLOAD,LIST,DELETE", "path:sub"], "validity": "PT10M"}"#;
    let answer = site.ask("data/ada/", &[ADA, &["--data", body], REQUEST].concat());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/json"), "{answer:?}");
    assert!(answer.head.contains("cache-control: no-store"), "{answer:?}");
    let macaroon = answer.macaroon();
    let said = answer.json();
    assert_eq!(said["expires_in"], 600);
    let uri = |name: &str| said["uri"][name].as_str().unwrap().to_owned();
    assert_eq!(uri("target"), site.url("https", "data/ada/"));
    assert_eq!(uri("base"), site.url("https", ""));
    assert_eq!(uri("baseWithMacaroon"), format!("{}?authz={}", uri("base"), macaroon.expose()));
    let all = caveats(macaroon.expose());
    assert_eq!(
        all[..4],
        [
            "name:ada",
            "activity:READ_METADATA,UPLOAD,DOWNLOAD,LIST",
            "activity:READ_METADATA,DOWNLOAD,LIST",
            "path:/data/ada/sub"
        ]
    );

    let got = site.bear(&macaroon, "data/ada/sub/f", &[]);
    assert_eq!((got.status, got.body.as_str()), (200, "data/ada/sub"), "{got:?}");
    assert_eq!(site.bear(&macaroon, "open/f", &[]).status, 200, "what anyone may");
    for (name, options) in [
        ("data/ada/subdir/f", &[][..]),
        ("data/eve/f", &[]),
        ("data/ada/sub/new", &["--upload-file", "/dev/null"]),
        ("data/ada/sub/f", &["--request", "DELETE"]),
    ] {
        let refused = site.bear(&macaroon, name, options);
        assert_eq!(refused.status, 403, "{name}: {refused:?}");
        assert!(refused.body.contains("caveats"), "{refused:?}");
    }
    // In the URL.
    let authz = format!("data/ada/sub/f?authz={}", macaroon.expose());
    assert_eq!(site.ask(&authz, &[]).status, 200);
    let authz = format!("data/ada/subdir/f?authz=Bearer%20{}", macaroon.expose());
    assert_eq!(site.ask(&authz, &[]).status, 403);
    // The identifier that revokes it is in the log.
    let id = Macaroon::parse(macaroon.expose()).unwrap().id();
    let logged = format!("macaroon {id} for 600 s under /data/ada/sub");
    let audit = site.scratch.join("audit.log");
    until("it is in the audit log", || {
        let log = fs::read_to_string(&audit).unwrap_or_default();
        log.lines().any(|line| line.contains("\"POST\"") && line.contains(&logged) && line.contains("ada"))
    });
    // And a narrower one, made by its bearer.
    let less = attenuate(macaroon.expose(), &[Caveat::Path(path("/data/ada/sub/g"))]).unwrap();
    assert_eq!(site.bear(&less, "data/ada/sub/f", &[]).status, 403);
}

#[test]
fn a_macaroon_gets_no_more_than_it_has() {
    let site = Site::new();
    let first = site.make("data/ada", r#"{"caveats": ["activity:DOWNLOAD"], "validity": "PT10M"}"#);
    let ask = |path: &str, body: &str| site.bear(&first, path, &[&["--data", body], REQUEST].concat());
    let answer = ask("data/ada/sub", r#"{"validity": "PT20H"}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json()["expires_in"].as_u64().unwrap() <= 600, "{answer:?}");
    let second = answer.macaroon();
    let id = |macaroon: &Secret| Macaroon::parse(macaroon.expose()).unwrap().id();
    assert_eq!(id(&second), id(&first), "it is the same, so that both can be revoked at once");
    assert_eq!(caveats(second.expose())[..5], caveats(first.expose())[..]);
    assert_eq!(site.bear(&second, "data/ada/sub/f", &[]).status, 200);
    assert_eq!(site.bear(&second, "data/ada/subdir/f", &[]).status, 403);
    for (path, body) in [
        ("data", "{}"),
        ("data/eve", "{}"),
        ("open", "{}"),
        ("data/ada", r#"{"caveats": ["activity:UPLOAD"]}"#),
    ] {
        let refused = ask(path, body);
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
    }
}

#[test]
fn wrong_requests_are_refused_in_words() {
    let site = Site::new();
    let long = format!(r#"{{"caveats": [], "x": "{}"}}"#, "y".repeat(5000));
    let plain: &[&str] = &["--data", "{}"];
    let chunked: &[&str] = &["--data", "{}", "--header", "Transfer-Encoding: chunked"];
    let json: &[&str] = &["--data", "{}", "--header", "Content-Type: application/json"];
    for (path, options, status, words) in [
        ("data/ada", [plain, REQUEST, &[]], 401, "certificate, a token or a password"),
        ("data/ada", [json, ADA, &[]], 405, "does not offer POST"),
        ("data/ada", [chunked, REQUEST, ADA], 411, "Content-Length"),
        ("data/ada", [&["--data", &long], REQUEST, ADA], 413, "4096"),
        ("data/ada", [&["--data", "{"], REQUEST, ADA], 400, "not what it should be"),
        ("data/ada", [&["--data", r#"{"validity": "tomorrow"}"#], REQUEST, ADA], 400, "no duration"),
        ("data/ada", [&["--data", r#"{"caveats": ["colour:red"]}"#], REQUEST, ADA], 400, "colour:red"),
        ("data/ada", [&["--data", r#"{"caveats": ["path:../eve"]}"#], REQUEST, ADA], 400, "leads elsewhere"),
        ("data/ada", [&["--data", r#"{"caveats": ["path:/data/eve"]}"#], REQUEST, ADA], 400, "not below"),
        (
            "data/ada",
            [&["--data", r#"{"caveats": ["activity:DELETE"]}"#], REQUEST, ADA],
            403,
            "nothing there",
        ),
        ("data/eve", [plain, REQUEST, ADA], 403, "nothing there"),
        ("data", [plain, REQUEST, ADA], 403, "nothing there"),
        (".oauth2/token", [plain, REQUEST, ADA], 415, "application/x-www-form-urlencoded"),
        (".oauth2/token", [&["--data", "grant_type=password"], ADA, &[]], 400, "client_credentials"),
    ] {
        let refused = site.ask(path, &options.concat());
        assert_eq!(refused.status, status, "{path} {options:?}: {refused:?}");
        assert!(refused.body.contains(words), "{words:?}: {refused:?}");
        assert_eq!(refused.head.contains("www-authenticate: "), status == 401, "{refused:?}");
    }
    let refused = site.ask_over("http", "data/ada", &[plain, REQUEST, ADA].concat());
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("https"), "{refused:?}");
}

#[test]
fn wrong_macaroons_are_refused_in_words() {
    let site = Site::new();
    let good = site.make("data/ada", "{}");
    assert_eq!(site.bear(&good, "data/ada/sub/f", &[]).status, 200);
    let text = good.expose();
    let with = |caveats: &[Caveat]| attenuate(text, caveats).unwrap().expose().to_owned();
    let foreign = {
        let macaroon = Macaroon::parse(text).unwrap().with_caveat(b"colour:red").unwrap();
        macaroon.to_text().expose().to_owned()
    };
    let changed = {
        let at = text.len() / 2;
        let other = if &text[at..=at] == "A" { "B" } else { "A" };
        format!("{}{other}{}", &text[..at], &text[at + 1..])
    };
    let network = vec!["192.0.2.0/24".parse().unwrap()];
    for (text, words) in [
        (changed.as_str(), "macaroon"),
        (&text[..text.len() - 8], "cut off"),
        (&format!("{text}{text}"), "macaroon"),
        ("swordfish-swordfish", "macaroon"),
        (&with(&[Caveat::Before(now_s() - 10)]), "expired"),
        (&with(&[Caveat::Name("root".to_owned())]), "names"),
        (&with(&[Caveat::Ip(network)]), "must not be used from"),
        (&foreign, "\"colour:red\" is not understood"),
    ] {
        for name in ["data/ada/sub/f", "open/f"] {
            let refused = site.bear(&Secret::new(text), name, &[]);
            assert_eq!(refused.status, 401, "{words}: {refused:?}");
            assert!(refused.body.contains(words), "{words:?}: {refused:?}");
            assert!(refused.head.contains("www-authenticate: "), "{refused:?}");
        }
    }
    // Revoked, with all macaroons that were derived from it.
    let less = Secret::new(with(&[Caveat::Before(now_s() + 600)]));
    assert_eq!(site.bear(&less, "data/ada/sub/f", &[]).status, 200);
    let id = Macaroon::parse(text).unwrap().id();
    site.scratch.file("revoked", format!("{id}\n").as_bytes());
    signal(&site.server.pid().to_string(), "HUP");
    let mut answer = None;
    until("the macaroon is revoked", || {
        answer = Some(site.bear(&less, "data/ada/sub/f", &[]));
        answer.as_ref().is_some_and(|answer| answer.status == 401)
    });
    let answer = answer.unwrap();
    assert!(answer.body.contains("was revoked"), "{answer:?}");
    assert_eq!(site.bear(&good, "data/ada/sub/f", &[]).status, 401);
}

#[test]
fn xrootd_s_token_endpoint() {
    let site = Site::new();
    for name in [".well-known/oauth-authorization-server", ".well-known/openid-configuration"] {
        let said = site.ask(name, &[]);
        assert_eq!(said.status, 200, "{said:?}");
        assert_eq!(said.json()["token_endpoint"], site.url("https", ".oauth2/token").as_str());
    }
    for scope in ["scope", "scopes"] {
        let form =
            format!("grant_type=client_credentials&expire_in=300&{scope}=DOWNLOAD:/data/ada LIST:/data/ada");
        let answer = site.ask(".oauth2/token", &[ADA, &["--data", &form]].concat());
        assert_eq!(answer.status, 200, "{answer:?}");
        let said = answer.json();
        assert_eq!((&said["token_type"], &said["expires_in"]), (&"bearer".into(), &300.into()));
        let token = Secret::new(said["access_token"].as_str().unwrap());
        secrets::remember(token.expose());
        assert_eq!(site.bear(&token, "data/ada/sub/f", &[]).status, 200);
        assert_eq!(site.bear(&token, "data/ada/new", &["--upload-file", "/dev/null"]).status, 403);
    }
}

#[test]
fn our_own_client_asks_and_uses() {
    let site = Site::new();
    let url = site.url("https", "data/ada/sub").replace("://", "://ada:correct%20horse%20battery@");
    let mut command = gridlane();
    command.args(["auth", "token", &url, "--may", "read,create", "--lifetime", "10m"]);
    command.env("X509_CERT_DIR", site.pki.certificates());
    let token = run(command).ok().text();
    assert!(caveats(&token).contains(&"activity:READ_METADATA,UPLOAD,DOWNLOAD".to_owned()), "{token}");
    let token_file = site.scratch.file("token", token.as_bytes());
    private(&token_file);
    secrets::remember(&token);
    let bytes = content(31, MIB);
    let source = site.scratch.file("source", &bytes);
    let cp = |from: &str, to: &str| {
        let mut command = gridlane();
        command.args(["cp", from, to, "--json"]).env("BEARER_TOKEN_FILE", &token_file);
        command.env("X509_CERT_DIR", site.pki.certificates());
        run(command)
    };
    cp(text_of(&source), &site.url("https", "data/ada/sub/g")).ok();
    assert_same(&fs::read(site.scratch.join("root/data/ada/sub/g")).unwrap(), &bytes);
    let target = site.scratch.join("target");
    cp(&site.url("https", "data/ada/sub/g"), text_of(&target)).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    cp(&site.url("https", "data/ada/subdir/f"), text_of(&site.scratch.join("other"))).exits(4);
    // A client without credentials gets none.
    let mut command = gridlane();
    command.args(["auth", "token", &site.url("https", "data/ada")]);
    command.env("X509_CERT_DIR", site.pki.certificates());
    run(command).exits(4);
}

/// A command of gfal2's with Ada's proxy.
fn gfal(site: &Site, name: &str, arguments: &[&str]) -> Outcome {
    let proxy = site.pki.proxy("proxy", &site.pki.credential("ada"), Rfc3820::FULL);
    let mut command = tool(name, "gfal2-util-scripts");
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").env("X509_USER_PROXY", &proxy.file);
    command.env("X509_CERT_DIR", site.pki.certificates()).args(arguments);
    run(command)
}

#[test]
fn gfal2_asks_by_itself() {
    let site = Site::new();
    let url = site.url("https", "data/ada/sub/f").replace("https", "davs");
    // Its command for that.
    let token = gfal(&site, "gfal-token", &[&url, "DOWNLOAD", "LIST"]).ok().text();
    let token = Secret::new(token.trim());
    secrets::remember(token.expose());
    assert_eq!(site.bear(&token, "data/ada/sub/f", &[]).status, 200);
    assert_eq!(caveats(token.expose())[0], "name:ada", "by the gridmap");
    // For a copy, when it is told to use tokens instead of the proxy.
    let target = site.scratch.join("target");
    let option = "HTTP PLUGIN:RETRIEVE_BEARER_TOKEN=true";
    gfal(&site, "gfal-copy", &["-D", option, &url, text_of(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), b"data/ada/sub");
    asked_by_proxy_and_used(&site);
}

/// Asserts that a client with a proxy was given a macaroon, and used one for everything else.
fn asked_by_proxy_and_used(site: &Site) {
    let log = site.scratch.join("access.log");
    let mut records = Vec::<Value>::new();
    until("the log says that a macaroon was used", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        records = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_transfer =
            |record: &Value| ["GET", "PUT", "COPY"].iter().any(|method| record["method"] == **method);
        records.iter().any(|record| is_transfer(record) && record["identity"]["kind"] == "macaroon")
    });
    let by_proxy: Vec<&Value> =
        records.iter().filter(|record| record["identity"]["kind"] == "certificate").collect();
    assert!(!by_proxy.is_empty());
    for record in by_proxy {
        assert_eq!((&record["method"], &record["status"]), (&"POST".into(), &200.into()), "{record}");
    }
}

#[test]
fn gfal2_copies_from_site_to_site_by_macaroons() {
    let (one, two) = (Site::new(), Site::new());
    let from = one.url("https", "data/ada/sub/f").replace("https", "davs");
    let to = two.url("https", "data/ada/sub/copied").replace("https", "davs");
    gfal(&one, "gfal-copy", &[&from, &to]).ok();
    assert_same(&fs::read(two.scratch.join("root/data/ada/sub/copied")).unwrap(), b"data/ada/sub");
    asked_by_proxy_and_used(&one);
    asked_by_proxy_and_used(&two);
}

#[test]
fn a_site_of_xrootd_and_gridlane() {
    let (xrootd, _, secret) = xrootd();
    let scratch = Scratch::new();
    scratch.file("root/open/sub/f", b"from gridlane");
    scratch.file("root/closed/sub/f", b"from gridlane");
    scratch.file("users", make_line("ada", PASSWORD, [7; 16], 4).unwrap().as_bytes());
    private(&scratch.join("users"));
    fs::copy(secret.join("secret"), scratch.join("secret")).unwrap();
    let config = r#"
[serve]
listen = ["127.0.0.1:0"]
[root]
sitename = "SITE"
[auth]
users = "@/users"
macaroon-secrets = "@/secret"
[[export]]
path = "/"
directory = "@/root"
[[rule]]
user = "ada"
may = ["read", "list"]
under = "/closed"
"#;
    let config = config.replace('@', text_of(scratch.path())).replace("SITE", super::SITE);
    let server = Server::by_file(&scratch.file("serve.toml", config.as_bytes()));
    let at_gridlane = |path: &str| server.url_over("https", path);
    let at_xrootd = |path: &str| format!("https://localhost:{}/{path}", xrootd.port());
    let request =
        [REQUEST, &["--data", r#"{"caveats": ["activity:DOWNLOAD"], "validity": "PT10M"}"#]].concat();
    let get =
        |url: String, macaroon: &str| ask(&url, &["--header", &format!("Authorization: Bearer {macaroon}")]);
    let macaroon = |answer: (u16, String)| {
        assert_eq!(answer.0, 200, "{answer:?}");
        let text = serde_json::from_str::<Value>(&answer.1).unwrap()["macaroon"].as_str().unwrap().to_owned();
        secrets::remember(&text);
        text
    };
    // Each takes those of the other.
    let theirs = macaroon(ask(&at_xrootd("open/sub"), &request));
    assert_eq!(get(at_gridlane("open/sub/f"), &theirs), (200, "from gridlane".to_owned()));
    assert_eq!(get(at_gridlane("closed/sub/f"), &theirs).0, 403);
    assert_eq!(ask(&at_gridlane("open/sub/f"), &[]).0, 401);
    let ours = macaroon(ask(&at_gridlane("closed/sub"), &[ADA, &request].concat()));
    assert_eq!(get(at_xrootd("closed/sub/f"), &ours), (200, "content".to_owned()), "{}", xrootd.log());
    assert_eq!(get(at_xrootd("closed/other/f"), &ours).0, 403);
    assert_eq!(ask(&at_xrootd("closed/sub/f"), &[]).0, 403);
}
