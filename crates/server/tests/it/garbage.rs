//! Requests with bytes changed, left out and put in: the server answers or hangs up, never panics, never
//! writes what it was not asked to, and serves the next client as if nothing had been.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::time::Duration;

use crate::support::{Random, TestServer};

const SEEDS: [&str; 6] = [
    "GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes=2-5\r\nIf-None-Match: \"x\"\r\n\r\n",
    "HEAD /sub/../f%20g?x=%00 HTTP/1.0\r\nWant-Digest: adler32;q=0.5, md5\r\nConnection: keep-alive\r\n\r\n",
    "PUT /new HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nDigest: adler32=00000001\r\nExpect: 100-continue\r\n\r\nabcde",
    "PUT /new HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "DELETE /new HTTP/1.1\r\nHost: h\r\nIf-Match: *\r\nContent-Length: 0\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET http://h/ HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
];

/// Bytes that are put in: characters that mean something somewhere.
const BYTES: &[u8] = b"\r\n\0 \t:;,/.%0aFf-*\"\\\x16\x7f\x80\xff";

#[test]
fn mangled_requests() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.head = Duration::from_millis(50);
        settings.deadlines.body_stall = Duration::from_millis(50);
        settings.deadlines.linger = Duration::from_millis(50);
    });
    server.write("f", b"untouched");
    let mut random = Random(0x5eed);
    for round in 0..600 {
        let mut request = SEEDS[round % SEEDS.len()].as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(request.len());
            match random.below(3) {
                0 => request[at] = BYTES[random.below(BYTES.len())],
                1 => drop(request.remove(at)),
                _ => request.insert(at, BYTES[random.below(BYTES.len())]),
            }
        }
        let mut client = server.connect();
        // The server may hang up before everything is sent.
        let _ = client.stream.write_all(&request);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        client.rest();
    }
    assert_eq!(server.request("GET /f", "").body, b"untouched");
    let kept = |name: &std::ffi::OsStr| matches!(name.to_str(), Some("f" | ".gridlane"));
    for entry in std::fs::read_dir(server.path("")).unwrap() {
        let name = entry.unwrap().file_name();
        // A mangled target is another name, and its length is that of the body it came with.
        let is_small = std::fs::metadata(server.path("").join(&name)).unwrap().len() <= 5;
        assert!(kept(&name) || is_small, "{name:?}");
    }
    assert_eq!(server.leftovers(), 0);
    server.stop();
}
