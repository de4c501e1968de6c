//! Ten thousand clients at once that are idle, slow, silent, or take nothing: all are cut in time, somebody else is
//! served meanwhile, and afterwards the server takes what it took before, by its own metrics.
//!
//! In a process of its own, so that nobody else's memory is counted; the crowd is another one (this program again),
//! so that each needs half of the descriptors.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, TestServer};

const CROWD: usize = 10_000;

/// Descriptors that either side needs: the server has three more for each upload.
const DESCRIPTORS: u64 = CROWD as u64 + 3 * (CROWD as u64 / 10) + 500;

/// Of memory that the allocator keeps, in no particular amount. A leak of 2 kB by each client would be more.
const MARGIN_BYTES: u64 = 40 << 20;

/// For a machine that has a lot else to do.
const PATIENCE: Duration = Duration::from_secs(100);

#[test]
fn a_crowd_leaves_no_trace() {
    let data = tempfile::tempdir().unwrap();
    let (cert, key) = gridlane_net::tls::self_signed(data.path(), &["localhost".to_owned()]).unwrap();
    let tls = gridlane_net::tls::server_config(&cert, &key).unwrap();
    let server = TestServer::with(|settings| {
        settings.tls = Some(tls.clone());
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.exports[0].allow_write = true;
        settings.connections_max = CROWD + 100;
        set_deadlines(settings, Duration::from_secs(4));
    });
    raise_descriptors();
    server.write("f", b"x");
    std::fs::File::create(server.path("big")).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(server.request("GET /f", "").status(), 200);
    let mut crowd = Crowd::start(server.address);
    let quiet = until_quiet(&server);
    // The first round shows how fast this machine is, and lets allocators take what they will keep.
    let began = Instant::now();
    crowd.say("round");
    let took = began.elapsed();
    until_quiet(&server);
    crowd.say("leave");
    // The memory of a crowd is given back when it has left.
    std::thread::sleep(2 * gridlane_core::limits::SHRINK_INTERVAL);
    let first = metrics(&server)["resident_memory_bytes"];
    // Longer than it takes for all of them to come, so that all are there at once.
    let deadline = Duration::from_secs(6).max(3 * took);
    let mut next = gridlane_server::Settings::empty(vec!["127.0.0.1:0".parse().unwrap()]);
    next.exports = vec![gridlane_server::Export { allow_write: true, ..server.export() }];
    next.tls = Some(tls);
    next.host_names = vec!["h".to_owned()];
    next.connections_max = CROWD + 100;
    set_deadlines(&mut next, deadline);
    server.control().reload(next).unwrap();
    crowd.say("round");
    // The last of them are still in the kernel's queue.
    let (came, mut peak) = (Instant::now(), HashMap::<String, u64>::new());
    let whole = [("connections_open", CROWD), ("tasks_alive", CROWD), ("uploads_running", CROWD / 10)];
    while !whole.iter().all(|(name, count)| peak.get(*name).is_some_and(|most| *most >= *count as u64)) {
        assert!(came.elapsed() < 2 * deadline, "never all at once: {peak:?}");
        for (name, value) in metrics(&server) {
            let most = peak.entry(name).or_default();
            *most = value.max(*most);
        }
    }
    let last = until_quiet(&server);
    for name in ["tasks_alive", "descriptors_open", "connections_idle", "uploads_running"] {
        assert!(last[name] <= quiet[name] + 2, "{name}: {} before, {} after", quiet[name], last[name]);
    }
    // Given back a little later. As little as after the first round: allocators keep some for ever.
    let small = |server: &TestServer| metrics(server)["resident_memory_bytes"];
    let (before, mut after, left) = (first, small(&server), Instant::now());
    while after > before + MARGIN_BYTES && left.elapsed() < PATIENCE / 5 {
        std::thread::sleep(Duration::from_millis(100));
        after = small(&server);
    }
    assert!(after <= before + MARGIN_BYTES, "{before} bytes before the second round, {after} after it");
    eprintln!(
        "resident: {} at first, {} with the crowd, {before} and {after} after it; {took:?} to come",
        quiet["resident_memory_bytes"], peak["resident_memory_bytes"]
    );
    assert_eq!(server.leftovers(), 0);
    crowd.say("leave");
}

fn set_deadlines(settings: &mut gridlane_server::Settings, deadline: Duration) {
    let deadlines = &mut settings.deadlines;
    (deadlines.detect, deadlines.head, deadlines.idle) = (deadline, deadline, deadline);
    (deadlines.body_stall, deadlines.body_grace) = (deadline, deadline);
    deadlines.linger = Duration::from_millis(100);
}

/// Serves somebody else until all of the crowd were cut; returns the metrics then.
fn until_quiet(server: &TestServer) -> HashMap<String, u64> {
    let began = Instant::now();
    loop {
        let mut other = Client::from([127, 0, 0, 9].into(), server.address);
        let asked = Instant::now();
        let got = other.request("GET /f", "Connection: close\r\n");
        assert_eq!(got.status(), 200, "{}", got.text());
        assert!(asked.elapsed() < PATIENCE / 5, "others wait for {:?}", asked.elapsed());
        assert!(other.is_ended());
        drop(other);
        let metrics = metrics(server);
        // The one that was just here may be ending.
        if metrics["connections_open"] <= 1 {
            return metrics;
        }
        assert!(began.elapsed() < PATIENCE, "{} connections are not cut", metrics["connections_open"]);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Everything that is one number.
fn metrics(server: &TestServer) -> HashMap<String, u64> {
    let mut client = Client::connect(server.admin.unwrap());
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let page = client.response(false).text();
    page.lines()
        .filter_map(|line| line.strip_prefix("gridlane_")?.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// As root, or where the hard limit is large enough.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= DESCRIPTORS) {
        return;
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(DESCRIPTORS));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    assert!(
        raised.is_ok(),
        "this test needs {DESCRIPTORS} descriptors: ulimit -n allows {:?}",
        limit.maximum
    );
}

/// The other process.
struct Crowd {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Crowd {
    fn start(address: SocketAddr) -> Crowd {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_crowd", "--nocapture", "--test-threads", "1"])
            .env("GRIDLANE_CROWD", address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Crowd { child, to, from }
    }

    /// Has it done.
    fn say(&mut self, what: &str) {
        writeln!(self.to, "{what}").unwrap();
        let mut line = String::new();
        while line.trim() != "done" {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the crowd has left");
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the crowd does, as it is told on its standard input. In the process of the test above it does nothing.
#[test]
fn the_crowd() {
    let Ok(address) = std::env::var("GRIDLANE_CROWD") else { return };
    let address: SocketAddr = address.parse().unwrap();
    raise_descriptors();
    let mut kept: Vec<TcpStream> = Vec::new();
    let (told, orders) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            told.send(line.unwrap()).unwrap();
        }
    });
    let mut round = 0;
    loop {
        match orders.recv_timeout(Duration::from_millis(500)).as_deref() {
            Ok("round") => {
                kept = (0..CROWD).map(|index| come(address, round, index)).collect();
                round += 1;
            }
            Ok(_) => kept.clear(),
            Err(RecvTimeoutError::Timeout) => {
                // Another byte of each head that comes byte by byte, until it is not wanted any longer.
                for (_, slow) in kept.iter_mut().enumerate().filter(|(index, _)| index % 10 < 3) {
                    let _ = slow.write(b"x");
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        println!("\ndone");
    }
}

/// One client, of the kind that its number says.
fn come(address: SocketAddr, round: usize, index: usize) -> TcpStream {
    let source = Ipv4Addr::new(127, 0, 1 + round as u8, 1 + (index / 2500) as u8);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let takes_nothing = index % 100 == 8;
    if takes_nothing {
        sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    }
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let mut stream = TcpStream::from(socket);
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
