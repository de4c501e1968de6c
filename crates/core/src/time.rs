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

    /// How long after the origin this moment is.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
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

#[cfg(test)]
mod tests {
    use super::*;

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
