//! Requests and proxies of delegation between us, OpenSSL, and Python's `cryptography`, in both directions.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::fs;
use std::process::Command;

use gridlane_auth::delegation::{KeyKind, Request, accept, request_subject};
use gridlane_auth::make::{Credential, Curve, Key, ProxyTerms, Validity, pem, profile, request};
use gridlane_auth::x509::Trust;
use ring::rand::SystemRandom;

const ADA: &str = "/DC=org/DC=example/CN=Ada";

struct Site {
    dir: tempfile::TempDir,
    random: SystemRandom,
    now_s: i64,
    ada: Credential,
    trust: Trust,
}

impl Site {
    fn new() -> Site {
        let random = SystemRandom::new();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now_s = i64::try_from(now.as_secs()).unwrap();
        let validity = Validity::from_now(now_s, 172_800);
        let key = || Key::generate(Curve::P256, &random).unwrap();
        let ca = profile::authority(&"/DC=org/DC=example/CN=CA".parse().unwrap(), key(), validity, &random)
            .unwrap();
        let ada = profile::user(&ca, &ADA.parse().unwrap(), key(), validity, &random).unwrap();
        let (trust, _) = Trust::read([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), ca.chain_pem()).unwrap();
        fs::write(dir.path().join("ada.pem"), ada.chain_pem()).unwrap();
        fs::write(dir.path().join("ada.key"), ada.key.to_pem().expose()).unwrap();
        Site { dir, random, now_s, ada, trust }
    }

    /// What a command prints; its errors when it fails.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program).args(arguments).current_dir(self.dir.path()).output();
        let output = output.unwrap_or_else(|cause| panic!("{program} is needed: {cause}"));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Keys as the service has them: of its own, and of RSA from elsewhere.
    fn keys(&self) -> Vec<(Key, KeyKind)> {
        let rsa = |bits: &str| {
            let size = format!("rsa_keygen_bits:{bits}");
            self.run(
                "openssl",
                &["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", &size, "-out", "rsa.key"],
            )
            .unwrap();
            Key::from_pem(&fs::read(self.path("rsa.key")).unwrap(), &self.random).unwrap()
        };
        vec![
            (Key::generate(Curve::P256, &self.random).unwrap(), KeyKind::P256),
            (Key::generate(Curve::P384, &self.random).unwrap(), KeyKind::P384),
            (rsa("2048"), KeyKind::Rsa { bits: 2048 }),
            (rsa("3072"), KeyKind::Rsa { bits: 3072 }),
        ]
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }
}

#[test]
fn openssl_verifies_our_requests_and_the_proxies_that_we_sign() {
    let site = Site::new();
    for (key, kind) in site.keys() {
        let der = request(&request_subject().unwrap(), &key, &site.random).unwrap();
        site.write("request.pem", &pem::encode(pem::REQUEST, &der));
        let said =
            site.run("openssl", &["req", "-in", "request.pem", "-verify", "-noout", "-subject"]).unwrap();
        assert!(
            said.contains("verify OK") && said.contains("O=Dummy") | said.contains("O = Dummy"),
            "{kind:?}: {said}"
        );

        let read = Request::read(&fs::read(site.path("request.pem")).unwrap()).unwrap();
        assert_eq!((read.kind(), read.spki()), (kind, &key.public_key()[..]));
        let terms = ProxyTerms::new(Validity::from_now(site.now_s, 3600));
        let chain = read.sign(&site.ada, terms, site.now_s, &site.random).unwrap();
        site.write("proxy.pem", &pem::encode(pem::CERTIFICATE, &chain[0]));
        let verify = [
            "verify",
            "-allow_proxy_certs",
            "-x509_strict",
            "-CAfile",
            "ca.pem",
            "-untrusted",
            "ada.pem",
            "proxy.pem",
        ];
        let said = site.run("openssl", &verify).unwrap();
        assert!(said.contains("proxy.pem: OK"), "{kind:?}: {said}");
        let upload: String = chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
        let found = accept(upload.as_bytes(), &key.public_key(), ADA, &site.trust, site.now_s).unwrap();
        assert_eq!(found.ends_s, site.now_s + 3600);
    }
}

#[test]
fn requests_of_openssl_are_read_and_weak_ones_refused() {
    let site = Site::new();
    let make = |options: &[&str]| {
        let common =
            ["req", "-new", "-nodes", "-batch", "-subj", "/O=Dummy/CN=x", "-keyout", "k", "-out", "r.pem"];
        site.run("openssl", &[&common[..], options].concat()).unwrap();
        Request::read(&fs::read(site.path("r.pem")).unwrap())
    };
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    assert_eq!(make(&curve).unwrap().kind(), KeyKind::P256);
    assert_eq!(make(&["-newkey", "ed25519"]).unwrap().kind(), KeyKind::Ed25519);
    let rsa = ["-newkey", "rsa:2048"];
    assert_eq!(make(&[&rsa[..], &["-sha384"]].concat()).unwrap().kind(), KeyKind::Rsa { bits: 2048 });
    // With attributes, as usual requests have them.
    let names = ["-addext", "subjectAltName=DNS:evil.example"];
    assert_eq!(make(&[&curve[..], &names].concat()).unwrap().kind(), KeyKind::P256);
    for (options, words) in [
        (&["-newkey", "rsa:1024"][..], "an RSA key of 1024 bits"),
        (&["-newkey", "rsa:2048", "-sha1"], "an algorithm that is not accepted"),
        (&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "an elliptic curve other than"),
    ] {
        let refusal = make(options).unwrap_err();
        assert!(refusal.message.contains(words), "{refusal}");
    }
}

/// What FTS3's client does with a request: looks at its signature, and signs a proxy whose name is the time.
const FOREIGN_CLIENT: &str = r#"
import datetime, sys, time
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID, ObjectIdentifier
request = x509.load_pem_x509_csr(open("request.pem", "rb").read())
assert request.is_signature_valid
assert request.signature_hash_algorithm.name == "sha256"
issuer = x509.load_pem_x509_certificate(open("ada.pem", "rb").read())
key = serialization.load_pem_private_key(open("ada.key", "rb").read(), None)
now = datetime.datetime.now(datetime.timezone.utc)
common = x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, str(int(time.time())))])
usage = dict.fromkeys(["content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
                       "encipher_only", "decipher_only"], False)
usage.update(digital_signature=True, key_encipherment=True)
proxy = (x509.CertificateBuilder()
    .issuer_name(issuer.subject)
    .subject_name(x509.Name(list(issuer.subject.rdns) + [common]))
    .public_key(request.public_key())
    .serial_number(int(time.time()))
    .not_valid_before(now - datetime.timedelta(minutes=5))
    .not_valid_after(now + datetime.timedelta(hours=12))
    .add_extension(x509.KeyUsage(**usage), critical=True)
    .add_extension(x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.5.5.7.1.14"),
        bytes.fromhex("300c300a06082b06010505071501")), critical=True)
    .sign(key, hashes.SHA256()))
out = proxy.public_bytes(serialization.Encoding.PEM) + issuer.public_bytes(serialization.Encoding.PEM)
open("upload.pem", "wb").write(out)
"#;

#[test]
fn a_client_in_python_signs_our_requests() {
    let site = Site::new();
    // A request for P-384 is signed with SHA-384; the client expects what FTS3 makes.
    for (key, kind) in site.keys().into_iter().filter(|(_, kind)| *kind != KeyKind::P384) {
        let der = request(&request_subject().unwrap(), &key, &site.random).unwrap();
        site.write("request.pem", &pem::encode(pem::REQUEST, &der));
        site.run("python3", &["-c", FOREIGN_CLIENT]).unwrap();
        let upload = fs::read(site.path("upload.pem")).unwrap();
        let found = accept(&upload, &key.public_key(), ADA, &site.trust, site.now_s).unwrap();
        assert_eq!((found.verified.dn(), found.verified.proxy_depth()), (ADA, 1));
        assert!((43_100..=43_300).contains(&(found.ends_s - site.now_s)), "{kind:?}");
    }
}
