//! `gridlane serve` authenticates the field's clients: by certificates, proxies, tokens, macaroons and passwords.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::{Outcome, Running, cp, gridlane, run, signal, text};
use crate::support::issuer::{Issuer, Signer, now_s, wlcg};
use crate::support::object::Object;
use crate::support::pki::{ADA_DN, BOB_DN, Credential, EVE_DN, Pki, Rfc3820, openssl};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::tools::{curl, tool};
use crate::support::voms::VomsProxy;
use crate::support::{
    MIB, Scratch, assert_same, content, journal_of, occupied_bytes, part_of, python, secrets, until,
};

pub(super) const AUDIENCE: &str = "https://storage.gridlane.test";
const PASSWORD: &str = "correct horse battery";
pub(super) const BYTES: &[u8] = b"the bytes of a file";

/// A server that knows all kinds of people, the people, and an issuer of tokens.
pub(super) struct Site {
    pub(super) pki: Pki,
    pub(super) signer: Signer,
    pub(super) issuer: Issuer,
    pub(super) server: Server,
    pub(super) scratch: Scratch,
}

impl Site {
    pub(super) fn new() -> Site {
        let (pki, scratch) = (Pki::new(), Scratch::new());
        let signer = Signer::es256("key");
        let issuer = Issuer::start(&[&signer]);
        for file in ["vo/f", "vo/sub/f", "bob/f", "home/ada/f", "public/f"] {
            scratch.file(&format!("export/{file}"), BYTES);
        }
        let host = pki.credential("host");
        let users = make_users(&scratch);
        let macaroons = scratch.join("macaroons");
        run(openssl(&["rand", "-base64", "-out", text(&macaroons), "64"])).ok();
        fs::read_to_string(&macaroons).unwrap().lines().for_each(secrets::remember);
        private(&macaroons);
        let config = format!(
            r#"
[serve]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
cert = {cert:?}
key = {key:?}
access-log = {log:?}
audit-log = {audit:?}

[[export]]
path = "/"
directory = {export:?}

[auth]
client-ca-dir = {authorities:?}
voms-dir = {vomsdir:?}
audiences = [{AUDIENCE:?}]
macaroon-secrets = {macaroons:?}
users = {users:?}

[[auth.issuer]]
url = {issuer:?}
path = "/vo"

[[rule]]
vo = "gridlane"
may = ["read", "list"]
under = "/vo"

[[rule]]
vo = "gridlane"
role = "admin"
may = ["read", "list", "write", "delete"]
under = "/vo"

[[rule]]
dn = {BOB_DN:?}
may = ["read"]
under = "/bob"

[[rule]]
user = "ada"
may = ["read", "list", "write", "delete"]
under = "/home/{{user}}"

[[rule]]
who = "anyone"
may = ["read"]
under = "/public"
"#,
            cert = host.cert,
            key = host.key,
            log = scratch.join("access.log"),
            audit = scratch.join("audit.log"),
            export = scratch.join("export"),
            authorities = pki.certificates(),
            vomsdir = pki.vomsdir(),
            issuer = issuer.url,
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        let mut command = gridlane();
        // The authority of the issuer's own server.
        command.args(["serve", "--json", "--config"]).arg(config).env("SSL_CERT_FILE", &issuer.ca);
        let server = Server::spawn(command);
        Site { pki, signer, issuer, server, scratch }
    }

    /// The URL of a path, by a name: some clients look for no addresses in certificates.
    pub(super) fn url(&self, path: &str) -> String {
        self.server.url_over("https", path).replace("127.0.0.1", "localhost")
    }

    pub(super) fn exported(&self, path: &str) -> PathBuf {
        self.scratch.join("export").join(path)
    }

    /// Curl's answer.
    fn ask(&self, url: &str, arguments: &[&str]) -> Answer {
        let mut command = curl();
        command.arg("--capath").arg(self.pki.certificates()).arg("--path-as-is");
        command.args(["--write-out", "\n%{http_code} %header{wWWW-Authenticate}"]).args(arguments).arg(url);
        let said = run(command).ok().text();
        let (body, rest) = said.rsplit_once('\n').unwrap();
        let (status, challenge) = rest.split_once(' ').unwrap();
        Answer { status: status.parse().unwrap(), challenge: challenge.to_owned(), body: body.to_owned() }
    }

    /// The same with a certificate.
    fn ask_with(&self, credential: &Credential, path: &str, arguments: &[&str]) -> Answer {
        self.ask(&self.url(path), &[&["--cert", text(&credential.file)], arguments].concat())
    }

    /// The same with a token.
    fn ask_by_token(&self, token: &str, path: &str, arguments: &[&str]) -> Answer {
        let header = format!("Authorization: Bearer {token}");
        self.ask(&self.url(path), &[&["--header", &header], arguments].concat())
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.signer.token(&wlcg(&self.issuer.url, AUDIENCE, claims))
    }

    /// A program with the variables by which the grid's programs find credentials.
    pub(super) fn run(
        &self,
        mut command: Command,
        proxy: Option<&Credential>,
        token: Option<&str>,
    ) -> Outcome {
        command.env("X509_CERT_DIR", self.pki.certificates()).env("GFAL_PYTHONBIN", "/usr/bin/python3");
        if let Some(proxy) = proxy {
            command.env("X509_USER_PROXY", &proxy.file);
        }
        if let Some(token) = token {
            command.env("BEARER_TOKEN", token);
        }
        run(command)
    }

    pub(super) fn member(&self) -> Credential {
        VomsProxy::of(&self.pki, "eve", "gridlane", &["/gridlane"]).make("member")
    }

    pub(super) fn admin(&self) -> Credential {
        VomsProxy::of(&self.pki, "ada", "gridlane", &["/gridlane/Role=admin", "/gridlane"]).make("admin")
    }

    /// Where nothing is yet.
    pub(super) fn target(&self) -> PathBuf {
        let target = self.scratch.join("got");
        let _ = fs::remove_file(&target);
        target
    }

    pub(super) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.join(name)).unwrap()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    /// `WWW-Authenticate`.
    challenge: String,
    body: String,
}

impl Answer {
    /// Asserts a refusal with this status, and a word of its cause.
    #[track_caller]
    fn refuses(&self, status: u16, word: &str) {
        let said = format!("{} {}", self.challenge, self.body).to_lowercase();
        assert!(self.status == status && said.contains(word), "not {status} with {word:?}: {self:?}");
    }
}

/// A program from a package, with these arguments.
pub(super) fn program(name: &str, package: &str, arguments: &[&str]) -> Command {
    let mut command = tool(name, package);
    command.args(arguments);
    command
}

fn private(file: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A file of users as Apache's program makes it.
fn make_users(scratch: &Scratch) -> PathBuf {
    secrets::remember_password("ada", PASSWORD);
    let users = scratch.join("users");
    run(program("htpasswd", "apache2-utils", &["-cbB", "-C", "5", text(&users), "ada", PASSWORD])).ok();
    private(&users);
    users
}

#[test]
fn proxies_open_what_their_vo_may() {
    let site = Site::new();
    let (member, admin) = (site.member(), site.admin());
    assert_eq!(site.ask_with(&member, "vo/f", &[]).body.as_bytes(), BYTES);
    assert_eq!(site.ask_with(&admin, "vo/f", &[]).status, 200);
    site.ask_with(&member, "vo/up", &["--request", "PUT", "--data", "no"]).refuses(403, "");
    assert_eq!(site.ask_with(&admin, "vo/up", &["--request", "PUT", "--data", "yes"]).status, 201);
    assert_eq!(fs::read(site.exported("vo/up")).unwrap(), b"yes");
    assert_eq!(site.ask_with(&admin, "vo/up", &["--request", "DELETE"]).status, 204);
    site.ask_with(&admin, "bob/f", &[]).refuses(403, "");
    // By the name in a certificate, with either kind of key and without a proxy.
    assert_eq!(site.ask_with(&site.pki.credential("bob"), "bob/f", &[]).status, 200);
    site.ask_with(&site.pki.credential("ada-ecdsa"), "bob/f", &[]).refuses(403, "");

    // Handed on twice; limited; and further than its owner allows.
    let handed = site.pki.proxy("handed", &member, Rfc3820::FULL.path_length_max(0));
    assert_eq!(site.ask_with(&handed, "vo/f", &[]).status, 200);
    let too_far = site.pki.proxy("too-far", &handed, Rfc3820::FULL);
    site.ask_with(&too_far, "vo/f", &[]).refuses(401, "proxy");
    let limited = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).limited().make("limited");
    assert_eq!(site.ask_with(&limited, "vo/f", &[]).status, 200);
    let independent = site.pki.proxy("independent", &site.pki.credential("bob"), Rfc3820::INDEPENDENT);
    assert_ne!(site.ask_with(&independent, "bob/f", &[]).status, 200);

    // Known, and not in the VO.
    for (name, proxy) in [
        ("of another VO", VomsProxy::of(&site.pki, "ada", "other", &["/other"]).make("other")),
        ("of none", site.pki.proxy("none", &site.pki.credential("ada"), Rfc3820::FULL)),
        (
            "until yesterday",
            VomsProxy::of(&site.pki, "ada", "gridlane", &["/gridlane"]).with_expired_attributes().make("old"),
        ),
    ] {
        let answer = site.ask_with(&proxy, "vo/f", &[]);
        assert_eq!(answer.status, 403, "{name}: {answer:?}");
    }
    let (log, audit) = (site.log("access.log"), site.log("audit.log"));
    assert!(log.contains(EVE_DN) && log.contains(BOB_DN), "{log}");
    assert!(audit.contains(ADA_DN), "{audit}");
}

#[test]
fn certificates_that_do_not_count_are_named() {
    let site = Site::new();
    site.ask(&site.url("vo/f"), &[]).refuses(401, "");
    assert_eq!(site.ask(&site.url("public/f"), &[]).status, 200);
    for (name, word) in [
        ("revoked", "revoked"),
        ("expired", "expired"),
        ("future", "not valid before"),
        ("stranger-ada", "authorit"),
        ("false-ada", "policy"),
    ] {
        let credential = site.pki.credential(name);
        site.ask_with(&credential, "vo/f", &[]).refuses(401, word);
        // What anyone may, its holder may as well.
        assert_eq!(site.ask_with(&credential, "public/f", &[]).status, 200, "{name}");
    }
    let expired = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).expired().make("expired");
    site.ask_with(&expired, "vo/f", &[]).refuses(401, "expired");
    let legacy = VomsProxy::of(&site.pki, "eve", "gridlane", &["/gridlane"]).legacy().make("legacy");
    site.ask_with(&legacy, "vo/f", &[]).refuses(401, "proxy");

    // Another user is revoked, and the server hears of it.
    let member = site.member();
    assert_eq!(site.ask_with(&member, "vo/f", &[]).status, 200);
    site.pki.revoke("eve");
    signal(&site.server.pid().to_string(), "HUP");
    until("the list is read", || site.ask_with(&member, "vo/f", &[]).status == 401);
    site.ask_with(&member, "vo/f", &[]).refuses(401, "revoked");
    assert_eq!(site.ask_with(&site.admin(), "vo/f", &[]).status, 200);
}

#[test]
fn the_fields_clients_show_proxies() {
    let site = Site::new();
    let (member, admin) = (site.member(), site.admin());
    let (url, target) = (site.url("vo/f"), site.target());
    let authorities = site.pki.certificates();
    let local = site.scratch.file("local", b"from here");
    // davix
    let davix = |name: &str, credential: &Credential, arguments: &[&str]| {
        let always = ["--capath", text(&authorities), "--cert", text(&credential.file)];
        site.run(program(name, "davix", &[&always, arguments].concat()), None, None)
    };
    assert_same(&davix("davix-get", &member, &[&url]).ok().stdout, BYTES);
    davix("davix-ls", &member, &[&site.url("vo/")]).ok().says(&["f", "sub"]);
    davix("davix-put", &admin, &[text(&local), &site.url("vo/davix")]).ok();
    assert_eq!(fs::read(site.exported("vo/davix")).unwrap(), b"from here");
    assert_ne!(davix("davix-put", &member, &[text(&local), &site.url("vo/no")]).code, Some(0));
    assert!(!site.exported("vo/no").exists());
    // gfal2
    let gfal = |name: &str, credential: &Credential, arguments: &[&str]| {
        site.run(program(name, "gfal2-util-scripts", arguments), Some(credential), None)
    };
    gfal("gfal-copy", &member, &[&url, text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    gfal("gfal-ls", &member, &[&site.url("vo/")]).ok().says(&["f", "sub"]);
    gfal("gfal-copy", &admin, &[text(&local), &site.url("vo/gfal")]).ok();
    assert_eq!(fs::read(site.exported("vo/gfal")).unwrap(), b"from here");
    gfal("gfal-rm", &admin, &[&site.url("vo/gfal")]).ok();
    assert_ne!(gfal("gfal-rm", &member, &[&url]).code, Some(0));
    // Ours.
    let ours = |credential: &Credential, arguments: &[&str]| {
        let mut command = gridlane();
        command.args(arguments);
        site.run(command, Some(credential), None)
    };
    ours(&member, &["cp", &url, text(&site.target())]).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    ours(&admin, &["cp", text(&local), &site.url("vo/ours")]).ok();
    ours(&member, &["rm", &site.url("vo/ours")]).exits(4);
    ours(&admin, &["rm", &site.url("vo/ours")]).ok();
}

#[test]
fn macaroons_for_the_fields_clients() {
    let site = Site::new();
    let admin = site.admin();
    let url = site.url("vo/f");
    // As gfal2 asks for one.
    let asked = program("gfal-token", "gfal2-util-scripts", &[&url, "DOWNLOAD", "LIST"]);
    let said = site.run(asked, Some(&admin), None).ok().text();
    let macaroon = said.trim();
    secrets::remember(macaroon);
    assert_eq!(site.ask_by_token(macaroon, "vo/f", &[]).status, 200);
    site.ask_by_token(macaroon, "vo/sub/f", &[]).refuses(403, "");
    site.ask_by_token(macaroon, "vo/f", &["--request", "DELETE"]).refuses(403, "");
    assert_eq!(site.ask(&format!("{url}?authz=Bearer%20{macaroon}"), &[]).status, 200);
    // Any bearer may take away from it.
    for (caveat, status) in [("activity:LIST", 403), ("before:2000-01-01T00:00:00Z", 401), ("wind:calm", 401)]
    {
        let mut command = python::debian("macaroon_caveats.py");
        command.args([macaroon, caveat]);
        let said = run(command).ok().text();
        let less = said.lines().next().unwrap();
        secrets::remember(less);
        site.ask_by_token(less, "vo/f", &[]).refuses(status, "");
    }
    // Cut, changed.
    let truncated = &macaroon[..macaroon.len() - 8];
    secrets::remember(truncated);
    site.ask_by_token(truncated, "vo/f", &[]).refuses(401, "macaroon");
    let target = site.target();
    let copied = program("gfal-copy", "gfal2-util-scripts", &[&url, text(&target)]);
    site.run(copied, None, Some(macaroon)).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    let mut ours = gridlane();
    ours.args(["cp", &url, text(&site.target())]);
    site.run(ours, None, Some(macaroon)).ok();
    // An anonymous client gets none.
    let request = ["--header", "Content-Type: application/macaroon-request", "--data", "{}"];
    site.ask(&url, &request).refuses(401, "");
}

#[test]
fn tokens_open_their_scopes() {
    let site = Site::new();
    let token = site.token(&json!({ "scope": "storage.read:/f storage.read:/up storage.modify:/up" }));
    let url = site.url("vo/f");
    assert_eq!(site.ask_by_token(&token, "vo/f", &[]).status, 200);
    site.ask_by_token(&token, "vo/sub/f", &[]).refuses(403, "");
    for path in ["vo/f/../sub/f", "vo/f/%2e%2e/sub/f", "vo//f/..//sub/f", "vo/%2e%2e/bob/f"] {
        let answer = site.ask_by_token(&token, path, &[]);
        assert!([400, 403].contains(&answer.status), "{path}: {answer:?}");
    }
    assert_eq!(site.ask(&format!("{url}?authz=Bearer%20{token}"), &[]).status, 200);
    for (claims, word) in [
        (json!({ "exp": now_s() - 600, "iat": now_s() - 900, "nbf": now_s() - 900 }), "expired"),
        (json!({ "nbf": now_s() + 6000 }), "becomes valid"),
        (json!({ "aud": "https://elsewhere.gridlane.test" }), "another server"),
        (json!({ "iss": "https://elsewhere.gridlane.test/" }), "issuer"),
    ] {
        site.ask_by_token(&site.token(&claims), "vo/f", &[]).refuses(401, word);
    }
    site.ask_by_token(&token[..token.len() - 20], "vo/f", &[]).refuses(401, "token");
    // A token in the place of a certificate does not add to it.
    let member = site.member();
    let header = format!("Authorization: Bearer {token}");
    site.ask_with(&member, "vo/sub/f", &["--header", &header]).refuses(403, "");

    // The field's clients.
    let target = site.target();
    let ca = site.pki.credential("ca").cert;
    let arguments = ["copyto", "--header", &header, "--ca-cert", text(&ca), ":http:f", text(&target)];
    let mut rclone = program("rclone", "rclone", &arguments);
    rclone.args(["--http-url", &site.url("vo/")]).args(["--config", "/dev/null"]);
    site.run(rclone, None, None).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    let copied = program("gfal-copy", "gfal2-util-scripts", &[&url, text(&site.target())]);
    site.run(copied, None, Some(&token)).ok();
    assert_same(&fs::read(&target).unwrap(), BYTES);
    let log = site.log("access.log");
    assert!(log.contains("b7a4"), "the subject is in the log: {log}");
}

#[test]
fn passwords_open_a_home() {
    let site = Site::new();
    let url = site.url("home/ada/f");
    let right = format!("ada:{PASSWORD}");
    assert_eq!(site.ask(&url, &["--user", &right]).status, 200);
    assert_eq!(site.ask(&url, &["--user", &right, "--request", "PUT", "--data", "new"]).status, 204);
    site.ask(&site.url("vo/f"), &["--user", &right]).refuses(403, "");
    site.ask(&url, &["--user", "ada:not her password"]).refuses(401, "");
    site.ask(&url, &["--user", "nobody:not her password"]).refuses(401, "");
    // One way after the other is offered.
    let head = site.ask(&url, &["--head"]);
    assert!(
        head.body.contains("WWW-Authenticate: Bearer") && head.body.contains("WWW-Authenticate: Basic"),
        "{head:?}"
    );
    assert!(site.log("access.log").contains("ada"));
}

/// A request by OpenSSL's client, over one version of TLS, and what it says of the connection.
fn ask_openssl(site: &Site, version: &str, options: &[&str]) -> String {
    let request =
        site.scratch.file("request", b"GET /vo/f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let address = site.url("").replace("https://", "").replace('/', "");
    let mut command =
        openssl(&["s_client", "-connect", &address, "-servername", "localhost", "-ign_eof", version]);
    command.arg("-CApath").arg(site.pki.certificates()).args(options);
    run_with_input(command, &request).text()
}

fn run_with_input(mut command: Command, input: &std::path::Path) -> Outcome {
    command.stdin(fs::File::open(input).unwrap());
    run(command)
}

/// A resumed session has the identity that began it, as long as that counts.
#[test]
fn a_resumed_session_is_no_way_around() {
    let site = Site::new();
    let member = site.member();
    for version in ["-tls1_3", "-tls1_2"] {
        let session = site.scratch.join(format!("session{version}"));
        let credential =
            ["-cert", text(&member.cert), "-cert_chain", text(&member.cert), "-key", text(&member.key)];
        let kept = ["-sess_out", text(&session)];
        let first = ask_openssl(&site, version, &[&credential[..], &kept].concat());
        assert!(first.contains("HTTP/1.1 200 "), "{first}");
        let again = ask_openssl(&site, version, &["-sess_in", text(&session)]);
        assert!(again.contains("Reused, ") && again.contains("HTTP/1.1 200 "), "{again}");
    }
    site.pki.revoke("eve");
    signal(&site.server.pid().to_string(), "HUP");
    until("the list is read", || site.ask_with(&member, "vo/f", &[]).status == 401);
    for version in ["-tls1_3", "-tls1_2"] {
        let session = site.scratch.join(format!("session{version}"));
        let again = ask_openssl(&site, version, &["-sess_in", text(&session)]);
        assert!(again.contains("HTTP/1.1 401 "), "{again}");
    }
}

/// The files that a killed copy leaves beside its target have nothing of the URL's secret: the scratch directory is
/// searched when it goes.
#[test]
fn what_a_killed_copy_leaves_has_no_secret() {
    let scratch = Scratch::new();
    let bytes = content(7201, 8 * MIB);
    let object = Object::new(&bytes);
    let server = Rogue::with_rate(4_000_000, move |request| object.answer(request));
    let target = scratch.join("f");
    let token = Signer::es256("key").token(&json!({ "sub": "ada" }));
    let copy = Running::start(cp(format!("{}?authz=Bearer%20{token}", server.url("f")), &target));
    until("a part is there", || {
        occupied_bytes(&part_of(&target)) > MIB as u64 && journal_of(&target).exists()
    });
    copy.kill();
    assert!(journal_of(&target).exists(), "{:?}", scratch.names());
}

#[test]
fn gridlane_itself_shows_proxies_and_tokens_and_says_why_it_is_refused() {
    let site = Site::new();
    let (member, admin) = (site.member(), site.admin());
    let ours = |words: &[&str]| {
        let mut command = gridlane();
        command.args(words);
        command
    };
    let (file, up) = (site.url("vo/f"), site.url("vo/up"));
    let source = site.scratch.file("new", b"new");
    assert_same(&site.run(ours(&["cat", &file]), Some(&member), None).ok().stdout, BYTES);
    let refused = site.run(ours(&["cp", text(&source), &up]), Some(&member), None).exits(4);
    refused.says(&["made with the proxy of", text(&member.file), "voms-proxy-info"]);
    site.run(ours(&["cp", text(&source), &up]), Some(&admin), None).ok();
    assert_eq!(fs::read(site.exported("vo/up")).unwrap(), b"new");
    site.run(ours(&["rm", &up]), Some(&admin), None).ok();

    let reader = site.token(&json!({ "scope": "storage.read:/" }));
    assert_same(&site.run(ours(&["cat", &file]), None, Some(&reader)).ok().stdout, BYTES);
    let out = site.scratch.dir("out");
    site.run(ours(&["cp", "-r", &site.url("vo/"), text(&out)]), None, Some(&reader)).ok();
    assert_same(&fs::read(out.join("sub/f")).unwrap(), BYTES);
    // The token counts, and not the proxy that could do more.
    let refused = site.run(ours(&["cp", text(&source), &up]), Some(&admin), Some(&reader)).exits(4);
    refused.says(&["made with the token of BEARER_TOKEN", "scopes"]);
    let elsewhere = site.token(&json!({ "scope": "storage.read:/", "aud": "https://other.example" }));
    let refused = site.run(ours(&["cat", &file]), None, Some(&elsewhere)).exits(4);
    refused.says(&["401", "invalid_token", "audience"]);
    let in_url = format!("{file}?authz={reader}");
    assert_same(&site.run(ours(&["cat", &in_url]), None, None).ok().stdout, BYTES);
    site.run(ours(&["cat", &file]), None, None).exits(4).says(&["without credentials", "--token-file"]);
}
