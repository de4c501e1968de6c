//! What becomes of a connection that is being made when the copy is over, and of lanes with threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gridlane_core::{ByteRange, ChecksumKind, Hasher, Url};
use gridlane_net::tls::Trust;
use gridlane_net::{Dialer, Proxies};
use gridlane_peer::Client;
use gridlane_peer::http::Purpose;
use gridlane_plan::LaneId;
use gridlane_plan::judge::PieceHashes;
use gridlane_store::Expectation;
use gridlane_store::path_target::PathTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::{Command, Lane, end_all};
use crate::notice::Notice;
use crate::pace::Pace;
use crate::source::Source;
use crate::target::{Sink, Target};
use crate::{CopySpec, Event, Observer, OpenTarget, Options, copy};

const DEADLINE: Duration = Duration::from_secs(60);

struct Nobody;

impl Observer for Nobody {
    fn event(&mut self, _: &Event<'_>) {}
}

/// A SOCKS proxy behind which the server is that it is asked for, and the one named `far.example`: the way to that
/// one is open only when `gate` says so.
async fn proxy(gate: watch::Receiver<bool>, far: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, gate.clone(), far.clone()));
        }
    });
    format!("socks5h://{address}")
}

async fn serve(mut socket: TcpStream, mut gate: watch::Receiver<bool>, far: Arc<AtomicUsize>) -> Option<()> {
    let mut buf = [0; 512];
    let mut greeting = [0; 2];
    socket.read_exact(&mut greeting).await.ok()?;
    socket.read_exact(&mut buf[..greeting[1] as usize]).await.ok()?;
    socket.write_all(&[5, 0]).await.ok()?;
    // CONNECT to a name, and a port.
    socket.read_exact(&mut buf[..5]).await.ok()?;
    let len = buf[4] as usize;
    socket.read_exact(&mut buf[..len + 2]).await.ok()?;
    if buf[..len].starts_with(b"far") {
        far.fetch_add(1, Ordering::SeqCst);
        gate.wait_for(|is_open| *is_open).await.ok()?;
    }
    socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    let mut request = Vec::new();
    while socket.read_buf(&mut request).await.ok()? > 0 {
        if request.ends_with(b"\r\n\r\n") {
            let answer = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/4\r\n\
                          Content-Length: 4\r\nDigest: adler32=03d8018b\r\n\r\n";
            let body = if request.starts_with(b"GET") { "abcd" } else { "" };
            socket.write_all([answer, body].concat().as_bytes()).await.ok()?;
            request.clear();
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_under_way_at_the_end_is_there_for_the_next_copy() {
    let (open, gate) = watch::channel(false);
    let far = Arc::new(AtomicUsize::new(0));
    let address = proxy(gate, far.clone()).await;
    let proxies = Proxies::from_environment(|name| (name == "ALL_PROXY").then(|| address.clone()));
    let client = Client::new(Dialer::new(Trust::default()).proxies(proxies), Duration::from_secs(30));
    let dir = tempfile::tempdir().unwrap();
    let near_url = Url::parse_absolute("http://near.example/f").unwrap();
    let far_url = Url::parse_absolute("http://far.example/f").unwrap();
    let copy_of = |sources: Vec<Url>, name: &str| {
        let (target, found) = PathTarget::open(&dir.path().join(name), &Default::default()).unwrap();
        let opened = OpenTarget { target: Arc::new(target), found, completion: Expectation::Absent.into() };
        // It is waited for, for as long as patience lasts, because it might say another checksum.
        let options = Options { patience: Duration::from_millis(200), ..Options::default() };
        let spec = CopySpec { sources, target: opened.into(), options };
        let client = client.clone();
        async move { copy(spec, client, &mut Nobody, std::future::pending()).await }
    };
    let begun = Instant::now();
    while far.load(Ordering::SeqCst) == 0 {
        // The near one may be so fast that the far one is not even asked for.
        let name = format!("{}", begun.elapsed().as_nanos());
        let outcome = copy_of(vec![near_url.clone(), far_url.clone()], &name).await;
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert!(begun.elapsed() < DEADLINE);
    }
    let dialled = far.load(Ordering::SeqCst);
    open.send(true).unwrap();
    while !client.http.has_idle(&far_url, Purpose::Lane) {
        assert!(begun.elapsed() < DEADLINE, "nobody went on connecting");
        tokio::task::yield_now().await;
    }
    let outcome = copy_of(vec![far_url], "last").await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.report.sources[0].handshakes, 0);
    assert_eq!(far.load(Ordering::SeqCst), dialled, "no other connection was made");
}

/// A lane from `url` to a file, with the checksum of the whole file.
fn lane_to(dir: &std::path::Path, url: Url, bytes: &[u8]) -> (Lane, Arc<Target>, UnboundedReceiver<Notice>) {
    let (notices, heard) = unbounded_channel();
    let (partial, _) = PathTarget::open(&dir.join("to"), &Default::default()).unwrap();
    let mut hasher = Hasher::new(ChecksumKind::Sha1);
    hasher.update(bytes);
    let hashes = PieceHashes::new(bytes.len() as u64, bytes.len() as u64, vec![hasher.finish()]);
    let target = Arc::new(Target::new(Sink::Anywhere(Arc::new(partial)), hashes, notices.clone()));
    target.agree(Some(bytes.len() as u64));
    let lane = Lane {
        id: LaneId(0),
        source: Arc::new(Source::new(0, url)),
        target: target.clone(),
        client: Client::new(Dialer::new(Trust::default()), DEADLINE),
        pace: Arc::new(Pace::new(None)),
        asks: None,
        listens: None,
        notices,
    };
    (lane, target, heard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lane_with_a_thread_of_its_own_may_wait_for_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let (from, bytes) = (dir.path().join("from"), vec![7; 1 << 20]);
    std::fs::write(&from, &bytes).unwrap();
    let (lane, target, mut heard) = lane_to(dir.path(), Url::from_path(&from).unwrap(), &bytes);
    let (commands, orders) = unbounded_channel();
    let running = lane.spawn_thread(orders);
    assert!(running.has_thread());
    // Comparing a piece waits, as a slow write does.
    commands.send(Command::Request(ByteRange::new(0, bytes.len() as u64))).unwrap();
    while !matches!(heard.recv().await, Some(Notice::RequestDone { .. })) {}
    assert!(target.is_checked());
    drop(commands);
    end_all(vec![running], DEADLINE).await;
    assert!(matches!(heard.recv().await, Some(Notice::Lost { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lane_with_a_thread_of_its_own_can_be_ended_where_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    let (lane, _, _heard) = lane_to(dir.path(), Url::parse_absolute(&url).unwrap(), b"x");
    let (commands, orders) = unbounded_channel();
    let running = lane.spawn_thread(orders);
    commands.send(Command::Request(ByteRange::new(0, 1))).unwrap();
    let (_silent, _) = listener.accept().await.unwrap();
    tokio::time::timeout(DEADLINE, end_all(vec![running], Duration::ZERO)).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lane_ends_where_it_waits_when_its_copy_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    let (lane, _, mut heard) = lane_to(dir.path(), Url::parse_absolute(&url).unwrap(), b"x");
    let (commands, orders) = unbounded_channel();
    let running = lane.spawn(orders);
    commands.send(Command::Request(ByteRange::new(0, 1))).unwrap();
    let (_silent, _) = listener.accept().await.unwrap();
    drop(running);
    let is_lost = async { while !matches!(heard.recv().await, Some(Notice::Lost { .. })) {} };
    tokio::time::timeout(DEADLINE, is_lost).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_of_which_little_is_left_is_there_for_the_next_copy() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = vec![7; 1 << 20];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse_absolute(&format!("http://{}/f", listener.local_addr().unwrap())).unwrap();
    for (asked, is_kept) in [(2, true), (3, false)] {
        let (lane, _, mut heard) = lane_to(dir.path(), url.clone(), &vec![7; 3 << 19]);
        let http = lane.client.http.clone();
        let (commands, orders) = unbounded_channel();
        let running = lane.spawn(orders);
        for nth in 0..asked {
            commands.send(Command::Request(ByteRange::at(nth << 19, 1 << 19))).unwrap();
        }
        let (mut server, _) = listener.accept().await.unwrap();
        let mut requests = Vec::new();
        while requests.windows(4).filter(|end| end == b"\r\n\r\n").count() < asked as usize {
            assert!(server.read_buf(&mut requests).await.unwrap() > 0);
        }
        commands.send(Command::Close).unwrap();
        while !matches!(heard.recv().await, Some(Notice::Lost { .. })) {}
        // Others have brought these bytes; they come all the same.
        for nth in 0..asked {
            let first = nth << 19;
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/1572864\r\nContent-Length: 524288\r\n\r\n",
                first + 524_287
            );
            let sent = async {
                server.write_all(head.as_bytes()).await?;
                server.write_all(&bytes[..1 << 19]).await
            };
            assert!(sent.await.is_ok() || !is_kept);
        }
        let begun = Instant::now();
        match is_kept {
            true => {
                while !http.has_idle(&url, Purpose::Lane) {
                    assert!(begun.elapsed() < DEADLINE, "it was not kept");
                    tokio::task::yield_now().await;
                }
            }
            // It is closed, with bytes that were not read.
            false => {
                while server.read(&mut [0]).await.is_ok_and(|count| count > 0) {}
                assert!(!http.has_idle(&url, Purpose::Lane));
            }
        }
        drop(running);
    }
}
