//! Chains to be judged, and what is around them.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use gridlane_auth::Refusal;
use gridlane_auth::make::*;
use gridlane_auth::x509::{Trust, Verified, verify};
use ring::rand::SystemRandom;

/// The time of all verification.
pub(crate) const NOW_S: i64 = 1_800_000_000;
pub(crate) const HOUR_S: i64 = 3600;

pub(crate) const USER: &str = "/DC=org/DC=example/OU=people/CN=Ada Lovelace";

/// A certificate still to be made.
pub(crate) struct Part {
    pub(crate) contents: Contents,
    /// Which of [`keys`] it is for.
    pub(crate) key: usize,
    /// Which of them signs it.
    pub(crate) signer: usize,
}

impl Part {
    /// Puts an extension in the place of the one of its kind, or behind all others.
    pub(crate) fn set(&mut self, extension: Extension) {
        self.remove(&extension.oid.clone());
        self.contents.extensions.push(extension);
    }

    pub(crate) fn remove(&mut self, oid: &[u64]) {
        self.contents.extensions.retain(|extension| extension.oid != oid);
    }

    pub(crate) fn make(&self) -> Vec<u8> {
        self.contents.sign(&keys()[self.signer], random()).unwrap()
    }
}

/// Made once: keys 0 to 19 are ECDSA on P-256, as are most of the world's new ones.
pub(crate) fn keys() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut keys: Vec<Key> = (0..20).map(|_| Key::generate(Curve::P256, random()).unwrap()).collect();
        keys.push(Key::generate(Curve::P384, random()).unwrap());
        keys.push(Key::from_pem(&openssl(&["genrsa", "2048"], None), random()).unwrap());
        keys.push(Key::from_pem(&openssl(&["genpkey", "-algorithm", "ed25519"], None), random()).unwrap());
        keys
    })
}

pub(crate) const P384: usize = 20;
pub(crate) const RSA: usize = 21;
pub(crate) const ED25519: usize = 22;
/// A key without an owner.
pub(crate) const STRANGER: usize = 19;

pub(crate) fn random() -> &'static SystemRandom {
    static RANDOM: OnceLock<SystemRandom> = OnceLock::new();
    RANDOM.get_or_init(SystemRandom::new)
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text, Text::Utf8).unwrap()
}

fn key_id_of(key: usize) -> Vec<u8> {
    key_id(&keys()[key].public_key()).unwrap()
}

/// The names and keys in which two parts hang together are already right.
pub(crate) fn part(subject: Name, key: usize, issuer: Name, signer: usize, serial: u8) -> Part {
    let contents = Contents {
        subject,
        issuer,
        serial: vec![0x11, serial],
        validity: Validity { not_before_s: NOW_S - HOUR_S, not_after_s: NOW_S + HOUR_S },
        public_key: keys()[key].public_key(),
        extensions: vec![Extension::authority_key_id(&key_id_of(signer))],
    };
    Part { contents, key, signer }
}

pub(crate) fn authority(subject: Name, key: usize, issuer: Name, signer: usize, serial: u8) -> Part {
    let mut part = part(subject, key, issuer, signer, serial);
    part.set(Extension::subject_key_id(&key_id_of(key)));
    part.set(Extension::basic_constraints(true, None));
    part.set(Extension::key_usage(KeyUsage::CERTIFICATE_SIGN | KeyUsage::CRL_SIGN));
    part
}

pub(crate) fn proxy_of(issuer: &Part, number: usize, key: usize) -> Part {
    let subject = issuer.contents.subject.clone().with("CN", &number.to_string(), Text::Printable).unwrap();
    let mut proxy = part(subject, key, issuer.contents.subject.clone(), issuer.key, number as u8);
    proxy.set(Extension::proxy(&ProxyPolicy::InheritAll, None));
    proxy.set(Extension::key_usage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT));
    proxy
}

/// A root, authorities below it, a person, and proxies: all as they should be, the root first.
pub(crate) fn parts(intermediates: usize, proxies: usize) -> Vec<Part> {
    let root = name("/DC=org/DC=example/CN=Root CA");
    let mut parts = vec![authority(root.clone(), 0, root, 0, 1)];
    for level in 1..=intermediates {
        let above = &parts[level - 1];
        let subject = name(&format!("/DC=org/DC=example/CN=Authority {level}"));
        let (issuer, signer) = (above.contents.subject.clone(), above.key);
        parts.push(authority(subject, level, issuer, signer, 1 + level as u8));
    }
    let above = &parts[intermediates];
    let mut user = part(name(USER), 7, above.contents.subject.clone(), above.key, 0x70);
    user.set(Extension::subject_key_id(&key_id_of(7)));
    user.set(Extension::basic_constraints(false, None));
    user.set(Extension::key_usage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT));
    user.set(Extension::client());
    parts.push(user);
    for depth in 0..proxies {
        let issuer = parts.last().unwrap();
        parts.push(proxy_of(issuer, 101 + depth, 8 + depth % 10));
    }
    parts
}

/// A chain, and the authorities to trust.
#[derive(Clone, Default)]
pub(crate) struct World {
    /// The leaf first.
    pub(crate) presented: Vec<Vec<u8>>,
    pub(crate) trusted: Vec<Vec<u8>>,
    pub(crate) lists: Vec<Vec<u8>>,
    pub(crate) at_s: i64,
}

impl World {
    /// The root is trusted, all else presented.
    pub(crate) fn of(parts: &[Part]) -> World {
        let mut presented: Vec<Vec<u8>> = parts.iter().map(Part::make).collect();
        let root = presented.remove(0);
        presented.reverse();
        World { presented, trusted: vec![root], lists: Vec::new(), at_s: NOW_S }
    }

    /// The files of a trust directory.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        let mut add = |name: Name, extension: &str, text: String| {
            let hash = name.hash().unwrap();
            let mut names = (0..).map(|number| format!("{hash}.{extension}{number}"));
            let free = names.find(|name| files.iter().all(|(other, _)| other != name)).unwrap();
            files.push((free, text.into_bytes()));
        };
        for der in &self.trusted {
            let (_, read) = x509_parser::parse_x509_certificate(der).unwrap();
            add(Name::from_der(read.subject().as_raw()).unwrap(), "", pem::encode(pem::CERTIFICATE, der));
        }
        for der in &self.lists {
            let (_, read) = x509_parser::parse_x509_crl(der).unwrap();
            add(Name::from_der(read.issuer().as_raw()).unwrap(), "r", pem::encode("X509 CRL", der));
        }
        files
    }

    pub(crate) fn by_us(&self) -> Result<Verified, Refusal> {
        let (trust, _) = Trust::read(self.files());
        verify(&self.presented, &trust, self.at_s)
    }

    /// The verdict of OpenSSL, with its reason.
    pub(crate) fn by_openssl(&self, dir: &Path) -> (bool, String) {
        for (file, contents) in self.files() {
            std::fs::write(dir.join(file), contents).unwrap();
        }
        let pem: Vec<String> = self.presented.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
        std::fs::write(dir.join("leaf.pem"), &pem[0]).unwrap();
        std::fs::write(dir.join("others.pem"), pem[1..].concat()).unwrap();
        let at = self.at_s.to_string();
        let mut command = Command::new("openssl");
        command.args(["verify", "-allow_proxy_certs", "-auth_level", "2", "-purpose", "sslclient"]);
        command.args(["-no-CAfile", "-no-CAstore", "-CApath", ".", "-attime", &at]);
        if !self.lists.is_empty() {
            command.arg("-crl_check_all");
        }
        if pem.len() > 1 {
            command.args(["-untrusted", "others.pem"]);
        }
        let output = command.arg("leaf.pem").current_dir(dir).output().expect("openssl is there");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}

/// The output of a command of OpenSSL.
pub(crate) fn openssl(arguments: &[&str], dir: Option<&Path>) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(arguments);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let output = command.output().expect("openssl is there");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A list of an authority that revokes these serial numbers.
pub(crate) fn list(issuer: &Name, signer: usize, revoked: &[u8], validity: Validity) -> Vec<u8> {
    let revoked =
        revoked.iter().map(|serial| Revoked { serial: vec![0x11, *serial], revoked_s: NOW_S - HOUR_S });
    let list = RevocationList {
        issuer: issuer.clone(),
        validity,
        revoked: revoked.collect(),
        extensions: vec![Extension::raw(&[2, 5, 29, 20], false, vec![2, 1, 1])],
    };
    list.sign(&keys()[signer], random()).unwrap()
}
