//! Time as a value, so that pure code never reads a clock.

use std::time::Duration;

/// A moment, counted from an origin that the owner of the clock chooses (the start of a copy, say).
///
/// Only differences mean anything. Resolution: one nanosecond; range: five centuries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The moment `since_origin` after the origin.
    pub fn from_origin(since_origin: Duration) -> Time {
        Time(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time from the origin to this moment.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Time from `earlier` to this moment; zero when it is not after it.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `seconds` after this one; negative or non-finite values count as zero.
    pub fn plus_s(self, seconds: f64) -> Time {
        if seconds.is_finite() && seconds > 0.0 {
            Time(self.0.saturating_add((seconds * 1e9) as u64))
        } else {
            self
        }
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, later: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A clock that stands still while it is not read: of a clock on the wall it takes the time between two looks, but no
/// more than so much at once.
///
/// For the patience of a process that looks many times a second: when it was stopped, the time since its last look is not
/// that of peers that were silent.
#[derive(Clone, Debug)]
pub struct WakingClock {
    step_max: Duration,
    looked_at: Time,
    lost: Duration,
}

impl WakingClock {
    /// A clock of whose time at most `step_max` passes between two looks.
    pub fn new(step_max: Duration) -> WakingClock {
        WakingClock { step_max, looked_at: Time::ZERO, lost: Duration::ZERO }
    }

    /// Looks at it when the clock on the wall shows `wall`.
    pub fn now(&mut self, wall: Time) -> Time {
        self.lost += wall.since(self.looked_at).saturating_sub(self.step_max);
        self.looked_at = self.looked_at.max(wall);
        Time::from_origin(wall.since_origin().saturating_sub(self.lost))
    }

    /// Time that the clock on the wall will show at `time` of this one, when it is looked at until then.
    pub fn wall(&self, time: Time) -> Time {
        time + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn time_without_a_look_counts_for_one_step() {
        let mut clock = WakingClock::new(Duration::from_millis(1000));
        assert_eq!(clock.now(ms(400)), ms(400));
        assert_eq!(clock.now(ms(1400)), ms(1400));
        assert_eq!((clock.now(ms(61_400)), clock.wall(ms(2400))), (ms(2400), ms(61_400)));
        assert_eq!(clock.now(ms(61_500)), ms(2500));
        // Two threads may come with what they have read in another order.
        assert_eq!(clock.now(ms(61_450)), ms(2450));
        assert_eq!(clock.now(ms(61_600)), ms(2600));
        assert_eq!(clock.now(ms(90_000)), ms(3600));
    }

    #[test]
    fn differences_never_go_below_zero() {
        let early = Time::from_origin(Duration::from_millis(5));
        let late = early + Duration::from_millis(7);
        assert_eq!(late.since(early), Duration::from_millis(7));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.plus_s(-1.0), early);
        assert_eq!(early.plus_s(f64::NAN), early);
        assert_eq!(early.plus_s(0.007), late);
    }
}
