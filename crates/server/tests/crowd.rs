//! Thousands of clients at once that are idle, slow, silent, or take nothing: all are cut in time, another client is
//! served meanwhile, and afterwards the server takes what it took before, by its own metrics.
//!
//! In a process of its own, so that no other test's memory is counted; the crowd is another one (this program again),
//! so that each needs half of the descriptors.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "it/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use support::TestServer;
use support::crowd::{
    Crowd, all_at_once, be_the_crowd, connect, crowd, memory_given_back, metrics, raise_descriptors,
    until_quiet,
};

/// Of memory that the allocator keeps, in no particular amount. A leak of 2 kB by each client would be more.
const MARGIN_BYTES: u64 = 40 << 20;

/// Connections that are enough for a crowd of four addresses that speaks one protocol.
fn room() -> usize {
    crowd() / 2 * 3
}

#[test]
fn a_crowd_leaves_no_trace() {
    let data = tempfile::tempdir().unwrap();
    let (cert, key) = gridlane_net::tls::self_signed(data.path(), &["localhost".to_owned()]).unwrap();
    let tls = gridlane_net::tls::server_config(&cert, &key, false).unwrap();
    let server = TestServer::with(|settings| {
        settings.tls = Some(tls.clone());
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
    // The memory of a crowd is given back when it has left.
    std::thread::sleep(2 * gridlane_core::limits::SHRINK_INTERVAL);
    let first = metrics(&server)["resident_memory_bytes"];
    // Longer than it takes for all of them to come, so that all are there at once; on a machine that has become slower
    // meanwhile, once more with twice as long.
    let deadline = Duration::from_secs(2).max(3 * took);
    let whole = [("connections_open", crowd()), ("tasks_alive", crowd()), ("uploads_running", crowd() / 10)];
    let peak = all_at_once(&server, &mut clients, &whole, deadline, |next, deadline| {
        next.tls = Some(tls.clone());
        next.connections_max = room();
        set_deadlines(next, deadline);
    });
    let last = until_quiet(&server);
    for name in ["tasks_alive", "descriptors_open", "connections_idle", "uploads_running"] {
        assert!(last[name] <= quiet[name] + 2, "{name}: {} before, {} after", quiet[name], last[name]);
    }
    // Given back a little later. As little as after the first round: allocators keep some for ever.
    let (before, after) = (first, memory_given_back(&server, first + MARGIN_BYTES));
    assert!(after <= before + MARGIN_BYTES, "{before} bytes before the second round, {after} after it");
    eprintln!(
        "resident: {} at first, {} with the crowd, {before} and {after} after it; {took:?} to come",
        quiet["resident_memory_bytes"], peak["resident_memory_bytes"]
    );
    assert_eq!(server.leftovers(), 0);
    clients.say("leave");
}

fn set_deadlines(settings: &mut gridlane_server::Settings, deadline: Duration) {
    let deadlines = &mut settings.deadlines;
    (deadlines.detect, deadlines.head, deadlines.idle) = (deadline, deadline, deadline);
    (deadlines.body_stall, deadlines.body_grace) = (deadline, deadline);
    deadlines.linger = Duration::from_millis(100);
}

/// The crowd, by orders on its standard input. In the process of the test above it does nothing.
#[test]
fn the_crowd() {
    // Another byte of each head that comes byte by byte, until it is not wanted any longer.
    be_the_crowd(come, |index| index % 10 < 3);
}

/// One client, of the kind that its number says.
fn come(address: SocketAddr, round: usize, index: usize) -> TcpStream {
    let takes_nothing = index % 100 == 8;
    let mut stream = connect(address, round, index, takes_nothing);
    let said: &[u8] = match index % 10 {
        // Heads that come byte by byte, see below, or stop.
        0..3 => b"GET /f HTTP/1.1\r\nX-Slow: ",
        3..5 => b"GET /f HTTP/1.1\r\nHost: h\r\n",
        // A handshake that stops.
        5 => b"\x16\x03\x01\x02\x00",
        // Half a body.
        6 => b"PUT /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nhalf of it",
        // Idle after a request.
        7 => b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n",
        // Takes nothing. The kernel keeps 3 MB for each, and has no more than a few GB for all.
        8 if takes_nothing => b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n",
        // Nothing at all.
        _ => b"",
    };
    stream.write_all(said).unwrap();
    if index % 10 == 7 {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    stream
}
