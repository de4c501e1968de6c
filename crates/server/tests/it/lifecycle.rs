//! Connections and the server itself: keeping alive, pipelining, HTTP/1.0, TLS, the log, the rate limit,
//! and the graceful stop.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{TestServer, noise};
use gridlane_core::{Url, limits};
use gridlane_dav::{ResourcePath, ResponseHead, Status};
use gridlane_front::AccessLog;
use gridlane_net::tls::{self, Trust};
use gridlane_net::{Dialer, Stream};
use gridlane_server::{Export, Settings};
use gridlane_store::fake::{Gate, SlowStorage};
use gridlane_store::{Durability, MemoryStorage, ObjectPath, PosixStorage};

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let server = TestServer::start();
    server.write("f", b"first");
    let mut client = server.connect();
    client.send(
        "GET /f HTTP/1.1\r\nHost: h\r\n\r\nPUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nsecond\
         PUT /g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nthird\r\n0\r\n\r\n\
         GET /f HTTP/1.1\r\nHost: h\r\n\r\nHEAD /g HTTP/1.1\r\nHost: h\r\n\r\nGET /g HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.response(false).body, b"first");
    assert_eq!(client.response(false).status(), 204);
    assert_eq!(client.response(false).status(), 201);
    assert_eq!(client.response(false).body, b"second");
    assert_eq!(client.response(true).field("content-length"), Some("5"));
    let last = client.response(false);
    assert_eq!((last.body.as_slice(), last.head.keeps_alive()), (&b"third"[..], false));
    assert!(client.is_ended());
}

#[test]
fn http_1_0_closes_unless_asked() {
    let server = TestServer::start();
    server.write("f", b"x");
    let mut client = server.connect();
    client.send("GET /f HTTP/1.0\r\n\r\n");
    let got = client.response(false);
    assert_eq!((got.status(), got.field("connection")), (200, Some("close")));
    assert!(client.is_ended());
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.response(false).field("connection"), Some("keep-alive"));
    }
}

#[test]
fn an_error_does_not_end_a_connection_that_is_in_order() {
    let server = TestServer::start();
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.request("GET /none", "").status(), 404);
        assert_eq!(client.request("HEAD /none", "").status(), 404);
    }
}

#[test]
fn the_log_has_every_request() {
    let server = TestServer::start();
    server.write("f", b"0123456789");
    // On one connection, since records of several come in any order.
    let mut client = server.connect();
    client.request("GET /f?authz=secret", "Range: bytes=2-4\r\nUser-Agent: test \"1\"\r\n");
    client.send("PUT /g HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    client.response(false);
    client.request("GET /none", "");
    client.send("GET /bad\x01?authz=secret HTTP/1.1\r\nHost: h\r\n\r\n");
    client.response(false);
    drop(client);
    let (summary, log) = server.stop();
    assert_eq!((summary.requests, summary.bytes_in, summary.cut), (4, 3, 0));
    assert_eq!(log.len(), 4);
    let [get, put, none, bad] = &log[..] else { panic!("four requests") };
    assert_eq!((&get["method"], &get["path"], &get["status"]), (&"GET".into(), &"/f".into(), &206.into()));
    assert_eq!((&get["range"], &get["user_agent"]), (&"bytes=2-4".into(), &"test \"1\"".into()));
    assert_eq!((&get["bytes_out"], get.get("error"), get.get("tls")), (&3.into(), None, None));
    assert!(get["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(get["time"].as_str().unwrap().ends_with('Z') && get["seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!((&put["status"], &put["bytes_in"]), (&201.into(), &3.into()));
    assert_eq!((&none["status"], &none["error"]), (&404.into(), &"there is no such file".into()));
    assert_eq!((&bad["status"], &bad["method"]), (&400.into(), &"GET".into()));
    let ids: std::collections::HashSet<_> = log.iter().map(|record| record["id"].as_str()).collect();
    assert_eq!(ids.len(), 4);
    assert!(!format!("{log:?}").contains("secret"));
}

#[test]
fn text_of_clients_is_cut_and_plain_in_the_log() {
    let server = TestServer::start();
    let long = format!("\u{202e}{}\u{9b}31m", "x".repeat(4000));
    let mut client = server.connect();
    client.request("GET /none", &format!("User-Agent: {long}\r\nRange: {long}\r\nDestination: /{long}\r\n"));
    let method = "M".repeat(4000);
    client.request(&format!("{method} /none"), "");
    client.send(format!("GET /{long} HTTP/1.1\r\nBad\r\n\r\n"));
    client.response(false);
    drop(client);
    let (_, log) = server.stop();
    assert_eq!(log.len(), 3);
    let max = gridlane_core::limits::LOGGED_FIELD_BYTES_MAX;
    for (record, key) in [(0, "user_agent"), (0, "range"), (1, "method"), (2, "path")] {
        let text = log[record][key].as_str().unwrap();
        assert!((200..=max).contains(&text.len()), "{key}: {} bytes", text.len());
    }
    let is_plain =
        |text: &str| text.chars().all(|character| character.is_ascii_graphic() || character == ' ');
    assert!(
        log.iter()
            .flat_map(|record| record.as_object().unwrap().values())
            .all(|value| { value.as_str().is_none_or(is_plain) })
    );
}

#[test]
fn a_stop_lets_running_requests_finish_and_closes_idle_connections() {
    let storage = MemoryStorage::new();
    let bytes = noise(1_000_000, 1);
    storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), bytes.clone());
    let gate = Gate::new();
    let mut server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |_| {});
    let mut idle = server.connect();
    assert_eq!(idle.request("HEAD /f", "").status(), 200);
    let silent = server.connect();
    gate.close();
    let mut running = server.connect();
    running.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    gate.wait_for_waiting(1);
    server.begin_stop();
    assert!(idle.is_ended(), "at once, while the other request still runs");
    gate.open();
    let got = running.response(false);
    assert!(got.body == bytes);
    drop((running, silent));
    let (summary, log) = server.stop();
    assert_eq!((summary.cut, summary.bytes_out, log.len()), (0, 1_000_000, 2));
}

/// A client that fetches a file in ranges has no other connection to go on with once none is accepted any longer.
#[test]
fn a_stop_lets_a_file_be_fetched_range_by_range_to_its_end() {
    let mut server = TestServer::with(|settings| {
        settings.deadlines.drain = Duration::from_secs(3600);
        settings.deadlines.drain_pause = Duration::from_secs(3600);
    });
    let bytes = noise(3000, 1);
    server.write("f", &bytes);
    let (mut idle, mut client, mut ahead) = (server.connect(), server.connect(), server.connect());
    assert_eq!(idle.request("GET /f", "").status(), 200);
    for client in [&mut client, &mut ahead] {
        assert_eq!(client.request("GET /f", "Range: bytes=0-999\r\n").body, &bytes[..1000]);
    }
    server.begin_stop();
    assert!(idle.is_ended());
    let rest = [("bytes=1000-1999", &bytes[1000..2000]), ("bytes=2000-2999", &bytes[2000..])];
    for (range, part) in rest {
        let got = client.request("GET /f", &format!("Range: {range}\r\n"));
        assert_eq!((got.status(), got.field("connection")), (206, None));
        assert!(got.body == part);
    }
    // Anything else is the last of its connection, and a client that has asked ahead is answered as well.
    let got = client.request("HEAD /f", "");
    assert_eq!((got.status(), got.field("connection")), (200, Some("close")));
    assert!(client.is_ended());
    ahead.send(
        rest.map(|(range, _)| format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: {range}\r\n\r\n")).concat(),
    );
    for (_, part) in rest {
        assert!(ahead.response(false).body == part);
    }
    ahead.finish();
    assert!(ahead.is_ended());
    drop((idle, client, ahead));
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 0);
}

#[test]
fn a_stop_waits_only_for_ranges_that_are_requested() {
    let mut server = TestServer::with(|settings| {
        settings.deadlines.drain = Duration::from_secs(3600);
        settings.deadlines.drain_pause = Duration::from_millis(50);
    });
    server.write("f", noise(3000, 1));
    let mut client = server.connect();
    assert_eq!(client.request("GET /f", "Range: bytes=0-999\r\n").status(), 206);
    server.begin_stop();
    assert!(client.is_ended());
    drop(client);
    assert_eq!(server.stop().0.cut, 0);
}

/// The pause of a client begins when it has the last range, and not when the kernel has.
#[test]
fn a_stop_waits_for_a_range_of_a_client_that_reads_slowly() {
    // Most of it waits at the server's end while nothing of it is read.
    const RANGE_BYTES: usize = 1 << 20;
    let mut server = TestServer::with(|settings| {
        settings.deadlines.drain = Duration::from_secs(3600);
        settings.deadlines.drain_pause = Duration::from_millis(300);
    });
    let bytes = noise(RANGE_BYTES + 1000, 1);
    server.write("f", &bytes);
    let ranges = [(0, RANGE_BYTES), (RANGE_BYTES, RANGE_BYTES + 1000)];
    let request = |(begin, end): (usize, usize)| {
        format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={begin}-{}\r\n\r\n", end - 1)
    };
    let mut slow = server.connect();
    slow.send(request(ranges[0]));
    let began = Instant::now();
    while server.answered() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "the kernel does not take it");
        std::thread::yield_now();
    }
    let mut quick = server.connect();
    assert_eq!(quick.request("GET /f", "Range: bytes=0-999\r\n").status(), 206);
    server.begin_stop();
    // Its own pause is over, and began later than the other one's, if that had begun.
    assert!(quick.is_ended());
    slow.send(request(ranges[1]));
    for (begin, end) in ranges {
        let got = slow.response(false);
        assert!(got.status() == 206 && got.body == bytes[begin..end]);
    }
    assert!(slow.is_ended());
    drop((slow, quick));
    assert_eq!(server.stop().0.cut, 0);
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut server = TestServer::with(|settings| {
        settings.deadlines.drain = Duration::from_millis(100);
    });
    server.write("f", noise(64 << 20, 2));
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, Status::OK);
    server.begin_stop();
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 1);
}

#[test]
fn the_rate_limit_is_kept_and_shared() {
    const RATE: u64 = 8_000_000;
    let server = TestServer::with(|settings| settings.limit_rate_bytes_per_s = Some(RATE));
    server.write("f", noise(1_000_000, 3));
    let began = Instant::now();
    let bytes: usize = std::thread::scope(|scope| {
        let server = &server;
        let readers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| server.request("GET /f", "").body.len())).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let expected_s = bytes as f64 / RATE as f64;
    let ratio = began.elapsed().as_secs_f64() / expected_s;
    assert_eq!(bytes, 4_000_000);
    // Never faster, but for the burst; how much slower is up to the machine.
    assert!(ratio >= 0.9, "took {ratio} of the time expected");
}

/// A file that is not in the page cache goes through a buffer, which is smaller than a step of `sendfile`:
/// what the limit gives away has to be sent all the same.
#[test]
fn the_rate_limit_is_used_up_for_cold_files_too() {
    const RATE: u64 = 100_000_000;
    const FILE_BYTES: usize = 60_000_000;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), noise(FILE_BYTES, 5)).unwrap();
    let export = || PosixStorage::open(directory.path(), Durability::None).unwrap();
    let limited = |settings: &mut Settings| settings.limit_rate_bytes_per_s = Some(RATE);
    let warm = TestServer::of(Arc::new(export()), limited);
    let cold = TestServer::of(Arc::new(SlowStorage::new(export(), Gate::new())), limited);
    let seconds = |server: &TestServer| {
        let began = Instant::now();
        assert_eq!(server.request("GET /f", "").body.len(), FILE_BYTES);
        began.elapsed().as_secs_f64()
    };
    // Both on the same machine at the same load; a busy moment does not count.
    assert!((0..5).any(|_| seconds(&cold) < 1.5 * seconds(&warm)), "the cold file takes longer");
}

/// Plants what an upload has left behind long ago, and waits until it is gone.
fn assert_tidies(server: &TestServer) {
    let partial = server.path(".gridlane/upload-1-1-1.part");
    let old = std::time::SystemTime::now() - 2 * limits::PARTIAL_AGE_MAX;
    std::fs::File::create(&partial).unwrap().set_modified(old).unwrap();
    let began = Instant::now();
    while partial.exists() {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
}

#[test]
fn abandoned_uploads_are_removed_while_the_server_runs() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.tidy = Duration::from_millis(20);
    });
    assert_eq!(server.request("PUT /f", "Content-Length: 0\r\n").status(), 201);
    assert_tidies(&server);
}

#[test]
fn an_export_that_hangs_keeps_neither_the_server_from_starting_nor_others_from_being_tidied() {
    let names = Gate::new();
    names.close();
    let server = TestServer::with(|settings| {
        let exports = &mut settings.service.exports;
        exports[0].allow_write = true;
        exports[0].path = ResourcePath::parse("/fine").unwrap();
        let storage = SlowStorage::new(MemoryStorage::new(), Gate::new()).with_names(names.clone());
        let hung = Export { allow_write: true, ..Export::new(Arc::new(storage)) };
        // Before the other: in its order it would be waited for.
        exports.insert(0, Export { path: ResourcePath::parse("/hung").unwrap(), ..hung });
        settings.deadlines.tidy = Duration::from_millis(20);
    });
    names.wait_for_waiting(1);
    assert_eq!(server.request("PUT /fine/f", "Content-Length: 0\r\n").status(), 201);
    assert_tidies(&server);
    names.open();
}

/// The standard error output of a server is often a pipe, and its reader may stop reading at any time.
#[test]
fn a_stalled_log_hangs_neither_requests_nor_the_stop() {
    let (reader, writer) = std::io::pipe().unwrap();
    let server = TestServer::with(|settings| settings.access_log = AccessLog::to_writer(writer));
    let mut client = server.connect();
    // More than the pipe and the queue hold.
    for _ in 0..limits::ACCESS_RECORDS_MAX + 2000 {
        assert_eq!(client.request("GET /none", "").status(), 404);
    }
    let (summary, _) = server.stop();
    assert!(summary.log_is_stalled);
    drop(reader);
}

#[test]
fn both_protocols_on_one_port() {
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(keys.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&certificate, &key, false).unwrap();
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.tls = Some(config);
    });
    let bytes = noise(1_500_000, 4);
    server.write("f", &bytes);
    assert!(server.request("GET /f", "").body == bytes, "in clear");
    let trust = Trust { ca_files: vec![certificate], ..Trust::default() };
    let dialer = Dialer::new(trust.clone());
    let url = Url::parse_absolute(&format!("https://localhost:{}/f", server.address.port())).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut stream = dialer.dial(&dialer.route(&url).unwrap()).await.unwrap().stream;
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let (head, body) = receive(&mut stream).await;
        assert!(head.status == Status::OK && body == bytes, "encrypted");
        let put = "PUT /g HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1500000\r\n\r\n";
        stream.write_all(put.as_bytes()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(receive(&mut stream).await.0.status, Status::CREATED);
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "ended in good order");
    });
    assert!(server.read("g").unwrap() == bytes);
    let (_, log) = server.stop();
    assert!(log[0].get("tls").is_none() && log[1]["tls"].as_str().unwrap().contains("1.3"), "{log:?}");
}

/// Reads an answer that has a length.
async fn receive(stream: &mut Stream) -> (ResponseHead, Vec<u8>) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        if let Some((head, used)) = ResponseHead::parse(&bytes).unwrap() {
            let len = head.content_length().unwrap().unwrap() as usize;
            if bytes.len() >= used + len {
                return (head, bytes.split_off(used));
            }
        }
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "ended within an answer");
        bytes.extend_from_slice(&buffer[..count]);
    }
}

/// The answer to one connection too many is readable over TLS as well.
#[test]
fn a_full_server_says_so_over_tls() {
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(keys.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&certificate, &key, false).unwrap();
    let server = TestServer::with(|settings| {
        settings.tls = Some(config);
        settings.connections_max = 0;
    });
    let trust = Trust { ca_files: vec![certificate], ..Trust::default() };
    let dialer = Dialer::new(trust.clone());
    let url = Url::parse_absolute(&format!("https://localhost:{}/", server.address.port())).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut stream = dialer.dial(&dialer.route(&url).unwrap()).await.unwrap().stream;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let (head, body) = receive(&mut stream).await;
        assert_eq!(head.status, Status::SERVICE_UNAVAILABLE);
        assert!(head.retry_after(std::time::SystemTime::now()).is_some() && !body.is_empty());
    });
}
