//! What is sent through an emulated network to see what becomes of it.
//!
//! Every sender and every receiver is a [`Worker`]: a thread at a site, which ends when it is told to and tells
//! what it found. It is never waited for without a deadline, and none of its own waits is longer than
//! [`PATIENCE`].
//!
//! Receivers measure: what a sender has handed to its kernel says little of what arrived.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::statistics::Sample;
use crate::emulation::Emulation;

/// The longest that a thread waits before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// A connection has to be made, and a thread has to end, in this time. Ten round trips of the longest path.
const DEADLINE: Duration = Duration::from_secs(5);

/// Interval at which a receiver notes its bytes.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

const WRITE_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 1024 * 1024;

/// A prime, so that what is written at one place of a packet is not what is written at that of another one.
const PATTERN_BYTES: usize = 65_521;

/// Of a packet whose loss is looked for, beyond its number: small ones, because every one costs the same.
const NUMBERED_BYTES: usize = 100;

/// Numbered packets that may be on their way: far below the queues of the devices (10 000 packets), and what a
/// socket's 4 MiB hold (some 800 bytes of memory a packet).
const NUMBERED_UNDERWAY_MAX: u64 = 2000;

/// Size that a socket asks for to hold them; the kernel may give less.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// The length of TCP's packets, so that the queue is as full as with them.
const FLOOD_BYTES: usize = 1400;

// --- Workers ---------------------------------------------------------------------------------------------

/// A thread at a site.
pub(super) struct Worker<T> {
    what: &'static str,
    stop: Arc<AtomicBool>,
    done: Receiver<io::Result<T>>,
}

impl<T: Send + 'static> Worker<T> {
    pub(super) fn start(
        emulation: &Emulation,
        site: &str,
        what: &'static str,
        job: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> Result<Worker<T>> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, done) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        emulation.spawn_at(site, move || {
            // The caller may have given up.
            let _ = tell.send(job(&stopped));
        })?;
        Ok(Worker { what, stop, done })
    }

    /// True if it works; it is not to have ended yet.
    pub(super) fn check(&self) -> Result<()> {
        match self.done.try_recv() {
            Err(mpsc::TryRecvError::Empty) => Ok(()),
            Ok(Err(cause)) => Err(self.failed(&cause)),
            Ok(Ok(_)) | Err(mpsc::TryRecvError::Disconnected) => {
                Err(self.failed(&io::Error::other("it ended early")))
            }
        }
    }

    /// Tells it to stop.
    pub(super) fn stop(self) -> Result<T> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait(DEADLINE)
    }

    /// Waits until it is done.
    pub(super) fn wait(self, deadline: Duration) -> Result<T> {
        match self.done.recv_timeout(deadline) {
            Ok(found) => found.map_err(|cause| self.failed(&cause)),
            Err(RecvTimeoutError::Timeout) => Err(self.failed(&io::ErrorKind::TimedOut.into())),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed(&io::Error::other("its thread died"))),
        }
    }

    fn failed(&self, cause: &io::Error) -> Error {
        Error::new(ErrorKind::Other, format!("{} failed: {cause}", self.what)).fault(Fault::Local)
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// True if only time has passed.
fn is_nothing(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Waits until there is something to receive. Timeouts of sockets end at the kernel's next tick, this one on
/// time.
fn await_readable(socket: impl AsFd, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    let mut waiting = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut waiting, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}

/// Any address of this one's family.
fn anywhere(other: SocketAddr) -> SocketAddr {
    match other {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn udp_to(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(anywhere(target))?;
    socket.connect(target)?;
    Ok(socket)
}

/// Runs `bind` at a site, where the address is.
fn bind_at<S: Send + 'static>(
    emulation: &Emulation,
    site: &str,
    bind: impl FnOnce(&AtomicBool) -> io::Result<(S, SocketAddr)> + Send + 'static,
) -> Result<(S, SocketAddr)> {
    Worker::start(emulation, site, "binding a socket", bind)?.wait(DEADLINE)
}

fn bind_udp(emulation: &Emulation, site: &str, address: SocketAddr) -> Result<(UdpSocket, SocketAddr)> {
    bind_at(emulation, site, move |_| {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Asked for, not relied upon: what does not fit is found out.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES);
        let bound = socket.local_addr()?;
        Ok((socket, bound))
    })
}

// --- One TCP stream --------------------------------------------------------------------------------------

/// From where to where, in which family: the port of `target` is chosen by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) target: SocketAddr,
}

/// A connection on which one side sends as fast as it can. Its buffers are the kernel's to size.
pub(super) struct Stream {
    sender: Worker<()>,
    receiver: Worker<()>,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct Meter {
    samples: Mutex<Vec<Sample>>,
    wrong_bytes: AtomicU64,
}

impl Stream {
    /// With `is_verified` the receiver compares every byte with what was sent.
    pub(super) fn start(emulation: &Emulation, way: Way, is_verified: bool) -> Result<Stream> {
        let (listener, target) = bind_at(emulation, way.to, move |_| {
            let listener = TcpListener::bind(way.target)?;
            let bound = listener.local_addr()?;
            Ok((listener, bound))
        })?;
        let meter = Arc::new(Meter::default());
        let measured = Arc::clone(&meter);
        let receiver = Worker::start(emulation, way.to, "the receiver of a stream", move |stop| {
            if !await_readable(&listener, DEADLINE)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no connection came"));
            }
            receive(listener.accept()?.0, &measured, is_verified, stop)
        })?;
        let sender = Worker::start(emulation, way.from, "the sender of a stream", move |stop| {
            send(TcpStream::connect_timeout(&target, DEADLINE)?, stop)
        })?;
        Ok(Stream { sender, receiver, meter })
    }

    /// Bytes that were received until now; an error if it no longer is.
    pub(super) fn samples(&self) -> Result<Vec<Sample>> {
        self.sender.check()?;
        self.receiver.check()?;
        Ok(self.meter.samples.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Received bytes that are not what was sent.
    pub(super) fn wrong_bytes(&self) -> u64 {
        self.meter.wrong_bytes.load(Ordering::Relaxed)
    }

    /// Ends it, without sending what waits.
    pub(super) fn stop(self) -> Result<()> {
        let Stream { sender, receiver, .. } = self;
        // The receiver first: the end of a stream is no failure to it then.
        receiver.stop.store(true, Ordering::Relaxed);
        sender.stop()?;
        receiver.stop()
    }
}

/// The bytes that all streams are made of, again and again: different at every place within a packet's length
/// of another.
fn pattern() -> Vec<u8> {
    (0..PATTERN_BYTES as u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn send(mut stream: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    // Whatever is left when it is closed is thrown away unread.
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let pattern = pattern();
    let repeated: Vec<u8> = pattern.iter().copied().cycle().take(WRITE_BYTES + PATTERN_BYTES).collect();
    let mut place = 0;
    while !is_stopped(stop) {
        match stream.write(&repeated[place..place + WRITE_BYTES]) {
            Ok(written) => place = (place + written) % PATTERN_BYTES,
            Err(cause) if is_nothing(&cause) => {}
            Err(_) if is_stopped(stop) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream, meter: &Meter, is_verified: bool, stop: &AtomicBool) -> io::Result<()> {
    let began = Instant::now();
    stream.set_read_timeout(Some(PATIENCE))?;
    let repeated: Vec<u8> = pattern().iter().copied().cycle().take(READ_BYTES + PATTERN_BYTES).collect();
    let mut room = vec![0; READ_BYTES];
    let (mut bytes, mut next) = (0, Duration::ZERO);
    while !is_stopped(stop) {
        let got = match stream.read(&mut room) {
            Ok(0) if is_stopped(stop) => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(cause) if is_nothing(&cause) => 0,
            Err(_) if is_stopped(stop) => return Ok(()),
            Err(cause) => return Err(cause),
        };
        if is_verified {
            let place = (bytes % PATTERN_BYTES as u64) as usize;
            meter
                .wrong_bytes
                .fetch_add(differing(&room[..got], &repeated[place..][..got]), Ordering::Relaxed);
        }
        bytes += got as u64;
        let at = began.elapsed();
        if at >= next {
            meter.samples.lock().unwrap_or_else(PoisonError::into_inner).push(Sample { at, bytes });
            next = at + SAMPLE_INTERVAL;
        }
    }
    Ok(())
}

fn differing(a: &[u8], b: &[u8]) -> u64 {
    if a == b {
        return 0;
    }
    a.iter().zip(b).filter(|(a, b)| a != b).count() as u64
}

// --- Round trips -----------------------------------------------------------------------------------------

/// Sends datagrams and notes when their echoes come back.
pub(super) struct Probes {
    pub(super) count: u32,
    pub(super) interval: Duration,
    /// Time for which the last ones are waited for.
    pub(super) patience: Duration,
}

/// Answers whatever arrives, until it is stopped.
pub(super) fn echo(emulation: &Emulation, way: Way) -> Result<(Worker<()>, SocketAddr)> {
    let (socket, bound) = bind_udp(emulation, way.to, way.target)?;
    let worker = Worker::start(emulation, way.to, "the echo", move |stop| {
        let mut room = [0; 2048];
        while !is_stopped(stop) {
            match socket.recv_from(&mut room) {
                Ok((got, from)) => {
                    socket.send_to(&room[..got], from)?;
                }
                Err(cause) if is_nothing(&cause) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    })?;
    Ok((worker, bound))
}

impl Probes {
    /// The round trips of those that came back, from a site to an [`echo`].
    pub(super) fn send(self, emulation: &Emulation, from: &str, echo: SocketAddr) -> Result<Vec<Duration>> {
        let deadline = self.interval * self.count + self.patience + DEADLINE;
        Worker::start(emulation, from, "the sender of probes", move |stop| self.run(echo, stop))?
            .wait(deadline)
    }

    fn run(self, echo: SocketAddr, stop: &AtomicBool) -> io::Result<Vec<Duration>> {
        let socket = udp_to(echo)?;
        socket.set_nonblocking(true)?;
        let began = Instant::now();
        let (mut sent_at, mut round_trips) = (Vec::new(), Vec::new());
        let mut room = [0; 64];
        while !is_stopped(stop) && round_trips.len() < self.count as usize {
            let sent = sent_at.len() as u32;
            let next = self.interval * sent;
            if sent < self.count && began.elapsed() >= next {
                room[..4].copy_from_slice(&sent.to_be_bytes());
                sent_at.push(began.elapsed());
                socket.send(&room)?;
                continue;
            }
            let until = if sent < self.count { next } else { next + self.patience };
            let Some(patience) = until.checked_sub(began.elapsed()) else {
                if sent < self.count {
                    continue;
                }
                break;
            };
            if !await_readable(&socket, patience)? {
                continue;
            }
            let got = match socket.recv(&mut room) {
                Ok(got) => got,
                Err(cause) if is_nothing(&cause) => continue,
                Err(cause) => return Err(cause),
            };
            let now = began.elapsed();
            let number = room[..got].first_chunk().map(|bytes| u32::from_be_bytes(*bytes) as usize);
            if let Some(sent_at) = number.and_then(|number| sent_at.get(number)) {
                round_trips.push(now - *sent_at);
            }
        }
        Ok(round_trips)
    }
}

// --- A flood ---------------------------------------------------------------------------------------------

/// Sends datagrams at a rate, whatever becomes of them, until it is stopped. A socket has to be bound to
/// `target`, or the way back is full of messages that none is.
pub(super) fn flood(
    emulation: &Emulation,
    from: &str,
    target: SocketAddr,
    rate_bits_per_s: u64,
) -> Result<Worker<()>> {
    Worker::start(emulation, from, "the flood", move |stop| {
        let socket = udp_to(target)?;
        let began = Instant::now();
        let packet = [0; FLOOD_BYTES];
        let mut sent = 0;
        while !is_stopped(stop) {
            let owed = (began.elapsed().as_secs_f64() * rate_bits_per_s as f64 / 8.0) as u64;
            while sent < owed {
                socket.send(&packet)?;
                sent += FLOOD_BYTES as u64;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })
}

/// A socket that takes a flood and never looks at it.
pub(super) fn drain(emulation: &Emulation, way: Way) -> Result<(UdpSocket, SocketAddr)> {
    bind_udp(emulation, way.to, way.target)
}

// --- Numbered packets ------------------------------------------------------------------------------------

/// Sends numbered datagrams and returns the numbers of those that did not arrive.
///
/// As many are sent as the receiver keeps up with, so that nothing but the emulated path loses any: it tells
/// the highest number that it has seen, and what is beyond it is on its way.
pub(super) fn lost_numbers(
    emulation: &Emulation,
    way: Way,
    count: u64,
    deadline: Duration,
) -> Result<Vec<u64>> {
    let (socket, target) = bind_udp(emulation, way.to, way.target)?;
    let seen = Arc::new(AtomicU64::new(0));
    let is_sent = Arc::new(AtomicBool::new(false));
    let (seen_last, all_sent) = (Arc::clone(&seen), Arc::clone(&is_sent));
    let receiver = Worker::start(emulation, way.to, "the receiver of numbered packets", move |stop| {
        let mut has_arrived = vec![false; count as usize];
        let mut room = [0; NUMBERED_BYTES];
        while !is_stopped(stop) {
            match socket.recv(&mut room) {
                Ok(_) => {
                    let number = room.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
                    if let Some(has_arrived) = has_arrived.get_mut(number as usize) {
                        *has_arrived = true;
                        seen_last.fetch_max(number, Ordering::Relaxed);
                    }
                }
                // Nothing for a while: what is not here now was lost.
                Err(cause) if is_nothing(&cause) && all_sent.load(Ordering::Relaxed) => break,
                Err(cause) if is_nothing(&cause) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok((0..count).filter(|number| !has_arrived[*number as usize]).collect())
    })?;
    let sender = Worker::start(emulation, way.from, "the sender of numbered packets", move |stop| {
        let socket = udp_to(target)?;
        let mut packet = [0; NUMBERED_BYTES];
        for number in 0..count {
            while number.saturating_sub(seen.load(Ordering::Relaxed)) > NUMBERED_UNDERWAY_MAX {
                if is_stopped(stop) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            packet[..8].copy_from_slice(&number.to_be_bytes());
            socket.send(&packet)?;
        }
        is_sent.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    sender.wait(deadline)?;
    receiver.wait(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_tells_packets_that_changed_places() {
        let pattern = pattern();
        for shift in [1, 4, 536, 1428, 1448, 8948, 2 * 1448, 45 * 1448] {
            let same = (0..PATTERN_BYTES)
                .filter(|place| pattern[*place] == pattern[(place + shift) % PATTERN_BYTES])
                .count();
            assert!(same < PATTERN_BYTES / 10, "{shift}: {same}");
        }
    }

    #[test]
    fn differing_bytes_are_counted() {
        assert_eq!(differing(b"abc", b"abc"), 0);
        assert_eq!(differing(b"abc", b"axy"), 2);
    }

    #[test]
    fn an_unbound_address_has_the_family_of_the_other() {
        assert!(anywhere(([198, 18, 0, 1], 5).into()).is_ipv4());
        assert!(anywhere((Ipv6Addr::LOCALHOST, 5).into()).is_ipv6());
    }

    /// Both ends in this process, without an emulation: what the receiver counts is what the sender sent.
    #[test]
    fn a_stream_arrives_as_it_was_sent() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let meter = Arc::new(Meter::default());
        let sender = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || send(TcpStream::connect(target).unwrap(), &stop)
        });
        let receiver = std::thread::spawn({
            let (stop, meter) = (Arc::clone(&stop), Arc::clone(&meter));
            move || receive(listener.accept().unwrap().0, &meter, true, &stop)
        });
        while meter.samples.lock().unwrap().last().is_none_or(|sample| sample.bytes < 10_000_000) {
            assert!(!receiver.is_finished() && !sender.is_finished());
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        receiver.join().unwrap().unwrap();
        sender.join().unwrap().unwrap();
        assert_eq!(meter.wrong_bytes.load(Ordering::Relaxed), 0);
    }
}
