//! Many copies at once: they cost bounded threads, descriptors and memory, which come back, and nothing of what others ask
//! for.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::asking::{Asking, Home};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{assert_same, content, secrets, until};

/// A source that takes every connection, and never says anything.
struct Silence {
    address: String,
    taken: Arc<Mutex<Vec<TcpStream>>>,
    is_over: Arc<AtomicBool>,
}

impl Silence {
    fn start() -> Silence {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (taken, is_over) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::<AtomicBool>::default());
        let (into, ends) = (Arc::clone(&taken), Arc::clone(&is_over));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ends.load(Relaxed) {
                    return;
                }
                into.lock().unwrap().push(stream);
            }
        });
        Silence { address, taken, is_over }
    }

    fn connections(&self) -> usize {
        self.taken.lock().unwrap().len()
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

/// What a process has at one moment.
#[derive(Clone, Copy, Debug)]
struct Held {
    threads: u64,
    descriptors: u64,
    resident_bytes: u64,
}

impl Held {
    fn of(server: &Server) -> Held {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
        Held { threads: number("Threads:"), descriptors, resident_bytes: number("VmRSS:") * 1024 }
    }

    fn most(self, other: Held) -> Held {
        Held {
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
        }
    }
}

/// Asks for a small file again and again until the end of something, and looks at what the server holds meanwhile; returns that
/// and the longest time until an answer.
fn beside(server: &Server, mut is_over: impl FnMut() -> bool) -> (Held, Duration) {
    let (mut most, mut longest) = (Held::of(server), Duration::ZERO);
    let began = Instant::now();
    while !is_over() {
        assert!(began.elapsed() < Duration::from_secs(150), "it does not end");
        let asked = Instant::now();
        let answered = Asking::with("GET", &server.url("beside"), &[]).end();
        assert_eq!(answered.status, 200, "{answered:?}");
        longest = longest.max(asked.elapsed());
        most = most.most(Held::of(server));
        std::thread::sleep(Duration::from_millis(50));
    }
    (most, longest)
}

/// Enough descriptors for clients of this many copies.
fn let_many_be_open() {
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

#[test]
fn a_thousand_copies_and_silent_ones_cost_what_they_may_and_it_comes_back() {
    const COPIES: usize = 1000;
    const SILENT: usize = 200;
    const BYTES: usize = 1_000_000;
    let_many_be_open();
    let (source, home) = (Home::new(), Home::new());
    let bytes = content(9701, BYTES);
    source.put("f", &bytes);
    home.put("beside", b"beside");
    let _source = source.start(&["--max-connections", "8192"]);
    let server = home.start(&["--max-connections", "8192", "--client-connections", "8192"]);
    let from = format!("Source: {}", source.url("f"));
    // What the first few cost is there for good.
    let copy = |number: usize| Asking::copy(&home.url(&format!("f{number}")), &[&from]);
    let first: Vec<Asking> = (0..20).map(copy).collect();
    first.into_iter().for_each(|asked| asked.end().succeeds());
    let before = Held::of(&server);
    let silence = Silence::start();
    let never = format!("Source: http://{}/f", silence.address);
    let silent: Vec<Asking> =
        (0..SILENT).map(|number| Asking::copy(&home.url(&format!("s{number}")), &[&never])).collect();
    until("silent sources are asked", || silence.connections() > 10);
    let copies: Vec<Asking> = (0..COPIES).map(copy).collect();
    let (most, longest) = beside(&server, || copies.iter().all(Asking::has_ended));
    for (number, asked) in copies.into_iter().enumerate() {
        asked.end().succeeds();
        assert_same(&fs::read(home.exported(&format!("f{number}"))).unwrap(), &bytes);
    }
    assert!(silent.iter().all(|asked| !asked.has_ended()), "silence is not an end so soon");
    // One thread for each would be more, and so would a buffer of a megabyte for each.
    let threads_max = gridlane_core::limits::BLOCKING_THREADS_MAX as u64 + 40;
    assert!(most.threads < before.threads + threads_max, "{most:?}, {before:?}");
    assert!(threads_max < (SILENT as u64) || most.threads < SILENT as u64, "{most:?}");
    // Each client has a connection, and those that move have a few descriptors each; a second one of each that waits would be more.
    let descriptors_max = (COPIES + SILENT + 800) as u64;
    assert!(most.descriptors < before.descriptors + descriptors_max, "{most:?}, {before:?}");
    assert!(most.resident_bytes < before.resident_bytes + (400 << 20), "{most:?}, {before:?}");
    assert!(longest < Duration::from_secs(10), "{longest:?} for a small file");
    silent.into_iter().for_each(Asking::leave);
    until("descriptors come back", || Held::of(&server).descriptors < before.descriptors + 60);
    until("hidden files are gone", || home.hidden().is_empty());
    let after = Held::of(&server);
    assert!(after.resident_bytes < before.resident_bytes + (150 << 20), "{after:?}, {before:?}");
    assert!(home.visible().iter().all(|name| !name.starts_with('s')));
}

#[test]
fn copies_beyond_those_that_may_be_are_told_to_come_again() {
    const COPIES: usize = 10;
    let home = Home::new();
    let server = home.start(&["--tpc-copies", "10", "--admin", "127.0.0.1:0"]);
    let silence = Silence::start();
    let from = format!("Source: http://{}/f", silence.address);
    // One client may have half of them.
    let copy = |number: usize| Asking::copy(&home.url(&format!("f{number}")), &[&from]);
    let asked: Vec<Asking> = (0..COPIES / 2).map(copy).collect();
    let running = || {
        let (_, page) = secrets::metrics(&server.admin());
        let page = String::from_utf8_lossy(&page).into_owned();
        page.contains(&format!("gridlane_third_party_copies_running {}\n", COPIES / 2))
    };
    until("all of them run", running);
    let refused = copy(COPIES).end();
    refused.refused(503, &["too many third-party copies"]);
    assert!(refused.text.contains("\r\nRetry-After: "), "{refused:?}");
    asked.into_iter().for_each(Asking::leave);
    until("a place is free", || !running());
    let bytes = content(9702, 1000);
    let right = Object::new(&bytes);
    let right = Rogue::start(move |request| right.answer(request));
    let mut last = None;
    until("the next one may come", || {
        let answered = Asking::copy(&home.url("f"), &[&format!("Source: {}", right.url("f"))]).end();
        last = Some(answered.status);
        answered.status == 202
    });
    assert_eq!(fs::read(home.exported("f")).unwrap(), *bytes, "{last:?}");
}
