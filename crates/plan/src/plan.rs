//! The state machine: events in, actions out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gridlane_core::{ByteRange, Time};

use crate::lane::{Lane, LaneState};
use crate::settings::Settings;
use crate::source::{Source, Standing, Warm};
use crate::work::Work;
use crate::{Action, Event, LaneId, Loss, RequestId, SourceId};

/// Fetches one object from many sources.
///
/// The order of calls: [`add_source`](Plan::add_source) for each replica (more may follow at any time),
/// then again and again: [`handle`](Plan::handle) everything that happened, [`poll`](Plan::poll) until
/// it answers `None`, look at the [`outcome`](Plan::outcome), and sleep until something happens or the
/// [`deadline`](Plan::deadline) has come.
///
/// What the plan counts on: every lane that is opened becomes ready or is lost in bounded time; events
/// of a lane come in the order of its bytes; requests on a lane that is lost are forgotten. Time may stand still between
/// calls; it never runs back.
#[derive(Debug)]
pub struct Plan {
    pub(crate) settings: Settings,
    pub(crate) work: Work,
    pub(crate) sources: Vec<Source>,
    pub(crate) lanes: BTreeMap<LaneId, Lane>,
    /// The latest time that was passed in.
    pub(crate) now: Time,
    /// When sources and their lanes are looked after again; at once after most events.
    pub(crate) tend_at: Option<Time>,
    /// When idle lanes look again whether another one needs help.
    pub(crate) hedge_at: Time,
    /// Bytes that came and were there already.
    pub(crate) extra_bytes: u64,
    pub(crate) actions: VecDeque<Action>,
    /// The last time a fresh byte came, or the first time one could.
    pub(crate) progress_at: Time,
    lanes_named: u64,
    requests_named: u64,
}

impl Plan {
    /// A plan without sources, for an object of unknown size.
    pub fn new(settings: Settings) -> Plan {
        let settings = settings.checked();
        Plan {
            work: Work::new(settings.window_bytes),
            settings,
            sources: Vec::new(),
            lanes: BTreeMap::new(),
            now: Time::ZERO,
            tend_at: None,
            hedge_at: Time::ZERO,
            extra_bytes: 0,
            actions: VecDeque::new(),
            progress_at: Time::ZERO,
            lanes_named: 0,
            requests_named: 0,
        }
    }

    /// Names a replica. Those that are named first are used first.
    pub fn add_source(&mut self, now: Time) -> SourceId {
        if self.sources.is_empty() {
            self.progress_at = now;
        }
        self.now = self.now.max(now);
        self.tend_at = Some(self.now);
        let id = SourceId(self.sources.len() as u32);
        self.sources.push(Source::new(self.settings.lanes_per_source_max));
        id
    }

    // --- Events ----------------------------------------------------------------------------------

    /// Takes note of what happened; [`poll`](Plan::poll) afterwards.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        let now = self.now;
        // What comes with every read must be cheap; all else may change which lanes are used.
        let is_frequent = matches!(
            event,
            Event::Received { .. }
                | Event::Released { .. }
                | Event::Window { .. }
                | Event::Blocked { .. }
                | Event::RoundTrip { .. }
        );
        if !is_frequent {
            self.tend_at = Some(now);
        }
        match event {
            Event::SizeKnown { size_bytes } => self.set_size(size_bytes),
            Event::AlreadyDone { range } => self.work.mark_done(range),
            Event::LaneReady { lane, round_trip } => {
                if let Some(ready) = self.lanes.get_mut(&lane).filter(|lane| lane.state == LaneState::Opening)
                {
                    ready.be_ready(now);
                }
                round_trip.into_iter().for_each(|round_trip| self.note_round_trip(lane, round_trip));
            }
            Event::RoundTrip { lane, round_trip, loaded, out_of_order } => {
                self.note_round_trip(lane, round_trip);
                if let (Some(lane), Some(loaded)) = (self.lanes.get_mut(&lane), loaded) {
                    let source = &mut self.sources[lane.source.0 as usize];
                    source.streams.load(loaded);
                    if out_of_order.is_some_and(|packets| lane.notes_loss(now, packets)) {
                        source.streams.lose(now, source.round_trip.unwrap_or(round_trip), loaded);
                        let spread_at = source.streams.spread_at(source.round_trip);
                        self.tend_at = self.tend_at.into_iter().chain(spread_at).min();
                    }
                }
            }
            Event::Warm { source, connections, expected_bytes, rate_bytes_per_s, round_trip } => {
                if let Some(source) = self.sources.get_mut(source.0 as usize) {
                    let rate_bytes_per_s = Some(rate_bytes_per_s).filter(|rate| *rate > 0.0);
                    source.round_trip = Some(round_trip);
                    source.warm = Some(Warm { connections, rate_bytes_per_s, expected_bytes });
                }
            }
            Event::Pipelines { lane, requests_max } => {
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    lane.pipeline(requests_max);
                }
            }
            Event::Received { lane, bytes, fresh_bytes } => self.receive(lane, bytes, fresh_bytes),
            Event::RequestDone { lane } => self.finish_request(lane),
            Event::WholeBody { lane, size_bytes } => self.take_whole_body(lane, size_bytes),
            Event::LaneLost { lane, loss } => self.lose_lane(lane, &loss),
            Event::SourceDead { source } => {
                if let Some(dead) = self.sources.get_mut(source.0 as usize) {
                    dead.standing = Standing::Dead;
                    self.close_lanes_of(source);
                }
            }
            Event::Invalidate { range, not_from } => self.invalidate(range, &not_from),
            Event::Released { up_to_bytes } => {
                self.work.release(up_to_bytes);
                self.progress_at = now;
            }
            Event::Window { bytes } => {
                if let Some(window_bytes) = &mut self.settings.window_bytes {
                    *window_bytes = bytes.max(1);
                    self.work.resize_window(*window_bytes);
                }
            }
            Event::Blocked { lane, blocked } => {
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    let lasted = lane.set_blocked(now, blocked);
                    self.sources[lane.source.0 as usize].streams.block(lasted);
                    self.progress_at = now;
                }
            }
        }
    }

    fn set_size(&mut self, size_bytes: u64) {
        if self.work.size_bytes().is_some() {
            return;
        }
        self.work.set_size(size_bytes);
        for request in self.lanes.values_mut().flat_map(|lane| &mut lane.requests) {
            request.range = self.work.cut(request.range);
            request.cursor = request.cursor.min(request.range.end());
        }
    }

    fn note_round_trip(&mut self, lane: LaneId, round_trip: Duration) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        let source = &mut self.sources[lane.source.0 as usize];
        if source.round_trip.is_none() {
            self.tend_at = Some(self.now); // How far it is says with how many lanes to begin.
        }
        for smallest in [&mut lane.round_trip, &mut source.round_trip] {
            *smallest = Some(smallest.map_or(round_trip, |before| before.min(round_trip)));
        }
    }

    fn receive(&mut self, lane_id: LaneId, bytes: u64, fresh_bytes: u64) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        let source_id = lane.source;
        let source = &mut self.sources[source_id.0 as usize];
        let arrived = lane.receive(self.now, bytes);
        source.receive(self.now, bytes, fresh_bytes);
        self.extra_bytes += bytes.saturating_sub(fresh_bytes);
        if fresh_bytes > 0 {
            self.progress_at = self.now;
        }
        if source.standing == Standing::Dead {
            return; // Whatever it says now, its bytes are fetched from another one.
        }
        if self.work.has_exclusions() {
            for allowed in self.work.all_allowed(source_id, arrived).iter() {
                self.work.mark_done(allowed);
            }
        } else {
            self.work.mark_done(arrived);
        }
        if lane.is_suspect && lane.state != LaneState::Closing {
            lane.is_suspect = false;
            let total_bytes = self.total_bytes();
            let now = self.now;
            self.source_mut(source_id).streams.restart(now, total_bytes);
            self.tend_at = Some(self.now);
            self.reclaim(lane_id);
        }
    }

    fn finish_request(&mut self, lane_id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        let Some(request) = lane.finish_oldest(self.now) else { return };
        self.hedge_at = self.now;
        if request.range.end() == u64::MAX {
            // A whole body of unknown length is as long as it was.
            self.set_size(request.cursor);
            return;
        }
        self.free_up(request.rest());
        let brought_nothing = request.cursor == request.range.start() && !request.range.is_empty();
        if brought_nothing {
            self.fail_lane(lane_id);
        }
    }

    fn lose_lane(&mut self, lane_id: LaneId, loss: &Loss) {
        let Some(lane) = self.lanes.remove(&lane_id) else { return };
        self.actions.retain(|action| action.lane() != lane_id);
        for request in lane.requests.iter().filter(|request| request.is_owed) {
            self.free_up(request.rest());
        }
        if let Some(rate) = lane.rate_bytes_per_s(self.now) {
            self.source_mut(lane.source).rate_prior = Some(rate);
        }
        self.judge_loss(&lane, loss);
    }

    fn take_whole_body(&mut self, lane_id: LaneId, size_bytes: Option<u64>) {
        let Some(lane) = self.lanes.get(&lane_id) else { return };
        let (source, is_alone) = (lane.source, lane.requests.len() == 1);
        self.sources[source.0 as usize].is_sequential = true;
        let others_deliver = self.lanes.values().any(|other| {
            other.source != source
                && other.is_usable()
                && (!self.is_sequential(other.source) || !other.requests.is_empty())
        });
        let end = self.work.size_bytes().or(size_bytes).unwrap_or(u64::MAX);
        let whole = ByteRange::new(0, end);
        let is_kept = lane.state != LaneState::Closing && is_alone && !others_deliver;
        // Kept or not, what arrives from now on counts from the first byte of the object.
        if let Some(request) = self.lanes.get_mut(&lane_id).and_then(|lane| lane.requests.front_mut()) {
            let asked = request.rest();
            (request.range, request.cursor, request.is_owed) = (whole, 0, is_kept);
            self.free_up(asked);
        }
        if is_kept {
            self.work.take(whole);
        } else {
            self.close_lane(lane_id);
        }
    }

    fn invalidate(&mut self, range: ByteRange, not_from: &[SourceId]) {
        if self.is_complete() {
            // Until now there was nothing to wait for.
            self.progress_at = self.now;
        }
        self.work.exclude(range, not_from);
        self.work.mark_missing(self.work.cut(range));
        for lane in self.lanes.values_mut().filter(|lane| not_from.contains(&lane.source)) {
            for request in &mut lane.requests {
                if !request.rest().intersection(range).is_empty() {
                    request.is_owed = false;
                }
            }
        }
        // What the refused requests owed may reach beyond the range.
        let refused: Vec<ByteRange> = self
            .lanes
            .values()
            .flat_map(|lane| &lane.requests)
            .filter(|request| !request.is_owed)
            .map(|request| request.rest())
            .collect();
        refused.into_iter().chain([range]).for_each(|range| self.free_up(range));
    }

    // --- Actions ---------------------------------------------------------------------------------

    /// The next action, until there is nothing more to do for now.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.now = self.now.max(now);
        if self.actions.is_empty() && !self.is_complete() {
            let now = self.now;
            self.check_silence(now);
            if self.tend_at.is_some_and(|at| at <= now) {
                self.tend_sources(now);
            }
            self.assign(now);
            self.hedge(now);
        }
        self.actions.pop_front()
    }

    /// When to call [`poll`](Plan::poll) even if nothing happens.
    pub fn deadline(&self) -> Option<Time> {
        if self.is_complete() || self.sources.is_empty() {
            return None;
        }
        if !self.actions.is_empty() {
            return Some(self.now);
        }
        let lanes = self.lanes.values().filter_map(|lane| match lane.is_suspect {
            true => lane.give_up_at(),
            false => lane.suspect_at(),
        });
        let hedge = self.may_hedge().then_some(self.hedge_at);
        let patience = (!self.waits_for_target()).then(|| self.progress_at + self.settings.patience);
        lanes.chain(self.tend_at).chain(hedge).chain(patience).min()
    }

    pub(crate) fn open_lane(&mut self, now: Time, source: SourceId) {
        let lane = LaneId(self.lanes_named);
        self.lanes_named += 1;
        let from = self.source_mut(source);
        // The first lanes take the connections that are there. Others have windows that must grow.
        let warm = from.warm.as_mut().filter(|warm| warm.connections > 0);
        let opened = match warm {
            Some(warm) => {
                warm.connections -= 1;
                let mut lane = Lane::new(source, now, warm.rate_bytes_per_s.or(from.rate_prior));
                (lane.is_warm, lane.round_trip) = (true, from.round_trip);
                lane
            }
            None => Lane::new(source, now, from.rate_prior),
        };
        self.lanes.insert(lane, opened);
        self.actions.push_back(Action::OpenLane { lane, source });
    }

    /// Asks for `range` on a lane, which owes it from now on.
    pub(crate) fn request(&mut self, now: Time, lane_id: LaneId, range: ByteRange) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        let request = RequestId(self.requests_named);
        self.requests_named += 1;
        lane.push(now, range);
        self.work.take(range);
        self.actions.push_back(Action::Request { lane: lane_id, request, range });
    }

    /// Gives a lane up; others may have what it owes.
    pub(crate) fn close_lane(&mut self, lane_id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        if lane.state == LaneState::Closing {
            return;
        }
        lane.state = LaneState::Closing;
        self.actions.push_back(Action::CloseLane { lane: lane_id });
        self.disown(lane_id);
    }

    // --- Bytes that are owed --------------------------------------------------------------------

    /// Frees those missing bytes of `range` that no request owes.
    pub(crate) fn free_up(&mut self, range: ByteRange) {
        let mut missing = self.work.missing(range);
        for request in self.lanes.values().flat_map(|lane| &lane.requests).filter(|request| request.is_owed) {
            missing.remove(request.rest());
        }
        self.work.put_back(&missing);
    }

    /// Nothing counts on the lane's requests any more; they may still be answered.
    pub(crate) fn disown(&mut self, lane_id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        let mut rests = Vec::new();
        for request in lane.requests.iter_mut().filter(|request| request.is_owed) {
            request.is_owed = false;
            rests.push(request.rest());
        }
        rests.into_iter().for_each(|rest| self.free_up(rest));
    }

    /// A suspect lane came back: what no other took from it meanwhile it owes again.
    fn reclaim(&mut self, lane_id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        for request in &mut lane.requests {
            let is_allowed = self.work.may_deliver(lane.source, request.rest());
            if !request.is_owed && is_allowed && self.work.is_free(request.rest()) {
                request.is_owed = true;
                self.work.take(request.rest());
            }
        }
    }

    // --- Small things ----------------------------------------------------------------------------

    pub(crate) fn ids(&self) -> impl Iterator<Item = SourceId> + use<> {
        (0..self.sources.len() as u32).map(SourceId)
    }

    /// Bytes received from all sources.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.received_bytes).sum()
    }

    pub(crate) fn source(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    pub(crate) fn source_mut(&mut self, id: SourceId) -> &mut Source {
        &mut self.sources[id.0 as usize]
    }

    pub(crate) fn is_sequential(&self, id: SourceId) -> bool {
        self.source(id).is_sequential
    }
}
