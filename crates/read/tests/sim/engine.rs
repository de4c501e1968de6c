//! The loop of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use gridlane_core::{ByteRange, Error, ErrorKind, RangeSet, Time};
use gridlane_plan::{LaneId, Loss, RequestId, SourceId};
use gridlane_read::{
    Abilities, Action, Call, Event, Explain, Hint, Known, Payload, ReadId, Reader, Settings,
};

use super::server::{Place, Server};

const INITIAL_WINDOW_BYTES: u64 = 14_600;
const SEGMENT_BYTES: u64 = 1460;
/// Bytes on the wire of an element beside its own.
const ELEMENT_BYTES: u64 = 16;
/// Time after which the engine gives up a connect.
const CONNECT_S: f64 = 15.0;

/// The bytes of the file.
pub(crate) fn content(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Parts of the file that are made by hand: where each is, and its bytes.
pub(crate) type Made = Vec<(u64, Vec<u8>)>;

/// A payload of the simulator.
pub(crate) trait SimPayload: Payload {
    /// The bytes of the file at `range`.
    fn make(range: ByteRange, made: &Made) -> Self;
    /// True if they are those from `offset` on.
    fn is_right(&self, offset: u64, made: &Made) -> bool;
}

impl SimPayload for Place {
    fn make(range: ByteRange, _: &Made) -> Place {
        Place { at: range.start(), len: range.len() }
    }

    fn is_right(&self, offset: u64, _: &Made) -> bool {
        self.at == offset
    }
}

impl SimPayload for Vec<u8> {
    fn make(range: ByteRange, made: &Made) -> Vec<u8> {
        let mut bytes: Vec<u8> = (range.start()..range.end()).map(content).collect();
        for (at, own) in made {
            let part = ByteRange::at(*at, own.len() as u64).intersection(range);
            if !part.is_empty() {
                let (to, from) = ((part.start() - range.start()) as usize, (part.start() - at) as usize);
                let len = part.len() as usize;
                bytes[to..to + len].copy_from_slice(&own[from..from + len]);
            }
        }
        bytes
    }

    fn is_right(&self, offset: u64, made: &Made) -> bool {
        *self == Vec::make(ByteRange::at(offset, self.len() as u64), made)
    }
}

/// An application.
#[derive(Clone, Debug)]
pub(crate) enum App {
    /// Each call begins when the one before has ended.
    Closed(Vec<Vec<ByteRange>>),
    /// Each call at its time, with its deadline and the time at which it is cancelled.
    Timed(Vec<Timed>),
}

/// One call of [`App::Timed`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Timed {
    pub(crate) at_s: f64,
    pub(crate) ranges: Vec<ByteRange>,
    pub(crate) deadline_s: Option<f64>,
    pub(crate) cancel_s: Option<f64>,
}

impl App {
    /// Reads of one range each, one after the other.
    pub(crate) fn serial(ranges: &[ByteRange]) -> App {
        App::Closed(ranges.iter().map(|range| vec![*range]).collect())
    }

    /// One call for all.
    pub(crate) fn known(ranges: &[ByteRange]) -> App {
        App::Closed(vec![ranges.to_vec()])
    }
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From the opening to the end of the last call.
    pub(crate) finish_s: f64,
    pub(crate) explain: Explain,
    /// Calls that ended with an error.
    pub(crate) failures: Vec<(usize, Error)>,
    pub(crate) gave_up: bool,
    /// Bytes asked for while they were in flight.
    pub(crate) twice_bytes: u64,
    pub(crate) owed_bytes: u64,
    pub(crate) waiting: usize,
    /// Connections at the end, before the file is closed.
    pub(crate) connections: usize,
    /// When there was one more or one less, and how many there were then.
    pub(crate) connections_by: Vec<(f64, usize)>,
    /// When the first range of the first call was complete.
    pub(crate) first_range_s: Option<f64>,
    /// Bytes that each server sent.
    pub(crate) sent_bytes: Vec<u64>,
    /// Requests taken back.
    pub(crate) taken_back: u64,
    /// What was learned of each server.
    pub(crate) learned: Vec<Known>,
}

#[derive(Debug)]
enum Happening {
    Ready(LaneId),
    Lost(LaneId, Loss, ErrorKind),
    Dead(SourceId),
    /// A request is at the server.
    Asked(LaneId, RequestId, Vec<ByteRange>),
    /// A chunk is here: its parts, whether the answer ends with it.
    Came {
        lane: LaneId,
        request: RequestId,
        parts: Vec<ByteRange>,
        is_last: bool,
        begins_body: bool,
    },
    /// Its acknowledgement is at the server.
    Acknowledged(LaneId, u64),
    Call(usize),
    Cancel(usize),
    Hint(Hint),
    /// A connection may have been idle for too long.
    Idle(LaneId),
}

struct Entry(f64, u64, Happening);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

struct Answer {
    request: RequestId,
    parts: VecDeque<ByteRange>,
    begins_body: bool,
    /// Bytes after which it is cut.
    left: u64,
    has_begun: bool,
}

struct Connection {
    source: usize,
    answers: VecDeque<Answer>,
    window_bytes: u64,
    in_flight_bytes: u64,
    grows: bool,
    sent_bytes: u64,
    is_open: bool,
    /// When something was last sent on it.
    used_s: f64,
}

#[derive(Default)]
struct Pending {
    index: usize,
    ranges: Vec<ByteRange>,
    got_bytes: Vec<u64>,
    got: Vec<RangeSet>,
    is_done: Vec<bool>,
}

/// One run.
pub(crate) struct Sim<P> {
    pub(crate) reader: Reader<P>,
    size_bytes: u64,
    servers: Vec<Server>,
    pub(crate) give_up_s: f64,
    /// Fails when a byte is asked for while it is in flight.
    pub(crate) is_strict: bool,
    pub(crate) hints: Vec<Hint>,
    /// Hints that come later.
    pub(crate) late_hints: Vec<(f64, Hint)>,
    pub(crate) made: Made,
    budget_bytes: u64,
    now_s: f64,
    count: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    connections: BTreeMap<LaneId, Connection>,
    /// When the path and the processor of each server are free.
    path_free_s: Vec<f64>,
    processor_free_s: Vec<f64>,
    /// Bytes that are not acknowledged, of all connections.
    under_way_bytes: Vec<u64>,
    in_flight: RangeSet,
    asked: BTreeMap<RequestId, (LaneId, RangeSet)>,
    calls: BTreeMap<ReadId, Pending>,
    names: BTreeMap<usize, ReadId>,
    outcome: Outcome,
    /// Bytes are checked one by one.
    checks_parts: bool,
}

impl<P: SimPayload> Sim<P> {
    pub(crate) fn new(size_bytes: u64, settings: Settings, servers: &[Server]) -> Sim<P> {
        Sim::knowing(size_bytes, settings, servers, &vec![Known::default(); servers.len()])
    }

    /// With what earlier runs have learned of the servers.
    pub(crate) fn knowing(
        size_bytes: u64,
        settings: Settings,
        servers: &[Server],
        known: &[Known],
    ) -> Sim<P> {
        let budget_bytes = settings.memory_bytes;
        let mut reader = Reader::new(settings);
        known.iter().for_each(|known| {
            reader.add_source_known(*known);
        });
        Sim {
            reader,
            size_bytes,
            servers: servers.to_vec(),
            give_up_s: 100_000.0,
            is_strict: true,
            hints: Vec::new(),
            late_hints: Vec::new(),
            made: Made::new(),
            budget_bytes,
            now_s: 0.0,
            count: 0,
            queue: BinaryHeap::new(),
            connections: BTreeMap::new(),
            path_free_s: vec![0.0; servers.len()],
            processor_free_s: vec![0.0; servers.len()],
            under_way_bytes: vec![0; servers.len()],
            in_flight: RangeSet::new(),
            asked: BTreeMap::new(),
            calls: BTreeMap::new(),
            names: BTreeMap::new(),
            outcome: Outcome {
                finish_s: 0.0,
                explain: Explain::default(),
                failures: Vec::new(),
                gave_up: false,
                twice_bytes: 0,
                owed_bytes: 0,
                waiting: 0,
                connections: 0,
                connections_by: Vec::new(),
                first_range_s: None,
                sent_bytes: vec![0; servers.len()],
                taken_back: 0,
                learned: Vec::new(),
            },
            checks_parts: std::mem::size_of::<P>() != std::mem::size_of::<Place>(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO.plus_s(self.now_s)
    }

    fn later(&mut self, at_s: f64, happening: Happening) {
        self.count += 1;
        self.queue.push(Reverse(Entry(at_s.max(self.now_s), self.count, happening)));
    }

    /// Runs the application to its end.
    pub(crate) fn run(mut self, app: &App) -> Outcome {
        for hint in std::mem::take(&mut self.hints) {
            self.reader.hint(hint);
        }
        for (at_s, hint) in std::mem::take(&mut self.late_hints) {
            self.later(at_s, Happening::Hint(hint));
        }
        let (calls, mut next): (Vec<Timed>, usize) = match app {
            App::Closed(calls) => {
                (calls.iter().map(|ranges| Timed { ranges: ranges.clone(), ..Timed::default() }).collect(), 0)
            }
            App::Timed(calls) => (calls.clone(), calls.len()),
        };
        if next > 0 {
            for (index, call) in calls.iter().enumerate() {
                self.later(call.at_s, Happening::Call(index));
            }
        }
        let is_closed_loop = matches!(app, App::Closed(_));
        let mut ended = 0;
        loop {
            let before = ended;
            ended += self.obey();
            // A program opens the file first: it has its size then.
            let may_begin = self.reader.size_bytes().is_some() || ended > 0 || self.now_s > 60.0;
            if is_closed_loop && self.calls.is_empty() && next < calls.len() && may_begin {
                self.call(next, &calls[next]);
                next += 1;
                continue;
            }
            if ended == calls.len() {
                break;
            }
            if before != ended {
                continue;
            }
            let due = self.reader.deadline().map(|deadline| deadline.since_origin().as_secs_f64());
            let happens = self.queue.peek().map(|Reverse(entry)| entry.0);
            let Some(at_s) = [due, happens].into_iter().flatten().reduce(f64::min) else {
                panic!(
                    "nothing will happen any more at {} s, and {} calls wait",
                    self.now_s,
                    self.calls.len()
                );
            };
            self.now_s = self.now_s.max(at_s + if happens == Some(at_s) { 0.0 } else { 2e-9 });
            if self.now_s > self.give_up_s {
                self.outcome.gave_up = true;
                break;
            }
            while self.queue.peek().is_some_and(|Reverse(entry)| entry.0 <= self.now_s) {
                let Some(Reverse(Entry(_, _, happening))) = self.queue.pop() else { break };
                self.happen(happening, &calls);
            }
        }
        self.outcome.finish_s = self.now_s;
        self.outcome.explain = self.reader.explain(self.now());
        self.outcome.owed_bytes = self.reader.owed_bytes();
        self.outcome.waiting = self.reader.waiting();
        self.outcome.connections = self.connections.len();
        let numbers = 0..self.servers.len() as u32;
        self.outcome.learned = numbers.map(|number| self.reader.learned(SourceId(number))).collect();
        let now = self.now();
        self.reader.close(now);
        self.obey();
        assert!(self.outcome.gave_up || self.calls.is_empty());
        assert_eq!((self.reader.waiting(), self.reader.memory_bytes()), (0, 0));
        self.outcome
    }

    fn call(&mut self, index: usize, call: &Timed) {
        let mut wanted = Call::scattered(call.ranges.iter().copied());
        wanted.deadline = call.deadline_s.map(|deadline_s| Time::ZERO.plus_s(deadline_s));
        let id = self.reader.read(self.now(), wanted);
        let count = call.ranges.len();
        let pending = Pending {
            index,
            ranges: call.ranges.clone(),
            got_bytes: vec![0; count],
            got: vec![RangeSet::new(); if self.checks_parts { count } else { 0 }],
            is_done: vec![false; count],
        };
        self.calls.insert(id, pending);
        self.names.insert(index, id);
    }

    // --- The engine ------------------------------------------------------------------------------

    /// Does what the reader wants; returns the number of calls that ended.
    fn obey(&mut self) -> usize {
        let mut ended = 0;
        for turn in 0.. {
            assert!(turn < 10_000_000, "poll never ends at {} s", self.now_s);
            let Some(action) = self.reader.poll(self.now()) else { break };
            ended += usize::from(self.comply(action));
        }
        let memory = self.reader.memory_bytes();
        assert!(memory <= self.budget_bytes + self.reader.pinned_bytes(), "{memory} bytes of memory");
        ended
    }

    fn comply(&mut self, action: Action<P>) -> bool {
        match action {
            Action::Connect { lane, source } => self.connect(lane, source),
            Action::Request { lane, request, ranges } => self.ask(lane, request, ranges),
            Action::TakeBack { request } => {
                self.outcome.taken_back += 1;
                self.take_back(request);
            }
            Action::Recall { ranges } => panic!("nothing is stored here: {ranges:?}"),
            Action::Close { lane } => self.break_connection(lane, Loss::Closed),
            Action::Bytes { read, index, offset, payload } => {
                assert!(payload.is_right(offset, &self.made), "wrong bytes at {offset}");
                let call = self.calls.get_mut(&read).expect("bytes come for calls that wait");
                let range = ByteRange::at(offset, payload.len_bytes());
                assert!(call.ranges[index].contains(range) && !call.is_done[index]);
                call.got_bytes[index] += range.len();
                if self.checks_parts {
                    assert_eq!(call.got[index].insert(range), range.len(), "each byte once");
                }
            }
            Action::RangeDone { read, index, bytes } => {
                let size_bytes = self.size_bytes;
                let call = self.calls.get_mut(&read).expect("ranges end before calls");
                let there = call.ranges[index].intersection(ByteRange::new(0, size_bytes)).len();
                assert_eq!((call.got_bytes[index], bytes), (there, there), "{:?}", call.ranges[index]);
                assert!(!std::mem::replace(&mut call.is_done[index], true), "each range once");
                self.outcome.first_range_s.get_or_insert(self.now_s);
            }
            Action::End { read, result } => {
                let call = self.calls.remove(&read).expect("each call ends once");
                match result {
                    Ok(()) => assert!(call.is_done.iter().all(|done| *done), "a call ends after its ranges"),
                    Err(error) => self.outcome.failures.push((call.index, error)),
                }
                return true;
            }
        }
        false
    }

    fn connect(&mut self, lane: LaneId, source: SourceId) {
        let number = source.0 as usize;
        let server = self.servers[number].clone();
        let ready_s = self.now_s + server.handshakes * server.round_trip_s;
        let open = self.connections.values().filter(|connection| connection.source == number).count();
        let connection = Connection {
            source: number,
            answers: VecDeque::new(),
            window_bytes: if server.slow_start { INITIAL_WINDOW_BYTES } else { u64::MAX / 4 },
            in_flight_bytes: 0,
            grows: server.slow_start,
            sent_bytes: 0,
            is_open: false,
            used_s: self.now_s,
        };
        self.connections.insert(lane, connection);
        self.outcome.connections_by.push((self.now_s, self.connections.len()));
        let happening = if server.silent_from_s.is_some_and(|from_s| from_s <= ready_s) {
            (self.now_s + CONNECT_S, Happening::Lost(lane, Loss::Failed, ErrorKind::Timeout))
        } else if server.down_from_s.is_some_and(|from_s| from_s <= ready_s) {
            (self.now_s + server.round_trip_s, Happening::Lost(lane, Loss::Failed, ErrorKind::Network))
        } else if server.has_no_file {
            (ready_s, Happening::Dead(source))
        } else if open >= server.lanes_max {
            (ready_s, Happening::Lost(lane, Loss::Busy { wait: None }, ErrorKind::Busy))
        } else {
            (ready_s, Happening::Ready(lane))
        };
        self.later(happening.0, happening.1);
    }

    fn ask(&mut self, lane: LaneId, request: RequestId, ranges: Vec<ByteRange>) {
        let connection = &self.connections[&lane];
        let server = &self.servers[connection.source];
        assert!(connection.is_open && !ranges.is_empty());
        assert!(ranges.len() <= server.elements_max);
        assert!(ranges.iter().all(|range| !range.is_empty() && range.end() <= self.size_bytes));
        assert!(
            ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start()),
            "elements ascend: {ranges:?}"
        );
        let mut fresh = 0;
        for range in &ranges {
            fresh += self.in_flight.insert(*range);
        }
        let twice = ranges.iter().map(|range| range.len()).sum::<u64>() - fresh;
        self.outcome.twice_bytes += twice;
        assert!(
            twice == 0 || !self.is_strict,
            "{twice} bytes are asked for while they are in flight, at {} s: {ranges:?}; {:?}",
            self.now_s,
            self.reader.explain(self.now())
        );
        self.asked.insert(request, (lane, ranges.iter().copied().collect()));
        let at_s = self.now_s + server.round_trip_s / 2.0;
        self.later(at_s, Happening::Asked(lane, request, ranges));
    }

    fn take_back(&mut self, request: RequestId) {
        let Some((lane, _)) = self.asked.get(&request) else { return };
        let lane = *lane;
        let Some(connection) = self.connections.get_mut(&lane) else { return };
        let before = connection.answers.len();
        connection.answers.retain(|answer| answer.request != request || answer.has_begun);
        if connection.answers.len() < before {
            self.forget(request);
            let error = Error::new(ErrorKind::Interrupted, "taken back");
            let now = self.now();
            self.reader.handle(now, Event::Failed { request, error });
        }
    }

    fn forget(&mut self, request: RequestId) {
        if let Some((_, parts)) = self.asked.remove(&request) {
            parts.iter().for_each(|part| {
                self.in_flight.remove(part);
            });
        }
    }

    fn break_connection(&mut self, lane: LaneId, loss: Loss) {
        let Some(connection) = self.connections.remove(&lane) else { return };
        self.outcome.connections_by.push((self.now_s, self.connections.len()));
        self.under_way_bytes[connection.source] -= connection.in_flight_bytes;
        let gone: Vec<RequestId> =
            self.asked.iter().filter(|(_, (on, _))| *on == lane).map(|(&id, _)| id).collect();
        gone.into_iter().for_each(|request| self.forget(request));
        let error = Error::new(ErrorKind::Network, "the connection broke");
        let now = self.now();
        self.reader.handle(now, Event::Lost { lane, loss, error });
    }

    // --- The servers -----------------------------------------------------------------------------

    fn happen(&mut self, happening: Happening, calls: &[Timed]) {
        let now = self.now();
        match happening {
            Happening::Ready(lane) => {
                let Some(connection) = self.connections.get_mut(&lane) else { return };
                connection.is_open = true;
                connection.used_s = self.now_s;
                let source = connection.source;
                let server = &self.servers[source];
                let abilities = Abilities {
                    elements_max: server.elements_max,
                    element_bytes_max: server.element_bytes_max,
                    pipelines: server.pipelines,
                    warm: false,
                };
                let round_trip = Some(Duration::from_secs_f64(server.round_trip_s));
                let size_bytes = server.says_bytes.unwrap_or(self.size_bytes);
                if let Some(limit_s) = server.closes_idle_after_s {
                    self.later(self.now_s + limit_s, Happening::Idle(lane));
                }
                self.reader.handle(now, Event::Ready { lane, round_trip, abilities });
                self.reader.handle(now, Event::Size { source: SourceId(source as u32), size_bytes });
            }
            Happening::Lost(lane, loss, kind) => {
                if self.connections.remove(&lane).is_some() {
                    self.reader
                        .handle(now, Event::Lost { lane, loss, error: Error::new(kind, "no connection") });
                }
            }
            Happening::Dead(source) => {
                self.reader.handle(
                    now,
                    Event::Dead { source, error: Error::new(ErrorKind::NotFound, "no such file") },
                );
            }
            Happening::Asked(lane, request, ranges) => {
                let size_bytes = self.size_bytes;
                let now_s = self.now_s;
                if let Some(connection) = self.connections.get_mut(&lane) {
                    let server = &self.servers[connection.source];
                    let limit_s = server.forgets_idle_after_s.unwrap_or(f64::INFINITY);
                    if connection.used_s + limit_s < now_s {
                        return;
                    }
                    connection.used_s = now_s;
                    let left = server.cuts_after_bytes.unwrap_or(u64::MAX);
                    let parts =
                        if server.ignores_ranges { vec![ByteRange::new(0, size_bytes)] } else { ranges };
                    let begins_body = server.ignores_ranges;
                    let parts = parts.into();
                    connection.answers.push_back(Answer {
                        request,
                        parts,
                        begins_body,
                        left,
                        has_begun: false,
                    });
                    self.send(lane);
                }
            }
            Happening::Acknowledged(lane, bytes) => {
                if let Some(connection) = self.connections.get_mut(&lane) {
                    let server = &self.servers[connection.source];
                    let waits_s = (server.round_trip_s / 8.0).clamp(0.004, 0.016);
                    let full_bytes = server.rate * (server.round_trip_s + waits_s);
                    let grows =
                        connection.grows && (self.under_way_bytes[connection.source] as f64) < full_bytes;
                    connection.in_flight_bytes -= bytes;
                    self.under_way_bytes[connection.source] -= bytes;
                    connection.window_bytes += if grows { bytes } else { 0 };
                    self.send(lane);
                }
            }
            Happening::Came { lane, request, parts, is_last, begins_body } => {
                self.come(lane, request, parts, is_last, begins_body);
            }
            Happening::Call(index) => {
                self.call(index, &calls[index]);
                if let Some(at_s) = calls[index].cancel_s {
                    self.later(at_s, Happening::Cancel(index));
                }
            }
            Happening::Hint(hint) => self.reader.hint(hint),
            Happening::Idle(lane) => {
                let limit_s = |connection: &Connection| self.servers[connection.source].closes_idle_after_s;
                let is_over = self.connections.get(&lane).is_some_and(|connection| {
                    limit_s(connection).is_some_and(|limit_s| connection.used_s + limit_s <= self.now_s)
                });
                if is_over {
                    self.break_connection(lane, Loss::Ended);
                }
            }
            Happening::Cancel(index) => {
                let read = self.names[&index];
                self.reader.cancel(now, read);
            }
        }
    }

    fn come(
        &mut self,
        lane: LaneId,
        request: RequestId,
        parts: Vec<ByteRange>,
        is_last: bool,
        begins_body: bool,
    ) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&lane) else { return };
        let server = self.servers[connection.source].clone();
        if server.silent_from_s.is_some_and(|from_s| from_s <= self.now_s) {
            return;
        }
        if server.down_from_s.is_some_and(|from_s| from_s <= self.now_s) {
            return self.break_connection(lane, Loss::Failed);
        }
        connection.used_s = self.now_s;
        if let Some(limit_s) = server.closes_idle_after_s {
            self.count += 1;
            self.queue.push(Reverse(Entry(self.now_s + limit_s, self.count, Happening::Idle(lane))));
        }
        connection.sent_bytes += parts.iter().map(|part| part.len()).sum::<u64>();
        let source = connection.source;
        if server.resets_after_bytes.is_some_and(|bytes| connection.sent_bytes >= bytes) {
            return self.break_connection(lane, Loss::Failed);
        }
        if begins_body {
            self.reader.handle(now, Event::WholeBody { request });
        }
        for part in parts {
            self.outcome.sent_bytes[source] += part.len();
            self.in_flight.remove(part);
            if let Some((_, rest)) = self.asked.get_mut(&request) {
                rest.remove(part);
            }
            let payload = P::make(part, &self.made);
            self.reader.handle(now, Event::Part { request, offset: part.start(), payload });
            if server.adds_strays && part.end() + 10 < self.size_bytes {
                let stray = ByteRange::at(part.end(), 7);
                let payload = P::make(stray, &self.made);
                self.reader.handle(now, Event::Part { request, offset: stray.start(), payload });
            }
        }
        if is_last && self.asked.contains_key(&request) {
            self.forget(request);
            self.reader.handle(now, Event::Done { request });
        }
    }

    /// Sends what the window of a connection takes.
    fn send(&mut self, lane: LaneId) {
        loop {
            let Some(connection) = self.connections.get_mut(&lane) else { return };
            let server = &self.servers[connection.source];
            let room = connection.window_bytes.saturating_sub(connection.in_flight_bytes);
            // Whole segments, where the window is not shut.
            if room < SEGMENT_BYTES && connection.in_flight_bytes > 0 {
                return;
            }
            let Some(answer) = connection.answers.front_mut() else { return };
            let quantum = ((server.rate * server.round_trip_s / 16.0) as u64).clamp(32 * 1024, 64 * 1024);
            let chunk = room.min(quantum).max(1);
            let (mut bytes, mut taken) = (0, Vec::new());
            while bytes < chunk && answer.left > 0 {
                let Some(part) = answer.parts.pop_front() else { break };
                let (now, rest) = part.split_at(part.start() + (chunk - bytes).min(answer.left));
                if !rest.is_empty() {
                    answer.parts.push_front(rest);
                }
                bytes += now.len();
                answer.left -= now.len();
                taken.push(now);
            }
            answer.has_begun = true;
            let request = answer.request;
            let is_last = answer.parts.is_empty() || answer.left == 0;
            let begins_body = std::mem::take(&mut answer.begins_body);
            if is_last {
                connection.answers.pop_front();
            }
            let source = connection.source;
            let elements = taken.len() as f64;
            let processed_s = self.processor_free_s[source].max(self.now_s) + elements * server.element_s;
            self.processor_free_s[source] = processed_s;
            let starts_s = self.path_free_s[source].max(processed_s);
            let wire = bytes + taken.len() as u64 * ELEMENT_BYTES;
            self.path_free_s[source] = starts_s + wire as f64 / server.rate;
            connection.in_flight_bytes += bytes;
            self.under_way_bytes[source] += bytes;
            let half_s = server.round_trip_s / 2.0;
            let here_s = self.path_free_s[source] + half_s;
            self.later(here_s, Happening::Came { lane, request, parts: taken, is_last, begins_body });
            self.later(here_s + half_s, Happening::Acknowledged(lane, bytes));
        }
    }
}
