//! Circuit breakers: what fails again and again is tried by one file at a time, and not by all.
//!
//! Each path and each storage has one. It opens after [`BREAKER_FAILURES`] failures one after the other, while no copy that was begun
//! since the first of them moves bytes. Then one file at a time is started, as a probe, after pauses that grow and differ by chance. It
//! closes with the first byte that the probe moves: everything goes on, with the concurrency that there was. Bytes of copies that
//! were begun before say nothing of it: what takes no new copy may still move those that it has.
//!
//! ```text
//!           4 failures in a row                    the pause is over
//!  closed ────────────────────▶ open, no start ◀──────────────────▶ open, one probe
//!    ▲                                                   fails            │ bytes move
//!    └────────────────────────────────────────────────────────────────────┘
//! ```

use std::time::Duration;

use gridlane_core::limits::{
    BREAKER_ALIVE, BREAKER_FAILURES, BREAKER_HOPE, BREAKER_PAUSE, BREAKER_PAUSE_MAX, RETRY_PAUSE,
};
use gridlane_core::{ErrorKind, Fault, Time};
use gridlane_jobs::FileId;

use crate::random::Random;

/// An end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the file is.
    Source,
    /// Where it goes.
    Destination,
}

/// The place of a failure, which says what else would fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The file alone: it is not there, exists already, has a wrong checksum.
    File,
    /// The path between the storages: no connection, it broke, nothing came.
    Path,
    /// A storage: it cannot be reached from here, has no room, is too busy, answers with errors.
    Storage(Side),
    /// The user's rights or credentials.
    User,
    /// This service.
    Local,
}

impl Class {
    /// The class of an error: of a request to one storage, or (`None`) of the copy between both.
    pub fn of(kind: ErrorKind, fault: Fault, side: Option<Side>) -> Class {
        if fault == Fault::Local || fault == Fault::Internal {
            return Class::Local;
        }
        match (kind, side) {
            (ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Busy | ErrorKind::Protocol, Some(side)) => {
                Class::Storage(side)
            }
            (ErrorKind::LocalIo, Some(side)) => Class::Storage(side),
            (ErrorKind::Network | ErrorKind::Timeout, None) => Class::Path,
            (ErrorKind::Denied, _) => Class::User,
            _ => Class::File,
        }
    }
}

/// A copy that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub class: Class,
    /// Another attempt could help (fts3-rest 7.2).
    pub is_recoverable: bool,
    /// Attempts that have failed before.
    pub attempts: u32,
    /// Attempts after the first that its job allows.
    pub retries: u32,
    /// The pause that its job asks for.
    pub retry_pause: Option<Duration>,
    /// There is another replica, which was not tried yet.
    pub has_replica: bool,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits again.
    Retry {
        /// For so long at the least.
        after: Duration,
        /// True if it counts as one of the attempts that its job allows. It does not when the path is down, or may be: the file is not
        /// at fault.
        is_counted: bool,
    },
    /// The next replica is used.
    OtherReplica,
    /// It has failed for good.
    GiveUp,
}

impl Failure {
    /// What follows, where the path or a storage of it has been down for so long, and the file had so many retries before that did not
    /// count though nothing was known to be down.
    ///
    /// What dies is not known to be dead before [`BREAKER_FAILURES`] failures: the files of the first ones are no more at fault than
    /// those of the others. But what looks like the path may be the file, so that it has no more than as many such retries.
    pub(crate) fn verdict(&self, down: Option<Duration>, spared: u32) -> Verdict {
        if self.has_replica && self.class != Class::Local {
            return Verdict::OtherReplica;
        }
        let is_spared = match (down, self.class) {
            (Some(down), Class::Path | Class::Storage(_) | Class::Local) => down < BREAKER_HOPE,
            (None, Class::Path | Class::Storage(_)) => spared < BREAKER_FAILURES,
            _ => false,
        };
        if is_spared && self.is_recoverable {
            // The breaker says when it is tried again.
            return Verdict::Retry { after: BREAKER_PAUSE, is_counted: false };
        }
        if self.is_recoverable && self.attempts < self.retries {
            return Verdict::Retry { after: self.retry_pause.unwrap_or(RETRY_PAUSE), is_counted: true };
        }
        Verdict::GiveUp
    }
}

/// The breaker of a path or a storage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    /// Failures since a copy moved bytes that was begun after the first of them.
    failures: u32,
    /// When the first of them was counted.
    first_failed_at: Option<Time>,
    /// When bytes moved last, of whichever copy.
    alive_at: Option<Time>,
    /// When it was last seen to work again after failures.
    worked_again_at: Option<Time>,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    since: Time,
    probe_at: Time,
    pause: Duration,
    probe: Option<FileId>,
}

impl Breaker {
    /// Time since which it is open.
    pub(crate) fn open_since(&self) -> Option<Time> {
        self.open.as_ref().map(|open| open.since)
    }

    /// True if bytes moved lately.
    pub(crate) fn is_alive(&self, now: Time) -> bool {
        self.alive_at.is_some_and(|alive| now.since(alive) < BREAKER_ALIVE)
    }

    /// When the next probe may start: `Ok` now, `Err(None)` when the running one has ended.
    pub(crate) fn may_start(&self, now: Time) -> Result<(), Option<Time>> {
        match &self.open {
            None => Ok(()),
            Some(open) if open.probe.is_some() => Err(None),
            Some(open) if open.probe_at > now => Err(Some(open.probe_at)),
            Some(_) => Ok(()),
        }
    }

    /// A file starts; it is the probe if the breaker is open and there is none: one that is forced takes no probe's place.
    pub(crate) fn started(&mut self, file: FileId) {
        if let Some(open) = &mut self.open {
            open.probe.get_or_insert(file);
        }
    }

    /// Bytes of a file moved that started at this time; true if it was open and is not any more.
    pub(crate) fn alive(&mut self, file: FileId, started: Time, now: Time) -> bool {
        self.alive_at = Some(now);
        let is_closing = self.open.as_ref().is_some_and(|open| open.probe == Some(file));
        // What starts in the moment of a failure starts because of it: it took the place.
        let is_newer = self.open.is_none() && self.first_failed_at.is_some_and(|failed| started >= failed);
        if is_closing || is_newer {
            (self.failures, self.first_failed_at, self.open) = (0, None, None);
            self.worked_again_at = Some(now);
        }
        is_closing
    }

    /// A file that started at this time has failed because of it; true if it opens.
    pub(crate) fn failed(&mut self, file: FileId, started: Time, now: Time, random: &mut Random) -> bool {
        if let Some(open) = &mut self.open {
            if open.probe == Some(file) {
                open.probe = None;
                open.probe_at = now + jittered(open.pause, random);
                open.pause = (2 * open.pause).min(BREAKER_PAUSE_MAX);
            }
            return false;
        }
        // What broke off before it worked again says nothing of now.
        if self.worked_again_at.is_some_and(|worked| started < worked && now.since(worked) < BREAKER_ALIVE) {
            return false;
        }
        self.failures += 1;
        self.first_failed_at.get_or_insert(now);
        if self.failures < BREAKER_FAILURES {
            return false;
        }
        self.open(now, random);
        true
    }

    /// Opens it.
    pub(crate) fn open(&mut self, now: Time, random: &mut Random) {
        let probe_at = now + jittered(BREAKER_PAUSE, random);
        self.open = Some(Open { since: now, probe_at, pause: 2 * BREAKER_PAUSE, probe: None });
    }

    /// A file has ended otherwise: as a probe it has shown nothing, and another one may start.
    pub(crate) fn ended(&mut self, file: FileId, now: Time) {
        if let Some(open) = &mut self.open
            && open.probe == Some(file)
        {
            open.probe = None;
            open.probe_at = now;
        }
    }
}

/// Three quarters of a pause to all of it: brokers and paths that went down together do not come together.
fn jittered(pause: Duration, random: &mut Random) -> Duration {
    pause.mul_f64(0.75 + 0.25 * random.part())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(seconds: f64) -> Time {
        Time::ZERO.plus_s(seconds)
    }

    #[test]
    fn what_is_down_is_probed_by_one_file_at_a_time_and_is_back_at_once() {
        let (mut breaker, mut random) = (Breaker::default(), Random::new(1));
        for number in 0..3 {
            assert!(!breaker.failed(FileId(number), at_s(0.0), at_s(1.0), &mut random));
        }
        assert!(breaker.failed(FileId(3), at_s(0.0), at_s(1.0), &mut random), "the fourth in a row");
        for number in 4..50 {
            assert!(
                !breaker.failed(FileId(number), at_s(0.0), at_s(1.0), &mut random),
                "the rest of the storm"
            );
        }
        let (mut now, mut probes, mut longest) = (at_s(1.0), 0, Duration::ZERO);
        while now < at_s(61.0) {
            let Err(Some(at)) = breaker.may_start(now) else { panic!("no pause") };
            longest = longest.max(at.since(now));
            assert!(breaker.may_start(at).is_ok());
            breaker.started(FileId(100 + probes));
            assert_eq!(breaker.may_start(at), Err(None), "one at a time");
            now = at + Duration::from_millis(10);
            breaker.failed(FileId(100 + probes), at, now, &mut random);
            probes += 1;
        }
        assert!(probes <= 12, "{probes} probes in a minute");
        assert!(longest <= BREAKER_PAUSE_MAX, "{longest:?}");
        breaker.started(FileId(200));
        assert!(breaker.alive(FileId(200), now, now));
        assert!(breaker.may_start(now).is_ok());
        for number in 0..50 {
            let later = now + Duration::from_secs(1);
            assert!(!breaker.failed(FileId(number), at_s(0.0), later, &mut random), "it broke off before");
        }
    }

    #[test]
    fn old_copies_that_still_move_bytes_hide_nothing() {
        let (mut breaker, mut random) = (Breaker::default(), Random::new(1));
        // One was begun long ago, and is told of each second; whatever is begun now fails.
        let old = FileId(1000);
        for number in 0..4 {
            let now = at_s(10.0 + number as f64);
            assert!(!breaker.alive(old, at_s(0.0), now));
            let opens = breaker.failed(FileId(number), now, now.plus_s(0.5), &mut random);
            assert_eq!(opens, number == 3, "failure {number} counts");
        }
        assert!(!breaker.alive(old, at_s(0.0), at_s(14.0)), "it is open for what begins");
        assert_eq!(breaker.open_since(), Some(at_s(13.5)));
        let Err(Some(at)) = breaker.may_start(at_s(14.0)) else { panic!("no pause") };
        breaker.started(FileId(5));
        breaker.started(FileId(6));
        assert!(!breaker.alive(FileId(6), at, at), "it was forced, and is no probe");
        assert!(!breaker.alive(old, at_s(0.0), at));
        assert_eq!(breaker.may_start(at), Err(None), "the probe runs still");
        assert!(breaker.alive(FileId(5), at, at.plus_s(1.0)));
        assert_eq!(breaker.open_since(), None);
    }

    #[test]
    fn a_copy_that_was_begun_after_a_failure_and_moves_bytes_ends_the_count() {
        let (mut breaker, mut random) = (Breaker::default(), Random::new(1));
        for number in 0..20 {
            let now = at_s(100.0 * number as f64);
            for failure in 0..3 {
                assert!(!breaker.failed(FileId(failure), now, now.plus_s(1.0), &mut random));
            }
            assert!(!breaker.alive(FileId(9), now.plus_s(1.0), now.plus_s(2.0)), "it was not open");
        }
    }

    #[test]
    fn a_probe_that_shows_nothing_is_followed_by_another() {
        let (mut breaker, mut random) = (Breaker::default(), Random::new(1));
        breaker.open(at_s(0.0), &mut random);
        breaker.started(FileId(1));
        breaker.ended(FileId(1), at_s(5.0));
        assert!(breaker.may_start(at_s(5.0)).is_ok());
    }

    #[test]
    fn classes_decide() {
        let failure = Failure {
            class: Class::Path,
            is_recoverable: true,
            attempts: 0,
            retries: 1,
            retry_pause: None,
            has_replica: false,
        };
        let counted = Verdict::Retry { after: RETRY_PAUSE, is_counted: true };
        let free = Verdict::Retry { after: BREAKER_PAUSE, is_counted: false };
        let hour = Some(BREAKER_HOPE);
        assert_eq!(failure.verdict(None, BREAKER_FAILURES), counted);
        assert_eq!(Failure { attempts: 1, ..failure }.verdict(None, BREAKER_FAILURES), Verdict::GiveUp);
        assert_eq!(Failure { attempts: 1, ..failure }.verdict(None, BREAKER_FAILURES - 1), free);
        assert_eq!(Failure { retries: 0, ..failure }.verdict(None, 0), free);
        assert_eq!(Failure { attempts: 1, ..failure }.verdict(Some(Duration::from_secs(60)), 9), free);
        assert_eq!(Failure { attempts: 1, ..failure }.verdict(hour, 0), Verdict::GiveUp);
        assert_eq!(Failure { has_replica: true, ..failure }.verdict(None, 0), Verdict::OtherReplica);
        assert_eq!(Failure { is_recoverable: false, ..failure }.verdict(None, 0), Verdict::GiveUp);
        assert_eq!(Failure { class: Class::Local, ..failure }.verdict(None, 0), counted);
        let file = Failure { class: Class::File, is_recoverable: false, ..failure };
        assert_eq!(file.verdict(Some(Duration::ZERO), 0), Verdict::GiveUp);
        let class = |kind, side| Class::of(kind, Fault::Peer, side);
        assert_eq!(class(ErrorKind::NotFound, Some(Side::Source)), Class::File);
        assert_eq!(class(ErrorKind::Busy, Some(Side::Source)), Class::Storage(Side::Source));
        assert_eq!(class(ErrorKind::Timeout, None), Class::Path);
        assert_eq!(Class::of(ErrorKind::LocalIo, Fault::Local, None), Class::Local);
    }
}
