//! Debian's XRootD server as sites run it: clients authenticate by proxies with VOMS attributes, tokens and macaroons.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{run, text};
use super::issuer::{Signer, wlcg};
use super::pki::{Pki, openssl};
use super::xrootd::{Setup, Xrootd};
use super::{Scratch, python, secrets};

/// Settings of TLS: certificates are asked for and checked against this directory, over https and gsi.
fn tls(at: &Path) -> String {
    let at = at.display();
    format!(
        "xrd.tls {at}/cert.pem {at}/key.pem
xrd.tlsca certdir {at}/certificates
xrd.protocol http:__PORT__ libXrdHttp.so
http.listingdeny no
http.header2cgi Authorization authz
http.exthandler xrdtpc libXrdHttpTPC.so
ofs.authorize
"
    )
}

/// XRootD that lets every client in over http and https, copies from and to other servers when it is asked to, and
/// trusts the authorities of the tests.
pub(crate) fn third_party(pki: &Pki) -> Xrootd {
    let lines = |at: &Path| format!("{}xrootd.tls capable none\n", tls(at).replace("ofs.authorize\n", ""));
    start(prefix(pki, "host"), &lines, &|_| Vec::new())
}

/// XRootD that lets in clients with a proxy of the VO `gridlane`, over https and by gsi over root://.
///
/// Below `/vo` members of the VO read and list, and those with its role `admin` do everything; no client may do
/// anything elsewhere. Over https it makes macaroons for them.
pub(crate) fn voms(pki: &Pki) -> Xrootd {
    let env = |at: &Path| {
        vec![
            // libXrdVoms knows no other way to be told.
            ("X509_VOMS_DIR", at.join("vomsdir")),
            ("X509_CERT_DIR", at.join("certificates")),
        ]
    };
    let lines = |at: &Path| {
        let tls = tls(at);
        let at = at.display();
        // -vomsat:2 refuses clients without attributes. -crl:1 uses the lists of revoked certificates that are there.
        format!(
            "{tls}xrootd.tls capable none
http.secxtractor libXrdHttpVOMS.so
xrootd.seclib libXrdSec.so
sec.protocol gsi -certdir:{at}/certificates -crldir:{at}/certificates -cert:{at}/cert.pem -key:{at}/key.pem \
             -ca:1 -crl:1 -gmapopt:10 -vomsat:2 -vomsfun:libXrdVoms.so
acc.authdb {at}/authdb
ofs.authlib libXrdMacaroons.so
http.exthandler xrdmacaroons libXrdMacaroons.so
macaroons.secretkey {at}/macaroons
all.sitename gridlane-test
"
        )
    };
    // gsi (5.5.3) cannot sign with ECDSA.
    let prefix = prefix(pki, "host-rsa");
    // The first rule that fits a client is the only one for it.
    let rules = "= admins o: gridlane g: /gridlane r: admin
= members o: gridlane g: /gridlane
x admins /vo a
x members /vo lr
";
    prefix.file("authdb", rules.as_bytes());
    copy_tree(&pki.vomsdir(), &prefix.dir("vomsdir"));
    // It wants base64 with more than one line.
    run(openssl(&["rand", "-base64", "-out", text(&prefix.join("macaroons")), "64"])).ok();
    for line in fs::read_to_string(prefix.join("macaroons")).unwrap().lines() {
        secrets::remember(line);
    }
    start(prefix, &lines, &env)
}

/// XRootD that lets in every client with a certificate of the authorities, by gsi over root://, and allows it everything. `options` are
/// the module's, `lines` more of the configuration.
pub(crate) fn gsi(pki: &Pki, options: &str, lines: &str) -> Xrootd {
    gsi_as(pki, "host-rsa", options, lines)
}

/// The same, as a destination of third-party copies that asks clients for a proxy, and fetches with that.
pub(crate) fn gsi_that_takes_proxies(pki: &Pki) -> Xrootd {
    let lines = "xrd.tls __AT__/cert.pem __AT__/key.pem
xrd.tlsca certdir __AT__/certificates
xrootd.tls capable none
ofs.tpc autorm fcreds gsi =X509_USER_PROXY ttl 60 pgm /usr/bin/xrdcp --server";
    gsi(pki, "-dlgpxy:request -exppxy:=creds", lines)
}

/// The same as another host.
pub(crate) fn gsi_as(pki: &Pki, host: &str, options: &str, lines: &str) -> Xrootd {
    let env = |at: &Path| vec![("X509_CERT_DIR", at.join("certificates"))];
    let all = |at: &Path| {
        let at = at.display();
        let lines = lines.replace("__AT__", &at.to_string());
        format!(
            "xrootd.seclib libXrdSec.so
sec.protocol gsi -certdir:{at}/certificates -crldir:{at}/certificates -cert:{at}/cert.pem -key:{at}/key.pem \
             -ca:1 -crl:1 -gmapopt:10 {options}
{lines}
"
        )
    };
    start(prefix(pki, host), &all, &env)
}

/// XRootD that lets in clients with a token of [`ISSUER`], signed so, over https and by ztn over roots://.
///
/// The issuer's paths are below `/vo`. A token must be for [`AUDIENCE`].
pub(crate) fn tokens(pki: &Pki, signer: &Signer) -> Xrootd {
    tokens_of(pki, ISSUER, signer)
}

/// The same with tokens of another issuer.
pub(crate) fn tokens_of(pki: &Pki, issuer: &str, signer: &Signer) -> Xrootd {
    // Where scitokens-cpp remembers keys of issuers.
    let env = |at: &Path| vec![("XDG_CACHE_HOME", at.join("cache"))];
    let lines = |at: &Path| {
        let tls = tls(at);
        let at = at.display();
        format!(
            "{tls}xrootd.tls capable login
xrootd.seclib libXrdSec.so
sec.protocol ztn
ofs.authlib libXrdAccSciTokens.so config={at}/scitokens.cfg
"
        )
    };
    let prefix = prefix(pki, "host");
    let config = format!(
        "[Global]\naudience = {AUDIENCE}\nonmissing = deny\n[Issuer test]\nissuer = {issuer}\nbase_path = /vo\n"
    );
    prefix.file("scitokens.cfg", config.as_bytes());
    make_known(issuer, signer, &prefix.dir("cache"));
    start(prefix, &lines, &env)
}

/// The issuer of tokens; it cannot be asked for its keys.
pub(crate) const ISSUER: &str = "https://issuer.gridlane.test/";

/// The audience that a token must have.
pub(crate) const AUDIENCE: &str = "https://storage.gridlane.test";

fn start(
    prefix: Scratch,
    lines: &dyn Fn(&Path) -> String,
    env: &dyn Fn(&Path) -> Vec<(&'static str, PathBuf)>,
) -> Xrootd {
    let setup = Setup { lines: lines(prefix.path()), env: env(prefix.path()), host: "localhost" };
    let server = Xrootd::set_up(prefix, &setup);
    for dir in ["vo", "elsewhere"] {
        fs::create_dir(server.exported(dir)).unwrap();
    }
    server.give();
    server
}

/// A directory for a server, with its certificate and the authorities that it trusts.
fn prefix(pki: &Pki, host: &str) -> Scratch {
    let prefix = Scratch::new();
    let host = pki.credential(host);
    fs::copy(&host.cert, prefix.join("cert.pem")).unwrap();
    fs::copy(&host.key, prefix.join("key.pem")).unwrap();
    copy_tree(&pki.certificates(), &prefix.dir("certificates"));
    prefix
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => {
                fs::create_dir_all(&target).unwrap();
                copy_tree(&entry.path(), &target);
            }
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Puts an issuer's keys where scitokens-cpp, below this directory of caches, remembers those that it has fetched.
///
/// That library (0.7.3) fetches them by libcurl, which believes the system's authorities alone: Debian's build reads
/// neither SSL_CERT_FILE nor CURL_CA_BUNDLE, XRootD's plug-in has no setting for it, and OpenSSL takes no authorities
/// from its configuration file. The tests change nothing in the system.
fn make_known(issuer: &str, signer: &Signer, cache: &Path) {
    let keys = json!({ "keys": [signer.jwk()] }).to_string();
    let mut command = python::debian("scitokens_cache.py");
    command.arg(cache).args([issuer, &keys]);
    run(command).ok();
}

/// A token with this scope, for [`AUDIENCE`].
pub(crate) fn token(signer: &Signer, scope: &str) -> String {
    token_with(signer, json!({ "scope": scope }))
}

/// The same with other claims.
pub(crate) fn token_with(signer: &Signer, claims: Value) -> String {
    signer.token(&wlcg(ISSUER, AUDIENCE, &claims))
}
