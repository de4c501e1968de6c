//! The field's clients log in to `gridlane serve` by certificate over root:// (gsi).

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use super::set_up::{gfal, xrdcp};
use super::with;
use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::pki::{ADA_DN, Credential, EVE_DN, Pki};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::voms::VomsProxy;
use crate::support::xrootd_auth;
use crate::support::{Scratch, assert_same, content, python, until};

/// A server that lets members of a VO read, and its admins write, by gsi alone.
struct Site {
    pki: Pki,
    scratch: Scratch,
    server: Server,
}

impl Site {
    fn new() -> Site {
        Site::with("auth = \"gsi\"")
    }

    fn with(root: &str) -> Site {
        let (pki, scratch) = (Pki::new(), Scratch::new());
        scratch.file("export/vo/f", b"for members");
        let host = pki.credential("host-rsa");
        let config = format!(
            r#"
[serve]
listen = ["127.0.0.1:0"]
cert = {cert:?}
key = {key:?}
access-log = {log:?}
watch-interval = 0.1

[root]
{root}

[[export]]
path = "/"
directory = {export:?}

[auth]
client-ca-dir = {authorities:?}
voms-dir = {vomsdir:?}

[[rule]]
vo = "gridlane"
may = ["read", "list"]
under = "/vo"

[[rule]]
vo = "gridlane"
role = "admin"
may = ["read", "list", "write", "delete"]
under = "/vo"
"#,
            cert = host.cert,
            key = host.key,
            log = scratch.join("access.log"),
            export = scratch.join("export"),
            authorities = pki.certificates(),
            vomsdir = pki.vomsdir(),
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        let mut command = gridlane();
        // As the client of other servers it trusts the same authorities.
        command.args(["serve", "--json", "--config"]).arg(config).env("X509_CERT_DIR", pki.certificates());
        let server = Server::spawn(command);
        Site { pki, scratch, server }
    }

    fn url(&self, path: &str) -> String {
        let url = self.server.url_over("root", path).replace("127.0.0.1", "localhost");
        // XRootD's clients want the root of a path twice.
        let at = url.find("localhost").unwrap() + url[url.find("localhost").unwrap()..].find('/').unwrap();
        format!("{}/{}", &url[..at], &url[at..])
    }

    fn exported(&self, path: &str) -> PathBuf {
        self.scratch.join("export").join(path)
    }

    fn member(&self) -> Credential {
        VomsProxy::of(&self.pki, "eve", "gridlane", &["/gridlane"]).make("member")
    }

    fn admin(&self) -> Credential {
        VomsProxy::of(&self.pki, "ada", "gridlane", &["/gridlane/Role=admin", "/gridlane"]).make("admin")
    }

    /// A program of the field with a proxy, whose server has to be asked by gsi.
    fn run(&self, mut command: Command, credential: Option<&Credential>) -> Outcome {
        command.env("XrdSecPROTOCOL", "gsi").env("HOME", self.scratch.path());
        // Before any passphrase is asked for.
        command.env("XrdSecGSICREATEPROXY", "0").env("X509_USER_PROXY", "/nowhere");
        with(&self.pki, command, credential, None)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("access.log")).unwrap_or_default()
    }
}

fn xrdfs(site: &Site, arguments: &[&str]) -> Command {
    let mut command = tool("xrdfs", "xrootd-client");
    let url = site.url("");
    command.arg(url.trim_end_matches('/')).args(arguments);
    command
}

#[test]
fn xrootds_clients_read_and_write() {
    let site = Site::new();
    let (member, admin) = (site.member(), site.admin());
    let target = site.pki.join("got");
    site.run(xrdcp(&site.url("vo/f"), &target), Some(&member)).ok();
    assert_same(&fs::read(&target).unwrap(), b"for members");
    site.run(xrdfs(&site, &["ls", "/vo"]), Some(&member)).ok().says(&["/vo/f"]);
    // An upload, with several streams.
    let large = content(77, 3_000_000);
    let source = site.scratch.file("large", &large);
    let mut upload = xrdcp(text(&source), &PathBuf::from(site.url("vo/up")));
    upload.args(["--streams", "3"]);
    site.run(upload, Some(&admin)).ok();
    assert_same(&fs::read(site.exported("vo/up")).unwrap(), &large);
    site.run(xrdfs(&site, &["rm", "/vo/up"]), Some(&admin)).ok();
    // A member without the role, and one without attributes.
    let refused = site.run(xrdcp(text(&source), &PathBuf::from(site.url("vo/no"))), Some(&member));
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    let without = site.pki.rsa_proxy("without", &site.pki.credential("ada"));
    let refused = site.run(xrdfs(&site, &["ls", "/vo"]), Some(&without));
    assert!(refused.code != Some(0) && refused.stderr.contains("[3010]"), "{}", refused.describe());
    // The log knows who they are, as over https.
    let log = site.log();
    for dn in [ADA_DN, EVE_DN] {
        assert!(log.contains(dn), "{dn} is not in {log}");
    }
}

#[test]
fn gfal_copies_both_ways() {
    let site = Site::new();
    let admin = site.admin();
    let target = format!("file://{}", site.pki.join("got").display());
    site.run(gfal("gfal-copy", &[&site.url("vo/f"), &target]), Some(&admin)).ok();
    assert_same(&fs::read(site.pki.join("got")).unwrap(), b"for members");
    site.run(gfal("gfal-copy", &[&target, &site.url("vo/up")]), Some(&admin)).ok();
    assert_same(&fs::read(site.exported("vo/up")).unwrap(), b"for members");
    site.run(gfal("gfal-ls", &[&site.url("vo")]), Some(&admin)).ok().says(&["up"]);
    let stranger = site.run(gfal("gfal-ls", &[&site.url("vo")]), None);
    assert_ne!(stranger.code, Some(0), "{}", stranger.describe());
}

/// Each fault of a chain is told by its name: to the client, and in the log.
#[test]
fn refusals_name_their_cause() {
    let site = Site::new();
    for (number, (user, words)) in
        [("revoked", "was revoked"), ("false-ada", "signing_policy"), ("stranger-ada", "CN=Stranger CA")]
            .into_iter()
            .enumerate()
    {
        let proxy = site.pki.rsa_proxy(&format!("number-{number}"), &site.pki.credential(user));
        let mut stat = gridlane();
        stat.args(["stat", &site.url("vo/f")]);
        let refused = site.run(stat, Some(&proxy));
        assert!(refused.code == Some(4), "{user}: {}", refused.describe());
        assert!(refused.stderr.contains(words), "{user}: {}", refused.describe());
        assert!(site.log().contains(words), "{user}: {}", site.log());
        // XRootD's own client prints no server's words, and is refused all the same.
        let theirs = site.run(xrdcp(&site.url("vo/f"), &site.pki.join("no")), Some(&proxy));
        assert_ne!(theirs.code, Some(0), "{user}: {}", theirs.describe());
    }
}

/// Clients sign their requests as the server's level says, with the key that they agreed on.
#[test]
fn signed_requests() {
    // Signed requests of the upload: every level has those of the one before, and some have more.
    let mut before = 0;
    for (level, at_least) in [("compatible", 1), ("standard", 1), ("intense", 2), ("pedantic", 2)] {
        let site = Site::with(&format!("auth = \"gsi\"\nsigning = \"{level}\""));
        let admin = site.admin();
        let large = content(78, 3_000_000);
        let source = site.scratch.file("large", &large);
        let mut upload = xrdcp(text(&source), &PathBuf::from(site.url("vo/up")));
        upload.env("XRD_LOGLEVEL", "Dump");
        let uploaded = site.run(upload, Some(&admin));
        assert!(uploaded.code == Some(0), "{level}: {}", uploaded.describe());
        // Its log has no word for a signature, but the length: a head, an initialisation vector, and a digest with its padding.
        let signatures = uploaded.stderr.matches(", 88 bytes").count();
        assert!(
            signatures >= before.max(at_least),
            "{level}: {signatures} after {before}: {}",
            uploaded.describe()
        );
        before = signatures;
        assert_same(&fs::read(site.exported("vo/up")).unwrap(), &large);
        let target = site.pki.join("got");
        site.run(xrdcp(&site.url("vo/up"), &target), Some(&admin)).ok();
        assert_same(&fs::read(&target).unwrap(), &large);
        for (command, path) in [("stat", "/vo/up"), ("ls", "/vo"), ("rm", "/vo/up"), ("mkdir", "/vo/d")] {
            let outcome = site.run(xrdfs(&site, &[command, path]), Some(&admin));
            assert!(outcome.code == Some(0), "{level} {command}: {}", outcome.describe());
        }
    }
}

/// A client lends a server a proxy, with which that fetches the file as the client: from Debian's server, which knows nothing of
/// the copy. XRootD's client and ours.
#[test]
fn delegated_copies() {
    let site = Site::new();
    let source = xrootd_auth::voms(&site.pki);
    let bytes = content(79, 5_000_000);
    source.put("vo/from", &bytes);
    source.give();
    let (admin, member) = (site.admin(), site.member());
    let from = source.url_over("root", "vo/from").replace("127.0.0.1", "localhost");
    let mut theirs = tool("xrdcp", "xrootd-client");
    theirs.args(["--silent", "--tpc", "delegate", "only", &from, &site.url("vo/theirs")]);
    site.run(theirs, Some(&admin)).ok();
    assert_same(&fs::read(site.exported("vo/theirs")).unwrap(), &bytes);
    let ours = |credential: &Credential, to: &str, options: &[&str]| {
        let mut command = gridlane();
        command.args(["cp", "--tpc", "only", &from, &site.url(to)]).args(options);
        site.run(command, Some(credential))
    };
    ours(&admin, "vo/ours", &["--delegate"]).ok();
    assert_same(&fs::read(site.exported("vo/ours")).unwrap(), &bytes);
    // The server itself has come to the source as the client, for each of both.
    let by_server = format!(".{}:", site.server.pid());
    let log = source.log();
    let logins = log.lines().filter(|line| line.contains("login as") && line.contains(&by_server));
    let as_client = logins.filter(|line| line.contains("CN=Ada Lovelace")).count();
    assert!(as_client >= 2, "{as_client}: {log}");
    // Without a proxy the source knows nobody; and one that may not write lends its proxy in vain.
    let alone = ours(&admin, "vo/alone", &[]);
    assert_ne!(alone.code, Some(0), "{}", alone.describe());
    let refused = ours(&member, "vo/refused", &["--delegate"]);
    assert_eq!(refused.code, Some(4), "{}", refused.describe());
    for name in ["vo/alone", "vo/refused"] {
        assert!(!site.exported(name).exists(), "{name}");
    }
}

/// A destination of XRootD's fetches from gridlane with the proxy that it is lent. xrdcp before 5.6 signs such proxies with
/// SHA-1, which gridlane does not believe; its own client does not.
#[test]
fn a_source_of_copies_by_delegation() {
    let site = Site::new();
    let target = xrootd_auth::gsi_that_takes_proxies(&site.pki);
    let bytes = content(80, 5_000_000);
    site.scratch.file("export/vo/big", &bytes);
    let copy = |to: &str| {
        let mut command = gridlane();
        let to = target.url_over("roots", to).replace("127.0.0.1", "localhost");
        command.args(["cp", "--tpc", "only", "--delegate", &site.url("vo/big"), &to]);
        site.run(command, Some(&site.member()))
    };
    copy("vo/copy").ok();
    assert_same(&fs::read(target.exported("vo/copy")).unwrap(), &bytes);
    // The whole way as the member, and by nobody else: the destination's program has logged in as she.
    let opened = site
        .log()
        .lines()
        .filter(|line| line.contains("root:open") && line.contains("xrdcp"))
        .map(str::to_owned)
        .collect::<Vec<_>>();
    assert!(!opened.is_empty() && opened.iter().all(|line| line.contains(EVE_DN)), "{opened:?}");
    // What the member may not read, the destination may not either.
    site.scratch.file("export/secret", b"of nobody");
    let mut command = gridlane();
    let to = target.url_over("roots", "vo/secret").replace("127.0.0.1", "localhost");
    command.args(["cp", "--tpc", "only", "--delegate", &site.url("secret"), &to]);
    assert_eq!(site.run(command, Some(&site.member())).code, Some(4));
    assert!(!target.exported("vo/secret").exists());
}

/// Clients that ask for such a copy and have lent nothing are told so, and nothing is fetched as nobody.
#[test]
fn copies_by_delegation_without_a_proxy() {
    let site = Site::new();
    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    source.set_nonblocking(true).unwrap();
    let from = format!("root://localhost:{}//vo/from", source.local_addr().unwrap().port());
    for key in [None, Some("0123456789abcdef")] {
        let mut command = python::pypi("identity_peers/gsi_delegation.py");
        command.arg(site.url("vo/nothing")).arg(&from).args(key);
        let said = site.run(command, Some(&site.admin()));
        said.ok().says(&["[ERROR]", "this client has lent no proxy"]);
        assert!(!site.exported("vo/nothing").exists());
    }
    assert_eq!(
        source.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "no connection has come to the source"
    );
}

/// A server that is told not to takes no proxy.
#[test]
fn a_server_may_take_no_proxies() {
    let site = Site::with("auth = \"gsi\"\ndelegation = false");
    let said = site.run(xrdfs(&site, &["query", "config", "tpcdlg"]), Some(&site.member())).ok();
    assert_eq!(said.text().trim(), "tpcdlg");
    let site = Site::new();
    let said = site.run(xrdfs(&site, &["query", "config", "tpcdlg"]), Some(&site.member())).ok();
    assert_eq!(said.text().trim(), "gsi");
}

/// A certificate that is revoked while its session lasts counts no longer, without a restart.
#[test]
fn sessions_end_with_their_certificates() {
    let site = Site::new();
    let admin = site.admin();
    let began = site.scratch.join("began");
    let mut session = python::pypi("identity_peers/gsi_session.py");
    session.arg(site.url("").trim_end_matches('/')).arg("/vo/f").arg(&began);
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| site.run(session, Some(&admin)));
        until("it is in", || began.exists() || outcome.is_finished());
        site.pki.revoke("ada");
        let said = outcome.join().unwrap().ok().text();
        assert!(said.starts_with("3010 ") && said.contains("revoked"), "{said}");
        assert!(said.contains("log in again"), "{said}");
    });
    // A new one is not let in either.
    let refused = site.run(xrdfs(&site, &["ls", "/vo"]), Some(&admin));
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    assert!(site.log().contains("was revoked"), "{}", site.log());
}

/// Without an RSA key of its own a server offers no gsi, and says why; with another certificate for it, it does.
#[test]
fn a_server_needs_an_rsa_key() {
    let pki = Pki::new();
    let scratch = Scratch::new();
    let check = |root: &str| {
        let host = pki.credential("host");
        let config = format!(
            "[serve]\ncert = {:?}\nkey = {:?}\n[root]\n{root}\n[[export]]\npath = \"/\"\ndirectory = {:?}\n[auth]\nclient-ca-dir = {:?}\n",
            host.cert,
            host.key,
            scratch.path(),
            pki.certificates()
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        let mut command = gridlane();
        command.args(["serve", "--check", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        run(command)
    };
    let quiet = check("");
    assert!(
        quiet.describe().contains("none by certificate: gsi: this server has no RSA key"),
        "{}",
        quiet.describe()
    );
    let asked = check("auth = \"gsi\"");
    assert!(asked.code == Some(2) && asked.describe().contains("gsi-cert"), "{}", asked.describe());
    let rsa = pki.credential("host-rsa");
    let named = check(&format!("auth = \"gsi\"\ngsi-cert = {:?}\ngsi-key = {:?}", rsa.cert, rsa.key));
    assert!(named.describe().contains("a certificate (gsi)"), "{}", named.describe());
}
