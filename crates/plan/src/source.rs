//! One replica: whether it may be used, and how often it failed.

use std::time::Duration;

use gridlane_core::Time;
use gridlane_core::limits::{SOURCE_CUT_PAUSE, SOURCE_PROGRESS_BYTES_MIN};

use crate::arrivals::Arrivals;
use crate::settings::{BUSY, PROBATION, PROBATION_ALONE, PROBATIONS_MAX};
use crate::streams::Streams;

/// The standing of a source: in use or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not needed yet.
    Spare,
    /// In use.
    Live,
    /// Not before `until`, because it failed.
    Probation { until: Time },
    /// No new lane before `until`, because it asked for that.
    Busy { until: Time },
    /// Never again.
    Dead,
}

/// What an earlier copy has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warm {
    /// Connections that no lane has taken yet.
    pub(crate) connections: usize,
    /// The rate of one of them, in bytes per second, if that is known.
    pub(crate) rate_bytes_per_s: Option<f64>,
    /// Size of the object before this one.
    pub(crate) expected_bytes: Option<u64>,
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) standing: Standing,
    /// It ignores ranges.
    pub(crate) is_sequential: bool,
    /// Connections that are there already, which its next lanes take.
    pub(crate) warm: Option<Warm>,
    /// It came back from probation and has not made progress since: one lane, one small request at a time.
    pub(crate) is_on_trial: bool,
    /// Lanes that it shall have after trials.
    pub(crate) lanes_wanted: usize,
    /// Lanes that it may have: as many as the settings allow, or as it put up with.
    pub(crate) lanes_cap: usize,
    pub(crate) streams: Streams,
    pub(crate) arrivals: Arrivals,
    pub(crate) round_trip: Option<Duration>,
    /// The rate of the lane that was lost last, in bytes per second.
    pub(crate) rate_prior: Option<f64>,
    pub(crate) received_bytes: u64,
    pub(crate) fresh_bytes: u64,
    /// Fresh bytes since it last failed.
    progress_bytes: u64,
    /// Failures since it last made progress.
    failures: u32,
    /// Probations it came back from and failed again.
    probations_failed: u32,
    /// Busy answers since it last delivered a fresh byte.
    busy_answers: u32,
    failed_at: Option<Time>,
}

impl Source {
    pub(crate) fn new(lanes_cap: usize) -> Source {
        Source {
            standing: Standing::Spare,
            is_sequential: false,
            warm: None,
            is_on_trial: false,
            lanes_wanted: 1,
            lanes_cap,
            streams: Streams::default(),
            arrivals: Arrivals::default(),
            round_trip: None,
            rate_prior: None,
            received_bytes: 0,
            fresh_bytes: 0,
            progress_bytes: 0,
            failures: 0,
            probations_failed: 0,
            busy_answers: 0,
            failed_at: None,
        }
    }

    /// It delivered: when that is worth a connection, what it did before is forgiven.
    pub(crate) fn receive(&mut self, now: Time, bytes: u64, fresh_bytes: u64) {
        if let Some(round_trip) = self.round_trip {
            self.arrivals.count(now, round_trip, bytes);
        }
        self.received_bytes += bytes;
        self.fresh_bytes += fresh_bytes;
        self.streams.count(bytes);
        self.progress_bytes = self.progress_bytes.saturating_add(fresh_bytes);
        if fresh_bytes > 0 {
            self.busy_answers = 0;
        }
        if self.progress_bytes >= SOURCE_PROGRESS_BYTES_MIN {
            self.is_on_trial = false;
            (self.failures, self.probations_failed) = (0, 0);
        }
    }

    /// A lane that was opened at `opened_at` failed. The first failure is forgiven (a new lane is
    /// opened at once); lanes that were open then and fail after it belong to the same incident.
    /// `others_deliver`: the copy goes on without this source, so it can wait longer, and die.
    pub(crate) fn fail(&mut self, now: Time, opened_at: Time, others_deliver: bool) {
        if self.failed_at.is_some_and(|failed_at| opened_at < failed_at) {
            return;
        }
        self.failures += 1;
        self.failed_at = Some(now);
        if self.is_on_trial || self.failures > 1 {
            self.put_on_probation(now, others_deliver);
        }
        self.progress_bytes = 0;
    }

    /// It fell silent: no second chance before a pause.
    pub(crate) fn fall_silent(&mut self, now: Time, others_deliver: bool) {
        self.failures += 1;
        self.failed_at = Some(now);
        self.progress_bytes = 0;
        self.put_on_probation(now, others_deliver);
    }

    /// It asked to be left alone.
    pub(crate) fn be_busy(&mut self, now: Time, wait: Option<Duration>, lanes_open: usize) {
        let wait = wait.unwrap_or(BUSY * (1 << self.busy_answers.min(5)));
        self.busy_answers += 1;
        self.lanes_cap = lanes_open.clamp(1, self.lanes_cap);
        if self.standing != Standing::Dead {
            self.standing = Standing::Busy { until: now + wait };
        }
    }

    fn put_on_probation(&mut self, now: Time, others_deliver: bool) {
        if matches!(self.standing, Standing::Dead | Standing::Busy { .. }) {
            return; // It rests already.
        }
        if !others_deliver && self.progress_bytes > 0 {
            // It is all there is, and each connection brings a little.
            self.is_on_trial = false;
            self.standing = Standing::Probation { until: now + SOURCE_CUT_PAUSE };
            return;
        }
        if self.is_on_trial {
            self.probations_failed += 1;
        }
        let doubled = 1_u32 << self.probations_failed.min(8);
        let wait = match others_deliver {
            true if self.probations_failed >= PROBATIONS_MAX => {
                self.standing = Standing::Dead;
                return;
            }
            true => PROBATION * doubled,
            false => (PROBATION_ALONE * doubled).min(PROBATION),
        };
        self.is_on_trial = false;
        self.standing = Standing::Probation { until: now + wait };
    }

    /// Back in use, if its time has come.
    pub(crate) fn come_back(&mut self, now: Time) {
        match self.standing {
            Standing::Probation { until } if until <= now => {
                self.standing = Standing::Live;
                self.is_on_trial = true;
            }
            Standing::Busy { until } if until <= now => self.standing = Standing::Live,
            _ => {}
        }
    }

    /// When [`come_back`](Source::come_back) does something.
    pub(crate) fn comes_back_at(&self) -> Option<Time> {
        match self.standing {
            Standing::Probation { until } | Standing::Busy { until } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(s: u64) -> Time {
        Time::from_origin(Duration::from_secs(s))
    }

    #[test]
    fn the_first_failure_is_forgiven_and_the_next_ones_wait_longer_each_time() {
        let mut source = Source::new(4);
        source.standing = Standing::Live;
        source.fail(at_s(1), at_s(0), true);
        assert_eq!(source.standing, Standing::Live);
        source.fail(at_s(2), at_s(0), true);
        assert_eq!(source.standing, Standing::Live, "the same incident");
        let mut now = at_s(3);
        for wait in [5, 10, 20] {
            source.fail(now, now, true);
            let until = now + Duration::from_secs(wait);
            assert_eq!(source.standing, Standing::Probation { until });
            source.come_back(until);
            assert_eq!(source.standing, Standing::Live);
            now = until;
        }
        source.fail(now, now, true);
        assert_eq!(source.standing, Standing::Dead);
    }

    #[test]
    fn the_only_source_never_dies_of_failures() {
        let mut source = Source::new(4);
        source.standing = Standing::Live;
        let mut now = at_s(0);
        for _ in 0..20 {
            source.fail(now, now, false);
            now = source.comes_back_at().unwrap_or(now);
            source.come_back(now);
        }
        assert_eq!(source.standing, Standing::Live);
        assert!(now < at_s(20 * 5));
    }

    #[test]
    fn progress_wipes_the_slate() {
        let enough = SOURCE_PROGRESS_BYTES_MIN;
        let mut source = Source::new(4);
        source.standing = Standing::Live;
        for s in 1..10 {
            source.fail(at_s(s), at_s(s), true);
            assert_eq!(source.standing, Standing::Live);
            source.receive(Time::ZERO, enough / 2, enough / 2);
            source.receive(Time::ZERO, enough / 2, enough / 2);
        }
        source.fail(at_s(20), at_s(20), true);
        source.receive(Time::ZERO, enough, 0);
        source.fail(at_s(21), at_s(21), true);
        assert_ne!(source.standing, Standing::Live, "bytes that were there already do not count");
    }

    #[test]
    fn a_few_bytes_for_each_connection_are_no_progress() {
        let mut source = Source::new(4);
        source.standing = Standing::Live;
        let mut now = at_s(1);
        for _ in 0..4 {
            source.receive(Time::ZERO, 1000, 1000);
            source.fail(now, now, true);
            now = source.comes_back_at().unwrap_or(now) + Duration::from_millis(1);
            source.come_back(now);
        }
        assert!(now >= at_s(1 + 5 + 10 + 20), "{now:?}");
        source.receive(Time::ZERO, 1000, 1000);
        source.fail(now, now, true);
        assert_eq!(source.standing, Standing::Dead);
    }

    #[test]
    fn the_only_source_is_not_dialled_without_a_pause_for_a_few_bytes() {
        let mut source = Source::new(4);
        source.standing = Standing::Live;
        let mut now = at_s(0);
        for _ in 0..101 {
            source.receive(Time::ZERO, 1000, 1000);
            source.fail(now, now, false);
            now = source.comes_back_at().unwrap_or(now);
            source.come_back(now);
            assert_eq!(source.standing, Standing::Live);
        }
        assert_eq!(now, at_s(0) + 100 * SOURCE_CUT_PAUSE);
    }
}
