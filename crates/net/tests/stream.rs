//! Streams between two real sockets on loopback: what goes in comes out, in both directions, plain and
//! over both versions of TLS, in pieces of any size; and a connection's end is told from its breaking.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[macro_use]
mod support;

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::Url;
use gridlane_net::tls::{self, RecordLayer, Trust};
use gridlane_net::{Acceptor, Dialer, Stream, listen};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

with_both! {
    encrypted_bytes_arrive
    a_file_is_sent_whole_from_any_offset_but_never_in_clear_over_tls
    a_cut_tls_connection_is_not_an_orderly_end
    both_tls_versions_are_spoken_and_nothing_older
    a_second_connection_goes_on_from_the_firsts_session
    a_quiet_connection_is_told_from_one_that_ends
    bulk_data_gathers_and_who_sends_less_than_is_certain_delays_nothing_for_long
    writes_that_are_given_up_in_the_middle_lose_and_repeat_nothing
    a_peer_that_takes_no_more_is_heard
    a_peer_is_told_that_what_came_is_damaged
}

struct Site {
    _dir: TempDir,
    listener: TcpListener,
    acceptor: Acceptor,
    trust: Trust,
}

impl Site {
    /// Both ends of its connections have their records made by the same code.
    fn new(records: RecordLayer) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(dir.path(), &["localhost".into(), "127.0.0.1".into()]).unwrap();
        let acceptor = Acceptor::new(Some(tls::server_config_with(&cert, &key, false, records).unwrap()));
        let trust = Trust { ca_files: vec![cert], records, ..Trust::default() };
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Site { _dir: dir, listener, acceptor, trust }
    }

    fn url(&self, scheme: &str) -> Url {
        let port = self.listener.local_addr().unwrap().port();
        Url::parse_absolute(&format!("{scheme}://127.0.0.1:{port}/")).unwrap()
    }

    async fn pair(&self, scheme: &str) -> (Stream, Stream) {
        let dialer = Dialer::new(self.trust.clone());
        let url = self.url(scheme);
        let accept = async {
            let (socket, _) = self.listener.accept().await.unwrap();
            self.acceptor.accept(socket).await.map(|(stream, _)| stream)
        };
        let speak = async {
            let mut near = dialer.dial(&dialer.route(&url).unwrap()).await.unwrap().stream;
            // A clear-text connection shows what it is by its first byte.
            near.write_all(b"G").await.unwrap();
            near
        };
        let (near, far) = tokio::join!(speak, accept);
        let mut far = far.unwrap();
        let mut first = [0; 1];
        assert_eq!(far.read(&mut first).await.unwrap(), 1);
        (near, far)
    }
}

fn noise(len: usize, mut state: u64) -> Vec<u8> {
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

async fn read_all(stream: &mut Stream, piece: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), vec![0; piece]);
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&buf[..count]),
        }
    }
}

async fn both_ways(scheme: &str, records: RecordLayer) {
    let site = Site::new(records);
    for (write_piece, read_piece) in [(1_000_000, 262_144), (70_001, 16_384), (16_385, 1_000), (333, 7)] {
        let (mut near, mut far) = site.pair(scheme).await;
        assert_eq!(near.is_tls(), scheme == "https");
        assert_eq!(far.is_tls(), near.is_tls());
        let bytes = noise(if read_piece < 100 { 50_000 } else { 3_000_000 }, 7);
        let write = async {
            for piece in bytes.chunks(write_piece) {
                near.write_all(piece).await.unwrap();
            }
            near.shutdown().await.unwrap();
        };
        let ((), got) = tokio::join!(write, read_all(&mut far, read_piece));
        assert!(got.unwrap() == bytes, "{scheme} {write_piece}/{read_piece}");
        // The other direction still works after the first has ended.
        let answer = noise(200_000, 9);
        let write = async {
            far.write_all(&answer).await.unwrap();
            far.shutdown().await.unwrap();
        };
        let ((), got) = tokio::join!(write, read_all(&mut near, read_piece));
        assert!(got.unwrap() == answer, "{scheme} back");
    }
}

#[tokio::test]
async fn plain_bytes_arrive() {
    both_ways("http", RecordLayer::default()).await;
}

async fn encrypted_bytes_arrive(records: RecordLayer) {
    both_ways("https", records).await;
}

async fn a_file_is_sent_whole_from_any_offset_but_never_in_clear_over_tls(records: RecordLayer) {
    let site = Site::new(records);
    let bytes = noise(700_000, 3);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let (mut near, mut far) = site.pair("http").await;
    let send = async {
        let mut at = 5;
        loop {
            match near.send_file(&file, at as u64, 100_000).await.unwrap() {
                0 => break,
                sent => at += sent,
            }
        }
        near.shutdown().await.unwrap();
    };
    let ((), got) = tokio::join!(send, read_all(&mut far, 65_536));
    assert!(got.unwrap() == bytes[5..]);

    let (mut near, _far) = site.pair("https").await;
    assert_eq!(near.send_file(&file, 0, 10).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

async fn a_cut_tls_connection_is_not_an_orderly_end(records: RecordLayer) {
    let site = Site::new(records);
    let (mut near, far) = site.pair("https").await;
    drop(far);
    let end = near.read(&mut [0; 10]).await;
    assert!(end.is_err(), "{end:?}");
}

async fn both_tls_versions_are_spoken_and_nothing_older(records: RecordLayer) {
    let site = Site::new(records);
    for (version, name) in [(&rustls::version::TLS13, "TLSv1.3"), (&rustls::version::TLS12, "TLSv1.2")] {
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject as _;
        let ca = rustls::pki_types::CertificateDer::from_pem_file(&site.trust.ca_files[0]).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let socket = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
        let accept = async {
            let (socket, _) = site.listener.accept().await.unwrap();
            site.acceptor.accept(socket).await.unwrap().0
        };
        let connect = Stream::connect_tls(socket, Arc::new(config), "localhost".try_into().unwrap());
        let (near, mut far) = tokio::join!(connect, accept);
        let mut near = near.unwrap();
        assert_eq!(near.tls_version(), Some(name));
        assert_eq!(far.tls_version(), Some(name));
        let bytes = noise(500_000, 11);
        let write = async {
            near.write_all(&bytes).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let ((), got) = tokio::join!(write, read_all(&mut far, 100_000));
        assert!(got.unwrap() == bytes, "{name}");
    }
}

#[tokio::test]
async fn a_stranger_is_not_trusted_unless_told_so() {
    let site = Site::new(RecordLayer::default());
    for (insecure, trusted) in [(false, false), (true, true)] {
        let trust = Trust { insecure, ..Trust::default() };
        let dialer = Dialer::new(trust.clone());
        let url = site.url("https");
        let accept = async {
            let (socket, _) = site.listener.accept().await.unwrap();
            site.acceptor.accept(socket).await.map(|_| ())
        };
        let route = dialer.route(&url).unwrap();
        let (dialled, accepted) = tokio::join!(dialer.dial(&route), accept);
        assert_eq!(dialled.is_ok(), trusted);
        if let Err(error) = dialled {
            assert_eq!(error.kind(), gridlane_core::ErrorKind::Denied);
            assert!(error.to_string().contains("name its authority"), "{error}");
            assert!(accepted.unwrap_err().to_string().contains("handshake"));
        }
    }
}

#[tokio::test]
async fn a_silent_client_and_a_half_shaken_hand_run_into_the_deadline() {
    let site = Site::new(RecordLayer::default());
    let acceptor = site.acceptor.clone().deadline(Duration::from_millis(50));
    for opening in [&b""[..], &[22, 3, 1, 2, 0][..]] {
        let socket = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
        let mut near = Stream::plain(socket).unwrap();
        near.write_all(opening).await.unwrap();
        let (socket, _) = site.listener.accept().await.unwrap();
        let error = acceptor.accept(socket).await.err().unwrap();
        assert_eq!(error.kind(), gridlane_core::ErrorKind::Timeout);
    }
}

#[tokio::test]
async fn nonsense_after_a_handshake_byte_is_refused() {
    let site = Site::new(RecordLayer::default());
    let socket = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
    let mut near = Stream::plain(socket).unwrap();
    let mut bytes = vec![22, 3, 3, 0, 200];
    bytes.extend(noise(200, 1));
    near.write_all(&bytes).await.unwrap();
    let (socket, _) = site.listener.accept().await.unwrap();
    assert!(site.acceptor.accept(socket).await.is_err());
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // `localhost` has an IPv6 and an IPv4 address on most machines; only IPv4 listens here.
    let site = Site::new(RecordLayer::default());
    let port = site.listener.local_addr().unwrap().port();
    let url = Url::parse_absolute(&format!("http://localhost:{port}/")).unwrap();
    let dialer = Dialer::new(site.trust.clone());
    assert!(dialer.dial(&dialer.route(&url).unwrap()).await.is_ok());
}

#[test]
fn servers_that_start_together_share_one_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let dir = dir.path().to_path_buf();
            std::thread::spawn(move || {
                let (cert, key) = tls::self_signed(&dir, &["localhost".into()]).unwrap();
                // Fails when the key is not that of the certificate.
                tls::server_config(&cert, &key, false).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_made_certificate_is_kept_and_its_key_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("a/b");
    let (cert, key) = tls::self_signed(&inner, &["localhost".into()]).unwrap();
    let before = std::fs::read(&cert).unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    tls::self_signed(&inner, &["localhost".into()]).unwrap();
    assert_eq!(std::fs::read(&cert).unwrap(), before);
    let trust = Trust { ca_files: vec![key], ..Trust::default() };
    let error = tls::client_config(&trust).unwrap_err();
    assert_eq!(error.kind().exit_code(), 2, "{error}");
    assert!(tls::server_config(&cert, &cert, false).is_err());
}

/// The two ends of a new connection, when a byte has gone each way.
async fn spoken(site: &Site, dialer: &Dialer) -> (Stream, Stream) {
    let url = site.url("https");
    let accept = async {
        let (socket, _) = site.listener.accept().await.unwrap();
        let mut far = site.acceptor.accept(socket).await.unwrap().0;
        assert_eq!(far.read(&mut [0]).await.unwrap(), 1);
        far.write_all(b"x").await.unwrap();
        far
    };
    let speak = async {
        let mut near = dialer.dial(&dialer.route(&url).unwrap()).await.unwrap().stream;
        near.write_all(b"G").await.unwrap();
        assert_eq!(near.read(&mut [0]).await.unwrap(), 1);
        near
    };
    tokio::join!(speak, accept)
}

async fn a_second_connection_goes_on_from_the_firsts_session(records: RecordLayer) {
    let site = Site::new(records);
    let dialer = Dialer::new(site.trust.clone());
    assert!(!spoken(&site, &dialer).await.0.is_resumed());
    let (near, far) = spoken(&site, &dialer.clone()).await;
    assert!(near.is_resumed() && far.is_resumed());
    let (stranger, _) = spoken(&site, &Dialer::new(site.trust.clone())).await;
    assert!(!stranger.is_resumed());
}

async fn a_quiet_connection_is_told_from_one_that_ends(records: RecordLayer) {
    let site = Site::new(records);
    for scheme in ["http", "https"] {
        let (mut near, mut far) = site.pair(scheme).await;
        // TLS' tickets may be there already, and do not show above it.
        assert!(near.is_quiet() && far.is_quiet(), "{scheme}");
        far.write_all(b"late").await.unwrap();
        while near.is_quiet() {
            tokio::task::yield_now().await;
        }
        let mut word = [0; 4];
        assert_eq!(near.read(&mut word).await.unwrap(), 4, "{scheme}: nothing was lost by asking");
        assert!(near.is_quiet(), "{scheme}");
        far.shutdown().await.unwrap();
        while near.is_quiet() {
            tokio::task::yield_now().await;
        }
    }
}

async fn bulk_data_gathers_and_who_sends_less_than_is_certain_delays_nothing_for_long(records: RecordLayer) {
    let site = Site::new(records);
    for scheme in ["http", "https"] {
        let (mut near, mut far) = site.pair(scheme).await;
        // Enough to be found fast, and an end that is far from a multiple of anything.
        let bytes = noise(24 * 1024 * 1024 + 77, 3);
        let expected = bytes.clone();
        let sending = tokio::spawn(async move {
            for part in bytes.chunks(16 * 1024) {
                far.write_all(part).await.unwrap();
            }
            far
        });
        let mut target = vec![0; 256 * 1024];
        let (mut came, certain_bytes) = (Vec::new(), 1 << 40);
        while came.len() < expected.len() {
            let reading = near.read_of(&mut target, certain_bytes);
            let count = tokio::time::timeout(Duration::from_secs(60), reading).await.unwrap().unwrap();
            assert!(count > 0);
            came.extend_from_slice(&target[..count]);
        }
        assert!(came == expected, "{scheme}");
        // A reader of any byte is not kept waiting for many.
        let mut far = sending.await.unwrap();
        far.write_all(b"x").await.unwrap();
        let ready = near.ready(true, false);
        tokio::time::timeout(Duration::from_secs(60), ready).await.unwrap().unwrap();
        assert_eq!(near.read(&mut target).await.unwrap(), 1, "{scheme}");
    }
}

/// Polls a future once, and drops it.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

async fn writes_that_are_given_up_in_the_middle_lose_and_repeat_nothing(records: RecordLayer) {
    let site = Site::new(records);
    for scheme in ["http", "https"] {
        let (mut near, mut far) = site.pair(scheme).await;
        let bytes = noise(30_000_000, 11);
        let (mut at, mut came) = (0, Vec::new());
        let mut target = vec![0; 300_000];
        let mut dropped = 0;
        while came.len() < bytes.len() {
            // Until the socket is full: there every write is dropped.
            while at < bytes.len() || near.has_unsent() {
                let end = bytes.len().min(at + 100_000);
                match poll_once(near.write_some(&bytes[at..end])).await {
                    Some(taken) => at += taken.unwrap(),
                    None => {
                        dropped += 1;
                        break;
                    }
                }
            }
            // A read that is dropped, and one that is not.
            let _ = poll_once(near.read(&mut [0; 10])).await.map(|read| panic!("{read:?}"));
            let count = tokio::select! {
                count = far.read(&mut target) => count,
                ready = near.ready(false, true) => { ready.unwrap(); continue }
                () = tokio::time::sleep(Duration::from_secs(60)) => panic!("nothing moves"),
            };
            came.extend_from_slice(&target[..count.unwrap()]);
        }
        assert!(came == bytes, "{scheme}: {} of {}", came.len(), bytes.len());
        assert!(dropped > 3, "{scheme}: {dropped}");
        // The other direction was not touched.
        far.write_all(b"fine").await.unwrap();
        assert_eq!(near.read(&mut target).await.unwrap(), 4);
    }
}

async fn a_peer_that_takes_no_more_is_heard(records: RecordLayer) {
    let site = Site::new(records);
    for ends in [false, true] {
        let (mut near, mut far) = site.pair("https").await;
        let bytes = noise(1_000_000, 12);
        // More than fits, and given up.
        while poll_once(near.write_all(&bytes)).await.is_some() {}
        assert!(near.has_unsent());
        far.write_all(b"too much").await.unwrap();
        if ends {
            // What was not read makes this a reset.
            far.shutdown().await.unwrap();
            drop(far);
        }
        let mut word = [0; 20];
        let read = near.read(&mut word);
        let count = tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
        assert_eq!(&word[..count], b"too much", "{ends}");
    }
}

/// A connection through a relay that damages the last byte of what the near end sends, once told to.
async fn damaged(site: &Site, damages: Arc<AtomicBool>) -> (Stream, Stream) {
    let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://127.0.0.1:{}/", relay.local_addr().unwrap().port());
    let server = site.listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, mut far) =
            (relay.accept().await.unwrap().0, TcpStream::connect(server).await.unwrap());
        let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.split(), far.split());
        let there = async {
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = near_read.read(&mut bytes).await {
                bytes[count - 1] ^= u8::from(damages.load(Relaxed));
                far_write.write_all(&bytes[..count]).await.unwrap();
            }
        };
        let back = async {
            let _ = tokio::io::copy(&mut far_read, &mut near_write).await;
            let _ = near_write.shutdown().await;
        };
        tokio::join!(there, back);
    });
    let dialer = Dialer::new(site.trust.clone());
    let route = dialer.route(&Url::parse_absolute(&url).unwrap()).unwrap();
    let accept = async {
        let (socket, _) = site.listener.accept().await.unwrap();
        site.acceptor.accept(socket).await.unwrap().0
    };
    let (near, far) = tokio::join!(dialer.dial(&route), accept);
    (near.unwrap().stream, far)
}

async fn a_peer_is_told_that_what_came_is_damaged(records: RecordLayer) {
    let site = Site::new(records);
    // Into a buffer of the session, and straight to where it is wanted; with a wait, and without one.
    for (room, waits) in [(100, true), (1 << 20, true), (100, false)] {
        let damages = Arc::new(AtomicBool::new(false));
        let (mut near, mut far) = damaged(&site, damages.clone()).await;
        let mut target = vec![0; room];
        near.write_all(b"fine").await.unwrap();
        assert_eq!(far.read(&mut target).await.unwrap(), 4);
        damages.store(true, Relaxed);
        near.write_all(b"not fine").await.unwrap();
        let failed = match waits {
            true => far.read(&mut target).await.unwrap_err(),
            false => loop {
                far.ready(true, false).await.unwrap();
                match far.try_read(&mut target) {
                    Ok(none) => assert_eq!(none, None),
                    Err(failed) => break failed,
                }
            },
        };
        assert_eq!(failed.kind(), ErrorKind::InvalidData);
        drop(far);
        let told = near.read(&mut target).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::InvalidData, "{room} {waits}: {told}");
        assert!(told.to_string().contains("BadRecordMac"), "{room} {waits}: {told}");
    }
}
