//! What copies ask of a server, and which idle connections they use again.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Quiet, to_file};
use gridlane_core::{ErrorKind, Url};
use gridlane_engine::{CopySpec, Options, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use script::{Reply, Scripted, answer};

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

/// Copies `/f` of a server to a file, `count` times with one client; all come out verified.
async fn copied(client: &Client, server: &Scripted, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        let path = dir.path().join(number.to_string());
        let target = to_file(&path);
        let spec = CopySpec { sources: vec![server.url("/f")], target, options: Options::default() };
        let outcome = copy(spec, client.clone(), &mut Quiet, std::future::pending()).await;
        outcome.result.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), DIGITS.as_bytes());
        assert!(outcome.report.verified.is_some());
        assert_eq!(outcome.report.sources[0].connections, 1, "a lane, whether its connection was new or not");
    }
}

const DIGITS: &str = "123456789";
const DIGITS_DIGEST: &str = "Digest: adler32=091e01de";

/// The answer to a GET with a range that is larger than the file.
fn part(fields: &[&str]) -> Reply {
    answer("206 Partial Content", &[&["Content-Range: bytes 0-8/9"], fields].concat(), DIGITS)
}

fn methods(server: &Scripted) -> Vec<String> {
    server.seen().iter().map(|seen| seen.method().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_download_is_one_request() {
    let server = Scripted::start(|seen| match seen.field("want-digest") {
        Some("adler32") => part(&[DIGITS_DIGEST]),
        _ => part(&[]),
    })
    .await;
    copied(&client(), &server, 5).await;
    assert_eq!(methods(&server), ["GET"; 5]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_on_a_connection_that_was_closed_takes_a_new_one() {
    let server = Scripted::start(|seen| {
        static SECOND: AtomicBool = AtomicBool::new(false);
        match seen.connection == 0 && SECOND.swap(true, Ordering::Relaxed) {
            true => Reply::Last(Vec::new()),
            false => part(&[DIGITS_DIGEST]),
        }
    })
    .await;
    copied(&client(), &server, 2).await;
    let on: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(on, [0, 0, 1]);
    assert!(server.seen().iter().all(|seen| seen.field("want-digest").is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_checksums_to_head_only_is_asked_by_head() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n{DIGITS_DIGEST}\r\n\r\n");
    let server = Scripted::start(move |seen| match seen.method() {
        "HEAD" => Reply::Bytes(head.clone().into_bytes()),
        _ => part(&[]),
    })
    .await;
    copied(&client(), &server, 5).await;
    assert_eq!(server.seen().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_says_a_checksum_is_soon_left_in_peace() {
    let server = Scripted::start(|seen| match seen.method() {
        "HEAD" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec()),
        _ => part(&[]),
    })
    .await;
    let client = client();
    for _ in 0..8 {
        let target = TargetSpec::pipe(std::fs::File::options().write(true).open("/dev/null").unwrap());
        let spec = CopySpec { sources: vec![server.url("/f")], target, options: Options::default() };
        let outcome = copy(spec, client.clone(), &mut Quiet, std::future::pending()).await;
        outcome.result.unwrap();
        assert!(outcome.report.verified.is_none());
    }
    assert_eq!(methods(&server).iter().filter(|method| *method == "HEAD").count(), 3);
}

/// A server that reads the whole file first when it is asked for a checksum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_do_not_wait_for_a_checksum() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n{DIGITS_DIGEST}\r\n\r\n");
    let server = Scripted::start(move |seen| match (seen.method(), seen.field("want-digest")) {
        ("HEAD", _) => Reply::Bytes(head.clone().into_bytes()),
        (_, None) => part(&[]),
        (_, Some(_)) => Reply::Bytes(Vec::new()), // not within the time of this test
    })
    .await;
    copied(&client(), &server, 3).await;
    let seen = server.seen();
    let in_vain = seen.iter().filter(|seen| seen.method() == "GET" && seen.field("want-digest").is_some());
    assert_eq!(in_vain.count(), 1, "it is not made to think again");
    assert_eq!(seen.len(), 7);
}

/// What a small upload costs, after the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_upload_is_one_request() {
    let server = Scripted::start(|seen| {
        let fields = ["Server: gridlane/9", "Digest: adler32=091e01de"];
        match seen.method() {
            "PUT" if seen.field("digest") != Some("adler32=091e01de") => answer("400 Bad Request", &[], ""),
            "PUT" if seen.head.contains("/there") => answer("412 Precondition Failed", &fields, ""),
            "PUT" => answer("201 Created", &fields, ""),
            _ => answer("404 Not Found", &fields, ""),
        }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("f");
    std::fs::write(&source, "123456789").unwrap();
    let client = client();
    let put = async |path: &str, overwrite| {
        let target = TargetSpec::Upload { url: server.url(path), overwrite, modified: None };
        let sources = vec![Url::from_path(&source).unwrap()];
        let spec = CopySpec { sources, target, options: Options::default() };
        copy(spec, client.clone(), &mut Quiet, std::future::pending()).await
    };
    for (number, path) in ["/a", "/b", "/c"].into_iter().enumerate() {
        let outcome = put(path, number == 2).await;
        outcome.result.unwrap();
        assert!(outcome.report.verified.is_some(), "the server said what it has");
    }
    let seen = server.seen();
    let methods: Vec<&str> = seen.iter().map(|seen| seen.method()).collect();
    assert_eq!(methods, ["HEAD", "PUT", "PUT", "PUT"], "it is known now that it keeps what is there");
    assert_eq!(seen[2].field("if-none-match"), Some("*"));
    assert_eq!(seen[3].field("if-none-match"), None);
    assert!(seen[1..].iter().all(|seen| seen.field("expect").is_none()), "{seen:?}");
    assert_eq!(server.connections(), 1);
    let error = put("/there", false).await.result.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Precondition, Some(412)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_take_from_it_and_give_back() {
    const BODY: &str = "hello, hello";
    let server = Scripted::start(|seen| match (seen.method(), seen.field("range")) {
        ("PUT", _) => answer("201 Created", &[], "made"),
        ("HEAD", _) if seen.head.contains("/up") => answer("404 Not Found", &[], ""),
        ("HEAD", _) => {
            Reply::Bytes(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY.len()).into_bytes())
        }
        (_, Some(_)) => {
            let range = format!("Content-Range: bytes 0-{}/{}", BODY.len() - 1, BODY.len());
            answer("206 Partial Content", &[&range], BODY)
        }
        _ => answer("200 OK", &[], BODY),
    })
    .await;
    let client = client();
    let dir = tempfile::tempdir().unwrap();
    for number in 0..10 {
        let target = match number % 2 {
            0 => to_file(&dir.path().join(number.to_string())),
            _ => TargetSpec::Upload { url: server.url("/up"), overwrite: false, modified: None },
        };
        let spec = CopySpec { sources: vec![server.url("/f")], target, options: Options::default() };
        copy(spec, client.clone(), &mut Quiet, std::future::pending()).await.result.unwrap();
    }
    assert_eq!(server.seen().iter().filter(|seen| seen.body == BODY.as_bytes()).count(), 5);
    // A lane, a question beside it, and an upload: no more than that at the same time.
    assert!(server.connections() <= 3, "{} connections", server.connections());
}
