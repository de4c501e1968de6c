//! Credentials from the side of an operator: renewed ones count without a restart, clients that take too much wait, and
//! the logs have the identity, the operation and the rule.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::client::{Outcome, gridlane, run, run_to_show_a_secret, text};
use crate::support::pki::{ADA_DN, Credential, Pki, openssl};
use crate::support::serve::Server;
use crate::support::tools::{curl, tool};
use crate::support::{MIB, Scratch, assert_same, content, secrets, until};

/// A server that knows Ada by her certificate, users by their passwords, and its own macaroons.
struct Site {
    pki: Pki,
    scratch: Scratch,
    config: PathBuf,
    server: Server,
}

const RULES: &str = r#"
[[rule]]
who = "authenticated"
may = ["read", "list"]
under = "/data"

[[rule]]
dn = "@ADA"
may = ["write", "delete"]
under = "/data/ada"

[[rule]]
who = "anyone"
may = ["read", "list"]
under = "/public"
"#;

impl Site {
    /// `more` stands at the end of `[auth]`, or is tables behind it.
    fn new(more: &str) -> Site {
        let (pki, scratch) = (Pki::new(), Scratch::new());
        for file in ["data/f", "data/ada/f", "public/f"] {
            scratch.file(&format!("export/{file}"), b"bytes");
        }
        let host = pki.credential("host");
        fs::copy(&host.cert, scratch.join("cert.pem")).unwrap();
        fs::copy(&host.key, scratch.join("key.pem")).unwrap();
        scratch.file("revoked", b"");
        write_secrets(&scratch, &[&new_secret()]);
        let config = r#"
[serve]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
cert = "@/cert.pem"
key = "@/key.pem"
access-log = "@/access.log"
audit-log = "@/audit.log"
watch-interval = 0.05

[[export]]
path = "/data"
directory = "@/export/data"
allow-write = true

[[export]]
path = "/public"
directory = "@/export/public"

[auth]
client-ca-dir = "@CERTIFICATES"
macaroon-secrets = "@/secrets"
revoked-macaroons = "@/revoked"
"#;
        let config = format!("{config}{more}{RULES}")
            .replace("@CERTIFICATES", text(&pki.certificates()))
            .replace("@ADA", ADA_DN)
            .replace('@', text(scratch.path()));
        let config = scratch.file("serve.toml", config.as_bytes());
        let server = Server::by_file(&config);
        Site { pki, scratch, config, server }
    }

    /// The URL of a path, by the name that is in the certificate.
    fn url(&self, scheme: &str, path: &str) -> String {
        self.server.url_over(scheme, path).replace("127.0.0.1", "localhost")
    }

    /// `localhost:PORT`
    fn address(&self) -> String {
        self.url("https", "").replace("https://", "").replace('/', "")
    }

    fn curl(&self) -> Command {
        let mut command = curl();
        command.arg("--capath").arg(self.pki.certificates());
        command
    }

    /// The status of a request, and the body of its answer.
    fn ask(&self, who: Option<&Credential>, path: &str, arguments: &[&str]) -> (u16, String) {
        let mut command = self.curl();
        if let Some(who) = who {
            command.arg("--cert").arg(&who.file);
        }
        command.args(["--write-out", "\n%{http_code}"]).args(arguments).arg(self.url("https", path));
        status_and_body(run(command).ok())
    }

    fn status(&self, who: Option<&Credential>, path: &str, arguments: &[&str]) -> u16 {
        self.ask(who, path, arguments).0
    }

    /// The same by a macaroon, which is in no command line.
    fn by_macaroon(&self, macaroon: &str, path: &str, arguments: &[&str]) -> u16 {
        let field = self.scratch.file("field", format!("Authorization: Bearer {macaroon}\n").as_bytes());
        let field = format!("@{}", field.display());
        let status = self.status(None, path, &[&["--header", &field], arguments].concat());
        fs::remove_file(self.scratch.join("field")).unwrap();
        status
    }

    /// A macaroon of Ada's for what is below a path.
    fn macaroon(&self, path: &str) -> String {
        let mut command = self.curl();
        command.arg("--cert").arg(self.pki.credential("ada").file);
        command.args(["--header", "Content-Type: application/macaroon-request"]);
        command.args(["--data", r#"{"caveats": ["activity:DOWNLOAD,LIST"], "validity": "PT10M"}"#]);
        command.arg(self.url("https", path));
        let said: Value = serde_json::from_slice(&run_to_show_a_secret(command).ok().stdout).unwrap();
        let macaroon = said["macaroon"].as_str().unwrap().to_owned();
        secrets::remember(&macaroon);
        macaroon
    }

    /// The value of a sample of the metrics.
    fn metric(&self, sample: &str) -> Option<f64> {
        let (_, page) = secrets::metrics(&self.server.admin());
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    fn log(&self, name: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.scratch.join(name)).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn status_and_body(outcome: Outcome) -> (u16, String) {
    let said = outcome.text();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Renews a file that may be read at any time.
fn replace(file: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    let new = file.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, file).unwrap();
}

fn new_secret() -> String {
    let secret = run(openssl(&["rand", "-base64", "48"])).ok().text();
    secret.lines().for_each(secrets::remember);
    secret
}

fn write_secrets(scratch: &Scratch, all: &[&str]) {
    replace(&scratch.join("secrets"), all.join("---\n").as_bytes());
}

/// One connection by TLS, as OpenSSL makes it.
struct Connection {
    child: Child,
    write: ChildStdin,
    read: ChildStdout,
    ahead: Vec<u8>,
}

impl Connection {
    fn new(site: &Site, who: Option<&Credential>) -> Connection {
        let mut command = openssl(&["s_client", "-quiet", "-servername", "localhost", "-connect"]);
        command.arg(site.address()).arg("-CApath").arg(site.pki.certificates());
        if let Some(who) = who {
            command.arg("-cert").arg(&who.cert).arg("-key").arg(&who.key);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (write, read) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Connection { child, write, read, ahead: Vec::new() }
    }

    fn get(&mut self, path: &str) {
        write!(self.write, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        self.write.flush().unwrap();
    }

    fn more(&mut self) {
        let mut bytes = [0; 65_536];
        let count = self.read.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection was closed");
        self.ahead.extend_from_slice(&bytes[..count]);
    }

    /// The head of the next answer.
    fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.ahead.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = self.ahead.drain(..end + 4).collect();
                return String::from_utf8(head).unwrap();
            }
            self.more();
        }
    }

    /// And so many bytes of its body.
    fn body(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len {
            self.more();
        }
        self.ahead.drain(..len).collect()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The certificate that a new connection is shown, in PEM.
fn shown_certificate(site: &Site) -> String {
    let mut command = openssl(&["s_client", "-servername", "localhost", "-connect", &site.address()]);
    command.arg("-CApath").arg(site.pki.certificates()).stdin(Stdio::null());
    let said = run(command).text();
    let start = said.find("-----BEGIN CERTIFICATE").expect("a certificate");
    let end = said.find("-----END CERTIFICATE").expect("its end");
    said[start..end].to_owned()
}

#[test]
fn a_renewed_certificate_counts_and_no_connection_is_dropped() {
    let mut site = Site::new("");
    let big = content(9301, 24 * MIB);
    site.scratch.file("export/public/big", &big);
    let before = shown_certificate(&site);
    let (mut downloading, mut idle) = (Connection::new(&site, None), Connection::new(&site, None));
    idle.get("/public/f");
    assert!(idle.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(idle.body(5), b"bytes");
    downloading.get("/public/big");
    assert!(downloading.head().starts_with("HTTP/1.1 200 "));
    let first = downloading.body(MIB);

    // Half of a certificate is none: that is told once, however often it is looked at.
    let next = site.pki.credential("host-rsa");
    let (cert, key) = (fs::read(&next.cert).unwrap(), fs::read(&next.key).unwrap());
    replace(&site.scratch.join("cert.pem"), &cert[..cert.len() / 2]);
    assert_eq!(site.server.next_event()["type"], "reload.failed");
    assert_eq!(shown_certificate(&site), before);
    // Neither is the certificate of another key.
    replace(&site.scratch.join("cert.pem"), &cert);
    assert_eq!(site.server.next_event()["type"], "reload.failed");
    assert_eq!(shown_certificate(&site), before);
    let notes = |site: &Site| {
        let log = site.log("access.log");
        log.iter().filter(|record| record["error"].as_str().is_some_and(|it| it.contains("not used"))).count()
    };
    assert_eq!(notes(&site), 2);
    replace(&site.scratch.join("key.pem"), &key);
    assert_eq!(site.server.next_event()["type"], "reloaded");
    assert_eq!(notes(&site), 2);
    let after = shown_certificate(&site);
    assert!(after != before && String::from_utf8_lossy(&cert).contains(after.trim_end()), "{after}");

    // What was under way goes on.
    let rest = downloading.body(big.len() - MIB);
    assert_same(&[first, rest].concat(), &big);
    for connection in [&mut downloading, &mut idle] {
        connection.get("/public/f");
        assert!(connection.head().starts_with("HTTP/1.1 200 "));
        assert_eq!(connection.body(5), b"bytes");
    }
}

#[test]
fn a_new_list_of_revoked_certificates_counts_everywhere() {
    let mut site = Site::new("");
    let eve = site.pki.credential("eve");
    let session = site.scratch.join("session");
    let request = "GET /data/f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let request = site.scratch.file("request", request.as_bytes());
    let ask = |site: &Site, options: &[&str]| {
        let address = site.address();
        let mut command =
            openssl(&["s_client", "-connect", &address, "-servername", "localhost", "-ign_eof"]);
        command.arg("-CApath").arg(site.pki.certificates()).args(options);
        command.stdin(fs::File::open(&request).unwrap());
        run(command).text()
    };
    let own = ["-cert", text(&eve.cert), "-key", text(&eve.key), "-sess_out", text(&session)];
    assert!(ask(&site, &own).contains("HTTP/1.1 200 "));
    let resumed = ask(&site, &["-sess_in", text(&session)]);
    assert!(resumed.contains("Reused, ") && resumed.contains("HTTP/1.1 200 "), "{resumed}");
    let mut open = Connection::new(&site, Some(&eve));
    open.get("/data/f");
    assert!(open.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(open.body(5), b"bytes");
    assert!(site.metric("gridlane_revocation_list_update_seconds").is_some_and(|at| at > 1e9));
    assert!(site.metric("gridlane_trust_anchor_expiry_seconds").is_some_and(|at| at > 1e9));

    site.pki.revoke("eve");
    until("the list counts", || site.status(Some(&eve), "data/f", &[]) == 401);
    let resumed = ask(&site, &["-sess_in", text(&session)]);
    assert!(resumed.contains("HTTP/1.1 401 "), "{resumed}");
    open.get("/data/f");
    assert!(open.head().starts_with("HTTP/1.1 401 "));
    assert_eq!(site.status(Some(&site.pki.credential("ada")), "data/f", &[]), 200);

    // Half of a list revokes as many as before.
    let directory = site.pki.certificates();
    let lists: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "r0"))
        .collect();
    for list in &lists {
        let bytes = fs::read(list).unwrap();
        replace(list, &bytes[..bytes.len() / 2]);
    }
    loop {
        let event = site.server.next_event();
        assert_eq!(event["type"], "reloaded");
        if event["warnings"].to_string().matches("stays in force").count() > 0 {
            break;
        }
    }
    assert_eq!(site.status(Some(&eve), "data/f", &[]), 401);
}

#[test]
fn macaroons_outlive_a_change_of_secrets_until_they_are_called_back() {
    let site = Site::new("");
    let old_secret = fs::read_to_string(site.scratch.join("secrets")).unwrap();
    let old = site.macaroon("data/");
    assert_eq!(site.by_macaroon(&old, "data/f", &[]), 200);
    let made = |site: &Site| {
        let reloads = site.metric("gridlane_config_reloads_total").unwrap();
        move |site: &Site| {
            until("it is read", || site.metric("gridlane_config_reloads_total").unwrap() > reloads)
        }
    };
    // The first makes new ones, and the others go on counting.
    let is_read = made(&site);
    let secret = new_secret();
    write_secrets(&site.scratch, &[&secret, &old_secret]);
    is_read(&site);
    let new = site.macaroon("data/");
    assert_eq!((site.by_macaroon(&old, "data/f", &[]), site.by_macaroon(&new, "data/f", &[])), (200, 200));
    let is_read = made(&site);
    write_secrets(&site.scratch, &[&secret]);
    is_read(&site);
    assert_eq!((site.by_macaroon(&old, "data/f", &[]), site.by_macaroon(&new, "data/f", &[])), (401, 200));

    // Its id is in the log.
    let log = site.log("access.log");
    let last = log.iter().rev().find(|record| record["identity"]["kind"] == "macaroon").unwrap();
    let id = last["identity"]["id"].as_str().unwrap();
    assert_eq!(last["identity"]["name"], ADA_DN);
    replace(&site.scratch.join("revoked"), format!("# stolen\n{id}\n").as_bytes());
    until("it is revoked", || site.by_macaroon(&new, "data/f", &[]) == 401);
    assert_eq!(site.by_macaroon(&site.macaroon("data/"), "data/f", &[]), 200);
    assert_eq!(site.metric("gridlane_auth_refused_total{method=\"macaroon\",cause=\"revoked\"}"), Some(1.0));
}

#[test]
fn a_user_has_limits_wherever_they_are() {
    let site = Site::new("user-limits = { connections = 1, requests = 3, rate = \"2MB\" }\n");
    let (ada, eve) = (site.pki.credential("ada"), site.pki.credential("eve"));
    // A connection counts for its user before anything is asked on it.
    let idle = Connection::new(&site, Some(&ada));
    until("it is counted", || {
        let (status, said) = site.ask(Some(&ada), "data/f", &[]);
        status == 429 && said.contains("this user has too many connections")
    });
    assert_eq!(site.status(Some(&eve), "data/f", &[]), 200);
    // An anonymous client is another one.
    assert_eq!(site.status(None, "public/f", &[]), 200);
    assert!(
        site.metric("gridlane_connections_refused_total{reason=\"user\"}").is_some_and(|count| count >= 1.0)
    );
    drop(idle);
    until("it is gone", || site.status(Some(&ada), "data/f", &[]) == 200);

    // Requests: more than there may be in the time that they take.
    let url = site.url("https", "data/f");
    let mut command = site.curl();
    command.arg("--cert").arg(&ada.file).args(["--write-out", "%{http_code} %header{retry-after}\n"]);
    for _ in 0..200 {
        command.args(["--output", "/dev/null"]).arg(&url);
    }
    let said = run(command).ok().text();
    assert!(said.lines().any(|line| line == "200 ") && said.lines().any(|line| line == "429 1"), "{said}");
    let throttled =
        |by: &str| site.metric(&format!("gridlane_throttled_requests_total{{by=\"{by}\"}}")).unwrap();
    assert!(throttled("user") >= 1.0 && throttled("client") == 0.0 && throttled("vo") == 0.0);
    assert_eq!(site.status(Some(&eve), "data/f", &[]), 200);

    // Bytes: 6 MB take their time.
    let bytes = content(9302, 6_000_000);
    site.scratch.file("export/data/big", &bytes);
    let seconds = |who| {
        let out = site.scratch.join("got");
        let options =
            ["--output", text(&out), "--retry", "9", "--write-out", "%{time_starttransfer} %{time_total}"];
        let mut command = site.curl();
        if let Some(who) = who {
            command.arg("--cert").arg::<&Path>(who);
        }
        let path = if who.is_some() { "data/big" } else { "public/big" };
        let said = run({
            command.args(options).arg(site.url("https", path));
            command
        })
        .ok()
        .text();
        assert_same(&fs::read(out).unwrap(), &bytes);
        let (first, total) = said.split_once(' ').unwrap();
        total.parse::<f64>().unwrap() - first.parse::<f64>().unwrap()
    };
    // As many as in one second are there at once.
    let took = seconds(Some(&ada.file));
    assert!(took > 1.5, "{took}");
}

#[test]
fn a_session_does_without_connections_that_are_too_many() {
    let site = Site::new("user-limits = { connections = 1 }\n");
    let bytes = content(9303, 24 * MIB);
    site.scratch.file("export/data/big", &bytes);
    let macaroon = site.macaroon("data/");
    let target = site.scratch.join("got");
    let mut command = gridlane();
    command.args(["cp", "--streams", "4", &site.url("roots", "/data/big"), text(&target)]);
    command.env("BEARER_TOKEN", &macaroon).env("X509_CERT_DIR", site.pki.certificates());
    run(command).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    let log = site.log("access.log");
    let read = log.iter().find(|record| record["method"] == "root:open" && record["status"] == 0).unwrap();
    assert_eq!((&read["identity"]["kind"], &read["operation"]), (&"macaroon".into(), &"read".into()));
}

/// The decisions in the logs are those of the rules.
#[test]
fn a_line_of_the_log_is_explained_as_it_was_decided() {
    let site = Site::new("");
    let (ada, eve) = (site.pki.credential("ada"), site.pki.credential("eve"));
    let upload = site.scratch.file("upload", b"new");
    let put = ["--upload-file", text(&upload)];
    let to = |path: &str| format!("Destination: {}", site.url("https", path));
    let (there, forbidden) = (to("data/ada/moved"), to("data/elsewhere"));
    let depth = ["--request", "PROPFIND", "--header", "Depth: 1"];
    for (who, path, arguments, expected) in [
        (Some(&ada), "data/f", &[][..], 200),
        (Some(&eve), "data/ada/f", &[], 200),
        (None, "data/f", &[], 401),
        (None, "public/f", &[], 200),
        (Some(&ada), "data/", &depth, 207),
        (Some(&ada), "data/ada/a%20b", &put, 201),
        (Some(&ada), "data/ada/a%20b", &put, 204),
        (Some(&eve), "data/ada/new", &put, 403),
        (Some(&ada), "data/elsewhere", &put, 403),
        (Some(&ada), "public/new", &put, 403),
        (Some(&ada), "data/ada/dir", &["--request", "MKCOL"], 201),
        (Some(&ada), "data/ada/f", &["--request", "MOVE", "--header", &there], 201),
        (Some(&ada), "data/ada/moved", &["--request", "MOVE", "--header", &forbidden], 403),
        (Some(&eve), "data/ada/moved", &["--request", "MOVE", "--header", &forbidden], 403),
        (Some(&eve), "data/ada/moved", &["--request", "DELETE"], 403),
        (Some(&ada), "data/ada/moved", &["--request", "DELETE"], 204),
    ] {
        assert_eq!(site.status(who, path, arguments), expected, "{path} {arguments:?}");
    }
    let macaroon = site.macaroon("data/ada");
    assert_eq!(site.by_macaroon(&macaroon, "data/ada/a%20b", &[]), 200);
    assert_eq!(site.by_macaroon(&macaroon, "data/ada/a%20b", &put), 403);
    assert_eq!(site.by_macaroon(&macaroon, "data/f", &[]), 403);
    // And by root://.
    let address = site.url("root", "");
    let xrdfs = |arguments: &[&str]| {
        let mut command = tool("xrdfs", "xrootd-client");
        command.arg(&address).args(arguments).env("X509_CERT_DIR", site.pki.certificates());
        run(command)
    };
    xrdfs(&["ls", "/public"]).ok();
    xrdfs(&["cat", "/public/f"]).ok();
    assert_ne!(xrdfs(&["cat", "/data/f"]).code, Some(0));
    assert_ne!(xrdfs(&["rm", "/public/f"]).code, Some(0));
    assert_ne!(xrdfs(&["mkdir", "/data/a%20b"]).code, Some(0));

    let has_decision = |record: &Value| record["operation"].is_string();
    until("the last is logged", || {
        let log = site.log("access.log");
        log.iter().any(|record| record["method"] == "root:mkdir" && has_decision(record))
    });
    let log: Vec<Value> = site.log("access.log").into_iter().filter(has_decision).collect();
    assert!(log.len() >= 23, "{log:?}");
    let mut words: Vec<String> = Vec::new();
    for record in &log {
        let line = site.scratch.file("line", format!("{record}\n").as_bytes());
        let mut command = gridlane();
        command.args(["auth", "explain", "--log-line", "--json", "--config"]).arg(&site.config);
        command.stdin(fs::File::open(line).unwrap());
        let outcome = run(command);
        let said = outcome.event("decision");
        assert_eq!(said["decision"], record["decision"], "{record} {said}");
        let was_refused = match record["status"].as_u64().unwrap() {
            401 | 403 | 3010 => true,
            status => {
                assert!(status < 400, "{record}");
                false
            }
        };
        assert_eq!(
            (&said["granted"], outcome.code),
            (&(!was_refused).into(), Some(if was_refused { 4 } else { 0 })),
            "{record}"
        );
        words.extend(record["operation"].as_str().map(str::to_owned));
    }
    words.sort();
    words.dedup();
    assert_eq!(words, ["create", "delete", "list", "mkdir", "overwrite", "read", "rename", "stat"]);
    // Identity, operation, path, bytes, rule and request.
    let audit = site.log("audit.log");
    let first = &audit[0];
    assert_eq!((&first["identity"]["dn"], &first["method"]), (&ADA_DN.into(), &"PUT".into()));
    assert_eq!((&first["path"], &first["bytes_in"]), (&"/data/ada/a%20b".into(), &3.into()));
    assert_eq!((&first["operation"], &first["decision"]), (&"create".into(), &"[[rule]] 2".into()));
    assert!(first["id"].is_string());
    let moved = audit.iter().find(|record| record["method"] == "MOVE").unwrap();
    assert_eq!(moved["decided_path"], "/data/ada/moved");
}

/// The example of `deploy/`, with everything that it has for clients that authenticate.
#[test]
fn the_example_is_sound_where_clients_are_asked() {
    let (pki, scratch) = (Pki::new(), Scratch::new());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/serve.toml");
    let mut config = String::new();
    for line in fs::read_to_string(example).unwrap().lines() {
        let used = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
        config.push_str(&format!("{used}\n"));
    }
    let host = pki.credential("host");
    scratch.file("macaroon.revoked", b"");
    write_secrets(&scratch, &[&new_secret()]);
    replace(&scratch.join("users"), b"");
    for (place, here) in [
        ("/etc/grid-security/hostcert.pem", host.cert),
        ("/etc/grid-security/hostkey.pem", host.key),
        ("/etc/grid-security/certificates", pki.certificates()),
        ("/etc/grid-security/vomsdir", pki.vomsdir()),
        ("/etc/gridlane/macaroon.secrets", scratch.join("secrets")),
        ("/etc/gridlane", scratch.path().to_owned()),
        ("/var/log/gridlane", scratch.dir("log")),
        ("/srv/gridlane", scratch.dir("srv")),
    ] {
        assert!(config.contains(place), "{place}");
        config = config.replace(place, text(&here));
    }
    let config = config.replace(", \"[::1]:1094\"", "").replace(":1094", ":0").replace(":9194", ":0");
    let config = scratch.file("serve.toml", config.as_bytes());
    let mut command = gridlane();
    command.args(["serve", "--check", "--server-name", "localhost", "--config"]).arg(config);
    let said = run(command).exits(0).text();
    // Every rule of it can match a client.
    assert!(!said.contains("[[rule]]"), "{said}");
    for words in
        ["certificates of 2 authorities", "tokens of https://atlas-auth.example/", "macaroons", "passwords"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_check_warns_of_what_ends() {
    let site = Site::new("");
    let check = |site: &Site, more: &[&str]| {
        let mut command = gridlane();
        command.args(["serve", "--check", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]);
        command.arg(&site.config).args(more);
        run(command).exits(0).text()
    };
    let said = check(&site, &["--server-name", "localhost"]);
    assert!(!said.contains("warning: "), "{said}");
    site.pki.outdate_list();
    let (cert, key) = (site.pki.certificates().join("soon.pem"), site.scratch.join("soon.key"));
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"];
    let mut command = openssl(&request);
    command.args(["-subj", "/CN=Soon", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
    run({
        command.arg("-keyout").arg(&key).arg("-out").arg(&cert);
        command
    })
    .ok();
    secrets::remember_key(&fs::read_to_string(key).unwrap());
    let said = check(&site, &["--server-name", "storage.example"]);
    for words in
        ["is not for storage.example", "Test CA is out of date", "the authority /CN=Soon expires in "]
    {
        assert!(
            said.lines().any(|line| line.starts_with("warning: ") && line.contains(words)),
            "{words}: {said}"
        );
    }
}
