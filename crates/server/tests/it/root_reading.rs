//! Files that are read over root://: which bytes come, in which messages, and what happens when they cannot.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write as _;
use std::sync::Arc;

use crate::support::crowd::{PATIENCE, metrics};
use crate::support::root::RootClient;
use crate::support::{TestServer, noise};
use gridlane_core::limits;
use gridlane_store::fake::{Gate, SlowStorage};
use gridlane_store::{Durability, PosixStorage};
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::request::{Ping, Read, ReadV, Segment};
use gridlane_xrd::{ErrorCode, Handle, PathId, RequestId, Status};

const READ: OpenOptions = OpenOptions::READ;

fn segment(handle: Handle, offset: u64, len: u32) -> Segment {
    Segment { handle, len, offset }
}

/// A server whose every read waits for a gate, with this file in it.
fn slow(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Gate, TestServer) {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join(name), bytes).unwrap();
    let storage = PosixStorage::open(data.path(), Durability::None).unwrap();
    let gate = Gate::new();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |_| {});
    (data, gate, server)
}

#[test]
fn any_range_of_a_file() {
    let server = TestServer::start();
    let bytes = noise(9_000_001, 1);
    server.write("f", &bytes);
    server.write("empty", "");
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    let end = bytes.len() as u64;
    for (offset, len) in [
        (0, 0),
        (0, 1),
        (0, 4096),
        (4090, 12),
        (1, 65_536),
        (1, 65_537),
        (4095, 300_000),
        (100, 2_097_152),
        (0, 9_000_001),
        (0, 20_000_000),
        (end - 1, 1),
        (end - 5, 100),
        (end - 100_000, 200_000),
        (end, 10),
        (end + 4096, 10),
    ] {
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let expected = &bytes[from..(from + len as usize).min(bytes.len())];
        assert!(client.read(handle, offset, len).unwrap() == expected, "read {offset} {len}");
        if len > 0 {
            assert!(client.pgread(handle, offset, len).unwrap() == expected, "pgread {offset} {len}");
        }
    }
    let empty = client.open("/empty", READ).unwrap();
    assert!(client.read(empty, 0, 10).unwrap().is_empty());
    assert!(client.pgread(empty, 0, 10).unwrap().is_empty());
    assert_eq!(client.read(Handle([9; 4]), 0, 1).unwrap_err().0, ErrorCode::FILE_NOT_OPEN);
    assert_eq!(client.pgread(Handle([9; 4]), 0, 1).unwrap_err().0, ErrorCode::FILE_NOT_OPEN);
    assert_eq!(client.pgread(handle, 0, 0).unwrap_err().0, ErrorCode::ARG_INVALID);
    client.close(handle).unwrap();
    assert_eq!(client.read(handle, 0, 1).unwrap_err().0, ErrorCode::FILE_NOT_OPEN);
}

#[test]
fn bytes_that_are_not_in_memory_are_the_same() {
    let bytes = noise(3_000_001, 2);
    let (_data, _gate, server) = slow("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    for (offset, len) in [(0, 3_000_001), (4090, 12), (5, 3_000_000), (2_097_100, 100), (2_999_999, 100)] {
        let expected = &bytes[offset..(offset + len).min(bytes.len())];
        assert!(client.read(handle, offset as u64, len as u32).unwrap() == expected, "{offset} {len}");
        assert!(client.pgread(handle, offset as u64, len as u32).unwrap() == expected, "{offset} {len}");
    }
    let segments: Vec<Segment> = (0..1000).map(|at| segment(handle, at * 2999, 1000)).collect();
    for (at, element) in client.readv(&segments).unwrap().iter().enumerate() {
        assert!(*element == bytes[at * 2999..at * 2999 + 1000]);
    }
}

#[test]
fn many_ranges_at_once() {
    let server = TestServer::start();
    let (one, two) = (noise(5_000_000, 3), noise(100_000, 4));
    server.write("one", &one);
    server.write("two", &two);
    let mut client = RootClient::connect(server.address);
    let handles = [client.open("/one", READ).unwrap(), client.open("/two", READ).unwrap()];
    let segments = [
        segment(handles[0], 0, 10),
        segment(handles[1], 99_990, 10),
        // Twice the same, and overlapping.
        segment(handles[0], 5, 100_000),
        segment(handles[0], 5, 100_000),
        segment(handles[0], 50, 0),
        segment(handles[0], 1000, limits::ROOT_VECTOR_ELEMENT_BYTES_MAX),
        segment(handles[1], 0, 100_000),
        segment(handles[0], 4_999_999, 1),
    ];
    let elements = client.readv(&segments).unwrap();
    for (segment, element) in segments.iter().zip(&elements) {
        let bytes = if segment.handle == handles[0] { &one } else { &two };
        let from = segment.offset as usize;
        assert!(*element == bytes[from..from + segment.len as usize], "{segment:?}");
    }
    let many: Vec<Segment> = (0..1024).map(|at| segment(handles[0], at * 4000, 1000)).collect();
    assert_eq!(client.readv(&many).unwrap().len(), 1024);
    // One that cannot be read, and all are refused; the connection goes on.
    for (wrong, code) in [
        (segment(handles[0], 4_999_999, 2), ErrorCode::FS_ERROR),
        (segment(handles[0], i64::MAX as u64, 2), ErrorCode::FS_ERROR),
        (segment(handles[0], 0, limits::ROOT_VECTOR_ELEMENT_BYTES_MAX + 1), ErrorCode::NO_MEMORY),
        (segment(Handle([9; 4]), 0, 1), ErrorCode::FILE_NOT_OPEN),
    ] {
        assert_eq!(client.readv(&[segment(handles[0], 0, 10), wrong]).unwrap_err().0, code);
    }
    let too_many = vec![segment(handles[0], 0, 1); 1025];
    assert_eq!(client.readv(&too_many).unwrap_err().0, ErrorCode::ARG_TOO_LONG);
    assert_eq!(client.readv(&[]).unwrap_err().0, ErrorCode::ARG_INVALID);
    client.ping().unwrap();
}

#[test]
fn a_slow_disk_holds_up_nothing_but_its_own_read() {
    let bytes = noise(1_000_000, 5);
    let (_data, gate, server) = slow("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    gate.close();
    let read = client.send(Read { handle, offset: 0, len: 1_000_000, path_id: PathId::MAIN }, &[]);
    let small = client.send(Read { handle, offset: 7, len: 10, path_id: PathId::MAIN }, &[]);
    let vector = ReadV { path_id: PathId::MAIN, segments: vec![segment(handle, 3, 5)] };
    let vector = client.send(vector, &[]);
    gate.wait_for_waiting(3);
    // Of this session, and of another client.
    client.ping().unwrap();
    let mut other = RootClient::connect(server.address);
    other.ping().unwrap();
    assert!(other.open("/f", READ).is_ok());
    gate.open();
    let mut seen = std::collections::HashMap::<_, Vec<u8>>::new();
    let mut finished = 0;
    while finished < 3 {
        let answer = client.answer();
        seen.entry(answer.stream).or_default().extend_from_slice(&answer.body);
        finished += usize::from(answer.status == Status::OK);
    }
    assert!(seen[&read] == bytes);
    assert!(seen[&small] == bytes[7..17]);
    assert!(seen[&vector][16..] == bytes[3..8]);
}

#[test]
fn concurrent_reads_are_all_answered() {
    let server = TestServer::start();
    let bytes = noise(1_000_000, 6);
    server.write("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    let mut batch = Vec::new();
    let mut asked = std::collections::HashMap::new();
    // Far more than are taken at a time.
    for number in 0..2000_u32 {
        let (offset, len) = (u64::from(number) * 400, if number % 50 == 0 { 200_000 } else { 1000 });
        let request = Read { handle, offset, len, path_id: PathId::MAIN };
        batch.extend_from_slice(&client.encode(&request.into(), 0));
        asked.insert(
            gridlane_xrd::StreamId([batch[batch.len() - 32], batch[batch.len() - 31]]),
            (offset, len),
        );
    }
    client.send_bytes(&batch);
    while !asked.is_empty() {
        let answer = client.answer();
        assert_eq!(answer.status, Status::OK);
        let (offset, len) = asked.remove(&answer.stream).unwrap();
        let from = offset as usize;
        assert!(answer.body == bytes[from..(from + len as usize).min(bytes.len())]);
    }
}

#[test]
fn a_read_is_of_the_current_bytes() {
    let server = TestServer::start();
    let bytes = noise(1_000_000, 7);
    server.write("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    assert!(client.read(handle, 0, 1000).unwrap() == bytes[..1000]);
    // In place: the same file, and others are its bytes.
    let file = std::fs::File::options().write(true).open(server.path("f")).unwrap();
    file.set_len(500_000).unwrap();
    for (offset, len) in [(0, 1000), (499_990, 1000), (600_000, 1000), (0, 1_000_000), (499_000, 300_000)] {
        let from = offset.min(500_000) as usize;
        let expected = &bytes[from..(from + len as usize).min(500_000)];
        assert!(client.read(handle, offset, len).unwrap() == expected, "{offset} {len}");
        assert!(client.pgread(handle, offset, len).unwrap() == expected, "{offset} {len}");
    }
    assert!(client.readv(&[segment(handle, 0, 1000)]).unwrap()[0] == bytes[..1000]);
    assert_eq!(client.readv(&[segment(handle, 600_000, 1000)]).unwrap_err().0, ErrorCode::FS_ERROR);
    // It grows beyond what it was, as the logs do that are followed.
    std::os::unix::fs::FileExt::write_all_at(&file, b"more", 1_000_000).unwrap();
    assert_eq!(client.read(handle, 1_000_000, 1000).unwrap(), b"more");
    assert_eq!(client.pgread(handle, 999_999, 1000).unwrap(), b"\0more");
    assert_eq!(client.readv(&[segment(handle, 1_000_001, 3)]).unwrap()[0], b"ore");
    // Another name changes nothing.
    std::fs::rename(server.path("f"), server.path("g")).unwrap();
    assert_eq!(client.read(handle, 0, 1_000_004).unwrap().len(), 1_000_004);
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let server = TestServer::with(|settings| {
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.deadlines.body_stall = std::time::Duration::from_secs(1);
    });
    let file = std::fs::File::create(server.path("f")).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    for _ in 0..100 {
        client.send(Read { handle, offset: 0, len: 8 << 20, path_id: PathId::MAIN }, &[]);
    }
    // Another one does not notice. What it asks for fits into the socket, lest it be given up itself on a busy machine.
    let mut other = RootClient::connect(server.address);
    let handle = other.open("/f", READ).unwrap();
    for part in 0..40 {
        assert_eq!(other.read(handle, part * 250_000, 250_000).unwrap().len(), 250_000);
    }
    let began = std::time::Instant::now();
    while metrics(&server)["root_sessions_open"] > 1 {
        assert!(began.elapsed() < PATIENCE, "it is not given up");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The end of all answers comes before the end of what was asked for.
    let mut taken = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut client.stream, &mut buffer) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(cause) => {
                assert_ne!(cause.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(taken < 100 * (8 << 20), "{taken}");
}

#[test]
fn answers_come_on_the_connection_that_they_are_wanted_on() {
    let server = TestServer::start();
    let bytes = noise(5_000_000, 8);
    server.write("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    let mut paths: Vec<_> = (0..3).map(|_| client.bind()).collect();
    assert_eq!(paths.iter().map(|(_, path)| path.0).collect::<Vec<_>>(), [1, 2, 3]);
    for (bound, path_id) in &mut paths {
        let offset = u64::from(path_id.0) * 100;
        let stream = client.send(Read { handle, offset, len: 4_000_000, path_id: *path_id }, &[]);
        let body = bound.answer_to(stream).unwrap().body;
        assert!(body == bytes[offset as usize..offset as usize + 4_000_000]);
        let stream = client.send(
            gridlane_xrd::request::PgRead {
                handle,
                offset,
                len: 300_000,
                path_id: *path_id,
                is_retry: false,
            },
            &[],
        );
        assert!(bound.pages_of(stream, offset).unwrap() == bytes[offset as usize..offset as usize + 300_000]);
    }
    // The main one as well, and one that was never bound.
    assert_eq!(client.read(handle, 0, 10).unwrap(), bytes[..10]);
    let wrong = client.ask(Read { handle, offset: 0, len: 1, path_id: PathId(9) }, &[]);
    assert_eq!(wrong.unwrap_err().0, ErrorCode::ARG_INVALID);
    // Many ranges come on the main one, whatever is said.
    let vector = ReadV { path_id: PathId(1), segments: vec![segment(handle, 3, 5)] };
    assert_eq!(client.ask(vector, &[]).unwrap().body[16..], bytes[3..8]);
    // One that has gone is answered for.
    let (gone, path_id) = paths.remove(1);
    drop(gone);
    for _ in 0..100 {
        let read = Read { handle, offset: 5, len: 100_000, path_id };
        let stream = client.send(read, &[]);
        if let Ok(answer) = client.answer_to(stream) {
            assert!(answer.body == bytes[5..100_005]);
        }
        client.ask(Ping, &[]).unwrap();
    }
    // And its place is there for another.
    assert_eq!(client.bind().1, path_id);
}

/// XRootD takes the data of a write from the connection that it names. Here it is refused, and nothing else ends but that
/// connection.
#[test]
fn data_that_come_elsewhere_are_refused() {
    let server = TestServer::with(|settings| settings.service.exports[0].allow_write = true);
    server.write("f", b"0123456789");
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", OpenOptions::UPDATE).unwrap();
    let (mut bound, path_id) = client.bind();
    for request in [RequestId::WRITE, RequestId::PGWRITE] {
        let mut head = match request {
            RequestId::WRITE => {
                client.encode(&gridlane_xrd::request::Write { handle, offset: 0, path_id }.into(), 0)
            }
            _ => {
                let write = gridlane_xrd::request::PgWrite { handle, offset: 0, path_id, is_retry: false };
                client.encode(&write.into(), 0)
            }
        };
        head[20..24].copy_from_slice(&9_u32.to_be_bytes());
        client.send_bytes(&head);
        assert_eq!(client.answer().status, Status::ERROR);
    }
    // The data may find no receiver.
    let _ = bound.stream.write_all(b"some data");
    client.ask(Ping, &[]).unwrap();
    client.write(handle, 2, b"ab").unwrap();
    client.close(handle).unwrap();
    assert_eq!(server.read("f").unwrap(), b"01ab456789");
}

#[test]
fn reads_on_other_connections_have_a_limit() {
    let server = TestServer::start();
    let bytes = noise(1 << 18, 9);
    server.write("f", &bytes);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", READ).unwrap();
    let (mut bound, path_id) = client.bind();
    let count = limits::ROOT_REQUESTS_MAX + 300;
    for _ in 0..count {
        client.send(Read { handle, offset: 0, len: 1 << 18, path_id }, &[]);
    }
    // Nothing is taken on the other one, so nothing more is looked at on this one.
    let ping = client.send(Ping {}, &[]);
    client.stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let silence = client.try_answer().unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock, "{silence}");
    client.stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    for _ in 0..count {
        assert!(bound.answer().body == bytes);
    }
    assert!(client.answer_to(ping).is_ok());
}
