//! The number of threads that clients cost. In a process of its own, so that no other test's threads are counted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "it/support/mod.rs"]
mod support;

use gridlane_core::limits;
use gridlane_dav::Status;
use support::{Client, TestServer};

/// A third of them has an upload each.
const CLIENTS: usize = 600;

#[test]
fn silent_clients_cost_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let server = TestServer::start();
    server.write("f", b"x");
    assert_eq!(server.request("GET /f", "").status(), 200);
    let before = threads();
    let mut silent: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for (number, client) in silent.iter_mut().enumerate() {
        match number % 3 {
            0 => {}
            1 => client.send("GET /f HTTP/1.1\r\n"),
            _ => {
                client.send("PUT /g HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
            }
        }
    }
    for client in silent.iter_mut().skip(2).step_by(3) {
        assert_eq!(client.head().status, Status::CONTINUE);
    }
    assert_eq!(server.request("GET /f", "").status(), 200);
    // Beginning the uploads has taken some threads for a moment, more of them where the machine is busy.
    let most = before + limits::BLOCKING_THREADS_MAX;
    assert!(most < CLIENTS / 3, "else a thread for each upload would not be noticed");
    assert!(threads() <= most, "{} threads, {before} before", threads());
}
