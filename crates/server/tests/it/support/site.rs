//! A site that believes every kind of credentials, and their bearers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::TestServer;
pub(crate) use super::iam::{ISSUER, Iam, SERVER, now_s};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridlane_auth::dn::Pattern;
use gridlane_auth::gridmap::GridMap;
use gridlane_auth::make::{
    AttributeCertificate, Credential, Curve, Key, Name, ProxyTerms, Text, Validity, profile, proxy,
    voms_extension,
};
use gridlane_auth::password::{Users, make_line};
use gridlane_auth::policy::{Class, Principal, Template};
use gridlane_auth::token::Issuer;
use gridlane_auth::voms::VomsDir;
use gridlane_auth::x509::Trust;
use gridlane_auth::{Grants, Policy, Rule, macaroon};
use gridlane_core::Network;
use gridlane_dav::ResourcePath;
use gridlane_front::KeySource;
use gridlane_net::tls;
use gridlane_server::Settings;
use ring::rand::SystemRandom;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned};

pub(crate) const PASSWORD: &str = "correct horse";
pub(crate) const YEAR_S: i64 = 365 * 24 * 3600;

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text, Text::Utf8).unwrap()
}

pub(crate) fn key() -> Key {
    Key::generate(Curve::P256, &SystemRandom::new()).unwrap()
}

pub(crate) fn year() -> Validity {
    Validity::from_now(now_s(), YEAR_S)
}

/// An authority, a user of it, and the server that speaks for a VO.
pub(crate) struct Pki {
    pub(crate) authority: Credential,
    pub(crate) ada: Credential,
    pub(crate) voms: Credential,
}

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let authority = profile::authority(&name("/DC=org/CN=CA"), key(), year(), &random).unwrap();
    let user = |text: &str| profile::user(&authority, &name(text), key(), year(), &random).unwrap();
    Pki { ada: user("/DC=org/CN=Ada"), voms: user("/DC=org/CN=voms"), authority }
});

/// A proxy of Ada's, perhaps with a group.
pub(crate) fn ada(validity: Validity, group: Option<(&str, &Credential)>) -> Credential {
    let random = SystemRandom::new();
    let mut terms = ProxyTerms::new(validity);
    if let Some((fqan, signer)) = group {
        let server = ("dteam", "voms.example:15000");
        let holder = &PKI.ada.chain[0];
        let fqans = [fqan.to_owned()];
        let attributes =
            AttributeCertificate::new(signer, holder, server, &fqans, validity, vec![1]).unwrap();
        terms.extensions.push(voms_extension(&[attributes.sign(signer, &random).unwrap()]));
    }
    proxy(&PKI.ada, key(), &terms, &random).unwrap()
}

pub(crate) fn hour() -> Validity {
    Validity::from_now(now_s(), 3600)
}

pub(crate) fn site_keys() -> macaroon::Keys {
    macaroon::Keys::parse(&STANDARD.encode([7; 48])).unwrap()
}

/// Until when macaroons are good, and what they may do where.
pub(crate) fn minted(may: Grants, path: &str, ends_s: i64, networks: &[Vec<Network>]) -> String {
    let path = ResourcePath::parse(path).unwrap();
    let expires_s = now_s() + ends_s;
    let terms = macaroon::Terms {
        location: "SITE",
        name: "ada",
        rights: may,
        path: &path,
        expires_s,
        asked: None,
        networks,
    };
    let random = u128::from(std::process::id()).to_be_bytes();
    macaroon::mint(&site_keys(), random, &terms).unwrap().text.expose().to_owned()
}

pub(crate) fn rule(who: Principal, may: Grants, under: &str) -> Rule {
    Rule { name: format!("rule of {under}"), who, may, under: Template::parse(under).unwrap() }
}

pub(crate) const READS: Grants = Grants::READ.with(Grants::LIST);

pub(crate) fn with(adjust: impl FnOnce(&mut Principal)) -> Principal {
    let mut who = Principal { class: Class::Authenticated, ..Principal::default() };
    adjust(&mut who);
    who
}

/// Shows a certificate to every server that asks.
#[derive(Debug)]
pub(crate) struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

pub(crate) struct Site {
    pub(crate) server: TestServer,
    pub(crate) iam: Arc<Iam>,
    pub(crate) _dir: tempfile::TempDir,
    pub(crate) roots: RootCertStore,
}

/// A site that believes everything there is.
pub(crate) fn site(adjust: impl FnOnce(&mut Settings)) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&cert, &key, true).unwrap();
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(&cert).unwrap();
    for der in gridlane_auth::make::pem::certificates(&pem).unwrap() {
        roots.add(CertificateDer::from(der)).unwrap();
    }
    let iam = Iam::new();
    let source: Arc<dyn KeySource> = Arc::<Iam>::clone(&iam);
    let server = TestServer::with(|settings| {
        settings.tls = Some(config);
        settings.service.exports[0].allow_write = true;
        settings.root.site_name = Some("SITE".to_owned());
        settings.host_names.push("localhost".to_owned());
        settings.policy = Arc::new(Policy::new(vec![
            rule(Principal::anyone(), READS, "/public"),
            rule(Principal::default(), READS, "/known"),
            rule(with(|who| who.dn = Some(Pattern::new("/DC=org/CN=Ada"))), READS, "/ada"),
            rule(with(|who| who.user = Some("ada".to_owned())), READS.with(Grants::WRITE), "/home/{user}"),
            rule(with(|who| who.vo = Some("dteam".to_owned())), READS, "/{vo}"),
            rule(with(|who| who.user = Some("root".to_owned())), Grants::ADMIN, "/"),
        ]));
        let (trust, warnings) =
            Trust::from_certificates([("ca.pem".to_owned(), PKI.authority.chain_pem().into_bytes())]);
        assert!(warnings.is_empty(), "{warnings:?}");
        let auth = &mut settings.auth;
        auth.realm = "site".to_owned();
        auth.trust = Some(Arc::new(trust));
        let lsc = b"/DC=org/CN=voms\n/DC=org/CN=CA\n".to_vec();
        auth.voms = Arc::new(VomsDir::read([("dteam/voms.example.lsc".to_owned(), lsc)]).0);
        auth.gridmap = Arc::new(GridMap::read(b"\"/DC=org/CN=Ada\" ada\n").0);
        auth.issuers = vec![Issuer {
            url: ISSUER.to_owned(),
            base: ResourcePath::parse("/data").unwrap(),
            may: Grants::ADMIN,
            vo: None,
            audiences: Vec::new(),
            clock_skew_s: 60,
        }];
        auth.audiences = vec![SERVER.to_owned()];
        auth.key_source = Some(source);
        auth.macaroons = Some(Arc::new(site_keys()));
        let line = |name| make_line(name, PASSWORD, [3; 16], 4).unwrap();
        auth.users = Arc::new(Users::parse(&format!("{}\n{}\n", line("ada"), line("root"))).unwrap());
        adjust(settings);
    });
    for directory in ["public", "known", "ada", "home", "home/ada", "dteam", "data", "data/in", "secret"] {
        std::fs::create_dir(server.path(directory)).unwrap();
        server.write(&format!("{directory}/f"), directory);
    }
    Site { server, iam, _dir: dir, roots }
}

/// The status, and everything that was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn has(&self, part: &str) -> &Answer {
        assert!(self.text.contains(part), "no {part} in {}", self.text);
        self
    }

    pub(crate) fn lacks(&self, part: &str) -> &Answer {
        assert!(!self.text.contains(part), "{part} in {}", self.text);
        self
    }
}

impl Site {
    pub(crate) fn config(&self, shown: Option<&Credential>) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        Arc::new(match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let chain = shown.chain.iter().cloned().map(CertificateDer::from).collect();
                let key = gridlane_auth::make::pem::decode(shown.key.to_pem().expose().as_bytes()).unwrap();
                let key = PrivateKeyDer::try_from(key[0].der.clone()).unwrap();
                let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
                // rustls' own way refuses proxies.
                builder.with_client_cert_resolver(Arc::new(Shows(Arc::new(CertifiedKey::new(chain, key)))))
            }
        })
    }

    /// One request on a connection of its own, over TLS.
    pub(crate) fn ask_by(&self, config: &Arc<ClientConfig>, line: &str, fields: &str) -> Answer {
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        let text = self.exchange(config, &head);
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, text }
    }

    /// All that a connection of its own answers, over TLS.
    pub(crate) fn exchange(&self, config: &Arc<ClientConfig>, bytes: &str) -> String {
        let socket = TcpStream::connect(self.server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        String::from_utf8_lossy(&answers).into_owned()
    }

    pub(crate) fn ask(&self, line: &str, fields: &str) -> Answer {
        self.ask_by(&self.config(None), line, fields)
    }

    pub(crate) fn shows(&self, shown: &Credential, line: &str) -> Answer {
        self.ask_by(&self.config(Some(shown)), line, "")
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) fn basic(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}")))
}
