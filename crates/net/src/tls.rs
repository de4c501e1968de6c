//! TLS settings: the authorities that a client trusts, the certificate that a server shows, the code of the records.
//!
//! Provider: `ring`, whose AES-GCM is the fastest on CPUs without AVX-512. Protocols: TLS 1.3 and 1.2.

mod client;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use rustix::fs::{FlockOperation, flock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::client_certs::AnyChain;
use crate::file;
use crate::resumption::Resumption;
pub use client::{ClientIdentity, IdentityFacts, failure, rejection};

/// The code that makes and opens the records of TLS 1.3. Handshakes, key schedules and all of TLS 1.2 are rustls' in any
/// case. Nothing that a peer sees depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordLayer {
    /// That of this crate, over the buffers of a connection; in a build without the feature `own-records` rustls'.
    Own,
    /// That of rustls, which costs an allocation and two copies more for each record.
    Rustls,
}

impl RecordLayer {
    /// All that this build has, the default first.
    pub const BUILT_IN: &[RecordLayer] = match cfg!(feature = "own-records") {
        true => &[RecordLayer::Own, RecordLayer::Rustls],
        false => &[RecordLayer::Rustls],
    };

    fn takes_keys(self) -> bool {
        self == RecordLayer::Own && cfg!(feature = "own-records")
    }
}

impl Default for RecordLayer {
    fn default() -> RecordLayer {
        RecordLayer::BUILT_IN[0]
    }
}

impl fmt::Display for RecordLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordLayer::Own => "own",
            RecordLayer::Rustls => "rustls",
        })
    }
}

impl FromStr for RecordLayer {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<RecordLayer, String> {
        match RecordLayer::BUILT_IN.iter().find(|layer| layer.to_string() == text) {
            Some(layer) => Ok(*layer),
            None if text == "own" => Err("this program was built without records of its own".to_owned()),
            None => Err("neither own nor rustls".to_owned()),
        }
    }
}

/// TLS of a client: the authorities that it trusts, and the code of the records.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// PEM files with authorities, beside the system's own.
    pub ca_files: Vec<PathBuf>,
    /// Directory of PEM files with authorities (the grid's `X509_CERT_DIR`), beside the system's own.
    pub ca_dir: Option<PathBuf>,
    /// Trust anyone: no certificate is checked.
    pub insecure: bool,
    /// The code that makes and opens records.
    pub records: RecordLayer,
}

/// Settings for connections that we open. The system's authorities come from `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`, or the platform's store.
pub fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>> {
    client_config_believing(&Arc::new(Verifier::new(trust)?), trust.records)
}

/// The same, with certificates judged by `verifier`.
pub(crate) fn client_config_believing(
    verifier: &Arc<Verifier>,
    records: RecordLayer,
) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(verifier.provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|cause| Error::new(ErrorKind::Other, format!("no TLS: {cause}")))?;
    let config = builder.dangerous().with_custom_certificate_verifier(verifier.clone());
    let mut config = config.with_no_client_auth();
    config.enable_secret_extraction = records.takes_keys();
    Ok(Arc::new(config))
}

/// The settings `anonymous` for another identity, whose connections show `certificate` to servers that ask for one. They have
/// sessions of their own to go on from, and the authorities in common.
pub(crate) fn client_config_of(
    anonymous: &ClientConfig,
    certificate: Option<&ClientIdentity>,
) -> Arc<ClientConfig> {
    let mut config = anonymous.clone();
    config.resumption = rustls::client::Resumption::default();
    if let Some(certificate) = certificate {
        config.client_auth_cert_resolver = Arc::new(client::Shown(certificate.clone()));
    }
    Arc::new(config)
}

/// Algorithms of TLS. AES-128 comes first: nothing that breaks it is known, and with ten rounds in place of fourteen bulk
/// data costs less.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let is_first = matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        );
        (suite.tls13().is_none(), !is_first)
    });
    provider
}

fn verifier(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|cause| Error::new(ErrorKind::Other, format!("no TLS: {cause}")))
}

/// The authorities that the caller has named.
fn named_roots(trust: &Trust) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for file in &trust.ca_files {
        if file.is_dir() {
            return Err(unusable(file, "it is a directory")
                .hint("a file is named here; X509_CERT_DIR names a directory of authorities"));
        }
        for certificate in read_certificates(file)? {
            roots.add(certificate).map_err(|cause| unusable(file, cause))?;
        }
    }
    if let Some(dir) = &trust.ca_dir {
        let entries = fs::read_dir(dir)
            .map_err(|cause| Error::local_io(format!("cannot read {}", dir.display()), &cause))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            // Hashed names end in a number (`5f15c80c.0`); other files there are policies and lists.
            if path.extension().is_some_and(|end| end.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
                roots.add_parsable_certificates(read_certificates(&path).unwrap_or_default());
            }
        }
    }
    Ok(roots)
}

/// Number of authorities that the caller has named, and that of the system's.
pub fn count_authorities(trust: &Trust) -> Result<(usize, usize)> {
    let mut system = RootCertStore::empty();
    system.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok((named_roots(trust)?.len(), system.len()))
}

/// Settings for connections that we accept, with the certificate chain and key in two PEM files.
///
/// They are Mozilla's intermediate profile without finite-field Diffie-Hellman: TLS 1.3, and TLS 1.2 with ECDHE and
/// AES-GCM or ChaCha20. With `asks_for_certificates` clients are asked for a certificate, and served without one as well;
/// what they send [is not judged](crate::Stream::peer_certificates). Each of these settings has sessions of its own to go
/// on with: with new settings clients shake hands in full.
pub fn server_config(
    cert_file: &Path,
    key_file: &Path,
    asks_for_certificates: bool,
) -> Result<Arc<ServerConfig>> {
    server_config_with(cert_file, key_file, asks_for_certificates, RecordLayer::default())
}

/// The same with records made and opened by the code that `records` names.
pub fn server_config_with(
    cert_file: &Path,
    key_file: &Path,
    asks_for_certificates: bool,
    records: RecordLayer,
) -> Result<Arc<ServerConfig>> {
    let chain = read_certificates(cert_file)?;
    refuse_readable_key(key_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|cause| unusable(key_file, cause))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| Error::new(ErrorKind::Other, format!("no TLS: {cause}")))?;
    let builder = match asks_for_certificates {
        true => builder.with_client_cert_verifier(AnyChain::new()),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|cause| unusable(cert_file, cause))?;
    config.session_storage = Resumption::new();
    // Most libraries name AES-256 first, and mean nothing by it.
    config.ignore_client_order = true;
    config.enable_secret_extraction = records.takes_keys();
    Ok(Arc::new(config))
}

/// When the first of the certificates in a PEM file begins to be valid, and when it ceases to be.
pub fn validity(cert_file: &Path) -> Result<(SystemTime, SystemTime)> {
    let chain = read_certificates(cert_file)?;
    let first = chain.first().ok_or_else(|| unusable(cert_file, "no certificate in it"))?;
    let (_, certificate) =
        x509_parser::parse_x509_certificate(first).map_err(|cause| unusable(cert_file, cause))?;
    let moment = |time: x509_parser::time::ASN1Time| {
        let since = Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0));
        // Years of four digits, of which the clock has room for more.
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let validity = certificate.validity();
    Ok((moment(validity.not_before), moment(validity.not_after)))
}

/// True if the first of the certificates in a PEM file is one of this name or address, as clients look at it.
pub fn is_for(cert_file: &Path, name: &str) -> Result<bool> {
    let chain = read_certificates(cert_file)?;
    let first = chain.first().ok_or_else(|| unusable(cert_file, "no certificate in it"))?;
    let certificate = ParsedCertificate::try_from(first).map_err(|cause| unusable(cert_file, cause))?;
    let Ok(name) = ServerName::try_from(name) else { return Ok(false) };
    Ok(verify_server_name(&certificate, &name).is_ok())
}

/// Where [`self_signed`] keeps certificate and key in `dir`.
pub fn self_signed_files(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("cert.pem"), dir.join("key.pem"))
}

/// The certificate and key in `dir` (`cert.pem`, `key.pem`) that vouch for `names`, made when they are
/// missing. ECDSA P-256: an RSA key would make handshakes twenty times dearer.
pub fn self_signed(dir: &Path, names: &[String]) -> Result<(PathBuf, PathBuf)> {
    let (cert_file, key_file) = self_signed_files(dir);
    let are_there = || cert_file.exists() && key_file.exists();
    let write = || -> io::Result<()> {
        // Without a lock, which a read-only file system would not give: both files appear whole.
        if are_there() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Servers that start together must end up with one pair, not with halves of two.
        let lock = fs::OpenOptions::new().write(true).create(true).truncate(false).open(dir.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        if are_there() {
            return Ok(());
        }
        let made = rcgen::generate_simple_self_signed(names.to_vec()).map_err(io::Error::other)?;
        file::replace(&key_file, 0o600, made.signing_key.serialize_pem().as_bytes())?;
        file::replace(&cert_file, 0o644, made.cert.pem().as_bytes())
    };
    write().map_err(|cause| {
        Error::local_io(format!("cannot keep a certificate in {}", dir.display()), &cause)
            .hint(Hint::GiveCertificate)
    })?;
    Ok((cert_file, key_file))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
    match found {
        Ok(certificates) if certificates.is_empty() => Err(unusable(file, "no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(cause) => Err(unusable(file, cause)),
    }
}

/// Refuses a key that all users of this machine may read: each of them could be this server. A group may read it: on
/// Debian that of all servers.
fn refuse_readable_key(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(file).map_err(|cause| unusable(file, cause))?;
    if metadata.permissions().mode() & 0o007 != 0 {
        let what = "it holds a private key, and every user of this machine may read or replace it";
        return Err(unusable(file, what).hint(format!("chmod o= {}", file.display())));
    }
    Ok(())
}

fn unusable(file: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot use {}: {cause}", file.display())).fault(Fault::Caller)
}

/// Trusts the authorities that the caller has named, and behind them the system's: reading those takes ten
/// milliseconds, which a copy from one's own server need not pay.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Accept every certificate (`--insecure`); signatures are checked in any case.
    anyone: bool,
    named: Option<Arc<WebPkiServerVerifier>>,
    system: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Reads the authorities that the caller has named; one that cannot be read is an error.
    pub(crate) fn new(trust: &Trust) -> Result<Verifier> {
        let provider = Arc::new(provider());
        let named = named_roots(trust)?;
        let named = (!named.is_empty()).then(|| verifier(named, &provider)).transpose()?;
        Ok(Verifier { anyone: trust.insecure, named, system: OnceLock::new(), provider })
    }

    /// Checks a server's certificate (DER), as a handshake with `name` does. Proves nothing about its key.
    pub(crate) fn check(&self, certificate: &[u8], name: &ServerName<'_>) -> Result<()> {
        let checked = self.verify_server_cert(&certificate.into(), &[], name, &[], UnixTime::now());
        checked.map(drop).map_err(|wrong| client::disbelief(&wrong))
    }

    fn system(&self) -> Option<&Arc<WebPkiServerVerifier>> {
        let load = || {
            let mut roots = RootCertStore::empty();
            // Single bad files in a system store are common and not ours to judge; the good ones count.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            verifier(roots, &self.provider).ok()
        };
        self.system.get_or_init(load).as_ref()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.anyone {
            return Ok(ServerCertVerified::assertion());
        }
        let verify = |verifier: &Arc<WebPkiServerVerifier>| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let first = match self.named.as_ref().map(verify) {
            Some(Ok(verified)) => return Ok(verified),
            Some(Err(cause)) => cause,
            None => unknown.clone(),
        };
        // Whatever was wrong, the system's authorities judge for themselves; two of the same name differ in
        // their keys. The first opinion is the one to report, unless it was that no authority is known.
        match self.system().map(verify) {
            Some(Ok(verified)) => Ok(verified),
            Some(Err(second)) if first == unknown => Err(second),
            _ => Err(first),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_comes_first() {
        let suites = provider().cipher_suites;
        assert_eq!(suites.first().unwrap().suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(suites.len(), ring::default_provider().cipher_suites.len());
        let is_12 = |suite: &&rustls::SupportedCipherSuite| suite.tls13().is_none();
        let first = suites.iter().find(is_12).unwrap().suite();
        assert!(format!("{first:?}").contains("AES_128_GCM"), "{first:?}");
    }

    #[test]
    fn a_directory_is_no_file_of_authorities() {
        let dir = tempfile::tempdir().unwrap();
        let trust = Trust { ca_files: vec![dir.path().to_owned()], ..Trust::default() };
        let error = named_roots(&trust).unwrap_err();
        assert!(error.advice().unwrap().to_string().contains("X509_CERT_DIR"), "{error}");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
        for (mode, is_good) in [(0o600, true), (0o640, true), (0o644, false), (0o604, false), (0o602, false)]
        {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let read = server_config(&cert, &key, false);
            assert_eq!(read.is_ok(), is_good, "{mode:o}");
            let Err(error) = read else { continue };
            assert!(error.advice().unwrap().to_string().starts_with("chmod o= "), "{error}");
        }
    }

    #[test]
    fn a_pair_that_is_there_needs_no_writing() {
        let dir = tempfile::tempdir().unwrap();
        let first = self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
        let (begins, ends) = validity(&first.0).unwrap();
        assert!(begins < SystemTime::now() && SystemTime::now() < ends);
        // A lock that no user can open for writing, root neither, as on a read-only file system.
        fs::remove_file(dir.path().join("lock")).unwrap();
        fs::create_dir(dir.path().join("lock")).unwrap();
        assert_eq!(self_signed(dir.path(), &["localhost".to_owned()]).unwrap(), first);
        fs::remove_file(&first.0).unwrap();
        assert!(self_signed(dir.path(), &["localhost".to_owned()]).is_err(), "half a pair is none");
    }
}
