//! Servers that do with small files what no server should, and that the caller gets back what is not right.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use gridlane_core::checksum::adler32;
use gridlane_core::limits::SMALL_FETCHERS_MAX;
use gridlane_core::{Checksum, Url};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;

use super::*;

mod limits;

const FILES: usize = 200;
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// What a server does with a request.
enum Reply {
    /// Sends this.
    Send(Vec<u8>),
    /// Sends this and closes.
    Close(Vec<u8>),
    /// Sends this and nothing more, without closing.
    Hang(Vec<u8>),
    /// Sends this, waits for that, and sends the rest.
    Late(Vec<u8>, Box<dyn FnOnce()>, Vec<u8>),
}

/// A request: the number of the file, the number of the request on its connection, from 0, and its head.
struct Seen {
    file: usize,
    nth: usize,
    head: String,
}

struct Server {
    url: Url,
    connections: Arc<AtomicUsize>,
    /// The most requests that were there at once, when one of them was answered.
    ahead: Arc<AtomicUsize>,
}

fn content(file: usize) -> Vec<u8> {
    (0..1000 + file * 37 % 5000).map(|at| (at * 7 + file * 13 + at / 251) as u8).collect()
}

fn good(file: usize) -> Vec<u8> {
    let body = content(file);
    let digest = Checksum::adler32(adler32(&body)).hex();
    with_head(&format!("200 OK\r\nDigest: adler32={digest}\r\nContent-Length: {}", body.len()), &body)
}

fn with_head(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat()
}

impl Server {
    fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse_absolute(&format!("http://{}/t/", listener.local_addr().unwrap())).unwrap();
        let (connections, ahead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, most, answer) = (connections.clone(), ahead.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                count.fetch_add(1, Relaxed);
                let (answer, most) = (answer.clone(), most.clone());
                std::thread::spawn(move || serve(stream, &*answer, &most));
            }
        });
        Server { url, connections, ahead }
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Seen) -> Reply, most: &AtomicUsize) {
    let (mut came, mut buf, mut nth) = (Vec::new(), [0; 65536], 0);
    loop {
        let heads = String::from_utf8_lossy(&came).matches("\r\n\r\n").count();
        most.fetch_max(heads, Relaxed);
        while let Some(end) = came.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(came.drain(..end + 4).collect()).unwrap();
            let file = head.split(' ').nth(1).unwrap().rsplit('f').next().unwrap().parse().unwrap();
            let reply = answer(&Seen { file, nth, head });
            nth += 1;
            let (Reply::Send(bytes) | Reply::Close(bytes) | Reply::Hang(bytes) | Reply::Late(bytes, ..)) =
                &reply;
            if stream.write_all(bytes).is_err() {
                return;
            }
            match reply {
                Reply::Send(_) => {}
                Reply::Late(_, wait, rest) => {
                    wait();
                    if stream.write_all(&rest).is_err() {
                        return;
                    }
                }
                Reply::Close(_) => {
                    // Reads what is there, so that nothing that was sent is lost with it.
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    while matches!(stream.read(&mut buf), Ok(1..)) {}
                    return;
                }
                Reply::Hang(_) => {
                    while matches!(stream.read(&mut buf), Ok(1..)) {}
                    return;
                }
            }
        }
        match stream.read(&mut buf) {
            Ok(count @ 1..) => came.extend_from_slice(&buf[..count]),
            _ => return,
        }
    }
}

/// What became of the files.
#[derive(Default)]
struct Ended {
    /// Whether each was verified.
    copied: BTreeMap<usize, bool>,
    returned: Vec<usize>,
    stopped: usize,
}

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), DEADLINE)
}

async fn fetch(server: &Server, target: &Path) -> Ended {
    fetch_with(server, target, true).await
}

/// With the sizes known from a listing, or not.
async fn fetch_with(server: &Server, target: &Path, has_sizes: bool) -> Ended {
    let small = SmallFiles::new(client(), &Options::default()).unwrap();
    fetch_by(small, server, target, has_sizes).await
}

async fn fetch_by(mut small: SmallFiles, server: &Server, target: &Path, has_sizes: bool) -> Ended {
    let directory = Arc::new(Directory::open(target, Path::new("")).unwrap());
    let mut ended = Ended::default();
    for file in 0..FILES {
        let url = server.url.join(&format!("f{file}")).unwrap();
        let size_bytes = has_sizes.then(|| content(file).len() as u64);
        if !small.takes(&url, size_bytes) {
            ended.returned.push(file);
            continue;
        }
        let (directory, name) = (directory.clone(), format!("f{file}").into());
        small.push(SmallFile { id: file as u64, url, size_bytes, directory, name, modified: None });
    }
    let all = async {
        while let Some(ends) = small.next().await {
            for (id, end) in ends {
                match end {
                    SmallEnd::Copied { report, .. } => {
                        assert_eq!(report.done_bytes, content(id as usize).len() as u64);
                        ended.copied.insert(id as usize, report.verified.is_some());
                    }
                    SmallEnd::Returned => ended.returned.push(id as usize),
                    SmallEnd::Stopped => ended.stopped += 1,
                }
            }
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    ended.returned.sort();
    assert_eq!(ended.copied.len() + ended.returned.len() + ended.stopped, FILES, "each ends once");
    let mut names: Vec<String> = std::fs::read_dir(target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut copied: Vec<String> = ended.copied.keys().map(|file| format!("f{file}")).collect();
    copied.sort();
    assert_eq!(names, copied, "what was returned leaves nothing, what was copied is there");
    for file in ended.copied.keys() {
        assert!(std::fs::read(target.join(format!("f{file}"))).unwrap() == content(*file), "f{file}");
    }
    ended
}

/// With what is not as it should be for files of the given numbers, only those are returned.
async fn odd(numbers: &[usize], odd: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Server {
    let odd_ones = numbers.to_vec();
    let server = Server::start(move |seen| match odd_ones.contains(&seen.file) {
        true => odd(seen.file),
        false => Reply::Send(good(seen.file)),
    });
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch(&server, dir.path()).await;
    assert_eq!(ended.returned, numbers);
    assert!(ended.copied.values().all(|verified| *verified));
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_come_on_few_connections_with_several_under_way() {
    let server = odd(&[], |_| unreachable!()).await;
    // More than a few only where the path seems long, as on a machine with much else to do.
    assert!(server.connections.load(Relaxed) <= SMALL_FETCHERS_MAX, "{:?}", server.connections);
    assert!(server.ahead.load(Relaxed) > 4, "{:?}", server.ahead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_or_elsewhere_is_returned_alone() {
    let refusals = |file| {
        Reply::Send(match file {
            50 => with_head("404 Not Found\r\nContent-Length: 5", b"gone\n"),
            51 => with_head("302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0", b""),
            52 => with_head("200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3", b"abc"),
            53 => with_head("200 OK\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
            54 => with_head("200 OK\r\nContent-Length: 3", b"abc"),
            55 => with_head("206 Partial Content\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3", b"abc"),
            _ => {
                let body = content(file);
                let head = format!(
                    "200 OK\r\nContent-Type: application/metalink4+xml\r\nContent-Length: {}",
                    body.len()
                );
                with_head(&head, &body)
            }
        })
    };
    // On a machine with much else to do the path may seem long, and then there are more from the start.
    let mut fewest = usize::MAX;
    for _ in 0..30 {
        let server = odd(&[50, 51, 52, 53, 54, 55, 120], refusals).await;
        fewest = fewest.min(server.connections.load(Relaxed));
        if fewest <= 4 {
            break;
        }
    }
    assert!(fewest <= 4, "connections go on: {fewest}");
    odd(&[0, 199], refusals).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_returned_and_never_visible() {
    odd(&[0, 77, 199], |file| {
        let mut bytes = good(file);
        *bytes.last_mut().unwrap() ^= 1;
        Reply::Send(bytes)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_answer_costs_its_own_file_only() {
    odd(&[3, 77], |file| Reply::Close(good(file)[..500].to_vec())).await;
    odd(&[0, 1, 2], |_| Reply::Close(Vec::new())).await;
    odd(&[90], |_| Reply::Close(b"HTTP/1.1 nonsense\r\n\r\n".to_vec())).await;
    // More than it announced: the rest is no answer.
    let server = Server::start(|seen| match seen.file {
        100 => Reply::Close([good(100), b"and more".to_vec()].concat()),
        file => Reply::Send(good(file)),
    });
    let dir = tempfile::tempdir().unwrap();
    assert!(fetch(&server, dir.path()).await.returned.len() <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_after_some_answers_gives_all() {
    for (every, says_so) in [(50, true), (50, false), (10, true)] {
        let server = Server::start(move |seen| match (seen.nth + 1).is_multiple_of(every) {
            true if says_so => {
                let text = good(seen.file);
                let at = "HTTP/1.1 200 OK\r\n".len();
                Reply::Close([&text[..at], b"Connection: close\r\n", &text[at..]].concat())
            }
            true => Reply::Close(good(seen.file)),
            false => Reply::Send(good(seen.file)),
        });
        let dir = tempfile::tempdir().unwrap();
        let ended = fetch(&server, dir.path()).await;
        // A server that does not say that it closes may cost the file that it was asked for then.
        let returned_max = if says_so { 0 } else { FILES / every };
        assert!(ended.returned.len() <= returned_max, "{every} {says_so}: {:?}", ended.returned);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_after_each_answer_is_left_to_others() {
    for head in ["HTTP/1.1 200 OK\r\nConnection: close\r\n", "HTTP/1.0 200 OK\r\n"] {
        let server = Server::start(move |seen| {
            let text = good(seen.file);
            Reply::Close([head.as_bytes(), &text["HTTP/1.1 200 OK\r\n".len()..]].concat())
        });
        let dir = tempfile::tempdir().unwrap();
        let ended = fetch(&server, dir.path()).await;
        assert!(server.connections.load(Relaxed) < FILES && !ended.returned.is_empty());
        assert!(server.ahead.load(Relaxed) <= 1, "nothing was asked for ahead");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_take_requests_ahead_is_asked_one_by_one() {
    // It answers what came first of what came together, and throws the rest away.
    let server = Server::start(|seen| match seen.nth {
        0 => Reply::Send(good(seen.file)),
        _ => Reply::Close(good(seen.file)),
    });
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch(&server, dir.path()).await;
    assert!(server.connections.load(Relaxed) < FILES / 2, "{:?}", server.connections);
    assert!(!ended.copied.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_checksums_is_believed_when_it_has_been_asked() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen_heads = heads.clone();
    let server = Server::start(move |seen| {
        seen_heads.lock().unwrap().push(seen.head.clone());
        let body = content(seen.file);
        let sent: &[u8] = if seen.head.starts_with("HEAD") { b"" } else { &body };
        Reply::Send(with_head(&format!("200 OK\r\nContent-Length: {}", body.len()), sent))
    });
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch(&server, dir.path()).await;
    assert_eq!((ended.copied.len(), ended.copied.values().filter(|verified| **verified).count()), (FILES, 0));
    let heads = heads.lock().unwrap();
    assert_eq!(
        heads.iter().filter(|head| head.starts_with("HEAD")).count(),
        3,
        "three times, as for any file"
    );
    assert!(heads.iter().filter(|head| head.contains("Want-Digest")).count() < 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_silent_or_not_there_is_left_to_others() {
    let server = Server::start(|seen| match seen.file {
        100 => Reply::Hang(good(100)[..300].to_vec()),
        file => Reply::Send(good(file)),
    });
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch(&server, dir.path()).await;
    assert!(ended.returned.contains(&100));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse_absolute(&format!("http://{}/t/", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let gone = Server { url, connections: Arc::default(), ahead: Arc::default() };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(fetch(&gone, dir.path()).await.returned.len(), FILES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stopped_leaves_nothing() {
    let server = Server::start(|seen| match seen.file {
        0..10 => Reply::Send(good(seen.file)),
        file => Reply::Hang(good(file)[..300].to_vec()),
    });
    let dir = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(dir.path(), Path::new("")).unwrap());
    let mut small = SmallFiles::new(client(), &Options::default()).unwrap();
    for file in 0..FILES {
        let (url, name) = (server.url.join(&format!("f{file}")).unwrap(), format!("f{file}").into());
        let (size_bytes, directory) = (content(file).len() as u64, directory.clone());
        small.push(SmallFile {
            id: file as u64,
            url,
            size_bytes: Some(size_bytes),
            directory,
            name,
            modified: None,
        });
    }
    let (mut copied, mut stopped) = (0, 0);
    let all = async {
        while let Some(ends) = small.next().await {
            for (_, end) in ends {
                match end {
                    SmallEnd::Copied { .. } => copied += 1,
                    SmallEnd::Returned => panic!("nothing was wrong"),
                    SmallEnd::Stopped => stopped += 1,
                }
            }
            small.stop();
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    assert!(copied >= 1 && copied + stopped == FILES, "{copied} {stopped}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), copied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_unknown_size_come_unless_they_turn_out_to_be_large() {
    let server = Server::start(|seen| match seen.file % 40 {
        20 => {
            Reply::Hang(with_head("200 OK\r\nDigest: adler32=00000001\r\nContent-Length: 99999999999", b"x"))
        }
        _ => Reply::Send(good(seen.file)),
    });
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch_with(&server, dir.path(), false).await;
    assert_eq!(ended.returned, [20, 60, 100, 140, 180]);
    let large = Server::start(|_| {
        Reply::Hang(with_head("200 OK\r\nDigest: adler32=00000001\r\nContent-Length: 99999999999", b"x"))
    });
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(fetch_with(&large, dir.path(), false).await.returned.len(), FILES);
    assert!(large.connections.load(Relaxed) < 10, "{:?}", large.connections);
}
