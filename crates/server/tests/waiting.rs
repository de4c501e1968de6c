//! A storage that is far away, where every call takes a while, costs no thread, and slows nothing else. In a process of
//! its own, so that no other test's threads are counted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "it/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_dav::ResourcePath;
use gridlane_server::Export;
use gridlane_share::Share;
use gridlane_store::fake::{Delay, DelayedStorage};
use gridlane_store::{MemoryStorage, ObjectPath};
use gridlane_xrd::flags::{DirlistOptions, OpenMore, OpenOptions};
use gridlane_xrd::request::{About, Dirlist, Open, Read, Stat};
use gridlane_xrd::{Handle, PathArg, PathId};
use support::root::RootClient;
use support::{Client, TestServer};

/// The time that each call takes.
const EACH: Duration = Duration::from_millis(100);

/// Clients that wait at the same time, over HTTP and over root://.
const OVER_HTTP: usize = 300;
const OVER_ROOT: usize = 100;

/// Requests that each of them makes one after the other.
const REQUESTS: usize = 4;

/// Threads that come and go for a moment whatever is served: far fewer than there are requests under way.
const THREADS_SPARE: usize = 24;

fn memory() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.add_directory(&ObjectPath::new([&b"d"[..]]).unwrap());
    storage.add_file(&ObjectPath::new([&b"d"[..], b"f"]).unwrap(), vec![2; 10]);
    storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), vec![1; 4096]);
    storage
}

fn export(path: &str, storage: Arc<dyn gridlane_store::Storage>) -> Export {
    Export { path: ResourcePath::parse(path).unwrap(), allow_write: true, ..Export::new(storage) }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// A client's request over HTTP, by its number.
fn request(number: usize) -> String {
    let line = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    match number % 6 {
        0 => line("GET /slow/f", ""),
        1 => line("GET /slow/f", "Range: bytes=0-9,2000-2009\r\n"),
        2 => line("PROPFIND /slow/d/", "Depth: 1\r\n"),
        3 => line("HEAD /slow/f", "Want-Digest: adler32\r\n"),
        4 => format!("{}new", line(&format!("PUT /slow/new-{number}"), "Content-Length: 3\r\n")),
        _ => line("COPY /slow/f", &format!("Destination: /slow/copy-{number}\r\n")),
    }
}

/// Everything that the other export has to do, over both protocols.
fn use_the_other(server: &TestServer, round: &str) {
    let ask = |line: &str, fields: &str, expected: u16| {
        let mut client = server.connect();
        client.send(format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        let got = client.response(line.starts_with("HEAD"));
        assert_eq!(got.status(), expected, "{round}, {line}: {got:?}");
    };
    ask("GET /fine/f", "", 200);
    ask("GET /fine/", "", 200);
    ask("PROPFIND /fine/", "Depth: 1\r\n", 207);
    ask("HEAD /fine/f", "Want-Digest: md5\r\n", 200);
    ask(&format!("MKCOL /fine/new-{round}"), "", 201);
    ask("COPY /fine/d", &format!("Destination: /fine/copy-{round}\r\n"), 201);
    ask(&format!("DELETE /fine/copy-{round}"), "", 204);
    let mut session = RootClient::connect(server.address);
    let handle = session.open("/fine/f", OpenOptions::READ).unwrap();
    assert_eq!(session.read(handle, 0, 4096).unwrap().len(), 4096, "{round}");
    session.close(handle).unwrap();
    let (options, about) = (DirlistOptions::STAT, PathArg::new("/fine"));
    session.ask(Dirlist { about, options }, &[]).unwrap();
}

#[test]
fn a_storage_that_takes_long_for_every_call_slows_nothing_else_and_costs_no_thread() {
    let delay = Delay::of(EACH);
    let server = TestServer::of(Arc::new(MemoryStorage::new()), |settings| {
        let slow = DelayedStorage::new(Arc::new(memory()), delay.clone());
        settings.service.exports = vec![export("/slow", Arc::new(slow)), export("/fine", Arc::new(memory()))];
        // All clients of this test are one.
        let device = &mut settings.service.device;
        device.digests = Share { all: device.digests.all, one: device.digests.all };
    });
    use_the_other(&server, "before");
    // The time of one of each kind without other requests.
    let began = Instant::now();
    for number in 0..6 {
        let mut client = server.connect();
        client.send(request(number));
        let got = client.response(request(number).starts_with("HEAD"));
        assert!((200..300).contains(&got.status()), "{got:?}");
    }
    let alone = began.elapsed();
    let before = threads();

    let began = Instant::now();
    let mut over_root: Vec<RootClient> =
        (0..OVER_ROOT).map(|_| RootClient::connect(server.address)).collect();
    let opened: Vec<_> = over_root
        .iter_mut()
        .map(|session| {
            let (options, more, about) = (OpenOptions::READ, OpenMore::NONE, PathArg::new("/slow/f"));
            session.send(Open { mode: 0, options, more, template: Handle::default(), about }, &[])
        })
        .collect();
    let mut over_http: Vec<Client> = (0..OVER_HTTP).map(|_| server.connect()).collect();
    for (number, client) in over_http.iter_mut().enumerate() {
        client.send(request(number + 6).repeat(REQUESTS));
    }
    let mut asked = Vec::new();
    for (number, (session, stream)) in over_root.iter_mut().zip(opened).enumerate() {
        let handle = Handle(*session.answer_to(stream).unwrap().body.first_chunk().unwrap());
        let (file, directory) = (PathArg::new("/slow/f"), PathArg::new("/slow"));
        asked.push(match number % 3 {
            0 => session.send(Stat { about: About::Path(file), is_vfs: false, wants: 0 }, &[]),
            1 => session.send(Read { handle, offset: 0, len: 4096, path_id: PathId::MAIN }, &[]),
            _ => session.send(Dirlist { about: directory, options: DirlistOptions::NONE }, &[]),
        });
    }
    // Most of them wait, and everything else goes on meanwhile.
    delay.wait_for(OVER_HTTP / 2);
    use_the_other(&server, "meanwhile");
    let most = before + THREADS_SPARE;
    assert!(most < OVER_HTTP / 2 && threads() <= most, "{} threads, {before} before", threads());

    for (session, stream) in over_root.iter_mut().zip(asked) {
        session.answer_to(stream).unwrap();
    }
    for (number, client) in over_http.iter_mut().enumerate() {
        for _ in 0..REQUESTS {
            let got = client.response(request(number + 6).starts_with("HEAD"));
            assert!((200..300).contains(&got.status()), "{number}: {got:?}");
        }
    }
    // Each takes as long as alone. With the turns that one client has at a disk, sixteen, it would be twelve times as long.
    let together = began.elapsed();
    eprintln!("six requests alone {alone:?}; {OVER_HTTP} clients together {together:?}");
    assert!(together < alone * 4, "{together:?} for all of them, {alone:?} for six alone");
}
