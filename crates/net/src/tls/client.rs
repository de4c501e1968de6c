//! The certificate that a client shows, and what a failed handshake means to a person.
//!
//! It is read from PEM: the certificate itself, its private key (PKCS#8, `RSA PRIVATE KEY` or `EC PRIVATE KEY`), and
//! the chain above it. A proxy (RFC 3820) is one like any other here: its extension, which rustls refuses to
//! understand, is for the server to judge, so that nothing but the key is compared with it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::x509::Name;
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, SignatureScheme};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

/// RFC 3820, 3.8: an extension that makes a certificate a proxy.
const PROXY_CERT_INFO: &str = "1.3.6.1.5.5.7.1.14";

/// A certificate with its key and the chain above it. Its `Debug` shows no key.
#[derive(Clone)]
pub struct ClientIdentity {
    certified: Arc<CertifiedKey>,
    key: Arc<PrivateKeyDer<'static>>,
    facts: IdentityFacts,
}

/// Facts about a certificate that a client shows, which may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFacts {
    /// Subject of the first certificate that is no proxy, as OpenSSL prints it on one line:
    /// `/DC=org/DC=example/CN=Ada`.
    pub dn: String,
    /// The issuer of that certificate, likewise.
    pub issuer: String,
    /// Levels of proxies in front of it.
    pub proxies: usize,
    /// When the last part of the chain begins to be valid, in seconds since 1970.
    pub begins_s: i64,
    /// When the first part of the chain ceases to be valid, in seconds since 1970.
    pub ends_s: i64,
}

impl ClientIdentity {
    /// Reads the certificates of one PEM text and the private key of another, which may be the same.
    ///
    /// The first certificate must be the key's. Errors say what is wrong, and never show a key.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<ClientIdentity> {
        let unusable = |what: &str| Error::new(ErrorKind::Usage, what.to_owned()).fault(Fault::Caller);
        let chain: std::result::Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|_| unusable("its PEM text is damaged"))?;
        if chain.is_empty() {
            return Err(unusable("no certificate is in it"));
        }
        if is_encrypted(key) {
            return Err(Error::new(ErrorKind::Denied, "the private key is encrypted with a passphrase")
                .fault(Fault::Caller)
                .hint("make a proxy of it (voms-proxy-init), or name a key without a passphrase"));
        }
        let der = PrivateKeyDer::from_pem_slice(key).map_err(|_| unusable("no private key is in it"))?;
        let key = ring::sign::any_supported_type(&der).map_err(|_| {
            unusable("the private key is of no kind that is used here: RSA of 2048 to 8192 bits, ECDSA P-256 or P-384, Ed25519")
        })?;
        let facts = facts(&chain).ok_or_else(|| unusable("a certificate in it cannot be read"))?;
        let is_pair = match (x509_parser::parse_x509_certificate(&chain[0]), key.public_key()) {
            (Ok((_, certificate)), Some(of_key)) => {
                SubjectPublicKeyInfo::from_der(&of_key).is_ok_and(|(_, of_key)| {
                    of_key.subject_public_key == certificate.public_key().subject_public_key
                })
            }
            _ => false,
        };
        if !is_pair {
            return Err(unusable("the private key is not that of the first certificate"));
        }
        let certified = Arc::new(CertifiedKey::new(chain, key));
        Ok(ClientIdentity { certified, key: Arc::new(der), facts })
    }

    /// The certificates (DER), that of the key in front.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(|certificate| certificate.as_ref())
    }

    /// The private key (DER: PKCS#8, PKCS#1 or SEC1), for proofs that TLS does not make.
    pub fn key(&self) -> &[u8] {
        self.key.secret_der()
    }

    /// True if a server sees the same certificates.
    pub fn is_same(&self, other: &ClientIdentity) -> bool {
        self.certified.cert == other.certified.cert
    }

    /// Facts about it, which may be told.
    pub fn facts(&self) -> &IdentityFacts {
        &self.facts
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

/// PKCS#8's own label, and the header of the older formats (RFC 1421, 4.6.1.1).
fn is_encrypted(key: &[u8]) -> bool {
    let has = |words: &[u8]| key.windows(words.len()).any(|window| window == words);
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}

fn facts(chain: &[CertificateDer<'_>]) -> Option<IdentityFacts> {
    let parsed: Option<Vec<_>> = chain
        .iter()
        .map(|der| x509_parser::parse_x509_certificate(der).ok().map(|(_, found)| found))
        .collect();
    let parsed = parsed?;
    let is_proxy = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
        certificate.extensions().iter().any(|extension| extension.oid.to_id_string() == PROXY_CERT_INFO)
    };
    let proxies = parsed.iter().take_while(|certificate| is_proxy(certificate)).count();
    let (first, last) = (parsed.first()?, parsed.get(proxies));
    Some(IdentityFacts {
        // A proxy alone: its issuer is the end entity, or at least nearer to it.
        dn: last.map_or_else(|| dn(parsed.last().unwrap_or(first).issuer()), |found| dn(found.subject())),
        issuer: last.map_or_else(String::new, |found| dn(found.issuer())),
        proxies,
        begins_s: parsed.iter().map(|found| found.validity().not_before.timestamp()).max()?,
        ends_s: parsed.iter().map(|found| found.validity().not_after.timestamp()).min()?,
    })
}

/// A name as OpenSSL prints it on one line.
fn dn(name: &X509Name<'_>) -> String {
    Name::from_der(name.as_raw()).map_or_else(String::new, |name| name.to_string())
}

/// Shows one certificate to every server that asks for any: which authorities a server names tells nothing about
/// proxies, whose issuers are people.
#[derive(Debug)]
pub(super) struct Shown(pub(super) ClientIdentity);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The error of a server's certificate that is not believed, or is another server's.
pub(super) fn disbelief(wrong: &rustls::Error) -> Error {
    match wrong {
        rustls::Error::InvalidCertificate(why) => untrusted(why),
        other => Error::new(ErrorKind::Denied, format!("its certificate is not trusted: {other}"))
            .hint(Hint::NameAuthorityOrMend),
    }
}

/// The fault in TLS behind a failed handshake; `None` when something else is wrong.
pub fn failure(cause: &io::Error) -> Option<Error> {
    let wrong = cause.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match wrong {
        rustls::Error::InvalidCertificate(why) => untrusted(why),
        other => rejection(cause)
            .unwrap_or_else(|| Error::new(ErrorKind::Protocol, format!("the TLS handshake failed: {other}"))),
    })
}

/// The server's word that it does not take the client's certificate; `None` when it is another failure.
///
/// With TLS 1.3 it comes after the handshake: in the first read.
pub fn rejection(cause: &io::Error) -> Option<Error> {
    match cause.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => rejected(*alert),
        _ => None,
    }
}

/// Names of a server's certificate that are told: some have hundreds.
const NAMES_TOLD: usize = 3;
/// Characters of each: a name of DNS is no longer (RFC 1035, 2.3.4).
const NAME_CHARS_MAX: usize = 253;

/// The server's certificate is not believed.
fn untrusted(why: &CertificateError) -> Error {
    let denied =
        |what: String| Error::new(ErrorKind::Denied, format!("its certificate is not trusted: {what}"));
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (ago, limit) = match why {
        CertificateError::ExpiredContext { time, not_after } => {
            (Some(time.as_secs()), Some(not_after.as_secs()))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            (Some(time.as_secs()), Some(not_before.as_secs()))
        }
        _ => (None, None),
    };
    let apart = || match (ago, limit) {
        (now, Some(limit)) => format_seconds(now.unwrap_or_else(now_s).abs_diff(limit) as f64),
        _ => "some time".to_owned(),
    };
    let clock =
        "is this machine's clock right (timedatectl)? If it is, the server's certificate must be renewed";
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            denied(format!("by this machine's clock it expired {} ago", apart())).hint(clock)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            denied(format!("by this machine's clock it is valid only in {}", apart())).hint(clock)
        }
        CertificateError::UnknownIssuer => {
            denied("its authority is not trusted here (UnknownIssuer)".to_owned()).hint(Hint::NameAuthority)
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let (found, more) = (presented.len().min(NAMES_TOLD), presented.len().saturating_sub(NAMES_TOLD));
            let names: Vec<String> = presented[..found].iter().map(|name| plain_name(name)).collect();
            let for_whom = match names.is_empty() {
                true => "no host at all".to_owned(),
                false => {
                    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
                }
            };
            denied(format!("it is for {for_whom}, and not for {}", expected.to_str()))
                .hint("call the server by a name in its certificate, or have that name put into it")
        }
        CertificateError::NotValidForName => denied("it is for another name".to_owned())
            .hint("call the server by a name in its certificate, or have that name put into it"),
        CertificateError::Other(other) => {
            let why = match other.to_string() {
                why if why.contains("CaUsedAsEndEntity") => {
                    "it is an authority's own, and no server's".to_owned()
                }
                why => why,
            };
            denied(why).hint(Hint::NameAuthorityOrMend)
        }
        other => denied(other.to_string()).hint(Hint::NameAuthorityOrMend),
    }
}

/// A name of a certificate, which rustls writes as `DnsName("a.example")` or `IpAddress(192.0.2.1)`.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.chars().filter(|c| c.is_ascii_graphic() && *c != '"').take(NAME_CHARS_MAX).collect()
}

/// The meaning of an alert about the client's certificate (RFC 8446, 6.2).
fn rejected(alert: AlertDescription) -> Option<Error> {
    use AlertDescription as Alert;
    let (what, hint) = match alert {
        Alert::CertificateRequired => {
            return Some(
                Error::new(ErrorKind::Denied, "the server wants a certificate from us")
                    .fault(Fault::Caller)
                    .hint(Hint::NameCertificate),
            );
        }
        Alert::CertificateExpired => ("it has expired".to_owned(), Hint::RenewOrSetClock),
        Alert::CertificateRevoked => ("it was revoked".to_owned(), "get a new one".into()),
        Alert::UnknownCA => (
            "it does not know its authority".to_owned(),
            "is the chain whole, and does the server take proxies? Else ask its operator".into(),
        ),
        // A handshake's signature, never a record's (that is bad_record_mac): an authority of the same name.
        Alert::DecryptError => (
            "a signature of its chain is not that of the authority that it knows".to_owned(),
            "is it of the right authority? Else ask the operator of the server".into(),
        ),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied => {
            (format!("{alert:?}"), "ask the operator of the server why; does it take proxies?".into())
        }
        _ => return None,
    };
    let message = format!("the server does not accept our certificate: {what}");
    Some(Error::new(ErrorKind::Denied, message).fault(Fault::Caller).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> (String, String, rcgen::CertifiedKey<rcgen::KeyPair>) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem(), made)
    }

    #[test]
    fn a_pair_in_one_text_or_two_in_any_order_is_read() {
        let (cert, key, _) = made("ada");
        for text in [format!("{cert}{key}"), format!("{key}{cert}"), format!("words\n{cert}more\n{key}")] {
            let identity = ClientIdentity::from_pem(text.as_bytes(), text.as_bytes()).unwrap();
            assert_eq!(identity.facts().dn, "/CN=rcgen self signed cert");
            assert_eq!(identity.facts().proxies, 0);
            assert!(identity.facts().begins_s < identity.facts().ends_s);
            assert!(!format!("{identity:?}").to_lowercase().contains("key"), "{identity:?}");
        }
        assert!(ClientIdentity::from_pem(cert.as_bytes(), key.as_bytes()).is_ok());
    }

    #[test]
    fn what_cannot_be_shown_says_why() {
        let ((cert, key, _), (_, other, _)) = (made("ada"), made("eve"));
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        for (certificates, key, words) in [
            (key.as_str(), key.as_str(), "no certificate"),
            (&cert, &cert, "no private key"),
            (&cert, &other, "not that of the first"),
            (&cert, encrypted, "passphrase"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "cannot be read"),
            ("-----BEGIN CERTIFICATE-----\nA?A\n", &key, "damaged"),
        ] {
            let error = ClientIdentity::from_pem(certificates.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn times_and_alerts_are_told_in_words() {
        let at = |secs| rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(secs));
        let of = |error: rustls::Error| failure(&io::Error::new(io::ErrorKind::InvalidInput, error)).unwrap();
        let expired = CertificateError::ExpiredContext { time: at(7600), not_after: at(400) };
        let error = of(rustls::Error::InvalidCertificate(expired));
        assert!(error.message().contains("expired 2 h 00 min ago"), "{error}");
        assert!(error.advice().unwrap().to_string().contains("clock"), "{error}");
        let early = CertificateError::NotValidYetContext { time: at(0), not_before: at(90) };
        assert!(of(rustls::Error::InvalidCertificate(early)).message().contains("only in 90 s"));
        let wants = of(rustls::Error::AlertReceived(AlertDescription::CertificateRequired));
        assert_eq!((wants.kind(), wants.is_retryable()), (ErrorKind::Denied, false));
        assert!(failure(&io::Error::from(io::ErrorKind::ConnectionReset)).is_none());
    }
}
