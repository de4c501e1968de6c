//! The user-space wire: a thread that takes packets from one TUN device and gives them to another when the
//! arithmetic of the link says so.
//!
//! A thread carries both directions of one or more links. One direction is never on two threads: it is a
//! queue, and its rate is one rate. Super-packets (64 KiB of one connection) pass whole: two copies and two
//! system calls for 45 packets. Only those of which some segments are dropped or lost are cut.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gridlane_sys::schedule;
use gridlane_sys::tun::Tun;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::backlog::{Backlog, PACKET_BYTES_MAX};
use crate::counters::{Counters, Counts};
use crate::lot::{Losses, Lot};
use crate::network::bytes_in;
use crate::packet::{HEADER_BYTES, Packet};
use crate::scenario::Direction;
use crate::wire::{Burst, Wire};

/// Packets that one direction takes in, or gives out, before the others have their turn.
const TURN_PACKETS: usize = 64;

/// A direction without a rate is limited by memory only: enough for what this carries in its delay, more than
/// one thread forwards, and at least so much. It is taken when it is needed.
const UNLIMITED_BITS_PER_S: u64 = 40_000_000_000;
const UNLIMITED_BYTES: u64 = 256 * 1024 * 1024;

/// Time for which a report is waited for: a thread that is there looks for orders between any two turns.
const REPORT_MAX: Duration = Duration::from_secs(4);

/// Between two attempts to wait when waiting fails.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

/// Beyond what is on its way and in the queue: packets wait a little for the thread's turn.
const SLACK_BYTES: u64 = 4 * 1024 * 1024;

/// One direction of a link, before it is carried.
pub(crate) struct FlowSpec {
    /// Index of the device that packets come from, in the list given to [`Forwarder::start`].
    pub(crate) from: usize,
    /// Index of the device that they go to.
    pub(crate) to: usize,
    /// The figures.
    pub(crate) figures: Figures,
    /// Seed of its losses and its jitter.
    pub(crate) seed: u64,
    /// Tells it from other directions with the same seed.
    pub(crate) number: u64,
}

/// An order for a direction.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) direction: Direction,
    /// The queue that follows from the scenario, if it says none.
    pub(crate) queue_bytes: Option<u64>,
    pub(crate) framing_bytes: u32,
}

impl Figures {
    /// Memory for everything that can be on its way or waiting.
    pub(crate) fn memory_bytes(&self) -> usize {
        let direction = &self.direction;
        let travelling_s = (direction.delay + direction.jitter).as_secs_f64();
        let bytes = match (direction.rate_bits_per_s, self.queue_bytes) {
            (Some(rate), Some(queue)) => (rate as f64 / 8.0 * travelling_s) as u64 + queue,
            _ => bytes_in(UNLIMITED_BITS_PER_S, direction.delay + direction.jitter).max(UNLIMITED_BYTES),
        };
        // A packet also has a header of ten bytes. The framing that the rate counts is more than that, unless it
        // is set to none: then 28 bytes on the wire, the least that a packet has, are 38 here.
        let header = if self.framing_bytes < HEADER_BYTES as u32 { bytes * 10 / 28 } else { 0 };
        usize::try_from(bytes + header + SLACK_BYTES).unwrap_or(usize::MAX)
    }
}

/// A question for a thread while it forwards.
enum Order {
    Set { flow: usize, figures: Box<Figures> },
    Count(Sender<Report>),
    Stop,
}

/// The report of a thread.
pub(crate) struct Report {
    /// In the order in which the flows were given.
    pub(crate) counters: Vec<Counters>,
    /// CPU time of the thread so far.
    pub(crate) cpu: Duration,
    /// True if it runs before ordinary threads.
    pub(crate) is_real_time: bool,
}

/// A running thread. It ends when the value is dropped.
pub(crate) struct Forwarder {
    orders: Sender<Order>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    pub(crate) fn start(devices: Vec<Tun>, flows: Vec<FlowSpec>) -> io::Result<Forwarder> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let woken = wake.try_clone()?;
        let (orders, ordered) = mpsc::channel();
        let thread = std::thread::Builder::new().name("wan forwarder".into()).spawn(move || {
            // Sleeps end when they should; by default they may end 50 us later.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            let is_real_time = schedule::real_time().is_ok();
            Carrier::new(devices, flows, ordered, woken, is_real_time).run();
        })?;
        Ok(Forwarder { orders, wake, thread: Some(thread) })
    }

    /// Gives a flow other figures. Returns whether the thread is there to do it.
    pub(crate) fn set(&self, flow: usize, figures: Figures) -> bool {
        self.order(Order::Set { flow, figures: Box::new(figures) })
    }

    /// The counters so far; `None` if the thread is gone.
    pub(crate) fn report(&self) -> Option<Report> {
        let (report, reported) = mpsc::channel();
        self.order(Order::Count(report));
        reported.recv_timeout(REPORT_MAX).ok()
    }

    fn order(&self, order: Order) -> bool {
        let is_taken = self.orders.send(order).is_ok();
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        is_taken
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's own state.
struct Carrier {
    began: Instant,
    devices: Vec<Tun>,
    flows: Vec<Flow>,
    orders: Receiver<Order>,
    woken: OwnedFd,
    is_real_time: bool,
}

impl Carrier {
    fn new(
        devices: Vec<Tun>,
        flows: Vec<FlowSpec>,
        orders: Receiver<Order>,
        woken: OwnedFd,
        is_real_time: bool,
    ) -> Carrier {
        let flows = flows.into_iter().map(Flow::new).collect();
        Carrier { began: Instant::now(), devices, flows, orders, woken, is_real_time }
    }

    fn run(mut self) {
        loop {
            if self.obey() {
                return;
            }
            let mut is_busy = false;
            for flow in &mut self.flows {
                is_busy |= flow.receive(&self.devices, self.began);
                is_busy |= flow.deliver(&self.devices, self.began);
            }
            let until = if is_busy { Some(Duration::ZERO) } else { self.until_next() };
            self.wait(until);
        }
    }

    /// Returns whether it was told to stop.
    fn obey(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            let now_ns = since(self.began);
            match order {
                Order::Stop => return true,
                Order::Set { flow, figures } => {
                    if let Some(flow) = self.flows.get_mut(flow) {
                        flow.set(&figures, now_ns);
                    }
                }
                Order::Count(to) => {
                    let counters = self.flows.iter().map(|flow| flow.counters(now_ns)).collect();
                    let cpu = schedule::thread_cpu_time();
                    // The caller may have given up.
                    let _ = to.send(Report { counters, cpu, is_real_time: self.is_real_time });
                }
            }
        }
        false
    }

    fn until_next(&self) -> Option<Duration> {
        let next_ns = self.flows.iter().filter_map(|flow| flow.backlog.due_ns()).min()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(since(self.began))))
    }

    /// Until there is something to read, the time has come, or there is an order.
    fn wait(&mut self, until: Option<Duration>) {
        let timeout = until.map(|until| Timespec {
            tv_sec: until.as_secs() as i64,
            tv_nsec: i64::from(until.subsec_nanos()),
        });
        let mut waiting = vec![PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN)];
        // Errors are reported without being asked for, too: a device that failed is left out.
        for flow in self.flows.iter().filter(|flow| !flow.has_failed) {
            waiting.push(PollFd::from_borrowed_fd(self.devices[flow.from].as_fd(), PollFlags::IN));
        }
        let is_known = match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) => true,
            Err(rustix::io::Errno::INTR) => false,
            // Whatever it is, it must not make a real-time thread spin.
            Err(_) => {
                std::thread::sleep(AFTER_FAILURE);
                false
            }
        };
        // A device that is gone is readable: reading says so.
        let readable = PollFlags::IN | PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let ready: Vec<bool> =
            waiting.iter().map(|fd| is_known && fd.revents().intersects(readable)).collect();
        if ready[0] {
            let _ = rustix::io::read(&self.woken, &mut [0; 8]);
        }
        for (flow, state) in self.flows.iter_mut().filter(|flow| !flow.has_failed).zip(&ready[1..]) {
            flow.is_readable |= *state;
        }
    }
}

/// One direction of a link.
struct Flow {
    from: usize,
    to: usize,
    framing_bytes: u32,
    is_down: bool,
    wire: Wire,
    losses: Losses,
    backlog: Backlog,
    counts: Counts,
    is_readable: bool,
    has_failed: bool,
    /// Indexes of the segments that were lost of the packet at hand.
    lost: Vec<u32>,
    /// A packet that is cut, and a piece of it.
    whole: Vec<u8>,
    piece: Vec<u8>,
}

impl Flow {
    fn new(spec: FlowSpec) -> Flow {
        let Figures { direction, queue_bytes, framing_bytes } = &spec.figures;
        Flow {
            from: spec.from,
            to: spec.to,
            framing_bytes: *framing_bytes,
            is_down: direction.is_down,
            wire: Wire::new(direction, *queue_bytes, Lot::branch(spec.seed, 2 * spec.number)),
            losses: Losses::new(direction.loss, Lot::branch(spec.seed, 2 * spec.number + 1)),
            backlog: Backlog::new(spec.figures.memory_bytes()),
            counts: Counts::default(),
            is_readable: false,
            has_failed: false,
            lost: Vec::new(),
            whole: Vec::new(),
            piece: Vec::new(),
        }
    }

    fn set(&mut self, figures: &Figures, now_ns: u64) {
        self.is_down = figures.direction.is_down;
        let retiming = self.wire.set(&figures.direction, figures.queue_bytes, now_ns);
        self.backlog.retime(|due_ns| retiming.of(due_ns));
        self.losses.set(figures.direction.loss);
        self.backlog.set_limit(figures.memory_bytes());
    }

    fn counters(&self, now_ns: u64) -> Counters {
        Counters::of(&self.counts, self.wire.backlog_bytes(now_ns))
    }

    /// Takes in what the device has. Returns whether there may be more.
    fn receive(&mut self, devices: &[Tun], began: Instant) -> bool {
        if !self.is_readable {
            return false;
        }
        for _ in 0..TURN_PACKETS {
            match self.receive_one(&devices[self.from], began) {
                Ok(true) => {}
                Ok(false) => {
                    self.is_readable = false;
                    return false;
                }
                Err(_) => {
                    self.is_readable = false;
                    self.has_failed = true;
                    // Nothing passes any more: a reader of the counters must know.
                    self.counts.has_failed = true;
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether there was a packet.
    fn receive_one(&mut self, device: &Tun, began: Instant) -> io::Result<bool> {
        let Some(room) = self.backlog.room() else {
            self.whole.resize(PACKET_BYTES_MAX, 0);
            let Some(len) = device.read(&mut self.whole)? else { return Ok(false) };
            let packets = u64::from(Packet::parse(&self.whole[..len]).segments());
            self.counts.reads += 1;
            match self.is_down {
                true => self.counts.vanished_packets += packets,
                false => self.counts.overflowed_packets += packets,
            }
            return Ok(true);
        };
        let Some(len) = device.read(room)? else { return Ok(false) };
        let packet = Packet::parse(&room[..len]);
        let burst = burst_of(&packet, self.framing_bytes);
        self.counts.reads += 1;
        if self.is_down {
            self.counts.vanished_packets += u64::from(burst.segments);
            return Ok(true);
        }
        let admission = self.wire.admit(since(began), burst);
        self.lost.clear();
        self.losses.pass(admission.segments, &mut self.lost);
        let lost = self.lost.len() as u64;
        self.counts.dropped_packets += u64::from(burst.segments - admission.segments);
        self.counts.lost_packets += lost;
        if admission.segments > 0 {
            self.counts.waited.record(admission.waited_ns);
        }
        if admission.segments == burst.segments && self.lost.is_empty() {
            self.counts.passed_packets += u64::from(burst.segments);
            self.counts.passed_bytes += self.ip_bytes(burst, 0..burst.segments);
            let due_ns = self.wire.arrival_ns(&admission, burst, burst.segments);
            self.backlog.push(len, due_ns);
            return Ok(true);
        }
        if u64::from(admission.segments) == lost {
            return Ok(true);
        }
        // The pieces go where the whole lies now.
        self.counts.cuts += 1;
        self.whole.clear();
        self.whole.extend_from_slice(&room[..len]);
        let packet = Packet::parse(&self.whole);
        let mut start = 0;
        for end in self.lost.iter().copied().chain([admission.segments]) {
            if start < end {
                self.piece.clear();
                packet.cut(start..end, &mut self.piece);
                let due_ns = self.wire.arrival_ns(&admission, burst, end);
                match self.backlog.room() {
                    Some(room) => {
                        room[..self.piece.len()].copy_from_slice(&self.piece);
                        self.backlog.push(self.piece.len(), due_ns);
                        self.counts.passed_packets += u64::from(end - start);
                        self.counts.passed_bytes += self.ip_bytes(burst, start..end);
                    }
                    None => self.counts.overflowed_packets += u64::from(end - start),
                }
            }
            start = end + 1;
        }
        Ok(true)
    }

    /// Bytes of some segments without framing, each with headers of its own.
    fn ip_bytes(&self, burst: Burst, run: Range<u32>) -> u64 {
        let framing_bytes = u64::from(self.framing_bytes) * run.len() as u64;
        burst.bytes_of(run.end) - burst.bytes_of(run.start) - framing_bytes
    }

    /// Gives out what is due. Returns whether there is more.
    fn deliver(&mut self, devices: &[Tun], began: Instant) -> bool {
        for _ in 0..TURN_PACKETS {
            let Some(due_ns) = self.backlog.due_ns() else { return false };
            let now_ns = since(began);
            let (true, Some(packet)) = (due_ns <= now_ns, self.backlog.front()) else { return false };
            if devices[self.to].write(packet).is_err() {
                self.counts.refused_packets += u64::from(Packet::parse(packet).segments());
            }
            self.counts.lateness.record(now_ns - due_ns);
            self.backlog.pop();
        }
        true
    }
}

fn burst_of(packet: &Packet<'_>, framing_bytes: u32) -> Burst {
    let segments = packet.segments();
    Burst {
        segments,
        segment_bytes: packet.segment_wire_bytes(0, framing_bytes),
        last_bytes: packet.segment_wire_bytes(segments - 1, framing_bytes),
    }
}

fn since(began: Instant) -> u64 {
    began.elapsed().as_nanos() as u64
}
