//! Sources that are silent, fail, or die: what they owed goes to others, and calls are told when none is left.

use gridlane_core::limits::{READ_FAILURES_ALONE_MAX, READ_FAILURES_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Time};
use gridlane_plan::{LaneId, RequestId, SourceId};

use crate::action::Action;
use crate::lane::{Request, State};
use crate::payload::Payload;
use crate::reader::Reader;

impl<P: Payload> Reader<P> {
    /// The next moment at which silence, a pause or patience ends, or connections are given up.
    pub(crate) fn next_look(&self) -> Option<Time> {
        if self.failed.is_some() {
            return None;
        }
        let silence = self.lanes.values().filter_map(|lane| {
            let (suspect, silent) = lane.patience(self.sources[lane.source.0 as usize].round_trip.get_s())?;
            Some(if lane.is_suspect { silent } else { suspect })
        });
        let pauses =
            self.sources.iter().filter(|source| !source.is_dead).filter_map(|source| source.rests_until);
        let patience = (!self.reads.is_empty()).then(|| self.heard_at + self.settings.patience);
        silence.chain(pauses).chain(patience).chain(self.rests_at()).min()
    }

    /// Looks for silence, and for the end of pauses and of patience.
    pub(crate) fn watch(&mut self, now: Time) {
        for source in &mut self.sources {
            if source.rests_until.is_some_and(|until| until <= now) {
                source.rests_until = None;
            }
        }
        let silent: Vec<(LaneId, bool)> = self
            .lanes
            .iter()
            .filter_map(|(&id, lane)| {
                let (suspect, silent) =
                    lane.patience(self.sources[lane.source.0 as usize].round_trip.get_s())?;
                (suspect <= now && (silent <= now || !lane.is_suspect)).then_some((id, silent <= now))
            })
            .collect();
        for (id, is_given_up) in silent {
            if is_given_up {
                let source = self.lanes[&id].source;
                self.close_lane(id);
                self.source_failed(now, source, Error::new(ErrorKind::Timeout, "the server went silent"));
            } else {
                self.suspect(id);
            }
        }
        if !self.reads.is_empty() && self.heard_at + self.settings.patience <= now {
            let known = self.sources.iter().rev().find_map(|source| source.last_error.clone());
            let text = "no byte came from any source for too long";
            let error = known.map_or_else(
                || Error::new(ErrorKind::Timeout, text).fault(Fault::Network),
                |error| error.more(text),
            );
            self.heard_at = now;
            self.end_all(now, &error);
        }
    }

    /// The bytes that a silent lane owes to calls are asked for elsewhere; if it brings them after all, that counts.
    fn suspect(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.is_suspect = true;
        let requests = lane.requests.clone();
        for id in requests {
            if let Some(request) = self.requests.get(&id) {
                let parts = request.missing_parts();
                self.give_back(id, &parts);
            }
        }
    }

    /// A lane that was suspect brings something: what no other took is its own again.
    pub(crate) fn trust(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get(&id) else { return };
        for id in lane.requests.clone() {
            let Some(request) = self.requests.get(&id) else { continue };
            let mut free = Vec::new();
            request.missing.iter().for_each(|part| self.owed.missing(part, &mut free));
            for part in free {
                self.queue.remove(part);
                self.owed.put(part, id);
            }
        }
    }

    /// A request ended: what it did not bring is asked for again, if calls still wait for it.
    pub(crate) fn back(&mut self, request: &Request, id: RequestId) {
        self.give_back(id, &request.missing_parts());
    }

    fn give_back(&mut self, id: RequestId, parts: &[ByteRange]) {
        let mut wanted = Vec::new();
        for part in parts {
            let mine: Vec<ByteRange> = self
                .owed
                .within(*part)
                .into_iter()
                .filter(|(_, by)| *by == id)
                .map(|(part, _)| part)
                .collect();
            self.owed.take(*part, id);
            wanted.extend(mine.into_iter().flat_map(|part| self.waits.wanted(part)));
        }
        // A forced fill goes back to where it has a hole.
        for part in parts {
            for fill in &mut self.fills {
                if fill.range.contains(*part) {
                    fill.cursor = fill.cursor.min(part.start());
                }
            }
        }
        wanted.retain(|part| !self.fills.iter().any(|fill| fill.will_bring(*part)));
        self.queue.push_front(wanted.into_iter());
    }

    /// Closes a lane and takes its requests back.
    pub(crate) fn close_lane(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.state != State::Closing) else { return };
        lane.state = State::Closing;
        self.out.push_back(Action::Close { lane: id });
        self.forget_requests(id);
    }

    /// A lane is gone.
    pub(crate) fn drop_lane(&mut self, id: LaneId) {
        self.forget_requests(id);
        self.lanes.remove(&id);
    }

    fn forget_requests(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.outstanding_bytes = 0;
        let requests = std::mem::take(&mut lane.requests);
        for id in requests.into_iter().rev() {
            if let Some(request) = self.requests.remove(&id) {
                self.back(&request, id);
            }
        }
    }

    /// Counts a failure of a source.
    pub(crate) fn note_failure(&mut self, error: &Error) {
        self.explain.failures += 1;
        self.explain.last_failure = Some(error.to_string());
    }

    /// A source failed: it rests, or is not used any more.
    pub(crate) fn source_failed(&mut self, now: Time, source: SourceId, error: Error) {
        self.note_failure(&error);
        self.sources[source.0 as usize].fail(now, error);
        self.judge(now, source);
    }

    /// Decides whether a source that has failed is dead, and whether any is left.
    pub(crate) fn judge(&mut self, now: Time, source: SourceId) {
        let others = |other: &(usize, &crate::lane::Source)| other.0 != source.0 as usize && !other.1.is_dead;
        let is_alone = !self.sources.iter().enumerate().any(|other| others(&other));
        let failures_max = if is_alone { READ_FAILURES_ALONE_MAX } else { READ_FAILURES_MAX };
        let failed = &mut self.sources[source.0 as usize];
        if !failed.is_dead && failed.failures >= failures_max {
            failed.is_dead = true;
            let lanes: Vec<LaneId> =
                self.lanes.iter().filter(|(_, lane)| lane.source == source).map(|(&id, _)| id).collect();
            lanes.into_iter().for_each(|lane| self.close_lane(lane));
        }
        if self.sources.iter().all(|source| source.is_dead) {
            let error = self.sources[source.0 as usize].last_error.clone();
            let error = error.unwrap_or_else(|| Error::new(ErrorKind::Network, "no source could be used"));
            let error = if self.sources.len() > 1 {
                error.more(format!("none of the {} replicas is left", self.sources.len()))
            } else {
                error
            };
            self.fail(now, error);
        }
    }

    /// Nothing can be read any more: every call that waits, and every later one, is told why.
    pub(crate) fn fail(&mut self, now: Time, error: Error) {
        self.end_all(now, &error);
        self.failed = Some(error);
        self.stop();
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.close_lane(lane));
        self.stop();
    }
}
