//! PUT and DELETE over a real connection: what becomes visible and when, and that nothing is left of
//! what does not.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::support::{TestServer, noise};
use gridlane_dav::Status;
use gridlane_store::fake::FaultyStorage;
use gridlane_store::{MemoryStorage, ObjectPath};

fn chunked(bytes: &[u8], chunk: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in bytes.chunks(chunk) {
        wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

#[test]
fn new_and_replaced() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (bytes, status) in [(noise(1_000_000, 1), 201), (noise(300, 2), 204), (Vec::new(), 204)] {
        client.send(format!("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", bytes.len()));
        client.send(&bytes);
        let got = client.response(false);
        assert_eq!(got.status(), status, "{}", got.text());
        assert!(server.read("f").unwrap() == bytes);
        let shown = client.request("GET /f", "");
        assert!(shown.body == bytes);
        assert_eq!(shown.head.etag(), got.head.etag());
    }
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn chunks_of_any_size() {
    let server = TestServer::start();
    let mut client = server.connect();
    let bytes = noise(700_001, 3);
    for chunk in [1000, 4096, 65_536, 1 << 20] {
        client.send("PUT /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(chunked(&bytes, chunk));
        assert!(matches!(client.response(false).status(), 201 | 204));
        assert!(server.read("f").unwrap() == bytes, "{chunk}");
    }
    client.send("PUT /empty HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.response(false).status(), 201);
    assert_eq!(server.read("empty").unwrap(), b"");
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let server = TestServer::start();
    server.write("f", b"old");
    let mut upload = server.connect();
    upload.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n");
    let bytes = noise(600_000, 4);
    upload.send(&bytes[..599_999]);
    assert_eq!(server.request("GET /f", "").body, b"old");
    assert!(!server.request("GET /", "").text().contains("gridlane"));
    upload.send(&bytes[599_999..]);
    assert_eq!(upload.response(false).status(), 204);
    assert!(server.request("GET /f", "").body == bytes);
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    let server = TestServer::start();
    server.write("f", b"old");
    for fields in ["Content-Length: 600000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut upload = server.connect();
        upload.send(format!("PUT /f HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        upload.send(b"4000\r\n");
        upload.send(noise(5000, 5));
        // The client hears of it if it still listens.
        upload.finish();
        upload.response(false).assert_refused(Status::BAD_REQUEST, "ended before");
        assert!(upload.is_ended());
    }
    assert_eq!((server.read("f").unwrap().as_slice(), server.leftovers()), (&b"old"[..], 0));
}

#[test]
fn uploads_that_are_cut_by_the_end_of_the_server_leave_nothing() {
    let mut server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.drain = std::time::Duration::ZERO;
    });
    let mut upload = server.connect();
    upload.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(upload.head().status, Status::CONTINUE);
    assert_eq!(server.leftovers(), 1);
    server.begin_stop();
    assert!(upload.is_ended());
    // Told of its end by the connection's; the file goes in the same moment, or just before.
    let hidden = std::fs::read_dir(server.path(".gridlane")).unwrap();
    let (summary, _) = server.stop();
    assert_eq!(hidden.count(), 0);
    assert_eq!(summary.cut, 1);
}

#[test]
fn a_client_that_asks_first_is_answered_first() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status, Status::CONTINUE);
    client.send("abc");
    assert_eq!(client.response(false).status(), 201);
    // Refusals come instead of the 100, and the body is never asked for.
    for (line, fields, status) in [
        ("PUT /none/f", "", Status::CONFLICT),
        ("PUT /f/", "", Status::CONFLICT),
        ("PUT /f", "If-None-Match: *\r\n", Status::PRECONDITION_FAILED),
        ("PUT /f", "Content-Range: bytes 0-2/10\r\n", Status::BAD_REQUEST),
    ] {
        let got = server.request(line, &format!("Content-Length: 3\r\nExpect: 100-continue\r\n{fields}"));
        assert_eq!(got.head.status, status, "{line} {fields}");
        assert!(!got.head.keeps_alive());
    }
    assert_eq!(server.read("f").unwrap(), b"abc");
}

#[test]
fn uploads_that_are_refused() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].upload_bytes_max = 1000;
    });
    server.write("f", b"old");
    std::fs::create_dir(server.path("sub")).unwrap();
    for (line, fields, status, part) in [
        ("PUT /none/f", "Content-Length: 1\r\n\r\nx", Status::CONFLICT, "does not exist"),
        ("PUT /f/g", "Content-Length: 1\r\n\r\nx", Status::CONFLICT, "does not exist"),
        ("PUT /sub", "Content-Length: 1\r\n\r\nx", Status::CONFLICT, "not a regular file"),
        ("PUT /sub/", "Content-Length: 1\r\n\r\nx", Status::CONFLICT, "slash"),
        ("PUT /", "Content-Length: 1\r\n\r\nx", Status::CONFLICT, "slash"),
        ("PUT /g", "", Status::LENGTH_REQUIRED, "Content-Length"),
        ("PUT /g", "Content-Length: 1001\r\n", Status::CONTENT_TOO_LARGE, "1000 bytes"),
        (
            "PUT /g",
            "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            Status::UNSUPPORTED_MEDIA_TYPE,
            "gzip",
        ),
        (
            "PUT /g",
            "Content-Range: bytes 0-0/5\r\nContent-Length: 1\r\n\r\nx",
            Status::BAD_REQUEST,
            "Content-Range",
        ),
        ("PUT /g", "Transfer-Encoding: chunked\r\n\r\nx\r\n", Status::BAD_REQUEST, "hexadecimal"),
        ("PUT /g", "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", Status::BAD_REQUEST, "longer"),
    ] {
        let got = server.request(line, fields);
        let part = if status == Status::UNSUPPORTED_MEDIA_TYPE { "Content-Encoding" } else { part };
        got.assert_refused(status, part);
    }
    let mut client = server.connect();
    client.send("PUT /g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked(&noise(1001, 6), 300));
    client.response(false).assert_refused(Status::CONTENT_TOO_LARGE, "1000 bytes");
    assert_eq!((server.read("f").unwrap().as_slice(), server.read("g")), (&b"old"[..], None));
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn a_refused_upload_in_full_flight_still_learns_why() {
    let server = TestServer::with(|_| {});
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n");
    client.send(noise(3_000_000, 7));
    let got = client.response(false);
    got.assert_refused(Status::FORBIDDEN, "this export is read-only");
    assert!(client.is_ended());
}

#[test]
fn conditions_protect_files() {
    let server = TestServer::start();
    let put = |fields: &str, body: &str| {
        let fields = format!("{fields}Content-Length: {}\r\n\r\n{body}", body.len());
        server.request("PUT /f", fields.strip_suffix("\r\n").unwrap_or(&fields)).status()
    };
    assert_eq!(put("If-Match: *\r\n", "x"), 412);
    assert_eq!(put("If-None-Match: *\r\n", "one"), 201);
    assert_eq!(put("If-None-Match: *\r\n", "two"), 412);
    let etag = server.request("HEAD /f", "").head.etag().unwrap();
    assert_eq!(put(&format!("If-Match: {etag}\r\n"), "two"), 204);
    assert_eq!(put(&format!("If-Match: {etag}\r\n"), "three"), 412);
    assert_eq!(put("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "three"), 412);
    assert_eq!(server.read("f").unwrap(), b"two");
    assert_eq!(server.request("DELETE /f", &format!("If-Match: {etag}\r\n")).status(), 412);
    // Of two that create the same file, the one that is complete first wins; the other one is told.
    let mut racers = [server.connect(), server.connect()];
    for racer in &mut racers {
        racer.send(
            "PUT /g HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n",
        );
        assert_eq!(racer.head().status, Status::CONTINUE);
    }
    let outcomes = racers.each_mut().map(|racer| {
        racer.send("x");
        racer.response(false).status()
    });
    assert_eq!(outcomes, [201, 412]);
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn nothing_is_replaced_where_the_client_says_so() {
    let server = TestServer::start();
    let put = |field: &str| {
        server.ask(&format!("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nOverwrite: {field}\r\n\r\nx"))
    };
    assert_eq!(put("F").status(), 201);
    server.write("f", "old");
    put("F").assert_refused(Status::CONFLICT, "does not overwrite");
    put("no").assert_refused(Status::BAD_REQUEST, "Overwrite");
    assert_eq!(server.read("f").unwrap(), b"old");
    assert_eq!(put("T").status(), 204);
    // Of two at once, one wins.
    std::fs::remove_file(server.path("f")).unwrap();
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send(
            "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nOverwrite: F\r\nExpect: 100-continue\r\n\r\n",
        );
        assert_eq!(client.head().status, Status::CONTINUE);
    }
    let statuses = clients.map(|mut client| {
        client.send("x");
        client.response(false).status()
    });
    assert_eq!(statuses, [201, 409]);
}

#[test]
fn the_client_s_digests_are_checked() {
    let server = TestServer::start();
    let put = |fields: &str| {
        let text = format!("PUT /f HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: 9\r\n\r\n123456789");
        server.ask(&text)
    };
    for (fields, status) in [
        ("Digest: adler32=091e01de\r\n", 201),
        ("Digest: ADLER32=91E01DE,md5=JfnnlDI7RTiF9RgfG2JNCw==\r\n", 204),
        ("Digest: sha-256=FeKw0+KYMpSVDm41CVUR80l24XbMMPVLYqzGIuzyH+c=\r\n", 400),
        ("Digest: crc32c=e3069283\r\n", 204),
        ("Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n", 204),
        ("Repr-Digest: adler=:CR4B3g==:\r\n", 204),
        ("Digest: unixsum=5\r\n", 204),
        ("OC-Checksum: ADLER32:091e01de\r\n", 204),
        ("OC-Checksum: ADLER32:00000001\r\n", 400),
        ("Digest: adler32=00000001\r\n", 400),
        ("Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 400),
    ] {
        let got = put(fields);
        assert_eq!(got.status(), status, "{fields} {}", got.text());
        if status == 400 {
            got.assert_refused(Status::BAD_REQUEST, "discarded");
        }
    }
    // A trailer counts as well.
    let mut client = server.connect();
    client.send("PUT /g HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nDigest: adler32=1\r\n\r\n");
    assert_eq!(client.response(false).status(), 400);
    assert_eq!((server.read("g"), server.leftovers()), (None, 0));
    // Also one that only the trailer names, if the head says that it may.
    for (digest, status) in [
        ("Digest: crc32c=e3069283", 201),
        ("Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==", 204),
        ("Repr-Digest: md5=:JfnnlDI7RTiF9RgfG2JNCw==:", 204),
        ("Content-Digest: sha-256=:FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=:", 204),
        ("OC-Checksum: MD5:25f9e794323b453885f5181f1b624d0b", 204),
        ("Digest: crc32c=00000000", 400),
        ("Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==", 400),
        ("Content-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:", 400),
    ] {
        let name = digest.split(':').next().unwrap();
        let mut client = server.connect();
        client.send(format!(
            "PUT /t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: {name}\r\n\r\n\
             9\r\n123456789\r\n0\r\n{digest}\r\n\r\n"
        ));
        assert_eq!(client.response(false).status(), status, "{digest}");
    }
    let wanted = put("Want-Digest: adler32\r\n");
    assert_eq!((wanted.status(), wanted.field("digest")), (204, Some("adler32=091e01de")));
    let wanted = put("Want-Digest: md5\r\nWant-Repr-Digest: sha-256=1\r\n");
    assert_eq!(wanted.field("digest"), Some("md5=JfnnlDI7RTiF9RgfG2JNCw=="));
    assert_eq!(wanted.field("repr-digest"), Some("sha-256=:FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=:"));
}

#[test]
fn a_client_may_say_when_the_file_was_changed() {
    let server = TestServer::start();
    let put = |fields: &str| {
        server.ask(&format!("PUT /f HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: 9\r\n\r\n123456789"))
    };
    for (value, modified) in
        [("784111777", "Sun, 06 Nov 1994 08:49:37 GMT"), ("784111777.5", "Sun, 06 Nov 1994 08:49:37 GMT")]
    {
        let got = put(&format!("X-OC-Mtime: {value}\r\n"));
        assert_eq!(got.field("x-oc-mtime"), Some("accepted"));
        let head = server.request("HEAD /f", "Want-Digest: adler32\r\n");
        assert_eq!(head.field("last-modified"), Some(modified));
        assert_eq!(head.head.etag(), got.head.etag());
        assert_eq!(head.field("digest"), Some("adler32=091e01de"));
    }
    for fields in ["", "X-OC-Mtime: -5\r\n", "X-OC-Mtime: now\r\n"] {
        let got = put(fields);
        assert_eq!((got.status(), got.field("x-oc-mtime")), (204, None), "{fields}");
        let head = server.request("HEAD /f", "");
        assert_ne!(head.field("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    }
}

#[test]
fn missing_parents_are_made_where_the_export_does() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].compat.create_parents = true;
    });
    let put = |line: &str| server.ask(&format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"));
    assert_eq!(put("PUT /a/b/f").status(), 201);
    assert_eq!(server.read("a/b/f").unwrap(), b"x");
    assert_eq!(put("PUT /a/b/f/g").status(), 409);
    assert_eq!(put("PUT /a/.gridlane/f").status(), 403);
    assert_eq!(put("PUT /../f").status(), 400);
    // What is refused for another reason makes none.
    assert_eq!(server.request("PUT /c/f", "If-Match: *\r\nContent-Length: 1\r\n").status(), 412);
    assert!(!server.path("c").exists());
}

#[test]
fn a_full_disk_is_507_before_or_during_the_body() {
    let small = MemoryStorage::new().with_capacity(1000);
    let server =
        TestServer::of(Arc::new(small.clone()), |settings| settings.service.exports[0].allow_write = true);
    let refused = server.request("PUT /f", "Content-Length: 1001\r\nExpect: 100-continue\r\n");
    refused.assert_refused(Status::INSUFFICIENT_STORAGE, "space");
    assert!(refused.text().contains("<D:error xmlns:D=\"DAV:\"><D:quota-not-exceeded/></D:error>"));
    // In chunks it is not known before it is too much.
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked(&noise(1001, 9), 300));
    client.response(false).assert_refused(Status::INSUFFICIENT_STORAGE, "quota-not-exceeded");
    let faulty = FaultyStorage::new(MemoryStorage::new(), 1000);
    let server = TestServer::of(Arc::new(faulty), |settings| settings.service.exports[0].allow_write = true);
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n");
    client.send(noise(2_000_000, 8));
    client.response(false).assert_refused(Status::INSUFFICIENT_STORAGE, "space");
    assert_eq!(server.request("GET /f", "").status(), 404);
    assert_eq!(small.file_count(), 0);
}

#[test]
fn an_uploads_digests_are_kept_with_it() {
    let gate = gridlane_store::fake::Gate::new();
    let storage = MemoryStorage::new();
    let start = || {
        let slow = gridlane_store::fake::SlowStorage::new(storage.clone(), gate.clone());
        TestServer::of(Arc::new(slow), |settings| settings.service.exports[0].allow_write = true)
    };
    let server = start();
    let put = "PUT /f HTTP/1.1\r\nHost: h\r\nDigest: crc32c=e3069283\r\nContent-Length: 9\r\n\r\n123456789";
    assert_eq!(server.ask(put).status(), 201);
    let passed = gate.passed();
    // The other server knows only what the storage tells.
    for server in [server, start()] {
        for (want, digest) in [("adler32", "adler32=091e01de"), ("crc32c", "crc32c=e3069283")] {
            let head = server.request("HEAD /f", &format!("Want-Digest: {want}\r\n"));
            assert_eq!(head.field("digest"), Some(digest));
        }
    }
    assert_eq!(gate.passed(), passed, "nothing was read for it");
    assert!(ObjectPath::new([&b"f"[..]]).is_some() && storage.file_count() == 1);
}

#[test]
fn a_digest_that_was_kept_is_never_one_of_other_bytes() {
    let server = TestServer::start();
    let put = "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n123456789";
    assert_eq!(server.ask(put).status(), 201);
    let digest = || {
        let head = server.request("HEAD /f", "Want-Digest: adler32\r\n");
        head.field("digest").map(str::to_owned)
    };
    assert_eq!(digest().as_deref(), Some("adler32=091e01de"));
    // As long, and in the same place; only its time tells, as soon as the kernel's clock has gone on.
    let modified = || std::fs::metadata(server.path("f")).unwrap().modified().unwrap();
    let before = modified();
    while modified() == before {
        server.write("f", b"987654321");
    }
    let expected = format!("adler32={:08x}", gridlane_core::checksum::adler32(b"987654321"));
    assert_eq!(digest(), Some(expected));
}

#[test]
fn removing() {
    let server = TestServer::start();
    server.write("f", b"x");
    server.request("DELETE /f/", "").assert_refused(Status::NOT_FOUND, "no such file");
    assert_eq!(server.request("DELETE /f", "").status(), 204);
    assert_eq!(server.read("f"), None);
    server.request("DELETE /f", "").assert_refused(Status::NOT_FOUND, "no such file");
}

#[test]
fn without_permission_nothing_is_written() {
    let server = TestServer::with(|_| {});
    server.write("f", b"old");
    for request in [
        "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nnew",
        "DELETE /f HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        server.ask(request).assert_refused(Status::FORBIDDEN, "this export is read-only");
    }
    assert_eq!(server.read("f").unwrap(), b"old");
    assert!(!server.path(".gridlane").exists());
}
