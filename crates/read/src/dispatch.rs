//! What is asked for next, and on which lane.
//!
//! What calls lack goes first, then what is expected to be wanted, then fills. A lane has no more outstanding than lets its
//! sender's window grow, and no more than twice its part of what the path holds: the rest waits here, where a lane that is
//! faster, or a call that is more urgent, can have it. So ranges are divided over lanes and replicas in proportion to their
//! rates without anything being computed ahead. Bulk fills are polite: little more than the path holds in all, never on the
//! lane that is kept for calls, and nothing while calls alone fill the path.

use gridlane_core::limits::{
    READ_FIRST_BYTES, READ_REQUEST_BYTES, READ_REQUEST_BYTES_MAX, READ_SPLIT_BYTES_MIN,
};
use gridlane_core::{ByteRange, RangeSet, Time};
use gridlane_plan::{LaneId, RequestId, SourceId};

use crate::action::Action;
use crate::budget::Purpose;
use crate::cost::Path;
use crate::fill::Fill;
use crate::lane::{Lane, Request, Source, State};
use crate::parts::Parts;
use crate::payload::Payload;
use crate::reader::Reader;
use crate::settings::Policy;

/// Times what the path holds that all lanes together have outstanding.
const OUTSTANDING_PATHS: f64 = 2.0;
/// Bytes that a lane has outstanding at least, once it has brought something.
const OUTSTANDING_BYTES_MIN: f64 = 512.0 * 1024.0;
/// Time in which a part comes that a range is divided into, at least, in seconds: on a fast path its request costs more than what the
/// other connections save. At 1 Gb/s it is the least part that there is.
const SPLIT_S: f64 = 128e-6;
/// Requests that what a lane may have outstanding is divided into: as soon as there is room for one it is sent.
const OUTSTANDING_REQUESTS: u64 = 4;
/// Times what the path holds that a bulk fill has outstanding, a request aside: more than 1, so that a rate that is taken for too
/// low shows.
const BULK_PATHS: f64 = 1.1;
/// Bytes of a request of a bulk fill at least: on a path of half a millisecond a larger one makes calls wait.
const BULK_REQUEST_BYTES_MIN: u64 = 32 * 1024;
/// Bytes that may be read ahead, at least, before another request for that is sent behind one that is under way.
const AHEAD_BYTES_MIN: u64 = 64 * 1024;
/// Times its part of that which one lane has outstanding at most.
const BULK_LANE_SHARE: f64 = 1.5;
/// Part of what the path holds that calls may have outstanding while a bulk fill goes on.
const BULK_DEMAND_SHARE: f64 = 0.5;
/// Of so many lanes one is kept for calls.
const BULK_LANES: usize = 4;
/// Part of the memory that a bulk fill leaves to calls.
const BULK_MEMORY_SHARE: f64 = 0.05;
/// Times that a lane must be faster than another one to ask for the end of what that owes.
const STEAL_FACTOR: f64 = 4.0;
/// Bytes and part of what was wanted that may be asked for twice because of it.
const STEAL_BYTES: (u64, f64) = (1024 * 1024, 0.05);

impl<P: Payload> Reader<P> {
    /// Looks at everything that may be done now.
    pub(crate) fn look(&mut self, now: Time) {
        self.watch(now);
        if self.failed.is_some() {
            return;
        }
        self.follow_format();
        let is_heard = |source: &Source| source.is_dead || source.size_bytes.is_some();
        if self.is_near() && self.sources.iter().all(is_heard) {
            self.let_lanes_go();
            self.recall_everything();
            return;
        }
        self.rest(now);
        self.open_lanes(now);
        self.begin_file();
        self.send_demand(now);
        self.send_ahead(now);
        self.send_fills(now);
        self.send_bulk(now);
        self.steal(now);
    }

    // --- Lanes -----------------------------------------------------------------------------------

    /// Opens lanes until there are as many as are wanted, turn about to all sources that are usable, and first to those that have
    /// failed least: with a single lane, too, each is tried. A suspect lane is not one of those that are wanted, nor is one whose source rests.
    fn open_lanes(&mut self, now: Time) {
        let live = |lane: &&Lane| lane.state != State::Closing;
        let wanted = self.lanes_wanted(now);
        while self.lanes.values().filter(live).count() < self.settings.lanes
            && self.lanes.values().filter(live).filter(|lane| self.is_of_use(lane, now)).count() < wanted
        {
            let count = |id: usize| {
                self.lanes.values().filter(live).filter(|lane| lane.source.0 as usize == id).count()
            };
            let is_all_rangeless = self.sources.iter().all(|source| source.is_dead || source.is_rangeless);
            let usable = self.sources.iter().enumerate().filter(|(id, source)| {
                let lanes_max = match (source.is_rangeless, source.is_doubted) {
                    (true, _) => usize::from(is_all_rangeless),
                    (false, true) => 1,
                    (false, false) => source.lanes_max,
                };
                source.is_usable(now) && count(*id) < lanes_max
            });
            let least = usable.map(|(id, source)| (count(id), source.failures, id)).min();
            let Some((_, _, id)) = least else { return };
            // A source that has failed is tried with one lane.
            if self.sources[id].failures > 0 && count(id) > 0 {
                return;
            }
            let (lane, source) = (LaneId(self.next_lane), SourceId(u32::try_from(id).unwrap_or(u32::MAX)));
            self.next_lane += 1;
            self.lanes.insert(lane, Lane::new(source, now));
            self.out.push_back(Action::Connect { lane, source });
        }
    }

    /// True unless nothing may be expected of a lane for now.
    pub(crate) fn is_of_use(&self, lane: &Lane, now: Time) -> bool {
        !lane.is_suspect && self.sources[lane.source.0 as usize].is_usable(now)
    }

    /// All bytes are here: the connections are for other files, of which a program may have hundreds open. Where some are
    /// forgotten again, lanes are opened again.
    fn let_lanes_go(&mut self) {
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.close_lane(lane));
    }

    /// Begins to bring what comes along with the opening, once the size and a lane are there.
    fn begin_file(&mut self) {
        let is_ready = self.lanes.values().any(|lane| lane.state == State::Ready);
        let (Some(size_bytes), true, false) = (self.size_bytes, is_ready, self.is_opened) else { return };
        self.is_opened = true;
        let whole = ByteRange::new(0, size_bytes);
        match self.settings.policy {
            Policy::Copy => self.fills.push_back(Fill::new(whole, Purpose::Forced, true)),
            Policy::Adaptive if !self.settings.is_exact() => {
                let holds_bytes = self.path().holds_bytes() as u64;
                let comes_whole = size_bytes <= holds_bytes.min(self.settings.memory_bytes / 2);
                self.begin_outline(size_bytes, comes_whole);
                if comes_whole {
                    self.fills.push_back(Fill::new(whole, Purpose::SmallFile, false));
                    return;
                }
                let (head, _) = whole.split_at(self.settings.head_bytes.min(holds_bytes));
                let tail = self.settings.tail_bytes.min(holds_bytes);
                let (_, tail) = whole.split_at(size_bytes.saturating_sub(tail).max(head.end()));
                [tail, head].into_iter().for_each(|range| self.ahead.push_front((range, Purpose::Opening)));
            }
            _ => {}
        }
    }

    /// Bytes that the lane may be asked for now, if they are worth a request.
    fn room_bytes(&self, lane: &Lane, path: &Path, now: Time) -> Option<u64> {
        if !lane.takes_requests() || !self.sources[lane.source.0 as usize].is_usable(now) {
            return None;
        }
        let round_trip_s = self.sources[lane.source.0 as usize].round_trip.get_s();
        let others = path.lanes.max(1) as f64;
        let share = self.share(lane, now).map_or(1.0 / others, |share| (1.25 * share).min(1.0));
        let holds_bytes = OUTSTANDING_PATHS * path.rate_bytes_per_s * round_trip_s * share;
        let most = holds_bytes.max(if lane.received_bytes > 0 {
            OUTSTANDING_BYTES_MIN.min(lane.received_bytes as f64)
        } else {
            0.0
        });
        // Four windows: one is acknowledged, one on its way, and the sender has what the next, doubled one needs.
        let window = 4.0 * lane.window_bytes(most);
        let most = most.min(window).max(READ_FIRST_BYTES as f64) as u64;
        let room = most.saturating_sub(lane.outstanding_bytes);
        (room >= most / OUTSTANDING_REQUESTS).then_some(room)
    }

    /// The lane's part of what all lanes bring, where more than one source is used.
    fn share(&self, lane: &Lane, now: Time) -> Option<f64> {
        if self.sources.len() < 2 {
            return None;
        }
        let own = lane.rate.bytes_per_s(now)?;
        let all: f64 = self.lanes.values().filter_map(|lane| lane.rate.bytes_per_s(now)).sum();
        (all > 0.0).then(|| own / all)
    }

    /// The lane on which a request would be answered first, with its room.
    fn lane_for(&self, purpose: Purpose, path: &Path, now: Time) -> Option<(LaneId, u64)> {
        let is_bulk = purpose == Purpose::Bulk;
        let kept = if is_bulk { self.lanes_for_calls() } else { 0 };
        let room = |lane: &Lane| {
            let room = self.room_bytes(lane, path, now)?;
            if !is_bulk {
                return Some(room);
            }
            // A call whose range comes behind what fills waits for little more than a round trip.
            let others = path.lanes.saturating_sub(kept).max(1) as f64;
            let part_bytes = BULK_LANE_SHARE * BULK_PATHS * path.holds_bytes() / others;
            let most = (lane.window_bytes(part_bytes) as u64).max(READ_FIRST_BYTES);
            let room = room.min(most.saturating_sub(lane.outstanding_bytes));
            (room >= most / OUTSTANDING_REQUESTS).then_some(room)
        };
        let ready = self.lanes.iter().filter(|(_, lane)| lane.state == State::Ready && !lane.is_suspect);
        let candidates = ready.skip(kept);
        let timed = candidates.filter_map(|(&id, lane)| {
            let room = room(lane)?;
            let source = &self.sources[lane.source.0 as usize];
            // Lanes to one source are alike.
            let known = if self.sources.len() > 1 { lane.rate.bytes_per_s(now) } else { None };
            let rate = known.unwrap_or(path.rate_bytes_per_s / path.lanes.max(1) as f64);
            let wait_s = source.round_trip.get_s().max(lane.outstanding_bytes as f64 / rate.max(1.0));
            Some((wait_s, lane.outstanding_bytes, id, room))
        });
        let first = timed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        first.map(|(_, _, id, room)| (id, room))
    }

    /// The number of lanes that are kept for calls: the first ones.
    fn lanes_for_calls(&self) -> usize {
        let ready = self.lanes.values().filter(|lane| lane.state == State::Ready && !lane.is_suspect).count();
        if ready > 1 { ready.div_ceil(BULK_LANES) } else { 0 }
    }

    /// Bytes of a request, of `bytes` that are to be asked for.
    fn request_bytes(&self, bytes: u64, lane: &Lane, path: &Path) -> u64 {
        let lanes = self.lanes.values().filter(|lane| lane.state != State::Closing).count().max(1) as u64;
        let window = lane.window_bytes(path.holds_bytes() / lanes as f64) as u64 / 2;
        let cap = READ_REQUEST_BYTES.max(path.holds_bytes() as u64 / 4).min(READ_REQUEST_BYTES_MAX);
        let least =
            ((path.rate_bytes_per_s * SPLIT_S) as u64).clamp(READ_SPLIT_BYTES_MIN, READ_REQUEST_BYTES / 4);
        bytes.div_ceil(lanes).max(window).clamp(least, cap)
    }

    // --- Sending ---------------------------------------------------------------------------------

    fn send_demand(&mut self, now: Time) {
        let path = self.path();
        while !self.queue.is_empty() {
            let Some((id, room)) = self.lane_for(Purpose::Demand, &path, now) else { return };
            let lane = &self.lanes[&id];
            let bytes_max = match self.settings.policy {
                Policy::Direct => READ_REQUEST_BYTES_MAX,
                _ => self.request_bytes(self.queue.bytes(), lane, &path).min(room),
            };
            let Some(abilities) = lane.abilities else { return };
            let is_direct = self.settings.policy == Policy::Direct;
            let elements_max = if is_direct { 1 } else { abilities.elements_max };
            let element_bytes_max = if elements_max == 1 { u64::MAX } else { abilities.element_bytes_max };
            let waits = &self.waits;
            let ranges =
                self.queue.take(bytes_max, elements_max, element_bytes_max, |part| waits.touches(part));
            self.send(now, id, ranges, Purpose::Demand);
        }
    }

    fn send_ahead(&mut self, now: Time) {
        let path = self.path();
        while let Some((range, purpose)) = self.ahead.pop_front() {
            let size_bytes = self.size_bytes.unwrap_or(u64::MAX);
            let range = if range.start() < size_bytes { range.split_at(size_bytes).0 } else { continue };
            let free = self.free_parts(range);
            let Some(part) = free.first().copied() else { continue };
            let is_ahead = purpose == Purpose::Ahead;
            let bytes: u64 = free.iter().map(|part| part.len()).sum();
            if is_ahead && self.fill_is_near(part, &path) {
                continue;
            }
            let spare_bytes = if is_ahead { self.budget.spare_bytes() } else { u64::MAX };
            let is_under_way = || self.requests.values().any(|request| request.purpose == purpose);
            if spare_bytes == 0 || (spare_bytes < bytes.min(AHEAD_BYTES_MIN) && is_under_way()) {
                self.ahead.push_front((range, purpose));
                return;
            }
            let Some((id, room)) = self.lane_for(purpose, &path, now) else {
                self.ahead.push_front((range, purpose));
                return;
            };
            let lane = &self.lanes[&id];
            let share = self.request_bytes(bytes, lane, &path);
            let bytes_max = if purpose == Purpose::Opening && self.demanded_bytes() >= READ_FIRST_BYTES {
                // Lanes have little room beside the requests of a large call: it would be many small requests.
                READ_REQUEST_BYTES
            } else {
                share.min(room).min(spare_bytes)
            };
            // Parts between which some bytes are there, and small ones that are next to each other in the queue, are one vector.
            let elements_max = lane.abilities.map_or(1, |abilities| abilities.elements_max).max(1);
            let element_bytes_max = match (elements_max, lane.abilities) {
                (2.., Some(abilities)) => abilities.element_bytes_max.max(1),
                _ => u64::MAX,
            };
            let (mut ranges, mut taken): (Vec<ByteRange>, u64) = (Vec::new(), 0);
            for part in free.iter().take(elements_max) {
                let now_bytes = (bytes_max - taken).min(element_bytes_max);
                if now_bytes == 0 {
                    break;
                }
                let (now_part, rest) = part.split_at(part.start().saturating_add(now_bytes));
                ranges.push(now_part);
                taken += now_part.len();
                if !rest.is_empty() {
                    break;
                }
            }
            let reached = ranges.last().map_or(range.end(), |last| last.end());
            if free.last().is_none_or(|last| last.end() <= reached) {
                while ranges.len() < elements_max && taken < bytes_max {
                    let Some(&(next, other)) = self.ahead.front() else { break };
                    let follows = ranges.last().is_some_and(|last| next.start() > last.end());
                    let is_free = next.end() <= size_bytes && self.free_parts(next) == [next];
                    let is_fit = taken + next.len() <= bytes_max && next.len() <= element_bytes_max;
                    if other != purpose || !follows || !is_free || !is_fit {
                        break;
                    }
                    self.ahead.pop_front();
                    taken += next.len();
                    ranges.push(next);
                }
            } else {
                let (_, rest) = range.split_at(reached);
                if !rest.is_empty() {
                    self.ahead.push_front((rest, purpose));
                }
            }
            ranges.iter().for_each(|range| self.budget.speculate(*range, purpose));
            self.send(now, id, ranges, purpose);
        }
    }

    /// Bytes that requests owe to calls, and to them alone.
    fn demanded_bytes(&self) -> u64 {
        self.requests.values().map(Request::demanded_bytes).sum()
    }

    /// True if a fill of the whole file comes to the part before a read that is ahead of it would be answered.
    fn fill_is_near(&self, part: ByteRange, path: &Path) -> bool {
        let whole = ByteRange::new(0, self.size_bytes.unwrap_or(0));
        let Some(bulk) = self.bulk.as_ref().filter(|bulk| bulk.range == whole) else { return false };
        let near = OUTSTANDING_PATHS * path.holds_bytes();
        part.start() >= bulk.cursor && part.start() - bulk.cursor <= near as u64
    }

    /// The parts of `range` that are neither there, nor on their way, nor queued.
    pub(crate) fn free_parts(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut free = Vec::new();
        for gap in self.pages.present().gaps(range) {
            self.stored.ranges.gaps(gap).for_each(|far| self.owed.missing(far, &mut free));
        }
        let mut unqueued = Vec::new();
        free.into_iter().for_each(|part| self.queue.missing(part, &mut unqueued));
        unqueued
    }

    fn send_fills(&mut self, now: Time) {
        let path = self.path();
        while !self.fills.is_empty() {
            let Some((id, room)) = self.lane_for(Purpose::Forced, &path, now) else { return };
            let lane = &self.lanes[&id];
            let Some(fill) = self.fills.front_mut() else { return };
            let rest = fill.range.end().saturating_sub(fill.cursor);
            let lanes = path.lanes.max(1) as u64;
            let cap = READ_REQUEST_BYTES.max(path.holds_bytes() as u64 / 4).min(READ_REQUEST_BYTES_MAX);
            let window = lane.window_bytes(path.holds_bytes() / lanes as f64) as u64 / 2;
            let bytes = rest.div_ceil(lanes).max(window).clamp(READ_SPLIT_BYTES_MIN, cap).min(room);
            let Some(part) =
                fill.next(bytes, false, [self.pages.present(), &self.stored.ranges], &self.owed, &self.queue)
            else {
                self.fills.pop_front();
                continue;
            };
            let purpose = fill.purpose;
            // What calls wait for is wanted already.
            for part in self.unwanted(part) {
                self.budget.speculate(part, purpose);
            }
            self.send(now, id, vec![part], purpose);
        }
    }

    /// The parts of `part` for which no call waits.
    fn unwanted(&self, part: ByteRange) -> Vec<ByteRange> {
        let wanted: RangeSet = self.waits.wanted(part).into_iter().collect();
        wanted.missing(part)
    }

    /// The segments that a part touches are brought whole.
    pub(crate) fn touch_segments(&mut self, part: ByteRange) {
        let segment = self.settings.segment_bytes;
        let numbers = part.start() / segment..=part.end().saturating_sub(1) / segment;
        for number in numbers {
            let whole = ByteRange::at(number * segment, segment);
            let whole = whole.split_at(self.size_bytes.unwrap_or(u64::MAX)).0;
            if !self.fills.iter().any(|fill| fill.will_bring(part.intersection(whole))) {
                self.fills.push_back(Fill::new(whole, Purpose::Forced, true));
            }
        }
    }

    // --- Bulk ------------------------------------------------------------------------------------

    /// Decides whether the rest is fetched, and does it.
    fn send_bulk(&mut self, now: Time) {
        let (Some(size_bytes), Policy::Adaptive, false) =
            (self.size_bytes, self.settings.policy, self.settings.is_exact())
        else {
            return;
        };
        let path = self.path();
        if path.lanes == 0 || !self.fills.is_empty() {
            return;
        }
        self.weigh(now, &path, size_bytes);
        let Some(mut bulk) = self.bulk.take() else { return };
        let bytes = path.holds_bytes() as u64 / (2 * path.lanes as u64);
        let bytes = bytes.clamp(BULK_REQUEST_BYTES_MIN, 4 * READ_REQUEST_BYTES);
        let cap = (BULK_PATHS * path.holds_bytes()) as u64 + bytes;
        let demand_max = (BULK_DEMAND_SHARE * path.holds_bytes()).max(READ_FIRST_BYTES as f64) as u64;
        let fits_always = bulk.range.len() <= self.settings.memory_bytes / 2;
        let mut is_done = false;
        loop {
            let demanded = self.demanded_bytes();
            let under_way = self.owed.bytes().saturating_sub(demanded);
            if under_way >= cap || demanded + self.queue.bytes() > demand_max {
                break;
            }
            let left = (BULK_MEMORY_SHARE * self.settings.memory_bytes as f64) as u64;
            if !fits_always && self.pages.room_bytes() < under_way + bytes + left {
                break;
            }
            let Some((id, room)) = self.lane_for(Purpose::Bulk, &path, now) else { break };
            let Some(part) = bulk.next(
                bytes.min(room),
                true,
                [self.pages.present(), &self.stored.ranges],
                &self.owed,
                &self.queue,
            ) else {
                is_done = true;
                break;
            };
            self.budget.speculate(part, Purpose::Bulk);
            self.send(now, id, vec![part], Purpose::Bulk);
        }
        if !is_done {
            self.bulk = Some(bulk);
        }
    }

    /// Compares what calls have waited with the price of the rest: all of it, or the part that is hot.
    fn weigh(&mut self, now: Time, path: &Path, size_bytes: u64) {
        let whole = ByteRange::new(0, size_bytes);
        let (has_missed, has_waited) = self.rental.news();
        if let Some(bulk) = &mut self.bulk {
            if let Some(miss) = self.rental.last_miss().filter(|_| has_missed) {
                bulk.turn_to(miss.start());
            }
            if bulk.range == whole {
                return;
            }
        } else if !has_waited && !self.wants_everything {
            return;
        }
        let rent_s = self.rental.rent_s(now, path.round_trip_s, path.rate_bytes_per_s);
        let spent_s = self.explain.moved(Purpose::Bulk) as f64 / path.rate_bytes_per_s;
        let is_worth = |price_s: f64| rent_s >= self.settings.bulk_share * (spent_s + price_s);
        let far_bytes = self.far_bytes(whole);
        let price_s = path.bulk_s(far_bytes as f64);
        let (scope, price_s) = if far_bytes == 0 {
            (None, price_s)
        } else if self.wants_everything || is_worth(price_s) {
            (Some(whole), price_s)
        } else {
            let hot = self.rental.hot(size_bytes).map(|hot| (hot, self.far_bytes(hot)));
            let hot = hot.map(|(hot, bytes)| (hot, bytes, path.bulk_s(bytes as f64)));
            match hot.filter(|(_, bytes, price_s)| *bytes > 0 && is_worth(*price_s)) {
                Some((hot, _, price_s)) => (Some(hot), price_s),
                None => (None, price_s),
            }
        };
        self.explain.price_s = price_s;
        let Some(scope) = scope else { return };
        if self.bulk.as_ref().is_none_or(|bulk| bulk.range != scope) {
            let mut bulk = Fill::new(scope, Purpose::Bulk, false);
            if let Some(miss) = self.rental.last_miss() {
                bulk.turn_to(miss.start());
            }
            self.bulk = Some(bulk);
            let age = self.age(now);
            self.explain.bulk_after.get_or_insert(age);
        }
    }

    // --- Both ------------------------------------------------------------------------------------

    /// Sends a request.
    pub(crate) fn send(&mut self, now: Time, id: LaneId, ranges: Vec<ByteRange>, purpose: Purpose) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|_| !ranges.is_empty()) else { return };
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
        let was_alone = lane.requests.is_empty();
        if was_alone {
            lane.heard_at = now;
            lane.busy = (now, 0);
            lane.answered_at = None;
        }
        lane.requests.push_back(request);
        lane.outstanding_bytes += bytes;
        let missing = Parts::new(ranges.clone());
        self.owed.put_all(missing.clone(), request);
        self.requests.insert(
            request,
            Request {
                lane: id,
                purpose,
                missing,
                bytes,
                elements: ranges.len(),
                sent_at: now,
                was_alone,
                first_byte_at: None,
                is_body: false,
                is_taken_back: false,
            },
        );
        self.explain.requests += 1;
        self.explain.elements += ranges.len() as u64;
        self.out.push_back(Action::Request { lane: id, request, ranges });
    }

    /// A lane that has nothing to do asks for the end of what a lane of a much slower source owes to calls, when all else is
    /// asked for.
    fn steal(&mut self, now: Time) {
        if self.sources.len() < 2 || !self.queue.is_empty() || self.waits.is_empty() {
            return;
        }
        let path = self.path();
        let is_idle =
            |lane: &Lane| lane.outstanding_bytes == 0 && self.room_bytes(lane, &path, now).is_some();
        let rate = |lane: &Lane| lane.rate.bytes_per_s(now);
        let idle = self.lanes.iter().filter(|(_, lane)| is_idle(lane));
        let fastest =
            idle.filter_map(|(&id, lane)| Some((rate(lane)?, id))).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((fast, thief)) = fastest else { return };
        let source = self.lanes[&thief].source;
        let others =
            self.lanes.iter().filter(|(_, lane)| lane.outstanding_bytes > 0 && lane.source != source);
        let slow = others.filter_map(|(&id, lane)| {
            let round_trip_s = self.sources[lane.source.0 as usize].round_trip.get_s();
            let rate = rate(lane).or_else(|| lane.early_rate(now, round_trip_s))?;
            (rate * STEAL_FACTOR < fast)
                .then(|| (lane.outstanding_bytes as f64 / rate.max(1.0), id, rate.max(1.0)))
        });
        let Some((ends_s, victim, slow)) = slow.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        let round_trip_s = self.sources[source.0 as usize].round_trip.get_s();
        let bytes = ((ends_s - round_trip_s) / (1.0 / slow + 1.0 / fast)).max(0.0) as u64;
        let may = STEAL_BYTES.0 + (STEAL_BYTES.1 * self.budget.wanted_bytes() as f64) as u64;
        let bytes = bytes.min(may.saturating_sub(self.explain.again_bytes + self.stolen_bytes()));
        let Some(last) = self.lanes[&victim].requests.back().copied() else { return };
        let Some(request) = self.requests.get(&last).filter(|request| !request.is_body) else { return };
        let (mut taken, mut left) = (Vec::new(), bytes);
        for part in request.missing.iter().rev() {
            for wanted in self.waits.wanted(part).into_iter().rev() {
                let is_owed_by_it = self.owed.within(wanted).iter().all(|(_, by)| *by == last);
                if !is_owed_by_it || left < READ_SPLIT_BYTES_MIN.min(wanted.len()) {
                    continue;
                }
                let (_, tail) = wanted.split_at(wanted.end() - wanted.len().min(left));
                left -= tail.len();
                taken.push(tail);
            }
        }
        taken.reverse();
        let elements_max = self.lanes[&thief].abilities.map_or(1, |abilities| abilities.elements_max);
        taken.truncate(elements_max);
        self.send(now, thief, taken, Purpose::Demand);
    }

    /// Bytes that are asked for a second time now.
    fn stolen_bytes(&self) -> u64 {
        self.requests
            .values()
            .map(|request| request.missing.len())
            .sum::<u64>()
            .saturating_sub(self.owed.bytes())
    }
}
