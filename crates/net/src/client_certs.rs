//! Certificates of clients: asked for, never demanded, and not judged here.
//!
//! A client that fails the handshake learns an alert's number at best. So any chain of a bounded size is taken, and
//! code that knows the trusted authorities judges it afterwards, where the reason of a refusal can be told in words. What
//! the handshake proves is that the client has the key of the first certificate: without that nothing in it means anything.
//!
//! rustls' own way to that key reads the whole certificate by webpki's rules, which know no proxies (RFC 3820): their
//! extension is critical, and unknown there. So key and signature are looked at by `gridlane_auth`, which judges the chain
//! later: whose key was proved is whose certificate is believed.

use std::sync::Arc;

use gridlane_auth::x509::Certificate;
use gridlane_auth::x509::signature::{TLS_SCHEMES, verify_tls};
use gridlane_core::limits::{CHAIN_BYTES_MAX, CHAIN_CERTIFICATES_MAX};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};

/// Asks for a certificate, by no authority's name: clients send what they have.
#[derive(Debug)]
pub(crate) struct AnyChain;

impl AnyChain {
    pub(crate) fn new() -> Arc<AnyChain> {
        Arc::new(AnyChain)
    }
}

fn verify(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    is_tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    let scheme = u16::from(signed.scheme);
    if !TLS_SCHEMES.contains(&scheme) {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let key = Certificate::spki_of(certificate).ok_or(CertificateError::BadEncoding)?;
    match verify_tls(key, scheme, is_tls13, message, signed.signature()) {
        Ok(()) => Ok(HandshakeSignatureValid::assertion()),
        Err(_) => Err(CertificateError::BadSignature.into()),
    }
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
        verify(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        TLS_SCHEMES.into_iter().map(SignatureScheme::from).collect()
    }
}
