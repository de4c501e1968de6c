//! Credentials that the client shows, to which servers, and its messages about them: against Python's server of HTTPS,
//! which writes down what it sees.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

use crate::support::client::{Outcome, cp, gridlane, run};
use crate::support::nginx::Nginx;
use crate::support::python::debian;
use crate::support::{Scratch, content, secrets, serve};

/// It cannot be taken for something else where it turns up.
const TOKEN: &str = "tok-en.of_ada~0123456789";
const BEARER: &str = "Bearer tok-en.of_ada~0123456789";

/// A running server; it ends with the value.
struct Server {
    child: Child,
    tls_port: u16,
    port: u16,
    scratch: Scratch,
}

impl Server {
    /// With settings for the script.
    fn start(settings: Value) -> Server {
        let scratch = Scratch::new();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let (cert, key) = gridlane_net::tls::self_signed(scratch.path(), &names).unwrap();
        let mut all = json!({ "cert": cert, "key": key, "log": scratch.join("log") });
        all.as_object_mut().unwrap().append(&mut settings.as_object().unwrap().clone());
        let mut command = debian("credentials_server.py");
        let mut child = command
            .arg(all.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().unwrap()).collect();
        Server { child, tls_port: ports[0], port: ports[1], scratch }
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}/{path}", self.tls_port)
    }

    fn clear_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn ca(&self) -> PathBuf {
        self.scratch.join("cert.pem")
    }

    /// All requests so far.
    fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that it was asked, and what it was shown each time.
    #[track_caller]
    fn was_shown(&self, field: &str, expected: Value) {
        let seen = self.seen();
        assert!(!seen.is_empty(), "nobody asked");
        assert!(seen.iter().all(|request| request[field] == expected), "{field} is not {expected}: {seen:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `gridlane cp SOURCE TARGET --json`, with a place for credentials in which there are none.
fn copy(servers: &[&Server], source: &str, scratch: &Scratch) -> Command {
    let target = scratch.join("copy");
    let _ = std::fs::remove_file(&target);
    let mut command = cp(source, target);
    command.env("XDG_RUNTIME_DIR", scratch.dir("runtime")).args(["--timeout", "5"]);
    for server in servers {
        command.arg("--ca").arg(server.ca());
    }
    command
}

fn with_token(mut command: Command) -> Command {
    secrets::remember(TOKEN);
    command.env("BEARER_TOKEN", TOKEN);
    command
}

/// Nothing that was printed has the token.
#[track_caller]
fn keeps(outcome: Outcome) -> Outcome {
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(!said.contains("ada~0123456789"), "the token was printed: {said}");
    outcome
}

fn private(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_token_is_found_in_every_place_and_shown_over_tls_only() {
    let server = Server::start(json!({ "wants": BEARER }));
    let scratch = Scratch::new();
    let file = scratch.join("token");
    private(&file, &format!(" {TOKEN}\n"));
    let user = rustix::process::geteuid().as_raw();
    let https = || copy(&[&server], &server.url("f"), &scratch);
    run(with_token(https())).ok();
    let mut by_file = https();
    by_file.env("BEARER_TOKEN_FILE", &file).env("BEARER_TOKEN", "\n");
    keeps(run(by_file)).ok();
    let by_place = https();
    private(&scratch.join(format!("runtime/bt_u{user}")), TOKEN);
    keeps(run(by_place)).ok();
    std::fs::remove_file(scratch.join(format!("runtime/bt_u{user}"))).unwrap();
    let mut by_option = https();
    by_option.arg("--token-file").arg(&file).env("BEARER_TOKEN", "another");
    keeps(run(by_option)).ok();
    server.was_shown("authorization", json!(BEARER));

    let before = server.seen().len();
    let clear = copy(&[&server], &server.clear_url("f"), &scratch);
    keeps(run(with_token(clear)).fails(4, "caller", false, &["401", "over TLS only", "https://"]));
    let seen = server.seen();
    assert!(seen.len() > before && seen[before..].iter().all(|request| request["authorization"].is_null()));
    run(https()).fails(4, "caller", false, &["without credentials", "--token-file", "voms-proxy-init"]);
    let mut none = with_token(https());
    none.arg("--no-credentials");
    run(none).fails(4, "caller", false, &["without credentials"]);
}

#[test]
fn every_command_shows_it_and_uploads_too() {
    let server = Server::start(json!({ "wants": BEARER }));
    let scratch = Scratch::new();
    let command = |words: &[&str]| {
        let mut command = gridlane();
        command.args(words).arg("--ca").arg(server.ca()).env("BEARER_TOKEN", TOKEN);
        command
    };
    for words in [&["cat"][..], &["stat"], &["rm"], &["checksum"]] {
        keeps(run(command(&[words, &[&server.url("f")]].concat()))).ok();
    }
    let file = scratch.file("small", &content(1, 1000));
    let large = scratch.file("large", &content(2, 3_000_000));
    for source in [file, large] {
        keeps(run(command(&["cp", "--force", source.to_str().unwrap(), &server.url("up")]))).ok();
    }
    server.was_shown("authorization", json!(BEARER));
    assert!(server.seen().iter().filter(|request| request["method"] == "PUT").count() >= 2);
    // What stands in the URL counts before it.
    let with_password = server.url("f").replace("https://", "https://ada:pw@");
    run(command(&["cat", &with_password])).exits(4).says(&["what is in the URL"]);
    assert_eq!(server.seen().last().unwrap()["authorization"], "Basic YWRhOnB3");
}

#[test]
fn a_redirect_to_another_server_takes_no_token_along_unless_its_host_was_named() {
    let (open, wants) = (Server::start(json!({})), Server::start(json!({ "wants": BEARER })));
    let signed = Server::start(json!({ "wants": "authz=of-the-server" }));
    let first = Server::start(json!({ "redirects": {
        "/open": open.url("f"), "/wants": wants.url("f"), "/signed": signed.url("f?authz=of-the-server"),
        "/clear": open.clear_url("f"), "/here": "/there",
    }}));
    let scratch = Scratch::new();
    let all = [&first, &open, &wants, &signed];
    let from = |path: &str| with_token(copy(&all, &first.url(path), &scratch));

    run(from("open")).ok();
    open.was_shown("authorization", Value::Null);
    run(from("signed")).ok();
    signed.was_shown("authorization", Value::Null);
    keeps(run(from("wants")).fails(4, "caller", false, &["--forward-credentials-to 127.0.0.1"]));
    wants.was_shown("authorization", Value::Null);
    run(from("clear")).exits(4).says(&["not encrypted"]);
    run(from("here")).ok();
    first.was_shown("authorization", json!(BEARER));

    let mut named = from("wants");
    named.args(["--forward-credentials-to", "other.example,127.0.0.1"]);
    keeps(run(named)).ok();
    assert_eq!(wants.seen().last().unwrap()["authorization"], BEARER);
    // A password goes along by the same rule, and so do uploads.
    let source = scratch.file("up", b"bytes");
    let mut upload_to = cp(&source, first.url("wants"));
    upload_to.args(["--force", "--forward-credentials-to", "127.0.0.1"]).env("BEARER_TOKEN", TOKEN);
    for server in all {
        upload_to.arg("--ca").arg(server.ca());
    }
    keeps(run(upload_to)).ok();
    let last_put = wants.seen().into_iter().rfind(|request| request["method"] == "PUT").unwrap();
    assert_eq!(last_put["authorization"], BEARER);
    let secret = first.url("open").replace("https://", "https://ada:pass-word@");
    run(copy(&all, &secret, &scratch)).ok();
    assert_eq!(open.seen().last().unwrap()["authorization"], Value::Null);
    let mut along = copy(&all, &secret, &scratch);
    along.args(["--forward-credentials-to", "127.0.0.1"]);
    run(along).ok();
    assert!(open.seen().last().unwrap()["authorization"].as_str().unwrap().starts_with("Basic "));
}

#[test]
fn a_mirror_is_named_and_what_a_metalink_names_is_not() {
    let (first, second) = (Server::start(json!({ "wants": BEARER })), Server::start(json!({})));
    let scratch = Scratch::new();
    let both = [&first, &second];
    let mut mirrored = with_token(copy(&both, &first.url("f"), &scratch));
    mirrored.arg("--mirror").arg(second.url("f"));
    run(mirrored).ok();
    second.was_shown("authorization", json!(BEARER));

    let third = Server::start(json!({}));
    let metalink = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">\
         <size>1000</size><url>{}</url></file></metalink>",
        third.url("f")
    );
    let file = scratch.file("f.meta4", metalink.as_bytes());
    run(with_token(copy(&[&third], file.to_str().unwrap(), &scratch))).ok();
    third.was_shown("authorization", Value::Null);
    let mut named = with_token(copy(&[&third], file.to_str().unwrap(), &scratch));
    named.args(["--forward-credentials-to", "127.0.0.1"]);
    run(named).ok();
    assert_eq!(third.seen().last().unwrap()["authorization"], BEARER);
}

#[test]
fn a_token_in_a_url_reaches_what_is_below_it_and_is_not_printed() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    std::fs::create_dir(export.join("d")).unwrap();
    std::fs::write(export.join("d/f"), b"bytes").unwrap();
    let directives = "autoindex on; if ($arg_authz != \"ada~0123456789\") { return 401; }";
    let server = Nginx::with(&export, directives);
    let url = server.tls_url("d/?authz=ada~0123456789");
    for words in
        [&["cp", "-r", "-v", &url, scratch.join("out/").to_str().unwrap()][..], &["ls", "--json", &url]]
    {
        std::fs::create_dir_all(scratch.join("out")).unwrap();
        let mut command = gridlane();
        command.args(words).arg("--ca").arg(server.ca()).env("BEARER_TOKEN", TOKEN);
        keeps(run(command)).ok();
    }
    let wrong = server.tls_url("d/f?authz=ada~0123456789-wrong");
    keeps(run(copy(&[], &wrong, &scratch)).exits(4));
    let mut refused = gridlane();
    refused.args(["cat", &wrong, "--ca"]).arg(server.ca());
    keeps(run(refused)).exits(4).says(&["what is in the URL"]);
}

/// An authority, a user of it, and proxies.
struct Pki {
    authority: String,
    user: (CertificateParams, KeyPair, String),
}

fn params(organisation: &str, unit: &str, common: &str) -> CertificateParams {
    let mut name = DistinguishedName::new();
    for (kind, value) in [
        (DnType::OrganizationName, organisation),
        (DnType::OrganizationalUnitName, unit),
        (DnType::CommonName, common),
    ] {
        if !value.is_empty() {
            name.push(kind, value);
        }
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params
}

impl Pki {
    fn new() -> Pki {
        let mut authority = params("Grid", "", "Authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let authority_pem = authority.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(authority, key);
        let mut user = params("Grid", "Ada", "");
        user.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = user.signed_by(&key, &issuer).unwrap().pem();
        Pki { authority: authority_pem, user: (user, key, pem) }
    }

    /// A proxy file: certificate, key, chain. It ends at the beginning of a year.
    fn proxy(&self, ends_year: i32) -> String {
        // RFC 3820, 3.8: no limit of levels; the policy is to inherit everything.
        let inherits = [0x30, 0x0c, 0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1].to_vec();
        let mut info = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 14], inherits);
        info.set_criticality(true);
        let mut proxy = params("Grid", "Ada", "1234567");
        proxy.custom_extensions = vec![info];
        proxy.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        proxy.not_after = date_time_ymd(ends_year, 1, 1);
        let (user, user_key, user_pem) = &self.user;
        let key = KeyPair::generate().unwrap();
        let made = proxy.signed_by(&key, &Issuer::from_params(user, user_key)).unwrap();
        secrets::remember_key(&key.serialize_pem());
        format!("{}{}{user_pem}", made.pem(), key.serialize_pem())
    }
}

#[test]
fn a_proxy_is_shown_to_servers_that_were_named_and_to_no_other() {
    let (pki, scratch) = (Pki::new(), Scratch::new());
    let authority = scratch.file("authority.pem", pki.authority.as_bytes());
    let open = Server::start(json!({ "authority": authority }));
    let wants = json!({
        "authority": authority, "wants": "Grid/Ada/1234567", "redirects": { "/elsewhere": open.url("f") },
    });
    let server = Server::start(wants);
    let proxy = scratch.join("proxy.pem");
    private(&proxy, &pki.proxy(4000));
    let both = [&server, &open];
    let by_variable = |path: &str| {
        let mut command = copy(&both, &server.url(path), &scratch);
        command.env("X509_USER_PROXY", &proxy);
        command
    };
    run(by_variable("f")).ok();
    let mut by_option = copy(&both, &server.url("f"), &scratch);
    by_option.arg("--cert").arg(&proxy);
    run(by_option).ok();
    server.was_shown("peer", json!("Grid/Ada/1234567"));
    run(by_variable("elsewhere")).ok();
    open.was_shown("peer", Value::Null);
    let mut forwarded = by_variable("elsewhere");
    forwarded.args(["--forward-credentials-to", "127.0.0.1"]);
    run(forwarded).ok();
    assert_eq!(open.seen().last().unwrap()["peer"], "Grid/Ada/1234567");
    // A token leaves certificates where they are.
    run(with_token(by_variable("f"))).fails(4, "caller", false, &["the token of BEARER_TOKEN"]);
    assert_eq!(server.seen().last().unwrap()["peer"], Value::Null);

    std::fs::set_permissions(&proxy, std::fs::Permissions::from_mode(0o644)).unwrap();
    run(by_variable("f")).exits(4).says(&["mode 644", "chmod 600"]);
    let stranger = Pki::new();
    private(&proxy, &stranger.proxy(4000));
    let said = run(by_variable("f")).exits(4);
    assert!(!said.stderr.contains("PRIVATE") && !said.text().contains("PRIVATE"));
    said.says(&["does not accept our certificate", "authority"]);
}

fn jwt(ends_in_s: i64) -> String {
    // base64url of the claims, without a library: their characters are few.
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let claims =
        format!("{{\"iss\":\"https://issuer.example\",\"sub\":\"ada\",\"exp\":{}}}", now_s + ends_in_s);
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in claims.as_bytes().chunks(3) {
        let bits =
            part.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        (0..=part.len()).for_each(|at| text.push(DIGITS[(bits >> (18 - 6 * at) & 63) as usize].into()));
    }
    format!("e30.{text}.c2lnbmF0dXJl")
}

#[test]
fn what_expires_too_soon_is_warned_of_and_what_has_expired_is_not_sent() {
    let (pki, scratch) = (Pki::new(), Scratch::new());
    let server = Server::start(json!({ "size": 100_000 }));
    let with = |token: &str| {
        let mut command = copy(&[&server], &server.url("f"), &scratch);
        command.env("BEARER_TOKEN", token);
        command
    };
    let warned = run(with(&jwt(30))).ok();
    let warning = warned.event("warning");
    assert!(warning["message"].as_str().unwrap().contains("expires in"), "{warning}");
    assert!(warning["hint"].is_string() && warning["about"] == "credentials", "{warning}");
    let fine = run(with(&jwt(3600))).ok();
    assert!(fine.events().iter().all(|event| event["type"] != "warning"));

    let before = server.seen().len();
    let expired = jwt(-180);
    let outcome = run(with(&expired)).fails(4, "caller", false, &["expired 3 min", "nothing was sent"]);
    assert!(!outcome.text().contains(&expired), "{}", outcome.text());
    let proxy = scratch.join("proxy.pem");
    private(&proxy, &pki.proxy(2001));
    let mut old = copy(&[&server], &server.url("f"), &scratch);
    old.env("X509_USER_PROXY", &proxy);
    run(old).fails(4, "caller", false, &["proxy.pem expired", "voms-proxy-init"]);
    assert_eq!(server.seen().len(), before, "something was sent");
    // Where it would not be shown it is of no interest.
    let mut clear = copy(&[&server], &server.clear_url("f"), &scratch);
    clear.env("BEARER_TOKEN", &expired);
    run(clear).ok();
}

#[test]
fn over_root_what_has_expired_is_passed_over() {
    let scratch = Scratch::new();
    let server = serve::Server::start(&scratch.dir("export"));
    std::fs::write(scratch.join("export/f"), b"public").unwrap();
    let fetch = |name: Option<&str>| {
        let url = server.url_over("root", "f");
        let mut command = copy(&[], &url, &scratch);
        if let Some(name) = name {
            command.env(name, jwt(-180));
        }
        run(command).ok()
    };
    // It might be asked for, where the server begins TLS.
    let warned = fetch(Some("BEARER_TOKEN"));
    assert!(warned.event("warning")["message"].as_str().unwrap().contains("sent to no server"));
    let user = std::fs::metadata(scratch.path()).unwrap().uid();
    private(&scratch.dir("runtime").join(format!("bt_u{user}")), &jwt(-180));
    fetch(None);
}

#[test]
fn what_is_typed_is_stronger_than_the_environments_ban() {
    let scratch = Scratch::new();
    let server = Server::start(json!({ "wants": BEARER }));
    secrets::remember(TOKEN);
    let file = scratch.join("token");
    private(&file, TOKEN);
    let banned = |value: &str| {
        let mut command = cp(server.url("f"), scratch.join("copy"));
        command.arg("--ca").arg(server.ca()).args(["--force", "--timeout", "5"]);
        command.env("GRIDLANE_NO_CREDENTIALS", value);
        command
    };
    for value in ["1", "0"] {
        let mut named = banned(value);
        named.arg("--token-file").arg(&file);
        run(named).ok();
    }
    let mut both = banned("0");
    both.arg("--no-credentials").arg("--token-file").arg(&file);
    run(both).exits(2);
}

#[test]
fn a_refusal_says_what_the_server_thinks_and_names_a_wrong_clock() {
    let scratch = Scratch::new();
    let server = Server::start(json!({ "wants": "somebody else" }));
    let refused = run(with_token(copy(&[&server], &server.url("f"), &scratch)));
    keeps(refused).fails(
        4,
        "caller",
        false,
        &["invalid_token: not this one", "the token of BEARER_TOKEN", "no: Bearer …"],
    );
    for (ahead_s, words) in [(420, "behind 127.0.0.1's"), (-420, "ahead of 127.0.0.1's")] {
        let server = Server::start(json!({ "wants": "somebody else", "ahead_s": ahead_s }));
        let refused = run(with_token(copy(&[&server], &server.url("f"), &scratch)));
        keeps(refused).fails(
            4,
            "caller",
            false,
            &["this machine's clock is", words, "likely cause", "timedatectl"],
        );
    }
}

#[test]
fn a_server_whose_certificate_has_another_time_is_told_so() {
    let scratch = Scratch::new();
    for (begins_year, ends_year, words) in [(2000, 2001, "it expired"), (3900, 4000, "valid only in")] {
        let mut certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        certificate.not_before = date_time_ymd(begins_year, 1, 1);
        certificate.not_after = date_time_ymd(ends_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = scratch.file("server.pem", certificate.self_signed(&key).unwrap().pem().as_bytes());
        let key = scratch.file("server-key.pem", key.serialize_pem().as_bytes());
        let server = Server::start(json!({ "cert": &cert, "key": key }));
        let mut command = copy(&[], &server.url("f"), &scratch);
        command.arg("--ca").arg(&cert);
        run(command).exits(4).says(&["by this machine's clock", words, "timedatectl"]);
    }
}

#[test]
fn the_doctor_tells_of_what_was_found_and_of_nothing_secret() {
    let (pki, scratch) = (Pki::new(), Scratch::new());
    let doctor = || {
        let mut command = gridlane();
        command.args(["doctor", "--json"]).env("XDG_RUNTIME_DIR", scratch.dir("runtime"));
        command
    };
    let token = jwt(3600);
    let file = scratch.file("token", token.as_bytes());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut of_token = doctor();
    of_token.env("BEARER_TOKEN_FILE", &file);
    let said =
        run(of_token).says(&["https://issuer.example", "for ada", "expires in", "chmod 600", "mode 644"]);
    assert!(!said.text().contains(&token));
    let proxy = scratch.join("proxy.pem");
    private(&proxy, &pki.proxy(4000));
    let mut of_proxy = doctor();
    of_proxy.arg("--cert").arg(&proxy);
    run(of_proxy).says(&["proxy of /O=Grid/OU=Ada by /O=Grid/CN=Authority"]);
    let mut of_old = doctor();
    of_old.env("BEARER_TOKEN", jwt(-10));
    run(of_old).exits(4).says(&["\"verdict\":\"bad\"", "expired"]);
}
