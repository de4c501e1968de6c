//! Servers that refuse a client's certificate in the handshake of TLS, as those of TLS 1.2 do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridlane_core::{ErrorKind, Result, Url};
use gridlane_net::tls::{self, Trust};
use gridlane_net::{Acceptor, Dialer};
use gridlane_peer::http::Purpose;
use gridlane_peer::{Certificate, CertificateSource, Client, Credentials};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::net::TcpListener;

use crate::identity::certificate;

/// Refuses all certificates but those that come after so many.
#[derive(Debug)]
struct Picky {
    provider: Arc<CryptoProvider>,
    refusals: Mutex<u32>,
}

impl ClientCertVerifier for Picky {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        let mut refusals = self.refusals.lock().unwrap();
        match refusals.checked_sub(1) {
            Some(left) => {
                *refusals = left;
                Err(CertificateError::Expired.into())
            }
            None => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Has a new certificate each time, so many times.
struct Fresh(Mutex<u32>);

impl CertificateSource for Fresh {
    fn newer(&self, _: &Certificate) -> Result<Option<Certificate>> {
        Ok(None)
    }

    fn refused(&self, _: &Certificate) -> Result<Option<Certificate>> {
        let mut left = self.0.lock().unwrap();
        Ok(left.checked_sub(1).map(|fewer| {
            *left = fewer;
            certificate("fresh")
        }))
    }
}

/// A connection for a lane, to a server of TLS 1.2 that refuses so many, with a source of so many other certificates.
async fn connect(refusals: u32, certificates: u32) -> std::result::Result<(), ErrorKind> {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["127.0.0.1".to_owned()]).unwrap();
    let provider = Arc::new(ring::default_provider());
    let picky = Picky { provider: provider.clone(), refusals: Mutex::new(refusals) };
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_client_cert_verifier(Arc::new(picky))
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&cert).unwrap()],
            PrivateKeyDer::from_pem_file(&key).unwrap(),
        )
        .unwrap();
    let acceptor = Acceptor::new(Some(Arc::new(config)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse_absolute(&format!("https://{}/f", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(socket).await.map(drop) });
        }
    });
    let credentials = Credentials::new(None, Some(certificate("old")), Vec::new());
    let credentials = credentials.renewing(Box::new(Fresh(Mutex::new(certificates))));
    credentials.name(&url);
    let trust = Trust { ca_files: vec![cert], ..Trust::default() };
    let client = Client::new(Dialer::new(trust), Duration::from_secs(30)).credentials(credentials);
    let connected = client.http.connect(&url, &url, Purpose::Lane, false).await;
    connected.map(drop).map_err(|error| error.kind())
}

#[tokio::test]
async fn a_certificate_that_is_refused_in_the_handshake_is_replaced_once() {
    assert_eq!(connect(0, 0).await, Ok(()));
    assert_eq!(connect(1, 1).await, Ok(()));
    assert_eq!(connect(1, 0).await, Err(ErrorKind::Denied), "there is no other");
    assert_eq!(connect(2, 9).await, Err(ErrorKind::Denied), "it is not the certificate");
}
