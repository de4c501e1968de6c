//! Every limit has its answer, and slow or silent clients cost nothing that others need.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::{Duration, Instant};

use crate::support::{TestServer, noise};
use gridlane_core::limits;
use gridlane_dav::Status;

/// Shortened deadlines are this long; nothing in these tests waits for more than a few of them.
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn heads_that_are_too_long() {
    let server = TestServer::start();
    let line = format!("GET /{}", "x/".repeat(limits::REQUEST_LINE_BYTES_MAX / 2));
    server.request(&line, "").assert_refused(Status::URI_TOO_LONG, "request line");
    let name = format!("GET /{}", "x".repeat(limits::NAME_BYTES_MAX + 1));
    server.request(&name, "").assert_refused(Status::URI_TOO_LONG, "name");
    let long = format!("X: {}\r\n", "y".repeat(limits::REQUEST_HEAD_BYTES_MAX));
    server.request("GET /", &long).assert_refused(Status::HEAD_TOO_LARGE, "head");
    let many = "X: y\r\n".repeat(limits::REQUEST_HEADERS_MAX + 1);
    server.request("GET /", &many).assert_refused(Status::HEAD_TOO_LARGE, "header fields");
}

#[test]
fn requests_that_two_programs_could_read_differently() {
    let server = TestServer::start();
    server.write("f", b"old");
    for (request, status) in [
        ("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
        (
            "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("PUT /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("GET /f HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n", 400),
        ("GET /f HTTP/1.1\nHost: h\n\n", 400),
        ("GET /f HTTP/1.1\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
        ("GET /f HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        ("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: more\r\n\r\n", 417),
        ("GET /f HTTP/1.1\r\nHost: u@h\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: h/x\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://h/f HTTP/1.1\r\nHost: u@h\r\n\r\n", 400),
        ("GET /f HTTP/3\r\nHost: h\r\n\r\n", 400),
        ("GET /f HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("PUT /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400),
        ("PUT /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;\r\nnew\r\n0\r\n\r\n", 400),
        ("\x16\x03\x01\x00\x05hello", 400),
    ] {
        let mut client = server.connect();
        client.send(request);
        client.finish();
        assert_eq!(client.response(false).status(), status, "{request:?}");
        assert!(client.is_ended(), "{request:?}");
    }
    assert_eq!(server.read("f").unwrap(), b"old");
}

#[test]
fn methods() {
    let server = TestServer::start();
    let got = server.request("BREW /", "");
    got.assert_refused(Status::NOT_IMPLEMENTED, "method");
    for method in ["POST", "LOCK", "UNLOCK", "TRACE", "PATCH"] {
        let got = server.request(&format!("{method} /"), "");
        got.assert_refused(Status::METHOD_NOT_ALLOWED, method);
        assert_eq!(got.field("allow"), server.request("OPTIONS /", "").field("allow"), "{method}");
    }
    assert_eq!(server.request("CONNECT h:1", "").status(), 405);
    for target in ["*", "/", "/none"] {
        let got = server.request(&format!("OPTIONS {target}"), "");
        assert_eq!((got.status(), got.field("dav")), (200, Some("1")));
        let all = "GET,HEAD,PUT,DELETE,OPTIONS,PROPFIND,PROPPATCH,MKCOL,MOVE,COPY";
        assert_eq!(got.field("allow"), Some(all));
        assert_eq!((got.field("ms-author-via"), got.field("accept-ranges")), (Some("DAV"), Some("bytes")));
    }
    let readable = TestServer::with(|_| {});
    for target in ["*", "/"] {
        let got = readable.request(&format!("OPTIONS {target}"), "");
        assert_eq!(got.field("allow"), Some("GET,HEAD,OPTIONS,PROPFIND"));
    }
    // The host of a complete URL counts, also for what is ours.
    let redirected = "PROPFIND http://localhost:7/ HTTP/1.1\r\nHost: h\r\nDepth: 0\r\n\r\n";
    assert!(server.ask(redirected).text().contains("<D:href>http://localhost:7/</D:href>"));
    let elsewhere = server.ask("GET http://elsewhere.example/ HTTP/1.1\r\nHost: h\r\n\r\n");
    elsewhere.assert_refused(Status::MISDIRECTED_REQUEST, "Host");
    // What such a request carries does not become the next request.
    let mut client = server.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    assert_eq!(client.response(false).status(), 405);
    assert!(client.is_ended());
}

#[test]
fn a_slow_head_is_408() {
    let server = TestServer::with(|settings| settings.deadlines.head = SHORT);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nX-Slow:");
    client.response(false).assert_refused(Status::REQUEST_TIMEOUT, "in time");
    assert!(client.is_ended());
    // A byte now and then does not help: the deadline is for the whole head.
    let mut client = server.connect();
    client.stream.set_read_timeout(Some(SHORT / 10)).unwrap();
    client.send("GET / HTTP/1.1\r\nX-Slow:");
    while client.stream.peek(&mut [0]).is_err() {
        client.send("x");
    }
    client.stream.set_read_timeout(Some(SHORT * 100)).unwrap();
    client.response(false).assert_refused(Status::REQUEST_TIMEOUT, "in time");
}

#[test]
fn a_body_that_stops_is_408_and_leaves_nothing() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.body_stall = SHORT;
    });
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    client.response(false).assert_refused(Status::REQUEST_TIMEOUT, "body");
    assert!(client.is_ended());
    assert_eq!((server.read("f"), server.leftovers()), (None, 0));
}

/// A byte now and then is no stall, and would hold a connection and a partial file for ever.
#[test]
fn a_body_that_trickles_is_408() {
    for fields in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let server = TestServer::with(|settings| {
            settings.service.exports[0].allow_write = true;
            settings.deadlines.body_stall = SHORT * 100;
            settings.deadlines.body_grace = SHORT;
        });
        let mut client = server.connect();
        client.send(format!("PUT /f HTTP/1.1\r\nHost: h\r\n{fields}\r\n10000\r\n"));
        client.stream.set_read_timeout(Some(SHORT / 10)).unwrap();
        let began = Instant::now();
        while client.stream.peek(&mut [0]).is_err() {
            assert!(began.elapsed() < SHORT * 50, "still waited for");
            client.send("x");
        }
        client.stream.set_read_timeout(Some(SHORT * 100)).unwrap();
        client.response(false).assert_refused(Status::REQUEST_TIMEOUT, "slowly");
        drop(client);
        assert_eq!((server.read("f"), server.leftovers()), (None, 0));
    }
}

#[test]
fn a_client_that_takes_nothing_is_cut() {
    let server = TestServer::with(|settings| settings.deadlines.body_stall = SHORT);
    server.write("f", noise(64 << 20, 1));
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, Status::OK);
    // From here on nothing is read until the server has given up, and says so in its log.
    let (_, log) = server.stop();
    assert!(log[0]["error"].as_str().unwrap().contains("took no byte"), "{}", log[0]);
    assert!(log[0]["bytes_out"].as_u64().unwrap() < 64 << 20);
}

#[test]
fn silence_is_closed_without_a_word() {
    let server = TestServer::with(|settings| settings.deadlines.detect = SHORT);
    assert!(server.connect().is_ended());
    // On a server of its own, so that the first request is not hurried.
    let server = TestServer::with(|settings| settings.deadlines.idle = SHORT);
    let mut client = server.connect();
    assert_eq!(client.request("GET /", "").status(), 200);
    assert!(client.is_ended());
}

#[test]
fn beyond_the_last_connection_there_is_503() {
    let server = TestServer::with(|settings| {
        settings.connections_max = 2;
        settings.client_limits.connections_max = Some(2);
        settings.deadlines.linger = SHORT;
    });
    let mut kept = [server.connect(), server.connect()];
    for client in &mut kept {
        assert_eq!(client.request("GET /", "").status(), 200);
    }
    let refused = server.request("GET /", "");
    refused.assert_refused(Status::SERVICE_UNAVAILABLE, "connections");
    assert_eq!(refused.field("retry-after"), Some("5"));
    assert!(!refused.head.keeps_alive());
    drop(kept);
    // The server learns of it soon, at no certain time.
    let began = Instant::now();
    while server.request("GET /", "").status() != 200 {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
