//! A plan, an engine that obeys it, and simulated servers, on a fake clock.
//!
//! Fluid, in steps: each connection doubles its window per round trip up to four times what the path
//! holds, or to its buffer; one that takes a loss for a full path has losses by lot, leaves slow start when bytes wait for an
//! eighth of the round trip (HyStart), and grows as CUBIC does from then on. The connections of a path share its rate. What
//! they have under way beyond what the path holds waits, up to as much again, and shows in the round trip that the plan is
//! told. A request's first byte comes a round trip after it was sent, or behind the requests before it. While nothing flows,
//! the clock jumps to the next thing that happens. The engine keeps its own ledger and checks every action of the plan
//! against it: see `Sim::check_request`.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

mod cases;
mod court;
mod liar;
mod server;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gridlane_core::{ByteRange, RangeSet, Time};
use gridlane_plan::{Action, Event, LaneId, Loss, Outcome, Plan, Settings, SourceId, SourceState};

pub(crate) use cases::config;
pub(crate) use court::{Case, Ended, Judged};
pub(crate) use liar::{Holding, When, checksum, colliding, noise};
pub(crate) use server::{Left, MB, Server, TellsSize, causal_bound_s};

const INITIAL_WINDOW_BYTES: f64 = 14_600.0;
const SEGMENT_BYTES: f64 = 1_460.0;
/// Bytes per cubic second by which a window of CUBIC grows.
const STEEPNESS: f64 = 0.4 * SEGMENT_BYTES;
/// Round trips for which bytes wait when a sender leaves slow start without a loss.
const HYSTART_WAITS: f64 = 0.125;
/// Time between two reports of round trips.
const ROUND_TRIP_INTERVAL_S: f64 = 0.01;
/// Time that the engine allows a connect.
const CONNECT_S: f64 = 15.0;

/// The same for all servers of a run.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) size_bytes: u64,
    pub(crate) client_rate: f64,
    pub(crate) step_s: f64,
    pub(crate) settings: Settings,
    /// Rate of a target that is written in order.
    pub(crate) target_rate: f64,
    /// When the window of such a target becomes another one, and which.
    pub(crate) windows: Vec<(f64, u64)>,
    pub(crate) give_up_s: f64,
    /// The kernel counts packets that come out of order.
    pub(crate) tells_losses: bool,
}

impl World {
    pub(crate) fn new(size_bytes: f64) -> World {
        World {
            size_bytes: size_bytes as u64,
            client_rate: 1.25e9,
            step_s: 0.002,
            settings: Settings::default(),
            target_rate: f64::INFINITY,
            windows: Vec::new(),
            give_up_s: 600.0,
            tells_losses: true,
        }
    }

    pub(crate) fn run(&self, servers: &[Server]) -> Finished {
        Sim::new(self, servers).run()
    }
}

/// The outcome.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) finish_s: f64,
    pub(crate) extra_bytes: u64,
    pub(crate) requests: u64,
    pub(crate) lanes_opened: u64,
    pub(crate) lanes_most: usize,
    pub(crate) lanes_most_per_source: Vec<usize>,
    pub(crate) entries_most: usize,
    pub(crate) states: Vec<SourceState>,
    pub(crate) fresh_bytes: Vec<u64>,
    /// Everything was received from a source that was not found lying.
    pub(crate) is_whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Connection {
    Connecting,
    Open,
    /// The plan asked to close it; the engine will say so at the next step.
    Closing,
}

#[derive(Debug)]
struct SimLane {
    source: usize,
    connection: Connection,
    requests: VecDeque<SimRequest>,
    window_bytes: f64,
    /// Since the last loss, or since it left slow start.
    cubic: Option<Cubic>,
    /// Packets that came behind one that was lost.
    out_of_order: u32,
    /// Bytes until the next loss.
    loss_in_bytes: f64,
    told_round_trip_at_s: f64,
    credit_bytes: f64,
    sent_bytes: u64,
    heard_at_s: f64,
    /// It was silent for so long that its requests may be given to others.
    is_discounted: bool,
}

#[derive(Debug)]
struct SimRequest {
    range: ByteRange,
    cursor: u64,
    first_byte_at_s: f64,
    is_answered: bool,
}

struct Sim<'a> {
    world: &'a World,
    servers: &'a [Server],
    plan: Plan,
    now_s: f64,
    lanes: BTreeMap<LaneId, SimLane>,
    /// Events to come, in order of time.
    pending: Vec<(f64, Event)>,
    claimed: RangeSet,
    claimed_by: Vec<RangeSet>,
    is_size_known: bool,
    released_bytes: f64,
    window_bytes: Option<u64>,
    /// Nothing behind it was asked for.
    asked_end: u64,
    liars_found: Vec<bool>,
    extra_bytes: u64,
    requests: u64,
    lanes_opened: u64,
    lanes_most: usize,
    lanes_most_per_source: Vec<usize>,
    entries_most: usize,
    /// True if the bytes are judged as well.
    court: Option<court::Court>,
}

impl<'a> Sim<'a> {
    fn new(world: &'a World, servers: &'a [Server]) -> Sim<'a> {
        let mut plan = Plan::new(world.settings.clone());
        for server in servers {
            let id = plan.add_source(Time::ZERO);
            if let Some(left) = server.left {
                plan.handle(
                    Time::ZERO,
                    Event::Warm {
                        source: id,
                        connections: left.connections,
                        expected_bytes: left.expected_bytes,
                        rate_bytes_per_s: left.rate_bytes_per_s,
                        round_trip: Duration::from_secs_f64(server.round_trip_s),
                    },
                );
            }
        }
        Sim {
            world,
            servers,
            plan,
            now_s: 0.0,
            lanes: BTreeMap::new(),
            pending: Vec::new(),
            claimed: RangeSet::new(),
            claimed_by: vec![RangeSet::new(); servers.len()],
            is_size_known: false,
            released_bytes: 0.0,
            window_bytes: world.settings.window_bytes,
            asked_end: 0,
            liars_found: vec![false; servers.len()],
            extra_bytes: 0,
            requests: 0,
            lanes_opened: 0,
            lanes_most: 0,
            lanes_most_per_source: vec![0; servers.len()],
            entries_most: 0,
            court: None,
        }
    }

    fn run(mut self) -> Finished {
        self.obey();
        while self.plan.outcome(self.now()) == Outcome::Running && self.now_s < self.world.give_up_s {
            let flowed = self.flow();
            self.now_s = if flowed { self.now_s + self.world.step_s } else { self.next_s() };
            self.deliver_pending();
            self.break_and_blame();
            self.release();
            self.resize_window();
            self.obey();
        }
        let outcome = self.plan.outcome(self.now());
        let object = ByteRange::new(0, self.world.size_bytes);
        let honest: RangeSet = (0..self.servers.len())
            .filter(|&source| !self.liars_found[source])
            .flat_map(|source| self.claimed_by[source].iter().collect::<Vec<_>>())
            .collect();
        let reports =
            (0..self.servers.len()).map(|id| self.plan.source_report(SourceId(id as u32)).expect("added"));
        let (states, fresh_bytes) = reports.map(|report| (report.state, report.fresh_bytes)).unzip();
        assert_eq!(self.plan.extra_bytes(), self.extra_bytes, "the plan counts what the engine counts");
        Finished {
            outcome,
            finish_s: self.now_s,
            extra_bytes: self.extra_bytes,
            requests: self.requests,
            lanes_opened: self.lanes_opened,
            lanes_most: self.lanes_most,
            lanes_most_per_source: self.lanes_most_per_source,
            entries_most: self.entries_most,
            states,
            fresh_bytes,
            is_whole: honest.contains(object),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO.plus_s(self.now_s)
    }

    fn tell(&mut self, event: Event) {
        let now = self.now();
        self.plan.handle(now, event);
    }

    // --- The engine ------------------------------------------------------------------------------

    fn obey(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.is_discounted |= !lane.requests.is_empty() && self.now_s - lane.heard_at_s >= 0.99;
        }
        for turn in 0.. {
            assert!(turn < 10_000, "poll never ends at {} s", self.now_s);
            let now = self.now();
            let Some(action) = self.plan.poll(now) else { break };
            match action {
                Action::OpenLane { lane, source } => self.open(lane, source.0 as usize),
                Action::Request { lane, range, .. } => self.request(lane, range),
                Action::CloseLane { lane } => {
                    if let Some(closing) = self.lanes.get_mut(&lane) {
                        closing.connection = Connection::Closing;
                        self.pending.push((self.now_s, Event::LaneLost { lane, loss: Loss::Closed }));
                    }
                }
            }
        }
        self.entries_most = self.entries_most.max(self.plan.state_entries());
        if self.plan.outcome(self.now()) == Outcome::Running {
            assert!(self.plan.deadline().is_some(), "a running plan always has a deadline");
        }
    }

    fn open(&mut self, id: LaneId, source: usize) {
        let server = &self.servers[source];
        let is_of_source = |lane: &&SimLane| lane.source == source && lane.connection != Connection::Closing;
        let lanes_open = self.lanes.values().filter(is_of_source).count();
        let left = server.left.filter(|left| self.lanes_opened < left.connections as u64);
        let connect_s = if left.is_some() { 0.001 } else { server.connect_round_trips * server.round_trip_s };
        let ready_s = self.now_s + connect_s;
        let lost = |loss| Event::LaneLost { lane: id, loss };
        let event = match server.busy {
            _ if server.is_silent(ready_s) => (self.now_s + CONNECT_S, lost(Loss::Failed)),
            _ if server.is_down(ready_s) => (self.now_s + server.round_trip_s, lost(Loss::Failed)),
            Some((lanes_max, wait_s)) if lanes_open >= lanes_max => {
                (ready_s, lost(Loss::Busy { wait: Some(Duration::from_secs_f64(wait_s)) }))
            }
            _ => {
                let round_trip = Some(Duration::from_secs_f64(server.round_trip_s));
                (ready_s, Event::LaneReady { lane: id, round_trip })
            }
        };
        if left.is_none()
            && server.connect_round_trips >= 2.0
            && !server.is_silent(ready_s)
            && !server.is_down(ready_s)
        {
            // TCP is connected before TLS is spoken.
            let round_trip = Duration::from_secs_f64(server.round_trip_s);
            let reached = Event::RoundTrip { lane: id, round_trip, loaded: None, out_of_order: None };
            self.pending.push((self.now_s + server.round_trip_s, reached));
        }
        self.pending.push(event);
        let lane = SimLane {
            source,
            connection: Connection::Connecting,
            requests: VecDeque::new(),
            window_bytes: left
                .map_or(INITIAL_WINDOW_BYTES, |left| left.rate_bytes_per_s * server.round_trip_s),
            cubic: None,
            out_of_order: 0,
            loss_in_bytes: server
                .loss_packets
                .map_or(f64::INFINITY, |packets| packets * SEGMENT_BYTES * lot(id)),
            told_round_trip_at_s: 0.0,
            credit_bytes: 0.0,
            sent_bytes: 0,
            heard_at_s: self.now_s,
            is_discounted: false,
        };
        self.lanes.insert(id, lane);
        self.lanes_opened += 1;
        let is_open = |lane: &&SimLane| lane.connection != Connection::Closing;
        self.lanes_most = self.lanes_most.max(self.lanes.values().filter(is_open).count());
        let most = &mut self.lanes_most_per_source[source];
        *most = (*most).max(lanes_open + 1);
    }

    fn request(&mut self, id: LaneId, range: ByteRange) {
        self.requests += 1;
        self.check_request(id, range);
        self.asked_end = self.asked_end.max(range.end());
        let now_s = self.now_s;
        let lane = self.lanes.get_mut(&id).expect("requests go to lanes that are open");
        if lane.requests.is_empty() {
            lane.heard_at_s = now_s;
        }
        let first_byte_at_s = now_s + self.servers[lane.source].round_trip_s;
        lane.requests.push_back(SimRequest {
            range,
            cursor: range.start(),
            first_byte_at_s,
            is_answered: false,
        });
    }

    /// The properties of every request, whatever happens.
    fn check_request(&self, id: LaneId, range: ByteRange) {
        let lane = &self.lanes[&id];
        let server = &self.servers[lane.source];
        assert_eq!(lane.connection, Connection::Open, "a request on a lane that is not open");
        assert!(!range.is_empty(), "an empty request");
        assert!(lane.requests.len() < 16, "too many requests on one lane");
        assert!(server.pipelines || lane.requests.is_empty(), "a second request on a lane that cannot");
        let size_bytes = match &self.court {
            Some(court) => court.size_bytes(),
            None => self.is_size_known.then_some(self.world.size_bytes),
        };
        if let Some(size_bytes) = size_bytes {
            assert!(range.end() <= size_bytes, "{range} is behind the end");
        }
        if let Some(window) = self.window_bytes {
            // What was asked for under a larger window may be asked for a second time.
            let end = self.asked_end.max(self.released_bytes as u64 + window);
            assert!(range.end() <= end, "{range} leaves the window");
        }
        if server.ignores_ranges.is_some() && range.start() == 0 {
            return; // The whole object, of which some may be there.
        }
        let done = match &self.court {
            // A source that was asked for a piece before it sent a wrong one may still bring it.
            Some(court) if court.case.terms.known.pieces.is_some() => Vec::new(),
            Some(court) => court.there(range),
            None => self.claimed.intersection(range),
        };
        assert!(done.is_empty(), "{range} asked for at {} s although {done:?} is there", self.now_s);
        // Others' requests for the same bytes: one at most at each byte.
        let mut others = RangeSet::new();
        for other in self.lanes.values() {
            let is_whole = self.servers[other.source].ignores_ranges.is_some();
            if other.connection != Connection::Open || other.is_discounted || is_whole {
                continue;
            }
            for request in &other.requests {
                let overlap = ByteRange::new(request.cursor, request.range.end()).intersection(range);
                assert!(others.intersection(overlap).is_empty(), "{overlap} is asked for three times");
                others.insert(overlap);
            }
        }
    }

    // --- The servers -----------------------------------------------------------------------------

    /// One step of everything that flows; whether anything did.
    fn flow(&mut self) -> bool {
        let (now_s, step_s) = (self.now_s, self.world.step_s);
        let mut rates: Vec<(LaneId, f64)> = Vec::new();
        for (source, server) in self.servers.iter().enumerate() {
            let shares =
                |other: &Server| server.bottleneck.is_some() && other.bottleneck == server.bottleneck;
            if self.servers[..source].iter().any(shares) {
                continue; // With the first one of its bottleneck.
            }
            let is_here = |lane: &SimLane| lane.source == source || shares(&self.servers[lane.source]);
            let mut lanes: Vec<(LaneId, f64)> = self
                .lanes
                .iter()
                .filter(|(_, lane)| is_here(lane) && lane.connection == Connection::Open)
                .filter(|(_, lane)| lane.requests.front().is_some_and(|first| first.first_byte_at_s <= now_s))
                .map(|(&id, lane)| {
                    let server = &self.servers[lane.source];
                    let window_bytes = match server.looks_at_empty_path_at(now_s) {
                        true => 4.0 * SEGMENT_BYTES,
                        false => lane.window_bytes.min(server.lane_window_bytes_max),
                    };
                    (id, (window_bytes / server.round_trip_s).min(server.lane_rate_max))
                })
                .collect();
            // Max-min: a flow that needs less than an equal share gets it, the others share the rest.
            lanes.sort_by(|a, b| a.1.total_cmp(&b.1));
            let rate_max = server.rate_at(now_s);
            let wanted: f64 = lanes.iter().map(|(_, rate)| rate).sum();
            let is_too_fast = server.drops_what_is_too_fast && wanted > rate_max;
            let waits_nowhere = server.limits_itself || server.drops_what_is_too_fast;
            let waits = match waits_nowhere || !server.slow_start || rate_max <= 0.0 {
                true => 0.0,
                false => (wanted / rate_max - 1.0).clamp(0.0, 1.0),
            };
            let mut left = rate_max;
            let count = lanes.len();
            for (nth, (id, rate_max)) in lanes.into_iter().enumerate() {
                let rate = rate_max.min(left / (count - nth) as f64);
                left -= rate;
                rates.push((id, rate));
                self.tell_round_trip(id, waits);
                self.see_full_path(id, waits, is_too_fast);
            }
        }
        let total: f64 = rates.iter().map(|(_, rate)| rate).sum();
        let scale = (self.world.client_rate / total.max(1.0)).min(1.0);
        for (id, rate) in rates {
            self.flow_on(id, rate * scale * step_s);
        }
        total > 0.0
    }

    /// The view of a path by a sender that takes losses for a full one.
    fn see_full_path(&mut self, id: LaneId, waits: f64, is_too_fast: bool) {
        let now_s = self.now_s;
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let server = &self.servers[lane.source];
        if server.loss_packets.is_some() && lane.cubic.is_none() && waits >= HYSTART_WAITS {
            let window_bytes = lane.window_bytes;
            lane.cubic =
                Some(Cubic { since_s: now_s, begun_bytes: window_bytes, before_bytes: window_bytes });
        }
        if is_too_fast && lane.cubic.is_none_or(|cubic| now_s - cubic.since_s > server.round_trip_s) {
            lane.loss_in_bytes = 0.0;
        }
    }

    /// `waits`: how long data waits in queues, in round trips of the empty path.
    fn tell_round_trip(&mut self, id: LaneId, waits: f64) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if self.now_s - lane.told_round_trip_at_s < ROUND_TRIP_INTERVAL_S {
            return;
        }
        lane.told_round_trip_at_s = self.now_s;
        let round_trip_s = self.servers[lane.source].round_trip_s;
        let round_trip = Duration::from_secs_f64(round_trip_s);
        let out_of_order = self.world.tells_losses.then_some(lane.out_of_order);
        let loaded = Some(Duration::from_secs_f64(round_trip_s * (1.0 + waits)));
        self.tell(Event::RoundTrip { lane: id, round_trip, loaded, out_of_order });
    }

    fn flow_on(&mut self, id: LaneId, bytes: f64) {
        let (now_s, step_s) = (self.now_s, self.world.step_s);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let source = lane.source;
        let server = &self.servers[source];
        if bytes > 0.0 && server.slow_start {
            let path_bytes = (4.0 * server.rate_at(now_s) * server.round_trip_s).max(INITIAL_WINDOW_BYTES);
            let path_bytes = path_bytes.min(server.lane_window_bytes_max);
            lane.window_bytes = match lane.cubic {
                None => lane.window_bytes * 2_f64.powf(step_s / server.round_trip_s),
                Some(cubic) => cubic.window_bytes(now_s, server.round_trip_s),
            };
            lane.window_bytes =
                lane.window_bytes.clamp(INITIAL_WINDOW_BYTES, path_bytes.max(INITIAL_WINDOW_BYTES));
            lane.loss_in_bytes -= bytes;
            if let (true, Some(packets)) = (lane.loss_in_bytes <= 0.0, server.loss_packets) {
                lane.loss_in_bytes = packets * SEGMENT_BYTES * lot(LaneId(id.0 ^ lane.sent_bytes));
                // What waits in the queue is lost first of all.
                let held_bytes = lane.window_bytes.min(2.0 * bytes / step_s * server.round_trip_s);
                lane.window_bytes = (0.7 * held_bytes).max(INITIAL_WINDOW_BYTES);
                let (begun_bytes, before_bytes) = (lane.window_bytes, held_bytes);
                lane.cubic = Some(Cubic { since_s: now_s, begun_bytes, before_bytes });
                lane.out_of_order += (held_bytes / SEGMENT_BYTES) as u32;
            }
        } else if !server.slow_start {
            lane.window_bytes = f64::INFINITY;
        }
        lane.credit_bytes += bytes;
        let (size_bytes, held_bytes) = self.sizes_of(source);
        loop {
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            if lane.connection != Connection::Open {
                return;
            }
            let Some(request) = lane.requests.front_mut().filter(|first| first.first_byte_at_s <= now_s)
            else {
                lane.credit_bytes = 0.0;
                return;
            };
            if !request.is_answered {
                if bytes <= 0.0 {
                    return;
                }
                request.is_answered = true;
                self.answer(id);
                continue;
            }
            let end = request.range.end().min(size_bytes);
            if request.cursor >= held_bytes && request.cursor < end {
                return self.lose(id, Loss::Failed);
            }
            let take = (end.min(held_bytes).saturating_sub(request.cursor)).min(lane.credit_bytes as u64);
            if take > 0 {
                let arrived = ByteRange::at(request.cursor, take);
                request.cursor += take;
                lane.credit_bytes -= take as f64;
                lane.sent_bytes += take;
                lane.heard_at_s = now_s;
                let fresh_bytes = match self.court {
                    Some(_) => self.take(source, arrived),
                    None => self.claim(source, arrived),
                };
                self.extra_bytes += take - fresh_bytes;
                self.tell(Event::Received { lane: id, bytes: take, fresh_bytes });
            } else if request.cursor < end {
                return;
            }
            self.end_answer(id, end);
        }
    }

    /// Number of these bytes that were not there.
    fn claim(&mut self, source: usize, arrived: ByteRange) -> u64 {
        let missing = self.claimed.missing(arrived);
        for part in &missing {
            self.claimed_by[source].insert(*part);
        }
        self.claimed.insert(arrived);
        missing.iter().map(|part| part.len()).sum()
    }

    /// The head of an answer: it tells the size, and what the server can do.
    fn answer(&mut self, id: LaneId) {
        let size_bytes = self.world.size_bytes;
        let lane = self.lanes.get_mut(&id).expect("it just answered");
        lane.heard_at_s = self.now_s;
        let source = lane.source;
        let server = &self.servers[source];
        let pipelines = server.pipelines && server.ignores_ranges.is_none();
        if let (Some(TellsSize(tells_size)), Some(request)) =
            (server.ignores_ranges, lane.requests.front_mut())
        {
            (request.range, request.cursor) = (ByteRange::new(0, u64::MAX), 0);
            self.tell(Event::WholeBody { lane: id, size_bytes: tells_size.then_some(size_bytes) });
            if !tells_size {
                return;
            }
        }
        if self.court.is_some() {
            self.identify(source);
        } else if !self.is_size_known {
            self.is_size_known = true;
            self.tell(Event::SizeKnown { size_bytes });
        }
        if pipelines {
            self.tell(Event::Pipelines { lane: id, requests_max: None });
        }
    }

    fn end_answer(&mut self, id: LaneId, end: u64) {
        let lane = self.lanes.get_mut(&id).expect("it just sent");
        let server = &self.servers[lane.source];
        if server.resets_after_bytes.is_some_and(|limit| lane.sent_bytes >= limit) {
            self.lose(id, Loss::Failed);
            return;
        }
        if lane.requests.front().is_none_or(|request| request.cursor < end) {
            return;
        }
        lane.requests.pop_front();
        lane.heard_at_s = self.now_s;
        self.tell(Event::RequestDone { lane: id });
        if self.court.is_none() && !self.is_size_known && server.ignores_ranges.is_some() {
            self.is_size_known = true;
            self.tell(Event::SizeKnown { size_bytes: self.world.size_bytes });
        }
        if server.one_request {
            self.lose(id, Loss::Ended);
        }
    }

    fn lose(&mut self, id: LaneId, loss: Loss) {
        self.lanes.remove(&id);
        self.tell(Event::LaneLost { lane: id, loss });
    }

    fn deliver_pending(&mut self) {
        let now_s = self.now_s;
        let mut due: Vec<(f64, Event)> = self.pending.extract_if(.., |(at_s, _)| *at_s <= now_s).collect();
        due.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, event) in due {
            match &event {
                Event::LaneReady { lane, .. } => {
                    let Some(lane) = self.lanes.get_mut(lane) else { continue };
                    if lane.connection == Connection::Connecting {
                        lane.connection = Connection::Open;
                    }
                }
                Event::LaneLost { lane, .. } if self.lanes.remove(lane).is_none() => continue,
                _ => {}
            }
            self.tell(event);
        }
    }

    fn break_and_blame(&mut self) {
        for (source, server) in self.servers.iter().enumerate() {
            if server.is_down(self.now_s) {
                let is_broken = |lane: &SimLane| lane.source == source && lane.connection == Connection::Open;
                let broken: Vec<LaneId> =
                    self.lanes.iter().filter(|(_, lane)| is_broken(lane)).map(|(&id, _)| id).collect();
                broken.into_iter().for_each(|id| self.lose(id, Loss::Failed));
            }
            if server.liar_found_at_s.is_some_and(|at_s| at_s <= self.now_s) && !self.liars_found[source] {
                self.liars_found[source] = true;
                let id = SourceId(source as u32);
                self.tell(Event::SourceDead { source: id });
                // The engine takes nothing more from it.
                self.lanes
                    .values_mut()
                    .filter(|lane| lane.source == source)
                    .for_each(|lane| lane.connection = Connection::Closing);
                let wrong: Vec<ByteRange> = self.claimed_by[source].iter().collect();
                for range in wrong {
                    self.claimed.remove(range);
                    self.tell(Event::Invalidate { range, not_from: vec![id] });
                }
            }
        }
    }

    /// The target takes what is there, in order.
    fn release(&mut self) {
        let there = match &self.court {
            Some(court) => court.there(ByteRange::new(0, u64::MAX)).first().copied(),
            None => self.claimed.first(),
        };
        let there = there.filter(|range| range.start() == 0).map_or(0, ByteRange::end);
        let taken = (self.released_bytes + self.world.target_rate * self.world.step_s).min(there as f64);
        if self.world.settings.window_bytes.is_some() && taken > self.released_bytes {
            self.released_bytes = taken;
            self.tell(Event::Released { up_to_bytes: taken as u64 });
        }
    }

    /// The window is the last one that was to come by now.
    fn resize_window(&mut self) {
        let due = self.world.windows.iter().filter(|(at_s, _)| *at_s <= self.now_s);
        if let Some((_, bytes)) = due.max_by(|a, b| a.0.total_cmp(&b.0)).copied()
            && self.window_bytes.replace(bytes) != Some(bytes)
        {
            self.tell(Event::Window { bytes });
        }
    }

    /// The time of the next event, if nothing flows.
    fn next_s(&self) -> f64 {
        let after_s = self.now_s + self.world.step_s;
        let pending = self.pending.iter().map(|(at_s, _)| *at_s);
        let first_bytes = self.lanes.values().filter_map(|lane| Some(lane.requests.front()?.first_byte_at_s));
        let faults = self.servers.iter().flat_map(|server| {
            let down = server.down.map(|(from_s, _)| from_s);
            [down, server.liar_found_at_s].into_iter().flatten()
        });
        let changes = self.servers.iter().flat_map(|server| server.rates.iter().map(|(at_s, _)| *at_s));
        let changes = changes.chain(self.world.windows.iter().map(|(at_s, _)| *at_s));
        let deadline = self.plan.deadline().map(|at| at.since_origin().as_secs_f64());
        let first = match &self.court {
            Some(court) => court.there(ByteRange::new(0, u64::MAX)).first().copied(),
            None => self.claimed.first(),
        };
        let is_released = first.is_none_or(|range| range.end() as f64 <= self.released_bytes);
        if self.world.settings.window_bytes.is_some() && !is_released {
            return after_s;
        }
        let next_s =
            pending.chain(first_bytes).chain(faults).chain(changes).filter(|at_s| *at_s > self.now_s);
        next_s.chain(deadline).fold(self.world.give_up_s, f64::min).max(after_s)
    }
}

/// A window that grows.
#[derive(Clone, Copy, Debug)]
struct Cubic {
    since_s: f64,
    begun_bytes: f64,
    /// The window before the last loss.
    before_bytes: f64,
}

impl Cubic {
    /// RFC 9438, 4.2 and 4.3, in bytes: as fast as Reno at least.
    fn window_bytes(self, now_s: f64, round_trip_s: f64) -> f64 {
        let passed_s = now_s - self.since_s;
        let flat_s = ((self.before_bytes - self.begun_bytes).max(0.0) / STEEPNESS).cbrt();
        let cubic = self.before_bytes + STEEPNESS * (passed_s - flat_s).powi(3);
        cubic.max(self.begun_bytes + 0.53 * SEGMENT_BYTES * passed_s / round_trip_s)
    }
}

/// Drawn by lot, always the same: exponential with a mean of one.
fn lot(id: LaneId) -> f64 {
    let mut bits = id.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let even = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    -(1.0 - even).ln()
}
