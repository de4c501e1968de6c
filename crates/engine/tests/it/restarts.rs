//! Servers that are away for a moment, and what has their port then.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::to_file;
use gridlane_core::Url;
use gridlane_engine::{CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use script::{Reply, Scripted, Seen, answer};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

const BYTES: usize = 12 * 1024 * 1024;
/// Longer than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// An answer that has not come by then is not going to be taken any more.
const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// Tells of each connection that was lost, and from which sources bytes have come.
struct Watch {
    losses: mpsc::UnboundedSender<()>,
    has_sent: Arc<[AtomicBool; 2]>,
}

impl Observer for Watch {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Retry { .. } => drop(self.losses.send(())),
            Event::Progress(snapshot) => {
                for (source, has_sent) in snapshot.sources.iter().zip(&*self.has_sent) {
                    has_sent.fetch_or(source.bytes > 0, Ordering::SeqCst);
                }
            }
            _ => {}
        }
    }
}

/// The file of one server or of another. Made once: a server that is slow is asked again elsewhere.
fn content(of: u8) -> &'static [u8] {
    static OURS: OnceLock<Vec<u8>> = OnceLock::new();
    static OTHERS: OnceLock<Vec<u8>> = OnceLock::new();
    let made = if of == 0 { &OURS } else { &OTHERS };
    made.get_or_init(|| (0..BYTES).map(|at| (at % 251) as u8 ^ of).collect())
}

/// The range of the file of `of` that was asked for; no checksum is told.
fn part(seen: &Seen, of: u8, tag: &str) -> Reply {
    let content = content(of);
    if seen.method() == "HEAD" {
        return Reply::Bytes(format!("HTTP/1.1 200 OK\r\n{tag}Content-Length: {BYTES}\r\n\r\n").into_bytes());
    }
    let (start, end) = seen.field("range").unwrap()["bytes=".len()..].split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse::<usize>().unwrap().min(BYTES - 1));
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n{tag}Content-Range: bytes {start}-{end}/{BYTES}\r\n\
         Content-Length: {}\r\n\r\n",
        end + 1 - start
    );
    Reply::Bytes([head.as_bytes(), &content[start..=end]].concat())
}

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

fn watch() -> (Watch, mpsc::UnboundedReceiver<()>) {
    let (losses, lost) = mpsc::unbounded_channel();
    (Watch { losses, has_sent: Arc::default() }, lost)
}

/// A port at which no process listens and that no other can take.
fn port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Has a server's answer wait, though not for ever.
fn wait_for(deadline: Duration, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    tokio::task::block_in_place(|| {
        while !is_so() && begun.elapsed() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Two replicas that tell no checksums. The second one is killed when something of an answer of it has come, and another
/// program has its port, with other bytes under the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_another_program_on_the_port_of_a_server_sends_is_not_taken() {
    for other_tag in ["", "ETag: \"b\"\r\n"] {
        // What gives it away may come last of all; that is an error, but not each time.
        let mut errors = Vec::new();
        while let Err(error) = copy_beside_another_program(other_tag).await {
            errors.push(error);
            assert!(errors.len() < 5, "{errors:?}");
        }
    }
}

/// A copy of the right bytes, or an error that one may retry after.
async fn copy_beside_another_program(other_tag: &'static str) -> gridlane_core::Result<()> {
    let tag = "ETag: \"a\"\r\n";
    let (mut watch, _lost) = watch();
    let has_sent = watch.has_sent.clone();
    let was_asked = AtomicBool::new(false);
    let asked = Arc::new(AtomicUsize::new(0));
    let (asked_of_other, seen_by_other) = (asked.clone(), asked.clone());
    let one = Scripted::start(move |seen| {
        // The other one is to be asked again as long as there is something to fetch.
        let is_first = seen.field("range").is_none_or(|range| range.starts_with("bytes=0-"));
        wait_for(DEADLINE, || is_first || seen_by_other.load(Ordering::SeqCst) > 0);
        part(seen, 0, tag)
    })
    .await;
    let two = Scripted::start(move |seen| {
        if seen.method() == "HEAD" {
            return Reply::Last(Vec::new());
        }
        // Asked again before that, because its answer was late, it answers once more.
        let is_first = !was_asked.swap(true, Ordering::SeqCst);
        wait_for(ANSWER_TAKEN_WITHIN, || is_first || has_sent[1].load(Ordering::SeqCst));
        if !has_sent[1].load(Ordering::SeqCst) {
            let (Reply::Bytes(bytes) | Reply::Last(bytes)) = part(seen, 0, tag);
            return Reply::Last(bytes);
        }
        asked_of_other.fetch_add(1, Ordering::SeqCst);
        part(seen, 77, other_tag)
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let spec = CopySpec {
        sources: vec![one.url("/f"), two.url("/f")],
        target: to_file(&path),
        options: Options::default(),
    };
    let outcome = copy(spec, client(), &mut watch, std::future::pending()).await;
    assert!(asked.load(Ordering::SeqCst) > 0, "the other program was not asked");
    match &outcome.result {
        Ok(()) => assert!(std::fs::read(path).unwrap() == content(0), "a mixture"),
        Err(error) => assert!(error.is_retryable() && !path.exists(), "{error:?}"),
    }
    outcome.result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_source_may_be_started_while_it_is_asked_for() {
    let (socket, address) = port();
    let url = Url::parse_absolute(&format!("http://{address}/f")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let (mut watch, mut lost) = watch();
    let starting = tokio::spawn(async move {
        for _ in 0..3 {
            lost.recv().await.unwrap();
        }
        Scripted::on(socket.listen(16).unwrap(), |seen| part(seen, 0, ""))
    });
    let target = to_file(&path);
    let spec = CopySpec { sources: vec![url], target, options: Options::default() };
    let outcome = copy(spec, client(), &mut watch, std::future::pending()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(std::fs::read(path).unwrap() == content(0));
    drop(starting);
}

/// A request is sent again where no connection could be made, and a caller that does not want to wait gets the error at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_waits_for_a_server_that_is_being_started() {
    let (socket, address) = port();
    let url = Url::parse_absolute(&format!("http://{address}/f")).unwrap();
    let mut client = client().http;
    let refused = client.request("HEAD", &url, &[]).await.err().unwrap();
    assert!(refused.is_unreached(), "{refused}");
    client.connect_max = DEADLINE;
    let mut asked = std::pin::pin!(client.request("HEAD", &url, &[]));
    let early = tokio::time::timeout(Duration::from_millis(50), asked.as_mut()).await;
    assert!(early.is_err(), "it did not wait");
    let _server = Scripted::on(socket.listen(16).unwrap(), |seen| part(seen, 0, ""));
    assert!(asked.await.is_ok());
}

/// Small, in one request with its checksum, and larger, behind `Expect`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_whose_connection_breaks_is_begun_anew() {
    for bytes in [1000, BYTES] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, &content(0)[..bytes]).unwrap();
        let puts = AtomicUsize::new(0);
        let server = Scripted::start(move |seen| match seen.method() {
            "PUT" if puts.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Last(Vec::new()),
            "PUT" => answer("201 Created", &[], ""),
            _ => answer("404 Not Found", &[], ""),
        })
        .await;
        let spec = CopySpec {
            sources: vec![Url::from_path(&path).unwrap()],
            target: TargetSpec::Upload { url: server.url("/g"), overwrite: true, modified: None },
            options: Options::default(),
        };
        let (mut watch, _lost) = watch();
        let outcome = copy(spec, client(), &mut watch, std::future::pending()).await;
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        let seen = server.seen();
        let puts: Vec<&Seen> = seen.iter().filter(|seen| seen.method() == "PUT").collect();
        assert_eq!(puts.len(), 2);
        assert!(puts.iter().all(|put| put.body == content(0)[..bytes]));
    }
}
