//! The events about sources that do not deliver, and the error when none can deliver the rest.

use gridlane_core::{Error, ErrorKind, Fault};
use gridlane_plan::{self as plan, SourceId, SourceState};

use crate::events::{Event, State};
use crate::replica::Trouble;
use crate::run::Run;
use crate::source::Source;

/// A source is slow that does less than this part of what it did.
const SLOW_SHARE: f64 = 0.25;
/// Ticks for which it must have had something to send: those that its latest rate is about.
const SLOW_TICKS_MIN: u32 = 5;

impl Trouble {
    fn state(self) -> State {
        match self {
            Trouble::None => State::Active,
            Trouble::Slow => State::Slow,
            Trouble::Suspect => State::Suspect,
            Trouble::Probation => State::Probation,
            Trouble::Busy => State::Busy,
        }
    }
}

impl Run<'_> {
    /// Tells of sources that have fallen silent, failed, or asked for a pause, and when they are back.
    pub(crate) fn tell_states(&mut self) {
        for (number, replica) in self.replicas.iter_mut().enumerate().filter(|(_, one)| one.dead.is_none()) {
            let (trouble, why) = match self.plan.source_state(SourceId(number as u32)) {
                Some(SourceState::Suspect) => (Trouble::Suspect, silence(&replica.source)),
                Some(SourceState::Probation { .. }) => (Trouble::Probation, replica.last_error.clone()),
                Some(SourceState::Busy { .. }) => (Trouble::Busy, replica.last_error.clone()),
                Some(SourceState::Active) if replica.trouble != Trouble::Slow => (Trouble::None, None),
                _ => continue,
            };
            if std::mem::replace(&mut replica.trouble, trouble) != trouble {
                let (source, state) = (number, trouble.state());
                self.observer.event(&Event::Source { source, state, error: why.as_ref() });
            }
        }
    }

    /// Tells of sources that do much less than they did, and when they are as fast as before.
    pub(crate) fn tell_slow(&mut self) {
        for (number, replica) in self.replicas.iter_mut().enumerate().filter(|(_, one)| one.dead.is_none()) {
            let Some(report) = self.plan.source_report(SourceId(number as u32)) else { continue };
            // A source that had nothing to send a moment ago is not slow.
            replica.busy_ticks = match report.state == SourceState::Active && report.outstanding_bytes > 0 {
                true => replica.busy_ticks + 1,
                false => 0,
            };
            let Some((best, latest)) =
                replica.meter.sustained_bytes_per_s().zip(replica.meter.latest_bytes_per_s())
            else {
                continue;
            };
            let next = match replica.trouble {
                Trouble::None if replica.busy_ticks > SLOW_TICKS_MIN && latest < SLOW_SHARE * best => {
                    Trouble::Slow
                }
                Trouble::Slow if latest > 2.0 * SLOW_SHARE * best => Trouble::None,
                _ => continue,
            };
            replica.trouble = next;
            let why = (next == Trouble::Slow).then(|| {
                let percent = 100.0 * latest / best.max(1.0);
                let message = format!("its rate is {percent:.0} % of what it was");
                Error::new(ErrorKind::Timeout, message).endpoint(&replica.source.url)
            });
            self.observer.event(&Event::Source { source: number, state: next.state(), error: why.as_ref() });
        }
    }

    /// Says why the rest cannot be had.
    pub(crate) fn stuck(&self, why: plan::Stuck) -> Error {
        let errors: Vec<&Error> =
            self.replicas.iter().filter_map(|replica| replica.last_error.as_ref()).collect();
        // The most useful one: errors that the user can mend come before those that pass by themselves.
        let rank = |error: &Error| match error.kind() {
            ErrorKind::Denied => 0,
            ErrorKind::Precondition => 1,
            ErrorKind::ChecksumMismatch => 2,
            ErrorKind::Busy => 3,
            ErrorKind::Timeout => 4,
            ErrorKind::Network => 5,
            ErrorKind::NotFound => 6,
            _ => 7,
        };
        // One source that may answer later makes the whole worth trying again.
        let passing = errors.iter().copied().find(|error| error.is_retryable());
        let worst = passing.or_else(|| errors.iter().copied().min_by_key(|error| rank(error)));
        let Some(worst) = worst.cloned() else {
            let waited = self.options.patience.as_secs_f64();
            let silence = format!("no source sent a byte for {waited:.0} s");
            let error = match why {
                plan::Stuck::Refused => Error::new(
                    ErrorKind::ChecksumMismatch,
                    "every source that has the missing bytes has sent wrong ones",
                ),
                _ => Error::new(ErrorKind::Timeout, silence),
            };
            return error.endpoint(&self.replicas[0].source.url);
        };
        if self.replicas.len() == 1 {
            return worst;
        }
        let each: Vec<String> = self
            .replicas
            .iter()
            .filter_map(|replica| {
                let error = replica.last_error.as_ref()?;
                Some(format!("{}: {}", replica.source.url, error.message()))
            })
            .collect();
        let message =
            format!("none of the {} sources can deliver the rest: {}", self.replicas.len(), each.join("; "));
        let mut error = Error::new(worst.kind(), message)
            .fault(worst.whose_fault())
            .retryable(worst.is_retryable())
            .retry_after(worst.wait());
        if let Some(hint) = worst.advice() {
            error = error.hint(hint.clone());
        }
        match worst.status() {
            Some(status) => error.http_status(status),
            None => error,
        }
    }
}

/// Why a source is suspect.
fn silence(source: &Source) -> Option<Error> {
    let error = Error::new(ErrorKind::Timeout, "it sends nothing any more").fault(Fault::Network);
    Some(error.endpoint(&source.url))
}
