//! The contents of a trust directory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use x509_parser::pem::Pem;

use super::certificate::{Certificate, shown};
use super::crl::RevocationList;
use super::name::Name;
use super::signing_policy::SigningPolicy;

/// The way to treat a revocation list that is over its time (`nextUpdate`), or whose time has not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutdatedLists {
    /// No client comes in that it is about: as OpenSSL does, and Globus.
    #[default]
    Refuse,
    /// Certificates that it has revoked stay revoked, and the others come in: as XRootD does unless told otherwise
    /// (`-crl:1`).
    Use,
}

/// Trust about certificates: authorities, what each may sign, and what was revoked.
///
/// A path ends at an authority in here whose subject is its issuer (a root). Others in here help to get there; without
/// their root they are worth nothing, as with OpenSSL.
#[derive(Default)]
pub struct Trust {
    authorities: Vec<Authority>,
    /// Authorities by what their names have in common with all that mean the same.
    by_name: HashMap<Vec<u8>, Vec<usize>>,
    lists: Vec<RevocationList>,
    lists_by_issuer: HashMap<Vec<u8>, Vec<usize>>,
    outdated_lists: OutdatedLists,
}

/// An authority that the operator trusts, at the end of a path or on the way.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) certificate: Certificate,
    /// The names that it may sign; `None` if no policy says.
    pub(super) policy: Option<SigningPolicy>,
    /// Its lists, signed by it.
    lists: Vec<usize>,
}

impl fmt::Debug for Trust {
    /// Its size; all of it would be megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({} authorities, {} revocation lists)", self.authorities.len(), self.lists.len())
    }
}

impl Trust {
    /// Reads the files of an IGTF trust directory (`/etc/grid-security/certificates`), by what their names say:
    ///
    /// * `HASH.0` … `HASH.9`, `*.pem`, `*.crt`, `*.cer`: authorities, in PEM or DER; also revocation lists, in PEM;
    /// * `HASH.r0` … `HASH.r9`, `*.crl`: revocation lists, in PEM or DER;
    /// * `STEM.signing_policy`: what the authorities in `STEM.0` and so on may sign.
    ///
    /// Names are without directories; other files are passed over. An authority that is there twice counts once.
    ///
    /// Also gives warnings, each naming a file and what is wrong with it. The rest counts all the same; but an authority
    /// whose policy cannot be read, or does not speak of it, may sign nothing.
    pub fn read(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> (Trust, Vec<String>) {
        let mut reader = Reader::default();
        for (name, contents) in files {
            let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
            match extension.as_bytes() {
                [b'0'..=b'9'] | b"pem" | b"crt" | b"cer" => reader.certificates(&name, stem, &contents),
                [b'r', b'0'..=b'9'] | b"crl" => reader.lists(&name, &contents),
                b"signing_policy" => reader.policy(&name, stem, &contents),
                _ => {}
            }
        }
        reader.finish()
    }

    /// Reads files of authorities, in PEM or DER, whatever their names; lists in PEM may be among them.
    pub fn from_certificates(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> (Trust, Vec<String>) {
        let mut reader = Reader::default();
        for (name, contents) in files {
            reader.certificates(&name, "", &contents);
        }
        reader.finish()
    }

    /// The same, with another answer to lists that are over their time.
    pub fn with_outdated_lists(mut self, outdated_lists: OutdatedLists) -> Trust {
        self.outdated_lists = outdated_lists;
        self
    }

    /// Number of authorities, roots and others.
    pub fn authorities_count(&self) -> usize {
        self.authorities.len()
    }

    /// When the first of the authorities expires, in seconds since 1970.
    pub fn earliest_expiry_s(&self) -> Option<i64> {
        self.dates().map(|(_, not_after_s, _)| not_after_s).min()
    }

    /// When the first of the authorities with revocation lists should have had a new one, in seconds since 1970.
    pub fn earliest_next_update_s(&self) -> Option<i64> {
        self.dates().filter_map(|(_, _, next_update_s)| next_update_s).min()
    }

    /// Each authority by its name, when it expires, and when it should have had a new revocation list if it has any, in
    /// seconds since 1970.
    pub fn dates(&self) -> impl Iterator<Item = (String, i64, Option<i64>)> {
        self.authorities.iter().map(|authority| {
            let lists = authority.lists.iter();
            let next_update_s = lists.filter_map(|index| self.lists[*index].next_update_s).max();
            let certificate = &authority.certificate;
            (shown(certificate.subject()), certificate.not_after_s(), next_update_s)
        })
    }

    /// Another number whenever the time of a revocation list has come or is over: what was found of a certificate before may
    /// be true no longer.
    pub fn lists_state(&self, now_s: i64) -> u64 {
        let count = |holds: fn(&RevocationList, i64) -> bool| {
            self.lists.iter().filter(|list| holds(list, now_s)).count() as u64
        };
        let over =
            count(|list, now_s| list.next_update_s.is_some_and(|next_update_s| now_s >= next_update_s));
        let to_come = count(|list, now_s| list.this_update_s > now_s);
        // The one only grows and the other only shrinks.
        over << 32 | to_come
    }

    /// The authorities of this name.
    pub(super) fn named(&self, name: &Name) -> impl Iterator<Item = &Authority> {
        let found = self.by_name.get(&name.canonical());
        found.into_iter().flatten().map(|index| &self.authorities[*index])
    }

    /// True if this very certificate is among the authorities.
    pub(super) fn authority(&self, certificate: &Certificate) -> Option<&Authority> {
        self.named(certificate.subject()).find(|authority| authority.certificate.der() == certificate.der())
    }

    /// The lists that an issuer has signed. For authorities that are trusted this was looked at before.
    pub(super) fn lists_by<'a>(&'a self, issuer: &Certificate) -> Vec<&'a RevocationList> {
        let known = self.authority(issuer).map(|authority| &authority.lists);
        match known {
            Some(lists) => lists.iter().map(|index| &self.lists[*index]).collect(),
            None => {
                let named = self.lists_by_issuer.get(&issuer.subject().canonical());
                let named = named.into_iter().flatten().map(|index| &self.lists[*index]);
                named.filter(|list| list.is_by(issuer)).collect()
            }
        }
    }

    pub(super) fn outdated_lists(&self) -> OutdatedLists {
        self.outdated_lists
    }
}

#[derive(Default)]
struct Reader {
    warnings: Vec<String>,
    /// Authorities with the stems of their files.
    authorities: Vec<(Certificate, Vec<String>)>,
    /// Where in `authorities` a certificate is.
    known: HashMap<Vec<u8>, usize>,
    lists: Vec<(String, RevocationList)>,
    known_lists: HashSet<Vec<u8>>,
    /// By the stem of the file.
    policies: BTreeMap<String, SigningPolicy>,
}

impl Reader {
    fn certificates(&mut self, file: &str, stem: &str, contents: &[u8]) {
        let mut count = 0;
        for (label, der) in self.decoded(file, "CERTIFICATE", contents) {
            match label.as_str() {
                "CERTIFICATE" | "X509 CERTIFICATE" => self.certificate(file, stem, &der),
                "X509 CRL" => self.list(file, &der),
                _ => continue,
            }
            count += 1;
        }
        if count == 0 {
            self.warn(file, "there is no certificate in it");
        }
    }

    fn certificate(&mut self, file: &str, stem: &str, der: &[u8]) {
        if let Some(index) = self.known.get(der) {
            self.authorities[*index].1.push(stem.to_owned());
            return;
        }
        match Certificate::from_der(der) {
            Err(refusal) => self.warn(file, refusal),
            Ok(certificate) if !certificate.is_authority() && !certificate.is_old_authority() => {
                let subject = shown(certificate.subject());
                self.warn(
                    file,
                    format!(
                        "{subject} is no authority (basicConstraints), so no certificate is trusted by it"
                    ),
                );
            }
            Ok(certificate) => {
                self.known.insert(der.to_vec(), self.authorities.len());
                self.authorities.push((certificate, vec![stem.to_owned()]));
            }
        }
    }

    fn lists(&mut self, file: &str, contents: &[u8]) {
        let found = self.decoded(file, "X509 CRL", contents);
        let mut lists = found.iter().filter(|(label, _)| label == "X509 CRL").peekable();
        if lists.peek().is_none() {
            self.warn(file, "there is no revocation list in it");
        }
        for (_, der) in lists {
            self.list(file, der);
        }
    }

    fn list(&mut self, file: &str, der: &[u8]) {
        if self.known_lists.contains(der) {
            return;
        }
        match RevocationList::from_der(der) {
            Err(what) => self.warn(file, format!("the revocation list is not looked at: {what}")),
            Ok(list) => {
                self.known_lists.insert(der.to_vec());
                self.lists.push((file.to_owned(), list));
            }
        }
    }

    fn policy(&mut self, file: &str, stem: &str, contents: &[u8]) {
        let policy = SigningPolicy::parse(&String::from_utf8_lossy(contents)).unwrap_or_else(|what| {
            self.warn(file, format!("{what}; so its authority may sign nothing"));
            SigningPolicy::default()
        });
        self.policies.insert(stem.to_owned(), policy);
    }

    /// The parts of PEM with their labels, or DER as it is.
    fn decoded(&mut self, file: &str, label_of_der: &str, contents: &[u8]) -> Vec<(String, Vec<u8>)> {
        if contents.first() == Some(&0x30) {
            return vec![(label_of_der.to_owned(), contents.to_vec())];
        }
        let mut found = Vec::new();
        for part in Pem::iter_from_buffer(contents) {
            match part {
                Ok(part) => found.push((part.label, part.contents)),
                Err(cause) => {
                    self.warn(file, cause);
                    break;
                }
            }
        }
        found
    }

    fn warn(&mut self, file: &str, what: impl fmt::Display) {
        self.warnings.push(format!("{file}: {what}"));
    }

    fn finish(mut self) -> (Trust, Vec<String>) {
        let mut trust = Trust::default();
        let mut is_used = vec![false; self.lists.len()];
        for (certificate, stems) in std::mem::take(&mut self.authorities) {
            let policies: Vec<_> =
                stems.iter().filter_map(|stem| Some((stem, self.policies.get(stem)?))).collect();
            let policy = policies.iter().find(|(_, policy)| policy.knows(certificate.subject()));
            if let (Some((stem, _)), None) = (policies.first(), policy) {
                let subject = shown(certificate.subject());
                let what = format!("it does not speak of {subject}, which therefore may sign nothing");
                self.warnings.push(format!("{stem}.signing_policy: {what}"));
            }
            let policy = policy.or(policies.first()).map(|(_, policy)| (*policy).clone());
            let mut lists = Vec::new();
            for (index, (file, list)) in self.lists.iter().enumerate() {
                if list.issuer == *certificate.subject() && list.is_by(&certificate) {
                    is_used[index] = true;
                    lists.push(index);
                    if certificate.profile.key_usage.is_some_and(|usage| !usage.may_sign_lists()) {
                        let subject = shown(certificate.subject());
                        let what = format!(
                            "{subject} should not sign revocation lists (keyUsage); it counts all the same"
                        );
                        self.warnings.push(format!("{file}: {what}"));
                    }
                }
            }
            let index = trust.authorities.len();
            trust.by_name.entry(certificate.subject().canonical()).or_default().push(index);
            trust.authorities.push(Authority { certificate, policy, lists });
        }
        for (index, (file, list)) in self.lists.into_iter().enumerate() {
            if !is_used[index] {
                let what = "no authority here has signed it; it is ignored";
                self.warnings.push(format!("{file}: {}: {what}", list.shown()));
            }
            trust.lists_by_issuer.entry(list.issuer.canonical()).or_default().push(index);
            trust.lists.push(list);
        }
        (trust, self.warnings)
    }
}
