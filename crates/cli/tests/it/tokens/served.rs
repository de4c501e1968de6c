//! Verdicts of a server on tokens: good ones, bad ones, and issuers that change their keys or are gone.

use std::path::{Path, PathBuf};

use ring::hmac;
use serde_json::{Value, json};

use crate::support::client::{Running, gridlane, signal};
use crate::support::issuer::{Issuer, Signer, encoded, now_s, scitoken, wlcg};
use crate::support::nginx::Nginx;
use crate::support::serve::Server;
use crate::support::tools::curl;
use crate::support::{Scratch, until};

const AUDIENCE: &str = "https://storage.example:1094";

/// A server that believes one issuer, whose files are below `/data`.
struct Site {
    scratch: Scratch,
    config: PathBuf,
    server: Server,
}

/// Curl's answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// `WWW-Authenticate`.
    challenge: String,
    body: String,
}

impl Site {
    fn start(issuer: &Issuer) -> Site {
        Site::believing(&issuer.url, &issuer.ca)
    }

    /// A server that believes this issuer, and the authority of its certificate.
    fn believing(url: &str, ca: &Path) -> Site {
        let scratch = Scratch::new();
        for file in ["data/a/f", "data/ab/f", "data/b/f", "data/f"] {
            scratch.file(&format!("served/{file}"), file.as_bytes());
        }
        let config = format!(
            "ca = [{:?}]\n[serve]\nlisten = [\"127.0.0.1:0\"]\naccess-log = {:?}\n\
             [[export]]\npath = \"/\"\ndirectory = {:?}\n\
             [auth]\naudiences = [{AUDIENCE:?}]\nkeys-dir = {:?}\n\
             [[auth.issuer]]\nurl = {:?}\npath = \"/data\"\nvo = \"vo\"\n\
             [[rule]]\ngroup = \"/vo/readers\"\nmay = [\"read\"]\nunder = \"/data/b\"\n",
            ca,
            scratch.join("log"),
            scratch.join("served"),
            scratch.join("keys"),
            url,
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        let server = Server::spawn(command(&config));
        Site { scratch, config, server }
    }

    /// Stops, and serves the same again.
    fn restart(self) -> Site {
        let Site { scratch, config, server } = self;
        server.stop("TERM");
        let server = Server::spawn(command(&config));
        Site { scratch, config, server }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("log")).unwrap()
    }

    /// A request by https, with header fields out of a file: every user can read a command line.
    fn ask(&self, method: &str, path: &str, fields: &[String]) -> Answer {
        let fields = self.scratch.file("fields", fields.join("\n").as_bytes());
        let body = self.scratch.join("body");
        let head = self.scratch.join("head");
        let mut curl = curl();
        curl.args(["--path-as-is", "--request", method, "--write-out", "%{http_code}"]);
        curl.arg("--cacert").arg(self.server.ca()).arg("--output").arg(&body).arg("--dump-header").arg(&head);
        curl.arg("--header").arg(format!("@{}", fields.display()));
        match method {
            "HEAD" => drop(curl.arg("--head")),
            "PUT" => drop(curl.args(["--data-binary", "new"])),
            _ => {}
        }
        curl.arg(self.server.url_over("https", path));
        let status = Running::start(curl).wait().exits(0).text().parse().unwrap();
        let read =
            |file: &PathBuf| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("www-authenticate").then(|| value.to_owned())
        };
        let challenges: Vec<String> = read(&head).lines().filter_map(field).collect();
        Answer { status, challenge: challenges.join(", "), body: read(&body) }
    }

    fn get(&self, path: &str, token: &str) -> Answer {
        self.ask("GET", path, &[bearer(token)])
    }
}

fn command(config: &Path) -> std::process::Command {
    let mut command = gridlane();
    command.args(["serve", "--json", "--config"]).arg(config);
    command
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn what_a_token_opens() {
    let signer = Signer::es256("key");
    let issuer = Issuer::start(&[&signer]);
    let site = Site::start(&issuer);
    let of = |changes: Value| signer.token(&wlcg(&issuer.url, AUDIENCE, &changes));
    let read_a = of(json!({"scope": "openid storage.read:/a"}));
    let create_a = of(json!({"scope": "storage.create:/a"}));
    let modify_a = of(json!({"scope": "storage.modify:/a/"}));
    let group = of(json!({"scope": "openid", "wlcg.groups": ["/vo/readers"]}));
    let both = of(json!({"scope": "storage.read:/a", "wlcg.groups": ["/vo/readers"]}));
    let nothing = of(json!({"scope": "openid"}));
    let sci = signer.token(&scitoken(&issuer.url, "ANY", &json!({"scope": "read:/a"})));
    for (method, path, token, expected) in [
        ("GET", "data/a/f", &read_a, 200),
        ("HEAD", "data/a/f", &read_a, 200),
        ("GET", "data/ab/f", &read_a, 403),
        ("GET", "data/f", &read_a, 403),
        ("GET", "data/a/../f", &read_a, 400),
        ("GET", "data/a/%2e%2e/f", &read_a, 400),
        ("GET", "data//a//f", &read_a, 200),
        ("GET", "data/a/missing", &read_a, 404),
        ("PUT", "data/a/new", &read_a, 403),
        ("DELETE", "data/a/f", &read_a, 403),
        ("PUT", "data/a/new", &create_a, 201),
        ("PUT", "data/a/new", &create_a, 403),
        ("DELETE", "data/a/new", &create_a, 403),
        ("GET", "data/a/new", &create_a, 403),
        ("PUT", "data/a/new", &modify_a, 204),
        ("DELETE", "data/a/new", &modify_a, 204),
        ("PUT", "data/ab/new", &modify_a, 403),
        ("GET", "data/b/f", &group, 200),
        ("GET", "data/a/f", &group, 403),
        ("GET", "data/b/f", &both, 403),
        ("GET", "data/a/f", &nothing, 403),
        ("GET", "data/a/f", &sci, 200),
        ("GET", "data/ab/f", &sci, 403),
    ] {
        let answer = site.ask(method, path, &[bearer(token)]);
        assert_eq!(answer.status, expected, "{method} {path} {answer:?}");
    }
    // Without a token, and by other ways of showing one.
    assert_eq!(site.ask("GET", "data/a/f", &[]).status, 401);
    assert_eq!(site.ask("GET", &format!("data/a/f?authz={read_a}"), &[]).status, 200);
    assert_eq!(site.ask("GET", &format!("data/a/f?authz=Bearer%20{read_a}"), &[]).status, 200);
    assert_eq!(
        site.ask("GET", &format!("data/a/f?authz={nothing}"), &[bearer(&read_a)]).status,
        200,
        "the field counts"
    );
    assert_eq!(site.ask("GET", "data/a/f", &[format!("authorization: bearer {read_a}")]).status, 200);
    assert_eq!(site.ask("GET", "data/a/f", &[format!("Authorization: Basic {read_a}")]).status, 401);
}

#[test]
fn bad_tokens_are_refused_with_their_cause() {
    let (signer, rsa, stranger) = (Signer::es256("key"), Signer::rs256("rsa"), Signer::es256("key"));
    let issuer = Issuer::start(&[&signer, &rsa]);
    let site = Site::start(&issuer);
    let now_s = now_s();
    let of = |changes: Value| signer.token(&wlcg(&issuer.url, AUDIENCE, &changes));
    let good = of(json!({}));
    assert_eq!(site.get("data/a/f", &good).status, 200);
    assert_eq!(site.get("data/a/f", &rsa.token(&wlcg(&issuer.url, AUDIENCE, &json!({})))).status, 200);
    let signed_as = |alg: &str, kid: &str| {
        let claims = encoded(wlcg(&issuer.url, AUDIENCE, &json!({})).to_string());
        format!("{}.{claims}", encoded(json!({"alg": alg, "kid": kid}).to_string()))
    };
    let hmac = |secret: &str| {
        let signed = signed_as("HS256", "rsa");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
        format!("{signed}.{}", encoded(tag))
    };
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let path = |path: &str| of(json!({"scope": format!("storage.read:{path}")}));
    for (what, token, words) in [
        ("expired", of(json!({"exp": now_s - 100, "iat": now_s - 200, "nbf": now_s - 200})), "expired"),
        ("not yet valid", of(json!({"nbf": now_s + 1000})), "clock"),
        ("made in future", of(json!({"iat": now_s + 1000})), "clock"),
        ("for another server", of(json!({"aud": "https://other.example"})), "another server"),
        ("of another issuer", signer.token(&wlcg("https://evil.example/", AUDIENCE, &json!({}))), "issuer"),
        (
            "of almost the issuer",
            signer.token(&wlcg(issuer.url.trim_end_matches('/'), AUDIENCE, &json!({}))),
            "issuer",
        ),
        ("of a stranger", stranger.token(&wlcg(&issuer.url, AUDIENCE, &json!({}))), "signature"),
        ("with no signature", format!("{}.", signed_as("none", "key")), "algorithm"),
        ("with a public key as a secret", hmac(&rsa.public_pem()), "algorithm"),
        ("with a public key's number as a secret", hmac(rsa.jwk()["n"].as_str().unwrap()), "algorithm"),
        ("with another key's algorithm", format!("{}.{signature}", signed_as("ES256", "rsa")), "algorithm"),
        (
            "with an unknown key",
            signer.token_with(&json!({"alg": "ES256", "kid": "x"}), &wlcg(&issuer.url, AUDIENCE, &json!({}))),
            "key",
        ),
        ("truncated", good[..good.len() - 8].to_owned(), "signature"),
        ("of another signature", format!("{signed}.{}", encoded([7; 64])), "signature"),
        ("with changed claims", good.replacen('.', ".eyJ4IjoxLA", 1), "token"),
        ("of a path that leads up", path("/a/../.."), "scope"),
        ("of a path that leads up, encoded", path("/%2e%2e/a"), "scope"),
        ("of a path with an encoded slash", path("/a%2ff"), "scope"),
        ("of a path with two slashes", path("//a"), "scope"),
        ("of a path with a backslash", path("/a%5cf"), "scope"),
        ("of a relative path", path("a"), "scope"),
        ("without a path", of(json!({"scope": "storage.read"})), "scope"),
        ("without a profile", of(json!({"wlcg.ver": null})), "profile"),
        ("without an audience", of(json!({"aud": null})), "aud"),
    ] {
        let answer = site.get("data/a/f", &token);
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
        assert!(
            answer.challenge.starts_with("Bearer ") && answer.challenge.contains("invalid_token"),
            "{what}: {answer:?}"
        );
        assert!(answer.body.contains(words), "{what}: {answer:?}");
        assert!(!answer.body.contains(&token), "{what}: {answer:?}");
    }
}

#[test]
fn a_key_that_is_called_back() {
    let (first, second) = (Signer::es256("1"), Signer::rs256("2"));
    let issuer = Issuer::start(&[&first]);
    let site = Site::start(&issuer);
    let token = |signer: &Signer| signer.token(&wlcg(&issuer.url, AUDIENCE, &json!({})));
    let (old, new) = (token(&first), token(&second));
    assert_eq!(site.get("data/a/f", &old).status, 200);
    assert_eq!(site.get("data/a/f", &new).status, 401);
    issuer.publish(&[&first, &second]);
    signal(&site.server.pid().to_string(), "HUP");
    until("the new key is known", || site.get("data/a/f", &new).status == 200);
    assert_eq!(site.get("data/a/f", &old).status, 200);
    issuer.publish(&[&second]);
    signal(&site.server.pid().to_string(), "HUP");
    // What it has opened before is no reason to believe it now.
    until("the old key is forgotten", || site.get("data/a/f", &old).status == 401);
    assert_eq!(site.get("data/a/f", &new).status, 200);
}

#[test]
fn an_issuer_that_is_gone() {
    let signer = Signer::es256("key");
    let issuer = Issuer::start(&[&signer]);
    let token = |name: &str| signer.token(&wlcg(&issuer.url, AUDIENCE, &json!({"sub": name})));
    let site = Site::start(&issuer);
    assert_eq!(site.get("data/a/f", &token("before")).status, 200);
    // It has its name when all of it is there.
    let is_whole = |entry: &std::io::Result<std::fs::DirEntry>| {
        entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|kind| kind == "json"))
    };
    until("its keys are in a file", || {
        std::fs::read_dir(site.scratch.join("keys")).is_ok_and(|mut it| it.any(|entry| is_whole(&entry)))
    });
    issuer.is_gone();
    let site = site.restart();
    assert_eq!(site.get("data/a/f", &token("after")).status, 200);
    // Without the file it is not known whether it is one of its keys.
    std::fs::remove_dir_all(site.scratch.join("keys")).unwrap();
    let site = site.restart();
    let answer = site.get("data/a/f", &token("without"));
    assert_eq!(answer.status, 503, "{answer:?}");
    let told = || site.log().lines().filter(|line| line.contains("not fetched")).count();
    until("that is told", || told() > 0);
    assert!(site.log().contains("openid-configuration"), "{}", site.log());
}

/// A server that publishes something else than keys by https at the place that the issuer names is not the issuer.
#[test]
fn what_is_no_word_of_the_issuer() {
    let signer = Signer::es256("key");
    let issuer = Issuer::start(&[&signer]);
    let token = signer.token(&wlcg(&issuer.url, AUDIENCE, &json!({})));
    for (description, words) in [
        (
            json!({"issuer": "https://evil.example/", "jwks_uri": format!("{}jwk", issuer.url)}),
            "another issuer",
        ),
        (json!({"issuer": issuer.url, "jwks_uri": issuer.url.replace("https", "http")}), "https"),
        (json!({"issuer": issuer.url, "jwks_uri": "file:///etc/passwd"}), "https"),
        (json!({"issuer": issuer.url}), "keys"),
        (json!([]), "JSON"),
    ] {
        issuer.place("vo/.well-known/openid-configuration", &description);
        let site = Site::start(&issuer);
        assert_eq!(site.get("data/a/f", &token).status, 503, "{description}");
        until("why is told", || site.log().contains("not fetched"));
        assert!(site.log().contains(words), "{description} {}", site.log());
    }
    // As RFC 8414 has it.
    issuer.place("vo/.well-known/openid-configuration", &json!({}));
    let description = json!({"issuer": issuer.url, "jwks_uri": format!("{}jwk", issuer.url)});
    issuer.place(".well-known/oauth-authorization-server/vo", &description);
    assert_eq!(Site::start(&issuer).get("data/a/f", &token).status, 200);
}

/// A certificate of no trusted authority: also `--insecure` does not make its keys good.
#[test]
fn an_issuer_without_a_good_certificate() {
    let signer = Signer::es256("key");
    let issuer = Issuer::start(&[&signer]);
    let scratch = Scratch::new();
    let config = format!(
        "[serve]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/\"\ndirectory = {:?}\n\
         [auth]\naudiences = [{AUDIENCE:?}]\n[[auth.issuer]]\nurl = {:?}\n",
        scratch.dir("served"),
        issuer.url,
    );
    let config = scratch.file("serve.toml", config.as_bytes());
    let mut command = command(&config);
    command.arg("--insecure");
    let server = Server::spawn(command);
    let site = Site { scratch, config, server };
    assert_eq!(site.get("f", &signer.token(&wlcg(&issuer.url, AUDIENCE, &json!({})))).status, 503);
}

/// Redirects are followed at the issuer's own server, and nowhere else.
#[test]
fn where_an_issuer_leads() {
    let signer = Signer::es256("key");
    let elsewhere = Issuer::start(&[&signer]);
    let scratch = Scratch::new();
    let web = scratch.dir("web");
    let document = "well-known/openid-configuration";
    let nginx = Nginx::with(
        &web,
        &format!(
            "location = /same/.{document} {{ return 301 /described; }}
             location = /elsewhere/.{document} {{ return 302 {}.{document}; }}
             location = /clear/.{document} {{ return 302 http://$host:$server_port/described; }}
             location = /circle/.{document} {{ return 302 /circle/.{document}; }}",
            elsewhere.url,
        ),
    );
    scratch.file("web/jwk", json!({"keys": [signer.jwk()]}).to_string().as_bytes());
    scratch.file(&format!("web/long/.{document}"), " ".repeat(300_000).as_bytes());
    for (name, words) in [
        ("same", None),
        ("elsewhere", Some("another server")),
        ("clear", Some("not encrypted")),
        ("circle", Some("circle")),
        ("long", Some("longer")),
    ] {
        let url = nginx.tls_url(&format!("{name}/"));
        let description = json!({"issuer": url, "jwks_uri": nginx.tls_url("jwk")});
        scratch.file("web/described", description.to_string().as_bytes());
        let site = Site::believing(&url, &nginx.ca());
        let answer = site.get("data/a/f", &signer.token(&wlcg(&url, AUDIENCE, &json!({}))));
        match words {
            None => assert_eq!(answer.status, 200, "{name}: {answer:?} {}", site.log()),
            Some(words) => {
                assert_eq!(answer.status, 503, "{name}: {answer:?}");
                until("why is told", || site.log().contains("not fetched"));
                assert!(site.log().contains(words), "{name}: {}", site.log());
            }
        }
    }
}
