//! Thousands of clients at once: the crowd is another process (the same program again), so that each of the two needs
//! half of the descriptors.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use gridlane_server::Settings;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Client, TestServer};

/// Their number: ten thousand where the tests may take long.
pub(crate) fn crowd() -> usize {
    if std::env::var_os("GRIDLANE_LONG_TESTS").is_some() { 10_000 } else { 2_000 }
}

/// Descriptors that either side needs: the server has three more for each upload.
fn descriptors() -> u64 {
    let crowd = crowd() as u64;
    crowd + 3 * (crowd / 10) + 500
}

/// For a machine that has a lot else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// Serves another client until all of the crowd were cut; returns the metrics then.
pub(crate) fn until_quiet(server: &TestServer) -> HashMap<String, u64> {
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

/// Has all of the crowd come, with settings that are adjusted for a deadline, until all were there at once: on a machine that
/// has become slower meanwhile, once more with twice as long. `whole` says how many there are then, by metric. Returns the
/// most that each metric was.
pub(crate) fn all_at_once(
    server: &TestServer,
    clients: &mut Crowd,
    whole: &[(&str, usize)],
    mut deadline: Duration,
    adjust: impl Fn(&mut Settings, Duration),
) -> HashMap<String, u64> {
    loop {
        let mut next =
            gridlane_server::settings_of(vec!["127.0.0.1:0".parse().unwrap()], server.export().storage);
        next.service.exports[0].allow_write = true;
        next.host_names = vec!["h".to_owned()];
        adjust(&mut next, deadline);
        server.control().reload(next).unwrap();
        clients.say("round");
        // The last of them are still in the kernel's queue.
        let (came, mut peak) = (Instant::now(), HashMap::<String, u64>::new());
        let are_all_here = |peak: &HashMap<String, u64>| {
            whole.iter().all(|(name, count)| peak.get(*name).is_some_and(|most| *most >= *count as u64))
        };
        while !are_all_here(&peak) && came.elapsed() < 2 * deadline {
            for (name, value) in metrics(server) {
                let most = peak.entry(name).or_default();
                *most = value.max(*most);
            }
        }
        if are_all_here(&peak) {
            return peak;
        }
        let seen: Vec<_> = whole.iter().map(|(name, _)| (name, peak.get(*name))).collect();
        assert!(deadline < PATIENCE / 2, "never all at once: {seen:?}");
        until_quiet(server);
        clients.say("leave");
        deadline *= 2;
    }
}

/// The memory of the server, in bytes, when it is at most so much, or does not become less any more: allocators give back
/// what was freed a little later.
pub(crate) fn memory_given_back(server: &TestServer, most: u64) -> u64 {
    let began = Instant::now();
    loop {
        let bytes = metrics(server)["resident_memory_bytes"];
        if bytes <= most || began.elapsed() > PATIENCE / 5 {
            return bytes;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Everything that is one number.
pub(crate) fn metrics(server: &TestServer) -> HashMap<String, u64> {
    let mut client = Client::connect(server.admin.unwrap());
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let page = client.response(false).text();
    page.lines()
        .filter_map(|line| line.strip_prefix("gridlane_")?.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// Needs root, or a hard limit that is large enough.
pub(crate) fn raise_descriptors() {
    let (limit, needed) = (getrlimit(Resource::Nofile), descriptors());
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    assert!(raised.is_ok(), "this test needs {needed} descriptors: ulimit -n allows {:?}", limit.maximum);
}

/// The other process.
pub(crate) struct Crowd {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Crowd {
    pub(crate) fn start(address: SocketAddr) -> Crowd {
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
    pub(crate) fn say(&mut self, what: &str) {
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

/// Does what the test says on standard input, in the crowd's process; anywhere else, nothing. `come` makes a client: the
/// round and its number say of which kind. A part of them goes on sending, byte by byte, what `is_slow` says of its number.
pub(crate) fn be_the_crowd(
    come: impl Fn(SocketAddr, usize, usize) -> TcpStream,
    is_slow: impl Fn(usize) -> bool,
) {
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
                kept = (0..crowd()).map(|index| come(address, round, index)).collect();
                round += 1;
            }
            Ok(_) => kept.clear(),
            Err(RecvTimeoutError::Timeout) => {
                for (_, slow) in kept.iter_mut().enumerate().filter(|(index, _)| is_slow(*index)) {
                    let _ = slow.write(b"x");
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        println!("\ndone");
    }
}

/// A connection from an address that few others of the crowd have; with little room for what comes if it `takes_nothing`.
pub(crate) fn connect(address: SocketAddr, round: usize, index: usize, takes_nothing: bool) -> TcpStream {
    let source = Ipv4Addr::new(127, 0, 1 + round as u8, 1 + (index * 4 / crowd()) as u8);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    if takes_nothing {
        sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    }
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    // A client that waits for an answer that does not come fails, and with it the test.
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}
