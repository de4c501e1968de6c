//! Certificates of clients: asked for, never demanded, and not judged here.
//!
//! A client that fails the handshake learns an alert's number at best. So any chain of a bounded size is taken, and
//! whoever knows whom to trust judges it afterwards, where the reason of a refusal can be told in words. What the
//! handshake proves is that the client has the key of the first certificate: without that nothing in it means anything.
//!
//! The check is rustls' algorithms on the certificate's key. rustls' own way to it reads the whole certificate by
//! webpki's rules, which know no proxies (RFC 3820): their extension is critical, and unknown there.

use std::sync::Arc;

use gridlane_core::limits::{CHAIN_BYTES_MAX, CHAIN_CERTIFICATES_MAX};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};
use x509_parser::der_parser::asn1_rs::{Any, FromDer};

/// Asks for a certificate, by no authority's name: clients send what they have.
#[derive(Debug)]
pub(crate) struct AnyChain {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyChain {
    pub(crate) fn new(provider: &CryptoProvider) -> Arc<AnyChain> {
        Arc::new(AnyChain { algorithms: provider.signature_verification_algorithms })
    }

    /// Whether one of the algorithms that a scheme stands for, and that are for keys of this kind, finds the signature
    /// good. In TLS 1.3 a scheme stands for the first of them only, since it names the curve as well.
    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        is_first_only: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        let misused = || Error::from(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme);
        let (_, algorithms) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or_else(misused)?;
        let count = if is_first_only { 1 } else { algorithms.len() };
        let (kind, key) = public_key(certificate).ok_or(CertificateError::BadEncoding)?;
        let is_good = algorithms.iter().take(count).any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == kind
                && algorithm.verify_signature(&key, message, signed.signature()).is_ok()
        });
        match is_good {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }
}

/// Kind and bits of a certificate's key: the content of its `AlgorithmIdentifier`, and of the bit string behind it.
fn public_key(certificate: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (rest, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let info = certificate.public_key();
    let (_, whole) = Any::from_der(info.raw).ok()?;
    let (_, kind) = Any::from_der(whole.data).ok()?;
    Some((kind.data.to_vec(), info.subject_public_key.data.to_vec()))
}

impl ClientCertVerifier for AnyChain {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = others.iter().map(|other| other.len()).sum::<usize>() + first.len();
        match others.len() < CHAIN_CERTIFICATES_MAX && bytes <= CHAIN_BYTES_MAX {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // RFC 8446, 4.2.3: these are for certificates only.
        let is_of_old = matches!(
            signed.scheme,
            SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PKCS1_SHA384
                | SignatureScheme::RSA_PKCS1_SHA512
                | SignatureScheme::RSA_PKCS1_SHA1
                | SignatureScheme::ECDSA_SHA1_Legacy
        );
        if is_of_old {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        self.verify(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
