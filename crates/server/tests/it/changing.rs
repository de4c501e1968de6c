//! Files that change while they are read: bytes that stay as they are go on to their end, whatever becomes of the file's
//! name; and an answer that is complete is one version of the file.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{Client, TestServer, noise};
use gridlane_dav::Status;
use gridlane_store::{Durability, PosixStorage};
use tempfile::TempDir;

/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than the sockets of a client that does not read take.
const LARGE_BYTES: usize = 24 << 20;

/// Makes a file look unchanged for long.
fn make_old(path: &Path) {
    let hour = Duration::from_secs(3600);
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - hour).unwrap();
}

fn begin(server: &TestServer, line: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(client.head().status, Status::OK);
    client
}

#[test]
fn renames_and_removals_do_not_end_a_running_get() {
    type Event = fn(&TestServer);
    let events: [(&str, Event); 6] = [
        ("replaced by a rename", |server| {
            server.write("new", "new");
            fs::rename(server.path("new"), server.path("f")).unwrap();
        }),
        ("replaced by a PUT", |server| {
            let put = "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nnew";
            assert_eq!(server.ask(put).status(), 204);
        }),
        ("removed", |server| fs::remove_file(server.path("f")).unwrap()),
        ("moved away", |server| fs::rename(server.path("f"), server.path("g")).unwrap()),
        ("of another mode", |server| {
            fs::set_permissions(server.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
        }),
        ("linked", |server| fs::hard_link(server.path("f"), server.path("g")).unwrap()),
    ];
    let bytes = noise(LARGE_BYTES, 1);
    for (event, happens) in events {
        for is_old in [false, true] {
            let server = TestServer::start();
            server.write("f", &bytes);
            if is_old {
                make_old(&server.path("f"));
            }
            let mut client = begin(&server, "GET /f");
            happens(&server);
            assert!(client.take(LARGE_BYTES) == bytes, "{event}, {is_old}");
        }
    }
}

#[test]
fn a_file_that_is_written_to_is_not_sent_to_its_end() {
    type Event = fn(&File);
    let events: [(&str, Event); 3] = [
        ("at its beginning", |file| file.write_all_at(b"x", 0).unwrap()),
        ("behind its end", |file| file.write_all_at(b"x", LARGE_BYTES as u64).unwrap()),
        ("at its end", |file| file.write_all_at(b"x", LARGE_BYTES as u64 - 1).unwrap()),
    ];
    for (event, happens) in events {
        for is_old in [false, true] {
            let server = TestServer::start();
            server.write("f", vec![0; LARGE_BYTES]);
            if is_old {
                make_old(&server.path("f"));
            }
            let mut client = begin(&server, "GET /f");
            happens(&File::options().write(true).open(server.path("f")).unwrap());
            assert!(client.rest().len() < LARGE_BYTES, "{event}, {is_old}");
            let (_, log) = server.stop();
            assert!(log[0]["error"].as_str().unwrap().contains("changed"), "{event}: {}", log[0]);
        }
    }
}

/// Bytes that the server has sent wait in the kernel for their client. Those of a file that was changed a moment ago are
/// no part of the file any more.
#[test]
fn sent_bytes_of_a_recent_file_do_not_change_on_their_way() {
    const FILE_BYTES: usize = 256 * 1024;
    for directory in ["/dev/shm", "/tmp"] {
        let (_kept, server, path) = on(directory);
        fs::write(&path, vec![1; FILE_BYTES]).unwrap();
        let mut client = server.connect();
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
        // All of it is in the socket.
        let began = Instant::now();
        while server.answered() == 0 {
            assert!(began.elapsed() < PATIENCE, "it is not answered");
            std::thread::yield_now();
        }
        File::options().write(true).open(&path).unwrap().write_all_at(&vec![2; FILE_BYTES], 0).unwrap();
        assert!(client.response(false).body == vec![1; FILE_BYTES], "{directory}");
    }
}

/// A server of a directory there, and a file in it.
fn on(directory: &str) -> (TempDir, TestServer, PathBuf) {
    let directory = tempfile::tempdir_in(directory).or_else(|_| tempfile::tempdir()).unwrap();
    let storage = PosixStorage::open(directory.path(), Durability::None).unwrap();
    let path = directory.path().join("f");
    (directory, TestServer::of(Arc::new(storage), |_| {}), path)
}

/// A program changes all bytes of a file in place, by one call each time, with pauses of any length. Whatever comes whole is
/// of one kind.
#[test]
fn a_complete_answer_is_one_version() {
    for (directory, file_bytes) in
        [("/dev/shm", 10_000), ("/dev/shm", 3_000_000), ("/tmp", 10_000), ("/tmp", 3_000_000)]
    {
        let (_kept, server, path) = on(directory);
        fs::write(&path, vec![0; file_bytes]).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                for turn in 0u8..=255 {
                    file.write_all_at(&vec![turn; file_bytes], 0).unwrap();
                    // From none to a few milliseconds, in an order that no client keeps step with.
                    std::thread::sleep(Duration::from_micros(u64::from(turn.wrapping_mul(97)) * 20));
                }
                is_over.store(true, Ordering::Release);
            });
            let mut whole = 0;
            // One more after the last change: that has to be complete.
            loop {
                let was_over = is_over.load(Ordering::Acquire);
                let mut client = server.connect();
                client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
                let head = client.head();
                let body = client.rest();
                let is_whole = head.status == Status::OK && body.len() == file_bytes;
                if is_whole {
                    whole += 1;
                    let first = body[0];
                    assert!(body.iter().all(|byte| *byte == first), "{directory}: a mixture");
                }
                assert!(is_whole || head.status == Status::SERVICE_UNAVAILABLE || head.status == Status::OK);
                if was_over {
                    assert!(is_whole && whole > 0);
                    break;
                }
            }
        });
    }
}

#[test]
fn a_file_that_grows_all_the_time_can_be_read_as_far_as_it_is_there() {
    let (_kept, server, path) = on("/dev/shm");
    let bytes = noise(1000, 3);
    fs::write(&path, &bytes).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().append(true).open(&path).unwrap();
            while !is_over.load(Ordering::Acquire) {
                std::io::Write::write_all(&mut &file, b"one more line\n").unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let mut client = server.connect();
        let (began, mut asked, mut whole) = (Instant::now(), 0, 0);
        let mut is_right = true;
        // Until one has fallen between two changes.
        while is_right && (asked < 100 || whole == 0 && began.elapsed() < PATIENCE) {
            let answer = client.request("GET /f", "Range: bytes=0-999\r\n");
            asked += 1;
            // An answer that the file grew under is refused: it cannot be known that nothing else happened.
            is_right = match answer.status() {
                206 => answer.body == bytes,
                status => status == 503,
            };
            whole += usize::from(answer.status() == 206);
        }
        is_over.store(true, Ordering::Release);
        assert!(is_right && whole > 0, "{whole} of {asked}");
    });
}
