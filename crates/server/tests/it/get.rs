//! GET and HEAD over a real connection: files, ranges, conditions, digests, listings, and every way
//! out of the export that was ever thought of.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::support::{Client, TestServer, noise};
use gridlane_core::checksum::adler32;
use gridlane_core::limits;
use gridlane_dav::Status;
use gridlane_share::Share;
use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{MemoryStorage, ObjectPath};

#[test]
fn a_file_with_everything_clients_need() {
    let server = TestServer::start();
    server.write("f.root", b"0123456789");
    let got = server.request("GET /f.root", "");
    assert_eq!((got.status(), got.body.as_slice()), (200, &b"0123456789"[..]));
    let etag = got.head.etag().unwrap();
    assert!(!etag.is_weak());
    assert!(got.head.last_modified().is_some() && got.head.date().is_some());
    assert_eq!(got.head.accepts_ranges(), Some(true));
    assert_eq!(got.field("content-type"), Some("application/x-root"));
    assert!(got.field("server").unwrap().starts_with("gridlane/"));
    assert_eq!(got.field("digest"), None, "never unsolicited");
    let head = server.request("HEAD /f.root", "");
    assert_eq!((head.status(), head.field("content-length")), (200, Some("10")));
    assert_eq!(head.head.etag(), Some(etag.clone()));
    server.write("f.root", b"9876543210+");
    assert_ne!(server.request("HEAD /f.root", "").head.etag(), Some(etag));
}

#[test]
fn sizes_around_every_step_of_the_data_path() {
    let server = TestServer::start();
    let mut client = server.connect();
    for size in [0, 1, 16 * 1024, 16 * 1024 + 1, 256 * 1024 - 1, 512 * 1024 + 1, 3 << 20] {
        let bytes = noise(size, size as u64);
        server.write("f", &bytes);
        assert!(client.request("GET /f", "").body == bytes, "{size}");
    }
}

/// The kernel holds back for 200 ms what does not fill a packet, for as long as it is told to fill them: the end of a body
/// must not be held back, of a connection that stays open.
#[test]
fn the_last_part_of_a_body_comes_at_once() {
    const HELD: Duration = Duration::from_millis(200);
    // Of IPv4 over loopback with timestamps, and of Ethernet.
    const SEGMENTS: [usize; 2] = [65_483, 1448];
    let server = TestServer::start();
    let bytes = noise(4 * SEGMENTS[0], 4);
    server.write("f", &bytes);
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=0-100000\r\n\r\n");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.take(1));
    }
    assert!(client.take(100_001) == bytes[..100_001]);
    let end =
        |segment| [100_100, 150_000, 200_000].map(|len: usize| (head.len() + len).next_multiple_of(segment));
    let ends = SEGMENTS.into_iter().flat_map(end);
    let lens: Vec<usize> =
        ends.flat_map(|end| (0..15).map(move |more| end + more - 7)).map(|end| end - head.len()).collect();
    let mut round = || {
        let began = Instant::now();
        for len in &lens {
            let got = client.request("GET /f", &format!("Range: bytes=0-{}\r\n", len - 1));
            assert!(got.status() == 206 && got.body == bytes[..*len], "{len}");
        }
        assert!(client.request("GET /f", "").body == bytes);
        began.elapsed()
    };
    // All but those that fill their packets would have been, each time; what else there is to do takes longer only now and
    // then.
    let least = HELD * lens.len() as u32 / 2;
    let took = (0..10).map(|_| round()).find(|took| *took < least);
    assert!(took.is_some(), "{least:?} and more for {} answers", lens.len());
    assert_eq!(
        client.request("GET /f", "Range: bytes=0-0\r\n").body,
        bytes[..1],
        "the connection is still open"
    );
}

#[test]
fn other_storages_than_files_are_served_too() {
    let storage = MemoryStorage::new();
    let bytes = noise(700_000, 7);
    storage.add_file(&path("f"), bytes.clone());
    let slow = SlowStorage::new(storage.clone(), Gate::new());
    for server in [TestServer::of(Arc::new(storage), |_| {}), TestServer::of(Arc::new(slow), |_| {})] {
        assert!(server.request("GET /f", "").body == bytes);
        assert!(server.request("GET /f", "Range: bytes=300000-600000\r\n").body == bytes[300_000..=600_000]);
    }
}

#[test]
fn ranges() {
    let server = TestServer::start();
    server.write("f", b"0123456789");
    server.write("empty", b"");
    // Range, then status, Content-Range and body.
    for (range, status, content_range, body) in [
        ("bytes=0-0", 206, Some("bytes 0-0/10"), "0"),
        ("bytes=2-5", 206, Some("bytes 2-5/10"), "2345"),
        ("bytes=8-99", 206, Some("bytes 8-9/10"), "89"),
        ("bytes=8-", 206, Some("bytes 8-9/10"), "89"),
        ("bytes=-3", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-30", 206, Some("bytes 0-9/10"), "0123456789"),
        ("bytes=5-2", 200, None, "0123456789"),
        ("items=0-1", 200, None, "0123456789"),
        // One of several is there.
        ("bytes=2-5,10-", 206, Some("bytes 2-5/10"), "2345"),
        ("junk", 200, None, "0123456789"),
    ] {
        let got = server.request("GET /f", &format!("Range: {range}\r\n"));
        assert_eq!((got.status(), got.field("content-range")), (status, content_range), "{range}");
        assert_eq!(got.text(), body, "{range}");
    }
    for (target, range, content_range) in [
        ("/f", "bytes=10-", "bytes */10"),
        ("/f", "bytes=-0", "bytes */10"),
        ("/f", "bytes=10-11,12-,-0", "bytes */10"),
        ("/empty", "bytes=0-", "bytes */0"),
    ] {
        let got = server.request(&format!("GET {target}"), &format!("Range: {range}\r\n"));
        got.assert_refused(Status::RANGE_NOT_SATISFIABLE, "bytes");
        assert_eq!(got.field("content-range"), Some(content_range), "{range}");
    }
    // A range means nothing to HEAD, and two Range fields mean nothing at all.
    assert_eq!(server.request("HEAD /f", "Range: bytes=0-1\r\n").status(), 200);
    assert_eq!(server.request("GET /f", "Range: bytes=0-1\r\nRange: bytes=0-1\r\n").status(), 200);
}

#[test]
fn conditions() {
    let server = TestServer::start();
    server.write("f", b"0123456789");
    let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
    std::fs::File::options().write(true).open(server.path("f")).unwrap().set_modified(modified).unwrap();
    let etag = server.request("HEAD /f", "").head.etag().unwrap();
    let (same, earlier) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:36 GMT");
    for (fields, status) in [
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: *\r\n".to_owned(), 200),
        ("If-Match: \"other\"\r\n".to_owned(), 412),
        (format!("If-Match: W/{etag}\r\n"), 412),
        (format!("If-None-Match: \"other\", {etag}\r\n"), 304),
        (format!("If-None-Match: W/{etag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"other\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {same}\r\n"), 304),
        (format!("If-Modified-Since: {earlier}\r\n"), 200),
        (format!("If-Unmodified-Since: {same}\r\n"), 200),
        (format!("If-Unmodified-Since: {earlier}\r\n"), 412),
        (format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {same}\r\n"), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: {etag}\r\n"), 206),
        // A date is not enough where there is a strong tag.
        (format!("Range: bytes=0-1\r\nIf-Range: {same}\r\n"), 200),
        ("Range: bytes=0-1\r\nIf-Range: \"other\"\r\n".to_owned(), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: {earlier}\r\n"), 200),
        (format!("Range: bytes=0-1\r\nIf-Match: {etag}\r\n"), 206),
    ] {
        let got = server.request("GET /f", &fields);
        assert_eq!(got.status(), status, "{fields}");
        if status == 304 {
            assert_eq!(got.head.etag().as_ref(), Some(&etag));
            assert!(got.body.is_empty() && got.field("content-length").is_none());
        }
    }
}

#[test]
fn digests_on_request() {
    const SHA256: &str = "sha-256=FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=";
    let server = TestServer::start();
    server.write("f", b"123456789");
    // A checksum is kept when the file has been as it is for a moment, which nothing but time can bring: the
    // time of modification can be set, and does not count.
    std::thread::sleep(Duration::from_millis(300));
    let (adler32_text, crc32c) = (Some("adler32=091e01de"), Some("crc32c=e3069283"));
    let md5 = Some("md5=JfnnlDI7RTiF9RgfG2JNCw==");
    // What is wanted, then what GET and HEAD answer, in this order.
    for (want, to_get, to_head) in [
        ("adler32", adler32_text, adler32_text),
        ("ADLER32", adler32_text, adler32_text),
        ("crc32c;q=0.5, adler32;q=0.1", crc32c, crc32c),
        ("md5, adler32;q=0.1", adler32_text, md5),
        // Known by now.
        ("md5, adler32;q=0.1", md5, md5),
        ("sha-512", None, None),
        ("SHA-512;q=1, SHA-256;q=1, SHA;q=0.1", None, Some(SHA256)),
    ] {
        for (line, digest) in [("GET /f", to_get), ("HEAD /f", to_head)] {
            let got = server.request(line, &format!("Want-Digest: {want}\r\n"));
            assert_eq!((got.status(), got.field("digest")), (200, digest), "{want}");
        }
    }
    // Of the whole file, also on a part of it.
    let part = server.request("GET /f", "Range: bytes=0-1\r\nWant-Digest: adler32\r\n");
    assert_eq!((part.status(), part.field("digest")), (206, Some("adler32=091e01de")));
    // Never of what the file was.
    server.write("f", b"changed");
    let changed = server.request("HEAD /f", "Want-Digest: adler32\r\n");
    let expected = format!("adler32={:08x}", adler32(b"changed"));
    assert_eq!(changed.field("digest"), Some(expected.as_str()));
}

#[test]
fn both_wishes_are_answered_each_in_its_field_and_with_one_algorithm() {
    const SHA256: &str = "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=";
    let server = TestServer::start();
    server.write("f", b"123456789");
    let sha256 = format!("sha-256=:{SHA256}:");
    // Fields, then Digest and Repr-Digest of a HEAD.
    for (fields, digest, repr_digest) in [
        ("Want-Repr-Digest: adler=10\r\n", None, Some("adler=:CR4B3g==:")),
        ("Want-Repr-Digest: crc32c=3, sha-512=10\r\n", None, Some("crc32c=:4waSgw==:")),
        ("Want-Repr-Digest: md5=1\r\n", None, Some("md5=:JfnnlDI7RTiF9RgfG2JNCw==:")),
        (
            "Want-Digest: ADLER32\r\nWant-Repr-Digest: sha-256=10, md5=1\r\n",
            Some("adler32=091e01de"),
            Some(sha256.as_str()),
        ),
        (
            "Want-Digest: adler32\r\nWant-Repr-Digest: adler=1\r\n",
            Some("adler32=091e01de"),
            Some("adler=:CR4B3g==:"),
        ),
        ("Want-Repr-Digest: sha-256=0\r\n", None, None),
        ("Want-Repr-Digest: Adler=10\r\n", None, None),
        ("Repr-Digest: adler=:CR4B3g==:\r\n", None, None),
    ] {
        let got = server.request("HEAD /f", fields);
        assert_eq!((got.field("digest"), got.field("repr-digest")), (digest, repr_digest), "{fields}");
    }
    let part = server.request("GET /f", "Range: bytes=0-1,3-4\r\nWant-Repr-Digest: adler=1\r\n");
    assert_eq!((part.status(), part.field("repr-digest")), (206, Some("adler=:CR4B3g==:")));
}

#[test]
fn a_checksum_is_computed_once_and_kept_with_the_file() {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"123456789");
    let gate = Gate::new();
    let start = |allow_write: bool| {
        let slow = SlowStorage::new(storage.clone(), gate.clone());
        TestServer::of(Arc::new(slow), |settings| settings.service.exports[0].allow_write = allow_write)
    };
    let want = "Want-Digest: md5, adler32;q=0.5\r\n";
    let md5 = Some("md5=JfnnlDI7RTiF9RgfG2JNCw==");
    // Nothing is kept in an export that no client may write to.
    for (allow_write, reads) in [(false, 1), (true, 2), (true, 2), (false, 2)] {
        assert_eq!(start(allow_write).request("HEAD /f", want).field("digest"), md5);
        assert_eq!(gate.passed(), reads, "{allow_write}");
    }
    // What is kept is told to a GET as well.
    assert_eq!(
        start(false).request("GET /f", "Range: bytes=0-0\r\nWant-Digest: md5\r\n").field("digest"),
        md5
    );
}

#[test]
fn one_computation_serves_all_concurrent_requests() {
    const ASKING: usize = 8;
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"123456789");
    let gate = Gate::new();
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |_| {});
    let mut clients: Vec<Client> = (0..ASKING).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("HEAD /f HTTP/1.1\r\nHost: h\r\nWant-Digest: adler32\r\n\r\n");
    }
    gate.wait_for_waiting(1);
    assert_eq!(server.request("HEAD /f", "").status(), 200, "others are served meanwhile");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response(true).field("digest"), Some("adler32=091e01de"));
    }
    assert_eq!(gate.passed(), 1, "one read for a file of one block");
}

#[test]
fn a_modification_time_that_was_set_back_settles_nothing() {
    let server = TestServer::start();
    server.write("f", b"123456789");
    let old = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let want = "Want-Digest: md5, adler32;q=0.1\r\n";
    // Changed again and again just before it is asked for: never remembered.
    for _ in 0..3 {
        std::fs::File::options().write(true).open(server.path("f")).unwrap().set_modified(old).unwrap();
        assert!(server.request("HEAD /f", want).field("digest").unwrap().starts_with("md5="));
        assert!(server.request("GET /f", want).field("digest").unwrap().starts_with("adler32="));
    }
}

#[test]
fn a_checksum_is_computed_only_while_a_request_waits() {
    const FILE_BYTES: usize = 64 << 20;
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), vec![7; FILE_BYTES]);
    let gate = Gate::new();
    gate.close();
    // One slot: it is free again only when the server knows that the client has left.
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        settings.connections_max = 1;
        settings.deadlines.linger = Duration::from_millis(50);
    });
    let _opens = Opens(gate.clone());
    // What was sent ahead and is not read yet must not hide the end that comes behind it.
    for sent_ahead in ["", "GET /f HTTP/1.1\r\nHost: h\r\n\r\n"] {
        let passed = gate.passed();
        let waiting = {
            let gate = gate.clone();
            std::thread::spawn(move || gate.wait_for_waiting(1))
        };
        let ask = || {
            let mut client = server.connect();
            client.send("HEAD /f HTTP/1.1\r\nHost: h\r\nWant-Digest: adler32\r\n\r\n");
            client.stream.set_nonblocking(true).unwrap();
            client
        };
        let mut client = ask();
        while !waiting.is_finished() {
            // The slot was not free yet, and this one was turned away.
            if client.stream.peek(&mut [0]).is_ok() {
                client = ask();
            }
            std::thread::yield_now();
        }
        client.stream.set_nonblocking(false).unwrap();
        client.send(sent_ahead);
        drop(client);
        let began = Instant::now();
        while server.request("HEAD /f", "").status() != 200 {
            assert!(began.elapsed() < Duration::from_secs(30), "the slot is held");
        }
        gate.open();
        // The one block that was being read is the last.
        let began = Instant::now();
        while gate.passed() == passed {
            assert!(began.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
        gate.close();
    }
    gate.open();
    assert!(gate.passed() < FILE_BYTES / limits::IO_BYTES / 2, "{} blocks read for nobody", gate.passed());
    let (_, log) = server.stop();
    assert_eq!(log.iter().filter(|record| record["status"] == 499).count(), 2, "{log:?}");
}

/// Opens a gate also when a test fails, whose server would wait for ever otherwise.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_get_does_not_wait_for_the_checksum_of_a_large_file() {
    let size = limits::DIGEST_GET_BYTES_MAX as usize;
    let storage = MemoryStorage::new();
    storage.add_file(&path("small"), vec![0; size]);
    storage.add_file(&path("large"), vec![0; size + 1]);
    let gate = Gate::new();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |_| {});
    let _opens = Opens(gate.clone());
    gate.close();
    let want = "Want-Digest: adler32\r\n";
    let mut client = server.connect();
    client.send(format!("GET /large HTTP/1.1\r\nHost: h\r\n{want}\r\n"));
    // The head comes though the disk gives nothing.
    assert!(!client.head().headers.contains("digest"));
    gate.open();
    assert_eq!(client.take(size + 1).len(), size + 1);
    assert_eq!(gate.passed(), size / limits::IO_BYTES + 1, "each block is read once, for the body");
    assert!(server.request("GET /small", want).field("digest").is_some());
    let known = server.request("HEAD /large", want).field("digest").map(str::to_owned);
    assert!(known.is_some());
    assert_eq!(server.request("GET /large", want).field("digest"), known.as_deref(), "known by now");
}

#[test]
fn a_file_that_is_written_to_meanwhile_is_not_sent_to_its_end() {
    const FILE_BYTES: usize = 64 << 20;
    let server = TestServer::start();
    server.write("f", noise(FILE_BYTES, 9));
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, Status::OK);
    let old = UNIX_EPOCH + Duration::from_secs(784_111_777);
    std::fs::File::options().write(true).open(server.path("f")).unwrap().set_modified(old).unwrap();
    assert!(client.rest().len() < FILE_BYTES, "its end would make the mixture look complete");
    let (_, log) = server.stop();
    assert!(log[0]["error"].as_str().unwrap().contains("changed"), "{}", log[0]);
    // A small one is not begun.
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"123456789");
    let server = TestServer::of(Arc::new(FaultyStorage::new(storage, u64::MAX).changing()), |_| {});
    server.request("GET /f", "").assert_refused(Status::SERVICE_UNAVAILABLE, "changed");
}

#[test]
fn a_disk_error_before_the_first_byte_is_an_answer() {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"123456789");
    let server = TestServer::of(Arc::new(FaultyStorage::new(storage, 0).broken()), |_| {});
    let mut client = server.connect();
    for _ in 0..2 {
        client.request("GET /f", "").assert_refused(Status::INTERNAL_SERVER_ERROR, "the storage fails");
    }
}

#[test]
fn a_name_that_points_here_from_elsewhere_is_refused() {
    let server = TestServer::start();
    server.write("f", b"secret");
    for (host, status) in [
        ("localhost", 200),
        ("LocalHost:1094", 200),
        ("127.0.0.1:1094", 200),
        ("[::1]", 200),
        ("evil.example", 421),
        ("evil.example:1094", 421),
        ("", 400),
    ] {
        let got = server.ask(&format!("GET /f HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(got.status(), status, "{host:?}");
        assert_eq!(got.body == b"secret", status == 200, "{host:?}");
    }
    let put = "PUT /g HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n";
    assert_eq!((server.ask(put).status(), server.read("g")), (421, None));
}

#[test]
fn a_query_comes_back_as_ascii() {
    let server = TestServer::start();
    std::fs::create_dir(server.path("d")).unwrap();
    let moved = server.request("GET /d?x=\u{85}\u{e9}", "");
    assert_eq!((moved.status(), moved.field("location")), (301, Some("/d/?x=%C2%85%C3%A9")));
}

#[test]
fn large_listings_take_turns_and_are_whole() {
    let storage = MemoryStorage::new();
    for number in 0..2000 {
        storage.add_file(&path(&format!("{number:04}-{}", "x".repeat(200))), *b"");
    }
    let server = TestServer::of(Arc::new(storage), |settings| {
        settings.service.device.listing_bytes = Share { all: 2 << 20, one: 1 << 20 };
    });
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| server.request("GET /", "Accept: application/json\r\n").body))
            .collect();
        for reader in readers {
            let body = reader.join().unwrap();
            let rows: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap();
            assert_eq!(rows.len(), 2000);
        }
    });
}

#[test]
fn no_way_out() {
    let server = TestServer::start();
    std::fs::write(server.path("../secret"), b"secret").unwrap();
    server.write("f", b"inside");
    std::fs::create_dir(server.path("sub")).unwrap();
    symlink("../f", server.path("sub/in")).unwrap();
    symlink("../../secret", server.path("sub/out")).unwrap();
    symlink("..", server.path("up")).unwrap();
    symlink("/", server.path("root")).unwrap();
    assert_eq!(server.request("GET /sub/in", "").body, b"inside");
    let made = server.request("PUT /made", "Content-Length: 0\r\n");
    assert_eq!(made.status(), 201);
    std::fs::write(server.path(".gridlane/upload-1-1-1.part"), b"partial").unwrap();
    for target in [
        "/../secret",
        "/%2e%2e/secret",
        "/%2E./secret",
        "/sub/../../secret",
        "/sub/%2e%2e/%2e%2e/secret",
        "/..%2fsecret",
        "/sub%2f..%2f..%2fsecret",
        "/%2e%2e%2fsecret",
        "/sub/out",
        "/up/secret",
        "/up/",
        "/root/etc/passwd",
        "/root",
        "/f%00",
        "/%00",
        "/f%",
        "/.gridlane",
        "/.gridlane/",
        "/%2egridlane/upload-1-1-1.part",
        "/.gridlane/upload-1-1-1.part",
        "//.gridlane/",
        "/sub/%252e%252e/secret",
        "/..",
        "/sub/..;/secret",
        "/f/",
        "/f/x",
        "http://h/../secret",
        "/\\..\\secret",
        "/none",
    ] {
        for method in ["GET", "HEAD", "DELETE"] {
            let got = server.request(&format!("{method} {target}"), "");
            assert!(matches!(got.status(), 400 | 404 | 409), "{method} {target}: {}", got.status());
            assert!(!got.text().contains("secret\n"), "{target}");
        }
    }
    for target in ["/up/new", "/root/tmp/gridlane-new", "/../new", "/.gridlane/new", "/%2e%2e/new", "/a%2fb"]
    {
        let got = server.request(&format!("PUT {target}"), "Content-Length: 0\r\n");
        assert!(matches!(got.status(), 400 | 403 | 409), "{target}: {}", got.status());
    }
    assert_eq!(std::fs::read(server.path("../secret")).unwrap(), b"secret");
    assert!(!server.path("../new").exists());
}

#[test]
fn directories() {
    let server = TestServer::start();
    std::fs::create_dir(server.path("sub dir")).unwrap();
    server.write("sub dir/<script>alert(1)<", b"x");
    server.write("sub dir/a&b \"c\"", b"12345");
    server.write("big", vec![0; 1_500_000]);
    let moved = server.request("GET /sub%20dir?x=1", "");
    assert_eq!((moved.status(), moved.field("location")), (301, Some("/sub%20dir/?x=1")));
    let page = server.request("GET /sub%20dir/", "");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.field("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let text = page.text();
    assert!(!text.contains("<script>") && text.contains("&lt;script&gt;alert(1)&lt;"), "{text}");
    assert!(text.contains("href=\"../\"") && text.contains("href=\"a%26b%20%22c%22\""), "{text}");
    let root = server.request("GET /", "").text();
    assert!(root.contains("1.50 MB") && root.contains("href=\"sub%20dir/\""), "{root}");
    assert!(!root.contains("href=\"../\"") && !root.contains(".gridlane"), "{root}");
    let json = server.request("GET /", "Accept: text/html;q=0.1, application/json\r\n");
    let rows: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["type"]), (&"sub dir".into(), &"directory".into()));
    assert_eq!((&rows[1]["name"], &rows[1]["size"]), (&"big".into(), &1_500_000.into()));
    let mut client = server.connect();
    assert_eq!(client.request("HEAD /", "").status(), 200);
    assert_eq!(client.request("GET /big", "Range: bytes=0-0\r\n").status(), 206);
}

#[test]
fn an_uploaded_page_gets_no_origin() {
    let server = TestServer::start();
    server.write("x.html", b"<script>");
    server.write("x.root", b"");
    let page = server.request("GET /x.html", "");
    assert_eq!(page.field("content-security-policy"), Some("sandbox"));
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(server.request("GET /x.root", "").field("content-security-policy"), None);
}

#[test]
fn a_file_that_becomes_shorter_ends_the_connection() {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), noise(1_000_000, 1));
    let server = TestServer::of(Arc::new(FaultyStorage::new(storage, 400_000)), |_| {});
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().content_length().unwrap(), Some(1_000_000));
    assert_eq!(client.rest().len(), 400_000, "no byte is made up");
    let (_, log) = server.stop();
    assert_eq!(log[0]["bytes_out"], 400_000);
    assert!(log[0]["error"].as_str().unwrap().contains("shorter"), "{}", log[0]);
}

#[test]
fn a_slow_disk_delays_no_other_client() {
    let slow = MemoryStorage::new();
    slow.add_file(&path("f"), noise(1_000_000, 2));
    let gate = Gate::new();
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(slow, gate.clone())), |_| {});
    // More than there are runtime threads.
    let mut waiting: Vec<Client> = (0..16).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.head().status, Status::OK);
    }
    gate.wait_for_waiting(16);
    // Another client, for which other turns at the disk are kept.
    let mut client = Client::from([127, 0, 0, 2].into(), server.address);
    for _ in 0..100 {
        assert_eq!(client.request("GET /", "").status(), 200);
    }
    gate.open();
    for mut client in waiting {
        assert!(client.take(1_000_000) == noise(1_000_000, 2));
    }
}

fn path(name: &str) -> ObjectPath {
    ObjectPath::new([name.as_bytes()]).unwrap()
}

#[test]
fn one_connection_sees_every_change_of_a_file_at_once() {
    // In memory, where a file stays open from one request to the next.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let at = |name: &str| directory.path().join(name);
    let storage = gridlane_store::PosixStorage::open(directory.path(), gridlane_store::Durability::File);
    let server = TestServer::of(Arc::new(storage.unwrap()), |_| {});
    let mut client = server.connect();
    std::fs::write(at("f"), "first").unwrap();
    let first = client.request("GET /f", "");
    assert_eq!(first.text(), "first");
    assert_eq!(client.request("GET /f", "").head.etag(), first.head.etag());
    assert_eq!(client.request("GET /f", "Range: bytes=1-2\r\n").text(), "ir");
    let etag = format!("If-None-Match: {}\r\n", first.head.etag().unwrap());
    assert_eq!(client.request("GET /f", &etag).status(), 304);
    std::fs::write(at("f"), "longer than before").unwrap();
    let longer = client.request("GET /f", &etag);
    assert_eq!(longer.text(), "longer than before");
    std::fs::write(at("g"), "another").unwrap();
    std::fs::rename(at("g"), at("f")).unwrap();
    assert_eq!(client.request("GET /f", "").text(), "another");
    assert_eq!(client.request("GET /f/", "").status(), 404);
    std::fs::remove_file(at("f")).unwrap();
    assert_eq!(client.request("GET /f", "").status(), 404);
    std::fs::create_dir(at("f")).unwrap();
    assert_eq!(client.request("GET /f", "").status(), 301);
}
