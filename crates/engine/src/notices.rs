//! Handling of the notices from lanes, digest requests and the target: they go on to the plan and the judge.

use std::time::Duration;

use gridlane_core::limits::FIRST_CONTACT_MAX;
use gridlane_core::{Error, ErrorKind, Result, Scheme, Time};
use gridlane_plan as plan;
use gridlane_plan::judge::Event as Heard;

use crate::events::{Event, State};
use crate::lane::{Command, end_all};
use crate::notice::Notice;
use crate::pieces::Found;
use crate::replica::Replica;
use crate::run::{Run, SHORT_BYTES_MAX};

/// Attempts to reach a source that has never been reached: more likely a wrong name than a pause.
const CONNECTS_MAX: u32 = 3;
/// Lanes that fail within this time are one attempt.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

impl Run<'_> {
    /// Handles a notice.
    pub(crate) async fn notice(&mut self, notice: Notice) -> Result<()> {
        let now = self.pace.now();
        match notice {
            Notice::Dialled { lane, round_trip, handshake_round_trips } => {
                if let Some(entry) = self.lanes.get_mut(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    let is_remote = replica.source.url.scheme() != Scheme::File;
                    // A lane tells it again after a redirect, or when its connection had been closed.
                    replica.connections += u32::from(is_remote && !entry.is_dialled);
                    entry.is_dialled = true;
                    self.has_new_lanes = true;
                    replica.handshakes += u32::from(handshake_round_trips > 0);
                    replica.is_reached |= is_remote;
                    replica.handshake_round_trips = handshake_round_trips;
                    replica.saw_round_trip(round_trip);
                    self.judge.votes_mut().reached(entry.source, round_trip);
                }
                if handshake_round_trips == 0 && self.is_known_to_pipeline(lane) {
                    self.pipeline(now, lane);
                }
                self.plan.handle(now, plan::Event::LaneReady { lane, round_trip });
            }
            Notice::RoundTrip { lane, round_trip, loaded, out_of_order } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    replica.saw_round_trip(Some(round_trip));
                    self.place.measured(&replica.source.url.endpoint(), round_trip);
                    self.judge.votes_mut().reached(entry.source, Some(round_trip));
                }
                self.plan.handle(now, plan::Event::RoundTrip { lane, round_trip, loaded, out_of_order });
            }
            Notice::Pipelines { lane } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    self.replicas[entry.source].pipelines = true;
                }
                self.pipeline(now, lane);
            }
            Notice::Identified { source, size_bytes } => {
                Box::pin(self.identified(source as usize, size_bytes)).await?
            }
            Notice::Received { lane, bytes, fresh_bytes } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    replica.meter.add(now, bytes);
                    if replica.received_bytes < SHORT_BYTES_MAX {
                        replica.bursts.add(now, bytes);
                    }
                    replica.received_bytes += bytes;
                    self.judge.received(now, entry.source, bytes);
                    self.meter.add(now, fresh_bytes);
                }
                self.plan.handle(now, plan::Event::Received { lane, bytes, fresh_bytes });
            }
            Notice::RequestDone { lane } => self.plan.handle(now, plan::Event::RequestDone { lane }),
            Notice::WholeBody { lane, size_bytes } => {
                self.plan.handle(now, plan::Event::WholeBody { lane, size_bytes });
            }
            Notice::Lost { lane, loss, error } => {
                let entry = self.lanes.remove(&lane);
                self.plan.handle(now, plan::Event::LaneLost { lane, loss });
                for replica in self.replicas.iter_mut().filter(|replica| replica.asking_lane == Some(lane)) {
                    (replica.asks_by_lane, replica.asking_lane) = (true, None);
                }
                if let (Some(entry), Some(error)) = (entry, error) {
                    self.lost(entry.source, error);
                }
                if self.judge.is_verifying() {
                    self.request_awaited_digests();
                }
            }
            Notice::Dead { source, error, forget } => {
                self.die(source as usize, error, forget);
            }
            Notice::Blocked { lane, blocked } => {
                self.plan.handle(now, plan::Event::Blocked { lane, blocked })
            }
            Notice::Released { up_to_bytes } => {
                self.plan.handle(now, plan::Event::Released { up_to_bytes });
            }
            Notice::Digest { source, checksums, identity } => {
                let source = source as usize;
                self.replicas[source].asking_lane = None;
                if let Some(identity) = identity {
                    self.judge.votes_mut().heard(source, now);
                    // A source that has sent nothing of it has not stated its size to any lane.
                    if self.replicas[source].source.identity().is_none() && identity.size_bytes.is_some() {
                        let _ = self.replicas[source].source.identify(&identity);
                        self.identified(source, identity.size_bytes).await?;
                    }
                }
                self.tell_judge(Heard::Said { source, checksums });
            }
            Notice::Stated { source, checksums } => {
                self.tell_judge(Heard::States { source: source as usize, checksums });
            }
            Notice::Strong { source, checksums } => {
                self.tell_judge(Heard::SaidStrong { source: source as usize, checksums });
            }
            Notice::DigestUnsaid { source } => self.unsaid(source as usize),
            Notice::ServerLinks { source, served } => self.add_server_links(source as usize, served)?,
            Notice::Piece { index, found: Found::Wrong { parts } } => {
                self.tell_judge(Heard::PieceWrong { index, parts });
            }
            Notice::Piece { index, found: Found::Mended { liars } } => {
                self.tell_judge(Heard::PieceMended { index, liars });
            }
            Notice::LocalFailure { error } => return Err(error),
        }
        // What happens seldom has its state on the heap.
        match self.judge.wants() {
            true => Box::pin(self.obey_judge()).await,
            false => Ok(()),
        }
    }

    /// Lets the plan send requests on a lane before earlier ones are answered.
    fn pipeline(&mut self, now: Time, lane: plan::LaneId) {
        let entry = self.lanes.get(&lane);
        let requests_max = entry.and_then(|entry| self.replicas[entry.source].source.requests_max());
        self.plan.handle(now, plan::Event::Pipelines { lane, requests_max });
    }

    /// A connection to a source was lost, or never made.
    fn lost(&mut self, source: usize, error: Error) {
        self.observer.event(&Event::Retry { source, error: &error });
        let replica = &mut self.replicas[source];
        replica.last_error = Some(error.clone());
        let now = self.pace.now();
        let is_another =
            replica.failed_connects == 0 || now.since(replica.failed_connect_at) >= CONNECT_PAUSE;
        if !replica.is_reached {
            match error.kind() {
                // It took as long as it ever takes: the next copy need not wait so long for it.
                ErrorKind::Timeout => self.judge.votes_mut().give_up(source),
                _ => self.judge.votes_mut().gone(source),
            }
        }
        let replica = &mut self.replicas[source];
        if !replica.is_reached && is_another {
            replica.failed_connect_at = now;
            replica.failed_connects += 1;
            if replica.failed_connects >= CONNECTS_MAX && !self.may_come(source, &error) {
                self.die(source, error, false);
            }
        }
    }

    /// True if a source that could not be reached is the only one, and may be about to be started again.
    fn may_come(&self, source: usize, error: &Error) -> bool {
        let may_deliver = |replica: &Replica| replica.is_reached || replica.failed_connects == 0;
        let has_others = self
            .replicas
            .iter()
            .enumerate()
            .any(|(number, replica)| number != source && replica.dead.is_none() && may_deliver(replica));
        let hope = FIRST_CONTACT_MAX.min(self.options.patience);
        error.is_unreached() && !has_others && self.pace.now().since_origin() < hope
    }

    /// Ends all lanes; none writes afterwards.
    ///
    /// A lane that does not listen is ended where it waits: between claiming bytes of a file and committing
    /// them it never does.
    pub(crate) async fn close_lanes(&mut self, patience: Duration) -> Result<()> {
        for entry in self.lanes.values() {
            let _ = entry.commands.send(Command::Close);
        }
        let lanes = std::mem::take(&mut self.lanes);
        end_all(lanes.into_values().map(|entry| entry.running).collect(), patience).await;
        let mut outcome = Ok(());
        while let Ok(notice) = self.notices.try_recv() {
            match notice {
                Notice::LocalFailure { error } => outcome = outcome.and(Err(error)),
                Notice::Digest { source, checksums, .. } => {
                    self.tell_judge(Heard::Said { source: source as usize, checksums });
                }
                Notice::Stated { source, checksums } => {
                    self.tell_judge(Heard::States { source: source as usize, checksums });
                }
                Notice::Strong { source, checksums } => {
                    self.tell_judge(Heard::SaidStrong { source: source as usize, checksums });
                }
                Notice::Dead { source, error, forget } => self.die(source as usize, error, forget),
                // Its lane is no more, and a source says its size once.
                Notice::Identified { source, size_bytes: Some(size_bytes) } => {
                    let (source, size_bytes) = (source as usize, Some(size_bytes));
                    self.tell_judge(Heard::Identified { source, size_bytes });
                }
                // About lanes that are no more.
                _ => {}
            }
        }
        outcome
    }

    /// A source is of no use any more; with `forget`, its bytes and statements do not count either.
    fn die(&mut self, source: usize, error: Error, forget: bool) {
        let replica = &mut self.replicas[source];
        if replica.dead.is_none() {
            self.observer.event(&Event::Source { source, state: State::Dead, error: Some(&error) });
            (replica.last_error, replica.dead) = (Some(error.clone()), Some(error));
        }
        self.tell_judge(Heard::Died { source, forget });
    }
}
