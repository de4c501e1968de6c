//! What the planner costs for each element, without a network: calls for known random ranges, answered as lanes bring them.
//!
//! `cargo run --release -p gridlane-read --example planner [CALLS [RANGES [BYTES]]]`: so many calls one after the other (5), of so
//! many ranges (100,000) of so many bytes (1000) of a file of 1 GB. Prints nanoseconds of each element, in all and by what was
//! called; the first call is on cold lanes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::{ByteRange, Error, ErrorKind, Time};
use gridlane_plan::{LaneId, RequestId};
use gridlane_read::{Abilities, Action, Call, Event, Payload, Reader, Settings};

const FILE_BYTES: u64 = 1_000_000_000;
/// Events that a lane tells together, as the engine's lanes do.
const BATCH_EVENTS: usize = 256;
/// Rate of the path, in bytes per second.
const RATE: f64 = 1.25e9;

/// Part of a buffer that all share.
#[derive(Clone)]
struct Shared {
    bytes: Arc<Vec<u8>>,
    len: u64,
}

impl Payload for Shared {
    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn part(&self, _: u64, len: u64) -> Shared {
        Shared { bytes: Arc::clone(&self.bytes), len }
    }

    fn append(&mut self, behind: Shared) {
        self.len += behind.len;
    }

    fn memory_bytes(&self) -> u64 {
        self.len
    }
}

/// Requests that are not answered in full, by lane.
type Asked = BTreeMap<LaneId, VecDeque<(RequestId, VecDeque<ByteRange>)>>;

struct Bench {
    reader: Reader<Shared>,
    asked: Asked,
    now_s: f64,
    connecting: Vec<LaneId>,
    ended: bool,
    delivered_bytes: u64,
    spent: [Duration; 3],
}

impl Bench {
    fn now(&self) -> Time {
        Time::ZERO.plus_s(self.now_s)
    }

    fn poll(&mut self) -> Result<(), Error> {
        let now = self.now();
        let began = Instant::now();
        while let Some(action) = self.reader.poll(now) {
            match action {
                Action::Connect { lane, .. } => self.connecting.push(lane),
                Action::Request { lane, request, ranges } => {
                    self.asked.entry(lane).or_default().push_back((request, ranges.into()));
                }
                Action::Bytes { payload, .. } => self.delivered_bytes += payload.len_bytes(),
                Action::End { result, .. } => {
                    result?;
                    self.ended = true;
                }
                // Nothing is stored here.
                Action::RangeDone { .. } | Action::TakeBack { .. } | Action::Recall { .. } => {}
                Action::Close { lane } => {
                    self.asked.remove(&lane);
                }
            }
        }
        self.spent[1] += began.elapsed();
        Ok(())
    }

    /// What one lane has to tell at once.
    fn batch(&mut self, lane: LaneId, bytes: &Arc<Vec<u8>>) -> Vec<Event<Shared>> {
        let mut events = Vec::with_capacity(BATCH_EVENTS);
        let Some(requests) = self.asked.get_mut(&lane) else { return events };
        while let Some((request, ranges)) = requests.front_mut().filter(|_| events.len() < BATCH_EVENTS - 1) {
            let request = *request;
            match ranges.pop_front() {
                Some(range) => {
                    self.now_s += range.len() as f64 / RATE;
                    let payload = Shared { bytes: Arc::clone(bytes), len: range.len() };
                    events.push(Event::Part { request, offset: range.start(), payload });
                }
                None => {
                    requests.pop_front();
                    events.push(Event::Done { request });
                }
            }
        }
        events
    }
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut number = |otherwise: u64| {
        let usage = || Error::new(ErrorKind::Usage, "planner [CALLS [RANGES [BYTES]]]");
        args.next().map_or(Ok(otherwise), |given| given.map_err(|_| usage()))
    };
    let (calls, count, len) = (number(5)?, number(100_000)?, number(1000)?);
    let bytes = Arc::new(Vec::new());
    let mut reader = Reader::new(Settings::default());
    let source = reader.add_source();
    let mut bench = Bench {
        reader,
        asked: Asked::new(),
        now_s: 0.0,
        connecting: Vec::new(),
        ended: false,
        delivered_bytes: 0,
        spent: [Duration::ZERO; 3],
    };
    bench.poll()?;
    bench.reader.handle(Time::ZERO, Event::Size { source, size_bytes: FILE_BYTES });
    let abilities =
        Abilities { elements_max: 1024, element_bytes_max: 2_097_136, pipelines: true, warm: false };
    let round_trip = Some(Duration::from_micros(500));
    for lane in std::mem::take(&mut bench.connecting) {
        bench.reader.handle(Time::ZERO, Event::Ready { lane, round_trip, abilities });
    }
    let mut seed = 1_u64;
    for call in 0..calls {
        let ranges: Vec<ByteRange> = (0..count)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ByteRange::at((seed >> 20) % (FILE_BYTES - len), len)
            })
            .collect();
        (bench.ended, bench.spent) = (false, [Duration::ZERO; 3]);
        let began = Instant::now();
        bench.reader.read(bench.now(), Call { ranges, deadline: None });
        bench.spent[0] = began.elapsed();
        bench.poll()?;
        while !bench.ended {
            let lanes: Vec<LaneId> = bench.asked.keys().copied().collect();
            for lane in lanes {
                let events = bench.batch(lane, &bytes);
                let began = Instant::now();
                for event in events {
                    bench.reader.handle(bench.now(), event);
                }
                bench.spent[2] += began.elapsed();
                bench.poll()?;
            }
        }
        let each = |spent: Duration| spent.as_nanos() as f64 / count as f64;
        let all: Duration = bench.spent.iter().sum();
        println!(
            "call {call}: {:.0} ns for each of {count} elements: read {:.0}, poll {:.0}, handle {:.0}",
            each(all),
            each(bench.spent[0]),
            each(bench.spent[1]),
            each(bench.spent[2])
        );
    }
    let explain = bench.reader.explain(bench.now());
    println!("{} bytes delivered, {} requests", bench.delivered_bytes, explain.requests);
    Ok(())
}
