//! Authentication: every kind of credentials, good and bad, over TLS and in clear text; the answers, the logs, and that
//! no secret is revealed.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::TestServer;
use crate::support::site::*;
use gridlane_auth::make::{Validity, profile};
use gridlane_auth::password::Users;
use gridlane_auth::policy::Principal;
use gridlane_auth::{Grants, Policy};
use gridlane_core::Network;
use gridlane_net::tls;
use gridlane_server::Settings;
use ring::rand::SystemRandom;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

#[test]
fn a_server_without_authentication_sends_no_challenge() {
    let site = site(|_| {});
    assert_eq!(site.ask("GET /public/f", "").status, 200);
    let refused = site.ask("GET /known/f", "");
    assert_eq!(refused.status, 401);
    refused
        .has("WWW-Authenticate: Bearer realm=\"site\"\r\n")
        .has("WWW-Authenticate: Basic realm=\"site\", charset=\"UTF-8\"\r\n")
        .has("without a credential")
        .lacks("error=");
    assert_eq!(site.ask("GET /known/none", "").status, 401, "what is not there is not told either");
    assert_eq!(site.ask("PUT /public/g", "Content-Length: 0\r\n").status, 401);
    // A client that may change nothing by any credentials need not show them.
    site.server.control();
    let read_only = TestServer::with(|settings| settings.auth.macaroons = Some(Arc::new(site_keys())));
    assert_eq!(read_only.request("PUT /f", "Content-Length: 0\r\n").status(), 403);
    // Without authentication it is as before: credentials of clients are ignored.
    let open = TestServer::with(|settings| {
        settings.policy = Arc::new(Policy::new(vec![rule(Principal::anyone(), READS, "/public")]));
    });
    for fields in [String::new(), bearer("eyJ.a.b"), basic("a", "b")] {
        let got = open.request("GET /f", &fields);
        assert_eq!((got.status(), got.field("www-authenticate")), (403, None));
    }
}

#[test]
fn certificates_and_their_voms_attributes() {
    let site = site(|_| {});
    for (credential, path, status) in [
        (&PKI.ada, "/known/f", 200),
        (&PKI.ada, "/ada/f", 200),
        (&PKI.ada, "/home/ada/f", 200),
        (&PKI.ada, "/secret/f", 403),
        (&PKI.ada, "/dteam/f", 403),
        (&PKI.voms, "/known/f", 200),
        (&PKI.voms, "/ada/f", 403),
    ] {
        let got = site.shows(credential, &format!("GET {path}"));
        assert_eq!(got.status, status, "{path}: {}", got.text);
        got.lacks("WWW-Authenticate");
    }
    // The second connection goes on with the session of the first: its identity comes back.
    let config = site.config(Some(&ada(hour(), Some(("/dteam/Role=NULL/Capability=NULL", &PKI.voms)))));
    for path in ["/dteam/f", "/ada/f", "/dteam/f"] {
        assert_eq!(site.ask_by(&config, &format!("GET {path}"), "").status, 200, "{path}");
    }
    assert_eq!(site.ask_by(&config, "GET /secret/f", "").status, 403);
    let (_, log) = site.server.stop();
    let last = log.last().unwrap();
    assert_eq!(last["identity"]["kind"], "certificate");
    assert_eq!(last["identity"]["dn"], "/DC=org/CN=Ada");
    assert_eq!(last["identity"]["fqans"], json!(["/dteam"]));
    assert_eq!(last["decision"], "no rule lets this client do that here");
    assert_eq!(log[log.len() - 2]["decision"], "rule of /{vo}");
}

#[test]
fn a_bad_certificate_counts_as_none_and_is_named_when_something_is_refused() {
    let site = site(|_| {});
    let random = SystemRandom::new();
    let other = profile::authority(&name("/CN=Other CA"), key(), year(), &random).unwrap();
    let stranger = profile::user(&other, &name("/DC=org/CN=Ada"), key(), year(), &random).unwrap();
    let over = Validity { not_before_s: now_s() - 7200, not_after_s: now_s() - 3600 };
    let expired = ada(over, None);
    for (credential, words) in [(&stranger, "authority"), (&expired, "expired")] {
        assert_eq!(site.shows(credential, "GET /public/f").status, 200);
        let refused = site.shows(credential, "GET /ada/f");
        assert_eq!(refused.status, 401, "{}", refused.text);
        refused.has("certificate does not count").has(words).has("WWW-Authenticate: Bearer");
    }
    // Attributes that another authority has signed do not count; the rest does.
    let forged = ada(hour(), Some(("/dteam", &PKI.ada)));
    assert_eq!(site.shows(&forged, "GET /ada/f").status, 200);
    let refused = site.shows(&forged, "GET /dteam/f");
    assert_eq!(refused.status, 403);
    refused.has("attributes do not count");
    // What is explicit counts instead of a certificate, good or bad.
    let config = site.config(Some(&PKI.ada));
    let of_token = bearer(&site.iam.token("storage.read:/in", 600));
    assert_eq!(site.ask_by(&config, "GET /ada/f", &of_token).status, 403);
    assert_eq!(site.ask_by(&config, "GET /data/in/f", &of_token).status, 200);
    assert_eq!(site.ask_by(&config, "GET /ada/f", &bearer("nonsense")).status, 401);
    let metrics = site.ask("GET /.gridlane/metrics", &basic("root", PASSWORD));
    metrics
        .has("gridlane_auth_refused_total{method=\"x509\",cause=\"expired\"}")
        .has("gridlane_auth_refused_total{method=\"x509\",cause=\"untrusted\"}")
        .has("gridlane_auth_requests_total{method=\"x509\"}");
}

#[test]
fn tokens_act_within_their_scopes() {
    let site = site(|_| {});
    let token = site.iam.token("openid storage.read:/in", 600);
    for (path, status) in
        [("/data/in/f", 200), ("/data/f", 403), ("/known/f", 403), ("/public/f", 200), ("/data/inner", 403)]
    {
        let got = site.ask(&format!("GET {path}"), &bearer(&token));
        assert_eq!(got.status, status, "{path}: {}", got.text);
        if status == 403 {
            got.has("WWW-Authenticate: Bearer realm=\"site\", error=\"insufficient_scope\"").has("scopes");
        }
    }
    // In the URL as well; what stands in the head wins.
    for (line, fields, status) in [
        (format!("GET /data/in/f?authz={token}"), String::new(), 200),
        (format!("GET /data/in/f?x=y&authz=Bearer%20{token}"), String::new(), 200),
        (format!("GET /data/in/f?authz={token}"), bearer("nonsense"), 401),
        ("GET /data/in/f?authz=nonsense".to_owned(), bearer(&token), 200),
        (format!("PUT /data/in/g?authz={token}"), "Content-Length: 0\r\n".to_owned(), 403),
    ] {
        assert_eq!(site.ask(&line, &fields).status, status, "{line} {fields}");
    }
    // And nowhere else: not where a redirect leads, nor in a listing, a metalink, or a log.
    let signature = token.rsplit('.').next().unwrap();
    let query = format!("authz=Bearer%20{token}");
    let moved = site.ask(&format!("GET /data/in?a=b&{query}"), "");
    assert_eq!(moved.status, 301);
    moved.has("Location: /data/in/?a=b\r\n").lacks(signature);
    for (line, fields) in [
        (format!("GET /data/in/?{query}"), ""),
        (format!("GET /data/in/f?metalink&{query}"), ""),
        (format!("PROPFIND /data/in?{query}"), "Depth: 1\r\n"),
        (format!("GET /secret/f?{query}"), ""),
        (format!("GET /data/in/f?{query}x"), ""),
        (format!("BREW /data/in?{query}"), ""),
        (format!("COPY /data/in/f?{query}"), "Destination: /data/in/c?authz=x\r\n"),
    ] {
        let got = site.ask(&line, fields);
        got.lacks(signature).lacks("authz=");
    }
    let (_, log) = site.server.stop();
    let text = serde_json::to_string(&log).unwrap();
    assert!(!text.contains(signature) && !text.contains("authz"), "{text}");
    let first = &log[0];
    assert_eq!(first["identity"]["subject"], "b7a4");
    assert_eq!(first["identity"]["issuer"], ISSUER);
    assert_eq!(first["decision"], "credential: read list under /data/in");
}

#[test]
fn a_bad_token_is_refused_wherever_it_is_shown() {
    let site = site(|_| {});
    let good = site.iam.token("storage.read:/", 600);
    let (front, signature) = good.rsplit_once('.').unwrap();
    let changed = format!("{front}.{}", signature.chars().rev().collect::<String>());
    let another = Iam::new().token("storage.read:/", 600);
    for (token, words) in [
        (site.iam.token("storage.read:/", -600), "expired"),
        (site.iam.token_for("https://other.example", "storage.read:/", 600), "(aud)"),
        (changed, "signature"),
        (another, "signature"),
        (format!("{front}."), ""),
        ("eyJ.a.b".to_owned(), ""),
        ("MDAxY2xvY2F0aW9u".to_owned(), "macaroon"),
        ("nonsense".to_owned(), "macaroon"),
    ] {
        for path in ["/public/f", "/data/f", "/nowhere"] {
            let got = site.ask(&format!("GET {path}"), &bearer(&token));
            assert_eq!(got.status, 401, "{token}: {}", got.text);
            got.has("WWW-Authenticate: Bearer realm=\"site\", error=\"invalid_token\", error_description=\"")
                .has(words);
        }
        assert_eq!(site.ask("OPTIONS /public", &bearer(&token)).status, 401);
    }
    for fields in [
        "Authorization: Negotiate YII=\r\n".to_owned(),
        format!("{}{}", bearer(&good), bearer("eyJ.a.b")),
        "Authorization: Bearer\r\n".to_owned(),
    ] {
        assert_eq!(site.ask("GET /public/f", &fields).status, 401, "{fields}");
    }
    let (_, log) = site.server.stop();
    assert!(log.iter().all(|record| record["identity"]["kind"] == "anonymous"));
}

/// The suite by which the field tests its servers says the same twice.
#[test]
fn the_same_credential_twice_is_one() {
    let site = site(|_| {});
    let good = bearer(&site.iam.token("storage.read:/", 600));
    assert_eq!(site.ask("GET /data/in/f", &format!("{good}{good}")).status, 200);
    let other = bearer(&site.iam.token("storage.read:/", 700));
    assert_eq!(site.ask("GET /data/in/f", &format!("{good}{other}")).status, 401);
}

#[test]
fn an_issuer_that_cannot_be_asked_is_no_fault_of_the_token() {
    let site = site(|_| {});
    site.iam.is_gone.store(true, Ordering::Relaxed);
    let got = site.ask("GET /data/f", &bearer(&site.iam.token("storage.read:/", 600)));
    // Unless the keys were fetched before.
    assert!(matches!(got.status, 200 | 503), "{}", got.text);
    if got.status == 503 {
        got.has("Retry-After: ").has("issuer");
    }
}

#[test]
fn passwords() {
    let site = site(|_| {});
    for round in 0..2 {
        assert_eq!(site.ask("GET /home/ada/f", &basic("ada", PASSWORD)).status, 200, "{round}");
        assert_eq!(site.ask("GET /secret/f", &basic("ada", PASSWORD)).status, 403, "{round}");
        for (name, password) in [("ada", "wrong"), ("eve", PASSWORD), ("", "")] {
            let got = site.ask("GET /public/f", &basic(name, password));
            assert_eq!(got.status, 401, "{name}");
            got.has("WWW-Authenticate: Basic realm=\"site\"").lacks("Bearer");
        }
    }
    let put = format!("Content-Length: 0\r\n{}", basic("ada", PASSWORD));
    assert_eq!(site.ask("PUT /home/ada/g", &put).status, 201);
    let (_, log) = site.server.stop();
    assert_eq!(log[0]["identity"], json!({"kind": "user", "name": "ada"}));
    assert!(!serde_json::to_string(&log).unwrap().contains(PASSWORD));
}

#[test]
fn macaroons_are_made_and_taken() {
    let site = site(|settings| {
        settings.auth.revoked_macaroons = Arc::new(HashSet::new());
    });
    for (text, line, status) in [
        (minted(READS, "/secret", 600, &[]), "GET /secret/f", 200),
        (minted(READS, "/secret", 600, &[]), "GET /known/f", 403),
        (minted(READS, "/secret", -600, &[]), "GET /public/f", 401),
        (minted(READS, "/", 600, &[Network::parse_list(["192.0.2.0/24"]).unwrap()]), "GET /secret/f", 401),
        (minted(Grants::WRITE, "/secret", 600, &[]), "GET /secret/f", 403),
    ] {
        let got = site.ask(line, &bearer(&text));
        assert_eq!(got.status, status, "{line}: {}", got.text);
    }
    for path in ["/public/f", "/", "*"] {
        site.ask(&format!("OPTIONS {path}"), &bearer(&minted(READS, "/", 600, &[]))).has(",POST\r\n");
    }
    // A requester with a certificate gets one for the rights of the certificate, and for nothing else.
    let body = r#"{"caveats": ["activity:DOWNLOAD,LIST,UPLOAD"], "validity": "PT30M"}"#;
    let fields = format!("Content-Type: application/macaroon-request\r\nContent-Length: {}\r\n", body.len());
    let ask = |config: &Arc<ClientConfig>, more: &str| {
        site.ask_by(config, "POST /home/ada", &format!("{more}{fields}\r\n{body}"))
    };
    let made = ask(&site.config(Some(&PKI.ada)), "");
    assert_eq!(made.status, 200, "{}", made.text);
    let json = made.text.split_once("\r\n\r\n").unwrap().1;
    let answer: serde_json::Value = serde_json::from_str(json).unwrap();
    let text = answer["macaroon"].as_str().unwrap();
    assert_eq!(site.ask("GET /home/ada/f", &bearer(text)).status, 200);
    assert_eq!(site.ask("PUT /home/ada/g", &format!("Content-Length: 0\r\n{}", bearer(text))).status, 201);
    assert_eq!(site.ask("GET /ada/f", &bearer(text)).status, 403);
    // A macaroon makes a lesser one.
    assert_eq!(ask(&site.config(None), &bearer(text)).status, 200);
    let nobody = ask(&site.config(None), "");
    assert_eq!(nobody.status, 401);
    nobody.has("WWW-Authenticate: Bearer realm=\"site\"\r\n");
    site.ask("GET /.well-known/oauth-authorization-server", "").has("/.oauth2/token");
    // What does not look like a request for one is a POST as any other.
    for (line, kind, status) in [
        ("POST /home/ada", "", 405),
        ("POST /home/ada", "Content-Type: application/json\r\n", 405),
        ("POST /home/ada", "Content-Type: application/x-www-form-urlencoded\r\n", 405),
        ("POST /.oauth2/token", "Content-Type: application/json\r\n", 415),
        ("POST /.oauth2/token", "Content-Type: application/x-www-form-urlencoded\r\n", 401),
    ] {
        let got = site.ask(line, &format!("{kind}Content-Length: 0\r\n"));
        assert_eq!(got.status, status, "{line} {kind}: {}", got.text);
    }
}

#[test]
fn a_right_to_make_parents_of_one_place_makes_nothing_elsewhere() {
    let site = site(|settings| {
        settings.service.exports[0].compat.create_parents = true;
        let anyone = rule(Principal::anyone(), Grants::CREATE, "/open/inside");
        settings.policy = Arc::new(Policy::new(vec![anyone]));
    });
    let fields = format!("Content-Length: 0\r\n{}", bearer(&minted(Grants::CREATE, "/data/a/b", 600, &[])));
    for (line, status) in [("PUT /open/inside/f", 403), ("PUT /data/a/b/f", 201)] {
        let got = site.ask(line, &fields);
        assert_eq!(got.status, status, "{line}: {}", got.text);
    }
    assert!(!site.server.path("open").exists());
}

#[test]
fn a_credential_is_of_one_request_and_not_of_its_connection() {
    let site = site(|_| {});
    let mine = bearer(&minted(READS, "/secret", 600, &[]));
    let get = |fields: &str| format!("GET /secret/f HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let bad = bearer("MDAx");
    let all = [mine.as_str(), "", &mine, &bad, "", "Connection: close\r\n"].map(get).concat();
    for config in [site.config(None), site.config(Some(&PKI.ada))] {
        let answers = site.exchange(&config, &all);
        let statuses: Vec<&str> =
            answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
        let none = statuses[1];
        assert!(matches!(none, "401" | "403"), "{answers}");
        assert_eq!(statuses, ["200", none, "200", "401", none, none], "{answers}");
    }
}

#[test]
fn secrets_in_clear_text() {
    let forwarding = |settings: &mut Settings| {
        settings.trusted_forwarders = Network::parse_list(["127.0.0.1"]).unwrap();
    };
    let site = site(forwarding);
    let token = bearer(&site.iam.token("storage.read:/", 600));
    let far = "X-Forwarded-For: 192.0.2.7\r\n";
    let clear = |fields: String| site.server.request("GET /data/f", &fields);
    // From this machine.
    assert_eq!(clear(token.clone()).status(), 200);
    for (fields, status) in [
        (format!("{far}X-Forwarded-Proto: https\r\n{token}"), 200),
        ("Forwarded: for=192.0.2.7;proto=https\r\n".to_owned() + &token, 200),
        (format!("{far}{token}"), 403),
        (format!("{far}X-Forwarded-Proto: http\r\n{token}"), 403),
        (format!("{far}X-Forwarded-Proto: https, http\r\n{token}"), 403),
        ("Forwarded: for=192.0.2.7\r\n".to_owned() + &token, 403),
        (format!("{far}{}", basic("ada", PASSWORD)), 403),
        (format!("{far}{}", bearer(&minted(READS, "/data", 600, &[]))), 403),
        (format!("{far}{}", bearer("nonsense")), 403),
    ] {
        let got = clear(fields.clone());
        assert_eq!(got.status(), status, "{fields}: {}", got.text());
        if status == 403 {
            assert!(got.text().contains("clear text"), "{}", got.text());
            assert_eq!(got.field("www-authenticate"), None);
        }
    }
    // No client is asked to send one.
    let got = clear(far.to_owned());
    assert_eq!((got.status(), got.field("www-authenticate")), (403, None));
    assert!(got.text().contains("https only"));
    assert_eq!(site.server.request("GET /public/f", far).status(), 200);
    let near = clear(String::new());
    assert_eq!(near.status(), 401);
}

#[test]
fn a_reload_judges_everything_anew() {
    let site = site(|_| {});
    let config = site.config(Some(&PKI.ada));
    assert_eq!(site.ask_by(&config, "GET /ada/f", "").status, 200);
    let token = bearer(&site.iam.token("storage.read:/", 600));
    assert_eq!(site.ask("GET /data/f", &token).status, 200);
    assert_eq!(site.ask("GET /home/ada/f", &basic("ada", PASSWORD)).status, 200);
    let mut next = gridlane_server::settings_of(
        vec!["127.0.0.1:0".parse::<SocketAddr>().unwrap()],
        site.server.export().storage,
    );
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    next.tls = Some(tls::server_config(&cert, &key, true).unwrap());
    next.policy = Arc::new(Policy::new(vec![rule(Principal::default(), READS, "/")]));
    next.host_names = vec!["h".to_owned(), "localhost".to_owned()];
    next.auth.users =
        Arc::new(Users::parse("ada:$2y$04$abcdefghijklmnopqrstuuMwFLDFPTVUcJIPsnPm0uNJ5/xSPEHpK\n").unwrap());
    site.server.control().reload(next).unwrap();
    let mut roots = RootCertStore::empty();
    for der in gridlane_auth::make::pem::certificates(&std::fs::read(&cert).unwrap()).unwrap() {
        roots.add(CertificateDer::from(der)).unwrap();
    }
    let site = Site { roots, ..site };
    let got = site.shows(&PKI.ada, "GET /ada/f");
    assert_eq!(got.status, 401, "{}", got.text);
    got.has("Basic").lacks("Bearer");
    let got = site.ask("GET /data/f", &token);
    assert_eq!(got.status, 401);
    got.has("no JSON Web Tokens");
    assert_eq!(site.ask("GET /home/ada/f", &basic("ada", PASSWORD)).status, 401);
}

#[test]
fn metrics_need_the_right_to_administer() {
    let site = site(|_| {});
    let line = "GET /.gridlane/metrics";
    assert_eq!(site.ask(line, "").status, 404);
    assert_eq!(site.ask(line, &basic("ada", PASSWORD)).status, 404);
    let got = site.ask(line, &basic("root", PASSWORD));
    assert_eq!(got.status, 200);
    got.has("# EOF").has("gridlane_auth_requests_total{method=\"password\"} 2");
    assert_eq!(site.ask("DELETE /.gridlane/metrics", &basic("root", PASSWORD)).status, 404);
}
