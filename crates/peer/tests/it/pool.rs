//! Idle connections: which are used again, which are closed, and how many there are.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits::{IDLE_PER_HOST_MAX, REQUESTS_PER_HOST_MAX};
use gridlane_core::{ErrorKind, Url};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_peer::http::{Purpose, Request};
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
    assert!(made <= REQUESTS_PER_HOST_MAX, "{made} connections");
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
            // A sender is not cut off before it has read the answer.
            let mut rest = vec![0; 65_536];
            while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        }
    });
    let body = vec![0; 4_000_000];
    let request = Request::new("PUT", &url).body(&body);
    let error = client().http.exchange(&request).await.unwrap().success().await.map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::LocalIo, Some(507)));
}
