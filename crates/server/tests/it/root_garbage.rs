//! Random bytes, and conversations with bytes changed, in every state of a connection over root://: the server answers or
//! hangs up, never panics, never writes what it was not asked to, and serves the next client as if nothing had been.
//!
//! `GRIDLANE_GARBAGE_SECONDS` says for how long; a few seconds if it is not there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../fuzz/targets/src/recorded.rs"]
#[allow(unreachable_pub, reason = "it is a module of another crate")]
mod recorded;

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::crowd::{metrics, until_quiet};
use crate::support::root::RootClient;
use crate::support::{Random, TestServer};
use gridlane_xrd::Status;
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::frame::HANDSHAKE;
use gridlane_xrd::request::Ping;

/// On the slowest of machines.
const ROUNDS_MIN: usize = 200;

#[test]
fn whatever_comes() {
    let server = TestServer::with(|settings| {
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.service.exports[0].allow_write = true;
        let deadlines = &mut settings.deadlines;
        // A client that hangs up is not waited for. Shorter ones would cut those that are slow because this machine is.
        deadlines.linger = Duration::from_millis(50);
    });
    // Garbage that changes an open into one that empties the file may do so: no recorded conversation has this one.
    server.write("untouched", b"untouched");
    server.write("f", b"x");
    let quiet = until_quiet(&server);
    let seconds = std::env::var("GRIDLANE_GARBAGE_SECONDS").map_or(4, |text| text.parse().unwrap());
    let conversations = recorded();
    let (mut random, began, mut rounds) = (Random(0x5eed), Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) || rounds <= ROUNDS_MIN {
        rounds += 1;
        match random.below(5) {
            // From the first byte on.
            0 => {
                let mut client = server.connect();
                let _ = client.stream.write_all(&random.bytes(200));
                hang_up(&mut client.stream);
            }
            // Behind the handshake.
            1 => {
                let mut client = server.connect();
                let _ = client.stream.write_all(&[&HANDSHAKE[..], &random.bytes(200)].concat());
                hang_up(&mut client.stream);
            }
            // In a session, with a file open.
            2 => {
                let mut client = RootClient::connect(server.address);
                let handle = client.open("/untouched", OpenOptions::READ).unwrap();
                let mut request = vec![0, 9, 0x0b, 0xb8 + random.below(33) as u8];
                request.extend_from_slice(&handle.0);
                request.extend_from_slice(&random.bytes(60));
                let _ = client.stream.write_all(&request);
                hang_up(&mut client.stream);
            }
            // What real clients say, with something changed.
            _ => {
                let mut said = conversations[random.below(conversations.len())].clone();
                for _ in 0..=random.below(5) {
                    let at = random.below(said.len().max(1));
                    said.resize(said.len().max(1), 0);
                    match random.below(4) {
                        0 => said[at] = random.below(256) as u8,
                        1 => drop(said.remove(at)),
                        2 => said.truncate(at.max(1)),
                        _ => said.insert(at, random.below(256) as u8),
                    }
                }
                let mut client = server.connect();
                let _ = client.stream.write_all(&said);
                hang_up(&mut client.stream);
            }
        }
        if rounds % 50 == 0 {
            let mut client = RootClient::connect(server.address);
            assert_eq!(client.ask(Ping, b"").unwrap().status, Status::OK);
            assert_eq!(server.request("GET /untouched", "").body, b"untouched");
        }
    }
    server.write("f", b"x");
    let last = until_quiet(&server);
    for name in ["tasks_alive", "root_sessions_open", "root_files_open"] {
        assert!(last[name] <= quiet[name] + 2, "{name}: {} before, {} after", quiet[name], last[name]);
    }
    // Other tests of this process have descriptors too.
    let sockets = sockets_of(server.address);
    assert!(sockets.len() <= 2, "{sockets:#?}");
    assert_eq!(metrics(&server)["root_files_open"], 0);
    assert_eq!(server.request("GET /untouched", "").body, b"untouched");
    eprintln!("{rounds} conversations");
    server.stop();
}

/// The sockets of a server's connections that are not closed.
fn sockets_of(server: SocketAddr) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{:04X}", server.port());
    // Number, local address, remote address, state: not waiting for late packets (06), and not listening (0A).
    let is_open = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1].ends_with(&port) && !["06", "0A"].contains(&words[3])
    };
    all.lines().skip(1).filter(is_open).map(str::to_owned).collect()
}

/// The clients' bytes of the recorded conversations, connection by connection.
fn recorded() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/root");
    let mut found = Vec::new();
    for conversation in recorded::conversations(&dir) {
        let mut connections = std::collections::BTreeMap::<u32, Vec<u8>>::new();
        for said in conversation.said.into_iter().filter(|said| said.is_client) {
            connections.entry(said.connection).or_default().extend(said.bytes);
        }
        found.extend(connections.into_values());
    }
    found
}

/// Says no more, and reads until the server does not either.
fn hang_up(stream: &mut std::net::TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = std::io::copy(stream, &mut std::io::sink());
}
