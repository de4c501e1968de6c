//! A relay between a client and a server: it passes bytes on, counts them, slows them down, tells which end waited for
//! the other, and damages pages of XRootD's protocol.
//!
//! It is written without any of gridlane's code, so that a misunderstanding of the protocol there is not repeated here.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The relay's treatment of passing bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ways {
    /// The time by which bytes of the server are held up.
    pub(crate) delay: Duration,
    /// Bytes per second from the server to the client on each connection; 0: as fast as it goes.
    pub(crate) rate: u64,
    /// Bytes of the server, of all connections, after which it passes on none until [`Relay::go_on`]; 0: it always does.
    pub(crate) holds_after: u64,
    /// The number of answers with pages that get a wrong byte in their first page. Those of a single page, which may
    /// have been asked for again, only when all do.
    pub(crate) damages: usize,
}

/// Bytes from the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Round trips, from the first connection of all on, without which it could not be there.
    pub(crate) round_trips: usize,
    /// Bytes from the server up to here, on all connections.
    pub(crate) bytes: u64,
}

struct Shared {
    server: SocketAddr,
    ways: Ways,
    stopped: AtomicBool,
    /// Waits for [`Relay::go_on`] where bytes are held.
    released: (Mutex<bool>, Condvar),
    connections: AtomicUsize,
    bytes: AtomicU64,
    damaged: AtomicUsize,
    reads: AtomicUsize,
    turns: Mutex<Turns>,
}

/// The turns of waiting. Whatever is sent behind something that was delivered counts as an answer to it: as everything
/// from the server is held up, that is so.
#[derive(Default)]
struct Turns {
    /// Round trips behind what was delivered to the client last.
    delivered: usize,
    arrivals: Vec<Arrival>,
}

/// A running relay; it stops when the value is dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Relay {
    pub(crate) fn to(port: u16, ways: Ways) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: SocketAddr::from(([127, 0, 0, 1], port)),
            ways,
            stopped: AtomicBool::new(false),
            released: Default::default(),
            connections: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            damaged: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            turns: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.stopped.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                // Either end may break a connection.
                std::thread::spawn(move || converse(client, &shared));
            }
        });
        Relay { address, shared }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}//{path}", self.address)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
    }

    /// Bytes from the server so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Relaxed)
    }

    /// Passes on what it gets from now on, on new connections. Those that are there end.
    pub(crate) fn go_on(&self) {
        self.shared.go_on();
    }

    /// Requests for bytes or pages over root:// so far.
    pub(crate) fn reads(&self) -> usize {
        self.shared.reads.load(Relaxed)
    }

    /// Answers that were damaged so far.
    pub(crate) fn damaged(&self) -> usize {
        self.shared.damaged.load(Relaxed)
    }

    /// Everything that came from the server so far.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.turns.lock().unwrap().arrivals.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Relaxed);
        self.shared.go_on();
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn go_on(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }

    /// True until [`Relay::go_on`].
    fn is_to_hold(&self) -> bool {
        self.ways.holds_after > 0 && !*self.released.0.lock().unwrap()
    }

    /// Waits where bytes of a connection from before [`Relay::go_on`] are held. True if they are to be passed on.
    fn passes(&self) -> bool {
        let mut released = self.released.0.lock().unwrap();
        if !*released && self.bytes.load(Relaxed) < self.ways.holds_after {
            return true;
        }
        while !*released {
            released = self.released.1.wait(released).unwrap();
        }
        false
    }
}

fn converse(mut client: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    // Connecting is a round trip.
    let asked = Arc::new(AtomicUsize::new(shared.turns.lock().unwrap().delivered + 1));
    let mut server = TcpStream::connect(shared.server)?;
    shared.connections.fetch_add(1, Relaxed);
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let (answering, asking) = (Arc::clone(shared), Arc::clone(&asked));
    let answers = std::thread::spawn(move || answer(from_server, to_client, &asking, &answering));
    let begun = asked.load(Relaxed);
    let mut requests = Requests::default();
    let mut buf = vec![0; 1 << 16];
    loop {
        match client.read(&mut buf) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                let delivered = shared.turns.lock().unwrap().delivered;
                asked.fetch_max(delivered.max(begun) + 1, Relaxed);
                shared.reads.fetch_add(requests.reads_in(&buf[..count]), Relaxed);
                if server.write_all(&buf[..count]).is_err() {
                    break;
                }
            }
        }
    }
    let _ = server.shutdown(Shutdown::Write);
    let _ = answers.join();
    Ok(())
}

/// From the server to the client.
fn answer(mut server: TcpStream, mut client: TcpStream, asked: &AtomicUsize, shared: &Arc<Shared>) {
    let (late, due) = mpsc::sync_channel::<(Instant, usize, Vec<u8>)>(64);
    let delivering = Arc::clone(shared);
    let may_be_held = shared.is_to_hold();
    let delivery = std::thread::spawn(move || {
        for (at, round_trips, bytes) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if may_be_held && !delivering.passes() {
                break;
            }
            {
                let mut turns = delivering.turns.lock().unwrap();
                let bytes = delivering.bytes.fetch_add(bytes.len() as u64, Relaxed) + bytes.len() as u64;
                turns.delivered = turns.delivered.max(round_trips);
                turns.arrivals.push(Arrival { round_trips, bytes });
            }
            if client.write_all(&bytes).is_err() {
                break;
            }
            if let Some(nanos) = (bytes.len() as u64 * 1_000_000_000).checked_div(delivering.ways.rate) {
                std::thread::sleep(Duration::from_nanos(nanos));
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
    let mut frames = Frames::default();
    let mut buf = vec![0; 1 << 16];
    loop {
        match server.read(&mut buf) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                let mut bytes = buf[..count].to_vec();
                if shared.ways.damages > 0 {
                    frames.pass(&mut bytes, |is_one_page| {
                        let most = shared.ways.damages;
                        let spares = is_one_page && most != usize::MAX;
                        let damages = !spares && shared.damaged.load(Relaxed) < most;
                        shared.damaged.fetch_add(usize::from(damages), Relaxed);
                        damages
                    });
                }
                let at = Instant::now() + shared.ways.delay;
                if late.send((at, asked.load(Relaxed), bytes)).is_err() {
                    break;
                }
            }
        }
    }
    drop(late);
    let _ = delivery.join();
}

/// Finds the requests in what a client sends.
struct Requests {
    head: Vec<u8>,
    /// Bytes up to the next head: first of all the handshake.
    left: usize,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { head: Vec::new(), left: 20 }
    }
}

impl Requests {
    /// The number of requests for bytes or pages whose heads end in these bytes.
    fn reads_in(&mut self, mut bytes: &[u8]) -> usize {
        let mut reads = 0;
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let (head, rest) = bytes.split_at(bytes.len().min(24 - self.head.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if self.head.len() == 24 {
                reads += usize::from(
                    [3013_u16, 3030].map(u16::to_be_bytes).contains(&[self.head[2], self.head[3]]),
                );
                self.left = u32::from_be_bytes(self.head[20..24].try_into().unwrap()) as usize;
                self.head.clear();
            }
        }
        reads
    }
}

/// Finds the pages in what a server sends.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    /// Bytes up to the next head.
    left: u64,
    /// Bytes up to the one that is damaged.
    until: Option<u64>,
}

impl Frames {
    fn pass(&mut self, bytes: &mut [u8], damages: impl Fn(bool) -> bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.left > 0 {
                let count = self.left.min((bytes.len() - at) as u64);
                if let Some(until) = self.until {
                    if until < count {
                        bytes[at + until as usize] ^= 0x10;
                        self.until = None;
                    } else {
                        self.until = Some(until - count);
                    }
                }
                self.left -= count;
                at += count as usize;
                continue;
            }
            self.head.push(bytes[at]);
            at += 1;
            let number = |from: usize| u32::from_be_bytes(self.head[from..from + 4].try_into().unwrap());
            let is_pages = self.head.len() >= 8 && self.head[2..4] == 4007_u16.to_be_bytes();
            match self.head.len() {
                8 if !is_pages => self.left = u64::from(number(4)),
                // 24 bytes about the pages; the length of the pages is at their twelfth.
                32 => {
                    self.left = u64::from(number(20));
                    self.until = (self.left > 10 && damages(self.left <= 4100)).then_some(7);
                }
                _ => continue,
            }
            self.head.clear();
        }
    }
}
