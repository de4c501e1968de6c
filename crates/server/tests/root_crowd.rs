//! Thousands of clients of root:// at once that stop in the middle of everything: in the handshake, before the login,
//! as idle sessions with open files, as connections that joined a session, in a request, in an upload, and taking
//! nothing. All are cut in time, another client is served meanwhile, and afterwards the server has what it had before.
//!
//! In a process of its own, so that no other test's memory is counted; see `crowd`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "it/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gridlane_xrd::answer::OpenAnswer;
use gridlane_xrd::flags::{OpenMore, OpenOptions};
use gridlane_xrd::frame::{HANDSHAKE, RESPONSE_HEAD_BYTES, ResponseHead};
use gridlane_xrd::request::{Call, Open, Read as ReadFile};
use gridlane_xrd::{Handle, PathArg, PathId, RequestHead, RequestId, Status, StreamId};
use support::TestServer;
use support::crowd::{
    Crowd, all_at_once, be_the_crowd, connect, crowd, memory_given_back, metrics, raise_descriptors,
    until_quiet,
};

/// Of memory that the allocator keeps, in no particular amount. A leak of 2 kB by each client would be more.
const MARGIN_BYTES: u64 = 40 << 20;

/// Of the ten kinds of clients: those that are logged in, and those that have a file open.
fn sessions() -> usize {
    crowd() / 10 * 6
}

fn files() -> usize {
    crowd() / 10 * 4 - crowd() / 100 * 9
}

/// Connections that are enough for a crowd of four addresses that speaks one protocol.
fn room() -> usize {
    crowd() / 2 * 3
}

#[test]
fn a_crowd_leaves_no_trace() {
    let server = TestServer::with(|settings| {
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.service.exports[0].allow_write = true;
        settings.connections_max = room();
        set_deadlines(settings, Duration::from_secs(2));
    });
    raise_descriptors();
    server.write("f", b"x");
    std::fs::File::create(server.path("big")).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(server.request("GET /f", "").status(), 200);
    let mut clients = Crowd::start(server.address);
    let quiet = until_quiet(&server);
    // The first round shows how fast this machine is, and lets allocators take what they will keep.
    let began = Instant::now();
    clients.say("round");
    let took = began.elapsed();
    until_quiet(&server);
    clients.say("leave");
    std::thread::sleep(2 * gridlane_core::limits::SHRINK_INTERVAL);
    let first = metrics(&server)["resident_memory_bytes"];
    // Longer than it takes for all of them to come, so that all are there at once; on a machine that has become slower
    // meanwhile, once more with twice as long.
    let deadline = Duration::from_secs(2).max(3 * took);
    let whole = [
        ("connections_open", crowd()),
        ("tasks_alive", crowd()),
        ("root_sessions_open", sessions()),
        ("root_files_open", files()),
    ];
    let peak = all_at_once(&server, &mut clients, &whole, deadline, |next, deadline| {
        next.connections_max = room();
        set_deadlines(next, deadline);
    });
    let last = until_quiet(&server);
    let names =
        ["tasks_alive", "descriptors_open", "connections_idle", "root_sessions_open", "root_files_open"];
    for name in names {
        assert!(last[name] <= quiet[name] + 2, "{name}: {} before, {} after", quiet[name], last[name]);
    }
    let (before, after) = (first, memory_given_back(&server, first + MARGIN_BYTES));
    eprintln!(
        "resident: {} at first, {} with the crowd, {before} and {after} after it; {took:?} to come",
        quiet["resident_memory_bytes"], peak["resident_memory_bytes"]
    );
    assert!(after <= before + MARGIN_BYTES, "{before} bytes before the second round, {after} after it");
    // Files that were to vanish unless they were closed have done so.
    for index in (7..crowd()).step_by(crowd() / 10) {
        assert!(server.read(&format!("posc{index}")).is_none(), "posc{index} is there");
    }
    assert_eq!(server.leftovers(), 0);
    clients.say("leave");
}

fn set_deadlines(settings: &mut gridlane_server::Settings, deadline: Duration) {
    let deadlines = &mut settings.deadlines;
    (deadlines.detect, deadlines.head, deadlines.idle) = (deadline, deadline, deadline);
    (deadlines.body_stall, deadlines.body_grace, deadlines.root_idle) = (deadline, deadline, deadline);
    deadlines.linger = Duration::from_millis(100);
}

/// The crowd, by orders on its standard input. In the process of the test above it does nothing.
#[test]
fn the_crowd() {
    // Another byte of each request that comes byte by byte.
    be_the_crowd(come, |index| index % 10 == 4);
}

/// One client, of the kind that its number says.
fn come(address: SocketAddr, round: usize, index: usize) -> TcpStream {
    let takes_nothing = index % 100 == 8;
    let mut stream = connect(address, round, index, takes_nothing);
    match index % 10 {
        // Nothing at all; half of the handshake; the handshake; a part of the login.
        0 => {}
        1 => stream.write_all(&HANDSHAKE[..7]).unwrap(),
        2 => stream.write_all(&HANDSHAKE).unwrap(),
        3 => stream.write_all(&beginning()[..60]).unwrap(),
        // A session in the middle of a request.
        4 => {
            log_in(&mut stream);
            stream.write_all(b"\0\x05\x0b\xc2").unwrap();
        }
        // An idle one.
        5 => log_in(&mut stream),
        // With a file open.
        6 => drop(open(&mut stream, "/f", OpenOptions::READ)),
        // In the middle of an upload that is to vanish.
        7 => {
            let options = OpenOptions::NEW | OpenOptions::UPDATE | OpenOptions::POSC;
            // Each round has its own, as the last one's may be there for a moment.
            let handle = open(&mut stream, &format!("/posc{index}?round={round}"), options);
            let write = gridlane_xrd::request::Write { handle, offset: 0, path_id: PathId::MAIN };
            let mut bytes = Vec::new();
            write.encode_for(StreamId([0, 7]), 1_000_000, &mut bytes);
            bytes.extend_from_slice(b"half of it");
            stream.write_all(&bytes).unwrap();
        }
        8 if takes_nothing => {
            let handle = open(&mut stream, "/big", OpenOptions::READ);
            for number in 0..20 {
                let read = ReadFile { handle, offset: number << 20, len: 1 << 20, path_id: PathId::MAIN };
                stream.write_all(&read.to_bytes(StreamId([1, number as u8]))).unwrap();
            }
        }
        8 => log_in(&mut stream),
        // With a file open that it never reads.
        _ => drop(open(&mut stream, "/big", OpenOptions::READ | OpenOptions::SEQUENTIAL)),
    }
    stream
}

/// Handshake, protocol and login.
fn beginning() -> Vec<u8> {
    let mut bytes = HANDSHAKE.to_vec();
    for (id, body) in [
        (RequestId::PROTOCOL, *b"\0\0\x05\x11\0\0\0\0\0\0\0\0\0\0\0\0"),
        (RequestId::LOGIN, *b"\0\0\0\x01tester\0\0\0\0\x85\0"),
    ] {
        bytes.extend_from_slice(&RequestHead { stream: StreamId([0; 2]), id, body, payload_len: 0 }.encode());
    }
    bytes
}

fn log_in(stream: &mut TcpStream) {
    stream.write_all(&beginning()).unwrap();
    for _ in 0..3 {
        answer(stream);
    }
}

fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; RESPONSE_HEAD_BYTES];
    stream.read_exact(&mut head).unwrap();
    let head = ResponseHead::parse(&head).unwrap();
    let mut body = vec![0; head.len as usize];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(head.status, Status::OK, "{}", String::from_utf8_lossy(&body));
    body
}

fn open(stream: &mut TcpStream, path: &str, options: OpenOptions) -> Handle {
    log_in(stream);
    let about = PathArg::parse(path.as_bytes());
    let open = Open { mode: 0o644, options, more: OpenMore::NONE, template: Handle::default(), about };
    stream.write_all(&open.to_bytes(StreamId([0, 1]))).unwrap();
    OpenAnswer::parse(&answer(stream)).unwrap().handle
}
