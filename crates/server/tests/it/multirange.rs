//! Several ranges in one request, byte for byte, and a status behind the bytes: over a real connection, from
//! files and from storages that are slow, break, or change meanwhile.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::support::{Response, TestServer, noise};
use gridlane_core::{ByteRange, limits};
use gridlane_dav::multipart_reader::{Event, boundary_of};
use gridlane_dav::{MultipartReader, RangeList, Status};
use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{MemoryStorage, ObjectPath};

const TELL: &str = "TE: trailers\r\nX-Transfer-Status: true\r\n";

#[test]
fn the_bytes_on_the_wire() {
    let server = TestServer::start();
    server.write("f.txt", b"0123456789");
    let mut client = server.connect();
    let got = client.request("GET /f.txt", "Range: bytes=7-8,0-1,-1\r\n");
    assert_eq!((got.status(), got.field("content-range")), (206, None));
    let boundary = boundary_of(got.field("content-type").unwrap()).unwrap();
    assert_eq!(boundary.len(), 32);
    let expected = format!(
        "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 7-8/10\r\n\r\n78\
         \r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 0-1/10\r\n\r\n01\
         \r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 9-9/10\r\n\r\n9\
         \r\n--{boundary}--\r\n"
    );
    assert_eq!(got.text(), expected);
    assert_eq!(got.field("content-length"), Some(expected.len().to_string().as_str()));
    assert!(got.head.etag().is_some() && got.head.last_modified().is_some());
    // The connection goes on, and the next boundary cannot be guessed.
    let again = client.request("GET /f.txt", "Range: bytes=0-0,2-2\r\n");
    assert_ne!(boundary_of(again.field("content-type").unwrap()).unwrap(), boundary);
}

#[test]
fn ranges_that_are_not_answered_in_parts() {
    let server = TestServer::start();
    server.write("f", b"0123456789");
    let etag = server.request("HEAD /f", "").head.etag().unwrap();
    let too_many = vec!["0-0"; limits::RANGES_MAX + 1].join(",");
    for (fields, status, content_range, body) in [
        // One is left: plain.
        ("Range: bytes=2-3,10-,-0\r\n".to_owned(), 206, Some("bytes 2-3/10"), "23"),
        // More than the file, too many, malformed: the file.
        ("Range: bytes=0-9,0-9\r\n".to_owned(), 200, None, "0123456789"),
        (format!("Range: bytes={too_many}\r\n"), 200, None, "0123456789"),
        ("Range: bytes=0-1,3-2\r\n".to_owned(), 200, None, "0123456789"),
        // Of another state of the file.
        ("Range: bytes=0-1,3-4\r\nIf-Range: \"other\"\r\n".to_owned(), 200, None, "0123456789"),
    ] {
        let got = server.request("GET /f", &fields);
        assert_eq!((got.status(), got.field("content-range")), (status, content_range), "{fields:.60}");
        assert_eq!(got.text(), body, "{fields:.60}");
    }
    let got = server.request("GET /f", "Range: bytes=10-10,11-\r\n");
    got.assert_refused(Status::RANGE_NOT_SATISFIABLE, "10 bytes");
    assert_eq!(got.field("content-range"), Some("bytes */10"));
    let same = server.request("GET /f", &format!("Range: bytes=0-1,3-4\r\nIf-Range: {etag}\r\n"));
    assert!(same.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    let head = server.request("HEAD /f", "Range: bytes=0-1,3-4\r\n");
    assert_eq!((head.status(), head.field("content-length")), (200, Some("10")));
    let unchanged = format!("Range: bytes=0-1,3-4\r\nIf-None-Match: {etag}\r\n");
    assert_eq!(server.request("GET /f", &unchanged).status(), 304);
}

/// Reads an answer in parts to the ranges `asked`, in that order, of a file of these bytes.
fn assert_parts(got: &Response, asked: &[ByteRange], file: &[u8]) {
    assert_eq!(got.status(), 206);
    let boundary = boundary_of(got.field("content-type").unwrap()).unwrap();
    let mut reader = MultipartReader::new(&boundary, asked);
    let (mut at, mut parts) = (0, Vec::new());
    loop {
        let (event, used) = reader.step(&got.body[at..]).unwrap();
        at += used;
        match event {
            Event::PartStart(range) => {
                assert_eq!(range.size, Some(file.len() as u64));
                parts.push(range.range);
            }
            Event::Data { offset, bytes } => {
                assert!(file[offset as usize..].starts_with(bytes), "at {offset}");
            }
            Event::PartEnd => {}
            Event::NeedsMore => panic!("ended within the parts"),
            Event::End => break,
        }
    }
    reader.finish().unwrap();
    assert!(reader.missing().is_empty());
    assert_eq!(parts, asked);
}

#[test]
fn vectors_of_every_size_from_every_storage() {
    let file = noise(4_000_000, 11);
    // What davix packs into one header of 3900 bytes; a few larger than the buffer; small and large in turn.
    let many: Vec<_> = (0..256).map(|number| ByteRange::at(number * 15_000, 1000)).collect();
    let large = vec![ByteRange::new(1_000_000, 2_500_000), ByteRange::new(0, 700_000)];
    let mixed: Vec<_> =
        (0..20u64).map(|number| ByteRange::at(number * 190_000, 1 + (number % 3) * 65_536)).collect();
    let tiny = vec![ByteRange::new(0, 1), ByteRange::new(3_999_999, 4_000_000)];
    let plain = TestServer::start();
    plain.write("f", &file);
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), file.clone());
    let slow = SlowStorage::new(memory.clone(), Gate::new());
    let paced = TestServer::of(Arc::new(memory.clone()), |settings| {
        settings.limit_rate_bytes_per_s = Some(50_000_000);
    });
    let servers =
        [plain, TestServer::of(Arc::new(memory), |_| {}), TestServer::of(Arc::new(slow), |_| {}), paced];
    for server in servers {
        let mut client = server.connect();
        for asked in [&many, &large, &mixed, &tiny] {
            let (list, count) = RangeList::batch(asked).unwrap();
            let asked = &asked[..count];
            for fields in ["", TELL] {
                let got = client.request("GET /f", &format!("Range: {list}\r\n{fields}"));
                assert_parts(&got, asked, &file);
                let told = got.trailers.single("x-transfer-status");
                assert_eq!(told, (!fields.is_empty()).then_some("200: OK"));
            }
        }
    }
}

#[test]
fn cold_parts_are_read_once_and_delay_no_other_client() {
    let memory = MemoryStorage::new();
    let file = noise(1_000_000, 12);
    memory.add_file(&path("f"), file.clone());
    let gate = Gate::new();
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(memory, gate.clone())), |_| {});
    let asked: Vec<_> = (0..100).map(|number| ByteRange::at(number * 10_000, 100)).collect();
    let (list, _) = RangeList::batch(&asked).unwrap();
    let mut client = server.connect();
    client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: {list}\r\n\r\n"));
    gate.wait_for_waiting(1);
    // The disk makes no other client wait.
    assert_eq!(server.request("HEAD /f", "").status(), 200);
    gate.open();
    assert_parts(&client.response(false), &asked, &file);
    assert_eq!(gate.passed(), 100, "each part is read once");
}

#[test]
fn a_file_that_changes_meanwhile_is_not_sent_to_its_end() {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), noise(1_000_000, 13));
    let server = TestServer::of(Arc::new(FaultyStorage::new(memory.clone(), u64::MAX).changing()), |_| {});
    // A few bytes are not begun.
    let few = server.request("GET /f", "Range: bytes=0-1,3-4\r\n");
    few.assert_refused(Status::SERVICE_UNAVAILABLE, "changed");
    for range in ["0-199999,200000-399999", "0-19999,500000-519999"] {
        let mut client = server.connect();
        client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={range}\r\n\r\n"));
        let length = client.head().content_length().unwrap().unwrap() as usize;
        assert!(client.rest().len() < length, "{range}");
        // A client that asked for it is told, and may ask again on the same connection.
        let mut client = server.connect();
        for _ in 0..2 {
            let got = client.request("GET /f", &format!("Range: bytes={range}\r\n{TELL}"));
            assert_eq!(got.status(), 206);
            let told = got.trailers.single("x-transfer-status").unwrap();
            assert!(told.starts_with("500: ") && told.contains("changed"), "{told}");
        }
    }
    let (_, log) = server.stop();
    let told =
        |record: &&serde_json::Value| record["error"].as_str().is_some_and(|error| error.contains("changed"));
    assert_eq!(log.iter().filter(told).count(), 1 + 2 * 3, "{log:?}");
}

#[test]
fn a_real_file_that_is_written_to_while_its_parts_are_sent() {
    const FILE_BYTES: usize = 64 << 20;
    let server = TestServer::start();
    server.write("f", noise(FILE_BYTES, 14));
    let half = FILE_BYTES / 2;
    for tell in ["", TELL] {
        let mut client = server.connect();
        let range = format!("Range: bytes={half}-,0-{}\r\n", half - 1);
        client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\n{range}{tell}\r\n"));
        assert_eq!(client.head().status, Status::PARTIAL_CONTENT);
        // More than sockets hold is still to be sent.
        let file = std::fs::File::options().write(true).open(server.path("f")).unwrap();
        file.write_all_at(b"other", 0).unwrap();
        let rest = client_end(&mut client, tell.is_empty());
        assert!(rest.contains("changed") || rest.is_empty(), "{rest}");
        assert_eq!(rest.is_empty(), tell.is_empty());
    }
}

/// The trailer of a body in chunks; nothing when the connection ends before the body does.
fn client_end(client: &mut crate::support::Client, is_cut: bool) -> String {
    if !is_cut {
        client.finish();
    }
    let rest = client.rest();
    assert!(rest.len() < 65 << 20);
    let tail = String::from_utf8_lossy(&rest[rest.len().saturating_sub(200)..]).into_owned();
    tail.rsplit_once("\r\n0\r\n").map(|(_, trailer)| trailer.to_owned()).unwrap_or_default()
}

#[test]
fn a_status_behind_the_bytes() {
    let server = TestServer::start();
    let file = noise(600_000, 15);
    server.write("f", &file);
    server.write("empty", b"");
    let mut client = server.connect();
    let got = client.request("GET /f", TELL);
    assert_eq!((got.status(), got.field("trailer")), (200, Some("X-Transfer-Status")));
    assert_eq!((got.field("transfer-encoding"), got.field("content-length")), (Some("chunked"), None));
    assert!(got.body == file);
    assert_eq!(got.trailers.single("x-transfer-status"), Some("200: OK"));
    let part = client.request("GET /f", &format!("{TELL}Range: bytes=5-400000\r\n"));
    assert_eq!((part.status(), part.field("content-range")), (206, Some("bytes 5-400000/600000")));
    assert!(part.body == file[5..=400_000]);
    let empty = client.request("GET /empty", TELL);
    assert_eq!((empty.body.len(), empty.trailers.single("x-transfer-status")), (0, Some("200: OK")));
    let head = client.request("HEAD /f", TELL);
    assert_eq!((head.field("content-length"), head.field("trailer")), (Some("600000"), None));
    // Only clients that ask for it, and understand it: neon sends TE with everything.
    for fields in
        ["TE: trailers\r\n", "X-Transfer-Status: true\r\n", "TE: trailers\r\nX-Transfer-Status: false\r\n"]
    {
        let got = client.request("GET /f", fields);
        assert_eq!((got.field("content-length"), got.field("trailer")), (Some("600000"), None), "{fields}");
    }
    let old = server.ask(&format!("GET /f HTTP/1.0\r\nHost: h\r\n{TELL}\r\n"));
    assert_eq!((old.field("content-length"), old.body.len()), (Some("600000"), 600_000));
}

#[test]
fn failures_in_the_middle_are_reported_or_cut_and_never_padded() {
    let memory = MemoryStorage::new();
    let file = noise(1_000_000, 16);
    memory.add_file(&path("f"), file.clone());
    for (storage, part) in [
        (FaultyStorage::new(memory.clone(), 400_000), "shorter"),
        (FaultyStorage::new(memory.clone(), 400_000).broken(), "the storage fails"),
    ] {
        let server = TestServer::of(Arc::new(storage), |_| {});
        for range in ["", "Range: bytes=0-299999,300000-399999,400000-500000\r\n"] {
            let got = server.request("GET /f", &format!("{range}{TELL}"));
            let told = got.trailers.single("x-transfer-status").unwrap();
            assert!(told.starts_with("500: ") && told.contains(part), "{told}");
            assert!(got.body.len() < 401_000);
            let mut client = server.connect();
            client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\n{range}\r\n"));
            let length = client.head().content_length().unwrap().unwrap() as usize;
            assert!(client.rest().len() < length);
        }
    }
}

fn path(name: &str) -> ObjectPath {
    ObjectPath::new([name.as_bytes()]).unwrap()
}
