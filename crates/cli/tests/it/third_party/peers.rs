//! With Debian's XRootD on the other side, active and passive, and with the field's clients: curl, davix and gfal2.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::json;

use super::copy;
use crate::support::client::{gridlane, run, text};
use crate::support::issuer::{Issuer, Signer, wlcg};
use crate::support::pki::{Credential, Pki};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::voms::VomsProxy;
use crate::support::xrootd::Xrootd;
use crate::support::xrootd_auth::{self, AUDIENCE};
use crate::support::{MIB, Scratch, assert_same, content, is_long_run, secrets};

/// One of the two servers.
enum Party {
    Gridlane(Server, Scratch),
    Xrootd(Xrootd),
}

impl Party {
    /// gridlane with what these lines of configuration say of identities; without one, anyone may do anything.
    fn gridlane(pki: &Pki, auth: &str) -> Party {
        let scratch = Scratch::new();
        scratch.dir("export/vo");
        let host = pki.credential("host");
        let config = format!(
            "ca = [{:?}]\n[serve]\nlisten = [\"127.0.0.1:0\"]\ncert = {:?}\nkey = {:?}\naccess-log = {:?}\n\
             [[export]]\npath = \"/\"\ndirectory = {:?}\nallow-write = true\n{auth}",
            pki.join("ca/cert.pem"),
            host.cert,
            host.key,
            scratch.join("access.log"),
            scratch.join("export"),
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        let mut command = gridlane();
        command.args(["serve", "--json", "--config"]).arg(config);
        Party::Gridlane(Server::spawn(command), scratch)
    }

    /// By a name: some of these programs look for no addresses in certificates.
    fn url(&self, scheme: &str, path: &str) -> String {
        let url = match self {
            Party::Gridlane(server, _) => server.url_over(scheme, path),
            Party::Xrootd(server) => server.url_over(scheme, path),
        };
        url.replace("127.0.0.1", "localhost")
    }

    fn exported(&self, path: &str) -> PathBuf {
        match self {
            Party::Gridlane(_, scratch) => scratch.join("export").join(path),
            Party::Xrootd(server) => server.exported(path),
        }
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        match self {
            Party::Gridlane(..) => fs::write(self.exported(path), bytes).unwrap(),
            Party::Xrootd(server) => drop(server.put(path, bytes)),
        }
    }
}

/// A test that fails shows what XRootD says of it.
impl Drop for Party {
    fn drop(&mut self) {
        if let (Party::Xrootd(server), true) = (self, std::thread::panicking()) {
            eprintln!("{}", server.log());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Pull,
    Push,
}

const MODES: [Mode; 2] = [Mode::Pull, Mode::Push];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Pull => "pull",
            Mode::Push => "push",
        }
    }
}

/// Two servers: the one that copies, and the other one.
struct Pair {
    pki: Pki,
    active: Party,
    passive: Party,
}

const SIZES: [usize; 3] = [0, 1, 3 * MIB + 17];

impl Pair {
    fn gridlane_and_xrootd() -> Pair {
        let pki = Pki::new();
        let active = Party::gridlane(&pki, "");
        let passive = Party::Xrootd(xrootd_auth::third_party(&pki));
        Pair { pki, active, passive }
    }

    fn xrootd_and_gridlane() -> Pair {
        let Pair { pki, active, passive } = Pair::gridlane_and_xrootd();
        Pair { pki, active: passive, passive: active }
    }

    fn gridlane_twice() -> Pair {
        let pki = Pki::new();
        let (active, passive) = (Party::gridlane(&pki, ""), Party::gridlane(&pki, ""));
        Pair { pki, active, passive }
    }

    /// Has a file copied by a client, which is given the mode, the URL of the source and that of the target.
    #[track_caller]
    fn copies(&self, scheme: &str, mode: Mode, bytes: &[u8], client: &dyn Fn(Mode, &str, &str)) {
        let (source, target) = match mode {
            Mode::Pull => (&self.passive, &self.active),
            Mode::Push => (&self.active, &self.passive),
        };
        let from = format!("vo/{}-{scheme}-{}", mode.name(), bytes.len());
        let to = format!("{from}-copied");
        source.put(&from, bytes);
        client(mode, &source.url(scheme, &from), &target.url(scheme, &to));
        assert_same(&fs::read(target.exported(&to)).unwrap(), bytes);
    }

    /// All sizes, both modes, over these schemes.
    fn copies_all(&self, schemes: &[&str], client: &dyn Fn(Mode, &str, &str)) {
        for scheme in schemes {
            for mode in MODES {
                for (seed, size) in (9401..).zip(SIZES) {
                    self.copies(scheme, mode, &content(seed, size), client);
                }
            }
        }
    }

    fn by_curl(&self, streams: u32) {
        self.copies_all(&["http", "https"], &|mode, from, to| {
            // XRootD (5.5.3) cannot fetch an empty file with several, from its own kind neither.
            let is_theirs = matches!(self.active, Party::Xrootd(_)) && from.ends_with("-0");
            let streams = if is_theirs { 1 } else { streams };
            let streams = format!("X-Number-Of-Streams: {streams}");
            let answer = match mode {
                Mode::Pull => copy(to, &[&format!("Source: {from}"), "Credential: none", &streams]),
                Mode::Push => copy(from, &[&format!("Destination: {to}"), "Credential: none", &streams]),
            };
            answer.arrives();
        });
    }

    fn by_davix(&self) {
        self.copies_all(&["http", "https"], &|mode, from, to| {
            let mut command = tool("davix-cp", "davix");
            command.args(["--copy-mode", mode.name(), "--capath"]).arg(self.pki.certificates());
            command.args([from, to]);
            run(command).ok();
        });
    }

    /// Over https it wants delegation where it has no token.
    fn by_gfal(&self) {
        self.copies_all(&["http"], &|mode, from, to| gfal(&self.pki, &Shown::Nothing, mode, from, to));
    }
}

/// The credential of a client.
enum Shown {
    Nothing,
    Token(String),
    /// For which it gets macaroons from both servers.
    Proxy(Credential),
}

/// The mode is no wish: with another one it fails.
#[track_caller]
fn gfal(pki: &Pki, shown: &Shown, mode: Mode, from: &str, to: &str) {
    let mut command = tool("gfal-copy", "gfal2-util-scripts");
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").env("X509_CERT_DIR", pki.certificates());
    match shown {
        Shown::Nothing => {}
        Shown::Token(token) => drop(command.env("BEARER_TOKEN", token)),
        Shown::Proxy(proxy) => drop(command.env("X509_USER_PROXY", &proxy.file)),
    }
    command.args(["-vv", "-K", "ADLER32", "-D", "HTTP PLUGIN:ENABLE_FALLBACK_TPC_COPY=false"]);
    command.args(["--copy-mode", mode.name(), from, to]);
    let said = run(command).ok().says(&[&format!("3rd {}", mode.name())]);
    drop(said);
}

#[test]
fn curl_from_and_to_xrootd() {
    Pair::gridlane_and_xrootd().by_curl(0);
    Pair::gridlane_and_xrootd().by_curl(8);
}

#[test]
fn curl_has_xrootd_copy() {
    Pair::xrootd_and_gridlane().by_curl(0);
    Pair::xrootd_and_gridlane().by_curl(8);
}

#[test]
fn curl_between_two_of_us() {
    Pair::gridlane_twice().by_curl(0);
}

#[test]
fn davix_from_and_to_xrootd() {
    Pair::gridlane_and_xrootd().by_davix();
}

#[test]
fn davix_has_xrootd_copy() {
    Pair::xrootd_and_gridlane().by_davix();
}

#[test]
fn davix_between_two_of_us() {
    Pair::gridlane_twice().by_davix();
}

#[test]
fn gfal2_from_and_to_xrootd() {
    Pair::gridlane_and_xrootd().by_gfal();
}

#[test]
fn gfal2_has_xrootd_copy() {
    Pair::xrootd_and_gridlane().by_gfal();
}

#[test]
fn gfal2_between_two_of_us() {
    Pair::gridlane_twice().by_gfal();
}

/// A gigabyte, in clear and encrypted, both ways and with either as the active one.
#[test]
fn large_files() {
    let size = if is_long_run() { 1_000_000_000 } else { 100_000_000 };
    let bytes = content(9411, size);
    for pair in [Pair::gridlane_and_xrootd(), Pair::xrootd_and_gridlane(), Pair::gridlane_twice()] {
        for (scheme, mode) in
            [("http", Mode::Pull), ("https", Mode::Push), ("https", Mode::Pull), ("http", Mode::Push)]
        {
            pair.copies(scheme, mode, &bytes, &|mode, from, to| {
                let answer = match mode {
                    Mode::Pull => copy(to, &[&format!("Source: {from}")]),
                    Mode::Push => copy(from, &[&format!("Destination: {to}")]),
                };
                answer.arrives();
            });
            for party in [&pair.active, &pair.passive] {
                for file in fs::read_dir(party.exported("vo")).unwrap() {
                    fs::remove_file(file.unwrap().path()).unwrap();
                }
            }
        }
    }
}

/// Both servers believe one issuer, and let no client in without a token of it: gfal2 sends the token for the active server,
/// and passes it on for the other one.
#[test]
fn gfal2_with_tokens() {
    let pki = Pki::new();
    let signer = Signer::es256("key");
    let issuer = Issuer::start(&[&signer]);
    let xrootd = Party::Xrootd(xrootd_auth::tokens_of(&pki, &issuer.url, &signer));
    let auth = format!(
        "[auth]\naudiences = [{AUDIENCE:?}]\n[[auth.issuer]]\nurl = {:?}\npath = \"/vo\"\n",
        issuer.url
    );
    let ours = Party::gridlane(&pki, &auth);
    let scope = "storage.read:/ storage.modify:/ storage.create:/ storage.stage:/";
    let token = signer.token(&wlcg(&issuer.url, AUDIENCE, &json!({ "scope": scope })));
    secrets::remember(&token);
    let shown = Shown::Token(token);
    let pair = Pair { pki, active: ours, passive: xrootd };
    let client = |mode, from: &str, to: &str| gfal(&pair.pki, &shown, mode, from, to);
    pair.copies_all(&["https"], &client);
    let pair = Pair { active: pair.passive, passive: pair.active, pki: Pki::new() };
    let client = |mode, from: &str, to: &str| gfal(&pair.pki, &shown, mode, from, to);
    pair.copies_all(&["https"], &client);
}

/// Both servers make macaroons for members of the VO, by their proxies; no token of one is good for the other.
#[test]
fn gfal2_with_macaroons() {
    let pki = Pki::new();
    let xrootd = Party::Xrootd(xrootd_auth::voms(&pki));
    let secret = pki.join("macaroons");
    run(crate::support::pki::openssl(&["rand", "-base64", "-out", text(&secret), "64"])).ok();
    fs::read_to_string(&secret).unwrap().lines().for_each(secrets::remember);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let auth = format!(
        "[auth]\nclient-ca-dir = {:?}\nvoms-dir = {:?}\nmacaroon-secrets = {secret:?}\n\
         [[rule]]\nvo = \"gridlane\"\nrole = \"admin\"\nmay = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\nunder = \"/vo\"\n",
        pki.certificates(),
        pki.vomsdir(),
    );
    let ours = Party::gridlane(&pki, &auth);
    let admin = VomsProxy::of(&pki, "ada", "gridlane", &["/gridlane/Role=admin"]).make("admin");
    let shown = Shown::Proxy(admin);
    let pair = Pair { pki, active: ours, passive: xrootd };
    let client = |mode, from: &str, to: &str| {
        gfal(&pair.pki, &shown, mode, &from.replacen("https", "davs", 1), &to.replacen("https", "davs", 1));
    };
    pair.copies_all(&["https"], &client);
    let Pair { pki, active, passive } = pair;
    let pair = Pair { pki, active: passive, passive: active };
    let client = |mode, from: &str, to: &str| {
        gfal(&pair.pki, &shown, mode, &from.replacen("https", "davs", 1), &to.replacen("https", "davs", 1));
    };
    pair.copies_all(&["https"], &client);
}
