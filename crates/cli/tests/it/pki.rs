//! Certificates of a test fleet and proxies of its users, read by the programs that the field has: OpenSSL, curl, VOMS.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::client::{Outcome, cp, gridlane, run};
use crate::support::serve::Server;
use crate::support::tools::{curl, tool};
use crate::support::{Scratch, assert_copied, content, names};

/// An authority `f` in a directory of its own, where all commands run.
struct Fleet {
    scratch: Scratch,
}

impl Fleet {
    fn new() -> Fleet {
        let fleet = Fleet { scratch: Scratch::new() };
        fleet.pki(&["init", "f"]).exits(0);
        fleet
    }

    fn pki(&self, arguments: &[&str]) -> Outcome {
        self.gridlane(&[&["pki"], arguments].concat())
    }

    fn gridlane(&self, arguments: &[&str]) -> Outcome {
        let mut command = gridlane();
        command.args(arguments).current_dir(self.scratch.path());
        run(command)
    }

    /// Ada's certificate and key, as options.
    fn with_user(&self) -> [&'static str; 4] {
        self.pki(&["user", "f", "Ada Lovelace"])
            .exits(0)
            .says(&["--cert 'f/users/Ada Lovelace/usercert.pem'"]);
        ["--cert", "f/users/Ada Lovelace/usercert.pem", "--key", "f/users/Ada Lovelace/userkey.pem"]
    }

    fn proxy(&self, arguments: &[&str]) -> Outcome {
        self.gridlane(&[&["auth", "proxy"], arguments].concat())
    }

    fn tool(&self, program: &str, package: &str, arguments: &[&str]) -> Outcome {
        let mut command = tool(program, package);
        command.args(arguments).current_dir(self.scratch.path());
        command
            .env("X509_CERT_DIR", self.path("f/certificates"))
            .env("X509_VOMS_DIR", self.path("f/vomsdir"));
        run(command)
    }

    fn openssl(&self, arguments: &[&str]) -> Outcome {
        self.tool("openssl", "openssl", arguments)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Everything below a directory that is a file.
fn files(dir: &Path) -> Vec<PathBuf> {
    let below = |name: String| {
        let path = dir.join(name);
        if path.is_dir() { files(&path) } else { vec![path] }
    };
    names(dir).into_iter().flat_map(below).collect()
}

#[test]
fn a_fleet_serves_and_is_believed_by_its_authority_only() {
    let fleet = Fleet::new();
    fleet
        .pki(&["host", "f", "node1", "node2.example.org", "--alias", "localhost,127.0.0.1", "--alias", "::1"])
        .exits(0)
        .says(&["gridlane serve DATA --cert f/hosts/node1/hostcert.pem", "/OU=Hosts/CN=node2.example.org"]);
    for (name, purpose) in [("node1", "node1"), ("node2.example.org", "localhost")] {
        let cert = format!("f/hosts/{name}/hostcert.pem");
        fleet
            .openssl(&[
                "verify",
                "-x509_strict",
                "-crl_check",
                "-purpose",
                "sslserver",
                "-verify_hostname",
                purpose,
                "-CApath",
                "f/certificates",
                &cert,
            ])
            .exits(0);
    }
    let bytes = content(1201, 100_000);
    let export = fleet.scratch.dir("export");
    fs::write(export.join("file"), &*bytes).unwrap();
    let [cert, key] = ["hostcert", "hostkey"].map(|name| fleet.path(&format!("f/hosts/node1/{name}.pem")));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::with(&export, &["--cert", cert, "--key", key]);
    let url = server.url_over("https", "file");
    let mut command = cp(&url, fleet.path("copy"));
    command.env("X509_CERT_DIR", fleet.path("f/certificates"));
    run(command).ok();
    assert_copied(&fleet.path("copy"), &bytes);
    run(cp(&url, fleet.path("other"))).exits(4);
    let mut command = curl();
    command.arg("--capath").arg(fleet.path("f/certificates")).args(["-o", "/dev/null", &url]);
    run(command).exits(0);
}

#[test]
fn only_the_owner_reads_keys_and_nothing_is_replaced() {
    let fleet = Fleet::new();
    fleet.with_user();
    fleet.pki(&["host", "f", "node1"]).exits(0);
    fleet.pki(&["voms", "f", "testvo"]).exits(0);
    let made = files(&fleet.path("f"));
    for file in &made {
        let is_key = file.to_str().unwrap().ends_with("key.pem") || file.ends_with("ca.key");
        assert_eq!(mode(file), if is_key { 0o600 } else { 0o644 }, "{}", file.display());
        assert_eq!(fs::read_to_string(file).unwrap().contains("PRIVATE"), is_key, "{}", file.display());
    }
    let all: Vec<Vec<u8>> = made.iter().map(|file| fs::read(file).unwrap()).collect();
    for again in [
        &["init", "f"][..],
        &["user", "f", "Ada Lovelace"],
        &["host", "f", "node0", "node1"],
        &["voms", "f", "testvo"],
    ] {
        fleet.pki(again).exits(5).says(&["is there already", "nothing is replaced"]);
    }
    assert_eq!(files(&fleet.path("f")), made, "the first of two hosts is not made when the second cannot be");
    assert_eq!(made.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>(), all);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let fleet = Fleet::new();
    let before = files(&fleet.path("f"));
    for (wrong, code, words) in [
        (&["host", "f", "good", "not a name"][..], 2, "host name"),
        (&["host", "f", "../up"], 2, "host name"),
        (&["host", "f", "good", "--alias", "a/b"], 2, "host name"),
        (&["user", "f", ".."], 2, "name"),
        (&["user", "f", "a/b"], 2, "name"),
        (&["voms", "f", "vo/group"], 2, "no VO"),
        (&["voms", "f", "vo", "--host", "127.0.0.1"], 2, "address"),
        (&["host", "nowhere", "good"], 3, "gridlane pki init nowhere"),
        (&["init", "g", "--name", "Test CA"], 2, "/DC=org/CN=Ada"),
        (&["init", "g", "--name", "/O=O'Brien/CN=CA"], 2, "signing_policy"),
        (&["init", "g", "--days", "0"], 2, "0"),
        (&["revoke", "f", "nothing.pem"], 3, "nothing.pem"),
    ] {
        fleet.pki(wrong).exits(code).says(&[words]);
    }
    assert_eq!(files(&fleet.path("f")), before);
    assert!(!fleet.path("g").exists());
}

#[test]
fn what_is_called_back_is_not_believed_any_more() {
    let fleet = Fleet::new();
    fleet.pki(&["user", "f", "Ada"]).exits(0);
    fleet.pki(&["user", "f", "Eve"]).exits(0);
    fleet.pki(&["host", "f", "node1"]).exits(0);
    let verify = |file: &str| fleet.openssl(&["verify", "-crl_check", "-CApath", "f/certificates", file]);
    let (ada, eve, node) =
        ("f/users/Ada/usercert.pem", "f/users/Eve/usercert.pem", "f/hosts/node1/hostcert.pem");
    verify(eve).exits(0);
    fleet.pki(&["revoke", "f", eve]).exits(0).says(&["CN=Eve"]);
    let event = fleet.pki(&["revoke", "f", node, "--json"]).exits(0).events().remove(0);
    assert_eq!(event["what"], "revocation");
    fleet.pki(&["revoke", "f", eve]).exits(5).says(&["already"]);
    verify(eve).exits(2).says(&["revoked"]);
    verify(node).exits(2).says(&["revoked"]);
    verify(ada).exits(0);
    let list = event["files"]["list"].as_str().unwrap();
    let number = fleet.openssl(&["crl", "-in", list, "-noout", "-crlnumber"]).exits(0).text();
    assert!(number.trim().ends_with('3'), "a number for each list: {number}");
    // What another authority of the same name has made.
    fleet.pki(&["init", "g"]).exits(0);
    fleet.pki(&["revoke", "g", ada]).exits(2).says(&["another authority"]);
    let own = files(&fleet.path("f/certificates")).into_iter().find(|file| file.extension().unwrap() == "0");
    fleet.pki(&["revoke", "f", own.unwrap().to_str().unwrap()]).exits(2).says(&["itself"]);
}

/// `openssl s_server` on a free port, which wants a certificate and lets proxies in. Killed when dropped.
struct TlsServer {
    child: Child,
    url: String,
}

impl TlsServer {
    fn start(fleet: &Fleet) -> TlsServer {
        let mut command = tool("openssl", "openssl");
        command
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-Verify", "5", "-verify_return_error"])
            .args(["-allow_proxy_certs", "-CApath", "f/certificates"])
            .args(["-cert", "f/hosts/node1/hostcert.pem", "-key", "f/hosts/node1/hostkey.pem"])
            .current_dir(fleet.scratch.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let place = said.by_ref().map(Result::unwrap).find(|line| line.starts_with("ACCEPT"));
        let place = place.expect("the server says where it listens");
        std::thread::spawn(move || said.for_each(drop));
        TlsServer { child, url: format!("https://localhost:{}/", place.rsplit(':').next().unwrap()) }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_proxy_is_let_in_where_its_user_is() {
    let fleet = Fleet::new();
    fleet.pki(&["host", "f", "node1", "--alias", "localhost"]).exits(0);
    let user = fleet.with_user();
    fleet.proxy(&[&user[..], &["--out", "proxy.pem"]].concat()).exits(0).says(&["in proxy.pem"]);
    assert_eq!(mode(&fleet.path("proxy.pem")), 0o600);
    // A proxy of the proxy, from the one file.
    fleet.proxy(&["--cert", "proxy.pem", "--out", "second.pem", "--limited", "--hours", "1"]).exits(0);
    let server = TlsServer::start(&fleet);
    let ask = |credential: &str| {
        let mut command = curl();
        command.arg("--capath").arg(fleet.path("f/certificates")).current_dir(fleet.scratch.path());
        command.args(["-E", credential, &server.url]);
        run(command)
    };
    ask("proxy.pem").exits(0).says(&["Ada Lovelace, CN", "Verify return code: 0 (ok)"]);
    ask("second.pem").exits(0);
    // Without a certificate there is no answer.
    let mut command = curl();
    command.arg("--capath").arg(fleet.path("f/certificates")).arg(&server.url);
    assert_ne!(run(command).code, Some(0));
    let shown = fleet.proxy(&["--show", "second.pem", "--json"]).exits(0).events().remove(0);
    assert_eq!(shown["type"], "proxy");
    assert_eq!(shown["identity"], "/DC=org/DC=example/OU=Users/CN=Ada Lovelace");
    assert_eq!(shown["kind"], "RFC 3820 limited proxy");
    let left_s = shown["left_s"].as_i64().unwrap();
    assert!((1..=3600).contains(&left_s), "{left_s}");
    // Where no proxy may follow, none is made that no server would believe.
    fleet.proxy(&["--cert", "proxy.pem", "--out", "last.pem", "--path-length", "0"]).exits(0);
    ask("last.pem").exits(0);
    fleet.proxy(&["--cert", "last.pem", "--out", "none.pem"]).exits(2).says(&["no more proxies"]);
    // What a limited proxy makes is limited, whether it is asked for or not.
    fleet.proxy(&["--cert", "second.pem", "--out", "third.pem"]).exits(0);
    fleet.proxy(&["--show", "third.pem"]).exits(0).says(&["limited proxy"]);
}

#[test]
fn voms_shows_the_groups_that_were_signed_here() {
    let fleet = Fleet::new();
    let user = fleet.with_user();
    fleet.pki(&["voms", "f", "testvo"]).exits(0);
    let voms = ["--voms-cert", "f/voms/testvo/vomscert.pem", "--voms-key", "f/voms/testvo/vomskey.pem"];
    let wanted = ["--voms", "testvo:/testvo/prod/Role=boss", "--voms", "testvo", "--out", "proxy.pem"];
    fleet.proxy(&[&user[..], &voms, &wanted].concat()).exits(0);
    let shown = fleet.tool("voms-proxy-info", "voms-clients", &["-all", "-file", "proxy.pem"]).exits(0);
    let groups: Vec<String> =
        shown.text().lines().filter(|line| line.starts_with("attribute")).map(str::to_owned).collect();
    assert_eq!(
        groups,
        [
            "attribute : /testvo/prod/Role=boss/Capability=NULL",
            "attribute : /testvo/Role=NULL/Capability=NULL"
        ]
    );
    shown.says(&[
        "type      : RFC compliant proxy",
        "identity  : /DC=org/DC=example/OU=Users/CN=Ada Lovelace",
        "uri       : voms.testvo.example.org:15000",
    ]);
    // What VOMS shows of it is what we show.
    let own = fleet.proxy(&["--show", "proxy.pem", "--json"]).exits(0).events().remove(0);
    let fqans = serde_json::json!(["/testvo/prod/Role=boss", "/testvo"]);
    assert_eq!((&own["vos"][0]["vo"], &own["vos"][0]["fqans"]), (&Value::from("testvo"), &fqans), "{own}");
    fleet.proxy(&["--show", "proxy.pem"]).exits(0).says(&["attribute: /testvo/prod/Role=boss"]);
    for (wrong, words) in [
        (&["--voms", "testvo:/other"][..], "not in the VO"),
        (&["--voms", "testvo", "--voms", "other"], "one VO"),
        (&["--voms", "testvo:/testvo/Role="], "no VOMS attribute"),
    ] {
        fleet.proxy(&[&user[..], &voms, wrong, &["--out", "none.pem"]].concat()).exits(2).says(&[words]);
    }
    fleet.proxy(&[&user[..], &["--voms", "testvo"]].concat()).exits(2).says(&["--voms-cert"]);
    assert!(!fleet.path("none.pem").exists());
}

#[test]
fn a_key_that_cannot_be_used_is_refused_with_what_to_do() {
    let fleet = Fleet::new();
    let user = fleet.with_user();
    let [_, cert, _, key] = user;
    let passphrase = ["pkcs8", "-topk8", "-passout", "pass:secret", "-in", key, "-out", "encrypted.pem"];
    fleet.openssl(&passphrase).exits(0);
    fleet.pki(&["user", "f", "Eve"]).exits(0);
    fs::copy(fleet.path(key), fleet.path("open.pem")).unwrap();
    fs::set_permissions(fleet.path("open.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(fleet.path("encrypted.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    for (key, code, words) in [
        ("encrypted.pem", 2, "openssl pkey"),
        ("open.pem", 4, "chmod 600"),
        ("f/users/Eve/userkey.pem", 2, "not that of the certificate"),
        ("missing.pem", 3, "missing.pem"),
    ] {
        fleet.proxy(&["--cert", cert, "--key", key, "--out", "proxy.pem"]).exits(code).says(&[words]);
    }
    assert!(!fleet.path("proxy.pem").exists());
    // Nor does a proxy replace the key that it would be made with.
    fleet.proxy(&[&user[..], &["--out", key]].concat()).exits(2).says(&["replace"]);
    // Where programs look for it, of which the environment tells.
    let mut command = gridlane();
    command.args(["auth", "proxy"]).current_dir(fleet.scratch.path());
    command.env("X509_USER_CERT", cert).env("X509_USER_KEY", key).env("X509_USER_PROXY", "found.pem");
    run(command).exits(0);
    let mut command = gridlane();
    command.args(["auth", "proxy", "--show"]).current_dir(fleet.scratch.path());
    command.env("X509_USER_PROXY", "found.pem");
    run(command).exits(0).says(&["Ada Lovelace", "time left:"]);
}

#[test]
fn keys_of_other_kinds_can_be_brought_along() {
    let fleet = Fleet::new();
    fleet.openssl(&["genpkey", "-algorithm", "rsa", "-out", "rsa.pem"]).exits(0);
    fs::set_permissions(fleet.path("rsa.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    fleet.pki(&["user", "f", "Ada", "--key", "rsa.pem"]).exits(0);
    fleet.pki(&["host", "f", "a", "b", "--key", "rsa.pem"]).exits(2);
    let user = ["--cert", "f/users/Ada/usercert.pem", "--key", "f/users/Ada/userkey.pem"];
    fleet.proxy(&[&user[..], &["--out", "proxy.pem"]].concat()).exits(0);
    fleet.proxy(&["--show", "f/users/Ada/usercert.pem"]).exits(0).says(&["2048 bits (RSA)", "not a proxy"]);
    fleet
        .openssl(&[
            "verify",
            "-allow_proxy_certs",
            "-CApath",
            "f/certificates",
            "-untrusted",
            "proxy.pem",
            "proxy.pem",
        ])
        .exits(0);
}
