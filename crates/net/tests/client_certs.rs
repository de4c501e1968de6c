//! Certificates of clients: asked for, proved to be theirs, kept over resumptions, and not judged; and what TLS is
//! spoken at all.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[macro_use]
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use gridlane_core::limits;
use gridlane_net::tls::{self, RecordLayer};
use gridlane_net::{Acceptor, Stream, listen};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ResolvesClientCert};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Believes every server: these tests are about clients.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

with_both! {
    what_is_shown_is_there_and_nobody_has_to_show_any
    a_certificate_without_its_key_is_worth_nothing
    chains_are_bounded
}

/// Presents one certificate to every server.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        assert!(hints.is_empty(), "no authority is named");
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

struct Site {
    _dir: TempDir,
    listener: TcpListener,
    acceptor: Acceptor,
}

impl Site {
    fn new(asks_for_certificates: bool, records: RecordLayer) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(dir.path(), &["localhost".into()]).unwrap();
        let config = tls::server_config_with(&cert, &key, asks_for_certificates, records).unwrap();
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Site { _dir: dir, listener, acceptor: Acceptor::new(Some(config)) }
    }

    /// The server's end of a connection on which a byte went each way, or why there is none.
    async fn accept(&self, config: Arc<ClientConfig>) -> Result<Stream, String> {
        let client = async {
            let socket = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = Stream::connect_tls(socket, config, name).await.map_err(|e| e.to_string())?;
            stream.write_all(b"G").await.map_err(|e| e.to_string())?;
            // Also what goes on with the session comes before it.
            match stream.read(&mut [0; 1]).await {
                Ok(1) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        };
        let server = async {
            let (socket, _) = self.listener.accept().await.unwrap();
            let (mut stream, _) = self.acceptor.accept(socket).await.map_err(|e| e.to_string())?;
            stream.read(&mut [0; 1]).await.map_err(|e| e.to_string())?;
            stream.write_all(b"A").await.map_err(|e| e.to_string())?;
            Ok(stream)
        };
        let (near, far) = tokio::join!(client, server);
        far.and_then(|stream| near.map(|()| stream))
    }
}

fn config(
    versions: &[&'static SupportedProtocolVersion],
    shown: Option<(Vec<CertificateDer<'static>>, &rcgen::KeyPair)>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let key = ring::sign::any_supported_type(&key).unwrap();
            builder.with_client_cert_resolver(Arc::new(Shows(Arc::new(CertifiedKey::new(chain, key)))))
        }
    })
}

const KINDS: [&rcgen::SignatureAlgorithm; 3] =
    [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];

/// A certificate with the critical extension of a proxy (RFC 3820, 3.8), which webpki refuses.
fn proxy(key: &rcgen::KeyPair) -> CertificateDer<'static> {
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    // ProxyCertInfo: inherit all.
    let info = [0x30, 0x0c, 0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];
    let mut extension =
        rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 14], info.to_vec());
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    params.self_signed(key).unwrap().der().clone()
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

async fn what_is_shown_is_there_and_nobody_has_to_show_any(records: RecordLayer) {
    let site = Site::new(true, records);
    for version in VERSIONS {
        let nobody = site.accept(config(&[version], None)).await.unwrap();
        assert!(nobody.is_tls() && nobody.peer_certificates().is_empty());
        for kind in KINDS {
            let key = rcgen::KeyPair::generate_for(kind).unwrap();
            let chain = vec![proxy(&key), proxy(&rcgen::KeyPair::generate().unwrap())];
            let config = config(&[version], Some((chain.clone(), &key)));
            for is_resumed in [false, true, true] {
                let stream = site.accept(Arc::clone(&config)).await.unwrap();
                assert_eq!(stream.is_resumed(), is_resumed, "{kind:?} {version:?}");
                assert_eq!(stream.peer_certificates(), chain, "{kind:?} {version:?}");
            }
        }
    }
    let quiet = Site::new(false, records);
    let key = rcgen::KeyPair::generate().unwrap();
    let shows = config(&VERSIONS, Some((vec![proxy(&key)], &key)));
    assert!(quiet.accept(shows).await.unwrap().peer_certificates().is_empty());
}

async fn a_certificate_without_its_key_is_worth_nothing(records: RecordLayer) {
    let site = Site::new(true, records);
    for version in VERSIONS {
        for kind in KINDS {
            let (own, other) =
                (rcgen::KeyPair::generate_for(kind).unwrap(), rcgen::KeyPair::generate_for(kind).unwrap());
            let stolen = config(&[version], Some((vec![proxy(&own)], &other)));
            assert!(site.accept(stolen).await.is_err(), "{kind:?} {version:?}");
            // Nor is one whose key is of another kind than what signs.
            let other = rcgen::KeyPair::generate_for(KINDS[usize::from(kind == KINDS[0])]).unwrap();
            let stolen = config(&[version], Some((vec![proxy(&own)], &other)));
            assert!(site.accept(stolen).await.is_err(), "{kind:?} {version:?}");
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let garbage = vec![CertificateDer::from(vec![0x30, 0x80, 1, 2, 3])];
        assert!(site.accept(config(&[version], Some((garbage, &key)))).await.is_err());
    }
}

async fn chains_are_bounded(records: RecordLayer) {
    let site = Site::new(true, records);
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = |count: usize| vec![proxy(&key); count];
    for (chain, is_taken) in [
        (chain(limits::CHAIN_CERTIFICATES_MAX), true),
        (chain(limits::CHAIN_CERTIFICATES_MAX + 1), false),
        (vec![proxy(&key), CertificateDer::from(vec![0; limits::CHAIN_BYTES_MAX])], false),
    ] {
        let count = chain.len();
        let accepted = site.accept(config(&VERSIONS, Some((chain, &key)))).await;
        assert_eq!(accepted.is_ok(), is_taken, "{count}");
    }
}

/// A ClientHello of `version` (of TLS 1.2 and before) with these ciphers.
fn hello(version: u16, ciphers: &[u16]) -> Vec<u8> {
    let words = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let with_len = |bytes: Vec<u8>| [words(&[u16::try_from(bytes.len()).unwrap()]), bytes].concat();
    let extension = |kind: u16, body: Vec<u8>| [words(&[kind]), with_len(body)].concat();
    let extensions = [
        // Groups: x25519, secp256r1. Points: uncompressed. Signatures: ECDSA and RSA with SHA-256. Secret: extended.
        extension(10, with_len(words(&[0x1d, 0x17]))),
        extension(11, vec![1, 0]),
        extension(13, with_len(words(&[0x0403, 0x0804, 0x0401, 0x0203, 0x0201]))),
        extension(23, Vec::new()),
    ]
    .concat();
    let body =
        [words(&[version]), vec![7; 32], vec![0], with_len(words(ciphers)), vec![1, 0], with_len(extensions)]
            .concat();
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [vec![1], len[1..].to_vec(), body].concat();
    [vec![22], words(&[version.min(0x0301)]), with_len(message)].concat()
}

#[tokio::test]
async fn what_is_old_or_broken_is_not_spoken() {
    const ECDHE_AES128_GCM: u16 = 0xc02b;
    const ECDHE_CHACHA20: u16 = 0xcca9;
    const ECDHE_AES128_CBC: u16 = 0xc023;
    const ECDHE_AES128_CBC_SHA1: u16 = 0xc009;
    const RSA_AES128_GCM: u16 = 0x009c;
    const RSA_3DES: u16 = 0x000a;
    let site = Site::new(true, RecordLayer::default());
    for (version, ciphers, is_spoken) in [
        (0x0303, &[ECDHE_AES128_GCM][..], true),
        (0x0303, &[ECDHE_CHACHA20], true),
        (0x0303, &[RSA_3DES, RSA_AES128_GCM, ECDHE_AES128_CBC, ECDHE_AES128_GCM], true),
        (0x0303, &[ECDHE_AES128_CBC, ECDHE_AES128_CBC_SHA1], false),
        (0x0303, &[RSA_AES128_GCM, RSA_3DES], false),
        (0x0302, &[ECDHE_AES128_GCM, ECDHE_AES128_CBC_SHA1], false),
        (0x0301, &[ECDHE_AES128_CBC_SHA1, RSA_3DES], false),
        (0x0300, &[RSA_3DES], false),
    ] {
        let mut client = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = site.listener.accept().await.unwrap();
        let acceptor = site.acceptor.clone();
        let server = tokio::spawn(async move { acceptor.accept(socket).await.is_ok() });
        client.write_all(&hello(version, ciphers)).await.unwrap();
        // 22: a handshake goes on; 21: an alert.
        assert_eq!(
            client.read_u8().await.unwrap(),
            if is_spoken { 22 } else { 21 },
            "{version:x} {ciphers:x?}"
        );
        drop(client);
        assert!(!server.await.unwrap());
    }
}
