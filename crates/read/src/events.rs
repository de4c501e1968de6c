//! What the transport tells.

use gridlane_core::{ByteRange, Error, ErrorKind, Time};
use gridlane_plan::{LaneId, Loss, RequestId, SourceId};

use crate::action::Action;
use crate::event::{Abilities, Event};
use crate::lane::State;
use crate::payload::Payload;
use crate::reader::Reader;

impl<P: Payload> Reader<P> {
    /// Something happened.
    pub fn handle(&mut self, now: Time, event: Event<P>) {
        self.is_dirty = true;
        match event {
            Event::Size { source, size_bytes } => self.size_stated(now, source, size_bytes),
            Event::Ready { lane, round_trip, abilities } => self.ready(now, lane, round_trip, abilities),
            Event::Able { lane, abilities } => {
                if let Some(lane) = self.lanes.get_mut(&lane).filter(|lane| lane.state == State::Ready) {
                    lane.abilities = Some(abilities);
                }
            }
            Event::Part { request, offset, payload } => self.arrive(now, request, offset, &payload),
            Event::Done { request } => self.done(now, request, None),
            Event::Failed { request, error } => self.done(now, request, Some(error)),
            Event::WholeBody { request } => self.whole_body(now, request),
            Event::Lost { lane, loss, error } => self.lost(now, lane, loss, error),
            Event::Stored { source, ranges } => self.store(source, ranges),
            Event::Recalled { offset, payload } => self.recalled(now, offset, &payload),
            Event::Unstored { range } => self.unstore(range),
            Event::Dead { source, error } => self.dead(now, source, error),
        }
        self.proceed(now);
    }

    fn size_stated(&mut self, now: Time, source: SourceId, size_bytes: u64) {
        let Some(stated) = self.sources.get_mut(source.0 as usize) else { return };
        stated.size_bytes = Some(size_bytes);
        stated.was_reached = true;
        match self.size_bytes {
            None => {
                self.size_bytes = Some(size_bytes);
                self.cut(now, size_bytes);
            }
            Some(known) if known == size_bytes => {}
            Some(known) => {
                let text =
                    format!("a replica says that the file has {size_bytes} bytes, another one {known}");
                let error = Error::new(ErrorKind::Precondition, text);
                let others =
                    self.sources.iter().filter(|source| source.size_bytes.is_some_and(|size| size != known));
                let agree = self.sources.iter().filter(|source| source.size_bytes == Some(known)).count();
                if others.count() > agree {
                    // What was delivered may be of another file.
                    self.fail(now, error.hint("name the replicas that have the right file, and no others"));
                } else {
                    self.dead(now, source, error);
                }
            }
        }
    }

    fn ready(
        &mut self,
        now: Time,
        id: LaneId,
        round_trip: Option<std::time::Duration>,
        abilities: Abilities,
    ) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.state == State::Connecting) else {
            return;
        };
        (lane.state, lane.abilities, lane.heard_at) = (State::Ready, Some(abilities), now);
        let source = &mut self.sources[lane.source.0 as usize];
        source.was_reached = true;
        if let Some(round_trip) = round_trip {
            source.round_trip.handshake(round_trip);
        }
        self.explain.handshakes += 1;
        if self.explain.handshakes == 1 {
            self.rental.forgive(now);
        }
    }

    /// Bytes came: they go to the calls that wait for them, and to the page map.
    fn arrive(&mut self, now: Time, id: RequestId, offset: u64, payload: &P) {
        let range = ByteRange::at(offset, payload.len_bytes());
        let Some(request) = self.requests.get_mut(&id) else {
            self.explain.stray_bytes += range.len();
            return;
        };
        let mut accepted = std::mem::take(&mut self.accepted);
        accepted.clear();
        let before = request.missing.len();
        request.missing.remove(range, |part| accepted.push(part));
        let accepted_bytes = before - request.missing.len();
        self.explain.stray_bytes += range.len() - accepted_bytes;
        request.first_byte_at.get_or_insert(now);
        let purpose = request.purpose;
        let Some(lane) = self.lanes.get_mut(&request.lane) else { return };
        lane.rate.receive(now, accepted_bytes, lane.heard_at.max(request.sent_at));
        lane.outstanding_bytes = lane.outstanding_bytes.saturating_sub(accepted_bytes);
        lane.received_bytes += accepted_bytes;
        lane.busy.1 += accepted_bytes;
        lane.heard_at = now;
        let was_suspect = std::mem::take(&mut lane.is_suspect);
        let lane_id = request.lane;
        if lane.outstanding_bytes == 0 {
            lane.rate.hold(now);
        }
        let source = &mut self.sources[lane.source.0 as usize];
        source.receive(accepted_bytes);
        source.is_doubted &= request.is_body;
        self.heard_at = now;
        if was_suspect {
            self.trust(lane_id);
        }
        let round_trip_s = self.round_trip_s();
        self.rate.receive(now, accepted_bytes, self.owed.bytes(), round_trip_s);
        if let Some((_, moved)) = self.explain.moved_bytes.iter_mut().find(|(other, _)| *other == purpose) {
            *moved += accepted_bytes;
        }
        for &part in &accepted {
            self.take(now, id, part, offset, payload);
        }
        self.accepted = accepted;
        if self.owed.bytes() == 0 {
            self.rate.idle();
        }
    }

    fn take(&mut self, now: Time, id: RequestId, part: ByteRange, offset: u64, payload: &P) {
        let mine = self.owed.take(part, id);
        if mine < part.len() {
            // Of two requests for the same bytes the first answer counts; the other one owes them to nobody.
            self.explain.again_bytes += part.len() - mine;
            self.owed.take_from_all(part);
        }
        self.deliver(now, part, offset, payload);
    }

    /// The bytes of `part`, of a payload from `offset` on, go to the calls that wait for them, and to the page map.
    pub(crate) fn deliver(&mut self, now: Time, part: ByteRange, offset: u64, payload: &P) {
        let mut delivered = 0;
        let mut deliveries = std::mem::take(&mut self.deliveries);
        self.waits.arrive(part, &mut deliveries);
        for delivery in deliveries.drain(..) {
            let bytes = payload.part(delivery.part.start() - offset, delivery.part.len());
            delivered += delivery.part.len();
            let (read, index, offset) = (delivery.read, delivery.index, delivery.part.start());
            self.out.push_back(Action::Bytes { read, index, offset, payload: bytes });
            if delivery.is_last {
                self.explain.delivered_bytes += delivered;
                self.rental.receive(std::mem::take(&mut delivered));
                self.finish(now, read, index);
            }
        }
        self.deliveries = deliveries;
        self.explain.delivered_bytes += delivered;
        self.rental.receive(delivered);
        if part.start() == offset && part.len() == payload.len_bytes() {
            self.pages.insert(offset, payload);
        } else {
            self.pages.insert(part.start(), &payload.part(part.start() - offset, part.len()));
        }
    }

    /// An answer ended: in good order, or with a failure.
    fn done(&mut self, now: Time, id: RequestId, error: Option<Error>) {
        let Some(request) = self.requests.remove(&id) else { return };
        let Some(lane) = self.lanes.get_mut(&request.lane) else { return };
        lane.requests.retain(|other| *other != id);
        let missing_bytes = request.missing.len();
        lane.outstanding_bytes = lane.outstanding_bytes.saturating_sub(missing_bytes);
        lane.heard_at = now;
        let source_id = lane.source;
        let source = &mut self.sources[source_id.0 as usize];
        if let Some(first_byte_at) = request.first_byte_at.filter(|_| request.was_alone) {
            source.round_trip.reply(first_byte_at.since(request.sent_at), request.bytes);
        }
        let previous = lane.answered_at.replace(now);
        if lane.requests.is_empty() {
            lane.answered_at = None;
            lane.rate.hold(now);
        }
        if let Some(previous) = previous.filter(|_| error.is_none() && missing_bytes == 0) {
            let busy = self.lanes.values().filter(|lane| !lane.requests.is_empty()).count().max(1) as u32;
            let bytes_s = request.bytes as f64 / self.rate.get();
            self.element.vector(request.elements, now.since(previous) / busy, bytes_s);
        }
        let was_cut = missing_bytes > 0 && !request.is_taken_back;
        let error = error.filter(|_| !request.is_taken_back).or_else(|| {
            was_cut
                .then(|| Error::new(ErrorKind::Protocol, "the answer ended before all of its bytes had come"))
        });
        self.back(&request, id);
        if let Some(error) = error {
            self.source_failed(now, source_id, error);
        }
    }

    /// The answer will be all of the file. A source of that kind has one request at a time, and only if no other is left.
    fn whole_body(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let Some(lane) = self.lanes.get(&request.lane) else { return };
        let (source, mine) = (lane.source, request.lane);
        self.sources[source.0 as usize].is_rangeless = true;
        let has_others = self.sources.iter().any(|other| !other.is_dead && !other.is_rangeless);
        let others: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| lane.source == source).map(|(&id, _)| id).collect();
        for lane in others {
            if lane != mine || has_others {
                self.close_lane(lane);
            }
        }
        if has_others {
            return;
        }
        let stale: Vec<RequestId> =
            self.lanes[&mine].requests.iter().copied().filter(|other| *other != id).collect();
        for other in stale {
            if let Some(request) = self.requests.remove(&other) {
                self.back(&request, other);
            }
        }
        let whole = ByteRange::new(0, self.size_bytes.unwrap_or(u64::MAX));
        if let Some(request) = self.requests.get_mut(&id) {
            request.missing.insert(whole);
            (request.is_body, request.bytes) = (true, whole.len());
        }
        // Everything that calls want is on its way now.
        self.queue.clear();
        self.owed.put(whole, id);
        if let Some(lane) = self.lanes.get_mut(&mine) {
            lane.requests.retain(|other| *other == id);
            lane.heard_at = now;
        }
        self.recount();
    }

    fn lost(&mut self, now: Time, id: LaneId, loss: Loss, error: Error) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let (source, was_closing) = (lane.source, lane.state == State::Closing);
        self.drop_lane(id);
        match loss {
            Loss::Closed | Loss::Ended => {}
            _ if was_closing => {}
            Loss::Failed => self.source_failed(now, source, error),
            Loss::Busy { wait } => {
                let count = self.lanes.values().filter(|lane| lane.source == source).count();
                let busy = &mut self.sources[source.0 as usize];
                busy.lanes_max = count.max(1);
                if count == 0 {
                    self.note_failure(&error);
                    self.sources[source.0 as usize].fail(now, error);
                    if let Some(wait) = wait {
                        let busy = &mut self.sources[source.0 as usize];
                        busy.rests_until = busy.rests_until.max(Some(now + wait.min(self.settings.patience)));
                    }
                    self.judge(now, source);
                }
            }
        }
    }

    fn dead(&mut self, now: Time, source: SourceId, error: Error) {
        if self.sources.get(source.0 as usize).is_none() {
            return;
        }
        self.note_failure(&error);
        let dead = &mut self.sources[source.0 as usize];
        (dead.is_dead, dead.last_error) = (true, Some(error));
        let lanes: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| lane.source == source).map(|(&id, _)| id).collect();
        lanes.into_iter().for_each(|lane| self.close_lane(lane));
        self.judge(now, source);
    }
}
