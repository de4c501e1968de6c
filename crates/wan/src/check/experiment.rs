//! Brings up a network, sends through it, and says what arrived.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Fault, Result};

use super::statistics::{Sample, bits_per_s, is_at_plateau, is_even, quantile};
use super::traffic::{self, Probes, Stream, Way};
use crate::commands::BackEnd;
use crate::emulation::Emulation;
use crate::isolation::Privilege;
use crate::network::Family;
use crate::scenario::{Buffers, Direction, Link, Scenario};
use crate::state::{LinkState, State};

const FROM: &str = "left";
const TO: &str = "right";

/// Time for which a plateau counts, and the time more if a loss is repaired at its end.
const PLATEAU: Duration = Duration::from_secs(4);
const REPAIR_MAX: Duration = Duration::from_secs(6);

/// Time for which a plateau is waited for.
const PLATEAU_DEADLINE: Duration = Duration::from_secs(40);

/// Interval at which the progress of a stream is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A receiver that has noted nothing for so long is stuck. The longest path takes 0.6 s to repair a loss, or
/// several times that.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// For a million packets on a slow machine.
const NUMBERED_DEADLINE: Duration = Duration::from_secs(60);

/// For the segments of a stream that loses some.
const SEGMENTS_DEADLINE: Duration = Duration::from_secs(30);

/// Factor over the link's rate that is sent to fill its queue.
const FLOOD_FACTOR: f64 = 1.5;

/// A link between two sites. Both directions are alike, but for what is lost: acknowledgements are not.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) rate_bits_per_s: Option<u64>,
    pub(super) round_trip: Duration,
    pub(super) queue_bytes: Option<u64>,
    pub(super) loss: f64,
    pub(super) mtu: u32,
    pub(super) framing_bytes: u32,
    pub(super) congestion_control: Option<&'static str>,
    pub(super) seed: u64,
    /// Of what is sent: the network has both.
    pub(super) family: Family,
}

/// The experiment with a line.
pub(super) enum Work {
    /// The median round trip in milliseconds, while nothing else is sent.
    RoundTrip(Line),
    /// The same while the queue is full.
    Saturation(Line),
    /// Percent of numbered packets that are lost.
    Loss { line: Line, packets: u64 },
    /// Those that are lost in one of two runs only; percent of the losses that are the same with another seed.
    SameLosses { line: Line, packets: u64 },
    /// Percent of a stream's segments that are lost; those of its bytes that arrive changed.
    LossyStream { line: Line, segments: u64 },
    /// Rate that a stream reaches, in some unit; percent of a core that the forwarder takes; its lateness in
    /// milliseconds.
    Stream { line: Line, phase: Phase, bits_per_unit: f64 },
}

/// When a stream is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// At these times since its connection began.
    Fixed { from: Duration, to: Duration },
    /// For four seconds or a little more, from when it has reached this rate.
    Plateau { bits_per_s: f64 },
}

/// Something that was measured.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) detail: String,
}

pub(super) type Figures = Vec<Figure>;

fn figure(value: f64, detail: impl Into<String>) -> Figure {
    Figure { value, detail: detail.into() }
}

/// Does it, in a network of its own, which is gone afterwards.
pub(super) fn measure(work: &Work, privilege: Privilege) -> Result<Figures> {
    match work {
        Work::RoundTrip(line) => line.up(privilege)?.round_trip(),
        Work::Saturation(line) => line.up(privilege)?.saturation(),
        Work::Loss { line, packets } => line.up(privilege)?.loss(*packets),
        Work::SameLosses { line, packets } => same_losses(line, privilege, *packets),
        Work::LossyStream { line, segments } => line.up(privilege)?.lossy_stream(*segments),
        Work::Stream { line, phase, bits_per_unit } => line.up(privilege)?.stream(*phase, *bits_per_unit),
    }
}

impl Line {
    fn scenario(&self) -> Scenario {
        let there = Direction {
            rate_bits_per_s: self.rate_bits_per_s,
            delay: self.round_trip / 2,
            queue_bytes: self.queue_bytes,
            loss: self.loss,
            ..Direction::default()
        };
        let back = Direction { loss: 0.0, ..there.clone() };
        Scenario {
            seed: self.seed,
            mtu: self.mtu,
            framing_bytes: self.framing_bytes,
            congestion_control: self.congestion_control.map(str::to_owned),
            buffers: Buffers::Bdp,
            sites: vec![FROM.into(), TO.into()],
            routers: Vec::new(),
            links: vec![Link {
                name: "line".into(),
                ends: [FROM.into(), TO.into()],
                directions: [there, back],
            }],
            events: Vec::new(),
        }
    }

    fn up(&self, privilege: Privilege) -> Result<Bench> {
        let started = Emulation::start(self.scenario(), BackEnd::Tun, privilege);
        let emulation = started.map_err(|error| {
            // Otherwise `ip` says that something is invalid.
            match self.congestion_control.filter(|name| !has_congestion_control(name)) {
                Some(name) => Error::new(ErrorKind::Unsupported, format!("this kernel has no {name}"))
                    .fault(Fault::Local)
                    .hint(format!("modprobe tcp_{name}")),
                None => error,
            }
        })?;
        Ok(Bench { emulation, line: self.clone() })
    }
}

/// Asked after it was tried: the kernel loads what it has when it is named.
fn has_congestion_control(name: &str) -> bool {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    // Where it is not told, `ip` has the word.
    available.map_or(true, |available| available.split_ascii_whitespace().any(|one| one == name))
}

fn unknown(why: &str) -> Error {
    Error::new(ErrorKind::Other, format!("cannot tell what TCP sent again: {why}")).fault(Fault::Local)
}

/// A counter of `/proc/net/snmp`: a line of names, then one of numbers, both behind the protocol.
fn counter_of(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// A line that is up.
struct Bench {
    emulation: Emulation,
    line: Line,
}

impl Bench {
    fn way(&self) -> Way {
        let address = |node: &crate::network::Node| -> SocketAddr {
            match self.line.family {
                Family::Ipv4 => (node.ipv4, 0).into(),
                Family::Ipv6 => (node.ipv6, 0).into(),
            }
        };
        // There are two sites, by how the scenario is made.
        Way { from: FROM, to: TO, target: address(&self.emulation.network().sites()[1]) }
    }

    /// The counters of the emulator. Fails if the run is void.
    fn state(&self) -> Result<State> {
        let state = self.emulation.state()?;
        match &state.void {
            Some(why) => Err(Error::new(ErrorKind::Other, format!("void: {why}")).fault(Fault::Local)),
            None => Ok(state),
        }
    }

    /// The counters on the way there, from a state that is not void.
    fn there(&self) -> Result<LinkState> {
        let gone = || Error::new(ErrorKind::Other, "the emulator does not know its own link");
        self.state()?.links.into_iter().find(|link| link.from == FROM).ok_or_else(gone)
    }

    // --- Round trips ------------------------------------------------------------------------------------

    fn round_trip(&self) -> Result<Figures> {
        let probes = Probes {
            count: 100,
            interval: Duration::from_millis(10),
            patience: self.line.round_trip + Duration::from_secs(1),
        };
        let count = probes.count as usize;
        let round_trips = self.probe(probes)?;
        if round_trips.len() < count {
            return Err(unanswered(round_trips.len(), count));
        }
        self.state()?;
        Ok(vec![median(&round_trips)?])
    }

    fn saturation(&self) -> Result<Figures> {
        let rate = self.line.rate_bits_per_s.unwrap_or_default();
        let (_sink, target) = traffic::drain(&self.emulation, self.way())?;
        let flood = traffic::flood(&self.emulation, FROM, target, (rate as f64 * FLOOD_FACTOR) as u64)?;
        // Half of the rate is too much: so the queue is full after twice the time that it takes to be sent.
        std::thread::sleep(Duration::from_millis(500));
        let probes =
            Probes { count: 400, interval: Duration::from_millis(5), patience: Duration::from_secs(1) };
        let count = probes.count as usize;
        let round_trips = self.probe(probes)?;
        flood.stop()?;
        // Many find no room in the queue: that is what it means to be full.
        if round_trips.len() < count / 10 {
            return Err(unanswered(round_trips.len(), count));
        }
        if self.there()?.counters.dropped_packets == 0 {
            return Err(Error::new(ErrorKind::Other, "the queue never was full: too little was sent"));
        }
        Ok(vec![median(&round_trips)?])
    }

    fn probe(&self, probes: Probes) -> Result<Vec<Duration>> {
        let (echo, address) = traffic::echo(&self.emulation, self.way())?;
        let round_trips = probes.send(&self.emulation, FROM, address)?;
        echo.stop()?;
        Ok(round_trips)
    }

    // --- Losses -----------------------------------------------------------------------------------------

    /// Numbers of the packets that were lost, in order; none of them by anything but the lot.
    fn lost_numbers(&self, packets: u64) -> Result<Vec<u64>> {
        let lost = traffic::lost_numbers(&self.emulation, self.way(), packets, NUMBERED_DEADLINE)?;
        let counters = self.there()?.counters;
        let void =
            |what: String| Err(Error::new(ErrorKind::Other, format!("void: {what}")).fault(Fault::Local));
        let all = counters.passed_packets + counters.lost_packets + counters.dropped_packets;
        if all != packets {
            return void(format!("{packets} packets were sent, but the emulator saw {all}"));
        }
        if lost.len() as u64 != counters.lost_packets {
            return void(format!(
                "{} packets did not arrive, but {} were lost: the receiver was too slow",
                lost.len(),
                counters.lost_packets
            ));
        }
        Ok(lost)
    }

    fn loss(&self, packets: u64) -> Result<Figures> {
        let began = Instant::now();
        let lost = self.lost_numbers(packets)?.len() as f64;
        let detail = format!("{lost} packets, in {:.1} s", began.elapsed().as_secs_f64());
        Ok(vec![figure(lost * 100.0 / packets as f64, detail)])
    }

    fn lossy_stream(&self, segments: u64) -> Result<Figures> {
        let stream = Stream::start(&self.emulation, self.way(), true)?;
        let began = Instant::now();
        let counters = loop {
            std::thread::sleep(LOOK_INTERVAL);
            stream.samples()?;
            let counters = self.there()?.counters;
            if counters.passed_packets + counters.lost_packets >= segments {
                break counters;
            }
            if began.elapsed() > SEGMENTS_DEADLINE {
                return Err(Error::new(ErrorKind::Timeout, format!("{segments} segments took too long")));
            }
        };
        let again = self.sent_again()?;
        let wrong = stream.wrong_bytes();
        let received = stream.samples()?.last().map_or(0, |sample| sample.bytes);
        stream.stop()?;
        let sent = counters.passed_packets + counters.lost_packets;
        let lost = counters.lost_packets as f64 * 100.0 / sent as f64;
        let cuts = format!("{sent} segments, {} of {} super-packets were cut", counters.cuts, counters.reads);
        // What the queue dropped has to be sent again as well.
        let missing = counters.lost_packets + counters.dropped_packets;
        let part = again as f64 * 100.0 / missing.max(1) as f64;
        Ok(vec![
            figure(lost, cuts),
            figure(wrong as f64, format!("of {received} bytes")),
            figure(
                part,
                format!(
                    "{again} for {} lost and {} dropped",
                    counters.lost_packets, counters.dropped_packets
                ),
            ),
        ])
    }

    /// Segments that TCP at the sending site sent again (`RetransSegs`, RFC 4022): the kernel's own count.
    fn sent_again(&self) -> Result<u64> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
        let text = self.emulation.spawn_at(FROM, read)?.join().map_err(|_| unknown("its reader ended"))?;
        let text = text.map_err(|cause| unknown(&cause.to_string()))?;
        counter_of(&text, "Tcp:", "RetransSegs").ok_or_else(|| unknown("they are not in /proc/net/snmp"))
    }

    // --- Streams ----------------------------------------------------------------------------------------

    fn stream(&self, phase: Phase, bits_per_unit: f64) -> Result<Figures> {
        let stream = Stream::start(&self.emulation, self.way(), false)?;
        let from = match phase {
            Phase::Fixed { from, .. } => {
                until(&stream, |at, _| at >= from)?;
                from
            }
            // Too late is no failure: what it has reached by then is the figure.
            Phase::Plateau { bits_per_s } => {
                until(&stream, |at, samples| at > PLATEAU_DEADLINE || is_at_plateau(samples, bits_per_s))?
            }
        };
        let before = (self.state()?.forwarder_cpu_s, Instant::now());
        let to = match phase {
            Phase::Fixed { to, .. } => {
                until(&stream, |at, _| at >= to)?;
                to
            }
            Phase::Plateau { bits_per_s } => until(&stream, |at, samples| {
                let counted = at.saturating_sub(from);
                counted >= PLATEAU && (is_even(samples, bits_per_s) || counted > PLATEAU + REPAIR_MAX)
            })?,
        };
        let after = (self.state()?, Instant::now());
        let samples = stream.samples()?;
        stream.stop()?;

        let rate = bits_per_s(&samples, from, to).ok_or_else(|| {
            Error::new(ErrorKind::Timeout, "nothing arrived at the time that counts").fault(Fault::Local)
        })?;
        let cpu_s = after.0.forwarder_cpu_s - before.0;
        let cpu_percent = cpu_s * 100.0 / (after.1 - before.1).as_secs_f64();
        let counters = self.there()?.counters;
        let window = format!(
            "from {:.1} to {:.1} s of the connection, {} packets dropped by the queue until then",
            from.as_secs_f64(),
            to.as_secs_f64(),
            counters.dropped_packets
        );
        let real_time = if after.0.forwarder_is_real_time { "real-time" } else { "not real-time" };
        Ok(vec![
            figure(rate / bits_per_unit, window),
            figure(cpu_percent, real_time),
            figure(
                counters.lateness_p99_s * 1e3,
                format!("median {:.3} ms, {real_time}", counters.lateness_p50_s * 1e3),
            ),
        ])
    }
}

/// Waits for what the samples of a stream say. Returns the time of the last one.
fn until(stream: &Stream, is_so: impl Fn(Duration, &[Sample]) -> bool) -> Result<Duration> {
    let mut heard = (0, Instant::now());
    loop {
        let samples = stream.samples()?;
        if let Some(last) = samples.last()
            && is_so(last.at, &samples)
        {
            return Ok(last.at);
        }
        if samples.len() != heard.0 {
            heard = (samples.len(), Instant::now());
        } else if heard.1.elapsed() > SILENCE_MAX {
            return Err(
                Error::new(ErrorKind::Timeout, "the receiver of the stream is stuck").fault(Fault::Local)
            );
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn same_losses(line: &Line, privilege: Privilege, packets: u64) -> Result<Figures> {
    let lost_with = |seed: u64| Line { seed, ..line.clone() }.up(privilege)?.lost_numbers(packets);
    let (first, second, other) = (lost_with(line.seed)?, lost_with(line.seed)?, lost_with(line.seed + 1)?);
    let in_both = |a: &[u64], b: &[u64]| a.iter().filter(|number| b.binary_search(number).is_ok()).count();
    let different = first.len() + second.len() - 2 * in_both(&first, &second);
    let alike_percent = in_both(&first, &other) as f64 * 100.0 / first.len() as f64;
    Ok(vec![
        figure(different as f64, format!("{} packets were lost", first.len())),
        figure(alike_percent, format!("{} packets were lost", other.len())),
    ])
}

fn median(round_trips: &[Duration]) -> Result<Figure> {
    let of = |part: f64| {
        let value = quantile(round_trips, part).ok_or_else(|| unanswered(0, 0))?;
        Ok(value.as_secs_f64() * 1e3)
    };
    let rest = format!("99 %: {:.2} ms, of {} round trips", of(0.99)?, round_trips.len());
    Ok(figure(of(0.5)?, rest))
}

fn unanswered(answered: usize, sent: usize) -> Error {
    let message = format!("only {answered} of {sent} probes were answered");
    Error::new(ErrorKind::Timeout, message).fault(Fault::Local)
}
