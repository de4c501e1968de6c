//! What a small file costs that several mirrors have.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::support::{Quiet, to_file};
use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, Url};
use gridlane_engine::{CopySpec, Known, Options, Outcome, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use script::{Reply, Scripted, Seen, answer};
use tokio::net::TcpSocket;

const BYTES: usize = 1_000_000;
/// The answer of a server whose `/f` is a collection.
const COLLECTION: &str = "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat><D:prop><D:resourcetype>\
    <D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
/// Longer than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn content() -> Vec<u8> {
    (0..BYTES).map(|at| (at % 251) as u8).collect()
}

/// The file, or the range of it that was asked for, with its checksum if that was asked for and the server `says` it.
fn file(seen: &Seen, says: bool) -> Reply {
    let content = content();
    let digest = match (says, seen.field("want-digest")) {
        (true, Some(_)) => format!("Digest: adler32={:08x}\r\n", adler32(&content)),
        _ => String::new(),
    };
    if seen.method() == "HEAD" {
        return Reply::Bytes(
            format!("HTTP/1.1 200 OK\r\n{digest}Content-Length: {BYTES}\r\n\r\n").into_bytes(),
        );
    }
    let (start, end) = seen.field("range").unwrap()["bytes=".len()..].split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse::<usize>().unwrap().min(BYTES - 1));
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n{digest}Content-Range: bytes {start}-{end}/{BYTES}\r\n\
         Content-Length: {}\r\n\r\n",
        end + 1 - start
    );
    Reply::Bytes([head.as_bytes(), &content[start..=end]].concat())
}

async fn copy_of(mirrors: &[Url]) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let spec = CopySpec {
        sources: mirrors.to_vec(),
        target: to_file(&path),
        options: Options {
            known: Known { size_bytes: Some(BYTES as u64), ..Known::default() },
            ..Options::default()
        },
    };
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(30));
    let outcome = copy(spec, client, &mut Quiet, std::future::pending()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(std::fs::read(path).unwrap(), content());
    outcome
}

fn heads(mirrors: &[Scripted]) -> usize {
    mirrors.iter().flat_map(Scripted::seen).filter(|seen| seen.method() == "HEAD").count()
}

/// Those that have nothing to send are asked for the checksum on the connections that there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_mirrors_of_a_small_file_are_connected_to_once_each() {
    let mut found = Vec::new();
    // On a busy machine one that is slow may be asked once more: not each time.
    for _ in 0..5 {
        found.push(connections_and_questions().await);
        if found.last() == Some(&(vec![1, 1, 1], 2)) {
            return;
        }
    }
    panic!("{found:?}");
}

/// To how many connections three mirrors came, and how often they were asked for the checksum.
async fn connections_and_questions() -> (Vec<usize>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut mirrors = Vec::new();
    for _ in 0..3 {
        let asked = asked.clone();
        mirrors.push(
            Scripted::start(move |seen| {
                if seen.method() == "HEAD" {
                    asked.fetch_add(1, Ordering::SeqCst);
                    return file(seen, true);
                }
                // A server that has the bytes to send waits for the others to be asked.
                let begun = Instant::now();
                tokio::task::block_in_place(|| {
                    while asked.load(Ordering::SeqCst) < 2 && begun.elapsed() < DEADLINE {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                file(seen, true)
            })
            .await,
        );
    }
    let urls: Vec<Url> = mirrors.iter().map(|mirror| mirror.url("/f")).collect();
    let outcome = copy_of(&urls).await;
    assert!(outcome.report.verified.is_some(), "{:?}", outcome.report.verified);
    assert_eq!(outcome.report.checksum, Some(Checksum::adler32(adler32(&content()))));
    let connections: Vec<usize> = mirrors.iter().map(Scripted::connections).collect();
    (connections, heads(&mirrors))
}

/// A server that says its checksum to a question of its own only is asked behind the bytes, where they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_beside_bytes_is_asked_on_the_same_connection() {
    let mirrors = [Scripted::start(|seen| file(seen, seen.method() == "HEAD")).await];
    let outcome = copy_of(&[mirrors[0].url("/f")]).await;
    assert!(outcome.report.verified.is_some(), "{:?}", outcome.report.verified);
    assert_eq!((mirrors[0].connections(), heads(&mirrors)), (1, 1));
}

/// A server that hangs up when it is asked is a source like others all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_bear_questions_delivers() {
    let mirror = Scripted::start(|seen| match seen.method() {
        "HEAD" => Reply::Last(Vec::new()),
        _ => file(seen, false),
    })
    .await;
    let outcome = copy_of(&[mirror.url("/f")]).await;
    assert!(outcome.report.verified.is_none(), "{:?}", outcome.report.verified);
    assert_eq!(outcome.report.fetched_bytes, BYTES as u64);
}

/// A server that is asked for the checksum before it was asked for bytes may send a page about a directory: the size of the
/// page is not that of a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_mirror_that_is_a_directory_has_told_no_size() {
    for sends_elsewhere in [true, false].repeat(4) {
        let page = move |seen: &Seen| match (seen.method(), seen.head.contains("/f/ ") || !sends_elsewhere) {
            ("PROPFIND", _) => answer("207 Multi-Status", &[], COLLECTION),
            (_, false) => answer("301 Moved Permanently", &["Location: /f/"], ""),
            ("HEAD", true) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 26\r\n\r\n";
                Reply::Bytes(head.as_bytes().to_vec())
            }
            (_, true) => answer("200 OK", &["Content-Type: text/html"], "<html>Index of /f/</html>\n"),
        };
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = Url::parse_absolute(&format!("http://{}/f", socket.local_addr().unwrap())).unwrap();
        let (waiting, started) = (Mutex::new(Some(socket)), OnceLock::new());
        let honest = Scripted::start(move |seen| {
            // The other one takes connections when there is nothing left to ask it for.
            if let Some(socket) = waiting.lock().unwrap().take() {
                let _ = started.set(Scripted::on(socket.listen(16).unwrap(), page));
            }
            file(seen, true)
        })
        .await;
        let outcome = copy_of(&[honest.url("/f"), url]).await;
        assert!(outcome.report.verified.is_some(), "{:?}", outcome.report);
    }
}
