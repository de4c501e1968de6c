//! What a copy tells of itself: how far it is, how fast it was, what bound that has, and what limited it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_plan::{SourceId, SourcePath, SourceState, fluid_bound_s};
use gridlane_sys::process::cpu_time;

use crate::events::{Limit, Report, Snapshot, SourceReport, SourceSnapshot, State};
use crate::run::Run;

/// A part of the time above which something is called the limit.
const MOSTLY: f64 = 0.7;

impl Run<'_> {
    /// The progress of the copy.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let done_bytes = match (self.judge.size_bytes(), self.plan.missing_bytes()) {
            (Some(size), Some(missing)) => size.saturating_sub(missing),
            _ => self.meter.total() + self.judge.resumed_bytes(),
        };
        let rate = self.meter.recent_bytes_per_s();
        let left = self.judge.size_bytes().map(|size| size.saturating_sub(done_bytes));
        let ledger = self.target.ledger();
        let sources = (0..self.replicas.len()).map(|number| {
            let replica = &self.replicas[number];
            let planned = self.plan.source_report(SourceId(number as u32));
            SourceSnapshot {
                state: self.state_of(number, planned.as_ref().map(|report| report.state)),
                rate_bytes_per_s: replica.meter.recent_bytes_per_s(),
                round_trip: replica.round_trip,
                bytes: ledger.bytes_of(number as u32),
                lanes: planned.map_or(0, |report| report.lanes),
                peer: replica.source.peer(),
            }
        });
        Snapshot {
            size_bytes: self.judge.size_bytes(),
            done_bytes,
            rate_bytes_per_s: rate,
            eta_s: left.filter(|_| rate > 0.0).map(|left| left as f64 / rate),
            elapsed_s: self.pace.elapsed().as_secs_f64(),
            verifying: self.judge.is_verifying(),
            sources: sources.collect(),
        }
    }

    /// The state of a source that is in this one by the plan.
    fn state_of(&self, number: usize, planned: Option<SourceState>) -> State {
        let member = &self.judge.members()[number];
        match (member.is_dead, member.is_distrusted || member.wrong_pieces > 0) {
            (true, true) => return State::Wrong,
            (true, false) => return State::Dead,
            (false, _) => {}
        }
        match planned {
            Some(SourceState::Spare) | None => State::Spare,
            Some(SourceState::Connecting) => State::Connecting,
            Some(SourceState::Active) => State::Active,
            Some(SourceState::Suspect) => State::Suspect,
            Some(SourceState::Probation { .. }) => State::Probation,
            Some(SourceState::Busy { .. }) => State::Busy,
            Some(SourceState::Dead) => State::Dead,
        }
    }

    /// The report of the copy.
    pub(crate) fn report(&mut self) -> Report {
        let seconds = self.pace.elapsed().as_secs_f64();
        let snapshot = self.snapshot();
        let fetched_bytes: u64 = self.replicas.iter().map(|replica| replica.received_bytes).sum();
        let sources: Vec<SourceReport> = self
            .replicas
            .iter()
            .zip(self.judge.members())
            .zip(&snapshot.sources)
            .map(|((replica, member), now)| SourceReport {
                url: replica.source.url.to_string(),
                state: now.state,
                bytes: now.bytes,
                received_bytes: replica.received_bytes,
                rate_best_bytes_per_s: replica.meter.best_second_bytes_per_s(),
                round_trip: replica.round_trip,
                connections: replica.connections,
                handshakes: replica.handshakes,
                wrong_pieces: member.wrong_pieces,
                error: replica.last_error.clone(),
            })
            .collect();
        let fresh_bytes = self.meter.total().saturating_sub(self.judge.wrong_bytes());
        let (bound_s, bound_from) = self.bound(fresh_bytes, &sources);
        Report {
            size_bytes: self.judge.size_bytes(),
            done_bytes: snapshot.done_bytes,
            // What was fetched again does not count as taken over.
            resumed_bytes: self.judge.resumed_bytes().min(snapshot.done_bytes.saturating_sub(fresh_bytes)),
            fetched_bytes,
            extra_bytes: fetched_bytes.saturating_sub(fresh_bytes) + self.wasted_bytes,
            seconds,
            bound_s,
            bound_from,
            limited_by: self.limited_by(seconds, fresh_bytes, bound_s),
            verified: self.judge.verified(),
            checksum: self.judge.checksum().cloned(),
            verified_with: self.judge.verified_with(),
            unstated: self.judge.unstated(),
            modified_accepted: self.modified_accepted.as_ref().map(|said| said.load(Relaxed)),
            sources,
        }
    }

    fn bound(&self, fetched_bytes: u64, sources: &[SourceReport]) -> (Option<f64>, String) {
        let paths: Vec<SourcePath> = self
            .replicas
            .iter()
            .filter_map(|replica| {
                Some(SourcePath {
                    rate_bytes_per_s: replica.meter.sustained_bytes_per_s()?,
                    round_trip_s: replica.round_trip.unwrap_or_default().as_secs_f64(),
                    handshake_round_trips: f64::from(replica.handshake_round_trips) + 1.0,
                })
            })
            .collect();
        let used = sources.iter().filter(|source| source.received_bytes > 0).count();
        if paths.is_empty() || paths.len() < used {
            return (None, "unknown: not every source was active for a second".into());
        }
        let limit = self.options.limit.as_ref().map(|limit| limit.bytes_per_s() as f64);
        let handshakes: u32 = self.replicas.iter().map(|replica| replica.handshakes).sum();
        let from = format!(
            "sustained rate of {} source{}, smallest round trip, {handshakes} handshake{}",
            paths.len(),
            if paths.len() == 1 { "" } else { "s" },
            if handshakes == 1 { "" } else { "s" },
        );
        match fluid_bound_s(fetched_bytes, &paths, limit) {
            Some(bound_s) => (Some(bound_s), from),
            None => (None, "unknown: nothing was measured".into()),
        }
    }

    fn limited_by(&self, seconds: f64, fetched_bytes: u64, bound_s: Option<f64>) -> Limit {
        let figures = Figures {
            seconds,
            fetched_bytes,
            rate_max: self.options.limit.as_ref().map(|limit| limit.bytes_per_s() as f64),
            lanes: self.replicas.iter().filter(|replica| replica.received_bytes > 0).count().max(1),
            target_busy_s: self.target.busy_s(),
            cpu: self.cpu.used(cpu_time()),
            cores: gridlane_sys::process::processors(),
            bound_s,
        };
        figures.limited_by()
    }
}

/// The facts that say what limited a copy.
#[derive(Clone, Copy, Debug)]
struct Figures {
    seconds: f64,
    fetched_bytes: u64,
    /// The limit of the rate that was asked for, in bytes per second.
    rate_max: Option<f64>,
    /// Sources that brought bytes.
    lanes: usize,
    /// Time that lanes spent writing, summed over them.
    target_busy_s: f64,
    /// CPU time of this copy alone, where that is known.
    cpu: Option<Duration>,
    cores: usize,
    /// The least time that the copy can have taken over its paths.
    bound_s: Option<f64>,
}

impl Figures {
    fn limited_by(&self) -> Limit {
        let Figures { seconds, lanes, cores, .. } = *self;
        let rate = self.fetched_bytes as f64 / seconds.max(1e-6);
        if self.rate_max.is_some_and(|rate_max| rate >= 0.9 * rate_max) {
            return Limit::Rate;
        }
        if self.target_busy_s / lanes as f64 >= MOSTLY * seconds {
            return Limit::Target;
        }
        // One lane keeps one core busy; several can keep all.
        let busy_s = MOSTLY * seconds * lanes.min(cores) as f64;
        if self.cpu.is_some_and(|cpu| cpu.as_secs_f64() >= busy_s) && seconds > 0.1 {
            return Limit::Processor;
        }
        match self.bound_s {
            Some(bound_s) if bound_s >= 0.8 * seconds => Limit::Sources,
            Some(_) => Limit::Pauses,
            None => Limit::StartUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_the_limit_only_where_its_time_is_known_to_be_the_copys() {
        let figures = Figures {
            seconds: 10.0,
            fetched_bytes: 1_000_000,
            rate_max: None,
            lanes: 1,
            target_busy_s: 1.0,
            cpu: Some(Duration::from_secs(9)),
            cores: 4,
            bound_s: Some(9.0),
        };
        assert_eq!(figures.limited_by(), Limit::Processor);
        assert_eq!(Figures { cpu: None, ..figures }.limited_by(), Limit::Sources);
        assert_eq!(Figures { cpu: None, bound_s: None, ..figures }.limited_by(), Limit::StartUp);
        assert_eq!(Figures { lanes: 2, ..figures }.limited_by(), Limit::Sources, "two could use more");
        assert_eq!(Figures { target_busy_s: 8.0, ..figures }.limited_by(), Limit::Target);
        assert_eq!(Figures { rate_max: Some(100_000.0), ..figures }.limited_by(), Limit::Rate);
    }
}
