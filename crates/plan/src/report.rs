//! What a plan tells about itself.

use std::time::Duration;

use gridlane_core::Time;

use crate::SourceId;
use crate::lane::{Lane, LaneState};
use crate::plan::Plan;
use crate::source::Standing;

/// The state of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is hope: call [`Plan::poll`] and wait.
    Running,
    /// The size is known and every byte is there.
    Complete,
    /// The rest cannot be had; the reason.
    Stuck(Stuck),
}

/// Why the rest cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Every source is dead, each for its own reason.
    AllDead,
    /// Some bytes may not come from any source that is left: all that had them delivered wrong ones.
    Refused,
    /// No source delivered a byte for [`Settings::patience`](crate::Settings::patience).
    Timeout,
    /// All that are left asked to come back later: so much later that patience ends before, or it has ended.
    Busy,
}

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Kept for the case that another source is lost.
    Spare,
    /// No lane is ready yet.
    Connecting,
    /// At least one lane is ready and not suspect.
    Active,
    /// Bytes are due and none came for a while, on all its lanes.
    Suspect,
    /// It failed; it is tried again at `until`.
    Probation {
        /// When it gets its next chance.
        until: Time,
    },
    /// It asked to be left alone until then.
    Busy {
        /// When lanes may be opened again.
        until: Time,
    },
    /// Never used again.
    Dead,
}

/// One source, as far as the plan knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceReport {
    /// Its state.
    pub state: SourceState,
    /// It ignores ranges, and so is used only when no other one is left.
    pub is_sequential: bool,
    /// Lanes that are open or being opened.
    pub lanes: usize,
    /// Sum of its lanes' rates; zero while unknown.
    pub rate_bytes_per_s: f64,
    /// The smallest round trip seen.
    pub round_trip: Option<Duration>,
    /// All bytes it sent.
    pub received_bytes: u64,
    /// Those of them that were new.
    pub fresh_bytes: u64,
    /// Bytes that were asked for and have not come.
    pub outstanding_bytes: u64,
}

impl Plan {
    /// True if the size is known and every byte is there.
    pub fn is_complete(&self) -> bool {
        self.missing_bytes() == Some(0)
    }

    /// The state of the copy: done, going on, or stuck for a reason.
    pub fn outcome(&self, now: Time) -> Outcome {
        if self.is_complete() {
            return Outcome::Complete;
        }
        let alive: Vec<SourceId> =
            self.ids().filter(|&id| self.source(id).standing != Standing::Dead).collect();
        if alive.is_empty() && !self.sources.is_empty() {
            return Outcome::Stuck(Stuck::AllDead);
        }
        if self.work.has_exclusions() && self.work.is_refused_to_all(&alive) {
            return Outcome::Stuck(Stuck::Refused);
        }
        let patience_end = self.progress_at + self.settings.patience;
        // An open lane may still deliver: a busy source wants no new ones.
        let all_come_too_late = self.lanes.values().all(|lane| lane.state == LaneState::Closing)
            && alive.iter().all(
                |&id| matches!(self.source(id).standing, Standing::Busy { until } if until > patience_end),
            );
        let has_patience = now < patience_end && !all_come_too_late;
        if has_patience || alive.is_empty() || self.waits_for_target() {
            return Outcome::Running;
        }
        let are_busy = alive.iter().all(|&id| matches!(self.source(id).standing, Standing::Busy { .. }));
        Outcome::Stuck(if are_busy { Stuck::Busy } else { Stuck::Timeout })
    }

    /// True if the rest cannot be had; [`outcome`](Plan::outcome) tells why.
    pub fn is_stuck(&self, now: Time) -> bool {
        matches!(self.outcome(now), Outcome::Stuck(_))
    }

    /// The size of the object, once it is known.
    pub fn size_bytes(&self) -> Option<u64> {
        self.work.size_bytes()
    }

    /// Bytes still to come; `None` while the size is unknown.
    pub fn missing_bytes(&self) -> Option<u64> {
        self.work.missing_bytes()
    }

    /// Bytes behind those that a target written in order has taken which have come, or may still come since they were asked
    /// for. A body that comes from its first byte on is none of them: it comes in order.
    pub fn ahead_bytes(&self) -> u64 {
        let lanes = self.lanes.values().filter(|lane| !self.is_sequential(lane.source));
        let asked = lanes.flat_map(|lane| &lane.requests).map(|request| request.range.end());
        self.work.ahead_bytes(asked.filter(|end| *end != u64::MAX).max().unwrap_or(0))
    }

    /// Bytes that came and were there already: hedges that lost, and answers that were no longer waited for.
    pub fn extra_bytes(&self) -> u64 {
        self.extra_bytes
    }

    /// Sum of the rates of all lanes that deliver.
    pub fn total_rate_bytes_per_s(&self) -> f64 {
        let usable = self.lanes.values().filter(|lane| lane.is_usable());
        usable.filter_map(|lane| lane.rate_bytes_per_s(self.now)).sum()
    }

    /// Number of entries in the plan's state: its memory, which is bounded by lanes and fragments.
    pub fn state_entries(&self) -> usize {
        let requests: usize = self.lanes.values().map(|lane| lane.requests.len()).sum();
        self.work.fragments() + self.lanes.len() + requests + self.actions.len()
    }

    /// The state of a source; `None` for one of another plan.
    pub fn source_state(&self, id: SourceId) -> Option<SourceState> {
        let mut lanes =
            self.lanes.values().filter(|lane| lane.source == id && lane.state != LaneState::Closing);
        Some(match self.sources.get(id.0 as usize)?.standing {
            Standing::Spare => SourceState::Spare,
            Standing::Dead => SourceState::Dead,
            Standing::Probation { until } => SourceState::Probation { until },
            Standing::Busy { until } => SourceState::Busy { until },
            Standing::Live if lanes.clone().any(Lane::is_usable) => SourceState::Active,
            Standing::Live if lanes.any(|lane| lane.is_suspect) => SourceState::Suspect,
            Standing::Live => SourceState::Connecting,
        })
    }

    /// The facts known about a source; `None` for one of another plan.
    pub fn source_report(&self, id: SourceId) -> Option<SourceReport> {
        let source = self.sources.get(id.0 as usize)?;
        let lanes: Vec<&Lane> = self
            .lanes
            .values()
            .filter(|lane| lane.source == id && lane.state != LaneState::Closing)
            .collect();
        Some(SourceReport {
            state: self.source_state(id)?,
            is_sequential: source.is_sequential,
            lanes: lanes.len(),
            rate_bytes_per_s: lanes.iter().filter_map(|lane| lane.rate_bytes_per_s(self.now)).sum(),
            round_trip: source.round_trip,
            received_bytes: source.received_bytes,
            fresh_bytes: source.fresh_bytes,
            outstanding_bytes: lanes.iter().map(|lane| lane.outstanding_bytes()).fold(0, u64::saturating_add),
        })
    }

    /// True if nothing can come because the target does not take what is there.
    pub fn waits_for_target(&self) -> bool {
        self.work.waits_for_target() || self.lanes.values().any(|lane| lane.blocked_since.is_some())
    }
}
