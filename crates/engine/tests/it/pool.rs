//! Idle connections: which are used again, which are closed, and how many there are.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridlane_core::limits::{IDLE_PER_HOST_MAX, QUESTIONS_PER_HOST_MAX};
use gridlane_core::{ErrorKind, Url};
use gridlane_engine::http::{Purpose, Request};
use gridlane_engine::{Client, CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use script::{Reply, Scripted, answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

async fn get(client: &Client, url: &Url) -> Vec<u8> {
    client.http.request("GET", url, &[]).await.unwrap().read_whole(1000).await.unwrap()
}

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    let server = Scripted::start(|seen| match seen.method() {
        "GET" if seen.head.contains("/chunked") => Reply::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n".to_vec(),
        ),
        "GET" => answer("200 OK", &[], "hello"),
        "HEAD" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec()),
        "DELETE" => answer("404 Not Found", &[], "not here"),
        _ => answer("204 No Content", &[], ""),
    })
    .await;
    let client = client();
    assert_eq!(get(&client, &server.url("/a")).await, b"hello");
    assert_eq!(get(&client.clone(), &server.url("/chunked")).await, b"hi");
    client.http.request("HEAD", &server.url("/b"), &[]).await.unwrap();
    client.http.request("DELETE", &server.url("/c"), &[]).await.map(|_| ()).unwrap_err();
    let url = server.url("/d/");
    client.http.exchange(&Request::new("PROPFIND", &url).body(b"<a/>")).await.unwrap().finish().await;
    assert_eq!(server.seen().len(), 5);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn what_is_not_read_to_its_end_is_not_used_again() {
    let server = Scripted::start(|seen| match seen.head.contains("/long") {
        true => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
            bytes.resize(bytes.len() + 1_000_000, b'x');
            Reply::Bytes(bytes)
        }
        false => answer("200 OK", &[], "hello"),
    })
    .await;
    let client = client();
    drop(client.http.request("GET", &server.url("/short"), &[]).await.unwrap());
    assert_eq!(get(&client, &server.url("/")).await, b"hello");
    assert_eq!(server.connections(), 2, "the body of the first was never read");
    client.http.request("GET", &server.url("/long"), &[]).await.unwrap().finish().await;
    assert_eq!(get(&client, &server.url("/")).await, b"hello");
    assert_eq!(server.connections(), 3, "nobody reads a megabyte to save a connection");
}

#[tokio::test]
async fn after_an_answer_without_a_readable_end_a_connection_is_not_used_again() {
    for fields in
        ["Content-Length: 3\r\nContent-Length: 4", "Content-Length: 3\r\nTransfer-Encoding: chunked"]
    {
        let server = Scripted::start(move |seen| match seen.head.contains("/odd") {
            // Its body comes when the next answer is waited for.
            true => Reply::Bytes(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").into_bytes()),
            false => answer("200 OK", &[], "hello"),
        })
        .await;
        let client = client();
        let error = client.http.request("GET", &server.url("/odd"), &[]).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(get(&client, &server.url("/")).await, b"hello");
        assert_eq!(server.connections(), 2, "{fields}");
    }
}

#[tokio::test]
async fn a_server_may_say_that_it_closes() {
    for fields in [&["Connection: close"], &["Keep-Alive: timeout=1"]] {
        let server = Scripted::start(move |_| answer("200 OK", fields, "hello")).await;
        let client = client();
        get(&client, &server.url("/")).await;
        get(&client, &server.url("/")).await;
        assert_eq!(server.connections(), 2, "{fields:?}");
    }
}

#[tokio::test]
async fn a_closed_connection_is_noticed_before_it_is_used() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse_absolute(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().await.unwrap();
            let read = socket.read(&mut [0; 1000]).await.unwrap();
            assert!(read > 0);
            socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        }
    });
    let client = client();
    assert_eq!(get(&client, &url).await, b"hi");
    // The first connection is closed as soon as the server is at its next `accept`; either way it is of no use.
    assert_eq!(get(&client, &url).await, b"hi");
    server.await.unwrap();
}

/// A server that sends a body where there is none to be, some time after the head.
#[tokio::test]
async fn a_connection_that_holds_the_rest_of_an_answer_is_of_no_use() {
    let server = Scripted::start(|seen| match seen.method() {
        "HEAD" => Reply::Bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n".to_vec()),
        // As if what belongs to the HEAD came only now.
        "GET" if seen.connection == 0 => {
            Reply::Bytes(b"<html/>\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
        }
        _ => answer("200 OK", &[], "hello"),
    })
    .await;
    let client = client();
    client.http.request("HEAD", &server.url("/a"), &[]).await.map(|_| ()).unwrap_err();
    assert_eq!(get(&client, &server.url("/b")).await, b"hello");
    assert_eq!(server.connections(), 2);
}

/// Answers the first request of each connection but the last, and closes at the second.
async fn closes_at_the_second() -> Scripted {
    Scripted::start(|seen| match seen.head.contains("/second") && seen.connection == 0 {
        true => Reply::Last(Vec::new()),
        false => answer("200 OK", &[], "hello"),
    })
    .await
}

#[tokio::test]
async fn a_request_that_was_not_answered_on_an_old_connection_is_sent_again_once() {
    for method in ["GET", "DELETE", "PROPFIND", "MOVE"] {
        let server = closes_at_the_second().await;
        let client = client();
        get(&client, &server.url("/first")).await;
        let url = server.url("/second");
        client.http.exchange(&Request::new(method, &url)).await.unwrap().success().await.unwrap();
        assert_eq!((server.seen().len(), server.connections()), (3, 2), "{method}");
    }
    // What may not happen twice gets a connection of its own.
    let server = closes_at_the_second().await;
    let client = client();
    get(&client, &server.url("/first")).await;
    client.http.exchange(&Request::new("POST", &server.url("/second"))).await.unwrap();
    assert_eq!((server.seen().len(), server.connections()), (2, 2));
    // On a new connection no answer is an error, not a reason to try again.
    let server = Scripted::start(|_| Reply::Last(Vec::new())).await;
    let error = client.http.request("GET", &server.url("/"), &[]).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert_eq!(server.seen().len(), 1);
    // Half an answer is an answer.
    let server = Scripted::start(|seen| match seen.head.contains("/second") {
        true => Reply::Last(b"HTTP/1.1 2".to_vec()),
        false => answer("200 OK", &[], "hello"),
    })
    .await;
    get(&client, &server.url("/first")).await;
    client.http.request("GET", &server.url("/second"), &[]).await.map(|_| ()).unwrap_err();
    assert_eq!((server.seen().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_crowd_shares_a_few_connections() {
    let server = Arc::new(Scripted::start(|_| answer("200 OK", &[], "hello")).await);
    let client = client();
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let (client, url) = (client.clone(), server.url("/"));
        crowd.spawn(async move { get(&client, &url).await });
    }
    while let Some(done) = crowd.join_next().await {
        done.unwrap();
    }
    let made = server.connections();
    assert!(made <= QUESTIONS_PER_HOST_MAX, "{made} connections");
}

#[tokio::test]
async fn no_more_are_kept_than_are_of_use() {
    let server = Scripted::start(|_| answer("200 OK", &[], "hello")).await;
    let (client, url) = (client(), server.url("/"));
    let mut held = Vec::new();
    for _ in 0..IDLE_PER_HOST_MAX + 5 {
        held.push(client.http.connect(&url, &url, Purpose::Lane, false).await.unwrap().connection);
    }
    drop(held);
    let mut again = Vec::new();
    for _ in 0..IDLE_PER_HOST_MAX + 5 {
        again.push(client.http.connect(&url, &url, Purpose::Lane, false).await.unwrap().connection);
    }
    assert_eq!(again.iter().filter(|connection| connection.is_reused()).count(), IDLE_PER_HOST_MAX);
}

/// Copies `/f` of a server to a file, `count` times with one client; all come out verified.
async fn copied(client: &Client, server: &Scripted, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        let path = dir.path().join(number.to_string());
        let target = TargetSpec::File { path: path.clone(), overwrite: false };
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
        let target = TargetSpec::Stream(std::fs::File::options().write(true).open("/dev/null").unwrap());
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

/// A server that refuses a body need not read it.
#[tokio::test]
async fn why_a_body_was_not_taken_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse_absolute(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 100]).await;
            let _ = socket.write_all(b"HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n").await;
            let _ = socket.shutdown().await;
            // Whoever sends is not cut off before it has read the answer.
            let mut rest = vec![0; 65_536];
            while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        }
    });
    let body = vec![0; 4_000_000];
    let request = Request::new("PUT", &url).body(&body);
    let error = client().http.exchange(&request).await.unwrap().success().await.map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::LocalIo, Some(507)));
}

struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _: &Event<'_>) {}
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
            0 => TargetSpec::File { path: dir.path().join(number.to_string()), overwrite: false },
            _ => TargetSpec::Upload { url: server.url("/up"), overwrite: false, modified: None },
        };
        let spec = CopySpec { sources: vec![server.url("/f")], target, options: Options::default() };
        copy(spec, client.clone(), &mut Quiet, std::future::pending()).await.result.unwrap();
    }
    assert_eq!(server.seen().iter().filter(|seen| seen.body == BODY.as_bytes()).count(), 5);
    // A lane, a question beside it, and an upload: no more than that at the same time.
    assert!(server.connections() <= 3, "{} connections", server.connections());
}
